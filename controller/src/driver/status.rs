//! Parts of statuses: conditions, values and times.

use basalt_api::kinds::{Condition, ConditionStatus};
use basalt_api::values::{Duration, Timestamp};
use basalt_db::StoreError;
use serde_json::Value;

/// The conditions of a ready or a stalled object. All have the same reason and message.
pub(crate) fn settled(is_ready: bool, reason: &str, message: &str, now: Timestamp) -> Vec<Condition> {
    let condition = |(kind, holds): (&str, bool)| Condition {
        kind: kind.to_owned(),
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        reason: reason.to_owned(),
        message: message.to_owned(),
        since: now,
        deadline: None,
    };
    [(Condition::READY, is_ready), (Condition::PROGRESSING, false), (Condition::STALLED, !is_ready)]
        .map(condition)
        .into()
}

pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> Result<Value, StoreError> {
    serde_json::to_value(value).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// The time between two times, in milliseconds.
pub(crate) fn between(begin: Timestamp, end: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(end.duration_since(begin).as_millis()).unwrap_or(0))
}
