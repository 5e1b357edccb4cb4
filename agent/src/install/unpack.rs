//! Unpacks the image: streams it from the rack through the hash into tar, without a copy in between.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};

use basalt_api::agent::{BlobRef, FailureCode};
use rustix::process::{Pid, Signal, kill_process};

use crate::blob::BlobReader;
use crate::deadlines;
use crate::failure::Failure;
use crate::http::Client;
use crate::report::Reporter;
use crate::tool::{self, ToolError};

/// tar's option for each compression, by the first bytes of the file.
const COMPRESSIONS: [(&[u8], &str); 4] = [
    (&[0x28, 0xb5, 0x2f, 0xfd], "--zstd"),
    (&[0x1f, 0x8b], "--gzip"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "--xz"),
    (b"BZh", "--bzip2"),
];

/// Unpacks a root tarball into `target`.
///
/// The bytes are unpacked before their hash is known. This is safe because the disk's marker says `writing` until then: a corrupt image
/// fails the task, and the system is never booted.
///
/// # Errors
/// The blob is unavailable or corrupt, or tar fails.
pub(super) fn run(
    client: &Client,
    image: &BlobRef,
    target: &str,
    reporter: &mut Reporter,
) -> Result<(), Failure> {
    let hash = hex::decode(&image.sha256).ok().and_then(|bytes| bytes.try_into().ok());
    let hash: [u8; 32] = hash.ok_or_else(|| {
        Failure::new(
            FailureCode::BadImage,
            format!("'{}' is not a SHA-256 in hexadecimal digits", image.sha256),
        )
    })?;
    let mut blob = BlobReader::new(client, hash);
    let mut first = vec![0; 256 * 1024];
    let length = read(&mut blob, &mut first)?;
    let first = first.get(..length).unwrap_or_default();
    let compression =
        COMPRESSIONS.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, option)| *option);

    let mut command = Command::new("tar");
    command.args(["--extract", "--directory", target, "--numeric-owner", "--same-permissions"]);
    command.args(["--xattrs", "--xattrs-include=*", "--warning=no-timestamp"]);
    command.args(compression);
    let mut tar = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| ToolError::Start { program: "tar".to_owned(), source })?;
    let Some(mut input) = tar.stdin.take() else {
        return Err(Failure::new(FailureCode::Other, "tar has no standard input"));
    };
    let errors = tar.stderr.take().map(|mut pipe| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    // A tar that hangs would block the pipe: stop it when the time is up.
    let (done, watched) = channel::<()>();
    let pid = i32::try_from(tar.id()).ok().and_then(Pid::from_raw);
    let watchdog = std::thread::spawn(move || {
        if watched.recv_timeout(deadlines::UNPACK) == Err(RecvTimeoutError::Timeout)
            && let Some(pid) = pid
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    let fed = feed(&mut blob, first, &mut input, image.size, reporter);
    drop(input);
    if fed.is_err() {
        let _ = tar.kill();
    }
    let ended = end(&mut tar, errors.and_then(|thread| thread.join().ok()).unwrap_or_default());
    drop(done);
    let _ = watchdog.join();
    match fed {
        // After a broken pipe, the error of tar is the useful one.
        Err(Feed::Blob(failure)) => Err(failure),
        Err(Feed::Pipe(error)) => ended.and(Err(Failure::disk("unpacking the image")(error))),
        Ok(()) => ended,
    }
}

enum Feed {
    Blob(Failure),
    Pipe(std::io::Error),
}

fn feed(
    blob: &mut BlobReader<'_>,
    first: &[u8],
    input: &mut ChildStdin,
    size: u64,
    reporter: &mut Reporter,
) -> Result<(), Feed> {
    input.write_all(first).map_err(Feed::Pipe)?;
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let length = read(blob, &mut buffer).map_err(Feed::Blob)?;
        if length == 0 {
            return Ok(());
        }
        input.write_all(buffer.get(..length).unwrap_or_default()).map_err(Feed::Pipe)?;
        let percent = blob.position().saturating_mul(100) / size.max(1);
        let of_task = u8::try_from(10 + percent.min(100) * 65 / 100).unwrap_or(75);
        reporter.within(of_task, || format!("unpacking the image: {percent} %"));
    }
}

fn read(blob: &mut BlobReader<'_>, buffer: &mut [u8]) -> Result<usize, Failure> {
    blob.read(buffer).map_err(|error| {
        blob.take_error().map_or_else(|| Failure::new(FailureCode::BlobUnavailable, error), Failure::from)
    })
}

fn end(tar: &mut Child, errors: String) -> Result<(), Failure> {
    let status =
        tar.wait().map_err(|error| Failure::new(FailureCode::ToolFailed, format!("tar: {error}")))?;
    if status.success() {
        return Ok(());
    }
    let failed = ToolError::Failed {
        command: "tar --extract".to_owned(),
        status: status.to_string(),
        output: tool::tail(&errors),
    };
    Err(failed.into())
}
