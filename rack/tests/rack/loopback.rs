//! A rack without a region, with files only: a machine's way from DHCP to its result.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use basalt_api::agent::{ClaimReply, ClaimRequest, Outcome, TaskResult};
use basalt_dhcp::egress::Message;
use basalt_dhcp::{Mac, ingress};
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{
    AddressRange, DhcpConcern, DhcpSubnet, Enlist, EnlistTask, Fact, Reservation, fact::Body,
};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::hash::sha256;
use basalt_rack::settings::Settings;
use basalt_rack::token::report;
use dhcproto::v4::{MessageType, OptionCode};
use tokio::net::UdpSocket;

use super::logs::kept;
use super::support::{Client, DEADLINE, KEY, MAC, MACHINE, boot_concern, fact, settings, traced};

const RELAY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn write_concerns(data_dir: &Path) {
    let subnet = DhcpSubnet {
        subnet_uid: "s1".into(),
        cidr: "127.0.0.0/24".into(),
        reservations: vec![Reservation {
            mac: MAC.to_string(),
            address: MACHINE.to_string(),
            hostname: "m1".into(),
        }],
        ..DhcpSubnet::default()
    };
    let dhcp = DhcpConcern { subnets: vec![subnet], serve_unknown: false, ..DhcpConcern::default() };
    write_concern(data_dir, &version(Concern::Dhcp, 1, "local", &dhcp)).unwrap();
    write_concern(data_dir, &version(Concern::Boot, 1, "local", &boot_concern(17))).unwrap();
    let blobs = data_dir.join("blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(blobs.join(hex::encode(sha256(b"kernel"))), b"kernel").unwrap();
}

/// DISCOVER and REQUEST of an iPXE client, through a relay on another loopback address.
async fn boot_exchange(settings: &Settings) {
    boot_exchange_of(settings, MAC, MACHINE).await;
}

/// The same for any client, which gets this address.
pub(super) async fn boot_exchange_of(settings: &Settings, mac: Mac, address: Ipv4Addr) {
    boot_exchange_through(settings, RELAY, mac, address).await;
}

/// The same in the network of this relay.
pub(super) async fn boot_exchange_through(
    settings: &Settings,
    giaddr: Ipv4Addr,
    mac: Mac,
    address: Ipv4Addr,
) {
    boot_exchange_on(settings, giaddr, (mac, address), None).await;
}

/// The same with an iPXE that announces this architecture (option 93).
async fn boot_exchange_on(
    settings: &Settings,
    giaddr: Ipv4Addr,
    (mac, address): (Mac, Ipv4Addr),
    architecture: Option<u16>,
) {
    let relay = UdpSocket::bind((giaddr, settings.dhcp_port)).await.unwrap();
    let send = async |kind, offered: Option<(Ipv4Addr, Ipv4Addr)>| {
        let mut message = Message::request(kind, 7, mac);
        message.giaddr = giaddr;
        message.option(OptionCode::UserClass, "iPXE");
        if let Some(architecture) = architecture {
            message.option(OptionCode::ClientSystemArchitecture, architecture.to_be_bytes());
        }
        if let Some((address, server)) = offered {
            message.option(OptionCode::RequestedIpAddress, address.octets());
            message.option(OptionCode::ServerIdentifier, server.octets());
        }
        let bytes = message.encode();
        let mut buffer = [0; 1500];
        let exchange = async {
            loop {
                relay.send_to(&bytes, (Ipv4Addr::LOCALHOST, settings.dhcp_port)).await.ok();
                let answer =
                    tokio::time::timeout(Duration::from_millis(300), relay.recv_from(&mut buffer)).await;
                let Ok(Ok((length, _))) = answer else { continue };
                let packet = ingress::parse(&buffer[..length]).unwrap();
                // A repeated DISCOVER may get two offers.
                if kind == MessageType::Discover || packet.kind != MessageType::Offer {
                    return packet;
                }
            }
        };
        tokio::time::timeout(DEADLINE, exchange).await.expect("no DHCP answer")
    };
    let offer = send(MessageType::Discover, None).await;
    assert_eq!((offer.kind, offer.yiaddr), (MessageType::Offer, address));
    let server = offer.options.ipv4(OptionCode::ServerIdentifier).unwrap();
    let ack = send(MessageType::Request, Some((address, server))).await;
    assert_eq!(ack.kind, MessageType::Ack);
    let script = format!("http://127.0.0.1:{}/ipxe?mac={mac}", settings.http_port);
    let told = ack.options.text(OptionCode::BootfileName).map(str::to_owned);
    let told = told.unwrap_or_else(|| String::from_utf8_lossy(&ack.file).trim_end_matches('\0').to_owned());
    assert_eq!(told, script);
}

pub(super) fn token_of(script: &str) -> String {
    script.split("basalt.token=").nth(1).unwrap().split(' ').next().unwrap().to_owned()
}

pub(super) fn claim(token: &str, boot_id: &str) -> Vec<u8> {
    let (token, boot_id) = (token.to_owned(), boot_id.to_owned());
    let request = ClaimRequest { token, boot_id, mac: MAC.to_string(), agent_version: "test".into() };
    serde_json::to_vec(&request).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_its_client_declines_is_leased_to_nobody_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_concerns(&settings.data_dir);
    let rack = Daemon::start(settings.clone()).await.unwrap();
    boot_exchange(&settings).await;
    let lease = |released: bool| move |fact: &Fact| matches!(&fact.body, Some(Body::Lease(it)) if it.released == released);
    let granted = fact(&rack.facts, lease(false)).await;

    let relay = UdpSocket::bind((RELAY, settings.dhcp_port)).await.unwrap();
    let mut decline = Message::request(MessageType::Decline, 8, MAC);
    decline.giaddr = RELAY;
    decline.option(OptionCode::RequestedIpAddress, MACHINE.octets());
    decline.option(OptionCode::ServerIdentifier, Ipv4Addr::LOCALHOST.octets());
    relay.send_to(&decline.encode(), (Ipv4Addr::LOCALHOST, settings.dhcp_port)).await.unwrap();
    let ended = fact(&rack.facts, lease(true)).await;
    assert!(ended.seq > granted.seq && ended.mac == granted.mac, "{granted:?} {ended:?}");
    let Some(Body::Lease(body)) = &ended.body else { unreachable!("it was asked for") };
    assert!(
        body.address == MACHINE.to_string() && body.expires_unix_ms <= ended.observed_unix_ms,
        "{body:?}"
    );
    let conflict = |fact: &Fact| matches!(&fact.body, Some(Body::Alarm(it)) if it.code == "address_conflict");
    fact(&rack.facts, conflict).await;
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subnet_without_a_free_address_is_told_until_its_range_is_wider() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_concerns(&settings.data_dir);
    let pool = |generation, last: &str| {
        let dynamic = vec![AddressRange { start: "127.0.0.100".into(), end: last.into() }];
        let subnet = DhcpSubnet {
            subnet_uid: "s1".into(),
            cidr: "127.0.0.0/24".into(),
            dynamic,
            ..DhcpSubnet::default()
        };
        let dhcp = DhcpConcern { subnets: vec![subnet], serve_unknown: true, ..DhcpConcern::default() };
        write_concern(&settings.data_dir, &version(Concern::Dhcp, generation, "local", &dhcp)).unwrap();
    };
    pool(2, "127.0.0.100");
    let rack = Daemon::start(settings.clone()).await.unwrap();
    boot_exchange_of(&settings, MAC, "127.0.0.100".parse().unwrap()).await;
    let health = |said: &str| {
        let said = said.to_owned();
        move |fact: &Fact| match &fact.body {
            Some(Body::Health(it)) => {
                it.service == "addresses 127.0.0.0/24"
                    && it.message.contains(&said)
                    && it.ok == said.is_empty()
            }
            _ => false,
        }
    };
    let second = boot_exchange_of(&settings, Mac([2, 0, 0, 0, 0, 2]), "127.0.0.101".parse().unwrap());
    let widen = async {
        let short = fact(&rack.facts, health("of 1 in 127.0.0.100-127.0.0.100, 1 leased; widen")).await;
        pool(3, "127.0.0.101");
        short.seq
    };
    let ((), short) = tokio::join!(second, widen);
    fact(&rack.facts, |fact| fact.seq > short && health("")(fact)).await;
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_a_client_takes_is_told_of_unless_it_is_another_rack() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_concerns(&settings.data_dir);
    let [peer, stranger] = [8, 9].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let subnet = DhcpSubnet { subnet_uid: "s1".into(), cidr: "127.0.0.0/24".into(), ..DhcpSubnet::default() };
    let racks = vec![peer.to_string()];
    let dhcp = DhcpConcern { subnets: vec![subnet], racks, serve_unknown: true, ..DhcpConcern::default() };
    write_concern(&settings.data_dir, &version(Concern::Dhcp, 2, "local", &dhcp)).unwrap();
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let up = |fact: &Fact| matches!(&fact.body, Some(Body::Health(it)) if it.service == "dhcp lo" && it.ok);
    fact(&rack.facts, up).await;
    let client = UdpSocket::bind((RELAY, 0)).await.unwrap();
    let ask = async {
        loop {
            for server in [peer, stranger] {
                let mut message = Message::request(MessageType::Request, 7, MAC);
                message.option(OptionCode::RequestedIpAddress, MACHINE.octets());
                message.option(OptionCode::ServerIdentifier, server.octets());
                client.send_to(&message.encode(), (Ipv4Addr::LOCALHOST, settings.dhcp_port)).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let seen = |fact: &Fact| matches!(&fact.body, Some(Body::DhcpServer(_)));
    let told = tokio::select! {
        told = fact(&rack.facts, seen) => told,
        () = ask => unreachable!("it asks without an end"),
    };
    let Some(Body::DhcpServer(server)) = told.body else { unreachable!("it was asked for") };
    assert_eq!(server.address, stranger.to_string(), "the other one was asked for first");
    rack.stop().await;
}

/// A machine that is declared as amd64 boots on arm64 firmware, and then on its own.
#[tokio::test(flavor = "multi_thread")]
async fn ipxe_of_another_architecture_than_declared_is_sent_neither_kernel_nor_token() {
    const ARM64: u16 = 11;
    const X64: u16 = 7;
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_concerns(&settings.data_dir);
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let machine =
        Client { from: MACHINE.into(), rack: ([127, 0, 0, 1], settings.http_port).into(), spki: None };
    let script = format!("/ipxe?mac={MAC}");
    boot_exchange_on(&settings, RELAY, (MAC, MACHINE), Some(ARM64)).await;
    let refused = machine.get(&script).await;
    let words = "m1 is declared as amd64, has a boot loader for arm64, and boots its disk";
    assert!(refused.text().contains(&format!("echo Basalt: {words}")), "{}", refused.text());
    assert!(
        !refused.text().contains("basalt.token") && !refused.text().contains("kernel"),
        "{}",
        refused.text()
    );
    boot_exchange_on(&settings, RELAY, (MAC, MACHINE), Some(X64)).await;
    token_of(machine.get(&script).await.text());

    let traced = traced(&rack.facts, &MAC.to_string(), "iPXE on x86-64 UEFI").await;
    let asked: Vec<_> = traced.iter().map(|it| (it.asked.as_str(), it.reason.as_str())).collect();
    assert_eq!(asked[0].0, "DISCOVER, iPXE on arm64 UEFI, by relay 127.0.0.2");
    assert!(asked.contains(&("script for iPXE", "other_architecture")), "{asked:?}");
    assert!(traced.iter().any(|it| it.answered == words), "{traced:?}");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_boots_claims_and_finishes_and_then_boots_its_disk() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_concerns(&settings.data_dir);
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let plain =
        Client { from: MACHINE.into(), rack: ([127, 0, 0, 1], settings.http_port).into(), spki: None };
    let agent = Client { spki: Some(rack.spki_sha256.clone()), ..plain.clone() };
    let elsewhere = Client { from: Ipv4Addr::new(127, 0, 0, 66).into(), ..plain.clone() };
    let script_path = format!("/ipxe?mac={MAC}");

    // Before DHCP no client gets a token; after it, only the machine's address does.
    assert_eq!(plain.get(&script_path).await.status, 403);
    boot_exchange(&settings).await;
    assert_eq!(elsewhere.get(&script_path).await.status, 403);
    fact(
        &rack.facts,
        |fact| matches!(&fact.body, Some(Body::BootRequest(it)) if it.answer.starts_with("refused")),
    )
    .await;
    let script = plain.get(&script_path).await;
    assert_eq!(script.status, 200);
    let token = token_of(script.text());
    assert_eq!(
        token_of(plain.get(&script_path).await.text()),
        token,
        "a retry within one boot is the same boot"
    );

    // Files.
    let kernel = format!("/blobs/{}", hex::encode(sha256(b"kernel")));
    assert_eq!(plain.get(&kernel).await.text(), "kernel");
    let range = http::Request::get(&kernel).header("range", "bytes=2-3").body(Default::default()).unwrap();
    let range = plain.send(range).await;
    assert_eq!((range.status, range.text()), (206, "rn"));
    assert_eq!(range.headers["content-range"], "bytes 2-3/6");
    let head = plain.send(http::Request::head(&kernel).body(Default::default()).unwrap()).await;
    assert_eq!((head.status, head.headers["content-length"].to_str().unwrap()), (200, "6"));
    assert_eq!(plain.get(&format!("/blobs/{}", "0".repeat(64))).await.status, 404);
    assert_eq!(plain.get("/loaders/undionly.kpxe").await.text(), "a loader");
    assert_eq!(plain.get("/loaders/passwd").await.status, 404);

    // Claims: refused without TLS, from elsewhere, or with another MAC's token; then granted once, and repeated.
    assert_eq!(plain.post("/agent/v1/claim", None, claim(&token, "a")).await.code(), "tls_required");
    let thief = Client { from: elsewhere.from, ..agent.clone() };
    assert_eq!(thief.post("/agent/v1/claim", None, claim(&token, "t")).await.code(), "wrong_address");
    assert_eq!(agent.post("/agent/v1/claim", None, claim(&token[1..], "a")).await.code(), "bad_token");
    let claimed = agent.post("/agent/v1/claim", None, claim(&token, "a")).await;
    assert_eq!(claimed.status, 200, "{}", claimed.text());
    let reply: ClaimReply = serde_json::from_slice(&claimed.body).unwrap();
    assert_eq!((reply.attempt, reply.machine_uid.as_deref()), (17, Some("uid-1")));
    let again: ClaimReply =
        serde_json::from_slice(&agent.post("/agent/v1/claim", None, claim(&token, "a")).await.body).unwrap();
    assert_eq!(again.session, reply.session);
    assert_eq!(agent.post("/agent/v1/claim", None, claim(&token, "b")).await.code(), "taken");

    // The task is given only with the session.
    let task = |bearer: String| {
        let request =
            http::Request::get("/agent/v1/task").header("authorization", format!("Bearer {bearer}"));
        agent.send(request.body(Default::default()).unwrap())
    };
    assert_eq!(task(reply.session.clone()).await.text(), r#"{"the":"task"}"#);
    assert_eq!(task(token.clone()).await.code(), "bad_session");
    let session = Some(reply.session.as_str());
    let progress = r#"{"seq":1,"stage":"unpack","percent":50,"message":"half"}"#;
    assert_eq!(agent.post("/agent/v1/progress", session, progress).await.status, 204);
    assert_eq!(agent.post("/agent/v1/log?offset=0", session, "line\n").await.status, 204);
    // A repeated part of the log is not stored twice.
    assert_eq!(agent.post("/agent/v1/log?offset=0", session, "line\nnext\x1b[1m\n").await.status, 204);
    let lines = kept(&rack, "[1m").await;
    let lines: Vec<_> = lines.iter().map(|it| (&*it.machine_uid, &*it.app, &*it.text)).collect();
    assert_eq!(lines, [("uid-1", "basalt-agent", "line"), ("uid-1", "basalt-agent", "next<U+001B>[1m")]);

    // A password for the BMC is in the spool before the agent has its answer.
    let account = |sealed: &str| format!(r#"{{"user":"basalt","driver":"redfish","password":"{sealed}"}}"#);
    assert_eq!(agent.post("/agent/v1/bmc", session, account("0a1b")).await.status, 204);
    let written = |fact: &Fact| matches!(&fact.body, Some(Body::BmcAccount(it)) if it.sealed == [0x0a, 0x1b]);
    let told = rack.facts.read(1).await.unwrap().into_iter().find(written).expect("it is written down");
    assert_eq!((told.attempt, told.machine_uid.as_str()), (17, "uid-1"));
    assert_eq!(agent.post("/agent/v1/bmc", session, account("no hex")).await.code(), "invalid");
    assert_eq!(agent.post("/agent/v1/bmc", session, account(&"00".repeat(129))).await.code(), "invalid");
    assert_eq!(agent.post("/agent/v1/bmc", None, account("0a1b")).await.code(), "bad_session");
    for _ in 1..16 {
        assert_eq!(agent.post("/agent/v1/bmc", session, account("0a1b")).await.status, 204);
    }
    assert_eq!(agent.post("/agent/v1/bmc", session, account("0a1b")).await.code(), "too_many");

    // A checkpoint is stored, and told to the regions, before the agent has its answer. The same machine gets it with its next boot.
    let checkpoint =
        |seq: u64| format!(r#"{{"seq":{seq},"leaves":true,"scripts":[{{"name":"flash\u001b"}}]}}"#);
    assert_eq!(agent.post("/agent/v1/checkpoint", None, checkpoint(1)).await.code(), "bad_session");
    assert_eq!(agent.post("/agent/v1/checkpoint", session, "{}").await.code(), "invalid");
    let long = "x".repeat(basalt_api::agent::CHECKPOINT_BYTES + 1);
    assert_eq!(agent.post("/agent/v1/checkpoint", session, long).await.status, 413);
    for seq in [2, 1] {
        assert_eq!(agent.post("/agent/v1/checkpoint", session, checkpoint(seq)).await.status, 204);
    }
    let is_checkpoint =
        |fact: &Fact| matches!(&fact.body, Some(Body::Checkpoint(it)) if it.json.starts_with(b"{"));
    let told = rack.facts.read(1).await.unwrap().into_iter().find(is_checkpoint).expect("it is written down");
    assert_eq!((told.attempt, told.machine_uid.as_str()), (17, "uid-1"));
    let Some(Body::Checkpoint(told)) = told.body else { panic!("no checkpoint") };
    let told = String::from_utf8(told.json).unwrap();
    assert!(told.contains("flash<U+001B>"), "made printable: {told}");

    // After the result the machine boots its disk, though the concern has not changed.
    let result = TaskResult {
        attempt: 17,
        outcome: Outcome::Succeeded,
        inventory: None,
        markers: Default::default(),
        timings: Default::default(),
        output: None,
        scripts: Vec::new(),
        bmc: None,
        logs: None,
    };
    let result = serde_json::to_vec(&result).unwrap();
    for _ in 0..2 {
        assert_eq!(agent.post("/agent/v1/result", session, result.clone()).await.status, 204);
    }
    let told = fact(&rack.facts, |fact| matches!(fact.body, Some(Body::Result(_)))).await;
    assert_eq!((told.attempt, told.step_key.as_str(), told.machine_uid.as_str()), (17, "step-1", "uid-1"));
    assert!(plain.get(&script_path).await.text().contains("has finished its task and boots its disk"));
    assert_eq!(task(reply.session.clone()).await.code(), "finished");
    assert_eq!(agent.post("/agent/v1/bmc", session, account("0a1b")).await.code(), "finished");
    assert_eq!(agent.post("/agent/v1/checkpoint", session, checkpoint(3)).await.code(), "finished");

    // All of it was counted, and machines cannot read the metrics.
    let metrics = Client { from: Ipv4Addr::LOCALHOST.into(), rack: settings.metrics.unwrap(), spki: None };
    let counted = metrics.get("/metrics").await;
    let value = |series: &str| {
        let line = counted.text().lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series}: {}", counted.text())).parse::<u64>().unwrap()
    };
    assert_eq!(value("basalt_rack_leases"), 1);
    assert!(value("basalt_rack_leases_total{event=\"granted\"}") >= 1);
    assert!(value("basalt_rack_boot_requests_total{service=\"dhcp\"}") >= 1);
    assert_eq!(value("basalt_rack_http_requests_total{route=\"/ipxe\",class=\"2xx\"}"), 3);
    assert_eq!(value("basalt_rack_http_requests_total{route=\"/ipxe\",class=\"4xx\"}"), 2);
    assert_eq!(value("basalt_rack_http_requests_total{route=\"/agent/v1/result\",class=\"2xx\"}"), 2);
    assert!(value("basalt_rack_spool_facts") > 0, "no region has stored any");
    assert!(value("basalt_rack_spool_bytes") > 0);
    assert_eq!(plain.get("/metrics").await.status, 404);

    // All of it can be read afterwards: with the reason of every refusal, and without tokens.
    let traced = traced(&rack.facts, &MAC.to_string(), "/agent/v1/result").await;
    let told: Vec<_> =
        traced.iter().map(|it| (it.service.as_str(), it.asked.as_str(), it.reason.as_str())).collect();
    let expected = [
        ("http", "script for iPXE", "token_refused"),
        ("dhcp", "DISCOVER, iPXE, by relay 127.0.0.2", ""),
        ("dhcp", "REQUEST, iPXE, for 127.0.0.77, by relay 127.0.0.2", ""),
        ("http", "script for iPXE", ""),
        ("http", "GET /loaders/passwd", "not_found"),
        ("agent", "POST /agent/v1/claim", "tls_required"),
        ("agent", "POST /agent/v1/claim", "bad_token"),
        ("agent", "POST /agent/v1/claim", ""),
        ("agent", "POST /agent/v1/claim", "taken"),
        ("agent", "GET /agent/v1/task", ""),
        ("agent", "POST /agent/v1/result", ""),
    ];
    let mut rest = told.iter();
    for wanted in expected {
        assert!(rest.any(|it| *it == wanted), "no {wanted:?} in its place: {told:#?}");
    }
    let whole = format!("{traced:?}");
    assert!(
        !whole.contains(&token) && !whole.contains(&reply.session) && whole.contains("attempt 17"),
        "{whole}"
    );
    rack.stop().await;

    // The same after a restart. The installed system reports.
    let rack = Daemon::start(settings.clone()).await.unwrap();
    assert!(plain.get(&script_path).await.text().contains("has finished its task and boots its disk"));
    assert_eq!(agent.post("/agent/v1/result", session, result).await.status, 204);
    let report = report::mint(&KEY, 17, "uid-1");
    assert_eq!(elsewhere.post(&format!("/report/{report}/booted"), None, "up").await.status, 204);
    assert_eq!(plain.post(&format!("/report/{report}/on_fire"), None, "").await.status, 404);
    assert_eq!(
        plain.post(&format!("/report/{}/booted", report::mint(&[1; 32], 17, "uid-1")), None, "").await.status,
        403
    );
    let ready =
        fact(&rack.facts, |fact| matches!(&fact.body, Some(Body::Readiness(it)) if it.level == "booted"))
            .await;
    assert_eq!(ready.machine_uid, "uid-1");
    let failed = "script tune ended with exit status: 3";
    let first_boot = format!("/report/{report}/first_boot_failed");
    assert_eq!(elsewhere.post(&first_boot, None, failed).await.status, 204);
    let is_failed = |fact: &Fact| matches!(&fact.body, Some(Body::Readiness(it)) if it.level == "first_boot_failed" && it.message == failed);
    assert_eq!(fact(&rack.facts, is_failed).await.attempt, 17);
    let alarm =
        fact(&rack.facts, |fact| matches!(&fact.body, Some(Body::Alarm(it)) if it.code == "wrong_address"))
            .await;
    assert_eq!(alarm.attempt, 17);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_is_told_that_another_one_has_claimed_its_attempt_elsewhere() {
    for (first, again) in [("", false), ("this boot", false), ("one before", true)] {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        write_concerns(&settings.data_dir);
        let mut concern = boot_concern(17);
        if let Some(Action::Ephemeral(boot)) = &mut concern.machines[0].action {
            boot.claimed_by = first.to_owned();
        }
        write_concern(&settings.data_dir, &version(Concern::Boot, 2, "local", &concern)).unwrap();
        let rack = Daemon::start(settings.clone()).await.unwrap();
        let plain =
            Client { from: MACHINE.into(), rack: ([127, 0, 0, 1], settings.http_port).into(), spki: None };
        let agent = Client { spki: Some(rack.spki_sha256.clone()), ..plain.clone() };
        boot_exchange(&settings).await;
        let token = token_of(plain.get(&format!("/ipxe?mac={MAC}")).await.text());
        for repeat in ["the first answer", "the same, lost and asked for again"] {
            let answer = agent.post("/agent/v1/claim", None, claim(&token, "this boot")).await;
            let reply: ClaimReply = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(reply.again, again, "claimed by {first:?}; {repeat}");
        }
        rack.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_continues_from_the_latest_checkpoint_of_its_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_concerns(&settings.data_dir);
    // Another rack served an earlier boot: a region tells its checkpoint.
    let mut concern = boot_concern(17);
    if let Some(Action::Ephemeral(boot)) = &mut concern.machines[0].action {
        boot.checkpoint = br#"{"seq":4,"leaves":true}"#.to_vec();
    }
    write_concern(&settings.data_dir, &version(Concern::Boot, 2, "local", &concern)).unwrap();
    let mut rack = Daemon::start(settings.clone()).await.unwrap();
    let plain =
        Client { from: MACHINE.into(), rack: ([127, 0, 0, 1], settings.http_port).into(), spki: None };
    let agent = Client { spki: Some(rack.spki_sha256.clone()), ..plain.clone() };
    for (boot, known, writes) in [("first", 4, 5), ("second", 5, 6)] {
        boot_exchange(&settings).await;
        let token = token_of(plain.get(&format!("/ipxe?mac={MAC}")).await.text());
        let answer = agent.post("/agent/v1/claim", None, claim(&token, boot)).await;
        let reply: ClaimReply = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(reply.checkpoint.map(|it| it.seq), Some(known), "{boot}");
        let checkpoint = format!(r#"{{"seq":{writes}}}"#);
        let session = Some(reply.session.as_str());
        assert_eq!(agent.post("/agent/v1/checkpoint", session, checkpoint).await.status, 204);
        // The register is on the disk.
        rack.stop().await;
        rack = Daemon::start(settings.clone()).await.unwrap();
    }
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_task_of_an_undeclared_machine_has_no_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_concerns(&settings.data_dir);
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let plain =
        Client { from: MACHINE.into(), rack: ([127, 0, 0, 1], settings.http_port).into(), spki: None };
    boot_exchange(&settings).await;
    let token = token_of(plain.get(&format!("/ipxe?mac={MAC}")).await.text());
    rack.stop().await;
    // The same attempt is now one of enlistment.
    let mut concern = boot_concern(17);
    let Some(Action::Ephemeral(boot)) = concern.machines.remove(0).action else { panic!("it is armed") };
    let networks = vec!["127.0.0.0/24".to_owned()];
    let task = EnlistTask { networks, architecture: "amd64".to_owned(), boot: Some(boot) };
    concern.enlist = Some(Enlist { tasks: vec![task], at_once: 1, ..Enlist::default() });
    write_concern(&settings.data_dir, &version(Concern::Boot, 2, "local", &concern)).unwrap();
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let agent = Client { spki: Some(rack.spki_sha256.clone()), ..plain };
    let claimed = agent.post("/agent/v1/claim", None, claim(&token, "a")).await;
    assert_eq!(claimed.status, 200, "{}", claimed.text());
    let reply: ClaimReply = serde_json::from_slice(&claimed.body).unwrap();
    let session = Some(reply.session.as_str());
    assert_eq!(agent.post("/agent/v1/checkpoint", session, r#"{"seq":1}"#).await.code(), "undeclared");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rom_fetches_its_loader_by_tftp() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_concerns(&settings.data_dir);
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let up =
        |fact: &Fact| matches!(&fact.body, Some(Body::Health(it)) if it.ok && it.service == "tftp 127.0.0.1");
    fact(&rack.facts, up).await;
    boot_exchange(&settings).await;
    let client = UdpSocket::bind((MACHINE, 0)).await.unwrap();
    client.send_to(b"\0\x01undionly.kpxe\0octet\0", ("127.0.0.1", settings.tftp_port)).await.unwrap();
    let mut buffer = [0; 600];
    let (length, from) =
        tokio::time::timeout(DEADLINE, client.recv_from(&mut buffer)).await.unwrap().unwrap();
    assert_eq!(&buffer[..length], b"\0\x03\0\x01a loader");
    client.send_to(b"\0\x04\0\x01", from).await.unwrap();
    let traced = traced(&rack.facts, &MAC.to_string(), "undionly.kpxe").await;
    let told = traced.iter().find(|it| it.service == "tftp").unwrap();
    assert!(told.asked == "undionly.kpxe" && told.answered.starts_with("8 bytes"), "{told:?}");
    rack.stop().await;
}

/// Fetches a file that fits into one block by TFTP. Returns its content, or the text of the error.
async fn tftp(from: Ipv4Addr, settings: &Settings, file: &str) -> Result<String, String> {
    let client = UdpSocket::bind((from, 0)).await.unwrap();
    let request = [b"\0\x01", file.as_bytes(), b"\0octet\0blksize\x001428\0"].concat();
    client.send_to(&request, ("127.0.0.1", settings.tftp_port)).await.unwrap();
    let mut buffer = [0; 1500];
    loop {
        let received = tokio::time::timeout(DEADLINE, client.recv_from(&mut buffer)).await;
        let (length, server) = received.expect("no answer").unwrap();
        match buffer[1] {
            3 => {
                client.send_to(b"\0\x04\0\x01", server).await.unwrap();
                return Ok(String::from_utf8_lossy(&buffer[4..length]).into_owned());
            }
            5 => return Err(String::from_utf8_lossy(&buffer[4..length - 1]).into_owned()),
            _ => drop(client.send_to(b"\0\x04\0\0", server).await.unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grub_and_pxelinux_get_the_machines_token_by_the_rules_of_ipxe() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_concerns(&settings.data_dir);
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let plain =
        Client { from: MACHINE.into(), rack: ([127, 0, 0, 1], settings.http_port).into(), spki: None };
    let dashed = format!("01-{}", MAC.to_string().replace(':', "-"));
    let pxelinux = format!("pxelinux.cfg/{dashed}");
    let grubs = [
        format!("/grub/grub.cfg-{dashed}"),
        format!("/grub/grub.cfg-{MAC}"),
        format!("/debian-installer/amd64/grub/grub.cfg-{dashed}"),
    ];

    let up =
        |fact: &Fact| matches!(&fact.body, Some(Body::Health(it)) if it.ok && it.service == "tftp 127.0.0.1");
    fact(&rack.facts, up).await;
    assert_eq!(plain.get(&grubs[0]).await.status, 403);
    assert!(tftp(MACHINE, &settings, &pxelinux).await.unwrap_err().contains("no boot exchange"));
    boot_exchange(&settings).await;
    let elsewhere = Ipv4Addr::new(127, 0, 0, 66);
    assert!(tftp(elsewhere, &settings, &grubs[0]).await.unwrap_err().contains("the address leased"));
    assert_eq!(Client { from: elsewhere.into(), ..plain.clone() }.get(&grubs[0]).await.status, 403);

    let token = |script: &str| token_of(script).trim_matches('\'').to_owned();
    let expected = token(plain.get(&format!("/ipxe?mac={MAC}")).await.text());
    for grub in &grubs {
        let (http, tftp) = (plain.get(grub).await, tftp(MACHINE, &settings, grub).await.unwrap());
        assert_eq!((http.status, http.text()), (200, tftp.as_str()), "{grub}");
        assert_eq!(token(&tftp), expected, "{grub}");
    }
    assert_eq!(token(&tftp(MACHINE, &settings, &pxelinux).await.unwrap()), expected);
    // Debian's signed GRUB loads kernel and initrd by TFTP; no other blob is served there.
    let blob = |content: &str| format!("/blobs/{}", hex::encode(sha256(content.as_bytes())));
    assert_eq!(tftp(MACHINE, &settings, &blob("kernel")).await.as_deref(), Ok("kernel"));
    assert!(tftp(MACHINE, &settings, &blob("squashfs")).await.unwrap_err().contains("not found"));
    let first = plain.get("/grub/grub.cfg").await;
    assert_eq!(tftp(MACHINE, &settings, "/grub/grub.cfg").await.as_deref(), Ok(first.text()));
    assert_eq!(plain.get("/grub/x86_64-efi/command.lst").await.status, 404);
    assert!(tftp(MACHINE, &settings, "pxelinux.cfg/default").await.unwrap_err().contains("not found"));
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_rack_on_the_same_directory_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let error = Daemon::start(settings).await.unwrap_err().to_string();
    assert!(error.contains("another basalt-rack runs on data directory"), "{error}");
    rack.stop().await;
}
