//! Requests and answers of the REST API, beside objects and problems.

mod boots;
mod login;

pub use boots::{Boot, BootEntry, Boots, Judgement, Listener};
pub use login::{
    GrantedRole, KnownBy, LoginAnswer, LoginRequest, MAX_ID_TOKEN_BYTES, OpenIdLogin, PasswordLogin,
    PasswordRequest, WhoAmI,
};

use crate::object::Object;
use crate::plan::{Advisory, Consequences, PlanReport, TimelineEntry, Wait};
use crate::values::{
    Duration, Generation, Incarnation, Name, OperationId, Sha256, SshPublicKey, Tag, Timestamp, Uid,
};
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

/// Body of `PUT /api/v1/{plural}/{name}/layers/{manager}`: what one manager says of an object beside its spec.
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

/// One object of an apply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Its kind.
    pub kind: String,
    /// Its name, and labels.
    pub metadata: DocumentMetadata,
    /// Its spec.
    pub spec: Value,
}

/// Name and labels of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentMetadata {
    /// Its name.
    pub name: Name,
    /// Its labels. Absent: as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
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

/// Body of `POST /api/v1/machines/{name}/operations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationRequest {
    /// What to do.
    pub verb: Verb,
    /// Which script, where the verb is `run_script`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// What the script is given, by the names of its parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Who may come in, where the verb is `rescue`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ssh_keys: BTreeSet<SshPublicKey>,
    /// How long the rescue lasts at most; [`RESCUE_LASTS`] unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
}

/// How long a rescue lasts where nobody says it.
pub const RESCUE_LASTS: Duration = Duration::from_secs(4 * 3600);

/// Most keys that a rescue takes.
pub const RESCUE_KEYS: usize = 32;

/// The shortest and the longest rescue.
pub const RESCUE_LIMITS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(7 * 86400)];

impl From<Verb> for OperationRequest {
    fn from(verb: Verb) -> Self {
        Self { verb, script: None, parameters: BTreeMap::new(), ssh_keys: BTreeSet::new(), duration: None }
    }
}

/// What can be asked of a machine once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Switch it on.
    PowerOn,
    /// Switch it off, at once.
    PowerOff,
    /// Switch it off, then on.
    PowerCycle,
    /// Read its hardware again; what failed on it is tried again at once.
    Recommission,
    /// End the commissioning, install, script or rescue that is under way; its power is cut.
    Abort,
    /// Run a script on it, in the ephemeral environment.
    RunScript,
    /// Boot it into an environment in memory, for people to mend it over SSH.
    Rescue,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::PowerOn,
        Self::PowerOff,
        Self::PowerCycle,
        Self::Recommission,
        Self::Abort,
        Self::RunScript,
        Self::Rescue,
    ];

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PowerOn => "power_on",
            Self::PowerOff => "power_off",
            Self::PowerCycle => "power_cycle",
            Self::Recommission => "recommission",
            Self::Abort => "abort",
            Self::RunScript => "run_script",
            Self::Rescue => "rescue",
        }
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// It was accepted, and waits.
    Requested,
    /// It has begun.
    Running,
    /// It did what it should.
    Done,
    /// It did not.
    Failed,
    /// Something else was asked for instead.
    Superseded,
    /// Its time was over before it was done.
    Expired,
}

impl OperationState {
    /// The reason of a rescue that runs, once people can come in: its message says where.
    pub const OPEN: &'static str = "Open";

    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Requested, Self::Running, Self::Done, Self::Failed, Self::Superseded, Self::Expired];

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
        }
    }

    /// Whether nothing more happens to it.
    #[must_use]
    pub const fn is_over(self) -> bool {
        !matches!(self, Self::Requested | Self::Running)
    }
}

/// Says that a repeat of a request is the same: the first one is answered again.
pub const IDEMPOTENCY_HEADER: &str = "Idempotency-Key";

/// Something that was asked of a machine once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its id.
    pub id: OperationId,
    /// The machine's name.
    pub machine: String,
    /// What is to be done.
    pub verb: Verb,
    /// The script that is run, as it was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// How far it is.
    pub state: OperationState,
    /// Why, as one CamelCase word for programs.
    pub reason: String,
    /// What it waits for, does, did, or why not, for people.
    pub message: String,
    /// What the script said, the last 16 KiB of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Who asked: `user NAME`, `token NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it expires.
    pub deadline: Timestamp,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<Timestamp>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Where to look.
    pub path: String,
}

/// Answer to `GET …/operations`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationList {
    /// The newest first.
    pub items: Vec<Operation>,
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

/// Answer to `GET /api/v1/audit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditPage {
    /// This page's entries, the newest first.
    pub items: Vec<AuditEntry>,
    /// Goes into the next request; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One write of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Who: `token NAME`, `user NAME`, `peer uid 0`, `rack NAME`.
    pub actor: String,
    /// From where.
    pub address: String,
    /// By which request: its method and path.
    pub request: String,
    /// Kind of what was written.
    pub kind: String,
    /// The object; absent for what is no object, like a blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// Its name then.
    pub name: String,
    /// Its generation after the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// The spec before, secrets in read form; or what else was changed, like a name or a layer.
    #[serde(default)]
    pub before: Option<Value>,
    /// The same after.
    #[serde(default)]
    pub after: Option<Value>,
}

/// What became of a delivery to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It is tried, or will be.
    Pending,
    /// The receiver has accepted it.
    Delivered,
    /// It was given up: a dead letter.
    Dead,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Dead];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }

    /// The state of that word; pending where there is none.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        Self::ALL.into_iter().find(|state| state.as_str() == word).unwrap_or(Self::Pending)
    }
}

/// Answer to `GET /api/v1/webhooks/{name}/deliveries`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeliveryPage {
    /// This page's deliveries, the newest event first.
    pub items: Vec<DeliveryInfo>,
    /// Goes into the next request; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One delivery to a webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliveryInfo {
    /// `webhook-id` of its requests.
    pub id: Uid,
    /// What became of it.
    pub state: DeliveryState,
    /// What happened: `created`, `changed`, `ready`, `stalled`, `deleted`.
    pub event: String,
    /// When.
    pub at: Timestamp,
    /// Rises from event to event of one object.
    pub sequence: i64,
    /// Kind of the object.
    pub kind: String,
    /// Its name then.
    pub name: String,
    /// The object.
    pub uid: Uid,
    /// Attempts so far.
    pub attempts: u32,
    /// When it is tried next, while it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// When it was accepted, or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Body of `POST /api/v1/webhooks/{name}/redeliver`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedeliverRequest {
    /// One dead letter; all of them where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uid>,
}

/// Its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redelivered {
    /// Dead letters that are sent again.
    pub deliveries: u64,
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

/// Answer to `GET /api/v1/{plural}/{name}/decisions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decisions {
    /// The newest first.
    pub decisions: Vec<Decision>,
    /// Goes into the next request as `before`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// A decision that began a step, or chose a deployment's machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Rises in the order of deciding.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// What was begun, as a sentence.
    pub message: String,
    /// The step's key; of a choice `UID/allocate/EPOCH`.
    pub step_key: String,
    /// The epoch of the lease that it was begun under.
    pub epoch: u64,
    /// Generation of the machine's spec.
    pub generation: Generation,
    /// The planner's version.
    pub planner: String,
    /// Over what was to be done.
    pub digest: Sha256,
    /// With `replay=true`: all of it, decided again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<DecisionDetail>,
}

/// What a decision rested on, and what follows from that now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionDetail {
    /// The planner's now: the database's clock.
    pub now: Timestamp,
    /// The facts that it rested on.
    pub facts: Vec<i64>,
    /// The step records that it rested on.
    pub steps: Vec<i64>,
    /// The plan, whole.
    pub plan: Value,
    /// What the planner decides from the same again.
    pub replay: Replay,
}

/// What became of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// In one word.
    pub verdict: ReplayVerdict,
    /// In one sentence.
    pub message: String,
    /// The version of the planner that replayed it.
    pub planner: String,
    /// Where the plans differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<ReplayDifference>,
}

/// What became of a replay, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayVerdict {
    /// The plan is the same.
    Same,
    /// The plan is another one.
    Different,
    /// What it rested on is not there any more.
    Impossible,
}

/// One place where plans differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayDifference {
    /// Where, as a JSON pointer into the plan.
    pub pointer: String,
    /// What was decided.
    pub decided: Value,
    /// What is decided now.
    pub replayed: Value,
}
