//! What stands against a write or a removal that is valid by itself: a protection that somebody set, or a system that would
//! be installed again without anybody having asked for it.

use super::App;
use super::announce::{self, Chosen};
use super::problem::{Answer, Refusal};
use basalt_api::values::Sha256;
use basalt_api::{Effect, FieldCode, FieldError, Kind, ProblemCode};
use basalt_db::{Judge, Key, Object, Put, Written};
use serde_json::Value;

/// Fields that keep an object from being deleted while they are true.
const PROTECTIONS: &[(&str, &str)] = &[("Deployment", "deletion_protection"), ("Machine", "locked")];

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// The protection that an object has against being deleted.
fn protection(object: &Object) -> Option<String> {
    let (_, field) = PROTECTIONS.iter().find(|(protected, _)| *protected == object.kind)?;
    // What is on its way out already is not stopped any more.
    let holds = parsed(object.spec.get()).get(*field) == Some(&Value::Bool(true))
        && object.deletion_requested_at.is_none();
    holds.then(|| format!("{} {:?} has {field} = true", object.kind, object.name))
}

/// Whether a protected object is asked to go.
pub(super) async fn removal(app: &App, kind: &Kind, key: Key<'_>) -> Answer<()> {
    if !PROTECTIONS.iter().any(|(protected, _)| *protected == kind.name) {
        return Ok(());
    }
    match protection(&app.store().get(kind.name, key).await?) {
        None => Ok(()),
        Some(holds) => Err(Refusal::new(ProblemCode::Locked, format!("{holds}; set it to false first"))),
    }
}

/// What stands against a write, judged inside its transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guards;

impl Judge for Guards {
    fn change(&self, put: &Put<'_>, before: &Object) -> Vec<FieldError> {
        match put.kind.name {
            "Deployment" => reinstallation(put.kind, before, &parsed(put.spec.as_str())),
            _ => Vec::new(),
        }
    }

    fn removal(&self, object: &Object) -> Vec<FieldError> {
        let hint = "set it to false first";
        protection(object)
            .map(|message| FieldError::new("/prune", FieldCode::Rule, message, hint))
            .into_iter()
            .collect()
    }

    fn approves(&self, _: &Written) -> bool {
        true
    }
}

/// The same for an apply, which takes nothing from another manager, and may be held to a plan.
pub(super) struct ApplyGuards<'a> {
    /// Who applies.
    pub(super) manager: Option<&'a str>,
    /// Takes over what others declared.
    pub(super) adopt: bool,
    /// The digest of what was approved, but for the machines that selectors choose.
    pub(super) expected: Option<Sha256>,
    /// Whether who applies may change objects of this kind, where it is one that says who may do what.
    pub(super) governs: &'a (dyn Fn(&str) -> bool + Send + Sync),
}

impl Judge for ApplyGuards<'_> {
    fn change(&self, put: &Put<'_>, before: &Object) -> Vec<FieldError> {
        let mut errors = Guards.change(put, before);
        if let Some(other) =
            before.manager.as_deref().filter(|other| self.manager != Some(*other) && !self.adopt)
        {
            let message = format!("{} {:?} is managed by {other:?}", before.kind, before.name);
            let hint = format!("change it with {other}, or apply with adopt, which takes it over");
            errors.push(FieldError::new("", FieldCode::Rule, message, hint));
        }
        errors
    }

    fn removal(&self, object: &Object) -> Vec<FieldError> {
        if !(self.governs)(&object.kind) {
            let message = format!("{} {:?} says who may do what", object.kind, object.name);
            return vec![FieldError::new("", FieldCode::Rule, message, "only an admin deletes it")];
        }
        Guards.removal(object)
    }

    fn approves(&self, written: &Written) -> bool {
        self.expected.is_none_or(|expected| announce::digest(written, &Chosen::new()) == expected)
    }
}

/// The changes for which an installed system would have to be installed again, where nobody asked for that.
fn reinstallation(kind: &Kind, before: &Object, wanted: &Value) -> Vec<FieldError> {
    let status = parsed(before.status.get());
    let installed = status.pointer("/timings/installed_at").is_some_and(|at| !at.is_null());
    let protected = wanted.get("deletion_protection") == Some(&Value::Bool(true));
    if !installed || (wanted.get("redeploy").is_some_and(|redeploy| redeploy == "in_place") && !protected) {
        return Vec::new();
    }
    let hint = if protected {
        "leave it as it is, or set deletion_protection to false"
    } else {
        "leave it as it is, or set redeploy = \"in_place\": the machine is installed again then, and its disk erased"
    };
    let changes = basalt_api::diff(kind, &parsed(before.spec.get()), wanted);
    let refused = changes.into_iter().filter(|change| change.effect == Effect::Redeploy).map(|change| {
        let message = "the system is installed, and only a new installation could change this";
        FieldError::new(change.pointer, FieldCode::Rule, message, hint)
    });
    refused.collect()
}
