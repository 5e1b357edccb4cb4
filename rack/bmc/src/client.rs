//! The client's session, without I/O: datagrams in, datagrams out.
//!
//! ```text
//! Get Channel Auth Capabilities -> Open Session -> RAKP 1/2 -> RAKP 3/4 -> Set Session Privilege -> ready -> Close Session
//! ```
//!
//! One request is outstanding at a time. [`ClientCore::retransmit`] repeats it. Outside the session the repetition has
//! a new message tag, so that a late answer to the first try is not taken for an answer to the second. Inside the
//! session it has the same rqSeq and a new session sequence number, so that a BMC recognises the repetition.

use std::time::Duration;

use crate::command;
use crate::credentials::{Credentials, Privilege};
use crate::crypto::{Exchange, SessionKeys, same};
use crate::error::Failure;
use crate::message::{self, CompletionCode, Request, Response};
use crate::packet::{self, Packet, Payload, Sealed};
use crate::rakp::{self, OpenRequest, OpenResponse, Rakp, Rakp1, Rakp2Body, status};
use crate::random::Random;
use crate::suite::CipherSuite;
use crate::window::{Window, next_sequence};

/// "This channel", with the bit that asks for IPMI 2.0 data.
const THIS_CHANNEL_V2: u8 = 0x8e;

/// Authentication status of Get Channel Authentication Capabilities (§22.13): the BMC has a key K_g that is not null.
pub(crate) const BMC_KEY_IS_SET: u8 = 0x20;

/// The result of a received datagram.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The datagram is late, repeated, forged or for another client: go on waiting.
    Ignored,
    /// Send this next step of the handshake.
    Send(Vec<u8>),
    /// The session is ready for requests.
    Ready,
    /// The answer to the outstanding request.
    Answer(Response),
}

/// The state of the session.
enum Step {
    Capabilities,
    Opening,
    /// RAKP 1 sent.
    Challenged {
        bmc_session: u32,
    },
    /// RAKP 3 sent; RAKP 4 has to prove the keys.
    Proving {
        bmc_session: u32,
        expected: zeroize::Zeroizing<Vec<u8>>,
        rakp3_code: zeroize::Zeroizing<Vec<u8>>,
        keys: SessionKeys,
        retransmitted: bool,
    },
    Active(Active),
    Ended,
}

struct Active {
    bmc_session: u32,
    keys: SessionKeys,
    sequence: u32,
    window: Window,
    outstanding: Option<Outstanding>,
    ready: bool,
}

struct Outstanding {
    request: Request,
    rq_seq: u8,
}

/// The client's side of a session.
pub struct ClientCore {
    credentials: Credentials,
    suite: &'static CipherSuite,
    privilege: Privilege,
    console_session: u32,
    console_random: [u8; 16],
    tag: u8,
    rq_seq: u8,
    step: Step,
}

impl ClientCore {
    /// A session that has not started.
    ///
    /// # Errors
    /// [`Failure::Crypto`] without randomness.
    pub fn new(
        credentials: Credentials,
        suite: &'static CipherSuite,
        privilege: Privilege,
        random: &mut impl Random,
    ) -> Result<Self, Failure> {
        Ok(Self {
            credentials,
            suite,
            privilege,
            console_session: random.session_id()?,
            console_random: random.array()?,
            tag: 0,
            rq_seq: 0,
            step: Step::Capabilities,
        })
    }

    /// The datagram to send first.
    #[must_use]
    pub fn start(&self) -> Vec<u8> {
        self.capabilities()
    }

    /// The step that is being waited for, as text.
    #[must_use]
    pub fn step(&self) -> &'static str {
        match &self.step {
            Step::Capabilities => command::GET_CHANNEL_AUTH_CAPABILITIES.name,
            Step::Opening => "Open Session",
            Step::Challenged { .. } => "RAKP 1",
            Step::Proving { .. } => "RAKP 3",
            Step::Active(active) => {
                active.outstanding.as_ref().map_or("nothing", |each| each.request.id.name)
            }
            Step::Ended => "nothing: the session is closed",
        }
    }

    /// True if a refusal now may only mean that the BMC received RAKP 3 twice. Then start a new session.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        matches!(self.step, Step::Proving { retransmitted: true, .. })
    }

    /// The datagram of a command. The session must be ready ([`Event::Ready`]).
    ///
    /// # Errors
    /// [`Failure::Closed`] outside a session.
    pub fn request(&mut self, request: Request, random: &mut impl Random) -> Result<Vec<u8>, Failure> {
        let Step::Active(active) = &mut self.step else {
            return Err(Failure::Closed);
        };
        self.rq_seq = (self.rq_seq + 1) % 64;
        active.outstanding = Some(Outstanding { request, rq_seq: self.rq_seq });
        active.send(random)
    }

    /// The outstanding datagram again.
    ///
    /// # Errors
    /// [`Failure::Closed`] if nothing is outstanding.
    pub fn retransmit(&mut self, random: &mut impl Random) -> Result<Vec<u8>, Failure> {
        match &mut self.step {
            Step::Capabilities => Ok(self.capabilities()),
            Step::Opening => Ok(self.open()),
            Step::Challenged { bmc_session } => {
                let bmc_session = *bmc_session;
                Ok(self.rakp1(bmc_session))
            }
            Step::Proving { bmc_session, rakp3_code, retransmitted, .. } => {
                *retransmitted = true;
                Ok(rakp3(self.tag, status::OK, *bmc_session, rakp3_code))
            }
            Step::Active(active) => active.send(random),
            Step::Ended => Err(Failure::Closed),
        }
    }

    /// Ends the session in any state. Returns a datagram if the BMC must be told.
    ///
    /// # Errors
    /// [`Failure::Crypto`].
    pub fn close(&mut self, random: &mut impl Random) -> Result<Option<Vec<u8>>, Failure> {
        match std::mem::replace(&mut self.step, Step::Ended) {
            Step::Active(mut active) => {
                self.rq_seq = (self.rq_seq + 1) % 64;
                let data = active.bmc_session.to_le_bytes().to_vec();
                let request = Request { id: command::CLOSE_SESSION, data };
                active.outstanding = Some(Outstanding { request, rq_seq: self.rq_seq });
                active.send(random).map(Some)
            }
            Step::Challenged { bmc_session } | Step::Proving { bmc_session, .. } => {
                Ok(Some(rakp3(self.tag, status::INVALID_CODE, bmc_session, &[])))
            }
            Step::Capabilities | Step::Opening | Step::Ended => Ok(None),
        }
    }

    /// Takes a datagram from the BMC.
    ///
    /// # Errors
    /// The [`Failure`] that ends this session; call [`ClientCore::close`] then.
    pub fn receive(&mut self, datagram: &[u8], random: &mut impl Random) -> Result<Event, Failure> {
        let Ok(packet) = packet::parse(datagram) else {
            return Ok(Event::Ignored);
        };
        match packet {
            Packet::Plain15(message) => self.capabilities_answer(message),
            Packet::Plain(Payload::Ipmi, message) => self.capabilities_answer(message),
            Packet::Plain(Payload::OpenSessionResponse, payload) => self.open_answer(payload),
            Packet::Plain(Payload::Rakp2, payload) => self.rakp2_answer(payload),
            Packet::Plain(Payload::Rakp4, payload) => self.rakp4_answer(payload, random),
            Packet::Sealed(sealed) => self.session_answer(&sealed),
            Packet::Plain(..) => Ok(Event::Ignored),
        }
    }

    fn capabilities(&self) -> Vec<u8> {
        let data = vec![THIS_CHANNEL_V2, self.privilege.code()];
        let request = Request { id: command::GET_CHANNEL_AUTH_CAPABILITIES, data };
        packet::plain15(&message::encode_request(&request, self.rq_seq))
    }

    fn capabilities_answer(&mut self, message: &[u8]) -> Result<Event, Failure> {
        let id = command::GET_CHANNEL_AUTH_CAPABILITIES;
        let Step::Capabilities = self.step else {
            return Ok(Event::Ignored);
        };
        let Ok(response) = message::decode_response(message) else {
            return Ok(Event::Ignored);
        };
        if (response.net_fn, response.command) != (id.net_fn | 1, id.command) {
            return Ok(Event::Ignored);
        }
        if response.code != CompletionCode::OK {
            return Err(Failure::Command { command: id.name, code: response.code });
        }
        let Some([_channel, types, status, extended, ..]) = response.data.first_chunk::<4>() else {
            return Err(Failure::Malformed("Get Channel Authentication Capabilities response"));
        };
        let has_extended_data = types & 0x80 != 0;
        let speaks_2_0 = extended & 0x02 != 0;
        if !has_extended_data || !speaks_2_0 {
            return Err(Failure::NoIpmi20);
        }
        let needs_bmc_key = status & BMC_KEY_IS_SET != 0;
        if needs_bmc_key && self.credentials.bmc_key.is_none() {
            return Err(Failure::BmcKeyRequired);
        }
        self.step = Step::Opening;
        Ok(Event::Send(self.open()))
    }

    fn open(&mut self) -> Vec<u8> {
        self.tag = self.tag.wrapping_add(1);
        let request = OpenRequest {
            tag: self.tag,
            privilege: self.privilege.code(),
            console_session: self.console_session,
            algorithms: self.suite.algorithms(),
        };
        packet::plain(Payload::OpenSessionRequest, &request.encode())
    }

    fn open_answer(&mut self, payload: &[u8]) -> Result<Event, Failure> {
        let Step::Opening = self.step else {
            return Ok(Event::Ignored);
        };
        let response = OpenResponse::decode(payload)?;
        if response.tag != self.tag {
            return Ok(Event::Ignored);
        }
        let Some(accepted) = response.accepted else {
            return Err(self.refused("Open Session", response.status));
        };
        if response.console_session != self.console_session {
            return Ok(Event::Ignored);
        }
        if accepted.algorithms != self.suite.algorithms() {
            return Err(Failure::UnsupportedSuite { suite: self.suite.id });
        }
        self.step = Step::Challenged { bmc_session: accepted.bmc_session };
        Ok(Event::Send(self.rakp1(accepted.bmc_session)))
    }

    fn role(&self) -> u8 {
        rakp::NAME_ONLY_LOOKUP | self.privilege.code()
    }

    fn rakp1(&mut self, bmc_session: u32) -> Vec<u8> {
        self.tag = self.tag.wrapping_add(1);
        let rakp1 = Rakp1 {
            tag: self.tag,
            bmc_session,
            console_random: self.console_random,
            role: self.role(),
            username: self.credentials.username.as_bytes().to_vec(),
        };
        packet::plain(Payload::Rakp1, &rakp1.encode())
    }

    fn rakp2_answer(&mut self, payload: &[u8]) -> Result<Event, Failure> {
        let Step::Challenged { bmc_session } = self.step else {
            return Ok(Event::Ignored);
        };
        let rakp2 = Rakp::decode(payload, "RAKP 2")?;
        if rakp2.tag != self.tag {
            return Ok(Event::Ignored);
        }
        if rakp2.status != status::OK {
            return Err(self.refused("RAKP 1", rakp2.status));
        }
        if rakp2.session != self.console_session {
            return Ok(Event::Ignored);
        }
        let Rakp2Body { bmc_random, bmc_guid, code } = Rakp2Body::decode(rakp2.body)?;
        let exchange = Exchange {
            suite: self.suite,
            key: self.credentials.password.key(),
            // A declared key is used even if the BMC says that it has none. Otherwise an impostor could skip the key.
            bmc_key: self.credentials.bmc_key.as_ref().map(|key| &key.octets()[..]),
            console_session: self.console_session,
            bmc_session,
            console_random: self.console_random,
            bmc_random,
            bmc_guid,
            role: self.role(),
            username: self.credentials.username.as_bytes(),
        };
        if !same(&exchange.rakp2_code(), code) {
            return Err(self.wrong_password());
        }
        let rakp3_code = exchange.rakp3_code();
        let (expected, keys) = (exchange.rakp4_code(), exchange.session_keys()?);
        self.tag = self.tag.wrapping_add(1);
        let datagram = rakp3(self.tag, status::OK, bmc_session, &rakp3_code);
        self.step = Step::Proving { bmc_session, expected, rakp3_code, keys, retransmitted: false };
        Ok(Event::Send(datagram))
    }

    fn rakp4_answer(&mut self, payload: &[u8], random: &mut impl Random) -> Result<Event, Failure> {
        let Step::Proving { expected, .. } = &self.step else {
            return Ok(Event::Ignored);
        };
        let rakp4 = Rakp::decode(payload, "RAKP 4")?;
        if rakp4.tag != self.tag {
            return Ok(Event::Ignored);
        }
        if rakp4.status != status::OK {
            return Err(self.refused("RAKP 3", rakp4.status));
        }
        if rakp4.session != self.console_session {
            return Ok(Event::Ignored);
        }
        // RAKP 2 has proved the password, so the difference is K_g.
        if !same(expected, rakp4.body) {
            return Err(Failure::WrongBmcKey { is_declared: self.credentials.bmc_key.is_some() });
        }
        let Step::Proving { bmc_session, keys, .. } = std::mem::replace(&mut self.step, Step::Ended) else {
            return Ok(Event::Ignored);
        };
        self.step = Step::Active(Active {
            bmc_session,
            keys,
            sequence: 0,
            window: Window::default(),
            outstanding: None,
            ready: false,
        });
        let raise = Request { id: command::SET_SESSION_PRIVILEGE, data: vec![self.privilege.code()] };
        self.request(raise, random).map(Event::Send)
    }

    fn session_answer(&mut self, sealed: &Sealed<'_>) -> Result<Event, Failure> {
        let Step::Active(active) = &mut self.step else {
            return Ok(Event::Ignored);
        };
        if sealed.session != self.console_session {
            return Ok(Event::Ignored);
        }
        let Some(message) = sealed.open(&active.keys) else {
            return Ok(Event::Ignored);
        };
        if !active.window.accept(sealed.sequence) {
            return Ok(Event::Ignored);
        }
        let Ok(response) = message::decode_response(&message) else {
            return Ok(Event::Ignored);
        };
        let answers = |outstanding: &mut Outstanding| {
            let id = outstanding.request.id;
            (response.net_fn, response.command, response.sequence)
                == (id.net_fn | 1, id.command, outstanding.rq_seq)
        };
        if active.outstanding.take_if(answers).is_none() {
            return Ok(Event::Ignored);
        }
        let response = Response { code: response.code, data: response.data.to_vec() };
        if active.ready {
            return Ok(Event::Answer(response));
        }
        // The answer to Set Session Privilege Level, the handshake's last step.
        match response.code {
            CompletionCode::OK => {
                active.ready = true;
                Ok(Event::Ready)
            }
            CompletionCode(0x80..=0x82) | CompletionCode::INSUFFICIENT_PRIVILEGE => {
                Err(self.refused_privilege())
            }
            code => Err(Failure::Command { command: command::SET_SESSION_PRIVILEGE.name, code }),
        }
    }

    fn username(&self) -> String {
        self.credentials.username.as_str().to_owned()
    }

    fn wrong_password(&self) -> Failure {
        Failure::WrongPassword { username: self.username() }
    }

    fn refused_privilege(&self) -> Failure {
        Failure::RefusedPrivilege { username: self.username(), privilege: self.privilege }
    }

    fn refused(&self, step: &'static str, code: u8) -> Failure {
        match code {
            status::NO_RESOURCES | status::NO_RESOURCES_FOR_ROLE => {
                Failure::NoFreeSession { waited: Duration::ZERO }
            }
            status::INVALID_ROLE | status::UNAUTHORIZED_ROLE => self.refused_privilege(),
            status::UNAUTHORIZED_NAME => Failure::WrongUserName { username: self.username() },
            status::INVALID_CODE => self.wrong_password(),
            code if rakp::refuses_suite(code) => Failure::UnsupportedSuite { suite: self.suite.id },
            status => Failure::Refused { step, status, reason: rakp::status_words(status) },
        }
    }
}

impl Active {
    /// The outstanding request under a new session sequence number.
    fn send(&mut self, random: &mut impl Random) -> Result<Vec<u8>, Failure> {
        let Some(Outstanding { request, rq_seq }) = &self.outstanding else {
            return Err(Failure::Closed);
        };
        self.sequence = next_sequence(self.sequence);
        let message = message::encode_request(request, *rq_seq);
        packet::sealed(&self.keys, self.bmc_session, self.sequence, &message, random.array()?)
    }
}

fn rakp3(tag: u8, status: u8, session: u32, code: &[u8]) -> Vec<u8> {
    packet::plain(Payload::Rakp3, &Rakp { tag, status, session, body: code }.encode())
}
