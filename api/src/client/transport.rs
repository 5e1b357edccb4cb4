//! Sends a call to one of the regions and reads its answer.

use super::proxies::is_this_host;
use super::{ClientConfig, ClientError, Precondition, sending, tls};
use crate::problem::{PROBLEM_JSON, Problem, ProblemCode};
use crate::values::RunId;
use crate::watch::LAST_EVENT_ID;
use crate::wire::{IDEMPOTENCY_HEADER, MANAGER_HEADER, RUN_HEADER};
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, RETRY_AFTER,
};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Most bytes of an answer. A page of a thousand objects is far smaller.
const MAX_ANSWER: usize = 256 << 20;

/// First pause before all endpoints are tried again. It doubles until `LAST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// The error text for an answer that does not come in time.
const LATE: &str = "no answer in time; repeating the request is safe";

/// One request, ready for any endpoint.
pub(super) struct Call {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
    timeout: Option<Duration>,
    streaming: bool,
    /// True if a repeat of the call changes nothing more, although its method is not idempotent.
    repeatable: bool,
    /// True if a region may already be doing the request.
    may_be_done: AtomicBool,
}

impl Call {
    pub(super) fn new(method: Method, path: &str) -> Self {
        Self {
            method,
            path: path.to_owned(),
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: None,
            timeout: None,
            streaming: false,
            repeatable: false,
            may_be_done: AtomicBool::new(false),
        }
    }

    pub(super) fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    pub(super) fn query(mut self, name: &'static str, value: &str) -> Self {
        self.query.push((name, value.to_owned()));
        self
    }

    /// Asks the region to continue after this event.
    pub(super) fn after(mut self, event: &str) -> Self {
        if let Ok(event) = HeaderValue::from_str(event) {
            self.headers.insert(LAST_EVENT_ID, event);
        }
        self
    }

    pub(super) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(super) fn condition(mut self, precondition: Precondition) -> Self {
        let header = match precondition {
            Precondition::None => return self,
            Precondition::Absent => (IF_NONE_MATCH, HeaderValue::from_static("*")),
            Precondition::Generation(generation) => {
                let tag = HeaderValue::from_str(&format!("\"{generation}\""));
                (IF_MATCH, tag.unwrap_or_else(|_| HeaderValue::from_static("")))
            }
        };
        self.headers.insert(header.0, header.1);
        self
    }

    /// Sets the media type of the body, if it is not plain JSON.
    pub(super) fn media_type(mut self, media_type: &'static str) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        self
    }

    /// Marks every try of this call as one request, with this idempotency key.
    pub(super) fn idempotent(mut self, key: &str) -> Self {
        if let Ok(key) = HeaderValue::from_str(key) {
            self.headers.insert(HeaderName::from_static("idempotency-key"), key);
        }
        self
    }

    /// Marks the call as safe to repeat: a second try changes nothing more.
    pub(super) fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    pub(super) fn body<T: Serialize>(mut self, body: &T) -> Result<Self, ClientError> {
        let bytes = serde_json::to_vec(body)
            .map_err(|e| ClientError::Config { setting: "request", why: e.to_string() })?;
        self.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        self.body = Some(bytes);
        Ok(self)
    }

    fn again(&self) -> Again {
        match (self.is_idempotent(), self.timeout) {
            (false, _) => Again::Never,
            (true, Some(_)) => Again::Broken,
            (true, None) => Again::Late,
        }
    }

    /// True if the call may be sent again after its answer was lost: twice has the effect of once (RFC 9110 §9.2.2). If it has a
    /// precondition, the second try may be refused because the first one succeeded.
    fn is_idempotent(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD | Method::PUT | Method::DELETE)
            || self.repeatable
            || self.headers.contains_key(IDEMPOTENCY_HEADER)
            || self.is_dry_run()
    }

    fn is_dry_run(&self) -> bool {
        self.query.iter().any(|(name, value)| (*name, value.as_str()) == ("dry_run", "true"))
    }

    /// True if the call changes data.
    fn changes(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD) && !self.is_dry_run()
    }

    /// True if a region may be doing the request, or may have done it.
    pub(super) fn may_be_done(&self) -> bool {
        self.may_be_done.load(Ordering::Relaxed)
    }
}

/// Cases in which a request that a region may have received can go to another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Again {
    /// In no case: two requests would have two effects.
    Never,
    /// If the connection broke. Not after a timeout: the request itself waits for an event, so a late answer is no error of the region.
    Broken,
    /// If the connection broke, or no answer came in time.
    Late,
}

/// An endpoint: a region, and the HTTP client that reaches it.
#[derive(Debug)]
struct Endpoint {
    base: Url,
    http: reqwest::Client,
    /// As configured, for messages.
    shown: String,
}

/// Sends calls to the endpoints in turn.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    endpoints: Arc<[Endpoint]>,
    /// Index of the endpoint that answered last.
    preferred: Arc<AtomicUsize>,
    timeout: Duration,
    patience: Duration,
    /// The run of the client, sent with creations.
    run: Option<RunId>,
    /// Cancelled when the caller does not want answers any more.
    pub(super) end: CancellationToken,
}

/// The failure of one endpoint, which decides if the next one is tried.
enum Failure {
    /// This client refused the certificate. Every try gets the same one, so the endpoint counts as unreachable.
    Distrusted(String),
    NextEndpoint {
        error: ClientError,
        retry_after: Option<Duration>,
        is_undone: bool,
    },
    Final(ClientError),
}

impl Transport {
    pub(super) fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        if config.endpoints.is_empty() {
            return Err(ClientError::Config {
                setting: "endpoints",
                why: "there is none; give at least one, like https://region.example.com:5240".to_owned(),
            });
        }
        let headers = default_headers(config)?;
        let endpoints =
            config.endpoints.iter().map(|e| endpoint(e, config, &headers)).collect::<Result<_, _>>()?;
        Ok(Self {
            endpoints,
            preferred: Arc::default(),
            timeout: config.timeout,
            patience: config.patience,
            run: None,
            end: CancellationToken::new(),
        })
    }

    pub(super) fn until(self, end: CancellationToken) -> Self {
        Self { end, ..self }
    }

    pub(super) fn of_run(self, run: RunId) -> Self {
        Self { run: Some(run), ..self }
    }

    pub(super) fn within(self, timeout: Duration, patience: Duration) -> Self {
        Self { timeout, patience, ..self }
    }

    /// Index of the endpoint that is asked first.
    #[cfg(test)]
    pub(super) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    /// Sends `call` and reads the JSON of its answer.
    pub(super) async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        self.json_with_status(call).await.map(|(_, body)| body)
    }

    /// The same as `json`, with the HTTP status.
    pub(super) async fn json_with_status<T: DeserializeOwned>(
        &self,
        call: Call,
    ) -> Result<(StatusCode, T), ClientError> {
        let answered = async {
            let response = self.tries(&call).await?;
            let status = response.status();
            Ok((status, decode(response).await?))
        };
        self.wanted(&call, answered).await
    }

    /// Sends `call` to the regions in turn until one answers.
    pub(super) async fn send(&self, call: &Call) -> Result<Response, ClientError> {
        self.wanted(call, self.tries(call)).await
    }

    fn request(&self, endpoint: &Endpoint, call: &Call) -> RequestBuilder {
        let mut url = join(&endpoint.base, &call.path);
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        let mut request = endpoint.http.request(call.method.clone(), url).headers(call.headers.clone());
        if let Some(run) = self.run.filter(|_| call.method == Method::PUT) {
            request = request.header(RUN_HEADER, run.to_string());
        }
        if !call.streaming {
            request = request.timeout(call.timeout.unwrap_or(self.timeout));
        }
        match &call.body {
            Some(body) => request.body(body.clone()),
            None => request,
        }
    }

    /// Sends a call whose answer has a body without end, such as a watch. Only the head of the answer has a time limit.
    pub(super) async fn stream(&self, call: Call) -> Result<Response, ClientError> {
        let call = Call { streaming: true, ..call };
        let limit = self.timeout + self.patience;
        tokio::time::timeout(limit, self.send(&call)).await.unwrap_or_else(|_| {
            Err(ClientError::Broken { url: call.path, why: format!("no answer in {}s", limit.as_secs()) })
        })
    }

    /// Sends a request once, to the preferred endpoint. For a body that is a stream, which cannot be sent again.
    pub(super) async fn send_once(
        &self,
        method: Method,
        path: &str,
        build: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, ClientError> {
        let at = self.preferred.load(Ordering::Relaxed);
        let Some(endpoint) = self.endpoints.get(at) else {
            return Err(ClientError::Unreachable { tried: Vec::new(), patience: self.patience });
        };
        let request = build(endpoint.http.request(method, join(&endpoint.base, path)));
        let other = || self.preferred.store((at + 1) % self.endpoints.len(), Ordering::Relaxed);
        try_once(endpoint, request, Again::Broken).await.map_err(|failure| match failure {
            Failure::Distrusted(why) => {
                other();
                ClientError::Distrusted { tried: vec![why] }
            }
            Failure::NextEndpoint { error, .. } => {
                other();
                error
            }
            Failure::Final(error) => error,
        })
    }

    async fn tries(&self, call: &Call) -> Result<Response, ClientError> {
        let again = call.again();
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let first = self.preferred.load(Ordering::Relaxed);
            let mut tried = Vec::new();
            let mut asked_for = Duration::ZERO;
            let mut refusal = None;
            let mut distrusted = 0;
            for offset in 0..self.endpoints.len() {
                let at = (first + offset) % self.endpoints.len();
                let Some(endpoint) = self.endpoints.get(at) else { continue };
                let may_be_done = call.may_be_done.swap(call.changes(), Ordering::Relaxed);
                match try_once(endpoint, self.request(endpoint, call), again).await {
                    Ok(response) => {
                        self.preferred.store(at, Ordering::Relaxed);
                        return Ok(response);
                    }
                    Err(Failure::Final(error)) => {
                        // An endpoint that took the request and did not answer in time is not tried first again.
                        if matches!(error, ClientError::Broken { .. }) {
                            self.preferred.store((at + 1) % self.endpoints.len(), Ordering::Relaxed);
                        }
                        return Err(error);
                    }
                    Err(Failure::Distrusted(why)) => {
                        call.may_be_done.store(may_be_done, Ordering::Relaxed);
                        distrusted += 1;
                        tried.push(why);
                    }
                    Err(Failure::NextEndpoint { error, retry_after, is_undone }) => {
                        if is_undone {
                            call.may_be_done.store(may_be_done, Ordering::Relaxed);
                        }
                        tried.push(error.to_string());
                        asked_for = asked_for.max(retry_after.unwrap_or_default());
                        refusal = refusal.or(matches!(error, ClientError::Problem(_)).then_some(error));
                    }
                }
            }
            if distrusted == self.endpoints.len() {
                return Err(ClientError::Distrusted { tried });
            }
            let wait = pause.max(asked_for);
            if began.elapsed().saturating_add(wait) > self.patience {
                return Err(refusal.unwrap_or(ClientError::Unreachable { tried, patience: self.patience }));
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }
}

/// Sends one request to one endpoint. If there is no answer and the request may be sent again, the next endpoint is tried. A request that
/// cannot be built fails at once.
async fn try_once(endpoint: &Endpoint, request: RequestBuilder, again: Again) -> Result<Response, Failure> {
    let response = match sending::send(request).await {
        Ok(response) => response,
        Err(error) => return Err(unanswered(endpoint, &error, again)),
    };
    if response.status().is_success() {
        return Ok(response);
    }
    Err(refused(response, again).await)
}

/// The failure of a request without an answer.
fn unanswered(endpoint: &Endpoint, error: &reqwest::Error, again: Again) -> Failure {
    let cause = root_cause(error);
    if let Some(why) = tls::distrust(error) {
        return Failure::Distrusted(format!("{}: {cause}: {}", endpoint.shown, tls::advice(why)));
    }
    let why = if error.is_timeout() { LATE.to_owned() } else { in_words(cause) };
    let is_undone = sending::is_unseen(error);
    if is_undone || (error.is_request() && again >= needed(error)) {
        let error = ClientError::Broken { url: endpoint.shown.clone(), why };
        return Failure::NextEndpoint { error, retry_after: None, is_undone };
    }
    let url = error.url().map_or_else(|| endpoint.shown.clone(), Url::to_string);
    Failure::Final(ClientError::Broken { url, why })
}

/// The least `Again` that allows a retry after this error.
fn needed(error: &reqwest::Error) -> Again {
    if error.is_timeout() { Again::Late } else { Again::Broken }
}

/// The failure of an answer whose status is not a success.
async fn refused(response: Response, again: Again) -> Failure {
    let (url, status) = (response.url().to_string(), response.status());
    let is_problem = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|v| v.starts_with(PROBLEM_JSON));
    if status == StatusCode::NOT_FOUND && !is_problem {
        // Another server answered, or a proxy without a region behind it. Its 404 does not mean that the object is missing.
        let why = "that is no region's answer; check the endpoint, and its port: a region's is 5240 unless it is told another".to_owned();
        let error = ClientError::Unexpected { url, status: status.as_u16(), why };
        return Failure::NextEndpoint { error, retry_after: None, is_undone: true };
    }
    // With these two statuses, neither a region nor a proxy before it has done the request.
    let is_undone = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    // A proxy lost its region. It is unknown if the request was done.
    let is_lost = matches!(status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT);
    let is_for_now = is_undone || (is_lost && again >= Again::Broken);
    let asked_for = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let body = match read(response).await {
        Ok(body) => body,
        Err(error) => return Failure::Final(error),
    };
    let unexpected = |why: String| ClientError::Unexpected { url: url.clone(), status: status.as_u16(), why };
    if !is_problem {
        let text: String = String::from_utf8_lossy(&body).chars().take(200).collect();
        return if is_for_now {
            let retry_after = asked_for.map(Duration::from_secs);
            Failure::NextEndpoint { error: unexpected(text), retry_after, is_undone }
        } else {
            Failure::Final(unexpected(text))
        };
    }
    // An answer to HEAD has no body.
    if body.is_empty() && status == StatusCode::NOT_FOUND {
        return Failure::Final(Problem::new(ProblemCode::NotFound, url).into());
    }
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) if is_for_now => {
            let retry_after = problem.retry_after.or(asked_for).map(Duration::from_secs);
            Failure::NextEndpoint { error: problem.into(), retry_after, is_undone }
        }
        Ok(problem) => Failure::Final(problem.into()),
        Err(error) => Failure::Final(unexpected(error.to_string())),
    }
}

/// The JSON of an answer. An answer without a body reads as null.
pub(super) async fn decode<T: DeserializeOwned>(response: Response) -> Result<T, ClientError> {
    let (url, status) = (response.url().to_string(), response.status().as_u16());
    let body = read(response).await?;
    let body = if body.is_empty() { b"null" } else { body.as_slice() };
    serde_json::from_slice(body).map_err(|e| ClientError::Unexpected { url, status, why: e.to_string() })
}

async fn read(mut response: Response) -> Result<Vec<u8>, ClientError> {
    let (url, status) = (response.url().to_string(), response.status().as_u16());
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_ANSWER => body.extend_from_slice(&chunk),
            Ok(Some(_)) => {
                let why = format!("the answer is longer than {MAX_ANSWER} bytes");
                return Err(ClientError::Unexpected { url, status, why });
            }
            Ok(None) => return Ok(body),
            Err(error) => return Err(ClientError::Broken { url, why: root_cause(&error) }),
        }
    }
}

fn default_headers(config: &ClientConfig) -> Result<HeaderMap, ClientError> {
    let mut headers = HeaderMap::new();
    let value = |setting: &'static str, text: &str| {
        HeaderValue::from_str(text).map_err(|_| ClientError::Config {
            setting,
            why: "it has characters that no header can carry".to_owned(),
        })
    };
    if let Some(token) = &config.token {
        let mut bearer = value("token", &format!("Bearer {}", token.trim()))?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    if let Some(manager) = &config.manager {
        let name = HeaderName::from_bytes(MANAGER_HEADER.as_bytes())
            .map_err(|e| ClientError::Config { setting: "manager", why: e.to_string() })?;
        headers.insert(name, value("manager", manager)?);
    }
    Ok(headers)
}

fn endpoint(text: &str, config: &ClientConfig, headers: &HeaderMap) -> Result<Endpoint, ClientError> {
    let wrong = |why: String| ClientError::Config { setting: "endpoints", why: format!("{text:?}: {why}") };
    let mut builder = reqwest::Client::builder()
        .default_headers(headers.clone())
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(5).min(config.timeout))
        .user_agent(
            config.user_agent.as_deref().unwrap_or(concat!("basalt-api/", env!("CARGO_PKG_VERSION"))),
        );
    let url = if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        if !path.starts_with('/') {
            return Err(wrong(
                "give the socket's absolute path, like unix:/var/lib/basalt/api.sock".to_owned(),
            ));
        }
        builder = builder.unix_socket(std::path::Path::new(path));
        "http://localhost/".to_owned()
    } else {
        text.to_owned()
    };
    if !url.contains("://") {
        let is_here = format!("http://{text}").parse().is_ok_and(|url| is_this_host(&url));
        let scheme = if is_here { "http" } else { "https" };
        return Err(wrong(format!(
            "it does not say how it is spoken to; {scheme}://{text}, or unix:/PATH for a socket of this host"
        )));
    }
    let mut base: Url =
        url.parse().map_err(|e| wrong(format!("{e}; like https://HOST:5240 or unix:/PATH")))?;
    let key = tls::pinned_key(&base).map_err(wrong)?;
    base.set_fragment(None);
    if base.path().trim_end_matches('/').ends_with("/api/v1") {
        return Err(wrong(
            "it ends with /api/v1, which every request has by itself; leave that out".to_owned(),
        ));
    }
    match base.scheme() {
        "https" => {}
        "http" if is_this_host(&base) || config.allow_plaintext || config.token.is_none() => {}
        "http" => {
            return Err(wrong(
                "the token would travel in the clear; use https, or allow plaintext".to_owned(),
            ));
        }
        other => return Err(wrong(format!("{other:?} is not http, https or unix"))),
    }
    let mut shown = text.split('#').next().unwrap_or(text).to_owned();
    builder = match config.proxies.to(&base)? {
        Some((proxy, through)) => {
            shown = format!("{shown} (through {through})");
            builder.proxy(proxy)
        }
        None => builder.no_proxy(),
    };
    let tls = tls::of(config, base.scheme() == "https", key)?;
    let http = builder.tls_backend_preconfigured(tls).build().map_err(|e| wrong(root_cause(&e)))?;
    Ok(Endpoint { base, http, shown })
}

/// `path` below the endpoint's own.
fn join(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    url
}

/// `text` as one segment of a path.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// Advice for a person, by a part of the cause's text.
const ADVICE: &[(&str, &str)] = &[
    ("InvalidContentType", "it speaks no TLS; plain HTTP is asked for with http://"),
    ("invalid HTTP version", "it does not speak plain HTTP; TLS is asked for with https://"),
    (
        "failed to lookup address",
        "look at the host's name in the endpoint, and whether this host can resolve names",
    ),
    ("Connection reset", HUNG_UP),
    ("handshake eof", HUNG_UP),
    ("Connection refused", "nothing listens there; look at host and port, and whether the region runs"),
];

const HUNG_UP: &str = "it hung up; look at the port, and whether it speaks TLS (https://) or not (http://)";

/// The cause with advice, if there is any for it.
fn in_words(cause: String) -> String {
    match ADVICE.iter().find(|(words, _)| cause.contains(words)) {
        Some((_, advice)) => format!("{cause}: {advice}"),
        None => cause,
    }
}

/// The innermost error of a chain. It names the cause that a person can remove.
pub(super) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
