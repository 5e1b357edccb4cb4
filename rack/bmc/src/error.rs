//! The errors between a rack and a BMC, with messages for operators.

use std::net::SocketAddr;
use std::time::Duration;

use crate::credentials::Privilege;
use crate::message::CompletionCode;

/// A failed operation on one BMC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("BMC {address}: {failure}")]
pub struct BmcError {
    /// The address and port of the BMC.
    pub address: SocketAddr,
    /// The reason for the failure.
    pub failure: Failure,
}

/// The reason why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No packet was received.
    #[error(
        "unreachable: no answer to {sent} packets in {:.1} s{}; check its address, its cable, and that IPMI over LAN is enabled",
        .waited.as_secs_f64(),
        .last_error.as_ref().map(|error| format!(" (last error: {error})")).unwrap_or_default()
    )]
    Unreachable {
        /// The number of packets sent.
        sent: u32,
        /// How long the client waited.
        waited: Duration,
        /// The last error of the host's network, if there was one.
        last_error: Option<String>,
    },
    /// The BMC answered at first, then no more.
    #[error(
        "stopped answering during {during}, and {:.1} s have passed; what was asked may or may not have been done: look at the power status before trying again",
        .waited.as_secs_f64()
    )]
    StoppedAnswering {
        /// The step that got no answer.
        during: &'static str,
        /// How long the whole operation took.
        waited: Duration,
    },
    /// The BMC offers only IPMI 1.5 on this channel, which is never used.
    #[error(
        "offers no IPMI 2.0 on this LAN channel; enable RMCP+ on it (Basalt does not fall back to IPMI 1.5)"
    )]
    NoIpmi20,
    /// The BMC has a key K_g beside the user's password.
    #[error("requires its key K_g beside the password; declare it in bmc.k_g, or clear it on the BMC")]
    BmcKeyRequired,
    /// The BMC has another key K_g, or a key where none is declared. The password is right.
    #[error(
        "accepts the password, but its key K_g {}",
        if *.is_declared { "is not the one in bmc.k_g" } else { "is set, and bmc.k_g is not; declare it there" }
    )]
    WrongBmcKey {
        /// The client has a key.
        is_declared: bool,
    },
    /// The BMC does not know the user.
    #[error("wrong user name: it knows no user {username:?} that may log in over LAN")]
    WrongUserName {
        /// The user name sent.
        username: String,
    },
    /// The BMC knows the user, with another password.
    #[error("wrong password for user {username:?}")]
    WrongPassword {
        /// The user name sent.
        username: String,
    },
    /// The user may not have the requested privilege.
    #[error(
        "refused privilege {privilege} to user {username:?}; raise the user's privilege limit on the BMC"
    )]
    RefusedPrivilege {
        /// The user name sent.
        username: String,
        /// The requested level.
        privilege: Privilege,
    },
    /// The BMC does not support the cipher suite.
    #[error("does not support cipher suite {suite}; choose another suite for this BMC, or enable it there")]
    UnsupportedSuite {
        /// The requested suite.
        suite: u8,
    },
    /// All sessions of the BMC are in use.
    #[error(
        "all of its sessions are in use{}; other programs hold them, such as consoles and other managers: end those; a BMC usually frees an idle session after a minute",
        if .waited.is_zero() { String::new() } else { format!(", and none became free within {:.0} s", .waited.as_secs_f64()) }
    )]
    NoFreeSession {
        /// How long the client waited for one.
        waited: Duration,
    },
    /// The BMC refused a step of opening a session for another reason.
    #[error("refused {step}: {reason} (status 0x{status:02x})")]
    Refused {
        /// `Open Session`, `RAKP 1` or `RAKP 3`.
        step: &'static str,
        /// The RMCP+ status code.
        status: u8,
        /// The status code as text.
        reason: &'static str,
    },
    /// The BMC answered a command with a completion code other than 0.
    #[error("{command} failed: {code}")]
    Command {
        /// The command's name.
        command: &'static str,
        /// Its completion code.
        code: CompletionCode,
    },
    /// The BMC sent a malformed packet.
    #[error("sent a malformed {0}")]
    Malformed(&'static str),
    /// A cryptographic operation of this host failed.
    #[error("cryptography failed: {0}")]
    Crypto(&'static str),
    /// This host could not open a socket.
    #[error("no UDP socket on this host: {0}")]
    Socket(String),
    /// The session was closed before.
    #[error("the session is closed")]
    Closed,
}

impl Failure {
    /// True if the same operation may succeed later without any change.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::StoppedAnswering { .. }
            | Self::NoFreeSession { .. }
            | Self::Socket(_) => true,
            Self::Command { code, .. } => matches!(code.0, 0xc0 | 0xc3 | 0xc4 | 0xce | 0xd1 | 0xd2 | 0xff),
            _ => false,
        }
    }
}
