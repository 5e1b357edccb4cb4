//! Domain and DnsRecord: names, and what they stand for.

use super::record::{RecordData, RecordType};
use super::{CommonStatus, kind};
use crate::model::Ref;
use crate::pointer;
use crate::validate::Rule;
use crate::values::{Hostname, LONGEST_NAME, Naming, OwnerName, Secret};
use basalt_api_derive::Model;
use base64::Engine as _;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Servers that each rack tells of changes of one zone.
const MOST_SECONDARIES: usize = 16;
/// Bytes of a secret. Fewer can be guessed from one message; more do not make HMAC-SHA256 stronger (RFC 2104 §3).
const SECRET_BYTES: RangeInclusive<usize> = 16..=64;

kind! {
    /// A domain of the DNS. Its name is the domain's: `lab.example.com`.
    Domain, "domains", "basalt_domain", DomainName, declarable: true, DomainSpec, DomainStatus, domain_rules
}

/// A domain, and who answers for it.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DomainSpec {
    /// Whether Basalt answers for it itself. False: queries go to `forward_to`.
    #[field(default = true)]
    pub authoritative: bool,
    /// Seconds that answers may be cached for, where a record says nothing else (RFC 2181 §8).
    #[field(default = 300, min = 0, max = 2147483647)]
    pub ttl: u32,
    /// Servers that answer for it, in order, where Basalt does not.
    pub forward_to: Vec<IpAddr>,
    /// Servers that hold copies of its zone, by names of your choice: at most 16. Racks let them copy the zone (AXFR), and tell them when it
    /// changes (NOTIFY).
    pub secondaries: BTreeMap<String, Secondary>,
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// A server that holds a copy of a zone.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Secondary {
    /// Its address. Copies are given to this address alone.
    pub address: IpAddr,
    /// The port at which it is told of changes. It asks from any port.
    #[field(default = 53, min = 1, max = 65535)]
    pub port: u16,
    /// The name of the key, which is the same there: `basalt.example.com`.
    pub key_name: Hostname,
    /// The secret of the key, without which nothing is copied: 16 to 64 bytes in base64, as `tsig-keygen` prints them. The algorithm is hmac-sha256.
    #[field(sent_nowhere)]
    pub key: Option<Secret>,
}

/// What of the domain is served.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DomainStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Serial number of its zone (RFC 1982).
    #[field(volatile)]
    pub serial: Option<u32>,
}

fn domain_rules(spec: &DomainSpec, rule: &mut Rule<'_>) {
    secondary_rules("/secondaries", &spec.secondaries, rule);
    if spec.authoritative && !spec.forward_to.is_empty() {
        rule.broken(
            "/forward_to",
            "Basalt answers for this domain itself, and forwards no queries for it",
            "leave it out, or say authoritative = false",
        );
    }
    if !spec.authoritative && spec.forward_to.is_empty() {
        rule.missing(
            "/forward_to",
            "nobody would answer for this domain",
            "the addresses of its servers, or authoritative = true",
        );
    }
    if !spec.authoritative && !spec.secondaries.is_empty() {
        rule.broken(
            "/secondaries",
            "other servers answer for this domain, and racks have no zone to copy",
            "leave it out, or say authoritative = true",
        );
    }
}

/// Rules of the servers that are declared at a pointer.
pub(super) fn secondary_rules(field: &str, secondaries: &BTreeMap<String, Secondary>, rule: &mut Rule<'_>) {
    if secondaries.len() > MOST_SECONDARIES {
        let message = format!("{} servers would copy each zone from each rack", secondaries.len());
        rule.broken(field, message, format!("at most {MOST_SECONDARIES}; others can copy from these"));
    }
    let mut addresses = BTreeMap::new();
    for (name, secondary) in secondaries {
        let at = pointer::child(field, name);
        if let Err(bad) = Naming::Label.check(name) {
            rule.broken(&at, bad.message, bad.hint);
        }
        let address = secondary.address.to_canonical();
        if let Some(other) = addresses.insert(address, name) {
            rule.broken(
                pointer::child(&at, "address"),
                format!("{other:?} has the address {address} already, and a server is known by its address"),
                "one secondary for each address",
            );
        }
        if address.is_unspecified() || address.is_multicast() {
            rule.broken(
                pointer::child(&at, "address"),
                format!("{address} is the address of no server"),
                "the address of one host",
            );
        }
        // A secret that is left out, or not in plain, may have been declared before.
        let Some(text) = secondary.key.as_ref().and_then(Secret::expose) else { continue };
        let is_sound = |bytes: Vec<u8>| SECRET_BYTES.contains(&bytes.len());
        if !base64::engine::general_purpose::STANDARD.decode(text).is_ok_and(is_sound) {
            rule.broken(
                pointer::child(&at, "key"),
                format!("it is not {} to {} bytes in base64", SECRET_BYTES.start(), SECRET_BYTES.end()),
                "the secret that `tsig-keygen -a hmac-sha256` prints",
            );
        }
    }
}

kind! {
    /// A record of a domain.
    DnsRecord, "dns_records", "basalt_dns_record", Label, declarable: true, DnsRecordSpec, DnsRecordStatus,
    dns_record_rules
}

/// A record.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DnsRecordSpec {
    /// The domain it is in.
    #[field(immutable)]
    pub domain: Ref<Domain>,
    /// Its name below the domain (RFC 1034 §3.6): `www`, `_ldap._tcp`, `*`, or `@` for the domain itself.
    #[field(immutable)]
    pub owner_name: OwnerName,
    /// What its data is.
    #[field(immutable, name = "type")]
    pub rtype: RecordType,
    /// What the name stands for, in the form of the type: an address (`A`, `AAAA`), a whole name (`CNAME`, `NS`, `PTR`),
    /// `10 mail.example.com` (`MX`), `0 5 443 www.example.com` (`SRV`), `0 issue "ca.example.com"` (`CAA`),
    /// `4 2 123456…` (`SSHFP`), or any text without quotes around it (`TXT`).
    pub data: String,
    /// Seconds that it may be cached for. Absent: the domain's.
    #[field(server_chosen, min = 0, max = 2147483647)]
    pub ttl: Option<u32>,
    /// What it is for, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// What of the record is served.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DnsRecordStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
}

fn dns_record_rules(spec: &DnsRecordSpec, rule: &mut Rule<'_>) {
    if let Err(bad) = RecordData::read(spec.rtype, &spec.data) {
        rule.broken("/data", bad.message, bad.hint);
    }
    let (owner, domain) = (spec.owner_name.as_str(), spec.domain.as_str());
    if spec.rtype == RecordType::Cname && owner == "@" {
        rule.broken(
            "/owner_name",
            format!("{domain} itself has other records, and a name with a CNAME has none (RFC 1034 §3.6.2)"),
            "a name below the domain, or records of type A and AAAA",
        );
    }
    let length = if owner == "@" { domain.len() } else { owner.len() + 1 + domain.len() };
    if length > LONGEST_NAME {
        let message = format!("with the domain, the name has {length} bytes");
        rule.broken("/owner_name", message, format!("at most {LONGEST_NAME}"));
    }
}
