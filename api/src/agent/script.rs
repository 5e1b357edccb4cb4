//! Scripts of a task, and the ends of their runs.

use std::collections::BTreeMap;

use super::BmcEnd;
use crate::kinds::ScriptParallel;
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};

/// Runs a script in the ephemeral environment, as root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Name of the Script.
    pub name: String,
    /// The text of the script, which begins with `#!`.
    pub content: String,
    /// Arguments: `--NAME=VALUE`.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Time limit of a run in seconds. After it the script is stopped.
    pub timeout_seconds: u64,
    /// True: a later boot runs it again.
    #[serde(default)]
    pub repeats: bool,
    /// True: a test of the hardware. A failed test does not fail the task: its result is a row of the machine.
    #[serde(default)]
    pub test: bool,
    /// [Filters](crate::hardware::Filter) of the hardware that it is for. A single match is enough. Empty: any hardware.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hardware: Vec<String>,
    /// Set: it is run once for each device of a kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_device: Option<PerDevice>,
    /// The kernel name of the device that was named for its run. Its result is about this device alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Other runs that may go on beside a run of it.
    #[serde(default)]
    pub parallel: ScriptParallel,
    /// True: a restart of the machine during a run is no failure. The run is begun again afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_reboot: bool,
    /// Packages that are installed before it runs, by [`INSTALL_PACKAGES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
}

/// A program for `/bin/sh`. It installs the packages of its arguments by the package manager of its system.
pub const INSTALL_PACKAGES: &str = include_str!("packages.sh");

/// Time limit of [`INSTALL_PACKAGES`] in seconds, apart from the script's own.
pub const PACKAGES_SECONDS: u64 = 1800;

/// Number of lines of a package manager that a failure quotes.
pub const PACKAGE_LINES: usize = 3;

/// The remedy for packages that were not installed.
pub const PACKAGES_HINT: &str = "check the names of the packages, and the repositories of the system";

/// Scripts of the first boot of an installed system, and the program that runs them there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstBoot {
    /// The runner: a program for python3.
    pub runner: String,
    /// The systemd unit that starts the runner.
    pub unit: String,
    /// The work of the runner.
    pub work: FirstBootWork,
}

/// The file that the runner reads. Its agent leaves out scripts for other hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstBootWork {
    /// URLs for the report of the end, tried in order. The level is appended: [`FIRST_BOOT_DONE`] or [`FIRST_BOOT_FAILED`].
    pub report: Vec<String>,
    /// Environment variables of the scripts.
    pub environment: BTreeMap<String, String>,
    /// Scripts, run in this order, each once.
    pub scripts: Vec<Script>,
    /// [`INSTALL_PACKAGES`].
    pub install_packages: String,
    /// [`PACKAGES_SECONDS`].
    pub packages_seconds: u64,
    /// [`PACKAGES_HINT`].
    pub packages_hint: String,
    /// The longest wait for the end of cloud-init, in seconds. After it the scripts run.
    pub cloud_init_seconds: u64,
}

/// The report of an installed system whose scripts of the first boot all ended well.
pub const FIRST_BOOT_DONE: &str = "first_boot";

/// The report of an installed system of whose scripts of the first boot one failed. Its body says which, and why.
pub const FIRST_BOOT_FAILED: &str = "first_boot_failed";

/// The work that a task's scripts had done when it was written down. The next boot of the attempt continues from there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Counts from 1 within an attempt, across its boots. The highest number counts.
    pub seq: u64,
    /// The number of restarts so far.
    #[serde(default)]
    pub restarts: u32,
    /// True: the agent restarts the machine now.
    #[serde(default)]
    pub leaves: bool,
    /// The run that is in progress, and may restart the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunInProgress>,
    /// The first of the runs that began together and may not restart the machine. It is there only after a restart that no script announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<RunInProgress>,
    /// The runs that have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scripts: Vec<ScriptEnd>,
    /// The result of the account on the BMC. Later boots do not make another account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcEnd>,
}

impl Checkpoint {
    /// True if the machine may be restarting: an agent may be silent for the time of a boot.
    #[must_use]
    pub const fn is_away(&self) -> bool {
        self.leaves || self.run.is_some()
    }
}

/// A run in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInProgress {
    /// Name of the Script.
    pub name: String,
    /// The device that it is run for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The boot of the run, from 1. A script reads it from [`BOOT_VARIABLE`].
    pub boot: u32,
}

/// Environment variable with the number of the boot in which a script that may restart the machine runs, from 1.
pub const BOOT_VARIABLE: &str = "BASALT_BOOT";

/// Environment variable with the URL of the racks' proxy, `http://HOST:PORT`.
pub const PROXY_VARIABLE: &str = "BASALT_PROXY";

/// Environment variable that names a file. A script that creates it has the machine restarted when the script ends.
pub const REBOOT_VARIABLE: &str = "BASALT_REBOOT";

/// [`Progress::stage`](super::Progress::stage) while the agent restarts the machine.
pub const REBOOT_STAGE: &str = "reboot";

/// Most boots in which one run of a script may be begun.
pub const RUN_BOOTS: u32 = 5;

/// Number of boots in which scripts that may not restart the machine are begun after it was restarted without an announcement.
pub const DEADLY_BOOTS: u32 = 2;

/// Most restarts within one attempt.
pub const TASK_RESTARTS: u32 = 16;

/// Most bytes of a checkpoint.
pub const CHECKPOINT_BYTES: usize = 512 * 1024;

/// The devices that a script is run for, one run each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerDevice {
    /// The parameter that gets the kernel name of the device: `--PARAMETER=NAME`, the last argument.
    pub parameter: String,
    /// The kind of devices that it is run for.
    pub kind: DeviceKind,
}

/// A kind of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// Disks that a system can be installed to.
    Storage,
    /// Physical network interfaces.
    Interface,
}

/// How a run of a task's script ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScriptEnd {
    /// Name of the Script.
    pub name: String,
    /// The device that it was run for, of [`Script::per_device`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Why it failed; absent: it went well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Why it was left out; absent: it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// As [`Script::test`].
    #[serde(default)]
    pub test: bool,
    /// The rows that a test wrote, at most [`TEST_ROWS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<TestRow>,
    /// The end of the output of a test, at most [`TEST_OUTPUT_BYTES`]. The log has the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// How long it ran.
    #[serde(default)]
    pub seconds: f64,
}

/// One finding of a test: a line of JSON in the file that `BASALT_RESULTS` names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestRow {
    /// The part of the hardware, like `sda` or `eth0`. Absent: the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The finding about the device.
    pub verdict: Verdict,
    /// Measured values. The name ends with the unit: `read_mb_per_s`, `celsius_max`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// One sentence for a person: the cause of a failure, or the work that was done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The finding of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The test was not for this hardware.
    Skipped,
    /// The hardware does its work.
    Passed,
    /// It works, and a person should look: a worn disk, a link slower than its adapter.
    Degraded,
    /// It does not.
    Failed,
}

/// Environment variable that names the file for [`TestRow`]s.
pub const RESULTS_VARIABLE: &str = "BASALT_RESULTS";

/// [`Progress::stage`] while a test runs.
pub const TEST_STAGE: &str = "test";

/// Most rows of one run of a test.
pub const TEST_ROWS: usize = 256;

/// Most bytes of a test's output that a result has.
pub const TEST_OUTPUT_BYTES: usize = 4 * 1024;

/// Most bytes of a script's output that a result has.
pub const OUTPUT_BYTES: usize = 16 * 1024;
