//! A region that is unreachable for a while. Requests that wait for it continue once it is back. Ctrl-C ends all waits, however long the
//! provider's own time limits are.

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

/// Much shorter than the provider's own time limit in these tests.
const SOON: Duration = Duration::from_secs(60);
const PATIENT: &str = "2h";
/// Number of failed answers: more than a client without retries would survive.
const OUTAGE: usize = 3;

const ZONE: &str = "/api/v1/zones/uid:0197d3c4-5f6a-7b8c-9d0e-000000000001";

/// The region's answer to a request; `None` if it never answers.
type Says = Option<Response>;
/// The answer of a region that is away.
type Away = fn() -> Says;

/// A simulated region.
struct Region {
    endpoint: String,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Region {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Region {
    async fn that(says: impl FnMut(&str) -> Says + Send + 'static) -> Self {
        let says = Arc::new(Mutex::new(says));
        let app = Router::new().fallback(move |request: Request| {
            let line = format!("{} {}", request.method(), request.uri());
            let said = says.lock().expect("a lock")(&line);
            async move {
                match said {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let server = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        Self { endpoint, server }
    }

    /// A provider with this `retry_timeout`.
    async fn core(&self, retry_timeout: &str) -> MiniCore {
        let block = Val::from([
            ("endpoint", self.endpoint.as_str().into()),
            ("token", "x".into()),
            ("retry_timeout", retry_timeout.into()),
            ("request_timeout", PATIENT.into()),
        ]);
        let core = MiniCore::start(terraform_provider_basalt::provider(), &block).await;
        core.unwrap_or_else(|broken| panic!("{broken}"))
    }
}

fn refusal(code: ProblemCode) -> Response {
    let status = axum::http::StatusCode::from_u16(code.status()).expect("a status");
    let head = [("content-type", "application/problem+json")];
    (status, head, axum::Json(Problem::new(code, "the database restarts"))).into_response()
}

fn away() -> Response {
    refusal(ProblemCode::Unavailable)
}

fn zone() -> Value {
    json!({
        "kind": "Zone", "spec": {}, "status": {},
        "metadata": {
            "name": "row-1", "uid": "0197d3c4-5f6a-7b8c-9d0e-000000000001", "generation": 1, "manager": "terraform",
            "created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z"
        }
    })
}

/// The answers of a region with one zone and nothing else.
fn of_a_zone(line: &str) -> Response {
    match line.split_once(' ') {
        Some((_, path)) if path.ends_with("dry_run=true") => {
            axum::Json(json!({"object": zone(), "plan": {"summary": ""}})).into_response()
        }
        Some(("GET" | "PUT" | "DELETE", path)) if path.starts_with("/api/v1/zones/") => {
            axum::Json(zone()).into_response()
        }
        _ => refusal(ProblemCode::NotFound),
    }
}

fn one_zone() -> [Val; 1] {
    [Val::from([("name", "row-1".into())])]
}

/// The errors for a zone when the region is away from request `question` on, and the user then interrupts Terraform.
async fn interrupted(question: &'static str, says: Away) -> String {
    let (asked, mut is_away) = (Arc::new(Notify::new()), false);
    let seen = Arc::clone(&asked);
    let region = Region::that(move |line| {
        is_away |= line == question;
        if !is_away {
            return Some(of_a_zone(line));
        }
        seen.notify_one();
        says()
    })
    .await;
    let mut core = region.core(PATIENT).await;
    let interrupt = core.interrupt_by();
    let interruption = async {
        asked.notified().await;
        interrupt.now().await
    };
    let configs = one_zone();
    let life = async { tokio::join!(core.live("basalt_zone", &configs, |_| None), interruption) };
    let ended = tokio::time::timeout(SOON, life).await;
    let (lived, stopped) = ended.unwrap_or_else(|_| panic!("{question} goes on"));
    assert_eq!(stopped, Ok(()));
    core.stop().await;
    lived.expect_err("it is interrupted").to_string()
}

#[tokio::test]
async fn an_interruption_ends_whatever_waits_for_a_region_that_is_away() {
    let read = format!("GET {ZONE}").leak();
    let (silent, unavailable): (Away, Away) = (|| None, || Some(away()));
    for (question, says, during, may_be_done) in [
        ("PUT /api/v1/zones/row-1?dry_run=true", silent, "PlanResourceChange", false),
        ("PUT /api/v1/zones/row-1?dry_run=true", unavailable, "PlanResourceChange", false),
        ("PUT /api/v1/zones/row-1", silent, "ApplyResourceChange", true),
        ("PUT /api/v1/zones/row-1", unavailable, "ApplyResourceChange", false),
        (read, silent, "ReadResource", false),
        (read, unavailable, "ReadResource", false),
    ] {
        let told = interrupted(question, says).await;
        assert!(told.starts_with(during), "{question}: {told}");
        assert!(told.contains("Interrupted: Zone \"row-1\""), "{question}: {told}");
        assert_eq!(told.contains("takes over what this apply made"), may_be_done, "{question}: {told}");
    }
}

#[tokio::test]
async fn an_interruption_ends_a_query_between_two_of_its_pages() {
    let asked = Arc::new(Notify::new());
    let seen = Arc::clone(&asked);
    let mut pages = 0;
    let region = Region::that(move |line| {
        if !line.starts_with("GET /api/v1/zones?") {
            return Some(of_a_zone(line));
        }
        pages += 1;
        if pages > OUTAGE {
            seen.notify_one();
        }
        // The list never ends.
        Some(axum::Json(json!({"items": [], "continue": pages.to_string()})).into_response())
    })
    .await;
    let mut core = region.core(PATIENT).await;
    let interrupt = core.interrupt_by();
    let interruption = async {
        asked.notified().await;
        interrupt.now().await
    };
    let query = async { tokio::join!(core.find("basalt_zone", &Val::Null), interruption) };
    let (found, stopped) = tokio::time::timeout(SOON, query).await.expect("the query ends");
    assert_eq!(stopped, Ok(()));
    let told = found.expect_err("it is interrupted").to_string();
    assert!(told.contains("Interrupted: "), "{told}");
    core.stop().await;
}

#[tokio::test]
async fn a_destroy_outlives_its_region() {
    let mut looks = 0;
    let region = Region::that(move |line| {
        if line.starts_with("DELETE ") || !line.contains("wait=Deleted") {
            let is_gone = looks > OUTAGE;
            return Some(if is_gone { refusal(ProblemCode::NotFound) } else { of_a_zone(line) });
        }
        looks += 1;
        Some(if looks > OUTAGE { refusal(ProblemCode::NotFound) } else { away() })
    })
    .await;
    let mut core = region.core("0s").await;
    let lived = tokio::time::timeout(SOON, core.live("basalt_zone", &one_zone(), |_| None)).await;
    let lived = lived.expect("it ends").unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(lived.created, 1);
    core.stop().await;
}

/// The outcome of an action whose region is away for a while, with this deadline of the operation.
async fn acted(deadline: &'static str) -> tfplugin::testing::Acted {
    let mut looks = 0;
    let region = Region::that(move |line| {
        let operation = |state: &str, message: &str| {
            axum::Json(json!({
                "id": "0197d3c4-5f6a-7b8c-9d0e-000000000002", "machine": "m1", "verb": "power_cycle", "state": state,
                "reason": "X", "message": message, "accepted_at": "2026-01-31T12:00:00Z", "deadline": deadline, "path": "/x"
            }))
            .into_response()
        };
        Some(match line.split_once(' ') {
            Some(("POST", path)) if path.ends_with("dry_run=true") => of_a_zone(line),
            Some(("POST", _)) => operation("running", "it is off"),
            Some(("GET", path)) if path.starts_with("/api/v1/machines/m1/operations/") => {
                looks += 1;
                if looks > OUTAGE { operation("done", "it is on") } else { away() }
            }
            _ => of_a_zone(line),
        })
    })
    .await;
    let mut core = region.core("0s").await;
    let config = Val::from([("machine", "m1".into())]);
    let acted = tokio::time::timeout(SOON, core.act("basalt_power_cycle", &config, async || ())).await;
    let acted = acted.expect("it ends").unwrap_or_else(|broken| panic!("{broken}"));
    core.stop().await;
    acted
}

#[tokio::test]
async fn an_action_outlives_its_region_until_its_deadline() {
    let done = acted("9999-01-01T00:00:00Z").await;
    assert_eq!(done.errors, Vec::<String>::new());
    let said = done.said.join("\n");
    assert!(said.contains("m1: no region answers") && said.ends_with("m1: it is on"), "{said}");
    let late = acted("2026-01-31T12:10:00Z").await;
    assert!(late.errors[0].contains("The database restarts"), "{late:?}");
}
