//! Places for connections: a total limit, and a limit per client, so that no client keeps others out.
//!
//! | address | counted as |
//! | --- | --- |
//! | `127.0.0.1`, `::1` | no client: a reverse proxy on this host forwards for many; [`counted`] returns `None` |
//! | IPv4, also as `::ffff:192.0.2.1` | one client per address |
//! | IPv6 | one client per /64: a host can use any address of its link |
//!
//! Regions and racks use this for their listeners. A region counts racks by their keys instead of their addresses,
//! since racks forward requests of other clients.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The numbers of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The places of all clients together.
    pub all: usize,
    /// The places of one client.
    pub of_one: usize,
}

impl Limits {
    /// One client may have an eighth of all places: that many people may share an address.
    #[must_use]
    pub const fn shared(all: usize) -> Self {
        let of_one = if all < 8 { 1 } else { all / 8 };
        Self { all, of_one }
    }
}

/// The address or network that counts as one client.
#[must_use]
pub fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

/// The client that a connection is counted for. `None` for this host's own connections: only the total limit applies to
/// them.
#[must_use]
pub fn counted(address: IpAddr) -> Option<IpAddr> {
    let address = address.to_canonical();
    let is_this_host = address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST;
    (!is_this_host).then(|| client(address))
}

/// The places that each client holds.
#[derive(Debug)]
struct Shares<K> {
    held: HashMap<K, usize>,
}

impl<K: Eq + Hash> Shares<K> {
    /// Counts one more place, unless the client has `most`.
    fn take(&mut self, client: K, most: usize) -> bool {
        let held = self.held.entry(client).or_default();
        let has_room = *held < most;
        *held += usize::from(has_room);
        has_room
    }

    /// Counts one place less. Clients without places are removed.
    fn give_back(&mut self, client: &K) {
        if let Some(held) = self.held.get_mut(client) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(client);
            }
        }
    }
}

/// The reason why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The client has all places of its share.
    Client {
        /// True if the refusal should be logged: at the first one, and whenever the number of refusals has doubled.
        is_news: bool,
    },
    /// All places are taken.
    All,
}

/// The counters for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The number of places in use.
    pub taken: usize,
    /// The number of refusals of clients that had their share.
    pub refused: u64,
}

/// The places, and the clients that hold them. Clones share them.
#[derive(Debug)]
pub struct Places<K>(Arc<Inner<K>>);

#[derive(Debug)]
struct Inner<K> {
    limits: Limits,
    room: Arc<Semaphore>,
    shares: Mutex<Shares<K>>,
    refused: AtomicU64,
}

impl<K> Clone for Places<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Clone + Eq + Hash> Places<K> {
    /// Places that are all free.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let limits = Limits { all: limits.all.clamp(1, Semaphore::MAX_PERMITS), ..limits };
        let shares = Mutex::new(Shares { held: HashMap::new() });
        let room = Arc::new(Semaphore::new(limits.all));
        Self(Arc::new(Inner { limits, room, shares, refused: AtomicU64::new(0) }))
    }

    /// The limits that were given.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    /// Takes a place. Waits for one if all are taken.
    ///
    /// # Errors
    /// `Full::Client`: the client has its share; it does not wait.
    pub async fn take(&self, client: Option<K>) -> Result<Place<K>, Full> {
        self.take_within(client, self.0.limits.of_one).await
    }

    /// Like [`Places::take`], for a client with its own limit of `most` places.
    ///
    /// # Errors
    /// `Full::Client`: the client has that many; it does not wait.
    pub async fn take_within(&self, client: Option<K>, most: usize) -> Result<Place<K>, Full> {
        let share = self.share(client, most)?;
        let room = Arc::clone(&self.0.room).acquire_owned().await.map_err(|_| Full::All)?;
        Ok(Place { _share: share, _room: room })
    }

    /// Takes a place if one is free now.
    ///
    /// # Errors
    /// `Full`: no place is free, or the client has its share.
    pub fn try_take(&self, client: Option<K>) -> Result<Place<K>, Full> {
        let share = self.share(client, self.0.limits.of_one)?;
        let room = Arc::clone(&self.0.room).try_acquire_owned().map_err(|_| Full::All)?;
        Ok(Place { _share: share, _room: room })
    }

    /// The current counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let taken = self.0.limits.all.saturating_sub(self.0.room.available_permits());
        Counts { taken, refused: self.0.refused.load(Ordering::Relaxed) }
    }

    fn share(&self, client: Option<K>, most: usize) -> Result<Option<Share<K>>, Full> {
        let Some(client) = client else { return Ok(None) };
        if !locked(&self.0.shares).take(client.clone(), most) {
            let before = self.0.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Full::Client { is_news: before.saturating_add(1).is_power_of_two() });
        }
        Ok(Some(Share { client, places: self.clone() }))
    }
}

/// A place in use. Dropping it frees the place.
#[derive(Debug)]
pub struct Place<K: Eq + Hash> {
    _share: Option<Share<K>>,
    _room: OwnedSemaphorePermit,
}

/// One of a client's places.
#[derive(Debug)]
struct Share<K: Eq + Hash> {
    client: K,
    places: Places<K>,
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        locked(&self.places.0.shares).give_back(&self.client);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_is_an_address_of_ipv4_or_a_64_of_ipv6_and_this_host_is_none() {
        for (of, one) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::")),
            ("2001:db8::ffff:0:0:1", Some("2001:db8::")),
            ("2001:db8:0:1::1", Some("2001:db8:0:1::")),
            ("127.0.0.9", Some("127.0.0.9")),
            ("127.0.0.1", None),
            ("::ffff:127.0.0.1", None),
            ("::1", None),
        ] {
            assert_eq!(counted(address(of)), one.map(address), "{of}");
        }
    }

    #[test]
    fn a_client_has_no_more_than_its_share_and_gets_it_back() {
        let places = Places::new(Limits { all: 10, of_one: 2 });
        let one = || Some(address("192.0.2.1"));
        let (first, second) = (places.try_take(one()).unwrap(), places.try_take(one()).unwrap());
        assert_eq!(places.try_take(one()).unwrap_err(), Full::Client { is_news: true });
        assert!(places.try_take(Some(address("192.0.2.2"))).is_ok(), "another client has a place");
        assert_eq!(places.counts(), Counts { taken: 2, refused: 1 });
        drop(first);
        let again = places.try_take(one()).unwrap();
        drop((second, again));
        assert_eq!(places.counts(), Counts { taken: 0, refused: 1 });
        assert!(locked(&places.0.shares).held.is_empty(), "a client that is gone is forgotten");
    }

    #[test]
    fn this_host_has_as_many_as_there_are() {
        let places = Places::<IpAddr>::new(Limits { all: 3, of_one: 1 });
        let held: Vec<_> = (0..3).map(|_| places.try_take(None).unwrap()).collect();
        assert_eq!(places.try_take(None).unwrap_err(), Full::All);
        drop(held);
        assert!(places.try_take(None).is_ok());
    }

    #[test]
    fn a_log_hears_of_refusals_at_powers_of_two() {
        let places = Places::new(Limits { all: 9, of_one: 0 });
        let news =
            (1..=1000).filter(|_| places.try_take(Some(1)).unwrap_err() == Full::Client { is_news: true });
        assert_eq!(news.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
    }

    #[tokio::test]
    async fn who_waits_for_a_place_gets_the_next_and_holds_none_after_giving_up() {
        let places = Places::new(Limits { all: 1, of_one: 1 });
        let held = places.take(Some(1)).await.unwrap();
        let given_up = tokio::spawn({
            let places = places.clone();
            async move { places.take(Some(2)).await.map(drop) }
        });
        tokio::task::yield_now().await;
        given_up.abort();
        assert!(given_up.await.is_err());
        let waits = tokio::spawn({
            let places = places.clone();
            async move { places.take(Some(2)).await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(held);
        assert!(waits.await.unwrap().is_ok(), "it had given its share back");
    }

    #[test]
    fn few_places_are_shared_as_well() {
        assert_eq!([4096, 64, 3].map(|all| Limits::shared(all).of_one), [512, 8, 1]);
    }
}
