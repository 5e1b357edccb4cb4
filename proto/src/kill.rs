//! Points at which a test may kill a region or a rack: crash tests walk through the step table.
//!
//! Only debug builds have these points. `BASALT_KILL_AT=STEP/PLACE,STEP/PLACE:DIR` kills the process, as `kill -9`
//! does, the first time that it reaches each of the points. Before that it creates the file `DIR/STEP.PLACE`; if the
//! file exists, the process goes on.

/// Kills the process at the points that a test chose.
#[derive(Clone, Debug, Default)]
pub struct KillPoints {
    at: Vec<String>,
    fired: std::path::PathBuf,
}

impl KillPoints {
    /// Reads the points from `BASALT_KILL_AT`.
    #[must_use]
    pub fn from_env() -> Self {
        if !cfg!(debug_assertions) {
            return Self::default();
        }
        let set = std::env::var("BASALT_KILL_AT").unwrap_or_default();
        let Some((points, fired)) = set.rsplit_once(':') else { return Self::default() };
        Self { at: points.split(',').map(str::to_owned).collect(), fired: fired.into() }
    }

    /// True if there are no points.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Kills the process if a test chose this point.
    pub fn at(&self, step: &str, place: &str) {
        let point = format!("{step}/{place}");
        if !self.at.contains(&point) {
            return;
        }
        // Only once: the process that creates the file is killed.
        if std::fs::File::create_new(self.fired.join(point.replace('/', "."))).is_ok() {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}
