//! Real firmware on a link without IPv4: it boots from the rack by DHCPv6, TFTP and HTTP. Another program is the
//! router.

use std::path::Path;

use basalt_proto::rack_v1::{Dhcp6Reservation, Dhcp6Subnet};
use basalt_rack::daemon::Daemon;

use super::beside::{MACHINE, asked, declare, fetched, uefi};
use super::dnsmasq::dnsmasq;
use super::namespace::{Host, Running, is_inside, peer};
use super::peers6::{start_with, subnet};

/// The address reserved for the machine. The rack has no others.
const RESERVED: &str = "2001:db8::20";

async fn start(dir: &Path) -> Daemon {
    let (mac, address) = (MACHINE.into(), RESERVED.into());
    let reservations = vec![Dhcp6Reservation { mac, address, ..Dhcp6Reservation::default() }];
    start_with(dir, Dhcp6Subnet { reservations, dynamic: Vec::new(), ..subnet() }).await
}

/// A router that announces the managed flag (addresses come by DHCPv6) and gives no addresses itself: iPXE obeys the
/// flag.
pub(super) fn router(dir: &Path) -> (Host, Running) {
    let host = Host::plug("router", "52:54:00:00:00:09");
    host.run(&["ip", "address", "add", "2001:db8::9/64", "dev", "eth0", "nodad"]);
    let range = "--dhcp-range=2001:db8::,static,64";
    let dnsmasq = dnsmasq(dir, &host, &["--enable-ra", range, "--dhcp-ignore=tag:!known"]);
    (host, dnsmasq)
}

/// Switches off one of the protocols; by default the firmware tries all of them, one after the other.
fn without(support: &str) -> [String; 2] {
    ["-fw_cfg".to_owned(), format!("name=opt/org.tianocore/{support},string=no")]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uefi_machine_boots_by_pxe_over_ipv6() {
    peer("dnsmasq");
    if !is_inside("firmware6::a_uefi_machine_boots_by_pxe_over_ipv6") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    declare(dir.path());
    let rack = start(dir.path()).await;
    let _router = router(dir.path());
    let [option, value] = without("IPv4PXESupport");
    let _machine = uefi(dir.path(), &[&option, &value]);
    let rom = asked(&rack, dir.path(), "dhcp", "ROM").await;
    assert_eq!((rom.answer.as_str(), rom.address.as_str()), ("tftp://[2001:db8::1]/snponly.efi", RESERVED));
    let loader = fetched(&rack, dir.path(), "snponly.efi").await;
    assert_eq!(loader.address, RESERVED);
    let ipxe = asked(&rack, dir.path(), "dhcp", "iPXE").await;
    assert!(ipxe.answer.contains("/ipxe?mac=52:54:00:00:00:01"), "{ipxe:?}");
    let script = asked(&rack, dir.path(), "http", "").await;
    assert_eq!(script.address, ipxe.address);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uefi_machine_boots_by_http_over_ipv6() {
    peer("dnsmasq");
    if !is_inside("firmware6::a_uefi_machine_boots_by_http_over_ipv6") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    declare(dir.path());
    let rack = start(dir.path()).await;
    let _router = router(dir.path());
    let [option, four] = without("IPv4PXESupport");
    let [_, six] = without("IPv6PXESupport");
    let _machine = uefi(dir.path(), &[&option, &four, &option, &six]);
    let rom = asked(&rack, dir.path(), "dhcp", "ROM").await;
    assert!(rom.answer.starts_with("http://[2001:db8::1]:"), "{rom:?}");
    assert!(rom.answer.ends_with("/loaders/snponly.efi"), "{rom:?}");
    let ipxe = asked(&rack, dir.path(), "dhcp", "iPXE").await;
    let script = asked(&rack, dir.path(), "http", "").await;
    assert_eq!(script.address, ipxe.address);
    rack.stop().await;
}
