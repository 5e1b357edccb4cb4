//! The table of all endpoints, with the role that each needs. The router is made from it.

use super::guard::{self, Guard};
use super::problem::Refusal;
use super::rights::Role;
use super::{
    App, addresses, apply, audit, blobs, boots, console, docs, events, explain, host_names, layers, logs,
    metrics, objects, openid, operations, patch, racks, registry, results, runs, session, slow, system,
    tokens, watch, webhooks,
};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Uri;
use axum::middleware;
use axum::routing::{MethodRouter, delete, get, head, post, put};
use basalt_api::wire::MAX_ID_TOKEN_BYTES;
use basalt_api::{MAX_SPEC_BYTES, ProblemCode};

/// One method of one path.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// The HTTP method.
    pub method: &'static str,
    /// The path, with `{…}` for variable parts.
    pub path: &'static str,
    /// The lowest role that may call it; `None`: anybody, without a token.
    pub role: Option<Role>,
    /// The lowest role for `?dry_run=true`; `None`: it has no dry run, and refuses the parameter.
    pub dry_run: Option<Role>,
    /// True if a role for some pools is enough to call it. The handler checks each object.
    pub judged: bool,
    /// True if it concerns only the caller: every known caller may call it, with any roles and scopes.
    pub own: bool,
    /// The word for scopes, if it is not the first word of the path.
    about: Option<&'static str>,
    /// The largest body in bytes; `None`: the handler does not keep the body in memory.
    pub body: Option<usize>,
    handler: fn() -> MethodRouter<App>,
}

impl Endpoint {
    const fn new(
        method: &'static str,
        path: &'static str,
        role: Option<Role>,
        handler: fn() -> MethodRouter<App>,
    ) -> Self {
        Self {
            method,
            path,
            role,
            dry_run: None,
            judged: false,
            own: false,
            about: None,
            body: Some(BODY_BYTES),
            handler,
        }
    }

    const fn dry_run(self, role: Role) -> Self {
        Self { dry_run: Some(role), ..self }
    }

    const fn judged(self) -> Self {
        Self { judged: true, ..self }
    }

    const fn own(self) -> Self {
        Self { own: true, ..self }
    }

    const fn about(self, plural: &'static str) -> Self {
        Self { about: Some(plural), ..self }
    }

    const fn body(self, bytes: Option<usize>) -> Self {
        Self { body: bytes, ..self }
    }

    /// The first word after `/api/v1/`, or the whole path. Scopes of tokens are such words.
    pub(super) fn word(&self) -> &'static str {
        if let Some(word) = self.about {
            return word;
        }
        let rest = self.path.strip_prefix("/api/v1/").unwrap_or(self.path).trim_start_matches('/');
        rest.split('/').next().unwrap_or(rest)
    }

    /// The kind of a path that names a kind itself, without `{plural}`.
    pub(super) fn kind(&self) -> Option<&'static str> {
        basalt_api::KINDS.iter().map(|kind| kind.plural).find(|plural| *plural == self.word())
    }
}

const OPEN: Option<Role> = None;
const VIEWER: Option<Role> = Some(Role::Viewer);
const OPERATOR: Option<Role> = Some(Role::Operator);
const ADMIN: Option<Role> = Some(Role::Admin);

/// All endpoints. A write without `dry_run` creates or ends something of the caller's own: sessions, runs, tokens for racks, bytes of
/// blobs. A dry run of such a write would show nothing.
pub const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("GET", "/healthz", OPEN, || get(system::healthz)),
    Endpoint::new("GET", "/readyz", OPEN, || get(system::readyz)),
    Endpoint::new("GET", "/version", OPEN, || get(system::version)),
    Endpoint::new("GET", "/openapi.json", OPEN, || get(system::openapi)),
    Endpoint::new("GET", "/", OPEN, || get(console::home)),
    Endpoint::new("GET", "/ui/{path}", OPEN, || get(console::page)),
    Endpoint::new("GET", "/docs", OPEN, || get(docs::docs)),
    Endpoint::new("GET", "/pages", OPEN, || get(docs::pages)),
    Endpoint::new("GET", "/pages/{page}", OPEN, || get(docs::page)),
    Endpoint::new("GET", "/.well-known/terraform.json", OPEN, || get(registry::discovery)),
    Endpoint::new("GET", "/v1/providers/{namespace}/{type}/versions", OPEN, || get(registry::versions)),
    Endpoint::new("GET", "/v1/providers/{namespace}/{type}/{version}/download/{os}/{arch}", OPEN, || {
        get(registry::download)
    }),
    Endpoint::new("GET", "/v1/providers/{namespace}/{type}/{version}/files/{file}", OPEN, || {
        get(registry::file)
    }),
    Endpoint::new("GET", "/metrics", VIEWER, || get(metrics::metrics)),
    Endpoint::new("GET", "/api/v1/version", OPEN, || get(system::version)),
    Endpoint::new("GET", "/api/v1/watch", VIEWER, || get(watch::watch)),
    Endpoint::new("GET", "/api/v1/{plural}", VIEWER, || get(objects::list)),
    Endpoint::new("GET", "/api/v1/{plural}/{name}", VIEWER, || get(objects::read)),
    Endpoint::new("PUT", "/api/v1/{plural}/{name}", OPERATOR, || put(objects::write)).dry_run(Role::Viewer),
    Endpoint::new("PATCH", "/api/v1/{plural}/{name}", OPERATOR, || axum::routing::patch(patch::patch))
        .dry_run(Role::Viewer),
    Endpoint::new("DELETE", "/api/v1/{plural}/{name}", OPERATOR, || delete(objects::remove))
        .dry_run(Role::Viewer),
    Endpoint::new("POST", "/api/v1/{plural}/{name}/rename", OPERATOR, || post(objects::rename))
        .dry_run(Role::Viewer),
    Endpoint::new("GET", "/api/v1/{plural}/{name}/layers", VIEWER, || get(layers::read)),
    Endpoint::new("PUT", "/api/v1/{plural}/{name}/layers/{manager}", OPERATOR, || put(layers::write))
        .dry_run(Role::Viewer),
    Endpoint::new("GET", "/api/v1/{plural}/{name}/plan", VIEWER, || get(explain::plan)),
    Endpoint::new("GET", "/api/v1/{plural}/{name}/waits", VIEWER, || get(explain::waits)),
    Endpoint::new("GET", "/api/v1/{plural}/{name}/timeline", VIEWER, || get(explain::timeline)),
    Endpoint::new("GET", "/api/v1/{plural}/{name}/decisions", VIEWER, || get(explain::decisions)),
    Endpoint::new("POST", "/api/v1/{plural}/{name}/operations", OPERATOR, || post(operations::request))
        .dry_run(Role::Viewer),
    Endpoint::new("GET", "/api/v1/{plural}/{name}/operations", VIEWER, || get(operations::list)),
    Endpoint::new("GET", "/api/v1/{plural}/{name}/operations/{id}", VIEWER, || get(operations::read)),
    Endpoint::new("GET", "/api/v1/{plural}/{name}/actions", VIEWER, || get(operations::actions::read)),
    // Not below /api/v1/machines, because a machine may have the name `operations`.
    Endpoint::new("POST", "/api/v1/operations", OPERATOR, || post(operations::many::request))
        .dry_run(Role::Viewer)
        .judged()
        .about("machines"),
    Endpoint::new("POST", "/api/v1/apply", OPERATOR, || post(apply::apply))
        .dry_run(Role::Viewer)
        .judged()
        .body(Some(APPLY_BYTES)),
    Endpoint::new("POST", "/api/v1/runs/{run}", VIEWER, || post(runs::report)).own(),
    Endpoint::new("GET", "/api/v1/login", OPEN, || get(openid::ways)),
    Endpoint::new("GET", "/api/v1/login/openid", OPEN, || get(openid::begin)),
    Endpoint::new("POST", "/api/v1/login", OPEN, || post(session::login)).body(Some(LOGIN_BYTES)),
    Endpoint::new("POST", "/api/v1/logout", VIEWER, || post(session::logout)).own(),
    Endpoint::new("POST", "/api/v1/password", VIEWER, || post(session::change_password))
        .own()
        .body(Some(LOGIN_BYTES)),
    Endpoint::new("GET", "/api/v1/whoami", VIEWER, || get(session::whoami)).own(),
    Endpoint::new("POST", "/api/v1/api_tokens/{name}/issue", ADMIN, || post(tokens::issue))
        .dry_run(Role::Admin),
    Endpoint::new("POST", "/api/v1/api_tokens/{name}/revoke", ADMIN, || post(tokens::revoke))
        .dry_run(Role::Admin),
    Endpoint::new("GET", "/api/v1/webhooks/{name}/deliveries", VIEWER, || get(webhooks::deliveries)),
    Endpoint::new("POST", "/api/v1/webhooks/{name}/redeliver", ADMIN, || post(webhooks::redeliver))
        .dry_run(Role::Admin),
    Endpoint::new("GET", "/api/v1/boots/{machine}", VIEWER, || get(boots::read)),
    Endpoint::new("GET", "/api/v1/names/{name}", VIEWER, || get(host_names::read)),
    Endpoint::new("GET", "/api/v1/machines/{name}/logs", VIEWER, || get(logs::read)),
    Endpoint::new("GET", "/api/v1/machines/{name}/results", VIEWER, || get(results::read)),
    Endpoint::new("GET", "/api/v1/addresses", VIEWER, || get(addresses::list)),
    Endpoint::new("GET", "/api/v1/events", VIEWER, || get(events::list)),
    Endpoint::new("GET", "/api/v1/audit", ADMIN, || get(audit::list)),
    Endpoint::new("POST", "/api/v1/join_tokens", ADMIN, || post(racks::join_token)),
    Endpoint::new("HEAD", "/api/v1/blobs/{sha256}", VIEWER, || head(blobs::state)),
    Endpoint::new("GET", "/api/v1/blobs/{sha256}", VIEWER, || get(blobs::download)),
    Endpoint::new("PUT", "/api/v1/blobs/{sha256}", OPERATOR, || put(blobs::upload)).body(None),
];

/// A spec, with room for metadata and spaces around it.
pub(super) const BODY_BYTES: usize = 2 * MAX_SPEC_BYTES;

/// Room for ten thousand documents of a few kilobytes.
const APPLY_BYTES: usize = 64 << 20;

/// Names and passwords, or an ID token with a person's groups. Callers without a token can send it.
const LOGIN_BYTES: usize = MAX_ID_TOKEN_BYTES + (8 << 10);

pub(super) fn router(app: App) -> Router {
    let mut router = Router::new();
    for (place, endpoint) in ENDPOINTS.iter().enumerate() {
        let guard = Guard { app: app.clone(), endpoint };
        let limit = endpoint.body.map_or_else(DefaultBodyLimit::disable, DefaultBodyLimit::max);
        let handler = (endpoint.handler)().layer(limit);
        let handler = handler.layer(middleware::from_fn_with_state(guard, guard::authorise));
        let measured = (app.clone(), place);
        let handler = handler.layer(middleware::from_fn_with_state(measured, metrics::measure));
        // The rest of a path, including slashes.
        router = router.route(&endpoint.path.replace("{path}", "{*path}"), handler);
    }
    router
        .fallback(|uri: Uri| async move {
            let hint = "the API is /api/v1, which an endpoint of a client leaves out; see /openapi.json";
            Refusal::new(ProblemCode::NoSuchPath, format!("there is no path {}: {hint}", uri.path()))
        })
        .method_not_allowed_fallback(|uri: Uri| async move {
            Refusal::new(
                ProblemCode::MethodNotAllowed,
                format!("{} does not have this method; see Allow, or /openapi.json", uri.path()),
            )
        })
        .layer(middleware::from_fn_with_state(app.clone(), slow::guard))
        .layer(middleware::from_fn_with_state(app.clone(), guard::arrive))
        .with_state(app)
}
