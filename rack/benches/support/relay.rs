//! A relay on loopback, and the clients behind it.

use std::net::Ipv4Addr;

use basalt_dhcp::Mac;
use basalt_dhcp::egress::Message;
use dhcproto::v4::{MessageType, OptionCode};

/// The relay's address. Servers send to it on their own port.
pub(crate) const RELAY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

pub(crate) fn mac(number: u32) -> Mac {
    let [high, middle, low, lowest] = number.to_be_bytes();
    Mac([0x52, 0x54, high, middle, low, lowest])
}

/// A DISCOVER, or a REQUEST for the address that a server offered.
pub(crate) fn ask(number: u32, offered: Option<(Ipv4Addr, Ipv4Addr)>) -> Message {
    let kind = if offered.is_some() { MessageType::Request } else { MessageType::Discover };
    let mut message = Message::request(kind, number + 1, mac(number));
    message.giaddr = RELAY;
    if let Some((address, server)) = offered {
        message.option(OptionCode::RequestedIpAddress, address.octets());
        message.option(OptionCode::ServerIdentifier, server.octets());
    }
    message
}
