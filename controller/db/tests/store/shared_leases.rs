//! The leases of other racks that a rack receives.

use crate::common::{network, open, put};
use basalt_api::values::{RackId, Timestamp};
use basalt_db::{Grantor, NewFact, RackLease, ServedSubnet, Store};
use serde_json::{Value, json};
use uuid::Uuid;

const MAC: &str = "52:54:00:00:00:01";
const HOUR_MS: i64 = 3_600_000;

struct World {
    store: Store,
    url: String,
    lab: Uuid,
    racks: [RackId; 2],
    seq: u64,
}

impl World {
    /// Two racks, each with half of a subnet's dynamic range.
    async fn new() -> Self {
        let url = basalt_db::testing::database().await;
        let store = open(&url, [7; 32]).await.unwrap();
        network(&store).await;
        let pool = json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.199"});
        put(&store, "IpRange", "pool", pool).await.unwrap();
        let lab = store.get("Subnet", basalt_db::Key::Name("lab")).await.unwrap().uid.get();
        let mut racks = Vec::new();
        for name in ["r1", "r2"] {
            racks.push(RackId::from(put(&store, "Rack", name, json!({})).await.unwrap().object.uid));
        }
        let served = ServedSubnet { subnet: lab.into(), racks: racks.clone(), lease_seconds: 3600 };
        store.delegate(&[served]).await.unwrap();
        Self { store, url, lab, racks: racks.try_into().unwrap(), seq: 0 }
    }

    fn lease(&mut self, address: &str, more: Value) -> NewFact {
        self.seq += 1;
        let mut body = json!({
            "address": address, "hostname": "m1", "expires_unix_ms": 0, "released": false,
            "subnet_uid": self.lab.to_string(), "ends_in_ms": HOUR_MS, "kept_for_ms": HOUR_MS + 600_000,
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        NewFact {
            seq: self.seq,
            object: None,
            mac: Some(MAC.to_owned()),
            kind: "lease".to_owned(),
            step_key: None,
            attempt: None,
            body,
            observed_at: Timestamp::UNIX_EPOCH,
            wakes: false,
        }
    }

    async fn tells(&self, rack: usize, facts: &[NewFact]) {
        self.store.store_facts(self.racks[rack], "r", Uuid::from_u128(1), facts).await.unwrap();
    }
}

fn brief(leases: &[RackLease]) -> Vec<(&str, Grantor)> {
    leases.iter().map(|lease| (&*lease.address, lease.by)).collect()
}

#[tokio::test]
async fn a_rack_is_told_of_all_leases_at_first_and_then_of_what_others_grant() {
    let mut world = World::new().await;
    let (own, others) = ("10.77.0.100", "10.77.0.199");
    let facts = [world.lease(own, json!({})), world.lease(others, json!({"kept_for_ms": null}))];
    world.tells(0, &facts).await;
    let (all, seen) = world.store.leases_for(world.racks[1], None).await.unwrap();
    assert_eq!(brief(&all), [(own, Grantor::Owner), (others, Grantor::Another)]);
    let lease = &all[0];
    assert_eq!((&*lease.mac, &*lease.hostname, lease.given_back), (MAC, "m1", false));
    let (ends, kept) = (lease.ends_in_ms, lease.kept_for_ms.unwrap());
    assert!(ends <= HOUR_MS && ends > HOUR_MS - 60_000, "{ends}");
    assert!(kept <= HOUR_MS + 600_000 && kept > ends, "{kept}");
    assert_eq!(all[1].kept_for_ms, None);

    let (itself, of_itself) = world.store.leases_for(world.racks[0], None).await.unwrap();
    assert_eq!(brief(&itself), [(own, Grantor::Itself), (others, Grantor::Itself)]);
    let given_back = world.lease(own, json!({"released": true, "ends_in_ms": -1}));
    world.tells(0, &[given_back]).await;
    let (of_itself, _) = world.store.leases_for(world.racks[0], Some(&of_itself)).await.unwrap();
    assert_eq!(of_itself, [], "it knows what it does");
    let (news, seen) = world.store.leases_for(world.racks[1], Some(&seen)).await.unwrap();
    assert_eq!(brief(&news), [(own, Grantor::Owner)]);
    assert!(news[0].given_back && news[0].ends_in_ms < 0, "{news:?}");
    let (news, _) = world.store.leases_for(world.racks[1], Some(&seen)).await.unwrap();
    assert_eq!(news, [], "nothing is told twice, whoever else writes");
}

#[tokio::test]
async fn a_rack_is_told_of_its_own_leases_of_ipv6_as_it_links_and_nobody_of_others() {
    let mut world = World::new().await;
    let six = json!({"vlan": "default.0", "cidr": "2001:db8::/64"});
    let six = put(&world.store, "Subnet", "six", six).await.unwrap().object.uid.get();
    let mut lease = |address: &str, mac: Option<&str>, more: Value| {
        let mut fact = world.lease(address, json!({"subnet_uid": six.to_string()}));
        fact.body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        NewFact { mac: mac.map(str::to_owned), ..fact }
    };
    let facts = [
        lease("2001:db8::1", Some(MAC), json!({})),
        lease("2001:db8::2", None, json!({})),
        lease("2001:db8::3", Some(MAC), json!({})),
        lease("2001:db8::3", Some(MAC), json!({"released": true, "ends_in_ms": -1})),
        lease("2001:db8::4", Some(MAC), json!({"ends_in_ms": -1})),
        lease("2001:db8:1::1", Some(MAC), json!({})),
    ];
    world.tells(0, &facts).await;
    // A rack gets its IPv6 leases back even if it has no block in their subnet: they may be of a former range.
    let (told, seen) = world.store.leases_for(world.racks[0], None).await.unwrap();
    assert_eq!(brief(&told), [("2001:db8::1", Grantor::Itself), ("2001:db8::2", Grantor::Itself)]);
    assert_eq!((told[0].subnet, &*told[0].mac, &*told[1].mac), (six, MAC, ""));
    assert!(told[0].ends_in_ms <= HOUR_MS && told[0].ends_in_ms > HOUR_MS - 60_000, "{told:?}");
    assert_eq!(world.store.leases_for(world.racks[0], Some(&seen)).await.unwrap().0, []);
    assert_eq!(world.store.leases_for(world.racks[1], None).await.unwrap().0, []);
}

#[tokio::test]
async fn nothing_is_missed_that_was_written_before_a_look_and_committed_after_it() {
    use sqlx::Connection;
    let world = World::new().await;
    let mut late = sqlx::PgConnection::connect(&world.url).await.unwrap();
    let mut late = late.begin().await.unwrap();
    let insert = format!(
        "insert into lease (rack, subnet, address, mac, hostname, ends_at, given_back)
         values ('{}', '{}', '10.77.0.100', '{MAC}', '', now() + interval '1 hour', false)",
        world.racks[0], world.lab
    );
    sqlx::query(sqlx::AssertSqlSafe(insert)).execute(&mut *late).await.unwrap();
    let other = {
        let mut world = World { seq: 9, ..world };
        let fact = world.lease("10.77.0.101", json!({}));
        world.tells(0, &[fact]).await;
        world
    };
    let (first, seen) = other.store.leases_for(other.racks[1], None).await.unwrap();
    assert_eq!(brief(&first), [("10.77.0.101", Grantor::Owner)]);
    late.commit().await.unwrap();
    let (then, _) = other.store.leases_for(other.racks[1], Some(&seen)).await.unwrap();
    assert_eq!(brief(&then), [("10.77.0.100", Grantor::Owner)]);
}

#[tokio::test]
async fn what_makes_no_sense_is_no_lease_and_keeps_no_other_fact_from_being_stored() {
    let mut world = World::new().await;
    let facts = [
        world.lease("no address", json!({})),
        world.lease("10.78.0.1", json!({})),
        world.lease("fd00::1", json!({})),
        world.lease("10.77.0.101", json!({"subnet_uid": Uuid::nil().to_string()})),
        world.lease("10.77.0.102", json!({"ends_in_ms": i64::MAX, "kept_for_ms": i64::MIN})),
        world.lease("10.77.0.103", json!({"ends_in_ms": -1, "kept_for_ms": null})),
        world.lease("10.77.0.104", json!({})),
    ];
    world.tells(0, &facts).await;
    let (all, _) = world.store.leases_for(world.racks[1], None).await.unwrap();
    assert_eq!(brief(&all), [("10.77.0.102", Grantor::Owner), ("10.77.0.104", Grantor::Owner)]);
}

#[tokio::test]
async fn a_rack_hears_nothing_of_subnets_where_it_gives_no_addresses() {
    let mut world = World::new().await;
    let fact = world.lease("10.77.0.100", json!({}));
    world.tells(0, &[fact]).await;
    let third = RackId::from(put(&world.store, "Rack", "r3", json!({})).await.unwrap().object.uid);
    let (none, seen) = world.store.leases_for(third, None).await.unwrap();
    assert_eq!(none, []);
    let racks = [world.racks[0], world.racks[1], third].to_vec();
    let served = ServedSubnet { subnet: world.lab.into(), racks, lease_seconds: 3600 };
    world.store.delegate(std::slice::from_ref(&served)).await.unwrap();
    let number = world.store.delegation(world.racks[1]).await.unwrap().number;
    let in_force = NewFact {
        kind: "dhcp_in_force".to_owned(),
        mac: None,
        ..world.lease("10.77.0.1", json!({"delegation": number, "leftover": [], "unsure_ms": 0}))
    };
    world.tells(1, &[in_force]).await;
    world.store.delegate(&[served]).await.unwrap();
    let (all, _) = world.store.leases_for(third, Some(&seen)).await.unwrap();
    assert_eq!(brief(&all), [("10.77.0.100", Grantor::Owner)], "of a new subnet it is told everything");
}
