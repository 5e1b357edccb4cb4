//! Builds zones from records, and refuses records that cannot be in a zone.

use hickory_proto::rr::{DNSClass, Record};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder, NameEncoding};

use super::{HashMap, Node, RrSet, Soa, Zone, count_labels, parent, rtype, to_key};
use crate::name::display;
use crate::records::type_name;

/// An RRset must fit into one message, with header, question and EDNS (RFC 2181 §5); a record of it fits beside its whole name and a
/// signature (RFC 8945).
const MAX_RRSET: usize = 64_900;

/// A record that cannot be in its zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("zone {zone}: record {record}: {reason}")]
pub struct BadZone {
    /// The name of the zone.
    pub zone: String,
    /// Name and type of the record.
    pub record: String,
    /// The reason and the remedy.
    pub reason: Reason,
}

/// The reason why a record cannot be in a zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The name is outside the zone (RFC 1034 §4.2).
    #[error("the name is outside the zone: declare it in its own zone")]
    Outside,
    /// The class is not IN.
    #[error("the class is not IN")]
    Class,
    /// A CNAME has other records beside it (RFC 1034 §3.6.2, RFC 2181 §10.1).
    #[error("a CNAME cannot stand beside other records of its name: remove it or the others")]
    CnameBesideOthers,
    /// A name has several CNAMEs (RFC 2181 §10.1).
    #[error("a name can have one CNAME: remove the others")]
    ManyCnames,
    /// The zone makes its own SOA.
    #[error("a zone has one SOA, which is given apart from its records")]
    Soa,
    /// A wildcard has NS records; RFC 4592 §4.2 leaves their meaning open.
    #[error("a wildcard cannot have NS records: delegate each name by itself")]
    WildcardNs,
    /// The type is one for queries or signed zones, or DNAME.
    #[error("records of this type cannot be served")]
    Type,
    /// The RRset does not fit into a message of 65,535 octets (RFC 1035 §4.2.2).
    #[error(
        "all records of this name and type have {0} octets, and 64,900 are possible: declare fewer of them"
    )]
    TooLarge(usize),
    /// hickory-proto cannot encode the record.
    #[error("its data cannot be encoded: {0}")]
    Encoding(String),
}

/// False for types that are no data, or whose meaning this server does not implement.
fn is_servable(rtype: u16) -> bool {
    // 47, 48, 50, 51: NSEC, DNSKEY, NSEC3, NSEC3PARAM. From 128 on: RFC 6895 §3.1.
    !matches!(rtype, 0 | rtype::DNAME | rtype::OPT | rtype::RRSIG | 47 | 48 | 50 | 51 | 128..=255)
}

struct Entry {
    key: Box<[u8]>,
    rtype: u16,
    ttl: u32,
    rdata: Vec<u8>,
}

pub(super) fn zone(soa: &Soa, records: &[Record]) -> Result<Zone, BadZone> {
    let origin = to_key(&soa.origin);
    let bad =
        |record: &str, reason| BadZone { zone: soa.origin.to_ascii(), record: record.to_owned(), reason };
    let mut entries = Vec::with_capacity(records.len() + 1);
    entries.push(entry(&soa.record()).map_err(|reason| bad("SOA", reason))?);
    for record in records {
        let sound = entry(record).and_then(|entry| {
            let is_wildcard = entry.key.starts_with(b"\x01*");
            match entry.rtype {
                _ if record.dns_class != DNSClass::IN => Err(Reason::Class),
                _ if !is_below(&entry.key, &origin) => Err(Reason::Outside),
                rtype::SOA => Err(Reason::Soa),
                rtype::NS if is_wildcard => Err(Reason::WildcardNs),
                rtype if !is_servable(rtype) => Err(Reason::Type),
                _ => Ok(entry),
            }
        });
        let describe = |reason| {
            bad(&format!("{} {}", record.name.to_ascii(), type_name(record.record_type().into())), reason)
        };
        entries.push(sound.map_err(describe)?);
    }
    entries.sort_unstable_by(|a, b| (&a.key, a.rtype, &a.rdata).cmp(&(&b.key, b.rtype, &b.rdata)));

    let mut nodes: HashMap<Box<[u8]>, Node> = HashMap::with_capacity(entries.len());
    let (mut deepest, mut has_cuts) = (0, false);
    for of_name in entries.chunk_by(|a, b| a.key == b.key) {
        let Some(Entry { key, .. }) = of_name.first() else { continue };
        let node = node(of_name)
            .map_err(|(rtype, reason)| bad(&format!("{} {}", display(key), type_name(rtype)), reason))?;
        has_cuts |= *key != origin && node.iter().any(|set| set.rtype == rtype::NS);
        deepest = deepest.max(count_labels(key));
        nodes.insert(key.clone(), node);
        // Names between this one and the origin exist too (RFC 4592 §2.2.2).
        let mut above = parent(key);
        while *key != origin && above != &*origin && !nodes.contains_key(above) {
            nodes.insert(above.into(), Node::default());
            above = parent(above);
        }
    }

    let negative = entry(&soa.record()).map_err(|reason| bad("SOA", reason))?;
    let negative = RrSet::new(rtype::SOA, soa.ttl.min(soa.minimum), [&negative.rdata[..]]);
    Ok(Zone {
        origin: soa.origin.clone(),
        labels: count_labels(&origin),
        key: origin,
        serial: soa.serial,
        nodes,
        deepest,
        has_cuts,
        negative,
        computed: Vec::new(),
        turn: None,
    })
}

fn entry(record: &Record) -> Result<Entry, Reason> {
    let mut rdata = Vec::new();
    let mut encoder = BinEncoder::new(&mut rdata);
    encoder.set_name_encoding(NameEncoding::Uncompressed);
    record.data.emit(&mut encoder).map_err(|error| Reason::Encoding(error.to_string()))?;
    Ok(Entry { key: to_key(&record.name), rtype: record.record_type().into(), ttl: record.ttl, rdata })
}

/// The RRsets of one name. The lowest TTL counts for all records of a set (RFC 2181 §5.2).
fn node(entries: &[Entry]) -> Result<Node, (u16, Reason)> {
    let mut sets = Vec::new();
    for of_type in entries.chunk_by(|a, b| a.rtype == b.rtype) {
        let Some(first) = of_type.first() else { continue };
        let rtype = first.rtype;
        let ttl = of_type.iter().map(|entry| entry.ttl).min().unwrap_or(first.ttl);
        let different = of_type.chunk_by(|a, b| a.rdata == b.rdata).filter_map(|same| same.first());
        // The owner (a pointer), type, class, TTL and length have 12 octets.
        let size = different.clone().map(|entry| entry.rdata.len() + 12).sum();
        if size > MAX_RRSET {
            return Err((rtype, Reason::TooLarge(size)));
        }
        if rtype == rtype::CNAME && different.clone().count() > 1 {
            return Err((rtype, Reason::ManyCnames));
        }
        sets.push(RrSet::new(rtype, ttl, different.map(|entry| &entry.rdata[..])));
    }
    if sets.len() > 1 && sets.iter().any(|set| set.rtype == rtype::CNAME) {
        return Err((rtype::CNAME, Reason::CnameBesideOthers));
    }
    Ok(sets.into_boxed_slice())
}

/// True if the name is equal to the origin or below it; both in lower case.
fn is_below(name: &[u8], origin: &[u8]) -> bool {
    let mut name = name;
    loop {
        if name == origin {
            return true;
        }
        if name.first().is_none_or(|length| *length == 0) {
            return false;
        }
        name = parent(name);
    }
}
