//! The time that clients wait for an address when one of two racks dies, compared with both alive: the median and the
//! 99th of 100. The clients are machines that boot meanwhile, and systems that restart and ask for their previous
//! address.
//!
//! `cargo bench -p basalt-rack --bench failover` prints four lines of JSON.

#[path = "../tests/rack/namespace.rs"]
#[allow(dead_code, clippy::print_stdout, reason = "tests use all of it")]
mod namespace;
#[path = "../tests/rack/port.rs"]
#[allow(dead_code, reason = "clients here are asked by nobody")]
mod port;
mod support;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use basalt_dhcp::client::{ClientAction, ClientConfig};
use basalt_dhcp::{Client, Mac, Time, ingress};
use basalt_proto::rack_v1::{AddressRange, DhcpConcern, DhcpSubnet};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use dhcproto::v4::OptionCode;
use namespace::{Host, Running, make_switch};
use port::{Heard, Port};
use support::{Result, median, print};

const INSIDE: &str = "BASALT_BENCH_INSIDE_NAMESPACE";
const CLIENTS: u16 = 400;
/// The pause between two clients.
const PAUSE: Duration = Duration::from_millis(10);
/// The first retry of iPXE.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(90);

fn main() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return measure();
    }
    let inside = Command::new("unshare")
        .args(["-r", "-n", "-p", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe()?)
        .env(INSIDE, "1")
        .status()?;
    if inside.success() { Ok(()) } else { Err(format!("in a namespace of its own: {inside}").into()) }
}

struct Rack {
    _host: Host,
    address: Ipv4Addr,
    mac: Mac,
    program: Option<Running>,
}

fn rack(number: u8, dir: &Path) -> Result<Rack> {
    let (mac, address) = (Mac([0x52, 0x54, 0, 0, 0, number]), Ipv4Addr::new(10, 9, 0, number));
    let host = Host::plug(&format!("rack-{number}"), &mac.to_string());
    host.run(&["ip", "address", "add", &format!("{address}/16"), "dev", "eth0"]);
    let block = AddressRange { start: format!("10.9.{number}0.0"), end: format!("10.9.{number}7.255") };
    let subnet = DhcpSubnet {
        subnet_uid: "s1".into(),
        cidr: "10.9.0.0/16".into(),
        dynamic: vec![block],
        lease_seconds: 600,
        ..DhcpSubnet::default()
    };
    let concern = DhcpConcern { subnets: vec![subnet], serve_unknown: true, ..DhcpConcern::default() };
    let data = dir.join(format!("rack-{number}"));
    std::fs::create_dir_all(&data)?;
    write_concern(&data, &version(Concern::Dhcp, 1, "local", &concern))?;
    let (program, data) = (env!("CARGO_BIN_EXE_basalt-rack"), data.to_string_lossy());
    let command = [program, "--data-dir", &data, "--interface", "eth0", "--name", "rack", "--log", "error"];
    let program = Some(host.spawn(&command));
    Ok(Rack { _host: host, address, mac, program })
}

fn client_mac(number: u16) -> Mac {
    let [high, low] = number.to_be_bytes();
    Mac([0x52, 0x54, 0, 1, high, low])
}

/// A client that asks for an address.
struct Boot {
    client: Client,
    wake: Time,
    began: Instant,
    /// When it got an address, the address, and the rack that gave it.
    ended: Option<(Instant, Ipv4Addr, Ipv4Addr)>,
}

/// The result of one boot.
struct Outcome {
    number: u16,
    address: Ipv4Addr,
    server: Ipv4Addr,
    millis: f64,
    /// The client started after the middle of its round.
    late: bool,
}

struct Link {
    port: Port,
    racks: Vec<Rack>,
    began: Instant,
}

impl Link {
    fn now(&self) -> Time {
        Time(0) + self.began.elapsed()
    }

    /// Boots these clients one after the other, some with a previous address. With `kill`, the first rack dies in the
    /// middle.
    fn round(&mut self, clients: &[(u16, Option<Ipv4Addr>)], kill: bool) -> Result<Vec<Outcome>> {
        let (began, mut middle) = (Instant::now(), None);
        let mut boots: HashMap<Mac, Boot> = HashMap::new();
        let mut waiting = clients.iter().enumerate().peekable();
        while waiting.peek().is_some() || boots.values().any(|boot| boot.ended.is_none()) {
            if began.elapsed() > PATIENCE {
                return Err("clients have no address".into());
            }
            let due = (began.elapsed().as_millis() / PAUSE.as_millis()) as usize;
            while let Some((_, &(number, previous))) = waiting.next_if(|(index, _)| *index <= due) {
                let (mac, now) = (client_mac(number), self.now());
                let config = ClientConfig { previous, first_retry: FIRST_RETRY, ..ClientConfig::new(mac) };
                let (client, actions) = Client::start(config, now, number.into());
                let mut boot = Boot { client, wake: now, began: Instant::now(), ended: None };
                self.act(mac, &mut boot, actions);
                boots.insert(mac, boot);
            }
            if middle.is_none() && due >= clients.len() / 2 {
                if kill {
                    self.racks[0].program = None;
                }
                middle = Some(Instant::now());
            }
            for heard in std::iter::from_fn(|| self.port.hear()).take(100).collect::<Vec<_>>() {
                let Heard::Dhcp(datagram) = heard else { continue };
                let Some(mac) = ingress::parse(&datagram).ok().and_then(|packet| packet.mac()) else {
                    continue;
                };
                let now = self.now();
                if let Some(boot) = boots.get_mut(&mac) {
                    let actions = boot.client.on_packet(now, &datagram);
                    self.act(mac, boot, actions);
                }
            }
            let now = self.now();
            for (mac, boot) in boots.iter_mut().filter(|(_, boot)| boot.ended.is_none() && boot.wake <= now) {
                let actions = boot.client.on_timer(now);
                self.act(*mac, boot, actions);
            }
        }
        let middle = middle.unwrap_or(began);
        let outcome = |(mac, boot): (Mac, Boot)| {
            let (ended, address, server) = boot.ended?;
            let Mac([.., high, low]) = mac;
            let (number, millis) =
                (u16::from_be_bytes([high, low]), (ended - boot.began).as_secs_f64() * 1000.0);
            Some(Outcome { number, address, server, millis, late: ended > middle })
        };
        Ok(boots.into_iter().filter_map(outcome).collect())
    }

    fn act(&self, mac: Mac, boot: &mut Boot, actions: Vec<ClientAction>) {
        for action in actions {
            match action {
                ClientAction::Send { server, bytes } => {
                    let rack =
                        server.and_then(|server| self.racks.iter().find(|rack| rack.address == server));
                    self.port.send((mac, None), rack.map(|rack| (rack.mac, rack.address)), &bytes);
                }
                ClientAction::Wake(time) => boot.wake = time,
                ClientAction::Configured(binding) => {
                    boot.ended = Some((Instant::now(), binding.address, binding.server));
                }
                ClientAction::Lost(_) | ClientAction::GaveUp => {}
            }
        }
    }

    /// Waits until every rack offers addresses.
    fn serves(&self) -> Result<()> {
        let (began, mut heard) = (Instant::now(), Vec::new());
        while heard.len() < self.racks.len() {
            if began.elapsed() > PATIENCE {
                return Err(format!("only {heard:?} offer an address").into());
            }
            let mac = client_mac(u16::MAX);
            let (client, actions) = Client::start(ClientConfig::new(mac), self.now(), 1);
            let mut boot = Boot { client, wake: Time(0), began, ended: None };
            self.act(mac, &mut boot, actions);
            let until = Instant::now() + FIRST_RETRY;
            while Instant::now() < until {
                let Some(Heard::Dhcp(datagram)) = self.port.hear() else { continue };
                let packet = ingress::parse(&datagram).map_err(|error| format!("{error:?}"))?;
                heard.extend(packet.options.ipv4(OptionCode::ServerIdentifier));
                heard.sort();
                heard.dedup();
            }
        }
        Ok(())
    }
}

fn measure() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    make_switch(&[]);
    let port = Port::open("rack0");
    let racks = vec![rack(1, dir.path())?, rack(2, dir.path())?];
    let mut link = Link { port, racks, began: Instant::now() };
    link.serves()?;

    let fresh = |first: u16| (first..first + CLIENTS).map(|number| (number, None)).collect::<Vec<_>>();
    let boots = link.round(&fresh(0), false)?;
    let dead = link.racks[0].address;
    let of_first: Vec<_> = boots.iter().filter(|boot| boot.server == dead).collect();
    let again: Vec<_> = of_first.iter().map(|boot| (boot.number, Some(boot.address))).collect();
    if again.is_empty() {
        return Err("no client chose the first rack".into());
    }
    let reboots = link.round(&again, false)?;
    let dying = link.round(&fresh(CLIENTS), true)?;
    let orphans = link.round(&again, false)?;
    let all = |outcomes: &[Outcome]| outcomes.iter().map(|it| it.millis).collect::<Vec<_>>();
    let late: Vec<f64> = dying.iter().filter(|it| it.late).map(|it| it.millis).collect();
    say("failover_boot", late, all(&boots));
    say("failover_reboot", all(&orphans), all(&reboots));
    Ok(())
}

/// The 99th percentile.
fn worst(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * 99 / 100).copied().unwrap_or(f64::NAN)
}

fn say(bench: &str, dying: Vec<f64>, alive: Vec<f64>) {
    let peer = "both racks alive";
    for (name, of) in [(bench.to_owned(), median as fn(Vec<f64>) -> f64), (format!("{bench}_p99"), worst)] {
        let (ours, theirs) = (of(dying.clone()), of(alive.clone()));
        print(&name, ours, peer, theirs, theirs / ours, "ms");
    }
}
