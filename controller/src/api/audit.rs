//! The audit log, for admins.

use super::App;
use super::problem::{Answer, Refusal};
use super::query::{limit, parameters};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use basalt_api::values::{Timestamp, Uid};
use basalt_api::{FieldCode, Kind};
use basalt_db::{AuditQuery, Key, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    since: Option<Timestamp>,
    limit: Option<i64>,
    object: Option<String>,
    actor: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// [`basalt_api::wire::AuditPage`], with specs as text.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    items: Vec<Entry>,
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct Entry {
    at: Timestamp,
    actor: String,
    address: String,
    request: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<Uid>,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    before: Option<Box<RawValue>>,
    after: Option<Box<RawValue>>,
}

/// The object in the parameter `object`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Subject<'a> {
    pub(super) uid: Option<Uid>,
    pub(super) kind: Option<&'a str>,
    pub(super) name: Option<&'a str>,
}

/// The log's kinds of things that are no objects.
const THINGS: [&str; 2] = ["Blob", "JoinToken"];

/// Reads `uid:…`, `KIND/NAME` or `KIND`; the kind in any spelling, or one of [`THINGS`].
pub(super) fn subject(text: &str) -> Answer<Subject<'_>> {
    if let Some(uid) = text.strip_prefix("uid:") {
        let uid = uid.parse().map_err(|_| {
            let message = format!("{text:?} in object is no uid");
            Refusal::field("/object", FieldCode::Format, message, "uid:UUID, KIND/NAME or KIND")
        })?;
        return Ok(Subject { uid: Some(uid), ..Subject::default() });
    }
    let (kind, name) = text.split_once('/').map_or((text, None), |(kind, name)| (kind, Some(name)));
    let known = Kind::find(kind).map(|kind| kind.name);
    let known = known.or_else(|| THINGS.into_iter().find(|thing| *thing == kind)).ok_or_else(|| {
        let message = format!("{kind:?} in object is no kind");
        let hint = format!(
            "KIND/NAME for one object, like machine/web1; a kind, {}, or uid:UUID",
            THINGS.join(", ")
        );
        Refusal::field("/object", FieldCode::Format, message, hint)
    })?;
    Ok(Subject { kind: Some(known), name, uid: None })
}

pub(super) async fn list(State(app): State<App>, uri: Uri) -> Answer<Json<Page>> {
    let parameters: Parameters = parameters(&uri)?;
    let limit = limit(parameters.limit)?;
    let before_id = parameters.next.as_deref().map(str::parse).transpose().map_err(|_| {
        let message = format!("{:?} in continue is not from the page before", parameters.next);
        Refusal::field("/continue", FieldCode::Format, message, "`continue` of the page before")
    })?;
    let mut subject = parameters.object.as_deref().map(subject).transpose()?.unwrap_or_default();
    // Search by uid: an object with this name may have had other names before.
    if let (Some(kind), Some(name)) = (subject.kind.filter(|kind| Kind::find(kind).is_some()), subject.name) {
        subject.uid = match app.store().get(kind, Key::Name(name)).await {
            Err(StoreError::NotFound { .. }) => None,
            object => Some(object?.uid),
        };
    }
    let query = AuditQuery {
        since: parameters.since,
        uid: subject.uid,
        kind: subject.kind,
        name: subject.name,
        actor: parameters.actor.as_deref(),
        before_id,
        limit,
    };
    let page = app.store().audit_page(&query).await?;
    let items = page.entries.into_iter().map(|entry| Entry {
        at: entry.at,
        actor: entry.actor.name,
        address: entry.actor.address,
        request: entry.actor.request,
        kind: entry.kind,
        uid: entry.uid,
        name: entry.name,
        generation: entry.generation.map(|g| g.get()),
        before: entry.before,
        after: entry.after,
    });
    Ok(Json(Page { items: items.collect(), next: page.next.map(|id| id.to_string()) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_uid_or_by_kind_and_name() {
        assert_eq!(
            subject("machines/web1").unwrap(),
            Subject { kind: Some("Machine"), name: Some("web1"), uid: None }
        );
        assert_eq!(subject("Blob").unwrap(), Subject { kind: Some("Blob"), ..Subject::default() });
        assert!(subject("uid:0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e").unwrap().uid.is_some());
        assert!(subject("uid:web1").is_err());
        for forgotten in ["web1", "nope/web1", "blob"] {
            assert!(subject(forgotten).is_err(), "{forgotten} is no kind, and nobody changed it");
        }
    }
}
