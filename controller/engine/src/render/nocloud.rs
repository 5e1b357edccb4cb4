//! The seed of cloud-init's NoCloud data source.
//!
//! - The user's `user_data` is passed on byte for byte, in any format: nothing is merged into it. SSH keys go into
//!   `meta-data` (`public-keys`), from where cloud-init adds them to the default account beside any that the user data
//!   names.
//! - The report to the rack is vendor data, a boot hook. It needs only python3, which cloud-init itself needs. A user's
//!   `runcmd`, `bootcmd` or `phone_home` cannot replace it, as they would replace keys of a vendor cloud-config. It runs at
//!   every boot. `cloud_init` is reported when cloud-init reports that it ended without error.

use std::fmt::Write;

use basalt_api::agent::NoCloudSeed;
use basalt_api::values::{Attempt, DeploymentId, SshPublicKey};

use super::netplan;
use super::network::Network;
use super::{list, quoted};

/// The identity of an installed system.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The deployment's id.
    pub deployment: DeploymentId,
    /// The attempt that installs it. A new attempt is a new instance for cloud-init, so everything runs again.
    pub attempt: Attempt,
    /// The host name.
    pub hostname: &'a str,
}

/// The four files. `report` are the URLs to which the system reports, tried in order; each ends where the level is
/// appended.
#[must_use]
pub fn seed<'a>(
    identity: Identity<'_>,
    ssh_keys: impl IntoIterator<Item = &'a SshPublicKey>,
    user_data: Option<&str>,
    network: &Network,
    report: &[String],
) -> NoCloudSeed {
    let keys = list(ssh_keys);
    let id = quoted(&format!("{}-{}", identity.deployment, identity.attempt));
    let hostname = quoted(identity.hostname);
    NoCloudSeed {
        meta_data: format!("instance-id: {id}\nlocal-hostname: {hostname}\npublic-keys: {keys}\n"),
        user_data: user_data.map_or_else(|| "#cloud-config\n{}\n".to_owned(), str::to_owned),
        vendor_data: vendor_data(report),
        network_config: netplan::cloud_init(network),
    }
}

fn vendor_data(report: &[String]) -> String {
    if report.is_empty() {
        return String::new();
    }
    let mut urls = String::new();
    for url in report {
        let _ = write!(urls, " {}", shell(url));
    }
    format!(
        r#"#cloud-boothook
#!/bin/sh
# Tells the rack that this system is up. In the background, and for ten minutes at most: no boot waits for it.
# What the first boot wrote (keys of this host, users) is on the disk first: who is told may cut the power.
post() {{
    python3 -c 'import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], data=b"", method="POST"), timeout=10)' "$1"
}}
report() {{
    for try in $(seq 60); do
        for url in{urls}; do
            post "$url/$1" && return 0
        done
        sleep 10
    done
}}
(report booted; cloud-init status --wait && sync && report cloud_init) </dev/null >/dev/null 2>&1 &
"#
    )
}

/// Quotes a text as one word of the shell.
fn shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
