//! The Basalt marker: a record on the disk, outside every partition.
//!
//! 4096 bytes at byte 524288, between the partition table (which ends before byte 65536 on every block size) and the
//! first partition (at byte 1048576):
//!
//! | offset | bytes | content |
//! | --- | --- | --- |
//! | 0 | 8 | `BASALTMK` |
//! | 8 | 4 | version, little endian: 1 |
//! | 12 | 4 | length of the JSON, little endian |
//! | 16 | 32 | SHA-256 of the JSON |
//! | 48 | | JSON of [`DiskMarker`], then zeroes |
//!
//! All non-zero bytes fit into one sector of 512 bytes, so a power cut leaves either the old or the new marker.

use basalt_api::agent::DiskMarker;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Byte offset of the marker on the disk.
pub const OFFSET: u64 = 512 * 1024;
/// Bytes that belong to the marker.
pub const LENGTH: usize = 4096;

const MAGIC: &[u8; 8] = b"BASALTMK";
const VERSION: u32 = 1;
const HEAD: usize = 48;

/// Why a marker cannot be written.
#[derive(Debug, Error)]
pub enum MarkerError {
    /// The JSON does not fit. The uid of a real machine is never that long.
    #[error("a disk marker of {0} bytes does not fit into {max}", max = LENGTH - HEAD)]
    TooLong(usize),
    /// The marker has no JSON form.
    #[error("a disk marker cannot be encoded: {0}")]
    Json(#[from] serde_json::Error),
}

/// The bytes of a marker on the disk.
///
/// # Errors
/// The marker is too long.
pub fn encode(marker: &DiskMarker) -> Result<[u8; LENGTH], MarkerError> {
    let json = serde_json::to_vec(marker)?;
    let length = u32::try_from(json.len()).map_err(|_| MarkerError::TooLong(json.len()))?;
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&Sha256::digest(&json));
    bytes.extend_from_slice(&json);
    if bytes.len() > LENGTH {
        return Err(MarkerError::TooLong(json.len()));
    }
    bytes.resize(LENGTH, 0);
    bytes.try_into().map_err(|_| MarkerError::TooLong(json.len()))
}

/// Parses a marker. `None` unless it is a complete marker of a known version.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<DiskMarker> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (hash, rest) = rest.split_first_chunk::<32>()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let json = rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    if Sha256::digest(json).as_slice() != hash {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::MarkerState;
    use proptest::prelude::*;

    use super::*;

    fn any_marker() -> impl Strategy<Value = DiskMarker> {
        let state =
            prop_oneof![Just(MarkerState::Writing), Just(MarkerState::Installed), Just(MarkerState::Erased)];
        ("[ -~]{0,40}", any::<u64>(), state).prop_map(|(machine_uid, attempt, state)| DiskMarker {
            machine_uid,
            attempt,
            state,
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(marker in any_marker()) {
            prop_assert_eq!(decode(&encode(&marker).unwrap()), Some(marker));
        }

        #[test]
        fn any_changed_bit_unmakes_it(marker in any_marker(), bit in 0..8 * 48usize) {
            let mut bytes = encode(&marker).unwrap();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode(&bytes), None);
        }

        #[test]
        fn never_fails_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_marker_of_a_real_uid_fits_into_one_sector() {
        let marker = DiskMarker {
            machine_uid: "0193b5a4-7c1e-7000-8000-0123456789ab".to_owned(),
            attempt: u64::MAX,
            state: MarkerState::Installed,
        };
        let bytes = encode(&marker).unwrap();
        assert!(bytes[512..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_uid_that_does_not_fit_is_refused() {
        let marker = DiskMarker { machine_uid: "x".repeat(LENGTH), attempt: 1, state: MarkerState::Writing };
        assert!(matches!(encode(&marker), Err(MarkerError::TooLong(_))));
    }
}
