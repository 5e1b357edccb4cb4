//! The health of a service, reported when it changes.

use std::sync::{Mutex, PoisonError};

use crate::facts::health;
use crate::spool::writer::Facts;

/// The health of one service.
#[derive(Debug)]
pub struct Health {
    name: String,
    facts: Facts,
    /// The last report: the problem, if there was one. The outer `None`: nothing was reported yet.
    told: Mutex<Option<Option<String>>>,
}

impl Health {
    /// A service that has not been started.
    #[must_use]
    pub fn new(name: String, facts: Facts) -> Self {
        Self { name, facts, told: Mutex::new(None) }
    }

    /// Reports that the service works.
    pub fn up(&self) {
        self.tell(None);
    }

    /// Reports that the service has failed and will be started again.
    pub fn down(&self, problem: &str) {
        if self.tell(Some(problem)) {
            tracing::error!(service = %self.name, problem, "service failed; it is tried again until it works");
        }
    }

    /// Reports a fault outside the rack's services. It is checked again automatically.
    pub fn ill(&self, problem: &str) {
        if self.tell(Some(problem)) {
            tracing::warn!(about = %self.name, "{problem}");
        }
    }

    /// Reports that the service works, but lacks something that an operator must provide.
    pub fn lacks(&self, what: &str) {
        self.tell(Some(what));
    }

    /// True if the report differs from the last one.
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
