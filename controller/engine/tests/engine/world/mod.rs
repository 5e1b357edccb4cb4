//! A small model of a machine, its BMC, its disk and its rack, and a driver that carries out plans.
//!
//! The hardware can fail in every way of [`Fault`], and the driver can die between any two of its actions. Forbidden actions
//! are detected at the hardware, which has the real state, and not from the planner's own records.
#![allow(dead_code, reason = "each test file uses its own part of the model")]

pub(crate) mod hardware;

use std::collections::BTreeMap;

use basalt_api::agent::{BlobRef, Inventory, Nic, Outcome, Script, Then};
use basalt_api::kinds::{
    Bmc, Condition, ConditionStatus, DeploymentSpec, EraseMethod, MachineSpec, PowerDriver, PowerState,
};
use basalt_api::values::{Attempt, DeploymentId, Epoch, Generation, ImageId, MachineId, Sha256, Timestamp};
use basalt_api::wire::{OperationState, Verb as Asked};
use basalt_engine::deadlines::DeadlineId;
use basalt_engine::facts::*;
use basalt_engine::input::{
    Claim, EphemeralImage, FailedTests, FirstBootScripts, MachineInput, Operation, Policy, ResolvedImage,
    TaskScripts,
};
use basalt_engine::plan::{BootAction, Effect, Plan, PlannedStep, TaskKind, Wait};
use basalt_engine::render::{Context, compose};
use basalt_engine::steps::StepId;
use hardware::{Fact, Fault, Hardware};

/// The moment at which the driver dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    Never,
    BeforeRecord,
    AfterRecord,
    AfterEffect,
}

pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) input: MachineInput,
    pub(crate) policy: Policy,
    pub(crate) hardware: Hardware,
    pub(crate) spool: Vec<Fact>,
    pub(crate) connected: bool,
    /// The boot action that the rack has at present.
    pub(crate) rack_boot: BootAction,
    pub(crate) tasks: BTreeMap<Attempt, (TaskKind, Scope, Option<Sha256>, Timestamp)>,
    pub(crate) attempt: u64,
    pub(crate) epoch: u64,
    pub(crate) gone: bool,
    pub(crate) recorded: Vec<StepId>,
    pub(crate) violations: Vec<String>,
    /// The operations that have ended: the verb, the result, and the reason.
    pub(crate) ended: Vec<(Asked, OperationState, String)>,
    /// The driver dies when it first reaches this step.
    pub(crate) kill_at: Option<(StepId, Crash)>,
    deployments: u128,
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(crate) fn uuid(n: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(n)
}

pub(crate) fn machine_spec() -> MachineSpec {
    let mut spec = MachineSpec::default();
    spec.boot_macs.insert("52:54:00:00:00:01".parse().unwrap());
    let mut bmc = Bmc::new(PowerDriver::Ipmi);
    bmc.address = Some("10.77.0.101".parse().unwrap());
    bmc.username = Some("admin".to_owned());
    spec.bmc = Some(bmc);
    spec
}

pub(crate) fn deployment_spec() -> DeploymentSpec {
    DeploymentSpec::new("debian-12".parse().unwrap())
}

pub(crate) fn image() -> ResolvedImage {
    ResolvedImage {
        uid: ImageId::from(uuid(0xdeb)),
        digest: Sha256::new([7; 32]),
        root: BlobRef { sha256: "ab".repeat(32), size: 1000 },
        available: true,
        kernel_options: String::new(),
    }
}

/// A script for operations.
fn probe() -> Script {
    let content = "#!/bin/sh\n".to_owned();
    Script {
        name: "probe".to_owned(),
        content,
        arguments: Vec::new(),
        timeout_seconds: 600,
        ..Script::default()
    }
}

/// True if nothing is left to do.
pub(crate) fn ready(_: &World, plan: &Plan) -> bool {
    plan.next.is_empty() && plan.waits.is_empty()
}

/// True if a person is needed.
pub(crate) fn stalled(_: &World, plan: &Plan) -> bool {
    plan.waits.iter().any(|w| w.stalled)
}

impl World {
    pub(crate) fn new() -> Self {
        let now = at(0);
        let facts = Facts {
            power_rack: Link::Connected { since: now },
            boot_racks: Link::Connected { since: now },
            ..Facts::default()
        };
        let digest = Sha256::new([1; 32]);
        Self {
            now,
            input: MachineInput {
                bmc_account: None,
                uid: MachineId::from(uuid(1)),
                name: "web1".to_owned(),
                generation: Generation::new(1),
                spec: machine_spec(),
                created_at: now,
                deletion_requested_at: None,
                recommission_requested_at: None,
                abort_requested_at: None,
                operations: Vec::new(),
                power_wish: None,
                unwiped: false,
                inspection: TaskScripts::default(),
                install: TaskScripts::default(),
                release: TaskScripts::default(),
                first_boot: FirstBootScripts::default(),
                failed_tests: FailedTests::default(),
                claim: None,
                budget: basalt_engine::budget::Budget::default(),
                ephemeral: Some(EphemeralImage {
                    kernel: digest,
                    initrd: digest,
                    squashfs: digest,
                    kernel_options: String::new(),
                }),
                facts,
                records: Vec::new(),
            },
            policy: Policy::default(),
            hardware: Hardware::default(),
            spool: Vec::new(),
            connected: true,
            rack_boot: BootAction::Local,
            tasks: BTreeMap::new(),
            attempt: 100,
            epoch: 1,
            gone: false,
            recorded: Vec::new(),
            violations: Vec::new(),
            ended: Vec::new(),
            kill_at: None,
            deployments: 0x1000,
        }
    }

    /// Gives commissioning, installs and releases scripts from now on.
    pub(crate) fn with_scripts(mut self) -> Self {
        let scripts =
            TaskScripts { names: vec!["burn-in".to_owned()], unusable: None, ..TaskScripts::default() };
        (self.input.inspection, self.input.release) = (scripts.clone(), scripts.clone());
        self.input.install = scripts;
        self.hardware.scripted = true;
        self
    }

    /// Gives the first boots of systems that are installed from now on scripts, which take 1,500 seconds at most.
    pub(crate) fn with_first_boot(mut self) -> Self {
        self.input.first_boot =
            FirstBootScripts { names: vec!["join".to_owned(), "tune".to_owned()], seconds: 1500 };
        self.hardware.first_boot = true;
        self
    }

    /// A new deployment claims the machine, if it is free.
    pub(crate) fn deploy(&mut self, change: impl FnOnce(&mut DeploymentSpec)) {
        if self.input.claim.is_some() || self.gone {
            return;
        }
        self.deployments += 1;
        let mut spec = deployment_spec();
        change(&mut spec);
        self.input.claim = Some(Claim {
            uid: DeploymentId::from(uuid(self.deployments)),
            name: "web".to_owned(),
            generation: Generation::new(1),
            spec,
            claimed_at: self.now,
            deletion_requested_at: None,
            assigned: BTreeMap::new(),
            unassigned: BTreeMap::new(),
            image: Some(image()),
        });
    }

    pub(crate) fn undeploy(&mut self) {
        if let Some(claim) = &mut self.input.claim {
            claim.deletion_requested_at.get_or_insert(self.now);
        }
    }

    /// Changes the deployment's spec.
    pub(crate) fn respec(&mut self, change: impl FnOnce(&mut DeploymentSpec)) {
        if let Some(claim) = &mut self.input.claim {
            change(&mut claim.spec);
            claim.generation = claim.generation.next();
        }
    }

    /// Changes the machine's spec.
    pub(crate) fn remachine(&mut self, change: impl FnOnce(&mut MachineSpec)) {
        change(&mut self.input.spec);
        self.input.generation = self.input.generation.next();
    }

    pub(crate) fn plan(&self) -> Plan {
        basalt_engine::plan(&self.input, &self.policy, self.now)
    }

    /// One reconciliation: plans, and carries the plan out. Returns true if a step was begun.
    pub(crate) fn reconcile(&mut self, crash: Crash) -> bool {
        if self.gone {
            return false;
        }
        let plan = self.plan();
        self.check_plan(&plan);
        self.epoch += 1;
        let before = (self.input.records.len(), self.input.claim.is_some(), self.rack_boot);
        if self.connected {
            self.apply_boot(plan.boot);
        }
        if self.note_operations(&plan) {
            return true;
        }
        for step in &plan.next {
            self.check_step(step);
            let crash = match self.kill_at.take_if(|(at, _)| *at == step.step) {
                Some((_, crash)) => crash,
                None => crash,
            };
            self.do_step(step, crash);
        }
        before != (self.input.records.len(), self.input.claim.is_some(), self.rack_boot)
    }

    /// A person requests an operation.
    pub(crate) fn ask(&mut self, verb: Asked) {
        self.deployments += 1;
        let is_power = |verb| matches!(verb, Asked::PowerOn | Asked::PowerOff | Asked::PowerCycle);
        let operations = &mut self.input.operations;
        operations
            .retain(|it| it.verb != verb && !(is_power(it.verb) && (is_power(verb) || verb == Asked::Abort)));
        let lasts = self.policy.deadline(DeadlineId::Operation);
        operations.push(Operation {
            id: uuid(self.deployments).into(),
            verb,
            script: matches!(verb, Asked::RunScript | Asked::Rescue).then(probe),
            tests: if verb == Asked::Test { vec![probe()] } else { Vec::new() },
            requested_at: self.now,
            deadline: self.now.checked_add(lasts).unwrap(),
        });
        match verb {
            Asked::Recommission => self.input.recommission_requested_at = Some(self.now),
            Asked::Abort => self.input.abort_requested_at = Some(self.now),
            Asked::OverrideTests => self.input.failed_tests.accepted_at = Some(self.now),
            _ => {}
        }
    }

    /// Removes ended operations; returns true if there were any.
    fn note_operations(&mut self, plan: &Plan) -> bool {
        let open = self.input.operations.len();
        for seen in plan.operations.iter().filter(|seen| seen.state.is_over()) {
            let Some(at) = self.input.operations.iter().position(|it| it.id == seen.id) else { continue };
            let verb = self.input.operations.remove(at).verb;
            let left = match verb {
                Asked::PowerOn | Asked::PowerCycle => Some(PowerState::On),
                Asked::PowerOff => Some(PowerState::Off),
                Asked::Recommission
                | Asked::Abort
                | Asked::RunScript
                | Asked::Rescue
                | Asked::Test
                | Asked::OverrideTests
                | Asked::ResetBmc => None,
            };
            if let Some(state) = left.filter(|_| seen.state == OperationState::Done) {
                self.input.power_wish = Some(PowerReading { state, at: self.now });
            }
            self.ended.push((verb, seen.state, format!("{}: {}", seen.reason, seen.message)));
        }
        open != self.input.operations.len()
    }

    fn apply_boot(&mut self, boot: BootAction) {
        if self.hardware.has(Fault::RackRefuses) {
            self.input.facts.boot_refused = Some("disk full".to_owned());
            return;
        }
        self.input.facts.boot_refused = None;
        self.rack_boot = boot;
        self.input.facts.boot_applied = Some(match boot {
            BootAction::Local => BootSeen::Local,
            BootAction::PowerOff => BootSeen::PowerOff,
            BootAction::Ephemeral(a) => BootSeen::Ephemeral(a),
        });
    }

    fn do_step(&mut self, step: &PlannedStep, crash: Crash) {
        if crash == Crash::BeforeRecord {
            return;
        }
        let mut attempt = None;
        if let Effect::Arm { task } = &step.effect {
            self.attempt += 1;
            let new = Attempt::new(self.attempt);
            attempt = Some(new);
            let context = Context { attempt: new, not_after: step.not_after, ..Context::default() };
            let composed = compose(&self.input, *task, &context).expect("what is armed can be composed");
            if composed.then == Then::Reboot {
                self.hardware.stays_on.insert(new);
            }
            self.tasks.insert(new, (*task, step.scope, step.fingerprint, step.not_after));
        }
        if !step.resume {
            self.recorded.push(step.step);
            self.input.records.push(step.record(attempt, Epoch::new(self.epoch), self.now));
        }
        if crash == Crash::AfterRecord && matches!(step.effect, Effect::Power { .. }) {
            return;
        }
        match &step.effect {
            Effect::Power { verb, device } if self.connected => {
                let facts = self.hardware.command(self.now, &step.key, *verb, *device);
                self.deliver(facts);
            }
            Effect::Power { .. } => self.violate("a power command while the rack is away".to_owned()),
            Effect::Arm { .. } => {}
            Effect::LetGo { deployment, unwiped } => self.let_go(*deployment, *unwiped),
            Effect::Forget => {
                if self.input.claim.is_some() {
                    self.violate("forgot a machine that is claimed".to_owned());
                }
                self.gone = true;
            }
        }
        if crash != Crash::AfterEffect
            && let Some(record) = self.input.records.iter_mut().find(|r| r.key == step.key)
        {
            record.delivered_at = Some(self.now);
        }
    }

    fn let_go(&mut self, deployment: DeploymentId, unwiped: bool) {
        let Some(claim) = self.input.claim.take() else {
            return self.violate("let go twice".to_owned());
        };
        if claim.uid != deployment || claim.deletion_requested_at.is_none() {
            self.violate("let go what nobody gave back".to_owned());
        }
        let wants = claim.spec.release.erase != EraseMethod::None;
        if wants && !unwiped && self.hardware.data_of == Some(deployment) {
            self.violate("let go with the deployment's data on disk".to_owned());
        }
        self.input.unwiped |= unwiped;
    }

    pub(crate) fn violate(&mut self, what: String) {
        self.violations.push(format!("{} at {}", what, self.now));
    }

    /// Stores facts, or spools them while the rack is disconnected.
    pub(crate) fn deliver(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            if self.connected { self.store(fact) } else { self.spool.push(fact) }
        }
    }

    fn store(&mut self, fact: Fact) {
        let now = self.now;
        let facts = &mut self.input.facts;
        match fact {
            Fact::Power(key, result) => {
                if let Ok(state) = result {
                    facts.power = Some(PowerReading { state, at: now });
                    facts.answered.clone_from(&facts.power);
                }
                facts.power_results.entry(key).or_insert(PowerOutcome { at: now, result });
            }
            Fact::Reading(state) => facts.power = Some(PowerReading { state, at: now }),
            Fact::BootRequest(attempt) => {
                let request =
                    BootRequest { last_at: now, service: "http".to_owned(), what: "script".to_owned() };
                facts.boot_requests.insert(attempt, request);
            }
            Fact::Claim(attempt, boot_id) => {
                facts.claims.entry(attempt).or_insert(Claimed { at: now, boot_id });
            }
            Fact::Progress(attempt, percent) => {
                let (stage, message) = ("unpack".to_owned(), "unpacking".to_owned());
                facts.progress.insert(attempt, Progressed { at: now, stage, percent, message });
            }
            Fact::Result(attempt, outcome) => {
                let task = self.tasks.get(&attempt).map(|t| t.0);
                if task == Some(TaskKind::Inventory) && outcome == Outcome::Succeeded {
                    let nics = vec![Nic {
                        name: "enp1s0".to_owned(),
                        mac: "52:54:00:00:00:01".to_owned(),
                        ..Nic::default()
                    }];
                    let inventory =
                        Inventory { disks: vec![self.hardware.disk()], nics, ..Inventory::default() };
                    facts.inventory = Some(InventorySeen { at: now, attempt, inventory });
                }
                facts.results.entry(attempt).or_insert(Ended { at: now, outcome, output: None, logs: None });
            }
            Fact::FirstBoot(attempt, failure) => {
                facts.first_boot.insert(attempt, FirstBootEnded { at: now, failure });
            }
            Fact::Readiness(attempt, level) => {
                let seen = facts.readiness.get(&attempt).map(|r| r.level);
                if seen < Some(level) {
                    facts
                        .readiness
                        .insert(attempt, Reported { at: now, level, address: "10.77.0.50".to_owned() });
                }
            }
        }
    }

    pub(crate) fn connect(&mut self, connected: bool, lose_spool: bool) {
        if self.connected == connected {
            return;
        }
        self.connected = connected;
        let spool = std::mem::take(&mut self.spool);
        let link = if connected {
            if !lose_spool {
                self.deliver(spool);
            }
            Link::Connected { since: self.now }
        } else {
            Link::Away { since: self.now, racks: "rack1".to_owned() }
        };
        self.input.facts.power_rack = link.clone();
        self.input.facts.boot_racks = link;
        if connected {
            // A rack reads its BMCs from time to time, and also when it reconnects.
            let state = if self.hardware.on { PowerState::On } else { PowerState::Off };
            self.input.facts.power = Some(PowerReading { state, at: self.now });
        }
    }

    /// The BMC answered the latest command of a step while the power was still changing.
    pub(crate) fn reads_off_too_early(&mut self, step: StepId) {
        let facts = &mut self.input.facts;
        let record = self.input.records.iter().rev().find(|r| r.step == step).expect("the step was begun");
        let outcome = facts.power_results.get_mut(&record.key).expect("it was answered");
        outcome.result = Ok(PowerState::Off);
        facts.power = Some(PowerReading { state: PowerState::Off, at: outcome.at });
        facts.answered.clone_from(&facts.power);
    }

    pub(crate) fn reads_on(&self) -> bool {
        self.input.facts.power.as_ref().is_some_and(|reading| reading.state == PowerState::On)
    }

    /// A person switches the machine by hand, and a reading shows it.
    pub(crate) fn press(&mut self, on: bool) {
        self.hardware.press(self.now, on);
        if self.connected {
            let state = if on { PowerState::On } else { PowerState::Off };
            self.input.facts.power = Some(PowerReading { state, at: self.now });
        }
    }

    /// Another rack of the same network disconnects or reconnects.
    pub(crate) fn second_rack(&mut self, here: bool) {
        if self.connected {
            let since = self.now;
            self.input.facts.boot_racks = if here {
                Link::Connected { since }
            } else {
                Link::Partial { since, racks: "rack2".to_owned() }
            };
        }
    }

    /// Advances time to the next event, or by at most `most` seconds.
    pub(crate) fn advance(&mut self, most: i64) {
        let limit = self.now.checked_add(std::time::Duration::from_secs(most.unsigned_abs())).unwrap();
        let wake = self.plan().wake_at.filter(|t| *t > self.now);
        let event = self.hardware.next_event();
        let next = [Some(limit), wake, event].into_iter().flatten().min().unwrap();
        self.now = next.max(self.now);
        let boot = self.rack_boot;
        let tasks = self.tasks.clone();
        let facts = self.hardware.run_until(self.now, boot, &tasks);
        self.deliver(facts);
    }

    /// Runs until nothing is to begin and `done` holds, or until the time is over. Returns true if `done` holds.
    pub(crate) fn run(&mut self, hours: i64, done: impl Fn(&World, &Plan) -> bool) -> bool {
        let end = self.now.checked_add(std::time::Duration::from_secs(hours.unsigned_abs() * 3600)).unwrap();
        while self.now < end {
            let mut burst = 0;
            while self.reconcile(Crash::Never) {
                burst += 1;
                assert!(burst < 50, "it goes round in circles: {:?}", self.recorded);
            }
            if self.gone {
                return true;
            }
            let plan = self.plan();
            if plan.next.is_empty() && done(self, &plan) {
                return true;
            }
            self.advance(600);
        }
        false
    }

    fn check_plan(&mut self, plan: &Plan) {
        if plan.next.len() > 1 || (!plan.next.is_empty() && !plan.waits.is_empty()) {
            self.violate(format!("begins and waits at once: {:?} {:?}", plan.next, plan.waits));
        }
        if plan.next.is_empty() && plan.wake_at.is_some_and(|at| at <= self.now) {
            self.violate(format!(
                "it is looked at again without end: {:?} {:?}",
                plan.wake_at, plan.operations
            ));
        }
        for wait in &plan.waits {
            if wait.deadline.is_none() && wait.human.is_none() {
                self.violate(format!("a wait without end: {}", wait.message));
            }
            if wait.deadline.is_some_and(|d| d <= self.now) {
                self.violate(format!("a wait whose deadline has passed: {}", wait.message));
            }
            if wait.message.is_empty() || wait.remedy.is_empty() {
                self.violate(format!("a wait without words: {wait:?}"));
            }
        }
        let stalled = plan.waits.iter().find(|wait| wait.stalled);
        let told = plan.report.conditions.iter().find(|it| it.kind == Condition::STALLED);
        let told = told.filter(|it| it.status == ConditionStatus::True).map(|it| it.message.as_str());
        let to_do =
            |wait: &Wait| format!("{}. To do: {}", wait.message, wait.human.as_deref().unwrap_or_default());
        // While the power is read again, the report stays as it was, and the next plan has the waits again.
        let looks_again = plan.next.iter().any(|next| next.step == StepId::ReadPower);
        if !looks_again && told != stalled.map(to_do).as_deref() {
            self.violate(format!("who waits for somebody does not say so: {told:?} of {stalled:?}"));
        }
        if let BootAction::Ephemeral(attempt) = plan.boot {
            let task = self.tasks.get(&attempt).map(|t| (t.0, t.1));
            let claim = self.input.claim.as_ref().map(|c| Scope::Deployment(c.uid));
            match task {
                Some((TaskKind::Install, scope)) => {
                    let running = self.hardware.running() == Some(attempt);
                    if Some(scope) != claim && !running {
                        self.violate("an installer of nobody's deployment is armed".to_owned());
                    }
                    if plan.report.deployed {
                        self.violate("a deployed machine would boot an installer".to_owned());
                    }
                }
                Some((TaskKind::Erase(_), scope)) => {
                    let released =
                        self.input.claim.as_ref().is_some_and(|c| c.deletion_requested_at.is_some());
                    if Some(scope) != claim || !released {
                        self.violate("an erase is armed that nobody asked for".to_owned());
                    }
                }
                Some((task @ (TaskKind::Script | TaskKind::Rescue), scope)) => {
                    // From the view of the region: the report of the end may be on its way.
                    let facts = &self.input.facts;
                    let running = (facts.claims.contains_key(&attempt)
                        || facts.progress.contains_key(&attempt))
                        && !facts.results.contains_key(&attempt);
                    let asked = self.input.operations.iter().find(|it| Scope::Operation(it.id) == scope);
                    let rescues = task == TaskKind::Rescue;
                    let fits = |verb: Asked| match rescues {
                        true => verb == Asked::Rescue,
                        false => matches!(verb, Asked::RunScript | Asked::Test),
                    };
                    if asked.is_none_or(|it| !fits(it.verb)) && !running {
                        self.violate(format!("a {task:?} is armed that nobody asks for"));
                    }
                    if claim.is_some() && !running && !rescues {
                        self.violate("a script is armed on somebody's machine".to_owned());
                    }
                }
                Some((TaskKind::Inventory, _)) => {}
                None => self.violate("an attempt is armed that does not exist".to_owned()),
            }
        }
    }

    /// Checks the conditions of a step before it begins, from the hardware and the facts.
    fn check_step(&mut self, step: &PlannedStep) {
        use basalt_engine::plan::Verb;
        if !step.resume && self.input.records.iter().any(|r| r.key == step.key) {
            self.violate(format!("a key is used twice: {}", step.key));
        }
        if let Effect::Power { verb: Verb::Off | Verb::Cycle, .. } = step.effect
            && step.step != StepId::AbortOff
            && self.hardware.writing(&self.tasks)
        {
            self.violate(format!("{} cuts the power of a machine whose disk is written", step.key));
        }
        let facts = &self.input.facts;
        let last = self.input.records.iter().rev().find(|r| r.step == step.step && r.scope == step.scope);
        let ended_well = last
            .and_then(|r| facts.results.get(&r.attempt?))
            .is_some_and(|e| e.outcome == Outcome::Succeeded);
        let same = last.is_some_and(|r| r.fingerprint == step.fingerprint);
        let again = match step.step {
            StepId::ArmInventory => ended_well && self.input.recommission_requested_at.is_none(),
            StepId::ArmInstall | StepId::ArmErase => ended_well && same,
            StepId::ArmScript | StepId::ArmRescue => last.is_some(),
            StepId::NetbootInventory
            | StepId::NetbootInstall
            | StepId::NetbootErase
            | StepId::NetbootScript
            | StepId::NetbootRescue => {
                step.attempt.is_some_and(|a| facts.claims.contains_key(&a) || facts.results.contains_key(&a))
            }
            StepId::HoldOn => {
                self.hardware.on && facts.power.as_ref().is_some_and(|p| p.state == PowerState::On)
            }
            // The step confirms that the system has shut down.
            StepId::HoldOff if self.recorded.last() == Some(&StepId::SoftOff) => false,
            StepId::HoldOff => {
                !self.hardware.on && facts.power.as_ref().is_some_and(|p| p.state == PowerState::Off)
            }
            _ => false,
        };
        if again {
            self.violate(format!("{} is done already", step.key));
        }
    }
}
