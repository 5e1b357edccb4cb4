//! Health, version, OpenAPI.

use super::App;
use super::problem::{Answer, Refusal};
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use basalt_api::wire::Version;
use basalt_db::StoreError;
use serde_json::Value;
use std::sync::LazyLock;

/// The process runs.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// The process can do its work.
pub(super) async fn readyz(State(app): State<App>) -> Answer<&'static str> {
    if *app.stopping().borrow() {
        return Err(Refusal::unavailable("the region is stopping"));
    }
    match app.store().ping().await {
        Err(error @ StoreError::SealReplaced) => return Err(error.into()),
        pinged => pinged.map_err(|_| Refusal::unavailable("the database does not answer"))?,
    }
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

/// The description of the API. All answers share one text: strangers may ask for it.
pub(super) async fn openapi() -> Response {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], TEXT.clone()).into_response()
}

pub(super) fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| basalt_api::openapi(basalt_api::KINDS));
    &DOCUMENT
}
