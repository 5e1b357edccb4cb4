//! Several servers on one link, each with its own address block. Either they know nothing of each other, or a region
//! reports each server's leases to the others. Clients boot, renew and boot again while servers die, restart, lose
//! their lease files and miss messages.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use basalt_dhcp::client::{ClientAction, ClientConfig};
use basalt_dhcp::{
    Action, AddressRange, Arrival, Client, Event, GRACE, Grantor, Lease, LeaseState, Mac, Reservation,
    Server, Subnet, Time, Told, ingress,
};

use crate::support::*;

const RACKS: u8 = 3;
const CLIENTS: u8 = 20;
/// The first clients have reservations, which every server knows.
const RESERVED: u8 = 4;
/// Addresses per block. All blocks together have a few more addresses than there are clients.
const BLOCK: u8 = 8;
const STORM: Duration = Duration::from_secs(2400);
/// Longer than a server withholds addresses after it lost its lease file, and longer than any lease.
const CALM: Duration = Duration::from_secs(1500);
const HISTORIES: u64 = 60;
/// How long a server withholds addresses after it lost its lease file. Also the longest lease that only one server
/// knows.
const TEN_MINUTES: u32 = 600;

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

    fn one_in(&mut self, several: u64) -> bool {
        self.below(several) == 0
    }

    fn seconds(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least * 1000 + self.below((most - least) * 1000))
    }

    /// The delay of one datagram.
    fn way(&mut self) -> Duration {
        Duration::from_millis(1 + self.below(30))
    }
}

enum Happens {
    ToRack {
        rack: u8,
        unicast: bool,
        bytes: Vec<u8>,
    },
    ToClient {
        client: u8,
        bytes: Vec<u8>,
    },
    Wake {
        client: u8,
    },
    Boot {
        client: u8,
    },
    Fault,
    Start {
        rack: u8,
    },
    /// The region and a rack exchange their reports.
    Sync {
        rack: u8,
    },
}

/// A server, and the state that survives a kill.
struct Rack {
    server: Option<Server>,
    file: Vec<Lease>,
    /// Until when it may lack lease records.
    incomplete_until: Time,
    lost_at: Time,
    is_told: bool,
    /// Leases that the region has not received yet. The link to the region is down until `unlinked`.
    spool: Vec<Lease>,
    unlinked: Time,
    /// Clients with even or with odd numbers that cannot reach the server, and that the server cannot reach, until this
    /// time.
    cut_off: (Time, u8),
}

struct Machine {
    client: Client,
    wake: Time,
    /// The server that gave its last address, and that address.
    last: Option<(Ipv4Addr, Ipv4Addr)>,
}

/// The number of times that the tested events happened.
#[derive(Debug, Default)]
struct Counts {
    kills: u64,
    lost_files: u64,
    undelivered: u64,
    boots: u64,
    /// An address from another server than the previous one.
    takeovers: u64,
    /// The same address from the same server, after a boot or a renewal.
    kept: u64,
    /// A reserved address from another server than before.
    kept_by_another: u64,
    /// A dynamic address from another server than before.
    extended: u64,
    /// The server's own leases that it had lost and learned from the region.
    learned: u64,
    /// Times that the region and a rack could not exchange reports.
    unlinked: u64,
}

struct World {
    random: Random,
    now: Time,
    storm_ends: Time,
    queue: BTreeMap<(Time, u64), Happens>,
    order: u64,
    racks: Vec<Rack>,
    machines: Vec<Machine>,
    /// The leases that the region knows, by rack; `None` without a region.
    region: Option<BTreeMap<(u8, Ipv4Addr), Lease>>,
    counts: Counts,
}

fn identity(rack: u8) -> Ipv4Addr {
    ip(2 + rack)
}

fn block(rack: u8) -> AddressRange {
    let first = 100 + rack * BLOCK;
    AddressRange { start: ip(first), end: ip(first + BLOCK - 1) }
}

fn reserved(client: u8) -> Option<Ipv4Addr> {
    (client < RESERVED).then(|| ip(20 + client))
}

fn start(rack: u8, shared: bool) -> Server {
    let reservations =
        (0..RESERVED).map(|client| Reservation { address: ip(20 + client), ..reservation(client, 0) });
    let subnet =
        Subnet { dynamic: vec![block(rack)], reservations: reservations.collect(), shared, ..subnet() };
    Server::new(config(subnet)).unwrap()
}

impl Rack {
    fn keep(&mut self, lease: Lease) {
        self.file.push(lease.clone());
        self.spool.push(lease);
    }
}

impl World {
    fn new(seed: u64, with_region: bool) -> Self {
        let rack = |number| Rack {
            server: Some(start(number, with_region)),
            file: Vec::new(),
            incomplete_until: START,
            lost_at: START,
            is_told: true,
            spool: Vec::new(),
            unlinked: START,
            cut_off: (START, 0),
        };
        let machine = |number| {
            let (client, _) = Client::start(ClientConfig::new(mac(number)), START, 0);
            Machine { client, wake: START, last: None }
        };
        let mut world = Self {
            random: Random(seed),
            now: START,
            storm_ends: START + STORM,
            queue: BTreeMap::new(),
            order: 0,
            racks: (0..RACKS).map(rack).collect(),
            machines: (0..CLIENTS).map(machine).collect(),
            region: with_region.then(BTreeMap::new),
            counts: Counts::default(),
        };
        for rack in 0..RACKS {
            world.after(Duration::from_secs(1), Happens::Sync { rack });
        }
        for client in 0..CLIENTS {
            world.after(Duration::ZERO, Happens::Boot { client });
        }
        world.after(Duration::from_secs(1), Happens::Fault);
        world
    }

    fn after(&mut self, wait: Duration, happens: Happens) {
        self.at(self.now + wait, happens);
    }

    fn at(&mut self, time: Time, happens: Happens) {
        self.order += 1;
        self.queue.insert((time, self.order), happens);
    }

    fn run(mut self) -> Counts {
        while let Some(((now, _), happens)) =
            self.queue.pop_first().filter(|it| it.0.0 <= self.storm_ends + CALM)
        {
            self.now = now;
            match happens {
                Happens::ToRack { rack, unicast, bytes } => self.ask(rack, unicast, &bytes),
                Happens::ToClient { client, bytes } => {
                    let actions = self.machine(client).on_packet(now, &bytes);
                    self.act(client, actions);
                }
                Happens::Wake { client } if self.machines[usize::from(client)].wake == now => {
                    let actions = self.machine(client).on_timer(now);
                    self.act(client, actions);
                }
                Happens::Wake { .. } => {}
                Happens::Boot { client } => self.boot(client),
                Happens::Fault => self.fault(),
                Happens::Start { rack } => self.start(rack),
                Happens::Sync { rack } => self.sync(rack),
            }
        }
        for (client, machine) in (0..).zip(&self.machines) {
            let binding =
                machine.client.binding().unwrap_or_else(|| panic!("client {client} has no address"));
            assert!(
                reserved(client).is_none_or(|it| it == binding.address),
                "{client} has {}",
                binding.address
            );
        }
        self.counts
    }

    fn machine(&mut self, client: u8) -> &mut Client {
        &mut self.machines[usize::from(client)].client
    }

    fn is_cut_off(&self, rack: u8, client: u8) -> bool {
        let (until, side) = self.racks[usize::from(rack)].cut_off;
        self.now < until && client % 2 == side
    }

    /// Boots a machine. Some machines ask for their previous address.
    fn boot(&mut self, client: u8) {
        self.counts.boots += 1;
        let last = self.machines[usize::from(client)].last;
        let previous = if self.random.one_in(2) { last.map(|(address, _)| address) } else { None };
        let config = ClientConfig { previous, ..ClientConfig::new(mac(client)) };
        let (started, actions) = Client::start(config, self.now, self.random.below(u64::MAX));
        *self.machine(client) = started;
        self.act(client, actions);
    }

    fn act(&mut self, client: u8, actions: Vec<ClientAction>) {
        for action in actions {
            match action {
                ClientAction::Send { server, bytes } => {
                    for rack in (0..RACKS).filter(|&rack| server.is_none_or(|it| it == identity(rack))) {
                        if self.is_cut_off(rack, client) {
                            self.counts.undelivered += 1;
                            continue;
                        }
                        let (way, bytes) = (self.random.way(), bytes.clone());
                        self.after(way, Happens::ToRack { rack, unicast: server.is_some(), bytes });
                    }
                }
                ClientAction::Wake(time) => {
                    self.machines[usize::from(client)].wake = time;
                    self.at(time, Happens::Wake { client });
                }
                ClientAction::Configured(binding) => {
                    self.configured(client, binding.address, binding.server);
                }
                ClientAction::Lost(_) => {}
                ClientAction::GaveUp => {
                    let wait = self.random.seconds(1, 10);
                    self.after(wait, Happens::Boot { client });
                }
            }
        }
    }

    fn configured(&mut self, client: u8, address: Ipv4Addr, server: Ipv4Addr) {
        for (other, machine) in (0..).zip(&self.machines).filter(|(other, _)| *other != client) {
            let held = machine.client.binding().filter(|it| it.address == address && it.expires > self.now);
            assert!(held.is_none(), "{address} is given to {client}, and {other} has it: {held:?}");
        }
        let last = self.machines[usize::from(client)].last.replace((address, server));
        match last {
            Some(last) if last == (address, server) => self.counts.kept += 1,
            Some((before, _)) if before == address && reserved(client) == Some(address) => {
                self.counts.kept_by_another += 1;
            }
            Some((before, _)) if before == address => self.counts.extended += 1,
            Some((_, before)) if before != server => self.counts.takeovers += 1,
            _ => {}
        }
    }

    fn ask(&mut self, number: u8, unicast: bool, bytes: &[u8]) {
        let rack = &mut self.racks[usize::from(number)];
        let Some(server) = &mut rack.server else { return };
        let via = Arrival { local: identity(number), unicast, ..LINK };
        // Clients that the server may give addresses to before it knows all leases.
        let known: Vec<_> = rack.file.iter().map(|lease| (lease.mac, lease.address)).collect();
        // Addresses of other servers go only to clients that have them according to the region.
        let is_others = |address| !(block(number).start..=block(number).end).contains(&address);
        let is_known = |mac: Mac, address| {
            mac.0[5] < RESERVED
                || known.contains(&(mac, address))
                || (self.region.is_some() && is_others(address))
        };
        let mut sent = Vec::new();
        for action in server.handle(self.now, via, &ingress::parse(bytes).unwrap()) {
            match action {
                Action::Report(
                    Event::Leased { lease: Lease { mac, address, .. }, .. } | Event::Offered { mac, address },
                ) if self.now < rack.incomplete_until => {
                    assert!(is_known(mac, address), "{address} for {mac} of a server that lost its leases");
                }
                Action::Persist(lease) => rack.keep(lease),
                Action::Send { bytes, .. } => sent.push(bytes),
                Action::Probe { .. } | Action::Report(_) => {}
            }
        }
        for bytes in sent {
            let client = ingress::parse(&bytes).unwrap().chaddr[5];
            if self.is_cut_off(number, client) {
                self.counts.undelivered += 1;
                continue;
            }
            let way = self.random.way();
            self.after(way, Happens::ToClient { client, bytes });
        }
    }

    fn fault(&mut self) {
        if self.now >= self.storm_ends {
            for rack in 0..RACKS {
                self.racks[usize::from(rack)].cut_off.0 = self.now;
                self.start(rack);
            }
            return;
        }
        let number = u8::try_from(self.random.below(RACKS.into())).unwrap();
        match self.random.below(4) {
            0 | 1 if self.racks[usize::from(number)].server.is_some() => {
                self.counts.kills += 1;
                let loses = self.random.one_in(4);
                let rack = &mut self.racks[usize::from(number)];
                rack.server = None;
                if loses {
                    self.counts.lost_files += 1;
                    rack.file.clear();
                    rack.lost_at = self.now;
                    rack.is_told = false;
                    rack.incomplete_until = self.now.plus_seconds(TEN_MINUTES);
                    if self.region.is_some() {
                        // Until the region reports the leases.
                        rack.incomplete_until = rack.incomplete_until + GRACE;
                    }
                }
                let away = self.random.seconds(1, 120);
                self.after(away, Happens::Start { rack: number });
            }
            2 => {
                let until = self.now + self.random.seconds(5, 300);
                self.racks[usize::from(number)].cut_off = (until, number % 2);
                if self.region.is_some() && self.random.one_in(2) {
                    self.counts.unlinked += 1;
                    let until = self.now + self.random.seconds(5, 900);
                    self.racks[usize::from(number)].unlinked = until;
                }
            }
            // Power returns: all clients boot at once.
            3 if self.random.one_in(4) => (0..CLIENTS).for_each(|client| self.boot(client)),
            _ => {
                let client = u8::try_from(self.random.below(CLIENTS.into())).unwrap();
                self.boot(client);
            }
        }
        let rest = self.random.seconds(1, 30);
        self.after(rest, Happens::Fault);
    }

    fn start(&mut self, number: u8) {
        let rack = &mut self.racks[usize::from(number)];
        if rack.server.is_some() {
            return;
        }
        let mut server = start(number, self.region.is_some());
        server.restore(rack.file.iter().cloned());
        if self.now < rack.incomplete_until {
            server.withhold_dynamic_until(rack.incomplete_until);
        }
        rack.server = Some(server);
    }
}

impl World {
    fn sync(&mut self, number: u8) {
        let (now, rest) = (self.now, self.random.seconds(1, 20));
        self.after(rest, Happens::Sync { rack: number });
        let (Some(region), rack) = (&mut self.region, &mut self.racks[usize::from(number)]) else { return };
        let Some(server) = rack.server.as_mut().filter(|_| rack.unlinked <= now) else { return };
        for lease in rack.spool.drain(..) {
            server.acknowledge(lease.address, lease.mac);
            region.insert((number, lease.address), lease);
        }
        let told = region.iter().map(|((of, address), lease)| {
            let by = match *of {
                of if of == number => Grantor::Own,
                of if (block(of).start..=block(of).end).contains(address) => Grantor::Owner,
                _ => Grantor::Another,
            };
            let (subnet, hostname, given_back) =
                (lease.subnet.clone(), None, lease.state == LeaseState::Ended);
            Told {
                address: *address,
                mac: lease.mac,
                subnet,
                hostname,
                ends: lease.expires,
                kept_until: lease.promised_until,
                given_back,
                by,
            }
        });
        let told: Vec<Told> = told.collect();
        for action in server.learn(now, told) {
            if let Action::Persist(lease) = action {
                self.counts.learned += 1;
                self.racks[usize::from(number)].keep(lease);
            }
        }
        let rack = &mut self.racks[usize::from(number)];
        if rack.incomplete_until > now && !rack.is_told {
            rack.is_told = true;
            rack.incomplete_until = rack.lost_at.plus_seconds(TEN_MINUTES);
            let server = rack.server.as_mut().expect("it runs");
            server.withhold_dynamic_until(rack.incomplete_until);
        }
    }
}

/// Sums the counts of many histories, each with its own seed.
fn histories(with_region: bool) -> Counts {
    let mut all = Counts::default();
    for seed in 0..HISTORIES {
        let counts = std::panic::catch_unwind(|| World::new(seed, with_region).run());
        let counts = counts.unwrap_or_else(|_| panic!("in the history of seed {seed}"));
        all.kills += counts.kills;
        all.lost_files += counts.lost_files;
        all.undelivered += counts.undelivered;
        all.boots += counts.boots;
        all.takeovers += counts.takeovers;
        all.kept += counts.kept;
        all.kept_by_another += counts.kept_by_another;
        all.extended += counts.extended;
        all.learned += counts.learned;
        all.unlinked += counts.unlinked;
    }
    println!("{HISTORIES} histories: {all:?}");
    let Counts { kills, lost_files, undelivered, boots, takeovers, kept, kept_by_another, .. } = all;
    for (count, what) in [
        (kills, "kill"),
        (lost_files, "lost lease file"),
        (undelivered, "datagram that was not delivered"),
        (boots, "boot"),
        (takeovers, "client that another server took over"),
        (kept, "client that kept its address"),
        (kept_by_another, "client that another server let keep its address"),
    ] {
        assert!(count > 0, "no {what}");
    }
    all
}

#[test]
fn no_address_is_two_clients_whichever_racks_die_lose_their_leases_or_do_not_hear_and_all_end_with_one() {
    let counts = histories(false);
    assert_eq!(counts.extended, 0, "nobody knows of the others' leases");
}

#[test]
fn nor_where_racks_let_each_others_clients_keep_their_addresses_whoever_is_cut_off_from_the_region() {
    let counts = histories(true);
    for (count, what) in [
        (counts.extended, "client that kept the address of another server"),
        (counts.learned, "lease that a server learned"),
        (counts.unlinked, "rack that was cut off from the region"),
    ] {
        assert!(count > 0, "no {what}");
    }
}
