//! The store as it would be, were some objects otherwise: for plans of what is only tried.

use crate::Store;
use crate::object::Object;
use crate::write::Written;
use basalt_api::values::Uid;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Objects as they would be; those that would be gone are `None`.
#[derive(Clone, Debug, Default)]
pub struct Overlay(HashMap<String, BTreeMap<Uid, Option<Object>>>);

impl Overlay {
    /// What a batch that was only tried would have made of the objects in it. Those that would stay as they are are not in it.
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

    /// Of which there are some.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// One object, as it would be, or gone.
    #[must_use]
    pub fn one(object: &Object, gone: bool) -> Self {
        let supposed = (!gone).then(|| object.clone());
        Self(HashMap::from([(object.kind.clone(), BTreeMap::from([(object.uid, supposed)]))]))
    }

    fn get(&self, uid: Uid) -> Option<&Option<Object>> {
        self.0.values().find_map(|of_kind| of_kind.get(&uid))
    }
}

impl Store {
    /// The same store, which reads single objects by their uids, and all objects of a kind, as they would be. Whatever
    /// else it reads, and all that it writes, knows nothing of this.
    #[must_use]
    pub fn supposing(&self, overlay: Arc<Overlay>) -> Self {
        let mut supposing = self.clone();
        supposing.overlay = Some(overlay);
        supposing
    }

    /// How an object would be; `None` outside where nothing is supposed of it, and inside where it would be gone.
    #[must_use]
    pub fn supposed(&self, uid: Uid) -> Option<Option<&Object>> {
        self.overlay.as_ref()?.get(uid).map(Option::as_ref)
    }

    /// Replaces objects of a kind by what they would be.
    pub(crate) fn suppose(&self, kind: &str, objects: &mut Vec<Object>) {
        let Some(supposed) = self.overlay.as_ref().and_then(|overlay| overlay.0.get(kind)) else { return };
        objects.retain(|object| !supposed.contains_key(&object.uid));
        objects.extend(supposed.values().flatten().cloned());
        objects.sort_by(|a, b| a.name.cmp(&b.name));
    }
}
