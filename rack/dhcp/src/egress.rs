//! Encodes a message to bytes.
//!
//! The order of options:
//!
//! 1. the message type, as old boot ROMs expect it;
//! 2. the options that every client needs;
//! 3. the options that the client asked for, in its order (RFC 2132 §9.8);
//! 4. the rest, in the order in which they were added;
//! 5. the relay's option 82 (RFC 3046 §2.1).
//!
//! Options beyond the client's longest message go into `file` and `sname` (option 52). Options that do not fit there
//! are left out. dhcproto's encoder is not used: it sorts by code and cuts unknown options at 255 bytes.

use std::net::Ipv4Addr;

use dhcproto::v4::{MessageType, Opcode, OptionCode};

use crate::Mac;

/// BOOTP clients and some relays drop shorter datagrams (RFC 1542 §2.1).
const MIN_DATAGRAM: usize = 300;
const FILE_FIELD: usize = 128;
const SNAME_FIELD: usize = 64;
const HEADER: usize = 240;
const BROADCAST_FLAG: u16 = 0x8000;
/// The length of option 52 itself.
const OVERLOAD: usize = 3;
const FILE_IS_OPTIONS: u8 = 1;
const SNAME_IS_OPTIONS: u8 = 2;
/// Without these a client accepts no offer, or does not boot from it. The mask stands before the router (RFC 2132
/// §3.3).
const FIRST: [OptionCode; 8] = [
    OptionCode::MessageType,
    OptionCode::ServerIdentifier,
    OptionCode::AddressLeaseTime,
    OptionCode::Renewal,
    OptionCode::Rebinding,
    OptionCode::SubnetMask,
    OptionCode::ClassIdentifier,
    OptionCode::BootfileName,
];

/// A DHCPv4 message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    op: Opcode,
    /// Relay hops; replies repeat the request's.
    pub hops: u8,
    /// The transaction id, chosen by the client.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// The broadcast flag.
    pub broadcast: bool,
    /// The client's own address.
    pub ciaddr: Ipv4Addr,
    /// The address that the server gives.
    pub yiaddr: Ipv4Addr,
    /// The next server of the boot process.
    pub siaddr: Ipv4Addr,
    /// The address of the relay agent; unspecified without one.
    pub giaddr: Ipv4Addr,
    /// The hardware address of the client.
    pub mac: Mac,
    /// The boot file or URL. If it does not fit the `file` field with its NUL, it goes into option 67 only.
    pub file: Vec<u8>,
    options: Vec<(u8, Vec<u8>)>,
}

impl Message {
    fn new(op: Opcode, kind: MessageType, xid: u32, mac: Mac) -> Self {
        let none = Ipv4Addr::UNSPECIFIED;
        Self {
            op,
            hops: 0,
            xid,
            secs: 0,
            broadcast: false,
            ciaddr: none,
            yiaddr: none,
            siaddr: none,
            giaddr: none,
            mac,
            file: Vec::new(),
            options: vec![(OptionCode::MessageType.into(), vec![kind.into()])],
        }
    }

    /// A message from a client.
    #[must_use]
    pub fn request(kind: MessageType, xid: u32, mac: Mac) -> Self {
        Self::new(Opcode::BootRequest, kind, xid, mac)
    }

    /// A message from a server.
    #[must_use]
    pub fn reply(kind: MessageType, xid: u32, mac: Mac) -> Self {
        Self::new(Opcode::BootReply, kind, xid, mac)
    }

    /// Adds an option. A value longer than 255 bytes is split (RFC 3396).
    pub fn option(&mut self, code: OptionCode, value: impl Into<Vec<u8>>) -> &mut Self {
        self.options.push((code.into(), value.into()));
        self
    }

    /// True if an option of this code was added.
    #[must_use]
    pub fn has(&self, code: OptionCode) -> bool {
        self.options.iter().any(|(it, _)| *it == u8::from(code))
    }

    /// Adds an option of addresses, or nothing if the list is empty.
    pub fn addresses(&mut self, code: OptionCode, addresses: &[Ipv4Addr]) -> &mut Self {
        if !addresses.is_empty() {
            self.option(code, addresses.iter().flat_map(Ipv4Addr::octets).collect::<Vec<u8>>());
        }
        self
    }

    /// The datagram, with all options in the order in which they were added.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.lay_out(&self.own_options(), usize::MAX).0
    }

    /// The datagram for a client that asked for these options and accepts messages up to this length in bytes. Only the
    /// relay's option, which the relay removes, may make it longer. Also returns the options that did not fit.
    #[must_use]
    pub fn encode_for(&self, asked: &[u8], longest: usize) -> (Vec<u8>, Vec<u8>) {
        let mut options = self.own_options();
        let rank = |code: u8| {
            let first = FIRST.iter().position(|&it| u8::from(it) == code);
            let asked = asked.iter().position(|&it| it == code);
            first.or(asked.map(|at| FIRST.len() + at)).unwrap_or(usize::MAX)
        };
        options.sort_by_key(|(code, _)| rank(*code));
        self.lay_out(&options, longest)
    }

    /// All options except the relay's. If the boot file does not fit its field, it is added as option 67.
    fn own_options(&self) -> Vec<(u8, &[u8])> {
        let bootfile = u8::from(OptionCode::BootfileName);
        let own =
            self.options.iter().filter(|(code, _)| *code != u8::from(OptionCode::RelayAgentInformation));
        let mut own: Vec<(u8, &[u8])> = own.map(|(code, value)| (*code, value.as_slice())).collect();
        if !self.file_fits() && own.iter().all(|(code, _)| *code != bootfile) {
            own.push((bootfile, &self.file));
        }
        own
    }

    fn file_fits(&self) -> bool {
        self.file.len() < FILE_FIELD
    }

    /// The datagram, and the options that did not fit.
    fn lay_out(&self, own: &[(u8, &[u8])], longest: usize) -> (Vec<u8>, Vec<u8>) {
        let mut relay = Vec::new();
        for (code, value) in &self.options {
            if *code == u8::from(OptionCode::RelayAgentInformation) {
                write_option(&mut relay, *code, value);
            }
        }
        let room = longest.saturating_sub(HEADER + relay.len() + 1);
        let whole: usize = own.iter().map(|(_, value)| written(value)).sum();
        let named = self.file_fits() && !self.file.is_empty();
        // Each field that carries options ends with option 255.
        let mut fields = if whole <= room {
            vec![Field::new(0, room)]
        } else {
            let file = if named { 0 } else { FILE_FIELD - 1 };
            vec![
                Field::new(0, room.saturating_sub(OVERLOAD)),
                Field::new(FILE_IS_OPTIONS, file),
                Field::new(SNAME_IS_OPTIONS, SNAME_FIELD - 1),
            ]
        };
        let mut left_out = Vec::new();
        for (code, value) in own {
            match fields.iter_mut().find(|field| written(value) <= field.room) {
                Some(field) => {
                    field.room -= written(value);
                    write_option(&mut field.bytes, *code, value);
                }
                None => left_out.push(*code),
            }
        }
        let overload = fields.iter().filter(|it| !it.bytes.is_empty()).fold(0, |all, it| all | it.overload);
        let mut take = |overload: u8| {
            let field = fields.iter_mut().find(|it| it.overload == overload);
            field.map(|it| std::mem::take(&mut it.bytes)).unwrap_or_default()
        };
        let (options, mut file, mut sname) = (take(0), take(FILE_IS_OPTIONS), take(SNAME_IS_OPTIONS));
        for field in [&mut file, &mut sname].into_iter().filter(|it| !it.is_empty()) {
            field.push(OptionCode::End.into());
        }
        if named {
            file.clone_from(&self.file);
        }

        let mut out = Vec::with_capacity(MIN_DATAGRAM * 2);
        out.extend([u8::from(self.op), 1, 6, self.hops]);
        out.extend(self.xid.to_be_bytes());
        out.extend(self.secs.to_be_bytes());
        out.extend(if self.broadcast { BROADCAST_FLAG } else { 0 }.to_be_bytes());
        for address in [self.ciaddr, self.yiaddr, self.siaddr, self.giaddr] {
            out.extend(address.octets());
        }
        out.extend(self.mac.0);
        out.extend([0; 10]);
        sname.resize(SNAME_FIELD, 0);
        file.resize(FILE_FIELD, 0);
        out.extend(sname);
        out.extend(file);
        out.extend([99, 130, 83, 99]);
        out.extend(options);
        if overload != 0 {
            write_option(&mut out, OptionCode::OptionOverload.into(), &[overload]);
        }
        out.extend(relay);
        out.push(OptionCode::End.into());
        out.resize(out.len().max(MIN_DATAGRAM), 0);
        (out, left_out)
    }
}

/// A part of the message that carries options.
struct Field {
    /// The field's bit in option 52; 0 for the options field itself.
    overload: u8,
    room: usize,
    bytes: Vec<u8>,
}

impl Field {
    const fn new(overload: u8, room: usize) -> Self {
        Self { overload, room, bytes: Vec::new() }
    }
}

/// The number of bytes that [`write_option`] writes.
fn written(value: &[u8]) -> usize {
    value.len() + 2 * value.len().div_ceil(usize::from(u8::MAX)).max(1)
}

fn write_option(out: &mut Vec<u8>, code: u8, value: &[u8]) {
    if value.is_empty() {
        out.extend([code, 0]);
    }
    for part in value.chunks(usize::from(u8::MAX)) {
        out.push(code);
        out.push(u8::try_from(part.len()).unwrap_or(u8::MAX));
        out.extend(part);
    }
}
