//! A site: a region, racks and machines in one lab. Their programs run as they do for a user.
//!
//! All files are in the lab's directory, and all processes in its namespace. The region's API answers at `DIR/region/api.sock`,
//! which is reachable from the whole host, and at 127.0.0.1:5240 inside the lab.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use basalt_api::client::{Client, ClientConfig, ClientError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::error::LabError;
use crate::host::{self, Host};
use crate::lab::Lab;
use crate::machine::{Firmware, Mac, Machine, MachineConfig};
use crate::process::{LabProcess, read_from};

/// Time limit for the region's start, which creates its database the first time.
const REGION_START: Duration = Duration::from_secs(120);
/// Time limit for a rack to enrol and connect.
const RACK_START: Duration = Duration::from_secs(60);
/// Time limit for a program to drain after SIGTERM.
const DRAIN: Duration = Duration::from_secs(20);
/// Lines in the rack's log after which machines can boot from it.
const SERVES: [&str; 2] = ["HTTP is served", "DHCP is served"];
/// The interface of a rack that serves a bridge other than the lab's first.
const HALL: &str = "eth1";
/// Pause between two checks of a condition.
const INTERVAL: Duration = Duration::from_millis(200);
/// Time limit for one request to the region.
const REQUEST: Duration = Duration::from_secs(10);

/// Errors of a site.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// An error of the lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The region refused, or did not answer.
    #[error("the region: {0}")]
    Region(#[from] ClientError),
    /// A program is not built.
    #[error("there is no {path}; build it with `cargo build --workspace --bins`, or name the directory in BASALT_BIN_DIR", path = .0.display())]
    NotBuilt(PathBuf),
    /// A program ended although it should run.
    #[error("{program} ended ({status}); the end of {log}:\n{tail}", log = .log.display())]
    Ended {
        /// Name of the program.
        program: &'static str,
        /// Exit status of the program.
        status: String,
        /// Path of its log.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// An expected event did not happen in time.
    #[error("{what} did not happen within {}s; the end of {log}:\n{tail}", .limit.as_secs(), log = .log.display())]
    Late {
        /// The expected event.
        what: &'static str,
        /// Length of the wait.
        limit: Duration,
        /// Path of the log that may contain the reason.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// The region gave no join token.
    #[error("the region gave no join token: {0}")]
    NoToken(String),
}

/// The programs of a site.
#[derive(Clone, Debug)]
pub struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// The programs in `BASALT_BIN_DIR`, or beside `basalt-lab`.
    ///
    /// # Errors
    /// A program does not exist.
    pub fn find() -> Result<Self, SiteError> {
        let directory = match std::env::var_os("BASALT_BIN_DIR") {
            Some(directory) => PathBuf::from(directory),
            None => crate::process::lab_program()?.parent().unwrap_or(Path::new(".")).to_owned(),
        };
        let programs = Self { directory };
        for name in ["basalt", "basalt-region", "basalt-rack", "terraform-provider-basalt"] {
            let path = programs.path(name);
            if !path.is_file() {
                return Err(SiteError::NotBuilt(path));
            }
        }
        Ok(programs)
    }

    /// Path of a program.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// The machines of `examples/quickstart`: one with BIOS and one with UEFI firmware.
#[must_use]
pub fn quickstart_machines() -> Vec<MachineConfig> {
    let named = |number: u8, firmware, name: &str| MachineConfig {
        name: name.to_owned(),
        mac: Mac([0x52, 0x54, 0, 0, 0, number]),
        ..MachineConfig::numbered(number, firmware)
    };
    vec![named(1, Firmware::Bios, "bios"), named(2, Firmware::Uefi, "uefi")]
}

/// A rack process that was started.
struct Launched {
    process: LabProcess,
    name: String,
    log: PathBuf,
    /// Size of its log in bytes before the start.
    logged: u64,
}

/// A region, racks and machines. Dropping it ends all of them.
#[derive(Debug)]
pub struct Site {
    // Fields are dropped in this order.
    racks: BTreeMap<u8, LabProcess>,
    /// Racks that were killed, and may not have ended yet.
    killed: BTreeMap<u8, LabProcess>,
    region: Option<LabProcess>,
    machines: Vec<Machine>,
    hosts: BTreeMap<u8, Host>,
    moved: BTreeSet<u8>,
    lab: Lab,
    programs: Programs,
    region_variables: Vec<(String, String)>,
    rack_variables: Vec<(String, String)>,
}

impl Site {
    /// A new, empty lab of this name.
    ///
    /// # Errors
    /// [`SiteError`]: the process is not root, or a program is not built.
    pub fn create(label: &str) -> Result<Self, SiteError> {
        let programs = Programs::find()?;
        Ok(Self {
            racks: BTreeMap::new(),
            killed: BTreeMap::new(),
            region: None,
            machines: Vec::new(),
            hosts: BTreeMap::new(),
            moved: BTreeSet::new(),
            lab: Lab::create(label)?,
            programs,
            region_variables: Vec::new(),
            rack_variables: Vec::new(),
        })
    }

    /// The lab of the site.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The programs of the site.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Directory with all files of the site.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.lab.directory()
    }

    /// The machine of this name.
    #[must_use]
    pub fn machine(&self, name: &str) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.config().name == name)
    }

    /// Adds machines, powered off, with empty disks.
    ///
    /// # Errors
    /// As [`Lab::add_machine`].
    pub async fn add_machines(&mut self, configs: Vec<MachineConfig>) -> Result<(), SiteError> {
        for config in configs {
            let machine = self.lab.add_machine(config).await?;
            self.machines.push(machine);
        }
        Ok(())
    }

    /// The region's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory().join("region/api.sock")
    }

    /// The endpoint of the region for root on this host.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// A client of the region.
    ///
    /// # Errors
    /// None, except for a path that is too long for a socket.
    pub fn client(&self) -> Result<Client, SiteError> {
        Ok(Client::new(&ClientConfig {
            endpoints: vec![self.endpoint()],
            manager: Some("lab".to_owned()),
            ..ClientConfig::default()
        })?)
    }

    /// The region's metrics, in Prometheus' format.
    ///
    /// # Errors
    /// The region does not answer.
    pub async fn metrics(&self) -> Result<String, SiteError> {
        let socket = self.socket();
        let answer = request(&socket, "GET", "/metrics", "").await.map_err(LabError::file(&socket))?;
        Ok(answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
    }

    /// Environment variables of the region's next starts.
    pub fn set_region_variables(&mut self, variables: &[(&str, &str)]) {
        self.region_variables = owned(variables);
    }

    /// Environment variables of the racks' next starts.
    pub fn set_rack_variables(&mut self, variables: &[(&str, &str)]) {
        self.rack_variables = owned(variables);
    }

    /// True if the rack runs. A rack that has ended by itself does not.
    pub fn rack_runs(&mut self, number: u8) -> bool {
        if self.racks.get_mut(&number).is_some_and(LabProcess::has_ended) {
            self.racks.remove(&number);
        }
        self.racks.contains_key(&number)
    }

    /// True if the region runs. A region that has ended by itself does not.
    pub fn region_runs(&mut self) -> bool {
        if self.region.as_mut().is_some_and(LabProcess::has_ended) {
            self.region = None;
        }
        self.region.is_some()
    }

    /// Kills the region, as a power cut would.
    pub fn kill_region(&mut self) {
        if let Some(region) = self.region.take() {
            region.kill();
        }
    }

    /// Kills a rack, as a power cut would.
    pub fn kill_rack(&mut self, number: u8) {
        if let Some(rack) = self.racks.remove(&number) {
            rack.kill();
            self.killed.insert(number, rack);
        }
    }

    /// Starts the region, and waits until it answers.
    ///
    /// # Errors
    /// The region ended; the error contains the end of its log.
    pub async fn start_region(&mut self) -> Result<(), SiteError> {
        let mut command = self.program("basalt-region")?;
        command.arg("--data-dir").arg(self.directory().join("region"));
        command.args(["--join-urls", "https://10.77.0.1:5250", "--log-json=false"]);
        command.envs(self.region_variables.iter().map(|(name, value)| (name, value)));
        let log = self.directory().join("region.log");
        let mut process = self.start(command, &log)?;
        let socket = self.socket();
        let answers = async {
            while !request(&socket, "GET", "/readyz", "")
                .await
                .is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
            {
                tokio::time::sleep(INTERVAL).await;
            }
        };
        until(&mut process, "basalt-region", "the region's first answer", REGION_START, &log, answers)
            .await?;
        self.region = Some(process);
        Ok(())
    }

    /// Starts a rack and waits until it is connected. If needed, it first joins the region. Rack 1 runs on the region's host. Any
    /// other rack, `rack-N`, runs on a host of its own with address 10.77.0.N.
    ///
    /// # Errors
    /// The rack ended, with the end of its log; or the region gave no token.
    pub async fn start_rack(&mut self, number: u8) -> Result<(), SiteError> {
        let Launched { mut process, name, log, .. } = self.launch_rack(number).await?;
        let client = self.client()?;
        let kind = basalt_api::Kind::find("Rack");
        let joined = async {
            while let Some(kind) = kind {
                let rack = client.find(kind, &name).await;
                if rack.is_ok_and(|rack| rack.is_some_and(|rack| rack.status["connected"] == true)) {
                    return;
                }
                tokio::time::sleep(INTERVAL).await;
            }
        };
        until(&mut process, "basalt-rack", "the rack's connection to the region", RACK_START, &log, joined)
            .await?;
        self.racks.insert(number, process);
        Ok(())
    }

    /// Starts a rack that has joined before, and waits until it serves machines. It needs no region.
    ///
    /// # Errors
    /// The rack ended; the error contains the end of its log.
    pub async fn start_rack_alone(&mut self, number: u8) -> Result<(), SiteError> {
        let Launched { mut process, log, logged, .. } = self.launch_rack(number).await?;
        let serves = async {
            while !SERVES.iter().all(|line| read_from(&log, logged).contains(line)) {
                tokio::time::sleep(INTERVAL).await;
            }
        };
        until(&mut process, "basalt-rack", "the rack's service of machines", RACK_START, &log, serves)
            .await?;
        self.racks.insert(number, process);
        Ok(())
    }

    async fn launch_rack(&mut self, number: u8) -> Result<Launched, SiteError> {
        let name = format!("rack-{number}");
        let program = self.programs.path("basalt-rack");
        let (mut command, interface) = if number == 1 {
            (self.lab.command(program)?, "br0")
        } else {
            let interface = if self.moved.contains(&number) { HALL } else { host::INTERFACE };
            (self.host(number)?.command(program)?, interface)
        };
        let directory = self.directory().join(&name);
        command.arg("--data-dir").arg(&directory).args(["--name", &name, "--interface", interface]);
        if !directory.join("identity").exists() {
            command.env("BASALT_RACK_JOIN", self.join_token().await?);
        }
        command.envs(self.rack_variables.iter().map(|(name, value)| (name, value)));
        let log = self.directory().join(format!("{name}.log"));
        let logged = std::fs::metadata(&log).map_or(0, |log| log.len());
        if let Some(mut before) = self.killed.remove(&number) {
            // A killed rack holds its data directory until it has ended. If it does not end in time, the new process reports that.
            let _late = tokio::time::timeout(RACK_START, before.ended()).await;
        }
        let process = self.start(command, &log)?;
        Ok(Launched { process, name, log, logged })
    }

    /// Waits until a concern of the rack contains `words`, as `basalt-rack concern show` prints it.
    ///
    /// # Errors
    /// [`SiteError::Late`]: not within a minute.
    pub async fn rack_holds(&self, number: u8, concern: &str, words: &str) -> Result<(), SiteError> {
        let name = format!("rack-{number}");
        let (log, directory) = (self.directory().join(format!("{name}.log")), self.directory().join(&name));
        let end = Instant::now() + RACK_START;
        loop {
            let mut show = tokio::process::Command::new(self.programs.path("basalt-rack"));
            show.arg("--data-dir").arg(&directory).args(["concern", "show", concern]);
            let said = show.output().await.map(|said| String::from_utf8_lossy(&said.stdout).contains(words));
            if said.unwrap_or(false) {
                return Ok(());
            }
            if Instant::now() >= end {
                let tail = tail(&log);
                return Err(SiteError::Late { what: "a rack's concern", limit: RACK_START, log, tail });
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Moves a rack, but not the first one, to another bridge of the lab. There it answers machines at this address. It reaches
    /// regions as before.
    ///
    /// # Errors
    /// [`SiteError::Lab`].
    pub fn move_rack(&mut self, number: u8, bridge: &str, address: Ipv4Addr) -> Result<(), SiteError> {
        self.host(number)?;
        if let Some(host) = self.hosts.get(&number) {
            host.plug(&self.lab, bridge, &format!("hall-rack-{number}"), HALL, address)?;
        }
        self.moved.insert(number);
        Ok(())
    }

    /// The host of a rack that does not run on the region's host.
    ///
    /// # Errors
    /// [`SiteError::Lab`].
    pub fn host(&mut self, number: u8) -> Result<&Host, SiteError> {
        Ok(match self.hosts.entry(number) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) => {
                let address = Ipv4Addr::new(10, 77, 0, number);
                free.insert(Host::connect(&self.lab, &format!("rack-{number}"), address)?)
            }
        })
    }

    /// Stops a rack like a service manager does. No error if it does not run.
    ///
    /// # Errors
    /// The rack does not drain in time.
    pub async fn stop_rack(&mut self, number: u8) -> Result<(), SiteError> {
        stop(self.racks.remove(&number)).await
    }

    /// Stops the region like a service manager does. No error if it does not run.
    ///
    /// # Errors
    /// The region does not drain in time.
    pub async fn stop_region(&mut self) -> Result<(), SiteError> {
        stop(self.region.take()).await
    }

    /// A token for one rack.
    ///
    /// # Errors
    /// The region refuses, or does not answer.
    async fn join_token(&self) -> Result<String, SiteError> {
        let began = Instant::now();
        let answer = loop {
            let answer = request(&self.socket(), "POST", "/api/v1/join_tokens", "{}").await;
            let answer = answer.map_err(|error| SiteError::NoToken(error.to_string()))?;
            // The region answers clients a moment before it serves racks.
            if !answer.starts_with("HTTP/1.1 503") || began.elapsed() > REQUEST {
                break answer;
            }
            tokio::time::sleep(INTERVAL).await;
        };
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        body["token"].as_str().map(str::to_owned).ok_or(SiteError::NoToken(answer))
    }

    fn program(&self, name: &str) -> Result<std::process::Command, SiteError> {
        Ok(self.lab.command(self.programs.path(name))?)
    }

    fn start(&self, mut command: std::process::Command, log: &Path) -> Result<LabProcess, SiteError> {
        let file =
            std::fs::OpenOptions::new().create(true).append(true).open(log).map_err(LabError::file(log))?;
        let errors = file.try_clone().map_err(LabError::file(log))?;
        command.stdout(Stdio::from(file)).stderr(Stdio::from(errors));
        for (name, _) in std::env::vars_os() {
            // Settings of the shell must not reach the site's programs.
            if name.to_string_lossy().starts_with("BASALT_")
                && name != OsStr::new("BASALT_LAB_BIN")
                && !is_set(&command, &name)
            {
                command.env_remove(name);
            }
        }
        Ok(self.lab.spawn(command)?)
    }
}

fn owned(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn is_set(command: &std::process::Command, name: &OsStr) -> bool {
    command.get_envs().any(|(set, value)| set == name && value.is_some())
}

/// Waits for a program's expected effect, or for its early end.
async fn until(
    process: &mut LabProcess,
    program: &'static str,
    what: &'static str,
    limit: Duration,
    log: &Path,
    done: impl Future<Output = ()>,
) -> Result<(), SiteError> {
    tokio::select! {
        () = done => Ok(()),
        ended = process.wait(limit) => Err(match ended {
            Ok(status) => SiteError::Ended { program, status: status.to_string(), log: log.to_owned(), tail: tail(log) },
            Err(_elapsed) => SiteError::Late { what, limit, log: log.to_owned(), tail: tail(log) },
        }),
    }
}

/// The last lines of a log.
#[must_use]
pub fn tail(log: &Path) -> String {
    let text = read_from(log, 0);
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(15)..).unwrap_or_default().join("\n")
}

async fn stop(process: Option<LabProcess>) -> Result<(), SiteError> {
    if let Some(mut process) = process {
        process.terminate();
        process.wait(DRAIN).await?;
    }
    Ok(())
}

/// One request on the region's socket, for calls that the typed client does not have. Returns the whole answer.
async fn request(socket: &Path, method: &str, path: &str, body: &str) -> std::io::Result<String> {
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        let length = body.len();
        let head = "Host: localhost\r\nConnection: close\r\nContent-Type: application/json";
        let text = format!("{method} {path} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    tokio::time::timeout(REQUEST, exchange).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}
