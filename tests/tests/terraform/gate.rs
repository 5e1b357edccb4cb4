//! A proxy between provider and region that can hold a write.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::world::COMMAND;

const BUFFER: usize = 64 << 10;

/// The point at which a write is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The region has not received the write.
    Request,
    /// The region has executed the write, but the provider has no answer.
    Answer,
}

/// A held write. Dropped without [`Held::go_on`], it is lost together with its connection.
pub(crate) struct Held(oneshot::Sender<()>);

impl Held {
    pub(crate) fn go_on(self) {
        // The connection may have ended with the provider.
        let _ = self.0.send(());
    }
}

/// The next write to hold.
struct Point {
    /// Number of writes that pass first.
    before: u64,
    at: At,
    reached: oneshot::Sender<Held>,
}

impl Point {
    async fn hold(self) -> io::Result<()> {
        let (go_on, goes_on) = oneshot::channel();
        // If the test no longer waits for it, the write continues.
        if let Err(Held(go_on)) = self.reached.send(Held(go_on)) {
            let _ = go_on.send(());
        }
        goes_on.await.map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }
}

type Next = Arc<Mutex<Option<Point>>>;

/// The number of current requests, its highest value, and all requests.
#[derive(Debug, Default)]
struct Traffic {
    now: AtomicUsize,
    most: AtomicUsize,
    asked: Mutex<Vec<String>>,
}

impl Traffic {
    /// Records the request if the bytes begin one, as `GET /api/v1/zones`.
    fn remember(&self, bytes: &[u8]) {
        let line = first_line(bytes);
        if let Some((request, "HTTP/1.1")) = line.rsplit_once(' ') {
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(request.to_owned());
        }
    }
}

fn first_line(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    String::from_utf8_lossy(line).into_owned()
}

/// A request in progress.
struct UnderWay(Arc<Traffic>);

impl UnderWay {
    fn new(traffic: &Arc<Traffic>) -> Self {
        let now = traffic.now.fetch_add(1, Ordering::Relaxed) + 1;
        traffic.most.fetch_max(now, Ordering::Relaxed);
        Self(Arc::clone(traffic))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The proxy. Dropping it ends every connection.
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    next: Next,
    traffic: Arc<Traffic>,
    /// Number of refused connections while the gate is shut; `None` while it is open.
    shut: watch::Sender<Option<u64>>,
    task: JoinHandle<()>,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Gate {
    pub(crate) async fn before(region: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, next) = (listener.local_addr().expect("an address"), Next::default());
        let (of_connections, traffic) = (Arc::clone(&next), Arc::<Traffic>::default());
        let counter = Arc::clone(&traffic);
        let shut = watch::Sender::new(None);
        let is_shut = shut.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let turned_away = is_shut.send_if_modified(|turned_away| match turned_away {
                    Some(times) => {
                        *times += 1;
                        true
                    }
                    None => false,
                });
                if turned_away {
                    continue;
                }
                let (next, traffic) = (Arc::clone(&of_connections), Arc::clone(&counter));
                let mut ends = is_shut.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        passed = pass(client, region, next, traffic) => passed.unwrap_or_default(),
                        _ = ends.wait_for(Option::is_some) => {}
                    }
                });
            }
        });
        Self { address, next, traffic, shut, task }
    }

    /// The highest number of simultaneous requests.
    pub(crate) fn most_at_once(&self) -> usize {
        self.traffic.most.load(Ordering::Relaxed)
    }

    /// The requests since the last call, as `GET /api/v1/zones`.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.traffic.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends every connection, and refuses this number of new ones before it opens again.
    pub(crate) async fn shut_for(&self, connections: u64) {
        self.shut.send_replace(Some(0));
        let mut turned_away = self.shut.subscribe();
        let enough = turned_away.wait_for(|times| times.is_some_and(|times| times >= connections));
        tokio::time::timeout(COMMAND, enough).await.expect("it is tried again and again").expect("a gate");
        self.shut.send_replace(None);
    }

    /// Holds the write after `before` others. The receiver gets it once it is held.
    pub(crate) fn hold(&self, before: u64, at: At) -> oneshot::Receiver<Held> {
        let (reached, held) = oneshot::channel();
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(Point { before, at, reached });
        held
    }
}

/// One connection; its requests follow one another (RFC 9112 §9.3).
async fn pass(
    mut client: TcpStream,
    region: SocketAddr,
    next: Next,
    traffic: Arc<Traffic>,
) -> io::Result<()> {
    let mut region = TcpStream::connect(region).await?;
    let (mut asked, mut answered) = (vec![0; BUFFER], vec![0; BUFFER]);
    let (mut answer, mut under_way) = (None, None);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let asked = &asked[..read?];
                if asked.is_empty() {
                    return Ok(());
                }
                under_way.get_or_insert_with(|| UnderWay::new(&traffic));
                traffic.remember(asked);
                match reached(asked, &next) {
                    Some(point) if point.at == At::Request => point.hold().await?,
                    Some(point) => answer = Some(point),
                    None => {}
                }
                region.write_all(asked).await?;
            }
            read = region.read(&mut answered) => {
                let answered = &answered[..read?];
                if answered.is_empty() {
                    return Ok(());
                }
                if let Some(point) = answer.take() {
                    point.hold().await?;
                }
                under_way = None;
                client.write_all(answered).await?;
            }
        }
    }
}

/// The point, if these bytes begin the write to hold.
fn reached(bytes: &[u8], next: &Next) -> Option<Point> {
    let line = first_line(bytes);
    let is_rename = line.starts_with("POST /") && line.contains("/rename");
    let is_write = line.starts_with("PUT /") || line.starts_with("DELETE /") || is_rename;
    let is_write = is_write && !line.contains("dry_run=true");
    let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
    let point = next.as_mut().filter(|_| is_write)?;
    match point.before.checked_sub(1) {
        Some(before) => {
            point.before = before;
            None
        }
        None => next.take(),
    }
}
