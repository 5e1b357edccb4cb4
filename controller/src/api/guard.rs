//! Authenticates and authorises requests.

use super::caller::Caller;
use super::problem::{REQUEST, Refusal};
use super::query;
use super::rights::{ACCESS, Grant, POOLED, Rights, Role, SETTINGS, Scopes};
use super::{App, body, cookie, names};
use crate::telemetry::Context;
use axum::extract::{ConnectInfo, RawPathParams, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use basalt_api::routes::Route;
use basalt_api::{Kind, Problem, ProblemCode};
use basalt_db::{Actor, RoleGrant};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing::Instrument;

/// The transport and the address of a client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    /// A connection with plain HTTP, from this address.
    Tcp(SocketAddr),
    /// HTTP over TLS.
    Tls(SocketAddr),
    /// The unix socket on this host.
    Unix {
        /// The client's user id; `None` if the kernel does not tell.
        uid: Option<u32>,
    },
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) | Self::Tls(address) => write!(f, "{}", address.ip().to_canonical()),
            Self::Unix { .. } => f.write_str("api.sock"),
        }
    }
}

/// A route and its API, for the middleware.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) app: App,
    pub(super) route: &'static Route,
}

/// The trace of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traced {
    pub(super) context: Context,
    /// The span of the client.
    pub(super) parent: Option<Context>,
}

/// Around every request: gives it an id and a trace, refuses plain HTTP from other hosts, and counts the answer.
pub(super) async fn arrive(
    State(app): State<App>,
    peer: ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let asked = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
    let parent = asked.and_then(Context::parse);
    let context = parent.map_or_else(Context::fresh, Context::child);
    request.extensions_mut().insert(Traced { context, parent });
    let (id, trace_id) = (context.request_id(), context.trace_id());
    let span = tracing::info_span!(
        "request",
        trace_id,
        request_id = id,
        method = %request.method(),
        path = request.uri().path()
    );
    // Without a client's span and without a collector, nobody would see the trace.
    let carried = (parent.is_some() || app.telemetry().is_on()).then(|| context.to_string());
    let answer = basalt_db::trace::within(carried, Box::pin(answer(app, peer, request, next)));
    let mut response = REQUEST.scope(id.clone(), answer).instrument(span).await;
    if let Ok(id) = header::HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", id);
    }
    // Browsers must use the declared content type, and must not guess another one for uploaded data.
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

async fn answer(app: App, peer: ConnectInfo<Peer>, request: Request, next: Next) -> Response {
    let metrics = &app.0.metrics;
    metrics.under_way.fetch_add(1, Ordering::Relaxed);
    let response = match peer.0 {
        Peer::Tcp(address) if !address.ip().to_canonical().is_loopback() && !app.0.parts.allow_plaintext => {
            let detail = format!(
                "{} speaks plain HTTP from another host; ask for https:// of a region with --tls-certificate and --tls-key, or start \
                 the region with --allow-plaintext",
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
    match response.status() {
        StatusCode::PAYLOAD_TOO_LARGE if !is_problem(&response) => {
            let detail = "the request is larger than the region takes: 72 KiB for a login, 64 MiB for an apply, 2 MiB otherwise";
            Refusal::new(ProblemCode::TooLarge, detail).into_response()
        }
        // The path is not UTF-8, or the body broke off.
        StatusCode::BAD_REQUEST if !is_problem(&response) => {
            let detail = "the path or the body is not UTF-8, or the body is not whole";
            Refusal::new(ProblemCode::Invalid, detail).into_response()
        }
        _ => response,
    }
}

fn is_problem(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == basalt_api::problem::PROBLEM_JSON)
}

/// Before a handler: authenticates the caller, and checks that its rights are enough for the route and the object.
pub(super) async fn authorise(
    State(Guard { app, route }): State<Guard>,
    peer: ConnectInfo<Peer>,
    path: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(route);
    let dry_run = query::is_dry_run(request.uri());
    let needed = match (route.dry_run, dry_run) {
        (Some(role), true) => Some(role),
        _ => route.role,
    };
    if let Some(needed) = needed {
        let caller = match caller(&app, peer.0, route, request.headers()).await {
            Ok(caller) => caller,
            Err(refusal) => return refusal.into_response(),
        };
        if let Err(refusal) = admit(&app, &caller, route, needed, &path).await {
            return refusal.into_response();
        }
        let limited = caller.rights.unlimited().is_none().then(|| caller.clone());
        request.extensions_mut().insert(caller);
        let response = next.run(request).await;
        let Some(caller) = limited else { return response };
        let name = path.iter().find(|(key, _)| *key == "name").map(|(_, name)| name);
        return match names::hidden(&app, &caller, of(route, &path), name, response).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(),
        };
    }
    // Only a login may send a body without credentials, so logins are limited per client.
    let login = match route.method {
        "POST" => Some(app.0.logins.tries.begin(peer.0)),
        _ => None,
    };
    let _login = match login.transpose() {
        Ok(login) => login,
        Err(refusal) => return refusal.into_response(),
    };
    next.run(request).await
}

/// The kind of the request, if its path names one.
fn of(route: &Route, path: &RawPathParams) -> Option<&'static Kind> {
    match path.iter().find(|(key, _)| *key == "plural") {
        Some((_, plural)) => basalt_api::KINDS.iter().copied().find(|kind| kind.plural == plural),
        None => route.kind(),
    }
}

/// Checks that the caller may make this request, from the route and the object in its path.
async fn admit(
    app: &App,
    caller: &Caller,
    route: &Route,
    needed: Role,
    path: &RawPathParams,
) -> Result<(), Refusal> {
    if route.own {
        return Ok(());
    }
    let part = |name: &str| path.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
    let kind = of(route, path);
    let word = part("plural").unwrap_or_else(|| route.word());
    let reads = route.is_read();
    if !caller.scopes.allow(word, !reads && needed > Role::Viewer) {
        let scope = if !reads && needed > Role::Viewer { word.to_owned() } else { format!("{word}:read") };
        let asked = asked(route, path);
        let detail = format!("{asked} is not among this token's scopes: it needs {scope:?} there");
        return Err(Refusal::new(ProblemCode::Forbidden, detail));
    }
    let rights = &caller.rights;
    let (needed, has) = match kind {
        Some(kind)
            if ACCESS.contains(&kind.name) || (kind.name == SETTINGS && !reads && needed > Role::Viewer) =>
        {
            (if reads { needed } else { Role::Admin }, rights.unlimited())
        }
        Some(kind) if POOLED.contains(&kind.name) && rights.unlimited() < Some(needed) => {
            let Some(name) = part("name") else {
                return enough(route, path, needed, rights.highest());
            };
            let key = body::key(kind, name)?;
            match app.store().pool_of(kind.name, key).await? {
                // The handler checks an object that is to be created.
                None => (needed, rights.highest()),
                Some(pool) => match rights.over(pool.as_deref()) {
                    None => return Err(Caller::unseen(kind, key)),
                    has => (needed, has),
                },
            }
        }
        // A dry run of Settings shows machines of all pools.
        Some(kind) if kind.name == SETTINGS && !reads => (needed, rights.unlimited()),
        _ if needed == Role::Viewer || route.judged => (needed, rights.highest()),
        _ => (needed, rights.unlimited()),
    };
    enough(route, path, needed, has)
}

/// The method and the path of a request, as it was made.
fn asked(route: &Route, path: &RawPathParams) -> String {
    let parts = path.iter();
    let path = parts.fold(route.path.to_owned(), |all, (key, part)| all.replace(&format!("{{{key}}}"), part));
    format!("{} {path}", route.method)
}

fn enough(route: &Route, path: &RawPathParams, needed: Role, has: Option<Role>) -> Result<(), Refusal> {
    if has >= Some(needed) {
        return Ok(());
    }
    let asked = asked(route, path);
    let has = has.map_or("none", Role::as_str);
    let detail = format!("{asked} needs the role {}, and this token has {has} there", needed.as_str());
    Err(Refusal::new(ProblemCode::Forbidden, detail))
}

/// The credential of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credential<'a> {
    /// In the header Authorization.
    Bearer(&'a str),
    /// In the cookie from a login of a browser.
    Cookie(&'a str),
}

impl<'a> Credential<'a> {
    /// The credential of a request. If the header cannot be read, the cookie is not used in its place.
    pub(super) fn of(peer: Peer, headers: &'a HeaderMap) -> Option<Self> {
        match headers.contains_key(header::AUTHORIZATION) {
            true => bearer(headers).map(Self::Bearer),
            false => cookie::token(peer, headers).map(Self::Cookie),
        }
    }

    pub(super) fn token(self) -> &'a str {
        match self {
            Self::Bearer(token) | Self::Cookie(token) => token,
        }
    }
}

/// The token of the header Authorization.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

async fn caller(app: &App, peer: Peer, route: &Route, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let as_of = app.follower().position();
    let actor =
        |name: String| Arc::new(Actor { name, address: peer.to_string(), request: route.to_string() });
    let unknown = |detail: &str| Refusal::new(ProblemCode::Unauthenticated, detail);
    let credential = Credential::of(peer, headers);
    if credential.is_none() && !headers.contains_key(header::AUTHORIZATION) {
        return match peer {
            Peer::Unix { uid: Some(0) } => Ok(Caller {
                peer,
                bearer: None,
                actor: actor("peer uid 0".to_owned()),
                rights: Rights::everywhere(Role::Admin),
                scopes: Scopes::default(),
                rests_on: Vec::new(),
                as_of,
                declared: Arc::default(),
            }),
            _ => Err(unknown("no token: send Authorization: Bearer TOKEN")),
        };
    }
    let Some(credential) = credential else {
        return Err(unknown("the header Authorization is not of the form: Bearer TOKEN"));
    };
    if matches!(credential, Credential::Cookie(_)) && !route.is_read() {
        cookie::same_origin(headers)?;
    }
    let Some(holder) = app.store().holder(credential.token()).await? else {
        return Err(unknown("this token is not known, or its time is over"));
    };
    Ok(Caller {
        peer,
        rights: granted(holder.grants),
        actor: actor(holder.bearer.to_string()),
        bearer: Some(holder.bearer),
        scopes: Scopes::new(holder.scopes),
        rests_on: holder.rests_on,
        as_of,
        declared: Arc::default(),
    })
}

fn granted(grants: Vec<RoleGrant>) -> Rights {
    let grant = |grant: RoleGrant| {
        let pools = grant.pools.map(|pools| pools.into_iter().collect());
        Some(Grant { role: grant.role.parse().ok()?, pools })
    };
    Rights::new(grants.into_iter().filter_map(grant).collect())
}

/// True if the caller still has the same rights.
pub(super) async fn is_unchanged(app: &App, headers: &HeaderMap, caller: &Caller) -> Result<bool, Refusal> {
    let Some(credential) = Credential::of(caller.peer, headers) else { return Ok(true) };
    let holder = app.store().holder_now(credential.token()).await?;
    Ok(holder.is_some_and(|now| granted(now.grants) == caller.rights && now.rests_on == caller.rests_on))
}
