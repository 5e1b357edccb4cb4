//! A plan as the API shows it: `/plan`, `/waits`, and the plan of a dry run.

use basalt_api::plan::{PlanReport, Step, StepState, Wait};
use basalt_api::values::Timestamp;

use crate::plan::{self, Plan};
use crate::steps::{EffectKind, StepId};

/// The plan of a machine, or of the deployment on it. Changes and effect are the writer's to add.
#[must_use]
pub fn plan_report(plan: &Plan) -> PlanReport {
    let waited = plan.waits.iter().filter_map(|wait| {
        let state = if wait.stalled { StepState::Failed } else { StepState::Running };
        Some(Step {
            started_at: Some(wait.since),
            deadline: wait.deadline,
            attempts: wait.tries.map_or(1, |(n, _)| n),
            error: wait.stalled.then(|| wait.message.clone()),
            ..step(wait.step?, state)
        })
    });
    let next = plan
        .next
        .iter()
        .map(|s| Step { attempts: s.try_no.saturating_sub(1), ..step(s.step, StepState::Next) });
    let later = plan.later.iter().map(|s| step(s.step, StepState::Later));
    let current: Vec<_> = waited.chain(next).collect();
    // A step that is waited for is not announced a second time.
    let later = later.filter(|s| !current.iter().any(|c| c.key == s.key)).collect::<Vec<_>>();
    PlanReport {
        summary: summary(plan),
        steps: current.iter().cloned().chain(later).collect(),
        waits: waits(&plan.waits),
        digest: Some(plan.digest),
        ..PlanReport::default()
    }
}

/// Waits as the API shows them.
#[must_use]
pub fn waits(waits: &[plan::Wait]) -> Vec<Wait> {
    let shown = waits.iter().map(|wait| Wait {
        cause: wait.code.to_owned(),
        message: wait.message.clone(),
        since: wait.since,
        deadline: wait.deadline,
        human: wait.human.clone(),
        remedy: Some(wait.remedy.clone()),
        rule: wait.step.map(|s| s.name().to_owned()),
    });
    shown.collect()
}

fn step(id: StepId, state: StepState) -> Step {
    Step {
        key: id.name().to_owned(),
        message: id.spec().says.to_owned(),
        state,
        destructive: matches!(
            id,
            StepId::ArmInstall | StepId::RunInstall | StepId::ArmErase | StepId::RunErase
        ),
        attempts: 0,
        started_at: None::<Timestamp>,
        deadline: None,
        error: None,
    }
}

fn summary(plan: &Plan) -> String {
    if let Some(wait) = plan.waits.first() {
        return wait.message.clone();
    }
    let next = plan.next.iter().map(|s| s.step);
    let steps =
        next.chain(plan.later.iter().map(|s| s.step)).filter(|s| s.spec().effect != EffectKind::Observe);
    let says: Vec<_> = steps.map(|s| s.spec().says).collect();
    if says.is_empty() { "nothing to do".to_owned() } else { says.join(", then ") }
}
