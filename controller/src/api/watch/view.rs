//! The view of one reader of a watch.

use super::super::body;
use super::super::caller::Caller;
use super::super::problem::{Answer, Refusal};
use super::super::query::{self, WatchParameters, labels};
use super::super::rights::{ACCESS, Rights, Role};
use basalt_api::values::Uid;
use basalt_api::{FieldCode, Kind, ProblemCode};
use basalt_db::{Changed, Object};
use std::collections::BTreeMap;

/// The objects that one reader sees. An object that leaves the view is reported to the reader as deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// `None`: every kind.
    kinds: Option<Vec<String>>,
    labels: BTreeMap<String, String>,
    /// Only these members of each object; `None`: all.
    fields: Option<String>,
    /// The rights of the reader.
    rights: Rights,
    /// The objects that the rights come from.
    rests_on: Vec<Uid>,
    /// The user or token to whose share the watch belongs.
    holder: String,
}

impl View {
    /// The view of `caller`, from `kinds=a,b`, `labels=a=b,c=d` and `fields=a.b,c`.
    pub(super) fn new(caller: &Caller, asked: &WatchParameters) -> Answer<Self> {
        let words =
            asked.kinds.as_deref().map(|kinds| kinds.split(',').map(str::trim).filter(|w| !w.is_empty()));
        let kinds = words.map(|words| words.map(kind).collect::<Answer<Vec<_>>>()).transpose()?;
        if kinds.as_ref().is_some_and(Vec::is_empty) {
            let hint = "name some, like kinds=machines,deployments, or leave kinds out";
            return Err(Refusal::field("", FieldCode::Required, "kinds names no kind", hint));
        }
        let rights = caller.rights.clone();
        let mut hidden = kinds
            .iter()
            .flatten()
            .filter(|kind| ACCESS.contains(&kind.as_str()) && !rights.may_see(kind, None));
        if let Some(kind) = hidden.next() {
            let detail = format!("a {kind} is seen by those with a role for everywhere");
            return Err(Refusal::new(ProblemCode::Forbidden, detail));
        }
        if let Some(text) = &asked.fields {
            let is_told =
                |kind: &&&Kind| kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|it| it == kind.name));
            let of: Vec<&Kind> = basalt_api::KINDS.iter().filter(is_told).copied().collect();
            query::fields(&of, text)?;
        }
        Ok(Self {
            kinds,
            labels: labels(asked.labels.as_deref())?,
            fields: asked.fields.clone(),
            rights,
            rests_on: caller.rests_on.clone(),
            holder: caller.holder(),
        })
    }

    /// A view of all objects that these rights show.
    #[cfg(test)]
    pub(super) fn of(holder: &str, rights: Rights) -> Self {
        Self { rights, holder: holder.to_owned(), ..Self::default() }
    }

    /// The user or token to whose share this watch belongs: see [`Caller::holder`].
    pub(super) fn holder(&self) -> &str {
        &self.holder
    }

    /// True if the reader is an admin of the whole region.
    pub(super) fn is_of_admin(&self) -> bool {
        self.rights.unlimited() >= Some(Role::Admin)
    }

    /// The members of an object that its reader gets; `None`: all.
    pub(super) fn fields(&self) -> Option<&str> {
        self.fields.as_deref()
    }

    /// The kinds whose changes matter, for reads of the log.
    pub(super) fn kinds(&self) -> Option<&[String]> {
        self.kinds.as_deref()
    }

    pub(super) fn covers(&self, kind: &str) -> bool {
        let is_seen = !ACCESS.contains(&kind) || self.rights.may_see(kind, None);
        is_seen && self.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|k| k == kind))
    }

    /// True if its reader sees only some pools.
    pub(super) fn is_limited(&self) -> bool {
        self.rights.unlimited().is_none()
    }

    /// True if its reader sees machines and deployments of this pool.
    pub(super) fn sees(&self, pool: Option<&str>) -> bool {
        self.rights.over(pool).is_some()
    }

    /// True if the reader's rights come from this object.
    pub(super) fn rests_on(&self, uid: Uid) -> bool {
        self.rests_on.contains(&uid)
    }

    /// True if its reader sees the object, which is in this pool. All conditions belong here: it is called for every event.
    pub(super) fn shows(&self, object: &Object, pool: Option<&str>) -> bool {
        self.rights.may_see(&object.kind, pool)
            && self.labels.iter().all(|(key, value)| object.labels.get(key) == Some(value))
    }

    /// True if its reader may know that an object outside of the view exists. An object that was never shown is not reported as deleted.
    pub(super) fn knew(&self, changed: &Changed) -> bool {
        let left = changed.left.as_deref().map(Some);
        left.into_iter().chain([changed.pool.as_deref()]).any(|pool| self.rights.may_see(&changed.kind, pool))
    }
}

fn kind(word: &str) -> Answer<String> {
    match Kind::find(word) {
        Some(kind) => Ok(kind.name.to_owned()),
        // The refusal lists the kinds.
        None => body::kind(word).map(|kind| kind.name.to_owned()),
    }
}
