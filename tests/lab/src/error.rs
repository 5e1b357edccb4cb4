//! What can go wrong in a lab.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use basalt_bmc::BmcError;

/// A lab that could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Not a usable name.
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
        /// The program.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// A helper program failed.
    #[error("`{command}` failed ({status}): {output}")]
    Failed {
        /// Its command line.
        command: String,
        /// How it ended.
        status: String,
        /// What it said.
        output: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {:.1} s", .limit.as_secs_f64())]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// The lab's own program is not where it is looked for.
    #[error(
        "no program `basalt-lab` beside {0}; build it with `cargo build -p basalt-lab`, or set BASALT_LAB_BIN"
    )]
    NoProgram(PathBuf),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel refused something.
    #[error("cannot {what}: {source}; a lab needs root")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The machine's BMC refused or did not answer.
    #[error(transparent)]
    Bmc(#[from] BmcError),
    /// A machine's configuration makes no sense.
    #[error("machine {machine:?}: {problem}")]
    BadMachine {
        /// Its name.
        machine: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A file of UEFI variables is not what OVMF writes.
    #[error("{path} is no OVMF variable store: {problem}")]
    BadVariables {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: &'static str,
    },
}

impl LabError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
