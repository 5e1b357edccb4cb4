//! DNS: for any query, another program can read the reply, and the reply is within the size limit.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use basalt_dns::{
    Answer, BadResponse, Computed, Forwarder, Limits, Name, Next, Outcome, RData, Record, RecordType,
    Response, Secondaries, Secondary, Served, Soa, Transport, TsigKey, Zone, Zones, answer,
};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};

use crate::sequence::{messages, sequence};

/// Records that change the course of an answer: alias, loop, wildcard, cut, computed names.
const RECORDS: &[(&str, RecordType, &str)] = &[
    ("lab.", RecordType::NS, "ns.lab."),
    ("ns.lab.", RecordType::A, "10.0.0.53"),
    ("www.lab.", RecordType::CNAME, "web.lab."),
    ("web.lab.", RecordType::AAAA, "fd00::80"),
    ("loop.lab.", RecordType::CNAME, "loop.lab."),
    ("away.lab.", RecordType::CNAME, "www.example.com."),
    ("*.wild.lab.", RecordType::TXT, "\"text\""),
    ("a.b.c.lab.", RecordType::MX, "10 web.lab."),
    ("cut.lab.", RecordType::NS, "ns.cut.lab."),
    ("ns.cut.lab.", RecordType::A, "10.0.0.54"),
];

static ZONES: LazyLock<Zones> = LazyLock::new(zones);

/// The address of the simulated secondary.
const PEER: [u8; 4] = [10, 0, 0, 61];

static SECONDARIES: LazyLock<Secondaries> = LazyLock::new(|| {
    let mut secondaries = Secondaries::default();
    let key = TsigKey::new(&name("k."), &[7; 32]);
    secondaries.allow(&name("lab."), vec![Secondary { at: (PEER, 53).into(), key }]);
    secondaries
});

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap_or_default()
}

fn zones() -> Zones {
    let record = |(owner, rtype, data): &(&str, RecordType, &str)| {
        RData::try_from_str(*rtype, data).ok().map(|data| Record::from_rdata(name(owner), 60, data))
    };
    let records = RECORDS.iter().filter_map(record).collect();
    let range = [10, 77, 0, 0].into()..=[10, 77, 255, 255].into();
    let computed = Computed::new(name("lab."), [range], 30);
    let lab =
        Zone::new(Soa::new(name("lab."), 1), records).map(|zone| zone.computed(computed.clone()).shuffled());
    let reverse =
        Zone::new(Soa::new(name("10.in-addr.arpa."), 1), Vec::new()).map(|zone| zone.computed(computed));
    [lab, reverse].into_iter().flatten().map(Arc::new).collect()
}

/// Queries. The extra byte of each selects the transport.
pub fn dns(data: &[u8]) {
    assert_eq!(ZONES.iter().count(), 2);
    for (besides, query) in messages(data) {
        let (transport, limit) =
            if besides & 1 == 0 { (Transport::Udp, 1232) } else { (Transport::Tcp, 65_535) };
        match answer(&ZONES, query, transport, besides & 2 == 0) {
            Answer::Reply(reply) => readable(query, &reply, limit),
            Answer::Forward(question) => {
                readable(query, &question.fail(), limit);
            }
            Answer::Secondary => {
                match SECONDARIES.answer(&ZONES, query, PEER.into(), transport, 1_800_000_000) {
                    Served::Reply(reply) => readable(query, &reply, limit),
                    told @ (Served::Signed(_) | Served::Transfer(_)) => {
                        panic!("a guessed signature: {told:?}")
                    }
                    Served::Drop => {}
                }
            }
            Answer::Drop => {}
        }
    }
}

fn readable(query: &[u8], reply: &[u8], limit: usize) {
    assert!(reply.len() <= limit, "{} octets", reply.len());
    let read = Message::from_vec(reply);
    let read = read.unwrap_or_else(|error| panic!("{error}: {reply:02x?} to {query:02x?}"));
    assert_eq!(read.metadata.id.to_be_bytes(), query[..2]);
    assert_eq!(read.metadata.message_type, MessageType::Response);
}

/// Answers to a forwarder: headers without id, and records. The extra byte of each selects the client's question.
pub fn dns_upstream(data: &[u8]) {
    let mut forwarder = Forwarder::new(1, Limits { cache: 4096, ..Limits::default() });
    let now = Instant::now();
    let client = [10, 0, 0, 9].into();
    for (besides, message) in messages(data) {
        let (owner, rtype) = FORWARDED[usize::from(besides) % FORWARDED.len()];
        let query = ask(owner, rtype, besides & 1 == 0);
        let Answer::Forward(question) = answer(&ZONES, &query, Transport::Udp, true) else {
            panic!("{owner} is ours")
        };
        let upstream = match forwarder.ask(now, client, *question, ()) {
            Next::Ask(upstream) => upstream,
            Next::Reply((), reply) => {
                whole(&query, &reply);
                continue;
            }
            Next::Wait => panic!("each query is answered"),
        };
        let sent = upstream.query(7, &[besides; 32]);
        let question = 12..12 + upstream.key().name().len() + 4;
        let (head, records) = message.split_at_checked(10).unwrap_or((message, &[]));
        let received = [&sent[..2], head, &sent[question], records].concat();
        let outcome = match Response::read(&sent, &received) {
            Ok(response) if response.private_address().is_some() => Outcome::Refused,
            Ok(response) => Outcome::Response(response),
            Err(_) => Outcome::Failed,
        };
        let replies = forwarder.finish(now, &upstream, outcome);
        assert_eq!(replies.len(), 1);
        assert!(forwarder.kept().1 <= 4096);
        replies.iter().for_each(|((), reply)| whole(&query, reply));
    }
}

/// Checks only the frame of a reply. The forwarder passes on data of types that it does not know, and hickory-proto may refuse them.
fn whole(query: &[u8], reply: &[u8]) {
    assert!(reply.len() <= 1232, "{} octets", reply.len());
    match Response::read(query, reply) {
        Ok(_) | Err(BadResponse::Truncated | BadResponse::Code(2 | 5)) => {}
        Err(error) => panic!("{error}: {reply:02x?} to {query:02x?}"),
    }
}

/// Questions of a client outside of our zones.
const FORWARDED: [(&str, RecordType); 5] = [
    ("www.example.com.", RecordType::A),
    ("example.com.", RecordType::MX),
    ("away.lab.", RecordType::A),
    ("x.cut.lab.", RecordType::ANY),
    (".", RecordType::NS),
];

pub(crate) fn seeds_dns_upstream() -> Vec<Vec<u8>> {
    let answers: [(&str, RecordType, &str); 5] = [
        ("www.example.com.", RecordType::A, "192.0.2.1"),
        ("example.com.", RecordType::MX, "10 mail.example.com."),
        ("www.example.com.", RecordType::CNAME, "www.example.net."),
        ("x.cut.lab.", RecordType::SOA, "ns.cut.lab. root.cut.lab. 1 2 3 4 5"),
        (".", RecordType::NS, "a.root-servers.net."),
    ];
    let mut input = Vec::new();
    for (number, (owner, rtype, data)) in (0..).zip(answers) {
        let (asked, asked_type) = FORWARDED[usize::from(number)];
        let mut message = Message::new(7, MessageType::Response, OpCode::Query);
        message.add_query(Query::query(name(asked), asked_type));
        let Ok(data) = RData::try_from_str(rtype, data) else { continue };
        message.add_answer(Record::from_rdata(name(owner), 60, data.clone()));
        message.add_authority(Record::from_rdata(name(owner), 60, data));
        let message = message.to_vec().unwrap_or_default();
        let question = 12..12 + name(asked).len() + 4;
        let record = [&message[2..12], &message[question.end..]].concat();
        input.extend(u16::try_from(record.len()).unwrap_or(0).to_le_bytes());
        input.push(number);
        input.extend(record);
    }
    vec![input.clone(), input.repeat(2)]
}

fn ask(owner: &str, rtype: RecordType, edns: bool) -> Vec<u8> {
    let mut message = Message::new(1, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(owner), rtype));
    if edns {
        message.set_edns(Edns::new());
    }
    message.to_vec().unwrap_or_default()
}

pub(crate) fn seeds_dns() -> Vec<Vec<u8>> {
    let questions = [
        ("www.lab.", RecordType::AAAA),
        ("loop.lab.", RecordType::A),
        ("away.lab.", RecordType::A),
        ("x.wild.lab.", RecordType::TXT),
        ("b.c.lab.", RecordType::ANY),
        ("no.cut.lab.", RecordType::DS),
        ("ip-10-77-0-12.lab.", RecordType::A),
        ("12.0.77.10.in-addr.arpa.", RecordType::PTR),
        ("77.10.in-addr.arpa.", RecordType::PTR),
        ("lab.", RecordType::AXFR),
        ("example.com.", RecordType::MX),
    ];
    let all: Vec<Vec<u8>> = questions
        .iter()
        .flat_map(|(owner, rtype)| [true, false].map(|edns| ask(owner, *rtype, edns)))
        .collect();
    let mut seeds = vec![sequence(all.iter().map(Vec::as_slice))];
    seeds.extend(all.iter().map(|query| sequence([&query[..]])));
    seeds
}
