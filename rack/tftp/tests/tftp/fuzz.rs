//! Clients' datagrams with all kinds of damage, accidental and hostile: the same hundred thousand in every run.

use std::collections::BTreeMap;
use std::time::Instant;

use basalt_tftp::packet::{ErrorCode, Malformed, Packet};
use basalt_tftp::request::{Decision, decide};
use basalt_tftp::{Caps, Negotiated, Transfer};
use bytes::Bytes;

const DATAGRAMS: u32 = 100_000;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }
}

type Damage = fn(&mut Vec<u8>, &mut Random);

const DAMAGES: [(&str, Damage); 7] = [
    ("nothing", |_, _| {}),
    ("cut short", |datagram, random| datagram.truncate(random.below(datagram.len()))),
    ("a bit turned", |datagram, random| {
        let at = random.below(datagram.len());
        datagram[at] ^= 1 << random.below(8);
    }),
    ("a NUL gone or added", |datagram, random| match datagram.iter().skip(2).position(|byte| *byte == 0) {
        Some(at) if random.below(2) == 0 => drop(datagram.remove(2 + at)),
        _ => datagram.insert(random.below(datagram.len()), 0),
    }),
    ("noise at the end", |datagram, random| {
        let more = random.below(600);
        datagram.extend((0..more).map(|_| u8::try_from(random.below(256)).unwrap()));
    }),
    ("a part twice", |datagram, random| {
        let from = random.below(datagram.len());
        datagram.extend_from_within(from..);
    }),
    ("another operation", |datagram, random| datagram[1] = u8::try_from(random.below(256)).unwrap()),
];

fn sound() -> Vec<Vec<u8>> {
    let options = |list: &[(&str, &str)]| {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let read = |file, mode, list: &[(&str, &str)]| {
        Packet::Request { write: false, file, mode, options: options(list) }.encode()
    };
    vec![
        read("snponly.efi", "octet", &[("tsize", "0"), ("blksize", "1468")]),
        read("/a/../b\\c", "netascii", &[("windowsize", "65535"), ("timeout", "255"), ("multicast", "")]),
        Packet::Request { write: true, file: "x", mode: "octet", options: vec![] }.encode(),
        Packet::Data { block: 1, data: &[7; 512] }.encode(),
        Packet::Ack { block: 3 }.encode(),
        Packet::error(ErrorCode::OptionNegotiation, "User aborted the transfer"),
        Packet::Oack { options: options(&[("tsize", "5000"), ("blksize", "1468")]) }.encode(),
    ]
}

/// The decoder's verdict on a datagram, in one word.
fn verdict(datagram: &[u8]) -> &'static str {
    match Packet::parse(datagram) {
        Ok(Packet::Request { .. }) => "request",
        Ok(Packet::Data { .. }) => "data",
        Ok(Packet::Ack { .. }) => "ack",
        Ok(Packet::Error { .. }) => "error",
        Ok(Packet::Oack { .. }) => "oack",
        Err(Malformed::Incomplete(_)) => "incomplete",
        Err(Malformed::Operation(_)) => "no operation",
        Err(Malformed::NotText) => "not text",
        Err(Malformed::TooLong) => "too long",
    }
}

#[test]
fn damaged_datagrams_are_read_or_refused_and_never_more_than_that() {
    let (sound, mut random, now) = (sound(), Random(2026), Instant::now());
    let (mut damaged, mut verdicts) = (BTreeMap::new(), BTreeMap::new());
    let asked = vec![("windowsize".to_owned(), "4".to_owned())];
    for _ in 0..DATAGRAMS {
        let mut datagram = sound[random.below(sound.len())].clone();
        let (name, damage) = DAMAGES[random.below(DAMAGES.len())];
        damage(&mut datagram, &mut random);
        *damaged.entry(name).or_insert(0) += 1;
        *verdicts.entry(verdict(&datagram)).or_insert(0) += 1;
        if let Ok(packet) = Packet::parse(&datagram) {
            assert_eq!(Packet::parse(&packet.encode()), Ok(packet), "{datagram:02x?}");
        }
        if let Decision::Read(request) = decide(&datagram) {
            assert!(request.path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{request:?}");
            let granted = Negotiated::new(&request.options, Caps::default(), 5000);
            assert!((8..=1468).contains(&granted.blksize) && (1..=64).contains(&granted.windowsize));
        }
        let options = Negotiated::new(&asked, Caps::default(), 5000);
        let (mut transfer, _) = Transfer::start(now, Bytes::from_static(&[9; 5000]), options);
        assert!(transfer.on_packet(now, &datagram).len() <= 4, "never more than a window: {datagram:02x?}");
    }
    println!("{damaged:?}\n{verdicts:?}");
    assert_eq!((damaged.len(), verdicts.len()), (DAMAGES.len(), 9), "each of them happened: {verdicts:?}");
    assert!(damaged.values().chain(verdicts.values()).all(|times| *times > 100), "{damaged:?}, {verdicts:?}");
}
