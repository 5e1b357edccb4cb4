//! What one reader is shown.

use super::super::body;
use super::super::problem::{Answer, Refusal};
use super::super::query::labels;
use basalt_api::{FieldCode, Kind};
use basalt_db::Object;
use std::collections::BTreeMap;

/// What one reader is shown. An object that it does not show is, to its reader, deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// `None`: every kind.
    kinds: Option<Vec<String>>,
    labels: BTreeMap<String, String>,
}

impl View {
    /// From `kinds=a,b` and `labels=a=b,c=d`.
    pub(super) fn new(kinds: Option<&str>, selector: Option<&str>) -> Answer<Self> {
        let words = kinds.map(|kinds| kinds.split(',').map(str::trim).filter(|w| !w.is_empty()));
        let kinds = words.map(|words| words.map(kind).collect::<Answer<Vec<_>>>()).transpose()?;
        if kinds.as_ref().is_some_and(Vec::is_empty) {
            let hint = "name some, like kinds=machines,deployments, or leave kinds out";
            return Err(Refusal::field("", FieldCode::Required, "kinds names no kind", hint));
        }
        Ok(Self { kinds, labels: labels(selector)? })
    }

    /// For the log: only changes of these kinds matter.
    pub(super) fn kinds(&self) -> Option<&[String]> {
        self.kinds.as_deref()
    }

    pub(super) fn covers(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|k| k == kind))
    }

    /// Whether its reader sees the object. Whatever decides that belongs here: it is asked for every event.
    pub(super) fn shows(&self, object: &Object) -> bool {
        self.labels.iter().all(|(key, value)| object.labels.get(key) == Some(value))
    }
}

fn kind(word: &str) -> Answer<String> {
    match Kind::find(word) {
        Some(kind) => Ok(kind.name.to_owned()),
        // It says which kinds there are.
        None => body::kind(word).map(|kind| kind.name.to_owned()),
    }
}
