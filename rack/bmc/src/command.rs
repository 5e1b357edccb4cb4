//! The commands that Basalt uses, with types. Each command's encoder for the client stands beside its decoder for the
//! server.
//!
//! `ipmi-rs-core` has only two of these (docs/decisions/010), so they are written out here.

use crate::error::Failure;
use crate::message::CommandId;
use crate::wire::Reader;

const CHASSIS: u8 = 0x00;
const APP: u8 = 0x06;
const TRANSPORT: u8 = 0x0c;
/// Groups that other bodies define (§5.1); the first octet of the data names the group.
const GROUP_EXTENSION: u8 = 0x2c;

macro_rules! commands {
    ($($constant:ident = $net_fn:ident / $command:literal, $name:literal;)*) => {
        $(#[doc = concat!("The command ", $name, ".")]
        pub const $constant: CommandId = CommandId { net_fn: $net_fn, command: $command, name: $name };)*
    };
}

commands! {
    GET_DEVICE_ID = APP / 0x01, "Get Device ID";
    COLD_RESET = APP / 0x02, "Cold Reset";
    GET_SYSTEM_GUID = APP / 0x37, "Get System GUID";
    GET_CHANNEL_AUTH_CAPABILITIES = APP / 0x38, "Get Channel Authentication Capabilities";
    SET_SESSION_PRIVILEGE = APP / 0x3b, "Set Session Privilege Level";
    CLOSE_SESSION = APP / 0x3c, "Close Session";
    GET_CHANNEL_CIPHER_SUITES = APP / 0x54, "Get Channel Cipher Suites";
    GET_CHASSIS_STATUS = CHASSIS / 0x01, "Get Chassis Status";
    CHASSIS_CONTROL = CHASSIS / 0x02, "Chassis Control";
    SET_BOOT_OPTIONS = CHASSIS / 0x08, "Set System Boot Options";
    GET_BOOT_OPTIONS = CHASSIS / 0x09, "Get System Boot Options";
    SET_GLOBAL_ENABLES = APP / 0x2e, "Set BMC Global Enables";
    GET_GLOBAL_ENABLES = APP / 0x2f, "Get BMC Global Enables";
    CLEAR_MESSAGE_FLAGS = APP / 0x30, "Clear Message Flags";
    GET_MESSAGE_FLAGS = APP / 0x31, "Get Message Flags";
    SET_CHANNEL_ACCESS = APP / 0x40, "Set Channel Access";
    GET_CHANNEL_ACCESS = APP / 0x41, "Get Channel Access";
    GET_CHANNEL_INFO = APP / 0x42, "Get Channel Info";
    SET_USER_ACCESS = APP / 0x43, "Set User Access";
    GET_USER_ACCESS = APP / 0x44, "Get User Access";
    SET_USER_NAME = APP / 0x45, "Set User Name";
    GET_USER_NAME = APP / 0x46, "Get User Name";
    SET_USER_PASSWORD = APP / 0x47, "Set User Password";
    SET_LAN_PARAMETER = TRANSPORT / 0x01, "Set LAN Configuration Parameters";
    GET_LAN_PARAMETER = TRANSPORT / 0x02, "Get LAN Configuration Parameters";
    GET_BOOTSTRAP_ACCOUNT = GROUP_EXTENSION / 0x02, "Get Bootstrap Account Credentials";
}

/// The power state of a chassis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// Power on (ACPI S0).
    On,
    /// Power off (ACPI S4 or S5).
    Off,
}

impl std::fmt::Display for PowerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

impl PowerState {
    /// Chassis Status data (§28.2): power state, last event, miscellaneous.
    pub(crate) fn encode(self) -> Vec<u8> {
        vec![u8::from(self == Self::On), 0, 0]
    }

    pub(crate) fn decode(data: &[u8]) -> Result<Self, Failure> {
        match data.first() {
            Some(state) if state & 1 == 1 => Ok(Self::On),
            Some(_) => Ok(Self::Off),
            None => Err(Failure::Malformed("Get Chassis Status response")),
        }
    }
}

/// The actions of Chassis Control (§28.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerVerb {
    /// Turn the power on.
    On,
    /// Turn the power off at once.
    Off,
    /// Turn the power off, wait, turn it on.
    Cycle,
    /// Reset without turning the power off.
    Reset,
    /// Ask the operating system by ACPI to shut down.
    Soft,
}

/// The numbers of Chassis Control.
const VERBS: [(u8, PowerVerb); 5] = [
    (0, PowerVerb::Off),
    (1, PowerVerb::On),
    (2, PowerVerb::Cycle),
    (3, PowerVerb::Reset),
    (5, PowerVerb::Soft),
];

impl PowerVerb {
    pub(crate) fn code(self) -> u8 {
        VERBS.iter().find(|(_, verb)| *verb == self).map_or(0, |(code, _)| *code)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        VERBS.iter().find(|(known, _)| *known == code & 0x0f).map(|(_, verb)| *verb)
    }
}

impl std::fmt::Display for PowerVerb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Cycle => "cycle",
            Self::Reset => "reset",
            Self::Soft => "soft off",
        })
    }
}

/// The device that a machine boots next, in place of its own boot order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootDevice {
    /// No override: the machine's own order.
    None,
    /// The network, by PXE.
    Pxe,
    /// The machine's default disk.
    Disk,
}

/// Boot device selectors (§28.13, parameter 5, data 2).
const DEVICES: [(u8, BootDevice); 3] = [(0, BootDevice::None), (1, BootDevice::Pxe), (2, BootDevice::Disk)];

impl std::fmt::Display for BootDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Pxe => "pxe",
            Self::Disk => "disk",
        })
    }
}

/// The boot flags of System Boot Options (§28.13, parameter 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootOverride {
    /// The device to boot from.
    pub device: BootDevice,
    /// The override is for the next boot only; otherwise it stays until changed.
    pub once: bool,
    /// The override is for a UEFI boot; otherwise for a legacy boot.
    pub efi: bool,
}

impl BootOverride {
    /// No override of the boot order.
    pub const NONE: Self = Self { device: BootDevice::None, once: true, efi: false };

    /// Data 1 to 5 of parameter 5.
    pub(crate) fn encode(self) -> [u8; 5] {
        if self.device == BootDevice::None {
            return [0; 5];
        }
        let selector = DEVICES.iter().find(|(_, device)| *device == self.device).map_or(0, |(code, _)| *code);
        let valid = 0x80;
        let persistent = if self.once { 0 } else { 0x40 };
        let efi = if self.efi { 0x20 } else { 0 };
        [valid | persistent | efi, selector << 2, 0, 0, 0]
    }

    /// `None` for an unknown device, or too few octets.
    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        let [flags, device, ..] = reader.array::<5>()?;
        if flags & 0x80 == 0 {
            return Some(Self::NONE);
        }
        let selector = (device >> 2) & 0x0f;
        let (_, device) = DEVICES.iter().find(|(code, _)| *code == selector)?;
        Some(Self { device: *device, once: flags & 0x40 == 0, efi: flags & 0x20 != 0 })
    }
}

/// The numbers of boot option parameters (§28.12).
pub(crate) mod boot_parameter {
    /// The "set in progress" parameter.
    pub(crate) const SET_IN_PROGRESS: u8 = 0;
    /// The rule by which the BMC clears the boot flags' valid bit itself.
    pub(crate) const VALID_BIT_CLEARING: u8 = 3;
    /// The parties that have handled the boot information.
    pub(crate) const ACKNOWLEDGE: u8 = 4;
    /// The boot flags.
    pub(crate) const BOOT_FLAGS: u8 = 5;
}

/// The identity of a BMC, from Get Device ID (§20.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceId {
    /// Device id, assigned by the maker.
    pub device: u8,
    /// Firmware, major number.
    pub firmware_major: u8,
    /// Firmware, minor number.
    pub firmware_minor: u8,
    /// IPMI version, major and minor.
    pub ipmi_version: (u8, u8),
    /// IANA enterprise number of the maker.
    pub manufacturer: u32,
    /// Product id, assigned by the maker.
    pub product: u16,
}

impl DeviceId {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let [m0, m1, m2, _] = self.manufacturer.to_le_bytes();
        let [p0, p1] = self.product.to_le_bytes();
        let (major, minor) = self.ipmi_version;
        let bcd = |number: u8| (((number / 10) % 10) << 4) | (number % 10);
        let chassis_device = 0x80;
        vec![
            self.device,
            0x01,
            self.firmware_major & 0x7f,
            bcd(self.firmware_minor),
            (minor << 4) | (major & 0x0f),
            chassis_device,
            m0,
            m1,
            m2,
            p0,
            p1,
            0,
            0,
            0,
            0,
        ]
    }

    pub(crate) fn decode(data: &[u8]) -> Result<Self, Failure> {
        let mut reader = Reader::new(data);
        let [device, _revision, major, minor, version, _additional, m0, m1, m2, p0, p1] =
            reader.array().ok_or(Failure::Malformed("Get Device ID response"))?;
        Ok(Self {
            device,
            firmware_major: major & 0x7f,
            firmware_minor: (minor >> 4) * 10 + (minor & 0x0f),
            ipmi_version: (version & 0x0f, version >> 4),
            manufacturer: u32::from_le_bytes([m0, m1, m2 & 0x0f, 0]),
            product: u16::from_le_bytes([p0, p1]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_flags_say_pxe_once_by_efi() {
        let pxe = BootOverride { device: BootDevice::Pxe, once: true, efi: true };
        assert_eq!(pxe.encode(), [0xa0, 0x04, 0, 0, 0]);
        let disk = BootOverride { device: BootDevice::Disk, once: false, efi: false };
        assert_eq!(disk.encode(), [0xc0, 0x08, 0, 0, 0]);
        for each in [pxe, disk, BootOverride::NONE] {
            assert_eq!(BootOverride::decode(&each.encode()), Some(each));
        }
    }

    #[test]
    fn boot_flags_of_an_unknown_device_are_refused() {
        assert_eq!(BootOverride::decode(&[0x80, 0x3c, 0, 0, 0]), None);
        assert_eq!(BootOverride::decode(&[0x80, 0x04]), None);
    }

    #[test]
    fn a_device_id_survives_the_wire() {
        let id = DeviceId {
            device: 0x20,
            firmware_major: 9,
            firmware_minor: 42,
            ipmi_version: (2, 0),
            manufacturer: 0x0f_1234,
            product: 0x0f02,
        };
        assert_eq!(DeviceId::decode(&id.encode()), Ok(id));
    }
}
