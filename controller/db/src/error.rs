//! The errors of the store.

use basalt_api::FieldError;
use basalt_api::values::Generation;

/// The reason why a call did nothing. With every variant, the transaction was rolled back.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such object.
    #[error("there is no {kind} {name:?}")]
    NotFound {
        /// The object's kind.
        kind: String,
        /// The object's name, or `uid:…`.
        name: String,
    },
    /// The object to create exists already.
    #[error("{kind} {name:?} exists already{}", managed_by(manager.as_deref()))]
    Exists {
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
        /// The manager that declared the object.
        manager: Option<String>,
        /// Seconds until the request may adopt the object, unless its run is renewed: the same account created it, equal and not
        /// confirmed. `None`: the request may never adopt it.
        free_in: Option<u32>,
    },
    /// `If-Match` named another generation.
    #[error("{kind} {name:?} is at {}, and not at the generation that the request asks for", at(*current))]
    Conflict {
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
        /// The object's present generation; `None` when it does not exist.
        current: Option<Generation>,
    },
    /// A manager's labels and tags on an object are not those that the request expects to replace.
    #[error(
        "what {manager:?} gives {kind} {name:?} is not what the request would replace: it was changed meanwhile"
    )]
    LayerConflict {
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
        /// The manager of the labels and tags.
        manager: String,
    },
    /// The object is being deleted, and takes no new spec.
    #[error(
        "{kind} {name:?} is being deleted, which cannot be taken back; wait until it is gone (GET …?wait=Deleted), then declare it anew"
    )]
    Deleting {
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
    },
    /// The spec does not fit the other objects, or the object as it was.
    #[error("the spec is refused: {}", list(errors))]
    Refused {
        /// All errors, not only the first. Each pointer begins with the `at` of its put.
        errors: Vec<FieldError>,
    },
    /// The result would differ from the approved plan.
    #[error("the plan is no longer the one that was approved: something changed in between")]
    StalePlan,
    /// The caller's lease on the object is over: another process handles it, or nothing is left to do.
    #[error("epoch {epoch} no longer holds the lease on {uid}")]
    Fenced {
        /// The object's id.
        uid: basalt_api::values::Uid,
        /// The caller's epoch.
        epoch: basalt_api::values::Epoch,
    },
    /// A secret could not be sealed or opened.
    #[error(
        "the secret at {pointer} cannot be opened: the seal key is another one, or the stored bytes were changed"
    )]
    Seal {
        /// The pointer of the secret in its object's spec.
        pointer: String,
    },
    /// The seal key was replaced while this store was open.
    #[error(
        "the seal key was replaced while this region ran, and it seals nothing more; start it again, with the new key"
    )]
    SealReplaced,
    /// A row that was read before the transaction has changed since. The same call may succeed when it is repeated.
    #[error("somebody else wrote the same object meanwhile; try again")]
    Overtaken,
    /// The database is of an earlier version, and holds objects that this version would refuse. It was not changed.
    #[error(
        "the database holds what this version refuses: {}; change that with the version before, which can go on with it, and start this one again",
        found.join("; ")
    )]
    Before {
        /// All problems, each with the objects that it concerns.
        found: Vec<String>,
    },
    /// The stored data has a form that this version does not write.
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
    /// The same error, for a creation that may be adopted in so many seconds.
    pub(crate) fn free_in(self, seconds: Option<u32>) -> Self {
        match self {
            Self::Exists { kind, name, manager, .. } => {
                Self::Exists { kind, name, manager, free_in: seconds }
            }
            other => other,
        }
    }

    /// True if the same call may succeed when it is repeated: two transactions met.
    #[must_use]
    pub fn is_race(&self) -> bool {
        if matches!(self, Self::Overtaken) {
            return true;
        }
        let Self::Database(sqlx::Error::Database(error)) = self else { return false };
        // serialization_failure, deadlock_detected, unique_violation, exclusion_violation, foreign_key_violation
        matches!(error.code().as_deref(), Some("40001" | "40P01" | "23505" | "23P01" | "23503"))
    }

    /// True if PostgreSQL refused a value: the same call fails again.
    #[must_use]
    pub fn is_of_value(&self) -> bool {
        match self {
            // class 22: data exceptions; class 23: constraints; 54: limits
            Self::Database(sqlx::Error::Database(error)) if !self.is_race() => {
                error.code().is_some_and(|c| ["22", "23", "54"].iter().any(|class| c.starts_with(class)))
            }
            Self::Corrupt(_) => true,
            _ => false,
        }
    }

    /// True if PostgreSQL could not be reached in time. False if it answered with an error.
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
