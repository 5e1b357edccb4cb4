//! A rack receives only what it needs. There are two sites, each with a network, a machine and a rack.

use crate::linked::Linked;
use crate::support::{Lab, lab};
use crate::traces::ephemeral_image;
use basalt_api::values::{Attempt, Timestamp};
use basalt_db::{Key, NewFact};
use basalt_engine::Policy;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{BootConcern, KnownConcern, PowerConcern};
use basalt_region::controller::Controller;
use basalt_region::racks::observed::{Claim, Observed};
use prost::Message;
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// The machines' BMC passwords.
const PASSWORDS: [&str; 2] = ["password-north", "password-south"];

/// The sites `north`, 10.77.0.0/24, and `south`, 10.78.0.0/24. An IpAddress with the machine's MAC declares the site of each machine.
async fn sites() -> (Lab, Controller) {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    ephemeral_image(&lab).await;
    lab.api.declare("/api/v1/fabrics/default", "{}").await;
    for (vid, (site, network)) in (0..).zip([("north", "10.77.0"), ("south", "10.78.0")]) {
        let vlan = json!({"fabric": "default", "vid": vid, "dhcp": {"enabled": true}});
        lab.api.declare(&format!("/api/v1/vlans/default.{vid}"), &vlan.to_string()).await;
        let subnet = json!({"vlan": format!("default.{vid}"), "cidr": format!("{network}.0/24")});
        lab.api.declare(&format!("/api/v1/subnets/{site}"), &subnet.to_string()).await;
        let place = json!({"subnet": site, "address": format!("{network}.9"), "mac": mac(vid)});
        lab.api.declare(&format!("/api/v1/ip_addresses/{site}"), &place.to_string()).await;
    }
    (lab, controller)
}

fn mac(site: usize) -> String {
    format!("52:54:00:00:00:0{site}")
}

async fn declare_machine(lab: &Lab, site: usize) {
    let bmc = json!({"driver": "ipmi", "address": format!("10.7{}.0.101", 7 + site), "username": "admin",
        "password": PASSWORDS[site]});
    let machine = json!({"architecture": "amd64", "boot_macs": [mac(site)], "bmc": bmc});
    lab.api.declare(&format!("/api/v1/machines/m{site}"), &machine.to_string()).await;
}

/// The latest version of a concern that the rack has received.
fn last<C: Message + Default>(rack: &Linked, name: &str) -> Option<C> {
    let told = rack.told().concerns;
    let version = told.iter().rfind(|version| version.concern == name)?;
    Some(C::decode(version.body.as_slice()).expect("a concern"))
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::task::yield_now().await;
    }
}

/// The first attempt in the rack's boot concern.
fn armed(rack: &Linked) -> Option<Attempt> {
    let boot = last::<BootConcern>(rack, "boot")?;
    boot.machines.into_iter().find_map(|machine| match machine.action? {
        Action::Ephemeral(boot) => Some(Attempt::new(boot.attempt)),
        _ => None,
    })
}

fn bmcs(rack: &Linked) -> usize {
    last::<PowerConcern>(rack, "power").map_or(0, |it| it.bmcs.len())
}

#[tokio::test]
async fn a_site_that_does_not_answer_keeps_no_machine_of_another_site_waiting() {
    let (lab, controller) = sites().await;
    let north = Linked::come(&lab, controller.rpc_address(), "north-1", "10.77.0.2/24").await;
    let _south = Linked::come_silent(&lab, controller.rpc_address(), "south-1", "10.78.0.2/24").await;
    declare_machine(&lab, 0).await;
    // The first command reads the power. The second one switches the machine on, once its boot instruction is in place.
    until("the machine in the north is switched on", || {
        armed(&north).is_some() && north.told().commands.iter().any(|it| it.verb().as_str_name() == "ON")
    })
    .await;
}

#[tokio::test]
async fn a_password_and_a_task_are_told_to_the_racks_that_need_them_alone() {
    let (lab, controller) = sites().await;
    let racks = [
        Linked::come(&lab, controller.rpc_address(), "north-1", "10.77.0.2/24").await,
        Linked::come(&lab, controller.rpc_address(), "south-1", "10.78.0.2/24").await,
    ];
    declare_machine(&lab, 0).await;
    declare_machine(&lab, 1).await;
    let knows_both =
        |rack: &Linked| last::<KnownConcern>(rack, "known").is_some_and(|it| it.machines.len() == 2);
    for rack in &racks {
        until("each rack has its machine's task and BMC, and knows both machines", || {
            armed(rack).is_some() && bmcs(rack) == 1 && knows_both(rack)
        })
        .await;
    }
    for (site, rack) in racks.iter().enumerate() {
        let told = rack.told();
        let holds = |text: &str| {
            let bytes = text.as_bytes();
            told.concerns.iter().any(|it| it.body.windows(bytes.len()).any(|part| part == bytes))
        };
        assert_eq!([holds(PASSWORDS[site]), holds(PASSWORDS[1 - site])], [true, false], "rack {site}");
        let armed =
            told.concerns.iter().filter(|it| it.concern == "boot").flat_map(|version| {
                BootConcern::decode(version.body.as_slice()).expect("a concern").machines
            });
        let armed: Vec<String> = armed.map(|machine| machine.name).collect();
        assert!(armed.iter().all(|name| *name == format!("m{site}")), "rack {site}: {armed:?}");
        let spec = format!("/api/v1/machines/m{}", 1 - site);
        assert!(lab.api.get(&spec).await.json()["spec"]["bmc"].is_object());
    }

    // The south's rack is gone for good. The BMC of its machine moves to the other rack, which receives it now.
    let [north, south] = racks;
    drop(south);
    until("the other rack has both BMCs", || bmcs(&north) == 2).await;
}

#[tokio::test]
async fn an_attempt_that_was_claimed_stays_with_a_rack_that_is_set_aside() {
    let (lab, controller) = sites().await;
    let north = Linked::come(&lab, controller.rpc_address(), "north-1", "10.77.0.2/24").await;
    let south = Linked::come(&lab, controller.rpc_address(), "south-1", "10.78.0.2/24").await;
    declare_machine(&lab, 0).await;
    until("the machine's task is armed", || armed(&north).is_some() && bmcs(&north) == 1).await;
    let attempt = armed(&north);
    let store = lab.region.store();
    let uid = store.get("Machine", Key::Name("m0")).await.expect("a machine").uid;
    let claim = Observed::Claim(Claim { address: "10.77.0.9".into(), boot_id: "b".into() });
    let (kind, body) = claim.stored();
    let (object, observed_at) = (Some(uid), Timestamp::UNIX_EPOCH);
    let fact =
        NewFact { seq: 0, object, mac: None, kind, step_key: None, attempt, body, observed_at, wakes: true };
    store.store_own_fact(&fact).await.expect("it is stored");
    lab.api.declare("/api/v1/racks/north-1", r#"{"maintenance":true}"#).await;
    until("another rack speaks to its BMC", || bmcs(&south) == 1 && bmcs(&north) == 0).await;
    assert_eq!((armed(&north), armed(&south)), (attempt, None), "the agent ends where it began");
}
