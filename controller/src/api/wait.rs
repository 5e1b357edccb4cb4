//! Reads that wait: they answer when a condition holds, when nothing more will happen without a person, or when the time is over.

use super::App;
use super::problem::{Answer, Refusal};
use super::query::ReadParameters;
use basalt_api::kinds::{CommonStatus, Condition, ConditionStatus};
use basalt_api::{FieldCode, Kind};
use basalt_db::change::Change;
use basalt_db::{Key, Object};
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// Waits for the deletion of the object; the answer is then 404.
const DELETED: &str = "Deleted";
/// The words for `wait`.
const WORDS: [&str; 4] = [Condition::READY, Condition::PROGRESSING, Condition::STALLED, DELETED];

pub(super) async fn until(
    app: &App,
    kind: &Kind,
    key: Key<'_>,
    condition: &str,
    parameters: &ReadParameters,
) -> Answer<Object> {
    if !WORDS.contains(&condition) {
        let message = format!("{condition:?} in wait is nothing that can be waited for");
        return Err(Refusal::field("/wait", FieldCode::UnknownField, message, WORDS.join(", ")));
    }
    let deadline = Instant::now() + parameters.timeout();
    let mut stopping = app.stopping();
    // Subscribe before the first read, so that no change is missed in between.
    let mut changes = app.follower().subscribe();
    loop {
        let object = app.store().get(kind.name, key).await?;
        if is_over(&object, condition, parameters) {
            return Ok(object);
        }
        tokio::select! {
            changed = next(&mut changes, &object) => changed?,
            () = tokio::time::sleep_until(deadline) => return Ok(object),
            _ = stopping.changed() => return Err(Refusal::unavailable("the region is stopping; ask again")),
        }
    }
}

/// Returns when the object may have changed.
async fn next(changes: &mut Receiver<Arc<Change>>, object: &Object) -> Answer<()> {
    loop {
        match changes.recv().await {
            Ok(change) if change.uid != object.uid => {}
            Ok(_) | Err(RecvError::Lagged(_)) => return Ok(()),
            Err(RecvError::Closed) => return Err(Refusal::unavailable("the region is stopping; ask again")),
        }
    }
}

/// True if the wait is over.
fn is_over(object: &Object, condition: &str, parameters: &ReadParameters) -> bool {
    if condition == DELETED {
        return false;
    }
    let wanted = parameters.generation().unwrap_or(object.generation);
    if object.observed_generation < wanted {
        return false;
    }
    let status: CommonStatus = serde_json::from_str(object.status.get())
        .ok()
        .and_then(|status: serde_json::Value| CommonStatus::deserialize(&status).ok())
        .unwrap_or_default();
    let holds = |name: &str| status.condition(name).is_some_and(|c| c.status == ConditionStatus::True);
    holds(condition) || holds(Condition::STALLED)
}
