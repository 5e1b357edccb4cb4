//! Types of an apply: the write of many objects in one transaction.

use super::GivenMetadata;
use crate::plan::{Advisory, Consequences, PlanReport};
use crate::values::{Generation, Name, Sha256, Uid};
use basalt_api_derive::Shape;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One object of an apply. Unknown members are refused. The status and the region's part of the metadata are ignored, so that a client can
/// apply an object that it has read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "GivenDocument")]
pub struct Document {
    /// Kind of the object.
    pub kind: String,
    /// Name and labels.
    pub metadata: DocumentMetadata,
    /// Spec of the object.
    pub spec: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenDocument {
    kind: String,
    metadata: DocumentMetadata,
    spec: Value,
    #[serde(default, rename = "status")]
    _status: IgnoredAny,
}

impl From<GivenDocument> for Document {
    fn from(GivenDocument { kind, metadata, spec, _status }: GivenDocument) -> Self {
        Self { kind, metadata, spec }
    }
}

/// Name and labels of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "GivenMetadata")]
pub struct DocumentMetadata {
    /// Name of the object.
    pub name: Name,
    /// Labels of the object. Absent: they do not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

impl TryFrom<GivenMetadata> for DocumentMetadata {
    type Error = &'static str;

    fn try_from(given: GivenMetadata) -> Result<Self, Self::Error> {
        let name = given.name.ok_or("missing field `name`")?;
        Ok(Self { name, labels: given.labels.map(|labels| labels.0) })
    }
}

/// Body of `POST /api/v1/apply`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyRequest {
    /// The objects, in any order; all or none are written. At most [`MAX_DOCUMENTS`].
    pub documents: Vec<Document>,
    /// Delete objects of this manager that have this `label=value` and are not among the documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<String>,
    /// Apply only if the plan still has this digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Sha256>,
    /// Take over objects that another manager declared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopt: bool,
}

/// Most documents of one apply.
pub const MAX_DOCUMENTS: usize = 10_000;

/// Answer to `POST /api/v1/apply`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct ApplyResponse {
    /// The result in one sentence.
    pub summary: String,
    /// Digest over all effects of this apply. A client that sends it back applies exactly these effects, or nothing.
    pub digest: Sha256,
    /// The machines with switched power or written disks. Only a dry run reports them.
    #[serde(default, skip_serializing_if = "BlastRadius::is_empty")]
    pub blast_radius: BlastRadius,
    /// The effects on machines that no document names. Only a dry run reports them.
    #[serde(default, skip_serializing_if = "Consequences::is_empty")]
    pub consequences: Consequences,
    /// The results of the documents in their order, then those of pruned objects. A dry run reports them as they would be.
    pub results: Vec<ApplyResult>,
    /// Conflicts of the apply with other objects.
    #[serde(default)]
    pub advisories: Vec<Advisory>,
}

/// The machines that a change touches, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct BlastRadius {
    /// Machines whose power is switched.
    #[serde(default)]
    pub power: BTreeSet<Name>,
    /// Machines whose disks are written or erased.
    #[serde(default)]
    pub disks: BTreeSet<Name>,
}

impl BlastRadius {
    /// True if no machine is touched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The result of one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct ApplyResult {
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: Name,
    /// The kind of write.
    pub action: ApplyAction,
    /// Uid of the object; absent while the object is not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// Generation after the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// The changes, and in a dry run the following steps. Absent if nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
}

/// The kind of write for one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum ApplyAction {
    /// The object did not exist.
    Created,
    /// The object's spec changed.
    Updated,
    /// No write: the object already was as declared.
    Unchanged,
    /// The object was pruned.
    Deleted,
}
