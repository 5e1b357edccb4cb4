//! Applies events of udhcpc to the interface. udhcpc starts `/bin/dhcp-event EVENT` with the lease in its environment.

use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use basalt_api::kinds;
use basalt_api::values::Cidr;

use crate::network::UDHCPC;
use crate::tool::ToolError;
use crate::{deadlines, lease, resolv, say, tool};

/// Set for a DHCP client on the interface to the BMC. Routes and name servers of a BMC are useless, so only the address is applied.
const ADDRESS_ALONE: &str = "BASALT_ADDRESS_ALONE";

/// Gives an interface an address by DHCP, without routes and name servers.
///
/// # Errors
/// No server gave an address.
pub fn address_alone(interface: &str) -> Result<(), ToolError> {
    let setting = format!("{ADDRESS_ALONE}=1");
    let mut args = vec![setting.as_str(), "busybox"];
    args.extend(UDHCPC);
    args.extend(["-q", "-n", "-f", "-t", "5", "-T", "2", "-i", interface]);
    tool::run_with("env", &args, b"", deadlines::BMC_LEASE).map(drop)
}

/// Applies `bound` and `renew`. Other events change nothing: a short loss of the lease must not cut the connection over which an install is
/// downloaded.
#[must_use]
pub fn apply(event: &str) -> ExitCode {
    if !matches!(event, "bound" | "renew") {
        return ExitCode::SUCCESS;
    }
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(interface), Some(ip)) = (var("interface"), var("ip")) else {
        say!("udhcpc named no interface or no address");
        return ExitCode::FAILURE;
    };
    let prefix = var("mask").unwrap_or_else(|| "24".to_owned());
    let address = format!("{ip}/{prefix}");
    let mut result = tool::run("busybox", &["ip", "addr", "replace", &address, "dev", &interface]);
    if var(ADDRESS_ALONE).is_some() {
        return ended(&address, &interface, result);
    }
    if let Some(router) = var("router").as_deref().and_then(|all| all.split(' ').next()) {
        let mut route = vec!["ip", "route", "replace", "default", "via", router, "dev", &interface];
        if is_on_link(&ip, &prefix, router) {
            route.push("onlink");
        }
        result = result.and_then(|_| tool::run("busybox", &route));
    }
    if let Some(servers) = var("dns") {
        let servers: Vec<IpAddr> = servers.split(' ').filter_map(|server| server.parse().ok()).collect();
        // A failure is ignored: the rack is reached by address, so names are not required.
        let _ = resolv::set(Path::new(lease::RESOLV_CONF), false, &servers, &[]);
    }
    ended(&address, &interface, result)
}

fn ended(address: &str, interface: &str, result: Result<String, ToolError>) -> ExitCode {
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            say!("{address} was not set on {interface}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// True if the router is in no network of the address. The kernel must then be told that the router is on the link.
fn is_on_link(ip: &str, prefix: &str, router: &str) -> bool {
    let (Ok(ip), Ok(prefix), Ok(router)) = (ip.parse(), prefix.parse(), router.parse()) else { return false };
    Cidr::containing(ip, prefix).is_ok_and(|network| kinds::is_on_link(&[network], router))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_router_of_a_single_address_is_a_neighbour() {
        assert!(is_on_link("203.0.113.7", "32", "203.0.113.1"));
        assert!(!is_on_link("10.77.0.9", "24", "10.77.0.1"));
    }
}
