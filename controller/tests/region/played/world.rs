//! One site: a database, its racks and machines, and the regions on it.

use super::hardware::Fact;
use super::patience::{STEP, within};
use super::rack::{Played, Rack};
use super::seats::Seat;
use basalt_api::Kind;
use basalt_api::agent::Outcome;
use basalt_api::values::{Attempt, DeploymentId, MachineId, RackId, Timestamp, Uid};
use basalt_db::testing::clock::Hand;
use basalt_db::wake::TURNS;
use basalt_db::{
    Blob, ConcernAck, Key, Object, Options, Precondition, Put, SealKey, Store, StoreError, splice,
};
use basalt_engine::facts::StepRecord;
use basalt_engine::plan::BootAction;
use basalt_proto::rack_v1::from_region::Message as FromRegionMessage;
use basalt_proto::rack_v1::{BootConcern, FromRegion};
use basalt_region::driver::RECONCILED;
use basalt_region::driver::wake::wake_for;
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The interval in seconds at which a rack reads its concerns, in place of its stream.
pub(super) const SCAN: i64 = 60;
/// The due objects, the number of their wake-ups, and their errors.
const DUE: &str = "select o.kind, o.name, q.wake::text, (q.not_before - now())::text, coalesce(q.error, ''), o.status->'conditions'->0->>'message'
    from reconcile_queue q join object o on o.uid = q.object order by q.not_before";
/// The largest number of rounds in which a driver or a rack has work.
const ROUNDS: usize = 500;

/// The commissioning of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The hardware is read first.
    Read,
    /// The hardware is not read.
    AsTheyAre,
}

pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) hand: Hand,
    pub(crate) now: Timestamp,
    pub(crate) seats: Vec<Seat>,
    pub(crate) machines: BTreeMap<MachineId, Played>,
    pub(crate) names: BTreeMap<String, MachineId>,
    pub(crate) violations: Vec<String>,
    pub(crate) racks: Vec<Rack>,
    /// The rack that machines reach first.
    pub(crate) nearest: usize,
    /// How far the database's clock is ahead of all others, in seconds.
    ahead: u64,
    /// A region of a former incarnation that was not told of the restore, and a connection to its database.
    pub(super) lost: Option<(Seat, Hand)>,
    /// Machines that are declared again with these specs, once they are gone.
    pub(super) leaving: BTreeMap<String, Value>,
    /// Deleted machines, and the machine that has their hardware now.
    pub(super) heirs: BTreeMap<MachineId, MachineId>,
    scanned: Timestamp,
    turns: u8,
    /// A process died after a change, before it woke what depends on it. Another one begins with all objects.
    pub(super) missed: bool,
    /// The step records at the last check: nothing may begin twice.
    pub(super) armed: BTreeMap<String, StepRecord>,
    /// The deployment that has each machine, at the last check.
    pub(super) claims: BTreeMap<MachineId, DeploymentId>,
}

pub(crate) async fn open(url: &str) -> Store {
    let kinds = |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let options = Options {
        url: url.to_owned(),
        connections: 8,
        reconciled: kinds(RECONCILED),
        worked_on: kinds(RECONCILED),
        patience: Duration::from_secs(30),
    };
    Store::open(options, SealKey::new(&[7; 32]).expect("32 bytes")).await.expect("it opens")
}

pub(crate) async fn put(store: &Store, kind: &str, name: &str, spec: &Value) -> Uid {
    let text = splice::Text::parse(spec.to_string()).expect("JSON");
    let put = Put {
        kind: Kind::find(kind).expect("a kind"),
        key: Key::Name(name),
        spec: &text,
        at: "",
        labels: None,
        manager: Some("test"),
        adopt: true,
        precondition: Precondition::None,
        first_status: &json!({}),
    };
    store.put(&put).await.expect("it is stored").object.uid
}

async fn blob(store: &Store, byte: u8) -> String {
    store
        .put_blob(&Blob { sha256: [byte; 32], size: 1000, location: "here".to_owned() })
        .await
        .expect("a blob");
    hex::encode([byte; 32])
}

impl World {
    /// A site with one rack, and with these numbers of regions and machines. The machines are m0, m1, …
    pub(crate) async fn new(regions: usize, machines: usize, taken: Taken) -> Self {
        Self::with_racks(1, regions, machines, taken).await
    }

    /// The same with several racks, each of which serves all machines.
    pub(crate) async fn with_racks(racks: usize, regions: usize, machines: usize, taken: Taken) -> Self {
        let url = basalt_db::testing::database().await;
        let mut hand = Hand::on(&url).await;
        hand.take_clock().await;
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        hand.set_clock(now).await;
        let store = open(&url).await;
        put(&store, "Fabric", "default", &json!({})).await;
        let vlan = json!({"fabric": "default", "vid": 0, "dhcp": {"enabled": true}});
        put(&store, "Vlan", "default.0", &vlan).await;
        put(&store, "Subnet", "lab", &json!({"vlan": "default.0", "cidr": "10.77.0.0/16"})).await;
        for zone in ["a", "b"] {
            put(&store, "Zone", zone, &json!({})).await;
        }
        let file = async |byte| json!({"sha256": blob(&store, byte).await});
        let files = json!({"kernel": file(1).await, "initrd": file(2).await, "squashfs": file(3).await});
        let ephemeral = json!({"os": "basalt", "release": "1", "architecture": "amd64", "purpose": "ephemeral", "files": files});
        put(&store, "Image", "ephemeral", &ephemeral).await;
        let debian = json!({"os": "debian", "release": "12", "architecture": "amd64", "files": {"root_tarball": file(4).await}});
        put(&store, "Image", "debian", &debian).await;
        let mut played = Vec::new();
        for name in (1..=racks).map(|n| format!("rack{n}")) {
            played.push(Rack::new(RackId::from(put(&store, "Rack", &name, &json!({})).await), &name));
        }
        let mut names = BTreeMap::new();
        for n in 0..machines {
            let mut spec = machine(n);
            if taken == Taken::AsTheyAre {
                spec["commissioning"] = json!({"skip": true});
            }
            let uid = put(&store, "Machine", &format!("m{n}"), &spec).await;
            names.insert(format!("m{n}"), MachineId::from(uid));
        }
        let machines = names.values().map(|uid| (*uid, Played::new())).collect();
        let mut world = Self {
            url,
            hand,
            now,
            seats: Vec::new(),
            machines,
            names,
            violations: Vec::new(),
            racks: played,
            nearest: 0,
            ahead: 0,
            lost: None,
            leaving: BTreeMap::new(),
            heirs: BTreeMap::new(),
            scanned: now,
            turns: 0,
            missed: false,
            armed: BTreeMap::new(),
            claims: BTreeMap::new(),
        };
        for _ in 0..regions {
            let seat = world.seat(open(&world.url.clone()).await).await;
            world.seats.push(seat);
        }
        store.close().await;
        world
    }

    /// The rack that a machine reaches when it boots or reports; a dead one only if no rack is alive.
    fn heard_by(&self) -> usize {
        let living = |rack: &usize| self.racks[*rack].alive;
        let other = || (0..self.racks.len()).find(living);
        Some(self.nearest).filter(living).or_else(other).unwrap_or(0)
    }

    /// Repairs everything: racks, lines, hardware.
    pub(crate) async fn mend(&mut self) {
        self.machines.values_mut().for_each(|played| played.hardware.faults.clear());
        for rack in 0..self.racks.len() {
            self.racks[rack].alive = true;
            for seat in 0..self.seats.len() {
                self.line(seat, rack, true).await;
            }
        }
        self.scan().await;
    }

    pub(crate) async fn set(&mut self, now: Timestamp) {
        self.now = now;
        self.hand.set_clock(now).await;
    }

    /// The database's clock jumps ahead, and no other clock does.
    pub(crate) async fn jump(&mut self, by: Duration) {
        self.ahead += by.as_secs();
        self.set(self.now.checked_add(by).expect("a time")).await;
    }

    /// A time of the database's clock, by the other clocks.
    fn elsewhere(&self, at: Timestamp) -> Timestamp {
        at.checked_sub(Duration::from_secs(self.ahead)).expect("a time")
    }

    pub(crate) fn store(&self) -> &Store {
        &self.seats[0].store
    }

    /// Declares an object. With `wakes`, the objects that depend on it are woken.
    pub(crate) async fn declare(&mut self, kind: &str, name: &str, spec: &Value, wakes: bool) {
        put(self.store(), kind, name, spec).await;
        if wakes {
            wake_for(self.store(), kind).await.expect("woken");
        } else {
            self.missed = true;
        }
    }

    pub(crate) async fn delete(&mut self, kind: &str, name: &str) {
        let asked = self.store().request_deletion(kind, Key::Name(name), Precondition::None, false).await;
        assert!(matches!(asked, Ok(_) | Err(StoreError::NotFound { .. })), "{asked:?}");
    }

    pub(crate) async fn find(&self, kind: &str, name: &str) -> Option<Object> {
        self.store().get(kind, Key::Name(name)).await.ok()
    }

    /// The racks carry out their commands, and machines go on. Observations go into the spools.
    pub(crate) async fn play(&mut self) {
        self.introduce();
        let mut commands = Vec::new();
        let lost = self.lost.iter_mut().map(|(seat, _)| seat);
        let seats = self.seats.iter_mut().chain(lost);
        for (rack, line) in seats.flat_map(|seat| seat.lines.iter_mut().enumerate()) {
            while let Ok(message) = line.inbox.try_recv() {
                if let Ok(FromRegion { message: Some(FromRegionMessage::Power(command)) }) = message {
                    commands.push((rack, command));
                }
            }
        }
        let now = self.elsewhere(self.now);
        for (rack, command) in commands {
            let uid: MachineId = command.machine_uid.parse().expect("a uid");
            let heir = self.heirs.get(&uid).copied().unwrap_or(uid);
            let Some(played) = self.machines.get_mut(&heir) else { continue };
            let (facts, violation) = self.racks[rack].command(now, heir, played, &command);
            self.violations.extend(violation);
            facts.into_iter().for_each(|fact| self.racks[rack].observed(uid, played, fact, now));
        }
        for rack in 0..self.racks.len() {
            self.obey_concerns(rack).await;
        }
        let rack = self.heard_by();
        for (uid, played) in &mut self.machines {
            let rack = &mut self.racks[rack];
            let boot = if rack.alive { rack.boot(*uid) } else { BootAction::Local };
            let (facts, violation) = played.run_until(now, boot);
            self.violations.extend(violation);
            facts.into_iter().for_each(|fact| rack.observed(*uid, played, fact, now));
        }
    }

    /// Hands over a rack's next facts, in a future that can be cut off. [`Self::handed_over`] completes it.
    pub(crate) fn handing_over(
        &self,
        seat: usize,
        rack: usize,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send + 'static {
        let store = self.seats[seat].store.clone();
        let Rack { uid, name, spool, spooled, .. } = &self.racks[rack];
        let (uid, name, spool, facts) = (*uid, name.clone(), *spool, spooled.clone());
        async move { store.store_facts(uid, &name, spool, &facts).await }
    }

    pub(crate) fn handed_over(&mut self, rack: usize, through: u64) {
        for fact in self.racks[rack].spooled.extract_if(.., |fact| fact.seq <= through) {
            let machine = fact.object.map(|uid| MachineId::from(uid.get()));
            if fact.kind == "claim"
                && let Some(played) = machine.and_then(|uid| self.machines.get_mut(&uid))
            {
                played.claimed.extend(fact.attempt);
            }
        }
    }

    /// The region that takes a rack's next facts, if there are any.
    pub(crate) fn taker(&self, rack: usize) -> Option<usize> {
        let seat = (0..self.seats.len()).find(|seat| self.has_line(*seat, rack))?;
        (!self.racks[rack].spooled.is_empty()).then_some(seat)
    }

    async fn hand_over(&mut self) {
        for rack in 0..self.racks.len() {
            let Some(seat) = self.taker(rack) else { continue };
            let through = self.handing_over(seat, rack).await.expect("stored");
            self.handed_over(rack, through);
        }
    }

    /// Applies the boot concern of a rack, if a region is linked to it.
    async fn obey_concerns(&mut self, rack: usize) {
        let lost = self.lost.iter().map(|(seat, _)| seat);
        let Some(seat) = self.seats.iter().chain(lost).find(|seat| seat.lines[rack].link.is_some()) else {
            return;
        };
        let store = seat.store.clone();
        let incarnation = store.incarnation().to_string();
        let rack = &mut self.racks[rack];
        let Some(concern) = store.concern(rack.uid, "boot").await.expect("a concern") else { return };
        if incarnation == rack.holds.0 && concern.generation.get() <= rack.holds.1 {
            return;
        }
        let boot = BootConcern::decode(concern.body.as_slice()).expect("a boot concern");
        for (uid, played) in &mut self.machines {
            let name = uid.to_string();
            let entry = boot.machines.iter().find(|machine| machine.machine_uid == name);
            rack.told(*uid, entry.and_then(|machine| machine.action.as_ref()));
            let BootAction::Ephemeral(attempt) = rack.boot(*uid) else { continue };
            if played.tasks.contains_key(&attempt) {
                continue;
            }
            for row in store.planning_steps((*uid).into(), 1000).await.expect("steps") {
                let record: StepRecord =
                    serde_json::from_value(row.detail["record"].clone()).expect("a record");
                played.armed(&record, &row.detail["task"]);
            }
        }
        rack.holds = (incarnation, concern.generation.get());
        let ack = ConcernAck {
            concern: concern.name,
            generation: concern.generation,
            outcome: "applied".to_owned(),
            message: String::new(),
        };
        store.put_concern_ack(rack.uid, &ack).await.expect("stored");
    }

    /// Runs all drivers and racks until none has work now. Returns the number of rounds with work.
    pub(crate) async fn work(&mut self) -> usize {
        let url = self.url.clone();
        let mut worked = 0;
        for _ in 0..ROUNDS {
            let mut busy = false;
            for seat in 0..self.seats.len() {
                let driver = self.seats[seat].driver.clone();
                let what = format!("a turn of region {seat}");
                while within(&url, STEP, &what, driver.turn()).await.expect("the store answers") {
                    busy = true;
                    worked += 1;
                    assert!(worked < 5000, "they go round in circles");
                }
            }
            self.work_at_the_rack().await;
            if !busy && (0..self.racks.len()).all(|rack| self.taker(rack).is_none()) {
                return worked;
            }
        }
        let untaken: Vec<_> = self.racks.iter().map(|rack| (&rack.name, rack.spooled.len())).collect();
        let due = self.hand.run(DUE).await;
        let begun = self.hand.run("select step_key from step_record order by id desc limit 12").await;
        panic!("never done: {worked} turns; facts not taken: {untaken:?}; due: {due:?}; begun: {begun:?}");
    }

    /// Makes the hardware of every machine known, from an attempt long ago.
    pub(crate) async fn know_all(&mut self) {
        for (uid, played) in &self.machines {
            let read = Fact::Result(Attempt::new(u64::from(u32::MAX)), Outcome::Succeeded);
            self.racks[0].observed(*uid, played, read, self.now);
        }
        self.hand_over().await;
    }

    /// Goes on until all racks offer this machine's agent and have reported that. The machine has not begun to boot it.
    pub(crate) async fn until_its_agent_is_offered(&mut self, machine: &str) {
        let uid = self.names[machine];
        for _ in 0..500 {
            if self.racks.iter().all(|rack| matches!(rack.boot(uid), BootAction::Ephemeral(_))) {
                return;
            }
            if !self.seats[0].driver.turn().await.expect("the store answers") {
                self.work_at_the_rack().await;
                self.advance(5).await;
            }
        }
        panic!("nobody is told to boot its agent: {:?}", self.unsettled().await);
    }

    /// Runs only the racks.
    pub(crate) async fn work_at_the_rack(&mut self) {
        let url = self.url.clone();
        within(&url, STEP, "the racks obey", self.play()).await;
        within(&url, STEP, "the racks hand over their facts", self.hand_over()).await;
    }

    /// Advances time to the next event, by at most `most` seconds, and plays it.
    pub(crate) async fn advance(&mut self, most: u64) {
        let url = self.url.clone();
        within(&url, STEP, "time moves on", self.move_on(most)).await;
    }

    async fn move_on(&mut self, most: u64) {
        let limit = self.now.checked_add(Duration::from_secs(most)).expect("a time");
        let due = self.store().next_due().await.expect("an answer");
        let due = due.and_then(|due| self.now.checked_add(due.max(Duration::from_millis(1))).ok());
        let events = self.machines.values().filter_map(|played| played.hardware.next_event());
        let ahead = Duration::from_secs(self.ahead);
        let events = events.filter_map(|at| at.checked_add(ahead).ok());
        let next = events.chain(due).filter(|at| *at > self.now).chain([limit]).min().expect("a limit");
        self.set(next.min(limit)).await;
        if self.now.as_second() - self.scanned.as_second() >= SCAN || self.now < self.scanned {
            self.scan().await;
        }
        self.play().await;
    }

    /// The periodic scan, which repairs missed wake-ups.
    pub(crate) async fn scan(&mut self) {
        self.scanned = self.now;
        self.bring_back().await;
        // The result of an allocation round expires in this time, so the allocator is a new one.
        for seat in &mut self.seats {
            seat.driver.allocator = Arc::default();
        }
        match std::mem::take(&mut self.missed) {
            true => self.store().enqueue_all().await.expect("scanned"),
            false => self.store().enqueue_turn(self.turns).await.expect("scanned"),
        };
        self.turns = (self.turns + 1) % TURNS;
    }

    /// Deletes a machine, and declares it again once it is gone.
    pub(crate) async fn replace(&mut self, name: &str, spec: &Value) {
        self.delete("Machine", name).await;
        self.leaving.insert(name.to_owned(), spec.clone());
    }

    /// Declares a machine. If it is being deleted, it is declared once it is gone.
    pub(crate) async fn declare_machine(&mut self, name: &str, spec: &Value, wakes: bool) {
        match self.leaving.get_mut(name) {
            Some(later) => later.clone_from(spec),
            None => self.declare("Machine", name, spec, wakes).await,
        }
    }

    async fn bring_back(&mut self) {
        for name in self.leaving.keys().cloned().collect::<Vec<_>>() {
            if self.find("Machine", &name).await.is_some() {
                continue;
            }
            let spec = self.leaving.remove(&name).expect("it leaves");
            let heir = MachineId::from(put(self.store(), "Machine", &name, &spec).await);
            let gone = self.names.insert(name, heir).expect("it was there");
            let played = self.machines.remove(&gone).expect("it is played");
            self.machines.insert(heir, played);
            self.heirs.values_mut().filter(|it| **it == gone).for_each(|it| *it = heir);
            self.heirs.insert(gone, heir);
        }
    }
}

pub(crate) fn machine(n: usize) -> Value {
    let zone = if n.is_multiple_of(2) { "a" } else { "b" };
    let mac = format!("52:54:00:00:{:02x}:{:02x}", n / 256, n % 256);
    let bmc = json!({"driver": "ipmi", "address": format!("10.77.1.{}", n + 1), "username": "admin", "password": "secret"});
    json!({"architecture": "amd64", "zone": zone, "boot_macs": [mac], "bmc": bmc})
}

pub(crate) fn deployment(machine: &str) -> Value {
    json!({"machine": machine, "image": "debian", "readiness": {"check": "booted"}, "redeploy": "in_place"})
}
