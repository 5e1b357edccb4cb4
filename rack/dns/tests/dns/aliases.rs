//! Chains of CNAME records (RFC 1034 §3.6.2, RFC 6604).

use basalt_dns::{Answer, Transport, answer};

use crate::support::{check, query, reply, zone, zones};

#[test]
fn chains_are_followed_through_all_zones_of_ours() {
    let a = zone(
        "a.",
        "www.a. 30 CNAME web.b.
         gone.a. 30 CNAME nobody.b.
         other.a. 30 CNAME txt.b.
         away.a. 30 CNAME www.example.com.
         cut.a. 30 CNAME host.child.b.",
    );
    let b = zone(
        "b.",
        "web.b. 30 CNAME host.a.b.
         host.a.b. 30 A 10.0.0.1
         txt.b. 30 TXT \"text\"
         child.b. 30 NS ns.child.b.
         ns.child.b. 30 A 10.0.0.53",
    );
    check(
        &zones([a, b]),
        &[
            (
                "www.a. A",
                "NOERROR aa\nwww.a. 30 CNAME web.b.\nweb.b. 30 CNAME host.a.b.\nhost.a.b. 30 A 10.0.0.1",
            ),
            ("www.a. CNAME", "NOERROR aa\nwww.a. 30 CNAME web.b."),
            ("www.a. ANY", "NOERROR aa\nwww.a. 30 CNAME web.b."),
            // The code speaks of the end of the chain.
            ("gone.a. A", "NXDOMAIN aa\ngone.a. 30 CNAME nobody.b.\nauthority b. 60 SOA 7"),
            ("other.a. A", "NOERROR aa\nother.a. 30 CNAME txt.b.\nauthority b. 60 SOA 7"),
            // The client asks on by itself.
            ("away.a. A", "NOERROR aa\naway.a. 30 CNAME www.example.com."),
            (
                "cut.a. A",
                "NOERROR aa\ncut.a. 30 CNAME host.child.b.\nauthority child.b. 30 NS ns.child.b.\nadditional ns.child.b. 30 A 10.0.0.53",
            ),
        ],
    );
}

#[test]
fn loops_end_and_long_chains_too() {
    let mut lines = String::from(
        "self.a. 1 CNAME SELF.a.\none.a. 1 CNAME two.a.\ntwo.a. 1 CNAME one.a.\n*.wild.a. 1 CNAME x.wild.a.\n",
    );
    for number in 0..100 {
        lines += &format!("c{number}.a. 1 CNAME c{}.a.\n", number + 1);
    }
    let zones = zones([zone("a.", &lines)]);
    check(
        &zones,
        &[
            ("self.a. A", "NOERROR aa\nself.a. 1 CNAME self.a."),
            ("one.a. A", "NOERROR aa\none.a. 1 CNAME two.a.\ntwo.a. 1 CNAME one.a."),
            ("y.wild.a. A", "NOERROR aa\ny.wild.a. 1 CNAME x.wild.a.\nx.wild.a. 1 CNAME x.wild.a."),
        ],
    );
    assert_eq!(reply(&zones, &query("c0.a. A")).answers.len(), 16);
}

#[test]
fn an_alias_that_leads_out_of_our_zones_is_forwarded_for_clients_that_may_recurse() {
    let zones = zones([zone("a.", "away.a. 30 CNAME www.Example.com.")]);
    let ask = |message: &hickory_proto::op::Message, may| {
        answer(&zones, &message.to_vec().unwrap(), Transport::Udp, may)
    };
    let mut asked = query("away.a. AAAA");
    asked.metadata.checking_disabled = true;
    let Answer::Forward(question) = ask(&asked, true) else { panic!("not forwarded") };
    assert_eq!(question.key().to_string(), "www.example.com. AAAA");
    assert!(question.servers().is_empty());

    let failed = hickory_proto::op::Message::from_vec(&question.fail()).unwrap();
    assert_eq!(crate::support::text(&failed), "SERVFAIL aa\n");
    assert_eq!(failed.queries, asked.queries);
    assert_eq!((failed.id, failed.recursion_available, failed.recursion_desired), (4711, true, true));

    // A client without RD asks on by itself, like one that may not recurse.
    asked.metadata.recursion_desired = false;
    assert!(matches!(ask(&asked, true), Answer::Reply(_)));
    assert!(matches!(ask(&query("away.a. AAAA"), false), Answer::Reply(_)));
}
