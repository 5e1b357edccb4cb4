//! Deployment: an operating system on a machine.

use super::host_network::network_rules;
use super::selector::{Selector, selector_rules};
use super::storage_rules::storage_rules;
use super::{Axes, CommonStatus, Image, Machine, NetworkConfig, Script, StorageConfig, kind};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::{Duration, Host, Hostname, Sha256, SshPublicKey, Timestamp};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

kind! {
    /// An operating system on a machine: a named one, or one that a selector finds. Destroying it gives the machine
    /// back.
    Deployment, "deployments", "basalt_deployment", Label, declarable: true, DeploymentSpec, DeploymentStatus,
    deployment_rules
}

/// An operating system on a machine, as declared.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DeploymentSpec {
    /// The machine. Either this or `selector`.
    #[field(immutable)]
    pub machine: Option<Ref<Machine>>,
    /// What the machine must be like. Either this or `machine`. It is asked once: a chosen machine stays.
    pub selector: Option<Selector>,
    /// The image to install.
    #[field(redeploy)]
    pub image: Ref<Image>,
    /// Kernel parameters of the installed system.
    #[field(redeploy)]
    pub kernel_options: Option<String>,
    /// cloud-init user data: `#cloud-config`, a script, or MIME multi-part.
    #[field(redeploy, sensitive, text)]
    pub user_data: Option<String>,
    /// SSH public keys of the image's default account.
    #[field(redeploy)]
    pub ssh_keys: BTreeSet<SshPublicKey>,
    /// Host name of the installed system. Absent: the machine's name.
    #[field(redeploy, server_chosen)]
    pub hostname: Option<Hostname>,
    /// Addresses. Absent: as the machine says; else DHCP on the interface that booted.
    #[field(redeploy)]
    pub network: Option<NetworkConfig>,
    /// Disks, and what is built on them. Where it says nothing else than its defaults: as the machine says.
    #[field(redeploy, default)]
    pub storage: StorageConfig,
    /// Run it from memory, and leave the machine's disks alone. Basalt cannot do that yet, and refuses `true`.
    #[field(redeploy, default = false)]
    pub ephemeral: bool,
    /// Which data on the machine's disks may be destroyed.
    #[field(none, default = Wipe::IfOurs)]
    pub wipe: Wipe,
    /// Scripts of type `deployment` that are run in the new system at the end of an install, before its first boot, in the order of
    /// their names. A change counts from the next install on; the system that runs stays as it is.
    #[field(none)]
    pub scripts: BTreeSet<Ref<Script>>,
    /// When the deployment counts as done.
    #[field(none, default)]
    pub readiness: ReadinessCheck,
    /// What happens on a change that needs a new installation.
    #[field(none, default = Redeploy::Refuse)]
    pub redeploy: Redeploy,
    /// How the machine is given back.
    #[field(none, default)]
    pub release: Release,
    /// Refuse to destroy this deployment, or to redeploy it.
    #[field(none, default = false)]
    pub deletion_protection: bool,
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// Which data may be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Wipe {
    /// Empty disks, and those that Basalt wrote.
    IfOurs,
    /// Whatever is there.
    Always,
}

/// When a deployment counts as done.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ReadinessCheck {
    /// What must have been seen.
    #[field(default = Readiness::Booted, dormant(tcp = "no rack connects to a port; in the end a person is asked"))]
    pub check: Readiness,
    /// The port that must accept a connection, where `check` is `tcp`.
    #[field(min = 1, max = 65535, dormant = "no rack connects to a port")]
    pub port: Option<u16>,
    /// How long the installed system may take for it.
    #[field(default = "15m")]
    pub timeout: Duration,
}

/// What must have been seen of an installed system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Readiness {
    /// The image is on the disk.
    Installed,
    /// The installed system has booted and said so.
    Booted,
    /// cloud-init has finished without error.
    CloudInit,
    /// A TCP connection to a port of it succeeds from a rack.
    Tcp,
}

/// What happens on a change that needs a new installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Redeploy {
    /// The change is refused.
    Refuse,
    /// The same machine is installed again; what is on its disks is lost.
    InPlace,
}

/// How a machine is given back.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Release {
    /// How its disks are erased.
    #[field(default = EraseMethod::Quick)]
    pub erase: EraseMethod,
    /// Scripts of type `release` that are run before its disks are erased, in the order of their names.
    pub scripts: BTreeSet<Ref<Script>>,
    /// What happens when that fails.
    #[field(default = OnFailure::Hold)]
    pub on_failure: OnFailure,
}

/// How disks are erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum EraseMethod {
    /// Not at all. They are still wiped before anybody else gets the machine.
    None,
    /// The first and the last 2 MiB of each disk, and the first 2 MiB of each partition, are overwritten with zeroes. Other data stays on
    /// the disk, and can be read with tools.
    Quick,
    /// Every byte is overwritten with zeroes, or discarded where the disk promises zeroes.
    Full,
}

/// What happens when a machine cannot be given back as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum OnFailure {
    /// The deployment stays, and says why.
    Hold,
    /// The deployment goes; the machine stays Broken and marked unwiped.
    Abandon,
}

/// An operating system on a machine, as observed.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DeploymentStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// How it is.
    #[field(volatile, default)]
    pub axes: Axes,
    /// The one word for people, computed from `axes` when it is read.
    #[field(volatile)]
    pub phase: Option<String>,
    /// The machine it is on.
    pub machine: Option<Ref<Machine>>,
    /// Host name of the installed system.
    pub hostname: Option<Hostname>,
    /// Addresses of the installed system, by interface.
    pub addresses: BTreeMap<String, IpAddr>,
    /// Further addresses that the region gave its interfaces, by `INTERFACE/NAME`. What it got by DHCP or from routers besides
    /// is not known.
    pub further_addresses: BTreeMap<String, IpAddr>,
    /// The address to reach it at.
    pub address: Option<Host>,
    /// Digest of the image that is installed.
    pub image_digest: Option<Sha256>,
    /// The disk the system is on, by its stable name.
    pub disk: Option<String>,
    /// How the installed system sends its log to its racks. Absent: no rack took logs in its subnets when it was installed.
    pub logs: Option<String>,
    /// What is being done.
    #[field(volatile)]
    pub stage: Option<InstallStage>,
    /// How far that is.
    #[field(volatile)]
    pub progress: Option<Progress>,
    /// When each part was done.
    #[field(volatile, default)]
    pub timings: Timings,
}

/// What is being done for a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum InstallStage {
    /// A machine is looked for.
    Selecting,
    /// The machine is powered on.
    PoweringOn,
    /// The machine boots the ephemeral environment.
    NetworkBooting,
    /// The disk is divided.
    Partitioning,
    /// The image is written.
    Writing,
    /// The system is told who it is, and how to boot.
    Configuring,
    /// The machine boots its disk.
    DiskBooting,
    /// The readiness check is waited for.
    Checking,
    /// All is done.
    Done,
    /// The machine is being given back.
    Releasing,
}

/// How far something is.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Progress {
    /// In words.
    pub message: String,
    /// In percent, where it can be told.
    #[field(min = 0, max = 100)]
    pub percent: Option<u8>,
    /// When this was last reported.
    pub at: Timestamp,
}

/// When each part was done.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Timings {
    /// The machine was claimed.
    pub allocated_at: Option<Timestamp>,
    /// The agent began to install.
    pub install_started_at: Option<Timestamp>,
    /// The image was on the disk.
    pub installed_at: Option<Timestamp>,
    /// The installed system reported.
    pub booted_at: Option<Timestamp>,
    /// The readiness check held.
    pub ready_at: Option<Timestamp>,
}

fn deployment_rules(spec: &DeploymentSpec, rule: &mut Rule<'_>) {
    super::kernel_options::rules(spec.kernel_options.as_deref(), rule);
    match (&spec.machine, &spec.selector) {
        (None, None) => rule.missing(
            "/machine",
            "the deployment says neither which machine nor what kind of machine",
            "machine = the name of a machine, or selector = what it must be like; {} takes any",
        ),
        (Some(machine), Some(_)) => rule.broken(
            "/selector",
            format!("the deployment names machine {:?} and has a selector as well", machine.as_str()),
            "machine or selector, not both",
        ),
        _ => {}
    }
    if let Some(selector) = &spec.selector {
        selector_rules(selector, rule);
    }
    match (spec.readiness.check, spec.readiness.port) {
        (Readiness::Tcp, None) => {
            rule.missing("/readiness/port", "check \"tcp\" needs the port to connect to", "a port, like 22");
        }
        (check, Some(port)) if check != Readiness::Tcp => rule.broken(
            "/readiness/port",
            format!("check \"{check}\" has no use for port {port}"),
            "leave the port out, or say check = \"tcp\"",
        ),
        _ => {}
    }
    if spec.release.erase == EraseMethod::None && !spec.release.scripts.is_empty() {
        rule.broken(
            "/release/scripts",
            "a machine whose disks are not erased is not booted for its release, so that no script is run",
            "leave the scripts out, or say erase = \"quick\"",
        );
    }
    if let Some(network) = &spec.network {
        network_rules(network, rule);
    }
    storage_rules(&spec.storage, rule);
    if spec.ephemeral {
        rule.broken(
            "/ephemeral",
            "true asks for disks to be left alone, and Basalt can only install on a disk yet",
            "leave it out, or keep the machine for now",
        );
    }
}
