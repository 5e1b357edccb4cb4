//! Logins with a password, which give a session's token; logouts; the caller's own identity; changes of passwords. A browser gets
//! the token as a [`cookie`].
//!
//! A wrong password, an unknown user, a disabled user and a user without a password get the same answer after the same work: a hash
//! is always computed. [`logins`](super::logins) counts tries.

use super::App;
use super::body;
use super::caller::Caller;
use super::cookie;
use super::guard::{Credential, Peer};
use super::logins::Tries;
use super::openid;
use super::patch;
use super::problem::{Answer, Refusal};
use super::query::{LoginParameters, NoParameters, parameters};
use super::rights::Grant;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use basalt_api::kinds::User;
use basalt_api::values::Timestamp;
use basalt_api::wire::{
    GrantedRole, KnownBy, LoginAnswer, LoginRequest, PasswordLogin, PasswordRequest, TokenLogin, WhoAmI,
};
use basalt_api::{FieldCode, KindOf, ProblemCode};
use basalt_db::{
    Account, Actor, Bearer, Key, Object, Precondition, Put, RestsOn, SealKey, StoreError, hash_password,
    verify_password,
};
use serde_json::{Map, Value, json};
use std::sync::{Arc, OnceLock};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

/// The number of hashes that are computed at once: each takes 19 MiB and one CPU.
const HASHES: usize = 2;

/// The longest name and the longest password, in bytes.
const LONGEST: usize = 1024;

/// The limits of logins.
#[derive(Debug)]
pub(super) struct Logins {
    pub(super) tries: Tries,
    hashes: Semaphore,
    /// The hash that is verified if there is no such user; nobody knows its password.
    nobody: OnceLock<Zeroizing<String>>,
}

impl Default for Logins {
    fn default() -> Self {
        Self { tries: Tries::default(), hashes: Semaphore::new(HASHES), nobody: OnceLock::new() }
    }
}

impl Logins {
    fn nobody(&self) -> Answer<Zeroizing<String>> {
        if let Some(hash) = self.nobody.get() {
            return Ok(hash.clone());
        }
        let hash = hash_password(fresh_token()?.as_bytes())?;
        Ok(self.nobody.get_or_init(|| hash).clone())
    }
}

/// The actor of a login, for the audit log.
pub(crate) fn logging_in(user: &str, address: &str) -> Actor {
    Actor {
        name: format!("user {user}"),
        address: address.to_owned(),
        request: "POST /api/v1/login".to_owned(),
    }
}

/// A random token.
pub(crate) fn fresh_token() -> Result<Zeroizing<String>, StoreError> {
    Ok(Zeroizing::new(format!("basalt_{}", hex::encode(SealKey::generate()?.as_slice()))))
}

/// A login that succeeded.
#[derive(Debug)]
pub(super) struct LoggedIn {
    pub(super) token: Zeroizing<String>,
    /// When the token expires; `None` for a token without an end.
    pub(super) expires_at: Option<Timestamp>,
}

pub(super) async fn login(
    State(app): State<App>,
    peer: ConnectInfo<Peer>,
    uri: Uri,
    headers: HeaderMap,
    sent: Bytes,
) -> Answer<Response> {
    let LoginParameters { cookie } = parameters(&uri)?;
    // Another site must not be able to log a browser in to a session of that site's choice.
    if cookie {
        cookie::same_origin(&headers)?;
    }
    let address = peer.0.to_string();
    let LoggedIn { token, expires_at } = match body::json(&sent).map_err(|_| malformed())? {
        LoginRequest::Password(login) => password(&app, &address, login).await?,
        LoginRequest::OpenId(login) => openid::by_token(&app, &address, &login).await?,
        LoginRequest::Code(login) if cookie => openid::by_code(&app, peer.0, &headers, &login).await?,
        LoginRequest::Token(login) if cookie => by_token(&app, &address, login).await?,
        LoginRequest::Token(_) | LoginRequest::Code(_) => {
            let message = "a token or a code is exchanged for a cookie alone, and cookie is not true";
            return Err(Refusal::field("/cookie", FieldCode::Rule, message, "?cookie=true"));
        }
    };
    match expires_at {
        until if cookie => {
            let given = cookie::given(peer.0, &token, until)?;
            Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, given)]).into_response())
        }
        Some(expires_at) => {
            let answer = LoginAnswer { token: token.to_string(), expires_at };
            Ok((StatusCode::CREATED, Json(answer)).into_response())
        }
        None => Err(Refusal::new(ProblemCode::Internal, "the session has no end")),
    }
}

async fn password(app: &App, address: &str, login: PasswordLogin) -> Answer<LoggedIn> {
    let (user, password) = (login.user, Zeroizing::new(login.password));
    if user.len() > LONGEST || password.len() > LONGEST || user.contains('\0') {
        return Err(malformed());
    }
    let logins = &app.0.logins;
    logins.tries.admit(address, &user).await?;
    let account = app.store().account(&user).await?;
    let Some(account) = verified(app, account, password).await? else {
        tracing::warn!(user, address, "a login was refused");
        return Err(Refusal::new(ProblemCode::Unauthenticated, "the user or the password is wrong"));
    };
    let actor = logging_in(&user, address);
    let token = fresh_token()?;
    let expires_at = app
        .store()
        .acting(Arc::new(actor))
        .open_session(account.uid, &RestsOn::Password(account.revision), &token)
        .await?;
    logins.tries.succeeded(address, &user);
    Ok(LoggedIn { token, expires_at: Some(expires_at) })
}

/// A login with an existing token: no session begins, the token only becomes a cookie.
async fn by_token(app: &App, address: &str, login: TokenLogin) -> Answer<LoggedIn> {
    app.0.logins.tries.admit_address(address)?;
    let token = Zeroizing::new(login.token);
    let Some(holder) = app.store().holder(&token).await? else {
        tracing::warn!(address, "a login with a token was refused");
        return Err(Refusal::new(
            ProblemCode::Unauthenticated,
            "this token is not known, or its time is over",
        ));
    };
    app.0.logins.tries.came_in(address);
    Ok(LoggedIn { token, expires_at: holder.bearer.until })
}

/// The refusal of a malformed body. It shows nothing of the body, which may hold a password.
fn malformed() -> Refusal {
    let hint = "{\"user\": \"NAME\", \"password\": \"PASSWORD\"}, neither longer than 1024 bytes; or {\"id_token\": \"…\", \"nonce\": \"…\"}; or \
                {\"token\": \"TOKEN\"} for a cookie";
    Refusal::field("", FieldCode::Type, "the body is no login", hint)
}

/// Returns the account if the password is right. Without an account, the same work is done.
async fn verified(
    app: &App,
    account: Option<Account>,
    password: Zeroizing<String>,
) -> Answer<Option<Account>> {
    let logins = &app.0.logins;
    let closed = |_| Refusal::unavailable("the region is stopping; try again");
    let _turn = logins.hashes.acquire().await.map_err(closed)?;
    let hash = match &account {
        Some(account) => account.hash.clone(),
        None => logins.nobody()?,
    };
    let checked = tokio::task::spawn_blocking(move || verify_password(password.as_bytes(), &hash)).await;
    let is_right = checked.map_err(|error| Refusal::new(ProblemCode::Internal, error.to_string()))?;
    Ok(account.filter(|_| is_right))
}

pub(super) async fn logout(
    State(app): State<App>,
    peer: ConnectInfo<Peer>,
    caller: Caller,
    _: NoParameters,
    headers: HeaderMap,
) -> Answer<Response> {
    let credential = Credential::of(peer.0, &headers);
    let token = credential.map(Credential::token).unwrap_or_default();
    let has_ended = caller.store(&app).close_session(token).await?;
    if let Some(Credential::Cookie(_)) = credential {
        // An ApiToken in a cookie stays valid elsewhere.
        return Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie::taken(peer.0)?)]).into_response());
    }
    match has_ended {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => {
            let detail = "this token is no session; `basalt token revoke NAME` ends an ApiToken";
            Err(Refusal::new(ProblemCode::NotFound, detail))
        }
    }
}

/// Changes the caller's own password and opens a session with it. All other sessions end with the former password.
pub(super) async fn change_password(
    State(app): State<App>,
    peer: ConnectInfo<Peer>,
    caller: Caller,
    _: NoParameters,
    headers: HeaderMap,
    sent: Bytes,
) -> Answer<Response> {
    let changed: PasswordRequest = body::json(&sent).map_err(|_| no_change())?;
    let (present, fresh) = (Zeroizing::new(changed.present), Zeroizing::new(changed.password));
    if present.len() > LONGEST {
        return Err(no_change());
    }
    let errors = basalt_api::validate(User::KIND, &json!({"password": fresh.as_str()}));
    if !errors.is_empty() {
        return Err(Refusal::invalid(errors));
    }
    let (Some(Bearer { is_session: true, name, .. }), Some(uid)) = (&caller.bearer, caller.rests_on.first())
    else {
        let detail = "a password is changed in a session of its user: `basalt login NAME` opens one";
        return Err(Refusal::new(ProblemCode::Forbidden, detail));
    };
    let logins = &app.0.logins;
    logins.tries.admit(&caller.actor.address, name).await?;
    // Read before the password is verified: a concurrent change of the password then changes the generation.
    let before = app.store().get(User::KIND.name, Key::Uid(*uid)).await?;
    let account = app.store().account(&before.name).await?.filter(|account| account.uid == *uid);
    if account.is_none() {
        let detail = "this user has no password to change: whoever declares it can give it one";
        return Err(Refusal::new(ProblemCode::Forbidden, detail));
    }
    if verified(&app, account, present.clone()).await?.is_none() {
        tracing::warn!(user = name, address = caller.actor.address, "a change of password was refused");
        return Err(Refusal::new(ProblemCode::Forbidden, "the present password is another one"));
    }
    logins.tries.succeeded(&caller.actor.address, name);
    if present == fresh {
        let message = "this is the present password";
        return Err(Refusal::field("/password", FieldCode::Rule, message, "another one"));
    }
    let patch = Map::from_iter([("password".to_owned(), Value::String(fresh.to_string()))]);
    let (text, _) = patch::merged(User::KIND, &before, &patch)?;
    let store = caller.store(&app);
    let put = Put {
        kind: User::KIND,
        key: Key::Uid(*uid),
        spec: &text,
        at: "/spec",
        labels: None,
        manager: None,
        adopt: false,
        precondition: Precondition::Generation(before.generation),
        first_status: &json!({}),
    };
    let written = store.put(&put).await?.object;
    let token = fresh_token()?;
    let expires_at =
        store.open_session(*uid, &RestsOn::Password(password_revision(&written)?), &token).await?;
    if let Some(Credential::Cookie(_)) = Credential::of(peer.0, &headers) {
        let given = cookie::given(peer.0, &token, Some(expires_at))?;
        return Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, given)]).into_response());
    }
    Ok((StatusCode::CREATED, Json(LoginAnswer { token: token.to_string(), expires_at })).into_response())
}

/// The refusal of a malformed body. Like that of a login, it shows nothing of the body.
fn no_change() -> Refusal {
    let hint = "{\"present\": \"PASSWORD\", \"password\": \"THE NEXT ONE\"}, neither longer than 1024 bytes";
    Refusal::field("", FieldCode::Type, "the body is no change of a password", hint)
}

/// The revision of a user's password, from the read form of the spec.
fn password_revision(user: &Object) -> Answer<i64> {
    let read: Value = serde_json::from_str(user.spec.get()).unwrap_or_default();
    read.pointer("/password/revision")
        .and_then(Value::as_i64)
        .ok_or_else(|| Refusal::new(ProblemCode::Internal, "the new password has no revision"))
}

pub(super) async fn whoami(caller: Caller, _: NoParameters) -> Json<WhoAmI> {
    let uid = caller.rests_on.first().copied();
    let (by, name, user, expires_at) = match caller.bearer {
        None => (KnownBy::Socket, None, None, None),
        Some(Bearer { is_session, name, user, until }) => {
            (if is_session { KnownBy::Session } else { KnownBy::Token }, Some(name), user, until)
        }
    };
    let grant = |grant: &Grant| {
        let pools = grant.pools.as_ref().map(|pools| pools.iter().cloned().collect());
        GrantedRole { role: grant.role, pools }
    };
    Json(WhoAmI {
        actor: caller.actor.name.clone(),
        by,
        name,
        uid,
        user,
        roles: caller.rights.grants().iter().map(grant).collect(),
        scopes: caller.scopes.words().to_vec(),
        expires_at,
    })
}
