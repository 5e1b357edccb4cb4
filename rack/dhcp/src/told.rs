//! A lease as a server is told of it, and what that says beside what the server knows itself.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::elsewhere::GRACE;
use crate::{Lease, LeaseState, Mac, Time};

/// Two words for one moment differ by less.
const TOLERANCE: Duration = Duration::from_secs(1);

/// Who granted a lease that a server is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grantor {
    /// The server itself: it may have lost its lease file.
    Own,
    /// The server whose address it is.
    Owner,
    /// One of the others.
    Another,
}

/// A lease that a server is told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The address.
    pub address: Ipv4Addr,
    /// The client.
    pub mac: Mac,
    /// [`Subnet::id`](crate::Subnet::id).
    pub subnet: String,
    /// What the client calls itself.
    pub hostname: Option<String>,
    /// When it ends, or would have ended.
    pub ends: Time,
    /// Until when who granted it gives the address to nobody else, if it promises that.
    pub kept_until: Option<Time>,
    /// The client gave it back.
    pub given_back: bool,
    /// Who granted it.
    pub by: Grantor,
}

/// What a server knows of the address that it is told of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    /// Its own record.
    pub(crate) lease: Option<&'a Lease>,
    /// The address is its own to give.
    pub(crate) is_own: bool,
    /// It may have lost leases.
    pub(crate) lost_some: bool,
}

impl Told {
    /// Whether it says anything about a time to come.
    pub(crate) fn matters(&self, now: Time) -> bool {
        self.kept_until.unwrap_or(self.ends) > now
    }

    /// Whether a server makes it a record of its own.
    pub(crate) fn is_news(&self, now: Time, known: Known<'_>) -> bool {
        let Known { lease, is_own, lost_some } = known;
        let is_free = lease.is_none_or(|lease| lease.held_until() <= now);
        match (self.by, lease) {
            // What it knows itself is newer.
            (Grantor::Own, None) => self.matters(now),
            (Grantor::Own, Some(_)) => lost_some && is_free && self.matters(now),
            _ if !is_own || self.given_back || self.ends <= now => false,
            (_, Some(lease)) if lease.mac == self.mac => {
                let is_over = lease.state == LeaseState::Ended && lease.promised_until >= Some(self.ends);
                lease.state != LeaseState::Quarantined && lease.expires + TOLERANCE < self.ends && !is_over
            }
            _ => is_free,
        }
    }

    /// The record that a server of this subnet makes of it.
    pub(crate) fn record(self, now: Time, subnet: &str, known: Known<'_>) -> Lease {
        let lease = known.lease.filter(|lease| lease.mac == self.mac);
        let promise = match self.by {
            Grantor::Own => self.kept_until,
            Grantor::Owner | Grantor::Another => Some(self.ends + GRACE),
        };
        Lease {
            address: self.address,
            mac: self.mac,
            subnet: subnet.to_owned(),
            hostname: self.hostname.or_else(|| lease.and_then(|lease| lease.hostname.clone())),
            state: if self.given_back { LeaseState::Ended } else { LeaseState::Bound },
            granted: now,
            expires: self.ends,
            acknowledged: true,
            promised_until: promise.max(lease.and_then(|lease| lease.promised_until)),
            kept_until: (!known.is_own).then_some(self.ends),
        }
    }
}
