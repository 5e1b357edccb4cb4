//! Power readings: racks receive the interval, and machines report the result.

use crate::allocation::once;
use crate::leases::furnish;
use crate::linked::Linked;
use crate::support::{Lab, lab};
use basalt_db::Key;
use basalt_engine::Policy;
use basalt_proto::rack_v1::power_command::Verb;
use basalt_proto::rack_v1::{Fact, PowerConcern, PowerReading, PowerResult, fact::Body};
use basalt_region::controller::Controller;
use prost::Message;
use serde_json::{Value, json};
use std::net::SocketAddr;

async fn declare(lab: &Lab, power: &str) {
    let bmc = json!({"driver": "ipmi", "address": "10.77.0.101", "username": "admin", "password": "secret"});
    let spec = json!({"boot_macs": ["52:54:00:00:00:01"], "commissioning": {"skip": true}, "power": power, "bmc": bmc});
    lab.api.declare("/api/v1/machines/m", &spec.to_string()).await;
}

async fn machine(lab: &Lab) -> Value {
    lab.api.get("/api/v1/machines/m").await.json()
}

/// The machine's status, once this holds of it.
async fn until(lab: &Lab, holds: impl Fn(&Value) -> bool) -> Value {
    once("its status", async || Some(machine(lab).await["status"].clone()).filter(|it| holds(it))).await
}

fn reads<'a>(state: &'a str, rack: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |status| status["power"]["state"] == state && status["power"]["rack"] == rack
}

/// Status, reason and message of the condition `PowerDiffers`.
fn differs(status: &Value) -> Option<[String; 3]> {
    let conditions = status["conditions"].as_array()?;
    let it = conditions.iter().find(|it| it["type"] == "PowerDiffers")?;
    Some(["status", "reason", "message"].map(|field| it[field].as_str().unwrap_or_default().to_owned()))
}

async fn brings(lab: &Lab, rack: &Linked, reading: PowerReading) {
    let machine = lab.region.store().get("Machine", Key::Name("m")).await.expect("it is there");
    let machine_uid = machine.uid.get().to_string();
    rack.brings(Fact { machine_uid, body: Some(Body::Reading(reading)), ..Fact::default() }).await;
}

fn read(power: &str) -> PowerReading {
    PowerReading { power: power.to_owned(), ..PowerReading::default() }
}

#[tokio::test]
async fn racks_are_told_how_often_power_is_read() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    let told = async |ms: u64| {
        once("the interval", async || {
            let concerns = rack.told().concerns;
            let last = concerns.iter().rfind(|version| version.concern == "power")?;
            let concern = PowerConcern::decode(last.body.as_slice()).expect("a concern");
            (concern.reading_ms == ms).then_some(())
        })
        .await;
    };
    told(300_000).await;
    for (declared, ms) in [("1m", 60_000), ("0s", 0), ("30s", 30_000)] {
        lab.api.declare("/api/v1/settings/default", &json!({ "power_reading": declared }).to_string()).await;
        told(ms).await;
    }
    let refused = lab.api.put("/api/v1/settings/default", r#"{"spec":{"power_reading":"29s"}}"#).await;
    let (status, _, errors) = refused.problem();
    assert_eq!(
        (status, errors),
        (422, vec!["/spec/power_reading: BMCs would be asked each 29s, and are slow".to_owned()])
    );
}

/// Waits until the rack has a BMC.
async fn has_bmc(rack: &Linked) {
    once("the rack has its BMC", async || {
        let concerns = rack.told().concerns;
        let last = concerns.iter().rfind(|version| version.concern == "power")?;
        (!PowerConcern::decode(last.body.as_slice()).expect("a concern").bmcs.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_machine_says_what_was_read_and_what_it_ought_to_be() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    declare(&lab, "auto").await;
    has_bmc(&rack).await;

    brings(&lab, &rack, PowerReading { certificate: "0a".repeat(32), ..read("on") }).await;
    let status = until(&lab, reads("on", "r1")).await;
    assert_eq!((&status["power"]["certificate"], differs(&status)), (&json!("0a".repeat(32)), None));
    for (verb, then) in [("power_off", "and stays off."), ("recommission", "before its hardware is read.")] {
        let path = "/api/v1/machines/m/operations?dry_run=true";
        let tried = lab.api.send("POST", path, &[], json!({ "verb": verb }).to_string()).await;
        let said = format!("m is on: whatever runs there is cut off without being shut down, {then}");
        assert_eq!(tried.json()["plan"]["interrupts"], said, "{}", tried.text());
    }

    let failed = PowerReading {
        error_code: "unreachable".to_owned(),
        message: "BMC 10.77.0.101: no answer".to_owned(),
        ..PowerReading::default()
    };
    brings(&lab, &rack, failed).await;
    let status = until(&lab, reads("unknown", "r1")).await;
    assert_eq!(status["power"]["error"], "BMC 10.77.0.101: no answer");
    let why = "the power of m cannot be read: the BMC does not answer (BMC 10.77.0.101: no answer)";
    assert_eq!(differs(&status), Some(["unknown", "BmcUnreachable", why].map(str::to_owned)));
    assert_eq!(status["axes"]["health"], "degraded");

    brings(&lab, &rack, read("off")).await;
    let status = until(&lab, reads("off", "r1")).await;
    assert_eq!((&status["power"]["error"], differs(&status)), (&Value::Null, None));
    let observed_at = status["power"]["observed_at"].clone();
    brings(&lab, &rack, PowerReading { unchanged: true, ..read("off") }).await;
    until(&lab, |status| status["power"]["observed_at"] != observed_at).await;
    let timeline = lab.api.get("/api/v1/machines/m/timeline").await.json();
    let entries = timeline["entries"].as_array().expect("entries").clone();
    let said = |message: &str| entries.iter().filter(|entry| entry["message"] == message).count();
    assert_eq!([said("BMC: power is on"), said("BMC: power is off")], [1, 1], "{timeline}");
    assert_eq!(said("BMC: power is unknown (unreachable): BMC 10.77.0.101: no answer"), 1, "{timeline}");
    assert_eq!(rack.told().commands.len(), 0, "power = auto: it is told, and nothing is done");

    let other = Linked::come(&lab, controller.rpc_address(), "r2", "10.99.0.2/24").await;
    brings(&lab, &other, read("on")).await;
    brings(&lab, &rack, read("off")).await;
    until(&lab, reads("off", "r1")).await;

    declare(&lab, "on").await;
    once("the rack powers it on", async || {
        rack.told().commands.iter().any(|it| it.verb() == Verb::On).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_bmc_is_reset_by_its_rack_and_the_power_stays_as_it_was_read() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    declare(&lab, "auto").await;
    has_bmc(&rack).await;
    brings(&lab, &rack, read("on")).await;
    until(&lab, reads("on", "r1")).await;

    const OPERATIONS: &str = "/api/v1/machines/m/operations";
    let wish = json!({"verb": "reset_bmc"}).to_string();
    let tried = lab.api.send("POST", &format!("{OPERATIONS}?dry_run=true"), &[], wish.clone()).await.json();
    let interrupts = tried["plan"]["interrupts"].as_str().expect("a sentence");
    assert!(interrupts.starts_with("The BMC of m restarts, ") && interrupts.contains("m itself goes on"));
    assert_eq!(tried["plan"]["steps"][0]["message"], "reset its BMC, as was asked for", "{tried}");
    assert_eq!(rack.told().commands.len(), 0, "it was only tried");

    let accepted = lab.api.send("POST", OPERATIONS, &[], wish.clone()).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let command = once("the rack is told", async || {
        rack.told().commands.into_iter().find(|it| it.verb() == Verb::ResetBmc)
    })
    .await;
    let result = PowerResult {
        command_id: command.command_id,
        verb: "reset_bmc".to_owned(),
        ok: true,
        power: "unknown".to_owned(),
        epoch: command.epoch,
        ..PowerResult::default()
    };
    let (machine_uid, step_key) = (command.machine_uid, command.step_key);
    rack.brings(Fact { machine_uid, step_key, body: Some(Body::Power(result)), ..Fact::default() }).await;
    let path = accepted.json()["path"].as_str().expect("a path").to_owned();
    let ended = once("its end", async || {
        let seen = lab.api.get(&path).await.json();
        (seen["state"] != "requested" && seen["state"] != "running").then_some(seen)
    })
    .await;
    assert_eq!(ended["state"], "done", "{ended}");
    assert!(ended["message"].as_str().expect("words").contains("the BMC of m resets itself"), "{ended}");
    assert_eq!(machine(&lab).await["status"]["power"]["state"], "on");
    let audit = lab.api.get("/api/v1/audit?limit=50").await;
    assert!(audit.text().contains("reset_bmc"), "{}", audit.text());

    let pdu = json!({"driver": "webhook", "address": "10.77.0.103", "webhook": {"on": "/on", "off": "/off", "status": "/"}});
    let spec = json!({"boot_macs": ["52:54:00:00:00:02"], "commissioning": {"skip": true}, "bmc": pdu});
    lab.api.declare("/api/v1/machines/n", &spec.to_string()).await;
    let refused = lab.api.send("POST", "/api/v1/machines/n/operations", &[], wish).await.problem();
    assert_eq!(
        (refused.0, refused.2),
        (409, vec!["/verb: n is switched by a web service, and not by a BMC of its own".to_owned()])
    );
}
