//! Intrinsic validation: the checks of a spec that need no other object.
//!
//! The first pass walks the description: unknown fields, types, bounds, forms. If it finds no error, the kind's own rules between fields
//! run on the typed spec. Every error has a JSON pointer into the spec, the value, and a remedy.

mod labels;
mod limits;
mod walk;

#[cfg(test)]
mod generate;
#[cfg(test)]
mod tests;

pub use labels::validate_labels;
pub use limits::{MAX_DEPTH, MAX_ITEMS, MAX_SPEC_BYTES, MAX_STRING_BYTES, MAX_TEXT_BYTES};

use crate::model::Model;
use crate::problem::{FieldCode, FieldError};
use crate::schema::Kind;
use crate::values::Naming;
use serde_json::Value;

/// A kind's rules between fields.
pub(crate) type Rules = fn(&Value, &mut Vec<FieldError>);

/// The errors of `spec` as a spec of `kind`; empty if it is valid.
#[must_use]
pub fn validate(kind: &Kind, spec: &Value) -> Vec<FieldError> {
    validate_partial(kind, spec, &[])
}

/// The same while the values at the pointers `unknown` are unknown, as in a Terraform plan. A missing unknown value is no error. The rules
/// between fields only run if no value is unknown.
#[must_use]
pub fn validate_partial(kind: &Kind, spec: &Value, unknown: &[String]) -> Vec<FieldError> {
    if let Err(error) = limits::check(spec) {
        return vec![error];
    }
    let mut errors = walk::walk(kind, spec, unknown);
    if errors.is_empty() && unknown.is_empty() {
        (kind.rules)(spec, &mut errors);
    }
    errors
}

/// The error of `name` for an object of `kind` with this `spec`, or `None`. Its pointer is `/metadata/name`.
#[must_use]
pub fn validate_name(kind: &Kind, name: &str, spec: &Value) -> Option<FieldError> {
    const AT: &str = "/metadata/name";
    if let Err(bad) = kind.naming.check(name) {
        return Some(FieldError::format(AT, bad));
    }
    if kind.naming == Naming::FabricVid {
        let fabric = spec.get("fabric").and_then(Value::as_str)?;
        let right = format!("{fabric}.{}", spec.get("vid").and_then(Value::as_u64)?);
        if right != name {
            let message = format!("{name:?} is not the name of VLAN {right}");
            return Some(FieldError::new(AT, FieldCode::Rule, message, format!("call it {right:?}")));
        }
    }
    None
}

/// Deserializes `spec` and applies `rules` to it.
pub(crate) fn typed<S: Model>(spec: &Value, errors: &mut Vec<FieldError>, rules: fn(&S, &mut Rule<'_>)) {
    match S::deserialize(spec) {
        Ok(spec) => rules(&spec, &mut Rule { errors }),
        Err(error) => errors.push(FieldError::new("", FieldCode::Type, error.to_string(), "")),
    }
}

/// For a kind without rules between fields.
pub(crate) fn no_rules<S>(_: &S, _: &mut Rule<'_>) {}

/// Collects the errors that a kind's rules find.
pub(crate) struct Rule<'a> {
    errors: &'a mut Vec<FieldError>,
}

impl Rule<'_> {
    /// Adds an error at `pointer` for a broken rule between fields.
    pub(crate) fn broken(
        &mut self,
        pointer: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.errors.push(FieldError::new(pointer, FieldCode::Rule, message, hint));
    }

    /// Adds an error that another check made.
    pub(crate) fn found(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// Adds an error for the missing field at `pointer`, which another field requires.
    pub(crate) fn missing(
        &mut self,
        pointer: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.errors.push(FieldError::new(pointer, FieldCode::Required, message, hint));
    }
}
