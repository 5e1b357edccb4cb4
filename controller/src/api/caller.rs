//! Who asks: what the guard found out, for handlers.

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

/// Who makes a request. Every handler behind the guard can take it as an argument.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The way by which the request came.
    pub(super) peer: Peer,
    /// The token; none over the socket.
    pub(super) bearer: Option<Bearer>,
    /// As the audit log has it.
    pub(super) actor: Arc<Actor>,
    /// What it may do.
    pub(super) rights: Rights,
    /// To what its token is limited.
    pub(super) scopes: Scopes,
    /// The objects that say so; a change of one of them may change all of this.
    pub(super) rests_on: Vec<Uid>,
    /// The position that the change log was at before that was looked up.
    pub(super) as_of: i64,
    /// Objects that the request's body declares by name; none until a handler has read it.
    pub(super) declared: Arc<OnceLock<HashSet<Named>>>,
}

impl Caller {
    /// Says what the request's body declares.
    pub(super) fn declare(&self, objects: impl Iterator<Item = Named>) {
        let _ = self.declared.set(objects.collect());
    }

    /// Says if the request's body declares this object.
    pub(super) fn declares(&self, named: &Named) -> bool {
        self.declared.get().is_some_and(|declared| declared.contains(named))
    }

    /// The user behind the caller, with all its sessions and tokens; of a token without a user, and of the socket, the caller itself.
    pub(super) fn holder(&self) -> String {
        match self.bearer.as_ref().and_then(|bearer| bearer.user.as_ref()) {
            Some(user) => format!("user {user}"),
            None => self.actor.name.clone(),
        }
    }

    /// The store, acting for the caller: for every write that it asks for.
    pub(super) fn store(&self, app: &App) -> Store {
        app.store().acting(self.actor.clone())
    }

    /// The same, for what the caller asks for with force: the audit log says so.
    pub(super) fn insisting(&self, app: &App) -> Store {
        let request = format!("{}?force=true", self.actor.request);
        app.store().acting(Arc::new(Actor { request, ..(*self.actor).clone() }))
    }

    /// What stands for an object that the caller does not see: the same as for one that is not there.
    pub(super) fn unseen(kind: &Kind, key: Key<'_>) -> Refusal {
        StoreError::NotFound { kind: kind.name.to_owned(), name: key.to_string() }.into()
    }

    /// Whether the caller still sees an object: it may have gone to another pool during a wait.
    pub(super) async fn sees(&self, app: &App, kind: &Kind, key: Key<'_>) -> Answer<()> {
        if !POOLED.contains(&kind.name) || self.rights.unlimited().is_some() {
            return Ok(());
        }
        match app.store().pool_of(kind.name, key).await? {
            Some(pool) if self.rights.may_see(kind.name, pool.as_deref()) => Ok(()),
            _ => Err(Self::unseen(kind, key)),
        }
    }

    /// What stands against the caller's writes, asked in their transactions.
    pub(super) fn guards(&self, dry_run: bool) -> Guards<'_> {
        Guards { rights: &self.rights, dry_run }
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
