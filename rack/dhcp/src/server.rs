//! The server: its configuration, its leases, and one function for each event. [`exchange`](crate::exchange) decides
//! the answer to a message.

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

/// The most reports kept about addresses outside the configured subnets.
const MAX_UNPLACED: usize = 65_536;

/// The interface and address that a datagram arrived at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Index of the interface; replies leave through it.
    pub interface: u32,
    /// This server's address on that interface. It is sent as server identifier (option 54) and as next server.
    pub local: Ipv4Addr,
    /// The datagram was sent to `local` and not to the broadcast address. So it may be a renewal from another subnet,
    /// forwarded by a router.
    pub unicast: bool,
}

/// The destination of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// All hosts on the link.
    Broadcast,
    /// A client that has no address yet and so answers no ARP: the frame is addressed to `mac`. A shell that cannot
    /// write frames or neighbour entries may broadcast instead (RFC 2131 §4.1).
    Hardware {
        /// The address that the client is given.
        address: Ipv4Addr,
        /// The client's hardware address.
        mac: Mac,
    },
    /// A client that already uses its address.
    Client(Ipv4Addr),
    /// A relay agent, on the server port.
    Relay(Ipv4Addr),
    /// The sender of a request to the boot server port; the reply is sent from that port.
    Asker(SocketAddrV4),
}

impl Destination {
    /// The address and port that the datagram is sent to.
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

/// An instruction to the caller. The caller carries out the actions **in this order**.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make the lease durable, then go on. If that fails, drop the rest of the actions: the client gets no answer and
    /// asks again. The server holds the address for it meanwhile.
    Persist(Lease),
    /// Send a datagram.
    Send {
        /// The interface and source address.
        via: Arrival,
        /// The destination of the datagram.
        to: Destination,
        /// The DHCP message.
        bytes: Vec<u8>,
    },
    /// Ask by ARP which host on the link has the address (see [`frame::arp_probe`](crate::frame::arp_probe)). Pass each
    /// answer to [`Server::heard`] before [`Server::conclude`] is due.
    Probe {
        /// Index of the interface.
        interface: u32,
        /// The address to ask about.
        address: Ipv4Addr,
    },
    /// Something to log, count, or tell the region.
    Report(Event),
}

/// An event that the server reports to its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client was offered an address.
    Offered {
        /// The client's hardware address.
        mac: Mac,
        /// The offered address.
        address: Ipv4Addr,
    },
    /// A lease was granted or extended.
    Leased {
        /// The lease as it is now.
        lease: Lease,
        /// The client had this lease already.
        renewed: bool,
    },
    /// The region reported a lease on an address of this server, and the server stored it. Either another server
    /// extended the client's lease, or this server had lost its own record.
    Learned(Lease),
    /// A client gave its address back.
    Released(Lease),
    /// A client found its address in use by another host.
    Conflict {
        /// The client that reported the conflict, and the end of the quarantine of the address.
        lease: Lease,
        /// The client had leased the address and lost the lease. False: it was only offered.
        ended: bool,
    },
    /// An address that was to be offered to the lease's client is in use by another host.
    Taken {
        /// The client that the address was meant for, and the end of the quarantine of the address.
        lease: Lease,
        /// The hardware address of the host that uses the address.
        holder: Mac,
    },
    /// A host answers the probe of every address. Its answers are ignored from now on. Addresses that were quarantined
    /// only because of its answers are offered again.
    AnswersForAll {
        /// Index of the interface that the host is on.
        interface: u32,
        /// The hardware address of the host.
        holder: Mac,
    },
    /// A lease ran out.
    Expired(Lease),
    /// A boot client was given its boot file.
    Boot {
        /// The client's hardware address.
        mac: Mac,
        /// The client's address.
        address: Ipv4Addr,
        /// The client's firmware and architecture.
        client: BootClient,
        /// File name or URL.
        file: String,
    },
    /// The address that a client asked for was refused.
    Refused {
        /// The client's hardware address.
        mac: Mac,
        /// The refused address.
        address: Ipv4Addr,
        /// The reason, for people.
        reason: &'static str,
    },
    /// A reply was longer than its client accepts. These options were left out.
    LeftOut {
        /// The client's hardware address.
        mac: Mac,
        /// The numbers of the options.
        options: Vec<u8>,
    },
    /// A message was not answered.
    Ignored {
        /// The hardware address of the client, if it is an Ethernet client.
        mac: Option<Mac>,
        /// The reason for the silence.
        reason: Ignored,
    },
}

/// Why a message was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// A reply, or a message type that clients do not send.
    #[error("not a client's message (op {op}, type {kind})")]
    NotARequest {
        /// The op field of the message.
        op: u8,
        /// Option 53, the message type.
        kind: u8,
    },
    /// The hardware address is not an Ethernet unicast address.
    #[error("no Ethernet hardware address")]
    NotEthernet,
    /// Asked over InfiniBand (RFC 4390).
    #[error("racks lease no addresses over InfiniBand and boot no machines there")]
    InfiniBand,
    /// No configured subnet contains the relay's, the renewing client's or this server's address.
    #[error("no subnet is configured for {0}")]
    NoSubnet(Ipv4Addr),
    /// The client has no reservation, and `serve_unknown` is off.
    #[error("the client is unknown, and unknown clients are not served")]
    UnknownClient,
    /// The client chose another server's offer.
    #[error("the client chose server {0}")]
    OtherServer(Ipv4Addr),
    /// This server has no record of the address; another server may have one.
    #[error("nothing is known about address {0}")]
    NotOurs(Ipv4Addr),
    /// Every dynamic address is leased or offered.
    #[error("no address of {0} is free: clients have all of its dynamic ones")]
    NoFreeAddress(Ipv4Net),
    /// No dynamic address is free. Some are quarantined because other hosts use them.
    #[error(
        "no address of {0} is free: some rest, since other hosts were found using them, and clients have the others"
    )]
    SomeRest(Ipv4Net),
    /// There are no dynamic addresses, and nothing is reserved for the client.
    #[error("nothing is reserved for it in {0}, and this server has no dynamic addresses there")]
    NoDynamic(Ipv4Net),
    /// Other hosts use the addresses that the client was to be offered. The server stopped at the limit of probes for
    /// one message.
    #[error(
        "{0} addresses that it was to be offered are in use by other hosts; the next is tried when it asks again"
    )]
    Taken(u8),
    /// [`Server::withhold_dynamic_until`].
    #[error("dynamic addresses are withheld until earlier leases are known")]
    Withheld,
    /// The leases cannot be written to the disk. The caller that writes them reports this, never the server itself.
    #[error("this rack cannot write its leases to its disk, and so offers nothing")]
    Unwritable,
    /// Another server gives the addresses here, and the client does not ask to boot.
    #[error("another server gives the addresses here")]
    OthersClient,
    /// Another server gives the addresses here, and there is no loader for the client's architecture.
    #[error(transparent)]
    OtherArchitecture(OtherArchitecture),
    /// A client of the boot server port states another address than the one it sends from.
    #[error("the client says that it has {says}, and asks from {has}")]
    OtherAddress {
        /// The address that the client states.
        says: Ipv4Addr,
        /// The address that the request came from.
        has: Ipv4Addr,
    },
    /// The sender is a rack that looks for unknown DHCP servers.
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
            // Its addresses belong to another server.
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

    /// The client that the address is reserved for.
    pub(crate) fn owner(&self, address: Ipv4Addr) -> Option<Mac> {
        self.owners.get(&address).copied()
    }

    /// True if a client without a reservation may get the address.
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
    /// Reports about addresses outside the configured subnets.
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

    /// Takes another configuration and keeps the leases. If it no longer allows a lease, the renewal is refused, and
    /// the address goes to no other client before the lease ends. The actions come from reports that arrived before
    /// their subnet was configured ([`Server::learn`]).
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

    /// Sets the addresses that this server has on each interface. Subnets with addresses on one interface share a link:
    /// a client there may have an address of any of them. Without this, the link has only the subnet of the address
    /// that a message arrived at.
    pub fn set_links(&mut self, links: BTreeMap<u32, Vec<Ipv4Addr>>) {
        self.links = links;
    }

    /// Sets the architectures that machines are declared with. From here on, firmware of another architecture gets no
    /// loader.
    pub fn set_declared(&mut self, declared: Declared) {
        self.declared = declared;
    }

    /// Returns the mismatch if the client gets no loader because of its architecture.
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

    /// Takes leases that were persisted. If an address has two records, the one that was granted later wins. So the
    /// appended records of a file can be passed as they are.
    pub fn restore(&mut self, leases: impl IntoIterator<Item = Lease>) {
        for lease in leases {
            if self.table.get(lease.address).is_none_or(|known| known.granted <= lease.granted) {
                self.table.insert(lease);
            }
        }
    }

    /// Takes the leases that the region reports, including this server's own. The actions persist and report those that
    /// became records of this server.
    pub fn learn(&mut self, now: Time, told: impl IntoIterator<Item = Told>) -> Vec<Action> {
        let mut told: Vec<Told> = told.into_iter().collect();
        // Reports of its own leases come first: they are more exact than extensions by other servers.
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

    /// Before `until`, gives dynamic addresses only to clients whose lease is known. A server that lost its lease file
    /// uses this until the region has reported the leases, or until all leases granted before have ended.
    pub const fn withhold_dynamic_until(&mut self, until: Time) {
        self.dynamic_from = until;
    }

    /// Notes that the region has stored the lease: the next renewal may take the subnet's whole lease time. Returns the
    /// lease to persist; `None` when this client has no such lease.
    pub fn acknowledge(&mut self, address: Ipv4Addr, mac: Mac) -> Option<&Lease> {
        self.table.acknowledge(address, mac)
    }

    /// The record of an address, live or not.
    #[must_use]
    pub fn lease(&self, address: Ipv4Addr) -> Option<&Lease> {
        self.table.get(address)
    }

    /// The records to persist, in order of address: all except offers without a promise.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.table.iter().filter(|lease| lease.state != LeaseState::Offered || lease.promised_until.is_some())
    }

    /// The number of addresses with a record. The server's memory grows with it and with nothing else.
    #[must_use]
    pub fn known(&self) -> usize {
        self.table.len()
    }

    /// Leases that are still held on addresses outside the configured dynamic ranges, in order of address: from earlier
    /// ranges, or on reserved addresses. Leases on addresses of other servers are left out.
    pub fn leftover(&self, now: Time) -> impl Iterator<Item = &Lease> {
        let dynamic = |address| {
            let mut ranges = self.scopes.iter().flat_map(|scope| &scope.subnet.dynamic);
            ranges.any(|range| range.contains(address))
        };
        let is_left = move |lease: &&Lease| lease.held_until() > now && lease.kept_until.is_none();
        self.leases().filter(move |lease| is_left(lease) && !dynamic(lease.address))
    }

    /// True while there are reports about addresses outside the configured subnets.
    #[must_use]
    pub fn has_unplaced(&self) -> bool {
        !self.unplaced.is_empty()
    }

    /// The use of the dynamic addresses of a configured subnet. It reads every record of the subnet.
    #[must_use]
    pub fn occupancy(&self, now: Time, cidr: Ipv4Net) -> Option<Occupancy> {
        let scope = self.scopes.iter().find(|scope| scope.subnet.cidr == cidr)?;
        let own = self.links.values().flatten().copied().collect();
        Some(Occupancy::of(scope, &self.table, &self.elsewhere, &own, now))
    }

    /// The time until which leases may run that this server lost; see [`Server::withhold_dynamic_until`].
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

    /// Sets how long a probe on the interface waits for an answer. Before an offer, the server then asks for
    /// [`Action::Probe`]. With `None` addresses are offered without a probe, and the open probes of the interface are
    /// dropped.
    pub fn set_probing(&mut self, interface: u32, patience: Option<Duration>) {
        self.probes.set(interface, patience);
    }

    /// The time until [`Server::conclude`] has something to do on the interface; `None`: no probe is open there.
    #[must_use]
    pub fn next_conclusion(&self, now: Time, interface: u32) -> Option<Duration> {
        self.probes.next_end(now, interface)
    }

    /// Takes an ARP message of a host on the interface that has the address or is about to take it.
    pub fn heard(&mut self, now: Time, interface: u32, address: Ipv4Addr, holder: Mac) -> Vec<Action> {
        // The client of an ended lease may still use the address. That is no conflict.
        let Some(parked) = self.probes.get(interface, address).filter(|parked| parked.mac != holder) else {
            return Vec::new();
        };
        let mac = parked.mac;
        let is_held = self.table.get(address).is_some_and(|lease| lease.mac == mac && lease.is_live(now));
        if is_held {
            match self.holders.answered(now, interface, holder, address) {
                Word::Believed => {}
                // Another host may use the address; it can answer until the probe ends.
                Word::Disbelieved => return Vec::new(),
                Word::FoundOut(answers) => {
                    let mut actions = self.lift(now, &answers);
                    actions.push(Action::Report(Event::AnswersForAll { interface, holder }));
                    return actions;
                }
            }
        }
        let Some(parked) = self.probes.close(address).filter(|_| is_held) else { return Vec::new() };
        // If the subnet is no longer configured, the address is offered to nobody.
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

    /// Ends the quarantines that these answers began, unless the address has a newer record.
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

    /// Offers the addresses whose probes got no answer.
    pub fn conclude(&mut self, now: Time, interface: u32) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(address) = self.probes.ended(now, interface) {
            let Some(parked) = self.probes.close(address) else { break };
            // Meanwhile the client may have chosen another server's offer, or the offer may have been withdrawn.
            let held = self.table.get(address);
            if held.is_some_and(|lease| lease.mac == parked.mac && lease.is_live(now)) {
                actions.extend(self.handle(now, parked.via, &parked.packet));
            }
        }
        actions
    }

    /// The number of open probes, at most 2,048.
    #[must_use]
    pub fn probing(&self) -> usize {
        self.probes.len()
    }

    /// The number of addresses offered without a probe because too many probes were open.
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
