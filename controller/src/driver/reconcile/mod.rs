//! The reconciliation of one object of each kind.
//!
//! | module | reconciles |
//! | --- | --- |
//! | [`machine`] | a Machine: plan, do the next step, write the status |
//! | [`deployment`] | a Deployment: claim a machine, and report its state |
//! | [`rack`], [`image`], [`tag`] | a Rack, an Image, a Tag |
//! | [`domain`], [`subnet`] | a Domain, a Subnet: the zones of their names |
//! | [`discovery`], [`strangers`] | a Discovery: an undeclared DHCP server, or an undeclared machine and its enlistment |

pub mod deployment;
pub mod discovery;
pub mod domain;
pub mod image;
pub mod machine;
pub mod rack;
pub mod strangers;
pub mod subnet;
pub mod tag;

/// The kinds whose objects are reconciled. The others are ready as soon as they are stored.
pub const RECONCILED: &[&str] = &["Machine", "Deployment", "Rack", "Image", "Tag", "Discovery", "Domain"];

/// Kinds with work for the driver although their objects are ready as soon as they are stored: a Subnet's addresses have DNS names.
pub const ALSO_WORKED_ON: &[&str] = &["Subnet"];

#[cfg(test)]
mod tests {
    use super::RECONCILED;
    use std::collections::BTreeMap;

    /// Kinds without actions of their own: the driver reads them for other objects, or they decide about rights.
    const READ_BY_OTHERS: &[&str] = &[
        "Vlan",
        "Subnet",
        "IpRange",
        "IpAddress",
        "StaticRoute",
        "Device",
        "DnsRecord",
        "Settings",
        "Script",
        "PackageRepository",
        "Webhook",
        "Role",
        "User",
        "ApiToken",
    ];

    /// Kinds that only group other objects.
    const GROUPING: &[&str] = &["Zone", "Pool", "Space", "Fabric"];

    /// A kind that exists only for tests of generic code.
    const FOR_TESTS: &[&str] = &["Sample"];

    #[test]
    fn each_kind_is_in_exactly_one_class() {
        let is_dormant = |kind: &&&basalt_api::Kind| kind.dormant.is_some();
        let dormant: Vec<&str> = basalt_api::KINDS.iter().filter(is_dormant).map(|kind| kind.name).collect();
        let classes = [RECONCILED, &dormant, READ_BY_OTHERS, GROUPING, FOR_TESTS];
        let mut times: BTreeMap<&str, usize> = basalt_api::KINDS.iter().map(|kind| (kind.name, 0)).collect();
        for name in classes.into_iter().flatten().filter(|name| !FOR_TESTS.contains(name)) {
            *times.get_mut(name).unwrap_or_else(|| panic!("there is no kind {name}")) += 1;
        }
        times.retain(|name, times| *times != usize::from(!FOR_TESTS.contains(name)));
        assert!(times.is_empty(), "a new kind says here what becomes of it: {times:?}");
        let planned = || basalt_api::KINDS.iter().filter(|kind| kind.planned);
        assert!(planned().all(|kind| RECONCILED.contains(&kind.name)));
    }
}
