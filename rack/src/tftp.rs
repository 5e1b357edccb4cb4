//! TFTP: loaders for PXE ROMs, and scripts for boot loaders that only use TFTP. `basalt-tftp` is the server.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use basalt_tftp::Outcome;
use basalt_tftp::packet::ErrorCode;
use basalt_tftp::server::{Event, FileSource, OpenError, Settings, serve};
use bytes::Bytes;
use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config};
use crate::health::Health;
use crate::http::Web;
use crate::http::boot::{self, Asks};
use crate::interfaces;
use crate::loaders::Loaders;
use crate::trace::{Entry, reason, without_secrets};

/// The receive buffer for waiting requests, in bytes: a hall of machines asks within a second.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The files that are served. Each is in memory once while it is being sent, whatever the number of transfers.
#[derive(Debug)]
struct Source {
    loaders: Loaders,
    /// For scripts: the rack's HTTP server, and its address for machines.
    scripts: Option<(Arc<Web>, SocketAddr)>,
    sent: Mutex<HashMap<PathBuf, Arc<Slot>>>,
}

/// The content of a file while at least one transfer sends it.
type Slot = tokio::sync::Mutex<Option<(Version, Weak<[u8]>)>>;

/// The identity of a file: inode, length and modification time. A replaced file has another one.
type Version = (u64, u64, SystemTime);

impl Source {
    fn new(loaders: Loaders, scripts: Option<(Arc<Web>, SocketAddr)>) -> Self {
        Self { loaders, scripts, sent: Mutex::default() }
    }

    /// The script with this file name; `None` if it is no script's name.
    fn script(&self, path: &str, client: SocketAddr) -> Option<Result<Bytes, OpenError>> {
        let (web, rack) = self.scripts.as_ref()?;
        let (language, mac) = match config::named(path)? {
            Config::Grub => return Some(Ok(Bytes::from_static(config::GRUB.as_bytes()))),
            Config::Script(language, mac) => (language, mac),
        };
        let asks = Asks { mac, peer: client.ip(), rack: *rack, language, service: "tftp" };
        let script = boot::script(web, asks).map(Bytes::from);
        Some(script.map_err(|reason| OpenError::Unavailable(reason.to_owned())))
    }

    /// A kernel or initrd. Other blobs are not served by TFTP, because the whole file must fit into memory.
    async fn blob(&self, sha256: &str) -> Result<Bytes, OpenError> {
        let (web, _) = self.scripts.as_ref().ok_or(OpenError::NotFound)?;
        if !web.boot.borrow().as_ref().is_some_and(|table| table.is_for_firmware(sha256)) {
            return Err(OpenError::NotFound);
        }
        let unavailable = |error: &dyn std::fmt::Display| OpenError::Unavailable(error.to_string());
        let _here = web.blobs.get(sha256).await.map_err(|error| unavailable(&error))?;
        let content = self.content(&web.blobs.path(sha256)).await;
        content.map(Bytes::from_owner).map_err(|error| unavailable(&error))
    }

    /// The content of an existing file. A request during the reading waits for its end.
    async fn content(&self, path: &Path) -> io::Result<Arc<[u8]>> {
        let slot = Arc::clone(
            self.sent.lock().unwrap_or_else(PoisonError::into_inner).entry(path.to_owned()).or_default(),
        );
        let mut slot = slot.lock().await;
        let about = tokio::fs::metadata(path).await?;
        let version = (about.ino(), about.len(), about.modified()?);
        let shared = slot.as_ref().filter(|(known, _)| *known == version);
        if let Some(content) = shared.and_then(|(_, content)| content.upgrade()) {
            return Ok(content);
        }
        let content: Arc<[u8]> = tokio::fs::read(path).await?.into();
        *slot = Some((version, Arc::downgrade(&content)));
        Ok(content)
    }
}

impl FileSource for Source {
    async fn open(&self, path: &str, client: SocketAddr) -> Result<Bytes, OpenError> {
        if let Some(script) = self.script(path, client) {
            return script;
        }
        if let Some(sha256) = path.trim_start_matches('/').strip_prefix("blobs/") {
            return self.blob(sha256).await;
        }
        let path = self.loaders.path(path).ok_or(OpenError::NotFound)?;
        let content = self.content(&path).await;
        content.map(Bytes::from_owner).map_err(|error| OpenError::Unavailable(error.to_string()))
    }
}

/// The longest wait for a kernel or initrd: it may have to be fetched, and is verified before its first use.
const OPENING: Duration = Duration::from_secs(30);

/// Serves one address until cancelled.
///
/// # Errors
/// `io::Error`: the address cannot be bound.
pub async fn run(
    address: IpAddr,
    port: u16,
    http_port: u16,
    web: Arc<Web>,
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
    SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER)?;
    health.up();
    let observed = Arc::clone(&web);
    serve(
        vec![socket],
        Source::new(web.loaders.clone(), Some((Arc::clone(&web), SocketAddr::from((address, http_port))))),
        Settings { open_timeout: OPENING, mtu: interfaces::mtu(address), ..Settings::default() },
        move |event| observe(&observed, &event),
        stop.cancelled(),
    )
    .await
}

/// Adds a transfer to the trace of the machine's boot; `basalt-tftp` logs it. TFTP names no machine, but its address
/// identifies it. There is no fact, since any host can request any name.
fn observe(web: &Web, event: &Event) {
    if !matches!(event, Event::Dropped { .. }) {
        web.facts.meters().asked("tftp");
    }
    let (client, entry) = traced(event);
    web.facts.trace().saw_at(client, web.boot.borrow().as_deref(), entry);
}

/// The trace entry of an event, and the client's address.
fn traced(event: &Event) -> (IpAddr, Entry) {
    let (client, file, answered, why) = match event {
        Event::Finished { client, path, size, acknowledged, outcome, took } => {
            let partly = format!("{acknowledged} of {size} bytes in {} ms", took.as_millis());
            let (answered, why) = match outcome {
                Outcome::Completed => (format!("{size} bytes in {} ms", took.as_millis()), None),
                Outcome::Probed => (format!("its size, {size} bytes"), None),
                Outcome::Aborted { message, .. } => {
                    (format!("ended by the client after {partly}: {message}"), Some(reason::ABORTED))
                }
                Outcome::TimedOut | Outcome::Unreachable if *acknowledged == 0 => {
                    (format!("no block was taken: {partly}"), Some(reason::NEVER_TAKEN))
                }
                Outcome::TimedOut | Outcome::Unreachable => {
                    (format!("the client fell silent after {partly}"), Some(reason::FELL_SILENT))
                }
            };
            (client, path, answered, why)
        }
        Event::Refused { client, file, code, message } => {
            let why = if *code == ErrorCode::FileNotFound { reason::NOT_FOUND } else { reason::UNAVAILABLE };
            (client, file, format!("refused: {message}"), Some(why))
        }
        Event::Dropped { client, limit } => {
            return (
                client.ip(),
                Entry {
                    service: "tftp",
                    answered: format!("not answered: {limit}").into(),
                    reason: Some(reason::BUSY),
                    ..Entry::default()
                },
            );
        }
    };
    let asked = without_secrets(file);
    (
        client.ip(),
        Entry {
            service: "tftp",
            asked: asked.into(),
            answered: answered.into(),
            reason: why,
            ..Entry::default()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_tells_how_far_a_transfer_came() {
        let ended = |acknowledged, outcome| {
            let (client, path) = (SocketAddr::from(([10, 0, 0, 5], 2070)), "undionly.kpxe".to_owned());
            let took = Duration::from_millis(40);
            let (_, entry) =
                traced(&Event::Finished { client, path, size: 70_000, acknowledged, outcome, took });
            (String::from(entry.answered), entry.reason)
        };
        assert_eq!(ended(70_000, Outcome::Completed), ("70000 bytes in 40 ms".to_owned(), None));
        let never = "no block was taken: 0 of 70000 bytes in 40 ms".to_owned();
        assert_eq!(ended(0, Outcome::TimedOut), (never, Some(reason::NEVER_TAKEN)));
        let silent = "the client fell silent after 1428 of 70000 bytes in 40 ms".to_owned();
        assert_eq!(ended(1_428, Outcome::TimedOut), (silent, Some(reason::FELL_SILENT)));
    }

    #[tokio::test]
    async fn a_loader_is_in_memory_once_while_it_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("undionly.kpxe");
        std::fs::write(&file, b"one").unwrap();
        let source = Source::new(Loaders::new(dir.path()), None);
        let client = SocketAddr::from(([10, 0, 0, 1], 2000));
        let open = async || source.open("undionly.kpxe", client).await.unwrap();

        let (first, second) = tokio::join!(open(), open());
        assert_eq!((&first[..], first.as_ptr()), (&b"one"[..], second.as_ptr()));
        // Replaced as packages do it: a running transfer keeps the old content.
        std::fs::write(dir.path().join("new"), b"two").unwrap();
        std::fs::rename(dir.path().join("new"), &file).unwrap();
        assert_eq!((&open().await[..], &first[..]), (&b"two"[..], &b"one"[..]));

        drop((first, second));
        let slot = Arc::clone(&source.sent.lock().unwrap()[&file]);
        let held = slot.lock().await.as_ref().map(|(_, content)| content.strong_count());
        assert_eq!(held, Some(0), "nobody sends it");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(source.open("undionly.kpxe", client).await, Err(OpenError::NotFound));
    }
}
