//! Who asks: what the guard found out, for handlers.

use super::App;
use super::problem::{Answer, Refusal};
use super::rights::{ACCESS, POOLED, Rights, Role, Scopes};
use crate::blobs::Blobs;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use basalt_api::{FieldCode, Kind, ProblemCode};
use basalt_db::{Actor, Key, Precondition, Store, StoreError};
use serde_json::Value;
use std::sync::Arc;

/// Who makes a request. Every handler behind the guard can take it as an argument.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// As the audit log has it.
    pub(super) actor: Arc<Actor>,
    /// What it may do.
    pub(super) rights: Rights,
    /// To what its token is limited.
    pub(super) scopes: Scopes,
}

impl Caller {
    /// The store, acting for the caller: for every write that it asks for.
    pub(super) fn store(&self, app: &App) -> Store {
        app.store().acting(self.actor.clone())
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

    /// Whether the caller may write this spec: into a pool that it has. What was found is made a precondition, so that nobody moves
    /// the object between this look and the write.
    pub(super) async fn puts(
        &self,
        app: &App,
        (kind, key): (&Kind, Key<'_>),
        spec: &Value,
        precondition: Precondition,
        dry_run: bool,
    ) -> Answer<Precondition> {
        let needed = if dry_run { Role::Viewer } else { Role::Operator };
        if !POOLED.contains(&kind.name) || self.rights.unlimited() >= Some(needed) {
            return Ok(precondition);
        }
        let pool = match kind.name {
            "Machine" => Some(word(spec, "/pool").unwrap_or("default").to_owned()),
            _ => match word(spec, "/machine") {
                None => word(spec, "/selector/pool").map(str::to_owned),
                Some(machine) => match app.store().pool_of("Machine", Key::Name(machine)).await? {
                    Some(pool) if self.rights.may_see("Machine", pool.as_deref()) => pool,
                    // It may be created in the same apply.
                    None if dry_run => return Ok(precondition),
                    _ => {
                        let message = format!("there is no Machine {machine:?}");
                        let hint = "create the Machine first, or name another one";
                        return Err(Refusal::field(
                            "/spec/machine",
                            FieldCode::ReferenceNotFound,
                            message,
                            hint,
                        ));
                    }
                },
            },
        };
        if self.rights.over(pool.as_deref()) < Some(needed) {
            let where_to = pool.map_or_else(|| "any pool".to_owned(), |pool| format!("pool {pool:?}"));
            let detail =
                format!("this token may not put a {} into {where_to}; name a pool that it has", kind.name);
            return Err(Refusal::new(ProblemCode::Forbidden, detail));
        }
        let before = match app.store().get(kind.name, key).await {
            Ok(object) => Some(object.generation),
            Err(StoreError::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if before.is_some() {
            let pool = app.store().pool_of(kind.name, key).await?.flatten();
            if self.rights.over(pool.as_deref()) < Some(needed) {
                return Err(Self::unseen(kind, key));
            }
        }
        Ok(match (precondition, before) {
            (Precondition::None | Precondition::Present, Some(generation)) => {
                Precondition::Generation(generation)
            }
            (Precondition::None, None) => Precondition::Absent,
            (other, _) => other,
        })
    }

    /// Whether the caller may change who may do what.
    pub(super) fn governs(&self, kind: &str) -> bool {
        !ACCESS.contains(&kind) || self.rights.unlimited() >= Some(Role::Admin)
    }

    /// The blobs, acting for the caller.
    pub(super) fn blobs(&self, app: &App) -> Blobs {
        app.blobs().acting(self.actor.clone())
    }
}

fn word<'a>(spec: &'a Value, pointer: &str) -> Option<&'a str> {
    spec.pointer(pointer).and_then(Value::as_str)
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
