//! Operations of a machine as actions: `basalt_power_cycle`, `basalt_recommission` and one for every other verb of the API.
//!
//! ```text
//! plan     POST machines/NAME/operations?dry_run=true   what would be refused now is a warning
//! invoke   POST machines/NAME/operations                then GET of it, until it is over
//! ```
//!
//! The region performs the operation, and ends it at its deadline; an interruption only ends the waiting. If the region is away before
//! the deadline, the wait continues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use basalt_api::client::ClientError;
use basalt_api::kinds::{Machine, Script};
use basalt_api::values::{self, SshPublicKey, Timestamp};
use basalt_api::wire::{OperationRequest, OperationState, RESCUE_KEYS, RESCUE_LASTS, RESCUE_LIMITS, Verb};
use basalt_api::{Kind, KindOf};
use tfplugin::{Action, Attribute, Check, Cx, Diag, Diags, Path, Progress, Schema, Type, Val, async_trait};

use crate::provider::Session;
use crate::refusal;

const KIND: &Kind = Machine::KIND;

const MACHINE: &str = "machine";
const SCRIPT: &str = "script";
const PARAMETERS: &str = "parameters";
const TESTS: &str = "tests";
const REASON: &str = "reason";
const SSH_KEYS: &str = "ssh_keys";
const DURATION: &str = "duration";
const WAIT: &str = "wait";

/// Pause between two questions about the operation's progress.
const PAUSE: Duration = Duration::from_secs(1);

/// The action of a verb.
pub(crate) struct Operate {
    verb: Verb,
    type_name: String,
    schema: Schema,
    session: Arc<Session>,
}

/// The description of an action for its page.
fn doc(verb: Verb) -> &'static str {
    match verb {
        Verb::PowerOn => {
            "Switches a machine on. It is refused where the machine declares `power = \"off\"`, and waits where something is \
             being done to it."
        }
        Verb::PowerOff => {
            "Switches a machine off, at once. It is refused where the machine declares `power = \"on\"`, and waits where \
             something is being done to it."
        }
        Verb::PowerCycle => {
            "Switches a machine off, then on. It waits where something is being done to the machine, so it never falls into \
             an installation."
        }
        Verb::Recommission => {
            "Has a machine's hardware read again, as after a change of its parts. What failed on it is tried again at once."
        }
        Verb::Abort => {
            "Ends the commissioning, the installation, the script or the rescue of a machine that is under way, and cuts its power. Nothing \
             is tried again before `basalt_recommission`, or another specification."
        }
        Verb::Rescue => {
            "Boots a machine into an environment in memory, for people to mend it over SSH, and waits until they can come in. A \
             machine that runs is cut off first; its disks are not touched. When they are done, or its time is over, the machine \
             goes on as it is declared. It is allowed for machines of deployments, and in every mode."
        }
        Verb::Test => {
            "Tests the hardware of a machine that no deployment has: the machine boots the ephemeral environment, runs the tests, and is \
             left as its specification says. Findings are rows (`basalt_test_results`); a test that fails keeps the machine from \
             deployments, as its `commissioning.failed_tests` says."
        }
        Verb::OverrideTests => {
            "Lets a machine be used although tests of its hardware failed: those that ended before count no more. The reason is in the \
             audit log. It fails where no failed test keeps the machine."
        }
        Verb::ResetBmc => {
            "Restarts the BMC of a machine, which may help if it refuses sessions or does not obey. The machine goes on; for some minutes its \
             power can be neither read nor switched. The restart affects every machine behind the same BMC. The account needs the privilege administrator."
        }
        Verb::RunScript => {
            "Runs a script on a machine that no deployment has: the machine boots the ephemeral environment, runs it as root, \
             once, and is left as its specification says. It fails where the script fails, with the end of what it said."
        }
    }
}

impl Operate {
    pub(crate) fn new(verb: Verb, session: Arc<Session>) -> Self {
        let mut attributes = vec![
            Attribute::required(MACHINE, Type::String).doc(
                "Of which machine: its name, or `uid:` and its uid. Refers to `basalt_machine` by name.",
            ),
            Attribute::optional(WAIT, Type::Bool)
                .doc(match verb {
                    Verb::Rescue => "Whether to go on until people can come in, and to fail where they cannot. `true` unless it is said.",
                    _ => "Whether to go on until it is over, and to fail where it was not done. `true` unless it is said.",
                }),
        ];
        if verb == Verb::RunScript {
            let script = "Which script: the name of a `basalt_script`. It is run as it is declared when it is asked for.";
            let parameters = "What the script is given, by the names of its parameters: each becomes an argument \
                              `--NAME=VALUE`.";
            attributes.push(Attribute::required(SCRIPT, Type::String).doc(script));
            attributes.push(Attribute::optional(PARAMETERS, Type::map(Type::String)).doc(parameters));
        }
        if verb == Verb::Test {
            let tests = "Scripts of type `testing`, like `basalt-memory`. Those of the machine's `commissioning.testing` unless it is said.";
            let parameters =
                "What the tests are given, by the names of their parameters; each test takes what it knows.";
            attributes.push(Attribute::optional(TESTS, Type::set(Type::String)).doc(tests));
            attributes.push(Attribute::optional(PARAMETERS, Type::map(Type::String)).doc(parameters));
        }
        if verb == Verb::OverrideTests {
            attributes.push(Attribute::required(REASON, Type::String).doc("The reason, for the audit log."));
        }
        if verb == Verb::Rescue {
            let keys = "The public keys of those who may come in as root, each a line of a `.pub` file.";
            let duration =
                format!("How long it lasts at most, as in `90m`. `{RESCUE_LASTS}` unless it is said.");
            attributes
                .push(Attribute::required(SSH_KEYS, Type::set(Type::String)).doc(keys).check(are_keys()));
            attributes.push(Attribute::optional(DURATION, Type::String).doc(duration).check(is_duration()));
        }
        let schema = Schema { description: doc(verb).to_owned(), attributes, ..Schema::default() };
        Self { verb, type_name: format!("basalt_{verb}"), schema, session }
    }

    /// The request for the operation. `None` if a part of it is unknown.
    fn request(&self, config: &Val) -> Option<OperationRequest> {
        match self.verb {
            Verb::RunScript => self.script(config),
            Verb::Rescue => self.rescue(config),
            Verb::Test => self.test(config),
            Verb::OverrideTests => {
                let reason = Some(config.get(REASON).as_str()?.to_owned());
                Some(OperationRequest { reason, ..self.verb.into() })
            }
            verb => Some(verb.into()),
        }
    }

    fn rescue(&self, config: &Val) -> Option<OperationRequest> {
        let Val::List(keys) = config.get(SSH_KEYS) else { return None };
        let ssh_keys = keys.iter().map(|key| key.as_str()?.parse().ok()).collect::<Option<_>>()?;
        let duration = match config.get(DURATION) {
            Val::Null => None,
            given => Some(given.as_str()?.parse().ok()?),
        };
        Some(OperationRequest { ssh_keys, duration, ..self.verb.into() })
    }

    fn test(&self, config: &Val) -> Option<OperationRequest> {
        let tests = match config.get(TESTS) {
            Val::List(tests) => {
                tests.iter().map(|test| Some(test.as_str()?.to_owned())).collect::<Option<_>>()?
            }
            Val::Null => BTreeSet::new(),
            _ => return None,
        };
        let parameters = parameters(config)?;
        Some(OperationRequest { tests, parameters, ..self.verb.into() })
    }

    fn script(&self, config: &Val) -> Option<OperationRequest> {
        let parameters = parameters(config)?;
        let script = Some(config.get(SCRIPT).as_str()?.to_owned());
        Some(OperationRequest { script, parameters, ..self.verb.into() })
    }
}

impl Operate {
    /// Error: the user interrupted the wait.
    fn not_waited_for(&self, machine: &str) -> Diags {
        let detail = format!(
            "The region goes on with {} by itself; `basalt operations {machine}` says what became of it.",
            self.verb
        );
        Diag::error(format!("It was not waited for: {} of Machine {machine:?}", self.verb), detail).into()
    }
}

/// Parameters of scripts. None: some are not known yet.
fn parameters(config: &Val) -> Option<BTreeMap<String, String>> {
    match config.get(PARAMETERS) {
        Val::Map(given) => given
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect(),
        Val::Null => Some(BTreeMap::new()),
        _ => None,
    }
}

fn are_keys() -> Check {
    let is_key = |value: &Val| match value {
        // An unknown key is checked later.
        Val::Unknown => true,
        value => value.as_str().is_some_and(|text| text.parse::<SshPublicKey>().is_ok()),
    };
    Check::new(
        format!("of 1 to {RESCUE_KEYS} SSH public keys, each a line of a `.pub` file"),
        move |value| matches!(value, Val::List(keys) if (1..=RESCUE_KEYS).contains(&keys.len()) && keys.iter().all(is_key)),
    )
}

fn is_duration() -> Check {
    let [least, most] = RESCUE_LIMITS;
    Check::new(format!("a length of time from `{least}` to `{most}`, like `90m`"), move |value| {
        let lasts = value.as_str().and_then(|text| text.parse::<values::Duration>().ok());
        lasts.is_some_and(|lasts| (least..=most).contains(&lasts))
    })
}

/// The diagnostics of a refusal. An error about the verb has no attribute, so it applies to the whole action.
fn failed(machine: &str, error: &ClientError) -> Diags {
    let Some(mut problem) = error.problem().cloned() else { return refusal::diags(KIND, machine, error) };
    problem.errors.iter_mut().filter(|it| it.pointer == "/verb").for_each(|it| it.pointer.clear());
    refusal::diags(KIND, machine, &problem.into())
}

#[async_trait]
impl Action for Operate {
    fn type_name(&self) -> &str {
        &self.type_name
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn validate(&self, config: &Val) -> Diags {
        let named = [(MACHINE, "a machine's", KIND), (SCRIPT, "a script's", Script::KIND)];
        let mut diags = Diags::default();
        for (attribute, whose, kind) in named {
            let name = config.get(attribute).as_str().filter(|name| !name.starts_with("uid:"));
            if let Some(Err(bad)) = name.map(|name| kind.naming.check(name)) {
                let detail = format!("{}; {}.", bad.message, bad.hint);
                diags.push(Diag::error(format!("Not {whose} name"), detail).at(Path::root().attr(attribute)));
            }
        }
        diags
    }

    async fn plan(&self, cx: &Cx, config: &Val) -> Result<(), Diags> {
        self.session.is_well()?;
        let known = (config.get(MACHINE).as_str(), self.request(config), self.session.region_if_known());
        let (Some(machine), Some(request), Some(region)) = known else { return Ok(()) };
        if request
            .script
            .as_ref()
            .is_some_and(|script| self.session.memory.is_coming(Script::KIND.name, script))
        {
            return Ok(());
        }
        let tried = region.client.call().await.operate_dry_run(machine, &request).await;
        match tried {
            Err(error) if error.is_not_found() && self.session.memory.is_coming(KIND.name, machine) => Ok(()),
            // Earlier changes of the same apply may remove the reason for the refusal.
            Err(error) if error.problem().is_some() => {
                for refusal in failed(machine, &error) {
                    let detail = format!("{} As things are now, it would fail.", refusal.detail);
                    cx.warn(Diag::warning(refusal.summary, detail).at(Path::root().attr(MACHINE)));
                }
                Ok(())
            }
            Err(error) => Err(failed(machine, &error)),
            Ok(_) => Ok(()),
        }
    }

    async fn invoke(&self, cx: &Cx, config: &Val, progress: &Progress<'_>) -> Result<(), Diags> {
        let region = self.session.region()?;
        let machine = config.get(MACHINE).as_str().unwrap_or_default();
        let request = self.request(config).ok_or_else(|| {
            let detail = "Everything that an action is given has to be known when it is invoked.";
            Diags::from(Diag::error("Not all of it is known", detail))
        })?;
        let asked = region.client.call().await.operate(machine, &request).await;
        let mut operation = asked.map_err(|error| failed(machine, &error))?;
        progress.say(format!("{}: {} was accepted as {}", operation.machine, self.verb, operation.id)).await;
        let mut last = String::new();
        loop {
            if operation.message != last {
                progress.say(format!("{}: {}", operation.machine, operation.message)).await;
                last.clone_from(&operation.message);
            }
            match operation.state {
                OperationState::Done => {
                    if let Some(output) = operation.output {
                        progress.say(output).await;
                    }
                    return Ok(());
                }
                state if state.is_over() => {
                    let said = operation.output.filter(|output| !output.is_empty());
                    let said = said.map(|output| format!(" It said:\n{output}")).unwrap_or_default();
                    let detail = format!(
                        "{} is {}: {}.{said}",
                        self.verb,
                        state.as_str(),
                        operation.message.trim_end_matches('.')
                    );
                    return Err(Diag::error(
                        format!("It was not done: {} of Machine {machine:?}", self.verb),
                        detail,
                    )
                    .into());
                }
                // The rescue system is open for people, and stays so as long as they need it.
                OperationState::Running if operation.reason == OperationState::OPEN => return Ok(()),
                _ if config.get(WAIT).as_bool() == Some(false) => return Ok(()),
                _ => {}
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = cx.cancelled() => return Err(self.not_waited_for(machine)),
            }
            let looked = region.client.call().await.operation(machine, operation.id).await;
            match looked {
                Ok(now) => operation = now,
                Err(ClientError::Interrupted { .. }) => return Err(self.not_waited_for(machine)),
                // The operation continues meanwhile, and the region ends it at its deadline.
                Err(error) if error.is_outage() && Timestamp::now() < operation.deadline => {
                    operation.message = "no region answers, which does not end it".to_owned();
                }
                Err(error) => return Err(failed(machine, &error)),
            }
        }
    }
}
