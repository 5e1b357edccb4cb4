//! Undeclared machines that boot from the network (docs/decisions/090-enlistment.md).
//!
//! | reconciliation of | does |
//! | --- | --- |
//! | a rack | sends the rack the machines that it may inspect ([`enlist`](crate::driver::entries::enlist)), and creates a Discovery for each inspected one ([`note`]) |
//! | a Discovery | reports the result, and creates a Machine if Settings or the VLAN say so ([`reconcile`]) |
//! | a Machine | takes the result over, so that it needs no inspection of its own ([`adopt`]) |

use std::collections::BTreeSet;

use basalt_api::agent::TaskResult;
use basalt_api::kinds::{
    Condition, DiscoverySort, DiscoveryStatus, EnlistMode, Inventory, ProposedMachine, Vlan,
};
use basalt_api::{Kind, Ref};

use basalt_api::values::{Mac, Timestamp};
use basalt_db::{
    FORGET, Key, LeftOut, MADE, MOST_OF_VLAN, NEW_STRANGERS, Object, Precondition, Put, Requeue, StoreError,
    Stranger, WorkLease, splice,
};

use crate::driver::context::Driver;
use crate::driver::entries::enlist::mode;
use crate::driver::machine::Loaded;
use crate::driver::reconcile::discovery;
use crate::driver::status::{settled, to_json};
use crate::driver::topology::estate::Estate;
use machine::{Found, name_by_mac, proposed};

mod machine;

/// The time between two reconciliations of a Discovery, also without a new result.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(300);
/// The manager of Machines that enlistment creates.
pub const MANAGER: &str = "enlistment";

/// Remarks about VLANs whose undeclared machines were left out within the last day, for the rack that serves them.
pub(crate) fn left_out(all: Vec<LeftOut>, vlans: &BTreeSet<Ref<Vlan>>) -> Vec<LeftOut> {
    all.into_iter().filter(|it| it.is_recent && vlans.iter().any(|vlan| vlan.as_str() == it.vlan)).collect()
}

/// The text about undeclared machines that were left out.
pub(crate) fn words(LeftOut { vlan, count, at, .. }: &LeftOut) -> String {
    format!(
        "undeclared machines of {vlan} are left out, the last one at {} ({count} so far): the VLAN had {MOST_OF_VLAN} undeclared machines, or \
         the region had 10,000",
        at.strftime("%Y-%m-%d %H:%M:%S UTC")
    )
}

/// Creates a Discovery for each inspected machine without one, up to a limit. True: there are more.
///
/// # Errors
/// Fails if the database cannot be written.
pub(crate) async fn note(driver: &Driver, now: Timestamp) -> Result<bool, StoreError> {
    let names = driver.store.new_strangers().await?;
    for name in &names {
        discovery::make(driver, name, now).await?;
    }
    Ok(names.len() >= NEW_STRANGERS)
}

/// Reconciles the Discovery of a machine. It is deleted if the machine was not inspected for 30 days.
///
/// # Errors
/// Fails if the lease is over, or if the database cannot be read or written.
pub(crate) async fn reconcile(
    driver: &Driver,
    lease: &WorkLease,
    object: &Object,
    stranger: &Stranger,
) -> Result<Requeue, StoreError> {
    let estate = driver.estate().await?;
    let now = driver.store.now().await?;
    let declared = driver.store.machines_with(&stranger.macs).await?;
    let is_forgotten = now.duration_since(stranger.last_seen) > FORGET.try_into().unwrap_or_default();
    if is_forgotten || declared.iter().any(|machine| machine.has_result) {
        driver.store.forget_stranger(stranger.id).await?;
        let key = Key::Uid(object.uid);
        driver.store.request_deletion("Discovery", key, Precondition::None, false).await?;
        return Ok(Requeue::WhenWoken);
    }
    let result: TaskResult = serde_json::from_value(stranger.body.clone())
        .map_err(|error| StoreError::Corrupt(format!("what was found of {:?}: {error}", stranger.name)))?;
    let boot_mac: Mac = stranger
        .boot_mac
        .parse()
        .map_err(|_| StoreError::Corrupt(format!("{:?} is no MAC address", stranger.boot_mac)))?;
    let inventory = result.inventory.unwrap_or_default();
    let at = stranger.address;
    let net = at.and_then(|at| estate.nets.iter().find(|net| net.subnet.cidr.contains(at)));
    let found = Found {
        boot_mac,
        inventory: &inventory,
        rack: stranger.rack(),
        vlan: net.map(|net| net.subnet.vlan.as_str()),
    };
    let proposal = proposed(found, &estate.settings.enlistment);
    let creates =
        net.filter(|net| matches!(mode(&estate, net), EnlistMode::Create | EnlistMode::CreateAndCommission));
    let refused = match (creates, declared.first()) {
        (Some(net), None) => {
            create(driver, &proposal, name_by_mac(boot_mac), net.subnet.vlan.as_str(), now).await?
        }
        _ => None,
    };
    let before: DiscoveryStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
    let mut status = DiscoveryStatus::default();
    status.common.observed_generation = object.generation;
    status.sort = Some(DiscoverySort::UnknownMac);
    status.mac = Some(boot_mac);
    status.macs = stranger.macs.iter().filter_map(|mac| mac.parse().ok()).collect();
    status.addresses = at.into_iter().collect();
    status.vlan = net.map(|net| net.subnet.vlan.clone());
    status.racks = stranger.sources.iter().filter_map(|it| it.parse().ok()).collect();
    status.first_seen_at = Some(stranger.first_seen);
    status.last_seen_at = Some(stranger.last_seen);
    status.inventory = Some(Inventory::from_agent(&inventory, &result.markers));
    let is_declared = declared.first().map(|machine| machine.name.as_str());
    status.common.conditions = conditions(&object.name, &proposal, is_declared, refused.as_ref(), now);
    status.proposal = Some(proposal);
    basalt_engine::machine::carry_since(&before.common.conditions, &mut status.common.conditions, now);
    driver.write_status(lease, object.generation, &to_json(&status)?).await?;
    Ok(Requeue::After(LOOK_AGAIN))
}

fn conditions(
    name: &str,
    proposal: &ProposedMachine,
    declared: Option<&str>,
    refused: Option<&NotCreated>,
    now: Timestamp,
) -> Vec<Condition> {
    match (declared, refused) {
        (Some(machine), _) => {
            let message =
                format!("Machine {machine:?} has one of its MAC addresses, and takes over what was found");
            settled(true, "Declared", &message, now)
        }
        (None, Some(NotCreated::Refused(why))) => {
            settled(false, "NotCreated", &format!("no Machine was made of it: {why}"), now)
        }
        (None, Some(NotCreated::TooMany(vlan))) => {
            let message = format!(
                "no Machine was made of it yet: enlistment makes {MADE} Machines in a VLAN at once and one more each minute, and {vlan} has had so \
                 many; wait, or run `basalt accept {name}`; if one host invents machines, find it, and delete its Discoveries and Machines"
            );
            settled(false, "EnlistmentLimit", &message, now)
        }
        (None, None) => {
            let message = format!(
                "it booted from the network, and nobody declared it: run `basalt accept {name}` to have Machine {:?} made of it, declare a Machine \
                 with one of its MAC addresses, or have it ignored (enlistment.ignore of Settings)",
                proposal.name
            );
            settled(false, "Undeclared", &message, now)
        }
    }
}

/// The reason why enlistment makes no Machine.
#[derive(Debug)]
enum NotCreated {
    /// The store refuses the Machine, for this reason.
    Refused(String),
    /// Enlistment has made too many Machines in this VLAN.
    TooMany(String),
}

/// Creates a Machine, within the budget of the VLAN. Returns the reason if it cannot.
async fn create(
    driver: &Driver,
    proposal: &ProposedMachine,
    second: String,
    vlan: &str,
    now: Timestamp,
) -> Result<Option<NotCreated>, StoreError> {
    if !driver.store.take_enlistment(vlan).await? {
        return Ok(Some(NotCreated::TooMany(vlan.to_owned())));
    }
    let refused = put(driver, proposal, second, now).await;
    if !matches!(refused, Ok(None)) {
        driver.store.return_enlistment(vlan).await?;
    }
    Ok(refused?.map(NotCreated::Refused))
}

/// Creates a Machine. Returns the reason if the store refuses it.
async fn put(
    driver: &Driver,
    proposal: &ProposedMachine,
    second: String,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    let kind = Kind::find("Machine").ok_or_else(|| StoreError::Corrupt("Machine is no kind".to_owned()))?;
    let mut spec = to_json(proposal)?;
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("name");
        fields.retain(|_, value| !value.is_null());
    }
    let text =
        splice::Text::parse(spec.to_string()).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let mut refused = None;
    for name in [proposal.name.clone(), second] {
        let put = Put {
            kind,
            key: Key::Name(&name),
            spec: &text,
            at: "",
            labels: None,
            manager: Some(MANAGER),
            adopt: true,
            precondition: Precondition::Absent,
            first_status: &crate::api::first_status(kind.name, now),
        };
        match driver.store.put(&put).await {
            Ok(_) => return Ok(None),
            Err(error @ (StoreError::Exists { .. } | StoreError::Refused { .. })) => {
                refused = Some(basalt_api::in_one_line(&error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

/// Takes over the result of a Machine that was inspected before it was declared. True: the Machine's facts have changed.
///
/// If the commissioning has scripts, the Machine must boot for them, so the result is deleted. It is deleted too if enlistment created the
/// Machine and is to commission it.
///
/// # Errors
/// Fails if the database cannot be written.
pub(crate) async fn adopt(
    driver: &Driver,
    estate: &Estate,
    object: &Object,
    loaded: &Loaded,
) -> Result<bool, StoreError> {
    if loaded.input.facts.inventory.is_some() {
        return Ok(false);
    }
    let is_enlisted = object.manager.as_deref() == Some(MANAGER);
    let at = match is_enlisted {
        true => driver.store.stranger_address(loaded.input.uid).await?,
        false => None,
    };
    let net = at.and_then(|at| estate.nets.iter().find(|net| net.subnet.cidr.contains(at)));
    let commissions = net.is_some_and(|net| mode(estate, net) == EnlistMode::CreateAndCommission);
    let takes = loaded.input.inspection.are_none()
        && loaded.input.recommission_requested_at.is_none()
        && !commissions;
    driver.store.adopt_stranger(loaded.input.uid, takes).await
}
