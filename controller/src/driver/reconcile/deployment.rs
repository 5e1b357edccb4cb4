//! The reconciliation of a deployment: it claims a machine, and reports its machine's report.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use basalt_api::agent::Inventory;
use basalt_api::kinds::{
    Axes, Condition, DeploymentSpec, DeploymentStatus, InstallStage, Lifecycle, NetworkConfig, Operation,
    Progress, Sync, Timings, phase,
};
use basalt_api::values::{Attempt, DeploymentId, MachineId, Timestamp};
use basalt_db::{Fact, Object, Requeue, StoreError, WorkLease};
use basalt_engine::deployment::{DeploymentAction, DeploymentInput, DeploymentPlan, plan_deployment};
use basalt_engine::input::Claim;
use basalt_engine::plan;
use basalt_engine::render::Network;
use basalt_engine::select::Choice;
use basalt_engine::{Plan, steps::StepId};

use crate::driver::allocate::{Decided, suppose};
use crate::driver::context::Driver;
use crate::driver::machine::{Loaded, installed_disk};
use crate::driver::status::to_json;
use crate::driver::stored::spec;
use crate::driver::topology::estate::Estate;

/// The interval while no machine matches. Changes wake it earlier; this is for lost wake-ups.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// A deployment with its machine.
pub(crate) struct Seen {
    pub(crate) machine: Option<(Object, Loaded, Plan)>,
    /// The decision about its machine, while it has none.
    pub(crate) choice: Option<Choice>,
    pub(crate) planned: DeploymentPlan,
}

/// Reconciles one deployment.
///
/// # Errors
/// Fails if the database fails, or if the lease is over.
pub async fn reconcile(driver: &Driver, lease: &WorkLease) -> Result<Requeue, StoreError> {
    let Some(object) = driver.store.get_by_uid(lease.uid).await? else { return Ok(Requeue::WhenWoken) };
    let now = driver.store.now().await?;
    let declared: DeploymentSpec = spec(&object)?;
    let mut choice = None;
    let held = driver.store.claimed_by(DeploymentId::from(object.uid)).await?;
    if held.is_none() && object.deletion_requested_at.is_none() {
        choice = match driver.allocator.decide(&driver.store, &driver.topology, &object, lease.epoch).await? {
            Decided::Waits(misses) => Some(Choice::None(misses)),
            Decided::Claimed | Decided::Overtaken => return Ok(Requeue::After(Duration::ZERO)),
        };
    }
    let estate = driver.estate().await?;
    let seen = Box::pin(look((driver, &estate), &object, declared, now, choice)).await?;
    match seen.planned.action {
        // It has just lost its machine. Machines are given away in rounds, so it is reconciled again.
        DeploymentAction::Claim(_) => Ok(Requeue::After(Duration::ZERO)),
        DeploymentAction::Delete => {
            driver.store.release_addresses(object.uid, &[]).await?;
            driver.store.finalise(object.uid).await?;
            // Wake the deployments that wait for this one's machine.
            driver.store.enqueue_waiting().await?;
            driver.allocator.note_any();
            Ok(Requeue::WhenWoken)
        }
        DeploymentAction::None => {
            let status = status(&object, &seen, now)?;
            driver.write_status(lease, object.generation, &to_json(&status)?).await?;
            Ok(if seen.machine.is_some() { Requeue::WhenWoken } else { Requeue::After(LOOK_AGAIN) })
        }
    }
}

/// Plans a deployment as if its spec were `declared`. `choice` is the decision about its machine, if known.
pub(crate) async fn look(
    (driver, estate): (&Driver, &Estate),
    object: &Object,
    declared: DeploymentSpec,
    now: Timestamp,
    choice: Option<Choice>,
) -> Result<Seen, StoreError> {
    let claimed = driver.store.claimed_by(DeploymentId::from(object.uid)).await?;
    let machine = match claimed {
        Some((uid, _)) => driver.store.get_by_uid(uid.into()).await?,
        None => None,
    };
    let machine = match machine {
        Some(machine) => {
            let mut loaded = estate.machine(&driver.store, &machine).await?;
            let claim = loaded.input.claim.take();
            loaded.input.claim = Some(estate.as_if(object, &declared, now, claim));
            let planned = plan(&loaded.input, &estate.policy(&driver.policy), now);
            Some((machine, loaded, planned))
        }
        None => None,
    };
    let choice = match (&machine, choice) {
        (None, None) if object.deletion_requested_at.is_none() => {
            let alone = [(object, declared.clone())];
            suppose(&driver.store, &driver.topology, &alone).await?.0.remove(&DeploymentId::from(object.uid))
        }
        (_, choice) => choice,
    };
    let input = DeploymentInput {
        name: object.name.clone(),
        spec: declared,
        deletion_requested_at: object.deletion_requested_at,
        claimed: machine.as_ref().map(|(_, loaded, planned)| (loaded.input.uid, planned)),
        choice: choice.as_ref(),
        since: object.created_at,
    };
    let planned = plan_deployment(&input, now);
    Ok(Seen { machine, choice, planned })
}

/// The plan of a machine, as if a deployment had claimed it.
pub(crate) async fn if_claimed(
    (driver, estate): (&Driver, &Estate),
    object: &Object,
    declared: &DeploymentSpec,
    machine: MachineId,
    now: Timestamp,
) -> Result<Option<(Object, Plan)>, StoreError> {
    let Some(machine) = driver.store.get_by_uid(machine.into()).await? else { return Ok(None) };
    let mut loaded = estate.machine(&driver.store, &machine).await?;
    loaded.input.claim = Some(estate.as_if(object, declared, now, None));
    let planned = plan(&loaded.input, &estate.policy(&driver.policy), now);
    Ok(Some((machine, planned)))
}

fn status(object: &Object, seen: &Seen, now: Timestamp) -> Result<DeploymentStatus, StoreError> {
    let declared: DeploymentSpec = spec(object)?;
    let before: DeploymentStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
    let mut status = DeploymentStatus::default();
    status.common.observed_generation = object.generation;
    status.common.conditions = seen.planned.conditions.clone();
    basalt_engine::machine::carry_since(&before.common.conditions, &mut status.common.conditions, now);
    status.stage = Some(seen.planned.stage);
    match &seen.machine {
        Some((machine, loaded, planned)) => {
            of_machine(&mut status, &before.timings, &declared, (machine, loaded, planned));
        }
        None => status.axes = waiting(&seen.planned),
    }
    status.phase = Some(phase(&status.axes).to_owned());
    Ok(status)
}

/// The axes of a deployment without a machine.
fn waiting(planned: &DeploymentPlan) -> Axes {
    Axes {
        lifecycle: if planned.stage == InstallStage::Releasing {
            Lifecycle::Releasing
        } else {
            Lifecycle::New
        },
        operation: Operation::Waiting,
        operation_detail: planned.waits.first().map(|wait| wait.message.clone()),
        sync: Sync::Drifted,
        ..Axes::default()
    }
}

/// The addresses of an installed system.
#[derive(Default)]
pub(crate) struct Shown {
    /// The first address of each interface.
    first: BTreeMap<String, IpAddr>,
    /// The further addresses, by interface and name: `INTERFACE/NAME`.
    further: BTreeMap<String, IpAddr>,
}

impl Shown {
    /// The first and the further addresses in one map.
    pub(crate) fn all(self) -> BTreeMap<String, IpAddr> {
        self.first.into_iter().chain(self.further).collect()
    }
}

/// The addresses of an installed system: those that its interfaces own. For the boot interface, the address of its reports may be used.
pub(crate) fn addresses(
    (network, claim): (Option<&NetworkConfig>, Option<&Claim>),
    inventory: &Inventory,
    seen: Option<IpAddr>,
) -> Shown {
    let network = claim.and_then(|claim| Network::resolve(network, inventory, &claim.assigned).ok());
    let mut shown = Shown::default();
    for interface in network.map(|network| network.interfaces).unwrap_or_default() {
        for fixed in interface.addresses.into_iter().flat_map(|addresses| addresses.fixed) {
            match fixed.name {
                Some(name) => shown.further.insert(format!("{}/{name}", interface.name), fixed.address),
                None => shown.first.insert(interface.name.clone(), fixed.address),
            };
        }
    }
    let boots = inventory.nics.iter().find(|nic| nic.boot);
    // The report may have come from another interface.
    if let (Some(nic), Some(seen)) = (boots, seen)
        && !shown.first.values().chain(shown.further.values()).any(|owned| *owned == seen)
    {
        shown.first.entry(nic.name.clone()).or_insert(seen);
    }
    shown
}

fn of_machine(
    status: &mut DeploymentStatus,
    before: &Timings,
    declared: &DeploymentSpec,
    (machine, loaded, planned): (&Object, &Loaded, &Plan),
) {
    let facts = &loaded.input.facts;
    status.axes = planned.report.axes.clone();
    status.machine = machine.name.parse().ok().map(basalt_api::Ref::new);
    status.hostname = declared.hostname.clone().or_else(|| machine.name.parse().ok());
    status.progress = planned.report.activity.clone().map(|message| {
        let at = facts.progress.values().map(|p| p.at).max().unwrap_or(Timestamp::UNIX_EPOCH);
        let mut progress = Progress::new(message, at);
        progress.percent = planned.report.percent;
        progress
    });
    let Some(attempt) = planned.report.installed_by else { return };
    let arm =
        loaded.input.records.iter().find(|r| r.step == StepId::ArmInstall && r.attempt == Some(attempt));
    status.image_digest = arm.and_then(|record| record.cause.image);
    status.disk = installed_disk(&loaded.markers, loaded.input.uid);
    status.logs =
        facts.results.get(&attempt).and_then(|result| result.logs.as_ref()).map(ToString::to_string);
    let reported = facts.readiness.get(&attempt).map(|r| r.address.clone());
    let address = reported.or_else(|| facts.lease.as_ref().map(|lease| lease.address.clone()));
    status.address = address.as_ref().and_then(|address| address.parse().ok());
    if let Some(seen) = &facts.inventory {
        let address = address.and_then(|address| address.parse().ok());
        let of = (loaded.input.network(), loaded.input.claim.as_ref());
        let shown = addresses(of, &seen.inventory, address);
        (status.addresses, status.further_addresses) = (shown.first, shown.further);
    }
    let allocated_at = arm.map(|record| record.started_at);
    let timings = Timings {
        allocated_at,
        install_started_at: facts.claims.get(&attempt).map(|claim| claim.at),
        installed_at: facts.results.get(&attempt).map(|result| result.at),
        booted_at: booted_at(before, allocated_at, first_report(&loaded.facts, attempt)),
        ready_at: status
            .common
            .condition(Condition::READY)
            .filter(|ready| ready.status == basalt_api::kinds::ConditionStatus::True)
            .map(|ready| ready.since),
    };
    status.timings = timings;
}

/// When the installed system first booted. The system reports at each boot, and only the latest report of each level is read. So an
/// earlier known time of the same attempt is kept; an attempt is recognised by its time of allocation.
fn booted_at(
    before: &Timings,
    allocated_at: Option<Timestamp>,
    reported: Option<Timestamp>,
) -> Option<Timestamp> {
    let is_same = allocated_at.is_some() && before.allocated_at == allocated_at;
    before.booted_at.filter(|_| is_same).or(reported)
}

/// The first report of an attempt's installed system among these facts. The system reports again when cloud-init is done.
fn first_report(facts: &[Fact], attempt: Attempt) -> Option<Timestamp> {
    let reports = facts.iter().filter(|fact| fact.kind == "readiness" && fact.attempt == Some(attempt));
    reports.map(|fact| fact.stored_at).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::agent::Nic;
    use basalt_api::values::{Generation, Uid};
    use basalt_engine::render::Assigned;
    use serde_json::json;

    #[test]
    fn a_system_booted_when_it_reported_first_and_not_when_its_cloud_init_was_done() {
        let report = |id: i64, attempt: u64, level: &str| Fact {
            id,
            kind: "readiness".to_owned(),
            source: "r1".to_owned(),
            step_key: None,
            attempt: Some(Attempt::new(attempt)),
            body: json!({ "level": level }),
            observed_at: Timestamp::UNIX_EPOCH,
            stored_at: Timestamp::from_second(id).unwrap(),
        };
        let facts = [report(10, 6, "booted"), report(20, 7, "booted"), report(50, 7, "cloud_init")];
        assert_eq!(first_report(&facts, Attempt::new(7)), Timestamp::from_second(20).ok());
        assert_eq!(first_report(&facts, Attempt::new(8)), None);
    }

    #[test]
    fn a_system_that_boots_again_has_booted_when_it_did_so_first() {
        let at = |second| Timestamp::from_second(second).ok();
        let first = booted_at(&Timings::default(), at(10), at(20));
        assert_eq!(first, at(20));
        let before = Timings { allocated_at: at(10), booted_at: first, ..Timings::default() };
        assert_eq!(booted_at(&before, at(10), at(90)), at(20), "it was booted again");
        assert_eq!(booted_at(&before, at(100), None), None, "it is installed again");
        assert_eq!(booted_at(&before, at(100), at(130)), at(130));
        assert_eq!(booted_at(&before, None, at(90)), at(90));
    }

    #[test]
    fn every_address_that_an_interface_owns_is_shown_and_the_one_it_boots_with() {
        let nic = |name: &str, mac: &str, boot| Nic {
            name: name.to_owned(),
            mac: mac.to_owned(),
            boot,
            ..Nic::default()
        };
        let nics = vec![nic("enp1s0", "52:54:00:00:00:01", true), nic("enp2s0", "52:54:00:00:00:02", false)];
        let inventory = Inventory { nics, ..Inventory::default() };
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let claim = |interfaces: serde_json::Value, owned: &[(&str, &str)]| {
            let spec =
                json!({"image": "debian-12", "machine": "web1", "network": {"interfaces": interfaces}});
            let assigned = owned.iter().map(|(name, owned)| {
                let assigned = Assigned {
                    address: address(owned),
                    prefix_len: 24,
                    gateway: None,
                    dns_servers: Vec::new(),
                    ntp_servers: Vec::new(),
                    mtu: None,
                    routes: Vec::new(),
                    search_domains: Vec::new(),
                };
                ((*name).to_owned(), assigned)
            });
            Claim {
                uid: Uid::generate().into(),
                name: "web".to_owned(),
                generation: Generation::new(1),
                spec: serde_json::from_value(spec).unwrap(),
                claimed_at: Timestamp::UNIX_EPOCH,
                deletion_requested_at: None,
                assigned: assigned.collect(),
                unassigned: BTreeMap::new(),
                image: None,
            }
        };
        let shown = |claim: &Claim, seen: &str| {
            let of = (claim.spec.network.as_ref(), Some(claim));
            let shown = addresses(of, &inventory, Some(address(seen)));
            shown
                .first
                .into_iter()
                .chain(shown.further)
                .map(|(name, address)| format!("{name} {address}"))
                .collect::<Vec<_>>()
        };
        let (boots, other) =
            (json!({"addressing": "dhcp"}), json!({"addressing": "auto", "mac": "52:54:00:00:00:02"}));
        let dhcp_and_auto = claim(json!({"enp1s0": boots, "storage": other}), &[("storage", "10.88.0.9")]);
        assert_eq!(shown(&dhcp_and_auto, "10.77.0.5"), ["enp1s0 10.77.0.5", "enp2s0 10.88.0.9"]);
        assert_eq!(shown(&dhcp_and_auto, "10.88.0.9"), ["enp2s0 10.88.0.9"], "it reported from there");
        let both = json!({"enp1s0": {"addressing": "auto"}, "enp2s0": {"addressing": "auto"}});
        let both = claim(both, &[("enp1s0", "10.77.0.7"), ("enp2s0", "10.88.0.9")]);
        assert_eq!(
            shown(&both, "10.77.0.200"),
            ["enp1s0 10.77.0.7", "enp2s0 10.88.0.9"],
            "leased to the installer"
        );
        let six = json!({"enp1s0": {"addresses": {"six": {"subnet": "lab6"}}}});
        let six = claim(six, &[("enp1s0", "10.77.0.7"), ("enp1s0/six", "2001:db8:77::7")]);
        assert_eq!(shown(&six, "2001:db8:77::7"), ["enp1s0 10.77.0.7", "enp1s0/six 2001:db8:77::7"]);
        assert_eq!(shown(&claim(json!({}), &[]), "10.77.0.5"), ["enp1s0 10.77.0.5"]);
    }
}
