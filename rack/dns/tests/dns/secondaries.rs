//! Transfers and signatures (RFC 5936, RFC 1995 §4, RFC 8945).

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::hmac;
use basalt_dns::{Asked, Name, RecordType, Secondaries, Secondary, Served, Transport, TsigKey, Zones};
use hickory_proto::op::{Message, ResponseCode};

use crate::support::{name, zone, zones};

const NOW: u64 = 1_800_000_000;
const SECRET: &[u8] = &[7; 32];

fn here() -> IpAddr {
    "192.0.2.1".parse().unwrap()
}

fn key() -> TsigKey {
    TsigKey::new(&name("k.example."), SECRET)
}

/// A zone with more than 64 kB, and its secondary.
fn furnished() -> (Zones, Secondaries) {
    let mut lines = String::from("lab. 60 NS ns.lab.\n");
    for number in 0..3000 {
        lines.push_str(&format!("host-{number}.lab. 60 A 10.0.{}.{}\n", number / 256, number % 256));
    }
    lines.push_str(&format!("big.lab. 60 TXT {}\n", "x".repeat(200)));
    let zones = zones([zone("lab.", &lines), zone("other.", "www.other. 60 A 10.0.0.1")]);
    let mut secondaries = Secondaries::default();
    // The server has another key of that name.
    let keys = [TsigKey::new(&name("k.example."), &[9; 32]), key()];
    let at = SocketAddr::new(here(), 53);
    secondaries.allow(&name("lab."), keys.map(|key| Secondary { at, key }).into());
    (zones, secondaries)
}

fn wire(name: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in name.split('.').filter(|it| !it.is_empty()) {
        wire.push(u8::try_from(label.len()).unwrap());
        wire.extend(label.as_bytes());
    }
    wire.push(0);
    wire
}

/// A query; for IXFR with the SOA of this serial.
fn query(zone: &str, rtype: u16, held: Option<u32>) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, u8::from(held.is_some()), 0, 0];
    message.extend(wire(zone));
    message.extend([&rtype.to_be_bytes()[..], &[0, 1]].concat());
    if let Some(serial) = held {
        message.extend([0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 0, 0, 24, 0xc0, 12, 0xc0, 12]);
        message.extend(serial.to_be_bytes());
        message.extend([0; 16]);
    }
    message
}

/// The signature of a message, made without the code under test.
struct Signing<'a> {
    key: &'a str,
    algorithm: &'a str,
    secret: &'a [u8],
    time: u64,
    /// Octets of the signature that are sent.
    length: usize,
}

const GOOD: Signing<'_> =
    Signing { key: "k.example", algorithm: "hmac-sha256", secret: SECRET, time: NOW, length: 32 };

/// Signs, and returns the signature too. `before` is the signature of the request.
fn sign(message: &[u8], before: Option<&[u8]>, signing: &Signing<'_>) -> (Vec<u8>, Vec<u8>) {
    let timers = [&signing.time.to_be_bytes()[2..], &300_u16.to_be_bytes()].concat();
    let (key, algorithm) = (wire(signing.key), wire(signing.algorithm));
    let prefix = before.map(|mac| [&[0, 32], mac].concat()).unwrap_or_default();
    let signed = [&prefix, message, &key, &[0, 255, 0, 0, 0, 0], &algorithm, &timers, &[0; 4]].concat();
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, signing.secret), &signed);
    let mac = &mac.as_ref()[..signing.length];
    let length = u16::try_from(signing.length).unwrap().to_be_bytes();
    let rdata = [&algorithm, &timers, &length[..], mac, &message[..2], &[0; 4]].concat();
    let length = u16::try_from(rdata.len()).unwrap().to_be_bytes();
    let mut whole = [message, &key, &[0, 250, 0, 255, 0, 0, 0, 0], &length, &rdata].concat();
    whole[11] += 1;
    (whole, mac.to_vec())
}

/// The fields of the last record, which is a TSIG: time, signature, error, other data; and the message without it.
fn signature(message: &[u8]) -> (Vec<u8>, Vec<u8>, u16, Vec<u8>, Vec<u8>) {
    let record = [wire("k.example"), vec![0, 250, 0, 255, 0, 0, 0, 0]].concat();
    let at = message.windows(record.len()).rposition(|it| it == record).expect("a TSIG record");
    let mut unsigned = message[..at].to_vec();
    unsigned[11] -= 1;
    let rdata = &message[at + record.len() + 2..];
    let (_, rest) = rdata.split_at(rdata.iter().position(|it| *it == 0).unwrap() + 1);
    let length = usize::from(rest[9]);
    let tail = &rest[10 + length..];
    let error = u16::from_be_bytes([tail[2], tail[3]]);
    (rest[..8].to_vec(), rest[10..10 + length].to_vec(), error, tail[6..].to_vec(), unsigned)
}

fn ask(query: &[u8], peer: IpAddr, transport: Transport) -> Served {
    let (zones, secondaries) = furnished();
    secondaries.answer(&zones, query, peer, transport, NOW)
}

fn reply(served: Served) -> Vec<u8> {
    match served {
        Served::Reply(reply) | Served::Signed(reply) => reply,
        other => panic!("{other:?}"),
    }
}

fn code(message: &[u8]) -> ResponseCode {
    ResponseCode::from(0, message[3] & 0xf)
}

fn hmac_of(parts: &[&[u8]]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), &parts.concat()).as_ref().to_vec()
}

#[test]
fn a_zone_is_sent_whole_between_two_soas_and_each_message_is_signed_after_the_one_before() {
    let (request, mac) = sign(&query("lab", 252, None), None, &GOOD);
    let Served::Transfer(mut transfer) = ask(&request, here(), Transport::Tcp) else { panic!("refused") };
    let mut messages = transfer.messages();
    let (mut records, mut before, mut count) = (Vec::new(), mac, 0);
    while let Some(message) = messages.next(NOW) {
        assert!(message.len() <= 16 << 10, "{} octets", message.len());
        let (timers, mac, error, _, unsigned) = signature(&message);
        assert_eq!(error, 0);
        let variables = match count {
            0 => [&wire("k.example")[..], &[0, 255, 0, 0, 0, 0], &wire("hmac-sha256"), &timers, &[0; 4]]
                .concat(),
            _ => timers,
        };
        assert_eq!(mac, hmac_of(&[&[0, 32], &before, &unsigned, &variables]), "message {count}");
        let message = Message::from_vec(&unsigned).unwrap();
        assert_eq!((message.metadata.id, message.queries.len()), (0x1234, usize::from(count == 0)));
        assert!(message.metadata.authoritative && !message.metadata.truncation);
        records.extend(message.answers);
        (before, count) = (mac, count + 1);
    }
    assert!(count > 3, "{count} messages");
    assert_eq!(records.len(), 3000 + 2 + 2);
    let kinds: Vec<_> = records.iter().map(|it| it.record_type()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), (RecordType::SOA, RecordType::SOA));
    assert_eq!(kinds.iter().filter(|it| **it == RecordType::SOA).count(), 2);
    let owners: std::collections::BTreeSet<Name> = records.iter().map(|it| it.name.clone()).collect();
    assert_eq!(owners.len(), 3000 + 2);
}

#[test]
fn nobody_but_a_secondary_with_its_key_gets_a_zone() {
    let plain = query("lab", 252, None);
    let (signed, _) = sign(&plain, None, &GOOD);
    let stranger = "192.0.2.9".parse().unwrap();
    for (query, peer) in [
        (&plain, here()),
        (&signed, stranger),
        (&sign(&query("other", 252, None), None, &GOOD).0, here()),
        (&sign(&query("www.lab", 252, None), None, &GOOD).0, here()),
    ] {
        assert_eq!(code(&reply(ask(query, peer, Transport::Tcp))), ResponseCode::Refused);
    }
    // A dual-stack socket has IPv4 peers as mapped addresses.
    let mapped = "::ffff:192.0.2.1".parse().unwrap();
    assert!(matches!(ask(&signed, mapped, Transport::Tcp), Served::Transfer(_)));
}

#[test]
fn each_fault_of_a_signature_has_its_answer() {
    let plain = query("lab", 252, None);
    let faulty = |signing: &Signing<'_>| reply(ask(&sign(&plain, None, signing).0, here(), Transport::Tcp));
    let bad_secret = faulty(&Signing { secret: &[8; 32], ..GOOD });
    let (_, mac, error, ..) = signature(&bad_secret);
    assert_eq!((code(&bad_secret), mac.len(), error), (ResponseCode::NotAuth, 0, 16), "BADSIG, unsigned");
    let other_key = faulty(&Signing { key: "x.example", ..GOOD });
    assert_eq!((code(&other_key), other_key[other_key.len() - 3]), (ResponseCode::NotAuth, 17), "BADKEY");
    let other_algorithm = faulty(&Signing { algorithm: "hmac-sha512", ..GOOD });
    assert_eq!(other_algorithm[other_algorithm.len() - 3], 17, "BADKEY");
    // The limit is 300 seconds on both sides.
    for time in [NOW - 300, NOW + 300] {
        let (request, _) = sign(&plain, None, &Signing { time, ..GOOD });
        assert!(matches!(ask(&request, here(), Transport::Tcp), Served::Transfer(_)), "{time}");
    }
    for time in [NOW - 301, NOW + 301] {
        let (request, request_mac) = sign(&plain, None, &Signing { time, ..GOOD });
        let late = reply(ask(&request, here(), Transport::Tcp));
        let (timers, mac, error, other, unsigned) = signature(&late);
        assert_eq!((code(&late), error, &other[..]), (ResponseCode::NotAuth, 18, &NOW.to_be_bytes()[2..]));
        assert_eq!(timers[..6], time.to_be_bytes()[2..], "the time of the request (RFC 8945 §5.2.3)");
        let tail = [&[0, 18, 0, 6][..], &other].concat();
        let head = [&wire("k.example")[..], &[0, 255, 0, 0, 0, 0], &wire("hmac-sha256")].concat();
        assert_eq!(mac, hmac_of(&[&[0, 32], &request_mac, &unsigned, &head, &timers, &tail]), "signed");
    }
    let cut = faulty(&Signing { length: 20, ..GOOD });
    assert_eq!((code(&cut), signature(&cut).2), (ResponseCode::NotAuth, 22), "BADTRUNC");
    assert_eq!(code(&faulty(&Signing { length: 15, ..GOOD })), ResponseCode::FormErr);
    // A record after the signature.
    let (mut request, _) = sign(&plain, None, &GOOD);
    request.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    request[11] += 1;
    assert_eq!(code(&reply(ask(&request, here(), Transport::Tcp))), ResponseCode::FormErr);
    // Every octet is signed.
    let (request, _) = sign(&plain, None, &GOOD);
    for at in 0..request.len() {
        let mut other = request.clone();
        other[at] ^= 1;
        // The id of the message itself is not signed: forwarders change it. The answer has it.
        let served = ask(&other, here(), Transport::Tcp);
        if let Served::Reply(reply) | Served::Signed(reply) = &served {
            assert_eq!(reply[..2], other[..2], "octet {at}");
        }
        assert_eq!(matches!(served, Served::Transfer(_)), at < 2, "octet {at}: {served:?}");
    }
}

#[test]
fn ixfr_is_the_soa_for_who_has_the_zone_and_the_whole_zone_for_others() {
    let asked = |held, transport| {
        let (request, mac) = sign(&query("lab", 251, held), None, &GOOD);
        (ask(&request, here(), transport), mac)
    };
    for held in [6, 7_u32.wrapping_sub(1 << 30)] {
        assert!(matches!(asked(Some(held), Transport::Tcp).0, Served::Transfer(_)), "{held}");
    }
    // Serial 8 comes after 7 (RFC 1982).
    for (held, transport) in [(7, Transport::Tcp), (8, Transport::Tcp), (6, Transport::Udp)] {
        let (served, request_mac) = asked(Some(held), transport);
        let message = reply(served);
        let (timers, mac, _, _, unsigned) = signature(&message);
        let head = [&wire("k.example")[..], &[0, 255, 0, 0, 0, 0], &wire("hmac-sha256")].concat();
        assert_eq!(mac, hmac_of(&[&[0, 32], &request_mac, &unsigned, &head, &timers, &[0; 4]]));
        let answers = Message::from_vec(&unsigned).unwrap().answers;
        assert_eq!(
            answers.iter().map(|it| it.record_type()).collect::<Vec<_>>(),
            [RecordType::SOA],
            "{held}"
        );
    }
    let (served, _) = asked(None, Transport::Tcp);
    assert_eq!(code(&reply(served)), ResponseCode::FormErr, "without the SOA of RFC 1995 §3");
}

#[test]
fn a_question_to_a_secondary_is_answered_by_its_signed_answer_alone() {
    let (zones, secondaries) = furnished();
    let asked = Asked::serial(&name("lab."), &key(), 9, NOW);
    let answer = reply(secondaries.answer(&zones, &asked.message, here(), Transport::Udp, NOW));
    assert_eq!(asked.read(&answer, NOW), Ok(Some(Some(7))));
    let other_id = [&[0, 10], &answer[2..]].concat();
    assert_eq!(asked.read(&other_id, NOW), Ok(None));
    assert_eq!(asked.read(&asked.message, NOW), Ok(None), "no response");
    assert!(asked.read(&answer, NOW + 301).unwrap_err().contains("clocks"));
    let plain = signature(&answer).4;
    assert!(asked.read(&plain, NOW).unwrap_err().contains("not signed"));
    let mut forged = answer.clone();
    forged[40] ^= 1;
    assert!(asked.read(&forged, NOW).unwrap_err().contains("false"));
    let other = Asked::serial(&name("lab."), &TsigKey::new(&name("k.example."), &[8; 32]), 9, NOW);
    let refused = reply(secondaries.answer(&zones, &other.message, here(), Transport::Udp, NOW));
    assert!(other.read(&refused, NOW).unwrap_err().contains("BADSIG"));
    let other = Asked::serial(&name("lab."), &TsigKey::new(&name("x.example."), SECRET), 9, NOW);
    let refused = reply(secondaries.answer(&zones, &other.message, here(), Transport::Udp, NOW));
    assert!(other.read(&refused, NOW).unwrap_err().contains("BADKEY"));

    let told = Asked::notify(&name("lab."), &key(), 9, NOW);
    let message = Message::from_vec(&signature(&told.message).4).unwrap();
    assert_eq!(message.metadata.op_code, hickory_proto::op::OpCode::Notify);
    assert_eq!(told.read(&answer, NOW), Ok(None), "it answers another question");
}
