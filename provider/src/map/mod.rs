//! Between Basalt's words and Terraform's: descriptions to schemas, states to specs, objects to states, pointers to paths.
//!
//! A state holds the spec as it counts: where the configuration leaves a field out that has a default, the default, and
//! null where Basalt chooses by itself; what it chose is in `status`. So a plan is empty exactly when nothing that is
//! declared means anything else. The region is sent what the configuration says, and no default that it leaves out.

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
/// What never changes of an object.
pub(crate) const UID: &str = "uid";
/// What people and tools know it by.
pub(crate) const LABELS: &str = "labels";
/// Those, and the defaults of the provider.
pub(crate) const LABELS_ALL: &str = "labels_all";
/// A natural key of the object that is looked for.
pub(crate) const FIND: &str = "find";
/// Part of the names of the objects that are looked for.
pub(crate) const NAME_CONTAINS: &str = "name_contains";
/// A filter in the language of lists.
pub(crate) const FILTER: &str = "filter";
/// What holds of the objects that are looked for.
pub(crate) const WHERE: &str = "where";
/// What is told of its status: in a state, what of it is stable.
pub(crate) const STATUS: &str = "status";
/// Whether the last change was seen to be done, for kinds that are waited for.
pub(crate) const READY: &str = "ready";
/// How long to wait.
pub(crate) const TIMEOUTS: &str = "timeouts";

/// The attribute that holds a secret's value without it ever being stored.
pub(crate) fn write_only(secret: &str) -> String {
    format!("{secret}_wo")
}

/// The attribute whose change has a write-only secret written again.
pub(crate) fn version(secret: &str) -> String {
    format!("{secret}_wo_version")
}
