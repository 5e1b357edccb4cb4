//! Runs of clients: their renewal, and the creations that they confirm.

use super::App;
use super::body;
use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::NoParameters;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use basalt_api::FieldCode;
use basalt_api::values::RunId;
use basalt_api::wire::{MAX_CONFIRMED, RUN_HEADER, RunReport};
use basalt_db::Run;

pub(super) async fn report(
    State(app): State<App>,
    caller: Caller,
    Path(run): Path<String>,
    _: NoParameters,
    sent: Bytes,
) -> Answer<StatusCode> {
    let run = Run { id: id("/run", &run)?, account: caller.holder() };
    let RunReport { confirms, ends } = body::json(&sent)?;
    if confirms.len() > MAX_CONFIRMED {
        let message = format!("{} objects are confirmed at once", confirms.len());
        return Err(Refusal::field("/confirms", FieldCode::TooLarge, message, "10000 at most"));
    }
    app.store().report_run(&run, &confirms, ends).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The run of a write.
pub(super) fn of(headers: &HeaderMap, caller: &Caller) -> Answer<Option<Run>> {
    let Some(value) = headers.get(RUN_HEADER) else { return Ok(None) };
    let id = id("", value.to_str().unwrap_or_default())?;
    Ok(Some(Run { id, account: caller.holder() }))
}

fn id(pointer: &str, text: &str) -> Answer<RunId> {
    text.parse().map_err(|bad: basalt_api::BadValue| {
        Refusal::field(pointer, FieldCode::Format, bad.message, bad.hint)
    })
}
