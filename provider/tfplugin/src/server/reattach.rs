//! A provider that Terraform does not start itself: for a debugger, and for tests.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::listener::Listener;
use super::socket::PluginSocket;
use super::{ServeError, listener, run};
use crate::provider::Provider;
use crate::rpc::Rpc;

/// A provider served inside this process, without TLS, for as long as this value lives.
///
/// One process serves any number of Terraform commands that run with [`Reattached::env`].
pub struct Reattached {
    address: String,
    socket: PluginSocket,
    stop: Arc<watch::Sender<bool>>,
    task: JoinHandle<()>,
}

impl fmt::Debug for Reattached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reattached").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Reattached {
    /// Starts serving. `address` is the provider's source address with its host, and must equal the
    /// source in the configuration's `required_providers`. Needs a Tokio runtime.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn start(provider: impl Provider, address: &str) -> io::Result<Self> {
        let socket = PluginSocket::bind(None).map_err(io::Error::other)?;
        let (stop, stopped) = watch::channel(false);
        let stop = Arc::new(stop);
        let rpc = Arc::new(Rpc::new(Box::new(provider)));
        let incoming = listener::accept(Listener::Unix(UnixListener::from_std(socket.listener()?)?), None);
        let ender = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            if let Err(error) = run(rpc, incoming, ender, stopped).await {
                tracing::error!(%error, "serving the provider failed");
            }
        });
        Ok(Self { address: address.to_owned(), socket, stop, task })
    }

    /// The name and the value of the variable with which Terraform finds this provider.
    #[must_use]
    pub fn env(&self) -> (&'static str, String) {
        let (address, reattached) = self.entry();
        ("TF_REATTACH_PROVIDERS", json!({ address: reattached }).to_string())
    }

    /// The provider's address, and the connection data for Terraform.
    pub(crate) fn entry(&self) -> (String, serde_json::Value) {
        let reattached = json!({
            "Protocol": "grpc",
            "ProtocolVersion": 6,
            "Pid": std::process::id(),
            // Without this field, Terraform would kill the process at the end of a command.
            "Test": true,
            "Addr": {"Network": "unix", "String": self.socket.path()},
        });
        (self.address.clone(), reattached)
    }

    /// The path of its unix socket.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        self.socket.path()
    }

    /// Ends the provider. Requests in progress are cancelled.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}

/// Prints the connection data, and serves until SIGINT.
pub(crate) async fn debug(provider: impl Provider, address: &str) -> Result<(), ServeError> {
    let served = Reattached::start(provider, address)?;
    let (name, value) = served.env();
    writeln!(
        io::stdout(),
        "Provider started; run Terraform with this variable, and end with Ctrl-C:\n\n\t{name}='{value}'\n"
    )?;
    tokio::signal::ctrl_c().await?;
    served.stop().await;
    Ok(())
}
