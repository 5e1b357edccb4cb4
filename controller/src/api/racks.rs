//! Join tokens, which a person carries to a new rack.

use super::App;
use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::NoParameters;
use crate::racks::join_token::LIFETIME;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use basalt_api::kinds::Rack;
use basalt_api::values::Duration;
use basalt_api::{FieldCode, FieldError, KindOf};
use serde::{Deserialize, Serialize};

/// Body of `POST /api/v1/join_tokens`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JoinRequest {
    /// The rack's name; absent: any name.
    rack: Option<String>,
    /// The lifetime of the token; absent: an hour.
    lifetime: Option<Duration>,
    /// The regions for the rack, `https://HOST:PORT`; absent: those from the region's settings.
    urls: Option<Vec<String>>,
}

/// The answer with a join token.
#[derive(Debug, Serialize)]
pub(super) struct JoinAnswer {
    /// The token for `basalt-rack --join`.
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
        super::body::check_name(Rack::KIND, rack)?;
    }
    let urls = match request.urls {
        Some(asked) => well_formed(asked)?,
        None => joiner.urls().to_vec(),
    };
    if urls.is_empty() {
        let message = "this region listens on every address, and does not know at which racks reach it";
        let hint = "[\"https://ADDRESS:5250\"]; or start the region with --join-urls https://ADDRESS:5250";
        return Err(Refusal::field("/urls", FieldCode::Required, message, hint));
    }
    let lifetime = request.lifetime.map_or(LIFETIME, |l| l.get());
    let token = joiner.acting(caller.actor).make(request.rack.as_deref(), lifetime, urls).await?;
    Ok((StatusCode::CREATED, Json(JoinAnswer { token: token.encode() })))
}

/// The URLs, if a rack can dial each of them.
fn well_formed(urls: Vec<String>) -> Answer<Vec<String>> {
    let wrong = |(place, url): (usize, &String)| {
        let can_be_dialled = basalt_proto::region::address_of_url(url).is_some();
        let message = format!("{url:?} is no address of a region");
        let pointer = format!("/urls/{place}");
        (!can_be_dialled)
            .then(|| FieldError::new(pointer, FieldCode::Format, message, "https://ADDRESS:5250"))
    };
    let errors: Vec<FieldError> = urls.iter().enumerate().filter_map(wrong).collect();
    if errors.is_empty() { Ok(urls) } else { Err(Refusal::invalid(errors)) }
}
