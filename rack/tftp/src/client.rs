//! The client: fetches one file.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::negotiation::DEFAULT_BLKSIZE;
use crate::packet::{ErrorCode, OptionList, Packet};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(4);
const MAX_RETRIES: u32 = 10;

/// The file to fetch and the options to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRequest {
    /// The server's address and port.
    pub server: SocketAddr,
    /// The name of the file, as the server knows it.
    pub file: String,
    /// The block size to ask for, in bytes (option `blksize`).
    pub blksize: Option<u16>,
    /// The window to ask for, in blocks (option `windowsize`).
    pub windowsize: Option<u16>,
    /// Asks for the size of the file (option `tsize`).
    pub tsize: bool,
    /// Wants only the size: refuses the OACK, as EDK2's first request does.
    pub probe: bool,
    /// The longest file accepted, in bytes.
    pub max_bytes: usize,
}

impl ClientRequest {
    /// A request without options (RFC 1350), for up to 1 GiB.
    #[must_use]
    pub fn new(server: SocketAddr, file: impl Into<String>) -> Self {
        Self {
            server,
            file: file.into(),
            blksize: None,
            windowsize: None,
            tsize: false,
            probe: false,
            max_bytes: 1 << 30,
        }
    }
}

/// An instruction to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAction {
    /// Send a datagram.
    Send {
        /// The destination: the server's port first, then the transfer's port.
        to: SocketAddr,
        /// The datagram to send.
        bytes: Vec<u8>,
    },
    /// The transfer is over. A client that keeps running repeats its last acknowledgement if the server did not receive
    /// it.
    Done(Result<Fetched, Failure>),
}

/// The result of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fetched {
    /// The file; empty after a probe.
    pub content: Vec<u8>,
    /// The size that the server announced, in bytes.
    pub size: Option<u64>,
}

/// The reason why no file was fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server answered with an error.
    #[error("the server refused: {message} ({code:?})")]
    Refused {
        /// The error code of the server.
        code: ErrorCode,
        /// The message of the server.
        message: String,
    },
    /// The server granted something that was not asked for.
    #[error("the server granted option {0:?} wrongly")]
    BadOption(String),
    /// More than [`ClientRequest::max_bytes`].
    #[error("the file is longer than {0} bytes")]
    TooLong(usize),
    /// The server did not answer.
    #[error("the server does not answer")]
    TimedOut,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// The request was sent.
    Asking,
    Receiving,
    /// Done, and ready to repeat the last ACK.
    Complete,
    Failed,
}

/// The transfer of one file from a server.
#[derive(Debug)]
pub struct Client {
    request: ClientRequest,
    state: State,
    peer: Option<SocketAddr>,
    blksize: usize,
    windowsize: u64,
    fetched: Fetched,
    /// Blocks received in order, counted from 1 without wrapping.
    received: u64,
    /// Blocks received since the last ACK.
    unacknowledged: u64,
    /// The current gap in the blocks was reported to the server.
    reported_gap: bool,
    last: Vec<u8>,
    retries: u32,
    deadline: Instant,
}

impl Client {
    /// Starts the transfer. The action sends the request.
    #[must_use]
    pub fn start(request: ClientRequest, now: Instant) -> (Self, Vec<ClientAction>) {
        let mut options = OptionList::new();
        let mut ask = |name: &str, value: Option<u64>| {
            options.extend(value.map(|value| (name.to_owned(), value.to_string())));
        };
        ask("tsize", (request.tsize || request.probe).then_some(0));
        ask("blksize", request.blksize.map(u64::from));
        ask("windowsize", request.windowsize.map(u64::from));
        let last = Packet::Request { write: false, file: &request.file, mode: "octet", options }.encode();
        let mut client = Self {
            request,
            state: State::Asking,
            peer: None,
            blksize: usize::from(DEFAULT_BLKSIZE),
            windowsize: 1,
            fetched: Fetched::default(),
            received: 0,
            unacknowledged: 0,
            reported_gap: false,
            last,
            retries: 0,
            deadline: now,
        };
        let actions = client.send_last(now);
        (client, actions)
    }

    /// When to call [`Client::on_timer`].
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Takes a datagram.
    pub fn on_packet(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> Vec<ClientAction> {
        let Ok(packet) = Packet::parse(datagram) else { return Vec::new() };
        if from.ip() != self.request.server.ip() || self.state == State::Failed {
            return Vec::new();
        }
        match self.peer {
            Some(peer) if peer != from => {
                let bytes = Packet::error(ErrorCode::UnknownTransferId, "unknown transfer");
                return vec![ClientAction::Send { to: from, bytes }];
            }
            _ => {}
        }
        match packet {
            Packet::Error { code, message } if self.state != State::Complete => {
                self.fail(Failure::Refused { code, message: message.to_owned() }, None)
            }
            Packet::Oack { options } if self.state == State::Asking => {
                self.peer = Some(from);
                self.on_oack(now, &options)
            }
            // Our ACK 0 was lost.
            Packet::Oack { .. } if self.received == 0 && self.state == State::Receiving => {
                self.send_last(now)
            }
            Packet::Data { block, data } => {
                self.peer = Some(from);
                self.on_data(now, block, data)
            }
            _ => Vec::new(),
        }
    }

    /// Repeats the last datagram, or gives up.
    pub fn on_timer(&mut self, now: Instant) -> Vec<ClientAction> {
        if now < self.deadline || matches!(self.state, State::Complete | State::Failed) {
            return Vec::new();
        }
        if self.retries == MAX_RETRIES {
            return self.fail(Failure::TimedOut, None);
        }
        self.retries += 1;
        self.reported_gap = false;
        if self.state == State::Receiving {
            return self.acknowledge(now);
        }
        self.send_last(now)
    }

    fn on_oack(&mut self, now: Instant, options: &OptionList) -> Vec<ClientAction> {
        for (name, value) in options {
            let number = value.parse::<u64>().ok();
            let granted = match (name.to_ascii_lowercase().as_str(), number) {
                ("tsize", Some(size)) => {
                    self.fetched.size = Some(size);
                    self.request.tsize || self.request.probe
                }
                ("blksize", Some(size)) => {
                    self.blksize = usize::try_from(size).unwrap_or(usize::MAX);
                    self.request.blksize.is_some_and(|asked| (8..=u64::from(asked)).contains(&size))
                }
                ("windowsize", Some(size)) => {
                    self.windowsize = size;
                    self.request.windowsize.is_some_and(|asked| (1..=u64::from(asked)).contains(&size))
                }
                _ => false,
            };
            if !granted {
                return self.fail(Failure::BadOption(name.clone()), Some(ErrorCode::OptionNegotiation));
            }
        }
        if self.request.probe {
            let bytes = Packet::error(ErrorCode::OptionNegotiation, "only the size was wanted");
            self.state = State::Complete;
            let to = self.destination();
            return vec![
                ClientAction::Send { to, bytes },
                ClientAction::Done(Ok(std::mem::take(&mut self.fetched))),
            ];
        }
        self.state = State::Receiving;
        self.retries = 0;
        self.acknowledge(now)
    }

    fn on_data(&mut self, now: Instant, block: u16, data: &[u8]) -> Vec<ClientAction> {
        let ahead = block.wrapping_sub((self.received & 0xffff) as u16);
        if ahead == 0 {
            // The server did not receive the last ACK.
            return if self.received > 0 { self.acknowledge(now) } else { Vec::new() };
        }
        if self.state == State::Complete {
            return Vec::new();
        }
        if ahead != 1 {
            // A block in between was lost, or this is an old duplicate.
            if ahead > 0x7fff || self.reported_gap || self.windowsize == 1 {
                return Vec::new();
            }
            self.reported_gap = true;
            return self.acknowledge(now);
        }
        if data.len() > self.blksize || self.fetched.content.len() + data.len() > self.request.max_bytes {
            return self.fail(Failure::TooLong(self.request.max_bytes), Some(ErrorCode::DiskFull));
        }
        self.state = State::Receiving;
        self.received += 1;
        self.retries = 0;
        self.reported_gap = false;
        self.unacknowledged += 1;
        self.deadline = now + FIRST_RETRY;
        self.fetched.content.extend_from_slice(data);
        if data.len() < self.blksize {
            self.state = State::Complete;
            let mut actions = self.acknowledge(now);
            actions.push(ClientAction::Done(Ok(std::mem::take(&mut self.fetched))));
            return actions;
        }
        if self.unacknowledged < self.windowsize {
            return Vec::new();
        }
        self.acknowledge(now)
    }

    fn acknowledge(&mut self, now: Instant) -> Vec<ClientAction> {
        self.unacknowledged = 0;
        self.last = Packet::Ack { block: (self.received & 0xffff) as u16 }.encode();
        self.send_last(now)
    }

    fn send_last(&mut self, now: Instant) -> Vec<ClientAction> {
        self.deadline = now + (FIRST_RETRY * (1 << self.retries.min(2))).min(LONGEST_RETRY);
        vec![ClientAction::Send { to: self.destination(), bytes: self.last.clone() }]
    }

    fn destination(&self) -> SocketAddr {
        self.peer.unwrap_or(self.request.server)
    }

    fn fail(&mut self, failure: Failure, tell: Option<ErrorCode>) -> Vec<ClientAction> {
        self.state = State::Failed;
        let to = self.destination();
        let tell =
            tell.map(|code| ClientAction::Send { to, bytes: Packet::error(code, &failure.to_string()) });
        tell.into_iter().chain([ClientAction::Done(Err(failure))]).collect()
    }
}
