//! The verbs that a machine takes now, and the reasons against the others.

use super::{judged, only_looks};
use crate::api::App;
use crate::api::caller::Caller;
use crate::api::problem::Answer;
use crate::api::query::NoParameters;
use crate::api::target::Target;
use crate::driver::RequestedOperation;
use axum::Json;
use axum::extract::State;
use basalt_api::ProblemCode;
use basalt_api::wire::{Action, Actions, Verb};

pub(in crate::api) async fn read(
    State(app): State<App>,
    caller: Caller,
    _: NoParameters,
    target: Target,
) -> Answer<Json<Actions>> {
    let (kind, key) = (target.kind, target.key());
    let machine = target.object(&app).await?;
    let pool = app.store().pool_of(kind.name, key).await?.flatten();
    let may_change = caller.rights.may_change(kind.name, pool.as_deref(), false) == Some(true);
    let running = app.store().running_script(machine.uid).await?;
    let mut items = Vec::with_capacity(Verb::ALL.len());
    for verb in Verb::ALL {
        let is_script = matches!(verb, Verb::RunScript | Verb::Rescue | Verb::Test);
        let refusal = match (&running, may_change) {
            (_, false) => Some(only_looks(&machine.name, pool.as_deref()).into_problem()),
            (Some(error), true) if is_script => {
                let mut problem = basalt_api::Problem::new(ProblemCode::Conflict, error.to_string());
                problem.errors.push(error.clone());
                Some(problem)
            }
            _ => judged(&app, &machine, RequestedOperation { verb, script: None, tests: &[] })
                .await
                .err()
                .map(|it| it.into_problem()),
        };
        items.push(Action { verb, problem: refusal });
    }
    Ok(Json(Actions { items }))
}
