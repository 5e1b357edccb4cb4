//! Errors of a lab.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use basalt_bmc::BmcError;

/// The error of a lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The name is not allowed.
    #[error("the lab's name {0:?} is not of 1 to 24 letters a-z, digits and hyphens; choose such a name")]
    BadName(String),
    /// This process has a lab of that name already.
    #[error("this process has a lab {0:?} already; drop it first, or choose another name")]
    NameTaken(String),
    /// No lab of that name exists.
    #[error("there is no lab {0:?}; `basalt-lab list` shows those that exist")]
    NoSuchLab(String),
    /// A helper program is missing.
    #[error("cannot start {program}: {source}; install the package that has it")]
    Start {
        /// Name of the program.
        program: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A helper program failed.
    #[error("`{command}` failed ({status}): {output}")]
    Failed {
        /// Its command line.
        command: String,
        /// Exit status of the program.
        status: String,
        /// Output of the program, both streams.
        output: String,
    },
    /// An expected event did not happen in time.
    #[error("{what} did not happen within {:.1} s", .limit.as_secs_f64())]
    TimedOut {
        /// The expected event.
        what: String,
        /// Length of the wait.
        limit: Duration,
    },
    /// The program `basalt-lab` is not where it is looked for.
    #[error(
        "no program `basalt-lab` beside {0}; build it with `cargo build -p basalt-lab`, or set BASALT_LAB_BIN"
    )]
    NoProgram(PathBuf),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The kernel refused an operation.
    #[error("cannot {what}: {source}; a lab needs root")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The machine's BMC refused or did not answer.
    #[error(transparent)]
    Bmc(#[from] BmcError),
    /// A machine's configuration is not valid.
    #[error("machine {machine:?}: {problem}")]
    BadMachine {
        /// Name of the machine.
        machine: String,
        /// The error, and the remedy.
        problem: String,
    },
    /// A file of UEFI variables does not have OVMF's format.
    #[error("{path} is no OVMF variable store: {problem}")]
    BadVariables {
        /// Path of the file.
        path: PathBuf,
        /// The part of the format that is wrong.
        problem: &'static str,
    },
}

impl LabError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
