//! Driver `webhook`: each verb is one HTTP request to a service that somebody else runs, like that of a power outlet.
//!
//! | verb | request |
//! | --- | --- |
//! | status | GET `status`; two patterns read the answer |
//! | on, off | POST `on`, POST `off` |
//! | cycle | POST `cycle`; without it POST `off`, and POST `on` once the power reads as off |
//! | soft off | POST `soft_off`; without it the command fails as `unsupported`, and the region has the power cut |
//! | boot device | none: the firmware tries the network first, and the rack sends the machine on to its disk |
//!
//! | answer | code |
//! | --- | --- |
//! | 2xx | none |
//! | 401 | `bad_password` |
//! | 403 | `privilege` |
//! | 408, 425, 429, 5xx without 501 | `completion_code`: it is tried again |
//! | others, redirects included | `unsupported`: a person has to correct the machine's `bmc` |
//!
//! Each request has a connection of its own. A request is never sent twice: after a lost answer nobody knows if it was carried out.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use basalt_api::kinds::power_pattern;
use basalt_bmc::{BootDevice, PowerState, PowerVerb};
use basalt_proto::rack_v1::{Bmc, BmcWebhook};
use basalt_redfish::connection::{self, AnswerError, ConnectError, Endpoint};
use basalt_redfish::told;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::Full;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::trust::Trust;
use super::{Conversation, Ended, PATIENCE, Patience, Reading, place};
use crate::certificates::Certificates;

/// The port of HTTPS (RFC 9110 §4.2.2).
const PORT: u16 = 443;
/// The port of HTTP (RFC 9110 §4.2.1).
const PLAIN_PORT: u16 = 80;
/// The largest answer. A search of it takes time in proportion to its size.
const MAX_BODY: usize = 64 << 10;
const USER_AGENT: &str = concat!("basalt-rack/", env!("CARGO_PKG_VERSION"));

/// The longest waits for the service.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For a connection, TLS included.
    pub(super) connect: Duration,
    /// For the answer to a request, once there is a connection.
    pub(super) answer: Duration,
    /// For the power to be off within a cycle.
    pub(super) off: Patience,
}

/// The times of a rack. Together they are less than a power reading may take.
pub(super) const LIMITS: Limits =
    Limits { connect: Duration::from_secs(8), answer: Duration::from_secs(15), off: PATIENCE };

/// The port that a BMC without a declared port has.
pub(super) fn default_port(bmc: &Bmc) -> u16 {
    if bmc.webhook.as_ref().is_some_and(|it| it.plain) { PLAIN_PORT } else { PORT }
}

/// The requests of one machine.
pub(super) struct Webhook<'a> {
    bmc: &'a Bmc,
    requests: &'a BmcWebhook,
    place: String,
    endpoint: Endpoint,
    /// None: without TLS.
    trust: Option<Trust>,
    authorization: Option<HeaderValue>,
    says_on: regex::bytes::Regex,
    says_off: regex::bytes::Regex,
    certificates: &'a Certificates,
    turns: Arc<Semaphore>,
    limits: Limits,
}

impl<'a> Webhook<'a> {
    /// Reads the description. No connection is made yet. `at`: the address to connect to, if it was checked already.
    pub(super) fn new(
        bmc: &'a Bmc,
        at: Option<IpAddr>,
        certificates: &'a Certificates,
        turns: Arc<Semaphore>,
        limits: Limits,
    ) -> Result<Self, Ended> {
        let place = place(bmc);
        let unsupported = |why: String| Ended::error("unsupported", format!("BMC {place}: {why}"));
        let requests =
            bmc.webhook.as_ref().ok_or_else(|| unsupported("bmc.webhook is missing".to_owned()))?;
        let pattern = |field: &str, text: &str| {
            power_pattern(text).map_err(|why| unsupported(format!("bmc.webhook.{field} {text:?}: {why}")))
        };
        let (says_on, says_off) =
            (pattern("says_on", &requests.says_on)?, pattern("says_off", &requests.says_off)?);
        let port = if bmc.port == 0 { u32::from(default_port(bmc)) } else { bmc.port };
        let port = u16::try_from(port).map_err(|_| unsupported("this port does not exist".to_owned()))?;
        let trust = (!requests.plain).then(|| Trust::of(bmc, certificates.known(&place))).transpose();
        let trust = trust.map_err(|why| Ended::error("certificate", format!("BMC {place}: {why}")))?;
        let tls = trust.as_ref().map(Trust::tls);
        let endpoint = Endpoint { host: bmc.address.clone(), at, port, tls };
        let authorization = match (bmc.username.as_str(), bmc.password.as_str()) {
            ("", "") => None,
            ("", token) => Some(basalt_redfish::header::bearer(token)),
            (username, password) => Some(basalt_redfish::header::basic(username, password)),
        };
        let authorization = match authorization {
            Some(None) => {
                return Err(unsupported(
                    "its account cannot be sent in a header; correct bmc.password".to_owned(),
                ));
            }
            known => known.flatten(),
        };
        Ok(Self {
            bmc,
            requests,
            place,
            endpoint,
            trust,
            authorization,
            says_on,
            says_off,
            certificates,
            turns,
            limits,
        })
    }

    async fn post(&self, path: &str) -> Result<(), Ended> {
        self.ask(Method::POST, path).await.map(drop)
    }

    /// Sends a request. Returns the body of the answer, if the answer is a success.
    async fn ask(&self, method: Method, path: &str) -> Result<Bytes, Ended> {
        let _turn = self.turns.acquire().await;
        let request = self.request(&method, path)?;
        let mut link = match self.endpoint.connect(self.limits.connect).await {
            Ok(link) => link,
            Err(error) => return Err(self.unconnected(&error)),
        };
        if let Some(trust) = &self.trust {
            trust.remember(self.bmc, &self.place, self.certificates)?;
        }
        let begun = Instant::now();
        let answer = timeout(self.limits.answer, async {
            let (head, body) = connection::send(&mut link, request).await?.into_parts();
            // The status of a POST shows the success. Its body is not read: it may have any length.
            let is_done = method == Method::POST && code_of(head.status).is_none();
            let body = if is_done { Bytes::new() } else { connection::read(body, MAX_BODY).await? };
            Ok::<_, AnswerError>((head, body))
        });
        let stopped = |why: String| {
            let seconds = begun.elapsed().as_secs_f64();
            let message = format!(
                "{}stopped answering during {method} {path} ({why}), and {seconds:.1} s have passed; it may or may not have been done: look at the power before trying again",
                self.named()
            );
            Ended::error("unreachable", message)
        };
        let (head, body) = match answer.await {
            Err(_) => return Err(stopped("no answer in time".to_owned())),
            Ok(Err(AnswerError::Connection(why))) => return Err(stopped(why)),
            Ok(Err(error @ AnswerError::TooLarge(_))) => {
                let message = format!("{}the answer to {method} {path} is refused: {error}", self.named());
                return Err(Ended::error("unsupported", message));
            }
            Ok(Ok(answer)) => answer,
        };
        match code_of(head.status) {
            None => Ok(body),
            Some((code, advice)) => {
                let message = format!(
                    "{}answered {} to {method} {path}{}{}; {advice}",
                    self.named(),
                    head.status.as_u16(),
                    self.location(&head.headers),
                    self.said(&body)
                );
                Err(Ended::error(code, message))
            }
        }
    }

    fn request(&self, method: &Method, path: &str) -> Result<http::Request<Full<Bytes>>, Ended> {
        let mut builder = http::Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.endpoint.authority())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, "*/*")
            // A compressed answer would have to be unpacked within bounds.
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::CONNECTION, "close");
        if method == Method::POST {
            // RFC 9110 §8.6. Some servers refuse a POST without it.
            builder = builder.header(header::CONTENT_LENGTH, "0");
        }
        if let Some(authorization) = &self.authorization {
            builder = builder.header(header::AUTHORIZATION, authorization);
        }
        builder.body(Full::default()).map_err(|error| {
            Ended::error("unsupported", format!("{}{method} {path} is no request: {error}", self.named()))
        })
    }

    fn unconnected(&self, error: &ConnectError) -> Ended {
        match (error, &self.trust) {
            (ConnectError::Certificate(why), Some(trust)) => {
                let message =
                    format!("{}its certificate is refused: {why}; {}", self.named(), trust.advice());
                Ended::error("certificate", message)
            }
            (ConnectError::Unreachable(why) | ConnectError::Certificate(why), _) => {
                let scheme = if self.trust.is_some() { "HTTPS" } else { "HTTP" };
                let message = format!(
                    "{}unreachable: {why}; check bmc.address and bmc.port, and that it speaks {scheme}",
                    self.named()
                );
                Ended::error("unreachable", message)
            }
        }
    }

    /// The beginning of a message.
    fn named(&self) -> String {
        format!("BMC {}: ", self.place)
    }

    /// The power, as the answer to `status` says.
    fn reading(&self, body: &[u8]) -> Result<Reading, Ended> {
        let found = match (self.says_on.is_match(body), self.says_off.is_match(body)) {
            (true, false) => return Ok(Reading::Still(PowerState::On)),
            (false, true) => return Ok(Reading::Still(PowerState::Off)),
            (true, true) => "both bmc.webhook.says_on and bmc.webhook.says_off are",
            (false, false) => "neither bmc.webhook.says_on nor bmc.webhook.says_off is",
        };
        let message = format!(
            "{}{found} found in the answer to GET {}, {:?}; correct them, or look again later",
            self.named(),
            self.requests.status,
            self.printable(body)
        );
        Err(Ended::error("completion_code", message))
    }

    /// The target of a redirect, for an error.
    fn location(&self, headers: &HeaderMap) -> String {
        let location = headers.get(header::LOCATION).map(|it| self.printable(it.as_bytes()));
        location.map(|location| format!(" with a redirect to {location:?}")).unwrap_or_default()
    }

    /// The service's words about a refused request, for an error.
    fn said(&self, body: &[u8]) -> String {
        if body.is_empty() { String::new() } else { format!(", and said {:?}", self.printable(body)) }
    }

    /// The beginning of an answer, for an error. Services in development show the headers that they got, so the account is masked.
    fn printable(&self, answer: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(answer).into_owned();
        let header = self.authorization.as_ref().and_then(|it| it.to_str().ok());
        let credentials = header.and_then(|it| it.split_once(' ')).map(|(_, credentials)| credentials);
        for secret in [self.bmc.password.as_str()].into_iter().chain(credentials).filter(|it| !it.is_empty())
        {
            text = text.replace(secret, "***");
        }
        told(&text)
    }

    /// Waits until the power reads as off.
    async fn off(&mut self) -> Result<(), Ended> {
        let Patience { still, poll, .. } = self.limits.off;
        let until = Instant::now() + still;
        let mut pause = poll.0;
        while self.power().await? != Reading::Still(PowerState::Off) {
            if Instant::now() >= until {
                let message = format!(
                    "{}took {}, and its power still reads as on after {} s; it was not switched on again",
                    self.named(),
                    self.requests.off,
                    still.as_secs()
                );
                return Err(Ended { power: "on", ..Ended::error("moving", message) });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(poll.1);
        }
        Ok(())
    }
}

impl Conversation for Webhook<'_> {
    async fn power(&mut self) -> Result<Reading, Ended> {
        let body = self.ask(Method::GET, &self.requests.status).await?;
        self.reading(&body)
    }

    async fn send(&mut self, verb: PowerVerb) -> Result<(), Ended> {
        let requests = self.requests;
        match verb {
            PowerVerb::On => self.post(&requests.on).await,
            PowerVerb::Off => self.post(&requests.off).await,
            PowerVerb::Soft if requests.soft_off.is_empty() => {
                let message = format!(
                    "{}has no request that asks a system to shut down; declare bmc.webhook.soft_off if the service has one",
                    self.named()
                );
                Err(Ended::error("unsupported", message))
            }
            PowerVerb::Soft => self.post(&requests.soft_off).await,
            PowerVerb::Cycle | PowerVerb::Reset if requests.cycle.is_empty() => {
                self.post(&requests.off).await?;
                self.off().await?;
                self.post(&requests.on).await
            }
            PowerVerb::Cycle | PowerVerb::Reset => self.post(&requests.cycle).await,
        }
    }

    /// Does nothing: no request chooses the boot device.
    async fn boot(&mut self, _: BootDevice, _: bool) -> Result<(), Ended> {
        Ok(())
    }

    async fn reset_bmc(self) -> Result<String, Ended> {
        let message = format!("BMC {}: a web service has no request that resets a BMC", self.place);
        Err(Ended::error("unsupported", message))
    }

    async fn close(self) -> String {
        self.trust.and_then(|trust| trust.shown()).map(hex::encode).unwrap_or_default()
    }
}

/// The code of a status, and advice. None: the request was carried out.
fn code_of(status: StatusCode) -> Option<(&'static str, &'static str)> {
    Some(match status.as_u16() {
        200..=299 => return None,
        300..=399 => {
            let advice =
                "redirects are not followed: correct bmc.address, bmc.port, and the path in bmc.webhook";
            ("unsupported", advice)
        }
        401 => ("bad_password", "correct bmc.username and bmc.password"),
        403 => ("privilege", "let the account switch this machine, or name another account in bmc.username"),
        501 => ("unsupported", "correct the path in bmc.webhook"),
        408 | 425 | 429 | 500..=599 => ("completion_code", "the service has a log that says more"),
        _ => ("unsupported", "correct the path in bmc.webhook"),
    })
}

#[cfg(test)]
mod tests;
