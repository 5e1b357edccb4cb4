//! The errors between a rack and a Redfish BMC, with messages for operators.

use std::time::Duration;

/// The most characters of a BMC's text that are shown.
const TOLD: usize = 400;

/// A failed operation on one BMC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("BMC {place}: {failure}")]
pub struct RedfishError {
    /// The host and port of the BMC.
    pub place: String,
    /// The reason for the failure.
    pub failure: Failure,
}

/// The reason why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The TCP connection or the TLS handshake failed.
    #[error(
        "unreachable: {0}; check its address and port, its cable, and that Redfish over HTTPS is enabled"
    )]
    Unreachable(String),
    /// The connection was made, but there was no answer.
    #[error(
        "stopped answering during {during} ({reason}), and {:.1} s have passed; what was asked may or may not have been done: look at the power before trying again",
        .waited.as_secs_f64()
    )]
    StoppedAnswering {
        /// The request that got no answer.
        during: String,
        /// The error of the connection.
        reason: String,
        /// How long this request took.
        waited: Duration,
    },
    /// The certificate is not trusted. The text comes from the verifier: the reason, and the remedy.
    #[error("its certificate is refused: {0}")]
    Certificate(String),
    /// 401: the user name or the password is wrong.
    #[error(
        "wrong user name or password for user {username:?}; where they are right, enable HTTP Basic authentication on the BMC{said}"
    )]
    WrongPassword {
        /// The user name sent.
        username: String,
        /// The BMC's message, or an empty text.
        said: String,
    },
    /// 403: the account lacks a privilege.
    #[error("refused {request} to user {username:?}; give the account the role Operator on the BMC{said}")]
    RefusedPrivilege {
        /// The method and path of the request.
        request: String,
        /// The user name sent.
        username: String,
        /// The BMC's message, or an empty text.
        said: String,
    },
    /// The BMC has several systems, and none was selected.
    #[error("has {} systems; say in bmc.options.system which one the machine is: {}", .names.len(), .names.join(", "))]
    SeveralSystems {
        /// The names of the systems.
        names: Vec<String>,
    },
    /// The BMC has no system, or none with that name.
    #[error(
        "has no system {}; it has: {}",
        .wanted.as_deref().map(|it| format!("{it:?}")).unwrap_or_else(|| "at all".to_owned()),
        if .names.is_empty() { "none".to_owned() } else { .names.join(", ") }
    )]
    NoSystem {
        /// The selected name, if there was one.
        wanted: Option<String>,
        /// The names of the BMC's systems.
        names: Vec<String>,
    },
    /// The BMC does not support the operation.
    #[error("cannot {what}; it allows: {}", if .allowed.is_empty() { "nothing".to_owned() } else { .allowed.join(", ") })]
    Unsupported {
        /// The operation, as text.
        what: &'static str,
        /// The values that the BMC allows.
        allowed: Vec<String>,
    },
    /// The power state is neither on nor off.
    #[error(
        "says PowerState {0} of the system, which is neither on nor off; it may be starting: look again later"
    )]
    NoPowerState(String),
    /// The BMC refuses the request at the moment.
    #[error("answered {status} to {request}{said}")]
    Refused {
        /// The method and path of the request.
        request: String,
        /// The HTTP status.
        status: u16,
        /// The BMC's message, or an empty text.
        said: String,
    },
    /// The BMC refuses the request in every state.
    #[error("answered {status} to {request}, and would again{said}")]
    Rejected {
        /// Method and path of the refused request.
        request: String,
        /// The HTTP status.
        status: u16,
        /// The BMC's message, or an empty text.
        said: String,
    },
    /// The BMC accepted a boot override, but shows another one.
    #[error(
        "took the boot override ({wanted}) and reads another one ({reads}), so that the machine would boot something else; update its firmware, or put the network first in the machine's boot order"
    )]
    NotKept {
        /// The override that was set.
        wanted: String,
        /// The override that the system shows.
        reads: String,
    },
    /// The BMC redirects to another host or port.
    #[error(
        "redirects {request} to {to:?}, which is not the BMC itself; passwords are sent nowhere else: correct bmc.address and bmc.port"
    )]
    Elsewhere {
        /// The method and path of the request.
        request: String,
        /// The target of the redirect.
        to: String,
    },
    /// The answer is malformed.
    #[error("sent a malformed answer to {request}: {reason}")]
    Malformed {
        /// The method and path of the request.
        request: String,
        /// The fault in the answer.
        reason: String,
    },
    /// The requests form a loop. The number is that of the requests sent.
    #[error("led {0} requests in a circle; its firmware has to be updated, or use another driver")]
    Endless(u32),
}

/// A BMC's text made fit for display: printable, and of limited length.
#[must_use]
pub fn told(text: &str) -> String {
    let mut told: String = text.chars().filter(|c| !c.is_control()).take(TOLD).collect();
    if text.chars().nth(TOLD).is_some() {
        told.push('…');
    }
    told
}
