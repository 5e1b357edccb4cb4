//! The reconciliation of a Domain: publishes its zone, and writes its status.

mod copies;

use std::collections::BTreeMap;
use std::time::Duration;

use basalt_api::kinds::{DomainSpec, DomainStatus};
use basalt_db::{Requeue, StoreError, WorkLease};

use crate::driver::context::Driver;
use crate::driver::status::{settled, to_json};
use crate::driver::stored::spec;
use crate::driver::topology::internal_domain::{internal_domain, is_internal};
use crate::driver::zones;

/// Reconciles one domain: publishes its zone, and writes its status.
///
/// # Errors
/// Fails if the database fails, or if the lease is over.
pub async fn reconcile(driver: &Driver, lease: &WorkLease) -> Result<Requeue, StoreError> {
    let Some(object) = driver.store.get_by_uid(lease.uid).await? else { return Ok(Requeue::WhenWoken) };
    if object.deletion_requested_at.is_some() {
        // The store lets it leave with the last object that refers to it.
        return Ok(Requeue::WhenWoken);
    }
    let declared: DomainSpec = spec(&object)?;
    let mut serial = None;
    let estate = driver.estate().await?;
    let (is_ready, reason, message) = if is_internal(&estate.settings, &object.name) {
        let internal = internal_domain(&estate.settings);
        let message = format!(
            "{internal} is the region's own domain: name this one otherwise, or change `internal_domain` of the Settings"
        );
        (false, "Internal", message)
    } else if declared.authoritative {
        let Some(published) =
            zones::publish_domain(&driver.store, &driver.topology, &driver.meters, &object).await?
        else {
            return Ok(Requeue::After(Duration::ZERO));
        };
        serial = Some(published.serial);
        match declared.secondaries.iter().find(|(_, secondary)| secondary.key.is_none()) {
            Some((name, _)) => {
                let message = format!("secondary {name} has no key and gets no copy: declare its `key`");
                (false, "NoKey", message)
            }
            None => (true, "Served", format!("{} records, serial {}", published.records, published.serial)),
        }
    } else {
        let servers: Vec<String> = declared.forward_to.iter().map(ToString::to_string).collect();
        (true, "Forwarded", format!("racks ask {}", servers.join(", ")))
    };
    let now = driver.store.now().await?;
    let before: DomainStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
    let secondaries = match serial {
        Some(_) => {
            let (store, secondaries) = (&driver.store, &declared.secondaries);
            let reports = copies::reports(store, &object.name, secondaries, &estate.racks).await?;
            copies::states(&object.name, secondaries, &estate.racks, &reports)
        }
        None => BTreeMap::new(),
    };
    let behind = copies::condition(&secondaries, now);
    let message = behind.iter().fold(message, |message, behind| format!("{message}; {}", behind.message));
    let mut status = DomainStatus { serial, secondaries, ..DomainStatus::default() };
    status.common.observed_generation = object.generation;
    status.common.conditions = settled(is_ready, reason, &message, now);
    status.common.conditions.extend(behind);
    basalt_engine::machine::carry_since(&before.common.conditions, &mut status.common.conditions, now);
    driver.write_status(lease, object.generation, &to_json(&status)?).await?;
    Ok(if status.secondaries.is_empty() { Requeue::WhenWoken } else { Requeue::After(copies::LOOK) })
}
