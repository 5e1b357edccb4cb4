//! Automatic tags: decides which machines have them.
//!
//! A machine is evaluated with all tags whenever it is reconciled, and only differences are written. A tag is evaluated with all
//! machines, in batches, after its expression or its name has changed.
//!
//! This region may refuse a stored expression, if a version with other limits accepted it. No machine is evaluated with such an
//! expression, and the tag's condition reports it. Nothing else is affected.

use std::time::Duration;

use basalt_api::expression::{ExpressionError, Subject};
use basalt_api::kinds::{MachineSpec, MachineStatus, TagSpec, TagStatus};
use basalt_api::values::{MachineId, Timestamp};
use basalt_db::{Object, Requeue, StoreError, Tagged, WorkLease};

use crate::driver::context::Driver;
use crate::driver::poison;
use crate::driver::status::{settled, to_json};
use crate::driver::stored::readable;
use crate::driver::topology::tags::{TagSeen, evaluate, expressions, refusal, subject};

/// The number of machines per transaction that are evaluated with a tag.
const BATCH: i64 = 500;
/// The lease time for the next batch.
const LEASE: Duration = Duration::from_secs(10);
/// The reason in the conditions of a tag whose expression is never evaluated.
const REFUSED: &str = "ExpressionRefused";

/// Stores the tags of a machine. The machine's status was written before, so a tag that is evaluated later sees it too. A tag that was
/// evaluated earlier did not: if the hardware is new, the machine is evaluated again with the present tags.
///
/// # Errors
/// Fails if the database cannot be written.
pub(crate) async fn settle(
    driver: &Driver,
    uid: MachineId,
    subject: &Subject<'_>,
    evaluated: &[Tagged],
    is_news: bool,
) -> Result<(), StoreError> {
    if !is_news && driver.store.tagged(uid).await? == evaluated {
        return Ok(());
    }
    let mut tagging = driver.store.tagging().await?;
    let tags: Vec<_> = readable(tagging.tags().await?).map(|(tag, spec)| TagSeen::new(&tag, spec)).collect();
    let held = evaluate(uid, subject, &tags);
    driver.meters.evaluated(expressions(&tags));
    let uids: Vec<_> = tags.iter().map(|tag| tag.uid).collect();
    tagging.keep(&[uid.into()], &uids, &held).await?;
    Ok(())
}

/// Reconciles one tag.
///
/// # Errors
/// Fails if the database fails, or if the lease is over.
pub async fn reconcile(driver: &Driver, lease: &WorkLease) -> Result<Requeue, StoreError> {
    let Some(object) = driver.store.get_by_uid(lease.uid).await? else { return Ok(Requeue::WhenWoken) };
    if object.deletion_requested_at.is_some() {
        // The store deletes the tag, and wakes the machines that had it.
        return Ok(Requeue::WhenWoken);
    }
    let tag = TagSeen::of(&object)?;
    let refusal = refusal(&tag.spec);
    let before: TagStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
    let is_told = before.common.conditions.iter().any(|condition| condition.reason == REFUSED);
    let is_new = object.observed_generation != object.generation
        || poison::is_told(&object)
        || is_told != refusal.is_some();
    if !is_new && !driver.store.is_kept_otherwise(object.uid, &object.name).await? {
        return Ok(Requeue::WhenWoken);
    }
    let tags = [tag];
    let (mut after, mut seen, mut changed) = (None, 0_usize, 0_usize);
    loop {
        let mut tagging = driver.store.tagging().await?;
        let machines = tagging.machines(after, BATCH).await?;
        let Some(last) = machines.last() else { break };
        after = Some(last.uid);
        let uids: Vec<_> = machines.iter().map(|machine| machine.uid).collect();
        let held = evaluate_all(machines, &tags);
        driver.meters.evaluated(expressions(&tags).saturating_mul(uids.len()));
        changed = changed.saturating_add(tagging.keep(&uids, &[object.uid], &held).await?);
        seen = seen.saturating_add(uids.len());
        driver.store.extend(lease, LEASE).await?;
    }
    match &refusal {
        Some(error) => {
            tracing::warn!(tag = object.name, %error, "the tag's expression is refused: no machine has the tag by it")
        }
        None => tracing::info!(
            tag = object.name,
            machines = seen,
            changed,
            "the tag's expression was looked at with all machines"
        ),
    }
    let [tag] = &tags;
    let status = status(&object, &before, &tag.spec, refusal.as_ref(), driver.store.now().await?);
    driver.write_status(lease, object.generation, &to_json(&status)?).await?;
    Ok(Requeue::WhenWoken)
}

fn evaluate_all(machines: Vec<Object>, tags: &[TagSeen]) -> Vec<Tagged> {
    let mut held = Vec::new();
    for (object, machine) in readable::<MachineSpec>(machines) {
        let status: MachineStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
        let subject = subject(&object.name, &machine, status.inventory.as_ref());
        held.extend(evaluate(object.uid.into(), &subject, tags));
    }
    held
}

/// The status of a tag after all machines were evaluated. The number of machines is counted when the tag is read.
fn status(
    object: &Object,
    before: &TagStatus,
    declared: &TagSpec,
    refusal: Option<&ExpressionError>,
    now: Timestamp,
) -> TagStatus {
    let (reason, message) = match (&declared.expression, refusal) {
        (Some(_), Some(error)) => {
            (REFUSED, format!("No machine has the tag by its expression: {error}. Declare another one."))
        }
        (Some(_), None) => {
            ("Evaluated", "Every machine was looked at; each is looked at again when it changes.".to_owned())
        }
        (None, _) => (
            "Stored",
            "It has no expression: machines have it whose specs name it, or whom tools gave it.".to_owned(),
        ),
    };
    let is_refused = reason == REFUSED;
    let mut status = TagStatus::default();
    status.common.observed_generation = object.generation;
    status.common.conditions = settled(!is_refused, reason, &message, now);
    basalt_engine::machine::carry_since(&before.common.conditions, &mut status.common.conditions, now);
    status
}
