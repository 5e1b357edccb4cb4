//! A controller: the racks' port and the engine's driver, beside a running API.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use basalt_db::StoreError;
use basalt_engine::Policy;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::driver::Driver;
use crate::driver::entries::common::Common;
use crate::driver::entries::rack::WrittenConcerns;
use crate::driver::kill::KillPoints;
use crate::driver::meters::Meters;
use crate::driver::topology::Topology;
use crate::racks::authority::{Authority, AuthorityError};
use crate::racks::join_token::Joiner;
use crate::racks::listener::{self, ListenError};
use crate::racks::own_address::{Declared, Finder};
use crate::racks::regions::Regions;
use crate::racks::service::Racks;
use crate::racks::sessions::Sessions;
use crate::region::Region;

/// The reason why the controller does not start.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The region cannot listen for racks.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The certificate authority cannot be used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The store failed.
    #[error("cannot read the region's certificate authority")]
    Store(#[from] StoreError),
    /// TLS to the other regions cannot be configured.
    #[error("TLS cannot be spoken with the region's certificate authority")]
    Tls(#[from] rustls::Error),
}

/// The running port and driver.
#[derive(Debug)]
pub struct Controller {
    rpc_address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

/// How long all tasks together may take to end, once the region is told to stop.
const ENDING: Duration = Duration::from_secs(5);

/// Waits for tasks until the deadline. Later tasks are abandoned: they end with the process.
async fn ended(tasks: Vec<JoinHandle<()>>, deadline: Instant) {
    for task in tasks {
        if timeout_at(deadline, task).await.is_err() {
            tracing::warn!("a task did not end within {} s, and is abandoned", ENDING.as_secs());
        }
    }
}

impl Controller {
    /// Starts both beside `region`; they end when the region is told to stop. `join_urls` are the regions in join tokens. If they are
    /// empty, join tokens name this process.
    ///
    /// # Errors
    /// Fails if the port is taken, or if the authority cannot be read.
    pub async fn start(
        region: &Region,
        rpc_listen: SocketAddr,
        policy: Policy,
        join_urls: Vec<String>,
    ) -> Result<Self, ControllerError> {
        let store = region.store().clone();
        let fresh = Authority::generate(SystemTime::now())?;
        let (certificate, key) = store.authority((&fresh.0, &fresh.1)).await?;
        let authority = Arc::new(Authority::load(certificate, &key)?);
        let listener = listener::bind(rpc_listen).await?;
        let rpc_address = listener.local_addr().unwrap_or(rpc_listen);
        let sessions = Sessions::new(store.now().await?);
        sessions.meters().set_telemetry(region.telemetry().clone());
        let driver = Driver {
            store: store.clone(),
            sessions: sessions.clone(),
            topology: Topology::new(sessions.clone()),
            common: Common::default(),
            written: WrittenConcerns::default(),
            policy,
            allocator: Arc::default(),
            kill: KillPoints::from_env(),
            owner: region.id(),
            meters: Meters::default(),
            telemetry: region.telemetry().clone(),
        };
        region.set_machinery(Arc::new(driver.clone()));
        let address = region.rpc_address();
        let declared = Declared { own: address.borrow().clone(), join_urls, listening: Some(rpc_address) };
        let joiner = Joiner::new(store.clone(), authority.certificate(), declared.urls_of_tokens());
        region.set_joiner(joiner);
        let regions = Regions {
            store: store.clone(),
            process: region.id(),
            sessions: sessions.clone(),
            declared,
            finder: Finder::new(region.id(), authority.certificate())?,
            address,
        };
        let closing = sessions.clone();
        let blobs = region.blobs().clone();
        let logs = region.logs().clone();
        let proxy = Arc::clone(region.proxy());
        let proxying = Arc::clone(&proxy).run(store.clone(), driver.topology.clone(), region.stopping());
        let racks = Racks { store, process: region.id(), sessions, authority, blobs, logs, proxy };
        let mut stop = region.stopping();
        let api = region.forwarded();
        let serving = async move {
            let stopped = async move {
                let _ = stop.wait_for(|stop| *stop).await;
                closing.close();
            };
            if let Err(error) = listener::serve(listener, racks, api, stopped).await {
                tracing::error!(%error, "racks are not served any more");
            }
        };
        tracing::info!(address = %rpc_address, "racks are served");
        let tasks = vec![
            tokio::spawn(serving),
            tokio::spawn(regions.follow(region.stopping())),
            tokio::spawn(proxying),
            tokio::spawn(driver.run(region.follower().clone(), region.stopping())),
        ];
        Ok(Self { rpc_address, tasks })
    }

    /// The address that racks dial.
    #[must_use]
    pub fn rpc_address(&self) -> SocketAddr {
        self.rpc_address
    }

    /// Waits until all work in progress has ended, at most [`ENDING`]. The region must have been told to stop.
    pub async fn ended(self) {
        ended(self.tasks, Instant::now() + ENDING).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_that_go_on_share_one_deadline() {
        let tasks = (0..20).map(|_| tokio::spawn(std::future::pending())).collect();
        let began = Instant::now();
        ended(tasks, began + Duration::from_millis(200)).await;
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(2), "{took:?}");
    }
}
