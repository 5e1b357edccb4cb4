//! Decodes bytes from the network to a [`Packet`], or says why they are not one.
//!
//! dhcproto gives the header accessors and the names. The options are walked here, because its decoders stop or panic
//! on datagrams that real networks carry:
//!
//! - `chaddr()` slices `hlen` bytes of a 16-byte field;
//! - one option that does not decode ends the whole list, so a bad host name hides options 61 and 82;
//! - a truncated last part drops the complete parts of the same option before it;
//! - typed decoding of options 80, 81, 94 and 151 asserts lengths that the sender chose.
//!
//! Here every option is kept as bytes and read where it is used; one that has the wrong length reads as absent and
//! disturbs nothing else. Parts of one option are joined in the order options, `file`, `sname` (RFC 3396 §5, RFC 2131
//! §4.1 for option 52).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use dhcproto::v4::{MessageType, Opcode, OptionCode, borrowed};

use crate::Mac;
use crate::infiniband::{self, InfiniBand};

/// The longest datagram that is read, in bytes. Clients and relays send less than an Ethernet frame.
pub const MAX_DATAGRAM: usize = 4096;

const MAGIC_COOKIE: [u8; 4] = [99, 130, 83, 99];
const OPTIONS_OFFSET: usize = 240;
const HTYPE_ETHERNET: u8 = 1;
const OVERLOAD_FILE: u8 = 1;
const OVERLOAD_SNAME: u8 = 2;

/// The reason why a datagram is not a DHCPv4 message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than the fixed header and the magic cookie.
    #[error("{0} bytes are too few for a DHCP message (at least 240)")]
    TooShort(usize),
    /// Longer than [`MAX_DATAGRAM`].
    #[error("{0} bytes are too many for a DHCP message (at most {MAX_DATAGRAM})")]
    TooLong(usize),
    /// `op` is neither BOOTREQUEST nor BOOTREPLY.
    #[error("op {0} is neither BOOTREQUEST nor BOOTREPLY")]
    Op(u8),
    /// `hlen` is longer than the `chaddr` field. InfiniBand is read all the same: the field is empty there.
    #[error("hardware address length {0} is longer than the 16 bytes of chaddr")]
    HardwareLength(u8),
    /// The four bytes before the options are not those of RFC 2131.
    #[error("magic cookie {0:02x?} is not 63 82 53 63")]
    Cookie([u8; 4]),
    /// Option 53 is absent or not one byte long: plain BOOTP, or noise.
    #[error("no DHCP message type (option 53)")]
    NoMessageType,
}

/// A well-formed DHCPv4 message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Request or reply.
    pub op: Opcode,
    /// Hardware type; 1 is Ethernet.
    pub htype: u8,
    /// The hardware address, at most 16 bytes.
    pub chaddr: Vec<u8>,
    /// The number of relays that forwarded the message.
    pub hops: u8,
    /// The transaction id, chosen by the client.
    pub xid: u32,
    /// Seconds since the client began. Clients send wrong values here; no decision depends on it.
    pub secs: u16,
    /// The client cannot receive unicast before it is configured (RFC 2131 §4.1).
    pub broadcast: bool,
    /// The address that the client already has; it answers ARP for it.
    pub ciaddr: Ipv4Addr,
    /// The address that the server gives.
    pub yiaddr: Ipv4Addr,
    /// The next server of the boot process.
    pub siaddr: Ipv4Addr,
    /// The relay that forwarded this.
    pub giaddr: Ipv4Addr,
    /// Server name; empty when the field carries options.
    pub sname: Vec<u8>,
    /// Boot file name; empty when the field carries options.
    pub file: Vec<u8>,
    /// Option 53: the message type.
    pub kind: MessageType,
    /// Every option, with its parts joined.
    pub options: Options,
}

impl Packet {
    /// The client's Ethernet address; `None` for other hardware, or for a group address, which no client has.
    #[must_use]
    pub fn mac(&self) -> Option<Mac> {
        if self.htype != HTYPE_ETHERNET {
            return None;
        }
        let bytes: [u8; 6] = self.chaddr.as_slice().try_into().ok()?;
        let [first, ..] = bytes;
        (first & 1 == 0 && bytes != [0; 6]).then_some(Mac(bytes))
    }

    /// The client's identity, if it sends over InfiniBand.
    #[must_use]
    pub fn infiniband(&self) -> Option<InfiniBand> {
        let identifier = self.options.raw(OptionCode::ClientIdentifier).unwrap_or_default();
        (self.htype == infiniband::HTYPE).then(|| InfiniBand::of_v4(&self.chaddr, identifier))
    }
}

/// The options of a message as bytes, each code once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    parts: BTreeMap<u8, Vec<u8>>,
    truncated: bool,
}

impl Options {
    /// The bytes of an option, whatever they are.
    #[must_use]
    pub fn raw(&self, code: OptionCode) -> Option<&[u8]> {
        self.parts.get(&u8::from(code)).map(Vec::as_slice)
    }

    /// True if the message has the option, even with a malformed value.
    #[must_use]
    pub fn contains(&self, code: OptionCode) -> bool {
        self.raw(code).is_some()
    }

    /// An option that is exactly one address.
    #[must_use]
    pub fn ipv4(&self, code: OptionCode) -> Option<Ipv4Addr> {
        let bytes: [u8; 4] = self.raw(code)?.try_into().ok()?;
        Some(bytes.into())
    }

    /// An option that is a list of addresses; empty when it is absent or not a multiple of four bytes.
    #[must_use]
    pub fn ipv4s(&self, code: OptionCode) -> Vec<Ipv4Addr> {
        let bytes = self.raw(code).unwrap_or_default();
        let (addresses, rest) = bytes.as_chunks::<4>();
        if rest.is_empty() { addresses.iter().map(|&octets| octets.into()).collect() } else { Vec::new() }
    }

    /// An option that is exactly one byte.
    #[must_use]
    pub fn u8(&self, code: OptionCode) -> Option<u8> {
        let [byte]: [u8; 1] = self.raw(code)?.try_into().ok()?;
        Some(byte)
    }

    /// An option that is exactly two bytes.
    #[must_use]
    pub fn u16(&self, code: OptionCode) -> Option<u16> {
        Some(u16::from_be_bytes(self.raw(code)?.try_into().ok()?))
    }

    /// An option that is exactly four bytes.
    #[must_use]
    pub fn u32(&self, code: OptionCode) -> Option<u32> {
        Some(u32::from_be_bytes(self.raw(code)?.try_into().ok()?))
    }

    /// An option of text, without trailing NULs; `None` when it is not UTF-8.
    #[must_use]
    pub fn text(&self, code: OptionCode) -> Option<&str> {
        std::str::from_utf8(self.raw(code)?).ok().map(|text| text.trim_end_matches('\0'))
    }

    /// The last option claims to be longer than the message. The complete options before it are here.
    #[must_use]
    pub const fn truncated(&self) -> bool {
        self.truncated
    }

    /// Adds the options of one field, joining parts of the same code (RFC 3396 §7).
    fn read_field(&mut self, mut field: &[u8]) {
        while let Some((&code, rest)) = field.split_first() {
            match OptionCode::from(code) {
                OptionCode::Pad => field = rest,
                OptionCode::End => return,
                _ => {
                    let part =
                        rest.split_first().and_then(|(&len, rest)| rest.split_at_checked(usize::from(len)));
                    let Some((value, rest)) = part else {
                        self.truncated = true;
                        return;
                    };
                    self.parts.entry(code).or_default().extend_from_slice(value);
                    field = rest;
                }
            }
        }
    }
}

/// Reads a datagram.
///
/// # Errors
/// [`Malformed`] says what is wrong with it; the caller counts and drops it.
pub fn parse(datagram: &[u8]) -> Result<Packet, Malformed> {
    let len = datagram.len();
    if len > MAX_DATAGRAM {
        return Err(Malformed::TooLong(len));
    }
    let header = borrowed::Message::new(datagram).map_err(|_| Malformed::TooShort(len))?;
    let (fixed, field) = datagram.split_at_checked(OPTIONS_OFFSET).ok_or(Malformed::TooShort(len))?;
    let op = header.opcode();
    if let Opcode::Unknown(op) = op {
        return Err(Malformed::Op(op));
    }
    let (htype, hlen): (u8, _) = (header.htype().into(), header.hlen());
    let is_left_out = htype == infiniband::HTYPE && hlen > 16;
    let hlen = if is_left_out { 0 } else { hlen };
    let chaddr = fixed.get(28..44).and_then(|field| field.get(..usize::from(hlen)));
    let chaddr = chaddr.ok_or(Malformed::HardwareLength(hlen))?;
    let cookie = fixed.last_chunk::<4>().copied().unwrap_or_default();
    if cookie != MAGIC_COOKIE {
        return Err(Malformed::Cookie(cookie));
    }

    let mut options = Options::default();
    options.read_field(field);
    let overload = options.u8(OptionCode::OptionOverload).unwrap_or(0);
    let (mut file, mut sname) = (header.fname().to_vec(), header.sname().to_vec());
    if overload & OVERLOAD_FILE != 0 {
        options.read_field(fixed.get(108..236).unwrap_or_default());
        file.clear();
    }
    if overload & OVERLOAD_SNAME != 0 {
        options.read_field(fixed.get(44..108).unwrap_or_default());
        sname.clear();
    }
    let kind = options.u8(OptionCode::MessageType).ok_or(Malformed::NoMessageType)?;

    Ok(Packet {
        op,
        htype,
        chaddr: chaddr.to_vec(),
        hops: header.hops(),
        xid: header.xid(),
        secs: header.secs(),
        broadcast: header.flags().broadcast(),
        ciaddr: header.ciaddr(),
        yiaddr: header.yiaddr(),
        siaddr: header.siaddr(),
        giaddr: header.giaddr(),
        sname,
        file,
        kind: kind.into(),
        options,
    })
}
