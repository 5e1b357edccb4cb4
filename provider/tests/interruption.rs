//! Ctrl-C ends whatever is asked of a region that is away, however long the provider would wait for it by itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use basalt_api::{Problem, ProblemCode};
use serde_json::{Value, json};
use tfplugin::Val;
use tfplugin::testing::MiniCore;
use tokio::sync::Notify;

/// Far less than the provider would wait by itself.
const SOON: Duration = Duration::from_secs(60);
const LONG: &str = "2h";

/// How a region is away.
#[derive(Clone, Copy, Debug)]
enum Away {
    /// It takes a request, and never answers.
    Silent,
    /// It says that it is not available, again and again.
    Unavailable,
}

/// A region that is away from a certain question on.
struct Region {
    endpoint: String,
    /// It was asked that.
    asked: Arc<Notify>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Region {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Region {
    async fn away_from(question: &'static str, away: Away) -> Self {
        let (asked, is_away) = (Arc::new(Notify::new()), Arc::new(Mutex::new(false)));
        let seen = Arc::clone(&asked);
        let app = Router::new().fallback(move |request: Request| {
            let line = format!("{} {}", request.method(), request.uri());
            let mut is_away = is_away.lock().expect("a lock");
            *is_away |= line == question;
            let answer = (!*is_away).then(|| answer(&line));
            if answer.is_none() {
                seen.notify_one();
            }
            async move {
                match (answer, away) {
                    (Some(answer), _) => answer,
                    (None, Away::Silent) => std::future::pending().await,
                    (None, Away::Unavailable) => refusal(ProblemCode::Unavailable),
                }
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let server = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        Self { endpoint, asked, server }
    }
}

fn refusal(code: ProblemCode) -> Response {
    let status = axum::http::StatusCode::from_u16(code.status()).expect("a status");
    let head = [("content-type", "application/problem+json")];
    (status, head, axum::Json(Problem::new(code, "the database restarts"))).into_response()
}

/// What a region says that has one zone, and is to have it again and again.
fn answer(line: &str) -> Response {
    let zone = json!({
        "kind": "Zone", "spec": {}, "status": {},
        "metadata": {
            "name": "row-1", "uid": "0197d3c4-5f6a-7b8c-9d0e-000000000001", "generation": 1, "manager": "terraform",
            "created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z"
        }
    });
    let answer: Value = match line.split_once(' ') {
        Some((_, path)) if path.ends_with("dry_run=true") => json!({"object": zone, "plan": {"summary": ""}}),
        Some(("GET" | "PUT", path)) if path.starts_with("/api/v1/zones/") => zone,
        _ => return refusal(ProblemCode::NotFound),
    };
    axum::Json(answer).into_response()
}

/// What is told of a zone's life where the region is away from a question on, and the user interrupts Terraform then.
async fn interrupted(question: &'static str, away: Away) -> String {
    let region = Region::away_from(question, away).await;
    let block = Val::from([
        ("endpoint", region.endpoint.as_str().into()),
        ("token", "x".into()),
        ("retry_timeout", LONG.into()),
        ("request_timeout", LONG.into()),
    ]);
    let core = MiniCore::start(terraform_provider_basalt::provider(), &block).await;
    let mut core = core.unwrap_or_else(|broken| panic!("{question}: {broken}"));
    let (interrupt, configs) = (core.interrupt_by(), [Val::from([("name", "row-1".into())])]);
    let interruption = async {
        region.asked.notified().await;
        interrupt.now().await
    };
    let life = async { tokio::join!(core.live("basalt_zone", &configs, |_| None), interruption) };
    let ended = tokio::time::timeout(SOON, life).await;
    let (lived, stopped) = ended.unwrap_or_else(|_| panic!("{question} goes on, {away:?}"));
    assert_eq!(stopped, Ok(()));
    core.stop().await;
    lived.expect_err("it is interrupted").to_string()
}

#[tokio::test]
async fn an_interruption_ends_whatever_waits_for_a_region_that_is_away() {
    const READ: &str = "GET /api/v1/zones/uid:0197d3c4-5f6a-7b8c-9d0e-000000000001";
    for (question, during) in [
        ("PUT /api/v1/zones/row-1?dry_run=true", "PlanResourceChange"),
        ("PUT /api/v1/zones/row-1", "ApplyResourceChange"),
        (READ, "ReadResource"),
    ] {
        for away in [Away::Silent, Away::Unavailable] {
            let told = interrupted(question, away).await;
            assert!(told.starts_with(during), "{question} {away:?}: {told}");
            assert!(told.contains("Interrupted: Zone \"row-1\""), "{question} {away:?}: {told}");
            let was_sent = during == "ApplyResourceChange" && matches!(away, Away::Silent);
            let may_be_done = told.contains("takes over what this apply made");
            assert_eq!(may_be_done, was_sent, "{question} {away:?}: {told}");
        }
    }
}
