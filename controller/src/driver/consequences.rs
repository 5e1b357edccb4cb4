//! What follows from a write for machines that it does not name: they decide from what it changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use basalt_api::plan::{Consequence, Consequences, PlanReport};
use basalt_api::values::Timestamp;
use basalt_db::{Object, Overlay, StoreError};
use basalt_engine::plan;

use super::answers::of_plan;
use super::converge::Driver;
use super::load::Estate;
use super::wakes;

/// Machines that are looked at. Each costs a few dozen reads, and who plans waits for the answer.
const LOOKED_AT: usize = 100;

/// For which machines something else would be done, were these objects so.
///
/// A machine that is ready is left alone whatever others say, so those that are not are looked at.
///
/// # Errors
/// The database.
pub(super) async fn of(driver: &Driver, others: &Arc<Overlay>) -> Result<Consequences, StoreError> {
    if !others.kinds().any(|kind| wakes::decides("Machine", kind)) {
        return Ok(Consequences::default());
    }
    let supposing = driver.supposing(Some(others));
    let mut unready = driver.store.unready("Machine").await?;
    unready.retain(|uid| supposing.store.supposed(*uid).is_none());
    if unready.is_empty() {
        return Ok(Consequences::default());
    }
    let (is, would_be) = (World::of(driver).await?, World::of(&supposing).await?);
    let now = driver.store.now().await?;
    let mut found = Consequences::default();
    for uid in unready.iter().take(LOOKED_AT) {
        let Some(object) = driver.store.get_by_uid(*uid).await? else { continue };
        let (Some(before), Some(after)) = (is.plan(&object, now).await?, would_be.plan(&object, now).await?)
        else {
            continue;
        };
        if let (true, Ok(machine)) = (gist(&before) != gist(&after), object.name.parse()) {
            found.machines.push(Consequence { machine, summary: after.summary, steps: after.steps });
        }
    }
    let rest = unready.len().saturating_sub(LOOKED_AT);
    found.not_told = u64::try_from(rest).unwrap_or(u64::MAX);
    Ok(found)
}

/// Everything that machines decide from.
struct World<'a> {
    driver: &'a Driver,
    estate: Estate,
}

impl<'a> World<'a> {
    async fn of(driver: &'a Driver) -> Result<Self, StoreError> {
        Ok(Self { driver, estate: Estate::load(&driver.store, &driver.sessions).await? })
    }

    /// What would be done with a machine; nothing, where it cannot be read, which is said where it is worked on.
    async fn plan(&self, machine: &Object, now: Timestamp) -> Result<Option<PlanReport>, StoreError> {
        let loaded = match self.estate.machine(&self.driver.store, machine).await {
            Err(StoreError::Corrupt(_)) => return Ok(None),
            loaded => loaded?,
        };
        let planned = plan(&loaded.input, &self.estate.policy(&self.driver.policy), now);
        Ok(Some(of_plan(&machine.name, &planned)))
    }
}

/// What makes two plans different ones.
fn gist(report: &PlanReport) -> (Vec<&str>, BTreeSet<&str>) {
    let steps = report.steps.iter().map(|step| step.key.as_str()).collect();
    (steps, report.waits.iter().map(|wait| wait.cause.as_str()).collect())
}
