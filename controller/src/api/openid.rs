//! Logins by OpenID Connect: with an ID token, and in a browser by way of the issuer's page (docs/decisions/098-browser-logins.md).
//!
//! ```text
//! console                   region                                issuer
//! GET login/openid    -->   a row and a cookie of one secret
//!                     <--   the issuer's page, with state, nonce and challenge
//! goes there          ------------------------------------------> asks the person
//! /ui/login?code&state <----------------------------------------- sends the browser back
//! POST login {code}   -->   row used, state compared       -----> code and verifier
//!                     <--   session's cookie               <----- ID token
//! ```
//!
//! The issuer sends browsers back only to the address in Settings. The console remembers the requested page; no request contains it.

use super::App;
use super::cookie;
use super::guard::Peer;
use super::problem::{Answer, Refusal};
use super::query::NoParameters;
use super::session::{LoggedIn, fresh_token, logging_in};
use crate::openid::account::{self, NoUser};
use crate::openid::flow::{Attempt, Client};
use crate::openid::issuer::Unreachable;
use crate::openid::token::{BadToken, Expected, verify};
use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use basalt_api::kinds::{OpenIdSettings, Settings, SettingsSpec};
use basalt_api::values::{Uid, Url};
use basalt_api::wire::{CodeLogin, LoginBegun, LoginWays, OpenIdLogin};
use basalt_api::{KindOf, ProblemCode};
use basalt_db::{Object, RestsOn};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The longest time of a login at the issuer: a person may need a second factor.
const LASTS: Duration = Duration::from_secs(600);

/// The console's page to which issuers send browsers back.
const BACK: &str = "/ui/login";

pub(super) async fn ways(State(app): State<App>, _: NoParameters) -> Answer<Json<LoginWays>> {
    let settings = settings(&app).await?.map(|(_, settings)| settings).filter(|it| it.console.is_some());
    let host = |settings: OpenIdSettings| authority(&settings.issuer).to_owned();
    Ok(Json(LoginWays { openid: settings.map(host) }))
}

/// Begins a login: redirects to the issuer's page, and sets the cookie to which the login is bound.
pub(super) async fn begin(
    State(app): State<App>,
    peer: ConnectInfo<Peer>,
    uri: Uri,
    headers: HeaderMap,
    _: NoParameters,
) -> Answer<Response> {
    cookie::same_origin(&headers)?;
    let _place = app.0.logins.tries.begin(peer.0)?;
    app.0.logins.tries.admit_begun(peer.0)?;
    let (_, settings, console) = for_browsers(&app).await?;
    let asked = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let asked = asked.or(uri.authority().map(|authority| authority.as_str())).unwrap_or_default();
    if !asked.eq_ignore_ascii_case(authority(&console)) {
        // The issuer sends the browser to that address, but the cookie belongs to this host.
        let detail =
            format!("log in by OpenID Connect at {console}: Settings name that address (openid.console)");
        return Err(Refusal::new(ProblemCode::Forbidden, detail));
    }
    let endpoints =
        app.0.issuers.endpoints(settings.issuer.as_str()).await.map_err(|error| unreachable(&error))?;
    let endpoint =
        endpoints.authorization.as_deref().ok_or_else(|| lacks(&settings, "authorization_endpoint"))?;
    if !endpoint.parse::<Url>().is_ok_and(|url| url.is_protected()) {
        let detail = format!(
            "the issuer's page {endpoint:?} is not protected on its way; its address has to be https://…"
        );
        return Err(Refusal::unavailable(detail));
    }
    let secret = fresh_token()?;
    app.store().begin_login(&secret, LASTS).await?;
    let client = Client { id: &settings.client_id, secret: None, back: &back(&console) };
    let location = Attempt::new(&secret).location(endpoint, &endpoints, client);
    let lasts = i64::try_from(LASTS.as_secs()).unwrap_or(i64::MAX);
    let bound = cookie::begun(peer.0, &secret, lasts)?;
    let headers =
        [(header::SET_COOKIE, bound), (header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"))];
    Ok((headers, Json(LoginBegun { location })).into_response())
}

/// Completes a login of a browser that comes back from the issuer.
pub(super) async fn by_code(
    app: &App,
    peer: Peer,
    headers: &HeaderMap,
    login: &CodeLogin,
) -> Answer<LoggedIn> {
    let address = peer.to_string();
    app.0.logins.tries.admit_address(&address)?;
    let (uid, settings, console) = for_browsers(app).await?;
    let again = |why: &str| {
        tracing::warn!(address, why, "a login by OpenID Connect was refused");
        Refusal::new(ProblemCode::Unauthenticated, format!("{why}; begin the login again"))
    };
    let secret = cookie::attempt(peer, headers)
        .ok_or_else(|| again("this browser began no login, or did so more than ten minutes ago"))?;
    // The login is used up first: if anything fails after this, it cannot be tried again.
    if !app.store().use_login(secret).await? {
        return Err(again("this login was used before, or began more than ten minutes ago"));
    }
    let attempt = Attempt::new(secret);
    if login.state != attempt.state() {
        return Err(again("the issuer's answer is to another login"));
    }
    let issuer = settings.issuer.as_str();
    // The issuer of the answer must be the expected one (RFC 9207 §2.4).
    if login.iss.as_deref().is_some_and(|iss| iss != issuer) {
        return Err(again("the answer is of another issuer"));
    }
    let issuers = &app.0.issuers;
    let endpoints = issuers.endpoints(issuer).await.map_err(|error| unreachable(&error))?;
    let endpoint = endpoints.token.as_deref().ok_or_else(|| lacks(&settings, "token_endpoint"))?;
    let secret = app.store().open_secret(uid, "/openid/client_secret").await?;
    let secret = secret.as_ref().and_then(|secret| std::str::from_utf8(secret).ok());
    let client = Client { id: &settings.client_id, secret, back: &back(&console) };
    let exchange = attempt.exchange(&login.code, &endpoints, client);
    let id_token = issuers
        .exchange(endpoint, exchange)
        .await
        .map_err(|why| again(&format!("the issuer does not take its code: {why}")))?;
    let token = OpenIdLogin { id_token, nonce: Some(attempt.nonce()) };
    signed_in(app, &address, &settings, &token).await
}

/// A login with an ID token of the issuer in Settings.
pub(super) async fn by_token(app: &App, address: &str, login: &OpenIdLogin) -> Answer<LoggedIn> {
    app.0.logins.tries.admit_address(address)?;
    let (_, settings) = settings(app).await?.ok_or_else(nobody)?;
    signed_in(app, address, &settings, login).await
}

async fn signed_in(
    app: &App,
    address: &str,
    settings: &OpenIdSettings,
    login: &OpenIdLogin,
) -> Answer<LoggedIn> {
    let issuer = settings.issuer.as_str();
    let now = app.store().now().await?.as_second();
    let expected = Expected { issuer, client_id: &settings.client_id, nonce: login.nonce.as_deref(), now };
    let issuers = &app.0.issuers;
    let keys = async |is_one_missing| {
        issuers.keys(issuer, is_one_missing).await.map_err(|error| unreachable(&error))
    };
    let mut claims = verify(&login.id_token, &keys(false).await?, &expected);
    if claims.as_ref().is_err_and(BadToken::is_about_keys) {
        claims = verify(&login.id_token, &keys(true).await?, &expected);
    }
    let refused = |why: String| {
        tracing::warn!(address, why, "a login by OpenID Connect was refused");
        Refusal::new(ProblemCode::Unauthenticated, why)
    };
    let claims = claims.map_err(|bad| refused(format!("the ID token is not good: {bad}")))?;
    let user = account::of(app.store(), settings, &claims, address).await;
    let (uid, name) = user.map_err(|error| match error {
        NoUser::Store(error) => error.into(),
        error => refused(error.to_string()),
    })?;
    let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
    let token = fresh_token()?;
    let store = app.store().acting(Arc::new(logging_in(&name, address)));
    let rests_on = RestsOn::OpenId { issuer: &settings.issuer.canonical(), subject };
    let expires_at = store.open_session(uid, &rests_on, &token).await?;
    app.0.logins.tries.came_in(address);
    Ok(LoggedIn { token, expires_at: Some(expires_at) })
}

async fn settings(app: &App) -> Answer<Option<(Uid, OpenIdSettings)>> {
    let all = app.store().all(Settings::KIND.name).await?;
    let of = |it: &Object| Some((it.uid, serde_json::from_str::<SettingsSpec>(it.spec.get()).ok()?.openid?));
    Ok(all.first().and_then(of))
}

async fn for_browsers(app: &App) -> Answer<(Uid, OpenIdSettings, Url)> {
    let (uid, settings) = settings(app).await?.ok_or_else(nobody)?;
    let console = settings.console.clone().ok_or_else(|| {
        let detail = "nobody logs in by OpenID Connect in a browser here: Settings do not name the console's address \
                      (openid.console)";
        Refusal::new(ProblemCode::Unauthenticated, detail)
    })?;
    Ok((uid, settings, console))
}

fn nobody() -> Refusal {
    let detail = "nobody logs in by OpenID Connect here: Settings name no issuer (openid)";
    Refusal::new(ProblemCode::Unauthenticated, detail)
}

fn unreachable(error: &Unreachable) -> Refusal {
    Refusal::unavailable(error.to_string())
}

fn lacks(settings: &OpenIdSettings, endpoint: &str) -> Refusal {
    Refusal::unavailable(format!("the issuer {} names no {endpoint}: it has no code flow", settings.issuer))
}

fn back(console: &Url) -> String {
    format!("{}{BACK}", console.as_str().trim_end_matches('/'))
}

/// The host and port of a URL.
fn authority(url: &Url) -> &str {
    let (scheme, rest) = url.as_str().split_once("://").unwrap_or_default();
    let authority = rest.split('/').next().unwrap_or(rest);
    // Browsers leave the scheme's default port out.
    let own = if scheme == "https" { ":443" } else { ":80" };
    authority.strip_suffix(own).unwrap_or(authority)
}
