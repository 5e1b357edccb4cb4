//! What will be done, what is waited for, what happened: asked of the driver.

use super::problem::{Answer, Refusal};
use super::query::{NoParameters, parameters};
use super::{App, body};
use crate::driver::{Machinery, PLANNED, Supposed};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use basalt_api::ProblemCode;
use basalt_api::plan::PlanReport;
use basalt_api::wire::{Decisions, Timeline, Waits};
use basalt_db::Object;
use serde::Deserialize;
use std::sync::Arc;

type At = Path<(String, String)>;

pub(super) async fn plan(State(app): State<App>, path: At, _: NoParameters) -> Answer<Json<PlanReport>> {
    let (machinery, object) = subject(&app, &path).await?;
    let mut plans = machinery.plans(vec![(&object, Supposed::default())], None).await?;
    Ok(Json(plans.pop().unwrap_or_default()))
}

pub(super) async fn waits(State(app): State<App>, path: At, _: NoParameters) -> Answer<Json<Waits>> {
    let (machinery, object) = subject(&app, &path).await?;
    Ok(Json(machinery.waits(&object).await?))
}

pub(super) async fn timeline(State(app): State<App>, path: At, _: NoParameters) -> Answer<Json<Timeline>> {
    let (machinery, object) = subject(&app, &path).await?;
    Ok(Json(machinery.timeline(&object).await?))
}

/// Which decisions.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    before: Option<i64>,
    #[serde(default)]
    replay: bool,
}

pub(super) async fn decisions(State(app): State<App>, path: At, uri: Uri) -> Answer<Json<Decisions>> {
    let which: Which = parameters(&uri)?;
    let (machinery, object) = subject(&app, &path).await?;
    Ok(Json(machinery.decisions(&object, which.before, which.replay).await?))
}

async fn subject(app: &App, Path((plural, name)): &At) -> Answer<(Arc<dyn Machinery>, Object)> {
    let kind = body::kind(plural)?;
    if !PLANNED.contains(&kind.name) {
        let detail = format!("no plan is made for {}: their status says all there is", kind.plural);
        return Err(Refusal::new(ProblemCode::NotFound, detail));
    }
    let object = app.store().get(kind.name, body::key(kind, name)?).await?;
    let machinery = app.machinery().cloned();
    machinery
        .map(|m| (m, object))
        .ok_or_else(|| Refusal::unavailable("this region's driver does not run yet"))
}
