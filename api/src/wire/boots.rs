//! Requests of booting machines to racks: answer to `GET /api/v1/boots/{machine}`.

use crate::values::{Mac, Name, Timestamp};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};

/// The boots of a machine that racks have seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Shape)]
pub struct Boots {
    /// The machine that boots by these MACs; absent if no Machine has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// The MACs that the machine boots by.
    pub macs: Vec<Mac>,
    /// Boots, the newest first.
    pub boots: Vec<Boot>,
    /// If no rack heard the machine: a diagnosis of the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
    /// Racks that listen for boots.
    pub racks: Vec<Listener>,
    /// Entries of undeclared machines that racks could not keep, within the last day.
    #[serde(default)]
    pub others_lost: u64,
}

/// One boot, from the first request of its firmware on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct Boot {
    /// Time of the first request, by the clock of the rack that received it.
    pub began: Timestamp,
    /// The MAC that the machine boots by.
    pub mac: Mac,
    /// Requests and answers, in order.
    pub entries: Vec<BootEntry>,
    /// Number of further entries that racks did not keep.
    #[serde(default)]
    pub lost: u64,
    /// A diagnosis of the boot, if its end is clear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
}

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct BootEntry {
    /// Time of the request, by the rack's clock.
    pub at: Timestamp,
    /// The rack that received the request.
    pub rack: String,
    /// The service that received the request: `dhcp`, `dhcp6`, `tftp`, `http`, `agent`.
    pub service: String,
    /// The program that sent the request: `firmware`, `ipxe`, `system`. Absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The request, in words.
    pub asked: String,
    /// The answer, in words.
    pub answered: String,
    /// The reason if the rack refused or did not answer, or the client did not take the answer: `no_subnet`, `boot_off`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The machine's address, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Number of equal requests in a row; `at` is the time of the last one.
    pub times: u32,
    /// True if a boot may begin with this request.
    #[serde(default)]
    pub opens: bool,
}

/// A diagnosis of a boot, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct Judgement {
    /// The diagnosis, for programs.
    pub code: String,
    /// The diagnosis, for a person.
    pub message: String,
    /// Steps for a person to find or remove the cause.
    pub to_do: String,
}

/// A rack and its listening addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct Listener {
    /// Name of the rack.
    pub rack: Name,
    /// True while the rack has a stream to a region, so that the region knows the requests that the rack receives.
    pub connected: bool,
    /// Addresses that the rack listens on.
    pub addresses: Vec<String>,
}
