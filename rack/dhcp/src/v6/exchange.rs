//! One message and its answer: the addresses and the options that a client gets (RFC 8415 §18.3).

use std::net::Ipv6Addr;

use dhcproto::v6::{MessageType, OptionCode, Status};

use super::ingress::{Association, Kind, Packet};
use super::lease::{Table, Who};
use super::network::Network;
use super::reply::{self, Reply};
use super::server::{Action, Arrival, Destination, Event, Ignored, Refusal, Scope};
use super::{AddressRange, Client, Config, Duid, Lease, boot};
use crate::{Architecture, BootClient, LeaseState, Mac, Time};

/// The longest host name that is kept (RFC 1035 §2.3.4).
const MAX_HOSTNAME: usize = 253;
/// The flags of option 39 (RFC 4704 §4.1). S: the server updates DNS. O: the server overrides the client's S. N: the
/// server makes no update.
const FQDN_S: u8 = 1;
const FQDN_O: u8 = 2;
const FQDN_N: u8 = 4;

const NO_ADDRESS: (Status, &str) = (Status::NoAddrsAvail, "no address is free");
const NO_PREFIX: (Status, &str) = (Status::NoPrefixAvail, "prefixes are not delegated here");
const NO_TEMPORARY: (Status, &str) = (Status::NoAddrsAvail, "temporary addresses are not given here");
const NO_BINDING: (Status, &str) = (Status::NoBinding, "nothing is known of this");
const NOT_ON_LINK: (Status, &str) = (Status::NotOnLink, "an address is not of this link");

/// If a message must name a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    Must,
    MustNot,
    May,
}

/// The rules of RFC 8415 §16 per message type: if a server identifier is required, and if the message must be multicast
/// (§18.4). Other messages are dropped.
const RULES: [(MessageType, Naming, bool); 8] = [
    (MessageType::Solicit, Naming::MustNot, true),
    (MessageType::Request, Naming::Must, false),
    (MessageType::Confirm, Naming::MustNot, true),
    (MessageType::Renew, Naming::Must, false),
    (MessageType::Rebind, Naming::MustNot, true),
    (MessageType::Release, Naming::Must, false),
    (MessageType::Decline, Naming::Must, false),
    (MessageType::InformationRequest, Naming::May, true),
];

/// In these messages a client claims to have an address. If nothing else identifies the client of a lease, all of them
/// are believed alike: a client that may extend the lease may also release it.
const HAS_IT: [MessageType; 4] =
    [MessageType::Renew, MessageType::Rebind, MessageType::Release, MessageType::Decline];

type Answer = Result<Vec<Action>, Ignored>;

/// The decision about an address that a client wants to keep.
enum Verdict {
    Grant,
    /// The client must stop using it.
    Withdraw,
    /// This server has no record; another server may have one.
    Unknown,
}

/// The result for one identity association.
struct Outcome<'a> {
    asked: &'a Association,
    granted: Option<Ipv6Addr>,
    withdrawn: Vec<Ipv6Addr>,
    status: Option<(Status, &'static str)>,
}

impl<'a> Outcome<'a> {
    const fn nothing(asked: &'a Association, status: (Status, &'static str)) -> Self {
        Self { asked, granted: None, withdrawn: Vec::new(), status: Some(status) }
    }
}

/// One message, with the state of the server that its answer depends on.
pub(super) struct Exchange<'a> {
    pub(super) now: Time,
    pub(super) via: Arrival,
    pub(super) packet: &'a Packet,
    pub(super) duid: Option<Duid>,
    pub(super) mac: Option<Mac>,
    /// The hardware address, if it was seen on the link and not read from the DUID.
    pub(super) heard: Option<Mac>,
    pub(super) network: Network<'a>,
    pub(super) server: &'a Duid,
    pub(super) config: &'a Config,
    pub(super) table: &'a mut Table,
    /// Dynamic addresses go only to clients whose lease is known.
    pub(super) withheld: bool,
    /// The client has a reservation, or unknown clients are served.
    pub(super) served: bool,
    /// The architecture that the client's machine is declared with.
    pub(super) declared: Option<Architecture>,
}

impl<'a> Exchange<'a> {
    pub(super) fn run(self) -> Answer {
        let kind = self.packet.kind;
        let rule = RULES.iter().find(|(it, ..)| *it == kind).ok_or(Ignored::NotARequest(kind.into()))?;
        let named = self.packet.options.raw(OptionCode::ServerId);
        match (rule.1, named) {
            (Naming::Must, None) => return Err(Ignored::Identifiers("names a server")),
            (Naming::MustNot, Some(_)) => return Err(Ignored::Identifiers("names no server")),
            (_, Some(named)) if named != self.server.as_bytes() => return Err(Ignored::OtherServer),
            _ => {}
        }
        if self.via.to.is_some() && self.packet.relays.is_empty() {
            return if rule.2 { Err(Ignored::Unicast) } else { Ok(vec![self.by_multicast()]) };
        }
        if kind == MessageType::InformationRequest {
            return self.inform();
        }
        let Some(duid) = self.duid.clone() else { return Err(Ignored::Identifiers("names its client")) };
        match kind {
            MessageType::Release => Ok(self.give_back(&duid, LeaseState::Ended)),
            MessageType::Decline => Ok(self.give_back(&duid, LeaseState::Quarantined)),
            _ if !self.served => Err(Ignored::UnknownClient),
            MessageType::Confirm => self.confirm(),
            MessageType::Solicit => self.solicit(&duid),
            MessageType::Request => self.request(&duid),
            _ => self.extend(&duid),
        }
    }

    fn solicit(self, duid: &Duid) -> Answer {
        let outcomes = self.assigned(duid);
        let wanted = outcomes.iter().any(|it| it.asked.kind == Kind::Address);
        let given = outcomes.iter().any(|it| it.granted.is_some());
        if self.withheld && wanted && !given {
            return Err(Ignored::Withheld);
        }
        let asked = self.packet.options.raw(OptionCode::RapidCommit).is_some();
        if given && asked && self.network.home.subnet.rapid_commit {
            let mut reply = self.reply(MessageType::Reply);
            reply.option(OptionCode::RapidCommit, &[]);
            return Ok(self.granted(duid, reply, outcomes));
        }
        let mut reply = self.reply(MessageType::Advertise);
        // Without a preference (0), clients prefer any server that has an address.
        if given || outcomes.is_empty() {
            reply.option(OptionCode::Preference, &[self.config.preference]);
        }
        let scope = self.write(duid, &mut reply, &outcomes);
        self.configuration(&mut reply, scope);
        let refused = self.refused(duid, &outcomes);
        Ok([vec![self.send(reply)], refused].concat())
    }

    fn request(self, duid: &Duid) -> Answer {
        let reply = self.reply(MessageType::Reply);
        let mut outcomes = self.assigned(duid);
        for outcome in outcomes.iter_mut().filter(|it| it.asked.kind == Kind::Address) {
            if outcome.asked.addresses.iter().any(|&named| self.network.scope(named).is_none()) {
                *outcome = Outcome::nothing(outcome.asked, NOT_ON_LINK);
            }
        }
        Ok(self.granted(duid, reply, outcomes))
    }

    /// Answers RENEW and REBIND. A REBIND goes to all servers.
    fn extend(self, duid: &Duid) -> Answer {
        let mut outcomes: Vec<Outcome<'a>> = Vec::new();
        for asked in &self.packet.associations {
            let mut outcome = Outcome::nothing(asked, NO_BINDING);
            for &address in &asked.addresses {
                match self.verdict(duid, asked, address) {
                    // Two associations must not get one address. The table alone does not show that: it changes after
                    // the whole message is answered.
                    Verdict::Grant
                        if outcome.granted.is_none()
                            && outcomes.iter().all(|other| other.granted != Some(address)) =>
                    {
                        outcome.granted = Some(address);
                    }
                    Verdict::Grant | Verdict::Withdraw => outcome.withdrawn.push(address),
                    Verdict::Unknown => {}
                }
            }
            if asked.kind == Kind::Address && outcome.granted.is_none() && !outcome.withdrawn.is_empty() {
                // The client may get another address at once (§18.3.4).
                let taken: Vec<Ipv6Addr> = outcomes.iter().filter_map(|it| it.granted).collect();
                let taken = [taken, outcome.withdrawn.clone()].concat();
                outcome.granted = self.choose(duid, asked, &taken);
            }
            if outcome.granted.is_some() || !outcome.withdrawn.is_empty() {
                outcome.status = None;
            }
            outcomes.push(outcome);
        }
        // Omit associations that another server may know, or that this server may have lost: the client then goes on
        // asking (§18.2.10.1).
        if self.packet.kind == MessageType::Rebind || self.withheld {
            outcomes.retain(|it| it.asked.kind != Kind::Address || it.status.is_none());
            if !outcomes.iter().any(|it| it.status.is_none()) {
                return Err(if self.withheld { Ignored::Withheld } else { Ignored::NotOurs });
            }
        }
        let reply = self.reply(MessageType::Reply);
        Ok(self.granted(duid, reply, outcomes))
    }

    /// Answers CONFIRM: are the client's addresses on its link (§18.3.3)?
    fn confirm(self) -> Answer {
        let addresses = self.packet.associations.iter().filter(|it| it.kind != Kind::Prefix);
        let mut addresses = addresses.flat_map(|it| &it.addresses).peekable();
        if addresses.peek().is_none() {
            return Err(Ignored::NotOurs);
        }
        let (status, message) = match addresses.all(|&address| self.network.scope(address).is_some()) {
            true => (Status::Success, "all addresses are of this link"),
            false => NOT_ON_LINK,
        };
        let mut reply = self.reply(MessageType::Reply);
        reply.status(status, message);
        Ok(vec![self.send(reply)])
    }

    /// Answers RELEASE and DECLINE.
    fn give_back(self, duid: &Duid, state: LeaseState) -> Vec<Action> {
        let mut reply = self.reply(MessageType::Reply);
        reply.status(Status::Success, "");
        let (mut kept, mut told) = (Vec::new(), Vec::new());
        for asked in &self.packet.associations {
            let mut known = false;
            for &address in asked.addresses.iter().filter(|_| asked.kind == Kind::Address) {
                let Some(mut lease) = self.own(duid, asked, address).cloned() else { continue };
                if lease.duid.is_forgotten() {
                    (lease.duid, lease.iaid) = (duid.clone(), asked.iaid);
                }
                let seconds =
                    if state == LeaseState::Quarantined { self.config.quarantine_seconds } else { 0 };
                lease.state = state;
                lease.granted = self.now;
                lease.expires = self.now.plus_seconds(seconds);
                lease.acknowledged = false;
                known = true;
                self.table.insert(lease.clone());
                kept.push(Action::Persist(lease.clone()));
                told.push(Action::Report(match state {
                    LeaseState::Quarantined => Event::Conflict(lease),
                    _ => Event::Released(lease),
                }));
            }
            if !known {
                reply.association(asked, &[], Some(NO_BINDING));
            }
        }
        kept.push(self.send(reply));
        kept.extend(told);
        kept
    }

    /// Answers an INFORMATION-REQUEST: a host with its own addresses asks for options (§18.3.6).
    fn inform(self) -> Answer {
        if !self.packet.associations.is_empty() {
            return Err(Ignored::Identifiers("wants no addresses"));
        }
        if !self.served {
            return Err(Ignored::UnknownClient);
        }
        let mut reply = self.reply(MessageType::Reply);
        self.configuration(&mut reply, self.network.home);
        Ok(vec![self.send(reply)])
    }

    /// An address for each association that asks for one.
    fn assigned(&self, duid: &Duid) -> Vec<Outcome<'a>> {
        let mut taken = Vec::new();
        let outcome = |asked: &'a Association| match asked.kind {
            Kind::Temporary => Outcome::nothing(asked, NO_TEMPORARY),
            Kind::Prefix => Outcome::nothing(asked, NO_PREFIX),
            Kind::Address => match self.choose(duid, asked, &taken) {
                None => Outcome::nothing(asked, NO_ADDRESS),
                Some(address) => {
                    taken.push(address);
                    Outcome { asked, granted: Some(address), withdrawn: Vec::new(), status: None }
                }
            },
        };
        self.packet.associations.iter().map(outcome).collect()
    }

    /// Stores the granted leases and sends the reply.
    fn granted(self, duid: &Duid, mut reply: Reply, outcomes: Vec<Outcome<'a>>) -> Vec<Action> {
        let scope = self.write(duid, &mut reply, &outcomes);
        let boot = self.configuration(&mut reply, scope);
        let send = self.send(reply);
        let mut told = self.refused(duid, &outcomes);
        let mut actions = Vec::new();
        // Build all leases before the table changes: making room for one may remove the record of another.
        let granted = outcomes.iter().filter_map(|outcome| {
            let address = outcome.granted?;
            let renewed = self.own(duid, outcome.asked, address).is_some();
            Some((self.lease(duid, outcome.asked.iaid, address), renewed))
        });
        let granted: Vec<(Lease, bool)> = granted.collect();
        for (lease, renewed) in granted {
            let address = lease.address;
            self.table.make_room(self.now, address);
            self.table.insert(lease.clone());
            actions.push(Action::Persist(lease.clone()));
            told.push(Action::Report(Event::Leased { lease, renewed }));
            if let Some((client, url)) = &boot {
                let mac = self.heard;
                let (duid, client, url) = (duid.clone(), *client, url.clone());
                told.push(Action::Report(Event::Boot { duid, mac, address, client, url }));
            }
        }
        let network = &self.network;
        for scope in &network.scopes {
            self.table.walk(&scope.subnet.dynamic, |address| network.is_dynamic(address));
        }
        actions.push(send);
        actions.extend(told);
        actions
    }

    /// Writes the result of each association. Returns the subnet that the other options are taken from.
    fn write(&self, duid: &Duid, reply: &mut Reply, outcomes: &[Outcome<'_>]) -> &'a Scope {
        for outcome in outcomes {
            let granted = outcome.granted.map(|address| (address, self.lease_seconds(duid, address)));
            let withdrawn = outcome.withdrawn.iter().map(|&address| (address, 0));
            let addresses: Vec<_> = granted.into_iter().chain(withdrawn).collect();
            reply.association(outcome.asked, &addresses, outcome.status);
        }
        let first = outcomes.iter().find_map(|it| it.granted);
        first.and_then(|address| self.network.scope(address)).unwrap_or(self.network.home)
    }

    fn refused(&self, duid: &Duid, outcomes: &[Outcome<'_>]) -> Vec<Action> {
        let statuses = outcomes.iter().filter(|it| it.asked.kind == Kind::Address).filter_map(|it| it.status);
        let reason = |(status, words)| match status {
            Status::NoAddrsAvail => self.without_address(duid),
            _ => Refusal::Asked(words),
        };
        let event = |status| Event::Refused { duid: duid.clone(), mac: self.mac, reason: reason(status) };
        statuses.map(|status| Action::Report(event(status))).collect()
    }

    /// The reason why the client gets no address.
    fn without_address(&self, duid: &Duid) -> Refusal {
        let network = &self.network;
        let mut giving = network.scopes.iter().filter(|scope| !scope.subnet.dynamic.is_empty());
        let Some(cidr) = giving.next().map(|scope| scope.subnet.cidr) else {
            return Refusal::NoDynamic(network.home.subnet.cidr);
        };
        if self.withheld {
            Refusal::Withheld
        } else if self.is_sated(duid) {
            Refusal::TooMany
        } else if self.table.is_full(self.now) {
            Refusal::NoRoom(cidr)
        } else if self.table.rests(self.now, |address| network.is_dynamic(address)) {
            Refusal::SomeRest(cidr)
        } else {
            Refusal::NoFreeAddress(cidr)
        }
    }

    /// The address for an association, from the first of these that is possible: reserved, current, previous, asked
    /// for, never used, longest unused.
    fn choose(&self, duid: &Duid, asked: &Association, taken: &[Ipv6Addr]) -> Option<Ipv6Addr> {
        let reserved = self.network.reservations(duid, self.mac).map(|it| it.address);
        let mut reserved = reserved.filter(|address| !taken.contains(address));
        if let Some(reserved) = reserved.find(|&address| self.is_free_for_owner(duid, asked.iaid, address)) {
            return Some(reserved);
        }
        let dynamic = |address: Ipv6Addr| {
            self.network.is_dynamic(address)
                && !taken.contains(&address)
                && self.table.available(self.now, address, self.who(duid, asked.iaid))
        };
        let is_own = |lease: &&Lease| lease.is_of(self.who(duid, asked.iaid)) && dynamic(lease.address);
        let forgotten = Duid::forgotten(self.mac);
        let own = self.table.of(duid).chain(self.table.of(&forgotten)).filter(is_own);
        let own = own.max_by_key(|lease| (lease.is_live(self.now), lease.expires));
        if let Some(lease) = own.filter(|lease| !self.withheld || lease.is_live(self.now)) {
            return Some(lease.address);
        }
        if self.withheld || self.is_sated(duid) {
            return None;
        }
        let room = |address: Ipv6Addr| dynamic(address) && self.table.has_room(self.now, address);
        let hint = asked.addresses.iter().copied().find(|&address| room(address));
        let ranges = || -> Vec<AddressRange> {
            self.network.scopes.iter().flat_map(|scope| scope.subnet.dynamic.iter().copied()).collect()
        };
        hint.or_else(|| self.table.never_used(self.now, &ranges(), (duid, asked.iaid), dynamic))
            .or_else(|| self.table.longest_ended(self.now, dynamic))
    }

    fn verdict(&self, duid: &Duid, asked: &Association, address: Ipv6Addr) -> Verdict {
        if asked.kind != Kind::Address {
            return Verdict::Unknown;
        }
        let Some(scope) = self.network.scope(address) else {
            // Another rack may know this subnet already. Do not end its client's lease.
            return if self.packet.kind == MessageType::Rebind {
                Verdict::Unknown
            } else {
                Verdict::Withdraw
            };
        };
        match scope.owner(address) {
            Some(owner) if !owner.is_of(duid, self.mac) => return Verdict::Withdraw,
            Some(_) if self.is_free_for_owner(duid, asked.iaid, address) => return Verdict::Grant,
            Some(_) => return Verdict::Withdraw,
            None => {}
        }
        if !self.table.available(self.now, address, self.who(duid, asked.iaid)) {
            return Verdict::Withdraw;
        }
        let mut reserved = self.network.reservations(duid, self.mac);
        if reserved.any(|it| self.is_free_for_owner(duid, asked.iaid, it.address)) {
            return Verdict::Withdraw;
        }
        let own = self.own(duid, asked, address).is_some();
        match self.network.is_dynamic(address) {
            true if own => Verdict::Grant,
            true if !self.withheld && self.table.has_room(self.now, address) && !self.is_sated(duid) => {
                Verdict::Grant
            }
            false if own => Verdict::Withdraw,
            _ => Verdict::Unknown,
        }
    }

    /// True if the client holds the most addresses of this link that one client may have.
    fn is_sated(&self, duid: &Duid) -> bool {
        let is_its = |lease: &Lease| lease.mac == self.mac && self.network.scope(lease.address).is_some();
        self.table.is_sated(self.now, duid, is_its)
    }

    fn who<'b>(&self, duid: &'b Duid, iaid: u32) -> Who<'b> {
        let has_it = HAS_IT.contains(&self.packet.kind);
        Who { duid, iaid, heard: self.heard, mac: self.mac, has_it }
    }

    /// True if the reserved address may be leased to its client, even if another lease of the client has it. Two cases
    /// need this:
    ///
    /// - Boot ROM and installed system have different DUIDs; the one takes over the lease of the other.
    /// - Parts of one firmware have different associations (EDK2, if router advertisements have the managed flag).
    ///
    /// Another interface of the same host, with the same DUID, does not get the address too. This server's own address is
    /// never free: a reservation may be older.
    fn is_free_for_owner(&self, duid: &Duid, iaid: u32, address: Ipv6Addr) -> bool {
        if self.network.is_own(address) {
            return false;
        }
        let owner = self.network.scope(address).and_then(|scope| scope.owner(address));
        // A reservation by DUID is for one host with all of its interfaces.
        let is_by_duid = owner.is_some_and(|owner| matches!(owner.client, Client::Duid(_)));
        let heard = self.heard.filter(|_| !is_by_duid);
        self.table.available(self.now, address, Who { heard, ..self.who(duid, iaid) })
            || self.table.get(address).is_some_and(|lease| {
                let same_interface = lease.mac_heard && self.heard.is_some_and(|mac| lease.mac == Some(mac));
                lease.state == LeaseState::Bound
                    && (lease.duid != *duid || same_interface)
                    && (owner.is_some_and(|owner| owner.is_of(&lease.duid, lease.mac))
                        || (is_by_duid && self.may_be_its(lease)))
            })
    }

    /// True if the region reported the lease without its DUID, and no hardware address shows that it is another
    /// client's.
    fn may_be_its(&self, lease: &Lease) -> bool {
        let is_anothers = lease.mac.zip(self.mac).is_some_and(|(its, mac)| its != mac);
        lease.duid.is_forgotten() && !is_anothers
    }

    /// The association's live record of this address.
    fn own(&self, duid: &Duid, asked: &Association, address: Ipv6Addr) -> Option<&Lease> {
        let is_bound = |lease: &&Lease| lease.state == LeaseState::Bound && lease.is_live(self.now);
        self.table.get(address).filter(is_bound).filter(|lease| lease.is_of(self.who(duid, asked.iaid)))
    }

    /// The earlier record of this client at this address.
    fn known(&self, duid: &Duid, address: Ipv6Addr) -> Option<&Lease> {
        self.table.get(address).filter(|lease| lease.duid == *duid && lease.mac == self.mac)
    }

    fn lease(&self, duid: &Duid, iaid: u32, address: Ipv6Addr) -> Lease {
        let known = self.known(duid, address);
        let subnet = self.network.scope(address).unwrap_or(self.network.home);
        Lease {
            address,
            duid: duid.clone(),
            iaid,
            mac: self.mac,
            mac_heard: self.heard.is_some(),
            subnet: subnet.subnet.id.clone(),
            hostname: self.hostname().or_else(|| known.and_then(|lease| lease.hostname.clone())),
            state: LeaseState::Bound,
            granted: self.now,
            expires: self.now.plus_seconds(self.lease_seconds(duid, address)),
            acknowledged: known.is_some_and(|lease| lease.acknowledged),
        }
    }

    fn lease_seconds(&self, duid: &Duid, address: Ipv6Addr) -> u32 {
        let scope = self.network.scope(address).unwrap_or(self.network.home);
        let known = self.known(duid, address).is_some_and(|lease| lease.acknowledged);
        let whole = scope.subnet.lease_seconds;
        if known { whole } else { whole.min(self.config.unacknowledged_seconds) }
    }

    /// The host name that the client sent: the labels of option 39.
    fn hostname(&self) -> Option<String> {
        let (_, mut rest) = self.packet.options.raw(OptionCode::ClientFqdn)?.split_first()?;
        let mut labels = Vec::new();
        while let Some((&length, tail)) = rest.split_first().filter(|(length, _)| **length > 0) {
            let (label, tail) = tail.split_at_checked(usize::from(length))?;
            labels.push(std::str::from_utf8(label).ok().filter(|it| !it.chars().any(char::is_control))?);
            rest = tail;
        }
        Some(labels.join(".")).filter(|name| (1..=MAX_HOSTNAME).contains(&name.len()))
    }

    fn reply(&self, kind: MessageType) -> Reply {
        Reply::to(self.packet, kind, self.server)
    }

    /// Writes all options other than addresses. Returns the boot client and the URL that it was given.
    fn configuration(&self, reply: &mut Reply, scope: &Scope) -> Option<(BootClient, String)> {
        let (packet, subnet) = (self.packet, &scope.subnet);
        if packet.wants(OptionCode::DomainNameServers) {
            reply.addresses(OptionCode::DomainNameServers, &subnet.dns_servers);
        }
        if packet.wants(OptionCode::DomainSearchList) && !subnet.search.is_empty() {
            reply.option(OptionCode::DomainSearchList, &reply::names(&subnet.search));
        }
        if packet.wants(OptionCode::NtpServer) {
            reply.ntp(&subnet.ntp_servers);
        }
        if packet.wants(OptionCode::SntpServers) {
            reply.addresses(OptionCode::SntpServers, &subnet.ntp_servers);
        }
        let reservation = self.duid.as_ref().and_then(|duid| scope.reservation(duid, self.mac));
        let hostname = reservation.and_then(|it| it.hostname.as_ref());
        if let (Some(name), Some(asked)) = (hostname, packet.options.raw(OptionCode::ClientFqdn)) {
            let flags = asked.first().copied().unwrap_or_default();
            let overridden = if flags & FQDN_S == 0 { 0 } else { FQDN_O };
            let mut value = vec![FQDN_N | overridden];
            reply::labels(&mut value, name);
            if name.contains('.') {
                value.push(0);
            }
            reply.option(OptionCode::ClientFqdn, &value);
        }
        let client = boot::client(packet)?;
        let is_over_infiniband = || super::identity::infiniband(packet).is_some();
        if client.other_architecture(self.declared).is_some() || is_over_infiniband() {
            return None;
        }
        let (url, class) =
            boot::answer(packet, client, &subnet.boot, self.network.address(scope)?, self.mac)?;
        reply.option(OptionCode::OptBootfileUrl, url.as_bytes());
        if let Some(class) = class {
            reply.option(OptionCode::VendorClass, &class);
        }
        Some((client, url))
    }

    /// Answers that the client must use multicast (§18.4): it was not given the Server Unicast option.
    fn by_multicast(self) -> Action {
        let mut reply = self.reply(MessageType::Reply);
        reply.status(Status::UseMulticast, "ask all servers");
        self.send(reply)
    }

    /// Sends the reply back to the client or the relay (§18.3.10, §19.3).
    fn send(&self, reply: Reply) -> Action {
        let to = match self.packet.relays.is_empty() {
            true => Destination::Client(self.via.from),
            false => Destination::Relay(self.via.from),
        };
        Action::Send { via: self.via, to, bytes: reply.wrapped(self.packet) }
    }
}
