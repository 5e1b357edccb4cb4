//! The arbiter of BMCs: runs power commands, one at a time per BMC, newest epoch only, and answers each with a fact.
//!
//! A command is refused if the rack has no such BMC, if the command is too late, or if the BMC has seen a newer one. A repeated command does
//! nothing (see [`epochs`](crate::epochs)). Otherwise:
//!
//! 1. The boot device is set.
//! 2. The verb is sent.
//! 3. The power is read until it is the power that the verb asks for, or until 15 seconds have passed. While the BMC says that the power is
//!    changing, the limit is 50 seconds in all.
//!
//! The drivers speak to BMCs: [`ipmi`], [`redfish`], [`webhook`]. A command or reading by IPMI has one session, and closes it. So a rack
//! has at most one session with a BMC. After a wrong key the BMC keeps a second session open, and only the BMC can end it.
//!
//! The verb `RESET_BMC` restarts the BMC itself, and neither changes nor reads the power.
//!
//! Several machines may have the same BMC. A command is for one machine; the requests for all of them share the BMC's turns.
//!
//! Between commands the rack reads the power of its BMCs ([`readings`]).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use basalt_bmc::{BootDevice, PowerState, PowerVerb};
use basalt_proto::local::is_local;
use basalt_proto::rack_v1::power_command::{BootDevice as Device, Verb};
use basalt_proto::rack_v1::{Bmc, PowerCommand, PowerConcern, PowerResult, fact::Body};
use ipnet::IpNet;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

mod arbiter;
mod ipmi;
mod readings;
mod redfish;
mod schedule;
mod trust;
mod webhook;

use self::arbiter::Arbiter;
use self::ipmi::Suites;
use self::schedule::Schedule;
pub use self::schedule::{PACE, Pace};
use self::webhook::Webhook;

use crate::certificates::Certificates;
use crate::epochs::{Admission, Epochs};
use crate::facts::About;
use crate::spool::writer::Facts;

/// The longest time of a command.
const DEADLINE: Duration = Duration::from_secs(75);
/// How long a command waits for the power to change.
const PATIENCE: Patience = Patience {
    still: Duration::from_secs(15),
    moving: Duration::from_secs(50),
    poll: (Duration::from_millis(500), Duration::from_secs(2)),
};
/// How long a command may be ahead of the concern that names its BMC.
const AHEAD: Duration = Duration::from_secs(3);
/// The most requests at once to one web server, for all machines behind it. The web server of a BMC is small.
const TURNS: usize = 2;

/// Runs power commands.
#[derive(Debug)]
pub struct Power {
    concern: watch::Receiver<Option<Arc<PowerConcern>>>,
    epochs: Arc<Epochs>,
    certificates: Arc<Certificates>,
    facts: Facts,
    arbiters: Mutex<HashMap<String, Arc<Arbiter>>>,
    /// The turns of each web server, by address and port.
    turns: Mutex<HashMap<String, Arc<Semaphore>>>,
    suites: Suites,
    pace: Pace,
    schedule: Mutex<Schedule>,
    /// A command has changed the schedule.
    planned: Notify,
}

/// A request to a BMC.
#[derive(Clone, Copy)]
enum Ask<'a> {
    Command(&'a PowerCommand),
    Reading,
}

/// The result of a command or of a reading.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    power: &'static str,
    error: Option<(&'static str, String)>,
    /// SHA-256 of the certificate that the BMC showed, in hexadecimal. Empty: no certificate.
    certificate: String,
    /// The power has begun to change.
    moves: bool,
}

impl Ended {
    fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            power: "unknown",
            error: Some((code, message.into())),
            certificate: String::new(),
            moves: false,
        }
    }
}

/// How long a command waits for the power to change.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// The longest wait after the verb, while the power reads as before.
    still: Duration,
    /// The longest wait in all, while the BMC says that the power is changing.
    moving: Duration,
    /// The pause between two readings: the first one, doubled each time up to the second one.
    poll: (Duration, Duration),
}

/// The power of a machine, as its BMC says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The power is not changing.
    Still(PowerState),
    /// The power has begun to change to this.
    MovingTo(PowerState),
}

impl Reading {
    /// `on` or `off`. Until a change is complete, this is the power before the change.
    fn word(self) -> &'static str {
        match self {
            Self::Still(PowerState::On) | Self::MovingTo(PowerState::Off) => "on",
            Self::Still(PowerState::Off) | Self::MovingTo(PowerState::On) => "off",
        }
    }
}

/// A conversation with one BMC. Each driver implements it.
trait Conversation {
    /// The power of the machine.
    async fn power(&mut self) -> Result<Reading, Ended>;
    /// Changes the power. Returns when the BMC has begun.
    async fn send(&mut self, verb: PowerVerb) -> Result<(), Ended>;
    /// Chooses what the machine boots next, once. `efi`: it is known to boot by UEFI.
    async fn boot(&mut self, device: BootDevice, efi: bool) -> Result<(), Ended>;
    /// Restarts the BMC itself, and ends the conversation. The machine is not touched. Returns as [`Conversation::close`].
    async fn reset_bmc(self) -> Result<String, Ended>;
    /// Ends the conversation. Returns the SHA-256 of the certificate that the BMC showed, in hexadecimal. Empty: no certificate.
    async fn close(self) -> String;
}

impl Power {
    /// An arbiter of the concern's BMCs.
    #[must_use]
    pub fn new(
        concern: watch::Receiver<Option<Arc<PowerConcern>>>,
        epochs: Arc<Epochs>,
        certificates: Arc<Certificates>,
        facts: Facts,
        pace: Pace,
    ) -> Self {
        Self {
            concern,
            epochs,
            certificates,
            facts,
            arbiters: Mutex::default(),
            turns: Mutex::default(),
            suites: Suites::default(),
            pace,
            schedule: Mutex::new(Schedule::new(pace, Instant::now())),
            planned: Notify::new(),
        }
    }

    /// Runs a command to its end and reports the result. A repeat of a command that ran is ignored.
    pub async fn execute(&self, command: PowerCommand) {
        crate::kill::commanded(&command.step_key);
        let bmc = self.bmc(&command).await;
        let key = bmc.as_ref().map(key);
        let (Some(bmc), Some(key)) = (bmc, key) else {
            let message = format!(
                "this rack has no BMC of machine {} as generation {} of the machine declares it",
                command.machine_uid, command.bmc_generation
            );
            let ended = Ended::error("no_bmc", message);
            return self.tell(&command, ended).await;
        };
        let arbiter = self.arbiter(&key);
        let _alone = arbiter.command().await;
        match self.admit(&key, &command) {
            None => {}
            Some(Err(refused)) => self.tell(&command, refused).await,
            Some(Ok(())) => {
                let moved = tokio::time::timeout(DEADLINE, self.drive(&bmc, Ask::Command(&command))).await;
                let ended = moved.unwrap_or_else(|_| {
                    let seconds = DEADLINE.as_secs();
                    let message = format!(
                        "not done within {seconds} seconds; look at the power state before trying again"
                    );
                    Ended::error("unreachable", message)
                });
                let now = Instant::now();
                self.schedule(|it| it.commanded(&command.machine_uid, command.verb(), &ended, now));
                self.planned.notify_one();
                self.tell(&command, ended).await;
                if let Err(error) =
                    self.epochs.finished(&key, &command.incarnation, command.epoch, &command.command_id)
                {
                    tracing::error!(machine = %command.machine_uid, %error, "file `epochs` cannot be written");
                }
            }
        }
    }

    /// Runs a request with the BMC's driver.
    async fn drive(&self, bmc: &Bmc, ask: Ask<'_>) -> Ended {
        let networks = self.concern.borrow().as_ref().map(|it| it.networks.clone()).unwrap_or_default();
        let at = match inside(bmc, &networks).await {
            Ok(at) => at,
            Err(ended) => return ended,
        };
        match bmc.driver.as_str() {
            "ipmi" => {
                let opened = ipmi::open(bmc, at, &self.suites, ipmi::Asked::by(ask, self.pace.session)).await;
                converse(opened, ask).await
            }
            "redfish" => {
                converse(redfish::open(bmc, at, &self.certificates, self.turns(&place(bmc))).await, ask).await
            }
            "webhook" => {
                let turns = self.turns(&place(bmc));
                converse(Webhook::new(bmc, at, &self.certificates, turns, webhook::LIMITS), ask).await
            }
            driver => Ended::error(
                "driver",
                format!("this rack has no driver {driver:?}; it has \"ipmi\", \"redfish\" and \"webhook\""),
            ),
        }
    }

    /// Decides if a command may run. `None`: it is a repeat.
    fn admit(&self, key: &str, command: &PowerCommand) -> Option<Result<(), Ended>> {
        let refused = |code, message: String| Some(Err(Ended::error(code, message)));
        if command.not_after_unix_ms != 0 && self.facts.clock().unix_now() > command.not_after_unix_ms {
            return refused("expired", "the command arrived after its time; nothing was done".to_owned());
        }
        match self.epochs.admit(key, &command.incarnation, command.epoch, &command.command_id) {
            Ok(Admission::Run) => Some(Ok(())),
            Ok(Admission::Repeat) => {
                tracing::debug!(machine = %command.machine_uid, command = %command.command_id, "power command repeated");
                None
            }
            Ok(Admission::Interrupted) if command.verb() == Verb::Cycle => {
                let message = "the rack was stopped while it cycled the power; look at the power state before trying again";
                refused("interrupted", message.to_owned())
            }
            Ok(Admission::Interrupted) => Some(Ok(())),
            Ok(Admission::Stale { highest }) => refused(
                "stale_epoch",
                format!("its number {} is older than {highest}, of a later region process", command.epoch),
            ),
            Err(error) => refused(
                "rack_disk",
                format!("the rack cannot remember the command, so it did not run: {error}"),
            ),
        }
    }

    async fn tell(&self, command: &PowerCommand, ended: Ended) {
        let verb = command.verb().as_str_name().to_ascii_lowercase();
        let ok = ended.error.is_none();
        let (error_code, message) = ended.error.unwrap_or_default();
        if ok {
            tracing::info!(machine = %command.machine_uid, verb, power = ended.power, "power command done");
        } else {
            tracing::warn!(machine = %command.machine_uid, verb, error_code, message, "power command failed");
        }
        let about = About {
            machine_uid: command.machine_uid.clone(),
            step_key: command.step_key.clone(),
            ..About::default()
        };
        let fact = about.saw(Body::Power(PowerResult {
            command_id: command.command_id.clone(),
            verb,
            ok,
            power: ended.power.to_owned(),
            error_code: error_code.to_owned(),
            message,
            epoch: command.epoch,
            certificate: ended.certificate,
        }));
        if let Err(error) = self.facts.record(fact).await {
            tracing::error!(machine = %command.machine_uid, %error, "a power result is lost; the region's deadline will notice");
        }
    }

    /// The machine's BMC, if a concern names it within [`AHEAD`]. Its description must not be older than the command: a wrong
    /// password that was corrected a moment ago must not be tried again, because the BMC may lock the account.
    async fn bmc(&self, command: &PowerCommand) -> Option<Bmc> {
        let meant = |bmc: &&Bmc| {
            bmc.machine_uid == command.machine_uid
                && bmc.generation >= command.bmc_generation
                && bmc.account == command.bmc_account
        };
        let find = |concern: &Option<Arc<PowerConcern>>| concern.as_ref()?.bmcs.iter().find(meant).cloned();
        let mut concern = self.concern.clone();
        let named = tokio::time::timeout(AHEAD, concern.wait_for(|concern| find(concern).is_some())).await;
        find(&*named.ok()?.ok()?)
    }

    fn turns(&self, place: &str) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(place.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(TURNS))))
    }

    fn arbiter(&self, key: &str) -> Arc<Arbiter> {
        let mut arbiters = self.arbiters.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(arbiters.entry(key.to_owned()).or_default())
    }
}

/// The address and port of a BMC.
fn place(bmc: &Bmc) -> String {
    let port = match (bmc.port, bmc.driver.as_str()) {
        (0, "redfish") => u32::from(redfish::PORT),
        (0, "webhook") => u32::from(webhook::default_port(bmc)),
        (0, _) => u32::from(ipmi::PORT),
        (port, _) => port,
    };
    format!("{}:{port}", bmc.address)
}

/// The address to connect to: the first address of the BMC's name, if all of its addresses are in networks of BMCs. The name is not
/// resolved again, because another answer could be outside of them.
///
/// Without networks of BMCs, a BMC may be anywhere: `None`. A webhook still must not be at an address of [`is_local`]: it could send
/// requests to any service of this host, and an error would show the answer.
async fn inside(bmc: &Bmc, networks: &[String]) -> Result<Option<IpAddr>, Ended> {
    let is_anywhere = networks.is_empty();
    if is_anywhere && bmc.driver != "webhook" {
        return Ok(None);
    }
    let nets: Vec<IpNet> = networks.iter().filter_map(|net| net.parse().ok()).collect();
    let found = tokio::net::lookup_host((bmc.address.as_str(), 0)).await;
    let found =
        found.map_err(|error| Ended::error("unreachable", format!("BMC {}: {error}", bmc.address)))?;
    let found: Vec<IpAddr> = found.map(|it| it.ip().to_canonical()).collect();
    let is_inside = |address: &IpAddr| match is_anywhere {
        true => !is_local(*address),
        false => nets.iter().any(|net| net.contains(address)),
    };
    if let Some(address) = found.iter().find(|address| !is_inside(address)) {
        let networks = match is_anywhere {
            true => "any network but this host and its links".to_owned(),
            false => networks.join(", "),
        };
        let message = format!(
            "BMC {}: {address} is outside of the networks of BMCs ({networks}), and was told nothing; an admin adds networks to bmc_networks of Settings",
            bmc.address
        );
        return Err(Ended::error("outside", message));
    }
    Ok(found.first().copied())
}

/// The key of an arbiter. There is one for each BMC, for each system of a Redfish BMC, and for each machine of a webhook's service.
fn key(bmc: &Bmc) -> String {
    let place = place(bmc);
    match &bmc.webhook {
        Some(webhook) => format!("{place}{}", webhook.on),
        None if bmc.system.is_empty() => place,
        None => format!("{place}/{}", bmc.system),
    }
}

async fn converse(opened: Result<impl Conversation, Ended>, ask: Ask<'_>) -> Ended {
    let mut bmc = match opened {
        Ok(bmc) => bmc,
        Err(ended) => return ended,
    };
    if let Ask::Command(command) = ask
        && command.verb() == Verb::ResetBmc
    {
        // The power stays unknown: the BMC answers again after minutes.
        return match bmc.reset_bmc().await {
            Ok(certificate) => Ended { power: "unknown", error: None, certificate, moves: false },
            Err(ended) => ended,
        };
    }
    let read = match ask {
        Ask::Command(command) => operate(&mut bmc, command, PATIENCE).await,
        Ask::Reading => bmc.power().await,
    };
    let ended = match read {
        Ok(power) => Ended {
            power: power.word(),
            error: None,
            certificate: String::new(),
            moves: matches!(power, Reading::MovingTo(_)),
        },
        Err(ended) => ended,
    };
    Ended { certificate: bmc.close().await, ..ended }
}

async fn operate(
    bmc: &mut impl Conversation,
    command: &PowerCommand,
    patience: Patience,
) -> Result<Reading, Ended> {
    let moving_until = Instant::now() + patience.moving;
    let device = match command.boot_device() {
        Device::Unchanged => None,
        Device::PxeOnce => Some(BootDevice::Pxe),
        Device::Disk => Some(BootDevice::Disk),
    };
    if let Some(device) = device {
        bmc.boot(device, command.efi).await?;
    }
    let wanted = match command.verb() {
        Verb::On => {
            // BMCs refuse to switch on a system that is powering off.
            settled(bmc, PowerState::Off, patience, moving_until).await?;
            bmc.send(PowerVerb::On).await?;
            Some(PowerState::On)
        }
        Verb::Off => {
            bmc.send(PowerVerb::Off).await?;
            Some(PowerState::Off)
        }
        Verb::Cycle => {
            // A BMC cannot cycle a machine that is off. The aim is a fresh start, so the machine is switched on.
            let off = settled(bmc, PowerState::Off, patience, moving_until).await?.word() == "off";
            bmc.send(if off { PowerVerb::On } else { PowerVerb::Cycle }).await?;
            Some(PowerState::On)
        }
        Verb::SoftOff => {
            bmc.send(PowerVerb::Soft).await?;
            // The operating system shuts down later; the region reads the power again. The request was sent, so an error of
            // this reading is no error of the command.
            return Ok(bmc.power().await.unwrap_or(Reading::MovingTo(PowerState::Off)));
        }
        Verb::Status | Verb::ResetBmc | Verb::Unspecified => None,
    };
    let mut still_until = Instant::now() + patience.still;
    let mut pause = patience.poll.0;
    loop {
        let (power, now) = (bmc.power().await?, Instant::now());
        match power {
            Reading::Still(state) if wanted.is_none_or(|wanted| wanted == state) || now >= still_until => {
                return Ok(power);
            }
            Reading::Still(_) => {}
            Reading::MovingTo(to) if now >= moving_until => return Err(moves(to, patience)),
            // Between two moves of a cycle the machine stands still for a moment.
            Reading::MovingTo(_) => still_until = now + patience.still,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(patience.poll.1);
    }
}

/// Waits until the power no longer changes to `to`, and returns it.
async fn settled(
    bmc: &mut impl Conversation,
    to: PowerState,
    patience: Patience,
    until: Instant,
) -> Result<Reading, Ended> {
    let mut pause = patience.poll.0;
    loop {
        let power = bmc.power().await?;
        if power != Reading::MovingTo(to) {
            return Ok(power);
        }
        if Instant::now() >= until {
            return Err(moves(to, patience));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(patience.poll.1);
    }
}

fn moves(to: PowerState, patience: Patience) -> Ended {
    let (says, power) = match to {
        PowerState::On => ("PoweringOn", "on"),
        PowerState::Off => ("PoweringOff", "off"),
    };
    let seconds = patience.moving.as_secs();
    let message = format!("the BMC has said {says} for {seconds} s, and the machine is not {power} yet");
    Ended { power: Reading::MovingTo(to).word(), ..Ended::error("moving", message) }
}

#[cfg(test)]
mod tests;
