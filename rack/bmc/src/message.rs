//! IPMI LAN messages (§13.8) and completion codes (§5.2).

use crate::error::Failure;
use crate::wire::Reader;

/// The BMC's address on its own bus.
const BMC: u8 = 0x20;
/// The address of remote console software.
const CONSOLE: u8 = 0x81;

/// A command's numbers in the specification, and its name for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId {
    /// Network function of the request; the response has it plus one.
    pub net_fn: u8,
    /// The number of the command.
    pub command: u8,
    /// Its name in the specification.
    pub name: &'static str,
}

/// A request: a command and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command to carry out.
    pub id: CommandId,
    /// Request data, without netFn, command and checksums.
    pub data: Vec<u8>,
}

/// A response to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The completion code.
    pub code: CompletionCode,
    /// Response data after the completion code.
    pub data: Vec<u8>,
}

/// The result of a command, as the BMC states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionCode(pub u8);

impl CompletionCode {
    /// The command was done.
    pub const OK: Self = Self(0x00);
    /// The BMC is busy; the same request may succeed later.
    pub const NODE_BUSY: Self = Self(0xc0);
    /// The BMC does not know this command.
    pub const INVALID_COMMAND: Self = Self(0xc1);
    /// The request data has the wrong length.
    pub const BAD_LENGTH: Self = Self(0xc7);
    /// A parameter of the request has a value that does not exist on this BMC.
    pub const OUT_OF_RANGE: Self = Self(0xc9);
    /// A field of the request has a value it may not have.
    pub const INVALID_FIELD: Self = Self(0xcc);
    /// The session's privilege does not suffice.
    pub const INSUFFICIENT_PRIVILEGE: Self = Self(0xd4);
    /// The command is not possible in the machine's present state.
    pub const NOT_IN_THIS_STATE: Self = Self(0xd5);
    /// Get and Set Boot Options: the parameter is not supported (§28.12).
    pub const PARAMETER_NOT_SUPPORTED: Self = Self(0x80);
    /// An error without a more specific code.
    pub const UNSPECIFIED: Self = Self(0xff);

    /// The code as text.
    #[must_use]
    pub fn words(self) -> &'static str {
        COMPLETION_CODES
            .iter()
            .find(|(code, _)| *code == self.0)
            .map_or("a code of its own", |(_, words)| words)
    }
}

impl std::fmt::Display for CompletionCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (0x{:02x})", self.words(), self.0)
    }
}

/// Table 5-2, and the command-specific codes of the commands used here.
const COMPLETION_CODES: [(u8, &str); 25] = [
    (0x00, "done"),
    (0x80, "parameter not supported"),
    (0x81, "session id or parameter refused"),
    (0x82, "parameter is read-only"),
    (0xc0, "the BMC is busy"),
    (0xc1, "unknown command"),
    (0xc2, "command not valid for this LUN"),
    (0xc3, "the BMC timed out while doing it"),
    (0xc4, "the BMC is out of space"),
    (0xc5, "reservation cancelled"),
    (0xc6, "request data cut short"),
    (0xc7, "wrong length of request data"),
    (0xc8, "request data too long"),
    (0xc9, "parameter out of range"),
    (0xca, "cannot return so many bytes"),
    (0xcb, "no such sensor, data or record"),
    (0xcc, "invalid data field in the request"),
    (0xcd, "not valid for this sensor or record"),
    (0xce, "no response could be given"),
    (0xcf, "duplicate request"),
    (0xd1, "the BMC is updating its firmware"),
    (0xd2, "the BMC is initialising"),
    (0xd4, "insufficient privilege"),
    (0xd5, "not possible in the present state"),
    (0xff, "unspecified error"),
];

/// A request in its wire format.
pub(crate) struct WireRequest<'a> {
    pub(crate) net_fn: u8,
    pub(crate) command: u8,
    /// 0 to 63. With netFn and command it identifies the exchange.
    pub(crate) sequence: u8,
    pub(crate) data: &'a [u8],
}

/// A response in its wire format.
pub(crate) struct WireResponse<'a> {
    pub(crate) net_fn: u8,
    pub(crate) command: u8,
    pub(crate) sequence: u8,
    pub(crate) code: CompletionCode,
    pub(crate) data: &'a [u8],
}

/// Two's complement of the sum: all octets with it add up to zero.
pub(crate) fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)).wrapping_neg()
}

fn encode(to: u8, net_fn: u8, from: u8, sequence: u8, command: u8, tail: &[&[u8]]) -> Vec<u8> {
    let head = [to, net_fn << 2];
    let mut second = vec![from, sequence << 2, command];
    for part in tail {
        second.extend_from_slice(part);
    }
    let mut message = Vec::with_capacity(second.len() + 4);
    message.extend_from_slice(&head);
    message.push(checksum(&head));
    message.extend_from_slice(&second);
    message.push(checksum(&second));
    message
}

pub(crate) fn encode_request(request: &Request, sequence: u8) -> Vec<u8> {
    encode(BMC, request.id.net_fn, CONSOLE, sequence, request.id.command, &[&request.data])
}

/// Encodes the answer to the request with this netFn, command and sequence.
pub(crate) fn encode_response(net_fn: u8, command: u8, sequence: u8, response: &Response) -> Vec<u8> {
    encode(CONSOLE, net_fn | 1, BMC, sequence, command, &[&[response.code.0], &response.data])
}

/// The netFn, sequence, command and data of a message whose checksums are right.
fn decode(message: &[u8]) -> Option<(u8, u8, u8, &[u8])> {
    if checksum(message.get(..3)?) != 0 || checksum(message.get(3..)?) != 0 {
        return None;
    }
    let mut reader = Reader::new(message);
    let [_to, net_fn, _checksum, _from, sequence, command] = reader.array()?;
    let (_checksum, data) = reader.rest().split_last()?;
    Some((net_fn >> 2, sequence >> 2, command, data))
}

pub(crate) fn decode_request(message: &[u8]) -> Result<WireRequest<'_>, Failure> {
    match decode(message) {
        Some((net_fn, sequence, command, data)) if net_fn & 1 == 0 => {
            Ok(WireRequest { net_fn, command, sequence, data })
        }
        _ => Err(Failure::Malformed("IPMI request")),
    }
}

pub(crate) fn decode_response(message: &[u8]) -> Result<WireResponse<'_>, Failure> {
    let malformed = Failure::Malformed("IPMI response");
    let Some((net_fn, sequence, command, tail)) = decode(message) else {
        return Err(malformed);
    };
    match tail.split_first() {
        Some((code, data)) if net_fn & 1 == 1 => {
            Ok(WireResponse { net_fn, command, sequence, code: CompletionCode(*code), data })
        }
        _ => Err(malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    #[test]
    fn get_device_id_has_the_bytes_of_the_specification() {
        let request = Request { id: command::GET_DEVICE_ID, data: vec![] };
        assert_eq!(encode_request(&request, 1), [0x20, 0x18, 0xc8, 0x81, 0x04, 0x01, 0x7a]);
    }

    #[test]
    fn a_flipped_bit_anywhere_is_refused() {
        let response = Response { code: CompletionCode::OK, data: vec![1, 2, 3] };
        let good = encode_response(0, 1, 9, &response);
        assert!(decode_response(&good).is_ok());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(decode_response(&bad).is_err(), "octet {at}");
        }
    }

    #[test]
    fn completion_codes_speak() {
        assert_eq!(CompletionCode(0xd4).to_string(), "insufficient privilege (0xd4)");
        assert_eq!(CompletionCode(0x55).to_string(), "a code of its own (0x55)");
    }
}
