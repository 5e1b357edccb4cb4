//! The shell: sockets, tasks and files around [`Transfer`].
//!
//! Every address has a listening socket of its own, and every transfer a socket bound to the address that the request
//! came to: a client drops blocks from any other (RFC 1350 §4). What others send to a transfer's port comes to a second socket, so
//! that it cannot reach the transfer, and is answered by ERROR 5. A slow file delays nobody else.

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

/// Wait after a listening socket failed, so that a persistent failure does not spin.
const RECEIVE_PAUSE: Duration = Duration::from_millis(100);

/// Where files come from.
pub trait FileSource: Send + Sync + 'static {
    /// The whole content of a file. `path` is relative and cannot lead out of a directory it is joined to. Sources
    /// share one [`Bytes`] between transfers; it stays in memory while any of them runs.
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
    /// There is, but not now; the reason is for the log and the client alike.
    #[error("{0}")]
    Unavailable(String),
}

/// How a server behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What is granted to clients.
    pub caps: Caps,
    /// The largest packet of the links that clients are on, in bytes.
    pub mtu: u16,
    /// How many transfers may run.
    pub limits: Limits,
    /// How long [`FileSource::open`] may take.
    pub open_timeout: Duration,
    /// Where to count.
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
    /// Files delivered.
    pub completed: AtomicU64,
    /// Size probes.
    pub probed: AtomicU64,
    /// Transfers that the client ended.
    pub aborted: AtomicU64,
    /// Transfers whose client fell silent or left.
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

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A transfer is over, well or not.
    Finished {
        /// The client.
        client: SocketAddr,
        /// The file, cleaned.
        path: String,
        /// Its size in bytes on the wire.
        size: usize,
        /// Bytes of it that the client acknowledged.
        acknowledged: u64,
        /// How it ended.
        outcome: Outcome,
        /// How long it took.
        took: Duration,
    },
    /// A request was answered with an ERROR.
    Refused {
        /// The client.
        client: SocketAddr,
        /// The file, as it was asked for.
        file: String,
        /// Error code.
        code: ErrorCode,
        /// In words.
        message: String,
    },
    /// A request was dropped at a limit; the client asks again.
    Dropped {
        /// The client.
        client: SocketAddr,
        /// Which limit.
        limit: Busy,
    },
}

struct Shared<F> {
    files: F,
    settings: Settings,
    observe: Box<dyn Fn(Event) + Send + Sync>,
    admission: Mutex<Admission>,
}

/// A place in [`Admission`], given back when the transfer ends in whatever way.
struct Slot<F: FileSource> {
    shared: Arc<Shared<F>>,
    client: IpAddr,
}

impl<F: FileSource> Drop for Slot<F> {
    fn drop(&mut self) {
        self.shared.admission.lock().unwrap_or_else(PoisonError::into_inner).release(self.client);
    }
}

/// Serves on sockets that are bound to one address each, until `shutdown`; running transfers end with it.
/// `observe` is called for everything that ends, from the task where it happened: it must not block.
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
    // One byte more than is accepted, so that a longer request is seen to be longer.
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
                // A lost ERROR is the same to the client as a lost request: it asks again.
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

/// A transfer's socket, and one of the same port that the kernel gives what does not come from the client.
async fn open(local: IpAddr, client: SocketAddr) -> io::Result<(UdpSocket, UdpSocket)> {
    // The port is nobody's when it is chosen, and from then on only those who ask for it by its number may share it.
    let socket = UdpSocket::bind((local, 0)).await?;
    SockRef::from(&socket).set_reuse_address(true)?;
    let strays = Socket::new(Domain::for_address(client), Type::DGRAM, None)?;
    strays.set_reuse_address(true)?;
    strays.set_nonblocking(true)?;
    strays.bind(&socket.local_addr()?.into())?;
    socket.connect(client).await?;
    Ok((socket, UdpSocket::from_std(strays.into())?))
}

/// Tells everybody who sends to a transfer of another one that it is not theirs (RFC 1350 §4). An ERROR has no answer.
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
    // A client sends ACKs and ERRORs.
    let mut buffer = [0; MAX_REQUEST];
    let mut timer = pin!(tokio::time::sleep_until(deadline(transfer)));
    loop {
        for action in actions {
            match action {
                Action::Send(datagram) => match socket.send(&datagram).await {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        return Outcome::Unreachable;
                    }
                    // A full queue is a lost datagram; the timer sends it again.
                    _ => {}
                },
                Action::Done(outcome) => return outcome,
            }
        }
        // Each acknowledgement moves the deadline on; a timer that is early is set again when it ends.
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
