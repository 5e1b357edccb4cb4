//! The regions' API through a rack.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::get;
use basalt_api::client::ClientConfig;
use basalt_proto::REGION_SERVER_NAME;
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::link::{Linked, SECRET, next_link, region, serve, token};
use super::support::{Client, DEADLINE, settings};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

/// A rack that is linked to two regions with this API.
struct World {
    rack: Daemon,
    client: Client,
    regions: [SocketAddr; 2],
    stops: [CancellationToken; 2],
    _links: Vec<Linked>,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new(api: Router) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (mut region, mut linked) = region();
        region.api = api;
        let stops = [CancellationToken::new(), CancellationToken::new()];
        let mut regions = Vec::new();
        for stop in &stops {
            regions.push(serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await);
        }
        let join = Some(token(&region, regions[0], SECRET));
        let settings = Settings { join, ..settings(dir.path()) };
        let rack = Daemon::start(settings.clone()).await.unwrap();
        let mut first = next_link(&mut linked).await;
        first.welcome_to("inc-1", vec![format!("https://{}", regions[1])]).await;
        let mut second = next_link(&mut linked).await;
        second.welcome().await;
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.http_port));
        let client = Client { from: CLIENT, rack: at, spki: Some(rack.spki_sha256.clone()) };
        let regions = regions.try_into().unwrap();
        Self { rack, client, regions, stops, _links: vec![first, second], _dir: dir }
    }

    async fn end(self) {
        self.rack.stop().await;
        self.stops.iter().for_each(CancellationToken::cancel);
    }
}

async fn echo(request: Request) -> String {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name| parts.headers.get(name).map(|it| it.to_str().unwrap().to_owned()).unwrap_or_default();
    format!(
        "{} {} for {} with {} and {}, {}",
        parts.method,
        parts.uri.path_and_query().unwrap(),
        header("x-forwarded-for"),
        header("authorization"),
        header("x-mine"),
        String::from_utf8_lossy(&body)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_reaches_a_region_as_it_is_but_for_who_asks_and_only_over_tls() {
    let world = World::new(Router::new().fallback(echo)).await;
    let ask = || {
        http::Request::put("/api/v1/zones/a?dry_run=true")
            .header("authorization", "Bearer t")
            .header("x-forwarded-for", "10.0.0.1")
            .header("connection", "x-mine")
            .header("x-mine", "1")
            .body(Full::new(Bytes::from_static(b"{}")))
            .unwrap()
    };
    let answer = world.client.send(ask()).await;
    let said = String::from_utf8(answer.body).unwrap();
    assert_eq!(
        (answer.status, said.as_str()),
        (200, "PUT /api/v1/zones/a?dry_run=true for 127.0.0.9 with Bearer t and , {}")
    );
    let plain = Client { spki: None, ..world.client };
    let answer = plain.send(ask()).await;
    assert_eq!(answer.status, 426, "a token is not sent in the clear");
    let elsewhere = Client { spki: Some(world.rack.spki_sha256.clone()), ..plain };
    for page in ["/", "/ui/machines", "/ui/assets/index-1a2b.js", "/docs", "/pages"] {
        assert_eq!(elsewhere.get(page).await.status, 200, "{page}: a browser needs all of the console");
    }
    assert_eq!(elsewhere.get("/metrics").await.status, 404, "not everything of a region is passed on");
    World { client: elsewhere, ..world }.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_living_region_will_do_and_without_one_the_client_is_told_which_were_tried() {
    let world = World::new(Router::new().fallback(echo)).await;
    // Until the listener of a region that stops is closed, it accepts connections, and may even answer.
    let unlike = async |former: &[u16]| {
        let answer = async {
            loop {
                let answer = world.client.get("/api/v1/zones").await;
                if !former.contains(&answer.status) {
                    return answer;
                }
            }
        };
        tokio::time::timeout(DEADLINE, answer).await.expect("another answer")
    };
    world.stops[0].cancel();
    assert_eq!(unlike(&[502]).await.status, 200);
    world.stops[1].cancel();
    let answer = unlike(&[200, 502]).await;
    assert_eq!((answer.status, &answer.headers["retry-after"]), (503, &http::HeaderValue::from_static("5")));
    let said = String::from_utf8(answer.body).unwrap();
    for region in world.regions {
        assert!(said.contains(&region.to_string()), "{said}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_region_may_have_done_is_asked_of_no_other() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let dies = move || {
        let asked = count.fetch_add(1, Ordering::SeqCst);
        async move { assert!(asked > 9, "this region dies as it answers") }
    };
    let world = World::new(Router::new().fallback(dies)).await;
    let answer = world.client.post("/api/v1/operations", Some("t"), "{}").await;
    assert_eq!((answer.status, asked.load(Ordering::SeqCst)), (502, 1));
    let said = String::from_utf8(answer.body).unwrap();
    assert!(said.contains("is not known"), "{said}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_is_heard_while_it_goes_on() {
    let (events, stream) = mpsc::channel::<&'static str>(1);
    let stream = Arc::new(tokio::sync::Mutex::new(Some(stream)));
    let watch = move || {
        let stream = Arc::clone(&stream);
        async move {
            let stream = stream.lock().await.take().expect("it is asked once");
            Body::from_stream(ReceiverStream::new(stream).map(Ok::<_, std::io::Error>))
        }
    };
    let world = World::new(Router::new().fallback(watch)).await;
    let request = http::Request::get("/api/v1/watch").body(Full::default()).unwrap();
    let watching = async {
        let mut answer = world.client.open(request).await.into_body();
        for event in ["first\n", "second\n"] {
            events.send(event).await.unwrap();
            let frame = answer.frame().await.expect("an event").unwrap();
            assert_eq!(frame.into_data().unwrap(), event);
        }
    };
    tokio::time::timeout(DEADLINE, watching).await.expect("events come as they are");
    drop(events);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_does_not_take_all_places_of_what_a_rack_forwards() {
    // An eighth of the 256 places.
    const SHARE: usize = 32;
    let endless = async || Body::from_stream(tokio_stream::pending::<Result<Bytes, std::io::Error>>());
    let api = Router::new().route("/api/v1/watch", get(endless)).fallback(echo);
    let world = World::new(api).await;
    let watch = || http::Request::get("/api/v1/watch").body(Full::default()).unwrap();
    let mut watches = Vec::new();
    for _ in 0..SHARE {
        watches.push(world.client.open(watch()).await);
    }
    let refused = world.client.get("/api/v1/zones").await;
    assert_eq!(
        (refused.status, &refused.headers["retry-after"]),
        (503, &http::HeaderValue::from_static("5"))
    );
    let said = String::from_utf8(refused.body).unwrap();
    assert!(said.contains("forwards 32 requests from 127.0.0.9 already"), "{said}");
    let other = |host| {
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, host));
        Client { from, rack: world.client.rack, spki: world.client.spki.clone() }
    };
    for host in [10, 1] {
        assert_eq!(other(host).get("/api/v1/zones").await.status, 200, "127.0.0.{host}");
    }
    drop(watches);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_knows_the_racks_key_asks_the_api_through_it() {
    let version = r#"{"version":"7","api":"v1"}"#;
    let world = World::new(Router::new().route("/api/v1/version", get(async move || version))).await;
    let through = |key: &str| {
        let endpoints = vec![format!("https://{}#spki={key}", world.client.rack)];
        let config = ClientConfig { endpoints, patience: Duration::ZERO, ..ClientConfig::default() };
        basalt_api::client::Client::new(&config).unwrap()
    };
    assert_eq!(through(&world.rack.spki_sha256).version().await.unwrap().version, "7");
    let refused = through(&"0".repeat(64)).version().await.unwrap_err().to_string();
    assert!(refused.contains("status.spki_sha256 of its Rack"), "{refused}");
    world.end().await;
}
