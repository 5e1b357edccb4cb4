//! Logs of machines: lines that a rack delivers, read and followed, and the right to do so.

use crate::accounts::{issue, pools};
use crate::enrolment::{NewRack, region};
use crate::support::{Client, Lab, lab};
use crate::watch::client_with;
use basalt_api::client::LogOptions;
use basalt_api::values::RackId;
use basalt_db::Key;
use basalt_proto::rack_v1::{BootTraceEntry, BootTraceFact, Fact, LogBatch, LogLine, fact::Body};
use basalt_region::racks::observed;
use serde_json::Value;

const SPOOL: &str = "11111111-1111-4111-8111-111111111111";
const BLUE: &str = "52:54:00:00:00:00";

/// Lines of a machine, received ten minutes apart, from 2024-01-01T08:00:00Z on.
async fn batch(lab: &Lab, machine: &str, seqs: std::ops::RangeInclusive<u64>) -> LogBatch {
    let uid = lab.region.store().get("Machine", Key::Name(machine)).await.expect("a machine").uid;
    let line = |seq| LogLine {
        seq,
        at_unix_ms: 1_704_096_000_000 + (i64::try_from(seq).unwrap() - 1) * 600_000,
        machine_uid: uid.to_string(),
        priority: 27,
        app: "sshd".into(),
        text: format!("line {seq} of {machine}"),
        ..LogLine::default()
    };
    LogBatch { spool_uid: SPOOL.into(), lines: seqs.map(line).collect() }
}

async fn texts(api: &Client, query: &str) -> Vec<String> {
    let answer = api.get(&format!("/api/v1/machines/blue/logs?{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let lines: Vec<Value> = answer.json()["lines"].as_array().unwrap().clone();
    lines.iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

fn lines(seqs: impl IntoIterator<Item = u64>) -> Vec<String> {
    seqs.into_iter().map(|seq| format!("line {seq} of blue")).collect()
}

#[tokio::test]
async fn a_rack_delivers_lines_once_and_they_are_found_by_time_boot_and_text() {
    let (lab, controller) = region().await;
    pools(&lab.api).await;
    let (newcomer, enrolled) = NewRack::new(&lab, controller.rpc_address(), "r1").await.enrol().await;
    let mut link = newcomer.link(&enrolled.certificate_der).await;
    for seqs in [1..=4, 3..=6] {
        link.store_logs(batch(&lab, "blue", seqs).await).await.expect("they are stored");
    }
    let ask = LogBatch { spool_uid: SPOOL.into(), lines: Vec::new() };
    assert_eq!(link.store_logs(ask).await.expect("an answer").into_inner().through_seq, 6);

    assert_eq!(texts(&lab.api, "").await, lines(1..=6));
    assert_eq!(texts(&lab.api, "limit=2").await, lines(5..=6));
    assert_eq!(texts(&lab.api, "since=2024-01-01T08:10:00Z&until=2024-01-01T08:30:00Z").await, lines(2..=3));
    assert_eq!(texts(&lab.api, "grep=line%204").await, lines([4]));
    assert_eq!(texts(&lab.api, "grep=sshd").await, lines(1..=6), "or the program");
    let first = lab.api.get("/api/v1/machines/blue/logs?limit=1").await.json();
    assert_eq!((&first["more"], &first["lines"][0]["severity"]), (&Value::Bool(true), &"err".into()));
    assert_eq!(first["lines"][0]["at"], "2024-01-01T08:50:00Z");

    // A boot begins with the firmware's first request.
    let rack: RackId = enrolled.rack_uid.parse().expect("a uid");
    for (number, minutes) in [15, 35].into_iter().enumerate() {
        let entry = BootTraceEntry {
            at_unix_ms: 1_704_096_000_000 + minutes * 60_000,
            service: "dhcp".into(),
            client: "firmware".into(),
            times: 1,
            opens: true,
            ..BootTraceEntry::default()
        };
        let body = Body::BootTrace(BootTraceFact { entries: vec![entry], ..BootTraceFact::default() });
        let seq = number as u64 + 1;
        let fact = Fact { seq, mac: BLUE.into(), body: Some(body), ..Fact::default() };
        let facts = [observed::new_fact(fact, 0)];
        let spool = uuid::Uuid::from_u128(1);
        lab.region.store().store_facts(rack, "r1", spool, &facts).await.expect("it is stored");
    }
    assert_eq!(texts(&lab.api, "boot=0").await, lines(5..=6));
    assert_eq!(texts(&lab.api, "boot=1").await, lines(3..=4));
    let unknown = lab.api.get("/api/v1/machines/blue/logs?boot=2").await.problem();
    let expected = "/boot: boot 2 is not known; 2 boots of this machine are";
    assert_eq!((unknown.0, unknown.2), (422, vec![expected.to_owned()]));
}

#[tokio::test]
async fn who_follows_gets_what_was_and_what_comes_and_goes_on_where_it_was_cut() {
    let lab = lab().await;
    pools(&lab.api).await;
    let rack = RackId::from(uuid::Uuid::from_u128(7));
    let logs = lab.region.logs().clone();
    logs.store(rack, batch(&lab, "blue", 1..=3).await).expect("they are stored");
    let client = client_with(&lab, lab.api.token.clone());
    let options = LogOptions { limit: Some(2), ..LogOptions::default() };
    let mut log = client.follow_log("blue", &options);
    for expected in lines(2..=3) {
        assert_eq!(log.next().await.expect("a line").text, expected);
    }
    logs.store(rack, batch(&lab, "blue", 4..=4).await).expect("it is stored");
    assert_eq!(log.next().await.expect("a line").text, "line 4 of blue");
    log.disconnect();
    logs.store(rack, batch(&lab, "blue", 5..=5).await).expect("it is stored");
    assert_eq!(log.next().await.expect("a line").text, "line 5 of blue", "nothing is told twice");
}

#[tokio::test]
async fn who_does_not_see_a_machine_does_not_see_its_log() {
    let lab = lab().await;
    pools(&lab.api).await;
    let token = issue(&lab, "of-blue", r#"{"role":"blue"}"#).await;
    let blue = Client::new(lab.region.address(), Some(token));
    assert_eq!(blue.get("/api/v1/machines/blue/logs").await.status, 200);
    assert_eq!(blue.get("/api/v1/machines/red/logs").await.problem().1, "not_found");
    assert_eq!(blue.get("/api/v1/machines/red/logs?follow=true").await.problem().1, "not_found");
    assert_eq!(Client::new(lab.region.address(), None).get("/api/v1/machines/blue/logs").await.status, 401);
}

#[tokio::test]
async fn settings_say_how_much_of_a_log_is_kept() {
    let lab = lab().await;
    pools(&lab.api).await;
    let logs = lab.region.logs().clone();
    lab.api.declare("/api/v1/settings/default", r#"{"logs": {"machine_size": "4KiB"}}"#).await;
    logs.enforce(lab.region.store()).await.expect("it is tidied up");
    for seq in 1..=60 {
        let batch = batch(&lab, "blue", seq..=seq).await;
        logs.store(RackId::from(uuid::Uuid::from_u128(7)), batch).expect("it is stored");
    }
    logs.enforce(lab.region.store()).await.expect("it is tidied up");
    let kept = texts(&lab.api, "").await;
    assert!((5..40).contains(&kept.len()) && kept.last().unwrap() == "line 60 of blue", "{kept:?}");
}
