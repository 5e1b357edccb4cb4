//! The way from this rack's Squid to the Squid of a region.
//!
//! ```text
//! Squid ── 127.0.0.1 ── the rack ── CONNECT over TLS, with the rack's certificate ── the region ── 127.0.0.1 ── Squid
//! ```
//! Squid asks a port of 127.0.0.1 as its parent. The rack carries each connection to the first linked region that has a
//! proxy. All racks try regions in the same order, so that one region's cache has the files of all. If a region does not
//! answer within half a second, the next one is asked beside it, and the silent one comes last for a minute. Without a
//! region that has a proxy, Squid gets the answer 502 with the reason.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use basalt_proto::{PROXY_AUTHORITY, TUNNELS};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http2::SendRequest;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::http::forward::{self, Regions};

/// The longest wait for the answer of a region, which connects to its Squid first.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a region is waited for alone.
const ALONE: Duration = Duration::from_millis(500);
/// How long a region that did not answer in this time comes after all others.
const LAST: Duration = Duration::from_secs(60);
/// A connection without a byte for this long ends. Squid ends its own idle connections earlier.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// How often to look for a region while Squid asks for nothing.
const LOOK: Duration = Duration::from_secs(60);
/// How often to look while no region has a proxy for this rack.
const REFUSED: Duration = Duration::from_secs(10);
/// How often to look for a link while there is none.
const UNLINKED: Duration = Duration::from_secs(1);
/// How long Squid may take to read the answer of this rack.
const READ: Duration = Duration::from_secs(2);
/// The largest reason of a region, in bytes.
const REASON: usize = 4 << 10;

/// The result of the last attempt to reach the proxy of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// No attempt was made yet.
    Unknown,
    /// The address of the region.
    Through(String),
    /// No region has a proxy for this rack: the reasons.
    Refused(String),
}

/// The proxies of the regions.
#[derive(Debug)]
pub struct RegionProxy {
    regions: Option<Arc<Regions>>,
    reach: watch::Sender<Reach>,
    places: Arc<Semaphore>,
    made: AtomicU64,
    refused: AtomicU64,
    order: Order,
}

/// A port for Squid. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct Door {
    address: SocketAddr,
    _open: DropGuard,
}

impl Door {
    /// The address that Squid asks.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A connection to the Squid of a region. The sender keeps the HTTP/2 connection open.
type Tunnel = (TokioIo<Upgraded>, SendRequest<Body>);

impl RegionProxy {
    /// The proxies of these regions. `None`: this rack has joined no region.
    #[must_use]
    pub fn new(regions: Option<Arc<Regions>>) -> Self {
        let (reach, places) = (watch::Sender::new(Reach::Unknown), Arc::new(Semaphore::new(TUNNELS)));
        Self {
            regions,
            reach,
            places,
            made: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            order: Order::default(),
        }
    }

    /// The result of the last attempt, and its changes.
    #[must_use]
    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    /// Connections since the start, by outcome.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 2] {
        [("made", &self.made), ("refused", &self.refused)]
            .map(|(name, it)| (name, it.load(Ordering::Relaxed)))
    }

    /// Opens a port for Squid.
    ///
    /// # Errors
    /// `io::Error`: no port is free.
    pub async fn open(self: Arc<Self>) -> io::Result<Door> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, stop) = (listener.local_addr()?, CancellationToken::new());
        tokio::spawn(Arc::clone(&self).look(stop.clone()));
        tokio::spawn(self.accept(listener, stop.clone()));
        Ok(Door { address, _open: stop.drop_guard() })
    }

    /// Looks for a region now and then, so that the state is right before a machine asks.
    async fn look(self: Arc<Self>, stop: CancellationToken) {
        let all = async {
            loop {
                let is_reached = self.dial().await.is_ok();
                let is_any_linked = self.regions.as_ref().is_some_and(|it| it.is_any_linked());
                let pause = match is_reached {
                    true => LOOK,
                    false if is_any_linked => REFUSED,
                    false => UNLINKED,
                };
                tokio::time::sleep(pause).await;
            }
        };
        stop.run_until_cancelled(all).await;
    }

    async fn accept(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((squid, _)) = accepted else {
                // There are no file descriptors left: wait for other connections to close.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (this, stop) = (Arc::clone(&self), stop.clone());
            tokio::spawn(async move { stop.run_until_cancelled(this.carry(squid)).await });
        }
    }

    /// Carries one connection of Squid to a region.
    async fn carry(&self, mut squid: TcpStream) {
        let place = tokio::time::timeout(ANSWER, self.places.acquire()).await;
        let reached = match place {
            Ok(Ok(_)) => self.dial().await,
            _ => Err(format!("{TUNNELS} connections to regions are open already")),
        };
        let count = if reached.is_ok() { &self.made } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
        let ended = match reached {
            Ok((region, _connection)) => basalt_proxy::relay(squid, region, IDLE).await,
            Err(reason) => refuse(&mut squid, &reason).await,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection to the proxy of a region ended early");
        }
        drop(place);
    }

    /// Connects to the first linked region that has a proxy.
    async fn dial(&self) -> Result<Tunnel, String> {
        let result = self.first().await;
        let reach = match &result {
            Ok((region, _)) => Reach::Through(region.clone()),
            Err(reason) => Reach::Refused(reason.clone()),
        };
        self.reach.send_if_modified(|told| {
            let is_news = *told != reach;
            *told = reach;
            is_news
        });
        result.map(|(_, tunnel)| tunnel)
    }

    async fn first(&self) -> Result<(String, Tunnel), String> {
        let regions = self.regions.as_ref().ok_or("this rack has joined no region")?;
        let config = regions.tls().map_err(|error| error.to_string())?;
        let dial = |region: String| {
            let config = Arc::clone(&config);
            async move {
                let mut sender = forward::open(&region, config).await.map_err(|it| it.to_string())?;
                let answered = tokio::time::timeout(ANSWER, connect(&mut sender)).await;
                let stream = answered.map_err(|_| format!("no answer within {} s", ANSWER.as_secs()))??;
                Ok::<_, String>((TokioIo::new(stream), sender))
            }
        };
        self.order.first(regions.linked().await, dial).await
    }
}

/// The order in which regions are asked.
#[derive(Debug)]
struct Order {
    alone: Duration,
    last: Duration,
    /// Regions that did not answer in time, and when.
    silent: Mutex<HashMap<String, Instant>>,
}

impl Default for Order {
    fn default() -> Self {
        Self { alone: ALONE, last: LAST, silent: Mutex::default() }
    }
}

impl Order {
    /// The first of these regions that accepts. A region that takes longer than [`ALONE`] is asked beside the next one.
    ///
    /// # Errors
    /// The reasons of all regions, as text.
    async fn first<T, F>(
        &self,
        regions: Vec<String>,
        dial: impl Fn(String) -> F,
    ) -> Result<(String, T), String>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        let mut next = self.sorted(regions).into_iter();
        let (mut asked, mut waited_for, mut refused) = (JoinSet::new(), Vec::new(), Vec::new());
        loop {
            if let Some(region) = next.next() {
                let dialled = dial(region.clone());
                waited_for.push(region.clone());
                asked.spawn(async move { (region, dialled.await) });
            }
            let ended = match next.len() {
                0 => asked.join_next().await,
                _ => match tokio::time::timeout(self.alone, asked.join_next()).await {
                    Ok(ended) => ended,
                    Err(_) => continue,
                },
            };
            match ended {
                Some(Ok((region, Ok(it)))) => {
                    let before = waited_for.into_iter().take_while(|it| *it != region);
                    self.note(before.collect());
                    return Ok((region, it));
                }
                Some(Ok((region, Err(reason)))) => {
                    waited_for.retain(|it| *it != region);
                    refused.push(format!("region {region}: {reason}"));
                }
                Some(Err(error)) => refused.push(error.to_string()),
                None if refused.is_empty() => return Err("no region is linked".to_owned()),
                None => return Err(refused.join("; ")),
            }
        }
    }

    /// Silent regions last, and otherwise in the given order.
    fn sorted(&self, mut regions: Vec<String>) -> Vec<String> {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.retain(|_, at| at.elapsed() < self.last);
        regions.sort_by_key(|region| silent.contains_key(region));
        regions
    }

    fn note(&self, silent: Vec<String>) {
        let now = Instant::now();
        let mut all = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(silent.into_iter().map(|region| (region, now)));
    }
}

/// Asks a region for a connection to its Squid (RFC 9113 §8.5).
async fn connect(sender: &mut SendRequest<Body>) -> Result<Upgraded, String> {
    let request = Request::builder().method(Method::CONNECT).uri(PROXY_AUTHORITY).body(Body::empty());
    let request = request.map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    if answer.status() == StatusCode::OK {
        return hyper::upgrade::on(answer).await.map_err(|error| error.to_string());
    }
    let status = answer.status();
    let body = Limited::new(answer.into_body(), REASON).collect().await.map(|it| it.to_bytes());
    let reason = body.map(|it| String::from_utf8_lossy(&it).into_owned()).unwrap_or_default();
    Err(if reason.is_empty() { format!("it answered {status}") } else { reason })
}

/// Answers Squid, and reads its request meanwhile: a connection with unread bytes would be reset, and the answer lost.
async fn refuse(squid: &mut TcpStream, reason: &str) -> io::Result<()> {
    let (mut from, mut to) = squid.split();
    to.write_all(answer(reason).as_bytes()).await?;
    to.shutdown().await?;
    tokio::time::timeout(READ, tokio::io::copy(&mut from, &mut tokio::io::sink())).await??;
    Ok(())
}

/// The answer for Squid. Squid asks its next parent, or the server, if it may, and passes the answer on otherwise.
fn answer(reason: &str) -> String {
    let body = format!("no region has a proxy for this rack: {reason}\n");
    let length = body.len();
    format!(
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two regions, of which the second one accepts at once. Returns the region that accepted, and the time.
    async fn ask(order: &Order, first: Option<Result<(), String>>) -> (String, Duration) {
        let regions = ["a:5250", "b:5250"].map(str::to_owned);
        let dial = |region: String| {
            let first = first.clone();
            async move {
                match (region.as_str(), first) {
                    ("a:5250", Some(answer)) => answer,
                    ("a:5250", None) => std::future::pending().await,
                    _ => Ok(()),
                }
            }
        };
        let began = Instant::now();
        let (region, ()) = order.first(regions.into(), dial).await.unwrap();
        (region, began.elapsed())
    }

    #[tokio::test]
    async fn a_region_that_is_silent_delays_one_connection_for_a_moment_and_the_next_ones_not() {
        let order = Order { alone: Duration::from_secs(1), ..Order::default() };
        let is_soon = |(region, time): (String, Duration)| (region, time < order.alone);
        let soon = |region: &str| (region.to_owned(), true);
        assert_eq!(is_soon(ask(&order, Some(Ok(()))).await), soon("a:5250"), "the first counts");
        assert_eq!(is_soon(ask(&order, Some(Err("no proxy".to_owned()))).await), soon("b:5250"));
        assert_eq!(is_soon(ask(&order, None).await), ("b:5250".to_owned(), false));
        assert_eq!(is_soon(ask(&order, None).await), soon("b:5250"));
        // Later it is the first one again: one region's cache has the files of all racks.
        let order = Order { last: Duration::ZERO, ..order };
        assert_eq!(ask(&order, Some(Ok(()))).await.0, "a:5250");
    }

    #[tokio::test]
    async fn the_reasons_of_all_regions_are_told() {
        let regions = || ["a:5250", "b:5250"].map(str::to_owned).into();
        let dial = |region: String| async move { Err::<(), _>(format!("{region} is full")) };
        let refused = Order::default().first(regions(), dial).await.unwrap_err();
        assert_eq!(refused, "region a:5250: a:5250 is full; region b:5250: b:5250 is full");
        let none = Order::default().first(Vec::new(), dial).await.unwrap_err();
        assert_eq!(none, "no region is linked");
    }
}
