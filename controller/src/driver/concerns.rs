//! What racks are told, rendered from what is declared and decided. Pure, but for opening secrets.
//!
//! Everything is in a fixed order: the same state has the same bytes, and the same bytes get no new generation.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use basalt_api::kinds::{ImagePurpose, IpRangeSpec, MachineSpec, RangePurpose};
use basalt_api::values::{Attempt, MachineId};
use basalt_db::{Address, ConcernWrite, Object, Store, StoreError};
use basalt_engine::plan::BootAction;
use basalt_proto::rack_v1::{
    AddressRange, Blob, Bmc, BootConcern, BootMachine, DhcpConcern, DhcpSubnet, EphemeralBoot, ImagesConcern,
    LocalBoot, PowerConcern, PowerOffBoot, Reservation, boot_machine,
};
use prost::Message;

use super::estate::{self, RackSeen};
use super::load::{Estate, spec};

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
) -> Result<(), StoreError> {
    for name in ["dhcp", "images", "power", "boot"] {
        for _ in 0..TRIES {
            // Read before what it is rendered from, so that whoever renders from newer state wins.
            let base = store.concern_generation(rack.uid, name).await?;
            let estate = Estate::load(store, sessions).await?;
            let body = match name {
                "dhcp" => {
                    dhcp(&estate, rack, &ranges(store).await?, &store.addresses().await?).encode_to_vec()
                }
                "images" => images(&estate).encode_to_vec(),
                "power" => power(store).await?.encode_to_vec(),
                _ => boot(store).await?.encode_to_vec(),
            };
            if !matches!(store.put_concern(rack.uid, name, base, &body).await?, ConcernWrite::Stale(_)) {
                break;
            }
        }
    }
    Ok(())
}

/// A range of a subnet, with the subnet's name.
async fn ranges(store: &Store) -> Result<Vec<(String, IpRangeSpec)>, StoreError> {
    let objects = store.all("IpRange").await?;
    let live = objects.iter().filter(|o| o.deletion_requested_at.is_none());
    let mut ranges = Vec::new();
    for object in live {
        let uids = store.references(object.uid).await?;
        let subnet = uids.get("/subnet").map(ToString::to_string).unwrap_or_default();
        ranges.push((subnet, spec(object)?));
    }
    Ok(ranges)
}

fn dhcp(
    estate: &Estate,
    rack: &RackSeen,
    ranges: &[(String, IpRangeSpec)],
    addresses: &[Address],
) -> DhcpConcern {
    let mut subnets = Vec::new();
    for net in &estate.nets {
        let serving = estate::racks_of(net, &estate.racks);
        let Some(rank) = serving.iter().position(|other| other.uid == rack.uid) else { continue };
        let uid = net.uid.to_string();
        let dynamic =
            ranges.iter().filter(|(subnet, range)| *subnet == uid && range.purpose == RangePurpose::Dynamic);
        let blocks = dynamic.filter_map(|(_, range)| block(range.start, range.end, rank, serving.len()));
        let reservations = addresses.iter().filter(|a| a.subnet == net.uid).filter_map(|a| {
            let hostname = a.hostname.clone().unwrap_or_default();
            Some(Reservation { mac: a.mac.clone()?, address: a.address.to_string(), hostname })
        });
        subnets.push(DhcpSubnet {
            subnet_uid: uid.clone(),
            cidr: net.subnet.cidr.to_string(),
            gateway: net.subnet.gateway.map(|g| g.to_string()).unwrap_or_default(),
            dns_servers: list(net.subnet.dns_servers.as_deref()),
            ntp_servers: list(net.subnet.ntp_servers.as_deref()),
            dynamic: blocks.collect(),
            reservations: reservations.collect(),
            lease_seconds: u32::try_from(net.vlan.dhcp.lease_time.get().as_secs()).unwrap_or(u32::MAX),
            mtu: if net.vlan.mtu == 1500 { 0 } else { net.vlan.mtu },
            domain: String::new(),
        });
    }
    DhcpConcern { subnets, serve_unknown: true }
}

fn list<T: ToString>(items: Option<&[T]>) -> Vec<String> {
    items.unwrap_or_default().iter().map(ToString::to_string).collect()
}

/// The rack's own block of a dynamic range: racks that cannot see each other never lease the same address.
fn block(start: IpAddr, end: IpAddr, rank: usize, racks: usize) -> Option<AddressRange> {
    let (IpAddr::V4(start), IpAddr::V4(end)) = (start, end) else { return None };
    let (first, last) = (u64::from(u32::from(start)), u64::from(u32::from(end)));
    let count = last.checked_sub(first)?.checked_add(1)?;
    let (rank, racks) = (u64::try_from(rank).ok()?, u64::try_from(racks).ok()?);
    let from = first + count * rank / racks;
    let to = first + count * (rank + 1) / racks;
    let address = |n: u64| u32::try_from(n).ok().map(|n| Ipv4Addr::from(n).to_string());
    (from < to).then(|| Some(AddressRange { start: address(from)?, end: address(to - 1)? })).flatten()
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

async fn power(store: &Store) -> Result<PowerConcern, StoreError> {
    let mut bmcs = Vec::new();
    for object in store.all("Machine").await? {
        let machine: MachineSpec = spec(&object)?;
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
        });
    }
    bmcs.sort_by(|a, b| a.machine_uid.cmp(&b.machine_uid));
    Ok(PowerConcern { bmcs })
}

async fn boot(store: &Store) -> Result<BootConcern, StoreError> {
    let actions: BTreeMap<MachineId, BootAction> = store
        .boots()
        .await?
        .into_iter()
        .filter_map(|boot| Some((boot.machine, serde_json::from_value(boot.action).ok()?)))
        .collect();
    let mut machines = Vec::new();
    for object in store.all("Machine").await? {
        let machine: MachineSpec = spec(&object)?;
        let uid = MachineId::from(object.uid);
        let action = match actions.get(&uid) {
            Some(BootAction::Ephemeral(attempt)) => ephemeral(store, &object, *attempt).await?,
            Some(BootAction::PowerOff) => boot_machine::Action::PowerOff(PowerOffBoot {}),
            Some(BootAction::Local) | None => boot_machine::Action::Local(LocalBoot {}),
        };
        machines.push(BootMachine {
            machine_uid: uid.to_string(),
            name: object.name,
            macs: machine.boot_macs.iter().map(ToString::to_string).collect(),
            action: Some(action),
        });
    }
    machines.sort_by(|a, b| a.machine_uid.cmp(&b.machine_uid));
    Ok(BootConcern { machines, enlist: None })
}

/// An attempt, exactly as it was armed.
async fn ephemeral(
    store: &Store,
    machine: &Object,
    attempt: Attempt,
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
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn racks_get_disjoint_blocks_that_cover_the_range() {
        let (start, end) = ("10.0.0.10".parse().unwrap(), "10.0.0.19".parse().unwrap());
        let blocks: Vec<_> = (0..3).filter_map(|rank| block(start, end, rank, 3)).collect();
        let text: Vec<_> = blocks.iter().map(|b| format!("{}-{}", b.start, b.end)).collect();
        assert_eq!(text, ["10.0.0.10-10.0.0.12", "10.0.0.13-10.0.0.15", "10.0.0.16-10.0.0.19"]);
    }

    #[test]
    fn a_range_smaller_than_the_number_of_racks_leaves_some_without() {
        let one = "10.0.0.10".parse().unwrap();
        assert_eq!((0..3).filter_map(|rank| block(one, one, rank, 3)).count(), 1);
    }
}
