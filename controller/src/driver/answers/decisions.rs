//! The list of decisions about an object, and their replays: the same pure planner decides again from the stored inputs.

use std::collections::BTreeSet;

use basalt_api::values::{DeploymentId, MachineId, Uid};
use basalt_api::wire::{Decision, DecisionDetail, Decisions, Replay, ReplayDifference, ReplayVerdict};
use basalt_db::{ALLOCATE, NewDecision, Store, StoreError};
use basalt_engine::select::{Choice, Ground};
use basalt_engine::{MachineInput, PLANNER, plan};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::driver::context::Driver;
use crate::driver::machine::decision::Seen;
use crate::driver::machine::fold::fold;
use crate::driver::machine::records;
use crate::driver::status::to_json;

/// The number of decisions per page.
const PAGE: usize = 100;
/// The number of decisions per page with replays.
const REPLAYED_PAGE: usize = 50;
/// The largest number of differences in a replay.
const DIFFERENCES: usize = 50;

/// The objects whose decisions are listed. For a deployment, its machine is one of them.
async fn subjects(store: &Store, (kind, uid): (&str, Uid)) -> Result<Vec<Uid>, StoreError> {
    let machine = match kind {
        "Deployment" => store.claimed_by(uid.into()).await?,
        _ => None,
    };
    Ok(machine.map(|(machine, _)| machine.into()).into_iter().chain([uid]).collect())
}

pub(crate) async fn list(
    driver: &Driver,
    of: (&str, Uid),
    before: Option<i64>,
    replays: bool,
) -> Result<Decisions, StoreError> {
    let page = if replays { REPLAYED_PAGE } else { PAGE };
    let limit = i64::try_from(page).unwrap_or(i64::MAX);
    let stored = driver.store.decisions(&subjects(&driver.store, of).await?, before, limit).await?;
    let next = stored.last().filter(|_| stored.len() == page).map(|last| last.id);
    let mut decisions = Vec::new();
    for one in stored {
        let mut decision = shown(&one);
        if replays {
            let replay = replay(&driver.store, &one).await?;
            let steps = one.why.steps.into_iter().map(|(id, _)| id).collect();
            let (now, facts) = (one.why.now, one.why.facts);
            let plan = one.why.plan.as_object().cloned().unwrap_or_default();
            decision.detail = Some(DecisionDetail { now, facts, steps, plan, replay });
        }
        decisions.push(decision);
    }
    Ok(Decisions { decisions, next })
}

fn shown(stored: &basalt_db::Decision) -> Decision {
    let key = stored.step_key.as_str();
    let step = basalt_engine::steps::STEPS.iter().find(|step| key.rsplit('/').nth(1) == Some(step.name));
    let message = match (Given::of(stored), step) {
        (Some(given), _) => format!("choose a machine: {}", given.why.unwrap_or_default()),
        (None, step) => step.map_or("a step", |step| step.says).to_owned(),
    };
    Decision {
        id: stored.id,
        at: stored.at,
        message,
        step_key: key.to_owned(),
        epoch: stored.epoch.get(),
        generation: stored.why.generation,
        planner: stored.why.planner.clone(),
        digest: stored.why.digest,
        detail: None,
    }
}

/// Decides again, from the stored inputs of a decision.
///
/// # Errors
/// Fails if the database cannot be read.
pub async fn replay(store: &Store, decision: &basalt_db::Decision) -> Result<Replay, StoreError> {
    if let Some(given) = Given::of(decision) {
        return choose_again(given, decision);
    }
    let why = &decision.why;
    let impossible = |message| Replay {
        verdict: ReplayVerdict::Impossible,
        message,
        planner: PLANNER.to_owned(),
        differences: Vec::new(),
    };
    let facts = store.facts_by_id(decision.object, &why.facts).await?;
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
    let (records, tasks) = records(rows)?;
    input.facts = fold(facts, &records, &tasks);
    input.records = records;
    input.facts.boot_applied = seen.boot_applied;
    input.facts.boot_refused = seen.boot_refused;
    input.facts.power_rack = seen.power_rack;
    input.facts.boot_racks = seen.boot_racks;
    input.budget = seen.budget;
    let replayed = plan(&input, &seen.policy, why.now);
    let is_same = replayed.digest == why.digest;
    Ok(judged(why, &to_json(&replayed)?, is_same))
}

/// The result of a replay.
fn judged(why: &NewDecision, replayed: &Value, is_same: bool) -> Replay {
    let mut differences = Vec::new();
    compare("", &why.plan, replayed, &mut differences);
    let (verdict, message) = match differences.is_empty() && is_same {
        true => (ReplayVerdict::Same, "the same is decided again".to_owned()),
        false => (
            ReplayVerdict::Different,
            format!("planner {PLANNER} decides otherwise than planner {} did", why.planner),
        ),
    };
    Replay { verdict, message, planner: PLANNER.to_owned(), differences }
}

/// The plan of a decision that gave a deployment its machine.
#[derive(Debug, Serialize, Deserialize)]
struct Given {
    deployment: String,
    machine: Option<MachineId>,
    why: Option<String>,
}

impl Given {
    /// `None` for a decision that began a step.
    fn of(decision: &basalt_db::Decision) -> Option<Self> {
        let is_allocation = decision.step_key.rsplit('/').nth(1) == Some(ALLOCATE);
        is_allocation.then(|| Self::deserialize(&decision.why.plan).ok())?
    }
}

/// The deployment that got the machine, as it was in the ground.
#[derive(Debug, Deserialize)]
struct Waited {
    wish: DeploymentId,
    /// The machine's id in the ground; absent if the machine was already stored.
    chosen: Option<MachineId>,
}

fn choose_again(given: Given, decision: &basalt_db::Decision) -> Result<Replay, StoreError> {
    let why = &decision.why;
    let (ground, waited) = match (Ground::deserialize(&why.ground), Waited::deserialize(&why.seen)) {
        (Ok(ground), Ok(waited)) => (ground, waited),
        (Err(error), _) | (_, Err(error)) => {
            return Ok(Replay {
                verdict: ReplayVerdict::Impossible,
                message: format!("planner {} wrote what planner {PLANNER} cannot read: {error}", why.planner),
                planner: PLANNER.to_owned(),
                differences: Vec::new(),
            });
        }
    };
    let (machine, words) = match ground.decide().0.remove(&waited.wish) {
        Some(Choice::Chosen { machine, why }) if waited.chosen == Some(machine) => (given.machine, Some(why)),
        Some(Choice::Chosen { machine, why }) => (Some(machine), Some(why)),
        Some(Choice::None(_)) | None => (None, None),
    };
    let replayed = Given { machine, why: words, ..given };
    Ok(judged(why, &to_json(&replayed)?, true))
}

/// Lists the differences between two values.
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
