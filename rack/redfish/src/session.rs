//! The tokio shell around [`ClientCore`]: connections, limits, and deadlines.
//!
//! Many BMCs close a connection after each answer, with or without announcing it. The next request then makes a new
//! connection, whose TLS must satisfy the same [`rustls::ClientConfig`]. A request with effects always gets a new
//! connection: if an old one were closed at that moment, its effect would be unknown. Only reads are ever sent twice.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use crate::connection::{self, AnswerError, ConnectError, Endpoint};
use crate::core::{Answer, Boot, ClientCore, Method, Operation, Power, Request, Reset, Step};
use crate::error::{Failure, RedfishError};
use crate::header;

/// The longest answer accepted, in bytes; a ComputerSystem has some 20 KiB.
const MAX_BODY: usize = 1 << 20;
/// The OData version of the protocol (DSP0266 §6.5).
const ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");

/// The user name and password of the client.
#[derive(Clone)]
pub struct Account {
    username: String,
    password: Zeroizing<String>,
}

impl Account {
    /// An account of the BMC.
    #[must_use]
    pub fn new(username: &str, password: &str) -> Self {
        Self { username: username.to_owned(), password: Zeroizing::new(password.to_owned()) }
    }

    /// The header of HTTP Basic authentication (RFC 7617). DSP0266 §13.3.4 demands that every service supports it.
    fn authorization(&self) -> Result<HeaderValue, Failure> {
        header::basic(&self.username, &self.password)
            .ok_or_else(|| Failure::Unreachable("the account cannot be sent in a header".to_owned()))
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("username", &self.username).finish_non_exhaustive()
    }
}

/// The waits for a BMC. BMCs are slow: an answer often takes seconds, and TLS alone takes one.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The longest time to connect, including TLS.
    pub connect: Duration,
    /// The longest time for the answer to a request, including the connection.
    pub request: Duration,
    /// The longest time until the system shows a boot override that the BMC accepted.
    pub confirm: Duration,
    /// The pause between two checks for it.
    pub pause: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            request: Duration::from_secs(20),
            confirm: Duration::from_secs(5),
            pause: Duration::from_millis(500),
        }
    }
}

/// A BMC, and the settings to access it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The host name or address of the BMC; IPv6 without brackets.
    pub host: String,
    /// The address to connect to. `None`: resolve the host name.
    pub at: Option<IpAddr>,
    /// The port; usually 443.
    pub port: u16,
    /// The user name and password.
    pub account: Account,
    /// The system, by the last segment of its path. `None`: the only one.
    pub system: Option<String>,
    /// The TLS settings, with the trusted certificates.
    pub tls: Arc<rustls::ClientConfig>,
    /// The waits and deadlines.
    pub timing: Timing,
    /// The number of requests that the BMC may have at once. Sessions with the same BMC share it: its systems share one
    /// small processor.
    pub turns: Arc<Semaphore>,
}

impl Config {
    /// The settings for a BMC with one system: one request at a time, default waits.
    #[must_use]
    pub fn new(host: &str, port: u16, account: Account, tls: Arc<rustls::ClientConfig>) -> Self {
        Self {
            host: host.to_owned(),
            at: None,
            port,
            account,
            system: None,
            tls,
            timing: Timing::default(),
            turns: Arc::new(Semaphore::new(1)),
        }
    }
}

/// A session with one BMC. It leaves no state on the BMC, however it ends.
#[derive(Debug)]
pub struct Session {
    config: Config,
    core: ClientCore,
    authorization: HeaderValue,
    link: Option<SendRequest<Full<Bytes>>>,
}

impl Session {
    /// Connects, with TLS. It sends no request, and so no password.
    ///
    /// # Errors
    /// [`RedfishError`], within [`Timing::connect`].
    pub async fn open(config: Config) -> Result<Self, RedfishError> {
        let core =
            ClientCore::new(&config.host, config.port, &config.account.username, config.system.as_deref());
        let opened = async {
            let _turn = config.turns.acquire().await;
            let authorization = config.account.authorization()?;
            Ok((authorization, connect(&config).await?))
        };
        match opened.await {
            Ok((authorization, link)) => Ok(Self { config, core, authorization, link: Some(link) }),
            Err(failure) => Err(RedfishError { place: core.authority(), failure }),
        }
    }

    /// The power state of the system.
    ///
    /// # Errors
    /// [`RedfishError`]; each request within [`Timing::request`].
    pub async fn power(&mut self) -> Result<Power, RedfishError> {
        self.run(Operation::Read).await
    }

    /// Changes the power state. A BMC answers when it has begun; [`Session::power`] shows the effect.
    ///
    /// # Errors
    /// As [`Session::power`].
    pub async fn reset(&mut self, reset: Reset) -> Result<(), RedfishError> {
        self.run(Operation::Reset(reset)).await.map(drop)
    }

    /// Restarts the BMC itself. The system is not touched. A BMC answers when it has begun, or restarts before it answers. Therefore silence
    /// after the request counts as done, so that the request is not repeated.
    ///
    /// # Errors
    /// As [`Session::power`]; [`Failure::Unsupported`] for a BMC without this action.
    pub async fn restart_manager(&mut self) -> Result<(), RedfishError> {
        match self.run(Operation::RestartManager).await {
            Err(RedfishError { failure: Failure::StoppedAnswering { during, .. }, .. })
                if during.starts_with("POST") && during.contains("Manager.Reset") =>
            {
                Ok(())
            }
            ended => ended.map(drop),
        }
    }

    /// Chooses the device of the next boot, for one boot, and waits until the system shows it.
    ///
    /// # Errors
    /// As [`Session::power`]; [`Failure::NotKept`] if the system still shows another override after
    /// [`Timing::confirm`].
    pub async fn boot_once(&mut self, boot: Boot) -> Result<(), RedfishError> {
        self.run(Operation::Boot(boot)).await?;
        let until = Instant::now() + self.config.timing.confirm;
        loop {
            match self.run(Operation::Confirm).await {
                Err(error) if may_be_confirmed(&error.failure) && Instant::now() < until => {
                    tokio::time::sleep(self.config.timing.pause).await;
                }
                ended => return ended.map(drop),
            }
        }
    }

    async fn run(&mut self, operation: Operation) -> Result<Power, RedfishError> {
        let mut request = self.core.begin(operation);
        loop {
            let step = match self.ask(&request).await {
                Ok(answer) => self.core.receive(&answer.borrowed()),
                Err(failure) => Err(failure),
            };
            match step {
                Ok(Step::Send(next)) => request = next,
                Ok(Step::Done(power)) => return Ok(power),
                Err(failure) => return Err(RedfishError { place: self.core.authority(), failure }),
            }
        }
    }

    async fn ask(&mut self, request: &Request) -> Result<Owned, Failure> {
        let turns = Arc::clone(&self.config.turns);
        let _turn = turns.acquire().await;
        let begun = Instant::now();
        let deadline = begun + self.config.timing.request;
        let stopped = |reason: String| Failure::StoppedAnswering {
            during: request.to_string(),
            reason,
            waited: begun.elapsed(),
        };
        loop {
            let kept = self.link.take().filter(|link| request.method == Method::Get && !link.is_closed());
            let is_kept = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => connect(&self.config).await?,
            };
            let sent = self.http(request)?;
            let answer = async { Owned::read(connection::send(&mut link, sent).await?).await };
            match timeout_at(deadline, answer).await {
                Ok(Ok(answer)) => {
                    self.link = Some(link);
                    return Ok(answer);
                }
                Ok(Err(error @ AnswerError::TooLarge(_))) => {
                    return Err(Failure::Malformed {
                        request: request.to_string(),
                        reason: error.to_string(),
                    });
                }
                // The BMC may have closed a kept connection at that moment.
                Ok(Err(AnswerError::Connection(_))) if is_kept => {}
                Ok(Err(AnswerError::Connection(reason))) => return Err(stopped(reason)),
                Err(_) => return Err(stopped("no answer in time".to_owned())),
            }
        }
    }

    fn http(&self, request: &Request) -> Result<http::Request<Full<Bytes>>, Failure> {
        let mut builder = http::Request::builder()
            .method(request.method.as_str())
            .uri(&request.path)
            .header(http::header::HOST, self.core.authority())
            .header(http::header::ACCEPT, "application/json")
            // Compressed answers have weak tags, which If-Match never holds for.
            .header(http::header::ACCEPT_ENCODING, "identity")
            .header(ODATA_VERSION, "4.0")
            .header(http::header::AUTHORIZATION, self.authorization.clone());
        if let Some(etag) = &request.if_match {
            builder = builder.header(http::header::IF_MATCH, etag);
        }
        let mut body = Bytes::new();
        if let Some(value) = &request.body {
            builder = builder.header(http::header::CONTENT_TYPE, "application/json");
            body = Bytes::from(value.to_string());
        }
        let malformed = |error: http::Error| Failure::Malformed {
            request: request.to_string(),
            reason: error.to_string(),
        };
        builder.body(Full::new(body)).map_err(malformed)
    }
}

/// A complete answer.
struct Owned {
    status: u16,
    location: Option<String>,
    etag: Option<String>,
    body: Bytes,
}

impl Owned {
    async fn read(answer: http::Response<hyper::body::Incoming>) -> Result<Self, AnswerError> {
        let text = |name: HeaderName| {
            answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let (status, location, etag) =
            (answer.status().as_u16(), text(http::header::LOCATION), text(http::header::ETAG));
        let body = connection::read(answer.into_body(), MAX_BODY).await?;
        Ok(Self { status, location, etag, body })
    }

    fn borrowed(&self) -> Answer<'_> {
        Answer {
            status: self.status,
            location: self.location.as_deref(),
            etag: self.etag.as_deref(),
            body: &self.body,
        }
    }
}

async fn connect(config: &Config) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let endpoint = Endpoint {
        host: config.host.clone(),
        at: config.at,
        port: config.port,
        tls: Some(Arc::clone(&config.tls)),
    };
    endpoint.connect(config.timing.connect).await.map_err(|error| match error {
        ConnectError::Unreachable(why) => Failure::Unreachable(why),
        ConnectError::Certificate(why) => Failure::Certificate(why),
    })
}

/// True if the system may show the override later: some BMCs are busy after a change.
fn may_be_confirmed(failure: &Failure) -> bool {
    matches!(failure, Failure::NotKept { .. } | Failure::Refused { .. } | Failure::StoppedAnswering { .. })
}
