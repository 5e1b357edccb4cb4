//! Power readings of 1,000 BMCs by IPMI, against FreeIPMI's ipmipower.
//!
//! `cargo bench -p basalt-rack --bench bmc_readings` prints three lines of JSON:
//!
//! | line | is |
//! | --- | --- |
//! | `bmc_readings` | readings a second. Each opens a session, reads the power, and closes the session |
//! | `bmc_reading_cpu` | CPU time of a reading, without that of the BMC |
//! | `bmc_memory` | memory of a rack that reads the BMCs, against 100 MB |
//!
//! Both programs read the same simulated BMCs on this host, with cipher suite 17. ipmipower asks 64 BMCs at once, as it does by itself; the
//! rack asks 16. The rack is told to read each BMC ten times a second, which it cannot, so it never rests.

mod support;

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use basalt_bmc::{
    BmcServer, BootDevice, BootOverride, ChassisBackend, CompletionCode, Password, PowerState, PowerVerb,
    ServerConfig, Username,
};
use basalt_proto::rack_v1::{Bmc, PowerConcern};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use support::{Ports, Result, median, peer, print, rack, resident};

const BMCS: u16 = 1000;
const USER: &str = "admin";
const PASSWORD: &str = "a-secret";
const SUITE: u32 = 17;
const ROUNDS: usize = 5;
/// How long the rack reads in a round.
const TIME: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(20);
/// The most memory allowed, in megabytes.
const ALLOWED: f64 = 100.0;
/// Kernel ticks a second, on every architecture that Basalt runs on.
const TICKS: f64 = 100.0;

/// The chassis behind all BMCs. It counts readings.
#[derive(Debug, Default)]
struct Chassis {
    readings: AtomicU64,
}

impl ChassisBackend for Chassis {
    async fn power_status(&self) -> PowerState {
        self.readings.fetch_add(1, Ordering::Relaxed);
        PowerState::On
    }

    async fn control(&self, _: PowerVerb) -> std::result::Result<(), CompletionCode> {
        Ok(())
    }

    async fn boot_override(&self) -> BootOverride {
        BootOverride { device: BootDevice::None, once: false, efi: false }
    }

    async fn set_boot_override(&self, _: BootOverride) -> std::result::Result<(), CompletionCode> {
        Ok(())
    }
}

/// Readings, and what they took.
#[derive(Debug)]
struct Round {
    readings: f64,
    seconds: f64,
    cpu_ms: f64,
}

impl Round {
    fn rate(&self) -> f64 {
        self.readings / self.seconds
    }

    fn cpu_ms_each(&self) -> f64 {
        self.cpu_ms / self.readings
    }
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let chassis = Arc::new(Chassis::default());
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let _bmcs = runtime.block_on(bmcs(port, &chassis))?;

    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    let data = dir.path().join("data");
    std::fs::create_dir_all(&data)?;
    let power = PowerConcern {
        bmcs: (0..BMCS).map(|number| described(number, port)).collect(),
        reading_ms: 100,
        ..PowerConcern::default()
    };
    write_concern(&data, &version(Concern::Power, 1, "local", &power))?;

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut memory = Vec::new();
    for _ in 0..ROUNDS {
        let rack = rack(dir.path(), Ports::free()?, &[])?;
        await_readings(&chassis, u64::from(BMCS))?;
        ours.push(read(rack.0.id(), &chassis)?);
        memory.push(resident(&rack)?);
        drop(rack);
        theirs.push(ipmipower(port)?);
    }
    let compared = |of: fn(&Round) -> f64| {
        let [ours, theirs] = [&ours, &theirs].map(|rounds| rounds.iter().map(of).collect::<Vec<_>>());
        let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        (median(ours), median(theirs), median(ratios))
    };
    let name = "ipmipower 1.6, 64 at once";
    let (rack, peer, ratio) = compared(Round::rate);
    print("bmc_readings", rack, name, peer, ratio, "readings/s");
    let (rack, peer, ratio) = compared(Round::cpu_ms_each);
    print("bmc_reading_cpu", rack, name, peer, 1.0 / ratio, "ms");
    let memory = median(memory);
    print("bmc_memory", memory, "what a rack with 1,000 machines may take", ALLOWED, ALLOWED / memory, "MB");
    Ok(())
}

fn address(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(127, 16, high, low)
}

fn described(number: u16, port: u16) -> Bmc {
    Bmc {
        machine_uid: format!("00000000-0000-0000-0000-{number:012}"),
        driver: "ipmi".into(),
        address: address(number).to_string(),
        port: port.into(),
        username: USER.into(),
        password: PASSWORD.into(),
        cipher_suite: SUITE,
        generation: 1,
        ..Bmc::default()
    }
}

/// Starts the BMCs, in tasks of the runtime.
async fn bmcs(port: u16, chassis: &Arc<Chassis>) -> Result<Vec<BmcServer>> {
    let mut started = Vec::new();
    for number in 0..BMCS {
        let config = ServerConfig::new(Username::new(USER)?, Password::new(PASSWORD)?, [0; 16]);
        let at = SocketAddr::from((address(number), port));
        started.push(BmcServer::start(at, config, Arc::clone(chassis)).await?);
    }
    Ok(started)
}

/// Waits for `count` further readings.
fn await_readings(chassis: &Chassis, count: u64) -> Result<()> {
    let (began, first) = (Instant::now(), chassis.readings.load(Ordering::Relaxed));
    while chassis.readings.load(Ordering::Relaxed) < first + count {
        if began.elapsed() > PATIENCE {
            return Err("the rack does not read its BMCs".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The readings of the rack for some seconds.
fn read(rack: u32, chassis: &Chassis) -> Result<Round> {
    let (began, cpu) = (Instant::now(), cpu_ms(rack)?);
    let first = chassis.readings.load(Ordering::Relaxed);
    std::thread::sleep(TIME);
    let readings = (chassis.readings.load(Ordering::Relaxed) - first) as f64;
    Ok(Round { readings, seconds: began.elapsed().as_secs_f64(), cpu_ms: cpu_ms(rack)? - cpu })
}

/// One reading of each BMC by ipmipower.
fn ipmipower(port: u16) -> Result<Round> {
    let root = peer("ipmipower")?;
    let hosts: Vec<_> = (0..BMCS).map(|number| format!("{}:{port}", address(number))).collect();
    let mut command = Command::new(root.join("usr/sbin/ipmipower"));
    command.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    command.args(["--driver-type=LAN_2_0", "--stat", "--config-file=/dev/null"]);
    command.arg(format!("--cipher-suite-id={SUITE}"));
    command.args(["--username", USER, "--password", PASSWORD, "--hostname", &hosts.join(",")]);
    let began = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut text)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    // Until somebody waits for it, an ended process keeps its figures.
    let cpu_ms = cpu_ms(child.id())?;
    child.wait()?;
    let on = text.lines().filter(|line| line.ends_with(": on")).count();
    if on < usize::from(BMCS) {
        let other = text.lines().find(|line| !line.ends_with(": on"));
        return Err(format!("ipmipower read {on} of {BMCS} BMCs: {other:?}").into());
    }
    Ok(Round { readings: f64::from(BMCS), seconds, cpu_ms })
}

/// The CPU time of a process so far.
fn cpu_ms(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, tail) = stat.rsplit_once(") ").ok_or("no name of a process")?;
    let ticks: f64 = tail.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks * 1000.0 / TICKS)
}
