//! A gate between provider and region: everything passes, until a write is held.

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

/// Where a write is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The region has not heard of it.
    Request,
    /// The region has done it, and the provider does not know.
    Answer,
}

/// A write that is held. Without [`Held::go_on`] it is lost, and its connection with it.
pub(crate) struct Held(oneshot::Sender<()>);

impl Held {
    pub(crate) fn go_on(self) {
        // Nobody waits any more where the provider is gone.
        let _ = self.0.send(());
    }
}

/// The write that will be held.
struct Point {
    /// How many writes pass before it.
    before: u64,
    at: At,
    reached: oneshot::Sender<Held>,
}

impl Point {
    async fn hold(self) -> io::Result<()> {
        let (go_on, goes_on) = oneshot::channel();
        // Whoever no longer looks lets it go on.
        if let Err(Held(go_on)) = self.reached.send(Held(go_on)) {
            let _ = go_on.send(());
        }
        goes_on.await.map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }
}

type Next = Arc<Mutex<Option<Point>>>;

/// How many requests are under way, how many ever were at once, and which there were.
#[derive(Debug, Default)]
struct Traffic {
    now: AtomicUsize,
    most: AtomicUsize,
    asked: Mutex<Vec<String>>,
}

impl Traffic {
    /// Remembers the request that these bytes begin, if they begin one: `GET /api/v1/zones`.
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

/// A request that is under way.
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

/// It is gone when it is dropped, and every connection with it.
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    next: Next,
    traffic: Arc<Traffic>,
    /// How many connections were turned away since it was shut; none while it is open.
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

    /// How many requests were under way at once, at most.
    pub(crate) fn most_at_once(&self) -> usize {
        self.traffic.most.load(Ordering::Relaxed)
    }

    /// What was asked since this was called last, as `GET /api/v1/zones`.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.traffic.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends every connection, and turns away so many before it opens again.
    pub(crate) async fn shut_for(&self, connections: u64) {
        self.shut.send_replace(Some(0));
        let mut turned_away = self.shut.subscribe();
        let enough = turned_away.wait_for(|times| times.is_some_and(|times| times >= connections));
        tokio::time::timeout(COMMAND, enough).await.expect("it is tried again and again").expect("a gate");
        self.shut.send_replace(None);
    }

    /// The write behind so many others, once it is held.
    pub(crate) fn hold(&self, before: u64, at: At) -> oneshot::Receiver<Held> {
        let (reached, held) = oneshot::channel();
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(Point { before, at, reached });
        held
    }
}

/// One connection; requests on it follow one another (RFC 9112 §9.3).
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

/// The point, if this begins the write that it is at.
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
