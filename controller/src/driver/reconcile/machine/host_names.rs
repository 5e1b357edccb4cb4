//! The DNS names that Basalt gives a machine.
//!
//! | name | exists while |
//! | --- | --- |
//! | the machine's name | the machine has an address |
//! | the deployment's name, and its host name | the deployment's system is installed |
//!
//! The main name is the deployment's host name, or else the machine's name. The system uses it as its host name, and the
//! addresses resolve back to it. A name without dots is in the machine's domain, or in the default domain. A name with dots is in the
//! longest declared domain that it ends with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use basalt_db::{HostName, StoreError};

use crate::driver::context::Driver;
use crate::driver::machine::Loaded;
use crate::driver::topology::estate::{DomainSeen, Estate};

/// The names of a machine. `addresses` are by interface, as in the status.
#[must_use]
pub(super) fn of_machine(
    estate: &Estate,
    loaded: &Loaded,
    is_installed: bool,
    addresses: &BTreeMap<String, IpAddr>,
) -> BTreeSet<HostName> {
    let input = &loaded.input;
    let deployment = input.claim.as_ref().filter(|_| is_installed);
    let hostname = deployment.and_then(|claim| claim.spec.hostname.as_ref()).map(|it| it.as_str());
    let deployed = deployment.map(|claim| claim.name.as_str());
    let own = input.spec.domain.as_ref().map(|domain| domain.as_str());
    let own = own.and_then(|name| estate.domains.iter().find(|domain| domain.name == name));
    let domain = own.or_else(|| estate.default_domain());
    let addresses = main_addresses(loaded, addresses);
    let mut names = BTreeSet::new();
    let names_of = [(Some(input.name.as_str()), hostname.is_none()), (deployed, false), (hostname, true)];
    for (name, is_main) in names_of {
        let Some((domain, host)) = name.and_then(|name| place(&estate.domains, domain, name)) else {
            continue;
        };
        names.extend(addresses.iter().map(|address| HostName {
            domain: domain.uid,
            host: host.clone(),
            address: *address,
            is_main,
        }));
    }
    // Two of them may be the same.
    let main: BTreeSet<_> = names.iter().filter(|it| it.is_main).cloned().collect();
    names.retain(|it| it.is_main || !main.contains(&HostName { is_main: true, ..it.clone() }));
    names
}

/// The addresses of a machine's names: the addresses of the boot interface. If it has none, all addresses.
fn main_addresses(loaded: &Loaded, addresses: &BTreeMap<String, IpAddr>) -> BTreeSet<IpAddr> {
    let inventory = loaded.input.facts.inventory.as_ref().map(|seen| &seen.inventory);
    let boots = inventory.and_then(|it| it.nics.iter().find(|nic| nic.boot)).map(|nic| nic.name.as_str());
    let of_boot = |name: &str| boots.is_some_and(|nic| name.split('/').next() == Some(nic));
    let main: BTreeSet<_> =
        addresses.iter().filter(|(name, _)| of_boot(name)).map(|(_, address)| *address).collect();
    if main.is_empty() { addresses.values().copied().collect() } else { main }
}

/// The domain of a host name, and the name below it; `None` if it is in no declared domain.
fn place<'a>(
    domains: &'a [DomainSeen],
    own: Option<&'a DomainSeen>,
    name: &str,
) -> Option<(&'a DomainSeen, String)> {
    let name = name.to_ascii_lowercase();
    let below = |domain: &'a DomainSeen| {
        let host = name.strip_suffix(&domain.name)?.strip_suffix('.')?;
        Some((domain, host.to_owned()))
    };
    match name.contains('.') {
        true => domains.iter().filter_map(below).min_by_key(|(_, host)| host.len()),
        false => own.map(|domain| (domain, name)),
    }
}

/// Writes the names of a machine if they differ from the stored names.
///
/// # Errors
/// Fails if the database cannot be written.
pub(super) async fn write_names(
    driver: &Driver,
    loaded: &Loaded,
    names: &BTreeSet<HostName>,
) -> Result<(), StoreError> {
    if loaded.host_names == *names {
        return Ok(());
    }
    driver.store.put_host_names(loaded.input.uid.into(), names).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::kinds::DomainSpec;

    #[test]
    fn a_host_name_with_dots_is_in_the_longest_domain_that_it_ends_with() {
        let domain = |number: u128, name: &str| DomainSeen {
            uid: uuid::Uuid::from_u128(number).into(),
            name: name.to_owned(),
            spec: DomainSpec::default(),
        };
        let domains = [domain(1, "example"), domain(2, "lab.example"), domain(3, "other")];
        let at =
            |name: &str| place(&domains, domains.last(), name).map(|(it, host)| (it.name.as_str(), host));
        assert_eq!(at("Web1"), Some(("other", "web1".to_owned())));
        assert_eq!(at("web1.lab.example"), Some(("lab.example", "web1".to_owned())));
        assert_eq!(at("web1.x.example"), Some(("example", "web1.x".to_owned())));
        assert_eq!(at("web1.elsewhere"), None);
        assert_eq!(at("lab.example"), Some(("example", "lab".to_owned())));
    }
}
