//! Drives every wait past its own deadline, and records the messages.

use std::collections::BTreeMap;
use std::fmt::Write;

use basalt_engine::deadlines::{DEADLINES, DeadlineId};
use basalt_engine::explain::wait_line;
use basalt_engine::plan::Wait;
use basalt_engine::steps::StepId;

use crate::world::hardware::Fault;
use crate::world::{Crash, World, ready};

/// The row of the table with the deadline of a wait.
fn row_of(wait: &Wait) -> Option<DeadlineId> {
    Some(match (wait.code, wait.step?) {
        ("PowerAnswer", _) => DeadlineId::PowerAnswer,
        ("ShutsDown", _) => DeadlineId::SoftOff,
        ("RackApplies", _) => DeadlineId::RackApplies,
        ("RackAway", _) => DeadlineId::RackReturns,
        ("NoEphemeralImage", _) => DeadlineId::Prerequisite,
        ("BootRequest", _) => DeadlineId::BootRequest,
        ("AgentStarts", _) => DeadlineId::Claim,
        ("TaskRuns", StepId::RunInventory) => DeadlineId::InventoryQuiet,
        ("TaskRuns", StepId::RunInstall) => DeadlineId::InstallQuiet,
        ("TaskRuns", StepId::RunErase) => DeadlineId::EraseQuiet,
        ("Readiness", _) => DeadlineId::Readiness,
        ("BmcBadPassword", _) => DeadlineId::RetryCredentials,
        _ if wait.stalled => DeadlineId::RetryLater,
        _ => return None,
    })
}

/// Runs some hours with a fault. Notes each wait that outlasted its deadline, with the message and the action at that
/// time.
fn outlast(world: &mut World, hours: i64, seen: &mut BTreeMap<DeadlineId, String>) {
    let end = world.now.as_second() + hours * 3600;
    let mut waiting: Option<Wait> = None;
    while world.now.as_second() < end {
        let plan = world.plan();
        if let Some(wait) = waiting.take().filter(|w| w.deadline.is_some_and(|d| world.now >= d)) {
            let before = wait_line(&wait, wait.since);
            let after = match (plan.next.first(), plan.waits.first()) {
                (Some(step), _) => format!("does: {} [{}]", step.step.spec().says, step.step.name()),
                (None, Some(next)) => {
                    assert!(
                        next.deadline != wait.deadline,
                        "a deadline passed and nothing came of it: {before}"
                    );
                    let human = next.human.as_ref().map(|h| format!(" TO DO: {h}")).unwrap_or_default();
                    format!("says: {}{human}", wait_line(next, world.now))
                }
                (None, None) => "goes on".to_owned(),
            };
            if let Some(row) = row_of(&wait) {
                seen.entry(row).or_insert_with(|| format!("{before}\n  {after}"));
            }
        }
        while world.reconcile(Crash::Never) {}
        waiting = world.plan().waits.first().cloned();
        world.advance(3600);
    }
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn every_wait_outlasts_its_deadline_and_says_what_comes_then() {
    let mut seen = BTreeMap::new();
    let faults = [
        Fault::AnswerLost,
        Fault::RackRefuses,
        Fault::NeverBoots,
        Fault::NeverClaims,
        Fault::AgentDies,
        Fault::BmcPassword,
        Fault::SystemSilent,
    ];
    for fault in faults {
        for stage in 0..3 {
            let mut world = World::new();
            if stage > 0 {
                assert!(world.run(2, ready));
                world.deploy(|_| {});
            }
            if stage > 1 {
                assert!(world.run(2, ready));
                world.undeploy();
            }
            world.hardware.faults.insert(fault);
            outlast(&mut world, 12, &mut seen);
        }
    }
    let mut world = World::new();
    assert!(world.run(2, ready));
    world.deploy(|_| {});
    world.connect(false, false);
    outlast(&mut world, 2, &mut seen);

    let mut world = World::new();
    world.hardware.faults.insert(Fault::NeverBoots);
    world.second_rack(false);
    outlast(&mut world, 2, &mut seen);
    let cycles = world.recorded.iter().filter(|s| **s == StepId::NetbootInventory).count();
    assert_eq!(cycles, 1, "silence means nothing while the rack is away that the machine may talk to");

    let mut world = World::new();
    world.input.ephemeral = None;
    outlast(&mut world, 1, &mut seen);

    let mut text = String::new();
    for (row, words) in &seen {
        let _ = writeln!(text, "{row:?}\n  {words}\n");
    }
    // These are deadlines of attempts and operations, not of waits. Their tests are elsewhere.
    let others = [DeadlineId::AttemptLife, DeadlineId::Operation];
    for row in DEADLINES.iter().filter(|r| !others.contains(&r.id)) {
        assert!(seen.contains_key(&row.id), "no wait was driven past {}", row.name);
    }
    insta::assert_snapshot!(text);
}

#[test]
fn an_attempt_that_was_not_begun_in_its_time_is_replaced() {
    let mut world = World::new();
    world.hardware.faults.insert(Fault::NeverBoots);
    outlast(&mut world, 9, &mut BTreeMap::new());
    let arms = world.recorded.iter().filter(|s| **s == StepId::ArmInventory).count();
    assert!(arms > 2, "{:?}", world.recorded);
}
