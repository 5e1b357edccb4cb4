//! What can go wrong between a rack and a BMC that speaks Redfish, in the words an operator reads.

use std::time::Duration;

/// Of what a BMC says, so many characters are told.
const TOLD: usize = 400;

/// A failed operation on one BMC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("BMC {place}: {failure}")]
pub struct RedfishError {
    /// The BMC asked: host and port.
    pub place: String,
    /// What went wrong.
    pub failure: Failure,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No connection, or none with TLS.
    #[error(
        "unreachable: {0}; check its address and port, its cable, and that Redfish over HTTPS is enabled"
    )]
    Unreachable(String),
    /// A connection, and then no answer.
    #[error(
        "stopped answering during {during} ({reason}), and {:.1} s have passed; what was asked may or may not have been done: look at the power before trying again",
        .waited.as_secs_f64()
    )]
    StoppedAnswering {
        /// The request that got no answer.
        during: String,
        /// What became of the connection.
        reason: String,
        /// How long this request took.
        waited: Duration,
    },
    /// Its certificate is not one to believe; whoever judged it says why, and what to do.
    #[error("its certificate is refused: {0}")]
    Certificate(String),
    /// 401: it does not know user and password together.
    #[error(
        "wrong user name or password for user {username:?}; where they are right, enable HTTP Basic authentication on the BMC{said}"
    )]
    WrongPassword {
        /// The user name sent.
        username: String,
        /// What it says about that, or nothing.
        said: String,
    },
    /// 403: the account may not do that.
    #[error("refused {request} to user {username:?}; give the account the role Operator on the BMC{said}")]
    RefusedPrivilege {
        /// What was asked.
        request: String,
        /// The user name sent.
        username: String,
        /// What it says about that, or nothing.
        said: String,
    },
    /// It has several systems, and nobody said which.
    #[error("has {} systems; say in bmc.options.system which one the machine is: {}", .names.len(), .names.join(", "))]
    SeveralSystems {
        /// Their names.
        names: Vec<String>,
    },
    /// It has no system, or none of that name.
    #[error(
        "has no system {}; it has: {}",
        .wanted.as_deref().map(|it| format!("{it:?}")).unwrap_or_else(|| "at all".to_owned()),
        if .names.is_empty() { "none".to_owned() } else { .names.join(", ") }
    )]
    NoSystem {
        /// The one that was asked for.
        wanted: Option<String>,
        /// Those that it has.
        names: Vec<String>,
    },
    /// It cannot do this.
    #[error("cannot {what}; it allows: {}", if .allowed.is_empty() { "nothing".to_owned() } else { .allowed.join(", ") })]
    Unsupported {
        /// What was wanted.
        what: &'static str,
        /// What it names instead.
        allowed: Vec<String>,
    },
    /// It says neither on nor off.
    #[error(
        "says PowerState {0} of the system, which is neither on nor off; it may be starting: look again later"
    )]
    NoPowerState(String),
    /// It refuses the request now; later it may not.
    #[error("answered {status} to {request}{said}")]
    Refused {
        /// What was asked.
        request: String,
        /// The HTTP status.
        status: u16,
        /// What it says about that, or nothing.
        said: String,
    },
    /// It refuses the request for good.
    #[error("answered {status} to {request}, and would again{said}")]
    Rejected {
        /// Method and path of the refused request.
        request: String,
        /// The HTTP status.
        status: u16,
        /// The reason that it gives, or nothing.
        said: String,
    },
    /// It took a boot override, and reads another one.
    #[error(
        "took the boot override ({wanted}) and reads another one ({reads}), so that the machine would boot something else; update its firmware, or put the network first in the machine's boot order"
    )]
    NotKept {
        /// The override that was set.
        wanted: String,
        /// The override that the system reads.
        reads: String,
    },
    /// It sends its clients elsewhere.
    #[error(
        "redirects {request} to {to:?}, which is not the BMC itself; passwords are sent nowhere else: correct bmc.address and bmc.port"
    )]
    Elsewhere {
        /// What was asked.
        request: String,
        /// Where to.
        to: String,
    },
    /// What it sent makes no sense.
    #[error("sent a malformed answer to {request}: {reason}")]
    Malformed {
        /// What was asked.
        request: String,
        /// What is wrong with it.
        reason: String,
    },
    /// One answer leads to the next without end.
    #[error("led {0} requests in a circle; its firmware has to be updated, or use another driver")]
    Endless(u32),
}

/// A text of a BMC, as it can be told: printable, and not long.
#[must_use]
pub fn told(text: &str) -> String {
    let mut told: String = text.chars().filter(|c| !c.is_control()).take(TOLD).collect();
    if text.chars().nth(TOLD).is_some() {
        told.push('…');
    }
    told
}
