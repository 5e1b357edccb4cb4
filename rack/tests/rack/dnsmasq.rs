//! dnsmasq as another DHCP server, relay or router.

use std::path::Path;

use super::namespace::{Host, Running, peer};

/// dnsmasq on another host, with DHCP only.
pub(crate) fn dnsmasq(dir: &Path, host: &Host, further: &[&str]) -> Running {
    let program = peer("dnsmasq");
    let libraries = program.join("usr/lib/x86_64-linux-gnu");
    let [libraries, program] = [
        format!("LD_LIBRARY_PATH={}", libraries.display()),
        program.join("usr/sbin/dnsmasq").display().to_string(),
    ];
    let leases = format!("--dhcp-leasefile={}", dir.join("dnsmasq.leases").display());
    let fixed = [
        "env",
        &libraries,
        &program,
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--user=root",
        // In this namespace it may not change its groups.
        "--group=",
        "--port=0",
        "--interface=eth0",
        "--bind-interfaces",
        &leases,
    ];
    host.spawn(&[&fixed, further].concat())
}
