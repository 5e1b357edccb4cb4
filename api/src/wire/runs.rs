//! Runs of clients. By its run, the region tells an interrupted creation from a finished one.

use crate::values::Uid;
use serde::{Deserialize, Serialize};

/// The header with the client's run in a request that creates an object. The object stays unconfirmed until a [`RunReport`] confirms it.
pub const RUN_HEADER: &str = "X-Basalt-Run";

/// Most creations that one report confirms.
pub const MAX_CONFIRMED: usize = 10_000;

/// Body of `POST /api/v1/runs/{run}`: the run continues or ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunReport {
    /// Objects that the client keeps, whatever run created them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirms: Vec<Uid>,
    /// The run has ended. Objects that it created and did not confirm may be adopted at once.
    #[serde(default)]
    pub ends: bool,
}
