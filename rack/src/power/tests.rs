use super::*;
use crate::clock::Clock;
use crate::spool::{Limits, writer};
use basalt_bmc::{
    Accounts, BmcClient, BmcConfig, BmcKey, BmcServer, BootOverride, ChassisBackend, CompletionCode,
    Credentials, Password, Privilege, ServerConfig, User, Username,
};
use basalt_proto::rack_v1::Fact;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

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
    bmc: BmcServer,
    chassis: Arc<Chassis>,
    concern: watch::Sender<Option<Arc<PowerConcern>>>,
    facts: Facts,
    power: Power,
    seen: u64,
}

impl Lab {
    async fn new(password: &str) -> Self {
        Self::with(password, |_| {}).await
    }

    /// `make`: changes the BMC.
    async fn with(password: &str, make: impl FnOnce(&mut ServerConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let chassis = Arc::new(Chassis(Mutex::new((PowerState::Off, Vec::new()))));
        let name = Username::new("admin").unwrap();
        let of_bmc = Password::new("secret").unwrap();
        let mut config = ServerConfig::new(name.clone(), of_bmc.clone(), [1; 16]);
        let admin = User { name, password: of_bmc, privilege: Privilege::Operator };
        config.accounts = Accounts::new(4, vec![admin]);
        make(&mut config);
        let bmc = BmcServer::start("127.0.0.1:0".parse().unwrap(), config, chassis.clone()).await.unwrap();
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
                ..Bmc::default()
            }],
            networks: Vec::new(),
            reading_ms: 0,
        };
        let (facts, _) = writer::start(dir.path(), Limits::default(), Clock::default()).unwrap();
        let epochs = Arc::new(Epochs::open(dir.path()).unwrap());
        let (sender, concern) = watch::channel(Some(Arc::new(concern)));
        let certificates = Arc::new(Certificates::open(dir.path()).unwrap());
        let pace = Pace { session: Duration::from_millis(200), ..PACE };
        let power = Power::new(concern, epochs, certificates, facts.clone(), pace);
        Self { _dir: dir, bmc, chassis, concern: sender, facts, power, seen: 0 }
    }

    /// Changes the description of the BMC.
    fn describe(&self, change: impl FnOnce(&mut Bmc)) {
        let mut concern = PowerConcern::clone(self.concern.borrow().as_ref().unwrap());
        change(&mut concern.bmcs[0]);
        self.concern.send_replace(Some(Arc::new(concern)));
    }

    /// Names the networks that BMCs may be in.
    fn allow(&self, networks: &[&str]) {
        let mut concern = PowerConcern::clone(self.concern.borrow().as_ref().unwrap());
        concern.networks = networks.iter().map(ToString::to_string).collect();
        self.concern.send_replace(Some(Arc::new(concern)));
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
async fn systems_of_one_bmc_share_its_turns() {
    let lab = Lab::new("secret").await;
    let redfish = |address: &str, system: &str| Bmc {
        driver: "redfish".into(),
        address: address.into(),
        system: system.into(),
        ..Bmc::default()
    };
    let turns = |bmc: &Bmc| lab.power.turns(&place(bmc));
    let first = turns(&redfish("10.0.0.1", "1"));
    assert!(Arc::ptr_eq(&first, &turns(&redfish("10.0.0.1", "2"))), "two systems of one BMC");
    assert!(Arc::ptr_eq(&first, &turns(&Bmc { port: 443, ..redfish("10.0.0.1", "2") })), "its usual port");
    assert!(!Arc::ptr_eq(&first, &turns(&redfish("10.0.0.2", "1"))), "another BMC");
}

/// BMCs that accept connections and never speak. Machines that share such a BMC wait for its turns.
#[tokio::test]
async fn a_bmc_has_few_requests_at_once_for_all_of_its_systems() {
    let lab = Lab::new("secret").await;
    let other = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let chassis = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    chassis.set_nonblocking(true).unwrap();
    let redfish = |uid: String, at: SocketAddr| {
        let (address, port) = (at.ip().to_string(), at.port().into());
        let system = uid.clone();
        Bmc { machine_uid: uid, driver: "redfish".into(), address, port, system, ..Bmc::default() }
    };
    let blades = chassis.local_addr().unwrap();
    let mut bmcs: Vec<_> = (1..=6).map(|number| redfish(format!("blade-{number}"), blades)).collect();
    bmcs.push(redfish("elsewhere".into(), other.local_addr().unwrap()));
    let uids: Vec<_> = bmcs.iter().map(|bmc| bmc.machine_uid.clone()).collect();
    lab.concern.send_replace(Some(Arc::new(PowerConcern { bmcs, ..PowerConcern::default() })));

    let mut running = JoinSet::new();
    let power = Arc::new(lab.power);
    for machine_uid in uids {
        let power = Arc::clone(&power);
        let command =
            PowerCommand { machine_uid: machine_uid.clone(), ..command(Verb::Status, 1, &machine_uid) };
        running.spawn(async move { power.execute(command).await });
    }
    // All commands run in one thread, and the command for the other BMC is the last one: the others came as far.
    let _elsewhere = other.accept().await.unwrap();
    let arrivals = async || loop {
        let arrived: Vec<_> = std::iter::from_fn(|| chassis.accept().ok()).collect();
        if !arrived.is_empty() {
            break arrived;
        }
        tokio::task::yield_now().await;
    };
    let mut held = arrivals().await;
    assert_eq!(held.len(), TURNS, "{held:?}");
    held.pop();
    assert_eq!(arrivals().await.len(), 1, "a connection that ends makes room for one more");
}

#[tokio::test]
async fn sets_the_boot_device_then_powers_on_and_answers_once() {
    let mut lab = Lab::new("secret").await;
    let on = PowerCommand { boot_device: Device::PxeOnce.into(), efi: true, ..command(Verb::On, 5, "c1") };
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
async fn limits_of_ipmi_and_the_privilege_are_told_as_such() {
    let mut lab = Lab::new("a password that is too long for IPMI").await;
    let result = lab.run(command(Verb::On, 1, "c1")).await.remove(0).1;
    assert_eq!(
        result.error_code, "unsupported",
        "it is neither a wrong password nor a wrong user: {}",
        result.message
    );
    lab.describe(|bmc| (bmc.password, bmc.privilege) = ("secret".into(), "administrator".into()));
    let result = lab.run(command(Verb::On, 2, "c2")).await.remove(0).1;
    assert_eq!((result.error_code.as_str(), result.message.contains("administrator")), ("privilege", true));
}

#[tokio::test]
async fn a_bmc_key_is_used_and_a_missing_or_wrong_one_is_no_wrong_password() {
    let key = b"twenty octets of key";
    let mut lab = Lab::with("secret", |bmc| bmc.bmc_key = Some(BmcKey::new(key).unwrap())).await;
    let missing = lab.run(command(Verb::On, 1, "c1")).await.remove(0).1;
    assert_eq!(missing.error_code, "bad_bmc_key");
    assert!(missing.message.contains("declare it in bmc.k_g"), "{}", missing.message);
    lab.describe(|bmc| bmc.k_g = vec![7; 20]);
    let wrong = lab.run(command(Verb::On, 2, "c2")).await.remove(0).1;
    assert_eq!(wrong.error_code, "bad_bmc_key");
    assert!(wrong.message.contains("accepts the password, but its key K_g is not the one in bmc.k_g"));
    lab.describe(|bmc| bmc.k_g = key.to_vec());
    let right = lab.run(command(Verb::On, 3, "c3")).await.remove(0).1;
    assert!(right.ok, "{}", right.message);
}

#[tokio::test]
async fn sessions_that_somebody_else_holds_are_told_as_such() {
    let mut lab = Lab::with("secret", |bmc| bmc.sessions = 2).await;
    let credentials = Credentials::new("admin", "secret").unwrap();
    let somebody = BmcClient::new(BmcConfig::new(lab.bmc.address(), credentials));
    let first = somebody.connect().await.unwrap();
    // The rack has one session at a time, and closes it.
    for (epoch, id) in [(1, "c1"), (2, "c2"), (3, "c3")] {
        let result = lab.run(command(Verb::On, epoch, id)).await.remove(0).1;
        assert!(result.ok, "{}", result.message);
    }
    let second = somebody.connect().await.unwrap();
    let result = lab.run(command(Verb::Off, 4, "c4")).await.remove(0).1;
    assert_eq!(result.error_code, "no_session");
    for says in ["all of its sessions are in use", "other programs hold them"] {
        assert!(result.message.contains(says), "{}", result.message);
    }
    assert_eq!(lab.chassis.0.lock().unwrap().0, PowerState::On, "nothing was done");
    first.close().await;
    let result = lab.run(command(Verb::Off, 5, "c5")).await.remove(0).1;
    assert!(result.ok, "{}", result.message);
    second.close().await;
}

#[tokio::test]
async fn a_bmc_is_reset_as_an_administrator_and_the_machine_goes_on() {
    let mut lab = Lab::with("secret", |bmc| {
        let (name, password) = (Username::new("root").unwrap(), Password::new("secret").unwrap());
        let root = User { name, password, privilege: Privilege::Administrator };
        let (name, password) = (Username::new("admin").unwrap(), Password::new("secret").unwrap());
        bmc.accounts = Accounts::new(4, vec![User { name, password, privilege: Privilege::Operator }, root]);
    })
    .await;
    assert!(lab.run(command(Verb::On, 1, "c1")).await.remove(0).1.ok);
    let refused = lab.run(command(Verb::ResetBmc, 2, "c2")).await.remove(0).1;
    assert_eq!((refused.error_code.as_str(), lab.bmc.restarts()), ("privilege", 0));
    assert!(
        refused.message.contains("refused privilege administrator to user \"admin\""),
        "{}",
        refused.message
    );
    lab.describe(|bmc| bmc.username = "root".into());
    let reset = command(Verb::ResetBmc, 3, "c3");
    let result = lab.run(reset.clone()).await.remove(0).1;
    assert_eq!((result.ok, result.power.as_str(), result.verb.as_str()), (true, "unknown", "reset_bmc"));
    assert!(lab.run(reset).await.is_empty(), "a repeat resets nothing");
    assert_eq!(lab.bmc.restarts(), 1);
    assert_eq!(lab.chassis.0.lock().unwrap().1, ["on"], "the machine was not touched");
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

#[tokio::test]
async fn a_bmc_outside_of_the_networks_of_bmcs_is_told_nothing() {
    let mut lab = Lab::new("secret").await;
    lab.allow(&["192.0.2.0/24", "2001:db8::/32"]);
    let refused = lab.run(command(Verb::On, 1, "c1")).await;
    assert_eq!(refused[0].1.error_code, "outside");
    assert!(refused[0].1.message.contains("127.0.0.1 is outside of the networks of BMCs (192.0.2.0/24, "));
    assert!(lab.chassis.0.lock().unwrap().1.is_empty());
    lab.allow(&["192.0.2.0/24", "127.0.0.0/8"]);
    assert!(lab.run(command(Verb::On, 2, "c2")).await[0].1.ok);
}

/// One second of a BMC, in these tests.
const SECOND: Duration = Duration::from_millis(10);
const QUICK: Patience = Patience {
    still: Duration::from_millis(300),
    moving: Duration::from_secs(3),
    poll: (Duration::from_millis(5), Duration::from_millis(20)),
};

/// A BMC whose power takes its time: each reading until that second, and then the last one.
struct Slow {
    begun: Instant,
    readings: Vec<(u64, Reading)>,
    then: Reading,
    sent: Vec<(PowerVerb, u64)>,
}

impl Slow {
    fn new(readings: &[(u64, Reading)], then: Reading) -> Self {
        Self { begun: Instant::now(), readings: readings.to_vec(), then, sent: Vec::new() }
    }

    fn seconds(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis() / SECOND.as_millis()).unwrap()
    }
}

impl Conversation for &mut Slow {
    async fn power(&mut self) -> Result<Reading, Ended> {
        let now = self.seconds();
        Ok(self.readings.iter().find(|(until, _)| now < *until).map_or(self.then, |(_, reading)| *reading))
    }
    async fn send(&mut self, verb: PowerVerb) -> Result<(), Ended> {
        let now = self.seconds();
        self.sent.push((verb, now));
        Ok(())
    }
    async fn boot(&mut self, _: BootDevice, _: bool) -> Result<(), Ended> {
        Ok(())
    }
    async fn reset_bmc(self) -> Result<String, Ended> {
        unreachable!("no test asks for it")
    }
    async fn close(self) -> String {
        String::new()
    }
}

const ON: Reading = Reading::Still(PowerState::On);
const OFF: Reading = Reading::Still(PowerState::Off);
const POWERING_ON: Reading = Reading::MovingTo(PowerState::On);
const POWERING_OFF: Reading = Reading::MovingTo(PowerState::Off);

#[tokio::test]
async fn power_that_is_moving_is_waited_for() {
    for (verb, readings, then, sent_at) in [
        (Verb::On, &[(40, POWERING_ON)][..], ON, 0),
        (Verb::Off, &[(40, POWERING_OFF)], OFF, 0),
        (Verb::Cycle, &[(1, ON), (20, POWERING_OFF), (24, OFF), (45, POWERING_ON)], ON, 0),
        (Verb::On, &[(20, POWERING_OFF), (24, OFF), (40, POWERING_ON)], ON, 20),
        (Verb::Cycle, &[(20, POWERING_OFF), (24, OFF), (40, POWERING_ON)], ON, 20),
    ] {
        let mut bmc = Slow::new(readings, then);
        let ended = operate(&mut &mut bmc, &command(verb, 1, "c1"), QUICK).await;
        let moved = readings.last().map(|(until, _)| *until).unwrap_or_default();
        assert_eq!(ended, Ok(then), "{verb:?}");
        assert!(bmc.sent[0].1 >= sent_at, "{verb:?}: {:?}", bmc.sent);
        // A cycle may read as on before it has begun.
        assert!(bmc.seconds() >= moved || readings[0].1 == ON, "{verb:?}: {} s", bmc.seconds());
    }
}

#[tokio::test]
async fn power_that_moves_for_minutes_is_said_to_be_moving() {
    let mut bmc = Slow::new(&[], POWERING_ON);
    let ended = operate(&mut &mut bmc, &command(Verb::On, 1, "c1"), QUICK).await.unwrap_err();
    assert_eq!((ended.power, ended.error.as_ref().map(|(code, _)| *code)), ("off", Some("moving")));
    assert!(PATIENCE.moving < DEADLINE, "before the command itself is given up");
    let mut bmc = Slow::new(&[], OFF);
    assert_eq!(operate(&mut &mut bmc, &command(Verb::On, 1, "c1"), QUICK).await, Ok(OFF));
    assert!(bmc.begun.elapsed() < QUICK.moving, "one that stands still is waited for less long");
}
