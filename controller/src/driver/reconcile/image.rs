//! The reconciliation of an image: its status lists the files that the region does not hold yet.
//!
//! No action is taken here: people and programs upload blobs, and users of the image check the blobs themselves.

use std::collections::{BTreeMap, BTreeSet};

use basalt_api::kinds::{Condition, FileRole, ImagePurpose, ImageSpec, ImageStatus};
use basalt_api::values::Timestamp;
use basalt_db::{Object, Requeue, StoreError, WorkLease};

use crate::driver::context::Driver;
use crate::driver::status::{settled, to_json};
use crate::driver::stored::spec;
use crate::driver::topology::estate::digest;

/// Reconciles one image.
///
/// # Errors
/// Fails if the database fails, or if the lease is over.
pub async fn reconcile(driver: &Driver, lease: &WorkLease) -> Result<Requeue, StoreError> {
    let Some(object) = driver.store.get_by_uid(lease.uid).await? else { return Ok(Requeue::WhenWoken) };
    if object.deletion_requested_at.is_some() {
        // The store deletes it when no object refers to it any more.
        return Ok(Requeue::WhenWoken);
    }
    let declared: ImageSpec = spec(&object)?;
    let mut held = BTreeMap::new();
    for (role, file) in &declared.files {
        if let Some(blob) = driver.store.blob(file.sha256.bytes()).await? {
            held.insert(*role, blob.size);
        }
    }
    let status = status(&object, &declared, &held, driver.store.now().await?);
    driver.write_status(lease, object.generation, &to_json(&status)?).await?;
    Ok(Requeue::WhenWoken)
}

/// The status of an image. `held` are the sizes of the files that the region holds.
fn status(
    object: &Object,
    declared: &ImageSpec,
    held: &BTreeMap<FileRole, u64>,
    now: Timestamp,
) -> ImageStatus {
    let before: ImageStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
    let mut status = ImageStatus::default();
    status.common.observed_generation = object.generation;
    status.digest = Some(digest(declared));
    status.missing = declared.files.keys().copied().filter(|role| !held.contains_key(role)).collect();
    status.common.conditions = conditions(declared, &status.missing, held, now);
    basalt_engine::machine::carry_since(&before.common.conditions, &mut status.common.conditions, now);
    status
}

fn conditions(
    declared: &ImageSpec,
    missing: &BTreeSet<FileRole>,
    held: &BTreeMap<FileRole, u64>,
    now: Timestamp,
) -> Vec<Condition> {
    let installable = declared.purpose != ImagePurpose::Deploy || declared.root().is_some();
    let complete = missing.is_empty() && installable;
    let (reason, message) = if !installable {
        let forms: Vec<String> = declared.files.keys().map(ToString::to_string).collect();
        let message =
            format!("nothing can install {} yet: declare a root_tarball among its files", forms.join(", "));
        ("NotInstallable", message)
    } else if complete {
        let bytes: u64 = held.values().sum();
        ("Complete", format!("all of its files are here: {} with {bytes} bytes", held.len()))
    } else {
        let files = missing.iter().filter_map(|role| Some((role, declared.files.get(role)?)));
        let files: Vec<String> =
            files.map(|(role, file)| format!("{role} (sha256 {})", file.sha256)).collect();
        let message = format!(
            "not uploaded yet: {}; upload the image with `basalt image push`, or declare the hashes of what is here",
            files.join(", ")
        );
        ("FilesMissing", message)
    };
    // A person must upload the files; nothing changes without that.
    settled(complete, reason, &message, now)
}
