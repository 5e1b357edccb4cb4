//! Queries damaged in every way: the same hundred thousand in every run. Each is answered, forwarded or dropped.

use basalt_dns::{Answer, Computed, Secondaries, Served, Transport, answer};
use hickory_proto::op::Message;

use crate::support::{name, query, with_edns, zone, zones};

const MESSAGES: u32 = 100_000;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }
}

#[test]
fn damaged_queries_are_answered_or_dropped_and_replies_can_be_read() {
    let zone = zone(
        "lab.",
        "www.lab. 1 A 10.0.0.1\n*.lab. 1 CNAME www.lab.\ncut.lab. 1 NS ns.cut.lab.\nns.cut.lab. 1 A 10.0.0.2",
    );
    let range = "10.0.0.0".parse().unwrap()..="10.0.255.255".parse().unwrap();
    let zones = zones([zone.computed(Computed::new(name("lab."), [range], 30))]);
    let sound: Vec<Vec<u8>> =
        ["www.lab. A", "x.cut.lab. AAAA", "ip-10-0-0-9.lab. A", "a.b.lab. TXT", "example.com. MX"]
            .iter()
            .flat_map(|question| [query(question), with_edns(query(question), 900)])
            .map(|message| message.to_vec().unwrap())
            .collect();
    let mut random = Random(2026);
    let (mut replies, mut forwarded, mut dropped) = (0, 0, 0);
    for _ in 0..MESSAGES {
        let mut message = sound[random.below(sound.len())].clone();
        for _ in 0..=random.below(3) {
            let at = random.below(message.len());
            match random.below(6) {
                0 => message.truncate(at),
                1 => message.insert(at, u8::try_from(random.below(256)).unwrap()),
                2 => message.extend_from_within(at..),
                _ if message.is_empty() => {}
                3 => message[at] = u8::try_from(random.below(256)).unwrap(),
                4 => message[at] ^= 1 << random.below(8),
                _ => {}
            }
        }
        let (transport, limit) =
            if random.below(2) == 0 { (Transport::Udp, 1232) } else { (Transport::Tcp, 65_535) };
        match answer(&zones, &message, transport, random.below(2) == 0) {
            Answer::Reply(reply) => {
                replies += 1;
                assert!(reply.len() <= limit);
                let read = Message::from_vec(&reply)
                    .unwrap_or_else(|error| panic!("{error}: {reply:02x?} to {message:02x?}"));
                assert_eq!(read.id.to_be_bytes(), message[..2]);
            }
            Answer::Forward(question) => {
                forwarded += 1;
                Message::from_vec(&question.fail()).unwrap();
            }
            Answer::Secondary => {
                // Nobody is one.
                let peer = std::net::Ipv4Addr::LOCALHOST.into();
                if let Served::Reply(reply) =
                    Secondaries::default().answer(&zones, &message, peer, transport, 1_800_000_000)
                {
                    assert!(reply.len() <= limit && reply[..2] == message[..2]);
                }
            }
            Answer::Drop => dropped += 1,
        }
    }
    assert!(replies > 1000 && forwarded > 1000 && dropped > 1000, "{replies} {forwarded} {dropped}");
}
