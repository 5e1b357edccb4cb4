//! Operations on machines: accepted under an id, read, refused, and idempotent.

use crate::accounts::{issue, pools};
use crate::allocation::{image, once};
use crate::support::{Client, Lab, driven_lab, lab};
use basalt_api::Semantic;
use basalt_db::Key;
use serde_json::{Value, json};

const OPERATIONS: &str = "/api/v1/machines/m/operations";

async fn machine(lab: &Lab, more: Value) {
    let mut spec = json!({
        "boot_macs": ["52:54:00:00:00:01"], "commissioning": {"skip": true},
        "bmc": {"driver": "ipmi", "address": "127.0.0.1", "username": "admin", "password": "secret"},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    lab.api.declare("/api/v1/machines/m", &spec.to_string()).await;
}

fn wish(verb: &str) -> String {
    json!({ "verb": verb }).to_string()
}

#[tokio::test]
async fn an_operation_is_accepted_under_an_id_and_told_of_until_it_is_over() {
    let lab = driven_lab().await;
    machine(&lab, json!({})).await;
    let answer = lab.api.send("POST", OPERATIONS, &[], wish("power_cycle")).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let accepted = answer.json();
    assert_eq!((&accepted["verb"], &accepted["machine"]), (&json!("power_cycle"), &json!("m")));
    assert!(accepted["requested_by"].as_str().unwrap().starts_with("token "), "{accepted}");
    assert!(accepted["deadline"].as_str() > accepted["accepted_at"].as_str());
    let path = accepted["path"].as_str().unwrap();
    // No rack can switch the machine's power, so the operation waits, and its message gives the reason.
    loop {
        let seen = lab.api.get(path).await.json();
        if seen["message"].as_str().unwrap().contains("rack") {
            assert!(["requested", "failed"].contains(&seen["state"].as_str().unwrap()), "{seen}");
            break;
        }
        tokio::task::yield_now().await;
    }
    let timeline = lab.api.get("/api/v1/machines/m/timeline").await.json();
    let told = timeline["entries"].as_array().unwrap().iter();
    assert!(told.clone().any(|entry| entry["message"] == "power_cycle was asked for"), "{timeline}");
    assert_eq!(lab.api.get(&format!("{OPERATIONS}/{}", uuid::Uuid::nil())).await.problem().1, "not_found");
    assert_eq!(lab.api.get(&format!("{OPERATIONS}/x")).await.problem().0, 422);
    assert_eq!(lab.api.get("/api/v1/zones/a/operations").await.problem().1, "not_found");
}

#[tokio::test]
async fn the_same_key_is_the_same_operation_and_a_later_wish_takes_the_place_of_an_open_one() {
    let lab = lab().await;
    machine(&lab, json!({})).await;
    let asked = async |verb: &str, key: &str| {
        lab.api.send("POST", OPERATIONS, &[("idempotency-key", key)], wish(verb)).await
    };
    let first = asked("power_on", "a").await.json();
    assert_eq!(asked("power_on", "a").await.json(), first);
    assert_eq!(asked("power_off", "a").await.problem().2[0].split(':').next(), Some("/verb"));
    assert_eq!(asked("power_on", "a key").await.problem().0, 422);
    let second = asked("power_off", "b").await.json();
    let look = asked("recommission", "c").await.json();
    let list = lab.api.get(OPERATIONS).await.json();
    let seen: Vec<_> = list["items"].as_array().unwrap().iter().map(|it| (&it["id"], &it["state"])).collect();
    let (requested, superseded) = (json!("requested"), json!("superseded"));
    let wanted = [(&look["id"], &requested), (&second["id"], &requested), (&first["id"], &superseded)];
    assert_eq!(seen, wanted, "the newest first");
    assert_eq!(asked("power_on", "a").await.json()["state"], "superseded", "what became of it");
}

#[tokio::test]
async fn what_cannot_be_done_now_is_refused_with_what_to_do() {
    let lab = driven_lab().await;
    let refused = async |verb: &str| {
        let answer = lab.api.send("POST", OPERATIONS, &[], wish(verb)).await;
        let (status, code, errors) = answer.problem();
        (status, code, errors.join("; "))
    };
    machine(&lab, json!({"locked": true})).await;
    assert_eq!(refused("power_on").await, (409, "locked".into(), "/verb: m is locked".into()));
    machine(&lab, json!({"power": "off"})).await;
    let (_, code, why) = refused("power_on").await;
    assert!(code == "conflict" && why.contains("power = \"off\""), "{code}: {why}");
    machine(&lab, json!({"bmc": null})).await;
    assert!(refused("power_cycle").await.2.contains("no BMC"));
    assert!(refused("abort").await.2.contains("under way"));
    assert_eq!(lab.api.get(OPERATIONS).await.json()["items"], json!([]), "nothing was accepted");
    assert_eq!(refused("dance").await.0, 422, "there is no such thing");
}

#[tokio::test]
async fn the_power_of_a_machine_without_a_remote_switch_is_left_to_a_person() {
    let lab = driven_lab().await;
    machine(&lab, json!({"bmc": {"driver": "manual"}})).await;
    for verb in ["power_on", "power_off", "power_cycle"] {
        let answer = lab.api.send("POST", OPERATIONS, &[], wish(verb)).await;
        assert_eq!(answer.status, 409, "{verb}");
        for said in ["no BMC", "press its button"] {
            assert!(answer.text().contains(said), "{verb}: {}", answer.text());
        }
    }
    let status = lab.api.get("/api/v1/machines/m").await.json()["status"].clone();
    assert_eq!(status["power"], json!(null), "no BMC was asked");
}

#[tokio::test]
async fn an_operation_that_is_tried_lists_its_power_steps() {
    let lab = driven_lab().await;
    machine(&lab, json!({})).await;
    let path = format!("{OPERATIONS}?dry_run=true");
    let tried = lab.api.send("POST", &path, &[], wish("power_cycle")).await;
    assert_eq!(tried.status, 200, "{}", tried.text());
    let plan = tried.json()["plan"].clone();
    let steps: Vec<_> = plan["steps"].as_array().unwrap().iter().map(|step| &step["message"]).collect();
    assert_eq!(steps, ["power off, as was asked for", "power on, as was asked for"], "{plan}");
    assert_eq!(lab.api.get(OPERATIONS).await.json()["items"], json!([]));
}

#[tokio::test]
async fn an_operation_that_is_tried_says_whose_system_it_cuts_off() {
    let lab = driven_lab().await;
    machine(&lab, json!({})).await;
    let interrupts = async |verb: &str| {
        let wish = json!({"verb": verb, "ssh_keys": [Semantic::SshPublicKey.example()]});
        let wish = if verb == "rescue" { wish } else { json!({ "verb": verb }) };
        let path = format!("{OPERATIONS}?dry_run=true");
        let tried = lab.api.send("POST", &path, &[], wish.to_string()).await;
        assert_eq!(tried.status, 200, "{}", tried.text());
        tried.json()["plan"]["interrupts"].as_str().map(str::to_owned)
    };
    assert_eq!(interrupts("power_off").await, None, "nothing is known to run there");
    lab.api.declare("/api/v1/images/debian", &image()["spec"].to_string()).await;
    lab.api.declare("/api/v1/deployments/web", r#"{"image":"debian","machine":"m"}"#).await;
    once("it has its machine", async || {
        let machine = lab.api.get("/api/v1/machines/m").await.json();
        (machine["status"]["deployment"] == "web").then_some(())
    })
    .await;
    for (verb, then) in [
        ("power_off", "and stays off."),
        ("power_cycle", "and boots again."),
        ("rescue", "and comes back when the rescue ends."),
    ] {
        let said = interrupts(verb).await.expect(verb);
        let whole = "The system of Deployment \"web\" on m is cut off without being shut down, ";
        assert_eq!(said, format!("{whole}{then}"));
    }
    assert_eq!(interrupts("power_on").await, None);
}

/// A `run_script` with further fields.
fn script(more: &Value) -> String {
    let mut wish = json!({"verb": "run_script"});
    wish.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    wish.to_string()
}

#[tokio::test]
async fn a_script_is_run_as_it_was_when_it_was_asked_for() {
    let lab = lab().await;
    machine(&lab, json!({})).await;
    let spec = json!({
        "type": "testing", "content": "#!/bin/sh\necho one\n", "timeout": "5m",
        "parameters": {"mode": {"type": "choice", "choices": ["a", "b"], "required": true}},
    });
    lab.api.declare("/api/v1/scripts/probe", &spec.to_string()).await;
    let asked = async |more: Value, key: &str| {
        lab.api.send("POST", OPERATIONS, &[("idempotency-key", key)], script(&more)).await
    };
    let whole = json!({"script": "probe", "parameters": {"mode": "a"}});
    let first = asked(whole.clone(), "a").await;
    assert_eq!(first.status, 202, "{}", first.text());
    let first = first.json();
    assert_eq!((&first["script"], &first["output"]), (&json!("probe"), &Value::Null));
    assert_eq!(asked(whole.clone(), "a").await.json(), first, "the same key is the same run");
    let other = json!({"script": "probe", "parameters": {"mode": "b"}});
    assert_eq!(asked(other, "b").await.status, 202);
    let list = lab.api.get(OPERATIONS).await.json();
    assert_eq!(list["items"][1]["state"], "superseded", "what has not begun gives way: {list}");
    let audit = lab.api.get("/api/v1/audit?object=Machine/m").await;
    let audit = audit.text();
    assert!(audit.contains(r#""script":"probe""#), "{audit}");
    // The Script is deleted, and the stored operation does not change.
    let gone = lab.api.send("DELETE", "/api/v1/scripts/probe", &[], "").await;
    assert!(gone.status.is_success(), "{}", gone.text());
    assert_eq!(lab.api.get(OPERATIONS).await.json()["items"][0]["script"], "probe");
    assert_eq!(asked(whole.clone(), "a").await.json()["id"], first["id"], "also when the script is gone");
}

#[tokio::test]
async fn what_a_script_cannot_be_run_with_is_refused_field_by_field() {
    let lab = driven_lab().await;
    machine(&lab, json!({})).await;
    let spec = json!({
        "type": "testing", "content": "#!/bin/sh\n",
        "parameters": {
            "mode": {"type": "choice", "choices": ["a", "b"], "required": true},
            "seconds": {"type": "runtime", "min": 1, "max": 60, "default": "30"},
            "loud": {"type": "boolean"}, "from": {"type": "url"},
        },
    });
    lab.api.declare("/api/v1/scripts/probe", &spec.to_string()).await;
    let refused = async |more: Value| {
        let (status, _, errors) = lab.api.send("POST", OPERATIONS, &[], script(&more)).await.problem();
        (status, errors.join("; "))
    };
    assert_eq!(refused(json!({})).await, (422, "/script: no script is named".into()));
    assert_eq!(refused(json!({"script": "x"})).await, (422, "/script: there is no Script \"x\"".into()));
    let missing = refused(json!({"script": "probe"})).await;
    assert_eq!(missing, (422, "/parameters/mode: script probe cannot be run without mode".into()));
    let wrong = json!({"mode": "c", "seconds": "61", "loud": "yes", "from": "here", "speed": "9"});
    let (status, errors) = refused(json!({"script": "probe", "parameters": wrong})).await;
    assert_eq!(status, 422);
    let pointers: Vec<_> =
        errors.split("; ").filter_map(|error| error.split_once(": ")).map(|(at, _)| at).collect();
    let names = ["speed", "from", "loud", "mode", "seconds"];
    assert_eq!(pointers, names.map(|name| format!("/parameters/{name}")), "{errors}");
    let power = json!({"verb": "power_on", "script": "probe"}).to_string();
    let (_, _, errors) = lab.api.send("POST", OPERATIONS, &[], power).await.problem();
    assert_eq!(errors, ["/script: power_on has no use for script"]);
    assert_eq!(lab.api.get(OPERATIONS).await.json()["items"], json!([]), "nothing was accepted");

    // There is no image that the machine could boot: the operation reports that at once, with advice.
    let good = json!({"script": "probe", "parameters": {"mode": "a"}});
    let accepted = lab.api.send("POST", OPERATIONS, &[], script(&good)).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let path = accepted.json()["path"].as_str().unwrap().to_owned();
    loop {
        let seen = lab.api.get(&path).await.json();
        if seen["message"].as_str().unwrap().contains("ephemeral image") {
            break;
        }
        assert_ne!(seen["state"], "done", "{seen}");
        tokio::task::yield_now().await;
    }
    let tried = lab.api.send("POST", &format!("{OPERATIONS}?dry_run=true"), &[], script(&good)).await;
    assert_eq!(tried.status, 200, "{}", tried.text());
    let runs = step(&tried.json(), "run the script");
    assert_eq!(runs["destructive"], true, "nobody knows what it does");

    let rescue = json!({"verb": "rescue", "ssh_keys": [Semantic::SshPublicKey.example()]}).to_string();
    let tried = lab.api.send("POST", &format!("{OPERATIONS}?dry_run=true"), &[], rescue).await;
    assert_eq!(tried.status, 200, "{}", tried.text());
    let runs = step(&tried.json(), "run the rescue environment");
    assert_eq!(runs["destructive"], false, "a rescue touches no disk");
}

/// The step of a plan with this message.
fn step(tried: &Value, says: &str) -> Value {
    let steps = tried["plan"]["steps"].as_array().unwrap();
    let found = steps.iter().find(|step| step["message"] == says);
    found.unwrap_or_else(|| panic!("{tried}")).clone()
}

#[tokio::test]
async fn a_rescue_is_asked_for_with_the_keys_of_those_who_come_in() {
    let lab = lab().await;
    machine(&lab, json!({"mode": "broken"})).await;
    let asked = async |more: Value| {
        let mut wish = json!({"verb": "rescue"});
        wish.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        lab.api.send("POST", OPERATIONS, &[("idempotency-key", "a")], wish.to_string()).await
    };
    let refused = async |more: Value| {
        let (status, _, errors) = asked(more).await.problem();
        (status, errors.join("; "))
    };
    let key = Semantic::SshPublicKey.example();
    assert_eq!(
        refused(json!({})).await,
        (422, "/ssh_keys: nobody could come in: no SSH key is given".into())
    );
    let (status, _) = refused(json!({"ssh_keys": ["ssh-rsa me"]})).await;
    assert!(matches!(status, 400 | 422), "{status}");
    let long = json!({"ssh_keys": [key], "duration": "8d", "script": "x"});
    assert_eq!(refused(long).await, (422, "/script: rescue has no use for script".into()));
    let long = json!({"ssh_keys": [key], "duration": "8d"});
    assert_eq!(refused(long).await, (422, "/duration: a rescue cannot last 8d".into()));
    assert_eq!(lab.api.get(OPERATIONS).await.json()["items"], json!([]), "nothing was accepted");

    let good = json!({"ssh_keys": [key], "duration": "90m"});
    let accepted = asked(good.clone()).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let accepted = accepted.json();
    assert_eq!((&accepted["verb"], &accepted["script"]), (&json!("rescue"), &Value::Null));
    assert_eq!(asked(good).await.json(), accepted, "the same key is the same rescue");
    let machine = lab.region.store().get("Machine", Key::Name("m")).await.unwrap();
    let stored =
        lab.region.store().operations(machine.uid.into(), 1).await.unwrap().remove(0).script.unwrap();
    assert!(stored.content.starts_with("#!/bin/sh\n") && stored.repeats);
    assert_eq!(stored.arguments, ["m", "5400", key]);
    assert_eq!(stored.timeout_seconds, 5400 + 300);
}

const MANY: &str = "/api/v1/operations";

async fn declared(lab: &Lab, name: &str, number: u8, more: Value) {
    let mut spec = json!({
        "boot_macs": [format!("52:54:00:00:0a:{number:02x}")], "commissioning": {"skip": true},
        "bmc": {"driver": "ipmi", "address": format!("127.0.1.{number}"), "username": "admin", "password": "secret"},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    lab.api.declare(&format!("/api/v1/machines/{name}"), &spec.to_string()).await;
}

#[tokio::test]
async fn many_machines_are_asked_at_once_and_each_has_an_answer_of_its_own() {
    let lab = driven_lab().await;
    declared(&lab, "a", 1, json!({"description": "at the door"})).await;
    declared(&lab, "b", 2, json!({"locked": true, "description": "in the hall"})).await;
    lab.api
        .declare("/api/v1/machines/c", r#"{"boot_macs":["52:54:00:00:0a:03"],"commissioning":{"skip":true}}"#)
        .await;
    let asked = async |query: &str, body: Value| {
        lab.api.send("POST", &format!("{MANY}{query}"), &[("idempotency-key", "k")], body.to_string()).await
    };
    let body = json!({"names": ["a", "c", "nowhere", "a"], "operation": {"verb": "power_cycle"}});
    let tried = asked("?dry_run=true", body.clone()).await;
    assert_eq!(tried.status, 200, "{}", tried.text());
    let tried = tried.json()["items"].clone();
    let code = |item: &Value| item["problem"]["code"].clone();
    assert_eq!(tried.as_array().unwrap().len(), 3, "a name that is said twice is one machine: {tried}");
    assert!(
        tried[0]["plan"]["steps"].as_array().unwrap().iter().any(|step| step["power"] == true),
        "{tried}"
    );
    assert_eq!((code(&tried[1]), code(&tried[2])), (json!("conflict"), json!("not_found")), "{tried}");
    assert_eq!(lab.api.get("/api/v1/machines/a/operations").await.json(), json!({"items": []}));

    let done = asked("", body.clone()).await.json();
    assert_eq!(done["items"][0]["operation"]["machine"], "a");
    assert_eq!(code(&done["items"][2]), "not_found");
    let listed = lab.api.get("/api/v1/machines/a/operations").await.json();
    assert_eq!(listed["items"][0]["id"], done["items"][0]["operation"]["id"]);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    // The same key gives the same operation, for each machine.
    let again = asked("", body).await.json();
    assert_eq!(again["items"][0]["operation"]["id"], done["items"][0]["operation"]["id"]);
    let audit = lab.api.get("/api/v1/audit?object=machines/a&limit=1").await.json();
    assert_eq!(audit["items"][0]["request"], "POST /api/v1/operations");

    let body = json!({"where": "hall", "operation": {"verb": "recommission"}});
    let found = asked("?dry_run=true", body).await.json();
    let machines: Vec<&str> =
        found["items"].as_array().unwrap().iter().map(|it| it["machine"].as_str().unwrap()).collect();
    assert_eq!(machines, ["b"], "{found}");
}

#[tokio::test]
async fn who_asks_many_has_the_rights_that_it_has_over_each() {
    let lab = lab().await;
    pools(&lab.api).await;
    let blue = Client::new(lab.region.address(), Some(issue(&lab, "blue", r#"{"role":"blue"}"#).await));
    let viewer = Client::new(lab.region.address(), Some(issue(&lab, "viewer", r#"{"role":"viewer"}"#).await));
    let names = json!({"names": ["blue", "red"], "operation": {"verb": "recommission"}}).to_string();
    let asked = blue.send("POST", MANY, &[], names.clone()).await.json();
    assert!(asked["items"][0]["operation"]["id"].is_string(), "{asked}");
    assert_eq!(asked["items"][1]["problem"]["code"], "not_found", "{asked}");
    let fitting = r#"{"where":"name:red,blue","operation":{"verb":"recommission"}}"#;
    let asked = blue.send("POST", MANY, &[], fitting).await.json();
    assert_eq!(asked["items"].as_array().unwrap().len(), 1, "{asked}");
    assert_eq!(viewer.send("POST", MANY, &[], names.clone()).await.status, 403);
    let tried = viewer.send("POST", &format!("{MANY}?dry_run=true"), &[], names).await.json();
    assert!(tried["items"][1]["plan"].is_object(), "{tried}");
    assert_eq!(lab.api.get("/api/v1/machines/red/operations").await.json(), json!({"items": []}));
}

#[tokio::test]
async fn a_request_for_no_machines_or_for_too_many_is_refused_whole() {
    let lab = lab().await;
    let machine = |at: usize| {
        let mac = format!("52:54:00:00:{:02x}:{:02x}", at / 256, at % 256);
        json!({"kind": "Machine", "metadata": {"name": format!("m{at}")}, "spec": {"boot_macs": [mac]}})
    };
    crate::allocation::apply(&lab.api, (0..1001).map(machine).collect()).await;
    let names: Vec<String> = (0..1001).map(|at| format!("m{at}")).collect();
    for (body, wanted) in [
        (json!({}), "/names: either names or where"),
        (json!({"names": ["m1"], "where": "m1"}), "/names: either names or where"),
        (json!({"names": names}), "/names: 1001 machines are named"),
        (json!({"where": "name:m"}), "/where: more than 1000 machines may fit"),
        (json!({"where": "nam:m"}), "/where: at character 1 of where: there is no nam"),
    ] {
        let mut body = body;
        body["operation"] = json!({"verb": "recommission"});
        let (status, _, errors) = lab.api.send("POST", MANY, &[], body.to_string()).await.problem();
        assert!(status == 422 && errors[0].starts_with(wanted), "{status} {errors:?}");
    }
    let body = json!({"where": "name:m !", "operation": {"verb": "recommission"}}).to_string();
    assert_eq!(lab.api.send("POST", MANY, &[], body).await.json(), json!({"items": []}));
}

#[tokio::test]
async fn a_machine_says_which_verbs_it_takes_and_why_not_the_others() {
    let lab = driven_lab().await;
    declared(&lab, "a", 1, json!({})).await;
    lab.api
        .declare(
            "/api/v1/machines/bare",
            r#"{"boot_macs":["52:54:00:00:0a:03"],"commissioning":{"skip":true}}"#,
        )
        .await;
    lab.api.declare("/api/v1/roles/viewer", r#"{"base":"viewer"}"#).await;
    let viewer = Client::new(lab.region.address(), Some(issue(&lab, "viewer", r#"{"role":"viewer"}"#).await));
    let taken = async |client: &Client, name: &str| {
        let actions = client.get(&format!("/api/v1/machines/{name}/actions")).await.json();
        let items = actions["items"].as_array().unwrap().clone();
        assert_eq!(items.len(), basalt_api::wire::Verb::ALL.len());
        let refusal = |verb: &str| items.iter().find(|it| it["verb"] == verb).unwrap()["problem"].clone();
        ["power_cycle", "rescue", "abort"].map(|verb| refusal(verb)["code"].clone())
    };
    assert_eq!(taken(&lab.api, "a").await, [json!(null), json!(null), json!("conflict")]);
    assert_eq!(taken(&lab.api, "bare").await[0], "conflict");
    assert_eq!(taken(&viewer, "a").await, ["forbidden"; 3].map(|code| json!(code)));
    // A dry run has the same refusal.
    let tried = lab.api.send("POST", "/api/v1/machines/a/operations?dry_run=true", &[], wish("abort")).await;
    let actions = lab.api.get("/api/v1/machines/a/actions").await.json();
    let said = actions["items"].as_array().unwrap().iter().find(|it| it["verb"] == "abort").unwrap();
    assert_eq!(said["problem"]["detail"], tried.json()["detail"]);
    assert_eq!(lab.api.get("/api/v1/zones/default/actions").await.problem().1, "not_found");
}
