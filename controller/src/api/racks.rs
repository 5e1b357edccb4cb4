//! Join tokens: what a person carries to a new rack.

use super::App;
use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::NoParameters;
use crate::racks::join_token::LIFETIME;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use basalt_api::ProblemCode;
use basalt_api::values::Duration;
use serde::{Deserialize, Serialize};

/// Body of `POST /api/v1/join_tokens`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JoinRequest {
    /// The rack's name; any where it is absent.
    rack: Option<String>,
    /// How long the token is good; an hour where it is absent.
    lifetime: Option<Duration>,
}

/// Its answer.
#[derive(Debug, Serialize)]
pub(super) struct JoinAnswer {
    /// For `basalt-rack --join`.
    token: String,
}

pub(super) async fn join_token(
    State(app): State<App>,
    caller: Caller,
    _: NoParameters,
    sent: Bytes,
) -> Answer<(StatusCode, Json<JoinAnswer>)> {
    let request: JoinRequest = super::body::json(&sent)?;
    let joiner = app.joiner().ok_or_else(|| Refusal::unavailable("this region does not serve racks yet"))?;
    if let Some(rack) = &request.rack {
        let kind = basalt_api::Kind::find("Rack").ok_or_else(|| {
            Refusal::new(ProblemCode::Internal, "the kind Rack is not described".to_owned())
        })?;
        super::body::check_name(kind, rack)?;
    }
    let lifetime = request.lifetime.map_or(LIFETIME, |l| l.get());
    let token = joiner.acting(caller.actor).make(request.rack.as_deref(), lifetime).await?;
    Ok((StatusCode::CREATED, Json(JoinAnswer { token: token.encode() })))
}
