//! What a provider author writes so that Terraform (1.14 and later) can have something done once, of which no state remains.
//!
//! ```text
//! plan     may refuse, and changes nothing
//! invoke ──> progress.say("…"), as often as there is something to say ──> its end
//! ```

use std::fmt;

use tokio::sync::mpsc::Sender;
use tonic::{Status, async_trait};

use crate::diag::Diags;
use crate::pb;
use crate::provider::Cx;
use crate::schema::Schema;
use crate::value::Val;

/// Something that is done when the configuration or the user says so, such as a restart.
#[async_trait]
pub trait Action: Send + Sync + 'static {
    /// The type's whole name, such as `pets_feed`.
    fn type_name(&self) -> &str;

    /// What can be said of it. Nothing of it is computed.
    fn schema(&self) -> &Schema;

    /// Checks a configuration by itself. Values may be unknown.
    async fn validate(&self, _config: &Val) -> Diags {
        Diags::default()
    }

    /// A look at what is about to be done, before it is shown to the user: warnings and errors. Values may be unknown. Must not
    /// have effects.
    async fn plan(&self, _cx: &Cx, _config: &Val) -> Result<(), Diags> {
        Ok(())
    }

    /// Does it. The configuration is wholly known. [`Cx::cancelled`] ends when the user interrupts Terraform, or Terraform does
    /// not listen any more.
    async fn invoke(&self, cx: &Cx, config: &Val, progress: &Progress<'_>) -> Result<(), Diags>;
}

/// Tells the user how an action goes.
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
        // Who does not listen any more has cancelled the action.
        let _ = self.events.send(Ok(event)).await;
    }
}
