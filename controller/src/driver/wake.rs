//! Wakes objects that depend on changed objects.
//!
//! Changes come faster than all objects of a kind can be woken. The changes that come during one round of wake-ups are answered together by
//! the next round. So ten thousand changes do not each wake ten thousand machines. The settled ones among them are woken at a pace
//! ([`basalt_db::wake`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use basalt_db::change::{Change, Op};
use basalt_db::{Store, StoreError, trace};
use tokio::sync::{Notify, broadcast};

use crate::driver::allocate::Allocator;

/// The kinds that depend on other kinds: a change of the first one wakes every object of the others.
const WAKES: &[(&str, &[&str])] = &[
    ("Fabric", &["Rack"]),
    ("Vlan", &["Rack", "Machine", "Discovery"]),
    ("Subnet", &["Rack", "Machine", "Discovery", "Subnet", "Domain"]),
    ("IpRange", &["Rack", "Subnet", "Domain"]),
    ("IpAddress", &["Rack", "Domain"]),
    ("StaticRoute", &["Rack"]),
    ("Device", &["Rack", "Discovery", "Subnet", "Domain"]),
    // Machines have their names in the default domain.
    ("Domain", &["Rack", "Subnet", "Machine"]),
    ("Image", &["Rack", "Machine"]),
    ("Rack", &["Machine", "Discovery"]),
    ("Script", &["Machine"]),
    ("Settings", &["Machine", "Rack", "Subnet", "Domain", "Discovery"]),
];

/// The pause before the next try, after a failure of the database.
const PAUSE: Duration = Duration::from_secs(1);

/// True if objects of a kind depend on those of another kind.
pub(crate) fn decides(kind: &str, from: &str) -> bool {
    WAKES.iter().any(|(of, kinds)| *of == from && kinds.contains(&kind))
}

/// Wakes every object that depends on objects of a changed kind. An empty kind stands for all kinds.
///
/// # Errors
/// Fails if the database cannot be written.
pub async fn wake_for(store: &Store, changed: &str) -> Result<(), StoreError> {
    let due = Due::default();
    due.note(WAKES.iter().filter(|(kind, _)| changed.is_empty() || *kind == changed).flat_map(to), None);
    for (kind, _) in due.take() {
        store.enqueue_kind(kind).await?;
    }
    Ok(())
}

/// Wakes dependent objects on each change, until there are no more changes.
pub(crate) async fn follow(
    store: Store,
    allocator: Arc<Allocator>,
    changes: broadcast::Receiver<Arc<Change>>,
) {
    let due = Due::default();
    tokio::select! {
        () = collect(&due, &allocator, changes) => {}
        () = wake(&due, &store) => {}
    }
}

fn to(row: &(&str, &'static [&'static str])) -> impl Iterator<Item = &'static str> + use<> {
    row.1.iter().copied()
}

/// The kinds whose objects are woken by a change.
fn dependents(change: &Change) -> Vec<&'static str> {
    match (change.op, change.kind.as_str()) {
        (Op::Status, _) => Vec::new(),
        // An existing tag evaluates its machines itself.
        (Op::Delete, "Tag") => vec!["Machine"],
        // An existing machine writes its entries for racks itself.
        (Op::Delete, "Machine") => vec!["Rack"],
        (_, kind) => WAKES.iter().filter(|(of, _)| *of == kind).flat_map(to).collect(),
    }
}

/// Takes changes as they come, and waits for nothing else. If it is too slow, it must assume that everything has changed.
async fn collect(due: &Due, allocator: &Allocator, mut changes: broadcast::Receiver<Arc<Change>>) {
    loop {
        match changes.recv().await {
            Ok(change) => {
                allocator.note(&change);
                due.note(dependents(&change), change.trace.as_ref());
            }
            Err(broadcast::error::RecvError::Lagged(_)) => {
                allocator.note_any();
                due.note(WAKES.iter().flat_map(to), None);
            }
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

async fn wake(due: &Due, store: &Store) {
    loop {
        for (kind, of) in due.next().await {
            if let Err(error) = trace::within(of.clone(), store.enqueue_kind(kind)).await {
                tracing::warn!(%error, kind, "objects were not woken; trying again");
                due.note([kind], of.as_ref());
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// The kinds whose objects must be woken, each with the trace of one of the changes.
#[derive(Debug, Default)]
struct Due {
    kinds: Mutex<BTreeMap<&'static str, Option<String>>>,
    some: Notify,
}

impl Due {
    fn note(&self, kinds: impl IntoIterator<Item = &'static str>, trace: Option<&String>) {
        let mut due = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        for kind in kinds {
            let of = due.entry(kind).or_default();
            *of = trace.cloned().or_else(|| of.take());
        }
        if !due.is_empty() {
            self.some.notify_one();
        }
    }

    fn take(&self) -> BTreeMap<&'static str, Option<String>> {
        std::mem::take(&mut *self.kinds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All due kinds, as soon as there is one.
    async fn next(&self) -> BTreeMap<&'static str, Option<String>> {
        loop {
            let due = self.take();
            if !due.is_empty() {
                return due;
            }
            self.some.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_asked_for_often_is_done_once_and_what_is_asked_for_later_is_not_lost() {
        let due = Due::default();
        for number in 0..10_000 {
            let trace = (number == 17).then(|| "t".to_owned());
            due.note(["Rack", "Machine"], trace.as_ref());
        }
        let kinds = due.next().await;
        assert_eq!(
            kinds.into_iter().collect::<Vec<_>>(),
            [("Machine", Some("t".to_owned())), ("Rack", Some("t".to_owned()))]
        );
        assert!(due.take().is_empty());
        let (later, ()) = tokio::join!(due.next(), async { due.note(["Rack"], None) });
        assert_eq!(later.into_keys().collect::<Vec<_>>(), ["Rack"]);
    }
}
