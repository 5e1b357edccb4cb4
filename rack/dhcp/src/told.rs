//! A lease that the region reports to a server, and the record that the server makes of it.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::elsewhere::GRACE;
use crate::{Lease, LeaseState, Mac, Time};

/// Two reports of one moment may differ by less than this.
const TOLERANCE: Duration = Duration::from_secs(1);

/// The server that granted a reported lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grantor {
    /// This server granted it. It may have lost its lease file since.
    Own,
    /// The server that owns the address: its dynamic ranges contain it.
    Owner,
    /// A server that does not own the address.
    Another,
}

/// A lease that the region reports to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The leased address.
    pub address: Ipv4Addr,
    /// The hardware address of the client.
    pub mac: Mac,
    /// [`Subnet::id`](crate::Subnet::id).
    pub subnet: String,
    /// The host name that the client sent (option 12).
    pub hostname: Option<String>,
    /// When the lease ends, or would have ended if the client had not released it.
    pub ends: Time,
    /// The granting server promises to give the address to nobody else before this time. `None`: it makes no promise.
    pub kept_until: Option<Time>,
    /// The client released the address.
    pub given_back: bool,
    /// The server that granted the lease.
    pub by: Grantor,
}

/// The state of a reported address at the receiving server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    /// The server's own record of the address.
    pub(crate) lease: Option<&'a Lease>,
    /// The address is in the server's own dynamic ranges.
    pub(crate) is_own: bool,
    /// The server may have lost lease records.
    pub(crate) lost_some: bool,
}

impl Told {
    /// True if the lease or the promise about it ends in the future.
    pub(crate) fn matters(&self, now: Time) -> bool {
        self.kept_until.unwrap_or(self.ends) > now
    }

    /// True if the server must make a record of its own from the report.
    pub(crate) fn is_news(&self, now: Time, known: Known<'_>) -> bool {
        let Known { lease, is_own, lost_some } = known;
        let is_free = lease.is_none_or(|lease| lease.held_until() <= now);
        match (self.by, lease) {
            // The server's own record is newer than a report about it.
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

    /// The record that this server stores for the reported lease.
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
