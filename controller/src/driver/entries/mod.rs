//! The documents for racks: concerns, rendered from the topology and composed of entries.
//!
//! | module | is |
//! | --- | --- |
//! | [`machine`] | the entries of one machine |
//! | [`rack`] | the concerns of one rack |
//! | [`common`] | the concerns that all racks share |
//! | `dhcp6`, `dns`, `enlist`, `time`, [`proxy`] | parts of concerns |

pub mod common;
mod dhcp6;
mod dns;
pub(crate) mod enlist;
pub mod machine;
pub(crate) mod proxy;
pub mod rack;
mod time;

/// The tag of the repeated field that starts each concern with a list.
const LIST: u32 = 1;
/// The number of tries if another writer is faster.
pub(crate) const TRIES: usize = 8;

/// Appends an encoded message to the encoded list that starts a concern.
pub(crate) fn append(message: &Vec<u8>, body: &mut Vec<u8>) {
    prost::encoding::bytes::encode(LIST, message, body);
}
