//! Deployments whose interfaces have several addresses, of IPv4 and IPv6.

use super::world::{Taken, World, deployment, machine};
use basalt_api::values::SubnetId;
use basalt_db::Address;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A world with these machines, and subnets of IPv4 and IPv6.
async fn world(machines: usize) -> World {
    let mut world = World::new(1, machines, Taken::Read).await;
    for (name, cidr) in [("lab6", "2001:db8:77::/64"), ("other6", "2001:db8:78::/64")] {
        let subnet = json!({"vlan": "default.0", "cidr": cidr});
        world.declare("Subnet", name, &subnet, true).await;
    }
    world
}

/// A deployment on this machine, with these further addresses.
fn with(machine: &str, addresses: &Value) -> Value {
    let mut spec = deployment(machine);
    spec["network"] = json!({"interfaces": {"enp1s0": {"subnet": "lab", "addresses": addresses}}});
    spec
}

/// The addresses of all subnets.
async fn addresses(world: &World) -> Vec<Address> {
    let subnets = world.store().all("Subnet").await.expect("objects");
    let subnets: Vec<SubnetId> = subnets.iter().map(|it| SubnetId::from(it.uid)).collect();
    world.store().addresses_in(&subnets).await.expect("addresses")
}

/// The addresses of deployments, as `NAME PURPOSE ADDRESS`.
async fn owned(world: &World) -> Vec<String> {
    let deployments = world.store().all("Deployment").await.expect("objects");
    let names: BTreeMap<_, _> = deployments.into_iter().map(|it| (it.uid, it.name)).collect();
    let addresses = addresses(world).await;
    let theirs = addresses.iter().filter_map(|it| Some((names.get(&it.owner)?, it)));
    let mut words: Vec<_> =
        theirs.map(|(name, it)| format!("{name} {} {}", it.purpose, it.address)).collect();
    words.sort();
    words
}

/// The DNS names of the machine `m0`, as `HOST ADDRESS`, with a mark at the main one.
async fn named_hosts(world: &World) -> Vec<String> {
    let machine = world.find("Machine", "m0").await.expect("it is there").uid;
    let names = world.store().host_names(machine).await.expect("names");
    let name = |it: &basalt_db::HostName| {
        format!("{} {}{}", it.host, it.address, if it.is_main { " main" } else { "" })
    };
    names.iter().map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_of_an_interface_changes_and_the_others_stay() {
    let mut world = world(1).await;
    world.declare("Domain", "lab.example", &json!({}), true).await;
    world.declare("Settings", "default", &json!({"default_domain": "lab.example"}), true).await;
    let (six, named) =
        (json!({"subnet": "lab6"}), json!({"addressing": "static", "subnet": "lab", "address": "10.77.5.5"}));
    world.declare("Deployment", "web", &with("m0", &json!({"six": six, "named": named})), true).await;
    world.settle(4).await.expect("it is deployed");
    let first = "web enp1s0 10.77.0.2";
    let has = [first, "web enp1s0/named 10.77.5.5", "web enp1s0/six 2001:db8:77::1"];
    assert_eq!(owned(&world).await, has);
    let status = world.find("Deployment", "web").await.expect("it is there").status;
    let status: Value = serde_json::from_str(status.get()).expect("JSON");
    assert_eq!(status["addresses"], json!({"enp1s0": "10.77.0.2"}));
    let further = json!({"enp1s0/named": "10.77.5.5", "enp1s0/six": "2001:db8:77::1"});
    assert_eq!(status["further_addresses"], further);
    assert_eq!((&status["phase"], &status["stage"]), (&json!("Deployed"), &json!("done")));
    let axes = &status["axes"];
    let words = ["lifecycle", "operation", "sync"].map(|axis| axes[axis].clone());
    assert_eq!(words, ["deployed", "idle", "in_sync"], "{axes}");
    assert_eq!((&status["hostname"], &status["machine"]), (&json!("m0"), &json!("m0")));
    assert_eq!(status["image_digest"].as_str().map(str::len), Some(64));
    assert!(status["address"].is_string(), "{status}");
    let times = ["allocated_at", "install_started_at", "installed_at", "ready_at"];
    let times = times.map(|time| status["timings"][time].as_str().expect("a time").to_owned());
    assert!(times.is_sorted(), "{times:?}");
    let machine = world.find("Machine", "m0").await.expect("it is there").status;
    let machine: Value = serde_json::from_str(machine.get()).expect("JSON");
    let all = json!({"enp1s0": "10.77.0.2", "enp1s0/named": "10.77.5.5", "enp1s0/six": "2001:db8:77::1"});
    assert_eq!(machine["addresses"], all, "they are the machine's own");
    let names = ["m0 10.77.0.2", "m0 10.77.5.5", "m0 2001:db8:77::1"];
    let machine = names.map(|name| format!("{name} main"));
    let deployment = names.map(|name| name.replace("m0", "web"));
    assert_eq!(named_hosts(&world).await, [machine, deployment].concat());

    // One address moves to another subnet, one gets another value, and a third one is added.
    let more = json!({"six": {"subnet": "other6"}, "renamed": named, "more": {"subnet": "lab6"}});
    let mut moved = with("m0", &more);
    moved["network"]["interfaces"]["enp1s0"]["addresses"]["renamed"]["address"] = json!("10.77.5.6");
    world.declare("Deployment", "web", &moved, true).await;
    world.work().await;
    let old = ["web enp1s0/named 10.77.5.5", "web enp1s0/six 2001:db8:77::1"];
    let now = owned(&world).await;
    assert!(old.iter().all(|it| now.iter().any(|has| has == it)), "the installed system has them: {now:?}");
    world.settle(4).await.expect("it is installed again");
    let has = [
        first,
        "web enp1s0/more 2001:db8:77::2",
        "web enp1s0/renamed 10.77.5.6",
        "web enp1s0/six 2001:db8:78::1",
    ];
    assert_eq!(owned(&world).await, has, "what was changed is given back");

    world.delete("Deployment", "web").await;
    world.settle(4).await.expect("the machine is given back");
    assert!(addresses(&world).await.is_empty());
    assert_eq!(world.violations, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_address_that_another_deployment_has_is_waited_for() {
    let mut world = world(2).await;
    let named = json!({"named": {"addressing": "static", "subnet": "lab6", "address": "2001:db8:77::9"}});
    let mut other = machine(1);
    other["network"] = with("m1", &named)["network"].clone();
    world.declare("Machine", "m1", &other, true).await;
    // A deployment that names the machine would be refused. These learn of their machines after their writes.
    let chooses = |mut spec: Value, machine: &str| {
        spec.as_object_mut().expect("an object").remove("machine");
        spec["selector"] = json!({"name": machine});
        spec
    };
    world.declare("Deployment", "a", &chooses(with("m0", &named), "m0"), true).await;
    world.settle(4).await.expect("it is deployed");
    world.declare("Deployment", "b", &chooses(deployment("m1"), "m1"), true).await;
    let waits = world.settle(1).await.expect_err("both want the address");
    // The waits are quoted.
    let why = r#"nearest: Machine \"m1\": 2001:db8:77::9 is the address of another Deployment already"#;
    assert!(waits.contains(why), "{waits}");
    world.delete("Deployment", "a").await;
    world.settle(8).await.expect("now it is free");
    let has = ["b enp1s0 10.77.0.2", "b enp1s0/named 2001:db8:77::9"];
    assert_eq!(owned(&world).await, has);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_declares_no_network_has_the_machine_s_as_it_was_when_it_was_installed() {
    let mut world = world(1).await;
    let says = |addresses: Value| {
        let mut spec = machine(0);
        spec["network"] = json!({"interfaces": {"enp1s0": {"subnet": "lab", "addresses": addresses}}});
        spec
    };
    world.declare("Machine", "m0", &says(json!({"six": {"subnet": "lab6"}})), true).await;
    world.declare("Deployment", "web", &deployment("m0"), true).await;
    world.settle(4).await.expect("it is deployed");
    let installed = ["web enp1s0 10.77.0.2", "web enp1s0/six 2001:db8:77::1"];
    assert_eq!(owned(&world).await, installed);

    world.declare("Machine", "m0", &says(json!({"six": {"subnet": "other6"}})), true).await;
    world.settle(4).await.expect("it rests");
    assert_eq!(owned(&world).await, installed, "nothing is installed, or given, by that");

    let mut again = deployment("m0");
    again["kernel_options"] = json!("quiet");
    world.declare("Deployment", "web", &again, true).await;
    world.settle(4).await.expect("it is installed again");
    assert_eq!(owned(&world).await, ["web enp1s0 10.77.0.2", "web enp1s0/six 2001:db8:78::1"]);
    assert_eq!(world.violations, Vec::<String>::new());
}
