//! A Redfish service, as its own machine asks it through the host interface (DSP0270): reads with redirects and pages, and changes.
//!
//! [`Exchange`] is all the I/O. An account is shown with each request that has one, by Basic authentication, so that no session
//! stays behind.

use serde_json::Value;

use crate::core::{Method, Request, is_etag};
use crate::error::told;
use crate::reference::Origin;
use crate::resource::{link, members, said, text};

/// The service root (DSP0266 §6.2).
const ROOT: &str = "/redfish/v1/";
/// Requests of one service. The largest table of accounts has 64, each of which is read once.
const MAX_REQUESTS: u32 = 256;
/// Members of a collection that are read.
const MAX_MEMBERS: usize = 64;
/// Redirects of one read.
const MAX_REDIRECTS: u32 = 4;

/// An account of the service.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The user's password.
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// An answer that came whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The header Location.
    pub location: Option<String>,
    /// The header ETag.
    pub etag: Option<String>,
    /// The whole body.
    pub body: Vec<u8>,
}

/// The way to one service.
pub trait Exchange {
    /// Sends a request, with an account or without, and waits for the answer.
    ///
    /// # Errors
    /// There was no answer; the text says why.
    fn ask(&mut self, request: &Request, login: Option<&Login>) -> Result<Reply, String>;

    /// Waits for some seconds: a BMC may store an account after it has answered.
    fn pause(&mut self);
}

/// Why the service did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// No answer came within the exchange's deadlines.
    #[error("the BMC does not answer {request}: {why}")]
    Silent {
        /// Method and path of the request.
        request: String,
        /// The reason, in the words of the exchange.
        why: String,
    },
    /// An answer that is none of Redfish.
    #[error("the BMC's answer to {request} is no Redfish: {why}")]
    Malformed {
        /// Method and path of the request.
        request: String,
        /// The flaw of the answer.
        why: &'static str,
    },
    /// An HTTP status that refuses the request.
    #[error("the BMC refuses {request}: {status}{said}")]
    Refused {
        /// Method and path of the request.
        request: String,
        /// The HTTP status.
        status: u16,
        /// The words of the BMC, which begin with ": ", or nothing.
        said: String,
    },
    /// The service refers from one resource to the next without end.
    #[error("the BMC was asked {MAX_REQUESTS} times, and has not told all")]
    Endless,
}

/// The links of the service root, and the words about the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The maker: `Vendor`.
    pub vendor: Option<String>,
    /// The product: `Product`.
    pub product: Option<String>,
    /// The version of the protocol: `RedfishVersion`.
    pub version: String,
    pub(crate) accounts: Option<String>,
    pub(crate) managers: Option<String>,
    pub(crate) systems: Option<String>,
}

/// A service, and the account that it is asked with.
#[derive(Debug)]
pub struct Service<E> {
    exchange: E,
    origin: Origin,
    login: Option<Login>,
    requests: u32,
}

impl<E: Exchange> Service<E> {
    /// The service at this host and port. It is asked without an account.
    pub fn new(exchange: E, host: &str, port: u16) -> Self {
        let origin = Origin { host: host.to_owned(), port };
        Self { exchange, origin, login: None, requests: 0 }
    }

    /// The way to the service.
    pub fn exchange(&mut self) -> &mut E {
        &mut self.exchange
    }

    /// Asks with this account from now on.
    pub fn log_in(&mut self, login: Login) {
        self.login = Some(login);
    }

    /// Reads the service root, which everybody may read (DSP0266 §13.3.2).
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn root(&mut self) -> Result<Root, ServiceError> {
        let (root, _) = self.get(ROOT)?;
        let words = |property: &str| text(root.get(property)).map(|it| told(&it)).filter(|it| !it.is_empty());
        let version = words("RedfishVersion").ok_or_else(|| ServiceError::Malformed {
            request: format!("GET {ROOT}"),
            why: "it has no RedfishVersion",
        })?;
        Ok(Root {
            vendor: words("Vendor"),
            product: words("Product"),
            version,
            accounts: link(&root, "AccountService"),
            managers: link(&root, "Managers"),
            systems: link(&root, "Systems"),
        })
    }

    pub(crate) fn pause(&mut self) {
        self.exchange.pause();
    }

    /// Reads a resource: its JSON, and its ETag.
    pub(crate) fn get(&mut self, reference: &str) -> Result<(Value, Option<String>), ServiceError> {
        let mut request = Request::get(self.path(reference)?);
        for _ in 0..=MAX_REDIRECTS {
            let reply = self.send(&request)?;
            match reply.status {
                200 => {
                    let malformed =
                        |_| ServiceError::Malformed { request: request.to_string(), why: "it is no JSON" };
                    let body: Value = serde_json::from_slice(&reply.body).map_err(malformed)?;
                    let etag = reply.etag.or_else(|| text(body.get("@odata.etag")));
                    return Ok((body, etag.filter(|etag| is_etag(etag))));
                }
                301 | 302 | 307 | 308 => {
                    let to = reply.location.as_deref().unwrap_or_default();
                    request = Request::get(self.path(to)?);
                }
                _ => return Err(refusal(&request, &reply)),
            }
        }
        Err(ServiceError::Malformed { request: request.to_string(), why: "it refers in a circle" })
    }

    /// Reads a resource once with another account, whatever the answer is.
    pub(crate) fn get_as(&mut self, path: &str, login: &Login) -> Result<Reply, ServiceError> {
        let own = self.login.replace(login.clone());
        let reply = self.send(&Request::get(path.to_owned()));
        self.login = own;
        reply
    }

    /// The paths of a collection's members, at most 64, over its pages.
    pub(crate) fn members(&mut self, reference: &str) -> Result<Vec<String>, ServiceError> {
        let (mut found, mut next) = (Vec::new(), Some(reference.to_owned()));
        while let Some(page) = next.filter(|_| found.len() < MAX_MEMBERS) {
            let (body, _) = self.get(&page)?;
            let (members, following) = members(&body).ok_or_else(|| ServiceError::Malformed {
                request: format!("GET {}", told(&page)),
                why: "it has no Members",
            })?;
            for member in members {
                found.push(self.path(&member)?);
            }
            next = following;
        }
        found.truncate(MAX_MEMBERS);
        Ok(found)
    }

    /// Sends a change. If the BMC says that the ETag is outdated (412) or missing (428), reads the ETag and sends the change once
    /// more. A POST is never repeated.
    pub(crate) fn change(&mut self, mut request: Request) -> Result<Reply, ServiceError> {
        let reply = self.send(&request)?;
        if !matches!(reply.status, 412 | 428) || request.method == Method::Post {
            return Ok(reply);
        }
        let (_, etag) = self.get(&request.path)?;
        // If-Match never holds for a weak tag (RFC 9110 §13.1.1), though some BMCs give no other.
        request.if_match = etag.map(|etag| etag.trim_start_matches("W/").to_owned());
        self.send(&request)
    }

    fn send(&mut self, request: &Request) -> Result<Reply, ServiceError> {
        self.requests += 1;
        if self.requests > MAX_REQUESTS {
            return Err(ServiceError::Endless);
        }
        self.exchange
            .ask(request, self.login.as_ref())
            .map_err(|why| ServiceError::Silent { request: request.to_string(), why: told(&why) })
    }

    pub(crate) fn path(&self, reference: &str) -> Result<String, ServiceError> {
        self.origin.path(reference).ok_or_else(|| ServiceError::Malformed {
            request: told(reference),
            why: "it is no path on the BMC",
        })
    }
}

pub(crate) fn refusal(request: &Request, reply: &Reply) -> ServiceError {
    ServiceError::Refused { request: request.to_string(), status: reply.status, said: said(&reply.body) }
}
