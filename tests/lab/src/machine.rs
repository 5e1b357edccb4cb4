//! A machine: its parts, and a test's operations on it from outside.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use basalt_bmc::{BmcClient, BmcConfig, BmcError, BootDevice, Credentials, PowerState, PowerVerb};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::lab::Inside;
use crate::process::LabProcess;

/// The firmware a machine boots with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Firmware {
    /// SeaBIOS; its network ROM is iPXE, so it never asks TFTP for a first loader.
    Bios,
    /// OVMF, with its own PXE driver, which fetches a first loader by TFTP.
    Uefi,
}

/// The first boot device without an order of the BMC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootOrder {
    /// Its disk; the network if nothing boots from there.
    #[default]
    DiskFirst,
    /// The network; its disk if nothing boots from there.
    NetworkFirst,
}

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no MAC address; write it like 52:54:00:77:00:01");
        let octets: Result<Vec<u8>, String> = text
            .split(':')
            .map(|octet| u8::from_str_radix(octet, 16).ok().filter(|_| octet.len() == 2).ok_or_else(bad))
            .collect();
        octets?.try_into().map(Self).map_err(|_| bad())
    }
}

impl Serialize for Mac {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The parts of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineConfig {
    /// Its name within the lab: letters, digits and hyphens.
    pub name: String,
    /// BIOS or UEFI.
    pub firmware: Firmware,
    /// The first boot device without an order of the BMC.
    #[serde(default)]
    pub boot_order: BootOrder,
    /// Its NIC's address.
    pub mac: Mac,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Number of CPUs.
    pub cpus: u32,
    /// Size of its disk in bytes; all zero at first.
    pub disk_bytes: u64,
    /// Serial number in its DMI tables, and of its disk.
    pub serial: String,
    /// Address of its BMC; the port is 623.
    pub bmc_address: Ipv4Addr,
    /// The BMC's only user, an administrator.
    pub bmc_user: String,
    /// That user's password.
    pub bmc_password: String,
}

impl MachineConfig {
    /// Machine `mN` with usual parts: 2 GiB, 1 CPU, 8 GiB of disk, BMC `10.77.0.(100 + N)` with user `admin`.
    #[must_use]
    pub fn numbered(number: u8, firmware: Firmware) -> Self {
        Self {
            name: format!("m{number}"),
            firmware,
            boot_order: BootOrder::default(),
            mac: Mac([0x52, 0x54, 0x00, 0x77, 0x00, number]),
            memory_mib: 2048,
            cpus: 1,
            disk_bytes: 8 << 30,
            serial: format!("BASALT-{number:04}"),
            bmc_address: Ipv4Addr::new(10, 77, 0, 100u8.saturating_add(number)),
            bmc_user: "admin".to_owned(),
            bmc_password: "secret".to_owned(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), LabError> {
        let problem = if self.name.is_empty()
            || self.name.len() > 32
            || !self.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            "its name must be 1 to 32 letters, digits and hyphens".to_owned()
        } else if self.mac.0.first().is_none_or(|first| first & 1 == 1) {
            format!("{} is a group address; give it one of a single NIC", self.mac)
        } else if self.memory_mib < 256 || self.cpus == 0 {
            "it needs at least 256 MiB and 1 CPU".to_owned()
        } else if self.disk_bytes == 0 || !self.disk_bytes.is_multiple_of(512) {
            format!("its disk of {} bytes is not a whole number of sectors of 512", self.disk_bytes)
        } else if !self.serial.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            format!("its serial number {:?} may have letters, digits and hyphens only", self.serial)
        } else if let Err(error) = self.credentials() {
            error.to_string()
        } else {
            return Ok(());
        };
        Err(LabError::BadMachine { machine: self.name.clone(), problem })
    }

    /// The MAC address of its BMC: its NIC's address, in another half of the locally administered addresses.
    #[must_use]
    pub const fn bmc_mac(&self) -> Mac {
        let [a, b, c, d, e, g] = self.mac.0;
        Mac([a, b, c, d ^ 0x80, e, g])
    }

    /// Address and port of its BMC.
    #[must_use]
    pub fn bmc_socket(&self) -> SocketAddr {
        (self.bmc_address, 623).into()
    }

    pub(crate) fn credentials(&self) -> Result<Credentials, basalt_bmc::CredentialError> {
        Credentials::new(&self.bmc_user, &self.bmc_password)
    }
}

/// A machine of a running [`crate::Lab`]. Dropping it ends the BMC's program, and so the machine.
#[derive(Debug)]
pub struct Machine {
    pub(crate) config: MachineConfig,
    pub(crate) directory: PathBuf,
    pub(crate) inside: Inside,
    pub(crate) bmc: BmcConfig,
    pub(crate) _program: LabProcess,
}

impl Machine {
    /// The configuration that it was created with.
    #[must_use]
    pub fn config(&self) -> &MachineConfig {
        &self.config
    }

    /// Path of the output of its serial port, over all its power cycles.
    #[must_use]
    pub fn serial_log_path(&self) -> PathBuf {
        self.directory.join("serial.log")
    }

    /// Path of its disk, as qcow2.
    #[must_use]
    pub fn disk_path(&self) -> PathBuf {
        self.directory.join("disk.qcow2")
    }

    /// Path of the output of its BMC's program and of QEMU.
    #[must_use]
    pub fn bmc_log_path(&self) -> PathBuf {
        self.directory.join("bmc.log")
    }

    /// Directory with its files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The length of the serial log now: later text is newer. See [`crate::Lab::wait_for_serial_after`].
    #[must_use]
    pub fn serial_mark(&self) -> u64 {
        std::fs::metadata(self.serial_log_path()).map_or(0, |data| data.len())
    }

    /// Its power state, read by IPMI.
    ///
    /// # Errors
    /// An error of the BMC.
    pub async fn power_status(&self) -> Result<PowerState, LabError> {
        self.ask(|bmc| async move { bmc.power_status().await }).await
    }

    /// Executes `verb` by IPMI.
    ///
    /// # Errors
    /// An error of the BMC.
    pub async fn power(&self, verb: PowerVerb) -> Result<(), LabError> {
        self.ask(move |bmc| async move { bmc.power(verb).await }).await
    }

    /// Sets the next boot device by IPMI.
    ///
    /// # Errors
    /// An error of the BMC.
    pub async fn set_boot_device(&self, device: BootDevice, once: bool) -> Result<(), LabError> {
        let efi = self.config.firmware == Firmware::Uefi;
        self.ask(move |bmc| async move { bmc.set_boot_device(device, once, efi).await }).await
    }

    async fn ask<T, F, Fut>(&self, ask: F) -> Result<T, LabError>
    where
        T: Send + 'static,
        F: FnOnce(BmcClient) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, BmcError>>,
    {
        let client = BmcClient::new(self.bmc.clone());
        Ok(self.inside.run(move || ask(client)).await??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbered_machine_is_whole_and_survives_json() {
        let config = MachineConfig::numbered(7, Firmware::Uefi);
        config.check().unwrap();
        let json = serde_json::to_string(&config).unwrap();
        let again: MachineConfig = serde_json::from_str(&json).unwrap();
        assert_eq!((again.mac, again.bmc_address), (config.mac, config.bmc_address));
        assert_eq!(again.mac.to_string(), "52:54:00:77:00:07");
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let refused = |change: fn(&mut MachineConfig)| {
            let mut config = MachineConfig::numbered(1, Firmware::Bios);
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(refused(|each| each.name = "a,b".into()).contains("letters, digits and hyphens"));
        assert!(refused(|each| each.mac = Mac([1; 6])).contains("group address"));
        assert!(refused(|each| each.disk_bytes = 513).contains("513 bytes"));
        assert!(refused(|each| each.serial = "a,b".into()).contains("serial number"));
        assert!(refused(|each| each.bmc_password = "x".repeat(21)).contains("21 octets"));
        assert!("52:54:00:77:00".parse::<Mac>().unwrap_err().contains("no MAC address"));
    }
}
