//! The server orders deletions: an object stays until no object refers to it, and its status names the ones that do.

use crate::accounts::{issue, pools};
use crate::allocation::{image, once};
use crate::examples::{Example, examples};
use crate::support::{Client, Lab, driven_lab, lab, network};
use crate::watch::{blue_client, told};
use basalt_api::client::WatchOptions;
use basalt_api::values::Uid;
use basalt_api::watch::What;
use basalt_api::{KINDS, Kind, Reference, Schema, Type, references};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The example to which `reference` refers.
fn target<'a>(examples: &'a [Example], reference: &Reference) -> &'a Example {
    let found = examples.iter().find(|e| e.kind.name == reference.kind && e.name == reference.name);
    found.unwrap_or_else(|| panic!("no example {reference:?}"))
}

/// The examples that `example` needs, in order of dependency, with the example itself at the end.
fn closure<'a>(examples: &'a [Example], example: &'a Example, into: &mut Vec<&'a Example>) {
    for reference in references(example.kind, &example.spec) {
        closure(examples, target(examples, &reference), into);
    }
    if !into.iter().any(|e| std::ptr::eq(*e, example)) {
        into.push(example);
    }
}

fn refers(from: &Example, to: &Example) -> bool {
    references(from.kind, &from.spec).iter().any(|r| r.kind == to.kind.name && r.name == to.name)
}

/// Requests the object's deletion. For an object with a driver, completes the deletion in place of the driver.
async fn delete(lab: &Lab, example: &Example) {
    let answer = lab.api.delete(&example.path()).await;
    if answer.status == 202 && example.kind.planned {
        let uid = answer.json()["metadata"]["uid"].as_str().expect("a uid").parse().expect("a uid");
        lab.region.store().finalise(uid).await.expect("it can go");
    } else {
        assert!([202, 204, 404].contains(&answer.status.as_u16()), "{}: {}", example.path(), answer.text());
    }
}

#[tokio::test]
async fn whatever_is_referred_to_stays_says_for_whom_and_goes_after_it() {
    let examples = examples();
    let lab = lab().await;
    let mut seen = BTreeSet::new();
    for example in &examples {
        let references = references(example.kind, &example.spec);
        if references.is_empty() {
            continue;
        }
        let mut needed = Vec::new();
        closure(&examples, example, &mut needed);
        for one in &needed {
            one.store(&lab).await;
        }
        for reference in &references {
            let target = target(&examples, reference);
            let waits = lab.api.delete(&target.path()).await;
            let what =
                format!("{} referred to by {} at {}", target.path(), example.path(), reference.pointer);
            assert_eq!(waits.status, 202, "{what}: {}", waits.text());
            let who = format!("{} {:?} ({})", example.kind.name, example.name, reference.pointer);
            let waits_for = lab
                .region
                .store()
                .referrers(waits.json()["metadata"]["uid"].as_str().expect("a uid").parse().expect("a uid"));
            let waits_for = waits_for.await.expect("an answer");
            assert!(
                waits_for.iter().any(|r| format!("{} {:?} ({})", r.kind, r.name, r.pointer) == who),
                "{what}: {waits_for:?}"
            );
            // Objects with a driver show it in their plan, and the others in their conditions.
            if !target.kind.planned {
                let conditions = waits.json()["status"]["conditions"].clone();
                assert_eq!(conditions[1]["reason"], "Referenced", "{what}");
                let message = conditions[1]["message"].as_str().expect("a message");
                assert!(message.contains(&who), "{what}: {message}");
            }
            seen.insert((example.kind.name, pattern(&reference.pointer)));
        }
        // Once the referring object is gone, the objects that it held go too, unless another object holds them.
        delete(&lab, example).await;
        assert_eq!(lab.api.get(&example.path()).await.status, 404, "{}", example.path());
        for reference in &references {
            let target = target(&examples, reference);
            let mut held = false;
            for other in needed.iter().filter(|other| refers(other, target)) {
                held |= lab.api.get(&other.path()).await.status == 200;
            }
            if target.kind.planned && !held {
                delete(&lab, target).await;
            }
            let there = lab.api.get(&target.path()).await.status.as_u16();
            assert_eq!(there, if held { 200 } else { 404 }, "{} after {}", target.path(), example.path());
        }
        for one in needed.iter().rev() {
            delete(&lab, one).await;
            assert_eq!(lab.api.get(&one.path()).await.status, 404, "{}", one.path());
        }
    }
    let missing: Vec<_> = every_reference().difference(&seen).cloned().collect();
    assert!(missing.is_empty(), "no example refers by {missing:?}: add one");
    eprintln!("{} sorts of references", seen.len());
}

/// Keys of maps in the examples.
const KEYS: [&str; 9] = ["bond0", "bond0.7", "br0", "dell", "eth0", "front", "more", "near", "web"];

/// A pointer without its variable parts.
fn pattern(pointer: &str) -> String {
    let steps =
        pointer.split('/').map(|step| if step.bytes().all(|b| b.is_ascii_digit()) { "" } else { step });
    steps.filter(|step| !step.is_empty() && !KEYS.contains(step)).collect::<Vec<_>>().join("/")
}

/// Every field that refers to an object, of every kind.
fn every_reference() -> BTreeSet<(&'static str, String)> {
    fn visit(
        kind: &'static Kind,
        at: &str,
        schema: &'static Schema,
        found: &mut BTreeSet<(&'static str, String)>,
    ) {
        for field in schema.fields {
            let here = if at.is_empty() { field.name.to_owned() } else { format!("{at}/{}", field.name) };
            let mut ty = &field.ty;
            while let Type::List(item) | Type::Set(item) | Type::Map { value: item, .. } = ty {
                ty = item;
            }
            match ty {
                Type::Ref(_) => drop(found.insert((kind.name, here))),
                Type::Object(inner) => visit(kind, &here, inner, found),
                _ => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    KINDS.iter().for_each(|kind| visit(kind, "", kind.spec, &mut found));
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn who_insists_is_rid_of_a_deployment_at_once_and_its_machine_is_given_to_nobody() {
    let lab = driven_lab().await;
    let audited = async || {
        let audit = lab.api.get("/api/v1/audit?limit=10").await.json();
        audit["items"][0]["request"].as_str().map(str::to_owned)
    };
    let machine = async || lab.api.get("/api/v1/machines/m").await.json();
    let spec_of = |locked| {
        format!(r#"{{"boot_macs":["52:54:00:00:00:01"],"commissioning":{{"skip":true}},"locked":{locked}}}"#)
    };
    lab.api.declare("/api/v1/machines/m", &spec_of("false")).await;
    lab.api.declare("/api/v1/images/debian", &image()["spec"].to_string()).await;
    let spec = r#"{"image":"debian","machine":"m","deletion_protection":true}"#;
    lab.api.declare("/api/v1/deployments/d", spec).await;
    once("it has its machine", async || (machine().await["status"]["deployment"] == "d").then_some(())).await;

    let protected = lab.api.delete("/api/v1/deployments/d?force=true").await;
    assert_eq!(protected.problem().1, "locked", "force is no way around a protection");
    lab.api.declare("/api/v1/deployments/d", r#"{"image":"debian","machine":"m"}"#).await;
    lab.api.declare("/api/v1/machines/m", &spec_of("true")).await;
    let locked = lab.api.delete("/api/v1/deployments/d?force=true").await;
    let (_, code, _) = locked.problem();
    assert_eq!(code, "locked", "nor around the lock of the machine: {}", locked.text());
    assert_eq!(machine().await["status"]["deployment"], "d");
    lab.api.declare("/api/v1/machines/m", &spec_of("false")).await;

    let tried = lab.api.delete("/api/v1/deployments/d?force=true&dry_run=true").await.json();
    assert_eq!(tried["plan"]["machine"], "m", "{tried}");
    assert!(
        tried["plan"]["summary"].as_str().is_some_and(|said| said.contains("let go as it is")),
        "{tried}"
    );
    let waits = lab.api.delete("/api/v1/machines/m?force=true&dry_run=true").await.json();
    assert_eq!(waits["plan"]["summary"], "Machine \"m\" goes after Deployment \"d\".", "{waits}");
    assert_eq!(machine().await["status"]["deployment"], "d");

    let uid = lab.api.get("/api/v1/deployments/d").await.json()["metadata"]["uid"].clone();
    assert_eq!(lab.api.delete("/api/v1/deployments/d?force=true").await.status, 204);
    assert_eq!(lab.api.get("/api/v1/deployments/d").await.status, 404);
    let decisions = format!("/api/v1/deployments/uid:{}/decisions", uid.as_str().unwrap());
    let decided = lab.api.get(&decisions).await.json();
    assert_eq!(decided["decisions"][0]["message"], "choose a machine: it is named", "{decided}");
    let nobody = Uid::generate();
    assert_eq!(lab.api.get(&format!("/api/v1/deployments/uid:{nobody}/decisions")).await.status, 404);
    assert_eq!(audited().await.as_deref(), Some("DELETE /api/v1/{plural}/{name}?force=true"));
    once("its machine is broken", async || {
        (machine().await["status"]["axes"]["lifecycle"] == "broken").then_some(())
    })
    .await;
    lab.api.declare("/api/v1/deployments/next", r#"{"image":"debian","machine":"m"}"#).await;
    let why = once("the next one waits", async || {
        let next = lab.api.get("/api/v1/deployments/next/waits").await.json();
        next["waits"][0]["message"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(why, "waiting for Machine \"m\": it may hold a former deployment's data");
    assert_eq!(lab.api.delete("/api/v1/deployments/next?force=true").await.status, 204);
    assert_eq!(lab.api.delete("/api/v1/machines/m?force=true").await.status, 204);
    assert_eq!(lab.api.get("/api/v1/machines/m").await.status, 404);
}

#[tokio::test]
async fn force_takes_nothing_from_what_stays() {
    let lab = lab().await;
    network(&lab.api).await;
    let spec = r#"{"vlan":"default.0","cidr":"10.77.0.0/24","gateway":"10.77.0.1"}"#;
    lab.api.declare("/api/v1/subnets/lab", spec).await;
    let used = r#"{"subnet":"lab","address":"10.77.0.9"}"#;
    lab.api.declare("/api/v1/ip_addresses/used", used).await;
    let gateway = async || {
        let lab = lab.api.get("/api/v1/subnets/lab").await.json();
        lab["status"]["by_purpose"]["gateways"].clone()
    };
    let before = gateway().await;
    assert_eq!(lab.api.delete("/api/v1/subnets/lab?force=true").await.status, 202);
    assert_eq!((before, gateway().await), (json!(1), json!(1)));
}

#[tokio::test]
async fn what_is_to_go_only_if_it_is_unused_stays_as_it_is_where_anything_refers_to_it() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/row-1", "{}").await;
    let spec = r#"{"boot_macs":["52:54:00:00:00:01"],"zone":"row-1"}"#;
    lab.api.declare("/api/v1/machines/m", spec).await;
    let zone = async || lab.api.get("/api/v1/zones/row-1").await.json()["metadata"].clone();
    let before = zone().await;
    for query in ["if_unused=true", "if_unused=true&dry_run=true"] {
        let refused = lab.api.delete(&format!("/api/v1/zones/row-1?{query}")).await;
        let (status, code, _) = refused.problem();
        assert_eq!((status, code.as_str()), (409, "in_use"), "{}", refused.text());
        assert!(refused.text().contains(r#"Machine \"m\""#), "{}", refused.text());
        assert_eq!(zone().await, before, "nothing was changed by {query}");
    }
    assert_eq!(lab.api.delete("/api/v1/zones/row-1").await.status, 202);
    assert_eq!(
        lab.api.delete("/api/v1/zones/row-1?if_unused=true").await.status,
        202,
        "what goes already is not asked to stay"
    );
    lab.api.declare("/api/v1/zones/row-2", "{}").await;
    assert_eq!(lab.api.delete("/api/v1/zones/row-2?if_unused=true").await.status, 204);
}

#[tokio::test]
async fn a_machine_that_is_to_go_says_which_deployment_it_waits_for() {
    let lab = driven_lab().await;
    let spec = r#"{"boot_macs":["52:54:00:00:00:01"],"commissioning":{"skip":true}}"#;
    lab.api.declare("/api/v1/machines/m", spec).await;
    lab.api.declare("/api/v1/images/debian", &image()["spec"].to_string()).await;
    lab.api.declare("/api/v1/deployments/d", r#"{"image":"debian","machine":"m"}"#).await;
    let machine = async || lab.api.get("/api/v1/machines/m").await.json();
    once("it has its machine", async || (machine().await["status"]["deployment"] == "d").then_some(())).await;
    assert_eq!(lab.api.delete("/api/v1/machines/m").await.status, 202);
    let progressing = machine().await["status"]["conditions"][1].clone();
    assert_eq!(progressing["reason"], "Referenced");
    let message = progressing["message"].as_str().unwrap();
    assert!(message.contains(r#"Deployment "d""#), "{message}");
    let plan = lab.api.get("/api/v1/machines/m/plan").await.json();
    assert!(plan["summary"].as_str().unwrap().contains(r#"waits for Deployment "d""#), "{plan}");
    let waits = lab.api.get("/api/v1/machines/m/waits").await.json();
    assert_eq!(waits["waits"][0]["cause"], "Referenced", "{waits}");
}

#[tokio::test]
async fn who_sees_one_pool_is_told_how_many_others_there_are_and_not_who() {
    let lab = lab().await;
    pools(&lab.api).await;
    lab.api.declare("/api/v1/zones/z", "{}").await;
    for (number, (name, pool)) in [("ours", "blue"), ("theirs", "red")].into_iter().enumerate() {
        let machine = json!({"pool": pool, "zone": "z", "boot_macs": [format!("52:54:00:00:09:0{number}")]});
        lab.api.declare(&format!("/api/v1/machines/{name}"), &machine.to_string()).await;
    }
    let mut watch = blue_client(&lab).await.watch(WatchOptions::default());
    assert_eq!(watch.next().await.expect("it begins").what, What::Bookmark);
    let blue = issue(&lab, "blue-too", r#"{"role":"blue"}"#).await;
    let blue = Client::new(lab.region.address(), Some(blue));
    let path = "/api/v1/zones/z";
    let tried = format!("{path}?dry_run=true");
    let summary = async |client: &Client| client.delete(&tried).await.json()["plan"]["summary"].clone();
    assert_eq!(summary(&blue).await, r#"Zone "z" goes after Machine "ours" and 1 that you do not see."#);
    assert_eq!(summary(&lab.api).await, r#"Zone "z" goes after Machine "ours", Machine "theirs"."#);

    assert_eq!(lab.api.delete(path).await.status, 202);
    let message = |object: &Value| object["status"]["conditions"][0]["message"].clone();
    let limited = r#"It is being deleted, and stays while others refer to it: Machine "ours" (/zone) and 1 that you do not see."#;
    assert_eq!(message(&blue.get(path).await.json()), limited);
    let list = blue.get("/api/v1/zones").await.json();
    assert_eq!(message(&list["items"][0]), limited);
    let whole = message(&lab.api.get(path).await.json());
    assert!(whole.as_str().is_some_and(|it| it.contains(r#"Machine "theirs""#)), "{whole}");
    loop {
        let What::Put(object) = told(&mut watch).await.what else { continue };
        if object.kind == "Zone" {
            let message = message(&serde_json::to_value(&*object).expect("JSON"));
            let message = message.as_str().expect("words");
            assert!(message.ends_with("2 that you do not see."), "a watch names nobody of a pool: {message}");
            break;
        }
    }
}
