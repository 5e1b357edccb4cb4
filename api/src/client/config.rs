//! Where the regions are, and who we are to them.

use super::Proxies;
use std::time::Duration;

/// How long one request may take, unless the configuration says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a request is tried while no region can be reached, unless the configuration says otherwise.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(10);

/// How to reach the regions of one Basalt.
#[derive(Clone)]
pub struct ClientConfig {
    /// The regions, in order of preference: `https://HOST:5240`, `http://127.0.0.1:5240` or `unix:/PATH/api.sock`; or racks, which
    /// pass on to any region and are known by their keys: `https://RACK:5248#spki=HEX`.
    pub endpoints: Vec<String>,
    /// The API token. Not needed on a unix socket whose peer is root.
    pub token: Option<String>,
    /// Certificates, in PEM, of which one must have signed the regions'. Absent: those the system trusts.
    pub ca_pem: Option<String>,
    /// The certificate that is shown to whoever asks for one.
    pub identity: Option<ClientIdentity>,
    /// Proxies on the way to the regions.
    pub proxies: Proxies,
    /// Which tool this is, for `metadata.manager` of what it creates.
    pub manager: Option<String>,
    /// How this program calls itself: `NAME/VERSION`.
    pub user_agent: Option<String>,
    /// How long one request may take. Waiting and uploading have limits of their own.
    pub timeout: Duration,
    /// How long a request is tried while no region can be reached.
    pub patience: Duration,
    /// Send the token over plain HTTP to other hosts than this one. For laboratories.
    pub allow_plaintext: bool,
}

/// A certificate of a client, and its key.
#[derive(Clone)]
pub struct ClientIdentity {
    /// PEM: the certificate, then those that vouch for it.
    pub certificate: String,
    /// PEM: its private key.
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
