//! Runs of clients. A run tells an interrupted creation from a finished one.

use crate::values::Uid;
use serde::{Deserialize, Serialize};

/// The header in which a client names its run, as it creates: what it creates is unconfirmed until a [`RunReport`] confirms it.
pub const RUN_HEADER: &str = "X-Basalt-Run";

/// Creations that one report confirms, at most.
pub const MAX_CONFIRMED: usize = 10_000;

/// Body of `POST /api/v1/runs/{run}`: the run goes on, or ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunReport {
    /// Objects that the client keeps, whichever run made them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirms: Vec<Uid>,
    /// The run has ended: what it has created and not confirmed may be taken up at once.
    #[serde(default)]
    pub ends: bool,
}
