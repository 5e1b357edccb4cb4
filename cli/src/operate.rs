//! `basalt power`, `recommission`, `run-script`, `test`, `override-tests`, `rescue`, `abort`, `reset-bmc`, `operations`: requests operations on
//! machines, and shows their results.

mod many;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use basalt_api::KindOf;
use basalt_api::client::Client;
use basalt_api::kinds::{Machine, PowerStatus};
use basalt_api::values::SshPublicKey;
use basalt_api::wire::{Operation, OperationRequest, OperationState, OperationsRequest, Verb};

use crate::confirm::confirm;
use crate::dry_run;
use crate::output::{line, say, show, show_exactly, show_json};
use crate::region::{Connection, Failed};
use crate::subject::{self, machine};

/// Pause between two checks if an operation has ended.
const PAUSE: Duration = Duration::from_secs(1);

/// What to do with the power.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Power {
    /// Switch it on
    On,
    /// Switch it off, at once
    Off,
    /// Switch it off, then on
    Cycle,
    /// Say if it is on, and when its BMC was asked
    Status,
}

/// Arguments of `basalt power`.
#[derive(Debug, clap::Args)]
pub(crate) struct PowerArgs {
    /// What to do
    #[arg(value_enum)]
    power: Power,
    #[command(flatten)]
    args: Args,
}

/// Arguments of what is asked of machines.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The machines' names
    #[arg(value_name = "MACHINE", value_parser = machine, required_unless_present = "filter")]
    machines: Vec<String>,
    /// All machines that fit this filter, as in 'zone:row-1 status:failed'; they are shown, and you are asked
    #[arg(long = "where", short = 'f', value_name = "FILTER", conflicts_with = "machines")]
    filter: Option<String>,
    #[command(flatten)]
    flags: Flags,
}

/// How something is asked.
#[derive(Debug, clap::Args)]
struct Flags {
    /// Ask for nothing, and say what would follow
    #[arg(long)]
    dry_run: bool,
    /// Go on until it is over, and fail where it was not done
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// Do not ask, even if a running system is cut off
    #[arg(long, short)]
    yes: bool,
    /// text for people, json for programs
    #[arg(long, short, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// Arguments of `basalt run-script`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScriptArgs {
    /// The machine's name
    #[arg(value_parser = machine)]
    machine: String,
    /// The Script's name
    #[arg(value_parser = subject::script)]
    script: String,
    /// Give it something; it becomes its argument --NAME=VALUE
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = parameter)]
    parameter: Vec<(String, String)>,
    #[command(flatten)]
    flags: Flags,
}

/// Arguments of `basalt test`.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    args: Args,
    /// A Script of type testing, like basalt-memory; without one, those of the machine's commissioning.testing
    #[arg(long = "test", value_name = "SCRIPT", value_parser = subject::script)]
    tests: Vec<String>,
    /// A parameter of the tests: the argument --NAME=VALUE of each test that has it
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = parameter)]
    parameter: Vec<(String, String)>,
}

/// Arguments of `basalt override-tests`.
#[derive(Debug, clap::Args)]
pub(crate) struct OverrideArgs {
    #[command(flatten)]
    args: Args,
    /// Why the machine is used all the same, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Arguments of `basalt rescue`.
#[derive(Debug, clap::Args)]
pub(crate) struct RescueArgs {
    /// The machine's name
    #[arg(value_parser = machine)]
    machine: String,
    /// A file of public keys of those who may come in; without one, your own: ~/.ssh/id_*.pub
    #[arg(long, value_name = "FILE")]
    ssh_key: Vec<PathBuf>,
    /// How long it lasts at most, as in 90m; 4h unless it is said
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<basalt_api::values::Duration>,
    /// Ask for nothing, and say what would follow
    #[arg(long)]
    dry_run: bool,
    /// Do not wait until people can come in
    #[arg(long, conflicts_with = "dry_run")]
    no_wait: bool,
    /// Do not ask, even if a running system is cut off
    #[arg(long, short)]
    yes: bool,
    /// text for people, json for programs
    #[arg(long, short, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

fn parameter(given: &str) -> Result<(String, String), String> {
    let (name, value) =
        given.split_once('=').ok_or_else(|| "say NAME=VALUE, as in --parameter mode=fast".to_owned())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Arguments of `basalt operations`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// The machine's name
    #[arg(value_parser = machine)]
    machine: String,
    /// text for people, json for programs
    #[arg(long, short, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// Runs `basalt power`.
pub(crate) async fn power(args: PowerArgs, connection: &Connection) -> Result<(), Failed> {
    let verb = match args.power {
        Power::On => Verb::PowerOn,
        Power::Off => Verb::PowerOff,
        Power::Cycle => Verb::PowerCycle,
        Power::Status => return status(args.args, connection).await,
    };
    run(verb, args.args, connection).await
}

/// Prints the power state from the last query of a machine's BMC. Racks query BMCs regularly.
async fn status(args: Args, connection: &Connection) -> Result<(), Failed> {
    let Args { machines, flags: args, .. } = args;
    let [name] = machines.as_slice() else {
        let words =
            "power status is of one machine; `basalt get machines --where power:on -o wide` shows many";
        return Err(Failed::Words(words.into()));
    };
    if args.dry_run || args.wait || args.yes {
        return Err(Failed::Words(
            "power status changes nothing: leave out --dry-run, --wait and --yes".into(),
        ));
    }
    let machine = connection.client()?.get(Machine::KIND, name).await?;
    let status = machine.typed::<Machine>().map_err(|error| Failed::Words(error.to_string()))?.status.power;
    match args.output.as_str() {
        "json" => show_json(&status),
        _ => show(&format!("{}\n", line(&in_words(name, status.as_ref())))),
    }
    Ok(())
}

fn in_words(machine: &str, status: Option<&PowerStatus>) -> String {
    let Some(PowerStatus { state, observed_at, rack, error, .. }) = status else {
        return format!("{machine}: no BMC was asked; `basalt explain machine {machine}` says why");
    };
    let by = rack.as_ref().map(|rack| format!(" by {rack}")).unwrap_or_default();
    let at = observed_at.strftime("%Y-%m-%d %H:%M:%S");
    let but = error.as_ref().map(|error| format!("; the last try failed: {error}")).unwrap_or_default();
    format!("{machine}: {state}, asked at {at} UTC{by}{but}")
}

/// Runs `basalt run-script`.
pub(crate) async fn script(args: ScriptArgs, connection: &Connection) -> Result<(), Failed> {
    let (request, machine, flags) = args.request();
    ask(request, &machine, flags, connection).await
}

impl ScriptArgs {
    fn request(self) -> (OperationRequest, String, Flags) {
        let parameters = self.parameter.into_iter().collect();
        let script = Some(self.script);
        (OperationRequest { script, parameters, ..Verb::RunScript.into() }, self.machine, self.flags)
    }
}

/// Runs `basalt test`.
pub(crate) async fn test(args: TestArgs, connection: &Connection) -> Result<(), Failed> {
    let tests = args.tests.into_iter().collect();
    let parameters = args.parameter.into_iter().collect();
    ask_all(OperationRequest { tests, parameters, ..Verb::Test.into() }, args.args, connection).await
}

/// Runs `basalt override-tests`.
pub(crate) async fn override_tests(args: OverrideArgs, connection: &Connection) -> Result<(), Failed> {
    let request = OperationRequest { reason: Some(args.reason), ..Verb::OverrideTests.into() };
    ask_all(request, args.args, connection).await
}

/// Runs `basalt rescue`.
pub(crate) async fn rescue(args: RescueArgs, connection: &Connection) -> Result<(), Failed> {
    let files = match args.ssh_key.is_empty() {
        true => own_keys()?,
        false => args.ssh_key,
    };
    let mut ssh_keys = BTreeSet::new();
    for file in &files {
        ssh_keys.extend(keys(file)?);
    }
    let request = OperationRequest { ssh_keys, duration: args.duration, ..Verb::Rescue.into() };
    let RescueArgs { machine, dry_run, no_wait, yes, output, .. } = args;
    ask(request, &machine, Flags { dry_run, wait: !no_wait && !dry_run, yes, output }, connection).await
}

/// The public keys of the user who runs the command.
fn own_keys() -> Result<Vec<PathBuf>, Failed> {
    let directory = std::env::home_dir().unwrap_or_default().join(".ssh");
    let names = ["id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub"];
    let files: Vec<PathBuf> =
        names.into_iter().map(|name| directory.join(name)).filter(|file| file.is_file()).collect();
    if files.is_empty() {
        let directory = directory.display();
        return Err(Failed::Words(format!(
            "there is no public key in {directory}: name one with --ssh-key FILE, or make one with `ssh-keygen`"
        )));
    }
    Ok(files)
}

/// The keys in a file, one a line.
fn keys(file: &Path) -> Result<Vec<SshPublicKey>, Failed> {
    let at = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failed::Words(format!("{at} cannot be read: {error}")))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.parse().map_err(|bad| Failed::Words(format!("{at}: {bad}")))).collect()
}

/// Requests an operation that needs no parameters.
pub(crate) async fn run(verb: Verb, args: Args, connection: &Connection) -> Result<(), Failed> {
    ask_all(verb.into(), args, connection).await
}

/// Requests an operation on the machines in the arguments.
async fn ask_all(operation: OperationRequest, args: Args, connection: &Connection) -> Result<(), Failed> {
    let Args { machines, filter, flags } = args;
    match (machines.as_slice(), filter) {
        ([machine], None) => ask(operation, machine, flags, connection).await,
        (_, filter) => {
            let request = OperationsRequest { names: machines, filter, operation };
            many::ask(request, flags, connection).await
        }
    }
}

async fn ask(
    request: OperationRequest,
    machine: &str,
    args: Flags,
    connection: &Connection,
) -> Result<(), Failed> {
    let (verb, client) = (request.verb, connection.client()?);
    let json = args.output == "json";
    if args.dry_run {
        let dry = client.operate_dry_run(machine, &request).await?;
        if json {
            show_json(&dry.plan);
            return Ok(());
        }
        show(&dry_run::shown(&dry));
        return Ok(());
    }
    if !args.yes && cuts_off(verb) {
        let dry = client.operate_dry_run(machine, &request).await?;
        if let Some(interrupts) = &dry.plan.interrupts {
            say(interrupts);
            confirm(&format!("{verb} {machine}?"), "nothing was asked for")?;
        }
    }
    let mut operation = client.operate(machine, &request).await?;
    if args.wait {
        operation = over(&client, machine, operation, json).await?;
    }
    match json {
        true => show_json(&operation),
        false if args.wait => {
            show_exactly(operation.output.as_deref().unwrap_or_default());
            show(&format!("{}\n", line(&operation.message)));
        }
        false => {
            let after = format!("`basalt explain machine {machine}` says what follows");
            show(&format!("accepted as {}; {after}\n", operation.id));
        }
    }
    match operation.state {
        state if state.is_over() && state != OperationState::Done => {
            Err(Failed::Words(format!("{verb} is {}: {}", state.as_str(), operation.message)))
        }
        _ => Ok(()),
    }
}

/// True for verbs that may cut off a running system, or a BMC. For other verbs, the machine is not checked first.
const fn cuts_off(verb: Verb) -> bool {
    match verb {
        Verb::PowerOff
        | Verb::PowerCycle
        | Verb::Rescue
        | Verb::RunScript
        | Verb::Test
        | Verb::Recommission
        | Verb::ResetBmc => true,
        Verb::PowerOn | Verb::Abort | Verb::OverrideTests => false,
    }
}

/// True once people can log in. The rescue then continues until it is ended.
fn is_open(operation: &Operation) -> bool {
    operation.state == OperationState::Running && operation.reason == OperationState::OPEN
}

/// Waits until the operation has ended, or until people can log in. The region ends it at its deadline.
async fn over(
    client: &Client,
    machine: &str,
    mut operation: Operation,
    quiet: bool,
) -> Result<Operation, Failed> {
    let mut last = String::new();
    while !operation.state.is_over() && !is_open(&operation) {
        if !quiet && operation.message != last {
            say(&format!("{machine}: {}", line(&operation.message)));
            last.clone_from(&operation.message);
        }
        tokio::time::sleep(PAUSE).await;
        operation = client.operation(machine, operation.id).await?;
    }
    Ok(operation)
}

/// Runs `basalt operations`.
pub(crate) async fn list(args: ListArgs, connection: &Connection) -> Result<(), Failed> {
    let operations = connection.client()?.operations(&args.machine).await?;
    if args.output == "json" {
        show_json(&operations);
        return Ok(());
    }
    let mut text = String::new();
    for it in &operations.items {
        let at = it.accepted_at.strftime("%Y-%m-%d %H:%M:%S");
        let by = it.requested_by.as_deref().unwrap_or("-");
        let verb =
            it.script.as_ref().map_or_else(|| it.verb.to_string(), |script| format!("script {script}"));
        let state = it.state.as_str();
        text.push_str(&format!("{at}  {verb:12}  {state:10}  {by:20}  {}\n", line(&it.message)));
    }
    if text.is_empty() {
        text = format!("nothing was asked of {}\n", args.machine);
    }
    show(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use axum::extract::Request;
    use axum::response::{IntoResponse, Response};
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::{Cli, Command, stand_in};

    /// The answer to a dry run: `interrupts` names the system that is cut off, if any.
    fn tried(interrupts: Option<&str>) -> Response {
        let mut object = stand_in::zone("Ready");
        object["kind"] = json!("Machine");
        let plan = json!({"summary": "web1: power off", "interrupts": interrupts});
        Json(json!({"object": object, "plan": plan})).into_response()
    }

    fn is_tried(request: &Request) -> bool {
        request.uri().query() == Some("dry_run=true")
    }

    /// A region without running systems that accepts every operation and reports this end state.
    fn ends(state: &'static str) -> impl Fn(&Request) -> Response + Clone {
        move |request: &Request| {
            if is_tried(request) {
                return tried(None);
            }
            let state = if request.method() == "POST" { "requested" } else { state };
            let operation = json!({
                "id": "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", "machine": "web1", "verb": "power_cycle", "state": state,
                "reason": "Why", "message": "web1 was off, and is on", "path": "/",
                "accepted_at": "2026-01-01T00:00:00Z", "deadline": "2026-01-01T01:00:00Z",
            });
            Json(operation).into_response()
        }
    }

    #[test]
    fn power_is_told_with_when_and_by_whom_it_was_asked() {
        let told = |status: serde_json::Value| {
            let status: Option<PowerStatus> = serde_json::from_value(status).unwrap();
            in_words("web1", status.as_ref())
        };
        let on = json!({"state": "on", "observed_at": "2026-01-31T12:00:00Z", "rack": "r1"});
        assert_eq!(told(on), "web1: on, asked at 2026-01-31 12:00:00 UTC by r1");
        let mute = json!({"state": "unknown", "observed_at": "2026-01-31T12:00:00Z", "error": "no answer"});
        assert_eq!(
            told(mute),
            "web1: unknown, asked at 2026-01-31 12:00:00 UTC; the last try failed: no answer"
        );
        assert!(told(json!(null)).starts_with("web1: no BMC was asked"));
    }

    #[tokio::test]
    async fn power_status_asks_for_nothing() {
        let reads = |request: &Request| {
            assert_eq!((request.method().as_str(), request.uri().path()), ("GET", "/api/v1/machines/web1"));
            let mut machine = stand_in::zone("Ready");
            machine["kind"] = json!("Machine");
            machine["status"]["power"] = json!({"state": "on", "observed_at": "2026-01-31T12:00:00Z"});
            Json(machine).into_response()
        };
        stand_in::run(&["power", "status", "machine/web1"], reads).await.unwrap();
        let refused =
            stand_in::run(&["power", "status", "web1", "--yes"], reads).await.unwrap_err().to_string();
        assert!(refused.contains("leave out --dry-run, --wait and --yes"), "{refused}");
    }

    #[test]
    fn a_script_is_asked_for_with_what_it_is_given() {
        let words = ["basalt", "run-script", "web1", "flash", "--parameter", "slot=a=b", "-p", "mode=fast"];
        let Command::RunScript(args) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        let (request, machine, _) = args.request();
        let parameters =
            [("slot".to_owned(), "a=b".to_owned()), ("mode".to_owned(), "fast".to_owned())].into();
        let script = Some("flash".to_owned());
        let wanted = OperationRequest { script, parameters, ..Verb::RunScript.into() };
        assert_eq!((request, machine.as_str()), (wanted, "web1"));
        let wrong = Cli::try_parse_from(["basalt", "run-script", "web1", "flash", "-p", "fast"]).unwrap_err();
        assert!(wrong.to_string().contains("say NAME=VALUE"), "{wrong}");
    }

    #[test]
    fn keys_are_read_from_files_that_people_have() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys");
        let key = basalt_api::Semantic::SshPublicKey.example();
        std::fs::write(&file, format!("# ours\n{key}\n\n")).unwrap();
        assert_eq!(keys(&file).unwrap(), [key.parse().unwrap()]);
        std::fs::write(&file, "-----BEGIN OPENSSH PRIVATE KEY-----\n").unwrap();
        let wrong = keys(&file).unwrap_err().to_string();
        assert!(wrong.starts_with(&format!("{}: ", file.display())), "{wrong}");
        let missing = keys(&directory.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("none cannot be read: No such file"), "{missing}");
    }

    /// A region that accepts a rescue and reports that people can log in.
    fn opens(request: &Request) -> Response {
        if is_tried(request) {
            return tried(None);
        }
        assert_eq!(request.method() == "POST", request.uri().path().ends_with("/operations"));
        let operation = json!({
            "id": "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", "machine": "web1", "verb": "rescue", "state": "running",
            "reason": "Open", "message": "people can come in: ssh root@192.0.2.7", "path": "/",
            "accepted_at": "2026-01-01T00:00:00Z", "deadline": "2026-01-01T01:00:00Z",
        });
        Json(operation).into_response()
    }

    #[tokio::test]
    async fn a_rescue_is_waited_for_until_people_can_come_in() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key.pub");
        std::fs::write(&file, basalt_api::Semantic::SshPublicKey.example()).unwrap();
        let words = ["rescue", "web1", "--for", "90m", "--ssh-key", file.to_str().unwrap()];
        stand_in::run(&words, opens).await.unwrap();
        std::fs::write(&file, "no key").unwrap();
        stand_in::run(&words, opens).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_running_system_is_not_cut_off_without_a_yes() {
        let runs = |request: &Request| match is_tried(request) {
            true => tried(Some("the system of Deployment \"web\" is cut off")),
            false => ends("done")(request),
        };
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key.pub");
        std::fs::write(&key, basalt_api::Semantic::SshPublicKey.example()).unwrap();
        let key = key.to_str().unwrap();
        let verbs: [&[&str]; 5] = [
            &["power", "off", "web1"],
            &["power", "cycle", "web1"],
            &["rescue", "web1", "--ssh-key", key],
            &["run-script", "web1", "flash"],
            &["recommission", "web1"],
        ];
        for words in verbs {
            let refused = stand_in::run(words, runs).await.unwrap_err().to_string();
            assert!(refused.contains("--yes goes on without asking"), "{words:?}: {refused}");
            stand_in::run(&[words, &["--yes"]].concat(), runs).await.unwrap();
        }
        stand_in::run(&["power", "on", "web1"], runs).await.expect("nothing is cut off");
    }

    #[tokio::test]
    async fn who_waits_is_told_how_it_ended_and_fails_where_it_was_not_done() {
        let words = ["power", "cycle", "web1", "--wait"];
        stand_in::run(&words, ends("done")).await.unwrap();
        let failed = stand_in::run(&words, ends("expired")).await.unwrap_err().to_string();
        assert_eq!(failed, "power_cycle is expired: web1 was off, and is on");
        let accepted = ["power", "cycle", "web1"];
        stand_in::run(&accepted, ends("failed")).await.expect("nobody waits for its end");
    }

    const ID: &str = "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e";

    /// A region with the machines a, whose system runs, and b, which refuses everything. It only answers a dry run of the filter, and a
    /// request for the machines that the dry run showed.
    fn fleet(request: &Request) -> Response {
        assert_eq!(request.uri().path(), "/api/v1/operations");
        let refused = json!({"machine": "b", "problem": {"type": "x", "code": "conflict", "status": 409, "title": "Conflict", "detail": "b has no BMC"}});
        if is_tried(request) {
            let plan = json!({"summary": "a: power off", "interrupts": "a runs web"});
            return Json(json!({"items": [{"machine": "a", "plan": plan}, refused]})).into_response();
        }
        let operation = json!({
            "id": ID, "machine": "a", "verb": "power_off", "state": "requested", "reason": "Why", "message": "accepted", "path": "/",
            "accepted_at": "2026-01-01T00:00:00Z", "deadline": "2026-01-01T01:00:00Z",
        });
        Json(json!({"items": [{"machine": "a", "operation": operation}]})).into_response()
    }

    #[tokio::test]
    async fn many_are_asked_in_one_request_and_a_filter_asks_first() {
        let by_filter = ["power", "off", "--where", "zone:row-1"];
        let refused = stand_in::run(&by_filter, fleet).await.unwrap_err().to_string();
        assert!(refused.contains("--yes goes on without asking"), "{refused}");
        let failed =
            stand_in::run(&[&by_filter[..], &["--yes"]].concat(), fleet).await.unwrap_err().to_string();
        assert_eq!(failed, "1 of 2 machines did not take power_off");
        let by_names = ["power", "on", "a", "b", "--dry-run"];
        let failed = stand_in::run(&by_names, fleet).await.unwrap_err().to_string();
        assert_eq!(failed, "1 of 2 machines did not take power_on");
        let both = Cli::try_parse_from(["basalt", "abort", "a", "--where", "b"]).unwrap_err();
        assert!(both.to_string().contains("cannot be used with"), "{both}");
        let none = stand_in::run(&["power", "on", "--where", "b", "--yes"], |_: &Request| {
            Json(json!({"items": []})).into_response()
        });
        assert_eq!(none.await.unwrap_err().to_string(), "no machine fits the filter");
    }
}
