//! Accounts that machines make on their BMCs, at a played rack: from the task to the power commands.

use crate::linked::Linked;
use crate::support::{Lab, lab};
use crate::traces::ephemeral_image;
use basalt_api::agent::bmc_purpose;
use basalt_api::agent::{self, AddressSource, BmcAccount, BmcEnd, Inventory, Outcome, Task, TaskResult};
use basalt_api::sealing;
use basalt_engine::Policy;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{AgentResult, Bmc, BootConcern, Fact, PowerConcern, fact};
use basalt_region::controller::Controller;
use prost::Message;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const MAC: &str = "52:54:00:00:00:0a";

/// A rack at 10.77.0.2, and where the machine stands.
async fn site() -> (Lab, Controller, Linked) {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    ephemeral_image(&lab).await;
    lab.api.declare("/api/v1/fabrics/lab", "{}").await;
    lab.api.declare("/api/v1/vlans/lab.0", r#"{"fabric":"lab","vid":0,"dhcp":{"enabled":true}}"#).await;
    lab.api.declare("/api/v1/subnets/lab", r#"{"vlan":"lab.0","cidr":"10.77.0.0/24"}"#).await;
    let place = json!({"subnet": "lab", "address": "10.77.0.9", "mac": MAC}).to_string();
    lab.api.declare("/api/v1/ip_addresses/web1", &place).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    (lab, controller, rack)
}

async fn declare(lab: &Lab, spec: &Value) {
    lab.api.declare("/api/v1/machines/web1", &spec.to_string()).await;
}

async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::task::yield_now().await;
    }
}

fn last<C: Message + Default>(rack: &Linked, name: &str) -> Option<C> {
    let told = rack.told().concerns;
    let version = told.iter().rfind(|version| version.concern == name)?;
    Some(C::decode(version.body.as_slice()).expect("a concern"))
}

/// The task that the machine is told to boot, of a later attempt than `before`.
async fn task(rack: &Linked, before: u64) -> Task {
    until("a task", async || {
        let boot: BootConcern = last(rack, "boot")?;
        boot.machines.into_iter().find_map(|machine| match machine.action? {
            Action::Ephemeral(boot) if boot.attempt > before => {
                Some(serde_json::from_slice(&boot.task_json).expect("a task"))
            }
            _ => None,
        })
    })
    .await
}

/// The machine's BMC, as the rack was told it last.
fn bmc(rack: &Linked) -> Option<Bmc> {
    last::<PowerConcern>(rack, "power")?.bmcs.into_iter().next()
}

async fn bmc_of(rack: &Linked, user: &str) -> Bmc {
    until("the rack has the BMC", async || bmc(rack).filter(|it| it.username == user)).await
}

async fn bmc_status(lab: &Lab) -> Value {
    lab.api.get("/api/v1/machines/web1").await.json()["status"]["bmc"].clone()
}

/// The account that the task asks for, with this password.
fn made(task: &Task, password: &str) -> BmcEnd {
    let wanted = task.bmc.as_ref().expect("an account is wanted");
    let purpose = bmc_purpose(&task.machine_uid, task.attempt);
    let key = hex::decode(&wanted.key).expect("a key");
    let sealed = sealing::seal(&key, &purpose, password.as_bytes()).expect("it is sealed");
    BmcEnd::Made(BmcAccount { user: wanted.user.clone(), slot: 3, channel: 1, password: hex::encode(sealed) })
}

/// Brings the task's result. The machine has a BMC at 10.77.0.101.
async fn ends(rack: &Linked, task: &Task, bmc: Option<BmcEnd>) {
    let found = agent::Bmc {
        manufacturer: "Supermicro".to_owned(),
        channel: Some(1),
        address: Some("10.77.0.101".to_owned()),
        address_source: Some(AddressSource::Static),
        ..agent::Bmc::default()
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
    };
    let json = serde_json::to_vec(&result).unwrap();
    let body = Some(fact::Body::Result(AgentResult { json, address: "10.77.0.9".to_owned() }));
    let (machine_uid, attempt) = (task.machine_uid.clone(), task.attempt);
    rack.brings(Fact { machine_uid, mac: MAC.to_owned(), attempt, body, ..Fact::default() }).await;
}

#[tokio::test]
async fn a_machine_without_a_declared_bmc_makes_its_account_and_racks_use_it() {
    let (lab, _controller, rack) = site().await;
    declare(&lab, &json!({"boot_macs": [MAC]})).await;
    let task = task(&rack, 0).await;
    assert_eq!(task.bmc.as_ref().expect("an account is wanted").user, "basalt");
    assert!(rack.told().commands.is_empty(), "nobody can log in yet");
    ends(&rack, &task, Some(made(&task, "a-password-of-it"))).await;

    let told = bmc_of(&rack, "basalt").await;
    assert_eq!((told.address.as_str(), told.password.as_str()), ("10.77.0.101", "a-password-of-it"));
    assert_eq!(told.account, task.attempt);
    let status = until("a rack has used the account", async || {
        Some(bmc_status(&lab).await).filter(|it| it["account"]["checked"] == true)
    })
    .await;
    assert!(rack.told().commands.iter().all(|command| command.bmc_account == task.attempt));
    assert_eq!((&status["vendor"], &status["account"]["revision"]), (&json!("Supermicro"), &json!(1)));
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
    assert_eq!(bmc(&rack).expect("a BMC").username, "admin");
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
