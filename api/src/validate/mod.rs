//! Intrinsic validation: what can be said of a spec without looking at any other object.
//!
//! First the description is walked: unknown fields, types, bounds, forms. When nothing is wrong so far, the kind's own
//! rules between fields run on the typed spec. Every error has a JSON pointer into the spec, names the value, and says
//! what would be right.

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

/// What is wrong with `spec` as a spec of `kind`; empty when nothing is.
#[must_use]
pub fn validate(kind: &Kind, spec: &Value) -> Vec<FieldError> {
    validate_partial(kind, spec, &[])
}

/// The same, while the values at the pointers `unknown` are not known yet, as in a Terraform plan. They are not
/// missed; rules between fields wait until all is known.
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

/// What is wrong with `name` for an object of `kind` with this `spec`. The pointer is `/metadata/name`.
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

/// Reads `spec` and applies `rules` to it.
pub(crate) fn typed<S: Model>(spec: &Value, errors: &mut Vec<FieldError>, rules: fn(&S, &mut Rule<'_>)) {
    match S::deserialize(spec) {
        Ok(spec) => rules(&spec, &mut Rule { errors }),
        Err(error) => errors.push(FieldError::new("", FieldCode::Type, error.to_string(), "")),
    }
}

/// For a kind without rules between fields.
pub(crate) fn no_rules<S>(_: &S, _: &mut Rule<'_>) {}

/// Where a kind's rules say what they found.
pub(crate) struct Rule<'a> {
    errors: &'a mut Vec<FieldError>,
}

impl Rule<'_> {
    /// A rule between fields is broken at `pointer`.
    pub(crate) fn broken(
        &mut self,
        pointer: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.errors.push(FieldError::new(pointer, FieldCode::Rule, message, hint));
    }

    /// An error that was found elsewhere.
    pub(crate) fn found(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// Another field makes the one at `pointer` necessary.
    pub(crate) fn missing(
        &mut self,
        pointer: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.errors.push(FieldError::new(pointer, FieldCode::Required, message, hint));
    }
}
