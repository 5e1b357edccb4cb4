//! The client, tested with OpenIPMI's `ipmi_sim`: a BMC that shares no code with it. It supports suite 3 only.

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Stdio;

use basalt_bmc::{BmcClient, BmcKey, CipherSuite, Credentials, Failure, PowerState, PowerVerb};
use support::client_config;
use tokio::process::{Child, Command};

/// A running ipmi_sim; killed when dropped.
struct Sim {
    address: SocketAddr,
    _child: Child,
    _directory: tempfile::TempDir,
}

/// Keeps the power state in a file; ipmi_sim calls it with `DEVICE get|set power [VALUE]`.
const CHASSIS: &str = r#"#!/bin/sh
state="$(dirname "$0")/power"
for argument; do last="$argument"; done
case "$*" in
*" get "*) printf 'power:%s\n' "$(cat "$state" 2>/dev/null || echo 0)" ;;
*" set power "*) echo "$last" > "$state" ;;
esac
"#;

const EMULATION: &str = "mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
mc_enable 0x20
";

/// `lan`: more lines about its LAN interface.
fn configuration(directory: &Path, port: u16, lan: &str) -> String {
    format!(
        r#"name "bmc1"
set_working_mc 0x20
startlan 1
  addr 127.0.0.1 {port}
  priv_limit admin
  allowed_auths_callback none md2 md5 straight
  allowed_auths_user none md2 md5 straight
  allowed_auths_operator none md2 md5 straight
  allowed_auths_admin none md2 md5 straight
  guid a123456789abcdefa123456789abcdef
{lan}
endlan
chassis_control "{}/chassis 0x20"
user 2 true "admin" "secret" admin 10 none md2 md5 straight
"#,
        directory.display()
    )
}

async fn ipmi_sim() -> Sim {
    ipmi_sim_with("").await
}

async fn ipmi_sim_with(lan: &str) -> Sim {
    let directory = tempfile::tempdir().unwrap();
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("chassis"), CHASSIS).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path("chassis"), executable).unwrap();
    std::fs::write(path("sim.emu"), EMULATION).unwrap();
    std::fs::write(path("lan.conf"), configuration(directory.path(), address.port(), lan)).unwrap();
    let child = Command::new("ipmi_sim")
        .args(["-n", "-c"])
        .arg(path("lan.conf"))
        .arg("-f")
        .arg(path("sim.emu"))
        .arg("-s")
        .arg(path("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("ipmi_sim runs; install the package openipmi");
    Sim { address, _child: child, _directory: directory }
}

#[tokio::test]
async fn power_and_identity_of_a_foreign_bmc() {
    let sim = ipmi_sim().await;
    let client = BmcClient::new(client_config(sim.address));
    let identity = client.device_id().await.unwrap();
    assert_eq!((identity.manufacturer, identity.product, identity.ipmi_version), (0x1291, 0xf02, (2, 0)));
    assert_eq!(client.power_status().await.unwrap(), PowerState::Off);
    client.power(PowerVerb::On).await.unwrap();
    assert_eq!(client.power_status().await.unwrap(), PowerState::On);
    client.power(PowerVerb::Off).await.unwrap();
    assert_eq!(client.power_status().await.unwrap(), PowerState::Off);
}

#[tokio::test]
async fn one_session_to_a_foreign_bmc_serves_many_operations() {
    let sim = ipmi_sim().await;
    let mut session = BmcClient::new(client_config(sim.address)).connect().await.unwrap();
    for _ in 0..100 {
        session.device_id().await.unwrap();
    }
    session.close().await;
}

#[tokio::test]
async fn a_foreign_bmcs_refusals_are_told_apart() {
    let sim = ipmi_sim().await;
    let attempt = |user: &str, password: &str, suite| {
        let mut config = client_config(sim.address);
        config.credentials = Credentials::new(user, password).unwrap();
        config.suite = suite;
        let client = BmcClient::new(config);
        async move { client.power_status().await.unwrap_err().failure }
    };
    let suite_3 = CipherSuite::suite_3();
    let wrong_password = attempt("admin", "wrong", suite_3).await;
    assert_eq!(wrong_password, Failure::WrongPassword { username: "admin".into() });
    let wrong_name = attempt("nobody", "secret", suite_3).await;
    assert_eq!(wrong_name, Failure::WrongUserName { username: "nobody".into() });
    let suite = attempt("admin", "secret", CipherSuite::suite_17()).await;
    assert_eq!(suite, Failure::UnsupportedSuite { suite: 17 });
}

#[tokio::test]
async fn the_key_of_a_foreign_bmc_is_used() {
    // ipmi_sim keeps 19 octets of a text, and adds a NUL.
    let sim = ipmi_sim_with("  bmc_key \"nineteen_characters\"").await;
    let attempt = |key: Option<&[u8]>| {
        let mut config = client_config(sim.address);
        config.credentials.bmc_key = key.map(|key| BmcKey::new(key).unwrap());
        let client = BmcClient::new(config);
        async move { client.power_status().await.map_err(|error| error.failure) }
    };
    assert_eq!(attempt(Some(b"nineteen_characters\0")).await, Ok(PowerState::Off));
    let wrong = Failure::WrongBmcKey { is_declared: true };
    assert_eq!(attempt(Some(&[7; 20])).await, Err(wrong));
    assert_eq!(attempt(None).await, Err(Failure::BmcKeyRequired));
}
