//! `GET /api/v1/watch`: what changes, as it changes, without skipping anything and without an object going back.
//!
//! | module | is |
//! | --- | --- |
//! | [`hub`] | the one task that reads changes and hands them out |
//! | [`reader`] | one watch: catching up, then going on; bookmarks; its end |
//! | [`ahead`] | what a reader was told before the log had come to it |
//! | [`view`] | which objects a reader is shown |
//! | [`frame`] | events as bytes |
//!
//! Nothing is buffered without bound: a reader whose queue is full is cut, and resumes from the log at the last event that it
//! has read. What a reader may see is what its token may see; a change of that ends the watch, and since nobody can say what a
//! reader with other rights has missed, the position from before is answered `compacted`.

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
    // A client that resumes by itself repeats its first request; only the header says where it is.
    let resumed = headers.get(LAST_EVENT_ID).map(|v| v.to_str().unwrap_or("?").to_owned());
    parameters.since.as_deref().map(parts).transpose()?;
    let since = resumed.or(parameters.since).map(|text| position(&app, &text)).transpose()?;
    // What made its rights is not to cut it: a watch with a token of a moment ago.
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

/// `INCARNATION:SEQUENCE`.
fn parts(text: &str) -> Answer<(&str, i64)> {
    let parts = text.split_once(':').and_then(|(life, at)| Some((life, at.parse::<i64>().ok()?)));
    parts.filter(|(_, position)| *position >= 0).ok_or_else(|| {
        let hint = "the position of a list, or the id of an event";
        Refusal::field("", FieldCode::Format, format!("{text:?} is no position"), hint)
    })
}

/// A position of this database's life.
fn position(app: &App, text: &str) -> Answer<i64> {
    let (life, position) = parts(text)?;
    if life != app.store().incarnation().to_string() {
        return Err(compacted(format!("{text:?} is of another life of the database; list again")));
    }
    Ok(position)
}

/// Whether the log reaches back to `since`, and `since` is not made up.
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
