//! The client and the server of this crate against each other: every operation, every refusal and its text, and
//! deliberate faults.

mod support;

use std::time::Duration;

use basalt_bmc::{
    Accounts, BmcClient, BmcKey, BootDevice, BootOverride, CipherSuite, CompletionCode, Credentials, Failure,
    Fault, PowerState, PowerVerb, Privilege, ServerConfig, User,
};
use support::{Chassis, bmc, bmc_with, client, client_config, server_config};

#[tokio::test]
async fn power_goes_on_and_off_over_both_suites() {
    for suite in &basalt_bmc::suite::SUITES {
        let chassis = Chassis::off();
        let server = bmc(&chassis).await;
        let mut config = client_config(server.address());
        config.suite = suite;
        let client = BmcClient::new(config);
        assert_eq!(client.power_status().await.unwrap(), PowerState::Off);
        client.power(PowerVerb::On).await.unwrap();
        assert_eq!(client.power_status().await.unwrap(), PowerState::On);
        client.power(PowerVerb::Soft).await.unwrap();
        assert!(!chassis.is_on());
    }
}

#[tokio::test]
async fn operations_run_in_tasks_of_their_own() {
    let server = bmc(&Chassis::off()).await;
    let client = client(server.address());
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.power_status().await })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), PowerState::Off);
    }
}

#[tokio::test]
async fn a_boot_device_is_set_and_read_back() {
    let chassis = Chassis::off();
    let server = bmc(&chassis).await;
    let client = client(server.address());
    for (device, once, efi) in [(BootDevice::Pxe, true, true), (BootDevice::Disk, false, false)] {
        client.set_boot_device(device, once, efi).await.unwrap();
        assert_eq!(chassis.boot(), BootOverride { device, once, efi });
        assert_eq!(client.boot_override().await.unwrap(), chassis.boot());
    }
    client.set_boot_device(BootDevice::None, true, false).await.unwrap();
    assert_eq!(chassis.boot(), BootOverride::NONE);
}

#[tokio::test]
async fn one_session_serves_many_operations() {
    let chassis = Chassis::off();
    let server = bmc(&chassis).await;
    let mut session = client(server.address()).connect().await.unwrap();
    assert_eq!(session.device_id().await.unwrap().ipmi_version, (2, 0));
    for _ in 0..130 {
        session.power(PowerVerb::On).await.unwrap();
        assert_eq!(session.power_status().await.unwrap(), PowerState::On);
    }
    session.close().await;
    assert_eq!(chassis.controls(), 130, "rqSeq wraps at 64, and nothing is taken for a repetition");
}

#[tokio::test]
async fn a_wrong_password_is_told_from_a_wrong_user_name() {
    let server = bmc(&Chassis::off()).await;
    let mut config = client_config(server.address());
    config.credentials = Credentials::new("admin", "wrong").unwrap();
    let error = BmcClient::new(config.clone()).power_status().await.unwrap_err();
    assert_eq!(error.to_string(), format!("BMC {}: wrong password for user \"admin\"", server.address()));

    config.credentials = Credentials::new("nobody", "secret").unwrap();
    let error = BmcClient::new(config).power_status().await.unwrap_err();
    assert_eq!(error.failure, Failure::WrongUserName { username: "nobody".into() });
}

/// A BMC with this key, and a client with that one.
async fn with_keys(of_bmc: Option<&[u8]>, declared: Option<&[u8]>, password: &str) -> Result<(), Failure> {
    let mut config = server_config();
    config.bmc_key = of_bmc.map(|key| BmcKey::new(key).unwrap());
    let server = bmc_with(&Chassis::off(), config).await;
    for suite in &basalt_bmc::suite::SUITES {
        let mut config = client_config(server.address());
        config.suite = suite;
        config.credentials = Credentials::new("admin", password).unwrap();
        config.credentials.bmc_key = declared.map(|key| BmcKey::new(key).unwrap());
        BmcClient::new(config).power_status().await.map_err(|error| error.failure)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_bmc_key_opens_a_session_and_a_missing_or_wrong_one_is_named() {
    let (key, other) = (&b"twenty octets of key"[..], &[7; 20][..]);
    assert_eq!(with_keys(Some(key), Some(key), "secret").await, Ok(()));
    assert_eq!(with_keys(Some(key), None, "secret").await, Err(Failure::BmcKeyRequired));
    let wrong = Failure::WrongBmcKey { is_declared: true };
    assert_eq!(with_keys(Some(key), Some(other), "secret").await, Err(wrong.clone()));
    assert_eq!(with_keys(None, Some(key), "secret").await, Err(wrong), "a declared key is never left out");
    let password = with_keys(Some(key), Some(key), "wrong").await.unwrap_err();
    assert_eq!(password.to_string(), "wrong password for user \"admin\"");
    for (is_declared, says) in [(true, "is not the one in bmc.k_g"), (false, "bmc.k_g is not; declare it")] {
        assert!(Failure::WrongBmcKey { is_declared }.to_string().contains(says));
    }
    assert!(Failure::BmcKeyRequired.to_string().contains("declare it in bmc.k_g"));
}

#[tokio::test]
async fn a_users_limit_refuses_more_privilege() {
    let mut limited = server_config();
    let Credentials { username: name, password, .. } = Credentials::new("admin", "secret").unwrap();
    limited.accounts = Accounts::new(4, vec![User { name, password, privilege: Privilege::User }]);
    let server = bmc_with(&Chassis::off(), limited).await;
    let mut config = client_config(server.address());
    let error = BmcClient::new(config.clone()).power_status().await.unwrap_err();
    assert!(error.to_string().contains("refused privilege operator to user \"admin\""), "{error}");

    config.privilege = Privilege::User;
    let client = BmcClient::new(config);
    assert_eq!(client.power_status().await.unwrap(), PowerState::Off);
    let error = client.power(PowerVerb::On).await.unwrap_err();
    assert!(error.to_string().ends_with("Chassis Control failed: insufficient privilege (0xd4)"), "{error}");
}

#[tokio::test]
async fn an_unsupported_suite_is_named() {
    let mut modern = server_config();
    modern.suites = vec![CipherSuite::suite_17()];
    let server = bmc_with(&Chassis::off(), modern).await;
    let error = client(server.address()).power_status().await.unwrap_err();
    assert_eq!(error.failure, Failure::UnsupportedSuite { suite: 3 });
}

#[tokio::test]
async fn a_refused_command_says_its_completion_code() {
    let server = bmc(&Chassis::off()).await;
    let error = client(server.address()).power(PowerVerb::Cycle).await.unwrap_err();
    let code = CompletionCode::NOT_IN_THIS_STATE;
    assert_eq!(error.failure, Failure::Command { command: "Chassis Control", code });
}

#[tokio::test]
async fn an_unreachable_bmc_is_given_up_at_the_deadline() {
    let server = bmc(&Chassis::off()).await;
    server.faults().set(&[Fault::Unreachable]);
    let mut config = client_config(server.address());
    config.timing.operation = Duration::from_millis(400);
    let error = BmcClient::new(config).power_status().await.unwrap_err();
    assert!(matches!(error.failure, Failure::Unreachable { sent: 3.., .. }), "{error}");
    assert!(error.to_string().contains("unreachable: no answer to"), "{error}");
    assert!(server.faults().fired(Fault::Unreachable) >= 3);
}

#[tokio::test]
async fn a_closed_port_says_what_the_network_said() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut config = client_config(closed);
    config.timing.operation = Duration::from_millis(300);
    let error = BmcClient::new(config).power_status().await.unwrap_err();
    assert!(error.to_string().contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn a_bmc_that_falls_silent_is_not_called_unreachable() {
    let server = bmc(&Chassis::off()).await;
    let mut config = client_config(server.address());
    config.timing.operation = Duration::from_millis(300);
    let mut session = BmcClient::new(config).connect().await.unwrap();
    server.faults().set(&[Fault::Unreachable]);
    let error = session.power_status().await.unwrap_err();
    assert!(
        matches!(error.failure, Failure::StoppedAnswering { during: "Get Chassis Status", .. }),
        "{error}"
    );
    assert!(error.failure.is_transient());
}

#[tokio::test]
async fn lost_packets_are_sent_again_and_nothing_is_done_twice() {
    for every in [2, 3, 5] {
        let chassis = Chassis::off();
        let server = bmc(&chassis).await;
        server.faults().set(&[Fault::DropEvery(every)]);
        let client = client(server.address());
        for round in 1..=5 {
            client.power(PowerVerb::On).await.unwrap();
            assert_eq!(chassis.controls(), round);
        }
        assert!(server.faults().fired(Fault::DropEvery(every)) > 5);
    }
}

#[tokio::test]
async fn late_and_repeated_answers_are_not_taken_for_the_next_ones() {
    let chassis = Chassis::off();
    let server = bmc(&chassis).await;
    // Later than the first retransmission: every request is sent twice and answered four times.
    let late = Fault::Delay(Duration::from_millis(70));
    server.faults().set(&[late, Fault::Duplicate]);
    let mut session = client(server.address()).connect().await.unwrap();
    for round in 1..=4 {
        session.power(PowerVerb::On).await.unwrap();
        assert_eq!(session.power_status().await.unwrap(), PowerState::On);
        assert_eq!(chassis.controls(), round);
    }
    session.close().await;
    assert!(server.faults().fired(late) > 12);
    assert_eq!(server.faults().fired(late), server.faults().fired(Fault::Duplicate));
}

#[tokio::test]
async fn a_lying_bmc_accepts_and_does_nothing() {
    let chassis = Chassis::off();
    let server = bmc(&chassis).await;
    server.faults().set(&[Fault::PowerLies]);
    let client = client(server.address());
    client.power(PowerVerb::On).await.unwrap();
    assert_eq!(client.power_status().await.unwrap(), PowerState::Off);
    assert_eq!((server.faults().fired(Fault::PowerLies), chassis.controls()), (1, 0));
}

#[tokio::test]
async fn sessions_are_always_closed() {
    let server = bmc_with(&Chassis::off(), with_sessions(2)).await;
    let mut wrong = client_config(server.address());
    wrong.credentials = Credentials::new("admin", "wrong").unwrap();
    let wrong = BmcClient::new(wrong);
    let mut right = client_config(server.address());
    right.timing.free_session = Duration::ZERO;
    let right = BmcClient::new(right);
    // A leaked session would be missing at the second round.
    for round in 0..20 {
        wrong.power_status().await.unwrap_err();
        right.power(PowerVerb::Cycle).await.unwrap_err();
        right.power_status().await.unwrap();
        drop(right.connect().await.unwrap());
        // An operation is cancelled while the client waits for its answer.
        let mut session = right.connect().await.unwrap();
        server.faults().set(&[Fault::Delay(Duration::from_millis(30))]);
        let cancelled = tokio::time::timeout(Duration::from_millis(5), session.power_status()).await;
        assert!(cancelled.is_err(), "round {round}");
        drop(session);
        server.faults().set(&[]);
    }
}

#[tokio::test]
async fn a_cold_reset_ends_every_session_and_leaves_the_machine_alone() {
    let chassis = Chassis::off();
    let server = bmc_with(&chassis, with_sessions(2)).await;
    let somebody = client(server.address());
    somebody.power(PowerVerb::On).await.unwrap();
    let _stale = somebody.connect().await.unwrap();
    let mut config = client_config(server.address());
    let refused = BmcClient::new(config.clone()).connect().await.unwrap().cold_reset().await.unwrap_err();
    assert!(refused.to_string().ends_with("Cold Reset failed: insufficient privilege (0xd4)"), "{refused}");
    config.privilege = Privilege::Administrator;
    let administrator = BmcClient::new(config);
    administrator.connect().await.unwrap().cold_reset().await.unwrap();
    assert_eq!((server.restarts(), chassis.is_on(), chassis.controls()), (1, true, 1));
    let (_first, _second) = (somebody.connect().await.unwrap(), somebody.connect().await.unwrap());
}

#[tokio::test]
async fn a_bmc_that_resets_without_an_answer_has_done_it() {
    let server = bmc(&Chassis::off()).await;
    let mut config = client_config(server.address());
    config.privilege = Privilege::Administrator;
    let session = BmcClient::new(config).connect().await.unwrap();
    server.faults().set(&[Fault::Unreachable]);
    session.cold_reset().await.unwrap();
}

/// A BMC with this many sessions.
fn with_sessions(limit: usize) -> ServerConfig {
    let mut config = server_config();
    config.sessions = limit;
    config
}

#[tokio::test]
async fn a_session_that_becomes_free_is_waited_for() {
    let server = bmc_with(&Chassis::off(), with_sessions(2)).await;
    let somebody = client(server.address());
    let (first, second) = (somebody.connect().await.unwrap(), somebody.connect().await.unwrap());
    let mut patient = client_config(server.address());
    patient.timing.free_session = Duration::from_secs(20);
    let patient = BmcClient::new(patient);
    let releases = async {
        let error = client(server.address()).power_status().await.unwrap_err();
        assert!(matches!(error.failure, Failure::NoFreeSession { waited } if !waited.is_zero()), "{error}");
        let says = error.to_string();
        assert!(error.failure.is_transient() && says.contains("all of its sessions are in use"), "{says}");
        assert!(says.contains("other programs hold them"), "{says}");
        first.close().await;
    };
    let (power, ()) = tokio::join!(patient.power_status(), releases);
    assert_eq!(power.unwrap(), PowerState::Off);
    second.close().await;
}
