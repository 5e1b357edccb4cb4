//! Objects in their JSON form.

use crate::kinds::CommonStatus;
use crate::model::KindOf;
use crate::schema::Kind;
use crate::values::{Generation, Name, Timestamp, Uid};
use crate::wire::Layer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// An object of any kind. `spec` is exactly as clients declared it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// Kind of the object, like `Subnet`.
    pub kind: String,
    /// Metadata that objects of all kinds have.
    pub metadata: Metadata,
    /// The declared fields; secrets in their read form.
    pub spec: Value,
    /// The fields that the region reports.
    #[serde(default)]
    pub status: Value,
}

impl Object {
    /// The description of the object's kind, if this build knows it.
    #[must_use]
    pub fn described(&self) -> Option<&'static Kind> {
        Kind::find(&self.kind)
    }

    /// The part of the status that all kinds have: conditions and observed generation.
    #[must_use]
    pub fn common_status(&self) -> CommonStatus {
        CommonStatus::deserialize(&self.status).unwrap_or_default()
    }

    /// The same object with the spec and status types of kind `K`.
    ///
    /// # Errors
    /// The object is of another kind, or its spec or status does not fit the kind.
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
    /// Metadata that objects of all kinds have.
    pub metadata: Metadata,
    /// The declared fields, with constant defaults filled in.
    pub spec: K::Spec,
    /// The fields that the region reports.
    pub status: K::Status,
}

/// An object is not of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no {wanted}: {why}")]
pub struct NotOfKind {
    /// Name of the object.
    pub name: Name,
    /// The expected kind.
    pub wanted: &'static str,
    /// The reason why it does not fit, as the end of a sentence.
    pub why: String,
}

/// Metadata that objects of all kinds have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Unique within the kind; can change.
    pub name: Name,
    /// Uid, which never changes.
    pub uid: Uid,
    /// The tool that declared the object: `terraform`, `cli`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// Labels, for people and tools to find the object by.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Labels and additional tags by the manager that gives them. Only in lists that ask for layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<BTreeMap<String, Layer>>,
    /// Number of changes of the spec. It is also the ETag.
    pub generation: Generation,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its spec or labels last changed.
    pub updated_at: Timestamp,
    /// Time when the deletion was requested.
    #[serde(default)]
    pub deletion_requested_at: Option<Timestamp>,
}
