//! Subnets without free addresses. They are logged and reported to regions as the health of `addresses CIDR`.
//!
//! A shortage ends when addresses are free again and no client was refused for a minute. Otherwise each lease that ends
//! and goes to the next client would be reported. A wider range ends the shortage at once.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use basalt_dhcp::v6::{self, MAX_LEASES, Refusal};
use basalt_dhcp::{BootMode, Event, Ignored, Occupancy, Server, Time};
use ipnet::IpNet;

use crate::health::Health;
use crate::spool::writer::Facts;

/// How often a lasting shortage is logged again.
const AGAIN: Duration = Duration::from_secs(300);
/// How long no client may have been refused before a shortage ends.
const CALM: Duration = Duration::from_secs(60);

/// A server that leases addresses.
pub(crate) trait Gives {
    /// True if it can store another lease, of any subnet.
    fn has_room(&self, time: Time) -> bool;

    /// The subnets that it leases addresses from, with their ranges as text.
    fn ranges(&self) -> BTreeMap<IpNet, String>;

    /// The use of a subnet's addresses.
    fn taken(&self, time: Time, net: IpNet) -> Option<Occupancy>;
}

impl Gives for Server {
    fn has_room(&self, _: Time) -> bool {
        true
    }

    fn ranges(&self) -> BTreeMap<IpNet, String> {
        let subnets = self.config().subnets.iter().filter(|it| it.boot.mode != BootMode::Proxy);
        let words = |it: &basalt_dhcp::Subnet| in_words(it.dynamic.iter().map(|it| (it.start, it.end)));
        subnets.filter(|it| !it.dynamic.is_empty()).map(|it| (it.cidr.into(), words(it))).collect()
    }

    fn taken(&self, time: Time, net: IpNet) -> Option<Occupancy> {
        let IpNet::V4(net) = net else { return None };
        self.occupancy(time, net)
    }
}

impl Gives for v6::Server {
    fn has_room(&self, time: Time) -> bool {
        v6::Server::has_room(self, time)
    }

    fn ranges(&self) -> BTreeMap<IpNet, String> {
        let words = |it: &v6::Subnet| in_words(it.dynamic.iter().map(|it| (it.start, it.end)));
        let subnets = self.config().subnets.iter().filter(|it| !it.dynamic.is_empty());
        subnets.map(|it| (it.cidr.into(), words(it))).collect()
    }

    fn taken(&self, time: Time, net: IpNet) -> Option<Occupancy> {
        let IpNet::V6(net) = net else { return None };
        self.occupancy(time, net)
    }
}

/// The state of every subnet that this rack leases addresses from.
#[derive(Debug)]
pub(crate) struct Shortages {
    facts: Facts,
    subnets: BTreeMap<IpNet, State>,
}

#[derive(Debug)]
struct State {
    health: Health,
    /// When a client was last refused, and why; `None` without a shortage.
    refused: Option<(Instant, Lack)>,
    said: Option<Instant>,
}

/// The reason why a client got no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The subnet has no free address.
    Addresses(IpNet),
    /// The server can store no more leases. Leases of all subnets count, so this subnet may have free addresses.
    Room(IpNet),
}

impl Lack {
    /// The client's subnet.
    pub(crate) const fn net(self) -> IpNet {
        match self {
            Self::Addresses(net) | Self::Room(net) => net,
        }
    }
}

/// The shortage that an event reports, if any.
pub(super) fn of(event: &Event) -> Option<Lack> {
    match event {
        Event::Ignored { reason: Ignored::NoFreeAddress(net) | Ignored::SomeRest(net), .. } => {
            Some(Lack::Addresses((*net).into()))
        }
        _ => None,
    }
}

/// The shortage that a DHCPv6 refusal reports, if any.
pub(crate) fn of_v6(refusal: Refusal) -> Option<Lack> {
    match refusal {
        Refusal::NoFreeAddress(net) | Refusal::SomeRest(net) => Some(Lack::Addresses(net.into())),
        Refusal::NoRoom(net) => Some(Lack::Room(net.into())),
        Refusal::NoDynamic(_) | Refusal::TooMany | Refusal::Withheld | Refusal::Asked(_) => None,
    }
}

impl Shortages {
    pub(crate) const fn new(facts: Facts) -> Self {
        Self { facts, subnets: BTreeMap::new() }
    }

    /// Notes that a client got no address. The subnet's records are counted only when the shortage is logged or its
    /// reason changes.
    pub(crate) fn refused(&mut self, server: &impl Gives, lack: Lack, time: Time, now: Instant) {
        let net = lack.net();
        let state = self.state(net);
        let is_news = state.refused.replace((now, lack)).is_none_or(|(_, before)| before != lack);
        let is_due = state.said.is_none_or(|said| now.duration_since(said) >= AGAIN);
        if !is_news && !is_due {
            return;
        }
        let (Some(ranges), Some(occupancy)) = (server.ranges().remove(&net), server.taken(time, net)) else {
            return;
        };
        let words = words(lack, &ranges, &occupancy);
        state.health.lacks(&words);
        if is_due {
            state.said = Some(now);
            let Occupancy { addresses, leased, offered, resting, kept } = occupancy;
            tracing::warn!(subnet = %net, ranges, addresses, leased, offered, resting, kept, "{words}");
        }
    }

    /// Ends shortages of subnets that have addresses again, and adds new subnets.
    pub(crate) fn look(&mut self, server: &impl Gives, time: Time, now: Instant, is_reconfigured: bool) {
        if !is_reconfigured && self.subnets.values().all(|state| state.refused.is_none()) {
            return;
        }
        let gives = server.ranges();
        if is_reconfigured {
            // A report from before a restart is ended, or repeated.
            for net in gives.keys() {
                self.state(*net);
            }
        }
        self.subnets.retain(|net, state| {
            let still_gives = gives.contains_key(net);
            let is_calm =
                state.refused.is_none_or(|(at, _)| is_reconfigured || now.duration_since(at) >= CALM);
            let has_some =
                || server.has_room(time) && server.taken(time, *net).is_some_and(|it| it.free() > 0);
            if !still_gives || (is_calm && (state.refused.is_none() || has_some())) {
                state.health.up();
                if state.refused.take().is_some() {
                    tracing::info!(subnet = %net, "there are free addresses again");
                }
            }
            still_gives
        });
    }

    fn state(&mut self, net: IpNet) -> &mut State {
        let facts = &self.facts;
        self.subnets.entry(net).or_insert_with(|| State {
            health: Health::new(format!("{}{net}", basalt_proto::ADDRESSES), facts.clone()),
            refused: None,
            said: None,
        })
    }
}

/// The use of the addresses and advice for the operator. A wider range does not help against addresses that other hosts
/// use.
fn words(lack: Lack, ranges: &str, of: &Occupancy) -> String {
    let net = match lack {
        Lack::Addresses(net) => net,
        Lack::Room(net) => {
            return format!(
                "no address of {net} is given: this rack keeps no more than {MAX_LEASES} leases of IPv6 at once, of all its subnets together, \
                 and all of them run ({} of this one); shorten lease_time of its Vlans, or have other racks answer on some of them",
                of.leased
            );
        }
    };
    let mut taken = Vec::new();
    for (count, by) in [
        (of.leased, "leased"),
        (of.offered, "offered to clients that have not taken them"),
        (of.kept, "kept for clients whose leases have ended"),
        (of.resting, "out of use, since other hosts were found using them"),
    ] {
        if count > 0 {
            taken.push(format!("{count} {by}"));
        }
    }
    let wider = "widen the dynamic IpRanges of the Subnet, or shorten lease_time of its Vlan";
    let hosts = "find the hosts that use addresses without a lease (alarms address_conflict name them), and take those addresses out of the \
                 dynamic IpRanges or declare the hosts as Devices";
    let to_do = match (of.resting, of.addresses.saturating_sub(of.resting)) {
        (0, _) => wider.to_owned(),
        (_, 0) => hosts.to_owned(),
        _ => format!("{hosts}; or {wider}"),
    };
    if of.addresses == 0 {
        return format!(
            "no address of {net} is free: those of {ranges} are reserved, the gateway's or this rack's; {wider}"
        );
    }
    let taken = taken.join(", ");
    format!("no address of {net} is free: of {} in {ranges}, {taken}; {to_do}", of.addresses)
}

fn in_words(ranges: impl Iterator<Item = (impl fmt::Display, impl fmt::Display)>) -> String {
    let ranges: Vec<String> = ranges.map(|(start, end)| format!("{start}-{end}")).collect();
    ranges.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::spool::{Limits, writer};
    use basalt_dhcp::{AddressRange, Arrival, Config, LeaseState, Mac, Subnet, egress, ingress};
    use basalt_proto::rack_v1::{Fact, fact::Body};
    use dhcproto::v4::{MessageType, OptionCode};
    use std::net::{Ipv4Addr, Ipv6Addr};

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
    const TIME: Time = Time(1_700_000_000_000);

    fn ip(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, last)
    }

    fn config(last: u8) -> Config {
        let mut subnet = Subnet::new("s1", "10.77.0.0/24".parse().unwrap());
        subnet.dynamic.push(AddressRange { start: ip(100), end: ip(last) });
        Config { subnets: vec![subnet], ..Config::default() }
    }

    fn ask(server: &mut Server, kind: MessageType, client: u8, address: Option<Ipv4Addr>) -> Vec<Event> {
        let mut message = egress::Message::request(kind, 7, Mac([2, 0, 0, 0, 0, client]));
        if let Some(address) = address {
            message.option(OptionCode::RequestedIpAddress, address.octets());
            message.option(OptionCode::ServerIdentifier, SERVER.octets());
        }
        let via = Arrival { interface: 1, local: SERVER, unicast: false };
        let actions = server.handle(TIME, via, &ingress::parse(&message.encode()).unwrap());
        let event = |action| match action {
            basalt_dhcp::Action::Report(event) => Some(event),
            _ => None,
        };
        actions.into_iter().filter_map(event).collect()
    }

    fn lease(server: &mut Server, client: u8, address: Ipv4Addr) {
        ask(server, MessageType::Discover, client, None);
        ask(server, MessageType::Request, client, Some(address));
    }

    #[test]
    fn what_takes_the_addresses_decides_what_is_advised() {
        let (net, ranges) = Server::new(config(102)).unwrap().ranges().pop_first().unwrap();
        let said = |leased, resting| {
            let of = Occupancy { addresses: 3, leased, resting, ..Occupancy::default() };
            words(Lack::Addresses(net), &ranges, &of)
        };
        assert_eq!(
            said(3, 0),
            "no address of 10.77.0.0/24 is free: of 3 in 10.77.0.100-10.77.0.102, 3 leased; widen the dynamic IpRanges of the Subnet, \
             or shorten lease_time of its Vlan"
        );
        assert!(said(0, 3).contains("3 out of use") && !said(0, 3).contains("widen"), "{}", said(0, 3));
        let both = said(2, 1);
        assert!(both.contains("2 leased, 1 out of use") && both.contains("find the hosts"), "{both}");
        assert!(
            both.ends_with(
                "; or widen the dynamic IpRanges of the Subnet, or shorten lease_time of its Vlan"
            ),
            "{both}"
        );
    }

    #[test]
    fn of_ipv6_it_is_said_likewise_and_a_table_that_is_full_is_no_reason_for_a_wider_range() {
        let mut subnet = v6::Subnet::new("s6", "2001:db8::/64".parse().unwrap());
        let range = ["2001:db8::100", "2001:db8::101"].map(|it| it.parse().unwrap());
        subnet.dynamic.push(v6::AddressRange { start: range[0], end: range[1] });
        let config = v6::Config { subnets: vec![subnet], ..v6::Config::default() };
        let server = v6::Server::new(v6::Duid::of_uuid([7; 16]), config).unwrap();
        let (net, ranges) = server.ranges().pop_first().unwrap();
        assert_eq!(server.taken(TIME, net).unwrap().free(), 2);
        let said = |lack: Lack, leased| {
            words(lack, &ranges, &Occupancy { addresses: 2, leased, ..Occupancy::default() })
        };
        assert_eq!(
            said(Lack::Addresses(net), 2),
            "no address of 2001:db8::/64 is free: of 2 in 2001:db8::100-2001:db8::101, 2 leased; widen the dynamic IpRanges of the Subnet, \
             or shorten lease_time of its Vlan"
        );
        assert_eq!(
            said(Lack::Room(net), 1),
            "no address of 2001:db8::/64 is given: this rack keeps no more than 65536 leases of IPv6 at once, of all its subnets together, \
             and all of them run (1 of this one); shorten lease_time of its Vlans, or have other racks answer on some of them"
        );
    }

    #[tokio::test]
    async fn a_full_subnet_is_told_once_until_it_has_addresses_again() {
        let dir = tempfile::tempdir().unwrap();
        let (facts, spool) = writer::start(dir.path(), Limits::default(), Clock::default()).unwrap();
        let mut server = Server::new(config(100)).unwrap();
        let (mut shortages, start) = (Shortages::new(facts.clone()), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        shortages.look(&server, TIME, start, true);
        lease(&mut server, 1, ip(100));
        let refused = ask(&mut server, MessageType::Discover, 2, None);
        let lack = refused.iter().find_map(of).unwrap();
        for second in 0..9 {
            shortages.refused(&server, lack, TIME, after(second));
        }
        shortages.look(&server, TIME, after(100), false);
        let later = TIME + Duration::from_secs(601);
        shortages.look(&server, later, after(40), false);
        // Its lease has ended, and no client was refused for a minute.
        shortages.look(&server, later, after(69), false);
        shortages.refused(&server, lack, TIME, after(80));
        server.set_config(TIME, config(101)).unwrap();
        shortages.look(&server, TIME, after(81), true);
        let told = told(&facts, 5, "addresses 10.77.0.0/24").await;
        let ok: Vec<bool> = told.into_iter().map(|(ok, _)| ok).collect();
        assert_eq!(ok, [true, false, true, false, true]);
        spool.stop().await;
    }

    /// The first `count` reports about a service: if it was well, and the text.
    async fn told(facts: &Facts, count: usize, service: &str) -> Vec<(bool, String)> {
        let mut durable = facts.durable();
        let told = loop {
            durable.borrow_and_update();
            let told = facts.read(1).await.unwrap();
            if told.len() >= count {
                break told;
            }
            durable.changed().await.unwrap();
        };
        let of = |fact: Fact| match fact.body {
            Some(Body::Health(health)) if health.service == service => (health.ok, health.message),
            other => panic!("{other:?}"),
        };
        told.into_iter().map(of).collect()
    }

    /// Clients of this subnet have the most leases that the server stores.
    fn filled(server: &mut v6::Server, subnet: &str) {
        let lease = |number: u32| v6::Lease {
            address: Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(0x1_0000 + number)),
            duid: v6::Duid::of_uuid(u128::from(number).to_be_bytes()),
            iaid: 1,
            mac: None,
            mac_heard: false,
            subnet: subnet.into(),
            hostname: None,
            state: LeaseState::Bound,
            granted: TIME,
            expires: TIME + Duration::from_secs(600),
            acknowledged: true,
        };
        server.restore((0..u32::try_from(MAX_LEASES).unwrap()).map(lease));
    }

    #[tokio::test]
    async fn where_clients_of_another_subnet_take_all_the_room_no_wider_range_is_advised() {
        let dir = tempfile::tempdir().unwrap();
        let (facts, spool) = writer::start(dir.path(), Limits::default(), Clock::default()).unwrap();
        let (vast, small) = ("2001:db8::/64".parse().unwrap(), "2001:db8:1::/64".parse().unwrap());
        let range = |start: &str, end: &str| v6::AddressRange {
            start: start.parse().unwrap(),
            end: end.parse().unwrap(),
        };
        let mut subnets = vec![v6::Subnet::new("vast", vast), v6::Subnet::new("small", small)];
        subnets[0].dynamic.push(range("2001:db8::1:0", "2001:db8::ffff:ffff"));
        subnets[1].dynamic.push(range("2001:db8:1::100", "2001:db8:1::1ff"));
        let config = v6::Config { subnets, ..v6::Config::default() };
        let mut server = v6::Server::new(v6::Duid::of_uuid([7; 16]), config).unwrap();
        server.set_links(BTreeMap::from([(2, vec!["2001:db8:1::2".parse().unwrap()])]));
        filled(&mut server, "vast");
        // A SOLICIT of DUID 00:04:07 for one address.
        let solicit = [1, 1, 2, 3, 0, 1, 0, 3, 0, 4, 7, 0, 3, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let via = v6::Arrival { interface: 2, from: "fe80::1".parse().unwrap(), to: None };
        let answer = server.handle(TIME, via, &v6::ingress::parse(&solicit).unwrap());
        let refusal = answer.iter().find_map(|action| match action {
            v6::Action::Report(v6::Event::Refused { reason, .. }) => Some(*reason),
            _ => None,
        });
        let lack = of_v6(refusal.unwrap()).unwrap();
        assert_eq!(lack, Lack::Room(small.into()));
        let (mut shortages, start) = (Shortages::new(facts.clone()), Instant::now());
        shortages.refused(&server, lack, TIME, start);
        // No client was refused for a minute, and the subnet's addresses are free, but the server can store no more
        // leases.
        shortages.look(&server, TIME, start + Duration::from_secs(90), false);
        shortages.refused(&server, lack, TIME, start + Duration::from_secs(100));
        shortages.look(&server, TIME + Duration::from_secs(601), start + Duration::from_secs(700), false);
        let told = told(&facts, 2, "addresses 2001:db8:1::/64").await;
        assert_eq!(told.iter().map(|(ok, _)| *ok).collect::<Vec<_>>(), [false, true]);
        let words = &told[0].1;
        assert!(words.contains("keeps no more than 65536 leases") && !words.contains("widen"), "{words}");
        assert!(words.contains("(0 of this one)"), "{words}");
        spool.stop().await;
    }
}
