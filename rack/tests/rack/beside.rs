//! A rack beside another DHCP server, dnsmasq. Real firmware boots from the rack with dnsmasq's addresses if the subnet
//! is in proxy mode. Otherwise the rack reports dnsmasq.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use basalt_dhcp::egress::Message;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{
    BootAnswers, BootConcern, BootMachine, BootRequestFact, BootTraceEntry, DhcpSubnet, Fact, LocalBoot,
    fact::Body,
};
use basalt_rack::check::check;
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use dhcproto::v4::{MessageType, OptionCode};
use tokio::time::timeout;

use super::dnsmasq::dnsmasq;
use super::namespace::{Host, Running, ip, is_inside, make_switch, peer};
use super::peers::{on_switch, start, start_with, subnet};
use super::support::{boot_concern, fact, traced};

/// UEFI on an emulated processor takes half a minute to use the network, on an idle machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
const OTHER: &str = "52:54:00:00:00:09";
pub(super) const MACHINE: &str = "52:54:00:00:00:01";
/// The range of addresses that only dnsmasq gives.
const ITS_OWN: [&str; 2] = ["10.9.0.50", "10.9.0.59"];

/// dnsmasq at 10.9.0.9, which gives addresses and no boot options.
fn dnsmasq_at_nine(dir: &Path, host: &Host) -> Running {
    host.run(&["ip", "address", "add", "10.9.0.9/24", "dev", "eth0"]);
    let range = format!("--dhcp-range={},{},1h", ITS_OWN[0], ITS_OWN[1]);
    dnsmasq(dir, host, &["--dhcp-authoritative", &range])
}

pub(super) fn beside() -> DhcpSubnet {
    let mut subnet = subnet("s1", "10.9.0", ("100", "101"));
    subnet.dynamic.clear();
    subnet.boot = BootAnswers::Proxy.into();
    subnet
}

/// A machine that can only boot from the network, plugged into the switch.
pub(super) fn machine(dir: &Path, firmware: &[&str], nic: &str) -> Running {
    ip("tuntap add dev machine0 mode tap");
    ip("link set machine0 master switch up");
    let log = std::fs::File::create(dir.join("serial.log")).unwrap();
    let nic = format!("virtio-net-pci,netdev=net,mac={MACHINE}{nic}");
    let common = [
        "-nodefaults -machine q35,accel=tcg,graphics=off -cpu Nehalem -m 256 -display none -vga none -monitor none -serial stdio",
        "-netdev tap,id=net,ifname=machine0,script=no,downscript=no -device virtio-rng-pci -device",
    ]
    .join(" ");
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(common.split(' ')).arg(nic).args(firmware);
    Running::start(qemu.stdin(Stdio::null()).stdout(log))
}

/// A machine with OVMF firmware, with OVMF's own network drivers and without iPXE's ROM. It must get iPXE from the
/// rack.
pub(super) fn uefi(dir: &Path, further: &[&str]) -> Running {
    std::fs::create_dir_all(dir.join("loaders")).unwrap();
    std::fs::copy("/usr/lib/ipxe/snponly.efi", dir.join("loaders/snponly.efi")).unwrap();
    let variables = dir.join("vars.fd");
    std::fs::copy("/usr/share/OVMF/OVMF_VARS_4M.fd", &variables).unwrap();
    let variables = format!("if=pflash,format=raw,file={}", variables.display());
    let code = "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd";
    machine(dir, &[&["-drive", code, "-drive", &variables], further].concat(), ",romfile=")
}

/// Declares the machine: its requests then become facts, besides the trace of its boot.
pub(super) fn declare(dir: &Path) {
    let machine = BootMachine {
        machine_uid: "uid-1".into(),
        name: "m1".into(),
        macs: vec![MACHINE.into()],
        action: Some(Action::Local(LocalBoot {})),
        networks: Vec::new(),
        architecture: "amd64".into(),
    };
    let boot = BootConcern { machines: vec![machine], enlist: None };
    write_concern(&dir.join("data"), &version(Concern::Boot, 1, "local", &boot)).unwrap();
}

/// Waits until the machine has fetched this file by TFTP.
pub(super) async fn fetched(rack: &Daemon, dir: &Path, file: &str) -> BootTraceEntry {
    let is_it = |entry: &&BootTraceEntry| entry.service == "tftp" && entry.asked == file;
    let found = |fact: &Fact| match &fact.body {
        Some(Body::BootTrace(trace)) => trace.entries.iter().find(is_it).cloned(),
        _ => None,
    };
    let told =
        timeout(PATIENCE, super::support::fact_in_time(&rack.facts, |fact| found(fact).is_some())).await;
    let told = told.unwrap_or_else(|_| {
        let serial = std::fs::read(dir.join("serial.log")).unwrap_or_default();
        panic!("nobody fetched {file}: {}", String::from_utf8_lossy(&serial))
    });
    found(&told).unwrap()
}

/// Waits for this request, and returns its fact.
pub(super) async fn asked(rack: &Daemon, dir: &Path, service: &str, what: &str) -> BootRequestFact {
    let wanted = |fact: &Fact| matches!(&fact.body, Some(Body::BootRequest(it)) if it.service == service && it.what.contains(what));
    let told = timeout(PATIENCE, super::support::fact_in_time(&rack.facts, wanted)).await;
    let told = told.unwrap_or_else(|_| {
        let serial = std::fs::read(dir.join("serial.log")).unwrap_or_default();
        panic!("nobody asked {service} for {what}: {}", String::from_utf8_lossy(&serial))
    });
    let Some(Body::BootRequest(request)) = told.body else { unreachable!("it was asked for") };
    request
}

/// True if the address is dnsmasq's.
fn is_its_own(address: &str) -> bool {
    address
        .strip_prefix("10.9.0.")
        .and_then(|last| last.parse().ok())
        .is_some_and(|last| (50..60).contains(&last))
}

async fn told_of_no_server(rack: &Daemon) -> bool {
    let facts = rack.facts.read(1).await.unwrap();
    !facts.iter().any(|fact| matches!(fact.body, Some(Body::DhcpServer(_) | Body::Lease(_))))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bios_machine_boots_from_the_rack_with_an_address_of_the_other_server() {
    peer("dnsmasq");
    if !is_inside("beside::a_bios_machine_boots_from_the_rack_with_an_address_of_the_other_server") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let other = Host::plug("other", OTHER);
    let _dnsmasq = dnsmasq_at_nine(dir.path(), &other);
    declare(dir.path());
    let rack = start(dir.path(), vec![beside()]).await;

    // Its network ROM is iPXE.
    let _machine = machine(dir.path(), &["-boot", "order=n"], "");
    let dhcp = asked(&rack, dir.path(), "dhcp", "iPXE").await;
    assert!(is_its_own(&dhcp.address), "{dhcp:?}");
    assert!(dhcp.answer.contains("/ipxe?mac=52:54:00:00:00:01"), "{dhcp:?}");
    let http = asked(&rack, dir.path(), "http", "").await;
    assert_eq!(
        http.address, dhcp.address,
        "the script is asked for from the address that the other server gave"
    );
    let traced = traced(&rack.facts, MACHINE, "script for iPXE").await;
    let shown = |entry: &BootTraceEntry| format!("{} {}: {}", entry.service, entry.asked, entry.answered);
    let shown: Vec<String> = traced.iter().map(shown).collect();
    let url = "http://10.9.0.1";
    assert!(
        shown[0].starts_with(&format!("dhcp DISCOVER, iPXE on x86 BIOS: OFFER no address: {url}")),
        "{shown:#?}"
    );
    let taken = format!(
        "dhcp REQUEST, iPXE on x86 BIOS, for {0}: nothing; it takes {0} of another server, and boots {url}",
        dhcp.address
    );
    assert!(shown.iter().any(|line| line.starts_with(&taken)), "{shown:#?}");
    let (last, entry) = (shown.last().unwrap(), traced.last().unwrap());
    assert_eq!(
        (entry.reason.as_str(), entry.address.as_str()),
        ("nothing_to_do", dhcp.address.as_str()),
        "{last}"
    );
    assert!(told_of_no_server(&rack).await, "it is there by right, and nothing was leased here");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uefi_machine_boots_from_the_rack_with_an_address_of_the_other_server() {
    peer("dnsmasq");
    if !is_inside("beside::a_uefi_machine_boots_from_the_rack_with_an_address_of_the_other_server") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let other = Host::plug("other", OTHER);
    let _dnsmasq = dnsmasq_at_nine(dir.path(), &other);
    declare(dir.path());
    let rack = start(dir.path(), vec![beside()]).await;

    let _machine = uefi(dir.path(), &[]);
    let rom = asked(&rack, dir.path(), "dhcp", "ROM").await;
    assert_eq!((rom.answer.as_str(), is_its_own(&rom.address)), ("snponly.efi", true), "{rom:?}");
    fetched(&rack, dir.path(), "snponly.efi").await;
    asked(&rack, dir.path(), "dhcp", "iPXE").await;
    let http = asked(&rack, dir.path(), "http", "").await;
    assert!(is_its_own(&http.address), "{http:?}");
    assert!(told_of_no_server(&rack).await);
    rack.stop().await;
}

/// Requests the machine's script from another host. Returns the answer.
fn script(host: &Host, port: u16) -> String {
    let url = format!("http://10.9.0.1:{port}/ipxe?mac={MACHINE}");
    String::from_utf8_lossy(&host.run(&["curl", "-s", "--max-time", "20", &url]).stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_token_goes_to_the_machine_and_not_to_who_says_that_he_is_it() {
    if !is_inside("beside::a_boot_token_goes_to_the_machine_and_not_to_who_says_that_he_is_it") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let settings = on_switch(dir.path());
    let port = settings.http_port;
    write_concern(&settings.data_dir, &version(Concern::Boot, 1, "local", &boot_concern(7))).unwrap();
    let rack = start_with(settings, vec![beside()]).await;
    let [machine, thief] =
        [("machine", MACHINE, "10.9.0.50"), ("thief", OTHER, "10.9.0.66")].map(|(name, mac, address)| {
            let host = Host::plug(name, mac);
            host.run(&["ip", "address", "add", &format!("{address}/24"), "dev", "eth0"]);
            host
        });
    // Each host claims that the machine takes an address of another server: the host's own.
    let says = async |host: &Host, address: Ipv4Addr| {
        let mut message = Message::request(MessageType::Request, 1, MACHINE.parse().unwrap());
        message.option(OptionCode::ClassIdentifier, "PXEClient:Arch:00000:UNDI:002001");
        message.option(OptionCode::UserClass, "iPXE");
        message.option(OptionCode::RequestedIpAddress, address.octets());
        message.option(OptionCode::ServerIdentifier, [10, 9, 0, 9]);
        let file = dir.path().join("message");
        std::fs::write(&file, message.encode()).unwrap();
        host.run(&["bash", "-c", &format!("cat {} > /dev/udp/10.9.0.1/67", file.display())]);
        let address = address.to_string();
        let heard = |fact: &Fact| matches!(&fact.body, Some(Body::BootRequest(it)) if it.service == "dhcp" && it.address == address);
        fact(&rack.facts, heard).await;
    };
    says(&thief, Ipv4Addr::new(10, 9, 0, 66)).await;
    let answered = script(&thief, port);
    assert!(answered.contains("the host at this address has another MAC"), "{answered}");
    says(&machine, Ipv4Addr::new(10, 9, 0, 50)).await;
    let answered = script(&machine, port);
    assert!(answered.contains("basalt.token="), "{answered}");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_nobody_declared_is_found() {
    peer("dnsmasq");
    if !is_inside("beside::a_server_that_nobody_declared_is_found") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let other = Host::plug("other", OTHER);
    let _dnsmasq = dnsmasq_at_nine(dir.path(), &other);
    let rack = start(dir.path(), vec![subnet("s1", "10.9.0", ("100", "101"))]).await;
    let told = fact(&rack.facts, |fact| matches!(&fact.body, Some(Body::DhcpServer(_)))).await;
    let Some(Body::DhcpServer(found)) = told.body else { unreachable!("it was asked for") };
    assert_eq!((found.address.as_str(), found.subnet_uid.as_str()), ("10.9.0.9", "s1"));

    // A check finds dnsmasq too, beside the running rack.
    let settings = on_switch(dir.path());
    let findings = tokio::task::spawn_blocking(move || check(&settings)).await.unwrap();
    let finding = |subject: &str| findings.iter().find(|it| it.subject.starts_with(subject)).unwrap();
    let problem = finding("other DHCP servers on rack0").problem.clone().unwrap_or_default();
    assert!(problem.starts_with("10.9.0.9 gives addresses there"), "{findings:?}");
    for port in ["DHCP on 10.9.0.1:67", "proxyDHCP on 10.9.0.1:4011", "TFTP on 10.9.0.1:"] {
        let (problem, note) = (&finding(port).problem, finding(port).note.clone().unwrap_or_default());
        assert!(problem.is_none() && note.starts_with("this rack runs, and has it"), "{findings:?}");
    }
    rack.stop().await;
}
