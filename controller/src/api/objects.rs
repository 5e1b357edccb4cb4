//! Handlers for objects of all kinds: list, read, write, delete, rename.

use super::App;
use super::announce;
use super::body::{self, Written};
use super::caller::Caller;
use super::guards::OwnerGuards;
use super::matching::{self, Found};
use super::names::{self, Names};
use super::problem::{Answer, Refusal};
use super::query::{
    self, DeleteParameters, Flags, ListParameters, ReadParameters, RenameParameters, parameters,
};
use super::render::{self, Rendered};
use super::rights::{POOLED, Rights};
use super::target::Target;
use super::waiting::WaitsFor;
use super::{receivers, runs, serving, utilisation, wait, webhooks};
use crate::driver::Choices;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use basalt_api::filter::Narrowing;
use basalt_api::plan::{Advisory, Consequences, PlanReport};
use basalt_api::wire::{ApplyAction, RenameRequest};
use basalt_api::{FieldCode, Kind, ProblemCode};
use basalt_db::{Batch, Deletion, Judge, Key, ListQuery, Object, Overlay, Put, Removal, StoreError, Stored};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// [`basalt_api::wire::ObjectList`].
#[derive(Serialize)]
struct List {
    items: Vec<Value>,
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    position: String,
}

/// [`basalt_api::wire::ObjectList`] of whole objects.
#[derive(Serialize)]
struct WholeList {
    items: Vec<Rendered>,
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    position: String,
}

/// [`basalt_api::wire::DryRun`].
#[derive(Serialize)]
struct DryRun {
    object: Rendered,
    plan: PlanReport,
    #[serde(skip_serializing_if = "Consequences::is_empty")]
    consequences: Consequences,
    advisories: Vec<Advisory>,
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(plural): Path<String>,
    uri: Uri,
) -> Answer<Response> {
    let kind = body::kind(&plural)?;
    let parameters: ListParameters = parameters(&uri)?;
    let limit = query::limit(parameters.limit)?;
    // The position is from before the list and before the caller's rights were read: both contain everything up to it.
    let position = format!("{}:{}", app.store().incarnation(), caller.as_of);
    let pools = caller.rights.visible_pools().map(|pools| pools.into_iter().collect::<Vec<_>>());
    let query = ListQuery {
        kind: kind.name,
        after: parameters.after.as_deref(),
        limit,
        labels: parameters.labels()?,
        text: parameters.q.as_deref(),
        pools: pools.as_deref(),
        narrowing: Narrowing::default(),
    };
    if let Some(fields) = &parameters.fields {
        query::fields(&[kind], fields)?;
    }
    let Found { mut items, next } = match parameters.filter(kind)? {
        Some(filter) => matching::page(&app, &caller.rights, kind, &query, &filter).await?,
        None => {
            let page = app.store().list(&query).await?;
            Found { items: shown_all(&app, &caller.rights, page.objects).await?, next: page.next }
        }
    };
    if parameters.layers {
        let mut layers = app.store().layers_of(items.iter().map(Rendered::uid)).await?;
        items = items.into_iter().map(|item| item.layered(&mut layers)).collect();
    }
    if let Some(text) = parameters.q.as_deref().filter(|_| pools.is_some()) {
        items = saying(&app, &caller.rights, kind, items, text).await?;
    }
    let Some(fields) = &parameters.fields else {
        return Ok(axum::Json(WholeList { items, next, position }).into_response());
    };
    let items = items.iter().map(|i| i.only(fields)).collect::<Answer<_>>()?;
    Ok(axum::Json(List { items, next, position }).into_response())
}

/// The items with the text in a part that the caller may read. The search has also matched names that are hidden from the caller.
async fn saying(
    app: &App,
    rights: &Rights,
    kind: &'static Kind,
    items: Vec<Rendered>,
    text: &str,
) -> Answer<Vec<Rendered>> {
    let wanted = Value::from(text.to_lowercase()).to_string();
    let wanted = wanted.trim_matches('"');
    let sees = |pool: Option<&str>| rights.over(pool).is_some();
    let mut kept = Vec::with_capacity(items.len());
    for item in items {
        let mut shown = item.text()?;
        if names::may_name(Some(kind), &shown) {
            let names = Names::of(app.store(), Some(kind), &shown).await?;
            shown = names.reworded(&sees, &|_| false).unwrap_or(shown);
        }
        if shown.to_lowercase().contains(wanted) {
            kept.push(item);
        }
    }
    Ok(kept)
}

pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    uri: Uri,
) -> Answer<Response> {
    let (kind, key) = (target.kind, target.key());
    let parameters: ReadParameters = parameters(&uri)?;
    let object = match &parameters.wait {
        Some(condition) => {
            let _place = app.rooms().waits.take(&caller)?;
            wait::until(&app, kind, key, condition, &parameters).await?
        }
        None => app.store().get(kind.name, key).await?,
    };
    caller.sees(&app, kind, Key::Uid(object.uid)).await?;
    Ok(rendered(&app, &caller.rights, object).await?.answer(StatusCode::OK))
}

pub(super) async fn write(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Response> {
    let (kind, key) = (target.kind, target.key());
    let flags: Flags = parameters(&uri)?;
    let precondition = body::precondition(&headers)?;
    let manager = body::manager(&headers)?;
    let run = runs::of(&headers, &caller)?;
    let by_name = match key {
        Key::Name(name) => Some(name),
        Key::Uid(_) => None,
    };
    let Written { text, value, metadata } = body::written(kind, by_name, &body)?;
    if !kind.declarable {
        enrolled(&app, kind, key).await?;
    }
    let now = app.store().now().await?;
    let put = Put {
        kind,
        key,
        spec: &text,
        at: "/spec",
        labels: metadata.labels.as_ref(),
        manager: manager.as_deref(),
        adopt: true,
        precondition,
        first_status: &render::first_status(kind.name, now),
    };
    let guards = caller.guards(flags.dry_run);
    let batch = Batch { puts: &[put], prune: None, dry_run: flags.dry_run, judge: &guards, allocation: None };
    let store = caller.store(&app);
    let store = run.map_or_else(|| store.clone(), |run| store.creating_for(run));
    let mut written = store.write(&batch).await?;
    let stored = written.stored.pop().ok_or_else(|| {
        Refusal::new(ProblemCode::Internal, "the store did not say what became of the spec")
    })?;
    if flags.dry_run {
        return dry_run(&app, &caller.rights, stored, &value).await;
    }
    let status = if stored.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(rendered(&app, &caller.rights, stored.object).await?.answer(status))
}

/// Objects of kinds that enrol themselves can be changed, but not created.
pub(super) async fn enrolled(app: &App, kind: &Kind, key: Key<'_>) -> Answer<()> {
    match app.store().get(kind.name, key).await {
        Err(StoreError::NotFound { .. }) => {
            let detail = format!(
                "there is no {} {:?}, and it cannot be declared: Basalt makes it when it meets one",
                kind.name,
                key.to_string()
            );
            Err(Refusal::new(ProblemCode::NotFound, detail))
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

pub(super) async fn dry_run(app: &App, rights: &Rights, stored: Stored, spec: &Value) -> Answer<Response> {
    let plan = announce::of_writes(app, rights, &[(&stored, spec)], &Choices::default(), None).await?;
    let plan = plan.into_iter().next().unwrap_or_default();
    let changes = announce::action(&stored) != ApplyAction::Unchanged;
    let these = if changes { Overlay::one(&stored.object, false) } else { Overlay::default() };
    let consequences = announce::for_others(app, rights, &Arc::new(these)).await?;
    let advisories = stored.advisories.into_iter().map(Advisory::from).collect();
    let object = render::render(stored.object, &WaitsFor::default())?;
    Ok(axum::Json(DryRun { object, plan, consequences, advisories }).into_response())
}

/// The answer of a dry run that leaves the object as it is.
pub(super) fn tried(object: Object, plan: PlanReport) -> Answer<Response> {
    let object = render::render(object, &WaitsFor::default())?;
    Ok(axum::Json(DryRun { object, plan, consequences: Consequences::default(), advisories: Vec::new() })
        .into_response())
}

pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    uri: Uri,
    headers: HeaderMap,
) -> Answer<Response> {
    let (kind, key) = (target.kind, target.key());
    let DeleteParameters { dry_run, force, if_unused, adopt } = parameters(&uri)?;
    let precondition = body::precondition(&headers)?;
    let manager = body::manager(&headers)?;
    let guards = caller.guards(dry_run);
    let judge = OwnerGuards { manager: manager.as_deref(), adopt, expected: None, guards };
    let removal = Removal { kind: kind.name, key, precondition, dry_run, force, if_unused, judge: &judge };
    if dry_run {
        return dry_removal(&app, &caller.rights, removal).await;
    }
    let store = if force { caller.insisting(&app) } else { caller.store(&app) };
    match store.delete(removal).await.map_err(protected)? {
        Deletion::Gone => Ok(StatusCode::NO_CONTENT.into_response()),
        Deletion::Waits { object, waits_for } => {
            let waits_for = WaitsFor::seen(&app, &caller.rights, waits_for).await?;
            Ok(render::render(*object, &waits_for)?.answer(StatusCode::ACCEPTED))
        }
        Deletion::InUse { by } => Err(in_use(&WaitsFor::seen(&app, &caller.rights, by).await?)),
    }
}

/// The refusal to delete an object that is in use, if the request asked for that check.
fn in_use(by: &WaitsFor) -> Refusal {
    let by = by.in_words(|it| format!("{} {:?}", it.kind, it.name)).unwrap_or_default();
    let detail = format!(
        "it is referred to by {by}, and stays as it is; have them refer to something else, or delete them, first"
    );
    Refusal::new(ProblemCode::InUse, detail)
}

/// Maps a refusal by a rule of the object itself to the problem `locked`.
fn protected(error: StoreError) -> Refusal {
    match error {
        StoreError::Refused { errors } if errors.iter().any(|error| error.code == FieldCode::Rule) => {
            let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Refusal::new(ProblemCode::Locked, words.join("; "))
        }
        error => error.into(),
    }
}

async fn dry_removal(app: &App, rights: &Rights, removal: Removal<'_>) -> Answer<Response> {
    let before = app.store().get(removal.kind, removal.key).await?;
    let without = Arc::new(Overlay::one(&before, true));
    let (object, plan) = match app.store().delete(removal).await.map_err(protected)? {
        Deletion::Gone if removal.force => {
            let plan = announce::of_letting_go(app, rights, &before).await?;
            (render::render(before, &WaitsFor::default())?, plan)
        }
        Deletion::Gone => {
            let nobody = WaitsFor::default();
            let plan = announce::of_deletion(app, rights, &before, true, &nobody, None).await?;
            (render::render(before, &nobody)?, plan)
        }
        Deletion::Waits { object, waits_for } => {
            let waits_for = WaitsFor::seen(app, rights, waits_for).await?;
            let plan = announce::of_deletion(app, rights, &object, false, &waits_for, None).await?;
            (render::render(*object, &waits_for)?, plan)
        }
        Deletion::InUse { by } => return Err(in_use(&WaitsFor::seen(app, rights, by).await?)),
    };
    let consequences = announce::for_others(app, rights, &without).await?;
    Ok(axum::Json(DryRun { object, plan, consequences, advisories: Vec::new() }).into_response())
}

pub(super) async fn rename(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Response> {
    let (kind, key) = (target.kind, target.key());
    let RenameParameters { dry_run, adopt } = parameters(&uri)?;
    let manager = body::manager(&headers)?;
    let RenameRequest { name: to } = body::json(&body)?;
    body::check_name(kind, to.as_str())?;
    if kind.name == "Vlan" {
        let message = "a VLAN is called after its fabric and number, which cannot be changed by a rename";
        return Err(Refusal::field("/name", FieldCode::Rule, message, "rename the fabric: its VLANs follow"));
    }
    let guards = caller.guards(dry_run);
    let judge = OwnerGuards { manager: manager.as_deref(), adopt, expected: None, guards };
    let judged = (dry_run, &judge as &dyn Judge);
    let mut renamed =
        caller.store(&app).rename_judged(kind.name, key, to.as_str(), judged).await.map_err(protected)?;
    if dry_run {
        if !POOLED.contains(&kind.name) && caller.rights.unlimited().is_none() {
            // The caller may not see all referrers. Only a caller with rights everywhere may rename an object in no pool.
            renamed.referrers.retain(|it| !POOLED.contains(&it.kind.as_str()));
        }
        let plan = announce::of_rename(&app, &renamed).await?;
        return tried(renamed.object, plan);
    }
    Ok(rendered(&app, &caller.rights, renamed.object).await?.answer(StatusCode::OK))
}

/// The object in its present state, for a caller with these rights.
pub(super) async fn rendered(app: &App, rights: &Rights, mut object: Object) -> Answer<Rendered> {
    fill(app, rights, std::slice::from_mut(&mut object)).await?;
    shown(app, rights, object).await
}

/// The objects of a list in their present states, for a caller with these rights.
pub(super) async fn shown_all(app: &App, rights: &Rights, mut objects: Vec<Object>) -> Answer<Vec<Rendered>> {
    fill(app, rights, &mut objects).await?;
    let mut items = Vec::with_capacity(objects.len());
    for object in objects {
        items.push(shown(app, rights, object).await?);
    }
    Ok(items)
}

/// Fills in the fields that are computed at each read.
async fn fill(app: &App, rights: &Rights, objects: &mut [Object]) -> Answer<()> {
    utilisation::fill(app, rights, objects).await?;
    serving::fill(app, objects).await?;
    webhooks::fill(app, objects).await?;
    receivers::fill(app, objects).await
}

/// Renders the object. An object in deletion shows the objects that it waits for, and a token shows when it was issued.
async fn shown(app: &App, rights: &Rights, object: Object) -> Answer<Rendered> {
    let waits_for = match object.deletion_requested_at {
        Some(_) => WaitsFor::seen(app, rights, app.store().referrers(object.uid).await?).await?,
        None => WaitsFor::default(),
    };
    let issued = match object.kind.as_str() {
        "ApiToken" => app.store().issued(object.uid).await?,
        _ => None,
    };
    let rendered = render::render(object, &waits_for)?;
    match issued {
        Some(issued) => rendered.issued(&issued),
        None => Ok(rendered),
    }
}
