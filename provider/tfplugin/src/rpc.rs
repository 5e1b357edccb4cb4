//! The protocol's calls, each a small translation: decode, ask the provider, check, encode.
//!
//! Whatever goes wrong in a provider, a panic included, becomes a diagnostic together with the
//! best state known. An error of gRPC itself would lose an object that was just created.

mod ephemeral;
mod identity;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, async_trait};
use tracing::{Instrument, debug, error};

use crate::codec::{self, CodecError};
use crate::contract;
use crate::diag::{Diag, Diags};
use crate::ephemeral::Ephemeral;
use crate::function::{self, Function, Refusal, Signature};
use crate::path::Path;
use crate::pb;
use crate::plan;
use crate::provider::{Change, Cx, DataSource, Moved, Provider, Resource};
use crate::schema::{Attribute, Schema};
use crate::value::{Object, Type, Val};

type Reply<T> = Result<Response<T>, Status>;

/// A provider behind the protocol.
pub(crate) struct Rpc {
    provider: Box<dyn Provider>,
    types: OnceLock<Types>,
    session: Mutex<Session>,
    open: Mutex<BTreeSet<ephemeral::Open>>,
}

/// What lives from one ConfigureProvider to the next: a process that Terraform did not start
/// itself serves many commands.
#[derive(Default)]
struct Session {
    cancel: CancellationToken,
    terraform: String,
}

struct Types {
    provider: (Schema, Type),
    resources: BTreeMap<String, (Box<dyn Resource>, Type)>,
    data_sources: BTreeMap<String, (Box<dyn DataSource>, Type)>,
    ephemerals: BTreeMap<String, (Box<dyn Ephemeral>, Type)>,
    functions: BTreeMap<String, (Box<dyn Function>, Signature)>,
}

impl Rpc {
    pub(crate) fn new(provider: Box<dyn Provider>) -> Self {
        Self { provider, types: OnceLock::new(), session: Mutex::default(), open: Mutex::default() }
    }

    /// Ends all work in progress.
    pub(crate) fn cancel(&self) {
        self.session().cancel.cancel();
    }

    fn session(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn types(&self) -> &Types {
        self.types.get_or_init(|| {
            let schema = self.provider.schema();
            let of = schema.value_type();
            let resources = self.provider.resources().into_iter().map(|resource| {
                let of = resource.schema().value_type();
                (resource.type_name().to_owned(), (resource, of))
            });
            let data_sources = self.provider.data_sources().into_iter().map(|source| {
                let of = source.schema().value_type();
                (source.type_name().to_owned(), (source, of))
            });
            let ephemerals = self.provider.ephemerals().into_iter().map(|ephemeral| {
                let of = ephemeral.schema().value_type();
                (ephemeral.type_name().to_owned(), (ephemeral, of))
            });
            let functions = self.provider.functions().into_iter().map(|function| {
                let signature = function.signature();
                (function.name().to_owned(), (function, signature))
            });
            Types {
                provider: (schema, of),
                resources: resources.collect(),
                data_sources: data_sources.collect(),
                ephemerals: ephemerals.collect(),
                functions: functions.collect(),
            }
        })
    }

    fn resource(&self, name: &str) -> Result<(&dyn Resource, &Type), Diags> {
        match self.types().resources.get(name) {
            Some((resource, of)) => Ok((resource.as_ref(), of)),
            None => Err(no_such_type("resource", name)),
        }
    }

    fn data_source(&self, name: &str) -> Result<(&dyn DataSource, &Type), Diags> {
        match self.types().data_sources.get(name) {
            Some((source, of)) => Ok((source.as_ref(), of)),
            None => Err(no_such_type("data source", name)),
        }
    }

    fn functions(&self) -> BTreeMap<String, pb::Function> {
        let functions = self.types().functions.iter();
        functions.map(|(name, (_, signature))| (name.clone(), signature.to_pb())).collect()
    }

    fn cx(&self, private: Vec<u8>) -> Cx {
        let session = self.session();
        Cx::new(session.cancel.clone(), session.terraform.clone(), private)
    }
}

fn no_such_type(what: &str, name: &str) -> Diags {
    Diag::error(
        format!("No such {what}"),
        format!("This version of the provider has no {what} {name:?}. Another version may have it."),
    )
    .into()
}

fn decoded(value: Option<&pb::DynamicValue>, of: &Type) -> Result<Val, Diags> {
    codec::decode(value, of).map_err(undecodable)
}

fn undecodable(error: CodecError) -> Diags {
    Diag::error(
        "A value could not be read",
        format!("{error}. Terraform and this provider do not agree on the schema; are there two versions of the provider in use?"),
    )
    .into()
}

/// Runs a part of a provider; its panic becomes an error.
async fn guarded<T>(
    rpc: &'static str,
    type_name: &str,
    work: impl Future<Output = Result<T, Diags>>,
) -> Result<T, Diags> {
    let span = tracing::debug_span!("rpc", tf_rpc = rpc, tf_resource_type = type_name);
    async {
        let start = Instant::now();
        let result = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
            let message = panic_message(panic.as_ref());
            error!(panic = message, "the provider panicked");
            Err(Diag::error(
                "Bug in the provider",
                format!(
                    "{rpc} {type_name} panicked: {message}. Please report it with the log (TF_LOG=debug)."
                ),
            )
            .into())
        });
        let failed = result.is_err();
        debug!(tf_req_duration_ms = start.elapsed().as_millis() as u64, failed, "answered");
        result
    }
    .instrument(span)
    .await
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "no message"
    }
}

/// The diagnostics of a finished request, and its private bytes.
fn outcome(cx: &Cx, failed: Option<Diags>) -> (Diags, Vec<u8>, Option<Val>) {
    let progress = cx.take();
    let mut diags = Diags(progress.warnings);
    diags.extend(failed.into_iter().flatten());
    (diags, progress.private, progress.committed)
}

fn capabilities() -> pb::ServerCapabilities {
    pb::ServerCapabilities {
        plan_destroy: true,
        get_provider_schema_optional: true,
        move_resource_state: true,
        generate_resource_config: false,
    }
}

/// Puts the prior spelling back wherever the new value means the same.
fn respell(attributes: &[Attribute], prior: &Object, mut now: Object) -> Object {
    use crate::schema::{Nesting, Shape};
    for attribute in attributes {
        let (Some(was), Some(is)) = (prior.get(&attribute.name), now.get_mut(&attribute.name)) else {
            continue;
        };
        if attribute.same(was, is) {
            is.clone_from(was);
            continue;
        }
        let Shape::Nested(nesting, children) = &attribute.shape else {
            continue;
        };
        let one = |was: &Val, is: &mut Val| {
            if let (Val::Map(was), Val::Map(object)) = (was, &mut *is) {
                *is = Val::Map(respell(children, was, std::mem::take(object)));
            }
        };
        match (nesting, was, is) {
            (Nesting::Single, was, is) => one(was, is),
            (Nesting::Map, Val::Map(was), Val::Map(is)) => {
                for (key, is) in is.iter_mut() {
                    if let Some(was) = was.get(key) {
                        one(was, is);
                    }
                }
            }
            (Nesting::List, Val::List(was), Val::List(is)) => {
                was.iter().zip(is.iter_mut()).for_each(|(was, is)| one(was, is));
            }
            _ => {}
        }
    }
    now
}

#[async_trait]
impl pb::provider_server::Provider for Rpc {
    async fn get_metadata(&self, _: Request<pb::get_metadata::Request>) -> Reply<pb::get_metadata::Response> {
        let types = self.types();
        Ok(Response::new(pb::get_metadata::Response {
            server_capabilities: Some(capabilities()),
            diagnostics: Vec::new(),
            data_sources: types
                .data_sources
                .keys()
                .map(|name| pb::get_metadata::DataSourceMetadata { type_name: name.clone() })
                .collect(),
            resources: types
                .resources
                .keys()
                .map(|name| pb::get_metadata::ResourceMetadata { type_name: name.clone() })
                .collect(),
            functions: types
                .functions
                .keys()
                .map(|name| pb::get_metadata::FunctionMetadata { name: name.clone() })
                .collect(),
            ephemeral_resources: types
                .ephemerals
                .keys()
                .map(|name| pb::get_metadata::EphemeralMetadata { type_name: name.clone() })
                .collect(),
        }))
    }

    async fn get_provider_schema(
        &self,
        _: Request<pb::get_provider_schema::Request>,
    ) -> Reply<pb::get_provider_schema::Response> {
        let types = self.types();
        Ok(Response::new(pb::get_provider_schema::Response {
            provider: Some(types.provider.0.to_pb()),
            resource_schemas: types
                .resources
                .iter()
                .map(|(name, (resource, _))| (name.clone(), resource.schema().to_pb()))
                .collect(),
            data_source_schemas: types
                .data_sources
                .iter()
                .map(|(name, (source, _))| (name.clone(), source.schema().to_pb()))
                .collect(),
            ephemeral_resource_schemas: types
                .ephemerals
                .iter()
                .map(|(name, (ephemeral, _))| (name.clone(), ephemeral.schema().to_pb()))
                .collect(),
            functions: self.functions(),
            server_capabilities: Some(capabilities()),
            ..Default::default()
        }))
    }

    async fn get_functions(
        &self,
        _: Request<pb::get_functions::Request>,
    ) -> Reply<pb::get_functions::Response> {
        Ok(Response::new(pb::get_functions::Response {
            functions: self.functions(),
            diagnostics: Vec::new(),
        }))
    }

    async fn call_function(
        &self,
        request: Request<pb::call_function::Request>,
    ) -> Reply<pb::call_function::Response> {
        let request = request.into_inner();
        let answer = match self.types().functions.get(&request.name) {
            Some((function, signature)) => function::call(function.as_ref(), signature, &request.arguments),
            None => {
                let name = &request.name;
                Err(Refusal::whole(format!(
                    "This version of the provider has no function {name:?}. Another version may have it."
                )))
            }
        };
        let (result, error) = match answer {
            Ok(value) => (Some(codec::encode(&value)), None),
            Err(refusal) => (None, Some(refusal.to_pb())),
        };
        Ok(Response::new(pb::call_function::Response { result, error }))
    }

    async fn validate_provider_config(
        &self,
        request: Request<pb::validate_provider_config::Request>,
    ) -> Reply<pb::validate_provider_config::Response> {
        let request = request.into_inner();
        let diags = guarded("ValidateProviderConfig", "", async {
            let config = decoded(request.config.as_ref(), &self.types().provider.1)?;
            Ok(self.provider.validate(&config).await)
        })
        .await
        .unwrap_or_else(|diags| diags);
        Ok(Response::new(pb::validate_provider_config::Response { diagnostics: diags.to_pb() }))
    }

    async fn validate_resource_config(
        &self,
        request: Request<pb::validate_resource_config::Request>,
    ) -> Reply<pb::validate_resource_config::Response> {
        let request = request.into_inner();
        let diags = guarded("ValidateResourceConfig", &request.type_name, async {
            let (resource, of) = self.resource(&request.type_name)?;
            Ok(resource.validate(&decoded(request.config.as_ref(), of)?).await)
        })
        .await
        .unwrap_or_else(|diags| diags);
        Ok(Response::new(pb::validate_resource_config::Response { diagnostics: diags.to_pb() }))
    }

    async fn validate_data_resource_config(
        &self,
        request: Request<pb::validate_data_resource_config::Request>,
    ) -> Reply<pb::validate_data_resource_config::Response> {
        let request = request.into_inner();
        let diags = guarded("ValidateDataResourceConfig", &request.type_name, async {
            let (source, of) = self.data_source(&request.type_name)?;
            Ok(source.validate(&decoded(request.config.as_ref(), of)?).await)
        })
        .await
        .unwrap_or_else(|diags| diags);
        Ok(Response::new(pb::validate_data_resource_config::Response { diagnostics: diags.to_pb() }))
    }

    async fn configure_provider(
        &self,
        request: Request<pb::configure_provider::Request>,
    ) -> Reply<pb::configure_provider::Response> {
        let request = request.into_inner();
        // A stop belongs to the command that was stopped, not to the next one.
        *self.session() = Session { cancel: CancellationToken::new(), terraform: request.terraform_version };
        let cx = self.cx(Vec::new());
        let failed = guarded("ConfigureProvider", "", async {
            let config = decoded(request.config.as_ref(), &self.types().provider.1)?;
            self.provider.configure(&cx, &config).await
        })
        .await
        .err();
        Ok(Response::new(pb::configure_provider::Response { diagnostics: outcome(&cx, failed).0.to_pb() }))
    }

    async fn stop_provider(
        &self,
        _: Request<pb::stop_provider::Request>,
    ) -> Reply<pb::stop_provider::Response> {
        self.cancel();
        Ok(Response::new(Default::default()))
    }

    async fn upgrade_resource_state(
        &self,
        request: Request<pb::upgrade_resource_state::Request>,
    ) -> Reply<pb::upgrade_resource_state::Response> {
        let request = request.into_inner();
        let result = guarded("UpgradeResourceState", &request.type_name, async {
            let (resource, of) = self.resource(&request.type_name)?;
            let raw = request.raw_state.unwrap_or_default().json;
            let json = serde_json::from_slice(&raw).map_err(|e| undecodable(e.into()))?;
            let json = if request.version < resource.schema().version {
                resource.upgrade(request.version, json)?
            } else {
                json
            };
            codec::json::from_json(&json, of).map_err(undecodable)
        })
        .await;
        let (state, diags) = match result {
            Ok(state) => (Some(codec::encode(&state)), Diags::default()),
            Err(diags) => (None, diags),
        };
        Ok(Response::new(pb::upgrade_resource_state::Response {
            upgraded_state: state,
            diagnostics: diags.to_pb(),
        }))
    }

    async fn get_resource_identity_schemas(
        &self,
        _: Request<pb::get_resource_identity_schemas::Request>,
    ) -> Reply<pb::get_resource_identity_schemas::Response> {
        Ok(Response::new(self.identity_schemas()))
    }

    async fn upgrade_resource_identity(
        &self,
        request: Request<pb::upgrade_resource_identity::Request>,
    ) -> Reply<pb::upgrade_resource_identity::Response> {
        Ok(Response::new(self.upgrade_identity(request.into_inner()).await))
    }

    async fn read_resource(
        &self,
        request: Request<pb::read_resource::Request>,
    ) -> Reply<pb::read_resource::Response> {
        let request = request.into_inner();
        let cx = self.cx(request.private);
        let result = guarded("ReadResource", &request.type_name, async {
            let (resource, of) = self.resource(&request.type_name)?;
            let prior = decoded(request.current_state.as_ref(), of)?;
            let Some(now) = resource.read(&cx, &prior).await? else {
                return Ok((Val::Null, None));
            };
            let now = contract::conform(resource.schema(), now)?.without_unknowns();
            let now = match (&prior, now) {
                (Val::Map(prior), Val::Map(now)) => {
                    Val::Map(respell(&resource.schema().attributes, prior, now))
                }
                (_, now) => now,
            };
            match identity::contradiction(resource, request.current_identity.as_ref(), &now)? {
                Some(contradiction) => Err(contradiction.into()),
                None => {
                    let identity = identity::of(resource, &now);
                    Ok((now, identity))
                }
            }
        })
        .await;
        let (new_state, new_identity, failed) = match result {
            Ok((state, identity)) => (Some(codec::encode(&state)), identity, None),
            Err(diags) => (request.current_state, request.current_identity, Some(diags)),
        };
        let (diags, private, _) = outcome(&cx, failed);
        Ok(Response::new(pb::read_resource::Response {
            new_state,
            diagnostics: diags.to_pb(),
            private,
            deferred: None,
            new_identity,
        }))
    }

    async fn plan_resource_change(
        &self,
        request: Request<pb::plan_resource_change::Request>,
    ) -> Reply<pb::plan_resource_change::Response> {
        let request = request.into_inner();
        let cx = self.cx(request.prior_private);
        let result = guarded("PlanResourceChange", &request.type_name, async {
            let (resource, of) = self.resource(&request.type_name)?;
            let prior = decoded(request.prior_state.as_ref(), of)?;
            let proposed = decoded(request.proposed_new_state.as_ref(), of)?;
            let config = decoded(request.config.as_ref(), of)?;
            if proposed.is_null() {
                resource.review_destroy(&cx, &prior).await?;
                return Ok((Val::Null, Vec::new(), None));
            }
            let mut planned =
                plan::plan(resource.schema(), &prior, &config, |planned| resource.derive(planned));
            if planned.state != prior {
                let change = Change {
                    prior: &prior,
                    planned: &planned.state,
                    config: &config,
                    replace: &planned.replace,
                };
                let more = resource.review(&cx, change).await?;
                planned.replace.extend(more);
                planned.replace.sort();
                planned.replace.dedup();
            }
            // What is there keeps its identity, also until it is replaced; and Terraform takes none with something unknown in it.
            let identity = match prior.is_null() {
                true => identity::of(resource, &planned.state),
                false => request.prior_identity.clone().or_else(|| identity::of(resource, &prior)),
            };
            Ok((planned.state, planned.replace, identity))
        })
        .await;
        let (planned_state, replace, planned_identity, failed) = match result {
            Ok((state, replace, identity)) => (Some(codec::encode(&state)), replace, identity, None),
            Err(diags) => (request.prior_state, Vec::new(), request.prior_identity, Some(diags)),
        };
        let (diags, private, _) = outcome(&cx, failed);
        Ok(Response::new(pb::plan_resource_change::Response {
            planned_state,
            requires_replace: replace.iter().map(Path::to_pb).collect(),
            planned_private: private,
            diagnostics: diags.to_pb(),
            deferred: None,
            planned_identity,
        }))
    }

    async fn apply_resource_change(
        &self,
        request: Request<pb::apply_resource_change::Request>,
    ) -> Reply<pb::apply_resource_change::Response> {
        let request = request.into_inner();
        let cx = self.cx(request.planned_private.clone());
        let result = guarded("ApplyResourceChange", &request.type_name, self.apply(&cx, &request)).await;
        let failed = result.as_ref().err().cloned();
        let (mut diags, private, committed) = outcome(&cx, failed);
        let new_state = match result {
            Ok((state, errors)) => {
                diags.extend(errors);
                Some(codec::encode(&state))
            }
            // What was reached before the failure; nothing reached is what was there before.
            Err(_) => match committed.map(|state| self.partial(&request.type_name, state)) {
                Some(state) => Some(codec::encode(&state)),
                None => request.prior_state,
            },
        };
        let new_identity = self.identity_of(&request.type_name, new_state.as_ref());
        Ok(Response::new(pb::apply_resource_change::Response {
            new_state,
            private,
            diagnostics: diags.to_pb(),
            new_identity,
        }))
    }

    async fn import_resource_state(
        &self,
        request: Request<pb::import_resource_state::Request>,
    ) -> Reply<pb::import_resource_state::Response> {
        let request = request.into_inner();
        let cx = self.cx(Vec::new());
        let result = guarded("ImportResourceState", &request.type_name, async {
            let (resource, _) = self.resource(&request.type_name)?;
            let state = match identity::given(resource, request.identity.as_ref())? {
                Some(identity) => resource.import_identity(&cx, &identity).await?,
                None => resource.import(&cx, &request.id).await?,
            };
            let state = contract::conform(resource.schema(), state)?.without_unknowns();
            let identity = identity::of(resource, &state).or_else(|| request.identity.clone());
            Ok((state, identity))
        })
        .await;
        let (imported, failed) = match result {
            Ok(imported) => (Some(imported), None),
            Err(diags) => (None, Some(diags)),
        };
        let (diags, private, _) = outcome(&cx, failed);
        let imported = imported.map(|(state, identity)| pb::import_resource_state::ImportedResource {
            type_name: request.type_name,
            state: Some(codec::encode(&state)),
            private,
            identity,
        });
        Ok(Response::new(pb::import_resource_state::Response {
            imported_resources: imported.into_iter().collect(),
            diagnostics: diags.to_pb(),
            deferred: None,
        }))
    }

    async fn move_resource_state(
        &self,
        request: Request<pb::move_resource_state::Request>,
    ) -> Reply<pb::move_resource_state::Response> {
        let request = request.into_inner();
        let cx = self.cx(Vec::new());
        let result = guarded("MoveResourceState", &request.target_type_name, async {
            let (resource, _) = self.resource(&request.target_type_name)?;
            let raw = request.source_state.unwrap_or_default().json;
            let state = serde_json::from_slice(&raw).map_err(|e| undecodable(e.into()))?;
            let from = Moved {
                provider: &request.source_provider_address,
                type_name: &request.source_type_name,
                version: request.source_schema_version,
                state: &state,
            };
            let state = resource.take_over(&cx, from).await?;
            let state = contract::conform(resource.schema(), state)?.without_unknowns();
            let identity = identity::of(resource, &state);
            Ok((state, identity))
        })
        .await;
        let (state, identity, failed) = match result {
            Ok((state, identity)) => (Some(codec::encode(&state)), identity, None),
            Err(diags) => (None, None, Some(diags)),
        };
        let (diags, private, _) = outcome(&cx, failed);
        Ok(Response::new(pb::move_resource_state::Response {
            target_state: state,
            diagnostics: diags.to_pb(),
            target_private: private,
            target_identity: identity,
        }))
    }

    async fn read_data_source(
        &self,
        request: Request<pb::read_data_source::Request>,
    ) -> Reply<pb::read_data_source::Response> {
        let request = request.into_inner();
        let cx = self.cx(Vec::new());
        let result = guarded("ReadDataSource", &request.type_name, async {
            let (source, of) = self.data_source(&request.type_name)?;
            let config = decoded(request.config.as_ref(), of)?;
            let value = contract::conform(source.schema(), source.read(&cx, &config).await?)?;
            Ok(value.without_unknowns())
        })
        .await;
        let (state, failed) = match result {
            Ok(state) => (Some(codec::encode(&state)), None),
            Err(diags) => (None, Some(diags)),
        };
        Ok(Response::new(pb::read_data_source::Response {
            state,
            diagnostics: outcome(&cx, failed).0.to_pb(),
            deferred: None,
        }))
    }

    async fn validate_ephemeral_resource_config(
        &self,
        request: Request<pb::validate_ephemeral_resource_config::Request>,
    ) -> Reply<pb::validate_ephemeral_resource_config::Response> {
        Ok(Response::new(self.validate_ephemeral(request.into_inner()).await))
    }

    async fn open_ephemeral_resource(
        &self,
        request: Request<pb::open_ephemeral_resource::Request>,
    ) -> Reply<pb::open_ephemeral_resource::Response> {
        Ok(Response::new(self.open_ephemeral(request.into_inner()).await))
    }

    async fn renew_ephemeral_resource(
        &self,
        request: Request<pb::renew_ephemeral_resource::Request>,
    ) -> Reply<pb::renew_ephemeral_resource::Response> {
        Ok(Response::new(self.renew_ephemeral(request.into_inner()).await))
    }

    async fn close_ephemeral_resource(
        &self,
        request: Request<pb::close_ephemeral_resource::Request>,
    ) -> Reply<pb::close_ephemeral_resource::Response> {
        Ok(Response::new(self.close_ephemeral(request.into_inner()).await))
    }
}

impl Rpc {
    /// The state after the change, and an error for each way in which it contradicts the plan.
    async fn apply(
        &self,
        cx: &Cx,
        request: &pb::apply_resource_change::Request,
    ) -> Result<(Val, Vec<Diag>), Diags> {
        let (resource, of) = self.resource(&request.type_name)?;
        let prior = decoded(request.prior_state.as_ref(), of)?;
        let planned = decoded(request.planned_state.as_ref(), of)?;
        let config = decoded(request.config.as_ref(), of)?;
        if planned.is_null() {
            resource.delete(cx, &prior).await?;
            return Ok((Val::Null, Vec::new()));
        }
        let change = Change { prior: &prior, planned: &planned, config: &config, replace: &[] };
        let result = if prior.is_null() {
            resource.create(cx, change).await?
        } else {
            resource.update(cx, change).await?
        };
        // From here on the object is as the provider says, whatever is wrong with its state.
        cx.commit(result.clone());
        let result = contract::conform(resource.schema(), result)?;
        let (result, mut errors) = contract::honour(resource.schema(), &planned, result);
        errors.extend(identity::contradiction(resource, request.planned_identity.as_ref(), &result)?);
        Ok((result, errors))
    }

    /// A committed state in the shape that Terraform can keep.
    fn partial(&self, type_name: &str, state: Val) -> Val {
        match self.resource(type_name) {
            Ok((resource, _)) => contract::conform(resource.schema(), state).unwrap_or_else(|diag| {
                error!(problem = diag.detail, path = %diag.path, "a committed state is not of the schema");
                Val::Null
            }),
            Err(_) => Val::Null,
        }
        .without_unknowns()
    }
}
