//! The effects of a write on machines that it does not name, but whose plans depend on its objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use basalt_api::plan::{Consequence, Consequences, PlanReport};
use basalt_api::values::{Timestamp, Uid};
use basalt_db::{Object, Overlay, StoreError};
use basalt_engine::plan;

use crate::driver::answers::of_plan;
use crate::driver::context::Driver;
use crate::driver::topology::estate::Estate;
use crate::driver::wake;

/// The number of machines that are examined. Each costs a few dozen reads, and the caller waits for the answer.
const LOOKED_AT: usize = 100;

/// The number of readings of a machine whose plan changes meanwhile.
const READINGS: usize = 3;

/// The machines whose plans would differ with these objects.
///
/// Only machines that are not ready are examined: the plan of a ready machine depends on no other object.
///
/// # Errors
/// Fails if the database cannot be read.
pub(crate) async fn of(driver: &Driver, others: &Arc<Overlay>) -> Result<Consequences, StoreError> {
    if !others.kinds().any(|kind| wake::decides("Machine", kind)) {
        return Ok(Consequences::default());
    }
    let supposing = driver.supposing(Some(others));
    let mut unready = driver.store.unready("Machine").await?;
    unready.retain(|uid| supposing.store.supposed(*uid).is_none());
    if unready.is_empty() {
        return Ok(Consequences::default());
    }
    let rest = unready.split_off(LOOKED_AT.min(unready.len()));
    let mut readings = Readings { is: driver, would_be: &supposing, now: driver.store.now().await? };
    let (machines, moving) = compare(unready, &mut readings).await?;
    let not_told = u64::try_from(rest.len().saturating_add(moving)).unwrap_or(u64::MAX);
    Ok(Consequences { machines, not_told, tags: Vec::new() })
}

/// The plans of machines, with their names, by uid.
type Plans = BTreeMap<Uid, (String, PlanReport)>;

/// The source of plans in the present and in the supposed state.
trait Plan {
    /// The present plans of these machines.
    fn read(
        &mut self,
        suppose: bool,
        machines: &[Uid],
    ) -> impl Future<Output = Result<Plans, StoreError>> + Send;
}

/// The machines whose plans a write would change, and the number of machines that change too fast for a comparison.
///
/// A machine in progress changes between two readings. So a plan counts as changed by the write if the readings before and after
/// the supposed one are equal, and differ from it.
async fn compare(machines: Vec<Uid>, plans: &mut impl Plan) -> Result<(Vec<Consequence>, usize), StoreError> {
    let mut found = BTreeMap::new();
    let mut before = plans.read(false, &machines).await?;
    for _ in 0..READINGS {
        if before.is_empty() {
            break;
        }
        let machines: Vec<_> = before.keys().copied().collect();
        let mut after = plans.read(true, &machines).await?;
        before.retain(|uid, (_, plan)| after.get(uid).is_some_and(|(_, after)| gist(plan) != gist(after)));
        if before.is_empty() {
            break;
        }
        let machines: Vec<_> = before.keys().copied().collect();
        let mut again = plans.read(false, &machines).await?;
        again.retain(|uid, (_, plan)| match (before.get(uid), after.remove(uid)) {
            (Some((_, before)), Some((name, after))) if gist(before) == gist(plan) => {
                found.insert(name, after);
                false
            }
            _ => true,
        });
        before = again;
    }
    let consequence = |(name, plan): (String, PlanReport)| {
        Some(Consequence { machine: name.parse().ok()?, summary: plan.summary, steps: plan.steps })
    };
    Ok((found.into_iter().filter_map(consequence).collect(), before.len()))
}

/// The plans from the store.
struct Readings<'a> {
    is: &'a Driver,
    would_be: &'a Driver,
    now: Timestamp,
}

impl Plan for Readings<'_> {
    async fn read(&mut self, suppose: bool, machines: &[Uid]) -> Result<Plans, StoreError> {
        let driver = if suppose { self.would_be } else { self.is };
        let mut plans = Plans::new();
        if machines.is_empty() {
            return Ok(plans);
        }
        let inputs = PlanInputs::of(driver).await?;
        for uid in machines {
            let Some(object) = driver.store.get_by_uid(*uid).await? else { continue };
            if let Some(plan) = inputs.plan(&object, self.now).await? {
                plans.insert(*uid, (object.name, plan));
            }
        }
        Ok(plans)
    }
}

/// The input of machines' plans.
struct PlanInputs<'a> {
    driver: &'a Driver,
    estate: Estate,
}

impl<'a> PlanInputs<'a> {
    async fn of(driver: &'a Driver) -> Result<Self, StoreError> {
        Ok(Self { driver, estate: driver.estate().await? })
    }

    /// The plan of a machine. `None` if the machine cannot be read; its own reconciliation reports that.
    async fn plan(&self, machine: &Object, now: Timestamp) -> Result<Option<PlanReport>, StoreError> {
        let loaded = match self.estate.machine(&self.driver.store, machine).await {
            Err(StoreError::Corrupt(_)) => return Ok(None),
            loaded => loaded?,
        };
        let planned = plan(&loaded.input, &self.estate.policy(&self.driver.policy), now);
        Ok(Some(of_plan(&machine.name, &planned)))
    }
}

/// The parts of a plan that are compared.
fn gist(report: &PlanReport) -> (Vec<&str>, BTreeSet<&str>) {
    let steps = report.steps.iter().map(|step| step.key.as_str()).collect();
    (steps, report.waits.iter().map(|wait| wait.cause.as_str()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::plan::Step;
    use serde_json::json;

    /// The plans of one machine, one per reading.
    struct Script(Vec<(bool, &'static str)>);

    impl Plan for Script {
        async fn read(&mut self, suppose: bool, machines: &[Uid]) -> Result<Plans, StoreError> {
            let (supposed, step) = self.0.remove(0);
            assert_eq!(supposed, suppose, "{step}");
            let step = json!({"key": step, "message": "", "state": "next"});
            let step: Step = serde_json::from_value(step).unwrap();
            let plan = PlanReport { summary: step.key.clone(), steps: vec![step], ..PlanReport::default() };
            Ok(machines.iter().map(|uid| (*uid, ("m1".to_owned(), plan.clone()))).collect())
        }
    }

    async fn compared(readings: &[(bool, &'static str)]) -> (Vec<String>, usize) {
        let uid = "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e".parse().unwrap();
        let (found, moving) = compare(vec![uid], &mut Script(readings.to_vec())).await.unwrap();
        (found.into_iter().map(|it| it.summary).collect(), moving)
    }

    const IS: bool = false;
    const WOULD_BE: bool = true;

    #[tokio::test]
    async fn what_differs_from_the_plans_before_and_after_follows_from_the_write() {
        let (found, moving) = compared(&[(IS, "wait"), (WOULD_BE, "install"), (IS, "wait")]).await;
        assert_eq!((found, moving), (vec!["install".to_owned()], 0));
    }

    #[tokio::test]
    async fn a_machine_that_goes_on_meanwhile_is_no_consequence() {
        let readings = [(IS, "erase"), (WOULD_BE, "install"), (IS, "install"), (WOULD_BE, "install")];
        assert_eq!(compared(&readings).await, (vec![], 0));
    }

    #[tokio::test]
    async fn a_machine_that_never_rests_is_counted() {
        let steps =
            [(IS, "a"), (WOULD_BE, "b"), (IS, "c"), (WOULD_BE, "d"), (IS, "e"), (WOULD_BE, "f"), (IS, "g")];
        assert_eq!(compared(&steps).await, (vec![], 1));
    }
}
