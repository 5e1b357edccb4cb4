//! SshKey: a public key with a name.

use super::{CommonStatus, kind};
use crate::validate::no_rules;
use crate::values::{SshPublicKey, Timestamp};
use basalt_api_derive::Model;

kind! {
    /// An SSH public key for machines.
    #[dormant = "machines get the keys that their deployment spells out"]
    SshKey, "ssh_keys", "basalt_ssh_key", Label, declarable: true, SshKeySpec, SshKeyStatus, no_rules
}

/// An SSH public key.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SshKeySpec {
    /// The key: one line of a `.pub` file.
    pub public_key: SshPublicKey,
    /// The owner of the key, for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The use of the key.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SshKeyStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// The time at which the key was last put on a machine.
    #[field(volatile)]
    pub last_used_at: Option<Timestamp>,
}
