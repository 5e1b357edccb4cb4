//! A boot storm on a link with three racks that are killed meanwhile. The racks cannot reach each other, and there is
//! no region.

use std::collections::HashMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use basalt_dhcp::client::{ClientAction, ClientConfig};
use basalt_dhcp::{Client, Lease, Mac, Time, ingress};
use basalt_proto::rack_v1::{AddressRange, DhcpConcern, DhcpSubnet, Reservation};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use dhcproto::v4::{MessageType, OptionCode};

use super::namespace::{Host, Running, ip, is_inside, make_switch};
use super::peers::subnet;
use super::port::{Heard, Port};

const SEED: u64 = 2026;
const CLIENTS: u16 = 300;
/// The first clients have reservations, which every rack knows.
const RESERVED: u16 = 30;
/// The shortest lease time.
const LEASE_SECONDS: u32 = 60;
/// The clients' clocks are faster by this factor, so clients renew leases, and give them up, early.
const HASTE: u32 = 8;
/// On a slow machine the storm lasts longer, until all tested events have happened.
const STORM: Duration = Duration::from_secs(40);
/// The longest wait until all clients have an address: a client waits up to 64 s before it repeats its message (RFC
/// 2131 §4.1).
const PATIENCE: Duration = Duration::from_secs(180);
/// The rack that loses its lease file, and when. Later it is killed once more.
const FORGETFUL: usize = 2;
const FORGETS: [Duration; 2] = [Duration::from_secs(12), Duration::from_secs(22)];

/// The state of a splitmix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least))
    }
}

fn client_mac(number: u16) -> Mac {
    let [high, low] = number.to_be_bytes();
    Mac([0x52, 0x54, 0, 1, high, low])
}

fn client_of(mac: &[u8]) -> Option<u16> {
    let number = u16::from_be_bytes(mac.get(4..6)?.try_into().ok()?);
    (number < CLIENTS && mac.get(..6)? == client_mac(number).0).then_some(number)
}

fn reserved(client: u16) -> Option<Ipv4Addr> {
    let low = u8::try_from(client + 10).ok()?;
    (client < RESERVED).then(|| Ipv4Addr::new(10, 9, 200, low))
}

/// A rack on its own host.
struct Rack {
    host: Host,
    address: Ipv4Addr,
    mac: Mac,
    data: PathBuf,
    program: Option<Running>,
    /// When it is started again, and when it receives broadcasts again.
    starts: Option<Instant>,
    hears: Option<Instant>,
}

impl Rack {
    fn new(number: u8, dir: &Path) -> Self {
        let mac = Mac([0x52, 0x54, 0, 0, 0, number]);
        let address = Ipv4Addr::new(10, 9, 0, number);
        let name = format!("rack-{number}");
        let host = Host::plug(&name, &mac.to_string());
        host.run(&["ip", "address", "add", &format!("{address}/16"), "dev", "eth0"]);
        // The racks are isolated from each other.
        ip(&format!("link set {name}0 type bridge_slave isolated on"));
        let mut served = DhcpSubnet {
            cidr: "10.9.0.0/16".into(),
            lease_seconds: LEASE_SECONDS,
            ..subnet("s1", "10.9.0", ("0", "0"))
        };
        served.dynamic =
            vec![AddressRange { start: format!("10.9.{number}0.0"), end: format!("10.9.{number}1.255") }];
        served.reservations = (0..RESERVED)
            .filter_map(|client| {
                let (mac, address) = (client_mac(client).to_string(), reserved(client)?.to_string());
                Some(Reservation { mac, address, hostname: String::new() })
            })
            .collect();
        let data = dir.join(name);
        fs::create_dir_all(&data).unwrap();
        let concern = DhcpConcern { subnets: vec![served], serve_unknown: true, ..DhcpConcern::default() };
        write_concern(&data, &version(Concern::Dhcp, 1, "local", &concern)).unwrap();
        Self { host, address, mac, data, program: None, starts: None, hears: None }
    }

    fn start(&mut self) {
        let data = self.data.to_string_lossy();
        let program = env!("CARGO_BIN_EXE_basalt-rack");
        let command =
            [program, "--data-dir", &data, "--interface", "eth0", "--name", "rack", "--log", "error"];
        self.program = Some(self.host.spawn(&command));
        self.starts = None;
    }

    fn has_leases(&self) -> bool {
        fs::metadata(self.data.join("leases")).is_ok_and(|file| file.len() > 0)
    }

    /// The last record of an address in its lease file.
    fn on_disk(&self, address: Ipv4Addr) -> Option<Lease> {
        let file = fs::read_to_string(self.data.join("leases")).unwrap();
        let mut leases =
            file.lines().filter_map(|line| serde_json::from_str::<Lease>(line.split_once(' ')?.1).ok());
        leases.rfind(|lease| lease.address == address)
    }
}

struct Machine {
    client: Client,
    wake: Time,
    /// Its previous address, and the rack that gave it.
    last: Option<(Ipv4Addr, Ipv4Addr)>,
}

/// The number of times that the tested events happened.
#[derive(Debug, Default)]
struct Counts {
    kills: u64,
    boots: u64,
    /// Broadcasts that a running rack did not receive.
    undelivered: u64,
    /// An address from another rack than the previous one.
    takeovers: u64,
    /// The same address again, after a boot or a renewal.
    kept: u64,
    /// A reserved address from another rack than before.
    kept_by_another: u64,
    /// Answers of the rack that lost its lease file, after the loss.
    from_forgetful: u64,
}

impl Counts {
    /// The events that have not happened yet.
    fn missing(&self) -> Vec<&'static str> {
        let counted = [
            (self.kills, "kill"),
            (self.boots.saturating_sub(CLIENTS.into()), "second boot"),
            (self.undelivered, "broadcast that a rack did not hear"),
            (self.takeovers, "client that another rack took over"),
            (self.kept, "client that kept its address"),
            (self.kept_by_another, "client that another rack let keep its address"),
            (self.from_forgetful, "answer of the rack that lost its leases"),
        ];
        counted.into_iter().filter_map(|(count, what)| (count == 0).then_some(what)).collect()
    }
}

struct Storm {
    began: Instant,
    random: Random,
    port: Port,
    racks: Vec<Rack>,
    machines: Vec<Machine>,
    /// The client of each address, and the end of its lease.
    granted: HashMap<Ipv4Addr, (u16, Instant)>,
    forgotten: bool,
    counts: Counts,
}

impl Storm {
    fn new(dir: &Path) -> Self {
        let machine = |number| {
            let (client, _) = Client::start(ClientConfig::new(client_mac(number)), Time(0), 0);
            Machine { client, wake: Time(0), last: None }
        };
        Self {
            began: Instant::now(),
            random: Random(SEED),
            port: Port::open("rack0"),
            racks: (1..=3).map(|number| Rack::new(number, dir)).collect(),
            machines: (0..CLIENTS).map(machine).collect(),
            granted: HashMap::new(),
            forgotten: false,
            counts: Counts::default(),
        }
    }

    /// The time of the clients' clock.
    fn now(&self) -> Time {
        Time(0) + self.began.elapsed() * HASTE
    }

    fn boot(&mut self, number: u16) {
        self.counts.boots += 1;
        let last = self.machines[usize::from(number)].last.map(|(address, _)| address);
        let previous = last.filter(|_| self.random.below(2) == 0);
        let first_retry = Duration::from_secs(1) * HASTE;
        let config = ClientConfig { previous, first_retry, ..ClientConfig::new(client_mac(number)) };
        let (client, actions) = Client::start(config, self.now(), self.random.below(u64::MAX));
        self.machines[usize::from(number)].client = client;
        self.act(number, actions);
    }

    fn act(&mut self, number: u16, actions: Vec<ClientAction>) {
        for action in actions {
            match action {
                ClientAction::Send { server, bytes } => self.send(number, server, &bytes),
                ClientAction::Wake(time) => self.machines[usize::from(number)].wake = time,
                ClientAction::Configured(binding) => {
                    let now = (binding.address, binding.server);
                    match self.machines[usize::from(number)].last.replace(now) {
                        Some(last) if last == now => self.counts.kept += 1,
                        Some((before, _)) if before == now.0 => self.counts.kept_by_another += 1,
                        Some((_, before)) if before != now.1 => self.counts.takeovers += 1,
                        _ => {}
                    }
                }
                ClientAction::Lost(_) => {}
                ClientAction::GaveUp => self.boot(number),
            }
        }
    }

    fn send(&mut self, number: u16, server: Option<Ipv4Addr>, bytes: &[u8]) {
        let own = self.machines[usize::from(number)].client.binding().map(|binding| binding.address);
        let rack = server.and_then(|server| self.racks.iter().find(|rack| rack.address == server));
        if rack.is_none() {
            let deaf = self.racks.iter().filter(|rack| rack.hears.is_some() && rack.program.is_some());
            self.counts.undelivered += deaf.count() as u64;
        }
        self.port.send((client_mac(number), own), rack.map(|rack| (rack.mac, rack.address)), bytes);
    }

    /// Takes the racks' messages to clients. ARP probes are not answered: only leases keep addresses apart here.
    fn hear(&mut self) {
        for heard in std::iter::from_fn(|| self.port.hear()).take(1000).collect::<Vec<_>>() {
            match heard {
                Heard::Dhcp(datagram) => {
                    let Ok(packet) = ingress::parse(&datagram) else { continue };
                    let Some(number) = client_of(&packet.chaddr) else { continue };
                    self.judge(number, &packet);
                    let now = self.now();
                    let actions = self.machines[usize::from(number)].client.on_packet(now, &datagram);
                    self.act(number, actions);
                }
                Heard::WhoHas(address, asker) => {
                    let holds =
                        |machine: &Machine| machine.client.binding().is_some_and(|it| it.address == address);
                    if let Some(holder) = self.machines.iter().position(holds) {
                        self.port.answer(&asker, client_mac(u16::try_from(holder).unwrap()), address);
                    }
                }
                Heard::Other => {}
            }
        }
    }

    /// Checks that the rack may send this answer.
    fn judge(&mut self, number: u16, packet: &ingress::Packet) {
        let server = packet.options.ipv4(OptionCode::ServerIdentifier).unwrap();
        let address = packet.yiaddr;
        if !matches!(packet.kind, MessageType::Offer | MessageType::Ack) {
            return;
        }
        if self.forgotten && server == self.racks[FORGETFUL].address {
            self.counts.from_forgetful += 1;
            assert!(reserved(number).is_some(), "{server} lost its leases and gives {address} to {number}");
        }
        if packet.kind == MessageType::Ack {
            let (now, seconds) = (Instant::now(), packet.options.u32(OptionCode::AddressLeaseTime).unwrap());
            let until = now + Duration::from_secs(seconds.into());
            let before = self.granted.insert(address, (number, until));
            let others = before.filter(|(owner, until)| *owner != number && *until > now);
            assert_eq!(others, None, "{server} gives {address} to {number}");
        }
    }

    fn kill(&mut self, number: usize, away: Duration) {
        let rack = &mut self.racks[number];
        if rack.program.take().is_some() {
            self.counts.kills += 1;
        }
        rack.starts = Some(Instant::now() + away);
    }

    fn fault(&mut self) {
        let number = usize::try_from(self.random.below(3)).unwrap();
        match self.random.below(5) {
            0..=2 => {
                let away = self.random.millis(300, 3000);
                self.kill(number, away);
            }
            3 => {
                self.racks[number].host.hear_broadcasts(false);
                self.racks[number].hears = Some(Instant::now() + self.random.millis(1000, 4000));
            }
            _ => {
                let first = u16::try_from(self.random.below(3)).unwrap();
                (first..CLIENTS).step_by(3).for_each(|client| self.boot(client));
            }
        }
    }

    /// Carries out all steps that are due.
    fn go_on(&mut self, all: bool) {
        let now = Instant::now();
        for rack in &mut self.racks {
            if rack.hears.is_some_and(|at| all || at <= now) {
                rack.host.hear_broadcasts(true);
                rack.hears = None;
            }
            if rack.starts.is_some_and(|at| all || at <= now) {
                rack.start();
            }
        }
        self.hear();
        let now = self.now();
        for number in 0..CLIENTS {
            let machine = &mut self.machines[usize::from(number)];
            if machine.wake <= now {
                let actions = machine.client.on_timer(now);
                self.act(number, actions);
            }
        }
    }

    fn run(&mut self) {
        self.racks.iter_mut().for_each(Rack::start);
        (0..CLIENTS).for_each(|client| self.boot(client));
        let mut next_fault = self.began + Duration::from_secs(5);
        let mut forgets = FORGETS.map(|at| self.began + at).into_iter().peekable();
        while self.began.elapsed() < STORM || forgets.peek().is_some() || !self.counts.missing().is_empty() {
            let missing = self.counts.missing();
            assert!(self.began.elapsed() < STORM + PATIENCE, "no {missing:?}");
            let now = Instant::now();
            if next_fault <= now {
                self.fault();
                next_fault = now + self.random.millis(400, 1400);
            }
            let has_leases = self.racks[FORGETFUL].has_leases();
            if forgets.next_if(|at| *at <= now && (has_leases || self.forgotten)).is_some() {
                self.kill(FORGETFUL, Duration::from_millis(100));
                if !self.forgotten {
                    fs::remove_file(self.racks[FORGETFUL].data.join("leases")).unwrap();
                    // First receive what the rack has sent, even if the kernel is slow.
                    let heard = Instant::now() + Duration::from_millis(50);
                    while Instant::now() < heard {
                        self.hear();
                    }
                    self.forgotten = true;
                }
            }
            self.go_on(false);
        }
        let calm = Instant::now();
        while !self.machines.iter().all(|machine| machine.client.binding().is_some()) {
            assert!(calm.elapsed() < PATIENCE, "{} have no address", self.without());
            self.go_on(true);
        }
        println!("all had an address {:?} after the storm", calm.elapsed());
    }

    fn without(&self) -> usize {
        self.machines.iter().filter(|machine| machine.client.binding().is_none()).count()
    }
}

#[test]
fn every_client_ends_with_an_address_of_its_own_whichever_racks_die() {
    if !is_inside("storm::every_client_ends_with_an_address_of_its_own_whichever_racks_die") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&[]);
    let mut storm = Storm::new(dir.path());
    storm.run();
    println!("seed {SEED}, {CLIENTS} clients: {:?}", storm.counts);
    for (number, machine) in (0..).zip(&storm.machines) {
        let binding = machine.client.binding().expect("all have one");
        assert!(reserved(number).is_none_or(|it| it == binding.address), "{number} has {}", binding.address);
        let rack = storm.racks.iter().find(|rack| rack.address == binding.server).expect("one of the racks");
        let lease = rack.on_disk(binding.address);
        assert!(
            lease.is_some_and(|it| it.mac == client_mac(number)),
            "{} of {number} is durable",
            binding.address
        );
    }
}
