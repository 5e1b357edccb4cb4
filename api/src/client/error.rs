//! Errors of a call from a client to a region.

use crate::problem::{Problem, ProblemCode};
use std::path::PathBuf;
use std::time::Duration;

/// The reason why a call gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration is wrong.
    #[error("{setting}: {why}")]
    Config {
        /// Name of the setting.
        setting: &'static str,
        /// The error with its value, and a valid value.
        why: String,
    },
    /// No region could be reached.
    #[error("no region answered within {}s: {}; check the endpoints and that a region runs", patience.as_secs(), tried.join("; "))]
    Unreachable {
        /// Each endpoint with its error.
        tried: Vec<String>,
        /// Limit of the time for tries, which has passed.
        patience: Duration,
    },
    /// This client refused the certificate of every region. Nothing was sent. Another try would get the same certificates.
    #[error("no region can be trusted: {}", tried.join("; "))]
    Distrusted {
        /// Each endpoint with the reason of the refusal, and a remedy.
        tried: Vec<String>,
    },
    /// The region refused the request.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// The region took the request and did not answer in time, or the connection broke. It is unknown if a write was stored. Repeating the
    /// request is safe.
    #[error("{url}: {why}")]
    Broken {
        /// URL of the request.
        url: String,
        /// The error of the connection.
        why: String,
    },
    /// The caller ended its calls: see [`Client::until`](super::Client::until).
    #[error("{}", interrupted(*may_be_done))]
    Interrupted {
        /// True if the region may have done the request.
        may_be_done: bool,
    },
    /// The answer is not one of this API.
    #[error("{url} answered {status} with something that is not Basalt's: {why}")]
    Unexpected {
        /// URL of the request.
        url: String,
        /// HTTP status code.
        status: u16,
        /// The error in the answer.
        why: String,
    },
    /// A local file could not be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl ClientError {
    /// The code of the region's refusal, if this is one.
    #[must_use]
    pub fn code(&self) -> Option<ProblemCode> {
        self.problem().map(|p| p.code)
    }

    /// The region's refusal, if this is one.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }

    /// True if no region answers now but one may answer later.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } => true,
            Self::Unexpected { status, .. } => matches!(status, 429 | 502..=504),
            Self::Problem(problem) => {
                matches!(problem.code, ProblemCode::Unavailable | ProblemCode::RateLimited)
            }
            Self::Config { .. } | Self::File { .. } | Self::Interrupted { .. } | Self::Distrusted { .. } => {
                false
            }
        }
    }

    /// True if the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(ProblemCode::NotFound)
    }
}

fn interrupted(may_be_done: bool) -> &'static str {
    match may_be_done {
        true => "interrupted before the region answered, which may have done it all the same",
        false => "interrupted before a region answered",
    }
}

impl From<Problem> for ClientError {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}
