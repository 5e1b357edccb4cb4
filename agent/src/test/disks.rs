//! Disk test: the health that each disk reports, and a read of a sample. Nothing is written. All disks are tested at the same time.

mod read;

use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use basalt_api::agent::{Disk, Verdict};
use rustix::fs::OFlags;
use serde_json::Value;

use super::parameters::{Parameter, Parameters, Takes};
use super::results::Results;
use super::{Finding, figure, smart, tell};
use crate::root::Root;
use crate::{inventory, tool};
use read::{Outcome, plan};

const MIB: u64 = 1 << 20;
/// Time limit of smartctl. A disk that spins up answers within half a minute; one with bad sectors in its logs takes longer.
const SMARTCTL: Duration = Duration::from_secs(120);
/// Most disks behind controllers, since the number of rows is limited and visible disks need some.
const HIDDEN: usize = 128;

pub(super) const PARAMETERS: [Parameter; 2] = [
    Parameter {
        name: "megabytes",
        takes: Takes::Number { default: 1024, range: 0..=1_000_000_000 },
        meaning: "MiB that are read of each disk, spread over the whole of it; 0 reads all",
    },
    Parameter {
        name: "device",
        takes: Takes::Name,
        meaning: "a disk by its kernel name, like sda; all disks without it",
    },
];

pub(super) fn run(root: &Root, parameters: &Parameters, results: &mut Results) -> Result<(), String> {
    let disks = inventory::block_devices(root);
    let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
    let wanted = parameters.text("device");
    if let Some(wanted) = wanted.filter(|wanted| !names.contains(wanted)) {
        return Err(format!("there is no disk {wanted}; there are: {}", names.join(", ")));
    }
    if disks.is_empty() {
        let mut finding = Finding::at(None);
        finding.add(Verdict::Passed, "the machine has no disks");
        results.add(finding);
    }
    let sample = parameters.number("megabytes") * MIB;
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        for disk in disks.iter().filter(|disk| wanted.is_none_or(|wanted| wanted == disk.name)) {
            let sender = sender.clone();
            scope.spawn(move || sender.send(tested(root, disk, sample)));
        }
        if wanted.is_none() {
            scope.spawn(move || {
                for hidden in hidden(root) {
                    if sender.send(hidden.health()).is_err() {
                        return;
                    }
                }
            });
        } else {
            drop(sender);
        }
        for finding in receiver {
            results.add(finding);
        }
    });
    Ok(())
}

/// Asks a disk for its health and reads its sample.
fn tested(root: &Root, disk: &Disk, sample: u64) -> Finding {
    let mut finding = Finding::at(Some(&disk.name));
    let path = root.path(format!("dev/{}", disk.name));
    health(&[&path.display().to_string()], &mut finding);
    let open = |flags: OFlags| {
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&path)
    };
    // Bypass the page cache, to test the disk and not to fill the memory. Some file systems refuse that.
    match open(OFlags::DIRECT).or_else(|_| open(OFlags::empty())) {
        Ok(file) => {
            let began = Instant::now();
            let spans = plan(disk.size_bytes, sample, u64::from(disk.block_bytes));
            let outcome = read::read(&file, &spans, |done, all| {
                tell(&format!("{}: {} of {} MiB read", disk.name, done / MIB, all / MIB));
            });
            judge(&outcome, began.elapsed(), &mut finding);
        }
        Err(error) => finding.add(Verdict::Failed, format!("the disk cannot be opened: {error}")),
    }
    finding
}

/// Adds the health that smartctl reports of a disk.
fn health(disk: &[&str], finding: &mut Finding) {
    let args = [&["--json", "-x"], disk].concat();
    match tool::answer("smartctl", &args, SMARTCTL) {
        Ok(ended) => smart::judge(ended.code, &ended.out, finding),
        Err(tool::ToolError::TooLong { .. }) => finding.add(
            Verdict::Degraded,
            format!("the disk did not tell its health within {} s", SMARTCTL.as_secs()),
        ),
        Err(error) => finding.add(Verdict::Passed, format!("SMART is not known: {error}")),
    }
}

/// A disk behind a RAID controller. The kernel only shows the array, so the disk cannot be read by itself.
#[derive(Debug, PartialEq, Eq)]
struct Hidden {
    /// The file of the controller.
    file: String,
    /// The way to the disk, like `megaraid,8`.
    way: String,
}

impl Hidden {
    fn health(&self) -> Finding {
        let Self { file, way } = self;
        let mut finding = Finding::at(Some(&format!("{} {way}", file.trim_start_matches("/dev/"))));
        health(&["-d", way, file], &mut finding);
        finding
    }
}

/// The disks behind RAID controllers that smartctl finds by itself.
fn hidden(root: &Root) -> Vec<Hidden> {
    // smartctl reaches such disks by the file of this driver.
    if !root.text("proc/devices").is_some_and(|devices| devices.contains("raid_sas_ioctl")) {
        return Vec::new();
    }
    let scan = tool::answer("smartctl", &["--scan", "--json"], SMARTCTL);
    scan.map(|ended| listed(&ended.out)).unwrap_or_default()
}

/// The disks of a scan that have a number behind their controller.
fn listed(scan: &str) -> Vec<Hidden> {
    let scan: Value = serde_json::from_str(scan).unwrap_or_default();
    let devices = scan.get("devices").and_then(Value::as_array);
    let hidden = |device: &Value| {
        let text = |name: &str| Some(device.get(name)?.as_str()?.to_owned());
        let way = text("type").filter(|way| way.contains(','))?;
        Some(Hidden { file: text("name")?, way })
    };
    devices.into_iter().flatten().filter_map(hidden).take(HIDDEN).collect()
}

/// Adds the figures and the failures of the read.
fn judge(outcome: &Outcome, time: Duration, finding: &mut Finding) {
    let mib = outcome.bytes / MIB;
    finding.figure("mib_read", figure(mib));
    if outcome.bytes > 0 {
        finding.figure("read_mb_per_s", figure(outcome.bytes) / 1e6 / time.as_secs_f64().max(1e-6));
    }
    for (offset, error) in &outcome.errors {
        finding.add(Verdict::Failed, format!("reading at byte {offset} failed: {error}"));
    }
    if outcome.gave_up {
        let errors = outcome.errors.len();
        finding.add(Verdict::Failed, format!("the read was ended after {errors} errors"));
    }
    if outcome.errors.is_empty() {
        finding.add(Verdict::Passed, format!("{mib} MiB were read without an error"));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_disk_without_smart_is_read_and_passes() {
        let dir = tempfile::tempdir().unwrap();
        for (name, size) in [("vda", 64 * MIB), ("vdb", 0)] {
            fs::create_dir_all(dir.path().join("sys/block").join(name)).unwrap();
            fs::create_dir_all(dir.path().join("dev")).unwrap();
            fs::write(
                dir.path().join("sys/block").join(name).join("size"),
                (size.max(512) / 512).to_string(),
            )
            .unwrap();
        }
        fs::File::create(dir.path().join("dev/vda")).unwrap().set_len(64 * MIB).unwrap();
        let before = fs::metadata(dir.path().join("dev/vda")).unwrap().modified().unwrap();
        let root = Root::at(dir.path());
        let tested = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            let parameters = Parameters::parse(&PARAMETERS, &args).unwrap();
            let mut results = Results::open(None).unwrap();
            run(&root, &parameters, &mut results).map(|()| {
                let mut rows = results.rows().to_vec();
                rows.sort_by(|a, b| a.device.cmp(&b.device));
                rows
            })
        };
        let rows = tested(&["--megabytes=8"]).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].verdict, rows[0].figures["mib_read"]), (Verdict::Passed, 8.0), "{rows:?}");
        assert!(
            rows[0].message.contains("SMART")
                && rows[0].message.ends_with("8 MiB were read without an error")
        );
        // Its device file is missing.
        assert_eq!(rows[1].verdict, Verdict::Failed);
        assert!(rows[1].message.contains("the disk cannot be opened: No such file"), "{}", rows[1].message);
        let rows = tested(&["--megabytes=0", "--device=vda"]).unwrap();
        assert_eq!((rows.len(), rows[0].figures["mib_read"]), (1, 64.0));
        assert_eq!(tested(&["--device=sdz"]).unwrap_err(), "there is no disk sdz; there are: vda, vdb");
        assert_eq!(fs::metadata(dir.path().join("dev/vda")).unwrap().modified().unwrap(), before);
    }

    #[test]
    fn disks_behind_a_controller_are_those_with_a_number() {
        let scan = r#"{"devices": [
            {"name": "/dev/sda", "info_name": "/dev/sda", "type": "scsi", "protocol": "SCSI"},
            {"name": "/dev/bus/0", "info_name": "/dev/bus/0 [megaraid_disk_08]", "type": "megaraid,8", "protocol": "SCSI"}]}"#;
        let expected = Hidden { file: "/dev/bus/0".to_owned(), way: "megaraid,8".to_owned() };
        assert_eq!(listed(scan), [expected]);
        assert_eq!(listed(r#"{"devices": []}"#), []);
        assert_eq!(listed(""), []);
    }

    #[test]
    fn a_read_error_fails_with_its_offset() {
        let errors = vec![(4096, "Input/output error (os error 5)".to_owned())];
        let outcome = Outcome { bytes: 3 * MIB, errors, gave_up: true };
        let mut finding = Finding::at(Some("sda"));
        judge(&outcome, Duration::from_secs(1), &mut finding);
        assert_eq!(finding.row.verdict, Verdict::Failed);
        assert_eq!(
            finding.row.message,
            "reading at byte 4096 failed: Input/output error (os error 5); the read was ended after 1 errors"
        );
        assert_eq!(finding.row.figures["read_mb_per_s"], 3.15);
    }
}
