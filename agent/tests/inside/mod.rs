//! The connection to a BMC from inside, in the protocol of QEMU's `ipmi-bmc-extern`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use basalt_agent::bmc::{Command, Interface, Refusal};
use basalt_bmc::{BootOverride, ChassisBackend, CompletionCode, PowerState, PowerVerb};

/// A chassis that is switched on.
#[derive(Default)]
pub(crate) struct On(std::sync::Mutex<Option<BootOverride>>);

impl ChassisBackend for On {
    async fn power_status(&self) -> PowerState {
        PowerState::On
    }
    async fn control(&self, _: PowerVerb) -> Result<(), CompletionCode> {
        Ok(())
    }
    async fn boot_override(&self) -> BootOverride {
        self.0.lock().unwrap().unwrap_or(BootOverride::NONE)
    }
    async fn set_boot_override(&self, boot: BootOverride) -> Result<(), CompletionCode> {
        *self.0.lock().unwrap() = Some(boot);
        Ok(())
    }
}

/// The connection to it.
pub(crate) struct Inside(UnixStream);

impl Inside {
    pub(crate) fn connect(socket: &Path) -> Self {
        Self(UnixStream::connect(socket).unwrap())
    }

    fn octet(&mut self) -> u8 {
        let mut octet = [0];
        self.0.read_exact(&mut octet).expect("the BMC answers");
        octet[0]
    }
}

impl Interface for Inside {
    fn ask(&mut self, command: Command, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut message = [&[1, command.net_fn << 2, command.code], data].concat();
        message.push(message.iter().fold(0u8, |sum, octet| sum.wrapping_add(*octet)).wrapping_neg());
        let mut octets = Vec::new();
        for octet in message {
            match octet {
                0xa0 | 0xa1 | 0xaa => octets.extend([0xaa, octet | 0x10]),
                _ => octets.push(octet),
            }
        }
        octets.push(0xa0);
        self.0.write_all(&octets).expect("the BMC takes it");
        let mut answer = Vec::new();
        loop {
            match self.octet() {
                0xa0 => break,
                0xa1 => answer.clear(),
                0xaa => answer.push(self.octet() & !0x10),
                octet => answer.push(octet),
            }
        }
        match answer[3] {
            0 => Ok(answer[4..answer.len() - 1].to_vec()),
            code => Err(Refusal::Code(command, code)),
        }
    }
}
