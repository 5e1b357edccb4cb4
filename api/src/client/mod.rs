//! The typed client of the REST API, for the CLI, the provider and tests.
//!
//! ```no_run
//! # async fn example() -> Result<(), basalt_api::client::ClientError> {
//! use basalt_api::client::{Client, ClientConfig, Precondition};
//! use basalt_api::{Kind, wire::PutRequest};
//! use serde_json::json;
//!
//! let client = Client::new(&ClientConfig {
//!     endpoints: vec!["unix:/var/lib/basalt/api.sock".to_owned()],
//!     manager: Some("example".to_owned()),
//!     ..ClientConfig::default()
//! })?;
//! let zone = Kind::find("Zone").unwrap();
//! let spec = PutRequest { spec: json!({"description": "row 1"}), ..PutRequest::default() };
//! let written = client.put(zone, "row-1", &spec, Precondition::None).await?;
//! println!("generation {}", written.object.metadata.generation);
//! # Ok(()) }
//! ```
//!
//! A client has several endpoints: all regions of a Basalt give the same answers. A request goes first to the endpoint that answered last.
//! If an endpoint cannot be reached or says that it is not available, the client tries the next one. If all fail, it starts again after a
//! pause, until `patience` is over.

mod access;
mod addresses;
mod blob;
mod config;
mod error;
mod events;
mod logs;
mod proxies;
mod runs;
mod sending;
mod tls;
mod transport;
mod wait;
mod wanted;
mod watch;

#[cfg(test)]
mod tests;

pub use access::AuditOptions;
pub use addresses::AddressOptions;
pub use blob::BlobProgress;
pub use config::{ClientConfig, ClientIdentity, DEFAULT_PATIENCE, DEFAULT_TIMEOUT};
pub use error::ClientError;
pub use events::{EventOptions, FollowedEvents};
pub use logs::{FollowedLog, LogOptions};
pub use proxies::Proxies;
pub use wait::{Outcome, WaitFor, WaitGone};
pub use watch::{Watch, WatchOptions};

use crate::object::Object;
use crate::plan::PlanReport;
use crate::schema::Kind;
use crate::values::{Generation, Name, OperationId, Uid};
use crate::wire::{
    Actions, ApplyRequest, ApplyResponse, Boots, Decisions, DeliveryPage, DeliveryState, DiscardRequest,
    Discarded, DryRun, Layers, MAX_TEST_RESULTS, MERGE_PATCH, NameReport, ObjectList, Operation,
    OperationList, OperationRequest, OperationsAnswer, OperationsRequest, PutLayer, PutRequest,
    RedeliverRequest, Redelivered, RenameRequest, TestResults, Timeline, Version, Waits,
};
use reqwest::{Method, StatusCode};
use std::collections::BTreeMap;
use transport::{Call, Transport};

/// Client for the regions of one Basalt. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    transport: std::sync::Arc<Transport>,
}

/// A condition for a write. If it does not hold, the write is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// The write happens in any case.
    #[default]
    None,
    /// The object does not exist. Creates it, or fails with `exists`.
    Absent,
    /// The object still has this generation. Otherwise the write fails with `conflict`.
    Generation(Generation),
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The object after the write.
    pub object: Object,
    /// True if the write created the object.
    pub created: bool,
}

/// Selection and page of a list of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Objects that have all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Objects with this text in their names or in any other text field.
    pub text: Option<String>,
    /// Objects that fit this filter; see [`crate::filter`].
    pub filter: Option<String>,
    /// Include the layers of each object in its metadata.
    pub layers: bool,
    /// Most objects of a page. Absent: the region chooses.
    pub limit: Option<u32>,
    /// `next` of the previous page.
    pub next: Option<String>,
}

/// Options of a delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Delete only if the object still has this generation.
    pub generation: Option<Generation>,
    /// Do not wait until the object is released. The machine of a deployment is let go without a wipe.
    pub force: bool,
    /// Delete only if no object refers to this one. Otherwise the answer is `in_use` and nothing changes.
    pub if_unused: bool,
    /// Delete even if another manager declared the object.
    pub adopt: bool,
}

/// Options of a patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchOptions {
    /// The patch happens only if this holds.
    pub precondition: Precondition,
    /// Take the object over if another manager declared it.
    pub adopt: bool,
}

impl From<Precondition> for PatchOptions {
    fn from(precondition: Precondition) -> Self {
        Self { precondition, ..Self::default() }
    }
}

impl Client {
    /// Makes a client for these endpoints. Sends nothing yet.
    ///
    /// # Errors
    /// [`ClientError::Config`], naming the setting that is wrong.
    pub fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        Ok(Self { transport: std::sync::Arc::new(Transport::new(config)?) })
    }

    /// The version of the region that answers, and the kinds that it knows.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn version(&self) -> Result<Version, ClientError> {
        self.transport.json(Call::get("/api/v1/version")).await
    }

    /// The object with this name, or with this uid if `name` is `uid:` and a uid.
    ///
    /// # Errors
    /// `not_found`, and see [`ClientError`].
    pub async fn get(&self, kind: &Kind, name: &str) -> Result<Object, ClientError> {
        self.transport.json(Call::get(&path(kind, name, ""))).await
    }

    /// The object with this name, or `None`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn find(&self, kind: &Kind, name: &str) -> Result<Option<Object>, ClientError> {
        match self.get(kind, name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One page of the objects of a kind, by name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list(&self, kind: &Kind, options: &ListOptions) -> Result<ObjectList, ClientError> {
        let mut call = Call::get(&format!("/api/v1/{}", kind.plural));
        if !options.labels.is_empty() {
            let pairs: Vec<String> = options.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            call = call.query("labels", &pairs.join(","));
        }
        if let Some(text) = &options.text {
            call = call.query("q", text);
        }
        if let Some(filter) = &options.filter {
            call = call.query("where", filter);
        }
        if options.layers {
            call = call.query("layers", "true");
        }
        if let Some(limit) = options.limit {
            call = call.query("limit", &limit.to_string());
        }
        if let Some(next) = &options.next {
            call = call.query("continue", next);
        }
        self.transport.json(call).await
    }

    /// All objects of a kind that fit, page by page from `next` on.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_all(&self, kind: &Kind, options: &ListOptions) -> Result<Vec<Object>, ClientError> {
        self.pages(kind, options.clone()).await.map(|(all, _)| all)
    }

    /// All objects that fit, and the watch position of the first page.
    async fn pages(
        &self,
        kind: &Kind,
        mut options: ListOptions,
    ) -> Result<(Vec<Object>, Option<String>), ClientError> {
        let (mut all, mut position) = (Vec::new(), None);
        loop {
            let page = self.list(kind, &options).await?;
            all.extend(page.items);
            // Keep the position of the first page: a watch from there repeats changes that happen while later pages are read.
            position = position.or(page.position);
            match page.next {
                Some(next) if options.next.as_ref() != Some(&next) => options.next = Some(next),
                _ => return Ok((all, position)),
            }
        }
    }

    /// Creates the object, or replaces its spec.
    ///
    /// # Errors
    /// `invalid`, `exists`, `conflict`, `deleting`, `reference_not_found`, `overlap`, and see [`ClientError`].
    pub async fn put(
        &self,
        kind: &Kind,
        name: &str,
        request: &PutRequest,
        precondition: Precondition,
    ) -> Result<Written, ClientError> {
        let call = Call::new(Method::PUT, &path(kind, name, "")).condition(precondition).body(request)?;
        let (status, object) = self.transport.json_with_status(call).await?;
        Ok(Written { object, created: status == StatusCode::CREATED })
    }

    /// A dry run of [`Client::put`].
    ///
    /// # Errors
    /// `invalid`, `exists`, `conflict`, `deleting`, and see [`ClientError`].
    pub async fn put_dry_run(
        &self,
        kind: &Kind,
        name: &str,
        request: &PutRequest,
        precondition: Precondition,
    ) -> Result<DryRun, ClientError> {
        let call = Call::new(Method::PUT, &path(kind, name, "")).condition(precondition).body(request)?;
        self.transport.json(call.query("dry_run", "true")).await
    }

    /// Changes some of the object's spec: JSON merge patch (RFC 7396), in which null removes a field and clears a secret.
    ///
    /// # Errors
    /// `not_found`, `invalid`, `conflict`, `deleting`, `reference_not_found`, `overlap`, and see [`ClientError`].
    pub async fn patch(
        &self,
        kind: &Kind,
        name: &str,
        patch: &serde_json::Value,
        options: impl Into<PatchOptions>,
    ) -> Result<Object, ClientError> {
        self.transport.json(patching(kind, name, patch, options.into())?).await
    }

    /// A dry run of [`Client::patch`].
    ///
    /// # Errors
    /// The same as for [`Client::patch`].
    pub async fn patch_dry_run(
        &self,
        kind: &Kind,
        name: &str,
        patch: &serde_json::Value,
        options: impl Into<PatchOptions>,
    ) -> Result<DryRun, ClientError> {
        let call = patching(kind, name, patch, options.into())?;
        self.transport.json(call.query("dry_run", "true")).await
    }

    /// Deletes the object. Returns `None` when it is gone, otherwise the object while it is being deleted: see [`Client::wait_gone`].
    ///
    /// # Errors
    /// `in_use`, `locked`, `conflict`, and see [`ClientError`].
    pub async fn delete(
        &self,
        kind: &Kind,
        name: &str,
        options: DeleteOptions,
    ) -> Result<Option<Object>, ClientError> {
        match self.transport.json_with_status(deletion(kind, name, options)).await {
            Ok((_, object)) => Ok(object),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A dry run of [`Client::delete`].
    ///
    /// # Errors
    /// `not_found`, `in_use`, `locked`, and see [`ClientError`].
    pub async fn delete_dry_run(
        &self,
        kind: &Kind,
        name: &str,
        options: DeleteOptions,
    ) -> Result<DryRun, ClientError> {
        self.transport.json(deletion(kind, name, options).query("dry_run", "true")).await
    }

    /// Gives the object another name. With `adopt`, even if another manager declared it.
    ///
    /// # Errors
    /// `not_found`, `exists`, `locked`, and see [`ClientError`].
    pub async fn rename(
        &self,
        kind: &Kind,
        name: &str,
        new_name: &Name,
        adopt: bool,
    ) -> Result<Object, ClientError> {
        self.transport.json(renaming(kind, name, new_name, adopt)?).await
    }

    /// A dry run of [`Client::rename`].
    ///
    /// # Errors
    /// The same as for [`Client::rename`].
    pub async fn rename_dry_run(
        &self,
        kind: &Kind,
        name: &str,
        new_name: &Name,
        adopt: bool,
    ) -> Result<DryRun, ClientError> {
        self.transport.json(renaming(kind, name, new_name, adopt)?.query("dry_run", "true")).await
    }

    /// The labels and tags of the object by manager.
    ///
    /// # Errors
    /// `not_found`, and see [`ClientError`].
    pub async fn layers(&self, kind: &Kind, name: &str) -> Result<Layers, ClientError> {
        self.transport.json(Call::get(&path(kind, name, "/layers"))).await
    }

    /// Replaces the labels and tags that one manager gives the object. The spec, the generation and the object's manager stay the same.
    ///
    /// # Errors
    /// `not_found`, `invalid`, `deleting`, `conflict` (of [`PutLayer::replaces`]), and see [`ClientError`].
    pub async fn put_layer(
        &self,
        kind: &Kind,
        name: &str,
        manager: &str,
        layer: impl Into<PutLayer>,
    ) -> Result<Object, ClientError> {
        let (rest, layer) = (format!("/layers/{}", transport::encode(manager)), layer.into());
        self.transport.json(Call::new(Method::PUT, &path(kind, name, &rest)).body(&layer)?).await
    }

    /// Writes many objects in one transaction. With `dry_run`, writes nothing and reports the effects.
    ///
    /// # Errors
    /// The same as for [`Client::put`], and `stale_plan`.
    pub async fn apply(&self, request: &ApplyRequest, dry_run: bool) -> Result<ApplyResponse, ClientError> {
        let mut call = Call::new(Method::POST, "/api/v1/apply").body(request)?;
        if dry_run {
            call = call.query("dry_run", "true");
        }
        self.transport.json(call).await
    }

    /// The future steps of an object, and its waits.
    ///
    /// # Errors
    /// `not_found`, and see [`ClientError`].
    pub async fn plan(&self, kind: &Kind, name: &str) -> Result<PlanReport, ClientError> {
        self.transport.json(Call::get(&path(kind, name, "/plan"))).await
    }

    /// The waits of an object.
    ///
    /// # Errors
    /// `not_found`, and see [`ClientError`].
    pub async fn waits(&self, kind: &Kind, name: &str) -> Result<Waits, ClientError> {
        self.transport.json(Call::get(&path(kind, name, "/waits"))).await
    }

    /// The history of an object.
    ///
    /// # Errors
    /// `not_found`, and see [`ClientError`].
    pub async fn timeline(&self, kind: &Kind, name: &str) -> Result<Timeline, ClientError> {
        self.transport.json(Call::get(&path(kind, name, "/timeline"))).await
    }

    /// The requests of a machine to racks during its boots. `machine` is a name, or a MAC in any spelling.
    ///
    /// # Errors
    /// `not_found`, and see [`ClientError`].
    pub async fn boots(&self, machine: &str) -> Result<Boots, ClientError> {
        self.transport.json(Call::get(&format!("/api/v1/boots/{}", transport::encode(machine)))).await
    }

    /// The answers of racks for a host name, or for the name of an address.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn name(&self, name: &str) -> Result<NameReport, ClientError> {
        self.transport.json(Call::get(&format!("/api/v1/names/{}", transport::encode(name)))).await
    }

    /// The decisions that began steps, the newest first. Each is decided again from its stored input, for comparison.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn decisions(&self, kind: &Kind, name: &str) -> Result<Decisions, ClientError> {
        self.transport.json(Call::get(&path(kind, name, "/decisions")).query("replay", "true")).await
    }

    /// Requests one operation on a machine. A retry by this client counts as the same request.
    ///
    /// # Errors
    /// `not_found`, `locked`, `conflict` if the operation is impossible now, and see [`ClientError`].
    pub async fn operate(&self, machine: &str, request: &OperationRequest) -> Result<Operation, ClientError> {
        let key = Uid::generate().to_string();
        self.transport.json(operation(machine, request)?.idempotent(&key)).await
    }

    /// Requests the same operation on many machines, or makes a dry run of it. A retry by this client counts as the same request.
    ///
    /// # Errors
    /// `invalid` if the filter is wrong or fits too many machines, and see [`ClientError`]. The refusal of one machine is in its result.
    pub async fn operate_many(
        &self,
        request: &OperationsRequest,
        dry_run: bool,
    ) -> Result<OperationsAnswer, ClientError> {
        let call = Call::new(Method::POST, "/api/v1/operations").body(request)?;
        let call = match dry_run {
            true => call.query("dry_run", "true"),
            false => call.idempotent(&Uid::generate().to_string()),
        };
        self.transport.json(call).await
    }

    /// Lists the verbs that a machine accepts now, and the reasons why it refuses the others.
    ///
    /// # Errors
    /// `not_found`, and see [`ClientError`].
    pub async fn actions(&self, machine: &str) -> Result<Actions, ClientError> {
        let path = format!("/api/v1/machines/{}/actions", transport::encode(machine));
        self.transport.json(Call::get(&path)).await
    }

    /// The operations of a machine, the newest first.
    ///
    /// # Errors
    /// `not_found`, and see [`ClientError`].
    pub async fn operations(&self, machine: &str) -> Result<OperationList, ClientError> {
        let path = format!("/api/v1/machines/{}/operations", transport::encode(machine));
        self.transport.json(Call::get(&path)).await
    }

    /// Findings of hardware tests of a machine, the newest run first. Options limit them to one script, or to the latest runs.
    ///
    /// # Errors
    /// `not_found`, and see [`ClientError`].
    pub async fn test_results(
        &self,
        machine: &str,
        script: Option<&str>,
        latest: bool,
    ) -> Result<TestResults, ClientError> {
        let path = format!("/api/v1/machines/{}/results", transport::encode(machine));
        let (latest, limit) = (latest.to_string(), MAX_TEST_RESULTS.to_string());
        let mut call = Call::get(&path).query("latest", &latest).query("limit", &limit);
        if let Some(script) = script {
            call = call.query("script", script);
        }
        self.transport.json(call).await
    }

    /// Deliveries of a webhook in this state, or in all, the newest event first: one page.
    ///
    /// # Errors
    /// `not_found`, and see [`ClientError`].
    pub async fn deliveries(
        &self,
        webhook: &str,
        state: Option<DeliveryState>,
        after: Option<&str>,
    ) -> Result<DeliveryPage, ClientError> {
        let path = webhook_path(webhook, "deliveries");
        let mut call = Call::get(&path);
        if let Some(state) = state {
            call = call.query("state", state.as_str());
        }
        if let Some(after) = after {
            call = call.query("continue", after);
        }
        self.transport.json(call).await
    }

    /// Sends dead letters of a webhook again: one, or all.
    ///
    /// # Errors
    /// `not_found`, `forbidden`, and see [`ClientError`].
    pub async fn redeliver(&self, webhook: &str, id: Option<Uid>) -> Result<Redelivered, ClientError> {
        let call = Call::new(Method::POST, &webhook_path(webhook, "redeliver"));
        self.transport.json(call.body(&RedeliverRequest { id })?).await
    }

    /// Deletes dead letters of a webhook: one, or all.
    ///
    /// # Errors
    /// `not_found`, `forbidden`, and see [`ClientError`].
    pub async fn discard(&self, webhook: &str, id: Option<Uid>) -> Result<Discarded, ClientError> {
        let call = Call::new(Method::POST, &webhook_path(webhook, "discard"));
        self.transport.json(call.body(&DiscardRequest { id })?).await
    }

    /// A dry run of [`Client::discard`].
    ///
    /// # Errors
    /// The same as for [`Client::discard`].
    pub async fn discard_dry_run(&self, webhook: &str, id: Option<Uid>) -> Result<DryRun, ClientError> {
        let call = Call::new(Method::POST, &webhook_path(webhook, "discard")).query("dry_run", "true");
        self.transport.json(call.body(&DiscardRequest { id })?).await
    }

    /// The state of one operation.
    ///
    /// # Errors
    /// `not_found`, and see [`ClientError`].
    pub async fn operation(&self, machine: &str, id: OperationId) -> Result<Operation, ClientError> {
        let path = format!("/api/v1/machines/{}/operations/{id}", transport::encode(machine));
        self.transport.json(Call::get(&path)).await
    }

    /// A dry run of [`Client::operate`].
    ///
    /// # Errors
    /// The same as for [`Client::operate`].
    pub async fn operate_dry_run(
        &self,
        machine: &str,
        request: &OperationRequest,
    ) -> Result<DryRun, ClientError> {
        self.transport.json(operation(machine, request)?.query("dry_run", "true")).await
    }
}

impl Client {
    /// Makes a one-time token for `basalt-rack --join`, for a rack with this name or for any rack. With empty `urls`, the token holds the
    /// addresses that the region was started with.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn join_token(&self, rack: Option<&str>, urls: &[String]) -> Result<String, ClientError> {
        #[derive(serde::Deserialize)]
        struct Answer {
            token: String,
        }
        let mut body = serde_json::Map::new();
        if let Some(rack) = rack {
            body.insert("rack".to_owned(), rack.into());
        }
        if !urls.is_empty() {
            body.insert("urls".to_owned(), urls.into());
        }
        let call = Call::new(Method::POST, "/api/v1/join_tokens").body(&body)?;
        let answer: Answer = self.transport.json(call).await?;
        Ok(answer.token)
    }
}

fn path(kind: &Kind, name: &str, rest: &str) -> String {
    format!("/api/v1/{}/{}{rest}", kind.plural, transport::encode(name))
}

fn webhook_path(name: &str, what: &str) -> String {
    format!("/api/v1/webhooks/{}/{what}", transport::encode(name))
}

fn renaming(kind: &Kind, name: &str, new_name: &Name, adopt: bool) -> Result<Call, ClientError> {
    let mut call = Call::new(Method::POST, &path(kind, name, "/rename"));
    if adopt {
        call = call.query("adopt", "true");
    }
    // A uid finds the object under its new name as well. Then a repeat changes nothing, so the call may be repeated.
    let call = if name.starts_with("uid:") { call.repeatable() } else { call };
    call.body(&RenameRequest { name: new_name.clone() })
}

fn operation(machine: &str, request: &OperationRequest) -> Result<Call, ClientError> {
    let path = format!("/api/v1/machines/{}/operations", transport::encode(machine));
    Call::new(Method::POST, &path).body(request)
}

fn patching(
    kind: &Kind,
    name: &str,
    patch: &serde_json::Value,
    options: PatchOptions,
) -> Result<Call, ClientError> {
    let mut call = Call::new(Method::PATCH, &path(kind, name, ""));
    if options.adopt {
        call = call.query("adopt", "true");
    }
    call.media_type(MERGE_PATCH).condition(options.precondition).body(patch)
}

fn deletion(kind: &Kind, name: &str, options: DeleteOptions) -> Call {
    let mut call = Call::new(Method::DELETE, &path(kind, name, ""));
    if options.force {
        call = call.query("force", "true");
    }
    if options.if_unused {
        call = call.query("if_unused", "true");
    }
    if options.adopt {
        call = call.query("adopt", "true");
    }
    match options.generation {
        Some(generation) => call.condition(Precondition::Generation(generation)),
        None => call,
    }
}
