//! Webhooks: events of objects are posted to receivers.
//!
//! The transaction that causes an event also stores the event and its deliveries (migration 0010), so an event is neither lost nor
//! invented. Any number of regions run this loop on one database. Leases keep them from sending the same delivery at the same time.
//!
//! | promise | by |
//! | --- | --- |
//! | at least once | a delivery stays until the receiver answered 2xx; if a region is killed in between, the next one sends it again |
//! | in order, per webhook and object | only the oldest delivery that has not ended is handed out |
//! | a receiver delays no other | one worker per webhook, [`PARALLEL`] requests of each, every one with a deadline |
//! | it ends | [`retry`]: after some attempts or a day it is a dead letter, which stays visible and can be sent again |
//!
//! The request is that of the Standard Webhooks specification 1.0.0: see [`post`].
//!
//! Only admins declare Webhooks, since a Webhook receives events of every object. A receiver on the region's own host (any of its
//! addresses) or on its links is refused, unless `webhook-networks` names it. Sensitive fields are masked, as in the audit log.

pub mod post;
pub mod retry;
mod sign;

use crate::api;
use crate::settings::Settings;
use basalt_api::kinds::WebhookSpec;
use basalt_api::values::{Cidr, Uid};
use basalt_db::{Delivery, Store, StoreError};
use post::{Outcome, Poster, Receiver};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

/// The number of parallel requests to one webhook; one if its last request failed.
pub const PARALLEL: usize = 4;

/// The number of parallel requests to all webhooks.
const ALL: usize = 256;

/// The time by which a lease is longer than its request's deadline.
const MARGIN: Duration = Duration::from_secs(15);

/// The longest wait for a wake-up, in case one was lost.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// The shortest pause between two queries for due deliveries, and the pause while all due ones belong to busy workers.
const PACE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

/// Time limit for requests in progress when the region stops.
const DRAIN: Duration = Duration::from_secs(5);

/// The options of deliveries.
#[derive(Clone, Debug)]
pub struct Options {
    /// The networks of receivers. Empty: everywhere except this host, its links, and addresses without a host.
    pub networks: Vec<Cidr>,
    /// The longest time of one request, including the answer.
    pub timeout: Duration,
    /// How long a delivery is retried.
    pub patience: Duration,
    /// The divisor of pauses, for tests.
    pub divisor: u32,
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            networks: settings.webhook_networks.clone(),
            timeout: settings.webhook_timeout,
            patience: settings.webhook_patience,
            divisor: settings.deadline_divisor.max(1),
        }
    }
}

/// The number of attempts, by result.
#[derive(Debug, Default)]
pub struct Counters {
    /// In the order of [`RESULTS`].
    attempts: [AtomicU64; RESULTS.len()],
}

/// The results of attempts.
pub const RESULTS: [&str; 4] = ["accepted", "failed", "dead", "gone"];

impl Counters {
    fn count(&self, result: &str) {
        if let Some((_, counter)) = RESULTS.iter().zip(&self.attempts).find(|(name, _)| **name == result) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each result with its count.
    pub fn results(&self) -> impl Iterator<Item = (&'static str, u64)> {
        RESULTS.iter().zip(&self.attempts).map(|(name, counter)| (*name, counter.load(Ordering::Relaxed)))
    }
}

/// The webhooks whose deliveries fail. The log names each failure once, until the webhook accepts a delivery again.
#[derive(Debug, Default)]
struct Unwell {
    /// The webhook, and the result of a delivery.
    said: Mutex<BTreeSet<(Uid, &'static str)>>,
}

impl Unwell {
    /// True if the failure was not logged yet.
    fn is_news(&self, webhook: Uid, result: &'static str) -> bool {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).insert((webhook, result))
    }

    /// True if a webhook that accepts a delivery has failed before.
    fn has_recovered(&self, webhook: Uid) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let before = said.len();
        said.retain(|(unwell, _)| *unwell != webhook);
        said.len() < before
    }
}

/// Sends the deliveries that this process claims.
#[derive(Debug)]
pub(crate) struct Deliverer {
    store: Store,
    /// This process, as the owner of leases.
    owner: Uid,
    options: Options,
    poster: Poster,
    counters: Arc<Counters>,
    unwell: Unwell,
    slots: Semaphore,
}

impl Deliverer {
    /// # Errors
    /// The reason why TLS cannot be used.
    pub(crate) fn new(
        store: Store,
        owner: Uid,
        options: Options,
        counters: Arc<Counters>,
    ) -> Result<Self, String> {
        let poster = Poster::new(&options.networks, options.timeout)?;
        Ok(Self {
            store,
            owner,
            options,
            poster,
            counters,
            unwell: Unwell::default(),
            slots: Semaphore::new(ALL),
        })
    }

    /// Works until it is told to stop. Requests in progress may then end.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let this = Arc::new(self);
        let mut woken = this.store.woken();
        let mut workers: HashMap<Uid, (JoinHandle<()>, Arc<Notify>)> = HashMap::new();
        while !*stop.borrow() {
            woken.mark_unchanged();
            workers.retain(|_, (worker, _)| !worker.is_finished());
            let (pace, next) = match this.look(&mut workers, &stop).await {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(%error, "cannot look for deliveries; trying again");
                    (PACE.1, LOOK_ANYWAY)
                }
            };
            tokio::time::sleep(pace).await;
            tokio::select! {
                _ = tokio::time::timeout(next.min(LOOK_ANYWAY), woken.changed()) => {}
                _ = stop.changed() => {}
            }
        }
        for (_, (worker, _)) in workers {
            let abort = worker.abort_handle();
            if tokio::time::timeout(DRAIN, worker).await.is_err() {
                abort.abort();
            }
        }
    }

    /// Wakes or starts the workers of webhooks with due deliveries. Returns when to look again.
    async fn look(
        self: &Arc<Self>,
        workers: &mut HashMap<Uid, (JoinHandle<()>, Arc<Notify>)>,
        stop: &watch::Receiver<bool>,
    ) -> Result<(Duration, Duration), StoreError> {
        let due = self.store.due_webhooks().await?;
        let mut pace = if due.is_empty() { PACE.0 } else { PACE.1 };
        for webhook in due {
            if let Some((_, notify)) = workers.get(&webhook) {
                notify.notify_one();
                continue;
            }
            let notify = Arc::new(Notify::new());
            let (this, woken, stop) = (Arc::clone(self), Arc::clone(&notify), stop.clone());
            let worker = tokio::spawn(async move { this.serve(webhook, &woken, &stop).await });
            workers.insert(webhook, (worker, notify));
            pace = PACE.0;
        }
        Ok((pace, self.store.next_delivery().await?.unwrap_or(LOOK_ANYWAY)))
    }

    /// Serves one webhook as long as it has due deliveries.
    async fn serve(self: Arc<Self>, webhook: Uid, woken: &Notify, stop: &watch::Receiver<bool>) {
        let mut under_way = JoinSet::new();
        let mut failing = false;
        loop {
            let most = if failing { 1 } else { PARALLEL };
            let room = most.saturating_sub(under_way.len());
            if room > 0 && !*stop.borrow() {
                match self.claim(webhook, room).await {
                    Ok(Some((receiver, claimed))) => {
                        for delivery in claimed {
                            let (this, receiver) = (Arc::clone(&self), Arc::clone(&receiver));
                            under_way.spawn(async move { this.attempt(webhook, &receiver, &delivery).await });
                        }
                    }
                    Ok(None) => {}
                    Err(error) => tracing::warn!(%webhook, %error, "cannot take deliveries; trying again"),
                }
            }
            if under_way.is_empty() {
                return;
            }
            tokio::select! {
                Some(ended) = under_way.join_next() => failing = !ended.unwrap_or(false),
                () = woken.notified() => {}
            }
        }
    }

    async fn claim(
        &self,
        webhook: Uid,
        room: usize,
    ) -> Result<Option<(Arc<Receiver>, Vec<Delivery>)>, StoreError> {
        let Some(object) = self.store.get_by_uid(webhook).await? else { return Ok(None) };
        let spec: WebhookSpec = serde_json::from_str(object.spec.get())
            .map_err(|error| StoreError::Corrupt(format!("the spec of a webhook: {error}")))?;
        let secret = self.store.open_secret(webhook, "/secret").await?;
        let receiver = Receiver { name: object.name, url: spec.url.to_string(), secret };
        let (limit, lease) = (i64::try_from(room).unwrap_or(1), self.options.timeout.saturating_add(MARGIN));
        let claimed = self.store.claim_deliveries(webhook, self.owner, limit, lease).await?;
        Ok(Some((Arc::new(receiver), claimed)))
    }

    /// Sends one request. Returns true if it was accepted.
    async fn attempt(&self, webhook: Uid, receiver: &Receiver, delivery: &Delivery) -> bool {
        let Ok(_slot) = self.slots.acquire().await else { return false };
        let outcome = match api::payload(delivery) {
            Ok(body) => self.poster.post(receiver, delivery, body).await,
            Err(error) => Outcome::Failed { error, retry_after: None },
        };
        let (result, noted) = match &outcome {
            Outcome::Accepted => ("accepted", self.store.delivered(webhook, delivery).await),
            Outcome::Gone(error) => ("gone", self.store.disable_webhook(webhook, error).await),
            Outcome::Failed { error, retry_after } => {
                let pause = retry::pause(delivery.attempt, self.options.divisor, retry::jitter());
                let pause = pause.map(|pause| pause.max(retry_after.unwrap_or_default()));
                match pause.filter(|_| delivery.age < self.options.patience) {
                    Some(pause) => {
                        ("failed", self.store.delivery_failed(webhook, delivery, error, pause).await)
                    }
                    None => ("dead", self.store.give_up(webhook, delivery, error).await),
                }
            }
        };
        self.counters.count(result);
        let (name, id, attempt) = (&receiver.name, delivery.id, delivery.attempt);
        match &outcome {
            Outcome::Accepted if self.unwell.has_recovered(webhook) => {
                tracing::info!(webhook = name, %id, "deliveries are accepted again");
            }
            Outcome::Accepted => {}
            Outcome::Failed { error, .. } | Outcome::Gone(error) if self.unwell.is_news(webhook, result) => {
                tracing::warn!(webhook = name, %id, attempt, result, error, "a delivery was not accepted");
            }
            Outcome::Failed { error, .. } | Outcome::Gone(error) => {
                tracing::debug!(webhook = name, %id, attempt, result, error, "a delivery was not accepted");
            }
        }
        if let Err(error) = noted {
            tracing::warn!(webhook = name, %id, %error, "what became of a delivery was not noted; it is made again");
        }
        matches!(outcome, Outcome::Accepted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_that_does_not_work_is_news_once_until_it_works_again() {
        let (unwell, [one, other]) = (Unwell::default(), [1, 2].map(|n| Uid::from(uuid::Uuid::from_u128(n))));
        assert!(!unwell.has_recovered(one));
        assert!(unwell.is_news(one, "failed") && !unwell.is_news(one, "failed"));
        assert!(unwell.is_news(one, "dead"), "that something is lost is more than that it is late");
        assert!(unwell.is_news(other, "failed"));
        assert!(unwell.has_recovered(one) && !unwell.has_recovered(one));
        assert!(unwell.is_news(one, "failed") && !unwell.is_news(other, "failed"));
    }
}
