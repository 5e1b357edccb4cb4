//! The traits that the author of a provider implements.

use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;
use tonic::async_trait;

use crate::action::Action;
use crate::diag::{Diag, Diags, Severity};
use crate::ephemeral::Ephemeral;
use crate::function::Function;
use crate::identity::Identity;
use crate::list::ListResource;
use crate::path::Path;
use crate::pb;
use crate::schema::Schema;
use crate::value::{Object, Val};

/// A provider: its own block, and its resources, data sources, functions and so on.
///
/// Terraform starts several processes per command. Some of them are never asked for schemas, and some are never configured.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The provider block.
    fn schema(&self) -> Schema;

    /// The resources that can be managed. Asked once.
    fn resources(&self) -> Vec<Box<dyn Resource>>;

    /// The data sources that can be read. Asked once.
    fn data_sources(&self) -> Vec<Box<dyn DataSource>> {
        Vec::new()
    }

    /// The ephemeral resources, which exist only while Terraform runs. Asked once.
    fn ephemerals(&self) -> Vec<Box<dyn Ephemeral>> {
        Vec::new()
    }

    /// The functions that configurations can call. Asked once.
    fn functions(&self) -> Vec<Box<dyn Function>> {
        Vec::new()
    }

    /// The resources that can be listed (`terraform query`). Asked once.
    fn list_resources(&self) -> Vec<Box<dyn ListResource>> {
        Vec::new()
    }

    /// The actions that can be performed. Asked once.
    fn actions(&self) -> Vec<Box<dyn Action>> {
        Vec::new()
    }

    /// Checks the provider block; values may be unknown.
    async fn validate(&self, _config: &Val) -> Diags {
        Diags::default()
    }

    /// Takes the provider block before any read, plan or apply. Values may be unknown during a plan. An operation that needs an
    /// unknown value should then fail, or `configure` defers all operations with [`Cx::defer`].
    async fn configure(&self, cx: &Cx, config: &Val) -> Result<(), Diags>;

    /// The last call. Terraform waits for it, five seconds at most. A process that Terraform did not start
    /// ([`Reattached`](crate::Reattached)) is not told of its end.
    async fn end(&self, _end: End) {}
}

/// The reason why a provider's process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Terraform asked for the end: it has received every answer.
    Asked,
    /// Terraform is gone. It is unknown which answers it has stored.
    Orphaned,
}

/// A change that is planned or applied.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The state before; null for a creation.
    pub prior: &'a Val,
    /// The planned state. During a plan it contains unknown values.
    pub planned: &'a Val,
    /// The configuration. Only it contains write-only values.
    pub config: &'a Val,
    /// During a plan: the attributes that already require a replacement.
    pub replace: &'a [Path],
}

/// A state that a `moved` block brings from a resource of another type, of this provider or another one.
#[derive(Clone, Copy, Debug)]
pub struct Moved<'a> {
    /// The whole address of the source provider, such as `registry.terraform.io/hashicorp/null`.
    pub provider: &'a str,
    /// The type of the source resource.
    pub type_name: &'a str,
    /// The version of that type's schema.
    pub version: i64,
    /// The state, as the source provider stored it.
    pub state: &'a serde_json::Value,
}

/// A type of object that Terraform creates, changes and destroys.
#[async_trait]
pub trait Resource: Send + Sync + 'static {
    /// The type's whole name, such as `pets_cat`.
    fn type_name(&self) -> &str;

    /// The attributes of the configuration and of the state.
    fn schema(&self) -> &Schema;

    /// Checks a configuration alone. The provider need not be configured. Values may be unknown.
    async fn validate(&self, _config: &Val) -> Diags {
        Diags::default()
    }

    /// The present state, or `None` if the object is gone. The runtime restores the prior spelling of each value that is equal to the
    /// prior one.
    async fn read(&self, cx: &Cx, state: &Val) -> Result<Option<Val>, Diags>;

    /// Computes known values of a planned state from its other values, which may be unknown. A value stays unknown if its inputs are
    /// unknown. `prior` is the state before, if there is one: values that the plan does not affect may be copied from it. Must be
    /// deterministic.
    fn derive(&self, _planned: &mut Object, _prior: Option<&Object>) {}

    /// Looks at a change before the plan is shown to the user: warnings, errors, and attributes that need a replacement. Must not have
    /// effects.
    async fn review(&self, _cx: &Cx, _change: Change<'_>) -> Result<Vec<Path>, Diags> {
        Ok(Vec::new())
    }

    /// Looks at an object that a plan does not change.
    async fn review_unchanged(&self, _cx: &Cx, _state: &Val) -> Result<(), Diags> {
        Ok(())
    }

    /// Looks at a destruction before the plan is shown to the user.
    async fn review_destroy(&self, _cx: &Cx, _state: &Val) -> Result<(), Diags> {
        Ok(())
    }

    /// Creates the object and answers its state. As soon as the object exists, call [`Cx::commit`] with the known values: Terraform
    /// keeps them if a later step fails.
    async fn create(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags>;

    /// Changes the object and answers its state.
    async fn update(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags>;

    /// Destroys the object. Success if the object is already gone.
    async fn delete(&self, cx: &Cx, state: &Val) -> Result<(), Diags>;

    /// The part of a state that [`Resource::read`] needs, from the user's argument of `import`. By default, the argument is the only
    /// required attribute of the identity.
    async fn import(&self, _cx: &Cx, id: &str) -> Result<Val, Diags> {
        if let Some(name) = self.identity().import_id(self.schema()) {
            return Ok(Val::from([(name, id.into())]));
        }
        let detail =
            format!("A {} is not imported by an id; give its identity in an import block.", self.type_name());
        Err(Diag::error("It cannot be imported so", detail).into())
    }

    /// The attributes that identify an object. The default is none: the resource has no identity.
    fn identity(&self) -> Identity {
        Identity::default()
    }

    /// The part of a state that [`Resource::read`] needs, from the identity that the user gave to `import`. Usually that is the
    /// identity itself.
    async fn import_identity(&self, _cx: &Cx, identity: &Val) -> Result<Val, Diags> {
        Ok(identity.clone())
    }

    /// Converts the JSON of an identity of this version to the next version, as [`Resource::upgrade`] does for a state.
    fn upgrade_identity(
        &self,
        _version: i64,
        identity: serde_json::Value,
    ) -> Result<serde_json::Value, Diags> {
        Ok(identity)
    }

    /// Takes over an object of another type: returns the part of a state that [`Resource::read`] needs. The provider need not be
    /// configured.
    async fn take_over(&self, _cx: &Cx, from: Moved<'_>) -> Result<Val, Diags> {
        let detail = format!(
            "{} of {} cannot become a {}. Use an import block.",
            from.type_name,
            from.provider,
            self.type_name()
        );
        Err(Diag::error("It cannot be moved here", detail).into())
    }

    /// Converts the JSON of a state from this version of the schema to the next one. It is called for each version from the stored one
    /// to the present one. Added and removed attributes need no code.
    fn upgrade(&self, _version: i64, state: serde_json::Value) -> Result<serde_json::Value, Diags> {
        Ok(state)
    }
}

/// A type of object that Terraform only reads.
#[async_trait]
pub trait DataSource: Send + Sync + 'static {
    /// The type's whole name, such as `pets_cat`.
    fn type_name(&self) -> &str;

    /// The attributes of the configuration and of the answer.
    fn schema(&self) -> &Schema;

    /// Checks a configuration alone. Values may be unknown.
    async fn validate(&self, _config: &Val) -> Diags {
        Diags::default()
    }

    /// The whole value: the configured attributes and the computed ones.
    async fn read(&self, cx: &Cx, config: &Val) -> Result<Val, Diags>;
}

/// Why an operation is deferred to a later plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferral {
    /// A value in the configuration of the object is unknown.
    ObjectUnknown,
    /// A value in the provider's block is unknown.
    ProviderUnknown,
    /// An object that it needs does not exist yet.
    Absent,
}

impl Deferral {
    pub(crate) fn to_pb(self) -> pb::Deferred {
        use pb::deferred::Reason;
        let reason = match self {
            Self::ObjectUnknown => Reason::ResourceConfigUnknown,
            Self::ProviderUnknown => Reason::ProviderConfigUnknown,
            Self::Absent => Reason::AbsentPrereq,
        };
        pb::Deferred { reason: reason.into() }
    }
}

/// One request of Terraform: its cancellation, its warnings, and its results so far.
#[derive(Debug)]
pub struct Cx {
    cancel: CancellationToken,
    terraform: String,
    may_defer: bool,
    achieved: Mutex<Achieved>,
}

/// Results that an error or a panic does not undo.
#[derive(Debug, Default)]
pub(crate) struct Achieved {
    pub(crate) committed: Option<Val>,
    pub(crate) private: Vec<u8>,
    pub(crate) warnings: Vec<Diag>,
    deferral: Option<Deferral>,
}

impl Cx {
    pub(crate) fn new(
        cancel: CancellationToken,
        terraform: String,
        private: Vec<u8>,
        may_defer: bool,
    ) -> Self {
        let achieved = Mutex::new(Achieved { private, ..Achieved::default() });
        Self { cancel, terraform, may_defer, achieved }
    }

    /// True if Terraform allows deferral to a later plan.
    #[must_use]
    pub fn may_defer(&self) -> bool {
        self.may_defer
    }

    /// Defers this operation, if [`Cx::may_defer`]. Terraform takes the answer as a best guess. From [`Provider::configure`] it defers
    /// every operation, and the runtime calls no resource.
    pub fn defer(&self, why: Deferral) {
        if self.may_defer {
            self.with(|achieved| achieved.deferral = Some(why));
        }
    }

    pub(crate) fn deferral(&self) -> Option<Deferral> {
        self.with(|achieved| achieved.deferral)
    }

    /// Ends when the user interrupts Terraform. Work in progress should then stop soon, with an error; the committed state is kept.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// The token behind [`Cx::cancelled`], for code that outlives the request. The token of [`Provider::configure`] is valid until the
    /// next `configure`: it ends every request until then.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Cancels this request.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// True if the user interrupted Terraform.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Terraform's version, such as `1.11.4`; empty before the provider is configured.
    #[must_use]
    pub fn terraform_version(&self) -> &str {
        &self.terraform
    }

    /// Shows the user a warning. The operation continues.
    pub fn warn(&self, mut warning: Diag) {
        warning.severity = Severity::Warning;
        self.with(|achieved| achieved.warnings.push(warning));
    }

    /// Commits a state: if the operation fails later, Terraform keeps this state, with null in place of unknown values.
    pub fn commit(&self, state: Val) {
        self.with(|achieved| achieved.committed = Some(state));
    }

    /// The provider's private data about the object, beside its state. Terraform stores it, unencrypted, and does not show it.
    #[must_use]
    pub fn private(&self) -> Vec<u8> {
        self.with(|achieved| achieved.private.clone())
    }

    /// Replaces the private data.
    pub fn set_private(&self, private: Vec<u8>) {
        self.with(|achieved| achieved.private = private);
    }

    pub(crate) fn take(&self) -> Achieved {
        self.with(std::mem::take)
    }

    fn with<T>(&self, change: impl FnOnce(&mut Achieved) -> T) -> T {
        change(&mut self.achieved.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
