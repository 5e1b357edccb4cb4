//! Health, version, OpenAPI, metrics.

use super::App;
use super::problem::{Answer, Refusal};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use basalt_api::wire::Version;
use serde_json::Value;
use std::fmt::Write;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;

/// The process runs.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// The process can do its work.
pub(super) async fn readyz(State(app): State<App>) -> Answer<&'static str> {
    if *app.stopping().borrow() {
        return Err(Refusal::unavailable("the region is stopping"));
    }
    app.store().ping().await.map_err(|_| Refusal::unavailable("the database does not answer"))?;
    Ok("ok\n")
}

pub(super) async fn version(State(app): State<App>) -> Json<Version> {
    Json(Version {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api: "v1".to_owned(),
        incarnation: Some(app.store().incarnation()),
        kinds: basalt_api::KINDS.iter().map(|k| k.name.to_owned()).collect(),
    })
}

pub(super) async fn openapi() -> Json<&'static Value> {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| basalt_api::openapi(basalt_api::KINDS));
    Json(&DOCUMENT)
}

pub(super) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let metrics = &app.0.metrics;
    let mut text = String::from("# TYPE basalt_api_answers_total counter\n");
    for (class, count) in (1..).zip(&metrics.answers) {
        let _ = writeln!(
            text,
            "basalt_api_answers_total{{class=\"{class}xx\"}} {}",
            count.load(Ordering::Relaxed)
        );
    }
    let under_way = metrics.under_way.load(Ordering::Relaxed);
    let _ = write!(
        text,
        "# TYPE basalt_api_requests_under_way gauge\nbasalt_api_requests_under_way {under_way}\n\
         # TYPE basalt_change_position gauge\nbasalt_change_position {}\n",
        app.follower().position()
    );
    let watchers = app.watchers();
    let _ = write!(
        text,
        "# TYPE basalt_watch_readers gauge\nbasalt_watch_readers {}\n\
         # TYPE basalt_watch_events_total counter\nbasalt_watch_events_total {}\n\
         # TYPE basalt_watch_cuts_total counter\n",
        watchers.open(),
        watchers.events()
    );
    for (reason, count) in watchers.cuts() {
        let _ = writeln!(text, "basalt_watch_cuts_total{{reason=\"{}\"}} {count}", reason.as_str());
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}
