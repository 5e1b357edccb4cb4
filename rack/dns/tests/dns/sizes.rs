//! Limits of messages, and names as pointers (RFC 1035 §4.1.4, §4.2; RFC 2181 §9; RFC 6891 §6.2.5).

use basalt_dns::{Answer, Transport, answer};

use crate::support::{query, reply, reply_over, text, with_edns, zone, zones};

fn many(owner: &str, count: u32) -> String {
    (0..count).map(|number| format!("{owner} 60 A 10.0.{}.{}\n", number / 256, number % 256)).collect()
}

#[test]
fn an_answer_that_does_not_fit_is_left_out_as_a_whole() {
    // Header, question and 29 addresses: 12 + 11 + 29 * 16 = 487; 31 addresses have 519 octets.
    let zones =
        zones([zone("lab.", &(many("few.lab.", 29) + &many("more.lab.", 31) + &many("lots.lab.", 80)))]);
    let count = |question, size: Option<u16>| {
        let asked = size.map_or(query(question), |size| with_edns(query(question), size));
        let reply = reply(&zones, &asked);
        (reply.answers.len(), reply.truncation)
    };
    assert_eq!(count("few.lab. A", None), (29, false));
    assert_eq!(count("more.lab. A", None), (0, true));
    assert_eq!(count("more.lab. A", Some(1232)), (31, false));
    assert_eq!(count("more.lab. A", Some(0)), (0, true));
    // We send 1232 octets at most, whatever the client takes.
    assert_eq!(count("lots.lab. A", Some(4096)), (0, true));
    assert_eq!(reply_over(&zones, &query("lots.lab. A"), Transport::Tcp).answers.len(), 80);
}

#[test]
fn the_longest_answer_over_tcp_has_65535_octets_at_most() {
    let lines: Vec<String> = (0..260).map(|number| format!("big.lab. 60 TXT \"{number:0>235}\"")).collect();
    let zones = zones([zone("lab.", &lines.join("\n"))]);
    let asked = query("big.lab. TXT").to_vec().unwrap();
    let Answer::Reply(bytes) = answer(&zones, &asked, Transport::Tcp, false) else { panic!() };
    assert!((64_000..65_536).contains(&bytes.len()), "{}", bytes.len());
    assert_eq!(hickory_proto::op::Message::from_vec(&bytes).unwrap().answers.len(), 260);
}

#[test]
fn glue_of_the_cut_that_does_not_fit_sets_tc() {
    let servers: String = (0..13)
        .map(|it| format!("cut.lab. 60 NS ns{it}.cut.lab.\nns{it}.cut.lab. 60 AAAA fd00::{it}\n"))
        .collect();
    let away: String = (0..13)
        .map(|it| format!("far.lab. 60 NS ns{it}.elsewhere.lab.\nns{it}.elsewhere.lab. 60 AAAA fd00::{it}\n"))
        .collect();
    let zones = zones([zone("lab.", &(servers + &away))]);
    let cut = reply(&zones, &query("www.cut.lab. A"));
    assert!(cut.truncation && cut.authorities.len() == 13 && cut.additionals.len() < 13, "{}", text(&cut));
    let far = reply(&zones, &query("www.far.lab. A"));
    assert!(!far.truncation && far.authorities.len() == 13 && far.additionals.len() < 13, "{}", text(&far));
}

#[test]
fn names_are_written_once() {
    let zones = zones([zone(
        "example.com.",
        "example.com. 60 NS ns1.example.com.\nexample.com. 60 NS ns2.example.com.",
    )]);
    let asked = query("EXAMPLE.com. NS").to_vec().unwrap();
    let Answer::Reply(bytes) = answer(&zones, &asked, Transport::Udp, false) else { panic!() };
    // Each record: pointer, type, class, TTL, length; a label of three letters, a pointer.
    assert_eq!(bytes.len(), asked.len() + 2 * (12 + 4 + 2));
    assert_eq!(bytes[asked.len() - 4..][..2], [0, 2]);
}

#[test]
fn longest_names_and_a_negative_answer_with_them_fit() {
    let label = "l".repeat(63);
    let origin = format!("{label}.{label}.{label}.");
    let zones = zones([zone(&origin, "")]);
    let asked = query(&format!("{}.{origin} A", "x".repeat(61)));
    let reply = reply(&zones, &asked);
    assert_eq!(text(&reply), format!("NXDOMAIN aa\nauthority {origin} 60 SOA 7\n"));
}
