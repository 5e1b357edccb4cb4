//! A zip archive of one program, stored without compression (APPNOTE.TXT 4.3.7 to 4.3.16). The same program makes the same bytes.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::num::TryFromIntError;
use std::path::Path;

/// 1980-01-01, the first day of the format's dates.
const DATE: u16 = 0x21;
/// Version 2.0, made on Unix: only then is the mode used.
const NEEDED: u16 = 20;
const MADE_BY: u16 = (3 << 8) | NEEDED;
/// A regular file that every account may run.
const MODE: u32 = 0o100_755 << 16;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const LOCAL_BYTES: u16 = 30;

/// Writes an archive with `program`, called `name`, to `to`.
///
/// # Errors
/// Fails if a file cannot be read or written, or if the program is too large for the format (4 GiB).
pub(crate) fn write(program: &Path, name: &str, to: &Path) -> io::Result<()> {
    let too_large =
        |_: TryFromIntError| io::Error::new(io::ErrorKind::FileTooLarge, "a zip archive has no room for it");
    let (sum, size) = checksum(File::open(program)?)?;
    let size = u32::try_from(size).map_err(too_large)?;
    let length = u16::try_from(name.len()).map_err(too_large)?;
    // The fields that the local and the central header share.
    let mut shared = Vec::new();
    for number in [NEEDED, 0, 0, 0, DATE] {
        shared.extend(number.to_le_bytes());
    }
    for number in [sum, size, size] {
        shared.extend(number.to_le_bytes());
    }
    shared.extend(length.to_le_bytes());
    shared.extend([0; 2]);

    let mut archive = BufWriter::new(File::create(to)?);
    archive.write_all(&LOCAL.to_le_bytes())?;
    archive.write_all(&shared)?;
    archive.write_all(name.as_bytes())?;
    let copied = io::copy(&mut File::open(program)?, &mut archive)?;
    if copied != u64::from(size) {
        return Err(io::Error::other("the program changes while it is read"));
    }

    let mut central = CENTRAL.to_le_bytes().to_vec();
    central.extend(MADE_BY.to_le_bytes());
    central.extend(&shared);
    // Length of the comment, disk, internal attributes.
    central.extend([0; 6]);
    central.extend(MODE.to_le_bytes());
    central.extend(0_u32.to_le_bytes());
    central.extend(name.as_bytes());
    archive.write_all(&central)?;

    let start = u64::from(LOCAL_BYTES) + u64::from(length) + u64::from(size);
    archive.write_all(&END.to_le_bytes())?;
    archive.write_all(&[0, 0, 0, 0, 1, 0, 1, 0])?;
    archive.write_all(&u32::try_from(central.len()).map_err(too_large)?.to_le_bytes())?;
    archive.write_all(&u32::try_from(start).map_err(too_large)?.to_le_bytes())?;
    archive.write_all(&[0, 0])?;
    archive.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// CRC-32 (4.4.7) and length.
fn checksum(mut file: impl Read) -> io::Result<(u32, u64)> {
    let table: Vec<u32> = (0..=u32::from(u8::MAX)).map(remainder).collect();
    let (mut sum, mut size) = (u32::MAX, 0_u64);
    let mut piece = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut piece)?;
        let Some(piece) = piece.get(..read).filter(|piece| !piece.is_empty()) else { break };
        for byte in piece {
            let place = (sum ^ u32::from(*byte)) & 0xff;
            sum = (sum >> 8) ^ table.get(place as usize).copied().unwrap_or(0);
        }
        size = size.saturating_add(piece.len() as u64);
    }
    Ok((!sum, size))
}

/// The entry of the CRC table for a byte: its remainder by the polynomial.
const fn remainder(byte: u32) -> u32 {
    let (mut rest, mut bit) = (byte, 0);
    while bit < 8 {
        rest = (rest >> 1) ^ (0xedb8_8320 * (rest & 1));
        bit += 1;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_that_everybody_computes() {
        assert_eq!(checksum(&b"123456789"[..]).unwrap(), (0xcbf4_3926, 9));
        assert_eq!(checksum(&b""[..]).unwrap(), (0, 0));
    }
}
