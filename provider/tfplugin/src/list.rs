//! What a provider author writes so that Terraform (`terraform query`, 1.14 and later) finds objects that it does not manage.
//!
//! ```text
//! config ──> list ──> found.push(object) ──> identity, name, state   to Terraform, one by one
//!                 <── Break: nobody wants more
//! ```

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::Sender;
use tonic::{Status, async_trait};

use crate::codec;
use crate::contract;
use crate::diag::{Diag, Diags};
use crate::pb;
use crate::provider::{Cx, Resource};
use crate::schema::Schema;
use crate::value::Val;

/// Finds the objects of a resource that has an identity.
#[async_trait]
pub trait ListResource: Send + Sync + 'static {
    /// The whole name of the resource's type, such as `pets_cat`.
    fn type_name(&self) -> &str;

    /// What a query can say of the objects that it looks for. Nothing of it is computed.
    fn schema(&self) -> &Schema;

    /// Checks a query by itself. Values may be unknown.
    async fn validate(&self, _config: &Val) -> Diags {
        Diags::default()
    }

    /// Hands over every object that fits, as soon as it is known, until [`Listing::push`] says that it is enough.
    async fn list(&self, cx: &Cx, query: Query<'_>, found: &Listing<'_>) -> Result<(), Diags>;
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The configuration, wholly known.
    pub config: &'a Val,
    /// Whether whole states are wanted, and not only what identifies the objects.
    pub with_states: bool,
    /// How many objects are wanted at most, if that was said.
    pub limit: Option<usize>,
}

/// An object that was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// What a person knows it by.
    pub name: String,
    /// What [`Resource::read`] would answer; where [`Query::with_states`] is not set, what identifies it is enough.
    pub state: Val,
    /// What is to be said about it.
    pub warnings: Vec<Diag>,
}

/// Where objects go that were found.
pub struct Listing<'a> {
    resource: &'a dyn Resource,
    query: Query<'a>,
    pushed: AtomicUsize,
    events: &'a Sender<Result<pb::list_resource::Event, Status>>,
}

impl fmt::Debug for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").field("query", &self.query).finish_non_exhaustive()
    }
}

impl<'a> Listing<'a> {
    pub(crate) fn new(
        resource: &'a dyn Resource,
        query: Query<'a>,
        events: &'a Sender<Result<pb::list_resource::Event, Status>>,
    ) -> Self {
        Self { resource, query, pushed: AtomicUsize::new(0), events }
    }

    /// Hands an object over, as soon as Terraform takes it. `Break` where no more are wanted.
    ///
    /// # Errors
    /// The state is not one of the resource, or does not identify the object.
    pub async fn push(&self, listed: Listed) -> Result<ControlFlow<()>, Diags> {
        let before = self.pushed.fetch_add(1, Ordering::Relaxed);
        if self.query.limit.is_some_and(|limit| before >= limit) {
            return Ok(ControlFlow::Break(()));
        }
        let state = contract::conform(self.resource.schema(), listed.state)?.without_unknowns();
        let Some(identity) = self.resource.identity().of(&state) else {
            let detail = format!(
                "The {} {:?} was found without all that identifies it.",
                self.resource.type_name(),
                listed.name
            );
            return Err(Diag::error("Bug in the provider", detail).into());
        };
        let event = pb::list_resource::Event {
            identity: Some(pb::ResourceIdentityData { identity_data: Some(codec::encode(&identity)) }),
            display_name: listed.name,
            resource_object: self.query.with_states.then(|| codec::encode(&state)),
            diagnostic: Diags(listed.warnings).to_pb(),
        };
        let is_gone = self.events.send(Ok(event)).await.is_err();
        let is_enough = self.query.limit.is_some_and(|limit| before + 1 >= limit);
        Ok(if is_gone || is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}
