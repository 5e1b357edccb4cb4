//! Limits the number of simultaneous requests (`max_parallel`), and the total time spent on a region that is away.
//!
//! Terraform works on ten objects at a time, or on the number in `-parallelism`, and several of them may need the region. `max_parallel`
//! limits the requests that reach it at once; further calls wait here.
//!
//! Terraform continues with the next object when one fails. If each of a thousand objects waited `retry_timeout` for a region that is away,
//! the run would take hours to fail. So only the first one waits; after that, each call tries once.
//!
//! An interruption ends all calls and waits. Only a write that was already sent gets a moment for its answer.

use std::num::NonZeroU16;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use basalt_api::client::{Client, ClientConfig, ClientError};
use basalt_api::values::RunId;
use tfplugin::CancellationToken;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How long a region counts as away after it did not answer.
const AWAY: Duration = Duration::from_secs(10);

/// Longest wait for the answer to a call that must be made after an interruption.
const LAST: Duration = Duration::from_secs(2);

/// A client with a limit on simultaneous calls.
#[derive(Clone, Debug)]
pub(crate) struct Bounded {
    client: Client,
    /// The same client without retries, for a region that is away.
    hasty: Client,
    /// The same client for calls that no interruption ends.
    unending: Client,
    end: CancellationToken,
    places: Arc<Semaphore>,
    missed: Arc<Mutex<Option<Instant>>>,
}

/// The client for one call. Dropping it frees its place: at the end of the statement that made the call. So calls that depend on the answer
/// belong in another statement.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    client: &'a Client,
    /// `None` after an interruption: the client then sends no request.
    _place: Option<SemaphorePermit<'a>>,
}

impl Deref for Call<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client
    }
}

impl Bounded {
    /// A client with at most `most` simultaneous calls, or without a limit.
    ///
    /// # Errors
    /// The configuration is wrong.
    pub(crate) fn new(config: &ClientConfig, most: Option<NonZeroU16>) -> Result<Self, ClientError> {
        let places = most.map_or(Semaphore::MAX_PERMITS, |most| most.get().into());
        let client = Client::new(config)?;
        Ok(Self {
            hasty: client.within(config.timeout, Duration::ZERO),
            unending: client.clone(),
            client,
            end: CancellationToken::new(),
            places: Arc::new(Semaphore::new(places)),
            missed: Arc::default(),
        })
    }

    /// The same client, whose creations belong to this run.
    pub(crate) fn of_run(self, run: RunId) -> Self {
        let [client, hasty, unending] =
            [&self.client, &self.hasty, &self.unending].map(|client| client.of_run(run));
        Self { client, hasty, unending, ..self }
    }

    /// The same client, whose calls this token ends.
    pub(crate) fn until(self, end: CancellationToken) -> Self {
        let [client, hasty] = [&self.client, &self.hasty].map(|client| client.until(end.clone()));
        Self { client, hasty, end, ..self }
    }

    /// The client, once there is a place for another call.
    pub(crate) async fn call(&self) -> Call<'_> {
        let place = tokio::select! {
            biased;
            () = self.end.cancelled() => None,
            place = self.places.acquire() => place.ok(),
        };
        let client = if self.is_away() { &self.hasty } else { &self.client };
        Call { client, _place: place }
    }

    /// Records that the region did not answer. True at the first time.
    pub(crate) fn misses(&self) -> bool {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner).replace(Instant::now()).is_none()
    }

    fn is_away(&self) -> bool {
        let missed = *self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.is_some_and(|missed| missed.elapsed() < AWAY)
    }

    /// The client for calls that stay open until an event; their caller ends them. They take no place, so a hundred waits for deployments
    /// leave room for the next request.
    pub(crate) fn for_waiting(&self) -> &Client {
        &self.unending
    }

    /// The client for calls that must be made after an interruption: a single try with a short time limit.
    pub(crate) fn for_the_last(&self) -> Client {
        self.unending.within(LAST, Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(most: Option<u16>) -> Bounded {
        let endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let config = ClientConfig { endpoints, ..ClientConfig::default() };
        Bounded::new(&config, most.and_then(NonZeroU16::new)).expect("a client")
    }

    async fn has_room(bounded: &Bounded) -> bool {
        tokio::time::timeout(Duration::ZERO, bounded.call()).await.is_ok()
    }

    #[tokio::test]
    async fn a_call_waits_while_as_many_are_under_way_as_may_be() {
        let bounded = bounded(Some(2));
        let (first, _second) = (bounded.call().await, bounded.call().await);
        assert!(!has_room(&bounded).await);
        drop(first);
        assert!(has_room(&bounded).await);
    }

    #[tokio::test]
    async fn a_region_that_is_away_is_waited_for_once() {
        let bounded = bounded(None);
        assert!(std::ptr::eq(bounded.call().await.client, &raw const bounded.client));
        assert!(bounded.misses() && !bounded.misses(), "the first is told from the others");
        assert!(std::ptr::eq(bounded.call().await.client, &raw const bounded.hasty));
        *bounded.missed.lock().expect("a lock") = Instant::now().checked_sub(AWAY);
        assert!(std::ptr::eq(bounded.call().await.client, &raw const bounded.client), "it may be back");
    }

    #[tokio::test]
    async fn an_interruption_leaves_nobody_waiting_for_a_place() {
        let end = CancellationToken::new();
        let bounded = bounded(Some(1)).until(end.clone());
        let _first = bounded.call().await;
        assert!(!has_room(&bounded).await);
        end.cancel();
        let kind = basalt_api::Kind::find("Zone").expect("a kind");
        let found = bounded.call().await.find(kind, "row-1").await;
        assert!(matches!(found, Err(ClientError::Interrupted { may_be_done: false })), "{found:?}");
    }

    #[tokio::test]
    async fn without_a_bound_there_is_always_room() {
        let bounded = bounded(None);
        let mut calls = Vec::new();
        for _ in 0..1000 {
            calls.push(bounded.call().await);
        }
        assert!(has_room(&bounded).await);
    }
}
