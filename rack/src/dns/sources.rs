//! The addresses that messages to secondaries come from.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The source of messages to each secondary.
#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The addresses at which this rack answers.
    served: BTreeSet<IpAddr>,
    /// The address at which a secondary last asked for a zone, by the address of the secondary.
    asked: HashMap<IpAddr, IpAddr>,
}

impl Sources {
    /// Notes that a secondary asked for a zone at one of this rack's addresses.
    pub(super) fn asked(&self, secondary: IpAddr, at: IpAddr) {
        self.lock().asked.insert(secondary.to_canonical(), at.to_canonical());
    }

    /// Sets the addresses at which this rack answers, and forgets all but these secondaries.
    pub(super) fn keep(&self, served: &BTreeSet<IpAddr>, secondaries: BTreeSet<IpAddr>) {
        let mut known = self.lock();
        known.served.clone_from(served);
        known.asked.retain(|secondary, _| secondaries.contains(secondary));
    }

    /// The address for messages to a secondary: the one that the secondary last asked. Before the first question: the address of
    /// the rack, if the rack has only one. `None`: any address.
    pub(super) fn of(&self, secondary: IpAddr) -> Option<IpAddr> {
        let known = self.lock();
        let mut possible = known.served.iter().copied().filter(|it| it.is_ipv4() == secondary.is_ipv4());
        let only = possible.next().filter(|_| possible.next().is_none());
        known.asked.get(&secondary).copied().filter(|it| known.served.contains(it)).or(only)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
