//! The topology in memory. It is the same for all machines, so it is read once, and again only after its position has changed.
//!
//! [`Topology::estate`] reads the position, which is one row, and returns the kept [`Estate`] if it is as new. A change is committed before
//! it wakes an object. Therefore the reconciliation that it wakes sees the change, in every region process.
//!
//! The connections of racks are not kept, because each process has its own. They are added to the kept estate at each use.
//!
//! | module | is |
//! | --- | --- |
//! | [`estate`] | the estate, from the rows of the topology |
//! | [`network`] | the racks of a network and of a BMC, and the servers of machines. Pure |
//! | `internal_domain` | the names by which systems find racks |
//! | `ntp` | the NTP servers of machines |
//! | [`services`] | the state of a rack's services, from its reports |
//! | [`tags`] | the tags that a machine has by their expressions |

pub mod estate;
pub(crate) mod internal_domain;
pub mod network;
pub(crate) mod ntp;
#[cfg(test)]
pub(crate) mod samples;
pub mod services;
pub mod tags;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use basalt_db::{Store, StoreError};

use crate::racks::sessions::Sessions;
use estate::Estate;

/// The last estate that was read. Cheap to clone; the clones share it.
#[derive(Clone, Debug)]
pub struct Topology {
    sessions: Sessions,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Option<Kept>>,
    /// Held while the topology is read. Other callers wait, and share the result.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct Kept {
    position: i64,
    estate: Estate,
}

impl Topology {
    /// Before the first reading.
    #[must_use]
    pub fn new(sessions: Sessions) -> Self {
        Self { sessions, shared: Arc::default() }
    }

    /// The estate, with every change that was committed before the call.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn estate(&self, store: &Store) -> Result<Estate, StoreError> {
        let estate = match store.supposes_topology() {
            // A dry run. Its estate is not kept.
            true => Estate::of(store.topology().await?),
            false => self.kept(store).await?,
        };
        estate.with_presence(store, &self.sessions).await
    }

    /// The addresses of all regions of the database, `HOST:PORT`.
    #[must_use]
    pub fn regions(&self) -> BTreeSet<String> {
        self.sessions.regions().borrow().all.clone()
    }

    async fn kept(&self, store: &Store) -> Result<Estate, StoreError> {
        let position = store.topology_position().await?;
        if let Some(estate) = self.from(position) {
            return Ok(estate);
        }
        let _turn = self.shared.reading.lock().await;
        // Another caller may have read it in the meantime.
        if let Some(estate) = self.from(position) {
            return Ok(estate);
        }
        let rows = store.topology().await?;
        let position = rows.position;
        let estate = Estate::of(rows);
        *self.lock() = Some(Kept { position, estate: estate.clone() });
        Ok(estate)
    }

    /// The kept estate, if it includes all changes up to this position. Positions only rise.
    fn from(&self, position: i64) -> Option<Estate> {
        self.lock().as_ref().filter(|kept| kept.position >= position).map(|kept| kept.estate.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Kept>> {
        self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
