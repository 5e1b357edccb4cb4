//! Waiting for an object to become what its spec says.

use super::transport::Call;
use super::{Client, ClientError, path};
use crate::kinds::{Condition, ConditionStatus};
use crate::object::Object;
use crate::schema::Kind;
use crate::values::Generation;
use std::time::{Duration, Instant};

/// Longest time that one request of a wait stays open. Progress is reported at least this often.
const ONE_REQUEST: Duration = Duration::from_secs(5);

/// Shortest time between two requests, in case a region answers at once without a change.
const LEAST_INTERVAL: Duration = Duration::from_millis(500);

/// Extra time for the network, in addition to the time for which a request stays open.
const SLACK: Duration = Duration::from_secs(15);

/// The goal and the limits of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitFor {
    /// Type of the condition that must become true.
    pub condition: String,
    /// The lowest generation for which the condition must be true.
    pub generation: Generation,
    /// Longest duration of the wait.
    pub timeout: Duration,
    /// Continue while no region answers: the machine's work continues as well.
    pub through_outages: bool,
}

impl WaitFor {
    /// Waits until `generation` is Ready.
    #[must_use]
    pub fn ready(generation: Generation, timeout: Duration) -> Self {
        Self { condition: Condition::READY.to_owned(), generation, timeout, through_outages: false }
    }

    /// The same, but the wait continues while no region answers.
    #[must_use]
    pub fn through_outages(self) -> Self {
        Self { through_outages: true, ..self }
    }
}

/// Limits of a wait until an object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitGone {
    /// Longest duration of the wait.
    pub timeout: Duration,
    /// Continue while no region answers: the deletion continues as well.
    pub through_outages: bool,
}

impl WaitGone {
    /// Waits at most this long, and fails if no region answers.
    #[must_use]
    pub fn within(timeout: Duration) -> Self {
        Self { timeout, through_outages: false }
    }

    /// The same, but the wait continues while no region answers.
    #[must_use]
    pub fn through_outages(self) -> Self {
        Self { through_outages: true, ..self }
    }
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The condition is true.
    Met(Box<Object>),
    /// The condition will not become true without help. It says why, and what a person must do.
    Stalled(Box<Object>, Condition),
    /// The time is up. [`Client::waits`] has the remaining waits.
    TimedOut(Box<Object>),
}

impl Client {
    /// Waits until the condition holds, the object is stalled, or the time is up. `observe` sees the object on the
    /// way, at least every five seconds.
    ///
    /// # Errors
    /// `not_found`, also if the object is deleted during the wait, and see [`ClientError`].
    pub async fn wait(
        &self,
        kind: &Kind,
        name: &str,
        wait: &WaitFor,
        mut observe: impl FnMut(&Object),
    ) -> Result<Outcome, ClientError> {
        let began = Instant::now();
        loop {
            let asked = Instant::now();
            let left = wait.timeout.saturating_sub(began.elapsed()).min(ONE_REQUEST);
            let call = Call::get(&path(kind, name, ""))
                .query("wait", &wait.condition)
                .query("generation", &wait.generation.to_string())
                .query("timeout", &format!("{}ms", left.as_millis()))
                .timeout(left + SLACK);
            let object: Object = match self.transport.json(call).await {
                Ok(object) => object,
                Err(error) if wait.through_outages && error.is_outage() && began.elapsed() < wait.timeout => {
                    pause(asked, began, wait.timeout).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            observe(&object);
            match judge(&object, wait) {
                Verdict::Met => return Ok(Outcome::Met(Box::new(object))),
                Verdict::Stalled(condition) => return Ok(Outcome::Stalled(Box::new(object), condition)),
                Verdict::Waiting if began.elapsed() >= wait.timeout => {
                    return Ok(Outcome::TimedOut(Box::new(object)));
                }
                Verdict::Waiting => pause(asked, began, wait.timeout).await,
            }
        }
    }

    /// Waits until the object is gone, its deletion is stalled, or the time is up. `None` when it is gone.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn wait_gone(
        &self,
        kind: &Kind,
        name: &str,
        WaitGone { timeout, through_outages }: WaitGone,
        mut observe: impl FnMut(&Object),
    ) -> Result<Option<Outcome>, ClientError> {
        let began = Instant::now();
        loop {
            let asked = Instant::now();
            let left = timeout.saturating_sub(began.elapsed()).min(ONE_REQUEST);
            let call = Call::get(&path(kind, name, ""))
                .query("wait", "Deleted")
                .query("timeout", &format!("{}ms", left.as_millis()))
                .timeout(left + SLACK);
            let object: Object = match self.transport.json(call).await {
                Ok(object) => object,
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) if through_outages && error.is_outage() && began.elapsed() < timeout => {
                    pause(asked, began, timeout).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            observe(&object);
            let status = object.common_status();
            if let Some(stalled) = holds(status.condition(Condition::STALLED))
                && object.metadata.deletion_requested_at.is_some_and(|asked| stalled.since >= asked)
            {
                return Ok(Some(Outcome::Stalled(Box::new(object), stalled)));
            }
            if began.elapsed() >= timeout {
                return Ok(Some(Outcome::TimedOut(Box::new(object))));
            }
            pause(asked, began, timeout).await;
        }
    }
}

/// Sleeps so that requests have [`LEAST_INTERVAL`] between them, but not beyond the end of the wait.
async fn pause(asked: Instant, began: Instant, timeout: Duration) {
    let rest = LEAST_INTERVAL.saturating_sub(asked.elapsed());
    tokio::time::sleep(rest.min(timeout.saturating_sub(began.elapsed()))).await;
}

enum Verdict {
    Met,
    Stalled(Condition),
    Waiting,
}

fn judge(object: &Object, wait: &WaitFor) -> Verdict {
    let status = object.common_status();
    if status.observed_generation < wait.generation {
        return Verdict::Waiting;
    }
    if holds(status.condition(&wait.condition)).is_some() {
        return Verdict::Met;
    }
    holds(status.condition(Condition::STALLED)).map_or(Verdict::Waiting, Verdict::Stalled)
}

fn holds(condition: Option<&Condition>) -> Option<Condition> {
    condition.filter(|c| c.status == ConditionStatus::True).cloned()
}
