//! Announcements of neighbours: LLDP and CDP.

use basalt_lldp::{CDP_GROUP, LLDP_ETHERTYPE, LLDP_GROUPS, MAX_ADDRESSES, MAX_TEXT, MAX_VLANS, read};

/// Any frame is refused, or becomes a neighbour within the size limits.
pub fn lldp(data: &[u8]) {
    let Ok(found) = read(data) else { return };
    assert!(!found.chassis_id.is_empty() && !found.port_id.is_empty());
    assert!(found.vlans.len() <= MAX_VLANS && found.addresses.len() <= MAX_ADDRESSES);
    let described = [found.port_description, found.system_name, found.system_description, found.platform];
    let texts = described.into_iter().flatten().chain([found.chassis_id, found.port_id]);
    for text in texts.chain(found.vlans.into_values()) {
        assert!(text.len() <= MAX_TEXT && !text.chars().any(char::is_control), "{text:?}");
    }
}

pub(crate) fn seeds_lldp() -> Vec<Vec<u8>> {
    let from = [0x00, 0x1c, 0x73, 0x0a, 0x0b, 0x0c];
    let by_lldp: &[&[u8]] = &[
        &LLDP_GROUPS[0],
        &from,
        &LLDP_ETHERTYPE.to_be_bytes(),
        &[0x02, 7, 4],
        &from,
        b"\x04\x05\x05eth1",
        &[0x06, 2, 0, 120],
        b"\x08\x04to 7\x0a\x06leaf-1\x0c\x05EOS 4",
        &[0x0e, 4, 0, 0x14, 0, 0x14],
        &[0x10, 12, 5, 1, 10, 0, 0, 1, 2, 0, 0, 0, 7, 0],
        &[0xfe, 6, 0x00, 0x80, 0xc2, 1, 0, 7],
        b"\xfe\x0d\x00\x80\xc2\x03\x00\x07\x06office",
        &[0xfe, 9, 0x00, 0x80, 0xc2, 7, 3, 0, 0, 0, 12],
        &[0xfe, 6, 0x00, 0x12, 0x0f, 4, 0x24, 0x00],
        &[0, 0],
    ];
    let payload: &[&[u8]] = &[
        &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0x00, 2, 180, 0, 0],
        b"\x00\x01\x00\x0aleaf-1\x00\x03\x00\x08eth1\x00\x06\x00\x09cisco",
        &[0, 2, 0, 17, 0, 0, 0, 1, 1, 1, 0xcc, 0, 4, 10, 0, 0, 1],
        &[0, 4, 0, 8, 0, 0, 0, 0x29, 0, 0x0a, 0, 6, 0, 7],
    ];
    let payload = payload.concat();
    let length = u16::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    vec![by_lldp.concat(), [&CDP_GROUP[..], &from, &length, &payload].concat()]
}
