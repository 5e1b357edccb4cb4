//! The DNS concern, converted to the zones and settings of `basalt-dns`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use basalt_dns::document::{name, zone as make};
use basalt_dns::{Name, Secondaries, Secondary, TsigKey, Zone, Zones};
use basalt_proto::rack_v1::{DnsConcern, DnsSecondary};
use ipnet::IpNet;
use prost::Message;

use super::forward::PORT;
use crate::hash::sha256;

/// The converted concern. Queries are answered from it.
#[derive(Debug, Default)]
pub struct Held {
    /// The zones of this rack.
    pub zones: Zones,
    /// Networks whose hosts may use the forwarder: they may ask about names in no zone.
    pub recursion: Vec<IpNet>,
    /// Domains with servers of their own, and those servers.
    pub forwards: Vec<(Name, Vec<SocketAddr>)>,
    /// Servers for all other names. Empty: those of this host.
    pub upstream: Vec<IpAddr>,
    /// Servers that may copy zones.
    pub secondaries: Secondaries,
    /// The copies of zones by these servers. The rack notifies the servers of changes.
    pub copies: Vec<Copy>,
    /// The number of records in all zones.
    pub records: usize,
    /// Each zone, with the hash of its message in the concern.
    made_of: HashMap<String, ([u8; 32], Arc<Zone>)>,
}

/// A copy of a zone, and the server that has it.
#[derive(Debug, Clone)]
pub struct Copy {
    /// The name of the zone.
    pub origin: Name,
    /// The serial of the zone here.
    pub serial: u32,
    /// The name of the server, as people write it.
    pub server: String,
    /// The server that holds the copy.
    pub secondary: Secondary,
}

impl Held {
    /// Converts a concern. Returns the reason for each part that cannot be used. Zones that are the same in `before` are taken from there.
    #[must_use]
    pub fn new(concern: &DnsConcern, before: &Self) -> (Self, Vec<String>) {
        let (mut made_of, mut left_out) = (HashMap::new(), Vec::new());
        for zone in &concern.zones {
            let hash = sha256(&zone.encode_to_vec());
            let kept = before.made_of.get(&zone.origin).filter(|(of, _)| *of == hash).cloned();
            let made = match kept {
                Some(kept) => Ok(kept),
                None => make(zone).map(|made| (hash, Arc::new(made))),
            };
            match made {
                Ok(made) => drop(made_of.insert(zone.origin.clone(), made)),
                Err(why) => left_out.push(format!("zone {:?}: {why}", zone.origin)),
            }
        }
        let mut zones: Zones = made_of.values().map(|(_, zone)| Arc::clone(zone)).collect();
        let mut recursion = Vec::new();
        for network in &concern.recursion {
            match network.parse() {
                Ok(network) => recursion.push(network),
                Err(error) => left_out.push(format!("network {network:?}: {error}")),
            }
        }
        let mut read = |servers: &[String]| -> Vec<IpAddr> {
            let address = |text: &String| match text.parse() {
                Ok(address) => Some(address),
                Err(error) => {
                    left_out.push(format!("server {text:?}: {error}"));
                    None
                }
            };
            servers.iter().filter_map(address).collect()
        };
        let upstream = read(&concern.upstream);
        let forwards: Vec<_> =
            concern.forwards.iter().map(|it| (it.domain.clone(), read(&it.servers))).collect();
        let mut conditional = Vec::new();
        for (domain, servers) in forwards {
            match name(&domain) {
                Ok(domain) => {
                    zones.leave(&domain);
                    let servers = servers.into_iter().map(|address| (address, PORT).into());
                    conditional.push((domain, servers.collect()));
                }
                Err(why) => left_out.push(format!("domain {why}")),
            }
        }
        let mut copies: Vec<Copy> = Vec::new();
        for declared in &concern.secondaries {
            match secondary(declared) {
                Ok(secondary) => copies.extend(declared.zones.iter().filter_map(|zone| {
                    let copy = copy(zone, declared, &secondary, &zones);
                    copy.map_err(|why| left_out.push(format!("secondary {}: {why}", declared.name))).ok()
                })),
                Err(why) => left_out.push(format!("secondary {}: {why}", declared.name)),
            }
        }
        let mut secondaries = Secondaries::default();
        copies.sort_by(|a, b| a.origin.cmp(&b.origin));
        for of_zone in copies.chunk_by(|a, b| a.origin == b.origin) {
            if let Some(first) = of_zone.first() {
                secondaries.allow(&first.origin, of_zone.iter().map(|it| it.secondary.clone()).collect());
            }
        }
        let records = zones.iter().map(|zone| zone.records()).sum();
        let forwards = conditional;
        let held = Self { zones, recursion, forwards, upstream, secondaries, copies, records, made_of };
        (held, left_out)
    }

    /// True if a host may use the forwarder.
    #[must_use]
    pub fn may_recurse(&self, peer: IpAddr) -> bool {
        peer.is_loopback() || self.recursion.iter().any(|network| network.contains(&peer))
    }
}

/// A copy of a zone that a secondary holds.
///
/// # Errors
/// The reason why the secondary has no copy, as text.
fn copy(zone: &str, declared: &DnsSecondary, secondary: &Secondary, zones: &Zones) -> Result<Copy, String> {
    let origin = name(zone)?;
    let serial = zones.get(&origin).ok_or_else(|| format!("zone {zone} is not served"))?.serial();
    Ok(Copy { origin, serial, server: declared.name.clone(), secondary: secondary.clone() })
}

/// A secondary of the concern.
///
/// # Errors
/// The reason why it cannot be a secondary, as text.
fn secondary(declared: &DnsSecondary) -> Result<Secondary, String> {
    let DnsSecondary { address, port, key, secret, .. } = declared;
    let address: IpAddr = address.parse().map_err(|error| format!("{address:?}: {error}"))?;
    let port = u16::try_from(*port).map_err(|_| format!("there is no port {port}"))?;
    if secret.is_empty() {
        return Err("it has no secret".to_owned());
    }
    Ok(Secondary { at: (address, port).into(), key: TsigKey::new(&name(key)?, secret) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_dns::{Answer, Transport, answer};
    use basalt_proto::rack_v1::{DnsForward, DnsRecord, DnsZone};

    fn zone(records: &[(&str, &str, &str)]) -> DnsZone {
        let record = |&(owner, rtype, data): &(&str, &str, &str)| DnsRecord {
            owner: owner.into(),
            rtype: rtype.into(),
            ttl: 60,
            data: data.into(),
        };
        DnsZone {
            origin: "lab.example".into(),
            serial: 7,
            ttl: 60,
            primary: "ns.basalt.internal.".into(),
            records: records.iter().map(record).collect(),
            ..DnsZone::default()
        }
    }

    #[test]
    fn every_type_of_record_becomes_what_the_wire_has() {
        let long = "x".repeat(300);
        let records = [
            ("@", "NS", "ns.basalt.internal."),
            ("m1", "A", "10.77.0.9"),
            ("m1", "AAAA", "fd00::9"),
            ("www", "CNAME", "m1.lab.example."),
            ("@", "MX", "10 mail.example."),
            ("@", "TXT", long.as_str()),
            ("_http._tcp", "SRV", "0 5 80 m1.lab.example."),
            ("9", "PTR", "m1.lab.example."),
            ("@", "CAA", "0 issue \"ca.example\""),
            ("m1", "SSHFP", "4 2 abababababababababababababababababababababababababababababababab"),
        ];
        let concern = DnsConcern { zones: vec![zone(&records)], ..DnsConcern::default() };
        let (held, left_out) = Held::new(&concern, &Held::default());
        assert_eq!(left_out, [""; 0]);
        let query = b"\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03lab\x07example\x00\x01\x01\x00\x01";
        let Answer::Reply(reply) = answer(&held.zones, query, Transport::Udp, false) else {
            panic!("no reply")
        };
        assert!(reply.windows(17).any(|it| it == b"\x00\x05issueca.example"), "a CAA record: {reply:x?}");
    }

    #[test]
    fn a_zone_that_cannot_be_used_is_left_out_alone_and_the_others_are_not_made_again() {
        let good = zone(&[("m1", "A", "10.77.0.9")]);
        let bad = DnsZone { origin: "bad.example".into(), ..zone(&[("m1", "A", "10.77.0.9.9")]) };
        let concern = DnsConcern { zones: vec![good, bad], ..DnsConcern::default() };
        let (held, left_out) = Held::new(&concern, &Held::default());
        assert!(
            left_out.len() == 1 && left_out[0].starts_with("zone \"bad.example\": m1 A "),
            "{left_out:?}"
        );
        let again = Held::new(&concern, &held).0;
        assert!(Arc::ptr_eq(&held.made_of["lab.example"].1, &again.made_of["lab.example"].1));
    }

    #[test]
    fn a_domain_of_other_servers_is_left_to_them_below_a_zone_too() {
        let forwards = vec![DnsForward { domain: "x.lab.example".into(), servers: vec!["192.0.2.1".into()] }];
        let zones = vec![zone(&[("m1", "A", "10.77.0.9")])];
        let (held, _) = Held::new(&DnsConcern { zones, forwards, ..DnsConcern::default() }, &Held::default());
        let asked = |name: &[u8]| {
            let head = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00";
            let query = [&head[..], name, b"\x03lab\x07example\x00\x00\x01\x00\x01"].concat();
            answer(&held.zones, &query, Transport::Udp, true)
        };
        assert!(matches!(asked(b"\x01a\x01x"), Answer::Forward(_)));
        assert!(matches!(asked(b"\x01a\x01y"), Answer::Reply(_)));
    }

    #[test]
    fn hosts_of_open_networks_may_ask_about_anything() {
        let concern =
            DnsConcern { recursion: vec!["10.77.0.0/24".into(), "x".into()], ..DnsConcern::default() };
        let (held, left_out) = Held::new(&concern, &Held::default());
        assert!(left_out[0].contains("\"x\""));
        assert!(
            held.may_recurse("10.77.0.9".parse().unwrap()) && !held.may_recurse("10.78.0.9".parse().unwrap())
        );
    }
}
