//! Responses of other servers (RFC 1035 §4.1, RFC 2308, RFC 5452).

use std::net::IpAddr;
use std::time::Duration;

use crate::name::WireName;
use crate::query::{AD, Code, Field, HEADER, IN, OPCODE, QR, TC, u16_at};
use crate::records::{RrSet, names_in, rtype};

/// The longest time that an answer is cached, in seconds, whatever its TTL is (RFC 8767 §4).
const MAX_TTL: u32 = 86_400;
/// The longest time that a negative answer is cached, in seconds.
const MAX_NEGATIVE_TTL: u32 = 300;

/// The length of a SOA after its names, in octets (RFC 1035 §3.3.13).
const SOA_NUMBERS: usize = 20;

/// The reason why a message is no usable response to the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadResponse {
    /// It answers another query: it may be forged, and the true response may still come (RFC 5452 §9.1).
    #[error("the message answers another query")]
    Mismatch,
    /// It answers the query, but the name came back in another case. Ask over TCP, where a stranger cannot answer.
    #[error("the name came back in other letters")]
    Case,
    /// It was cut to fit a datagram: ask over TCP.
    #[error("the answer did not fit into a datagram")]
    Truncated,
    /// It is malformed.
    #[error("the answer cannot be read")]
    Malformed,
    /// The server refuses the question with this code.
    #[error("the server answered with code {0}")]
    Code(u8),
}

/// An RRset, and the name that it belongs to, in wire form.
type Owned = (Box<[u8]>, RrSet);

/// A positive or negative answer of another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub(crate) code: Code,
    /// The server has checked all signatures (RFC 4035 §3.2.3).
    pub(crate) authentic: bool,
    pub(crate) answers: Vec<Owned>,
    pub(crate) authorities: Vec<Owned>,
    ttl: u32,
}

impl Response {
    /// Reads the response to a query that [`crate::Upstream::query`] wrote.
    ///
    /// # Errors
    /// The message does not answer this query, or is not usable.
    pub fn read(sent: &[u8], message: &[u8]) -> Result<Self, BadResponse> {
        let (Some(id), Some(flags)) = (u16_at(message, 0), u16_at(message, 2)) else {
            return Err(BadResponse::Mismatch);
        };
        if Some(id) != u16_at(sent, 0)
            || flags & QR == 0
            || flags & OPCODE != 0
            || u16_at(message, 4) != Some(1)
        {
            return Err(BadResponse::Mismatch);
        }
        let (mut asked, end) = WireName::read(sent, HEADER).ok_or(BadResponse::Mismatch)?;
        let end = end + 4;
        match (sent.get(HEADER..end), message.get(HEADER..end)) {
            (Some(ours), Some(theirs)) if ours == theirs => {}
            (Some(ours), Some(theirs)) if ours.eq_ignore_ascii_case(theirs) => return Err(BadResponse::Case),
            _ => return Err(BadResponse::Mismatch),
        }
        if flags & TC != 0 {
            return Err(BadResponse::Truncated);
        }
        let code = match flags & 0xf {
            0 => Code::NoError,
            3 => Code::NxDomain,
            other => return Err(BadResponse::Code(u8::try_from(other).unwrap_or(0xf))),
        };
        asked.make_lowercase();
        let rtype = u16_at(sent, end - 4).unwrap_or(0);
        let read = || {
            let (answers, at) = section(message, end, u16_at(message, 6)?)?;
            let (authorities, _) = section(message, at, u16_at(message, 8)?)?;
            Some((answers, authorities))
        };
        let (answers, authorities) = read().ok_or(BadResponse::Malformed)?;
        let ttl = ttl(rtype, code, &answers, &authorities);
        Ok(Self { code, authentic: flags & AD != 0, answers, authorities, ttl })
    }

    /// A private address in the answer. A name on the internet should have none: it could give access to internal hosts
    /// (DNS rebinding).
    #[must_use]
    pub fn private_address(&self) -> Option<IpAddr> {
        self.answers.iter().flat_map(|(_, set)| set.addresses()).find(|address| is_private(*address))
    }

    /// How long the answer may be cached.
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl.into())
    }

    /// The approximate size, in octets.
    pub(crate) fn size(&self) -> usize {
        let sets = self.answers.iter().chain(&self.authorities);
        sets.map(|(owner, set)| owner.len() + set.size() + 64).sum()
    }
}

/// The RRsets of a section, in the order of their first records.
fn section(message: &[u8], mut at: usize, count: u16) -> Option<(Vec<Owned>, usize)> {
    struct Raw {
        owner: Vec<u8>,
        rtype: u16,
        ttl: u32,
        rdatas: Vec<Vec<u8>>,
    }
    let mut sets: Vec<Raw> = Vec::new();
    for _ in 0..count {
        let (owner, _) = WireName::read(message, at)?;
        let field = Field::read(message, at)?;
        at = field.end;
        // OPT and the types for signing are about the message, not about names.
        if field.class != IN || matches!(field.rtype, rtype::OPT | rtype::TKEY | rtype::TSIG) {
            continue;
        }
        // RFC 2181 §8: a TTL with its highest bit set is 0.
        let ttl = if field.ttl > i32::MAX.unsigned_abs() { 0 } else { field.ttl };
        let rdata = rdata(message, &field)?;
        let owner = owner.as_bytes();
        // The records of a set are adjacent: servers write them so.
        match sets.last_mut() {
            Some(set) if set.rtype == field.rtype && set.owner.eq_ignore_ascii_case(owner) => {
                set.ttl = set.ttl.min(ttl);
                set.rdatas.push(rdata);
            }
            _ => sets.push(Raw { owner: owner.to_vec(), rtype: field.rtype, ttl, rdatas: vec![rdata] }),
        }
    }
    let sets = sets.into_iter().map(|raw| {
        let set = RrSet::new(raw.rtype, raw.ttl.min(MAX_TTL), raw.rdatas.iter().map(Vec::as_slice));
        (raw.owner.into_boxed_slice(), set)
    });
    Some((sets.collect(), at))
}

/// The RDATA with its names written out. `None`: it does not have the form of its type. Unknown types are passed on
/// unchanged (RFC 3597).
fn rdata(message: &[u8], field: &Field<'_>) -> Option<Vec<u8>> {
    let (before, names) = names_in(field.rtype);
    let length = match field.rtype {
        rtype::A => 4,
        rtype::AAAA => 16,
        _ => field.rdata.len(),
    };
    if names == 0 {
        return (field.rdata.len() == length).then(|| field.rdata.to_vec());
    }
    let start = field.end - field.rdata.len();
    let mut rdata = field.rdata.get(..before)?.to_vec();
    let mut at = start + before;
    for _ in 0..names {
        let (name, end) = WireName::read(message, at)?;
        rdata.extend_from_slice(name.as_bytes());
        at = end;
    }
    let rest = message.get(at..field.end)?;
    rdata.extend_from_slice(rest);
    (rest.len() == if field.rtype == rtype::SOA { SOA_NUMBERS } else { 0 }).then_some(rdata)
}

/// How long an answer may be cached, in seconds. A negative answer without a SOA is not cached (RFC 2308 §5).
fn ttl(rtype: u16, code: Code, answers: &[Owned], authorities: &[Owned]) -> u32 {
    let positive = answers.iter().map(|(_, set)| set.ttl).min();
    let has_type = answers.iter().any(|(_, set)| set.rtype == rtype || rtype == rtype::ANY);
    if code == Code::NoError && has_type {
        return positive.unwrap_or(0);
    }
    let soa = authorities.iter().find(|(_, set)| set.rtype == rtype::SOA);
    let negative = soa.and_then(|(_, set)| {
        let minimum = set.rdatas().next()?.last_chunk::<4>()?;
        Some(set.ttl.min(u32::from_be_bytes(*minimum)).min(MAX_NEGATIVE_TTL))
    });
    negative.map_or(0, |negative| negative.min(positive.unwrap_or(negative)))
}

/// Addresses of private, local and link-local networks (RFC 1918, 3927, 4193, 4291, 6598, 6890).
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || first == 0
                || first == 100 && second & 0xc0 == 64
        }
        IpAddr::V6(v6) => {
            let mapped = v6.to_ipv4_mapped().is_some_and(|v4| is_private(v4.into()));
            mapped
                || v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
        }
    }
}
