//! Boot traces: racks report the requests of machines; the traces are stored within limits, and read by callers with rights.

use crate::accounts::{issue, pools};
use crate::kinds::observe;
use crate::support::{Client, Lab, driven_lab, lab};
use basalt_api::values::RackId;
use basalt_db::Key;
use basalt_proto::rack_v1::{BootTraceEntry, BootTraceFact, Fact, LeaseFact, fact::Body};
use basalt_region::racks::observed;
use serde_json::{Value, json};

const MAC: &str = "52:54:00:00:00:01";
const STRANGER: &str = "52:54:00:00:00:99";

/// A model of a rack that sends any report.
struct Rack<'a> {
    lab: &'a Lab,
    uid: RackId,
    seq: u64,
}

impl<'a> Rack<'a> {
    async fn come(lab: &'a Lab) -> Self {
        observe(lab, "Rack", "r1", "{}").await;
        let uid = lab.region.store().get("Rack", Key::Name("r1")).await.expect("a rack").uid;
        Self { lab, uid: RackId::from(uid), seq: 0 }
    }

    async fn heard(&mut self, mac: &str, entries: Vec<BootTraceEntry>) {
        self.says(mac, Body::BootTrace(BootTraceFact { entries, lost: 2, others_lost: 5 })).await;
    }

    async fn says(&mut self, mac: &str, body: Body) {
        self.seq += 1;
        let fact = Fact { seq: self.seq, mac: mac.to_owned(), body: Some(body), ..Fact::default() };
        let facts = [observed::new_fact(fact, 0)];
        let store = self.lab.region.store();
        store.store_facts(self.uid, "r1", uuid::Uuid::from_u128(1), &facts).await.expect("it is stored");
    }
}

fn discover(at_s: i64) -> BootTraceEntry {
    BootTraceEntry {
        at_unix_ms: 1_800_000_000_000 + at_s * 1000,
        service: "dhcp".into(),
        client: "firmware".into(),
        asked: "DISCOVER, x86 BIOS".into(),
        answered: "not answered: no subnet is configured for 10.0.0.2".into(),
        reason: "no_subnet".into(),
        times: 1,
        opens: true,
        ..BootTraceEntry::default()
    }
}

async fn machine(lab: &Lab) {
    let spec = json!({"boot_macs": [MAC], "commissioning": {"skip": true}}).to_string();
    lab.api.declare("/api/v1/machines/m", &spec).await;
}

async fn boots(lab: &Lab, of: &str) -> Value {
    let answer = lab.api.get(&format!("/api/v1/boots/{of}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn a_machine_is_found_by_its_name_and_its_mac_in_any_spelling() {
    let lab = lab().await;
    machine(&lab).await;
    let mut rack = Rack::come(&lab).await;
    rack.heard(MAC, vec![discover(0)]).await;
    rack.heard(MAC, vec![discover(600)]).await;
    let by_name = boots(&lab, "m").await;
    assert_eq!((&by_name["machine"], &by_name["macs"]), (&json!("m"), &json!([MAC])));
    let began: Vec<_> =
        by_name["boots"].as_array().unwrap().iter().map(|boot| boot["began"].clone()).collect();
    assert_eq!(began, ["2027-01-15T08:10:00Z", "2027-01-15T08:00:00Z"], "the newest first");
    let last = &by_name["boots"][0];
    assert_eq!((&last["lost"], &last["judgement"]["code"]), (&json!(2), &json!("no_subnet")));
    assert_eq!((&last["entries"][0]["rack"], &last["entries"][0]["times"]), (&json!("r1"), &json!(1)));
    for spelling in ["52-54-00-00-00-01", "5254.0000.0001", "525400000001"] {
        assert_eq!(boots(&lab, spelling).await, by_name, "{spelling}");
    }
}

#[tokio::test]
async fn firmware_of_another_architecture_than_declared_is_said_with_what_to_correct() {
    let lab = lab().await;
    let spec =
        json!({"architecture": "arm64", "boot_macs": [MAC], "commissioning": {"skip": true}}).to_string();
    lab.api.declare("/api/v1/machines/m", &spec).await;
    let answered = "OFFER 10.0.0.5, and nothing to boot: x86 BIOS starts programs for amd64, and the machine is declared as arm64";
    let refused =
        BootTraceEntry { answered: answered.into(), reason: "other_architecture".into(), ..discover(0) };
    let mut rack = Rack::come(&lab).await;
    rack.heard(MAC, vec![refused]).await;
    let boot = boots(&lab, "m").await["boots"][0].clone();
    assert_eq!(boot["entries"][0]["answered"], answered);
    assert_eq!(boot["judgement"]["code"], "other_architecture", "{boot}");
    let to_do = boot["judgement"]["to_do"].as_str().unwrap();
    assert!(to_do.starts_with("set architecture of the Machine to amd64"), "{to_do}");
}

#[tokio::test]
async fn who_nobody_declared_has_boots_too_and_who_was_never_heard_is_told_who_listens() {
    let lab = lab().await;
    let mut rack = Rack::come(&lab).await;
    rack.heard(STRANGER, vec![discover(0)]).await;
    let stranger = boots(&lab, STRANGER).await;
    assert_eq!((&stranger["machine"], &stranger["others_lost"]), (&Value::Null, &json!(5)));
    assert_eq!(stranger["boots"].as_array().map(Vec::len), Some(1));
    let nobody = boots(&lab, "52:54:00:00:00:77").await;
    assert_eq!(nobody["boots"], json!([]));
    assert_eq!(nobody["judgement"]["code"], "no_rack", "none is connected");
    assert_eq!(nobody["racks"][0]["rack"], "r1");
    assert_eq!(lab.api.get("/api/v1/boots/nobody").await.problem().1, "not_found");
}

#[tokio::test]
async fn who_asks_over_infiniband_is_said_of_the_rack_of_the_port_and_of_a_machine_that_was_never_heard() {
    const PORT: &str = "00:02:c9:12:34:56";
    let lab = driven_lab().await;
    pools(&lab.api).await;
    let mut rack = Rack::come(&lab).await;
    let plan = async || lab.api.get("/api/v1/racks/r1/plan").await.json();
    let says = |plan: &Value| plan["waits"].as_array().unwrap().iter().any(|it| it["cause"] == "InfiniBand");
    assert!(!says(&plan().await));
    let over = BootTraceEntry {
        asked: "DISCOVER, x86-64 UEFI, over InfiniBand, port GUID 0002:c903:0012:3456".into(),
        answered: "not answered: racks lease no addresses over InfiniBand and boot no machines there".into(),
        reason: "infiniband".into(),
        ..discover(0)
    };
    rack.heard(PORT, vec![discover(0), over]).await;
    let plan = plan().await;
    assert!(says(&plan) && plan.to_string().contains(PORT), "{plan}");
    let port = boots(&lab, PORT).await["boots"][0]["judgement"].clone();
    assert_eq!(port["code"], "infiniband");
    assert!(port["message"].as_str().unwrap().contains("port GUID 0002:c903:0012:3456"), "{port}");
    let silent = boots(&lab, "blue").await["judgement"]["message"].clone();
    assert!(silent.as_str().unwrap().contains(PORT), "{silent}");

    let token = issue(&lab, "of-blue", r#"{"role":"blue"}"#).await;
    let blue = Client::new(lab.region.address(), Some(token));
    let own = blue.get("/api/v1/boots/blue").await;
    assert!(own.status == 200 && !own.text().contains(PORT), "it is told of no strangers: {}", own.text());
}

#[tokio::test]
async fn who_has_an_address_was_heard_and_a_declared_subnet_is_not_said_to_be_missing() {
    let lab = driven_lab().await;
    let mut rack = Rack::come(&lab).await;
    lab.api.declare("/api/v1/fabrics/default", "{}").await;
    observe(&lab, "Rack", "r2", "{}").await;
    let vlan = r#"{"fabric":"default","vid":0,"dhcp":{"enabled":true,"racks":["r2"]}}"#;
    lab.api.declare("/api/v1/vlans/default.0", vlan).await;
    lab.api.declare("/api/v1/subnets/lab", r#"{"vlan":"default.0","cidr":"10.0.0.0/24"}"#).await;
    rack.heard(MAC, vec![discover(0)]).await;
    let judgement = boots(&lab, MAC).await["boots"][0]["judgement"].clone();
    assert_eq!(judgement["code"], "rack_not_named", "{judgement}");
    let subnet_uid =
        lab.region.store().get("Subnet", Key::Name("lab")).await.expect("a subnet").uid.to_string();
    let lease = LeaseFact {
        address: "10.0.0.100".into(),
        expires_unix_ms: 600_000,
        subnet_uid,
        ..LeaseFact::default()
    };
    rack.says(STRANGER, Body::Lease(lease)).await;
    let judgement = boots(&lab, STRANGER).await["judgement"].clone();
    assert_eq!(judgement["code"], "leased_only", "{judgement}");
    assert!(judgement["message"].as_str().unwrap().contains("leased 10.0.0.100 of r1"), "{judgement}");
}

#[tokio::test]
async fn a_trace_is_no_fact_that_anything_waits_for_and_only_the_last_is_kept() {
    let lab = driven_lab().await;
    machine(&lab).await;
    let mut rack = Rack::come(&lab).await;
    let uid = lab.region.store().get("Machine", Key::Name("m")).await.expect("a machine").uid;
    for number in 0..300 {
        rack.heard(MAC, vec![discover(number)]).await;
    }
    let store = lab.region.store();
    assert!(store.latest_facts(uid).await.expect("facts").iter().all(|fact| fact.kind != "boot_trace"));
    assert!(store.recent_facts(uid, 1000).await.expect("facts").iter().all(|fact| fact.kind != "boot_trace"));
    let kept = store.boot_traces(&[MAC.to_owned()]).await.expect("traces");
    assert_eq!(kept.len(), 256);
    let first = kept[0].body["entries"][0]["at_unix_ms"].as_i64();
    assert_eq!(first, Some(1_800_000_044_000), "the last ones");
    store.prune_boot_traces().await.expect("it is tidied up");
    assert_eq!(store.boot_traces(&[MAC.to_owned()]).await.expect("traces").len(), 256);
}

#[tokio::test]
async fn who_does_not_see_a_machine_does_not_see_what_it_asked_nor_whether_there_is_one() {
    let lab = lab().await;
    pools(&lab.api).await;
    let mut rack = Rack::come(&lab).await;
    let [of_blue, of_red] = ["52:54:00:00:00:00", "52:54:00:00:00:01"];
    for mac in [of_blue, of_red] {
        rack.heard(mac, vec![discover(0)]).await;
    }
    let token = issue(&lab, "of-blue", r#"{"role":"blue"}"#).await;
    let blue = Client::new(lab.region.address(), Some(token));
    assert_eq!(blue.get(&format!("/api/v1/boots/{of_blue}")).await.status, 200);
    let hidden = blue.get(&format!("/api/v1/boots/{of_red}")).await.problem();
    let absent = blue.get("/api/v1/boots/52:54:00:00:00:77").await.problem();
    assert_eq!((hidden.0, hidden.1.as_str()), (404, "not_found"));
    assert_eq!((hidden.0, hidden.1), (absent.0, absent.1), "the one is told as the other");
    assert_eq!(blue.get("/api/v1/boots/red").await.problem().1, "not_found");
}
