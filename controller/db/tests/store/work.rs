//! Queue, facts, concerns, claims: what the engine's driver builds on.

use crate::common::{decision, machine, network, open, put, store};
use basalt_api::values::{
    Attempt, DeploymentId, Epoch, Generation, MachineId, RackId, SubnetId, Timestamp, Uid,
};
use basalt_db::testing::clock::Hand;
use basalt_db::{
    AddressWish, Addressed, Allocation, Announced, Announcement, ConcernHead, ConcernWrite, EventQuery,
    Given, Joined, Key, NewFact, Precondition, Requeue, StatusWrite, StepEnd, StoreError,
};
use serde_json::json;
use std::collections::BTreeMap;
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
    store.finish(&lease, Requeue::WhenWoken).await.unwrap();
    let [again] = store.claim(me, 10, LEASE).await.unwrap().try_into().unwrap();
    assert!(again.epoch > lease.epoch);
    store.finish(&again, Requeue::WhenWoken).await.unwrap();
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
    assert!(matches!(store.finish(&late, Requeue::WhenWoken).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(store.extend(&late, LEASE).await, Err(StoreError::Fenced { .. })));
    store.extend(&now, LEASE).await.unwrap();
    let written = store.write_status(&now, Generation::new(1), &status).await.unwrap();
    assert_eq!(written, StatusWrite::Written { left: None });
    let again = store.write_status(&now, Generation::new(1), &status).await.unwrap();
    assert_eq!(again, StatusWrite::Unchanged, "the same is not written again");
    let decision = decision();
    let announcement = |lease| Announcement {
        lease,
        step_key: "k",
        attempt: None,
        arms: None,
        detail: &status,
        decision: &decision,
        takes: None,
    };
    let refused = store.announce(&announcement(&late)).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "it can begin nothing");
    let Announced::Yes(id) = store.announce(&announcement(&now)).await.unwrap() else {
        panic!("it is within")
    };
    assert_eq!(store.announce(&announcement(&now)).await.unwrap(), Announced::Yes(id), "again is the same");
    let object = store.get("Machine", Key::Name("m")).await.unwrap();
    assert_eq!((object.generation.get(), object.observed_generation.get()), (1, 1));
    store.finish(&now, Requeue::After(Duration::from_secs(60))).await.unwrap();
    assert!(store.next_due().await.unwrap().unwrap() > Duration::from_secs(50));
}

#[tokio::test]
async fn steps_phases_and_stalls_are_events_in_the_order_in_which_they_happened() {
    let store = store().await;
    put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap();
    let [lease] = store.claim(Uid::generate(), 1, LEASE).await.unwrap().try_into().unwrap();
    let stalled = |phase: &str, holds: &str| {
        json!({"phase": phase, "conditions": [
        {"type": "Stalled", "status": holds, "reason": "NoDisk", "message": "no disk is large enough"}]})
    };
    let told = async || {
        let page = store.events_before(&EventQuery::default(), None, 100).await.unwrap();
        let words = page.events.into_iter().rev().map(|it| (it.what, it.words, it.detail));
        words.filter(|it| it.0 != "written").collect::<Vec<_>>()
    };
    for status in [stalled("Ready", "false"), stalled("Ready", "false"), stalled("Deploying", "false")] {
        store.write_status(&lease, Generation::new(1), &status).await.unwrap();
    }
    let (decision, detail) = (decision(), json!({"record": {"step": "run_install"}}));
    let step = Announcement {
        lease: &lease,
        step_key: "k",
        attempt: None,
        arms: None,
        detail: &detail,
        decision: &decision,
        takes: None,
    };
    let Announced::Yes(id) = store.announce(&step).await.unwrap() else { panic!("it is within") };
    store.announce(&step).await.unwrap();
    let outcome = json!({"result": "failed", "code": "NoDisk", "message": "no disk"});
    let ends = [StepEnd { id, at: Timestamp::now(), outcome }];
    store.finish_steps(&ends).await.unwrap();
    store.finish_steps(&ends).await.unwrap();
    for status in [stalled("Deploying", "true"), stalled("Deploying", "true")] {
        store.write_status(&lease, Generation::new(1), &status).await.unwrap();
    }
    let event = |what: &str, words: &str, detail: Option<&str>| {
        (what.to_owned(), words.to_owned(), detail.map(str::to_owned))
    };
    let wanted = [
        event("phase", "Ready", None),
        event("phase", "Deploying", None),
        event("began", "run_install", None),
        event("ended", "run_install", Some("no disk")),
        event("stalled", "NoDisk", Some("no disk is large enough")),
    ];
    assert_eq!(told().await, wanted, "a repeat is no event");
    let horizon = store.event_horizon(0).await.unwrap();
    let all = store.events_after(&EventQuery::default(), (0, horizon), 100).await.unwrap();
    assert!(all.next.is_none() && all.events.is_sorted_by_key(|it| it.id));
    let first = store.events_after(&EventQuery::default(), (0, horizon), 2).await.unwrap();
    assert_eq!(first.next, Some(first.events[1].id), "there is more after the second one");
    store.forget_events().await.unwrap();
    assert_eq!(told().await, wanted, "they are younger than a month");
}

#[tokio::test]
async fn what_cannot_be_worked_on_rests_and_its_attempts_are_counted_until_it_could() {
    let store = store().await;
    put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap();
    for attempt in 1..3 {
        let [lease] = store.claim(Uid::generate(), 1, LEASE).await.unwrap().try_into().unwrap();
        assert_eq!(lease.attempts, attempt);
        store.fail(&lease, "it is broken", Duration::ZERO).await.unwrap();
        assert_eq!(store.failing_gauges().await.unwrap()[0].objects, 1);
    }
    let [lease] = store.claim(Uid::generate(), 1, LEASE).await.unwrap().try_into().unwrap();
    store.fail(&lease, "it is broken", Duration::from_secs(60)).await.unwrap();
    assert!(store.claim(Uid::generate(), 1, LEASE).await.unwrap().is_empty(), "it rests");
    store.enqueue(lease.uid, Duration::ZERO).await.unwrap();
    let [lease] = store.claim(Uid::generate(), 1, LEASE).await.unwrap().try_into().unwrap();
    store.finish(&lease, Requeue::WhenWoken).await.unwrap();
    assert!(store.failing_gauges().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_decision_reads_back_and_the_oldest_are_forgotten_first() {
    let store = store().await;
    put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap();
    let [lease] = store.claim(Uid::generate(), 1, LEASE).await.unwrap().try_into().unwrap();
    let (decision, detail) = (decision(), json!({}));
    for step_key in ["a", "b", "c"] {
        let step = Announcement {
            lease: &lease,
            step_key,
            attempt: None,
            arms: None,
            detail: &detail,
            decision: &decision,
            takes: None,
        };
        store.announce(&step).await.unwrap();
    }
    store.forget_decisions(30, 2).await.unwrap();
    let kept = store.decisions(&[lease.uid], None, 10).await.unwrap();
    assert_eq!(kept.iter().map(|d| d.step_key.as_str()).collect::<Vec<_>>(), ["c", "b"]);
    let (first, why) = (&kept[0], &kept[0].why);
    assert_eq!(
        (why.facts.as_slice(), &why.steps, &why.ground),
        (&[1, 2][..], &decision.steps, &decision.ground)
    );
    assert_eq!((why.digest, first.epoch), (decision.digest, lease.epoch));
    let next = store.decisions(&[lease.uid], Some(first.id), 10).await.unwrap();
    assert_eq!(next.len(), 1);
}

#[tokio::test]
async fn what_plans_rest_on_outlives_the_history() {
    let url = basalt_db::testing::database().await;
    let mut hand = Hand::on(&url).await;
    let store = open(&url, [7; 32]).await.unwrap();
    let machine = put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap().object.uid;
    let rack = RackId::from(put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid);
    let of = |seq, kind: &str, attempt, step_key: Option<&str>| NewFact {
        kind: kind.to_owned(),
        attempt: Some(Attempt::new(attempt)),
        step_key: step_key.map(str::to_owned),
        ..fact(seq, "52:54:00:00:00:01")
    };
    let facts = [
        of(1, "claim", 7, None),
        of(2, "claim", 7, None),
        of(3, "progress", 7, None),
        of(4, "progress", 7, None),
        of(5, "log", 7, None),
        of(6, "result", 7, None),
    ];
    store.store_facts(rack, "r1", Uid::generate().get(), &facts).await.unwrap();
    // In the partition of a day long ago, as if they had come then.
    let day =
        hand.run("select to_char(current_date - 40, 'YYYYMMDD'), current_date - 40, current_date - 39").await;
    let [name, from, to] = [0, 1, 2].map(|at| day[0][at].clone());
    hand.run(&format!(
        "create table fact_history_{name} partition of fact_history for values from ('{from}') to ('{to}')"
    ))
    .await;
    hand.run("update fact_history set stored_at = stored_at - interval '40 days'").await;
    let planned = |facts: Vec<basalt_db::Fact>| {
        let mut ids: Vec<_> = facts.iter().map(|f| (f.kind.clone(), f.id)).collect();
        ids.sort();
        ids
    };
    let before = planned(store.planning_facts(machine).await.unwrap());
    store.maintain(30).await.unwrap();
    assert_eq!(planned(store.planning_facts(machine).await.unwrap()), before);
    let left = store.fact_history(machine, 0, 100).await.unwrap();
    assert_eq!(left.iter().map(|f| f.kind.as_str()).collect::<Vec<_>>(), ["claim", "progress", "result"]);
    assert_eq!(hand.run(&format!("select to_regclass('fact_history_{name}') is null")).await, [["t"]]);
    store.maintain(30).await.unwrap();
    assert_eq!(planned(store.planning_facts(machine).await.unwrap()), before, "and goes on to");
}

#[tokio::test]
async fn an_install_is_among_what_plans_rest_on_however_often_a_bmc_was_tried_since() {
    let url = basalt_db::testing::database().await;
    let mut hand = Hand::on(&url).await;
    let store = open(&url, [7; 32]).await.unwrap();
    let machine = put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap().object.uid;
    hand.run(&format!(
        "insert into step_record (object, step_key, epoch, attempt) values ('{machine}', 'install', 1, 7)"
    ))
    .await;
    hand.run(&format!("insert into step_record (object, step_key, epoch) select '{machine}', 'hold-on/' || n, n from generate_series(1, 50) n")).await;
    let steps = store.planning_steps(machine, 10).await.unwrap();
    assert_eq!((steps.len(), steps[0].step_key.as_str()), (11, "install"));
    assert_eq!(steps[10].step_key, "hold-on/50");
}

#[tokio::test]
async fn a_clock_that_goes_back_keeps_nobody_from_work() {
    let url = basalt_db::testing::database().await;
    let mut hand = Hand::on(&url).await;
    hand.take_clock().await;
    let noon = Timestamp::from_second(1_800_000_000).unwrap();
    hand.set_clock(noon).await;
    let store = open(&url, [7; 32]).await.unwrap();
    put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap();
    store.claim(Uid::generate(), 1, LEASE).await.unwrap();
    hand.set_clock(noon.checked_sub(Duration::from_secs(86_400)).unwrap()).await;
    store.enqueue_all().await.unwrap();
    let due = store.next_due().await.unwrap().unwrap();
    assert!(due <= Duration::from_secs(300), "it rests for {due:?}");
}

#[tokio::test]
async fn what_rests_for_hours_is_taken_up_when_it_is_woken_whenever_the_last_scan_was() {
    let store = store().await;
    let machine = put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap().object.uid;
    for lease in store.claim(Uid::generate(), 10, LEASE).await.unwrap() {
        store.finish(&lease, Requeue::After(Duration::from_secs(7200))).await.unwrap();
    }
    store.enqueue_all().await.unwrap();
    assert_eq!(store.claim(Uid::generate(), 10, LEASE).await.unwrap().len(), 0, "it rests");
    store.enqueue(machine, Duration::ZERO).await.unwrap();
    assert_eq!(store.claim(Uid::generate(), 10, LEASE).await.unwrap().len(), 1, "nobody has it");
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
        store.finish(&lease, Requeue::WhenWoken).await.unwrap();
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
async fn a_fact_that_cannot_be_stored_holds_up_no_other_one() {
    let store = store().await;
    let mac = "52:54:00:00:00:01";
    let machine = put(&store, "Machine", "m", machine(mac)).await.unwrap().object.uid;
    let rack = RackId::from(put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid);
    let facts = [fact(1, mac), fact(2, "no MAC"), fact(3, mac)];
    assert_eq!(store.store_facts(rack, "r1", Uid::generate().get(), &facts).await.unwrap(), 3);
    let history = store.fact_history(machine, 0, 10).await.unwrap();
    assert_eq!(history.iter().map(|f| f.attempt.unwrap().get()).collect::<Vec<_>>(), [1, 3]);
}

#[tokio::test]
async fn facts_of_macs_that_no_machine_has_leave_no_rows() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    let rack = RackId::from(put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid);
    let facts: Vec<NewFact> = (1..=100).map(|n| fact(n, &format!("06:00:00:00:00:{n:02x}"))).collect();
    let spool = Uid::generate().get();
    assert_eq!(store.store_facts(rack, "r1", spool, &facts).await.unwrap(), 100, "the rack may forget them");
    let mut hand = Hand::on(&url).await;
    assert_eq!(hand.run("select count(*) from fact_history").await, [["0"]]);
}

#[tokio::test]
async fn a_concern_is_written_by_compare_and_swap() {
    let store = store().await;
    let rack = RackId::from(put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid);
    let at = Generation::new;
    assert_eq!(
        store.put_concern(rack, "dhcp", at(0), b"a", None).await.unwrap(),
        ConcernWrite::Written(at(1))
    );
    assert_eq!(
        store.put_concern(rack, "dhcp", at(0), b"a", None).await.unwrap(),
        ConcernWrite::Unchanged(at(1))
    );
    assert_eq!(store.put_concern(rack, "dhcp", at(0), b"b", None).await.unwrap(), ConcernWrite::Stale(at(1)));
    assert_eq!(
        store.put_concern(rack, "dhcp", at(1), b"b", None).await.unwrap(),
        ConcernWrite::Written(at(2))
    );
    let [head] = store.concern_heads(rack).await.unwrap().try_into().unwrap();
    let concern = store.concern(rack, "dhcp").await.unwrap().unwrap();
    assert_eq!((concern.generation, concern.body.as_slice()), (at(2), b"b".as_slice()));
    assert_eq!(head, ConcernHead { name: concern.name, generation: at(2), sha256: concern.sha256 });
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
        let (wish, name, why) = (deployment, "a".to_owned(), "it is named".to_owned());
        let allocation = Allocation {
            planner: "1".to_owned(),
            now: Timestamp::UNIX_EPOCH,
            ground: json!({"wishes": []}),
            given: vec![Given { deployment, wish, name, machine, chosen: machine, why }],
            made: BTreeMap::new(),
        };
        !claiming.claim(&allocation, epoch).await.unwrap().is_empty()
    };
    assert!(claim(deployments[0]).await);
    assert!(!claim(deployments[0]).await && !claim(deployments[1]).await, "it is given away once");
    assert_eq!(store.claimant_of(machine).await.unwrap(), Some(deployments[0]));
    let decisions = store
        .decisions(&deployments.iter().map(|it| Uid::from(*it)).collect::<Vec<_>>(), None, 10)
        .await
        .unwrap();
    let [decision] = decisions.as_slice() else { panic!("one for the one that got it: {decisions:?}") };
    assert_eq!(decision.step_key, format!("{}/allocate/1", deployments[0]));
    assert_eq!(decision.why.plan["machine"], json!(machine));
    store.release_machine(deployments[0]).await.unwrap();
    store.request_deletion("Deployment", Key::Name("a"), Precondition::None, false).await.unwrap();
    assert!(!claim(deployments[0]).await, "who is on the way out gets none");
    assert!(claim(deployments[1]).await);
    assert_eq!(store.claimant_of(machine).await.unwrap(), Some(deployments[1]));
}

#[tokio::test]
async fn who_waits_long_for_the_right_to_give_machines_away_is_told_to_ask_again() {
    let store = store().await;
    let held = store.claiming().await.unwrap();
    let error = store.claiming().await.unwrap_err();
    assert!(matches!(error, StoreError::Overtaken), "{error}");
    drop(held);
    store.claiming().await.unwrap();
}

#[tokio::test]
async fn a_store_closes_although_somebody_keeps_a_connection() {
    let store = store().await;
    let held = store.claiming().await.unwrap();
    let closed = tokio::time::timeout(Duration::from_secs(60), store.close()).await;
    assert!(closed.is_ok(), "it is not waited for without end");
    drop(held);
    assert!(store.ping().await.is_err());
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
    let refused = |why: &str| Addressed::Refused(why.to_owned());
    assert_eq!(
        owned,
        [
            address("10.77.0.2"),
            address("10.77.0.253"),
            address("10.77.0.254"),
            refused("Subnet \"lab\" has no free address: all of 10.77.0.0/24 is taken or in ranges")
        ]
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
    assert_eq!(
        store.own_address(&wish).await.unwrap(),
        refused(r#"10.77.0.2 is the address of Zone "z0" already"#)
    );
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
