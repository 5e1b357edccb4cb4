//! What machines asked of racks as they booted: answer to `GET /api/v1/boots/{machine}`.

use crate::values::{Mac, Name, Timestamp};
use serde::{Deserialize, Serialize};

/// What is known of the boots of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Boots {
    /// The machine that boots by these MACs; none: nobody declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// By which it boots.
    pub macs: Vec<Mac>,
    /// The newest first.
    pub boots: Vec<Boot>,
    /// Where nothing was heard of it: what to look at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
    /// Who listens.
    pub racks: Vec<Listener>,
    /// What racks could not keep, within the last day, of machines that nobody declared.
    #[serde(default)]
    pub others_lost: u64,
}

/// One boot, from the first question of its firmware on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    /// When it began, by the clock of the rack that heard it.
    pub began: Timestamp,
    /// By which MAC.
    pub mac: Mac,
    /// What was asked, in order.
    pub entries: Vec<BootEntry>,
    /// How much more there was that racks did not keep.
    #[serde(default)]
    pub lost: u64,
    /// Where that is plain: what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
}

/// Something that was asked, and what was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootEntry {
    /// When, by the rack's clock.
    pub at: Timestamp,
    /// Which rack was asked.
    pub rack: String,
    /// Of what: `dhcp`, `dhcp6`, `tftp`, `http`, `agent`.
    pub service: String,
    /// Who asked: `firmware`, `ipxe`, `system`; none: it does not show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// What was asked.
    pub asked: String,
    /// What was answered.
    pub answered: String,
    /// Why nothing or a refusal was answered, or the answer was not taken: `no_subnet`, `boot_off`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The machine's address, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// So often in a row; `at` is the last time.
    pub times: u32,
    /// A boot may begin with it.
    #[serde(default)]
    pub opens: bool,
}

/// What became of a boot, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// For programs.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to look at, or to do.
    pub to_do: String,
}

/// A rack, and where it listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The rack.
    pub rack: Name,
    /// A region holds its stream: what it hears is known here.
    pub connected: bool,
    /// Its addresses.
    pub addresses: Vec<String>,
}
