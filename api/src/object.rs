//! Objects as they stand on the wire.

use crate::kinds::CommonStatus;
use crate::model::KindOf;
use crate::schema::Kind;
use crate::values::{Generation, Name, Timestamp, Uid};
use crate::wire::Layer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// An object of any kind. `spec` is exactly what its clients declared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// Its kind: `Subnet`.
    pub kind: String,
    /// What every object has.
    pub metadata: Metadata,
    /// What is declared; secrets in their read form.
    pub spec: Value,
    /// What is observed.
    #[serde(default)]
    pub status: Value,
}

impl Object {
    /// Its kind's description, if this build knows it.
    #[must_use]
    pub fn described(&self) -> Option<&'static Kind> {
        Kind::find(&self.kind)
    }

    /// What is reported of every kind: conditions, observed generation.
    #[must_use]
    pub fn common_status(&self) -> CommonStatus {
        CommonStatus::deserialize(&self.status).unwrap_or_default()
    }

    /// The same object with typed spec and status.
    ///
    /// # Errors
    /// It is of another kind, or its spec or status is not one of that kind.
    pub fn typed<K: KindOf>(&self) -> Result<Typed<K>, NotOfKind> {
        let not = |why: String| NotOfKind { name: self.metadata.name.clone(), wanted: K::NAME, why };
        if self.kind != K::NAME {
            return Err(not(format!("it is a {}", self.kind)));
        }
        Ok(Typed {
            metadata: self.metadata.clone(),
            spec: K::Spec::deserialize(&self.spec).map_err(|e| not(e.to_string()))?,
            status: match &self.status {
                Value::Null => K::Status::default(),
                status => K::Status::deserialize(status).map_err(|e| not(e.to_string()))?,
            },
        })
    }
}

/// An object with typed spec and status.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed<K: KindOf> {
    /// What every object has.
    pub metadata: Metadata,
    /// What is declared, constants filled in.
    pub spec: K::Spec,
    /// What is observed.
    pub status: K::Status,
}

/// An object is not of the kind it was taken for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no {wanted}: {why}")]
pub struct NotOfKind {
    /// Its name.
    pub name: Name,
    /// The kind it was taken for.
    pub wanted: &'static str,
    /// Why it is not.
    pub why: String,
}

/// What every object has, whatever its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Unique within the kind; can change.
    pub name: Name,
    /// Never changes.
    pub uid: Uid,
    /// Which tool declared it: `terraform`, `cli`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// For people and tools to find it by.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whose labels these are, and who gives which tags beside the spec's, by manager; in lists that were asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<BTreeMap<String, Layer>>,
    /// Counts the changes of the spec; the ETag.
    pub generation: Generation,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its spec or labels last changed.
    pub updated_at: Timestamp,
    /// Since when it is being deleted.
    #[serde(default)]
    pub deletion_requested_at: Option<Timestamp>,
}
