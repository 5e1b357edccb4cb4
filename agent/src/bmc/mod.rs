//! The machine's BMC, seen from inside (IPMI 2.0): its firmware, its address, and an account on it.
//!
//! | module | does |
//! | --- | --- |
//! | `ipmitool` | sends commands through the kernel's device |
//! | `found` | reads what the BMC is; changes nothing |
//! | `host_interface` | the Redfish host interface that the firmware describes |
//! | `host_network` | the network device of that interface, and its address |
//! | `redfish` | the account by Redfish, with a bootstrap account |
//! | `account` | makes the account that the task asks for, by IPMI |
//! | `password` | passwords in the shapes that vendors take |

pub mod account;
pub mod found;
pub mod host_interface;
pub mod host_network;
mod ipmitool;
mod password;
pub mod redfish;

pub use ipmitool::Kernel;

use std::fmt;

use basalt_api::agent::{Bmc, BmcAccount, BmcDriver, BmcSetup};

/// A command, by its place in the tables of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Network function, the first number of a command (§5.1).
    pub net_fn: u8,
    /// Number of the command within its network function.
    pub code: u8,
    /// Its name in the specification.
    pub name: &'static str,
}

const fn app(code: u8, name: &'static str) -> Command {
    Command { net_fn: 0x06, code, name }
}

const GET_DEVICE_ID: Command = app(0x01, "Get Device ID");
const SET_CHANNEL_ACCESS: Command = app(0x40, "Set Channel Access");
const GET_CHANNEL_ACCESS: Command = app(0x41, "Get Channel Access");
const GET_CHANNEL_INFO: Command = app(0x42, "Get Channel Info");
const SET_USER_ACCESS: Command = app(0x43, "Set User Access");
const GET_USER_ACCESS: Command = app(0x44, "Get User Access");
const SET_USER_NAME: Command = app(0x45, "Set User Name");
const GET_USER_NAME: Command = app(0x46, "Get User Name");
const SET_USER_PASSWORD: Command = app(0x47, "Set User Password");
const SET_BOOT_OPTIONS: Command = Command { net_fn: 0x00, code: 0x08, name: "Set System Boot Options" };
const GET_LAN_PARAMETER: Command =
    Command { net_fn: 0x0c, code: 0x02, name: "Get LAN Configuration Parameters" };

/// A command of the group that DSP0270 §9.2 defines.
const GET_BOOTSTRAP_ACCOUNT: Command =
    Command { net_fn: 0x2c, code: 0x02, name: "Get Bootstrap Account Credentials" };

/// The reason why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The BMC refused it with a completion code (§5.2).
    Code(Command, u8),
    /// The BMC did not answer.
    Silent(Command, String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(command, code) => {
                write!(f, "the BMC refuses {}: {} (0x{code:02x})", command.name, words(*code))
            }
            Self::Silent(command, why) => write!(f, "the BMC does not answer {}: {why}", command.name),
        }
    }
}

/// Explanation of a completion code for a person.
fn words(code: u8) -> &'static str {
    match code {
        0xc0 => "it is busy",
        0xc1 => "it does not know the command",
        0xc3 => "it timed out",
        0xc7 | 0xc8 => "wrong length",
        0xc9 => "parameter out of range",
        0xcb => "not there",
        0xcc => "invalid value",
        0xd4 => "insufficient privilege; its lockdown mode may be on",
        0xd5 => "not possible now; its lockdown mode may be on",
        _ => "a code of its own",
    }
}

/// A connection to a BMC.
pub trait Interface {
    /// Sends a command; its data without the completion code.
    ///
    /// # Errors
    /// A completion code other than 0, or silence.
    fn ask(&mut self, command: Command, data: &[u8]) -> Result<Vec<u8>, Refusal>;
}

/// For a machine without UEFI: sets the network as the device of the next boot (IPMI 2.0 §28.12, parameter 5: the flags are valid, PXE).
///
/// # Errors
/// The BMC refuses, or is silent.
pub fn boot_from_network(bmc: &mut impl Interface) -> Result<(), Refusal> {
    bmc.ask(SET_BOOT_OPTIONS, &[0x05, 0x80, 0x04, 0x00, 0x00, 0x00]).map(drop)
}

/// Makes the account by the best available protocol: Redfish with a bootstrap account, then IPMI. `promise` stores each password before the
/// BMC gets it. `found` has the known facts of the BMC.
///
/// # Errors
/// The message has for each protocol the reason why there is no account, and a remedy.
pub fn set_up(
    mut kernel: Option<&mut impl Interface>,
    redfish: Option<&mut Result<redfish::Found, String>>,
    wanted: &BmcSetup,
    purpose: &str,
    uuid: &str,
    found: &mut Option<Bmc>,
    promise: &mut dyn FnMut(&BmcAccount) -> Result<(), String>,
) -> Result<BmcAccount, String> {
    let may = |driver| wanted.driver.is_none_or(|wanted| wanted == driver);
    let mut reasons = Vec::new();
    if may(BmcDriver::Redfish) {
        match (redfish, kernel.as_deref_mut()) {
            (Some(Ok(service)), Some(kernel)) => {
                match service.set_up(kernel, wanted, purpose, uuid, found.get_or_insert_default(), promise) {
                    Ok(account) => return Ok(account),
                    Err(why) => reasons.push(format!("by Redfish: {why}")),
                }
            }
            (Some(Ok(_)), None) => reasons.push(format!("by Redfish: {NO_DEVICE}")),
            (Some(Err(why)), _) => reasons.push(format!("by Redfish: {why}")),
            (None, _) if wanted.driver.is_some() => reasons.push(
                "by Redfish: the firmware describes no Redfish host interface (SMBIOS type 42): turn it on in the BMC's settings, or declare an account in bmc".to_owned(),
            ),
            (None, _) => {}
        }
    }
    if may(BmcDriver::Ipmi) {
        let made = kernel.ok_or_else(|| NO_DEVICE.to_owned());
        match made.and_then(|kernel| account::set_up(kernel, wanted, purpose, promise)) {
            Ok(account) => return Ok(account),
            Err(why) if reasons.is_empty() => reasons.push(why),
            Err(why) => reasons.push(format!("by IPMI: {why}")),
        }
    }
    Err(reasons.join("; "))
}

const NO_DEVICE: &str = "the machine shows no BMC to its system (no /dev/ipmi0): turn on the BMC's interface to the host, or declare an account in bmc";
