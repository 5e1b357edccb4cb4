//! One power cycle: a thread that runs while there is power, and checks the power before each action.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::chassis::{Chassis, Power};
use crate::event::{Event, ScriptKind};
use crate::fault::{Fault, Stage};
use crate::options::MachineOptions;
use crate::{cable, firmware};

/// Interval at which a waiting thread checks the power.
pub(crate) const BLINK: Duration = Duration::from_millis(20);

/// Reasons why a machine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its power was cut.
    PowerLost,
    /// It resets itself.
    Reset,
    /// It switches itself off.
    PowerOff,
    /// It hangs until its power is cut.
    Hang,
}

/// One power cycle of a machine.
#[derive(Debug)]
pub(crate) struct Life {
    chassis: Arc<Chassis>,
    cycle: u64,
    namespace: String,
}

impl Life {
    /// Starts the thread of a power cycle.
    pub(crate) fn begin(chassis: Arc<Chassis>, cycle: u64) {
        std::thread::spawn(move || {
            let refused = |why: String| chassis.log.push(Event::Refused { why });
            let cable =
                match cable::Cable::connect(&chassis.lab, &chassis.options.bridge, chassis.options.mac) {
                    Ok(cable) => cable,
                    Err(error) => {
                        return refused(format!(
                            "the network of {} cannot be made: {error}",
                            chassis.options.name
                        ));
                    }
                };
            if let Err(error) = cable.enter() {
                return refused(format!(
                    "the network of {} cannot be entered: {error}",
                    chassis.options.name
                ));
            }
            let life = Self { chassis: Arc::clone(&chassis), cycle, namespace: cable.namespace().to_owned() };
            // A power cut takes the cable out of `Power`. If the power was cut before this point, the cable is dropped
            // with this thread.
            if life.act(|power| power.cable = Some(cable)).is_ok() {
                life.run();
            }
        });
    }

    /// Runs `work` in a second thread of the present power cycle. Does nothing without power.
    pub(crate) fn beside(
        chassis: &Arc<Chassis>,
        work: impl FnOnce(&Self) -> Result<(), Stop> + Send + 'static,
    ) {
        let power = chassis.power.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(namespace) = power.cable.as_ref().map(|cable| cable.namespace().to_owned()) else { return };
        let life = Self { chassis: Arc::clone(chassis), cycle: power.cycle, namespace };
        std::thread::spawn(move || {
            // An error needs no handling: the log already contains the events.
            let _stopped = work(&life);
        });
    }

    fn run(&self) {
        loop {
            match firmware::boot(self) {
                Err(Stop::Reset) => {
                    if self.event(Event::Reset).and_then(|()| self.linger()).is_err() {
                        return;
                    }
                }
                Err(Stop::PowerOff) => {
                    let _was_cut_already = self.act(|power| power.cut(&self.chassis.log));
                    return;
                }
                // The machine stays on, but idle.
                Ok(()) | Err(Stop::Hang | Stop::PowerLost) => return,
            }
        }
    }

    /// Does work that a power cut must not interrupt: the cut waits for its end.
    pub(crate) fn act<T>(&self, work: impl FnOnce(&mut Power) -> T) -> Result<T, Stop> {
        let mut power: MutexGuard<'_, Power> =
            self.chassis.power.lock().unwrap_or_else(PoisonError::into_inner);
        if power.on && power.cycle == self.cycle { Ok(work(&mut power)) } else { Err(Stop::PowerLost) }
    }

    /// An error if the power is gone.
    pub(crate) fn check(&self) -> Result<(), Stop> {
        self.act(|_| ())
    }

    pub(crate) fn event(&self, event: Event) -> Result<(), Stop> {
        self.act(|_| self.chassis.log.push(event))
    }

    /// Logs that a request was refused or not answered.
    pub(crate) fn refused(&self, why: impl std::fmt::Display) -> Result<(), Stop> {
        self.event(Event::Refused { why: why.to_string() })
    }

    /// Logs the end of a script.
    pub(crate) fn script(&self, kind: ScriptKind) -> Result<(), Stop> {
        self.event(Event::Script { kind })
    }

    /// The fault that fires here, if one does.
    pub(crate) fn fault(&self, which: impl Fn(Fault) -> bool) -> Result<Option<Fault>, Stop> {
        self.check()?;
        let fault = self.chassis.faults.fire(which);
        if let Some(fault) = fault {
            self.event(Event::Faulted { fault })?;
        }
        Ok(fault)
    }

    /// Enters a stage.
    pub(crate) fn stage(&self, attempt: u64, stage: Stage) -> Result<(), Stop> {
        self.event(Event::Stage { attempt, stage })?;
        self.suffer(stage)
    }

    /// Fires the faults of a stage.
    pub(crate) fn suffer(&self, stage: Stage) -> Result<(), Stop> {
        if let Some(Fault::Slow(by)) = self.fault(|fault| matches!(fault, Fault::Slow(_)))? {
            self.pause(by)?;
        }
        if let Some(held) = self.fault(|fault| fault == Fault::HeldAt(stage))? {
            while self.chassis.faults.is_set(held) {
                self.pause(BLINK)?;
            }
        }
        match self.fault(|fault| matches!(fault, Fault::DiesAt(at) | Fault::HangsAt(at) if at == stage))? {
            Some(Fault::DiesAt(_)) => Err(Stop::Reset),
            Some(_) => Err(Stop::Hang),
            None => Ok(()),
        }
    }

    /// A shortened pause for slow hardware.
    pub(crate) fn linger(&self) -> Result<(), Stop> {
        self.pause(self.options().pause)
    }

    /// Waits, as long as there is power.
    pub(crate) fn pause(&self, time: Duration) -> Result<(), Stop> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(BLINK));
        }
    }

    pub(crate) fn options(&self) -> &MachineOptions {
        &self.chassis.options
    }

    pub(crate) fn chassis(&self) -> &Chassis {
        &self.chassis
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }
}
