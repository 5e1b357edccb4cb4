//! A machine on a network without IPv4, from its firmware to the result of its task. OVMF in QEMU boots over IPv6 from a rack without IPv4.
//! The agent in the ephemeral environment leases its address by DHCPv6, and the rack gets the inventory.
//!
//! The rack works from concern files. The router is dnsmasq: it advertises that addresses come by DHCPv6, but leases none itself.
#![expect(clippy::print_stdout, reason = "what happened is read by people")]

#[path = "../../rack/tests/rack/dnsmasq.rs"]
mod dnsmasq;
#[path = "../../rack/tests/rack/namespace.rs"]
#[expect(dead_code, reason = "the rack's tests need more of it")]
mod namespace;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use basalt_api::agent::{Outcome, Task, TaskAction, TaskResult, Then};
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{
    AddressRange, BootConcern, BootMachine, Dhcp6Subnet, DhcpConcern, EphemeralBoot, Fact, fact::Body,
};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Given;
use namespace::{Host, Running, ip, is_inside, make_switch, peer};

const NAME: &str = "an_ipv6_only_machine_boots_and_delivers_its_inventory";
const MACHINE: &str = "52:54:00:00:00:01";
const ATTEMPT: u64 = 7;
/// An emulated processor takes a minute from power on to the result, on an idle host.
const PATIENCE: Duration = Duration::from_secs(900);

/// Directory of the image from `make images`.
fn image() -> PathBuf {
    let cache = std::env::var_os("BASALT_CACHE_DIR").map(PathBuf::from);
    let default = || Path::new(&std::env::var_os("HOME").expect("a home directory")).join(".cache/basalt");
    let directory = cache.unwrap_or_else(default).join("images/ephemeral");
    assert!(directory.join("image.json").exists(), "`make images` makes {}", directory.display());
    directory
}

/// Copies the image's files into the rack's blobs. Returns their hashes.
fn store(image: &Path, data_dir: &Path) -> [String; 3] {
    let blobs = data_dir.join("blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let manifest = std::fs::read(image.join("image.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    ["kernel", "initrd", "squashfs"].map(|role| {
        let file = &manifest["files"][role];
        let of = |key: &str| file[key].as_str().unwrap_or_else(|| panic!("{role} has no {key}: {manifest}"));
        std::fs::copy(image.join(of("file")), blobs.join(of("sha256"))).unwrap();
        of("sha256").to_owned()
    })
}

fn dhcp() -> DhcpConcern {
    let range = AddressRange { start: "2001:db8::100".into(), end: "2001:db8::1ff".into() };
    let subnet = Dhcp6Subnet {
        subnet_uid: "s6".into(),
        cidr: "2001:db8::/64".into(),
        dynamic: vec![range],
        lease_seconds: 600,
        ..Dhcp6Subnet::default()
    };
    DhcpConcern { subnets6: vec![subnet], serve_unknown: true, ..DhcpConcern::default() }
}

/// The concern for a machine that reports its hardware.
fn boot([kernel_sha256, initrd_sha256, squashfs_sha256]: [String; 3]) -> BootConcern {
    let task = Task {
        attempt: ATTEMPT,
        not_after_unix_ms: i64::MAX,
        machine_uid: "uid-1".into(),
        scripts: Vec::new(),
        proxy: None,
        bmc: None,
        action: TaskAction::Inventory,
        then: Then::PowerOff,
    };
    let boot = EphemeralBoot {
        attempt: ATTEMPT,
        not_after_unix_ms: i64::MAX,
        kernel_sha256,
        initrd_sha256,
        squashfs_sha256,
        attempt_key: vec![9; 32],
        task_json: serde_json::to_vec(&task).unwrap(),
        step_key: "step-1".into(),
        ..EphemeralBoot::default()
    };
    let machine = BootMachine {
        machine_uid: "uid-1".into(),
        name: "m1".into(),
        macs: vec![MACHINE.into()],
        action: Some(Action::Ephemeral(boot)),
        networks: Vec::new(),
        architecture: "amd64".into(),
    };
    BootConcern { machines: vec![machine], enlist: None }
}

async fn rack(dir: &Path, image: &Path) -> Daemon {
    let given = Given {
        data_dir: Some(dir.join("data")),
        name: Some("rack-1".into()),
        interface: Some(vec!["rack0".into()]),
        loader_dir: Some("/usr/lib/ipxe".into()),
        router_advertisements: Some(false),
        ..Given::default()
    };
    let settings = given.settle().unwrap();
    let hashes = store(image, &settings.data_dir);
    write_concern(&settings.data_dir, &version(Concern::Dhcp, 1, "local", &dhcp())).unwrap();
    write_concern(&settings.data_dir, &version(Concern::Boot, 1, "local", &boot(hashes))).unwrap();
    Daemon::start(settings).await.unwrap()
}

fn router(dir: &Path) -> (Host, Running) {
    let host = Host::plug("router", "52:54:00:00:00:09");
    host.run(&["ip", "address", "add", "2001:db8::9/64", "dev", "eth0", "nodad"]);
    let range = "--dhcp-range=2001:db8::,static,64";
    let dnsmasq = dnsmasq::dnsmasq(dir, &host, &["--enable-ra", range, "--dhcp-ignore=tag:!known"]);
    (host, dnsmasq)
}

/// A UEFI machine without a disk and without iPXE's ROM, whose firmware does not try IPv4.
fn machine(dir: &Path) -> Running {
    ip("tuntap add dev machine0 mode tap");
    ip("link set machine0 master switch up");
    let variables = dir.join("vars.fd");
    std::fs::copy("/usr/share/OVMF/OVMF_VARS_4M.fd", &variables).unwrap();
    let log = std::fs::File::create(dir.join("serial.log")).unwrap();
    let words = format!(
        "-nodefaults -machine q35,accel=tcg,graphics=off -cpu Nehalem -smp 1 -m 2048 -display none -vga none -monitor none \
         -serial stdio -device virtio-rng-pci -netdev tap,id=net,ifname=machine0,script=no,downscript=no \
         -device virtio-net-pci,netdev=net,mac={MACHINE},romfile= -fw_cfg name=opt/org.tianocore/IPv4PXESupport,string=no \
         -drive if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd -drive if=pflash,format=raw,file={}",
        variables.display()
    );
    let mut qemu = Command::new("qemu-system-x86_64");
    Running::start(qemu.args(words.split_whitespace()).stdin(Stdio::null()).stdout(log))
}

/// Waits until the rack has a fact that `wanted` accepts.
async fn told<T>(rack: &Daemon, dir: &Path, what: &str, wanted: impl Fn(&Fact) -> Option<T>) -> T {
    let (mut durable, mut next) = (rack.facts.durable(), 1);
    let waiting = async {
        loop {
            durable.borrow_and_update();
            for fact in rack.facts.read(next).await.unwrap() {
                next = fact.seq + 1;
                if let Some(found) = wanted(&fact) {
                    return found;
                }
            }
            durable.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| {
        let serial = std::fs::read(dir.join("serial.log")).unwrap_or_default();
        panic!("no {what}: {}", String::from_utf8_lossy(&serial))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipv6_only_machine_boots_and_delivers_its_inventory() {
    peer("dnsmasq");
    if !is_inside(NAME) {
        return;
    }
    let (dir, image) = (tempfile::tempdir().unwrap(), image());
    for at in ["default", "all"] {
        // No other host can have the rack's address, so skip the wait for duplicate address detection.
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{at}/accept_dad"), "0").unwrap();
    }
    make_switch(&["2001:db8::1/64"]);
    let rack = rack(dir.path(), &image).await;
    let _router = router(dir.path());
    let _machine = machine(dir.path());

    let claim = told(&rack, dir.path(), "claim", |fact| match &fact.body {
        Some(Body::Claim(claim)) => Some(claim.clone()),
        _ => None,
    });
    let claim = claim.await;
    assert!(claim.address.starts_with("2001:db8::1"), "it claims from its lease: {claim:?}");
    let result = told(&rack, dir.path(), "result", |fact| match &fact.body {
        Some(Body::Result(result)) => Some(result.json.clone()),
        _ => None,
    });
    let result: TaskResult = serde_json::from_slice(&result.await).unwrap();
    assert_eq!((result.attempt, &result.outcome), (ATTEMPT, &Outcome::Succeeded));
    let nics = result.inventory.expect("an inventory").nics;
    assert!(nics.iter().any(|nic| nic.mac == MACHINE), "{nics:?}");

    // All requests came over IPv6, the only protocol in this network.
    for fact in rack.facts.read(1).await.unwrap() {
        if let Some(Body::BootRequest(request)) = fact.body {
            println!("{} {}: {} -> {}", request.service, request.address, request.what, request.answer);
            assert!(!request.address.contains('.'), "{request:?}");
        }
    }
    rack.stop().await;
}
