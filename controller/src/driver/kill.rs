//! Where a region may be killed on purpose: before and after the effect of every step with one.
//!
//! Only debug builds have these points. `BASALT_KILL_AT=STEP/PLACE:FILE` kills the process, as `kill -9` does, the first
//! time it gets there; FILE is made first, and while it is there nothing happens. Crash tests walk the step table.

use basalt_engine::steps::StepId;

/// The places of each step.
pub const PLACES: [&str; 2] = ["recorded", "effected"];

/// Kills the process where a test wants it.
#[derive(Clone, Debug, Default)]
pub struct KillPoints {
    at: Option<(String, std::path::PathBuf)>,
}

impl KillPoints {
    /// From `BASALT_KILL_AT`.
    #[must_use]
    pub fn from_env() -> Self {
        if !cfg!(debug_assertions) {
            return Self::default();
        }
        let set = std::env::var("BASALT_KILL_AT").ok();
        let at =
            set.as_deref().and_then(|set| set.split_once(':')).map(|(at, file)| (at.to_owned(), file.into()));
        Self { at }
    }

    /// Ends the process here, if this is the place.
    pub fn at(&self, step: StepId, place: &str) {
        let Some((at, file)) = &self.at else { return };
        if *at != format!("{}/{place}", step.name()) {
            return;
        }
        // Once: whoever makes the file dies.
        if std::fs::File::create_new(file).is_ok() {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}
