//! Asks one NTP server repeatedly.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use basalt_ntp::{PORT, SourceState};
use tokio_util::sync::CancellationToken;

use super::wire::{self, Socket};
use super::{Ntp, lock};

/// The longest time to resolve a name.
const LOOKUP: Duration = Duration::from_secs(10);
/// The longest wait for an answer: a later one would measure nothing.
const ANSWER: Duration = Duration::from_secs(2);

/// Asks a server until cancelled, or until it refuses.
pub(super) async fn poll(ntp: Arc<Ntp>, name: String, stop: CancellationToken) {
    // After a failure, the next address of the name is used.
    let mut failures = 0;
    loop {
        let asked = tokio::select! {
            () = stop.cancelled() => return,
            asked = ask(&ntp, &name, failures) => asked,
        };
        if let Err(state) = asked {
            tracing::debug!(server = %name, %state, "NTP server");
            lock(&ntp.monitor).fail(&name, state);
            failures += 1;
        }
        ntp.renew();
        let Some(wait) = lock(&ntp.monitor).wait(&name, random()) else { return };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Asks once, at the address with this number.
async fn ask(ntp: &Ntp, name: &str, number: usize) -> Result<(), SourceState> {
    let unreachable = |error: io::Error| SourceState::Unreachable(error.to_string());
    let address = resolve(name, number).await?;
    let socket = Socket::connect(address).await.map_err(unreachable)?;
    let mut nonce = [0; 8];
    aws_lc_rs::rand::fill(&mut nonce).map_err(|_| unreachable(io::Error::other("no random numbers")))?;
    let nonce = u64::from_ne_bytes(nonce);
    let request = lock(&ntp.monitor).ask(name, address.ip(), nonce, wire::now());
    // The server was removed: this task is about to be cancelled.
    let Some(request) = request else { return Ok(()) };
    socket.ask(&request).await.map_err(unreachable)?;
    let answer = async {
        loop {
            for (arrived, _, datagram) in socket.receive().await.map_err(unreachable)? {
                if lock(&ntp.monitor).hear(name, &datagram, arrived) {
                    return Ok(());
                }
            }
        }
    };
    tokio::time::timeout(ANSWER, answer).await.unwrap_or(Err(SourceState::Silent))
}

/// The address of a server with this number, modulo the number of its addresses.
async fn resolve(name: &str, number: usize) -> Result<SocketAddr, SourceState> {
    let unreachable = |why: &str| SourceState::Unreachable(format!("its name cannot be resolved: {why}"));
    let found = tokio::time::timeout(LOOKUP, tokio::net::lookup_host((name, PORT))).await;
    let found = found.map_err(|_| unreachable("no answer in time"))?;
    let addresses: Vec<_> = found.map_err(|error| unreachable(&error.to_string()))?.collect();
    let address = number.checked_rem(addresses.len()).and_then(|at| addresses.get(at));
    address.copied().ok_or_else(|| unreachable("it has no address"))
}

fn random() -> u8 {
    let mut byte = [0];
    aws_lc_rs::rand::fill(&mut byte).ok();
    let [byte] = byte;
    byte
}
