//! Starts and ends processes so that none is left behind.
//!
//! Each process of a lab is started as `basalt-lab supervise OWNER -- COMMAND`. The supervisor runs the command in a
//! process group of its own, watches its owner by pidfd, and kills the group when the owner has ended, for any reason. (A
//! parent-death signal would not do: it is sent when the *thread* that started the child ends, and tests end their
//! threads.)

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::error::LabError;

/// How long a helper such as `ip` may take.
const HELPER_LIMIT: Duration = Duration::from_secs(20);

/// A process, with its start time: a later process may have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Its process id.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

impl Owner {
    /// The process that calls this.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn current() -> Result<Self, LabError> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Self::of(pid).ok_or_else(|| LabError::System {
            what: "read this process's start time in /proc",
            source: io::ErrorKind::NotFound.into(),
        })
    }

    /// The living process with this id.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, start: start_time(pid)? })
    }

    /// True if the process still runs.
    #[must_use]
    pub fn is_alive(self) -> bool {
        start_time(self.pid) == Some(self.start)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pid, self.start)
    }
}

impl FromStr for Owner {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (pid, start) = text.split_once('.').ok_or(())?;
        let pid = pid.parse().ok().filter(|pid| *pid > 0).ok_or(())?;
        Ok(Self { pid, start: start.parse().map_err(drop)? })
    }
}

/// Field 22 of `/proc/PID/stat`, counted after the command's closing parenthesis. None for a zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// A handle for a living process; `None` if there is no such process.
pub(crate) fn open(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// Runs a helper to its end, and returns its standard output.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String, LabError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = |source| LabError::Start { program: program.to_owned(), source };
    let child = command.spawn().map_err(start)?;
    let pid = i32::try_from(child.id()).ok().and_then(open);
    let text = std::iter::once(OsStr::new(program)).chain(arguments.iter().map(AsRef::as_ref));
    let line = text.collect::<Vec<_>>().join(OsStr::new(" ")).to_string_lossy().into_owned();
    if let Some(pidfd) = pid
        && !wait_readable(&pidfd, HELPER_LIMIT)
    {
        let mut child = child;
        let _gone = child.kill();
        let _status = child.wait();
        return Err(LabError::TimedOut { what: format!("the end of `{line}`"), limit: HELPER_LIMIT });
    }
    let output = child.wait_with_output().map_err(start)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(LabError::Failed {
        command: line,
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&said).trim().to_owned(),
    })
}

/// Waits until `fd` is readable. False after the time limit.
pub(crate) fn wait_readable(fd: &OwnedFd, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) => return false,
            Ok(_) | Err(_) => return true,
        }
    }
}

/// Path of this crate's program: `BASALT_LAB_BIN`, this program itself, or the file beside the running test.
///
/// # Errors
/// [`LabError::NoProgram`].
pub fn lab_program() -> Result<PathBuf, LabError> {
    if let Some(path) = std::env::var_os("BASALT_LAB_BIN") {
        return Ok(path.into());
    }
    let this = std::env::current_exe()
        .map_err(|source| LabError::System { what: "find the path of this program", source })?;
    // `target/debug/basalt-lab`, both for `target/debug/deps/test-123` and for `target/debug/other`.
    let candidates = this.ancestors().skip(1).take(2).map(|directory| directory.join("basalt-lab"));
    let found = candidates.into_iter().find(|path| path.is_file());
    found.ok_or(LabError::NoProgram(this))
}

/// A command that ends when this process does.
pub(crate) fn supervised<S: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = S>,
) -> Result<Command, LabError> {
    let mut command = Command::new(lab_program()?);
    command.arg("supervise").arg(Owner::current()?.to_string()).arg("--").args(arguments);
    command.stdin(Stdio::null()).process_group(0);
    Ok(command)
}

/// The body of `basalt-lab supervise`: runs `command` in a process group of its own until it ends. Returns its exit code.
///
/// SIGTERM and SIGINT are passed on to the group. SIGUSR1, or the end of `owner`, kills it. This process always ends after
/// the command, so its end shows that the command's files and devices are free.
///
/// # Errors
/// The command cannot be started.
pub async fn supervise(owner: Owner, command: &[OsString]) -> Result<ExitCode, LabError> {
    let system = |source| LabError::System { what: "supervise", source };
    let Some((program, arguments)) = command.split_first() else {
        return Err(system(io::Error::other("no command given")));
    };
    let Some(watched) = open(owner.pid).filter(|_| owner.is_alive()) else {
        return Ok(ExitCode::FAILURE);
    };
    let mut owner_gone = watch(watched);
    let mut terminate = signal(SignalKind::terminate()).map_err(system)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system)?;
    let mut kill = signal(SignalKind::user_defined1()).map_err(system)?;
    let start = |source| LabError::Start { program: program.to_string_lossy().into_owned(), source };
    let mut child =
        tokio::process::Command::new(program).args(arguments).process_group(0).spawn().map_err(start)?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    loop {
        let pass_on = tokio::select! {
            status = child.wait() => return status.map(exit_code).map_err(system),
            _ = terminate.recv() => Signal::TERM,
            _ = interrupt.recv() => Signal::INT,
            _ = kill.recv() => Signal::KILL,
            _gone = &mut owner_gone => {
                kill_group(group, Signal::KILL);
                return child.wait().await.map(exit_code).map_err(system);
            }
        };
        kill_group(group, pass_on);
    }
}

/// Waits for the end of a process; returns at once if it has ended.
pub(crate) async fn ended(process: Owner) {
    if let Some(watched) = open(process.pid).filter(|_| process.is_alive()) {
        let _gone = watch(watched).await;
    }
}

/// Reports the end of this process. A thread waits for it, at most until this program ends.
fn watch(process: OwnedFd) -> oneshot::Receiver<()> {
    let (gone, tell) = oneshot::channel();
    std::thread::spawn(move || {
        while !wait_readable(&process, Duration::from_secs(3600)) {}
        let _unheard = gone.send(());
    });
    tell
}

fn kill_group(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _gone_already = kill_process_group(group, signal);
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// A process of a lab, and its children; killed when dropped.
#[derive(Debug)]
pub struct LabProcess {
    child: tokio::process::Child,
    /// Process id of the supervisor, until its end was seen.
    pid: Option<Pid>,
    what: String,
}

impl LabProcess {
    /// Starts a command made by [`crate::Lab::command`]; needs a tokio runtime.
    pub(crate) fn start(command: Command) -> Result<Self, LabError> {
        let what = command.get_args().skip(3).collect::<Vec<_>>().join(OsStr::new(" "));
        let what = what.to_string_lossy().into_owned();
        let start = |source| LabError::Start { program: what.clone(), source };
        let child = tokio::process::Command::from(command).spawn().map_err(start)?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, pid, what })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`LabError::TimedOut`]: the process still runs.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus, LabError> {
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(Ok(status)) => {
                self.pid = None;
                Ok(status)
            }
            Ok(Err(source)) => Err(LabError::System { what: "wait for a process", source }),
            Err(_elapsed) => Err(LabError::TimedOut { what: format!("the end of `{}`", self.what), limit }),
        }
    }

    /// True if the process has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        let ended = !matches!(self.child.try_wait(), Ok(None));
        if ended {
            self.pid = None;
        }
        ended
    }

    /// Asks its process group to end (SIGTERM).
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills its process group (SIGKILL), as a power cut would.
    pub fn kill(&self) {
        self.signal(Signal::USR1);
    }

    /// Takes its standard output, if the command was given [`Stdio::piped`].
    pub fn take_stdout(&mut self) -> Option<tokio::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// Ends when the process does, or at once if it has.
    pub(crate) async fn ended(&mut self) {
        let _status = self.child.wait().await;
        self.pid = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            let _gone_already = kill_process(pid, signal);
        }
    }
}

impl Drop for LabProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads a whole file, lossily, or nothing if it is not there yet.
pub(crate) fn read_from(path: &Path, offset: u64) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(offset))?;
        file.read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_of_another_start_time_is_dead() {
        let this = Owner::current().unwrap();
        assert!(this.is_alive());
        assert!(!Owner { start: this.start + 1, ..this }.is_alive());
        assert_eq!(this.to_string().parse(), Ok(this));
    }

    #[test]
    fn a_failing_helper_says_its_command_and_words() {
        let error = run("ls", &["/nonexistent"]).unwrap_err().to_string();
        assert!(error.contains("`ls /nonexistent` failed"), "{error}");
        assert!(error.contains("No such file"), "{error}");
    }
}
