//! Queue, facts, concerns, claims: what the engine's driver builds on.

use crate::common::{machine, network, put, store};
use basalt_api::values::{
    Attempt, DeploymentId, Epoch, Generation, MachineId, RackId, SubnetId, Timestamp, Uid,
};
use basalt_db::{AddressWish, Addressed, ConcernWrite, Joined, Key, NewFact, Precondition, StoreError, Then};
use serde_json::json;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_wake_up_during_handling_is_not_lost() {
    let store = store().await;
    let uid = put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap().object.uid;
    let me = Uid::generate();
    let [lease] = store.claim(me, 10, LEASE).await.unwrap().try_into().unwrap();
    assert_eq!((lease.kind.as_str(), lease.uid), ("Machine", uid));
    assert!(store.claim(me, 10, LEASE).await.unwrap().is_empty(), "nobody else gets it meanwhile");
    store.enqueue(uid, Duration::ZERO).await.unwrap();
    store.finish(&lease, Then::Rest).await.unwrap();
    let [again] = store.claim(me, 10, LEASE).await.unwrap().try_into().unwrap();
    assert!(again.epoch > lease.epoch);
    store.finish(&again, Then::Rest).await.unwrap();
    assert!(store.claim(me, 10, LEASE).await.unwrap().is_empty());
    assert_eq!(store.next_due().await.unwrap(), None);
}

#[tokio::test]
async fn a_handler_whose_lease_ran_out_can_write_nothing() {
    let store = store().await;
    put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap();
    let [late] = store.claim(Uid::generate(), 1, Duration::ZERO).await.unwrap().try_into().unwrap();
    let [now] = store.claim(Uid::generate(), 1, LEASE).await.unwrap().try_into().unwrap();
    assert_eq!(now.attempts, 2, "the first handler did not finish");
    let status = json!({"observed_generation": 1});
    let refused = store.write_status(&late, Generation::new(1), &status).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })));
    assert!(matches!(store.finish(&late, Then::Rest).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(store.extend(&late, LEASE).await, Err(StoreError::Fenced { .. })));
    store.extend(&now, LEASE).await.unwrap();
    assert!(store.write_status(&now, Generation::new(1), &status).await.unwrap());
    assert!(
        !store.write_status(&now, Generation::new(1), &status).await.unwrap(),
        "the same is not written again"
    );
    let object = store.get("Machine", Key::Name("m")).await.unwrap();
    assert_eq!((object.generation.get(), object.observed_generation.get()), (1, 1));
    store.finish(&now, Then::Again(Duration::from_secs(60))).await.unwrap();
    assert!(store.next_due().await.unwrap().unwrap() > Duration::from_secs(50));
}

fn fact(seq: u64, mac: &str) -> NewFact {
    NewFact {
        seq,
        object: None,
        mac: Some(mac.to_owned()),
        kind: "power".to_owned(),
        step_key: Some(format!("step-{seq}")),
        attempt: Some(Attempt::new(seq)),
        body: json!({"power": "on", "seq": seq}),
        observed_at: Timestamp::UNIX_EPOCH,
        wakes: true,
    }
}

#[tokio::test]
async fn facts_are_stored_once_however_often_they_are_delivered() {
    let store = store().await;
    let machine = put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap().object.uid;
    let rack = RackId::from(put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid);
    for lease in store.claim(Uid::generate(), 10, LEASE).await.unwrap() {
        store.finish(&lease, Then::Rest).await.unwrap();
    }
    let spool = *Uid::generate().get().as_bytes();
    let deliver = async |seqs: &[u64]| {
        let facts: Vec<NewFact> = seqs.iter().map(|s| fact(*s, "52:54:00:00:00:01")).collect();
        store.store_facts(rack, "r1", uuid::Uuid::from_bytes(spool), &facts).await.unwrap()
    };
    assert_eq!(deliver(&[1, 2]).await, 2);
    assert_eq!(deliver(&[1, 2, 3]).await, 3);
    assert_eq!(deliver(&[2]).await, 3);
    let history = store.fact_history(machine, 0, 10).await.unwrap();
    assert_eq!(history.iter().map(|f| f.attempt.unwrap().get()).collect::<Vec<_>>(), [1, 2, 3]);
    let [latest] = store.latest_facts(machine).await.unwrap().try_into().unwrap();
    assert_eq!((latest.body["seq"].as_u64(), latest.source.as_str()), (Some(3), "r1"));
    assert_eq!(store.facts_of_step(machine, "step-2").await.unwrap().len(), 1);
    assert_eq!(store.claim(Uid::generate(), 10, LEASE).await.unwrap().len(), 1, "the machine was woken");
    let unknown = [fact(4, "52:54:00:00:00:99")];
    assert_eq!(store.store_facts(rack, "r1", uuid::Uuid::from_bytes(spool), &unknown).await.unwrap(), 4);
}

#[tokio::test]
async fn a_concern_is_written_by_compare_and_swap() {
    let store = store().await;
    let rack = RackId::from(put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid);
    let at = Generation::new;
    assert_eq!(store.put_concern(rack, "dhcp", at(0), b"a").await.unwrap(), ConcernWrite::Written(at(1)));
    assert_eq!(store.put_concern(rack, "dhcp", at(0), b"a").await.unwrap(), ConcernWrite::Unchanged(at(1)));
    assert_eq!(store.put_concern(rack, "dhcp", at(0), b"b").await.unwrap(), ConcernWrite::Stale(at(1)));
    assert_eq!(store.put_concern(rack, "dhcp", at(1), b"b").await.unwrap(), ConcernWrite::Written(at(2)));
    let [concern] = store.concerns(rack).await.unwrap().try_into().unwrap();
    assert_eq!((concern.generation, concern.body.as_slice()), (at(2), b"b".as_slice()));
    assert_eq!(store.concern_generation(rack, "boot").await.unwrap(), at(0));
}

#[tokio::test]
async fn a_machine_has_one_deployment_at_a_time() {
    let store = store().await;
    put(&store, "Image", "debian", image()).await.unwrap();
    let machine =
        MachineId::from(put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap().object.uid);
    let mut deployments = Vec::new();
    for name in ["a", "b"] {
        let spec = json!({"machine": "m", "image": "debian"});
        deployments.push(DeploymentId::from(put(&store, "Deployment", name, spec).await.unwrap().object.uid));
    }
    let epoch = Epoch::new(1);
    let claim = async |deployment| {
        let claiming = store.claiming().await.unwrap();
        !claiming.claim(&[(deployment, machine)], epoch).await.unwrap().is_empty()
    };
    assert!(claim(deployments[0]).await);
    assert!(!claim(deployments[0]).await && !claim(deployments[1]).await, "it is given away once");
    assert_eq!(store.claimant_of(machine).await.unwrap(), Some(deployments[0]));
    store.release_machine(deployments[0]).await.unwrap();
    store.request_deletion("Deployment", Key::Name("a"), Precondition::None, false).await.unwrap();
    assert!(!claim(deployments[0]).await, "who is on the way out gets none");
    assert!(claim(deployments[1]).await);
    assert_eq!(store.claimant_of(machine).await.unwrap(), Some(deployments[1]));
}

fn image() -> serde_json::Value {
    json!({"os": "debian", "release": "12", "architecture": "amd64", "files": {}})
}

#[tokio::test]
async fn addresses_are_given_out_lowest_first_around_what_is_taken() {
    let store = store().await;
    network(&store).await;
    let range = json!({"subnet": "lab", "start": "10.77.0.3", "end": "10.77.0.252"});
    put(&store, "IpRange", "pool", range).await.unwrap();
    let subnet = SubnetId::from(store.get("Subnet", Key::Name("lab")).await.unwrap().uid);
    let mut owned = Vec::new();
    let mut owners = Vec::new();
    for n in 0..4 {
        let owner = put(&store, "Zone", &format!("z{n}"), json!({})).await.unwrap().object.uid;
        owners.push(owner);
        let wish = AddressWish {
            subnet,
            owner,
            purpose: "eth0",
            address: None,
            mac: None,
            hostname: None,
            machine_macs: &[],
        };
        owned.push(store.own_address(&wish).await.unwrap());
        assert_eq!(store.own_address(&wish).await.unwrap(), owned[n], "again is the same");
    }
    let address = |text: &str| Addressed::Owned(text.parse().unwrap());
    assert_eq!(
        owned,
        [address("10.77.0.2"), address("10.77.0.253"), address("10.77.0.254"), Addressed::Exhausted]
    );
    let wish = AddressWish {
        subnet,
        owner: owners[3],
        purpose: "eth0",
        address: "10.77.0.2".parse().ok(),
        mac: None,
        hostname: None,
        machine_macs: &[],
    };
    assert_eq!(store.own_address(&wish).await.unwrap(), Addressed::HeldBy("z0".to_owned()));
    store.release_addresses(owners[0], &[]).await.unwrap();
    assert_eq!(store.own_address(&wish).await.unwrap(), address("10.77.0.2"));
}

#[tokio::test]
async fn a_join_secret_is_for_one_key() {
    let store = store().await;
    store.put_join_secret("s3cret", Some("r1"), LEASE).await.unwrap();
    let using = |name: &'static str, key: [u8; 32]| {
        let store = store.clone();
        async move { store.use_join_secret("s3cret", name, &key).await.unwrap() }
    };
    assert_eq!(using("r2", [1; 32]).await, Joined::OtherName);
    assert_eq!(using("r1", [1; 32]).await, Joined::Yes);
    assert_eq!(using("r1", [1; 32]).await, Joined::Yes, "a repeat is answered the same");
    assert_eq!(using("r1", [2; 32]).await, Joined::Used);
    assert_eq!(store.use_join_secret("other", "r1", &[1; 32]).await.unwrap(), Joined::Unknown);
}
