//! The work on a Subnet: publishes the zones that its addresses have their names in.

use std::time::Duration;

use basalt_api::values::SubnetId;
use basalt_db::{Requeue, StoreError, WorkLease};

use crate::driver::context::Driver;
use crate::driver::zones::{self, reverse};

/// Works on one subnet: publishes the zones that its addresses have their names in.
///
/// # Errors
/// Fails if the database cannot be read or written.
pub async fn reconcile(driver: &Driver, lease: &WorkLease) -> Result<Requeue, StoreError> {
    let subnet = SubnetId::from(lease.uid);
    let estate = driver.estate().await?;
    let Some(net) = estate.nets.iter().find(|net| net.uid == subnet) else { return Ok(Requeue::WhenWoken) };
    let own = reverse::zones(net.subnet.cidr, net.subnet.rdns);
    for zone in estate.reverse_zones().intersection(&own.into_iter().collect()) {
        if !zones::publish_reverse(&driver.store, &driver.topology, &driver.meters, zone).await? {
            return Ok(Requeue::After(Duration::ZERO));
        }
    }
    Ok(Requeue::WhenWoken)
}
