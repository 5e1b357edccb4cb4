//! The identity of an undeclared machine from its agent's result: its MAC addresses and its board.

use std::net::IpAddr;

use basalt_api::agent::{Dmi, Nic, TO_THE_BMC, TaskResult};
use basalt_api::values::Mac;
use basalt_db::StrangerSeen;
use basalt_proto::rack_v1::AgentResult;

/// ARPHRD_ETHER of `linux/if_arp.h`.
const ETHERNET: u16 = 1;
/// UUIDs that the firmware of many boards has, in lower case.
const NO_UUID: [&str; 2] = ["03000200-0400-0500-0006-000700080009", "12345678-1234-5678-90ab-cddeefaabbcc"];
/// Placeholders for a missing serial number in firmware, in lower case.
const NO_SERIAL: [&str; 12] = [
    "0",
    "0123456789",
    "123456789",
    "1234567890",
    "default string",
    "n/a",
    "none",
    "not available",
    "not specified",
    "system serial number",
    "to be filled by o.e.m.",
    "unknown",
];

/// The greatest length of a serial number, in bytes.
const LONGEST_SERIAL: usize = 128;
/// The largest number of interfaces of one machine that are recorded.
const INTERFACES: usize = 64;

/// Reads the result of an undeclared machine. `None`: it cannot be read.
#[must_use]
pub fn seen(told: &AgentResult) -> Option<StrangerSeen> {
    let document = TaskResult::from_outside(&told.json).ok()?;
    let result: TaskResult = serde_json::from_value(document).ok()?;
    let inventory = result.inventory.as_ref();
    let own = inventory.iter().flat_map(|it| &it.nics).filter_map(own_mac).take(INTERFACES);
    let macs = own.map(|it| it.to_string()).collect();
    let board = inventory.and_then(|it| board(&it.dmi));
    let address = told.address.parse::<IpAddr>().ok();
    Some(StrangerSeen { result: serde_json::to_value(&result).ok()?, macs, board, address })
}

/// The MAC address of an interface, if it is unique to the machine.
#[must_use]
pub fn own_mac(nic: &Nic) -> Option<Mac> {
    let mac: Mac = nic.mac.parse().ok()?;
    let is_ethernet = nic.hardware.is_none_or(|it| it == ETHERNET);
    let is_own = !TO_THE_BMC.contains(&nic.driver.as_str()) && !mac.is_zero() && !mac.is_multicast();
    (is_ethernet && is_own).then_some(mac)
}

/// The serial number, if it is unique to the machine.
#[must_use]
pub fn serial(dmi: &Dmi) -> Option<&str> {
    let serial = dmi.serial.trim();
    let is_one = (1..=LONGEST_SERIAL).contains(&serial.len())
        && !NO_SERIAL.contains(&serial.to_lowercase().as_str())
        && is_varied(serial);
    is_one.then_some(serial)
}

/// UUID and serial number, if both identify the board. Vendors give one UUID to many boards, so the UUID alone is not enough.
fn board(dmi: &Dmi) -> Option<String> {
    let uuid = dmi.uuid.trim().to_lowercase();
    let is_one = uuid.len() == 36 && !NO_UUID.contains(&uuid.as_str()) && is_varied(&uuid.replace('-', ""));
    is_one.then(|| serial(dmi).map(|serial| format!("{uuid}/{serial}"))).flatten()
}

/// True if the text has at least two different characters.
fn is_varied(text: &str) -> bool {
    let mut characters = text.chars();
    let first = characters.next();
    characters.any(|it| Some(it) != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dmi(uuid: &str, serial: &str) -> Dmi {
        Dmi { uuid: uuid.into(), serial: serial.into(), ..Dmi::default() }
    }

    #[test]
    fn a_board_has_a_uuid_and_a_serial_number_of_its_own() {
        let good = "4C4C4544-0042-3510-8052-B4C04F4A3732";
        assert_eq!(board(&dmi(good, "5BR47J2")).unwrap(), format!("{}/5BR47J2", good.to_lowercase()));
        for (uuid, serial) in [
            (good, "To Be Filled By O.E.M."),
            (good, ""),
            (good, "00000000"),
            (good, &"5BR47J2".repeat(20)),
            ("03000200-0400-0500-0006-000700080009", "5BR47J2"),
            ("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "5BR47J2"),
            ("00000000-0000-0000-0000-000000000000", "5BR47J2"),
            ("", "5BR47J2"),
        ] {
            assert_eq!(board(&dmi(uuid, serial)), None, "{uuid} {serial}");
        }
    }

    #[test]
    fn interfaces_that_many_machines_have_tell_none_of_them() {
        let nic = |mac: &str, driver: &str, hardware| Nic {
            mac: mac.into(),
            driver: driver.into(),
            hardware,
            ..Nic::default()
        };
        let own = |nic: Nic| own_mac(&nic).map(|mac| mac.to_string());
        assert_eq!(own(nic("52:54:00:00:00:01", "e1000", Some(1))).as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!(own(nic("52:54:00:00:00:01", "cdc_ether", Some(1))), None);
        assert_eq!(own(nic("00:00:00:00:00:00", "e1000", Some(1))), None);
        assert_eq!(own(nic("52:54:00:00:00:01", "mlx5_core", Some(32))), None);
    }
}
