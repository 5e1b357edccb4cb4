//! The server's first process: spawned by this process, or found running.

use super::{
    Account, Binaries, ClusterError, ClusterOptions, account, data_dir, file_error, log_file, run_dir,
};
use rustix::process::{Pid, Signal};
use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// A postmaster that was running at the last check.
#[derive(Debug)]
pub(crate) struct Postmaster {
    data: PathBuf,
    pid: Pid,
    /// `None` when it was adopted.
    child: Option<tokio::process::Child>,
}

impl Postmaster {
    /// The postmaster of postmaster.pid, if it lives and works in this data directory.
    pub(crate) fn adopt(data: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let pid = Pid::from_raw(text.lines().next()?.trim().parse().ok()?)?;
        let this = Self { data: data.canonicalize().ok()?, pid, child: None };
        this.is_ours().then_some(this)
    }

    pub(crate) fn spawn(
        binaries: &Binaries,
        options: &ClusterOptions,
        account: Option<&Account>,
    ) -> Result<Self, ClusterError> {
        let (data, log) = (data_dir(&options.dir), log_file(&options.dir));
        let output = private_log(&log).map_err(file_error(&log))?;
        let errors = output.try_clone().map_err(file_error(&log))?;
        let mut command = tokio::process::Command::new(binaries.postgres());
        command.arg("-D").arg(&data).current_dir("/");
        let run = run_dir(&options.dir);
        let setting = |name: &str, value: &str| format!("{name}={value}");
        command.arg("-c").arg(setting("listen_addresses", ""));
        command.arg("-c").arg(setting("unix_socket_directories", &run.to_string_lossy()));
        command.arg("-c").arg(setting("unix_socket_permissions", "0700"));
        for (name, value) in &options.settings {
            command.arg("-c").arg(setting(name, value));
        }
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        account::run_as(&mut command, account);
        let child = command.spawn().map_err(file_error(&binaries.postgres()))?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let gone = || std::io::Error::other("ended at once");
        let pid = pid.ok_or_else(|| file_error(&binaries.postgres())(gone()))?;
        Ok(Self { data: data.canonicalize().map_err(file_error(&data))?, pid, child: Some(child) })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub(crate) fn alive(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => self.is_ours(),
        }
    }

    /// A postmaster's working directory is its data directory. A later process with the same id has another one.
    fn is_ours(&self) -> bool {
        std::fs::read_link(format!("/proc/{}/cwd", self.pid())).is_ok_and(|cwd| cwd == self.data)
    }

    /// Fast shutdown: sessions are ended, a checkpoint is written. After `patience`, an immediate one.
    pub(crate) async fn stop(&mut self, patience: Duration) {
        for (signal, patience) in [(Signal::INT, patience), (Signal::QUIT, Duration::from_secs(10))] {
            if !self.alive() {
                return;
            }
            if let Err(error) = rustix::process::kill_process(self.pid, signal) {
                tracing::debug!(%error, pid = self.pid(), "PostgreSQL took no signal");
            }
            let deadline = tokio::time::Instant::now() + patience;
            while self.alive() && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// PostgreSQL's log, for its owner alone: an error quotes the statement, and statements carry users' data.
fn private_log(path: &Path) -> std::io::Result<File> {
    let log = File::options().create(true).append(true).mode(0o600).open(path)?;
    log.set_permissions(Permissions::from_mode(0o600))?;
    Ok(log)
}
