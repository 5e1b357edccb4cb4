//! The Redfish service of a BMC that is played: AccountService, a manager, and one system whose power is a
//! [`ChassisBackend`]. Beside it, `basalt-bmc` plays the IPMI side of the same BMC.
//!
//! | module | does |
//! | --- | --- |
//! | `service` | answers to requests, without I/O |
//! | `web` | HTTP/1.1 over TLS |

mod service;
mod web;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use basalt_bmc::{Bootstrap, ChassisBackend, Lockout, PasswordPolicy};

pub use service::Seen;

/// A BMC's Redfish service, and its habits.
#[derive(Clone, Debug)]
pub struct Config {
    /// Users, passwords and roles, from account 2 on.
    pub users: Vec<(String, String, String)>,
    /// The number of accounts, of which the first is nobody's. None: a POST makes accounts, up to `most`.
    pub slots: Option<usize>,
    /// The most accounts that a POST makes.
    pub most: usize,
    /// Rules for passwords.
    pub policy: PasswordPolicy,
    /// The lock after failed logins, of each user.
    pub lockout: Option<Lockout>,
    /// Properties that a new account must have.
    pub wants: Vec<&'static str>,
    /// A change needs an ETag that holds (428, 412).
    pub etags: bool,
    /// Characters of a password that the BMC keeps; the rest is lost without a word.
    pub keeps: usize,
    /// The address in the management network. None: it has none.
    pub lan: Option<IpAddr>,
    /// Accounts that IPMI gives to the machine. They are taken at `inside` alone.
    pub bootstrap: Bootstrap,
    /// The service's address on the host interface.
    pub inside: Option<IpAddr>,
}

impl Config {
    /// A BMC with this administrator, which makes accounts by POST.
    #[must_use]
    pub fn new(user: &str, password: &str) -> Self {
        Self {
            users: vec![(user.to_owned(), password.to_owned(), "Administrator".to_owned())],
            slots: None,
            most: 16,
            policy: PasswordPolicy::default(),
            lockout: None,
            wants: Vec::new(),
            etags: true,
            keeps: usize::MAX,
            lan: None,
            bootstrap: Bootstrap::new(true),
            inside: None,
        }
    }
}

/// A running service; it stops when this is dropped.
#[derive(Debug)]
pub struct RedfishBmc {
    addresses: Vec<SocketAddr>,
    seen: Arc<Mutex<Seen>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl RedfishBmc {
    /// Answers at these addresses (port 0: any free one), with a self-signed certificate.
    ///
    /// # Errors
    /// An address cannot be bound, or the certificate cannot be made.
    pub async fn start<B: ChassisBackend>(
        addresses: &[SocketAddr],
        config: Config,
        chassis: Arc<B>,
    ) -> std::io::Result<Self> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let service = service::Service::new(config, chassis, Arc::clone(&seen));
        let (addresses, tasks) = web::start(addresses, Arc::new(tokio::sync::Mutex::new(service))).await?;
        Ok(Self { addresses, seen, tasks })
    }

    /// The addresses where it answers.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The requests that came, and the accounts that there are.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl Drop for RedfishBmc {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
