//! Real firmware on an IPv4 link, with the less common ways to boot: UEFI HTTP boot, and PXELINUX.

use basalt_proto::rack_v1::{BootAnswers, DhcpSubnet};

use super::beside::{MACHINE, asked, declare, machine, uefi};
use super::dnsmasq::dnsmasq;
use super::namespace::{Host, is_inside, make_switch, peer};
use super::peers::{start, subnet};
use super::secure_boot::{console, serving, until};
use super::support::traced;

#[tokio::test(flavor = "multi_thread")]
async fn a_uefi_machine_boots_by_http() {
    if !is_inside("firmware::a_uefi_machine_boots_by_http") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    declare(dir.path());
    let rack = start(dir.path(), vec![subnet("s1", "10.9.0", ("100", "101"))]).await;
    let no = |support: &str| format!("name=opt/org.tianocore/{support},string=no");
    let [four, six] = ["IPv4PXESupport", "IPv6PXESupport"].map(no);
    let _machine = uefi(dir.path(), &["-fw_cfg", &four, "-fw_cfg", &six, "-fw_cfg", &no("IPv6Support")]);
    let rom = asked(&rack, dir.path(), "dhcp", "ROM").await;
    assert!(rom.answer.starts_with("http://10.9.0.1:"), "{rom:?}");
    assert!(rom.answer.ends_with("/loaders/snponly.efi"), "{rom:?}");
    let ipxe = asked(&rack, dir.path(), "dhcp", "iPXE").await;
    let script = asked(&rack, dir.path(), "http", "").await;
    assert_eq!(script.address, ipxe.address);
    rack.stop().await;
}

/// Another DHCP server makes machines boot PXELINUX from this rack.
#[tokio::test(flavor = "multi_thread")]
async fn pxelinux_obeys_its_configuration() {
    let [pxelinux, _] = ["pxelinux", "dnsmasq"].map(peer);
    if !is_inside("firmware::pxelinux_obeys_its_configuration") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let loaders = dir.path().join("loaders");
    std::fs::create_dir_all(&loaders).unwrap();
    for file in
        ["PXELINUX/lpxelinux.0", "syslinux/modules/bios/ldlinux.c32", "syslinux/modules/bios/poweroff.c32"]
    {
        let from = pxelinux.join("usr/lib").join(file);
        std::fs::copy(&from, loaders.join(from.file_name().unwrap())).unwrap();
    }
    make_switch(&["10.9.0.1/24"]);
    let other = Host::plug("other", "52:54:00:00:00:09");
    other.run(&["ip", "address", "add", "10.9.0.9/24", "dev", "eth0"]);
    let boot = "--dhcp-boot=lpxelinux.0,rack,10.9.0.1";
    let range = "--dhcp-range=10.9.0.50,10.9.0.59,1h";
    let _dnsmasq = dnsmasq(dir.path(), &other, &["--dhcp-authoritative", range, boot]);
    let mut served = subnet("s1", "10.9.0", ("100", "101"));
    served.dynamic.clear();
    let rack = serving(dir.path(), DhcpSubnet { boot: BootAnswers::None.into(), ..served }).await;

    let mut machine = machine(dir.path(), &["-boot", "order=n"], "");
    until(dir.path(), "switched off", || machine.has_ended()).await;
    let said = console(dir.path());
    assert!(said.contains("Basalt: m1 is to be off"), "{said}");
    let traced = traced(&rack.facts, MACHINE, "script for PXELINUX").await;
    let asked: Vec<String> = traced.iter().map(|it| format!("{} {}", it.service, it.asked)).collect();
    for file in ["tftp lpxelinux.0", "tftp ldlinux.c32"] {
        assert!(asked.iter().any(|it| it == file), "{file}: {asked:#?}");
    }
    rack.stop().await;
}
