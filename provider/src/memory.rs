//! Plans and results of this process, for the plans of objects that depend on them.
//!
//! Terraform plans each resource alone, in the order of their dependencies, in one process. A reference by name to an object that was
//! planned a moment ago is then not missing; if that object is renamed, the reference has not changed. An object that refers to a replaced
//! one must itself be deleted before it and created after it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An object's kind and name.
pub(crate) type Named = (&'static str, String);

/// How a new resource asks for an object that another address has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The resource will ask again a moment later.
    On,
    /// The resource fails if it does not get the object now.
    ForTheLastTime,
}

/// An existing object that a new resource asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The new resource waits for it.
    Asked,
    /// Another resource was to destroy the object, and has released it instead.
    Given,
    /// The new resource has failed without the object.
    InVain,
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    renamed: HashMap<Named, String>,
    coming: HashSet<Named>,
    replaced: HashSet<Named>,
    stays: HashSet<Named>,
    new: HashSet<Named>,
    same: HashSet<Named>,
    moving: HashSet<Named>,
    leaving: HashSet<Named>,
    tags: bool,
    /// For each referenced object, the objects of the state that refer to it and will still do so.
    held: HashMap<Named, BTreeSet<Named>>,
    kept: HashSet<String>,
    made: HashSet<String>,
    wanted: HashMap<String, Wanted>,
}

impl Memory {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that an object is about to be, or was, created under this name.
    pub(crate) fn comes(&self, kind: &'static str, name: &str) {
        self.known().coming.insert((kind, name.to_owned()));
    }

    /// True if this run creates an object under this name, or renames an object to this name.
    pub(crate) fn is_coming(&self, kind: &'static str, name: &str) -> bool {
        self.known().coming.contains(&(kind, name.to_owned()))
    }

    /// Records that an object is about to be, or was, renamed.
    pub(crate) fn renames(&self, kind: &'static str, from: &str, to: &str) {
        let mut known = self.known();
        known.renamed.insert((kind, from.to_owned()), to.to_owned());
        known.coming.insert((kind, to.to_owned()));
    }

    /// True if both names mean the same object: they are equal, or `to` is its planned name.
    pub(crate) fn is_same(&self, kind: &'static str, from: &str, to: &str) -> bool {
        from == to || self.known().renamed.get(&(kind, from.to_owned())).is_some_and(|name| name == to)
    }

    /// True if the object of this name is renamed.
    pub(crate) fn is_given_up(&self, kind: &'static str, name: &str) -> bool {
        self.known().renamed.contains_key(&(kind, name.to_owned()))
    }

    /// True if the first object can be renamed only after the second name is free, directly or after other renames.
    pub(crate) fn waits_for(&self, kind: &'static str, name: &str, other: &str) -> bool {
        let known = self.known();
        let next = |name: &String| known.renamed.get(&(kind, name.clone())).cloned();
        let chain = std::iter::successors(next(&name.to_owned()), next);
        // A chain that leads back to itself ends too.
        chain.take(known.renamed.len()).any(|name| name == other)
    }

    /// Records that an object is destroyed and a new one is created under its name.
    pub(crate) fn replaces(&self, kind: &'static str, name: &str) {
        self.known().replaced.insert((kind, name.to_owned()));
    }

    /// True if this run replaces the object of this name.
    pub(crate) fn is_replaced(&self, kind: &'static str, name: &str) -> bool {
        self.known().replaced.contains(&(kind, name.to_owned()))
    }

    /// Records that an object of the state keeps this name, and is not replaced. False if a new object is planned under the same name.
    pub(crate) fn stays(&self, kind: &'static str, name: &str) -> bool {
        let mut known = self.known();
        let named = (kind, name.to_owned());
        let is_alone = !known.new.contains(&named);
        known.stays.insert(named);
        is_alone
    }

    /// Records that the object of this name does not stay after all.
    pub(crate) fn goes(&self, kind: &'static str, name: &str) {
        let mut known = self.known();
        let named = (kind, name.to_owned());
        for holders in known.held.values_mut() {
            holders.remove(&named);
        }
        known.stays.remove(&named);
    }

    /// Records that an object of the state does not change.
    pub(crate) fn remains(&self, kind: &'static str, name: &str) {
        self.known().same.insert((kind, name.to_owned()));
    }

    /// Records that an object of the state is changed or destroyed.
    pub(crate) fn moves(&self, kind: &'static str, name: &str) {
        self.known().moving.insert((kind, name.to_owned()));
    }

    /// Records that an object of the state is destroyed. Returns the known objects that refer to it and stay.
    pub(crate) fn leaves(&self, kind: &'static str, name: &str) -> Vec<Named> {
        let mut known = self.known();
        let named = (kind, name.to_owned());
        let holders = known.held.get(&named).into_iter().flatten().cloned().collect();
        known.leaving.insert(named);
        holders
    }

    /// True if an object of this name in the state is planned to be destroyed.
    pub(crate) fn is_leaving(&self, kind: &'static str, name: &str) -> bool {
        self.known().leaving.contains(&(kind, name.to_owned()))
    }

    /// Records that the object is deleted now: the name means another object from now on.
    pub(crate) fn left(&self, kind: &'static str, name: &str) {
        self.known().leaving.remove(&(kind, name.to_owned()));
    }

    /// Records a reference that stays. True if its target is to be destroyed.
    pub(crate) fn holds(&self, kind: &'static str, name: &str, to: Named) -> bool {
        let mut known = self.known();
        let is_leaving = known.leaving.contains(&to);
        known.held.entry(to).or_default().insert((kind, name.to_owned()));
        is_leaving
    }

    /// True if the object was planned, and this run does not change it, as far as is known.
    pub(crate) fn is_the_same(&self, kind: &'static str, name: &str) -> bool {
        self.known().same.contains(&(kind, name.to_owned())) && !self.is_moving(kind, name)
    }

    /// True if this run changes the object.
    pub(crate) fn is_moving(&self, kind: &'static str, name: &str) -> bool {
        let (known, named) = (self.known(), (kind, name.to_owned()));
        known.moving.contains(&named) || known.replaced.contains(&named) || known.coming.contains(&named)
    }

    /// Records that tags of machines change.
    pub(crate) fn tags(&self) {
        self.known().tags = true;
    }

    /// True if deployments may get machines in this run that they would not get now, by the plans so far: a machine is created or changed,
    /// or a deployment is changed or destroyed. With `minds_tags`, also a change of machine tags.
    pub(crate) fn may_free_machines(&self, minds_tags: bool) -> bool {
        let known = self.known();
        let is_one = |(kind, _): &Named| *kind == "Machine";
        (minds_tags && known.tags)
            || known.coming.iter().any(is_one)
            || known.moving.iter().any(|named| is_one(named) || named.0 == "Deployment")
    }

    /// Records that a new object is planned under this name. False if an object of the state keeps the name.
    pub(crate) fn is_to_be(&self, kind: &'static str, name: &str) -> bool {
        let mut known = self.known();
        let named = (kind, name.to_owned());
        let is_alone = !known.stays.contains(&named);
        known.new.insert(named);
        is_alone
    }

    /// Records that the new object of this name exists now.
    pub(crate) fn is_there(&self, kind: &'static str, name: &str) {
        self.known().new.remove(&(kind, name.to_owned()));
    }

    /// Records that the object of this uid is in the state.
    pub(crate) fn keeps(&self, uid: &str) {
        self.known().kept.insert(uid.to_owned());
    }

    /// True if a read has seen the object of this uid in the state.
    pub(crate) fn is_kept(&self, uid: &str) -> bool {
        self.known().kept.contains(uid)
    }

    /// Records that a resource has created the object of this uid. False if another resource of this run has created it.
    pub(crate) fn makes(&self, uid: &str) -> bool {
        self.known().made.insert(uid.to_owned())
    }

    /// True if a resource of this run has created the object of this uid.
    pub(crate) fn is_made(&self, uid: &str) -> bool {
        self.known().made.contains(uid)
    }

    /// A new resource asks for the existing object of this uid. True once another resource gives the object away.
    pub(crate) fn asks_for(&self, uid: &str, asks: Asks) -> bool {
        let mut known = self.known();
        let wanted = known.wanted.entry(uid.to_owned()).or_insert(Wanted::Asked);
        if asks == Asks::ForTheLastTime && *wanted == Wanted::Asked {
            *wanted = Wanted::InVain;
        }
        *wanted == Wanted::Given
    }

    /// A resource is to destroy the object of this uid. A new resource that asks for the object gets it.
    pub(crate) fn gives(&self, uid: &str) -> Option<Wanted> {
        let mut known = self.known();
        let wanted = known.wanted.get_mut(uid)?;
        if *wanted == Wanted::Asked {
            *wanted = Wanted::Given;
        }
        Some(*wanted)
    }

    /// Forgets everything: another run begins.
    pub(crate) fn forget(&self) {
        *self.known() = Known::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_object_and_one_that_stays_do_not_have_one_name() {
        let memory = Memory::default();
        assert!(memory.stays("Zone", "a") && !memory.is_to_be("Zone", "a"));
        assert!(memory.is_to_be("Zone", "b") && !memory.stays("Zone", "b"));
        assert!(memory.is_to_be("Pool", "a"), "of another kind");
        memory.goes("Zone", "a");
        assert!(memory.is_to_be("Zone", "a"), "the other one goes");
        memory.is_there("Zone", "a");
        assert!(memory.stays("Zone", "a"), "it is the same by now");
    }

    #[test]
    fn an_object_is_given_to_the_new_resource_that_waits_for_it_and_to_none_that_has_failed() {
        let memory = Memory::default();
        assert_eq!(memory.gives("a"), None, "nobody wants it");
        assert!(!memory.asks_for("a", Asks::On));
        assert_eq!(memory.gives("a"), Some(Wanted::Given));
        assert!(memory.asks_for("a", Asks::On));
        assert!(!memory.asks_for("b", Asks::On) && !memory.asks_for("b", Asks::ForTheLastTime));
        assert_eq!(memory.gives("b"), Some(Wanted::InVain));
        assert!(!memory.asks_for("c", Asks::On));
        memory.gives("c");
        assert!(memory.asks_for("c", Asks::ForTheLastTime), "it was given just in time");
    }

    #[test]
    fn machines_come_free_by_others_and_not_by_one_more_deployment() {
        let memory = Memory::default();
        memory.comes("Deployment", "a");
        memory.moves("Zone", "row-1");
        assert!(!memory.may_free_machines(true));
        memory.moves("Deployment", "b");
        assert!(memory.may_free_machines(false), "it may go, or be installed anew");
        memory.forget();
        memory.comes("Machine", "m1");
        assert!(memory.may_free_machines(false));
        memory.forget();
        memory.tags();
        assert!(memory.may_free_machines(true) && !memory.may_free_machines(false), "for whom tags matter");
    }

    #[test]
    fn who_swaps_names_waits_for_each_other() {
        let memory = Memory::default();
        for (from, to) in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")] {
            memory.renames("Zone", from, to);
        }
        assert!(memory.waits_for("Zone", "b", "a"), "by way of c");
        assert!(!memory.waits_for("Zone", "a", "d"), "nobody wants it");
        assert!(!memory.waits_for("Zone", "e", "a"), "it stays");
        assert!(memory.is_given_up("Zone", "d") && !memory.is_given_up("Zone", "e"));
    }

    #[test]
    fn what_goes_is_told_from_what_holds_it_whichever_is_seen_first() {
        let memory = Memory::default();
        let machine = |name: &str| ("Machine", name.to_owned());
        assert!(!memory.holds("Deployment", "web", machine("m1")));
        assert_eq!(memory.leaves("Machine", "m1"), [("Deployment", "web".to_owned())]);
        assert_eq!(memory.leaves("Machine", "m2"), []);
        assert!(memory.holds("Deployment", "db", machine("m2")));
        memory.goes("Deployment", "web");
        assert_eq!(memory.leaves("Machine", "m1"), [], "it goes as well");
    }

    #[test]
    fn a_renamed_object_is_the_same_and_its_new_name_comes() {
        let memory = Memory::default();
        memory.renames("Fabric", "default", "core");
        assert!(memory.is_same("Fabric", "default", "core"));
        assert!(memory.is_coming("Fabric", "core"));
        assert!(!memory.is_same("Fabric", "core", "default"), "a rename has a direction");
        assert!(!memory.is_same("Zone", "default", "core"));
        memory.forget();
        assert!(!memory.is_same("Fabric", "default", "core"));
    }
}
