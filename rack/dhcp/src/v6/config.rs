//! What a server is told: plain data, checked as a whole before any of it is used.

use std::collections::HashSet;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use super::Duid;
use crate::{Boot, Mac};

/// Everything a [`Server`](super::Server) needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The subnets whose clients are answered; disjoint.
    pub subnets: Vec<Subnet>,
    /// Clients without a reservation get dynamic addresses. Otherwise they get no answer at all.
    pub serve_unknown: bool,
    /// Option 7: clients take the highest; 255 makes them take the first one at once instead of waiting a second for others (RFC 8415 §18.2.1).
    pub preference: u8,
    /// How long a lease may be, in seconds, that nobody but this rack knows of (see [`Server::acknowledge`](super::Server::acknowledge)).
    pub unacknowledged_seconds: u32,
    /// How long an address stays out of use after a client found it taken, in seconds.
    pub quarantine_seconds: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            subnets: Vec::new(),
            serve_unknown: true,
            preference: u8::MAX,
            unacknowledged_seconds: 600,
            quarantine_seconds: 600,
        }
    }
}

/// One subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// The caller's name for it; leases carry it.
    pub id: String,
    /// Its network.
    pub cidr: Ipv6Net,
    /// Option 23.
    pub dns_servers: Vec<Ipv6Addr>,
    /// Options 56 and 31.
    pub ntp_servers: Vec<Ipv6Addr>,
    /// Option 24: domains in which clients look up short names, in order.
    pub search: Vec<String>,
    /// Valid and preferred lifetime in seconds, at least 60.
    pub lease_seconds: u32,
    /// A SOLICIT may be answered by a REPLY (RFC 8415 §18.3.1). Several servers of one link that all do so lease an address each.
    pub rapid_commit: bool,
    /// Where addresses for clients without a reservation come from.
    pub dynamic: Vec<AddressRange>,
    /// Addresses that belong to one client each. They may lie inside or outside the dynamic ranges.
    pub reservations: Vec<Reservation>,
    /// What boot clients are told.
    pub boot: Boot,
    /// Subnets with the same word share a link, whatever addresses the server has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl Subnet {
    /// A subnet with leases of ten minutes and nothing else.
    #[must_use]
    pub fn new(id: impl Into<String>, cidr: Ipv6Net) -> Self {
        Self {
            id: id.into(),
            cidr,
            dns_servers: Vec::new(),
            ntp_servers: Vec::new(),
            search: Vec::new(),
            lease_seconds: 600,
            rapid_commit: false,
            dynamic: Vec::new(),
            reservations: Vec::new(),
            boot: Boot::default(),
            link: None,
        }
    }
}

/// Addresses from `start` to `end`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    /// First address.
    pub start: Ipv6Addr,
    /// Last address.
    pub end: Ipv6Addr,
}

impl AddressRange {
    /// Whether the address is one of them.
    #[must_use]
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        (self.start..=self.end).contains(&address)
    }
}

/// By what a reservation knows its client.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Client {
    /// By the hardware address of its interface: boot ROM, initrd and installed system, which have DUIDs of their own, are one client.
    Mac(Mac),
    /// By its DUID.
    Duid(Duid),
}

/// An address that belongs to one client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The client.
    pub client: Client,
    /// Its address.
    pub address: Ipv6Addr,
    /// Option 39, for a client that asks how it is called.
    pub hostname: Option<String>,
}

impl Reservation {
    pub(super) fn is_of(&self, duid: &Duid, mac: Option<Mac>) -> bool {
        match &self.client {
            Client::Mac(it) => Some(*it) == mac,
            Client::Duid(it) => it == duid,
        }
    }
}

/// A configuration that contradicts itself. Nothing of it was used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Two subnets share addresses.
    #[error("subnets {0} and {1} overlap; a client's subnet must be unambiguous")]
    SubnetsOverlap(Ipv6Net, Ipv6Net),
    /// An address is outside its subnet, or is its routers' (RFC 4291 §2.6.1).
    #[error("{what} {address} is not a host address of subnet {cidr}")]
    NotAHost {
        /// Which address.
        what: &'static str,
        /// Its value.
        address: Ipv6Addr,
        /// The subnet.
        cidr: Ipv6Net,
    },
    /// A range ends before it starts.
    #[error("dynamic range {0} to {1} ends before it starts")]
    RangeBackwards(Ipv6Addr, Ipv6Addr),
    /// Two reservations of a subnet name one client.
    #[error("client {client:?} has two reservations in subnet {cidr}")]
    TwoAddresses {
        /// The client.
        client: Client,
        /// The subnet.
        cidr: Ipv6Net,
    },
    /// Two clients have one address.
    #[error("address {0} is reserved for two clients")]
    TwoClients(Ipv6Addr),
    /// Clients would renew all the time.
    #[error("lease of {seconds} s in subnet {cidr} is too short; at least 60 s")]
    LeaseTooShort {
        /// The setting.
        seconds: u32,
        /// The subnet.
        cidr: Ipv6Net,
    },
    /// Not a domain name.
    #[error(
        "{0:?} is not a domain name; use labels of 1 to 63 letters, digits and hyphens, with dots between them, 253 bytes at most"
    )]
    NotADomain(String),
}

impl Config {
    /// Checks the whole.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (index, subnet) in self.subnets.iter().enumerate() {
            subnet.check()?;
            let overlaps = |other: &&Subnet| {
                other.cidr.contains(&subnet.cidr.network()) || subnet.cidr.contains(&other.cidr.network())
            };
            if let Some(other) = self.subnets.iter().take(index).find(overlaps) {
                return Err(ConfigError::SubnetsOverlap(other.cidr, subnet.cidr));
            }
        }
        Ok(())
    }
}

impl Subnet {
    fn check(&self) -> Result<(), ConfigError> {
        let cidr = self.cidr;
        let host = |what, address| {
            if self.is_host(address) { Ok(()) } else { Err(ConfigError::NotAHost { what, address, cidr }) }
        };
        if self.lease_seconds < 60 {
            return Err(ConfigError::LeaseTooShort { seconds: self.lease_seconds, cidr });
        }
        if let Some(bad) = self.search.iter().find(|name| !is_domain(name)) {
            return Err(ConfigError::NotADomain(bad.clone()));
        }
        for range in &self.dynamic {
            host("start of dynamic range", range.start)?;
            host("end of dynamic range", range.end)?;
            if range.end < range.start {
                return Err(ConfigError::RangeBackwards(range.start, range.end));
            }
        }
        let (mut clients, mut addresses) = (HashSet::new(), HashSet::new());
        for reservation in &self.reservations {
            host("reservation", reservation.address)?;
            if let Some(bad) = reservation.hostname.as_ref().filter(|name| !is_domain(name)) {
                return Err(ConfigError::NotADomain(bad.clone()));
            }
            if !clients.insert(&reservation.client) {
                return Err(ConfigError::TwoAddresses { client: reservation.client.clone(), cidr });
            }
            if !addresses.insert(reservation.address) {
                return Err(ConfigError::TwoClients(reservation.address));
            }
        }
        Ok(())
    }

    /// Whether a client of this subnet can have the address. The first is the routers' (RFC 4291 §2.6.1), but for the two of a /127 (RFC 6164).
    pub(super) fn is_host(&self, address: Ipv6Addr) -> bool {
        self.cidr.contains(&address) && (self.cidr.prefix_len() >= 127 || address != self.cidr.network())
    }
}

fn is_domain(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}
