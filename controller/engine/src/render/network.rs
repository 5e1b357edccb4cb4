//! The resolved network of an installed system: each interface by its MAC address, each address with its prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use basalt_api::FieldError;
use basalt_api::agent::{Inventory, Nic};
use basalt_api::kinds::{
    Addressing, BondConfig, BridgeConfig, Link, LinkAddress, NetworkConfig, SubnetFacts, is_on_link,
};
use basalt_api::values::Cidr;
use serde::{Deserialize, Serialize};

/// An address that the region has assigned to an interface, with values of its subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assigned {
    /// The assigned address.
    pub address: IpAddr,
    /// Length of its subnet's prefix.
    pub prefix_len: u8,
    /// The subnet's gateway.
    pub gateway: Option<IpAddr>,
    /// The subnet's DNS servers.
    pub dns_servers: Vec<IpAddr>,
    /// The subnet's NTP servers: names or addresses.
    pub ntp_servers: Vec<String>,
    /// The VLAN's MTU, if it is not the default.
    pub mtu: Option<u32>,
    /// The subnet's static routes, one to each network.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// The subnet's search domains.
    #[serde(default)]
    pub search_domains: Vec<String>,
}

impl Assigned {
    /// The network of the address. `None`: the prefix is longer than the address.
    fn network(&self) -> Option<Cidr> {
        Cidr::containing(self.address, self.prefix_len).ok()
    }

    fn subnet(&self) -> Option<SubnetFacts> {
        Some(SubnetFacts { cidr: self.network()?, mtu: self.mtu.unwrap_or(DEFAULT_MTU) })
    }
}

/// Ethernet's largest packet, in bytes.
const DEFAULT_MTU: u32 = 1500;

/// All configured interfaces of a system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// First the machine's own interfaces, then bonds, bridges and VLANs; each group in the order of names.
    pub interfaces: Vec<Interface>,
}

/// One configured interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// The name, from the inventory or from the declaration.
    pub name: String,
    /// The kind of the interface, with the interfaces below it.
    pub made_of: MadeOf,
    /// The interface's addresses. `None`: the interface is up, without addresses.
    pub addresses: Option<Addresses>,
    /// True to accept router advertisements of IPv6, false to ignore them. `None`: the system's default.
    pub accept_ra: Option<bool>,
    /// The largest packet, in bytes.
    pub mtu: Option<u32>,
    /// DNS servers in addition to those from DHCP.
    pub dns_servers: Vec<IpAddr>,
    /// DNS search domains: those of the declaration, else those of the subnets of its addresses. DHCP may add others.
    pub search: Vec<String>,
    /// The routes through this interface.
    pub routes: Vec<Route>,
}

/// The kind of an interface, with the interfaces below it, as in [`Interface::name`].
#[derive(Clone, Debug, PartialEq)]
pub enum MadeOf {
    /// Hardware with this MAC address: lower-case, colons.
    Nic(String),
    /// Several interfaces that act as one.
    Bond {
        /// The names of the members.
        members: Vec<String>,
        /// The member that is preferred.
        primary: Option<String>,
        /// The bond's options.
        config: BondConfig,
    },
    /// A bridge between interfaces.
    Bridge {
        /// The names of the ports.
        members: Vec<String>,
        /// The bridge's options.
        config: BridgeConfig,
    },
    /// A VLAN on another interface.
    Vlan {
        /// The name of the interface below.
        parent: String,
        /// The VLAN id.
        vid: u16,
    },
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination network.
    pub to: Cidr,
    /// The router's address.
    pub via: IpAddr,
    /// True if the router is on the link but in no network of the interface.
    pub on_link: bool,
    /// The metric; of several routes, the one with the lowest metric is used.
    pub metric: Option<u32>,
}

/// The sources of an interface's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// True to use DHCPv4.
    pub dhcp: bool,
    /// True to use DHCPv6.
    pub dhcp6: bool,
    /// The static addresses.
    pub fixed: Vec<Fixed>,
}

/// A static address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The name of a further address of the interface; `None` for the first address.
    pub name: Option<String>,
    /// The address itself.
    pub address: IpAddr,
    /// Length of its subnet's prefix.
    pub prefix_len: u8,
    /// The default gateway. At most one address of each IP version has it.
    pub gateway: Option<IpAddr>,
    /// True if the gateway is on the link but in no network of the interface.
    pub on_link: bool,
}

/// The reason why a network cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// The inventory has no interface of this name or MAC address.
    NoInterface {
        /// The declared name or MAC address.
        wanted: String,
        /// The interfaces of the inventory.
        has: Vec<String>,
    },
    /// A static or automatic address has not been assigned by the region.
    NoAddress {
        /// The address's purpose: the interface's name, and for a further address `INTERFACE/NAME`.
        purpose: String,
    },
    /// Linux cannot have this network. The errors are those of a write of the network.
    Contradictory(Vec<FieldError>),
    /// A declared interface has the name of one of the machine's own interfaces.
    NameTaken(String),
    /// Two declared names mean one network card.
    SameCard {
        /// The card's name in the inventory.
        card: String,
        /// The declared names.
        declared: [String; 2],
    },
    /// The inventory has no interface at all, or there is no inventory.
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
            Self::Contradictory(errors) => {
                let error = |error: &FieldError| match &error.hint {
                    Some(hint) => format!("{}: {}; {hint}", error.pointer, error.message),
                    None => format!("{}: {}", error.pointer, error.message),
                };
                f.write_str(&errors.iter().map(error).collect::<Vec<_>>().join(". "))
            }
            Self::NoAddress { purpose } => write!(f, "interface {purpose} has no address yet"),
            Self::SameCard { card, declared: [one, other] } => {
                write!(f, "{one} and {other} are one interface of the machine, {card}; declare it once")
            }
            Self::NoNic => f.write_str("the machine's network interfaces are unknown"),
        }
    }
}

impl std::error::Error for NetworkError {}

impl Network {
    /// Resolves a declared network for an install, and refuses a network that Linux cannot have.
    ///
    /// # Errors
    /// The errors of [`Self::resolve`]. [`NetworkError::Contradictory`]: the network contradicts itself or the subnets of its addresses.
    pub fn resolve_checked(
        declared: Option<&NetworkConfig>,
        inventory: &Inventory,
        assigned: &BTreeMap<String, Assigned>,
    ) -> Result<Self, NetworkError> {
        let network = Self::resolve(declared, inventory, assigned)?;
        let errors = declared.map(|config| config.contradictions(&|one| subnet(one, assigned)));
        match errors.unwrap_or_default() {
            none if none.is_empty() => Ok(network),
            errors => Err(NetworkError::Contradictory(errors)),
        }
    }

    /// Resolves a declared network against the hardware. Without a declaration, the interface that booted uses DHCP. Contradictions are no
    /// error here: a running system keeps its addresses when the MTU of a Vlan changes.
    ///
    /// # Errors
    /// Fails if an interface does not exist, or if an address is not assigned.
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
                    addresses: Some(Addresses { dhcp: true, ..Addresses::default() }),
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
        let mtus = config.mtus(&|one| subnet(one, assigned));
        let mut routed = Routed::of(config, assigned);
        for link in config.links() {
            let given = given(&link, assigned)?;
            let addresses =
                (link.addressing != Addressing::LinkUp).then(|| addresses(&link, &given, &mut routed));
            let has = |way| link.addresses().any(|one| one.addressing == way);
            let (mut dns_servers, mut domains) = (Vec::new(), Vec::new());
            if addresses.is_some() {
                dns_servers = match &config.dns_servers {
                    Some(declared) => declared.clone(),
                    None => unique(&given, |given| &given.dns_servers),
                };
                domains = match config.search.is_empty() {
                    true => unique(&given, |given| &given.search_domains),
                    false => search(config),
                };
            }
            interfaces.push(Interface {
                name: renamed(&called, link.name),
                made_of: built(config, &link, inventory, &called)?,
                addresses,
                accept_ra: link.accept_ra.or_else(|| has(Addressing::Slaac).then_some(true)),
                mtu: mtu(config, &link, &given, &mtus),
                dns_servers,
                search: domains,
                routes: routes(config, link.name, &given, &mut routed),
            });
        }
        Ok(Self { interfaces })
    }
}

/// The subnet of an address.
fn subnet(one: &LinkAddress<'_>, assigned: &BTreeMap<String, Assigned>) -> Option<SubnetFacts> {
    assigned.get(&one.purpose).and_then(Assigned::subnet)
}

/// The MTU to render. A VLAN or bridge takes the MTU of the interfaces below it. In a subnet of the default MTU, it gets the
/// smaller of both.
fn mtu(
    config: &NetworkConfig,
    link: &Link<'_>,
    given: &[Given<'_>],
    mtus: &BTreeMap<&str, u32>,
) -> Option<u32> {
    let inherits = config.vlans.contains_key(link.name) || config.bridges.contains_key(link.name);
    let inherited = || mtus.get(link.name).copied().filter(|_| inherits && !given.is_empty());
    link.mtu.or_else(|| given.iter().find_map(|(_, given)| given.mtu)).or_else(inherited)
}

/// An interface's address, and what the region has assigned for it.
type Given<'a> = (LinkAddress<'a>, &'a Assigned);

/// The addresses that the region has assigned to an interface.
fn given<'a>(
    link: &Link<'a>,
    assigned: &'a BTreeMap<String, Assigned>,
) -> Result<Vec<Given<'a>>, NetworkError> {
    let given = link.addresses().filter(|one| one.addressing.is_given());
    let given = given.map(|one| match assigned.get(&one.purpose) {
        Some(assigned) => Ok((one, assigned)),
        None => Err(NetworkError::NoAddress { purpose: one.purpose }),
    });
    given.collect()
}

fn addresses(link: &Link<'_>, given: &[Given<'_>], routed: &mut Routed) -> Addresses {
    let has = |way| link.addresses().any(|one| one.addressing == way);
    let networks = networks(given);
    let fixed = given.iter().map(|(one, given)| {
        let gateway = given.gateway.filter(|gateway| routed.takes(*gateway));
        Fixed {
            name: one.name.map(str::to_owned),
            address: given.address,
            prefix_len: given.prefix_len,
            gateway,
            on_link: gateway.is_some_and(|gateway| is_on_link(&networks, gateway)),
        }
    });
    Addresses { fixed: fixed.collect(), dhcp: has(Addressing::Dhcp), dhcp6: has(Addressing::Dhcp6) }
}

/// The networks of the assigned addresses.
fn networks(given: &[Given<'_>]) -> Vec<Cidr> {
    given.iter().filter_map(|(_, given)| given.network()).collect()
}

/// The values of an interface's subnets, each once.
fn unique<T: Clone + PartialEq>(given: &[Given<'_>], of: impl Fn(&Assigned) -> &Vec<T>) -> Vec<T> {
    let mut values = Vec::new();
    for value in given.iter().flat_map(|(_, given)| of(given)) {
        if !values.contains(value) {
            values.push(value.clone());
        }
    }
    values
}

/// The routes that a system has already.
struct Routed {
    /// True: there is a default route of IPv4.
    ipv4: bool,
    /// True: there is a default route of IPv6.
    ipv6: bool,
    /// The networks of declared routes, and those that the system is in itself.
    networks: BTreeSet<String>,
    /// The networks of the subnets' routes, with their metrics.
    of_subnets: BTreeSet<(String, Option<u32>)>,
}

impl Routed {
    /// The declared routes, which replace those of subnets, and the networks of the assigned addresses.
    fn of(config: &NetworkConfig, assigned: &BTreeMap<String, Assigned>) -> Self {
        let declares = |ipv4: bool| {
            let mut routes = config.routes.values();
            routes.any(|route| route.destination.prefix_len() == 0 && route.gateway.is_ipv4() == ipv4)
        };
        let declared = config.routes.values().map(|route| route.destination);
        let networks = declared.chain(assigned.values().filter_map(Assigned::network));
        let networks = networks.map(|network| network.to_string()).collect();
        Self { ipv4: declares(true), ipv6: declares(false), networks, of_subnets: BTreeSet::new() }
    }

    /// True if this gateway becomes the default route of its IP version.
    const fn takes(&mut self, gateway: IpAddr) -> bool {
        let taken = if gateway.is_ipv4() { &mut self.ipv4 } else { &mut self.ipv6 };
        !std::mem::replace(taken, true)
    }
}

/// The machine's names of interfaces, by their declared names. No two declared names mean one interface.
fn names<'a>(
    config: &'a NetworkConfig,
    inventory: &Inventory,
) -> Result<BTreeMap<&'a str, String>, NetworkError> {
    let declared = config.links().filter(|link| config.interfaces.contains_key(link.name));
    let called: BTreeMap<_, _> = declared
        .map(|link| Ok((link.name, nic(&link, inventory)?.name.clone())))
        .collect::<Result<_, NetworkError>>()?;
    let mut cards = BTreeMap::new();
    for (declared, card) in &called {
        if let Some(other) = cards.insert(card.as_str(), *declared) {
            let declared = [other.to_owned(), (*declared).to_owned()];
            return Err(NetworkError::SameCard { card: card.clone(), declared });
        }
    }
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

/// The routes that leave by an interface: the declared ones, then those of its subnets.
///
/// - A declared route replaces a subnet's route to the same network.
/// - If several interfaces are in a subnet, the first one gets the subnet's routes.
/// - A subnet's route to a network that the system itself is in is left out: with it, neighbours would be reached through a router.
fn routes(config: &NetworkConfig, name: &str, given: &[Given<'_>], routed: &mut Routed) -> Vec<Route> {
    let networks = networks(given);
    let of = config.routes.values().filter(|route| route.interface == name);
    let declared = of.map(|route| Route {
        to: route.destination,
        via: route.gateway,
        on_link: route.on_link || is_on_link(&networks, route.gateway),
        metric: route.metric,
    });
    let of_subnets = given.iter().flat_map(|(_, given)| &given.routes);
    let of_subnets = of_subnets.filter(|route| {
        let to = route.to.to_string();
        !routed.networks.contains(&to) && routed.of_subnets.insert((to, route.metric))
    });
    let of_subnets =
        of_subnets.map(|route| Route { on_link: is_on_link(&networks, route.via), ..route.clone() });
    declared.chain(of_subnets).collect()
}

fn made_of(nic: &Nic) -> MadeOf {
    MadeOf::Nic(nic.mac.to_ascii_lowercase())
}

fn search(config: &NetworkConfig) -> Vec<String> {
    config.search.iter().map(ToString::to_string).collect()
}

fn nic<'a>(wanted: &Link<'_>, inventory: &'a Inventory) -> Result<&'a Nic, NetworkError> {
    if inventory.nics.is_empty() {
        return Err(NetworkError::NoNic);
    }
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
