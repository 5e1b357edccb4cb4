//! A subnet, clients, and short functions to talk to the server.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use basalt_dhcp::egress::Message;
use basalt_dhcp::ingress::{self, Packet};
use basalt_dhcp::{
    Action, AddressRange, Architecture, Arrival, Config, Declared, Destination, Event, Ignored, Lease, Mac,
    Reservation, Server, Subnet, Time,
};
use dhcproto::v4::{MessageType, OptionCode};
use ipnet::Ipv4Net;

pub(crate) const START: Time = Time(1_700_000_000_000);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
pub(crate) const LINK: Arrival = Arrival { interface: 3, local: SERVER, unicast: false };

pub(crate) fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, last)
}

pub(crate) fn net() -> Ipv4Net {
    "10.77.0.0/24".parse().unwrap()
}

pub(crate) fn mac(last: u8) -> Mac {
    Mac([0x52, 0x54, 0, 0, 0, last])
}

/// A declaration of one machine.
pub(crate) fn declared(client: u8, architecture: Architecture) -> Declared {
    HashMap::from([(mac(client), architecture)]).into()
}

pub(crate) fn reservation(client: u8, address: u8) -> Reservation {
    Reservation { mac: mac(client), address: ip(address), hostname: None, boot: None }
}

/// 10.77.0.0/24, dynamic addresses .100 to .103.
pub(crate) fn subnet() -> Subnet {
    let mut subnet = Subnet::new("lab", "10.77.0.0/24".parse().unwrap());
    subnet.gateway = Some(ip(1));
    subnet.dns_servers = vec![ip(2), ip(3)];
    subnet.dynamic = vec![AddressRange { start: ip(100), end: ip(103) }];
    subnet
}

pub(crate) fn config(subnet: Subnet) -> Config {
    Config { subnets: vec![subnet], ..Config::default() }
}

pub(crate) fn server() -> Server {
    Server::new(config(subnet())).unwrap()
}

pub(crate) fn discover(client: u8) -> Message {
    Message::request(MessageType::Discover, 0x1000 + u32::from(client), mac(client))
}

pub(crate) fn request(client: u8) -> Message {
    Message::request(MessageType::Request, 0x1000 + u32::from(client), mac(client))
}

/// A REQUEST that takes this server's offer.
pub(crate) fn select(client: u8, address: Ipv4Addr) -> Message {
    let mut message = request(client);
    message.option(OptionCode::RequestedIpAddress, address.octets());
    message.option(OptionCode::ServerIdentifier, SERVER.octets());
    message
}

/// A REQUEST in INIT-REBOOT.
pub(crate) fn reboot(client: u8, address: Ipv4Addr) -> Message {
    let mut message = request(client);
    message.option(OptionCode::RequestedIpAddress, address.octets());
    message
}

/// A REQUEST in RENEWING or REBINDING.
pub(crate) fn renew(client: u8, address: Ipv4Addr) -> Message {
    let mut message = request(client);
    message.ciaddr = address;
    message
}

/// The server's actions for one message.
#[derive(Debug)]
pub(crate) struct Answer(pub(crate) Vec<Action>);

impl Answer {
    pub(crate) fn sent(&self) -> Option<(Destination, Packet)> {
        let mut sends = self.0.iter().filter_map(|action| match action {
            Action::Send { to, bytes, .. } => Some((*to, ingress::parse(bytes).unwrap())),
            _ => None,
        });
        let first = sends.next();
        assert!(sends.next().is_none(), "one message, at most one answer");
        first
    }

    pub(crate) fn packet(&self) -> Packet {
        self.sent().unwrap_or_else(|| panic!("no answer: {:?}", self.0)).1
    }

    pub(crate) fn kind(&self) -> MessageType {
        self.packet().kind
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.packet().yiaddr
    }

    pub(crate) fn ignored(&self) -> Ignored {
        match self.0.as_slice() {
            [Action::Report(Event::Ignored { reason, .. })] => reason.clone(),
            other => panic!("not ignored: {other:?}"),
        }
    }

    pub(crate) fn persisted(&self) -> Option<&Lease> {
        self.0.iter().find_map(|action| if let Action::Persist(lease) = action { Some(lease) } else { None })
    }
}

pub(crate) trait Ask {
    fn ask(&mut self, now: Time, message: &Message) -> Answer;
    fn lease_to(&mut self, now: Time, client: u8) -> Ipv4Addr;
}

impl Ask for Server {
    fn ask(&mut self, now: Time, message: &Message) -> Answer {
        Answer(self.handle(now, LINK, &ingress::parse(&message.encode()).unwrap()))
    }

    fn lease_to(&mut self, now: Time, client: u8) -> Ipv4Addr {
        let offered = self.ask(now, &discover(client));
        assert_eq!(offered.kind(), MessageType::Offer);
        let granted = self.ask(now, &select(client, offered.address()));
        assert_eq!(granted.kind(), MessageType::Ack);
        assert_eq!(granted.address(), offered.address());
        granted.address()
    }
}
