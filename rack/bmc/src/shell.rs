//! The tokio shell around [`ServerCore`]: a socket, a chassis, and deliberate faults.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UdpSocket, UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::command::{BootOverride, PowerState, PowerVerb};
use crate::faults::Faults;
use crate::inside::{self, Decoder, FromMachine};
use crate::message::CompletionCode;
use crate::random::SystemRandom;
use crate::server::{ChassisAnswer, ChassisRequest, FromInside, Reaction, ServerConfig, ServerCore};

/// The largest datagram we accept; IPMI's own are below 300 octets.
const MAX_DATAGRAM: usize = 1024;

/// The chassis behind a BMC: the power and boot device of one machine.
pub trait ChassisBackend: Send + Sync + 'static {
    /// The power state of the machine.
    fn power_status(&self) -> impl Future<Output = PowerState> + Send;

    /// Carries out `verb`. Returns when it is done or under way, within about a second.
    ///
    /// # Errors
    /// The completion code to answer.
    fn control(&self, verb: PowerVerb) -> impl Future<Output = Result<(), CompletionCode>> + Send;

    /// The override of the boot order.
    fn boot_override(&self) -> impl Future<Output = BootOverride> + Send;

    /// Sets the override of the boot order.
    ///
    /// # Errors
    /// The completion code to answer.
    fn set_boot_override(
        &self,
        boot: BootOverride,
    ) -> impl Future<Output = Result<(), CompletionCode>> + Send;
}

/// A running BMC; it stops when this is dropped.
#[derive(Debug)]
pub struct BmcServer {
    address: SocketAddr,
    faults: Arc<Faults>,
    restarts: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl BmcServer {
    /// Binds `address` (port 0: any free one) and answers there, in a task of the current runtime.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start<B: ChassisBackend>(
        address: SocketAddr,
        config: ServerConfig,
        chassis: Arc<B>,
    ) -> io::Result<Self> {
        Self::begin(address, None, config, chassis).await
    }

    /// Like [`BmcServer::start`]. A machine that connects to `inside`, the chardev of QEMU's `ipmi-bmc-extern`, has the
    /// BMC as its own. The latest connection replaces an earlier one.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start_inside<B: ChassisBackend>(
        address: SocketAddr,
        inside: UnixListener,
        config: ServerConfig,
        chassis: Arc<B>,
    ) -> io::Result<Self> {
        Self::begin(address, Some(inside), config, chassis).await
    }

    async fn begin<B: ChassisBackend>(
        address: SocketAddr,
        inside: Option<UnixListener>,
        config: ServerConfig,
        chassis: Arc<B>,
    ) -> io::Result<Self> {
        let socket = UdpSocket::bind(address).await?;
        let address = socket.local_addr()?;
        let (faults, restarts) = (Arc::new(Faults::default()), Arc::new(AtomicU64::new(0)));
        let shell = Shell {
            socket: Arc::new(socket),
            core: ServerCore::new(config),
            chassis,
            faults: Arc::clone(&faults),
            restarts: Arc::clone(&restarts),
            machine: inside.map(|listener| Machine { listener, stream: None, decoder: Decoder::default() }),
        };
        Ok(Self { address, faults, restarts, task: tokio::spawn(shell.run()) })
    }

    /// The address that the BMC answers at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of cold resets.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::SeqCst)
    }

    /// The faults of the BMC. They can be set and read while it runs.
    #[must_use]
    pub fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }
}

impl Drop for BmcServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Shell<B> {
    socket: Arc<UdpSocket>,
    core: ServerCore,
    chassis: Arc<B>,
    faults: Arc<Faults>,
    restarts: Arc<AtomicU64>,
    machine: Option<Machine>,
}

/// The connection from the machine to its BMC.
struct Machine {
    listener: UnixListener,
    stream: Option<UnixStream>,
    decoder: Decoder,
}

impl Machine {
    /// The next requests of the machine.
    async fn requests(&mut self) -> Vec<FromMachine> {
        let mut octets = [0; MAX_DATAGRAM];
        let read = async {
            match &mut self.stream {
                Some(stream) => stream.read(&mut octets).await.unwrap_or(0),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            connected = self.listener.accept() => {
                if let Ok((stream, _)) = connected {
                    self.decoder = Decoder::default();
                    self.stream = Some(stream);
                    self.write(&inside::GREETING).await;
                }
                Vec::new()
            }
            length = read => {
                if length == 0 {
                    self.stream = None;
                }
                octets.iter().take(length).filter_map(|octet| self.decoder.take(*octet)).collect()
            }
        }
    }

    async fn write(&mut self, octets: &[u8]) {
        // The machine may have disconnected.
        if let Some(stream) = &mut self.stream
            && stream.write_all(octets).await.is_err()
        {
            self.stream = None;
        }
    }
}

impl<B: ChassisBackend> Shell<B> {
    async fn run(mut self) {
        let mut buffer = [0; MAX_DATAGRAM];
        loop {
            let from_machine = async {
                match &mut self.machine {
                    Some(machine) => machine.requests().await,
                    None => std::future::pending().await,
                }
            };
            let received = tokio::select! {
                requests = from_machine => {
                    for request in requests {
                        self.answer_machine(&request).await;
                    }
                    continue;
                }
                received = self.socket.recv_from(&mut buffer) => received,
            };
            // The error is an ICMP message about an earlier answer; the socket still works.
            let Ok((length, peer)) = received else {
                tokio::task::yield_now().await;
                continue;
            };
            let Some(datagram) = buffer.get(..length) else {
                continue;
            };
            if self.faults.lets_in()
                && let Some(answer) = self.react(peer, datagram).await
            {
                self.send(peer, answer);
            }
        }
    }

    async fn answer_machine(&mut self, request: &FromMachine) {
        let response = match self.core.inside(request.net_fn, request.command, &request.data) {
            FromInside::Answer(response) => response,
            FromInside::Chassis(ask, parameter) => self.ask_chassis(ask).await.response(parameter),
        };
        self.restarts.store(self.core.restarts(), Ordering::SeqCst);
        let octets = inside::encode(request, response.code.0, &response.data);
        if let Some(machine) = &mut self.machine {
            machine.write(&octets).await;
        }
    }

    async fn react(&mut self, peer: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
        let random = &mut SystemRandom;
        let reaction = self.core.receive(peer, datagram, Instant::now(), random);
        self.restarts.store(self.core.restarts(), Ordering::SeqCst);
        let outcome = match reaction {
            Ok(Reaction::None) => return None,
            Ok(Reaction::Reply(bytes)) => Ok(Some(bytes)),
            Ok(Reaction::Chassis(ticket, request)) => {
                let answer = self.ask_chassis(request).await;
                self.core.complete(&ticket, answer, random)
            }
            Err(failure) => Err(failure),
        };
        outcome.unwrap_or_else(|failure| {
            tracing::error!(%failure, "the BMC could not answer {peer}");
            None
        })
    }

    async fn ask_chassis(&self, request: ChassisRequest) -> ChassisAnswer {
        let done = match request {
            ChassisRequest::Status => return ChassisAnswer::Power(self.chassis.power_status().await),
            ChassisRequest::BootOverride => return ChassisAnswer::Boot(self.chassis.boot_override().await),
            ChassisRequest::Control(_) if self.faults.power_lies() => Ok(()),
            ChassisRequest::Control(verb) => self.chassis.control(verb).await,
            ChassisRequest::SetBootOverride(boot) => self.chassis.set_boot_override(boot).await,
        };
        match done {
            Ok(()) => ChassisAnswer::Done,
            Err(code) => ChassisAnswer::Refused(code),
        }
    }

    /// Sends an answer, late or twice if the faults demand it. If an answer is lost, the console asks again.
    fn send(&self, peer: SocketAddr, answer: Vec<u8>) {
        let (delay, twice) = self.faults.on_answer();
        let socket = Arc::clone(&self.socket);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            for _ in 0..=u8::from(twice) {
                if let Err(error) = socket.send_to(&answer, peer).await {
                    tracing::debug!(%error, "the answer to {peer} was not sent");
                }
            }
        });
    }
}
