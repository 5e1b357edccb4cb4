//! Admission of large bodies: a limited number at once, in the order of the requests.
//!
//! If all clients were sent at once, they would share the link until each of them gives up. With a few at a time, one
//! after the other finishes.
//!
//! - A client that has waited for [`Limits::patience`] is told to come back in a moment, and then has its former
//!   position in the line.
//! - A client that accepts less than [`Limits::least`] bytes in a [`Limits::window`] loses its place to the next one.
//!   It may come back, too.
//! - One address has at most [`Limits::of_one`] places, whatever the number of its requests.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use basalt_proto::places;
use tokio::sync::oneshot;

/// Bodies up to this many bytes need no place.
pub const SMALL: u64 = 1 << 20;
/// When a client that was sent away should come back.
pub const RETRY_AFTER: Duration = Duration::from_secs(2);
/// How long the position of a client that was sent away is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The limits of the admission.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most bodies at once.
    pub places: usize,
    /// The most bodies of one address at once.
    pub of_one: usize,
    /// The longest wait for a place. Clients tolerate a longer silence.
    pub patience: Duration,
    /// The longest time that an agent waits for an absent blob. Agents tolerate a longer silence.
    pub fetch: Duration,
    /// The interval at which a client's progress is checked.
    pub window: Duration,
    /// The bytes that a client must accept in that interval.
    pub least: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let (patience, fetch, window) =
            (Duration::from_secs(30), Duration::from_secs(30), Duration::from_secs(60));
        Self { places: 32, of_one: 4, patience, fetch, window, least: 256 << 10 }
    }
}

/// The places, and the clients that wait for one.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    counts: Counts,
    /// The waiting clients, in the order of their first request.
    waiting: BTreeMap<Ticket, (IpAddr, oneshot::Sender<Place>)>,
    /// The number of places of each client.
    held: HashMap<IpAddr, usize>,
    /// Clients without a place: the times of their first and latest request.
    known: HashMap<IpAddr, (Instant, Instant)>,
    tickets: u64,
}

type Ticket = (Instant, u64);

/// The counters for `/metrics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bodies that are being sent.
    pub sending: usize,
    /// The most that were ever sent at once.
    pub most: usize,
    /// Clients that wait for a place.
    pub waiting: usize,
    /// Clients that were told to come back.
    pub sent_away: u64,
}

/// The right to be sent a body. Dropping it gives the place to the next client.
#[derive(Debug)]
pub struct Place {
    admission: Arc<Admission>,
    client: IpAddr,
}

/// No place became free within the longest wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

impl Admission {
    /// An admission without clients.
    #[must_use]
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, line: Mutex::default() })
    }

    /// The limits in use.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The current counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let line = self.line();
        Counts { waiting: line.waiting.len(), ..line.counts }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// `Busy`: no place became free in time.
    pub async fn place(self: &Arc<Self>, client: IpAddr) -> Result<Place, Busy> {
        self.place_within(client, self.limits.patience).await
    }

    fn give(self: &Arc<Self>, line: &mut Line, client: IpAddr) -> Place {
        *line.held.entry(client).or_default() += 1;
        line.known.remove(&client);
        Place { admission: Arc::clone(self), client }
    }

    async fn place_within(self: &Arc<Self>, client: IpAddr, patience: Duration) -> Result<Place, Busy> {
        let client = places::client(client);
        let mut turn = {
            let mut line = self.line();
            if line.counts.sending < self.limits.places && line.held_by(client) < self.limits.of_one {
                line.counts.sending += 1;
                line.counts.most = line.counts.most.max(line.counts.sending);
                return Ok(self.give(&mut line, client));
            }
            let now = Instant::now();
            line.known.retain(|_, (_, seen)| now.duration_since(*seen) < REMEMBERED + self.limits.patience);
            let (came, _) =
                *line.known.entry(client).and_modify(|(_, seen)| *seen = now).or_insert((now, now));
            line.tickets += 1;
            let ticket = (came, line.tickets);
            let (call, called) = oneshot::channel();
            line.waiting.insert(ticket, (client, call));
            Turn { admission: Arc::clone(self), ticket, called }
        };
        match tokio::time::timeout(patience, &mut turn.called).await {
            Ok(Ok(place)) => Ok(place),
            _ => {
                self.line().counts.sent_away += 1;
                Err(Busy)
            }
        }
    }
}

impl Line {
    fn held_by(&self, client: IpAddr) -> usize {
        self.held.get(&client).copied().unwrap_or(0)
    }

    /// Removes and returns the first waiting client that may have another place.
    fn next(&mut self, of_one: usize) -> Option<(IpAddr, oneshot::Sender<Place>)> {
        let may = |client: IpAddr| self.held_by(client) < of_one;
        let ticket = *self.waiting.iter().find(|(_, (client, _))| may(*client))?.0;
        self.waiting.remove(&ticket)
    }
}

/// A waiting client. Dropping it leaves the line.
struct Turn {
    admission: Arc<Admission>,
    ticket: Ticket,
    called: oneshot::Receiver<Place>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.admission.line().waiting.remove(&self.ticket);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let next = {
            let mut line = self.admission.line();
            if let Entry::Occupied(mut held) = line.held.entry(self.client) {
                *held.get_mut() -= 1;
                if *held.get() == 0 {
                    held.remove();
                }
            }
            let next = line.next(self.admission.limits.of_one);
            if next.is_none() {
                line.counts.sending -= 1;
            }
            next.map(|(client, call)| (self.admission.give(&mut line, client), call))
        };
        // If the client has disconnected, the place is dropped here and goes to the next one.
        if let Some((place, call)) = next {
            drop(call.send(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn client(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    fn admission(places: usize) -> Arc<Admission> {
        Admission::new(Limits { places, patience: Duration::from_secs(600), ..Limits::default() })
    }

    /// Runs the other tasks until they wait.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn places_are_taken_in_order_of_arrival() {
        let admission = admission(2);
        let (first, second) =
            (admission.place(client(1)).await.unwrap(), admission.place(client(2)).await.unwrap());
        let order = Arc::new(Mutex::new(Vec::new()));
        for number in 3..6 {
            let (admission, order) = (Arc::clone(&admission), Arc::clone(&order));
            tokio::spawn(async move {
                let _place = admission.place(client(number)).await.unwrap();
                order.lock().unwrap().push(number);
                std::future::pending::<()>().await;
            });
            settle().await;
        }
        drop(second);
        settle().await;
        assert_eq!(*order.lock().unwrap(), [3]);
        drop(first);
        settle().await;
        assert_eq!(*order.lock().unwrap(), [3, 4]);
        assert_eq!(admission.counts(), Counts { sending: 2, most: 2, waiting: 1, sent_away: 0 });
    }

    #[tokio::test]
    async fn one_address_does_not_take_all_places_nor_hold_up_the_line() {
        let admission = Admission::new(Limits { places: 3, of_one: 2, ..Limits::default() });
        let greedy = client(1);
        let first = admission.place(greedy).await.unwrap();
        let _second = admission.place(greedy).await.unwrap();
        let third = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.place(greedy).await }
        });
        settle().await;
        assert_eq!(admission.counts(), Counts { sending: 2, most: 2, waiting: 1, sent_away: 0 });
        let other = admission.place(client(2)).await.unwrap();
        drop(other);
        settle().await;
        assert!(!third.is_finished(), "a place is free, and not for it");
        drop(first);
        let _third = third.await.unwrap().unwrap();
        assert_eq!(admission.counts().sending, 2);
    }

    #[tokio::test]
    async fn who_goes_away_is_passed_over_and_takes_no_place() {
        let admission = admission(1);
        let held = admission.place(client(1)).await.unwrap();
        let gone = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.place(client(2)).await.map(drop) }
        });
        settle().await;
        let stays = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.place(client(3)).await }
        });
        settle().await;
        gone.abort();
        assert!(gone.await.is_err());
        drop(held);
        drop(stays.await.unwrap().unwrap());
        assert_eq!(admission.counts(), Counts { sending: 0, most: 1, waiting: 0, sent_away: 0 });
    }

    #[tokio::test]
    async fn who_was_sent_away_and_comes_back_is_before_those_who_came_later() {
        let admission = admission(1);
        let held = admission.place(client(1)).await.unwrap();
        assert_eq!(admission.place_within(client(2), Duration::ZERO).await.err(), Some(Busy));
        let order = Arc::new(Mutex::new(Vec::new()));
        for number in [3, 2] {
            let (admission, order) = (Arc::clone(&admission), Arc::clone(&order));
            tokio::spawn(async move {
                let _place = admission.place(client(number)).await.unwrap();
                order.lock().unwrap().push(number);
            });
            settle().await;
        }
        drop(held);
        settle().await;
        assert_eq!(*order.lock().unwrap(), [2, 3]);
        assert_eq!(admission.counts().sent_away, 1);
    }
}
