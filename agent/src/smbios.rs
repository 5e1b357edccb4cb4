//! Parser for the structures of the firmware's table (SMBIOS 3.7 §6), in the form of the kernel's file.

use crate::root::Root;

/// The whole table. The kernel provides it without a module.
const TABLE: &str = "sys/firmware/dmi/tables/DMI";
const END_OF_TABLE: u8 = 127;
/// The header of a structure: type, length, handle (§6.1.2).
const HEADER: usize = 4;
/// Most structures that are read. Large servers have some 1,000.
const MAX_STRUCTURES: usize = 8192;

/// A structure of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structure<'a> {
    /// The structure's type number.
    pub kind: u8,
    /// The formatted area with the header. Offsets count from its start, as in the specification.
    pub bytes: &'a [u8],
    strings: &'a [u8],
}

impl Structure<'_> {
    /// The octet at an offset.
    #[must_use]
    pub fn octet(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// A string by its number, counted from 1 (§6.1.3). Empty if there is no such string.
    #[must_use]
    pub fn string(&self, number: u8) -> String {
        let at = usize::from(number).checked_sub(1);
        let found = at.and_then(|at| self.strings.split(|octet| *octet == 0).nth(at)).unwrap_or_default();
        String::from_utf8_lossy(found).trim().to_owned()
    }
}

/// The table. Empty if the machine has none.
#[must_use]
pub fn table(root: &Root) -> Vec<u8> {
    root.bytes(TABLE).unwrap_or_default()
}

/// The structures of a table, at most 8,192. A truncated table is read as far as it goes.
pub fn structures(mut table: &[u8]) -> impl Iterator<Item = Structure<'_>> {
    std::iter::from_fn(move || {
        let [kind, length, ..] = *table else { return None };
        let (bytes, rest) = table.split_at_checked(length.into())?;
        if kind == END_OF_TABLE || bytes.len() < HEADER {
            return None;
        }
        // Strings follow. Two NULs end them.
        let end = rest.windows(2).position(|pair| pair == [0, 0])?;
        let strings = rest.get(..end).unwrap_or_default();
        table = rest.get(end + 2..).unwrap_or_default();
        Some(Structure { kind, bytes, strings })
    })
    .take(MAX_STRUCTURES)
}
