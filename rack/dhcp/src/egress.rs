//! A message to bytes.
//!
//! Options leave in the order they were added: the message type first, as old boot ROMs expect, the relay's option 82
//! last (RFC 3046 §2.1). dhcproto's encoder sorts by code and cuts unknown options at 255 bytes, so it is not used.

use std::net::Ipv4Addr;

use dhcproto::v4::{MessageType, Opcode, OptionCode};

use crate::Mac;

/// BOOTP clients and some relays drop anything shorter (RFC 1542 §2.1).
const MIN_DATAGRAM: usize = 300;
const FILE_FIELD: usize = 128;
const BROADCAST_FLAG: u16 = 0x8000;

/// A DHCPv4 message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    op: Opcode,
    /// Relay hops; replies repeat the request's.
    pub hops: u8,
    /// Transaction id.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// The broadcast flag.
    pub broadcast: bool,
    /// The client's own address.
    pub ciaddr: Ipv4Addr,
    /// The address given.
    pub yiaddr: Ipv4Addr,
    /// The next server.
    pub siaddr: Ipv4Addr,
    /// The relay.
    pub giaddr: Ipv4Addr,
    /// The client.
    pub mac: Mac,
    /// The boot file or URL. One that does not fit the `file` field with its NUL goes to option 67 alone.
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

    /// A client's message.
    #[must_use]
    pub fn request(kind: MessageType, xid: u32, mac: Mac) -> Self {
        Self::new(Opcode::BootRequest, kind, xid, mac)
    }

    /// A server's message.
    #[must_use]
    pub fn reply(kind: MessageType, xid: u32, mac: Mac) -> Self {
        Self::new(Opcode::BootReply, kind, xid, mac)
    }

    /// Adds an option; one longer than 255 bytes is split (RFC 3396).
    pub fn option(&mut self, code: OptionCode, value: impl Into<Vec<u8>>) -> &mut Self {
        self.options.push((code.into(), value.into()));
        self
    }

    /// Adds an option of addresses; none when there are no addresses.
    pub fn addresses(&mut self, code: OptionCode, addresses: &[Ipv4Addr]) -> &mut Self {
        if !addresses.is_empty() {
            self.option(code, addresses.iter().flat_map(Ipv4Addr::octets).collect::<Vec<u8>>());
        }
        self
    }

    /// The datagram.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MIN_DATAGRAM * 2);
        out.extend([u8::from(self.op), 1, 6, self.hops]);
        out.extend(self.xid.to_be_bytes());
        out.extend(self.secs.to_be_bytes());
        out.extend(if self.broadcast { BROADCAST_FLAG } else { 0 }.to_be_bytes());
        for address in [self.ciaddr, self.yiaddr, self.siaddr, self.giaddr] {
            out.extend(address.octets());
        }
        out.extend(self.mac.0);
        out.extend([0; 10 + 64]);
        let fits = self.file.len() < FILE_FIELD;
        let file = if fits { self.file.as_slice() } else { &[] };
        out.extend(file);
        out.resize(out.len() + FILE_FIELD - file.len(), 0);
        out.extend([99, 130, 83, 99]);

        let bootfile = u8::from(OptionCode::BootfileName);
        let named = self.options.iter().any(|(code, _)| *code == bootfile);
        let (relay, own): (Vec<_>, Vec<_>) =
            self.options.iter().partition(|(code, _)| *code == u8::from(OptionCode::RelayAgentInformation));
        for (code, value) in own {
            write_option(&mut out, *code, value);
        }
        if !fits && !named {
            write_option(&mut out, bootfile, &self.file);
        }
        for (code, value) in relay {
            write_option(&mut out, *code, value);
        }
        out.push(OptionCode::End.into());
        out.resize(out.len().max(MIN_DATAGRAM), 0);
        out
    }
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
