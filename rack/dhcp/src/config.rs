//! The configuration of a server: plain data, checked as a whole before any of it is used.

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
    /// Options of single clients. They replace options of their subnet that have the same number.
    #[serde(default)]
    pub client_options: BTreeMap<Mac, Vec<RawOption>>,
    /// Clients without a reservation get dynamic addresses. Otherwise they get no answer at all.
    pub serve_unknown: bool,
    /// The longest lease, in seconds, that is granted before the region has acknowledged it (see
    /// [`Server::acknowledge`](crate::Server::acknowledge)).
    #[serde(default = "ten_minutes")]
    pub unacknowledged_seconds: u32,
    /// How long an address stays out of use after a client declined it, in seconds.
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

/// One subnet with the options, dynamic ranges and reservations of its clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// The caller's name for it; leases carry it.
    pub id: String,
    /// The network of the subnet. Disjoint from the networks of the other subnets.
    pub cidr: Ipv4Net,
    /// The name of the link. Subnets with the same name share a link, even if this server has an address in only one of
    /// them. Absent: two subnets share a link only if this server has addresses in both on one interface.
    #[serde(default)]
    pub link: Option<String>,
    /// Option 3: the router.
    #[serde(default)]
    pub gateway: Option<Ipv4Addr>,
    /// Option 6: name servers, in order of preference.
    #[serde(default)]
    pub dns_servers: Vec<Ipv4Addr>,
    /// Option 42: NTP servers, in order of preference.
    #[serde(default)]
    pub ntp_servers: Vec<Ipv4Addr>,
    /// Option 15: the client's domain.
    #[serde(default)]
    pub domain: Option<String>,
    /// Option 119: domains in which clients look up short names, in order.
    #[serde(default)]
    pub search: Vec<String>,
    /// Option 121: routes beside the one through [`Subnet::gateway`].
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Option 26: the MTU of the link, in bytes.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Options by number. They are sent to every client, except those that an RFC restricts (`RULES` in `options.rs`).
    /// An option that this server fills itself is not taken from here.
    #[serde(default)]
    pub options: Vec<RawOption>,
    /// Option 51 in seconds, at least 60.
    pub lease_seconds: u32,
    /// Other servers give addresses here too and receive this server's leases
    /// ([`Server::learn`](crate::Server::learn)).
    #[serde(default)]
    pub shared: bool,
    /// The ranges of addresses for clients without a reservation.
    #[serde(default)]
    pub dynamic: Vec<AddressRange>,
    /// Addresses that belong to one client each. They may lie inside or outside the dynamic ranges.
    #[serde(default)]
    pub reservations: Vec<Reservation>,
    /// The boot settings of the subnet's clients.
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

/// A route that clients install (RFC 3442).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination network.
    pub to: Ipv4Net,
    /// The router; 0.0.0.0 when the destination is on this link.
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
    /// The first address, included.
    pub start: Ipv4Addr,
    /// The last address, included.
    pub end: Ipv4Addr,
}

impl AddressRange {
    /// True if the address lies in the range.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.start..=self.end).contains(&address)
    }
}

/// An address that belongs to one client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The client's hardware address.
    pub mac: Mac,
    /// The address that only this client gets.
    pub address: Ipv4Addr,
    /// Option 12: the host name that the client is given.
    #[serde(default)]
    pub hostname: Option<String>,
    /// The client's own boot settings, in place of those of its subnet.
    #[serde(default)]
    pub boot: Option<Boot>,
}

/// How boot clients are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootMode {
    /// A loader by firmware and, for iPXE, a script.
    #[default]
    Network,
    /// The same, beside another server that gives the addresses (proxyDHCP: PXE 2.1 §2.2.3). This subnet gives no
    /// addresses; another subnet of the same link may.
    Proxy,
    /// Clients get addresses and no boot options.
    Off,
}

/// The boot settings of a subnet or of one client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Boot {
    /// How boot clients are answered.
    pub mode: BootMode,
    /// The firmware types that are answered. Empty: all.
    pub firmware: BTreeSet<Firmware>,
    /// The loader of each firmware.
    pub loaders: Loaders,
    /// The reason why [`Boot::loaders`] names another loader for x86-64 UEFI than the configured one. The server itself
    /// does not read it; callers show it when they report a boot answer.
    pub replaced: Option<String>,
    /// The URL of the script for iPXE. `{server}` is the address that the request arrived at, `{mac}` the client's MAC.
    pub script_url: String,
    /// The URL of the loader for UEFI HTTP boot. It has the same placeholders, and `{loader}` for the name of the
    /// loader.
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

/// A configuration that contradicts itself. No part of it was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Two subnets share addresses.
    #[error("subnets {0} and {1} overlap; a client's subnet must be unambiguous")]
    SubnetsOverlap(Ipv4Net, Ipv4Net),
    /// An address is outside its subnet, or is its network or broadcast address.
    #[error("{what} {address} is not a host address of subnet {cidr}")]
    NotAHost {
        /// The role of the address in the configuration, for the message.
        what: &'static str,
        /// The address that is no host address.
        address: Ipv4Addr,
        /// The network of the subnet.
        cidr: Ipv4Net,
    },
    /// A range ends before it starts.
    #[error("dynamic range {0} to {1} ends before it starts")]
    RangeBackwards(Ipv4Addr, Ipv4Addr),
    /// Two reservations of a subnet name one client.
    #[error("client {mac} has two reservations in subnet {cidr}")]
    TwoAddresses {
        /// The client that is named twice.
        mac: Mac,
        /// The network of the subnet.
        cidr: Ipv4Net,
    },
    /// Two clients have one address.
    #[error("address {0} is reserved for two clients")]
    TwoClients(Ipv4Addr),
    /// The lease time is under 60 seconds: clients would renew all the time.
    #[error("lease of {seconds} s in subnet {cidr} is too short; at least 60 s")]
    LeaseTooShort {
        /// The configured lease time, in seconds.
        seconds: u32,
        /// The network of the subnet.
        cidr: Ipv4Net,
    },
    /// Not a domain name.
    #[error(
        "{0:?} is not a domain name; use labels of 1 to 63 letters, digits and hyphens, with dots between them, 253 bytes at most"
    )]
    NotADomain(String),
    /// A number outside the range of option codes, 1 to 254.
    #[error("{0} is no option's number; use 1 to 254")]
    NotAnOption(u8),
    /// A text that is empty, longer than 255 bytes, or contains control characters.
    #[error("{what} {value:?} does not fit a DHCP option; use 1 to 255 bytes without control characters")]
    BadText {
        /// The setting that the text belongs to.
        what: &'static str,
        /// The rejected text.
        value: String,
    },
}

impl Config {
    /// Checks the whole configuration.
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

    /// True if a client of this subnet can have the address. In a /31 or /32 every address is a host (RFC 3021).
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
