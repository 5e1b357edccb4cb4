//! The network of an installed system, resolved: each interface by its MAC address, each address with its prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use basalt_api::agent::{Inventory, Nic};
use basalt_api::kinds::{Addressing, BondConfig, BridgeConfig, Link, NetworkConfig};
use basalt_api::values::Cidr;
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// Those of the machine, bonds, bridges, VLANs; each sort in the order of their names.
    pub interfaces: Vec<Interface>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// As the inventory has it, or as it is declared.
    pub name: String,
    /// What it is made of.
    pub made_of: MadeOf,
    /// How it gets its address.
    pub method: Method,
    /// Whether it takes what IPv6 routers announce. None: as the system does by itself.
    pub accept_ra: Option<bool>,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
    /// DNS servers beyond those that DHCP gives.
    pub dns_servers: Vec<IpAddr>,
    /// Domains to search.
    pub search: Vec<String>,
    /// Routes that leave by it.
    pub routes: Vec<Route>,
}

/// What an interface is made of. Others are named as [`Interface::name`].
#[derive(Clone, Debug, PartialEq)]
pub enum MadeOf {
    /// Hardware with this MAC address: lower-case, colons.
    Nic(String),
    /// Several interfaces that work as one.
    Bond {
        /// They.
        members: Vec<String>,
        /// The one of them that comes first.
        primary: Option<String>,
        /// How.
        config: BondConfig,
    },
    /// Ports.
    Bridge {
        /// They.
        members: Vec<String>,
        /// How.
        config: BridgeConfig,
    },
    /// What another one carries under a tag.
    Vlan {
        /// That one.
        parent: String,
        /// The tag's number.
        vid: u16,
    },
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it leads.
    pub to: Cidr,
    /// The router.
    pub via: IpAddr,
    /// Of several the least.
    pub metric: Option<u32>,
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
    /// What is built would be called as one of the machine's own interfaces is.
    NameTaken(String),
    /// The inventory has no interface at all.
    NoNic,
}

impl std::fmt::Display for NetworkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoInterface { wanted, has } => {
                write!(f, "the machine has no interface {wanted}; it has {}", has.join(", "))
            }
            Self::NameTaken(name) => {
                write!(
                    f,
                    "{name} is the name of one of the machine's own interfaces; call what is built of them otherwise"
                )
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
        let Some(config) = declared.filter(|c| c.links().next().is_some()) else {
            let nics = &inventory.nics;
            let nic = nics.iter().find(|n| n.boot).or_else(|| nics.iter().find(|n| n.link)).or(nics.first());
            let nic = nic.ok_or(NetworkError::NoNic)?;
            return Ok(Self {
                interfaces: vec![Interface {
                    name: nic.name.clone(),
                    made_of: made_of(nic),
                    method: Method::Dhcp,
                    accept_ra: None,
                    mtu: None,
                    dns_servers: declared.and_then(|c| c.dns_servers.clone()).unwrap_or_default(),
                    search: declared.map(search).unwrap_or_default(),
                    routes: Vec::new(),
                }],
            });
        };
        let called = names(config, inventory)?;
        let mut interfaces = Vec::new();
        let declares_default = |v4: bool| {
            config
                .routes
                .values()
                .any(|route| route.destination.prefix_len() == 0 && route.gateway.is_ipv4() == v4)
        };
        let mut gateway_taken = false;
        for link in config.links() {
            let given = assigned.get(link.name);
            let mut dns = config.dns_servers.clone();
            let method = match link.addressing {
                Addressing::Dhcp => Method::Dhcp,
                Addressing::LinkUp => Method::LinkUp,
                Addressing::Auto | Addressing::Static => {
                    let given = given.ok_or_else(|| NetworkError::NoAddress(link.name.to_owned()))?;
                    let gateway =
                        given.gateway.filter(|it| !gateway_taken && !declares_default(it.is_ipv4()));
                    gateway_taken |= gateway.is_some();
                    dns = dns.or_else(|| Some(given.dns_servers.clone()));
                    Method::Static { address: (given.address, given.prefix_len), gateway }
                }
            };
            let (dns_servers, search) = match method {
                Method::LinkUp => (Vec::new(), Vec::new()),
                _ => (dns.unwrap_or_default(), search(config)),
            };
            interfaces.push(Interface {
                name: renamed(&called, link.name),
                made_of: built(config, &link, inventory, &called)?,
                method,
                accept_ra: link.accept_ra,
                mtu: link.mtu.or_else(|| given.and_then(|g| g.mtu)),
                dns_servers,
                search,
                routes: routes(config, link.name),
            });
        }
        Ok(Self { interfaces })
    }
}

/// What the interfaces of the machine are called, by the names they are declared under.
fn names<'a>(
    config: &'a NetworkConfig,
    inventory: &Inventory,
) -> Result<BTreeMap<&'a str, String>, NetworkError> {
    let declared = config.links().filter(|link| config.interfaces.contains_key(link.name));
    let called: BTreeMap<_, _> = declared
        .map(|link| Ok((link.name, nic(&link, inventory)?.name.clone())))
        .collect::<Result<_, NetworkError>>()?;
    let built = config.links().filter(|link| !config.interfaces.contains_key(link.name));
    for link in built {
        if called.values().any(|name| name == link.name) {
            return Err(NetworkError::NameTaken(link.name.to_owned()));
        }
    }
    Ok(called)
}

fn renamed(called: &BTreeMap<&str, String>, name: &str) -> String {
    called.get(name).cloned().unwrap_or_else(|| name.to_owned())
}

fn built(
    config: &NetworkConfig,
    link: &Link<'_>,
    inventory: &Inventory,
    called: &BTreeMap<&str, String>,
) -> Result<MadeOf, NetworkError> {
    let members = |of: &BTreeSet<String>| of.iter().map(|name| renamed(called, name)).collect();
    let (bond, bridge, vlan) =
        (config.bonds.get(link.name), config.bridges.get(link.name), config.vlans.get(link.name));
    Ok(match (bond, bridge, vlan) {
        (Some(bond), ..) => {
            let primary = bond.primary.as_ref().map(|name| renamed(called, name));
            MadeOf::Bond { members: members(&bond.members), primary, config: bond.clone() }
        }
        (_, Some(bridge), _) => MadeOf::Bridge { members: members(&bridge.members), config: bridge.clone() },
        (_, _, Some(vlan)) => MadeOf::Vlan { parent: renamed(called, &vlan.parent), vid: vlan.vid },
        _ => made_of(nic(link, inventory)?),
    })
}

fn routes(config: &NetworkConfig, name: &str) -> Vec<Route> {
    let of = config.routes.values().filter(|route| route.interface == name);
    of.map(|route| Route { to: route.destination, via: route.gateway, metric: route.metric }).collect()
}

fn made_of(nic: &Nic) -> MadeOf {
    MadeOf::Nic(nic.mac.to_ascii_lowercase())
}

fn search(config: &NetworkConfig) -> Vec<String> {
    config.search.iter().map(ToString::to_string).collect()
}

fn nic<'a>(wanted: &Link<'_>, inventory: &'a Inventory) -> Result<&'a Nic, NetworkError> {
    let name = wanted.name;
    let found = match wanted.mac {
        Some(mac) => inventory.nics.iter().find(|n| n.mac.eq_ignore_ascii_case(&mac.to_string())),
        None => inventory.nics.iter().find(|n| n.name == name),
    };
    found.ok_or_else(|| NetworkError::NoInterface {
        wanted: wanted.mac.map_or(name.to_owned(), |mac| format!("{name} ({mac})")),
        has: inventory.nics.iter().map(|n| format!("{} ({})", n.name, n.mac)).collect(),
    })
}
