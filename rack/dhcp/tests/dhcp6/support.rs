//! A subnet, clients, and short functions to talk to the server. Requests are written here byte by byte; dhcproto reads
//! the replies.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv6Addr;

use basalt_dhcp::v6::{
    Action, AddressRange, Arrival, Client, Config, Destination, Duid, Event, Ignored, Lease, Reservation,
    Server, Subnet, ingress,
};
use basalt_dhcp::{Architecture, Declared, Mac, Time};
use dhcproto::v6::{DhcpOption, IAAddr, IANA, Message, MessageType, OptionCode, Status};
use dhcproto::{Decodable, Decoder};

pub(crate) const START: Time = Time(1_700_000_000_000);
pub(crate) const INTERFACE: u32 = 3;
/// A link-local address that is no EUI-64 address.
pub(crate) const PEER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 1, 2, 3, 4);
pub(crate) const LINK: Arrival = Arrival { interface: INTERFACE, from: PEER, to: None };

pub(crate) fn ip(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

pub(crate) fn mac(last: u8) -> Mac {
    Mac([0x52, 0x54, 0, 0, 0, last])
}

/// A DUID-LL of [`mac`].
pub(crate) fn duid(last: u8) -> Duid {
    Duid::new(&[0, 3, 0, 1, 0x52, 0x54, 0, 0, 0, last]).unwrap()
}

pub(crate) fn server_duid() -> Duid {
    Duid::of_uuid([7; 16])
}

/// A declaration of one machine.
pub(crate) fn declared(client: u8, architecture: Architecture) -> Declared {
    HashMap::from([(mac(client), architecture)]).into()
}

pub(crate) fn reservation(client: u8, address: u16) -> Reservation {
    Reservation { client: Client::Mac(mac(client)), address: ip(address), hostname: None }
}

/// 2001:db8::/64, dynamic addresses ::100 to ::103.
pub(crate) fn subnet() -> Subnet {
    let mut subnet = Subnet::new("lab", "2001:db8::/64".parse().unwrap());
    subnet.dns_servers = vec![ip(2), ip(3)];
    subnet.dynamic = vec![AddressRange { start: ip(0x100), end: ip(0x103) }];
    subnet
}

pub(crate) fn with(config: Config) -> Server {
    let mut server = Server::new(server_duid(), config).unwrap();
    server.set_links(BTreeMap::from([(INTERFACE, vec![ip(2)])]));
    server
}

pub(crate) fn server(subnet: Subnet) -> Server {
    with(Config { subnets: vec![subnet], ..Config::default() })
}

/// A message, written as its bytes.
#[derive(Debug, Clone)]
pub(crate) struct Ask(pub(crate) Vec<u8>);

pub(crate) fn put(out: &mut Vec<u8>, code: OptionCode, value: &[u8]) {
    out.extend(u16::from(code).to_be_bytes());
    out.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
    out.extend(value);
}

impl Ask {
    /// A message of this type without options.
    pub(crate) fn bare(kind: MessageType) -> Self {
        Self(vec![kind.into(), 1, 2, 3])
    }

    /// A message of this client.
    pub(crate) fn of(kind: MessageType, client: u8) -> Self {
        Self::bare(kind).option(OptionCode::ClientId, duid(client).as_bytes())
    }

    pub(crate) fn option(mut self, code: OptionCode, value: &[u8]) -> Self {
        put(&mut self.0, code, value);
        self
    }

    /// Adds this server's identifier.
    pub(crate) fn here(self) -> Self {
        self.option(OptionCode::ServerId, server_duid().as_bytes())
    }

    /// Adds an identity association that asks for an address and lists these.
    pub(crate) fn ia(self, iaid: u32, addresses: &[Ipv6Addr]) -> Self {
        let mut value = [iaid.to_be_bytes(), [0; 4], [0; 4]].concat();
        for address in addresses {
            put(&mut value, OptionCode::IAAddr, &[address.octets().as_slice(), &[0; 8]].concat());
        }
        self.option(OptionCode::IANA, &value)
    }
}

pub(crate) fn solicit(client: u8) -> Ask {
    Ask::of(MessageType::Solicit, client).ia(1, &[])
}

/// A REQUEST, RENEW, RELEASE or DECLINE of an address.
pub(crate) fn about(kind: MessageType, client: u8, address: Ipv6Addr) -> Ask {
    Ask::of(kind, client).here().ia(1, &[address])
}

/// The server's actions for one message.
#[derive(Debug)]
pub(crate) struct Answer(pub(crate) Vec<Action>);

impl Answer {
    pub(crate) fn sent(&self) -> Option<(Destination, Vec<u8>)> {
        let mut sends = self.0.iter().filter_map(|action| match action {
            Action::Send { to, bytes, .. } => Some((*to, bytes.clone())),
            _ => None,
        });
        let first = sends.next();
        assert!(sends.next().is_none(), "one message, at most one answer");
        first
    }

    pub(crate) fn message(&self) -> Message {
        let bytes = self.sent().unwrap_or_else(|| panic!("no answer: {:?}", self.0)).1;
        Message::decode(&mut Decoder::new(&bytes)).unwrap()
    }

    pub(crate) fn kind(&self) -> MessageType {
        self.message().msg_type()
    }

    pub(crate) fn option(&self, code: OptionCode) -> Option<DhcpOption> {
        self.message().opts().get(code).cloned()
    }

    pub(crate) fn ias(&self) -> Vec<IANA> {
        let message = self.message();
        let all = message.opts().get_all(OptionCode::IANA).unwrap_or_default();
        let ia = |option: &DhcpOption| match option {
            DhcpOption::IANA(ia) => ia.clone(),
            other => panic!("{other:?}"),
        };
        all.iter().map(ia).collect()
    }

    /// Addresses with a lifetime, in the order of the associations.
    pub(crate) fn addresses(&self) -> Vec<Ipv6Addr> {
        self.lifetimes().iter().filter(|it| it.valid_life > 0).map(|it| it.addr).collect()
    }

    pub(crate) fn lifetimes(&self) -> Vec<IAAddr> {
        self.ias().iter().flat_map(addresses_of).collect()
    }

    pub(crate) fn address(&self) -> Ipv6Addr {
        match self.addresses().as_slice() {
            [address] => *address,
            other => panic!("not one address: {other:?} in {:?}", self.0),
        }
    }

    /// The status of the message.
    pub(crate) fn status(&self) -> Option<Status> {
        status(self.message().opts())
    }

    /// The status of its first association.
    pub(crate) fn ia_status(&self) -> Option<Status> {
        self.ias().first().and_then(|ia| status(&ia.opts))
    }

    pub(crate) fn ignored(&self) -> Ignored {
        match self.0.as_slice() {
            [Action::Report(Event::Ignored { reason, .. })] => reason.clone(),
            other => panic!("not ignored: {other:?}"),
        }
    }

    pub(crate) fn persisted(&self) -> Vec<Lease> {
        self.0
            .iter()
            .filter_map(|it| if let Action::Persist(it) = it { Some(it.clone()) } else { None })
            .collect()
    }
}

/// The addresses of an association.
pub(crate) fn addresses_of(association: &IANA) -> Vec<IAAddr> {
    let addresses = association.opts.iter();
    addresses.filter_map(|it| if let DhcpOption::IAAddr(it) = it { Some(it.clone()) } else { None }).collect()
}

fn status(options: &dhcproto::v6::DhcpOptions) -> Option<Status> {
    options.get(OptionCode::StatusCode).map(|option| match option {
        DhcpOption::StatusCode(it) => it.status,
        other => panic!("{other:?}"),
    })
}

pub(crate) trait Asked {
    fn ask_via(&mut self, now: Time, via: Arrival, message: &Ask) -> Answer;

    fn ask(&mut self, now: Time, message: &Ask) -> Answer {
        self.ask_via(now, LINK, message)
    }

    /// Leases an address by SOLICIT, ADVERTISE, REQUEST, REPLY.
    fn lease_to(&mut self, now: Time, client: u8) -> Ipv6Addr {
        let offered = self.ask(now, &solicit(client));
        assert_eq!(offered.kind(), MessageType::Advertise);
        let granted = self.ask(now, &about(MessageType::Request, client, offered.address()));
        assert_eq!(granted.kind(), MessageType::Reply);
        granted.address()
    }
}

impl Asked for Server {
    fn ask_via(&mut self, now: Time, via: Arrival, message: &Ask) -> Answer {
        Answer(self.handle(now, via, &ingress::parse(&message.0).unwrap()))
    }
}
