//! The arbiter of BMCs: runs power commands, one at a time per BMC, newest epoch only, and answers each with a fact.
//!
//! What becomes of a command is decided in this order: no such BMC, too late, older than what the BMC has seen, a repeat
//! (see [`epochs`](crate::epochs)); then the boot device is set, the verb sent, and the power state read until it is what the verb asks
//! for, or 15 seconds have passed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use basalt_bmc::{
    BmcClient, BmcConfig, BmcError, BmcSession, BootDevice, BootOverride, Credentials, Failure, PowerState,
    PowerVerb,
};
use basalt_proto::rack_v1::power_command::{BootDevice as Device, Verb};
use basalt_proto::rack_v1::{Bmc, PowerCommand, PowerConcern, PowerResult, fact::Body};
use tokio::sync::watch;

use crate::epochs::{Admission, Epochs};
use crate::facts::About;
use crate::spool::writer::Facts;

/// How long a command may take in all.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long the power state is waited for after the verb.
const SETTLE: Duration = Duration::from_secs(15);
/// How long a command may be ahead of the concern that names its BMC.
const AHEAD: Duration = Duration::from_secs(3);
/// Between two readings of the power state.
const POLL: Duration = Duration::from_millis(500);
/// IPMI over LAN.
const IPMI_PORT: u16 = 623;
/// The suite where the concern names none.
const DEFAULT_SUITE: u32 = 3;

/// Runs power commands.
#[derive(Debug)]
pub struct Power {
    concern: watch::Receiver<Option<Arc<PowerConcern>>>,
    epochs: Arc<Epochs>,
    facts: Facts,
    arbiters: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// What a command came to.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    power: &'static str,
    error: Option<(&'static str, String)>,
}

impl Ended {
    fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self { power: "unknown", error: Some((code, message.into())) }
    }
}

impl Power {
    /// An arbiter of the concern's BMCs.
    #[must_use]
    pub fn new(
        concern: watch::Receiver<Option<Arc<PowerConcern>>>,
        epochs: Arc<Epochs>,
        facts: Facts,
    ) -> Self {
        Self { concern, epochs, facts, arbiters: Mutex::default() }
    }

    /// Runs a command to its end, and tells the result; repeats of one that ran are ignored.
    pub async fn execute(&self, command: PowerCommand) {
        crate::kill::commanded(&command.step_key);
        let bmc = self.bmc(&command).await;
        let key = bmc.as_ref().map(|bmc| format!("{}:{}", bmc.address, port(bmc)));
        let (Some(bmc), Some(key)) = (bmc, key) else {
            let message = format!(
                "this rack has no BMC of machine {} as generation {} of the machine declares it",
                command.machine_uid, command.bmc_generation
            );
            let ended = Ended::error("no_bmc", message);
            return self.tell(&command, ended).await;
        };
        let arbiter = self.arbiter(&key);
        let _alone = arbiter.lock().await;
        match self.admit(&key, &command) {
            None => {}
            Some(Err(refused)) => self.tell(&command, refused).await,
            Some(Ok(())) => {
                let moved = tokio::time::timeout(DEADLINE, drive(&bmc, &command)).await;
                let ended = moved.unwrap_or_else(|_| {
                    let seconds = DEADLINE.as_secs();
                    let message = format!(
                        "not done within {seconds} seconds; look at the power state before trying again"
                    );
                    Ended::error("unreachable", message)
                });
                self.tell(&command, ended).await;
                if let Err(error) =
                    self.epochs.finished(&key, &command.incarnation, command.epoch, &command.command_id)
                {
                    tracing::error!(machine = %command.machine_uid, %error, "file `epochs` cannot be written");
                }
            }
        }
    }

    /// Whether a command may run; `None`: it is a repeat.
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
                format!("epoch {} is older than {highest}, which this BMC has seen", command.epoch),
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
        }));
        if let Err(error) = self.facts.record(fact).await {
            tracing::error!(machine = %command.machine_uid, %error, "a power result is lost; the region's deadline will notice");
        }
    }

    /// The machine's BMC, if a concern names it in time: as it was declared when the command was given, or later. A wrong
    /// password that was mended a moment ago must not count against the account once more.
    async fn bmc(&self, command: &PowerCommand) -> Option<Bmc> {
        let meant =
            |bmc: &&Bmc| bmc.machine_uid == command.machine_uid && bmc.generation >= command.bmc_generation;
        let find = |concern: &Option<Arc<PowerConcern>>| concern.as_ref()?.bmcs.iter().find(meant).cloned();
        let mut concern = self.concern.clone();
        let named = tokio::time::timeout(AHEAD, concern.wait_for(|concern| find(concern).is_some())).await;
        find(&*named.ok()?.ok()?)
    }

    fn arbiter(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut arbiters = self.arbiters.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(arbiters.entry(key.to_owned()).or_default())
    }
}

fn port(bmc: &Bmc) -> u32 {
    if bmc.port == 0 { u32::from(IPMI_PORT) } else { bmc.port }
}

async fn drive(bmc: &Bmc, command: &PowerCommand) -> Ended {
    let client = match client(bmc).await {
        Ok(client) => client,
        Err(ended) => return ended,
    };
    let mut session = match client.connect().await {
        Ok(session) => session,
        Err(error) => return failed(&error),
    };
    let ended = match operate(&mut session, command).await {
        Ok(power) => Ended { power: word(power), error: None },
        Err(error) => failed(&error),
    };
    session.close().await;
    ended
}

async fn operate(session: &mut BmcSession, command: &PowerCommand) -> Result<PowerState, BmcError> {
    let device = match command.boot_device() {
        Device::Unchanged => None,
        Device::PxeOnce => Some(BootDevice::Pxe),
        Device::Disk => Some(BootDevice::Disk),
    };
    if let Some(device) = device {
        session.set_boot_override(BootOverride { device, once: true, efi: command.efi }).await?;
    }
    let (verb, wanted) = match command.verb() {
        Verb::On => (Some(PowerVerb::On), Some(PowerState::On)),
        Verb::Off => (Some(PowerVerb::Off), Some(PowerState::Off)),
        Verb::Cycle => (Some(PowerVerb::Cycle), Some(PowerState::On)),
        // The operating system takes its time; the region looks again.
        Verb::SoftOff => (Some(PowerVerb::Soft), None),
        Verb::Status | Verb::Unspecified => (None, None),
    };
    if let Some(verb) = verb {
        // A machine that is off cannot be cycled; what is wanted is that it starts afresh.
        let off = verb == PowerVerb::Cycle && session.power_status().await? == PowerState::Off;
        session.power(if off { PowerVerb::On } else { verb }).await?;
    }
    let deadline = tokio::time::Instant::now() + SETTLE;
    loop {
        let power = session.power_status().await?;
        if wanted.is_none_or(|wanted| wanted == power) || tokio::time::Instant::now() >= deadline {
            return Ok(power);
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn client(bmc: &Bmc) -> Result<BmcClient, Ended> {
    if bmc.driver != "ipmi" {
        return Err(Ended::error(
            "driver",
            format!("this rack has no driver {:?}; it has \"ipmi\"", bmc.driver),
        ));
    }
    let address = resolve(bmc).await?;
    let credentials = Credentials::new(&bmc.username, &bmc.password)
        .map_err(|error| Ended::error("bad_username", format!("BMC {}: {error}", bmc.address)))?;
    let mut config = BmcConfig::new(address, credentials);
    let number = if bmc.cipher_suite == 0 { DEFAULT_SUITE } else { bmc.cipher_suite };
    let suite = u8::try_from(number).ok().and_then(basalt_bmc::CipherSuite::by_id);
    config.suite = suite.ok_or_else(|| {
        Ended::error("cipher_suite", format!("BMC {}: this rack does not speak suite {number}", bmc.address))
    })?;
    Ok(BmcClient::new(config))
}

async fn resolve(bmc: &Bmc) -> Result<SocketAddr, Ended> {
    let unreachable = |reason: String| Ended::error("unreachable", format!("BMC {}: {reason}", bmc.address));
    let port =
        u16::try_from(port(bmc)).map_err(|_| unreachable(format!("port {} does not exist", bmc.port)))?;
    let mut found = tokio::net::lookup_host((bmc.address.as_str(), port))
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    found.next().ok_or_else(|| unreachable("the name has no address".to_owned()))
}

fn failed(error: &BmcError) -> Ended {
    let code = match &error.failure {
        Failure::WrongUserName { .. } => "bad_username",
        Failure::WrongPassword { .. } | Failure::BmcKeyRequired => "bad_password",
        Failure::RefusedPrivilege { .. } => "privilege",
        Failure::UnsupportedSuite { .. } | Failure::NoIpmi20 => "cipher_suite",
        Failure::Command { .. } => "completion_code",
        _ => "unreachable",
    };
    Ended::error(code, error.to_string())
}

fn word(power: PowerState) -> &'static str {
    match power {
        PowerState::On => "on",
        PowerState::Off => "off",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::spool::{Limits, writer};
    use basalt_bmc::{BmcServer, ChassisBackend, CompletionCode, Password, ServerConfig, Username};
    use basalt_proto::rack_v1::Fact;

    #[derive(Debug)]
    struct Chassis(Mutex<(PowerState, Vec<String>)>);

    impl ChassisBackend for Chassis {
        async fn power_status(&self) -> PowerState {
            self.0.lock().unwrap().0
        }
        async fn control(&self, verb: PowerVerb) -> Result<(), CompletionCode> {
            let mut inner = self.0.lock().unwrap();
            inner.1.push(verb.to_string());
            inner.0 = if verb == PowerVerb::Off { PowerState::Off } else { PowerState::On };
            Ok(())
        }
        async fn boot_override(&self) -> BootOverride {
            BootOverride::NONE
        }
        async fn set_boot_override(&self, boot: BootOverride) -> Result<(), CompletionCode> {
            self.0.lock().unwrap().1.push(format!("boot {} efi={}", boot.device, boot.efi));
            Ok(())
        }
    }

    struct Lab {
        _dir: tempfile::TempDir,
        _bmc: BmcServer,
        chassis: Arc<Chassis>,
        concern: watch::Sender<Option<Arc<PowerConcern>>>,
        facts: Facts,
        power: Power,
        seen: u64,
    }

    impl Lab {
        async fn new(password: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let chassis = Arc::new(Chassis(Mutex::new((PowerState::Off, Vec::new()))));
            let config =
                ServerConfig::new(Username::new("admin").unwrap(), Password::new("secret").unwrap(), [1; 16]);
            let bmc =
                BmcServer::start("127.0.0.1:0".parse().unwrap(), config, chassis.clone()).await.unwrap();
            let concern = PowerConcern {
                bmcs: vec![Bmc {
                    machine_uid: "m1".into(),
                    driver: "ipmi".into(),
                    address: "127.0.0.1".into(),
                    port: bmc.address().port().into(),
                    username: "admin".into(),
                    password: password.into(),
                    cipher_suite: 3,
                    generation: 1,
                }],
            };
            let (facts, _) = writer::start(dir.path(), Limits::default(), Clock::default()).unwrap();
            let epochs = Arc::new(Epochs::open(dir.path()).unwrap());
            let (sender, concern) = watch::channel(Some(Arc::new(concern)));
            let power = Power::new(concern, epochs, facts.clone());
            Self { _dir: dir, _bmc: bmc, chassis, concern: sender, facts, power, seen: 0 }
        }

        /// Runs a command and returns the results it led to.
        async fn run(&mut self, command: PowerCommand) -> Vec<(Fact, PowerResult)> {
            self.power.execute(command).await;
            let facts = self.facts.read(self.seen + 1).await.unwrap();
            self.seen += facts.len() as u64;
            let result = |fact: Fact| match fact.body.clone() {
                Some(Body::Power(result)) => (fact, result),
                other => panic!("{other:?}"),
            };
            facts.into_iter().map(result).collect()
        }
    }

    fn command(verb: Verb, epoch: u64, id: &str) -> PowerCommand {
        PowerCommand {
            command_id: id.into(),
            machine_uid: "m1".into(),
            incarnation: "a".into(),
            epoch,
            step_key: "step".into(),
            verb: verb.into(),
            ..PowerCommand::default()
        }
    }

    #[tokio::test]
    async fn sets_the_boot_device_then_powers_on_and_answers_once() {
        let mut lab = Lab::new("secret").await;
        let on =
            PowerCommand { boot_device: Device::PxeOnce.into(), efi: true, ..command(Verb::On, 5, "c1") };
        let results = lab.run(on.clone()).await;
        let (fact, result) = &results[0];
        assert_eq!((fact.step_key.as_str(), fact.machine_uid.as_str()), ("step", "m1"));
        assert_eq!(
            (result.ok, result.power.as_str(), result.verb.as_str()),
            (true, "on", "on"),
            "{}",
            result.message
        );
        assert_eq!(lab.chassis.0.lock().unwrap().1, ["boot pxe efi=true", "on"]);
        assert!(lab.run(on).await.is_empty(), "a repeat does nothing");
    }

    #[tokio::test]
    async fn an_older_epoch_moves_nothing() {
        let mut lab = Lab::new("secret").await;
        lab.run(command(Verb::On, 5, "c1")).await;
        let results = lab.run(command(Verb::Off, 4, "c2")).await;
        assert_eq!(results[0].1.error_code, "stale_epoch");
        assert_eq!(lab.chassis.0.lock().unwrap().0, PowerState::On);
    }

    #[tokio::test]
    async fn a_late_command_an_unknown_machine_and_a_wrong_password_say_so() {
        let mut lab = Lab::new("wrong").await;
        let late = PowerCommand { not_after_unix_ms: 1, ..command(Verb::On, 1, "c1") };
        let unknown = PowerCommand { machine_uid: "m2".into(), ..command(Verb::On, 1, "c2") };
        for (command, code) in
            [(late, "expired"), (unknown, "no_bmc"), (command(Verb::On, 1, "c3"), "bad_password")]
        {
            let results = lab.run(command).await;
            assert_eq!(
                (results[0].1.ok, results[0].1.error_code.as_str()),
                (false, code),
                "{}",
                results[0].1.message
            );
        }
        assert!(lab.chassis.0.lock().unwrap().1.is_empty());
    }

    #[tokio::test]
    async fn a_command_waits_for_the_description_that_it_was_given_under() {
        let mut lab = Lab::new("wrong").await;
        let mended = PowerCommand { bmc_generation: 2, ..command(Verb::On, 1, "c1") };
        let mut concern = PowerConcern::clone(lab.concern.borrow().as_ref().unwrap());
        concern.bmcs[0].password = "secret".into();
        concern.bmcs[0].generation = 2;
        let sender = lab.concern.clone();
        let (results, _) =
            tokio::join!(lab.run(mended), async move { sender.send_replace(Some(Arc::new(concern))) });
        assert!(results[0].1.ok, "{}", results[0].1.message);
    }

    #[tokio::test]
    async fn a_machine_that_is_off_is_cycled_by_powering_it_on() {
        let mut lab = Lab::new("secret").await;
        let results = lab.run(command(Verb::Cycle, 1, "c1")).await;
        assert_eq!(results[0].1.power, "on");
        assert_eq!(lab.chassis.0.lock().unwrap().1, ["on"]);
    }
}
