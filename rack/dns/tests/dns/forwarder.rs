//! Kept answers, and one query for many clients (RFC 2308, RFC 8767).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use basalt_dns::{
    Answer, Counts, Forwarder, Limits, Next, Outcome, Response, Transport, Upstream, Zones, answer,
};
use hickory_proto::op::{Message, ResponseCode};

use crate::support::{forwarded, query, respond, text, with_edns, zone, zones};

const WWW: &str = "www.example.com. 100 A 192.0.2.1";
const SOA: &str = "example.com. 1000 SOA ns.example.com. root.example.com. 1 2 3 4 400";

/// A forwarder with a clock that stands still until it is moved.
struct Played {
    forwarder: Forwarder<u32>,
    now: Instant,
    zones: Zones,
}

impl Played {
    fn new(limits: Limits) -> Self {
        Self { forwarder: Forwarder::new(1, limits), now: Instant::now(), zones: Zones::default() }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn ask_as(&mut self, client: [u8; 4], number: u32, query: &Message) -> Next<u32> {
        let question = forwarded(&self.zones, query);
        self.forwarder.ask(self.now, IpAddr::from(client), question, number)
    }

    /// The query that a question makes.
    fn upstream(&mut self, question: &str) -> Upstream {
        match self.ask_as([10, 0, 0, 9], 0, &query(question)) {
            Next::Ask(upstream) => upstream,
            other => panic!("{other:?}"),
        }
    }

    /// The reply from what is kept.
    fn kept(&mut self, question: &str) -> String {
        match self.ask_as([10, 0, 0, 9], 0, &query(question)) {
            Next::Reply(0, reply) => text(&Message::from_vec(&reply).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    fn finish(&mut self, upstream: &Upstream, outcome: Outcome) -> Vec<(u32, Message)> {
        let replies = self.forwarder.finish(self.now, upstream, outcome);
        replies.into_iter().map(|(number, reply)| (number, Message::from_vec(&reply).unwrap())).collect()
    }

    /// Has a server answer a query, and returns the first reply.
    fn answer(
        &mut self,
        upstream: &Upstream,
        code: ResponseCode,
        answers: &str,
        authorities: &str,
    ) -> String {
        let outcome = response(upstream, code, answers, authorities);
        text(&self.finish(upstream, outcome)[0].1)
    }

    fn fail(&mut self, upstream: &Upstream) -> String {
        text(&self.finish(upstream, Outcome::Failed)[0].1)
    }
}

fn response(upstream: &Upstream, code: ResponseCode, answers: &str, authorities: &str) -> Outcome {
    let sent = upstream.query(7, &[0; 32]);
    let message = respond(&sent, code, answers, authorities).to_vec().unwrap();
    Outcome::Response(Response::read(&sent, &message).unwrap())
}

#[test]
fn an_answer_counts_for_its_ttl_and_counts_down() {
    let mut played = Played::new(Limits::default());
    let upstream = played.upstream("www.example.com. A");
    let alias = "www.example.com. 150 CNAME host.example.net.\nhost.example.net. 100 A 192.0.2.1";
    let first = played.answer(&upstream, ResponseCode::NoError, alias, "");
    assert_eq!(
        first,
        "NOERROR\nwww.example.com. 150 CNAME host.example.net.\nhost.example.net. 100 A 192.0.2.1\n"
    );
    played.pass(99);
    let last = played.kept("WWW.example.com. A");
    assert_eq!(
        last,
        "NOERROR\nWWW.example.com. 51 CNAME host.example.net.\nhost.example.net. 1 A 192.0.2.1\n"
    );
    played.pass(1);
    assert_eq!(played.upstream("www.example.com. A").key(), upstream.key());
    assert_eq!(played.forwarder.counts(), Counts { hits: 1, queries: 2, answered: 1, ..Counts::default() });
}

#[test]
fn a_denial_counts_for_five_minutes_at_most() {
    for (code, word) in [(ResponseCode::NXDomain, "NXDOMAIN"), (ResponseCode::NoError, "NOERROR")] {
        let mut played = Played::new(Limits::default());
        let upstream = played.upstream("no.example.com. A");
        assert_eq!(
            played.answer(&upstream, code, "", SOA),
            format!("{word}\nauthority example.com. 1000 SOA 1\n")
        );
        played.pass(299);
        assert_eq!(played.kept("no.example.com. A"), format!("{word}\nauthority example.com. 701 SOA 1\n"));
        played.pass(1);
        played.upstream("no.example.com. A");
    }
}

#[test]
fn a_denial_without_soa_counts_for_those_who_wait() {
    let mut played = Played::new(Limits::default());
    let upstream = played.upstream("no.example.com. A");
    assert_eq!(played.answer(&upstream, ResponseCode::NXDomain, "", ""), "NXDOMAIN\n");
    played.upstream("no.example.com. A");
}

#[test]
fn a_failure_counts_for_five_seconds() {
    let mut played = Played::new(Limits::default());
    let upstream = played.upstream("www.example.com. A");
    assert_eq!(played.fail(&upstream), "SERVFAIL\n");
    played.pass(4);
    assert_eq!(played.kept("www.example.com. A"), "SERVFAIL\n");
    played.pass(1);
    played.upstream("www.example.com. A");
}

#[test]
fn an_answer_past_its_time_serves_for_a_day_while_nobody_answers() {
    let mut played = Played::new(Limits::default());
    let upstream = played.upstream("www.example.com. A");
    played.answer(&upstream, ResponseCode::NoError, WWW, "");
    let stale = "NOERROR\nwww.example.com. 30 A 192.0.2.1\n";

    played.pass(3600);
    let upstream = played.upstream("www.example.com. A");
    assert_eq!(played.fail(&upstream), stale);
    // The servers are left alone for 30 seconds.
    played.pass(29);
    assert_eq!(played.kept("www.example.com. A"), stale);
    played.pass(1);
    let upstream = played.upstream("www.example.com. A");
    assert_eq!(
        played.answer(&upstream, ResponseCode::NoError, WWW, ""),
        "NOERROR\nwww.example.com. 100 A 192.0.2.1\n"
    );

    played.pass(100 + 86_400);
    let upstream = played.upstream("www.example.com. A");
    assert_eq!(played.fail(&upstream), "SERVFAIL\n");
}

#[test]
fn clients_of_slow_servers_get_the_old_answer_and_the_query_goes_on() {
    let mut played = Played::new(Limits::default());
    let upstream = played.upstream("www.example.com. A");
    assert!(played.forwarder.overdue(played.now, &upstream).is_empty());
    played.answer(&upstream, ResponseCode::NoError, WWW, "");
    played.pass(100);
    let upstream = played.upstream("www.example.com. A");
    let replies = played.forwarder.overdue(played.now, &upstream);
    assert_eq!(
        text(&Message::from_vec(&replies[0].1).unwrap()),
        "NOERROR\nwww.example.com. 30 A 192.0.2.1\n"
    );
    assert!(matches!(played.ask_as([10, 0, 0, 9], 5, &query("www.example.com. A")), Next::Wait));
    let outcome = response(&upstream, ResponseCode::NoError, WWW, "");
    assert_eq!(played.finish(&upstream, outcome).iter().map(|(number, _)| *number).collect::<Vec<_>>(), [5]);
}

#[test]
fn a_refused_answer_reaches_nobody() {
    let mut played = Played::new(Limits::default());
    let upstream = played.upstream("www.example.com. A");
    played.answer(&upstream, ResponseCode::NoError, WWW, "");
    played.pass(100);
    let upstream = played.upstream("www.example.com. A");
    assert_eq!(text(&played.finish(&upstream, Outcome::Refused)[0].1), "REFUSED\n");
    assert_eq!(played.kept("www.example.com. A"), "REFUSED\n");
}

#[test]
fn a_hundred_clients_are_answered_by_one_query_each_with_its_own_question() {
    let mut played = Played::new(Limits::default());
    let upstream = played.upstream("www.example.com. A");
    for number in 1..100 {
        let mut asked = query(if number % 2 == 0 { "WWW.example.com. A" } else { "www.EXAMPLE.com. A" });
        asked.metadata.id = u16::try_from(number).unwrap();
        assert!(matches!(played.ask_as([10, 0, 0, 1], number, &asked), Next::Wait));
    }
    let outcome = response(&upstream, ResponseCode::NoError, WWW, "");
    let replies = played.finish(&upstream, outcome);
    assert_eq!(replies.len(), 100);
    for (number, reply) in replies.iter().skip(1) {
        assert_eq!(u32::from(reply.id), *number);
        let expected = if number % 2 == 0 { "WWW.example.com." } else { "www.EXAMPLE.com." };
        assert_eq!(reply.queries[0].name().to_ascii(), expected);
        assert!(reply.recursion_available && reply.recursion_desired && !reply.authoritative);
    }
    assert_eq!(
        played.forwarder.counts(),
        Counts { queries: 1, joined: 99, answered: 100, ..Counts::default() }
    );
}

#[test]
fn each_bound_refuses_the_next_question_and_no_more() {
    let mut played = Played::new(Limits { questions: 3, askers: 2, per_client: 2, ..Limits::default() });
    let refused = |next: Next<u32>| matches!(next, Next::Reply(..));
    let a = [10, 0, 0, 1];
    let Next::Ask(one) = played.ask_as(a, 1, &query("one.example.com. A")) else { panic!() };
    assert!(!refused(played.ask_as(a, 2, &query("two.example.com. A"))));
    assert!(refused(played.ask_as(a, 3, &query("three.example.com. A"))), "of one client");
    let b = [10, 0, 0, 2];
    assert!(!refused(played.ask_as(b, 4, &query("one.example.com. A"))));
    assert!(refused(played.ask_as([10, 0, 0, 3], 5, &query("one.example.com. A"))), "of one question");
    assert!(!refused(played.ask_as(b, 6, &query("three.example.com. A"))));
    assert!(refused(played.ask_as([10, 0, 0, 3], 7, &query("four.example.com. A"))), "in all");
    let Counts { full, per_client, .. } = played.forwarder.counts();
    assert_eq!((full, per_client), (2, 1));

    // A client may ask again when it has its answer.
    assert_eq!(played.finish(&one, Outcome::Failed).len(), 2);
    assert!(!refused(played.ask_as(a, 8, &query("four.example.com. A"))));
}

#[test]
fn a_client_that_asks_many_names_drives_out_none_that_is_used() {
    let mut played = Played::new(Limits { cache: 1 << 18, ..Limits::default() });
    let upstream = played.upstream("www.example.com. A");
    played.answer(&upstream, ResponseCode::NoError, WWW, "");
    let outcome = response(&upstream, ResponseCode::NoError, WWW, "");
    for number in 0..20_000 {
        let upstream = played.upstream(&format!("host{number}.example.com. A"));
        played.forwarder.finish(played.now, &upstream, outcome.clone());
        let (entries, size) = played.forwarder.kept();
        assert!(size <= 1 << 18 && entries < 1250, "{entries} entries of {size} octets");
        if number % 100 == 0 {
            played.kept("www.example.com. A");
        }
    }
    played.upstream("host0.example.com. A");
}

#[test]
fn names_that_are_used_again_and_again_stay_within_the_limit_of_the_cache() {
    let mut played = Played::new(Limits { cache: 1 << 16, ..Limits::default() });
    let upstream = played.upstream("www.example.com. A");
    played.answer(&upstream, ResponseCode::NoError, WWW, "");
    let outcome = response(&upstream, ResponseCode::NoError, WWW, "");
    // Each round uses the names of the rounds before again, which moves them to the young generation, and adds some.
    for round in 0..40 {
        for number in (0..round * 10).rev().chain(round * 10..(round + 1) * 10) {
            let asked = query(&format!("host{number}.example.com. A"));
            if let Next::Ask(upstream) = played.ask_as([10, 0, 0, 9], 0, &asked) {
                played.forwarder.finish(played.now, &upstream, outcome.clone());
            }
            let (entries, size) = played.forwarder.kept();
            assert!(size <= 1 << 16, "{entries} entries of {size} octets in round {round}");
        }
    }
}

#[test]
fn a_query_that_comes_back_is_refused() {
    let (mut ours, mut other) = (Played::new(Limits::default()), Played::new(Limits::default()));
    other.forwarder = Forwarder::new(2, Limits::default());
    let upstream = ours.upstream("www.example.com. A");
    let sent = Message::from_vec(&upstream.query(7, &[0; 32])).unwrap();
    assert!(matches!(ours.ask_as([127, 0, 0, 1], 1, &sent), Next::Reply(1, _)));
    // A second forwarder between does not hide it.
    let Next::Ask(further) = other.ask_as([127, 0, 0, 1], 2, &sent) else { panic!() };
    let sent = Message::from_vec(&further.query(7, &[0; 32])).unwrap();
    let Next::Reply(3, reply) = ours.ask_as([127, 0, 0, 1], 3, &sent) else { panic!() };
    assert_eq!(text(&Message::from_vec(&reply).unwrap()), "REFUSED\n");
    // Eight forwarders in a row are a loop, whoever they are.
    let mut sent = Some(sent);
    for number in 3..20 {
        let mut next = Played::new(Limits::default());
        next.forwarder = Forwarder::new(number, Limits::default());
        let Some(query) = &sent else { break };
        sent = match next.ask_as([127, 0, 0, 1], 4, query) {
            Next::Ask(upstream) => Some(Message::from_vec(&upstream.query(7, &[0; 32])).unwrap()),
            _ => None,
        };
    }
    assert!(sent.is_none());
}

#[test]
fn clients_with_dnssec_or_without_checks_have_answers_of_their_own() {
    let mut played = Played::new(Limits::default());
    let plain = query("www.example.com. A");
    let mut dnssec = with_edns(query("www.example.com. A"), 1232);
    dnssec.edns.as_mut().unwrap().set_dnssec_ok(true);
    let mut unchecked = query("www.example.com. A");
    unchecked.metadata.checking_disabled = true;
    for query in [&plain, &dnssec, &unchecked] {
        assert!(matches!(played.ask_as([10, 0, 0, 9], 0, query), Next::Ask(_)));
    }
}

#[test]
fn ad_reaches_clients_that_read_it() {
    let mut played = Played::new(Limits::default());
    let mut reads = query("www.example.com. A");
    reads.metadata.authentic_data = true;
    let Next::Ask(upstream) = played.ask_as([10, 0, 0, 9], 0, &reads) else { panic!() };
    assert!(matches!(played.ask_as([10, 0, 0, 9], 1, &query("www.example.com. A")), Next::Wait));
    played.zones = zones([zone("lab.", "alias.lab. 30 CNAME www.example.com.")]);
    reads.queries = query("alias.lab. A").queries;
    assert!(matches!(played.ask_as([10, 0, 0, 9], 2, &reads), Next::Wait));

    let sent = upstream.query(7, &[0; 32]);
    let mut message = respond(&sent, ResponseCode::NoError, WWW, "");
    message.metadata.authentic_data = true;
    let outcome = Outcome::Response(Response::read(&sent, &message.to_vec().unwrap()).unwrap());
    let replies = played.finish(&upstream, outcome);
    let authentic: Vec<bool> = replies.iter().map(|(_, reply)| reply.authentic_data).collect();
    assert_eq!(
        authentic,
        [true, false, false],
        "it was asked for; it was not; part of it is from an unsigned zone"
    );
    assert_eq!(
        text(&replies[2].1),
        "NOERROR aa\nalias.lab. 30 CNAME www.example.com.\nwww.example.com. 100 A 192.0.2.1\n",
        "aliases of our zones come first"
    );
}

#[test]
fn an_answer_that_does_not_fit_for_one_client_may_fit_for_another() {
    let mut played = Played::new(Limits::default());
    let upstream = played.upstream("www.example.com. A");
    let asked = with_edns(query("www.example.com. A"), 1232);
    assert!(matches!(played.ask_as([10, 0, 0, 9], 1, &asked), Next::Wait));
    let over_tcp =
        answer(&Zones::default(), &query("www.example.com. A").to_vec().unwrap(), Transport::Tcp, true);
    let Answer::Forward(question) = over_tcp else { panic!() };
    assert!(matches!(played.forwarder.ask(played.now, [10, 0, 0, 9].into(), *question, 2), Next::Wait));
    let many: Vec<String> = (0..60).map(|number| format!("www.example.com. 60 A 192.0.2.{number}")).collect();
    let outcome = response(&upstream, ResponseCode::NoError, &many.join("\n"), "");
    let replies = played.finish(&upstream, outcome);
    let shapes: Vec<(usize, bool)> =
        replies.iter().map(|(_, reply)| (reply.answers.len(), reply.truncation)).collect();
    assert_eq!(shapes, [(0, true), (60, false), (60, false)]);
}

#[test]
fn an_answer_of_earlier_servers_reaches_its_clients_and_no_later_ones() {
    let mut played = Played::new(Limits::default());
    let (now, name) = (played.now, "www.example.com. A");
    let earlier = played.forwarder.generation();
    let upstream = played.upstream(name);
    played.forwarder.forget();
    // This question arrived before the change, and is asked after it.
    let question = forwarded(&Zones::default(), &query(name));
    assert!(matches!(played.forwarder.ask_in(earlier, now, [10, 0, 0, 9].into(), question, 1), Next::Wait));
    let later = played.upstream(name);
    let outcome = response(&upstream, ResponseCode::NoError, WWW, "");
    let told: Vec<u32> = played.finish(&upstream, outcome).iter().map(|(number, _)| *number).collect();
    assert_eq!(told, [0, 1]);
    assert_eq!(played.forwarder.kept(), (0, 0));
    played.answer(&later, ResponseCode::NoError, "www.example.com. 100 A 192.0.2.2", "");
    assert_eq!(played.kept(name), "NOERROR\nwww.example.com. 100 A 192.0.2.2\n");
    let question = forwarded(&Zones::default(), &query(name));
    let next = played.forwarder.ask_in(earlier, now, [10, 0, 0, 9].into(), question, 2);
    let Next::Ask(again) = next else { panic!("the cache is of later servers: {next:?}") };
    assert!(played.forwarder.overdue(now, &again).is_empty());
    assert_eq!(text(&played.finish(&again, Outcome::Failed)[0].1), "SERVFAIL\n");
}
