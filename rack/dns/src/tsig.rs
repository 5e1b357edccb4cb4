//! Message signatures with a shared secret (RFC 8945), with HMAC-SHA256 only.

use std::fmt;

use aws_lc_rs::{constant_time, hmac};
use hickory_proto::rr::Name;

use crate::name::{WireName, to_key};
use crate::query::{Code, Field, HEADER, QR, u16_at};
use crate::records::rtype;

/// The allowed difference between the clocks of two servers, in seconds (RFC 8945 §10).
const FUDGE: u16 = 300;
/// The length of a signature, in octets.
const MAC: usize = 32;
/// The shortest truncated signature that RFC 8945 §5.2.2.1 allows.
const SHORTEST: usize = MAC / 2;
/// The name of the algorithm (RFC 8945 §6).
const ALGORITHM: &[u8] = b"\x0bhmac-sha256\x00";
/// The class of the record.
const ANY: u16 = 255;
/// The length of the record without the key's name: fixed fields, algorithm, times, signature, and the time of
/// [`Fault::Time`].
const RECORD: usize = 10 + ALGORITHM.len() + 10 + MAC + 6 + 6;

/// A shared secret and its name.
#[derive(Clone)]
pub struct TsigKey {
    /// The name in wire format and lower case.
    name: Box<[u8]>,
    secret: hmac::Key,
}

impl fmt::Debug for TsigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TsigKey").field("name", &crate::name::display(&self.name)).finish_non_exhaustive()
    }
}

/// Two keys are equal if name and secret are.
impl PartialEq for TsigKey {
    fn eq(&self, other: &Self) -> bool {
        let sign = |key: &Self| hmac::sign(&key.secret, &key.name);
        constant_time::verify_slices_are_equal(sign(self).as_ref(), sign(other).as_ref()).is_ok()
            && self.name == other.name
    }
}

impl TsigKey {
    /// A key for HMAC-SHA256.
    #[must_use]
    pub fn new(name: &Name, secret: &[u8]) -> Self {
        Self { name: to_key(name), secret: hmac::Key::new(hmac::HMAC_SHA256, secret) }
    }

    /// The longest record that signs a message with this key, in octets.
    pub(crate) fn room(&self) -> usize {
        self.name.len() + RECORD
    }

    /// Signs the first message of an exchange. Returns the signature, which is needed to check the answer.
    pub(crate) fn sign_request(&self, message: &mut Vec<u8>, now: u64) -> Vec<u8> {
        let mut signer = Signer { key: self.clone(), before: None, is_first: true };
        signer.sign(message, now);
        signer.before.unwrap_or_default()
    }

    /// Checks the answer to a request with this signature. Returns the answer without the record.
    ///
    /// # Errors
    /// The reason why it is not accepted, as text.
    pub(crate) fn check_answer(
        &self,
        message: &[u8],
        request: &[u8],
        now: u64,
    ) -> Result<Vec<u8>, &'static str> {
        let signature = Signature::find(message).ok_or("its answer is not signed")?;
        match signature.error {
            0 => {}
            code => return Err(Fault::of(code).map_or("it refuses the signature", Fault::of_peer)),
        }
        if *signature.name.as_bytes() != *self.name || !signature.is_ours() {
            return Err("its answer is signed with another key");
        }
        self.verify(&signature, Some(request), now).map_err(|fault| match fault {
            Fault::Time => "its answer is signed at another time: set both clocks",
            _ => "the signature of its answer is false: both must have the same secret",
        })?;
        Ok(signature.unsigned)
    }

    /// RFC 8945 §5.2.2 to §5.2.4, in their order.
    fn verify(&self, signature: &Signature, request: Option<&[u8]>, now: u64) -> Result<(), Fault> {
        if signature.mac.len() < SHORTEST || signature.mac.len() > MAC {
            return Err(Fault::Form);
        }
        let mac = self.mac(request, &signature.unsigned, &signature.variables(&self.name));
        let same = mac
            .get(..signature.mac.len())
            .is_some_and(|mac| constant_time::verify_slices_are_equal(mac, &signature.mac).is_ok());
        if !same {
            return Err(Fault::Signature);
        }
        if now.abs_diff(signature.time) > u64::from(signature.fudge) {
            return Err(Fault::Time);
        }
        if signature.mac.len() < MAC {
            return Err(Fault::Cut);
        }
        Ok(())
    }

    fn mac(&self, before: Option<&[u8]>, message: &[u8], variables: &[u8]) -> [u8; MAC] {
        let mut context = hmac::Context::with_key(&self.secret);
        if let Some(before) = before {
            context.update(&u16::try_from(before.len()).unwrap_or(u16::MAX).to_be_bytes());
            context.update(before);
        }
        context.update(message);
        context.update(variables);
        let mut mac = [0; MAC];
        mac.iter_mut().zip(context.sign().as_ref()).for_each(|(place, byte)| *place = *byte);
        mac
    }
}

/// The reason why a signed message is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The record is malformed.
    Form,
    /// BADSIG: the signature was made with another secret.
    Signature,
    /// BADKEY: the peer has no key with this name.
    Key,
    /// BADTIME: the clocks differ too much.
    Time,
    /// BADTRUNC: the signature is cut too short.
    Cut,
}

impl Fault {
    /// The code in the record (RFC 8945 §3).
    fn code(self) -> u16 {
        match self {
            Self::Form => 0,
            Self::Signature => 16,
            Self::Key => 17,
            Self::Time => 18,
            Self::Cut => 22,
        }
    }

    fn of(code: u16) -> Option<Self> {
        [Self::Signature, Self::Key, Self::Time, Self::Cut].into_iter().find(|fault| fault.code() == code)
    }

    /// The text for a peer that answers with this code.
    fn of_peer(self) -> &'static str {
        match self {
            Self::Key => "it has no key of this name (BADKEY)",
            Self::Time => "its clock differs by more than 300 s (BADTIME): set both clocks",
            _ => "it has another secret for this key (BADSIG)",
        }
    }
}

/// The record of a signed message, and the message without it.
pub(crate) struct Signature {
    /// The name of the key, in lower case.
    name: WireName,
    algorithm: WireName,
    /// Seconds since 1970, 48 bits.
    time: u64,
    fudge: u16,
    mac: Vec<u8>,
    error: u16,
    other: Vec<u8>,
    /// The id that the message was signed with: a forwarder may have changed it since.
    id: [u8; 2],
    /// The message as it was signed: with its original id, and without the record.
    unsigned: Vec<u8>,
}

impl Signature {
    /// The signature of a message, if its last record is a valid one.
    fn find(message: &[u8]) -> Option<Self> {
        let counts = [4, 6, 8, 10].map(|at| u16_at(message, at));
        let [Some(questions), Some(answers), Some(authorities), Some(additionals)] = counts else {
            return None;
        };
        let mut at = HEADER;
        for _ in 0..questions {
            at = WireName::read(message, at)?.1 + 4;
        }
        let records =
            usize::from(answers) + usize::from(authorities) + usize::from(additionals.checked_sub(1)?);
        for _ in 0..records {
            at = Field::read(message, at)?.end;
        }
        Self::read(message, at)
    }

    /// Reads the record at `at`, the last one of the message.
    pub(crate) fn read(message: &[u8], at: usize) -> Option<Self> {
        let field = Field::read(message, at)?;
        let sound = field.rtype == rtype::TSIG && field.class == ANY && field.ttl == 0;
        (sound && field.end == message.len()).then_some(())?;
        let (mut name, _) = WireName::read(message, at)?;
        name.make_lowercase();
        let rdata = field.rdata;
        // Names in the data are not compressed (RFC 8945 §4.2).
        let (mut algorithm, at_time) = WireName::read(rdata, 0)?;
        algorithm.make_lowercase();
        let mut time = [0; 8];
        time.get_mut(2..)?.copy_from_slice(rdata.get(at_time..at_time + 6)?);
        let fudge = u16_at(rdata, at_time + 6)?;
        let length = usize::from(u16_at(rdata, at_time + 8)?);
        let after = at_time + 10 + length;
        let mac = rdata.get(at_time + 10..after)?.to_vec();
        let (id, error) = (rdata.get(after..after + 2)?, u16_at(rdata, after + 2)?);
        let length = usize::from(u16_at(rdata, after + 4)?);
        let other = rdata.get(after + 6..)?.to_vec();
        (other.len() == length).then_some(())?;
        let mut unsigned = message.get(..at)?.to_vec();
        let additionals = u16_at(message, 10)?.checked_sub(1)?.to_be_bytes();
        unsigned.get_mut(..2)?.copy_from_slice(id);
        unsigned.get_mut(10..12)?.copy_from_slice(&additionals);
        let time = u64::from_be_bytes(time);
        let id = *message.first_chunk()?;
        Some(Self { name, algorithm, time, fudge, mac, error, other, id, unsigned })
    }

    /// True if the record names this key.
    fn is_of(&self, key: &TsigKey) -> bool {
        *self.name.as_bytes() == *key.name && self.is_ours()
    }

    fn is_ours(&self) -> bool {
        self.algorithm.as_bytes() == ALGORITHM
    }

    fn variables(&self, name: &[u8]) -> Vec<u8> {
        variables(name, self.time, self.fudge, self.error, &self.other)
    }
}

/// The signed fields of the record (RFC 8945 §4.3.3).
fn variables(name: &[u8], time: u64, fudge: u16, error: u16, other: &[u8]) -> Vec<u8> {
    let mut signed = name.to_vec();
    signed.extend(ANY.to_be_bytes());
    signed.extend([0; 4]);
    signed.extend(ALGORITHM);
    signed.extend(timers(time, fudge));
    signed.extend(error.to_be_bytes());
    signed.extend(u16::try_from(other.len()).unwrap_or(u16::MAX).to_be_bytes());
    signed.extend(other);
    signed
}

fn timers(time: u64, fudge: u16) -> [u8; 8] {
    let [_, _, a, b, c, d, e, f] = time.to_be_bytes();
    let [g, h] = fudge.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Signs the messages of one answer in their order (RFC 8945 §5.3).
#[derive(Debug)]
pub(crate) struct Signer {
    key: TsigKey,
    /// The previous signature: that of the request, or of the last message.
    before: Option<Vec<u8>>,
    is_first: bool,
}

impl Signer {
    /// The length of the longest record that it adds, in octets.
    pub(crate) fn room(&self) -> usize {
        self.key.room()
    }

    /// Signs the next message.
    pub(crate) fn sign(&mut self, message: &mut Vec<u8>, now: u64) {
        self.sign_with(message, now, FUDGE, 0, &[]);
    }

    fn sign_with(&mut self, message: &mut Vec<u8>, time: u64, fudge: u16, error: u16, other: &[u8]) {
        let signed = match self.is_first {
            true => variables(&self.key.name, time, fudge, error, other),
            // RFC 8945 §5.3.1: in later messages only the times are signed.
            false => timers(time, fudge).to_vec(),
        };
        let mac = self.key.mac(self.before.as_deref(), message, &signed);
        (self.before, self.is_first) = (Some(mac.to_vec()), false);
        append(message, &self.key.name, ALGORITHM, time, fudge, &mac, error, other);
    }
}

/// Adds the record to a message.
#[expect(clippy::too_many_arguments, reason = "each is a field of the record")]
fn append(
    message: &mut Vec<u8>,
    name: &[u8],
    algorithm: &[u8],
    time: u64,
    fudge: u16,
    mac: &[u8],
    error: u16,
    other: &[u8],
) {
    let id = u16_at(message, 0).unwrap_or(0).to_be_bytes();
    let length = |octets: usize| u16::try_from(octets).unwrap_or(u16::MAX).to_be_bytes();
    let mut rdata = algorithm.to_vec();
    rdata.extend(timers(time, fudge));
    rdata.extend(length(mac.len()));
    rdata.extend(mac);
    rdata.extend(id);
    rdata.extend(error.to_be_bytes());
    rdata.extend(length(other.len()));
    rdata.extend(other);
    message.extend(name);
    message.extend(rtype::TSIG.to_be_bytes());
    message.extend(ANY.to_be_bytes());
    message.extend([0; 4]);
    message.extend(length(rdata.len()));
    message.extend(rdata);
    let count = u16_at(message, 10).unwrap_or(0).saturating_add(1).to_be_bytes();
    message.iter_mut().skip(10).zip(count).for_each(|(place, byte)| *place = byte);
}

/// A request whose signature is good.
#[derive(Debug)]
pub(crate) struct Verified {
    /// The request without the record.
    pub(crate) message: Vec<u8>,
    /// Signs the answer.
    pub(crate) signer: Signer,
}

/// Checks a signed request. `keys` are those that the peer may use.
///
/// # Errors
/// The answer with the fault (RFC 8945 §5.2).
pub(crate) fn check<'a>(
    mut signature: Signature,
    keys: impl Iterator<Item = &'a TsigKey>,
    now: u64,
) -> Result<Verified, Vec<u8>> {
    // A server may have two keys with one name: one for a domain, and one for all zones.
    let named: Vec<&TsigKey> = keys.filter(|key| signature.is_of(key)).collect();
    let own = named.iter().find(|key| key.verify(&signature, None, now) != Err(Fault::Signature));
    let key = own.or(named.first()).copied();
    let checked = key.ok_or(Fault::Key).and_then(|key| key.verify(&signature, None, now).map(|()| key));
    // The answer has the id that the request arrived with.
    signature.unsigned.iter_mut().zip(signature.id).for_each(|(place, byte)| *place = byte);
    let fault = match checked {
        Err(fault) => fault,
        Ok(key) => {
            let signer = Signer { key: key.clone(), before: Some(signature.mac), is_first: true };
            return Ok(Verified { message: signature.unsigned, signer });
        }
    };
    let mut reply = refusal(&signature.unsigned, fault);
    match (fault, key) {
        (Fault::Form, _) => {}
        // These two answers are signed: the peer has the secret (RFC 8945 §5.3.2).
        (Fault::Time | Fault::Cut, Some(key)) => {
            let mut signer = Signer { key: key.clone(), before: Some(signature.mac.clone()), is_first: true };
            let server = now.to_be_bytes();
            let other = if fault == Fault::Time { server.get(2..).unwrap_or_default() } else { &[] };
            signer.sign_with(&mut reply, signature.time, signature.fudge, fault.code(), other);
        }
        _ => {
            let (name, algorithm) = (signature.name.as_bytes(), signature.algorithm.as_bytes());
            append(&mut reply, name, algorithm, signature.time, signature.fudge, &[], fault.code(), &[]);
        }
    }
    Err(reply)
}

/// The header and the question of a request, with the fault's code.
fn refusal(request: &[u8], fault: Fault) -> Vec<u8> {
    let code = if fault == Fault::Form { Code::FormErr } else { Code::NotAuth };
    let end = WireName::read(request, HEADER).map_or(HEADER, |(_, end)| end + 4);
    let mut reply = request.get(..end).unwrap_or_default().to_vec();
    let flags = u16_at(request, 2).unwrap_or(0) & 0x7900 | QR | code as u16;
    let header = [flags, u16::from(end > HEADER), 0, 0, 0];
    let header = header.iter().flat_map(|field| field.to_be_bytes());
    reply.iter_mut().skip(2).zip(header).for_each(|(place, byte)| *place = byte);
    reply
}
