//! The caller of a request, from the guard, for handlers.

use super::App;
use super::guard::Peer;
use super::guards::Guards;
use super::problem::{Answer, Refusal};
use super::rights::{POOLED, Rights, Scopes};
use crate::blobs::Blobs;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use basalt_api::values::Uid;
use basalt_api::{Kind, ProblemCode};
use basalt_db::{Actor, Bearer, Key, Named, Store, StoreError};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// The caller of a request. Every handler behind the guard can take it as an argument.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The transport of the request.
    pub(super) peer: Peer,
    /// The token; `None` over the socket.
    pub(super) bearer: Option<Bearer>,
    /// The actor for the audit log.
    pub(super) actor: Arc<Actor>,
    /// The caller's rights.
    pub(super) rights: Rights,
    /// The scopes of its token.
    pub(super) scopes: Scopes,
    /// The objects that the rights come from. A change of one of them may change all rights.
    pub(super) rests_on: Vec<Uid>,
    /// The position of the change log before the rights were read.
    pub(super) as_of: i64,
    /// The objects that the request's body declares by name; unset until a handler has read it.
    pub(super) declared: Arc<OnceLock<HashSet<Named>>>,
}

impl Caller {
    /// Sets the objects that the request's body declares.
    pub(super) fn declare(&self, objects: impl Iterator<Item = Named>) {
        let _ = self.declared.set(objects.collect());
    }

    /// True if the request's body declares this object.
    pub(super) fn declares(&self, named: &Named) -> bool {
        self.declared.get().is_some_and(|declared| declared.contains(named))
    }

    /// The user behind the caller, for all sessions and tokens of the user. For a token without a user and for the socket, the caller
    /// itself.
    pub(super) fn holder(&self) -> String {
        match self.bearer.as_ref().and_then(|bearer| bearer.user.as_ref()) {
            Some(user) => format!("user {user}"),
            None => self.actor.name.clone(),
        }
    }

    /// The store with the caller as actor, for every write of the request.
    pub(super) fn store(&self, app: &App) -> Store {
        app.store().acting(self.actor.clone())
    }

    /// The same for a request with force, which the audit log shows.
    pub(super) fn insisting(&self, app: &App) -> Store {
        let request = format!("{}?force=true", self.actor.request);
        app.store().acting(Arc::new(Actor { request, ..(*self.actor).clone() }))
    }

    /// The refusal for an object that the caller may not see: the same as for a missing one.
    pub(super) fn unseen(kind: &Kind, key: Key<'_>) -> Refusal {
        StoreError::NotFound { kind: kind.name.to_owned(), name: key.to_string() }.into()
    }

    /// Checks that the caller still sees an object, which may have changed its pool during a wait.
    pub(super) async fn sees(&self, app: &App, kind: &Kind, key: Key<'_>) -> Answer<()> {
        if !POOLED.contains(&kind.name) || self.rights.unlimited().is_some() {
            return Ok(());
        }
        match app.store().pool_of(kind.name, key).await? {
            Some(pool) if self.rights.may_see(kind.name, pool.as_deref()) => Ok(()),
            _ => Err(Self::unseen(kind, key)),
        }
    }

    /// The guards of the caller's writes, called in their transactions.
    pub(super) fn guards(&self, dry_run: bool) -> Guards<'_> {
        Guards { rights: &self.rights, dry_run }
    }

    /// The blobs with the caller as actor.
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
