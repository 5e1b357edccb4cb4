//! Webhooks: what happens to objects is posted to those who asked for it.
//!
//! The database notes events and deliveries in the transaction that causes them (migration 0010), so an event is neither lost nor
//! invented. Any number of regions run this loop on one database; leases keep them from sending one delivery twice on purpose.
//!
//! | promise | by |
//! | --- | --- |
//! | at least once | a delivery stays until the receiver answered 2xx; who was killed in between leaves it to the next |
//! | in order, of one webhook and object | only the oldest that is not ended is handed out |
//! | a receiver delays no other | a worker a webhook, [`PARALLEL`] requests of each, every one with a deadline |
//! | it ends | [`retry`]: after some attempts or a day it is a dead letter, which stays visible and can be sent again |
//!
//! The request is that of the Standard Webhooks specification 1.0.0: see [`post`].

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

/// Requests under way to one webhook; one while the last one failed.
pub const PARALLEL: usize = 4;

/// Requests under way to all of them.
const ALL: usize = 256;

/// A lease outlasts its request's deadline by this.
const MARGIN: Duration = Duration::from_secs(15);

/// How long the loop trusts that it is woken.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// It looks at most so often; and so often while what is due is only for workers that are busy.
const PACE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

/// What is under way when the region stops may take this long.
const DRAIN: Duration = Duration::from_secs(5);

/// How deliveries are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Receivers have to be in one of these; empty: anywhere but on this host, its links, and where no host is.
    pub networks: Vec<Cidr>,
    /// How long one request may take, the answer included.
    pub timeout: Duration,
    /// How long a delivery is tried.
    pub patience: Duration,
    /// Pauses are divided by this.
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

/// Attempts, by what became of them.
#[derive(Debug, Default)]
pub struct Counters {
    /// By the place of the result in [`RESULTS`].
    attempts: [AtomicU64; RESULTS.len()],
}

/// What can become of an attempt.
pub const RESULTS: [&str; 4] = ["accepted", "failed", "dead", "gone"];

impl Counters {
    fn count(&self, result: &str) {
        if let Some((_, counter)) = RESULTS.iter().zip(&self.attempts).find(|(name, _)| **name == result) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each result, and how often it was.
    pub fn results(&self) -> impl Iterator<Item = (&'static str, u64)> {
        RESULTS.iter().zip(&self.attempts).map(|(name, counter)| (*name, counter.load(Ordering::Relaxed)))
    }
}

/// Which webhooks do not take what is sent: the log says so once, until one does again.
#[derive(Debug, Default)]
struct Unwell {
    /// The webhook, and what became of a delivery.
    said: Mutex<BTreeSet<(Uid, &'static str)>>,
}

impl Unwell {
    /// Whether this is news.
    fn is_news(&self, webhook: Uid, result: &'static str) -> bool {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).insert((webhook, result))
    }

    /// Whether a webhook that takes deliveries did not before.
    fn has_recovered(&self, webhook: Uid) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let before = said.len();
        said.retain(|(unwell, _)| *unwell != webhook);
        said.len() < before
    }
}

/// Makes the deliveries that this process claims.
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
    /// What keeps it from speaking TLS.
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

    /// Works until told to stop; what is begun then may end.
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

    /// Wakes or starts the workers of webhooks that have something due; says when to look again.
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

    /// One webhook, as long as it has something due.
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

    /// One request; whether it was accepted.
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
