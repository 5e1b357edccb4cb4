//! Queries as clients send them (RFC 1035 §4.1, RFC 6891 §6.1).

use crate::name::WireName;
use crate::records::rtype;

/// Octets of the header.
pub(crate) const HEADER: usize = 12;
/// A response, not a query.
pub(crate) const QR: u16 = 0x8000;
/// The kind of query: 0 is QUERY.
pub(crate) const OPCODE: u16 = 0x7800;
/// The answer is authoritative.
pub(crate) const AA: u16 = 0x0400;
/// The answer is cut.
pub(crate) const TC: u16 = 0x0200;
/// The client asks for recursion: other servers may be asked.
pub(crate) const RD: u16 = 0x0100;
/// Recursion is available.
pub(crate) const RA: u16 = 0x0080;
/// The data were verified as authentic (RFC 4035 §3.2.3).
pub(crate) const AD: u16 = 0x0020;
/// The client checks signatures itself (RFC 4035 §3.2.2).
pub(crate) const CD: u16 = 0x0010;
/// DNSSEC records are wanted; a flag of EDNS (RFC 3225).
pub(crate) const DO: u16 = 0x8000;
/// The class of the internet (RFC 1035 §3.2.4).
pub(crate) const IN: u16 = 1;
/// The EDNS option in which these forwarders add their numbers. The code is for local use (RFC 6891 §9).
pub(crate) const FORWARDER_OPTION: u16 = 65_299;
/// This many forwarders in a row count as a loop.
pub(crate) const MAX_FORWARDERS: usize = 8;

/// Response codes (RFC 1035 §4.1.1, RFC 6891 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    NoError = 0,
    FormErr = 1,
    ServFail = 2,
    NxDomain = 3,
    NotImp = 4,
    Refused = 5,
    NotAuth = 9,
    BadVers = 16,
}

/// The EDNS fields of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edns {
    /// The longest datagram that the client accepts, in octets.
    pub(crate) size: u16,
    pub(crate) version: u8,
    pub(crate) dnssec_ok: bool,
    /// Forwarders that this query has passed.
    pub(crate) passed: Vec<u64>,
}

/// The header of a query, and its question.
pub(crate) struct Query<'a> {
    pub(crate) id: u16,
    pub(crate) flags: u16,
    /// The bytes of the question, as received.
    pub(crate) question: &'a [u8],
    /// The name in lower case.
    pub(crate) name: WireName,
    pub(crate) rtype: u16,
    pub(crate) class: u16,
    pub(crate) edns: Option<Edns>,
    /// The offset of the TSIG record, which is the last one (RFC 8945 §5.1).
    pub(crate) tsig: Option<usize>,
    /// The offset of the first record of the authority section, if it has one.
    pub(crate) authority: Option<usize>,
}

/// The reason why a message is not answered as a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// There is no header, or it is a response: two servers must not answer each other for ever.
    Ignore,
    /// There is a header. The code is the answer.
    Answer { id: u16, flags: u16, code: Code },
}

impl<'a> Query<'a> {
    pub(crate) fn read(message: &'a [u8]) -> Result<Self, Unreadable> {
        let counts = [4, 6, 8, 10].map(|at| u16_at(message, at));
        let (Some(id), Some(flags), [Some(questions), Some(answers), Some(authorities), Some(additionals)]) =
            (u16_at(message, 0), u16_at(message, 2), counts)
        else {
            return Err(Unreadable::Ignore);
        };
        if flags & QR != 0 {
            return Err(Unreadable::Ignore);
        }
        let bad = |code| Unreadable::Answer { id, flags, code };
        if flags & OPCODE != 0 {
            return Err(bad(Code::NotImp));
        }
        if questions != 1 {
            return Err(bad(Code::FormErr));
        }
        let read = || {
            let (mut name, end) = WireName::read(message, HEADER)?;
            // There is no earlier name that a pointer could lead to.
            (end == HEADER + name.as_bytes().len()).then_some(())?;
            name.make_lowercase();
            let (rtype, class) = (u16_at(message, end)?, u16_at(message, end + 2)?);
            let question = message.get(HEADER..end + 4)?;
            let mut at = end + 4;
            for _ in 0..answers {
                at = Field::read(message, at)?.end;
            }
            let authority = (authorities > 0).then_some(at);
            for _ in 0..authorities {
                at = Field::read(message, at)?.end;
            }
            let (mut edns, mut tsig) = (None, None);
            for _ in 0..additionals {
                let field = Field::read(message, at)?;
                // Nothing follows a TSIG record (RFC 8945 §5.1).
                tsig.is_none().then_some(())?;
                if field.rtype == rtype::TSIG {
                    tsig = Some(at);
                }
                at = field.end;
                if field.rtype == rtype::OPT {
                    // RFC 6891 §6.1.1: at most one OPT record, with the root as owner.
                    (field.owner_is_root && edns.is_none()).then_some(())?;
                    edns = Some(field.edns()?);
                }
            }
            (at == message.len()).then_some(())?;
            Some(Self { id, flags, question, name, rtype, class, edns, tsig, authority })
        };
        read().ok_or(bad(Code::FormErr))
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// A record of a message.
pub(crate) struct Field<'a> {
    pub(crate) owner_is_root: bool,
    pub(crate) rtype: u16,
    pub(crate) class: u16,
    pub(crate) ttl: u32,
    pub(crate) rdata: &'a [u8],
    /// The offset of the next record.
    pub(crate) end: usize,
}

impl<'a> Field<'a> {
    /// Reads the record at `at`.
    pub(crate) fn read(message: &'a [u8], at: usize) -> Option<Self> {
        let start = skip_name(message, at)?;
        let (high, low) = (u16_at(message, start + 4)?, u16_at(message, start + 6)?);
        let length = usize::from(u16_at(message, start + 8)?);
        let rdata = message.get(start + 10..start + 10 + length)?;
        Some(Self {
            owner_is_root: message.get(at) == Some(&0),
            rtype: u16_at(message, start)?,
            class: u16_at(message, start + 2)?,
            ttl: u32::from(high) << 16 | u32::from(low),
            rdata,
            end: start + 10 + length,
        })
    }

    /// Reads an OPT record (RFC 6891 §6.1.2).
    fn edns(&self) -> Option<Edns> {
        let [_, version, high, low] = self.ttl.to_be_bytes();
        let dnssec_ok = u16::from_be_bytes([high, low]) & DO != 0;
        let mut edns = Edns { size: self.class, version, dnssec_ok, passed: Vec::new() };
        let mut at = 0;
        while at < self.rdata.len() {
            let (code, length) = (u16_at(self.rdata, at)?, usize::from(u16_at(self.rdata, at + 2)?));
            let data = self.rdata.get(at + 4..at + 4 + length)?;
            if code == FORWARDER_OPTION {
                let (ids, _) = data.as_chunks::<8>();
                let room = MAX_FORWARDERS - edns.passed.len();
                edns.passed.extend(ids.iter().take(room).map(|id| u64::from_be_bytes(*id)));
            }
            at += 4 + length;
        }
        Some(edns)
    }
}

/// The end of the name at `at`.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            0xc0.. => return Some(at + 2),
            _ => return None,
        }
    }
}

pub(crate) fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    message.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}
