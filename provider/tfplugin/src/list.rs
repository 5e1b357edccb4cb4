//! The trait that a provider implements so that Terraform (`terraform query`, 1.14 and later) finds objects that it does not
//! manage.
//!
//! ```text
//! config ──> list ──> found.push(object) ──> identity, name, state   to Terraform, one by one
//!                 <── Break: Terraform wants no more
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

    /// The filters of a query. None of them is computed.
    fn schema(&self) -> &Schema;

    /// Checks a query by itself. Values may be unknown.
    async fn validate(&self, _config: &Val) -> Diags {
        Diags::default()
    }

    /// Pushes each matching object as soon as it is known, until [`Listing::push`] answers `Break`.
    async fn list(&self, cx: &Cx, query: Query<'_>, found: &Listing<'_>) -> Result<(), Diags>;
}

/// The query of `terraform query` for objects of one type.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The configuration, wholly known.
    pub config: &'a Val,
    /// True if the query wants whole states; otherwise the identities are enough.
    pub with_states: bool,
    /// The largest number of objects that the query wants, if it has a limit.
    pub limit: Option<usize>,
}

/// An object that was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The name to show to the user.
    pub name: String,
    /// The result of [`Resource::read`]. Without [`Query::with_states`], the attributes of the identity are enough.
    pub state: Val,
    /// Warnings about this object.
    pub warnings: Vec<Diag>,
}

/// Sends the found objects to Terraform.
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

    /// Sends an object, and waits until Terraform takes it. `Break` if Terraform wants no more.
    ///
    /// # Errors
    /// The state does not match the schema of the resource, or does not identify the object.
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
