//! Properties that hold for every input and every history.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use basalt_dhcp::client::ClientConfig;
use basalt_dhcp::egress::Message;
use basalt_dhcp::ingress;
use basalt_dhcp::{Action, BootIdentity, Client, Config, Firmware, Lease, Mac, Server, Time};
use dhcproto::v4::{MessageType, OptionCode};
use proptest::collection::{hash_set, vec};
use proptest::prelude::*;

use crate::support::*;

const CLIENTS: u8 = 8;
/// How long a probe waits for an answer.
const PATIENCE: Duration = Duration::from_millis(200);
/// A host that is none of the clients.
const STRANGER: Mac = Mac([2, 2, 2, 2, 2, 2]);

/// Every message type, with every option the server reads.
fn elaborate(kind: u8) -> Vec<u8> {
    let mut message = Message::request(kind.into(), 7, mac(1));
    message.ciaddr = ip(100);
    message.option(OptionCode::RequestedIpAddress, ip(100).octets());
    message.option(OptionCode::ServerIdentifier, SERVER.octets());
    message.option(OptionCode::ParameterRequestList, [1, 3, 6, 66, 67]);
    message.option(OptionCode::Hostname, "node");
    message.option(OptionCode::OptionOverload, [3]);
    message.option(OptionCode::ClassIdentifier, "PXEClient:Arch:00007:UNDI:003016");
    message.option(OptionCode::ClientSystemArchitecture, [0, 7]);
    message.option(OptionCode::ClientMachineIdentifier, [0; 17]);
    message.option(OptionCode::UserClass, b"\x04iPXE");
    message.option(OptionCode::ClientIdentifier, [1; 7]);
    message.option(OptionCode::RelayAgentInformation, [1, 2, 3, 4]);
    message.encode()
}

fn swallow(datagram: &[u8]) {
    let mut server = server();
    if let Ok(packet) = ingress::parse(datagram) {
        for now in [START, START.plus_seconds(5)] {
            for action in server.handle(now, LINK, &packet) {
                if let Action::Send { bytes, .. } = action {
                    let reply = ingress::parse(&bytes).expect("what we write can be read");
                    assert_eq!(reply.xid, packet.xid);
                }
            }
        }
    }
    let mut config = ClientConfig::new(mac(1));
    config.boot = Some(BootIdentity::rom(Firmware::Bios));
    let (mut client, _) = Client::start(config, START, 1);
    client.on_packet(START, datagram);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(datagram in vec(any::<u8>(), 0..700)) {
        swallow(&datagram);
    }

    #[test]
    fn no_options_make_it_panic(options in vec(any::<u8>(), 0..400), kind in 1u8..9) {
        let mut datagram = elaborate(kind);
        datagram.truncate(243);
        datagram.extend(&options);
        swallow(&datagram);
    }

    #[test]
    fn no_mutation_makes_it_panic(
        kind in 0u8..9,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut datagram = elaborate(kind);
        for (at, byte) in changes {
            let at = at.index(datagram.len());
            datagram[at] = byte;
        }
        if let Some(cut) = cut {
            datagram.truncate(cut.index(datagram.len()));
        }
        swallow(&datagram);
    }

    #[test]
    fn options_come_back_as_they_were_written(options in vec((1u8..255, vec(any::<u8>(), 0..600)), 0..6)) {
        let mut message = Message::request(MessageType::Discover, 7, mac(1));
        let mut expected: HashMap<u8, Vec<u8>> = HashMap::new();
        for (code, value) in &options {
            if ![OptionCode::MessageType, OptionCode::OptionOverload].map(u8::from).contains(code) {
                message.option(OptionCode::from(*code), value.as_slice());
                expected.entry(*code).or_default().extend(value);
            }
        }
        let bytes = message.encode();
        prop_assume!(bytes.len() <= ingress::MAX_DATAGRAM);
        let packet = ingress::parse(&bytes).unwrap();
        for (code, value) in expected {
            prop_assert_eq!(packet.options.raw(OptionCode::from(code)), Some(value.as_slice()));
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// DISCOVER, and REQUEST unless it stops there.
    Lease {
        client: u8,
        take: bool,
    },
    Renew {
        client: u8,
    },
    Reboot {
        client: u8,
        address: u8,
    },
    Release {
        client: u8,
    },
    Decline {
        client: u8,
    },
    Wait {
        seconds: u32,
    },
    /// A restart with the persisted leases only.
    Restart,
    /// Reserves an address, which may be in use, for client `client`.
    Reserve {
        client: u8,
        address: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    let address = 98u8..106;
    prop_oneof![
        4 => (client.clone(), any::<bool>()).prop_map(|(client, take)| Step::Lease { client, take }),
        2 => client.clone().prop_map(|client| Step::Renew { client }),
        2 => (client.clone(), address.clone()).prop_map(|(client, address)| Step::Reboot { client, address }),
        1 => client.clone().prop_map(|client| Step::Release { client }),
        1 => client.clone().prop_map(|client| Step::Decline { client }),
        2 => (0u32..400).prop_map(|seconds| Step::Wait { seconds }),
        1 => Just(Step::Restart),
        1 => (client, address).prop_map(|(client, address)| Step::Reserve { client, address }),
    ]
}

/// The network from the clients' view: a client has an address from the ACK until the lease ends or the client gives it
/// up.
struct World {
    server: Server,
    config: Config,
    file: Vec<Lease>,
    now: Time,
    held: HashMap<Ipv4Addr, (Mac, Time)>,
    /// If addresses are probed.
    probing: bool,
    squatted: HashSet<Ipv4Addr>,
    /// Addresses that clients got without an offer or by reservation. They are not probed.
    unasked: HashSet<Ipv4Addr>,
}

impl World {
    fn start(&mut self, server: Server) {
        self.server = server;
        self.server.set_probing(LINK.interface, self.probing.then_some(PATIENCE));
    }

    /// The answer to a message after all of its probes.
    fn answer(&mut self, message: &Message) -> Answer {
        let mut answer = self.server.ask(self.now, message);
        loop {
            let persisted = answer.0.iter().filter_map(|action| match action {
                Action::Persist(lease) => Some(lease.clone()),
                _ => None,
            });
            self.file.extend(persisted);
            let Some(Action::Probe { interface, address }) = answer.0.last() else { return answer };
            answer = Answer(if self.squatted.contains(address) {
                self.server.heard(self.now, *interface, *address, STRANGER)
            } else {
                self.now = self.now + PATIENCE;
                self.server.conclude(self.now, *interface)
            });
        }
    }

    fn send(&mut self, message: &Message) -> Option<ingress::Packet> {
        let answer = self.answer(message);
        let (_, packet) = answer.sent()?;
        if packet.kind == MessageType::Offer && self.probing {
            let address = packet.yiaddr;
            assert!(
                !self.squatted.contains(&address) || self.unasked.contains(&address),
                "{address} is a stranger's and was offered"
            );
        }
        if packet.kind == MessageType::Ack {
            let address = packet.yiaddr;
            let seconds = packet.options.u32(OptionCode::AddressLeaseTime).unwrap();
            if let Some((holder, until)) = self.held.get(&address) {
                assert!(
                    *holder == message.mac || *until <= self.now,
                    "{address} of {holder} given to {}",
                    message.mac
                );
            }
            for reservation in &self.config.subnets[0].reservations {
                assert!(
                    reservation.address != address || reservation.mac == message.mac,
                    "{address} is reserved"
                );
            }
            let durable = self.file.last().expect("a lease that was persisted");
            assert_eq!((durable.address, durable.mac), (address, message.mac));
            self.held.insert(address, (message.mac, self.now.plus_seconds(seconds)));
        }
        Some(packet)
    }

    fn holding(&self, client: u8) -> Option<Ipv4Addr> {
        let mut live: Vec<_> = self.held.iter().filter(|(_, lease)| lease.1 > self.now).collect();
        live.sort();
        live.into_iter().find(|(_, lease)| lease.0 == mac(client)).map(|(address, _)| *address)
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Lease { client, take } => {
                let offer = self.send(&discover(client));
                if let Some(offer) = offer.filter(|_| take) {
                    let ack = self.send(&select(client, offer.yiaddr)).expect("an answer");
                    assert_eq!(
                        (ack.kind, ack.yiaddr),
                        (MessageType::Ack, offer.yiaddr),
                        "an offer is a promise"
                    );
                }
            }
            Step::Renew { client } => {
                if let Some(address) = self.holding(client) {
                    self.send(&renew(client, address));
                }
            }
            Step::Reboot { client, address } => {
                self.unasked.insert(ip(address));
                self.send(&reboot(client, ip(address)));
            }
            Step::Release { client } => {
                if let Some(address) = self.holding(client) {
                    let mut message = Message::request(MessageType::Release, 1, mac(client));
                    message.ciaddr = address;
                    self.send(&message);
                    self.held.remove(&address);
                }
            }
            Step::Decline { client } => {
                if let Some(address) = self.holding(client) {
                    let mut message = Message::request(MessageType::Decline, 1, mac(client));
                    message.option(OptionCode::RequestedIpAddress, address.octets());
                    self.send(&message);
                    self.held.remove(&address);
                }
            }
            Step::Wait { seconds } => {
                self.now = self.now.plus_seconds(seconds);
                self.server.tick(self.now);
            }
            Step::Restart => {
                self.start(Server::new(self.config.clone()).unwrap());
                self.server.restore(self.file.iter().cloned());
            }
            Step::Reserve { client, address } => {
                self.unasked.insert(ip(address));
                let reservations = &mut self.config.subnets[0].reservations;
                reservations.retain(|it| it.mac != mac(client) && it.address != ip(address));
                reservations.push(reservation(client, address));
                self.server.set_config(self.now, self.config.clone()).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn no_address_has_two_clients_and_no_reservation_goes_to_another(
        steps in vec(step(), 1..80),
        probing in any::<bool>(),
        squatted in hash_set(98u8..106, 0..4),
    ) {
        let config = config(subnet());
        let mut world = World {
            server: server(),
            config,
            file: Vec::new(),
            now: START,
            held: HashMap::new(),
            probing,
            squatted: squatted.into_iter().map(ip).collect(),
            unasked: HashSet::new(),
        };
        world.start(server());
        for step in steps {
            world.run(step);
        }
    }
}
