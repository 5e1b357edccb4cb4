//! A small stand-in for a region, for tests of whole commands against fixed answers.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use basalt_api::{Problem, ProblemCode};
use clap::Parser;
use serde_json::{Value, json};

use crate::region::Failed;
use crate::{Cli, perform};

/// A Zone with this condition set to true.
pub(crate) fn zone(condition: &str) -> Value {
    let (uid, at) = ("0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", "2026-01-31T12:00:00Z");
    let condition = json!({"type": condition, "status": "true", "reason": "Shut", "message": "the door is shut", "since": at});
    let metadata = json!({"name": "row-1", "uid": uid, "generation": 3, "created_at": at, "updated_at": at});
    json!({"kind": "Zone", "metadata": metadata, "spec": {},
        "status": {"observed_generation": 3, "conditions": [condition]}})
}

/// The answer of a region without objects to every request.
pub(crate) const NOTHING: &str = "there is no such object";

/// Most bytes of a request body.
const MOST: usize = 1 << 20;

/// The body of a request as an extension, since the answering function is not asynchronous.
#[derive(Clone, Debug)]
pub(crate) struct Body(pub(crate) Bytes);

/// Runs `basalt` with these words at a region with these answers.
pub(crate) async fn run<F>(words: &[&str], answer: F) -> Result<(), Failed>
where
    F: Fn(&Request) -> Response + Clone + Send + Sync + 'static,
{
    let answers = Router::new().fallback(move |request: Request| async move {
        let (mut parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, MOST).await.unwrap();
        parts.extensions.insert(Body(body.clone()));
        answer(&Request::from_parts(parts, body.into()))
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, answers).await.unwrap() });
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "t0ken").unwrap();
    let connection = ["basalt", "--endpoint", &endpoint, "--token-file", token.to_str().unwrap()];
    let Cli { connection, command } = Cli::try_parse_from(connection.iter().chain(words)).unwrap();
    let ended = perform(command, &connection).await;
    server.abort();
    ended
}

/// Runs `basalt` with these words at a region without objects. Returns the requests as `METHOD URI BODY`, and the end.
pub(crate) async fn run_at_nothing(words: &[&str]) -> (Vec<String>, Result<(), Failed>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&seen);
    let answer = move |request: &Request| -> Response {
        let body = String::from_utf8_lossy(&request.extensions().get::<Body>().unwrap().0);
        asked.lock().unwrap().push(format!("{} {} {body}", request.method(), request.uri()));
        let problem = Problem::new(ProblemCode::NotFound, NOTHING);
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        (StatusCode::NOT_FOUND, kind, serde_json::to_string(&problem).unwrap()).into_response()
    };
    let ended = run(words, answer).await;
    let asked = seen.lock().unwrap().clone();
    (asked, ended)
}
