//! The server: its configuration, its leases, and one function for each event. `exchange` decides the answer to a
//! message.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv6Addr, SocketAddrV6};

use ipnet::Ipv6Net;

use super::exchange::Exchange;
use super::ingress::Packet;
use super::lease::{MAX_LEASES, MAX_OF_ONE, Table};
use super::network::Network;
use super::{
    AddressRange, CLIENT_PORT, Client, Config, ConfigError, Duid, Lease, Reservation, SERVER_PORT, Subnet,
    boot, identity,
};
use crate::{BootClient, Declared, LeaseState, Mac, Occupancy, OtherArchitecture, Time};

/// The interface and addresses of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Index of the interface; replies leave through it.
    pub interface: u32,
    /// The sender's address.
    pub from: Ipv6Addr,
    /// This server's address that it was sent to; `None`: it was sent to the multicast address of servers and relays.
    pub to: Option<Ipv6Addr>,
}

/// The destination of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// A client, on the client port.
    Client(Ipv6Addr),
    /// A relay, on the server port.
    Relay(Ipv6Addr),
}

impl Destination {
    /// The address and port that the datagram is sent to, through this interface.
    #[must_use]
    pub const fn socket_addr(self, interface: u32) -> SocketAddrV6 {
        match self {
            Self::Client(address) => SocketAddrV6::new(address, CLIENT_PORT, 0, interface),
            Self::Relay(address) => SocketAddrV6::new(address, SERVER_PORT, 0, interface),
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
        /// The arrival of the request.
        via: Arrival,
        /// The destination of the datagram.
        to: Destination,
        /// The DHCPv6 message.
        bytes: Vec<u8>,
    },
    /// Something to log, count, or tell the region.
    Report(Event),
}

/// An event that the server reports to its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A lease was granted or extended.
    Leased {
        /// The lease as it is now.
        lease: Lease,
        /// The client had this lease already.
        renewed: bool,
    },
    /// A client gave its address back.
    Released(Lease),
    /// A client found its address in use by another host. The lease names the client and the end of the quarantine.
    Conflict(Lease),
    /// A lease ran out.
    Expired(Lease),
    /// A boot client was given a URL to boot from.
    Boot {
        /// The client's DUID.
        duid: Duid,
        /// Its hardware address, if it is known.
        mac: Option<Mac>,
        /// The client's address.
        address: Ipv6Addr,
        /// The client's firmware and architecture.
        client: BootClient,
        /// The URL of the loader or script.
        url: String,
    },
    /// A client was refused an address.
    Refused {
        /// The client's DUID.
        duid: Duid,
        /// Its hardware address, if it is known.
        mac: Option<Mac>,
        /// The reason for the refusal.
        reason: Refusal,
    },
    /// A message was not answered.
    Ignored {
        /// The client's DUID, if the message has one.
        duid: Option<Duid>,
        /// The reason for the silence.
        reason: Ignored,
    },
}

/// The reason why a client got no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Every dynamic address is leased.
    #[error("no address of {0} is free: clients have all of its dynamic ones")]
    NoFreeAddress(Ipv6Net),
    /// No dynamic address is free. Some are quarantined because other hosts use them.
    #[error(
        "no address of {0} is free: some rest, since other hosts were found using them, and clients have the others"
    )]
    SomeRest(Ipv6Net),
    /// [`MAX_LEASES`] leases run already.
    #[error("no address of {0} is given: {MAX_LEASES} leases run, and this server keeps no more")]
    NoRoom(Ipv6Net),
    /// There are no dynamic addresses, and nothing is reserved for the client.
    #[error("nothing is reserved for it in {0}, and this server has no dynamic addresses there")]
    NoDynamic(Ipv6Net),
    /// The client has the most addresses that one client may have on a link.
    #[error(
        "it has {MAX_OF_ONE} addresses of this link, and gets no more: its DUID asks for another with each association"
    )]
    TooMany,
    /// [`Server::withhold_dynamic_until`].
    #[error("dynamic addresses are withheld until earlier leases are known")]
    Withheld,
    /// The request asks for something that this server never gives, such as a prefix.
    #[error("{0}")]
    Asked(&'static str),
}

/// The reason why a message was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// A reply, or a message type that clients do not send.
    #[error("not a client's message (type {0})")]
    NotARequest(u8),
    /// The message has, or lacks, a server or client identifier against RFC 8415 §16.
    #[error("a message of this type {0}")]
    Identifiers(&'static str),
    /// The message was sent by unicast although its type must be multicast (RFC 8415 §18.4).
    #[error("sent to this server alone, and not to all")]
    Unicast,
    /// No configured subnet contains the relay's or the interface's address.
    #[error("no subnet is configured for {0}")]
    NoSubnet(String),
    /// The client has no reservation, and `serve_unknown` is off.
    #[error("the client is unknown, and unknown clients are not served")]
    UnknownClient,
    /// The client chose another server.
    #[error("the client chose another server")]
    OtherServer,
    /// This server has no record of the addresses; another server may have one.
    #[error("nothing is known about its addresses")]
    NotOurs,
    /// [`Server::withhold_dynamic_until`].
    #[error("dynamic addresses are withheld until earlier leases are known")]
    Withheld,
    /// The leases cannot be written to the disk. The caller that writes them reports this, never the server itself.
    #[error("this rack cannot write its leases to its disk, and so offers nothing")]
    Unwritable,
}

/// A lease of this server as the region knows it, without the DUID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The leased address.
    pub address: Ipv6Addr,
    /// The client's hardware address, if it was known.
    pub mac: Option<Mac>,
    /// [`Subnet::id`].
    pub subnet: String,
    /// When the lease ends.
    pub ends: Time,
}

/// A subnet, indexed.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) subnet: Subnet,
    by_client: HashMap<Client, Reservation>,
    owners: HashMap<Ipv6Addr, Client>,
}

impl Scope {
    fn new(subnet: &Subnet) -> Self {
        let by_client = subnet.reservations.iter().map(|it| (it.client.clone(), it.clone())).collect();
        let owners = subnet.reservations.iter().map(|it| (it.address, it.client.clone())).collect();
        Self { subnet: subnet.clone(), by_client, owners }
    }

    /// The client's reservation. One by DUID comes before one by hardware address.
    pub(super) fn reservation(&self, duid: &Duid, mac: Option<Mac>) -> Option<&Reservation> {
        let by_duid = self.by_client.get(&Client::Duid(duid.clone()));
        by_duid.or_else(|| self.by_client.get(&Client::Mac(mac?)))
    }

    /// The reservation of the address.
    pub(super) fn owner(&self, address: Ipv6Addr) -> Option<&Reservation> {
        self.by_client.get(self.owners.get(&address)?)
    }

    /// True if a client without a reservation may get the address.
    pub(super) fn is_dynamic(&self, address: Ipv6Addr) -> bool {
        self.subnet.dynamic.iter().any(|range| range.contains(address))
            && self.subnet.is_host(address)
            && !self.owners.contains_key(&address)
    }

    /// The number of dynamic addresses, without the server's own; at most [`MAX_LEASES`]. The subnet-router anycast
    /// address is in no range: [`Config::check`] refuses it.
    fn usable(&self, own: &BTreeSet<Ipv6Addr>) -> u64 {
        let ranges = &self.subnet.dynamic;
        let length = |it: &AddressRange| (u128::from(it.end) - u128::from(it.start)).saturating_add(1);
        let all = ranges.iter().map(length).fold(0_u128, u128::saturating_add);
        let known: BTreeSet<_> = self.owners.keys().chain(own).collect();
        let apart = known.into_iter().filter(|it| ranges.iter().any(|range| range.contains(**it)));
        let apart = apart.filter(|it| !self.is_dynamic(**it) || own.contains(it)).count();
        let usable = all.saturating_sub(apart as u128).min(MAX_LEASES as u128);
        u64::try_from(usable).unwrap_or(u64::MAX)
    }
}

/// A DHCPv6 server without sockets, clock or disk.
#[derive(Debug)]
pub struct Server {
    duid: Duid,
    config: Config,
    scopes: Vec<Scope>,
    links: BTreeMap<u32, Vec<Ipv6Addr>>,
    table: Table,
    dynamic_from: Time,
    swept: Time,
    declared: Declared,
}

impl Server {
    /// A server without leases. `duid` identifies it to clients; it must stay the same as long as the leases are kept.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(duid: Duid, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let scopes = config.subnets.iter().map(Scope::new).collect();
        Ok(Self {
            duid,
            config,
            scopes,
            links: BTreeMap::new(),
            table: Table::default(),
            dynamic_from: Time::default(),
            swept: Time::default(),
            declared: Declared::default(),
        })
    }

    /// Takes another configuration and keeps the leases. If it no longer allows a lease, the client's renewal withdraws
    /// it, and the address goes to no other client before the lease ends.
    ///
    /// # Errors
    /// The configuration contradicts itself; the old one stays.
    pub fn set_config(&mut self, now: Time, config: Config) -> Result<(), ConfigError> {
        config.check()?;
        self.scopes = config.subnets.iter().map(Scope::new).collect();
        self.config = config;
        let scopes = &self.scopes;
        self.table
            .reconfigured(now, |address| scopes.iter().any(|scope| scope.subnet.cidr.contains(&address)));
        Ok(())
    }

    /// The configuration in use.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Sets the architectures that machines are declared with. From here on, firmware of another architecture gets no
    /// loader.
    pub fn set_declared(&mut self, declared: Declared) {
        self.declared = declared;
    }

    /// Returns the mismatch if the client gets no loader because of its architecture.
    #[must_use]
    pub fn other_architecture(&self, packet: &Packet, from: Ipv6Addr) -> Option<OtherArchitecture> {
        let mac = identity::mac(packet, from, packet.client().as_ref())?;
        boot::client(packet)?.other_architecture(self.declared.get(&mac).copied())
    }

    /// Sets the addresses that this server has on each interface, without link-local ones. Subnets that contain an
    /// address of the interface are on its link.
    pub fn set_links(&mut self, links: BTreeMap<u32, Vec<Ipv6Addr>>) {
        self.links = links;
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

    /// Takes leases of this server that a region reports. Those without a record here are stored. The actions persist
    /// them.
    pub fn learn(&mut self, now: Time, told: impl IntoIterator<Item = Told>) -> Vec<Action> {
        let mut actions = Vec::new();
        for told in told.into_iter().filter(|told| told.ends > now) {
            // The server's own record is newer than a report about it.
            if self.table.get(told.address).is_some() {
                continue;
            }
            let lease = Lease {
                address: told.address,
                duid: Duid::forgotten(told.mac),
                iaid: 0,
                mac: told.mac,
                mac_heard: false,
                subnet: told.subnet,
                hostname: None,
                state: LeaseState::Bound,
                granted: now,
                expires: told.ends,
                acknowledged: true,
            };
            self.table.make_room(now, lease.address);
            self.table.insert(lease.clone());
            actions.push(Action::Persist(lease));
        }
        actions
    }

    /// Before `until`, gives dynamic addresses only to clients whose lease is known. A server that lost its lease file
    /// uses this until a region has reported the leases ([`Server::learn`]), or until all leases granted before have
    /// ended.
    pub const fn withhold_dynamic_until(&mut self, until: Time) {
        self.dynamic_from = until;
    }

    /// The time until which leases may run that this server lost.
    #[must_use]
    pub const fn withheld_until(&self) -> Time {
        self.dynamic_from
    }

    /// Notes that the region has stored the running lease of this hardware address: the next renewal may take the
    /// subnet's whole lease time. Returns the lease to persist; `None` if it was noted before or there is no such
    /// lease.
    pub fn acknowledge(&mut self, now: Time, address: Ipv6Addr, mac: Option<Mac>) -> Option<&Lease> {
        if self.table.get(address).is_some_and(|lease| lease.acknowledged) {
            return None;
        }
        self.table.acknowledge(now, address, mac)
    }

    /// The record of an address, live or not.
    #[must_use]
    pub fn lease(&self, address: Ipv6Addr) -> Option<&Lease> {
        self.table.get(address)
    }

    /// The records to persist, in order of address: all of them.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.table.iter()
    }

    /// The number of addresses with a record. The server's memory grows with it and with nothing else.
    #[must_use]
    pub fn known(&self) -> usize {
        self.table.len()
    }

    /// True if another lease on an unreserved address can be stored. All subnets together may have [`MAX_LEASES`].
    #[must_use]
    pub fn has_room(&self, now: Time) -> bool {
        !self.table.is_full(now)
    }

    /// Leases that still run on addresses outside the configured dynamic ranges, in order of address: from earlier
    /// ranges, or on reserved addresses.
    pub fn leftover(&self, now: Time) -> impl Iterator<Item = &Lease> {
        let dynamic = |address| {
            let mut ranges = self.scopes.iter().flat_map(|scope| &scope.subnet.dynamic);
            ranges.any(|range| range.contains(address))
        };
        self.leases().filter(move |lease| lease.is_live(now) && !dynamic(lease.address))
    }

    /// The use of the dynamic addresses of a configured subnet; counts stop at [`MAX_LEASES`]. It reads every record of
    /// the subnet.
    #[must_use]
    pub fn occupancy(&self, now: Time, cidr: Ipv6Net) -> Option<Occupancy> {
        let scope = self.scopes.iter().find(|scope| scope.subnet.cidr == cidr)?;
        let own: BTreeSet<Ipv6Addr> = self.links.values().flatten().copied().collect();
        let is_given = |address: Ipv6Addr| scope.is_dynamic(address) && !own.contains(&address);
        let mut of = Occupancy { addresses: scope.usable(&own), ..Occupancy::default() };
        let held = scope.subnet.dynamic.iter().flat_map(|range| self.table.within(range));
        for lease in held.filter(|lease| lease.is_live(now) && is_given(lease.address)) {
            match lease.state {
                LeaseState::Quarantined => of.resting += 1,
                _ => of.leased += 1,
            }
        }
        Some(of)
    }

    /// Answers a message. The actions are carried out in order; see [`Action::Persist`].
    pub fn handle(&mut self, now: Time, via: Arrival, packet: &Packet) -> Vec<Action> {
        self.answer(now, via, packet)
            .unwrap_or_else(|reason| vec![Action::Report(Event::Ignored { duid: packet.client(), reason })])
    }

    /// Reports leases that ran out since the last call. Call it every few seconds; nothing else depends on it.
    pub fn tick(&mut self, now: Time) -> Vec<Action> {
        let expired = self.table.expire(self.swept, now);
        self.swept = self.swept.max(now);
        expired.into_iter().map(|lease| Action::Report(Event::Expired(lease))).collect()
    }

    /// The number of running leases.
    #[must_use]
    pub fn bound(&self, now: Time) -> usize {
        self.leases().filter(|lease| lease.state == LeaseState::Bound && lease.is_live(now)).count()
    }

    fn answer(&mut self, now: Time, via: Arrival, packet: &Packet) -> Result<Vec<Action>, Ignored> {
        let duid = packet.client();
        let mac = identity::mac(packet, via.from, duid.as_ref());
        let network = Network::of(&self.scopes, &self.links, via, packet)?;
        let known = duid.as_ref().is_some_and(|duid| network.reservations(duid, mac).next().is_some());
        Exchange {
            now,
            via,
            packet,
            duid,
            mac,
            heard: identity::heard(packet, via.from),
            network,
            server: &self.duid,
            config: &self.config,
            table: &mut self.table,
            withheld: now < self.dynamic_from,
            served: known || self.config.serve_unknown,
            declared: mac.and_then(|mac| self.declared.get(&mac).copied()),
        }
        .run()
    }
}
