//! `/agent/v1`: the requests and reports of the agent in the ephemeral environment. Over TLS only.
//!
//! | call | needs | durable before the answer |
//! | --- | --- | --- |
//! | `POST claim` | a boot token | the claim, and its fact |
//! | `GET task` | a session | |
//! | `POST progress`, `log` | a session | |
//! | `POST bmc` | a session | an account's sealed password |
//! | `POST checkpoint` | a session | the checkpoint, and its fact |
//! | `POST result` | a session | the result's fact, then the end of the attempt |
//!
//! The table in [`attempts`](crate::attempts) decides which claims and sessions are accepted. After an attempt has
//! finished, its session may repeat its result and send the rest of its log, even if the boot concern has dropped the
//! attempt. Everything else is 410.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use basalt_api::agent::{
    BmcAccount, BmcDriver, CHECKPOINT_BYTES, Checkpoint, ClaimReply, ClaimRequest, Progress, TaskResult,
};
use basalt_api::values::{UntrustedMessage, UntrustedName};
use basalt_dhcp::Mac;
use basalt_proto::rack_v1::{
    AgentBmcAccount, AgentCheckpoint, AgentClaim, AgentProgress, AgentResult, fact::Body,
};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

use super::{Ends, Problem, Web};
use crate::attempts::{AttemptId, ClaimDecision, Claimant, Over, Refusal};
use crate::boot::{Armed, BootTable};
use crate::facts::About;
use crate::token::{BootToken, Session, boot_id_digest, report};

/// The most bytes of a claim or a progress report.
const SMALL: usize = 16 << 10;
/// The most bytes of a piece of log.
const LOG: usize = 256 << 10;
/// A sealed password of 20 bytes has 68.
const SEALED: usize = 128;
/// The most passwords that a task may store. An agent tries four forms of passwords by each of two protocols.
const ACCOUNTS: u32 = 16;
/// The most bytes of all checkpoints of an attempt.
const CHECKPOINTS: usize = 16 << 20;
/// A result with its inventory.
const RESULT: usize = 2 << 20;
/// The most bytes of a result of an undeclared machine: any host on a machine network can send one.
const STRANGER: usize = 256 << 10;
/// The most bytes of a boot id.
const MAX_BOOT_ID: usize = 128;

/// The routes, for nesting.
pub(super) fn router() -> Router<Arc<Web>> {
    Router::new()
        .route("/claim", post(claim).layer(DefaultBodyLimit::max(SMALL)))
        .route("/task", get(task))
        .route("/progress", post(progress).layer(DefaultBodyLimit::max(SMALL)))
        .route("/bmc", post(bmc).layer(DefaultBodyLimit::max(SMALL)))
        .route("/checkpoint", post(checkpoint).layer(DefaultBodyLimit::max(CHECKPOINT_BYTES)))
        .route("/log", post(log).layer(DefaultBodyLimit::max(LOG)))
        .route("/result", post(result).layer(DefaultBodyLimit::max(RESULT)))
        .layer(axum::middleware::from_fn(tls_only))
}

async fn tls_only(
    Extension(ends): Extension<Ends>,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    if ends.tls {
        return next.run(request).await;
    }
    Problem::new(StatusCode::FORBIDDEN, "tls_required", "the agent API is served over TLS only")
        .into_response()
}

async fn claim(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    Json(request): Json<ClaimRequest>,
) -> Result<Response, Problem> {
    let unauthorized = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "bad_token", detail);
    let mac: Mac = request.mac.parse().map_err(|error: basalt_dhcp::BadMac| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid", error.to_string())
    })?;
    if request.boot_id.is_empty() || request.boot_id.len() > MAX_BOOT_ID {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid",
            format!("boot_id must have 1 to {MAX_BOOT_ID} bytes"),
        ));
    }
    let token = BootToken::peek(&request.token).map_err(|error| unauthorized(&error.to_string()))?;
    if token.mac != mac {
        return Err(unauthorized("the boot token is of another MAC"));
    }
    let table = web.boot.borrow().clone().unwrap_or_default();
    let armed = table
        .ephemeral(mac, ends.peer.ip())
        .filter(|armed| armed.boot.attempt == token.attempt)
        .ok_or_else(gone)?;
    let token = BootToken::verify(&request.token, &armed.boot.attempt_key)
        .map_err(|error| unauthorized(&error.to_string()))?;
    let clock = web.facts.clock();
    let now = clock.unix_now();
    let claimant = Claimant {
        boot: token.boot,
        boot_id: boot_id_digest(&request.boot_id),
        address: ends.peer.ip(),
        expired: i64::try_from(token.expires_unix_ms).unwrap_or(i64::MAX) <= now,
        leased: web.presence.address(mac, ends.peer.ip(), clock.now()),
    };
    let (attempts, id) = (Arc::clone(&web.attempts), armed.id.clone());
    let decided = blocking(move || attempts.claim(&id, &claimant)).await?;
    let about = About::attempt(mac, &armed);
    let peer = ends.peer.ip();
    match decided {
        ClaimDecision::Granted | ClaimDecision::Repeated => {
            if decided == ClaimDecision::Granted {
                tracing::info!(machine = %about.machine_uid, attempt = about.attempt, %peer, "attempt claimed");
            }
            let first = &armed.boot.claimed_by;
            let elsewhere = !first.is_empty() && *first != request.boot_id;
            // Also for a repeat: the first request may have ended between the register and the spool.
            let fact =
                about.saw(Body::Claim(AgentClaim { address: peer.to_string(), boot_id: request.boot_id }));
            web.facts.record(fact).await.map_err(|error| Problem::disk(&error))?;
            let session =
                Session { attempt: token.attempt, mac, boot: token.boot, boot_id: claimant.boot_id };
            let reply = ClaimReply {
                session: session.key(&armed.boot.attempt_key),
                attempt: token.attempt,
                machine_uid: armed.machine.map(|machine| machine.machine_uid.clone()),
                now_unix_ms: now,
                again: elsewhere || web.attempts.is_claimed_again(&armed.id),
                checkpoint: latest_checkpoint(&web, &armed),
            };
            Ok(Json(reply).into_response())
        }
        ClaimDecision::Refused(refusal) => Err(refused(refusal)),
        ClaimDecision::RefusedLoudly(refusal) => {
            let message = format!("a claim from {peer} was refused: {refusal}");
            tracing::warn!(machine = %about.machine_uid, attempt = about.attempt, %peer, %refusal, "claim refused");
            web.facts.tell(about.alarm(refusal.code(), &message));
            Err(refused(refusal))
        }
        ClaimDecision::Fence => {
            let message = format!(
                "begun from two places, the second time from {peer}: nobody may go on with the attempt"
            );
            tracing::error!(machine = %about.machine_uid, attempt = about.attempt, %peer, "attempt claimed from two places; fenced");
            web.facts
                .record(about.alarm("claimed_twice", &message))
                .await
                .map_err(|error| Problem::disk(&error))?;
            Err(refused(Refusal::Fenced))
        }
    }
}

/// The latest checkpoint: of this rack's register, or from a region, which has those of all racks.
fn latest_checkpoint(web: &Web, armed: &Armed<'_>) -> Option<Box<Checkpoint>> {
    let own = web.attempts.checkpoint(&armed.id);
    let told = serde_json::from_slice::<Box<Checkpoint>>(&armed.boot.checkpoint).ok();
    own.into_iter().chain(told).max_by_key(|checkpoint| checkpoint.seq)
}

/// Stores a checkpoint for the next boot, which another rack may serve: so the regions get it too.
async fn checkpoint(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let invalid = |detail: String| Problem::new(StatusCode::BAD_REQUEST, "invalid", detail);
    let checkpoint = serde_json::from_slice::<Box<Checkpoint>>(&body);
    let checkpoint = checkpoint.map_err(|error| invalid(error.to_string()))?;
    let caller = Caller::identify(&web, &ends, &headers).await?;
    let Caller::Live { id, about, .. } = &caller else { return Err(refused(Refusal::Finished)) };
    if web.attempts.over(id) == Some(Over::Finished) {
        return Err(refused(Refusal::Finished));
    }
    // Its task has no scripts.
    only_declared(about, "checkpoints")?;
    if !web.attempts.may_write_checkpoint(id, body.len(), CHECKPOINTS) {
        let detail = format!("the checkpoints of the task have more than {CHECKPOINTS} bytes");
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many", detail));
    }
    let fact = about.saw(Body::Checkpoint(AgentCheckpoint { json: body.to_vec() }));
    web.facts.record(fact).await.map_err(|error| Problem::disk(&error))?;
    let (attempts, id) = (Arc::clone(&web.attempts), id.clone());
    blocking(move || attempts.write_checkpoint(&id, checkpoint)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn task(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let caller = Caller::identify(&web, &ends, &headers).await?;
    let Caller::Live { table, mac, .. } = &caller else { return Err(refused(Refusal::Finished)) };
    let armed = table.ephemeral(*mac, ends.peer.ip()).ok_or_else(gone)?;
    if web.attempts.over(&armed.id) == Some(Over::Finished) {
        return Err(refused(Refusal::Finished));
    }
    if armed.boot.not_after_unix_ms <= web.facts.clock().unix_now() {
        return Err(refused(Refusal::Expired));
    }
    Ok(([(header::CONTENT_TYPE, "application/json")], armed.boot.task_json.clone()).into_response())
}

async fn progress(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    headers: HeaderMap,
    Json(progress): Json<Progress>,
) -> Result<StatusCode, Problem> {
    let caller = Caller::identify(&web, &ends, &headers).await?;
    if web.attempts.is_new_progress(caller.id(), progress.seq) {
        let Progress { seq, stage, percent, message } = progress;
        let (stage, message) = (UntrustedName::from(stage), UntrustedMessage::from(message));
        let about = caller.about();
        tracing::info!(machine = %about.machine_uid, attempt = about.attempt, %stage, percent, %message, "agent progress");
        web.facts.tell(about.saw(Body::Progress(AgentProgress {
            seq,
            stage: stage.into(),
            percent: percent.into(),
            message: message.into(),
        })));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The query of `log`.
#[derive(Debug, Deserialize)]
struct Offset {
    offset: u64,
}

async fn log(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    headers: HeaderMap,
    Query(Offset { offset }): Query<Offset>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let caller = Caller::identify(&web, &ends, &headers).await?;
    let known = web.attempts.known_log_bytes(caller.id(), offset, body.len() as u64);
    let new = usize::try_from(known).ok().and_then(|known| body.get(known..)).unwrap_or_default();
    web.logs.agent(caller.about(), ends.peer.ip(), new);
    Ok(StatusCode::NO_CONTENT)
}

/// Stores a password before the BMC gets it: if the machine dies in between, the password is not lost.
async fn bmc(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    headers: HeaderMap,
    Json(account): Json<BmcAccount>,
) -> Result<StatusCode, Problem> {
    let invalid = |detail: String| Problem::new(StatusCode::BAD_REQUEST, "invalid", detail);
    let caller = Caller::identify(&web, &ends, &headers).await?;
    let Caller::Live { id, about, .. } = &caller else { return Err(refused(Refusal::Finished)) };
    if web.attempts.over(id) == Some(Over::Finished) {
        return Err(refused(Refusal::Finished));
    }
    // Its task makes no account.
    only_declared(about, "passwords of its BMC")?;
    let sealed = hex::decode(&account.password).map_err(|error| invalid(error.to_string()))?;
    if sealed.len() > SEALED {
        return Err(invalid(format!(
            "the sealed password has {} bytes, and may have {SEALED}",
            sealed.len()
        )));
    }
    if !web.attempts.may_write_account(id, ACCOUNTS) {
        let detail = format!("the task has had {ACCOUNTS} passwords written down, and gets no more");
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many", detail));
    }
    let driver = match account.driver {
        BmcDriver::Ipmi => "ipmi",
        BmcDriver::Redfish => "redfish",
    };
    let body = AgentBmcAccount { user: account.user, driver: driver.to_owned(), sealed };
    web.facts.record(about.saw(Body::BmcAccount(body))).await.map_err(|error| Problem::disk(&error))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn result(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let invalid = |detail: String| Problem::new(StatusCode::BAD_REQUEST, "invalid", detail);
    let result: TaskResult = serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))?;
    let caller = Caller::identify(&web, &ends, &headers).await?;
    if result.attempt != caller.id().attempt {
        return Err(invalid(format!(
            "the result is of attempt {}, the session of {}",
            result.attempt,
            caller.id().attempt
        )));
    }
    let Caller::Live { table, mac, id, about, key } = &caller else { return Ok(StatusCode::NO_CONTENT) };
    if web.attempts.over(id) == Some(Over::Finished) {
        return Ok(StatusCode::NO_CONTENT);
    }
    let armed = table.ephemeral(*mac, ends.peer.ip()).ok_or_else(gone)?;
    if armed.machine.is_none() && body.len() > STRANGER {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the result has {} bytes; that of an undeclared machine may have {STRANGER}", body.len()),
        ));
    }
    let report = report::mint(&armed.boot.attempt_key, id.attempt, &about.machine_uid);
    web.facts
        .record(
            about.saw(Body::Result(AgentResult { json: body.to_vec(), address: ends.peer.ip().to_string() })),
        )
        .await
        .map_err(|error| Problem::disk(&error))?;
    let (attempts, id, key) = (Arc::clone(&web.attempts), id.clone(), key.clone());
    blocking(move || attempts.finish(&id, &key, &report)).await?;
    if armed.machine.is_none() {
        let found = result.inventory.iter().flat_map(|it| &it.nics).filter_map(|nic| nic.mac.parse().ok());
        let now = web.facts.clock().now();
        web.strangers.end(*mac, found, now);
    }
    tracing::info!(machine = %about.machine_uid, attempt = about.attempt, outcome = ?result.outcome, "task finished");
    Ok(StatusCode::NO_CONTENT)
}

/// The session that a request belongs to.
enum Caller {
    /// A session of an attempt in the boot concern.
    Live { table: Arc<BootTable>, mac: Mac, id: AttemptId, about: About, key: String },
    /// A session whose result has arrived, of an attempt that the boot concern has dropped.
    Past { id: AttemptId, about: About },
}

impl Caller {
    async fn identify(web: &Web, ends: &Ends, headers: &HeaderMap) -> Result<Self, Problem> {
        let unauthorized = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "bad_session", detail);
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let key = value
            .and_then(|value| value.strip_prefix("Bearer "))
            .ok_or_else(|| unauthorized("claim first"))?;
        let session = Session::peek(key).map_err(|error| unauthorized(&error.to_string()))?;
        let table = web.boot.borrow().clone().unwrap_or_default();
        let mac = session.mac;
        let armed = table.ephemeral(mac, ends.peer.ip());
        let Some(armed) = armed.filter(|armed| armed.boot.attempt == session.attempt) else {
            let id = web.attempts.finished_by(key).ok_or_else(gone)?;
            let about = About { attempt: id.attempt, ..About::mac(mac, Some(&table)) };
            return Ok(Self::Past { id, about });
        };
        Session::verify(key, &armed.boot.attempt_key).map_err(|error| unauthorized(&error.to_string()))?;
        let (id, about) = (armed.id.clone(), About::attempt(mac, &armed));
        web.strangers.heard(mac, web.facts.clock().now());
        let (attempts, of) = (Arc::clone(&web.attempts), id.clone());
        blocking(move || attempts.session(&of, &session)).await?.map_err(refused)?;
        Ok(Self::Live { table: Arc::clone(&table), mac, id, about, key: key.to_owned() })
    }

    fn id(&self) -> &AttemptId {
        match self {
            Self::Live { id, .. } | Self::Past { id, .. } => id,
        }
    }

    fn about(&self) -> &About {
        match self {
            Self::Live { about, .. } | Self::Past { about, .. } => about,
        }
    }
}

fn refused(refusal: Refusal) -> Problem {
    let status = match refusal {
        Refusal::Finished | Refusal::Expired => StatusCode::GONE,
        Refusal::Address => StatusCode::FORBIDDEN,
        Refusal::Fenced | Refusal::Taken | Refusal::Outdated => StatusCode::CONFLICT,
    };
    Problem::new(status, refusal.code(), refusal.to_string())
}

/// Refuses this data from an undeclared machine: any host on a machine network could send it.
fn only_declared(about: &About, data: &str) -> Result<(), Problem> {
    if !about.machine_uid.is_empty() {
        return Ok(());
    }
    let detail = format!("the task of an undeclared machine stores no {data}");
    Err(Problem::new(StatusCode::FORBIDDEN, "undeclared", detail))
}

fn gone() -> Problem {
    Problem::new(
        StatusCode::GONE,
        "no_attempt",
        "this attempt is not, or no longer, what this machine is to do",
    )
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Problem::disk(&error)),
        Err(error) => Err(Problem::disk(&error)),
    }
}
