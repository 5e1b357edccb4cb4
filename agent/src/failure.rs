//! Failures of a task: a code for the region, a sentence for a person.

use std::fmt::Display;

use basalt_api::agent::FailureCode;
use thiserror::Error;

use crate::blob::BlobError;
use crate::tool::ToolError;

/// The reason why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Failure {
    /// The cause, for programs.
    pub code: FailureCode,
    /// The error with its value and a remedy, for a person.
    pub message: String,
}

impl Failure {
    /// A failure with its sentence.
    pub fn new(code: FailureCode, message: impl Display) -> Self {
        Self { code, message: message.to_string() }
    }

    /// For `map_err`: an I/O error of a disk, or of the file system that was just made on it.
    pub fn disk<E: Display>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::new(FailureCode::DiskError, format!("{what}: {error}"))
    }
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self::new(FailureCode::ToolFailed, error)
    }
}

impl From<BlobError> for Failure {
    fn from(error: BlobError) -> Self {
        let code = match error {
            BlobError::Unavailable { .. } => FailureCode::BlobUnavailable,
            BlobError::Corrupt { .. } => FailureCode::BlobCorrupt,
        };
        Self::new(code, error)
    }
}
