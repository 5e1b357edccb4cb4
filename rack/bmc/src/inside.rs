//! The BMC as its own machine sees it: the serial protocol of QEMU's `ipmi-bmc-extern` and OpenIPMI's simulator.
//!
//! A message consists of an id, netFn and LUN, the command, data (in a response after the completion code), and a
//! checksum over all of it. Then follows [`END`]. Octets before a [`COMMAND_END`] are about the machine itself: reset,
//! power, interrupts.

use crate::message::checksum;

/// Ends a message.
const END: u8 = 0xa0;
/// Ends a command about the machine.
const COMMAND_END: u8 = 0xa1;
/// Escapes the next octet: one of these three with bit 4 set.
const ESCAPE: u8 = 0xaa;
const ESCAPED_BIT: u8 = 0x10;
/// The longest message accepted, in octets; IPMI's are far shorter.
const LONGEST: usize = 512;

/// A request from the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FromMachine {
    /// The number of the exchange.
    pub(crate) id: u8,
    /// Network function, without the LUN.
    pub(crate) net_fn: u8,
    /// The number of the command.
    pub(crate) command: u8,
    /// The command's data.
    pub(crate) data: Vec<u8>,
}

/// Takes octets and returns complete requests. Damaged messages are dropped.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    held: Vec<u8>,
    escaped: bool,
    overlong: bool,
}

impl Decoder {
    /// Takes one octet.
    pub(crate) fn take(&mut self, octet: u8) -> Option<FromMachine> {
        match octet {
            END => {
                let held = std::mem::take(&mut self.held);
                let whole = !std::mem::take(&mut self.escaped) && !std::mem::take(&mut self.overlong);
                return whole.then(|| decode(&held)).flatten();
            }
            COMMAND_END => *self = Self::default(),
            ESCAPE => self.escaped = true,
            _ if self.held.len() >= LONGEST => self.overlong = true,
            _ => {
                let mask = if std::mem::take(&mut self.escaped) { !ESCAPED_BIT } else { 0xff };
                self.held.push(octet & mask);
            }
        }
        None
    }
}

fn decode(message: &[u8]) -> Option<FromMachine> {
    let [id, net_fn, command, data @ .., _checksum] = message else { return None };
    (checksum(message) == 0).then(|| FromMachine {
        id: *id,
        net_fn: net_fn >> 2,
        command: *command,
        data: data.to_vec(),
    })
}

/// The answer to `request`: completion code, data.
pub(crate) fn encode(request: &FromMachine, code: u8, data: &[u8]) -> Vec<u8> {
    let head = [request.id, (request.net_fn | 1) << 2, request.command, code];
    let mut message = [&head[..], data].concat();
    message.push(checksum(&message));
    let mut octets = Vec::with_capacity(message.len() + 2);
    for octet in message {
        match octet {
            END | COMMAND_END | ESCAPE => octets.extend([ESCAPE, octet | ESCAPED_BIT]),
            _ => octets.push(octet),
        }
    }
    octets.push(END);
    octets
}

/// The first octets: version 1 of the protocol, and no capability for power, reset or interrupts.
pub(crate) const GREETING: [u8; 6] = [0xff, 0x01, COMMAND_END, 0x08, 0x00, COMMAND_END];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(octets: &[u8]) -> Vec<FromMachine> {
        let mut decoder = Decoder::default();
        octets.iter().filter_map(|octet| decoder.take(*octet)).collect()
    }

    #[test]
    fn get_device_id_as_qemu_sends_it() {
        // After the commands of a start: version 1, a reset.
        let octets = [0xff, 0x01, 0xa1, 0x04, 0xa1, 0x05, 0x18, 0x01, 0xe2, 0xa0];
        let asked = FromMachine { id: 5, net_fn: 6, command: 1, data: vec![] };
        assert_eq!(read(&octets), std::slice::from_ref(&asked));
        let damaged = [0x05, 0x18, 0x01, 0xe3, 0xa0];
        assert_eq!(read(&damaged), []);
        assert_eq!(encode(&asked, 0, &[0xa0]), [5, 0x1c, 1, 0, 0xaa, 0xb0, 0x3e, 0xa0]);
    }

    proptest! {
        #[test]
        fn nothing_is_too_much(octets in proptest::collection::vec(any::<u8>(), 0..2000)) {
            read(&octets);
        }
    }
}
