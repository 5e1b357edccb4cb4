//! One message and its answer: the address and the options that a client gets (RFC 2131 §4.3).

use std::net::Ipv4Addr;

use dhcproto::v4::{MessageType, OptionCode};

use crate::detect;
use crate::egress::Message;
use crate::elsewhere::{self, Elsewhere, GRACE};
use crate::ingress::Packet;
use crate::lease::Table;
use crate::network::Network;
use crate::options::{self, Told};
use crate::probe::{Probes, TAKEN_SECONDS};
use crate::pxe::{Architecture, OtherArchitecture};
use crate::server::{Action, Arrival, Destination, Event, Ignored, Scope};
use crate::{BootClient, Config, Lease, LeaseState, Mac, Time};

/// How long an offer is held for its client, in seconds: firmware takes up to 16 s to come back with a REQUEST.
const OFFER_SECONDS: u32 = 30;
/// The longest host name that is kept (RFC 1035 §2.3.4).
const MAX_HOSTNAME: usize = 253;
/// The longest client identifier that is repeated in a reply (RFC 6842): the length of one option.
const MAX_CLIENT_ID: usize = 255;

/// IPv4 and UDP headers.
const HEADERS: usize = 28;
/// The message length that every client accepts, headers included (RFC 2131 §2).
const SHORTEST_MAXIMUM: usize = 576;
/// The payload of an Ethernet frame.
const LONGEST_MAXIMUM: usize = 1500;

pub(crate) type Answer = Result<Vec<Action>, Ignored>;

/// The decision about the address that a client requests.
enum Verdict {
    Grant,
    Refuse(&'static str),
    /// This server has no record; another server may have one.
    Unknown,
}

/// One message, with the state of the server that its answer depends on.
pub(crate) struct Exchange<'a> {
    pub(crate) now: Time,
    pub(crate) via: Arrival,
    pub(crate) packet: &'a Packet,
    pub(crate) mac: Mac,
    pub(crate) network: Network<'a>,
    /// The subnet of the address that the answer gives.
    pub(crate) scope: &'a Scope,
    pub(crate) config: &'a Config,
    pub(crate) table: &'a mut Table,
    pub(crate) probes: &'a mut Probes,
    /// The number of addresses that were probed for this message and found in use.
    pub(crate) taken: u8,
    pub(crate) elsewhere: &'a Elsewhere,
    /// Dynamic addresses go only to clients whose lease is known.
    pub(crate) withheld: bool,
    /// The client has a reservation, or unknown clients are served.
    pub(crate) served: bool,
    /// The architecture that the client's machine is declared with.
    pub(crate) declared: Option<Architecture>,
}

impl Exchange<'_> {
    pub(crate) fn run(self) -> Answer {
        if self.packet.options.raw(OptionCode::ClassIdentifier) == Some(detect::CLASS) {
            return Err(Ignored::Detector);
        }
        if self.served && self.is_beside_another() {
            return self.beside();
        }
        match self.packet.kind {
            MessageType::Release => self.release(),
            MessageType::Decline => self.decline(),
            MessageType::Discover | MessageType::Request | MessageType::Inform if !self.served => {
                Err(Ignored::UnknownClient)
            }
            MessageType::Discover => self.discover(),
            MessageType::Request => self.request(),
            MessageType::Inform => self.inform(),
            kind => Err(Ignored::NotARequest { op: self.packet.op.into(), kind: kind.into() }),
        }
    }

    /// From here on the answer is about the subnet of this address. It is sent from this server's address in that
    /// subnet.
    pub(crate) fn settle(&mut self, address: Ipv4Addr) {
        if let Some(scope) = self.network.scope(address) {
            self.scope = scope;
            self.via = self.network.arrival(scope);
        }
    }

    fn discover(mut self) -> Answer {
        let heard = self.via;
        let address = self.choose()?;
        self.settle(address);
        let held = self.table.get(address).filter(|lease| lease.mac == self.mac && lease.is_live(self.now));
        let is_allocated =
            held.is_some() || self.scope.owner(address).is_some() || self.kept_until(address).is_some();
        // A running lease stays as it is: it is longer than an offer.
        if held.is_none_or(|lease| lease.state == LeaseState::Offered) {
            let lease = self.lease(address, LeaseState::Offered, OFFER_SECONDS);
            self.table.insert(lease);
        }
        if self.probes.repeated(address, self.mac, self.packet) {
            return Ok(Vec::new());
        }
        if !is_allocated
            && !self.network.is_relayed()
            && self.probes.open(self.now, address, self.mac, heard, self.packet, self.taken)
        {
            return Ok(vec![Action::Probe { interface: heard.interface, address }]);
        }
        Ok(self.offer(address))
    }

    /// Offers an address that is held for the client.
    fn offer(self, address: Ipv4Addr) -> Vec<Action> {
        let mut reply = self.reply(MessageType::Offer, address);
        self.lease_options(&mut reply, address);
        self.network_options(&mut reply);
        self.boot_options(&mut reply);
        self.further_options(&mut reply);
        self.send(reply).chain([Action::Report(Event::Offered { mac: self.mac, address })]).collect()
    }

    /// Takes the address out of use: another host has it.
    pub(crate) fn quarantine(mut self, address: Ipv4Addr, holder: Mac) -> Vec<Action> {
        self.settle(address);
        let lease = self.lease(address, LeaseState::Quarantined, TAKEN_SECONDS);
        self.table.insert(lease.clone());
        vec![Action::Persist(lease.clone()), Action::Report(Event::Taken { lease, holder })]
    }

    /// Answers a REQUEST. The filled fields tell SELECTING, INIT-REBOOT, RENEWING and REBINDING apart (RFC 2131
    /// §4.3.2).
    fn request(mut self) -> Answer {
        let options = &self.packet.options;
        let requested = options.ipv4(OptionCode::RequestedIpAddress);
        let current = Some(self.packet.ciaddr).filter(|address| !address.is_unspecified());
        let server = options.ipv4(OptionCode::ServerIdentifier);
        if let Some(other) = server.filter(|&server| !self.network.is_me(server)) {
            self.withdraw_offers(None);
            return Err(Ignored::OtherServer(other));
        }
        let address = if server.is_some() { requested.or(current) } else { current.or(requested) };
        let address = address.ok_or(Ignored::Missing("requested address (option 50 or ciaddr)"))?;
        self.settle(address);
        match self.verdict(address) {
            Verdict::Grant => Ok(self.acknowledge(address)),
            Verdict::Refuse(reason) => Ok(self.refuse(address, reason)),
            // The client chose this server, so no other server will answer it.
            Verdict::Unknown if server.is_some_and(|server| self.is_chosen(server)) => {
                Ok(self.refuse(address, "address is not this server's to give"))
            }
            Verdict::Unknown => Err(Ignored::NotOurs(address)),
        }
    }

    fn release(self) -> Answer {
        let address = self.packet.ciaddr;
        let lease = self.own(address).filter(|lease| lease.state == LeaseState::Bound);
        let mut lease = lease.ok_or(Ignored::NotOurs(address))?.clone();
        lease.state = LeaseState::Ended;
        lease.granted = self.now;
        lease.expires = self.now;
        self.table.insert(lease.clone());
        Ok(vec![Action::Persist(lease.clone()), Action::Report(Event::Released(lease))])
    }

    fn decline(mut self) -> Answer {
        let options = &self.packet.options;
        let server = options.ipv4(OptionCode::ServerIdentifier);
        let address = options.ipv4(OptionCode::RequestedIpAddress);
        let own = address.and_then(|address| self.own(address));
        let other = server.filter(|&server| !self.network.is_me(server));
        // Another server may have given the address. The DECLINE counts here too if this server would give the address:
        // a report of the other server only says that the lease ended. It does not say that another host has the address.
        let concerns = own.is_some() || address.is_some_and(|address| self.is_its_elsewhere(address));
        if let Some(other) = other.filter(|_| !concerns) {
            return Err(Ignored::OtherServer(other));
        }
        let address = address.ok_or(Ignored::Missing("declined address (option 50)"))?;
        if own.is_none() && other.is_none() {
            return Err(Ignored::NotOurs(address));
        }
        let ended = own.is_some_and(|lease| lease.state == LeaseState::Bound);
        self.settle(address);
        let mut lease = self.lease(address, LeaseState::Quarantined, self.config.quarantine_seconds);
        lease.acknowledged = false;
        self.table.insert(lease.clone());
        Ok(vec![Action::Persist(lease.clone()), Action::Report(Event::Conflict { lease, ended })])
    }

    /// Answers an INFORM: a host with its own address asks for options and gets no lease (RFC 2131 §4.3.5).
    fn inform(mut self) -> Answer {
        if self.packet.ciaddr.is_unspecified() {
            return Err(Ignored::Missing("ciaddr"));
        }
        self.settle(self.packet.ciaddr);
        let mut reply = self.reply(MessageType::Ack, Ipv4Addr::UNSPECIFIED);
        self.network_options(&mut reply);
        self.boot_options(&mut reply);
        self.further_options(&mut reply);
        Ok(self.send(reply).collect())
    }

    fn acknowledge(self, address: Ipv4Addr) -> Vec<Action> {
        let seconds = self.lease_seconds(address);
        let renewed = self.own(address).is_some_and(|lease| lease.state == LeaseState::Bound);
        let lease = self.lease(address, LeaseState::Bound, seconds);
        let mut reply = self.reply(MessageType::Ack, address);
        self.lease_options(&mut reply, address);
        self.network_options(&mut reply);
        let boot = self.boot_options(&mut reply);
        self.further_options(&mut reply);
        let send: Vec<_> = self.send(reply).collect();
        self.table.insert(lease.clone());
        let mac = self.mac;
        self.withdraw_offers(Some(address));
        let mut actions = vec![Action::Persist(lease.clone())];
        actions.extend(send);
        actions.push(Action::Report(Event::Leased { lease, renewed }));
        if let Some((client, file)) = boot {
            actions.push(Action::Report(Event::Boot { mac, address, client, file }));
        }
        actions
    }

    fn refuse(self, address: Ipv4Addr, reason: &'static str) -> Vec<Action> {
        let mut reply = self.reply(MessageType::Nak, Ipv4Addr::UNSPECIFIED);
        // The relay must broadcast it: the client may be on another network than its address (RFC 2131 §4.3.2).
        reply.broadcast |= !self.packet.giaddr.is_unspecified();
        reply.option(OptionCode::Message, reason);
        self.send(reply).chain([Action::Report(Event::Refused { mac: self.mac, address, reason })]).collect()
    }

    /// The address to offer, from the first of these that is possible:
    ///
    /// 1. the client's reserved address;
    /// 2. the address of its running lease;
    /// 3. an address of another server that the client may keep;
    /// 4. the address of its ended lease;
    /// 5. the address that it asks for;
    /// 6. an address whose offer was not accepted;
    /// 7. an address that was never used;
    /// 8. the address whose lease ended first.
    fn choose(&mut self) -> Result<Ipv4Addr, Ignored> {
        let (now, mac, network) = (self.now, self.mac, &self.network);
        let elsewhere = self.elsewhere;
        let dynamic =
            |address: Ipv4Addr| network.is_dynamic(address) && !elsewhere.is_anothers(now, address, mac);
        let offerable =
            |table: &Table, address: Ipv4Addr| dynamic(address) && table.available(now, address, mac);

        let mut reserved = network.reservations(mac).map(|it| it.address);
        if let Some(reserved) = reserved.find(|&address| self.is_free(address)) {
            return Ok(reserved);
        }
        // A quarantined address of this client is no better than any other: it may still be in use by another host.
        let own = self.table.of(mac).filter(|lease| lease.state != LeaseState::Quarantined);
        let own = own.filter(|lease| offerable(self.table, lease.address));
        let own = own.max_by_key(|lease| (lease.is_live(now), lease.expires));
        if let Some(lease) = own.filter(|lease| lease.is_live(now)) {
            return Ok(lease.address);
        }
        let others = self.elsewhere.of(mac).chain(self.table.of(mac).map(|lease| lease.address));
        let kept = others.filter_map(|address| Some((self.kept_until(address)?, address))).max();
        if let Some((_, address)) = kept {
            return Ok(address);
        }
        if let Some(lease) = own.filter(|_| !self.withheld) {
            return Ok(lease.address);
        }
        if self.withheld {
            return Err(Ignored::Withheld);
        }
        let asked = self.packet.options.ipv4(OptionCode::RequestedIpAddress);
        if let Some(asked) = asked.filter(|&address| offerable(self.table, address)) {
            return Ok(asked);
        }
        let ranges = network.scopes.iter().flat_map(|scope| &scope.subnet.dynamic);
        let spare = self.table.spare_offer(now, dynamic);
        spare
            .or_else(|| self.table.never_used(ranges, dynamic))
            .or_else(|| self.table.longest_ended(now, dynamic))
            .ok_or_else(|| self.full(dynamic))
    }

    /// The reason why the client's link has no free address among those that are `dynamic` for it.
    fn full(&self, dynamic: impl Fn(Ipv4Addr) -> bool) -> Ignored {
        let mut giving = self.network.scopes.iter().filter(|scope| !scope.subnet.dynamic.is_empty());
        let Some(cidr) = giving.next().map(|scope| scope.subnet.cidr) else {
            return Ignored::NoDynamic(self.scope.subnet.cidr);
        };
        match self.table.rests(self.now, dynamic) {
            true => Ignored::SomeRest(cidr),
            false => Ignored::NoFreeAddress(cidr),
        }
    }

    fn verdict(&self, address: Ipv4Addr) -> Verdict {
        if !self.scope.subnet.cidr.contains(&address) {
            return Verdict::Refuse("address is not on this network");
        }
        let free = self.is_free(address);
        match self.scope.owner(address) {
            Some(owner) if owner != self.mac => {
                return Verdict::Refuse("address is reserved for another client");
            }
            Some(_) if free => return Verdict::Grant,
            None if self.network.is_own(address) => return Verdict::Unknown,
            None if !free && self.is_for_others_to_judge(address) => return Verdict::Unknown,
            _ if !free => return Verdict::Refuse("address is in use"),
            _ => {}
        }
        let mut reserved = self.network.reservations(self.mac).map(|it| it.address);
        if reserved.any(|reserved| self.is_free(reserved)) {
            return Verdict::Refuse("another address is reserved for this client");
        }
        if self.kept_until(address).is_some() {
            return Verdict::Grant;
        }
        let (own, dynamic) = (self.own(address).is_some(), self.network.is_dynamic(address));
        if !own && !dynamic && self.scope.subnet.shared {
            return Verdict::Unknown;
        }
        if !own && self.has_other_lease(address) {
            return Verdict::Refuse("client has another lease");
        }
        match dynamic {
            true if own || !self.withheld => Verdict::Grant,
            true => Verdict::Unknown,
            false if own => Verdict::Refuse("address is no longer given out"),
            false => Verdict::Unknown,
        }
    }

    /// True if the client chose this server and not another one that shares the subnet. Several servers may have one
    /// identifier: a relay can put its own address in place of theirs (RFC 5107).
    fn is_chosen(&self, server: Ipv4Addr) -> bool {
        self.network.is_own(server) || !self.scope.subnet.shared
    }

    /// True if another server may have a record of the address: the subnet is shared, the address is not dynamic here,
    /// and no other client has it.
    fn is_for_others_to_judge(&self, address: Ipv4Addr) -> bool {
        self.scope.subnet.shared
            && !self.network.is_dynamic(address)
            && !self.elsewhere.is_anothers(self.now, address, self.mac)
    }

    /// True if no other client and not this server has the address. A reservation may be older than the server's address.
    fn is_free(&self, address: Ipv4Addr) -> bool {
        !self.network.is_own(address)
            && self.table.available(self.now, address, self.mac)
            && !self.elsewhere.is_anothers(self.now, address, self.mac)
    }

    /// Until when the client may keep an address of another server; `None` if it may not.
    fn kept_until(&self, address: Ipv4Addr) -> Option<Time> {
        let scope = self.network.scope(address).filter(|scope| scope.owner(address).is_none())?;
        if scope.is_dynamic(address) || !self.table.available(self.now, address, self.mac) {
            return None;
        }
        let own = self.table.get(address).filter(|lease| lease.mac == self.mac);
        let until = own.and_then(|lease| lease.kept_until).max(self.elsewhere.kept_until(address, self.mac));
        until.filter(|&until| elsewhere::is_worth_it(self.now, until))
    }

    /// The client's live record of this address.
    fn own(&self, address: Ipv4Addr) -> Option<&Lease> {
        self.table.get(address).filter(|lease| {
            lease.mac == self.mac && lease.is_live(self.now) && lease.state != LeaseState::Quarantined
        })
    }

    /// True if this server would give the client the address, whichever server gave it before. There are two cases:
    ///
    /// 1. The address is reserved for the client, and it is free.
    /// 2. The address is another server's, and the client may keep it.
    fn is_its_elsewhere(&self, address: Ipv4Addr) -> bool {
        let is_reserved = self.network.reservations(self.mac).any(|it| it.address == address);
        (is_reserved && self.is_free(address)) || self.kept_until(address).is_some()
    }

    /// The client has a running lease on another address of this link and would be offered that one. So it cannot
    /// collect addresses.
    fn has_other_lease(&self, address: Ipv4Addr) -> bool {
        self.table.of(self.mac).any(|lease| {
            lease.address != address
                && lease.state == LeaseState::Bound
                && lease.is_live(self.now)
                && self.network.is_dynamic(lease.address)
        })
    }

    /// Ends the offers to this client that it did not accept.
    fn withdraw_offers(self, except: Option<Ipv4Addr>) {
        let offers = self.table.of(self.mac).filter(|lease| lease.state == LeaseState::Offered);
        let offers: Vec<Lease> = offers.filter(|lease| Some(lease.address) != except).cloned().collect();
        for mut lease in offers {
            lease.expires = lease.expires.min(self.now);
            self.table.insert(lease);
        }
    }

    fn lease(&self, address: Ipv4Addr, state: LeaseState, seconds: u32) -> Lease {
        let known = self.table.get(address).filter(|lease| lease.mac == self.mac);
        let hostname = self.packet.options.text(OptionCode::Hostname);
        let hostname = hostname.filter(|name| !name.is_empty() && name.len() <= MAX_HOSTNAME);
        let hostname = hostname.filter(|name| !name.chars().any(char::is_control));
        let expires = self.now.plus_seconds(seconds);
        let is_shared =
            state == LeaseState::Bound && self.scope.subnet.shared && self.scope.is_dynamic(address);
        let promises = is_shared.then(|| expires + GRACE);
        Lease {
            address,
            mac: self.mac,
            subnet: self.scope.subnet.id.clone(),
            hostname: hostname.map(str::to_owned).or_else(|| known.and_then(|lease| lease.hostname.clone())),
            state,
            granted: self.now,
            expires,
            acknowledged: known.is_some_and(|lease| lease.acknowledged),
            promised_until: promises.max(known.and_then(|lease| lease.promised_until)),
            kept_until: self.kept_until(address),
        }
    }

    fn lease_seconds(&self, address: Ipv4Addr) -> u32 {
        let whole = self.scope.subnet.lease_seconds;
        if let Some(until) = self.kept_until(address) {
            let seconds = u32::try_from(self.now.until(until).as_secs()).unwrap_or(u32::MAX);
            return whole.min(seconds);
        }
        let known = self.table.get(address).is_some_and(|lease| lease.mac == self.mac && lease.acknowledged);
        if known { whole } else { whole.min(self.config.unacknowledged_seconds) }
    }

    pub(crate) fn reply(&self, kind: MessageType, address: Ipv4Addr) -> Message {
        let mut reply = Message::reply(kind, self.packet.xid, self.mac);
        reply.broadcast = self.packet.broadcast;
        if kind == MessageType::Ack {
            reply.ciaddr = self.packet.ciaddr;
        }
        reply.yiaddr = address;
        reply.giaddr = self.packet.giaddr;
        reply.option(OptionCode::ServerIdentifier, self.network.identity(self.scope).octets());
        let repeated = [
            (OptionCode::ClientIdentifier, MAX_CLIENT_ID),
            (OptionCode::SubnetSelection, if self.network.is_relayed() { 4 } else { 0 }),
            (OptionCode::RelayAgentInformation, usize::MAX),
        ];
        for (code, longest) in repeated {
            if let Some(value) = self.packet.options.raw(code).filter(|value| value.len() <= longest) {
                reply.option(code, value);
            }
        }
        reply
    }

    fn lease_options(&self, reply: &mut Message, address: Ipv4Addr) {
        let seconds = self.lease_seconds(address);
        let rebinding = seconds - seconds / 8;
        reply.option(OptionCode::AddressLeaseTime, seconds.to_be_bytes());
        reply.option(OptionCode::Renewal, (seconds / 2).to_be_bytes());
        reply.option(OptionCode::Rebinding, rebinding.to_be_bytes());
    }

    /// Mask, router and DNS servers always. The rest if the client asks for it, or has no parameter request list
    /// (option 55).
    fn network_options(&self, reply: &mut Message) {
        let subnet = &self.scope.subnet;
        reply.option(OptionCode::SubnetMask, subnet.cidr.netmask().octets());
        reply.addresses(OptionCode::Router, subnet.gateway.as_slice());
        reply.addresses(OptionCode::DomainNameServer, &subnet.dns_servers);
        let asked = self.packet.options.raw(OptionCode::ParameterRequestList);
        let wanted = |code: OptionCode| asked.is_none_or(|asked| asked.contains(&code.into()));
        let hostname = self.scope.reservation(self.mac).and_then(|it| it.hostname.as_ref());
        let optional = [
            (OptionCode::Hostname, hostname.map(|name| name.as_bytes().to_vec())),
            (OptionCode::DomainName, subnet.domain.as_ref().map(|name| name.as_bytes().to_vec())),
            (OptionCode::InterfaceMtu, subnet.mtu.map(|mtu| mtu.to_be_bytes().to_vec())),
            (OptionCode::BroadcastAddr, Some(subnet.cidr.broadcast().octets().to_vec())),
            (OptionCode::DomainSearch, some(&subnet.search).map(options::search_list)),
            (OptionCode::ClasslessStaticRoute, options::routes(subnet)),
        ];
        for (code, value) in optional {
            if let Some(value) = value.filter(|_| wanted(code)) {
                reply.option(code, value);
            }
        }
        if wanted(OptionCode::NtpServers) {
            reply.addresses(OptionCode::NtpServers, &subnet.ntp_servers);
        }
    }

    /// Adds the operator's raw options that this server does not fill itself.
    fn further_options(&self, reply: &mut Message) {
        let own = self.config.client_options.get(&self.mac).into_iter().flatten();
        let asked = self.packet.options.raw(OptionCode::ParameterRequestList).unwrap_or_default();
        for option in own.chain(&self.scope.subnet.options) {
            let code = OptionCode::from(option.code);
            let may_be_told = match options::told(option.code) {
                Told::Always => true,
                Told::Asked => asked.contains(&option.code),
                Told::Repeated => self.packet.options.contains(code),
                Told::Never => false,
            };
            if may_be_told && !reply.has(code) {
                reply.option(code, option.value.clone());
            }
        }
    }

    pub(crate) fn boot_options(&self, reply: &mut Message) -> Option<(BootClient, String)> {
        let client = BootClient::of(self.packet)?;
        if client.other_architecture(self.declared).is_some() {
            return None;
        }
        let own = self.scope.reservation(self.mac).and_then(|it| it.boot.as_ref());
        let boot = own.unwrap_or(&self.scope.subnet.boot);
        Some((client, client.answer(boot, self.packet, self.via.local, reply)?))
    }

    /// Returns the mismatch if the client gets no boot options because of its architecture.
    pub(crate) fn other_architecture(&self) -> Option<OtherArchitecture> {
        BootClient::of(self.packet)?.other_architecture(self.declared)
    }

    /// Sends the reply to its destination (RFC 2131 §4.1), and reports the options that did not fit.
    pub(crate) fn send(&self, reply: Message) -> impl Iterator<Item = Action> + use<> {
        let packet = self.packet;
        let refusal = reply.yiaddr.is_unspecified() && reply.ciaddr.is_unspecified();
        let to = if !packet.giaddr.is_unspecified() {
            Destination::Relay(packet.giaddr)
        } else if refusal {
            Destination::Broadcast
        } else if !packet.ciaddr.is_unspecified() {
            Destination::Client(packet.ciaddr)
        } else if packet.broadcast {
            Destination::Broadcast
        } else {
            Destination::Hardware { address: reply.yiaddr, mac: self.mac }
        };
        let (bytes, left_out) = self.encode(&reply);
        let report = (!left_out.is_empty()).then_some(Event::LeftOut { mac: self.mac, options: left_out });
        [Action::Send { via: self.via, to, bytes }].into_iter().chain(report.map(Action::Report))
    }

    /// Encodes the reply, with options in the order that the client asks for them, no longer than the client accepts.
    /// Also returns the options that did not fit.
    pub(crate) fn encode(&self, reply: &Message) -> (Vec<u8>, Vec<u8>) {
        let asked = self.packet.options.raw(OptionCode::ParameterRequestList).unwrap_or_default();
        reply.encode_for(asked, longest_message(self.packet))
    }
}

fn some<T>(list: &[T]) -> Option<&[T]> {
    Some(list).filter(|list| !list.is_empty())
}

/// The longest message that this client accepts. Option 57 counts the IP and UDP headers too, as other servers read it.
fn longest_message(packet: &Packet) -> usize {
    let said = packet.options.u16(OptionCode::MaxMessageSize).map_or(SHORTEST_MAXIMUM, usize::from);
    said.clamp(SHORTEST_MAXIMUM, LONGEST_MAXIMUM) - HEADERS
}
