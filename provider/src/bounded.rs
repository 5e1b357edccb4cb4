//! No more requests under way at once than the provider's block says.
//!
//! Terraform works on ten objects at a time, or as many as `-parallelism` says, and several of them may ask one region.
//! `max_parallel` is how much of that reaches it at once: whoever comes then waits here.

use std::num::NonZeroU16;
use std::ops::Deref;
use std::sync::Arc;

use basalt_api::client::Client;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A client of which so many calls are under way at once.
#[derive(Clone, Debug)]
pub(crate) struct Bounded {
    client: Client,
    places: Arc<Semaphore>,
}

/// The client for one call. Its place is free again when this is dropped: at the end of the statement that made it, so what
/// an answer leads to is another statement.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    client: &'a Client,
    /// `None` never happens: nobody closes the places.
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
    pub(crate) fn new(client: Client, most: Option<NonZeroU16>) -> Self {
        let places = most.map_or(Semaphore::MAX_PERMITS, |most| most.get().into());
        Self { client, places: Arc::new(Semaphore::new(places)) }
    }

    /// The client, as soon as there is a place for another call.
    pub(crate) async fn call(&self) -> Call<'_> {
        Call { client: &self.client, _place: self.places.acquire().await.ok() }
    }

    /// The client for calls that stay open until something happens. They take nobody's place: while a hundred deployments
    /// are waited for there is room for the one that comes next.
    pub(crate) fn for_waiting(&self) -> &Client {
        &self.client
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::client::ClientConfig;
    use std::time::Duration;

    fn bounded(most: Option<u16>) -> Bounded {
        let endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let client = Client::new(&ClientConfig { endpoints, ..ClientConfig::default() }).expect("a client");
        Bounded::new(client, most.and_then(NonZeroU16::new))
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
    async fn without_a_bound_there_is_always_room() {
        let bounded = bounded(None);
        let mut calls = Vec::new();
        for _ in 0..1000 {
            calls.push(bounded.call().await);
        }
        assert!(has_room(&bounded).await);
    }
}
