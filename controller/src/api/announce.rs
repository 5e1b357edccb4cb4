//! Computes in advance the result of a write: changes, their effect, the steps that follow, and the digest of all that.
//!
//! A dry run does the whole write in a transaction and rolls it back. A digest that is sent back claims the announced machines together
//! with the batch, or the write is refused (docs/decisions/046-plans.md).

use super::App;
use super::problem::Answer;
use super::rights::Rights;
use super::waiting::WaitsFor;
use crate::driver::answers::departure::Departure;
use crate::driver::{Choices, RequestedOperation, SupposedState};
use basalt_api::kinds::{Deployment, Rack};
use basalt_api::plan::{Consequences, PlanReport, Step};
use basalt_api::values::{Generation, Name, Sha256, Uid};
use basalt_api::wire::{ApplyAction, BlastRadius, Verb};
use basalt_api::{Effect, FieldChange, Kind, KindOf};
use basalt_db::{Key, Object, Overlay, Pruned, Renamed, Stored, Written};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest number of objects that a sentence names.
const NAMED: usize = 20;

/// The action that a write took.
pub(super) fn action(stored: &Stored) -> ApplyAction {
    match (stored.created, stored.changed || stored.relabelled) {
        (true, _) => ApplyAction::Created,
        (false, true) => ApplyAction::Updated,
        (false, false) => ApplyAction::Unchanged,
    }
}

/// The strongest effect of the changes. A new object has no effect on a running system.
pub(super) fn effect(stored: &Stored) -> Effect {
    match stored.created {
        true => Effect::None,
        false => stored.changes.iter().map(|change| change.effect).max().unwrap_or_default(),
    }
}

/// The driver's plans for the objects among these that have one.
async fn planned(
    app: &App,
    these: &[(&Object, SupposedState<'_>)],
    others: Option<&Arc<Overlay>>,
) -> Answer<BTreeMap<Uid, PlanReport>> {
    let these: Vec<_> = these.iter().copied().filter(|(object, _)| Kind::is_planned(&object.kind)).collect();
    let Some(machinery) = app.machinery().filter(|_| !these.is_empty()) else { return Ok(BTreeMap::new()) };
    let uids: Vec<Uid> = these.iter().map(|(object, _)| object.uid).collect();
    Ok(uids.into_iter().zip(machinery.plans(these, others).await?).collect())
}

/// The driver's plan for one object.
async fn planned_alone(
    app: &App,
    object: &Object,
    supposed: SupposedState<'_>,
) -> Answer<Option<PlanReport>> {
    Ok(planned(app, &[(object, supposed)], None).await?.remove(&object.uid))
}

/// The machines that deployments of a batch would get, in one decision. Deployments that have a machine are left out, and other kinds too.
pub(super) async fn choices<'a>(
    app: &App,
    changed: impl Iterator<Item = (&'a Stored, &'a Value)>,
    others: &Arc<Overlay>,
) -> Answer<Choices> {
    let deployments = changed.filter(|(stored, _)| stored.object.kind == Deployment::KIND.name);
    let wanted: Vec<_> = deployments.map(|(stored, wanted)| (&stored.object, wanted)).collect();
    match app.machinery() {
        Some(machinery) if !wanted.is_empty() => Ok(machinery.choose(&wanted, Some(others)).await?),
        _ => Ok(Choices::default()),
    }
}

/// A note about a change of [`basalt_api::kinds::DeploymentSpec::scripts`].
const SCRIPTS_CHANGED: &str = "scripts run at the end of an install: this change counts from the next one on, and a system that runs stays as it is";

/// The plans that follow from the writes of one dry run, in their order. Each has its wanted spec.
pub(super) async fn of_writes(
    app: &App,
    rights: &Rights,
    written: &[(&Stored, &Value)],
    choices: &Choices,
    others: Option<&Arc<Overlay>>,
) -> Answer<Vec<PlanReport>> {
    let mut these = Vec::with_capacity(written.len());
    for (stored, wanted) in written.iter().copied() {
        let choice = choices.by_deployment.get(&stored.object.uid.into());
        these.push((&stored.object, SupposedState { spec: Some(wanted), choice, asked: None }));
    }
    let mut plans = planned(app, &these, others).await?;
    let mut reports = Vec::with_capacity(written.len());
    for (stored, wanted) in written.iter().copied() {
        let mut plan = plans.remove(&stored.object.uid).unwrap_or_else(|| said(in_words(stored)));
        let sets_aside = stored.changes.iter().any(|change| change.pointer == "/maintenance")
            && wanted.get("maintenance") == Some(&Value::Bool(true));
        if sets_aside && stored.object.kind == Rack::KIND.name {
            plan.summary = format!("Rack {:?} serves nobody from then on.", stored.object.name);
            add_departure(app, rights, &stored.object, &mut plan).await?;
        }
        let is_deployment = stored.object.kind == Deployment::KIND.name && stored.generation_before.is_some();
        if is_deployment && stored.changes.iter().any(|change| change.pointer.starts_with("/scripts")) {
            plan.notes.push(SCRIPTS_CHANGED.to_owned());
        }
        reports.push(PlanReport {
            changes: stored.changes.clone(),
            effect: effect(stored),
            taken_from: stored.taken_from.clone(),
            ..plan
        });
    }
    Ok(reports)
}

/// Adds sentences about the racks that would take over the subnets and BMCs of this rack.
async fn add_departure(app: &App, rights: &Rights, rack: &Object, plan: &mut PlanReport) -> Answer<()> {
    let Some(machinery) = app.machinery() else { return Ok(()) };
    let Departure { subnets, bmcs } = machinery.departure(rack.uid).await?;
    if subnets.is_empty() && bmcs.is_empty() {
        plan.summary.push_str(" It answers DHCP in no subnet now, and speaks to no BMC.");
    }
    let who = |racks: &[String]| match racks.is_empty() {
        true => "nobody".to_owned(),
        false => racks.join(" and "),
    };
    for (racks, subnets) in subnets {
        let subnets = listed(subnets.into_iter()).unwrap_or_default();
        plan.summary.push_str(&format!(" DHCP in subnet {subnets} is then answered by {}.", who(&racks)));
    }
    for (racks, machines) in bmcs {
        let count = machines.len();
        // Some of the machines may be in pools that the caller does not see.
        let seen = rights.unlimited().and_then(|_| listed(machines.into_iter()));
        let names = seen.map(|names| format!(" ({names})")).unwrap_or_default();
        let machines = if count == 1 { "machine" } else { "machines" };
        let of = format!("{count} {machines}{names}");
        plan.summary.push_str(&format!(" The power of {of} is then switched by {}.", who(&racks)));
    }
    Ok(())
}

/// The result for an object without a driver, as a sentence.
fn in_words(stored: &Stored) -> String {
    let (kind, name) = (&stored.object.kind, &stored.object.name);
    match (action(stored), stored.changed) {
        (ApplyAction::Created, _) => format!("{kind} {name:?} will be created."),
        (ApplyAction::Updated, true) => format!("{kind} {name:?} will be changed."),
        (ApplyAction::Updated, false) => format!("{kind} {name:?} gets other labels or another manager."),
        _ => "Nothing will change.".to_owned(),
    }
}

/// The effects on machines that are not among these objects. Machines that the caller does not see are only counted.
pub(super) async fn for_others(app: &App, rights: &Rights, these: &Arc<Overlay>) -> Answer<Consequences> {
    let Some(machinery) = app.machinery() else { return Ok(Consequences::default()) };
    let pools = rights.visible_pools().map(|pools| pools.into_iter().collect::<Vec<_>>());
    let mut all = machinery.consequences(these, pools.as_deref()).await?;
    if pools.is_none() {
        return Ok(all);
    }
    let mut seen = Vec::new();
    for it in std::mem::take(&mut all.machines) {
        match app.store().pool_of("Machine", Key::Name(it.machine.as_str())).await? {
            Some(pool) if rights.may_see("Machine", pool.as_deref()) => seen.push(it),
            _ => all.not_told = all.not_told.saturating_add(1),
        }
    }
    all.machines = seen;
    Ok(all)
}

/// The plan that follows from a layer, in a dry run.
pub(super) fn of_layer(object: &Object, manager: &str) -> PlanReport {
    said(format!("{} {:?} gets these labels and tags from {manager}.", object.kind, object.name))
}

/// The plan that follows from a deletion, in a dry run.
pub(super) async fn of_deletion(
    app: &App,
    rights: &Rights,
    object: &Object,
    gone: bool,
    waits_for: &WaitsFor,
    others: Option<&Arc<Overlay>>,
) -> Answer<PlanReport> {
    let (kind, name) = (&object.kind, &object.name);
    if gone {
        return Ok(said(format!("{kind} {name:?} will be gone.")));
    }
    let plan = match kind == Rack::KIND.name {
        true => None,
        false => planned(app, &[(object, SupposedState::default())], others).await?.remove(&object.uid),
    };
    let mut plan = plan.unwrap_or_else(|| said(format!("{kind} {name:?} will leave.")));
    if let Some(others) = waits_for.in_words(|other| format!("{} {:?}", other.kind, other.name)) {
        plan.summary = format!("{kind} {name:?} goes after {others}.");
    }
    if kind == Rack::KIND.name {
        add_departure(app, rights, object, &mut plan).await?;
    }
    Ok(plan)
}

/// The plan that follows from a forced deletion, in a dry run.
pub(super) async fn of_letting_go(app: &App, rights: &Rights, object: &Object) -> Answer<PlanReport> {
    let (kind, name) = (&object.kind, &object.name);
    let machine = planned_alone(app, object, SupposedState::default()).await?.and_then(|plan| plan.machine);
    let mut plan = match (machine, kind.as_str()) {
        (Some(machine), "Deployment") => PlanReport {
            machine: Some(machine.clone()),
            ..said(format!(
                "{kind} {name:?} will be gone at once. Machine \"{machine}\" is let go as it is: it may hold the deployment's data, \
                 and is given to nobody until its disks are wiped and it is declared anew."
            ))
        },
        _ => said(format!("{kind} {name:?} will be gone at once; nothing is done to what it stands for.")),
    };
    if kind == Rack::KIND.name {
        add_departure(app, rights, object, &mut plan).await?;
    }
    Ok(plan)
}

/// The plan that follows from a rename, in a dry run.
pub(super) async fn of_rename(app: &App, renamed: &Renamed) -> Answer<PlanReport> {
    let Renamed { object, from, namesakes, referrers } = renamed;
    let (kind, to) = (&object.kind, &object.name);
    let mut plan = planned_alone(app, object, SupposedState::default()).await?.unwrap_or_default();
    plan.summary = match from == to {
        true => "Nothing will change.".to_owned(),
        false => format!("{kind} {from:?} will be called {to:?}."),
    };
    let too = namesakes.iter().map(|it| format!("{} {:?} will be called {:?}", it.kind, it.from, it.to));
    let reads = referrers.iter().map(|it| format!("{} {:?} ({})", it.kind, it.name, it.pointer));
    for (words, names) in [
        ("With it, ", listed(too)),
        ("These refer to what is renamed, and read its new name: ", listed(reads)),
    ] {
        if let Some(names) = names {
            plan.summary.push_str(&format!(" {words}{names}."));
        }
    }
    Ok(plan)
}

/// The first names, and the number of further ones.
fn listed(mut all: impl ExactSizeIterator<Item = String>) -> Option<String> {
    let names: Vec<String> = all.by_ref().take(NAMED).collect();
    match (names.is_empty(), all.len()) {
        (true, _) => None,
        (false, 0) => Some(names.join(", ")),
        (false, more) => Some(format!("{}, and {more} more", names.join(", "))),
    }
}

/// The plan that follows from an operation, in a dry run.
pub(super) async fn of_operation(
    app: &App,
    machine: &Object,
    requested: RequestedOperation<'_>,
) -> Answer<PlanReport> {
    let supposed = SupposedState { asked: Some(requested), ..SupposedState::default() };
    let plan = planned_alone(app, machine, supposed).await?;
    Ok(plan.unwrap_or_else(|| match requested.verb {
        Verb::Recommission => said(format!("The hardware of Machine {:?} will be read again.", machine.name)),
        verb => said(format!("{verb} will be done to Machine {:?}.", machine.name)),
    }))
}

/// The plan that follows from issuing or revoking the text of an ApiToken, in a dry run.
pub(super) async fn of_token(app: &App, token: &Object, makes: bool) -> Answer<PlanReport> {
    let name = &token.name;
    let issued = app.store().issued(token.uid).await?;
    let ends = issued.map(|issued| format!("what was issued for it at {} is good no more", issued.at));
    Ok(said(match (makes, ends) {
        (true, Some(ends)) => format!("ApiToken {name:?} gets a text, and {ends}."),
        (true, None) => format!("ApiToken {name:?} gets a text."),
        (false, Some(ends)) => format!("ApiToken {name:?} has no text then: {ends}."),
        (false, None) => format!("ApiToken {name:?} has no text: nothing will change."),
    }))
}

/// The plan that follows from a redelivery of dead letters, in a dry run.
pub(super) fn of_redelivery(webhook: &Object, deliveries: u64) -> PlanReport {
    said(format!("{deliveries} dead letters of Webhook {:?} are sent again.", webhook.name))
}

/// The plan that follows from deleting dead letters, in a dry run.
pub(super) fn of_discard(webhook: &Object, deliveries: u64) -> PlanReport {
    let letters = if deliveries == 1 { "letter" } else { "letters" };
    said(format!(
        "{deliveries} dead {letters} of Webhook {:?} will be deleted, and cannot be sent again.",
        webhook.name
    ))
}

fn said(summary: String) -> PlanReport {
    PlanReport { summary, ..PlanReport::default() }
}

/// Adds the machines that a plan affects.
pub(super) fn reach(radius: &mut BlastRadius, kind: &str, name: &str, plan: &PlanReport) {
    let machine = match kind {
        "Machine" => name.parse().ok(),
        _ => plan.machine.clone(),
    };
    let Some(machine) = machine else { return };
    touch(radius, &machine, &plan.steps);
}

/// Adds the affected machines that no document names.
pub(super) fn reach_others(radius: &mut BlastRadius, consequences: &Consequences) {
    for it in &consequences.machines {
        touch(radius, &it.machine, &it.steps);
    }
}

fn touch(radius: &mut BlastRadius, machine: &Name, steps: &[Step]) {
    if steps.iter().any(|step| step.power) {
        radius.power.insert(machine.clone());
    }
    if steps.iter().any(|step| step.destructive) {
        radius.disks.insert(machine.clone());
    }
}

/// One object's part of a digest. No field changes with time alone.
#[derive(Serialize)]
struct Part<'a> {
    kind: &'a str,
    name: &'a str,
    /// `None` for a new object.
    uid: Option<Uid>,
    generation: Option<Generation>,
    action: ApplyAction,
    relabelled: bool,
    changes: &'a [FieldChange],
    /// Covers values that the changes do not show: secrets, sensitive values, labels.
    mark: Option<Sha256>,
    effect: Effect,
    machine: Option<&'a Name>,
}

/// The machines of deployments, by the deployments' names.
pub(super) type Chosen = BTreeMap<String, Name>;

/// The digest over (uid, generation, action, changes, effect, declared text, chosen machine) of every object that changes, sorted.
pub(super) fn digest(written: &Written, chosen: &Chosen) -> Sha256 {
    let mut parts = Vec::new();
    for stored in &written.stored {
        let action = action(stored);
        if action == ApplyAction::Unchanged {
            continue;
        }
        parts.push(Part {
            kind: &stored.object.kind,
            name: &stored.object.name,
            uid: (!stored.created).then_some(stored.object.uid),
            generation: stored.generation_before,
            action,
            relabelled: stored.relabelled,
            changes: &stored.changes,
            mark: Some(Sha256::new(stored.mark)),
            effect: effect(stored),
            machine: chosen.get(&stored.object.name).filter(|_| stored.object.kind == "Deployment"),
        });
    }
    for Pruned { object, .. } in &written.pruned {
        parts.push(Part {
            kind: &object.kind,
            name: &object.name,
            uid: Some(object.uid),
            generation: Some(object.generation),
            action: ApplyAction::Deleted,
            relabelled: false,
            changes: &[],
            mark: None,
            effect: Effect::None,
            machine: None,
        });
    }
    parts.sort_by(|a, b| (a.kind, a.name).cmp(&(b.kind, b.name)));
    let text = serde_json::to_vec(&parts).unwrap_or_default();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &text);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    Sha256::new(bytes)
}
