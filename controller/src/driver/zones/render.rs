//! The content of zones, from what is declared and what was found. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use basalt_api::kinds::{DnsRecordSpec, RecordData, RecordType};
use basalt_db::{DynamicRange, HostAddress};
use basalt_proto::rack_v1::{AddressRange, DnsRecord, DnsZone};

use super::reverse;
use super::reverse::ReverseZone;
use crate::driver::topology::network::{Net, RackSeen};

/// Seconds that names of addresses may be kept.
const POINTER_TTL: u32 = 300;
/// Seconds that names of racks may be kept. Racks come and go.
const RACK_TTL: u32 = 15;
/// Seconds that records of the catalog may be kept. Nobody keeps them: servers read the whole zone.
const CATALOG_TTL: u32 = 0;
/// The owner name of the apex.
const APEX: &str = "@";

/// Records of a zone by owner and type, so that each set has one TTL and no record twice.
#[derive(Debug, Default)]
struct Sets(BTreeMap<(String, RecordType), (u32, BTreeSet<String>)>);

impl Sets {
    /// Adds a record. A set has the lowest of its TTLs (RFC 2181 §5.2).
    fn add(&mut self, owner: &str, rtype: RecordType, ttl: u32, data: String) {
        let (lowest, set) =
            self.0.entry((owner.to_ascii_lowercase(), rtype)).or_insert((ttl, BTreeSet::new()));
        *lowest = ttl.min(*lowest);
        set.insert(data);
    }

    fn add_address(&mut self, owner: &str, ttl: u32, address: IpAddr) {
        let rtype = if address.is_ipv4() { RecordType::A } else { RecordType::Aaaa };
        self.add(owner, rtype, ttl, address.to_string());
    }

    fn has(&self, owner: &str, rtype: RecordType) -> bool {
        self.0.contains_key(&(owner.to_ascii_lowercase(), rtype))
    }

    fn records(self) -> Vec<DnsRecord> {
        let records = self.0.into_iter().flat_map(|((owner, rtype), (ttl, data))| {
            let rtype = rtype.to_string();
            data.into_iter().map(move |data| DnsRecord {
                owner: owner.clone(),
                rtype: rtype.clone(),
                ttl,
                data,
            })
        });
        records.collect()
    }
}

/// The name of the servers of zones that declare none.
#[must_use]
pub fn name_server(internal: &str) -> String {
    format!("ns.{internal}.")
}

/// A domain to render.
#[derive(Debug)]
pub struct DomainContent<'a> {
    /// The name of the domain.
    pub name: &'a str,
    /// Seconds that its records may be kept.
    pub ttl: u32,
    /// The internal domain, which has the name of the servers.
    pub internal: &'a str,
    /// Names of hosts, each below the domain.
    pub hosts: &'a [HostAddress],
    /// The declared records, by the names of the DnsRecords.
    pub records: &'a [(String, DnsRecordSpec)],
    /// Addresses whose names are computed when they are asked.
    pub computed: &'a [DynamicRange],
}

/// The zone of a domain.
#[must_use]
pub fn domain(content: &DomainContent<'_>) -> DnsZone {
    let DomainContent { name, ttl, internal, hosts, records, computed } = content;
    let mut sets = Sets::default();
    for (name, record) in *records {
        // The database keeps a CNAME alone at its name (RFC 1034 §3.6.2), and validation has read the data.
        match RecordData::read(record.rtype, &record.data) {
            Ok(data) => sets.add(
                record.owner_name.as_str(),
                record.rtype,
                record.ttl.unwrap_or(*ttl),
                data.to_string(),
            ),
            Err(error) => {
                tracing::warn!(record = name, error = error.message, "a record is left out of its zone")
            }
        }
    }
    let declared: BTreeSet<String> = {
        let addresses = [RecordType::A, RecordType::Aaaa, RecordType::Cname];
        sets.0.keys().filter(|(_, rtype)| addresses.contains(rtype)).map(|(owner, _)| owner.clone()).collect()
    };
    for host in hosts.iter().filter(|host| !declared.contains(&host.name.to_ascii_lowercase())) {
        sets.add_address(&host.name, *ttl, host.address);
    }
    let zone = zone(name, *ttl, internal, sets);
    DnsZone { computed: computed.iter().map(range).collect(), ..zone }
}

/// A zone of addresses. `nets` are the subnets whose addresses are in it, `names` the whole names of their addresses.
#[must_use]
pub fn reverse_zone(
    zone_of: &ReverseZone,
    internal: &str,
    nets: &[&Net],
    names: &[HostAddress],
    computed: &[DynamicRange],
    default_domain: Option<&str>,
) -> DnsZone {
    let mut sets = Sets::default();
    let own: Vec<ReverseZone> = match zone_of.is_classless {
        true => Vec::new(),
        false => classless(zone_of, nets),
    };
    for named in names {
        let pointer = reverse::pointer(named.address);
        if own.iter().any(|own| own.network.contains(named.address)) {
            continue;
        }
        let owner = match zone_of.is_classless {
            true => pointer.split('.').next(),
            false => pointer.strip_suffix(&format!(".{}", zone_of.origin)),
        };
        if let Some(owner) = owner {
            sets.add(owner, RecordType::Ptr, POINTER_TTL, format!("{}.", named.name));
        }
    }
    for own in &own {
        let Some(label) = own.origin.strip_suffix(&format!(".{}", zone_of.origin)) else { continue };
        sets.add(label, RecordType::Ns, POINTER_TTL, name_server(internal));
        for last in last_octets(own) {
            if sets.has(&last.to_string(), RecordType::Cname) {
                continue;
            }
            sets.add(&last.to_string(), RecordType::Cname, POINTER_TTL, format!("{last}.{}.", own.origin));
        }
    }
    // Computed names have the form of octets or nibbles, which a zone of RFC 2317 has as well.
    let (first, last) = (zone_of.network.network(), zone_of.network.broadcast());
    let here = |range: &&DynamicRange| {
        range.first.is_ipv4() == first.is_ipv4() && range.first <= last && range.last >= first
    };
    let computed = computed.iter().filter(here).map(range);
    let zone = zone(&zone_of.origin, POINTER_TTL, internal, sets);
    match default_domain {
        Some(domain) => DnsZone { computed: computed.collect(), computed_domain: domain.to_owned(), ..zone },
        None => zone,
    }
}

/// The zones of RFC 2317 just below a zone, the smallest first: of two that have an address, the smaller one names it.
fn classless(parent: &ReverseZone, nets: &[&Net]) -> Vec<ReverseZone> {
    let zones = nets.iter().flat_map(|net| reverse::zones(net.subnet.cidr, net.subnet.rdns));
    let is_below = |zone: &ReverseZone| {
        let label = zone.origin.strip_suffix(&format!(".{}", parent.origin));
        zone.is_classless && label.is_some_and(|label| !label.contains('.'))
    };
    let zones: BTreeSet<_> = zones.filter(is_below).collect();
    let mut zones: Vec<_> = zones.into_iter().collect();
    zones.sort_by_key(|zone| std::cmp::Reverse(zone.network.prefix_len()));
    zones
}

/// The last octets of the addresses of a zone of RFC 2317.
fn last_octets(zone: &ReverseZone) -> impl Iterator<Item = u8> {
    let first = match zone.network.network() {
        IpAddr::V4(first) => first.octets()[3],
        IpAddr::V6(_) => 0,
    };
    let count = 1_u16 << 32_u8.saturating_sub(zone.network.prefix_len()).min(8);
    (0..count).filter_map(move |n| u8::try_from(u16::from(first) + n).ok())
}

/// The internal domain. `SUBNET.rack` has the addresses of racks in that subnet; `ns` has all addresses of racks.
///
/// It contains the racks that are connected and not in maintenance. If there are none, it contains all racks: perhaps only the region is
/// disconnected.
#[must_use]
pub fn internal(origin: &str, nets: &[Net], racks: &[RackSeen]) -> DnsZone {
    let mut sets = Sets::default();
    let living: Vec<&RackSeen> = racks.iter().filter(|rack| rack.is_there() && !rack.maintenance).collect();
    let known: Vec<&RackSeen> = if living.is_empty() { racks.iter().collect() } else { living };
    let addresses = || known.iter().flat_map(|rack| &rack.served).filter(|it| !it.is_loopback());
    for address in addresses() {
        sets.add_address("ns", RACK_TTL, *address);
    }
    for net in nets {
        for address in addresses().filter(|it| net.subnet.cidr.contains(**it)) {
            sets.add_address(&format!("{}.rack", net.name), RACK_TTL, *address);
        }
    }
    DnsZone { shuffled: true, ..zone(origin, RACK_TTL, origin, sets) }
}

/// A zone that a catalog names.
#[derive(Debug)]
pub struct Member {
    /// The label below which the catalog names it.
    pub label: String,
    /// The name of the zone.
    pub origin: String,
}

/// The catalog of zones (RFC 9432 §4). Its NS record is `invalid.`: secondaries copy the catalog, and no client resolves names in it.
#[must_use]
pub fn catalog(origin: &str, members: &[Member]) -> DnsZone {
    let mut sets = Sets::default();
    sets.add(APEX, RecordType::Ns, CATALOG_TTL, "invalid.".to_owned());
    sets.add("version", RecordType::Txt, CATALOG_TTL, "2".to_owned());
    for Member { label, origin } in members {
        sets.add(&format!("{label}.zones"), RecordType::Ptr, CATALOG_TTL, format!("{origin}."));
    }
    zone(origin, CATALOG_TTL, origin, sets)
}

fn zone(origin: &str, ttl: u32, internal: &str, mut sets: Sets) -> DnsZone {
    let server = name_server(internal);
    if !sets.has(APEX, RecordType::Ns) {
        sets.add(APEX, RecordType::Ns, ttl, server.clone());
    }
    let primary =
        sets.0.get(&(APEX.to_owned(), RecordType::Ns)).and_then(|(_, servers)| servers.first()).cloned();
    DnsZone {
        origin: origin.to_owned(),
        ttl,
        primary: primary.unwrap_or(server),
        records: sets.records(),
        ..DnsZone::default()
    }
}

fn range(range: &DynamicRange) -> AddressRange {
    AddressRange { start: range.first.to_string(), end: range.last.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn records(zone: &DnsZone) -> Vec<String> {
        let line = |it: &DnsRecord| format!("{} {} {} {}", it.owner, it.ttl, it.rtype, it.data);
        zone.records.iter().map(line).collect()
    }

    fn host(name: &str, address: &str) -> HostAddress {
        HostAddress { name: name.to_owned(), address: address.parse().unwrap() }
    }

    fn declared(owner: &str, rtype: &str, data: &str, ttl: Option<u32>) -> (String, DnsRecordSpec) {
        let spec =
            json!({"domain": "lab.example", "owner_name": owner, "type": rtype, "data": data, "ttl": ttl});
        (format!("record-{owner}"), serde_json::from_value(spec).unwrap())
    }

    fn lab(hosts: &[HostAddress], records: &[(String, DnsRecordSpec)]) -> DnsZone {
        let (name, internal) = ("lab.example", "basalt.internal");
        domain(&DomainContent { name, ttl: 60, internal, hosts, records, computed: &[] })
    }

    #[test]
    fn a_domain_has_its_hosts_and_its_records_and_a_server() {
        let hosts = [host("m1", "10.0.0.1"), host("m1", "fd00::1"), host("m2", "10.0.0.2")];
        let zone = lab(&hosts, &[declared("www", "CNAME", "M1.lab.example", Some(5))]);
        let wanted = [
            "@ 60 NS ns.basalt.internal.",
            "m1 60 A 10.0.0.1",
            "m1 60 AAAA fd00::1",
            "m2 60 A 10.0.0.2",
            "www 5 CNAME m1.lab.example.",
        ];
        assert_eq!(records(&zone), wanted);
    }

    #[test]
    fn what_is_declared_takes_the_place_of_what_was_found() {
        let hosts = [host("m1", "10.0.0.1"), host("M2", "10.0.0.2"), host("m3", "10.0.0.3")];
        let declared = [
            declared("m1", "A", "10.9.9.9", None),
            declared("m2", "CNAME", "x.example", None),
            declared("m3", "TXT", "hello", None),
        ];
        let lines = records(&lab(&hosts, &declared));
        assert!(
            lines.contains(&"m1 60 A 10.9.9.9".to_owned()) && !lines.iter().any(|it| it.contains("10.0.0.1"))
        );
        assert!(
            lines.contains(&"m2 60 CNAME x.example.".to_owned())
                && !lines.iter().any(|it| it.contains("10.0.0.2"))
        );
        assert!(
            lines.contains(&"m3 60 A 10.0.0.3".to_owned()),
            "a text says nothing of the address: {lines:?}"
        );
    }

    #[test]
    fn the_records_of_a_set_have_one_ttl_and_declared_servers_take_the_place_of_racks() {
        let declared = [
            declared("a", "A", "10.0.0.1", Some(9)),
            declared("a", "A", "10.0.0.2", None),
            declared("@", "NS", "ns1.example", None),
        ];
        let zone = lab(&[], &declared);
        assert_eq!(records(&zone), ["@ 60 NS ns1.example.", "a 9 A 10.0.0.1", "a 9 A 10.0.0.2"]);
        assert_eq!(zone.primary, "ns1.example.");
    }

    fn net(name: &str, cidr: &str, rdns: &str) -> Net {
        let subnet = json!({"vlan": "lab.0", "cidr": cidr, "rdns": rdns});
        Net {
            uid: uuid::Uuid::nil().into(),
            name: name.to_owned(),
            subnet: serde_json::from_value(subnet).unwrap(),
            vlan: basalt_api::kinds::VlanSpec::new("lab".parse().unwrap(), 0),
            fabric_class: None,
        }
    }

    #[test]
    fn a_small_network_has_its_own_zone_and_aliases_around_it_and_a_smaller_one_in_it_has_its_own() {
        let nets = [net("a", "192.0.2.0/30", "rfc2317"), net("b", "192.0.2.0/31", "rfc2317")];
        let nets: Vec<&Net> = nets.iter().collect();
        let names = [host("m1.lab.example", "192.0.2.1"), host("m9.lab.example", "192.0.2.9")];
        let zone = |origin: &str| {
            let zones = nets.iter().flat_map(|net| reverse::zones(net.subnet.cidr, net.subnet.rdns));
            let zone = zones.into_iter().find(|zone| zone.origin == origin).unwrap();
            records(&reverse_zone(&zone, "basalt.internal", &nets, &names, &[], None))
        };
        let wanted = [
            "0 300 CNAME 0.0-31.2.0.192.in-addr.arpa.",
            "0-30 300 NS ns.basalt.internal.",
            "0-31 300 NS ns.basalt.internal.",
            "1 300 CNAME 1.0-31.2.0.192.in-addr.arpa.",
            "2 300 CNAME 2.0-30.2.0.192.in-addr.arpa.",
            "3 300 CNAME 3.0-30.2.0.192.in-addr.arpa.",
            "9 300 PTR m9.lab.example.",
            "@ 300 NS ns.basalt.internal.",
        ];
        assert_eq!(zone("2.0.192.in-addr.arpa"), wanted);
        assert!(zone("0-31.2.0.192.in-addr.arpa").contains(&"1 300 PTR m1.lab.example.".to_owned()));
    }

    #[test]
    fn a_range_has_computed_names_in_each_zone_that_it_reaches_into() {
        let range =
            DynamicRange { first: "10.77.4.10".parse().unwrap(), last: "10.77.7.250".parse().unwrap() };
        for zone in reverse::zones("10.77.4.0/22".parse().unwrap(), basalt_api::kinds::Rdns::Enabled) {
            let rendered = reverse_zone(&zone, "basalt.internal", &[], &[], &[range], Some("lab.example"));
            assert_eq!(rendered.computed.len(), 1, "{}", zone.origin);
        }
    }
}
