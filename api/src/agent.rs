//! Wire types between the agent, the rack that relays them, and the region that composes tasks and stores reports.
//!
//! The agent speaks HTTPS to its rack under `/agent/v1`:
//!
//! | call | body | answer |
//! | --- | --- | --- |
//! | `POST claim` | [`ClaimRequest`] | [`ClaimReply`]; a repeat from the same boot is answered the same |
//! | `GET task` | | [`Task`] |
//! | `POST progress` | [`Progress`] | 204; idempotent by (attempt, seq) |
//! | `POST log?offset=N` | bytes | 204; idempotent by offset |
//! | `POST result` | [`TaskResult`] | 204; idempotent by attempt |
//!
//! All but `claim` carry `Authorization: Bearer SESSION`. Blobs come from `GET /blobs/{sha256}` of the same rack.
//! Unknown fields are ignored here, unlike in the REST API: an agent may be older or newer than its region.

mod script;

use std::collections::BTreeMap;

pub use self::script::{
    BOOT_VARIABLE, CHECKPOINT_BYTES, Checkpoint, DEADLY_BOOTS, DeviceKind, FIRST_BOOT_DONE,
    FIRST_BOOT_FAILED, FirstBoot, FirstBootWork, INSTALL_PACKAGES, OUTPUT_BYTES, PACKAGE_LINES,
    PACKAGES_HINT, PACKAGES_SECONDS, PROXY_VARIABLE, PerDevice, REBOOT_STAGE, REBOOT_VARIABLE,
    RESULTS_VARIABLE, RUN_BOOTS, RunInProgress, Script, ScriptEnd, TASK_RESTARTS, TEST_OUTPUT_BYTES,
    TEST_ROWS, TEST_STAGE, TestRow, Verdict,
};
use crate::kinds::StorageConfig;
use crate::values::untrusted_json;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The agent's first request: the boot token of its kernel command line, and the identity of this boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// `basalt.token` of the kernel command line.
    pub token: String,
    /// Random, made once per boot. With it the rack tells a repeated request from a second claimant.
    pub boot_id: String,
    /// MAC of the interface the machine booted from (`BOOTIF`).
    pub mac: String,
    /// Version of the agent.
    pub agent_version: String,
}

/// The session that a claim opens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimReply {
    /// Bearer key for every further call of this boot.
    pub session: String,
    /// The attempt that the token belongs to.
    pub attempt: u64,
    /// The machine, as the region knows it; absent while it is not enlisted.
    pub machine_uid: Option<String>,
    /// The rack's clock, milliseconds since 1970, to set the machine's clock by.
    pub now_unix_ms: i64,
    /// True if an earlier boot of the machine had claimed the attempt. Work that may be done only once may already be done.
    #[serde(default)]
    pub again: bool,
    /// The latest checkpoint of the attempt, from an earlier boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Box<Checkpoint>>,
}

/// The work of one attempt in the ephemeral environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Region-wide sequence; markers on disks carry it.
    pub attempt: u64,
    /// A destructive task must not begin after this moment (milliseconds since 1970).
    pub not_after_unix_ms: i64,
    /// The machine's uid, written into disk markers.
    pub machine_uid: String,
    /// Scripts, run in this order. All are run; the task fails when one of them fails. The scripts of an install run in the new system,
    /// after everything else is written. Other scripts run after the hardware was read and before any disk is touched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scripts: Vec<Script>,
    /// The HTTP proxy for scripts: `http://HOST:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// The account that is made on the BMC, with an inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcSetup>,
    /// The main work besides the scripts and the BMC account.
    pub action: TaskAction,
    /// The machine's power action once the result is delivered.
    pub then: Then,
}

impl Task {
    /// True if the task may change the machine. A task with scripts counts as one that does: a script can do anything.
    #[must_use]
    pub const fn changes_machine(&self) -> bool {
        !self.scripts.is_empty() || self.action.changes_machine()
    }
}

impl Task {
    /// True if a script of the task may restart the machine.
    #[must_use]
    pub fn may_reboot(&self) -> bool {
        let alone = match &self.action {
            TaskAction::Script(script) => Some(script),
            TaskAction::Inventory | TaskAction::Install(_) | TaskAction::Erase(_) => None,
        };
        self.scripts.iter().chain(alone).any(|script| script.may_reboot)
    }
}

/// An account on the BMC. The password is made on the machine, and only the region can read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BmcSetup {
    /// The user's name, 1 to 16 bytes.
    pub user: String,
    /// The one protocol that racks may speak to the BMC. Absent: Redfish, if the BMC gives the machine a bootstrap account, else IPMI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<BmcDriver>,
    /// The region's key that the password is sealed to: X25519, lower-case hex.
    pub key: String,
}

/// The purpose that a password is sealed for. The sealed text is of no use for another machine or attempt.
#[must_use]
pub fn bmc_purpose(machine_uid: &str, attempt: u64) -> String {
    format!("basalt bmc account, machine {machine_uid}, attempt {attempt}")
}

/// The result of a [`BmcSetup`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BmcEnd {
    /// The account exists. The BMC has confirmed the password to the agent on the machine.
    Made(BmcAccount),
    /// The BMC has not confirmed an account. It may have taken the password that a rack wrote down. Accounts of others were not changed.
    Failed {
        /// The cause, and a remedy for a person.
        message: String,
    },
}

/// An account that was made on the BMC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BmcAccount {
    /// The user's name.
    pub user: String,
    /// The protocol of the account. Redfish does not use IPMI accounts, nor IPMI those of Redfish.
    #[serde(default)]
    pub driver: BmcDriver,
    /// With IPMI: the number of the user on the BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u8>,
    /// With IPMI: the number of the LAN channel on which the user may log in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<u8>,
    /// The password, sealed for [`bmc_purpose`], in lower-case hex.
    pub password: String,
}

/// A protocol to control a BMC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BmcDriver {
    /// IPMI 2.0, over LAN by RMCP+.
    #[default]
    Ipmi,
    /// Redfish (DMTF DSP0266).
    Redfish,
}

/// The work of a [`Task`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TaskAction {
    /// Report the hardware; write nothing.
    Inventory,
    /// Install an image on a disk.
    Install(Box<Install>),
    /// Destroy the data on the machine's disks.
    Erase(Erase),
    /// Run a script, once.
    Script(Script),
}

impl TaskAction {
    /// True if the action may change the machine.
    const fn changes_machine(&self) -> bool {
        match self {
            Self::Inventory => false,
            Self::Script(script) => !script.repeats,
            Self::Install(_) | Self::Erase(_) => true,
        }
    }
}

/// The machine's power action after its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// Switch the machine off.
    PowerOff,
    /// Restart the machine (into the installed disk, after an install).
    Reboot,
}

/// Installs a root tarball, bootable by BIOS and by UEFI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Install {
    /// The root tarball.
    pub image: BlobRef,
    /// The disk of the layout `flat`. An empty selector means the smallest disk that is large enough.
    pub disk: DiskSelector,
    /// The storage layout and its disks. Absent: the layout `flat` on `disk`. Older agents do not know this field and use `disk` alone. For
    /// a layout that they cannot build, `disk` is therefore [`NEEDS_STORAGE`], the name of no disk: they report a missing disk and write
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Box<StorageConfig>>,
    /// The disks that may be overwritten.
    pub wipe: Wipe,
    /// Written to `/etc/hostname`.
    pub hostname: String,
    /// Appended to the installed system's kernel command line.
    pub kernel_options: String,
    /// Written to `/etc/netplan/50-basalt.yaml`, ready-made.
    pub netplan: String,
    /// NTP servers, names or addresses, for the NTP daemon of the system. Empty: the servers from DHCP and from the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ntp_servers: Vec<String>,
    /// Package repositories and their proxy, in addition to the configuration of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<Box<Packages>>,
    /// Name or address of the racks that receive the system's log by syslog over TCP: `HOST:PORT`, an IPv6 address in brackets. Absent: the
    /// log is not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_to: Option<String>,
    /// All receivers of the log, best first: the name of `log_to`, then the addresses of racks. A region that sends them knows
    /// [`LogSetup::Journal`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_receivers: Vec<String>,
    /// NoCloud seed, written to `/var/lib/cloud/seed/nocloud/`, so that the system boots without Basalt.
    pub seed: NoCloudSeed,
    /// Scripts of the first boot. The result has an end for each, as skipped: so the region recognises agents that do not know them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_boot: Option<Box<FirstBoot>>,
}

/// The sources of a system's packages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Packages {
    /// The HTTP proxy for downloads of packages: `http://HOST:PORT`.
    pub proxy: Option<String>,
    /// Repositories for apt.
    pub repositories: Vec<Repository>,
    /// Repositories for dnf.
    pub dnf: Vec<DnfRepository>,
}

/// A repository of rpm packages, as in dnf.conf(5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DnfRepository {
    /// A DNS label. The files of this repository are named after it.
    pub name: String,
    /// The URL of the folder that has `repodata`.
    pub url: String,
    /// OpenPGP public key, ASCII-armoured. Absent: the image already trusts the repository's key.
    pub key: Option<String>,
    /// True: the repository is only used on request.
    pub disabled: bool,
    /// True: the packages carry no signatures, and the signed metadata has their hashes.
    pub unsigned_packages: bool,
    /// True: the metadata is signed.
    pub signed_metadata: bool,
}

/// A repository of Debian packages, as in sources.list(5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Repository {
    /// A DNS label. The files of this repository are named after it.
    pub name: String,
    /// The URL of the repository's root.
    pub url: String,
    /// OpenPGP public key, ASCII-armoured. Absent: the image already trusts the repository's key.
    pub key: Option<String>,
    /// Suites. Empty: the suite of the image.
    pub suites: Vec<String>,
    /// Components, like `main`.
    pub components: Vec<String>,
    /// Architectures by Debian's names. Empty: all.
    pub architectures: Vec<String>,
    /// True: the repository is only used on request.
    pub disabled: bool,
}

/// A disk name for agents too old for the field `storage`. They print it in their error about a missing disk, so its text names the remedy.
pub const NEEDS_STORAGE: &str = "a-newer-ephemeral-image-for-this-storage-layout";

/// A blob by content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// SHA-256 of the content, in lower-case hex.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
}

/// Selects the disk to install to. Every given condition must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskSelector {
    /// One of the disk's names, see [`crate::disk`].
    pub name: Option<String>,
    /// Smallest acceptable size in bytes.
    pub min_bytes: Option<u64>,
}

/// The disks that a destructive task may overwrite. Disk markers decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wipe {
    /// Empty disks, and disks that carry this region's marker.
    IfOurs,
    /// Any disk, whatever data it holds.
    Always,
}

/// Erases all disks of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erase {
    /// Quick or full.
    pub level: EraseLevel,
    /// The disks that may be erased.
    pub wipe: Wipe,
}

/// Thoroughness of an erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EraseLevel {
    /// Erase signatures, and the first and the last 2 MiB.
    Quick,
    /// Erase every byte: by discard if the disk promises zeroes afterwards, else by writing zeroes.
    Full,
}

/// The four files of cloud-init's NoCloud data source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoCloudSeed {
    /// `meta-data`
    pub meta_data: String,
    /// `user-data`
    pub user_data: String,
    /// `vendor-data`
    pub vendor_data: String,
    /// `network-config`
    pub network_config: String,
}

/// Progress of a task. Sent when the stage changes, and at most once a second within a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Counts from 1 within an attempt.
    pub seq: u64,
    /// The stage's name: `inventory`, `partition`, `filesystems`, `unpack`, `bootloader`, `seed`, …
    pub stage: String,
    /// 0 to 100, of the whole task.
    pub percent: u8,
    /// One sentence for a person.
    pub message: String,
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    /// The task's attempt.
    pub attempt: u64,
    /// Success, or the reason of the failure.
    pub outcome: Outcome,
    /// The hardware, observed in every task.
    pub inventory: Option<Inventory>,
    /// Every disk's marker after the task, by kernel name.
    #[serde(default)]
    pub markers: BTreeMap<String, DiskMarker>,
    /// Seconds spent in each stage.
    #[serde(default)]
    pub timings: BTreeMap<String, f64>,
    /// Output of the script of a script task, the last [`OUTPUT_BYTES`] of it. The log has all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The results of the task's scripts that were run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scripts: Vec<ScriptEnd>,
    /// The result of the account on the BMC, if the task asked for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcEnd>,
    /// How an installed system sends its log, if the task asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogSetup>,
}

/// How an installed system sends its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LogSetup {
    /// The system's own rsyslog sends it.
    Rsyslog {
        /// `HOST:PORT`.
        to: String,
    },
    /// The image has no rsyslog. The service `basalt-journal` reads the journal of systemd, and sends it.
    Journal {
        /// `HOST:PORT`, best first.
        to: Vec<String>,
    },
    /// The log is not sent: the image has no rsyslog, and it lacks systemd or python3, which `basalt-journal` needs.
    NoRsyslog,
}

impl std::fmt::Display for LogSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rsyslog { to } => write!(f, "rsyslog sends it to {to}"),
            Self::Journal { to } => write!(f, "basalt-journal sends it to {}", to.join(", ")),
            Self::NoRsyslog => {
                write!(f, "it is not sent: the image has no rsyslog, and it has no systemd or no python3")
            }
        }
    }
}

impl Checkpoint {
    /// Parses a checkpoint as the agent sent it, and makes every text printable, as [`TaskResult::from_outside`] does.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn from_outside(json: &[u8]) -> serde_json::Result<Value> {
        TaskResult::from_outside(json)
    }
}

impl TaskResult {
    /// Parses a result as the agent sent it, and makes every text printable: vendors choose the words of an inventory, and scripts those of
    /// their failures. Outputs of scripts keep their line breaks: the command makes them printable on a terminal.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn from_outside(json: &[u8]) -> serde_json::Result<Value> {
        let mut document: Value = serde_json::from_slice(json)?;
        let kept: Vec<Value> = outputs(&mut document).into_iter().map(Value::take).collect();
        let mut document = untrusted_json(document);
        for (place, output) in outputs(&mut document).into_iter().zip(kept) {
            *place = output;
        }
        Ok(document)
    }
}

/// The outputs in a result: of the task's own script, and of the other scripts.
fn outputs(result: &mut Value) -> Vec<&mut Value> {
    let Some(fields) = result.as_object_mut() else { return Vec::new() };
    let mut outputs = Vec::new();
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("output", value) => outputs.push(value),
            ("scripts", Value::Array(ends)) => {
                outputs.extend(ends.iter_mut().filter_map(|end| end.get_mut("output")));
            }
            _ => {}
        }
    }
    outputs
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Outcome {
    /// All of the task was done.
    Succeeded,
    /// A disk shows that this attempt has finished, or a later one has begun: nothing was written.
    Superseded {
        /// The attempt found on disk.
        found_attempt: u64,
    },
    /// The task was not done.
    Failed {
        /// The cause, for programs.
        code: FailureCode,
        /// The error with its value and a remedy, for a person.
        message: String,
        /// True if at least one byte was written to a disk.
        wrote: bool,
    },
}

/// Why a task failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// No disk matches the selector, or none is large enough.
    NoDisk,
    /// The name of a disk is empty, several disks have it, or it is given to two disks of the layout.
    AmbiguousDisk,
    /// The disk holds data that is not Basalt's and `wipe` is `if_ours`.
    ForeignData,
    /// The task arrived after its `not_after`.
    Expired,
    /// A blob could not be fetched.
    BlobUnavailable,
    /// A blob's bytes do not have its hash.
    BlobCorrupt,
    /// A disk reported an input or output error.
    DiskError,
    /// A program of the ephemeral environment failed.
    ToolFailed,
    /// The image lacks something that an install needs.
    BadImage,
    /// The script reported a failure, could not be started, or ran for too long.
    ScriptFailed,
    /// Any other failure; the message describes it.
    Other,
}

/// The record on a disk of its last destructive attempt. It is stored outside every partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskMarker {
    /// The machine this disk was written for.
    pub machine_uid: String,
    /// The attempt that wrote it.
    pub attempt: u64,
    /// The progress of that attempt.
    pub state: MarkerState,
}

/// The progress of a destructive attempt on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkerState {
    /// Begun; the content of the disk is not reliable.
    Writing,
    /// An operating system was installed completely.
    Installed,
    /// The data was erased completely.
    Erased,
}

/// A machine's hardware, as its agent found it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Inventory {
    /// `x86_64`, `aarch64`
    pub architecture: String,
    /// How the ephemeral environment was booted.
    pub firmware: Firmware,
    /// The processors, as one summary.
    pub cpu: Cpu,
    /// Bytes of installed memory according to DMI; without DMI, bytes of usable memory.
    pub memory_bytes: u64,
    /// Block devices that can be installed to.
    pub disks: Vec<Disk>,
    /// Physical network interfaces.
    pub nics: Vec<Nic>,
    /// PCI devices of the classes that do a machine's work.
    pub pci: Vec<PciDevice>,
    /// Identification from DMI.
    pub dmi: Dmi,
    /// True if the kernel sees a BMC.
    pub bmc_present: bool,
    /// The BMC's report of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bmc: Option<Bmc>,
    /// Memory modules, each with its socket.
    pub memory_modules: Vec<MemoryModule>,
    /// Version of the TPM: `2.0`, `1.2`. Empty: the kernel sees none.
    pub tpm: String,
    /// UEFI Secure Boot is on. Absent: the firmware does not say.
    pub secure_boot: Option<bool>,
    /// NUMA nodes, by their numbers.
    pub numa: Vec<NumaNode>,
    /// USB devices without hubs, by their ports.
    pub usb: Vec<UsbDevice>,
}

/// A BMC, as the agent found it from inside the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bmc {
    /// The best protocol by which the BMC answers from inside.
    pub driver: BmcDriver,
    /// The name of the machine's ComputerSystem, if the Redfish service has several.
    pub system: Option<String>,
    /// Manufacturer, or `enterprise` and the manufacturer's IANA enterprise number.
    pub manufacturer: String,
    /// The manufacturer's number of the product.
    pub product_id: u16,
    /// Firmware revision, as `1.74`.
    pub firmware: String,
    /// `2.0`
    pub ipmi_version: String,
    /// The number of the channel that is the LAN interface.
    pub channel: Option<u8>,
    /// The IP address of the LAN interface.
    pub address: Option<String>,
    /// The source of that IP address.
    pub address_source: Option<AddressSource>,
    /// MAC address of the LAN interface.
    pub mac: Option<String>,
}

/// The source of a BMC's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressSource {
    /// A person set it.
    Static,
    /// A DHCP server gave it.
    Dhcp,
}

/// Drivers of network interfaces to the machine's own BMC. Their MAC addresses are the same on all machines of a model, and no switch is
/// behind them.
pub const TO_THE_BMC: [&str; 4] = ["cdc_ether", "cdc_ncm", "cdc_subset", "rndis_host"];

/// How a machine booted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Firmware {
    /// Legacy BIOS, without UEFI.
    #[default]
    Bios,
    /// UEFI firmware.
    Uefi,
}

/// The processors of a machine, as one summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Model name, as the kernel reports it.
    pub model: String,
    /// Number of sockets with a processor.
    pub sockets: u32,
    /// Cores of all sockets.
    pub cores: u32,
    /// Hardware threads of all sockets.
    pub threads: u32,
    /// Revision of the microcode that runs, as the kernel writes it: `0xd0003e7`.
    pub microcode: String,
    /// Number of NUMA nodes. 0: the kernel does not report it.
    pub numa_nodes: u32,
    /// Features that every processor has, by the kernel's names, sorted.
    pub flags: Vec<String>,
}

/// A NUMA node: processors and the memory that is near to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NumaNode {
    /// Number of the node.
    pub number: u16,
    /// Numbers of its hardware threads, as the kernel writes a list: `0-15,32-47`.
    pub cpus: String,
    /// Its memory in whole blocks, in bytes. Absent: the kernel has no blocks.
    pub memory_bytes: Option<u64>,
}

/// A device on USB that is no hub. Its numbers are lower-case hex without a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct UsbDevice {
    /// The port, which does not depend on the kernel's numbers of buses: `pci-0000:00:14.0-usb2-1.4`.
    pub port: String,
    /// `0bda`
    pub vendor: String,
    /// `8153`
    pub product: String,
    /// Classes of its interfaces, sorted: `08` is mass storage.
    pub classes: Vec<String>,
    /// Name of the manufacturer, as the device says it.
    pub manufacturer: String,
    /// Name of the product, as the device says it.
    pub product_name: String,
    /// Serial number, as the device says it.
    pub serial: String,
}

/// A memory module (SMBIOS type 17). A text is empty if the firmware does not report it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryModule {
    /// The socket it sits in, different for each module: `DIMM_A1`.
    pub slot: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// `DDR5`, …
    pub technology: String,
    /// Rated speed in megatransfers per second.
    pub speed_mts: Option<u32>,
    /// Manufacturer of the module.
    pub manufacturer: String,
    /// Part number of the manufacturer.
    pub part_number: String,
    /// Serial number of the module.
    pub serial: String,
}

/// A block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// Kernel name (`vda`).
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Model. Empty if unknown.
    pub model: String,
    /// Serial number. Empty if unknown.
    pub serial: String,
    /// Its names below `/dev/disk/by-id`.
    pub ids: Vec<String>,
    /// Its names below `/dev/disk/by-path`.
    pub paths: Vec<String>,
    /// True for a rotating disk, false for a solid-state disk.
    pub rotational: bool,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// `virtio`, `nvme`, `sata`, `sas`, …
    pub transport: String,
    /// Revision of its firmware. Empty if unknown.
    pub firmware: String,
    /// The NUMA node that its controller is attached to.
    pub numa_node: Option<u16>,
    /// The disk's report of its own health (SMART), without its temperature. Absent: it reports none.
    pub health: Option<Verdict>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nic {
    /// Kernel name (`enp1s0`).
    pub name: String,
    /// The hardware address, lower-case with colons: six octets of Ethernet, twenty of InfiniBand.
    pub mac: String,
    /// The kernel's number of the hardware type (ARPHRD in `linux/if_arp.h`): 1 is Ethernet, 32 InfiniBand. Absent: the kernel does not
    /// report it.
    pub hardware: Option<u16>,
    /// Mbit/s; absent when the link is down or the driver does not say.
    pub speed_mbps: Option<u64>,
    /// True while the link has a carrier.
    pub link: bool,
    /// True for the interface that the machine booted from.
    pub boot: bool,
    /// Name of the kernel driver. Empty without one.
    pub driver: String,
    /// The NUMA node that it is attached to.
    pub numa_node: Option<u16>,
    /// Version of its firmware, as the driver reports it. Empty if unknown.
    pub firmware: String,
    /// Its address on PCI. Empty if it is on no PCI bus.
    pub pci: String,
    /// Devices that announced themselves on its link, in a fixed order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbour>,
}

/// A device at the other end of a link, as it announced itself. Parts that it did not announce are empty or absent. No field is a time or
/// counts down: the same network gives the same value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Neighbour {
    /// `lldp` or `cdp`.
    pub protocol: String,
    /// The device: a MAC address, or a name.
    pub chassis_id: String,
    /// The device's port: its name, or a MAC address.
    pub port_id: String,
    /// Description of the port.
    pub port_description: String,
    /// Name of the device.
    pub system_name: String,
    /// Hardware and software of the device.
    pub system_description: String,
    /// Model of the device (CDP).
    pub platform: String,
    /// Its enabled functions: `bridge`, `router`, …
    pub capabilities: Vec<String>,
    /// IP addresses for management of the device.
    pub addresses: Vec<String>,
    /// VLAN of untagged frames.
    pub native_vlan: Option<u16>,
    /// Names of VLANs by id.
    pub vlans: BTreeMap<u16, String>,
    /// Number of the link aggregation group of the port.
    pub aggregate: Option<u32>,
    /// Largest frame in octets, with header and checksum.
    pub max_frame: Option<u16>,
}

/// A device on PCI. Its numbers are lower-case hex without a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PciDevice {
    /// `0000:3b:00.0`
    pub address: String,
    /// `10de`
    pub vendor: String,
    /// `20b5`
    pub device: String,
    /// Class, subclass and interface: `030200`.
    pub class: String,
    /// Name of the kernel driver. Empty without one.
    pub driver: String,
    /// The NUMA node that it is attached to.
    pub numa_node: Option<u16>,
}

/// Identification from DMI (SMBIOS type 1 to 3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dmi {
    /// Manufacturer of the system.
    pub manufacturer: String,
    /// System product name.
    pub product: String,
    /// System serial number.
    pub serial: String,
    /// UUID of the system.
    pub uuid: String,
    /// Version of the firmware.
    pub bios_version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_outputs_of_scripts_keep_their_lines() {
        let json = r#"{"output": "a\nb", "scripts": [{"name": "x\u001b", "failure": "c\nd"},
            {"output": "e\nf", "rows": [{"message": "g\nh", "output": "i\nj"}]}]}"#;
        let document = TaskResult::from_outside(json.as_bytes()).unwrap();
        assert_eq!(document["output"], "a\nb");
        assert_eq!(document["scripts"][1]["output"], "e\nf");
        for text in
            ["/scripts/0/name", "/scripts/0/failure", "/scripts/1/rows/0/message", "/scripts/1/rows/0/output"]
        {
            let text = document.pointer(text).unwrap().as_str().unwrap();
            assert!(text.chars().all(|c| !c.is_control()), "{text:?}");
        }
    }
}
