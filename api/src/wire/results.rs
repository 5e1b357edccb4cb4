//! Findings of hardware tests.

use std::collections::BTreeMap;

use crate::agent::Verdict;
use crate::values::{Attempt, Timestamp};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};

/// Answer of `GET /api/v1/machines/{name}/results`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct TestResults {
    /// Findings, the newest run first; within a run by script and device.
    pub items: Vec<TestResult>,
}

/// One finding of one run of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct TestResult {
    /// The name of the Script when it ran.
    pub script: String,
    /// The part of the hardware. Absent: the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The finding about the device.
    pub verdict: Verdict,
    /// One sentence for a person.
    pub message: String,
    /// Measured values. A name ends with the unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// The end of the output of the script. The log has the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// Run time of the script in seconds.
    pub seconds: f64,
    /// The attempt in which it ran.
    pub attempt: Attempt,
    /// Time when the run ended.
    pub at: Timestamp,
}

/// Most rows of one answer.
pub const MAX_TEST_RESULTS: i64 = 2000;
