//! The arbiter with sushy-emulator, OpenStack's Redfish BMC, which shares no code with Basalt (`tests/redfish`). It
//! changes power with a delay, closes every connection after its answer, and redirects from names of systems to their
//! paths.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use basalt_proto::rack_v1::bmc::Trust;
use basalt_proto::rack_v1::fact::Body;
use basalt_proto::rack_v1::power_command::{BootDevice, Verb};
use basalt_proto::rack_v1::{Bmc, PowerCommand, PowerConcern, PowerResult};
use basalt_rack::certificates::Certificates;
use basalt_rack::clock::Clock;
use basalt_rack::epochs::Epochs;
use basalt_rack::hash::sha256;
use basalt_rack::power::{PACE, Power};
use basalt_rack::spool::writer::Facts;
use basalt_rack::spool::{Limits, writer};
use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair, SanType};
use serde_json::Value;
use tokio::sync::watch;

/// The account `admin:secret`.
const ACCOUNT: &str = "admin:$2b$04$L3bpIIHQi8bt8MyAiFrnuu3xWmJ.0zMGkfU/P3BI0/LdxE.o2qrSe\n";
const ONE: &str = "c0ffee00-0000-4000-8000-000000000001";
const TWO: &str = "c0ffee00-0000-4000-8000-000000000002";

/// A certificate for 127.0.0.1, and the CA that signed it.
struct Certified {
    dir: tempfile::TempDir,
    sha256: [u8; 32],
    ca: String,
}

impl Certified {
    fn new(authority: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = || KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, authority);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, key()).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
        let own = key();
        let certificate = params.signed_by(&own, &ca).unwrap();
        std::fs::write(dir.path().join("certificate"), certificate.pem()).unwrap();
        std::fs::write(dir.path().join("key"), own.serialize_pem()).unwrap();
        Self { dir, sha256: sha256(certificate.der()), ca: ca.pem() }
    }

    fn text(&self) -> String {
        hex::encode(self.sha256)
    }
}

/// A running emulator; killed when dropped.
struct Emulator {
    process: Child,
    port: u16,
    requests: Option<JoinHandle<Vec<String>>>,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Emulator {
    /// Starts it with these systems, all powered off. Port 0: any free port.
    fn start(dir: &Path, port: u16, systems: &[&str], certified: &Certified) -> Self {
        let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/python-tools");
        let tools = Command::new(setup).arg("redfish").output().expect("the tools");
        assert!(tools.status.success(), "{}", String::from_utf8_lossy(&tools.stderr));
        let program = Path::new(String::from_utf8_lossy(&tools.stdout).trim()).join("sushy-emulator");
        let systems = systems
            .iter()
            .map(|uuid| format!("{{'uuid': '{uuid}', 'name': '{uuid}', 'power_state': 'Off', 'nics': []}}"));
        let (account, configuration, state) =
            (dir.join("account"), dir.join("configuration"), dir.join("state"));
        std::fs::create_dir_all(&state).unwrap();
        std::fs::write(&account, ACCOUNT).unwrap();
        // The emulator draws the delay of a power change, 1 to 11 seconds. This seed gives 1 five times in a row.
        let text = format!(
            "import random\nrandom.seed(424679)\nSUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = {port}\n\
             SUSHY_EMULATOR_STATE_DIR = {state:?}\nSUSHY_EMULATOR_AUTH_FILE = {account:?}\nSUSHY_EMULATOR_FAKE_SYSTEMS = [{}]\n",
            systems.collect::<Vec<_>>().join(", ")
        );
        std::fs::write(&configuration, text).unwrap();
        let mut command = Command::new(program);
        command.args(["--fake", "--config"]).arg(configuration);
        command.arg("--ssl-certificate").arg(certified.dir.path().join("certificate"));
        command.arg("--ssl-key").arg(certified.dir.path().join("key"));
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let port = lines.by_ref().find_map(|line| {
            let port = line
                .split_once("Running on https://127.0.0.1:")
                .and_then(|(_, port)| port.trim().parse().ok());
            said.push(line);
            port
        });
        // Somebody must read the pipe, or the emulator blocks when it is full.
        let requests = std::thread::spawn(move || lines.filter(|line| line.contains("HTTP/1.1")).collect());
        let port = port.unwrap_or_else(|| panic!("it does not listen: {said:?}"));
        Self { process, port, requests: Some(requests) }
    }

    /// Ends it and returns its requests.
    fn stop(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.requests.take().map(|reader| reader.join().unwrap()).unwrap_or_default()
    }

    /// A property of a system, read with curl.
    fn says(&self, system: &str, pointer: &str) -> String {
        let url = format!("https://127.0.0.1:{}/redfish/v1/Systems/{system}", self.port);
        let output =
            Command::new("curl").args(["-sSk", "--max-time", "20", "-u", "admin:secret", &url]).output();
        let system: Value = serde_json::from_slice(&output.expect("curl runs").stdout).expect("JSON");
        system.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

/// A rack's arbiter with one machine.
struct Lab {
    dir: tempfile::TempDir,
    concern: watch::Sender<Option<Arc<PowerConcern>>>,
    facts: Facts,
    power: Power,
    commands: u64,
}

impl Lab {
    async fn new(port: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bmc = Bmc {
            machine_uid: "m1".into(),
            driver: "redfish".into(),
            address: "127.0.0.1".into(),
            port: port.into(),
            username: "admin".into(),
            password: "secret".into(),
            ..Bmc::default()
        };
        let (facts, _) = writer::start(dir.path(), Limits::default(), Clock::default()).unwrap();
        let (concern, view) =
            watch::channel(Some(Arc::new(PowerConcern { bmcs: vec![bmc], ..PowerConcern::default() })));
        let power = Self::arbiter(dir.path(), view, &facts);
        Self { dir, concern, facts, power, commands: 0 }
    }

    fn arbiter(dir: &Path, view: watch::Receiver<Option<Arc<PowerConcern>>>, facts: &Facts) -> Power {
        let epochs = Arc::new(Epochs::open(dir).unwrap());
        Power::new(view, epochs, Arc::new(Certificates::open(dir).unwrap()), facts.clone(), PACE)
    }

    /// Restarts the rack's arbiter: it keeps only the state in its files.
    fn restart(&mut self) {
        self.power = Self::arbiter(self.dir.path(), self.concern.subscribe(), &self.facts);
    }

    fn declare(&self, change: impl FnOnce(&mut Bmc)) {
        let mut concern = PowerConcern::clone(self.concern.borrow().as_ref().unwrap());
        change(&mut concern.bmcs[0]);
        self.concern.send_replace(Some(Arc::new(concern)));
    }

    async fn run(&mut self, verb: Verb) -> PowerResult {
        self.boot(verb, BootDevice::Unchanged).await
    }

    async fn boot(&mut self, verb: Verb, device: BootDevice) -> PowerResult {
        self.commands += 1;
        let command = PowerCommand {
            command_id: format!("c{}", self.commands),
            machine_uid: "m1".into(),
            incarnation: "a".into(),
            epoch: self.commands,
            verb: verb.into(),
            boot_device: device.into(),
            efi: true,
            ..PowerCommand::default()
        };
        self.power.execute(command).await;
        let facts = self.facts.read(self.commands).await.unwrap();
        match facts.into_iter().next().and_then(|fact| fact.body) {
            Some(Body::Power(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    async fn reads(&mut self, power: &str) {
        let result = self.run(Verb::Status).await;
        assert_eq!((result.power.as_str(), result.error_code.as_str()), (power, ""), "{}", result.message);
    }

    async fn fails(&mut self, code: &str) -> String {
        let result = self.run(Verb::Status).await;
        assert_eq!((result.ok, result.error_code.as_str()), (false, code), "{}", result.message);
        result.message
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn power_moves_and_the_next_boot_is_chosen() {
    let (dir, certified) = (tempfile::tempdir().unwrap(), Certified::new("one"));
    let bmc = Emulator::start(dir.path(), 0, &[ONE], &certified);
    let mut lab = Lab::new(bmc.port).await;
    lab.reads("off").await;
    let on = lab.boot(Verb::On, BootDevice::PxeOnce).await;
    assert_eq!((on.power.as_str(), on.message.as_str()), ("on", ""));
    assert_eq!(on.certificate, certified.text());
    let boot = ["Target", "Mode"].map(|it| bmc.says(ONE, &format!("/Boot/BootSourceOverride{it}")));
    assert_eq!(boot, ["Pxe", "UEFI"]);
    assert_eq!(lab.run(Verb::On).await.power, "on", "what is on already is no error");
    let cycled = lab.boot(Verb::Cycle, BootDevice::Disk).await;
    assert_eq!((cycled.power.as_str(), cycled.message.as_str()), ("on", ""));
    assert_eq!(bmc.says(ONE, "/Boot/BootSourceOverrideTarget"), "Hdd");
    assert_eq!(lab.run(Verb::Off).await.power, "off");
    assert_eq!(bmc.says(ONE, "/PowerState"), "Off");
    assert_eq!(lab.run(Verb::Cycle).await.power, "on", "what is off is cycled by powering it on");
    assert!(lab.run(Verb::SoftOff).await.ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_moves_nothing() {
    let (dir, certified) = (tempfile::tempdir().unwrap(), Certified::new("one"));
    let bmc = Emulator::start(dir.path(), 0, &[ONE], &certified);
    let mut lab = Lab::new(bmc.port).await;
    lab.declare(|bmc| bmc.password = "wrong".into());
    let result = lab.run(Verb::On).await;
    assert_eq!((result.ok, result.error_code.as_str()), (false, "bad_password"));
    assert!(
        result.message.contains("user \"admin\"") && !result.message.contains("wrong;"),
        "{}",
        result.message
    );
    assert_eq!(bmc.says(ONE, "/PowerState"), "Off");
    lab.declare(|bmc| bmc.password = "secret".into());
    lab.reads("off").await;
    drop(bmc);
    let message = lab.fails("unreachable").await;
    assert!(message.contains("refused"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_certificate_is_the_one_until_another_is_declared() {
    let (dir, first, second) =
        (tempfile::tempdir().unwrap(), Certified::new("one"), Certified::new("another"));
    let bmc = Emulator::start(dir.path(), 0, &[ONE], &first);
    let port = bmc.port;
    let mut lab = Lab::new(port).await;
    lab.reads("off").await;
    assert_eq!(bmc.stop().len(), 3, "root, systems, the system");

    let bmc = Emulator::start(dir.path(), port, &[ONE], &second);
    lab.restart();
    let message = lab.fails("certificate").await;
    for part in [second.text().as_str(), &first.text(), "declare that in bmc.tls.fingerprint"] {
        assert!(message.contains(part), "{message}");
    }
    lab.declare(|bmc| bmc.trust = Some(Trust::Sha256(first.sha256.to_vec())));
    assert!(lab.fails("certificate").await.contains("declared in bmc.tls.fingerprint"));
    assert_eq!(bmc.stop(), Vec::<String>::new(), "it was asked nothing, with no password");

    let _bmc = Emulator::start(dir.path(), port, &[ONE], &second);
    lab.declare(|bmc| bmc.trust = Some(Trust::Sha256(second.sha256.to_vec())));
    lab.reads("off").await;
    lab.declare(|bmc| bmc.trust = None);
    lab.restart();
    lab.reads("off").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn authorities_vouch_where_they_are_declared() {
    let (dir, certified, other) =
        (tempfile::tempdir().unwrap(), Certified::new("one"), Certified::new("another"));
    let bmc = Emulator::start(dir.path(), 0, &[ONE], &certified);
    let mut lab = Lab::new(bmc.port).await;
    lab.declare(|bmc| bmc.trust = Some(Trust::Ca(certified.ca.clone())));
    lab.reads("off").await;
    for (trust, reason) in [
        (Trust::Ca(other.ca.clone()), "UnknownIssuer"),
        (Trust::HostRoots(true), "UnknownIssuer"),
        (Trust::Ca("-----BEGIN CERTIFICATE-----".into()), "bmc.tls.ca"),
    ] {
        lab.declare(|bmc| bmc.trust = Some(trust));
        let message = lab.fails("certificate").await;
        assert!(message.contains(reason), "{message}");
    }
    lab.declare(|bmc| bmc.trust = Some(Trust::Unverified(true)));
    lab.reads("off").await;
    lab.declare(|bmc| (bmc.address, bmc.trust) = ("localhost".into(), Some(Trust::Ca(certified.ca.clone()))));
    let message = lab.fails("certificate").await;
    assert!(message.contains("not valid for name"), "it is for 127.0.0.1 alone: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_systems_the_one_that_is_named_is_moved() {
    let (dir, certified) = (tempfile::tempdir().unwrap(), Certified::new("one"));
    let bmc = Emulator::start(dir.path(), 0, &[ONE, TWO], &certified);
    let mut lab = Lab::new(bmc.port).await;
    let message = lab.fails("unsupported").await;
    assert!(
        message.contains(ONE) && message.contains(TWO) && message.contains("bmc.options.system"),
        "{message}"
    );
    lab.declare(|bmc| bmc.system = TWO.into());
    assert_eq!(lab.run(Verb::On).await.power, "on");
    assert_eq!([ONE, TWO].map(|it| bmc.says(it, "/PowerState")), ["Off", "On"]);
    lab.declare(|bmc| bmc.system = "three".into());
    assert!(lab.fails("unsupported").await.contains("no system \"three\""));
}
