//! Frames as switches send them.

use basalt_lldp::{
    CAPABILITIES, CDP_GROUP, LLDP_ETHERTYPE, LLDP_GROUPS, MAX_ADDRESSES, MAX_TEXT, MAX_VLANS, Neighbour,
    Protocol, Refused, read,
};
use proptest::prelude::*;

const SWITCH: [u8; 6] = [0x00, 0x1c, 0x73, 0x0a, 0x0b, 0x0c];

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap();
    let mut octets = (u16::from(kind) << 9 | length).to_be_bytes().to_vec();
    octets.extend(value);
    octets
}

/// A TLV with a subtype, or with the OUI and subtype of an organisation.
fn sub(kind: u8, subtype: &[u8], value: &[u8]) -> Vec<u8> {
    tlv(kind, &[subtype, value].concat())
}

fn lldp(tlvs: &[Vec<u8>]) -> Vec<u8> {
    let header = [&LLDP_GROUPS[0][..], &SWITCH, &LLDP_ETHERTYPE.to_be_bytes()].concat();
    [header, tlvs.concat()].concat()
}

fn mandatory() -> Vec<Vec<u8>> {
    vec![sub(1, &[4], &SWITCH), sub(2, &[5], b"Ethernet1/7"), tlv(3, &120_u16.to_be_bytes())]
}

/// With these optional TLVs, and the end.
fn announced(optional: &[Vec<u8>]) -> Neighbour {
    read(&lldp(&[&mandatory(), optional, &[tlv(0, &[])]].concat())).unwrap()
}

fn cdp(tlvs: &[(u16, &[u8])]) -> Vec<u8> {
    let mut payload = vec![0xaa, 0xaa, 0x03, 0x00, 0x00, 0x0c, 0x20, 0x00, 2, 180, 0x12, 0x34];
    for (kind, value) in tlvs {
        payload.extend(kind.to_be_bytes());
        payload.extend(u16::try_from(value.len() + 4).unwrap().to_be_bytes());
        payload.extend(*value);
    }
    let length = u16::try_from(payload.len()).unwrap();
    [&CDP_GROUP[..], &SWITCH, &length.to_be_bytes(), &payload].concat()
}

#[test]
fn reads_all_that_a_switch_announces_by_lldp() {
    let found = announced(&[
        tlv(4, b"to rack 3, unit 12"),
        tlv(5, b"leaf-1.example.com"),
        tlv(6, b"Arista Networks EOS\r\nversion 4.30"),
        tlv(7, &[0, 0b0001_0100, 0, 0b0001_0100]),
        tlv(8, &[5, 1, 10, 0, 0, 1, 2, 0, 0, 0, 7, 0]),
        tlv(
            8,
            &[
                &[17, 2][..],
                &[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                &[2, 0, 0, 0, 7, 0],
            ]
            .concat(),
        ),
        sub(127, &[0x00, 0x80, 0xc2, 1], &[0, 7]),
        sub(127, &[0x00, 0x80, 0xc2, 3], &[&[0, 7, 6][..], b"office"].concat()),
        sub(127, &[0x00, 0x80, 0xc2, 3], &[&[0, 8, 3][..], b"lab"].concat()),
        sub(127, &[0x00, 0x80, 0xc2, 7], &[3, 0, 0, 0, 12]),
        sub(127, &[0x00, 0x12, 0x0f, 4], &9216_u16.to_be_bytes()),
    ]);
    assert_eq!((found.protocol, found.ttl_seconds), (Protocol::Lldp, 120));
    assert_eq!((&*found.chassis_id, &*found.port_id), ("00:1c:73:0a:0b:0c", "Ethernet1/7"));
    assert_eq!(found.port_description.as_deref(), Some("to rack 3, unit 12"));
    assert_eq!(found.system_name.as_deref(), Some("leaf-1.example.com"));
    assert_eq!(found.system_description.as_deref(), Some("Arista Networks EOS version 4.30"));
    assert_eq!(Vec::from_iter(found.capabilities), ["bridge", "router"]);
    assert_eq!(Vec::from_iter(found.addresses.iter().map(ToString::to_string)), ["10.0.0.1", "2001:db8::1"]);
    assert_eq!(found.native_vlan, Some(7));
    assert_eq!(Vec::from_iter(found.vlans), [(7, "office".to_owned()), (8, "lab".to_owned())]);
    assert_eq!((found.aggregate, found.max_frame), (Some(12), Some(9216)));
}

#[test]
fn identifiers_are_written_by_their_subtypes() {
    let ids = |chassis: &[u8], port: &[u8]| {
        let found = read(&lldp(&[tlv(1, chassis), tlv(2, port), tlv(3, &[0, 120])])).unwrap();
        (found.chassis_id, found.port_id)
    };
    let both = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    // Table 8-2 and Table 8-3: MAC addresses, network addresses, names, and octets of the vendor's choice.
    let mac = [&[4][..], &SWITCH].concat();
    let port_mac = [&[3][..], &SWITCH].concat();
    assert_eq!(ids(&mac, &port_mac), both("00:1c:73:0a:0b:0c", "00:1c:73:0a:0b:0c"));
    assert_eq!(ids(&[5, 1, 10, 0, 0, 1], &[4, 1, 10, 0, 0, 2]), both("10.0.0.1", "10.0.0.2"));
    assert_eq!(ids(&[5, 2, 10, 0, 0, 1], b"\x01ge-0/0/1\0"), both("02:0a:00:00:01", "ge-0/0/1"));
    assert_eq!(ids(b"\x07leaf-1", &[7, 0, 0, 2, 0x51]), both("leaf-1", "00:00:02:51"));
}

#[test]
fn what_is_not_enabled_or_none_is_left_out() {
    let found = announced(&[
        tlv(7, &[0, 0b0001_0100, 0, 0b0000_0100]),
        tlv(8, &[5, 1, 0, 0, 0, 0, 2, 0, 0, 0, 7, 0]),
        sub(127, &[0x00, 0x80, 0xc2, 1], &[0, 0]),
        sub(127, &[0x00, 0x12, 0x0f, 3], &[1, 0, 0, 0, 12]),
        tlv(5, b" "),
    ]);
    assert_eq!(Vec::from_iter(found.capabilities), ["bridge"]);
    assert!(found.addresses.is_empty());
    assert_eq!((found.native_vlan, found.aggregate, found.system_name), (None, None, None));
}

#[test]
fn an_optional_part_that_breaks_a_rule_costs_no_other() {
    let found = announced(&[
        tlv(7, &[0]),
        tlv(8, &[200, 1, 10]),
        sub(127, &[0x00], &[]),
        sub(127, &[0x00, 0x80, 0xc2, 3], &[0, 7, 60, b'x']),
        tlv(99, b"of another time"),
        tlv(5, b"leaf-1"),
        tlv(5, b"leaf-2"),
    ]);
    assert_eq!(found.system_name.as_deref(), Some("leaf-1"));
}

#[test]
fn the_first_three_parts_are_there_once_and_in_order() {
    let parts = mandatory();
    let refused = |tlvs: &[Vec<u8>]| read(&lldp(tlvs)).unwrap_err();
    assert_eq!(
        refused(&[parts[1].clone(), parts[0].clone(), parts[2].clone()]),
        Refused::Missing("chassis id")
    );
    assert_eq!(refused(&[parts[0].clone(), parts[2].clone()]), Refused::Missing("port id"));
    assert_eq!(refused(&[&parts[..], &parts[1..2]].concat()), Refused::Missing("port id"));
    assert_eq!(refused(&[tlv(1, &[4]), parts[1].clone(), parts[2].clone()]), Refused::Missing("chassis id"));
    assert_eq!(refused(&[&parts[..2], &[tlv(3, &[1])]].concat()), Refused::Missing("time to live"));
    assert_eq!(refused(&parts[..2]), Refused::Truncated("the header of a TLV"));
}

#[test]
fn a_neighbour_that_leaves_has_no_time_to_live() {
    let parts = mandatory();
    let leaving = read(&lldp(&[parts[0].clone(), parts[1].clone(), tlv(3, &[0, 0])])).unwrap();
    assert_eq!(leaving.ttl_seconds, 0);
}

#[test]
fn the_tag_of_vlan_0_is_passed_over() {
    let frame = lldp(&mandatory());
    let tagged = [&frame[..12], &[0x81, 0x00, 0xe0, 0x00], &frame[12..]].concat();
    assert_eq!(read(&tagged), read(&frame));
}

#[test]
fn reads_all_that_a_switch_announces_by_cdp() {
    let addresses: &[u8] = &[
        0, 0, 0, 2, 1, 1, 0xcc, 0, 4, 10, 0, 0, 1, 2, 8, 0xaa, 0xaa, 3, 0, 0, 0, 0x86, 0xdd, 0, 16, 0x20, 1,
        0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
    ];
    let found = read(&cdp(&[
        (0x01, b"leaf-1.example.com"),
        (0x02, addresses),
        (0x03, b"GigabitEthernet1/0/7"),
        (0x04, &[0, 0, 0, 0x29]),
        (0x05, b"Cisco IOS Software\nVersion 15.2"),
        (0x06, b"cisco WS-C3750X-48P"),
        (0x0a, &[0, 7]),
    ]))
    .unwrap();
    assert_eq!((found.protocol, found.ttl_seconds), (Protocol::Cdp, 180));
    assert_eq!((&*found.chassis_id, &*found.port_id), ("leaf-1.example.com", "GigabitEthernet1/0/7"));
    assert_eq!(found.system_name.as_deref(), Some("leaf-1.example.com"));
    assert_eq!(found.platform.as_deref(), Some("cisco WS-C3750X-48P"));
    assert_eq!(found.system_description.as_deref(), Some("Cisco IOS Software Version 15.2"));
    assert_eq!(Vec::from_iter(found.capabilities), ["bridge", "router"]);
    assert_eq!(Vec::from_iter(found.addresses.iter().map(ToString::to_string)), ["10.0.0.1", "2001:db8::1"]);
    assert_eq!(found.native_vlan, Some(7));
    // Nexus: the id has the serial number, and the name is apart.
    let nexus = read(&cdp(&[(0x01, b"n9k(FDO2134)"), (0x03, b"Ethernet1/7"), (0x14, b"n9k")])).unwrap();
    assert_eq!((&*nexus.chassis_id, nexus.system_name.as_deref()), ("n9k(FDO2134)", Some("n9k")));
}

#[test]
fn other_frames_are_refused() {
    let spanning_tree = [&LLDP_GROUPS[2][..], &SWITCH, &[0, 3, 0x42, 0x42, 3]].concat();
    let mut vtp = cdp(&[(0x01, b"leaf-1")]);
    vtp[21] = 3;
    let mut unicast = lldp(&mandatory());
    unicast[..6].copy_from_slice(&SWITCH);
    for frame in [&spanning_tree, &vtp, &unicast] {
        assert_eq!(read(frame), Err(Refused::OtherProtocol));
    }
    assert_eq!(read(&cdp(&[(0x01, b"leaf-1")])), Err(Refused::Missing("port id")));
    let mut third = cdp(&[]);
    third[22] = 3;
    assert_eq!(read(&third), Err(Refused::Version(3)));
    assert_eq!(read(&cdp(&[])[..20]), Err(Refused::Truncated("the payload")));
}

#[test]
fn a_long_announcement_is_bounded() {
    let vlan = |id: u16| sub(127, &[0x00, 0x80, 0xc2, 3], &[&id.to_be_bytes()[..], &[1, b'v']].concat());
    let address = |last: u8| tlv(8, &[5, 1, 10, 0, 0, last, 2, 0, 0, 0, 7, 0]);
    let mut optional: Vec<_> = (1..=200).map(vlan).collect();
    optional.extend((1..=200).map(address));
    optional.push(tlv(6, &[b'x'; 500]));
    let found = announced(&optional);
    let lengths = (found.vlans.len(), found.addresses.len(), found.system_description.unwrap().len());
    assert_eq!(lengths, (MAX_VLANS, MAX_ADDRESSES, MAX_TEXT));
}

proptest! {
    #[test]
    fn any_optional_parts_leave_texts_that_can_be_shown(
        tlvs in prop::collection::vec((4_u8..=127, prop::collection::vec(any::<u8>(), 0..40)), 0..20)
    ) {
        let optional: Vec<_> = tlvs.iter().map(|(kind, value)| tlv(*kind, value)).collect();
        let found = announced(&optional);
        let texts = [found.port_description, found.system_name, found.system_description];
        for text in texts.into_iter().flatten().chain(found.vlans.into_values()) {
            prop_assert!(!text.is_empty() && !text.chars().any(char::is_control), "{text:?}");
        }
        prop_assert!(found.capabilities.iter().all(|word| CAPABILITIES.contains(word)));
    }

    #[test]
    fn any_octets_are_a_neighbour_or_refused(cut in 0_usize..200, octets in prop::collection::vec(any::<u8>(), 0..64)) {
        let whole = [lldp(&mandatory()), octets].concat();
        let _ = read(&whole[..cut.min(whole.len())]);
    }
}
