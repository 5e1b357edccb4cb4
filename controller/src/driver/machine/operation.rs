//! Operations on machines: the planner's input, its results, and sentences about them.

use basalt_api::agent::Script;
use basalt_api::kinds::PowerState;
use basalt_api::plan::{TimelineEntry, TimelineKind, Wait};
use basalt_api::values::{OperationId, Timestamp, Uid};
use basalt_api::wire::{OperationState, Verb};
use basalt_db::{Operation, Store, StoreError};
use basalt_engine::deadlines::DeadlineId;
use basalt_engine::facts::PowerReading;
use basalt_engine::machine::system_runs;
use basalt_engine::{MachineInput, Plan, Policy, input};
use serde_json::Map;

use crate::driver::machine::Loaded;
use crate::driver::status::between;

/// A one-time request on a machine.
#[derive(Clone, Copy, Debug)]
pub struct RequestedOperation<'a> {
    /// The requested action.
    pub verb: Verb,
    /// The script that `run_script` or `rescue` runs.
    pub script: Option<&'a Script>,
    /// The tests that `test` runs.
    pub tests: &'a [Script],
}

/// The operations that have not ended.
pub(crate) fn open(operations: &[Operation]) -> Vec<input::Operation> {
    let open = operations.iter().filter(|operation| !operation.state.is_over());
    open.map(|it| input::Operation {
        id: it.id,
        verb: it.verb,
        script: it.script.clone(),
        tests: it.tests.clone(),
        requested_at: it.requested_at,
        deadline: it.deadline,
    })
    .collect()
}

/// When an abort was last requested.
pub(crate) fn aborted(operations: &[Operation]) -> Option<Timestamp> {
    operations.iter().filter(|it| it.verb == Verb::Abort).map(|it| it.requested_at).max()
}

/// The power state that the last finished power operation left.
pub(crate) fn wish(operations: &[Operation]) -> Option<PowerReading> {
    let done = operations.iter().filter(|it| it.state == OperationState::Done);
    let left = done.filter_map(|it| {
        let state = match it.verb {
            Verb::PowerOn | Verb::PowerCycle => PowerState::On,
            Verb::PowerOff => PowerState::Off,
            Verb::Recommission
            | Verb::Abort
            | Verb::RunScript
            | Verb::Rescue
            | Verb::Test
            | Verb::OverrideTests
            | Verb::ResetBmc => return None,
        };
        Some(PowerReading { state, at: it.finished_at? })
    });
    left.max_by_key(|reading| reading.at)
}

/// Adds an operation to the machine's input, for a dry run.
pub(crate) fn suppose(
    input: &mut MachineInput,
    requested: RequestedOperation<'_>,
    now: Timestamp,
    deadline: Timestamp,
) {
    let is_power = |verb| matches!(verb, Verb::PowerOn | Verb::PowerOff | Verb::PowerCycle);
    input
        .operations
        .retain(|it| it.verb != requested.verb && !(is_power(it.verb) && is_power(requested.verb)));
    let RequestedOperation { verb, script, tests } = requested;
    let id = OperationId::from(Uid::generate().get());
    let script = script.cloned();
    let tests = tests.to_vec();
    input.operations.push(input::Operation { id, verb, script, tests, requested_at: now, deadline });
    match verb {
        Verb::Recommission => input.recommission_requested_at = Some(now),
        Verb::Abort => input.abort_requested_at = Some(now),
        Verb::OverrideTests => input.failed_tests.accepted_at = Some(now),
        Verb::PowerOn
        | Verb::PowerOff
        | Verb::PowerCycle
        | Verb::RunScript
        | Verb::Rescue
        | Verb::Test
        | Verb::ResetBmc => {}
    }
}

/// A sentence about the running system that the verb ends. A deployment's system may run even if the last power reading is off.
pub(crate) fn interrupts(
    input: &MachineInput,
    policy: &Policy,
    verb: Verb,
    now: Timestamp,
) -> Option<String> {
    let name = &input.name;
    let then = match verb {
        Verb::ResetBmc => {
            return Some(format!(
                "The BMC of {name} restarts, and for some minutes nobody can read or switch the power by it; {name} itself goes on. Consoles and other sessions of the BMC end."
            ));
        }
        Verb::PowerOff => "and stays off",
        Verb::PowerCycle => "and boots again",
        Verb::Rescue => "and comes back when the rescue ends",
        Verb::RunScript => "before the script is booted",
        Verb::Test => "before the tests are booted",
        // A machine that was never inspected may run a system that Basalt did not install. A machine with a deployment is inspected
        // after its deployment has ended.
        Verb::Recommission if input.claim.is_none() && input.facts.inventory.is_none() => {
            "before its hardware is read"
        }
        Verb::PowerOn | Verb::Recommission | Verb::Abort | Verb::OverrideTests => return None,
    };
    let is_on = input.facts.power.as_ref().is_some_and(|reading| reading.state == PowerState::On);
    let shuts_down = matches!(verb, Verb::PowerOff | Verb::PowerCycle) && system_runs(input, policy, now);
    match &input.claim {
        Some(claim) if shuts_down => Some(format!(
            "The system of Deployment {:?} on {name} is asked to shut down, and is cut off if it still runs after {} s, {then}.",
            claim.name,
            policy.deadline(DeadlineId::SoftOff).as_secs()
        )),
        Some(claim) => Some(format!(
            "The system of Deployment {:?} on {name} is cut off without being shut down, {then}.",
            claim.name
        )),
        None if is_on => {
            Some(format!("{name} is on: whatever runs there is cut off without being shut down, {then}."))
        }
        None => None,
    }
}

/// Stores the states of operations. Returns true if one has ended: work that waited for it may go on.
pub(crate) async fn note(store: &Store, loaded: &Loaded, planned: &Plan) -> Result<bool, StoreError> {
    let mut has_ended = false;
    for seen in &planned.operations {
        let same = |it: &Operation| {
            it.id == seen.id
                && it.state == seen.state
                && it.reason == seen.reason
                && it.message == seen.message
                && it.output == seen.output
        };
        if loaded.operations.iter().any(same) {
            continue;
        }
        store
            .note_operation(seen.id, seen.state, (&seen.reason, &seen.message, seen.output.as_deref()))
            .await?;
        tracing::info!(
            machine = loaded.input.name,
            operation = %seen.id,
            state = seen.state.as_str(),
            "{}",
            seen.message
        );
        has_ended |= seen.state.is_over();
    }
    Ok(has_ended)
}

/// The operations that wait, as waits.
pub(crate) fn waits(input: &MachineInput, planned: &Plan) -> Vec<Wait> {
    let waiting = planned.operations.iter().filter(|seen| seen.state == OperationState::Requested);
    let wait = |seen: &basalt_engine::plan::OperationSeen| {
        let operation = input.operations.iter().find(|operation| operation.id == seen.id)?;
        Some(Wait {
            cause: "Operation".to_owned(),
            message: format!("{} was asked for: {}", operation.verb, seen.message),
            since: operation.requested_at,
            deadline: Some(operation.deadline),
            human: None,
            remedy: Some("it expires, and has to be asked for again".to_owned()),
            rule: None,
        })
    };
    waiting.filter_map(wait).collect()
}

/// The request and the result of an operation, as entries of a timeline.
pub(crate) fn entries(operation: &Operation) -> Vec<TimelineEntry> {
    let entry = |at, message, took| TimelineEntry {
        at,
        kind: TimelineKind::Step,
        reason: operation.verb.to_string(),
        message,
        source: operation.requested_by.clone(),
        took,
        data: Map::from_iter([("operation".to_owned(), operation.id.to_string().into())]),
    };
    let asked = entry(operation.requested_at, format!("{} was asked for", operation.verb), None);
    let ended = operation.finished_at.map(|at| {
        let Operation { verb, state, message, .. } = operation;
        let took = between(operation.begun_at.unwrap_or(operation.requested_at), at);
        entry(at, format!("{verb} is {}: {message}", state.as_str()), Some(took))
    });
    std::iter::once(asked).chain(ended).collect()
}
