//! Encodes a reply to bytes, and wraps it for the relays that its request passed.

use std::net::Ipv6Addr;

use dhcproto::v6::{MessageType, OptionCode, Status};

use super::Duid;
use super::ingress::{Association, Kind, Packet};

/// Sub-option 1 of option 56: a server's address (RFC 5908 §4.1).
const NTP_SERVER_ADDRESS: u16 = 1;

/// A DHCPv6 message to be sent.
#[derive(Debug)]
pub(super) struct Reply {
    bytes: Vec<u8>,
}

impl Reply {
    /// A reply with the client and server identifiers that every reply has (RFC 8415 §16).
    pub(super) fn to(packet: &Packet, kind: MessageType, server: &Duid) -> Self {
        let mut bytes = vec![kind.into()];
        bytes.extend(packet.xid);
        let mut reply = Self { bytes };
        if let Some(client) = packet.options.raw(OptionCode::ClientId) {
            reply.option(OptionCode::ClientId, client);
        }
        reply.option(OptionCode::ServerId, server.as_bytes());
        reply
    }

    pub(super) fn option(&mut self, code: OptionCode, value: &[u8]) {
        put(&mut self.bytes, code.into(), value);
    }

    pub(super) fn status(&mut self, status: Status, message: &str) {
        self.option(OptionCode::StatusCode, &status_value(status, message));
    }

    /// Adds an option of addresses, or nothing if the list is empty.
    pub(super) fn addresses(&mut self, code: OptionCode, addresses: &[Ipv6Addr]) {
        if !addresses.is_empty() {
            let value: Vec<u8> = addresses.iter().flat_map(Ipv6Addr::octets).collect();
            self.option(code, &value);
        }
    }

    /// Adds option 56: NTP servers by address.
    pub(super) fn ntp(&mut self, servers: &[Ipv6Addr]) {
        let mut value = Vec::new();
        for server in servers {
            put(&mut value, NTP_SERVER_ADDRESS, &server.octets());
        }
        if !value.is_empty() {
            self.option(OptionCode::NtpServer, &value);
        }
    }

    /// Adds an identity association: addresses with lifetimes in seconds (0: stop using it), and its status.
    pub(super) fn association(
        &mut self,
        asked: &Association,
        addresses: &[(Ipv6Addr, u32)],
        status: Option<(Status, &str)>,
    ) {
        let mut value = asked.iaid.to_be_bytes().to_vec();
        if asked.kind != Kind::Temporary {
            let lifetime = addresses.iter().map(|(_, seconds)| *seconds).filter(|seconds| *seconds > 0).min();
            let lifetime = lifetime.unwrap_or_default();
            // T1 and T2 at 0.5 and 0.8 of the lifetime (RFC 8415 §21.4).
            value.extend((lifetime / 2).to_be_bytes());
            value.extend((lifetime - lifetime / 5).to_be_bytes());
        }
        for (address, seconds) in addresses {
            let preferred = seconds.to_be_bytes();
            put(
                &mut value,
                OptionCode::IAAddr.into(),
                &[address.octets().as_slice(), &preferred, &preferred].concat(),
            );
        }
        if let Some((status, message)) = status {
            put(&mut value, OptionCode::StatusCode.into(), &status_value(status, message));
        }
        let code = match asked.kind {
            Kind::Address => OptionCode::IANA,
            Kind::Temporary => OptionCode::IATA,
            Kind::Prefix => OptionCode::IAPD,
        };
        self.option(code, &value);
    }

    /// The datagram, wrapped once for each relay with the interface-id that the relay sent (RFC 8415 §19.3). The relay
    /// next to the client is innermost.
    pub(super) fn wrapped(self, packet: &Packet) -> Vec<u8> {
        packet.relays.iter().rev().fold(self.bytes, |inner, relay| {
            let mut bytes = vec![MessageType::RelayRepl.into(), relay.hops];
            bytes.extend(relay.link.octets());
            bytes.extend(relay.peer.octets());
            if let Some(interface) = relay.options.raw(OptionCode::InterfaceId) {
                put(&mut bytes, OptionCode::InterfaceId.into(), interface);
            }
            put(&mut bytes, OptionCode::RelayMsg.into(), &inner);
            bytes
        })
    }
}

/// Names in DNS wire format, one after the other, not compressed (RFC 8415 §10).
pub(super) fn names(domains: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    for domain in domains {
        labels(&mut out, domain);
        out.push(0);
    }
    out
}

/// The labels of one name.
pub(super) fn labels(out: &mut Vec<u8>, name: &str) {
    for label in name.split('.') {
        out.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        out.extend(label.as_bytes());
    }
}

fn status_value(status: Status, message: &str) -> Vec<u8> {
    [u16::from(status).to_be_bytes().as_slice(), message.as_bytes()].concat()
}

/// Writes an option. A value over 65,535 bytes is left out.
fn put(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let Ok(length) = u16::try_from(value.len()) else { return };
    out.extend(code.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend(value);
}
