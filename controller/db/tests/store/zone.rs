//! Zones and names of hosts: when a serial rises, and which domains and subnets a name wakes.

use crate::common::{machine, open, put};
use basalt_api::values::{DeploymentId, Epoch, MachineId, Timestamp, Uid};
use basalt_db::{Allocation, Given, HostName, NameSources, Published, Requeue, Store, recover};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[tokio::test]
async fn a_serial_rises_with_other_content_alone_and_a_writer_that_read_too_early_is_refused() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    let publish = async |base, body: &[u8]| store.publish_zone("lab.example", base, body).await.unwrap();
    assert_eq!(store.zone_serial("lab.example").await.unwrap(), 0);
    assert_eq!(publish(0, b"a").await, Published::Written(1));
    assert_eq!(publish(1, b"a").await, Published::Unchanged(1));
    assert_eq!(publish(1, b"b").await, Published::Written(2));
    assert_eq!(publish(1, b"c").await, Published::Stale, "it was rendered from what was there before b");
    assert_eq!(publish(1, b"b").await, Published::Unchanged(2), "and has found the same all the same");
    let rows = store.zones(&["lab.example".to_owned(), "other.example".to_owned()]).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| (row.serial, row.body.as_slice())).collect::<Vec<_>>(),
        [(2, &b"b"[..])]
    );

    recover::recover(&url).await.unwrap();
    let recovered = open(&url, [7; 32]).await.unwrap();
    assert_eq!(
        recovered.zone_serial("lab.example").await.unwrap(),
        2 + (1 << 30),
        "secondaries take it for a rise"
    );
}

/// The objects that are due. They are done with then.
async fn due(store: &Store) -> BTreeSet<Uid> {
    let leases = store.claim(Uid::generate(), 100, Duration::from_secs(60)).await.unwrap();
    for lease in &leases {
        store.finish(lease, Requeue::WhenWoken).await.unwrap();
    }
    leases.into_iter().map(|lease| lease.uid).collect()
}

#[tokio::test]
async fn a_name_that_comes_or_goes_wakes_its_domain_and_the_subnet_of_its_address() {
    let store = open(&basalt_db::testing::database().await, [7; 32]).await.unwrap();
    let declare =
        async |kind: &str, name: &str, spec| put(&store, kind, name, spec).await.unwrap().object.uid;
    declare("Fabric", "lab", json!({})).await;
    declare("Vlan", "lab.0", json!({"fabric": "lab", "vid": 0})).await;
    let here = declare("Subnet", "here", json!({"vlan": "lab.0", "cidr": "10.77.0.0/24"})).await;
    declare("Subnet", "there", json!({"vlan": "lab.0", "cidr": "10.78.0.0/24"})).await;
    let domain = declare("Domain", "lab.example", json!({})).await;
    declare("Domain", "other.example", json!({})).await;
    let named = declare("Machine", "m", machine("52:54:00:00:00:01")).await;
    due(&store).await;
    let name =
        HostName { domain, host: "m".to_owned(), address: "10.77.0.9".parse().unwrap(), is_main: true };
    let names = BTreeSet::from([name]);
    store.put_host_names(named, &names).await.unwrap();
    assert_eq!(due(&store).await, BTreeSet::from([domain, here]));
    assert_eq!(store.host_names(named).await.unwrap(), names);
    store.put_host_names(named, &names).await.unwrap();
    assert!(due(&store).await.is_empty(), "nothing has changed");
    store.put_host_names(named, &BTreeSet::new()).await.unwrap();
    assert_eq!(due(&store).await, BTreeSet::from([domain, here]));
}

#[tokio::test]
async fn names_of_a_machine_come_from_it_and_from_the_deployment_that_has_it() {
    let store = open(&basalt_db::testing::database().await, [7; 32]).await.unwrap();
    let declare =
        async |kind: &str, name: &str, spec| put(&store, kind, name, spec).await.unwrap().object.uid;
    let domain = declare("Domain", "lab.example", json!({})).await;
    declare("Pool", "red", json!({})).await;
    let mut spec = machine("52:54:00:00:00:01");
    spec["pool"] = json!("red");
    let of_machine = declare("Machine", "M1", spec).await;
    let image = json!({"os": "debian", "release": "12", "architecture": "amd64", "files": {}});
    declare("Image", "debian", image).await;
    let deployment = declare("Deployment", "web", json!({"image": "debian", "machine": "M1"})).await;
    let (claimant, claimed) = (DeploymentId::from(deployment), MachineId::from(of_machine));
    let given = Given {
        deployment: claimant,
        wish: claimant,
        name: "web".to_owned(),
        machine: claimed,
        chosen: claimed,
        why: String::new(),
    };
    let allocation = Allocation {
        planner: "test".to_owned(),
        now: Timestamp::UNIX_EPOCH,
        ground: json!({}),
        given: vec![given],
        made: BTreeMap::new(),
    };
    store.claiming().await.unwrap().claim(&allocation, Epoch::new(1)).await.unwrap();
    let address = "10.77.0.9".parse().unwrap();
    let host = |host: &str| HostName { domain, host: host.to_owned(), address, is_main: host == "www" };
    store.put_host_names(of_machine, &["m1", "web", "www"].map(host).into()).await.unwrap();

    let sources = async |pools: Option<&[String]>, networks| {
        let wanted = NameSources { domain: Some("lab.example"), networks, default: None, pools };
        let sources = store.name_sources(&wanted).await.unwrap();
        let line = |it: basalt_db::NameSource| {
            let machine = it.machine.map(|machine| format!(" on {machine}")).unwrap_or_default();
            format!("{} {} {}{machine} {}", it.name, it.kind, it.object, it.is_visible)
        };
        sources.into_iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(
        sources(None, None).await,
        [
            "m1.lab.example Machine M1 true",
            "web.lab.example Deployment web on M1 true",
            "www.lab.example Deployment web on M1 true"
        ]
    );
    let (red, blue) = (["red".to_owned()], ["blue".to_owned()]);
    assert!(sources(Some(&red), None).await.iter().all(|it| it.ends_with("true")));
    assert!(sources(Some(&blue), None).await.iter().all(|it| it.ends_with("false")));
    let elsewhere = ["10.78.0.0/24".parse().unwrap()];
    assert!(sources(None, Some(&elsewhere[..])).await.is_empty());
}
