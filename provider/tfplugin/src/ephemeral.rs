//! The trait for an ephemeral resource: an object that exists while Terraform runs, and is never in a plan or a state.
//!
//! ```text
//! open ──> value, used by the configuration ──> close
//!   └── renew, at the times it asks for ──┘
//! ```
//!
//! Terraform opens it whenever it needs the value: in a plan, and again in the apply. If an operation that used it
//! fails, Terraform does not close it. The runtime closes it when the provider's process ends, unless the process is
//! killed.

use std::time::SystemTime;

use tonic::async_trait;

use crate::diag::Diags;
use crate::provider::Cx;
use crate::schema::Schema;
use crate::value::Val;

/// An object that Terraform creates for one command. Data for [`Ephemeral::renew`] and [`Ephemeral::close`] is kept with
/// [`Cx::set_private`]; it stays in memory.
#[async_trait]
pub trait Ephemeral: Send + Sync + 'static {
    /// The type's whole name, such as `pets_leash`.
    fn type_name(&self) -> &str;

    /// The attributes of its configuration and of its value.
    fn schema(&self) -> &Schema;

    /// Checks a configuration by itself. Values may be unknown.
    async fn validate(&self, _config: &Val) -> Diags {
        Diags::default()
    }

    /// Creates the object. The configuration is wholly known. If this fails halfway, it must remove its own leftovers:
    /// nothing else closes them.
    async fn open(&self, cx: &Cx, config: &Val) -> Result<Opened, Diags>;

    /// Prolongs the object's life, and answers when to renew it again.
    async fn renew(&self, _cx: &Cx) -> Result<Option<SystemTime>, Diags> {
        Ok(None)
    }

    /// Ends the object's life. Also called after an interruption, so [`Cx::cancelled`] is of no use here.
    async fn close(&self, _cx: &Cx) -> Result<(), Diags> {
        Ok(())
    }
}

/// An opened ephemeral resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// The whole value: the configured attributes and the computed ones.
    pub value: Val,
    /// The time at which to call [`Ephemeral::renew`], if the command still runs.
    pub renew_at: Option<SystemTime>,
}
