//! How a service is, told when it changes.

use std::sync::{Mutex, PoisonError};

use crate::facts::health;
use crate::spool::writer::Facts;

/// One service's health.
#[derive(Debug)]
pub struct Health {
    name: String,
    facts: Facts,
    /// Told last: its problem, if it had one.
    told: Mutex<Option<Option<String>>>,
}

impl Health {
    /// A service that has not been started.
    #[must_use]
    pub fn new(name: String, facts: Facts) -> Self {
        Self { name, facts, told: Mutex::new(None) }
    }

    /// It serves.
    pub fn up(&self) {
        self.tell(None);
    }

    /// It does not.
    pub fn down(&self, problem: &str) {
        if self.tell(Some(problem)) {
            tracing::error!(service = %self.name, problem, "service failed; it is tried again until it works");
        }
    }

    /// Something is not as it should be that no service of this rack can do anything about; it is looked at again by itself.
    pub fn ill(&self, problem: &str) {
        if self.tell(Some(problem)) {
            tracing::warn!(about = %self.name, "{problem}");
        }
    }

    /// It serves, and lacks something that others are to see to.
    pub fn lacks(&self, what: &str) {
        self.tell(Some(what));
    }

    /// Whether this is news.
    fn tell(&self, problem: Option<&str>) -> bool {
        let now = problem.map(str::to_owned);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = told.replace(now.clone()) != Some(now);
        if is_news {
            self.facts.tell(health(&self.name, problem));
        }
        is_news
    }
}
