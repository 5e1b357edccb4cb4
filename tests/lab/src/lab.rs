//! A lab: created, used, and removed without a trace.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use basalt_bmc::{BmcClient, BmcConfig};
use tokio::sync::oneshot;

use crate::error::LabError;
use crate::machine::{Firmware, Machine, MachineConfig};
use crate::name::LabName;
use crate::network::Namespace;
use crate::process::{self, LabProcess, Owner, run, supervised};
use crate::program::BmcProgramConfig;
use crate::qemu;

/// Interval of reads of a serial log.
const SERIAL_INTERVAL: Duration = Duration::from_millis(50);

/// Directory of the labs' files: `BASALT_LAB_DIR`, or `/var/tmp/basalt-lab` (disks are too big for a tmpfs).
pub(crate) fn root() -> PathBuf {
    std::env::var_os("BASALT_LAB_DIR").map_or_else(|| PathBuf::from("/var/tmp/basalt-lab"), PathBuf::from)
}

/// A network namespace with machines. Dropping it removes it, with everything that runs inside.
///
/// Set `BASALT_LAB_KEEP=1` to keep its files (never its processes or its namespace) for a look at the logs.
#[derive(Debug)]
pub struct Lab {
    name: LabName,
    namespace: Namespace,
    directory: PathBuf,
    /// The configurations of all machines so far; the n-th machine uses tap n.
    machines: Vec<MachineConfig>,
}

impl Lab {
    /// Makes a lab called `label` (a-z, 0-9, hyphens): its namespace, its bridge `br0` with 10.77.0.1/24, its directory. First
    /// removes the labs of killed owners. Blocks for some tens of milliseconds.
    ///
    /// # Errors
    /// [`LabError`]: a bad or taken name, no root, no `ip`.
    pub fn create(label: &str) -> Result<Self, LabError> {
        let name = LabName::new(label, Owner::current()?)?;
        sweep()?;
        let root = root();
        std::fs::create_dir_all(&root).map_err(LabError::file(&root))?;
        let directory = root.join(name.to_string());
        match std::fs::create_dir(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(LabError::NameTaken(label.to_owned()));
            }
            result => result.map_err(LabError::file(&directory))?,
        }
        // From here on, an error drops the lab and so removes its parts.
        let lab = Self { namespace: Namespace(name.to_string()), name, directory, machines: Vec::new() };
        lab.namespace.create()?;
        Ok(lab)
    }

    pub(crate) fn name(&self) -> &LabName {
        &self.name
    }

    /// Its namespace's name, for `ip netns exec`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace.0
    }

    /// A directory that is removed with the lab.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Adds a bridge without a connection to the others, and without addresses.
    ///
    /// # Errors
    /// [`LabError`]: there is one of this name.
    pub fn add_bridge(&self, name: &str) -> Result<(), LabError> {
        let number = name.bytes().fold(0u8, u8::wrapping_add);
        self.namespace.add_bridge(name, &format!("52:54:00:77:01:{number:02x}"))
    }

    /// Adds a route to a network through a router, for processes inside the lab.
    ///
    /// # Errors
    /// [`LabError`]: the router is on no network of the lab's own.
    pub fn add_route(&self, network: &str, router: Ipv4Addr) -> Result<(), LabError> {
        self.namespace.add_route(network, router)
    }

    /// A command that will run inside the lab and end with this process. The caller adds arguments, environment, and output.
    ///
    /// # Errors
    /// [`LabError::NoProgram`].
    pub fn command(&self, program: impl AsRef<OsStr>) -> Result<Command, LabError> {
        let enter = ["ip", "netns", "exec", &self.namespace.0].map(OsStr::new);
        supervised(enter.into_iter().chain([program.as_ref()]))
    }

    /// Starts a command made by [`Lab::command`]. Dropping the handle kills it and its children. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`LabError::Start`].
    pub fn spawn(&self, command: Command) -> Result<LabProcess, LabError> {
        LabProcess::start(command)
    }

    /// Runs `work` on a thread inside the lab's network. Sockets it makes stay there, and threads it starts, too.
    pub fn inside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<Result<T, LabError>> {
        Inside(self.namespace.clone()).thread(work)
    }

    /// Runs a future inside the lab's network, on a runtime of its own.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub async fn run_inside<T, F, Fut>(&self, make: F) -> Result<T, LabError>
    where
        T: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T>,
    {
        Inside(self.namespace.clone()).run(make).await
    }

    /// A future that can be spawned and runs another one inside the lab's network, on a thread and runtime of its own.
    pub fn enter<T, F, Fut>(
        &self,
        make: F,
    ) -> impl Future<Output = Result<T, LabError>> + Send + use<T, F, Fut>
    where
        T: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T>,
    {
        let inside = Inside(self.namespace.clone());
        async move { inside.run(make).await }
    }

    /// Adds a machine, powered off, its disk all zero; returns when its BMC answers.
    ///
    /// # Errors
    /// [`LabError`]: a bad configuration, missing packages, a BMC that does not come up.
    pub async fn add_machine(&mut self, config: MachineConfig) -> Result<Machine, LabError> {
        config.check()?;
        self.check_unique(&config)?;
        let credentials = config.credentials().map_err(|error| LabError::BadMachine {
            machine: config.name.clone(),
            problem: error.to_string(),
        })?;
        let directory = self.directory.join(&config.name);
        std::fs::create_dir(&directory).map_err(LabError::file(&directory))?;
        self.machines.push(config.clone());
        let tap = format!("tap{}", self.machines.len());
        self.namespace.add_tap(&tap)?;
        self.namespace.add_address(config.bmc_address)?;
        let disk = directory.join("disk.qcow2");
        let size = config.disk_bytes.to_string();
        let create = ["create", "-q", "-f", "qcow2"].map(OsStr::new);
        run("qemu-img", &[&create[..], &[disk.as_os_str(), OsStr::new(&size)]].concat())?;
        if config.firmware == Firmware::Uefi {
            std::fs::copy(qemu::OVMF_VARS, directory.join("vars.fd"))
                .map_err(LabError::file(qemu::OVMF_VARS))?;
        }
        let program = BmcProgramConfig { machine: config.clone(), directory: directory.clone(), tap };
        let program_file = directory.join("bmc.json");
        program.save(&program_file)?;
        let mut machine = Machine {
            bmc: BmcConfig::new(config.bmc_socket(), credentials),
            inside: Inside(self.namespace.clone()),
            _program: self.start_bmc(&program_file, &directory.join("bmc.log"))?,
            config,
            directory,
        };
        self.await_bmc(&mut machine).await?;
        Ok(machine)
    }

    fn check_unique(&self, config: &MachineConfig) -> Result<(), LabError> {
        let clash = self.machines.iter().find_map(|other| {
            let what = if other.name == config.name {
                "name".to_owned()
            } else if other.mac == config.mac {
                format!("MAC address {}", config.mac)
            } else if other.bmc_address == config.bmc_address {
                format!("BMC address {}", config.bmc_address)
            } else {
                return None;
            };
            Some(format!("machine {:?} of this lab has the same {what}; give it another", other.name))
        });
        clash.map_or(Ok(()), |problem| Err(LabError::BadMachine { machine: config.name.clone(), problem }))
    }

    fn start_bmc(&self, config: &Path, log: &Path) -> Result<LabProcess, LabError> {
        let output = std::fs::File::create(log).map_err(LabError::file(log))?;
        let errors = output.try_clone().map_err(LabError::file(log))?;
        let mut command = self.command(process::lab_program()?)?;
        command
            .arg("bmc")
            .arg("--config")
            .arg(config)
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(errors));
        self.spawn(command)
    }

    async fn await_bmc(&self, machine: &mut Machine) -> Result<(), LabError> {
        let mut eager = machine.bmc.clone();
        eager.timing.retransmit = Duration::from_millis(20);
        eager.timing.retransmit_max = Duration::from_millis(100);
        let client = BmcClient::new(eager);
        let answer = self.run_inside(move || async move { client.power_status().await }).await?;
        answer.map(drop).map_err(|error| {
            let log = process::read_from(&machine.bmc_log_path(), 0);
            let problem = format!("{error}; its BMC program said: {}", log.trim());
            LabError::BadMachine { machine: machine.config.name.clone(), problem }
        })
    }

    /// Waits until the machine's serial log contains `needle`. Returns the log.
    ///
    /// # Errors
    /// [`LabError::TimedOut`], with the end of the log.
    pub async fn wait_for_serial(
        &self,
        machine: &Machine,
        needle: &str,
        limit: Duration,
    ) -> Result<String, LabError> {
        self.wait_for_serial_after(machine, 0, needle, limit).await
    }

    /// Like [`Lab::wait_for_serial`], for text after a [`Machine::serial_mark`].
    ///
    /// # Errors
    /// [`LabError::TimedOut`], with the end of the log.
    pub async fn wait_for_serial_after(
        &self,
        machine: &Machine,
        mark: u64,
        needle: &str,
        limit: Duration,
    ) -> Result<String, LabError> {
        let path = machine.serial_log_path();
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let log = process::read_from(&path, mark);
            if log.contains(needle) {
                return Ok(log);
            }
            if tokio::time::Instant::now() >= deadline {
                let skipped = log.char_indices().rev().nth(1500).map_or(0, |(at, _)| at);
                let tail = log.get(skipped..).unwrap_or_default();
                let what =
                    format!("{needle:?} on the serial port of {} (it ends: {tail:?})", machine.config.name);
                return Err(LabError::TimedOut { what, limit });
            }
            tokio::time::sleep(SERIAL_INTERVAL).await;
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.name) {
            tracing::error!(%error, "the lab {} was not removed; the next lab's start tries again", self.name);
        }
    }
}

/// A way into a lab's network.
#[derive(Clone, Debug)]
pub(crate) struct Inside(Namespace);

impl Inside {
    fn thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<Result<T, LabError>> {
        let namespace = self.0.clone();
        std::thread::spawn(move || {
            namespace.enter()?;
            Ok(work())
        })
    }

    pub(crate) async fn run<T, F, Fut>(&self, make: F) -> Result<T, LabError>
    where
        T: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T>,
    {
        let (answer, answered) = oneshot::channel();
        let namespace = self.0.clone();
        std::thread::spawn(move || {
            let run = || -> Result<T, LabError> {
                namespace.enter()?;
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|source| LabError::System { what: "make a runtime", source })?;
                Ok(runtime.block_on(make()))
            };
            // The caller may have given up.
            let _unheard = answer.send(run());
        });
        answered.await.unwrap_or_else(|_| {
            let source = std::io::Error::other("the thread inside the lab panicked");
            Err(LabError::System { what: "finish work inside the lab", source })
        })
    }
}

/// Ends everything in a lab and removes it. Its parts may be missing already.
fn remove(name: &LabName) -> Result<(), LabError> {
    Namespace(name.to_string()).remove()?;
    let directory = root().join(name.to_string());
    if std::env::var_os("BASALT_LAB_KEEP").is_some() {
        tracing::info!("kept {}", directory.display());
        return Ok(());
    }
    match std::fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(LabError::file(directory)(error)),
        _ => Ok(()),
    }
}

/// Every lab of this host: namespaces and directories.
pub(crate) fn all() -> Result<Vec<LabName>, LabError> {
    let mut names = Namespace::names()?;
    if let Ok(entries) = std::fs::read_dir(root()) {
        names.extend(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()));
    }
    names.sort();
    names.dedup();
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// Removes every lab whose owner is gone. Returns their full names.
///
/// # Errors
/// [`LabError`], if one could not be removed.
pub fn sweep() -> Result<Vec<String>, LabError> {
    let dead: Vec<_> = all()?.into_iter().filter(|name| !name.owner.is_alive()).collect();
    for name in &dead {
        remove(name)?;
    }
    Ok(dead.iter().map(ToString::to_string).collect())
}

/// Every lab: its full name, and true if its owner lives.
///
/// # Errors
/// `ip` is missing.
pub fn list() -> Result<Vec<(String, bool)>, LabError> {
    Ok(all()?.into_iter().map(|name| (name.to_string(), name.owner.is_alive())).collect())
}

/// The full name of the lab of this label or full name.
///
/// # Errors
/// [`LabError::NoSuchLab`].
pub fn find(label: &str) -> Result<String, LabError> {
    let found = all()?.into_iter().find(|name| name.label == label || name.to_string() == label);
    found.map(|name| name.to_string()).ok_or_else(|| LabError::NoSuchLab(label.to_owned()))
}

/// Removes every lab of this label or full name, also if its owner lives. Returns their full names.
///
/// # Errors
/// [`LabError::NoSuchLab`], or one could not be removed.
pub fn take_down(label: &str) -> Result<Vec<String>, LabError> {
    let found: Vec<_> =
        all()?.into_iter().filter(|name| name.label == label || name.to_string() == label).collect();
    if found.is_empty() {
        return Err(LabError::NoSuchLab(label.to_owned()));
    }
    for name in &found {
        remove(name)?;
    }
    Ok(found.iter().map(ToString::to_string).collect())
}
