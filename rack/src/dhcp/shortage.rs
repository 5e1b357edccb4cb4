//! Subnets whose addresses are all taken: said where this rack logs, and told to regions as the health of `addresses CIDR`.
//!
//! It is over when addresses are free again and nobody has gone without for a minute: otherwise each lease that ends and goes to the
//! next client would be news. A range that was widened ends it at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use basalt_dhcp::{AddressRange, BootMode, Event, Ignored, Occupancy, Server, Subnet, Time};
use ipnet::Ipv4Net;

use crate::health::Health;
use crate::spool::writer::Facts;

/// How often it is said of a subnet for which it stays so.
const AGAIN: Duration = Duration::from_secs(300);
/// For how long nobody has to have gone without an address.
const CALM: Duration = Duration::from_secs(60);

/// How the subnets are from which this rack gives addresses.
#[derive(Debug)]
pub(super) struct Shortages {
    facts: Facts,
    subnets: BTreeMap<Ipv4Net, State>,
}

#[derive(Debug)]
struct State {
    health: Health,
    /// When a client last got none, if it is short.
    refused: Option<Instant>,
    said: Option<Instant>,
}

/// The subnet for which a client got no address since none is free.
pub(super) fn of(event: &Event) -> Option<Ipv4Net> {
    match event {
        Event::Ignored { reason: Ignored::NoFreeAddress(net) | Ignored::SomeRest(net), .. } => Some(*net),
        _ => None,
    }
}

impl Shortages {
    pub(super) const fn new(facts: Facts) -> Self {
        Self { facts, subnets: BTreeMap::new() }
    }

    /// A client got no address. The subnet's records are counted no more often than this is said.
    pub(super) fn refused(&mut self, server: &Server, net: Ipv4Net, time: Time, now: Instant) {
        let state = self.state(net);
        let is_news = state.refused.replace(now).is_none();
        let is_due = state.said.is_none_or(|said| now.duration_since(said) >= AGAIN);
        if !is_news && !is_due {
            return;
        }
        let subnet = server.config().subnets.iter().find(|subnet| subnet.cidr == net);
        let (Some(subnet), Some(occupancy)) = (subnet, server.occupancy(time, net)) else { return };
        let (ranges, words) = (in_words(&subnet.dynamic), words(subnet, &occupancy));
        state.health.lacks(&words);
        if is_due {
            state.said = Some(now);
            let Occupancy { addresses, leased, offered, resting, kept } = occupancy;
            tracing::warn!(subnet = %net, ranges, addresses, leased, offered, resting, kept, "{words}");
        }
    }

    /// Looks at which subnets have addresses again, and at which were added.
    pub(super) fn look(&mut self, server: &Server, time: Time, now: Instant, is_reconfigured: bool) {
        let gives = |it: &&Subnet| it.boot.mode != BootMode::Proxy && !it.dynamic.is_empty();
        if is_reconfigured {
            // What was said of them before a start is so no longer, or is said again.
            for subnet in server.config().subnets.iter().filter(gives) {
                self.state(subnet.cidr);
            }
        }
        self.subnets.retain(|net, state| {
            let still_gives = server.config().subnets.iter().filter(gives).any(|it| it.cidr == *net);
            let is_calm = state.refused.is_none_or(|at| is_reconfigured || now.duration_since(at) >= CALM);
            let has_some = || server.occupancy(time, *net).is_some_and(|it| it.free() > 0);
            if !still_gives || (is_calm && (state.refused.is_none() || has_some())) {
                state.health.up();
                if state.refused.take().is_some() {
                    tracing::info!(subnet = %net, "there are free addresses again");
                }
            }
            still_gives
        });
    }

    fn state(&mut self, net: Ipv4Net) -> &mut State {
        let facts = &self.facts;
        self.subnets.entry(net).or_insert_with(|| State {
            health: Health::new(format!("{}{net}", basalt_proto::ADDRESSES), facts.clone()),
            refused: None,
            said: None,
        })
    }
}

/// What takes the addresses, and what helps: addresses that other hosts use are no reason for a wider range.
fn words(subnet: &Subnet, of: &Occupancy) -> String {
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
        let ranges = in_words(&subnet.dynamic);
        return format!(
            "no address of {} is free: those of {ranges} are reserved, the gateway's or this rack's; {wider}",
            subnet.cidr
        );
    }
    let (net, ranges, taken) = (subnet.cidr, in_words(&subnet.dynamic), taken.join(", "));
    format!("no address of {net} is free: of {} in {ranges}, {taken}; {to_do}", of.addresses)
}

fn in_words(ranges: &[AddressRange]) -> String {
    let ranges: Vec<String> = ranges.iter().map(|range| format!("{}-{}", range.start, range.end)).collect();
    ranges.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::{Limits, writer};
    use basalt_dhcp::{Arrival, Config, Mac, egress, ingress};
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
        let subnet = &config(102).subnets[0];
        let said = |leased, resting| {
            words(subnet, &Occupancy { addresses: 3, leased, resting, ..Occupancy::default() })
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

    #[tokio::test]
    async fn a_full_subnet_is_told_once_until_it_has_addresses_again() {
        let dir = tempfile::tempdir().unwrap();
        let (facts, spool) = writer::start(dir.path(), Limits::default()).unwrap();
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
