//! Leases that a region reports, converted for the core.

use std::time::Duration;

use basalt_dhcp::{Grantor, Time, Told};
use basalt_proto::rack_v1::RackLease;
use basalt_proto::rack_v1::rack_lease::Grantor as By;

/// Converts a lease; `None` if it has no IPv4 address or no MAC.
pub(super) fn told(lease: RackLease, now: Time) -> Option<Told> {
    let by = match lease.by() {
        By::Self_ => Grantor::Own,
        By::Owner => Grantor::Owner,
        By::Unspecified => Grantor::Another,
    };
    let at = |in_ms: i64| {
        let away = Duration::from_millis(in_ms.unsigned_abs());
        if in_ms < 0 { now.before(away) } else { now + away }
    };
    Some(Told {
        address: lease.address.parse().ok()?,
        mac: lease.mac.parse().ok()?,
        subnet: lease.subnet_uid,
        hostname: Some(lease.hostname).filter(|name| !name.is_empty()),
        ends: at(lease.ends_in_ms),
        kept_until: Some(lease.kept_for_ms).filter(|&ms| ms != 0).map(at),
        given_back: lease.given_back,
        by,
    })
}
