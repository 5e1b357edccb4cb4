//! The zones of the DNS and their content.
//!
//! | zone | content | is rendered |
//! | --- | --- | --- |
//! | of a Domain | its DnsRecords, and the hosts that have a name in it | by the reconciliation of the Domain |
//! | of addresses | the names of addresses of all subnets that share it | by the reconciliation of each such Subnet |
//! | internal domain | living racks by subnet | with the document of all racks |
//! | catalog | the names of the zones that secondaries copy | with the document of all racks |
//!
//! A zone is written only where its content differs, and then its serial rises (docs/decisions/089-zones.md). So regions that render the same
//! content publish the same serial.

mod copies;
pub mod explain;
pub mod names;
pub mod render;
pub mod reverse;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use basalt_api::kinds::{DnsRecordSpec, DomainSpec, DomainStatus, Rdns, Secondary, SettingsSpec};
use basalt_api::pointer;
use basalt_api::values::{Cidr, SubnetId, Uid};
use basalt_db::{HostAddress, Lease, Object, Published, Store, StoreError, Then, ZoneHead, ZoneRow};
use basalt_proto::rack_v1::{DnsConcern, DnsForward, DnsSecondary, DnsZone};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;

use crate::driver::context::Driver;
use crate::driver::entries::append;
use crate::driver::status::{settled, to_json};
use crate::driver::stored::spec;
use crate::driver::topology::estate::DomainSeen;
use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::Net;
use crate::driver::topology::{Topology, network};
use render::Member;
use reverse::ReverseZone;

pub use names::{of_machine, write_names};

/// The internal domain, where the Settings name none.
const INTERNAL: &str = "basalt.internal";
/// Characters of a label that stands for a zone of addresses, of 63 (RFC 1035 §2.3.4).
const LABEL: usize = 32;
/// Another writer may come first this often.
const TRIES: usize = 8;

impl Estate {
    /// The domain of names that say none.
    fn default_domain(&self) -> Option<&DomainSeen> {
        let name = self.settings.default_domain.as_ref()?;
        self.domains.iter().find(|domain| domain.name == name.as_str())
    }

    /// The domains that racks answer for.
    fn served_domains(&self) -> impl Iterator<Item = &DomainSeen> {
        let own = |it: &&DomainSeen| it.spec.authoritative && !is_internal(&self.settings, &it.name);
        self.domains.iter().filter(own)
    }

    /// The zones of addresses that are no declared domain's.
    fn reverse_zones(&self) -> BTreeSet<ReverseZone> {
        let all = self.nets.iter().flat_map(|net| reverse::zones(net.subnet.cidr, net.subnet.rdns));
        all.filter(|zone| !self.domains.iter().any(|domain| domain.name == zone.origin)).collect()
    }

    /// The subnets whose addresses have their names in a zone.
    fn nets_of(&self, zone: &ReverseZone) -> Vec<&Net> {
        let shares = |net: &&Net| net.subnet.rdns != Rdns::Disabled && net.subnet.cidr.overlaps(zone.network);
        self.nets.iter().filter(shares).collect()
    }
}

/// True for the internal domain, and for names below and above it.
fn is_internal(settings: &SettingsSpec, name: &str) -> bool {
    let internal = internal_domain(settings);
    let below = |name: &str, domain: &str| name == domain || name.ends_with(&format!(".{domain}"));
    below(name, &internal) || below(&internal, name)
}

/// The name of the racks that are there in a subnet.
pub(crate) fn rack_name(settings: &SettingsSpec, net: &Net) -> String {
    format!("{}.rack.{}", net.name, internal_domain(settings))
}

/// The racks of a subnet for an installed system, as `HOST:PORT`. HOST is the name of the racks in the internal domain, so that the system
/// finds a rack that joins later. If the system asks DNS servers that do not know this name, the result is `at`, the address of one rack.
pub(crate) fn rack_for_system(estate: &Estate, net: &Net, at: SocketAddr, asks_others: bool) -> String {
    match asks_racks(estate, net, asks_others) {
        true => format!("{}:{}", rack_name(&estate.settings, net), at.port()),
        false => at.to_string(),
    }
}

/// The racks of an installed system with these addresses, as `HOST:PORT` by name. The first of its subnets with racks counts. `None`: it
/// has no such subnet, or asks DNS servers that do not know the name.
pub(crate) fn racks_by_name(
    estate: &Estate,
    addresses: &[IpAddr],
    port: u16,
    asks_others: bool,
) -> Option<String> {
    let served = |net: &Net| {
        let racks = estate.racks.iter().filter(|rack| !rack.maintenance);
        racks.flat_map(|rack| &rack.served).any(|at| net.subnet.cidr.contains(*at))
    };
    addresses.iter().find_map(|address| {
        let net = estate.nets.iter().find(|net| net.subnet.cidr.contains(*address))?;
        let knows = served(net) && asks_racks(estate, net, asks_others);
        knows.then(|| format!("{}:{port}", rack_name(&estate.settings, net)))
    })
}

/// True if systems of the subnet ask racks for names. `asks_others`: the system has its own DNS servers.
fn asks_racks(estate: &Estate, net: &Net, asks_others: bool) -> bool {
    !asks_others
        && net.subnet.dns_servers.is_none()
        && !network::name_servers(net, &estate.nets, &estate.racks, None).is_empty()
}

fn internal_domain(settings: &SettingsSpec) -> String {
    settings.internal_domain.as_ref().map_or(INTERNAL, |name| name.as_str()).to_ascii_lowercase()
}

/// Reconciles one domain: publishes its zone, and writes its status.
///
/// # Errors
/// Fails if the database fails, or if the lease is over.
pub async fn reconcile_domain(driver: &Driver, lease: &Lease) -> Result<Then, StoreError> {
    let Some(object) = driver.store.get_by_uid(lease.uid).await? else { return Ok(Then::Rest) };
    if object.deletion_requested_at.is_some() {
        // The store lets it leave with the last object that refers to it.
        return Ok(Then::Rest);
    }
    let declared: DomainSpec = spec(&object)?;
    let mut serial = None;
    let estate = driver.estate().await?;
    let (is_ready, reason, message) = if is_internal(&estate.settings, &object.name) {
        let internal = internal_domain(&estate.settings);
        let message = format!(
            "{internal} is the region's own domain: name this one otherwise, or change `internal_domain` of the Settings"
        );
        (false, "Internal", message)
    } else if declared.authoritative {
        let Some(published) = publish_domain(driver, &object).await? else {
            return Ok(Then::Again(Duration::ZERO));
        };
        serial = Some(published.serial);
        match declared.secondaries.iter().find(|(_, secondary)| secondary.key.is_none()) {
            Some((name, _)) => {
                let message = format!("secondary {name} has no key and gets no copy: declare its `key`");
                (false, "NoKey", message)
            }
            None => (true, "Served", format!("{} records, serial {}", published.records, published.serial)),
        }
    } else {
        let servers: Vec<String> = declared.forward_to.iter().map(ToString::to_string).collect();
        (true, "Forwarded", format!("racks ask {}", servers.join(", ")))
    };
    let now = driver.store.now().await?;
    let before: DomainStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
    let secondaries = match serial {
        Some(_) => {
            let (store, secondaries) = (&driver.store, &declared.secondaries);
            let reports = copies::reports(store, &object.name, secondaries, &estate.racks).await?;
            copies::states(&object.name, secondaries, &estate.racks, &reports)
        }
        None => BTreeMap::new(),
    };
    let behind = copies::condition(&secondaries, now);
    let message = behind.iter().fold(message, |message, behind| format!("{message}; {}", behind.message));
    let mut status = DomainStatus { serial, secondaries, ..DomainStatus::default() };
    status.common.observed_generation = object.generation;
    status.common.conditions = settled(is_ready, reason, &message, now);
    status.common.conditions.extend(behind);
    basalt_engine::machine::carry_since(&before.common.conditions, &mut status.common.conditions, now);
    driver.write_status(lease, object.generation, &to_json(&status)?).await?;
    Ok(if status.secondaries.is_empty() { Then::Rest } else { Then::Again(copies::LOOK) })
}

/// A zone as it was published.
struct Zone {
    serial: u32,
    records: usize,
}

/// Publishes the zone of a domain; `None` if other writers came first each time.
async fn publish_domain(driver: &Driver, object: &Object) -> Result<Option<Zone>, StoreError> {
    let store = &driver.store;
    for _ in 0..TRIES {
        // The serial is read before the content: a process that renders newer content wins.
        let base = store.zone_serial(&object.name).await?;
        let estate = driver.estate().await?;
        // Another writer may have changed it since the caller read it.
        let ttl = estate.domains.iter().find(|it| it.uid == object.uid).map_or(0, |it| it.spec.ttl);
        let default = estate.default_domain();
        let is_default = default.is_some_and(|domain| domain.uid == object.uid);
        let hosts = store.names_of_domain(object.uid, &object.name, is_default).await?;
        let mut records = Vec::new();
        for declared in store.records_of(object.uid).await? {
            match serde_json::from_str::<DnsRecordSpec>(&declared.spec) {
                Ok(spec) => records.push((declared.name, spec)),
                Err(error) => {
                    tracing::warn!(record = declared.name, %error, "left out, as if it were not there")
                }
            }
        }
        let computed = if is_default { store.dynamic_ranges().await? } else { Vec::new() };
        let zone = render::domain(&render::DomainContent {
            name: &object.name,
            ttl,
            internal: &internal_domain(&estate.settings),
            hosts: &hosts,
            records: &records,
            computed: &computed,
        });
        if let Some(serial) = publish(store, base, &zone).await? {
            return Ok(Some(Zone { serial, records: zone.records.len() }));
        }
        driver.meters.conflict("zone");
    }
    Ok(None)
}

async fn names_in(
    store: &Store,
    networks: &[Cidr],
    default: Option<&DomainSeen>,
) -> Result<Vec<HostAddress>, StoreError> {
    if networks.is_empty() {
        return Ok(Vec::new());
    }
    store.names_in(networks, default.map(|domain| domain.name.as_str())).await
}

/// Works on one subnet: publishes the zones that its addresses have their names in.
///
/// # Errors
/// Fails if the database cannot be read or written.
pub async fn reconcile_subnet(driver: &Driver, lease: &Lease) -> Result<Then, StoreError> {
    let subnet = SubnetId::from(lease.uid);
    let estate = driver.estate().await?;
    let Some(net) = estate.nets.iter().find(|net| net.uid == subnet) else { return Ok(Then::Rest) };
    let own = reverse::zones(net.subnet.cidr, net.subnet.rdns);
    for zone in estate.reverse_zones().intersection(&own.into_iter().collect()) {
        if !publish_reverse(driver, zone).await? {
            return Ok(Then::Again(Duration::ZERO));
        }
    }
    Ok(Then::Rest)
}

/// Publishes a zone of addresses; false if other writers came first each time.
async fn publish_reverse(driver: &Driver, zone: &ReverseZone) -> Result<bool, StoreError> {
    let store = &driver.store;
    for _ in 0..TRIES {
        let base = store.zone_serial(&zone.origin).await?;
        let estate = driver.estate().await?;
        let (nets, default) = (estate.nets_of(zone), estate.default_domain());
        let networks = networks(zone, &nets);
        let names = names_in(store, &networks, default).await?;
        let computed = store.dynamic_ranges().await?;
        let internal = internal_domain(&estate.settings);
        let domain = default.map(|domain| domain.name.as_str());
        let zone = render::reverse_zone(zone, &internal, &nets, &names, &computed, domain);
        if publish(store, base, &zone).await?.is_some() {
            return Ok(true);
        }
        driver.meters.conflict("zone");
    }
    Ok(false)
}

/// The part of each subnet that is inside the zone: the subnet, or the network of the zone if that is smaller.
fn networks(zone: &ReverseZone, nets: &[&Net]) -> Vec<Cidr> {
    let narrower = |net: &&Net| match net.subnet.cidr.prefix_len() >= zone.network.prefix_len() {
        true => net.subnet.cidr,
        false => zone.network,
    };
    nets.iter().map(narrower).collect()
}

/// Writes a zone. Returns its serial; `None` if another writer came first.
async fn publish(store: &Store, base: u32, zone: &DnsZone) -> Result<Option<u32>, StoreError> {
    Ok(match store.publish_zone(&zone.origin, base, &zone.encode_to_vec()).await? {
        Published::Unchanged(serial) | Published::Written(serial) => Some(serial),
        Published::Stale => None,
    })
}

/// The names of all zones.
fn origins(estate: &Estate) -> Vec<String> {
    let mut origins = vec![internal_domain(&estate.settings)];
    if !estate.settings.dns_secondaries.is_empty() {
        origins.push(catalog(&estate.settings));
    }
    origins.extend(copied(estate));
    origins
}

/// The names of the zones that the secondaries of the Settings copy.
fn copied(estate: &Estate) -> impl Iterator<Item = String> {
    let domains = estate.served_domains().map(|domain| domain.name.clone());
    domains.chain(estate.reverse_zones().into_iter().map(|zone| zone.origin))
}

/// The zones of [`copied`], with a label for each in the catalog.
///
/// A server that sees another label forgets the zone and copies it anew (RFC 9432 §5.4). So a domain that was deleted and declared again has another.
fn members(estate: &Estate) -> Vec<Member> {
    let domains =
        estate.served_domains().map(|it| Member { label: it.uid.to_string(), origin: it.name.clone() });
    let of_addresses = estate.reverse_zones().into_iter().map(|zone| {
        // The whole name can be longer than a label.
        let hash = hex::encode(digest(&SHA256, zone.origin.as_bytes()));
        Member { label: hash.chars().take(LABEL).collect(), origin: zone.origin }
    });
    domains.chain(of_addresses).collect()
}

/// The zones that are rendered with the document of all racks.
fn computed_zones(estate: &Estate) -> Vec<DnsZone> {
    let internal = internal_domain(&estate.settings);
    let mut zones = vec![render::internal(&internal, &estate.nets, &estate.racks)];
    if !estate.settings.dns_secondaries.is_empty() {
        zones.push(render::catalog(&catalog(&estate.settings), &members(estate)));
    }
    zones
}

/// The name of the catalog of zones.
fn catalog(settings: &SettingsSpec) -> String {
    format!("catalog.{}", internal_domain(settings))
}

/// Published zones in memory, each with its version and encoded with its serial.
#[derive(Debug, Default)]
pub struct PublishedZones(BTreeMap<String, Kept>);

#[derive(Debug)]
struct Kept {
    head: ZoneHead,
    /// The content without the serial, as it is stored.
    stored: Vec<u8>,
    /// The content with the serial, as racks receive it.
    sent: Vec<u8>,
}

impl PublishedZones {
    /// Reads the zones of these origins that have changed, and removes all others.
    async fn follow(&mut self, store: &Store, origins: &[String]) -> Result<(), StoreError> {
        let heads = store.zone_heads(origins).await?;
        let old = std::mem::take(&mut self.0);
        let keep = |kept: &Kept| heads.contains(&kept.head);
        self.0 = old.into_iter().filter(|(_, kept)| keep(kept)).collect();
        let changed = heads.into_iter().map(|head| head.origin).filter(|it| !self.0.contains_key(it));
        for row in store.zones(&changed.collect::<Vec<_>>()).await? {
            let zone = DnsZone::decode(row.body.as_slice())
                .map_err(|error| StoreError::Corrupt(format!("zone {}: {error}", row.origin)))?;
            let ZoneRow { origin, serial, body: stored, updated_at } = row;
            let head = ZoneHead { origin: origin.clone(), serial, updated_at };
            let sent = DnsZone { serial, ..zone }.encode_to_vec();
            self.0.insert(origin, Kept { head, stored, sent });
        }
        Ok(())
    }
}

/// The encoded document of racks, a `DnsConcern`. It is the same for all of them.
///
/// # Errors
/// Fails if the database cannot be read or written, or if a zone cannot be decoded.
pub async fn concern(
    store: &Store,
    topology: &Topology,
    published: &mut PublishedZones,
) -> Result<Vec<u8>, StoreError> {
    published.follow(store, &origins(&topology.estate(store).await?)).await?;
    // The zones, with their serials, are read before the state of which these are rendered.
    let estate = topology.estate(store).await?;
    let settings = &estate.settings;
    let mut is_read_again = false;
    for zone in computed_zones(&estate) {
        let kept = published.0.get(&zone.origin);
        if kept.is_none_or(|kept| kept.stored != zone.encode_to_vec()) {
            // If another writer came first, what that one published is sent.
            publish(store, kept.map_or(0, |kept| kept.head.serial), &zone).await?;
            is_read_again = true;
        }
    }
    if is_read_again {
        published.follow(store, &origins(&estate)).await?;
    }
    let forwards = estate
        .domains
        .iter()
        .filter(|domain| !domain.spec.authoritative && !is_internal(settings, &domain.name));
    let forward = |domain: &DomainSeen| DnsForward {
        domain: domain.name.clone(),
        servers: domain.spec.forward_to.iter().map(ToString::to_string).collect(),
    };
    let open = estate.nets.iter().filter(|net| net.subnet.allow_dns).map(|net| &net.subnet.cidr);
    // One network once: a Subnet may be declared as clients too.
    let recursion: BTreeSet<&Cidr> = open.chain(&settings.dns_clients).collect();
    let rest = DnsConcern {
        zones: Vec::new(),
        forwards: forwards.map(forward).collect(),
        upstream: settings.upstream_dns.iter().flatten().map(ToString::to_string).collect(),
        recursion: recursion.iter().map(ToString::to_string).collect(),
        secondaries: secondaries(store, &estate).await?,
    };
    let mut body = Vec::new();
    published.0.values().for_each(|kept| append(&kept.sent, &mut body));
    rest.encode(&mut body).map_err(|error| StoreError::Corrupt(format!("the dns concern: {error}")))?;
    Ok(body)
}

/// The servers that copy zones. Racks are told the secrets of their keys, so that they answer while no region is there.
async fn secondaries(store: &Store, estate: &Estate) -> Result<Vec<DnsSecondary>, StoreError> {
    let mut all = Vec::new();
    for domain in estate.served_domains() {
        let declared = Declared { uid: domain.uid, field: "/secondaries", of: &domain.spec.secondaries };
        for (name, secondary) in declared.with_secrets(store).await? {
            let name = format!("{} {name}", domain.name);
            all.push(DnsSecondary { zones: vec![domain.name.clone()], name, ..secondary });
        }
    }
    if let Some(uid) = estate.settings_uid {
        let declared = Declared { uid, field: "/dns_secondaries", of: &estate.settings.dns_secondaries };
        let mut zones = vec![catalog(&estate.settings)];
        zones.extend(copied(estate));
        for (name, secondary) in declared.with_secrets(store).await? {
            all.push(DnsSecondary { zones: zones.clone(), name, ..secondary });
        }
    }
    Ok(all)
}

/// The secondaries that an object declares in a field.
struct Declared<'a> {
    uid: Uid,
    field: &'a str,
    of: &'a BTreeMap<String, Secondary>,
}

impl Declared<'_> {
    /// The secondaries that have a secret, by name, in the form for racks. The caller adds their zones.
    async fn with_secrets(&self, store: &Store) -> Result<Vec<(String, DnsSecondary)>, StoreError> {
        if self.of.is_empty() {
            return Ok(Vec::new());
        }
        let secrets = store.open_secrets(self.uid).await?;
        let mut all = Vec::new();
        for (name, declared) in self.of {
            let at = pointer::child(&pointer::child(self.field, name), "key");
            let secret = secrets.get(&at).and_then(|text| STANDARD.decode(text.as_slice()).ok());
            let Some(secret) = secret else {
                tracing::warn!(name, field = self.field, "a secondary is left out: it has no secret");
                continue;
            };
            let secondary = DnsSecondary {
                address: declared.address.to_string(),
                port: declared.port.into(),
                key: declared.key_name.to_string(),
                secret,
                ..DnsSecondary::default()
            };
            all.push((name.clone(), secondary));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::topology::network::RackSeen;
    use crate::driver::topology::samples::{estate, net, rack};

    #[test]
    fn a_system_finds_racks_by_the_name_of_its_first_subnet_with_racks_if_it_asks_them_for_names() {
        let addresses = ["10.99.0.1", "10.78.0.9", "10.77.0.9"].map(|it| it.parse::<IpAddr>().unwrap());
        let told = |change: fn(&mut Net, &mut RackSeen), asks_others| {
            let (mut net_of_rack, mut rack) = (net(2, "lab", "10.77.0.0/24"), rack(1, "10.77.0.2", false));
            change(&mut net_of_rack, &mut rack);
            let estate = estate(vec![net(1, "behind", "10.78.0.0/24"), net_of_rack], vec![rack]);
            racks_by_name(&estate, &addresses, 5248, asks_others)
        };
        assert_eq!(told(|_, _| (), false), Some("lab.rack.basalt.internal:5248".to_owned()));
        assert_eq!(told(|_, _| (), true), None);
        let of_subnet = |net: &mut Net, _: &mut RackSeen| {
            net.subnet.dns_servers = Some(vec!["192.0.2.53".parse().unwrap()]);
        };
        assert_eq!(told(of_subnet, false), None);
        assert_eq!(told(|net, _| net.subnet.allow_dns = false, false), None, "racks do not answer it");
        assert_eq!(told(|_, rack| rack.maintenance = true, false), None);
    }
}
