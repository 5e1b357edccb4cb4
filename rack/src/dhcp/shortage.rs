//! Subnets whose addresses are all taken: said where this rack logs, and told to regions as the health of `addresses CIDR`.
//!
//! It is over when addresses are free again and nobody has gone without for a minute: otherwise each lease that ends and goes to the
//! next client would be news. A range that was widened ends it at once.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use basalt_dhcp::v6::{self, MAX_LEASES, Refusal};
use basalt_dhcp::{BootMode, Event, Ignored, Occupancy, Server, Time};
use ipnet::IpNet;

use crate::health::Health;
use crate::spool::writer::Facts;

/// How often it is said of a subnet for which it stays so.
const AGAIN: Duration = Duration::from_secs(300);
/// For how long nobody has to have gone without an address.
const CALM: Duration = Duration::from_secs(60);

/// A server that gives addresses.
pub(crate) trait Gives {
    /// It has no more addresses of one subnet to give than these, however many the ranges have.
    const MOST: u64;

    /// The subnets of which it gives addresses, each with its ranges in words.
    fn ranges(&self) -> BTreeMap<IpNet, String>;

    /// What those of a subnet are taken by.
    fn taken(&self, time: Time, net: IpNet) -> Option<Occupancy>;
}

impl Gives for Server {
    const MOST: u64 = u64::MAX;

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
    const MOST: u64 = MAX_LEASES as u64;

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

/// How the subnets are from which this rack gives addresses.
#[derive(Debug)]
pub(crate) struct Shortages {
    facts: Facts,
    subnets: BTreeMap<IpNet, State>,
}

#[derive(Debug)]
struct State {
    health: Health,
    /// When a client last got none, if it is short.
    refused: Option<Instant>,
    said: Option<Instant>,
}

/// The subnet for which a client got no address since none is free.
pub(super) fn of(event: &Event) -> Option<IpNet> {
    match event {
        Event::Ignored { reason: Ignored::NoFreeAddress(net) | Ignored::SomeRest(net), .. } => {
            Some((*net).into())
        }
        _ => None,
    }
}

/// That of IPv6.
pub(crate) fn of_v6(refusal: Refusal) -> Option<IpNet> {
    match refusal {
        Refusal::NoFreeAddress(net) | Refusal::SomeRest(net) | Refusal::NoRoom(net) => Some(net.into()),
        Refusal::NoDynamic(_) | Refusal::TooMany | Refusal::Withheld | Refusal::Asked(_) => None,
    }
}

impl Shortages {
    pub(crate) const fn new(facts: Facts) -> Self {
        Self { facts, subnets: BTreeMap::new() }
    }

    /// A client got no address. The subnet's records are counted no more often than this is said.
    pub(crate) fn refused<S: Gives>(&mut self, server: &S, net: IpNet, time: Time, now: Instant) {
        let state = self.state(net);
        let is_news = state.refused.replace(now).is_none();
        let is_due = state.said.is_none_or(|said| now.duration_since(said) >= AGAIN);
        if !is_news && !is_due {
            return;
        }
        let (Some(ranges), Some(occupancy)) = (server.ranges().remove(&net), server.taken(time, net)) else {
            return;
        };
        let words = words::<S>(net, &ranges, &occupancy);
        state.health.lacks(&words);
        if is_due {
            state.said = Some(now);
            let Occupancy { addresses, leased, offered, resting, kept } = occupancy;
            tracing::warn!(subnet = %net, ranges, addresses, leased, offered, resting, kept, "{words}");
        }
    }

    /// Looks at which subnets have addresses again, and at which were added.
    pub(crate) fn look(&mut self, server: &impl Gives, time: Time, now: Instant, is_reconfigured: bool) {
        if !is_reconfigured && self.subnets.values().all(|state| state.refused.is_none()) {
            return;
        }
        let gives = server.ranges();
        if is_reconfigured {
            // What was said of them before a start is so no longer, or is said again.
            for net in gives.keys() {
                self.state(*net);
            }
        }
        self.subnets.retain(|net, state| {
            let still_gives = gives.contains_key(net);
            let is_calm = state.refused.is_none_or(|at| is_reconfigured || now.duration_since(at) >= CALM);
            let has_some = || server.taken(time, *net).is_some_and(|it| it.free() > 0);
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

/// What takes the addresses, and what helps: addresses that other hosts use are no reason for a wider range.
fn words<S: Gives>(net: IpNet, ranges: &str, of: &Occupancy) -> String {
    if of.addresses >= S::MOST {
        return format!(
            "no address of {net} is given: this rack keeps no more than {} leases of IPv6 at once, and all of them run; shorten lease_time of \
             the Vlan, or have another rack answer there",
            S::MOST
        );
    }
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
    use basalt_dhcp::{AddressRange, Arrival, Config, Mac, Subnet, egress, ingress};
    use basalt_proto::rack_v1::fact::Body;
    use dhcproto::v4::{MessageType, OptionCode};
    use std::net::Ipv4Addr;

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
            words::<Server>(
                net,
                &ranges,
                &Occupancy { addresses: 3, leased, resting, ..Occupancy::default() },
            )
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
        let said = |addresses, leased| {
            words::<v6::Server>(net, &ranges, &Occupancy { addresses, leased, ..Occupancy::default() })
        };
        assert_eq!(
            said(2, 2),
            "no address of 2001:db8::/64 is free: of 2 in 2001:db8::100-2001:db8::101, 2 leased; widen the dynamic IpRanges of the Subnet, \
             or shorten lease_time of its Vlan"
        );
        assert!(said(65_536, 65_536).contains("keeps no more than 65536 leases"), "{}", said(65_536, 65_536));
        assert!(!said(65_536, 65_536).contains("widen"));
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
        let net = refused.iter().find_map(of).unwrap();
        for second in 0..9 {
            shortages.refused(&server, net, TIME, after(second));
        }
        shortages.look(&server, TIME, after(100), false);
        let later = TIME + Duration::from_secs(601);
        shortages.look(&server, later, after(40), false);
        // Its lease has ended, and for a minute nobody went without.
        shortages.look(&server, later, after(69), false);
        shortages.refused(&server, net, TIME, after(80));
        server.set_config(TIME, config(101)).unwrap();
        shortages.look(&server, TIME, after(81), true);
        let mut durable = facts.durable();
        let told = loop {
            durable.borrow_and_update();
            let told = facts.read(1).await.unwrap();
            if told.len() >= 5 {
                break told;
            }
            durable.changed().await.unwrap();
        };
        let told = told.into_iter().map(|fact| match fact.body {
            Some(Body::Health(health)) if health.service == "addresses 10.77.0.0/24" => health.ok,
            other => panic!("{other:?}"),
        });
        assert_eq!(told.collect::<Vec<_>>(), [true, false, true, false, true]);
        spool.stop().await;
    }
}
