//! What a driver counts: steps and how they ended, time in phases, objects that could not be worked on, lost races.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of a histogram's buckets, in seconds.
pub type Bounds = [f64; 10];

/// Those of steps and phases.
pub const BOUNDS: Bounds = [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];

/// How often something took how long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// By their bounds; the last one has none.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// Seconds, all together.
    pub seconds: f64,
}

impl Histogram {
    pub(crate) fn observe(&mut self, bounds: &Bounds, took: Duration) {
        let seconds = took.as_secs_f64();
        let place = bounds.iter().position(|bound| seconds <= *bound).unwrap_or(bounds.len());
        if let Some(bucket) = self.buckets.get_mut(place) {
            *bucket += 1;
        }
        self.seconds += seconds;
    }
}

/// Everything that was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// How long steps took, by step.
    pub steps: BTreeMap<String, Histogram>,
    /// How steps ended, by step and outcome.
    pub outcomes: BTreeMap<(String, String), u64>,
    /// How long objects were in a phase that they left, by kind and phase.
    pub phases: BTreeMap<(String, String), Histogram>,
    /// Handlings that failed, by kind and cause.
    pub failures: BTreeMap<(String, &'static str), u64>,
    /// Races that were lost, by what about.
    pub conflicts: BTreeMap<&'static str, u64>,
    /// How often a machine was looked at with the expression of a tag.
    pub evaluations: u64,
}

/// Counts. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Meters(Arc<Mutex<Counts>>);

impl Meters {
    fn with(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Everything so far.
    #[must_use]
    pub fn read(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A step ended.
    pub fn step(&self, step: &str, outcome: &str, took: Duration) {
        self.with(|counts| {
            counts.steps.entry(step.to_owned()).or_default().observe(&BOUNDS, took);
            *counts.outcomes.entry((step.to_owned(), outcome.to_owned())).or_default() += 1;
        });
    }

    /// An object left a phase.
    pub fn left(&self, kind: &str, phase: &str, after: Duration) {
        let key = (kind.to_owned(), phase.to_owned());
        self.with(|counts| counts.phases.entry(key).or_default().observe(&BOUNDS, after));
    }

    /// An object could not be worked on.
    pub fn failed(&self, kind: &str, cause: &'static str) {
        self.with(|counts| *counts.failures.entry((kind.to_owned(), cause)).or_default() += 1);
    }

    /// Machines were looked at with expressions of tags.
    pub fn evaluated(&self, times: usize) {
        let times = u64::try_from(times).unwrap_or(u64::MAX);
        self.with(|counts| counts.evaluations = counts.evaluations.saturating_add(times));
    }

    /// Another one was first.
    pub fn conflict(&self, about: &'static str) {
        self.with(|counts| *counts.conflicts.entry(about).or_default() += 1);
    }
}
