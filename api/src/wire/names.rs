//! Answers of racks for a host name: answer to `GET /api/v1/names/{name}`.

use crate::values::{Name, Timestamp};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The answer of racks for a name, and the objects that it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct NameReport {
    /// The whole name that racks are asked for, in lower case, without the final dot.
    pub name: String,
    /// The sort of the answer.
    pub outcome: NameOutcome,
    /// The answer in words.
    pub message: String,
    /// The records of the answer. A chain of aliases is in its order.
    pub records: Vec<NameRecord>,
    /// The zones that answer, in the order of the chain. Empty if other servers answer.
    pub zones: Vec<NameZone>,
    /// The servers that racks ask. Empty if racks answer themselves, or ask the servers of their hosts.
    pub servers: Vec<IpAddr>,
    /// Similar names that exist, whole, the nearest first.
    pub near: Vec<String>,
    /// All racks, each with its progress on the zones.
    pub racks: Vec<NameRack>,
}

/// The sort of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum NameOutcome {
    /// Zones have records of the name.
    Answered,
    /// The name exists without records (NODATA, RFC 2308 §2.2).
    NoData,
    /// There is no such name (NXDOMAIN).
    NoName,
    /// Racks ask the servers of a Domain.
    Forwarded,
    /// Racks ask the servers to which a zone delegates the name.
    Delegated,
    /// Racks ask the servers for all other names.
    Upstream,
    /// Racks answer for the domain, and its zone is not written yet.
    NotWritten,
}

impl NameOutcome {
    /// Every sort of answer, once.
    pub const ALL: [Self; 7] = [
        Self::Answered,
        Self::NoData,
        Self::NoName,
        Self::Forwarded,
        Self::Delegated,
        Self::Upstream,
        Self::NotWritten,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::NoData => "no_data",
            Self::NoName => "no_name",
            Self::Forwarded => "forwarded",
            Self::Delegated => "delegated",
            Self::Upstream => "upstream",
            Self::NotWritten => "not_written",
        }
    }
}

/// A record of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct NameRecord {
    /// The whole name, without the final dot.
    pub owner: String,
    /// The type: A, AAAA, CNAME, …
    #[serde(rename = "type")]
    pub rtype: String,
    /// Seconds that a resolver may keep it.
    pub ttl: u32,
    /// The data, as a DnsRecord has it.
    pub data: String,
    /// The zone that has the record.
    pub zone: String,
    /// The wildcard name that the record was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wildcard: Option<String>,
    /// The objects that the record comes from. Empty if the region writes the record for each zone.
    pub from: Vec<NameSource>,
}

/// An object that a record comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Shape)]
pub struct NameSource {
    /// The kind of the object.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// A detail: the machine of a deployment, or the lease of a dynamic address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A zone that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct NameZone {
    /// The name of its apex, without the final dot.
    pub origin: String,
    /// The serial of its SOA.
    pub serial: u32,
    /// Time of the last change of its content.
    pub since: Timestamp,
    /// Seconds that a resolver may cache that a name does not exist.
    pub negative_ttl: u32,
    /// The objects that the zone comes from: a Domain, the Subnets of its addresses, or the Settings.
    pub from: Vec<NameSource>,
}

/// A rack, and its zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct NameRack {
    /// The name of the rack.
    pub rack: Name,
    /// True if it holds the zones at these serials.
    pub holds: bool,
    /// Time since when the rack is behind, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The addresses at which it answers DNS.
    pub addresses: Vec<IpAddr>,
    /// The rack's progress in words.
    pub message: String,
}
