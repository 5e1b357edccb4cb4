//! QEMU's monitor (QMP): sends commands, and receives events.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use crate::error::LabError;

/// Time limit for QEMU's start and greeting.
const GREETING: Duration = Duration::from_secs(20);

/// The socket to which QEMU will connect.
pub(crate) struct Waiting(UnixListener);

impl Waiting {
    pub(crate) fn bind(path: &Path) -> Result<Self, LabError> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(LabError::file(path)(error));
            }
            _ => {}
        }
        UnixListener::bind(path).map(Self).map_err(LabError::file(path))
    }

    /// Waits for QEMU and exchanges greetings.
    pub(crate) async fn accept(self) -> Result<Qmp, LabError> {
        let timed_out = |_| LabError::TimedOut { what: "QEMU's greeting".to_owned(), limit: GREETING };
        tokio::time::timeout(GREETING, self.greet()).await.map_err(timed_out)?
    }

    async fn greet(self) -> Result<Qmp, LabError> {
        let broken = |source| LabError::System { what: "talk to QEMU's monitor", source };
        let (stream, _) = self.0.accept().await.map_err(broken)?;
        let (read, write) = UnixStream::into_split(stream);
        let mut qmp = Qmp { lines: BufReader::new(read).lines(), write };
        qmp.lines.next_line().await.map_err(broken)?;
        qmp.execute("qmp_capabilities").await?;
        Ok(qmp)
    }
}

/// A connection to a running QEMU.
pub(crate) struct Qmp {
    lines: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
}

impl Qmp {
    /// Sends a command without arguments. If QEMU refuses it, the log shows that.
    pub(crate) async fn execute(&mut self, command: &str) -> Result<(), LabError> {
        let line = serde_json::json!({ "execute": command }).to_string() + "\n";
        self.write
            .write_all(line.as_bytes())
            .await
            .map_err(|source| LabError::System { what: "talk to QEMU's monitor", source })
    }

    /// The name of the next event; `None` when QEMU is gone.
    pub(crate) async fn event(&mut self) -> Option<String> {
        while let Ok(Some(line)) = self.lines.next_line().await {
            let Ok(message) = serde_json::from_str::<serde_json::Value>(&line) else {
                continue;
            };
            if let Some(error) = message.get("error") {
                tracing::warn!("QEMU's monitor refused a command: {error}");
            }
            if let Some(event) = message.get("event").and_then(|event| event.as_str()) {
                return Some(event.to_owned());
            }
        }
        None
    }
}
