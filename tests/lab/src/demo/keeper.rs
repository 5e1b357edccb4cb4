//! The process that continues in the background: it owns the demo's lab, region, rack and machines.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{DemoError, LABEL, link, record, say};
use crate::error::LabError;
use crate::process::{self, Owner};
use crate::site::{Site, quickstart_machines};

/// The last line of its output: everything runs now.
pub(super) const READY: &str = "ready";

/// Starts everything and prints its progress to standard output. Waits for SIGTERM, or for the violent end of its `owner`, and then ends
/// and removes everything.
///
/// # Errors
/// A part does not start; the others are removed again.
pub async fn keep(port: u16, owner: Owner) -> Result<(), DemoError> {
    let system = |source| LabError::System { what: "listen for signals", source };
    let mut terminated = signal(SignalKind::terminate()).map_err(system)?;
    // Closing the terminal does not end the demo.
    let _hangups = signal(SignalKind::hangup()).map_err(system)?;
    let mut site = Site::create(LABEL)?;
    let record = record();
    let abandoned = async {
        if !ends_by_itself(owner, &record).await {
            tracing::warn!("the demo's command was killed; ending the demo");
            return;
        }
        std::future::pending().await
    };
    tokio::pin!(abandoned);
    let (started, is_over) = tokio::select! {
        started = start(&mut site, port) => (started, false),
        _ = terminated.recv() => (Ok(()), true),
        () = &mut abandoned => (Ok(()), true),
    };
    if started.is_ok() && !is_over {
        let namespace = format!("/run/netns/{}", site.lab().namespace());
        let taken_down = async {
            while Path::new(&namespace).exists() {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            _ = terminated.recv() => {}
            () = &mut abandoned => {}
            () = taken_down => {}
        }
    }
    let (rack, region) = (site.stop_rack(1).await, site.stop_region().await);
    let _gone = std::fs::remove_file(link());
    drop(site);
    started?;
    rack?;
    Ok(region?)
}

/// Waits for the end of the process that started the keeper. False: it was killed. If it ends by itself, it removes its record
/// before.
async fn ends_by_itself(owner: Owner, record: &Path) -> bool {
    process::ended(owner).await;
    let recorded = std::fs::read_to_string(record).unwrap_or_default();
    recorded.trim().parse() != Ok(owner)
}

async fn start(site: &mut Site, port: u16) -> Result<(), DemoError> {
    let path = link();
    let _stale = std::fs::remove_file(&path);
    symlink(site.directory(), &path).map_err(LabError::file(path))?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(|_| DemoError::PortTaken { port })?;
    say(&format!("network namespace {} with the bridge br0, 10.77.0.1/24", site.lab().namespace()));
    site.add_machines(quickstart_machines()).await?;
    for config in quickstart_machines() {
        let (name, mac, bmc) = (&config.name, config.mac, config.bmc_address);
        say(&format!("machine {name}: {mac}, BMC at {bmc}, powered off, its disk empty"));
    }
    site.start_region().await?;
    forward(site, listener);
    say(&format!("region: API at http://127.0.0.1:{port}, its own PostgreSQL"));
    site.start_rack(1).await?;
    say("rack rack-1: DHCP, TFTP and HTTP on br0, joined the region");
    say(READY);
    Ok(())
}

/// Forwards connections from the host's port into the lab. The region sees them from loopback, so they need a token.
fn forward(site: &Site, listener: TcpListener) {
    let (accepted, mut inbox) = mpsc::channel::<std::net::TcpStream>(64);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = stream.into_std() else { continue };
            if accepted.send(stream).await.is_err() {
                return;
            }
        }
    });
    let inside = site.lab().enter(move || async move {
        while let Some(stream) = inbox.recv().await {
            tokio::spawn(carry(stream));
        }
    });
    tokio::spawn(inside);
}

async fn carry(outside: std::net::TcpStream) {
    let region = SocketAddr::from(([127, 0, 0, 1], 5240));
    if let Ok(mut outside) = TcpStream::from_std(outside)
        && let Ok(mut inside) = TcpStream::connect(region).await
    {
        // Either side may close the connection.
        let _carried = copy_bidirectional(&mut outside, &mut inside).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a process, and returns its answer about its end. `records`: the record has this process.
    async fn end(records: impl FnOnce(Owner) -> Option<Owner>) -> bool {
        let mut process =
            tokio::process::Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
        let owner = Owner::of(process.id().unwrap().try_into().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let record = directory.path().join("demo.process");
        if let Some(recorded) = records(owner) {
            std::fs::write(&record, format!("{recorded}\n")).unwrap();
        }
        let ended = ends_by_itself(owner, &record);
        let (ended, killed) = tokio::join!(ended, process.kill());
        killed.unwrap();
        ended
    }

    #[tokio::test]
    async fn a_command_that_left_its_record_was_killed() {
        assert!(!end(Some).await);
        assert!(end(|_| None).await, "it removes its record when it ends");
        assert!(end(|owner| Some(Owner { start: owner.start + 1, ..owner })).await, "another demo's record");
    }
}
