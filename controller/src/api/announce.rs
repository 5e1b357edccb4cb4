//! What a write would do, said before it is done: changes, their effect, the steps that follow, and the digest of all that.

use super::App;
use super::problem::Answer;
use crate::driver::PLANNED;
use basalt_api::plan::PlanReport;
use basalt_api::values::{Generation, Name, Sha256, Uid};
use basalt_api::wire::{ApplyAction, BlastRadius};
use basalt_api::{Effect, FieldChange, Kind};
use basalt_db::{Object, Pruned, Referrer, Stored, Written};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

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

/// What follows from a write that was only tried.
pub(super) async fn of_write(app: &App, kind: &Kind, stored: &Stored, wanted: &Value) -> Answer<PlanReport> {
    let name = &stored.object.name;
    let mut plan = match app.machinery() {
        Some(machinery) if PLANNED.contains(&kind.name) => {
            machinery.plan(&stored.object, Some(wanted)).await?
        }
        _ => PlanReport {
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
    let summary = format!("{} {:?} gets these labels and tags from {manager}.", object.kind, object.name);
    PlanReport { summary, ..PlanReport::default() }
}

/// What follows from a deletion that was only tried.
pub(super) async fn of_deletion(
    app: &App,
    object: &Object,
    gone: bool,
    waits_for: &[Referrer],
) -> Answer<PlanReport> {
    let (kind, name) = (&object.kind, &object.name);
    if gone {
        let summary = format!("{kind} {name:?} will be gone.");
        return Ok(PlanReport { summary, ..PlanReport::default() });
    }
    let mut plan = match app.machinery() {
        Some(machinery) if PLANNED.contains(&kind.as_str()) => machinery.plan(object, None).await?,
        _ => PlanReport::default(),
    };
    let names: Vec<String> =
        waits_for.iter().map(|other| format!("{} {:?}", other.kind, other.name)).collect();
    if !names.is_empty() {
        plan.summary = format!("{kind} {name:?} goes after {}.", names.join(", "));
    }
    Ok(plan)
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
    secrets: bool,
    effect: Effect,
    machine: Option<&'a Name>,
}

/// The machines that selectors would choose, by the names of their deployments.
pub(super) type Chosen = BTreeMap<String, Name>;

/// Over (uid, generation, operation, changes, effect, chosen machine) of everything that changes, sorted.
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
            secrets: stored.secrets_changed,
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
            secrets: false,
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
