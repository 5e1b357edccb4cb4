//! Region and rack are killed at every step of the step table. The work continues, and no step is repeated that must happen once.
//!
//! One life of a machine passes all points of one process and place. `make soak` kills at every step, and fails for a step without a kill
//! point. `make test` kills at every third step, at different ones in each place.

use basalt_api::wire::{OperationRequest, OperationState, Verb};
use basalt_engine::steps::{EffectKind, STEPS, StepId, StepSpec};
use basalt_rack::kill::{KEPT, SEEN, TOLD};
use basalt_region::driver::kill::PLACES;
use basalt_sim::{Event, Fault, Firmware, SimMachine, Stage};
use serde_json::json;
use std::time::Instant;

use basalt_tests::fleet::{Fleet, LIMIT, LOOK, deployment_spec, machine_spec, run_script};

/// Steps without a part for a rack.
const REGION_ONLY: &[(StepId, &str)] = &[
    (StepId::LetGo, "a claim is a row of the database"),
    (StepId::Forget, "so is a machine"),
    (StepId::BootLocal, "what a rack is told then has no step of its own: it is what remains"),
];

/// Steps of operations that a person requests once. The engine's own tests kill at each of them.
const ASKED_FOR: &[StepId] = &[StepId::OperateOff, StepId::OperateOn, StepId::ResetBmc, StepId::AbortOff];

fn is_of_every_life(step: &&StepSpec) -> bool {
    !ASKED_FOR.contains(&step.id)
}

/// The places in a step where a rack can be killed.
fn places(step: &StepSpec) -> &'static [&'static str] {
    if REGION_ONLY.iter().any(|(only, _)| *only == step.id) {
        return &[];
    }
    match step.effect {
        EffectKind::Power => &[TOLD, SEEN, KEPT],
        EffectKind::Arm => &[TOLD],
        EffectKind::Observe => &[SEEN, KEPT],
        EffectKind::LetGo | EffectKind::Forget => &[],
    }
}

/// The points of a life: all of them in a soak test, otherwise every third one.
fn some_of(life: u16, points: impl Iterator<Item = String>) -> Vec<String> {
    let every = if basalt_tests::soaks() { 1 } else { 3 };
    points.skip(usize::from(life) % every).step_by(every).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_killed_at_any_step_goes_on_and_does_nothing_twice() {
    let mut fleet = Fleet::start("kill", &[]).await;
    for (number, place) in (1..).zip(PLACES) {
        let effects = STEPS.iter().filter(|step| step.effect != EffectKind::Observe).filter(is_of_every_life);
        let points = some_of(number, effects.map(|step| format!("{}/{place}", step.name)));
        let kill = Kill::new(&fleet, number, points);
        fleet.restart_region(&[("BASALT_KILL_AT", &kill.variable)]).await;
        kill.lived_through(&mut fleet, number).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_killed_at_any_step_goes_on_and_does_nothing_twice() {
    let mut fleet = Fleet::start("killrack", &[]).await;
    for (number, place) in (1..).zip([TOLD, SEEN, KEPT]) {
        let with_place = STEPS.iter().filter(is_of_every_life).filter(|step| places(step).contains(&place));
        let points = some_of(number, with_place.map(|step| format!("{}/{place}", step.name)));
        let kill = Kill::new(&fleet, number, points);
        fleet.restart_rack(&[("BASALT_KILL_AT", &kill.variable)]).await;
        kill.lived_through(&mut fleet, number).await;
    }
}

/// Points at which a process dies, once each.
struct Kill {
    points: Vec<String>,
    fired: std::path::PathBuf,
    variable: String,
}

impl Kill {
    fn new(fleet: &Fleet, number: u16, points: Vec<String>) -> Self {
        let fired = fleet.site.directory().join(format!("killed-{number}"));
        std::fs::create_dir(&fired).expect("a directory for what fired");
        let variable = format!("{}:{}", points.join(","), fired.display());
        Self { points, fired, variable }
    }

    /// Waits until the process has died at each point. The last one comes a moment after the machine is gone: the region deletes it,
    /// and dies then.
    async fn all_reached(&self, machine: &SimMachine) {
        let end = Instant::now() + LIMIT;
        loop {
            let reached = |point: &&String| self.fired.join(point.replace('/', ".")).exists();
            let missed: Vec<_> = self.points.iter().filter(|point| !reached(point)).collect();
            if missed.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "never killed at {missed:?}\n{}", machine.log());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// One machine's whole life, in which the process dies at each of the points.
    async fn lived_through(self, fleet: &mut Fleet, number: u16) {
        let machine = fleet.machine(number, Firmware::Bios, |_| {});
        let name = format!("sim{number}");
        fleet.declare_through_kills("machines", &name, machine_spec(&machine)).await;
        fleet.ready_through_kills("machines", &name).await;
        let script = json!({ "type": "testing", "content": "#!/bin/sh\n" });
        fleet.declare_through_kills("scripts", "probe", script).await;
        let keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJYtHm5Uyq6UbgMSAkeyXXEN6Cmm5WWOCWzBtRIwxMSg"];
        let keys = keys.map(|key| key.parse().expect("a key")).into();
        let rescue = OperationRequest { ssh_keys: keys, ..OperationRequest::from(Verb::Rescue) };
        for request in [run_script("probe"), rescue] {
            let ended = fleet.operate_through_kills(&machine, &request).await;
            assert_eq!(ended.state, OperationState::Done, "{ended:?}\n{}", machine.log());
        }
        for power in ["on", "off", "auto"] {
            let mut spec = machine_spec(&machine);
            spec["power"] = json!(power);
            fleet.declare_through_kills("machines", &name, spec).await;
            fleet.settled_through_kills(&name).await;
        }
        // The installed system does not start by itself, which causes a power cycle.
        machine.faults().times(Fault::HangsAt(Stage::Leave), 1);
        let mut deployment = deployment_spec(&name);
        deployment["readiness"]["timeout"] = json!("5m");
        fleet.declare_through_kills("deployments", &name, deployment).await;
        fleet.ready_through_kills("deployments", &name).await;
        fleet.delete_through_kills("deployments", &name).await;
        fleet.ready_through_kills("machines", &name).await;
        fleet.delete_through_kills("machines", &name).await;
        self.all_reached(&machine).await;
        println!("killed {} times: {:?}", self.points.len(), self.points);
        let writes = machine.count(|event| matches!(event, Event::WroteDisk { .. }));
        let installs = machine.count(|event| matches!(event, Event::Installed { .. }));
        let erases = machine.count(|event| matches!(event, Event::Erased { .. }));
        let scripts = machine.count(|event| matches!(event, Event::RanScript { .. }));
        assert_eq!((writes, installs, erases, scripts), (2, 1, 1, 1), "{}", machine.log());
        assert_eq!(machine.power_state(), basalt_bmc::PowerState::Off);
    }
}
