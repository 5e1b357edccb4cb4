//! Requests and answers of the REST API, beside objects and problems.

mod addresses;
mod apply;
mod audit;
mod boots;
mod decisions;
mod deliveries;
mod events;
mod login;
mod logs;
mod names;
mod operations;
mod results;
mod runs;

pub use addresses::{AddressEntry, AddressPage, AddressSource};
pub use apply::{
    ApplyAction, ApplyRequest, ApplyResponse, ApplyResult, BlastRadius, Document, DocumentMetadata,
    MAX_DOCUMENTS,
};
pub use audit::{AuditEntry, AuditPage};
pub use boots::{Boot, BootEntry, Boots, Judgement, Listener};
pub use decisions::{Decision, DecisionDetail, Decisions, Replay, ReplayDifference, ReplayVerdict};
pub use deliveries::{DeliveryInfo, DeliveryPage, DeliveryState, RedeliverRequest, Redelivered};
pub use events::{EventEntry, EventPage, EventSort};
pub use login::{
    CodeLogin, GrantedRole, KnownBy, LoginAnswer, LoginBegun, LoginRequest, LoginWays, MAX_ID_TOKEN_BYTES,
    OpenIdLogin, PasswordLogin, PasswordRequest, TokenLogin, WhoAmI,
};
pub use logs::{LogLine, Logs, priority_names};
pub use names::{NameOutcome, NameRack, NameRecord, NameReport, NameSource, NameZone};

pub use operations::{
    Action, Actions, IDEMPOTENCY_HEADER, MAX_OPERATIONS, Operation, OperationList, OperationRequest,
    OperationResult, OperationState, OperationsAnswer, OperationsRequest, RESCUE_KEYS, RESCUE_LASTS,
    RESCUE_LIMITS, Verb,
};

pub use results::{MAX_TEST_RESULTS, TestResult, TestResults};

pub use runs::{MAX_CONFIRMED, RUN_HEADER, RunReport};

use crate::object::Object;
use crate::plan::{Advisory, Consequences, PlanReport, TimelineEntry, Wait};
use crate::values::{Incarnation, Name, Tag};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

/// The header in which a client says which tool it is; becomes `metadata.manager` of what it creates.
pub const MANAGER_HEADER: &str = "X-Basalt-Manager";

/// The media type of a JSON merge patch (RFC 7396).
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// Header of the answer 202 to `HEAD /api/v1/blobs/{sha256}`, while an upload of the blob has not ended: how many bytes the
/// region has, from the start. The upload goes on there.
pub const RECEIVED_HEADER: &str = "X-Basalt-Received";

/// Reads an object. What serde derives for a struct takes the list of its fields' values as well, which nobody means.
///
/// # Errors
/// It is no object, or not this one.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    struct Members<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
        type Value = T;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(members))
        }
    }
    from.deserialize_map(Members(PhantomData))
}

/// Body of `PUT /api/v1/{plural}/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutRequest {
    /// The kind, which must agree with the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What the client says of the object itself.
    #[serde(default, skip_serializing_if = "PutMetadata::is_empty")]
    pub metadata: PutMetadata,
    /// The whole spec.
    pub spec: Value,
    /// Ignored, so that what was read can be written back.
    #[serde(default, skip_serializing)]
    pub status: Option<Value>,
}

/// The part of the metadata that clients write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "GivenMetadata")]
pub struct PutMetadata {
    /// The name, which must agree with the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// Labels of this client. Absent: as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Labels as they come in: each once, since nobody could say which of two was meant.
struct Labels(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Labels;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("labels by key")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Labels, A::Error> {
                let mut labels = BTreeMap::new();
                while let Some((key, value)) = members.next_entry::<String, String>()? {
                    if labels.contains_key(&key) {
                        return Err(A::Error::custom(format_args!("the label {key:?} stands twice")));
                    }
                    labels.insert(key, value);
                }
                Ok(Labels(labels))
            }
        }
        from.deserialize_map(Members)
    }
}

fn labels<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    Labels::deserialize(from).map(|labels| labels.0)
}

/// What is the region's in it is ignored, so that what was read can be written back.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenMetadata {
    name: Option<Name>,
    labels: Option<Labels>,
    #[serde(default, rename = "uid")]
    _uid: IgnoredAny,
    #[serde(default, rename = "manager")]
    _manager: IgnoredAny,
    #[serde(default, rename = "generation")]
    _generation: IgnoredAny,
    #[serde(default, rename = "created_at")]
    _created_at: IgnoredAny,
    #[serde(default, rename = "updated_at")]
    _updated_at: IgnoredAny,
    #[serde(default, rename = "deletion_requested_at")]
    _deletion_requested_at: IgnoredAny,
}

impl From<GivenMetadata> for PutMetadata {
    fn from(given: GivenMetadata) -> Self {
        Self { name: given.name, labels: given.labels.map(|labels| labels.0) }
    }
}

impl PutMetadata {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What one manager says of an object beside its spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Its labels. Where several managers give the same one, the manager of the object wins, then the first by name.
    #[serde(default, deserialize_with = "labels")]
    pub labels: BTreeMap<String, String>,
    /// Its tags, beside those of the spec. Only machines have any.
    #[serde(default)]
    pub tags: BTreeSet<Tag>,
}

/// Body of `PUT /api/v1/{plural}/{name}/layers/{manager}`: the layer, whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutLayer {
    /// Its labels.
    #[serde(default, deserialize_with = "labels")]
    pub labels: BTreeMap<String, String>,
    /// Its tags.
    #[serde(default)]
    pub tags: BTreeSet<Tag>,
    /// The layer as it was read; an empty one where there was none. If it is another by now, and not yet as it is to be, the answer is
    /// `conflict`, and nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Layer>,
}

impl From<Layer> for PutLayer {
    fn from(Layer { labels, tags }: Layer) -> Self {
        Self { labels, tags, replaces: None }
    }
}

/// Answer to `GET /api/v1/{plural}/{name}/layers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// By manager; writes that named none are under the empty name.
    pub layers: BTreeMap<String, Layer>,
}

/// Answer to a write with `dry_run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DryRun {
    /// The object as it would be.
    pub object: Object,
    /// What would happen.
    pub plan: PlanReport,
    /// What would happen to machines that the write does not name.
    #[serde(default, skip_serializing_if = "Consequences::is_empty")]
    pub consequences: Consequences,
    /// What the write would run into because of other objects.
    #[serde(default)]
    pub advisories: Vec<Advisory>,
}

/// Answer to `GET /api/v1/{plural}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectList {
    /// This page's objects, by name.
    pub items: Vec<Object>,
    /// Goes into the next request; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The watch position that goes on from this list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
}

/// Body of `POST /api/v1/{plural}/{name}/rename`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenameRequest {
    /// The new name.
    pub name: Name,
}

/// Answer to `GET …/waits`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// What the object waits for, longest first.
    pub waits: Vec<Wait>,
}

/// Answer to `GET …/timeline`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// What happened, oldest first.
    pub entries: Vec<TimelineEntry>,
}

/// Answer to `HEAD` and `PUT /api/v1/blobs/{sha256}`: how much of the blob the region has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobState {
    /// Bytes it has, from the start.
    pub received: u64,
    /// Whether that is all, and the hash agrees.
    pub complete: bool,
}

/// Answer to `POST /api/v1/api_tokens/{name}/issue`: the one time that the token is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenIssued {
    /// For `Authorization: Bearer`.
    pub token: String,
}

impl std::fmt::Debug for TokenIssued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenIssued").finish_non_exhaustive()
    }
}

/// Answer to `GET /api/v1/version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Version of the region's program.
    pub version: String,
    /// Version of the API: `v1`.
    pub api: String,
    /// Which life of the database answers.
    pub incarnation: Option<Incarnation>,
    /// The kinds it knows.
    #[serde(default)]
    pub kinds: Vec<String>,
}
