//! What the dynamic addresses of a subnet are taken by: what helps where none is free depends on it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::elsewhere::Elsewhere;
use crate::lease::Table;
use crate::server::Scope;
use crate::{LeaseState, Time};

/// How many of a subnet's dynamic addresses are taken, and by what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Those that clients without a reservation may get at all.
    pub addresses: u64,
    /// Leased.
    pub leased: u64,
    /// Offered to clients that have not taken them yet.
    pub offered: u64,
    /// Out of use for a while, since another host was found using them.
    pub resting: u64,
    /// Kept for clients whose leases have ended, since other servers may have let them go on.
    pub kept: u64,
}

impl Occupancy {
    /// Those that the next client may get.
    #[must_use]
    pub const fn free(&self) -> u64 {
        let taken =
            self.leased.saturating_add(self.offered).saturating_add(self.resting).saturating_add(self.kept);
        self.addresses.saturating_sub(taken)
    }

    /// Of a scope whose server has the addresses `own`.
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

/// How many addresses of a scope's ranges are dynamic ones.
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
