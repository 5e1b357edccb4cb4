//! The process around a provider: from the handshake line to a clean end.
//!
//! Terraform starts the provider, reads one line from its stdout, connects, opens the streams of `host_services`, makes its
//! calls and finally calls Shutdown. It kills the process if it has not ended two seconds later. Terraform starts three to
//! five processes per command, so each must start fast.

mod handshake;
mod host_services;
mod listener;
mod place;
mod reattach;
mod socket;
mod tls;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tonic::transport::Server;
use tracing::{debug, warn};

pub use reattach::Reattached;

use crate::log;
use crate::pb::provider_server::ProviderServer;
use crate::pb_plugin;
use crate::provider::{End, Provider};
use crate::rpc::Rpc;
use handshake::Handshake;
use place::Place;

/// Largest message that Terraform sends or accepts, in bytes.
const MAX_MESSAGE: usize = 256 * 1024 * 1024;
/// Open streams end themselves at a shutdown. This is the wait for those that do not.
const DRAIN: Duration = Duration::from_millis(800);
/// Time after [`DRAIN`] for closing ephemeral resources. Terraform kills the process two seconds after Shutdown.
const CLOSING: Duration = Duration::from_secs(1);
/// Interval of checks that Terraform is still running.
const ORPHAN_CHECK: Duration = Duration::from_millis(500);

/// The provider's address and its settings.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    address: &'static str,
    log_targets: &'static [&'static str],
    tcp: bool,
}

impl Options {
    /// `address` is the provider's source address with its host, such as
    /// `registry.terraform.io/me/mine`.
    #[must_use]
    pub const fn new(address: &'static str) -> Self {
        Self { address, log_targets: &[], tcp: false }
    }

    /// The crates (tracing targets) whose logs follow `TF_LOG`; of others only warnings are shown.
    #[must_use]
    pub const fn log_targets(mut self, targets: &'static [&'static str]) -> Self {
        self.log_targets = targets;
        self
    }

    /// Serves on a TCP port of 127.0.0.1 from Terraform's range, instead of a unix socket: for a Terraform that shares no file
    /// system with the provider. Requires Terraform's mutual TLS.
    #[must_use]
    pub const fn over_tcp(mut self) -> Self {
        self.tcp = true;
        self
    }
}

/// Why a provider could not be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(
        "This program is a Terraform provider; Terraform starts it by itself. To run it under a debugger, give it --debug."
    )]
    NotStartedByTerraform,
    #[error("cannot make a socket for Terraform in {dir}: {source}")]
    Socket { dir: String, source: io::Error },
    #[error("no port from {first} to {last} of 127.0.0.1 is free: {source}")]
    Ports { first: u16, last: u16, source: io::Error },
    #[error(
        "a port is served with TLS alone, and PLUGIN_CLIENT_CERT, the certificate that may connect, is not set"
    )]
    TcpWithoutTls,
    #[error("cannot set up TLS with Terraform: {0}")]
    Tls(#[from] tls::TlsError),
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
    #[error("serving failed: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// Runs the provider until Terraform ends it: the whole of a provider's `main`.
///
/// With the argument `--debug` the process is not started by Terraform: it prints the variable
/// `TF_REATTACH_PROVIDERS` with which Terraform finds it, and ends on SIGINT.
#[must_use]
pub fn serve(provider: impl Provider, options: Options) -> ExitCode {
    log::start(options.log_targets);
    let debug = std::env::args().skip(1).any(|arg| arg == "--debug");
    let handshake = if debug { None } else { Some(Handshake::from_env()) };
    let result = match handshake {
        Some(Err(error)) => Err(error),
        Some(Ok(handshake)) => with_runtime(plugin(provider, handshake, options.tcp)),
        None => with_runtime(reattach::debug(provider, options.address)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn with_runtime(work: impl Future<Output = Result<(), ServeError>>) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(work);
    // Work that ignored its cancellation must not keep the process alive.
    runtime.shutdown_background();
    result
}

async fn plugin(provider: impl Provider, handshake: Handshake, tcp: bool) -> Result<(), ServeError> {
    let parent = rustix::process::getppid();
    // Ctrl-C reaches the whole process group. Terraform then calls StopProvider and waits for the work to end. A provider that
    // died of the signal would lose objects that it has just created.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;

    let place = Place::bind(&handshake, tcp)?;
    let tls = handshake.client_cert.as_deref().map(tls::acceptor).transpose()?;
    let (acceptor, certificate) = tls.map_or((None, None), |(a, c)| (Some(a), Some(c)));
    {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", handshake.line(&place, certificate.as_deref()))?;
        stdout.flush()?;
    }
    // Output on stdout would corrupt or block the pipe to Terraform from here on.
    rustix::stdio::dup2_stdout(io::stderr()).map_err(io::Error::from)?;

    let rpc = Arc::new(Rpc::new(Box::new(provider)));
    let orphan = Arc::clone(&rpc);
    let (stop, stopped) = watch::channel(false);
    let stop = Arc::new(stop);
    let ender = Arc::clone(&stop);
    tokio::spawn(async move {
        let mut check = tokio::time::interval(ORPHAN_CHECK);
        loop {
            tokio::select! {
                _ = interrupts.recv() => debug!("interrupted; Terraform will say when to stop"),
                _ = terminations.recv() => debug!("told to terminate; Terraform will say when to stop"),
                _ = check.tick() => {
                    if rustix::process::getppid() != parent {
                        warn!("Terraform is gone");
                        orphan.cancel();
                        orphan.end(End::Orphaned).await;
                        let _ = ender.send(true);
                        return;
                    }
                }
            }
        }
    });
    let incoming = listener::accept(place.listener()?, acceptor);
    run(rpc, incoming, stop, stopped).await
}

/// Serves connections until told to stop, and then for at most [`DRAIN`].
async fn run(
    rpc: Arc<Rpc>,
    incoming: listener::Incoming,
    stop: Arc<watch::Sender<bool>>,
    stopped: watch::Receiver<bool>,
) -> Result<(), ServeError> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_service_status("plugin", tonic_health::ServingStatus::Serving).await;
    let server = Server::builder()
        .add_service(health_service)
        .add_service(pb_plugin::grpc_controller_server::GrpcControllerServer::new(
            host_services::Controller { rpc: Arc::clone(&rpc), stop },
        ))
        .add_service(pb_plugin::grpc_stdio_server::GrpcStdioServer::new(host_services::Stdio(
            stopped.clone(),
        )))
        .add_service(pb_plugin::grpc_broker_server::GrpcBrokerServer::new(host_services::Broker(
            stopped.clone(),
        )))
        .add_service(
            ProviderServer::from_arc(Arc::clone(&rpc))
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
        )
        .serve_with_incoming_shutdown(incoming, until(stopped.clone()));
    tokio::select! {
        served = server => served?,
        () = async {
            until(stopped).await;
            rpc.cancel();
            tokio::time::sleep(DRAIN).await;
        } => debug!("connections were still open at the end"),
    }
    if tokio::time::timeout(CLOSING, rpc.close_ephemerals()).await.is_err() {
        warn!("what was ephemeral could not be closed in time");
    }
    Ok(())
}

/// Ends when the channel is set to true, or when its sender is gone.
async fn until(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests;
