//! The client: from DISCOVER to an address, and the life of the lease (RFC 2131 §4.4).
//!
//! Every call returns the actions for the caller. The last [`ClientAction::Wake`] says when to call
//! [`Client::on_timer`]; it replaces earlier ones.

use std::net::Ipv4Addr;
use std::time::Duration;

use dhcproto::v4::{MessageType, Opcode, OptionCode};

use crate::egress::Message;
use crate::ingress::{self, Packet};
use crate::{BootIdentity, Mac, Time};

/// The parameter request list: mask, router, DNS, host name, domain, MTU, broadcast, NTP, TFTP server, boot file.
const PARAMETERS: [OptionCode; 10] = [
    OptionCode::SubnetMask,
    OptionCode::Router,
    OptionCode::DomainNameServer,
    OptionCode::Hostname,
    OptionCode::DomainName,
    OptionCode::InterfaceMtu,
    OptionCode::BroadcastAddr,
    OptionCode::NtpServers,
    OptionCode::TFTPServerName,
    OptionCode::BootfileName,
];
const MAX_MESSAGE: u16 = 1472;
const NO_ADDRESS: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// Retransmission stops doubling here: 4, 8, 16, 32, 64 s (RFC 2131 §4.1).
const MAX_DOUBLINGS: u32 = 4;
/// After this many unanswered requests for one offer, or for the previous address, the client sends a DISCOVER.
const REQUEST_ATTEMPTS: u32 = 4;

/// The identity of a client and its retry settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The hardware address of its interface.
    pub mac: Mac,
    /// Option 12: the host name that the client sends.
    pub hostname: Option<String>,
    /// The boot client that it presents itself as. `None`: it does not ask to boot.
    pub boot: Option<BootIdentity>,
    /// The client's previous address: it starts by asking for this one (INIT-REBOOT).
    pub previous: Option<Ipv4Addr>,
    /// The client cannot receive unicast before it is configured.
    pub broadcast: bool,
    /// The wait before the first retransmission. It doubles up to 16-fold.
    pub first_retry: Duration,
    /// The number of unanswered messages after which the client gives up.
    pub attempts: u32,
}

impl ClientConfig {
    /// A client that does not boot and retries after 4, 8, 16, 32 and 64 s.
    #[must_use]
    pub const fn new(mac: Mac) -> Self {
        Self {
            mac,
            hostname: None,
            boot: None,
            previous: None,
            broadcast: false,
            first_retry: Duration::from_secs(4),
            attempts: 6,
        }
    }
}

/// An instruction to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAction {
    /// Send from the client port to the server port, by broadcast or to one server.
    Send {
        /// `None`: broadcast from 0.0.0.0.
        server: Option<Ipv4Addr>,
        /// The DHCP message.
        bytes: Vec<u8>,
    },
    /// Call [`Client::on_timer`] at this time.
    Wake(Time),
    /// Configure the interface with this binding. Sent again after each renewal.
    Configured(Binding),
    /// Stop using the address; the client looks for another.
    Lost(Ipv4Addr),
    /// No server answered. The client has stopped.
    GaveUp,
}

/// The contents of a granted lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The client's address.
    pub address: Ipv4Addr,
    /// The subnet mask.
    pub netmask: Ipv4Addr,
    /// The first router.
    pub gateway: Option<Ipv4Addr>,
    /// Option 6: DNS servers, in order of preference.
    pub dns_servers: Vec<Ipv4Addr>,
    /// Option 42: NTP servers, in order of preference.
    pub ntp_servers: Vec<Ipv4Addr>,
    /// Option 12: the host name that the server gives the client.
    pub hostname: Option<String>,
    /// Option 15: the client's domain.
    pub domain: Option<String>,
    /// Option 26: the MTU of the interface, in bytes.
    pub mtu: Option<u16>,
    /// The server that granted the lease (option 54).
    pub server: Ipv4Addr,
    /// The server of the boot file (siaddr).
    pub next_server: Option<Ipv4Addr>,
    /// Boot file name or URL.
    pub boot_file: Option<String>,
    /// Lease time in seconds.
    pub lease_seconds: u32,
    /// When to renew with the granting server (T1).
    pub renew: Time,
    /// When to ask all servers (T2).
    pub rebind: Time,
    /// When the address must no longer be used.
    pub expires: Time,
}

#[derive(Debug)]
enum State {
    Selecting,
    Requesting { address: Ipv4Addr, server: Ipv4Addr },
    Rebooting { address: Ipv4Addr },
    Bound(Binding),
    Renewing(Binding),
    Rebinding(Binding),
    Stopped,
}

/// A DHCPv4 client without a socket or clock.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    state: State,
    xid: u32,
    random: u64,
    began: Time,
    wake: Time,
    /// Messages sent since the last answer that advanced the exchange.
    sent: u32,
    /// Messages sent in this state.
    sent_here: u32,
}

impl Client {
    /// Starts the client. `seed` makes transaction ids and jitter; each client needs a different one.
    #[must_use]
    pub fn start(config: ClientConfig, now: Time, seed: u64) -> (Self, Vec<ClientAction>) {
        let mut client = Self {
            config,
            state: State::Selecting,
            xid: 0,
            // The increment of splitmix64; with it, seed 0 works as well as any other.
            random: seed ^ 0x9e37_79b9_7f4a_7c15,
            began: now,
            wake: now,
            sent: 0,
            sent_here: 0,
        };
        let first = match client.config.previous {
            Some(address) => State::Rebooting { address },
            None => State::Selecting,
        };
        let actions = client.enter(now, first);
        (client, actions)
    }

    /// The binding in use; `None` while the client has no address.
    #[must_use]
    pub const fn binding(&self) -> Option<&Binding> {
        match &self.state {
            State::Bound(binding) | State::Renewing(binding) | State::Rebinding(binding) => Some(binding),
            _ => None,
        }
    }

    /// Takes a datagram. A datagram that is no answer to this client changes nothing.
    pub fn on_packet(&mut self, now: Time, datagram: &[u8]) -> Vec<ClientAction> {
        let Ok(packet) = ingress::parse(datagram) else { return Vec::new() };
        if packet.op != Opcode::BootReply || packet.xid != self.xid || packet.mac() != Some(self.config.mac) {
            return Vec::new();
        }
        let Some(server) = packet.options.ipv4(OptionCode::ServerIdentifier) else { return Vec::new() };
        match (packet.kind, &self.state) {
            (MessageType::Offer, State::Selecting) if packet.yiaddr != NO_ADDRESS => {
                self.enter(now, State::Requesting { address: packet.yiaddr, server })
            }
            (MessageType::Ack | MessageType::Nak, State::Requesting { server: chosen, .. })
                if *chosen != server =>
            {
                Vec::new()
            }
            (MessageType::Ack, State::Selecting | State::Bound(_) | State::Stopped) => Vec::new(),
            (MessageType::Ack, _) => self.acknowledged(now, server, &packet),
            (MessageType::Nak, State::Requesting { .. } | State::Rebooting { .. }) => {
                self.enter(now, State::Selecting)
            }
            (MessageType::Nak, State::Renewing(_) | State::Rebinding(_)) => self.lost(now),
            _ => Vec::new(),
        }
    }

    /// Continues when the timer is due. An earlier call only returns the time.
    pub fn on_timer(&mut self, now: Time) -> Vec<ClientAction> {
        if matches!(self.state, State::Stopped) {
            return Vec::new();
        }
        if now < self.wake {
            return vec![ClientAction::Wake(self.wake)];
        }
        match &self.state {
            State::Bound(binding) | State::Renewing(binding) | State::Rebinding(binding) => {
                let binding = binding.clone();
                if now >= binding.expires {
                    self.lost(now)
                } else if now >= binding.rebind {
                    self.continue_as(now, State::Rebinding(binding))
                } else {
                    self.continue_as(now, State::Renewing(binding))
                }
            }
            _ if self.sent >= self.config.attempts => {
                self.state = State::Stopped;
                vec![ClientAction::GaveUp]
            }
            State::Requesting { .. } | State::Rebooting { .. } if self.sent_here >= REQUEST_ATTEMPTS => {
                self.enter(now, State::Selecting)
            }
            _ => self.send(now),
        }
    }

    /// Gives the address back and stops.
    pub fn release(&mut self) -> Vec<ClientAction> {
        let Some(binding) = self.binding().cloned() else {
            self.state = State::Stopped;
            return Vec::new();
        };
        self.next_xid();
        let mut message = Message::request(MessageType::Release, self.xid, self.config.mac);
        message.ciaddr = binding.address;
        message.option(OptionCode::ServerIdentifier, binding.server.octets());
        self.state = State::Stopped;
        vec![ClientAction::Send { server: Some(binding.server), bytes: message.encode() }]
    }

    /// Tells the server that another host has the address, and starts over (RFC 2131 §4.4.1).
    pub fn decline(&mut self, now: Time) -> Vec<ClientAction> {
        let Some(binding) = self.binding().cloned() else { return Vec::new() };
        self.next_xid();
        let mut message = Message::request(MessageType::Decline, self.xid, self.config.mac);
        message.option(OptionCode::RequestedIpAddress, binding.address.octets());
        message.option(OptionCode::ServerIdentifier, binding.server.octets());
        let mut actions = vec![ClientAction::Send { server: None, bytes: message.encode() }];
        actions.extend(self.lost(now));
        actions
    }

    fn lost(&mut self, now: Time) -> Vec<ClientAction> {
        let lost = self.binding().map(|binding| ClientAction::Lost(binding.address));
        self.sent = 0;
        let mut actions: Vec<_> = lost.into_iter().collect();
        actions.extend(self.enter(now, State::Selecting));
        actions
    }

    fn acknowledged(&mut self, now: Time, server: Ipv4Addr, packet: &Packet) -> Vec<ClientAction> {
        let options = &packet.options;
        let Some(lease_seconds) = options.u32(OptionCode::AddressLeaseTime).filter(|&seconds| seconds > 0)
        else {
            return Vec::new();
        };
        if packet.yiaddr == NO_ADDRESS {
            return Vec::new();
        }
        let rebind = options.u32(OptionCode::Rebinding).filter(|&seconds| seconds < lease_seconds);
        let rebind = rebind.unwrap_or(lease_seconds - lease_seconds / 8);
        let renew = options.u32(OptionCode::Renewal).filter(|&seconds| seconds < rebind);
        let named = match options.text(OptionCode::BootfileName) {
            Some(name) => Some(name),
            None => std::str::from_utf8(&packet.file).ok(),
        };
        let text = |code| options.text(code).filter(|text| !text.is_empty()).map(str::to_owned);
        let binding = Binding {
            address: packet.yiaddr,
            netmask: options.ipv4(OptionCode::SubnetMask).unwrap_or(Ipv4Addr::BROADCAST),
            gateway: options.ipv4s(OptionCode::Router).first().copied(),
            dns_servers: options.ipv4s(OptionCode::DomainNameServer),
            ntp_servers: options.ipv4s(OptionCode::NtpServers),
            hostname: text(OptionCode::Hostname),
            domain: text(OptionCode::DomainName),
            mtu: options.u16(OptionCode::InterfaceMtu),
            server,
            next_server: Some(packet.siaddr).filter(|&address| address != NO_ADDRESS),
            boot_file: named.filter(|name| !name.is_empty()).map(str::to_owned),
            lease_seconds,
            renew: now.plus_seconds(renew.unwrap_or(rebind / 2)),
            rebind: now.plus_seconds(rebind),
            expires: now.plus_seconds(lease_seconds),
        };
        self.sent = 0;
        self.wake = binding.renew;
        self.state = State::Bound(binding.clone());
        vec![ClientAction::Configured(binding), ClientAction::Wake(self.wake)]
    }

    /// Enters another state with a new transaction id. Only the REQUEST after an OFFER keeps its id (RFC 2131 §4.4.1).
    fn enter(&mut self, now: Time, state: State) -> Vec<ClientAction> {
        if !matches!(state, State::Requesting { .. }) {
            self.next_xid();
            self.began = now;
        }
        self.state = state;
        self.sent_here = 0;
        self.send(now)
    }

    /// T1 and T2: the transaction id changes only with the state.
    fn continue_as(&mut self, now: Time, state: State) -> Vec<ClientAction> {
        if std::mem::discriminant(&state) == std::mem::discriminant(&self.state) {
            return self.send(now);
        }
        self.enter(now, state)
    }

    fn send(&mut self, now: Time) -> Vec<ClientAction> {
        let kind =
            if matches!(self.state, State::Selecting) { MessageType::Discover } else { MessageType::Request };
        let mut message = Message::request(kind, self.xid, self.config.mac);
        message.secs = u16::try_from(self.began.until(now).as_secs()).unwrap_or(u16::MAX);
        message.broadcast = self.config.broadcast;
        let mut server = None;
        match &self.state {
            State::Requesting { address, server } => {
                message.option(OptionCode::RequestedIpAddress, address.octets());
                message.option(OptionCode::ServerIdentifier, server.octets());
            }
            State::Rebooting { address } => {
                message.option(OptionCode::RequestedIpAddress, address.octets());
            }
            State::Renewing(binding) => {
                message.ciaddr = binding.address;
                server = Some(binding.server);
            }
            State::Rebinding(binding) => message.ciaddr = binding.address,
            State::Selecting | State::Bound(_) | State::Stopped => {}
        }
        message.option(OptionCode::ClientIdentifier, [&[1], self.config.mac.0.as_slice()].concat());
        message.option(OptionCode::MaxMessageSize, MAX_MESSAGE.to_be_bytes());
        message.option(OptionCode::ParameterRequestList, PARAMETERS.map(u8::from));
        if let Some(hostname) = &self.config.hostname {
            message.option(OptionCode::Hostname, hostname.as_bytes());
        }
        if let Some(boot) = &self.config.boot {
            boot.write(&mut message);
        }
        self.wake = self.retry_at(now);
        self.sent += 1;
        self.sent_here += 1;
        vec![ClientAction::Send { server, bytes: message.encode() }, ClientAction::Wake(self.wake)]
    }

    /// Exponential backoff with a quarter of jitter; half of the remaining time while a lease runs (RFC 2131 §4.4.5).
    fn retry_at(&mut self, now: Time) -> Time {
        let until = match &self.state {
            State::Renewing(binding) => Some(binding.rebind),
            State::Rebinding(binding) => Some(binding.expires),
            _ => None,
        };
        if let Some(until) = until {
            let wait = (now.until(until) / 2).max(self.config.first_retry);
            return until.min(now + wait);
        }
        let wait = self.config.first_retry * (1 << self.sent_here.min(MAX_DOUBLINGS));
        let quarter = u64::try_from(wait.as_millis() / 4).unwrap_or(u64::MAX);
        let jitter = Duration::from_millis(self.next_random() % quarter.saturating_add(1));
        now + (wait - wait / 8) + jitter
    }

    fn next_xid(&mut self) {
        self.xid = (self.next_random() >> 32) as u32;
    }

    /// splitmix64. Clients need different numbers, not unpredictable ones: no secret depends on them.
    const fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
