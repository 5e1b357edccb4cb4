//! The handle of a simulated machine, for tests.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use basalt_api::agent::DiskMarker;
use basalt_bmc::{BmcKey, BmcServer, Credentials, PowerState, ServerConfig};
use basalt_lab::Lab;
use tokio::sync::oneshot;

use crate::chassis::{Backend, Chassis, Power};
use crate::event::{Entry, Event, Log};
use crate::fault::Faults;
use crate::hardware::Hardware;
use crate::life::Life;
use crate::options::MachineOptions;
use crate::{cable, dhcp, syslog};

/// How long a BMC may take to start.
const BMC_START: Duration = Duration::from_secs(10);

/// Errors of a simulated machine.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The machine could not be created.
    #[error("simulated machine {machine}: cannot {what}: {source}")]
    Start {
        /// Name of the machine.
        machine: String,
        /// The operation that failed.
        what: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The BMC's user or password is not valid.
    #[error("simulated machine {machine}: {source}")]
    Credentials {
        /// Name of the machine.
        machine: String,
        /// The rule that the user or password breaks.
        source: basalt_bmc::CredentialError,
    },
    /// An expected event did not happen.
    #[error("{machine} did not do what was waited for within {:.1} s; it did:\n{log}", .limit.as_secs_f64())]
    TimedOut {
        /// Name of the machine.
        machine: String,
        /// Length of the wait.
        limit: Duration,
        /// Log of the machine, as text.
        log: String,
    },
}

/// A simulated machine and its BMC, powered off at first. Dropping it pulls the plug and stops the BMC.
#[derive(Debug)]
pub struct SimMachine {
    chassis: Arc<Chassis>,
    bmc_faults: Arc<basalt_bmc::Faults>,
    stop: Option<oneshot::Sender<()>>,
    bmc: Option<JoinHandle<()>>,
}

impl SimMachine {
    /// Builds a machine in `lab`; returns when its BMC answers. Blocks for some tens of milliseconds.
    ///
    /// # Errors
    /// [`SimError::Start`], [`SimError::Credentials`].
    pub fn start(lab: &Lab, options: MachineOptions) -> Result<Self, SimError> {
        let machine = options.name.clone();
        let failed = |what| {
            let machine = machine.clone();
            move |source| SimError::Start { machine, what, source }
        };
        let credentials = Credentials::new(&options.bmc_user, &options.bmc_password)
            .map_err(|source| SimError::Credentials { machine: machine.clone(), source })?;
        let bmc_key = options.bmc_key.as_ref().map(|key| BmcKey::new(key.as_bytes())).transpose();
        let bmc_key = bmc_key.map_err(|source| SimError::Credentials { machine: machine.clone(), source })?;
        let directory = lab.directory().join(&options.name);
        let hardware = Hardware::build(&directory, &options).map_err(failed("build its hardware"))?;
        cable::add_address(lab.namespace(), options.bmc_address)
            .map_err(failed("give its BMC an address"))?;
        let address = options.bmc_socket();
        let mut guid = *b"basalt-sim\0\0\0\0\0\0";
        for (to, from) in guid.iter_mut().skip(10).zip(options.mac.0) {
            *to = from;
        }
        let chassis = Arc::new(Chassis {
            options,
            lab: lab.namespace().to_owned(),
            hardware,
            faults: Faults::default(),
            log: Log::new(),
            power: Mutex::new(Power::OFF),
        });
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = mpsc::channel();
        let (backend, namespace) = (Arc::new(Backend(Arc::clone(&chassis))), lab.namespace().to_owned());
        let mut config = ServerConfig::new(credentials.username, credentials.password, guid);
        config.bmc_key = bmc_key;
        let bmc = std::thread::spawn(move || {
            let prepare = || {
                cable::enter(&namespace)?;
                tokio::runtime::Builder::new_current_thread().enable_all().build()
            };
            let runtime = match prepare() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            runtime.block_on(async move {
                match BmcServer::start(address, config, backend).await {
                    Err(error) => drop(ready.send(Err(error))),
                    Ok(server) => {
                        let _abandoned = ready.send(Ok(Arc::clone(server.faults())));
                        // The handle may have been lost, so an error here also means "stop".
                        let _stopped = stopped.await;
                    }
                }
            });
        });
        let started = started.recv_timeout(BMC_START).map_err(io::Error::other).and_then(|started| started);
        let bmc_faults = started.map_err(failed("start its BMC"))?;
        Ok(Self { chassis, bmc_faults, stop: Some(stop), bmc: Some(bmc) })
    }

    /// The part with the power, for another service that switches it.
    pub(crate) fn chassis(&self) -> Arc<Chassis> {
        Arc::clone(&self.chassis)
    }

    /// The options that it was created with.
    #[must_use]
    pub fn options(&self) -> &MachineOptions {
        &self.chassis.options
    }

    /// The machine's faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.chassis.faults
    }

    /// The BMC's faults.
    #[must_use]
    pub fn bmc_faults(&self) -> &basalt_bmc::Faults {
        &self.bmc_faults
    }

    /// All its events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Entry> {
        self.chassis.log.since(0)
    }

    /// How many of its events `which` accepts.
    pub fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.events().iter().filter(|entry| which(&entry.event)).count()
    }

    /// Its log as text, for the message of an assertion.
    #[must_use]
    pub fn log(&self) -> String {
        self.chassis.log.text()
    }

    /// The number of events so far: those that follow are newer. See [`SimMachine::wait_for_after`].
    #[must_use]
    pub fn mark(&self) -> usize {
        self.chassis.log.length()
    }

    /// Waits for an event that `wanted` accepts. Earlier events count too.
    ///
    /// # Errors
    /// [`SimError::TimedOut`], with its log.
    pub async fn wait_for(
        &self,
        wanted: impl Fn(&Event) -> bool,
        limit: Duration,
    ) -> Result<Entry, SimError> {
        self.wait_for_after(0, wanted, limit).await
    }

    /// As [`SimMachine::wait_for`], among the events after a [`SimMachine::mark`].
    ///
    /// # Errors
    /// [`SimError::TimedOut`], with its log.
    pub async fn wait_for_after(
        &self,
        mark: usize,
        wanted: impl Fn(&Event) -> bool,
        limit: Duration,
    ) -> Result<Entry, SimError> {
        let found = self.chassis.log.first(mark, wanted, limit).await;
        found.ok_or_else(|| SimError::TimedOut {
            machine: self.options().name.clone(),
            limit,
            log: self.log(),
        })
    }

    /// Its power state, read without the BMC.
    #[must_use]
    pub fn power_state(&self) -> PowerState {
        self.chassis.state()
    }

    /// Presses the power button of a machine that is off.
    pub fn press_power(&self) {
        self.chassis.power_on();
    }

    /// Says `leave` in the rescue environment.
    pub fn leave(&self) {
        self.chassis.leave();
    }

    /// Makes the installed system renew its lease, as it does after half of the lease time.
    pub fn renew_lease(&self) {
        Life::beside(&self.chassis, dhcp::renew);
    }

    /// Sends a line to a rack by syslog, from the machine's address.
    pub fn says(&self, rack: SocketAddr, line: &str) {
        let line = line.to_owned();
        Life::beside(&self.chassis, move |life| syslog::send(life, rack, &line));
    }

    /// Pulls the plug. The machine stops at once; its BMC continues to run.
    pub fn pull_plug(&self) {
        self.chassis.power_off();
    }

    /// The markers on its disks, by kernel name.
    #[must_use]
    pub fn disk_markers(&self) -> BTreeMap<String, DiskMarker> {
        self.chassis.hardware.markers()
    }

    /// Pulls the plug and puts in a new disk, all zero.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn replace_disk(&self) -> Result<(), SimError> {
        self.pull_plug();
        let machine = self.options().name.clone();
        let failed = |source| SimError::Start { machine, what: "replace its disk", source };
        self.chassis.hardware.replace_disk().map_err(failed)
    }
}

impl Drop for SimMachine {
    fn drop(&mut self) {
        self.pull_plug();
        drop(self.stop.take());
        if let Some(bmc) = self.bmc.take() {
            let _panicked = bmc.join();
        }
    }
}
