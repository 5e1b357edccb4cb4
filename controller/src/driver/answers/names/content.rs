//! A zone as it is written, and the objects that its records come from. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use basalt_api::kinds::{DnsRecordSpec, Rdns, RecordData, RecordType};
use basalt_api::values::Timestamp;
use basalt_api::wire::{NameRecord, NameSource, NameZone};
use basalt_dns::Origin;
use basalt_proto::rack_v1::{DnsRecord, DnsZone};

use super::wire::Told;
use super::wire::plain;
use crate::driver::topology::estate::Estate;
use crate::driver::zones::reverse::{self, ReverseZone};

/// The objects that the records of a zone come from.
#[derive(Clone, Debug)]
pub(crate) enum Sources {
    /// A Domain: hosts, and DnsRecords by their names.
    Domain { names: Vec<basalt_db::NameSource>, declared: Vec<(String, DnsRecordSpec)> },
    /// Names of the addresses of Subnets.
    Reverse { names: Vec<basalt_db::NameSource>, zone: ReverseZone },
    /// The region's own domain: Subnets and Racks.
    Internal,
    /// The catalog, which the Settings ask for.
    Catalog,
}

/// A zone as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) origin: String,
    pub(crate) serial: u32,
    pub(crate) since: Timestamp,
    pub(crate) document: DnsZone,
    pub(crate) sources: Sources,
}

impl Content {
    /// Leaves out records of objects that the reader does not see, and records whose objects are gone.
    pub(crate) fn hide(&mut self) {
        let records = std::mem::take(&mut self.document.records);
        let visible = self.visible();
        let shown = records.into_iter().filter(|record| self.is_shown(record, &visible)).collect();
        self.document.records = shown;
    }

    /// Keys of the records that the reader may see. A zone has as many records as there are hosts, so each is looked up once.
    fn visible(&self) -> BTreeSet<Key> {
        match &self.sources {
            Sources::Domain { names, declared } => {
                let hosts = names.iter().filter(|it| it.is_visible).map(|it| key(&it.name, it.address));
                let declared = declared.iter().filter_map(|(_, spec)| {
                    let address: IpAddr = spec.data.trim().parse().ok()?;
                    Some(key(&format!("{}.{}", spec.owner_name.as_str(), self.origin), address))
                });
                hosts.chain(declared).collect()
            }
            Sources::Reverse { names, .. } => {
                let visible = names.iter().filter(|it| it.is_visible);
                visible.map(|it| key(&it.name, reverse::pointer(it.address))).collect()
            }
            Sources::Internal | Sources::Catalog => BTreeSet::new(),
        }
    }

    fn is_shown(&self, record: &DnsRecord, visible: &BTreeSet<Key>) -> bool {
        match &self.sources {
            Sources::Domain { .. } if matches!(record.rtype.as_str(), "A" | "AAAA") => {
                let address = record.data.parse::<IpAddr>();
                let owner = format!("{}.{}", record.owner, self.origin);
                address.is_ok_and(|address| visible.contains(&key(&owner, address)))
            }
            Sources::Reverse { zone, .. } if record.rtype == "PTR" => {
                let target = record.data.trim_end_matches('.');
                visible.contains(&key(target, self.pointer(&record.owner, zone)))
            }
            Sources::Domain { .. } | Sources::Reverse { .. } | Sources::Internal | Sources::Catalog => true,
        }
    }

    /// The reverse name of the address that a record is about. The first label of a zone of RFC 2317 is not part of this name.
    fn pointer(&self, owner: &str, zone: &ReverseZone) -> String {
        let around = match zone.is_classless {
            true => self.origin.split_once('.').map_or("", |(_, around)| around),
            false => &self.origin,
        };
        format!("{owner}.{around}")
    }

    /// The owners of its records, below its origin.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &str> {
        let named = |owner: &&str| *owner != "@" && !owner.starts_with('*');
        self.document.records.iter().map(|record| record.owner.as_str()).filter(named)
    }

    /// The names of the servers of a domain that the zone delegates, in lower case and without the final dot.
    pub(crate) fn servers_of(&self, cut: &str) -> impl Iterator<Item = String> {
        let owner = cut.strip_suffix(&self.origin).map(|below| below.trim_end_matches('.').to_owned());
        let is_server = move |record: &&DnsRecord| {
            record.rtype == "NS"
                && owner.as_ref().is_some_and(|owner| record.owner.eq_ignore_ascii_case(owner))
        };
        let servers = self.document.records.iter().filter(is_server);
        servers.map(|record| record.data.trim_end_matches('.').to_ascii_lowercase())
    }

    /// The visible objects that a record of an answer comes from.
    pub(crate) fn sources(&self, record: &Told, made: Option<&Origin>, estate: &Estate) -> Vec<NameSource> {
        let owner = match made {
            Some(Origin::Wildcard(star)) => plain(star),
            _ => record.owner.clone(),
        };
        let below = owner.strip_suffix(&self.origin).unwrap_or_default().trim_end_matches('.');
        let below = if below.is_empty() { "@" } else { below };
        match &self.sources {
            Sources::Domain { .. } => self.of_record(below, &record.rtype, &record.data),
            Sources::Reverse { zone, .. } if record.rtype != "PTR" => classless(zone, below, record, estate),
            Sources::Reverse { .. } => self.of_record(below, &record.rtype, &record.data),
            Sources::Internal => internal(below, record, estate),
            Sources::Catalog => vec![source("Settings", "default")],
        }
    }

    /// The visible objects that a record comes from. `owner` is below the origin.
    fn of_record(&self, owner: &str, rtype: &str, data: &str) -> Vec<NameSource> {
        let mut from = Vec::new();
        match &self.sources {
            Sources::Domain { names, declared } => {
                let is_it = |(_, spec): &&(String, DnsRecordSpec)| is_declared(spec, owner, rtype, data);
                from.extend(declared.iter().filter(is_it).map(|(name, _)| source("DnsRecord", name)));
                let whole = format!("{owner}.{}", self.origin);
                let address: Option<IpAddr> = data.parse().ok();
                let gives = |it: &&basalt_db::NameSource| it.name == whole && Some(it.address) == address;
                from.extend(names.iter().filter(gives).filter(|it| it.is_visible).map(of_host));
            }
            Sources::Reverse { names, zone } => {
                let (pointer, target) = (self.pointer(owner, zone), data.trim_end_matches('.'));
                let gives = |it: &&basalt_db::NameSource| {
                    it.name.eq_ignore_ascii_case(target) && reverse::pointer(it.address) == pointer
                };
                from.extend(names.iter().filter(gives).filter(|it| it.is_visible).map(of_host));
            }
            Sources::Internal | Sources::Catalog => {}
        }
        from.sort();
        from.dedup();
        from
    }

    /// The zone in an explanation.
    pub(crate) fn zone(&self, estate: &Estate) -> NameZone {
        let from = match &self.sources {
            Sources::Domain { .. } => vec![source("Domain", &self.origin)],
            Sources::Internal | Sources::Catalog => vec![source("Settings", "default")],
            Sources::Reverse { zone, .. } => {
                estate.nets_of(zone).into_iter().map(|net| source("Subnet", &net.name)).collect()
            }
        };
        NameZone {
            origin: self.origin.clone(),
            serial: self.serial,
            since: self.since,
            negative_ttl: self.document.ttl,
            from,
        }
    }
}

/// The name of a host, and its address or the name of its address, in lower case.
type Key = (String, String);

fn key(host: &str, address: impl ToString) -> Key {
    (host.to_ascii_lowercase(), address.to_string().to_ascii_lowercase())
}

/// True if a DnsRecord declares a record.
fn is_declared(spec: &DnsRecordSpec, owner: &str, rtype: &str, data: &str) -> bool {
    spec.owner_name.as_str().eq_ignore_ascii_case(owner)
        && spec.rtype.to_string() == rtype
        && is_data(spec.rtype, &spec.data, data)
}

/// True if a declared text is the data of a record. Both are compared as racks write them.
fn is_data(rtype: RecordType, declared: &str, data: &str) -> bool {
    let read = |text: &str| RecordData::read(rtype, text).map(|it| it.to_string()).ok();
    // An answer shows TXT data in another form than the declaration. So a TXT record is found by its name and type.
    match (read(declared), read(data)) {
        (Some(declared), Some(data)) => declared == data || rtype == RecordType::Txt,
        (declared, data) => declared.is_some() && data.is_none(),
    }
}

fn source(kind: &str, name: &str) -> NameSource {
    NameSource { kind: kind.to_owned(), name: name.to_owned(), note: None }
}

fn of_host(host: &basalt_db::NameSource) -> NameSource {
    let note = host.machine.as_ref().map(|machine| format!("on machine {machine}"));
    NameSource { note, ..source(&host.kind, &host.object) }
}

/// The Subnets of aliases and delegations for RFC 2317.
fn classless(zone: &ReverseZone, below: &str, record: &Told, estate: &Estate) -> Vec<NameSource> {
    let named = if record.rtype == "CNAME" { record.data.trim_end_matches('.') } else { below };
    let is_of = |own: &ReverseZone| {
        own.is_classless
            && (named == own.origin
                || named.ends_with(&format!(".{}", own.origin))
                || format!("{named}.{}", zone.origin) == own.origin)
    };
    let nets = estate.nets.iter().filter(|net| net.subnet.rdns == Rdns::Rfc2317);
    let nets = nets.filter(|net| reverse::classless(net.subnet.cidr).is_some_and(|own| is_of(&own)));
    nets.map(|net| source("Subnet", &net.name)).collect()
}

/// The Subnet and the Racks of a name in the region's own domain.
fn internal(below: &str, record: &Told, estate: &Estate) -> Vec<NameSource> {
    let Ok(address) = record.data.parse::<IpAddr>() else { return Vec::new() };
    let subnet = below.strip_suffix(".rack").and_then(|name| estate.nets.iter().find(|net| net.name == name));
    let racks = estate.racks.iter().filter(|rack| rack.served.contains(&address));
    let subnet = subnet.map(|net| source("Subnet", &net.name));
    subnet.into_iter().chain(racks.map(|rack| source("Rack", &rack.name))).collect()
}

/// A record of an explanation.
pub(crate) fn of_answer(
    record: Told,
    content: &Content,
    made: Option<&Origin>,
    from: Vec<NameSource>,
) -> NameRecord {
    let wildcard = match made {
        Some(Origin::Wildcard(star)) => Some(plain(star)),
        _ => None,
    };
    NameRecord {
        owner: record.owner,
        rtype: record.rtype,
        ttl: record.ttl,
        data: record.data,
        zone: content.origin.clone(),
        wildcard,
        from,
    }
}
