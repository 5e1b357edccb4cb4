//! Our BMC, judged by `ipmitool`: a client that shares no code with us.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use basalt_bmc::{BmcServer, BootDevice, BootOverride};
use support::{Chassis, bmc};

/// Runs ipmitool; its output, and whether it succeeded.
async fn ipmitool(address: SocketAddr, suite: &str, password: &str, arguments: &str) -> (bool, String) {
    let mut command = tokio::process::Command::new("ipmitool");
    command.args(["-I", "lanplus", "-N", "1", "-R", "2", "-C", suite, "-H", &address.ip().to_string()]);
    command.args(["-p", &address.port().to_string(), "-U", "admin", "-P", password]);
    command.args(arguments.split(' ')).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(30), command.output())
        .await
        .expect("ipmitool ends within 30 s")
        .expect("ipmitool runs; install the package ipmitool");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

async fn succeeds(server: &BmcServer, suite: &str, arguments: &str) -> String {
    let (success, output) = ipmitool(server.address(), suite, "secret", arguments).await;
    assert!(success, "ipmitool -C {suite} {arguments}: {output}");
    output
}

#[tokio::test]
async fn ipmitool_controls_power_over_suites_3_and_17() {
    for suite in ["3", "17"] {
        let chassis = Chassis::off();
        let server = bmc(&chassis).await;
        assert!(succeeds(&server, suite, "chassis power status").await.contains("Chassis Power is off"));
        succeeds(&server, suite, "chassis power on").await;
        assert!(chassis.is_on());
        assert!(succeeds(&server, suite, "chassis power status").await.contains("Chassis Power is on"));
        succeeds(&server, suite, "chassis power cycle").await;
        succeeds(&server, suite, "chassis power reset").await;
        succeeds(&server, suite, "chassis power soft").await;
        assert!(!chassis.is_on());
        succeeds(&server, suite, "chassis power off").await;
    }
}

#[tokio::test]
async fn ipmitool_chooses_the_boot_device() {
    let chassis = Chassis::off();
    let server = bmc(&chassis).await;
    succeeds(&server, "3", "chassis bootdev pxe options=efiboot").await;
    assert_eq!(chassis.boot(), BootOverride { device: BootDevice::Pxe, once: true, efi: true });
    let read = succeeds(&server, "3", "chassis bootparam get 5").await;
    assert!(read.contains("Force PXE") && read.contains("EFI"), "{read}");
    succeeds(&server, "3", "chassis bootdev disk options=efiboot,persistent").await;
    assert_eq!(chassis.boot(), BootOverride { device: BootDevice::Disk, once: false, efi: true });
    succeeds(&server, "3", "chassis bootdev none").await;
    assert_eq!(chassis.boot(), BootOverride::NONE);
}

#[tokio::test]
async fn ipmitool_reads_the_device_id_and_the_cipher_suites() {
    let server = bmc(&Chassis::off()).await;
    assert!(succeeds(&server, "3", "mc info").await.contains("IPMI Version              : 2.0"));
    succeeds(&server, "3", "mc guid").await;
    let suites = succeeds(&server, "3", "channel getciphers ipmi 1").await;
    assert!(suites.contains("hmac_sha1") && suites.contains("hmac_sha256"), "{suites}");
}

#[tokio::test]
async fn ipmitool_with_a_wrong_password_or_suite_gets_no_session() {
    let server = bmc(&Chassis::off()).await;
    for (suite, password) in [("3", "wrong"), ("17", "wrong"), ("2", "secret"), ("0", "secret")] {
        let (success, output) = ipmitool(server.address(), suite, password, "chassis power status").await;
        assert!(!success, "-C {suite} -P {password}: {output}");
    }
}
