//! Blocks of dynamic ranges: the database's constraints, and random histories in which no two racks may lease the same address.

use crate::common::{network, open, put};
use crate::dice::Dice;
use basalt_api::values::{RackId, SubnetId, Timestamp};
use basalt_db::{Delegation, Key, NewFact, Precondition, ServedSubnet, Store, StoreError};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

async fn lab(store: &Store) -> SubnetId {
    SubnetId::from(store.get("Subnet", Key::Name("lab")).await.unwrap().uid)
}

async fn rack(store: &Store, name: &str) -> RackId {
    RackId::from(put(store, "Rack", name, json!({})).await.unwrap().object.uid)
}

fn served(subnet: SubnetId, racks: &[RackId]) -> [ServedSubnet; 1] {
    let mut racks = racks.to_vec();
    racks.sort();
    [ServedSubnet { subnet, racks, lease_seconds: 600 }]
}

/// The last bytes of the addresses of a delegation.
fn bytes(delegation: &Delegation) -> BTreeSet<u8> {
    let blocks = delegation.blocks.iter();
    let last = |address: IpAddr| match address {
        IpAddr::V4(it) => it.octets()[3],
        IpAddr::V6(it) => it.octets()[15],
    };
    blocks.flat_map(|block| last(block.first)..=last(block.last)).collect()
}

fn in_force(seq: u64, delegation: u64, leftover: &[Value]) -> NewFact {
    NewFact {
        seq,
        object: None,
        mac: None,
        kind: "dhcp_in_force".to_owned(),
        step_key: None,
        attempt: None,
        body: json!({"delegation": delegation, "leftover": leftover, "unsure_ms": 0}),
        observed_at: Timestamp::UNIX_EPOCH,
        wakes: true,
    }
}

#[tokio::test]
async fn the_database_itself_holds_blocks_apart_and_in_their_ranges() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    network(&store).await;
    let pool = json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.199"});
    put(&store, "IpRange", "pool", pool).await.unwrap();
    let racks = [rack(&store, "r1").await, rack(&store, "r2").await];
    store.delegate(&served(lab(&store).await, &racks)).await.unwrap();
    let mut db = PgConnection::connect(&url).await.unwrap();
    let grown = |first: &str, last: &str| {
        format!(
            "update dhcp_block set span = inetrange('{first}', '{last}', '[]') where lower(span) = '10.77.0.100'"
        )
    };
    let cases = [
        (grown("10.77.0.100", "10.77.0.150"), "dhcp_block_disjoint"),
        (grown("10.77.0.99", "10.77.0.149"), "dhcp_block_in_its_range"),
        (
            "update dhcp_block set range_span = null where range is not null".to_owned(),
            "dhcp_block_of_a_range",
        ),
        ("update dhcp_block set leaves_at = 1".to_owned(), "dhcp_block_taken_back"),
        (
            "update dhcp_block set range_span = inetrange('10.77.0.0', '10.77.0.255', '[]')".to_owned(),
            "dhcp_block_range_range_span_fkey",
        ),
    ];
    for (statement, constraint) in cases {
        let error = db.execute(AssertSqlSafe(statement.clone())).await.expect_err(&statement);
        let found = error.as_database_error().and_then(|e| e.constraint()).map(str::to_owned);
        assert_eq!(found.as_deref(), Some(constraint), "{statement}: {error}");
    }

    // A range that shrinks takes the lost addresses back, whichever client writes it.
    db.execute("update ip_range set span = inetrange('10.77.0.120', '10.77.0.180', '[]')").await.unwrap();
    let rows = sqlx::query(
        "select host(lower(span)), host(upper(span)), range is null from dhcp_block order by span",
    );
    let rows = rows.fetch_all(&mut db).await.unwrap();
    let text = |row: &sqlx::postgres::PgRow| {
        let sign = if row.get::<bool, _>(2) { "-" } else { "" };
        format!("{sign}{}-{}", row.get::<String, _>(0), row.get::<String, _>(1))
    };
    let expected = [
        "-10.77.0.100-10.77.0.119",
        "10.77.0.120-10.77.0.149",
        "10.77.0.150-10.77.0.180",
        "-10.77.0.181-10.77.0.199",
    ];
    assert_eq!(rows.iter().map(text).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn what_a_rack_may_still_lease_is_given_to_nobody_by_itself() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    network(&store).await;
    let pool = json!({"subnet": "lab", "start": "10.77.0.2", "end": "10.77.0.9"});
    put(&store, "IpRange", "pool", pool).await.unwrap();
    let (lab, r1) = (lab(&store).await, rack(&store, "r1").await);
    let all = served(lab, &[r1]);
    store.delegate(&all).await.unwrap();
    store.request_deletion("IpRange", Key::Name("pool"), Precondition::None, false).await.unwrap();
    store.delegate(&all).await.unwrap();
    let next = async |name: &str| {
        put(&store, "IpAddress", name, json!({"subnet": "lab"})).await.unwrap();
        let object = store.get("IpAddress", Key::Name(name)).await.unwrap();
        let status: Value = serde_json::from_str(object.status.get()).unwrap();
        status["address"].as_str().unwrap().to_owned()
    };
    assert_eq!(next("a").await, "10.77.0.10", "the rack has not said that it stopped");
    let number = store.delegation(r1).await.unwrap().number;
    let lease = json!({"subnet_uid": lab.to_string(), "start": "10.77.0.2", "end": "10.77.0.3", "ends_in_ms": 60_000});
    store.store_facts(r1, "r1", uuid::Uuid::from_u128(1), &[in_force(1, number, &[lease])]).await.unwrap();
    store.delegate(&all).await.unwrap();
    assert_eq!(next("b").await, "10.77.0.4", "two of them are leased for another minute");
}

/// A model of a rack: it applies its concerns and grants leases.
#[derive(Debug)]
struct Played {
    uid: RackId,
    name: String,
    member: bool,
    /// The last concern that the region wrote for it, and the number of writes.
    written: (u64, Delegation),
    /// The concern that a region is about to write, and the number of writes that it saw.
    rendering: Option<(u64, Delegation)>,
    /// The delegation that it uses.
    config: Delegation,
    /// The end of each lease in minutes, by the address's last byte.
    leases: BTreeMap<u8, u64>,
    /// Facts that are not delivered yet.
    outbox: Vec<NewFact>,
    seq: u64,
}

impl Played {
    fn live(&self, now: u64) -> impl Iterator<Item = (u8, u64)> {
        self.leases.iter().map(|(byte, ends)| (*byte, *ends)).filter(move |(_, ends)| *ends > now)
    }

    fn take(&mut self, concern: Delegation, subnet: SubnetId, now: u64) {
        self.config = concern;
        let own = bytes(&self.config);
        let leftover = self.live(now).filter(|(byte, _)| !own.contains(byte)).map(|(byte, ends)| {
            let address = format!("10.99.0.{byte}");
            json!({"subnet_uid": subnet.to_string(), "start": address, "end": address, "ends_in_ms": (ends - now) * 60_000})
        });
        let leftover: Vec<Value> = leftover.collect();
        self.seq += 1;
        self.outbox.push(in_force(self.seq, self.config.number, &leftover));
    }
}

struct World {
    regions: [Store; 2],
    db: PgConnection,
    subnet: SubnetId,
    racks: Vec<Played>,
    /// Deleted racks: they grant no leases.
    gone: Vec<Played>,
    /// The time in minutes.
    now: u64,
    range: Option<(u8, u8)>,
    made: u64,
}

impl World {
    async fn new() -> Self {
        let url = basalt_db::testing::database().await;
        let regions = [open(&url, [7; 32]).await.unwrap(), open(&url, [7; 32]).await.unwrap()];
        let store = &regions[0];
        put(store, "Fabric", "default", json!({})).await.unwrap();
        put(store, "Vlan", "default.0", json!({"fabric": "default", "vid": 0})).await.unwrap();
        put(store, "Subnet", "lab", json!({"vlan": "default.0", "cidr": "10.99.0.0/26"})).await.unwrap();
        let subnet = lab(store).await;
        let db = PgConnection::connect(&url).await.unwrap();
        Self { regions, db, subnet, racks: Vec::new(), gone: Vec::new(), now: 1000, range: None, made: 0 }
    }

    async fn step(&mut self, dice: &mut Dice) {
        let store = self.regions[usize::try_from(dice.roll(2)).unwrap()].clone();
        let which = usize::try_from(dice.roll(self.racks.len().max(1) as u64)).unwrap();
        match dice.roll(16) {
            0 if self.racks.len() < 4 => {
                self.made += 1;
                let name = format!("r{}", self.made);
                let uid = rack(&store, &name).await;
                let (written, config) = ((0, Delegation::default()), Delegation::default());
                let (rendering, leases, outbox) = (None, BTreeMap::new(), Vec::new());
                self.racks.push(Played {
                    uid,
                    name,
                    member: true,
                    written,
                    rendering,
                    config,
                    leases,
                    outbox,
                    seq: 0,
                });
            }
            1 if !self.racks.is_empty() => self.racks[which].member ^= true,
            2 if self.racks.len() > 1 && dice.roll(3) == 0 => self.delete(&store, which).await,
            3 => self.change_range(&store, dice).await,
            4..=6 => self.delegate(&store, dice).await,
            7 if !self.racks.is_empty() => {
                let rack = &mut self.racks[which];
                rack.rendering = Some((rack.written.0, store.delegation(rack.uid).await.unwrap()));
            }
            8 if !self.racks.is_empty() => {
                // By compare-and-swap.
                let rack = &mut self.racks[which];
                if let Some((base, concern)) = rack.rendering.take()
                    && base == rack.written.0
                    && concern != rack.written.1
                {
                    rack.written = (base + 1, concern);
                }
            }
            9 if !self.racks.is_empty() => {
                let (subnet, now) = (self.subnet, self.now);
                let rack = &mut self.racks[which];
                rack.take(rack.written.1.clone(), subnet, now);
            }
            10 if !self.racks.is_empty() => {
                // The rack is killed: undelivered facts are lost, and it reports its configuration again.
                let (subnet, now) = (self.subnet, self.now);
                let rack = &mut self.racks[which];
                rack.outbox.truncate(usize::try_from(dice.roll(2)).unwrap());
                rack.take(rack.config.clone(), subnet, now);
            }
            11 if !self.racks.is_empty() => self.lease(which, dice),
            12 => {
                self.deliver(&store, which).await;
                if dice.roll(4) == 0 {
                    self.wait(dice.roll(12)).await;
                }
            }
            // Everything works: the rack gets a concern, applies it, and its reports arrive.
            13..=15 if !self.racks.is_empty() => {
                let concern = store.delegation(self.racks[which].uid).await.unwrap();
                self.told(which, concern);
                self.deliver(&store, which).await;
            }
            _ => self.lease_all(),
        }
        self.check();
    }

    /// A rack receives a concern and applies it.
    fn told(&mut self, which: usize, concern: Delegation) {
        let (subnet, now) = (self.subnet, self.now);
        let rack = &mut self.racks[which];
        if concern != rack.written.1 {
            rack.written = (rack.written.0 + 1, concern.clone());
        }
        rack.take(concern, subnet, now);
    }

    async fn delete(&mut self, store: &Store, which: usize) {
        let rack = self.racks.remove(which);
        store.request_deletion("Rack", Key::Name(&rack.name), Precondition::None, false).await.unwrap();
        store.finalise(rack.uid.into()).await.unwrap();
        self.gone.push(rack);
    }

    async fn change_range(&mut self, store: &Store, dice: &mut Dice) {
        let byte = |dice: &mut Dice, from| from + u8::try_from(dice.roll(30)).unwrap();
        let range = (byte(dice, 1), byte(dice, 31));
        let (start, end) = (format!("10.99.0.{}", range.0), format!("10.99.0.{}", range.1));
        match dice.roll(6) {
            0 => {
                let gone =
                    store.request_deletion("IpRange", Key::Name("pool"), Precondition::None, false).await;
                assert!(matches!(gone, Ok(_) | Err(StoreError::NotFound { .. })), "{gone:?}");
                self.range = None;
            }
            purpose => {
                let purpose = if purpose == 1 { "reserved" } else { "dynamic" };
                let spec = json!({"subnet": "lab", "start": start, "end": end, "purpose": purpose});
                put(store, "IpRange", "pool", spec).await.unwrap();
                self.range = (purpose == "dynamic").then_some(range);
            }
        }
    }

    async fn delegate(&mut self, store: &Store, dice: &mut Dice) {
        let members: Vec<RackId> =
            self.racks.iter().filter(|rack| rack.member).map(|rack| rack.uid).collect();
        let now = served(self.subnet, &members);
        match dice.roll(4) {
            // The region dies at an await.
            0 => {
                drop(tokio::time::timeout(Duration::from_micros(dice.roll(4000)), store.delegate(&now)).await)
            }
            // Two regions at once, and one of them knows fewer members.
            1 => {
                let fewer = served(self.subnet, members.get(1..).unwrap_or_default());
                let (one, other) =
                    tokio::join!(self.regions[0].delegate(&now), self.regions[1].delegate(&fewer));
                one.unwrap();
                other.unwrap();
            }
            _ => store.delegate(&now).await.unwrap(),
        }
    }

    /// A rack grants one lease.
    fn lease(&mut self, which: usize, dice: &mut Dice) {
        let now = self.now;
        let rack = &mut self.racks[which];
        let own: Vec<u8> = bytes(&rack.config).into_iter().collect();
        if let Some(byte) = own.get(usize::try_from(dice.roll(own.len().max(1) as u64)).unwrap()) {
            rack.leases.insert(*byte, now + 10);
        }
    }

    /// Every rack leases all its addresses.
    fn lease_all(&mut self) {
        for rack in &mut self.racks {
            for byte in bytes(&rack.config) {
                rack.leases.insert(byte, self.now + 10);
            }
        }
    }

    async fn deliver(&mut self, store: &Store, which: usize) {
        if let Some(rack) = self.racks.get_mut(which) {
            let facts = std::mem::take(&mut rack.outbox);
            let spool = uuid::Uuid::from_u128(7);
            store.store_facts(rack.uid, &rack.name, spool, &facts).await.unwrap();
        }
    }

    /// Advances time, by moving the times in the database into the past.
    async fn wait(&mut self, minutes: u64) {
        self.now += minutes;
        for statement in [
            format!("update dhcp_block set free_at = free_at - interval '{minutes} minutes'"),
            format!("update rack_delegation set told_at = told_at - interval '{minutes} minutes'"),
        ] {
            self.db.execute(AssertSqlSafe(statement)).await.unwrap();
        }
    }

    /// Checks that no rack leases an address that another rack leases or has leased to a current client.
    fn check(&self) {
        for rack in &self.racks {
            let own = bytes(&rack.config);
            for other in self.racks.iter().chain(&self.gone).filter(|other| other.uid != rack.uid) {
                let leased: BTreeSet<u8> = other.live(self.now).map(|(byte, _)| byte).collect();
                let theirs = if self.gone.iter().any(|gone| gone.uid == other.uid) {
                    BTreeSet::new()
                } else {
                    bytes(&other.config)
                };
                let twice: Vec<_> =
                    own.iter().filter(|byte| theirs.contains(byte) || leased.contains(byte)).collect();
                assert!(
                    twice.is_empty(),
                    "{twice:?} are {}'s and {}'s: {:?}",
                    rack.name,
                    other.name,
                    self.racks
                );
            }
        }
    }

    /// Delivers everything and lets time pass; then the range must be shared evenly.
    async fn settle(&mut self) {
        let store = self.regions[0].clone();
        let mut nobody = Dice(1);
        for _ in 0..6 {
            let members: Vec<RackId> = self.racks.iter().filter(|r| r.member).map(|r| r.uid).collect();
            store.delegate(&served(self.subnet, &members)).await.unwrap();
            for which in 0..self.racks.len() {
                let concern = store.delegation(self.racks[which].uid).await.unwrap();
                self.told(which, concern);
                self.deliver(&store, which).await;
                self.check();
            }
            self.wait(11).await;
        }
        self.delegate(&store, &mut nobody).await;
        let shares = self.racks.iter().filter(|rack| rack.member).map(|rack| bytes(&rack.config));
        let shares: Vec<BTreeSet<u8>> = shares.collect();
        let all: BTreeSet<u8> = shares.iter().flatten().copied().collect();
        let range: BTreeSet<u8> =
            self.range.map(|(first, last)| first..=last).into_iter().flatten().collect();
        if !shares.is_empty() {
            assert_eq!(all, range, "all of the range is delegated");
            let sizes = shares.iter().map(BTreeSet::len);
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1, "{shares:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_no_address_is_two_racks_to_lease_and_in_the_end_each_is_one_s() {
    for seed in 1..=3 {
        let (mut world, mut dice) = (World::new().await, Dice(seed));
        for _ in 0..4 {
            for _ in 0..120 {
                world.step(&mut dice).await;
            }
            world.settle().await;
        }
        assert!(world.made > 3, "racks came");
    }
}
