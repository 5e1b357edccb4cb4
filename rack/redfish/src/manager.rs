//! The BMC itself: firmware, maker, its interface in the management network, and the credential bootstrapping of its host interface.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use crate::core::{Method, Request};
use crate::error::told;
use crate::reference::name;
use crate::resource::{link, text};
use crate::service::{Exchange, Root, Service, ServiceError};

/// Interfaces of one manager that are read.
const MAX_INTERFACES: usize = 16;
/// The address that some BMCs have on their own virtual interface, which leads to the machine and nowhere else.
const VIRTUAL: IpAddr = IpAddr::V4(Ipv4Addr::new(16, 1, 15, 1));

/// A BMC (Manager of DSP2046).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manager {
    /// The maker: `Manufacturer`.
    pub manufacturer: Option<String>,
    /// `FirmwareVersion`
    pub firmware: Option<String>,
    /// Its interface in the management network. None: none has an address there.
    pub lan: Option<Lan>,
    host_interfaces: Option<String>,
}

/// An interface in the management network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lan {
    /// The address of the BMC there.
    pub address: IpAddr,
    /// A DHCP server gave it. None: the BMC does not say.
    pub is_dhcp: Option<bool>,
    /// Its MAC address, in lower case.
    pub mac: Option<String>,
}

/// Reads the BMC. `inside` is the service's address on the host interface, which nobody else reaches.
///
/// # Errors
/// [`ServiceError`].
pub fn read<E: Exchange>(
    service: &mut Service<E>,
    root: &Root,
    inside: IpAddr,
) -> Result<Manager, ServiceError> {
    let mut found = Manager::default();
    let Some(managers) = &root.managers else { return Ok(found) };
    for path in service.members(managers)? {
        let (manager, _) = service.get(&path)?;
        // Chassis and enclosures have managers of their own.
        let is_bmc =
            text(manager.get("ManagerType")).is_none_or(|it| it == "BMC" || it == "ManagementController");
        if !is_bmc {
            continue;
        }
        let words = |property: &str| text(manager.get(property)).map(|it| told(&it));
        found.manufacturer = found.manufacturer.or_else(|| words("Manufacturer"));
        found.firmware = found.firmware.or_else(|| words("FirmwareVersion"));
        found.host_interfaces = found.host_interfaces.or_else(|| link(&manager, "HostInterfaces"));
        if let Some(interfaces) = link(&manager, "EthernetInterfaces") {
            for path in service.members(&interfaces)?.into_iter().take(MAX_INTERFACES) {
                let (interface, _) = service.get(&path)?;
                found.lan = found.lan.or_else(|| lan(&interface, inside));
            }
        }
        if found.lan.is_some() {
            break;
        }
    }
    Ok(found)
}

/// IPv4 comes first: management networks have it.
fn lan(interface: &Value, inside: IpAddr) -> Option<Lan> {
    if interface.get("InterfaceEnabled").and_then(Value::as_bool) == Some(false) {
        return None;
    }
    let list =
        |property: &str| interface.get(property).and_then(Value::as_array).cloned().unwrap_or_default();
    let all = [list("IPv4Addresses"), list("IPv6Addresses")].concat();
    let (address, is_dhcp) = all.iter().find_map(|it| {
        let address: IpAddr = text(it.get("Address"))?.parse().ok()?;
        let origin = text(it.get("AddressOrigin"));
        is_lan(address, inside).then(|| (address, origin.map(|it| it.starts_with("DHCP"))))
    })?;
    let mac = text(interface.get("MACAddress")).or_else(|| text(interface.get("PermanentMACAddress")));
    Some(Lan { address, is_dhcp, mac: mac.map(|it| told(&it).to_ascii_lowercase()) })
}

fn is_lan(address: IpAddr, inside: IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(it) => it.is_link_local(),
        IpAddr::V6(it) => it.is_unicast_link_local(),
    };
    let is_hosts = !address.is_unspecified() && !address.is_loopback() && !address.is_multicast();
    is_hosts && !is_local && address != inside && address != VIRTUAL
}

/// The name of the system with the UUID of the machine's firmware. None: the BMC has fewer than two systems, or no system has that
/// UUID.
///
/// # Errors
/// [`ServiceError`].
pub fn system<E: Exchange>(
    service: &mut Service<E>,
    root: &Root,
    uuid: &str,
) -> Result<Option<String>, ServiceError> {
    let Some(systems) = &root.systems else { return Ok(None) };
    let systems = service.members(systems)?;
    if systems.len() < 2 {
        return Ok(None);
    }
    for path in systems {
        let (system, _) = service.get(&path)?;
        if text(system.get("UUID")).is_some_and(|it| it.eq_ignore_ascii_case(uuid)) {
            return Ok(Some(told(name(&path))));
        }
    }
    Ok(None)
}

/// Turns credential bootstrapping off until the next reset of the BMC. Host interfaces on which a reset would not turn it on again
/// are not changed (DSP0270 §9.4). Returns true if the BMC has turned it off on an interface.
///
/// # Errors
/// [`ServiceError`].
pub fn stop_bootstrapping<E: Exchange>(
    service: &mut Service<E>,
    manager: &Manager,
) -> Result<bool, ServiceError> {
    let Some(interfaces) = &manager.host_interfaces else { return Ok(false) };
    let mut is_off = false;
    for path in service.members(interfaces)? {
        let (interface, etag) = service.get(&path)?;
        let flag = |name: &str| interface.pointer(&format!("/CredentialBootstrapping/{name}"))?.as_bool();
        if flag("Enabled") == Some(true) && flag("EnableAfterReset") == Some(true) {
            let body = Some(json!({"CredentialBootstrapping": {"Enabled": false}}));
            let request = Request { method: Method::Patch, path, body, if_match: etag };
            let reply = service.change(request)?;
            is_off |= matches!(reply.status, 200..=299);
        }
    }
    Ok(is_off)
}
