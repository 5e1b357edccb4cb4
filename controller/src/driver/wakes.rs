//! What is worked on anew because something else has changed.
//!
//! Changes come faster than all objects of a kind can be woken: those that come during one waking are answered by the next one
//! together, so that ten thousand changes do not wake ten thousand machines each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use basalt_db::change::{Change, Op};
use basalt_db::{Store, StoreError, trace};
use tokio::sync::{Notify, broadcast};

use super::allocate::Allocator;

/// Which kinds decide from which: a change of the first wakes every object of the others.
const WAKES: &[(&str, &[&str])] = &[
    ("Fabric", &["Rack"]),
    ("Vlan", &["Rack", "Machine", "Discovery"]),
    ("Subnet", &["Rack", "Machine", "Discovery", "Subnet", "Domain"]),
    ("IpRange", &["Rack", "Subnet", "Domain"]),
    ("IpAddress", &["Rack", "Domain"]),
    ("StaticRoute", &["Rack"]),
    ("Device", &["Discovery", "Subnet", "Domain"]),
    ("Domain", &["Rack", "Subnet"]),
    ("Image", &["Rack", "Machine"]),
    ("Rack", &["Machine", "Discovery"]),
    ("Script", &["Machine"]),
    ("Settings", &["Machine", "Rack", "Subnet", "Domain", "Discovery"]),
];

/// Until the next try, after the database has refused one.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether objects of a kind decide from those of another one.
pub(super) fn decides(kind: &str, from: &str) -> bool {
    WAKES.iter().any(|(of, kinds)| *of == from && kinds.contains(&kind))
}

/// Wakes every object that decides from those of a changed kind; of an empty one, whatever decides from anything.
///
/// # Errors
/// The database.
pub async fn wake_for(store: &Store, changed: &str) -> Result<(), StoreError> {
    let due = Due::default();
    due.note(WAKES.iter().filter(|(kind, _)| changed.is_empty() || *kind == changed).flat_map(to), None);
    for (kind, _) in due.take() {
        store.enqueue_kind(kind).await?;
    }
    Ok(())
}

/// Wakes what decides from what changes, until there are no more changes.
pub(super) async fn follow(
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
        // While it is there, it looks after its machines itself.
        (Op::Delete, "Tag") => vec!["Machine"],
        // While it is there, it tells racks itself.
        (Op::Delete, "Machine") => vec!["Rack"],
        (_, kind) => WAKES.iter().filter(|(of, _)| *of == kind).flat_map(to).collect(),
    }
}

/// Takes changes as they come, and waits for nothing else: whoever is too slow here has to take it that everything has changed.
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

/// The kinds whose objects are to be woken, each with the trace of a change that asks for it.
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

    /// All of them, as soon as there is one.
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
