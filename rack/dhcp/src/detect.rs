//! Detection of unknown DHCP servers: a DISCOVER that no client sends, and the servers that answer it.

use std::net::Ipv4Addr;

use dhcproto::v4::{MessageType, Opcode, OptionCode};

use crate::Mac;
use crate::egress::Message;
use crate::ingress;

/// Option 60 of such a DISCOVER. A [`Server`](crate::Server) does not answer it.
pub(crate) const CLASS: &[u8] = b"basalt-rack";

/// The datagram to broadcast to the port of servers. `mac` is the interface's own: answers are broadcast to the port of clients.
#[must_use]
pub fn discover(xid: u32, mac: Mac) -> Vec<u8> {
    let mut message = Message::request(MessageType::Discover, xid, mac);
    message.broadcast = true;
    message.option(OptionCode::ClassIdentifier, CLASS);
    message.encode()
}

/// The server that offers an address in answer to the DISCOVER of this transaction.
#[must_use]
pub fn offered_by(datagram: &[u8], xid: u32) -> Option<Ipv4Addr> {
    let packet = ingress::parse(datagram).ok()?;
    let is_answer = packet.op == Opcode::BootReply && packet.kind == MessageType::Offer && packet.xid == xid;
    let server = packet.options.ipv4(OptionCode::ServerIdentifier).filter(|it| !it.is_unspecified());
    server.filter(|_| is_answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressRange, Arrival, Config, Server, Subnet, Time};

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);

    #[test]
    fn a_server_that_offers_is_found_and_anything_else_is_not() {
        let offer = |kind, xid| {
            let mut message = Message::reply(kind, xid, MAC);
            message.option(OptionCode::ServerIdentifier, OTHER.octets());
            message.encode()
        };
        assert_eq!(offered_by(&offer(MessageType::Offer, 7), 7), Some(OTHER));
        assert_eq!(offered_by(&offer(MessageType::Offer, 8), 7), None);
        assert_eq!(offered_by(&offer(MessageType::Ack, 7), 7), None);
        assert_eq!(offered_by(&discover(7, MAC), 7), None, "what is asked is no answer");
        assert_eq!(offered_by(b"", 7), None);
    }

    #[test]
    fn servers_of_this_sort_leave_it_unanswered() {
        let mut subnet = Subnet::new("s1", "10.77.0.0/24".parse().unwrap());
        let (start, end) = (Ipv4Addr::new(10, 77, 0, 100), Ipv4Addr::new(10, 77, 0, 200));
        subnet.dynamic.push(AddressRange { start, end });
        let mut server = Server::new(Config { subnets: vec![subnet], ..Config::default() }).unwrap();
        let via = Arrival { interface: 1, local: Ipv4Addr::new(10, 77, 0, 2), unicast: false };
        let asked = ingress::parse(&discover(7, MAC)).unwrap();
        let actions = server.handle(Time(1), via, &asked);
        assert!(actions.iter().all(|it| matches!(it, crate::Action::Report(_))), "{actions:?}");
        assert_eq!(server.known(), 0);
    }
}
