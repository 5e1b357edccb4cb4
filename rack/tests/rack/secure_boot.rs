//! Firmware with Secure Boot and Microsoft's keys: it starts Debian's shim and GRUB from the rack, and refuses iPXE.

use std::path::Path;
use std::time::Duration;

use basalt_dhcp::egress::Message;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::fact::Body;
use basalt_proto::rack_v1::{
    BootConcern, BootLoader, BootMachine, BootTraceEntry, DhcpSubnet, Fact, PowerOffBoot,
};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use dhcproto::v4::{MessageType, OptionCode};

use super::beside::{MACHINE, PATIENCE, asked, beside, fetched, machine};
use super::namespace::{Host, Running, hide, is_inside, make_switch, peer};
use super::peers::{on_switch, start_with, subnet};
use super::support::{fact, traced};

/// OVMF that enforces Secure Boot; its variables can only be written in system management mode.
const CODE: &str = "if=pflash,format=raw,unit=0,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.secboot.fd";
const VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.ms.fd";

/// Installs Debian's loaders under the names in a rack's loader directory.
fn install(dir: &Path, shim: &Path) {
    let loaders = dir.join("loaders");
    std::fs::create_dir_all(&loaders).unwrap();
    for (from, to) in [
        ("/usr/lib/ipxe/snponly.efi", "snponly.efi"),
        ("usr/lib/shim/shimx64.efi.signed", "shimx64.efi"),
        ("usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed", "grubnetx64.efi"),
    ] {
        std::fs::copy(shim.join(from), loaders.join(to)).unwrap();
    }
}

/// A rack whose action for the machine is power off, and whose DHCP names this loader.
async fn start(dir: &Path, loader: BootLoader) -> Daemon {
    make_switch(&["10.9.0.1/24"]);
    serving(dir, DhcpSubnet { loader: loader.into(), ..subnet("s1", "10.9.0", ("100", "101")) }).await
}

pub(super) async fn serving(dir: &Path, served: DhcpSubnet) -> Daemon {
    let settings = on_switch(dir);
    let machine = BootMachine {
        machine_uid: "uid-1".into(),
        name: "m1".into(),
        macs: vec![MACHINE.into()],
        action: Some(Action::PowerOff(PowerOffBoot {})),
        networks: Vec::new(),
        architecture: "amd64".into(),
    };
    let boot = BootConcern { machines: vec![machine], enlist: None };
    write_concern(&settings.data_dir, &version(Concern::Boot, 1, "local", &boot)).unwrap();
    start_with(settings, vec![served]).await
}

/// A machine whose firmware only runs programs that Microsoft signed.
fn secure(dir: &Path, further: &[&str]) -> Running {
    let variables = dir.join("vars.fd");
    std::fs::copy(VARIABLES, &variables).unwrap();
    let variables = format!("if=pflash,format=raw,unit=1,file={}", variables.display());
    let firmware = ["-machine", "smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on"];
    let drives = ["-drive", CODE, "-drive", &variables];
    machine(dir, &[&firmware, &drives[..], further].concat(), ",romfile=")
}

/// Waits until the condition is true.
pub(super) async fn until(dir: &Path, what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("never {what}: {}", console(dir)));
}

pub(super) fn console(dir: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(dir.join("serial.log")).unwrap_or_default()).into_owned()
}

/// The entries of a trace, one line each.
fn lines(traced: &[BootTraceEntry]) -> Vec<String> {
    traced.iter().map(|it| format!("{} {}: {}", it.service, it.asked, it.answered)).collect()
}

/// The trace of a DISCOVER from x86-64 UEFI.
async fn discovers(rack: &Daemon, dir: &Path) -> Vec<String> {
    let machine = Host::plug("machine", MACHINE);
    machine.run(&["ip", "address", "add", "10.9.0.50/24", "dev", "eth0"]);
    let mut message = Message::request(MessageType::Discover, 1, MACHINE.parse().unwrap());
    message.option(OptionCode::ClassIdentifier, "PXEClient:Arch:00007:UNDI:003000");
    let file = dir.join("message");
    std::fs::write(&file, message.encode()).unwrap();
    machine.run(&["bash", "-c", &format!("cat {} > /dev/udp/10.9.0.1/67", file.display())]);
    lines(&traced(&rack.facts, MACHINE, "DISCOVER").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn shim_and_grub_start_from_the_rack_and_obey_their_script() {
    let shim = peer("shim");
    if !is_inside("secure_boot::shim_and_grub_start_from_the_rack_and_obey_their_script") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    install(dir.path(), &shim);
    let rack = start(dir.path(), BootLoader::ShimGrub).await;
    let mut machine = secure(dir.path(), &[]);
    let rom = asked(&rack, dir.path(), "dhcp", "ROM").await;
    assert_eq!(rom.answer, "shimx64.efi");
    fetched(&rack, dir.path(), "grubx64.efi").await;
    until(dir.path(), "switched off", || machine.has_ended()).await;
    let said = console(dir.path());
    assert!(said.contains("Basalt: m1 is to be off"), "{said}");
    let lines = lines(&traced(&rack.facts, MACHINE, "script for GRUB").await);
    let steps = [
        "dhcp REQUEST, x86-64 UEFI, for 10.9.0.100: ACK 10.9.0.100: shimx64.efi from 10.9.0.1",
        "tftp shimx64.efi: ",
        "tftp grubx64.efi: ",
    ];
    let mut rest = lines.iter();
    for step in steps {
        assert!(rest.any(|line| line.starts_with(step)), "{step}, in this order: {lines:#?}");
    }
    // GRUB asks for its script before it has acknowledged the end of the file that names the script.
    for step in ["tftp grub/grub.cfg: ", "tftp script for GRUB: power off"] {
        assert!(rest.clone().any(|line| line.starts_with(step)), "{step}, after GRUB: {lines:#?}");
    }
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_another_dhcp_server_ipxe_is_named_since_grub_would_ask_that_one_for_its_files() {
    let shim = peer("shim");
    if !is_inside(
        "secure_boot::beside_another_dhcp_server_ipxe_is_named_since_grub_would_ask_that_one_for_its_files",
    ) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    install(dir.path(), &shim);
    make_switch(&["10.9.0.1/24"]);
    let rack = serving(dir.path(), DhcpSubnet { loader: BootLoader::ShimGrub.into(), ..beside() }).await;
    let is_told = |fact: &Fact| matches!(&fact.body, Some(Body::Health(it)) if it.service == "loaders");
    let Some(Body::Health(health)) = fact(&rack.facts, is_told).await.body else { unreachable!("asked for") };
    assert!(health.message.contains("another DHCP server gives the addresses, whom GRUB asks"), "{health:?}");
    let lines = discovers(&rack, dir.path()).await;
    let line = "dhcp DISCOVER, x86-64 UEFI: OFFER no address: snponly.efi from 10.9.0.1, since GRUB asks the server that gave the address for its files";
    assert_eq!(lines, [line]);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ipxe_is_refused_by_the_same_firmware() {
    let shim = peer("shim");
    if !is_inside("secure_boot::ipxe_is_refused_by_the_same_firmware") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    install(dir.path(), &shim);
    let rack = start(dir.path(), BootLoader::Unspecified).await;
    let _machine = secure(dir.path(), &[]);
    fetched(&rack, dir.path(), "snponly.efi").await;
    until(dir.path(), "refused", || console(dir.path()).contains("failed to load Boot")).await;
    until(dir.path(), "denied", || console(dir.path()).contains("Access Denied")).await;
    // The loader was sent completely, and there was no request after it: that distinguishes `loader_is_silent` from
    // other faults.
    let lines = lines(&traced(&rack.facts, MACHINE, "snponly.efi").await);
    assert!(lines.iter().any(|line| line.starts_with("tftp snponly.efi: ")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("iPXE")), "{lines:#?}");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shim_loads_grub_by_http_from_beside_itself() {
    let shim = peer("shim");
    if !is_inside("secure_boot::shim_loads_grub_by_http_from_beside_itself") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    install(dir.path(), &shim);
    let rack = start(dir.path(), BootLoader::ShimGrub).await;
    let no = |support: &str| format!("name=opt/org.tianocore/{support},string=no");
    let [four, six] = ["IPv4PXESupport", "IPv6PXESupport"].map(no);
    let _machine = secure(dir.path(), &["-fw_cfg", &four, "-fw_cfg", &six, "-fw_cfg", &no("IPv6Support")]);
    let rom = asked(&rack, dir.path(), "dhcp", "ROM").await;
    assert!(rom.answer.ends_with("/loaders/shimx64.efi"), "{rom:?}");
    // Debian 12's GRUB does not get its network settings from HTTP boot, so it stops there.
    until(dir.path(), "welcomed", || console(dir.path()).contains("Welcome to GRUB!")).await;
    let lines = lines(&traced(&rack.facts, MACHINE, "/grubx64.efi").await);
    assert!(lines.iter().any(|line| line.starts_with("http GET /loaders//grubx64.efi: 200")), "{lines:#?}");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_without_shim_names_ipxe_and_says_so() {
    if !is_inside("secure_boot::a_rack_without_shim_names_ipxe_and_says_so") {
        return;
    }
    let packages = ["/usr/lib/shim", "/usr/lib/grub"];
    hide(&packages.into_iter().filter(|it| Path::new(it).exists()).collect::<Vec<_>>());
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("loaders")).unwrap();
    std::fs::copy("/usr/lib/ipxe/snponly.efi", dir.path().join("loaders/snponly.efi")).unwrap();
    let rack = start(dir.path(), BootLoader::ShimGrub).await;
    let is_told = |fact: &Fact| matches!(&fact.body, Some(Body::Health(it)) if it.service == "loaders");
    let Some(Body::Health(health)) = fact(&rack.facts, is_told).await.body else { unreachable!("asked for") };
    let problem = "x86-64 UEFI of 10.9.0.0/24 is to boot shimx64.efi, and shimx64.efi and grubx64.efi are not installed";
    assert!(!health.ok && health.message.contains(problem), "{health:?}");

    let lines = discovers(&rack, dir.path()).await;
    let line = "dhcp DISCOVER, x86-64 UEFI: OFFER 10.9.0.100: snponly.efi from 10.9.0.1, since shimx64.efi and grubx64.efi are not installed on this rack";
    assert_eq!(lines, [line]);
    rack.stop().await;
}
