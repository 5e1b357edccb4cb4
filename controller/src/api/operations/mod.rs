//! One-time requests on a machine, which no spec can declare: power, recommission, script, rescue, abort.

pub(super) mod actions;
pub(super) mod many;
mod runs;

use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::{Flags, NoParameters, parameters};
use super::target::Target;
use super::{App, announce, body, objects};
use crate::driver::RequestedOperation;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use basalt_api::kinds::Machine;
use basalt_api::plan::PlanReport;
use basalt_api::values::OperationId;
use basalt_api::wire::{IDEMPOTENCY_HEADER, Operation, OperationList, OperationRequest, Verb};
use basalt_api::{FieldCode, FieldError, KindOf, Problem, ProblemCode};
use basalt_db::{Judge, Key, NewOperation, Object};
use basalt_engine::deadlines::{self, DeadlineId};
use basalt_engine::machine::Refused;
use std::time::Duration;

/// The number of operations in a list.
const MOST: i64 = 100;

/// The longest idempotency key, in bytes.
const KEY_BYTES: usize = 128;

/// One request, for one machine or for many.
struct Asked {
    operation: OperationRequest,
    request_key: Option<String>,
    dry_run: bool,
}

/// The result of a request.
enum Became {
    Accepted(Operation),
    /// It was a dry run.
    Tried(Object, PlanReport),
}

pub(super) async fn request(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    uri: Uri,
    headers: HeaderMap,
    sent: Bytes,
) -> Answer<Response> {
    let Flags { dry_run } = parameters(&uri)?;
    let operation = body::json(&sent)?;
    let request_key = idempotency_key(&headers)?.map(str::to_owned);
    match one(&app, &caller, target.key(), &Asked { operation, request_key, dry_run }).await? {
        Became::Accepted(operation) => Ok((StatusCode::ACCEPTED, Json(operation)).into_response()),
        Became::Tried(machine, plan) => objects::tried(machine, plan),
    }
}

/// Requests an operation of one machine, or does a dry run.
async fn one(app: &App, caller: &Caller, key: Key<'_>, asked: &Asked) -> Answer<Became> {
    let Asked { operation: asked, request_key, dry_run } = asked;
    let (dry_run, request_key) = (*dry_run, request_key.as_deref());
    let guards = caller.guards(dry_run);
    let machine = app.store().get(Machine::NAME, key).await?;
    if !dry_run && let Some(known) = known(app, &machine, request_key, asked).await? {
        return Ok(Became::Accepted(shown(&machine, known)));
    }
    let script = runs::script(app, &machine.name, asked).await?;
    let tests = runs::tests(app, &machine, asked).await?;
    let because = runs::because(asked)?;
    let requested = RequestedOperation { verb: asked.verb, script: script.as_ref(), tests: &tests };
    let lasts = match judged(app, &machine, requested).await {
        Ok(lasts) => lasts,
        // The first request with this key may itself be the present obstacle.
        Err(refusal) => {
            let known = known(app, &machine, request_key, asked).await?.filter(|_| !dry_run);
            return known.map(|known| Became::Accepted(shown(&machine, known))).ok_or(refusal);
        }
    };
    let judged = (dry_run, &guards as &dyn Judge);
    let new = NewOperation {
        verb: requested.verb,
        script: requested.script,
        tests: requested.tests,
        because,
        lasts,
        request_key,
    };
    let (machine, operation) = caller.store(app).request_operation(key, &new, judged).await?;
    if dry_run {
        let plan = announce::of_operation(app, &machine, requested).await?;
        return Ok(Became::Tried(machine, plan));
    }
    Ok(Became::Accepted(shown(&machine, operation)))
}

/// The refusal for a caller who may only see a machine.
fn only_looks(machine: &str, pool: Option<&str>) -> Refusal {
    let pool = pool.unwrap_or_default();
    let detail = format!(
        "Machine {machine:?} is of pool {pool:?}, where this token only looks: it needs the role operator for that pool"
    );
    Refusal::new(ProblemCode::Forbidden, detail)
}

pub(super) async fn list(
    State(app): State<App>,
    _: NoParameters,
    target: Target,
) -> Answer<Json<OperationList>> {
    let machine = target.object(&app).await?;
    let operations = app.store().operations(machine.uid.into(), MOST).await?;
    Ok(Json(OperationList { items: operations.into_iter().map(|it| shown(&machine, it)).collect() }))
}

pub(super) async fn read(
    State(app): State<App>,
    _: NoParameters,
    target: Target,
    Path((_, _, id)): Path<(String, String, String)>,
) -> Answer<Json<Operation>> {
    let id: OperationId = id.parse().map_err(|bad| Refusal::invalid(vec![FieldError::format("/id", bad)]))?;
    let machine = target.object(&app).await?;
    let operation = app.store().operation(machine.uid.into(), id).await?.ok_or_else(|| {
        let detail = format!("there is no operation {id} of Machine {:?}", machine.name);
        Refusal::new(ProblemCode::NotFound, detail)
    })?;
    Ok(Json(shown(&machine, operation)))
}

/// The idempotency key: a repeated request with the same key gets the first one's operation.
fn idempotency_key(headers: &HeaderMap) -> Answer<Option<&str>> {
    let Some(value) = headers.get(IDEMPOTENCY_HEADER) else { return Ok(None) };
    let key = value.to_str().unwrap_or_default();
    if (1..=KEY_BYTES).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(Some(key));
    }
    let message = format!("the {IDEMPOTENCY_HEADER} is not understood");
    Err(Refusal::field("", FieldCode::Format, message, "1 to 128 letters, digits and signs: a UUID"))
}

/// The operation of an earlier request with the same key. A renamed script, or other parameters, make another request.
async fn known(
    app: &App,
    machine: &Object,
    request_key: Option<&str>,
    asked: &OperationRequest,
) -> Answer<Option<basalt_db::Operation>> {
    let Some(request_key) = request_key else { return Ok(None) };
    let known = app.store().operation_under(machine.uid.into(), request_key).await?;
    let is_same = |known: &basalt_db::Operation| {
        let tests = || known.tests.iter().map(|test| &test.name);
        known.verb == asked.verb
            && runs::declared(known).map(|script| &script.name) == asked.script.as_ref()
            && (asked.tests.is_empty() || asked.tests.iter().eq(tests()))
            && (asked.verb != Verb::Test || gives_the_same(known, asked))
    };
    Ok(known.filter(is_same))
}

/// True if its tests have these parameters.
fn gives_the_same(known: &basalt_db::Operation, asked: &OperationRequest) -> bool {
    let arguments = || known.tests.iter().flat_map(|test| &test.arguments);
    asked.parameters.iter().all(|(name, value)| arguments().any(|it| *it == format!("--{name}={value}")))
}

/// The time that the operation may take, or the refusal. Before a driver runs, the default time is used, and the driver judges later.
async fn judged(app: &App, machine: &Object, requested: RequestedOperation<'_>) -> Answer<Duration> {
    let Some(machinery) = app.machinery() else {
        let usual = deadlines::spec(DeadlineId::Operation);
        return Ok(usual.map_or(Duration::from_secs(3600), |row| row.duration));
    };
    let verb = requested.verb;
    machinery.judge(machine, verb).await?.map_err(|Refused { code, message, fix }| {
        let sort = if code == "Locked" { ProblemCode::Locked } else { ProblemCode::Conflict };
        let error = FieldError::new("/verb", FieldCode::Rule, message.clone(), fix);
        Problem { errors: vec![error], ..Problem::new(sort, format!("{message}: {verb} is not done")) }.into()
    })
}

fn shown(machine: &Object, operation: basalt_db::Operation) -> Operation {
    Operation {
        id: operation.id,
        machine: machine.name.clone(),
        verb: operation.verb,
        script: runs::declared(&operation).map(|script| script.name.clone()),
        tests: operation.tests.iter().map(|test| test.name.clone()).collect(),
        state: operation.state,
        reason: operation.reason,
        message: operation.message,
        output: operation.output,
        requested_by: operation.requested_by,
        accepted_at: operation.requested_at,
        deadline: operation.deadline,
        begun_at: operation.begun_at,
        finished_at: operation.finished_at,
        path: format!("/api/v1/machines/uid:{}/operations/{}", machine.uid, operation.id),
    }
}
