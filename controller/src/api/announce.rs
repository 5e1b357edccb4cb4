//! What a write would do, said before it is done: changes, their effect, the steps that follow, and the digest of all that.

use super::App;
use super::problem::Answer;
use super::waiting::WaitsFor;
use crate::driver::{PLANNED, Supposed};
use basalt_api::kinds::Deployment;
use basalt_api::plan::PlanReport;
use basalt_api::values::{Generation, MachineId, Name, Sha256, Uid};
use basalt_api::wire::{ApplyAction, BlastRadius, Verb};
use basalt_api::{Effect, FieldChange, Kind, KindOf};
use basalt_db::{Object, Overlay, Pruned, Renamed, Stored, Written};
use basalt_engine::select::Choice;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects that a sentence names, at most.
const NAMED: usize = 20;

/// What was done with a spec.
pub(super) fn action(stored: &Stored) -> ApplyAction {
    match (stored.created, stored.changed || stored.relabelled) {
        (true, _) => ApplyAction::Created,
        (false, true) => ApplyAction::Updated,
        (false, false) => ApplyAction::Unchanged,
    }
}

/// The strongest effect of the changes. Nothing runs yet of what is created.
pub(super) fn effect(stored: &Stored) -> Effect {
    match stored.created {
        true => Effect::None,
        false => stored.changes.iter().map(|change| change.effect).max().unwrap_or_default(),
    }
}

/// What the driver would do with an object, if it does anything with its kind.
async fn planned(app: &App, object: &Object, supposed: Supposed<'_>) -> Answer<Option<PlanReport>> {
    Ok(match app.machinery() {
        Some(machinery) if PLANNED.contains(&object.kind.as_str()) => {
            Some(machinery.plan(object, supposed).await?)
        }
        _ => None,
    })
}

/// The machines that deployments of a batch would get, in one decision. Those that have one, and what is no deployment, are not in it.
pub(super) async fn choices<'a>(
    app: &App,
    changed: impl Iterator<Item = (&'a Stored, &'a Value)>,
    others: &Arc<Overlay>,
) -> Answer<BTreeMap<Uid, Choice>> {
    let deployments = changed.filter(|(stored, _)| stored.object.kind == Deployment::KIND.name);
    let wanted: Vec<_> = deployments.map(|(stored, wanted)| (&stored.object, wanted)).collect();
    match app.machinery() {
        Some(machinery) if !wanted.is_empty() => Ok(machinery.choose(&wanted, Some(others)).await?),
        _ => Ok(BTreeMap::new()),
    }
}

/// What is written together with an object.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Together<'a> {
    /// What was decided for it together with others, if it was.
    pub(super) choice: Option<&'a Choice>,
    /// All of them as they would be.
    pub(super) others: Option<&'a Arc<Overlay>>,
}

/// What follows from a write that was only tried.
pub(super) async fn of_write(
    app: &App,
    kind: &Kind,
    stored: &Stored,
    wanted: &Value,
    together: Together<'_>,
) -> Answer<PlanReport> {
    let name = &stored.object.name;
    let Together { choice, others } = together;
    let supposed = Supposed { spec: Some(wanted), choice, asked: None, others };
    let mut plan = match planned(app, &stored.object, supposed).await? {
        Some(plan) => plan,
        None => PlanReport {
            summary: match (action(stored), stored.changed) {
                (ApplyAction::Created, _) => format!("{} {name:?} will be created.", kind.name),
                (ApplyAction::Updated, true) => format!("{} {name:?} will be changed.", kind.name),
                (ApplyAction::Updated, false) => {
                    format!("{} {name:?} gets other labels or another manager.", kind.name)
                }
                _ => "Nothing will change.".to_owned(),
            },
            ..PlanReport::default()
        },
    };
    (plan.changes, plan.effect) = (stored.changes.clone(), effect(stored));
    Ok(plan)
}

/// What follows from a layer that was only tried.
pub(super) fn of_layer(object: &Object, manager: &str) -> PlanReport {
    said(format!("{} {:?} gets these labels and tags from {manager}.", object.kind, object.name))
}

/// What follows from a deletion that was only tried.
pub(super) async fn of_deletion(
    app: &App,
    object: &Object,
    gone: bool,
    waits_for: &WaitsFor,
    others: Option<&Arc<Overlay>>,
) -> Answer<PlanReport> {
    let (kind, name) = (&object.kind, &object.name);
    if gone {
        return Ok(said(format!("{kind} {name:?} will be gone.")));
    }
    let supposed = Supposed { others, ..Supposed::default() };
    let plan = planned(app, object, supposed).await?;
    let mut plan = plan.unwrap_or_else(|| said(format!("{kind} {name:?} will leave.")));
    if let Some(others) = waits_for.in_words(|other| format!("{} {:?}", other.kind, other.name)) {
        plan.summary = format!("{kind} {name:?} goes after {others}.");
    }
    Ok(plan)
}

/// What follows from a deletion by force that was only tried.
pub(super) async fn of_letting_go(app: &App, object: &Object) -> Answer<PlanReport> {
    let (kind, name) = (&object.kind, &object.name);
    let machine = planned(app, object, Supposed::default()).await?.and_then(|plan| plan.machine);
    Ok(match (machine, kind.as_str()) {
        (Some(machine), "Deployment") => PlanReport {
            machine: Some(machine.clone()),
            ..said(format!(
                "{kind} {name:?} will be gone at once. Machine {machine:?} is let go as it is: it may hold the deployment's data, \
                 and is given to nobody until its disks are wiped and it is declared anew."
            ))
        },
        _ => said(format!("{kind} {name:?} will be gone at once; nothing is done to what it stands for.")),
    })
}

/// What follows from a rename that was only tried.
pub(super) async fn of_rename(app: &App, renamed: &Renamed) -> Answer<PlanReport> {
    let Renamed { object, from, namesakes, referrers } = renamed;
    let (kind, to) = (&object.kind, &object.name);
    let mut plan = planned(app, object, Supposed::default()).await?.unwrap_or_default();
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

/// The first of them, and how many more there are.
fn listed(mut all: impl ExactSizeIterator<Item = String>) -> Option<String> {
    let names: Vec<String> = all.by_ref().take(NAMED).collect();
    match (names.is_empty(), all.len()) {
        (true, _) => None,
        (false, 0) => Some(names.join(", ")),
        (false, more) => Some(format!("{}, and {more} more", names.join(", "))),
    }
}

/// What follows from an operation that was only tried.
pub(super) async fn of_operation(app: &App, machine: &Object, verb: Verb) -> Answer<PlanReport> {
    let supposed = Supposed { asked: Some(verb), ..Supposed::default() };
    let plan = planned(app, machine, supposed).await?;
    Ok(plan.unwrap_or_else(|| match verb {
        Verb::Recommission => said(format!("The hardware of Machine {:?} will be read again.", machine.name)),
    }))
}

/// What follows from the text of an ApiToken being made or taken, where that was only tried.
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

/// What follows from dead letters being sent again, where that was only tried.
pub(super) fn of_redelivery(webhook: &Object, deliveries: u64) -> PlanReport {
    said(format!("{deliveries} dead letters of Webhook {:?} are sent again.", webhook.name))
}

fn said(summary: String) -> PlanReport {
    PlanReport { summary, ..PlanReport::default() }
}

/// Adds the machines that a plan touches.
pub(super) fn reach(radius: &mut BlastRadius, kind: &str, name: &str, plan: &PlanReport) {
    let machine = match kind {
        "Machine" => name.parse().ok(),
        _ => plan.machine.clone(),
    };
    let Some(machine) = machine else { return };
    if plan.steps.iter().any(|step| step.power) {
        radius.power.insert(machine.clone());
    }
    if plan.steps.iter().any(|step| step.destructive) {
        radius.disks.insert(machine);
    }
}

/// One object's part of a digest. Nothing in it changes with time alone.
#[derive(Serialize)]
struct Part<'a> {
    kind: &'a str,
    name: &'a str,
    /// What is created has none yet.
    uid: Option<Uid>,
    generation: Option<Generation>,
    action: ApplyAction,
    relabelled: bool,
    changes: &'a [FieldChange],
    /// What the changes do not show: secrets, sensitive values, labels.
    mark: Option<Sha256>,
    effect: Effect,
    machine: Option<&'a Name>,
}

/// The machine of a deployment.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// Its name.
    pub(super) machine: Name,
    /// It was chosen now, and is nobody's yet.
    pub(super) chosen: Option<MachineId>,
}

/// By the names of their deployments.
pub(super) type Chosen = BTreeMap<String, Placed>;

/// Over (uid, generation, operation, changes, effect, declared text, chosen machine) of everything that changes, sorted.
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
            machine: chosen
                .get(&stored.object.name)
                .filter(|_| stored.object.kind == "Deployment")
                .map(|placed| &placed.machine),
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
