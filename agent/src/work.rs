//! The worker: claims this boot's task, runs it, delivers the result, powers off or reboots.

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use basalt_api::agent::{
    Bmc, BmcAccount, BmcEnd, BmcSetup, Checkpoint, ClaimReply, ClaimRequest, FailureCode, Inventory, Outcome,
    REBOOT_STAGE, Task, TaskAction, TaskResult, Then, bmc_purpose,
};
use rustix::system::{RebootCommand, reboot};

use crate::cmdline::BootConfig;
use crate::deadlines::Background;
use crate::disk::Disks;
use crate::failure::Failure;
use crate::http::Client;
use crate::modules::{self, Coldplug, Index};
use crate::neighbours::Listener;
use crate::rack::{self, Session};
use crate::report::Reporter;
use crate::restarts::{Restart, Restarts};
use crate::root::Root;
use crate::task_scripts::Stop;
use crate::{
    bmc, console, deadlines, efi, erase, initrd, install, inventory, ipv6, neighbours, network, proxy, say,
    task_scripts, tls,
};

/// The rack's clock: its time at the claim, plus the time that has passed on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    unix_ms: i64,
    at: Instant,
}

impl Clock {
    /// A clock that shows `unix_ms` now.
    #[must_use]
    pub fn set(unix_ms: i64) -> Self {
        Self { unix_ms, at: Instant::now() }
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn now_unix_ms(&self) -> i64 {
        self.unix_ms.saturating_add(i64::try_from(self.at.elapsed().as_millis()).unwrap_or(i64::MAX))
    }
}

/// Data for the execution of a task.
#[derive(Debug)]
pub struct Context<'a> {
    /// The task of this boot.
    pub task: &'a Task,
    /// The session, for blobs and reports.
    pub session: &'a Session,
    /// The kernel command line.
    pub boot: &'a BootConfig,
    /// The rack's clock.
    pub clock: Clock,
    /// True if an earlier boot of this machine had claimed the task.
    pub again: bool,
    /// The latest checkpoint of an earlier boot.
    pub checkpoint: Option<&'a Checkpoint>,
}

/// Runs the worker. Never returns: the machine is powered off or rebooted, also after a failure.
#[must_use]
pub fn run() -> ExitCode {
    let then = match claimed_task() {
        Ok(then) => then,
        Err(error) => {
            say!("{error}");
            initrd::restart()
        }
    };
    leave(then)
}

/// Restarts the machine, for a script. Its init has no services to end.
pub fn restart_now() -> ! {
    leave(Then::Reboot)
}

fn leave(then: Then) -> ! {
    say!("done, {:.1} s after the kernel: {then:?}", console::uptime());
    rustix::fs::sync();
    let command = match then {
        Then::PowerOff => RebootCommand::PowerOff,
        Then::Reboot => RebootCommand::Restart,
    };
    if let Err(error) = reboot(command) {
        say!("{then:?} failed: {error}");
    }
    initrd::restart()
}

fn claimed_task() -> Result<Then, Box<dyn std::error::Error>> {
    let boot = BootConfig::parse(&fs::read_to_string("/proc/cmdline")?)?;
    let client = Client::new(&boot.url, tls::pinned(boot.spki)?)?;
    // Drivers are loaded while the claim is sent.
    let devices = Background::start(drive_devices);
    let system = Root::system();
    let interface = network::find(&system, boot.boot_mac.as_deref());
    let own = interface.as_ref().and_then(|name| network::mac(&system, name));
    let mac = own.or_else(|| boot.boot_mac.clone());
    if let Some(interface) = &interface {
        network::keep_leases(interface, mac.as_deref().unwrap_or_default());
    }
    let reply = rack::claim(
        &client,
        &ClaimRequest {
            token: boot.token.clone(),
            boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
            mac: mac.unwrap_or_default(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        },
    )?;
    let clock = Clock::set(reply.now_unix_ms);
    set_system_clock(&reply);
    say!("claimed attempt {}, {:.1} s after the kernel", reply.attempt, console::uptime());
    let session = Session::new(client, reply.session.clone());
    let task = session.task()?;
    if let Err(why) = devices.wait(deadlines::DRIVERS) {
        let loading = modules::loading(&system).join(", ");
        say!(
            "drivers are not loaded, and devices may be missing: {why}. Modules that are still being loaded: {loading}"
        );
    }
    let listener = listen(&system);
    bring_up_other_interfaces(&system, interface.as_deref());
    let checkpoint = reply.checkpoint.as_deref();
    let context =
        Context { task: &task, session: &session, boot: &boot, clock, again: reply.again, checkpoint };
    let result = match perform(&context, listener) {
        Ok(result) => result,
        Err(Restart { by }) => {
            say!("attempt {}: script {by} has the machine restarted", task.attempt);
            return Ok(Then::Reboot);
        }
    };
    say!("attempt {}: {:?}", task.attempt, result.outcome);
    session.result(&result)?;
    Ok(task.then)
}

/// Runs the task and returns its result.
///
/// # Errors
/// A script has the machine restarted, and the task continues afterwards.
fn perform(context: &Context<'_>, listener: Option<Listener>) -> Result<TaskResult, Restart> {
    let task = context.task;
    let system = Root::system();
    let mut reporter = Reporter::new(context.session.clone());
    reporter.stage("inventory", 1, "reading the hardware");
    if let Err(error) = efi::mount_variables() {
        say!("the firmware's variables cannot be reached, so that Secure Boot is not known: {error}");
    }
    let mut inventory = match read_hardware(&system, context.boot.boot_mac.clone()) {
        Ok(inventory) => inventory,
        Err(Failure { code, message }) => {
            say!("failed: {message}");
            return Ok(unread(task.attempt, Outcome::Failed { code, message, wrote: false }, reporter));
        }
    };
    inventory::ask(&mut inventory);
    let mut kernel = bmc::Kernel::find(&system);
    inventory.bmc = kernel.as_mut().and_then(bmc::found::read);
    let boot = network::find(&system, context.boot.boot_mac.as_deref());
    let mut redfish = bmc::redfish::find(&system, boot.as_deref());
    match &redfish {
        Some(Ok(found)) => found.describe(inventory.bmc.get_or_insert_default()),
        Some(Err(why)) => say!("{why}"),
        None => {}
    }
    use_proxy(task, &system);
    let mut disks = Disks::new(system.clone());
    let (mut output, mut scripts, mut logs) = (None, Vec::new(), None);
    let earlier = context.checkpoint.and_then(|it| it.bmc.clone());
    let account = task.bmc.as_ref().filter(|_| earlier.is_none()).map(|wanted| {
        reporter.stage("bmc", 1, "making an account on the BMC");
        if let Some(kernel) = kernel.as_mut() {
            kernel.begin();
        }
        let ways = Ways { kernel: kernel.as_mut(), redfish: redfish.as_mut(), uuid: &inventory.dmi.uuid };
        set_up_bmc(context, ways, wanted, &mut inventory.bmc)
    });
    let account = earlier.or(account);
    let may_reboot = task.may_reboot();
    if may_reboot {
        restart_from_network(&system, kernel.as_mut());
    }
    let left_ms = || task.not_after_unix_ms.saturating_sub(context.clock.now_unix_ms());
    let mut ledger =
        |checkpoint: &Checkpoint| context.session.checkpoint(checkpoint).map_err(|error| error.to_string());
    let mut restarts = Restarts::new(context.checkpoint, context.again, &left_ms, &mut ledger);
    restarts.keep_bmc(account.clone());
    let done = match &task.action {
        TaskAction::Inventory => {
            let found =
                task_scripts::run_alone(context, &system, &disks, &mut reporter, &mut restarts, &mut scripts);
            found.map(|later| {
                later.map_or(Outcome::Succeeded, |found_attempt| Outcome::Superseded { found_attempt })
            })
        }
        TaskAction::Install(install) => {
            install::run(context, install, &mut disks, &mut reporter, &mut logs, &mut scripts)
                .map_err(Stop::from)
        }
        TaskAction::Erase(erase) => {
            erase::run(context, erase, &mut disks, &mut reporter, &mut scripts).map_err(Stop::from)
        }
        TaskAction::Script(script) => {
            let (said, done) =
                task_scripts::run_asked(context, &system, script, &mut reporter, &mut restarts);
            output = said;
            done.map(|()| Outcome::Succeeded)
        }
    };
    let outcome = match done {
        Ok(outcome) => outcome,
        Err(Stop::Restart(restart)) => {
            reporter.stage(REBOOT_STAGE, 50, &format!("script {} has the machine restarted", restart.by));
            restart_from_network(&system, kernel.as_mut());
            reporter.finish();
            return Err(restart);
        }
        Err(Stop::Failed(Failure { code, message })) => {
            say!("failed: {message}");
            Outcome::Failed { code, message, wrote: disks.wrote() }
        }
    };
    if may_reboot {
        efi::boot_by_order(&system);
    }
    // Neighbours are only needed in the inventory of a task that succeeded.
    if let (Outcome::Succeeded, Some(listener)) = (&outcome, listener) {
        let silent = listener.silent(&system).join(", ");
        if !silent.is_empty() {
            reporter.stage("neighbours", 99, &format!("listening for the switch at {silent}"));
        }
        neighbours::fill(&mut inventory.nics, listener.collect(&system));
    }
    Ok(TaskResult {
        attempt: task.attempt,
        outcome,
        inventory: Some(inventory),
        markers: disks.markers(),
        timings: reporter.finish().into_iter().collect(),
        output,
        scripts,
        bmc: account,
        logs,
    })
}

/// Has the package managers of the ephemeral environment use the task's proxy. Without it, scripts may still reach their repositories.
fn use_proxy(task: &Task, system: &Root) {
    if let Some(at) = &task.proxy
        && let Err(error) = proxy::configure(&system.path(""), at)
    {
        say!("package managers do not use the proxy {at}: {error}");
    }
}

/// Reads the kernel's files of the hardware.
///
/// # Errors
/// A call of the kernel does not return.
fn read_hardware(system: &Root, boot_mac: Option<String>) -> Result<Inventory, Failure> {
    let system = system.clone();
    let read = Background::start(move || inventory::read(&system, boot_mac.as_deref()));
    read.wait(deadlines::HARDWARE).map_err(|why| Failure {
        code: FailureCode::Other,
        message: format!(
            "the hardware cannot be read: {why}. Look at the kernel's messages on the console for the device, then power the machine off and on"
        ),
    })
}

/// The result of a task that failed before the hardware was read.
fn unread(attempt: u64, outcome: Outcome, reporter: Reporter) -> TaskResult {
    TaskResult {
        attempt,
        outcome,
        inventory: None,
        markers: Default::default(),
        timings: reporter.finish().into_iter().collect(),
        output: None,
        scripts: Vec::new(),
        bmc: None,
        logs: None,
    }
}

/// Makes the next boot come from the network, like this one: a region sets the boot device only when it powers the machine on. If this
/// function fails, the boot order of the firmware decides.
fn restart_from_network(system: &Root, kernel: Option<&mut bmc::Kernel>) {
    let done = match (efi::boot_again(system), kernel) {
        (Ok(true), _) => return,
        (Ok(false), Some(kernel)) => bmc::boot_from_network(kernel).map_err(|refusal| refusal.to_string()),
        (Ok(false), None) => Err("it has neither UEFI nor a BMC to tell".to_owned()),
        (Err(error), _) => Err(error.to_string()),
    };
    if let Err(why) = done {
        say!("after a restart the firmware's boot order decides: {why}");
    }
}

/// The connections from the machine to its BMC.
struct Ways<'a> {
    kernel: Option<&'a mut bmc::Kernel>,
    redfish: Option<&'a mut Result<bmc::redfish::Found, String>>,
    /// The UUID in the machine's firmware.
    uuid: &'a str,
}

/// Makes the account on the BMC. A failure does not stop the inventory.
fn set_up_bmc(context: &Context<'_>, ways: Ways<'_>, wanted: &BmcSetup, found: &mut Option<Bmc>) -> BmcEnd {
    let task = context.task;
    let purpose = bmc_purpose(&task.machine_uid, task.attempt);
    let mut promise = |account: &BmcAccount| {
        let written = context.session.bmc(account);
        written.map_err(|error| format!("the password was not written down, and is not used: {error}"))
    };
    let done = match install::not_expired(context) {
        Err(failure) => Err(failure.message),
        Ok(()) => bmc::set_up(ways.kernel, ways.redfish, wanted, &purpose, ways.uuid, found, &mut promise),
    };
    match done {
        Ok(account) => {
            say!("the BMC has user {:?}, by {:?}", account.user, account.driver);
            BmcEnd::Made(account)
        }
        Err(message) => {
            say!("no account on the BMC: {message}");
            BmcEnd::Failed { message }
        }
    }
}

fn drive_devices() {
    let index = match Index::of_running_kernel() {
        Ok(index) => index,
        Err(error) => {
            say!("no drivers can be loaded: {error}");
            return;
        }
    };
    let mut coldplug = Coldplug::new(index);
    coldplug.pass();
    // On many boards the BMC has no device of its own: the driver finds it by SMBIOS.
    for module in ["ipmi_devintf", "ipmi_si", "efivarfs"] {
        coldplug.load(module);
    }
    coldplug.settle();
    say!("{} modules for the devices found, {:.1} s after the kernel", coldplug.count(), console::uptime());
}

/// Starts to listen for switches' announcements during the task. Without a listener the inventory has no neighbours.
fn listen(system: &Root) -> Option<Listener> {
    let listener = Listener::start(system, neighbours::links(system));
    listener.inspect_err(|error| say!("switches cannot be heard: {error}")).ok()
}

/// Brings up all interfaces, since the inventory has their carriers and speeds and an interface that is down shows neither.
fn bring_up_other_interfaces(system: &Root, own: Option<&str>) {
    let down: Vec<String> =
        network::physical(system).into_iter().filter(|name| !network::has_carrier(system, name)).collect();
    for name in &down {
        if Some(name.as_str()) != own {
            // The route to the rack must stay the one of the claim.
            ipv6::ignore_routers(name);
        }
        if let Err(error) = network::up(name) {
            say!("{error}");
        }
    }
    if !down.is_empty() {
        let all = || down.iter().all(|name| network::has_carrier(system, name)).then_some(());
        let _ = deadlines::poll_until(deadlines::OTHER_CARRIERS, all);
    }
}

/// Sets the system clock, so that files of an install get sensible dates. A failure is not serious.
fn set_system_clock(reply: &ClaimReply) {
    let Ok(since) = u64::try_from(reply.now_unix_ms).map(Duration::from_millis) else { return };
    let time = rustix::time::Timespec {
        tv_sec: i64::try_from(since.as_secs()).unwrap_or(0),
        tv_nsec: since.subsec_nanos().into(),
    };
    if let Err(error) = rustix::time::clock_settime(rustix::time::ClockId::Realtime, time) {
        say!("the clock was not set: {error}");
    }
}
