//! Runs programs of the ephemeral root, each with a time limit.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

use crate::{deadlines, say};

/// Time that processes left by a program may keep its output open.
pub(crate) const LEFT_BEHIND: Duration = Duration::from_secs(5);

/// The reason why a program failed.
#[derive(Debug, Error)]
pub enum ToolError {
    /// The program could not be started.
    #[error("{program} cannot be started: {source}")]
    Start {
        /// Name of the program.
        program: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The program ended with a failure.
    #[error("`{command}` failed with {status}: {output}")]
    Failed {
        /// The program and its arguments.
        command: String,
        /// The exit status.
        status: String,
        /// The end of the output.
        output: String,
    },
    /// The program did not end in time.
    #[error("`{command}` was stopped because it took longer than {limit:?}")]
    TooLong {
        /// The program and its arguments.
        command: String,
        /// The time limit.
        limit: Duration,
    },
}

/// Runs a program and waits for its end. Returns its standard output.
///
/// # Errors
/// It cannot be started, fails, or exceeds [`deadlines::TOOL`].
pub fn run(program: &str, args: &[&str]) -> Result<String, ToolError> {
    run_with(program, args, b"", deadlines::TOOL)
}

/// Runs a program inside another root.
///
/// # Errors
/// It cannot be started, fails, or exceeds `limit`.
pub fn run_in(root: &str, program: &str, args: &[&str], limit: Duration) -> Result<String, ToolError> {
    let mut all = vec![root, program];
    all.extend_from_slice(args);
    run_with("chroot", &all, b"", limit)
}

/// Runs a program with `input` on its standard input.
///
/// # Errors
/// It cannot be started, fails, or exceeds `limit`.
pub fn run_with(program: &str, args: &[&str], input: &[u8], limit: Duration) -> Result<String, ToolError> {
    let began = Instant::now();
    let command = format!("{program} {}", args.join(" "));
    let out = ended(program, args, input, limit, command.clone())?;
    say!("{command}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(out)
}

/// Runs a program whose arguments are secret: neither log nor error names them.
///
/// # Errors
/// The program's message, or the reason why it did not run to its end.
pub fn run_unlogged(program: &str, args: &[&str], limit: Duration) -> Result<String, String> {
    ended(program, args, b"", limit, program.to_owned()).map_err(|error| match error {
        ToolError::Failed { output, .. } => output,
        other => other.to_string(),
    })
}

/// The result of a program.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; absent: a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    status: ExitStatus,
}

/// Runs a program to its end, for programs whose exit status is an answer.
///
/// # Errors
/// It cannot be started, or exceeds `limit`.
pub fn answer(program: &str, args: &[&str], limit: Duration) -> Result<Ended, ToolError> {
    finish(program, args, b"", limit, &format!("{program} {}", args.join(" ")))
}

/// Runs a program and waits for its end. `command` is its name in errors.
fn ended(
    program: &str,
    args: &[&str],
    input: &[u8],
    limit: Duration,
    command: String,
) -> Result<String, ToolError> {
    let Ended { out, err, status, .. } = finish(program, args, input, limit, &command)?;
    match status.success() {
        true => Ok(out),
        false => Err(ToolError::Failed {
            command,
            status: status.to_string(),
            output: tail(if err.trim().is_empty() { &out } else { &err }),
        }),
    }
}

fn finish(
    program: &str,
    args: &[&str],
    input: &[u8],
    limit: Duration,
    command: &str,
) -> Result<Ended, ToolError> {
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| ToolError::Start { program: program.to_owned(), source })?;
    if let Some(mut pipe) = child.stdin.take() {
        let input = input.to_vec();
        // A program that does not read its input reports the reason on its standard error, so a failed write is ignored.
        std::thread::spawn(move || pipe.write_all(&input));
    }
    let (out, err) = (Output::of(child.stdout.take()), Output::of(child.stderr.take()));
    let status = wait_until(&mut child, began + limit);
    let end = Instant::now() + LEFT_BEHIND;
    let (out, err) = (out.until(end), err.until(end));
    let status = status.ok_or_else(|| ToolError::TooLong { command: command.to_owned(), limit })?;
    Ok(Ended { code: status.code(), out, err, status })
}

/// Waits for a child's end. At `end`, kills the child and returns `None`.
fn wait_until(child: &mut Child, end: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                // Kill the whole process group: child processes hold the output open, and the reader would wait for them.
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                reap(child);
                return None;
            }
        }
    }
}

/// Collects the exit status of a child that was killed. A child that waits in the kernel for a broken disk may never end.
pub(crate) fn reap(child: &mut Child) {
    let end = Instant::now() + LEFT_BEHIND;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The output of a program, read by a thread of its own.
struct Output {
    read: Arc<Mutex<Vec<u8>>>,
    /// Disconnected at the end of the output.
    open: Receiver<()>,
}

impl Output {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let read = Arc::<Mutex<Vec<u8>>>::default();
        let (is_open, open) = channel();
        if let Some(mut pipe) = pipe {
            let into = Arc::clone(&read);
            std::thread::spawn(move || {
                let mut part = vec![0; 64 << 10];
                while let Ok(length @ 1..) = pipe.read(&mut part) {
                    let read = part.get(..length).unwrap_or_default();
                    into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(read);
                }
                drop(is_open);
            });
        }
        Self { read, open }
    }

    /// The whole output, or the part that was read until `end`: a daemon that the program left may keep its output open for ever.
    fn until(self, end: Instant) -> String {
        let _: Result<(), RecvTimeoutError> =
            self.open.recv_timeout(end.saturating_duration_since(Instant::now()));
        let bytes = std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The last kilobyte of a text, on one line.
#[must_use]
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let joined = lines.join("; ");
    let skip = joined.chars().count().saturating_sub(1000);
    joined.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_the_output_of_a_program_that_read_its_input() {
        assert_eq!(run_with("cat", &[], b"three disks", deadlines::TOOL).unwrap(), "three disks");
    }

    #[test]
    fn says_which_program_failed_and_why() {
        let error = run("sh", &["-c", "echo no such disk >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("no such disk"), "{error}");
        let error = run("basalt-no-such-program", &[]).unwrap_err().to_string();
        assert!(error.starts_with("basalt-no-such-program cannot be started"), "{error}");
    }

    #[test]
    fn stops_a_program_at_its_deadline() {
        let error = run_with("sleep", &["60"], b"", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, ToolError::TooLong { .. }), "{error}");
    }

    #[test]
    fn a_daemon_that_keeps_the_output_open_does_not_hold_up_the_task() {
        let began = Instant::now();
        let daemon = "setsid sh -c 'echo $$ >&2; exec sleep 60' & sleep 0.1; echo ready";
        let ended = answer("sh", &["-c", daemon], deadlines::TOOL).unwrap();
        assert_eq!(ended.out, "ready\n");
        let daemon = Pid::from_raw(ended.err.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(daemon, Signal::KILL).unwrap();
        assert!(began.elapsed() < Duration::from_secs(30), "the daemon held its output open");
    }

    #[test]
    fn stops_what_the_program_has_started_too() {
        let began = Instant::now();
        let error = run_with("sh", &["-c", "sleep 60 & wait"], b"", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, ToolError::TooLong { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(30), "the sleeper held its output open");
    }
}
