//! Decodes bytes from the network to a [`Packet`], or says why they are not one.
//!
//! As in DHCPv4, options are walked here, kept as bytes, and decoded where they are used. Only the names of options come
//! from dhcproto. Its DHCPv6 decoder is not used, for three reasons:
//!
//! 1. It subtracts from lengths that the sender chose (options 13, 16, 17).
//! 2. It nests as deep as the sender likes.
//! 3. It ends a list at the first option that it cannot decode.
//!
//! Tests compare this decoder with dhcproto's.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use dhcproto::v6::{MessageType, OptionCode};

use super::Duid;

/// The longest datagram that is read, in bytes.
pub const MAX_DATAGRAM: usize = 4096;
/// The most relays between a client and a server (RFC 8415 §7.6, HOP_COUNT_LIMIT).
pub const MAX_RELAYS: usize = 8;
/// The most options of one message, or of one part of it.
const MAX_OPTIONS: usize = 128;
/// The most identity associations of one message: a host has one for each interface and sends a message for each.
pub const MAX_ASSOCIATIONS: usize = 8;
/// The most addresses that are read from one identity association.
pub const MAX_ADDRESSES: usize = 16;

/// The reason why a datagram is not a DHCPv6 message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than the fixed header of a message or of a relay message.
    #[error("{0} bytes are too few for a DHCPv6 message")]
    TooShort(usize),
    /// Longer than [`MAX_DATAGRAM`].
    #[error("{0} bytes are too many for a DHCPv6 message (at most {MAX_DATAGRAM})")]
    TooLong(usize),
    /// An option is longer than the message or option that contains it.
    #[error("option {0} is longer than what carries it")]
    Truncated(u16),
    /// More options than any client needs.
    #[error("more than {MAX_OPTIONS} options in one place")]
    TooManyOptions,
    /// More identity associations than any client needs.
    #[error("more than {MAX_ASSOCIATIONS} identity associations")]
    TooManyAssociations,
    /// More than [`MAX_RELAYS`] nested relay messages.
    #[error("more than {MAX_RELAYS} relays")]
    TooManyRelays,
    /// A relay message without option 9, the forwarded message.
    #[error("a relay forwarded nothing (no option 9)")]
    NothingRelayed,
    /// An option is too short for its fixed fields.
    #[error("option {0} is too short")]
    OptionTooShort(u16),
}

/// The kind of addresses that an identity association asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// IA_NA: non-temporary addresses.
    Address,
    /// IA_TA: temporary addresses.
    Temporary,
    /// IA_PD: delegated prefixes.
    Prefix,
}

/// The option of each kind, and the number of bytes before its own options: IAID, and T1 and T2 if the option has them.
const KINDS: [(OptionCode, Kind, usize); 3] = [
    (OptionCode::IANA, Kind::Address, 12),
    (OptionCode::IATA, Kind::Temporary, 4),
    (OptionCode::IAPD, Kind::Prefix, 12),
];

/// An identity association: a client's request for addresses of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Association {
    /// Addresses or prefixes.
    pub kind: Kind,
    /// The number that the client gave it (IAID).
    pub iaid: u32,
    /// The addresses that the client lists in it.
    pub addresses: Vec<Ipv6Addr>,
}

/// A relay that the message came through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// The number of relays between this one and the client.
    pub hops: u8,
    /// An address of the link on which the relay received the message; unspecified if the relay names the link only by
    /// option 18 (RFC 6221).
    pub link: Ipv6Addr,
    /// The sender that the relay received the message from.
    pub peer: Ipv6Addr,
    /// The options that the relay added.
    pub options: Options,
}

/// A well-formed DHCPv6 message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The relays that the message passed; the one next to the client is last.
    pub relays: Vec<Relay>,
    /// The message type.
    pub kind: MessageType,
    /// The transaction id, chosen by the client.
    pub xid: [u8; 3],
    /// Every option of the client's message.
    pub options: Options,
    /// The identity associations of the message, each once.
    pub associations: Vec<Association>,
}

impl Packet {
    /// Option 1: the client's DUID.
    #[must_use]
    pub fn client(&self) -> Option<Duid> {
        self.options.raw(OptionCode::ClientId).and_then(Duid::new)
    }

    /// An address of the client's link, from the relay nearest to the client that gives one.
    pub(super) fn link(&self) -> Option<Ipv6Addr> {
        self.relays.iter().rev().map(|relay| relay.link).find(|link| !link.is_unspecified())
    }

    /// True if the client asks for this option. A client without option 6 (Option Request) asks for all.
    pub(super) fn wants(&self, code: OptionCode) -> bool {
        let asked = self.options.raw(OptionCode::ORO);
        asked.is_none_or(|asked| asked.as_chunks::<2>().0.contains(&u16::from(code).to_be_bytes()))
    }
}

/// The options of a message, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options(Vec<(u16, Vec<u8>)>);

impl Options {
    /// The bytes of the first option of this code, whatever they are.
    #[must_use]
    pub fn raw(&self, code: OptionCode) -> Option<&[u8]> {
        self.all(code).next()
    }

    /// The bytes of every option of this code.
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

/// The identity associations, each once by kind and IAID.
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
                // The address is followed by its two lifetimes.
                Some(address) if value.len() >= 24 => Ok(Ipv6Addr::from(*address)),
                _ => Err(Malformed::OptionTooShort(OptionCode::IAAddr.into())),
            })
            .take(MAX_ADDRESSES)
            .collect();
        found.push(Association { kind: *kind, iaid, addresses: addresses? });
    }
    Ok(found)
}
