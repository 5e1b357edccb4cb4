//! The client's link: its subnets, and this server's address on it.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use super::ingress::Packet;
use super::server::{Arrival, Ignored, Scope};
use super::{Duid, Reservation};
use crate::Mac;

/// The subnets that the client may get an address from.
#[derive(Debug)]
pub(super) struct Network<'a> {
    via: Arrival,
    links: &'a BTreeMap<u32, Vec<Ipv6Addr>>,
    /// The subnet of the relay's link address, or of this server's first address on the link, and then those that share
    /// the link.
    pub(super) scopes: Vec<&'a Scope>,
    pub(super) home: &'a Scope,
}

impl<'a> Network<'a> {
    /// Finds the client's link by the link address of the relay nearest to the client, or by the interface (RFC 8415
    /// §13.1). Subnets share a link if they are declared to, or if this server has addresses in both on one interface.
    pub(super) fn of(
        scopes: &'a [Scope],
        links: &'a BTreeMap<u32, Vec<Ipv6Addr>>,
        via: Arrival,
        packet: &Packet,
    ) -> Result<Self, Ignored> {
        let of = |address: Ipv6Addr| scopes.iter().find(|scope| scope.subnet.cidr.contains(&address));
        let home = match packet.link() {
            Some(link) => of(link).ok_or(Ignored::NoSubnet(link.to_string())),
            None => {
                let mut here = links.get(&via.interface).into_iter().flatten().copied();
                here.find_map(of).ok_or_else(|| Ignored::NoSubnet(format!("interface {}", via.interface)))
            }
        }?;
        let is_on = |scope: &Scope, link: &[Ipv6Addr]| link.iter().any(|it| scope.subnet.cidr.contains(it));
        let link = links.values().find(|link| is_on(home, link));
        let shares = |scope: &Scope| {
            (home.subnet.link.is_some() && scope.subnet.link == home.subnet.link)
                || link.is_some_and(|link| is_on(scope, link))
        };
        let sharing = scopes.iter().filter(|&scope| !std::ptr::eq(scope, home) && shares(scope));
        let scopes = std::iter::once(home).chain(sharing).collect();
        Ok(Self { via, links, scopes, home })
    }

    /// The subnet that contains the address.
    pub(super) fn scope(&self, address: Ipv6Addr) -> Option<&'a Scope> {
        self.scopes.iter().copied().find(|scope| scope.subnet.cidr.contains(&address))
    }

    /// The client's reservations on this link.
    pub(super) fn reservations(
        &self,
        duid: &Duid,
        mac: Option<Mac>,
    ) -> impl Iterator<Item = &'a Reservation> {
        self.scopes.iter().filter_map(move |scope| scope.reservation(duid, mac))
    }

    /// True if a client without a reservation may get the address.
    pub(super) fn is_dynamic(&self, address: Ipv6Addr) -> bool {
        self.scope(address).is_some_and(|scope| scope.is_dynamic(address)) && !self.is_own(address)
    }

    /// True if the address is this server's own.
    pub(super) fn is_own(&self, address: Ipv6Addr) -> bool {
        self.links.values().flatten().any(|&own| own == address)
    }

    /// This server's address for clients of the subnet. The first of these that exists:
    ///
    /// 1. an address in the subnet
    /// 2. the address that the request was sent to
    /// 3. an address of the interface that received the request
    /// 4. any address
    pub(super) fn address(&self, scope: &Scope) -> Option<Ipv6Addr> {
        let here = self.links.get(&self.via.interface).into_iter().flatten();
        let all = || self.links.values().flatten();
        let inside = all().find(|it| scope.subnet.cidr.contains(*it));
        inside.copied().or(self.via.to).or_else(|| here.chain(all()).next().copied())
    }
}
