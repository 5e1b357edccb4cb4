//! What is asked of a machine once, because no spec can say it.

use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::NoParameters;
use super::{App, body};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use basalt_api::ProblemCode;
use basalt_api::wire::{OperationAccepted, OperationRequest, Verb};

pub(super) async fn request(
    State(app): State<App>,
    caller: Caller,
    Path((plural, name)): Path<(String, String)>,
    _: NoParameters,
    sent: Bytes,
) -> Answer<(StatusCode, Json<OperationAccepted>)> {
    let kind = body::kind(&plural)?;
    if kind.name != "Machine" {
        let detail = format!("operations are asked of machines, not of a {}", kind.name);
        return Err(Refusal::new(ProblemCode::NotFound, detail));
    }
    let request: OperationRequest = body::json(&sent)?;
    let machine = app.store().get(kind.name, body::key(kind, &name)?).await?;
    let accepted_at = match request.verb {
        Verb::Recommission => caller.store(&app).request_recommission(machine.uid.into()).await?,
    };
    Ok((StatusCode::ACCEPTED, Json(OperationAccepted { verb: request.verb, accepted_at })))
}
