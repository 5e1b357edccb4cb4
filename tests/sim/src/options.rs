//! The options of a simulated machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use basalt_dhcp::Mac;
use basalt_lab::BRIDGE;

/// The firmware a machine boots with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// BIOS: iPXE boots the disk.
    Bios,
    /// UEFI: iPXE returns to the firmware, which boots the disk.
    Uefi,
}

/// The first boot device without an order of the BMC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BootOrder {
    /// The network; its disk if nothing boots from there.
    #[default]
    NetworkFirst,
    /// Its disk; the network if nothing boots from there.
    DiskFirst,
}

/// The parts of a simulated machine.
#[derive(Clone, Debug)]
pub struct MachineOptions {
    /// Name within the lab; also the name of a directory.
    pub name: String,
    /// Its NIC's address.
    pub mac: Mac,
    /// The lab's bridge that its NIC is plugged into.
    pub bridge: String,
    /// BIOS or UEFI.
    pub firmware: Firmware,
    /// The first boot device without an order of the BMC.
    pub boot_order: BootOrder,
    /// Address of its BMC, port 623. The lab must not have the address yet.
    pub bmc_address: Ipv4Addr,
    /// The BMC's only user, an administrator.
    pub bmc_user: String,
    /// That user's password.
    pub bmc_password: String,
    /// The BMC's key K_g, as 20 characters.
    pub bmc_key: Option<String>,
    /// Size of its disk `vda`, sparse and all zero at first.
    pub disk_bytes: u64,
    /// Memory in bytes, as in its DMI tables.
    pub memory_bytes: u64,
    /// Cores, of one thread each, in one socket.
    pub cores: u32,
    /// Serial number in its DMI tables, and of its disk.
    pub serial: String,
    /// Length of pauses that take tens of seconds on real machines: a message left on the console, iPXE's `sleep`, a reset.
    pub pause: Duration,
    /// The ROM's first wait for an answer to its DISCOVER; it doubles four times before the ROM gives up.
    pub dhcp_patience: Duration,
}

/// The BMC of the machine before the first.
const FIRST_BMC: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 100);

impl MachineOptions {
    /// Machine `simN` with usual parts: 4 cores, 8 GiB of memory, 16 GiB of disk, BMC `10.77.0.(100 + N)` with user `admin`
    /// and password `secret`.
    #[must_use]
    pub fn numbered(number: u16, firmware: Firmware) -> Self {
        let [high, low] = number.to_be_bytes();
        Self {
            name: format!("sim{number}"),
            mac: Mac([0x52, 0x54, 0x00, 0x51, high, low]),
            bridge: BRIDGE.to_owned(),
            firmware,
            boot_order: BootOrder::default(),
            bmc_address: Ipv4Addr::from(u32::from(FIRST_BMC).saturating_add(number.into())),
            bmc_user: "admin".to_owned(),
            bmc_password: "secret".to_owned(),
            bmc_key: None,
            disk_bytes: 16 << 30,
            memory_bytes: 8 << 30,
            cores: 4,
            serial: format!("SIM-{number:04}"),
            pause: Duration::from_millis(200),
            dhcp_patience: Duration::from_millis(500),
        }
    }

    /// Address and port of its BMC.
    #[must_use]
    pub fn bmc_socket(&self) -> SocketAddr {
        (self.bmc_address, 623).into()
    }
}
