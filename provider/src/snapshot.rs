//! Reads of many objects of one kind, answered from a few lists.
//!
//! Terraform refreshes each object alone, in no order. The first read of a kind asks for its object. The second read of
//! the same kind asks for a page of objects, and later reads find their objects there:
//!
//! ```text
//! read row-7     GET  /zones/row-7
//! read row-3     LIST /zones            a page of 100
//! read row-1     found
//! read row-950   LIST /zones            a page of 1,000 behind it
//! read row-400   found
//! ```
//!
//! A read costs at most one page and one object, so reading a few objects of a large region never lists all of them. An
//! object counts as gone only if a request for it alone says so. Each write of this run ends all snapshots. Writes of
//! others are visible after [`FRESH`] at the latest; a write to an object that they changed is refused because of its
//! generation.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use basalt_api::client::{ClientError, ListOptions};
use basalt_api::{Kind, Object};
use tokio::sync::Mutex;

use crate::bounded::Bounded;
use crate::pages::Pages;

/// How long a snapshot is used.
pub(crate) const FRESH: Duration = Duration::from_secs(30);
/// Number of objects of the first page, and of each later page. The region gives at most 1,000.
const PAGES: [u32; 2] = [100, 1000];

/// The snapshots, by kind.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    pages: Arc<Pages>,
    kinds: std::sync::Mutex<HashMap<&'static str, Arc<Mutex<Snapshot>>>>,
}

/// The first objects of a kind in the order of their names.
#[derive(Debug)]
struct Snapshot {
    began: Instant,
    /// Number of reads so far.
    asked: usize,
    pages: usize,
    /// The token for the next page.
    next: Option<String>,
    /// True if there are no more objects, or the region does not list them.
    is_whole: bool,
    by_uid: HashMap<String, Object>,
    uids: HashMap<String, String>,
}

impl Snapshots {
    /// Snapshots that share `pages`.
    pub(crate) fn of(pages: Arc<Pages>) -> Self {
        Self { pages, ..Self::default() }
    }

    /// Finds an object by its name, or by `uid:` and its uid.
    pub(crate) async fn find(
        &self,
        client: &Bounded,
        kind: &'static Kind,
        key: &str,
    ) -> Result<Option<Object>, ClientError> {
        let of_kind = {
            let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(kinds.entry(kind.name).or_default())
        };
        {
            // A read waits here while another one reads a page.
            let mut snapshot = of_kind.lock().await;
            if snapshot.began.elapsed() > FRESH {
                *snapshot = Snapshot::default();
            }
            snapshot.asked += 1;
            if snapshot.get(key).is_none() && snapshot.asked > 1 && !snapshot.is_whole {
                snapshot.read_page(&self.pages, client, kind).await?;
            }
            if let Some(object) = snapshot.get(key) {
                return Ok(Some(object.clone()));
            }
        }
        client.call().await.find(kind, key).await
    }

    /// Forgets all snapshots after a write.
    pub(crate) fn forget(&self) {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            asked: 0,
            pages: 0,
            next: None,
            is_whole: false,
            by_uid: HashMap::new(),
            uids: HashMap::new(),
        }
    }
}

impl Snapshot {
    fn get(&self, key: &str) -> Option<&Object> {
        let uid = match key.strip_prefix("uid:") {
            Some(uid) => uid,
            None => self.uids.get(key)?,
        };
        self.by_uid.get(uid)
    }

    async fn read_page(
        &mut self,
        pages: &Pages,
        client: &Bounded,
        kind: &'static Kind,
    ) -> Result<(), ClientError> {
        let [first, more] = PAGES;
        let limit = if self.pages == 0 { first } else { more };
        let next = self.next.clone();
        let options = ListOptions { limit: Some(limit), next, layers: true, ..ListOptions::default() };
        let page = pages.page(client, kind, &options).await;
        match page {
            Ok(page) => {
                self.pages += 1;
                self.is_whole = page.next.is_none();
                self.next = page.next;
                for object in page.items {
                    let uid = object.metadata.uid.to_string();
                    self.uids.insert(object.metadata.name.to_string(), uid.clone());
                    self.by_uid.insert(uid, object);
                }
                Ok(())
            }
            // The region refuses the list. Reads of single objects follow, and report the error.
            Err(error) if error.problem().is_some() => {
                self.is_whole = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::extract::Request;
    use axum::response::IntoResponse;
    use basalt_api::client::ClientConfig;
    use basalt_api::{Problem, ProblemCode};
    use serde_json::json;

    /// The region's answer to lists.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Lists {
        Gives,
        Refuses,
        /// The region is too old to list objects with their layers.
        WithoutLayers,
    }

    /// A simulated region with some zones; it records its requests.
    struct Played {
        client: Bounded,
        asked: Arc<std::sync::Mutex<Vec<String>>>,
        server: tokio::task::JoinHandle<()>,
    }

    impl Drop for Played {
        fn drop(&mut self) {
            self.server.abort();
        }
    }

    impl Played {
        async fn new(zones: usize, lists: Lists) -> Self {
            let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
            let seen = Arc::clone(&asked);
            let app = Router::new().fallback(move |request: Request| {
                let uri = request.uri().clone();
                seen.lock().expect("a lock").push(uri.path().to_owned());
                let answer = match uri.path().strip_prefix("/api/v1/zones") {
                    Some("") if lists == Lists::Refuses => refusal(ProblemCode::Forbidden),
                    Some("") if lists == Lists::WithoutLayers && uri.to_string().contains("layers") => {
                        refusal(ProblemCode::Invalid)
                    }
                    Some("") => page(zones, uri.query().unwrap_or_default()),
                    Some(key) => match number(key) {
                        Some(number) if number < zones => axum::Json(zone(number)).into_response(),
                        _ => refusal(ProblemCode::NotFound),
                    },
                    None => refusal(ProblemCode::NotFound),
                };
                async move { answer }
            });
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
            let server = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
            let config = ClientConfig { endpoints: vec![endpoint], ..ClientConfig::default() };
            let client = Bounded::new(&config, None).expect("a client");
            Self { client, asked, server }
        }

        /// The number of requests for one object, and of requests for pages.
        fn asked(&self) -> (usize, usize) {
            let asked = self.asked.lock().expect("a lock");
            let pages = asked.iter().filter(|path| *path == "/api/v1/zones").count();
            (asked.len() - pages, pages)
        }
    }

    fn refusal(code: ProblemCode) -> axum::response::Response {
        let status = axum::http::StatusCode::from_u16(code.status()).expect("a status");
        let head = [("content-type", "application/problem+json")];
        (status, head, axum::Json(Problem::new(code, "no"))).into_response()
    }

    fn zone(number: usize) -> serde_json::Value {
        json!({
            "kind": "Zone", "spec": {}, "status": {},
            "metadata": {
                "name": format!("row-{number}"), "uid": uid(number), "generation": 1,
                "created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z"
            }
        })
    }

    fn uid(number: usize) -> String {
        format!("0197d3c4-5f6a-7b8c-9d0e-{number:012x}")
    }

    /// The number of the zone in `/row-7`, or in `/uid:` and its uid.
    fn number(key: &str) -> Option<usize> {
        match key.strip_prefix("/row-") {
            Some(number) => number.parse().ok(),
            None => usize::from_str_radix(key.rsplit('-').next()?, 16).ok(),
        }
    }

    fn page(zones: usize, query: &str) -> axum::response::Response {
        let number = |name: &str, or: usize| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.map_or(or, |value| value.parse().expect("a number"))
        };
        let (from, limit) = (number("continue", 0), number("limit", 100));
        let end = (from + limit).min(zones);
        let items: Vec<_> = (from..end).map(zone).collect();
        let next = (end < zones).then(|| end.to_string());
        axum::Json(json!({"items": items, "continue": next})).into_response()
    }

    fn zones() -> &'static Kind {
        Kind::find("Zone").expect("a kind")
    }

    async fn find(snapshots: &Snapshots, played: &Played, key: &str) -> Option<Object> {
        snapshots.find(&played.client, zones(), key).await.expect("an answer")
    }

    #[tokio::test]
    async fn a_thousand_objects_cost_a_few_pages() {
        let (snapshots, played) = (Arc::new(Snapshots::default()), Played::new(1000, Lists::Gives).await);
        // Ten at a time, as Terraform does, and from the end.
        for ten in (0..100).rev() {
            let mut reads = tokio::task::JoinSet::new();
            for number in ten * 10..ten * 10 + 10 {
                let (snapshots, client) = (Arc::clone(&snapshots), played.client.clone());
                reads.spawn(async move {
                    let found = snapshots.find(&client, zones(), &format!("uid:{}", uid(number))).await;
                    let zone = found.expect("an answer").expect("it is there");
                    assert_eq!(zone.metadata.name.as_str(), format!("row-{number}"));
                });
            }
            reads.join_all().await;
        }
        let (objects, pages) = played.asked();
        assert!(objects <= 2 && pages == 2, "{objects} objects and {pages} pages");
    }

    #[tokio::test]
    async fn a_single_object_is_asked_for_alone() {
        let (snapshots, played) = (Snapshots::default(), Played::new(5000, Lists::Gives).await);
        assert!(find(&snapshots, &played, "row-17").await.is_some());
        assert_eq!(played.asked(), (1, 0));
    }

    #[tokio::test]
    async fn that_something_is_gone_is_asked_again_for_it_alone() {
        let (snapshots, played) = (Snapshots::default(), Played::new(3, Lists::Gives).await);
        assert!(find(&snapshots, &played, "row-0").await.is_some());
        assert!(find(&snapshots, &played, "row-1").await.is_some());
        assert_eq!(played.asked(), (1, 1));
        assert!(find(&snapshots, &played, "row-7").await.is_none());
        assert_eq!(played.asked(), (2, 1), "the page did not have it, and that is not enough");
    }

    #[tokio::test]
    async fn a_write_ends_what_was_read_before_it() {
        let (snapshots, played) = (Snapshots::default(), Played::new(3, Lists::Gives).await);
        for key in ["row-0", "row-1", "row-2"] {
            assert!(find(&snapshots, &played, key).await.is_some());
        }
        snapshots.forget();
        assert!(find(&snapshots, &played, "row-2").await.is_some());
        assert_eq!(played.asked(), (2, 1));
    }

    #[tokio::test]
    async fn what_cannot_be_listed_is_asked_for_one_by_one() {
        let (snapshots, played) = (Snapshots::default(), Played::new(3, Lists::Refuses).await);
        for key in ["row-0", "row-1", "row-2"] {
            assert!(find(&snapshots, &played, key).await.is_some());
        }
        assert_eq!(played.asked(), (3, 1), "the list was refused once");
    }

    #[tokio::test]
    async fn a_region_that_lists_no_layers_is_asked_for_them_once() {
        let (snapshots, played) = (Snapshots::default(), Played::new(150, Lists::WithoutLayers).await);
        for number in 0..150 {
            assert!(find(&snapshots, &played, &format!("row-{number}")).await.is_some());
        }
        assert_eq!(played.asked(), (1, 3), "one page was refused");
    }
}
