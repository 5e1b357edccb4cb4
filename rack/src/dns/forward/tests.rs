//! A forwarder against servers that are dead, slow, or send false answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use basalt_dns::{Answer, Transport, Zones, answer};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::oneshot;

use super::*;

/// Servers here answer at once or never, so the waits can be short.
const TIMING: Timing = Timing {
    next: Duration::from_millis(200),
    stale: Duration::from_millis(300),
    patience: Duration::from_millis(1000),
};

/// The messages that a server sends for a query. The flag is true for TCP.
type Behaviour = Box<dyn Fn(&Message, bool) -> Vec<Message> + Send + Sync>;

/// A server on a port of loopback, over UDP and TCP.
struct Played {
    address: SocketAddr,
    over_udp: Arc<AtomicUsize>,
    over_tcp: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Played {
    async fn new(behaviour: impl Fn(&Message, bool) -> Vec<Message> + Send + Sync + 'static) -> Self {
        let behaviour: Arc<Behaviour> = Arc::new(Box::new(behaviour));
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let (over_udp, over_tcp) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut tasks = JoinSet::new();
        let (count, behave) = (over_udp.clone(), behaviour.clone());
        tasks.spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok((length, client)) = udp.recv_from(&mut buffer).await {
                count.fetch_add(1, Ordering::SeqCst);
                for message in behave(&Message::from_vec(&buffer[..length]).unwrap(), false) {
                    udp.send_to(&message.to_vec().unwrap(), client).await.unwrap();
                }
            }
        });
        let count = over_tcp.clone();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let mut query = vec![0; usize::from(stream.read_u16().await.unwrap())];
                stream.read_exact(&mut query).await.unwrap();
                for message in behaviour(&Message::from_vec(&query).unwrap(), true) {
                    let message = message.to_vec().unwrap();
                    stream.write_u16(u16::try_from(message.len()).unwrap()).await.unwrap();
                    stream.write_all(&message).await.unwrap();
                }
            }
        });
        Self { address, over_udp, over_tcp, tasks }
    }

    /// A server that gives every name this address.
    async fn with(address: &str) -> Self {
        let address = address.to_owned();
        Self::new(move |query, _| vec![respond(query, &address)]).await
    }

    fn queries(&self) -> (usize, usize) {
        (self.over_udp.load(Ordering::SeqCst), self.over_tcp.load(Ordering::SeqCst))
    }
}

/// The response with an address, for 60 seconds.
fn respond(query: &Message, address: &str) -> Message {
    let mut message = Message::new(query.id, MessageType::Response, OpCode::Query);
    message.metadata.recursion_available = true;
    message.queries = query.queries.clone();
    let data = RData::try_from_str(RecordType::A, address).unwrap();
    message.add_answer(Record::from_rdata(query.queries[0].name().clone(), 60, data));
    message
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn forward(upstream: &[SocketAddr]) -> Arc<Forward> {
    configured(Config { upstream: upstream.to_vec(), ..Config::default() })
}

fn configured(config: Config) -> Arc<Forward> {
    Forward::new(config, Limits::default(), TIMING).unwrap()
}

fn question(owner: &str) -> Question {
    let mut message = Message::new(99, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(owner), RecordType::A));
    match answer(&Zones::default(), &message.to_vec().unwrap(), Transport::Udp, true) {
        Answer::Forward(question) => *question,
        other => panic!("{other:?}"),
    }
}

fn begin(forward: &Arc<Forward>, owner: &str) -> oneshot::Receiver<Message> {
    let (send, receive) = oneshot::channel();
    forward.ask(forward.current(), [127, 0, 0, 9].into(), question(owner), move |reply| {
        send.send(Message::from_vec(&reply).unwrap()).unwrap();
    });
    receive
}

/// The code of the reply, and the data of its answers.
async fn ask(forward: &Arc<Forward>, owner: &str) -> (ResponseCode, Vec<String>) {
    let reply = begin(forward, owner).await.unwrap();
    assert_eq!((reply.id, &reply.queries[0].name().to_ascii()[..]), (99, owner));
    (reply.response_code, reply.answers.iter().map(|record| record.data.to_string()).collect())
}

fn found(address: &str) -> (ResponseCode, Vec<String>) {
    (ResponseCode::NoError, vec![address.to_owned()])
}

#[tokio::test]
async fn a_dead_server_is_passed_over_and_soon_asked_last() {
    let dead = Played::new(|_, _| Vec::new()).await;
    let alive = Played::with("192.0.2.1").await;
    let forward = forward(&[dead.address, alive.address]);
    for number in 0..4 {
        assert_eq!(ask(&forward, &format!("host{number}.example.com.")).await, found("192.0.2.1"));
    }
    // It was asked first twice.
    assert_eq!((dead.queries(), alive.queries()), ((2, 0), (4, 0)));
    let problems: Vec<_> = forward
        .servers()
        .into_iter()
        .filter(|state| state.problem.is_some())
        .map(|state| state.server)
        .collect();
    assert_eq!(problems, [dead.address]);
}

#[tokio::test]
async fn a_closed_port_and_a_failing_server_are_passed_over_at_once() {
    let closed = UdpSocket::bind("127.0.0.2:0").await.unwrap().local_addr().unwrap();
    let failing = Played::new(|query, _| {
        let mut message = respond(query, "192.0.2.1");
        message.answers.clear();
        message.metadata.response_code = ResponseCode::ServFail;
        vec![message]
    })
    .await;
    let alive = Played::with("192.0.2.1").await;
    let began = Instant::now();
    assert_eq!(
        ask(&forward(&[closed, failing.address, alive.address]), "www.example.com.").await,
        found("192.0.2.1")
    );
    assert_eq!(ask(&forward(&[closed, failing.address]), "www.example.com.").await.0, ResponseCode::ServFail);
    assert!(began.elapsed() < TIMING.patience);
    assert_eq!(failing.queries(), (2, 0));
}

#[tokio::test]
async fn without_a_server_that_answers_the_question_fails() {
    let dead = Played::new(|_, _| Vec::new()).await;
    let alone = forward(&[dead.address]);
    assert_eq!(ask(&alone, "www.example.com.").await.0, ResponseCode::ServFail);
    assert_eq!(dead.queries(), (2, 0), "a datagram may be lost");
    assert_eq!(ask(&alone, "other.example.com.").await.0, ResponseCode::ServFail);
    assert_eq!(dead.queries(), (3, 0), "a server that was silent is not waited for as long again");
    assert_eq!(ask(&forward(&[]), "www.example.com.").await.0, ResponseCode::ServFail);
}

#[tokio::test]
async fn guesses_of_strangers_are_not_believed() {
    let lies = |query: &Message| {
        let (mut id, mut other) = (respond(query, "192.0.2.66"), respond(query, "192.0.2.66"));
        id.metadata.id ^= 1;
        other.queries = vec![Query::query(name("www.example.net."), RecordType::A)];
        [id, other]
    };
    let honest =
        Played::new(move |query, _| lies(query).into_iter().chain([respond(query, "192.0.2.1")]).collect())
            .await;
    assert_eq!(ask(&forward(&[honest.address]), "www.example.com.").await, found("192.0.2.1"));
    assert_eq!(honest.queries(), (1, 0));

    // With this many guesses one may be right. Over TCP there are no guesses.
    let flooded = Played::new(move |query, tcp| {
        if tcp { vec![respond(query, "192.0.2.1")] } else { (0..10).flat_map(|_| lies(query)).collect() }
    })
    .await;
    assert_eq!(ask(&forward(&[flooded.address]), "www.example.com.").await, found("192.0.2.1"));
    assert_eq!(flooded.queries(), (1, 1));
}

#[tokio::test]
async fn answers_that_are_cut_or_in_other_letters_are_fetched_over_tcp() {
    let cut = Played::new(|query, tcp| {
        let mut message = respond(query, "192.0.2.1");
        message.metadata.truncation = !tcp;
        vec![message]
    })
    .await;
    assert_eq!(ask(&forward(&[cut.address]), "www.example.com.").await, found("192.0.2.1"));
    assert_eq!(cut.queries(), (1, 1));

    // 40 letters: by chance alone they would all be small once in 2^40 queries.
    let owner = "a".repeat(40) + ".example.com.";
    let lowering = Played::new(|query, _| {
        let mut message = respond(query, "192.0.2.1");
        let lower = query.queries[0].name().to_lowercase();
        message.queries[0].set_name(lower);
        vec![message]
    })
    .await;
    assert_eq!(ask(&forward(&[lowering.address]), &owner).await, found("192.0.2.1"));
    assert_eq!(lowering.queries(), (1, 1));
}

#[tokio::test]
async fn a_denial_is_passed_on_and_kept() {
    let server = Played::new(|query, _| {
        let mut message = respond(query, "192.0.2.1");
        message.answers.clear();
        message.metadata.response_code = ResponseCode::NXDomain;
        let soa =
            RData::try_from_str(RecordType::SOA, "ns.example.com. root.example.com. 1 2 3 4 60").unwrap();
        message.add_authority(Record::from_rdata(name("example.com."), 60, soa));
        vec![message]
    })
    .await;
    let forward = forward(&[server.address]);
    for _ in 0..2 {
        let reply = begin(&forward, "no.example.com.").await.unwrap();
        assert_eq!((reply.response_code, reply.authorities.len()), (ResponseCode::NXDomain, 1));
    }
    assert_eq!(server.queries(), (1, 0));
    assert_eq!((forward.counts().hits, forward.kept().0), (1, 1));
    let latency = forward.latency();
    assert_eq!((latency.answered, latency.within.last()), (1, Some(&1)));
    assert!(!latency.time.is_zero());
}

#[tokio::test]
async fn an_old_answer_serves_when_the_server_dies() {
    // The answer's TTL is 0, so the next question causes a new query.
    let mut server = Played::new(|query, _| {
        let mut message = respond(query, "192.0.2.1");
        message.answers[0].ttl = 0;
        vec![message]
    })
    .await;
    let forward = forward(&[server.address]);
    assert_eq!(ask(&forward, "www.example.com.").await, found("192.0.2.1"));
    server.tasks.shutdown().await;
    assert_eq!(ask(&forward, "www.example.com.").await, found("192.0.2.1"));
    assert_eq!(ask(&forward, "other.example.com.").await.0, ResponseCode::ServFail);
    assert_eq!(forward.counts().stale, 1);
}

#[tokio::test]
async fn clients_of_a_slow_server_get_the_old_answer_in_time() {
    let asked = AtomicUsize::new(0);
    let server = Played::new(move |query, _| {
        let mut message = respond(query, "192.0.2.1");
        message.answers[0].ttl = 0;
        if asked.fetch_add(1, Ordering::SeqCst) == 0 { vec![message] } else { Vec::new() }
    })
    .await;
    let forward = forward(&[server.address]);
    assert_eq!(ask(&forward, "www.example.com.").await, found("192.0.2.1"));
    let began = Instant::now();
    assert_eq!(ask(&forward, "www.example.com.").await, found("192.0.2.1"));
    assert!((TIMING.stale..TIMING.patience).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_hundred_clients_cost_one_query() {
    let server = Played::with("192.0.2.1").await;
    let forward = forward(&[server.address]);
    // Without an await in between, the forwarder's tasks run only after all have asked.
    let waiting: Vec<_> = (0..100).map(|_| begin(&forward, "www.example.com.")).collect();
    for reply in waiting {
        assert_eq!(reply.await.unwrap().answers.len(), 1);
    }
    assert_eq!(server.queries(), (1, 0));
}

#[tokio::test]
async fn private_addresses_reach_clients_under_allowed_names_alone() {
    let server = Played::with("10.0.0.1").await;
    let upstream = vec![server.address];
    let strict = forward(&upstream);
    assert_eq!(ask(&strict, "www.example.com.").await.0, ResponseCode::Refused);

    let private = Private::Under(vec![name("example.com.")]);
    let allowing = configured(Config { upstream: upstream.clone(), private, ..Config::default() });
    assert_eq!(ask(&allowing, "www.example.com.").await, found("10.0.0.1"));
    assert_eq!(ask(&allowing, "www.example.net.").await.0, ResponseCode::Refused);

    let conditional = vec![(name("corp."), upstream.clone())];
    let corporate = configured(Config { upstream, conditional, ..Config::default() });
    assert_eq!(ask(&corporate, "www.corp.").await, found("10.0.0.1"));
    assert_eq!(ask(&corporate, "www.example.com.").await.0, ResponseCode::Refused);
}

#[tokio::test]
async fn the_conditional_forward_with_the_longest_suffix_is_asked() {
    let servers =
        [Played::with("192.0.2.1").await, Played::with("192.0.2.2").await, Played::with("192.0.2.3").await];
    let [all, corp, lab] = servers.each_ref().map(|server| vec![server.address]);
    let conditional = vec![(name("corp."), corp), (name("lab.corp."), lab.clone())];
    let forward = configured(Config { upstream: all, conditional, ..Config::default() });
    assert_eq!(ask(&forward, "www.example.com.").await, found("192.0.2.1"));
    assert_eq!(ask(&forward, "corp.").await, found("192.0.2.2"));
    assert_eq!(ask(&forward, "www.LAB.corp.").await, found("192.0.2.3"));
    assert_eq!(ask(&forward, "notcorp.").await, found("192.0.2.1"));
    forward.configure(Config { upstream: lab, ..Config::default() });
    assert_eq!(
        ask(&forward, "www.example.com.").await,
        found("192.0.2.3"),
        "kept answers were of the other server"
    );
}

#[tokio::test]
async fn a_forwarder_that_is_its_own_upstream_fails_at_once() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let forward = forward(&[socket.local_addr().unwrap()]);
    let own = Arc::clone(&forward);
    let _server = tokio::spawn(async move {
        let socket = Arc::new(socket);
        let mut buffer = [0; 4096];
        while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
            let answer = answer(&Zones::default(), &buffer[..length], Transport::Udp, true);
            let Answer::Forward(question) = answer else { panic!("{answer:?}") };
            let socket = Arc::clone(&socket);
            own.ask(own.current(), client.ip(), *question, move |reply| {
                socket.try_send_to(&reply, client).unwrap();
            });
        }
    });
    let began = Instant::now();
    assert_eq!(ask(&forward, "www.example.com.").await.0, ResponseCode::ServFail);
    assert!(began.elapsed() < TIMING.patience);
    assert_eq!(forward.counts().loops, 1);
}

#[test]
fn servers_of_the_system_are_asked_but_we_ourselves() {
    let text = "# nameserver 192.0.2.9\nsearch example.com\nnameserver 192.0.2.1\n\tnameserver\t10.0.0.1 # own\nnameserver 2001:db8::1\nnameserver fe80::1%eth0\nnameservers 192.0.2.8\n";
    let servers: Vec<String> =
        nameservers(text, &[[10, 0, 0, 1].into()].into()).iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53"]);
}
