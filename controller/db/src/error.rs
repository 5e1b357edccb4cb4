//! What the store answers instead of what was asked for.

use basalt_api::FieldError;
use basalt_api::values::Generation;

/// Why a call did nothing. Every variant means: the transaction was rolled back.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such object.
    #[error("there is no {kind} {name:?}")]
    NotFound {
        /// Its kind.
        kind: String,
        /// Its name, or `uid:…`.
        name: String,
    },
    /// It was to be created, and is there already.
    #[error("{kind} {name:?} exists already{}", managed_by(manager.as_deref()))]
    Exists {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Who declared it.
        manager: Option<String>,
        /// Seconds until the request may take it up, unless the run that made it is renewed: a creation of the same account, equal
        /// and not confirmed. `None`: never.
        free_in: Option<u32>,
    },
    /// `If-Match` named another generation.
    #[error("{kind} {name:?} is at {}, and not at the generation that the request asks for", at(*current))]
    Conflict {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// The generation it is at; `None` when it does not exist.
        current: Option<Generation>,
    },
    /// What a manager gives an object is not what the request would replace.
    #[error(
        "what {manager:?} gives {kind} {name:?} is not what the request would replace: it was changed meanwhile"
    )]
    LayerConflict {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Whose labels and tags.
        manager: String,
    },
    /// It is being deleted, and takes no new spec.
    #[error(
        "{kind} {name:?} is being deleted, which cannot be taken back; wait until it is gone (GET …?wait=Deleted), then declare it anew"
    )]
    Deleting {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The spec does not fit the other objects, or the object as it was.
    #[error("the spec is refused: {}", list(errors))]
    Refused {
        /// Everything that is wrong, not only the first; pointers begin with the `at` of their put.
        errors: Vec<FieldError>,
    },
    /// What would be stored is not what was approved.
    #[error("the plan is no longer the one that was approved: something changed in between")]
    StalePlan,
    /// The caller's lease on the object is over: someone else handles it, or nobody has to.
    #[error("epoch {epoch} no longer holds the lease on {uid}")]
    Fenced {
        /// The object.
        uid: basalt_api::values::Uid,
        /// The caller's epoch.
        epoch: basalt_api::values::Epoch,
    },
    /// A secret could not be sealed or opened.
    #[error(
        "the secret at {pointer} cannot be opened: the seal key is another one, or the stored bytes were changed"
    )]
    Seal {
        /// Where it stands in its object's spec.
        pointer: String,
    },
    /// Another seal key has taken the place of this store's.
    #[error(
        "the seal key was replaced while this region ran, and it seals nothing more; start it again, with the new key"
    )]
    SealReplaced,
    /// What was looked at before the transaction is not so any more: the same call may succeed when it is made again.
    #[error("somebody else wrote the same object meanwhile; try again")]
    Overtaken,
    /// The database is of an earlier version, and holds what this one would refuse. It was not changed.
    #[error(
        "the database holds what this version refuses: {}; change that with the version before, which can go on with it, and start this one again",
        found.join("; ")
    )]
    Before {
        /// Everything that is wrong, each with the objects it is about.
        found: Vec<String>,
    },
    /// What is stored is not what this version writes.
    #[error("the store holds something unexpected: {0}")]
    Corrupt(String),
    /// PostgreSQL does not answer, or refused the statement.
    #[error("the database did not do it")]
    Database(#[from] sqlx::Error),
}

fn managed_by(manager: Option<&str>) -> String {
    manager.map(|m| format!(", managed by {m:?}")).unwrap_or_default()
}

fn at(current: Option<Generation>) -> String {
    current.map_or_else(|| "no generation (it does not exist)".to_owned(), |g| format!("generation {g}"))
}

fn list(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl StoreError {
    /// The same, of a creation that may be taken up in so many seconds.
    pub(crate) fn free_in(self, seconds: Option<u32>) -> Self {
        match self {
            Self::Exists { kind, name, manager, .. } => {
                Self::Exists { kind, name, manager, free_in: seconds }
            }
            other => other,
        }
    }

    /// Whether the same call may succeed when it is simply made again: two transactions met.
    #[must_use]
    pub fn is_race(&self) -> bool {
        if matches!(self, Self::Overtaken) {
            return true;
        }
        let Self::Database(sqlx::Error::Database(error)) = self else { return false };
        // serialization_failure, deadlock_detected, unique_violation, exclusion_violation, foreign_key_violation
        matches!(error.code().as_deref(), Some("40001" | "40P01" | "23505" | "23P01" | "23503"))
    }

    /// Whether PostgreSQL could not be reached in time (as against: it answered no).
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Database(error)) => {
                // class 08: connection; 57P0x: shutting down, starting up
                error.code().is_some_and(|c| c.starts_with("08") || c.starts_with("57P"))
            }
            Self::Database(sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed) => true,
            _ => false,
        }
    }
}
