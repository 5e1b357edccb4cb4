//! The driver's loop: claims objects that are due, handles them, and finishes only the wake-ups that it saw.
//!
//! Any number of region processes run this loop on one database. A handler that fails or panics is caught, counted and
//! retried later ([`poison`](crate::driver::poison)); it affects no other object.

use std::sync::Arc;
use std::time::Duration;

use basalt_db::change::Follower;
use basalt_db::wake::TURNS;
use basalt_db::{Requeue, Store, StoreError, WorkLease, trace};
use basalt_proto::trace_id;
use tokio::sync::{Semaphore, watch};
use tracing::Instrument;

use crate::driver::context::Driver;
use crate::driver::poison::{Failure, guarded};
use crate::driver::reconcile::{deployment, discovery, domain, image, machine, rack, subnet, tag};
use crate::driver::wake;

/// The number of objects that one process handles at once.
const WORKERS: usize = 8;
/// The lease time. To handle an object takes milliseconds: no slow work is done under a lease.
const LEASE: Duration = Duration::from_secs(10);
/// The longest wait for a wake-up, in case one was lost.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);
/// The interval of the scan for missed wake-ups.
const SCAN: Duration = Duration::from_secs(60);

impl Driver {
    /// Works until it is told to stop, and finishes the work in progress.
    pub async fn run(self, follower: Follower, mut stopping: watch::Receiver<bool>) {
        let slots = Arc::new(Semaphore::new(WORKERS));
        let mut woken = self.store.woken();
        let changes = follower.subscribe();
        let dependents = tokio::spawn(wake::follow(self.store.clone(), self.allocator.clone(), changes));
        let (store, allocator) = (self.store.clone(), self.allocator.clone());
        let waiting = tokio::spawn(async move { allocator.wake(&store).await });
        let scan = tokio::spawn(scan(self.store.clone()));
        while !*stopping.borrow() {
            let busy = self.claim(&slots).await;
            if busy {
                continue;
            }
            let due = self.store.next_due().await.ok().flatten().unwrap_or(LOOK_ANYWAY);
            tokio::select! {
                _ = tokio::time::timeout(due.clamp(Duration::from_millis(1), LOOK_ANYWAY), woken.changed()) => {}
                _ = stopping.changed() => {}
            }
            woken.mark_unchanged();
        }
        for task in [dependents, waiting, scan] {
            task.abort();
        }
        let all = u32::try_from(WORKERS).unwrap_or(1);
        let _ = tokio::time::timeout(LEASE, slots.acquire_many(all)).await;
    }

    /// Claims as many objects as there are free workers. Returns true if there were any.
    async fn claim(&self, slots: &Arc<Semaphore>) -> bool {
        let Ok(first) = Arc::clone(slots).acquire_owned().await else { return false };
        let free = i64::try_from(slots.available_permits()).unwrap_or(0).saturating_add(1);
        let leases = match self.store.claim(self.owner, free, LEASE).await {
            Ok(leases) => leases,
            Err(error) => {
                tracing::warn!(%error, "cannot look for work; trying again");
                tokio::time::sleep(LOOK_ANYWAY).await;
                return false;
            }
        };
        let busy = !leases.is_empty();
        let mut first = Some(first);
        for lease in leases {
            let Some(slot) = first.take().or_else(|| Arc::clone(slots).try_acquire_owned().ok()) else {
                break;
            };
            let driver = self.clone();
            tokio::spawn(async move {
                let _slot = slot;
                driver.handle(lease).await;
            });
        }
        busy
    }

    /// Claims one object that is due and handles it. Returns false if there was none. All the work is in this one future: to drop it
    /// at any await has the same effect as a death of the process there.
    ///
    /// # Errors
    /// Fails if the database cannot be asked for due objects.
    pub async fn turn(&self) -> Result<bool, StoreError> {
        let Some(lease) = self.store.claim(self.owner, 1, LEASE).await?.pop() else { return Ok(false) };
        self.handle(lease).await;
        Ok(true)
    }

    async fn handle(&self, lease: WorkLease) {
        let log = match &lease.trace {
            Some(trace) => tracing::info_span!("reconcile", trace_id = trace_id(trace)),
            None => tracing::Span::none(),
        };
        let work = self.telemetry.span(
            format!("reconcile {}", lease.kind),
            vec![("basalt.object.uid", lease.uid.to_string())],
            guarded(Box::pin(self.work(&lease))),
            |failure| failure.cause().to_owned(),
        );
        let given_back = match trace::within(lease.trace.clone(), work).instrument(log).await {
            Ok(then) => self.store.finish(&lease, then).await,
            Err(Failure::Fenced) => {
                self.meters.conflict("lease");
                return;
            }
            Err(failure) => self.give_up(&lease, &failure).await,
        };
        match given_back {
            Ok(()) => {}
            Err(StoreError::Fenced { .. }) => self.meters.conflict("lease"),
            Err(error) => tracing::warn!(%error, "a lease was not given back; it runs out"),
        }
    }

    async fn work(&self, lease: &WorkLease) -> Result<Requeue, StoreError> {
        match lease.kind.as_str() {
            "Machine" => Box::pin(machine::reconcile(self, lease)).await,
            "Deployment" => Box::pin(deployment::reconcile(self, lease)).await,
            "Rack" => rack::reconcile(self, lease).await,
            "Image" => image::reconcile(self, lease).await,
            "Tag" => tag::reconcile(self, lease).await,
            "Domain" => domain::reconcile(self, lease).await,
            "Subnet" => subnet::reconcile(self, lease).await,
            "Discovery" => discovery::reconcile(self, lease).await,
            _ => Ok(Requeue::WhenWoken),
        }
    }
}

/// Puts all objects into the queue once, and later those that are not settled and a part of the others each time.
async fn scan(store: Store) {
    let mut turn = 0;
    let mut scanned = store.enqueue_all().await;
    loop {
        if let Err(error) = scanned {
            tracing::warn!(%error, "a scan failed; the next one comes");
        }
        tokio::time::sleep(SCAN).await;
        scanned = store.enqueue_turn(turn).await;
        if scanned.is_ok() {
            turn = turn.wrapping_add(1) % TURNS;
        }
    }
}
