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

pub mod render;
pub mod reverse;

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};
use basalt_api::kinds::{DnsRecordSpec, Rdns, SettingsSpec};
use basalt_api::values::Cidr;
use basalt_db::{HostAddress, Object, Published, Store, StoreError};
use basalt_proto::rack_v1::DnsZone;
use prost::Message;

use crate::driver::meters::Meters;
use crate::driver::topology::Topology;
use crate::driver::topology::estate::{DomainSeen, Estate};
use crate::driver::topology::internal_domain::{internal_domain, is_internal};
use crate::driver::topology::network::Net;
use render::Member;
use reverse::ReverseZone;

/// Characters of a label that stands for a zone of addresses, of 63 (RFC 1035 §2.3.4).
const LABEL: usize = 32;
/// Another writer may come first this often.
const TRIES: usize = 8;

impl Estate {
    /// The domain of names that say none.
    pub(crate) fn default_domain(&self) -> Option<&DomainSeen> {
        let name = self.settings.default_domain.as_ref()?;
        self.domains.iter().find(|domain| domain.name == name.as_str())
    }

    /// The domains that racks answer for.
    pub(crate) fn served_domains(&self) -> impl Iterator<Item = &DomainSeen> {
        let own = |it: &&DomainSeen| it.spec.authoritative && !is_internal(&self.settings, &it.name);
        self.domains.iter().filter(own)
    }

    /// The zones of addresses that are no declared domain's.
    pub(crate) fn reverse_zones(&self) -> BTreeSet<ReverseZone> {
        let all = self.nets.iter().flat_map(|net| reverse::zones(net.subnet.cidr, net.subnet.rdns));
        all.filter(|zone| !self.domains.iter().any(|domain| domain.name == zone.origin)).collect()
    }

    /// The subnets whose addresses have their names in a zone.
    pub(crate) fn nets_of(&self, zone: &ReverseZone) -> Vec<&Net> {
        let shares = |net: &&Net| net.subnet.rdns != Rdns::Disabled && net.subnet.cidr.overlaps(zone.network);
        self.nets.iter().filter(shares).collect()
    }
}

/// A zone as it was published.
pub(crate) struct Zone {
    pub(crate) serial: u32,
    pub(crate) records: usize,
}

/// Publishes the zone of a domain; `None` if other writers came first each time.
pub(crate) async fn publish_domain(
    store: &Store,
    topology: &Topology,
    meters: &Meters,
    object: &Object,
) -> Result<Option<Zone>, StoreError> {
    for _ in 0..TRIES {
        // The serial is read before the content: a process that renders newer content wins.
        let base = store.zone_serial(&object.name).await?;
        let estate = topology.estate(store).await?;
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
        meters.conflict("zone");
    }
    Ok(None)
}

pub(crate) async fn names_in(
    store: &Store,
    networks: &[Cidr],
    default: Option<&DomainSeen>,
) -> Result<Vec<HostAddress>, StoreError> {
    if networks.is_empty() {
        return Ok(Vec::new());
    }
    store.names_in(networks, default.map(|domain| domain.name.as_str())).await
}

/// Publishes a zone of addresses; false if other writers came first each time.
pub(crate) async fn publish_reverse(
    store: &Store,
    topology: &Topology,
    meters: &Meters,
    zone: &ReverseZone,
) -> Result<bool, StoreError> {
    for _ in 0..TRIES {
        let base = store.zone_serial(&zone.origin).await?;
        let estate = topology.estate(store).await?;
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
        meters.conflict("zone");
    }
    Ok(false)
}

/// The part of each subnet that is inside the zone: the subnet, or the network of the zone if that is smaller.
pub(crate) fn networks(zone: &ReverseZone, nets: &[&Net]) -> Vec<Cidr> {
    let narrower = |net: &&Net| match net.subnet.cidr.prefix_len() >= zone.network.prefix_len() {
        true => net.subnet.cidr,
        false => zone.network,
    };
    nets.iter().map(narrower).collect()
}

/// Writes a zone. Returns its serial; `None` if another writer came first.
pub(crate) async fn publish(store: &Store, base: u32, zone: &DnsZone) -> Result<Option<u32>, StoreError> {
    Ok(match store.publish_zone(&zone.origin, base, &zone.encode_to_vec()).await? {
        Published::Unchanged(serial) | Published::Written(serial) => Some(serial),
        Published::Stale => None,
    })
}

/// The names of all zones.
pub(crate) fn origins(estate: &Estate) -> Vec<String> {
    let mut origins = vec![internal_domain(&estate.settings)];
    if !estate.settings.dns_secondaries.is_empty() {
        origins.push(catalog(&estate.settings));
    }
    origins.extend(copied(estate));
    origins
}

/// The names of the zones that the secondaries of the Settings copy.
pub(crate) fn copied(estate: &Estate) -> impl Iterator<Item = String> {
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
pub(crate) fn computed_zones(estate: &Estate) -> Vec<DnsZone> {
    let internal = internal_domain(&estate.settings);
    let mut zones = vec![render::internal(&internal, &estate.nets, &estate.racks)];
    if !estate.settings.dns_secondaries.is_empty() {
        zones.push(render::catalog(&catalog(&estate.settings), &members(estate)));
    }
    zones
}

/// The name of the catalog of zones.
pub(crate) fn catalog(settings: &SettingsSpec) -> String {
    format!("catalog.{}", internal_domain(settings))
}
