//! What was written goes into the state, and is waited for where its kind takes its time.

use std::time::{Duration, Instant};

use basalt_api::client::{Outcome, WaitFor};
use basalt_api::{Effect, Kind, Object, ProblemCode};
use tfplugin::{Change, Cx, Diag, Diags, Operation, Val};

use super::{Beside, KindResource, foresee};
use crate::fresh;
use crate::map::{self, NAME, READY, Revisions, STATUS, UID};
use crate::patience;
use crate::region::Region;

/// How often a wait tells the log how it goes.
const PROGRESS: Duration = Duration::from_secs(30);

impl KindResource {
    /// Takes what was written into state and private, and has it kept from here on.
    pub(super) fn keep(&self, cx: &Cx, planned: &Val, object: &Object, is_ready: bool) -> Val {
        let fresh = map::object(self.kind, object);
        // What was planned is what was stored; the rest is as the region says.
        let mut state = planned.clone();
        for name in [NAME, UID] {
            if state.as_map().is_some_and(|state| state.contains_key(name)) {
                state.set(name, fresh.get(name).clone());
            }
        }
        if state.as_map().is_some_and(|state| state.contains_key(STATUS)) {
            let status = foresee::fill(planned.get(STATUS).clone(), fresh.get(STATUS));
            state.set(STATUS, status);
        }
        if patience::is_awaited(self.kind) {
            state.set(READY, is_ready);
        }
        let beside = Beside {
            generation: Some(object.metadata.generation),
            secrets: Revisions::of(self.kind, &object.spec),
            ..Beside::default()
        };
        beside.write(cx);
        cx.commit(state.clone());
        state
    }

    /// Whether a change is of nothing that machinery acts on, such as the protection of what is to be deleted, and of what is not ready anyway:
    /// nobody waits for that.
    pub(super) fn is_only_told(&self, change: Change<'_>) -> bool {
        let (before, after) = (change.prior, change.planned);
        let changed =
            self.kind.spec.fields.iter().filter(|field| before.get(field.name) != after.get(field.name));
        let effects: Vec<Effect> = changed.map(|field| field.effect).collect();
        before.get(READY) == &Val::Bool(false)
            && !effects.is_empty()
            && effects.iter().all(|effect| *effect == Effect::None)
    }

    /// What Terraform does to what it created with an error, and how to have it otherwise.
    fn if_tainted(&self, operation: Operation) -> String {
        if operation != Operation::Create {
            return String::new();
        }
        format!(
            " Terraform holds it for tainted now: the next apply would replace it, and lose what was done so far. To have that apply go on \
             waiting for it, run `terraform untaint {}.NAME` first.",
            self.kind.terraform_name
        )
    }

    /// Waits until what was written is so, if anybody waits for this kind.
    pub(super) async fn settle(
        &self,
        cx: &Cx,
        region: &Region,
        planned: &Val,
        object: Object,
        operation: Operation,
    ) -> Result<Val, Diags> {
        let Some(timeout) = patience::timeouts(self.kind).of(operation, planned) else {
            return Ok(self.keep(cx, planned, &object, true));
        };
        self.keep(cx, planned, &object, false);
        let name = object.metadata.name.as_str();
        let key = format!("uid:{}", object.metadata.uid);
        let wait = WaitFor::ready(object.metadata.generation, timeout).through_outages();
        let mut log = ProgressLog::new(self.kind, name);
        let waited = tokio::select! {
            waited = region.client.for_waiting().wait(self.kind, &key, &wait, |object| log.see(object)) => waited,
            () = cx.cancelled() => {
                // Not an error: Terraform would replace at the next apply what is being made right now.
                cx.warn(Diag::warning(
                    self.of("It is not ready yet", name),
                    format!("The region goes on with {} {name:?} by itself; the next apply goes on waiting.", self.kind.name),
                ));
                return Ok(self.keep(cx, planned, &object, false));
            }
        };
        let outcome = match waited {
            Ok(outcome) => outcome,
            // No more an error than an interruption: it says nothing of what is being made.
            Err(error) if operation == Operation::Create && error.code() != Some(ProblemCode::NotFound) => {
                let detail = format!(
                    "{} {name:?} is there, and the region goes on with it by itself; but it can no longer be asked how it goes: {error}. \
                     The next apply goes on waiting.",
                    self.kind.name
                );
                cx.warn(Diag::warning(self.of("It is not ready yet", name), detail));
                return Ok(self.keep(cx, planned, &object, false));
            }
            Err(error) => return Err(region.diags(self.kind, name, &error)),
        };
        match outcome {
            Outcome::Met(object) => Ok(self.keep(cx, planned, &object, true)),
            Outcome::Stalled(object, condition) => {
                self.keep(cx, planned, &object, false);
                let detail = format!(
                    "{} {name:?} is stalled: {} ({}). See `basalt explain {} {name}`.{}",
                    self.kind.name,
                    condition.message.trim_end_matches('.'),
                    condition.reason,
                    self.kind.singular(),
                    self.if_tainted(operation)
                );
                Err(Diag::error(self.of("It will not become ready by itself", name), detail).into())
            }
            Outcome::TimedOut(object) => {
                self.keep(cx, planned, &object, false);
                let detail = format!(
                    "{} {name:?} is not ready after {} s: {}. The region goes on by itself. See `basalt explain {} \
                     {name}`; more time can be given in timeouts.{}.{}",
                    self.kind.name,
                    timeout.as_secs(),
                    fresh::reason(&object),
                    self.kind.singular(),
                    operation.as_str(),
                    self.if_tainted(operation)
                );
                Err(Diag::error(self.of("It takes too long", name), detail).into())
            }
        }
    }
}

/// Tells the log how a wait goes.
pub(super) struct ProgressLog<'a> {
    kind: &'static Kind,
    name: &'a str,
    last: Option<Instant>,
}

impl<'a> ProgressLog<'a> {
    pub(super) fn new(kind: &'static Kind, name: &'a str) -> Self {
        Self { kind, name, last: None }
    }

    pub(super) fn see(&mut self, object: &Object) {
        if self.last.is_none_or(|last| last.elapsed() >= PROGRESS) {
            self.last = Some(Instant::now());
            tracing::info!(kind = self.kind.name, name = self.name, state = fresh::reason(object), "waiting");
        }
    }
}
