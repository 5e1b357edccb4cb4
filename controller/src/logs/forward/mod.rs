//! Lines forwarded to `Settings.remote_syslog` (docs/decisions/101-forwarded-logs.md).
//!
//! ```text
//! store() ── the journal, a file ── a task for each receiver ── frames ── the receiver
//!                                     │ lease, position: the database
//! ```
//! | guarantee | by |
//! | --- | --- |
//! | an unreachable receiver delays nothing else | lines wait in the journal, on disk; each receiver has its own task |
//! | the order of each rack's lines is kept | one region process has the lease of a receiver, and one connection |
//! | another process can continue from the same position | the position consists of numbers of spools, which are the same at each region |
//! | missing lines are reported | skipped numbers are counted, and the receiver gets a line that reports them |

mod connection;
mod rfc5424;
mod window;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use basalt_api::kinds::{RemoteSyslog, SettingsSpec};
use basalt_api::values::Uid;
use basalt_db::{LogProgress, Positions, Store};
use basalt_proto::rack_v1::LogLine;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::files::Position;
use super::line::Stored;
use super::{Lines, Logs};
use connection::{Connection, Duplex, connect};
use window::{Batch, Window};

/// Time between two readings of Settings.
const LOOK: Duration = Duration::from_secs(2);
/// Time between two removals of files that all receivers have.
const TRIM: Duration = Duration::from_secs(30);
/// Lease of a receiver: a process that records no progress for this long loses it.
const LEASE: Duration = Duration::from_secs(60);
/// A process stops sending this long after its last renewal, which is before the lease ends.
const RENEWED: Duration = Duration::from_secs(40);
/// Time between two records of progress.
const NOTE: Duration = Duration::from_secs(3);
/// Time between two checks of the window.
const TICK: Duration = Duration::from_secs(1);
/// Pauses before a new connection to a receiver: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(20));
/// Bytes that are written at a time.
const PIECE: usize = 64 << 10;
/// Time limit for the write of one piece.
const STUCK: Duration = Duration::from_secs(20);
/// Time limit for a receiver to read all lines when the region stops.
const DRAIN: Duration = Duration::from_secs(3);
/// Lifetime of cached machine names.
const NAMES: Duration = Duration::from_secs(60);
/// syslog.notice: the priority of the region's own lines.
const OWN_PRIORITY: u32 = 5 * 8 + 5;
/// The program name of the region's own lines.
const OWN_NAME: &str = "basalt-region";

/// Forwards lines to the receivers that Settings name.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) store: Store,
    pub(crate) logs: Logs,
    /// This process, as the owner of leases.
    pub(crate) owner: Uid,
}

/// The task of a receiver. This process may have the receiver's lease.
struct Running {
    receiver: RemoteSyslog,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    async fn end(self) {
        self.stop.send_replace(true);
        let abort = self.task.abort_handle();
        if tokio::time::timeout(DRAIN * 2, self.task).await.is_err() {
            abort.abort();
        }
    }
}

impl Forwarder {
    /// Runs until told to stop.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut running: BTreeMap<String, Running> = BTreeMap::new();
        let (mut look, mut trim) = (tokio::time::interval(LOOK), tokio::time::interval(TRIM));
        loop {
            tokio::select! {
                () = stopped(&mut stop) => break,
                _ = look.tick() => self.follow_settings(&mut running).await,
                _ = trim.tick() => self.trim().await,
            }
        }
        futures_util::future::join_all(running.into_values().map(Running::end)).await;
    }

    /// Stops and starts the tasks of receivers that Settings have changed. If Settings cannot be read, all tasks stay.
    async fn follow_settings(&self, running: &mut BTreeMap<String, Running>) {
        let Ok(settings) = self.store.all("Settings").await else { return };
        let declared = match settings.first().map(|it| serde_json::from_str::<SettingsSpec>(it.spec.get())) {
            Some(Ok(spec)) => spec.remote_syslog,
            Some(Err(_)) => return,
            None => BTreeMap::new(),
        };
        let changed = |(name, it): (&String, &Running)| declared.get(name) != Some(&it.receiver);
        let names: Vec<String> =
            running.iter().filter(|(name, it)| changed((name, it))).map(|it| it.0.clone()).collect();
        for name in names {
            if let Some(it) = running.remove(&name) {
                it.end().await;
            }
        }
        let (logs, forwards) = (self.logs.clone(), !declared.is_empty());
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || logs.set_forwarding(forwards)).await {
            tracing::error!(%error, "the journal of forwarded logs cannot be made or removed; trying again");
            return;
        }
        for (name, receiver) in declared {
            if running.contains_key(&name) {
                continue;
            }
            let (stop, stopped) = watch::channel(false);
            let target = Target {
                store: self.store.clone(),
                logs: self.logs.clone(),
                owner: self.owner,
                name: name.clone(),
                receiver: receiver.clone(),
                names: Names::default(),
                confirmed: Batch::default(),
                unnoted: LogProgress::default(),
                renewed: Instant::now(),
            };
            let task = tokio::spawn(target.run(stopped));
            running.insert(name, Running { receiver, stop, task });
        }
    }

    async fn trim(&self) {
        let positions = async {
            self.store.forget_log_targets().await?;
            self.store.log_positions().await
        };
        match positions.await {
            Ok(positions) => {
                let logs = self.logs.clone();
                if let Ok(Err(error)) = tokio::task::spawn_blocking(move || logs.trim(&positions)).await {
                    tracing::warn!(%error, "forwarded logs cannot be removed from the journal");
                }
            }
            Err(error) => tracing::warn!(%error, "positions of forwarded logs cannot be read"),
        }
    }
}

/// A cache of machine names.
#[derive(Debug, Default)]
struct Names {
    known: HashMap<Uid, Option<String>>,
    since: Option<Instant>,
}

impl Names {
    /// Looks up the names that these lines need. If the database does not answer, the lines are sent without them.
    async fn learn(&mut self, store: &Store, lines: &[(Stored, Position)]) {
        if self.since.is_none_or(|since| since.elapsed() > NAMES) {
            (self.known, self.since) = (HashMap::new(), Some(Instant::now()));
        }
        let mut unknown: Vec<Uid> = lines.iter().filter_map(|(line, _)| line.machine).collect();
        unknown.retain(|uid| !self.known.contains_key(uid));
        unknown.sort_unstable();
        unknown.dedup();
        if unknown.is_empty() {
            return;
        }
        if let Ok(mut names) = store.machine_names(&unknown).await {
            self.known.extend(unknown.into_iter().map(|uid| (uid, names.remove(&uid))));
        }
    }

    fn of(&self, line: &Stored) -> Option<&str> {
        self.known.get(&line.machine?)?.as_deref()
    }
}

/// The reason for which a connection has ended.
enum End {
    /// The receiver's declaration has changed, or the region stops.
    Stopped,
    /// Another process may have claimed the receiver.
    LeaseLost,
    /// One sentence for people.
    Failed(String),
}

/// A receiver, and its progress.
struct Target {
    store: Store,
    logs: Logs,
    owner: Uid,
    name: String,
    receiver: RemoteSyslog,
    names: Names,
    /// The confirmed position: numbers of spools, and the position in the journal of this region.
    confirmed: Batch,
    unnoted: LogProgress,
    /// When the lease was last extended.
    renewed: Instant,
}

impl Target {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            match self.store.claim_log_target(&self.name, self.owner, LEASE).await {
                Ok(Some(positions)) => {
                    self.renewed = Instant::now();
                    self.confirmed = Batch { positions, ..Batch::default() };
                    self.unnoted = LogProgress::default();
                    self.hold(&mut stop).await;
                }
                Ok(None) => pause(NOTE, &mut stop).await,
                Err(error) => {
                    tracing::warn!(receiver = self.name, %error, "the position of a log receiver cannot be read; trying again");
                    pause(NOTE, &mut stop).await;
                }
            }
        }
        if let Err(error) = self.store.release_log_target(&self.name, self.owner).await {
            tracing::warn!(receiver = self.name, %error, "a log receiver was not given back; its lease ends in {} s", LEASE.as_secs());
        }
    }

    /// Forwards while this process has the lease.
    async fn hold(&mut self, stop: &mut watch::Receiver<bool>) {
        let (mut wait, mut is_news) = (PAUSE.0, true);
        loop {
            let connected = tokio::select! {
                connected = connect(&self.store, &self.receiver) => connected,
                () = stopped(stop) => return,
            };
            let before = self.confirmed.lines;
            let end = match connected {
                Ok(connection) => {
                    tracing::info!(
                        receiver = self.name,
                        address = self.receiver.address,
                        "a log receiver takes lines"
                    );
                    is_news = true;
                    match connection {
                        Connection::Stream(stream) => self.stream(stream, stop).await,
                        Connection::Datagrams(socket) => self.datagrams(&socket, stop).await,
                    }
                }
                Err(why) => End::Failed(why),
            };
            let why = match end {
                End::Failed(why) => why,
                End::Stopped | End::LeaseLost => return,
            };
            if std::mem::take(&mut is_news) {
                tracing::warn!(receiver = self.name, why, "a log receiver takes no lines; they wait");
            }
            if self.confirmed.lines > before {
                wait = PAUSE.0;
            }
            if !self.note(Some(why)).await {
                return;
            }
            pause(wait, stop).await;
            if *stop.borrow() {
                return;
            }
            wait = (wait * 2).min(PAUSE.1);
        }
    }

    /// Lines after the confirmed position.
    fn lines(&self) -> Lines {
        self.logs.journal(self.confirmed.position, self.confirmed.positions.clone())
    }

    async fn stream(
        &mut self,
        stream: std::pin::Pin<Box<dyn Duplex>>,
        stop: &mut watch::Receiver<bool>,
    ) -> End {
        let (mut answers, mut sink) = tokio::io::split(stream);
        let (mut lines, mut queue, mut window) = (self.lines(), VecDeque::new(), Window::default());
        let mut last = self.confirmed.positions.clone();
        let mut tick = tokio::time::interval(TICK);
        let mut noted: Option<Instant> = None;
        let mut answer = [0; 1024];
        loop {
            tokio::select! {
                biased;
                () = stopped(stop) => {
                    if drain(&mut sink, &mut answers).await {
                        self.confirm(window.all());
                    }
                    self.note(None).await;
                    return End::Stopped;
                }
                read = answers.read(&mut answer) => match read {
                    Ok(0) => return End::Failed(format!("{} closed the connection", self.receiver.address)),
                    // Syslog has no answers, but some receivers send a greeting.
                    Ok(_) => {}
                    Err(error) => return End::Failed(format!("{} failed: {error}", self.receiver.address)),
                },
                _ = tick.tick() => {
                    self.confirm(window.confirmed(Instant::now()));
                    if noted.is_none_or(|noted| noted.elapsed() >= NOTE) {
                        noted = Some(Instant::now());
                        if !self.note(None).await {
                            return End::LeaseLost;
                        }
                    }
                }
                read = lines.next(), if queue.is_empty() => match read {
                    Ok(read) => {
                        self.names.learn(&self.store, &read).await;
                        queue.extend(read);
                    }
                    Err(error) => return End::Failed(format!("the journal cannot be read: {error}")),
                },
                () = std::future::ready(()), if !queue.is_empty() => {
                    let (frames, batch) = self.piece(&mut queue, &mut last);
                    let written = async {
                        sink.write_all(&frames).await?;
                        sink.flush().await
                    };
                    match tokio::time::timeout(STUCK, written).await {
                        Ok(Ok(())) => {
                            let bytes = u64::try_from(frames.len()).unwrap_or(u64::MAX);
                            window.wrote(bytes, Instant::now(), batch);
                        }
                        Ok(Err(error)) => {
                            return End::Failed(format!("{} failed: {error}", self.receiver.address));
                        }
                        Err(_) => {
                            let seconds = STUCK.as_secs();
                            return End::Failed(format!("{} took nothing for {seconds} s", self.receiver.address));
                        }
                    }
                }
            }
        }
    }

    /// Frames of the first lines in the queue, up to about [`PIECE`] bytes.
    fn piece(&self, queue: &mut VecDeque<(Stored, Position)>, last: &mut Positions) -> (Vec<u8>, Batch) {
        let (mut frames, mut batch) = (Vec::new(), Batch::default());
        while frames.len() < PIECE
            && let Some((line, position)) = queue.pop_front()
        {
            for message in self.messages(&line, position, last, &mut batch) {
                rfc5424::counted(&message, &mut frames);
            }
        }
        (frames, batch)
    }

    /// The message for a line. If lines before it are missing, a message that reports their number comes first.
    fn messages(
        &self,
        line: &Stored,
        position: Position,
        last: &mut Positions,
        batch: &mut Batch,
    ) -> Vec<Vec<u8>> {
        let before = last.insert(line.spool.clone(), line.seq);
        let lost = before.map_or(0, |before| line.seq.saturating_sub(before + 1));
        batch.positions.insert(line.spool.clone(), line.seq);
        batch.lines += 1;
        batch.lost += lost;
        batch.position = position;
        let mut messages = Vec::new();
        if lost > 0 {
            messages.push(rfc5424::message(&missing(lost, line.at), None));
        }
        messages.push(rfc5424::message(line, self.names.of(line)));
        messages
    }

    async fn datagrams(&mut self, socket: &UdpSocket, stop: &mut watch::Receiver<bool>) -> End {
        let mut lines = self.lines();
        let mut last = self.confirmed.positions.clone();
        let mut note = tokio::time::interval(NOTE);
        loop {
            tokio::select! {
                biased;
                () = stopped(stop) => {
                    self.note(None).await;
                    return End::Stopped;
                }
                _ = note.tick() => if !self.note(None).await {
                    return End::LeaseLost;
                },
                read = lines.next() => match read {
                    Ok(read) => {
                        self.names.learn(&self.store, &read).await;
                        for (line, position) in read {
                            let mut batch = Batch::default();
                            for message in self.messages(&line, position, &mut last, &mut batch) {
                                // Ignore the error: it is about an earlier datagram, and losses of datagrams cannot be known anyway.
                                let _ = socket.send(&message).await;
                            }
                            self.confirm(batch);
                        }
                    }
                    Err(error) => return End::Failed(format!("the journal cannot be read: {error}")),
                },
            }
        }
    }

    fn confirm(&mut self, batch: Batch) {
        self.unnoted.forwarded += batch.lines;
        self.unnoted.lost += batch.lost;
        self.unnoted.positions.extend(batch.positions.clone());
        self.confirmed.extend(batch);
    }

    /// Records progress; `failure` is the reason if the receiver accepts no lines. `false`: another process may have claimed the receiver,
    /// so this one must send nothing more.
    async fn note(&mut self, failure: Option<String>) -> bool {
        let (logs, position) = (self.logs.clone(), self.confirmed.position);
        let waiting = tokio::task::spawn_blocking(move || logs.waiting(position)).await;
        if let Ok(Ok(waiting)) = waiting {
            self.unnoted.waiting = waiting;
        }
        self.unnoted.failure = failure;
        match self.store.note_log_progress(&self.name, self.owner, LEASE, &self.unnoted).await {
            Ok(true) => {
                self.renewed = Instant::now();
                self.unnoted = LogProgress::default();
                true
            }
            Ok(false) => false,
            Err(error) => {
                tracing::warn!(receiver = self.name, %error, "how far a log receiver is cannot be noted");
                self.renewed.elapsed() < RENEWED
            }
        }
    }
}

/// Shuts down the region's side of the connection. `true`: the receiver has read everything and has closed its side.
async fn drain(
    sink: &mut (impl AsyncWrite + Unpin),
    answers: &mut (impl tokio::io::AsyncRead + Unpin),
) -> bool {
    let closed = async {
        sink.shutdown().await.ok()?;
        let mut answer = [0; 1024];
        while answers.read(&mut answer).await.ok()? > 0 {}
        Some(())
    };
    matches!(tokio::time::timeout(DRAIN, closed).await, Ok(Some(())))
}

/// Returns when it is time to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // If the sender is gone, the region has ended.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn pause(time: Duration, stop: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = stopped(stop) => {}
    }
}

/// The region's own line about missing lines.
fn missing(lost: u64, at: i64) -> Stored {
    let text = match lost {
        1 => "1 line is missing here: it was removed before this receiver took it".to_owned(),
        lost => format!("{lost} lines are missing here: they were removed before this receiver took them"),
    };
    let line = LogLine {
        at_unix_ms: at,
        priority: OWN_PRIORITY,
        app: OWN_NAME.to_owned(),
        host: OWN_NAME.to_owned(),
        text,
        ..LogLine::default()
    };
    Stored::new("", line)
}
