//! The network of an installed system, resolved: each interface by its MAC address, each address with its prefix.

use std::collections::BTreeMap;
use std::net::IpAddr;

use basalt_api::agent::{Inventory, Nic};
use basalt_api::kinds::{Addressing, InterfaceConfig, NetworkConfig};
use serde::{Deserialize, Serialize};

/// An address that the region has assigned to an interface, and what its subnet says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assigned {
    /// The address.
    pub address: IpAddr,
    /// Length of its subnet's prefix.
    pub prefix_len: u8,
    /// The subnet's gateway.
    pub gateway: Option<IpAddr>,
    /// The subnet's DNS servers.
    pub dns_servers: Vec<IpAddr>,
    /// The VLAN's MTU, where it is not the default.
    pub mtu: Option<u32>,
}

/// Every interface that is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// In the order of their names.
    pub interfaces: Vec<Interface>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// As the inventory has it.
    pub name: String,
    /// Lower-case, colons.
    pub mac: String,
    /// How it gets its address.
    pub method: Method,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
    /// DNS servers beyond those that DHCP gives.
    pub dns_servers: Vec<IpAddr>,
    /// Domains to search.
    pub search: Vec<String>,
}

/// How an interface gets its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// By DHCP.
    Dhcp,
    /// This one.
    Static {
        /// Address and prefix length.
        address: (IpAddr, u8),
        /// Where everything else goes; one interface at most has it.
        gateway: Option<IpAddr>,
    },
    /// Not at all.
    LinkUp,
}

/// Why a network cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// The inventory has no interface of this name or MAC address.
    NoInterface {
        /// What was asked for.
        wanted: String,
        /// What there is.
        has: Vec<String>,
    },
    /// An interface is static or auto, and the region has assigned no address.
    NoAddress(String),
    /// The inventory has no interface at all.
    NoNic,
}

impl std::fmt::Display for NetworkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoInterface { wanted, has } => {
                write!(f, "the machine has no interface {wanted}; it has {}", has.join(", "))
            }
            Self::NoAddress(name) => write!(f, "interface {name} has no address assigned; name its subnet"),
            Self::NoNic => f.write_str("the machine's inventory has no network interface; recommission it"),
        }
    }
}

impl std::error::Error for NetworkError {}

impl Network {
    /// Resolves a declared network against the hardware. Nothing declared is DHCP on the interface that booted.
    ///
    /// # Errors
    /// An interface that the machine does not have, or an address that was not assigned.
    pub fn resolve(
        declared: Option<&NetworkConfig>,
        inventory: &Inventory,
        assigned: &BTreeMap<String, Assigned>,
    ) -> Result<Self, NetworkError> {
        let Some(config) = declared.filter(|c| !c.interfaces.is_empty()) else {
            let nics = &inventory.nics;
            let nic = nics.iter().find(|n| n.boot).or_else(|| nics.iter().find(|n| n.link)).or(nics.first());
            let nic = nic.ok_or(NetworkError::NoNic)?;
            let dns = declared.and_then(|c| c.dns_servers.clone()).unwrap_or_default();
            let search = declared.map(search).unwrap_or_default();
            return Ok(Self { interfaces: vec![interface(nic, Method::Dhcp, None, dns, search)] });
        };
        let mut interfaces = Vec::new();
        let mut gateway_taken = false;
        for (name, wanted) in &config.interfaces {
            let nic = nic(name, wanted, inventory)?;
            let given = assigned.get(name);
            let mut dns = config.dns_servers.clone();
            let method = match wanted.addressing {
                Addressing::Dhcp => Method::Dhcp,
                Addressing::LinkUp => Method::LinkUp,
                Addressing::Auto | Addressing::Static => {
                    let given = given.ok_or_else(|| NetworkError::NoAddress(name.clone()))?;
                    let gateway = given.gateway.filter(|_| !gateway_taken);
                    gateway_taken |= gateway.is_some();
                    dns = dns.or_else(|| Some(given.dns_servers.clone()));
                    Method::Static { address: (given.address, given.prefix_len), gateway }
                }
            };
            let (dns, search) = match method {
                Method::LinkUp => (Vec::new(), Vec::new()),
                _ => (dns.unwrap_or_default(), search(config)),
            };
            let mtu = wanted.mtu.or_else(|| given.and_then(|g| g.mtu));
            interfaces.push(interface(nic, method, mtu, dns, search));
        }
        Ok(Self { interfaces })
    }
}

fn search(config: &NetworkConfig) -> Vec<String> {
    config.search.iter().map(ToString::to_string).collect()
}

fn interface(
    nic: &Nic,
    method: Method,
    mtu: Option<u32>,
    dns_servers: Vec<IpAddr>,
    search: Vec<String>,
) -> Interface {
    Interface { name: nic.name.clone(), mac: nic.mac.to_ascii_lowercase(), method, mtu, dns_servers, search }
}

fn nic<'a>(name: &str, wanted: &InterfaceConfig, inventory: &'a Inventory) -> Result<&'a Nic, NetworkError> {
    let found = match &wanted.mac {
        Some(mac) => inventory.nics.iter().find(|n| n.mac.eq_ignore_ascii_case(&mac.to_string())),
        None => inventory.nics.iter().find(|n| n.name == name),
    };
    found.ok_or_else(|| NetworkError::NoInterface {
        wanted: wanted.mac.map_or(name.to_owned(), |mac| format!("{name} ({mac})")),
        has: inventory.nics.iter().map(|n| format!("{} ({})", n.name, n.mac)).collect(),
    })
}
