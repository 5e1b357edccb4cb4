//! Deliberate faults of a simulated BMC, with counters.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every n-th received packet is lost (n = 1: all).
    DropEvery(u32),
    /// Every answer is sent twice.
    Duplicate,
    /// Every answer is delayed.
    Delay(Duration),
    /// Power commands are accepted and not done.
    PowerLies,
    /// Nothing is answered.
    Unreachable,
}

/// The number of kinds; each has its counter.
const KINDS: usize = 5;

impl Fault {
    fn kind(self) -> usize {
        match self {
            Self::DropEvery(_) => 0,
            Self::Duplicate => 1,
            Self::Delay(_) => 2,
            Self::PowerLies => 3,
            Self::Unreachable => 4,
        }
    }
}

/// The faults of one BMC; changed while it runs, from any thread.
#[derive(Debug, Default)]
pub struct Faults {
    active: Mutex<Vec<Fault>>,
    fired: [AtomicU64; KINDS],
    packets: AtomicU64,
}

impl Faults {
    /// Replaces all faults by these. The counters continue.
    pub fn set(&self, faults: &[Fault]) {
        *self.lock() = faults.to_vec();
    }

    /// The number of times that a fault of this kind occurred.
    #[must_use]
    pub fn fired(&self, fault: Fault) -> u64 {
        self.fired.get(fault.kind()).map_or(0, |count| count.load(Ordering::SeqCst))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Fault>> {
        self.active.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn fire(&self, fault: Fault) {
        if let Some(count) = self.fired.get(fault.kind()) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Counts a received packet; false if it is to be lost.
    pub(crate) fn lets_in(&self) -> bool {
        let number = self.packets.fetch_add(1, Ordering::SeqCst) + 1;
        let lost = self.lock().iter().copied().find(|fault| match fault {
            Fault::Unreachable => true,
            Fault::DropEvery(n) => number.is_multiple_of(u64::from((*n).max(1))),
            _ => false,
        });
        if let Some(fault) = lost {
            self.fire(fault);
        }
        lost.is_none()
    }

    /// The delay of an answer, and true if it is sent twice.
    pub(crate) fn on_answer(&self) -> (Duration, bool) {
        let active = self.lock().clone();
        let (mut delay, mut twice) = (Duration::ZERO, false);
        for fault in active {
            match fault {
                Fault::Delay(by) => delay = by,
                Fault::Duplicate => twice = true,
                _ => continue,
            }
            self.fire(fault);
        }
        (delay, twice)
    }

    /// True if a power command must be accepted and not carried out.
    pub(crate) fn power_lies(&self) -> bool {
        let lies = self.lock().contains(&Fault::PowerLies);
        if lies {
            self.fire(Fault::PowerLies);
        }
        lies
    }
}
