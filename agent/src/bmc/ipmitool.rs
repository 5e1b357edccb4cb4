//! Sends commands to the kernel's IPMI device by `ipmitool raw`: a direct call of the device would need unsafe code.

use std::path::PathBuf;
use std::time::Instant;

use super::{Command, Interface, Refusal};
use crate::root::Root;
use crate::{deadlines, tool};

/// Completion codes for temporary errors (§5.2): busy, and timed out.
const PASSING: [u8; 2] = [0xc0, 0xc3];
/// Most transmissions of a command to a busy BMC.
const TRIES: u32 = 10;

/// The kernel's device.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// No command starts after this time.
    end: Instant,
}

impl Kernel {
    /// Restarts the time limit for commands.
    pub fn begin(&mut self) {
        self.end = Instant::now() + deadlines::BMC;
    }

    /// The device, if the kernel has one.
    #[must_use]
    pub fn find(root: &Root) -> Option<Self> {
        let devices = ["dev/ipmi0", "dev/ipmi/0", "dev/ipmidev/0"];
        devices
            .iter()
            .any(|device| root.exists(PathBuf::from(device)))
            .then(|| Self { end: Instant::now() + deadlines::BMC })
    }
}

impl Interface for Kernel {
    fn ask(&mut self, command: Command, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        let octets = [&[command.net_fn, command.code], data].concat();
        let octets: Vec<String> = octets.iter().map(|octet| format!("0x{octet:02x}")).collect();
        let mut arguments = vec!["-I", "open", "raw"];
        arguments.extend(octets.iter().map(String::as_str));
        for _ in 1..TRIES {
            match self.send(command, &arguments) {
                Err(Refusal::Code(_, code)) if PASSING.contains(&code) => {
                    std::thread::sleep(deadlines::BMC_BUSY)
                }
                other => return other,
            }
        }
        self.send(command, &arguments)
    }
}

impl Kernel {
    fn send(self, command: Command, arguments: &[&str]) -> Result<Vec<u8>, Refusal> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let why = format!("it took longer than {} s for the commands before", deadlines::BMC.as_secs());
            return Err(Refusal::Silent(command, why));
        }
        // Arguments may contain passwords, so they are not logged.
        match tool::run_unlogged("ipmitool", arguments, left) {
            Ok(output) => read_octets(&output)
                .ok_or_else(|| Refusal::Silent(command, format!("ipmitool said {output:?}"))),
            Err(said) => Err(match code(&said) {
                Some(code) => Refusal::Code(command, code),
                None => Refusal::Silent(command, said),
            }),
        }
    }
}

/// Parses octets in hexadecimal, on several lines.
fn read_octets(output: &str) -> Option<Vec<u8>> {
    output.split_ascii_whitespace().map(|octet| u8::from_str_radix(octet, 16).ok()).collect()
}

/// The completion code in `Unable to send RAW command (channel=0x0 netfn=0x6 lun=0x0 cmd=0x46 rsp=0xcc): …`.
fn code(said: &str) -> Option<u8> {
    let (_, rest) = said.split_once("rsp=0x")?;
    let digits: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
    u8::from_str_radix(&digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipmitool_is_understood() {
        assert_eq!(read_octets(" 11 0a 4d 00 65\n").unwrap(), [0x11, 0x0a, 0x4d, 0x00, 0x65]);
        assert!(read_octets("\n").unwrap().is_empty());
        assert_eq!(read_octets("Get Device ID failed"), None);
        let said = "Unable to send RAW command (channel=0x0 netfn=0x6 lun=0x0 cmd=0x46 rsp=0xcc): Invalid data field in request";
        assert_eq!(code(said), Some(0xcc));
        assert_eq!(code("Could not open device at /dev/ipmi0"), None);
    }
}
