//! The tokio shell around [`ClientCore`]: retransmission, deadlines, and a session that is always closed.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use crate::client::{ClientCore, Event};
use crate::command::{self, BootDevice, BootOverride, DeviceId, PowerState, PowerVerb, boot_parameter};
use crate::credentials::{Credentials, Privilege};
use crate::error::{BmcError, Failure};
use crate::message::{CommandId, CompletionCode, Request};
use crate::random::SystemRandom;
use crate::suite::CipherSuite;

/// The largest datagram accepted, in octets; IPMI's are smaller.
const MAX_DATAGRAM: usize = 1024;

/// The waits for a BMC. BMCs are slow: they often take hundreds of milliseconds, and seconds during a restart.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The wait before the first retransmission. It doubles at each further one.
    pub retransmit: Duration,
    /// The longest time between two retransmissions.
    pub retransmit_max: Duration,
    /// The longest time to open a session.
    pub session: Duration,
    /// The longest time for a whole operation, including the session.
    pub operation: Duration,
    /// The longest wait for the answer to Close Session.
    pub close: Duration,
    /// The longest wait for the answer to Cold Reset.
    pub reset: Duration,
    /// The longest wait for a free session, while all sessions of the BMC are in use.
    pub free_session: Duration,
    /// The pause between two requests for a session, while all are in use.
    pub free_session_poll: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            retransmit: Duration::from_millis(500),
            retransmit_max: Duration::from_secs(3),
            session: Duration::from_secs(15),
            operation: Duration::from_secs(15),
            close: Duration::from_secs(1),
            reset: Duration::from_secs(5),
            free_session: Duration::from_secs(10),
            free_session_poll: Duration::from_secs(2),
        }
    }
}

/// A BMC, and the settings to access it.
#[derive(Clone, Debug)]
pub struct BmcConfig {
    /// The address and port of the BMC; the port is usually 623.
    pub address: SocketAddr,
    /// The user name and password.
    pub credentials: Credentials,
    /// The cipher suite. The client never uses a weaker one.
    pub suite: &'static CipherSuite,
    /// The privilege to ask for.
    pub privilege: Privilege,
    /// How long to wait for the BMC.
    pub timing: Timing,
}

impl BmcConfig {
    /// Suite 3, privilege operator (all that power and boot device need), usual timing.
    #[must_use]
    pub fn new(address: SocketAddr, credentials: Credentials) -> Self {
        Self {
            address,
            credentials,
            suite: CipherSuite::suite_3(),
            privilege: Privilege::Operator,
            timing: Timing::default(),
        }
    }
}

/// One BMC. Each operation opens a short session and closes it, even after an error.
#[derive(Clone, Debug)]
pub struct BmcClient {
    config: BmcConfig,
}

impl BmcClient {
    /// A client that has sent nothing yet.
    #[must_use]
    pub fn new(config: BmcConfig) -> Self {
        Self { config }
    }

    /// Opens a session for several operations; close it with [`BmcSession::close`].
    ///
    /// # Errors
    /// [`BmcError`], within [`Timing::session`], and [`Timing::free_session`] more while all sessions are in use.
    pub async fn connect(&self) -> Result<BmcSession, BmcError> {
        BmcSession::open(self.config.clone()).await.map_err(|failure| self.error(failure))
    }

    /// Opens a session for a single operation, with one deadline for both.
    async fn connect_for_one(&self) -> Result<BmcSession, BmcError> {
        let deadline = Instant::now() + self.config.timing.operation;
        let mut session = self.connect().await?;
        session.deadline = Some(deadline);
        Ok(session)
    }

    /// The power state of the machine.
    ///
    /// # Errors
    /// [`BmcError`], within [`Timing::operation`].
    pub async fn power_status(&self) -> Result<PowerState, BmcError> {
        let mut session = self.connect_for_one().await?;
        let result = session.power_status().await;
        session.close().await;
        result
    }

    /// Carries out `verb`. A BMC answers when it has begun; [`BmcClient::power_status`] shows the effect.
    ///
    /// # Errors
    /// [`BmcError`], within [`Timing::operation`].
    pub async fn power(&self, verb: PowerVerb) -> Result<(), BmcError> {
        let mut session = self.connect_for_one().await?;
        let result = session.power(verb).await;
        session.close().await;
        result
    }

    /// Sets the device of the next boot, or of all boots, for UEFI or legacy.
    ///
    /// # Errors
    /// [`BmcError`], within [`Timing::operation`].
    pub async fn set_boot_device(&self, device: BootDevice, once: bool, efi: bool) -> Result<(), BmcError> {
        let mut session = self.connect_for_one().await?;
        let result = session.set_boot_override(BootOverride { device, once, efi }).await;
        session.close().await;
        result
    }

    /// The override of the boot order.
    ///
    /// # Errors
    /// [`BmcError`], within [`Timing::operation`].
    pub async fn boot_override(&self) -> Result<BootOverride, BmcError> {
        let mut session = self.connect_for_one().await?;
        let result = session.boot_override().await;
        session.close().await;
        result
    }

    /// The identity of the BMC.
    ///
    /// # Errors
    /// [`BmcError`], within [`Timing::operation`].
    pub async fn device_id(&self) -> Result<DeviceId, BmcError> {
        let mut session = self.connect_for_one().await?;
        let result = session.device_id().await;
        session.close().await;
        result
    }

    fn error(&self, failure: Failure) -> BmcError {
        BmcError { address: self.config.address, failure }
    }
}

/// An open session. If it is dropped without [`BmcSession::close`], the BMC is still told, without waiting.
pub struct BmcSession {
    config: BmcConfig,
    /// The deadline for all further commands, if set; otherwise each command has its own.
    deadline: Option<Instant>,
    link: Link,
}

impl BmcSession {
    /// Opens a session. While all sessions of the BMC are in use, it asks again.
    async fn open(config: BmcConfig) -> Result<Self, Failure> {
        let began = Instant::now();
        let until = began + config.timing.free_session;
        loop {
            let mut link = Link::new(&config).await?;
            let Err(failure) = link.handshake(&config).await else {
                return Ok(Self { config, deadline: None, link });
            };
            link.farewell();
            let again_at = Instant::now() + config.timing.free_session_poll;
            match failure {
                Failure::NoFreeSession { .. } if again_at < until => {
                    drop(link);
                    tokio::time::sleep_until(again_at).await;
                }
                Failure::NoFreeSession { .. } => {
                    return Err(Failure::NoFreeSession { waited: began.elapsed() });
                }
                failure => return Err(failure),
            }
        }
    }

    /// The power state of the machine.
    ///
    /// # Errors
    /// [`BmcError`], within [`Timing::operation`].
    pub async fn power_status(&mut self) -> Result<PowerState, BmcError> {
        let data = self.command(command::GET_CHASSIS_STATUS, vec![]).await?;
        PowerState::decode(&data).map_err(|failure| self.error(failure))
    }

    /// Carries out `verb`.
    ///
    /// # Errors
    /// As [`BmcSession::power_status`].
    pub async fn power(&mut self, verb: PowerVerb) -> Result<(), BmcError> {
        self.command(command::CHASSIS_CONTROL, vec![verb.code()]).await.map(drop)
    }

    /// Sets the override of the boot order.
    ///
    /// # Errors
    /// As [`BmcSession::power_status`].
    pub async fn set_boot_override(&mut self, boot: BootOverride) -> Result<(), BmcError> {
        // A BMC normally drops the flags if the machine is not powered on within 60 s; keep them valid for longer. Also
        // state that only the BIOS handles them. A BMC without these parameters still has the flags.
        let keep_valid = vec![boot_parameter::VALID_BIT_CLEARING, 0x08];
        let for_bios = vec![boot_parameter::ACKNOWLEDGE, 0x01, 0x01];
        for data in [keep_valid, for_bios] {
            match self.command(command::SET_BOOT_OPTIONS, data).await {
                Err(BmcError { failure: Failure::Command { .. }, .. }) | Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        let mut flags = vec![boot_parameter::BOOT_FLAGS];
        flags.extend_from_slice(&boot.encode());
        self.command(command::SET_BOOT_OPTIONS, flags).await.map(drop)
    }

    /// The override of the boot order.
    ///
    /// # Errors
    /// As [`BmcSession::power_status`].
    pub async fn boot_override(&mut self) -> Result<BootOverride, BmcError> {
        let data = self.command(command::GET_BOOT_OPTIONS, vec![boot_parameter::BOOT_FLAGS, 0, 0]).await?;
        data.get(2..)
            .and_then(BootOverride::decode)
            .ok_or_else(|| self.error(Failure::Malformed("Get System Boot Options response")))
    }

    /// The identity of the BMC.
    ///
    /// # Errors
    /// As [`BmcSession::power_status`].
    pub async fn device_id(&mut self) -> Result<DeviceId, BmcError> {
        let data = self.command(command::GET_DEVICE_ID, vec![]).await?;
        DeviceId::decode(&data).map_err(|failure| self.error(failure))
    }

    /// Restarts the BMC itself (§20.2). The machine is not touched. Needs [`Privilege::Administrator`]. The session ends with it.
    ///
    /// A BMC may restart before it answers. Then silence is no error.
    ///
    /// # Errors
    /// As [`BmcSession::power_status`].
    pub async fn cold_reset(mut self) -> Result<(), BmcError> {
        self.deadline = Some(Instant::now() + self.config.timing.reset);
        match self.command(command::COLD_RESET, vec![]).await {
            Ok(_) | Err(BmcError { failure: Failure::StoppedAnswering { .. }, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends the session and waits briefly for the BMC's confirmation.
    pub async fn close(mut self) {
        let deadline = Instant::now() + self.config.timing.close;
        if self.link.farewell() {
            let mut buffer = [0; MAX_DATAGRAM];
            // Any packet now counts as the answer. Without one, the BMC frees the session by itself.
            let _answered = timeout_at(deadline, self.link.socket.recv(&mut buffer)).await;
        }
    }

    async fn command(&mut self, id: CommandId, data: Vec<u8>) -> Result<Vec<u8>, BmcError> {
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + self.config.timing.operation);
        let outcome = self.link.command(&self.config, Request { id, data }, deadline).await;
        outcome.map_err(|failure| self.error(failure))
    }

    fn error(&self, failure: Failure) -> BmcError {
        BmcError { address: self.config.address, failure }
    }
}

/// A socket and the session over it.
struct Link {
    socket: UdpSocket,
    core: ClientCore,
    sent: u32,
    heard: bool,
    last_error: Option<String>,
    began: Instant,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.farewell();
    }
}

impl Link {
    async fn new(config: &BmcConfig) -> Result<Self, Failure> {
        let broken = |error: std::io::Error| Failure::Socket(error.to_string());
        let any: SocketAddr = match config.address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await.map_err(broken)?;
        let connected = socket.connect(config.address).await;
        Ok(Self {
            socket,
            core: new_core(config)?,
            sent: 0,
            heard: false,
            // A missing route may appear later. Report the error when the time is over.
            last_error: connected.err().map(|error| error.to_string()),
            began: Instant::now(),
        })
    }

    async fn handshake(&mut self, config: &BmcConfig) -> Result<(), Failure> {
        let deadline = self.began + config.timing.session;
        loop {
            let first = self.core.start();
            match self.exchange(config, first, deadline).await {
                Ok(_) => return Ok(()),
                // The BMC may have refused a repetition only. Begin a new session.
                Err(failure)
                    if self.core.is_ambiguous() && !is_silence(&failure) && !is_wrong_key(&failure) =>
                {
                    self.farewell();
                    self.core = new_core(config)?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn command(
        &mut self,
        config: &BmcConfig,
        request: Request,
        deadline: Instant,
    ) -> Result<Vec<u8>, Failure> {
        self.began = Instant::now();
        let command = request.id.name;
        let datagram = self.core.request(request, &mut SystemRandom)?;
        match self.exchange(config, datagram, deadline).await? {
            Some(response) if response.code == CompletionCode::OK => Ok(response.data),
            Some(response) => Err(Failure::Command { command, code: response.code }),
            None => Err(Failure::Malformed("session")),
        }
    }

    /// Sends and retransmits until the session is ready (`None`) or a command is answered.
    async fn exchange(
        &mut self,
        config: &BmcConfig,
        first: Vec<u8>,
        deadline: Instant,
    ) -> Result<Option<crate::message::Response>, Failure> {
        let random = &mut SystemRandom;
        let mut datagram = first;
        let mut interval = config.timing.retransmit;
        loop {
            self.send(&datagram).await;
            let again_at = (Instant::now() + interval).min(deadline);
            match self.listen(again_at).await? {
                Some(Event::Ready) => return Ok(None),
                Some(Event::Answer(response)) => return Ok(Some(response)),
                Some(Event::Send(next)) => {
                    datagram = next;
                    interval = config.timing.retransmit;
                }
                Some(Event::Ignored) | None => {
                    if Instant::now() >= deadline {
                        return Err(self.silence());
                    }
                    datagram = self.core.retransmit(random)?;
                    interval = (interval * 2).min(config.timing.retransmit_max);
                }
            }
        }
    }

    /// The next event to handle; `None` if there was none before `until`.
    async fn listen(&mut self, until: Instant) -> Result<Option<Event>, Failure> {
        let mut buffer = [0; MAX_DATAGRAM];
        loop {
            match timeout_at(until, self.socket.recv(&mut buffer)).await {
                Err(_elapsed) => return Ok(None),
                Ok(Err(error)) => {
                    // "Connection refused": the BMC may be restarting. Wait until the next retransmission.
                    self.last_error = Some(error.to_string());
                    tokio::time::sleep_until(until).await;
                    return Ok(None);
                }
                Ok(Ok(length)) => {
                    self.heard = true;
                    let datagram = buffer.get(..length).unwrap_or_default();
                    match self.core.receive(datagram, &mut SystemRandom)? {
                        Event::Ignored => {}
                        event => return Ok(Some(event)),
                    }
                }
            }
        }
    }

    async fn send(&mut self, datagram: &[u8]) {
        self.sent = self.sent.saturating_add(1);
        if let Err(error) = self.socket.send(datagram).await {
            self.last_error = Some(error.to_string());
        }
    }

    fn silence(&self) -> Failure {
        let waited = self.began.elapsed();
        if self.heard {
            return Failure::StoppedAnswering { during: self.core.step(), waited };
        }
        Failure::Unreachable { sent: self.sent, waited, last_error: self.last_error.clone() }
    }

    /// Tells the BMC without waiting that the session is over. True if a datagram was sent.
    fn farewell(&mut self) -> bool {
        match self.core.close(&mut SystemRandom) {
            Ok(Some(datagram)) => self.socket.try_send(&datagram).is_ok(),
            Ok(None) | Err(_) => false,
        }
    }
}

/// True if the BMC proved that the key is wrong. Another handshake would only use up another of its sessions.
fn is_wrong_key(failure: &Failure) -> bool {
    matches!(failure, Failure::WrongBmcKey { .. })
}

fn is_silence(failure: &Failure) -> bool {
    matches!(failure, Failure::StoppedAnswering { .. } | Failure::Unreachable { .. })
}

fn new_core(config: &BmcConfig) -> Result<ClientCore, Failure> {
    ClientCore::new(config.credentials.clone(), config.suite, config.privilege, &mut SystemRandom)
}
