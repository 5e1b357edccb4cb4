//! No more requests under way at once than the provider's block says, and no more patience with a region that is away than once.
//!
//! Terraform works on ten objects at a time, or as many as `-parallelism` says, and several of them may ask one region.
//! `max_parallel` is how much of that reaches it at once: whoever comes then waits here.
//!
//! Terraform goes on to the next object when one fails. If each of them waited for a region that is away as long as `retry_timeout` says, a
//! thousand would take hours to say so. Whoever comes after the first one that waited in vain tries once.
//!
//! An interruption ends them all, whatever they wait for, but for a moment that a write has left which was sent.

use std::num::NonZeroU16;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use basalt_api::client::{Client, ClientConfig, ClientError};
use basalt_api::values::RunId;
use tfplugin::CancellationToken;
use tokio::sync::{Semaphore, SemaphorePermit};

/// For how long a region that did not answer counts as being away.
const AWAY: Duration = Duration::from_secs(10);

/// How long is waited for the answer to what is owed after an interruption.
const LAST: Duration = Duration::from_secs(2);

/// A client of which so many calls are under way at once.
#[derive(Clone, Debug)]
pub(crate) struct Bounded {
    client: Client,
    /// The same for calls to a region that is away.
    hasty: Client,
    /// The same for calls that no interruption ends.
    unending: Client,
    end: CancellationToken,
    places: Arc<Semaphore>,
    missed: Arc<Mutex<Option<Instant>>>,
}

/// The client for one call. Its place is free again when this is dropped: at the end of the statement that made it, so what
/// an answer leads to is another statement.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    client: &'a Client,
    /// `None` after an interruption: nothing is sent any more.
    _place: Option<SemaphorePermit<'a>>,
}

impl Deref for Call<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client
    }
}

impl Bounded {
    /// So many calls at once, or as many as come.
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

    /// The same, creating for this run.
    pub(crate) fn of_run(self, run: RunId) -> Self {
        let [client, hasty, unending] =
            [&self.client, &self.hasty, &self.unending].map(|client| client.of_run(run));
        Self { client, hasty, unending, ..self }
    }

    /// The same, whose calls an interruption ends.
    pub(crate) fn until(self, end: CancellationToken) -> Self {
        let [client, hasty] = [&self.client, &self.hasty].map(|client| client.until(end.clone()));
        Self { client, hasty, end, ..self }
    }

    /// The client, as soon as there is a place for another call.
    pub(crate) async fn call(&self) -> Call<'_> {
        let place = tokio::select! {
            biased;
            () = self.end.cancelled() => None,
            place = self.places.acquire() => place.ok(),
        };
        let client = if self.is_away() { &self.hasty } else { &self.client };
        Call { client, _place: place }
    }

    /// That nobody answered; whether that is the first time.
    pub(crate) fn misses(&self) -> bool {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner).replace(Instant::now()).is_none()
    }

    fn is_away(&self) -> bool {
        let missed = *self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.is_some_and(|missed| missed.elapsed() < AWAY)
    }

    /// The client for calls that stay open until something happens, and that whoever makes them ends. They take nobody's place: while
    /// a hundred deployments are waited for there is room for the one that comes next.
    pub(crate) fn for_waiting(&self) -> &Client {
        &self.unending
    }

    /// The client for what is owed after an interruption: it is tried once, and shortly.
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
