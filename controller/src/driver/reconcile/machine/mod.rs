//! The reconciliation of a machine: plan, do the next step, write the status.
//!
//! A step is recorded before its effect begins, under a key that a repetition finds again. If the region is killed in between, the next
//! region that gets the lease plans the same step, and repeats the same effect under the same key.

mod addresses;
mod host_names;
mod status;
mod system_addresses;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use basalt_api::values::Timestamp;
use basalt_db::{Requeue, StepEnd, StoreError, WorkLease};
use basalt_engine::ends::ending;
use basalt_engine::{Plan, Policy, plan};

use crate::driver::context::Driver;
use crate::driver::entries;
use crate::driver::machine::{Loaded, bmc_account, hardware_tests, operation};
use crate::driver::reconcile::strangers;
use crate::driver::status::to_json;
use crate::driver::topology::tags;
use turn::{StepOutcome, Turn};

/// The number of steps in one go, before other objects get their turn.
const STEPS: usize = 8;
/// The pause after an effect could not be handed over.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a task could not be composed. A missing object may be declared meanwhile without a wake-up of the machine.
const PAUSE_COMPOSE: Duration = Duration::from_secs(30);

/// Reconciles one machine.
///
/// # Errors
/// Fails if the database fails, or if the lease is over. Nothing is lost: the work is repeated.
pub async fn reconcile(driver: &Driver, lease: &WorkLease) -> Result<Requeue, StoreError> {
    for _ in 0..STEPS {
        let Some(object) = driver.store.get_by_uid(lease.uid).await? else { return Ok(Requeue::WhenWoken) };
        let estate = driver.estate().await?;
        let loaded = estate.machine(&driver.store, &object).await?;
        driver.meters.evaluated(tags::expressions(&estate.tags));
        if strangers::adopt(driver, &estate, &object, &loaded).await? {
            continue;
        }
        if bmc_account::settle(&driver.store, &loaded).await? {
            continue;
        }
        if hardware_tests::settle(&driver.store, &loaded).await? {
            continue;
        }
        if addresses::assign(driver, &estate, &loaded).await? {
            continue;
        }
        let now = driver.store.now().await?.max(loaded.input.latest());
        let policy = estate.policy(&driver.policy);
        let planned = plan(&loaded.input, &policy, now);
        note_ends(driver, &loaded, &policy, now).await?;
        addresses::give_back(driver, &estate, &loaded, &planned).await?;
        if operation::note(&driver.store, &loaded, &planned).await? {
            continue;
        }
        keep_slot(driver, &loaded, &planned).await?;
        if entries::machine::write(&driver.store, lease, &estate, &loaded, &planned).await? {
            continue;
        }
        let turn =
            Turn { driver, lease, estate: &estate, loaded: &loaded, policy: &policy, planned: &planned, now };
        let Some(step) = planned.next.first() else {
            turn.write(&object, None).await?;
            return Ok(wake(&planned, &loaded, now));
        };
        match turn.perform(step).await? {
            StepOutcome::Begun => {}
            StepOutcome::Gone => return Ok(Requeue::WhenWoken),
            StepOutcome::Later => {
                turn.write(&object, None).await?;
                return Ok(Requeue::After(PAUSE));
            }
            StepOutcome::Cannot(why) => {
                turn.write(&object, Some(why)).await?;
                return Ok(Requeue::After(PAUSE_COMPOSE));
            }
        }
    }
    Ok(Requeue::After(Duration::ZERO))
}

/// When to reconcile the machine again: at its earliest deadline, or when a lease ends and its address with it.
fn wake(planned: &Plan, loaded: &Loaded, now: Timestamp) -> Requeue {
    let lease_ends = loaded.leases.iter().map(|lease| lease.ends_at).min();
    match planned.wake_at.into_iter().chain(lease_ends).min() {
        Some(at) => Requeue::After(Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)),
        None => Requeue::WhenWoken,
    }
}

/// Records the results of steps.
async fn note_ends(
    driver: &Driver,
    loaded: &Loaded,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut ends = Vec::new();
    let mut named = BTreeMap::new();
    for (id, key) in &loaded.open {
        let record = loaded.input.records.iter().find(|record| record.key == *key);
        let Some(record) = record else { continue };
        let Some((at, ending)) = ending(&loaded.input, policy, now, record) else { continue };
        ends.push(StepEnd { id: *id, at, outcome: to_json(&ending)? });
        named.insert(*id, (key, record.step.name(), ending));
    }
    if ends.is_empty() {
        return Ok(());
    }
    // A step that was begun again under a later epoch is still one step.
    let mut counted = BTreeSet::new();
    for (id, took) in driver.store.finish_steps(&ends).await? {
        if let Some((key, step, ending)) = named.get(&id)
            && counted.insert(*key)
        {
            driver.meters.step(step, ending.word(), took);
        }
    }
    Ok(())
}

/// Changes the machine's part in the fleet's budget as the plan needs it.
async fn keep_slot(driver: &Driver, loaded: &Loaded, planned: &Plan) -> Result<(), StoreError> {
    let machine = loaded.input.uid;
    let waits = planned.waits.iter().any(|wait| wait.code == "FleetBudget");
    let holds = loaded.slot.is_some_and(|slot| slot.attempt.is_some());
    if loaded.slot.is_some() && (if holds { planned.writes.is_none() } else { !waits }) {
        driver.store.leave_fleet(machine).await?;
    }
    if waits && (holds || loaded.slot.is_none()) && planned.writes.is_none() {
        driver.store.await_fleet(machine, &loaded.input.budget.zone).await?;
    }
    Ok(())
}
