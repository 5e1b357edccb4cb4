//! The demo: a whole Basalt in a lab, two machines, and Terraform that installs both.
//!
//! Two processes share the work. [`keeper`] owns the lab, region, rack and machines, stays behind in a session of its own
//! when `make demo` returns, and ends all of them when it is told to. What the user started looks at the region from
//! outside, as users do, runs Terraform, and shows how far everything is.

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

/// What the demo is made from.
#[derive(Clone, Debug)]
pub struct DemoConfig {
    /// A folder with `ephemeral/image.json` and `debian/image.json`.
    pub images: PathBuf,
    /// The Terraform configuration.
    pub example: PathBuf,
    /// Where the API is reachable on this host, at 127.0.0.1.
    pub port: u16,
}

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The site.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The region.
    #[error("the region: {0}")]
    Region(#[from] basalt_api::client::ClientError),
    /// Not root.
    #[error("the demo makes a network namespace and needs root: run `sudo make demo`")]
    NotRoot,
    /// It is there already.
    #[error("the demo runs already (process {pid}, files in {directory}); `make demo-stop` removes it", directory = .directory.display())]
    Runs {
        /// Its keeper.
        pid: i32,
        /// Its files.
        directory: PathBuf,
    },
    /// The port is taken.
    #[error("127.0.0.1:{port} is taken by another program (`ss -ltnp sport = :{port}` shows which): stop it, or choose another port: make demo PORT={other}", other = port.wrapping_add(1))]
    PortTaken {
        /// Which.
        port: u16,
    },
    /// No Terraform.
    #[error(
        "there is no terraform on PATH: install Terraform 1.11 or newer (https://developer.hashicorp.com/terraform/install)"
    )]
    NoTerraform,
    /// An image is not built.
    #[error("there is no {}; `make images` builds it", .0.display())]
    NoImage(PathBuf),
    /// The keeper gave up.
    #[error("the demo did not start; its log {log} ends:\n{tail}", log = .log.display())]
    Keeper {
        /// Its log.
        log: PathBuf,
        /// Its end.
        tail: String,
    },
    /// A program failed.
    #[error("{what} failed; its output is in {log} and ends:\n{tail}", log = .log.display())]
    Failed {
        /// What was run.
        what: String,
        /// Where it wrote to.
        log: PathBuf,
        /// The end of that.
        tail: String,
    },
    /// Terraform was content, and the machines are not as they should be.
    #[error("{0}")]
    NotThere(String),
    /// The user had enough.
    #[error("interrupted; everything was removed")]
    Interrupted,
}

/// A stable name for the running demo's directory.
fn link() -> PathBuf {
    root().join(LABEL)
}

/// What the keeper says.
fn keeper_log() -> PathBuf {
    root().join("demo.log")
}

/// The file that names the process that makes the demo, for `tests/lab/demo end`.
fn record() -> PathBuf {
    root().join("demo.process")
}

/// The demo's labs; there is at most one that lives.
fn labs() -> Result<Vec<LabName>, LabError> {
    Ok(lab::all()?.into_iter().filter(|name| name.label == LABEL).collect())
}

/// Says clearly what stands in the way, before anything is made.
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

/// Ends the demo and removes it, its files included. False if there was none. A `basalt-lab demo` that still runs is left alone:
/// `tests/lab/demo end` comes before.
///
/// # Errors
/// It could not be removed.
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
            // The keeper did it.
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
    // Only when no other lab is there.
    let _not_empty = std::fs::remove_dir(root());
    Ok(!labs.is_empty())
}

/// A line for the person at the terminal, who may have gone.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _unheard = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn example_name(example: &Path) -> &std::ffi::OsStr {
    example.file_name().unwrap_or_default()
}
