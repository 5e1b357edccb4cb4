//! UEFI variables in OVMF's flash: the entry of the next boot.
//!
//! Real BMCs order UEFI firmware to "boot from the network once" on a private channel. OVMF has no such channel, so the
//! BMC program writes `BootNext` and its entry into the machine's variable store while the machine is off.
//!
//! Layout (UEFI PI 1.7 vol. 3 §3.2; EDK2 `VariableFormat.h`): a firmware volume header, a store header of 28 octets, then
//! the variables, each aligned to 4 octets. A deleted variable keeps its place; a bit of its state is cleared.

use std::path::Path;

use crate::error::LabError;
use crate::machine::Mac;

/// `EFI_GLOBAL_VARIABLE`.
const GLOBAL: [u8; 16] =
    [0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0x00, 0xe0, 0x98, 0x03, 0x2b, 0x8c];
/// `gEfiAuthenticatedVariableGuid`.
const AUTHENTICATED_STORE: [u8; 16] =
    [0x78, 0x2c, 0xf3, 0xaa, 0x7b, 0x94, 0x9a, 0x43, 0xa1, 0x80, 0x2e, 0x14, 0x4e, 0xc3, 0x77, 0x92];
const STORE_HEADER: usize = 28;
const VARIABLE_HEADER: usize = 60;
const START: [u8; 2] = [0xaa, 0x55];
const ADDED: u8 = 0x3f;
const IN_DELETION: u8 = 0x3e;
const DELETED: u8 = 0xfd;
/// Non-volatile, boot service and runtime access.
const ATTRIBUTES: u32 = 7;

/// The PCI slots of every machine's NIC and of its disk, which are part of their device paths.
pub(crate) const NIC_SLOT: u8 = 0x10;
pub(crate) const DISK_SLOT: u8 = 0x11;

/// The entry that `BootNext` names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// PXE over IPv4 on the NIC of that address.
    Network(Mac),
    /// `\EFI\BOOT\BOOTX64.EFI` on the disk.
    Disk,
}

/// Makes the firmware boot `next` once.
pub(crate) fn set_boot_next(path: &Path, next: Next) -> Result<(), LabError> {
    let bytes = std::fs::read(path).map_err(LabError::file(path))?;
    let bad = |problem| LabError::BadVariables { path: path.to_owned(), problem };
    let mut store = Store::parse(bytes).map_err(bad)?;
    let (number, entry) = match next {
        Next::Network(mac) => (0x00f0u16, load_option("Network, once", &network_path(mac))),
        Next::Disk => (0x00f1, load_option("Disk, once", &disk_path())),
    };
    store.set(&format!("Boot{number:04X}"), &entry).map_err(bad)?;
    store.set("BootNext", &number.to_le_bytes()).map_err(bad)?;
    let new = path.with_extension("new");
    std::fs::write(&new, &store.bytes).map_err(LabError::file(&new))?;
    std::fs::rename(&new, path).map_err(LabError::file(path))
}

struct Store {
    bytes: Vec<u8>,
    first: usize,
    end: usize,
}

struct Variable {
    at: usize,
    live: bool,
    name: Vec<u8>,
    data: Vec<u8>,
    global: bool,
    next: usize,
}

impl Store {
    fn parse(bytes: Vec<u8>) -> Result<Self, &'static str> {
        if bytes.get(40..44) != Some(b"_FVH") {
            return Err("no firmware volume");
        }
        let store = usize::from(u16_at(&bytes, 48).ok_or("too short")?);
        if bytes.get(store..store + 16) != Some(&AUTHENTICATED_STORE) {
            return Err("no authenticated variable store");
        }
        let size = u32_at(&bytes, store + 16).ok_or("too short")? as usize;
        let end =
            store.checked_add(size).filter(|end| *end <= bytes.len()).ok_or("it ends beyond its file")?;
        Ok(Self { first: align(store + STORE_HEADER), end, bytes })
    }

    /// The variable at offset `at`, or `None` at the start of free space.
    fn at(&self, at: usize) -> Option<Variable> {
        let header = self.bytes.get(at..at + VARIABLE_HEADER)?;
        if header.get(..2)? != START {
            return None;
        }
        let name_len = u32_at(header, 36)? as usize;
        let data_len = u32_at(header, 40)? as usize;
        let name_at = at + VARIABLE_HEADER;
        let data_at = name_at.checked_add(name_len)?;
        let next = data_at.checked_add(data_len)?;
        if next > self.end {
            return None;
        }
        Some(Variable {
            at,
            live: matches!(*header.get(2)?, ADDED | IN_DELETION),
            name: self.bytes.get(name_at..data_at)?.to_vec(),
            data: self.bytes.get(data_at..next)?.to_vec(),
            global: header.get(44..60)? == GLOBAL,
            next: align(next),
        })
    }

    fn variables(&self) -> impl Iterator<Item = Variable> {
        std::iter::successors(self.at(self.first), |variable| self.at(variable.next))
    }

    fn find(&self, name: &str) -> Option<Variable> {
        let name = utf16(name);
        self.variables().find(|variable| variable.live && variable.global && variable.name == name)
    }

    fn set(&mut self, name: &str, data: &[u8]) -> Result<(), &'static str> {
        let old = self.find(name);
        if old.as_ref().is_some_and(|old| old.data == data) {
            return Ok(());
        }
        let free = self.variables().last().map_or(self.first, |last| last.next);
        let name = utf16(name);
        let mut variable = START.to_vec();
        variable.extend_from_slice(&[ADDED, 0]);
        variable.extend_from_slice(&ATTRIBUTES.to_le_bytes());
        // Monotonic count, time stamp and key index: only authenticated variables use them.
        variable.extend_from_slice(&[0; 8 + 16 + 4]);
        for part in [&name[..], data] {
            variable.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
        }
        variable.extend_from_slice(&GLOBAL);
        variable.extend_from_slice(&name);
        variable.extend_from_slice(data);
        let end = free + variable.len();
        if end > self.end {
            return Err("it is full; the firmware compacts it at its next boot");
        }
        let space = self.bytes.get_mut(free..end).ok_or("it ends beyond its file")?;
        if space.iter().any(|byte| *byte != 0xff) {
            return Err("what follows the last variable is not free");
        }
        space.copy_from_slice(&variable);
        if let Some(state) = old.and_then(|old| self.bytes.get_mut(old.at + 2)) {
            *state &= DELETED;
        }
        Ok(())
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|chunk| u16::from_le_bytes(*chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

fn align(at: usize) -> usize {
    at.next_multiple_of(4)
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// `EFI_LOAD_OPTION` (UEFI §3.1.3), active.
fn load_option(description: &str, path: &[u8]) -> Vec<u8> {
    let mut option = 1u32.to_le_bytes().to_vec();
    option.extend_from_slice(&u16::try_from(path.len()).unwrap_or(0).to_le_bytes());
    option.extend_from_slice(&utf16(description));
    option.extend_from_slice(path);
    option
}

/// One node of a device path (UEFI §10.3).
fn node(kind: u8, subkind: u8, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len() + 4).unwrap_or(4).to_le_bytes();
    [&[kind, subkind][..], &length, data].concat()
}

/// `PciRoot(0x0)/Pci(SLOT,0x0)`.
fn pci_path(slot: u8) -> Vec<u8> {
    let root = node(2, 1, &[0xd0, 0x41, 0x03, 0x0a, 0, 0, 0, 0]);
    [root, node(1, 1, &[0, slot])].concat()
}

/// `PciRoot(0x0)/Pci(0x10,0x0)/MAC(…,0x1)/IPv4(0.0.0.0)`.
fn network_path(mac: Mac) -> Vec<u8> {
    let mut address = [0; 33];
    for (to, from) in address.iter_mut().zip(mac.0) {
        *to = from;
    }
    let [.., interface_type] = &mut address;
    *interface_type = 1;
    [pci_path(NIC_SLOT), node(3, 11, &address), node(3, 12, &[0; 23]), end()].concat()
}

fn disk_path() -> Vec<u8> {
    [pci_path(DISK_SLOT), end()].concat()
}

fn end() -> Vec<u8> {
    node(0x7f, 0xff, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vars.fd");
        std::fs::copy(crate::qemu::OVMF_VARS, &path).expect("the package ovmf");
        (directory, path)
    }

    fn store(path: &Path) -> Store {
        Store::parse(std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn boot_next_names_its_entry_and_keeps_the_file_size() {
        let (_directory, path) = fresh();
        let before = std::fs::metadata(&path).unwrap().len();
        set_boot_next(&path, Next::Network(Mac([0x52, 0x54, 0, 0x77, 0, 1]))).unwrap();
        assert_eq!(store(&path).find("BootNext").unwrap().data, [0xf0, 0]);
        assert!(store(&path).find("Boot00F0").is_some());
        set_boot_next(&path, Next::Disk).unwrap();
        assert_eq!(store(&path).find("BootNext").unwrap().data, [0xf1, 0]);
        let live =
            store(&path).variables().filter(|each| each.live && each.name == utf16("BootNext")).count();
        assert_eq!(live, 1);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
    }

    #[test]
    fn the_same_again_takes_no_more_room() {
        let (_directory, path) = fresh();
        let count = |path: &Path| store(path).variables().count();
        set_boot_next(&path, Next::Disk).unwrap();
        let once = count(&path);
        set_boot_next(&path, Next::Disk).unwrap();
        assert_eq!(count(&path), once);
    }

    #[test]
    fn another_file_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vars.fd");
        std::fs::write(&path, [0; 4096]).unwrap();
        let error = set_boot_next(&path, Next::Disk).unwrap_err().to_string();
        assert!(error.contains("no firmware volume"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), [0; 4096]);
    }
}
