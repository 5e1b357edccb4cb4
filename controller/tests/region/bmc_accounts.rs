//! Accounts that machines make on their BMCs, at a played rack: from the task to the power commands.

use crate::leases::leased;
use crate::linked::Linked;
use crate::site::{self, MAC, last, site, task, until};
use crate::support::Lab;
use basalt_api::agent::bmc_purpose;
use basalt_api::agent::{
    self, AddressSource, BmcAccount, BmcDriver, BmcEnd, Inventory, Outcome, Task, TaskResult,
};
use basalt_api::sealing;
use basalt_proto::rack_v1::bmc::Trust;
use basalt_proto::rack_v1::{AgentBmcAccount, Bmc, Fact, PowerConcern, fact::Body};
use prost::Message;
use serde_json::{Value, json};
use std::time::Duration;

const BMC_MAC: &str = "52:54:00:00:00:bc";
/// The address of somebody else's host.
const ELSEWHERE: &str = "10.99.11.1";

async fn declare(lab: &Lab, spec: &Value) {
    lab.api.declare("/api/v1/machines/web1", &spec.to_string()).await;
}

/// The machine's BMC in the rack's latest power concern.
fn bmc(rack: &Linked) -> Option<Bmc> {
    last::<PowerConcern>(rack, "power")?.bmcs.into_iter().next()
}

async fn bmc_of(rack: &Linked, user: &str) -> Bmc {
    until("the rack has the BMC", async || bmc(rack).filter(|it| it.username == user)).await
}

/// The passwords that the rack was ever told for a BMC at this address.
fn passwords_for(rack: &Linked, address: &str) -> Vec<String> {
    let concerns = rack.told().concerns;
    let concerns = concerns.iter().filter(|version| version.concern == "power");
    let told = concerns.map(|version| PowerConcern::decode(version.body.as_slice()).expect("a concern"));
    let bmcs = told.flat_map(|concern| concern.bmcs).filter(|bmc| bmc.address == address);
    bmcs.map(|bmc| bmc.password).collect()
}

/// Waits until the account is not used, for a reason with these words.
async fn unused(lab: &Lab, rack: &Linked, why: &str) {
    until(why, async || {
        let problem = bmc_status(lab).await["problem"].as_str().map(str::to_owned)?;
        (problem.contains(why) && bmc(rack).is_none()).then_some(())
    })
    .await;
}

/// The BMC as a machine finds it by Redfish.
fn redfish_at(address: &str, source: AddressSource) -> agent::Bmc {
    let (address, address_source) = (Some(address.to_owned()), Some(source));
    agent::Bmc { driver: BmcDriver::Redfish, address, address_source, ..agent::Bmc::default() }
}

fn made_by_redfish(task: &Task, password: &str) -> Option<BmcEnd> {
    Some(BmcEnd::Made(account(task, BmcDriver::Redfish, password)))
}

async fn bmc_status(lab: &Lab) -> Value {
    lab.api.get("/api/v1/machines/web1").await.json()["status"]["bmc"].clone()
}

/// The account that the task asks for, with this password.
fn made(task: &Task, password: &str) -> BmcEnd {
    BmcEnd::Made(account(task, BmcDriver::Ipmi, password))
}

fn account(task: &Task, driver: BmcDriver, password: &str) -> BmcAccount {
    let wanted = task.bmc.as_ref().expect("an account is wanted");
    let purpose = bmc_purpose(&task.machine_uid, task.attempt);
    let key = hex::decode(&wanted.key).expect("a key");
    let sealed = sealing::seal(&key, &purpose, password.as_bytes()).expect("it is sealed");
    let user = wanted.user.clone();
    BmcAccount { user, driver, slot: None, channel: None, password: hex::encode(sealed) }
}

/// Writes down the password that the machine is about to set.
async fn promises(rack: &Linked, task: &Task, password: &str) {
    let BmcAccount { user, password, .. } = account(task, BmcDriver::Ipmi, password);
    let sealed = hex::decode(password).expect("hex");
    let body = Some(Body::BmcAccount(AgentBmcAccount { user, driver: "ipmi".to_owned(), sealed }));
    let (machine_uid, attempt) = (task.machine_uid.clone(), task.attempt);
    rack.brings(Fact { machine_uid, mac: MAC.to_owned(), attempt, body, ..Fact::default() }).await;
}

async fn operate(lab: &Lab, verb: &str) {
    let body = json!({"verb": verb}).to_string();
    let answer = lab.api.send("POST", "/api/v1/machines/web1/operations", &[], body).await;
    assert!(answer.status.is_success(), "{verb}: {answer:?}");
}

/// Brings the task's result. The machine has a BMC at 10.77.0.101.
async fn ends(rack: &Linked, task: &Task, bmc: Option<BmcEnd>) {
    let address = Some("10.77.0.101".to_owned());
    ends_with(rack, task, bmc, agent::Bmc { address, ..agent::Bmc::default() }).await;
}

async fn ends_with(rack: &Linked, task: &Task, bmc: Option<BmcEnd>, found: agent::Bmc) {
    let found = agent::Bmc {
        manufacturer: "Supermicro".to_owned(),
        product_id: 2404,
        firmware: "1.74".to_owned(),
        mac: Some(BMC_MAC.to_owned()),
        channel: Some(1),
        address_source: found.address_source.or(Some(AddressSource::Static)),
        ..found
    };
    let inventory = Inventory { bmc_present: true, bmc: Some(found), ..Inventory::default() };
    let result = TaskResult {
        attempt: task.attempt,
        outcome: Outcome::Succeeded,
        inventory: Some(inventory),
        markers: Default::default(),
        timings: Default::default(),
        output: None,
        scripts: Vec::new(),
        bmc,
        logs: None,
    };
    site::ends(rack, &result, &task.machine_uid).await;
}

/// Makes a first account and has a rack use it. Returns the task that is to make the second one.
async fn second_account(lab: &Lab, rack: &Linked) -> Task {
    declare(lab, &json!({"boot_macs": [MAC]})).await;
    let first = task(rack, 0).await;
    ends(rack, &first, Some(made(&first, "the-first-one"))).await;
    until("a rack has used the first one", async || {
        Some(bmc_status(lab).await).filter(|it| it["account"]["checked"] == true)
    })
    .await;
    declare(lab, &json!({"boot_macs": [MAC], "bmc": {"driver": "ipmi", "rotate": 1}})).await;
    operate(lab, "recommission").await;
    task(rack, first.attempt).await
}

#[tokio::test]
async fn a_machine_without_a_declared_bmc_makes_its_account_and_racks_use_it() {
    let (lab, _controller, rack) = site().await;
    lab.api.declare("/api/v1/settings/default", r#"{"bmc_user":"region"}"#).await;
    declare(&lab, &json!({"boot_macs": [MAC]})).await;
    let task = task(&rack, 0).await;
    assert_eq!(task.bmc.as_ref().expect("an account is wanted").user, "region");
    assert!(rack.told().commands.is_empty(), "nobody can log in yet");
    ends(&rack, &task, Some(made(&task, "a-password-of-it"))).await;

    let told = bmc_of(&rack, "region").await;
    assert_eq!((told.address.as_str(), told.password.as_str()), ("10.77.0.101", "a-password-of-it"));
    assert_eq!(told.account, task.attempt);
    let status = until("a rack has used the account", async || {
        Some(bmc_status(&lab).await).filter(|it| it["account"]["checked"] == true)
    })
    .await;
    assert!(rack.told().commands.iter().all(|command| command.bmc_account == task.attempt));
    assert_eq!((&status["vendor"], &status["account"]["revision"]), (&json!("Supermicro"), &json!(1)));
    assert_eq!(
        (&status["account"]["username"], status["account"]["made_at"].is_string()),
        (&json!("region"), true)
    );
    let found = ["driver", "address", "address_source", "mac", "channel", "product_id", "firmware"];
    let found = found.map(|field| status[field].clone());
    let expected = json!(["ipmi", "10.77.0.101", "static", "52:54:00:00:00:bc", 1, 2404, "1.74"]);
    assert_eq!(json!(found), expected, "{status}");
    assert!(!status.to_string().contains("a-password-of-it"));
}

#[tokio::test]
async fn what_is_good_is_kept_and_a_rotation_makes_another() {
    let (lab, _controller, rack) = site().await;
    declare(&lab, &json!({"boot_macs": [MAC]})).await;
    let first = task(&rack, 0).await;
    ends(&rack, &first, Some(made(&first, "the-first-one"))).await;
    bmc_of(&rack, "basalt").await;
    until("it is checked", async || {
        Some(bmc_status(&lab).await).filter(|it| it["account"]["checked"] == true)
    })
    .await;

    lab.api.send("POST", "/api/v1/machines/web1/operations", &[], r#"{"verb": "recommission"}"#).await;
    let again = task(&rack, first.attempt).await;
    assert_eq!(again.bmc, None, "the account is good");
    ends(&rack, &again, None).await;

    declare(&lab, &json!({"boot_macs": [MAC], "bmc": {"driver": "ipmi", "rotate": 1}})).await;
    lab.api.send("POST", "/api/v1/machines/web1/operations", &[], r#"{"verb": "recommission"}"#).await;
    let other = task(&rack, again.attempt).await;
    ends(&rack, &other, Some(made(&other, "the-second-one"))).await;
    until("the rack has the new password", async || bmc(&rack).filter(|it| it.password == "the-second-one"))
        .await;
    until("it is the-second-one", async || {
        Some(bmc_status(&lab).await).filter(|it| it["account"]["revision"] == 2)
    })
    .await;
}

#[tokio::test]
async fn where_racks_cannot_use_it_the_declared_account_is_used() {
    let (lab, _controller, rack) = site().await;
    rack.bmcs_refuse_made_passwords();
    let declared =
        json!({"driver": "ipmi", "address": "10.77.0.101", "username": "admin", "password": "secret"});
    declare(&lab, &json!({"boot_macs": [MAC], "bmc": declared, "commissioning": {"bmc": "set_up"}})).await;
    let task = task(&rack, 0).await;
    bmc_of(&rack, "admin").await;
    ends(&rack, &task, Some(made(&task, "a-password-of-it"))).await;
    let status = until("the account is refused", async || {
        Some(bmc_status(&lab).await).filter(|it| it["account"]["refused"] == true)
    })
    .await;
    assert_eq!(status["account"]["checked"], false);
    let told = bmc_of(&rack, "admin").await;
    assert_eq!((told.account, told.password.as_str()), (0, "secret"));
    until("the machine is switched off all the same", async || {
        let machine = lab.api.get("/api/v1/machines/web1").await.json();
        (machine["status"]["axes"]["lifecycle"] == "ready").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_bmc_that_takes_no_account_leaves_the_machine_ready_and_says_why() {
    let (lab, _controller, rack) = site().await;
    declare(&lab, &json!({"boot_macs": [MAC]})).await;
    let task = task(&rack, 0).await;
    let message = "all 3 user slots of the BMC are taken (admin, monitor, backup)".to_owned();
    ends(&rack, &task, Some(BmcEnd::Failed { message: message.clone() })).await;
    let status = until("the reason is told", async || {
        Some(bmc_status(&lab).await).filter(|it| it["problem"].is_string())
    })
    .await;
    assert_eq!((&status["problem"], &status["account"]), (&json!(message), &Value::Null));
    assert_eq!(bmc(&rack), None);
}

#[tokio::test]
async fn who_declares_an_account_is_asked_for_none() {
    let (lab, _controller, rack) = site().await;
    let declared =
        json!({"driver": "ipmi", "address": "10.77.0.101", "username": "admin", "password": "secret"});
    declare(&lab, &json!({"boot_macs": [MAC], "bmc": declared})).await;
    assert_eq!(task(&rack, 0).await.bmc, None);
}

#[tokio::test]
async fn an_account_by_redfish_is_used_by_redfish() {
    let (lab, _controller, rack) = site().await;
    declare(&lab, &json!({"boot_macs": [MAC], "bmc": {"driver": "redfish"}})).await;
    let task = task(&rack, 0).await;
    assert_eq!(task.bmc.as_ref().expect("an account is wanted").driver, Some(BmcDriver::Redfish));
    let found = agent::Bmc {
        driver: BmcDriver::Redfish,
        system: Some("node-3".to_owned()),
        address: Some("10.77.0.101".to_owned()),
        ..agent::Bmc::default()
    };
    let end = BmcEnd::Made(account(&task, BmcDriver::Redfish, "a-password-of-it"));
    ends_with(&rack, &task, Some(end), found).await;
    let told = bmc_of(&rack, "basalt").await;
    assert_eq!((told.driver.as_str(), told.system.as_str()), ("redfish", "node-3"));
    assert_eq!((told.address.as_str(), told.password.as_str()), ("10.77.0.101", "a-password-of-it"));
    until("the status says so", async || Some(bmc_status(&lab).await).filter(|it| it["driver"] == "redfish"))
        .await;

    declare(&lab, &json!({"boot_macs": [MAC], "bmc": {"driver": "ipmi"}})).await;
    until("an account of Redfish is not used by IPMI", async || bmc(&rack).is_none().then_some(())).await;
    operate(&lab, "recommission").await;
    let other = self::task(&rack, task.attempt).await;
    assert_eq!(other.bmc.expect("an account is wanted").driver, Some(BmcDriver::Ipmi));
}

#[tokio::test]
async fn an_account_on_a_bmc_without_an_address_says_what_to_do() {
    let (lab, _controller, rack) = site().await;
    declare(&lab, &json!({"boot_macs": [MAC]})).await;
    let task = task(&rack, 0).await;
    ends_with(&rack, &task, Some(made(&task, "a-password-of-it")), agent::Bmc::default()).await;
    let status = until("the reason is told", async || {
        Some(bmc_status(&lab).await).filter(|it| it["problem"].is_string())
    })
    .await;
    assert!(status["problem"].as_str().is_some_and(|it| it.contains("no address in a management network")));
    assert_eq!((&status["address"], bmc(&rack)), (&Value::Null, None));
}

#[tokio::test]
async fn a_found_bmc_that_no_rack_reaches_is_named_with_its_address_and_what_to_check() {
    let (lab, _controller, rack) = site().await;
    rack.made_accounts_fail("unreachable");
    declare(&lab, &json!({"boot_macs": [MAC]})).await;
    let task = task(&rack, 0).await;
    ends(&rack, &task, Some(made(&task, "a-password-of-it"))).await;
    let status = until("the silence is told", async || {
        let machine = lab.api.get("/api/v1/machines/web1").await.json();
        let said = machine["status"]["conditions"].to_string();
        said.contains("by its BMC at 10.77.0.101: the BMC does not answer").then(|| machine["status"].clone())
    })
    .await;
    let account = &status["bmc"]["account"];
    assert_eq!(
        (&account["checked"], &account["refused"]),
        (&json!(false), &json!(false)),
        "silence refuses nothing"
    );
}

#[tokio::test]
async fn a_password_of_a_machine_that_died_is_used() {
    let (lab, _controller, rack) = site().await;
    let bmc = json!({"driver": "ipmi", "address": "10.77.0.101"});
    declare(&lab, &json!({"boot_macs": [MAC], "bmc": bmc})).await;
    let first = task(&rack, 0).await;
    promises(&rack, &first, "written-ahead").await;
    assert_eq!(self::bmc(&rack), None, "the machine may still set it");
    operate(&lab, "abort").await;
    operate(&lab, "recommission").await;
    let second = task(&rack, first.attempt).await;
    let told = bmc_of(&rack, "basalt").await;
    assert_eq!((told.account, told.password.as_str()), (first.attempt, "written-ahead"));

    ends(&rack, &second, Some(made(&second, "the-second-one"))).await;
    until("the account of the next task replaces it", async || {
        self::bmc(&rack).filter(|it| it.password == "the-second-one")
    })
    .await;
}

#[tokio::test]
async fn a_password_that_was_written_down_does_not_replace_one_that_is_good() {
    let (lab, _controller, rack) = site().await;
    let second = second_account(&lab, &rack).await;
    promises(&rack, &second, "written-ahead").await;
    operate(&lab, "abort").await;
    operate(&lab, "recommission").await;
    task(&rack, second.attempt).await;
    assert_eq!(bmc(&rack).map(|it| it.password).as_deref(), Some("the-first-one"));
    rack.bmcs_refuse_made_passwords();
    let told = until("the BMC refuses the first one", async || {
        bmc(&rack).filter(|it| it.password == "written-ahead")
    })
    .await;
    assert_eq!(told.account, second.attempt);
}

#[tokio::test]
async fn a_password_that_a_bmc_did_not_confirm_is_used_if_the_bmc_refuses_the_one_before() {
    let (lab, _controller, rack) = site().await;
    let second = second_account(&lab, &rack).await;
    promises(&rack, &second, "taken-and-not-told").await;
    ends(&rack, &second, Some(BmcEnd::Failed { message: "the BMC does not answer".to_owned() })).await;
    assert_eq!(bmc(&rack).map(|it| it.password).as_deref(), Some("the-first-one"));
    rack.bmcs_refuse_made_passwords();
    until("the BMC refuses the first one", async || {
        bmc(&rack).filter(|it| it.password == "taken-and-not-told")
    })
    .await;
}

#[tokio::test]
async fn a_password_does_not_follow_a_declared_address_port_or_weaker_tls() {
    let (lab, _controller, rack) = site().await;
    declare(&lab, &json!({"boot_macs": [MAC]})).await;
    let first = task(&rack, 0).await;
    let found = redfish_at("10.77.0.101", AddressSource::Static);
    ends_with(&rack, &first, made_by_redfish(&first, "the-first-one"), found.clone()).await;
    bmc_of(&rack, "basalt").await;

    let address = "made for address 10.77.0.101, and bmc.address is 10.99.11.1; racks do not use the account";
    let moved = json!({"driver": "redfish", "address": ELSEWHERE, "port": 8443, "tls": {"verify": false}});
    for (bmc, why) in [
        (moved, "made for port 443, and bmc.port is 8443"),
        (json!({"driver": "redfish", "address": ELSEWHERE}), address),
        (json!({"driver": "redfish", "port": 8443}), "made for port 443, and bmc.port is 8443"),
        (json!({"driver": "redfish", "tls": {"verify": false}}), "bmc.tls is not as strict"),
    ] {
        declare(&lab, &json!({"boot_macs": [MAC], "bmc": bmc})).await;
        unused(&lab, &rack, why).await;
        let same = json!({"driver": "redfish", "address": "10.77.0.101", "port": 443});
        declare(&lab, &json!({"boot_macs": [MAC], "bmc": same})).await;
        assert_eq!(bmc_of(&rack, "basalt").await.password, "the-first-one");
    }

    declare(&lab, &json!({"boot_macs": [MAC], "bmc": {"driver": "redfish", "address": ELSEWHERE}})).await;
    unused(&lab, &rack, address).await;
    operate(&lab, "recommission").await;
    let second = task(&rack, first.attempt).await;
    ends_with(&rack, &second, made_by_redfish(&second, "the-second-one"), found).await;
    let told = bmc_of(&rack, "basalt").await;
    assert_eq!((told.address.as_str(), told.password.as_str()), (ELSEWHERE, "the-second-one"));
    let went = passwords_for(&rack, ELSEWHERE);
    assert!(went.iter().all(|password| password == "the-second-one"), "{went:?}");
}

#[tokio::test]
async fn a_password_does_not_follow_an_inventory() {
    for driver in [BmcDriver::Ipmi, BmcDriver::Redfish] {
        let (lab, _controller, rack) = site().await;
        declare(&lab, &json!({"boot_macs": [MAC]})).await;
        let first = task(&rack, 0).await;
        let end = Some(BmcEnd::Made(account(&first, driver, "the-first-one")));
        ends_with(&rack, &first, end, redfish_at("10.77.0.101", AddressSource::Static)).await;
        bmc_of(&rack, "basalt").await;

        operate(&lab, "recommission").await;
        let second = task(&rack, first.attempt).await;
        assert_eq!(second.bmc, None, "the account is good");
        ends_with(&rack, &second, None, redfish_at(ELSEWHERE, AddressSource::Dhcp)).await;
        unused(&lab, &rack, "made for address 10.77.0.101, and the BMC now has 10.99.11.1").await;
        assert!(passwords_for(&rack, ELSEWHERE).is_empty());

        operate(&lab, "recommission").await;
        let third = task(&rack, second.attempt).await;
        let end = Some(BmcEnd::Made(account(&third, driver, "the-second-one")));
        ends_with(&rack, &third, end, redfish_at(ELSEWHERE, AddressSource::Dhcp)).await;
        assert_eq!(bmc_of(&rack, "basalt").await.password, "the-second-one");
        let went = passwords_for(&rack, ELSEWHERE);
        assert!(went.iter().all(|password| password == "the-second-one"), "{went:?}");
    }
}

#[tokio::test]
async fn a_bmc_with_a_new_lease_is_followed_if_its_certificate_is_known() {
    const LEASED: &str = "10.77.0.100";
    for (driver, certificate) in [
        (BmcDriver::Redfish, "0a".repeat(32)),
        (BmcDriver::Redfish, String::new()),
        (BmcDriver::Ipmi, String::new()),
    ] {
        let (lab, _controller, rack) = site().await;
        rack.bmcs_show(&certificate);
        declare(&lab, &json!({"boot_macs": [MAC]})).await;
        let task = task(&rack, 0).await;
        let end = Some(BmcEnd::Made(account(&task, driver, "a-password-of-it")));
        ends_with(&rack, &task, end, redfish_at("10.77.0.101", AddressSource::Dhcp)).await;
        until("a rack has used the account", async || {
            Some(bmc_status(&lab).await).filter(|it| it["account"]["checked"] == true)
        })
        .await;
        let trust = (!certificate.is_empty()).then(|| Trust::Sha256(vec![10; 32]));
        until("its certificate is told", async || bmc(&rack).filter(|it| it.trust == trust)).await;

        leased(&lab, "r1", BMC_MAC, "", Duration::from_secs(3600)).await;
        declare(&lab, &json!({"boot_macs": [MAC], "tags": ["moved"]})).await;
        if driver == BmcDriver::Redfish && certificate.is_empty() {
            unused(&lab, &rack, "moved from 10.77.0.101 to 10.77.0.100, and no rack saw its certificate")
                .await;
            assert!(passwords_for(&rack, LEASED).is_empty());
            continue;
        }
        let told = until("it is followed", async || bmc(&rack).filter(|it| it.address == LEASED)).await;
        assert_eq!((told.password.as_str(), told.trust), ("a-password-of-it", trust));
    }
}
