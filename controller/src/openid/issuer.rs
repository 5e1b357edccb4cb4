//! The issuer's keys and endpoints, as it publishes them (OpenID Connect Discovery 1.0 §4). They are fetched on demand and kept for an
//! hour.

use super::flow::{Endpoints, Exchange};
use super::token::Keys;
use basalt_api::values::{BadValue, Url};
use reqwest::Client;
use std::sync::Mutex as Short;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The longest time of an answer, including the connection.
const ANSWER: Duration = Duration::from_secs(10);
/// The largest answer in bytes. Configurations and key sets have some kilobytes.
const LARGEST: usize = 512 << 10;
/// How long fetched keys are used.
const KEEP: Duration = Duration::from_secs(3600);
/// The shortest time between two fetches for a missing key: anybody can send a token with an invented key id.
const AGAIN: Duration = Duration::from_secs(60);
/// The pause after an issuer did not answer.
const REST: Duration = Duration::from_secs(5);

/// The number of characters of an issuer's answer that an error repeats.
const REPEATED: usize = 200;

/// The reason why the issuer's keys are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the issuer {issuer} cannot be asked: {reason}")]
pub(crate) struct Unreachable {
    issuer: String,
    reason: String,
}

#[derive(Debug)]
struct Kept {
    issuer: String,
    at: Instant,
    /// When the keys were last fetched again because one was missing.
    missed: Option<Instant>,
    known: Result<(Keys, Endpoints), Unreachable>,
}

impl Kept {
    fn is_good(&self, is_one_missing: bool) -> bool {
        match self.known {
            Err(_) => self.at.elapsed() < REST,
            Ok(_) if is_one_missing => self.missed.is_some_and(|missed| missed.elapsed() < AGAIN),
            Ok(_) => self.at.elapsed() < KEEP,
        }
    }
}

/// The cached data of the issuer.
#[derive(Debug, Default)]
pub(crate) struct Issuers {
    client: Short<Option<Client>>,
    /// Locked during a fetch: other callers wait for the same answer.
    kept: Mutex<Option<Kept>>,
}

impl Issuers {
    /// The keys of this issuer. If one is missing among the cached ones, they are fetched again.
    pub(crate) async fn keys(&self, issuer: &str, is_one_missing: bool) -> Result<Keys, Unreachable> {
        self.known(issuer, is_one_missing).await.map(|(keys, _)| keys)
    }

    /// The endpoints of this issuer.
    pub(crate) async fn endpoints(&self, issuer: &str) -> Result<Endpoints, Unreachable> {
        self.known(issuer, false).await.map(|(_, endpoints)| endpoints)
    }

    async fn known(&self, issuer: &str, is_one_missing: bool) -> Result<(Keys, Endpoints), Unreachable> {
        let mut kept = self.kept.lock().await;
        let known = kept.as_ref().filter(|kept| kept.issuer == issuer);
        if let Some(known) = known.filter(|kept| kept.is_good(is_one_missing)) {
            return known.known.clone();
        }
        let missed = if is_one_missing { Some(Instant::now()) } else { known.and_then(|kept| kept.missed) };
        let before = known
            .filter(|kept| is_one_missing && kept.known.is_ok())
            .map(|kept| (kept.at, kept.known.clone()));
        let fetched = tokio::time::timeout(ANSWER, self.fetch(issuer)).await;
        let fetched = fetched
            .unwrap_or_else(|_| Err(format!("no answer within {} seconds", ANSWER.as_secs())))
            .map_err(|reason| Unreachable { issuer: issuer.to_owned(), reason });
        // If the fetch fails, the cached keys stay valid for other tokens.
        let (at, keep) = match (before, &fetched) {
            (Some(before), Err(_)) => before,
            _ => (Instant::now(), fetched.clone()),
        };
        *kept = Some(Kept { issuer: issuer.to_owned(), at, missed, known: keep });
        fetched
    }

    async fn fetch(&self, issuer: &str) -> Result<(Keys, Endpoints), String> {
        #[derive(serde::Deserialize)]
        struct Configuration {
            issuer: String,
            jwks_uri: String,
            #[serde(flatten)]
            endpoints: Endpoints,
        }
        let well_known = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let text = self.get(&well_known).await?;
        let found: Configuration = serde_json::from_slice(&text)
            .map_err(|error| format!("{well_known} says something else: {error}"))?;
        if found.issuer != issuer {
            return Err(format!(
                "{well_known} is of the issuer {:?}: write that one in Settings, as openid.issuer",
                found.issuer
            ));
        }
        let text = self.get(&found.jwks_uri).await?;
        let keys =
            Keys::parse(&text).map_err(|error| format!("{} is no key set: {error}", found.jwks_uri))?;
        match keys.is_empty() {
            true => Err(format!("{} has no key that signs", found.jwks_uri)),
            false => Ok((keys, found.endpoints)),
        }
    }

    /// Exchanges a code for the ID token (OpenID Connect Core 1.0 §3.1.3). The request has the code and the client id.
    ///
    /// # Errors
    /// Fails if the issuer refuses or does not answer.
    pub(crate) async fn exchange(&self, endpoint: &str, exchange: Exchange) -> Result<String, String> {
        #[derive(serde::Deserialize)]
        struct Tokens {
            id_token: String,
        }
        #[derive(Default, serde::Deserialize)]
        struct Refused {
            #[serde(default)]
            error: String,
            #[serde(default)]
            error_description: String,
        }
        let url = protected(endpoint)?;
        let mut request = self
            .client()?
            .post(url.as_str())
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json")
            .body(exchange.form);
        if let Some(basic) = exchange.basic {
            request = request.header("authorization", basic);
        }
        let answer = request.send().await.map_err(|error| format!("{url}: {}", root_cause(&error)))?;
        let status = answer.status();
        let text = read(&url, answer).await?;
        if !status.is_success() {
            let Refused { error, error_description } = serde_json::from_slice(&text).unwrap_or_default();
            let words: String =
                format!("{error} {error_description}").trim().chars().take(REPEATED).collect();
            return Err(format!("{url} answered {status}: {words:?}"));
        }
        let tokens: Tokens =
            serde_json::from_slice(&text).map_err(|error| format!("{url} gives no ID token: {error}"))?;
        Ok(tokens.id_token)
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let url = protected(url)?;
        let sent = self.client()?.get(url.as_str()).send().await;
        let answer = sent.map_err(|error| format!("{url}: {}", root_cause(&error)))?;
        if !answer.status().is_success() {
            return Err(format!("{url} answered {}", answer.status()));
        }
        read(&url, answer).await
    }

    fn client(&self) -> Result<Client, String> {
        let mut made = self.client.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(client) = &*made {
            return Ok(client.clone());
        }
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ANSWER)
            .user_agent(concat!("basalt-region/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(crate::tls::with_system_roots()?)
            .build()
            .map_err(|error| root_cause(&error))?;
        Ok(made.insert(client).clone())
    }
}

fn protected(url: &str) -> Result<Url, String> {
    let url: Url = url.parse().map_err(|error: BadValue| error.to_string())?;
    match url.is_protected() {
        true => Ok(url),
        false => Err(format!("{url} could be anybody's: nothing protects it on its way")),
    }
}

/// The body of an answer, up to the limit.
async fn read(url: &Url, mut answer: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| format!("{url}: {}", root_cause(&error)))? {
        text.extend_from_slice(&chunk);
        if text.len() > LARGEST {
            return Err(format!("{url} has more than {LARGEST} bytes"));
        }
    }
    Ok(text)
}

/// The innermost error, on which a person can act.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
