//! Refuses ApiTokens that have expired already: such a token would never be accepted.

use super::{Subject, of_kind};
use crate::StoreError;
use crate::fact::now;
use crate::store::Tx;
use basalt_api::values::{Timestamp, Uid};
use basalt_api::{FieldCode, FieldError};
use serde_json::Value;

/// Errors for tokens whose new end has passed. A token that expired after its declaration can be declared again unchanged.
pub(super) async fn passed(
    tx: &mut Tx,
    subjects: &[Subject<'_>],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let end = |spec: &Value| spec.get("expires_at")?.as_str()?.parse::<Timestamp>().ok();
    let new = |subject: &Subject<'_>| {
        let new = end(subject.spec)?;
        (subject.before.and_then(end) != Some(new)).then_some((subject.uid, new))
    };
    let ends: Vec<(Uid, Timestamp)> = of_kind("ApiToken", subjects).filter_map(new).collect();
    if ends.is_empty() {
        return Ok(Vec::new());
    }
    let now = now(tx).await?;
    let passed = ends.into_iter().filter(|(_, end)| *end <= now);
    Ok(passed.map(|(uid, end)| (uid, expired(end, now))).collect())
}

/// The error for a token that has expired already.
pub(crate) fn expired(end: Timestamp, now: Timestamp) -> FieldError {
    let message =
        format!("the token has expired already: it ends at {end}, and now it is {}", now.strftime("%FT%TZ"));
    FieldError::new("/expires_at", FieldCode::Rule, message, "a time that is still to come, or none")
}
