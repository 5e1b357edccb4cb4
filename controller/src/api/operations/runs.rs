//! The script of an operation: a declared Script, or the rescue environment.

use crate::api::App;
use crate::api::body;
use crate::api::problem::{Answer, Refusal};
use basalt_api::agent;
use basalt_api::kinds::{MachineSpec, Script, ScriptSpec, ScriptType};
use basalt_api::values::Duration;
use basalt_api::wire::{OperationRequest, RESCUE_KEYS, RESCUE_LASTS, RESCUE_LIMITS, Verb};
use basalt_api::{FieldCode, FieldError, KindOf};
use basalt_db::{Object, Operation, StoreError};
use std::collections::{BTreeMap, BTreeSet};

use crate::built_in::SCRIPTS as BUILT_IN;

/// The script of the rescue environment. It opens ssh for people, and waits until they have finished.
const RESCUE: &str = include_str!("rescue.sh");
/// The largest number of tests of one operation.
const TESTS: usize = 32;
/// The largest length of a reason, in bytes.
const REASON_BYTES: usize = 1000;
/// The time in seconds for unmounting at the end of a rescue.
const LEAVES: u64 = 300;

/// The declared Script of an operation; `None` for the rescue environment.
pub(super) fn declared(operation: &Operation) -> Option<&agent::Script> {
    operation.script.as_ref().filter(|_| operation.verb == Verb::RunScript)
}

/// The script to run, as it is declared now.
pub(super) async fn script(
    app: &App,
    machine: &str,
    asked: &OperationRequest,
) -> Answer<Option<agent::Script>> {
    refuse_others(asked)?;
    match asked.verb {
        Verb::RunScript => named(app, asked).await.map(Some),
        Verb::Rescue => rescue(machine, asked).map(Some),
        Verb::PowerOn
        | Verb::PowerOff
        | Verb::PowerCycle
        | Verb::Recommission
        | Verb::Abort
        | Verb::Test
        | Verb::OverrideTests
        | Verb::ResetBmc => Ok(None),
    }
}

/// The tests of a `test`, as declared now: the named ones, or the machine's `commissioning.testing`.
pub(super) async fn tests(
    app: &App,
    machine: &Object,
    asked: &OperationRequest,
) -> Answer<Vec<agent::Script>> {
    if asked.verb != Verb::Test {
        return Ok(Vec::new());
    }
    let spec: MachineSpec = serde_json::from_str(machine.spec.get()).map_err(|error| {
        let message = format!("the region cannot read Machine {:?}: {error}", machine.name);
        Refusal::invalid(vec![FieldError::new("", FieldCode::Rule, message, "declare it anew")])
    })?;
    let own = spec.commissioning.testing.iter().map(|test| test.as_str().to_owned());
    let names: BTreeSet<String> = if asked.tests.is_empty() { own.collect() } else { asked.tests.clone() };
    if names.is_empty() {
        let message = format!("no test is named, and commissioning.testing of {} has none", machine.name);
        let hint =
            format!("names of Scripts of type testing, like {}", BUILT_IN.map(|it| it.name).join(", "));
        return Err(Refusal::field("/tests", FieldCode::Required, message, &hint));
    }
    if names.len() > TESTS {
        let message = format!("{} tests are named", names.len());
        return Err(Refusal::field("/tests", FieldCode::Rule, message, format!("at most {TESTS}")));
    }
    let mut tests = Vec::new();
    for name in &names {
        let spec = declared_script(app, "/tests", name).await?;
        if spec.when != ScriptType::Testing {
            let message = format!("script {name} is of type {}", spec.when);
            return Err(Refusal::field("/tests", FieldCode::Rule, message, "scripts of type testing"));
        }
        let known = |parameter: &&String| spec.parameters.contains_key(*parameter);
        let given = asked.parameters.iter().filter(|(parameter, _)| known(parameter));
        let given = given.map(|(parameter, value)| (parameter.clone(), value.clone())).collect();
        let run = spec.run(name, &given).map_err(Refusal::invalid)?;
        tests.push(agent::Script { repeats: true, ..run });
    }
    refuse_unused(&asked.parameters, &tests)?;
    Ok(tests)
}

/// Refuses a parameter that none of the tests has.
fn refuse_unused(given: &BTreeMap<String, String>, tests: &[agent::Script]) -> Answer<()> {
    let takes = |name: &str| {
        let argument = format!("--{name}=");
        tests.iter().any(|test| test.arguments.iter().any(|it| it.starts_with(&argument)))
    };
    let unused = given.keys().filter(|name| !takes(name)).map(|name| {
        let at = basalt_api::pointer::child("/parameters", name);
        FieldError::new(
            at,
            FieldCode::UnknownField,
            format!("no test has parameter {name:?}"),
            "leave it out",
        )
    });
    let errors: Vec<FieldError> = unused.collect();
    if errors.is_empty() { Ok(()) } else { Err(Refusal::invalid(errors)) }
}

/// The reason of a person who overrides tests.
pub(super) fn because(asked: &OperationRequest) -> Answer<Option<&str>> {
    let reason = asked.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
    match reason {
        None if asked.verb == Verb::OverrideTests => {
            let message = "failed tests are overridden for a reason, and none is given".to_owned();
            Err(Refusal::field("/reason", FieldCode::Required, message, "one sentence for the audit log"))
        }
        Some(long) if long.len() > REASON_BYTES => {
            let message = format!("the reason has {} bytes", long.len());
            Err(Refusal::field("/reason", FieldCode::Rule, message, format!("at most {REASON_BYTES}")))
        }
        reason => Ok(reason),
    }
}

/// Refuses a request that no machine could accept.
pub(super) fn check(asked: &OperationRequest) -> Answer<()> {
    refuse_others(asked)?;
    few_keys(asked)?;
    because(asked).map(drop)
}

/// Refuses a request with more keys than a rescue accepts.
fn few_keys(asked: &OperationRequest) -> Answer<()> {
    if asked.ssh_keys.len() <= RESCUE_KEYS {
        return Ok(());
    }
    let message = format!("{} SSH keys are given", asked.ssh_keys.len());
    Err(Refusal::field("/ssh_keys", FieldCode::Rule, message, format!("at most {RESCUE_KEYS}")))
}

/// Refuses fields that the verb does not use.
fn refuse_others(asked: &OperationRequest) -> Answer<()> {
    let given: [(&str, &[Verb], bool); 6] = [
        ("script", &[Verb::RunScript], asked.script.is_some()),
        ("parameters", &[Verb::RunScript, Verb::Test], !asked.parameters.is_empty()),
        ("ssh_keys", &[Verb::Rescue], !asked.ssh_keys.is_empty()),
        ("duration", &[Verb::Rescue], asked.duration.is_some()),
        ("tests", &[Verb::Test], !asked.tests.is_empty()),
        ("reason", &[Verb::OverrideTests], asked.reason.is_some()),
    ];
    let useless = given.into_iter().filter(|(_, verbs, given)| *given && !verbs.contains(&asked.verb));
    let errors: Vec<FieldError> = useless
        .map(|(field, verbs, _)| {
            let verbs: Vec<&str> = verbs.iter().map(|verb| verb.as_str()).collect();
            let verb = verbs.join(" or ");
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

/// A declared Script with its parameters.
async fn named(app: &App, asked: &OperationRequest) -> Answer<agent::Script> {
    let Some(name) = &asked.script else {
        let message = "no script is named".to_owned();
        return Err(Refusal::field("/script", FieldCode::Required, message, "the name of a Script"));
    };
    declared_script(app, "/script", name).await?.run(name, &asked.parameters).map_err(Refusal::invalid)
}

/// A declared Script. `field` is the request's field that names it.
async fn declared_script(app: &App, field: &str, name: &str) -> Answer<ScriptSpec> {
    let missing = || {
        let message = format!("there is no Script {name:?}");
        let hint = "declare it, or name another";
        Refusal::invalid(vec![FieldError::new(field, FieldCode::ReferenceNotFound, message, hint)])
    };
    let key = body::key(Script::KIND, name).map_err(|_| missing())?;
    let found = match app.store().get(Script::KIND.name, key).await {
        Err(StoreError::NotFound { .. }) => return Err(missing()),
        found => found?,
    };
    serde_json::from_str(found.spec.get()).map_err(|error| {
        let message = format!("the region cannot read Script {name:?}: {error}");
        Refusal::invalid(vec![FieldError::new(field, FieldCode::Rule, message, "declare it anew")])
    })
}

/// The rescue environment, open for the owners of the keys.
fn rescue(machine: &str, asked: &OperationRequest) -> Answer<agent::Script> {
    if asked.ssh_keys.is_empty() {
        let message = "nobody could come in: no SSH key is given".to_owned();
        let hint = "the public keys of those who are to mend the machine";
        return Err(Refusal::field("/ssh_keys", FieldCode::Required, message, hint));
    }
    few_keys(asked)?;
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
        ..agent::Script::default()
    })
}
