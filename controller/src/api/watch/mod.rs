//! `GET /api/v1/watch`: a stream of changes. It skips nothing, and no object goes back to an older state.
//!
//! | module | is |
//! | --- | --- |
//! | [`hub`] | the task that reads changes and passes them on |
//! | [`reader`] | one watch: catching up, live events, bookmarks, and the end |
//! | [`ahead`] | objects that a reader got in a newer state than the log's position |
//! | [`view`] | the objects that a reader sees |
//! | [`frame`] | events as bytes |
//!
//! Every buffer is bounded: a reader whose queue is full is cut, and resumes from the log after the last event that it has read.
//! A reader sees what its token allows. A change of its rights ends the watch. It cannot be computed what a reader with other rights
//! has missed, so a position from before that change is answered with `compacted`.

mod ahead;
mod frame;
pub(super) mod hub;
mod reader;
mod view;

use super::App;
use super::caller::Caller;
use super::guard;
use super::problem::{Answer, Refusal};
use super::query::{WatchParameters, parameters};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use basalt_api::watch::{EVENT_STREAM, LAST_EVENT_ID};
use basalt_api::{FieldCode, ProblemCode};
use reader::Watch;
use std::sync::Arc;
use view::View;

pub(super) async fn watch(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    uri: Uri,
) -> Answer<Response> {
    let parameters: WatchParameters = parameters(&uri)?;
    let view = Arc::new(View::new(&caller, &parameters)?);
    // A client that resumes by itself repeats its first request; only the header has its position.
    let resumed = headers.get(LAST_EVENT_ID).map(|v| v.to_str().unwrap_or("?").to_owned());
    parameters.since.as_deref().map(parts).transpose()?;
    let since = resumed.or(parameters.since).map(|text| position(&app, &text)).transpose()?;
    // Catch up first: the changes that made the caller's rights must not cut a watch with a new token.
    app.watchers().catch_up(app.store().last_position().await?).await;
    let seat = app.watchers().join(view.clone()).await?;
    // From here on the hub sees every change of the rights.
    if !guard::is_unchanged(&app, &headers, &caller).await? {
        return Err(Refusal::unavailable("what this token may see is being changed; try again"));
    }
    if let Some(since) = since {
        reachable(&app, since, seat.joined_at).await?;
        if app.store().changed_since(since, &caller.rests_on).await? {
            return Err(compacted("what this token may see has changed since then; list again".to_owned()));
        }
    }
    let watch = Watch::new(app.clone(), view, seat, since, app.0.parts.bookmark_every);
    let body = Body::from_stream(futures_util::stream::unfold(watch, Watch::next));
    let headers = [(header::CONTENT_TYPE, EVENT_STREAM), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}

fn compacted(detail: String) -> Refusal {
    Refusal::new(ProblemCode::Compacted, detail)
}

/// Splits `INCARNATION:SEQUENCE`.
fn parts(text: &str) -> Answer<(&str, i64)> {
    let parts = text.split_once(':').and_then(|(life, at)| Some((life, at.parse::<i64>().ok()?)));
    parts.filter(|(_, position)| *position >= 0).ok_or_else(|| {
        let hint = "the position of a list, or the id of an event";
        Refusal::field("", FieldCode::Format, format!("{text:?} is no position"), hint)
    })
}

/// A position in this incarnation of the database.
fn position(app: &App, text: &str) -> Answer<i64> {
    let (life, position) = parts(text)?;
    if life != app.store().incarnation().to_string() {
        return Err(compacted(format!("{text:?} is of another life of the database; list again")));
    }
    Ok(position)
}

/// Checks that the log reaches back to `since`, and that `since` exists.
async fn reachable(app: &App, since: i64, joined_at: i64) -> Answer<()> {
    let kept = app.store().compacted_through().await?;
    if since < kept {
        let detail = format!("changes are kept from {kept} on, and the position is {since}; list again");
        return Err(compacted(detail));
    }
    if since > joined_at && since > app.store().last_position().await? {
        let message = format!("nothing has happened yet at the position {since}");
        return Err(Refusal::field(
            "",
            FieldCode::Range,
            message,
            "the position of a list, or the id of an event",
        ));
    }
    Ok(())
}
