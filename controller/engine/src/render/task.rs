//! Composes the task of an attempt: spec and facts become the agent's instructions.

use basalt_api::agent::{
    BmcSetup, DiskSelector, Erase, FirstBoot, Install, Inventory, NEEDS_STORAGE, Packages, Script, Task,
    TaskAction, Then, Wipe,
};
use basalt_api::kinds::{self, PowerPolicy, StorageConfig, StorageLayout};
use basalt_api::values::{Attempt, Timestamp};

use super::network::{Network, NetworkError};
use super::{first_boot, kernel_options, netplan, nocloud};
use crate::input::{Claim, MachineInput, ResolvedImage};
use crate::plan::TaskKind;

/// The space of boot partitions on a disk, in bytes.
const BOOT_BYTES: u64 = 1 << 30;

/// The largest factor between an unpacked system and its compressed tarball.
const UNPACKED: u64 = 4;

/// The inputs of a task that are neither in the spec nor in facts.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The newly allocated attempt.
    pub attempt: Attempt,
    /// The step's `not_after`.
    pub not_after: Timestamp,
    /// The address to which the installed system reports; `None` if no rack could receive it.
    pub report: Option<ReportTo>,
    /// The scripts of the task.
    pub scripts: Vec<Script>,
    /// The scripts of the first boot after an install.
    pub first_boot: Vec<Script>,
    /// The account to create on the BMC.
    pub bmc: Option<BmcSetup>,
    /// The package sources of an installed system.
    pub packages: Packages,
    /// The racks to which an installed system sends its log, `HOST:PORT`, best first.
    pub log_to: Vec<String>,
    /// The proxy of the network from which the machine boots, for scripts.
    pub proxy: Option<String>,
}

/// The address to which an installed system reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportTo {
    /// The URLs of the racks that serve the machine: `http://10.77.0.1:5248`.
    pub racks: Vec<String>,
    /// The token for reports of this attempt; it allows nothing else.
    pub token: String,
}

/// The reason why a task cannot be composed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComposeError {
    /// An install or erase without a deployment.
    NoClaim,
    /// The deployment's image does not exist.
    NoImage,
    /// The network cannot be rendered.
    Network(NetworkError),
    /// No script was requested.
    NoScript,
}

impl std::fmt::Display for ComposeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoClaim => f.write_str("the machine has no deployment to do this for"),
            Self::NoImage => {
                f.write_str("the deployment's image cannot be installed: it has no root tarball")
            }
            Self::Network(_) => f.write_str("the deployment's network does not fit the machine"),
            Self::NoScript => f.write_str("no script is asked of the machine any more"),
        }
    }
}

impl std::error::Error for ComposeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Network(error) => Some(error),
            Self::NoClaim | Self::NoImage | Self::NoScript => None,
        }
    }
}

/// Composes the task of an attempt. Store the task with the attempt: it is handed out unchanged as long as the attempt lives.
///
/// # Errors
/// [`ComposeError`]: the planner would not have armed such a task, or a network does not fit the hardware.
pub fn compose(input: &MachineInput, kind: TaskKind, context: &Context) -> Result<Task, ComposeError> {
    let claim = || input.claim.as_ref().ok_or(ComposeError::NoClaim);
    let (action, then) = match kind {
        TaskKind::Inventory => (TaskAction::Inventory, when_idle(input)),
        TaskKind::Install => {
            (TaskAction::Install(Box::new(install(input, claim()?, context)?)), Then::Reboot)
        }
        TaskKind::Erase(level) => {
            let erase = Erase { level: level.into(), wipe: wipe(claim()?) };
            (TaskAction::Erase(erase), Then::PowerOff)
        }
        TaskKind::Script | TaskKind::Rescue => {
            let script = input.operations.iter().find_map(|operation| operation.script.clone());
            // Tests run with a reading of the hardware that they test.
            let action = match (script, tests(input).is_empty()) {
                (Some(script), _) => TaskAction::Script(script),
                (None, false) => TaskAction::Inventory,
                (None, true) => return Err(ComposeError::NoScript),
            };
            (action, when_idle(input))
        }
    };
    let scripts = match kind {
        TaskKind::Script => tests(input).to_vec(),
        _ => context.scripts.clone(),
    };
    let has_scripts = !scripts.is_empty() || matches!(action, TaskAction::Script(_));
    Ok(Task {
        attempt: context.attempt.get(),
        not_after_unix_ms: context.not_after.as_millisecond(),
        machine_uid: input.uid.to_string(),
        scripts,
        proxy: context.proxy.clone().filter(|_| has_scripts),
        bmc: context.bmc.clone(),
        action,
        then,
    })
}

/// The requested tests.
fn tests(input: &MachineInput) -> &[Script] {
    input.operations.iter().map(|it| it.tests.as_slice()).find(|tests| !tests.is_empty()).unwrap_or_default()
}

/// The state of a machine after an inventory or a script.
fn when_idle(input: &MachineInput) -> Then {
    // If a deployment waits, its step will power-cycle the machine. That needs the machine on, and must not race with a power-off.
    let stays_on = input.claim.is_some()
        || input.spec.power == PowerPolicy::On
        || (input.spec.power == PowerPolicy::Auto && input.spec.commissioning.keep_power);
    if stays_on { Then::Reboot } else { Then::PowerOff }
}

fn wipe(claim: &Claim) -> Wipe {
    match claim.spec.wipe {
        kinds::Wipe::IfOurs => Wipe::IfOurs,
        kinds::Wipe::Always => Wipe::Always,
    }
}

fn install(input: &MachineInput, claim: &Claim, context: &Context) -> Result<Install, ComposeError> {
    let image = claim.image.as_ref().ok_or(ComposeError::NoImage)?;
    let nothing = Inventory::default();
    let inventory = input.facts.inventory.as_ref().map_or(&nothing, |seen| &seen.inventory);
    let network = Network::resolve_checked(input.network(), inventory, &claim.assigned)
        .map_err(ComposeError::Network)?;
    let hostname = claim.spec.hostname.as_ref().map_or_else(|| input.name.clone(), ToString::to_string);
    let identity = nocloud::Identity { deployment: claim.uid, attempt: context.attempt, hostname: &hostname };
    let report = context
        .report
        .as_ref()
        .map(|to| to.racks.iter().map(|rack| format!("{rack}/report/{}", to.token)).collect::<Vec<_>>());
    let seed = nocloud::seed(
        identity,
        &claim.spec.ssh_keys,
        claim.spec.user_data.as_deref(),
        &network,
        report.as_deref().unwrap_or_default(),
    );
    let options = [
        Some(image.kernel_options.as_str()),
        input.spec.kernel_options.as_deref(),
        claim.spec.kernel_options.as_deref(),
    ];
    let declared = input.storage(claim);
    Ok(Install {
        image: image.root.clone(),
        disk: disk(declared, image),
        storage: built(declared),
        wipe: wipe(claim),
        hostname,
        kernel_options: kernel_options(options),
        netplan: netplan::netplan(&network),
        ntp_servers: ntp_servers(claim),
        log_to: context.log_to.first().cloned(),
        log_receivers: context.log_to.clone(),
        packages: (context.packages != Packages::default()).then(|| Box::new(context.packages.clone())),
        seed,
        first_boot: first_boot(input, claim, context, report.unwrap_or_default()),
    })
}

/// The scripts of the first boot, with their runner. `report` are the URLs to which the system reports.
fn first_boot(
    input: &MachineInput,
    claim: &Claim,
    context: &Context,
    report: Vec<String>,
) -> Option<Box<FirstBoot>> {
    let patience = claim.spec.readiness.timeout.as_secs();
    let scripts = context.first_boot.clone();
    let identity = (input.uid, context.attempt);
    (!scripts.is_empty()).then(|| Box::new(first_boot::render(scripts, identity, patience, report)))
}

/// The NTP servers of the subnets in which the region has assigned addresses. For other subnets, DHCP provides them.
fn ntp_servers(claim: &Claim) -> Vec<String> {
    let mut servers: Vec<String> = Vec::new();
    for server in claim.assigned.values().flat_map(|assigned| &assigned.ntp_servers) {
        if !servers.contains(server) {
            servers.push(server.clone());
        }
    }
    servers
}

/// The storage to build on the disks. `None` if agents of every version build it by default.
fn built(storage: &StorageConfig) -> Option<Box<StorageConfig>> {
    let plain = storage.layout == StorageLayout::Flat && storage.root_size.is_none();
    (!plain).then(|| Box::new(storage.expanded()))
}

/// The disk of the layout `flat`.
fn disk(storage: &StorageConfig, image: &ResolvedImage) -> DiskSelector {
    if storage.layout != StorageLayout::Flat {
        return DiskSelector { name: Some(NEEDS_STORAGE.to_owned()), min_bytes: None };
    }
    let needed = image.root.size.saturating_mul(UNPACKED).saturating_add(BOOT_BYTES);
    let root = storage.root_size.map_or(0, |size| size.bytes().saturating_add(BOOT_BYTES));
    let min_bytes = Some(needed.max(root));
    DiskSelector { name: storage.disk.clone(), min_bytes }
}
