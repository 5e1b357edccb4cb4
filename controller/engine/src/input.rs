//! The planner's input: a spec, a claim, facts, records, and a policy.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use basalt_api::agent::{BlobRef, Outcome, PACKAGES_SECONDS, RUN_BOOTS, Script};
use basalt_api::kinds::{DeploymentSpec, MachineSpec, NetworkConfig, Redeploy, StorageConfig};
use basalt_api::values::{
    Attempt, DeploymentId, Generation, ImageId, MachineId, OperationId, Sha256, Timestamp,
};
use basalt_api::wire::Verb;
use basalt_api::{Effect, Model};
use serde::{Deserialize, Serialize};
use sha2::Digest;

use crate::budget::Budget;
use crate::deadlines::{self, DeadlineId};
use crate::facts::{Facts, Link, PowerReading, Scope, StepRecord};
use crate::render::Assigned;
use crate::steps::StepId;

/// Everything that decides about one machine. The serialised form leaves out facts, records and budget, which are stored
/// elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineInput {
    /// The machine's id.
    pub uid: MachineId,
    /// The machine's name, for messages.
    pub name: String,
    /// The generation of `spec`.
    pub generation: Generation,
    /// The declared spec.
    pub spec: MachineSpec,
    /// The attempt in which the machine made the BMC account that is used; `spec.bmc` has its name. `None`: the declared account is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_account: Option<Attempt>,
    /// When the machine was declared or enlisted.
    pub created_at: Timestamp,
    /// When its deletion was requested.
    pub deletion_requested_at: Option<Timestamp>,
    /// When recommissioning was last requested.
    pub recommission_requested_at: Option<Timestamp>,
    /// When a person last requested an abort.
    #[serde(default)]
    pub abort_requested_at: Option<Timestamp>,
    /// The open operations: at most one each of power, recommission, abort and script.
    #[serde(default)]
    pub operations: Vec<Operation>,
    /// The power state that the latest finished power operation left.
    #[serde(default)]
    pub power_wish: Option<PowerReading>,
    /// True if a deployment was let go with `on_failure = abandon`: its data may still be on the disks.
    pub unwiped: bool,
    /// The deployment that owns it; at most one, by the database's key.
    pub claim: Option<Claim>,
    /// The ephemeral environment for machines of its architecture. `None` if no image is declared for it, or if its files are not all
    /// uploaded.
    pub ephemeral: Option<EphemeralImage>,
    /// The scripts that follow a reading of the hardware: first those of commissioning, then those of testing.
    #[serde(default, skip_serializing_if = "TaskScripts::are_none")]
    pub inspection: TaskScripts,
    /// Tests of its hardware that failed.
    #[serde(default, skip_serializing_if = "FailedTests::are_none")]
    pub failed_tests: FailedTests,
    /// Scripts that are run in the new system at the end of an install.
    #[serde(default, skip_serializing_if = "TaskScripts::are_none")]
    pub install: TaskScripts,
    /// Scripts that are run at the first boot of the next system that is installed.
    #[serde(default, skip_serializing_if = "FirstBootScripts::are_none")]
    pub first_boot: FirstBootScripts,
    /// The scripts that run before the disks are erased.
    #[serde(default, skip_serializing_if = "TaskScripts::are_none")]
    pub release: TaskScripts,
    /// The part of the fleet's budget that is left for the machine.
    #[serde(skip)]
    pub budget: Budget,
    /// The observations of the machine.
    #[serde(skip)]
    pub facts: Facts,
    /// The records of the machine's steps that are not pruned, oldest first. A record is kept as long as its scope exists.
    #[serde(skip)]
    pub records: Vec<StepRecord>,
}

impl MachineInput {
    /// The network of the deployment's system: the deployment's own, or else the machine's. The latter is taken as it was at the install
    /// of a system that stays, or as it is now for the next install.
    #[must_use]
    pub fn network(&self) -> Option<&NetworkConfig> {
        let claim = self.claim.as_ref()?;
        claim.spec.network.as_ref().or_else(|| match self.kept(claim) {
            Some(record) => record.network.as_ref(),
            None => self.spec.network.as_ref(),
        })
    }

    /// The disks of a deployment: its own, or the machine's if the deployment declares only the defaults.
    #[must_use]
    pub fn storage<'a>(&'a self, claim: &'a Claim) -> &'a StorageConfig {
        let own = &claim.spec.storage;
        self.spec.storage.as_ref().filter(|_| *own == StorageConfig::default()).unwrap_or(own)
    }

    /// The record of the install whose system the deployment keeps.
    fn kept(&self, claim: &Claim) -> Option<&StepRecord> {
        let scope = Scope::Deployment(claim.uid);
        let installed = |record: &&StepRecord| {
            let ended = record.attempt.and_then(|attempt| self.facts.results.get(&attempt));
            record.step == StepId::ArmInstall
                && record.scope == scope
                && ended.is_some_and(|ended| ended.outcome == Outcome::Succeeded)
        };
        let record = self.records.iter().rev().find(installed)?;
        let in_place = claim.spec.redeploy == Redeploy::InPlace;
        (!in_place || record.fingerprint == Some(claim.fingerprint())).then_some(record)
    }

    /// The latest time in the input. `now` is never taken to be earlier, even if the database's clock went back.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        let facts = &self.facts;
        let since = |link: &Link| match link {
            Link::Connected { since } | Link::Away { since, .. } | Link::Partial { since, .. } => {
                Some(*since)
            }
            Link::None => None,
        };
        let claim = self.claim.as_ref();
        let single = [
            Some(self.created_at),
            self.deletion_requested_at,
            self.recommission_requested_at,
            self.abort_requested_at,
            self.failed_tests.at,
            self.failed_tests.accepted_at,
            self.power_wish.as_ref().map(|it| it.at),
            self.operations.iter().map(|it| it.requested_at).max(),
            claim.map(|claim| claim.claimed_at),
            claim.and_then(|claim| claim.deletion_requested_at),
            facts.power.as_ref().map(|it| it.at),
            facts.unread.as_ref().map(|it| it.at),
            facts.inventory.as_ref().map(|it| it.at),
            facts.lease.as_ref().map(|it| it.at),
            facts.alarm.as_ref().map(|it| it.at),
            since(&facts.power_rack),
            since(&facts.boot_racks),
        ];
        let many = facts.power_results.values().map(|it| it.at);
        let many = many.chain(facts.boot_requests.values().map(|it| it.last_at));
        let many = many.chain(facts.claims.values().map(|it| it.at));
        let many = many.chain(facts.progress.values().map(|it| it.at));
        let many = many.chain(facts.results.values().map(|it| it.at));
        let many = many.chain(facts.readiness.values().map(|it| it.at));
        let many = many.chain(facts.first_boot.values().map(|it| it.at));
        let many =
            many.chain(self.records.iter().map(|r| r.delivered_at.unwrap_or(r.started_at).max(r.started_at)));
        single.into_iter().flatten().chain(many).max().unwrap_or(self.created_at)
    }
}

/// A one-time request of a person on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The operation's id, which is in the keys of its steps.
    pub id: OperationId,
    /// The requested action.
    pub verb: Verb,
    /// The script that `run_script` or `rescue` runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
    /// The tests that `test` runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<Script>,
    /// When the operation was requested.
    pub requested_at: Timestamp,
    /// When the operation expires.
    pub deadline: Timestamp,
}

/// Tests of a machine's hardware whose latest run failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTests {
    /// The names of these tests' Scripts.
    #[serde(default)]
    pub tests: BTreeSet<String>,
    /// One sentence for each finding: test, device, cause.
    pub findings: Vec<String>,
    /// The end of the latest of these runs.
    pub at: Option<Timestamp>,
    /// The latest override by a person.
    pub accepted_at: Option<Timestamp>,
}

impl FailedTests {
    fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// True: a test failed, and no person has overridden it since.
    #[must_use]
    pub fn stand(&self) -> bool {
        self.at.is_some_and(|at| self.accepted_at.is_none_or(|accepted| accepted < at))
    }
}

/// Scripts that belong to a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskScripts {
    /// The names of the scripts, in the order in which they run.
    pub names: Vec<String>,
    /// The reason why the task cannot run with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// Time that is added to the attempt's life, since the machine may restart during its scripts. In seconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restart_seconds: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde wants")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Most seconds by which scripts make an attempt's life longer: an old instruction must not be carried out days later.
const MAX_RESTART_SECONDS: u64 = 24 * 3600;

/// Time by which an attempt with these scripts lives longer than usual, in seconds: each of its boots must be served. It is 0 if none of the
/// scripts may restart the machine.
#[must_use]
pub fn restart_seconds<'a>(scripts: impl Iterator<Item = &'a Script> + Clone) -> u64 {
    if !scripts.clone().any(|script| script.may_reboot) {
        return 0;
    }
    let boots = |script: &Script| if script.may_reboot { u64::from(RUN_BOOTS) } else { 1 };
    let all = scripts.map(|script| seconds_of(script).saturating_mul(boots(script)));
    all.fold(0, u64::saturating_add).min(MAX_RESTART_SECONDS)
}

/// The time limit of a script with that of its packages, in seconds.
fn seconds_of(script: &Script) -> u64 {
    script.timeout_seconds.saturating_add(if script.packages.is_empty() { 0 } else { PACKAGES_SECONDS })
}

impl TaskScripts {
    /// True if there is no script to run, and no reason against the task.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.names.is_empty() && self.unusable.is_none()
    }
}

/// Scripts that run at the first boot of an installed system. Installs with unusable ones do not begin: [`TaskScripts::unusable`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstBootScripts {
    /// The names of the scripts, in the order in which they run.
    pub names: Vec<String>,
    /// The sum of their time limits, with those of their packages. In seconds.
    pub seconds: u64,
}

impl FirstBootScripts {
    /// The scripts of this list.
    #[must_use]
    pub fn of(scripts: &[Script]) -> Self {
        Self {
            names: scripts.iter().map(|it| it.name.clone()).collect(),
            seconds: scripts.iter().map(seconds_of).fold(0, u64::saturating_add),
        }
    }

    /// True if there is no script.
    #[must_use]
    pub const fn are_none(&self) -> bool {
        self.names.is_empty()
    }
}

/// A deployment's claim on a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// The deployment's id.
    pub uid: DeploymentId,
    /// The deployment's name, for messages.
    pub name: String,
    /// The generation of `spec`.
    pub generation: Generation,
    /// The declared spec.
    pub spec: DeploymentSpec,
    /// When the deployment claimed the machine.
    pub claimed_at: Timestamp,
    /// When its deletion was requested. The machine is then released.
    pub deletion_requested_at: Option<Timestamp>,
    /// The addresses that the region has assigned, by their purposes in `spec.network`.
    pub assigned: BTreeMap<String, Assigned>,
    /// The reasons why the other addresses in `spec.network` are not assigned, by purpose.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unassigned: BTreeMap<String, String>,
    /// The image that `spec` names. `None` if it does not exist or has no root tarball.
    pub image: Option<ResolvedImage>,
}

/// An image that can be installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedImage {
    /// The image's uid, which is independent of its name.
    pub uid: ImageId,
    /// The digest over all of its files.
    pub digest: Sha256,
    /// The tarball that is unpacked.
    pub root: BlobRef,
    /// True if the region has that blob.
    pub available: bool,
    /// The kernel options that the image needs.
    pub kernel_options: String,
}

/// The ephemeral environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EphemeralImage {
    /// The kernel, `vmlinuz`.
    pub kernel: Sha256,
    /// The initial RAM disk.
    pub initrd: Sha256,
    /// The root file system.
    pub squashfs: Sha256,
    /// The kernel options that the image needs.
    pub kernel_options: String,
}

impl Claim {
    /// The hash of the content that an install writes. The image counts by its uid, so that a rename changes nothing. Fields that have
    /// no effect yet do not count either: a new field must not make every installed system outdated.
    #[must_use]
    pub fn fingerprint(&self) -> Sha256 {
        let mut hash = sha2::Sha256::new();
        if let Ok(serde_json::Value::Object(spec)) = serde_json::to_value(&self.spec) {
            let redeploys =
                DeploymentSpec::SCHEMA.fields.iter().filter(|f| matches!(f.effect, Effect::Redeploy));
            for field in redeploys.filter(|f| f.name != "image" && f.dormant.is_empty()) {
                hash.update(field.name);
                hash.update([0]);
                hash.update(spec.get(field.name).map(ToString::to_string).unwrap_or_default());
                hash.update([0]);
            }
        }
        if let Some(image) = &self.image {
            hash.update(image.uid.to_string());
        }
        Sha256::new(hash.finalize().into())
    }
}

/// How long a rack tries to switch a BMC before it reports a failure.
const BMC_PATIENCE: Duration = Duration::from_secs(20);

/// Settings of the planner that apply to all machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    overrides: BTreeMap<DeadlineId, Duration>,
    divisor: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self { overrides: BTreeMap::new(), divisor: 1 }
    }
}

impl Policy {
    /// Replaces one deadline of the table.
    #[must_use]
    pub fn with(mut self, id: DeadlineId, duration: Duration) -> Self {
        self.overrides.insert(id, duration);
        self
    }

    /// Divides every deadline and pause by `divisor`, for simulated machines, whose firmware takes no minutes.
    #[must_use]
    pub fn compressed(mut self, divisor: u32) -> Self {
        self.divisor = divisor.max(1);
        self
    }

    /// The longest time of a wait.
    #[must_use]
    pub fn deadline(&self, id: DeadlineId) -> Duration {
        let table = deadlines::spec(id).map_or(Duration::from_secs(60), |row| row.duration);
        // A rack is as patient with a simulated BMC as with a real one. Its answer must arrive before the deadline.
        let least = if id == DeadlineId::PowerAnswer { BMC_PATIENCE.min(table) } else { Duration::ZERO };
        self.overrides.get(&id).copied().unwrap_or_else(|| self.scaled(table).max(least))
    }

    /// A duration from a table or a spec, divided by the divisor.
    #[must_use]
    pub fn scaled(&self, duration: Duration) -> Duration {
        (duration / self.divisor).max(Duration::from_millis(1)).min(duration)
    }
}

/// `at + after`, or the latest possible time.
#[must_use]
pub(crate) fn later(at: Timestamp, after: Duration) -> Timestamp {
    at.checked_add(after).unwrap_or(Timestamp::MAX)
}
