//! What stands against a write or a removal that is valid by itself: a protection that somebody set, or a system that would
//! be installed again without anybody having asked for it.

use super::App;
use super::problem::{Answer, Refusal};
use basalt_api::{Effect, FieldCode, FieldError, Kind, ProblemCode};
use basalt_db::{Key, Object, StoreError};
use serde_json::Value;

/// Fields that keep an object from being deleted while they are true.
const PROTECTIONS: &[(&str, &str)] = &[("Deployment", "deletion_protection"), ("Machine", "locked")];

fn spec_of(object: &Object) -> Value {
    serde_json::from_str(object.spec.get()).unwrap_or_default()
}

/// Whether a protected object is asked to go.
pub(super) async fn removal(app: &App, kind: &Kind, key: Key<'_>) -> Answer<()> {
    let Some((_, field)) = PROTECTIONS.iter().find(|(protected, _)| *protected == kind.name) else {
        return Ok(());
    };
    let object = app.store().get(kind.name, key).await?;
    // What is on its way out already is not stopped any more.
    if spec_of(&object).get(*field) != Some(&Value::Bool(true)) || object.deletion_requested_at.is_some() {
        return Ok(());
    }
    let detail = format!("{} {:?} has {field} = true; set it to false first", kind.name, object.name);
    Err(Refusal::new(ProblemCode::Locked, detail))
}

/// Whether an installed system would have to be installed again, and may not be.
pub(super) async fn change(app: &App, kind: &Kind, key: Key<'_>, wanted: &Value) -> Answer<()> {
    if kind.name != "Deployment" {
        return Ok(());
    }
    let before = match app.store().get(kind.name, key).await {
        Err(StoreError::NotFound { .. }) => return Ok(()),
        object => object?,
    };
    let status: Value = serde_json::from_str(before.status.get()).unwrap_or_default();
    let installed = status.pointer("/timings/installed_at").is_some_and(|at| !at.is_null());
    let protected = wanted.get("deletion_protection") == Some(&Value::Bool(true));
    if !installed || (wanted.get("redeploy").is_some_and(|redeploy| redeploy == "in_place") && !protected) {
        return Ok(());
    }
    let hint = if protected {
        "leave it as it is, or set deletion_protection to false"
    } else {
        "leave it as it is, or set redeploy = \"in_place\": the machine is installed again then, and its disk erased"
    };
    let changes = basalt_api::diff(kind, &spec_of(&before), wanted);
    let refused = changes.into_iter().filter(|change| change.effect == Effect::Redeploy).map(|change| {
        let message = "the system is installed, and only a new installation could change this";
        FieldError::new(change.pointer, FieldCode::Rule, message, hint).below("/spec")
    });
    let refused: Vec<_> = refused.collect();
    if refused.is_empty() { Ok(()) } else { Err(Refusal::invalid(refused)) }
}
