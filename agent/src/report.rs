//! Progress and log on their way to the rack, beside the work: a rack that does not answer slows nothing down.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use basalt_api::agent::Progress;

use crate::console::LOG_FILE;
use crate::rack::Session;
use crate::say;

/// Most of the log in one request.
const LOG_PART: u64 = 256 * 1024;
/// How often the log is looked at, and how often progress within a stage is sent: each is a TLS handshake, which a slow
/// machine has better use for.
const INTERVAL: Duration = Duration::from_secs(3);

/// Where a task says how far it is. Cheap to call often: within a stage one report every few seconds is sent.
#[derive(Debug)]
pub struct Reporter {
    sender: Option<Sender<Progress>>,
    thread: Option<JoinHandle<()>>,
    seq: u64,
    stage: String,
    began: Instant,
    sent: Instant,
    timings: Vec<(String, f64)>,
}

impl Reporter {
    /// Starts sending.
    #[must_use]
    pub fn new(session: Session) -> Self {
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || deliver(&session, &receiver));
        Self { sender: Some(sender), thread: Some(thread), ..Self::silent() }
    }

    /// Sends nothing; for tests of what reports.
    #[must_use]
    pub fn silent() -> Self {
        let now = Instant::now();
        Self {
            sender: None,
            thread: None,
            seq: 0,
            stage: String::new(),
            began: now,
            sent: now,
            timings: Vec::new(),
        }
    }

    /// Enters a stage.
    pub fn stage(&mut self, stage: &str, percent: u8, message: &str) {
        self.close_stage();
        stage.clone_into(&mut self.stage);
        say!("{stage}: {message}");
        self.send(percent, message);
    }

    /// Says how far the present stage is, unless something was said just now. Answers whether it did.
    pub fn within(&mut self, percent: u8, message: impl FnOnce() -> String) -> bool {
        let due = self.sent.elapsed() >= INTERVAL;
        if due {
            self.send(percent, &message());
        }
        due
    }

    fn send(&mut self, percent: u8, message: &str) {
        self.seq += 1;
        self.sent = Instant::now();
        if let Some(sender) = &self.sender {
            let progress = Progress {
                seq: self.seq,
                stage: self.stage.clone(),
                percent: percent.min(100),
                message: message.to_owned(),
            };
            let _ = sender.send(progress);
        }
    }

    fn close_stage(&mut self) {
        if !self.stage.is_empty() {
            self.timings.push((std::mem::take(&mut self.stage), self.began.elapsed().as_secs_f64()));
        }
        self.began = Instant::now();
    }

    /// Waits until all has been said or refused, and answers the seconds spent in each stage.
    pub fn finish(mut self) -> Vec<(String, f64)> {
        self.close_stage();
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.timings
    }
}

/// The progress of runs that go on at the same time.
#[derive(Debug)]
pub struct Shared<'a> {
    reporter: Mutex<&'a mut Reporter>,
    runs: usize,
    /// The part of the task that they are, in percent.
    progress: (u8, u8),
    ended: AtomicUsize,
}

impl<'a> Shared<'a> {
    /// The progress of so many runs, which are a part of the task.
    #[must_use]
    pub const fn new(reporter: &'a mut Reporter, runs: usize, progress: (u8, u8)) -> Self {
        Self { reporter: Mutex::new(reporter), runs, progress, ended: AtomicUsize::new(0) }
    }

    /// As [`Reporter::within`], of one run, of which a part from 0 to 1 is done. The percentage of several runs counts those that have
    /// ended.
    pub fn within(&self, part: f64, message: impl FnOnce() -> String) -> bool {
        let ended = self.ended.load(Ordering::Relaxed);
        let mut reporter = self.reporter.lock().unwrap_or_else(PoisonError::into_inner);
        if self.runs <= 1 {
            return reporter.within(self.percent(part), message);
        }
        let ended_part = f64::from(u32::try_from(ended).unwrap_or(u32::MAX))
            / f64::from(u32::try_from(self.runs).unwrap_or(u32::MAX));
        reporter.within(self.percent(ended_part), || {
            format!("{ended} of {} runs have ended; {}", self.runs, message())
        })
    }

    fn percent(&self, part: f64) -> u8 {
        let (from, to) = (f64::from(self.progress.0), f64::from(self.progress.1));
        let percent = (from + (to - from) * part).clamp(from, to);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between two numbers of a byte"
        )]
        let percent = percent as u8;
        percent
    }

    /// A run has ended.
    pub fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn deliver(session: &Session, receiver: &Receiver<Progress>) {
    let mut offset = 0;
    loop {
        let mut closed = false;
        match receiver.recv_timeout(INTERVAL) {
            Ok(mut progress) => {
                // Only the latest of several that waited together is news, but a stage must not be skipped.
                while let Ok(next) = receiver.try_recv() {
                    if next.stage != progress.stage {
                        send(session, &progress);
                    }
                    progress = next;
                }
                send(session, &progress);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => closed = true,
        }
        offset += send_log(session, offset);
        if closed {
            return;
        }
    }
}

fn send(session: &Session, progress: &Progress) {
    if let Err(error) = session.progress(progress) {
        say!("progress was not delivered: {error}");
    }
}

/// Sends what the log has gained and answers how many bytes the rack took.
fn send_log(session: &Session, offset: u64) -> u64 {
    let mut bytes = Vec::new();
    let read = File::open(LOG_FILE).and_then(|mut file| {
        file.seek(SeekFrom::Start(offset))?;
        file.take(LOG_PART).read_to_end(&mut bytes)
    });
    let whole = whole_lines(&bytes);
    match read {
        Ok(_) if !whole.is_empty() && session.log(offset, whole).is_ok() => whole.len() as u64,
        _ => 0,
    }
}

/// The bytes up to the end of their last line: the rack keeps lines. A line that is longer than a part is sent in pieces.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    match end {
        0 if bytes.len() as u64 == LOG_PART => bytes,
        end => bytes.get(..end).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_sent_and_what_is_longer_than_a_part_in_pieces() {
        assert_eq!(whole_lines(b"one\ntwo\nth"), b"one\ntwo\n");
        assert_eq!(whole_lines(b"thr"), b"");
        let long = vec![b'x'; usize::try_from(LOG_PART).unwrap()];
        assert_eq!(whole_lines(&long), long);
    }
}
