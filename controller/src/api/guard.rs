//! Who asks, and whether they may.

use super::App;
use super::endpoints::Endpoint;
use super::problem::Refusal;
use super::query::Flags;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use basalt_api::{Problem, ProblemCode};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

/// What somebody may do; each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look, and try out.
    Viewer,
    /// Change.
    Operator,
    /// Change who may change.
    Admin,
}

impl Role {
    /// Every role, the weakest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// As the database has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == text)
    }
}

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    Tcp(SocketAddr),
    Unix {
        /// `None` when the kernel does not tell.
        uid: Option<u32>,
    },
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

/// Before a handler: whether the caller's role is enough for the endpoint.
pub(super) async fn authorise(
    State(Guard { app, endpoint }): State<Guard>,
    peer: ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let dry_run = Flags::of(request.uri()).dry_run;
    let needed = match (endpoint.dry_run, dry_run) {
        (Some(role), true) => Some(role),
        _ => endpoint.role,
    };
    if let Some(needed) = needed {
        match role(&app, peer.0, request.headers()).await {
            Ok(role) if role >= needed => {}
            Ok(role) => {
                let (method, path) = (endpoint.method, endpoint.path);
                let detail = format!(
                    "{method} {path} needs the role {}, and this token has {}",
                    needed.as_str(),
                    role.as_str()
                );
                return Refusal::new(ProblemCode::Forbidden, detail).into_response();
            }
            Err(refusal) => return refusal.into_response(),
        }
    }
    next.run(request).await
}

async fn role(app: &App, peer: Peer, headers: &HeaderMap) -> Result<Role, Refusal> {
    let unknown = |detail: &str| Refusal::new(ProblemCode::Unauthenticated, detail);
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return match peer {
            Peer::Unix { uid: Some(0) } => Ok(Role::Admin),
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
        .and_then(|h| Role::parse(&h.role))
        .ok_or_else(|| unknown("this token is not known, or its time is over"))
}
