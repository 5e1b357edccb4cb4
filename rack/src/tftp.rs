//! TFTP: loaders for PXE ROMs, served by `basalt-tftp`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use basalt_tftp::Outcome;
use basalt_tftp::server::{Event, FileSource, OpenError, Settings, serve};
use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use crate::facts::About;
use crate::health::Health;
use crate::loaders::Loaders;
use crate::spool::writer::Facts;

#[derive(Debug)]
struct Source {
    loaders: Loaders,
}

impl FileSource for Source {
    async fn open(&self, path: &str, _: SocketAddr) -> Result<Bytes, OpenError> {
        let path = self.loaders.path(path).ok_or(OpenError::NotFound)?;
        let bytes = tokio::fs::read(&path).await;
        bytes.map(Bytes::from).map_err(|error| OpenError::Unavailable(error.to_string()))
    }
}

/// Serves one address until cancelled.
///
/// # Errors
/// The address cannot be bound.
pub async fn run(
    address: Ipv4Addr,
    port: u16,
    loaders: Loaders,
    facts: Facts,
    health: &Health,
    stop: &CancellationToken,
) -> io::Result<()> {
    let bind = SocketAddr::from((address, port));
    let socket = UdpSocket::bind(bind).await.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot bind TFTP on {bind}: {error}; another server may use the port, see `ss -lnup`"),
        )
    })?;
    health.up();
    serve(
        vec![socket],
        Source { loaders },
        Settings::default(),
        move |event| observe(&facts, event),
        stop.cancelled(),
    )
    .await
}

/// Tells what a machine fetched; `basalt-tftp` logs it. Who it is, TFTP does not say; its address is enough to find out.
fn observe(facts: &Facts, event: Event) {
    let (client, file, answer) = match event {
        Event::Finished { client, path, outcome, .. } => (client, path, words(&outcome)),
        Event::Refused { client, file, message, .. } => (client, file, format!("refused: {message}")),
        Event::Dropped { .. } => return,
    };
    facts.tell(About::default().requested("tftp", &file, &answer, &client.ip().to_string()));
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed => "sent".to_owned(),
        Outcome::Probed => "size told".to_owned(),
        Outcome::Aborted { message, .. } => format!("ended by the client: {message}"),
        Outcome::TimedOut | Outcome::Unreachable => "the client fell silent".to_owned(),
    }
}
