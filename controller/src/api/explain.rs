//! Plans, waits and timelines, from the driver.

use super::App;
use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::{NoParameters, parameters};
use super::rights::Rights;
use super::target::Target;
use super::waiting::WaitsFor;
use crate::driver::{Machinery, SupposedState};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use basalt_api::plan::{PlanReport, Wait};
use basalt_api::wire::{Decisions, Timeline, Waits};
use basalt_db::{Key, Object, StoreError};
use serde::Deserialize;
use std::sync::Arc;

pub(super) async fn plan(
    State(app): State<App>,
    caller: Caller,
    _: NoParameters,
    target: Target,
) -> Answer<Json<PlanReport>> {
    let (object, machinery) = (target.object(&app).await?, machinery(&app)?);
    let mut plans = machinery.plans(vec![(&object, SupposedState::default())], None).await?;
    let mut plan = plans.pop().unwrap_or_default();
    if let Some(wait) = held_by(&app, &caller.rights, &object).await? {
        plan.summary = format!("{}: {}", object.name, wait.message);
        plan.waits.insert(0, wait);
    }
    Ok(Json(plan))
}

pub(super) async fn waits(
    State(app): State<App>,
    caller: Caller,
    _: NoParameters,
    target: Target,
) -> Answer<Json<Waits>> {
    let (object, machinery) = (target.object(&app).await?, machinery(&app)?);
    let mut answer = machinery.waits(&object).await?;
    answer.waits.splice(0..0, held_by(&app, &caller.rights, &object).await?);
    Ok(Json(answer))
}

/// The wait of an object in deletion for its referrers. It comes before its driver's waits.
async fn held_by(app: &App, rights: &Rights, object: &Object) -> Answer<Option<Wait>> {
    let Some(since) = object.deletion_requested_at else { return Ok(None) };
    let waits_for = WaitsFor::seen(app, rights, app.store().referrers(object.uid).await?).await?;
    let who = waits_for.in_words(|it| format!("{} {:?} ({})", it.kind, it.name, it.pointer));
    Ok(who.map(|who| Wait {
        cause: "Referenced".to_owned(),
        message: format!("it is to go, and waits for {who} to go or to let go of it"),
        since,
        deadline: None,
        human: Some("delete what refers to it, or have it refer to something else".to_owned()),
        remedy: None,
        rule: None,
    }))
}

pub(super) async fn timeline(
    State(app): State<App>,
    _: NoParameters,
    target: Target,
) -> Answer<Json<Timeline>> {
    let (object, machinery) = (target.object(&app).await?, machinery(&app)?);
    Ok(Json(machinery.timeline(&object).await?))
}

/// The query of decisions.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    before: Option<i64>,
    #[serde(default)]
    replay: bool,
}

/// The decisions about an object. Those about a deleted object are found by its uid, and only by callers who see all pools.
pub(super) async fn decisions(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    uri: Uri,
) -> Answer<Json<Decisions>> {
    let which: Which = parameters(&uri)?;
    let (kind, key) = (target.kind, target.key());
    let (uid, gone) = match (app.store().get(kind.name, key).await, key) {
        (Err(gone @ StoreError::NotFound { .. }), Key::Uid(uid)) if caller.rights.unlimited().is_some() => {
            (uid, Some(gone))
        }
        (object, _) => (object?.uid, None),
    };
    let decisions = machinery(&app)?.decisions(kind.name, uid, which.before, which.replay).await?;
    match gone.filter(|_| decisions.decisions.is_empty()) {
        Some(gone) => Err(gone.into()),
        None => Ok(Json(decisions)),
    }
}

fn machinery(app: &App) -> Answer<Arc<dyn Machinery>> {
    app.machinery().cloned().ok_or_else(|| Refusal::unavailable("this region's driver does not run yet"))
}
