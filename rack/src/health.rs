//! How a service is, told when it changes.

use std::sync::{Mutex, PoisonError};

use crate::facts::health;
use crate::spool::writer::Facts;

/// One service's health.
#[derive(Debug)]
pub struct Health {
    name: String,
    facts: Facts,
    up: Mutex<Option<bool>>,
}

impl Health {
    /// A service that has not been started.
    #[must_use]
    pub fn new(name: String, facts: Facts) -> Self {
        Self { name, facts, up: Mutex::new(None) }
    }

    /// It serves.
    pub fn up(&self) {
        if self.change(true) {
            self.facts.tell(health(&self.name, None));
        }
    }

    /// It does not.
    pub fn down(&self, problem: &str) {
        if self.change(false) {
            tracing::error!(service = %self.name, problem, "service failed; it is tried again until it works");
            self.facts.tell(health(&self.name, Some(problem)));
        }
    }

    fn change(&self, to: bool) -> bool {
        self.up.lock().unwrap_or_else(PoisonError::into_inner).replace(to) != Some(to)
    }
}
