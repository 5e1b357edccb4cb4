//! The trait for an action (Terraform 1.14 and later): an operation that is performed once and leaves no state.
//!
//! ```text
//! plan     may refuse, and changes nothing
//! invoke ──> progress.say("…"), any number of times ──> its end
//! ```

use std::fmt;

use tokio::sync::mpsc::Sender;
use tonic::{Status, async_trait};

use crate::diag::Diags;
use crate::pb;
use crate::provider::Cx;
use crate::schema::Schema;
use crate::value::Val;

/// An operation that is performed when the configuration or the user asks for it, such as a restart.
#[async_trait]
pub trait Action: Send + Sync + 'static {
    /// The type's whole name, such as `pets_feed`.
    fn type_name(&self) -> &str;

    /// The attributes of its configuration. None of them is computed.
    fn schema(&self) -> &Schema;

    /// Checks a configuration by itself. Values may be unknown.
    async fn validate(&self, _config: &Val) -> Diags {
        Diags::default()
    }

    /// Looks at an action before the plan is shown to the user: warnings and errors. Values may be unknown. Must not have
    /// effects.
    async fn plan(&self, _cx: &Cx, _config: &Val) -> Result<(), Diags> {
        Ok(())
    }

    /// Performs the action. The configuration is wholly known. [`Cx::cancelled`] ends when the user interrupts Terraform, or
    /// when Terraform has stopped listening.
    async fn invoke(&self, cx: &Cx, config: &Val, progress: &Progress<'_>) -> Result<(), Diags>;
}

/// Reports the progress of an action to the user.
pub struct Progress<'a> {
    events: &'a Sender<Result<pb::invoke_action::Event, Status>>,
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").finish_non_exhaustive()
    }
}

impl<'a> Progress<'a> {
    pub(crate) fn new(events: &'a Sender<Result<pb::invoke_action::Event, Status>>) -> Self {
        Self { events }
    }

    /// Shows a line of text.
    pub async fn say(&self, message: impl Into<String>) {
        use pb::invoke_action::event;
        let progress = event::Progress { message: message.into() };
        let event = pb::invoke_action::Event { r#type: Some(event::Type::Progress(progress)) };
        // If Terraform no longer listens, it has cancelled the action.
        let _ = self.events.send(Ok(event)).await;
    }
}
