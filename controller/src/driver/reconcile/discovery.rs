//! Discoveries: undeclared DHCP servers, which racks see on links on which they grant addresses.
//!
//! The reconciliation of the rack that saw a server creates a Discovery. Its own reconciliation updates the rack and the time of the
//! last sighting. It deletes the Discovery if the server was not seen for a week, or has become known.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use basalt_api::Kind;
use basalt_api::kinds::{BootMode, Condition, DeviceSpec, DiscoverySort, DiscoveryStatus};
use basalt_api::values::Timestamp;
use basalt_db::{Key, Object, Precondition, Put, Requeue, StoreError, WorkLease, splice};

use crate::driver::context::Driver;
use crate::driver::reconcile::strangers;
use crate::driver::status::{settled, to_json};
use crate::driver::stored::readable;
use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::{Net, RackSeen};
use crate::racks::observed::{DhcpServer, Observed};

/// A server that was seen this long ago is present: racks report it every five minutes.
const THERE: Duration = Duration::from_secs(600);
/// A server that was not seen for this long is forgotten.
const FORGET: Duration = Duration::from_secs(7 * 86_400);
/// How long a client may still name a rack by a former address. A rack's report of its addresses may be as late.
const AROUND: Duration = Duration::from_secs(900);
/// The interval at which a discovery is reconciled, also if it was not seen.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// The beginning of servers' names.
const SERVER: &str = "dhcp-";
/// The largest number of servers: any host on a link can invent some.
const MOST: usize = 256;
/// The kind of facts in which racks introduce themselves.
const HELLO: &str = "hello";
/// The longest name (RFC 1123 §2.1).
const LABEL: usize = 63;

/// A rack's report of a server.
struct Sighting<'a> {
    address: IpAddr,
    net: &'a Net,
    rack: &'a RackSeen,
    at: Timestamp,
    seen: String,
}

impl Sighting<'_> {
    /// The name of the discovery. It includes the network, because several links may use the same address.
    fn name(&self) -> String {
        let address = self.address.to_string().replace(['.', ':'], "-");
        let name: String = format!("{SERVER}{address}-{}", self.net.name).chars().take(LABEL).collect();
        name.trim_end_matches('-').to_owned()
    }

    fn is_older(&self, than: Duration, now: Timestamp) -> bool {
        now.duration_since(self.at) > than.try_into().unwrap_or_default()
    }
}

/// Creates a discovery for each unknown server that the rack sees now.
pub(crate) async fn note(
    driver: &Driver,
    estate: &Estate,
    rack: &RackSeen,
    now: Timestamp,
) -> Result<(), StoreError> {
    let seen = sightings(driver, estate, rack).await?;
    let there: Vec<_> = seen.into_iter().filter(|it| !it.is_older(THERE, now)).collect();
    if there.is_empty() {
        return Ok(());
    }
    let declared = declared(driver).await?;
    let racks = Racks::load(driver, estate, now).await?;
    let known = driver.store.all("Discovery").await?;
    let servers = known.iter().filter(|object| object.name.starts_with(SERVER)).count();
    for sighting in there.iter().filter(|it| !is_known(it, &racks, &declared)) {
        let name = sighting.name();
        match known.iter().find(|object| object.name == name) {
            Some(object) => driver.store.enqueue(object.uid, Duration::ZERO).await?,
            None if servers >= MOST => {
                tracing::warn!(
                    name,
                    "there are too many discoveries of DHCP servers for another one; delete those that are dealt with"
                );
            }
            None => make(driver, &name, now).await?,
        }
    }
    Ok(())
}

pub(crate) async fn make(driver: &Driver, name: &str, now: Timestamp) -> Result<(), StoreError> {
    let corrupt = |what: String| StoreError::Corrupt(format!("Discovery {name:?}: {what}"));
    let kind = Kind::find("Discovery").ok_or_else(|| corrupt("its kind is not described".to_owned()))?;
    let spec = splice::Text::parse("{}").map_err(|error| corrupt(error.to_string()))?;
    let put = Put {
        kind,
        key: Key::Name(name),
        spec: &spec,
        at: "",
        labels: None,
        manager: Some("region"),
        adopt: true,
        precondition: Precondition::Absent,
        first_status: &crate::api::first_status(kind.name, now),
    };
    match driver.store.put(&put).await {
        // Another rack's reconciliation may have been faster.
        Ok(_) | Err(StoreError::Exists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reconciles one discovery.
///
/// # Errors
/// Fails if the database fails, or if the lease is over.
pub async fn reconcile(driver: &Driver, lease: &WorkLease) -> Result<Requeue, StoreError> {
    let Some(object) = driver.store.get_by_uid(lease.uid).await? else { return Ok(Requeue::WhenWoken) };
    if let Some(stranger) = driver.store.stranger(object.uid, &object.name).await? {
        return strangers::reconcile(driver, lease, &object, &stranger).await;
    }
    let estate = driver.estate().await?;
    let (declared, now) = (declared(driver).await?, driver.store.now().await?);
    let mut seen = Vec::new();
    for rack in &estate.racks {
        seen.extend(sightings(driver, &estate, rack).await?);
    }
    let racks = Racks::load(driver, &estate, now).await?;
    seen.retain(|it| {
        it.name() == object.name && !it.is_older(FORGET, now) && !is_known(it, &racks, &declared)
    });
    let Some(latest) = seen.iter().max_by_key(|it| it.at) else {
        let key = Key::Uid(object.uid);
        driver.store.request_deletion("Discovery", key, Precondition::None, false).await?;
        return Ok(Requeue::WhenWoken);
    };
    let status = status(&object, latest, &seen, now);
    driver.write_status(lease, object.generation, &to_json(&status)?).await?;
    Ok(Requeue::After(LOOK_AGAIN))
}

fn status(object: &Object, latest: &Sighting<'_>, seen: &[Sighting<'_>], now: Timestamp) -> DiscoveryStatus {
    let before: DiscoveryStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
    let mut status = DiscoveryStatus::default();
    status.common.observed_generation = object.generation;
    status.sort = Some(DiscoverySort::RogueDhcp);
    status.addresses = [latest.address].into();
    status.vlan = Some(latest.net.subnet.vlan.clone());
    status.racks = seen.iter().filter_map(|it| it.rack.name.parse().ok()).collect();
    status.first_seen_at = before.first_seen_at.or_else(|| seen.iter().map(|it| it.at).min());
    status.last_seen_at = Some(latest.at);
    status.common.conditions = conditions(latest, now);
    basalt_engine::machine::carry_since(&before.common.conditions, &mut status.common.conditions, now);
    status
}

fn conditions(latest: &Sighting<'_>, now: Timestamp) -> Vec<Condition> {
    let is_there = !latest.is_older(THERE, now);
    let (address, vlan) = (latest.address, &latest.net.subnet.vlan);
    let (reason, message) = if is_there {
        let message = format!(
            "{address} answers DHCP on {vlan}, where addresses are the racks' to give ({}): machines that it answers first do not boot what they \
             should. Switch it off; or declare a Device with its address; or say boot.mode = \"proxy\" on Subnet {:?}, if its addresses are to be used",
            latest.seen, latest.net.name
        );
        ("RogueDhcp", message)
    } else {
        ("Gone", format!("{address} answered DHCP on {vlan}, and has not been seen since {}", latest.at))
    };
    settled(!is_there, reason, &message, now)
}

/// The servers that a rack has reported, on declared networks.
async fn sightings<'a>(
    driver: &Driver,
    estate: &'a Estate,
    rack: &'a RackSeen,
) -> Result<Vec<Sighting<'a>>, StoreError> {
    let facts = driver.store.latest_facts(rack.uid.into()).await?;
    let sighting = |fact: &basalt_db::Fact| {
        let Some(Observed::DhcpServer(DhcpServer { address, subnet_uid, seen })) = Observed::of(fact) else {
            return None;
        };
        let net = estate.nets.iter().find(|net| subnet_uid == *net.uid.to_string())?;
        Some(Sighting { address: address.parse().ok()?, net, rack, at: fact.stored_at, seen: seen.into() })
    };
    Ok(facts.iter().filter_map(sighting).collect())
}

/// The addresses of Devices.
async fn declared(driver: &Driver) -> Result<BTreeSet<IpAddr>, StoreError> {
    let devices = readable::<DeviceSpec>(driver.store.all("Device").await?);
    Ok(devices.flat_map(|(_, device)| device.addresses).collect())
}

/// The addresses that racks have had, and when.
#[derive(Debug)]
struct Racks(Vec<Had>);

/// The time in which a rack had addresses. Without an end, it still has them.
#[derive(Debug)]
struct Had {
    from: Timestamp,
    until: Option<Timestamp>,
    addresses: BTreeSet<IpAddr>,
}

impl Racks {
    /// Reads the addresses, for all sightings that are not forgotten.
    async fn load(driver: &Driver, estate: &Estate, now: Timestamp) -> Result<Self, StoreError> {
        let mut had = Vec::new();
        let since = now.checked_sub(FORGET + AROUND).unwrap_or(Timestamp::UNIX_EPOCH);
        for rack in &estate.racks {
            let said = driver.store.facts_since(rack.uid.into(), HELLO, since).await?;
            let hellos = said.iter().filter_map(|fact| match Observed::of(fact) {
                Some(Observed::Hello(hello)) => Some((fact.stored_at, hello.addresses().collect())),
                _ => None,
            });
            had.extend(one_after_the_other(hellos.collect()));
            // If the history is not kept that long, the present addresses remain.
            had.push(Had { from: now, until: None, addresses: rack.addresses.iter().copied().collect() });
        }
        Ok(Self(had))
    }

    /// True if a rack had the address around that time.
    fn had(&self, address: IpAddr, at: Timestamp) -> bool {
        let [first, last] = [at.checked_sub(AROUND), at.checked_add(AROUND)].map(|it| it.unwrap_or(at));
        let overlaps = |it: &Had| it.from <= last && it.until.is_none_or(|until| until >= first);
        self.0.iter().any(|it| overlaps(it) && it.addresses.contains(&address))
    }
}

/// Each report of a rack's addresses holds until the next one.
fn one_after_the_other(said: Vec<(Timestamp, BTreeSet<IpAddr>)>) -> Vec<Had> {
    let ends: Vec<_> = said.iter().skip(1).map(|(at, _)| Some(*at)).chain([None]).collect();
    said.into_iter().zip(ends).map(|((from, addresses), until)| Had { from, until, addresses }).collect()
}

/// True if a server is a rack, is declared, or may grant the addresses of this network.
fn is_known(sighting: &Sighting<'_>, racks: &Racks, declared: &BTreeSet<IpAddr>) -> bool {
    let net = sighting.net;
    racks.had(sighting.address, sighting.at)
        || declared.contains(&sighting.address)
        || net.subnet.boot.mode == BootMode::Proxy
        || !net.vlan.dhcp.enabled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rack_is_known_by_the_addresses_that_it_had_around_a_sighting_and_by_no_others() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let [kept, moved, next] = [1, 2, 3].map(|last| IpAddr::from([10, 77, 0, last]));
        let said =
            vec![(at(100), [kept, moved].into()), (at(200), [kept].into()), (at(201), [kept, next].into())];
        let racks = Racks(one_after_the_other(said));
        let had = |minute| [kept, moved, next].map(|address| racks.had(address, at(minute)));
        assert_eq!(had(150), [true, true, false]);
        assert_eq!(had(210), [true, true, true], "it was there a few minutes ago");
        assert_eq!(had(300), [true, false, true], "whoever has it now is another one");
        assert_eq!(had(80), [false; 3]);
        assert_eq!(had(90), [true, true, false], "word of it is late");
    }
}
