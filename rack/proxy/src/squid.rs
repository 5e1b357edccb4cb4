//! Squid as a child process: finding the program, its account, start, reconfiguration, end.
//!
//! Squid refuses to run as root. If Basalt's program is root, the child gets the account that Squid's package created.
//! `setpriv` (util-linux) drops the program's capabilities for it, and makes the kernel kill it when the program is killed.
//! The kernel also kills a child when the thread that started it ends. So each child has its own thread, which waits
//! for it.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use aws_lc_rs::digest;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use tokio::sync::watch;

/// The paths where packages install the program. An account has no `sbin` in its PATH.
const PROGRAMS: [&str; 2] = ["/usr/sbin/squid", "/usr/bin/squid"];
/// The accounts that packages of Squid create: Debian's, Fedora's.
const ACCOUNTS: [&str; 2] = ["proxy", "squid"];
/// Advice for a host without Squid.
pub const INSTALL: &str = "Squid is not installed: install the package `squid`, and disable its own service, which Basalt does not use";
/// AppArmor's list of profiles and their modes.
const PROFILES: &str = "/sys/kernel/security/apparmor/profiles";
/// How long Squid may take to end.
const END: Duration = Duration::from_secs(5);
/// The size at which a log is rotated, in bytes.
const LOG: u64 = 16 << 20;

/// The program, or the reason why there is none.
///
/// # Errors
/// The package to install, as text.
pub fn program(given: Option<&Path>) -> Result<PathBuf, String> {
    match given {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => {
            Err(format!("{} is not there: install Squid, or name another --proxy-program", path.display()))
        }
        None => {
            PROGRAMS.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or_else(|| INSTALL.to_owned())
        }
    }
}

/// The host's Squid, with its own directory.
#[derive(Debug, Clone)]
pub struct Squid {
    program: PathBuf,
    dir: PathBuf,
    /// The account of the child; `None`: this program's.
    account: Option<(u32, u32)>,
    service: String,
}

impl Squid {
    /// Makes the directory for the account that Squid will run as.
    ///
    /// # Errors
    /// `io::Error`: the directory cannot be made; or this program is root, and there is no account for Squid.
    pub fn prepare(program: PathBuf, dir: &Path) -> io::Result<Self> {
        let account = match geteuid().is_root() {
            true => other_than_root(account()?),
            false => None,
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        if let Some((uid, gid)) = account {
            chown(dir, Some(uid), Some(gid))?;
        }
        let uid = account.map_or(geteuid().as_raw(), |(uid, _)| uid);
        Ok(Self { program, dir: dir.to_owned(), account, service: service(dir, uid) })
    }

    /// The path of the configuration in force.
    fn file(&self) -> PathBuf {
        self.dir.join("squid.conf")
    }

    fn command(&self, file: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--inh-caps=-all", "--ambient-caps=-all"]);
        if let Some((uid, gid)) = self.account {
            command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]);
        }
        command
            .arg("--")
            .arg(&self.program)
            .args(["-n", &self.service, "-N", "-f"])
            .arg(file)
            .args(arguments);
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Installs a configuration, if Squid can read it.
    ///
    /// # Errors
    /// `io::Error`: Squid's message, or the file cannot be written.
    pub fn configure(&self, text: &str) -> io::Result<()> {
        let new = self.dir.join("squid.conf.new");
        fs::write(&new, text)?;
        // Squid's account must read it. It contains no secrets.
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
        run(&mut self.command(&new, &["-k", "parse"]))?;
        fs::rename(new, self.file())
    }

    /// Erases the cache. No Squid may run.
    ///
    /// # Errors
    /// `io::Error`: a directory cannot be removed.
    pub fn drop_cache(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.dir.join("cache")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes the missing directories of the cache.
    ///
    /// # Errors
    /// `io::Error`: Squid's message, or a directory cannot be made.
    pub fn make_cache(&self) -> io::Result<()> {
        run(&mut self.command(&self.file(), &["-z"]))
    }

    /// Starts Squid in the foreground.
    ///
    /// # Errors
    /// `io::Error`: the process or its thread cannot be started.
    pub fn start(&self) -> io::Result<Running> {
        let (tell, ended) = watch::channel(None);
        let (give, process) = std::sync::mpsc::channel();
        let mut command = self.command(&self.file(), &[]);
        command.stderr(Stdio::null());
        std::thread::Builder::new().name("squid".to_owned()).spawn(move || {
            let child =
                command.spawn().map_err(without_setpriv).and_then(|child| Ok((process_of(&child)?, child)));
            match child {
                Err(error) => drop(give.send(Err(error))),
                Ok((process, mut child)) => {
                    give.send(Ok(process)).ok();
                    tell.send_replace(Some(child.wait().ok()));
                }
            }
        })?;
        let process = process.recv().map_err(io::Error::other)??;
        Ok(Running { process, ended })
    }

    /// Rotates logs that have grown too large. True: Squid has to reopen them.
    #[must_use]
    pub fn put_logs_aside(&self) -> bool {
        let aside = |name: &&str| {
            let path = self.dir.join(name);
            let is_large = fs::metadata(&path).is_ok_and(|it| it.len() > LOG);
            is_large && fs::rename(&path, path.with_extension("log.old")).is_ok()
        };
        ["access.log", "cache.log"].iter().filter(|name| aside(name)).count() > 0
    }

    /// The last error in Squid's log, and an AppArmor profile that may be its cause.
    #[must_use]
    pub fn complaint(&self) -> String {
        let log = fs::read(self.dir.join("cache.log")).unwrap_or_default();
        let complaint = complaint(&String::from_utf8_lossy(&log));
        let profiles = fs::read_to_string(PROFILES).unwrap_or_default();
        let is_confined = profiles.lines().any(|line| line.ends_with("squid (enforce)"));
        let confined = is_confined.then(|| {
            format!(
                "; AppArmor confines Squid: add `{}/** rwk,` to /etc/apparmor.d/local/usr.sbin.squid, and reload the profile",
                self.dir.display()
            )
        });
        format!("{complaint}{}", confined.unwrap_or_default())
    }
}

fn process_of(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("no process"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// The name that distinguishes this Squid from others on the host: letters and digits, at most 32. Its shared memory
/// segments have this name. A killed Squid leaves them, and only its account can remove them.
fn service(dir: &Path, uid: u32) -> String {
    let named = format!("{uid} {}", dir.display());
    let hash = hex::encode(digest::digest(&digest::SHA256, named.as_bytes()));
    format!("basalt{}", hash.get(..16).unwrap_or_default())
}

/// The account that a package of Squid made.
fn account() -> io::Result<(u32, u32)> {
    let known = fs::read_to_string("/etc/passwd")?;
    let find = |name: &&str| {
        let line = known.lines().find(|line| line.split(':').next() == Some(*name))?;
        let mut numbers = line.split(':').skip(2).map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    ACCOUNTS.iter().find_map(find).ok_or_else(|| {
        io::Error::other(format!(
            "Squid does not run as root, and this host has no account {}; run Basalt as an account of its own",
            ACCOUNTS.join(" or ")
        ))
    })
}

/// In a container, Squid's account may be the one that this program runs as.
fn other_than_root(account: (u32, u32)) -> Option<(u32, u32)> {
    (account.0 != 0).then_some(account)
}

/// Runs Squid for one task, after which it exits.
fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output().map_err(without_setpriv)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "squid ended with {}: {}",
            output.status,
            complaint(&String::from_utf8_lossy(&output.stderr))
        ))),
    }
}

fn without_setpriv(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("setpriv (package util-linux) cannot be run: {error}"))
}

/// The last line of a log with an error, without its time.
fn complaint(log: &str) -> String {
    let bad = log.lines().rev().find(|line| ["FATAL", "ERROR"].iter().any(|word| line.contains(word)));
    let line = bad.or_else(|| log.lines().last()).unwrap_or("it said nothing");
    line.split_once("| ").map_or(line, |(_, words)| words).to_owned()
}

/// A running Squid. Dropping this ends it.
#[derive(Debug)]
pub struct Running {
    process: OwnedFd,
    ended: watch::Receiver<Option<Option<ExitStatus>>>,
}

impl Running {
    fn signal(&self, signal: Signal) {
        // The process has ended, or it gets the signal.
        pidfd_send_signal(&self.process, signal).ok();
    }

    /// Makes it read its configuration again. Connected clients stay connected.
    pub fn reconfigure(&self) {
        self.signal(Signal::HUP);
    }

    /// Makes it reopen its logs.
    pub fn reopen_logs(&self) {
        self.signal(Signal::USR1);
    }

    /// Waits until it ends.
    pub async fn ended(&mut self) -> String {
        match self.ended.wait_for(Option::is_some).await.ok().and_then(|it| it.flatten()) {
            Some(status) => status.to_string(),
            None => "unknown status".to_owned(),
        }
    }

    /// Waits until it listens at all of these addresses, or ends.
    ///
    /// # Errors
    /// The way it ended, as text.
    pub async fn listens(&mut self, at: &[SocketAddr]) -> Result<(), String> {
        for &at in at {
            loop {
                let connected = tokio::task::spawn_blocking(move || {
                    TcpStream::connect_timeout(&at, Duration::from_secs(1))
                });
                tokio::select! {
                    connected = connected => if matches!(connected, Ok(Ok(_))) { break },
                    status = self.ended() => return Err(status),
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Ends Squid, and waits for that.
    pub async fn stop(mut self) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(END, self.ended()).await.is_err() {
            self.signal(Signal::KILL);
            self.ended().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_the_last_line_that_says_what_is_wrong() {
        let log = "2026/11/26 20:02:53| Starting\n2026/11/26 20:02:53| FATAL: Bungled squid.conf line 3\n2026/11/26 20:02:53| CPU Usage: 0.022\n";
        assert_eq!(complaint(log), "FATAL: Bungled squid.conf line 3");
        assert_eq!(complaint(""), "it said nothing");
    }

    #[test]
    fn each_directory_and_account_has_a_squid_of_another_name() {
        let names = [("/a", 0), ("/a", 13), ("/b", 0)].map(|(dir, uid)| service(Path::new(dir), uid));
        assert!(names[0] != names[1] && names[0] != names[2], "{names:?}");
        assert!(
            names.iter().all(|it| it.len() <= 32 && it.chars().all(|c| c.is_ascii_alphanumeric())),
            "{names:?}"
        );
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let told = program(Some(Path::new("/nowhere/squid"))).unwrap_err();
        assert!(told.contains("/nowhere/squid") && told.contains("install Squid"), "{told}");
    }
}
