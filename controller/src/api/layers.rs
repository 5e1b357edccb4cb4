//! Labels and tags by manager, beside the spec.

use super::App;
use super::announce;
use super::body;
use super::caller::Caller;
use super::objects;
use super::problem::{Answer, Refusal};
use super::query::{Flags, NoParameters, parameters};
use super::target::Target;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use basalt_api::wire::{Layers, PutLayer};
use basalt_api::{FieldCode, FieldError, validate_labels};
use basalt_db::Judge;

/// The kind whose objects have tags.
const TAGGED: &str = "Machine";

pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    _: NoParameters,
    target: Target,
) -> Answer<Json<Layers>> {
    let (kind, key) = (target.kind, target.key());
    let layers = app.store().layers(kind.name, key).await?;
    caller.sees(&app, kind, key).await?;
    Ok(Json(Layers { layers }))
}

pub(super) async fn write(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    Path((_, _, manager)): Path<(String, String, String)>,
    uri: Uri,
    sent: Bytes,
) -> Answer<Response> {
    let (kind, key) = (target.kind, target.key());
    let flags: Flags = parameters(&uri)?;
    body::check_manager(&manager)?;
    let layer: PutLayer = body::json(&sent)?;
    let mut errors: Vec<FieldError> =
        validate_labels(&layer.labels).into_iter().map(|error| error.below("/labels")).collect();
    if kind.name != TAGGED && !layer.tags.is_empty() {
        let message = format!("a {} has no tags", kind.name);
        errors.push(FieldError::new("/tags", FieldCode::Rule, message, "tags are of machines; use labels"));
    }
    if !errors.is_empty() {
        return Err(Refusal::invalid(errors));
    }
    let guards = caller.guards(flags.dry_run);
    let judged = (flags.dry_run, &guards as &dyn Judge);
    let object = caller.store(&app).set_layer(kind.name, key, &manager, layer, judged).await?;
    if flags.dry_run {
        let plan = announce::of_layer(&object, &manager);
        return objects::tried(object, plan);
    }
    Ok(objects::rendered(&app, &caller.rights, object).await?.answer(StatusCode::OK))
}
