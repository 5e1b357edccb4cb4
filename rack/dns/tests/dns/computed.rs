//! Names that are made of addresses when they are asked.

use std::net::IpAddr;

use basalt_dns::Computed;

use crate::support::{check, name, zone, zones};

fn names(ranges: &[(&str, &str)]) -> Computed {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    Computed::new(name("lab.example."), ranges.iter().map(|(first, last)| address(first)..=address(last)), 30)
}

#[test]
fn addresses_of_the_ranges_have_names_and_no_others() {
    let computed = names(&[("10.77.0.10", "10.77.3.20"), ("fd00::", "fd00::ffff")]);
    assert_eq!(computed.name("10.77.1.2".parse().unwrap()), Some(name("ip-10-77-1-2.lab.example.")));
    assert_eq!(computed.name("10.77.4.2".parse().unwrap()), None);
    let zone = zone(
        "lab.example.",
        "ip-10-77-0-11.lab.example. 5 TXT \"declared\"
         below.ip-10-77-0-12.lab.example. 5 TXT \"declared\"
         *.lab.example. 5 A 10.9.9.9",
    );
    check(
        &zones([zone.computed(computed)]),
        &[
            ("ip-10-77-0-10.lab.example. A", "NOERROR aa\nip-10-77-0-10.lab.example. 30 A 10.77.0.10"),
            ("IP-10-77-3-20.lab.example. A", "NOERROR aa\nIP-10-77-3-20.lab.example. 30 A 10.77.3.20"),
            ("ip-fd00--1.lab.example. AAAA", "NOERROR aa\nip-fd00--1.lab.example. 30 AAAA fd00::1"),
            ("ip-FD00--A.lab.example. AAAA", "NOERROR aa\nip-FD00--A.lab.example. 30 AAAA fd00::a"),
            ("ip-fd00--0.lab.example. ANY", "NOERROR aa\nip-fd00--0.lab.example. 30 AAAA fd00::"),
            ("ip-10-77-0-10.lab.example. AAAA", "NOERROR aa\nauthority lab.example. 60 SOA 7"),
            // A declared name comes first, an empty non-terminal does not.
            ("ip-10-77-0-11.lab.example. A", "NOERROR aa\nauthority lab.example. 60 SOA 7"),
            ("ip-10-77-0-12.lab.example. A", "NOERROR aa\nip-10-77-0-12.lab.example. 30 A 10.77.0.12"),
            // The wildcard stands for all other names, but not below a computed one, which exists.
            ("ip-10-77-3-21.lab.example. A", "NOERROR aa\nip-10-77-3-21.lab.example. 5 A 10.9.9.9"),
            ("ip-10-77-0-010.lab.example. A", "NOERROR aa\nip-10-77-0-010.lab.example. 5 A 10.9.9.9"),
            ("x.ip-10-77-0-10.lab.example. A", "NXDOMAIN aa\nauthority lab.example. 60 SOA 7"),
        ],
    );
}

#[test]
fn reverse_zones_point_back_to_them() {
    let v4 = zone("77.10.in-addr.arpa.", "11.0.77.10.in-addr.arpa. 5 PTR declared.lab.example.");
    let v6 = zone("0.0.d.f.ip6.arpa.", "");
    // RFC 2317: the zone of a network below /24
    let part = zone("0-63.2.0.192.in-addr.arpa.", "");
    let zones = zones([
        v4.computed(names(&[("10.77.0.10", "10.77.3.20")])),
        v6.computed(names(&[("fd00::1", "fd00::1")])),
        part.computed(names(&[("192.0.2.1", "192.0.2.62")])),
    ]);
    let one = format!("1.{}0.0.d.f.ip6.arpa.", "0.".repeat(27));
    check(
        &zones,
        &[
            (
                "10.0.77.10.in-addr.arpa. PTR",
                "NOERROR aa\n10.0.77.10.in-addr.arpa. 30 PTR ip-10-77-0-10.lab.example.",
            ),
            (
                "11.0.77.10.in-addr.arpa. PTR",
                "NOERROR aa\n11.0.77.10.in-addr.arpa. 5 PTR declared.lab.example.",
            ),
            ("9.0.77.10.in-addr.arpa. PTR", "NXDOMAIN aa\nauthority 77.10.in-addr.arpa. 60 SOA 7"),
            ("010.0.77.10.in-addr.arpa. PTR", "NXDOMAIN aa\nauthority 77.10.in-addr.arpa. 60 SOA 7"),
            ("10.0.77.10.in-addr.arpa. A", "NOERROR aa\nauthority 77.10.in-addr.arpa. 60 SOA 7"),
            // A network with such addresses exists, one without does not.
            ("2.77.10.in-addr.arpa. PTR", "NOERROR aa\nauthority 77.10.in-addr.arpa. 60 SOA 7"),
            ("4.77.10.in-addr.arpa. PTR", "NXDOMAIN aa\nauthority 77.10.in-addr.arpa. 60 SOA 7"),
            ("1.10.0.77.10.in-addr.arpa. PTR", "NXDOMAIN aa\nauthority 77.10.in-addr.arpa. 60 SOA 7"),
            (&format!("{one} PTR"), &format!("NOERROR aa\n{one} 30 PTR ip-fd00--1.lab.example.")),
            (&format!("2{} PTR", &one[1..]), "NXDOMAIN aa\nauthority 0.0.d.f.ip6.arpa. 60 SOA 7"),
            ("0.0.0.d.f.ip6.arpa. PTR", "NOERROR aa\nauthority 0.0.d.f.ip6.arpa. 60 SOA 7"),
            ("1.0.0.d.f.ip6.arpa. PTR", "NXDOMAIN aa\nauthority 0.0.d.f.ip6.arpa. 60 SOA 7"),
            (
                "62.0-63.2.0.192.in-addr.arpa. PTR",
                "NOERROR aa\n62.0-63.2.0.192.in-addr.arpa. 30 PTR ip-192-0-2-62.lab.example.",
            ),
            (
                "63.0-63.2.0.192.in-addr.arpa. PTR",
                "NXDOMAIN aa\nauthority 0-63.2.0.192.in-addr.arpa. 60 SOA 7",
            ),
        ],
    );
}
