//! DHCPv6 messages, as a client writes and parses them (RFC 8415 §8 and §21).

use std::net::Ipv6Addr;
use std::time::Duration;

use thiserror::Error;

/// Longest datagram that is accepted, in bytes.
pub(super) const MAX_DATAGRAM: usize = 4096;
/// Most options at one level.
const MAX_OPTIONS: usize = 128;
/// Most addresses that are read from an identity association.
const MAX_ADDRESSES: usize = 16;
/// Limits of a resolver for DNS servers and search domains (resolv.conf(5)).
const MAX_DNS_SERVERS: usize = 3;
const MAX_SEARCH: usize = 6;
/// Longest status text that is kept, in bytes.
const MAX_TEXT: usize = 200;
/// Longest DUID in bytes (RFC 8415 §11.1).
const MAX_DUID: usize = 130;
/// Valid seconds of SOL_MAX_RT (RFC 8415 §21.24).
const SOLICIT_LIMITS: std::ops::RangeInclusive<u32> = 60..=86_400;

pub(super) const SOLICIT: u8 = 1;
const ADVERTISE: u8 = 2;
pub(super) const REQUEST: u8 = 3;
pub(super) const RENEW: u8 = 5;
pub(super) const REBIND: u8 = 6;
const REPLY: u8 = 7;
pub(super) const DECLINE: u8 = 9;

const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const IA_NA: u16 = 3;
const IA_ADDR: u16 = 5;
const WISHES: u16 = 6;
const PREFERENCE: u16 = 7;
const ELAPSED: u16 = 8;
const STATUS: u16 = 13;
const DNS_SERVERS: u16 = 23;
const SEARCH: u16 = 24;
const SOL_MAX_RT: u16 = 82;

/// Options that the client requests in addition to an address.
const WISHED: [u16; 3] = [DNS_SERVERS, SEARCH, SOL_MAX_RT];

/// Status codes (RFC 8415 §21.13) with their own handling. Every other code except 0 is a failure.
pub(super) const SUCCESS: u16 = 0;
pub(super) const NO_BINDING: u16 = 3;
pub(super) const NOT_ON_LINK: u16 = 4;

/// Identity of the client for servers: a DUID-LL (§11.4), and the number of its one association. Both come from the interface's MAC, so
/// that every boot of a machine is the same client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    duid: [u8; 10],
    iaid: [u8; 4],
}

impl Identity {
    /// The identity for an interface's MAC address.
    #[must_use]
    pub fn of(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self { duid: [0, 3, 0, 1, a, b, c, d, e, f], iaid: [c, d, e, f] }
    }
}

/// The reason why a datagram is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Unusable {
    #[error("{0} bytes are no DHCPv6 message")]
    Length(usize),
    #[error("message type {0} is no server's answer")]
    Type(u8),
    #[error("option {0} is cut short")]
    CutShort(u16),
    #[error("more than {MAX_OPTIONS} options in one place")]
    TooMany,
    #[error("it is for another client")]
    OtherClient,
    #[error("it names no server")]
    NoServer,
}

/// A status option of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) text: String,
}

/// An address and its lifetimes in seconds. [`u32::MAX`] is infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) address: Ipv6Addr,
    pub(super) preferred: u32,
    pub(super) valid: u32,
}

/// The client's association in an answer. T1 or T2 of 0 leaves the choice to the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Association {
    pub(super) t1: u32,
    pub(super) t2: u32,
    pub(super) addresses: Vec<Granted>,
    pub(super) status: Option<Status>,
}

/// An ADVERTISE or REPLY for this client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) is_reply: bool,
    pub(super) xid: [u8; 3],
    pub(super) server: Vec<u8>,
    pub(super) preference: u8,
    pub(super) status: Option<Status>,
    pub(super) association: Option<Association>,
    pub(super) dns_servers: Vec<Ipv6Addr>,
    pub(super) search: Vec<String>,
    pub(super) solicit_limit: Option<Duration>,
}

/// Parses a datagram.
pub(super) fn read(datagram: &[u8], identity: &Identity) -> Result<Answer, Unusable> {
    let unusable = Unusable::Length(datagram.len());
    let Some(([kind, a, b, c], field)) = datagram.split_first_chunk::<4>() else { return Err(unusable) };
    if datagram.len() > MAX_DATAGRAM {
        return Err(unusable);
    }
    if !matches!(*kind, ADVERTISE | REPLY) {
        return Err(Unusable::Type(*kind));
    }
    let options = Options::read(field)?;
    if options.first(CLIENT_ID) != Some(identity.duid.as_slice()) {
        return Err(Unusable::OtherClient);
    }
    let server = options.first(SERVER_ID).filter(|duid| (1..=MAX_DUID).contains(&duid.len()));
    Ok(Answer {
        is_reply: *kind == REPLY,
        xid: [*a, *b, *c],
        server: server.ok_or(Unusable::NoServer)?.to_vec(),
        preference: options.first(PREFERENCE).and_then(<[u8]>::first).copied().unwrap_or_default(),
        status: options.status()?,
        association: association(&options, identity)?,
        dns_servers: addresses(options.first(DNS_SERVERS).unwrap_or_default()),
        search: names(options.first(SEARCH).unwrap_or_default()),
        solicit_limit: options
            .first(SOL_MAX_RT)
            .and_then(|value| value.first_chunk().copied().map(u32::from_be_bytes))
            .filter(|seconds| SOLICIT_LIMITS.contains(seconds))
            .map(|seconds| Duration::from_secs(seconds.into())),
    })
}

/// The options of one level, in order.
struct Options<'a>(Vec<(u16, &'a [u8])>);

impl<'a> Options<'a> {
    fn read(mut field: &'a [u8]) -> Result<Self, Unusable> {
        let mut options = Vec::new();
        while !field.is_empty() {
            let (code, rest) = number(field).ok_or(Unusable::CutShort(0))?;
            let (length, rest) = number(rest).ok_or(Unusable::CutShort(code))?;
            let (value, rest) = rest.split_at_checked(length.into()).ok_or(Unusable::CutShort(code))?;
            if options.len() == MAX_OPTIONS {
                return Err(Unusable::TooMany);
            }
            options.push((code, value));
            field = rest;
        }
        Ok(Self(options))
    }

    fn all(&self, code: u16) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |(it, _)| *it == code).map(|(_, value)| *value)
    }

    fn first(&self, code: u16) -> Option<&'a [u8]> {
        self.all(code).next()
    }

    fn status(&self) -> Result<Option<Status>, Unusable> {
        let Some(value) = self.first(STATUS) else { return Ok(None) };
        let (code, text) = number(value).ok_or(Unusable::CutShort(STATUS))?;
        let text = String::from_utf8_lossy(text);
        let text = text.chars().filter(|it| !it.is_control()).take(MAX_TEXT).collect();
        Ok(Some(Status { code, text }))
    }
}

fn number(bytes: &[u8]) -> Option<(u16, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (u16::from_be_bytes(*number), rest))
}

fn long(bytes: &[u8]) -> Option<(u32, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (u32::from_be_bytes(*number), rest))
}

/// The association with this client's number. Others are ignored.
fn association(options: &Options<'_>, identity: &Identity) -> Result<Option<Association>, Unusable> {
    let mine = |value: &&[u8]| value.starts_with(&identity.iaid);
    let Some(value) = options.all(IA_NA).find(mine) else { return Ok(None) };
    let short = || Unusable::CutShort(IA_NA);
    let (_, rest) = long(value).ok_or_else(short)?;
    let (t1, rest) = long(rest).ok_or_else(short)?;
    let (t2, rest) = long(rest).ok_or_else(short)?;
    let inner = Options::read(rest)?;
    let granted = |value: &[u8]| {
        let (address, rest) = value.split_first_chunk::<16>()?;
        let (preferred, rest) = long(rest)?;
        let (valid, _) = long(rest)?;
        Some(Granted { address: (*address).into(), preferred, valid })
    };
    let granted = inner.all(IA_ADDR).take(MAX_ADDRESSES).map(granted).collect::<Option<Vec<_>>>();
    let addresses = granted.ok_or(Unusable::CutShort(IA_ADDR))?;
    Ok(Some(Association { t1, t2, addresses, status: inner.status()? }))
}

fn addresses(value: &[u8]) -> Vec<Ipv6Addr> {
    let (addresses, _) = value.as_chunks::<16>();
    addresses.iter().take(MAX_DNS_SERVERS).map(|octets| Ipv6Addr::from(*octets)).collect()
}

/// Uncompressed domain names (§10), up to the first invalid one. They are written to a file of words and lines, so only safe ones pass.
fn names(mut value: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let mut labels: Vec<String> = Vec::new();
    while let Some((&length, rest)) = value.split_first() {
        let Some((label, rest)) = rest.split_at_checked(length.into()) else { break };
        value = rest;
        if !label.is_empty() {
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            if label.len() > 63 || !label.iter().all(is_plain) {
                break;
            }
            labels.push(String::from_utf8_lossy(label).into_owned());
            continue;
        }
        let name = std::mem::take(&mut labels).join(".");
        if name.is_empty() || name.len() > 253 || names.len() == MAX_SEARCH {
            break;
        }
        names.push(name);
    }
    names
}

/// Writes a message of this client. `server`: the only server that should answer. `address`: the subject of the message. `elapsed`: time
/// since the first transmission of the exchange.
pub(super) fn write(
    kind: u8,
    xid: [u8; 3],
    identity: &Identity,
    server: Option<&[u8]>,
    address: Option<Ipv6Addr>,
    elapsed: Duration,
) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(xid);
    put(&mut bytes, CLIENT_ID, &identity.duid);
    if let Some(server) = server {
        put(&mut bytes, SERVER_ID, server);
    }
    // In hundredths of a second. The largest value also means any longer time (§21.9).
    let elapsed = u16::try_from(elapsed.as_millis() / 10).unwrap_or(u16::MAX);
    put(&mut bytes, ELAPSED, &elapsed.to_be_bytes());
    // T1, T2 and lifetimes are 0: the server chooses them.
    let mut association = [identity.iaid, [0; 4], [0; 4]].concat();
    if let Some(address) = address {
        put(&mut association, IA_ADDR, &[address.octets().as_slice(), &[0; 8]].concat());
    }
    put(&mut bytes, IA_NA, &association);
    if kind != DECLINE {
        put(&mut bytes, WISHES, &WISHED.map(u16::to_be_bytes).concat());
    }
    bytes
}

fn put(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let Ok(length) = u16::try_from(value.len()) else { return };
    out.extend(code.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];

    fn reply(options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![REPLY, 1, 2, 3];
        put(&mut bytes, CLIENT_ID, &Identity::of(MAC).duid);
        put(&mut bytes, SERVER_ID, b"server");
        for (code, value) in options {
            put(&mut bytes, *code, value);
        }
        bytes
    }

    fn read_of(options: &[(u16, &[u8])]) -> Result<Answer, Unusable> {
        read(&reply(options), &Identity::of(MAC))
    }

    #[test]
    fn search_domains_are_words() {
        let read = |value: &[u8]| read_of(&[(SEARCH, value)]).unwrap().search;
        assert_eq!(read(b"\x03lab\x07example\0\x03top\0"), ["lab.example", "top"]);
        assert_eq!(read(b"\x03lab\0\x05a\nb c\0"), ["lab"], "what would be another line");
        assert_eq!(read(b"\x03lab"), [""; 0], "no end");
        assert_eq!(read(b"\x03lab\0\xc0\x00"), ["lab"], "compressed");
        assert_eq!(read(&b"\x01a\0".repeat(1000)).len(), MAX_SEARCH);
    }

    #[test]
    fn only_so_many_options_addresses_and_servers_are_read() {
        let options: Vec<(u16, &[u8])> = vec![(999, &[]); MAX_OPTIONS];
        assert_eq!(read_of(&options), Err(Unusable::TooMany));
        let mut association = [Identity::of(MAC).iaid, [0; 4], [0; 4]].concat();
        for last in 0..40 {
            put(&mut association, IA_ADDR, &[[last; 16].as_slice(), &[0, 0, 0, 9, 0, 0, 0, 9]].concat());
        }
        let answer = read_of(&[(IA_NA, &association), (DNS_SERVERS, &[7; 480])]).unwrap();
        assert_eq!(answer.association.unwrap().addresses.len(), MAX_ADDRESSES);
        assert_eq!(answer.dns_servers.len(), MAX_DNS_SERVERS);
    }

    #[test]
    fn says_why_a_datagram_is_dropped() {
        let of = |bytes: &[u8]| read(bytes, &Identity::of(MAC)).unwrap_err();
        assert_eq!(of(&[]), Unusable::Length(0));
        assert_eq!(of(&[SOLICIT, 1, 2, 3]), Unusable::Type(SOLICIT));
        assert_eq!(of(&[REPLY, 1, 2, 3]), Unusable::OtherClient);
        assert_eq!(of(&[REPLY, 1, 2, 3, 0, 1, 0, 9]), Unusable::CutShort(1));
        let other = read(&reply(&[]), &Identity::of([0x52, 0x54, 0, 0, 0, 2])).unwrap_err();
        assert_eq!(other, Unusable::OtherClient);
        assert_eq!(read_of(&[(IA_NA, &[0, 0, 0, 1, 0])]).unwrap_err(), Unusable::CutShort(IA_NA));
    }

    #[test]
    fn another_association_is_not_its_own() {
        assert_eq!(read_of(&[(IA_NA, &[9; 12])]).unwrap().association, None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, cut in 0..400usize) {
            let identity = Identity::of(MAC);
            let _ = read(&bytes, &identity);
            let mut message = reply(&[(STATUS, b"\0\x02no"), (SEARCH, &bytes), (IA_NA, &bytes)]);
            message.truncate(cut);
            message.extend(&bytes);
            let _ = read(&message, &identity);
        }
    }
}
