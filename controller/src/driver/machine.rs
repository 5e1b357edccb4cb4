//! The reconciliation of a machine: plan, do the next step, write the status.
//!
//! A step is recorded before its effect begins, under a key that a repetition finds again. If the region is killed in between, the next
//! region that gets the lease plans the same step, and repeats the same effect under the same key.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use basalt_api::agent::{DiskMarker, MarkerState, Packages};
use basalt_api::kinds::{
    BootProgress, Condition, ConditionStatus, MachineStatus, PowerState, PowerStatus, phase,
};
use basalt_api::values::{Attempt, MachineId, Timestamp};
use basalt_db::{Announced, Announcement, Fact, Lease, Object, StepEnd, StoreError, Take, Then};
use basalt_engine::ends::ending;
use basalt_engine::plan::{BootDevice, Effect, PlannedStep, TaskKind, Verb};
use basalt_engine::render::{Context, ReportTo, compose, kernel_options};
use basalt_engine::{Plan, Policy, plan};
use basalt_proto::rack_v1::PowerCommand;
use basalt_proto::rack_v1::from_region::Message;
use basalt_proto::rack_v1::power_command;
use serde_json::{Value, json};

use super::converge::Driver;
use super::estate::RackSeen;
use super::load::{BMC_DESTINATION, Estate, Loaded};
use super::{
    addresses, bmc_account, decision, entries, estate, hardware_tests, machine_addresses, operation,
    packages, proxy, report_token, strangers, syslog, tag, zones,
};
use crate::racks::observed::{self, Observed};

/// The number of steps in one go, before other objects get their turn.
const STEPS: usize = 8;
/// The pause after an effect could not be handed over.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a task could not be composed. A missing object may be declared meanwhile without a wake-up of the machine.
const PAUSE_COMPOSE: Duration = Duration::from_secs(30);

/// The result of a step.
enum Did {
    /// Its effect has begun; plan again.
    Begun,
    /// Its effect cannot be handed over now.
    Later,
    /// Its task cannot be composed.
    Cannot(String),
    /// The machine's object was deleted.
    Gone,
}

/// Reconciles one machine.
///
/// # Errors
/// Fails if the database fails, or if the lease is over. Nothing is lost: the work is repeated.
pub async fn reconcile(driver: &Driver, lease: &Lease) -> Result<Then, StoreError> {
    for _ in 0..STEPS {
        let Some(object) = driver.store.get_by_uid(lease.uid).await? else { return Ok(Then::Rest) };
        let estate = driver.estate().await?;
        let loaded = estate.machine(&driver.store, &object).await?;
        driver.meters.evaluated(tag::expressions(&estate.tags));
        if strangers::adopt(driver, &estate, &object, &loaded).await? {
            continue;
        }
        if bmc_account::settle(driver, &loaded).await? {
            continue;
        }
        if hardware_tests::settle(driver, &loaded).await? {
            continue;
        }
        if addresses::assign(driver, &estate, &loaded).await? {
            continue;
        }
        let now = driver.store.now().await?.max(loaded.input.latest());
        let policy = estate.policy(&driver.policy);
        let planned = plan(&loaded.input, &policy, now);
        note_ends(driver, &loaded, &policy, now).await?;
        addresses::give_back(driver, &estate, &loaded, &planned).await?;
        if operation::note(driver, &loaded, &planned).await? {
            continue;
        }
        keep_slot(driver, &loaded, &planned).await?;
        if entries::write(driver, lease, &estate, &loaded, &planned).await? {
            continue;
        }
        let turn =
            Turn { driver, lease, estate: &estate, loaded: &loaded, policy: &policy, planned: &planned, now };
        let Some(step) = planned.next.first() else {
            turn.write(&object, None).await?;
            return Ok(wake(&planned, &loaded, now));
        };
        match turn.perform(step).await? {
            Did::Begun => {}
            Did::Gone => return Ok(Then::Rest),
            Did::Later => {
                turn.write(&object, None).await?;
                return Ok(Then::Again(PAUSE));
            }
            Did::Cannot(why) => {
                turn.write(&object, Some(why)).await?;
                return Ok(Then::Again(PAUSE_COMPOSE));
            }
        }
    }
    Ok(Then::Again(Duration::ZERO))
}

/// When to reconcile the machine again: at its earliest deadline, or when a lease ends and its address with it.
fn wake(planned: &Plan, loaded: &Loaded, now: Timestamp) -> Then {
    let lease_ends = loaded.leases.iter().map(|lease| lease.ends_at).min();
    match planned.wake_at.into_iter().chain(lease_ends).min() {
        Some(at) => Then::Again(Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)),
        None => Then::Rest,
    }
}

/// Records the results of steps.
async fn note_ends(
    driver: &Driver,
    loaded: &Loaded,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut ends = Vec::new();
    let mut named = BTreeMap::new();
    for (id, key) in &loaded.open {
        let record = loaded.input.records.iter().find(|record| record.key == *key);
        let Some(record) = record else { continue };
        let Some((at, ending)) = ending(&loaded.input, policy, now, record) else { continue };
        ends.push(StepEnd { id: *id, at, outcome: to_json(&ending)? });
        named.insert(*id, (key, record.step.name(), ending));
    }
    if ends.is_empty() {
        return Ok(());
    }
    // A step that was begun again under a later epoch is still one step.
    let mut counted = BTreeSet::new();
    for (id, took) in driver.store.finish_steps(&ends).await? {
        if let Some((key, step, ending)) = named.get(&id)
            && counted.insert(*key)
        {
            driver.meters.step(step, ending.word(), took);
        }
    }
    Ok(())
}

/// Changes the machine's part in the fleet's budget as the plan needs it.
async fn keep_slot(driver: &Driver, loaded: &Loaded, planned: &Plan) -> Result<(), StoreError> {
    let machine = loaded.input.uid;
    let waits = planned.waits.iter().any(|wait| wait.code == "FleetBudget");
    let holds = loaded.slot.is_some_and(|slot| slot.attempt.is_some());
    if loaded.slot.is_some() && (if holds { planned.writes.is_none() } else { !waits }) {
        driver.store.leave_fleet(machine).await?;
    }
    if waits && (holds || loaded.slot.is_none()) && planned.writes.is_none() {
        driver.store.await_fleet(machine, &loaded.input.budget.zone).await?;
    }
    Ok(())
}

/// One turn of the loop over one machine, with its plan.
struct Turn<'a> {
    driver: &'a Driver,
    lease: &'a Lease,
    estate: &'a Estate,
    loaded: &'a Loaded,
    policy: &'a Policy,
    planned: &'a Plan,
    now: Timestamp,
}

impl Turn<'_> {
    async fn perform(&self, step: &PlannedStep) -> Result<Did, StoreError> {
        let name = format!("step {}", step.step.name());
        let attributes = vec![("basalt.step.key", step.key.to_string())];
        self.driver.telemetry.span(name, attributes, Box::pin(self.begin(step)), ToString::to_string).await
    }

    async fn begin(&self, step: &PlannedStep) -> Result<Did, StoreError> {
        let Self { driver, loaded, .. } = self;
        let machine = loaded.input.uid;
        tracing::info!(
            machine = loaded.input.name,
            step = step.step.name(),
            key = step.key.as_str(),
            try_no = step.try_no,
            "{}",
            step.step.spec().says
        );
        match &step.effect {
            Effect::Arm { task } => self.arm(step, *task).await,
            Effect::Power { verb, device } => {
                let Some(id) = self.announce(step, self.takes_power(step, *verb).as_ref()).await? else {
                    return Ok(Did::Later);
                };
                driver.kill.at(step.step.name(), "recorded");
                let Some(rack) = self.power_rack() else { return Ok(Did::Later) };
                let command = power_command(driver, self.lease, loaded, step, *verb, *device);
                if !driver.sessions.send(rack.uid, Message::Power(command)) {
                    return Ok(Did::Later);
                }
                driver.kill.at(step.step.name(), "effected");
                driver.store.start_step(id).await?;
                Ok(Did::Begun)
            }
            Effect::LetGo { deployment, unwiped } => {
                let Some(id) = self.announce(step, None).await? else { return Ok(Did::Later) };
                driver.store.start_step(id).await?;
                driver.kill.at(step.step.name(), "recorded");
                if *unwiped {
                    driver.store.mark_unwiped(machine, true).await?;
                }
                // Addresses first: after a death in between, the step is repeated for the claim.
                driver.store.release_addresses((*deployment).into(), &[]).await?;
                let owned = loaded.addressing.owned.iter().map(|address| address.subnet);
                addresses::wake_racks(driver, self.estate, owned).await?;
                driver.store.release_machine(*deployment).await?;
                driver.kill.at(step.step.name(), "effected");
                driver.store.enqueue((*deployment).into(), Duration::ZERO).await?;
                Ok(Did::Begun)
            }
            Effect::Forget => {
                if self.announce(step, None).await?.is_none() {
                    return Ok(Did::Later);
                }
                driver.kill.at(step.step.name(), "recorded");
                // Names are deleted with the machine. This wakes the domains with these names.
                driver.store.put_host_names(machine.into(), &BTreeSet::new()).await?;
                driver.store.finalise(machine.into()).await?;
                driver.kill.at(step.step.name(), "effected");
                driver.store.enqueue_kind("Rack").await?;
                Ok(Did::Gone)
            }
        }
    }

    /// Records a step. `None`: the fleet's budget was used up meanwhile.
    async fn announce(
        &self,
        step: &PlannedStep,
        takes: Option<&Take<'_>>,
    ) -> Result<Option<i64>, StoreError> {
        let record = step.record(None, self.lease.epoch, self.now);
        self.put_on_record(step, step.attempt, None, &json!({ "record": to_json(&record)? }), takes).await
    }

    async fn put_on_record(
        &self,
        step: &PlannedStep,
        attempt: Option<Attempt>,
        arms: Option<&[u8]>,
        detail: &Value,
        takes: Option<&Take<'_>>,
    ) -> Result<Option<i64>, StoreError> {
        let decision = decision::made(self.loaded, self.policy, self.planned, self.now)?;
        let announcement = Announcement {
            lease: self.lease,
            step_key: step.key.as_str(),
            attempt,
            arms,
            detail,
            decision: &decision,
            takes,
        };
        Ok(match self.driver.store.announce(&announcement).await? {
            Announced::Yes(id) => Some(id),
            Announced::OverBudget => {
                self.driver.meters.conflict("fleet_budget");
                None
            }
        })
    }

    /// The part of the fleet's budget that a power command needs. A repeated command has its part already.
    fn takes_power(&self, step: &PlannedStep, verb: Verb) -> Option<Take<'static>> {
        let limits = self.estate.limits();
        let on = matches!(verb, Verb::On | Verb::Cycle) && !step.resume;
        (on && limits.power_on_per_minute.is_some()).then_some(Take::PowerOn { limits })
    }

    /// The rack that has the machine's BMC in its concern, or will have it.
    fn power_rack(&self) -> Option<&RackSeen> {
        let holder = entries::power_holder(&self.loaded.entries);
        self.estate.power_rack(&self.loaded.input.spec, holder)
    }

    async fn arm(&self, step: &PlannedStep, kind: TaskKind) -> Result<Did, StoreError> {
        let Self { driver, lease, estate, loaded, .. } = self;
        let Some(image) = &loaded.input.ephemeral else { return Ok(Did::Later) };
        let attempt = driver.store.next_attempt().await?;
        let mut attempt_key = [0; 32];
        aws_lc_rs::rand::fill(&mut attempt_key)
            .map_err(|_| StoreError::Corrupt("the system gives no random bytes".to_owned()))?;
        let machine = loaded.input.uid;
        let racks = estate::boot_racks(&estate.nets, &estate.racks, &loaded.stands_at);
        let booted_at: Vec<IpAddr> = loaded.stands_at.iter().copied().chain(leased(&loaded.facts)).collect();
        let assigned = loaded.input.claim.iter().flat_map(|claim| claim.assigned.values());
        let addresses: Vec<IpAddr> =
            assigned.map(|assigned| assigned.address).chain(booted_at.iter().copied()).collect();
        let asks_others = loaded.input.network().is_some_and(|it| it.dns_servers.is_some());
        let by_name = zones::racks_by_name(estate, &addresses, estate::RACK_HTTP, asks_others);
        let by_address = estate::http_of(&racks, &estate.nets, &leased(&loaded.facts));
        let report = ReportTo {
            racks: by_name.map(|at| format!("http://{at}")).into_iter().chain(by_address).collect(),
            token: report_token::mint(&attempt_key, attempt.get(), &machine.to_string()),
        };
        let scripts = loaded.scripts.of(kind).to_vec();
        let bmc = (kind == TaskKind::Inventory)
            .then(|| bmc_account::wanted(&driver.store, loaded, &estate.settings, attempt));
        let (packages, log_to) = match kind {
            TaskKind::Install => {
                let packages = packages::repositories(&driver.store, loaded.input.spec.architecture).await?;
                let log_to = syslog::of_system(estate, &addresses, asks_others);
                let proxy = proxy::of_system(estate, &addresses, asks_others);
                (Packages { proxy, ..packages }, log_to)
            }
            _ => (Packages::default(), Vec::new()),
        };
        let context = Context {
            attempt,
            not_after: step.not_after,
            report: Some(report),
            scripts,
            first_boot: if kind == TaskKind::Install {
                loaded.scripts.first_boot.clone()
            } else {
                Vec::new()
            },
            bmc: bmc.flatten(),
            packages,
            log_to,
            // The ephemeral environment has its DNS servers from DHCP.
            proxy: proxy::of_system(estate, &booted_at, false),
        };
        let task = match compose(&loaded.input, kind, &context) {
            Ok(task) => task,
            Err(error) => return Ok(Did::Cannot(basalt_api::in_one_line(&error))),
        };
        let options = [Some(image.kernel_options.as_str()), loaded.input.spec.kernel_options.as_deref()];
        let mut detail = json!({
            "record": to_json(&step.record(Some(attempt), lease.epoch, self.now))?,
            "task": to_json(&task)?,
            "architecture": loaded.input.spec.architecture.to_string(),
            "kernel": image.kernel.to_string(),
            "initrd": image.initrd.to_string(),
            "squashfs": image.squashfs.to_string(),
            "kernel_options": kernel_options(options),
        });
        if task.bmc.is_some()
            && let Some(detail) = detail.as_object_mut()
        {
            detail.insert(BMC_DESTINATION.to_owned(), to_json(&loaded.declared.destination)?);
        }
        let limits = estate.limits();
        let disks = Take::Disks { zone: &loaded.input.budget.zone, until: step.not_after, limits };
        let takes = task.changes_machine().then_some(&disks);
        driver.kill.at(step.step.name(), "recorded");
        let arms = Some(attempt_key.as_slice());
        if self.put_on_record(step, Some(attempt), arms, &detail, takes).await?.is_none() {
            return Ok(Did::Later);
        }
        driver.kill.at(step.step.name(), "effected");
        Ok(Did::Begun)
    }

    /// Writes the machine's status if it has changed, and the consequences of the change.
    async fn write(&self, object: &Object, cannot: Option<String>) -> Result<(), StoreError> {
        let &Self { driver, lease, estate, loaded, planned, now, .. } = self;
        let before: MachineStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
        let mut status = status(loaded, planned);
        if let Some(why) = cannot {
            stall(&mut status.common.conditions, &why);
        }
        status.common.observed_generation = object.generation;
        basalt_engine::machine::carry_since(&before.common.conditions, &mut status.common.conditions, now);
        driver.write_status(lease, object.generation, &to_json(&status)?).await?;
        let names =
            zones::of_machine(estate, loaded, planned.report.installed_by.is_some(), &status.addresses);
        zones::write_names(driver, loaded, &names).await?;
        let input = &loaded.input;
        let subject = tag::subject(&input.name, &input.spec, loaded.inventory.as_ref());
        let is_news = before.inventory != loaded.inventory;
        tag::settle(driver, input.uid, &subject, &loaded.automatic, is_news).await
    }
}

fn power_command(
    driver: &Driver,
    lease: &Lease,
    loaded: &Loaded,
    step: &PlannedStep,
    verb: Verb,
    device: BootDevice,
) -> PowerCommand {
    let efi = loaded
        .input
        .facts
        .inventory
        .as_ref()
        .is_some_and(|seen| seen.inventory.firmware == basalt_api::agent::Firmware::Uefi);
    PowerCommand {
        command_id: step.key.to_string(),
        machine_uid: loaded.input.uid.to_string(),
        incarnation: driver.store.incarnation().to_string(),
        epoch: lease.epoch.get(),
        step_key: step.key.to_string(),
        verb: match verb {
            Verb::Status => power_command::Verb::Status,
            Verb::On => power_command::Verb::On,
            Verb::SoftOff => power_command::Verb::SoftOff,
            Verb::Off => power_command::Verb::Off,
            Verb::Cycle => power_command::Verb::Cycle,
            Verb::ResetBmc => power_command::Verb::ResetBmc,
        }
        .into(),
        boot_device: match device {
            BootDevice::Unchanged => power_command::BootDevice::Unchanged,
            BootDevice::PxeOnce => power_command::BootDevice::PxeOnce,
            BootDevice::Disk => power_command::BootDevice::Disk,
        }
        .into(),
        efi,
        not_after_unix_ms: step.not_after.as_millisecond(),
        bmc_generation: loaded.input.generation.get(),
        bmc_account: loaded.input.bmc_account.map_or(0, Attempt::get),
        traceparent: crate::telemetry::here().map(|here| here.child().to_string()).unwrap_or_default(),
    }
}

/// The addresses that racks have leased to it.
fn leased(facts: &[Fact]) -> Vec<IpAddr> {
    let address = |fact| match Observed::of(fact) {
        Some(Observed::Lease(lease)) => lease.address.parse().ok(),
        _ => None,
    };
    facts.iter().filter_map(address).collect()
}

/// Sets the conditions of a machine with which only a person can go on.
fn stall(conditions: &mut Vec<Condition>, why: &str) {
    conditions.retain(|condition| condition.kind != Condition::POWER_DIFFERS);
    for condition in conditions {
        condition.reason = "Refused".to_owned();
        condition.message = why.to_owned();
        let stalled = condition.kind == Condition::STALLED;
        condition.status = if stalled { ConditionStatus::True } else { ConditionStatus::False };
    }
}

fn status(loaded: &Loaded, planned: &Plan) -> MachineStatus {
    let facts = &loaded.input.facts;
    let mut status = MachineStatus::default();
    status.common.conditions = planned.report.conditions.clone();
    status.axes = planned.report.axes.clone();
    status.phase = Some(phase(&planned.report.axes).to_owned());
    status.deployment =
        loaded.deployment.as_ref().and_then(|o| o.name.parse().ok()).map(basalt_api::Ref::new);
    status.tags = loaded.tags.iter().filter_map(|tag| tag.parse().ok()).collect();
    let automatic = loaded.automatic.iter().filter(|it| it.error.is_none());
    status.automatic_tags = automatic.filter_map(|it| it.name.parse().ok()).collect();
    status.inventory = loaded.inventory.clone();
    status.bmc = bmc_account::status(loaded);
    status.tests = loaded.tests.status();
    status.commissioned_at = facts.inventory.as_ref().map(|seen| seen.at);
    status.power = power(loaded);
    status.addresses = machine_addresses::of(loaded, planned);
    if let (None, Some(lease), Some(nic)) = (&loaded.input.claim, &facts.lease, boot_nic(loaded))
        && let Ok(address) = lease.address.parse()
    {
        status.last_leased.insert(nic, address);
    }
    status.boot = progress(loaded);
    status
}

/// The power from the last reading. If that failed, it is unknown, with the reason.
fn power(loaded: &Loaded) -> Option<PowerStatus> {
    let facts = &loaded.input.facts;
    let read = || facts.power.as_ref().map(|reading| PowerStatus::new(reading.state, reading.at));
    let failed = facts.unread.as_ref().map(|unread| PowerStatus {
        error: Some(unread.message.clone()),
        ..PowerStatus::new(PowerState::Unknown, unread.at)
    });
    let asked = loaded.facts.iter().filter(|fact| fact.kind == "power" || observed::is_reading(&fact.kind));
    let rack = asked.max_by_key(|fact| fact.id).and_then(|fact| fact.source.parse().ok());
    let status = failed.or_else(read)?;
    Some(PowerStatus { certificate: facts.bmc_certificate, rack: rack.map(basalt_api::Ref::new), ..status })
}

fn boot_nic(loaded: &Loaded) -> Option<String> {
    let seen = loaded.input.facts.inventory.as_ref()?;
    seen.inventory.nics.iter().find(|nic| nic.boot).map(|nic| nic.name.clone())
}

/// The progress of the present boot: of the latest attempt, while it has no result.
fn progress(loaded: &Loaded) -> Option<BootProgress> {
    let facts = &loaded.input.facts;
    let attempt: Attempt = loaded.input.records.iter().rev().find_map(|record| record.attempt)?;
    if facts.results.contains_key(&attempt) {
        return None;
    }
    let request = facts.boot_requests.get(&attempt);
    let progress = facts.progress.get(&attempt);
    let seen = loaded.facts.iter().filter(|fact| {
        fact.attempt == Some(attempt) && ["boot_request", "claim", "progress"].contains(&fact.kind.as_str())
    });
    let rack = seen.max_by_key(|fact| fact.id).and_then(|fact| fact.source.parse().ok());
    let (step, at) = match (progress, facts.claims.get(&attempt), request) {
        (Some(progress), _, _) => (progress.stage.clone(), progress.at),
        (None, Some(claim), _) => ("agent".to_owned(), claim.at),
        (None, None, Some(request)) => (request.service.clone(), request.last_at),
        (None, None, None) => return None,
    };
    Some(BootProgress { rack: rack.map(basalt_api::Ref::new), ..BootProgress::new(step, at) })
}

/// The disk that a system was installed on.
#[must_use]
pub fn installed_disk(markers: &BTreeMap<String, DiskMarker>, machine: MachineId) -> Option<String> {
    let ours = |m: &&DiskMarker| m.state == MarkerState::Installed && m.machine_uid == machine.to_string();
    markers.iter().find(|(_, marker)| ours(marker)).map(|(name, _)| name.clone())
}

pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<Value, StoreError> {
    serde_json::to_value(value).map_err(|error| StoreError::Corrupt(error.to_string()))
}
