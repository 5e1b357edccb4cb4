//! Conversion between Basalt and Terraform: kinds to schemas, states to specs, objects to states, pointers to paths.
//!
//! A state holds the effective spec. A field that the configuration omits has its default, or null if Basalt chooses the
//! value; the chosen value is in `status`. So a plan is empty exactly if no declared value has changed its meaning. The
//! request to the region contains the values of the configuration, without defaults that it omits.

mod expression;
mod facts;
pub(crate) mod labels;
mod pointer;
mod schema;
mod secret;
mod value;

pub(crate) use pointer::{Place, path, place, version_of};
pub(crate) use schema::{about, data_source, is_fixed_reference, many, query, resource};
pub(crate) use secret::Revisions;
pub(crate) use value::{Declared, declared, found, keep_equal, object};

/// The object's name.
pub(crate) const NAME: &str = "name";
/// The identifier that never changes.
pub(crate) const UID: &str = "uid";
/// Labels by which people and tools find the object.
pub(crate) const LABELS: &str = "labels";
/// The labels of the resource, and the defaults of the provider.
pub(crate) const LABELS_ALL: &str = "labels_all";
/// A natural key of the object to find.
pub(crate) const FIND: &str = "find";
/// Part of the names of the objects to find.
pub(crate) const NAME_CONTAINS: &str = "name_contains";
/// A filter in the language of lists.
pub(crate) const FILTER: &str = "filter";
/// Fields and values that the objects to find must have.
pub(crate) const WHERE: &str = "where";
/// The status: in a state, only its stable fields.
pub(crate) const STATUS: &str = "status";
/// True once the last change was seen to be done. Only for kinds that are waited for.
pub(crate) const READY: &str = "ready";
/// Time limits of the operations.
pub(crate) const TIMEOUTS: &str = "timeouts";

/// The attribute that takes a secret's value without storing it.
pub(crate) fn write_only(secret: &str) -> String {
    format!("{secret}_wo")
}

/// The attribute whose change causes a write-only secret to be written again.
pub(crate) fn version(secret: &str) -> String {
    format!("{secret}_wo_version")
}
