//! The planner of a deployment. It decides about the claim, and reports its machine's report. It causes no effect on a machine.

use basalt_api::kinds::{Condition, ConditionStatus, DeploymentSpec, InstallStage};
use basalt_api::values::{MachineId, Timestamp};

use crate::plan::{Plan, Wait};
use crate::select::{Choice, Misses};

/// Everything that decides about one deployment.
#[derive(Clone, Debug)]
pub struct DeploymentInput<'a> {
    /// The deployment's name, for messages.
    pub name: String,
    /// The declared spec.
    pub spec: DeploymentSpec,
    /// When its deletion was requested.
    pub deletion_requested_at: Option<Timestamp>,
    /// The claimed machine, and the machine's plan.
    pub claimed: Option<(MachineId, &'a Plan)>,
    /// The decision of [`crate::select::allocate`]; needed only while nothing is claimed.
    pub choice: Option<&'a Choice>,
    /// When it began to look for a machine: its creation.
    pub since: Timestamp,
}

/// The plan of a deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct DeploymentPlan {
    /// The change that the driver makes.
    pub action: DeploymentAction,
    /// The waits: first the deployment's own, then its machine's.
    pub waits: Vec<Wait>,
    /// The conditions Ready, Progressing and Stalled.
    pub conditions: Vec<Condition>,
    /// The stage of the install.
    pub stage: InstallStage,
}

/// A change that the driver makes for a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeploymentAction {
    /// Nothing to change.
    None,
    /// Claim this machine: insert the claim if the machine has none, and wake the machine. If another deployment was faster, plan
    /// again.
    Claim(MachineId),
    /// Delete the object: its deletion was requested, and it has no machine.
    Delete,
}

/// Decides about the next action for a deployment.
#[must_use]
pub fn plan_deployment(input: &DeploymentInput<'_>, now: Timestamp) -> DeploymentPlan {
    match (&input.claimed, input.deletion_requested_at) {
        (Some((_, plan)), deletion) => of_machine(plan, deletion.is_some(), now),
        (None, Some(_)) => settle(DeploymentAction::Delete, Vec::new(), InstallStage::Releasing, now),
        (None, None) => find(input, now),
    }
}

fn find(input: &DeploymentInput<'_>, now: Timestamp) -> DeploymentPlan {
    let nothing = Misses::default();
    let misses = match input.choice {
        Some(Choice::Chosen { machine, .. }) => {
            return settle(DeploymentAction::Claim(*machine), Vec::new(), InstallStage::Selecting, now);
        }
        Some(Choice::None(misses)) => misses,
        None => &nothing,
    };
    let wait = if misses.not_installable { not_installable(input) } else { no_machine(input, misses) };
    settle(DeploymentAction::None, vec![wait], InstallStage::Selecting, now)
}

fn not_installable(input: &DeploymentInput<'_>) -> Wait {
    let image = &input.spec.image;
    Wait {
        code: "NotInstallable",
        step: None,
        message: format!(
            "waiting for image {image} to have a root_tarball: nothing installs another form of it yet"
        ),
        since: input.since,
        deadline: None,
        human: Some(format!(
            "declare a root_tarball among the files of image {image}, or name another image"
        )),
        remedy: "it gets a machine at once".to_owned(),
        tries: None,
        stalled: true,
    }
}

fn no_machine(input: &DeploymentInput<'_>, missed: &Misses) -> Wait {
    // Names stand in the form that the region's filter of answers recognises.
    let nearest = missed.nearest.iter().map(|m| format!("Machine {:?}: {}", m.machine, m.lacks.join(", ")));
    let nearest: Vec<_> = nearest.collect();
    let failed: Vec<_> =
        missed.failed_by.iter().map(|(constraint, n)| format!("{constraint}: {n}")).collect();
    let address_of = missed.nearest.first().filter(|it| it.only_address).map(|it| &it.machine);
    let address = address_of.map(|machine| {
        format!(
            "declare a network in this deployment, or another address in the network of Machine {machine:?}"
        )
    });
    let (message, human) = match &input.spec.machine {
        Some(machine) if nearest.is_empty() => (
            format!("waiting for machine {machine}: there is none of that name"),
            format!("declare machine {machine}"),
        ),
        Some(_) => (
            format!("waiting for {}", nearest.join("; ")),
            address.unwrap_or_else(|| "free the machine, or name another".to_owned()),
        ),
        None if nearest.is_empty() => {
            let pool = input.spec.selector.as_ref().and_then(|selector| selector.pool.as_ref());
            let place = pool.map(|pool| format!(" in pool {pool}")).unwrap_or_default();
            (
                format!("waiting for a machine that matches the selector: there are no machines{place}"),
                format!("declare machines{place}, or ask for less in selector"),
            )
        }
        None => (
            format!(
                "waiting for a machine that matches the selector: none of {} does ({}); nearest: {}",
                missed.looked_at,
                failed.join(", "),
                nearest.join("; ")
            ),
            address.unwrap_or_else(|| "add or free a machine, or ask for less in selector".to_owned()),
        ),
    };
    Wait {
        code: "NoMachine",
        step: None,
        message,
        since: input.since,
        deadline: None,
        human: Some(human),
        remedy: "it gets that machine at once".to_owned(),
        tries: None,
        // Machines become free without a person, so a client may go on waiting.
        stalled: false,
    }
}

fn of_machine(plan: &Plan, releasing: bool, now: Timestamp) -> DeploymentPlan {
    let stage = if releasing {
        InstallStage::Releasing
    } else {
        plan.report.stage.unwrap_or(InstallStage::PoweringOn)
    };
    let mut out = settle(DeploymentAction::None, plan.waits.clone(), stage, now);
    if let (Some(step), true) = (plan.next.first(), plan.waits.is_empty()) {
        for condition in &mut out.conditions {
            condition.reason = "Running".to_owned();
            condition.message = step.step.spec().says.to_owned();
        }
    }
    let ready = plan.report.deployed && !releasing;
    if ready {
        for condition in &mut out.conditions {
            condition.reason = "Deployed".to_owned();
            condition.message = "it is as its readiness asks".to_owned();
            condition.deadline = None;
            condition.status = truth(condition.kind == Condition::READY);
        }
    }
    out
}

fn settle(action: DeploymentAction, waits: Vec<Wait>, stage: InstallStage, now: Timestamp) -> DeploymentPlan {
    let wait = waits.iter().find(|w| w.stalled).or_else(|| waits.first());
    let (reason, message) = match wait {
        Some(Wait { code, message, human: Some(human), .. }) => {
            ((*code).to_owned(), format!("{message}. To do: {human}"))
        }
        Some(wait) => (wait.code.to_owned(), wait.message.clone()),
        None => (format!("{stage:?}"), "it goes on at once".to_owned()),
    };
    let stalled = wait.is_some_and(|w| w.stalled);
    let conditions =
        [(Condition::READY, false), (Condition::PROGRESSING, !stalled), (Condition::STALLED, stalled)];
    let conditions = conditions.map(|(kind, holds)| Condition {
        kind: kind.to_owned(),
        status: truth(holds),
        reason: reason.clone(),
        message: message.clone(),
        since: wait.map_or(now, |w| w.since),
        deadline: wait.and_then(|w| w.deadline),
    });
    DeploymentPlan { action, waits, conditions: conditions.into(), stage }
}

const fn truth(holds: bool) -> ConditionStatus {
    if holds { ConditionStatus::True } else { ConditionStatus::False }
}
