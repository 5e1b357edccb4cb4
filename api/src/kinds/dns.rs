//! Domain and DnsRecord: names, and what they stand for.

use super::record::{RecordData, RecordType};
use super::{CommonStatus, kind};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::{LONGEST_NAME, OwnerName};
use basalt_api_derive::Model;
use std::net::IpAddr;

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
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
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
