//! Zones from the documents that the region publishes and racks are told. Both read them here, so that both answer alike.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use basalt_api::kinds::{RecordData, RecordType};
use basalt_proto::rack_v1::{AddressRange, DnsRecord, DnsZone};
use hickory_proto::rr::{Name, RData, Record, rdata};

use crate::computed::Computed;
use crate::zone::{Soa, Zone};

/// The longest string of a text (RFC 1035 §3.3). A longer text is several strings.
const LONGEST_STRING: usize = 255;

/// The zone of a document.
///
/// # Errors
/// The part that cannot be read, and why, in words.
pub fn zone(zone: &DnsZone) -> Result<Zone, String> {
    let origin = name(&zone.origin)?;
    let records = zone.records.iter().map(|it| record(it, &origin)).collect::<Result<Vec<_>, _>>()?;
    let soa = Soa {
        primary: name(&zone.primary)?,
        minimum: zone.ttl,
        ttl: zone.ttl,
        ..Soa::new(origin.clone(), zone.serial)
    };
    let mut made = Zone::new(soa, records).map_err(|error| error.to_string())?;
    if !zone.computed.is_empty() {
        let ranges = zone.computed.iter().map(range).collect::<Result<Vec<_>, _>>()?;
        let domain = if zone.computed_domain.is_empty() { origin } else { name(&zone.computed_domain)? };
        made = made.computed(Computed::new(domain, ranges, zone.ttl));
    }
    Ok(if zone.shuffled { made.shuffled() } else { made })
}

fn range(range: &AddressRange) -> Result<RangeInclusive<IpAddr>, String> {
    let address = |text: &str| text.parse().map_err(|error| format!("{text:?}: {error}"));
    Ok(address(&range.start)?..=address(&range.end)?)
}

/// A whole name, with or without the final dot.
///
/// # Errors
/// The text is no name; the error quotes it.
pub fn name(text: &str) -> Result<Name, String> {
    let mut name = Name::from_ascii(text).map_err(|error| format!("{text:?}: {error}"))?;
    name.set_fqdn(true);
    Ok(name)
}

fn record(record: &DnsRecord, origin: &Name) -> Result<Record, String> {
    let DnsRecord { owner, rtype, ttl, data } = record;
    let told = |why: String| format!("{owner} {rtype} {data:?}: {why}");
    let owner = match owner.as_str() {
        "@" => origin.clone(),
        below => {
            let mut below = Name::from_ascii(below).map_err(|error| told(error.to_string()))?;
            below.set_fqdn(false);
            below.append_domain(origin).map_err(|error| told(error.to_string()))?
        }
    };
    let kind: RecordType = rtype.parse().map_err(|_| told("there is no such type".to_owned()))?;
    let read = RecordData::read(kind, data).map_err(|error| told(error.message))?;
    let data = rdata_of(kind, read).map_err(told)?;
    Ok(Record::from_rdata(owner, *ttl, data))
}

fn rdata_of(kind: RecordType, data: RecordData) -> Result<RData, String> {
    Ok(match data {
        RecordData::A(address) => RData::A(address.into()),
        RecordData::Aaaa(address) => RData::AAAA(address.into()),
        RecordData::Name(target) => match kind {
            RecordType::Cname => RData::CNAME(rdata::CNAME(name(&target)?)),
            RecordType::Ns => RData::NS(rdata::NS(name(&target)?)),
            _ => RData::PTR(rdata::PTR(name(&target)?)),
        },
        RecordData::Mx { preference, exchange } => RData::MX(rdata::MX::new(preference, name(&exchange)?)),
        RecordData::Txt(text) => {
            let strings = text.as_bytes().chunks(LONGEST_STRING).collect();
            RData::TXT(rdata::TXT::from_bytes(strings))
        }
        RecordData::Srv { priority, weight, port, target } => {
            RData::SRV(rdata::SRV::new(priority, weight, port, name(&target)?))
        }
        RecordData::Caa { flags, tag, value } => {
            // RFC 8659 §4.1. hickory-proto encodes only tags and values that it knows. These bytes may have others.
            let mut bytes = vec![flags, u8::try_from(tag.len()).unwrap_or(u8::MAX)];
            bytes.extend(tag.bytes().chain(value.bytes()));
            RData::Unknown { code: crate::RecordType::CAA, rdata: rdata::NULL::with(bytes) }
        }
        RecordData::Sshfp { algorithm, digest, fingerprint } => {
            let fingerprint = hex::decode(&fingerprint).map_err(|error| error.to_string())?;
            RData::SSHFP(rdata::SSHFP::new(algorithm.into(), digest.into(), fingerprint))
        }
    })
}
