//! One request to a receiver.
//!
//! | header | is |
//! | --- | --- |
//! | `webhook-id` | the delivery; the same at every attempt |
//! | `webhook-timestamp` | seconds since 1970 of this attempt |
//! | `webhook-signature` | `v1,BASE64`, if the webhook has a secret |
//! | `basalt-attempt` | 1, 2, … |
//! | `traceparent` | the trace that the event belongs to, if there is one |
//!
//! 2xx accepts, 410 ends the subscription, any other answer leads to a retry. Redirects are not followed, no proxy is used, and only
//! the first bytes of an answer are read. Receivers on this host (at any of its addresses) and on its links are refused, also by name,
//! unless the setting `webhook-networks` names them. So nobody can make the region send requests to its own API, or to a cloud's
//! metadata service.

use super::PARALLEL;
use super::sign::signature;
use basalt_api::values::Cidr;
use basalt_db::Delivery;
use basalt_proto::local::is_local;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// The number of bytes of an answer that are read.
const ANSWER: usize = 4096;

/// The longest pause that a receiver can request, in seconds.
const LONGEST_RETRY_AFTER: u64 = 3600;

/// The longest stored message, in characters; longer ones are cut.
const MESSAGE: usize = 500;

/// The receiver of deliveries.
pub(super) struct Receiver {
    /// The webhook's name.
    pub(super) name: String,
    pub(super) url: String,
    pub(super) secret: Option<Zeroizing<Vec<u8>>>,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The receiver answered 2xx.
    Accepted,
    /// The receiver answered 410: it wants no further deliveries.
    Gone(String),
    /// Any other answer, or none.
    Failed {
        error: String,
        /// The pause that the receiver requested.
        retry_after: Option<Duration>,
    },
}

/// Sends requests to receivers.
#[derive(Debug)]
pub(super) struct Poster {
    client: Client,
    reach: Reach,
}

/// The networks to which requests may go.
#[derive(Clone, Debug)]
struct Reach(Arc<[Cidr]>);

impl Reach {
    fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if !self.0.is_empty() {
            return self.0.iter().any(|network| network.contains(address));
        }
        !is_local(address)
    }
}

impl Resolve for Reach {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> =
                found.iter().copied().filter(|address| reach.allows(address.ip())).collect();
            if let (Some(first), true) = (found.first(), allowed.is_empty()) {
                return Err(refused(first.ip()).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

fn refused(address: IpAddr) -> String {
    format!("receivers at {address} are not allowed; the setting webhook-networks names those that are")
}

impl Poster {
    pub(super) fn new(networks: &[Cidr], timeout: Duration) -> Result<Self, String> {
        let reach = Reach(networks.into());
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(reach.clone()))
            .connect_timeout(timeout)
            .timeout(timeout)
            .pool_max_idle_per_host(PARALLEL)
            .user_agent(concat!("basalt-region/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(crate::tls::with_system_roots()?)
            .build()
            .map_err(|error| root_cause(&error))?;
        Ok(Self { client, reach })
    }

    pub(super) async fn post(&self, receiver: &Receiver, delivery: &Delivery, body: Vec<u8>) -> Outcome {
        let failed = |error: String| Outcome::Failed { error: short(&error), retry_after: None };
        let url: Url = match receiver.url.parse() {
            Ok(url) => url,
            Err(error) => return failed(format!("{:?} is no URL: {error}", receiver.url)),
        };
        // The host is an address, so the resolver, which checks addresses, is not used.
        let literal = url.host_str().map(|host| host.trim_matches(['[', ']']).parse::<IpAddr>());
        if let Some(Ok(address)) = literal
            && !self.reach.allows(address)
        {
            return failed(refused(address));
        }
        let id = delivery.id.to_string();
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", timestamp)
            .header("basalt-attempt", delivery.attempt);
        if let Some(secret) = &receiver.secret {
            request = request.header("webhook-signature", signature(secret, &id, timestamp, &body));
        }
        if let Some(trace) = &delivery.trace {
            request = request.header("traceparent", trace);
        }
        match request.body(body).send().await {
            Ok(response) => outcome(response).await,
            Err(error) if error.is_timeout() => failed("no answer in time".to_owned()),
            Err(error) => failed(root_cause(&error)),
        }
    }
}

async fn outcome(mut response: Response) -> Outcome {
    let status = response.status();
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let retry_after = header(RETRY_AFTER)
        .and_then(|text| text.parse().ok())
        .map(|seconds: u64| Duration::from_secs(seconds.min(LONGEST_RETRY_AFTER)));
    let failed = |error: String| Outcome::Failed { error: short(&error), retry_after };
    if status.is_redirection() {
        let to = header(LOCATION).unwrap_or("somewhere");
        return failed(format!("answered {status}, to {to:?}: no redirect is followed; declare that url"));
    }
    // A short answer is read to its end, so that the connection can be used again.
    let mut said = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        said.extend_from_slice(&chunk);
        if said.len() > ANSWER {
            break;
        }
    }
    if status.is_success() {
        return Outcome::Accepted;
    }
    let said = String::from_utf8_lossy(&said);
    let error = match said.trim() {
        "" => format!("answered {status}"),
        said => format!("answered {status}: {said}"),
    };
    match status {
        StatusCode::GONE => Outcome::Gone(short(&error)),
        _ => failed(error),
    }
}

/// Removes control characters, which terminals and PostgreSQL do not accept.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MESSAGE).collect()
}

/// The innermost error, on which a person can act.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_and_its_links_are_not_reached_unless_they_are_named() {
        let anywhere = Reach(Arc::from([]));
        for (address, allowed) in [
            ("192.0.2.1", true),
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("::", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(anywhere.allows(address.parse().unwrap()), allowed, "{address}");
        }
        let named = Reach(Arc::from(["127.0.0.0/8".parse().unwrap()]));
        assert!(named.allows("127.0.0.1".parse().unwrap()) && !named.allows("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn what_a_receiver_says_is_cut_and_cleaned() {
        assert_eq!(short("a\u{0}b\nc\u{1b}[2J"), "abc[2J");
        assert_eq!(short(&"x".repeat(5000)).len(), MESSAGE);
    }
}
