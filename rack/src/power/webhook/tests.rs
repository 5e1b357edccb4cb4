use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use basalt_proto::rack_v1::PowerCommand;
use basalt_proto::rack_v1::bmc;
use basalt_proto::rack_v1::power_command::{BootDevice as Device, Verb};
use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::super::{TURNS, inside, key, operate};
use super::*;
use crate::hash::sha256;
use crate::identity::provider;

const QUICK: Patience = Patience {
    still: Duration::from_millis(200),
    moving: Duration::from_millis(400),
    poll: (Duration::from_millis(5), Duration::from_millis(20)),
};
const PATIENT: Limits =
    Limits { connect: Duration::from_secs(10), answer: Duration::from_secs(10), off: QUICK };
const SHORT: Duration = Duration::from_millis(300);

/// The way that the service treats a request of its account.
#[derive(Debug, Clone)]
enum Habit {
    /// Switches the machine.
    Switches,
    /// Takes `off`, and leaves the machine on.
    Stuck,
    /// Answers this, with a header line.
    Says(u16, &'static str, Vec<u8>),
    /// Reads the request and never answers.
    Silent,
    /// Answers without end.
    Endless,
}

#[derive(Debug)]
struct State {
    on: bool,
    habit: Habit,
    /// The header Authorization that it wants.
    account: Option<&'static str>,
    /// Method and path of each request.
    heard: Vec<String>,
}

/// A small web service that switches one machine.
struct Service {
    bmc: Bmc,
    state: Arc<Mutex<State>>,
    certificates: Certificates,
    /// SHA-256 of its certificate.
    sha256: [u8; 32],
    /// Connections now, and at most.
    busy: Arc<(AtomicUsize, AtomicUsize)>,
    _dir: tempfile::TempDir,
}

/// A certificate for 127.0.0.1, which signs itself.
fn certified() -> (TlsAcceptor, [u8; 32], String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names = vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
    let own = params.self_signed(&key).unwrap();
    let server = rustls::ServerConfig::builder_with_provider(provider());
    let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let server = server.with_single_cert(vec![own.der().clone()], key).unwrap();
    (TlsAcceptor::from(Arc::new(server)), sha256(own.der()), own.pem())
}

impl Service {
    async fn start(plain: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (acceptor, sha256, _) = certified();
        let state = State { on: false, habit: Habit::Switches, account: None, heard: Vec::new() };
        let (state, busy) = (Arc::new(Mutex::new(state)), Arc::new(Default::default()));
        let (shared, counts): (_, Arc<(AtomicUsize, AtomicUsize)>) = (Arc::clone(&state), Arc::clone(&busy));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state, counts) = (acceptor.clone(), Arc::clone(&shared), Arc::clone(&counts));
                tokio::spawn(async move {
                    let (now, most) = &*counts;
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    // Clients that refuse the certificate or hang up are part of these tests.
                    let _ = match plain {
                        true => serve(stream, &state).await,
                        false => match acceptor.accept(stream).await {
                            Ok(stream) => serve(stream, &state).await,
                            Err(error) => Err(error),
                        },
                    };
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        let webhook = BmcWebhook {
            on: "/outlets/3?power=on".into(),
            off: "/outlets/3?power=off".into(),
            status: "/outlets/3".into(),
            cycle: String::new(),
            soft_off: String::new(),
            says_on: r#""power": *"on""#.into(),
            says_off: r#""power": *"off""#.into(),
            plain,
        };
        let bmc = Bmc {
            machine_uid: "m1".into(),
            driver: "webhook".into(),
            address: "127.0.0.1".into(),
            port: port.into(),
            webhook: Some(webhook),
            ..Bmc::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::open(dir.path()).unwrap();
        Self { bmc, state, certificates, sha256, busy, _dir: dir }
    }

    fn requests(&mut self) -> &mut BmcWebhook {
        self.bmc.webhook.as_mut().unwrap()
    }

    fn does(&self, habit: Habit) {
        self.state.lock().unwrap().habit = habit;
    }

    /// The requests since the last call.
    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().heard)
    }

    fn open(&self, limits: Limits) -> Result<Webhook<'_>, Ended> {
        Webhook::new(&self.bmc, None, &self.certificates, Arc::new(Semaphore::new(TURNS)), limits)
    }

    async fn run_within(&self, verb: Verb, limits: Limits) -> Result<Reading, Ended> {
        let command = PowerCommand {
            verb: verb.into(),
            boot_device: Device::PxeOnce.into(),
            ..PowerCommand::default()
        };
        operate(&mut self.open(limits)?, &command, QUICK).await
    }

    async fn run(&self, verb: Verb) -> Result<Reading, Ended> {
        self.run_within(verb, PATIENT).await
    }

    /// Code and message of a failure.
    async fn fails(&self, verb: Verb) -> (&'static str, String) {
        self.run(verb).await.unwrap_err().error.unwrap()
    }
}

/// One request and its answer.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    state: &Mutex<State>,
) -> std::io::Result<Option<Infallible>> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut account, mut length) = (String::new(), None, None);
    stream.read_line(&mut line).await?;
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await?;
        match header.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                account = Some(value.to_owned())
            }
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = Some(value.to_owned())
            }
            Some(_) => {}
            None => break,
        }
    }
    let request = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    if request.is_empty() {
        return Ok(None);
    }
    let is_post = request.starts_with("POST");
    assert!(!is_post || length.as_deref() == Some("0"), "a POST without a body says so (RFC 9110 §8.6)");
    let (habit, body) = {
        let mut state = state.lock().unwrap();
        state.heard.push(request.clone());
        if state.account != account.as_deref() {
            (Habit::Says(401, "X: y", b"who are you?".to_vec()), String::new())
        } else {
            let is_stuck = matches!(state.habit, Habit::Stuck);
            match request.as_str() {
                "POST /outlets/3?power=on" | "POST /cycle" => state.on = true,
                "POST /outlets/3?power=off" | "POST /shutdown" if !is_stuck => state.on = false,
                _ => {}
            }
            let power = if state.on { "on" } else { "off" };
            (state.habit.clone(), format!("{{\"outlet\": 3, \"power\": \"{power}\"}}"))
        }
    };
    let (status, header, body) = match habit {
        Habit::Switches | Habit::Stuck => (200, "X: y", body.into_bytes()),
        Habit::Says(status, header, body) => (status, header, body),
        Habit::Silent => std::future::pending().await,
        Habit::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
            loop {
                stream.write_all(b"10\r\n0123456789abcdef\r\n").await?;
                stream.flush().await?;
            }
        }
    };
    let head = format!("HTTP/1.1 {status} Any\r\n{header}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await?;
    Ok(None)
}

const ON: Result<Reading, Ended> = Ok(Reading::Still(PowerState::On));
const OFF: Result<Reading, Ended> = Ok(Reading::Still(PowerState::Off));
const GET: &str = "GET /outlets/3";
const POST_ON: &str = "POST /outlets/3?power=on";
const POST_OFF: &str = "POST /outlets/3?power=off";

#[tokio::test]
async fn each_verb_is_a_request_over_https_and_over_http() {
    for plain in [false, true] {
        let mut service = Service::start(plain).await;
        assert_eq!(service.run(Verb::Status).await, OFF);
        assert_eq!(service.heard(), [GET]);
        for (verb, reads, requests) in [
            (Verb::On, ON, &[GET, POST_ON, GET][..]),
            (Verb::Cycle, ON, &[GET, POST_OFF, GET, POST_ON, GET]),
            (Verb::Off, OFF, &[POST_OFF, GET]),
            (Verb::Cycle, ON, &[GET, POST_ON, GET]),
        ] {
            assert_eq!(service.run(verb).await, reads, "{verb:?}");
            assert_eq!(service.heard(), requests, "{verb:?}");
        }
        let (code, message) = service.fails(Verb::SoftOff).await;
        assert_eq!((code, service.heard()), ("unsupported", Vec::new()), "{message}");
        service.requests().cycle = "/cycle".into();
        service.requests().soft_off = "/shutdown".into();
        assert_eq!(service.run(Verb::Cycle).await, ON);
        assert_eq!(service.run(Verb::SoftOff).await, OFF);
        assert_eq!(service.heard(), [GET, "POST /cycle", GET, "POST /shutdown", GET]);
        let shown = service.open(PATIENT).unwrap();
        shown.ask(Method::GET, "/outlets/3").await.unwrap();
        let certificate = if plain { String::new() } else { hex::encode(service.sha256) };
        assert_eq!(shown.close().await, certificate);
    }
}

#[tokio::test]
async fn a_machine_that_does_not_go_off_is_not_switched_on_by_a_cycle() {
    let service = Service::start(true).await;
    service.run(Verb::On).await.unwrap();
    service.does(Habit::Stuck);
    service.heard();
    let ended = service.run(Verb::Cycle).await.unwrap_err();
    assert_eq!((ended.power, ended.error.map(|(code, _)| code)), ("on", Some("moving")));
    let heard = service.heard();
    assert_eq!((heard[1].as_str(), heard.iter().any(|it| it == POST_ON)), (POST_OFF, false), "{heard:?}");
}

#[tokio::test]
async fn the_account_is_sent_as_basic_or_bearer_and_a_wrong_one_moves_nothing() {
    let mut service = Service::start(false).await;
    for (username, password, header) in [
        ("", "", None),
        // RFC 7617 §2.
        ("Aladdin", "open sesame", Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")),
        ("", "mF_9.B5f-4.1JqM", Some("Bearer mF_9.B5f-4.1JqM")),
    ] {
        service.state.lock().unwrap().account = header;
        (service.bmc.username, service.bmc.password) = (username.into(), password.into());
        assert_eq!(service.run(Verb::Status).await, OFF, "{header:?}");
    }
    service.bmc.password = "zqx-wrong".into();
    let (code, message) = service.fails(Verb::Off).await;
    assert_eq!((code, message.contains("zqx")), ("bad_password", false), "{message}");
    assert!(
        message.contains("answered 401 to POST /outlets/3?power=off, and said \"who are you?\""),
        "{message}"
    );
    for (username, password, echo) in
        [("admin", "zqx-secret", "YWRtaW46enF4LXNlY3JldA=="), ("", "zqx-secret", "zqx-secret")]
    {
        (service.bmc.username, service.bmc.password) = (username.into(), password.into());
        service.state.lock().unwrap().account =
            Some(if username.is_empty() { "Bearer zqx-secret" } else { "Basic YWRtaW46enF4LXNlY3JldA==" });
        service.does(Habit::Says(
            500,
            "Location: /zqx-secret",
            format!("you sent {echo}, zqx-secret").into_bytes(),
        ));
        let (_, message) = service.fails(Verb::Off).await;
        assert!(message.contains("to \"/***\", and said \"you sent ***, ***\""), "{message}");
    }
    service.does(Habit::Switches);
    service.bmc.username = String::new();
    service.bmc.password = "two\nlines".into();
    service.heard();
    let (code, message) = service.fails(Verb::Off).await;
    assert_eq!((code, message.contains("lines"), service.heard()), ("unsupported", false, Vec::new()));
}

#[tokio::test]
async fn a_refusal_says_what_was_asked_and_waits_as_its_status_deserves() {
    let service = Service::start(true).await;
    for (status, code) in [
        (401, "bad_password"),
        (403, "privilege"),
        (404, "unsupported"),
        (405, "unsupported"),
        (408, "completion_code"),
        (429, "completion_code"),
        (500, "completion_code"),
        (501, "unsupported"),
        (503, "completion_code"),
    ] {
        service.does(Habit::Says(status, "X: y", b"fuse\n blown".to_vec()));
        let (found, message) = service.fails(Verb::Off).await;
        assert_eq!(found, code, "{status}");
        let place = place(&service.bmc);
        let expected =
            format!("BMC {place}: answered {status} to POST /outlets/3?power=off, and said \"fuse blown\"; ");
        assert!(message.starts_with(&expected), "{message}");
        assert_eq!(service.heard(), [POST_OFF], "it is sent once");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (service, other) = (Service::start(true).await, Service::start(true).await);
    let location = format!("Location: http://{}/outlets/3", place(&other.bmc));
    service.does(Habit::Says(308, Box::leak(location.into_boxed_str()), Vec::new()));
    let (code, message) = service.fails(Verb::Status).await;
    assert_eq!((code, service.heard(), other.heard()), ("unsupported", vec![GET.to_owned()], Vec::new()));
    assert!(
        message.contains("answered 308 to GET /outlets/3 with a redirect to \"http://127.0.0.1:"),
        "{message}"
    );
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let service = Service::start(false).await;
    service.does(Habit::Endless);
    let (code, message) = service.fails(Verb::Status).await;
    assert_eq!((code, message.contains("larger than 65536 bytes")), ("unsupported", true), "{message}");
}

#[tokio::test]
async fn a_silent_service_is_waited_for_so_long_and_asked_once() {
    let service = Service::start(false).await;
    service.does(Habit::Silent);
    let begun = Instant::now();
    let ended = service.run_within(Verb::Off, Limits { answer: SHORT, ..PATIENT }).await.unwrap_err();
    let (code, message) = ended.error.unwrap();
    assert_eq!((code, service.heard()), ("unreachable", vec![POST_OFF.to_owned()]));
    assert!(
        message.contains("stopped answering during POST /outlets/3?power=off (no answer in time)"),
        "{message}"
    );
    assert!(begun.elapsed() >= SHORT && begun.elapsed() < PATIENT.answer);

    // It accepts connections, and never speaks TLS.
    let mute = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut service = Service::start(false).await;
    service.bmc.port = mute.local_addr().unwrap().port().into();
    let limits = Limits { connect: SHORT, ..PATIENT };
    let (code, message) = service.run_within(Verb::Off, limits).await.unwrap_err().error.unwrap();
    assert_eq!((code, message.contains("no connection within 0.3 s")), ("unreachable", true), "{message}");
    assert!(LIMITS.connect + LIMITS.answer < super::super::PACE.look, "a reading tells why it failed");
}

#[tokio::test]
async fn an_answer_that_says_neither_or_both_is_quoted_and_not_guessed_at() {
    let service = Service::start(true).await;
    let long = format!("\u{1b}[2J{}", "x".repeat(3000));
    for (body, found, quote) in [
        ("starting", "neither bmc.webhook.says_on nor bmc.webhook.says_off is", "\"starting\""),
        ("", "neither bmc.webhook.says_on nor bmc.webhook.says_off is", "\"\""),
        (
            r#"{"power":"on","power": "off"}"#,
            "both bmc.webhook.says_on and bmc.webhook.says_off are",
            r#""{\"power\":\"on\",\"power\": \"off\"}""#,
        ),
        (&long, "neither bmc.webhook.says_on nor bmc.webhook.says_off is", "\"[2Jxxx"),
    ] {
        service.does(Habit::Says(200, "X: y", body.as_bytes().to_vec()));
        let (code, message) = service.fails(Verb::Status).await;
        assert_eq!(code, "completion_code");
        let expected = format!("{found} found in the answer to GET /outlets/3, {quote}");
        assert!(message.contains(&expected) && message.len() < 800, "{message}");
    }
    service.does(Habit::Says(200, "X: y", b"\xff\xfe\"power\":\"off\"\x00".to_vec()));
    assert_eq!(service.run(Verb::Status).await, OFF, "bytes that are no UTF-8 are searched too");
}

#[tokio::test]
async fn the_first_certificate_is_the_one_and_another_is_sent_nothing() {
    let (mut service, other) = (Service::start(false).await, Service::start(false).await);
    assert_eq!(service.run(Verb::Status).await, OFF);
    service.heard();
    let place = place(&service.bmc);
    assert_eq!(service.certificates.known(&place), Some(service.sha256));
    service.certificates.keep(&place, other.sha256).unwrap();
    let (code, message) = service.fails(Verb::Off).await;
    assert_eq!((code, service.heard()), ("certificate", Vec::new()), "{message}");
    assert!(message.contains("declare that in bmc.tls.fingerprint"), "{message}");
    service.bmc.trust = Some(bmc::Trust::HostRoots(true));
    assert_eq!(service.fails(Verb::Off).await.0, "certificate");
    assert_eq!(service.heard(), Vec::<String>::new());
    service.bmc.trust = Some(bmc::Trust::Sha256(service.sha256.to_vec()));
    assert_eq!(service.run(Verb::Status).await, OFF);
    assert_eq!(service.certificates.known(&place), Some(service.sha256), "it replaces what was known");
}

#[tokio::test]
async fn plain_http_is_spoken_only_where_it_is_declared() {
    let mut service = Service::start(true).await;
    service.requests().plain = false;
    let (code, message) = service.fails(Verb::Off).await;
    assert_eq!((code, message.contains("that it speaks HTTPS")), ("unreachable", true), "{message}");
    let heard = service.heard();
    assert!(!heard.iter().any(|request| request.contains("POST")), "{heard:?}");
}

#[tokio::test]
async fn a_service_has_few_requests_at_once_for_all_of_its_machines() {
    let service = Service::start(true).await;
    let turns = Arc::new(Semaphore::new(TURNS));
    let opened: Vec<_> = (0..8)
        .map(|_| {
            Webhook::new(&service.bmc, None, &service.certificates, Arc::clone(&turns), PATIENT).unwrap()
        })
        .collect();
    let mut asked: Vec<_> = opened.iter().map(|it| Box::pin(it.ask(Method::GET, "/outlets/3"))).collect();
    service.does(Habit::Silent);
    // All of them are under way, as far as they get.
    let all = std::future::poll_fn(|context| {
        for asked in &mut asked {
            let polled = asked.as_mut().poll(context);
            assert!(polled.is_pending(), "{polled:?}");
        }
        if service.state.lock().unwrap().heard.len() >= TURNS {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    });
    timeout(PATIENT.answer, all).await.unwrap();
    assert_eq!(turns.available_permits(), 0);
    assert_eq!(service.busy.1.load(Ordering::SeqCst), TURNS);
}

#[test]
fn each_machine_of_a_service_has_a_key_of_its_own_and_all_have_one_place() {
    let webhook = |on: &str, plain: bool| {
        let webhook = BmcWebhook { on: on.into(), plain, ..BmcWebhook::default() };
        Bmc { driver: "webhook".into(), address: "pdu".into(), webhook: Some(webhook), ..Bmc::default() }
    };
    assert_eq!(place(&webhook("/1/on", false)), "pdu:443");
    assert_eq!(key(&webhook("/1/on", true)), "pdu:80/1/on");
    assert_eq!(key(&Bmc { port: 8080, ..webhook("/2/on", true) }), "pdu:8080/2/on");
}

#[tokio::test]
async fn this_host_and_its_links_are_asked_only_where_an_admin_says_so() {
    let at = |driver: &str, address: &str| Bmc {
        driver: driver.into(),
        address: address.into(),
        ..Bmc::default()
    };
    let loopback = ["127.0.0.0/8".to_owned()];
    for address in [
        "127.0.0.1",
        "::ffff:127.0.0.1",
        "::1",
        "169.254.169.254",
        "fe80::1",
        "0.0.0.0",
        "255.255.255.255",
        "ff02::1",
    ] {
        let (code, message) = inside(&at("webhook", address), &[]).await.unwrap_err().error.unwrap();
        assert_eq!((code, message.contains("bmc_networks")), ("outside", true), "{message}");
        assert_eq!(inside(&at("redfish", address), &[]).await, Ok(None), "it asks what a BMC answers");
    }
    let far: IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(inside(&at("webhook", "192.0.2.1"), &[]).await, Ok(Some(far)));
    assert_eq!(inside(&at("webhook", "192.0.2.1"), &loopback).await.unwrap_err().error.unwrap().0, "outside");
    let here = Some(Ipv4Addr::LOCALHOST.into());
    assert_eq!(inside(&at("webhook", "127.0.0.1"), &loopback).await, Ok(here));
}
