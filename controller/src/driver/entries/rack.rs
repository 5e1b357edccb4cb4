//! The concerns of one rack. Some are rendered from the topology; those about machines are composed of entries. The concerns of all racks
//! are in `common`.
//!
//! Everything is in a fixed order: the same state gives the same bytes, and the same bytes get no new generation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use basalt_api::kinds::{BootMode, Loader};
use basalt_api::values::{Generation, RackId, SubnetId};
use basalt_db::{Address, ConcernWrite, Delegation, Entry, ServedSubnet, Store, StoreError};
use basalt_proto::rack_v1::{
    AddressRange, Bmc, BootAnswers, BootConcern, BootLoader, BootMachine, ClientOptions, DhcpConcern,
    DhcpSubnet, PowerConcern, RawOption, Reservation, Route,
};
use prost::Message;
use serde::Deserialize;
use serde_json::Value;

use crate::driver::entries::{TRIES, append, dhcp6, enlist, time};
use crate::driver::machine::entries::{BOOT, POWER};
use crate::driver::meters::Meters;
use crate::driver::topology::Topology;
use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::{self, Net, RackSeen, RouteSeen, of_family};
use crate::driver::topology::ntp;

/// The interval at which the entries of a concern are read although they are not due: a region of an older version sets no marks.
const ANEW: Duration = Duration::from_secs(300);

/// A concern without its entries, encoded.
async fn rest(store: &Store, rack: &RackSeen, estate: &Estate, name: &str) -> Result<Vec<u8>, StoreError> {
    Ok(match name {
        "dhcp" => {
            store.delegate(&served(estate)).await?;
            let delegation = store.delegation(rack.uid).await?;
            let serves = |net: &&Net| {
                network::racks_of(net, &estate.nets, &estate.racks).iter().any(|it| it.uid == rack.uid)
            };
            let subnets: Vec<SubnetId> = estate.nets.iter().filter(serves).map(|net| net.uid).collect();
            let addresses = store.addresses_in(&subnets).await?;
            let clients = store.dhcp_clients().await?;
            dhcp(estate, rack, &delegation, &addresses, &clients).encode_to_vec()
        }
        BOOT => {
            let enlist = enlist::concern(store, estate, rack).await?;
            BootConcern { machines: Vec::new(), enlist }.encode_to_vec()
        }
        "time" => time::time(estate, rack).encode_to_vec(),
        _ => {
            let networks = estate.settings.bmc_networks.iter().map(ToString::to_string);
            let reading_ms = estate.settings.power_reading.as_secs().saturating_mul(1000);
            PowerConcern { bmcs: Vec::new(), networks: networks.collect(), reading_ms }.encode_to_vec()
        }
    })
}

/// The version of a rack's concern that this process wrote last, with its bytes without the entries. A concern of entries is written again
/// if the version or these bytes differ, if its entries are due, or after [`ANEW`]. Cheap to clone; the clones share it.
#[derive(Clone, Debug, Default)]
pub struct WrittenConcerns(Arc<Mutex<Versions>>);

/// By rack and name of its concern: the generation, the bytes without the entries, and the time.
type Versions = HashMap<Place, (Generation, Vec<u8>, Instant)>;
/// A rack and the name of its concern.
type Place = (RackId, &'static str);

impl WrittenConcerns {
    /// Renders and writes every concern of one rack.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn write(
        &self,
        store: &Store,
        topology: &Topology,
        meters: &Meters,
        rack: &RackSeen,
    ) -> Result<(), StoreError> {
        // The marks are read before the data: a change that comes later wakes the rack again.
        let due = store.due_concerns(rack.uid).await?;
        for name in ["dhcp", "time", POWER, BOOT] {
            for _ in 0..TRIES {
                // The generation is read before the data: a process that renders newer data wins.
                let base = store.concern_generation(rack.uid, name).await?;
                let estate = topology.estate(store).await?;
                let rest = rest(store, rack, &estate, name).await?;
                // Most reconciliations of a rack change nothing.
                let entries = match name {
                    POWER | BOOT if !due.contains(name) && self.is((rack.uid, name), (base, &rest)) => break,
                    POWER | BOOT => Some(store.entries_for(rack.uid, name).await?),
                    _ if store.is_told(rack.uid, name, &rest).await? => break,
                    _ => None,
                };
                let composed =
                    entries.as_ref().map(|read| composed(name, &read.entries, &rest)).transpose()?;
                let body = composed.as_ref().unwrap_or(&rest);
                match store.put_concern(rack.uid, name, base, body, entries.as_ref()).await? {
                    ConcernWrite::Stale(_) => meters.conflict("concern"),
                    ConcernWrite::Unchanged(at) | ConcernWrite::Written(at) => {
                        if entries.is_some() {
                            self.note((rack.uid, name), (at, rest));
                        }
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn is(&self, place: Place, (generation, rest): (Generation, &[u8])) -> bool {
        let is_same = |written: &(Generation, Vec<u8>, Instant)| {
            written.0 == generation && written.1 == rest && written.2.elapsed() < ANEW
        };
        self.lock().get(&place).is_some_and(is_same)
    }

    fn note(&self, place: Place, (generation, rest): (Generation, Vec<u8>)) {
        self.lock().insert(place, (generation, rest, Instant::now()));
    }

    /// Removes what is kept of a deleted rack.
    pub(crate) fn forget(&self, rack: RackId) {
        self.lock().retain(|place, _| place.0 != rack);
    }

    fn lock(&self) -> MutexGuard<'_, Versions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn dhcp(
    estate: &Estate,
    rack: &RackSeen,
    delegation: &Delegation,
    addresses: &[Address],
    clients: &[Value],
) -> DhcpConcern {
    let mut subnets = Vec::new();
    for net in estate.nets.iter().filter(|net| net.subnet.cidr.network().is_ipv4()) {
        let serving = network::racks_of(net, &estate.nets, &estate.racks);
        if !serving.iter().any(|other| other.uid == rack.uid) {
            continue;
        }
        let uid = net.uid.to_string();
        let racks = own_addresses(estate);
        let blocks = delegation.blocks.iter().filter(|block| block.subnet == net.uid);
        let dynamic = blocks.flat_map(|block| around(block.first, block.last, &racks));
        subnets.push(DhcpSubnet {
            subnet_uid: uid,
            cidr: net.subnet.cidr.to_string(),
            gateway: net.subnet.gateway.map(|g| g.to_string()).unwrap_or_default(),
            dns_servers: of_family::<Ipv4Addr, _>(Some(&name_servers(estate, net, rack))),
            ntp_servers: ntp::servers(net, rack.uid, &serving),
            dynamic: dynamic.collect(),
            reservations: reservations(estate, net, addresses),
            lease_seconds: lease_seconds(net),
            mtu: if net.vlan.mtu == 1500 { 0 } else { net.vlan.mtu },
            routes: estate.routes.iter().filter(|route| route.source == net.uid).filter_map(route).collect(),
            boot: boot_answers(net).into(),
            architectures: net.subnet.boot.architectures.iter().map(ToString::to_string).collect(),
            shared: serving.len() > 1,
            link: net.subnet.vlan.to_string(),
            loader: boot_loader(estate, net).into(),
            search: net.subnet.search_domains.iter().map(ToString::to_string).collect(),
            options: options([&net.vlan.dhcp.options, &net.subnet.dhcp_options]),
            ..DhcpSubnet::default()
        });
    }
    let subnets6 = dhcp6::subnets(estate, rack, delegation, addresses);
    let client_options = of_clients(clients);
    let racks = if subnets.is_empty() { Vec::new() } else { answering(estate) };
    DhcpConcern {
        subnets,
        serve_unknown: true,
        delegation: delegation.number,
        client_options,
        racks,
        subnets6,
    }
}

/// The DNS servers that a rack sends to clients of a subnet.
pub(crate) fn name_servers(estate: &Estate, net: &Net, rack: &RackSeen) -> Vec<IpAddr> {
    network::name_servers(net, &estate.nets, &estate.racks, Some(rack.uid))
}

/// The addresses at which racks answer DHCPv4, in order.
fn answering(estate: &Estate) -> Vec<String> {
    let served = estate.racks.iter().flat_map(|rack| &rack.served);
    let served: BTreeSet<&IpAddr> = served.filter(|it| it.is_ipv4() && !it.is_loopback()).collect();
    served.into_iter().map(ToString::to_string).collect()
}

pub(crate) const fn boot_answers(net: &Net) -> BootAnswers {
    match net.subnet.boot.mode {
        BootMode::Dhcp => BootAnswers::Unspecified,
        BootMode::Proxy => BootAnswers::Proxy,
        BootMode::None => BootAnswers::None,
    }
}

/// The first boot loader for x86-64 UEFI in this network.
pub(crate) fn boot_loader(estate: &Estate, net: &Net) -> BootLoader {
    match net.vlan.loader.unwrap_or(estate.settings.loader) {
        Loader::Ipxe => BootLoader::Unspecified,
        Loader::ShimGrub => BootLoader::ShimGrub,
    }
}

/// A route in the form of DHCPv4; `None` for an IPv6 route.
fn route(route: &RouteSeen) -> Option<Route> {
    let is_ipv4 = route.gateway.is_ipv4() && route.destination.network().is_ipv4();
    is_ipv4.then(|| Route { to: route.destination.to_string(), via: route.gateway.to_string() })
}

/// The DHCP options of each client with such options, for every declared or found MAC of a machine. `clients` come from the entries.
fn of_clients(clients: &[Value]) -> Vec<ClientOptions> {
    #[derive(Deserialize)]
    struct Client {
        macs: Vec<String>,
        dhcp: Dhcp,
    }
    #[derive(Deserialize)]
    struct Dhcp {
        options: BTreeMap<String, String>,
        found: Vec<String>,
    }
    let (mut found, mut declared) = (BTreeMap::new(), BTreeMap::new());
    for client in clients.iter().filter_map(|says| Client::deserialize(says).ok()) {
        let options = options([&client.dhcp.options]);
        found.extend(client.dhcp.found.into_iter().map(|mac| (mac, options.clone())));
        declared.extend(client.macs.into_iter().map(|mac| (mac, options.clone())));
    }
    // A MAC belongs to the machine that declares it, even if the card was found in another one.
    let clients: BTreeMap<_, _> = found.into_iter().chain(declared).collect();
    clients.into_iter().map(|(mac, options)| ClientOptions { mac, options }).collect()
}

/// The merged options. If several have the same number, the last one is used.
fn options<'a>(declared: impl IntoIterator<Item = &'a BTreeMap<String, String>>) -> Vec<RawOption> {
    let declared: BTreeMap<_, _> = declared.into_iter().flatten().collect();
    declared.into_iter().filter_map(|(code, value)| option(code, value)).collect()
}

/// An option by its number; `None` for a value that validation would have refused.
fn option(code: &str, value: &str) -> Option<RawOption> {
    let addresses = value.split(',').map(|part| part.trim().parse::<Ipv4Addr>());
    let value = match value.strip_prefix("hex:") {
        Some(digits) => hex::decode(digits).ok()?,
        None => match addresses.collect::<Result<Vec<_>, _>>() {
            Ok(addresses) => addresses.iter().flat_map(Ipv4Addr::octets).collect(),
            Err(_) => value.as_bytes().to_vec(),
        },
    };
    Some(RawOption { code: code.parse().ok()?, value })
}

/// The racks that answer DHCP on each subnet, for the division of ranges.
fn served(estate: &Estate) -> Vec<ServedSubnet> {
    let one = |net: &Net| {
        let racks =
            network::racks_of(net, &estate.nets, &estate.racks).into_iter().filter(|_| net.gives_addresses());
        let racks = racks.map(|rack| rack.uid).collect();
        ServedSubnet { subnet: net.uid, racks, lease_seconds: lease_seconds(net) }
    };
    estate.nets.iter().map(one).collect()
}

/// The addresses of all racks: a rack knows only its own.
pub(crate) fn own_addresses(estate: &Estate) -> BTreeSet<IpAddr> {
    estate.racks.iter().flat_map(|rack| rack.addresses.clone()).collect()
}

pub(crate) fn lease_seconds(net: &Net) -> u32 {
    u32::try_from(net.vlan.dhcp.lease_time.get().as_secs()).unwrap_or(u32::MAX)
}

fn reservations(estate: &Estate, net: &Net, addresses: &[Address]) -> Vec<Reservation> {
    let reservation = |(mac, address): (&str, &Address)| Reservation {
        mac: mac.to_owned(),
        address: address.address.to_string(),
        hostname: address.hostname.clone().unwrap_or_default(),
    };
    reserved(estate, net, addresses).into_iter().map(reservation).collect()
}

/// The owned addresses of a subnet that racks may lease. An address of a rack is left out.
pub(crate) fn leasable<'a>(
    estate: &'a Estate,
    net: &'a Net,
    addresses: &'a [Address],
) -> impl Iterator<Item = &'a Address> {
    let of_racks = own_addresses(estate);
    let is_rack = move |address: IpAddr| {
        of_racks.contains(&address) && network::rack_at(net, address, &estate.nets, &estate.racks).is_some()
    };
    addresses.iter().filter(move |it| it.subnet == net.uid && !is_rack(it.address))
}

/// The addresses of a subnet that belong to one client each, in the order of clients.
pub(crate) fn reserved<'a>(
    estate: &'a Estate,
    net: &'a Net,
    addresses: &'a [Address],
) -> BTreeMap<&'a str, &'a Address> {
    let ipv6 = net.subnet.cidr.network().is_ipv6();
    let here = leasable(estate, net, addresses).filter(|it| it.address.is_ipv6() == ipv6);
    // DHCP gives a client one address per subnet: a declared one comes before a deployment's.
    let mut by_mac: BTreeMap<&str, &Address> = BTreeMap::new();
    for address in here {
        let Some(mac) = address.mac.as_deref() else { continue };
        let first = by_mac.entry(mac).or_insert(address);
        if address.declared && !first.declared {
            *first = address;
        }
    }
    by_mac
}

/// The parts of a block without these addresses.
pub(crate) fn around(first: IpAddr, last: IpAddr, without: &BTreeSet<IpAddr>) -> Vec<AddressRange> {
    let mut parts = Vec::new();
    let mut next = Some(first);
    let mut until = |start: Option<IpAddr>, end: Option<IpAddr>| {
        if let (Some(start), Some(end)) = (start, end)
            && start <= end
        {
            parts.push(AddressRange { start: start.to_string(), end: end.to_string() });
        }
    };
    for &address in without.range(first..=last) {
        until(next, beside(address, u32::checked_sub, u128::checked_sub));
        next = beside(address, u32::checked_add, u128::checked_add);
    }
    until(next, Some(last));
    parts
}

/// The next or the previous address.
fn beside(
    address: IpAddr,
    v4: fn(u32, u32) -> Option<u32>,
    v6: fn(u128, u128) -> Option<u128>,
) -> Option<IpAddr> {
    match address {
        IpAddr::V4(it) => v4(it.into(), 1).map(|it| Ipv4Addr::from(it).into()),
        IpAddr::V6(it) => v6(it.into(), 1).map(|it| Ipv6Addr::from(it).into()),
    }
}

/// A concern of entries: each entry is one message of the list that the concern starts with, and `rest` is encoded after the list.
fn composed(name: &str, entries: &[Entry], rest: &[u8]) -> Result<Vec<u8>, StoreError> {
    let mut body = Vec::new();
    for Entry { object, body: entry, .. } in entries {
        let read = match name {
            POWER => Bmc::decode(entry.as_slice()).map(drop),
            _ => BootMachine::decode(entry.as_slice()).map(drop),
        };
        read.map_err(|error| StoreError::Corrupt(format!("an entry of {object}: {error}")))?;
        append(entry, &mut body);
    }
    body.extend_from_slice(rest);
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_addresses_bytes_or_a_text() {
        let value = |text: &str| option("150", text).map(|option| option.value);
        assert_eq!(value("10.77.0.5"), Some(vec![10, 77, 0, 5]));
        assert_eq!(value("10.77.0.5, 10.77.0.6"), Some(vec![10, 77, 0, 5, 10, 77, 0, 6]));
        assert_eq!(value("hex:0a4D"), Some(vec![10, 77]));
        assert_eq!(value("tftp.example.com"), Some(b"tftp.example.com".to_vec()));
        assert_eq!((value("hex:0"), option("x", "y")), (None, None));
    }

    #[test]
    fn a_block_goes_around_the_addresses_of_racks() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let text = |racks: &[&str]| {
            let racks = racks.iter().map(|rack| rack.parse().unwrap()).collect();
            let parts = around(ip("10.0.0.10"), ip("10.0.0.19"), &racks);
            parts.iter().map(|p| format!("{}-{}", p.start, p.end)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text(&["10.0.0.9", "10.0.0.20", "fd00::1"]), "10.0.0.10-10.0.0.19");
        assert_eq!(text(&["10.0.0.10", "10.0.0.15", "10.0.0.19"]), "10.0.0.11-10.0.0.14 10.0.0.16-10.0.0.18");
        assert_eq!(text(&["10.0.0.12", "10.0.0.13"]), "10.0.0.10-10.0.0.11 10.0.0.14-10.0.0.19");
        let parts = around(ip("fd00::"), ip("fd00::ffff"), &[ip("fd00::"), ip("10.0.0.1")].into());
        assert_eq!((parts[0].start.as_str(), parts[0].end.as_str()), ("fd00::1", "fd00::ffff"));
    }
}
