//! Zone cuts, referrals and glue (RFC 1034 §4.2.1, RFC 9471).

use basalt_dns::{Answer, Transport, answer};

use crate::support::{check, query, zone, zones};

const PARENT: &str = "
    k8s.lab. 300 NS ns1.k8s.lab.
    k8s.lab. 300 NS ns.other.lab.
    k8s.lab. 300 DS digest
    ns1.k8s.lab. 300 A 10.0.0.1
    ns1.k8s.lab. 300 AAAA fd00::1
    ns.other.lab. 300 A 10.0.0.2
    hidden.k8s.lab. 300 TXT \"of the child\"
    deep.k8s.lab. 300 NS ns1.k8s.lab.
    top.lab. 300 A 10.0.0.3
";
const REFERRAL: &str = "NOERROR
    authority k8s.lab. 300 NS ns.other.lab.
    authority k8s.lab. 300 NS ns1.k8s.lab.
    additional ns.other.lab. 300 A 10.0.0.2
    additional ns1.k8s.lab. 300 A 10.0.0.1
    additional ns1.k8s.lab. 300 AAAA fd00::1";

#[test]
fn names_at_and_below_a_cut_are_referred_with_glue() {
    check(
        &zones([zone("lab.", PARENT)]),
        &[
            ("k8s.lab. NS", REFERRAL),
            ("k8s.lab. A", REFERRAL),
            ("hidden.k8s.lab. TXT", REFERRAL),
            // The uppermost cut counts.
            ("x.deep.k8s.lab. A", REFERRAL),
            // Glue is no data of this zone.
            ("ns1.k8s.lab. A", REFERRAL),
            ("top.lab. A", "NOERROR aa\ntop.lab. 300 A 10.0.0.3"),
        ],
    );
}

#[test]
fn the_parent_answers_for_ds_records_of_the_cut_alone() {
    let zones = zones([zone("lab.", PARENT)]);
    let reply = crate::support::reply(&zones, &query("k8s.lab. DS"));
    assert!(reply.metadata.authoritative && reply.answers.len() == 1, "{reply:?}");
    check(&zones, &[("x.k8s.lab. DS", REFERRAL)]);
}

#[test]
fn questions_below_a_cut_are_forwarded_to_its_servers() {
    let zones = zones([zone("lab.", PARENT), zone("elsewhere.", "ns.elsewhere. 1 A 10.0.0.4")]);
    let asked = query("x.k8s.lab. A").to_vec().unwrap();
    let Answer::Forward(question) = answer(&zones, &asked, Transport::Udp, true) else {
        panic!("not forwarded")
    };
    let servers: Vec<String> = question.servers().iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.2", "10.0.0.1", "fd00::1"]);
    assert_eq!(question.key().name(), crate::support::name("x.k8s.lab."));
}
