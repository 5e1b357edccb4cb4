//! The planner's input: the data of one machine. It is read from the store each time; the estate, which is the same for all machines, is not.
//!
//! | module | is |
//! | --- | --- |
//! | [`fold`] | the state of the machine, from its facts |
//! | [`addressing`] | the addresses of its deployment's interfaces |
//! | [`bmc_account`], [`bmc_destination`] | the account that the machine makes on its BMC, and where its password may go |
//! | [`entries`] | its entries in racks' concerns, and what racks have applied |
//! | [`hardware_tests`] | rows of hardware tests, and their meaning for it |
//! | [`scripts`] | the declared scripts of its tasks |
//! | [`operation`] | one-time requests of people |
//! | [`decision`] | a decision about it, in the form in which it is stored |

pub mod addressing;
pub mod bmc_account;
pub mod bmc_destination;
pub mod decision;
pub mod entries;
pub mod fold;
pub mod hardware_tests;
pub mod operation;
pub mod scripts;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use basalt_api::agent::{DiskMarker, MarkerState};
use basalt_api::kinds::{DeploymentSpec, Inventory, MachineSpec};
use basalt_api::values::{Attempt, DeploymentId, ImageId, MachineId, RackId, Timestamp};
use basalt_db::{
    BmcAccount, BmcDestination, CurrentLease, EntryState, Fact, HostName, Object, Slot, Store, StoreError,
    Tagged,
};
use basalt_engine::budget::Budget;
use basalt_engine::facts::{Facts, StepKey, StepRecord};
use basalt_engine::input::{Claim, FirstBootScripts, MachineInput};
use serde::Deserialize;

use crate::driver::stored::spec;
use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::{self, RackSeen};
use crate::driver::topology::tags;
use crate::racks::observed::{self, Observed};
use addressing::Addressing;
use bmc_account::{DeclaredBmc, InUse};
use fold::fold;
use hardware_tests::HardwareTests;
use scripts::Scripts;

/// The number of steps that are read of one machine, of each sort. A machine takes a few dozen between two inventories.
const STEPS: i64 = 1000;
/// The zone of machines that name none.
const DEFAULT_ZONE: &str = "default";

/// The data of one machine in the store.
#[derive(Debug)]
pub struct Loaded {
    /// The planner's input.
    pub input: MachineInput,
    /// The deployment that owns it.
    pub deployment: Option<Object>,
    /// The addresses that the deployment needs and has.
    pub addressing: Addressing,
    /// The tasks of armed attempts, as they were composed.
    pub tasks: BTreeMap<Attempt, serde_json::Value>,
    /// The markers on its disks, by kernel name, from the last report.
    pub markers: BTreeMap<String, DiskMarker>,
    /// The facts behind the input.
    pub facts: Vec<Fact>,
    /// Its current leases.
    pub leases: Vec<CurrentLease>,
    /// The hardware of the machine.
    pub inventory: Option<Inventory>,
    /// All tags of the machine.
    pub tags: BTreeSet<String>,
    /// The automatic tags, including those that cannot be computed.
    pub automatic: Vec<Tagged>,
    /// The scripts of its tasks.
    pub scripts: Scripts,
    /// The ids of its step records, and when the effect of each was handed over.
    pub steps: Vec<(i64, Option<Timestamp>)>,
    /// The steps whose results are not recorded yet.
    pub open: Vec<(i64, StepKey)>,
    /// The machine's part in the fleet's budget.
    pub slot: Option<Slot>,
    /// The stored operations on it.
    pub operations: Vec<basalt_db::Operation>,
    /// The account that it has created on its BMC.
    pub account: Option<BmcAccount>,
    /// The reason why the password of that account may not be sent to where the BMC is now.
    pub misdirected: Option<String>,
    /// The declared destinations of the accounts that attempts asked for.
    pub destinations: BTreeMap<Attempt, BmcDestination>,
    /// The declared fields of its BMC. The input has the BMC as racks use it.
    pub declared: DeclaredBmc,
    /// The latest run of each test of its hardware.
    pub tests: HardwareTests,
    /// Its entries in racks' concerns, by concern.
    pub entries: BTreeMap<String, EntryState>,
    /// Its DNS names, as they were last written.
    pub host_names: BTreeSet<HostName>,
    /// The addresses that show the machine's network: those declared for its MACs, and the one of its last claim.
    pub stands_at: Vec<IpAddr>,
}

impl Loaded {
    /// Replaces the spec by another one, for a dry run.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn suppose(
        &mut self,
        store: &Store,
        estate: &Estate,
        mut spec: MachineSpec,
    ) -> Result<(), StoreError> {
        let (account, facts) = (self.account.as_ref(), &self.input.facts);
        let in_use = Box::pin(InUse::load(store, &estate.nets, &spec, account, facts)).await?;
        self.declared = DeclaredBmc::of(&spec);
        self.misdirected = in_use.misdirected;
        spec.bmc = in_use.bmc;
        (self.input.spec, self.input.bmc_account) = (spec, in_use.account);
        Ok(())
    }
}

impl Estate {
    /// The budget from the view of a machine, and the machine's own part.
    async fn budget(
        &self,
        store: &Store,
        uid: MachineId,
        zone: &str,
    ) -> Result<(Budget, Option<Slot>), StoreError> {
        let used = store.fleet_use(uid, zone, self.limits()).await?;
        let budget = Budget {
            declared: self.settings.fleet_budget.clone(),
            unread: self.unread.clone(),
            zone: zone.to_owned(),
            in_zone: used.in_zone,
            in_region: used.in_region,
            first_ends: used.first_ends,
            hour_full_until: used.hour_full_until,
            minute_full_until: used.minute_full_until,
            waits_since: used.own.filter(|own| own.attempt.is_none()).map(|own| own.since),
        };
        Ok((budget, used.own))
    }

    /// The claim of a deployment on its machine, if the deployment were as `object` and `declared`, with its present addresses.
    #[must_use]
    pub fn as_if(
        &self,
        object: &Object,
        declared: &DeploymentSpec,
        now: Timestamp,
        claim: Option<Claim>,
    ) -> Claim {
        let image = self.images.iter().find(|image| image.name == declared.image.as_str());
        Claim {
            uid: DeploymentId::from(object.uid),
            name: object.name.clone(),
            generation: object.generation,
            spec: declared.clone(),
            claimed_at: claim.as_ref().map_or(now, |claim| claim.claimed_at),
            deletion_requested_at: object.deletion_requested_at,
            unassigned: claim.as_ref().map(|claim| claim.unassigned.clone()).unwrap_or_default(),
            assigned: claim.map(|claim| claim.assigned).unwrap_or_default(),
            image: image.and_then(|image| self.resolved(image.uid)),
        }
    }

    /// Reads the data of one machine.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn machine(&self, store: &Store, object: &Object) -> Result<Loaded, StoreError> {
        let uid = MachineId::from(object.uid);
        let mut machine: MachineSpec = spec(object)?;
        let mut stored = store.planning_facts(object.uid).await?;
        let entries = store.entry_states(object.uid).await?;
        self.drop_old_readings(&mut stored, entries::power_holder(&entries));
        let markers = markers(&stored);
        let rows = store.planning_steps(object.uid, STEPS).await?;
        let steps = rows.iter().map(|row| (row.id, row.started_at)).collect();
        let unfinished = rows.iter().filter(|row| row.finished_at.is_none());
        let open = unfinished.map(|row| (row.id, StepKey::from(row.step_key.clone()))).collect();
        let destinations = destinations(&rows)?;
        let (records, tasks) = records(rows)?;
        let mut facts: Facts = fold(stored.clone(), &records, &tasks);
        let inventory = facts.inventory.as_ref().map(|seen| Inventory::from_agent(&seen.inventory, &markers));
        let subject = tags::subject(&object.name, &machine, inventory.as_ref());
        let automatic = tags::evaluate(uid, &subject, &self.tags);
        let mut tags = store.layered_tags_of(uid).await?;
        tags.extend(machine.tags.iter().map(ToString::to_string));
        tags.extend(automatic.iter().filter(|it| it.error.is_none()).map(|it| it.name.clone()));
        machine.kernel_options = tags::kernel_options(
            self.settings.kernel_options.as_ref(),
            &self.tags,
            &tags,
            machine.kernel_options,
        );
        // Names are deleted with their domains.
        let host_names = match self.domains.is_empty() {
            true => BTreeSet::new(),
            false => store.host_names(object.uid).await?,
        };
        let macs: Vec<String> = machine.boot_macs.iter().map(ToString::to_string).collect();
        let mut stands_at = store.declared_addresses(&macs).await?;
        stands_at.extend(claimed_at(&stored));
        let boot_racks = network::boot_racks(&self.nets, &self.racks, &stands_at);
        (facts.boot_applied, facts.boot_refused) =
            entries::applied(entries.get(entries::BOOT), &boot_racks, &self.racks);
        facts.boot_racks = network::link(boot_racks);
        let declared = DeclaredBmc::of(&machine);
        let account = store.bmc_account(uid).await?;
        let in_use = Box::pin(InUse::load(store, &self.nets, &machine, account.as_ref(), &facts)).await?;
        machine.bmc = in_use.bmc;
        facts.power_rack = network::link(self.power_rack(&machine, entries::power_holder(&entries)));
        let zone = machine.zone.as_ref().map_or(DEFAULT_ZONE, |zone| zone.as_str());
        let (budget, slot) = self.budget(store, uid, zone).await?;
        let leases = store.current_leases(&addressing::macs(&machine, &facts)).await?;
        let marks = store.machine_marks(uid).await?;
        let operations = store.planning_operations(uid).await?;
        let held = store.claim_on(uid).await?;
        let deployment = match held {
            Some((deployment, _)) => store.get_by_uid(deployment.into()).await?,
            None => None,
        };
        let claim = match (&deployment, held) {
            (Some(deployment), Some((_, since))) => Some(self.claim(store, deployment, since).await?),
            _ => None,
        };
        let (claim, mut addressing) =
            claim.map(|(claim, addressing)| (Some(claim), addressing)).unwrap_or_default();
        let release = claim.as_ref().map(|claim| &claim.spec);
        let scripts = Scripts::load(store, &machine, release).await?;
        let tests = Box::pin(HardwareTests::load(store, uid, marks.tests_accepted)).await?;
        let mut input = MachineInput {
            uid,
            name: object.name.clone(),
            generation: object.generation,
            bmc_account: in_use.account,
            ephemeral: self.ephemeral(machine.architecture),
            spec: machine,
            created_at: object.created_at,
            deletion_requested_at: object.deletion_requested_at,
            recommission_requested_at: marks.recommission_requested_at,
            abort_requested_at: operation::aborted(&operations),
            operations: operation::open(&operations),
            power_wish: operation::wish(&operations),
            unwiped: marks.unwiped,
            claim,
            inspection: scripts.inspection.planned(),
            failed_tests: tests.failed(),
            install: scripts.install.planned(),
            first_boot: FirstBootScripts::of(&scripts.first_boot),
            release: scripts.release.planned(),
            budget,
            facts,
            records,
        };
        if input.claim.as_ref().is_some_and(|claim| claim.spec.network.is_none()) {
            addressing.subnets = addressing::by_name(input.network(), &self.nets);
        }
        let assigned = addressing.assigned(input.network(), self);
        let unassigned = Box::pin(addressing.refusals(store, &input, &self.nets)).await?;
        if let Some(claim) = &mut input.claim {
            (claim.assigned, claim.unassigned) = (assigned, unassigned);
        }
        Ok(Loaded {
            input,
            deployment,
            addressing,
            tasks,
            markers,
            facts: stored,
            leases,
            inventory,
            tags,
            automatic,
            scripts,
            steps,
            open,
            slot,
            operations,
            host_names,
            account,
            misdirected: in_use.misdirected,
            destinations,
            declared,
            tests,
            entries,
            stands_at,
        })
    }

    /// Drops readings of racks that no longer have the BMC, which may arrive late.
    fn drop_old_readings(&self, facts: &mut Vec<Fact>, holder: Option<RackId>) {
        let holder = holder.and_then(|holder| self.racks.iter().find(|rack| rack.uid == holder));
        // A fact keeps its source's name from before a rename.
        let is_other = |fact: &Fact, rack: &RackSeen| {
            self.racks.iter().any(|it| it.uid != rack.uid && it.name == fact.source)
        };
        let is_current = |fact: &Fact| holder.is_some_and(|rack| !is_other(fact, rack));
        facts.retain(|fact| !observed::is_reading(&fact.kind) || is_current(fact));
    }

    async fn claim(
        &self,
        store: &Store,
        deployment: &Object,
        since: Timestamp,
    ) -> Result<(Claim, Addressing), StoreError> {
        let declared: DeploymentSpec = spec(deployment)?;
        let references = store.references(deployment.uid).await?;
        let named = || self.images.iter().find(|image| image.name == declared.image.as_str());
        let image = match store.supposed(deployment.uid) {
            // The references of a supposed deployment are not stored.
            Some(_) => named().map(|image| image.uid.into()),
            None => references.get("/image").copied(),
        };
        let owned = store.addresses_of(deployment.uid).await?;
        let addressing = Addressing { subnets: references, owned };
        let claim = Claim {
            uid: DeploymentId::from(deployment.uid),
            name: deployment.name.clone(),
            claimed_at: since,
            generation: deployment.generation,
            spec: declared,
            deletion_requested_at: deployment.deletion_requested_at,
            assigned: BTreeMap::new(),
            unassigned: BTreeMap::new(),
            image: image.and_then(|uid| self.resolved(ImageId::from(uid))),
        };
        Ok((claim, addressing))
    }
}

/// The address from which its agent claimed its last task. A lease is weaker evidence, because any host can use a MAC.
fn claimed_at(facts: &[Fact]) -> Option<IpAddr> {
    let claims = facts.iter().filter(|fact| fact.kind == "claim");
    match claims.max_by_key(|fact| fact.id).and_then(Observed::of) {
        Some(Observed::Claim(claim)) => claim.address.parse().ok(),
        _ => None,
    }
}

/// The part of a step record with the declared destination of an account.
pub const BMC_DESTINATION: &str = "bmc_destination";

/// Step records, and tasks by attempt.
pub type Records = (Vec<StepRecord>, BTreeMap<Attempt, serde_json::Value>);

/// The step records, oldest first, and the tasks of armed attempts. A step that was begun again under a later epoch is
/// still one step.
///
/// # Errors
/// Fails if a record cannot be read: another version wrote it.
pub fn records(rows: Vec<basalt_db::StepRecord>) -> Result<Records, StoreError> {
    let mut records: Vec<StepRecord> = Vec::new();
    let mut tasks = BTreeMap::new();
    for row in rows {
        let read = |part: &str| row.detail.get(part).cloned().unwrap_or_default();
        let mut record: StepRecord = serde_json::from_value(read("record"))
            .map_err(|error| StoreError::Corrupt(format!("step record {}: {error}", row.id)))?;
        // The clock may have gone back in between.
        record.delivered_at = row.started_at.map(|at| at.max(record.started_at));
        if let (Some(attempt), task @ serde_json::Value::Object(_)) = (row.attempt, read("task")) {
            tasks.insert(attempt, task);
        }
        match records.iter_mut().find(|known| known.key == record.key) {
            Some(known) => {
                known.delivered_at = known.delivered_at.max(record.delivered_at);
                known.epoch = known.epoch.max(record.epoch);
            }
            None => records.push(record),
        }
    }
    Ok((records, tasks))
}

/// The declared destinations of accounts, by the attempt that asked for the account.
fn destinations(rows: &[basalt_db::StepRecord]) -> Result<BTreeMap<Attempt, BmcDestination>, StoreError> {
    let asked = rows.iter().filter_map(|row| Some((row, row.attempt?, row.detail.get(BMC_DESTINATION)?)));
    let read = |(row, attempt, destination): (&basalt_db::StepRecord, _, &serde_json::Value)| {
        let destination = BmcDestination::deserialize(destination)
            .map_err(|error| StoreError::Corrupt(format!("step record {}: {error}", row.id)))?;
        Ok((attempt, destination))
    };
    asked.map(read).collect()
}

fn markers(facts: &[Fact]) -> BTreeMap<String, DiskMarker> {
    let results = facts.iter().filter(|fact| fact.kind == "result");
    let latest = results.max_by_key(|fact| fact.id).and_then(Observed::of);
    match latest {
        Some(Observed::Result(result)) => result.markers,
        _ => BTreeMap::new(),
    }
}

/// The disk that a system was installed on.
#[must_use]
pub fn installed_disk(markers: &BTreeMap<String, DiskMarker>, machine: MachineId) -> Option<String> {
    let ours = |m: &&DiskMarker| m.state == MarkerState::Installed && m.machine_uid == machine.to_string();
    markers.iter().find(|(_, marker)| ours(marker)).map(|(name, _)| name.clone())
}
