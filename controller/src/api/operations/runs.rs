//! What an operation runs on its machine: a Script as it is declared, or the rescue environment.

use crate::api::App;
use crate::api::body;
use crate::api::problem::{Answer, Refusal};
use basalt_api::agent;
use basalt_api::kinds::{Script, ScriptSpec};
use basalt_api::values::Duration;
use basalt_api::wire::{OperationRequest, RESCUE_KEYS, RESCUE_LASTS, RESCUE_LIMITS, Verb};
use basalt_api::{FieldCode, FieldError, KindOf};
use basalt_db::{Operation, StoreError};

/// What lets people in, and waits for their leave.
const RESCUE: &str = include_str!("rescue.sh");
/// What it may take to unmount what people mounted.
const LEAVES: u64 = 300;

/// The Script of an operation: the rescue environment is none that is declared.
pub(super) fn declared(operation: &Operation) -> Option<&agent::Script> {
    operation.script.as_ref().filter(|_| operation.verb == Verb::RunScript)
}

/// What is to be run, as it is now.
pub(super) async fn script(
    app: &App,
    machine: &str,
    asked: &OperationRequest,
) -> Answer<Option<agent::Script>> {
    refuse_others(asked)?;
    match asked.verb {
        Verb::RunScript => named(app, asked).await.map(Some),
        Verb::Rescue => rescue(machine, asked).map(Some),
        Verb::PowerOn | Verb::PowerOff | Verb::PowerCycle | Verb::Recommission | Verb::Abort => Ok(None),
    }
}

/// Refuses what the verb has no use for.
fn refuse_others(asked: &OperationRequest) -> Answer<()> {
    let given = [
        ("script", Verb::RunScript, asked.script.is_some()),
        ("parameters", Verb::RunScript, !asked.parameters.is_empty()),
        ("ssh_keys", Verb::Rescue, !asked.ssh_keys.is_empty()),
        ("duration", Verb::Rescue, asked.duration.is_some()),
    ];
    let useless = given.into_iter().filter(|(_, verb, given)| *given && *verb != asked.verb);
    let errors: Vec<FieldError> = useless
        .map(|(field, verb, _)| {
            let message = format!("{} has no use for {field}", asked.verb);
            FieldError::new(
                format!("/{field}"),
                FieldCode::Rule,
                message,
                format!("leave it out, or ask for {verb}"),
            )
        })
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(Refusal::invalid(errors)) }
}

/// A Script as it is declared, and what it is given.
async fn named(app: &App, asked: &OperationRequest) -> Answer<agent::Script> {
    let Some(name) = &asked.script else {
        let message = "no script is named".to_owned();
        return Err(Refusal::field("/script", FieldCode::Required, message, "the name of a Script"));
    };
    let missing = || {
        let message = format!("there is no Script {name:?}");
        let hint = "declare it, or name another";
        Refusal::invalid(vec![FieldError::new("/script", FieldCode::ReferenceNotFound, message, hint)])
    };
    let key = body::key(Script::KIND, name).map_err(|_| missing())?;
    let found = match app.store().get(Script::KIND.name, key).await {
        Err(StoreError::NotFound { .. }) => return Err(missing()),
        found => found?,
    };
    let spec: ScriptSpec = serde_json::from_str(found.spec.get()).map_err(|error| {
        let message = format!("the region cannot read Script {name:?}: {error}");
        Refusal::invalid(vec![FieldError::new("/script", FieldCode::Rule, message, "declare it anew")])
    })?;
    spec.run(&found.name, &asked.parameters).map_err(Refusal::invalid)
}

/// The rescue environment for those who have one of the keys.
fn rescue(machine: &str, asked: &OperationRequest) -> Answer<agent::Script> {
    if asked.ssh_keys.is_empty() {
        let message = "nobody could come in: no SSH key is given".to_owned();
        let hint = "the public keys of those who are to mend the machine";
        return Err(Refusal::field("/ssh_keys", FieldCode::Required, message, hint));
    }
    if asked.ssh_keys.len() > RESCUE_KEYS {
        let message = format!("{} SSH keys are given", asked.ssh_keys.len());
        let hint = format!("at most {RESCUE_KEYS}");
        return Err(Refusal::field("/ssh_keys", FieldCode::Rule, message, &hint));
    }
    let lasts: Duration = asked.duration.unwrap_or(RESCUE_LASTS);
    let [least, most] = RESCUE_LIMITS;
    if lasts < least || lasts > most {
        let message = format!("a rescue cannot last {lasts}");
        let hint = format!("{least} to {most}");
        return Err(Refusal::field("/duration", FieldCode::Rule, message, &hint));
    }
    let mut arguments = vec![machine.to_owned(), lasts.as_secs().to_string()];
    arguments.extend(asked.ssh_keys.iter().map(ToString::to_string));
    Ok(agent::Script {
        name: "rescue".to_owned(),
        content: RESCUE.to_owned(),
        arguments,
        timeout_seconds: lasts.as_secs().saturating_add(LEAVES),
        repeats: true,
        test: false,
    })
}
