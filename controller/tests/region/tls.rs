//! TLS and plain HTTP on one port.

use crate::support::{Lab, exchange, lab, lab_with};
use basalt_region::api::CertificateFiles;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A certificate for `localhost` that vouches for itself.
fn certificate(dir: &Path) -> CertificateFiles {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = CertificateFiles { certificate: dir.join("tls.pem"), key: dir.join("tls.key") };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    files
}

/// A TLS connection of somebody who trusts nobody else.
async fn connect(lab: &Lab, trusted: &Path) -> std::io::Result<TlsStream<TcpStream>> {
    connect_by(lab, trusted, &[]).await
}

/// The same, of who speaks these protocols (ALPN).
async fn connect_by(lab: &Lab, trusted: &Path, alpn: &[&[u8]]) -> std::io::Result<TlsStream<TcpStream>> {
    connect_to(lab, "localhost", trusted, alpn).await
}

/// The same, to a region of this name.
async fn connect_to(
    lab: &Lab,
    name: &'static str,
    trusted: &Path,
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|it| it.to_vec()).collect();
    let stream = TcpStream::connect(lab.region.address()).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name).unwrap(), stream).await
}

#[tokio::test]
async fn the_certificate_of_readme_is_a_server_s_and_the_usual_one_of_openssl_is_not() {
    let readme = include_str!("../../../README.md");
    let command = readme.split("```").find(|block| block.starts_with("\nopenssl req")).unwrap();
    let usual = command.replace("-addext basicConstraints=critical,CA:FALSE ", "");
    assert_ne!(command, usual);
    let connected = async |command: &str| {
        let dir = tempfile::tempdir().unwrap();
        let made = Command::new("sh").args(["-euc", command]).current_dir(dir.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let certificate = dir.path().join("tls.pem");
        let files = CertificateFiles { certificate: certificate.clone(), key: dir.path().join("tls.key") };
        let lab = lab_with(|settings| settings.tls = Some(files)).await;
        connect_to(&lab, "region.example.com", &certificate, &[]).await.map(drop)
    };
    connected(command).await.expect("the region shows a certificate that is trusted");
    let refused = connected(&usual).await.unwrap_err().to_string();
    assert!(refused.contains("CaUsedAsEndEntity"), "{refused}");
}

#[tokio::test]
async fn who_speaks_tls_is_answered_in_tls_and_who_does_not_is_answered_too() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let lab = lab_with(|settings| settings.tls = Some(files.clone())).await;
    let token = crate::support::admin_token(lab.dir.path());
    for name in ["first", "second"] {
        let stream = connect(&lab, &files.certificate).await.unwrap();
        let path = format!("/api/v1/zones/{name}");
        let answer = exchange(stream, "PUT", &path, &[], Some(&token), r#"{"spec":{}}"#.into()).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    assert_eq!(lab.api.get("/api/v1/zones/first").await.status, 200);
    let audit = lab.api.get("/api/v1/audit?limit=1").await.json();
    assert_eq!(audit["items"][0]["address"], "127.0.0.1", "{audit}");

    let other = tempfile::tempdir().unwrap();
    let refused = connect(&lab, &certificate(other.path()).certificate).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
}

#[tokio::test]
async fn the_cookie_of_a_browser_is_for_tls_alone_where_it_was_given_under_tls() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let lab = lab_with(|settings| settings.tls = Some(files.clone())).await;
    let body = format!("{{\"token\":\"{}\"}}", crate::support::admin_token(lab.dir.path()));
    let own = [("sec-fetch-site", "same-origin")];
    let stream = connect(&lab, &files.certificate).await.unwrap();
    let answer = exchange(stream, "POST", "/api/v1/login?cookie=true", &own, None, body.into()).await;
    let set = answer.headers["set-cookie"].to_str().unwrap();
    assert!(set.starts_with("__Host-basalt-session=") && set.contains("; Secure"), "{set}");
    let cookie = set.split(';').next().unwrap();
    let stream = connect(&lab, &files.certificate).await.unwrap();
    let known = exchange(stream, "GET", "/api/v1/whoami", &[("cookie", cookie)], None, "".into()).await;
    assert_eq!(known.status, 200);
}

#[tokio::test]
async fn who_speaks_tls_to_a_region_without_a_certificate_is_hung_up_on_and_others_are_answered() {
    let (lab, dir) = (lab().await, tempfile::tempdir().unwrap());
    connect(&lab, &certificate(dir.path()).certificate).await.unwrap_err();
    assert_eq!(lab.api.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn who_says_nothing_or_half_a_handshake_is_hung_up_on() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let lab = lab_with(|settings| {
        settings.tls = Some(files);
        settings.client_timeout = Duration::from_millis(300);
    })
    .await;
    for words in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(lab.region.address()).await.unwrap();
        stream.write_all(words).await.unwrap();
        let mut rest = Vec::new();
        let end = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        // Closed, or reset since something of it was not read.
        assert!(end.expect("it is hung up on").is_ok_and(|_| rest.is_empty()) || rest.is_empty(), "{rest:?}");
    }
}

type Sender = hyper::client::conn::http2::SendRequest<axum::body::Body>;

/// A connection of HTTP/2, and the end of it.
async fn multiplexed(lab: &Lab, files: &CertificateFiles) -> (Sender, tokio::task::JoinHandle<()>) {
    multiplexed_with(lab, files, 1 << 20).await
}

/// The same, whose client takes so many octets of an answer before it reads them.
async fn multiplexed_with(
    lab: &Lab,
    files: &CertificateFiles,
    window: u32,
) -> (Sender, tokio::task::JoinHandle<()>) {
    let stream = connect_by(lab, &files.certificate, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let mut client = hyper::client::conn::http2::Builder::new(executor);
    client.initial_stream_window_size(window);
    let (sender, connection) = client.handshake(io).await.unwrap();
    (sender, tokio::spawn(async move { drop(connection.await) }))
}

fn request(
    lab: &Lab,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> hyper::Request<axum::body::Body> {
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(format!("https://localhost:{}{path}", lab.region.address().port()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(axum::body::Body::from(body.to_owned())).unwrap()
}

#[tokio::test]
async fn a_connection_of_http2_carries_streams_and_requests_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let lab = lab_with(|settings| settings.tls = Some(files.clone())).await;
    let token = crate::support::admin_token(lab.dir.path());
    let (mut sender, _end) = multiplexed(&lab, &files).await;
    let bearer = format!("Bearer {token}");
    let by = [("authorization", bearer.as_str())];
    let mut streams = Vec::new();
    for _ in 0..8 {
        let answer = sender
            .send_request(request(&lab, "GET", "/api/v1/events?follow=true&kinds=zones", &by, ""))
            .await
            .unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, hyper::Version::HTTP_2));
        streams.push(answer.into_body());
    }
    let put =
        sender.send_request(request(&lab, "PUT", "/api/v1/zones/a", &by, r#"{"spec":{}}"#)).await.unwrap();
    assert_eq!(put.status(), 201);
    for stream in &mut streams {
        let frame = std::future::poll_fn(|context| {
            hyper::body::Body::poll_frame(std::pin::Pin::new(&mut *stream), context)
        });
        let frame =
            tokio::time::timeout(Duration::from_secs(30), frame).await.expect("it is told").unwrap().unwrap();
        assert!(frame.into_data().unwrap().starts_with(b"id: "), "each stream is told");
    }
    // In HTTP/2 the host is only in the URI.
    let origin = format!("https://localhost:{}", lab.region.address().port());
    let body = format!("{{\"token\":\"{token}\"}}");
    let of_page = [("origin", origin.as_str()), ("content-type", "application/json")];
    let login = request(&lab, "POST", "/api/v1/login?cookie=true", &of_page, &body);
    assert_eq!(sender.send_request(login).await.unwrap().status(), 204);
    let of_another = [("origin", "https://elsewhere"), ("content-type", "application/json")];
    let login = request(&lab, "POST", "/api/v1/login?cookie=true", &of_another, &body);
    assert_eq!(sender.send_request(login).await.unwrap().status(), 403);
}

/// Reads a stream to its end, a piece each `every`. Returns its octets.
async fn read_slowly(mut body: hyper::body::Incoming, every: Duration) -> usize {
    let mut octets = 0;
    loop {
        let next = std::future::poll_fn(|context| {
            hyper::body::Body::poll_frame(std::pin::Pin::new(&mut body), context)
        });
        let Some(frame) = next.await else { return octets };
        octets += frame.expect("it is not cut off").into_data().unwrap().len();
        tokio::time::sleep(every).await;
    }
}

#[tokio::test]
async fn a_connection_of_http2_of_which_an_answer_is_not_read_ends() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let lab = lab_with(|settings| {
        settings.tls = Some(files.clone());
        settings.client_timeout = Duration::from_millis(1500);
    })
    .await;
    let bearer = format!("Bearer {}", crate::support::admin_token(lab.dir.path()));
    let by = [("authorization", bearer.as_str())];
    let (mut reader, reader_end) = multiplexed(&lab, &files).await;
    let stream = reader.send_request(request(&lab, "GET", "/api/v1/watch", &by, "")).await.unwrap();
    // The page is built at once, the watch in parts. A window of 65,535 octets takes a part of each page.
    for (path, window, times) in [
        ("/openapi.json", 0, 1),
        ("/openapi.json", 1, 60),
        ("/openapi.json", 512, 1),
        ("/openapi.json", 65_535, 60),
        ("/api/v1/watch", 512, 1),
    ] {
        let (mut greedy, greedy_end) = multiplexed_with(&lab, &files, window).await;
        let mut unread = Vec::new();
        for asked in 0..times {
            match greedy.send_request(request(&lab, "GET", path, &by, "")).await {
                Ok(answer) => unread.push(answer),
                // On a slow host the region hangs up before the last request.
                Err(error) => assert!(asked > 0, "{path} {window}: {error}"),
            }
        }
        for name in ["a", "b"] {
            let zone = serde_json::json!({"description": format!("{path} {window} {}", name.repeat(2000))});
            lab.api.declare(&format!("/api/v1/zones/{name}"), &zone.to_string()).await;
        }
        let ended = tokio::time::timeout(Duration::from_secs(20), greedy_end).await;
        ended.unwrap_or_else(|_| panic!("{path} {window}: it is not hung up on")).unwrap();
        drop(unread);
    }
    assert!(!reader_end.is_finished(), "nothing more is to be read of this one");
    // A stream that is read does not keep one that is not.
    let (mut mixed, mixed_end) = multiplexed_with(&lab, &files, 65_535).await;
    let watched = mixed.send_request(request(&lab, "GET", "/api/v1/watch", &by, "")).await.unwrap();
    let read = tokio::spawn(async move {
        let mut body = watched.into_body();
        while let Some(Ok(_)) = std::future::poll_fn(|context| {
            hyper::body::Body::poll_frame(std::pin::Pin::new(&mut body), context)
        })
        .await
        {}
    });
    let unread = mixed.send_request(request(&lab, "GET", "/openapi.json", &[], "")).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), mixed_end).await;
    ended.expect("it is hung up on").unwrap();
    read.await.unwrap();
    drop((stream, unread));
}

#[tokio::test]
async fn a_client_of_http2_that_reads_slowly_gets_its_whole_answer() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let patience = Duration::from_secs(3);
    let lab = lab_with(|settings| {
        settings.tls = Some(files.clone());
        settings.client_timeout = patience;
    })
    .await;
    let (mut sender, _end) = multiplexed_with(&lab, &files, 16 << 10).await;
    let answer = sender.send_request(request(&lab, "GET", "/openapi.json", &[], "")).await.unwrap();
    let length: usize = answer.headers()["content-length"].to_str().unwrap().parse().unwrap();
    let began = std::time::Instant::now();
    assert_eq!(read_slowly(answer.into_body(), Duration::from_millis(240)).await, length);
    assert!(began.elapsed() > patience * 2, "it was read too fast to show anything");
}

#[tokio::test]
async fn a_client_of_http2_that_reads_nothing_does_not_hold_up_the_end_of_a_region() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let lab = lab_with(|settings| settings.tls = Some(files.clone())).await;
    let (mut greedy, _end) = multiplexed_with(&lab, &files, 0).await;
    let unread = greedy.send_request(request(&lab, "GET", "/openapi.json", &[], "")).await.unwrap();
    let began = std::time::Instant::now();
    lab.region.stop().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "requests have 20 s to end; it took {took:?}");
    drop(unread);
}

#[tokio::test]
async fn a_connection_of_http2_on_which_nothing_is_asked_ends_and_a_stream_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let lab = lab_with(|settings| {
        settings.tls = Some(files.clone());
        settings.client_timeout = Duration::from_millis(1500);
    })
    .await;
    let bearer = format!("Bearer {}", crate::support::admin_token(lab.dir.path()));
    let by = [("authorization", bearer.as_str())];
    let (mut busy, busy_end) = multiplexed(&lab, &files).await;
    let stream = busy.send_request(request(&lab, "GET", "/api/v1/watch", &by, "")).await.unwrap();
    let (mut quiet, quiet_end) = multiplexed(&lab, &files).await;
    assert_eq!(quiet.send_request(request(&lab, "GET", "/healthz", &[], "")).await.unwrap().status(), 200);
    tokio::time::timeout(Duration::from_secs(20), quiet_end).await.expect("it is hung up on").unwrap();
    assert!(!busy_end.is_finished(), "a watch is under way on it");
    drop(stream);
    tokio::time::timeout(Duration::from_secs(20), busy_end).await.expect("it is hung up on").unwrap();
}

#[tokio::test]
async fn one_client_has_so_many_downloads_of_blobs_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let lab = lab_with(|settings| settings.tls = Some(files.clone())).await;
    let bearer = format!("Bearer {}", crate::support::admin_token(lab.dir.path()));
    let by = [("authorization", bearer.as_str())];
    let content = vec![b'x'; 100_000];
    let path = format!("/api/v1/blobs/{}", crate::blobs::hash(&content));
    assert_eq!(lab.api.send("PUT", &path, &[], content).await.status, 201);
    let mut connections = Vec::new();
    let mut unread = Vec::new();
    // An admin has the places of admins as well.
    let refused = loop {
        let (mut sender, end) = multiplexed_with(&lab, &files, 0).await;
        for _ in 0..60 {
            unread.push(sender.send_request(request(&lab, "GET", &path, &by, "")).await.unwrap());
        }
        connections.push((sender, end));
        if let Some(last) = unread.iter().find(|answer| answer.status() != 200) {
            break last.status();
        }
        assert!(unread.len() < 300, "nothing bounds the downloads of one client");
    };
    assert_eq!(refused.as_u16(), 503);
    assert_eq!(unread.iter().filter(|answer| answer.status() == 200).count(), 80);
    drop(unread);
    drop(connections);
    let again = async {
        while lab.api.get(&path).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), again).await.expect("places come back");
}
