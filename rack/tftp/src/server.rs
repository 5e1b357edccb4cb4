//! The shell: sockets, tasks and files around [`Transfer`].
//!
//! Every address has its own listening socket. Every transfer has a socket bound to the address that the request came
//! to: a client drops blocks from another address (RFC 1350 §4). Datagrams from other hosts to a transfer's port go to
//! a second socket, so they cannot disturb the transfer; they are answered with ERROR 5. A slow file delays no other
//! transfer.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::packet::{ErrorCode, MAX_REQUEST, Packet};
use crate::request::{Decision, ReadRequest, decide};
use crate::transfer::Action;
use crate::{Admission, Busy, Caps, Limits, Negotiated, Outcome, Transfer};

/// The pause after a listening socket failed, so that a lasting failure does not use all of a processor.
const RECEIVE_PAUSE: Duration = Duration::from_millis(100);

/// A source of files.
pub trait FileSource: Send + Sync + 'static {
    /// The whole content of a file. `path` is relative and cannot lead out of a directory it is joined to. A source
    /// should share one [`Bytes`] between transfers; it stays in memory while any of them runs.
    ///
    /// # Errors
    /// [`OpenError`] becomes the ERROR that the client is sent.
    fn open(&self, path: &str, client: SocketAddr) -> impl Future<Output = Result<Bytes, OpenError>> + Send;
}

/// Why a file cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is no such file.
    #[error("file not found")]
    NotFound,
    /// The file exists, but is not available now. The log and the client both get the reason.
    #[error("{0}")]
    Unavailable(String),
}

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The greatest option values that clients are granted.
    pub caps: Caps,
    /// The smallest MTU of the clients' links, in bytes.
    pub mtu: u16,
    /// The most transfers that may run.
    pub limits: Limits,
    /// The longest time for [`FileSource::open`].
    pub open_timeout: Duration,
    /// The counters to update.
    pub counters: Arc<Counters>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            caps: Caps::default(),
            mtu: 1500,
            limits: Limits::default(),
            open_timeout: Duration::from_secs(5),
            counters: Arc::default(),
        }
    }
}

/// Totals since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Files that were delivered completely.
    pub completed: AtomicU64,
    /// Requests that only asked for the size.
    pub probed: AtomicU64,
    /// Transfers that the client ended.
    pub aborted: AtomicU64,
    /// Transfers whose client stopped answering or disappeared.
    pub lost: AtomicU64,
    /// Requests answered with an ERROR.
    pub refused: AtomicU64,
    /// Requests dropped at a limit.
    pub busy: AtomicU64,
    /// Bytes of files that were acknowledged.
    pub bytes: AtomicU64,
    /// Datagrams sent more than once.
    pub retransmissions: AtomicU64,
}

/// An event that the server reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A transfer ended.
    Finished {
        /// The client's address and port.
        client: SocketAddr,
        /// The path of the file, cleaned.
        path: String,
        /// Its size in bytes on the wire.
        size: usize,
        /// Bytes of it that the client acknowledged.
        acknowledged: u64,
        /// The way it ended.
        outcome: Outcome,
        /// How long it took.
        took: Duration,
    },
    /// A request was answered with an ERROR.
    Refused {
        /// The client's address and port.
        client: SocketAddr,
        /// The file, as it was asked for.
        file: String,
        /// The error code in the answer.
        code: ErrorCode,
        /// The message in the answer.
        message: String,
    },
    /// A request was dropped at a limit; the client asks again.
    Dropped {
        /// The client's address and port.
        client: SocketAddr,
        /// The limit that was reached.
        limit: Busy,
    },
}

struct Shared<F> {
    files: F,
    settings: Settings,
    observe: Box<dyn Fn(Event) + Send + Sync>,
    admission: Mutex<Admission>,
}

/// A place in [`Admission`]. Dropping it gives the place back, however the transfer ends.
struct Slot<F: FileSource> {
    shared: Arc<Shared<F>>,
    client: IpAddr,
}

impl<F: FileSource> Drop for Slot<F> {
    fn drop(&mut self) {
        self.shared.admission.lock().unwrap_or_else(PoisonError::into_inner).release(self.client);
    }
}

/// Serves on sockets that are each bound to one address, until `shutdown`; running transfers end with it. `observe` is
/// called for every event, in the task where it happened, so it must not block.
///
/// # Errors
/// A socket is bound to the wildcard address, so that the source of replies would be the kernel's choice.
pub async fn serve<F: FileSource>(
    sockets: Vec<UdpSocket>,
    files: F,
    settings: Settings,
    observe: impl Fn(Event) + Send + Sync + 'static,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let admission = Mutex::new(Admission::new(settings.limits));
    let shared = Arc::new(Shared { files, settings, observe: Box::new(observe), admission });
    let mut listeners = JoinSet::new();
    for socket in sockets {
        let local = socket.local_addr()?;
        if local.ip().is_unspecified() {
            let message = format!(
                "TFTP socket {local} is bound to every address; bind one socket to each address served"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        info!(%local, "serving TFTP");
        listeners.spawn(listen(socket, local, shared.clone()));
    }
    shutdown.await;
    listeners.shutdown().await;
    Ok(())
}

async fn listen<F: FileSource>(socket: UdpSocket, local: SocketAddr, shared: Arc<Shared<F>>) {
    let mut transfers = JoinSet::new();
    // One byte longer than the longest request, so that a longer one is detected.
    let mut buffer = [0; MAX_REQUEST + 1];
    loop {
        let (len, client) = tokio::select! {
            received = socket.recv_from(&mut buffer) => match received {
                Ok(received) => received,
                Err(error) => {
                    warn!(%local, %error, "cannot receive TFTP requests");
                    tokio::time::sleep(RECEIVE_PAUSE).await;
                    continue;
                }
            },
            Some(_) = transfers.join_next() => continue,
        };
        match decide(buffer.get(..len).unwrap_or_default()) {
            Decision::Ignore => debug!(%client, len, "not a TFTP request"),
            Decision::Refuse { file, code, message } => {
                // If the ERROR is lost, the client repeats its request, as after a lost request.
                let _ = socket.send_to(&Packet::error(code, message), client).await;
                shared.refused(client, file, code, message.to_owned());
            }
            Decision::Read(request) => {
                let admitted =
                    shared.admission.lock().unwrap_or_else(PoisonError::into_inner).admit(client.ip());
                match admitted {
                    Ok(()) => {
                        let slot = Slot { shared: shared.clone(), client: client.ip() };
                        transfers.spawn(transfer(slot, local.ip(), client, request));
                    }
                    Err(limit) => {
                        warn!(%client, %limit, "TFTP request dropped");
                        shared.settings.counters.busy.fetch_add(1, Ordering::Relaxed);
                        (shared.observe)(Event::Dropped { client, limit });
                    }
                }
            }
        }
    }
}

async fn transfer<F: FileSource>(slot: Slot<F>, local: IpAddr, client: SocketAddr, request: ReadRequest) {
    let shared = &slot.shared;
    let (socket, strays) = match open(local, client).await {
        Ok(sockets) => sockets,
        Err(error) => {
            warn!(%client, %local, %error, "cannot open a socket for a TFTP transfer");
            return;
        }
    };
    let began = Instant::now();
    let opened =
        tokio::time::timeout(shared.settings.open_timeout, shared.files.open(&request.path, client)).await;
    let opened =
        opened.unwrap_or_else(|_| Err(OpenError::Unavailable("the file cannot be read now".to_owned())));
    let too_long = || OpenError::Unavailable("too long for netascii; ask for it as octet".to_owned());
    let content = match opened.and_then(|content| request.mode.encode(content).ok_or_else(too_long)) {
        Ok(content) => content,
        Err(error) => {
            let code = match error {
                OpenError::NotFound => ErrorCode::FileNotFound,
                OpenError::Unavailable(_) => ErrorCode::Undefined,
            };
            let message = error.to_string();
            let _ = socket.send(&Packet::error(code, &message)).await;
            shared.refused(client, request.path, code, message);
            return;
        }
    };
    let size = content.len();
    let caps = shared.settings.caps.within(shared.settings.mtu, local.is_ipv6());
    let options = Negotiated::new(&request.options, caps, size);
    debug!(%client, path = request.path, size, blksize = options.blksize, windowsize = options.windowsize, "TFTP transfer");
    let (mut transfer, actions) = Transfer::start(Instant::now(), content, options);
    let outcome = tokio::select! {
        outcome = drive(&socket, &mut transfer, actions) => outcome,
        never = turn_away(&strays) => match never {},
    };

    let took = began.elapsed();
    let counters = &shared.settings.counters;
    let counter = match outcome {
        Outcome::Completed => &counters.completed,
        Outcome::Probed => &counters.probed,
        Outcome::Aborted { .. } => &counters.aborted,
        Outcome::TimedOut | Outcome::Unreachable => &counters.lost,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    counters.bytes.fetch_add(transfer.acknowledged_bytes(), Ordering::Relaxed);
    counters.retransmissions.fetch_add(transfer.retransmissions(), Ordering::Relaxed);
    let (path, acknowledged, retransmissions) =
        (request.path, transfer.acknowledged_bytes(), transfer.retransmissions());
    match outcome {
        Outcome::Probed => debug!(%client, path, size, "TFTP size probe"),
        _ => info!(%client, path, size, ?outcome, retransmissions, ?took, "TFTP transfer ended"),
    }
    (shared.observe)(Event::Finished { client, path, size, acknowledged, outcome, took });
}

/// A transfer's socket, and a second one on the same port. The kernel gives the first one the client's datagrams, and
/// the second one all others.
async fn open(local: IpAddr, client: SocketAddr) -> io::Result<(UdpSocket, UdpSocket)> {
    // The first bind without SO_REUSEADDR gets a port that no other socket uses. Later only a socket that names the
    // port can share it.
    let socket = UdpSocket::bind((local, 0)).await?;
    SockRef::from(&socket).set_reuse_address(true)?;
    let strays = Socket::new(Domain::for_address(client), Type::DGRAM, None)?;
    strays.set_reuse_address(true)?;
    strays.set_nonblocking(true)?;
    strays.bind(&socket.local_addr()?.into())?;
    socket.connect(client).await?;
    Ok((socket, UdpSocket::from_std(strays.into())?))
}

/// Answers datagrams from other senders than the client with ERROR 5 (RFC 1350 §4). An ERROR gets no answer.
async fn turn_away(strays: &UdpSocket) -> Infallible {
    let mut buffer = [0; MAX_REQUEST];
    loop {
        match strays.recv_from(&mut buffer).await {
            Ok((len, from)) => {
                let packet = Packet::parse(buffer.get(..len).unwrap_or_default());
                if !matches!(packet, Ok(Packet::Error { .. })) {
                    debug!(%from, "not the client of this TFTP transfer");
                    let _ = strays.try_send_to(
                        &Packet::error(ErrorCode::UnknownTransferId, "unknown transfer ID"),
                        from,
                    );
                }
            }
            Err(_) => tokio::time::sleep(RECEIVE_PAUSE).await,
        }
    }
}

async fn drive(socket: &UdpSocket, transfer: &mut Transfer, mut actions: Vec<Action>) -> Outcome {
    // A client only sends ACKs and ERRORs, which are short.
    let mut buffer = [0; MAX_REQUEST];
    let mut timer = pin!(tokio::time::sleep_until(deadline(transfer)));
    loop {
        for action in actions {
            match action {
                Action::Send(datagram) => match socket.send(&datagram).await {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        return Outcome::Unreachable;
                    }
                    // If the send queue is full, the datagram is lost; the timer sends it again.
                    _ => {}
                },
                Action::Done(outcome) => return outcome,
            }
        }
        // Each acknowledgement moves the deadline. A timer that fires early is set again then, which is cheaper than to
        // reset it each time.
        if timer.is_elapsed() || deadline(transfer) < timer.deadline() {
            timer.as_mut().reset(deadline(transfer));
        }
        actions = tokio::select! {
            received = socket.recv(&mut buffer) => match received {
                Ok(len) => transfer.on_packet(Instant::now(), buffer.get(..len).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Outcome::Unreachable,
                Err(_) => {
                    tokio::time::sleep_until(deadline(transfer)).await;
                    transfer.on_timer(Instant::now())
                }
            },
            () = &mut timer => transfer.on_timer(Instant::now()),
        };
    }
}

fn deadline(transfer: &Transfer) -> tokio::time::Instant {
    tokio::time::Instant::from_std(transfer.deadline())
}

impl<F> Shared<F> {
    fn refused(&self, client: SocketAddr, file: String, code: ErrorCode, message: String) {
        info!(%client, file, ?code, message, "TFTP request refused");
        self.settings.counters.refused.fetch_add(1, Ordering::Relaxed);
        (self.observe)(Event::Refused { client, file, code, message });
    }
}
