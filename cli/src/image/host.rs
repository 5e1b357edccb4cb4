//! Runs programs of the host. Before any work, it checks that they exist, and names the Debian packages of missing ones.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use thiserror::Error;

/// The reason why a build stopped.
#[derive(Debug, Error)]
pub(super) enum BuildError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("missing on this host: {0}\ninstall with: apt-get install {1}")]
    Missing(String, String),
    #[error("building an image needs root: it makes files of all owners")]
    NotRoot,
    #[error("`{command}` failed with {status}\n{output}")]
    Failed { command: String, status: String, output: String },
    #[error(
        "there is no keyring {keyring}, by which apt would believe the packages: install Debian's with `apt-get install debian-archive-keyring`, or name another with --keyring FILE"
    )]
    NoKeyring { keyring: String },
    #[error("there is no home directory to cache in; set --cache-dir")]
    NoCache,
    #[error(
        "no agent found (looked at {looked}); build it with\n  RUSTFLAGS='-C target-feature=+crt-static' cargo build -p basalt-agent --profile agent --target x86_64-unknown-linux-gnu\nor name it with --agent"
    )]
    NoAgent { looked: String },
    #[error(
        "{path} is not a static x86-64 program: the initrd has no shared libraries. Link it with -C target-feature=+crt-static"
    )]
    NotStatic { path: PathBuf },
    #[error(
        "{what} is {size} bytes, over its budget of {budget}: machines load it over the network and hold it in memory"
    )]
    OverBudget { what: &'static str, size: u64, budget: u64 },
    #[error("the packages of release {release} hold no {what}")]
    Lacking { release: String, what: String },
}

/// For `map_err`: an I/O error of the action `what`.
pub(super) fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> BuildError {
    let what = what.into();
    move |source| BuildError::Io { what, source }
}

/// Programs and their Debian packages.
pub(super) type Needed = [(&'static str, &'static str)];

/// Checks that this process is root and that all programs exist.
pub(super) fn check(programs: &Needed) -> Result<(), BuildError> {
    let missing: Vec<_> = programs.iter().filter(|(program, _)| !on_path(program)).collect();
    if !missing.is_empty() {
        let mut names = String::new();
        let mut packages: Vec<&str> = Vec::new();
        for (program, package) in missing {
            let _ = write!(names, "{}{program}", if names.is_empty() { "" } else { ", " });
            if !packages.contains(package) {
                packages.push(package);
            }
        }
        return Err(BuildError::Missing(names, packages.join(" ")));
    }
    let own = std::fs::metadata("/proc/self").map_err(io_error("/proc/self"))?;
    if own.uid() == 0 { Ok(()) } else { Err(BuildError::NotRoot) }
}

/// System programs are often not on a user's path.
const SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(SYSTEM.map(PathBuf::from)).any(|dir| dir.join(program).is_file())
}

/// Prints the start of a step, runs it, and prints its duration.
pub(super) fn step<T>(what: &str, work: impl FnOnce() -> Result<T, BuildError>) -> Result<T, BuildError> {
    eprintln!("basalt: {what} ...");
    let began = Instant::now();
    let result = work()?;
    eprintln!("basalt: {what}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(result)
}

/// A command in the environment of reproducible builds.
pub(super) fn program(name: &str) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    for dir in SYSTEM {
        path.push(":");
        path.push(dir);
    }
    let mut command = Command::new(name);
    command
        .env("PATH", path)
        .env("LC_ALL", "C.UTF-8")
        .env("SOURCE_DATE_EPOCH", super::manifest::EPOCH.to_string())
        .env("TZ", "UTC")
        .stdin(Stdio::null());
    command
}

/// Runs a program in its own mount namespace. mmdebstrap mounts the host's `/dev` and `/proc` in the new root. If it were killed, they
/// would stay mounted, and a person who removes the directory would delete their content.
const APART: [&str; 3] = ["--mount", "--propagation=private", "--"];

/// Runs a program and waits for its end. Its output is only shown after a failure.
pub(super) fn run<A: AsRef<OsStr>>(
    name: &str,
    args: impl IntoIterator<Item = A>,
    dir: &Path,
) -> Result<Vec<u8>, BuildError> {
    let args: Vec<A> = args.into_iter().collect();
    let mut command = program("unshare");
    command.args(APART).arg(name).args(&args).current_dir(dir);
    if dir != Path::new("/") {
        // Temporary files of a killed program are then inside the build's directory, and the next build removes them. Also, /tmp may be
        // small.
        command.env("TMPDIR", dir);
    }
    let shown = format!("{:?}", Command::new(name).args(&args));
    let output = command.output().map_err(io_error(format!("starting {name}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    let output_tail = lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n");
    let command = shown.chars().take(300).collect();
    Err(BuildError::Failed { command, status: output.status.to_string(), output: output_tail })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_its_temporary_files_in_its_own_directory() {
        let work = tempfile::tempdir().unwrap();
        run("mktemp", [] as [&str; 0], work.path()).unwrap();
        assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_program_mounts_is_not_there_any_more_when_it_was_killed() {
        let work = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs none \"$PWD\" && : > \"$PWD/inside\" && ls \"$PWD\" >&2 && kill -9 $$";
        let killed = run("sh", ["-c", script], work.path()).unwrap_err().to_string();
        assert!(killed.contains("`\"sh\" \"-c\"") && killed.contains("signal: 9"), "{killed}");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&work.path().display().to_string()), "{mounts}");
    }
}
