//! What the firmware says of itself: identification, and memory as it is fitted (SMBIOS 3.7, §7.18 type 17).

use basalt_api::agent::Dmi;

use crate::root::Root;

pub(super) fn identification(root: &Root) -> Dmi {
    let id = |name: &str| root.text(format!("sys/class/dmi/id/{name}")).unwrap_or_default();
    Dmi {
        manufacturer: id("sys_vendor"),
        product: id("product_name"),
        serial: id("product_serial"),
        uuid: id("product_uuid"),
        bios_version: id("bios_version"),
    }
}

pub(super) fn memory_bytes(root: &Root) -> Option<u64> {
    let total = fitted(&root.bytes("sys/firmware/dmi/tables/DMI")?);
    (total > 0).then_some(total)
}

const MEMORY_DEVICE: u8 = 17;
const END_OF_TABLE: u8 = 127;

/// The sum over all memory devices. A table that is cut off counts as far as it goes.
fn fitted(mut table: &[u8]) -> u64 {
    let mut total = 0u64;
    while let [kind, length, ..] = *table {
        let Some((structure, rest)) = table.split_at_checked(length.into()) else { break };
        if kind == END_OF_TABLE || length < 4 {
            break;
        }
        if kind == MEMORY_DEVICE {
            total = total.saturating_add(device_bytes(structure).unwrap_or(0));
        }
        // Strings follow, up to two NULs.
        let Some(end) = rest.windows(2).position(|pair| pair == [0, 0]) else { break };
        table = rest.get(end + 2..).unwrap_or_default();
    }
    total
}

/// Size of one device; nothing for an empty socket or an unknown size.
fn device_bytes(structure: &[u8]) -> Option<u64> {
    let size = u16::from_le_bytes(structure.get(0x0c..0x0e)?.try_into().ok()?);
    match size {
        0 | 0xffff => None,
        0x7fff => {
            let mebibytes = u32::from_le_bytes(structure.get(0x1c..0x20)?.try_into().ok()?);
            Some(u64::from(mebibytes & 0x7fff_ffff) << 20)
        }
        _ if size & 0x8000 != 0 => Some(u64::from(size & 0x7fff) << 10),
        _ => Some(u64::from(size) << 20),
    }
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
        bytes[0x1c..0x20].copy_from_slice(&extended.to_le_bytes());
        bytes.extend(b"DIMM 0\0\0");
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
        assert_eq!(fitted(&table), (80 << 30) + (512 << 10));
    }

    proptest! {
        #[test]
        fn never_fails_on_any_table(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            fitted(&bytes);
        }
    }
}
