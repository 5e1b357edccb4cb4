use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use basalt_bmc::{
    Accounts, BmcServer, BootOverride, ChassisBackend, CipherSuite, CompletionCode, Fault, Password,
    PowerState, PowerVerb, Privilege, ServerConfig, User, Username,
};
use basalt_proto::rack_v1::power_command::Verb;
use basalt_proto::rack_v1::{Bmc, PowerCommand, PowerConcern};
use tokio::sync::watch;

use super::super::{PACE, Pace};
use super::*;
use crate::certificates::Certificates;
use crate::clock::Clock;
use crate::epochs::Epochs;
use crate::spool::writer::Facts;
use crate::spool::{Limits, writer};

/// How long these tests wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);
const QUICK: Pace = Pace {
    confirm: Duration::from_millis(100),
    again: Duration::from_millis(50),
    grace: Duration::from_millis(50),
    look: Duration::from_millis(1500),
    ..PACE
};

/// A machine behind a BMC. `lies`: after a power command, the first reading shows the new power; then the machine is off.
/// `busy`: the running readings of all BMCs, and the most at once.
#[derive(Debug)]
struct Chassis {
    state: Mutex<PowerState>,
    confirmed: AtomicBool,
    lies: bool,
    takes: Duration,
    busy: Arc<(AtomicUsize, AtomicUsize)>,
}

impl ChassisBackend for Chassis {
    async fn power_status(&self) -> PowerState {
        let (now, most) = &*self.busy;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::time::sleep(self.takes).await;
        now.fetch_sub(1, Ordering::SeqCst);
        let mut state = self.state.lock().unwrap();
        let read = *state;
        if self.confirmed.load(Ordering::SeqCst) {
            *state = PowerState::Off;
        }
        read
    }
    async fn control(&self, verb: PowerVerb) -> Result<(), CompletionCode> {
        *self.state.lock().unwrap() = if verb == PowerVerb::On { PowerState::On } else { PowerState::Off };
        self.confirmed.store(self.lies, Ordering::SeqCst);
        Ok(())
    }
    async fn boot_override(&self) -> BootOverride {
        BootOverride::NONE
    }
    async fn set_boot_override(&self, _: BootOverride) -> Result<(), CompletionCode> {
        Ok(())
    }
}

struct Lab {
    _dir: tempfile::TempDir,
    bmcs: Vec<(BmcServer, Arc<Chassis>)>,
    busy: Arc<(AtomicUsize, AtomicUsize)>,
    concern: watch::Sender<Option<Arc<PowerConcern>>>,
    facts: Facts,
    power: Arc<Power>,
    stop: CancellationToken,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Lab {
    /// BMCs of machines that are off.
    async fn new(count: usize, pace: Pace, make: impl Fn(usize, &mut Chassis, &mut ServerConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let busy = Arc::default();
        let (mut bmcs, mut described) = (Vec::new(), Vec::new());
        for number in 0..count {
            let mut chassis = Chassis {
                state: Mutex::new(PowerState::Off),
                confirmed: AtomicBool::new(false),
                lies: false,
                takes: Duration::ZERO,
                busy: Arc::clone(&busy),
            };
            let (name, password) = (Username::new("admin").unwrap(), Password::new("secret").unwrap());
            let mut config = ServerConfig::new(name.clone(), password.clone(), [1; 16]);
            config.accounts = Accounts::new(4, vec![User { name, password, privilege: Privilege::Operator }]);
            make(number, &mut chassis, &mut config);
            let chassis = Arc::new(chassis);
            let server = BmcServer::start("127.0.0.1:0".parse().unwrap(), config, chassis.clone()).await;
            let server = server.unwrap();
            described.push(Bmc {
                machine_uid: format!("m{number}"),
                driver: "ipmi".into(),
                address: "127.0.0.1".into(),
                port: server.address().port().into(),
                username: "admin".into(),
                password: "secret".into(),
                generation: 1,
                ..Bmc::default()
            });
            bmcs.push((server, chassis));
        }
        let told = PowerConcern { bmcs: described, ..PowerConcern::default() };
        let (concern, view) = watch::channel(Some(Arc::new(told)));
        let (facts, _) = writer::start(dir.path(), Limits::default(), Clock::default()).unwrap();
        let epochs = Arc::new(Epochs::open(dir.path()).unwrap());
        let certificates = Arc::new(Certificates::open(dir.path()).unwrap());
        let power = Arc::new(Power::new(view, epochs, certificates, facts.clone(), pace));
        let stop = CancellationToken::new();
        tokio::spawn(Arc::clone(&power).read(stop.clone()));
        Self { _dir: dir, bmcs, busy, concern, facts, power, stop }
    }

    fn each(&self, interval: Duration) {
        self.concern.send_modify(|concern| {
            let mut told = PowerConcern::clone(concern.as_ref().unwrap());
            told.reading_ms = interval.as_millis() as u64;
            *concern = Some(Arc::new(told));
        });
    }

    /// The readings of a machine that were told so far: `on`, `off`, or the code of a failure.
    async fn told(&self, machine: &str) -> Vec<String> {
        let facts = self.facts.read(1).await.unwrap();
        let of = facts.into_iter().filter(|fact| fact.machine_uid == machine);
        let word = |reading: PowerReading| reading.power + &reading.error_code;
        of.filter_map(|fact| match fact.body {
            Some(Body::Reading(reading)) => Some(word(reading)),
            _ => None,
        })
        .collect()
    }

    async fn until(&self, holds: impl AsyncFn(&Self) -> bool) {
        let reached = tokio::time::timeout(PATIENCE, async {
            while !holds(self).await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        assert!(reached.await.is_ok(), "{:?}", self.facts.meters().read());
    }

    /// How many readings had this outcome.
    fn count(&self, outcome: &str) -> u64 {
        self.facts.meters().read().readings.get(outcome).copied().unwrap_or_default()
    }

    async fn command(&self, verb: Verb, id: &str) -> Duration {
        let begun = Instant::now();
        self.power
            .execute(PowerCommand {
                command_id: id.into(),
                machine_uid: "m0".into(),
                incarnation: "a".into(),
                epoch: 1,
                step_key: "step".into(),
                verb: verb.into(),
                ..PowerCommand::default()
            })
            .await;
        begun.elapsed()
    }
}

#[tokio::test]
async fn a_change_that_nobody_commanded_is_told_once() {
    let lab = Lab::new(1, QUICK, |_, _, _| {}).await;
    lab.each(Duration::from_millis(100));
    lab.until(async |lab| lab.told("m0").await == ["off"]).await;
    let before = lab.count("ok");
    lab.until(async |lab| lab.count("ok") > before + 3).await;
    *lab.bmcs[0].1.state.lock().unwrap() = PowerState::On;
    lab.until(async |lab| lab.told("m0").await == ["off", "on"]).await;
}

#[tokio::test]
async fn a_bmc_that_says_on_and_goes_off_again_is_found_out() {
    let lab = Lab::new(1, QUICK, |_, chassis, _| chassis.lies = true).await;
    lab.command(Verb::On, "c1").await;
    lab.until(async |lab| lab.told("m0").await == ["off"]).await;
    assert_eq!(lab.count("ok"), 1, "readings at intervals are off: this one confirmed the command");
}

#[tokio::test]
async fn fifty_bmcs_are_read_within_the_interval_and_four_at_once_and_a_dead_one_delays_none() {
    const BMCS: usize = 50;
    let pace = Pace { at_once: 4, ..QUICK };
    let lab = Lab::new(BMCS, pace, |_, chassis, _| chassis.takes = Duration::from_millis(20)).await;
    lab.bmcs[7].0.faults().set(&[Fault::Unreachable]);
    lab.each(Duration::from_secs(4));
    let begun = Instant::now();
    lab.until(async |lab| lab.count("ok") >= BMCS as u64 - 1 && lab.count("unreachable") >= 2).await;
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    let most = lab.busy.1.load(Ordering::SeqCst);
    assert!((1..=4).contains(&most), "{most} at once");
    lab.until(async |lab| lab.told("m7").await == ["unreachable"]).await;
    lab.bmcs[7].0.faults().set(&[]);
    lab.until(async |lab| lab.told("m7").await == ["unreachable", "off"]).await;
}

#[tokio::test]
async fn a_command_takes_the_bmc_over_from_a_reading() {
    let pace = Pace { look: PATIENCE, ..QUICK };
    let lab = Lab::new(1, pace, |_, _, _| {}).await;
    let (bmc, _) = &lab.bmcs[0];
    bmc.faults().set(&[Fault::Unreachable]);
    lab.each(Duration::from_millis(100));
    lab.until(async |_| bmc.faults().fired(Fault::Unreachable) > 0).await;
    bmc.faults().set(&[Fault::Delay(Duration::from_millis(200))]);
    let took = lab.command(Verb::On, "c1").await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(lab.count("gave_way") > 0);
}

#[tokio::test]
async fn the_cipher_suite_that_a_bmc_takes_is_found_and_remembered() {
    let only_3 = |_, _: &mut Chassis, config: &mut ServerConfig| config.suites = vec![CipherSuite::suite_3()];
    let lab = Lab::new(1, QUICK, only_3).await;
    lab.each(Duration::from_millis(100));
    lab.until(async |lab| lab.count("ok") > 2).await;
    assert_eq!(lab.power.suites.known("127.0.0.1", lab.bmcs[0].0.address().port()), Some(3));
    assert_eq!(lab.count("cipher_suite"), 0);
    let lab = Lab::new(1, QUICK, |_, _, _| {}).await;
    lab.each(Duration::from_millis(100));
    lab.until(async |lab| lab.count("ok") > 0).await;
    assert_eq!(lab.power.suites.known("127.0.0.1", lab.bmcs[0].0.address().port()), Some(17));
}
