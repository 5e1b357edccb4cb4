//! Who asks: what the guard found out, for handlers.

use super::App;
use super::problem::Refusal;
use super::rights::Rights;
use crate::blobs::Blobs;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use basalt_api::ProblemCode;
use basalt_db::{Actor, Store};
use std::sync::Arc;

/// Who makes a request. Every handler behind the guard can take it as an argument.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// As the audit log has it.
    pub(super) actor: Arc<Actor>,
    /// What it may do.
    pub(super) rights: Rights,
}

impl Caller {
    /// The store, acting for the caller: for every write that it asks for.
    pub(super) fn store(&self, app: &App) -> Store {
        app.store().acting(self.actor.clone())
    }

    /// The blobs, acting for the caller.
    pub(super) fn blobs(&self, app: &App) -> Blobs {
        app.blobs().acting(self.actor.clone())
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            Refusal::new(
                ProblemCode::Internal,
                "an endpoint that needs to know its caller is open to anybody",
            )
        })
    }
}
