//! Bytes from the network to a [`Packet`], or a reason why not.
//!
//! As for DHCPv4 options are walked here, kept as bytes, and read where they are used: dhcproto's DHCPv6 decoder subtracts from lengths that
//! the sender chose (options 13, 16, 17), nests as deep as the sender likes, and ends a list at the first option that does not decode. Its
//! names are used, and in tests it is the second opinion.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use dhcproto::v6::{MessageType, OptionCode};

use super::Duid;

/// The longest datagram that is read.
pub const MAX_DATAGRAM: usize = 4096;
/// Relays between a client and a server (RFC 8415 §7.6, HOP_COUNT_LIMIT).
pub const MAX_RELAYS: usize = 8;
/// Options of one message, or of one part of it.
const MAX_OPTIONS: usize = 128;
/// Identity associations of one message: a host has one for each of its interfaces, and asks for them one by one.
pub const MAX_ASSOCIATIONS: usize = 8;
/// Addresses that are read of one identity association.
pub const MAX_ADDRESSES: usize = 16;

/// Why a datagram is not a DHCPv6 message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than a message's, or a relay's, fixed header.
    #[error("{0} bytes are too few for a DHCPv6 message")]
    TooShort(usize),
    /// Longer than [`MAX_DATAGRAM`].
    #[error("{0} bytes are too many for a DHCPv6 message (at most {MAX_DATAGRAM})")]
    TooLong(usize),
    /// An option is longer than what carries it.
    #[error("option {0} is longer than what carries it")]
    Truncated(u16),
    /// More options than anybody needs.
    #[error("more than {MAX_OPTIONS} options in one place")]
    TooManyOptions,
    /// More identity associations than anybody needs.
    #[error("more than {MAX_ASSOCIATIONS} identity associations")]
    TooManyAssociations,
    /// Relays in relays in relays.
    #[error("more than {MAX_RELAYS} relays")]
    TooManyRelays,
    /// A relay's message without a message.
    #[error("a relay forwarded nothing (no option 9)")]
    NothingRelayed,
    /// Too short for its fixed fields.
    #[error("option {0} is too short")]
    OptionTooShort(u16),
}

/// What an identity association is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// IA_NA: addresses.
    Address,
    /// IA_TA: temporary addresses.
    Temporary,
    /// IA_PD: prefixes.
    Prefix,
}

/// The option of each kind, and the bytes before its options: IAID, and T1 and T2 where it has them.
const KINDS: [(OptionCode, Kind, usize); 3] = [
    (OptionCode::IANA, Kind::Address, 12),
    (OptionCode::IATA, Kind::Temporary, 4),
    (OptionCode::IAPD, Kind::Prefix, 12),
];

/// What a client wants one or more addresses for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Association {
    /// Addresses or prefixes.
    pub kind: Kind,
    /// The client's number of it.
    pub iaid: u32,
    /// The addresses that the client names.
    pub addresses: Vec<Ipv6Addr>,
}

/// A relay that the message came through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// Relays between it and the client.
    pub hops: u8,
    /// An address of the link that it heard the message on; unspecified where it says that by option 18 alone (RFC 6221).
    pub link: Ipv6Addr,
    /// Whom it heard it from.
    pub peer: Ipv6Addr,
    /// What it adds.
    pub options: Options,
}

/// A well-formed DHCPv6 message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The relays that it came through, that next to the client last.
    pub relays: Vec<Relay>,
    /// What it is.
    pub kind: MessageType,
    /// Transaction id.
    pub xid: [u8; 3],
    /// Every option of the client's message.
    pub options: Options,
    /// What it wants addresses for.
    pub associations: Vec<Association>,
}

impl Packet {
    /// Option 1.
    #[must_use]
    pub fn client(&self) -> Option<Duid> {
        self.options.raw(OptionCode::ClientId).and_then(Duid::new)
    }

    /// An address of the client's link, as the relay next to it that knows one says.
    pub(super) fn link(&self) -> Option<Ipv6Addr> {
        self.relays.iter().rev().map(|relay| relay.link).find(|link| !link.is_unspecified())
    }

    /// The client wants to be told of this option. One that has no list of wishes (option 6) wants all.
    pub(super) fn wants(&self, code: OptionCode) -> bool {
        let asked = self.options.raw(OptionCode::ORO);
        asked.is_none_or(|asked| asked.as_chunks::<2>().0.contains(&u16::from(code).to_be_bytes()))
    }
}

/// The options of a message, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options(Vec<(u16, Vec<u8>)>);

impl Options {
    /// The bytes of the first option of this code, whatever they are.
    #[must_use]
    pub fn raw(&self, code: OptionCode) -> Option<&[u8]> {
        self.all(code).next()
    }

    /// Those of every option of this code.
    pub fn all(&self, code: OptionCode) -> impl Iterator<Item = &[u8]> {
        let code = u16::from(code);
        self.0.iter().filter(move |(it, _)| *it == code).map(|(_, value)| value.as_slice())
    }

    fn read(mut field: &[u8]) -> Result<Self, Malformed> {
        let mut options = Vec::new();
        while let Some((code, rest)) = field.split_first_chunk::<2>() {
            let code = u16::from_be_bytes(*code);
            let (length, rest) = rest.split_first_chunk::<2>().ok_or(Malformed::Truncated(code))?;
            let length = usize::from(u16::from_be_bytes(*length));
            let (value, rest) = rest.split_at_checked(length).ok_or(Malformed::Truncated(code))?;
            if options.len() == MAX_OPTIONS {
                return Err(Malformed::TooManyOptions);
            }
            options.push((code, value.to_vec()));
            field = rest;
        }
        if field.is_empty() { Ok(Self(options)) } else { Err(Malformed::Truncated(0)) }
    }
}

/// Reads a datagram.
///
/// # Errors
/// [`Malformed`] says what is wrong with it; the caller counts and drops it.
pub fn parse(datagram: &[u8]) -> Result<Packet, Malformed> {
    if datagram.len() > MAX_DATAGRAM {
        return Err(Malformed::TooLong(datagram.len()));
    }
    let mut relays = Vec::new();
    let mut message = datagram.to_vec();
    loop {
        let short = Malformed::TooShort(message.len());
        let Some((&kind, rest)) = message.split_first() else { return Err(short) };
        let kind = MessageType::from(kind);
        if kind != MessageType::RelayForw {
            let (xid, field) = rest.split_first_chunk::<3>().ok_or(short)?;
            let options = Options::read(field)?;
            let associations = associations(&options)?;
            return Ok(Packet { relays, kind, xid: *xid, options, associations });
        }
        if relays.len() == MAX_RELAYS {
            return Err(Malformed::TooManyRelays);
        }
        let Some((&hops, rest)) = rest.split_first() else { return Err(short) };
        let Some((link, rest)) = rest.split_first_chunk::<16>() else { return Err(short) };
        let Some((peer, field)) = rest.split_first_chunk::<16>() else { return Err(short) };
        let options = Options::read(field)?;
        let inner = options.raw(OptionCode::RelayMsg).ok_or(Malformed::NothingRelayed)?.to_vec();
        relays.push(Relay { hops, link: (*link).into(), peer: (*peer).into(), options });
        message = inner;
    }
}

/// Each once, by kind and number.
fn associations(options: &Options) -> Result<Vec<Association>, Malformed> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (code, value) in &options.0 {
        let Some((_, kind, fixed)) = KINDS.iter().find(|(it, ..)| u16::from(*it) == *code) else { continue };
        let (fixed, field) = value.split_at_checked(*fixed).ok_or(Malformed::OptionTooShort(*code))?;
        let iaid = u32::from_be_bytes(fixed.first_chunk().copied().unwrap_or_default());
        if !seen.insert((*kind, iaid)) {
            continue;
        }
        if found.len() == MAX_ASSOCIATIONS {
            return Err(Malformed::TooManyAssociations);
        }
        let named = Options::read(field)?;
        let addresses: Result<Vec<Ipv6Addr>, Malformed> = named
            .all(OptionCode::IAAddr)
            .map(|value| match value.first_chunk::<16>() {
                // Behind the address: its two lifetimes.
                Some(address) if value.len() >= 24 => Ok(Ipv6Addr::from(*address)),
                _ => Err(Malformed::OptionTooShort(OptionCode::IAAddr.into())),
            })
            .take(MAX_ADDRESSES)
            .collect();
        found.push(Association { kind: *kind, iaid, addresses: addresses? });
    }
    Ok(found)
}
