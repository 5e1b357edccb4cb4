//! The framing of a segment. Each record has a checksum, so a record that a crash cut short is detected.
//!
//! | bytes | content |
//! | --- | --- |
//! | 4 | length of the payload, little-endian |
//! | 8 | first bytes of the payload's SHA-256 |
//! | n | payload: one message, protobuf |

use prost::Message;

use crate::hash::sha256;

const HEADER: usize = 12;
/// The largest payload, in bytes.
pub const MAX_PAYLOAD: usize = 4 << 20;

/// Appends a record. `false`: the message is too large.
pub fn encode(bytes: &mut Vec<u8>, message: &impl Message) -> bool {
    let payload = message.encode_to_vec();
    let Some(length) = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= MAX_PAYLOAD) else {
        return false;
    };
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(sha256(&payload).first_chunk::<8>().unwrap_or(&[0; 8]));
    bytes.extend_from_slice(&payload);
    true
}

/// Decodes the record at the start of the bytes: the message and the record's length. `None`: there is no complete
/// record.
#[must_use]
pub fn decode<M: Message + Default>(bytes: &[u8]) -> Option<(M, usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<8>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|&length| length <= MAX_PAYLOAD)?;
    let payload = rest.get(..length)?;
    if sha256(payload).first_chunk() != Some(sum) {
        return None;
    }
    Some((M::decode(payload).ok()?, HEADER + length))
}
