//! Sends progress and log to the rack on a separate thread, so that a slow rack does not delay the work.

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

/// Most bytes of the log in one request.
const LOG_PART: u64 = 256 * 1024;
/// Interval at which the log is read, and shortest interval between progress reports of one stage. Each costs a TLS handshake, which slows
/// a slow machine.
const INTERVAL: Duration = Duration::from_secs(3);
/// Longest time to send the rest of the log at the end of a task.
const REST: Duration = Duration::from_secs(60);

/// Collects the progress of a task. Calls are cheap: within a stage it sends one report every few seconds.
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
    /// Starts the thread that sends reports.
    #[must_use]
    pub fn new(session: Session) -> Self {
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || deliver(&session, &receiver));
        Self { sender: Some(sender), thread: Some(thread), ..Self::silent() }
    }

    /// A reporter that sends nothing, for tests.
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

    /// Begins a stage and reports it.
    pub fn stage(&mut self, stage: &str, percent: u8, message: &str) {
        self.close_stage();
        stage.clone_into(&mut self.stage);
        say!("{stage}: {message}");
        self.send(percent, message);
    }

    /// Reports progress within the present stage, unless a report was sent within the last 3 s. True if it was reported.
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

    /// Waits until all reports were sent or refused. Returns the seconds spent in each stage.
    pub fn finish(mut self) -> Vec<(String, f64)> {
        self.close_stage();
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.timings
    }
}

/// The progress of runs at the same time.
#[derive(Debug)]
pub struct Shared<'a> {
    reporter: Mutex<&'a mut Reporter>,
    runs: usize,
    /// The range of the task's progress that these runs cover, in percent.
    progress: (u8, u8),
    ended: AtomicUsize,
}

impl<'a> Shared<'a> {
    /// The progress of this number of runs, which cover the range `progress` of the task.
    #[must_use]
    pub const fn new(reporter: &'a mut Reporter, runs: usize, progress: (u8, u8)) -> Self {
        Self { reporter: Mutex::new(reporter), runs, progress, ended: AtomicUsize::new(0) }
    }

    /// The same as [`Reporter::within`] for one run, of which `part` (0 to 1) is done. With several runs, the percentage counts those that
    /// have ended.
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

    /// Counts a run that has ended.
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
                // If several reports are waiting, only the latest is sent. But no stage is skipped.
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
            send_rest(session, offset);
            return;
        }
    }
}

/// Sends the rest of the log, until the rack refuses a part.
fn send_rest(session: &Session, mut offset: u64) {
    let end = Instant::now() + REST;
    loop {
        let sent = send_log(session, offset);
        offset += sent;
        if sent == 0 || Instant::now() >= end {
            return;
        }
    }
}

fn send(session: &Session, progress: &Progress) {
    if let Err(error) = session.progress(progress) {
        say!("progress was not delivered: {error}");
    }
}

/// Sends new bytes of the log. Returns the number of bytes that the rack accepted.
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

/// The bytes up to the end of their last line, since the rack stores lines. A line longer than a part is sent in pieces.
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
