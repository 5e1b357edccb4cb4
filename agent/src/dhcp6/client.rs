//! The DHCPv6 client as a state machine: from SOLICIT to an address, and the life of the lease (RFC 8415 §18.2). Times count from the
//! machine's boot.

use std::net::Ipv6Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::exchange::{self, Exchange, Random};
use super::message::{self, Answer, Granted, Identity, Status};

/// Pause before a new SOLICIT after a server gave no address or an unusable one. It limits the load on servers (§14.1).
const REST: Duration = Duration::from_secs(5);
/// The highest preference: such an ADVERTISE is accepted at once (§18.2.1).
const TAKE_AT_ONCE: u8 = 255;
/// Most state transitions at one moment: bound, renewing, sent.
const STEPS: usize = 4;

/// An input of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The machine needs an address.
    Start,
    /// The time of [`Client::wake`] has come.
    Timer,
    /// A datagram was received.
    Datagram(&'a [u8]),
    /// Another host has the address (§18.2.10.1).
    Taken,
}

/// An output of the client, for the caller to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this datagram to all servers and relays.
    Send(Vec<u8>),
    /// The interface gets this address, or its lifetimes were renewed.
    Bound(Lease),
    /// The interface must no longer use this address.
    Lost(Ipv6Addr),
}

/// A leased address with its lifetimes and options. A time that is `None` never comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The leased address.
    pub address: Ipv6Addr,
    /// DUID of the server.
    pub server: Vec<u8>,
    /// T1: time at which that server is asked to extend the lease.
    pub renew: Option<Duration>,
    /// T2: time at which every server is asked.
    pub rebind: Option<Duration>,
    /// End of the preferred lifetime: afterwards, new connections use another address.
    pub preferred: Option<Duration>,
    /// End of the valid lifetime: afterwards, the address is not used.
    pub valid: Option<Duration>,
    /// DNS servers, most preferred first.
    pub dns_servers: Vec<Ipv6Addr>,
    /// Search domains for short names, in order.
    pub search: Vec<String>,
}

#[derive(Clone, Debug)]
struct Offer {
    preference: u8,
    server: Vec<u8>,
    address: Ipv6Addr,
}

#[derive(Clone, Debug)]
enum State {
    Idle,
    Soliciting { exchange: Exchange, best: Option<Offer> },
    Requesting { exchange: Exchange, server: Vec<u8>, address: Ipv6Addr },
    Bound(Lease),
    Extending { exchange: Exchange, lease: Lease },
    Declining { exchange: Exchange, server: Vec<u8>, address: Ipv6Addr },
}

/// A DHCPv6 client without socket or clock.
#[derive(Clone, Debug)]
pub struct Client {
    identity: Identity,
    random: Random,
    state: State,
    solicit_limit: Option<Duration>,
    refusal: Option<String>,
}

impl Client {
    /// A client that waits for [`Event::Start`]. The seed must be secret from other hosts on the link.
    #[must_use]
    pub const fn new(identity: Identity, seed: u64) -> Self {
        let random = Random::new(seed);
        Self { identity, random, state: State::Idle, solicit_limit: None, refusal: None }
    }

    /// A client that continues with an existing lease.
    #[must_use]
    pub fn resume(identity: Identity, seed: u64, lease: Lease) -> Self {
        Self { state: State::Bound(lease), ..Self::new(identity, seed) }
    }

    /// The last refusal of a server, if there is no address yet.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// True once the client was started.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// Time at which the client needs [`Event::Timer`]. Each event may change it.
    #[must_use]
    pub fn wake(&self) -> Option<Duration> {
        let exchange = self.exchange().map(|exchange| exchange.due);
        let (soonest, valid) = match &self.state {
            State::Bound(lease) => (lease.renew, lease.valid),
            State::Extending { exchange, lease } if exchange.rules == &exchange::RENEW => {
                (lease.rebind, lease.valid)
            }
            State::Extending { lease, .. } => (None, lease.valid),
            _ => (None, None),
        };
        [exchange, soonest, valid].into_iter().flatten().min()
    }

    /// Handles an event. The caller carries out the actions in order.
    pub fn handle(&mut self, now: Duration, event: Event<'_>) -> Vec<Action> {
        let mut actions = match (event, &self.state) {
            (Event::Start, State::Idle) => self.solicit(now),
            (Event::Taken, State::Bound(lease) | State::Extending { lease, .. }) => {
                let lease = lease.clone();
                self.decline(now, lease)
            }
            (Event::Datagram(bytes), _) => match message::read(bytes, &self.identity) {
                Ok(answer) => self.answered(now, answer),
                Err(_) => Vec::new(),
            },
            _ => Vec::new(),
        };
        for _ in 0..STEPS {
            if self.wake().is_none_or(|at| at > now) {
                break;
            }
            actions.extend(self.step(now));
        }
        actions
    }

    const fn exchange(&self) -> Option<&Exchange> {
        match &self.state {
            State::Idle | State::Bound(_) => None,
            State::Soliciting { exchange, .. }
            | State::Requesting { exchange, .. }
            | State::Extending { exchange, .. }
            | State::Declining { exchange, .. } => Some(exchange),
        }
    }

    /// Handles the time of [`Client::wake`].
    fn step(&mut self, now: Duration) -> Vec<Action> {
        match &self.state {
            State::Soliciting { best: Some(offer), .. } => {
                let Offer { server, address, .. } = offer.clone();
                self.request(now, server, address)
            }
            State::Requesting { exchange, .. } | State::Declining { exchange, .. } if exchange.is_over() => {
                self.solicit(now)
            }
            State::Bound(lease) | State::Extending { lease, .. } if is_past(lease.valid, now) => {
                let address = lease.address;
                let mut actions = vec![Action::Lost(address)];
                actions.extend(self.solicit(now));
                actions
            }
            State::Bound(lease) => {
                let lease = lease.clone();
                self.extend(now, lease)
            }
            State::Extending { exchange, lease }
                if exchange.rules == &exchange::RENEW && is_past(lease.rebind, now) =>
            {
                let lease = lease.clone();
                self.extend(now, lease)
            }
            _ => self.send(now),
        }
    }

    fn send(&mut self, now: Duration) -> Vec<Action> {
        let (exchange, server, address) = match &mut self.state {
            State::Idle | State::Bound(_) => return Vec::new(),
            State::Soliciting { exchange, .. } => (exchange, None, None),
            State::Requesting { exchange, server, address }
            | State::Declining { exchange, server, address } => {
                (exchange, Some(server.as_slice()), Some(*address))
            }
            State::Extending { exchange, lease } => {
                let is_renewal = exchange.rules == &exchange::RENEW;
                (exchange, is_renewal.then_some(lease.server.as_slice()), Some(lease.address))
            }
        };
        exchange.send(now, &mut self.random);
        let (kind, elapsed) = (exchange.rules.kind, exchange.elapsed(now));
        vec![Action::Send(message::write(kind, exchange.xid, &self.identity, server, address, elapsed))]
    }

    fn solicit(&mut self, now: Duration) -> Vec<Action> {
        let exchange = Exchange::start(&exchange::SOLICIT, now, &mut self.random);
        let exchange = exchange.at_most_every(self.solicit_limit);
        self.state = State::Soliciting { exchange, best: None };
        Vec::new()
    }

    fn request(&mut self, now: Duration, server: Vec<u8>, address: Ipv6Addr) -> Vec<Action> {
        let exchange = Exchange::start(&exchange::REQUEST, now, &mut self.random);
        self.state = State::Requesting { exchange, server, address };
        self.send(now)
    }

    fn extend(&mut self, now: Duration, lease: Lease) -> Vec<Action> {
        let rules = if is_past(lease.rebind, now) { &exchange::REBIND } else { &exchange::RENEW };
        let exchange = Exchange::start(rules, now, &mut self.random);
        self.state = State::Extending { exchange, lease };
        self.send(now)
    }

    fn decline(&mut self, now: Duration, Lease { address, server, .. }: Lease) -> Vec<Action> {
        self.refusal = Some(format!("another host has {address}, which was leased to this one"));
        let exchange = Exchange::start(&exchange::DECLINE, now, &mut self.random);
        self.state = State::Declining { exchange, server, address };
        [vec![Action::Lost(address)], self.send(now)].concat()
    }

    fn answered(&mut self, now: Duration, answer: Answer) -> Vec<Action> {
        if self.exchange().is_none_or(|exchange| exchange.sent == 0 || exchange.xid != answer.xid) {
            return Vec::new();
        }
        self.solicit_limit = answer.solicit_limit.or(self.solicit_limit);
        match &self.state {
            State::Soliciting { .. } if !answer.is_reply => self.offered(now, answer),
            State::Requesting { server, .. } if answer.is_reply && *server == answer.server => {
                self.granted(now, answer)
            }
            State::Extending { exchange, lease } if answer.is_reply => {
                if exchange.rules == &exchange::RENEW && lease.server != answer.server {
                    return Vec::new();
                }
                let lease = lease.clone();
                self.extended(now, &lease, answer)
            }
            State::Declining { .. } if answer.is_reply => self.solicit(now.saturating_add(REST)),
            _ => Vec::new(),
        }
    }

    /// Handles an ADVERTISE. Until the first retransmission of SOLICIT, the client collects offers and takes the first one of the highest
    /// preference. After that, it takes the next offer at once.
    fn offered(&mut self, now: Duration, answer: Answer) -> Vec<Action> {
        let Some(granted) = usable(&answer).first().copied() else {
            self.refusal = Some(refusal(&answer));
            return Vec::new();
        };
        let State::Soliciting { exchange, best } = &mut self.state else { return Vec::new() };
        let Answer { preference, server, .. } = answer;
        if preference == TAKE_AT_ONCE || exchange.sent > 1 {
            return self.request(now, server, granted.address);
        }
        if best.as_ref().is_none_or(|best| best.preference < preference) {
            *best = Some(Offer { preference, server, address: granted.address });
        }
        Vec::new()
    }

    fn granted(&mut self, now: Duration, answer: Answer) -> Vec<Action> {
        let failed = answer.status.as_ref().map_or(message::SUCCESS, |status| status.code);
        if let Some(granted) = usable(&answer).first().filter(|_| failed == message::SUCCESS) {
            return self.bind(lease(now, &answer, *granted));
        }
        self.refusal = Some(refusal(&answer));
        match failed {
            // The server may be able to answer later: the REQUEST is retransmitted (§18.2.10).
            code if code != message::SUCCESS && code != message::NOT_ON_LINK => Vec::new(),
            _ => self.solicit(now.saturating_add(REST)),
        }
    }

    fn extended(&mut self, now: Duration, old: &Lease, answer: Answer) -> Vec<Action> {
        let status = answer.association.as_ref().and_then(|it| it.status.as_ref());
        if status.is_some_and(|status| status.code == message::NO_BINDING) {
            return self.request(now, answer.server, old.address);
        }
        if answer.status.as_ref().is_some_and(|status| status.code != message::SUCCESS) {
            return Vec::new();
        }
        let usable = usable(&answer);
        if let Some(same) = usable.iter().find(|it| it.address == old.address) {
            return self.bind(lease(now, &answer, *same));
        }
        let named = answer.association.iter().flat_map(|it| &it.addresses);
        if !named.into_iter().any(|it| it.address == old.address) {
            // The answer does not mention the address: keep it, since another server may extend it.
            return Vec::new();
        }
        let next = match usable.first() {
            Some(other) => self.bind(lease(now, &answer, *other)),
            None => self.solicit(now.saturating_add(REST)),
        };
        [vec![Action::Lost(old.address)], next].concat()
    }

    fn bind(&mut self, lease: Lease) -> Vec<Action> {
        self.refusal = None;
        self.state = State::Bound(lease.clone());
        vec![Action::Bound(lease)]
    }
}

fn is_past(at: Option<Duration>, now: Duration) -> bool {
    at.is_some_and(|at| at <= now)
}

/// The usable addresses of an answer (§21.4, §21.6). None if the association is refused or contradicts itself.
fn usable(answer: &Answer) -> Vec<Granted> {
    let is_success = |status: &Option<Status>| status.as_ref().is_none_or(|it| it.code == message::SUCCESS);
    let Some(association) = answer.association.as_ref().filter(|it| is_success(&it.status)) else {
        return Vec::new();
    };
    if association.t1 > association.t2 && association.t2 > 0 {
        return Vec::new();
    }
    let is_host = |address: Ipv6Addr| {
        let is_special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
        !is_special && !address.is_unicast_link_local()
    };
    let is_usable = |it: &&Granted| it.valid > 0 && it.preferred <= it.valid && is_host(it.address);
    association.addresses.iter().filter(is_usable).copied().collect()
}

/// The refusal in an answer without a usable address, as text.
fn refusal(answer: &Answer) -> String {
    let inner = answer.association.as_ref().and_then(|it| it.status.as_ref());
    let failed = [answer.status.as_ref(), inner].into_iter().flatten().find(|it| it.code != message::SUCCESS);
    match failed {
        Some(Status { code, text }) => format!("a DHCPv6 server answers status {code}: {text}"),
        None => "a DHCPv6 server gives no address that can be used".to_owned(),
    }
}

/// The time `seconds` from `now`. `None` for the value that means infinity.
fn after(now: Duration, seconds: u32) -> Option<Duration> {
    (seconds != u32::MAX).then(|| now.saturating_add(Duration::from_secs(seconds.into())))
}

fn lease(now: Duration, answer: &Answer, Granted { address, preferred, valid }: Granted) -> Lease {
    let (mut t1, mut t2) = answer.association.as_ref().map_or((0, 0), |it| (it.t1, it.t2));
    // Defaults for T1 and T2 of 0 (§14.2): half and four fifths of the lifetime.
    let lifetime = if preferred == 0 { valid } else { preferred };
    let of = |fifths: u32, part: u32| if lifetime == u32::MAX { u32::MAX } else { lifetime / part * fifths };
    if t2 == 0 {
        t2 = of(4, 5).max(t1);
    }
    if t1 == 0 {
        t1 = of(1, 2).min(t2);
    }
    // At least one second, so that a server cannot make the client send without pause.
    let (t1, t2) = (t1.max(1), t2.max(1));
    Lease {
        address,
        server: answer.server.clone(),
        renew: after(now, t1),
        rebind: after(now, t2),
        preferred: after(now, preferred),
        valid: after(now, valid),
        dns_servers: answer.dns_servers.clone(),
        search: answer.search.clone(),
    }
}
