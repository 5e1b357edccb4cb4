//! One operation on many machines. Each machine has its own transaction and its own result.

use super::{Asked, Became, one};
use crate::api::caller::Caller;
use crate::api::matching;
use crate::api::problem::{Answer, Refusal};
use crate::api::query::{self, Flags, parameters};
use crate::api::{App, body};
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use basalt_api::kinds::Machine;
use basalt_api::wire::{MAX_OPERATIONS, OperationResult, OperationsAnswer, OperationsRequest};
use basalt_api::{FieldCode, KindOf};
use basalt_db::{Key, ListQuery};
use futures_util::StreamExt;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Machines that are handled at a time.
const AT_ONCE: usize = 8;

/// The largest number of pages of machines that a filter examines.
const PAGES: usize = 10;

pub(in crate::api) async fn request(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    sent: Bytes,
) -> Answer<Json<OperationsAnswer>> {
    let Flags { dry_run } = parameters(&uri)?;
    let OperationsRequest { names, filter, operation } = body::json(&sent)?;
    super::runs::check(&operation)?;
    let request_key = super::idempotency_key(&headers)?.map(str::to_owned);
    let names = match (names, filter) {
        (names, None) if !names.is_empty() => distinct(names)?,
        (names, Some(filter)) if names.is_empty() => fitting(&app, &caller, &filter).await?,
        _ => {
            let message = "either names or where says which machines are meant";
            let hint = "names: [web1, web2], or where: zone:row-1";
            return Err(Refusal::field("/names", FieldCode::Required, message, hint));
        }
    };
    caller.declare(names.iter().map(|name| (Machine::KIND.name.to_owned(), name.clone())));
    let asked = Arc::new(Asked { operation, request_key, dry_run });
    let each = names.into_iter().map(|name| {
        let (app, caller, asked) = (app.clone(), caller.clone(), Arc::clone(&asked));
        Box::pin(async move { result(&app, &caller, name, &asked).await })
    });
    let items = futures_util::stream::iter(each).buffered(AT_ONCE).collect().await;
    Ok(Json(OperationsAnswer { items }))
}

/// The result for one machine.
async fn result(app: &App, caller: &Caller, machine: String, asked: &Asked) -> OperationResult {
    let became = match allowed(app, caller, &machine, asked.dry_run).await {
        Ok(key) => one(app, caller, key, asked).await,
        Err(refusal) => Err(refusal),
    };
    let nothing = OperationResult { machine, operation: None, plan: None, problem: None };
    match became {
        Ok(Became::Accepted(operation)) => {
            OperationResult { machine: operation.machine.clone(), operation: Some(operation), ..nothing }
        }
        Ok(Became::Tried(object, plan)) => {
            OperationResult { machine: object.name, plan: Some(plan), ..nothing }
        }
        Err(refusal) => OperationResult { problem: Some(refusal.into_problem()), ..nothing },
    }
}

/// The key of a machine. Refuses one that the caller must not see or change. For a path that names one machine, the guard checks this.
async fn allowed<'a>(app: &App, caller: &Caller, machine: &'a str, dry_run: bool) -> Answer<Key<'a>> {
    let (kind, rights) = (Machine::KIND, &caller.rights);
    let key = body::key(kind, machine)?;
    if rights.may_change(kind.name, None, dry_run) == Some(true) {
        return Ok(key);
    }
    let pool = app.store().pool_of(kind.name, key).await?.ok_or_else(|| Caller::unseen(kind, key))?;
    match rights.may_change(kind.name, pool.as_deref(), dry_run) {
        Some(true) => Ok(key),
        Some(false) => Err(super::only_looks(machine, pool.as_deref())),
        None => Err(Caller::unseen(kind, key)),
    }
}

/// The names in their order, without repetitions.
fn distinct(names: Vec<String>) -> Answer<Vec<String>> {
    let mut seen = BTreeSet::new();
    let names: Vec<String> = names.into_iter().filter(|name| seen.insert(name.clone())).collect();
    if names.len() <= MAX_OPERATIONS {
        return Ok(names);
    }
    let message = format!("{} machines are named", names.len());
    Err(Refusal::field(
        "/names",
        FieldCode::TooLarge,
        message,
        format!("at most {MAX_OPERATIONS} in one request"),
    ))
}

/// The names of the machines that match a filter and that the caller sees.
async fn fitting(app: &App, caller: &Caller, filter: &str) -> Answer<Vec<String>> {
    let kind = Machine::KIND;
    let filter = query::filter(kind, filter)?;
    let too_many = |message: String| {
        let hint =
            format!("at most {MAX_OPERATIONS} in one request: narrow it by name, zone, pool or a label");
        Refusal::field("/where", FieldCode::TooLarge, message, hint)
    };
    let pools = caller.rights.visible_pools().map(|pools| pools.into_iter().collect::<Vec<_>>());
    let (mut names, mut after) = (Vec::new(), None);
    for _ in 0..PAGES {
        let query = ListQuery {
            kind: kind.name,
            after: after.as_deref(),
            limit: i64::try_from(MAX_OPERATIONS).unwrap_or(i64::MAX),
            pools: pools.as_deref(),
            ..ListQuery::default()
        };
        let found = matching::page(app, &caller.rights, kind, &query, &filter).await?;
        names.extend(found.items.iter().map(|item| item.name().to_owned()));
        if names.len() > MAX_OPERATIONS || (names.len() == MAX_OPERATIONS && found.next.is_some()) {
            return Err(too_many(format!("more than {MAX_OPERATIONS} machines may fit this filter")));
        }
        match found.next {
            Some(next) => after = Some(next),
            None => return Ok(names),
        }
    }
    Err(too_many("the filter has to be tried on too many machines".to_owned()))
}
