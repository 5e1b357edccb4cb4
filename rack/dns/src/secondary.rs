//! Servers that have copies of zones: their queries (RFC 5936, RFC 1995 §4), notifications to them and questions about
//! their serials (RFC 1996).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hickory_proto::rr::Name;

use crate::answer::{Answer, Transport, answer_within};
use crate::name::{WireName, to_key, to_wire};
use crate::query::{AA, Code, Field, HEADER, IN, OPCODE, QR, Query, Unreadable, u16_at};
use crate::records::rtype;
use crate::reply::{Reply, Section};
use crate::transfer::Transfer;
use crate::tsig::{Signature, Signer, TsigKey, check};
use crate::zones::Zones;

/// The opcode NOTIFY (RFC 1996 §3.3), at its position in the flags.
const NOTIFY: u16 = 4 << 11;

/// A server that may copy a zone.
#[derive(Debug, Clone, PartialEq)]
pub struct Secondary {
    /// The address and port that NOTIFY is sent to. The server's own queries come from this address, and from any port.
    pub at: SocketAddr,
    /// The key for signatures in both directions.
    pub key: TsigKey,
}

/// The secondaries of zones.
#[derive(Debug, Default)]
pub struct Secondaries {
    /// By zone name, in wire format and lower case.
    of: HashMap<Box<[u8]>, Vec<Secondary>>,
}

/// The answer to a query of a secondary.
#[derive(Debug)]
pub enum Served {
    /// Send this message back.
    Reply(Vec<u8>),
    /// Send this message back. The query came from a secondary: its address and its signature are those of the secondary.
    Signed(Vec<u8>),
    /// Send these messages back to a secondary.
    Transfer(Box<Transfer>),
    /// Send nothing: the message is no query.
    Drop,
}

impl Secondaries {
    /// Sets the servers that may copy a zone.
    pub fn allow(&mut self, origin: &Name, secondaries: Vec<Secondary>) {
        self.of.insert(to_key(origin), secondaries);
    }

    /// The secondaries of a zone.
    #[must_use]
    pub fn of(&self, origin: &Name) -> &[Secondary] {
        self.of.get(&to_key(origin)).map_or(&[], Vec::as_slice)
    }

    /// Answers a query that is [`Answer::Secondary`]. `now` is in seconds since 1970.
    ///
    /// Only the zone's secondaries, known by address and key, may copy it; others are REFUSED. For other queries the
    /// signature is checked, and the answer is signed.
    #[must_use]
    pub fn answer(
        &self,
        zones: &Zones,
        query: &[u8],
        peer: IpAddr,
        transport: Transport,
        now: u64,
    ) -> Served {
        let message = query;
        let query = match Query::read(message) {
            Ok(query) => query,
            Err(Unreadable::Ignore) => return Served::Drop,
            Err(Unreadable::Answer { id, flags, code }) => {
                return Served::Reply(Reply::bare(id, flags, code));
            }
        };
        let is_transfer = matches!(query.rtype, rtype::AXFR | rtype::IXFR);
        let zone = match is_transfer {
            true => zones.of_key(query.name.as_bytes()).map(Arc::as_ref),
            false => zones.find(&query.name, query.rtype),
        };
        let peer = peer.to_canonical();
        let declared = zone.and_then(|zone| self.of.get(zone.key())).into_iter().flatten();
        let own: Vec<&TsigKey> =
            declared.filter(|it| it.at.ip().to_canonical() == peer).map(|it| &it.key).collect();
        let (Some(at), true) = (query.tsig, !is_transfer || !own.is_empty()) else {
            return Served::Reply(code(&query, Code::Refused));
        };
        let Some(signature) = Signature::read(message, at) else {
            return Served::Reply(code(&query, Code::FormErr));
        };
        let verified = match check(signature, own.into_iter(), now) {
            Ok(verified) => verified,
            Err(reply) => return Served::Reply(reply),
        };
        let (message, signer) = (verified.message, verified.signer);
        let reply = if !is_transfer {
            match answer_within(zones, &message, transport, false, signer.room()) {
                Answer::Reply(reply) => reply,
                Answer::Forward(question) => question.fail(),
                Answer::Secondary | Answer::Drop => return Served::Drop,
            }
        } else {
            let Some(zone) = zones.of_key(query.name.as_bytes()) else { return Served::Drop };
            let is_full = match query.rtype {
                rtype::AXFR if transport == Transport::Udp => {
                    return Served::Signed(signed(code(&query, Code::FormErr), signer, now));
                }
                rtype::AXFR => true,
                _ => match query.authority.and_then(|at| soa_serial(&message, at)) {
                    // RFC 1995 §4: over UDP the answer is the new serial; the secondary then asks again over TCP.
                    Some(held) => transport == Transport::Tcp && is_newer(zone.serial(), held),
                    None => return Served::Signed(signed(code(&query, Code::FormErr), signer, now)),
                },
            };
            if is_full {
                return Served::Transfer(Box::new(Transfer {
                    zone: Arc::clone(zone),
                    id: query.id,
                    flags: query.flags,
                    question: query.question.to_vec(),
                    signer,
                }));
            }
            let mut reply = Reply::new(query.id, query.flags, query.question, None, usize::from(u16::MAX));
            reply.set(AA);
            if let Some(soa) = zone.soa() {
                reply.add(Section::Answer, zone.key(), soa, soa.ttl, 0);
            }
            reply.finish()
        };
        Served::Signed(signed(reply, signer, now))
    }
}

fn signed(mut reply: Vec<u8>, mut signer: Signer, now: u64) -> Vec<u8> {
    signer.sign(&mut reply, now);
    reply
}

fn code(query: &Query<'_>, code: Code) -> Vec<u8> {
    let mut reply = Reply::new(query.id, query.flags, query.question, None, usize::from(u16::MAX));
    reply.set_code(code);
    reply.finish()
}

/// True if the first serial is newer than the other (RFC 1982 §3.2).
#[must_use]
pub fn is_newer(serial: u32, than: u32) -> bool {
    matches!(serial.wrapping_sub(than), 1..=0x7fff_ffff)
}

/// The serial of the SOA record at `at`.
fn soa_serial(message: &[u8], at: usize) -> Option<u32> {
    let field = Field::read(message, at)?;
    (field.rtype == rtype::SOA).then_some(())?;
    let data = field.end - field.rdata.len();
    let (_, mailbox) = WireName::read(message, data)?;
    let (_, serial) = WireName::read(message, mailbox)?;
    message.get(serial..field.end)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// A question to a secondary, and the data to check its answer.
#[derive(Debug)]
pub struct Asked {
    /// The message to send.
    pub message: Vec<u8>,
    id: u16,
    flags: u16,
    signature: Vec<u8>,
    key: TsigKey,
}

impl Asked {
    /// A notification that a zone has changed (RFC 1996 §3.7).
    #[must_use]
    pub fn notify(origin: &Name, key: &TsigKey, id: u16, now: u64) -> Self {
        Self::new(origin, key, id, NOTIFY | AA, now)
    }

    /// A question for the serial that the secondary has.
    #[must_use]
    pub fn serial(origin: &Name, key: &TsigKey, id: u16, now: u64) -> Self {
        Self::new(origin, key, id, 0, now)
    }

    fn new(origin: &Name, key: &TsigKey, id: u16, flags: u16, now: u64) -> Self {
        let mut message: Vec<u8> = [id, flags, 1, 0, 0, 0].iter().flat_map(|it| it.to_be_bytes()).collect();
        message.extend(to_wire(origin));
        message.extend([rtype::SOA, IN].iter().flat_map(|it| it.to_be_bytes()));
        let signature = key.sign_request(&mut message, now);
        Self { message, id, flags, signature, key: key.clone() }
    }

    /// Reads an answer. `Ok(None)`: it answers another question. The serial comes from a SOA, if the answer has one.
    ///
    /// # Errors
    /// The secondary refuses: the reason and the remedy, as text.
    pub fn read(&self, answer: &[u8], now: u64) -> Result<Option<Option<u32>>, String> {
        let (Some(id), Some(flags)) = (u16_at(answer, 0), u16_at(answer, 2)) else { return Ok(None) };
        if id != self.id || flags & QR == 0 || flags & OPCODE != self.flags & OPCODE {
            return Ok(None);
        }
        let code = flags & 0xf;
        let checked = self.key.check_answer(answer, &self.signature, now);
        match (code, checked) {
            (0, Ok(message)) => Ok(Some(serial_of_answer(&message))),
            (_, Err(why)) => {
                Err(if code == 0 || code == Code::NotAuth as u16 { why.to_owned() } else { refused(code) })
            }
            (_, Ok(_)) => Err(refused(code)),
        }
    }
}

/// The text for a code (RFC 1035 §4.1.1).
fn refused(code: u16) -> String {
    let word = match code {
        2 => "SERVFAIL: it has no valid copy of the zone yet",
        4 => "NOTIMP: it does not know NOTIFY",
        5 => "REFUSED: allow this rack and its key there",
        9 => "NOTAUTH: declare the zone there",
        _ => return format!("it answers with code {code}"),
    };
    format!("it answers {word}")
}

fn serial_of_answer(message: &[u8]) -> Option<u32> {
    let (_, end) = WireName::read(message, HEADER)?;
    (u16_at(message, 6)? > 0).then_some(())?;
    soa_serial(message, end + 4)
}
