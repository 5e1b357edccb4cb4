//! The protocol's calls, each a small translation: decode, ask the provider, check, encode.
//!
//! An error or a panic in a provider becomes a diagnostic, together with the newest known state. A gRPC error would lose an
//! object that was just created.

mod action;
mod change;
mod ephemeral;
mod identity;
mod import;
mod list;
mod schema;
mod state;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};
use tracing::{Instrument, debug, error, warn};

use crate::action::Action;
use crate::codec::{self, CodecError};
use crate::diag::{Diag, Diags, Severity};
use crate::ephemeral::Ephemeral;
use crate::function::{Function, Signature};
use crate::list::ListResource;
use crate::pb;
use crate::provider::{Cx, DataSource, Deferral, End, Provider, Resource};
use crate::schema::Schema;
use crate::types::Type;
use crate::value::Val;

/// Time for the provider's own work at its end.
const ENDING: Duration = Duration::from_secs(5);

type Reply<T> = Result<Response<T>, Status>;

/// A provider behind the protocol.
pub(crate) struct Rpc {
    provider: Box<dyn Provider>,
    types: OnceLock<Arc<Types>>,
    session: Mutex<Session>,
    open: Mutex<BTreeSet<ephemeral::Open>>,
}

/// State from one ConfigureProvider to the next. A process that Terraform did not start itself serves many commands.
#[derive(Default)]
struct Session {
    cancel: CancellationToken,
    terraform: String,
    /// The reason why every operation is deferred.
    deferral: Option<Deferral>,
}

/// The parts of a provider, each by its name and with the type of its values.
struct Types {
    provider: (Schema, Type),
    resources: BTreeMap<String, (Box<dyn Resource>, Type)>,
    data_sources: BTreeMap<String, (Box<dyn DataSource>, Type)>,
    ephemerals: BTreeMap<String, (Box<dyn Ephemeral>, Type)>,
    lists: BTreeMap<String, (Box<dyn ListResource>, Type)>,
    actions: BTreeMap<String, (Box<dyn Action>, Type)>,
    functions: BTreeMap<String, (Box<dyn Function>, Signature)>,
}

impl Rpc {
    pub(crate) fn new(provider: Box<dyn Provider>) -> Self {
        Self { provider, types: OnceLock::new(), session: Mutex::default(), open: Mutex::default() }
    }

    /// Cancels all work in progress.
    pub(crate) fn cancel(&self) {
        self.session().cancel.cancel();
    }

    /// Tells the provider that it ends, and waits for it.
    pub(crate) async fn end(&self, end: End) {
        let told = guarded("Shutdown", "", async {
            self.provider.end(end).await;
            Ok(())
        });
        if tokio::time::timeout(ENDING, told).await.is_err() {
            warn!(limit_s = ENDING.as_secs(), "the provider did not end in time");
        }
    }

    fn session(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn types(&self) -> &Arc<Types> {
        self.types.get_or_init(|| Arc::new(Types::of(self.provider.as_ref())))
    }

    fn resource(&self, name: &str) -> Result<(&dyn Resource, &Type), Diags> {
        self.types().resource(name)
    }

    fn data_source(&self, name: &str) -> Result<(&dyn DataSource, &Type), Diags> {
        match self.types().data_sources.get(name) {
            Some((source, of)) => Ok((source.as_ref(), of)),
            None => Err(no_such_type("data source", name)),
        }
    }

    /// The context of a request that cannot be deferred.
    fn cx(&self, private: Vec<u8>) -> Cx {
        self.cx_of(private, None)
    }

    fn cx_of(&self, private: Vec<u8>, client: Option<&pb::ClientCapabilities>) -> Cx {
        let session = self.session();
        let may_defer = client.is_some_and(|client| client.deferral_allowed);
        let cx = Cx::new(session.cancel.child_token(), session.terraform.clone(), private, may_defer);
        if let Some(deferral) = session.deferral {
            cx.defer(deferral);
        }
        cx
    }
}

impl Types {
    fn of(provider: &dyn Provider) -> Self {
        fn by_name<T: ?Sized>(
            all: Vec<Box<T>>,
            of: impl Fn(&T) -> (&str, &Schema),
        ) -> BTreeMap<String, (Box<T>, Type)> {
            let named = all.into_iter().map(|one| {
                let (name, schema) = of(&one);
                let (name, of) = (name.to_owned(), schema.value_type());
                (name, (one, of))
            });
            named.collect()
        }
        let schema = provider.schema();
        let of = schema.value_type();
        let functions = provider.functions().into_iter().map(|function| {
            let signature = function.signature();
            (function.name().to_owned(), (function, signature))
        });
        Self {
            provider: (schema, of),
            resources: by_name(provider.resources(), |it| (it.type_name(), it.schema())),
            data_sources: by_name(provider.data_sources(), |it| (it.type_name(), it.schema())),
            ephemerals: by_name(provider.ephemerals(), |it| (it.type_name(), it.schema())),
            lists: by_name(provider.list_resources(), |it| (it.type_name(), it.schema())),
            actions: by_name(provider.actions(), |it| (it.type_name(), it.schema())),
            functions: functions.collect(),
        }
    }

    fn resource(&self, name: &str) -> Result<(&dyn Resource, &Type), Diags> {
        match self.resources.get(name) {
            Some((resource, of)) => Ok((resource.as_ref(), of)),
            None => Err(no_such_type("resource", name)),
        }
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

/// The errors of the attributes' own checks, and then `rest`, those of the provider. If both have an error at one attribute,
/// only the provider's is kept.
fn checked(schema: &Schema, config: &Val, rest: Diags) -> Diags {
    let of_attributes = schema.check(config).into_iter();
    let is_told =
        |diag: &Diag| diag.severity == Severity::Error && rest.0.iter().any(|it| it.path == diag.path);
    let mut diags = Diags(of_attributes.filter(|diag| !is_told(diag)).collect());
    diags.extend(rest);
    diags
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
    let achieved = cx.take();
    let mut diags = Diags(achieved.warnings);
    diags.extend(failed.into_iter().flatten());
    (diags, achieved.private, achieved.committed)
}

#[async_trait]
impl pb::provider_server::Provider for Rpc {
    async fn get_metadata(&self, _: Request<pb::get_metadata::Request>) -> Reply<pb::get_metadata::Response> {
        Ok(Response::new(self.types().metadata()))
    }

    async fn get_provider_schema(
        &self,
        _: Request<pb::get_provider_schema::Request>,
    ) -> Reply<pb::get_provider_schema::Response> {
        Ok(Response::new(self.types().schemas()))
    }

    async fn get_functions(
        &self,
        _: Request<pb::get_functions::Request>,
    ) -> Reply<pb::get_functions::Response> {
        Ok(Response::new(pb::get_functions::Response {
            functions: self.types().functions_to_pb(),
            diagnostics: Vec::new(),
        }))
    }

    async fn call_function(
        &self,
        request: Request<pb::call_function::Request>,
    ) -> Reply<pb::call_function::Response> {
        Ok(Response::new(self.call_one(request.into_inner())))
    }

    async fn validate_provider_config(
        &self,
        request: Request<pb::validate_provider_config::Request>,
    ) -> Reply<pb::validate_provider_config::Response> {
        let request = request.into_inner();
        let diags = guarded("ValidateProviderConfig", "", async {
            let (schema, of) = &self.types().provider;
            let config = decoded(request.config.as_ref(), of)?;
            Ok(checked(schema, &config, self.provider.validate(&config).await))
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
            let config = decoded(request.config.as_ref(), of)?;
            Ok(checked(resource.schema(), &config, resource.validate(&config).await))
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
            let config = decoded(request.config.as_ref(), of)?;
            Ok(checked(source.schema(), &config, source.validate(&config).await))
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
        *self.session() = Session { terraform: request.terraform_version, ..Session::default() };
        let cx = self.cx_of(Vec::new(), request.client_capabilities.as_ref());
        let failed = guarded("ConfigureProvider", "", async {
            let config = decoded(request.config.as_ref(), &self.types().provider.1)?;
            self.provider.configure(&cx, &config).await
        })
        .await
        .err();
        self.session().deferral = cx.deferral();
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
        Ok(Response::new(self.upgrade_state(request.into_inner()).await))
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
        Ok(Response::new(self.read_state(request.into_inner()).await))
    }

    async fn plan_resource_change(
        &self,
        request: Request<pb::plan_resource_change::Request>,
    ) -> Reply<pb::plan_resource_change::Response> {
        Ok(Response::new(self.plan_change(request.into_inner()).await))
    }

    async fn apply_resource_change(
        &self,
        request: Request<pb::apply_resource_change::Request>,
    ) -> Reply<pb::apply_resource_change::Response> {
        Ok(Response::new(self.apply_change(request.into_inner()).await))
    }

    async fn import_resource_state(
        &self,
        request: Request<pb::import_resource_state::Request>,
    ) -> Reply<pb::import_resource_state::Response> {
        Ok(Response::new(self.import_state(request.into_inner()).await))
    }

    async fn move_resource_state(
        &self,
        request: Request<pb::move_resource_state::Request>,
    ) -> Reply<pb::move_resource_state::Response> {
        Ok(Response::new(self.move_state(request.into_inner()).await))
    }

    async fn generate_resource_config(
        &self,
        request: Request<pb::generate_resource_config::Request>,
    ) -> Reply<pb::generate_resource_config::Response> {
        Ok(Response::new(self.generate_config(request.into_inner()).await))
    }

    async fn read_data_source(
        &self,
        request: Request<pb::read_data_source::Request>,
    ) -> Reply<pb::read_data_source::Response> {
        Ok(Response::new(self.look_up(request.into_inner()).await))
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

    async fn validate_list_resource_config(
        &self,
        request: Request<pb::validate_list_resource_config::Request>,
    ) -> Reply<pb::validate_list_resource_config::Response> {
        Ok(Response::new(self.validate_list(request.into_inner()).await))
    }

    async fn list_resource(
        &self,
        request: Request<pb::list_resource::Request>,
    ) -> Reply<BoxStream<pb::list_resource::Event>> {
        Ok(Response::new(self.list_objects(request.into_inner())))
    }

    async fn validate_action_config(
        &self,
        request: Request<pb::validate_action_config::Request>,
    ) -> Reply<pb::validate_action_config::Response> {
        Ok(Response::new(self.validate_action(request.into_inner()).await))
    }

    async fn plan_action(
        &self,
        request: Request<pb::plan_action::Request>,
    ) -> Reply<pb::plan_action::Response> {
        Ok(Response::new(self.plan_one_action(request.into_inner()).await))
    }

    async fn invoke_action(
        &self,
        request: Request<pb::invoke_action::Request>,
    ) -> Reply<BoxStream<pb::invoke_action::Event>> {
        Ok(Response::new(self.invoke_one_action(request.into_inner())))
    }
}
