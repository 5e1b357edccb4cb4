//! Deliveries to webhooks, for people and programs, and the part of a webhook's status about them.

use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::{Flags, limit, parameters};
use super::target::Target;
use super::utilisation::with;
use super::waiting::WaitsFor;
use super::{App, announce, body, objects, render};
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use basalt_api::kinds::{CommonStatus, Condition, ConditionStatus, Webhook};
use basalt_api::values::{Timestamp, Uid};
use basalt_api::wire::{
    DeliveryInfo, DeliveryPage, DeliveryState, DiscardRequest, Discarded, RedeliverRequest, Redelivered,
};
use basalt_api::{FieldCode, Kind, KindOf, has_sensitive, masked};
use basalt_db::{Delivery, Object, StoreError, WebhookState};
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    state: Option<DeliveryState>,
    limit: Option<i64>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// The body of a request to a receiver: `type`, `timestamp` and `data`, as Standard Webhooks recommends.
#[derive(Serialize)]
struct Payload {
    /// The event, for example `Machine.ready`.
    r#type: String,
    timestamp: Timestamp,
    data: Data,
}

#[derive(Serialize)]
struct Data {
    event: String,
    kind: String,
    name: String,
    uid: Uid,
    generation: u64,
    /// Rises with each event of an object.
    sequence: i64,
    /// The object as a viewer would have read it then, with sensitive values masked: receivers are programs of others.
    object: render::Rendered,
}

/// The body of a delivery; each attempt sends the same one.
pub(crate) fn payload(delivery: &Delivery) -> Result<Vec<u8>, String> {
    let mut object = delivery.object.clone();
    if let Some(kind) = Kind::find(&object.kind).filter(|kind| has_sensitive(kind)) {
        let spec = serde_json::from_str(object.spec.get()).map_err(|error| error.to_string())?;
        object.spec = to_raw_value(&masked(kind, &spec)).map_err(|error| error.to_string())?;
    }
    let data = Data {
        event: delivery.event.clone(),
        kind: object.kind.clone(),
        name: object.name.clone(),
        uid: object.uid,
        generation: object.generation.get(),
        sequence: delivery.sequence,
        object: render::render(object, &WaitsFor::default())
            .map_err(|refusal| format!("it cannot be rendered: {refusal:?}"))?,
    };
    let payload = Payload { r#type: format!("{}.{}", data.kind, data.event), timestamp: delivery.at, data };
    serde_json::to_vec(&payload).map_err(|error| error.to_string())
}

pub(super) async fn deliveries(
    State(app): State<App>,
    target: Target,
    uri: Uri,
) -> Answer<Json<DeliveryPage>> {
    let parameters: Parameters = parameters(&uri)?;
    let limit = limit(parameters.limit)?;
    let before = parameters.next.as_deref().map(str::parse).transpose().map_err(|_| {
        let message = format!("{:?} in continue is not from the page before", parameters.next);
        Refusal::field("/continue", FieldCode::Format, message, "`continue` of the page before")
    })?;
    let webhook = target.object(&app).await?;
    let state = parameters.state.map(DeliveryState::as_str);
    let mut found = app.store().deliveries(webhook.uid, state, before, limit.saturating_add(1)).await?;
    let more = i64::try_from(found.len()).is_ok_and(|length| length > limit);
    if more {
        found.pop();
    }
    let next = found.last().filter(|_| more).map(|last| last.sequence.to_string());
    let items = found.into_iter().map(|entry| DeliveryInfo {
        id: entry.id,
        state: DeliveryState::parse(&entry.state),
        event: entry.event,
        at: entry.at,
        sequence: entry.sequence,
        kind: entry.kind,
        name: entry.name,
        uid: entry.uid,
        attempts: entry.attempts.unsigned_abs(),
        due: entry.due,
        ended_at: entry.ended_at,
        error: entry.error,
    });
    Ok(Json(DeliveryPage { items: items.collect(), next }))
}

pub(super) async fn redeliver(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    uri: Uri,
    sent: Bytes,
) -> Answer<Response> {
    let Flags { dry_run } = parameters(&uri)?;
    let request: RedeliverRequest = body::json(&sent)?;
    let webhook = target.object(&app).await?;
    let deliveries = caller.store(&app).redeliver(webhook.uid, request.id, dry_run).await?;
    if dry_run {
        let plan = announce::of_redelivery(&webhook, deliveries);
        return objects::tried(webhook, plan);
    }
    Ok(Json(Redelivered { deliveries }).into_response())
}

pub(super) async fn discard(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    uri: Uri,
    sent: Bytes,
) -> Answer<Response> {
    let Flags { dry_run } = parameters(&uri)?;
    let request: DiscardRequest = body::json(&sent)?;
    let webhook = target.object(&app).await?;
    let deliveries = caller.store(&app).discard(webhook.uid, request.id, dry_run).await?;
    if dry_run {
        let plan = announce::of_discard(&webhook, deliveries);
        return objects::tried(webhook, plan);
    }
    Ok(Json(Discarded { deliveries }).into_response())
}

/// Adds the state of deliveries to the status of the webhooks among these objects.
pub(super) async fn fill(app: &App, objects: &mut [Object]) -> Answer<()> {
    let uids: Vec<Uid> = objects.iter().filter(|o| o.kind == Webhook::KIND.name).map(|o| o.uid).collect();
    if uids.is_empty() {
        return Ok(());
    }
    let states = app.store().webhook_states(&uids).await?;
    for object in objects {
        let Some(state) = states.get(&object.uid) else { continue };
        let conditions = conditions(object, state)?;
        let fields = [
            ("delivered", json!(state.delivered)),
            ("waiting", json!(state.pending)),
            ("failed", json!(state.dead)),
            ("last_delivered_at", json!(state.last_delivered_at)),
            ("last_error", json!(state.last_error)),
            ("conditions", json!(conditions)),
        ];
        object.status = with(&object.status, fields)?;
    }
    Ok(())
}

fn conditions(object: &Object, state: &WebhookState) -> Result<[Condition; 3], StoreError> {
    let corrupt = |error: serde_json::Error| StoreError::Corrupt(format!("a status: {error}"));
    let stored: Value = serde_json::from_str(object.status.get()).map_err(corrupt)?;
    let stored = CommonStatus::deserialize(&stored).map_err(corrupt)?;
    let declared = stored.condition(Condition::READY).map_or(object.created_at, |ready| ready.since);
    let (reason, message, since) = match (&state.disabled, &state.last_error) {
        (Some((at, said)), _) => {
            let message = format!(
                "The receiver wants no more: it {said}. Change the spec, or ask for redelivery, to go on."
            );
            ("Gone", message, *at)
        }
        (None, Some(error)) => ("Failing", format!("The last attempt failed: {error}"), declared),
        (None, None) => ("Delivering", "What happens is delivered.".to_owned(), declared),
    };
    let gone = state.disabled.is_some();
    let condition = |kind: &str, holds: bool| Condition {
        kind: kind.to_owned(),
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        reason: reason.to_owned(),
        message: message.clone(),
        since,
        deadline: None,
    };
    Ok([
        condition(Condition::READY, !gone),
        condition(Condition::PROGRESSING, false),
        condition(Condition::STALLED, gone),
    ])
}
