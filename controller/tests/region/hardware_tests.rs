//! Hardware tests with a simulated rack: the task, the stored rows, their effect on the machine, and a person's override.

use crate::linked::Linked;
use crate::site::{self, MAC, site, task, until};
use crate::support::Lab;
use basalt_api::agent::{DeviceKind, Inventory, Outcome, ScriptEnd, Task, TaskResult, TestRow, Verdict};
use basalt_api::kinds::ScriptParallel;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const OPERATIONS: &str = "/api/v1/machines/web1/operations";
const RESULTS: &str = "/api/v1/machines/web1/results";

fn row(device: &str, verdict: Verdict, message: &str) -> TestRow {
    let figures = BTreeMap::from([("celsius".to_owned(), 41.5)]);
    TestRow { device: Some(device.to_owned()), verdict, figures, message: message.to_owned() }
}

/// The end of a test with these rows.
fn end(name: &str, rows: Vec<TestRow>) -> ScriptEnd {
    let failed = rows.iter().any(|row| row.verdict == Verdict::Failed);
    ScriptEnd {
        name: name.to_owned(),
        failure: failed.then(|| format!("script {name} ended with exit status: 1")),
        test: true,
        rows,
        output: "line one\nline two\n".to_owned(),
        seconds: 3.5,
        ..ScriptEnd::default()
    }
}

async fn ends(rack: &Linked, task: &Task, scripts: Vec<ScriptEnd>) {
    let result = TaskResult {
        attempt: task.attempt,
        outcome: Outcome::Succeeded,
        inventory: Some(Inventory::default()),
        markers: BTreeMap::new(),
        timings: BTreeMap::new(),
        output: None,
        scripts,
        bmc: None,
        logs: None,
    };
    site::ends(rack, &result, &task.machine_uid).await;
}

async fn phase(lab: &Lab, wanted: &str) -> Value {
    until(wanted, async || {
        let status = lab.api.get("/api/v1/machines/web1").await.json()["status"].clone();
        (status["phase"] == wanted && !status["tests"].is_null()).then_some(status)
    })
    .await
}

async fn rows(lab: &Lab, query: &str) -> Vec<Value> {
    let answer = lab.api.get(&format!("{RESULTS}{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["items"].as_array().unwrap().clone()
}

async fn asks(lab: &Lab, asked: Value) -> (u16, Value) {
    let answer = lab.api.send("POST", OPERATIONS, &[], asked.to_string()).await;
    (answer.status.as_u16(), answer.json())
}

/// A machine whose disk failed a test while it was commissioned.
async fn failed() -> (Lab, basalt_region::controller::Controller, Linked, Task) {
    let (lab, controller, rack) = site().await;
    let burn_in =
        json!({"type": "testing", "content": "#!/bin/sh\n", "parameters": {"minutes": {"default": "5"}}});
    lab.api.declare("/api/v1/scripts/burn-in", &burn_in.to_string()).await;
    let machine = json!({"boot_macs": [MAC], "commissioning": {"bmc": "leave", "testing": ["basalt-disks", "burn-in"]}});
    lab.api.declare("/api/v1/machines/web1", &machine.to_string()).await;
    let task = task(&rack, 0).await;
    let names: Vec<&str> = task.scripts.iter().map(|script| script.name.as_str()).collect();
    assert_eq!(names, ["basalt-disks", "burn-in"]);
    assert!(task.scripts.iter().all(|script| script.test && script.repeats));
    let disks = vec![
        row("sda", Verdict::Failed, "12 sectors cannot be read"),
        row("sdb", Verdict::Degraded, "it is worn out"),
    ];
    ends(&rack, &task, vec![end("basalt-disks", disks), end("burn-in", Vec::new())]).await;
    (lab, controller, rack, task)
}

#[tokio::test]
async fn findings_are_rows_and_a_failed_one_keeps_the_machine_from_being_used() {
    let (lab, _controller, _rack, task) = failed().await;
    let status = phase(&lab, "Failed testing").await;
    assert_eq!(status["axes"]["lifecycle"], "testing");
    let tests = &status["tests"];
    assert_eq!((&tests["verdict"], &tests["overridden"]), (&json!("failed"), &Value::Null));
    assert_eq!(tests["failed"], json!(["basalt-disks sda: 12 sectors cannot be read"]));
    assert_eq!(tests["degraded"], json!(["basalt-disks sdb: it is worn out"]));
    let stalled = status["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Stalled").unwrap();
    assert_eq!((&stalled["status"], &stalled["reason"]), (&json!("true"), &json!("TestsFailed")));

    let found = rows(&lab, "").await;
    let short = |row: &Value| format!("{} {} {}", row["script"], row["device"], row["verdict"]);
    let lines: Vec<String> = found.iter().map(short).collect();
    assert_eq!(
        lines,
        [
            r#""basalt-disks" "sda" "failed""#,
            r#""basalt-disks" "sdb" "degraded""#,
            r#""burn-in" null "passed""#,
        ]
    );
    let sda = &found[0];
    assert_eq!((&sda["figures"]["celsius"], &sda["seconds"]), (&json!(41.5), &json!(3.5)));
    assert_eq!((&sda["output"], &sda["attempt"]), (&json!("line one\nline two\n"), &json!(task.attempt)));
    assert_eq!(rows(&lab, "?script=burn-in").await.len(), 1);
    assert_eq!(rows(&lab, "?limit=1").await.len(), 1);
    assert_eq!(lab.api.get(&format!("{RESULTS}?limit=0")).await.status, 422);

    // No deployment gets the machine. With a policy that ignores tests, it is available.
    let ignores = json!({"commissioning": {"failed_tests": "ignore"}}).to_string();
    let merge = [("content-type", "application/merge-patch+json")];
    let patched = lab.api.send("PATCH", "/api/v1/machines/web1", &merge, ignores).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(phase(&lab, "Ready").await["tests"]["verdict"], "failed", "the status says so all the same");
}

#[tokio::test]
async fn a_later_run_of_the_test_that_passes_frees_the_machine() {
    let (lab, _controller, rack, before) = failed().await;
    phase(&lab, "Failed testing").await;
    let (status, accepted) = asks(&lab, json!({"verb": "test", "tests": ["basalt-disks"]})).await;
    assert_eq!((status, &accepted["tests"]), (202, &json!(["basalt-disks"])), "{accepted}");
    let second = task(&rack, before.attempt).await;
    assert_eq!(second.scripts.len(), 1);
    ends(&rack, &second, vec![end("basalt-disks", vec![row("sda", Verdict::Passed, "all is well")])]).await;
    phase(&lab, "Ready").await;
    let path = accepted["path"].as_str().unwrap();
    let done = until("the operation is done", async || {
        Some(lab.api.get(path).await.json()).filter(|it| it["state"] == "done")
    })
    .await;
    assert!(done["message"].as_str().unwrap().contains("basalt results web1"), "{done}");
    assert_eq!(rows(&lab, "").await.len(), 4, "the first run stays");
    let latest = rows(&lab, "?latest=true").await;
    let attempts: Vec<&Value> = latest.iter().map(|row| &row["attempt"]).collect();
    assert_eq!(attempts, [&json!(second.attempt), &json!(before.attempt)], "of each script the latest run");
}

#[tokio::test]
async fn a_later_run_that_is_skipped_frees_the_machine_too() {
    let (lab, _controller, rack, before) = failed().await;
    phase(&lab, "Failed testing").await;
    let merge = [("content-type", "application/merge-patch+json")];
    let filter = async |filter: &str| {
        let patch = json!({"hardware": [filter]}).to_string();
        lab.api.send("PATCH", "/api/v1/scripts/basalt-disks?adopt=true", &merge, patch).await
    };
    let refused = filter("pci:80:*:*").await;
    assert_eq!(
        (refused.status.as_u16(), &refused.json()["errors"][0]["pointer"]),
        (422, &json!("/spec/hardware"))
    );
    let patched = filter("pci:1000:*").await;
    assert!(patched.status.is_success(), "{}", patched.text());
    assert_eq!(asks(&lab, json!({"verb": "test"})).await.0, 202);
    let second = task(&rack, before.attempt).await;
    assert_eq!(
        (&second.scripts[0].hardware[..], second.scripts[1].hardware.len()),
        (&["pci:1000:*".to_owned()][..], 0)
    );
    let why = "no hardware of the machine matches pci:1000:*";
    let skipped = |name: &str| ScriptEnd { skipped: Some(why.to_owned()), ..end(name, Vec::new()) };
    ends(&rack, &second, vec![skipped("basalt-disks"), end("burn-in", Vec::new())]).await;
    assert_eq!(phase(&lab, "Ready").await["tests"]["verdict"], "passed");
    let latest = rows(&lab, "?latest=true&script=basalt-disks").await;
    assert_eq!(
        (&latest[0]["verdict"], &latest[0]["message"]),
        (&json!("skipped"), &json!(why)),
        "{latest:?}"
    );

    // The rows are stored, so a reconciliation does not read the result again, and no evidence of good hardware is left.
    assert_eq!(asks(&lab, json!({"verb": "test"})).await.0, 202);
    let third = task(&rack, second.attempt).await;
    ends(&rack, &third, vec![skipped("basalt-disks"), skipped("burn-in")]).await;
    until("no test was for the hardware", async || {
        let status = lab.api.get("/api/v1/machines/web1").await.json()["status"].clone();
        (status["tests"]["verdict"] == "skipped").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_test_that_is_run_for_each_disk_has_rows_of_each() {
    let (lab, _controller, rack) = site().await;
    let parameters = json!({"disk": {"type": "storage"}});
    let scan = json!({"type": "testing", "content": "#!/bin/sh\n", "parameters": parameters, "parallel": "instance"});
    lab.api.declare("/api/v1/scripts/scan", &scan.to_string()).await;
    let machine = json!({"boot_macs": [MAC], "commissioning": {"bmc": "leave", "testing": ["scan"]}});
    lab.api.declare("/api/v1/machines/web1", &machine.to_string()).await;
    let first = task(&rack, 0).await;
    let per_device = first.scripts[0].per_device.clone().unwrap();
    assert_eq!((per_device.parameter.as_str(), per_device.kind), ("disk", DeviceKind::Storage));
    assert_eq!(first.scripts[0].parallel, ScriptParallel::Instance);
    let on = |device: &str, failure: Option<&str>| ScriptEnd {
        device: Some(device.to_owned()),
        failure: failure.map(ToOwned::to_owned),
        ..end("scan", Vec::new())
    };
    ends(&rack, &first, vec![on("sda", None), on("sdb", Some("script scan on sdb was stopped"))]).await;
    let status = phase(&lab, "Failed testing").await;
    assert_eq!(status["tests"]["failed"], json!(["scan sdb: script scan on sdb was stopped"]));
    let found = rows(&lab, "").await;
    let lines: Vec<_> = found.iter().map(|row| (row["device"].as_str(), row["verdict"].as_str())).collect();
    assert_eq!(lines, [(Some("sda"), Some("passed")), (Some("sdb"), Some("failed"))]);

    // With a disk as parameter, only this disk is tested.
    let asked = json!({"verb": "test", "tests": ["scan"], "parameters": {"disk": "sdb"}});
    assert_eq!(asks(&lab, asked).await.0, 202);
    let second = task(&rack, first.attempt).await;
    assert_eq!(second.scripts[0].per_device, None);
    assert_eq!(second.scripts[0].arguments, ["--disk=sdb"]);
    assert_eq!(second.scripts[0].device.as_deref(), Some("sdb"));
}

/// Device and verdict of each row that a query answers.
async fn verdicts(lab: &Lab, query: &str) -> Vec<String> {
    let word = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    rows(lab, query).await.iter().map(|row| word(row, "device") + " " + &word(row, "verdict")).collect()
}

#[tokio::test]
async fn a_run_for_a_named_disk_takes_the_place_of_its_finding_alone() {
    let (lab, _controller, rack) = site().await;
    let parameters = json!({"disk": {"type": "storage"}});
    let scan = json!({"type": "testing", "content": "#!/bin/sh\n", "parameters": parameters});
    lab.api.declare("/api/v1/scripts/scan", &scan.to_string()).await;
    let machine = json!({"boot_macs": [MAC], "commissioning": {"bmc": "leave", "testing": ["scan"]}});
    lab.api.declare("/api/v1/machines/web1", &machine.to_string()).await;
    let on = |device: &str, failure: Option<&str>| ScriptEnd {
        device: Some(device.to_owned()),
        failure: failure.map(ToOwned::to_owned),
        ..end("scan", Vec::new())
    };
    let first = task(&rack, 0).await;
    ends(&rack, &first, vec![on("sda", Some("sda is worn")), on("sdb", Some("sdb is gone"))]).await;
    phase(&lab, "Failed testing").await;

    let named = async |before: &Task, disk: &str, end: ScriptEnd| {
        let asked = json!({"verb": "test", "tests": ["scan"], "parameters": {"disk": disk}});
        assert_eq!(asks(&lab, asked).await.0, 202);
        let task = task(&rack, before.attempt).await;
        ends(&rack, &task, vec![end]).await;
        task
    };
    // The other disk failed before, and nothing was found out about it since.
    let second = named(&first, "sdb", on("sdb", None)).await;
    until("sdb has passed", async || {
        (verdicts(&lab, "?latest=true").await == ["sdb passed", "sda failed"]).then_some(())
    })
    .await;
    // The rows are stored before the status, which has the same phase before and after this run.
    until("the finding about sda stands alone", async || {
        let status = phase(&lab, "Failed testing").await;
        (status["tests"]["failed"] == json!(["scan sda: sda is worn"])).then_some(())
    })
    .await;
    let third = named(&second, "sda", on("sda", None)).await;
    phase(&lab, "Ready").await;
    assert_eq!(verdicts(&lab, "?latest=true").await, ["sda passed", "sdb passed"]);
    assert_eq!(verdicts(&lab, "").await.len(), 4);

    // A run for all disks counts as a whole: a disk that it does not name is no longer there.
    let fourth = named(&third, "sdb", on("sdb", Some("it is gone"))).await;
    phase(&lab, "Failed testing").await;
    assert_eq!(asks(&lab, json!({"verb": "test"})).await.0, 202);
    let fifth = task(&rack, fourth.attempt).await;
    ends(&rack, &fifth, vec![on("sda", None)]).await;
    phase(&lab, "Ready").await;
    assert_eq!(verdicts(&lab, "?latest=true").await, ["sda passed"]);
}

#[tokio::test]
async fn an_override_needs_a_reason_and_is_audited() {
    let (lab, _controller, rack, before) = failed().await;
    phase(&lab, "Failed testing").await;
    let (status, problem) = asks(&lab, json!({"verb": "override_tests"})).await;
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &json!("/reason")), "{problem}");
    let (status, problem) = asks(&lab, json!({"verb": "override_tests", "reason": "x".repeat(1001)})).await;
    assert_eq!(status, 422, "{problem}");
    let reason = "the disk is scratch space";
    let (status, accepted) = asks(&lab, json!({"verb": "override_tests", "reason": reason})).await;
    assert_eq!(status, 202, "{accepted}");
    let tests = phase(&lab, "Ready").await["tests"].clone();
    assert_eq!((&tests["verdict"], &tests["overridden"]["reason"]), (&json!("failed"), &json!(reason)));
    let (by, at) = (&tests["overridden"]["by"], &tests["overridden"]["at"]);
    assert!(by.is_string() && at.is_string() && tests["at"].is_string(), "{tests}");
    let audit = lab.api.get("/api/v1/audit?object=Machine/web1").await;
    assert!(audit.text().contains(reason), "{}", audit.text());
    let (status, problem) = asks(&lab, json!({"verb": "override_tests", "reason": reason})).await;
    assert_eq!(status, 409, "{problem}");

    // A later failure counts again.
    assert_eq!(asks(&lab, json!({"verb": "test"})).await.0, 202, "those of commissioning.testing");
    let second = task(&rack, before.attempt).await;
    assert_eq!(second.scripts.len(), 2);
    let disk = row("sda", Verdict::Failed, "it is gone");
    ends(&rack, &second, vec![end("basalt-disks", vec![disk]), end("burn-in", Vec::new())]).await;
    phase(&lab, "Failed testing").await;
}

#[tokio::test]
async fn tests_that_cannot_be_run_are_refused_with_the_field() {
    let (lab, _controller, _rack) = site().await;
    lab.api.declare("/api/v1/scripts/leave", r##"{"type":"release","content":"#!/bin/sh\n"}"##).await;
    lab.api.declare("/api/v1/machines/web1", &json!({"boot_macs": [MAC]}).to_string()).await;
    let refused = async |asked: Value| {
        let (status, problem) = asks(&lab, asked).await;
        assert_eq!(status, 422, "{problem}");
        let error = &problem["errors"][0];
        format!("{} {}", error["pointer"].as_str().unwrap(), error["message"].as_str().unwrap())
    };
    assert_eq!(
        refused(json!({"verb": "test"})).await,
        "/tests no test is named, and commissioning.testing of web1 has none"
    );
    assert_eq!(
        refused(json!({"verb": "test", "tests": ["no-such"]})).await,
        "/tests there is no Script \"no-such\""
    );
    assert_eq!(
        refused(json!({"verb": "test", "tests": ["leave"]})).await,
        "/tests script leave is of type release"
    );
    let given = json!({"verb": "test", "tests": ["basalt-cpu"], "parameters": {"bogus": "1"}});
    assert_eq!(refused(given).await, "/parameters/bogus no test has parameter \"bogus\"");
    assert_eq!(
        refused(json!({"verb": "power_on", "tests": ["basalt-cpu"]})).await,
        "/tests power_on has no use for tests"
    );
}

#[tokio::test]
async fn scripts_that_come_with_basalt_come_back_and_stay_with_those_who_took_them() {
    let lab = crate::support::lab().await;
    let memory = "/api/v1/scripts/basalt-memory";
    let first = lab.api.get(memory).await.json();
    assert_eq!(first["metadata"]["manager"], "basalt", "{first}");
    let store = lab.region.store();
    let deleted = lab.api.send("DELETE", &format!("{memory}?adopt=true"), &[], String::new()).await;
    assert!(deleted.status.is_success(), "{}", deleted.text());
    basalt_region::built_in::keep(store).await.unwrap();
    assert_eq!(lab.api.get(memory).await.json()["spec"], first["spec"], "it is back");
    let own = json!({"type": "testing", "content": "#!/bin/sh\ntrue\n"});
    let own = json!({"kind": "Script", "metadata": {"name": "basalt-memory"}, "spec": own});
    let taken = json!({"documents": [own], "adopt": true}).to_string();
    let taken = lab.api.send("POST", "/api/v1/apply", &[("X-Basalt-Manager", "ops")], taken).await;
    assert!(taken.status.is_success(), "{}", taken.text());
    basalt_region::built_in::keep(store).await.unwrap();
    assert_eq!(lab.api.get(memory).await.json()["spec"]["content"], "#!/bin/sh\ntrue\n");
}
