//! Reasons to refuse a write or a removal that is valid by itself: a protection that a person has set, or a reinstallation that nobody
//! has requested.
//!
//! The guard of an endpoint answers 404 early for an object that the caller's roles do not reach. The checks here run again inside the
//! transaction of the write (`Judge`), on the object before and after it.

use super::announce::{self, Chosen};
use super::rights::{POOLED, Rights, changes};
use basalt_api::values::Sha256;
use basalt_api::{Effect, FieldCode, FieldError, HIDDEN, Kind};
use basalt_db::{Judge, Object, Put, Written};
use serde_json::Value;

/// Fields that protect an object from deletion while they are true.
const PROTECTIONS: &[(&str, &str)] = &[("Deployment", "deletion_protection"), ("Machine", "locked")];

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// The object's protection from deletion.
fn protection(object: &Object) -> Option<String> {
    let (_, field) = PROTECTIONS.iter().find(|(protected, _)| *protected == object.kind)?;
    // A deletion that has begun is not stopped any more.
    let holds = parsed(object.spec.get()).get(*field) == Some(&Value::Bool(true))
        && object.deletion_requested_at.is_none();
    holds.then(|| format!("{} {:?} has {field} = true", object.kind, object.name))
}

/// The guards of a write, called inside its transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guards<'a> {
    /// The rights of the caller.
    pub(super) rights: &'a Rights,
    /// True in a dry run.
    pub(super) dry_run: bool,
}

impl Guards<'_> {
    /// The error for an object that is in no pool, or whose pool is not known yet.
    fn of_kind(&self, kind: &str) -> Option<FieldError> {
        let hint = format!("it needs the role {} for everywhere", changes(kind, self.dry_run).as_str());
        let message = format!("this token may not write a {kind}");
        (self.rights.may_change(kind, None, self.dry_run) != Some(true))
            .then(|| FieldError::new("", FieldCode::Forbidden, message, hint))
    }

    /// The error for a whole document whose pool does not matter.
    pub(super) fn kind(&self, kind: &Kind) -> Option<FieldError> {
        if POOLED.contains(&kind.name) { None } else { self.of_kind(kind.name) }
    }
}

impl Judge for Guards<'_> {
    fn minds_pools(&self) -> bool {
        self.rights.unlimited() < Some(changes("Machine", self.dry_run))
    }

    fn sees(&self, kind: &str, pool: Option<&str>) -> bool {
        self.rights.may_see(kind, pool)
    }

    fn reach(&self, kind: &str, name: &str, pool: Option<&str>, wanted: Option<&str>) -> Option<FieldError> {
        let may = self.rights.may_change(kind, pool, self.dry_run);
        if may == Some(true) {
            return None;
        }
        if !POOLED.contains(&kind) {
            return self.of_kind(kind);
        }
        let Some(wanted) = wanted else {
            return Some(match may {
                None => FieldError::new("", FieldCode::NotFound, format!("there is no {kind} {name:?}"), ""),
                Some(_) => {
                    let pool = pool.unwrap_or_default();
                    let message = format!("{kind} {name:?} is of pool {pool:?}, where this token only looks");
                    FieldError::new(
                        "",
                        FieldCode::Forbidden,
                        message,
                        "it needs the role operator for that pool",
                    )
                }
            });
        };
        let wanted = parsed(wanted);
        let machine = wanted.get("machine").and_then(Value::as_str);
        let pointer = match (kind, machine) {
            ("Machine", _) => "/pool",
            (_, Some(_)) => "/machine",
            (_, None) => "/selector/pool",
        };
        let into = pool.map_or_else(|| "any pool".to_owned(), |pool| format!("pool {pool:?}"));
        let message = format!("this token may not put a {kind} into {into}");
        Some(FieldError::new(pointer, FieldCode::Forbidden, message, "name a pool that it has"))
    }

    fn change(&self, put: &Put<'_>, before: &Object) -> Vec<FieldError> {
        match put.kind.name {
            "Deployment" => reinstallation(put.kind, before, &parsed(put.spec.as_str())),
            _ => Vec::new(),
        }
    }

    fn removal(&self, object: &Object) -> Vec<FieldError> {
        let hint = "set it to false first, in a change of its own";
        protection(object)
            .map(|message| FieldError::new("/prune", FieldCode::Rule, message, hint))
            .into_iter()
            .collect()
    }

    fn approves(&self, _: &Written) -> bool {
        true
    }
}

/// Managers of objects that no client declared: racks and discoveries, and users of an OpenID issuer. A change of such
/// an object takes nothing from another client.
const NOBODYS: [&str; 2] = ["region", "openid"];

/// The manager of an object, if that is another client.
fn other_manager<'a>(object: &'a Object, manager: Option<&str>) -> Option<&'a str> {
    object.manager.as_deref().filter(|other| !NOBODYS.contains(other) && manager != Some(*other))
}

/// The guards of an apply, a patch, a deletion and a rename. They change no object of another manager, unless `adopt` is set. An apply
/// may have to match a plan.
pub(super) struct OwnerGuards<'a> {
    /// The manager of the request.
    pub(super) manager: Option<&'a str>,
    /// True to take over objects of other managers.
    pub(super) adopt: bool,
    /// The digest of the approved plan, without the machines that selectors choose.
    pub(super) expected: Option<Sha256>,
    /// The guards of every write.
    pub(super) guards: Guards<'a>,
}

impl Judge for OwnerGuards<'_> {
    fn change(&self, put: &Put<'_>, before: &Object) -> Vec<FieldError> {
        let mut errors = self.guards.change(put, before);
        if let Some(other) = other_manager(before, self.manager).filter(|_| !self.adopt) {
            let message = format!("{} {:?} is managed by {other:?}", before.kind, before.name);
            let hint = format!("change it with {other}, or say adopt (--adopt), which takes it over");
            errors.push(FieldError::new("", FieldCode::Rule, message, hint));
        }
        errors
    }

    fn removal(&self, object: &Object) -> Vec<FieldError> {
        let mut errors = self.guards.removal(object);
        // A deletion that has begun is not stopped any more.
        let stays = object.deletion_requested_at.is_none();
        if let Some(other) = other_manager(object, self.manager).filter(|_| stays && !self.adopt) {
            let message = format!("{} {:?} is managed by {other:?}", object.kind, object.name);
            let hint = format!("delete it with {other}, or say adopt (--adopt)");
            errors.push(FieldError::new("", FieldCode::Rule, message, hint));
        }
        errors
    }

    fn renaming(&self, object: &Object) -> Vec<FieldError> {
        let other = other_manager(object, self.manager).filter(|_| !self.adopt);
        let message = other.map(|other| format!("{} {:?} is managed by {other:?}", object.kind, object.name));
        let hint = format!("rename it with {}, or say adopt (--adopt)", other.unwrap_or_default());
        message.map(|message| FieldError::new("", FieldCode::Rule, message, hint)).into_iter().collect()
    }

    fn minds_pools(&self) -> bool {
        self.guards.minds_pools()
    }

    fn sees(&self, kind: &str, pool: Option<&str>) -> bool {
        self.guards.sees(kind, pool)
    }

    fn reach(&self, kind: &str, name: &str, pool: Option<&str>, wanted: Option<&str>) -> Option<FieldError> {
        self.guards.reach(kind, name, pool, wanted)
    }

    fn approves(&self, written: &Written) -> bool {
        self.expected.is_none_or(|expected| announce::digest(written, &Chosen::new()) == expected)
    }
}

/// The changes that would need a reinstallation of an installed system that nobody has requested.
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
        let difference = match (&change.old, &change.new) {
            (Some(old), Some(new)) if is_short(old) && is_short(new) => format!(" from {old} to {new}"),
            (Some(old), None) if is_short(old) => format!(" from {old} to nothing"),
            (None, Some(new)) if is_short(new) => format!(" to {new}"),
            _ => String::new(),
        };
        let message =
            format!("the system is installed, and only a new installation could change this{difference}");
        FieldError::new(change.pointer, FieldCode::Installed, message, hint)
    });
    refused.collect()
}

/// True if the value is short enough for a message, and not hidden.
fn is_short(value: &Value) -> bool {
    const LONGEST: usize = 80;
    !value.is_object() && !value.is_array() && value != HIDDEN && value.to_string().len() <= LONGEST
}
