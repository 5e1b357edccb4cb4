//! Properties that hold for every input and every history.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use basalt_dhcp::v6::{Action, Config, Lease, Server, Subnet, ingress};
use basalt_dhcp::{LeaseState, Time};
use dhcproto::v6::{DhcpOption, IANA, Message, MessageType, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable, Encoder};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::*;

const CLIENTS: u8 = 6;

/// Every option that the server reads, in every message type, with or without a relay.
fn elaborate(kind: u8, relay: bool) -> Vec<u8> {
    let ask = Ask::of(kind.into(), 1)
        .here()
        .ia(1, &[ip(0x100)])
        .option(OptionCode::IATA, &[0; 4])
        .option(OptionCode::IAPD, &[0; 12])
        .option(OptionCode::ORO, &[0, 23, 0, 24, 0, 31, 0, 56, 0, 59])
        .option(OptionCode::RapidCommit, &[])
        .option(OptionCode::UserClass, b"\x00\x04iPXE")
        .option(OptionCode::VendorClass, b"\x00\x00\x01\x57\x00\x0aHTTPClient")
        .option(OptionCode::ClientArchType, &[0, 16])
        .option(OptionCode::ClientFqdn, b"\x01\x01a\x01b\x00");
    if !relay {
        return ask.0;
    }
    let mut bytes = vec![MessageType::RelayForw.into(), 0];
    bytes.extend(ip(1).octets());
    bytes.extend(PEER.octets());
    put(&mut bytes, OptionCode::InterfaceId, b"port");
    put(&mut bytes, OptionCode::ClientLinklayerAddr, &[0, 1, 2, 3, 4, 5, 6, 7]);
    put(&mut bytes, OptionCode::RelayMsg, &ask.0);
    bytes
}

fn swallow(datagram: &[u8]) {
    let mut rapid = subnet();
    rapid.rapid_commit = true;
    let mut server = server(rapid);
    let Ok(packet) = ingress::parse(datagram) else { return };
    for now in [START, START.plus_seconds(5)] {
        for action in server.handle(now, LINK, &packet) {
            if let Action::Send { bytes, .. } = action
                && packet.relays.is_empty()
            {
                let reply = Message::decode(&mut Decoder::new(&bytes)).expect("what we write can be read");
                assert_eq!(reply.xid(), packet.xid);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(datagram in vec(any::<u8>(), 0..700), kind in 0u8..14) {
        swallow(&datagram);
        swallow(&[&[kind], datagram.as_slice()].concat());
    }

    #[test]
    fn no_mutation_makes_it_panic(
        kind in 0u8..14,
        relay: bool,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut datagram = elaborate(kind, relay);
        for (at, byte) in changes {
            let at = at.index(datagram.len());
            datagram[at] = byte;
        }
        if let Some(cut) = cut {
            datagram.truncate(cut.index(datagram.len()));
        }
        swallow(&datagram);
    }

    /// Messages that another codec encodes are decoded with the same meaning.
    #[test]
    fn dhcproto_is_understood(xid: [u8; 3], ias in vec((0u32..12, any::<u32>()), 0..8), client in vec(any::<u8>(), 1..131)) {
        let mut message = Message::new_with_id(MessageType::Renew, xid);
        message.opts_mut().insert(DhcpOption::ClientId(client.clone()));
        for (id, t1) in &ias {
            message.opts_mut().insert(DhcpOption::IANA(IANA { id: *id, t1: *t1, t2: 0, opts: Default::default() }));
        }
        let mut bytes = Vec::new();
        message.encode(&mut Encoder::new(&mut bytes)).unwrap();
        let packet = ingress::parse(&bytes).unwrap();
        prop_assert_eq!(packet.xid, xid);
        let duid = packet.client().unwrap();
        prop_assert_eq!(duid.as_bytes(), client.as_slice());
        // Each association once, in any order.
        let expected: BTreeSet<u32> = ias.iter().map(|(id, _)| *id).collect();
        let mut found: Vec<u32> = packet.associations.iter().map(|it| it.iaid).collect();
        found.sort_unstable();
        prop_assert!(found.iter().eq(&expected), "{:?} for {:?}", found, expected);
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// SOLICIT, and REQUEST unless it stops there.
    Lease {
        client: u8,
        iaid: u8,
        take: bool,
    },
    /// A REQUEST for an address that was not advertised.
    Insist {
        client: u8,
        iaid: u8,
        address: u16,
    },
    Renew {
        client: u8,
        iaid: u8,
    },
    Rebind {
        client: u8,
        iaid: u8,
        address: u16,
    },
    /// Both associations in one message: REQUEST, RENEW or REBIND.
    Both {
        client: u8,
        kind: u8,
        addresses: [u16; 2],
    },
    Release {
        client: u8,
        iaid: u8,
    },
    Decline {
        client: u8,
        iaid: u8,
    },
    Wait {
        seconds: u32,
    },
    /// A restart with the persisted leases only.
    Restart,
    /// Reserves an address, which may be in use, for a client.
    Reserve {
        client: u8,
        address: u16,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (client, iaid, address) = (1..=CLIENTS, 1u8..3, 0x0feu16..0x106);
    prop_oneof![
        4 => (client.clone(), iaid.clone(), any::<bool>()).prop_map(|(client, iaid, take)| Step::Lease { client, iaid, take }),
        2 => (client.clone(), iaid.clone(), address.clone()).prop_map(|(client, iaid, address)| Step::Insist { client, iaid, address }),
        3 => (client.clone(), iaid.clone()).prop_map(|(client, iaid)| Step::Renew { client, iaid }),
        2 => (client.clone(), iaid.clone(), address.clone()).prop_map(|(client, iaid, address)| Step::Rebind { client, iaid, address }),
        3 => (client.clone(), 0u8..3, [address.clone(), address.clone()]).prop_map(|(client, kind, addresses)| Step::Both { client, kind, addresses }),
        1 => (client.clone(), iaid.clone()).prop_map(|(client, iaid)| Step::Release { client, iaid }),
        1 => (client.clone(), iaid).prop_map(|(client, iaid)| Step::Decline { client, iaid }),
        2 => (1u32..700).prop_map(|seconds| Step::Wait { seconds }),
        1 => Just(Step::Restart),
        1 => (client, address).prop_map(|(client, address)| Step::Reserve { client, address }),
    ]
}

/// The clients and their addresses, as the clients themselves remember them.
struct World {
    server: Server,
    subnet: Subnet,
    now: Time,
    journal: Vec<Lease>,
    /// The client of each address, and until when it may use it.
    held: BTreeMap<Ipv6Addr, ((u8, u8), Time)>,
}

impl World {
    fn new() -> Self {
        Self {
            server: server(subnet()),
            subnet: subnet(),
            now: START,
            journal: Vec::new(),
            held: BTreeMap::new(),
        }
    }

    fn config(&self) -> Config {
        Config { subnets: vec![self.subnet.clone()], ..Config::default() }
    }

    fn of(&self, who: (u8, u8)) -> Vec<Ipv6Addr> {
        let live = self.held.iter().filter(|(_, (it, until))| *it == who && *until > self.now);
        live.map(|(address, _)| *address).collect()
    }

    fn ask(&mut self, client: u8, ask: &Ask) -> Result<(), TestCaseError> {
        let answer = self.server.ask(self.now, ask);
        self.journal.extend(answer.persisted());
        if answer.sent().is_none() || answer.kind() != MessageType::Reply {
            return Ok(());
        }
        for association in answer.ias() {
            let who = (client, u8::try_from(association.id).unwrap());
            self.told(who, &association)?;
        }
        Ok(())
    }

    fn told(&mut self, who: (u8, u8), association: &IANA) -> Result<(), TestCaseError> {
        for given in addresses_of(association) {
            if given.valid_life == 0 {
                let own = self.held.get(&given.addr).is_some_and(|(it, _)| *it == who);
                if own {
                    self.held.remove(&given.addr);
                }
                continue;
            }
            if let Some((holder, until)) = self.held.get(&given.addr) {
                prop_assert!(
                    *holder == who || *until <= self.now,
                    "{} is {holder:?}'s and was given to {who:?}",
                    given.addr
                );
            }
            let owner = self.subnet.reservations.iter().find(|it| it.address == given.addr);
            if let Some(owner) = owner {
                prop_assert_eq!(&owner.client, &basalt_dhcp::v6::Client::Mac(mac(who.0)));
            }
            self.held.insert(given.addr, (who, self.now.plus_seconds(given.valid_life)));
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        use MessageType as M;
        let asked = |kind, client, iaid: u8, addresses: &[Ipv6Addr]| {
            let ask = Ask::of(kind, client);
            let ask = if matches!(kind, M::Solicit | M::Rebind) { ask } else { ask.here() };
            ask.ia(iaid.into(), addresses)
        };
        match *step {
            Step::Lease { client, iaid, take } => {
                let offered = self.server.ask(self.now, &asked(M::Solicit, client, iaid, &[]));
                if take {
                    let addresses = offered.addresses();
                    self.ask(client, &asked(M::Request, client, iaid, &addresses))?;
                }
            }
            Step::Insist { client, iaid, address } => {
                self.ask(client, &asked(M::Request, client, iaid, &[ip(address)]))?;
            }
            Step::Renew { client, iaid } => {
                for address in self.of((client, iaid)) {
                    self.ask(client, &asked(M::Renew, client, iaid, &[address]))?;
                }
            }
            Step::Rebind { client, iaid, address } => {
                self.ask(client, &asked(M::Rebind, client, iaid, &[ip(address)]))?;
            }
            Step::Both { client, kind, addresses: [one, other] } => {
                let kind = [M::Request, M::Renew, M::Rebind][usize::from(kind)];
                let ask = asked(kind, client, 1, &[ip(one)]).ia(2, &[ip(other)]);
                self.ask(client, &ask)?;
            }
            Step::Release { client, iaid } | Step::Decline { client, iaid } => {
                let kind = if matches!(step, Step::Release { .. }) { M::Release } else { M::Decline };
                let held = self.of((client, iaid));
                self.ask(client, &asked(kind, client, iaid, &held))?;
                for address in held {
                    self.held.remove(&address);
                    if kind == M::Decline {
                        let state = self.server.lease(address).map(|lease| lease.state);
                        prop_assert_eq!(state, Some(LeaseState::Quarantined));
                    }
                }
            }
            Step::Wait { seconds } => {
                self.now = self.now.plus_seconds(seconds);
                self.server.tick(self.now);
            }
            Step::Restart => {
                self.server = with(self.config());
                self.server.restore(self.journal.clone());
            }
            Step::Reserve { client, address } => {
                let others = |it: &basalt_dhcp::v6::Reservation| {
                    it.address != ip(address) && it.client != basalt_dhcp::v6::Client::Mac(mac(client))
                };
                self.subnet.reservations.retain(others);
                self.subnet.reservations.push(reservation(client, address));
                self.server.set_config(self.now, self.config()).unwrap();
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_two_clients_at_once(steps in vec(step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step)?;
            for (address, (who, until)) in world.held.iter().filter(|(_, (_, until))| *until > world.now) {
                let lease = world.server.lease(*address);
                prop_assert!(
                    lease.is_some_and(|lease| {
                        (lease.duid == duid(who.0) && lease.iaid == who.1.into()) && lease.expires >= *until
                    }),
                    "{address} of {who:?} is not bound: {lease:?}"
                );
            }
        }
    }
}
