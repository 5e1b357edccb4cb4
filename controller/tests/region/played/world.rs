//! One site: a database, a rack, its machines, and one or more regions that work on it.

use super::hardware::Fact;
use super::rack::{Played, new_fact};
use basalt_api::agent::Outcome;
use basalt_api::kinds::DeploymentStatus;
use basalt_api::values::{Attempt, DeploymentId, MachineId, RackId, Timestamp, Uid};
use basalt_api::{Kind, kinds::MachineStatus};
use basalt_db::testing::clock::Hand;
use basalt_db::{
    Blob, ConcernAck, Key, NewFact, Object, Options, Precondition, Put, SealKey, Store, StoreError, splice,
};
use basalt_engine::Policy;
use basalt_engine::facts::StepRecord;
use basalt_proto::rack_v1::from_region::Message as FromRegionMessage;
use basalt_proto::rack_v1::{BootConcern, FromRegion};
use basalt_region::driver::kill::KillPoints;
use basalt_region::driver::meters::Meters;
use basalt_region::driver::wakes::wake_for;
use basalt_region::driver::{Driver, Machinery, PLANNED, RECONCILED};
use basalt_region::racks::observed::{Hello, Observed};
use basalt_region::racks::sessions::{Registered, Sessions};
use basalt_region::telemetry::Telemetry;
use prost::Message;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;

/// Deadlines are a quarter of the table's; the model's firmware and agents keep them.
const FASTER: u32 = 4;
/// A rack looks at what it is to do this often, as its stream would tell it.
const SCAN: i64 = 60;

/// One region process.
pub(crate) struct Seat {
    pub(crate) store: Store,
    pub(crate) driver: Driver,
    inbox: mpsc::Receiver<Result<FromRegion, tonic::Status>>,
    link: Option<Registered>,
}

/// How machines are taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Their hardware is read first.
    Read,
    /// Nobody looks into them.
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
    /// How wrong the rack's clock is, in seconds.
    pub(crate) rack_clock: i64,
    rack: RackId,
    spool: uuid::Uuid,
    seq: u64,
    /// Facts that no region has taken yet.
    pub(crate) spooled: Vec<NewFact>,
    acked: u64,
    scanned: Timestamp,
    /// What was on record before: nothing is begun twice.
    armed: BTreeMap<String, StepRecord>,
    /// Whose machines are whose.
    claims: BTreeMap<MachineId, DeploymentId>,
}

pub(crate) async fn open(url: &str) -> Store {
    let kinds = |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let options = Options {
        url: url.to_owned(),
        connections: 8,
        reconciled: kinds(RECONCILED),
        planned: kinds(PLANNED),
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
    /// A site with so many regions and machines; the machines are called m0, m1, …
    pub(crate) async fn new(regions: usize, machines: usize, taken: Taken) -> Self {
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
        let rack = RackId::from(put(&store, "Rack", "rack1", &json!({})).await);
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
            rack_clock: 0,
            rack,
            spool: Uid::generate().get(),
            seq: 0,
            spooled: Vec::new(),
            acked: 0,
            scanned: now,
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

    /// A new process on a store, and the rack on its line.
    async fn seat(&self, store: Store) -> Seat {
        let sessions = Sessions::new(self.now);
        let driver = Driver {
            store: store.clone(),
            sessions,
            policy: Policy::default().compressed(FASTER),
            kill: KillPoints::default(),
            owner: Uid::generate(),
            meters: Meters::default(),
            telemetry: Telemetry::default(),
            allocator: std::sync::Arc::default(),
        };
        let (_, inbox) = mpsc::channel(1);
        let mut seat = Seat { store, driver, inbox, link: None };
        self.connect(&mut seat).await;
        seat
    }

    async fn connect(&self, seat: &mut Seat) {
        let hello = Hello { addresses: vec!["10.77.0.1/16".to_owned()], ..Hello::default() };
        let (kind, body) = Observed::Hello(hello).stored();
        let fact = NewFact {
            seq: 0,
            object: Some(self.rack.into()),
            mac: None,
            kind,
            step_key: None,
            attempt: None,
            body,
            observed_at: self.now,
            wakes: true,
        };
        seat.store.store_own_fact(&fact).await.expect("stored");
        let (sender, inbox) = mpsc::channel(256);
        seat.inbox = inbox;
        seat.link = Some(seat.driver.sessions.register(self.rack, sender, self.now));
        seat.store.enqueue(self.rack.into(), Duration::ZERO).await.expect("woken");
        seat.store.enqueue_kind("Machine").await.expect("woken");
    }

    /// The rack's line to a region goes down, or comes back.
    pub(crate) async fn line(&mut self, seat: usize, up: bool) {
        let mut taken = self.seats.swap_remove(seat);
        if !up {
            taken.link = None;
            taken.store.enqueue_kind("Machine").await.expect("woken");
        } else if taken.link.is_none() {
            self.connect(&mut taken).await;
        }
        self.seats.push(taken);
        let last = self.seats.len() - 1;
        self.seats.swap(seat, last);
    }

    pub(crate) fn has_line(&self, seat: usize) -> bool {
        self.seats[seat].link.is_some()
    }

    /// A region's process is killed, and another one starts in its place.
    pub(crate) async fn restart(&mut self, seat: usize) {
        let store = self.seats[seat].store.clone();
        let fresh = self.seat(store).await;
        self.seats[seat] = fresh;
    }

    pub(crate) async fn set(&mut self, now: Timestamp) {
        self.now = now;
        self.hand.set_clock(now).await;
    }

    pub(crate) fn store(&self) -> &Store {
        &self.seats[0].store
    }

    /// Somebody declares something; whether those are woken who decide from it is another matter.
    pub(crate) async fn declare(&mut self, kind: &str, name: &str, spec: &Value, wakes: bool) {
        put(self.store(), kind, name, spec).await;
        if wakes {
            wake_for(self.store(), kind).await.expect("woken");
        }
    }

    pub(crate) async fn delete(&mut self, kind: &str, name: &str) {
        let asked = self.store().request_deletion(kind, Key::Name(name), Precondition::None, false).await;
        assert!(matches!(asked, Ok(_) | Err(StoreError::NotFound { .. })), "{asked:?}");
    }

    pub(crate) async fn find(&self, kind: &str, name: &str) -> Option<Object> {
        self.store().get(kind, Key::Name(name)).await.ok()
    }

    /// The rack carries out what it was told, and its machines go on; what was observed is spooled.
    pub(crate) async fn play(&mut self) {
        let mut commands = Vec::new();
        for seat in &mut self.seats {
            while let Ok(message) = seat.inbox.try_recv() {
                if let Ok(FromRegion { message: Some(FromRegionMessage::Power(command)) }) = message {
                    commands.push(command);
                }
            }
        }
        self.obey_concerns().await;
        for command in commands {
            let uid: MachineId = command.machine_uid.parse().expect("a uid");
            let Some(played) = self.machines.get_mut(&uid) else { continue };
            let (facts, violation) = played.command(self.now, &command);
            self.violations.extend(violation);
            self.observed(uid, facts);
        }
        for uid in self.machines.keys().copied().collect::<Vec<_>>() {
            let (facts, violation) = self.machines.get_mut(&uid).expect("it is there").run_until(self.now);
            self.violations.extend(violation);
            self.observed(uid, facts);
        }
    }

    fn observed(&mut self, machine: MachineId, facts: Vec<Fact>) {
        let skewed = self.now.as_second().saturating_add(self.rack_clock);
        let at = Timestamp::from_second(skewed).expect("a time");
        for fact in facts {
            let played = self.machines.get_mut(&machine).expect("it is there");
            let mut fact = new_fact(machine, played, fact, at);
            self.seq += 1;
            fact.seq = self.seq;
            self.spooled.push(fact);
        }
    }

    /// The facts that the rack hands over next, in a future that can be cut off; [`Self::forget_spooled`] ends it.
    pub(crate) fn handing_over(
        &self,
        seat: usize,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send + 'static {
        let (store, rack, spool) = (self.seats[seat].store.clone(), self.rack, self.spool);
        let facts = self.spooled.clone();
        async move { store.store_facts(rack, "rack1", spool, &facts).await }
    }

    pub(crate) fn handed_over(&mut self, through: u64) {
        for fact in self.spooled.extract_if(.., |fact| fact.seq <= through) {
            let machine = fact.object.map(|uid| MachineId::from(uid.get()));
            if fact.kind == "claim"
                && let Some(played) = machine.and_then(|uid| self.machines.get_mut(&uid))
            {
                played.claimed.extend(fact.attempt);
            }
        }
    }

    async fn hand_over(&mut self) {
        let Some(seat) = (0..self.seats.len()).find(|seat| self.has_line(*seat)) else { return };
        if self.spooled.is_empty() {
            return;
        }
        let through = self.handing_over(seat).await.expect("stored");
        self.handed_over(through);
    }

    /// What the racks are told to boot, where a region tells it.
    async fn obey_concerns(&mut self) {
        let Some(seat) = self.seats.iter().position(|seat| seat.link.is_some()) else { return };
        let store = self.seats[seat].store.clone();
        let concerns = store.concerns(self.rack).await.expect("concerns");
        let Some(concern) = concerns.into_iter().find(|c| c.name == "boot") else { return };
        if concern.generation.get() <= self.acked {
            return;
        }
        let boot = BootConcern::decode(concern.body.as_slice()).expect("a boot concern");
        for (uid, played) in &mut self.machines {
            for row in store.planning_steps((*uid).into(), 1000).await.expect("steps") {
                let record: StepRecord =
                    serde_json::from_value(row.detail["record"].clone()).expect("a record");
                played.armed(&record, &row.detail["task"]);
            }
            let name = uid.to_string();
            let entry = boot.machines.iter().find(|machine| machine.machine_uid == name);
            played.told(entry.and_then(|machine| machine.action.as_ref()));
        }
        self.acked = concern.generation.get();
        let ack = ConcernAck {
            concern: concern.name,
            generation: concern.generation,
            outcome: "applied".to_owned(),
            message: String::new(),
        };
        store.put_concern_ack(self.rack, &ack).await.expect("stored");
        store.wake_unsettled().await.expect("woken");
    }

    /// What must hold at any moment, read from the store.
    pub(crate) async fn check(&mut self) {
        let store = self.store().clone();
        let claims: BTreeMap<MachineId, DeploymentId> =
            store.claims().await.expect("claims").into_iter().collect();
        let owners: BTreeSet<_> = claims.values().collect();
        if owners.len() != claims.len() {
            self.violations.push(format!("a deployment has two machines: {claims:?}"));
        }
        for (machine, deployment) in &self.claims {
            let played = &self.machines[machine];
            if claims.get(machine) != Some(deployment) && played.hardware.data_of == Some(*deployment) {
                self.violations.push(format!("{machine} was let go with the data of {deployment}"));
            }
        }
        self.claims = claims;
        for uid in self.machines.keys().copied().collect::<Vec<_>>() {
            let rows = store.planning_steps(uid.into(), 1000).await.expect("steps");
            for row in &rows {
                let record: StepRecord =
                    serde_json::from_value(row.detail["record"].clone()).expect("a record");
                if row.detail["task"].is_null() || self.armed.contains_key(record.key.as_str()) {
                    continue;
                }
                let installs = record.step == basalt_engine::steps::StepId::ArmInstall;
                let hardware = &self.machines[&uid].hardware;
                let done = self.armed.values().any(|old| {
                    let same = old.step == record.step && old.scope == record.scope;
                    same && old.fingerprint == record.fingerprint
                        && old.attempt == hardware.system
                        && hardware.system.is_some()
                });
                if installs && done && self.spooled.is_empty() {
                    self.violations.push(format!("{} is done already", record.key));
                }
                self.armed.insert(record.key.as_str().to_owned(), record);
            }
        }
        self.check_waits().await;
    }

    /// Every wait has a deadline, or names a person.
    async fn check_waits(&mut self) {
        for name in self.names.keys().cloned().collect::<Vec<_>>() {
            let Some(object) = self.find("Machine", &name).await else { continue };
            for wait in self.seats[0].driver.waits(&object).await.expect("waits").waits {
                if wait.deadline.is_none() && wait.human.is_none() {
                    self.violations.push(format!("{name} waits for ever: {}", wait.message));
                }
            }
        }
    }

    /// Everybody works until nobody has anything to do now; says how often somebody had.
    pub(crate) async fn work(&mut self) -> usize {
        let mut worked = 0;
        loop {
            let mut busy = false;
            for seat in 0..self.seats.len() {
                let driver = self.seats[seat].driver.clone();
                while driver.turn().await.expect("the store answers") {
                    busy = true;
                    worked += 1;
                    assert!(worked < 5000, "they go round in circles");
                }
            }
            self.play().await;
            self.hand_over().await;
            if !busy && self.spooled.is_empty() {
                return worked;
            }
        }
    }

    /// The hardware of every machine is known already, from an attempt long ago.
    pub(crate) async fn know_all(&mut self) {
        for uid in self.machines.keys().copied().collect::<Vec<_>>() {
            self.observed(uid, vec![Fact::Result(Attempt::new(u64::from(u32::MAX)), Outcome::Succeeded)]);
        }
        self.hand_over().await;
    }

    /// The rack's part alone.
    pub(crate) async fn work_at_the_rack(&mut self) {
        self.play().await;
        self.hand_over().await;
    }

    /// Moves time on to the next thing that happens, `most` seconds at most, and plays it.
    pub(crate) async fn advance(&mut self, most: u64) {
        let limit = self.now.checked_add(Duration::from_secs(most)).expect("a time");
        let due = self.store().next_due().await.expect("an answer");
        let due = due.and_then(|due| self.now.checked_add(due.max(Duration::from_millis(1))).ok());
        let events = self.machines.values().filter_map(|played| played.hardware.next_event());
        let next = events.chain(due).filter(|at| *at > self.now).chain([limit]).min().expect("a limit");
        self.set(next.min(limit)).await;
        if self.now.as_second() - self.scanned.as_second() >= SCAN || self.now < self.scanned {
            self.scan().await;
        }
        self.play().await;
    }

    /// The periodic scan, that heals whatever was missed.
    pub(crate) async fn scan(&mut self) {
        self.scanned = self.now;
        self.store().enqueue_all().await.expect("scanned");
    }

    /// Goes on until everything is as declared, and rests; None when it does not come to that within the hours.
    pub(crate) async fn settle(&mut self, hours: i64) -> Result<(), String> {
        let end = self.now.as_second() + hours * 3600;
        loop {
            self.work().await;
            let unsettled = self.unsettled().await;
            if unsettled.is_empty() {
                return Ok(());
            }
            if self.now.as_second() > end {
                return Err(unsettled.join("\n"));
            }
            self.advance(SCAN.unsigned_abs()).await;
        }
    }

    /// Whoever is not as declared, and why.
    pub(crate) async fn unsettled(&self) -> Vec<String> {
        let mut unsettled = Vec::new();
        for kind in ["Machine", "Deployment"] {
            for object in self.store().all(kind).await.expect("objects") {
                let status: Value = serde_json::from_str(object.status.get()).expect("JSON");
                let ready = status["conditions"][0].clone();
                let current = object.observed_generation == object.generation;
                if !current || object.deletion_requested_at.is_some() || ready["status"] != "true" {
                    unsettled.push(format!("{kind} {}: {}", object.name, ready["message"]));
                }
            }
        }
        unsettled
    }

    /// How everything is, in words that another run can be compared by.
    pub(crate) async fn picture(&self) -> Vec<String> {
        let mut picture = Vec::new();
        let mut names = BTreeMap::new();
        for object in self.store().all("Deployment").await.expect("objects") {
            let status: DeploymentStatus = serde_json::from_str(object.status.get()).expect("a status");
            picture.push(format!(
                "{} {:?} on {:?}",
                object.name,
                status.phase,
                status.machine.map(|m| m.to_string())
            ));
            names.insert(DeploymentId::from(object.uid.get()), object.name);
        }
        for object in self.store().all("Machine").await.expect("objects") {
            let status: MachineStatus = serde_json::from_str(object.status.get()).expect("a status");
            let hardware = &self.machines[&MachineId::from(object.uid.get())].hardware;
            let marks = self.store().machine_marks(object.uid.get().into()).await.expect("marks");
            picture.push(format!(
                "{} {:?}, on: {}, data of {:?}, boots it: {}, unwiped: {}",
                object.name,
                status.phase,
                hardware.on,
                hardware.data_of.map(|uid| names.get(&uid).cloned()),
                hardware.system.is_some(),
                marks.unwiped
            ));
        }
        picture
    }

    /// Step records, all of them.
    pub(crate) async fn recorded(&mut self) -> usize {
        self.hand.run("select count(*) from step_record").await[0][0].parse().expect("a number")
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
