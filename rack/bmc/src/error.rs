//! What can go wrong between a rack and a BMC, in the words an operator reads.

use std::net::SocketAddr;
use std::time::Duration;

use crate::credentials::Privilege;
use crate::message::CompletionCode;

/// A failed operation on one BMC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("BMC {address}: {failure}")]
pub struct BmcError {
    /// The BMC asked.
    pub address: SocketAddr,
    /// What went wrong.
    pub failure: Failure,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Not one packet came back.
    #[error(
        "unreachable: no answer to {sent} packets in {:.1} s{}; check its address, its cable, and that IPMI over LAN is enabled",
        .waited.as_secs_f64(),
        .last_error.as_ref().map(|error| format!(" (last error: {error})")).unwrap_or_default()
    )]
    Unreachable {
        /// Packets sent.
        sent: u32,
        /// How long was waited.
        waited: Duration,
        /// What the host's network said last, if anything.
        last_error: Option<String>,
    },
    /// It answered at first, then no more.
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
    /// It offers only IPMI 1.5 on this channel, which is never used.
    #[error(
        "offers no IPMI 2.0 on this LAN channel; enable RMCP+ on it (Basalt does not fall back to IPMI 1.5)"
    )]
    NoIpmi20,
    /// It has a K_g key besides the user's password.
    #[error("requires a BMC key (K_g), which Basalt does not hold; clear K_g on the BMC")]
    BmcKeyRequired,
    /// It does not know the user.
    #[error("wrong user name: it knows no user {username:?} that may log in over LAN")]
    WrongUserName {
        /// The user name sent.
        username: String,
    },
    /// It knows the user, under another password.
    #[error("wrong password for user {username:?}")]
    WrongPassword {
        /// The user name sent.
        username: String,
    },
    /// The user may not have the privilege asked for.
    #[error(
        "refused privilege {privilege} to user {username:?}; raise the user's privilege limit on the BMC"
    )]
    RefusedPrivilege {
        /// The user name sent.
        username: String,
        /// The level asked for.
        privilege: Privilege,
    },
    /// It does not speak the cipher suite.
    #[error("does not support cipher suite {suite}; choose another suite for this BMC, or enable it there")]
    UnsupportedSuite {
        /// The suite asked for.
        suite: u8,
    },
    /// All its sessions are taken.
    #[error("has no free session; it frees idle ones within a minute or so: try again later")]
    NoFreeSession,
    /// It refused a step of opening a session for another reason.
    #[error("refused {step}: {reason} (status 0x{status:02x})")]
    Refused {
        /// `Open Session`, `RAKP 1` or `RAKP 3`.
        step: &'static str,
        /// The RMCP+ status code.
        status: u8,
        /// The same in words.
        reason: &'static str,
    },
    /// It answered a command with another code than "done".
    #[error("{command} failed: {code}")]
    Command {
        /// The command's name.
        command: &'static str,
        /// Its completion code.
        code: CompletionCode,
    },
    /// What it sent makes no sense.
    #[error("sent a malformed {0}")]
    Malformed(&'static str),
    /// Our own cryptography failed.
    #[error("cryptography failed: {0}")]
    Crypto(&'static str),
    /// No socket could be made here.
    #[error("no UDP socket on this host: {0}")]
    Socket(String),
    /// The session was closed before.
    #[error("the session is closed")]
    Closed,
}

impl Failure {
    /// Whether trying the same again later, with nothing changed, may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::StoppedAnswering { .. }
            | Self::NoFreeSession
            | Self::Socket(_) => true,
            Self::Command { code, .. } => matches!(code.0, 0xc0 | 0xc3 | 0xc4 | 0xce | 0xd1 | 0xd2 | 0xff),
            _ => false,
        }
    }
}
