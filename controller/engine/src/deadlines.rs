//! The table of deadlines: the longest time of each wait, with the reason.
//!
//! A wait without a row here names the person that it waits for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Names a row of [`DEADLINES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineId {
    /// A rack reports the outcome of a power command.
    PowerAnswer,
    /// A system that was asked to shut down is off.
    SoftOff,
    /// Every rack that serves the machine has the boot instruction.
    RackApplies,
    /// A rack that went away comes back.
    RackReturns,
    /// An object or a file that a machine or deployment needs has been declared or uploaded.
    Prerequisite,
    /// A machine that was powered on asks for something at boot.
    BootRequest,
    /// A machine that asked has loaded the ephemeral environment, and its agent has claimed its task.
    Claim,
    /// The agent of an inventory has reported.
    InventoryQuiet,
    /// The agent of an install, or of a script, has reported.
    InstallQuiet,
    /// The agent of an erase has reported.
    EraseQuiet,
    /// An installed system reports itself.
    Readiness,
    /// An armed attempt may still begin.
    AttemptLife,
    /// The pause before a retry, after the quick retries have failed.
    RetryLater,
    /// The pause before a retry at a BMC that refused the credentials.
    RetryCredentials,
    /// An operation has ended.
    Operation,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct DeadlineSpec {
    /// The wait of this row.
    pub id: DeadlineId,
    /// The deadline's name in settings.
    pub name: &'static str,
    /// The longest time of the wait.
    pub duration: Duration,
    /// The reason for that time.
    pub reason: &'static str,
}

const fn row(id: DeadlineId, name: &'static str, seconds: u64, reason: &'static str) -> DeadlineSpec {
    DeadlineSpec { id, name, duration: Duration::from_secs(seconds), reason }
}

/// The table of all deadlines.
pub const DEADLINES: &[DeadlineSpec] = &[
    row(
        DeadlineId::PowerAnswer,
        "power_answer",
        90,
        "a rack gives a BMC 75 s, retransmissions and a slow power-off included; the rest is the way there and back",
    ),
    row(
        DeadlineId::SoftOff,
        "soft_off",
        120,
        "services of a usual system end within 90 s (systemd's own limit for each); racks read the power each 10 s meanwhile",
    ),
    row(
        DeadlineId::RackApplies,
        "rack_applies",
        60,
        "applying a boot instruction is writing one file; a connected rack that needs longer is ill",
    ),
    row(
        DeadlineId::RackReturns,
        "rack_returns",
        300,
        "long enough for a rack's upgrade and reboot, short enough that a person hears of a dead one",
    ),
    row(
        DeadlineId::Prerequisite,
        "prerequisite",
        600,
        "one apply may create everything at once, and uploads its images while machines and deployments exist already",
    ),
    row(
        DeadlineId::BootRequest,
        "boot_request",
        600,
        "servers with much memory need up to ten minutes from power-on to their first DHCP packet",
    ),
    row(
        DeadlineId::Claim,
        "claim",
        300,
        "kernel, initrd and squashfs are some 300 MB: 25 s at 100 Mbit/s, and time for one retry of each",
    ),
    row(
        DeadlineId::InventoryQuiet,
        "inventory_quiet",
        300,
        "reading the hardware takes seconds; a controller that has to time out takes minutes",
    ),
    row(
        DeadlineId::InstallQuiet,
        "install_quiet",
        600,
        "the longest silent part of an install is flushing a slow disk",
    ),
    row(
        DeadlineId::EraseQuiet,
        "erase_quiet",
        1800,
        "a discard of a whole disk is one command without progress, minutes long on large ones",
    ),
    row(
        DeadlineId::Readiness,
        "readiness",
        1200,
        "firmware's ten minutes again, then cloud-init with a user's packages",
    ),
    row(
        DeadlineId::AttemptLife,
        "attempt_life",
        7200,
        "covers three power cycles with their boot deadlines twice over; an old instruction must not fire days later",
    ),
    row(
        DeadlineId::RetryLater,
        "retry_later",
        900,
        "a repaired cable or switch is noticed within a quarter of an hour; a broken machine is not cycled for ever",
    ),
    row(
        DeadlineId::RetryCredentials,
        "retry_credentials",
        3600,
        "BMCs lock an account after three to five refusals within minutes; one an hour stays below that",
    ),
    row(
        DeadlineId::Operation,
        "operation",
        3600,
        "time for three tries to boot an inventory, or for an install to end; nobody expects more of what was asked hours ago",
    ),
];

/// The row of `id`.
#[must_use]
pub fn spec(id: DeadlineId) -> Option<&'static DeadlineSpec> {
    DEADLINES.iter().find(|row| row.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deadline_has_one_row_and_a_reason() {
        for row in DEADLINES {
            assert_eq!(
                DEADLINES.iter().filter(|r| r.id == row.id || r.name == row.name).count(),
                1,
                "{}",
                row.name
            );
            assert!(row.reason.len() > 20, "{} says why", row.name);
            assert_eq!(serde_json::to_value(row.id).unwrap(), row.name, "named as it is written");
        }
    }

    #[test]
    fn settings_may_name_every_deadline_and_know_its_usual_length() {
        // Readiness is left out: a deployment sets its own.
        let of_region = DEADLINES.iter().filter(|row| row.id != DeadlineId::Readiness);
        let usual: Vec<(&str, u64)> = of_region.map(|row| (row.name, row.duration.as_secs())).collect();
        assert_eq!(usual, basalt_api::kinds::DEADLINES);
    }

    #[test]
    fn an_attempt_outlives_every_try_to_boot_it() {
        let of = |id| spec(id).map(|row| row.duration).unwrap_or_default();
        let one_try = of(DeadlineId::PowerAnswer) + of(DeadlineId::BootRequest) + of(DeadlineId::Claim);
        assert!(of(DeadlineId::AttemptLife) > one_try * crate::steps::BOOT_TRIES);
    }
}
