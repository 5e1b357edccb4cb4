//! Supposed states of objects: a dry run plans as if some objects were different.

use crate::Store;
use crate::object::Object;
use crate::write::Written;
use basalt_api::values::Uid;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Objects in their supposed states; `None` for objects that would be deleted.
#[derive(Clone, Debug, Default)]
pub struct Overlay(HashMap<String, BTreeMap<Uid, Option<Object>>>);

impl Overlay {
    /// The states that a batch in a dry run would give its objects. Objects without a change are left out.
    #[must_use]
    pub fn of(written: &Written) -> Self {
        let changed = written.stored.iter().filter(|it| it.created || it.changed || it.relabelled);
        let stored = changed.map(|stored| (&stored.object, false));
        let left = written.pruned.iter().map(|pruned| (&pruned.object, pruned.gone));
        let mut by_kind: HashMap<String, BTreeMap<Uid, Option<Object>>> = HashMap::new();
        for (object, gone) in stored.chain(left) {
            let of_kind = by_kind.entry(object.kind.clone()).or_default();
            of_kind.insert(object.uid, (!gone).then(|| object.clone()));
        }
        Self(by_kind)
    }

    /// The kinds of the objects.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// One object in its supposed state; with `gone`, as if it were deleted.
    #[must_use]
    pub fn one(object: &Object, gone: bool) -> Self {
        let supposed = (!gone).then(|| object.clone());
        Self(HashMap::from([(object.kind.clone(), BTreeMap::from([(object.uid, supposed)]))]))
    }

    /// The objects of a kind, by uid; `None` for those that would be deleted.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = (Uid, Option<&Object>)> {
        self.0.get(kind).into_iter().flatten().map(|(uid, object)| (*uid, object.as_ref()))
    }

    fn get(&self, uid: Uid) -> Option<&Option<Object>> {
        self.0.values().find_map(|of_kind| of_kind.get(&uid))
    }
}

impl Store {
    /// The same store with supposed states. They apply to reads of single objects by uid, and to reads of all objects of a kind. Other
    /// reads and all writes ignore them.
    #[must_use]
    pub fn supposing(&self, overlay: Arc<Overlay>) -> Self {
        let mut supposing = self.clone();
        supposing.overlay = Some(overlay);
        supposing
    }

    /// The supposed state of an object. `None`: nothing is supposed of it; `Some(None)`: it would be deleted.
    #[must_use]
    pub fn supposed(&self, uid: Uid) -> Option<Option<&Object>> {
        self.overlay.as_ref()?.get(uid).map(Option::as_ref)
    }

    /// Replaces objects of a kind by their supposed states.
    pub(crate) fn suppose(&self, kind: &str, objects: &mut Vec<Object>) {
        let Some(supposed) = self.overlay.as_ref().and_then(|overlay| overlay.0.get(kind)) else { return };
        objects.retain(|object| !supposed.contains_key(&object.uid));
        objects.extend(supposed.values().flatten().cloned());
        objects.sort_by(|a, b| a.name.cmp(&b.name));
    }
}
