//! The region processes of this database. Each process sends its racks the addresses of all processes, and racks dial all of them.
//!
//! The list contains the living processes, those that were killed within a day, and the entries of `join-urls`. The rack reports the health
//! of its link to each. A process that was stopped is left out, unless it is an entry of `join-urls`.

use std::collections::BTreeSet;
use std::time::Duration;

use basalt_api::values::Uid;
use basalt_db::{RegionProcess, Store, StoreError};
use tokio::sync::watch;

use super::own_address::{Declared, Finder};
use super::sessions::{Known, Sessions};

/// A region process counts as living for this long after its last heartbeat.
const LIVING: Duration = Duration::from_secs(30);
/// Time between two readings of the processes.
const LOOK: Duration = Duration::from_secs(5);

/// The task that keeps the racks' list of processes up to date.
#[derive(Debug)]
pub struct Regions {
    /// The store with the processes.
    pub store: Store,
    /// The id of this process.
    pub process: Uid,
    /// Streams of racks, which receive the list.
    pub sessions: Sessions,
    /// The addresses in the settings.
    pub declared: Declared,
    /// Finds the address of this process.
    pub finder: Finder,
    /// The address of this process, for its heartbeat.
    pub address: watch::Sender<Option<String>>,
}

impl Regions {
    /// Reads the processes regularly until told to stop.
    pub async fn follow(self, mut stopping: watch::Receiver<bool>) {
        tokio::select! {
            () = self.look_often() => {}
            _ = stopping.wait_for(|stop| *stop) => {}
        }
    }

    async fn look_often(&self) {
        if let Some(problem) = self.declared.doubled() {
            tracing::warn!("{problem}");
        }
        let (mut own, mut said, mut doubles) = (None, None, BTreeSet::new());
        loop {
            if own.is_none() {
                own = self.find(&mut said).await;
                self.address.send_if_modified(|known| {
                    let is_news = *known != own;
                    known.clone_from(&own);
                    is_news
                });
            }
            match self.look(own.as_deref(), &mut doubles).await {
                Ok(known) => self.sessions.set_regions(known),
                Err(error) => {
                    tracing::debug!(%error, "the other regions are not known; they are looked for again")
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The address of this process. If it is not known, logs the reason once.
    async fn find(&self, said: &mut Option<String>) -> Option<String> {
        match self.finder.find(&self.declared).await {
            Ok(own) => return Some(own),
            Err(problem) if said.as_ref() == Some(&problem) => {}
            // A single region needs no address.
            Err(problem) if self.declared.join_urls.is_empty() => {
                tracing::info!("{problem}");
                *said = Some(problem);
            }
            Err(problem) => {
                tracing::warn!("{problem}");
                *said = Some(problem);
            }
        }
        None
    }

    /// Reads the processes. Logs each other living process with the same address as this one.
    async fn look(&self, own: Option<&str>, doubles: &mut BTreeSet<Uid>) -> Result<Known, StoreError> {
        let mut known = Known { own: own.map(str::to_owned), ..Known::default() };
        known.all = self.declared.entries().into_iter().chain(known.own.clone()).collect();
        let mut same = BTreeSet::new();
        for (other, lives) in self.store.region_processes(LIVING).await? {
            let RegionProcess { id, rpc_address: Some(address), api_address, .. } = other else { continue };
            if id == self.process {
                continue;
            }
            if lives && known.own.as_ref() == Some(&address) {
                if !doubles.contains(&id) {
                    tracing::warn!(
                        "another living region of this database, whose API is at {api_address}, has the same address \
                         for racks ({address}): racks find one of both. Give each region its own with --rpc-url \
                         https://ADDRESS:5250"
                    );
                }
                same.insert(id);
            } else if lives {
                known.living.insert(address.clone());
            }
            known.all.insert(address);
        }
        *doubles = same;
        Ok(known)
    }
}
