//! Zones of text lines, and replies as text.

use std::fmt::Write;
use std::sync::Arc;

use basalt_dns::{Answer, Name, Question, RData, Record, RecordType, Soa, Transport, Zone, Zones, answer};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::NULL;

pub(crate) fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

/// A record: `NAME TTL TYPE DATA`.
pub(crate) fn record(line: &str) -> Record {
    let mut fields = line.trim().splitn(4, ' ').map(str::trim);
    let mut field = || fields.next().unwrap();
    let (owner, ttl, rtype, data) = (field(), field(), field(), field());
    let rtype: RecordType = rtype.parse().unwrap();
    let data = match rtype {
        // hickory-proto reads DS records with its DNSSEC alone.
        RecordType::DS => RData::Unknown { code: rtype, rdata: NULL::with(data.as_bytes().to_vec()) },
        _ => RData::try_from_str(rtype, data).unwrap(),
    };
    Record::from_rdata(name(owner), ttl.parse().unwrap(), data)
}

pub(crate) fn records(text: &str) -> Vec<Record> {
    text.lines().filter(|line| !line.trim().is_empty()).map(record).collect()
}

/// A zone with serial 7 and a SOA that counts for 60 seconds in negative answers.
pub(crate) fn zone(origin: &str, text: &str) -> Zone {
    let soa = Soa { ttl: 600, minimum: 60, ..Soa::new(name(origin), 7) };
    Zone::new(soa, records(text)).unwrap()
}

pub(crate) fn zones<const N: usize>(zones: [Zone; N]) -> Zones {
    zones.into_iter().map(Arc::new).collect()
}

/// A query with RD: `NAME TYPE`.
pub(crate) fn query(question: &str) -> Message {
    let (owner, rtype) = question.split_once(' ').unwrap();
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(owner), rtype.parse().unwrap()));
    message
}

pub(crate) fn with_edns(mut message: Message, size: u16) -> Message {
    let mut edns = Edns::new();
    edns.set_max_payload(size);
    message.set_edns(edns);
    message
}

/// The reply to a query over UDP of a client that may not recurse.
pub(crate) fn reply(zones: &Zones, query: &Message) -> Message {
    reply_over(zones, query, Transport::Udp)
}

pub(crate) fn reply_over(zones: &Zones, query: &Message, transport: Transport) -> Message {
    match answer(zones, &query.to_vec().unwrap(), transport, false) {
        Answer::Reply(bytes) => Message::from_vec(&bytes).unwrap(),
        other => panic!("{other:?} for {query:?}"),
    }
}

/// The code, AA and TC, then a line a record, with its section unless it is the answer.
pub(crate) fn text(message: &Message) -> String {
    let mut text = match message.metadata.response_code {
        ResponseCode::NoError => "NOERROR".to_owned(),
        ResponseCode::NXDomain => "NXDOMAIN".to_owned(),
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        other => other.to_str().to_owned(),
    };
    for (flag, word) in [(message.metadata.authoritative, " aa"), (message.metadata.truncation, " tc")] {
        text.push_str(if flag { word } else { "" });
    }
    text.push('\n');
    let sections =
        [("", &message.answers), ("authority ", &message.authorities), ("additional ", &message.additionals)];
    for (section, records) in sections {
        for record in records {
            let data = match &record.data {
                RData::SOA(soa) => soa.serial.to_string(),
                data => data.to_string(),
            };
            writeln!(text, "{section}{} {} {} {data}", record.name, record.ttl, record.record_type())
                .unwrap();
        }
    }
    text
}

/// Asks each question of a table, and compares the text of the reply.
pub(crate) fn check(zones: &Zones, table: &[(&str, &str)]) {
    for (question, expected) in table {
        let expected: String = expected.lines().map(|line| format!("{}\n", line.trim())).collect();
        assert_eq!(text(&reply(zones, &query(question))), expected, "{question}");
    }
}

/// The question of a client that may recurse.
pub(crate) fn forwarded(zones: &Zones, query: &Message) -> Question {
    match answer(zones, &query.to_vec().unwrap(), Transport::Udp, true) {
        Answer::Forward(question) => *question,
        other => panic!("{other:?} for {query:?}"),
    }
}

/// The response of a server to a query, with a code and records of the answer and authority sections.
pub(crate) fn respond(sent: &[u8], code: ResponseCode, answers: &str, authorities: &str) -> Message {
    let query = Message::from_vec(sent).unwrap();
    let mut message = Message::new(query.id, MessageType::Response, OpCode::Query);
    message.metadata.recursion_available = true;
    message.metadata.response_code = code;
    message.queries = query.queries;
    message.answers = records(answers);
    message.authorities = records(authorities);
    message.set_edns(Edns::new());
    message
}
