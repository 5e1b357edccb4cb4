//! Who asks, and whether they may.

use super::App;
use super::caller::Caller;
use super::endpoints::Endpoint;
use super::problem::Refusal;
use super::query::Flags;
use super::rights::{Rights, Role};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use basalt_api::{Problem, ProblemCode};
use basalt_db::Actor;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    Tcp(SocketAddr),
    Unix {
        /// `None` when the kernel does not tell.
        uid: Option<u32>,
    },
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{}", address.ip().to_canonical()),
            Self::Unix { .. } => f.write_str("api.sock"),
        }
    }
}

/// An endpoint and its API, for the middleware.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) app: App,
    pub(super) endpoint: &'static Endpoint,
}

/// Around every request: no plain HTTP from other hosts; count the answer.
pub(super) async fn arrive(
    State(app): State<App>,
    peer: ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let metrics = &app.0.metrics;
    metrics.under_way.fetch_add(1, Ordering::Relaxed);
    let response = match peer.0 {
        Peer::Tcp(address) if !address.ip().to_canonical().is_loopback() && !app.0.parts.allow_plaintext => {
            let detail = format!(
                "{} speaks plain HTTP from another host; use TLS, or start the region with --allow-plaintext",
                address.ip()
            );
            let problem = Problem { status: 426, ..Problem::new(ProblemCode::Forbidden, detail) };
            let mut response = Refusal::from(problem).into_response();
            response
                .headers_mut()
                .insert(header::UPGRADE, header::HeaderValue::from_static("TLS/1.2, HTTP/1.1"));
            response
        }
        _ => next.run(request).await,
    };
    metrics.under_way.fetch_sub(1, Ordering::Relaxed);
    let class = usize::from(response.status().as_u16() / 100).saturating_sub(1);
    if let Some(counter) = metrics.answers.get(class) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE && !is_problem(&response) {
        return Refusal::new(
            ProblemCode::TooLarge,
            "the request is larger than the region takes: 2 MiB, 64 MiB for an apply",
        )
        .into_response();
    }
    response
}

fn is_problem(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == basalt_api::problem::PROBLEM_JSON)
}

/// Before a handler: who the caller is, and whether its role is enough for the endpoint.
pub(super) async fn authorise(
    State(Guard { app, endpoint }): State<Guard>,
    peer: ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let dry_run = Flags::of(request.uri()).dry_run;
    let needed = match (endpoint.dry_run, dry_run) {
        (Some(role), true) => Some(role),
        _ => endpoint.role,
    };
    if let Some(needed) = needed {
        let caller = match caller(&app, peer.0, endpoint, request.headers()).await {
            Ok(caller) => caller,
            Err(refusal) => return refusal.into_response(),
        };
        if caller.rights.unlimited() < Some(needed) {
            return too_weak(endpoint, needed, caller.rights.unlimited()).into_response();
        }
        request.extensions_mut().insert(caller);
    }
    next.run(request).await
}

fn too_weak(endpoint: &Endpoint, needed: Role, has: Option<Role>) -> Refusal {
    let (method, path) = (endpoint.method, endpoint.path);
    let has = has.map_or("none", Role::as_str);
    let detail = format!("{method} {path} needs the role {}, and this token has {has}", needed.as_str());
    Refusal::new(ProblemCode::Forbidden, detail)
}

async fn caller(app: &App, peer: Peer, endpoint: &Endpoint, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let found = |name: String, rights: Rights| {
        let request = format!("{} {}", endpoint.method, endpoint.path);
        Caller { actor: Arc::new(Actor { name, address: peer.to_string(), request }), rights }
    };
    let unknown = |detail: &str| Refusal::new(ProblemCode::Unauthenticated, detail);
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return match peer {
            Peer::Unix { uid: Some(0) } => {
                Ok(found("peer uid 0".to_owned(), Rights::everywhere(Role::Admin)))
            }
            _ => Err(unknown("no token: send Authorization: Bearer TOKEN")),
        };
    };
    let token = value
        .to_str()
        .ok()
        .and_then(|v| v.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let Some((_, token)) = token else {
        return Err(unknown("the header Authorization is not of the form: Bearer TOKEN"));
    };
    let holder = app.store().token_holder(token.trim()).await?;
    holder
        .and_then(|h| Some(found(format!("token {}", h.name), Rights::everywhere(Role::parse(&h.role)?))))
        .ok_or_else(|| unknown("this token is not known, or its time is over"))
}
