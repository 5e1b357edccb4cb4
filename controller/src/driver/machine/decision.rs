//! Decisions about a machine's steps, in the form in which they are stored: the pure planner can replay them.

use basalt_api::values::Timestamp;
use basalt_db::{NewDecision, StoreError};
use basalt_engine::budget::Budget;
use basalt_engine::facts::{BootSeen, Link};
use basalt_engine::{PLANNER, Plan, Policy};
use serde::{Deserialize, Serialize};

use crate::driver::machine::Loaded;
use crate::driver::status::to_json;

/// Inputs of a plan that change by the minute and are stored nowhere else.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) boot_applied: Option<BootSeen>,
    pub(crate) boot_refused: Option<String>,
    pub(crate) power_rack: Link,
    pub(crate) boot_racks: Link,
    pub(crate) budget: Budget,
    pub(crate) policy: Policy,
}

/// A decision in the form in which it is stored.
///
/// # Errors
/// Fails only if serialisation fails, which is a bug.
pub(crate) fn made(
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
