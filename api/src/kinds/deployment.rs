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
    /// An operating system on a machine. The deployment names the machine, or a selector finds it. Destroying the deployment
    /// gives the machine back.
    #[planned = true]
    Deployment, "deployments", "basalt_deployment", Label, declarable: true, DeploymentSpec, DeploymentStatus,
    deployment_rules
}

/// An operating system on a machine, as declared.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DeploymentSpec {
    /// The machine to install. Either this or `selector`.
    #[field(immutable)]
    pub machine: Option<Ref<Machine>>,
    /// The conditions for the machine. Either this or `machine`. Basalt chooses once: a chosen machine stays.
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
    /// SSH public keys for the default account of the image.
    #[field(redeploy)]
    pub ssh_keys: BTreeSet<SshPublicKey>,
    /// Host name of the installed system. Absent: the name of the machine.
    #[field(redeploy, server_chosen)]
    pub hostname: Option<Hostname>,
    /// The network of the installed system. Absent: the network that the machine declares, else DHCP on the interface that
    /// booted.
    #[field(redeploy)]
    pub network: Option<NetworkConfig>,
    /// The disks of the installed system, and what is built on them. If it has only default values, the storage that the machine
    /// declares is used.
    #[field(redeploy, default)]
    pub storage: StorageConfig,
    /// True: the system runs from memory, and the disks of the machine are left alone. Basalt cannot do that yet, and refuses
    /// `true`.
    #[field(redeploy, default = false)]
    pub ephemeral: bool,
    /// The data on the machine's disks that may be destroyed.
    #[field(none, default = Wipe::IfOurs)]
    pub wipe: Wipe,
    /// Scripts of type `deployment`. They run in the new system, in the order of their names: at the end of the installation, or at the
    /// first boot if the script has `when = "first_boot"`. A change takes effect at the next installation; the running system stays as
    /// it is.
    #[field(none)]
    pub scripts: BTreeSet<Ref<Script>>,
    /// The check after which the deployment counts as done.
    #[field(none, default)]
    pub readiness: ReadinessCheck,
    /// The treatment of a change that needs a new installation.
    #[field(none, default = Redeploy::Refuse)]
    pub redeploy: Redeploy,
    /// The steps in which the machine is given back.
    #[field(none, default)]
    pub release: Release,
    /// True: Basalt refuses to destroy this deployment, or to redeploy it.
    #[field(none, default = false)]
    pub deletion_protection: bool,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The data that may be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Wipe {
    /// Disks that are empty, and disks that Basalt wrote.
    IfOurs,
    /// Disks with any content.
    Always,
}

/// The check after which a deployment counts as done.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ReadinessCheck {
    /// The event that must have been seen.
    #[field(default = Readiness::Booted, dormant(tcp = "no rack connects to a port; in the end a person is asked"))]
    pub check: Readiness,
    /// The port that must accept a connection, if `check` is `tcp`.
    #[field(min = 1, max = 65535, dormant = "no rack connects to a port")]
    pub port: Option<u16>,
    /// The longest time that the installed system may take until the check succeeds.
    #[field(default = "15m")]
    pub timeout: Duration,
}

/// The event of an installed system that must have been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Readiness {
    /// The image is on the disk.
    Installed,
    /// The installed system has booted and reported it.
    Booted,
    /// cloud-init has finished without error.
    CloudInit,
    /// A TCP connection from a rack to a port of the system succeeds.
    Tcp,
}

/// The treatment of a change that needs a new installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Redeploy {
    /// Basalt refuses the change.
    Refuse,
    /// Basalt installs the same machine again, and the data on its disks is lost.
    InPlace,
}

/// The steps in which a machine is given back.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Release {
    /// The method of erasing the machine's disks.
    #[field(default = EraseMethod::Quick)]
    pub erase: EraseMethod,
    /// Scripts of type `release` that run before the disks are erased, in the order of their names.
    pub scripts: BTreeSet<Ref<Script>>,
    /// The reaction to a failure of these steps.
    #[field(default = OnFailure::Hold)]
    pub on_failure: OnFailure,
}

/// The method of erasing disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum EraseMethod {
    /// The disks are not erased. The next installation overwrites only the parts of its disks that it needs.
    None,
    /// The first and the last 2 MiB of each disk, and the first 2 MiB of each partition, are overwritten with zeroes. Other data
    /// stays on the disk, and can be read with tools.
    Quick,
    /// Every byte is overwritten with zeroes, or discarded if the disk guarantees that discarded blocks read as zeroes.
    Full,
}

/// The reaction when a machine cannot be given back as declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum OnFailure {
    /// The deployment stays, and its status gives the reason.
    Hold,
    /// The deployment goes. The machine becomes Broken, and is marked as unwiped.
    Abandon,
}

/// An operating system on a machine, as observed.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DeploymentStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// The state of the deployment, as independent axes.
    #[field(volatile, default)]
    pub axes: Axes,
    /// One word for people that sums up `axes`. It is computed when the object is read.
    #[field(volatile)]
    pub phase: Option<String>,
    /// The machine of the deployment.
    pub machine: Option<Ref<Machine>>,
    /// Host name of the installed system.
    pub hostname: Option<Hostname>,
    /// Addresses of the installed system, by interface.
    pub addresses: BTreeMap<String, IpAddr>,
    /// Further addresses that the region gave the system's interfaces, by `INTERFACE/NAME`. Further addresses from DHCP or
    /// routers are not known.
    pub further_addresses: BTreeMap<String, IpAddr>,
    /// The address at which the system can be reached.
    pub address: Option<Host>,
    /// Digest of the installed image.
    pub image_digest: Option<Sha256>,
    /// The disk that holds the system, by its stable name.
    pub disk: Option<String>,
    /// The way in which the installed system sends its log to its racks. Absent: no rack accepted logs in its subnets when the
    /// system was installed.
    pub logs: Option<String>,
    /// The present stage of the work.
    #[field(volatile)]
    pub stage: Option<InstallStage>,
    /// The progress of that stage.
    #[field(volatile)]
    pub progress: Option<Progress>,
    /// The time at which each stage was reached.
    #[field(volatile, default)]
    pub timings: Timings,
}

/// A stage of the work on a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum InstallStage {
    /// A machine is being selected.
    Selecting,
    /// The machine is being powered on.
    PoweringOn,
    /// The machine boots the ephemeral environment.
    NetworkBooting,
    /// The disk is being partitioned.
    Partitioning,
    /// The image is being written to the disk.
    Writing,
    /// The system gets its identity, its configuration and its boot loader.
    Configuring,
    /// The machine boots from its disk.
    DiskBooting,
    /// The readiness check is running.
    Checking,
    /// All work is done.
    Done,
    /// The machine is being given back.
    Releasing,
}

/// The progress of a stage.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Progress {
    /// The progress in words.
    pub message: String,
    /// The progress in percent. Absent: it cannot be measured.
    #[field(min = 0, max = 100)]
    pub percent: Option<u8>,
    /// The time of the last report.
    pub at: Timestamp,
}

/// The time at which each stage was reached.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Timings {
    /// The time at which the machine was claimed.
    pub allocated_at: Option<Timestamp>,
    /// The time at which the agent began to install.
    pub install_started_at: Option<Timestamp>,
    /// The time at which the image was on the disk.
    pub installed_at: Option<Timestamp>,
    /// The time of the first report of the installed system.
    pub booted_at: Option<Timestamp>,
    /// The time at which the readiness check succeeded.
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
