//! The runner for scripts of the first boot, its systemd unit, and its work.
//!
//! The unit belongs to `multi-user.target`, and the runner itself waits for the end of cloud-init. In Debian and Ubuntu cloud-init's
//! last unit comes after that target, so `After=cloud-final.service` would be an ordering cycle.

use std::collections::BTreeMap;

use basalt_api::agent::{
    FirstBoot, FirstBootWork, INSTALL_PACKAGES, PACKAGES_HINT, PACKAGES_SECONDS, Script,
};
use basalt_api::values::{Attempt, MachineId};

/// The runner. It needs python3, which cloud-init itself needs.
const RUNNER: &str = include_str!("first_boot.py");

/// The unit. At a later boot no script runs. The report is sent again: a rack may have lost it.
const UNIT: &str = "[Unit]
Description=Scripts of the first boot (Basalt)

[Service]
ExecStart=/usr/bin/env python3 /var/lib/basalt-first-boot/run
SyslogIdentifier=basalt-first-boot
Environment=PYTHONUTF8=1
";

/// Renders the first boot of a system that this attempt installs. `cloud_init_seconds` is the longest wait for cloud-init; `report` are
/// the URLs for the report, each ends where the level is appended.
#[must_use]
pub fn render(
    scripts: Vec<Script>,
    (machine, attempt): (MachineId, Attempt),
    cloud_init_seconds: u64,
    report: Vec<String>,
) -> FirstBoot {
    let environment = [
        ("BASALT_MACHINE_UID", machine.to_string()),
        ("BASALT_ATTEMPT", attempt.to_string()),
        ("HOME", "/root".to_owned()),
        ("LC_ALL", "C.UTF-8".to_owned()),
        ("DEBIAN_FRONTEND", "noninteractive".to_owned()),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
    ];
    let environment: BTreeMap<String, String> =
        environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let work = FirstBootWork {
        report,
        environment,
        scripts,
        install_packages: INSTALL_PACKAGES.to_owned(),
        packages_seconds: PACKAGES_SECONDS,
        packages_hint: PACKAGES_HINT.to_owned(),
        cloud_init_seconds,
    };
    FirstBoot { runner: RUNNER.to_owned(), unit: UNIT.to_owned(), work }
}
