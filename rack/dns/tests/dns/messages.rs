//! Headers, EDNS, and queries that are no questions (RFC 1035 §4.1, RFC 6891).

use basalt_dns::{Answer, Transport, Zones, answer};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RecordType};

use crate::support::{name, query, reply, reply_over, with_edns, zone, zones};

fn lab() -> Zones {
    zones([zone("lab.", "www.lab. 30 A 10.0.0.1")])
}

/// The code that answers these bytes. `None`: they are dropped.
fn code(bytes: &[u8]) -> Option<ResponseCode> {
    match answer(&lab(), bytes, Transport::Udp, true) {
        Answer::Reply(reply) => {
            assert_eq!(reply[..2], bytes[..2], "the id comes back");
            Some(Message::from_vec(&reply).unwrap().response_code)
        }
        Answer::Forward(_) => panic!("forwarded"),
        Answer::Secondary => panic!("for secondaries"),
        Answer::Drop => None,
    }
}

fn bytes(change: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut message = query("www.lab. A");
    change(&mut message);
    message.to_vec().unwrap()
}

#[test]
fn responses_and_noise_are_dropped_and_every_other_message_has_its_code() {
    assert_eq!(code(&bytes(|_| {})), Some(ResponseCode::NoError));
    assert_eq!(code(&bytes(|it| it.metadata.message_type = MessageType::Response)), None);
    assert_eq!(code(&[]), None);
    assert_eq!(code(&bytes(|_| {})[..11]), None);

    for other in [OpCode::Notify, OpCode::Update, OpCode::Status] {
        assert_eq!(code(&bytes(|it| it.metadata.op_code = other)), Some(ResponseCode::NotImp), "{other:?}");
    }
    let ask = |rtype, class| {
        let mut question = Query::query(name("www.lab."), rtype);
        question.set_query_class(class);
        code(&bytes(|it| it.queries = vec![question]))
    };
    assert_eq!(ask(RecordType::TXT, DNSClass::CH), Some(ResponseCode::Refused));
    assert_eq!(ask(RecordType::A, DNSClass::ANY), Some(ResponseCode::Refused));
    for whole in [RecordType::AXFR, RecordType::IXFR] {
        let query = bytes(|it| it.queries = vec![Query::query(name("lab."), whole)]);
        assert!(matches!(answer(&lab(), &query, Transport::Udp, true), Answer::Secondary), "{whole}");
    }
    assert_eq!(ask(RecordType::OPT, DNSClass::IN), Some(ResponseCode::FormErr));
    assert_eq!(ask(RecordType::TSIG, DNSClass::IN), Some(ResponseCode::NotImp));

    assert_eq!(code(&bytes(|it| it.queries.clear())), Some(ResponseCode::FormErr));
    assert_eq!(
        code(&bytes(|it| it.queries.push(Query::query(Name::root(), RecordType::A)))),
        Some(ResponseCode::FormErr)
    );
    let whole = with_edns(query("www.lab. A"), 1232).to_vec().unwrap();
    for end in 12..whole.len() {
        assert_eq!(code(&whole[..end]), Some(ResponseCode::FormErr), "cut after {end} octets");
    }
    assert_eq!(code(&[&whole[..], &[0]].concat()), Some(ResponseCode::FormErr));
    let mut two = [&whole[..], &whole[whole.len() - 11..]].concat();
    two[11] = 2;
    assert_eq!(code(&two), Some(ResponseCode::FormErr), "two OPT records");
    let mut pointer = b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01".to_vec();
    assert_eq!(code(&pointer), Some(ResponseCode::FormErr), "the name points at itself");
    pointer[13] = 2;
    assert_eq!(code(&pointer), Some(ResponseCode::FormErr), "the name points into the header");
}

#[test]
fn flags_say_who_answers_and_whether_others_can_be_asked() {
    let zones = lab();
    for (desired, may) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut asked = query("www.lab. A");
        asked.metadata.recursion_desired = desired;
        asked.metadata.checking_disabled = desired;
        let Answer::Reply(reply) = answer(&zones, &asked.to_vec().unwrap(), Transport::Tcp, may) else {
            panic!()
        };
        let flags = Message::from_vec(&reply).unwrap().metadata;
        assert_eq!((flags.message_type, flags.id), (MessageType::Response, 4711));
        assert_eq!(
            (flags.recursion_desired, flags.checking_disabled, flags.recursion_available),
            (desired, desired, may)
        );
        assert!(flags.authoritative && !flags.authentic_data && !flags.truncation);
    }
}

#[test]
fn names_of_others_are_forwarded_for_clients_that_may_and_wish_it() {
    let zones = lab();
    let ask = |desired, may| {
        let mut asked = with_edns(query("www.example.com. A"), 4096);
        asked.queries[0].set_query_type(RecordType::from(65_280));
        asked.metadata.recursion_desired = desired;
        asked.edns.as_mut().unwrap().set_dnssec_ok(desired);
        answer(&zones, &asked.to_vec().unwrap(), Transport::Udp, may)
    };
    let Answer::Forward(question) = ask(true, true) else { panic!() };
    assert_eq!(question.key().to_string(), "www.example.com. TYPE65280");
    for (desired, may) in [(false, true), (true, false), (false, false)] {
        let Answer::Reply(reply) = ask(desired, may) else { panic!() };
        let reply = Message::from_vec(&reply).unwrap();
        assert_eq!(reply.response_code, ResponseCode::Refused);
        assert_eq!(reply.recursion_available, may);
    }
}

#[test]
fn edns_is_answered_with_edns() {
    let zones = lab();
    assert!(reply(&zones, &query("www.lab. A")).edns.is_none());
    let mut asked = with_edns(query("www.lab. A"), 4096);
    asked.edns.as_mut().unwrap().set_dnssec_ok(true);
    let edns = reply(&zones, &asked).edns.unwrap();
    assert_eq!((edns.version(), edns.max_payload(), edns.flags().dnssec_ok), (0, 1232, true));

    asked.edns.as_mut().unwrap().set_version(1);
    let reply = reply_over(&zones, &asked, Transport::Tcp);
    // 16 is BADVERS here, and BADSIG in TSIG records.
    assert_eq!((u16::from(reply.response_code), reply.edns.unwrap().version()), (16, 0));
    assert!(reply.answers.is_empty() && reply.queries.len() == 1);
}
