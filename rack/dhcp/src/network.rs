//! The client's link: its subnets, and this server's identity on it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::ingress::Packet;
use crate::relay::Relayed;
use crate::server::{Arrival, Ignored, Scope};
use crate::{Mac, Reservation};

/// The subnets that the client may get an address from.
#[derive(Debug)]
pub(crate) struct Network<'a> {
    via: Arrival,
    relayed: Option<Relayed>,
    links: &'a BTreeMap<u32, Vec<Ipv4Addr>>,
    /// The subnet that the message itself points to.
    pub(crate) home: &'a Scope,
    /// All subnets of the link; [`Network::home`] is the first.
    pub(crate) scopes: Vec<&'a Scope>,
}

impl<'a> Network<'a> {
    /// Finds the client's link by its relay, by the source address of a renewal, or by the interface (RFC 2131 §4.3.1).
    ///
    /// A renewal is unicast and may come through a router (§4.3.2). If its address is in no known subnet, the client's
    /// link is unknown: the interface that the renewal arrived on says nothing about it.
    ///
    /// Subnets share a link if they are declared to, or if this server has addresses in both on one interface.
    pub(crate) fn of(
        scopes: &'a [Scope],
        links: &'a BTreeMap<u32, Vec<Ipv4Addr>>,
        via: Arrival,
        packet: &Packet,
    ) -> Result<Self, Ignored> {
        let of = |address: Ipv4Addr| scopes.iter().find(|scope| scope.subnet.cidr.contains(&address));
        let relayed = Relayed::of(packet);
        let home = match relayed {
            Some(relayed) => of(relayed.link).ok_or(Ignored::NoSubnet(relayed.link)),
            None if via.unicast && !packet.ciaddr.is_unspecified() => {
                of(packet.ciaddr).ok_or(Ignored::NoSubnet(packet.ciaddr))
            }
            None => {
                let here = links.get(&via.interface).into_iter().flatten();
                let here = std::iter::once(&via.local).chain(here);
                here.copied().find_map(of).ok_or(Ignored::NoSubnet(via.local))
            }
        }?;
        let is_on = |scope: &Scope, link: &[Ipv4Addr]| link.iter().any(|it| scope.subnet.cidr.contains(it));
        let link = links.values().find(|link| is_on(home, link));
        let shares = |scope: &Scope| {
            (home.subnet.link.is_some() && scope.subnet.link == home.subnet.link)
                || link.is_some_and(|link| is_on(scope, link))
        };
        let sharing = scopes.iter().filter(|&scope| !std::ptr::eq(scope, home) && shares(scope));
        let scopes = std::iter::once(home).chain(sharing).collect();
        Ok(Self { via, relayed, links, home, scopes })
    }

    /// The subnet that contains the address.
    pub(crate) fn scope(&self, address: Ipv4Addr) -> Option<&'a Scope> {
        self.scopes.iter().copied().find(|scope| scope.subnet.cidr.contains(&address))
    }

    /// The client's reservations on this link; that of the home subnet comes first.
    pub(crate) fn reservations(&self, mac: Mac) -> impl Iterator<Item = &'a Reservation> {
        self.scopes.iter().filter_map(move |scope| scope.reservation(mac))
    }

    /// True if a client without a reservation may get the address.
    pub(crate) fn is_dynamic(&self, address: Ipv4Addr) -> bool {
        !self.is_own(address) && self.scope(address).is_some_and(|scope| scope.is_dynamic(address))
    }

    /// True if the address is this server's own.
    pub(crate) fn is_own(&self, address: Ipv4Addr) -> bool {
        address == self.via.local || self.links.values().flatten().any(|&own| own == address)
    }

    /// True if a relay forwarded the message.
    pub(crate) const fn is_relayed(&self) -> bool {
        self.relayed.is_some()
    }

    /// The server identifier (option 54) that a client gets with an address of this subnet.
    pub(crate) fn identity(&self, scope: &Scope) -> Ipv4Addr {
        let told = self.relayed.and_then(|relayed| relayed.identity);
        told.unwrap_or_else(|| self.arrival(scope).local)
    }

    /// True if a client that sends this server identifier means this server.
    pub(crate) fn is_me(&self, server: Ipv4Addr) -> bool {
        self.is_own(server) || self.relayed.is_some_and(|relayed| relayed.identity == Some(server))
    }

    /// The arrival for answers about this subnet. Its local address is in the subnet, unless the message was sent to
    /// another address of this server.
    pub(crate) fn arrival(&self, scope: &Scope) -> Arrival {
        if self.relayed.is_some() || self.via.unicast || scope.subnet.cidr.contains(&self.via.local) {
            return self.via;
        }
        let here = self.links.get(&self.via.interface).into_iter().flatten();
        let local = here.copied().find(|it| scope.subnet.cidr.contains(it));
        Arrival { local: local.unwrap_or(self.via.local), ..self.via }
    }
}
