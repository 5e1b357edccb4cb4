//! Parser for announcements of neighbours on a link: LLDP (IEEE 802.1AB-2016) and CDP (Cisco Discovery Protocol, versions 1 and 2). It has
//! no socket and no clock: [`read`] parses one Ethernet frame.
//!
//! | protocol | sent to | identified by |
//! | --- | --- | --- |
//! | LLDP | 01:80:c2:00:00:0e, :03 or :00 (§7.1) | EtherType 88-CC |
//! | CDP | 01:00:0c:cc:cc:cc | SNAP, OUI 00-00-0C, type 2000 |
//!
//! Bounds: a text has at most [`MAX_TEXT`] octets and no control characters. A neighbour has at most [`MAX_ADDRESSES`] addresses and
//! [`MAX_VLANS`] names of VLANs. A frame is read once, from start to end.
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

/// Most octets of a text. Longer texts are cut.
pub const MAX_TEXT: usize = 255;
/// Most management addresses of a neighbour.
pub const MAX_ADDRESSES: usize = 16;
/// Most names of VLANs of a neighbour.
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
    /// The device's port, in the same forms.
    pub port_id: String,
    /// Lifetime of the announcement in seconds. 0: the neighbour revokes it (§9.2.7.3).
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
    /// IP addresses for management of the device.
    pub addresses: BTreeSet<IpAddr>,
    /// The VLAN of untagged frames: PVID (802.1Q Annex D), or CDP's native VLAN.
    pub native_vlan: Option<u16>,
    /// Names of VLANs by their ids (802.1Q Annex D).
    pub vlans: BTreeMap<u16, String>,
    /// Number of the present link aggregation group of the port (802.1AX Annex F).
    pub aggregate: Option<u32>,
    /// Largest frame of the port in octets, with header and checksum (802.3 §79.3.4).
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

/// The reason why a frame was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The frame belongs to other traffic.
    #[error("the frame is neither LLDP nor CDP")]
    OtherProtocol,
    /// The frame ends within the named part.
    #[error("the frame ends within {0}")]
    Truncated(&'static str),
    /// A mandatory part is missing, in the wrong place, or present twice (802.1AB §9.2.7.7.1).
    #[error("the announcement has no valid {0} in its place")]
    Missing(&'static str),
    /// An unknown version of CDP.
    #[error("CDP version {0} is not known, only 1 and 2")]
    Version(u8),
}

/// Parses an Ethernet frame that starts with the destination address and has no checksum.
///
/// # Errors
/// The frame is of another protocol, or must be discarded by a rule of the standard. Optional parts that break a rule are skipped.
pub fn read(frame: &[u8]) -> Result<Neighbour, Refused> {
    match frame::payload(frame)? {
        frame::Payload::Lldp(octets) => lldp::read(octets),
        frame::Payload::Cdp(octets) => cdp::read(octets),
    }
}
