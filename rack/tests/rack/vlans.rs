//! A rack on a trunk: one cable, and a VLAN sub-interface (802.1Q) for each VLAN except the native one. The switch tags
//! the machines' frames, since firmware does not use VLANs.

use std::collections::BTreeSet;
use std::process::Command;

use basalt_proto::rack_v1::fact::Body;
use basalt_rack::settings::Settings;

use super::guest;
use super::namespace::{Host, ip, make_switch};
use super::peers::{Client, on_switch, start_with, subnet};
use super::tftp::{LOADER, SIZE, content};

/// Runs `bridge` in this namespace.
fn bridge(arguments: &str) {
    let status = Command::new("bridge").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "bridge {arguments}: {status}");
}

/// A host at a port of this VLAN.
fn at_port_of(vid: u16) -> Host {
    let host = Host::plug(&format!("h{vid}"), &mac(vid));
    bridge(&format!("vlan delete dev h{vid}0 vid 1"));
    bridge(&format!("vlan add dev h{vid}0 vid {vid} pvid untagged"));
    host
}

fn mac(vid: u16) -> String {
    let [high, low] = vid.to_be_bytes();
    format!("52:54:00:00:{high:02x}:{low:02x}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_on_a_trunk_answers_each_vlan_in_it_and_no_other() {
    if !guest::is_inside(
        "vlans::a_rack_on_a_trunk_answers_each_vlan_in_it_and_no_other",
        &["8021q", "bridge", "veth"],
    ) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.1.1/24"]);
    ip("link set switch type bridge vlan_filtering 1");
    // The trunk also carries VLAN 300, for which the rack has no interface.
    for vid in [100, 200, 300] {
        bridge(&format!("vlan add dev uplink vid {vid}"));
    }
    for vid in [100, 200] {
        ip(&format!("link add link rack0 name rack0.{vid} type vlan id {vid}"));
        ip(&format!("address add 10.9.{vid}.1/24 dev rack0.{vid}"));
        ip(&format!("link set rack0.{vid} up"));
    }
    let interfaces = ["rack0", "rack0.100", "rack0.200"].map(str::to_owned).to_vec();
    let settings = Settings { interfaces, ..on_switch(dir.path()) };
    let http = settings.http_port;
    let subnets = [1, 100, 200].map(|vid| subnet(&format!("s{vid}"), &format!("10.9.{vid}"), ("50", "51")));
    let rack = start_with(settings, subnets.to_vec()).await;
    std::fs::write(dir.path().join("loaders").join(LOADER), content(SIZE)).unwrap();

    // An unleased address of VLAN 200 is in use. Only a probe in that VLAN can detect this.
    let squatter = Host::plug("squatter", "52:54:00:00:00:ff");
    bridge("vlan delete dev squatter0 vid 1");
    bridge("vlan add dev squatter0 vid 200 pvid untagged");
    squatter.run(&["ip", "address", "add", "10.9.200.50/24", "dev", "eth0"]);

    for (vid, address) in [(1, "10.9.1.50"), (100, "10.9.100.50"), (200, "10.9.200.51")] {
        let host = at_port_of(vid);
        // Before the client has an address, the answer is a frame to its hardware address.
        host.hear_broadcasts(false);
        let client = Client::new(&host);
        assert!(client.udhcpc(&[]).await, "VLAN {vid}");
        let knew = client.knew("bound");
        assert_eq!((knew["ip"].as_str(), &knew["serverid"]), (address, &format!("10.9.{vid}.1")));
        host.hear_broadcasts(true);
        for url in
            [format!("tftp://10.9.{vid}.1/{LOADER}"), format!("http://10.9.{vid}.1:{http}/loaders/{LOADER}")]
        {
            let fetched = host.run(&["curl", "-sS", "--fail", "--max-time", "30", &url]).stdout;
            assert!(fetched == content(SIZE), "{url}: {} bytes", fetched.len());
        }
    }
    let stranger = at_port_of(300);
    assert!(!Client::new(&stranger).udhcpc(&["-t", "3"]).await, "nobody answers in VLAN 300");

    let mut leased = BTreeSet::new();
    let mut next = 1;
    loop {
        let facts = rack.facts.read(next).await.unwrap();
        let Some(newest) = facts.last() else { break };
        next = newest.seq + 1;
        leased.extend(facts.into_iter().filter_map(|fact| match fact.body {
            Some(Body::Lease(lease)) => Some((fact.mac, lease.subnet_uid)),
            _ => None,
        }));
    }
    // A tagged frame also passes the interface of the cable; it was not counted for another VLAN.
    assert_eq!(leased, BTreeSet::from([1, 100, 200].map(|vid| (mac(vid), format!("s{vid}")))));
    rack.stop().await;
}
