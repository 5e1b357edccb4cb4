//! Connections at once: of everybody, and of one address, so that one machine that leaves them open keeps nobody else out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at once; further ones wait in the listener's queue.
const OF_ALL: usize = 4096;
/// Those of one address. A machine needs a handful, people behind one address that ask a region through this rack some dozens.
const OF_ONE: usize = 512;

/// How many there are.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    room: Arc<Semaphore>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection, for as long as this lives.
#[derive(Debug)]
pub(super) struct Connection {
    _room: OwnedSemaphorePermit,
    address: IpAddr,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(OF_ALL)), by_address: Arc::default() }
    }
}

impl Connections {
    /// Waits until there is room for one more.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// Counts a connection of this address; `None` where it has as many as one may have.
    #[must_use]
    pub(super) fn of(&self, address: IpAddr, room: OwnedSemaphorePermit) -> Option<Connection> {
        let address = address.to_canonical();
        let mut by_address = locked(&self.by_address);
        let count = by_address.entry(address).or_default();
        if *count >= OF_ONE {
            return None;
        }
        *count += 1;
        drop(by_address);
        Some(Connection { _room: room, address, by_address: Arc::clone(&self.by_address) })
    }

    /// Waits until there are none.
    pub(super) async fn are_over(&self) {
        let all = u32::try_from(OF_ALL).unwrap_or(u32::MAX);
        let _ = self.room.acquire_many(all).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut by_address = locked(&self.by_address);
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_address_has_no_more_than_its_share_and_gets_it_back() {
        let connections = Connections::default();
        let one = IpAddr::from([192, 0, 2, 1]);
        let mut held = Vec::new();
        for _ in 0..OF_ONE {
            held.push(connections.of(one, connections.room().await.unwrap()).expect("within its share"));
        }
        assert!(connections.of(one, connections.room().await.unwrap()).is_none());
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert!(connections.of(mapped, connections.room().await.unwrap()).is_none(), "it is the same");
        let other = IpAddr::from([192, 0, 2, 2]);
        assert!(connections.of(other, connections.room().await.unwrap()).is_some());
        held.pop();
        let again = connections.of(one, connections.room().await.unwrap());
        assert!(again.is_some());
        drop((held, again));
        assert!(locked(&connections.by_address).is_empty(), "nothing is remembered of who is gone");
        connections.are_over().await;
    }
}
