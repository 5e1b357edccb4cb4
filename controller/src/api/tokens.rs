//! The texts of ApiTokens: made and shown once, known by their hashes afterwards.

use super::caller::Caller;
use super::problem::Answer;
use super::query::NoParameters;
use super::session::fresh_token;
use super::{App, body};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use basalt_api::KindOf;
use basalt_api::kinds::ApiToken;
use basalt_api::wire::TokenIssued;

pub(super) async fn issue(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    _: NoParameters,
) -> Answer<(StatusCode, Json<TokenIssued>)> {
    let key = body::key(ApiToken::KIND, &name)?;
    let token = fresh_token()?;
    caller.store(&app).issue_token(key, &token).await?;
    Ok((StatusCode::CREATED, Json(TokenIssued { token: token.to_string() })))
}

pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    _: NoParameters,
) -> Answer<StatusCode> {
    caller.store(&app).revoke_token(body::key(ApiToken::KIND, &name)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
