//! Running the programs of the ephemeral root, each with a deadline.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

use crate::{deadlines, say};

/// Why a program did not do its work.
#[derive(Debug, Error)]
pub enum ToolError {
    /// It could not be started.
    #[error("{program} cannot be started: {source}")]
    Start {
        /// The program.
        program: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It said that it failed.
    #[error("`{command}` failed with {status}: {output}")]
    Failed {
        /// The program and its arguments.
        command: String,
        /// How it ended.
        status: String,
        /// The end of what it said.
        output: String,
    },
    /// It did not end.
    #[error("`{command}` was stopped because it took longer than {limit:?}")]
    TooLong {
        /// The program and its arguments.
        command: String,
        /// The deadline.
        limit: Duration,
    },
}

/// Runs a program to its end and answers its standard output.
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
/// The program's message, or why it did not end by itself.
pub fn run_unlogged(program: &str, args: &[&str], limit: Duration) -> Result<String, String> {
    ended(program, args, b"", limit, program.to_owned()).map_err(|error| match error {
        ToolError::Failed { output, .. } => output,
        other => other.to_string(),
    })
}

/// The end of a program.
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

/// Runs a program to its end. `command` is what errors call it.
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
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    std::thread::scope(|scope| {
        // A program that does not read its input says why on its standard error.
        let writer = scope.spawn(move || stdin.is_some_and(|mut pipe| pipe.write_all(input).is_ok()));
        let out = scope.spawn(move || read_all(stdout));
        let err = scope.spawn(move || read_all(stderr));
        let status = wait_until(&mut child, began + limit);
        let _ = writer.join();
        let out = out.join().unwrap_or_default();
        let err = err.join().unwrap_or_default();
        let status = status.ok_or_else(|| ToolError::TooLong { command: command.to_owned(), limit })?;
        Ok(Ended { code: status.code(), out, err, status })
    })
}

/// Waits for a child's end; kills it at `end` and answers nothing.
fn wait_until(child: &mut Child, end: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                // What it started itself has its output, and would be waited for.
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
                return None;
            }
        }
    }
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last kilobyte, on one line.
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
    fn stops_what_the_program_has_started_too() {
        let began = Instant::now();
        let error = run_with("sh", &["-c", "sleep 60 & wait"], b"", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, ToolError::TooLong { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(30), "the sleeper held its output open");
    }
}
