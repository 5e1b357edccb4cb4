//! Decisions: what a step's beginning rested on is kept, and replayed by the same pure planner.

use std::collections::BTreeSet;

use basalt_api::values::{MachineId, Timestamp, Uid};
use basalt_api::wire::{Decision, DecisionDetail, Decisions, Replay, ReplayDifference, ReplayVerdict};
use basalt_db::{NewDecision, Object, Store, StoreError};
use basalt_engine::budget::Budget;
use basalt_engine::facts::{BootSeen, Link};
use basalt_engine::{MachineInput, PLANNER, Plan, Policy, plan};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::converge::Driver;
use super::fold::fold;
use super::load::{Loaded, records};
use super::machine::to_json;

/// Decisions of one page.
const PAGE: usize = 100;
/// Decisions of one page that are decided again.
const REPLAYED_PAGE: usize = 50;
/// Differences that are listed.
const DIFFERENCES: usize = 50;

/// What a plan rests on that changes by the minute, and that no history keeps.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    boot_applied: Option<BootSeen>,
    boot_refused: Option<String>,
    power_rack: Link,
    boot_racks: Link,
    budget: Budget,
    policy: Policy,
}

/// A decision as it is kept.
///
/// # Errors
/// None that a sound program meets.
pub(super) fn made(
    loaded: &Loaded,
    policy: &Policy,
    planned: &Plan,
    now: Timestamp,
) -> Result<NewDecision, StoreError> {
    let (input, facts) = (&loaded.input, &loaded.input.facts);
    let seen = Seen {
        boot_applied: facts.boot_applied,
        boot_refused: facts.boot_refused.clone(),
        power_rack: facts.power_rack.clone(),
        boot_racks: facts.boot_racks.clone(),
        budget: input.budget.clone(),
        policy: policy.clone(),
    };
    let mut ids: Vec<i64> = loaded.facts.iter().map(|fact| fact.id).collect();
    ids.sort_unstable();
    Ok(NewDecision {
        generation: input.generation,
        planner: PLANNER.to_owned(),
        now,
        ground: to_json(input)?,
        seen: to_json(&seen)?,
        facts: ids,
        steps: loaded.steps.clone(),
        digest: planned.digest,
        plan: to_json(planned)?,
    })
}

/// The machine that is decided about: of a deployment, the one that it has.
async fn machine_of(store: &Store, object: &Object) -> Result<Option<Uid>, StoreError> {
    match object.kind.as_str() {
        "Machine" => Ok(Some(object.uid)),
        "Deployment" => Ok(store.claimed_by(object.uid.into()).await?.map(|(machine, _)| machine.into())),
        _ => Ok(None),
    }
}

pub(super) async fn list(
    driver: &Driver,
    object: &Object,
    before: Option<i64>,
    replays: bool,
) -> Result<Decisions, StoreError> {
    let Some(machine) = machine_of(&driver.store, object).await? else { return Ok(Decisions::default()) };
    let page = if replays { REPLAYED_PAGE } else { PAGE };
    let limit = i64::try_from(page).unwrap_or(i64::MAX);
    let stored = driver.store.decisions(machine, before, limit).await?;
    let next = stored.last().filter(|_| stored.len() == page).map(|last| last.id);
    let mut decisions = Vec::new();
    for one in stored {
        let mut decision = shown(&one);
        if replays {
            let replay = replay(&driver.store, machine.into(), &one).await?;
            let steps = one.why.steps.into_iter().map(|(id, _)| id).collect();
            let (now, facts, plan) = (one.why.now, one.why.facts, one.why.plan);
            decision.detail = Some(DecisionDetail { now, facts, steps, plan, replay });
        }
        decisions.push(decision);
    }
    Ok(Decisions { decisions, next })
}

fn shown(stored: &basalt_db::Decision) -> Decision {
    let key = stored.step_key.as_str();
    let step = basalt_engine::steps::STEPS.iter().find(|step| key.rsplit('/').nth(1) == Some(step.name));
    Decision {
        id: stored.id,
        at: stored.at,
        message: step.map_or("a step", |step| step.says).to_owned(),
        step_key: key.to_owned(),
        epoch: stored.epoch.get(),
        generation: stored.why.generation,
        planner: stored.why.planner.clone(),
        digest: stored.why.digest,
        detail: None,
    }
}

/// Decides again, from what a decision rested on.
///
/// # Errors
/// The database.
pub async fn replay(
    store: &Store,
    machine: MachineId,
    decision: &basalt_db::Decision,
) -> Result<Replay, StoreError> {
    let why = &decision.why;
    let answer = |verdict, message: String, differences| Replay {
        verdict,
        message,
        planner: PLANNER.to_owned(),
        differences,
    };
    let impossible = |message| answer(ReplayVerdict::Impossible, message, Vec::new());
    let facts = store.facts_by_id(machine.into(), &why.facts).await?;
    let ids: Vec<i64> = why.steps.iter().map(|(id, _)| *id).collect();
    let mut rows = store.steps_by_id(&ids).await?;
    let kept: BTreeSet<i64> = facts.iter().map(|fact| fact.id).collect();
    let lost: Vec<_> =
        why.facts.iter().filter(|id| !kept.contains(id)).map(|id| format!("fact {id}")).collect();
    let kept: BTreeSet<i64> = rows.iter().map(|row| row.id).collect();
    let lost = lost
        .into_iter()
        .chain(ids.iter().filter(|id| !kept.contains(id)).map(|id| format!("step record {id}")));
    let lost: Vec<String> = lost.collect();
    if !lost.is_empty() {
        let message = format!("what it rested on is not kept any more: {}", lost.join(", "));
        return Ok(impossible(message));
    }
    for row in &mut rows {
        row.started_at = why.steps.iter().find(|(id, _)| *id == row.id).and_then(|(_, at)| *at);
    }
    let ground = serde_json::from_value::<MachineInput>(why.ground.clone());
    let seen = serde_json::from_value::<Seen>(why.seen.clone());
    let (mut input, seen) = match (ground, seen) {
        (Ok(input), Ok(seen)) => (input, seen),
        (Err(error), _) | (_, Err(error)) => {
            let message =
                format!("planner {} wrote what planner {PLANNER} cannot read: {error}", why.planner);
            return Ok(impossible(message));
        }
    };
    input.records = records(rows)?.0;
    input.facts = fold(facts, &input.records);
    input.facts.boot_applied = seen.boot_applied;
    input.facts.boot_refused = seen.boot_refused;
    input.facts.power_rack = seen.power_rack;
    input.facts.boot_racks = seen.boot_racks;
    input.budget = seen.budget;
    let replayed = plan(&input, &seen.policy, why.now);
    let mut differences = Vec::new();
    compare("", &why.plan, &to_json(&replayed)?, &mut differences);
    if differences.is_empty() && replayed.digest == why.digest {
        return Ok(answer(ReplayVerdict::Same, "the same is decided again".to_owned(), differences));
    }
    let message = format!("planner {PLANNER} decides otherwise than planner {} did", why.planner);
    Ok(answer(ReplayVerdict::Different, message, differences))
}

/// Where two values differ.
fn compare(at: &str, decided: &Value, replayed: &Value, out: &mut Vec<ReplayDifference>) {
    if decided == replayed || out.len() >= DIFFERENCES {
        return;
    }
    match (decided, replayed) {
        (Value::Object(left), Value::Object(right)) => {
            for key in left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))) {
                let value = |of: &serde_json::Map<String, Value>| of.get(key).cloned().unwrap_or_default();
                compare(&basalt_api::pointer::child(at, key), &value(left), &value(right), out);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (place, (left, right)) in left.iter().zip(right).enumerate() {
                compare(&format!("{at}/{place}"), left, right, out);
            }
        }
        _ => out.push(ReplayDifference {
            pointer: at.to_owned(),
            decided: decided.clone(),
            replayed: replayed.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plans_are_compared_down_to_the_member_that_differs() {
        let mut differences = Vec::new();
        let (decided, replayed) =
            (json!({"a": [1, {"b": 2}], "c": 3}), json!({"a": [1, {"b": 4}], "c": 3, "d": 5}));
        compare("", &decided, &replayed, &mut differences);
        let found: Vec<_> = differences.iter().map(|d| (d.pointer.as_str(), d.replayed.clone())).collect();
        assert_eq!(found, [("/a/1/b", json!(4)), ("/d", json!(5))]);
    }
}
