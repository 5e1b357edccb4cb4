//! The client against a small stand-in for a region, on loopback and on unix sockets.

use super::*;
use crate::values::{Sha256, Timestamp, Uid};
use crate::wire::RECEIVED_HEADER;
use crate::{Metadata, Problem, ProblemCode};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode as Status, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The answers of a region, in their order. The last one is repeated.
type Script = Vec<fn() -> Response>;

/// A server that is stopped when it is dropped.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<(String, HeaderMap)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn server(script: Script) -> Server {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (seen, turn) = (Arc::clone(&requests), Arc::new(AtomicUsize::new(0)));
    let app = Router::new().fallback(move |request: axum::extract::Request| {
        let line = format!("{} {}", request.method(), request.uri());
        seen.lock().unwrap().push((line, request.headers().clone()));
        let at = turn.fetch_add(1, Ordering::SeqCst).min(script.len() - 1);
        let answer = script[at]();
        async move { answer }
    });
    serve(app, requests).await
}

async fn serve(app: Router, requests: Arc<Mutex<Vec<(String, HeaderMap)>>>) -> Server {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    Server { url, requests, task }
}

fn object(generation: u64, status: serde_json::Value) -> Object {
    Object {
        kind: "Zone".to_owned(),
        metadata: Metadata {
            layers: None,
            name: "row-1".parse().unwrap(),
            uid: Uid::generate(),
            manager: None,
            labels: BTreeMap::new(),
            generation: Generation::new(generation),
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
            deletion_requested_at: None,
        },
        spec: json!({}),
        status,
    }
}

fn condition(kind: &str, observed: u64) -> serde_json::Value {
    json!({"observed_generation": observed, "conditions": [{"type": kind, "status": "true", "reason": "Because",
        "message": "so it is", "since": "2026-01-01T00:00:00Z"}]})
}

fn refusal(problem: Problem) -> Response {
    let status = Status::from_u16(problem.status).unwrap();
    let body = serde_json::to_string(&problem).unwrap();
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
}

fn client_with(config: ClientConfig) -> Client {
    Client::new(&ClientConfig { patience: Duration::from_millis(300), ..config }).unwrap()
}

fn config(endpoints: &[&str]) -> ClientConfig {
    ClientConfig {
        endpoints: endpoints.iter().map(|e| (*e).to_owned()).collect(),
        token: Some("t0ken".to_owned()),
        manager: Some("tests".to_owned()),
        ..ClientConfig::default()
    }
}

fn client(endpoints: &[&str]) -> Client {
    client_with(config(endpoints))
}

fn zone() -> &'static Kind {
    Kind::find("Zone").unwrap()
}

/// An endpoint without a listener: its port was free a moment ago.
async fn dead_endpoint() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn a_create_says_who_writes_and_that_nothing_may_be_there() {
    let region = server(vec![|| (Status::CREATED, Json(object(1, json!({})))).into_response()]).await;
    let written = client(&[&region.url])
        .put(zone(), "row-1", &PutRequest::default(), Precondition::Absent)
        .await
        .unwrap();
    assert!(written.created);
    let requests = region.requests.lock().unwrap();
    let (line, headers) = &requests[0];
    assert_eq!(line, "PUT /api/v1/zones/row-1");
    assert_eq!(headers["authorization"], "Bearer t0ken");
    assert_eq!(headers["x-basalt-manager"], "tests");
    assert_eq!(headers["if-none-match"], "*");
}

#[tokio::test]
async fn a_dry_run_and_an_update_are_asked_for_as_such() {
    let region = server(vec![
        || {
            let (plan, advisories) = (PlanReport::default(), Vec::new());
            Json(DryRun {
                object: object(4, json!({})),
                plan,
                consequences: crate::plan::Consequences::default(),
                advisories,
            })
            .into_response()
        },
        || Json(object(4, json!({}))).into_response(),
    ])
    .await;
    let (client, request) = (client(&[&region.url]), PutRequest::default());
    let expected = Precondition::Generation(Generation::new(3));
    client.put_dry_run(zone(), "a b/c", &request, expected).await.unwrap();
    assert!(!client.put(zone(), "uid:x", &request, expected).await.unwrap().created);
    let requests = region.requests.lock().unwrap();
    assert_eq!(requests[0].0, "PUT /api/v1/zones/a%20b%2Fc?dry_run=true");
    assert_eq!(requests[0].1["if-match"], "\"3\"");
    assert_eq!(requests[1].0, "PUT /api/v1/zones/uid:x");
}

#[tokio::test]
async fn a_refusal_keeps_its_code_and_its_pointers() {
    let region = server(vec![|| {
        let error = crate::FieldError::new(
            "/spec/cidr",
            crate::FieldCode::Overlap,
            "10.0.0.0/24 is taken",
            "another",
        );
        refusal(Problem::new(ProblemCode::Overlap, "taken").with_errors(vec![error]))
    }])
    .await;
    let error = client(&[&region.url]).get(zone(), "row-1").await.unwrap_err();
    assert_eq!(error.code(), Some(ProblemCode::Overlap));
    assert_eq!(error.problem().unwrap().errors[0].pointer, "/spec/cidr");
    assert_eq!(error.to_string(), "Overlaps: taken");
}

#[tokio::test]
async fn what_is_not_there_is_none() {
    let region = server(vec![|| refusal(Problem::new(ProblemCode::NotFound, "no zone row-1"))]).await;
    let client = client(&[&region.url]);
    assert_eq!(client.find(zone(), "row-1").await.unwrap(), None);
    assert_eq!(client.delete(zone(), "row-1", DeleteOptions::default()).await.unwrap(), None);
    assert_eq!(
        client.wait_gone(zone(), "row-1", WaitGone::within(Duration::ZERO), |_| ()).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn a_wait_for_an_end_outlives_its_region_if_it_is_to() {
    let restarts = || refusal(Problem::new(ProblemCode::Unavailable, "the database restarts"));
    let region =
        server(vec![restarts, restarts, restarts, || refusal(Problem::new(ProblemCode::NotFound, "gone"))])
            .await;
    let client = Client::new(&ClientConfig { patience: Duration::ZERO, ..config(&[&region.url]) }).unwrap();
    let wait = WaitGone::within(Duration::from_secs(60));
    let error = client.wait_gone(zone(), "row-1", wait, |_| ()).await.unwrap_err();
    assert!(error.is_outage(), "{error}");
    assert_eq!(client.wait_gone(zone(), "row-1", wait.through_outages(), |_| ()).await.unwrap(), None);
    assert_eq!(region.requests.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn only_a_region_says_that_something_is_not_there() {
    let other = server(vec![|| (Status::NOT_FOUND, "no backend").into_response()]).await;
    let elsewhere =
        server(vec![|| refusal(Problem::new(ProblemCode::NoSuchPath, "there is no path /api/v1/api/v1"))])
            .await;
    for url in [&other.url, &elsewhere.url] {
        let client = client(&[url]);
        let found = client.find(zone(), "row-1").await;
        let error = found.expect_err("it is not known whether there is one");
        assert!(!error.is_not_found(), "{error}");
        assert!(client.delete(zone(), "row-1", DeleteOptions::default()).await.is_err());
        assert!(client.wait_gone(zone(), "row-1", WaitGone::within(Duration::ZERO), |_| ()).await.is_err());
    }
    assert!(client(&[&other.url]).blob_state(&Sha256::new([7; 32])).await.is_err(), "HEAD as well");
    let region = server(vec![|| Json(object(1, json!({}))).into_response()]).await;
    assert!(client(&[&other.url, &region.url]).find(zone(), "row-1").await.unwrap().is_some());
}

#[tokio::test]
async fn another_region_is_asked_when_one_takes_a_request_and_says_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let region = server(vec![|| Json(object(1, json!({}))).into_response()]).await;
    let patient = config(&[&silent, &region.url]);
    let client = client_with(ClientConfig { timeout: Duration::from_secs(2), ..patient });
    assert!(client.find(zone(), "row-1").await.unwrap().is_some());
    assert_eq!(client.transport.preferred(), 1, "and is asked first from then on");
}

#[tokio::test]
async fn another_region_is_asked_when_one_is_dead_and_then_asked_first() {
    let (dead, region) =
        (dead_endpoint().await, server(vec![|| Json(object(1, json!({}))).into_response()]).await);
    let client = client(&[&dead, &region.url]);
    client.get(zone(), "row-1").await.unwrap();
    client.get(zone(), "row-1").await.unwrap();
    assert_eq!(client.transport.preferred(), 1);
}

#[tokio::test]
async fn another_region_is_asked_when_a_proxy_lost_the_first_unless_it_may_have_done_it() {
    let lost = || (Status::BAD_GATEWAY, "<html>bad gateway</html>").into_response();
    let (before, region) =
        (server(vec![lost]).await, server(vec![|| Json(object(1, json!({}))).into_response()]).await);
    let client = client(&[&before.url, &region.url]);
    let name: Name = "row-2".parse().unwrap();
    let error = client.rename(zone(), "row-1", &name, false).await.unwrap_err();
    assert!(error.to_string().contains("502"), "{error}");
    client.get(zone(), "row-1").await.unwrap();
    assert_eq!(client.transport.preferred(), 1);
}

#[tokio::test]
async fn a_region_that_is_not_available_is_asked_again() {
    let region =
        server(vec![|| refusal(Problem::new(ProblemCode::Unavailable, "the database restarts")), || {
            Json(object(1, json!({}))).into_response()
        }])
        .await;
    client(&[&region.url]).get(zone(), "row-1").await.unwrap();
    assert_eq!(region.requests.lock().unwrap().len(), 2);
}

/// The answer of a proxy or load balancer that cannot pass on a request now.
fn busy(status: Status, retry_after: &'static str) -> Response {
    (status, [(header::RETRY_AFTER, retry_after)], "<html>busy</html>").into_response()
}

#[tokio::test]
async fn what_has_no_room_now_is_asked_again_when_it_says() {
    let region = server(vec![
        || busy(Status::SERVICE_UNAVAILABLE, "0"),
        || busy(Status::TOO_MANY_REQUESTS, "0"),
        || Json(object(1, json!({}))).into_response(),
    ])
    .await;
    let patient = ClientConfig { patience: Duration::from_secs(30), ..config(&[&region.url]) };
    Client::new(&patient).unwrap().get(zone(), "row-1").await.unwrap();
    assert_eq!(region.requests.lock().unwrap().len(), 3);

    // A `Retry-After` beyond the client's patience is reported at once.
    let scripts: [fn() -> Response; 3] = [
        || busy(Status::SERVICE_UNAVAILABLE, "3600"),
        || busy(Status::TOO_MANY_REQUESTS, "18446744073709551615"),
        || {
            refusal(Problem {
                retry_after: Some(3600),
                ..Problem::new(ProblemCode::Unavailable, "<html>busy")
            })
        },
    ];
    for script in scripts {
        let region = server(vec![script]).await;
        let error = client(&[&region.url]).get(zone(), "row-1").await.unwrap_err().to_string();
        assert!(error.contains("<html>busy"), "{error}");
        assert_eq!(region.requests.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn when_nobody_answers_every_endpoint_is_named() {
    let (one, two) = (dead_endpoint().await, "unix:/nonexistent/api.sock");
    let error = client(&[&one, two]).version().await.unwrap_err().to_string();
    assert!(error.contains(&one) && error.contains(two), "{error}");
    assert!(error.contains("No such file") && error.contains("refused"), "{error}");
}

#[tokio::test]
async fn what_is_not_basalt_is_told_so() {
    let region = server(vec![|| (Status::BAD_GATEWAY, "<html>nginx</html>").into_response()]).await;
    let error = client(&[&region.url]).version().await.unwrap_err().to_string();
    assert!(error.contains("502") && error.contains("<html>nginx</html>"), "{error}");
}

#[tokio::test]
async fn unix_sockets_are_endpoints() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let app =
        Router::new().route("/api/v1/version", get(|| async { Json(json!({"version": "1", "api": "v1"})) }));
    let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let client = client(&[&format!("unix:{}", path.display())]);
    assert_eq!(client.version().await.unwrap().api, "v1");
    task.abort();
}

#[tokio::test]
async fn a_wait_ends_when_the_declared_generation_is_ready() {
    let region = server(vec![
        || Json(object(3, condition("Ready", 2))).into_response(),
        || Json(object(3, condition("Progressing", 3))).into_response(),
        || Json(object(3, condition("Ready", 3))).into_response(),
    ])
    .await;
    let wait = WaitFor::ready(Generation::new(3), Duration::from_secs(20));
    let mut seen = 0;
    let outcome = client(&[&region.url]).wait(zone(), "row-1", &wait, |_| seen += 1).await.unwrap();
    assert!(matches!(outcome, Outcome::Met(_)), "{outcome:?}");
    assert_eq!(seen, 3, "Ready of an older generation is not it");
    let line = &region.requests.lock().unwrap()[0].0;
    assert_eq!(line, "GET /api/v1/zones/row-1?wait=Ready&generation=3&timeout=5000ms");
}

#[tokio::test]
async fn a_wait_ends_with_the_reason_when_the_object_is_stalled() {
    let region = server(vec![|| Json(object(3, condition("Stalled", 3))).into_response()]).await;
    let wait = WaitFor::ready(Generation::new(3), Duration::from_secs(20));
    match client(&[&region.url]).wait(zone(), "row-1", &wait, |_| ()).await.unwrap() {
        Outcome::Stalled(_, condition) => assert_eq!(condition.message, "so it is"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_wait_ends_when_its_time_is_up() {
    let region = server(vec![|| Json(object(3, json!({}))).into_response()]).await;
    let wait = WaitFor::ready(Generation::new(3), Duration::from_millis(50));
    let outcome = client(&[&region.url]).wait(zone(), "row-1", &wait, |_| ()).await.unwrap();
    assert!(matches!(outcome, Outcome::TimedOut(_)), "{outcome:?}");
}

/// A region that breaks its first connection after the request, and a count of the received requests.
async fn breaking(answer: &'static str) -> (String, Arc<AtomicUsize>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let read = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&read);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                if stream.read_buf(&mut request).await.unwrap() == 0 {
                    break;
                }
            }
            if counted.fetch_add(1, Ordering::SeqCst) > 0 {
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n";
                let whole = format!("{head}content-length: {}\r\n\r\n{answer}", answer.len());
                stream.write_all(whole.as_bytes()).await.unwrap();
            }
        }
    });
    (url, read)
}

#[tokio::test]
async fn what_is_idempotent_is_sent_again_when_the_connection_breaks() {
    let answer = object(1, json!({}));
    let answer: &'static str = serde_json::to_string(&answer).unwrap().leak();
    for create in [false, true] {
        let (url, read) = breaking(answer).await;
        let client = client(&[&url]);
        match create {
            false => drop(client.get(zone(), "row-1").await.unwrap()),
            true => {
                drop(client.put(zone(), "row-1", &PutRequest::default(), Precondition::Absent).await.unwrap())
            }
        }
        assert_eq!(read.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn what_is_not_idempotent_is_sent_once() {
    let (url, read) = breaking("{}").await;
    let error = client(&[&url]).apply(&ApplyRequest::default(), false).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
    assert_eq!(read.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_rename_is_sent_again_where_a_second_one_finds_the_same_object() {
    let answer: &'static str = serde_json::to_string(&object(1, json!({}))).unwrap().leak();
    for (key, times) in [("row-1", 1), ("uid:0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", 2)] {
        let (url, read) = breaking(answer).await;
        let renamed = client(&[&url]).rename(zone(), key, &"row-2".parse().unwrap(), false).await;
        assert_eq!(renamed.is_ok(), times == 2, "{key}: {renamed:?}");
        assert_eq!(read.load(Ordering::SeqCst), times, "{key}");
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_built_is_refused_at_once() {
    let name = "x".repeat(1 << 16);
    let error = client(&[&dead_endpoint().await]).get(zone(), &name).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "nobody was asked, and so nobody in vain: {error}");
}

#[tokio::test]
async fn a_list_goes_through_its_pages() {
    let app = Router::new().route(
        "/api/v1/zones",
        get(|Query(query): Query<BTreeMap<String, String>>| async move {
            assert_eq!(query["labels"], "row=1");
            let next = (!query.contains_key("continue")).then(|| "here".to_owned());
            Json(ObjectList { items: vec![object(1, json!({}))], next, position: None })
        }),
    );
    let region = serve(app, Arc::default()).await;
    let labels = BTreeMap::from([("row".to_owned(), "1".to_owned())]);
    let options = ListOptions { labels, ..ListOptions::default() };
    assert_eq!(client(&[&region.url]).list_all(zone(), &options).await.unwrap().len(), 2);
}

/// Stores uploads. It stores half of the first upload and then answers with an error.
#[derive(Clone, Default)]
struct Blobs(Arc<Mutex<(Vec<u8>, bool)>>);

async fn head_blob(State(blobs): State<Blobs>) -> Response {
    let (bytes, complete) = blobs.0.lock().unwrap().clone();
    match (complete, bytes.len()) {
        (true, length) => [(header::CONTENT_LENGTH, length.to_string())].into_response(),
        (false, 0) => refusal(Problem::new(ProblemCode::NotFound, "no such blob")),
        (false, length) => (Status::ACCEPTED, [(RECEIVED_HEADER, length.to_string())]).into_response(),
    }
}

async fn put_blob(
    State(blobs): State<Blobs>,
    Path(_): Path<String>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Response {
    let range = headers["content-range"].to_str().unwrap().to_owned();
    let total: usize = range.rsplit('/').next().unwrap().parse().unwrap();
    let mut kept = blobs.0.lock().unwrap();
    assert!(range.starts_with(&format!("bytes {}-", kept.0.len())), "{range}");
    if kept.0.is_empty() {
        kept.0.extend_from_slice(&body[..total / 2]);
        return refusal(Problem::new(ProblemCode::Unavailable, "restarting"));
    }
    kept.0.extend_from_slice(&body);
    kept.1 = kept.0.len() == total;
    let state = crate::wire::BlobState { received: kept.0.len() as u64, complete: kept.1 };
    (Status::CREATED, Json(state)).into_response()
}

#[tokio::test]
async fn a_broken_upload_goes_on_where_it_ended() {
    let blobs = Blobs::default();
    let app = Router::new()
        .route("/api/v1/blobs/{sha256}", put(put_blob).head(head_blob))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(blobs.clone());
    let region = serve(app, Arc::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("blob");
    let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    tokio::fs::write(&file, &content).await.unwrap();
    let mut seen = Vec::new();
    let client = client(&[&region.url]);
    let state = client.put_blob(&Sha256::new([7; 32]), &file, |p| seen.push(p.received)).await.unwrap();
    assert!(state.complete);
    assert_eq!(seen, [0, 2_000_000, 4_000_000]);
    assert!(blobs.0.lock().unwrap().0 == content);
    let again = client.blob_state(&Sha256::new([7; 32])).await.unwrap();
    assert_eq!((again.received, again.complete), (4_000_000, true));
}

#[test]
fn settings_that_cannot_work_are_named() {
    let refused = |endpoint: &str| {
        let config = ClientConfig {
            endpoints: vec![endpoint.to_owned()],
            token: Some("t".to_owned()),
            ..ClientConfig::default()
        };
        Client::new(&config).unwrap_err().to_string()
    };
    assert!(refused("http://region.example.com:5240").contains("in the clear"));
    assert!(refused("unix:api.sock").contains("absolute path"));
    for (bare, scheme) in
        [("region.example.com", "https"), ("localhost:5240", "http"), ("10.0.0.1:5240", "https")]
    {
        assert!(refused(bare).contains(&format!("it does not say how it is spoken to; {scheme}://{bare}")));
    }
    assert!(refused("https://[::1").contains("like https://HOST:5240"));
    assert!(refused("https://region:5240/api/v1/").contains("it ends with /api/v1"));
    let below = vec!["https://gate.example.com/basalt".to_owned()];
    assert!(Client::new(&ClientConfig { endpoints: below, ..ClientConfig::default() }).is_ok());
    assert!(refused("ftp://region").contains("not http, https or unix"));
    assert!(Client::new(&ClientConfig::default()).unwrap_err().to_string().starts_with("endpoints: "));
    let config = ClientConfig {
        endpoints: vec!["https://region".to_owned()],
        ca_pem: Some("nonsense".to_owned()),
        ..ClientConfig::default()
    };
    assert!(Client::new(&config).unwrap_err().to_string().contains("no certificate"));
}

/// A region's TLS: a certificate for 127.0.0.1 and its PEM. Every connection gets one answer.
async fn tls_server() -> (String, String, tokio::task::JoinHandle<()>) {
    tls_server_with(Arc::new(rustls::server::NoClientAuth)).await
}

/// The same, with a demand for a client certificate that this verifier checks.
async fn tls_server_with(
    verifier: Arc<dyn rustls::server::danger::ClientCertVerifier>,
) -> (String, String, tokio::task::JoinHandle<()>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let issued = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![issued.cert.der().clone()], key)
            .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = match acceptor.accept(stream).into_fallible().await {
                Ok(stream) => stream,
                // A refused client only gets the reason if the server reads what the client sent.
                Err((_, mut refused)) => {
                    let _ = refused.shutdown().await;
                    let _ = tokio::io::copy(&mut refused, &mut tokio::io::sink()).await;
                    continue;
                }
            };
            let _ = stream.read(&mut [0; 4096]).await;
            let body = r#"{"version":"1","api":"v1"}"#;
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + body).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, issued.cert.pem(), task)
}

#[tokio::test]
async fn a_server_is_trusted_by_the_key_that_its_endpoint_names_and_by_no_other() {
    use rustls::pki_types::pem::PemObject;
    use sha2::{Digest, Sha256};
    let key = |pem: &str| {
        let certificate = rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let parsed = rustls::server::ParsedCertificate::try_from(&certificate).unwrap();
        Sha256::digest(parsed.subject_public_key_info()).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let (url, pem, task) = tls_server().await;
    let with = |key: String| {
        let endpoints = vec![format!("{url}#spki={key}")];
        client_with(ClientConfig { endpoints, ..ClientConfig::default() })
    };
    assert_eq!(with(key(&pem)).version().await.unwrap().api, "v1");
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap().cert.pem();
    let refused = with(key(&other)).version().await.unwrap_err().to_string();
    assert!(refused.contains("has another key than the endpoint's #spki= says"), "{refused}");
    assert!(refused.contains("BASALT_CA_FILE does not change that"), "{refused}");
    assert!(refused.contains(&format!("{url}: ")), "the key is not repeated: {refused}");
    task.abort();
}

#[tokio::test]
async fn https_is_trusted_by_the_given_certificate_and_by_no_other() {
    let (url, pem, task) = tls_server().await;
    let with = |endpoint: &str, ca_pem: Option<String>| {
        // A client that retried here would never end.
        let (endpoints, patience) = (vec![endpoint.to_owned()], Duration::MAX);
        Client::new(&ClientConfig { endpoints, patience, ca_pem, ..ClientConfig::default() }).unwrap()
    };
    assert_eq!(with(&url, Some(pem.clone())).version().await.unwrap().api, "v1");
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap().cert.pem();
    let by_name = url.replace("127.0.0.1", "localhost");
    for (endpoint, ca_pem, says) in [
        (&url, Some(other), "name the file with its signer's certificate, in BASALT_CA_FILE"),
        (&url, None, "name the file with its signer's certificate, in BASALT_CA_FILE"),
        (&by_name, Some(pem), "a name or an address that stands in its certificate; BASALT_CA_FILE does not"),
    ] {
        let error = with(endpoint, ca_pem).version().await.unwrap_err();
        let words = error.to_string();
        assert!(words.starts_with(&format!("no region can be trusted: {endpoint}: ")), "{words}");
        assert!(words.contains(says) && !error.is_outage(), "{words}");
    }
    task.abort();
}

#[tokio::test]
async fn a_region_that_is_trusted_is_asked_beside_one_that_is_not() {
    let (url, pem, task) = tls_server().await;
    let (strange, _, other) = tls_server().await;
    let with = |endpoints: Vec<String>, patience| {
        let ca_pem = Some(pem.clone());
        Client::new(&ClientConfig { endpoints, patience, ca_pem, ..ClientConfig::default() }).unwrap()
    };
    let both = with(vec![strange.clone(), url], Duration::MAX);
    assert_eq!(both.version().await.unwrap().api, "v1");
    let away = with(vec![strange.clone(), dead_endpoint().await], Duration::ZERO).version().await;
    let words = away.unwrap_err().to_string();
    assert!(words.starts_with("no region answered") && words.contains("BASALT_CA_FILE"), "{words}");
    task.abort();
    other.abort();
}

/// The error of a client that tries this endpoint once.
async fn failure(endpoint: &str) -> String {
    let endpoints = vec![endpoint.to_owned()];
    let config = ClientConfig { endpoints, patience: Duration::ZERO, ..ClientConfig::default() };
    client_with(config).version().await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_mistake_in_an_endpoint_is_told_with_what_would_be_right() {
    let (tls, _, task) = tls_server().await;
    let said = failure(&tls.replace("https://", "http://")).await;
    assert!(said.contains("it does not speak plain HTTP; TLS is asked for with https://"), "{said}");
    task.abort();

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let other = tokio::spawn(async move { axum::serve(listener, Router::new()).await.unwrap() });
    let said = failure(&format!("https://{address}")).await;
    assert!(said.contains("it speaks no TLS; plain HTTP is asked for with http://"), "{said}");
    let said = failure(&format!("http://{address}")).await;
    assert!(said.contains("no region's answer") && said.contains("5240"), "{said}");
    other.abort();
    let _ = other.await;

    let said = failure(&format!("http://{address}")).await;
    assert!(said.contains("nothing listens there"), "{said}");
    let said = failure("https://region.invalid:5240").await;
    assert!(said.contains("https://region.invalid:5240: ") && said.contains("can resolve names"), "{said}");
}

/// URL and PEM of a server that demands a client certificate, like a proxy before a region.
async fn demanding_server(trusted: &rcgen::Certificate) -> (String, String, tokio::task::JoinHandle<()>) {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    tls_server_with(verifier).await
}

#[tokio::test]
async fn a_certificate_is_shown_to_whoever_demands_one() {
    let ours = client_certificate();
    let (url, pem, task) = demanding_server(&ours.cert).await;
    let with = |identity: Option<ClientIdentity>| {
        let (endpoints, ca_pem) = (vec![url.clone()], Some(pem.clone()));
        client_with(ClientConfig { endpoints, ca_pem, identity, ..ClientConfig::default() })
    };
    assert_eq!(with(Some(identity(&ours))).version().await.unwrap().api, "v1");
    let error = with(None).version().await.unwrap_err().to_string();
    assert!(error.to_lowercase().contains("certificate"), "{error}");
    let error = with(Some(identity(&client_certificate()))).version().await.unwrap_err().to_string();
    assert!(error.contains("received fatal alert"), "{error}");
    task.abort();
}

#[test]
fn a_certificate_that_cannot_be_shown_is_told_by_its_setting() {
    let (ours, other) = (identity(&client_certificate()), identity(&client_certificate()));
    let refused = |certificate: &str, key: &str| {
        let identity = ClientIdentity { certificate: certificate.to_owned(), key: key.to_owned() };
        let endpoints = vec!["https://region".to_owned()];
        let config = ClientConfig { endpoints, identity: Some(identity), ..ClientConfig::default() };
        Client::new(&config).unwrap_err().to_string()
    };
    assert!(
        refused("client.pem", &ours.key).starts_with("client_certificate: there is no certificate in it")
    );
    assert!(refused(&ours.certificate, "client.key").starts_with("client_key: there is no private key"));
    let error = refused(&ours.certificate, &other.key);
    assert!(error.starts_with("client_key: it cannot be used with the certificate"), "{error}");
}

fn client_certificate() -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed(vec!["ci".to_owned()]).unwrap()
}

fn identity(of: &rcgen::CertifiedKey<rcgen::KeyPair>) -> ClientIdentity {
    ClientIdentity { certificate: of.cert.pem(), key: of.signing_key.serialize_pem() }
}

/// A proxy that gives this answer to every CONNECT and stores the request.
async fn proxy(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(head).unwrap()
    });
    (address, asked)
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named() {
    let (address, asked) = proxy("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    let through = format!("http://me:hush@{address}");
    let proxies = Proxies::from_env(|name| (name == "HTTPS_PROXY").then(|| through.clone()));
    let endpoints = vec!["https://region.invalid:5240".to_owned()];
    let patience = Duration::ZERO;
    let config = ClientConfig { endpoints, proxies, patience, ..ClientConfig::default() };
    let error = Client::new(&config).unwrap().version().await.unwrap_err().to_string();
    assert!(error.contains(&format!("https://region.invalid:5240 (through http://{address})")), "{error}");
    assert!(error.contains("authorization") && !error.contains("hush"), "{error}");
    let asked = asked.await.unwrap().to_lowercase();
    assert!(asked.starts_with("connect region.invalid:5240 "), "{asked}");
    assert!(asked.contains("proxy-authorization: basic "), "{asked}");
}
