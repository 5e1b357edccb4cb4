//! Domain and DnsRecord: the DNS zones of the region, and records in them.

use super::record::{RecordData, RecordType};
use super::{CommonStatus, kind, servers};
use crate::model::Ref;
use crate::pointer;
use crate::validate::Rule;
use crate::values::{Hostname, LONGEST_NAME, Naming, OwnerName, Secret, Timestamp};
use basalt_api_derive::Model;
use base64::Engine as _;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Most secondaries of a zone: each rack notifies each of them of changes.
const MOST_SECONDARIES: usize = 16;
/// Length of a key's secret in bytes. A shorter secret can be guessed from one message; a longer one does not make HMAC-SHA256
/// stronger (RFC 2104 §3).
const SECRET_BYTES: RangeInclusive<usize> = 16..=64;

kind! {
    /// A domain of the DNS. The name of the object is the name of the domain: `lab.example.com`.
    Domain, "domains", "basalt_domain", DomainName, declarable: true, DomainSpec, DomainStatus, domain_rules
}

/// A domain, and the servers that answer for it.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DomainSpec {
    /// True: Basalt answers for the domain. False: racks send queries to `forward_to`.
    #[field(default = true)]
    pub authoritative: bool,
    /// The time for which answers may be cached, in seconds, if their record declares none (RFC 2181 §8).
    #[field(default = 300, min = 0, max = 2147483647)]
    pub ttl: u32,
    /// DNS servers that answer for the domain if Basalt does not, in order.
    pub forward_to: Vec<IpAddr>,
    /// Servers that hold copies of the domain's zone, by names of your own: at most 16. Racks let them copy the zone (AXFR), and
    /// notify them of changes (NOTIFY).
    pub secondaries: BTreeMap<String, Secondary>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// A server that holds a copy of a zone.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Secondary {
    /// The address of the server. The zone is copied only to this address.
    pub address: IpAddr,
    /// The port at which the server is notified of changes. The server may send its own queries from any port.
    #[field(default = 53, min = 1, max = 65535)]
    pub port: u16,
    /// The name of the TSIG key, which must be the same at the server: `basalt.example.com`.
    pub key_name: Hostname,
    /// The secret of the key: 16 to 64 bytes in base64, as `tsig-keygen` prints them. The algorithm is hmac-sha256. Without the
    /// secret, racks copy nothing to the server.
    #[field(sent_nowhere)]
    pub key: Option<Secret>,
}

/// The state of the domain's zone.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DomainStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Serial number of the zone (RFC 1982).
    #[field(volatile)]
    pub serial: Option<u32>,
    /// The state of the copy at each server in `secondaries`, by name, from the reports of racks. A server is missing until a
    /// rack has asked it. If a copy is behind or a server silent, there is a condition `SecondaryBehind`.
    #[field(volatile)]
    pub secondaries: BTreeMap<String, SecondaryStatus>,
}

/// The state of the copy at a secondary.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SecondaryStatus {
    /// The state of the copy. If racks differ, the best one.
    #[field(volatile)]
    pub state: SecondaryState,
    /// The serial number of the copy. If only the serial changes, racks report it once a minute at most.
    #[field(volatile)]
    pub serial: Option<u32>,
    /// The time of its last answer. While the copy is current, the time of the last report. Absent: it answered no rack.
    #[field(volatile)]
    pub answered_at: Option<Timestamp>,
    /// The reason why the copy is not current.
    #[field(volatile)]
    pub message: Option<String>,
}

/// The state of a copy of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum SecondaryState {
    /// The copy is the zone as it is.
    Current,
    /// The secondary answers, and has an older copy or none.
    Behind,
    /// The secondary does not answer.
    Silent,
}

fn domain_rules(spec: &DomainSpec, rule: &mut Rule<'_>) {
    secondary_rules("/secondaries", &spec.secondaries, rule);
    servers::rules("/forward_to", spec.forward_to.iter().copied().map(Some), rule);
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

/// The rules for the secondaries that are declared at a pointer.
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
        // A secret that is left out, or sent in its read form, may be stored already: there is nothing to check.
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

/// A record of a domain: a name, a type and the data.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DnsRecordSpec {
    /// The domain of the record.
    #[field(immutable)]
    pub domain: Ref<Domain>,
    /// The name of the record below the domain (RFC 1034 §3.6): `www`, `_ldap._tcp`, `*`, or `@` for the domain itself.
    #[field(immutable)]
    pub owner_name: OwnerName,
    /// The type of the data.
    #[field(immutable, name = "type")]
    pub rtype: RecordType,
    /// The data of the record, in the form of its type. `A` and `AAAA`: an address. `CNAME`, `NS` and `PTR`: an absolute name.
    /// `MX`: `10 mail.example.com`. `SRV`: `0 5 443 www.example.com`. `CAA`: `0 issue "ca.example.com"`. `SSHFP`: `4 2 123456…`.
    /// `TXT`: any text, without quotes around it.
    pub data: String,
    /// The time for which the record may be cached, in seconds. Absent: the `ttl` of the domain.
    #[field(server_chosen, min = 0, max = 2147483647)]
    pub ttl: Option<u32>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The state of the record.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DnsRecordStatus {
    /// The fields that every status has.
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
