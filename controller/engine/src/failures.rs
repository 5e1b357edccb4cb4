//! The rule for each failure: when it is retried, and what a person should do.
//!
//! A failure belongs to its cause (generations of machine and deployment, image). When the cause changes, the failure is void and
//! the work goes on at once, without a restart. Some causes can be repaired without the region seeing it (a cable); then the failed
//! step is retried from time to time.

use basalt_api::agent::FailureCode;
use serde::{Deserialize, Serialize};

use crate::deadlines::DeadlineId;

/// The reason why a power command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerFailure {
    /// The BMC does not answer.
    Unreachable,
    /// The BMC does not know the user.
    BadUsername,
    /// The BMC refuses the password.
    BadPassword,
    /// The BMC has a key (K_g) that is not declared, or another one.
    BadBmcKey,
    /// The user lacks the privilege.
    Privilege,
    /// The BMC does not speak the cipher suite.
    CipherSuite,
    /// All sessions of the BMC are in use.
    NoSession,
    /// The BMC refused the command.
    CompletionCode,
    /// The BMC's certificate is not the trusted one.
    Certificate,
    /// The BMC lacks a feature, or its answer is not as specified.
    Unsupported,
    /// The rack has seen a later epoch.
    StaleEpoch,
    /// The command reached the rack too late.
    Expired,
    /// The rack does not know the BMC (yet).
    NoBmc,
    /// The rack was stopped in the middle of a power cycle.
    Interrupted,
    /// No answer arrived.
    NoAnswer,
    /// The BMC reports that the power is still changing.
    Moving,
    /// The BMC is outside of the networks of BMCs.
    Outside,
    /// The BMC accepted the command, but the power state did not change.
    NotMoved,
    /// A code that this version does not know.
    Unknown,
}

impl PowerFailure {
    /// From the `error_code` of a rack's `PowerResult`.
    #[must_use]
    pub fn from_code(code: &str) -> Self {
        match code {
            "unreachable" => Self::Unreachable,
            "bad_username" => Self::BadUsername,
            "bad_password" => Self::BadPassword,
            "bad_bmc_key" => Self::BadBmcKey,
            "privilege" => Self::Privilege,
            "cipher_suite" => Self::CipherSuite,
            "completion_code" => Self::CompletionCode,
            "no_session" => Self::NoSession,
            "certificate" => Self::Certificate,
            "unsupported" => Self::Unsupported,
            "stale_epoch" => Self::StaleEpoch,
            "expired" => Self::Expired,
            "no_bmc" => Self::NoBmc,
            "interrupted" => Self::Interrupted,
            "moving" => Self::Moving,
            "outside" => Self::Outside,
            _ => Self::Unknown,
        }
    }

    /// The failure's rule in the table.
    #[must_use]
    pub fn rule(self) -> &'static Rule {
        POWER_FAILURES.iter().find(|(failure, _)| *failure == self).map_or(&OTHER, |(_, rule)| rule)
    }
}

/// The reason why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptFailure {
    /// The agent reported a failure.
    Task(FailureCode),
    /// The agent has stopped reporting.
    Silent,
    /// The machine sent no request at boot.
    NeverAsked,
    /// The machine sent requests, but no agent claimed the task.
    NeverClaimed,
    /// A disk carries a later attempt than the region knows.
    Outranked,
    /// The agent reported a successful inventory and sent none.
    Empty,
    /// A person aborted it.
    Aborted,
}

impl AttemptFailure {
    /// The failure's rule in the table.
    #[must_use]
    pub fn rule(self) -> &'static Rule {
        ATTEMPT_FAILURES.iter().find(|(failure, _)| *failure == self).map_or(&OTHER, |(_, rule)| rule)
    }
}

/// The consequences of a failure.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// One CamelCase word for programs.
    pub code: &'static str,
    /// The failure, for people.
    pub says: &'static str,
    /// The seconds before each quick retry; there are as many retries as numbers.
    pub quick: &'static [u64],
    /// The pause before each retry after the quick ones. `None`: it is retried only when the cause changes.
    pub later: Option<DeadlineId>,
    /// The action that a person should take.
    pub fix: &'static str,
    /// The reason for this rule.
    pub reason: &'static str,
}

const fn rule(
    code: &'static str,
    says: &'static str,
    quick: &'static [u64],
    later: Option<DeadlineId>,
    fix: &'static str,
    reason: &'static str,
) -> Rule {
    Rule { code, says, quick, later, fix, reason }
}

const LATER: Option<DeadlineId> = Some(DeadlineId::RetryLater);
const CREDENTIALS: Option<DeadlineId> = Some(DeadlineId::RetryCredentials);

const OTHER: Rule = rule(
    "Failed",
    "it failed",
    &[10, 60],
    LATER,
    "read the message and the machine's timeline",
    "unknown causes are tried a little, then left to a person",
);

/// The rules of power failures.
#[rustfmt::skip]
pub const POWER_FAILURES: &[(PowerFailure, Rule)] = &[
    (PowerFailure::Unreachable, rule("BmcUnreachable", "the BMC does not answer", &[5, 10, 20, 40, 80, 160], LATER,
        "check bmc.address and bmc.port, the BMC's cable, and that the rack can reach its network",
        "BMCs restart and drop packets: five minutes of patience, then a person")),
    (PowerFailure::BadUsername, rule("BmcBadUsername", "the BMC does not know the user name", &[], CREDENTIALS,
        "set bmc.username to an account of the BMC",
        "every further try counts towards a lock-out")),
    (PowerFailure::BadPassword, rule("BmcBadPassword", "the BMC refuses the password", &[], CREDENTIALS,
        "set bmc.password to the BMC's password, and bmc.username to an account of the BMC; if both are right, the BMC may have locked the account after wrong passwords of another program: stop that program",
        "every further try counts towards a lock-out")),
    (PowerFailure::BadBmcKey, rule("BmcBadKey", "the BMC's key (K_g) is not the declared one", &[], CREDENTIALS,
        "set bmc.k_g to the BMC's key, or null if the BMC has none",
        "each further try occupies a session of the BMC for a minute")),
    (PowerFailure::Privilege, rule("BmcPrivilege", "the BMC's account lacks the privilege", &[], CREDENTIALS,
        "give the account the privilege operator (administrator for a reset of the BMC), ask for no more in bmc.options.privilege, or name another account in bmc.username",
        "nothing changes until a person changes it")),
    (PowerFailure::CipherSuite, rule("BmcCipherSuite", "the BMC does not offer the cipher suite", &[], CREDENTIALS,
        "set bmc.options.cipher_suite to one that the BMC offers",
        "nothing changes until a person changes it")),
    (PowerFailure::NoSession, rule("BmcSessions", "all sessions of the BMC are in use", &[5, 15, 45], LATER,
        "end the sessions of other programs with this BMC, such as consoles and other managers; if nobody uses them, run `basalt reset-bmc`",
        "a BMC frees an unused session after about a minute")),
    (PowerFailure::CompletionCode, rule("BmcRefused", "the BMC refused the command", &[5, 15, 45], LATER,
        "read the message, and look at the BMC's event log; if it stays so, run `basalt reset-bmc`",
        "busy BMCs refuse for a few seconds; those that go on are ill")),
    (PowerFailure::Certificate, rule("BmcCertificate", "the BMC's certificate is not the one to believe", &[], CREDENTIALS,
        "find out who answers there; if it is the BMC with a new certificate, declare that in bmc.tls.fingerprint",
        "somebody between rack and BMC would be shown the password")),
    (PowerFailure::Unsupported, rule("BmcUnsupported", "the BMC cannot do it as it is described", &[], CREDENTIALS,
        "read the message, and correct what it names: in the machine's bmc, on the BMC, or by newer firmware of the BMC",
        "nothing changes until a person changes it")),
    (PowerFailure::StaleEpoch, rule("BmcEpoch", "another region process acted later", &[0, 1, 5], LATER,
        "check that only one set of regions drives this rack",
        "the next try carries a newer epoch and passes")),
    (PowerFailure::Expired, rule("PowerExpired", "the command reached the rack too late", &[0, 5, 30], LATER,
        "check the connection between region and rack, and their clocks",
        "a late command must not fire, a new one may")),
    (PowerFailure::NoBmc, rule("BmcUnknownToRack", "the rack does not know this BMC", &[2, 5, 15, 30, 60], LATER,
        "check the rack's log for why it did not apply its power instruction",
        "the BMC's description is on its way to the rack")),
    (PowerFailure::Interrupted, rule("PowerInterrupted", "the rack was stopped while it cycled the power", &[0, 10], LATER,
        "check the rack's log for why it stops",
        "a cycle does not begin while a disk is written, so that another one harms nobody")),
    (PowerFailure::NoAnswer, rule("PowerNoAnswer", "no answer came from the rack", &[0, 10, 60], LATER,
        "check the rack's log",
        "the rack died with the command, or the link did; the command has expired by now")),
    (PowerFailure::Moving, rule("BmcMoving", "the power is still on its way", &[0, 5, 10, 20, 40], LATER,
        "look at the machine's console; if it stays so for minutes, run `basalt reset-bmc`, or drain the machine's power",
        "each try waits for 50 s: a chassis that tests its hardware first takes minutes")),
    (PowerFailure::Outside, rule("BmcOutside", "the BMC is outside of the networks of BMCs", &[], LATER,
        "correct bmc.address, or have an admin add the BMC's network to bmc_networks of Settings",
        "nothing changes until a person changes it, or its name")),
    (PowerFailure::NotMoved, rule("PowerLies", "the BMC said yes, but the power reads as before", &[5, 20, 60], LATER,
        "look at the machine; if its BMC still lies, run `basalt reset-bmc`, or drain the machine's power",
        "chassis take seconds to follow; those that never do must not be believed")),
    (PowerFailure::Unknown, OTHER),
];

/// The rules of failed attempts.
#[rustfmt::skip]
pub const ATTEMPT_FAILURES: &[(AttemptFailure, Rule)] = &[
    (AttemptFailure::Task(FailureCode::NoDisk), rule("NoDisk", "no disk fits", &[], None,
        "change the deployment's storage, give it another machine, or add a disk and run `basalt recommission`",
        "disks do not grow by trying")),
    (AttemptFailure::Task(FailureCode::AmbiguousDisk), rule("AmbiguousDisk", "a name does not mean one disk", &[], None,
        "name the disk in the deployment's storage by something that it alone has, like its kernel name or a name under /dev/disk/by-id",
        "a wrong guess erases the wrong disk")),
    (AttemptFailure::Task(FailureCode::ForeignData), rule("ForeignData", "the disk holds data that is not Basalt's", &[], None,
        "save that data, then set wipe = \"always\" on the deployment, or empty the disk and run `basalt recommission`",
        "only a person can say that data is worthless")),
    (AttemptFailure::Task(FailureCode::Expired), rule("TaskExpired", "the task reached the machine too late", &[0, 10], LATER,
        "check the clocks of the racks",
        "a new attempt has a new time limit")),
    (AttemptFailure::Task(FailureCode::BlobUnavailable), rule("BlobUnavailable", "a file of the image could not be fetched", &[5, 30, 120], LATER,
        "check that the region holds the image's files and the rack can fetch them",
        "racks restart and refetch; what stays missing needs a person")),
    (AttemptFailure::Task(FailureCode::BlobCorrupt), rule("BlobCorrupt", "a file of the image does not have its hash", &[5, 60], LATER,
        "upload the image again; check the memory and disk of rack and machine",
        "a second fetch tells a bad transfer from a bad file")),
    (AttemptFailure::Task(FailureCode::DiskError), rule("DiskError", "a disk reported an error", &[10], LATER,
        "replace the disk, or choose another in the deployment's storage",
        "one retry tells a loose cable from a dying disk")),
    (AttemptFailure::Task(FailureCode::ToolFailed), rule("ToolFailed", "a program of the ephemeral environment failed", &[10, 60], LATER,
        "read the agent's log of this attempt",
        "often a device that was not ready")),
    (AttemptFailure::Task(FailureCode::BadImage), rule("BadImage", "the image lacks something that an install needs", &[], None,
        "build the image again, or name another in the deployment",
        "the same bytes fail the same way")),
    (AttemptFailure::Task(FailureCode::ScriptFailed), rule("ScriptFailed", "the script failed", &[], None,
        "read what it said; when that is mended, run `basalt recommission`, or ask for the script again",
        "what a script said no to, only a person can judge")),
    (AttemptFailure::Task(FailureCode::Other), OTHER),
    (AttemptFailure::Silent, rule("AgentSilent", "the agent stopped reporting", &[0, 30, 120], LATER,
        "look at the machine's console and the agent's log",
        "crashes and lost links pass; broken memory does not")),
    (AttemptFailure::NeverAsked, rule("NeverAsked", "the machine never asked for anything at boot", &[], LATER,
        "check its network cable, boot_macs, that network boot is enabled in its firmware, and that no other DHCP server answers it",
        "it was power-cycled several times already")),
    (AttemptFailure::NeverClaimed, rule("NeverClaimed", "the machine asked at boot, but no agent came up", &[], LATER,
        "look at its console: the loader, kernel, initrd or squashfs did not load",
        "it was power-cycled several times already")),
    (AttemptFailure::Outranked, rule("Outranked", "a disk carries a later attempt than this region knows of", &[], None,
        "the database was restored, or the disk comes from another region: when nobody needs its data, empty the disk and run `basalt recommission`",
        "whoever wrote it may still own the data")),
    (AttemptFailure::Empty, rule("NoInventory", "the agent reported success without an inventory", &[10], LATER,
        "upload an ephemeral image whose agent fits this region",
        "an agent of another version")),
    (AttemptFailure::Aborted, rule("Aborted", "a person aborted it", &[], None,
        "run `basalt recommission` to have it begun again, ask for the script again, or change or delete the deployment",
        "whoever aborts it says when it goes on")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_says_what_to_do_and_why() {
        let rules = POWER_FAILURES.iter().map(|(_, r)| r).chain(ATTEMPT_FAILURES.iter().map(|(_, r)| r));
        for rule in rules {
            assert!(!rule.says.is_empty() && rule.fix.len() > 10 && rule.reason.len() > 10, "{}", rule.code);
        }
        for code in [
            "unreachable",
            "bad_username",
            "bad_password",
            "bad_bmc_key",
            "privilege",
            "cipher_suite",
            "completion_code",
            "no_session",
            "certificate",
            "unsupported",
            "moving",
            "outside",
        ] {
            assert_ne!(PowerFailure::from_code(code), PowerFailure::Unknown, "{code}");
        }
    }

    #[test]
    fn a_reset_of_the_bmc_is_named_where_the_bmc_answers_and_does_not_obey() {
        let named = POWER_FAILURES.iter().filter(|(_, rule)| rule.fix.contains("`basalt reset-bmc`"));
        let named: Vec<&str> = named.map(|(_, rule)| rule.code).collect();
        assert_eq!(named, ["BmcSessions", "BmcRefused", "BmcMoving", "PowerLies"]);
    }

    #[test]
    fn wrong_credentials_are_never_hammered() {
        for failure in [PowerFailure::BadPassword, PowerFailure::BadUsername, PowerFailure::BadBmcKey] {
            assert!(failure.rule().quick.is_empty());
        }
    }
}
