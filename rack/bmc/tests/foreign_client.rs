//! The BMC server, tested with `ipmitool`: a client that shares no code with it.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use basalt_bmc::{
    Accounts, BmcKey, BmcServer, BootDevice, BootOverride, Credentials, Lan, Lockout, PasswordPolicy,
    Privilege, User,
};
use support::{Chassis, bmc, bmc_with, server_config};

/// Runs ipmitool. Returns its output, and true if it succeeded.
async fn ipmitool(address: SocketAddr, suite: &str, password: &str, arguments: &str) -> (bool, String) {
    as_user(address, suite, ("admin", password), arguments).await
}

async fn as_user(address: SocketAddr, suite: &str, account: (&str, &str), arguments: &str) -> (bool, String) {
    with_key(address, suite, account, &[], arguments).await
}

/// `key`: the options that give the key of the BMC.
async fn with_key(
    address: SocketAddr,
    suite: &str,
    (user, password): (&str, &str),
    key: &[&str],
    arguments: &str,
) -> (bool, String) {
    let mut command = tokio::process::Command::new("ipmitool");
    command.args(["-I", "lanplus", "-N", "1", "-R", "2", "-C", suite, "-H", &address.ip().to_string()]);
    command.args(["-p", &address.port().to_string(), "-U", user, "-P", password]);
    command.args(key).args(arguments.split(' ')).kill_on_drop(true);
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

#[tokio::test]
async fn ipmitool_resets_the_bmc() {
    let chassis = Chassis::off();
    let server = bmc(&chassis).await;
    succeeds(&server, "17", "mc reset cold").await;
    // ipmitool does not wait for an answer to this command.
    let restarted = async {
        while server.restarts() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), restarted).await.expect("the BMC restarts");
    assert_eq!((server.restarts(), chassis.controls()), (1, 0));
}

#[tokio::test]
async fn ipmitool_needs_the_key_of_the_bmc() {
    let mut config = server_config();
    config.bmc_key = Some(BmcKey::new(b"twenty octets of key").unwrap());
    let server = bmc_with(&Chassis::off(), config).await;
    let hexadecimal = "7477656e7479206f6374657473206f66206b6579";
    for suite in ["3", "17"] {
        for (key, works) in [
            (&["-k", "twenty octets of key"][..], true),
            (&["-y", hexadecimal], true),
            (&["-k", "another key"], false),
            (&[], false),
        ] {
            let account = ("admin", "secret");
            let (success, said) =
                with_key(server.address(), suite, account, key, "chassis power status").await;
            assert_eq!(success, works, "-C {suite} {key:?}: {said}");
        }
    }
}

/// A BMC with one administrator, four slots, an address, rules for passwords, and a lock after two bad logins.
async fn strict() -> BmcServer {
    let mut config = server_config();
    let Credentials { username: name, password, .. } = Credentials::new("admin", "secret").unwrap();
    let lan = Lan {
        address: [10, 77, 0, 101].into(),
        mask: [255, 255, 255, 0].into(),
        mac: [0x52, 0x54, 0, 0x99, 0, 1],
        ..Lan::default()
    };
    config.accounts = Accounts::new(4, vec![User { name, password, privilege: Privilege::Administrator }])
        .with_lan(lan)
        .with_policy(PasswordPolicy { min: 10, max: 16, mixed: true })
        .with_lockout(Lockout { tries: 2, lasts: Duration::from_secs(3600) });
    bmc_with(&Chassis::off(), config).await
}

#[tokio::test]
async fn ipmitool_makes_a_user_who_then_logs_in() {
    let server = strict().await;
    succeeds(&server, "17", "user set name 3 basalt").await;
    let refused = ipmitool(server.address(), "17", "secret", "user set password 3 simple").await;
    assert!(!refused.0, "{}", refused.1);
    succeeds(&server, "17", "user set password 3 Ab3-efghij 16").await;
    succeeds(&server, "17", "user test 3 16 Ab3-efghij").await;
    succeeds(&server, "17", "channel setaccess 1 3 ipmi=on privilege=4").await;
    let who = ("basalt", "Ab3-efghij");
    assert!(!as_user(server.address(), "17", who, "chassis power status").await.0, "it is not enabled yet");
    succeeds(&server, "17", "user enable 3").await;
    let users = succeeds(&server, "17", "user list 1").await;
    assert!(users.contains("basalt") && users.contains("ADMINISTRATOR"), "{users}");
    let (well, said) = as_user(server.address(), "17", who, "chassis power status").await;
    assert!(well, "{said}");
    let lan = succeeds(&server, "17", "lan print 1").await;
    for line in ["10.77.0.101", "Static Address", "52:54:00:99:00:01", "255.255.255.0"] {
        assert!(lan.contains(line), "{line} in {lan}");
    }
}

#[tokio::test]
async fn who_guesses_is_locked_out() {
    let server = strict().await;
    for _ in 0..2 {
        assert!(!ipmitool(server.address(), "3", "wrong", "chassis power status").await.0);
    }
    let (well, said) = ipmitool(server.address(), "3", "secret", "chassis power status").await;
    assert!(!well, "the right password comes too late: {said}");
}
