//! Neighbours of a link, as they announce themselves: LLDP (IEEE 802.1AB-2016) and CDP (Cisco Discovery Protocol, version 1 and 2). No socket and
//! no clock: [`read`] takes one Ethernet frame.
//!
//! | protocol | sent to | told apart by |
//! | --- | --- | --- |
//! | LLDP | 01:80:c2:00:00:0e, :03 or :00 (§7.1) | EtherType 88-CC |
//! | CDP | 01:00:0c:cc:cc:cc | SNAP, OUI 00-00-0C, type 2000 |
//!
//! Bounds: a text has at most [`MAX_TEXT`] octets and no control characters. A neighbour has at most [`MAX_ADDRESSES`] addresses and [`MAX_VLANS`] names
//! of VLANs. A frame is read once from its beginning to its end.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod cdp;
mod frame;
mod lldp;
mod octets;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub use frame::{CDP_GROUP, LLDP_ETHERTYPE, LLDP_GROUPS};

/// Octets of a text that are kept. Longer texts are cut.
pub const MAX_TEXT: usize = 255;
/// Management addresses of a neighbour that are kept.
pub const MAX_ADDRESSES: usize = 16;
/// Names of VLANs that are kept.
pub const MAX_VLANS: usize = 64;

/// The protocol of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Link Layer Discovery Protocol, IEEE 802.1AB.
    Lldp,
    /// Cisco Discovery Protocol.
    Cdp,
}

/// The announcement of a neighbour. Parts that were not announced are absent or empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// Protocol of the announcement.
    pub protocol: Protocol,
    /// The device: a MAC address with colons, an address or a name. CDP's device id.
    pub chassis_id: String,
    /// The device's port, likewise.
    pub port_id: String,
    /// Seconds for which the announcement is true. 0: the neighbour revokes it (§9.2.7.3).
    pub ttl_seconds: u16,
    /// The port's description.
    pub port_description: Option<String>,
    /// The device's name.
    pub system_name: Option<String>,
    /// Hardware and software of the device. CDP's software version.
    pub system_description: Option<String>,
    /// CDP's platform: the model.
    pub platform: Option<String>,
    /// Enabled capabilities, by the words of [`capabilities`](CAPABILITIES).
    pub capabilities: BTreeSet<&'static str>,
    /// Addresses of the device's management.
    pub addresses: BTreeSet<IpAddr>,
    /// The VLAN of untagged frames: PVID (802.1Q Annex D), or CDP's native VLAN.
    pub native_vlan: Option<u16>,
    /// Names of VLANs by their ids (802.1Q Annex D).
    pub vlans: BTreeMap<u16, String>,
    /// The number of the aggregate that the port is a member of now (802.1AX Annex F).
    pub aggregate: Option<u32>,
    /// Octets of the longest frame that the port takes, with header and checksum (802.3 §79.3.4).
    pub max_frame: Option<u16>,
}

/// Words for capabilities.
pub const CAPABILITIES: [&str; 8] =
    ["other", "repeater", "bridge", "wlan", "router", "telephone", "docsis", "station"];

impl Neighbour {
    fn new(protocol: Protocol, chassis_id: String, port_id: String, ttl_seconds: u16) -> Self {
        Self {
            protocol,
            chassis_id,
            port_id,
            ttl_seconds,
            port_description: None,
            system_name: None,
            system_description: None,
            platform: None,
            capabilities: BTreeSet::new(),
            addresses: BTreeSet::new(),
            native_vlan: None,
            vlans: BTreeMap::new(),
            aggregate: None,
            max_frame: None,
        }
    }

    fn add_address(&mut self, address: Option<IpAddr>) {
        let is_one = |address: &IpAddr| !address.is_unspecified() && !address.is_multicast();
        if let Some(address) = address.filter(is_one)
            && self.addresses.len() < MAX_ADDRESSES
        {
            self.addresses.insert(address);
        }
    }
}

/// Why a frame says nothing of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The frame belongs to other traffic.
    #[error("the frame is neither LLDP nor CDP")]
    OtherProtocol,
    /// The frame ends within something.
    #[error("the frame ends within {0}")]
    Truncated(&'static str),
    /// A mandatory part is missing, in the wrong place, or there twice (802.1AB §9.2.7.7.1).
    #[error("the announcement has no valid {0} in its place")]
    Missing(&'static str),
    /// A version of CDP that nobody describes.
    #[error("CDP version {0} is not known, only 1 and 2")]
    Version(u8),
}

/// Reads an Ethernet frame, from its destination address on, without its checksum.
///
/// # Errors
/// The frame is of another protocol, or breaks a rule that says to discard it. Optional parts that break a rule are left out.
pub fn read(frame: &[u8]) -> Result<Neighbour, Refused> {
    match frame::payload(frame)? {
        frame::Payload::Lldp(octets) => lldp::read(octets),
        frame::Payload::Cdp(octets) => cdp::read(octets),
    }
}
