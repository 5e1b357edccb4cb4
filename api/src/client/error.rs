//! What can go wrong between a client and a region.

use crate::problem::{Problem, ProblemCode};
use std::path::PathBuf;
use std::time::Duration;

/// Why a call did not give what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration is wrong.
    #[error("{setting}: {why}")]
    Config {
        /// The setting.
        setting: &'static str,
        /// What is wrong with it, with what value, and what would be right.
        why: String,
    },
    /// No region could be reached.
    #[error("no region answered within {}s: {}; check the endpoints and that a region runs", patience.as_secs(), tried.join("; "))]
    Unreachable {
        /// Each endpoint and why it could not be reached.
        tried: Vec<String>,
        /// How long it was tried.
        patience: Duration,
    },
    /// The certificate of every region was refused here. Nothing was sent, and another try would meet the same.
    #[error("no region can be trusted: {}", tried.join("; "))]
    Distrusted {
        /// Each endpoint, why its certificate was refused, and what to do.
        tried: Vec<String>,
    },
    /// The region refused.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// The region took the request and did not answer in time, or the connection broke. Whether a write was stored is
    /// not known; repeating it is safe.
    #[error("{url}: {why}")]
    Broken {
        /// What was asked.
        url: String,
        /// How it broke.
        why: String,
    },
    /// Nobody wanted the answer any more: see [`Client::until`](super::Client::until).
    #[error("{}", interrupted(*may_be_done))]
    Interrupted {
        /// Whether the region may have done it all the same.
        may_be_done: bool,
    },
    /// What answered does not speak this API.
    #[error("{url} answered {status} with something that is not Basalt's: {why}")]
    Unexpected {
        /// What was asked.
        url: String,
        /// HTTP status.
        status: u16,
        /// What is wrong with the answer.
        why: String,
    },
    /// A local file could not be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

impl ClientError {
    /// The code, when the region refused.
    #[must_use]
    pub fn code(&self) -> Option<ProblemCode> {
        self.problem().map(|p| p.code)
    }

    /// The region's refusal.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }

    /// Whether nobody answers now, and somebody may in a while.
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

    /// Whether there is no such object.
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
