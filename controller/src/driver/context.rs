//! The services and data of every handler: store, estate, policy of the planner, and state of this process.

use std::sync::Arc;

use basalt_api::values::{Generation, Uid};
use basalt_db::{Overlay, StatusWrite, Store, StoreError, WorkLease};
use basalt_engine::Policy;
use serde_json::Value;

use crate::driver::allocate::Allocator;
use crate::driver::entries::common::Common;
use crate::driver::entries::rack::WrittenConcerns;
use crate::driver::kill::KillPoints;
use crate::driver::meters::Meters;
use crate::driver::topology::Topology;
use crate::driver::topology::estate::Estate;
use crate::racks::sessions::Sessions;
use crate::telemetry::Telemetry;

/// The parts that handlers use. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Driver {
    /// The region's store.
    pub store: Store,
    /// The racks' streams to this process.
    pub sessions: Sessions,
    /// The estate, which is the same for all machines.
    pub topology: Topology,
    /// The concerns that all racks share.
    pub common: Common,
    /// The concerns of single racks that this process wrote.
    pub written: WrittenConcerns,
    /// The deadlines and pauses of the planner.
    pub policy: Policy,
    /// Gives machines to deployments.
    pub allocator: Arc<Allocator>,
    /// The places where tests kill the process.
    pub kill: KillPoints,
    /// This process, as the owner of leases.
    pub owner: Uid,
    /// The counters of this driver.
    pub meters: Meters,
    /// The sender of spans.
    pub telemetry: Telemetry,
}

impl Driver {
    /// The present estate, or the one that a dry run assumes.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn estate(&self) -> Result<Estate, StoreError> {
        self.topology.estate(&self.store).await
    }

    /// A driver that reads these objects in their supposed states. Use it only for answers: it must not act.
    pub(crate) fn supposing(&self, others: Option<&Arc<Overlay>>) -> Self {
        let others = others.cloned();
        let store = others.map_or_else(|| self.store.clone(), |others| self.store.supposing(others));
        Self { store, ..self.clone() }
    }

    /// Writes an object's status under its lease, and counts the phase that it ends.
    pub(crate) async fn write_status(
        &self,
        lease: &WorkLease,
        observed: Generation,
        status: &Value,
    ) -> Result<(), StoreError> {
        let written = self.store.write_status(lease, observed, status).await?;
        if let StatusWrite::Written { left: Some((phase, after)) } = written {
            self.meters.left(&lease.kind, &phase, after);
        }
        Ok(())
    }
}
