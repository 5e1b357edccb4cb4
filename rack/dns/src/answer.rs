//! The action for a query (RFC 1034 §4.3.2).

use std::net::IpAddr;

use crate::name::{WireName, parent};
use crate::query::{AA, Code, IN, Query, RA, RD, Unreadable};
use crate::question::Question;
use crate::records::{RrSet, rtype};
use crate::reply::{Reply, Section, UDP_SIZE};
use crate::zone::{Found, Zone};
use crate::zones::Zones;

/// The longest datagram for a client without EDNS (RFC 1035 §4.2.1).
const PLAIN_UDP: u16 = 512;
/// The longest message over TCP (RFC 1035 §4.2.2).
const TCP_SIZE: u16 = u16::MAX;
/// The most aliases that are followed for one query.
const MAX_ALIASES: usize = 16;

/// The transport that a query came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// In a datagram: the answer has 512 octets at most, or as many as the client's EDNS says, up to 1232.
    Udp,
    /// Over a connection: the answer has 65,535 octets at most.
    Tcp,
}

/// The action that a query asks for.
#[derive(Debug)]
pub enum Answer {
    /// Send this message back.
    Reply(Vec<u8>),
    /// Another server has the answer. The question turns that server's response into the reply.
    Forward(Box<Question>),
    /// The query is signed, or asks for a whole zone: pass it to [`Secondaries::answer`](crate::Secondaries::answer),
    /// which has the keys.
    Secondary,
    /// Send nothing: the message is no query.
    Drop,
}

/// Answers a query from zones.
///
/// `may_recurse`: other servers may be asked for this client. Its questions for names outside the zones are forwarded
/// if it sets RD; every other question for such names is answered REFUSED.
#[must_use]
pub fn answer(zones: &Zones, query: &[u8], transport: Transport, may_recurse: bool) -> Answer {
    answer_within(zones, query, transport, may_recurse, 0)
}

/// Like [`answer`]; this many octets of the reply's limit stay free for a signature.
pub(crate) fn answer_within(
    zones: &Zones,
    query: &[u8],
    transport: Transport,
    may_recurse: bool,
    free: usize,
) -> Answer {
    let query = match Query::read(query) {
        Ok(query) => query,
        Err(Unreadable::Ignore) => return Answer::Drop,
        Err(Unreadable::Answer { id, flags, code }) => return Answer::Reply(Reply::bare(id, flags, code)),
    };
    let limit = match (transport, &query.edns) {
        (Transport::Tcp, _) => TCP_SIZE,
        (Transport::Udp, Some(edns)) => edns.size.clamp(PLAIN_UDP, UDP_SIZE),
        (Transport::Udp, None) => PLAIN_UDP,
    };
    if query.tsig.is_some() || query.class == IN && matches!(query.rtype, rtype::AXFR | rtype::IXFR) {
        return Answer::Secondary;
    }
    let dnssec_ok = query.edns.as_ref().map(|edns| edns.dnssec_ok);
    let mut reply =
        Reply::new(query.id, query.flags, query.question, dnssec_ok, usize::from(limit).saturating_sub(free));
    reply.point_at(&query.name);
    if may_recurse {
        reply.set(RA);
    }
    if let Some(code) = refusal(&query) {
        reply.set_code(code);
        return Answer::Reply(reply.finish());
    }
    let forward = may_recurse && query.has(RD);
    resolve(zones, &query, reply, forward)
}

/// Queries that no zone answers.
fn refusal(query: &Query<'_>) -> Option<Code> {
    if query.edns.as_ref().is_some_and(|edns| edns.version > 0) {
        return Some(Code::BadVers);
    }
    match query.rtype {
        _ if query.class != IN => Some(Code::Refused),
        0 | rtype::OPT => Some(Code::FormErr),
        rtype::TKEY | rtype::TSIG | rtype::MAILA | rtype::MAILB => Some(Code::NotImp),
        _ => None,
    }
}

fn resolve(zones: &Zones, query: &Query<'_>, mut reply: Reply, forward: bool) -> Answer {
    let mut name = query.name.clone();
    let mut aliases: Vec<Box<[u8]>> = Vec::new();
    loop {
        let Some(zone) = zones.find(&name, query.rtype) else {
            if forward {
                return Answer::Forward(Box::new(Question::new(query, name, reply, Vec::new())));
            }
            if aliases.is_empty() {
                reply.set_code(Code::Refused);
            }
            return Answer::Reply(reply.finish());
        };
        let found = zone.lookup(&name, query.rtype);
        if aliases.is_empty() && !matches!(found, Found::Cut(..)) {
            // AA refers to the first owner name (RFC 1035 §4.1.1).
            reply.set(AA);
        }
        match found {
            Found::Records(set) => {
                reply.add(Section::Answer, name.as_bytes(), &set, set.ttl, zone.turn());
            }
            Found::Alias(set) => {
                if !reply.add(Section::Answer, name.as_bytes(), set, set.ttl, 0) {
                    return Answer::Reply(reply.finish());
                }
                aliases.push(name.as_bytes().into());
                let target = set.rdatas().next().and_then(WireName::of);
                if let Some(mut target) = target
                    && aliases.len() < MAX_ALIASES
                {
                    target.make_lowercase();
                    if !aliases.iter().any(|alias| **alias == *target.as_bytes()) {
                        name = target;
                        continue;
                    }
                }
            }
            Found::Cut(labels, servers) => {
                if forward {
                    let addresses = addresses(zones, zone, servers);
                    return Answer::Forward(Box::new(Question::new(query, name, reply, addresses)));
                }
                refer(zone, name.last(labels), servers, &mut reply);
            }
            Found::NoData => deny(zone, &mut reply, Code::NoError),
            Found::NoName => deny(zone, &mut reply, Code::NxDomain),
        }
        return Answer::Reply(reply.finish());
    }
}

/// A negative answer with the SOA, which says how long it may be cached (RFC 2308 §3). The code refers to the last name
/// of a chain (RFC 6604 §3).
fn deny(zone: &Zone, reply: &mut Reply, code: Code) {
    reply.set_code(code);
    reply.add(Section::Authority, zone.key(), zone.negative(), zone.negative().ttl, 0);
}

/// A referral to the servers of a delegated zone, with all addresses of those that are below the cut (RFC 9471 §3.1).
fn refer(zone: &Zone, cut: &[u8], servers: &RrSet, reply: &mut Reply) {
    reply.add(Section::Authority, cut, servers, servers.ttl, 0);
    for server in servers.rdatas() {
        let server = server.to_ascii_lowercase();
        for set in [rtype::A, rtype::AAAA].iter().filter_map(|rtype| zone.exact(&server, *rtype)) {
            let fits = reply.add(Section::Additional, &server, set, set.ttl, 0);
            if !fits && is_below(&server, cut) {
                reply.set(crate::query::TC);
            }
        }
    }
}

/// The addresses of a delegated zone's servers, as far as this server's zones have them.
fn addresses(zones: &Zones, zone: &Zone, servers: &RrSet) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for server in servers.rdatas() {
        let server = server.to_ascii_lowercase();
        for rtype in [rtype::A, rtype::AAAA] {
            let elsewhere = || {
                WireName::of(&server)
                    .and_then(|name| zones.find(&name, rtype))
                    .and_then(|zone| zone.exact(&server, rtype))
            };
            addresses
                .extend(zone.exact(&server, rtype).or_else(elsewhere).into_iter().flat_map(RrSet::addresses));
        }
    }
    addresses
}

fn is_below(name: &[u8], cut: &[u8]) -> bool {
    std::iter::successors(Some(name), |name| Some(parent(name)).filter(|_| name.len() > 1))
        .any(|name| name == cut)
}
