//! The use of a subnet's dynamic addresses. It tells an operator why no address is free.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::elsewhere::Elsewhere;
use crate::lease::Table;
use crate::server::Scope;
use crate::{LeaseState, Time};

/// The number of a subnet's dynamic addresses, and how many of them are in which use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Addresses that clients without a reservation may get.
    pub addresses: u64,
    /// Addresses with a running lease.
    pub leased: u64,
    /// Addresses offered to clients that have not requested them yet.
    pub offered: u64,
    /// Addresses in quarantine, because another host was found using them.
    pub resting: u64,
    /// Addresses kept for clients whose leases have ended, because other servers may have extended those leases.
    pub kept: u64,
}

impl Occupancy {
    /// Addresses that the next client may get.
    #[must_use]
    pub const fn free(&self) -> u64 {
        let taken =
            self.leased.saturating_add(self.offered).saturating_add(self.resting).saturating_add(self.kept);
        self.addresses.saturating_sub(taken)
    }

    /// Counts the addresses of a scope. `own` are the server's own addresses, which are never leased.
    pub(crate) fn of(
        scope: &Scope,
        table: &Table,
        elsewhere: &Elsewhere,
        own: &BTreeSet<Ipv4Addr>,
        now: Time,
    ) -> Self {
        let mut of = Self { addresses: usable(scope, own), ..Self::default() };
        for range in &scope.subnet.dynamic {
            let is_given = |address: &Ipv4Addr| scope.is_dynamic(*address) && !own.contains(address);
            let held =
                table.within(range).filter(|lease| lease.held_until() > now && is_given(&lease.address));
            for lease in held {
                let count = match lease.state {
                    _ if !lease.is_live(now) => &mut of.kept,
                    LeaseState::Bound => &mut of.leased,
                    LeaseState::Offered => &mut of.offered,
                    LeaseState::Quarantined => &mut of.resting,
                    LeaseState::Ended => &mut of.kept,
                };
                *count += 1;
            }
            let is_free = |address: &Ipv4Addr| table.get(*address).is_none_or(|it| it.held_until() <= now);
            let others = elsewhere.within(now, range).filter(|it| is_given(it) && is_free(it)).count();
            of.kept = of.kept.saturating_add(u64::try_from(others).unwrap_or(u64::MAX));
        }
        of
    }
}

/// The number of addresses in a scope's ranges that are dynamic.
fn usable(scope: &Scope, own: &BTreeSet<Ipv4Addr>) -> u64 {
    let ranges = &scope.subnet.dynamic;
    let all: u64 =
        ranges.iter().map(|it| u64::from(u32::from(it.end).saturating_sub(u32::from(it.start))) + 1).sum();
    let cidr: Ipv4Net = scope.subnet.cidr;
    let reserved = scope.subnet.reservations.iter().map(|it| it.address);
    let apart: BTreeSet<Ipv4Addr> = [cidr.network(), cidr.broadcast()]
        .into_iter()
        .chain(reserved)
        .chain(scope.subnet.gateway)
        .chain(own.iter().copied())
        .filter(|it| ranges.iter().any(|range| range.contains(*it)))
        .filter(|it| !scope.is_dynamic(*it) || own.contains(it))
        .collect();
    all.saturating_sub(u64::try_from(apart.len()).unwrap_or(u64::MAX))
}
