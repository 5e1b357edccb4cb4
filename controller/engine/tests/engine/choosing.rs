//! Which machine a deployment gets, and what it says while it has none.

use basalt_api::agent::{Cpu, Inventory};
use basalt_api::kinds::{Condition, ConditionStatus, DeploymentSpec, Lifecycle, Selector};
use basalt_api::values::{DeploymentId, MachineId};
use basalt_engine::deployment::{DeploymentAction, DeploymentInput, DeploymentPlan, plan_deployment};
use basalt_engine::select::{Candidate, Choice, choose};

use crate::world::{World, at, deployment_spec, machine_spec, ready, uuid};

fn candidate(n: u128, name: &str, cores: u32, zone: &str) -> Candidate {
    let cpu = Cpu { cores, ..Cpu::default() };
    Candidate {
        uid: MachineId::from(uuid(n)),
        name: name.to_owned(),
        spec: machine_spec(),
        zone: zone.to_owned(),
        pool: "default".to_owned(),
        tags: vec!["ssd".to_owned()],
        inventory: Some(Inventory { cpu, memory_bytes: 8 << 30, ..Inventory::default() }),
        lifecycle: Lifecycle::Ready,
        claimed_by: None,
        deleting: false,
        unwiped: false,
    }
}

fn fleet() -> Vec<Candidate> {
    let mut taken = candidate(4, "m4", 8, "b");
    taken.claimed_by = Some((DeploymentId::from(uuid(9)), "db".to_owned()));
    vec![candidate(1, "m1", 32, "a"), candidate(2, "m2", 8, "a"), candidate(3, "m3", 8, "b"), taken]
}

#[test]
fn the_least_machine_that_suffices_is_chosen_whatever_the_order() {
    let selector = Selector { min_cores: Some(8), ..Selector::default() };
    let mut machines = fleet();
    assert_eq!(choose(&selector, None, &machines), Choice::Chosen(MachineId::from(uuid(2))));
    machines.reverse();
    assert_eq!(choose(&selector, None, &machines), Choice::Chosen(MachineId::from(uuid(2))));
    let elsewhere = Selector { not_zone: ["a".parse().unwrap()].into(), ..selector };
    assert_eq!(choose(&elsewhere, None, &machines), Choice::Chosen(MachineId::from(uuid(3))));
}

fn plan_of(spec: DeploymentSpec, machines: &[Candidate]) -> DeploymentPlan {
    let input = DeploymentInput {
        name: "web".to_owned(),
        spec,
        deletion_requested_at: None,
        claimed: None,
        architecture: None,
        candidates: machines,
        since: at(0),
    };
    plan_deployment(&input, at(60))
}

#[test]
fn no_match_is_a_wait_that_names_the_nearest_misses() {
    let mut spec = deployment_spec();
    let tags = ["gpu".parse().unwrap()].into();
    spec.selector =
        Some(Selector { min_cores: Some(16), zone: Some("b".parse().unwrap()), tags, ..Selector::default() });
    let plan = plan_of(spec, &fleet());
    assert_eq!(plan.action, DeploymentAction::None);
    insta::assert_snapshot!(plan.waits[0].message, @"waiting for a machine that matches the selector: none of 4 does; nearest: m1: it stands in zone a, not b, it lacks tag gpu; m3: it lacks tag gpu, it has 8 of 16 cores; m2: it stands in zone a, not b, it lacks tag gpu, it has 8 of 16 cores");
    assert!(plan.waits[0].human.is_some());
}

#[test]
fn a_machine_has_one_owner() {
    let mut spec = deployment_spec();
    spec.machine = Some("m4".parse().unwrap());
    let plan = plan_of(spec.clone(), &fleet());
    assert_eq!(plan.action, DeploymentAction::None);
    assert_eq!(plan.waits[0].message, "waiting for machine m4; m4: it belongs to deployment db");
    spec.machine = Some("m3".parse().unwrap());
    assert_eq!(plan_of(spec, &fleet()).action, DeploymentAction::Claim(MachineId::from(uuid(3))));
}

#[test]
fn a_deployment_is_ready_when_its_machine_says_so_and_leaves_when_it_has_none() {
    let mut world = World::new();
    world.deploy(|_| {});
    let plan_with = |world: &World, claimed: bool, deleted: bool| {
        let machine = world.plan();
        let input = DeploymentInput {
            name: "web".to_owned(),
            spec: deployment_spec(),
            deletion_requested_at: deleted.then_some(world.now),
            claimed: claimed.then_some((world.input.uid, &machine)),
            architecture: None,
            candidates: &[],
            since: at(0),
        };
        plan_deployment(&input, world.now)
    };
    let holds = |plan: &DeploymentPlan, kind| {
        plan.conditions.iter().any(|c| c.kind == kind && c.status == ConditionStatus::True)
    };
    assert!(holds(&plan_with(&world, true, false), Condition::PROGRESSING));
    assert!(world.run(3, ready));
    assert!(holds(&plan_with(&world, true, false), Condition::READY));
    assert!(!holds(&plan_with(&world, true, true), Condition::READY));
    assert_eq!(plan_with(&world, false, true).action, DeploymentAction::Delete);
}
