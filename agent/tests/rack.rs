//! The agent's client against a test server made of std and rustls. Its port has TLS and plain HTTP; the first byte decides.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use basalt_agent::blob::{BlobError, BlobReader};
use basalt_agent::http::{Client, HttpError, Request, Security};
use basalt_agent::{rack, tls};
use basalt_api::agent::{ClaimReply, ClaimRequest};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sha2::{Digest, Sha256};

/// Answers to the requests for a path, one after the other. The last one is repeated.
type Script = BTreeMap<&'static str, Vec<Vec<u8>>>;

struct Rack {
    address: SocketAddr,
    spki: [u8; 32],
    seen: Arc<Mutex<Vec<String>>>,
}

impl Rack {
    /// Serves until the test process ends. Every connection has a time limit.
    fn start(script: Script) -> Self {
        let certified = rcgen::generate_simple_self_signed(["rack".to_owned()]).unwrap();
        let spki =
            Sha256::digest(rcgen::PublicKeyData::subject_public_key_info(&certified.signing_key)).into();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (config, log, script) = (Arc::new(config), seen.clone(), Mutex::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that hangs up is part of these tests.
                let _ = serve(stream.unwrap(), &config, &log, &script);
            }
        });
        Self { address, spki, seen }
    }

    fn client(&self, spki: [u8; 32]) -> Client {
        Client::new(&format!("https://{}", self.address), tls::pinned(spki).unwrap()).unwrap()
    }
}

fn serve(
    stream: TcpStream,
    config: &Arc<ServerConfig>,
    log: &Mutex<Vec<String>>,
    script: &Mutex<Script>,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut first = [0];
    stream.peek(&mut first)?;
    if first == [0x16] {
        let connection = ServerConnection::new(config.clone()).map_err(std::io::Error::other)?;
        answer(&mut StreamOwned::new(connection, stream), "tls", log, script)
    } else {
        answer(&mut &stream, "clear", log, script)
    }
}

fn answer(
    stream: &mut (impl Read + Write),
    how: &str,
    log: &Mutex<Vec<String>>,
    script: &Mutex<Script>,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&request).into_owned();
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let length = header("Content-Length:").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let path = head.split(' ').nth(1).unwrap().to_owned();
    log.lock().unwrap().push(format!("{how} {path} {}", header("Range:").unwrap_or("-")));
    let bytes = {
        let mut script = script.lock().unwrap();
        let answers = script.get_mut(path.as_str()).unwrap();
        if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
    };
    stream.write_all(&bytes)?;
    stream.flush()
}

fn ok(body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn claim_request() -> ClaimRequest {
    ClaimRequest {
        token: "t".to_owned(),
        boot_id: "b".to_owned(),
        mac: "52:54:00:00:00:01".to_owned(),
        agent_version: "0".to_owned(),
    }
}

fn claim_reply() -> ClaimReply {
    ClaimReply {
        session: "s".to_owned(),
        attempt: 7,
        machine_uid: None,
        now_unix_ms: 0,
        again: false,
        checkpoint: None,
    }
}

#[test]
fn claims_over_tls_from_the_rack_whose_key_is_pinned_and_tries_again_while_it_is_starting() {
    let reply = serde_json::to_vec(&claim_reply()).unwrap();
    let busy = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec();
    let rack = Rack::start(Script::from([("/agent/v1/claim", vec![busy, ok(&reply)])]));
    assert_eq!(rack::claim(&rack.client(rack.spki), &claim_request()).unwrap(), claim_reply());
    assert_eq!(*rack.seen.lock().unwrap(), ["tls /agent/v1/claim -", "tls /agent/v1/claim -"]);
}

#[test]
fn says_nothing_to_a_rack_with_another_key() {
    let rack = Rack::start(Script::new());
    let error = rack.client([7; 32]).send(Security::Tls, Request::get("/agent/v1/task")).unwrap_err();
    assert!(matches!(error, HttpError::Io { .. }), "{error}");
    assert!(rack.seen.lock().unwrap().is_empty());
}

#[test]
fn a_refusal_is_not_repeated_and_shows_what_the_rack_said() {
    let no = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 13\r\n\r\ntoken expired".to_vec();
    let rack = Rack::start(Script::from([("/agent/v1/claim", vec![no])]));
    let error = rack::claim(&rack.client(rack.spki), &claim_request()).unwrap_err().to_string();
    assert_eq!(error, "POST /agent/v1/claim: the rack answered 403: token expired");
    assert_eq!(rack.seen.lock().unwrap().len(), 1);
}

#[test]
fn chunked_answers_are_put_together() {
    let chunked =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n";
    let rack = Rack::start(Script::from([("/", vec![chunked.to_vec()])]));
    let response = rack.client(rack.spki).send(Security::Clear, Request::get("/")).unwrap();
    assert_eq!(response.bytes().unwrap(), b"hello, world");
}

#[test]
fn answers_that_are_not_http_are_errors_not_panics() {
    let bad: [&[u8]; 6] = [
        b"",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 206 Partial\r\nContent-Range: items 1-2\r\n\r\n",
    ];
    for bytes in bad {
        let rack = Rack::start(Script::from([("/", vec![bytes.to_vec()])]));
        let sent = rack.client(rack.spki).send(Security::Clear, Request::get("/"));
        assert!(sent.is_err(), "{:?}", String::from_utf8_lossy(bytes));
    }
}

/// A blob of a few pieces, its hash, and its path.
fn blob() -> (Vec<u8>, [u8; 32], &'static str) {
    let bytes: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let hash: [u8; 32] = Sha256::digest(&bytes).into();
    let path = format!("/blobs/{}", hex::encode(hash));
    (bytes, hash, Box::leak(path.into_boxed_str()))
}

#[test]
fn a_blob_whose_connection_breaks_is_taken_up_where_it_broke() {
    let (bytes, hash, path) = blob();
    let whole = ok(&bytes);
    let broken = whole[..whole.len() - 300_000].to_vec();
    let at = bytes.len() - 300_000;
    let mut rest = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 300000\r\nContent-Range: bytes {at}-{}/{}\r\n\r\n",
        bytes.len() - 1,
        bytes.len()
    )
    .into_bytes();
    rest.extend_from_slice(&bytes[at..]);
    let rack = Rack::start(Script::from([(path, vec![broken, rest])]));
    let client = rack.client(rack.spki);
    let mut read = Vec::new();
    BlobReader::new(&client, hash).read_to_end(&mut read).unwrap();
    assert!(read == bytes);
    assert_eq!(*rack.seen.lock().unwrap(), [format!("clear {path} -"), format!("clear {path} bytes={at}-")]);
}

#[test]
fn a_rack_that_knows_no_ranges_is_read_again_from_the_start() {
    let (bytes, hash, path) = blob();
    let whole = ok(&bytes);
    let rack = Rack::start(Script::from([(path, vec![whole[..whole.len() / 2].to_vec(), whole])]));
    let client = rack.client(rack.spki);
    let mut read = Vec::new();
    BlobReader::new(&client, hash).read_to_end(&mut read).unwrap();
    assert!(read == bytes);
}

#[test]
fn a_corrupt_blob_is_an_error_at_its_end() {
    let (mut bytes, hash, path) = blob();
    bytes[17] ^= 1;
    let rack = Rack::start(Script::from([(path, vec![ok(&bytes)])]));
    let client = rack.client(rack.spki);
    let mut reader = BlobReader::new(&client, hash);
    reader.read_to_end(&mut Vec::new()).unwrap_err();
    assert!(matches!(reader.take_error(), Some(BlobError::Corrupt { length: 400_000, .. })));
}

#[test]
fn a_blob_that_the_rack_does_not_have_is_unavailable_at_once() {
    let (_, hash, path) = blob();
    let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
    let rack = Rack::start(Script::from([(path, vec![missing])]));
    let client = rack.client(rack.spki);
    let mut reader = BlobReader::new(&client, hash);
    reader.read_to_end(&mut Vec::new()).unwrap_err();
    assert!(matches!(reader.take_error(), Some(BlobError::Unavailable { .. })));
    assert_eq!(rack.seen.lock().unwrap().len(), 1);
}

#[test]
fn a_machine_whose_turn_it_is_not_asks_again_when_the_rack_says() {
    let (bytes, hash, path) = blob();
    let busy = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n".to_vec();
    let rack = Rack::start(Script::from([(path, vec![busy.clone(), busy, ok(&bytes)])]));
    let client = rack.client(rack.spki);
    let (began, mut read) = (Instant::now(), Vec::new());
    BlobReader::new(&client, hash).read_to_end(&mut read).unwrap();
    assert!(read == bytes && began.elapsed() >= Duration::from_secs(2));
    assert_eq!(rack.seen.lock().unwrap().len(), 3);
}
