//! Limits on login attempts. No client can lock another client's user out.
//!
//! | attempts counted by | beyond the limit |
//! | --- | --- |
//! | network: an IPv4 address, or a /64 of IPv6 | 429 |
//! | user and network | 429 |
//! | user, from all networks | the answer is delayed by up to [`LATEST`], for every client |
//! | wide network, by logins in progress: a /24 of IPv4, or a /48 of IPv6 | 503 |
//! | all logins in progress | 503 |
//!
//! A login is in progress from the head of its request to its answer: its body takes memory, and its password waits for a processor. One
//! host may have a /48, which is 65,536 networks; the limit for wide networks leaves seven of eight places to others.
//!
//! A stranger with one wide network can delay a user's login by some seconds, but the right password is not refused. Few passwords are
//! verified at once, which limits the guesses of a stranger with many networks. Each region process counts separately.

use super::bucket::{Buckets, Limit};
use super::guard::Peer;
use super::problem::{Answer, Refusal};
use basalt_api::{Problem, ProblemCode};
use basalt_proto::places::{Full, Limits, Place, Places, counted};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A person mistypes a few times; a program tries thousands of passwords.
const BY_NETWORK: Limit = Limit { burst: 20, every: Duration::from_secs(3) };

/// A stranger in the user's own network can cause refusals of the user until this limit has recovered.
const BY_USER_AND_NETWORK: Limit = Limit { burst: 10, every: Duration::from_secs(6) };

/// The limit of a user's attempts from all networks together.
const BY_USER: Limit = Limit { burst: 30, every: Duration::from_secs(2) };

/// Logins by way of an issuer's page that a wide network begins. The database keeps each for some minutes.
const BEGUN: Limit = Limit { burst: 200, every: Duration::from_secs(1) };

/// The longest delay of an answer, in the case of attempts from other networks.
const LATEST: Duration = Duration::from_secs(3);

/// The limit of logins in progress.
const UNDER_WAY: Limits = Limits::shared(256);

/// Counts login attempts.
#[derive(Debug)]
pub(super) struct Tries {
    under_way: Places<IpAddr>,
    start: Instant,
    by_network: Mutex<Buckets<String>>,
    by_user_and_network: Mutex<Buckets<(String, String)>>,
    by_user: Mutex<Buckets<String>>,
    begun: Mutex<Buckets<IpAddr>>,
}

impl Default for Tries {
    fn default() -> Self {
        Self {
            under_way: Places::new(UNDER_WAY),
            start: Instant::now(),
            by_network: Mutex::new(Buckets::new(BY_NETWORK)),
            by_user_and_network: Mutex::new(Buckets::new(BY_USER_AND_NETWORK)),
            by_user: Mutex::new(Buckets::new(BY_USER)),
            begun: Mutex::new(Buckets::new(BEGUN)),
        }
    }
}

impl Tries {
    /// Reserves a place for a login. Hold it until the answer is sent.
    ///
    /// # Errors
    /// Fails if all places are taken, or if the client's wide network has its share.
    pub(super) fn begin(&self, peer: Peer) -> Answer<Place<IpAddr>> {
        self.under_way.try_take(wide_network(peer)).map_err(|full| {
            let detail = match full {
                Full::Client { .. } => format!(
                    "{peer} and its neighbours have {} logins under way, as many as one network may have; try again",
                    UNDER_WAY.of_one
                ),
                Full::All => format!("{} logins are under way, as many as there may be; try again", UNDER_WAY.all),
            };
            Refusal::unavailable(detail)
        })
    }

    /// For a login that is begun and that the database keeps.
    ///
    /// # Errors
    /// Its network, or the wide network that it is part of, began too many.
    pub(super) fn admit_begun(&self, peer: Peer) -> Answer<()> {
        self.admit_address(&peer.to_string())?;
        let Some(network) = wide_network(peer) else { return Ok(()) };
        held(&self.begun).take(self.start.elapsed(), network).map_err(too_many)
    }

    /// Counts an attempt for this user from this address. Sleeps first if the user has too many attempts.
    ///
    /// # Errors
    /// Fails if its network has too many attempts.
    pub(super) async fn admit(&self, address: &str, user: &str) -> Answer<()> {
        let delay = self.take(self.start.elapsed(), address, user).map_err(too_many)?;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    /// Counts an attempt whose user is known only after the login.
    ///
    /// # Errors
    /// Fails if its network has too many attempts.
    pub(super) fn admit_address(&self, address: &str) -> Answer<()> {
        held(&self.by_network).take(self.start.elapsed(), network(address)).map_err(too_many)
    }

    /// Takes a successful attempt of [`Self::admit_address`] back from the count.
    pub(super) fn came_in(&self, address: &str) {
        held(&self.by_network).put_back(&network(address));
    }

    /// Takes a successful attempt of [`Self::admit`] back from the counts.
    pub(super) fn succeeded(&self, address: &str, user: &str) {
        let network = network(address);
        held(&self.by_network).put_back(&network);
        held(&self.by_user).put_back(user);
        held(&self.by_user_and_network).put_back(&(user.to_owned(), network));
    }

    /// Counts an attempt. `Ok`: the delay of its answer. `Err`: the time until the next attempt is admitted.
    fn take(&self, now: Duration, address: &str, user: &str) -> Result<Duration, Duration> {
        let network = network(address);
        held(&self.by_network).take(now, network.clone())?;
        held(&self.by_user_and_network).take(now, (user.to_owned(), network))?;
        Ok(held(&self.by_user).delay(now, user.to_owned(), LATEST))
    }
}

fn held<K>(buckets: &Mutex<Buckets<K>>) -> MutexGuard<'_, Buckets<K>> {
    buckets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The network of a client: an IPv4 address, or a /64 of IPv6. The name of a socket is returned as it is.
fn network(address: &str) -> String {
    match address.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V6(address)) => {
            Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << u64::BITS)).to_string() + "/64"
        }
        Ok(IpAddr::V4(address)) => address.to_string(),
        Err(_) => address.to_owned(),
    }
}

fn wide_network(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Tcp(address) | Peer::Tls(address) => counted(address.ip()).map(wide),
        Peer::Unix { .. } => None,
    }
}

/// The wide network of a client: a /24 of IPv4, or a /48 of IPv6. One host may own a whole one.
fn wide(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits() & !0xff).into()),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 80))),
    }
}

fn too_many(wait: Duration) -> Refusal {
    let seconds = wait.as_secs().saturating_add(1);
    let detail = format!("too many logins were tried from this network; try again in {seconds} s");
    Refusal::from(Problem { retry_after: Some(seconds), ..Problem::new(ProblemCode::RateLimited, detail) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    /// The number of attempts until one is refused.
    fn until_refused(tries: &Tries, address: &str, user: &str) -> usize {
        (0..1000).take_while(|_| tries.take(NOW, address, user).is_ok()).count()
    }

    #[test]
    fn wrong_tries_from_elsewhere_make_a_user_wait_and_never_refuse_it() {
        let tries = Tries::default();
        assert_eq!(until_refused(&tries, "198.51.100.1", "alice"), 10);
        assert_eq!(tries.take(NOW, "203.0.113.9", "alice"), Ok(Duration::ZERO), "one stranger does nothing");
        for stranger in 0..200 {
            until_refused(&tries, &format!("198.51.100.{stranger}"), "alice");
        }
        for _ in 0..9 {
            assert_eq!(
                tries.take(NOW, "203.0.113.9", "alice"),
                Ok(LATEST),
                "many make her wait for a moment"
            );
        }
        assert_eq!(tries.take(NOW, "203.0.113.9", "bob"), Ok(Duration::ZERO), "others are not held up");
        let later = NOW + LATEST + Duration::from_secs(2 * 30);
        assert_eq!(tries.take(later, "203.0.113.9", "alice"), Ok(Duration::ZERO), "and it is forgotten");
    }

    #[test]
    fn a_host_with_many_networks_leaves_places_for_logins_of_others() {
        let tries = Tries::default();
        let from = |address: &str| Peer::Tls((address.parse::<IpAddr>().unwrap(), 4000).into());
        let own: Vec<_> =
            (0..1000).filter_map(|n| tries.begin(from(&format!("2001:db8:7:{n:x}::1"))).ok()).collect();
        assert_eq!(own.len(), UNDER_WAY.of_one);
        let own_v4: Vec<_> =
            (0..256).filter_map(|n| tries.begin(from(&format!("198.51.100.{n}"))).ok()).collect();
        assert_eq!(own_v4.len(), UNDER_WAY.of_one);
        let _other = tries.begin(from("2001:db8:8::1")).unwrap();
        let _neighbour = tries.begin(from("198.51.101.1")).unwrap();
        drop(own);
        assert!(tries.begin(from("2001:db8:7::1")).is_ok(), "what has ended is not counted");
    }

    #[test]
    fn a_host_with_many_networks_begins_no_more_logins_than_one_wide_network_may() {
        let tries = Tries::default();
        let from = |address: &str| Peer::Tls((address.parse::<IpAddr>().unwrap(), 4000).into());
        let begun = (0..1000).filter(|n| tries.admit_begun(from(&format!("2001:db8:7:{n:x}::1"))).is_ok());
        // A place comes back each second.
        assert!((200..260).contains(&begun.count()));
        assert!(tries.admit_begun(from("2001:db8:8::1")).is_ok());
    }

    #[test]
    fn the_addresses_of_one_network_count_together() {
        let tries = Tries::default();
        let all = (0..50).filter(|n| tries.take(NOW, &format!("2001:db8:0:7::{n:x}"), "alice").is_ok());
        assert_eq!(all.count(), 10, "a /64 is one client");
        assert_eq!(tries.take(NOW, "2001:db8:0:8::1", "alice"), Ok(Duration::ZERO));
        assert_eq!(until_refused(&tries, "192.0.2.1", "alice"), 10);
        assert!(tries.take(NOW, "::ffff:192.0.2.1", "alice").is_err(), "the same address, in IPv6");
        assert_eq!(network("api.sock"), "api.sock");
    }

    #[test]
    fn a_network_tries_twenty_times_whomever_it_names() {
        let tries = Tries::default();
        let all = (0..50).filter(|n| tries.take(NOW, "192.0.2.1", &format!("user{n}")).is_ok());
        assert_eq!(all.count(), 20);
    }

    #[test]
    fn right_passwords_count_nothing() {
        let tries = Tries::default();
        for _ in 0..100 {
            assert_eq!(tries.take(NOW, "192.0.2.1", "alice"), Ok(Duration::ZERO));
            tries.succeeded("192.0.2.1", "alice");
        }
    }
}
