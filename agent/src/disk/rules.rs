//! Decides if a task may write, by the markers and contents of all disks, before the first byte is written.
//!
//! Only this module makes a [`Permit`], and no disk is opened for writing without one.
//!
//! 1. A marker of this machine orders the attempts: if a later attempt has written, or this attempt has finished, the task is superseded.
//! 2. A marker of another machine shows that the region wrote the disk. The disk was moved, or its machine was declared again. The data
//!    counts as Basalt's if its attempt is older than the task.
//! 3. The marker `erased` says nothing about data that was written afterwards.

use basalt_api::agent::{DiskMarker, FailureCode, MarkerState, Task, Wipe};

use crate::failure::Failure;

/// The marker and content of one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Kernel name, for messages.
    pub name: String,
    /// The marker, if the disk has a valid one.
    pub marker: Option<DiskMarker>,
    /// True if the first or last MiB has data other than a marker.
    pub has_data: bool,
}

/// Permission to write to the disks that were checked.
#[derive(Debug)]
pub struct Permit(());

/// The decision for a task.
#[derive(Debug)]
pub enum Verdict {
    /// The task may write.
    Proceed(Permit),
    /// The task must write nothing: this attempt, or a later one, is done. The value is that attempt.
    Superseded(u64),
}

/// Decides if `task` may install to `targets`. If one target is foreign, none may be written. `others` are the machine's other disks: they
/// are not written, but their markers count.
///
/// # Errors
/// [`FailureCode::ForeignData`].
pub fn install(
    task: &Task,
    wipe: Wipe,
    targets: &[Observed],
    others: &[Observed],
) -> Result<Verdict, Failure> {
    // An attempt marks its disks as finished only when all of them are written. So one finished disk means that all are.
    for disk in targets.iter().chain(others) {
        if let Some(found) = later(task, disk).or_else(|| finished(task, disk)) {
            return Ok(Verdict::Superseded(found));
        }
    }
    targets.iter().try_for_each(|disk| refuse_foreign(task, wipe, disk))?;
    Ok(Verdict::Proceed(Permit(())))
}

/// Decides if `task` may erase `disks`. If one is foreign, none may be erased.
///
/// # Errors
/// [`FailureCode::ForeignData`].
pub fn erase(task: &Task, wipe: Wipe, disks: &[Observed]) -> Result<Verdict, Failure> {
    if let Some(found) = outranked(task, disks) {
        return Ok(Verdict::Superseded(found));
    }
    // An interrupted attempt has finished some disks; the others remain.
    if !disks.is_empty() && disks.iter().all(|disk| finished(task, disk).is_some()) {
        return Ok(Verdict::Superseded(task.attempt));
    }
    disks.iter().try_for_each(|disk| refuse_foreign(task, wipe, disk))?;
    Ok(Verdict::Proceed(Permit(())))
}

/// The later attempt that has written to one of the machine's disks. Any task of an earlier attempt is then superseded.
#[must_use]
pub fn outranked(task: &Task, disks: &[Observed]) -> Option<u64> {
    disks.iter().find_map(|disk| later(task, disk))
}

/// This task's attempt, if it has finished a disk.
#[must_use]
pub fn finished(task: &Task, disk: &Observed) -> Option<u64> {
    let marker = disk.marker.as_ref()?;
    let same = marker.machine_uid == task.machine_uid && marker.attempt == task.attempt;
    (same && marker.state != MarkerState::Writing).then_some(marker.attempt)
}

/// A later attempt than this task's that has written to a disk of this machine.
fn later(task: &Task, disk: &Observed) -> Option<u64> {
    let marker = disk.marker.as_ref()?;
    (marker.machine_uid == task.machine_uid && marker.attempt > task.attempt).then_some(marker.attempt)
}

fn refuse_foreign(task: &Task, wipe: Wipe, disk: &Observed) -> Result<(), Failure> {
    let reason = match (&disk.marker, wipe) {
        (_, Wipe::Always) => return Ok(()),
        (Some(marker), _) if marker.machine_uid != task.machine_uid && marker.attempt >= task.attempt => {
            format!("was written for machine {} by the later attempt {}", marker.machine_uid, marker.attempt)
        }
        (Some(marker), _) if marker.state == MarkerState::Erased && disk.has_data => {
            format!("was erased by attempt {} and has been written by something else since", marker.attempt)
        }
        (Some(_), _) => return Ok(()),
        (None, _) if disk.has_data => "holds data and carries no Basalt marker".to_owned(),
        (None, _) => return Ok(()),
    };
    Err(Failure::new(
        FailureCode::ForeignData,
        format!("disk {} {reason}; to overwrite it, set wipe = \"always\"", disk.name),
    ))
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::{TaskAction, Then};
    use proptest::prelude::*;

    use super::*;

    const ME: &str = "machine-a";

    fn task(attempt: u64) -> Task {
        Task {
            attempt,
            not_after_unix_ms: i64::MAX,
            machine_uid: ME.to_owned(),
            scripts: Vec::new(),
            proxy: None,
            bmc: None,
            action: TaskAction::Inventory,
            then: Then::Reboot,
        }
    }

    fn disk(marker: Option<(&str, u64, MarkerState)>, has_data: bool) -> Observed {
        let marker =
            marker.map(|(uid, attempt, state)| DiskMarker { machine_uid: uid.to_owned(), attempt, state });
        Observed { name: "vda".to_owned(), marker, has_data }
    }

    fn word(verdict: Result<Verdict, Failure>) -> String {
        match verdict {
            Ok(Verdict::Proceed(_)) => "proceed".to_owned(),
            Ok(Verdict::Superseded(attempt)) => format!("superseded by {attempt}"),
            Err(failure) => format!("{:?}", failure.code),
        }
    }

    #[test]
    fn the_rules_for_an_install_of_attempt_7() {
        use MarkerState::{Erased, Installed, Writing};
        let cases = [
            // Columns: marker, data, result with `if_ours`, result with `always`.
            (None, false, "proceed", "proceed"),
            (None, true, "ForeignData", "proceed"),
            (Some((ME, 6, Writing)), true, "proceed", "proceed"),
            (Some((ME, 6, Installed)), true, "proceed", "proceed"),
            (Some((ME, 6, Erased)), false, "proceed", "proceed"),
            (Some((ME, 6, Erased)), true, "ForeignData", "proceed"),
            (Some((ME, 7, Writing)), true, "proceed", "proceed"),
            (Some((ME, 7, Installed)), true, "superseded by 7", "superseded by 7"),
            (Some((ME, 7, Erased)), false, "superseded by 7", "superseded by 7"),
            (Some((ME, 8, Writing)), true, "superseded by 8", "superseded by 8"),
            (Some((ME, 8, Installed)), true, "superseded by 8", "superseded by 8"),
            (Some((ME, 8, Erased)), false, "superseded by 8", "superseded by 8"),
            (Some(("machine-b", 6, Installed)), true, "proceed", "proceed"),
            (Some(("machine-b", 8, Installed)), true, "ForeignData", "proceed"),
        ];
        for (marker, data, if_ours, always) in cases {
            let target = [disk(marker, data)];
            assert_eq!(word(install(&task(7), Wipe::IfOurs, &target, &[])), if_ours, "{target:?}");
            assert_eq!(word(install(&task(7), Wipe::Always, &target, &[])), always, "{target:?}");
            // Beside an empty disk the result is the same, in either order.
            let [target] = target;
            for both in [[target.clone(), disk(None, false)], [disk(None, false), target]] {
                assert_eq!(word(install(&task(7), Wipe::IfOurs, &both, &[])), if_ours, "{both:?}");
                assert_eq!(word(install(&task(7), Wipe::Always, &both, &[])), always, "{both:?}");
            }
        }
    }

    #[test]
    fn another_disk_of_the_machine_supersedes_an_install_too() {
        let other = disk(Some((ME, 8, MarkerState::Installed)), true);
        assert_eq!(word(install(&task(7), Wipe::Always, &[disk(None, false)], &[other])), "superseded by 8");
    }

    #[test]
    fn foreign_data_on_another_disk_does_not_stop_an_install() {
        assert_eq!(
            word(install(&task(7), Wipe::IfOurs, &[disk(None, false)], &[disk(None, true)])),
            "proceed"
        );
    }

    #[test]
    fn an_erase_that_was_cut_off_goes_on_with_the_rest() {
        let done = disk(Some((ME, 7, MarkerState::Erased)), false);
        let begun = disk(Some((ME, 7, MarkerState::Writing)), true);
        assert_eq!(word(erase(&task(7), Wipe::IfOurs, &[done.clone(), begun])), "proceed");
        assert_eq!(word(erase(&task(7), Wipe::IfOurs, &[done.clone(), done])), "superseded by 7");
    }

    #[test]
    fn one_foreign_disk_protects_all_from_an_erase() {
        let ours = disk(Some((ME, 6, MarkerState::Installed)), true);
        assert_eq!(word(erase(&task(7), Wipe::IfOurs, &[ours.clone(), disk(None, true)])), "ForeignData");
        assert_eq!(word(erase(&task(7), Wipe::Always, &[ours, disk(None, true)])), "proceed");
    }

    proptest! {
        #[test]
        fn a_finished_or_later_attempt_is_never_overwritten(
            mine in 0..20u64, found in 0..20u64, writing: bool, has_data: bool, always: bool, first: bool,
        ) {
            let state = if writing { MarkerState::Writing } else { MarkerState::Installed };
            let marked = disk(Some((ME, found, state)), has_data);
            let empty = disk(None, false);
            let wipe = if always { Wipe::Always } else { Wipe::IfOurs };
            let (target, other) = if first { (marked, empty) } else { (empty, marked) };
            let proceeds = matches!(install(&task(mine), wipe, &[target], &[other]), Ok(Verdict::Proceed(_)));
            prop_assert_eq!(proceeds, found < mine || found == mine && writing);
        }
    }
}
