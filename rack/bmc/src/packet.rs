//! RMCP and session headers (§13.1.3, §13.6): the outermost layer of every datagram.

use crate::crypto::{SessionKeys, same};
use crate::error::Failure;
use crate::wire::Reader;

/// RMCP version 1.0, no acknowledgement wanted, class IPMI.
const RMCP: [u8; 4] = [0x06, 0x00, 0xff, 0x07];
/// Authentication type of a message outside any session, in the IPMI 1.5 format.
const AUTH_NONE: u8 = 0x00;
/// Authentication type of the RMCP+ format.
const AUTH_RMCP_PLUS: u8 = 0x06;
const ENCRYPTED: u8 = 0x80;
const AUTHENTICATED: u8 = 0x40;
/// The next-header octet before a packet's code.
const NEXT_HEADER: u8 = 0x07;
/// Octets from the authentication type to the payload.
const HEADER: usize = 12;

/// Payload types (table 13-16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Ipmi = 0x00,
    OpenSessionRequest = 0x10,
    OpenSessionResponse = 0x11,
    Rakp1 = 0x12,
    Rakp2 = 0x13,
    Rakp3 = 0x14,
    Rakp4 = 0x15,
}

const PAYLOADS: [Payload; 7] = [
    Payload::Ipmi,
    Payload::OpenSessionRequest,
    Payload::OpenSessionResponse,
    Payload::Rakp1,
    Payload::Rakp2,
    Payload::Rakp3,
    Payload::Rakp4,
];

/// A datagram with its headers read.
pub(crate) enum Packet<'a> {
    /// An IPMI message outside any session, in the format of IPMI 1.5.
    Plain15(&'a [u8]),
    /// A payload outside any session, in the format of IPMI 2.0.
    Plain(Payload, &'a [u8]),
    /// A packet of a session, not yet checked.
    Sealed(Sealed<'a>),
}

/// A packet of a session; only [`Sealed::open`] gives its payload.
pub(crate) struct Sealed<'a> {
    pub(crate) session: u32,
    pub(crate) sequence: u32,
    payload: &'a [u8],
    /// From the authentication type to the end.
    checked: &'a [u8],
}

/// Reads the headers.
pub(crate) fn parse(datagram: &[u8]) -> Result<Packet<'_>, Failure> {
    parse_parts(datagram).ok_or(Failure::Malformed("RMCP packet"))
}

fn parse_parts(datagram: &[u8]) -> Option<Packet<'_>> {
    let mut reader = Reader::new(datagram);
    let [version, _reserved, _sequence, class] = reader.array()?;
    if version != 0x06 || class != 0x07 {
        return None;
    }
    let checked = reader.rest();
    match reader.u8()? {
        AUTH_NONE => {
            let (_sequence, session) = (reader.u32()?, reader.u32()?);
            let length = usize::from(reader.u8()?);
            let message = reader.bytes(length)?;
            (session == 0).then_some(Packet::Plain15(message))
        }
        AUTH_RMCP_PLUS => {
            let kind = reader.u8()?;
            let (session, sequence) = (reader.u32()?, reader.u32()?);
            let length = usize::from(reader.u16()?);
            let payload = reader.bytes(length)?;
            let known = *PAYLOADS.iter().find(|each| **each as u8 == kind & 0x3f)?;
            match (kind & (ENCRYPTED | AUTHENTICATED), session) {
                (0, 0) => Some(Packet::Plain(known, payload)),
                (flags, 1..) if flags == ENCRYPTED | AUTHENTICATED && known == Payload::Ipmi => {
                    Some(Packet::Sealed(Sealed { session, sequence, payload, checked }))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

impl Sealed<'_> {
    /// Checks the packet's code, then decrypts the payload. `None` if it was not made with these keys.
    pub(crate) fn open(&self, keys: &SessionKeys) -> Option<Vec<u8>> {
        let (body, tag) = self.checked.split_at_checked(self.checked.len().checked_sub(keys.tag_len())?)?;
        if body.len() < HEADER + self.payload.len() + 2 || !same(&keys.tag(body), tag) {
            return None;
        }
        keys.decrypt(self.payload)
    }
}

/// An IPMI message outside any session, as IPMI 1.5 and 2.0 software both understand it.
pub(crate) fn plain15(message: &[u8]) -> Vec<u8> {
    let mut packet = RMCP.to_vec();
    packet.push(AUTH_NONE);
    packet.extend_from_slice(&[0; 8]);
    packet.push(u8::try_from(message.len()).unwrap_or(u8::MAX));
    packet.extend_from_slice(message);
    packet
}

/// A payload outside any session.
pub(crate) fn plain(kind: Payload, payload: &[u8]) -> Vec<u8> {
    let mut packet = RMCP.to_vec();
    packet.extend_from_slice(&header(kind as u8, 0, 0, payload));
    packet
}

/// An IPMI message inside a session, encrypted and authenticated.
pub(crate) fn sealed(
    keys: &SessionKeys,
    session: u32,
    sequence: u32,
    message: &[u8],
    iv: [u8; 16],
) -> Result<Vec<u8>, Failure> {
    let payload = keys.encrypt(message, iv)?;
    let mut body = header(Payload::Ipmi as u8 | ENCRYPTED | AUTHENTICATED, session, sequence, &payload);
    let pad = (4 - (body.len() + 2) % 4) % 4;
    body.extend(std::iter::repeat_n(0xff, pad));
    body.push(u8::try_from(pad).unwrap_or(0));
    body.push(NEXT_HEADER);
    let tag = keys.tag(&body);
    let mut packet = RMCP.to_vec();
    packet.extend_from_slice(&body);
    packet.extend_from_slice(&tag);
    Ok(packet)
}

fn header(kind: u8, session: u32, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(HEADER + payload.len() + 20);
    body.extend_from_slice(&[AUTH_RMCP_PLUS, kind]);
    body.extend_from_slice(&session.to_le_bytes());
    body.extend_from_slice(&sequence.to_le_bytes());
    body.extend_from_slice(&u16::try_from(payload.len()).unwrap_or(u16::MAX).to_le_bytes());
    body.extend_from_slice(payload);
    body
}
