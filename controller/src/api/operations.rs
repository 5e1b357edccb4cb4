//! What is asked of a machine once, because no spec can say it.

use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::{Flags, parameters};
use super::{App, announce, body, objects};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use basalt_api::ProblemCode;
use basalt_api::wire::{OperationAccepted, OperationRequest, Verb};
use basalt_db::Judge;

pub(super) async fn request(
    State(app): State<App>,
    caller: Caller,
    Path((plural, name)): Path<(String, String)>,
    uri: Uri,
    sent: Bytes,
) -> Answer<Response> {
    let kind = body::kind(&plural)?;
    let Flags { dry_run } = parameters(&uri)?;
    if kind.name != "Machine" {
        let detail = format!("operations are asked of machines, not of a {}", kind.name);
        return Err(Refusal::new(ProblemCode::NotFound, detail));
    }
    let OperationRequest { verb } = body::json(&sent)?;
    let (key, guards) = (body::key(kind, &name)?, caller.guards(dry_run));
    let judged = (dry_run, &guards as &dyn Judge);
    let (machine, accepted_at) = match verb {
        Verb::Recommission => caller.store(&app).request_recommission(key, judged).await?,
    };
    if dry_run {
        let plan = announce::of_operation(&app, &machine, verb).await?;
        return objects::tried(machine, plan);
    }
    Ok((StatusCode::ACCEPTED, Json(OperationAccepted { verb, accepted_at })).into_response())
}
