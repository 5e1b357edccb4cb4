//! Responses of other servers: those that answer our query, and all others (RFC 5452).

use basalt_dns::{BadResponse, Forwarder, Limits, Next, RData, Record, RecordType, Response, Zones};
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::NULL;

use crate::support::{forwarded, name, query, respond, with_edns};

/// The query that a forwarder sends for a client's.
fn sent(query: &Message, random: [u8; 32]) -> Vec<u8> {
    let question = forwarded(&Zones::default(), query);
    let mut forwarder = Forwarder::new(0x1122_3344_5566_7788, Limits::default());
    match forwarder.ask(std::time::Instant::now(), [10, 0, 0, 9].into(), question, ()) {
        Next::Ask(upstream) => upstream.query(0xbeef, &random),
        other => panic!("{other:?}"),
    }
}

#[test]
fn queries_have_random_letters_and_what_the_client_asked_for() {
    let mut asked = with_edns(query("www.example.com. AAAA"), 4096);
    asked.metadata.checking_disabled = true;
    asked.edns.as_mut().unwrap().set_dnssec_ok(true);
    let read = Message::from_vec(&sent(&asked, [0b1010_1010; 32])).unwrap();
    assert_eq!(read.id, 0xbeef);
    assert_eq!(read.queries[0].name().to_ascii(), "WwW.ExAmPlE.CoM.");
    assert_eq!((read.metadata.message_type, read.metadata.op_code), (MessageType::Query, OpCode::Query));
    let flags = read.metadata;
    assert!(
        flags.recursion_desired
            && flags.authentic_data
            && flags.checking_disabled
            && !flags.recursion_available
    );
    let edns = read.edns.unwrap();
    assert_eq!((edns.max_payload(), edns.version(), edns.flags().dnssec_ok), (1232, 0, true));

    let plain = Message::from_vec(&sent(&query("www.example.com. AAAA"), [0; 32])).unwrap();
    assert!(!plain.metadata.checking_disabled && !plain.edns.unwrap().flags().dnssec_ok);
    assert_eq!(plain.queries[0].name().to_ascii(), "www.example.com.");
}

#[test]
fn a_message_is_an_answer_only_if_id_question_and_letters_are_ours() {
    let sent = sent(&query("www.example.com. A"), [0x55; 32]);
    let read = |change: &dyn Fn(&mut Message)| {
        let mut message = respond(&sent, ResponseCode::NoError, "www.example.com. 60 A 192.0.2.1", "");
        change(&mut message);
        Response::read(&sent, &message.to_vec().unwrap()).map(|_| ())
    };
    assert_eq!(read(&|_| {}), Ok(()));
    for (what, expected, change) in [
        (
            "another id",
            BadResponse::Mismatch,
            &(|it: &mut Message| it.metadata.id ^= 1) as &dyn Fn(&mut Message),
        ),
        ("a query", BadResponse::Mismatch, &|it| it.metadata.message_type = MessageType::Query),
        ("another kind", BadResponse::Mismatch, &|it| it.metadata.op_code = OpCode::Notify),
        ("no question", BadResponse::Mismatch, &|it| it.queries.clear()),
        ("another name", BadResponse::Mismatch, &|it| it.queries = query("www.example.net. A").queries),
        ("another type", BadResponse::Mismatch, &|it| it.queries = query("www.example.com. TXT").queries),
        ("other letters", BadResponse::Case, &|it| it.queries = query("www.example.com. A").queries),
        ("cut", BadResponse::Truncated, &|it| it.metadata.truncation = true),
        ("SERVFAIL", BadResponse::Code(2), &|it| it.metadata.response_code = ResponseCode::ServFail),
        ("REFUSED", BadResponse::Code(5), &|it| it.metadata.response_code = ResponseCode::Refused),
    ] {
        assert_eq!(read(change), Err(expected), "{what}");
    }
    let whole =
        respond(&sent, ResponseCode::NoError, "www.example.com. 60 A 192.0.2.1", "").to_vec().unwrap();
    for end in 0..whole.len() {
        let read = Response::read(&sent, &whole[..end]);
        // The OPT record at the end is not needed.
        assert!(read.is_err() || end >= whole.len() - 11, "cut after {end} octets: {read:?}");
    }
}

#[test]
fn data_that_are_not_of_their_type_are_refused_and_unknown_ones_passed_on() {
    let sent = sent(&query("www.example.com. ANY"), [0; 32]);
    let unknown = |number: u16, length: usize| {
        let mut message = respond(&sent, ResponseCode::NoError, "", "");
        let data = RData::Unknown { code: RecordType::from(number), rdata: NULL::with(vec![1; length]) };
        message.add_answer(Record::from_rdata(name("www.example.com."), 60, data));
        Response::read(&sent, &message.to_vec().unwrap()).map(|_| ())
    };
    assert_eq!(unknown(1, 4), Ok(()));
    assert_eq!(unknown(1, 5), Err(BadResponse::Malformed));
    assert_eq!(unknown(28, 15), Err(BadResponse::Malformed));
    // A name of one letter without an end
    assert_eq!(unknown(5, 2), Err(BadResponse::Malformed));
    assert_eq!(unknown(65_280, 5), Ok(()));
    assert_eq!(unknown(46, 1), Ok(()));
}

#[test]
fn private_addresses_are_found() {
    let sent = sent(&query("www.example.com. ANY"), [0; 32]);
    for (record, expected) in [
        ("A 10.1.2.3", true),
        ("A 172.31.0.1", true),
        ("A 192.168.1.1", true),
        ("A 127.0.0.1", true),
        ("A 169.254.169.254", true),
        ("A 100.64.0.1", true),
        ("A 0.0.0.0", true),
        ("AAAA fd00::1", true),
        ("AAAA fe80::1", true),
        ("AAAA ::1", true),
        ("AAAA ::ffff:10.0.0.1", true),
        ("A 192.0.2.1", false),
        ("A 100.128.0.1", false),
        ("AAAA 2001:db8::1", false),
        ("TXT 10.1.2.3", false),
    ] {
        let message = respond(&sent, ResponseCode::NoError, &format!("www.example.com. 60 {record}"), "");
        let response = Response::read(&sent, &message.to_vec().unwrap()).unwrap();
        assert_eq!(response.private_address().is_some(), expected, "{record}");
    }
}
