//! Logging in with a password, for a session's token; and out.
//!
//! A wrong password, a user that is not there, one that is disabled and one without a password are answered alike, after the same
//! work: a hash is always computed. Tries are counted by address and by user, in each region process by itself.

use super::App;
use super::body;
use super::bucket::{Buckets, Limit};
use super::caller::Caller;
use super::guard::{Peer, bearer};
use super::problem::{Answer, Refusal};
use super::query::NoParameters;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode};
use basalt_api::wire::{LoginAnswer, LoginRequest};
use basalt_api::{Problem, ProblemCode};
use basalt_db::{Account, Actor, SealKey, StoreError, hash_password, verify_password};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

/// A person mistypes some times; a program tries thousands.
const BY_ADDRESS: Limit = Limit { burst: 20, every: Duration::from_secs(3) };

/// As tight as it can be without letting others lock a user out for long.
const BY_USER: Limit = Limit { burst: 10, every: Duration::from_secs(6) };

/// Hashes computed at once: each takes 19 MiB and a processor.
const HASHES: usize = 2;

/// Names and passwords are not longer.
const LONGEST: usize = 1024;

/// What guards logins.
#[derive(Debug)]
pub(super) struct Logins {
    start: Instant,
    by_address: Mutex<Buckets<String>>,
    by_user: Mutex<Buckets<String>>,
    hashes: Semaphore,
    /// Verified where there is no user: of a password that nobody knows.
    nobody: OnceLock<Zeroizing<String>>,
}

impl Default for Logins {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            by_address: Mutex::new(Buckets::new(BY_ADDRESS)),
            by_user: Mutex::new(Buckets::new(BY_USER)),
            hashes: Semaphore::new(HASHES),
            nobody: OnceLock::new(),
        }
    }
}

impl Logins {
    fn admit(&self, address: &str, user: &str) -> Answer<()> {
        let now = self.start.elapsed();
        let take = |buckets: &Mutex<Buckets<String>>, key: &str| {
            buckets.lock().unwrap_or_else(PoisonError::into_inner).take(now, key.to_owned())
        };
        take(&self.by_address, address).and_then(|()| take(&self.by_user, user)).map_err(|wait| {
            let seconds = wait.as_secs().saturating_add(1);
            let detail = format!("too many logins were tried; try again in {seconds} s");
            Refusal::from(Problem {
                retry_after: Some(seconds),
                ..Problem::new(ProblemCode::RateLimited, detail)
            })
        })
    }

    fn succeeded(&self, address: &str, user: &str) {
        for (buckets, key) in [(&self.by_address, address), (&self.by_user, user)] {
            buckets.lock().unwrap_or_else(PoisonError::into_inner).put_back(key);
        }
    }

    fn nobody(&self) -> Answer<Zeroizing<String>> {
        if let Some(hash) = self.nobody.get() {
            return Ok(hash.clone());
        }
        let hash = hash_password(fresh_token()?.as_bytes())?;
        Ok(self.nobody.get_or_init(|| hash).clone())
    }
}

/// A text that nobody guesses.
pub(super) fn fresh_token() -> Result<Zeroizing<String>, StoreError> {
    Ok(Zeroizing::new(format!("basalt_{}", hex::encode(SealKey::generate()?.as_slice()))))
}

pub(super) async fn login(
    State(app): State<App>,
    peer: ConnectInfo<Peer>,
    _: NoParameters,
    sent: Bytes,
) -> Answer<(StatusCode, Json<LoginAnswer>)> {
    let LoginRequest { user, password } = body::json(&sent).map_err(|_| malformed())?;
    let password = Zeroizing::new(password);
    if user.len() > LONGEST || password.len() > LONGEST || user.contains('\0') {
        return Err(malformed());
    }
    let address = peer.0.to_string();
    let logins = &app.0.logins;
    logins.admit(&address, &user)?;
    let account = app.store().account(&user).await?;
    let Some(account) = verified(&app, account, password).await? else {
        tracing::warn!(user, address, "a login was refused");
        return Err(Refusal::new(ProblemCode::Unauthenticated, "the user or the password is wrong"));
    };
    let actor = Actor {
        name: format!("user {user}"),
        address: address.clone(),
        request: "POST /api/v1/login".to_owned(),
    };
    let token = fresh_token()?;
    let expires_at = app.store().acting(Arc::new(actor)).open_session(&account, &token).await?;
    logins.succeeded(&address, &user);
    Ok((StatusCode::CREATED, Json(LoginAnswer { token: token.to_string(), expires_at })))
}

/// The body may hold a password: what is wrong with it is not shown.
fn malformed() -> Refusal {
    Refusal::field(
        "",
        basalt_api::FieldCode::Type,
        "the body is no login",
        "{\"user\": \"NAME\", \"password\": \"PASSWORD\"}, neither longer than 1024 bytes",
    )
}

/// The account, if the password is its own. The same work is done where there is none.
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
    caller: Caller,
    _: NoParameters,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    let token = bearer(&headers).unwrap_or_default();
    match caller.store(&app).close_session(token).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => {
            let detail = "this token is no session; `basalt token revoke NAME` ends an ApiToken";
            Err(Refusal::new(ProblemCode::NotFound, detail))
        }
    }
}
