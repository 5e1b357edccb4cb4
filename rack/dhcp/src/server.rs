//! The server: configuration, leases, and one entry for every event. What it decides per message is in
//! [`exchange`](crate::exchange).

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use dhcproto::v4::Opcode;
use ipnet::Ipv4Net;

use crate::elsewhere::Elsewhere;
use crate::exchange::Exchange;
use crate::holders::{Holders, Word};
use crate::ingress::Packet;
use crate::lease::Table;
use crate::network::Network;
use crate::occupancy::Occupancy;
use crate::probe::{MAX_TAKEN, Probes};
use crate::pxe::{Declared, OtherArchitecture};
use crate::told::{Grantor, Known, Told};
use crate::{BootClient, BootMode, Config, ConfigError, Lease, LeaseState, Mac, Reservation, Subnet, Time};

/// The port that servers and relays listen on.
pub const SERVER_PORT: u16 = 67;
/// The port that clients listen on.
pub const CLIENT_PORT: u16 = 68;

/// So much is kept of what is told of subnets that are not configured.
const MAX_UNPLACED: usize = 65_536;

/// Where a datagram came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Index of the interface; replies leave through it.
    pub interface: u32,
    /// This server's address on that interface: its identifier (option 54) and the next server.
    pub local: Ipv4Addr,
    /// The datagram was sent to `local` and not to everybody: a renewal may then come through a router from a subnet
    /// that is not this link's.
    pub unicast: bool,
}

/// Whom a reply goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Everybody on the link.
    Broadcast,
    /// A client that has no address yet and so answers no ARP: the frame is addressed to `mac`. A shell that cannot
    /// write frames or neighbour entries may broadcast instead (RFC 2131 §4.1).
    Hardware {
        /// Its address to be.
        address: Ipv4Addr,
        /// Its hardware address.
        mac: Mac,
    },
    /// A client that is configured.
    Client(Ipv4Addr),
    /// A relay, on the server port.
    Relay(Ipv4Addr),
    /// Whoever asked on the boot server port, which the answer is sent from.
    Asker(SocketAddrV4),
}

impl Destination {
    /// Where the datagram is sent.
    #[must_use]
    pub const fn socket_addr(self) -> SocketAddrV4 {
        match self {
            Self::Broadcast => SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT),
            Self::Hardware { address, .. } | Self::Client(address) => SocketAddrV4::new(address, CLIENT_PORT),
            Self::Relay(address) => SocketAddrV4::new(address, SERVER_PORT),
            Self::Asker(from) => from,
        }
    }
}

/// What the caller does next, **in this order**.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make the lease durable, then go on. If that fails, drop the rest of the actions: the client is not answered and
    /// asks again; the address stays held for it here.
    Persist(Lease),
    /// Send a datagram.
    Send {
        /// The interface and source address.
        via: Arrival,
        /// Whom to.
        to: Destination,
        /// The DHCP message.
        bytes: Vec<u8>,
    },
    /// Ask the link by ARP who has the address (see [`frame::arp_probe`](crate::frame::arp_probe)), and tell [`Server::heard`] who
    /// says so before [`Server::conclude`] is due.
    Probe {
        /// Index of the interface.
        interface: u32,
        /// The address.
        address: Ipv4Addr,
    },
    /// Something to log, count, or tell the region.
    Report(Event),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client was offered an address.
    Offered {
        /// The client.
        mac: Mac,
        /// The address.
        address: Ipv4Addr,
    },
    /// A lease was granted or extended.
    Leased {
        /// The lease as it is now.
        lease: Lease,
        /// The client already had it.
        renewed: bool,
    },
    /// Another server let a client keep the address that it has of this one, or this one had forgotten that.
    Learned(Lease),
    /// A client gave its address back.
    Released(Lease),
    /// A client found its address in use by another host.
    Conflict {
        /// Who it was, and until when nobody is offered the address.
        lease: Lease,
        /// The client had leased it, and has it no more; otherwise it was only offered.
        ended: bool,
    },
    /// An address that was to be offered to the lease's client is in use by another host.
    Taken {
        /// Who was to be offered it, and until when nobody is.
        lease: Lease,
        /// Who has it.
        holder: Mac,
    },
    /// A host says of whatever address is probed that it has it, and is believed no more; the addresses that rested for its word alone are
    /// offered again.
    AnswersForAll {
        /// Index of its interface.
        interface: u32,
        /// Who.
        holder: Mac,
    },
    /// A lease ran out.
    Expired(Lease),
    /// A boot client was told what to boot.
    Boot {
        /// The client.
        mac: Mac,
        /// Its address.
        address: Ipv4Addr,
        /// What it is.
        client: BootClient,
        /// File name or URL.
        file: String,
    },
    /// A client was told that it cannot have the address it asked for.
    Refused {
        /// The client.
        mac: Mac,
        /// The address.
        address: Ipv4Addr,
        /// Why.
        reason: &'static str,
    },
    /// A reply was longer than its client takes, and these options fit nowhere in it.
    LeftOut {
        /// The client.
        mac: Mac,
        /// Their numbers.
        options: Vec<u8>,
    },
    /// A message was not answered.
    Ignored {
        /// The client, when it is an Ethernet client.
        mac: Option<Mac>,
        /// Why.
        reason: Ignored,
    },
}

/// Why a message was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// A reply, or a message type that clients do not send.
    #[error("not a client's message (op {op}, type {kind})")]
    NotARequest {
        /// The op field.
        op: u8,
        /// Option 53.
        kind: u8,
    },
    /// Not an Ethernet unicast address.
    #[error("no Ethernet hardware address")]
    NotEthernet,
    /// Asked over InfiniBand (RFC 4390).
    #[error("racks lease no addresses over InfiniBand and boot no machines there")]
    InfiniBand,
    /// No configured subnet contains the relay's, the renewing client's or this server's address.
    #[error("no subnet is configured for {0}")]
    NoSubnet(Ipv4Addr),
    /// No reservation, and `serve_unknown` is off.
    #[error("the client is unknown, and unknown clients are not served")]
    UnknownClient,
    /// The client chose another server's offer.
    #[error("the client chose server {0}")]
    OtherServer(Ipv4Addr),
    /// Another server may know about this address.
    #[error("nothing is known about address {0}")]
    NotOurs(Ipv4Addr),
    /// Every dynamic address is leased, or offered.
    #[error("no address of {0} is free: clients have all of its dynamic ones")]
    NoFreeAddress(Ipv4Net),
    /// No dynamic address is free, and some of them would be if other hosts were not using them.
    #[error(
        "no address of {0} is free: some rest, since other hosts were found using them, and clients have the others"
    )]
    SomeRest(Ipv4Net),
    /// There are no dynamic addresses, and nothing is reserved for the client.
    #[error("nothing is reserved for it in {0}, and this server has no dynamic addresses there")]
    NoDynamic(Ipv4Net),
    /// As many of the addresses that the client was to be offered are in use as are probed for one message.
    #[error(
        "{0} addresses that it was to be offered are in use by other hosts; the next is tried when it asks again"
    )]
    Taken(u8),
    /// [`Server::withhold_dynamic_until`].
    #[error("dynamic addresses are withheld until earlier leases are known")]
    Withheld,
    /// Leases cannot be kept. The server itself never says so: whoever keeps them does.
    #[error("this rack cannot write its leases to its disk, and so offers nothing")]
    Unwritable,
    /// Another server gives the addresses here, and the client does not ask for something to boot.
    #[error("another server gives the addresses here")]
    OthersClient,
    /// Another server gives the addresses here, and nothing is booted of what the client announces.
    #[error(transparent)]
    OtherArchitecture(OtherArchitecture),
    /// A client of the boot server port has another address than it says.
    #[error("the client says that it has {says}, and asks from {has}")]
    OtherAddress {
        /// What it says.
        says: Ipv4Addr,
        /// Where it asked from.
        has: Ipv4Addr,
    },
    /// A rack looks for servers that nobody told it of.
    #[error("a rack looks for DHCP servers")]
    Detector,
    /// A field or option that this message type needs is absent or malformed.
    #[error("{0} is missing")]
    Missing(&'static str),
}

/// A subnet, indexed.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) subnet: Subnet,
    by_mac: HashMap<Mac, Reservation>,
    owners: HashMap<Ipv4Addr, Mac>,
}

impl Scope {
    fn new(subnet: &Subnet) -> Self {
        let mut subnet = subnet.clone();
        if subnet.boot.mode == BootMode::Proxy {
            // Its addresses are another server's.
            subnet.dynamic.clear();
            subnet.reservations.clear();
        }
        let by_mac = subnet.reservations.iter().map(|it| (it.mac, it.clone())).collect();
        let owners = subnet.reservations.iter().map(|it| (it.address, it.mac)).collect();
        Self { subnet, by_mac, owners }
    }

    pub(crate) fn reservation(&self, mac: Mac) -> Option<&Reservation> {
        self.by_mac.get(&mac)
    }

    /// Whom the address is reserved for.
    pub(crate) fn owner(&self, address: Ipv4Addr) -> Option<Mac> {
        self.owners.get(&address).copied()
    }

    /// A client without a reservation may get the address.
    pub(crate) fn is_dynamic(&self, address: Ipv4Addr) -> bool {
        self.subnet.dynamic.iter().any(|range| range.contains(address))
            && self.subnet.is_host(address)
            && self.owner(address).is_none()
            && self.subnet.gateway != Some(address)
    }
}

/// A DHCPv4 server without sockets, clock or disk.
#[derive(Debug)]
pub struct Server {
    config: Config,
    scopes: Vec<Scope>,
    links: BTreeMap<u32, Vec<Ipv4Addr>>,
    table: Table,
    probes: Probes,
    holders: Holders,
    elsewhere: Elsewhere,
    /// What was told of subnets that are not configured.
    unplaced: BTreeMap<(Ipv4Addr, Grantor), Told>,
    dynamic_from: Time,
    swept: Time,
    declared: Declared,
}

impl Server {
    /// A server without leases.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let scopes = config.subnets.iter().map(Scope::new).collect();
        Ok(Self {
            config,
            scopes,
            links: BTreeMap::new(),
            table: Table::default(),
            probes: Probes::default(),
            holders: Holders::default(),
            elsewhere: Elsewhere::default(),
            unplaced: BTreeMap::new(),
            dynamic_from: Time::default(),
            swept: Time::default(),
            declared: Declared::default(),
        })
    }

    /// Takes another configuration and keeps the leases. A lease that it no longer allows is refused when the client
    /// renews it, and its address goes to nobody else before it ends. The actions are those of what was told before its subnet was
    /// configured ([`Server::learn`]).
    ///
    /// # Errors
    /// The configuration contradicts itself; the old one stays.
    pub fn set_config(&mut self, now: Time, config: Config) -> Result<Vec<Action>, ConfigError> {
        config.check()?;
        self.scopes = config.subnets.iter().map(Scope::new).collect();
        self.config = config;
        let scopes = &self.scopes;
        let is_ours = |address| scopes.iter().any(|scope| scope.subnet.cidr.contains(&address));
        self.table.reconfigured(now, is_ours);
        let told = std::mem::take(&mut self.unplaced);
        Ok(self.learn(now, told.into_values()))
    }

    /// Says which addresses this server has on which interface. Subnets of several addresses of one interface share that link: a
    /// client there may have an address of any. Without this, a link has the subnet of the address that a message arrived at.
    pub fn set_links(&mut self, links: BTreeMap<u32, Vec<Ipv4Addr>>) {
        self.links = links;
    }

    /// Says which architectures machines are declared with. From here on firmware of another one is sent no loader.
    pub fn set_declared(&mut self, declared: Declared) {
        self.declared = declared;
    }

    /// Why the client of this message is sent no loader, where that is its architecture.
    #[must_use]
    pub fn other_architecture(&self, packet: &Packet) -> Option<OtherArchitecture> {
        let declared = self.declared.get(&packet.mac()?).copied();
        BootClient::of(packet)?.other_architecture(declared)
    }

    /// The subnets that this server has an address of on an interface.
    pub fn subnets_of(&self, interface: u32) -> impl Iterator<Item = &Subnet> {
        let here = self.links.get(&interface).map_or(&[][..], Vec::as_slice);
        let has = |subnet: &&Subnet| here.iter().any(|own| subnet.cidr.contains(own));
        self.config.subnets.iter().filter(has)
    }

    /// The configuration in use.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Takes leases that were persisted. Of two records of one address the one granted
    /// later wins, so a file of appended records can be given as it is.
    pub fn restore(&mut self, leases: impl IntoIterator<Item = Lease>) {
        for lease in leases {
            if self.table.get(lease.address).is_none_or(|known| known.granted <= lease.granted) {
                self.table.insert(lease);
            }
        }
    }

    /// Takes what the region says that servers granted, this one among them. The actions persist and report what is this server's own.
    pub fn learn(&mut self, now: Time, told: impl IntoIterator<Item = Told>) -> Vec<Action> {
        let mut told: Vec<Told> = told.into_iter().collect();
        // What it granted itself says more than what was made of it.
        told.sort_by_key(|told| told.by);
        let mut actions = Vec::new();
        for told in told {
            let Some(scope) = self.scopes.iter().find(|scope| scope.subnet.cidr.contains(&told.address))
            else {
                if told.matters(now) && self.unplaced.len() < MAX_UNPLACED {
                    self.unplaced.insert((told.address, told.by), told);
                }
                continue;
            };
            let is_own = scope.is_dynamic(told.address);
            if told.by == Grantor::Owner && !is_own {
                self.elsewhere.learn(now, &told);
                continue;
            }
            let lost_some = now < self.dynamic_from;
            let known = Known { lease: self.table.get(told.address), is_own, lost_some };
            if told.is_news(now, known) {
                let lease = told.record(now, &scope.subnet.id, known);
                self.table.insert(lease.clone());
                actions.extend([Action::Persist(lease.clone()), Action::Report(Event::Learned(lease))]);
            }
        }
        actions
    }

    /// Gives no dynamic address, except to clients whose lease is known, before `until`: for a server that lost its
    /// lease file, until the region has told it, or leases granted before have run out.
    pub const fn withhold_dynamic_until(&mut self, until: Time) {
        self.dynamic_from = until;
    }

    /// The region knows of the lease: from its next renewal it may take the subnet's whole lease time. Returns the
    /// lease to persist; `None` when this client has no such lease.
    pub fn acknowledge(&mut self, address: Ipv4Addr, mac: Mac) -> Option<&Lease> {
        self.table.acknowledge(address, mac)
    }

    /// What is known about an address, live or not.
    #[must_use]
    pub fn lease(&self, address: Ipv4Addr) -> Option<&Lease> {
        self.table.get(address)
    }

    /// Everything worth persisting, in order of address: all records but offers of what was promised to nobody.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.table.iter().filter(|lease| lease.state != LeaseState::Offered || lease.promised_until.is_some())
    }

    /// How many addresses something is known about. What this server needs of memory grows with it, and with nothing else.
    #[must_use]
    pub fn known(&self) -> usize {
        self.table.len()
    }

    /// Leases on addresses outside of the configured dynamic ranges that are held still, in order of address: of ranges that it had
    /// before, or reserved ones. Not those on addresses of other servers.
    pub fn leftover(&self, now: Time) -> impl Iterator<Item = &Lease> {
        let dynamic = |address| {
            let mut ranges = self.scopes.iter().flat_map(|scope| &scope.subnet.dynamic);
            ranges.any(|range| range.contains(address))
        };
        let is_left = move |lease: &&Lease| lease.held_until() > now && lease.kept_until.is_none();
        self.leases().filter(move |lease| is_left(lease) && !dynamic(lease.address))
    }

    /// Whether something was told of subnets that are not configured yet.
    #[must_use]
    pub fn has_unplaced(&self) -> bool {
        !self.unplaced.is_empty()
    }

    /// What the dynamic addresses of a configured subnet are taken by. It looks at every record of them.
    #[must_use]
    pub fn occupancy(&self, now: Time, cidr: Ipv4Net) -> Option<Occupancy> {
        let scope = self.scopes.iter().find(|scope| scope.subnet.cidr == cidr)?;
        let own = self.links.values().flatten().copied().collect();
        Some(Occupancy::of(scope, &self.table, &self.elsewhere, &own, now))
    }

    /// Until when leases may run that this server lost; see [`Server::withhold_dynamic_until`].
    #[must_use]
    pub const fn withheld_until(&self) -> Time {
        self.dynamic_from
    }

    /// Answers a message. The actions are carried out in order; see [`Action::Persist`].
    pub fn handle(&mut self, now: Time, via: Arrival, packet: &Packet) -> Vec<Action> {
        self.answer(now, via, packet).unwrap_or_else(|reason| ignored(packet, reason))
    }

    /// Answers a message that came from `from` to [`BOOT_SERVER_PORT`](crate::BOOT_SERVER_PORT).
    pub fn handle_boot(
        &mut self,
        now: Time,
        via: Arrival,
        from: SocketAddrV4,
        packet: &Packet,
    ) -> Vec<Action> {
        self.exchange(now, via, packet)
            .and_then(|exchange| exchange.boot_server(from))
            .unwrap_or_else(|reason| ignored(packet, reason))
    }

    /// Reports leases that ran out since the last call. Call it every few seconds; nothing else depends on it.
    pub fn tick(&mut self, now: Time) -> Vec<Action> {
        let expired = self.table.expire(self.swept, now);
        self.swept = self.swept.max(now);
        if self.elsewhere.tidy(now) {
            self.table.walk_again();
        }
        expired.into_iter().map(|lease| Action::Report(Event::Expired(lease))).collect()
    }

    /// Whether addresses are probed before they are offered on an interface, and how long an answer may take; what is asked here
    /// becomes [`Action::Probe`]. Without it they are offered at once. `None` also drops the probes that are open there.
    pub fn set_probing(&mut self, interface: u32, patience: Option<Duration>) {
        self.probes.set(interface, patience);
    }

    /// How long until [`Server::conclude`] has something to do on the interface; `None`: no probe is open there.
    #[must_use]
    pub fn next_conclusion(&self, now: Time, interface: u32) -> Option<Duration> {
        self.probes.next_end(now, interface)
    }

    /// A host on the interface says by ARP that it has the address, or is about to take it.
    pub fn heard(&mut self, now: Time, interface: u32, address: Ipv4Addr, holder: Mac) -> Vec<Action> {
        // The client of an ended lease may still have the address, and is welcome to it.
        let Some(parked) = self.probes.get(interface, address).filter(|parked| parked.mac != holder) else {
            return Vec::new();
        };
        let mac = parked.mac;
        let is_held = self.table.get(address).is_some_and(|lease| lease.mac == mac && lease.is_live(now));
        if is_held {
            match self.holders.answered(now, interface, holder, address) {
                Word::Believed => {}
                // Another host may have the address, and has until the probe ends to say so.
                Word::Disbelieved => return Vec::new(),
                Word::FoundOut(answers) => {
                    let mut actions = self.lift(now, &answers);
                    actions.push(Action::Report(Event::AnswersForAll { interface, holder }));
                    return actions;
                }
            }
        }
        let Some(parked) = self.probes.close(address).filter(|_| is_held) else { return Vec::new() };
        // Where its subnet is gone, nobody gets an address of it.
        let Ok(exchange) = self.exchange(now, parked.via, &parked.packet) else { return Vec::new() };
        let mut actions = exchange.quarantine(address, holder);
        let taken = parked.taken + 1;
        let next = if taken < MAX_TAKEN {
            let exchange = self.exchange(now, parked.via, &parked.packet);
            exchange.and_then(|exchange| Exchange { taken, ..exchange }.run())
        } else {
            Err(Ignored::Taken(taken))
        };
        actions.extend(next.unwrap_or_else(|reason| ignored(&parked.packet, reason)));
        actions
    }

    /// Ends the quarantines that rest on these answers, and on nothing since.
    fn lift(&mut self, now: Time, answers: &[(Time, Ipv4Addr)]) -> Vec<Action> {
        let mut actions = Vec::new();
        for &(at, address) in answers {
            let rests = |lease: &&Lease| lease.state == LeaseState::Quarantined && lease.granted == at;
            let Some(lease) = self.table.get(address).filter(rests) else { continue };
            let lease = Lease { state: LeaseState::Ended, granted: now, expires: now, ..lease.clone() };
            self.table.insert(lease.clone());
            actions.push(Action::Persist(lease));
        }
        actions
    }

    /// Offers the addresses whose probes nobody answered.
    pub fn conclude(&mut self, now: Time, interface: u32) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(address) = self.probes.ended(now, interface) {
            let Some(parked) = self.probes.close(address) else { break };
            // The client may have chosen another server's offer meanwhile, or the address may have had to make way.
            let held = self.table.get(address);
            if held.is_some_and(|lease| lease.mac == parked.mac && lease.is_live(now)) {
                actions.extend(self.handle(now, parked.via, &parked.packet));
            }
        }
        actions
    }

    /// How many probes are open. There are never more than 2,048.
    #[must_use]
    pub fn probing(&self) -> usize {
        self.probes.len()
    }

    /// How many addresses were offered without a probe, since too many were open.
    #[must_use]
    pub const fn unprobed(&self) -> u64 {
        self.probes.left_out()
    }

    fn answer(&mut self, now: Time, via: Arrival, packet: &Packet) -> Result<Vec<Action>, Ignored> {
        self.exchange(now, via, packet)?.run()
    }

    fn exchange<'a>(
        &'a mut self,
        now: Time,
        via: Arrival,
        packet: &'a Packet,
    ) -> Result<Exchange<'a>, Ignored> {
        if packet.op != Opcode::BootRequest {
            return Err(Ignored::NotARequest { op: packet.op.into(), kind: packet.kind.into() });
        }
        let not_served = || packet.infiniband().map_or(Ignored::NotEthernet, |_| Ignored::InfiniBand);
        let mac = packet.mac().ok_or_else(not_served)?;
        let network = Network::of(&self.scopes, &self.links, via, packet)?;
        let known = network.reservations(mac).next().is_some();
        Ok(Exchange {
            now,
            via: network.arrival(network.home),
            packet,
            mac,
            scope: network.home,
            network,
            config: &self.config,
            table: &mut self.table,
            probes: &mut self.probes,
            taken: 0,
            elsewhere: &self.elsewhere,
            withheld: now < self.dynamic_from,
            served: known || self.config.serve_unknown,
            declared: self.declared.get(&mac).copied(),
        })
    }
}

fn ignored(packet: &Packet, reason: Ignored) -> Vec<Action> {
    vec![Action::Report(Event::Ignored { mac: packet.mac(), reason })]
}
