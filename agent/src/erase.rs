//! Erasing all disks of the machine, quickly or completely, under the same rules as an install.

use std::io;

use basalt_api::agent::{Erase, EraseLevel, MarkerState, Outcome, ScriptEnd};

use crate::disk::rules::{self, Observed, Verdict};
use crate::disk::{Disks, WritableDisk};
use crate::failure::Failure;
use crate::install::not_expired;
use crate::report::Reporter;
use crate::root::Root;
use crate::script::Place;
use crate::work::Context;
use crate::{say, task_scripts, tool};

const MIB: u64 = 1 << 20;
/// Bytes that are zeroed at both ends of the disk and at the start of every partition, where signatures are.
const ENDS: u64 = 2 * MIB;
/// Bytes that are zeroed between two progress reports.
const PART: u64 = 1024 * MIB;

/// Runs an erase task.
///
/// # Errors
/// The task has expired, a disk is not Basalt's to erase, a script of it failed, or a disk cannot be written.
pub fn run(
    context: &Context<'_>,
    erase: &Erase,
    disks: &mut Disks,
    reporter: &mut Reporter,
    ends: &mut Vec<ScriptEnd>,
) -> Result<Outcome, Failure> {
    not_expired(context)?;
    let observed = disks.observe_all()?;
    let permit = match rules::erase(context.task, erase.wipe, &observed)? {
        Verdict::Proceed(permit) => permit,
        Verdict::Superseded(found_attempt) => return Ok(Outcome::Superseded { found_attempt }),
    };
    let system = Root::system();
    task_scripts::run(context, &system, &Place::here(), reporter, ends)?;
    let open: Vec<&Observed> =
        observed.iter().filter(|disk| rules::finished(context.task, disk).is_none()).collect();
    for (index, observed) in open.iter().enumerate() {
        let name = &observed.name;
        let percent =
            |part: usize| u8::try_from(2 + 97 * (100 * index + part) / (100 * open.len())).unwrap_or(99);
        reporter.stage("erase", percent(0), &format!("erasing {name}"));
        let partitions = partition_starts(&system, name);
        let disk = disks.begin(name, context.task, &permit)?;
        let failed = || Failure::disk::<io::Error>(format!("erasing disk {name}"));
        match erase.level {
            EraseLevel::Quick => quick(&disk, &partitions).map_err(failed())?,
            EraseLevel::Full => {
                let mut at = 0;
                while at < disk.size() {
                    disk.zero(at, PART).map_err(failed())?;
                    at += PART;
                    let done = usize::try_from(at.min(disk.size()) * 100 / disk.size()).unwrap_or(100);
                    reporter.within(percent(done), || format!("erasing {name}: {done} %"));
                }
            }
        }
        let path = disk.path().display().to_string();
        disk.finish(MarkerState::Erased).map_err(failed())?;
        // Only updates the kernel's view of the removed partitions. A failure does not matter: the next boot reads the disk anew.
        if let Err(error) = tool::run("blockdev", &["--rereadpt", &path]) {
            say!("{error}");
        }
    }
    Ok(Outcome::Succeeded)
}

/// Zeroes signatures at both ends of the disk and at the start of every partition, where file systems and volumes have theirs.
fn quick(disk: &WritableDisk, partitions: &[u64]) -> io::Result<()> {
    for start in partitions {
        disk.zero(*start, ENDS)?;
    }
    disk.zero(0, ENDS)?;
    disk.zero(disk.size().saturating_sub(ENDS), ENDS)
}

/// Byte offsets of the partitions that the kernel sees on a disk.
fn partition_starts(root: &Root, name: &str) -> Vec<u64> {
    let base = format!("sys/block/{name}");
    let starts = root.names(&base).into_iter().filter(|part| part.starts_with(name));
    starts.filter_map(|part| root.number::<u64>(format!("{base}/{part}/start"))?.checked_mul(512)).collect()
}
