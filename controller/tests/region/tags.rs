//! Tags with an expression: they follow changes of the machines and of the expression.

use crate::accounts::{issue, pools};
use crate::allocation::{apply, image, machine, once};
use crate::metrics::scrape;
use crate::support::{Client, Lab, driven_lab};
use basalt_api::agent::{Cpu, Inventory, Outcome, TaskResult};
use basalt_api::values::{Attempt, Timestamp};
use basalt_db::{Key, NewFact};
use basalt_region::racks::observed::Observed;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const BIG: &str = "/api/v1/tags/big";

async fn declare(lab: &Lab, document: &Value, plural: &str) {
    let name = document["metadata"]["name"].as_str().expect("a name");
    lab.api.declare(&format!("/api/v1/{plural}/{name}"), &document["spec"].to_string()).await;
}

/// Stores a result as if the machine's agent had just reported this number of cores.
pub(crate) async fn report(lab: &Lab, machine: &str, attempt: u64, cores: u32) {
    let cpu = Cpu { cores, ..Cpu::default() };
    report_inventory(lab, machine, attempt, Inventory { cpu, ..Inventory::default() }).await;
}

/// Stores a result as if the machine's agent had just reported this inventory.
pub(crate) async fn report_inventory(lab: &Lab, machine: &str, attempt: u64, inventory: Inventory) {
    let object = lab.region.store().get("Machine", Key::Name(machine)).await.expect("it is there").uid;
    let outcome = Outcome::Succeeded;
    let (markers, timings) = (BTreeMap::new(), BTreeMap::new());
    let result = TaskResult {
        attempt,
        outcome,
        inventory: Some(inventory),
        markers,
        timings,
        output: None,
        scripts: Vec::new(),
        bmc: None,
        logs: None,
    };
    let (kind, body) = Observed::Result(Box::new(result)).stored();
    let fact = NewFact {
        seq: attempt,
        object: Some(object),
        mac: None,
        kind,
        step_key: None,
        attempt: Some(Attempt::new(attempt)),
        body,
        observed_at: Timestamp::UNIX_EPOCH,
        wakes: true,
    };
    lab.region.store().store_own_fact(&fact).await.expect("it is stored");
}

/// Waits until the object's status has this field.
async fn shows(lab: &Lab, path: &str, field: &str, wanted: Value) -> Value {
    once(&format!("{path}: {field} is {wanted}"), async || {
        let status = lab.api.get(path).await.json()["status"].clone();
        (status[field] == wanted).then_some(status)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_follows_the_machines_and_its_own_text() {
    let lab = driven_lab().await;
    declare(&lab, &json!({"metadata": {"name": "a"}, "spec": {}}), "zones").await;
    for name in ["m1", "m2"] {
        declare(&lab, &machine(name, "a"), "machines").await;
    }
    lab.api.declare(BIG, r#"{"expression":"cpu.cores >= 16","kernel_options":"isolcpus=2"}"#).await;
    let path = "/api/v1/machines/m1";
    report(&lab, "m1", 1, 32).await;
    report(&lab, "m2", 2, 8).await;
    let status = shows(&lab, path, "automatic_tags", json!(["big"])).await;
    assert_eq!(status["tags"], json!(["big"]));
    // The machine has the tag a moment before the tag counts the machine.
    let tag = shows(&lab, BIG, "automatic", json!(1)).await;
    assert_eq!((&tag["machines"], &tag["errors"]), (&json!(1), &json!(0)));

    // A selector matches the tag.
    declare(&lab, &image(), "images").await;
    lab.api.declare("/api/v1/deployments/d", r#"{"image":"debian","selector":{"tags":["big"]}}"#).await;
    shows(&lab, "/api/v1/deployments/d", "machine", json!("m1")).await;

    // Change in turn: the hardware, the expression, a spec that names the tag, the tag's name. At last delete the tag.
    report(&lab, "m2", 3, 16).await;
    shows(&lab, "/api/v1/machines/m2", "automatic_tags", json!(["big"])).await;
    lab.api.declare(BIG, r#"{"expression":"cpu.cores > 16"}"#).await;
    shows(&lab, "/api/v1/machines/m2", "automatic_tags", Value::Null).await;
    let mut given = machine("m2", "a");
    given["spec"]["tags"] = json!(["big"]);
    declare(&lab, &given, "machines").await;
    shows(&lab, BIG, "automatic", json!(1)).await;
    shows(&lab, BIG, "machines", json!(2)).await;
    let renamed = lab.api.send("POST", &format!("{BIG}/rename"), &[], r#"{"name":"large"}"#).await;
    assert!(renamed.status.is_success(), "{renamed:?}");
    shows(&lab, path, "automatic_tags", json!(["large"])).await;
    assert_eq!(lab.api.delete("/api/v1/tags/large").await.status, 204);
    shows(&lab, path, "automatic_tags", Value::Null).await;
    let zone = lab.api.get("/api/v1/zones/a").await.json()["status"]["machines"].clone();
    assert_eq!(zone, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_an_expression_cannot_be_computed_for_is_counted() {
    let lab = driven_lab().await;
    declare(&lab, &json!({"metadata": {"name": "a"}, "spec": {}}), "zones").await;
    declare(&lab, &machine("m1", "a"), "machines").await;
    report(&lab, "m1", 1, 8).await;
    once("m1's hardware is known", async || {
        lab.api.get("/api/v1/machines/m1").await.json()["status"]["inventory"].as_object().map(|_| ())
    })
    .await;
    lab.api.declare("/api/v1/tags/odd", r#"{"expression":"disks[0].bytes > 0"}"#).await;
    let tag = shows(&lab, "/api/v1/tags/odd", "errors", json!(1)).await;
    assert_eq!((&tag["machines"], &tag["automatic"]), (&json!(0), &json!(0)));
    let error = tag["error"].as_str().expect("it says which");
    assert!(error.starts_with("m1: "), "{error}");
}

/// The changes of tags that a dry run of this request tells.
async fn tried(api: &Client, method: &str, path: &str, spec: &Value) -> Value {
    let body = if method == "DELETE" { String::new() } else { json!({"spec": spec}).to_string() };
    let answer = api.send(method, &format!("{path}?dry_run=true"), &[], body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["consequences"]["tags"].clone()
}

/// A change of the tag `big`.
fn change(gains: &[&str], loses: &[&str], errors: u64) -> Value {
    json!([{"tag": "big", "gained": gains.len(), "lost": loses.len(), "gains": gains, "loses": loses,
        "errors": errors, "not_examined": 0}])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_tells_which_machines_gain_and_lose_a_tag() {
    let lab = driven_lab().await;
    pools(&lab.api).await;
    declare(&lab, &json!({"metadata": {"name": "a"}, "spec": {}}), "zones").await;
    for name in ["m1", "m2", "m3"] {
        let mut machine = machine(name, "a");
        machine["spec"]["pool"] = json!(if name == "m2" { "blue" } else { "red" });
        // This one has the tag whatever its hardware is.
        machine["spec"]["tags"] = if name == "m3" { json!(["big"]) } else { json!([]) };
        declare(&lab, &machine, "machines").await;
    }
    let new = tried(&lab.api, "PUT", BIG, &json!({"expression": "cpu.cores >= 16"})).await;
    assert_eq!(new, change(&[], &[], 0), "no hardware is known");
    for (attempt, (name, cores)) in (1..).zip([("m1", 32), ("m2", 8), ("m3", 4)]) {
        report(&lab, name, attempt, cores).await;
        let path = format!("/api/v1/machines/{name}");
        once("the hardware is known", async || {
            (lab.api.get(&path).await.json()["status"]["inventory"]["cpu"]["cores"] == cores).then_some(())
        })
        .await;
    }
    let new = tried(&lab.api, "PUT", BIG, &json!({"expression": "cpu.cores >= 16"})).await;
    assert_eq!(new, change(&["m1"], &[], 0));
    lab.api.declare(BIG, r#"{"expression":"cpu.cores >= 16"}"#).await;
    shows(&lab, "/api/v1/machines/m1", "automatic_tags", json!(["big"])).await;

    let turned = json!({"expression": "cpu.cores < 16"});
    assert_eq!(tried(&lab.api, "PUT", BIG, &turned).await, change(&["m2"], &["m1"], 0));
    let odd = json!({"expression": "disks[0].bytes > 0"});
    let of_odd = tried(&lab.api, "PUT", BIG, &odd).await;
    assert_eq!((&of_odd[0]["loses"], &of_odd[0]["errors"]), (&json!(["m1"]), &json!(3)), "{of_odd}");
    let same = json!({"expression": "cpu.cores >= 16", "comment": "many cores"});
    assert_eq!(tried(&lab.api, "PUT", BIG, &same).await, Value::Null, "the expression stays");
    assert_eq!(tried(&lab.api, "DELETE", BIG, &Value::Null).await, change(&[], &["m1"], 0));

    // Machines of other pools are counted and not named.
    let blue = Client::new(lab.region.address(), Some(issue(&lab, "of-blue", r#"{"role":"blue"}"#).await));
    let seen = tried(&blue, "PUT", BIG, &turned).await;
    assert_eq!((&seen[0]["gains"], &seen[0]["loses"]), (&json!(["m2"]), &json!([])), "{seen}");
    assert_eq!((&seen[0]["gained"], &seen[0]["lost"]), (&json!(1), &json!(1)), "{seen}");
}

#[tokio::test]
async fn an_expression_that_is_none_is_refused_with_its_place() {
    let lab = crate::support::lab().await;
    let refused = lab.api.put(BIG, r#"{"spec":{"expression":"memory.mb >= 16"}}"#).await;
    let (status, _, errors) = refused.problem();
    let why = "/spec/expression: at character 7: there is no field mb: bytes, mib";
    assert_eq!((status, errors), (422, vec![why.to_owned()]));
    assert_eq!(lab.api.get(BIG).await.status, 404);
}

/// The number of evaluations of expressions so far, read once no object is due.
async fn evaluations(lab: &Lab) -> f64 {
    once("nothing is due", async || {
        let samples = scrape(lab).await;
        let busy = |name: &str| {
            let of = samples.iter().filter(|(series, _)| series.starts_with(name));
            of.map(|(_, value)| *value).sum::<f64>() > 0.0
        };
        let is_quiet = !busy("basalt_queue_due{") && !busy("basalt_queue_leases{");
        is_quiet.then(|| samples["basalt_tag_evaluations_total"])
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_looked_at_with_what_it_is_about_and_not_with_the_whole_fleet() {
    const MACHINES: u32 = 50;
    const TAGS: u32 = 20;
    let lab = driven_lab().await;
    let zone = json!({"kind": "Zone", "metadata": {"name": "a"}, "spec": {}});
    let machines = (0..MACHINES).map(|number| machine(&format!("m{number}"), "a"));
    let tag = |number: u32| {
        let expression = format!("cpu.cores > {number}");
        json!({"kind": "Tag", "metadata": {"name": format!("over-{number:02}")}, "spec": {"expression": expression}})
    };
    apply(&lab.api, machines.chain((0..TAGS).map(tag)).chain([zone]).collect()).await;
    report(&lab, "m0", 1, 10).await;
    let path = "/api/v1/machines/m0";
    let names = |numbers: std::ops::Range<u32>| -> Value {
        numbers.map(|number| json!(format!("over-{number:02}"))).collect()
    };
    shows(&lab, path, "automatic_tags", names(0..10)).await;
    let before = evaluations(&lab).await;
    assert!(before >= f64::from(MACHINES * TAGS), "all with all, to begin with: {before}");

    report(&lab, "m0", 2, 64).await;
    shows(&lab, path, "automatic_tags", names(0..20)).await;
    let one_machine = evaluations(&lab).await - before;
    assert!((20.0..=200.0).contains(&one_machine), "one machine with its tags, some times: {one_machine}");

    let before = evaluations(&lab).await;
    lab.api.declare("/api/v1/tags/over-19", r#"{"expression":"cpu.cores > 99"}"#).await;
    shows(&lab, path, "automatic_tags", names(0..19)).await;
    let one_tag = evaluations(&lab).await - before;
    // The machine that has lost the tag is evaluated again with its other tags.
    assert!((50.0..=300.0).contains(&one_tag), "all machines with one tag: {one_tag}");
    eprintln!(
        "one machine: {one_machine} evaluations; one tag: {one_tag}; all with all: {}",
        MACHINES * TAGS
    );
}

#[tokio::test]
async fn a_pool_says_how_many_machines_it_has_and_how_many_are_free() {
    let lab = driven_lab().await;
    declare(&lab, &json!({"metadata": {"name": "a"}, "spec": {}}), "zones").await;
    declare(&lab, &json!({"metadata": {"name": "web"}, "spec": {}}), "pools").await;
    for name in ["m1", "m2"] {
        let mut machine = machine(name, "a");
        machine["spec"]["pool"] = json!("web");
        declare(&lab, &machine, "machines").await;
    }
    let pool = shows(&lab, "/api/v1/pools/web", "ready", json!(2)).await;
    assert_eq!(pool["machines"], 2);
    declare(&lab, &image(), "images").await;
    lab.api.declare("/api/v1/deployments/d", r#"{"image":"debian","machine":"m1"}"#).await;
    let pool = shows(&lab, "/api/v1/pools/web", "ready", json!(1)).await;
    assert_eq!(pool["machines"], 2);
}
