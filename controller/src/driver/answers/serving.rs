//! The state of DHCP on VLANs, subnets and IpAddresses, with advice if no rack answers or no address is free. It only reads.
//!
//! VLANs, subnets and IpAddresses are not reconciled. Their state depends on racks, and is computed when they are read.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use basalt_api::kinds::{Condition, ConditionStatus, VlanSpec};
use basalt_api::values::Timestamp;
use basalt_db::StoreError;

use crate::driver::context::Driver;
use crate::driver::topology::network::{self, Net, RackSeen};

/// A rack counts as away after this time without a link. Links break and return, and a region that has just started has none.
const AWAY: Duration = Duration::from_secs(60);

/// The networks, and the racks that serve them.
#[derive(Clone, Debug)]
pub struct Network {
    /// Subnets with their VLANs.
    pub nets: Arc<[Net]>,
    /// The racks with their reports.
    pub racks: Vec<RackSeen>,
    /// The earliest time of the data.
    pub now: Timestamp,
}

/// The effect of the state on the condition Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Ready: the object does what its spec declares.
    Fine,
    /// Not ready, but it may become ready by itself.
    Waits,
    /// Not ready until a person acts.
    Stalled,
}

/// A statement about a VLAN, a subnet or an IpAddress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The effect on the condition Ready.
    pub readiness: Readiness,
    /// The reason, for programs.
    pub reason: &'static str,
    /// The state and the advice, for people.
    pub message: String,
    /// Since when, if known.
    pub since: Option<Timestamp>,
}

impl Finding {
    fn new(readiness: Readiness, reason: &'static str, message: String) -> Self {
        Self { readiness, reason, message, since: None }
    }

    /// The conditions with this statement.
    #[must_use]
    pub fn conditions(&self, declared: Timestamp) -> [Condition; 3] {
        let condition = |kind: &str, holds| Condition {
            kind: kind.to_owned(),
            status: if holds { ConditionStatus::True } else { ConditionStatus::False },
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            since: self.since.unwrap_or(declared),
            deadline: None,
        };
        [
            condition(Condition::READY, self.readiness == Readiness::Fine),
            condition(Condition::PROGRESSING, self.readiness == Readiness::Waits),
            condition(Condition::STALLED, self.readiness == Readiness::Stalled),
        ]
    }
}

impl Network {
    /// Reads the networks and racks.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn load(driver: &Driver) -> Result<Self, StoreError> {
        // The time is read first: the later reads contain everything from before.
        let now = driver.store.now().await?;
        let estate = driver.estate().await?;
        Ok(Self { nets: estate.nets, racks: estate.racks, now })
    }

    /// The statement about a VLAN, which may differ from the stored one, and the racks that now answer on the VLAN. `None` if DHCP is off.
    #[must_use]
    pub fn vlan(&self, name: &str, vlan: &VlanSpec) -> Option<(Finding, Vec<&RackSeen>)> {
        if !vlan.dhcp.enabled {
            return None;
        }
        let here = self.nets.iter().filter(|net| net.subnet.vlan.as_str() == name);
        let nets: Vec<Net> = here.map(|net| Net { vlan: vlan.clone(), ..net.clone() }).collect();
        if nets.is_empty() {
            let message =
                "DHCP is enabled here, and racks give addresses of Subnets: declare one with this vlan";
            return Some((Finding::new(Readiness::Stalled, "NoSubnet", message.to_owned()), Vec::new()));
        }
        let mut serving: BTreeMap<_, &RackSeen> = BTreeMap::new();
        for net in &nets {
            serving
                .extend(network::racks_of(net, &nets, &self.racks).into_iter().map(|rack| (rack.uid, rack)));
        }
        let serving: Vec<&RackSeen> = serving.into_values().collect();
        let there: Vec<&RackSeen> = serving.iter().copied().filter(|rack| rack.connected.is_some()).collect();
        let finding = self.absent(&nets, &serving).unwrap_or_else(|| {
            let ill: Vec<(&str, Finding)> = nets
                .iter()
                .filter_map(|net| Some((net.name.as_str(), self.short(net, &nets)?)))
                .filter(|(_, finding)| finding.readiness != Readiness::Fine)
                .collect();
            match ill.first() {
                None => Finding::new(
                    Readiness::Fine,
                    "Served",
                    format!("DHCP is answered here by {}", names(&serving)),
                ),
                Some((_, first)) => {
                    let said: Vec<String> = ill
                        .iter()
                        .map(|(name, finding)| format!("Subnet {name:?}: {}", finding.message))
                        .collect();
                    let readiness = if ill.len() == nets.len() { first.readiness } else { Readiness::Fine };
                    Finding { since: first.since, ..Finding::new(readiness, first.reason, said.join(". ")) }
                }
            }
        });
        Some((finding, there))
    }

    /// The statement about a stored subnet. `None` if DHCP is off.
    #[must_use]
    pub fn subnet(&self, net: &Net) -> Option<Finding> {
        if !net.vlan.dhcp.enabled {
            return None;
        }
        let serving = network::racks_of(net, &self.nets, &self.racks);
        self.absent(std::slice::from_ref(net), &serving).or_else(|| self.short(net, &self.nets))
    }

    /// The statement about an IpAddress that keeps an address for a client, if a rack has the address as its own. `subnet` is the name of
    /// its subnet.
    #[must_use]
    pub fn reserved(&self, subnet: &str, address: IpAddr) -> Option<Finding> {
        let net = self.nets.iter().find(|net| net.name == subnet)?;
        let rack = network::rack_at(net, address, &self.nets, &self.racks)?;
        let message = format!(
            "{address} is the address of Rack {:?} itself, so DHCP gives it to no client. Declare another address here, or give the rack another \
             one",
            rack.name
        );
        Some(Finding::new(Readiness::Stalled, "RackHasAddress", message))
    }

    /// The reason why no rack answers in these networks, which share a VLAN, although these racks should.
    fn absent(&self, nets: &[Net], serving: &[&RackSeen]) -> Option<Finding> {
        let is_here = |rack: &RackSeen| {
            rack.connected.is_some()
                || self.now.duration_since(rack.last_seen) < AWAY.try_into().unwrap_or_default()
        };
        let here: Vec<&&RackSeen> = serving.iter().filter(|rack| is_here(rack)).collect();
        let why_not = |rack: &&&RackSeen| {
            rack.gives_no_address.as_ref().map(|why| format!("rack {} says: {why}", rack.name))
        };
        let said: Vec<String> = here.iter().filter_map(why_not).collect();
        if said.len() < here.len() {
            return None;
        }
        if !said.is_empty() {
            return Some(Finding::new(Readiness::Stalled, "DiskFails", said.join(". ")));
        }
        if let Some(last) = serving.iter().map(|rack| rack.last_seen).max() {
            let message = format!(
                "DHCP is answered here by {}, and no region has heard of them since {last}: one that runs goes on with what it was told. \
                 Look at basalt-rack there, and at its way to the region",
                names(serving)
            );
            return Some(Finding {
                since: Some(last),
                ..Finding::new(Readiness::Waits, "RacksAway", message)
            });
        }
        Some(Finding::new(Readiness::Stalled, "NotServed", self.unserved(nets)?))
    }

    /// The reason why no rack is to answer in these networks, with advice.
    fn unserved(&self, nets: &[Net]) -> Option<String> {
        let dhcp = &nets.first()?.vlan.dhcp;
        let set_aside = |rack: &&RackSeen| rack.maintenance;
        let is_in = |address: &IpAddr| nets.iter().any(|net| net.subnet.cidr.contains(*address));
        let cidrs: Vec<String> = nets.iter().map(|net| net.subnet.cidr.to_string()).collect();
        let cidrs = cidrs.join(" or ");
        if !dhcp.racks.is_empty() {
            let named = |name: &str| self.racks.iter().find(|rack| rack.name == name);
            let each: Vec<String> = dhcp
                .racks
                .iter()
                .map(|name| match named(name.as_str()) {
                    None => format!("{name} is not enrolled"),
                    Some(_) => format!("{name} is in maintenance"),
                })
                .collect();
            return Some(format!(
                "nobody answers DHCP here: of the racks that dhcp.racks of the Vlan names, {}. End the maintenance, or name racks that serve; \
                 with none named every rack answers that has an address in {cidrs}",
                each.join(" and ")
            ));
        }
        let there: Vec<&RackSeen> =
            self.racks.iter().filter(set_aside).filter(|rack| rack.served.iter().any(is_in)).collect();
        if !there.is_empty() {
            return Some(format!(
                "nobody answers DHCP here: {} in maintenance, and no other rack has an address in {cidrs}",
                is_or_are(&there)
            ));
        }
        let beside = self.racks.iter().filter(|rack| rack.addresses.iter().any(is_in));
        let beside: Vec<&RackSeen> = beside.collect();
        if !beside.is_empty() {
            return Some(format!(
                "nobody answers DHCP here: rack {} has an address in {cidrs}, on an interface that it does not serve. Name that interface as \
                 --interface of basalt-rack",
                names(&beside)
            ));
        }
        Some(format!(
            "nobody answers DHCP here: no rack has an address in {cidrs} on an interface that it serves. Give a rack one (basalt-rack --interface), \
             or name in dhcp.racks of the Vlan the racks that a relay passes requests on to"
        ))
    }

    /// The reports that no address of the network is free, from racks that serve it.
    fn short(&self, net: &Net, nets: &[Net]) -> Option<Finding> {
        let serving = network::racks_of(net, nets, &self.racks);
        let cidr = net.subnet.cidr.to_string();
        let said: Vec<_> =
            serving.iter().filter_map(|rack| Some((rack.name.as_str(), rack.short.get(&cidr)?))).collect();
        let since = said.iter().map(|(_, short)| short.since).max()?;
        let words: Vec<String> =
            said.iter().map(|(rack, short)| format!("rack {rack} says: {}", short.message)).collect();
        // If other racks have free addresses, clients get those.
        let readiness = if said.len() == serving.len() { Readiness::Waits } else { Readiness::Fine };
        Some(Finding { since: Some(since), ..Finding::new(readiness, "NoFreeAddress", words.join(". ")) })
    }
}

fn names(racks: &[&RackSeen]) -> String {
    let names: Vec<&str> = racks.iter().map(|rack| rack.name.as_str()).collect();
    names.join(" and ")
}

fn is_or_are(racks: &[&RackSeen]) -> String {
    format!("{} {}", names(racks), if racks.len() == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::topology::samples::rack_at;
    use crate::driver::topology::services::Short;
    use basalt_api::kinds::SubnetSpec;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millisecond(second * 1000).unwrap()
    }

    fn rack(name: &str, address: &str, is_connected: bool) -> RackSeen {
        let number = name.bytes().last().unwrap().into();
        RackSeen {
            name: name.to_owned(),
            connected: is_connected.then_some(at(0)),
            last_seen: at(0),
            ..rack_at(number, &[address])
        }
    }

    fn network(racks: Vec<RackSeen>) -> Network {
        let mut vlan = VlanSpec::new("lab".parse().unwrap(), 0);
        vlan.dhcp.enabled = true;
        let subnet = SubnetSpec::new("lab.0".parse().unwrap(), "10.77.0.0/24".parse().unwrap());
        let uid = uuid::Uuid::from_u128(9).into();
        let net = Net { uid, name: "lab".to_owned(), subnet, vlan, fabric_class: None };
        Network { nets: [net].into(), racks, now: at(1000) }
    }

    fn vlan(network: &Network) -> (&'static str, Readiness, String) {
        let vlan = network.nets[0].vlan.clone();
        let (finding, _) = network.vlan("lab.0", &vlan).unwrap();
        (finding.reason, finding.readiness, finding.message)
    }

    #[test]
    fn a_vlan_that_a_rack_serves_says_by_whom() {
        let network = network(vec![rack("r1", "10.77.0.2", true), rack("r2", "10.88.0.2", true)]);
        assert_eq!(vlan(&network), ("Served", Readiness::Fine, "DHCP is answered here by r1".to_owned()));
        assert_eq!(network.subnet(&network.nets[0]), None);
        let mut off = network.nets[0].vlan.clone();
        off.dhcp.enabled = false;
        assert!(network.vlan("lab.0", &off).is_none(), "nobody is to answer");
        assert_eq!(network.vlan("lab.7", &network.nets[0].vlan).unwrap().0.reason, "NoSubnet");
    }

    #[test]
    fn each_reason_that_nobody_serves_a_vlan_has_its_own_sentence() {
        let named = |names: &[&str], racks| {
            let mut network = network(racks);
            let named = names.iter().map(|name| name.parse().unwrap()).collect();
            Arc::make_mut(&mut network.nets)[0].vlan.dhcp.racks = named;
            network
        };
        let aside = || RackSeen { maintenance: true, ..rack("r1", "10.77.0.2", true) };
        let unserved = || RackSeen { served: Vec::new(), ..rack("r1", "10.77.0.2", true) };
        let far = || rack("r1", "10.88.0.2", true);
        for (network, expected) in [
            (network(Vec::new()), "no rack has an address in 10.77.0.0/24 on an interface that it serves"),
            (network(vec![far()]), "no rack has an address in 10.77.0.0/24 on an interface that it serves"),
            (
                network(vec![unserved()]),
                "rack r1 has an address in 10.77.0.0/24, on an interface that it does not serve",
            ),
            (network(vec![aside()]), "r1 is in maintenance, and no other rack has an address"),
            (named(&["r1", "r9"], vec![aside()]), "names, r1 is in maintenance and r9 is not enrolled"),
        ] {
            let (reason, readiness, message) = vlan(&network);
            assert_eq!((reason, readiness), ("NotServed", Readiness::Stalled), "{message}");
            assert!(message.contains(expected), "{message}");
            let finding = network.subnet(&network.nets[0]).unwrap();
            assert_eq!((finding.reason, finding.message), ("NotServed", message));
        }
        // Behind a relay, a rack is in another network.
        assert_eq!(vlan(&named(&["r1"], vec![far()])).0, "Served");
    }

    #[test]
    fn racks_that_are_away_may_go_on_and_are_told_of_after_a_minute() {
        let mut network = network(vec![rack("r1", "10.77.0.2", false)]);
        let (reason, readiness, message) = vlan(&network);
        assert_eq!((reason, readiness), ("RacksAway", Readiness::Waits));
        assert!(
            message.contains("by r1, and no region has heard of them since 1970-01-01T00:00:00Z"),
            "{message}"
        );
        network.now = at(59);
        assert_eq!(vlan(&network).0, "Served");
    }

    #[test]
    fn a_vlan_whose_racks_cannot_write_leases_has_nobody_who_gives_addresses() {
        let full = |name, address| RackSeen {
            gives_no_address: Some("no space".to_owned()),
            ..rack(name, address, true)
        };
        let one = network(vec![full("r1", "10.77.0.2"), rack("r2", "10.77.0.3", true)]);
        assert_eq!(vlan(&one).0, "Served");
        let all = network(vec![full("r1", "10.77.0.2"), rack("r2", "10.77.0.3", false)]);
        let said = "rack r1 says: no space".to_owned();
        assert_eq!(vlan(&all), ("DiskFails", Readiness::Stalled, said.clone()));
        assert_eq!(all.subnet(&all.nets[0]).unwrap().message, said);
    }

    #[test]
    fn a_subnet_is_short_once_all_of_its_racks_are() {
        let short = |name, address| {
            let said = Short { message: "no address is free; widen".to_owned(), since: at(7) };
            RackSeen { short: [("10.77.0.0/24".to_owned(), said)].into(), ..rack(name, address, true) }
        };
        let one = network(vec![short("r1", "10.77.0.2"), rack("r2", "10.77.0.3", true)]);
        let finding = one.subnet(&one.nets[0]).unwrap();
        assert_eq!((finding.reason, finding.readiness), ("NoFreeAddress", Readiness::Fine));
        assert_eq!(finding.message, "rack r1 says: no address is free; widen");
        assert_eq!(vlan(&one).0, "Served");
        let all = network(vec![short("r1", "10.77.0.2"), short("r9", "10.88.0.3")]);
        let finding = all.subnet(&all.nets[0]).unwrap();
        assert_eq!(
            (finding.readiness, finding.since),
            (Readiness::Waits, Some(at(7))),
            "r9 serves another subnet"
        );
        let (reason, readiness, message) = vlan(&all);
        assert_eq!((reason, readiness), ("NoFreeAddress", Readiness::Waits));
        assert!(message.starts_with("Subnet \"lab\": rack r1 says"), "{message}");
    }
}
