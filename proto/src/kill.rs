//! Where a region or a rack may be killed on purpose: crash tests walk the step table.
//!
//! Only debug builds have these points. `BASALT_KILL_AT=STEP/PLACE,STEP/PLACE:DIR` kills the process, as `kill -9` does,
//! the first time it gets to each of them: a file `DIR/STEP.PLACE` is made first, and while it is there nothing happens.

/// Kills the process where a test wants it.
#[derive(Clone, Debug, Default)]
pub struct KillPoints {
    at: Vec<String>,
    fired: std::path::PathBuf,
}

impl KillPoints {
    /// From `BASALT_KILL_AT`.
    #[must_use]
    pub fn from_env() -> Self {
        if !cfg!(debug_assertions) {
            return Self::default();
        }
        let set = std::env::var("BASALT_KILL_AT").unwrap_or_default();
        let Some((points, fired)) = set.rsplit_once(':') else { return Self::default() };
        Self { at: points.split(',').map(str::to_owned).collect(), fired: fired.into() }
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Ends the process here, if this is the place.
    pub fn at(&self, step: &str, place: &str) {
        let point = format!("{step}/{place}");
        if !self.at.contains(&point) {
            return;
        }
        // Once: whoever makes the file dies.
        if std::fs::File::create_new(self.fired.join(point.replace('/', "."))).is_ok() {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}
