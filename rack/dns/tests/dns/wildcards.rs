//! Wildcards (RFC 4592).

use basalt_dns::{Computed, Origin};

use crate::support::{check, name, zone, zones};

#[test]
fn the_examples_of_rfc_4592_section_2_2_1() {
    let zone = zone(
        "example.",
        "example. 3600 NS ns.example.com.
         example. 3600 NS ns.example.net.
         *.example. 3600 TXT \"this is a wildcard\"
         *.example. 3600 MX 10 host1.example.
         sub.*.example. 3600 TXT \"this is not a wildcard\"
         host1.example. 3600 A 192.0.2.1
         _ssh._tcp.host1.example. 3600 SRV 0 0 22 host1.example.
         _ssh._tcp.host2.example. 3600 SRV 0 0 22 host2.example.
         subdel.example. 3600 NS ns.example.com.
         subdel.example. 3600 NS ns.example.net.",
    );
    let nodata = "NOERROR aa\nauthority example. 60 SOA 7";
    let nxdomain = "NXDOMAIN aa\nauthority example. 60 SOA 7";
    check(
        &zones([zone]),
        &[
            // Made of the wildcard
            ("host3.example. MX", "NOERROR aa\nhost3.example. 3600 MX 10 host1.example."),
            ("host3.example. A", nodata),
            ("foo.bar.example. TXT", "NOERROR aa\nfoo.bar.example. 3600 TXT this is a wildcard"),
            ("*.example. TXT", "NOERROR aa\n*.example. 3600 TXT this is a wildcard"),
            // Not made of it
            ("host1.example. MX", nodata),
            ("sub.*.example. MX", nodata),
            ("_telnet._tcp.host1.example. SRV", nxdomain),
            (
                "host.subdel.example. A",
                "NOERROR\nauthority subdel.example. 3600 NS ns.example.com.\nauthority subdel.example. 3600 NS ns.example.net.",
            ),
            ("ghost.*.example. MX", nxdomain),
            // An empty non-terminal exists, so the wildcard does not stand for it.
            ("_tcp.host1.example. TXT", nodata),
            ("host2.example. TXT", nodata),
        ],
    );
}

#[test]
fn a_wildcard_may_be_an_alias_and_an_empty_one_denies_data_alone() {
    let zone = zone(
        "lab.",
        "*.apps.lab. 30 CNAME ingress.lab.
         ingress.lab. 30 A 10.0.0.9
         below.*.empty.lab. 30 A 10.0.0.8",
    );
    check(
        &zones([zone]),
        &[
            (
                "shop.apps.lab. A",
                "NOERROR aa\nshop.apps.lab. 30 CNAME ingress.lab.\ningress.lab. 30 A 10.0.0.9",
            ),
            ("apps.lab. A", "NOERROR aa\nauthority lab. 60 SOA 7"),
            ("any.empty.lab. A", "NOERROR aa\nauthority lab. 60 SOA 7"),
            ("other.lab. A", "NXDOMAIN aa\nauthority lab. 60 SOA 7"),
        ],
    );
}

#[test]
fn a_zone_says_which_part_of_it_answers_for_a_name() {
    let plain = zone(
        "example.",
        "*.example. 60 A 192.0.2.1
         www.example. 60 A 192.0.2.2
         a.b.example. 60 A 192.0.2.3
         sub.example. 60 NS ns.other.",
    );
    let range = "10.0.0.1".parse().unwrap()..="10.0.0.9".parse().unwrap();
    let zone = plain.computed(Computed::new(name("example."), [range], 60));
    for (asked, origin) in [
        ("WWW.example.", Origin::Records),
        ("x.y.example.", Origin::Wildcard(name("*.example."))),
        ("b.example.", Origin::NamesBelow),
        ("x.b.example.", Origin::Nothing),
        ("x.www.example.", Origin::Nothing),
        ("ip-10-0-0-9.example.", Origin::Computed),
        ("ip-10-0-0-10.example.", Origin::Wildcard(name("*.example."))),
        ("x.sub.example.", Origin::Delegated(name("sub.example."))),
    ] {
        assert_eq!(zone.origin_of(&name(asked)), origin, "{asked}");
    }
}
