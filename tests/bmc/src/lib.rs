//! The Redfish service of a simulated BMC: AccountService, a manager, and one system whose power is a
//! [`ChassisBackend`]. `basalt-bmc` simulates the IPMI side of the same BMC.
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

/// The configuration of a BMC's Redfish service, with its vendor's quirks.
#[derive(Clone, Debug)]
pub struct Config {
    /// Users, passwords and roles, from account 2 on.
    pub users: Vec<(String, String, String)>,
    /// Number of fixed accounts; the first one is unused. `None`: a POST creates accounts, up to `most`.
    pub slots: Option<usize>,
    /// Largest number of accounts that a POST creates.
    pub most: usize,
    /// Rules for passwords.
    pub policy: PasswordPolicy,
    /// The lock of a user after failed logins.
    pub lockout: Option<Lockout>,
    /// Properties that a new account must have.
    pub wants: Vec<&'static str>,
    /// True if a change needs a current ETag (428, 412).
    pub etags: bool,
    /// Number of characters of a password that the BMC keeps; it silently drops the rest.
    pub keeps: usize,
    /// Address in the management network, if it has one.
    pub lan: Option<IpAddr>,
    /// Accounts that IPMI gives to the machine. Only the address `inside` accepts them.
    pub bootstrap: Bootstrap,
    /// Address of the service on the host interface.
    pub inside: Option<IpAddr>,
}

impl Config {
    /// A BMC with this administrator. A POST creates accounts.
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

/// A running service. Dropping it stops it.
#[derive(Debug)]
pub struct RedfishBmc {
    addresses: Vec<SocketAddr>,
    seen: Arc<Mutex<Seen>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl RedfishBmc {
    /// Serves at these addresses (port 0: any free one), with a self-signed certificate.
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

    /// The addresses of the service.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The requests so far, and the present accounts.
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
