//! Addresses of deployments' interfaces, declared and present.

use std::collections::BTreeMap;

use basalt_api::kinds::{Link, LinkAddress, MachineSpec, NetworkConfig};
use basalt_api::pointer::child;
use basalt_api::values::{Mac, SubnetId, Uid};
use basalt_db::{Address, AddressWish, Store, StoreError};
use basalt_engine::facts::Facts;
use basalt_engine::input::{Claim, MachineInput};
use basalt_engine::render::{Assigned, Route};

use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::{Net, RouteSeen};
use crate::driver::topology::{network, ntp};

/// The declared subnets and the present addresses of a deployment.
#[derive(Debug, Default)]
pub struct Addressing {
    /// The subnets that the network names, by the pointers of their names.
    pub subnets: BTreeMap<String, Uid>,
    /// All addresses of the deployment.
    pub owned: Vec<Address>,
}

/// An address that the region must give.
pub(crate) struct Wanted<'a> {
    pub(crate) link: Link<'a>,
    pub(crate) one: LinkAddress<'a>,
    /// The declared subnet.
    subnet: Option<SubnetId>,
}

impl Wanted<'_> {
    /// True if this address satisfies the declaration.
    pub(crate) fn is(&self, address: &Address) -> bool {
        address.purpose == self.one.purpose
            && self.subnet.is_none_or(|subnet| subnet == address.subnet)
            && self.one.address.is_none_or(|declared| declared == address.address)
    }

    /// The subnet of the address.
    pub(crate) fn net<'n>(&self, nets: &'n [Net]) -> Option<&'n Net> {
        nets.iter().find(|net| match (self.subnet, self.one.address) {
            (Some(uid), _) => net.uid == uid,
            (None, Some(address)) => net.subnet.cidr.contains(address),
            (None, None) => net.gives_addresses(),
        })
    }
}

/// The subnets that a network names, by the pointers of their names. For a network outside of a spec, whose references are not stored.
pub(crate) fn by_name(network: Option<&NetworkConfig>, nets: &[Net]) -> BTreeMap<String, Uid> {
    let each = network.into_iter().flat_map(NetworkConfig::links);
    let each = each.flat_map(|link| link.addresses().map(move |one| (link, one)));
    let named = each.filter_map(|(link, one)| {
        let net = nets.iter().find(|net| one.subnet.is_some_and(|subnet| subnet.as_str() == net.name))?;
        Some((child(&link.pointer_to(&one), "subnet"), net.uid.into()))
    });
    named.collect()
}

impl Addressing {
    /// The declared addresses in the order of interfaces; of each interface the first address comes first.
    pub(crate) fn wanted<'a>(&'a self, network: &'a NetworkConfig) -> impl Iterator<Item = Wanted<'a>> {
        let each = network.links().flat_map(|link| link.addresses().map(move |one| (link, one)));
        each.filter(|(_, one)| one.addressing.is_given()).map(|(link, one)| {
            let named = self.subnets.get(&child(&link.pointer_to(&one), "subnet"));
            Wanted { link, subnet: named.map(|uid| SubnetId::from(*uid)), one }
        })
    }

    pub(crate) fn has(&self, wanted: &Wanted<'_>) -> Option<&Address> {
        self.owned.iter().find(|address| wanted.is(address))
    }

    /// The addresses that interfaces need and have, by purpose.
    #[must_use]
    pub fn assigned(&self, network: Option<&NetworkConfig>, estate: &Estate) -> BTreeMap<String, Assigned> {
        let (nets, racks) = (&estate.nets, &estate.racks);
        let wanted = network.into_iter().flat_map(|network| self.wanted(network));
        let assigned = wanted.filter_map(|wanted| {
            let own = self.has(&wanted)?;
            let net = nets.iter().find(|net| net.uid == own.subnet)?;
            let assigned = Assigned {
                address: own.address,
                prefix_len: net.subnet.cidr.prefix_len(),
                gateway: net.subnet.gateway,
                dns_servers: network::name_servers(net, nets, racks, None),
                ntp_servers: ntp::of_systems(net, estate),
                mtu: (net.vlan.mtu != 1500).then_some(net.vlan.mtu),
                routes: estate.routes.iter().filter(|it| it.source == net.uid).filter_map(route).collect(),
                search_domains: net.subnet.search_domains.iter().map(ToString::to_string).collect(),
            };
            Some((wanted.one.purpose, assigned))
        });
        assigned.collect()
    }

    /// The reasons why interfaces have no address yet, by purpose. An interface that gets its address at once has no reason.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn refusals(
        &self,
        store: &Store,
        input: &MachineInput,
        nets: &[Net],
    ) -> Result<BTreeMap<String, String>, StoreError> {
        let mut refusals = BTreeMap::new();
        let (Some(claim), Some(network)) = (&input.claim, input.network()) else { return Ok(refusals) };
        for wanted in self.wanted(network).filter(|wanted| self.has(wanted).is_none()) {
            if let Some(why) = refusal(store, input, claim, &wanted, nets).await? {
                refusals.insert(wanted.one.purpose, why);
            }
        }
        Ok(refusals)
    }
}

/// A static route, as an installed system has it. Metric 0 means no metric. `None`: the router is of the other family.
fn route(seen: &RouteSeen) -> Option<Route> {
    let metric = (seen.metric > 0).then_some(seen.metric);
    let route = Route { to: seen.destination, via: seen.gateway, on_link: false, metric };
    (route.to.network().is_ipv4() == route.via.is_ipv4()).then_some(route)
}

async fn refusal(
    store: &Store,
    input: &MachineInput,
    claim: &Claim,
    wanted: &Wanted<'_>,
    nets: &[Net],
) -> Result<Option<String>, StoreError> {
    let one = &wanted.one;
    let Some(net) = wanted.net(nets) else {
        return Ok(Some(match (one.subnet, one.address) {
            (Some(subnet), _) => format!("Subnet {:?} is not there", subnet.as_str()),
            (None, Some(address)) => format!("no Subnet has {address}: declare one, or name another address"),
            (None, None) => "racks give addresses in no Subnet: name its subnet".to_owned(),
        }));
    };
    let mac = wanted.link.mac.map(|mac| mac.to_string());
    let wish = AddressWish {
        subnet: net.uid,
        owner: claim.uid.into(),
        purpose: one.purpose.as_str(),
        address: one.address,
        mac: mac.as_deref(),
        hostname: None,
        machine_macs: &macs(&input.spec, &input.facts),
    };
    store.address_refusal(&wish).await
}

/// All known MACs of a machine.
pub(crate) fn macs(spec: &MachineSpec, facts: &Facts) -> Vec<String> {
    let booting = spec.boot_macs.iter().map(ToString::to_string);
    let inventory = facts.inventory.iter().flat_map(|seen| &seen.inventory.nics);
    let found = inventory.filter_map(|nic| nic.mac.parse::<Mac>().ok()).map(|mac| mac.to_string());
    booting.chain(found).collect()
}
