//! One turn of the loop over one machine: the next step of the plan, then the status.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use basalt_api::agent::Packages;
use basalt_api::kinds::MachineStatus;
use basalt_api::values::{Attempt, Timestamp};
use basalt_db::{Announced, Announcement, Fact, Object, StoreError, Take, WorkLease};
use basalt_engine::plan::{BootDevice, Effect, PlannedStep, TaskKind, Verb};
use basalt_engine::render::{Context, ReportTo, compose, kernel_options};
use basalt_engine::{Plan, Policy};
use basalt_proto::rack_v1::PowerCommand;
use basalt_proto::rack_v1::from_region::Message;
use basalt_proto::rack_v1::power_command;
use serde_json::{Value, json};

use crate::driver::context::Driver;
use crate::driver::machine::entries::power_holder;
use crate::driver::machine::{BMC_DESTINATION, Loaded, bmc_account, decision};
use crate::driver::reconcile::machine::{addresses, host_names, status};
use crate::driver::reconcile::tag;
use crate::driver::status::to_json;
use crate::driver::tasks::{packages, proxy, report_token, syslog};
use crate::driver::topology::estate::Estate;
use crate::driver::topology::internal_domain;
use crate::driver::topology::network::{self, RackSeen};
use crate::driver::topology::tags;
use crate::racks::observed::Observed;

/// The result of a step.
pub(crate) enum StepOutcome {
    /// Its effect has begun; plan again.
    Begun,
    /// Its effect cannot be handed over now.
    Later,
    /// Its task cannot be composed.
    Cannot(String),
    /// The machine's object was deleted.
    Gone,
}

/// One turn of the loop over one machine, with its plan.
pub(crate) struct Turn<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) lease: &'a WorkLease,
    pub(crate) estate: &'a Estate,
    pub(crate) loaded: &'a Loaded,
    pub(crate) policy: &'a Policy,
    pub(crate) planned: &'a Plan,
    pub(crate) now: Timestamp,
}

impl Turn<'_> {
    pub(crate) async fn perform(&self, step: &PlannedStep) -> Result<StepOutcome, StoreError> {
        let name = format!("step {}", step.step.name());
        let attributes = vec![("basalt.step.key", step.key.to_string())];
        self.driver.telemetry.span(name, attributes, Box::pin(self.begin(step)), ToString::to_string).await
    }

    async fn begin(&self, step: &PlannedStep) -> Result<StepOutcome, StoreError> {
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
                    return Ok(StepOutcome::Later);
                };
                driver.kill.at(step.step.name(), "recorded");
                let Some(rack) = self.power_rack() else { return Ok(StepOutcome::Later) };
                let command = power_command(driver, self.lease, loaded, step, *verb, *device);
                if !driver.sessions.send(rack.uid, Message::Power(command)) {
                    return Ok(StepOutcome::Later);
                }
                driver.kill.at(step.step.name(), "effected");
                driver.store.start_step(id).await?;
                Ok(StepOutcome::Begun)
            }
            Effect::LetGo { deployment, unwiped } => {
                let Some(id) = self.announce(step, None).await? else { return Ok(StepOutcome::Later) };
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
                Ok(StepOutcome::Begun)
            }
            Effect::Forget => {
                if self.announce(step, None).await?.is_none() {
                    return Ok(StepOutcome::Later);
                }
                driver.kill.at(step.step.name(), "recorded");
                // Names are deleted with the machine. This wakes the domains with these names.
                driver.store.put_host_names(machine.into(), &BTreeSet::new()).await?;
                driver.store.finalise(machine.into()).await?;
                driver.kill.at(step.step.name(), "effected");
                driver.store.enqueue_kind("Rack").await?;
                Ok(StepOutcome::Gone)
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
        let holder = power_holder(&self.loaded.entries);
        self.estate.power_rack(&self.loaded.input.spec, holder)
    }

    async fn arm(&self, step: &PlannedStep, kind: TaskKind) -> Result<StepOutcome, StoreError> {
        let Self { driver, lease, estate, loaded, .. } = self;
        let Some(image) = &loaded.input.ephemeral else { return Ok(StepOutcome::Later) };
        let attempt = driver.store.next_attempt().await?;
        let mut attempt_key = [0; 32];
        aws_lc_rs::rand::fill(&mut attempt_key)
            .map_err(|_| StoreError::Corrupt("the system gives no random bytes".to_owned()))?;
        let machine = loaded.input.uid;
        let racks = network::boot_racks(&estate.nets, &estate.racks, &loaded.stands_at);
        let booted_at: Vec<IpAddr> = loaded.stands_at.iter().copied().chain(leased(&loaded.facts)).collect();
        let assigned = loaded.input.claim.iter().flat_map(|claim| claim.assigned.values());
        let addresses: Vec<IpAddr> =
            assigned.map(|assigned| assigned.address).chain(booted_at.iter().copied()).collect();
        let asks_others = loaded.input.network().is_some_and(|it| it.dns_servers.is_some());
        let by_name = internal_domain::racks_by_name(estate, &addresses, network::RACK_HTTP, asks_others);
        let by_address = network::http_of(&racks, &estate.nets, &leased(&loaded.facts));
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
            Err(error) => return Ok(StepOutcome::Cannot(basalt_api::in_one_line(&error))),
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
            return Ok(StepOutcome::Later);
        }
        driver.kill.at(step.step.name(), "effected");
        Ok(StepOutcome::Begun)
    }

    /// Writes the machine's status if it has changed, and the consequences of the change.
    pub(crate) async fn write(&self, object: &Object, cannot: Option<String>) -> Result<(), StoreError> {
        let &Self { driver, lease, estate, loaded, planned, now, .. } = self;
        let before: MachineStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
        let mut status = status::of(loaded, planned);
        if let Some(why) = cannot {
            status::stall(&mut status.common.conditions, &why);
        }
        status.common.observed_generation = object.generation;
        basalt_engine::machine::carry_since(&before.common.conditions, &mut status.common.conditions, now);
        driver.write_status(lease, object.generation, &to_json(&status)?).await?;
        let names =
            host_names::of_machine(estate, loaded, planned.report.installed_by.is_some(), &status.addresses);
        host_names::write_names(driver, loaded, &names).await?;
        let input = &loaded.input;
        let subject = tags::subject(&input.name, &input.spec, loaded.inventory.as_ref());
        let is_news = before.inventory != loaded.inventory;
        tag::settle(driver, input.uid, &subject, &loaded.automatic, is_news).await
    }
}

fn power_command(
    driver: &Driver,
    lease: &WorkLease,
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
