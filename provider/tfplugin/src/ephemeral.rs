//! What a provider author writes to have an ephemeral resource: something that is there while
//! Terraform runs, and never in a plan or a state.
//!
//! ```text
//! open ──> value, used by the configuration ──> close
//!   └── renew, as often as it says ──┘
//! ```
//!
//! Terraform opens it whenever it needs the value: in a plan, and again in the apply. It closes nothing that was used by
//! something that failed; that is closed when the provider's process ends, unless the process is killed.

use std::time::SystemTime;

use tonic::async_trait;

use crate::diag::Diags;
use crate::provider::Cx;
use crate::schema::Schema;
use crate::value::Val;

/// Something that Terraform makes for the time of one command. What [`Ephemeral::renew`] and
/// [`Ephemeral::close`] need to know is kept with [`Cx::set_private`]; it stays in memory.
#[async_trait]
pub trait Ephemeral: Send + Sync + 'static {
    /// The type's whole name, such as `pets_leash`.
    fn type_name(&self) -> &str;

    /// Its attributes.
    fn schema(&self) -> &Schema;

    /// Checks a configuration by itself. Values may be unknown.
    async fn validate(&self, _config: &Val) -> Diags {
        Diags::default()
    }

    /// Makes it. The configuration is wholly known. What was made before a failure is not closed
    /// by anybody else.
    async fn open(&self, cx: &Cx, config: &Val) -> Result<Opened, Diags>;

    /// Keeps it good for longer, and says when to ask again.
    async fn renew(&self, _cx: &Cx) -> Result<Option<SystemTime>, Diags> {
        Ok(None)
    }

    /// Ends it. This comes after an interruption as well, so [`Cx::cancelled`] says nothing here.
    async fn close(&self, _cx: &Cx) -> Result<(), Diags> {
        Ok(())
    }
}

/// What was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// The whole value: the configured attributes and the computed ones.
    pub value: Val,
    /// When [`Ephemeral::renew`] is to be asked, if the command still runs then.
    pub renew_at: Option<SystemTime>,
}
