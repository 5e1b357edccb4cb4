//! What racks are told, rendered from what is declared and decided. Pure, but for opening secrets.
//!
//! Everything is in a fixed order: the same state has the same bytes, and the same bytes get no new generation.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use basalt_api::kinds::{BmcTls, BootMode, ImagePurpose, Loader, MachineSpec, MachineStatus};
use basalt_api::values::{Attempt, Cidr, MachineId};
use basalt_db::{Address, BootClaim, ConcernWrite, Delegation, Object, ServedSubnet, Store, StoreError};
use basalt_engine::plan::BootAction;
use basalt_proto::rack_v1::bmc::Trust;
use basalt_proto::rack_v1::{
    AddressRange, Blob, Bmc, BootAnswers, BootConcern, BootLoader, BootMachine, ClientOptions, DhcpConcern,
    DhcpSubnet, EphemeralBoot, ImagesConcern, LocalBoot, PowerConcern, PowerOffBoot, RawOption, Reservation,
    Route, boot_machine,
};
use prost::Message;

use super::concerns6;
use super::estate::{self, Net, RackSeen, RouteSeen};
use super::load::{Estate, readable};
use super::meters::Meters;

/// Another writer may come first this often.
const TRIES: usize = 8;

/// Renders and writes every concern of a rack.
///
/// # Errors
/// The database.
pub async fn write(
    store: &Store,
    rack: &RackSeen,
    sessions: &crate::racks::sessions::Sessions,
    meters: &Meters,
) -> Result<(), StoreError> {
    for name in ["dhcp", "images", "power", "boot"] {
        for _ in 0..TRIES {
            // Read before what it is rendered from, so that whoever renders from newer state wins.
            let base = store.concern_generation(rack.uid, name).await?;
            let estate = Estate::load(store, sessions).await?;
            let body = match name {
                "dhcp" => {
                    store.delegate(&served(&estate)).await?;
                    let delegation = store.delegation(rack.uid).await?;
                    let (addresses, machines) = (store.addresses().await?, store.all("Machine").await?);
                    dhcp(&estate, rack, &delegation, &addresses, machines).encode_to_vec()
                }
                "images" => images(&estate).encode_to_vec(),
                "power" => power(store, &estate.settings.bmc_networks).await?.encode_to_vec(),
                _ => boot(store, &estate).await?.encode_to_vec(),
            };
            if !matches!(store.put_concern(rack.uid, name, base, &body).await?, ConcernWrite::Stale(_)) {
                break;
            }
            meters.conflict("concern");
        }
    }
    Ok(())
}

fn dhcp(
    estate: &Estate,
    rack: &RackSeen,
    delegation: &Delegation,
    addresses: &[Address],
    machines: Vec<Object>,
) -> DhcpConcern {
    let mut subnets = Vec::new();
    for net in estate.nets.iter().filter(|net| net.subnet.cidr.network().is_ipv4()) {
        let serving = estate::racks_of(net, &estate.nets, &estate.racks);
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
            dns_servers: of_family::<Ipv4Addr, _>(net.subnet.dns_servers.as_deref()),
            ntp_servers: of_family::<Ipv4Addr, _>(net.subnet.ntp_servers.as_deref()),
            dynamic: dynamic.collect(),
            reservations: reservations(net, addresses),
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
    let subnets6 = concerns6::subnets(estate, rack, delegation, addresses);
    let client_options = of_clients(machines);
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

/// Where racks answer DHCPv4, in order.
fn answering(estate: &Estate) -> Vec<String> {
    let served = estate.racks.iter().flat_map(|rack| &rack.served);
    let served: BTreeSet<&IpAddr> = served.filter(|it| it.is_ipv4() && !it.is_loopback()).collect();
    served.into_iter().map(ToString::to_string).collect()
}

pub(super) const fn boot_answers(net: &Net) -> BootAnswers {
    match net.subnet.boot.mode {
        BootMode::Dhcp => BootAnswers::Unspecified,
        BootMode::Proxy => BootAnswers::Proxy,
        BootMode::None => BootAnswers::None,
    }
}

/// What x86-64 UEFI loads first there.
pub(super) fn boot_loader(estate: &Estate, net: &Net) -> BootLoader {
    match net.vlan.loader.unwrap_or(estate.settings.loader) {
        Loader::Ipxe => BootLoader::Unspecified,
        Loader::ShimGrub => BootLoader::ShimGrub,
    }
}

/// A route as DHCPv4 tells it; `None` of one of IPv6.
fn route(route: &RouteSeen) -> Option<Route> {
    let is_ipv4 = route.gateway.is_ipv4() && route.destination.network().is_ipv4();
    is_ipv4.then(|| Route { to: route.destination.to_string(), via: route.gateway.to_string() })
}

/// Options of each client that a machine has some for: of every MAC that is declared or was found.
fn of_clients(machines: Vec<Object>) -> Vec<ClientOptions> {
    let (mut found, mut declared) = (BTreeMap::new(), BTreeMap::new());
    for (object, machine) in readable::<MachineSpec>(machines) {
        if machine.dhcp_options.is_empty() {
            continue;
        }
        let options = options([&machine.dhcp_options]);
        let status: MachineStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
        let interfaces = status.inventory.into_iter().flat_map(|it| it.interfaces.into_values());
        found.extend(interfaces.map(|it| (it.mac, options.clone())));
        declared.extend(machine.boot_macs.into_iter().map(|mac| (mac, options.clone())));
    }
    // A card that was moved is where it is declared.
    let clients: BTreeMap<_, _> = found.into_iter().chain(declared).collect();
    clients.into_iter().map(|(mac, options)| ClientOptions { mac: mac.to_string(), options }).collect()
}

/// The options of all of these, of one number the last.
fn options<'a>(declared: impl IntoIterator<Item = &'a BTreeMap<String, String>>) -> Vec<RawOption> {
    let declared: BTreeMap<_, _> = declared.into_iter().flatten().collect();
    declared.into_iter().filter_map(|(code, value)| option(code, value)).collect()
}

/// An option by its number; `None` of one that validation would have refused.
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

/// Who answers DHCP where, for the division of ranges.
fn served(estate: &Estate) -> Vec<ServedSubnet> {
    let one = |net: &Net| {
        let racks =
            estate::racks_of(net, &estate.nets, &estate.racks).into_iter().filter(|_| net.gives_addresses());
        let racks = racks.map(|rack| rack.uid).collect();
        ServedSubnet { subnet: net.uid, racks, lease_seconds: lease_seconds(net) }
    };
    estate.nets.iter().map(one).collect()
}

/// Those of all racks: one knows its own, and not the others'.
pub(super) fn own_addresses(estate: &Estate) -> BTreeSet<IpAddr> {
    estate.racks.iter().flat_map(|rack| rack.addresses.clone()).collect()
}

pub(super) fn lease_seconds(net: &Net) -> u32 {
    u32::try_from(net.vlan.dhcp.lease_time.get().as_secs()).unwrap_or(u32::MAX)
}

fn reservations(net: &Net, addresses: &[Address]) -> Vec<Reservation> {
    let reservation = |(mac, address): (&str, &Address)| Reservation {
        mac: mac.to_owned(),
        address: address.address.to_string(),
        hostname: address.hostname.clone().unwrap_or_default(),
    };
    reserved(net, addresses).into_iter().map(reservation).collect()
}

/// The addresses of a subnet that are of one client each, in the order of the clients.
pub(super) fn reserved<'a>(net: &Net, addresses: &'a [Address]) -> BTreeMap<&'a str, &'a Address> {
    let ipv6 = net.subnet.cidr.network().is_ipv6();
    let here = addresses.iter().filter(|it| it.subnet == net.uid && it.address.is_ipv6() == ipv6);
    // DHCP gives a client one address of a subnet: what is declared comes before what a deployment has.
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

/// A block without these addresses.
pub(super) fn around(first: IpAddr, last: IpAddr, without: &BTreeSet<IpAddr>) -> Vec<AddressRange> {
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

/// The address one further, or one before.
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

/// Of servers, those that are addresses of this family: DHCP of it tells no others.
pub(super) fn of_family<A: FromStr, T: ToString>(servers: Option<&[T]>) -> Vec<String> {
    let texts = servers.unwrap_or_default().iter().map(ToString::to_string);
    texts.filter(|text| text.parse::<A>().is_ok()).collect()
}

fn images(estate: &Estate) -> ImagesConcern {
    let mut blobs = BTreeMap::new();
    for image in &estate.images {
        for (role, file) in &image.spec.files {
            if let Some(size) = image.held.get(role) {
                let prefetch = image.spec.purpose == ImagePurpose::Ephemeral;
                let sha256 = file.sha256.to_string();
                blobs.insert(sha256.clone(), Blob { sha256, size: *size, prefetch });
            }
        }
    }
    ImagesConcern { blobs: blobs.into_values().collect() }
}

async fn power(store: &Store, networks: &BTreeSet<Cidr>) -> Result<PowerConcern, StoreError> {
    let mut bmcs = Vec::new();
    for (object, machine) in readable::<MachineSpec>(store.all("Machine").await?) {
        let Some(bmc) = machine.bmc.filter(|bmc| estate::has_driver(bmc.driver)) else { continue };
        let password = store.open_secret(object.uid, "/bmc/password").await?;
        bmcs.push(Bmc {
            machine_uid: object.uid.to_string(),
            driver: bmc.driver.to_string(),
            address: bmc.address.map(|a| a.to_string()).unwrap_or_default(),
            port: bmc.port.map_or(0, u32::from),
            username: bmc.username.unwrap_or_default(),
            password: password.map(|p| String::from_utf8_lossy(&p).into_owned()).unwrap_or_default(),
            cipher_suite: bmc.options.cipher_suite.map_or(0, u32::from),
            generation: object.generation.get(),
            system: bmc.options.system.unwrap_or_default(),
            trust: bmc.tls.and_then(trust),
            privilege: bmc.options.privilege.map(|it| it.to_string()).unwrap_or_default(),
        });
    }
    bmcs.sort_by(|a, b| a.machine_uid.cmp(&b.machine_uid));
    Ok(PowerConcern { bmcs, networks: networks.iter().map(ToString::to_string).collect() })
}

/// Which certificate of a BMC is believed; None: the first that the rack sees. The first that applies counts, which is what
/// validation leaves.
fn trust(tls: BmcTls) -> Option<Trust> {
    Some(match (tls.verify, tls.fingerprint, tls.ca) {
        (false, ..) => Trust::Unverified(true),
        (true, Some(sha256), _) => Trust::Sha256(sha256.bytes().to_vec()),
        (true, None, Some(ca)) => Trust::Ca(ca),
        (true, None, None) => Trust::HostRoots(true),
    })
}

async fn boot(store: &Store, estate: &Estate) -> Result<BootConcern, StoreError> {
    let actions: BTreeMap<MachineId, (BootAction, Option<BootClaim>)> = store
        .boots()
        .await?
        .into_iter()
        .filter_map(|boot| Some((boot.machine, (serde_json::from_value(boot.action).ok()?, boot.claim))))
        .collect();
    let (addresses, claimed_at) = (store.addresses().await?, store.claimed_at().await?);
    let mut declared: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
    for address in addresses.iter().filter(|it| it.declared) {
        declared.entry(address.mac.as_deref().unwrap_or_default()).or_default().push(address.address);
    }
    let mut machines = Vec::new();
    for (object, machine) in readable::<MachineSpec>(store.all("Machine").await?) {
        let uid = MachineId::from(object.uid);
        let macs: Vec<_> = machine.boot_macs.iter().map(ToString::to_string).collect();
        let reserved = macs.iter().filter_map(|mac| declared.get(mac.as_str())).flatten();
        let stands_at: Vec<_> = reserved.chain(claimed_at.get(&uid)).copied().collect();
        let action = match actions.get(&uid) {
            Some((BootAction::Ephemeral(attempt), claim)) => {
                let claim = claim.as_ref().filter(|claim| claim.attempt == *attempt);
                ephemeral(store, &object, *attempt, claim).await?
            }
            Some((BootAction::PowerOff, _)) => boot_machine::Action::PowerOff(PowerOffBoot {}),
            Some((BootAction::Local, _)) | None => boot_machine::Action::Local(LocalBoot {}),
        };
        machines.push(BootMachine {
            machine_uid: uid.to_string(),
            name: object.name,
            macs,
            networks: networks(&estate.nets, &stands_at),
            action: Some(action),
        });
    }
    machines.sort_by(|a, b| a.machine_uid.cmp(&b.machine_uid));
    Ok(BootConcern { machines, enlist: None })
}

/// All subnets of the VLANs in which one of these addresses is and machines boot; none, if there is no such VLAN.
fn networks(nets: &[Net], stands_at: &[IpAddr]) -> Vec<String> {
    let has_one = |net: &&Net| net.boots() && stands_at.iter().any(|at| net.subnet.cidr.contains(*at));
    let vlans: BTreeSet<&str> = nets.iter().filter(has_one).map(|net| net.subnet.vlan.as_str()).collect();
    let of_these = nets.iter().filter(|net| vlans.contains(net.subnet.vlan.as_str()));
    let networks: BTreeSet<_> = of_these.map(|net| net.subnet.cidr.to_string()).collect();
    networks.into_iter().collect()
}

/// An attempt, exactly as it was armed, and who has claimed it.
async fn ephemeral(
    store: &Store,
    machine: &Object,
    attempt: Attempt,
    claim: Option<&BootClaim>,
) -> Result<boot_machine::Action, StoreError> {
    let missing =
        || StoreError::Corrupt(format!("attempt {attempt} of machine {:?} has no record", machine.name));
    let rows = store.steps(machine.uid, 1000).await?;
    let row = rows.into_iter().find(|row| row.attempt == Some(attempt) && row.detail.get("task").is_some());
    let row = row.ok_or_else(missing)?;
    let key = store.attempt_key(MachineId::from(machine.uid), attempt).await?.ok_or_else(missing)?;
    let text = |part: &str| row.detail.get(part).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    let task = row.detail.get("task").ok_or_else(missing)?;
    let not_after = task.get("not_after_unix_ms").and_then(serde_json::Value::as_i64).unwrap_or_default();
    Ok(boot_machine::Action::Ephemeral(EphemeralBoot {
        attempt: attempt.get(),
        not_after_unix_ms: not_after,
        kernel_sha256: text("kernel"),
        initrd_sha256: text("initrd"),
        squashfs_sha256: text("squashfs"),
        kernel_options: text("kernel_options"),
        attempt_key: key.to_vec(),
        task_json: task.to_string().into_bytes(),
        step_key: row.step_key,
        claimed_by: claim.map(|claim| claim.boot_id.clone()).unwrap_or_default(),
    }))
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
