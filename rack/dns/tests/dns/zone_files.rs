//! Records that cannot stand in a zone are named, with the reason.

use basalt_dns::{Soa, Zone};

use crate::support::{name, records};

#[test]
fn a_record_that_cannot_stand_in_the_zone_is_named() {
    for (text, expected) in [
        ("www.example.net. 1 A 192.0.2.1", "record www.example.net. A: the name is outside the zone"),
        ("example.com.net. 1 A 192.0.2.1", "record example.com.net. A: the name is outside the zone"),
        (
            "a.example.com. 1 CNAME b.\na.example.com. 1 TXT \"x\"",
            "record a.example.com. CNAME: a CNAME cannot stand beside other records",
        ),
        ("example.com. 1 CNAME b.", "record example.com. CNAME: a CNAME cannot stand beside other records"),
        (
            "a.example.com. 1 CNAME b.\nA.example.com. 2 CNAME c.",
            "record a.example.com. CNAME: a name can have one CNAME",
        ),
        ("example.com. 1 SOA a. b. 1 2 3 4 5", "record example.com. SOA: a zone has one SOA"),
        ("*.example.com. 1 NS a.", "record *.example.com. NS: a wildcard cannot have NS records"),
    ] {
        let error = Zone::new(Soa::new(name("example.com."), 1), records(text)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("zone example.com.: {expected}")), "{error}");
    }
}

#[test]
fn an_rrset_that_no_message_can_hold_is_refused() {
    let lines: Vec<String> = (0..2000).map(|number| format!("big.a. 1 TXT \"{number:0>30}\"")).collect();
    let error = Zone::new(Soa::new(name("a."), 1), records(&lines.join("\n"))).unwrap_err().to_string();
    assert_eq!(
        error,
        "zone a.: record big.a. TXT: all records of this name and type have 86000 octets, and 64,900 are possible: declare fewer of them"
    );
}
