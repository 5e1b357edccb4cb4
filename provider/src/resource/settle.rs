//! Stores the written object in the state, and waits until it is ready if its kind takes time.

use std::time::{Duration, Instant};

use basalt_api::client::{Outcome, WaitFor};
use basalt_api::kinds::Condition;
use basalt_api::{Effect, Kind, Object};
use tfplugin::{Change, Cx, Diag, Diags, Operation, Val};

use super::{Beside, KindResource, foresee};
use crate::config::OnNotReady;
use crate::fresh;
use crate::map::{self, NAME, READY, Revisions, STATUS, UID};
use crate::patience;
use crate::region::Region;

/// Interval of log lines about the progress of a wait.
const PROGRESS: Duration = Duration::from_secs(30);

/// The kinds that `basalt explain` supports.
const EXPLAINED: &[&str] = &["Machine", "Deployment", "Rack"];

impl KindResource {
    /// Stores the written object in the state and the private data, and commits them.
    pub(super) fn keep(&self, cx: &Cx, planned: &Val, object: &Object, is_ready: bool) -> Val {
        let fresh = map::object(self.kind, object);
        // The stored spec equals the plan; the other values come from the region.
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

    /// True if the object is not ready anyway and the change has no effect on its machine, such as protection from deletion. The apply then
    /// does not wait.
    pub(super) fn is_only_told(&self, change: Change<'_>) -> bool {
        let (before, after) = (change.prior, change.planned);
        let changed =
            self.kind.spec.fields.iter().filter(|field| before.get(field.name) != after.get(field.name));
        let effects: Vec<Effect> = changed.map(|field| field.effect).collect();
        before.get(READY) == &Val::Bool(false)
            && !effects.is_empty()
            && effects.iter().all(|effect| *effect == Effect::None)
    }

    /// Ends a wait for an object that is stored and not ready: with a warning, or with the error that the provider's block asks for.
    ///
    /// Terraform taints a created object if its creation ends with an error. Its next apply would replace the object, and undo the region's
    /// work.
    fn not_ready(
        &self,
        cx: &Cx,
        planned: &Val,
        object: &Object,
        operation: Operation,
        (title, why): (&str, String),
    ) -> Result<Val, Diags> {
        let state = self.keep(cx, planned, object, false);
        let title = self.of(title, object.metadata.name.as_str());
        match (self.session.on_not_ready(), operation) {
            (OnNotReady::Warning, _) => {
                let detail = format!(
                    "{why} The next apply goes on waiting. To have an apply fail for it, declare a `basalt_wait`."
                );
                cx.warn(Diag::warning(title, detail));
                Ok(state)
            }
            (OnNotReady::Error, Operation::Create) => {
                let detail = format!(
                    "{why} It is an error because on_not_ready says so, and Terraform taints the resource: the next apply would replace it, and \
                     lose what was done so far. To have that apply go on waiting for it, run `terraform untaint {}.NAME` first.",
                    self.kind.terraform_name
                );
                Err(Diag::error(title, detail).into())
            }
            (OnNotReady::Error, _) => {
                Err(Diag::error(title, format!("{why} The next apply goes on waiting.")).into())
            }
        }
    }

    /// Waits until the written object is ready, if its kind takes time.
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
                // Never an error: Terraform reports the interruption itself, and after an error its next apply would replace an object that
                // is still being built.
                cx.warn(Diag::warning(
                    self.of("It is not ready yet", name),
                    format!("The region goes on with {} {name:?} by itself; the next apply goes on waiting.", self.kind.name),
                ));
                return Ok(self.keep(cx, planned, &object, false));
            }
        };
        let why = match waited {
            Ok(Outcome::Met(object)) => return Ok(self.keep(cx, planned, &object, true)),
            Ok(Outcome::Stalled(now, condition)) => {
                let why = ("It will not become ready by itself", is_stalled(self.kind, name, &condition));
                return self.not_ready(cx, planned, &now, operation, why);
            }
            Ok(Outcome::TimedOut(now)) => {
                let late = is_late(&now, self.kind, "ready", timeout);
                let why = format!("{late} More time can be given in timeouts.{}.", operation.as_str());
                return self.not_ready(cx, planned, &now, operation, ("It takes too long", why));
            }
            Err(error) if error.is_not_found() => format!(
                "{} {name:?} was stored. It is no longer there, or this token may no longer see it.",
                self.kind.name
            ),
            Err(error) => format!(
                "{} {name:?} is there, and the region goes on with it by itself; but it can no longer be asked how it goes: {error}.",
                self.kind.name
            ),
        };
        self.not_ready(cx, planned, &object, operation, ("It is not ready yet", why))
    }
}

/// A sentence about an object that needs a person to continue.
pub(crate) fn is_stalled(kind: &Kind, name: &str, condition: &Condition) -> String {
    format!(
        "{} {name:?} is stalled: {} ({}). {}",
        kind.name,
        condition.message.trim_end_matches('.'),
        condition.reason,
        more(kind, name)
    )
}

/// A sentence about an object that did not become ready in time.
pub(crate) fn is_late(object: &Object, kind: &Kind, wanted: &str, after: Duration) -> String {
    let name = object.metadata.name.as_str();
    format!(
        "{} {name:?} is not {wanted} after {} s: {}. The region goes on by itself. {}",
        kind.name,
        after.as_secs(),
        fresh::reason(object),
        more(kind, name)
    )
}

/// The command that shows more about an object.
fn more(kind: &Kind, name: &str) -> String {
    let verb = if EXPLAINED.contains(&kind.name) { "explain" } else { "get" };
    format!("See `basalt {verb} {} {name}`.", kind.singular())
}

/// Logs the progress of a wait.
pub(crate) struct ProgressLog<'a> {
    kind: &'static Kind,
    name: &'a str,
    last: Option<Instant>,
}

impl<'a> ProgressLog<'a> {
    pub(crate) fn new(kind: &'static Kind, name: &'a str) -> Self {
        Self { kind, name, last: None }
    }

    pub(crate) fn see(&mut self, object: &Object) {
        if self.last.is_none_or(|last| last.elapsed() >= PROGRESS) {
            self.last = Some(Instant::now());
            tracing::info!(kind = self.kind.name, name = self.name, state = fresh::reason(object), "waiting");
        }
    }
}
