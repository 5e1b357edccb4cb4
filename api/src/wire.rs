//! Requests and answers of the REST API, except objects and problems.

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
pub use deliveries::{
    DeliveryInfo, DeliveryPage, DeliveryState, DiscardRequest, Discarded, RedeliverRequest, Redelivered,
};
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
use basalt_api_derive::Shape;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

/// The header with the name of the client tool. It becomes `metadata.manager` of the objects that the client creates.
pub const MANAGER_HEADER: &str = "X-Basalt-Manager";

/// The media type of a JSON merge patch (RFC 7396).
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// Header of the answer 202 to `HEAD /api/v1/blobs/{sha256}` during an unfinished upload: the number of bytes that the region has, from the
/// start of the blob. The upload continues there.
pub const RECEIVED_HEADER: &str = "X-Basalt-Received";

/// Reads a struct from a JSON object only. The code that serde derives also accepts a list of the fields' values, which no client means.
///
/// # Errors
/// The JSON is not an object, or its fields are wrong.
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
    /// The kind. It must agree with the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name and labels of the object.
    #[serde(default, skip_serializing_if = "PutMetadata::is_empty")]
    pub metadata: PutMetadata,
    /// The whole spec.
    pub spec: Value,
    /// Ignored, so that a client can write back an object that it has read.
    #[serde(default, skip_serializing)]
    pub status: Option<Value>,
}

/// The part of the metadata that clients write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "GivenMetadata")]
pub struct PutMetadata {
    /// The name. It must agree with the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// Labels of this client. Absent: they do not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Labels of a request. A repeated key is an error, because it is unclear which value counts.
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

/// The region's own fields are accepted and ignored, so that a client can write back metadata that it has read.
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
    /// True if no field is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Labels and tags that one manager gives an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Labels. If several managers give the same label, the object's own manager wins, then the first manager by name.
    #[serde(default, deserialize_with = "labels")]
    pub labels: BTreeMap<String, String>,
    /// Tags, in addition to those of the spec. Only machines have tags.
    #[serde(default)]
    pub tags: BTreeSet<Tag>,
}

/// Body of `PUT /api/v1/{plural}/{name}/layers/{manager}`: the complete layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutLayer {
    /// Labels of the layer.
    #[serde(default, deserialize_with = "labels")]
    pub labels: BTreeMap<String, String>,
    /// Tags of the layer.
    #[serde(default)]
    pub tags: BTreeSet<Tag>,
    /// The layer as the client read it; empty if there was none. If the layer has changed since and is not yet equal to the new one, the
    /// answer is `conflict` and nothing changes.
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
    /// Layers by manager. The empty name holds those of writes that named no manager.
    pub layers: BTreeMap<String, Layer>,
}

/// Answer to a write with `dry_run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct DryRun {
    /// The object after the write.
    pub object: Object,
    /// The plan after the write.
    pub plan: PlanReport,
    /// The effects on machines that the write does not name.
    #[serde(default, skip_serializing_if = "Consequences::is_empty")]
    pub consequences: Consequences,
    /// Conflicts of the write with other objects.
    #[serde(default)]
    pub advisories: Vec<Advisory>,
}

/// Answer to `GET /api/v1/{plural}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectList {
    /// This page's objects, by name.
    pub items: Vec<Object>,
    /// Value of `next` for the next request; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The watch position right after this list.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Shape)]
pub struct Waits {
    /// The waits of the object, the longest first.
    pub waits: Vec<Wait>,
}

/// Answer to `GET …/timeline`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Shape)]
pub struct Timeline {
    /// Events, the oldest first.
    pub entries: Vec<TimelineEntry>,
}

/// Answer to `HEAD` and `PUT /api/v1/blobs/{sha256}`: the progress of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct BlobState {
    /// Number of bytes that the region has, from the start of the blob.
    pub received: u64,
    /// True if the blob is complete and its hash agrees.
    pub complete: bool,
}

/// Answer to `POST /api/v1/api_tokens/{name}/issue`. The token is shown only here.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct TokenIssued {
    /// The token, for `Authorization: Bearer`.
    pub token: String,
}

impl std::fmt::Debug for TokenIssued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenIssued").finish_non_exhaustive()
    }
}

/// Answer to `GET /api/v1/version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct Version {
    /// Version of the region's program.
    pub version: String,
    /// Version of the API: `v1`.
    pub api: String,
    /// The incarnation of the database. It changes after a restore that lost commits.
    pub incarnation: Option<Incarnation>,
    /// The kinds that the region knows.
    #[serde(default)]
    pub kinds: Vec<String>,
}
