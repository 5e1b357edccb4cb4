//! The BMC's side, without I/O: the answers of a simulated or emulated machine.
//!
//! [`ServerCore::receive`] takes a datagram and returns the next step: answer, do nothing, or ask the chassis and then
//! call [`ServerCore::complete`]. A repeated request (same rqSeq) gets the stored answer; it is never carried out
//! twice.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::accounts::Accounts;
use crate::answers::{self, Action, From, Outcome, Served, find, ok, refuse};
use crate::command::{self, BootOverride, DeviceId, PowerState, PowerVerb};
use crate::credentials::{BmcKey, Password, Privilege, Username};
use crate::crypto::{Exchange, SessionKeys, same};
use crate::error::Failure;
use crate::message::{self, CommandId, CompletionCode, Response};
use crate::packet::{self, Packet, Payload, Sealed};
use crate::rakp::{Accepted, OpenRequest, OpenResponse, Rakp, Rakp1, status};
use crate::random::Random;
use crate::suite::CipherSuite;
use crate::window::{Window, next_sequence};

/// The usual limit of sessions and handshakes at once.
const MAX_SESSIONS: usize = 16;
/// A session without traffic is freed after this (§6.12.15).
const SESSION_IDLE: Duration = Duration::from_secs(60);
/// A handshake without progress is freed after this.
const HANDSHAKE_IDLE: Duration = Duration::from_secs(10);
/// The number of user slots, including the anonymous one.
const USER_SLOTS: usize = 10;
/// How long a request is remembered, to recognise its repetition.
const REPEAT: Duration = Duration::from_secs(10);

/// A BMC user.
#[derive(Clone, Debug)]
pub struct User {
    /// The name of the user.
    pub name: Username,
    /// The password of the user.
    pub password: Password,
    /// The highest privilege that the user may have.
    pub privilege: Privilege,
}

/// The properties of a BMC.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The users and changeable settings at the start.
    pub accounts: Accounts,
    /// The cipher suites it accepts.
    pub suites: Vec<&'static CipherSuite>,
    /// The GUID of RAKP 2 and Get System GUID.
    pub guid: [u8; 16],
    /// The answer to Get Device ID.
    pub device: DeviceId,
    /// The key K_g that sessions over LAN need beside a password.
    pub bmc_key: Option<BmcKey>,
    /// The most sessions and handshakes at once.
    pub sessions: usize,
}

impl ServerConfig {
    /// A BMC with one administrator and every suite.
    #[must_use]
    pub fn new(name: Username, password: Password, guid: [u8; 16]) -> Self {
        Self {
            accounts: Accounts::new(
                USER_SLOTS,
                vec![User { name, password, privilege: Privilege::Administrator }],
            ),
            suites: crate::suite::SUITES.iter().collect(),
            guid,
            device: DeviceId {
                device: 0x20,
                firmware_major: 1,
                firmware_minor: 0,
                ipmi_version: (2, 0),
                manufacturer: 0,
                product: 1,
            },
            bmc_key: None,
            sessions: MAX_SESSIONS,
        }
    }
}

/// A request of the core to the chassis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChassisRequest {
    /// Read the power state.
    Status,
    /// Carry out this power action.
    Control(PowerVerb),
    /// Read the boot override.
    BootOverride,
    /// Set the boot override.
    SetBootOverride(BootOverride),
}

/// The chassis's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChassisAnswer {
    /// The answer to [`ChassisRequest::Status`].
    Power(PowerState),
    /// The answer to [`ChassisRequest::BootOverride`].
    Boot(BootOverride),
    /// The request was carried out.
    Done,
    /// The request was refused.
    Refused(CompletionCode),
}

impl ChassisAnswer {
    /// Makes the response. `parameter`: the number that Get System Boot Options must repeat.
    pub(crate) fn response(self, parameter: u8) -> Response {
        match self {
            Self::Power(state) => ok(state.encode()),
            Self::Boot(boot) => ok([&[1, parameter][..], &boot.encode()].concat()),
            Self::Done => ok(vec![]),
            Self::Refused(code) => refuse(code),
        }
    }
}

/// The result of a request of the machine itself.
pub(crate) enum FromInside {
    Answer(Response),
    /// Ask the chassis. The number is the boot option parameter to repeat in the answer.
    Chassis(ChassisRequest, u8),
}

/// The result of a datagram.
pub enum Reaction {
    /// Nothing to do: the datagram was hostile or not for this BMC.
    None,
    /// Send this back.
    Reply(Vec<u8>),
    /// Ask the chassis, then call [`ServerCore::complete`].
    Chassis(Ticket, ChassisRequest),
}

/// A request that waits for the chassis.
#[derive(Debug)]
pub struct Ticket {
    session: u32,
    id: CommandId,
    rq_seq: u8,
    /// The number that Get System Boot Options must repeat.
    parameter: u8,
}

struct Session {
    console_session: u32,
    bmc_session: u32,
    peer: SocketAddr,
    suite: &'static CipherSuite,
    last_heard: Instant,
    phase: Phase,
}

enum Phase {
    Opened,
    Challenged { rakp1: Rakp1, user: User, bmc_random: [u8; 16] },
    Active(Active),
}

struct Active {
    keys: SessionKeys,
    window: Window,
    sequence: u32,
    privilege: Privilege,
    limit: Privilege,
    /// The bodies of RAKP 3 and RAKP 4, for a repetition by the console.
    proof: (Vec<u8>, Vec<u8>),
    last: Option<Answered>,
}

struct Answered {
    request: Vec<u8>,
    at: Instant,
    /// `None` while the chassis works on the request.
    response: Option<Vec<u8>>,
}

/// The BMC's side of all its sessions.
pub struct ServerCore {
    config: ServerConfig,
    accounts: Accounts,
    sessions: Vec<Session>,
    restarts: u64,
}

impl ServerCore {
    /// A BMC without sessions.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self { accounts: config.accounts.clone(), config, sessions: Vec::new(), restarts: 0 }
    }

    /// The number of sessions and handshakes.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The number of cold resets.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Takes a datagram from `peer`.
    ///
    /// # Errors
    /// [`Failure::Crypto`] only. Every datagram leads to a [`Reaction`].
    pub fn receive(
        &mut self,
        peer: SocketAddr,
        datagram: &[u8],
        now: Instant,
        random: &mut impl Random,
    ) -> Result<Reaction, Failure> {
        self.sessions
            .retain(|session| now.saturating_duration_since(session.last_heard) < session.phase.idle_limit());
        let Ok(packet) = packet::parse(datagram) else {
            return Ok(Reaction::None);
        };
        match packet {
            Packet::Plain15(message) => {
                let answer = answers::sessionless(&self.config, message);
                Ok(answer.map_or(Reaction::None, |answer| Reaction::Reply(packet::plain15(&answer))))
            }
            Packet::Plain(Payload::Ipmi, message) => {
                let answer = answers::sessionless(&self.config, message);
                Ok(answer
                    .map_or(Reaction::None, |answer| Reaction::Reply(packet::plain(Payload::Ipmi, &answer))))
            }
            Packet::Plain(Payload::OpenSessionRequest, payload) => self.open(peer, payload, now, random),
            Packet::Plain(Payload::Rakp1, payload) => self.rakp1(peer, payload, now, random),
            Packet::Plain(Payload::Rakp3, payload) => self.rakp3(peer, payload, now),
            Packet::Sealed(sealed) => self.in_session(peer, &sealed, now, random),
            Packet::Plain(..) => Ok(Reaction::None),
        }
    }

    /// Takes a request from the machine itself. Its kernel has the rights of an administrator.
    pub(crate) fn inside(&mut self, net_fn: u8, command: u8, data: &[u8]) -> FromInside {
        let Some(served) = find(net_fn, command) else {
            return FromInside::Answer(refuse(CompletionCode::INVALID_COMMAND));
        };
        match answers::run(&self.config, &mut self.accounts, &served.action, From::Machine, data) {
            Outcome::Answer(response) | Outcome::Closed(response) => FromInside::Answer(response),
            Outcome::Restarted(response) => {
                self.restart();
                FromInside::Answer(response)
            }
            Outcome::Chassis(ask, parameter) => FromInside::Chassis(ask, parameter),
        }
    }

    /// Takes the chassis's answer to a [`Reaction::Chassis`]. Returns the datagram to send, unless the session has
    /// ended.
    ///
    /// # Errors
    /// [`Failure::Crypto`].
    pub fn complete(
        &mut self,
        ticket: &Ticket,
        answer: ChassisAnswer,
        random: &mut impl Random,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let Some(session) = self.sessions.iter_mut().find(|session| session.bmc_session == ticket.session)
        else {
            return Ok(None);
        };
        let response = answer.response(ticket.parameter);
        let bytes = message::encode_response(ticket.id.net_fn, ticket.id.command, ticket.rq_seq, &response);
        session.answer(bytes, random)
    }

    fn open(
        &mut self,
        peer: SocketAddr,
        payload: &[u8],
        now: Instant,
        random: &mut impl Random,
    ) -> Result<Reaction, Failure> {
        let Some(request) = OpenRequest::decode(payload) else {
            return Ok(Reaction::None);
        };
        let suite =
            CipherSuite::by_algorithms(request.algorithms).filter(|suite| self.config.suites.contains(suite));
        let mut response = OpenResponse {
            tag: request.tag,
            status: status::OK,
            console_session: request.console_session,
            accepted: None,
        };
        match suite {
            None => response.status = status::NO_MATCHING_SUITE,
            Some(_) if self.sessions.len() >= self.config.sessions => response.status = status::NO_RESOURCES,
            Some(suite) => {
                let bmc_session = self.free_session_id(random)?;
                self.sessions.push(Session {
                    console_session: request.console_session,
                    bmc_session,
                    peer,
                    suite,
                    last_heard: now,
                    phase: Phase::Opened,
                });
                response.accepted = Some(Accepted {
                    privilege: if request.privilege == 0 {
                        Privilege::Administrator.code()
                    } else {
                        request.privilege
                    },
                    bmc_session,
                    algorithms: suite.algorithms(),
                });
            }
        }
        Ok(Reaction::Reply(packet::plain(Payload::OpenSessionResponse, &response.encode())))
    }

    fn free_session_id(&self, random: &mut impl Random) -> Result<u32, Failure> {
        let mut id = random.session_id()?;
        while self.sessions.iter().any(|session| session.bmc_session == id) {
            id = next_sequence(id);
        }
        Ok(id)
    }

    fn rakp1(
        &mut self,
        peer: SocketAddr,
        payload: &[u8],
        now: Instant,
        random: &mut impl Random,
    ) -> Result<Reaction, Failure> {
        let Some(rakp1) = Rakp1::decode(payload) else {
            return Ok(Reaction::None);
        };
        let accounts = &self.accounts;
        let found = self.sessions.iter_mut().find(|s| s.bmc_session == rakp1.bmc_session && s.peer == peer);
        let Some(session) = found else {
            return Ok(refuse_rakp(Payload::Rakp2, rakp1.tag, status::INVALID_SESSION, 0));
        };
        session.last_heard = now;
        let console_session = session.console_session;
        let (bmc_random, is_new) = match &session.phase {
            Phase::Active(_) => return Ok(Reaction::None),
            Phase::Opened => (random.array()?, true),
            // A repetition gets the same challenge: the console may use either answer.
            Phase::Challenged { bmc_random, .. } => (*bmc_random, false),
        };
        let Some(user) = accounts.who(&rakp1.username, now) else {
            self.forget(rakp1.bmc_session);
            return Ok(refuse_rakp(Payload::Rakp2, rakp1.tag, status::UNAUTHORIZED_NAME, console_session));
        };
        let role = Privilege::from_code(rakp1.role);
        if role.is_none_or(|role| role > user.privilege) {
            self.forget(rakp1.bmc_session);
            return Ok(refuse_rakp(Payload::Rakp2, rakp1.tag, status::UNAUTHORIZED_ROLE, console_session));
        }
        let code = exchange(&self.config, session, &user, &rakp1, bmc_random).rakp2_code();
        let body = [&bmc_random[..], &self.config.guid, &code].concat();
        let answer = Rakp { tag: rakp1.tag, status: status::OK, session: console_session, body: &body };
        let reply = packet::plain(Payload::Rakp2, &answer.encode());
        if is_new {
            self.accounts.challenged(&rakp1.username, now);
        }
        session.phase = Phase::Challenged { user, rakp1, bmc_random };
        Ok(Reaction::Reply(reply))
    }

    fn rakp3(&mut self, peer: SocketAddr, payload: &[u8], now: Instant) -> Result<Reaction, Failure> {
        let Ok(rakp3) = Rakp::decode(payload, "RAKP 3") else {
            return Ok(Reaction::None);
        };
        let found = self.sessions.iter_mut().find(|s| s.bmc_session == rakp3.session && s.peer == peer);
        let Some(session) = found else {
            return Ok(refuse_rakp(Payload::Rakp4, rakp3.tag, status::INVALID_SESSION, 0));
        };
        session.last_heard = now;
        let console_session = session.console_session;
        let (rakp1, user, bmc_random) = match &session.phase {
            Phase::Opened => return Ok(Reaction::None),
            Phase::Active(active) => {
                let (theirs, ours) = &active.proof;
                let repeated = rakp3.status == status::OK && same(theirs, rakp3.body);
                return Ok(if repeated { rakp4(rakp3.tag, console_session, ours) } else { Reaction::None });
            }
            Phase::Challenged { rakp1, user, bmc_random } => (rakp1, user, *bmc_random),
        };
        if rakp3.status != status::OK {
            self.forget(rakp3.session);
            return Ok(Reaction::None);
        }
        let exchange = exchange(&self.config, session, user, rakp1, bmc_random);
        if !same(&exchange.rakp3_code(), rakp3.body) {
            self.forget(rakp3.session);
            return Ok(refuse_rakp(Payload::Rakp4, rakp3.tag, status::INVALID_CODE, console_session));
        }
        self.accounts.logged_in(&rakp1.username);
        let proof = exchange.rakp4_code();
        let reply = rakp4(rakp3.tag, console_session, &proof);
        let limit = Privilege::from_code(rakp1.role).unwrap_or(Privilege::User).min(user.privilege);
        let active = Active {
            keys: exchange.session_keys()?,
            window: Window::default(),
            sequence: 0,
            privilege: limit.min(Privilege::User),
            limit,
            proof: (rakp3.body.to_vec(), proof.to_vec()),
            last: None,
        };
        session.phase = Phase::Active(active);
        Ok(reply)
    }

    fn in_session(
        &mut self,
        peer: SocketAddr,
        sealed: &Sealed<'_>,
        now: Instant,
        random: &mut impl Random,
    ) -> Result<Reaction, Failure> {
        let found = self.sessions.iter().position(|s| s.bmc_session == sealed.session && s.peer == peer);
        let Some(index) = found else {
            return Ok(Reaction::None);
        };
        let Some(session) = self.sessions.get_mut(index) else {
            return Ok(Reaction::None);
        };
        let Phase::Active(active) = &mut session.phase else {
            return Ok(Reaction::None);
        };
        let Some(bytes) = sealed.open(&active.keys) else {
            return Ok(Reaction::None);
        };
        if !active.window.accept(sealed.sequence) {
            return Ok(Reaction::None);
        }
        session.last_heard = now;
        let Ok(request) = message::decode_request(&bytes) else {
            return Ok(Reaction::None);
        };
        if let Some(last) = active.last.as_ref()
            && last.request == bytes
            && now.saturating_duration_since(last.at) < REPEAT
        {
            let Some(response) = last.response.clone() else {
                return Ok(Reaction::None);
            };
            return Ok(session.answer(response, random)?.map_or(Reaction::None, Reaction::Reply));
        }
        active.last = Some(Answered { request: bytes.clone(), at: now, response: None });
        let outcome = match find(request.net_fn, request.command) {
            None => Outcome::Answer(refuse(CompletionCode::INVALID_COMMAND)),
            Some(served) if served.privilege > active.privilege => {
                Outcome::Answer(refuse(CompletionCode::INSUFFICIENT_PRIVILEGE))
            }
            Some(Served { action: Action::SetPrivilege, .. }) => {
                Outcome::Answer(active.set_privilege(request.data))
            }
            Some(served) => {
                let from = From::Session(sealed.session);
                answers::run(&self.config, &mut self.accounts, &served.action, from, request.data)
            }
        };
        let encode =
            |response| message::encode_response(request.net_fn, request.command, request.sequence, &response);
        let Some(session) = self.sessions.get_mut(index) else {
            return Ok(Reaction::None);
        };
        match outcome {
            Outcome::Answer(response) => {
                let reply = session.answer(encode(response), random)?;
                Ok(reply.map_or(Reaction::None, Reaction::Reply))
            }
            Outcome::Chassis(ask, parameter) => {
                let id =
                    find(request.net_fn, request.command).map_or(command::GET_DEVICE_ID, |served| served.id);
                let ticket = Ticket { session: sealed.session, id, rq_seq: request.sequence, parameter };
                Ok(Reaction::Chassis(ticket, ask))
            }
            Outcome::Closed(response) => {
                let reply = session.answer(encode(response), random)?;
                self.forget(sealed.session);
                Ok(reply.map_or(Reaction::None, Reaction::Reply))
            }
            Outcome::Restarted(response) => {
                let reply = session.answer(encode(response), random)?;
                self.restart();
                Ok(reply.map_or(Reaction::None, Reaction::Reply))
            }
        }
    }

    /// Restarts the BMC. Its accounts stay, as in the flash memory of a real one, and its sessions end.
    fn restart(&mut self) {
        self.sessions.clear();
        self.restarts += 1;
    }

    fn forget(&mut self, bmc_session: u32) {
        self.sessions.retain(|session| session.bmc_session != bmc_session);
    }
}

impl Phase {
    fn idle_limit(&self) -> Duration {
        match self {
            Self::Active(_) => SESSION_IDLE,
            Self::Opened | Self::Challenged { .. } => HANDSHAKE_IDLE,
        }
    }
}

impl Session {
    /// Seals an answer and stores it for a repetition of its request.
    fn answer(&mut self, response: Vec<u8>, random: &mut impl Random) -> Result<Option<Vec<u8>>, Failure> {
        let Phase::Active(active) = &mut self.phase else {
            return Ok(None);
        };
        active.sequence = next_sequence(active.sequence);
        let datagram =
            packet::sealed(&active.keys, self.console_session, active.sequence, &response, random.array()?)?;
        if let Some(last) = &mut active.last {
            last.response = Some(response);
        }
        Ok(Some(datagram))
    }
}

impl Active {
    fn set_privilege(&mut self, data: &[u8]) -> Response {
        match data.first().map(|code| (code & 0x0f, Privilege::from_code(*code))) {
            None => refuse(CompletionCode::BAD_LENGTH),
            // Level 0 asks for the current level.
            Some((0, _)) => ok(vec![self.privilege.code()]),
            Some((_, Some(wanted))) if wanted <= self.limit => {
                self.privilege = wanted;
                ok(vec![wanted.code()])
            }
            Some((_, Some(_))) => refuse(CompletionCode(0x81)),
            Some((_, None)) => refuse(CompletionCode::INVALID_FIELD),
        }
    }
}

fn exchange<'a>(
    config: &'a ServerConfig,
    session: &Session,
    user: &'a User,
    rakp1: &'a Rakp1,
    bmc_random: [u8; 16],
) -> Exchange<'a> {
    Exchange {
        suite: session.suite,
        key: user.password.key(),
        bmc_key: config.bmc_key.as_ref().map(|key| &key.octets()[..]),
        console_session: session.console_session,
        bmc_session: rakp1.bmc_session,
        console_random: rakp1.console_random,
        bmc_random,
        bmc_guid: config.guid,
        role: rakp1.role,
        username: &rakp1.username,
    }
}

fn rakp4(tag: u8, session: u32, proof: &[u8]) -> Reaction {
    let answer = Rakp { tag, status: status::OK, session, body: proof };
    Reaction::Reply(packet::plain(Payload::Rakp4, &answer.encode()))
}

fn refuse_rakp(kind: Payload, tag: u8, status: u8, session: u32) -> Reaction {
    Reaction::Reply(packet::plain(kind, &Rakp { tag, status, session, body: &[] }.encode()))
}
