//! The demo: a whole Basalt in a lab, two machines, and Terraform that installs both.
//!
//! Two processes share the work. [`keeper`] owns the lab, region, rack and machines. It runs in a session of its own and
//! continues when `make demo` returns, until it is told to end everything. The process that the user started is an ordinary
//! client of the region: it runs Terraform, and shows the progress.

pub mod keeper;
mod progress;
mod walk;

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};

use crate::error::LabError;
use crate::lab::{self, root};
use crate::name::LabName;
use crate::process;
use crate::site::SiteError;

pub use walk::run;

/// The lab's name.
const LABEL: &str = "demo";
/// How long the keeper may take to end everything.
const ENDING: Duration = Duration::from_secs(40);

/// The inputs of the demo.
#[derive(Clone, Debug)]
pub struct DemoConfig {
    /// A folder with `ephemeral/image.json` and `debian/image.json`.
    pub images: PathBuf,
    /// The Terraform configuration.
    pub example: PathBuf,
    /// Port of the API on this host, at 127.0.0.1.
    pub port: u16,
}

/// Errors of the demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// An error of the site.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// An error of the lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// An error of the region.
    #[error("the region: {0}")]
    Region(#[from] basalt_api::client::ClientError),
    /// The user is not root.
    #[error("the demo makes a network namespace and needs root: run `sudo make demo`")]
    NotRoot,
    /// A demo runs already.
    #[error("the demo runs already (process {pid}, files in {directory}); `make demo-stop` removes it", directory = .directory.display())]
    Runs {
        /// Process id of its keeper.
        pid: i32,
        /// Directory with its files.
        directory: PathBuf,
    },
    /// Another program uses the port.
    #[error("127.0.0.1:{port} is taken by another program (`ss -ltnp sport = :{port}` shows which): stop it, or choose another port: make demo PORT={other}", other = port.wrapping_add(1))]
    PortTaken {
        /// Number of the TCP port.
        port: u16,
    },
    /// There is no Terraform on the PATH.
    #[error(
        "there is no terraform on PATH: install Terraform 1.11 or newer (https://developer.hashicorp.com/terraform/install)"
    )]
    NoTerraform,
    /// An image is not built.
    #[error("there is no {}; `make images` builds it", .0.display())]
    NoImage(PathBuf),
    /// The keeper ended with an error.
    #[error("the demo did not start; its log {log} ends:\n{tail}", log = .log.display())]
    Keeper {
        /// Path of the keeper's log.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// A program failed.
    #[error("{what} failed; its output is in {log} and ends:\n{tail}", log = .log.display())]
    Failed {
        /// Command line of the program.
        what: String,
        /// Path of the program's log.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// Terraform succeeded, but the machines are not in the expected state.
    #[error("{0}")]
    NotThere(String),
    /// The user interrupted the demo.
    #[error("interrupted; everything was removed")]
    Interrupted,
}

/// A symbolic link with a fixed name that points to the running demo's directory.
fn link() -> PathBuf {
    root().join(LABEL)
}

/// Path of the keeper's log.
fn keeper_log() -> PathBuf {
    root().join("demo.log")
}

/// Path of the file with the process id of the demo's client, for `tests/lab/demo end`.
fn record() -> PathBuf {
    root().join("demo.process")
}

/// The labs of demos; at most one of them is alive.
fn labs() -> Result<Vec<LabName>, LabError> {
    Ok(lab::all()?.into_iter().filter(|name| name.label == LABEL).collect())
}

/// Reports obstacles before anything is created.
fn check(config: &DemoConfig) -> Result<(), DemoError> {
    if !rustix::process::geteuid().is_root() {
        return Err(DemoError::NotRoot);
    }
    if let Some(name) = labs()?.iter().find(|name| name.owner.is_alive()) {
        return Err(DemoError::Runs { pid: name.owner.pid, directory: link() });
    }
    if TcpListener::bind(("127.0.0.1", config.port)).is_err() {
        return Err(DemoError::PortTaken { port: config.port });
    }
    if process::run("terraform", &["version"]).is_err() {
        return Err(DemoError::NoTerraform);
    }
    for image in ["ephemeral/image.json", "debian/image.json"] {
        let path = config.images.join(image);
        if !path.is_file() {
            return Err(DemoError::NoImage(path));
        }
    }
    Ok(())
}

/// Ends the demo and removes it with its files. False if there was none. It does not end a `basalt-lab demo` that still runs:
/// `tests/lab/demo end` does that first.
///
/// # Errors
/// The demo could not be removed.
pub fn stop() -> Result<bool, DemoError> {
    if !rustix::process::geteuid().is_root() {
        return Err(DemoError::NotRoot);
    }
    let labs = labs()?;
    for name in &labs {
        if name.owner.is_alive()
            && let Some(keeper) = process::open(name.owner.pid)
        {
            let _gone_already = pidfd_send_signal(&keeper, Signal::TERM);
            if !process::wait_readable(&keeper, ENDING) {
                let _gone_already = pidfd_send_signal(&keeper, Signal::KILL);
                process::wait_readable(&keeper, ENDING);
            }
        }
        match lab::take_down(&name.to_string()) {
            // The keeper has already removed it.
            Err(LabError::NoSuchLab(_)) => {}
            result => drop(result?),
        }
    }
    for file in [link(), keeper_log(), record()] {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(LabError::file(file)(error).into());
            }
            _ => {}
        }
    }
    // Removes the directory only if no other lab is there.
    let _not_empty = std::fs::remove_dir(root());
    Ok(!labs.is_empty())
}

/// Prints a line to the terminal, which may be closed.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _unheard = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn example_name(example: &Path) -> &std::ffi::OsStr {
    example.file_name().unwrap_or_default()
}
