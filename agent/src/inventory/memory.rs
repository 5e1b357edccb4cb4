//! The installed memory modules (SMBIOS 3.7, §7.18 type 17).

use std::collections::BTreeSet;

use basalt_api::agent::MemoryModule;

use crate::root::Root;
use crate::smbios::{self, Structure, structures};

/// The modules with their sockets. Empty sockets and modules of unknown size are skipped.
pub(super) fn modules(root: &Root) -> Vec<MemoryModule> {
    fitted(&smbios::table(root))
}

/// The sum over all modules.
pub(super) fn bytes(modules: &[MemoryModule]) -> Option<u64> {
    let total = modules.iter().fold(0_u64, |sum, module| sum.saturating_add(module.size_bytes));
    (total > 0).then_some(total)
}

const MEMORY_DEVICE: u8 = 17;
/// Most modules that are listed. Machines have fewer sockets.
const MAX_MODULES: usize = 256;

/// Numbers of memory technologies (§7.18.2). Unknown ones are omitted.
const TECHNOLOGIES: [(u8, &str); 13] = [
    (0x07, "RAM"),
    (0x12, "DDR"),
    (0x13, "DDR2"),
    (0x18, "DDR3"),
    (0x1a, "DDR4"),
    (0x1b, "LPDDR"),
    (0x1d, "LPDDR3"),
    (0x1e, "LPDDR4"),
    (0x20, "HBM"),
    (0x21, "HBM2"),
    (0x22, "DDR5"),
    (0x23, "LPDDR5"),
    (0x24, "HBM3"),
];

/// The modules in a table. A truncated table is read as far as it goes.
fn fitted(table: &[u8]) -> Vec<MemoryModule> {
    let mut slots = BTreeSet::new();
    let devices = structures(table).filter(|structure| structure.kind == MEMORY_DEVICE);
    devices.filter_map(|device| module(&device, &mut slots)).take(MAX_MODULES).collect()
}

/// A module. The bank and a number make the name of its slot unique: some boards give one name to sockets of several banks.
fn module(of: &Structure<'_>, slots: &mut BTreeSet<String>) -> Option<MemoryModule> {
    let structure = of.bytes;
    let text = |at: usize| of.string(of.octet(at).unwrap_or(0));
    let size_bytes = device_bytes(structure)?;
    let (locator, bank) = (text(0x10), text(0x11));
    let numbered = (1..=MAX_MODULES).map(|number| format!("{bank} {locator} {number}").trim().to_owned());
    let mut names =
        [locator.clone(), format!("{bank} {locator}").trim().to_owned()].into_iter().chain(numbered);
    let slot = names.find(|name| !name.is_empty() && !slots.contains(name))?;
    slots.insert(slot.clone());
    let technology =
        structure.get(0x12).and_then(|kind| TECHNOLOGIES.iter().find(|(number, _)| number == kind));
    Some(MemoryModule {
        slot,
        size_bytes,
        technology: technology.map(|(_, name)| (*name).to_owned()).unwrap_or_default(),
        speed_mts: speed(structure),
        manufacturer: text(0x17),
        serial: text(0x18),
        part_number: text(0x1a),
    })
}

/// Size of one device. `None` for an empty socket or an unknown size.
fn device_bytes(structure: &[u8]) -> Option<u64> {
    let size = word(structure, 0x0c)?;
    match size {
        0 | 0xffff => None,
        0x7fff => Some(u64::from(double_word(structure, 0x1c)? & 0x7fff_ffff) << 20),
        _ if size & 0x8000 != 0 => Some(u64::from(size & 0x7fff) << 10),
        _ => Some(u64::from(size) << 20),
    }
}

/// Speeds above 65,534 have a field of their own.
fn speed(structure: &[u8]) -> Option<u32> {
    match word(structure, 0x15)? {
        0 => None,
        0xffff => double_word(structure, 0x54).filter(|speed| *speed > 0),
        speed => Some(speed.into()),
    }
}

fn word(structure: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(structure.get(at..at + 2)?.try_into().ok()?))
}

fn double_word(structure: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(structure.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn structure(kind: u8, size: u16, extended: u32) -> Vec<u8> {
        let mut bytes = vec![0; 0x28];
        bytes[0] = kind;
        bytes[1] = 0x28;
        bytes[0x0c..0x0e].copy_from_slice(&size.to_le_bytes());
        bytes[0x10] = 1;
        bytes[0x11] = 2;
        bytes[0x12] = 0x22;
        bytes[0x15..0x17].copy_from_slice(&4800_u16.to_le_bytes());
        bytes[0x17..0x1b].copy_from_slice(&[3, 4, 0, 5]);
        bytes[0x1c..0x20].copy_from_slice(&extended.to_le_bytes());
        bytes.extend(b"DIMM 0\0BANK 0\0Samsung\0S1\0M321R8GA0BB0 \0\0");
        bytes
    }

    #[test]
    fn adds_up_the_sockets() {
        let mut table = structure(0, 9, 9);
        table.extend(structure(17, 16 * 1024, 0));
        table.extend(structure(17, 0, 0)); // empty
        table.extend(structure(17, 0xffff, 0)); // unknown
        table.extend(structure(17, 0x7fff, 64 * 1024)); // too large for 16 bits
        table.extend(structure(17, 0x8000 | 512, 0)); // in KiB
        table.extend(structure(127, 0, 0));
        table.extend(structure(17, 1, 0)); // behind the end
        assert_eq!(bytes(&fitted(&table)), Some((80 << 30) + (512 << 10)));
        assert_eq!(bytes(&fitted(&structure(17, 0, 0))), None);
    }

    #[test]
    fn a_module_has_its_words_and_a_socket_of_its_own() {
        let table = structure(17, 16 * 1024, 0).repeat(3);
        let found = fitted(&table);
        let expected = MemoryModule {
            slot: "DIMM 0".to_owned(),
            size_bytes: 16 << 30,
            technology: "DDR5".to_owned(),
            speed_mts: Some(4800),
            manufacturer: "Samsung".to_owned(),
            part_number: "M321R8GA0BB0".to_owned(),
            serial: "S1".to_owned(),
        };
        assert_eq!(found[0], expected);
        let slots: Vec<_> = found.iter().map(|module| module.slot.as_str()).collect();
        assert_eq!(slots, ["DIMM 0", "BANK 0 DIMM 0", "BANK 0 DIMM 0 1"]);
    }

    proptest! {
        #[test]
        fn never_fails_on_any_table(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
            fitted(&octets);
        }
    }
}
