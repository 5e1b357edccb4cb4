//! Reads the power of the rack's BMCs as [`schedule`](super::schedule) plans it, and reports changes.
//!
//! Commands have priority. No reading begins while a command waits for the BMC. A running reading is cancelled when a command has waited for
//! [`Pace::grace`](super::Pace): most readings end within that time, so that their answers are not lost.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use basalt_proto::rack_v1::{PowerReading, fact::Body};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::schedule::{Look, Schedule};
use super::{Ask, Ended, Power, key};
use crate::facts::About;

/// How long the loop sleeps if nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

impl Power {
    /// Reads power until the rack stops.
    pub async fn read(self: Arc<Self>, stop: CancellationToken) {
        let mut concern = self.concern.clone();
        let places = Arc::new(Semaphore::new(self.pace.at_once));
        let mut running = JoinSet::new();
        concern.mark_changed();
        loop {
            if concern.has_changed().unwrap_or(true) {
                let told = concern.borrow_and_update().clone().unwrap_or_default();
                self.schedule(|it| it.follow(&told, Instant::now()));
            }
            while let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                let Some(look) = self.schedule(|it| it.next(Instant::now())) else { break };
                let power = Arc::clone(&self);
                running.spawn(async move {
                    power.look(look).await;
                    drop(place);
                });
            }
            let due = if places.available_permits() > 0 { self.schedule(|it| it.due()) } else { None };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = concern.changed() => match changed {
                    Ok(()) => concern.mark_changed(),
                    Err(_) => return,
                },
                () = self.planned.notified() => {}
                _ = running.join_next(), if !running.is_empty() => {}
                () = tokio::time::sleep_until(due.unwrap_or_else(|| Instant::now() + IDLE)) => {}
            }
        }
    }

    pub(super) fn schedule<T>(&self, with: impl FnOnce(&mut Schedule) -> T) -> T {
        with(&mut self.schedule.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads one BMC. The fact is stored before a command may begin, so that facts have the order of the events.
    async fn look(&self, look: Look) {
        let arbiter = self.arbiter(&key(&look.bmc));
        let began = Instant::now();
        let alone = arbiter.free();
        let ended = match &alone {
            None => None,
            Some(_) => tokio::select! {
                ended = tokio::time::timeout(self.pace.look, self.drive(&look.bmc, Ask::Reading)) => {
                    Some(ended.unwrap_or_else(|_| {
                        let seconds = self.pace.look.as_secs();
                        Ended::error("unreachable", format!("the power was not read within {seconds} s"))
                    }))
                }
                () = arbiter.wanted(self.pace.grace) => None,
            },
        };
        let code = ended.as_ref().map_or("gave_way", |it| it.error.as_ref().map_or("ok", |(code, _)| code));
        self.facts.meters().power_read(code, began.elapsed());
        let told = self.schedule(|it| it.done(&look, ended.as_ref(), Instant::now()));
        if let (Some(unchanged), Some(ended)) = (told, ended) {
            self.tell_reading(&look, ended, unchanged).await;
        }
        drop(alone);
    }

    async fn tell_reading(&self, look: &Look, ended: Ended, unchanged: bool) {
        let machine = &look.bmc.machine_uid;
        let (power, (error_code, message)) = match ended.error {
            None => (ended.power, ("", String::new())),
            Some(error) => ("", error),
        };
        if unchanged {
            tracing::debug!(machine, power, error_code, "the power of a machine is as before");
        } else if error_code.is_empty() {
            tracing::info!(machine, power, "the power of a machine was read");
        } else {
            tracing::warn!(machine, error_code, message, "the power of a machine cannot be read");
        }
        let about = About { machine_uid: machine.clone(), ..About::default() };
        let fact = about.saw(Body::Reading(PowerReading {
            power: power.to_owned(),
            error_code: error_code.to_owned(),
            message,
            certificate: ended.certificate,
            unchanged,
        }));
        if let Err(error) = self.facts.record(fact).await {
            tracing::error!(machine, %error, "a power reading is lost; it is told again within an hour");
        }
    }
}

#[cfg(test)]
mod tests;
