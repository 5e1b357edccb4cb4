//! Faults of a machine that a test sets, and how often each has fired.
//!
//! Faults of its BMC (lost, doubled and late answers, lies, silence) are in [`basalt_bmc::Faults`].

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The stages of a boot. The agent reports the stages from `Inventory` on as its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The ROM looks for a loader.
    Loader,
    /// iPXE looks for its script.
    Script,
    /// The initrd fetches the squashfs.
    Initrd,
    /// Claiming the task's session.
    Claim,
    /// Fetching the task.
    Task,
    /// Reading the hardware.
    Inventory,
    /// Reading the disks' markers.
    Check,
    /// The marker says `writing`, nothing else is written.
    Partition,
    /// Fetching the image.
    Unpack,
    /// The image is there; the system's files are not.
    Seed,
    /// The system is whole, the marker still says `writing`.
    Finish,
    /// Erasing the disks.
    Erase,
    /// The marker is final, the rack has not heard of it.
    Result,
    /// The rack has the result.
    Leave,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 14] = [
        Self::Loader,
        Self::Script,
        Self::Initrd,
        Self::Claim,
        Self::Task,
        Self::Inventory,
        Self::Check,
        Self::Partition,
        Self::Unpack,
        Self::Seed,
        Self::Finish,
        Self::Erase,
        Self::Result,
        Self::Leave,
    ];

    /// The stage's name in the agent's progress.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Loader => "loader",
            Self::Script => "script",
            Self::Initrd => "initrd",
            Self::Claim => "claim",
            Self::Task => "task",
            Self::Inventory => "inventory",
            Self::Check => "check",
            Self::Partition => "partition",
            Self::Unpack => "unpack",
            Self::Seed => "seed",
            Self::Finish => "finish",
            Self::Erase => "erase",
            Self::Result => "result",
            Self::Leave => "leave",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The firmware does not try the network.
    NeverPxeBoots,
    /// The machine resets itself at this stage. At `Task` and later, that makes two boots of one attempt.
    DiesAt(Stage),
    /// The machine hangs at this stage until its power is cut.
    HangsAt(Stage),
    /// The machine stays at this stage until the fault is removed.
    HeldAt(Stage),
    /// Every stage takes this much longer.
    Slow(Duration),
    /// The disk has only 64 MiB.
    DiskTooSmall,
    /// A disk without a marker has foreign data.
    ForeignData,
    /// The image is damaged during the transfer.
    WrongHash,
    /// The claim is sent twice.
    DuplicateClaim,
    /// The result is sent twice.
    DuplicateResult,
}

/// The faults of one machine; changed while it runs, from any thread.
#[derive(Debug, Default)]
pub struct Faults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of times that each fault may still fire; `None` means without end.
    active: Vec<(Fault, Option<u32>)>,
    fired: HashMap<Fault, u64>,
}

impl Faults {
    /// Replaces all faults. They last until they are replaced; the counters continue.
    pub fn set(&self, faults: &[Fault]) {
        self.lock().active = faults.iter().map(|fault| (*fault, None)).collect();
    }

    /// Adds a fault that fires this many times.
    pub fn times(&self, fault: Fault, times: u32) {
        self.lock().active.push((fault, Some(times)));
    }

    /// True if the fault may still fire.
    pub(crate) fn is_set(&self, fault: Fault) -> bool {
        self.lock().active.iter().any(|(active, left)| *active == fault && *left != Some(0))
    }

    /// The number of times that this fault fired.
    #[must_use]
    pub fn fired(&self, fault: Fault) -> u64 {
        self.lock().fired.get(&fault).copied().unwrap_or(0)
    }

    /// Fires the first active fault that `which` accepts.
    pub(crate) fn fire(&self, which: impl Fn(Fault) -> bool) -> Option<Fault> {
        let mut state = self.lock();
        let (fault, left) =
            state.active.iter_mut().find(|(fault, left)| *left != Some(0) && which(*fault))?;
        if let Some(left) = left {
            *left -= 1;
        }
        let fault = *fault;
        *state.fired.entry(fault).or_default() += 1;
        Some(fault)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_fires_as_often_as_it_was_told_to_and_is_counted() {
        let faults = Faults::default();
        let fault = Fault::DiesAt(Stage::Claim);
        faults.times(fault, 2);
        let fire = || faults.fire(|it| it == fault).is_some();
        assert_eq!([fire(), fire(), fire()], [true, true, false]);
        assert_eq!((faults.fired(fault), faults.fired(Fault::WrongHash)), (2, 0));
        faults.set(&[fault]);
        assert!(fire() && fire());
        faults.set(&[]);
        assert!(!fire());
        assert_eq!(faults.fired(fault), 4);
    }
}
