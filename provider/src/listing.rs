//! Whole lists of a kind. Each list is read once, for all callers that asked before it began.
//!
//! A search by a field (`boot_macs=…`) has to read all objects of the kind. Terraform asks for each of many objects alone:
//!
//! ```text
//! data a     LIST /machines                    its answer is on the way
//! data b, c  wait: that one may have begun before something that they follow
//! data b     LIST /machines                    it began after both had asked
//! data c     found
//! import d   found, in a list of a moment ago
//! ```
//!
//! So any number of simultaneous searches costs two lists. Imports cost one list: each imported object is read again afterwards. Each
//! write of this run ends all lists.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use basalt_api::client::{ClientError, ListOptions};
use basalt_api::{Kind, Object};
use tokio::sync::Mutex;

use crate::bounded::Bounded;
use crate::region::LARGEST_PAGE;
use crate::snapshot::FRESH;

/// The required age of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsOf {
    /// The list begins after the request for it, so it contains all earlier changes.
    Now,
    /// A list of a moment ago is enough, if this run has written nothing since.
    Lately,
}

/// The result of a list, which several callers share.
pub(crate) type Listed = Result<Arc<Vec<Object>>, Arc<ClientError>>;

/// The lists, by kind.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    kinds: std::sync::Mutex<HashMap<&'static str, Arc<Mutex<Option<Listing>>>>>,
}

#[derive(Debug)]
struct Listing {
    began: Instant,
    listed: Listed,
}

impl Listing {
    fn is_good(&self, asked: Instant, as_of: AsOf) -> bool {
        let is_lately = as_of == AsOf::Lately && self.listed.is_ok() && self.began.elapsed() < FRESH;
        self.began >= asked || is_lately
    }
}

impl Listings {
    /// All objects of a kind.
    pub(crate) async fn all(&self, client: &Bounded, kind: &'static Kind, as_of: AsOf) -> Listed {
        let asked = Instant::now();
        let of_kind = {
            let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(kinds.entry(kind.name).or_default())
        };
        // A caller waits here for a list that is under way. If that list began too early, the caller reads another one.
        let mut last = of_kind.lock().await;
        if let Some(listing) = last.as_ref().filter(|listing| listing.is_good(asked, as_of)) {
            return listing.listed.clone();
        }
        let began = Instant::now();
        let options = ListOptions { limit: Some(LARGEST_PAGE), ..ListOptions::default() };
        let listed = client.call().await.list_all(kind, &options).await;
        let listed = listed.map(Arc::new).map_err(Arc::new);
        *last = Some(Listing { began, listed: listed.clone() });
        listed
    }

    /// Forgets all lists after a write.
    pub(crate) fn forget(&self) {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::extract::Request;
    use basalt_api::client::ClientConfig;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tfplugin::Path;
    use tokio::sync::Semaphore;

    use crate::natural::NaturalKey;
    use crate::region::Region;

    /// A simulated region with one more zone at each list: the nth zone is `row-n`, and its description is its number.
    struct Played {
        client: Bounded,
        lists: Arc<AtomicUsize>,
        /// A permit for each list that is answered.
        answers: Arc<Semaphore>,
        /// A permit for each list that was requested.
        asked: Arc<Semaphore>,
        server: tokio::task::JoinHandle<()>,
    }

    impl Drop for Played {
        fn drop(&mut self) {
            self.server.abort();
        }
    }

    impl Played {
        async fn new(answers: usize) -> Self {
            let (lists, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(answers)));
            let asked = Arc::new(Semaphore::new(0));
            let (count, gate, seen) = (Arc::clone(&lists), Arc::clone(&answers), Arc::clone(&asked));
            let app = Router::new().fallback(move |_: Request| {
                let zones = count.fetch_add(1, Ordering::Relaxed) + 1;
                seen.add_permits(1);
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await.expect("it stays open").forget();
                    axum::Json(json!({"items": (1..=zones).map(zone).collect::<Vec<_>>()}))
                }
            });
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let endpoints = vec![format!("http://{}", listener.local_addr().expect("an address"))];
            let server = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
            let config = ClientConfig { endpoints, ..ClientConfig::default() };
            let client = Bounded::new(&config, None).expect("a client");
            Self { client, lists, answers, asked, server }
        }

        fn lists(&self) -> usize {
            self.lists.load(Ordering::Relaxed)
        }
    }

    fn zone(number: usize) -> serde_json::Value {
        json!({
            "kind": "Zone", "spec": {"description": number.to_string()}, "status": {},
            "metadata": {
                "name": format!("row-{number}"), "uid": format!("0197d3c4-5f6a-7b8c-9d0e-{number:012x}"), "generation": 1,
                "created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z"
            }
        })
    }

    fn zones() -> &'static Kind {
        Kind::find("Zone").expect("a kind")
    }

    async fn found(region: &Region, number: usize, as_of: AsOf) -> Option<String> {
        let text = format!("description={number}");
        let key = NaturalKey::read(zones(), &text).expect("a key").expect("a good one");
        let found = region.find_by(zones(), &text, &key, Path::root(), as_of).await.ok()?;
        Some(found.metadata.name.to_string())
    }

    #[tokio::test]
    async fn who_asks_while_a_list_is_on_its_way_shares_the_next_one() {
        let played = Played::new(0).await;
        let region = Region::new(played.client.clone());
        let others = async {
            played.asked.acquire().await.expect("it stays open").forget();
            // The second zone was created after the first list had begun.
            let release = async { played.answers.add_permits(10) };
            let two = || found(&region, 2, AsOf::Now);
            let found = tokio::join!(biased; two(), two(), two(), two(), release);
            [found.0, found.1, found.2, found.3]
        };
        let (first, others) = tokio::join!(found(&region, 1, AsOf::Now), others);
        assert_eq!(first.as_deref(), Some("row-1"));
        assert_eq!(others, [(); 4].map(|()| Some("row-2".to_owned())));
        assert_eq!(played.lists(), 2);
    }

    #[tokio::test]
    async fn a_list_that_began_before_does_not_answer_who_wants_to_know_how_it_is_now() {
        let played = Played::new(10).await;
        let region = Region::new(played.client.clone());
        assert_eq!(found(&region, 1, AsOf::Now).await.as_deref(), Some("row-1"));
        assert_eq!(found(&region, 2, AsOf::Now).await.as_deref(), Some("row-2"));
        assert_eq!(played.lists(), 2);
    }

    #[tokio::test]
    async fn a_hundred_imports_cost_one_list_and_what_is_not_in_it_another() {
        let played = Played::new(10).await;
        let region = Region::new(played.client.clone());
        for _ in 0..100 {
            assert_eq!(found(&region, 1, AsOf::Lately).await.as_deref(), Some("row-1"));
        }
        assert_eq!(played.lists(), 1);
        assert_eq!(found(&region, 2, AsOf::Lately).await.as_deref(), Some("row-2"));
        assert_eq!(played.lists(), 2, "it is asked again before it is said that there is none");
    }

    #[tokio::test]
    async fn what_is_written_ends_what_was_listed() {
        let (played, listings) = (Played::new(10).await, Listings::default());
        for lists in [1, 2] {
            let all = listings.all(&played.client, zones(), AsOf::Lately).await.expect("a list");
            assert_eq!((all.len(), played.lists()), (lists, lists));
            listings.forget();
        }
    }
}
