//! What this process has planned and done, for the plans of what depends on it.
//!
//! Terraform plans each resource alone, in the order of their dependencies, and does so in one process. A reference by
//! name to something planned a moment ago is then neither missing nor, if that was a rename, a change. And what refers to
//! an object that is replaced must itself go before it and come after it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An object's kind and name.
pub(crate) type Named = (&'static str, String);

/// How a new resource asks for an object that another address has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// It asks again a moment later.
    On,
    /// It fails if it does not get the object now.
    ForTheLastTime,
}

/// An object that a new resource would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The new resource waits for it.
    Asked,
    /// Another resource was to destroy the object, and has given it away.
    Given,
    /// The new resource has failed without it.
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
    /// What objects of the state refer to, and will.
    held: HashMap<Named, BTreeSet<Named>>,
    kept: HashSet<String>,
    made: HashSet<String>,
    wanted: HashMap<String, Wanted>,
}

impl Memory {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object is about to be, or was, created under this name.
    pub(crate) fn comes(&self, kind: &'static str, name: &str) {
        self.known().coming.insert((kind, name.to_owned()));
    }

    /// Whether an object of this name comes in this run.
    pub(crate) fn is_coming(&self, kind: &'static str, name: &str) -> bool {
        self.known().coming.contains(&(kind, name.to_owned()))
    }

    /// An object is about to be, or was, renamed.
    pub(crate) fn renames(&self, kind: &'static str, from: &str, to: &str) {
        let mut known = self.known();
        known.renamed.insert((kind, from.to_owned()), to.to_owned());
        known.coming.insert((kind, to.to_owned()));
    }

    /// Whether both names mean the same object, of which one is its name to be.
    pub(crate) fn is_same(&self, kind: &'static str, from: &str, to: &str) -> bool {
        from == to || self.known().renamed.get(&(kind, from.to_owned())).is_some_and(|name| name == to)
    }

    /// Whether the object of this name is to have another one.
    pub(crate) fn is_given_up(&self, kind: &'static str, name: &str) -> bool {
        self.known().renamed.contains_key(&(kind, name.to_owned()))
    }

    /// Whether the object of the first name can only be renamed once the second one is free: directly, or because others wait in between.
    pub(crate) fn waits_for(&self, kind: &'static str, name: &str, other: &str) -> bool {
        let known = self.known();
        let next = |name: &String| known.renamed.get(&(kind, name.clone())).cloned();
        let chain = std::iter::successors(next(&name.to_owned()), next);
        // A chain that leads back to itself ends too.
        chain.take(known.renamed.len()).any(|name| name == other)
    }

    /// An object is to be destroyed, and another created under its name.
    pub(crate) fn replaces(&self, kind: &'static str, name: &str) {
        self.known().replaced.insert((kind, name.to_owned()));
    }

    /// Whether this name will be another object's.
    pub(crate) fn is_replaced(&self, kind: &'static str, name: &str) -> bool {
        self.known().replaced.contains(&(kind, name.to_owned()))
    }

    /// An object of the state is planned to have this name, and to be the object that it is; false where a new one is planned
    /// under the same name.
    pub(crate) fn stays(&self, kind: &'static str, name: &str) -> bool {
        let mut known = self.known();
        let named = (kind, name.to_owned());
        let is_alone = !known.new.contains(&named);
        known.stays.insert(named);
        is_alone
    }

    /// The object of this name goes after all, as far as this run is concerned.
    pub(crate) fn goes(&self, kind: &'static str, name: &str) {
        let mut known = self.known();
        let named = (kind, name.to_owned());
        for holders in known.held.values_mut() {
            holders.remove(&named);
        }
        known.stays.remove(&named);
    }

    /// An object of the state is planned to be just as it is.
    pub(crate) fn remains(&self, kind: &'static str, name: &str) {
        self.known().same.insert((kind, name.to_owned()));
    }

    /// An object of the state is planned to be otherwise, or to go.
    pub(crate) fn moves(&self, kind: &'static str, name: &str) {
        self.known().moving.insert((kind, name.to_owned()));
    }

    /// An object of the state is to be destroyed; who refers to it and stays, as far as that was looked at.
    pub(crate) fn leaves(&self, kind: &'static str, name: &str) -> Vec<Named> {
        let mut known = self.known();
        let named = (kind, name.to_owned());
        let holders = known.held.get(&named).into_iter().flatten().cloned().collect();
        known.leaving.insert(named);
        holders
    }

    /// Whether an object of the state of this name is to be destroyed, as far as that was planned.
    pub(crate) fn is_leaving(&self, kind: &'static str, name: &str) -> bool {
        self.known().leaving.contains(&(kind, name.to_owned()))
    }

    /// The object goes now: what its name means next is another.
    pub(crate) fn left(&self, kind: &'static str, name: &str) {
        self.known().leaving.remove(&(kind, name.to_owned()));
    }

    /// An object of the state refers to another, and will; whether that is to be destroyed.
    pub(crate) fn holds(&self, kind: &'static str, name: &str, to: Named) -> bool {
        let mut known = self.known();
        let is_leaving = known.leaving.contains(&to);
        known.held.entry(to).or_default().insert((kind, name.to_owned()));
        is_leaving
    }

    /// Whether nothing of this run changes the object, as far as is known: it was looked at, and stays just as it is.
    pub(crate) fn is_the_same(&self, kind: &'static str, name: &str) -> bool {
        self.known().same.contains(&(kind, name.to_owned())) && !self.is_moving(kind, name)
    }

    /// Whether this run changes the object.
    pub(crate) fn is_moving(&self, kind: &'static str, name: &str) -> bool {
        let (known, named) = (self.known(), (kind, name.to_owned()));
        known.moving.contains(&named) || known.replaced.contains(&named) || known.coming.contains(&named)
    }

    /// Machines are to have other tags.
    pub(crate) fn tags(&self) {
        self.known().tags = true;
    }

    /// Whether deployments may get machines in this run that they would not get now, as far as it was planned: a machine comes or changes, or a
    /// deployment of the state does, or goes; for whom it matters, also one that has other tags.
    pub(crate) fn may_free_machines(&self, minds_tags: bool) -> bool {
        let known = self.known();
        let is_one = |(kind, _): &Named| *kind == "Machine";
        (minds_tags && known.tags)
            || known.coming.iter().any(is_one)
            || known.moving.iter().any(|named| is_one(named) || named.0 == "Deployment")
    }

    /// A new object is planned under this name; false where one of the state has it and stays.
    pub(crate) fn is_to_be(&self, kind: &'static str, name: &str) -> bool {
        let mut known = self.known();
        let named = (kind, name.to_owned());
        let is_alone = !known.stays.contains(&named);
        known.new.insert(named);
        is_alone
    }

    /// The new object of this name is there.
    pub(crate) fn is_there(&self, kind: &'static str, name: &str) {
        self.known().new.remove(&(kind, name.to_owned()));
    }

    /// The object of this uid is in the state.
    pub(crate) fn keeps(&self, uid: &str) {
        self.known().kept.insert(uid.to_owned());
    }

    /// Whether the object of this uid is in the state, as far as that was read.
    pub(crate) fn is_kept(&self, uid: &str) -> bool {
        self.known().kept.contains(uid)
    }

    /// A resource has created the object of this uid; false where another one of this run has.
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

    /// Another run begins.
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
