//! The shell on loopback, with the test's own sockets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use basalt_tftp::client::{ClientRequest, Failure};
use basalt_tftp::packet::{ErrorCode, Packet};
use basalt_tftp::server::{self, Event, Settings};
use basalt_tftp::{Limits, Outcome};
use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::support::{Files, PATIENCE, Running, fetch, large};

#[tokio::test]
async fn fetches_with_its_own_client() {
    let mut server = Running::one().await;
    for (name, content) in
        [("small.efi", Bytes::from_static(b"small")), ("empty", Bytes::new()), ("boot/large.img", large())]
    {
        let mut request = ClientRequest::new(server.address(), name);
        (request.blksize, request.windowsize, request.tsize) = (Some(1468), Some(16), true);
        let fetched = fetch(request).await.unwrap();
        assert_eq!(fetched.size, Some(content.len() as u64));
        assert!(fetched.content == content, "{name}");
        assert_eq!(server.outcome().await, Outcome::Completed);
    }
    for (name, code) in [
        ("none", ErrorCode::FileNotFound),
        ("../x", ErrorCode::AccessViolation),
        ("broken", ErrorCode::Undefined),
        ("never", ErrorCode::Undefined),
    ] {
        let failure = fetch(ClientRequest::new(server.address(), name)).await.unwrap_err();
        assert!(
            matches!(&failure, Failure::Refused { code: answered, .. } if *answered == code),
            "{name}: {failure}"
        );
        assert!(matches!(server.event().await, Event::Refused { .. }));
    }
    server.stop().await;
}

#[tokio::test]
async fn answers_the_second_request_from_the_port_of_an_aborted_probe() {
    let mut server = Running::one().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = [0; 2048];
    let options = vec![("tsize".to_owned(), "0".to_owned()), ("blksize".to_owned(), "1468".to_owned())];
    let request = Packet::Request { write: false, file: "boot/large.img", mode: "octet", options }.encode();
    let mut ports = Vec::new();
    for abort in [true, false] {
        socket.send_to(&request, server.address()).await.unwrap();
        let (len, from) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
        let Ok(Packet::Oack { options }) = Packet::parse(&buffer[..len]) else {
            panic!("{:?}", &buffer[..len])
        };
        assert_eq!(options[0], ("tsize".to_owned(), "3000000".to_owned()));
        ports.push(from.port());
        if abort {
            socket.send_to(&Packet::error(ErrorCode::OptionNegotiation, "aborted"), from).await.unwrap();
            assert_eq!(server.outcome().await, Outcome::Probed);
        }
    }
    assert_ne!(ports[0], ports[1], "a new transfer has a new port");
    server.stop().await;
}

#[tokio::test]
async fn two_requests_from_one_port_are_two_transfers() {
    let server = Running::one().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request =
        Packet::Request { write: false, file: "small.efi", mode: "octet", options: vec![] }.encode();
    let mut buffer = [0; 2048];
    let mut peers = Vec::new();
    for _ in 0..2 {
        socket.send_to(&request, server.address()).await.unwrap();
        let (_, from) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
        peers.push(from);
    }
    assert_ne!(peers[0], peers[1]);
    server.stop().await;
}

#[tokio::test]
async fn answers_from_the_address_that_was_asked() {
    let server = Running::start(&["127.0.0.1", "127.0.0.2"], Limits::default()).await;
    for address in server.addresses.clone() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let request =
            Packet::Request { write: false, file: "small.efi", mode: "octet", options: vec![] }.encode();
        socket.send_to(&request, address).await.unwrap();
        let mut buffer = [0; 2048];
        let (_, from) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(from.ip(), address.ip());
        assert_ne!(from.port(), address.port());
    }
    server.stop().await;
}

#[tokio::test]
async fn refuses_to_write_and_translates_netascii() {
    let mut server = Running::one().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = [0; 2048];
    let mut ask = async |write, mode, file| {
        let request = Packet::Request { write, file, mode, options: vec![] }.encode();
        socket.send_to(&request, server.address()).await.unwrap();
        let (len, from) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
        (buffer[..len].to_vec(), from)
    };
    let (refusal, _) = ask(true, "octet", "x").await;
    assert!(matches!(Packet::parse(&refusal), Ok(Packet::Error { code: ErrorCode::AccessViolation, .. })));
    let (text, from) = ask(false, "netascii", "text").await;
    assert_eq!(Packet::parse(&text), Ok(Packet::Data { block: 1, data: b"one\r\ntwo\r\n" }));
    socket.send_to(&Packet::Ack { block: 1 }.encode(), from).await.unwrap();
    assert!(matches!(server.event().await, Event::Refused { .. }));
    assert_eq!(server.outcome().await, Outcome::Completed);
    server.stop().await;
}

#[tokio::test]
async fn drops_requests_at_the_limit_and_serves_again_below_it() {
    let mut server = Running::start(&["127.0.0.1"], Limits { total: 8, per_client: 1 }).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request =
        Packet::Request { write: false, file: "small.efi", mode: "octet", options: vec![] }.encode();
    let mut buffer = [0; 2048];
    socket.send_to(&request, server.address()).await.unwrap();
    let (_, first) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
    socket.send_to(&request, server.address()).await.unwrap();
    assert!(matches!(server.event().await, Event::Dropped { .. }));
    socket.send_to(&Packet::Ack { block: 1 }.encode(), first).await.unwrap();
    assert_eq!(server.outcome().await, Outcome::Completed);
    // The client core repeats its request if the place is not free yet.
    let fetched = fetch(ClientRequest::new(server.address(), "small.efi")).await.unwrap();
    assert_eq!(fetched.content, b"small");
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((count(&server.counters.busy) >= 1, count(&server.counters.aborted)), (true, 0));
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_transfer() {
    let mut server = Running::one().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request =
        Packet::Request { write: false, file: "boot/large.img", mode: "octet", options: vec![] }.encode();
    socket.send_to(&request, server.address()).await.unwrap();
    let mut buffer = [0; 2048];
    timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
    drop(socket);
    assert_eq!(server.outcome().await, Outcome::Unreachable, "the retransmission is answered by ICMP");
    server.stop().await;
}

#[tokio::test]
async fn many_clients_at_once_and_a_slow_file_delays_none() {
    let server = Running::start(&["127.0.0.1"], Limits { total: 100, per_client: 100 }).await;
    let slow = tokio::spawn(fetch(ClientRequest::new(server.address(), "never")));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut request = ClientRequest::new(server.address(), "boot/large.img");
        (request.blksize, request.windowsize) = (Some(1468), Some(8));
        tasks.spawn(fetch(request));
    }
    while let Some(fetched) = timeout(PATIENCE, tasks.join_next()).await.expect("in time") {
        assert!(fetched.unwrap().unwrap().content == large());
    }
    assert!(slow.await.unwrap().is_err());
    server.stop().await;
}

#[tokio::test]
async fn refuses_the_wildcard_address() {
    let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    let served = server::serve(
        vec![socket],
        Files(HashMap::new()),
        Settings::default(),
        |_| {},
        std::future::pending(),
    );
    let error = timeout(PATIENCE, served).await.expect("at once").unwrap_err();
    assert!(error.to_string().contains("bind one socket to each address"), "{error}");
}

#[tokio::test]
async fn a_client_that_refuses_the_options_is_served_without_them() {
    let mut server = Running::one().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = [0; 2048];
    let mut ask = async |options: Vec<(String, String)>| {
        let request = Packet::Request { write: false, file: "small.efi", mode: "octet", options }.encode();
        socket.send_to(&request, server.address()).await.unwrap();
        let (len, from) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
        (buffer[..len].to_vec(), from)
    };
    let (oack, from) = ask(vec![("blksize".to_owned(), "65464".to_owned())]).await;
    let Ok(Packet::Oack { options }) = Packet::parse(&oack) else { panic!("{oack:?}") };
    assert_eq!(options, [("blksize".to_owned(), "1468".to_owned())], "less than was asked for");
    socket.send_to(&Packet::error(ErrorCode::OptionNegotiation, "no"), from).await.unwrap();
    let (data, from) = ask(vec![]).await;
    assert_eq!(Packet::parse(&data), Ok(Packet::Data { block: 1, data: b"small" }));
    socket.send_to(&Packet::Ack { block: 1 }.encode(), from).await.unwrap();
    assert_eq!(server.outcome().await, Outcome::Probed);
    assert_eq!(server.outcome().await, Outcome::Completed);
    server.stop().await;
}

#[tokio::test]
async fn a_large_file_is_sent_as_octets_only() {
    let mut server = Running::one().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request =
        Packet::Request { write: false, file: "boot/large.img", mode: "netascii", options: vec![] }.encode();
    socket.send_to(&request, server.address()).await.unwrap();
    let mut buffer = [0; 2048];
    let (len, _) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
    let Ok(Packet::Error { code: ErrorCode::Undefined, message }) = Packet::parse(&buffer[..len]) else {
        panic!("{:?}", &buffer[..len])
    };
    assert!(message.contains("ask for it as octet"), "{message}");
    assert!(matches!(server.event().await, Event::Refused { .. }));
    server.stop().await;
}

#[tokio::test]
async fn who_has_no_part_in_a_transfer_is_told_so_and_it_goes_on() {
    let mut server = Running::one().await;
    let [client, stranger] = [bound().await, bound().await];
    let options = vec![("blksize".to_owned(), "1468".to_owned())];
    let request = Packet::Request { write: false, file: "small.efi", mode: "octet", options }.encode();
    client.send_to(&request, server.address()).await.unwrap();
    let mut buffer = [0; 2048];
    let (_, transfer) = timeout(PATIENCE, client.recv_from(&mut buffer)).await.unwrap().unwrap();

    // The stranger's datagrams neither end nor acknowledge anything. ERRORs from it get no answer.
    for packet in
        [Packet::error(ErrorCode::Undefined, "over"), Packet::Ack { block: 0 }.encode(), b"?".to_vec()]
    {
        stranger.send_to(&packet, transfer).await.unwrap();
    }
    for _ in 0..2 {
        let (len, from) = timeout(PATIENCE, stranger.recv_from(&mut buffer)).await.unwrap().unwrap();
        let answer = Packet::parse(&buffer[..len]).unwrap();
        assert!(matches!(answer, Packet::Error { code: ErrorCode::UnknownTransferId, .. }), "{answer:?}");
        assert_eq!(from, transfer);
    }
    // All of its answers arrived before the last answer was read.
    assert!(stranger.try_recv_from(&mut buffer).is_err());

    client.send_to(&Packet::Ack { block: 0 }.encode(), transfer).await.unwrap();
    let (len, from) = timeout(PATIENCE, client.recv_from(&mut buffer)).await.unwrap().unwrap();
    assert_eq!(
        (Packet::parse(&buffer[..len]), from),
        (Ok(Packet::Data { block: 1, data: b"small" }), transfer)
    );
    client.send_to(&Packet::Ack { block: 1 }.encode(), transfer).await.unwrap();
    assert_eq!(server.outcome().await, Outcome::Completed);
    server.stop().await;
}

#[tokio::test]
async fn a_block_over_ipv6_is_smaller_by_its_longer_header() {
    let server = Running::start(&["127.0.0.1", "::1"], Limits::default()).await;
    for (at, granted) in [(0, "1468"), (1, "1448")] {
        let to = server.addresses[at];
        let client = UdpSocket::bind((to.ip(), 0)).await.unwrap();
        let options = vec![("blksize".to_owned(), "65464".to_owned())];
        let request =
            Packet::Request { write: false, file: "boot/large.img", mode: "octet", options }.encode();
        client.send_to(&request, to).await.unwrap();
        let mut buffer = [0; 2048];
        let (len, _) = timeout(PATIENCE, client.recv_from(&mut buffer)).await.unwrap().unwrap();
        let Ok(Packet::Oack { options }) = Packet::parse(&buffer[..len]) else {
            panic!("{:?}", &buffer[..len])
        };
        assert_eq!(options, [("blksize".to_owned(), granted.to_owned())]);
    }
    server.stop().await;
}

async fn bound() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.unwrap()
}
