//! The concern `dns` of all racks: the zones, the servers to forward to, the clients, and the secondaries.

use std::collections::{BTreeMap, BTreeSet};

use basalt_api::kinds::Secondary;
use basalt_api::pointer;
use basalt_api::values::{Cidr, Uid};
use basalt_db::{Store, StoreError, ZoneHead, ZoneRow};
use basalt_proto::rack_v1::{DnsConcern, DnsForward, DnsSecondary, DnsZone};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;

use crate::driver::entries::append;
use crate::driver::topology::Topology;
use crate::driver::topology::estate::{DomainSeen, Estate};
use crate::driver::topology::internal_domain::is_internal;
use crate::driver::zones::{catalog, computed_zones, copied, origins, publish};

/// Published zones in memory, each with its version and encoded with its serial.
#[derive(Debug, Default)]
pub(super) struct PublishedZones(BTreeMap<String, Kept>);

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
pub(super) async fn concern(
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
