//! Where a client is: the subnets of its link, and who this server is there.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use super::ingress::Packet;
use super::server::{Arrival, Ignored, Scope};
use super::{Duid, Reservation};
use crate::Mac;

/// The subnets that a client may have an address of.
#[derive(Debug)]
pub(super) struct Network<'a> {
    via: Arrival,
    links: &'a BTreeMap<u32, Vec<Ipv6Addr>>,
    /// That of the relay's link address, or of this server's first address on the link, and those that share the link.
    pub(super) scopes: Vec<&'a Scope>,
    pub(super) home: &'a Scope,
}

impl<'a> Network<'a> {
    /// Finds the client's link by the relay next to it that names one, or by where it was heard (RFC 8415 §13.1). Subnets share a
    /// link if they are declared to, or if this server has addresses of both on one interface.
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

    /// The subnet of an address.
    pub(super) fn scope(&self, address: Ipv6Addr) -> Option<&'a Scope> {
        self.scopes.iter().copied().find(|scope| scope.subnet.cidr.contains(&address))
    }

    /// What is reserved for a client here.
    pub(super) fn reservations(
        &self,
        duid: &Duid,
        mac: Option<Mac>,
    ) -> impl Iterator<Item = &'a Reservation> {
        self.scopes.iter().filter_map(move |scope| scope.reservation(duid, mac))
    }

    /// A client without a reservation may get the address.
    pub(super) fn is_dynamic(&self, address: Ipv6Addr) -> bool {
        let own = || self.links.values().flatten().any(|&own| own == address);
        self.scope(address).is_some_and(|scope| scope.is_dynamic(address)) && !own()
    }

    /// Where a client of this subnet finds this host: at its address there, at the one that it was asked at, or at any it has.
    pub(super) fn address(&self, scope: &Scope) -> Option<Ipv6Addr> {
        let here = self.links.get(&self.via.interface).into_iter().flatten();
        let all = || self.links.values().flatten();
        let inside = all().find(|it| scope.subnet.cidr.contains(*it));
        inside.copied().or(self.via.to).or_else(|| here.chain(all()).next().copied())
    }
}
