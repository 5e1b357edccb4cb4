//! Serves [`ROUTES`]: a handler for each route, behind its guard.

use super::guard::{self, Guard};
use super::problem::Refusal;
use super::{
    App, addresses, apply, audit, blobs, boots, console, docs, events, explain, host_names, layers, logs,
    metrics, objects, openid, operations, patch, racks, registry, results, runs, session, slow, system,
    tokens, watch, webhooks,
};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Uri;
use axum::middleware;
use axum::routing::{MethodFilter, MethodRouter, on};
use basalt_api::ProblemCode;
use basalt_api::routes::{ROUTES, RouteId as Id};

/// The handler of a route, for its method.
fn handler(id: Id, by: MethodFilter) -> MethodRouter<App> {
    match id {
        Id::List => on(by, objects::list),
        Id::Read => on(by, objects::read),
        Id::Write => on(by, objects::write),
        Id::Patch => on(by, patch::patch),
        Id::Delete => on(by, objects::remove),
        Id::Rename => on(by, objects::rename),
        Id::ReadLayers => on(by, layers::read),
        Id::WriteLayer => on(by, layers::write),
        Id::Plan => on(by, explain::plan),
        Id::Waits => on(by, explain::waits),
        Id::Timeline => on(by, explain::timeline),
        Id::Decisions => on(by, explain::decisions),
        Id::Operate => on(by, operations::request),
        Id::ListOperations => on(by, operations::list),
        Id::ReadOperation => on(by, operations::read),
        Id::Actions => on(by, operations::actions::read),
        Id::OperateMany => on(by, operations::many::request),
        Id::Apply => on(by, apply::apply),
        Id::ReportRun => on(by, runs::report),
        Id::Login => on(by, session::login),
        Id::LoginWays => on(by, openid::ways),
        Id::BeginLogin => on(by, openid::begin),
        Id::Logout => on(by, session::logout),
        Id::ChangePassword => on(by, session::change_password),
        Id::WhoAmI => on(by, session::whoami),
        Id::IssueApiToken => on(by, tokens::issue),
        Id::RevokeApiToken => on(by, tokens::revoke),
        Id::MakeJoinToken => on(by, racks::join_token),
        Id::ListDeliveries => on(by, webhooks::deliveries),
        Id::Redeliver => on(by, webhooks::redeliver),
        Id::Discard => on(by, webhooks::discard),
        Id::Boots => on(by, boots::read),
        Id::HostName => on(by, host_names::read),
        Id::Logs => on(by, logs::read),
        Id::TestResults => on(by, results::read),
        Id::Addresses => on(by, addresses::list),
        Id::Audit => on(by, audit::list),
        Id::Events => on(by, events::list),
        Id::Watch => on(by, watch::watch),
        Id::HeadBlob => on(by, blobs::state),
        Id::GetBlob => on(by, blobs::download),
        Id::PutBlob => on(by, blobs::upload),
        Id::Version => on(by, system::version),
        Id::RootVersion => on(by, system::version),
        Id::OpenApi => on(by, system::openapi),
        Id::Docs => on(by, docs::docs),
        Id::Home => on(by, console::home),
        Id::Console => on(by, console::page),
        Id::Pages => on(by, docs::pages),
        Id::Page => on(by, docs::page),
        Id::Registry => on(by, registry::discovery),
        Id::ProviderVersions => on(by, registry::versions),
        Id::ProviderPackage => on(by, registry::download),
        Id::ProviderFile => on(by, registry::file),
        Id::Metrics => on(by, metrics::metrics),
        Id::Health => on(by, system::healthz),
        Id::Readiness => on(by, system::readyz),
    }
}

/// The filter of a route's method.
fn filter(method: &str) -> MethodFilter {
    match method {
        "HEAD" => MethodFilter::HEAD,
        "PUT" => MethodFilter::PUT,
        "PATCH" => MethodFilter::PATCH,
        "POST" => MethodFilter::POST,
        "DELETE" => MethodFilter::DELETE,
        _ => MethodFilter::GET,
    }
}

pub(super) fn router(app: App) -> Router {
    let mut router = Router::new();
    for (place, route) in ROUTES.iter().enumerate() {
        let guard = Guard { app: app.clone(), route };
        let limit = route.body.map_or_else(DefaultBodyLimit::disable, DefaultBodyLimit::max);
        let handler = handler(route.id, filter(route.method)).layer(limit);
        let handler = handler.layer(middleware::from_fn_with_state(guard, guard::authorise));
        let measured = (app.clone(), place);
        let handler = handler.layer(middleware::from_fn_with_state(measured, metrics::measure));
        // The rest of a path, including slashes.
        router = router.route(&route.path.replace("{path}", "{*path}"), handler);
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
