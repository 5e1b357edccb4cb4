//! What racks are told about DHCP, to the bytes of the concern, by a region whose driver works. The racks are played: what they
//! would say is put where their links put it.

use crate::kinds::observe;
use crate::support::{Lab, driven_lab};
use basalt_api::values::{RackId, SubnetId, Timestamp, Uid};
use basalt_db::{Key, NewFact};
use basalt_proto::rack_v1::{DhcpConcern, Reservation};
use basalt_region::racks::observed::{DhcpInForce, Hello, Leftover, Observed};
use prost::Message;
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// A rack that does what it is told when the test says so.
struct Played {
    uid: RackId,
    seq: u64,
}

fn fact(seq: u64, object: Uid, observed: &Observed) -> NewFact {
    let (kind, body) = observed.stored();
    let observed_at = Timestamp::UNIX_EPOCH;
    NewFact {
        seq,
        object: Some(object),
        mac: None,
        kind,
        step_key: None,
        attempt: None,
        body,
        observed_at,
        wakes: true,
    }
}

impl Played {
    /// A rack with an address comes.
    async fn come(lab: &Lab, name: &str, address: &str) -> Self {
        observe(lab, "Rack", name, "{}").await;
        let store = lab.region.store();
        let uid = store.get("Rack", Key::Name(name)).await.expect("a rack").uid;
        let hello = Hello { addresses: vec![address.to_owned()], ..Hello::default() };
        store.store_own_fact(&fact(0, uid, &Observed::Hello(hello))).await.expect("it is stored");
        Self { uid: RackId::from(uid), seq: 0 }
    }

    /// The DHCP concern, once `holds` of it.
    async fn told(&self, lab: &Lab, holds: impl Fn(&DhcpConcern) -> bool) -> DhcpConcern {
        let store = lab.region.store();
        let (mut woken, mut last) = (store.woken(), None);
        let look = async {
            loop {
                let concerns = store.concerns(self.uid).await.expect("concerns");
                let dhcp = concerns.iter().find(|concern| concern.name == "dhcp");
                last = dhcp.map(|concern| DhcpConcern::decode(concern.body.as_slice()).expect("a concern"));
                if let Some(concern) = last.clone().filter(&holds) {
                    return concern;
                }
                woken.changed().await.expect("the store lives");
            }
        };
        let found = tokio::time::timeout(PATIENCE, look).await;
        found.unwrap_or_else(|_| panic!("the rack is told another thing: {last:?}"))
    }

    /// Says that it works by a concern.
    async fn obeys(&mut self, lab: &Lab, concern: &DhcpConcern, leftover: Vec<Leftover>) {
        self.seq += 1;
        let said = DhcpInForce { delegation: concern.delegation, leftover, unsure_ms: 0 };
        let said = fact(self.seq, self.uid.into(), &Observed::DhcpInForce(said));
        let spool = uuid::Uuid::from_u128(1);
        lab.region.store().store_facts(self.uid, "played", spool, &[said]).await.expect("it is stored");
    }
}

fn blocks(concern: &DhcpConcern) -> Vec<String> {
    let subnets = concern.subnets.iter();
    subnets.flat_map(|subnet| &subnet.dynamic).map(|range| format!("{}-{}", range.start, range.end)).collect()
}

fn has(blocks_are: &'static [&str]) -> impl Fn(&DhcpConcern) -> bool {
    move |concern| blocks(concern) == blocks_are
}

/// The subnet `lab`, served, with a pool of a hundred addresses.
async fn served() -> Lab {
    let lab = driven_lab().await;
    lab.api.declare("/api/v1/fabrics/default", "{}").await;
    let vlan = r#"{"fabric":"default","vid":0,"dhcp":{"enabled":true}}"#;
    lab.api.declare("/api/v1/vlans/default.0", vlan).await;
    let subnet = r#"{"vlan":"default.0","cidr":"10.77.0.0/24","gateway":"10.77.0.1"}"#;
    lab.api.declare("/api/v1/subnets/lab", subnet).await;
    let pool = r#"{"subnet":"lab","start":"10.77.0.100","end":"10.77.0.199"}"#;
    lab.api.declare("/api/v1/ip_ranges/pool", pool).await;
    lab
}

async fn range_status(lab: &Lab) -> Value {
    lab.api.get("/api/v1/ip_ranges/pool").await.json()["status"]["blocks"].clone()
}

#[tokio::test]
async fn a_second_rack_gets_its_half_once_the_first_has_let_go_of_it() {
    let lab = served().await;
    let mut r1 = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let whole = r1.told(&lab, has(&["10.77.0.100-10.77.0.199"])).await;
    r1.obeys(&lab, &whole, Vec::new()).await;
    let mut r2 = Played::come(&lab, "r2", "10.77.0.150/24").await;
    let half = r1.told(&lab, has(&["10.77.0.100-10.77.0.149"])).await;
    r2.told(&lab, has(&[])).await;
    assert_eq!(
        range_status(&lab).await,
        json!({
            "10.77.0.100-10.77.0.149": {"rack": "r1", "state": "leased", "addresses": 50, "used": 0},
            "10.77.0.150-10.77.0.199": {"rack": "r1", "state": "taken_back", "addresses": 50, "used": 0}})
    );
    let subnet =
        SubnetId::from(lab.region.store().get("Subnet", Key::Name("lab")).await.expect("a subnet").uid);
    let leased = |start: &str, end: &str| Leftover {
        subnet_uid: subnet.to_string(),
        start: start.to_owned(),
        end: end.to_owned(),
        ends_in_ms: 600_000,
    };
    r1.obeys(&lab, &half, vec![leased("10.77.0.152", "10.77.0.153")]).await;
    // Not its own address, nor what clients of the other still have.
    let rest = r2.told(&lab, has(&["10.77.0.151-10.77.0.151", "10.77.0.154-10.77.0.199"])).await;
    r2.obeys(&lab, &rest, Vec::new()).await;
    assert!(rest.delegation > half.delegation, "numbers are one sequence");
    assert_eq!(range_status(&lab).await["10.77.0.154-10.77.0.199"]["rack"], "r2");

    // It is deleted, and is not connected: what it may have leased ends in ten minutes.
    lab.api.delete("/api/v1/racks/r2").await;
    let mut woken = lab.region.store().woken();
    let gone = async {
        while lab.api.get("/api/v1/racks/r2").await.status != 404 {
            woken.changed().await.expect("the store lives");
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it goes");
    // The first one is told at once of what is free now, and of nothing that the other one had.
    let after = r1.told(&lab, has(&["10.77.0.100-10.77.0.149", "10.77.0.152-10.77.0.153"])).await;
    r1.obeys(&lab, &after, Vec::new()).await;
    let abandoned = range_status(&lab).await["10.77.0.154-10.77.0.199"].clone();
    assert!(abandoned.get("rack").is_none_or(Value::is_null), "{abandoned}");
}

#[tokio::test]
async fn an_address_with_a_mac_is_that_clients_reservation() {
    let lab = served().await;
    let rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    rack.told(&lab, has(&["10.77.0.100-10.77.0.199"])).await;
    let printer = r#"{"subnet":"lab","mac":"52:54:00:00:00:09","hostname":"printer"}"#;
    lab.api.declare("/api/v1/ip_addresses/printer", printer).await;
    let reserved = |concern: &DhcpConcern| {
        concern.subnets.iter().flat_map(|it| it.reservations.clone()).collect::<Vec<_>>()
    };
    let concern = rack.told(&lab, |concern| !reserved(concern).is_empty()).await;
    let expected = Reservation {
        mac: "52:54:00:00:00:09".into(),
        address: "10.77.0.3".into(),
        hostname: "printer".into(),
    };
    assert_eq!(reserved(&concern), [expected], "the gateway has .1, and the rack itself .2");
    let moved = r#"{"subnet":"lab","address":"10.77.0.7","mac":"52:54:00:00:00:09"}"#;
    lab.api.declare("/api/v1/ip_addresses/printer", moved).await;
    rack.told(&lab, |concern| reserved(concern).iter().any(|it| it.address == "10.77.0.7")).await;
    lab.api.delete("/api/v1/ip_addresses/printer").await;
    rack.told(&lab, |concern| reserved(concern).is_empty()).await;
}
