//! Fuzz targets: one function for each codec, with rules that must hold for any bytes, and seeds from our own encoders.
//!
//! `cargo fuzz run --fuzz-dir tests/fuzz -s none --features libfuzzer fuzz_dhcp4` runs one target without a time limit. `tests/fuzz/run`
//! runs each target for a while, as in `make test`.

mod agent;
mod boot;
mod control;
mod dhcp;
mod dns;
mod files;
mod lldp;
mod ntp;
mod redfish;
mod sequence;
mod syslog;

pub use agent::{dhcp6_client, smbios};
pub use boot::{bmc, bmc_client, router, tftp, tftp_client};
pub use control::{concern, expression, objects, spool, terraform, tokens};
pub use dhcp::{dhcp4, dhcp4_client, dhcp6, frame};
pub use dns::{dns, dns_upstream};
pub use files::{http, leases};
pub use lldp::lldp;
pub use ntp::ntp;
pub use redfish::redfish;
pub use syslog::syslog;

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name without the prefix `fuzz_`.
    pub name: &'static str,
    /// The function under test. It panics if a rule is broken.
    pub holds: fn(&[u8]),
    /// Initial inputs. The first one covers the most.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Smallest number of edges that a short run must cover. With fewer, the input does not reach the codec.
    pub edges: u32,
    /// Largest peak of the program's memory, in MiB. No input may need much more than another one of its length.
    pub peak_mib: u32,
}

/// Memory limit of a program whose inputs need memory in proportion to their length, in MiB.
const PEAK_MIB: u32 = 512;

/// All fuzz targets.
pub const TARGETS: &[Target] = &[
    Target { name: "dhcp4", holds: dhcp4, seeds: dhcp::seeds4, edges: 1000, peak_mib: PEAK_MIB },
    Target {
        name: "dhcp4_client",
        holds: dhcp4_client,
        seeds: dhcp::seeds4_client,
        edges: 200,
        peak_mib: PEAK_MIB,
    },
    Target { name: "dhcp6", holds: dhcp6, seeds: dhcp::seeds6, edges: 900, peak_mib: PEAK_MIB },
    Target {
        name: "dhcp6_client",
        holds: dhcp6_client,
        seeds: agent::seeds_dhcp6_client,
        edges: 400,
        peak_mib: PEAK_MIB,
    },
    Target { name: "smbios", holds: smbios, seeds: agent::seeds_smbios, edges: 60, peak_mib: PEAK_MIB },
    Target { name: "frame", holds: frame, seeds: dhcp::seeds_frame, edges: 25, peak_mib: PEAK_MIB },
    Target { name: "dns", holds: dns, seeds: dns::seeds_dns, edges: 400, peak_mib: PEAK_MIB },
    Target {
        name: "dns_upstream",
        holds: dns_upstream,
        seeds: dns::seeds_dns_upstream,
        edges: 800,
        peak_mib: PEAK_MIB,
    },
    Target { name: "tftp", holds: tftp, seeds: boot::seeds_tftp, edges: 280, peak_mib: PEAK_MIB },
    Target {
        name: "tftp_client",
        holds: tftp_client,
        seeds: boot::seeds_tftp_client,
        edges: 180,
        peak_mib: PEAK_MIB,
    },
    Target { name: "bmc", holds: bmc, seeds: boot::seeds_bmc, edges: 200, peak_mib: PEAK_MIB },
    Target {
        name: "bmc_client",
        holds: bmc_client,
        seeds: boot::seeds_bmc_client,
        edges: 280,
        peak_mib: PEAK_MIB,
    },
    Target { name: "ntp", holds: ntp, seeds: ntp::seeds_ntp, edges: 400, peak_mib: PEAK_MIB },
    Target { name: "syslog", holds: syslog, seeds: syslog::seeds_syslog, edges: 200, peak_mib: PEAK_MIB },
    Target { name: "lldp", holds: lldp, seeds: lldp::seeds_lldp, edges: 350, peak_mib: PEAK_MIB },
    Target { name: "redfish", holds: redfish, seeds: redfish::seeds_redfish, edges: 60, peak_mib: PEAK_MIB },
    Target { name: "router", holds: router, seeds: boot::seeds_router, edges: 30, peak_mib: PEAK_MIB },
    Target { name: "concern", holds: concern, seeds: control::seeds_concern, edges: 600, peak_mib: PEAK_MIB },
    Target { name: "spool", holds: spool, seeds: control::seeds_spool, edges: 60, peak_mib: PEAK_MIB },
    Target { name: "leases", holds: leases, seeds: files::seeds_leases, edges: 600, peak_mib: PEAK_MIB },
    Target { name: "http", holds: http, seeds: files::seeds_http, edges: 70, peak_mib: PEAK_MIB },
    Target { name: "tokens", holds: tokens, seeds: control::seeds_tokens, edges: 300, peak_mib: PEAK_MIB },
    Target {
        name: "terraform",
        holds: terraform,
        seeds: control::seeds_terraform,
        edges: 700,
        peak_mib: PEAK_MIB,
    },
    Target {
        name: "objects",
        holds: objects,
        seeds: control::seeds_objects,
        edges: 3500,
        peak_mib: PEAK_MIB,
    },
    Target {
        name: "expression",
        holds: expression,
        seeds: control::seeds_expression,
        edges: 800,
        peak_mib: 80,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_for_every_seed_and_for_each_beginning_of_it() {
        for Target { name, holds, seeds, .. } in TARGETS {
            let seeds = seeds();
            assert!(!seeds.is_empty(), "{name}");
            for seed in seeds {
                let step = seed.len().div_ceil(64).max(1);
                (0..=seed.len()).step_by(step).for_each(|end| holds(&seed[..end]));
                holds(&seed);
            }
        }
    }
}
