//! The counters of a driver: steps and their results, time in phases, failed handlings, lost races.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of a histogram's buckets, in seconds.
pub type Bounds = [f64; 10];

/// The bounds for steps and phases.
pub const BOUNDS: Bounds = [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];

/// Counts of durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// In the order of the bounds; the last one has no bound.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// The sum of all durations, in seconds.
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

/// All counters of a driver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// The durations of steps, by step.
    pub steps: BTreeMap<String, Histogram>,
    /// The results of steps, by step and outcome.
    pub outcomes: BTreeMap<(String, String), u64>,
    /// The times that objects spent in a phase, by kind and phase.
    pub phases: BTreeMap<(String, String), Histogram>,
    /// Handlings that failed, by kind and cause.
    pub failures: BTreeMap<(String, &'static str), u64>,
    /// Lost races, by their subject.
    pub conflicts: BTreeMap<&'static str, u64>,
    /// The number of evaluations of a machine with a tag's expression.
    pub evaluations: u64,
}

/// The meters of a driver. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Meters(Arc<Mutex<Counts>>);

impl Meters {
    fn with(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// All counters so far.
    #[must_use]
    pub fn read(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a step that ended.
    pub fn step(&self, step: &str, outcome: &str, took: Duration) {
        self.with(|counts| {
            counts.steps.entry(step.to_owned()).or_default().observe(&BOUNDS, took);
            *counts.outcomes.entry((step.to_owned(), outcome.to_owned())).or_default() += 1;
        });
    }

    /// Counts an object that left a phase.
    pub fn left(&self, kind: &str, phase: &str, after: Duration) {
        let key = (kind.to_owned(), phase.to_owned());
        self.with(|counts| counts.phases.entry(key).or_default().observe(&BOUNDS, after));
    }

    /// Counts a failed handling of an object.
    pub fn failed(&self, kind: &str, cause: &'static str) {
        self.with(|counts| *counts.failures.entry((kind.to_owned(), cause)).or_default() += 1);
    }

    /// Counts evaluations of machines with tags' expressions.
    pub fn evaluated(&self, times: usize) {
        let times = u64::try_from(times).unwrap_or(u64::MAX);
        self.with(|counts| counts.evaluations = counts.evaluations.saturating_add(times));
    }

    /// Counts a lost race.
    pub fn conflict(&self, about: &'static str) {
        self.with(|counts| *counts.conflicts.entry(about).or_default() += 1);
    }
}
