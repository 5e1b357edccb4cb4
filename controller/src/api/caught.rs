//! Catches panics of handlers: the client gets the problem `internal`, the log gets the message, and other requests are not
//! affected.

use super::problem::Refusal;
use crate::driver::poison::said;
use axum::response::{IntoResponse, Response};
use basalt_api::ProblemCode;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;

/// The answer, also if the handler panics. The handler's values are dropped, so its transaction is rolled back.
pub(super) async fn caught(answer: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|panic| {
        tracing::error!(
            said = said(panic.as_ref()),
            "a handler panicked, which is a fault in the region itself"
        );
        Refusal::new(ProblemCode::Internal, "the region made a mistake; its log has more").into_response()
    })
}
