//! Changes a part of a spec by JSON merge patch (RFC 7396); the document is the spec.

use super::App;
use super::body;
use super::caller::Caller;
use super::guards::OwnerGuards;
use super::objects;
use super::problem::{Answer, Refusal};
use super::query::{PatchParameters, parameters};
use super::target::Target;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use basalt_api::wire::MERGE_PATCH;
use basalt_api::{FieldCode, Kind, ProblemCode};
use basalt_db::splice::Text;
use basalt_db::{Batch, Key, Object, Precondition, Put, StoreError};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The number of tries if another client changes the spec between read and write. The patch is applied again each time.
const TRIES: u32 = 8;

pub(super) async fn patch(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Response> {
    let (kind, key) = (target.kind, target.key());
    let PatchParameters { dry_run, adopt } = parameters(&uri)?;
    let asked = body::precondition(&headers)?;
    let manager = body::manager(&headers)?;
    let patch = merge_patch(&headers, &body)?;
    let mut tries = 1;
    loop {
        let before = app.store().get(kind.name, key).await?;
        let precondition = match asked {
            Precondition::None | Precondition::Present => Precondition::Generation(before.generation),
            // The patch applies only to the requested generation.
            Precondition::Generation(wanted) if wanted != before.generation => {
                let (kind, current) = (kind.name.to_owned(), Some(before.generation));
                return Err(StoreError::Conflict { kind, name: before.name, current }.into());
            }
            asked => asked,
        };
        let (text, value) = merged(kind, &before, &patch)?;
        let put = Put {
            kind,
            key: Key::Uid(before.uid),
            spec: &text,
            at: "/spec",
            labels: None,
            manager: manager.as_deref(),
            adopt,
            precondition,
            first_status: &json!({}),
        };
        let guards = caller.guards(dry_run);
        let judge = OwnerGuards { manager: manager.as_deref(), adopt, expected: None, guards };
        let batch = Batch { puts: &[put], prune: None, dry_run, judge: &judge, allocation: None };
        let stored = match caller.store(&app).write(&batch).await {
            Err(StoreError::Conflict { .. }) if asked != precondition && tries < TRIES => {
                tries += 1;
                continue;
            }
            written => written?.stored.pop(),
        };
        let stored = stored.ok_or_else(|| {
            Refusal::new(ProblemCode::Internal, "the store did not say what became of the spec")
        })?;
        if dry_run {
            return objects::dry_run(&app, &caller.rights, stored, &value).await;
        }
        return Ok(objects::rendered(&app, &caller.rights, stored.object).await?.answer(StatusCode::OK));
    }
}

/// Reads the patch. It must name each member only once.
fn merge_patch(headers: &HeaderMap, body: &Bytes) -> Answer<Map<String, Value>> {
    let given = headers.get(header::CONTENT_TYPE).map(|v| v.to_str().unwrap_or("?"));
    let media_type = given.unwrap_or("none").split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case(MERGE_PATCH) {
        let detail = format!(
            "the Content-Type of a PATCH is {MERGE_PATCH} (RFC 7396), and this one's is {media_type}"
        );
        return Err(Refusal::new(ProblemCode::UnsupportedMediaType, detail));
    }
    let text = std::str::from_utf8(body).unwrap_or_default();
    Text::received(text).map_err(|error| {
        let hint = "a JSON object with the fields that change; null removes one";
        Refusal::field("", FieldCode::Format, format!("the patch cannot be read: {error}"), hint)
    })?;
    body::json(body)
}

/// The patched spec, which is valid by itself. A null clears a secret. A secret that the patch does not name keeps its stored value.
pub(super) fn merged(
    kind: &'static Kind,
    before: &Object,
    patch: &Map<String, Value>,
) -> Answer<(Text, Value)> {
    let stored = |error: String| Refusal::new(ProblemCode::Internal, format!("the stored spec: {error}"));
    let text = Text::parse(before.spec.get()).map_err(|error| stored(error.to_string()))?;
    let value: Value = serde_json::from_str(text.as_str()).map_err(|error| stored(error.to_string()))?;
    let secrets = basalt_api::secrets(kind, &value);
    let is_secret = |pointer: &str| secrets.iter().any(|secret| secret.pointer == pointer);
    let merged =
        basalt_db::merge::merge(&text, patch, &is_secret).map_err(|error| stored(error.to_string()))?;
    let raw = RawValue::from_string(merged.as_str().to_owned()).map_err(|error| stored(error.to_string()))?;
    body::spec(kind, Some(&before.name), &raw).map_err(Refusal::invalid)
}
