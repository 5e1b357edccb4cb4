//! Stored specs, as this version reads them. An object whose spec cannot be read is left out ([`readable`]), so that it affects no other object.

use basalt_db::{Object, StoreError};
use serde::de::DeserializeOwned;

/// Reads a stored spec.
///
/// # Errors
/// Fails if the spec does not have the form of the kind: another version wrote it.
pub(super) fn spec<T: DeserializeOwned>(object: &Object) -> Result<T, StoreError> {
    serde_json::from_str(object.spec.get()).map_err(|error| {
        StoreError::Corrupt(format!("the spec of {} {:?}: {error}", object.kind, object.name))
    })
}

/// The objects whose specs can be read. An object that cannot be read gets an error in its own reconciliation, and is left out elsewhere.
pub(super) fn readable<T: DeserializeOwned>(objects: Vec<Object>) -> impl Iterator<Item = (Object, T)> {
    objects.into_iter().filter_map(|object| match spec(&object) {
        Ok(spec) => Some((object, spec)),
        Err(error) => {
            tracing::warn!(%error, "left out, as if it were not there");
            None
        }
    })
}
