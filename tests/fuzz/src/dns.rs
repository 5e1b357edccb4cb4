//! DNS: whatever a client asks, the reply is one that another program reads, and not too long.

use std::sync::{Arc, LazyLock};

use basalt_dns::{Answer, Computed, Name, RData, Record, RecordType, Soa, Transport, Zone, Zones, answer};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};

use crate::sequence::{messages, sequence};

/// A zone with everything that changes the course of an answer: alias, loop, wildcard, cut, computed names.
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

/// Queries, of which the byte besides says how they come.
pub fn dns(data: &[u8]) {
    assert_eq!(ZONES.iter().count(), 2);
    for (besides, query) in messages(data) {
        let (transport, limit) =
            if besides & 1 == 0 { (Transport::Udp, 1232) } else { (Transport::Tcp, 65_535) };
        match answer(&ZONES, query, transport, besides & 2 == 0) {
            Answer::Reply(reply) => readable(query, &reply, limit),
            Answer::Forward(question) => {
                assert!(question.passed().len() <= 8);
                readable(query, &question.fail(), limit);
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

pub(crate) fn seeds_dns() -> Vec<Vec<u8>> {
    let ask = |owner: &str, rtype: RecordType, edns: bool| {
        let mut message = Message::new(1, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(name(owner), rtype));
        if edns {
            message.set_edns(Edns::new());
        }
        message.to_vec().unwrap_or_default()
    };
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
