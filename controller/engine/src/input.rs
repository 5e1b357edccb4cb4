//! What the planner is given: a spec, a claim, facts, records, and a policy.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use basalt_api::agent::{BlobRef, Outcome, Script};
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

/// Everything that decides what happens to one machine. Serialised, it is what no history keeps: facts, records and budget are
/// left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineInput {
    /// The machine.
    pub uid: MachineId,
    /// Its name, for words.
    pub name: String,
    /// Generation of `spec`.
    pub generation: Generation,
    /// What is declared.
    pub spec: MachineSpec,
    /// The attempt by which the machine made the account on its BMC that is used; None: the declared one is. `spec.bmc` has its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_account: Option<Attempt>,
    /// When it was declared, or enlisted.
    pub created_at: Timestamp,
    /// When its deletion was requested.
    pub deletion_requested_at: Option<Timestamp>,
    /// When another reading of its hardware was last requested.
    pub recommission_requested_at: Option<Timestamp>,
    /// When a person last wanted the attempt that was under way to end.
    #[serde(default)]
    pub abort_requested_at: Option<Timestamp>,
    /// What a person asked for once, and is not over: one at most that is about power, one recommission, one abort, one script.
    #[serde(default)]
    pub operations: Vec<Operation>,
    /// The power that the latest of those that are done left.
    #[serde(default)]
    pub power_wish: Option<PowerReading>,
    /// A deployment was let go with `on_failure = abandon`: its data may still be on the disks.
    pub unwiped: bool,
    /// The deployment that owns it. One at most: the database's key says so.
    pub claim: Option<Claim>,
    /// The environment that machines of its architecture run while they are worked on; None when no image is declared
    /// for that, or its files are not all uploaded.
    pub ephemeral: Option<EphemeralImage>,
    /// Scripts that are run when its hardware has been read: those of commissioning, then those of testing.
    #[serde(default, skip_serializing_if = "TaskScripts::are_none")]
    pub inspection: TaskScripts,
    /// Tests of its hardware that failed.
    #[serde(default, skip_serializing_if = "FailedTests::are_none")]
    pub failed_tests: FailedTests,
    /// Scripts that are run before its disks are erased.
    #[serde(default, skip_serializing_if = "TaskScripts::are_none")]
    pub release: TaskScripts,
    /// What the fleet's budget leaves for it.
    #[serde(skip)]
    pub budget: Budget,
    /// What was observed.
    #[serde(skip)]
    pub facts: Facts,
    /// Every step begun for this machine that is not pruned, oldest first. Kept for as long as their scope lives.
    #[serde(skip)]
    pub records: Vec<StepRecord>,
}

impl MachineInput {
    /// The network of the deployment's system: the deployment's own; else the machine's, as it was when the system that stays was
    /// installed, or as it is for the next one.
    #[must_use]
    pub fn network(&self) -> Option<&NetworkConfig> {
        let claim = self.claim.as_ref()?;
        claim.spec.network.as_ref().or_else(|| match self.kept(claim) {
            Some(record) => record.network.as_ref(),
            None => self.spec.network.as_ref(),
        })
    }

    /// The disks of a deployment: its own, or the machine's where the deployment declares no more than the defaults.
    #[must_use]
    pub fn storage<'a>(&'a self, claim: &'a Claim) -> &'a StorageConfig {
        let own = &claim.spec.storage;
        self.spec.storage.as_ref().filter(|_| *own == StorageConfig::default()).unwrap_or(own)
    }

    /// The install whose system the deployment keeps.
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

    /// The latest moment that is known of: time has not gone back behind it, whatever the database's clock says now.
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
        let many =
            many.chain(self.records.iter().map(|r| r.delivered_at.unwrap_or(r.started_at).max(r.started_at)));
        single.into_iter().flatten().chain(many).max().unwrap_or(self.created_at)
    }
}

/// What a person asked of a machine once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its steps have it in their keys.
    pub id: OperationId,
    /// What is to be done.
    pub verb: Verb,
    /// The script that `run_script` or `rescue` runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
    /// The tests that `test` runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<Script>,
    /// When that was asked.
    pub requested_at: Timestamp,
    /// When it is too late.
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
    /// What they are called, in the order in which they are run.
    pub names: Vec<String>,
    /// Why the task cannot be run with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
}

impl TaskScripts {
    /// Whether there is nothing to run, and nothing in the way.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.names.is_empty() && self.unusable.is_none()
    }
}

/// A deployment's hold on a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// The deployment.
    pub uid: DeploymentId,
    /// Its name, for words.
    pub name: String,
    /// Generation of `spec`.
    pub generation: Generation,
    /// What is declared.
    pub spec: DeploymentSpec,
    /// When it claimed the machine.
    pub claimed_at: Timestamp,
    /// When its deletion was requested: the machine is given back then.
    pub deletion_requested_at: Option<Timestamp>,
    /// Addresses that the region has assigned, by their purposes in `spec.network`.
    pub assigned: BTreeMap<String, Assigned>,
    /// Why the other addresses in `spec.network` are not assigned, by their purposes, in words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unassigned: BTreeMap<String, String>,
    /// The image that `spec` names; None when there is none, or it has no root tarball.
    pub image: Option<ResolvedImage>,
}

/// An image that can be installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedImage {
    /// The image, whatever it is called.
    pub uid: ImageId,
    /// Over all of its files.
    pub digest: Sha256,
    /// What is unpacked.
    pub root: BlobRef,
    /// Whether the region holds that blob.
    pub available: bool,
    /// Kernel options it needs.
    pub kernel_options: String,
}

/// The ephemeral environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EphemeralImage {
    /// `vmlinuz`
    pub kernel: Sha256,
    /// Its initial RAM disk.
    pub initrd: Sha256,
    /// Its root file system.
    pub squashfs: Sha256,
    /// Kernel options it needs.
    pub kernel_options: String,
}

impl Claim {
    /// Hash of what an install would write. The image counts by uid: renaming it changes nothing. What nothing acts on yet
    /// changes nothing either, so that a field that is new does not make every system an old one.
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

/// How long a rack tries to move a BMC before it says that it cannot.
const BMC_PATIENCE: Duration = Duration::from_secs(20);

/// What applies to all machines.
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
    /// This one deadline, in place of the table's.
    #[must_use]
    pub fn with(mut self, id: DeadlineId, duration: Duration) -> Self {
        self.overrides.insert(id, duration);
        self
    }

    /// Every deadline and every pause divided by `divisor`: for simulated machines, whose firmware takes no minutes.
    #[must_use]
    pub fn compressed(mut self, divisor: u32) -> Self {
        self.divisor = divisor.max(1);
        self
    }

    /// How long the wait may take.
    #[must_use]
    pub fn deadline(&self, id: DeadlineId) -> Duration {
        let table = deadlines::spec(id).map_or(Duration::from_secs(60), |row| row.duration);
        // A rack is as patient with a simulated BMC as with a real one, and has to be heard.
        let least = if id == DeadlineId::PowerAnswer { BMC_PATIENCE.min(table) } else { Duration::ZERO };
        self.overrides.get(&id).copied().unwrap_or_else(|| self.scaled(table).max(least))
    }

    /// A duration that a table or a spec gives.
    #[must_use]
    pub fn scaled(&self, duration: Duration) -> Duration {
        (duration / self.divisor).max(Duration::from_millis(1)).min(duration)
    }
}

/// `at + after`, or the end of time.
#[must_use]
pub(crate) fn later(at: Timestamp, after: Duration) -> Timestamp {
    at.checked_add(after).unwrap_or(Timestamp::MAX)
}
