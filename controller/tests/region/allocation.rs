//! Machines for deployments: a machine goes to one deployment, with any number of regions; waiting deployments get the reason.

use crate::support::{Client, Lab, admin_token, driven_lab, region_beside};
use basalt_engine::Policy;
use basalt_region::controller::Controller;
use basalt_region::region::Region;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Repeats `look` until it has a result.
pub(crate) async fn once<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn apply(api: &Client, documents: Vec<Value>) {
    let body = json!({"documents": documents}).to_string();
    let answer = api.send("POST", "/api/v1/apply", &[], body).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

pub(crate) fn image() -> Value {
    json!({"kind": "Image", "metadata": {"name": "debian"},
        "spec": {"os": "debian", "release": "12", "architecture": "amd64",
            "files": {"root_tarball": {"sha256": "0".repeat(64), "size": 7}}}})
}

/// A machine that is ready without commissioning, and has no BMC.
pub(crate) fn machine(name: &str, zone: &str) -> Value {
    json!({"kind": "Machine", "metadata": {"name": name},
        "spec": {"zone": zone, "commissioning": {"skip": true}}})
}

fn deployment(name: &str, selector: &Value) -> Value {
    json!({"kind": "Deployment", "metadata": {"name": name}, "spec": {"image": "debian", "selector": selector}})
}

async fn list(api: &Client, plural: &str) -> Vec<Value> {
    api.get(&format!("/api/v1/{plural}?limit=1000")).await.json()["items"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

/// Waits until all machines can be chosen.
async fn ready(api: &Client, count: usize) {
    once("machines are ready", async || {
        let machines = list(api, "machines").await;
        let ready = machines.iter().filter(|m| m["status"]["axes"]["lifecycle"] == "ready").count();
        (ready == count).then_some(())
    })
    .await;
}

/// The deployments and their machines, once all have one.
async fn placed(api: &Client, count: usize) -> BTreeMap<String, String> {
    once("every deployment has a machine", async || {
        let has = |d: &Value| {
            Some((d["metadata"]["name"].as_str()?.to_owned(), d["status"]["machine"].as_str()?.to_owned()))
        };
        let placed: BTreeMap<_, _> = list(api, "deployments").await.iter().filter_map(has).collect();
        (placed.len() == count).then_some(placed)
    })
    .await
}

#[tokio::test]
async fn a_machine_and_its_deployment_are_approved_and_applied_together() {
    let lab = driven_lab().await;
    apply(&lab.api, vec![image(), json!({"kind": "Zone", "metadata": {"name": "a"}, "spec": {}})]).await;
    let wanted =
        json!({"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"image": "debian", "machine": "m"}});
    let documents = vec![machine("m", "a"), wanted];
    let body = json!({"documents": documents}).to_string();
    let tried = lab.api.send("POST", "/api/v1/apply?dry_run=true", &[], body).await.json();
    let body = json!({"documents": documents, "digest": tried["digest"]}).to_string();
    let answer = lab.api.send("POST", "/api/v1/apply", &[], body).await;
    assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
    assert_eq!(placed(&lab.api, 1).await, BTreeMap::from([("d".to_owned(), "m".to_owned())]));
    let (_, replay) = decided(&lab, "d").await;
    assert_eq!(replay["verdict"], "same", "{replay}");
}

/// Another region with a driver on the same database.
async fn beside(lab: &Lab) -> (Region, Controller, tempfile::TempDir) {
    let (region, dir) = region_beside(lab).await;
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller =
        Controller::start(&region, anywhere, Policy::default(), Vec::new()).await.expect("it starts");
    (region, controller, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_regions_give_64_machines_to_64_deployments_each_to_one() {
    let lab = driven_lab().await;
    let (region, controller, dir) = beside(&lab).await;
    let zone = json!({"kind": "Zone", "metadata": {"name": "a"}, "spec": {}});
    let machines = (0..64).map(|n| machine(&format!("m{n}"), "a"));
    apply(&lab.api, machines.chain([zone, image()]).collect()).await;
    ready(&lab.api, 64).await;
    let token = Some(admin_token(lab.dir.path()));
    let clients = [lab.api.clone(), Client::new(region.address(), token)];
    let mut writes = tokio::task::JoinSet::new();
    for n in 0..64 {
        let api = clients[n % 2].clone();
        let document = deployment(&format!("d{n}"), &json!({}));
        writes.spawn(async move {
            api.declare(&format!("/api/v1/deployments/d{n}"), &document["spec"].to_string()).await;
        });
    }
    writes.join_all().await;
    let placed = placed(&lab.api, 64).await;
    assert_eq!(placed.values().collect::<BTreeSet<_>>().len(), 64, "{placed:?}");
    region.begin_to_stop();
    controller.ended().await;
    region.stop().await;
    drop(dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_several_deployments_gives_each_machine_once_and_tells_who_gets_none() {
    let lab = driven_lab().await;
    let zone = json!({"kind": "Zone", "metadata": {"name": "a"}, "spec": {}});
    apply(&lab.api, vec![zone, image(), machine("m0", "a"), machine("m1", "a")]).await;
    ready(&lab.api, 2).await;
    let any = json!({});
    let mut body = json!({"documents": [
        deployment("third", &json!({"zone": "a"})), deployment("first", &any), deployment("second", &any),
    ]});
    let tried = async |body: &Value| {
        lab.api.send("POST", "/api/v1/apply?dry_run=true", &[], body.to_string()).await.json()
    };
    let plan = tried(&body).await;
    let of = |at: usize| plan["results"][at]["plan"].clone();
    assert_eq!((of(1)["machine"].as_str(), of(2)["machine"].as_str()), (Some("m0"), Some("m1")), "{plan}");
    assert_eq!(of(2)["summary"], "second: take m1 (the best of 2 that match), then install it");
    assert_eq!(of(0)["machine"], Value::Null);
    let why = "waiting for a machine that matches the selector: none of 2 does (not free: 2); \
        nearest: Machine \"m0\": Deployment \"first\" has it; Machine \"m1\": Deployment \"second\" has it";
    assert_eq!(of(0)["waits"][0]["message"], why);
    // The plan stays the same until something changes, and its result is what it announced.
    body["digest"] = tried(&body).await["digest"].clone();
    assert_eq!(body["digest"], plan["digest"]);
    let done = lab.api.send("POST", "/api/v1/apply", &[], body.to_string()).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let placed = placed(&lab.api, 2).await;
    assert_eq!(
        placed,
        BTreeMap::from([("first", "m0"), ("second", "m1")].map(|(d, m)| (d.into(), m.into())))
    );
}

/// The reason why a deployment got its machine, and the replay of that decision.
async fn decided(lab: &Lab, name: &str) -> (String, Value) {
    let path = format!("/api/v1/deployments/{name}/decisions?replay=true");
    let answer = lab.api.get(&path).await.json();
    let decisions = answer["decisions"].as_array().unwrap().iter();
    let of_step = |it: &&Value| it["step_key"].as_str().is_some_and(|key| key.contains("/allocate/"));
    let mut allocations = decisions.filter(of_step);
    let allocation = allocations.next().unwrap_or_else(|| panic!("{answer}"));
    assert!(allocations.next().is_none(), "{answer}");
    let message = allocation["message"].as_str().unwrap().strip_prefix("choose a machine: ").unwrap();
    (message.to_owned(), allocation["detail"]["replay"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_declared_together_is_spread_together_and_the_rest_is_told_why() {
    let lab = driven_lab().await;
    let mut documents = vec![image()];
    for zone in ["a", "b", "c"] {
        documents.push(json!({"kind": "Zone", "metadata": {"name": zone}, "spec": {}}));
        documents.extend((0..3).map(|n| machine(&format!("{zone}{n}"), zone)));
    }
    apply(&lab.api, documents).await;
    ready(&lab.api, 9).await;
    let spread = json!({"spread_by": "zone"});
    let plan = lab
        .api
        .put(
            "/api/v1/deployments/web-0?dry_run=true",
            &json!({"spec": deployment("web-0", &spread)["spec"]}).to_string(),
        )
        .await;
    let plan = plan.json()["plan"].clone();
    assert_eq!(plan["machine"], "a0");
    assert_eq!(
        plan["summary"],
        "web-0: take a0 (the best of 9 that match; zone a holds 0 of its group), then install it"
    );
    apply(&lab.api, (0..6).map(|n| deployment(&format!("web-{n}"), &spread)).collect()).await;
    let zones = placed(&lab.api, 6).await;
    let mut zones: Vec<_> = zones.values().map(|machine| machine[..1].to_owned()).collect();
    zones.sort();
    assert_eq!(zones.concat(), "aabbcc");
    for n in 0..6 {
        let (chosen, replay) = decided(&lab, &format!("web-{n}")).await;
        assert!(chosen.contains("that match; zone "), "{chosen}");
        assert_eq!(replay["verdict"], "same", "{replay}");
    }

    lab.api
        .declare(
            "/api/v1/deployments/picky",
            &deployment("picky", &json!({"zone": "b", "tags": ["gpu"]}))["spec"].to_string(),
        )
        .await;
    let message = once("it says what it waits for", async || {
        let waits = lab.api.get("/api/v1/deployments/picky/waits").await.json();
        let message = waits["waits"][0]["message"].as_str()?.to_owned();
        message.contains("tags: 9").then_some(message)
    })
    .await;
    let expected = "waiting for a machine that matches the selector: none of 9 does (not free: 6, zone: 6, tags: 9); \
        nearest: Machine \"b2\": no tag gpu; Machine \"a2\": zone a, b asked, no tag gpu; ";
    assert!(message.starts_with(expected), "{message}");
    // A change wakes it, long before its next periodic look.
    let mut changed = machine("b2", "b")["spec"].clone();
    changed["tags"] = json!(["gpu"]);
    lab.api.declare("/api/v1/machines/b2", &changed.to_string()).await;
    assert_eq!(placed(&lab.api, 7).await["picky"], "b2");
}

/// The first wait of a deployment, once its message contains `words`.
async fn wait_with(api: &Client, deployment: &str, words: &str) -> Value {
    once("it says what it waits for", async || {
        let waits = api.get(&format!("/api/v1/deployments/{deployment}/waits")).await.json();
        let wait = waits["waits"][0].clone();
        wait["message"].as_str()?.contains(words).then_some(wait)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_address_another_object_has_is_not_chosen_for_its_network() {
    let lab = driven_lab().await;
    crate::support::network(&lab.api).await;
    let at = |address: &str| json!({"interfaces": {"eth0": {"addressing": "static", "subnet": "lab", "address": address}}});
    let with = |name: &str, address: &str| {
        let mut machine = machine(name, "a");
        machine["spec"]["network"] = at(address);
        machine
    };
    let zone = json!({"kind": "Zone", "metadata": {"name": "a"}, "spec": {}});
    let documents = vec![zone, image(), with("m1", "10.77.0.41"), with("m2", "10.77.0.42")];
    apply(&lab.api, documents).await;
    ready(&lab.api, 2).await;
    // It may choose m1, but waits for another one.
    let mut own = deployment("own", &json!({"name": "m9"}));
    own["spec"]["network"] = at("10.77.0.41");
    apply(&lab.api, vec![own]).await;

    // The smallest machine by name would be m1.
    apply(&lab.api, vec![deployment("web-0", &json!({}))]).await;
    let given = once("web-0 has a machine", async || {
        let web = lab.api.get("/api/v1/deployments/web-0").await.json();
        web["status"]["machine"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(given, "m2");
    apply(&lab.api, vec![deployment("web-1", &json!({}))]).await;
    let taken = "Machine \"m1\": 10.77.0.41 is the address of another Deployment already";
    let wait = wait_with(&lab.api, "web-1", taken).await;
    assert_eq!(
        wait["message"],
        format!(
            "waiting for a machine that matches the selector: none of 2 does (not free: 1, address: 1); nearest: {taken}; \
             Machine \"m2\": Deployment \"web-0\" has it"
        )
    );
    assert_eq!(
        wait["human"],
        "declare a network in this deployment, or another address in the network of Machine \"m1\""
    );

    // The other Deployment gives the address up.
    let mut own = deployment("own", &json!({"name": "m9"}));
    own["spec"]["network"] = at("10.77.0.49");
    apply(&lab.api, vec![own]).await;
    once("web-1 has m1", async || {
        let web = lab.api.get("/api/v1/deployments/web-1").await.json();
        (web["status"]["machine"] == "m1").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_plan_gets_the_machines_that_it_named_or_is_refused() {
    const CLIENTS: usize = 8;
    let lab = driven_lab().await;
    let zone = json!({"kind": "Zone", "metadata": {"name": "a"}, "spec": {}});
    let machines = (0..CLIENTS).map(|n| machine(&format!("m{n}"), "a"));
    apply(&lab.api, machines.chain([zone, image()]).collect()).await;
    ready(&lab.api, CLIENTS).await;
    let mut clients = tokio::task::JoinSet::new();
    for n in 0..CLIENTS {
        let api = lab.api.clone();
        clients.spawn(async move {
            let name = format!("d{n}");
            let mut body = json!({"documents": [deployment(&name, &json!({}))]});
            for stale in 0..100 {
                body["digest"] = Value::Null;
                let plan = api.send("POST", "/api/v1/apply?dry_run=true", &[], body.to_string()).await.json();
                body["digest"] = plan["digest"].clone();
                let done = api.send("POST", "/api/v1/apply", &[], body.to_string()).await;
                if done.status == 200 {
                    assert_eq!(done.json()["digest"], plan["digest"], "what was approved is what was done");
                    let machine = plan["results"][0]["plan"]["machine"].as_str().expect("a machine");
                    return (name, machine.to_owned(), stale);
                }
                // On a busy host, the other requests may hold the right to claim for long.
                let (status, code, _) = done.problem();
                let is_refused = (status, code.as_str()) == (409, "stale_plan");
                assert!(is_refused || (status, code.as_str()) == (503, "unavailable"), "{status} {code}");
            }
            panic!("{name} was never approved in time");
        });
    }
    let approved = clients.join_all().await;
    let stale: usize = approved.iter().map(|(.., stale)| stale).sum();
    assert!(stale > 0, "nobody approved what another one got");
    let named: BTreeMap<_, _> = approved.into_iter().map(|(name, machine, _)| (name, machine)).collect();
    assert_eq!(placed(&lab.api, CLIENTS).await, named);
    for name in named.keys() {
        let (_, replay) = decided(&lab, name).await;
        assert_eq!(replay["verdict"], "same", "{replay}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_sees_the_rest_of_the_batch_as_it_would_be() {
    let lab = driven_lab().await;
    let zone = |name: &str| json!({"kind": "Zone", "metadata": {"name": name}, "spec": {}});
    apply(&lab.api, vec![zone("a"), zone("b"), image(), machine("m0", "a"), machine("m1", "a")]).await;
    ready(&lab.api, 2).await;
    // Zone b has no machine before the batch moves one into it, and the batch also renames the image.
    let mut other = image();
    other["metadata"]["name"] = json!("other");
    let mut wish = deployment("d", &json!({"zone": "b"}));
    wish["spec"]["image"] = json!("other");
    let mut body = json!({"documents": [wish, machine("m1", "b"), other]});
    let plan = lab.api.send("POST", "/api/v1/apply?dry_run=true", &[], body.to_string()).await.json();
    let of = plan["results"][0]["plan"].clone();
    assert_eq!(of["machine"], "m1", "{plan}");
    assert_eq!(of["summary"], "d: take m1 (the one that matches), then install it");
    body["digest"] = plan["digest"].clone();
    let done = lab.api.send("POST", "/api/v1/apply", &[], body.to_string()).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(placed(&lab.api, 1).await, BTreeMap::from([("d".to_owned(), "m1".to_owned())]));
}
