//! Configuration of a client: the regions, its credentials and its limits.

use super::Proxies;
use std::time::Duration;

/// Default time limit of one request.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Default time for which a request is tried again while no region can be reached.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(10);

/// The regions of one Basalt, and the settings to reach them.
#[derive(Clone)]
pub struct ClientConfig {
    /// The regions, in order of preference: `https://HOST:5240`, `http://127.0.0.1:5240` or `unix:/PATH/api.sock`. Or racks, which relay to
    /// any region and are identified by their keys: `https://RACK:5248#spki=HEX`.
    pub endpoints: Vec<String>,
    /// The API token. Not needed on a unix socket whose peer is root.
    pub token: Option<String>,
    /// CA certificates in PEM, of which one must have signed the certificates of the regions. Absent: the system's CA certificates.
    pub ca_pem: Option<String>,
    /// The certificate for servers that ask the client for one.
    pub identity: Option<ClientIdentity>,
    /// Proxies on the way to the regions.
    pub proxies: Proxies,
    /// Name of the client tool, for `metadata.manager` of objects that it creates.
    pub manager: Option<String>,
    /// Name and version of the program, for `User-Agent`: `NAME/VERSION`.
    pub user_agent: Option<String>,
    /// Time limit of one request. Waits and uploads have their own limits.
    pub timeout: Duration,
    /// Time for which a request is tried again while no region can be reached.
    pub patience: Duration,
    /// Send the token over plain HTTP to other hosts than this one. Only for laboratories.
    pub allow_plaintext: bool,
}

/// A certificate of a client, and its key.
#[derive(Clone)]
pub struct ClientIdentity {
    /// PEM: the certificate, then the certificates of the CAs that signed it.
    pub certificate: String,
    /// PEM: the private key.
    pub key: String,
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientIdentity(…)")
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            token: None,
            ca_pem: None,
            identity: None,
            proxies: Proxies::default(),
            manager: None,
            user_agent: None,
            timeout: DEFAULT_TIMEOUT,
            patience: DEFAULT_PATIENCE,
            allow_plaintext: false,
        }
    }
}

impl std::fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientConfig")
            .field("endpoints", &self.endpoints)
            .field("token", &self.token.as_ref().map(|_| "(secret)"))
            .field("manager", &self.manager)
            .finish_non_exhaustive()
    }
}
