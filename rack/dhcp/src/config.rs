//! What a server is told: plain data, checked as a whole before any of it is used.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::{Firmware, Mac};

/// Everything a [`Server`](crate::Server) needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The subnets whose clients are answered; disjoint.
    pub subnets: Vec<Subnet>,
    /// Options of single clients, before those of their subnets of the same numbers.
    #[serde(default)]
    pub client_options: BTreeMap<Mac, Vec<RawOption>>,
    /// Clients without a reservation get dynamic addresses. Otherwise they get no answer at all.
    pub serve_unknown: bool,
    /// How long a lease may be, in seconds, that nobody but this rack knows of (see [`Server::acknowledge`](crate::Server::acknowledge)).
    #[serde(default = "ten_minutes")]
    pub unacknowledged_seconds: u32,
    /// How long an address stays out of use after a client found it taken, in seconds.
    #[serde(default = "ten_minutes")]
    pub quarantine_seconds: u32,
}

const fn ten_minutes() -> u32 {
    600
}

impl Default for Config {
    fn default() -> Self {
        Self {
            subnets: Vec::new(),
            client_options: BTreeMap::new(),
            serve_unknown: true,
            unacknowledged_seconds: ten_minutes(),
            quarantine_seconds: ten_minutes(),
        }
    }
}

/// One subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// The caller's name for it; leases carry it.
    pub id: String,
    /// Its network.
    pub cidr: Ipv4Net,
    /// The link that it is on: subnets of one word share a link, also where this server has an address in one of them alone. Absent: only
    /// this server's addresses tell.
    #[serde(default)]
    pub link: Option<String>,
    /// Option 3.
    #[serde(default)]
    pub gateway: Option<Ipv4Addr>,
    /// Option 6.
    #[serde(default)]
    pub dns_servers: Vec<Ipv4Addr>,
    /// Option 42.
    #[serde(default)]
    pub ntp_servers: Vec<Ipv4Addr>,
    /// Option 15.
    #[serde(default)]
    pub domain: Option<String>,
    /// Option 119: domains in which clients look up short names, in order.
    #[serde(default)]
    pub search: Vec<String>,
    /// Option 121: routes beside the one through [`Subnet::gateway`].
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Option 26.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Options by their number, told to every client. One that this server tells by itself is as it tells it.
    #[serde(default)]
    pub options: Vec<RawOption>,
    /// Option 51 in seconds, at least 60.
    pub lease_seconds: u32,
    /// Other servers give addresses here too, and are told of this one's leases ([`Server::learn`](crate::Server::learn)).
    #[serde(default)]
    pub shared: bool,
    /// Where addresses for clients without a reservation come from.
    #[serde(default)]
    pub dynamic: Vec<AddressRange>,
    /// Addresses that belong to one client each. They may lie inside or outside the dynamic ranges.
    #[serde(default)]
    pub reservations: Vec<Reservation>,
    /// What boot clients are told.
    #[serde(default)]
    pub boot: Boot,
}

impl Subnet {
    /// A subnet with leases of ten minutes and nothing else.
    #[must_use]
    pub fn new(id: impl Into<String>, cidr: Ipv4Net) -> Self {
        Self {
            id: id.into(),
            cidr,
            link: None,
            gateway: None,
            dns_servers: Vec::new(),
            ntp_servers: Vec::new(),
            domain: None,
            search: Vec::new(),
            routes: Vec::new(),
            mtu: None,
            options: Vec::new(),
            lease_seconds: ten_minutes(),
            shared: false,
            dynamic: Vec::new(),
            reservations: Vec::new(),
            boot: Boot::default(),
        }
    }
}

/// A way to a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The network.
    pub to: Ipv4Net,
    /// The router; 0.0.0.0: it is on this link.
    pub via: Ipv4Addr,
}

/// An option as bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawOption {
    /// Its number, 1 to 254.
    pub code: u8,
    /// Its value; longer than 255 bytes it is sent in parts (RFC 3396).
    pub value: Vec<u8>,
}

/// Addresses from `start` to `end`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    /// First address.
    pub start: Ipv4Addr,
    /// Last address.
    pub end: Ipv4Addr,
}

impl AddressRange {
    /// Whether the address is one of them.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.start..=self.end).contains(&address)
    }
}

/// An address that belongs to one client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The client.
    pub mac: Mac,
    /// Its address.
    pub address: Ipv4Addr,
    /// Option 12.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Boots differently from the rest of its subnet.
    #[serde(default)]
    pub boot: Option<Boot>,
}

/// Whether boot clients are told anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootMode {
    /// Loader and script by what the client is.
    #[default]
    Network,
    /// The same, beside another server that gives the addresses (proxyDHCP: PXE 2.1 §2.2.3). Nobody gets an address from here,
    /// unless the link has a subnet that does.
    Proxy,
    /// Addresses only.
    Off,
}

/// What boot clients are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Boot {
    /// Whether they are told anything.
    pub mode: BootMode,
    /// The firmware that is told anything. Empty: any.
    pub firmware: BTreeSet<Firmware>,
    /// The loader of each firmware.
    pub loaders: Loaders,
    /// Why [`Boot::loaders`] has another loader for x86-64 UEFI than was chosen. This server does not read it: it is for whoever tells
    /// of its answers.
    pub replaced: Option<String>,
    /// The script for iPXE. `{server}` is the address that the request arrived at, `{mac}` the client.
    pub script_url: String,
    /// The loader for UEFI HTTP boot. Also `{loader}`, its name.
    pub loader_url: String,
}

impl Default for Boot {
    fn default() -> Self {
        Self {
            mode: BootMode::default(),
            firmware: BTreeSet::new(),
            loaders: Loaders::default(),
            replaced: None,
            script_url: "http://{server}:5248/ipxe?mac={mac}".to_owned(),
            loader_url: "http://{server}:5248/loaders/{loader}".to_owned(),
        }
    }
}

/// File names of the loaders, as the TFTP server knows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loaders {
    /// For x86 BIOS.
    pub bios: String,
    /// For x86-64 UEFI.
    pub efi_x64: String,
    /// For 64-bit ARM UEFI.
    pub efi_arm64: String,
}

impl Default for Loaders {
    fn default() -> Self {
        Self {
            bios: "undionly.kpxe".to_owned(),
            efi_x64: "snponly.efi".to_owned(),
            efi_arm64: "snponly-arm64.efi".to_owned(),
        }
    }
}

impl Loaders {
    /// The loader for this firmware.
    #[must_use]
    pub fn get(&self, firmware: Firmware) -> &str {
        match firmware {
            Firmware::Bios => &self.bios,
            Firmware::EfiX64 => &self.efi_x64,
            Firmware::EfiArm64 => &self.efi_arm64,
        }
    }
}

/// A configuration that contradicts itself. Nothing of it was used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Two subnets share addresses.
    #[error("subnets {0} and {1} overlap; a client's subnet must be unambiguous")]
    SubnetsOverlap(Ipv4Net, Ipv4Net),
    /// An address is outside its subnet, or is its network or broadcast address.
    #[error("{what} {address} is not a host address of subnet {cidr}")]
    NotAHost {
        /// Which address.
        what: &'static str,
        /// Its value.
        address: Ipv4Addr,
        /// The subnet.
        cidr: Ipv4Net,
    },
    /// A range ends before it starts.
    #[error("dynamic range {0} to {1} ends before it starts")]
    RangeBackwards(Ipv4Addr, Ipv4Addr),
    /// Two reservations of a subnet name one client.
    #[error("client {mac} has two reservations in subnet {cidr}")]
    TwoAddresses {
        /// The client.
        mac: Mac,
        /// The subnet.
        cidr: Ipv4Net,
    },
    /// Two clients have one address.
    #[error("address {0} is reserved for two clients")]
    TwoClients(Ipv4Addr),
    /// Clients would renew all the time.
    #[error("lease of {seconds} s in subnet {cidr} is too short; at least 60 s")]
    LeaseTooShort {
        /// The setting.
        seconds: u32,
        /// The subnet.
        cidr: Ipv4Net,
    },
    /// Not a domain name.
    #[error(
        "{0:?} is not a domain name; use labels of 1 to 63 letters, digits and hyphens, with dots between them, 253 bytes at most"
    )]
    NotADomain(String),
    /// A number that is no option's.
    #[error("{0} is no option's number; use 1 to 254")]
    NotAnOption(u8),
    /// A text that a DHCP option cannot carry.
    #[error("{what} {value:?} does not fit a DHCP option; use 1 to 255 bytes without control characters")]
    BadText {
        /// Which text.
        what: &'static str,
        /// Its value.
        value: String,
    },
}

impl Config {
    /// Checks the whole.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.client_options.values().try_for_each(|options| check_options(options))?;
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
        if let Some(gateway) = self.gateway.filter(|gateway| !self.has_on_link(*gateway)) {
            host("gateway", gateway)?;
        }
        if let Some(domain) = &self.domain {
            check_text("domain", domain)?;
        }
        if let Some(bad) = self.search.iter().find(|name| !is_domain(name)) {
            return Err(ConfigError::NotADomain(bad.clone()));
        }
        check_options(&self.options)?;
        check_boot(&self.boot)?;
        for range in &self.dynamic {
            host("start of dynamic range", range.start)?;
            host("end of dynamic range", range.end)?;
            if range.end < range.start {
                return Err(ConfigError::RangeBackwards(range.start, range.end));
            }
        }
        let (mut macs, mut addresses) = (HashSet::new(), HashSet::new());
        for reservation in &self.reservations {
            host("reservation", reservation.address)?;
            if let Some(hostname) = &reservation.hostname {
                check_text("host name", hostname)?;
            }
            reservation.boot.as_ref().map_or(Ok(()), check_boot)?;
            if !macs.insert(reservation.mac) {
                return Err(ConfigError::TwoAddresses { mac: reservation.mac, cidr });
            }
            if !addresses.insert(reservation.address) {
                return Err(ConfigError::TwoClients(reservation.address));
            }
        }
        Ok(())
    }

    /// True if clients reach the router as a neighbour on the link, outside of the network: its address is link-local, or the network has no
    /// room for a router.
    pub(crate) fn has_on_link(&self, router: Ipv4Addr) -> bool {
        let is_single = self.cidr.prefix_len() == self.cidr.max_prefix_len();
        !self.cidr.contains(&router) && (is_single || router.is_link_local())
    }

    /// Whether a client of this subnet can have the address. A /31 or /32 has only hosts (RFC 3021).
    pub(crate) fn is_host(&self, address: Ipv4Addr) -> bool {
        let edges = self.cidr.prefix_len() < 31;
        self.cidr.contains(&address)
            && !(edges && (address == self.cidr.network() || address == self.cidr.broadcast()))
    }
}

fn check_options(options: &[RawOption]) -> Result<(), ConfigError> {
    match options.iter().find(|option| !(1..=254).contains(&option.code)) {
        Some(bad) => Err(ConfigError::NotAnOption(bad.code)),
        None => Ok(()),
    }
}

fn is_domain(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn check_boot(boot: &Boot) -> Result<(), ConfigError> {
    check_text("script URL", &boot.script_url)?;
    check_text("loader URL", &boot.loader_url)?;
    for firmware in [Firmware::Bios, Firmware::EfiX64, Firmware::EfiArm64] {
        check_text("loader", boot.loaders.get(firmware))?;
    }
    Ok(())
}

fn check_text(what: &'static str, value: &str) -> Result<(), ConfigError> {
    if value.is_empty() || value.len() > 255 || value.chars().any(char::is_control) {
        return Err(ConfigError::BadText { what, value: value.to_owned() });
    }
    Ok(())
}
