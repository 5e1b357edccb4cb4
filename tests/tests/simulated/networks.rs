//! Separate networks: each has a rack of its own, or a relay.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use basalt_lab::host::Host;
use basalt_lab::process::LabProcess;
use basalt_sim::{Event, Firmware, MachineOptions, Speaker};
use serde_json::{Value, json};

use crate::racks::{addresses, deployed};
use crate::store;
use basalt_tests::fleet::{Fleet, LIMIT};

/// The lab's second bridge.
const HALL: &str = "br1";
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);

/// Declares the network 10.78.0.0/24 on a fabric of its own. These racks answer there; without any,
/// the attached racks do.
async fn hall(fleet: &Fleet, racks: &[&str]) {
    fleet.declare("fabrics", "hall", json!({})).await;
    let vlan = json!({ "fabric": "hall", "vid": 0, "dhcp": { "enabled": true, "racks": racks } });
    fleet.declare("vlans", "hall.0", vlan).await;
    let subnet = json!({ "vlan": "hall.0", "cidr": "10.78.0.0/24", "gateway": "10.78.0.1" });
    fleet.declare("subnets", "hall", subnet).await;
    let range = json!({ "subnet": "hall", "start": "10.78.0.150", "end": "10.78.0.199" });
    fleet.declare("ip_ranges", "hall", range).await;
}

fn in_the_hall(options: &mut MachineOptions) {
    options.bridge = HALL.to_owned();
}

/// The racks that reported a fact of this kind about a machine.
async fn told_by(fleet: &Fleet, machine: &str, kind: &str) -> Vec<String> {
    let query = format!(
        "select distinct source from fact_history
         where object = (select uid from object where kind = 'Machine' and name = '{machine}') and kind = '{kind}' order by 1"
    );
    store::rows(fleet, &query).await
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_of_a_network_boot_from_its_rack_and_another_moves_their_bmcs() {
    let mut fleet = Fleet::start("halls", &[]).await;
    fleet.site.lab().add_bridge(HALL).expect("a second network");
    fleet.site.move_rack(2, HALL, Ipv4Addr::new(10, 78, 0, 2)).expect("a rack there");
    fleet.site.start_rack(2).await.expect("it joins");
    hall(&fleet, &[]).await;
    fleet.leases("hall", "rack-2").await;
    let blocks = fleet.status("ip_ranges", "lab").await["blocks"].take();
    let others = blocks.as_object().into_iter().flat_map(|blocks| blocks.values());
    let theirs: Vec<&Value> = others.filter(|block| block["rack"] != "rack-1").collect();
    assert_eq!(theirs, Vec::<&Value>::new(), "rack-2 has an address there, and answers nobody");

    let near = fleet.machine(1, Firmware::Bios, |_| {});
    let far = fleet.machine(2, Firmware::Uefi, |options| {
        in_the_hall(options);
        // Only the first rack can reach this BMC.
        options.bmc_address = Ipv4Addr::new(10, 79, 0, 102);
    });
    let machines = [near, far];
    deployed(&fleet, &machines).await;
    for (machine, third, rack) in [("sim1", 77, "rack-1"), ("sim2", 78, "rack-2")] {
        let mac = machines.iter().find(|it| it.options().name == machine).map(|it| it.options().mac);
        let addresses = addresses(&machines);
        let (address, _) = addresses.iter().find(|(_, of)| Some(**of) == mac).expect("an address");
        assert_eq!(address.octets()[..3], [10, third, 0], "{machine}");
        for kind in ["lease", "boot_request", "claim", "result", "readiness"] {
            assert_eq!(told_by(&fleet, machine, kind).await, [rack], "{kind} of {machine}");
        }
        assert_eq!(told_by(&fleet, machine, "power").await, ["rack-1"], "{machine}");
    }
}

/// A router between the lab's network and the hall's. Its dnsmasq relays DHCP to these racks.
fn router(fleet: &Fleet, racks: &[Ipv4Addr]) -> (Host, LabProcess) {
    let lab = fleet.site.lab();
    let host = Host::connect(lab, "router", ROUTER).expect("a host");
    let inside = Ipv4Addr::new(10, 78, 0, 1);
    host.plug(lab, HALL, "hall-router", "eth1", inside).expect("a second interface");
    let forwards = host.command("sysctl").expect("sysctl").args(["-qw", "net.ipv4.ip_forward=1"]).status();
    assert!(forwards.is_ok_and(|status| status.success()), "it forwards");
    let bring = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/peer");
    let brought = Command::new(bring).arg("dnsmasq").output().expect("the script runs");
    assert!(brought.status.success(), "dnsmasq is brought: {}", String::from_utf8_lossy(&brought.stderr));
    let root = PathBuf::from(String::from_utf8_lossy(&brought.stdout).trim_end());
    let mut relay = host.command(root.join("usr/sbin/dnsmasq")).expect("dnsmasq");
    relay.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    relay.args(["--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--group=", "--port=0"]);
    relay.args(racks.iter().map(|rack| format!("--dhcp-relay={inside},{rack}")));
    let relay = lab.spawn(relay).expect("it starts");
    (host, relay)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_has_two_racks_of_which_one_is_enough() {
    let mut fleet = Fleet::start("relay", &[]).await;
    fleet.site.lab().add_bridge(HALL).expect("a second network");
    let racks = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
    let _router = router(&fleet, &racks);
    fleet.site.lab().add_route("10.78.0.0/24", ROUTER).expect("a way there");
    fleet.site.host(2).expect("a host").add_route("10.78.0.0/24", ROUTER).expect("a way there");
    fleet.site.start_rack(2).await.expect("the second rack joins");
    hall(&fleet, &["rack-1", "rack-2"]).await;
    fleet.leases("hall", "rack-1").await;
    fleet.leases("hall", "rack-2").await;

    let first = fleet.machine(1, Firmware::Uefi, in_the_hall);
    deployed(&fleet, std::slice::from_ref(&first)).await;
    let mark = first.mark();
    first.renew_lease();
    let renewed = |event: &Event| matches!(event, Event::DhcpAck { who: Speaker::System, .. });
    first.wait_for_after(mark, renewed, LIMIT).await.expect("past the relay, its lease is renewed");

    fleet.site.kill_rack(1);
    let second = fleet.machine(2, Firmware::Bios, in_the_hall);
    deployed(&fleet, std::slice::from_ref(&second)).await;
    assert_eq!(told_by(&fleet, "sim2", "lease").await, ["rack-2"]);
    let machines = [first, second];
    let addresses = addresses(&machines);
    assert!(addresses.keys().all(|it| it.octets()[..3] == [10, 78, 0]), "{addresses:?}");
    assert_eq!(addresses.len(), 2, "no two machines share an address");
}
