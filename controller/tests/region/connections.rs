//! Limits of connections, in all and per client, on the API's port and on the racks' port.

use crate::accounts::issue;
use crate::enrolment::{NewRack, region};
use crate::support::{lab, lab_with};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// A connection from a loopback address other than 127.0.0.1, which counts like any client.
async fn from(client: u8, to: SocketAddr) -> TcpStream {
    from_address(Ipv4Addr::new(127, 0, 0, client), to).await
}

async fn from_address(client: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((client, 0).into()).expect("an address of loopback");
    socket.connect(to).await.expect("it listens")
}

/// Waits until the region closes a connection without a request.
async fn closed(stream: &mut (impl AsyncRead + Unpin)) {
    let end = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut [0; 1])).await;
    let end = end.expect("the region closes it");
    assert!(matches!(end, Ok(0) | Err(_)), "nothing was asked: {end:?}");
}

/// The first bytes of the answer to a request.
async fn asked(stream: &mut TcpStream) -> String {
    let request = b"GET /healthz HTTP/1.1\r\nHost: region\r\n\r\n";
    stream.write_all(request).await.expect("it is read");
    let mut answer = [0; 12];
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_exact(&mut answer)).await;
    read.expect("an answer in time").expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn one_client_has_its_share_of_connections_and_keeps_nobody_out() {
    let lab = lab_with(|settings| {
        (settings.api_connections, settings.api_connections_per_client) = (Some(20), Some(3));
    })
    .await;
    let to = lab.region.address();
    let mut greedy = Vec::new();
    for _ in 0..3 {
        greedy.push(from(9, to).await);
    }
    closed(&mut from(9, to).await).await;
    assert_eq!(asked(&mut from(10, to).await).await, "HTTP/1.1 200");
    let mut own = Vec::new();
    for _ in 0..8 {
        own.push(TcpStream::connect(to).await.expect("it listens"));
    }
    assert_eq!(asked(own.last_mut().expect("eight")).await, "HTTP/1.1 200", "this host is no stranger");
    for stream in &mut greedy {
        assert_eq!(asked(stream).await, "HTTP/1.1 200", "what was open goes on");
    }
    let metrics = lab.api.get("/metrics").await;
    let refused =
        metrics.text().lines().find(|line| line.starts_with("basalt_api_connections_refused_total"));
    assert_eq!(refused, Some("basalt_api_connections_refused_total 1"));
}

/// Begins a login whose body does not come. Returns the first answer: `100 Continue`, or a refusal.
async fn begins_login(client: Ipv4Addr, to: SocketAddr) -> (TcpStream, String) {
    let mut stream = from_address(client, to).await;
    let head = b"POST /api/v1/login HTTP/1.1\r\nHost: region\r\nContent-Length: 70000\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head).await.expect("it is read");
    let mut said = [0; 12];
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_exact(&mut said)).await;
    read.expect("an answer in time").expect("an answer");
    (stream, String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test]
async fn logins_that_do_not_end_take_places_of_their_network_alone() {
    let lab = lab().await;
    let to = lab.region.address();
    let mut under_way = Vec::new();
    // One address has fewer connections than its network has logins, so several addresses are used.
    for n in 0..32 {
        let (stream, said) = begins_login(Ipv4Addr::new(127, 0, 2, 1 + n), to).await;
        assert_eq!(said, "HTTP/1.1 100", "{n}");
        under_way.push(stream);
    }
    assert_eq!(begins_login(Ipv4Addr::new(127, 0, 2, 99), to).await.1, "HTTP/1.1 503");
    assert_eq!(begins_login(Ipv4Addr::new(127, 0, 3, 1), to).await.1, "HTTP/1.1 100");
    drop(under_way);
    // The region notices by itself that the logins have ended.
    let began = Instant::now();
    while begins_login(Ipv4Addr::new(127, 0, 2, 99), to).await.1 != "HTTP/1.1 100" {
        assert!(began.elapsed() < Duration::from_secs(20), "a login that has ended holds its place");
    }
}

/// The first bytes of the answer to a GET with a token.
async fn get(path: &str, token: &str, to: SocketAddr) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(to).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: region\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is read");
    let mut said = [0; 12];
    stream.read_exact(&mut said).await.expect("an answer");
    (stream, String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test]
async fn requests_that_last_have_a_share_for_each_token_and_places_for_others() {
    let lab = lab().await;
    let to = lab.region.address();
    lab.api.declare("/api/v1/zones/z", "{}").await;
    lab.api.declare("/api/v1/machines/m", r#"{"boot_macs":["52:54:00:00:00:01"]}"#).await;
    lab.api.declare("/api/v1/roles/viewer", r#"{"base":"viewer"}"#).await;
    let viewer = issue(&lab, "viewer", r#"{"role":"viewer"}"#).await;
    let other = issue(&lab, "other", r#"{"role":"viewer"}"#).await;
    let streams = [("/api/v1/events?follow=true", 25), ("/api/v1/machines/m/logs?follow=true", 32)];
    let mut held = Vec::new();
    for (path, share) in streams {
        for n in 0..share {
            let (stream, said) = get(path, &viewer, to).await;
            assert_eq!(said, "HTTP/1.1 200", "{path} {n}");
            held.push(stream);
        }
        assert_eq!(get(path, &viewer, to).await.1, "HTTP/1.1 503", "{path}");
        assert_eq!(get(path, &other, to).await.1, "HTTP/1.1 200", "{path}");
    }
    assert_eq!(get("/api/v1/events", &viewer, to).await.1, "HTTP/1.1 200", "pages are read all the same");
    // A waiting request has no answer yet: that it has begun is seen only when one more is refused.
    let path = "/api/v1/zones/z?wait=Deleted&timeout=60s";
    let began = Instant::now();
    let refused = loop {
        assert!(began.elapsed() < Duration::from_secs(30) && held.len() < 1000, "{} wait", held.len());
        let asked = tokio::time::timeout(Duration::from_millis(5), get(path, &viewer, to)).await;
        if let Ok((_, said)) = asked {
            break said;
        }
        let mut stream = TcpStream::connect(to).await.expect("it listens");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: region\r\nAuthorization: Bearer {viewer}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it is read");
        held.push(stream);
    };
    assert_eq!(refused, "HTTP/1.1 503");
}

#[tokio::test]
async fn silent_connections_on_all_places_are_closed_and_whoever_waits_is_answered() {
    let lab = lab_with(|settings| {
        (settings.api_connections, settings.api_connections_per_client) = (Some(3), Some(1));
        settings.client_timeout = Duration::from_millis(300);
    })
    .await;
    let to = lab.region.address();
    let mut silent = Vec::new();
    for client in 9..12 {
        silent.push(from(client, to).await);
    }
    assert_eq!(asked(&mut from(20, to).await).await, "HTTP/1.1 200");
    for stream in &mut silent {
        closed(stream).await;
    }
}

#[tokio::test]
async fn strangers_on_the_racks_port_leave_room_for_racks_and_other_strangers() {
    let (lab, controller) = region().await;
    let rpc = controller.rpc_address();
    let (rack, enrolled) = NewRack::new(&lab, rpc, "r1").await.enrol().await;
    let mut strangers = Vec::new();
    // One connection more than a client without a certificate may have.
    for _ in 0..17 {
        strangers.push(rack.shake_hands(from(9, rpc).await, None).await);
    }
    closed(strangers.last_mut().expect("seventeen")).await;
    let mut known = rack.shake_hands(from(9, rpc).await, Some(&enrolled.certificate_der)).await;
    // An HTTP/2 server sends its settings at once.
    let said = tokio::time::timeout(Duration::from_secs(20), known.read(&mut [0; 9])).await;
    assert!(
        said.expect("in time").is_ok_and(|bytes| bytes > 0),
        "a rack behind the same address is not refused"
    );
    NewRack::new(&lab, rpc, "r2").await.enrol().await;
}
