//! The texts of ApiTokens: made and shown once, known by their hashes afterwards.

use super::caller::Caller;
use super::problem::Answer;
use super::query::{Flags, parameters};
use super::session::fresh_token;
use super::target::Target;
use super::{App, announce, objects};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use basalt_api::wire::TokenIssued;

pub(super) async fn issue(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    uri: Uri,
) -> Answer<Response> {
    let Flags { dry_run } = parameters(&uri)?;
    let text = fresh_token()?;
    let token = caller.store(&app).issue_token(target.key(), &text, dry_run).await?;
    if dry_run {
        let plan = announce::of_token(&app, &token, true).await?;
        return objects::tried(token, plan);
    }
    Ok((StatusCode::CREATED, Json(TokenIssued { token: text.to_string() })).into_response())
}

pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    uri: Uri,
) -> Answer<Response> {
    let Flags { dry_run } = parameters(&uri)?;
    let token = caller.store(&app).revoke_token(target.key(), dry_run).await?;
    if dry_run {
        let plan = announce::of_token(&app, &token, false).await?;
        return objects::tried(token, plan);
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
