//! Invariants of a site, and the state in which it has come to rest.

use super::world::{SCAN, World};
use basalt_api::kinds::{DeploymentStatus, MachineSpec, MachineStatus, PowerPolicy};
use basalt_api::values::{DeploymentId, MachineId};
use basalt_engine::facts::StepRecord;
use basalt_region::driver::Machinery;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The time on the wall clock within which everything must come to rest.
const SETTLED: Duration = Duration::from_secs(300);

impl World {
    /// Checks the invariants, from the store.
    pub(crate) async fn check(&mut self) {
        let store = self.store().clone();
        let claims: BTreeMap<MachineId, DeploymentId> =
            store.claims().await.expect("claims").into_iter().collect();
        let owners: BTreeSet<_> = claims.values().collect();
        if owners.len() != claims.len() {
            self.violations.push(format!("a deployment has two machines: {claims:?}"));
        }
        for (machine, deployment) in &self.claims {
            let holds = self
                .machines
                .get(machine)
                .is_some_and(|it| it.hardware.data_of == Some(*deployment) && !it.is_forgotten());
            if claims.get(machine) != Some(deployment) && holds {
                self.violations.push(format!("{machine} was let go with the data of {deployment}"));
            }
        }
        self.claims = claims;
        for uid in self.machines.keys().copied().collect::<Vec<_>>() {
            let rows = store.planning_steps(uid.into(), 1000).await.expect("steps");
            for row in &rows {
                let record: StepRecord =
                    serde_json::from_value(row.detail["record"].clone()).expect("a record");
                if row.detail["task"].is_null() || self.armed.contains_key(record.key.as_str()) {
                    continue;
                }
                let installs = record.step == basalt_engine::steps::StepId::ArmInstall;
                let hardware = &self.machines[&uid].hardware;
                let done = self.armed.values().any(|old| {
                    let same = old.step == record.step && old.scope == record.scope;
                    same && old.fingerprint == record.fingerprint
                        && old.attempt == hardware.system
                        && hardware.system.is_some()
                });
                let told = self.racks.iter().all(|rack| rack.spooled.is_empty());
                if installs && done && told {
                    self.violations.push(format!("{} is done already", record.key));
                }
                self.armed.insert(record.key.as_str().to_owned(), record);
            }
        }
        self.check_waits().await;
    }

    /// Checks that every wait has a deadline or names a person.
    async fn check_waits(&mut self) {
        for name in self.names.keys().cloned().collect::<Vec<_>>() {
            let Some(object) = self.find("Machine", &name).await else { continue };
            for wait in self.seats[0].driver.waits(&object).await.expect("waits").waits {
                if wait.deadline.is_none() && wait.human.is_none() {
                    self.violations.push(format!("{name} waits for ever: {}", wait.message));
                }
            }
        }
    }

    /// Goes on until everything is as declared and at rest. The error lists the objects that are not, if the hours are over.
    pub(crate) async fn settle(&mut self, hours: i64) -> Result<(), String> {
        let (end, began) = (self.now.as_second() + hours * 3600, Instant::now());
        loop {
            self.work().await;
            let unsettled = self.unsettled().await;
            if unsettled.is_empty() {
                return Ok(());
            }
            if self.now.as_second() > end || began.elapsed() > SETTLED {
                let (played, took) = (self.now.as_second() - end + hours * 3600, began.elapsed());
                return Err(format!("after {played} s, which took {took:?}: {}", unsettled.join("\n")));
            }
            self.advance(SCAN.unsigned_abs()).await;
        }
    }

    /// The objects that are not as declared, with the reasons.
    pub(crate) async fn unsettled(&self) -> Vec<String> {
        let mut unsettled: Vec<_> = self.leaving.keys().map(|name| format!("{name} leaves")).collect();
        for kind in ["Machine", "Deployment"] {
            for object in self.store().all(kind).await.expect("objects") {
                let status: Value = serde_json::from_str(object.status.get()).expect("JSON");
                let ready = status["conditions"][0].clone();
                let current = object.observed_generation == object.generation;
                if !current || object.deletion_requested_at.is_some() || ready["status"] != "true" {
                    unsettled.push(format!("{kind} {}: {}", object.name, ready["message"]));
                }
            }
        }
        unsettled
    }

    /// The state of the site as texts, to compare two runs.
    pub(crate) async fn picture(&self) -> Vec<String> {
        let mut picture = Vec::new();
        let mut names = BTreeMap::new();
        for object in self.store().all("Deployment").await.expect("objects") {
            let status: DeploymentStatus = serde_json::from_str(object.status.get()).expect("a status");
            picture.push(format!(
                "{} {:?} on {:?}",
                object.name,
                status.phase,
                status.machine.map(|m| m.to_string())
            ));
            names.insert(DeploymentId::from(object.uid.get()), object.name);
        }
        for object in self.store().all("Machine").await.expect("objects") {
            let status: MachineStatus = serde_json::from_str(object.status.get()).expect("a status");
            let hardware = &self.machines[&MachineId::from(object.uid.get())].hardware;
            let marks = self.store().machine_marks(object.uid.get().into()).await.expect("marks");
            picture.push(format!(
                "{} {:?}, on: {}, data of {:?}, boots it: {}, unwiped: {}",
                object.name,
                status.phase,
                hardware.on,
                hardware.data_of.map(|uid| names.get(&uid).cloned()),
                hardware.system.is_some(),
                marks.unwiped
            ));
        }
        picture
    }

    /// The objects whose hardware differs from their status and spec, once all have come to rest.
    pub(crate) async fn unsound(&self) -> Vec<String> {
        let mut unsound = Vec::new();
        let mut systems = BTreeMap::new();
        for object in self.store().all("Deployment").await.expect("objects") {
            let status: DeploymentStatus = serde_json::from_str(object.status.get()).expect("a status");
            match status.machine.filter(|_| status.phase.as_deref() == Some("Deployed")) {
                Some(machine) => {
                    systems.insert(machine.to_string(), DeploymentId::from(object.uid.get()));
                }
                None => unsound.push(format!("{} is {:?}", object.name, status.phase)),
            }
        }
        for (name, uid) in self.names.iter().filter(|(_, uid)| !self.machines[*uid].is_forgotten()) {
            let object = self.find("Machine", name).await.expect("it is there");
            let spec: MachineSpec = serde_json::from_str(object.spec.get()).expect("a spec");
            let hardware = &self.machines[uid].hardware;
            let system = systems.get(name).copied();
            let on = match spec.power {
                PowerPolicy::On => true,
                PowerPolicy::Auto => system.is_some(),
                PowerPolicy::Off => false,
            };
            let is = (hardware.data_of, hardware.system.is_some(), hardware.on);
            if is != (system, system.is_some(), on) {
                unsound.push(format!("{name} is {is:?}, and not {system:?}, on: {on}"));
            }
        }
        unsound
    }

    /// The machines whose last writer is not known.
    pub(crate) fn forgotten(&self) -> Vec<&str> {
        let forgotten = self.names.iter().filter(|(_, uid)| self.machines[*uid].is_forgotten());
        forgotten.map(|(name, _)| name.as_str()).collect()
    }

    /// The number of step records.
    pub(crate) async fn recorded(&mut self) -> usize {
        self.hand.run("select count(*) from step_record").await[0][0].parse().expect("a number")
    }
}
