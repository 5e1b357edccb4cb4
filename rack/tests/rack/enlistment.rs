//! Undeclared machines, from the lease to the result: one host invents hundreds of them, and a rack of real ones on another
//! VLAN is inspected nevertheless.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use basalt_api::agent::{ClaimReply, ClaimRequest, Inventory, Nic, Outcome, TaskResult};
use basalt_dhcp::Mac;
use basalt_dhcp::egress::Message as Dhcp;
use basalt_dhcp::ingress;
use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{
    AddressRange, BootConcern, DhcpConcern, DhcpSubnet, Enlist, EnlistTask, EphemeralBoot, Fact, fact::Body,
};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;
use basalt_rack::spool::{Limits, Spool};
use dhcproto::v4::{MessageType, OptionCode};
use prost::Message;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::link::{SECRET, next_link, region, serve, token};
use super::loopback::token_of;
use super::namespace::{ip, is_inside};
use super::strangers::{Log, files};
use super::support::{Client, DEADLINE, boot_concern, fact, settings};

/// The attempt of all undeclared machines.
const ATTEMPT: u64 = 4;
/// The number of machines that the host invents, and of real ones.
const INVENTED: u32 = 400;
const REAL: u32 = 200;
/// The number of turns of a VLAN, and of those that come again while the test runs.
const TURNS: usize = 256;
const REGAINED: usize = 40;

/// A VLAN with one network, and the relay in it.
#[derive(Clone, Copy)]
struct Vlan(u8);

impl Vlan {
    fn network(self) -> String {
        format!("127.{}.0.0/16", self.0)
    }

    fn relay(self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.0, 0, 3)
    }

    fn mac(self, number: u32) -> Mac {
        let [_, b, c, d] = number.to_be_bytes();
        Mac([6, self.0, 0, b, c, d])
    }

    fn subnet(self) -> DhcpSubnet {
        let at = |last| format!("127.{}.{last}", self.0);
        DhcpSubnet {
            subnet_uid: format!("s{}", self.0),
            cidr: self.network(),
            dynamic: vec![AddressRange { start: at("1.0"), end: at("4.255") }],
            lease_seconds: 600,
            ..DhcpSubnet::default()
        }
    }
}

fn write_concerns(data_dir: &Path, vlans: [Vlan; 2]) {
    let subnets = vlans.map(Vlan::subnet).to_vec();
    let dhcp = DhcpConcern { subnets, serve_unknown: true, ..DhcpConcern::default() };
    let Some(Action::Ephemeral(boot)) = boot_concern(ATTEMPT).machines.remove(0).action else {
        panic!("it is armed")
    };
    let boot = EphemeralBoot { step_key: String::new(), ..boot };
    let task = |vlan: Vlan| EnlistTask {
        networks: vec![vlan.network()],
        architecture: "amd64".to_owned(),
        boot: Some(boot.clone()),
    };
    let enlist = Enlist { tasks: vlans.map(task).to_vec(), at_once: 1000, ..Enlist::default() };
    let boot = BootConcern { machines: Vec::new(), enlist: Some(enlist) };
    write_concern(data_dir, &version(Concern::Dhcp, 1, "inc-1", &dhcp)).unwrap();
    write_concern(data_dir, &version(Concern::Boot, 1, "inc-1", &boot)).unwrap();
}

/// The boot exchange of an iPXE. Returns its address.
async fn lease(settings: &Settings, relay: &UdpSocket, vlan: Vlan, mac: Mac) -> Ipv4Addr {
    let ask = async |kind, offered: Option<(Ipv4Addr, Ipv4Addr)>| {
        let mut message = Dhcp::request(kind, 7, mac);
        message.giaddr = vlan.relay();
        message.option(OptionCode::UserClass, "iPXE");
        if let Some((address, server)) = offered {
            message.option(OptionCode::RequestedIpAddress, address.octets());
            message.option(OptionCode::ServerIdentifier, server.octets());
        }
        relay.send_to(&message.encode(), (Ipv4Addr::LOCALHOST, settings.dhcp_port)).await.unwrap();
        let mut buffer = [0; 1500];
        let answer = tokio::time::timeout(DEADLINE, relay.recv_from(&mut buffer)).await;
        let (length, _) = answer.expect("no DHCP answer").unwrap();
        ingress::parse(&buffer[..length]).unwrap()
    };
    let offer = ask(MessageType::Discover, None).await;
    let server = offer.options.ipv4(OptionCode::ServerIdentifier).unwrap();
    let ack = ask(MessageType::Request, Some((offer.yiaddr, server))).await;
    assert_eq!((offer.kind, ack.kind), (MessageType::Offer, MessageType::Ack));
    ack.yiaddr
}

fn result(macs: impl Iterator<Item = Mac>) -> Vec<u8> {
    let nic = |mac: Mac| Nic { mac: mac.to_string(), hardware: Some(1), ..Nic::default() };
    let inventory = Inventory { nics: macs.map(nic).collect(), ..Inventory::default() };
    let result = TaskResult {
        attempt: ATTEMPT,
        outcome: Outcome::Succeeded,
        inventory: Some(inventory),
        markers: BTreeMap::new(),
        timings: BTreeMap::new(),
        output: None,
        scripts: Vec::new(),
        bmc: None,
        logs: None,
    };
    serde_json::to_vec(&result).unwrap()
}

/// Boots a machine. Returns its client of the agent API and its session, if it is inspected.
async fn boot(plain: Client, spki: &str, mac: Mac) -> Option<(Client, String)> {
    let script = plain.get(&format!("/ipxe?mac={mac}")).await;
    if !script.text().contains("basalt.token=") {
        return None;
    }
    let agent = Client { spki: Some(spki.to_owned()), ..plain };
    let token = token_of(script.text());
    let claim =
        ClaimRequest { token, boot_id: mac.to_string(), mac: mac.to_string(), agent_version: "test".into() };
    let claim = serde_json::to_vec(&claim).unwrap();
    let mut session = None;
    for _ in 0..3 {
        let claimed = agent.post("/agent/v1/claim", None, claim.clone()).await;
        assert_eq!(claimed.status, 200, "{}", claimed.text());
        let reply: ClaimReply = serde_json::from_slice(&claimed.body).unwrap();
        session = Some(reply.session);
    }
    Some((agent, session?))
}

/// A machine that is inspected, or not.
async fn honest(plain: Client, spki: Arc<str>, mac: Mac) -> bool {
    let Some((agent, session)) = boot(plain, &spki, mac).await else { return false };
    let result = result([mac].into_iter());
    assert_eq!(agent.post("/agent/v1/result", Some(&session), result).await.status, 204);
    true
}

/// The same, and all else that its session lets it send. Its result names the interfaces of real machines.
async fn invented(plain: Client, spki: Arc<str>, mac: Mac, real: Vlan) -> bool {
    let Some((agent, session)) = boot(plain.clone(), &spki, mac).await else { return false };
    let session = Some(session.as_str());
    for seq in 1..=3 {
        let progress = format!(r#"{{"seq":{seq},"stage":"x","percent":1,"message":"x"}}"#);
        agent.post("/agent/v1/progress", session, progress).await;
    }
    let account = r#"{"user":"basalt","password":"0a1b"}"#;
    assert_eq!(agent.post("/agent/v1/bmc", session, account).await.code(), "undeclared");
    assert_eq!(agent.post("/agent/v1/checkpoint", session, r#"{"seq":1}"#).await.code(), "undeclared");
    let log = format!("/agent/v1/log?offset={}", mac.0[5]);
    assert_eq!(agent.post(&log, session, "a\n".repeat(30_000)).await.status, 204);
    let result = result([mac].into_iter().chain((0..REAL).map(|number| real.mac(number))));
    for _ in 0..2 {
        assert_eq!(agent.post("/agent/v1/result", session, result.clone()).await.status, 204);
    }
    assert!(
        !plain.get(&format!("/ipxe?mac={mac}")).await.text().contains("basalt.token="),
        "within the hour"
    );
    true
}

/// Boots machines, twenty at once. Returns the number of inspected ones.
async fn boots<F>(settings: &Settings, vlan: Vlan, count: u32, machine: impl Fn(Client, Mac) -> F) -> usize
where
    F: Future<Output = bool> + Send + 'static,
{
    let relay = UdpSocket::bind((vlan.relay(), settings.dhcp_port)).await.unwrap();
    let mut inspected = 0;
    for first in (0..count).step_by(20) {
        let mut running = JoinSet::new();
        for number in first..(first + 20).min(count) {
            let mac = vlan.mac(number);
            let from = lease(settings, &relay, vlan, mac).await.into();
            let rack = (Ipv4Addr::LOCALHOST, settings.http_port).into();
            running.spawn(machine(Client { from, rack, spki: None }, mac));
        }
        inspected += running.join_all().await.into_iter().filter(|is_inspected| *is_inspected).count();
    }
    inspected
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_invents_machines_takes_the_turns_of_its_vlan_only() {
    if !is_inside("enlistment::a_host_that_invents_machines_takes_the_turns_of_its_vlan_only") {
        return;
    }
    ip("link set lo up");
    let dir = tempfile::tempdir().unwrap();
    let (region, mut linked) = region();
    let address = serve(region.clone(), REGION_SERVER_NAME, CancellationToken::new()).await;
    let settings = Settings { join: Some(token(&region, address, SECRET)), ..settings(dir.path()) };
    let vlans = [Vlan(1), Vlan(2)];
    write_concerns(&settings.data_dir, vlans);
    let log = Log::begin();
    let rack = Daemon::start(settings.clone()).await.unwrap();
    // The region takes no facts, so all of them stay in the spool.
    let mut link = next_link(&mut linked).await;
    link.welcome().await;
    let is_up =
        |fact: &Fact| matches!(&fact.body, Some(Body::Health(it)) if it.ok && it.service == "dhcp lo");
    fact(&rack.facts, is_up).await;

    let spki: Arc<str> = rack.spki_sha256.as_str().into();
    let [own, other] = vlans;
    let taken =
        boots(&settings, own, INVENTED, |client, mac| invented(client, Arc::clone(&spki), mac, other)).await;
    assert!((TURNS..TURNS + REGAINED).contains(&taken), "{taken} of {INVENTED} were inspected");
    let real = boots(&settings, other, REAL, |client, mac| honest(client, Arc::clone(&spki), mac)).await;
    assert_eq!(real, REAL as usize, "a rack of servers on another VLAN");
    let left_out = |fact: &Fact| match &fact.body {
        Some(Body::Health(it)) if it.service == "enlistment" && !it.ok => it.message.contains(&own.network()),
        _ => false,
    };
    fact(&rack.facts, left_out).await;
    rack.stop().await;

    let (mut rows, mut bytes, mut next) = (BTreeMap::<&str, usize>::new(), 0, 1);
    let clock = basalt_rack::clock::Clock::default();
    let mut spool = Spool::open(&settings.data_dir, Limits::default(), clock).unwrap();
    loop {
        let facts = spool.read(next, 512, 1 << 20).unwrap();
        let Some(last) = facts.last().map(|fact| fact.seq) else { break };
        for told in facts {
            bytes += told.encoded_len();
            let kind = match &told.body {
                Some(Body::Lease(_)) => "lease",
                Some(Body::BootTrace(_)) => "trace",
                Some(Body::Health(_) | Body::DhcpInForce(_) | Body::Cache(_)) => "rack",
                Some(Body::Claim(_)) => "claim",
                Some(Body::Progress(_)) => "progress",
                Some(Body::Result(_)) => "result",
                other => panic!("a stranger made the rack tell {other:?}"),
            };
            *rows.entry(kind).or_default() += 1;
        }
        next = last + 1;
    }
    let of = |kind| rows.get(kind).copied().unwrap_or_default();
    assert_eq!(of("result"), taken + real, "one of each: {rows:?}");
    assert_eq!(of("lease"), (INVENTED + REAL) as usize, "one address each: {rows:?}");
    // The claims of all undeclared machines share 64 facts, and one each ten seconds; progress 128, and one each second.
    assert!(of("claim") <= 64 + 30 && of("progress") <= 128 + 300, "{rows:?}");
    let result = result((0..=REAL).map(|number| other.mac(number))).len();
    assert!(bytes <= (taken + real) * result + 1_000_000, "{bytes} bytes in {rows:?}");
    let register = std::fs::metadata(settings.data_dir.join("attempts")).unwrap().len();
    assert!(register < 2_000 * (taken + real) as u64, "{register} bytes of attempts");
    // 16 MiB at once, and 125 KiB a second.
    let logs = files(&settings.data_dir.join("logs"));
    assert!(logs < (16 << 20) + 300 * 128_000, "{logs} bytes of logs");
    let places = log.lines_by_place();
    let loudest = places.values().copied().max().unwrap_or_default();
    assert!(loudest <= 128 + 300, "each place may log 128 lines, and one each second: {places:?}");
    println!("{taken} invented machines of {INVENTED}: {rows:?}, {bytes} bytes, {logs} bytes of logs");
}
