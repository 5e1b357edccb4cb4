//! Names, types, and what does not exist (RFC 1034 §4.3.2, RFC 2308, RFC 8020, RFC 8482).

use crate::support::{check, query, reply, text, zone, zones};

const EXAMPLE: &str = "
    example.com. 3600 NS ns1.example.com.
    example.com. 300 MX 10 mail.example.com.
    ns1.example.com. 3600 A 192.0.2.53
    www.example.com. 300 A 192.0.2.2
    www.example.com. 200 A 192.0.2.1
    www.example.com. 300 A 192.0.2.1
    www.example.com. 300 AAAA 2001:db8::1
    deep.under.example.com. 300 TXT \"text\"
    _ssh._tcp.www.example.com. 300 SRV 0 5 22 www.example.com.
";

#[test]
fn it_answers_what_it_has_and_denies_the_rest_with_the_soa() {
    check(
        &zones([zone("example.com.", EXAMPLE)]),
        &[
            // The lowest TTL counts for the whole set, and a record stands in it once.
            (
                "www.example.com. A",
                "NOERROR aa\nwww.example.com. 200 A 192.0.2.1\nwww.example.com. 200 A 192.0.2.2",
            ),
            ("www.example.com. AAAA", "NOERROR aa\nwww.example.com. 300 AAAA 2001:db8::1"),
            ("example.com. NS", "NOERROR aa\nexample.com. 3600 NS ns1.example.com."),
            ("example.com. MX", "NOERROR aa\nexample.com. 300 MX 10 mail.example.com."),
            ("example.com. SOA", "NOERROR aa\nexample.com. 600 SOA 7"),
            (
                "_ssh._tcp.www.example.com. SRV",
                "NOERROR aa\n_ssh._tcp.www.example.com. 300 SRV 0 5 22 www.example.com.",
            ),
            // The name exists, the type does not. The TTL is the lesser of the SOA's own and its minimum.
            ("www.example.com. TXT", "NOERROR aa\nauthority example.com. 60 SOA 7"),
            ("example.com. A", "NOERROR aa\nauthority example.com. 60 SOA 7"),
            // A name that has only names below it exists.
            ("under.example.com. A", "NOERROR aa\nauthority example.com. 60 SOA 7"),
            ("_tcp.www.example.com. SRV", "NOERROR aa\nauthority example.com. 60 SOA 7"),
            ("nobody.example.com. A", "NXDOMAIN aa\nauthority example.com. 60 SOA 7"),
            ("below.www.example.com. A", "NXDOMAIN aa\nauthority example.com. 60 SOA 7"),
            // ANY is answered with one RRset.
            (
                "www.example.com. ANY",
                "NOERROR aa\nwww.example.com. 200 A 192.0.2.1\nwww.example.com. 200 A 192.0.2.2",
            ),
            ("under.example.com. ANY", "NOERROR aa\nauthority example.com. 60 SOA 7"),
            ("nobody.example.com. ANY", "NXDOMAIN aa\nauthority example.com. 60 SOA 7"),
            // Others have these names.
            ("example.net. A", "REFUSED"),
            ("com. A", "REFUSED"),
            (". NS", "REFUSED"),
        ],
    );
}

#[test]
fn the_zone_with_the_longest_suffix_answers() {
    let parent = zone("example.com.", "a.lab.example.com. 1 TXT \"of the parent\"");
    let child = zone("lab.example.com.", "b.lab.example.com. 1 TXT \"of the child\"");
    let zones = zones([parent, child, zone(".", "com. 1 NS ns.com.")]);
    check(
        &zones,
        &[
            ("b.lab.example.com. TXT", "NOERROR aa\nb.lab.example.com. 1 TXT of the child"),
            ("a.lab.example.com. TXT", "NXDOMAIN aa\nauthority lab.example.com. 60 SOA 7"),
            ("LAB.example.com. SOA", "NOERROR aa\nLAB.example.com. 600 SOA 7"),
            ("lab2.example.com. SOA", "NXDOMAIN aa\nauthority example.com. 60 SOA 7"),
            // The DS records of a zone are its parent's (RFC 4035 §3.1.4.1).
            ("lab.example.com. DS", "NOERROR aa\nauthority example.com. 60 SOA 7"),
            (". DS", "NOERROR aa\nauthority . 60 SOA 7"),
            ("net. A", "NXDOMAIN aa\nauthority . 60 SOA 7"),
        ],
    );
}

#[test]
fn a_zone_is_replaced_alone_and_copies_share_the_others() {
    let before = zones([zone("a.", "a. 1 A 192.0.2.1"), zone("b.", "b. 1 A 192.0.2.2")]);
    let mut after = before.clone();
    assert!(after.insert(zone("a.", "a. 1 A 192.0.2.9").into()).is_some_and(|old| old.serial() == 7));
    check(&before, &[("a. A", "NOERROR aa\na. 1 A 192.0.2.1")]);
    check(&after, &[("a. A", "NOERROR aa\na. 1 A 192.0.2.9"), ("b. A", "NOERROR aa\nb. 1 A 192.0.2.2")]);
    let b = crate::support::name("B.");
    assert!(std::ptr::eq(&**before.get(&b).unwrap(), &**after.get(&b).unwrap()));
    assert!(after.remove(&b).is_some());
    check(&after, &[("b. A", "REFUSED")]);
    assert_eq!(after.iter().map(|zone| zone.origin().to_ascii()).collect::<Vec<_>>(), ["a."]);
}

#[test]
fn letters_come_back_as_the_client_wrote_them() {
    let zones = zones([zone("Example.com.", EXAMPLE)]);
    let asked = query("wWw.eXample.COM. AAAA");
    let reply = reply(&zones, &asked);
    assert!(reply.queries[0].name().eq_case(asked.queries[0].name()));
    assert_eq!(text(&reply), "NOERROR aa\nwWw.eXample.COM. 300 AAAA 2001:db8::1\n");
}

#[test]
fn a_shuffled_zone_begins_with_another_record_each_time() {
    let racks = zone(
        "lab.",
        "racks.lab. 15 A 10.0.0.1\nracks.lab. 15 A 10.0.0.2\nracks.lab. 15 A 10.0.0.3\none.lab. 15 A 10.0.0.1",
    );
    let zones = zones([racks.shuffled()]);
    let mut firsts: Vec<String> = (0..3)
        .map(|_| {
            let reply = reply(&zones, &query("racks.lab. A"));
            assert_eq!(reply.answers.len(), 3);
            reply.answers[0].data.to_string()
        })
        .collect();
    firsts.sort();
    assert_eq!(firsts, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    check(&zones, &[("one.lab. A", "NOERROR aa\none.lab. 15 A 10.0.0.1")]);
}
