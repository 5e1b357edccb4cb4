//! The BMC program (`basalt-lab bmc --config FILE`): our IPMI server in front of one QEMU machine.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use basalt_bmc::{BmcServer, Lan, ServerConfig};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

use crate::chassis::QemuChassis;
use crate::error::LabError;
use crate::machine::MachineConfig;

/// The BMC program's configuration file, as JSON. It contains a password, so only its owner can read it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BmcProgramConfig {
    /// The machine, with the BMC's address and user.
    pub machine: MachineConfig,
    /// The machine's directory: disk, variables, serial log, sockets.
    pub directory: PathBuf,
    /// The tap of its NIC.
    pub tap: String,
}

impl BmcProgramConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// [`LabError::File`], also for a file without valid JSON.
    pub fn load(path: &Path) -> Result<Self, LabError> {
        let text = std::fs::read(path).map_err(LabError::file(path))?;
        serde_json::from_slice(&text).map_err(|error| LabError::file(path)(error.into()))
    }

    /// Writes a file, mode 0600.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn save(&self, path: &Path) -> Result<(), LabError> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let text = serde_json::to_vec_pretty(self).map_err(|error| LabError::file(path)(error.into()))?;
        let mut options = std::fs::OpenOptions::new();
        let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
        opened.and_then(|mut file| file.write_all(&text)).map_err(LabError::file(path))
    }

    pub(crate) fn qmp_path(&self) -> PathBuf {
        self.directory.join("qmp.sock")
    }

    /// The socket between the machine and its BMC.
    pub(crate) fn inside_path(&self) -> PathBuf {
        self.directory.join("bmc.sock")
    }
}

/// Answers IPMI until the process ends.
///
/// # Errors
/// A bad user or password, or an address that cannot be bound.
pub async fn run(config: BmcProgramConfig) -> Result<(), LabError> {
    let machine = config.machine.clone();
    let bad = |problem: String| LabError::BadMachine { machine: machine.name.clone(), problem };
    let credentials = machine.credentials().map_err(|error| bad(error.to_string()))?;
    let mut guid = *b"basalt-lab\0\0\0\0\0\0";
    for (to, from) in guid.iter_mut().skip(10).zip(machine.mac.0) {
        *to = from;
    }
    let address = machine.bmc_socket();
    let mut server = ServerConfig::new(credentials.username, credentials.password, guid);
    server.accounts = server.accounts.with_lan(Lan {
        address: machine.bmc_address,
        mask: Ipv4Addr::new(255, 255, 255, 255),
        mac: machine.bmc_mac().0,
        ..Lan::default()
    });
    let path = config.inside_path();
    // A killed program leaves its socket.
    let _unbound = std::fs::remove_file(&path);
    let inside = UnixListener::bind(&path).map_err(LabError::file(&path))?;
    let chassis = Arc::new(QemuChassis::start(config));
    let _server = BmcServer::start_inside(address, inside, server, chassis)
        .await
        .map_err(|error| bad(format!("its BMC cannot bind {address}: {error}")))?;
    tracing::info!("the BMC of {} answers at {address}", machine.name);
    std::future::pending().await
}
