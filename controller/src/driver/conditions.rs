//! Conditions of objects that are either ready or need a person; no work is ever in progress for them.

use basalt_api::kinds::{Condition, ConditionStatus};
use basalt_api::values::Timestamp;

/// The conditions of a ready or a stalled object. All have the same reason and message.
pub(super) fn settled(is_ready: bool, reason: &str, message: &str, now: Timestamp) -> Vec<Condition> {
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
