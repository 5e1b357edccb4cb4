//! A layout's name for a disk must select exactly one disk of the machine's inventory, if the machine has one.
//!
//! An inventory may change after the write, so the planner checks the names again before an install.

use super::Subject;
use crate::StoreError;
use crate::store::Tx;
use basalt_api::FieldError;
use basalt_api::kinds::{Disk, StorageConfig};
use basalt_api::values::Uid;
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// A storage layout that names disks of a machine.
struct Layout {
    subject: Uid,
    machine: Uuid,
    storage: StorageConfig,
}

/// Errors for names of disks that do not select exactly one disk, in subjects whose storage or machine changes.
pub(super) async fn misnamed(
    tx: &mut Tx,
    subjects: &[Subject<'_>],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let layouts: Vec<Layout> = subjects.iter().filter_map(layout).collect();
    if layouts.is_empty() {
        return Ok(Vec::new());
    }
    let machines: Vec<Uuid> = layouts.iter().map(|layout| layout.machine).collect();
    let disks = sqlx::query!(
        r#"select uid, status #> '{inventory,disks}' as "disks!" from object
           where uid = any($1) and status #> '{inventory,disks}' is not null"#,
        &machines
    );
    let mut known = HashMap::new();
    for row in disks.fetch_all(&mut **tx).await? {
        let disks: BTreeMap<String, Disk> = serde_json::from_value(row.disks)
            .map_err(|error| StoreError::Corrupt(format!("the disks of machine {}: {error}", row.uid)))?;
        known.insert(row.uid, disks);
    }
    let errors = layouts.iter().flat_map(|layout| {
        let disks = known.get(&layout.machine).into_iter().flatten();
        let names: Vec<_> = disks.map(|(name, disk)| disk.names(name)).collect();
        let errors = layout.storage.misnamed_disks(&names).into_iter();
        errors.map(|error| (layout.subject, error)).collect::<Vec<_>>()
    });
    Ok(errors.collect())
}

fn layout(subject: &Subject<'_>) -> Option<Layout> {
    let machine = match subject.kind {
        "Machine" => subject.uid,
        "Deployment" => *subject.references.get("/machine")?,
        _ => return None,
    };
    let is_changed = |pointer| {
        let before = subject.before.map(|before| before.pointer(pointer));
        before != Some(subject.spec.pointer(pointer))
    };
    let storage = subject.spec.get("storage").filter(|_| is_changed("/storage") || is_changed("/machine"))?;
    let storage: StorageConfig = serde_json::from_value(storage.clone()).ok()?;
    storage.names_disks().then_some(Layout { subject: subject.uid, machine: machine.get(), storage })
}
