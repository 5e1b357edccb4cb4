//! Objects whose handling fails: each error is caught here, reported to people, and retried after growing pauses. Other objects are
//! not affected.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use basalt_api::in_one_line;
use basalt_api::kinds::{Condition, ConditionStatus};
use basalt_api::values::Timestamp;
use basalt_db::{Object, Requeue, StoreError, WorkLease};
use futures_util::FutureExt;
use serde_json::{Map, Value};

use crate::driver::context::Driver;
use crate::driver::status::to_json;

/// The pauses in seconds after handlings that failed or died; they grow with the number of failures in a row.
const PAUSES: [u64; 6] = [1, 2, 5, 15, 60, 300];
/// From this many claims without success on, a race is the object's own fault: two transactions do not meet that often by chance.
const RACES: i32 = 4;
/// The reason in the conditions of an object whose handling failed.
const REASON: &str = "CannotBeWorkedOn";

/// The reason why the handling of an object did not complete.
#[derive(Debug)]
pub enum Failure {
    /// Another process has the lease now.
    Fenced,
    /// The store returned an error, or stored data cannot be read.
    Error(StoreError),
    /// The handler panicked, which is a bug.
    Panic(String),
}

/// Handles one object, and catches a panic.
///
/// # Errors
/// [`Failure`]: the handling did not complete.
pub async fn guarded(work: impl Future<Output = Result<Requeue, StoreError>>) -> Result<Requeue, Failure> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(Ok(then)) => Ok(then),
        Ok(Err(StoreError::Fenced { .. })) => Err(Failure::Fenced),
        Ok(Err(error)) => Err(Failure::Error(error)),
        Err(panic) => Err(Failure::Panic(said(panic.as_ref()))),
    }
}

/// The message of a panic.
pub(crate) fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it says nothing".to_owned())
}

impl Failure {
    /// The cause as one word, for metrics.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::Error(error) if error.is_race() => "race",
            Self::Error(error) if error.is_unavailable() => "unavailable",
            Self::Error(StoreError::SealReplaced) => "seal",
            Self::Error(_) => "error",
            Self::Panic(_) => "panic",
        }
    }

    /// True if the cause seems to be the object itself, after this many claims without success.
    #[must_use]
    pub fn is_the_objects(&self, attempts: i32) -> bool {
        match self.cause() {
            "error" | "panic" => true,
            "race" => attempts >= RACES,
            _ => false,
        }
    }

    fn in_words(&self) -> String {
        match self {
            Self::Fenced => "another region works on it".to_owned(),
            Self::Error(error) => in_one_line(error),
            Self::Panic(said) => format!("a fault in the region itself: {said}"),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::Error(StoreError::Corrupt(_)) => "declare it anew, as this version of the region reads it",
            _ => "report the fault, with the region's log",
        }
    }
}

/// The pause of an object after this many claims without success.
#[must_use]
pub fn pause(attempts: i32) -> Duration {
    let nth = usize::try_from(attempts.saturating_sub(1)).unwrap_or(0).min(PAUSES.len() - 1);
    Duration::from_secs(PAUSES.get(nth).copied().unwrap_or(60))
}

/// True if the object's status has the condition of a failed handling. Its generation is then observed although nothing was done
/// for it.
pub(crate) fn is_told(object: &Object) -> bool {
    let status: Value = serde_json::from_str(object.status.get()).unwrap_or_default();
    let conditions = status.get("conditions").and_then(Value::as_array);
    let says = |condition: &Value| condition.get("reason").and_then(Value::as_str) == Some(REASON);
    conditions.is_some_and(|all| all.iter().any(says))
}

impl Driver {
    /// Releases an object whose handling failed. If the object is the cause, its status reports that.
    ///
    /// # Errors
    /// Fails if the database fails, or if the lease is over.
    pub async fn give_up(&self, lease: &WorkLease, failure: &Failure) -> Result<(), StoreError> {
        self.meters.failed(&lease.kind, failure.cause());
        let (pause, why) = (pause(lease.attempts), failure.in_words());
        let seconds = pause.as_secs();
        if failure.is_the_objects(lease.attempts) {
            tracing::error!(kind = lease.kind, uid = %lease.uid, attempts = lease.attempts, seconds, why, "an object cannot be worked on; others go on");
            self.tell(lease, failure, pause).await?;
        } else {
            tracing::warn!(kind = lease.kind, uid = %lease.uid, seconds, why, "an object could not be worked on; trying again");
        }
        self.store.fail(lease, &why, pause).await
    }

    async fn tell(&self, lease: &WorkLease, failure: &Failure, pause: Duration) -> Result<(), StoreError> {
        let Some(object) = self.store.get_by_uid(lease.uid).await? else { return Ok(()) };
        let now = self.store.now().await?;
        let mut status: Map<String, Value> = serde_json::from_str(object.status.get()).unwrap_or_default();
        let before = status.get("conditions").cloned().unwrap_or_default();
        let before: Vec<Condition> = serde_json::from_value(before).unwrap_or_default();
        let mut conditions = conditions(failure, now.checked_add(pause).ok(), now);
        basalt_engine::machine::carry_since(&before, &mut conditions, now);
        status.insert("conditions".to_owned(), to_json(&conditions)?);
        self.store.write_status(lease, object.generation, &Value::Object(status)).await?;
        Ok(())
    }
}

fn conditions(failure: &Failure, again_at: Option<Timestamp>, now: Timestamp) -> Vec<Condition> {
    let message = format!(
        "the region cannot work on it: {}. It is tried again by itself. To do: {}",
        failure.in_words(),
        failure.advice()
    );
    let condition = |kind: &str, holds| Condition {
        kind: kind.to_owned(),
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        reason: REASON.to_owned(),
        message: message.clone(),
        since: now,
        deadline: again_at,
    };
    vec![
        condition(Condition::READY, false),
        condition(Condition::PROGRESSING, false),
        condition(Condition::STALLED, true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_then_stay() {
        let seconds: Vec<_> = [0, 1, 2, 6, 100].map(|n| pause(n).as_secs()).into();
        assert_eq!(seconds, [1, 1, 2, 300, 300]);
    }

    #[test]
    fn a_race_that_is_repeated_is_the_objects_own() {
        let race = Failure::Error(StoreError::Overtaken);
        assert_eq!(race.cause(), "race");
        let told = [1, 2, 3, 4, 100].map(|attempts| race.is_the_objects(attempts));
        assert_eq!(told, [false, false, false, true, true]);
        let fenced = Failure::Fenced;
        assert!(!fenced.is_the_objects(100), "another region has the object");
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_with_words() {
        let work = async {
            tokio::task::yield_now().await;
            let machines: [u8; 0] = [];
            assert!(!machines.is_empty(), "no machine of {}", 7);
            Ok(Requeue::WhenWoken)
        };
        let failure = guarded(work).await.expect_err("it panics");
        assert_eq!((failure.cause(), failure.is_the_objects(1)), ("panic", true));
        let conditions = conditions(&failure, None, Timestamp::UNIX_EPOCH);
        assert!(conditions[2].message.contains("no machine of 7"), "{conditions:?}");
    }
}
