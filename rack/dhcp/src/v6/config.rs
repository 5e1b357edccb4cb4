//! The configuration of a server: plain data, checked as a whole before any of it is used.

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
    /// Option 7. Clients choose the server with the highest value. With 255 they take the first one at once, instead of
    /// waiting a second for others (RFC 8415 §18.2.1).
    pub preference: u8,
    /// The longest lease, in seconds, that is granted before the region has acknowledged it (see
    /// [`Server::acknowledge`](super::Server::acknowledge)).
    pub unacknowledged_seconds: u32,
    /// How long an address stays out of use after a client declined it, in seconds.
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

/// One subnet with the options, dynamic ranges and reservations of its clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// The caller's name for it; leases carry it.
    pub id: String,
    /// The network of the subnet. Disjoint from the networks of the other subnets.
    pub cidr: Ipv6Net,
    /// Option 23: DNS servers, in order of preference.
    pub dns_servers: Vec<Ipv6Addr>,
    /// Options 56 and 31: NTP servers, in order of preference.
    pub ntp_servers: Vec<Ipv6Addr>,
    /// Option 24: domains in which clients look up short names, in order.
    pub search: Vec<String>,
    /// Valid and preferred lifetime in seconds, at least 60.
    pub lease_seconds: u32,
    /// A SOLICIT may be answered with a REPLY (RFC 8415 §18.3.1). If several servers of a link do so, each of them
    /// leases the client an address.
    pub rapid_commit: bool,
    /// The ranges of addresses for clients without a reservation.
    pub dynamic: Vec<AddressRange>,
    /// Addresses that belong to one client each. They may lie inside or outside the dynamic ranges.
    pub reservations: Vec<Reservation>,
    /// The boot settings of the subnet's clients.
    pub boot: Boot,
    /// The name of the link. Subnets with the same name share a link, whatever addresses the server has.
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
    /// The first address, included.
    pub start: Ipv6Addr,
    /// The last address, included.
    pub end: Ipv6Addr,
}

impl AddressRange {
    /// True if the address lies in the range.
    #[must_use]
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        (self.start..=self.end).contains(&address)
    }
}

/// The key by which a reservation identifies its client.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Client {
    /// The hardware address of its interface. Boot ROM, initrd and installed system have different DUIDs and count as
    /// one client.
    Mac(Mac),
    /// The client's DUID.
    Duid(Duid),
}

/// An address that belongs to one client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The key that identifies the client.
    pub client: Client,
    /// The address that only this client gets.
    pub address: Ipv6Addr,
    /// Option 39: the host name for a client that asks for its name.
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

/// A configuration that contradicts itself. No part of it was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Two subnets share addresses.
    #[error("subnets {0} and {1} overlap; a client's subnet must be unambiguous")]
    SubnetsOverlap(Ipv6Net, Ipv6Net),
    /// An address is outside its subnet, or is the subnet-router anycast address (RFC 4291 §2.6.1).
    #[error("{what} {address} is not a host address of subnet {cidr}")]
    NotAHost {
        /// The role of the address in the configuration, for the message.
        what: &'static str,
        /// The address that is no host address.
        address: Ipv6Addr,
        /// The network of the subnet.
        cidr: Ipv6Net,
    },
    /// A range ends before it starts.
    #[error("dynamic range {0} to {1} ends before it starts")]
    RangeBackwards(Ipv6Addr, Ipv6Addr),
    /// Two reservations of a subnet name one client.
    #[error("client {client:?} has two reservations in subnet {cidr}")]
    TwoAddresses {
        /// The client that is named twice.
        client: Client,
        /// The network of the subnet.
        cidr: Ipv6Net,
    },
    /// Two clients have one address.
    #[error("address {0} is reserved for two clients")]
    TwoClients(Ipv6Addr),
    /// The lease time is under 60 seconds: clients would renew all the time.
    #[error("lease of {seconds} s in subnet {cidr} is too short; at least 60 s")]
    LeaseTooShort {
        /// The configured lease time, in seconds.
        seconds: u32,
        /// The network of the subnet.
        cidr: Ipv6Net,
    },
    /// Not a domain name.
    #[error(
        "{0:?} is not a domain name; use labels of 1 to 63 letters, digits and hyphens, with dots between them, 253 bytes at most"
    )]
    NotADomain(String),
}

impl Config {
    /// Checks the whole configuration.
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

    /// True if a client of this subnet can have the address. The first address is the subnet-router anycast address
    /// (RFC 4291 §2.6.1), except in a /127 (RFC 6164) and a /128.
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
