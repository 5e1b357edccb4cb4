//! A handler that panics answers, too: the client is told that the region made a mistake, the log has what it was, and nobody
//! else's request notices.

use super::problem::Refusal;
use crate::driver::poison::said;
use axum::response::{IntoResponse, Response};
use basalt_api::ProblemCode;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;

/// The answer, whatever becomes of the handler. What it held is let go of: a transaction is rolled back.
pub(super) async fn caught(answer: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|panic| {
        tracing::error!(
            said = said(panic.as_ref()),
            "a handler panicked, which is a fault in the region itself"
        );
        Refusal::new(ProblemCode::Internal, "the region made a mistake; its log has more").into_response()
    })
}
