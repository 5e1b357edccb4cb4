//! The driver's answers to the API. They only read.
//!
//! | module | is |
//! | --- | --- |
//! | [`machinery`] | the border: the trait that the API asks |
//! | [`consequences`], [`tag_change`] | the effects of a write on machines that it does not name, and the tags that they gain or lose |
//! | [`decisions`] | the reasons of steps, and replays of decisions |
//! | [`departure`] | the racks that replace one that stops serving |
//! | [`names`] | how racks answer for a name |
//! | [`serving`] | the state of DHCP on VLANs and subnets |

pub mod consequences;
pub mod decisions;
pub mod departure;
pub mod machinery;
pub mod names;
pub mod serving;
pub mod tag_change;

use std::collections::BTreeMap;
use std::sync::Arc;

use basalt_api::kinds::DeploymentSpec;
use basalt_api::plan::{Consequences, PlanReport, Step, StepState, TimelineEntry, TimelineKind, Wait};
use basalt_api::values::{Timestamp, Uid};
use basalt_api::wire::{Decisions, NameReport, Timeline, Verb, Waits};
use basalt_db::{Fact, Object, Overlay, StepRecord, StoreError};
use basalt_engine::deadlines::DeadlineId;
use basalt_engine::deployment::DeploymentAction;
use basalt_engine::ends::Ending;
use basalt_engine::select::Choice;
use basalt_engine::steps::EffectKind;
use basalt_engine::{Plan, plan, plan::Wait as Waited};
use basalt_proto::LINK;
use serde_json::{Map, Value};

use crate::driver::allocate;
use crate::driver::context::Driver;
use crate::driver::machine::operation;
use crate::driver::meters::Counts;
use crate::driver::reconcile::{deployment, rack};
use crate::driver::status::between;
use crate::driver::stored::spec;
use crate::driver::topology::estate::Estate;
use crate::racks;
use crate::racks::observed::{self, Observed};
use machinery::{Answer, Choices, Judged, Machinery, SupposedState};
use names::Asked;
use serving::Network;

/// The number of facts and steps in a timeline.
const HISTORY: i64 = 1000;

impl Machinery for Driver {
    fn plans<'a>(
        &'a self,
        these: Vec<(&'a Object, SupposedState<'a>)>,
        others: Option<&'a Arc<Overlay>>,
    ) -> Answer<'a, Vec<PlanReport>> {
        Box::pin(async move {
            let driver = self.supposing(others);
            let estate = driver.estate().await?;
            let mut reports = Vec::with_capacity(these.len());
            for (object, supposed) in these {
                reports.push(Box::pin(driver.report(&estate, object, supposed)).await?);
            }
            Ok(reports)
        })
    }

    fn choose<'a>(
        &'a self,
        wanted: &'a [(&'a Object, &'a Value)],
        others: Option<&'a Arc<Overlay>>,
    ) -> Answer<'a, Choices> {
        Box::pin(async move {
            let as_declared = |(object, value): &(&'a Object, &'a Value)| {
                Ok((*object, declared::<DeploymentSpec>(object, Some(value))?))
            };
            let wanted = wanted.iter().map(as_declared).collect::<Result<Vec<_>, StoreError>>()?;
            let supposing = self.supposing(others);
            let (by_deployment, ground) =
                allocate::suppose(&supposing.store, &supposing.topology, &wanted).await?;
            Ok(Choices { by_deployment, ground })
        })
    }

    fn consequences<'a>(
        &'a self,
        others: &'a Arc<Overlay>,
        pools: Option<&'a [String]>,
    ) -> Answer<'a, Consequences> {
        Box::pin(async move {
            let machines = consequences::of(self, others).await?;
            Ok(Consequences { tags: tag_change::of(self, others, pools).await?, ..machines })
        })
    }

    fn departure(&self, rack: Uid) -> Answer<'_, departure::Departure> {
        Box::pin(departure::of(self, rack))
    }

    fn waits<'a>(&'a self, object: &'a Object) -> Answer<'a, Waits> {
        Box::pin(async move {
            let estate = self.estate().await?;
            let report = Box::pin(self.report(&estate, object, SupposedState::default())).await?;
            Ok(Waits { waits: report.waits })
        })
    }

    fn network(&self) -> Answer<'_, Network> {
        Box::pin(Network::load(self))
    }

    fn explain_name<'a>(&'a self, asked: &'a Asked, pools: Option<&'a [String]>) -> Answer<'a, NameReport> {
        Box::pin(names::explain(self, asked, pools))
    }

    fn judge<'a>(&'a self, machine: &'a Object, verb: Verb) -> Answer<'a, Judged> {
        Box::pin(async move {
            let estate = self.estate().await?;
            let loaded = estate.machine(&self.store, machine).await?;
            let (now, policy) = (self.store.now().await?, estate.policy(&self.policy));
            let judged = basalt_engine::machine::judge(&loaded.input, &policy, now, verb);
            Ok(judged.map(|()| policy.deadline(DeadlineId::Operation)))
        })
    }

    fn rack_counts(&self) -> racks::meters::Counts {
        self.sessions.meters().read()
    }

    fn rack_links(&self) -> usize {
        self.sessions.connected()
    }

    fn timeline<'a>(&'a self, object: &'a Object) -> Answer<'a, Timeline> {
        Box::pin(self.history(object))
    }

    fn decisions<'a>(
        &'a self,
        kind: &'a str,
        uid: Uid,
        before: Option<i64>,
        replays: bool,
    ) -> Answer<'a, Decisions> {
        Box::pin(decisions::list(self, (kind, uid), before, replays))
    }

    fn counts(&self) -> Counts {
        self.meters.read()
    }
}

fn declared<T: serde::de::DeserializeOwned>(
    object: &Object,
    instead: Option<&Value>,
) -> Result<T, StoreError> {
    match instead {
        Some(value) => serde_json::from_value(value.clone()).map_err(|error| {
            StoreError::Corrupt(format!("the spec of {} {:?}: {error}", object.kind, object.name))
        }),
        None => spec(object),
    }
}

impl Driver {
    async fn report(
        &self,
        estate: &Estate,
        object: &Object,
        supposed: SupposedState<'_>,
    ) -> Result<PlanReport, StoreError> {
        let now = self.store.now().await?;
        match object.kind.as_str() {
            "Machine" => {
                let mut loaded = estate.machine(&self.store, object).await?;
                if supposed.spec.is_some() {
                    loaded.suppose(&self.store, estate, declared(object, supposed.spec)?).await?;
                }
                let policy = estate.policy(&self.policy);
                if let Some(wish) = supposed.asked {
                    let deadline = now.checked_add(policy.deadline(DeadlineId::Operation));
                    operation::suppose(&mut loaded.input, wish, now, deadline.unwrap_or(Timestamp::MAX));
                }
                let planned = plan(&loaded.input, &policy, now);
                let mut report = of_plan(&object.name, &planned);
                report.waits.extend(operation::waits(&loaded.input, &planned));
                report.interrupts = supposed
                    .asked
                    .and_then(|wish| operation::interrupts(&loaded.input, &policy, wish.verb, now));
                Ok(report)
            }
            "Deployment" => {
                let declared: DeploymentSpec = declared(object, supposed.spec)?;
                let choice = supposed.choice.cloned();
                let seen =
                    Box::pin(deployment::look((self, estate), object, declared.clone(), now, choice)).await?;
                let claimed = match (&seen.machine, &seen.planned.action) {
                    (Some((machine, _, planned)), _) => Some((machine.clone(), planned.clone())),
                    (None, DeploymentAction::Claim(machine)) => {
                        deployment::if_claimed((self, estate), object, &declared, *machine, now).await?
                    }
                    (None, _) => None,
                };
                let mut report = PlanReport::default();
                if let Some((machine, planned)) = &claimed {
                    report = of_plan(&object.name, planned);
                    report.machine = machine.name.parse().ok();
                }
                if seen.planned.action == DeploymentAction::Delete {
                    report.summary = format!("{}: it has no machine, and leaves at once", object.name);
                }
                report.waits = seen.planned.waits.iter().map(wait).collect();
                if let Some(wait) = report.waits.first() {
                    report.summary = format!("{}: {}", object.name, wait.message);
                } else if let (None, Some((machine, _))) = (&seen.machine, &claimed) {
                    let why = match &seen.choice {
                        Some(Choice::Chosen { why, .. }) => format!(" ({why})"),
                        _ => String::new(),
                    };
                    report.summary = format!("{}: take {}{why}, then install it", object.name, machine.name);
                }
                Ok(report)
            }
            "Rack" if supposed.spec.is_none() => rack::report(self, object, now).await,
            _ => {
                Ok(PlanReport { summary: format!("{}: nothing to do", object.name), ..PlanReport::default() })
            }
        }
    }

    async fn history(&self, object: &Object) -> Result<Timeline, StoreError> {
        // The events of a deployment are those of its machine.
        let machine = match object.kind.as_str() {
            "Deployment" => {
                self.store.claimed_by(object.uid.into()).await?.map(|(machine, _)| machine.into())
            }
            _ => None,
        };
        let mut entries = Vec::new();
        for uid in [Some(object.uid), machine].into_iter().flatten() {
            let facts = self.store.recent_facts(uid, HISTORY).await?;
            entries.extend(facts.iter().filter(|fact| !repeats(fact)).map(of_fact));
            entries.extend(self.store.steps(uid, HISTORY).await?.iter().map(of_step));
            let operations = self.store.operations(uid.into(), HISTORY).await?;
            entries.extend(operations.iter().flat_map(operation::entries));
        }
        entries.sort_by_key(|entry| entry.at);
        Ok(Timeline { entries })
    }
}

pub(crate) fn of_plan(name: &str, planned: &Plan) -> PlanReport {
    let mut steps: Vec<Step> = Vec::new();
    for next in &planned.next {
        let attempts = next.try_no.saturating_sub(1);
        steps.push(Step { attempts, ..step(next.key.as_str(), next.step, StepState::Next) });
    }
    steps.extend(planned.later.iter().map(|later| step(later.key.as_str(), later.step, StepState::Later)));
    if let (Some(wait), []) = (planned.waits.first(), planned.next.as_slice())
        && let Some(id) = wait.step
    {
        // A step that has not begun is in `later`; a step that was begun is not.
        let known = planned.later.iter().position(|later| later.step == id);
        let (at, waiting) = known.map_or((0, StepState::Running), |at| (at, StepState::Next));
        if known.is_none() {
            steps.insert(0, step(id.name(), id, waiting));
        }
        if let Some(step) = steps.get_mut(at) {
            step.state = if wait.stalled { StepState::Failed } else { waiting };
            step.started_at = (waiting == StepState::Running).then_some(wait.since);
            step.deadline = wait.deadline;
            step.attempts = wait.tries.map_or(u32::from(waiting == StepState::Running), |(n, _)| n);
            step.error = wait.stalled.then(|| wait.message.clone());
        }
    }
    let summary = match (planned.next.first(), planned.waits.first()) {
        (Some(next), _) => next.step.spec().says.to_owned(),
        (None, Some(wait)) => wait.message.clone(),
        (None, None) => "nothing to do".to_owned(),
    };
    PlanReport {
        summary: format!("{name}: {summary}"),
        steps,
        waits: planned.waits.iter().map(wait).collect(),
        digest: Some(planned.digest),
        notes: planned.notes.clone(),
        ..PlanReport::default()
    }
}

fn step(key: &str, id: basalt_engine::steps::StepId, state: StepState) -> Step {
    use basalt_engine::steps::StepId;
    Step {
        key: key.to_owned(),
        message: id.spec().says.to_owned(),
        state,
        destructive: matches!(
            id,
            StepId::ArmInstall | StepId::RunInstall | StepId::ArmErase | StepId::RunErase | StepId::RunScript
        ),
        power: id.spec().effect == EffectKind::Power && id != StepId::ReadPower,
        attempts: 0,
        started_at: None,
        deadline: None,
        error: None,
    }
}

fn wait(wait: &Waited) -> Wait {
    let tries = wait.tries.map(|(n, of)| format!(" (try {} of {of})", n.min(of))).unwrap_or_default();
    Wait {
        cause: wait.code.to_owned(),
        message: format!("{}{tries}", wait.message),
        since: wait.since,
        deadline: wait.deadline,
        human: wait.human.clone(),
        remedy: Some(wait.remedy.clone()).filter(|r| !r.is_empty()),
        rule: wait.step.map(|step| step.name().to_owned()),
    }
}

fn of_step(row: &StepRecord) -> TimelineEntry {
    let record = row.detail.get("record").cloned().unwrap_or_default();
    let record: Option<basalt_engine::facts::StepRecord> = serde_json::from_value(record).ok();
    let says = record.as_ref().map_or("a step", |record| record.step.spec().says);
    let not_yet =
        record.is_some_and(|r| r.step.spec().effect == EffectKind::Power) && row.started_at.is_none();
    let ending: Option<Ending> =
        row.outcome.as_ref().and_then(|outcome| serde_json::from_value(outcome.clone()).ok());
    let mut data = Map::new();
    if let Some(ending) = &ending {
        data.insert("outcome".to_owned(), ending.word().into());
    }
    if let Some(Ending::Failed { message, .. }) = ending {
        data.insert("error".to_owned(), message.into());
    }
    data.insert("epoch".to_owned(), row.epoch.get().into());
    if let Some(attempt) = row.attempt {
        data.insert("attempt".to_owned(), attempt.get().into());
    }
    TimelineEntry {
        at: row.announced_at,
        kind: TimelineKind::Step,
        reason: row.step_key.clone(),
        message: if not_yet { format!("{says} (not handed over)") } else { says.to_owned() },
        source: Some("region".to_owned()),
        took: row.finished_at.map(|end| between(row.announced_at, end)),
        data,
    }
}

/// True if a reading repeats the one before.
fn repeats(fact: &Fact) -> bool {
    let is_repeat = || matches!(Observed::of(fact), Some(Observed::Reading(it)) if it.unchanged);
    observed::is_reading(&fact.kind) && is_repeat()
}

fn of_fact(fact: &Fact) -> TimelineEntry {
    let data: BTreeMap<String, Value> =
        fact.attempt.map(|a| ("attempt".to_owned(), a.get().into())).into_iter().collect();
    TimelineEntry {
        at: at(fact),
        kind: TimelineKind::Fact,
        reason: fact.kind.clone(),
        message: in_words(fact),
        source: Some(fact.source.clone()),
        took: None,
        data: data.into_iter().collect(),
    }
}

fn at(fact: &Fact) -> Timestamp {
    fact.stored_at
}

fn in_words(fact: &Fact) -> String {
    match Observed::of(fact) {
        Some(Observed::Lease(it)) if it.released => format!("gave back {}", it.address),
        Some(Observed::Lease(it)) => format!("leased {}", it.address),
        Some(Observed::BootRequest(it)) => format!("asked {} for {}: {}", it.service, it.what, it.answer),
        Some(Observed::Power(it)) if it.ok => format!("BMC: {}, power is {}", it.verb, it.power),
        Some(Observed::Power(it)) => format!("BMC: {} failed ({}): {}", it.verb, it.error_code, it.message),
        Some(Observed::Reading(it)) if it.error_code.is_empty() => format!("BMC: power is {}", it.power),
        Some(Observed::Reading(it)) => {
            format!("BMC: power is unknown ({}): {}", it.error_code, it.message)
        }
        Some(Observed::Claim(it)) => format!("the agent took its task, from {}", it.address),
        Some(Observed::Progress(it)) => format!("{} % {}: {}", it.percent, it.stage, it.message),
        Some(Observed::BmcAccount(it)) => format!("the agent sets user {:?} on the BMC", &*it.user),
        Some(Observed::Checkpoint(it)) => match it.run {
            Some(run) => {
                let device = run.device.map(|device| format!(" on {device}")).unwrap_or_default();
                format!("script {}{device} may restart the machine, boot {}", run.name, run.boot)
            }
            None if it.leaves => "a script has the machine restarted".to_owned(),
            None => "no script restarts the machine".to_owned(),
        },
        Some(Observed::Result(it)) => match it.outcome {
            basalt_api::agent::Outcome::Succeeded => "the task succeeded".to_owned(),
            basalt_api::agent::Outcome::Superseded { found_attempt } => {
                format!("nothing was written: the disk shows attempt {found_attempt}")
            }
            basalt_api::agent::Outcome::Failed { message, .. } => format!("the task failed: {message}"),
        },
        Some(Observed::Health(it)) if it.service.starts_with(LINK) => {
            let region = it.service.strip_prefix(LINK).unwrap_or_default();
            match it.ok {
                true => format!("is linked to region {region}"),
                false => format!("has no link to region {region}: {}", it.message),
            }
        }
        Some(Observed::Health(it)) if it.ok => format!("{} runs", it.service),
        Some(Observed::Health(it)) => format!("{} does not run: {}", it.service, it.message),
        Some(Observed::Cache(it)) => format!("its image cache holds {} files, {} bytes", it.files, it.bytes),
        Some(Observed::Alarm(it)) => format!("ALARM {}: {}", it.code, it.message),
        Some(Observed::Readiness(it)) if !it.message.is_empty() => {
            format!("the installed system reports {}: {}", it.level, it.message)
        }
        Some(Observed::Readiness(it)) => format!("the installed system reports {}", it.level),
        Some(Observed::Hello(it)) => format!("rack of version {} connected", it.version),
        Some(Observed::DhcpServer(it)) => format!("the DHCP server {} is there: {}", it.address, it.seen),
        Some(Observed::DhcpInForce(it)) => format!("leases from its DHCP blocks number {}", it.delegation),
        Some(Observed::BootTrace(_) | Observed::Stranger(_)) | None => fact.body.to_string(),
    }
}
