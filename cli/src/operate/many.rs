//! One operation on many machines, by names or by a filter.

use basalt_api::wire::{OperationState, OperationsAnswer, OperationsRequest};

use super::{Flags, cuts_off, over};
use crate::confirm::confirm;
use crate::output::{line, say, show, show_json};
use crate::region::{Connection, Failed};

/// Requests the operation. For a filter, a person first sees the machines, and the request then names these machines.
pub(super) async fn ask(
    mut request: OperationsRequest,
    flags: Flags,
    connection: &Connection,
) -> Result<(), Failed> {
    let (verb, client) = (request.operation.verb, connection.client()?);
    let is_filter = request.filter.is_some();
    let mut refused = 0;
    let looks = flags.dry_run || is_filter || (!flags.yes && cuts_off(verb));
    if looks {
        let tried = client.operate_many(&request, true).await?;
        if tried.items.is_empty() {
            return Err(Failed::Words("no machine fits the filter".into()));
        }
        if flags.dry_run {
            return told(&tried, verb.as_str(), &flags, 0);
        }
        let interrupts: Vec<&str> =
            tried.items.iter().filter_map(|it| it.plan.as_ref()?.interrupts.as_deref()).collect();
        let able: Vec<String> =
            tried.items.iter().filter(|it| it.problem.is_none()).map(|it| it.machine.clone()).collect();
        if !flags.yes && (is_filter || !interrupts.is_empty()) {
            interrupts.iter().for_each(|words| say(words));
            let names = able.join(", ");
            confirm(&format!("{verb} {} machines: {names}?", able.len()), "nothing was asked for")?;
        }
        if is_filter {
            for it in tried.items.iter().filter(|it| it.problem.is_some()) {
                let why = it.problem.as_ref().map(|it| it.detail.as_str()).unwrap_or_default();
                say(&format!("{}: refused: {}", it.machine, line(why)));
                refused += 1;
            }
            if able.is_empty() {
                return Err(Failed::Words(format!("no machine takes {verb}")));
            }
            (request.names, request.filter) = (able, None);
        }
    }
    let mut answer = client.operate_many(&request, false).await?;
    if flags.wait {
        let quiet = flags.output == "json";
        for it in &mut answer.items {
            if let Some(operation) = it.operation.take() {
                it.operation = Some(over(&client, &it.machine, operation, quiet).await?);
            }
        }
    }
    told(&answer, verb.as_str(), &flags, refused)
}

/// Prints an answer, and fails if a machine refused. `refused`: number of machines that refused before.
fn told(answer: &OperationsAnswer, verb: &str, flags: &Flags, refused: usize) -> Result<(), Failed> {
    let mut failed = refused;
    let mut text = String::new();
    for it in &answer.items {
        let words = match (&it.operation, &it.plan, &it.problem) {
            (_, _, Some(problem)) => {
                failed += 1;
                format!("refused: {}", problem.detail)
            }
            (Some(operation), ..) if operation.state.is_over() => {
                failed += usize::from(operation.state != OperationState::Done);
                format!("{}: {}", operation.state.as_str(), operation.message)
            }
            (Some(operation), ..) => format!("accepted as {}", operation.id),
            (None, Some(plan), None) => match &plan.interrupts {
                Some(interrupts) => format!("{} {interrupts}", plan.summary),
                None => plan.summary.clone(),
            },
            (None, None, None) => continue,
        };
        text.push_str(&format!("{}: {}\n", it.machine, line(&words)));
    }
    match flags.output.as_str() {
        "json" => show_json(answer),
        _ => show(&text),
    }
    match failed {
        0 => Ok(()),
        _ => {
            let all = answer.items.len() + refused;
            Err(Failed::Words(format!("{failed} of {all} machines did not take {verb}")))
        }
    }
}
