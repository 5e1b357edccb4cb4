//! What udhcpc reports, applied to the interface. udhcpc starts `/bin/dhcp-event EVENT` with the lease in its environment.

use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use crate::{lease, resolv, say, tool};

/// Applies `bound` and `renew`. Other events change nothing: a lease that is lost for a moment is no reason to cut
/// the connection over which an installation comes in.
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
    if let Some(router) = var("router").as_deref().and_then(|all| all.split(' ').next()) {
        let route = ["ip", "route", "replace", "default", "via", router, "dev", &interface];
        result = result.and_then(|_| tool::run("busybox", &route));
    }
    if let Some(servers) = var("dns") {
        let servers: Vec<IpAddr> = servers.split(' ').filter_map(|server| server.parse().ok()).collect();
        // Names are a convenience here: the rack is named by its address.
        let _ = resolv::set(Path::new(lease::RESOLV_CONF), false, &servers, &[]);
    }
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            say!("{address} was not set on {interface}: {error}");
            ExitCode::FAILURE
        }
    }
}
