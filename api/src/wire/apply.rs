//! Many documents at once.

use super::GivenMetadata;
use crate::plan::{Advisory, Consequences, PlanReport};
use crate::values::{Generation, Name, Sha256, Uid};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One object of an apply. Members that it does not have are refused. The status and the region's metadata are ignored, so that an
/// object that was read can be applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "GivenDocument")]
pub struct Document {
    /// Its kind.
    pub kind: String,
    /// Its name, and labels.
    pub metadata: DocumentMetadata,
    /// Its spec.
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
    /// Its name.
    pub name: Name,
    /// Its labels. Absent: as they are.
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
    /// Delete objects of this manager with this `label=value` that are not among the documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<String>,
    /// Apply exactly the plan of this digest, or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Sha256>,
    /// Take over objects that another manager declared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopt: bool,
}

/// Documents of one apply, at most.
pub const MAX_DOCUMENTS: usize = 10_000;

/// Answer to `POST /api/v1/apply`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApplyResponse {
    /// In one sentence.
    pub summary: String,
    /// Over everything that this does; sent back, it applies exactly this or nothing.
    pub digest: Sha256,
    /// What becomes of machines. Only a dry run says it.
    #[serde(default, skip_serializing_if = "BlastRadius::is_empty")]
    pub blast_radius: BlastRadius,
    /// What becomes of those that no document names. Only a dry run says it.
    #[serde(default, skip_serializing_if = "Consequences::is_empty")]
    pub consequences: Consequences,
    /// What became, or would become, of each document, in their order; then what was pruned.
    pub results: Vec<ApplyResult>,
    /// What the apply would run into because of other objects.
    #[serde(default)]
    pub advisories: Vec<Advisory>,
}

/// The machines that a change touches, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlastRadius {
    /// Their power is switched.
    #[serde(default)]
    pub power: BTreeSet<Name>,
    /// Their disks are written or erased.
    #[serde(default)]
    pub disks: BTreeSet<Name>,
}

impl BlastRadius {
    /// Whether no machine is touched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What became of one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApplyResult {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: Name,
    /// What was done.
    pub action: ApplyAction,
    /// Which object it is; absent while it is not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// The generation it is, or would be, at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// What changes, and in a dry run which steps follow. Absent where nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
}

/// What was done with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyAction {
    /// It was not there.
    Created,
    /// Its spec changed.
    Updated,
    /// Nothing: it was as declared.
    Unchanged,
    /// It was not declared any more.
    Deleted,
}
