//! Attackers that know a machine's MAC or its boot token and have another address: over IPv4 and IPv6, against a rack's
//! own ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use basalt_api::agent::{ClaimReply, Outcome, TaskResult};
use basalt_dhcp::Mac;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{
    AddressRange, BootConcern, Dhcp6Reservation, Dhcp6Subnet, DhcpConcern, DhcpSubnet, Fact, Reservation,
    fact::Body,
};
use basalt_rack::clock::wall_ms;
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;
use basalt_rack::token::BootToken;
use socket2::{Domain, Socket, Type};
use tokio::net::UdpSocket;

use super::loopback::{boot_exchange_of, boot_exchange_through, claim, token_of};
use super::namespace::{ip, is_inside};
use super::support::{Answer, Client, DEADLINE, KEY, MAC, MACHINE, boot_concern, fact, settings, traced};

const THIEF_MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 2]);
const THIEF: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
pub(super) const RACK6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub(super) const RELAY6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const MACHINE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x77);
const THIEF6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x66);

/// The machine and the thief have different addresses.
fn write_dhcp(data_dir: &Path) {
    let both = [(MAC, MACHINE, MACHINE6), (THIEF_MAC, THIEF, THIEF6)];
    let v4 = DhcpSubnet {
        subnet_uid: "s4".into(),
        cidr: "127.0.0.0/24".into(),
        reservations: both
            .map(|(mac, address, _)| Reservation {
                mac: mac.to_string(),
                address: address.to_string(),
                hostname: String::new(),
            })
            .into(),
        ..DhcpSubnet::default()
    };
    let v6 = Dhcp6Subnet {
        subnet_uid: "s6".into(),
        cidr: "2001:db8::/64".into(),
        rapid_commit: true,
        reservations: both
            .map(|(mac, _, address)| Dhcp6Reservation {
                mac: mac.to_string(),
                address: address.to_string(),
                ..Dhcp6Reservation::default()
            })
            .into(),
        ..Dhcp6Subnet::default()
    };
    let concern = DhcpConcern { subnets: vec![v4], subnets6: vec![v6], ..DhcpConcern::default() };
    write_concern(data_dir, &version(Concern::Dhcp, 1, "local", &concern)).unwrap();
}

fn write_boot(data_dir: &Path, generation: u64, concern: &BootConcern) {
    write_concern(data_dir, &version(Concern::Boot, generation, "local", concern)).unwrap();
}

/// A SOLICIT of an iPXE client, as a relay forwards it.
pub(super) fn solicit(mac: Mac, relay: Ipv6Addr) -> Vec<u8> {
    let option = |code: u16, value: &[u8]| {
        [&code.to_be_bytes()[..], &u16::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
    };
    let hardware = [&[0, 1][..], &mac.0].concat();
    let solicit = [
        vec![1, 0, 0, 7],
        option(1, &[&[0, 3][..], &hardware].concat()),
        option(3, &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        option(14, &[]),
        option(15, b"\0\x04iPXE"),
        option(6, &[0, 59]),
    ];
    let header = [&[12, 0][..], &relay.octets(), &"fe80::1".parse::<Ipv6Addr>().unwrap().octets()].concat();
    [header, option(79, &hardware), option(9, &solicit.concat())].concat()
}

/// Sends a SOLICIT through a relay. The REPLY, sent at once, must lease this address.
async fn boot_exchange6(mac: Mac, address: Ipv6Addr) {
    let forwarded = solicit(mac, RELAY6);

    let relay = Socket::new(Domain::IPV6, Type::DGRAM, None).unwrap();
    relay.set_freebind_v6(true).unwrap();
    relay.set_nonblocking(true).unwrap();
    relay.bind(&SocketAddr::from((RELAY6, 547)).into()).unwrap();
    let relay = UdpSocket::from_std(relay.into()).unwrap();
    let mut buffer = [0; 1500];
    let exchange = async {
        loop {
            relay.send_to(&forwarded, (RACK6, 547)).await.ok();
            let answer = tokio::time::timeout(Duration::from_millis(300), relay.recv_from(&mut buffer)).await;
            if let Ok(Ok((length, _))) = answer {
                return buffer[..length].to_vec();
            }
        }
    };
    let reply = tokio::time::timeout(DEADLINE, exchange).await.expect("no DHCPv6 answer");
    let holds = |bytes: &[u8]| reply.windows(bytes.len()).any(|window| window == bytes);
    // The IAADDR option (5), 24 bytes long, begins with the address.
    assert!(holds(&[&[0, 5, 0, 24][..], &address.octets()].concat()), "{address} is not leased: {reply:?}");
}

fn alarm(code: &str) -> impl Fn(&Fact) -> bool {
    move |fact| matches!(&fact.body, Some(Body::Alarm(alarm)) if alarm.code == code)
}

async fn words_of(rack: &Daemon, wanted: impl Fn(&Fact) -> bool) -> (u64, String) {
    let told = fact(&rack.facts, wanted).await;
    let Some(Body::Alarm(alarm)) = told.body else { unreachable!("it was asked for") };
    (told.attempt, alarm.message)
}

async fn task(agent: &Client, session: &str) -> Answer {
    let request = http::Request::get("/agent/v1/task").header("authorization", format!("Bearer {session}"));
    agent.send(request.body(Default::default()).unwrap()).await
}

/// The addresses of all parties.
struct Parties {
    rack: SocketAddr,
    machine: IpAddr,
    thief: IpAddr,
}

/// A thief with his own address, who reads all unencrypted traffic.
async fn steal(settings: &Settings, at: Parties) {
    let daemon = Daemon::start(settings.clone()).await.unwrap();
    let plain = Client { from: at.machine, rack: at.rack, spki: None };
    let machine = Client { spki: Some(daemon.spki_sha256.clone()), ..plain.clone() };
    let thief = Client { from: at.thief, ..machine.clone() };
    let script = format!("/ipxe?mac={MAC}");
    let boots = async |mac, address| match address {
        IpAddr::V4(address) => boot_exchange_of(settings, mac, address).await,
        IpAddr::V6(address) => boot_exchange6(mac, address).await,
    };

    // He boots his own machine, and asks for the other machine's script before and after it boots.
    boots(THIEF_MAC, at.thief).await;
    let asks = Client { from: at.thief, ..plain.clone() };
    assert_eq!(asks.get(&script).await.status, 403);
    boots(MAC, at.machine).await;
    assert_eq!(asks.get(&script).await.status, 403);
    let refused = |fact: &Fact| matches!(&fact.body, Some(Body::BootRequest(it)) if it.answer.contains("not come from the address leased"));
    assert_eq!(fact(&daemon.facts, refused).await.mac, MAC.to_string());
    assert!(
        asks.get(&format!("/ipxe?mac={THIEF_MAC}")).await.text().contains("is unknown and boots its disk")
    );
    let told = plain.get(&script).await;
    let token = token_of(told.text());

    // He has read the token on the wire, and uses it first.
    let stolen = thief.post("/agent/v1/claim", None, claim(&token, "thief")).await;
    assert_eq!((stolen.status, stolen.code().as_str()), (403, "wrong_address"));
    let (attempt, words) = words_of(&daemon, alarm("wrong_address")).await;
    assert!(attempt == 17 && words.contains(&at.thief.to_string()), "{words}");
    let claimed = machine.post("/agent/v1/claim", None, claim(&token, "machine")).await;
    assert_eq!(claimed.status, 200, "{}", claimed.text());
    let session = serde_json::from_slice::<ClaimReply>(&claimed.body).unwrap().session;
    assert_eq!(task(&machine, &session).await.status, 200);

    // Afterwards he repeats exactly the machine's request: from now on the attempt is fenced for all.
    let replayed = thief.post("/agent/v1/claim", None, claim(&token, "machine")).await;
    assert_eq!((replayed.status, replayed.code().as_str()), (409, "fenced"));
    let (attempt, words) = words_of(&daemon, alarm("claimed_twice")).await;
    assert!(attempt == 17 && words.contains(&at.thief.to_string()), "{words}");
    daemon.stop().await;

    let daemon = Daemon::start(settings.clone()).await.unwrap();
    assert_eq!(task(&machine, &session).await.code(), "fenced", "also after a restart");
    for client in [&machine, &thief] {
        assert_eq!(client.post("/agent/v1/claim", None, claim(&token, "machine")).await.code(), "fenced");
    }
    boots(MAC, at.machine).await;
    assert!(
        plain.get(&script).await.text().contains("had its task begun from two places and boots its disk")
    );
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_from_two_places_ends_the_attempt_and_a_token_is_of_one_address() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_dhcp(&settings.data_dir);
    write_boot(&settings.data_dir, 1, &boot_concern(17));
    let at = Parties {
        rack: ([127, 0, 0, 1], settings.http_port).into(),
        machine: MACHINE.into(),
        thief: THIEF.into(),
    };
    steal(&settings, at).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_ipv6_too() {
    if !is_inside("attacks::over_ipv6_too") {
        return;
    }
    ip("link set lo up");
    ip(&format!("-6 address add {RACK6}/128 dev lo nodad"));
    // All other addresses are routed here too, and the rack does not count them as its own.
    ip("-6 route add local 2001:db8::/64 dev lo");
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_dhcp(&settings.data_dir);
    write_boot(&settings.data_dir, 1, &boot_concern(17));
    let at =
        Parties { rack: (RACK6, settings.http_port).into(), machine: MACHINE6.into(), thief: THIEF6.into() };
    steal(&settings, at).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_good_for_nothing_once_its_attempt_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_dhcp(&settings.data_dir);
    write_boot(&settings.data_dir, 1, &boot_concern(17));
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let plain =
        Client { from: MACHINE.into(), rack: ([127, 0, 0, 1], settings.http_port).into(), spki: None };
    let agent = Client { spki: Some(rack.spki_sha256.clone()), ..plain.clone() };
    let script = format!("/ipxe?mac={MAC}");
    boot_exchange_of(&settings, MAC, MACHINE).await;
    let token = token_of(plain.get(&script).await.text());
    let claims = async |token: &str, boot_id| {
        let answer = agent.post("/agent/v1/claim", None, claim(token, boot_id)).await;
        if answer.status == 200 { (200, String::new()) } else { (answer.status, answer.code()) }
    };

    // Tokens that are invented, made with another key, or too late.
    let minted = BootToken::verify(&token, &KEY).unwrap();
    assert_eq!(claims(&minted.mint(&[1; 32]), "a").await, (401, "bad_token".to_owned()));
    let late = BootToken { expires_unix_ms: u64::try_from(wall_ms()).unwrap() - 1, ..minted };
    assert_eq!(claims(&late.mint(&KEY), "a").await, (410, "expired".to_owned()));
    let other = BootToken { mac: THIEF_MAC, ..minted };
    assert_eq!(claims(&other.mint(&KEY), "a").await, (401, "bad_token".to_owned()));

    // The attempt has finished.
    let claimed = agent.post("/agent/v1/claim", None, claim(&token, "a")).await;
    let session = serde_json::from_slice::<ClaimReply>(&claimed.body).unwrap().session;
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
    assert_eq!(agent.post("/agent/v1/result", Some(&session), result).await.status, 204);
    for boot_id in ["a", "b"] {
        assert_eq!(claims(&token, boot_id).await, (410, "finished".to_owned()));
    }

    // Another attempt is armed: the earlier token does not belong to it, with either key.
    write_boot(&settings.data_dir, 2, &boot_concern(18));
    let armed = async {
        while !plain.get(&script).await.text().contains("basalt.token=") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, armed).await.expect("the rack reads its concern");
    assert_eq!(claims(&token, "a").await, (410, "no_attempt".to_owned()));
    let renamed = BootToken { attempt: 18, ..minted }.mint(&[1; 32]);
    assert_eq!(claims(&renamed, "a").await, (401, "bad_token".to_owned()));

    // The deadline of the attempt has passed.
    let mut past = boot_concern(19);
    if let Some(Action::Ephemeral(boot)) = &mut past.machines[0].action {
        boot.not_after_unix_ms = wall_ms() - 1;
    }
    write_boot(&settings.data_dir, 3, &past);
    let over = async {
        while !plain.get(&script).await.text().contains("came too late for its task and boots its disk") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, over).await.expect("the rack reads its concern");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_s_mac_gets_no_token_on_another_vlan_than_its_own() {
    const RELAY: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 5);
    const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 66);
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let subnet =
        |cidr: &str| DhcpSubnet { subnet_uid: cidr.into(), cidr: cidr.into(), ..DhcpSubnet::default() };
    let (mac, address) = (MAC.to_string(), MACHINE.to_string());
    let own = Reservation { mac, address, hostname: String::new() };
    let pool = AddressRange { start: ELSEWHERE.to_string(), end: ELSEWHERE.to_string() };
    let subnets = vec![
        DhcpSubnet { reservations: vec![own], link: "lab.1".into(), ..subnet("127.0.0.0/24") },
        DhcpSubnet { dynamic: vec![pool], link: "lab.2".into(), ..subnet("127.0.1.0/24") },
    ];
    let dhcp = DhcpConcern { subnets, serve_unknown: true, ..DhcpConcern::default() };
    write_concern(&settings.data_dir, &version(Concern::Dhcp, 1, "local", &dhcp)).unwrap();
    let mut concern = boot_concern(17);
    concern.machines[0].networks = vec!["127.0.0.0/24".into()];
    write_boot(&settings.data_dir, 1, &concern);
    let daemon = Daemon::start(settings.clone()).await.unwrap();
    let rack = ([127, 0, 0, 1], settings.http_port).into();
    let machine = Client { from: MACHINE.into(), rack, spki: None };
    let thief = Client { from: ELSEWHERE.into(), ..machine.clone() };
    let script = format!("/ipxe?mac={MAC}");

    // He has the MAC, and an address that the rack leased to it in a boot exchange through the relay of his VLAN.
    boot_exchange_through(&settings, RELAY, MAC, ELSEWHERE).await;
    let refused = thief.get(&script).await;
    assert_eq!(
        (refused.status, refused.text().contains("basalt.token=")),
        (403, false),
        "{}",
        refused.text()
    );
    assert!(refused.text().contains("does not stand in the network of this address"), "{}", refused.text());
    let entries = traced(&daemon.facts, &MAC.to_string(), "script").await;
    let entry = entries.iter().find(|entry| entry.asked.contains("script")).unwrap();
    assert_eq!(
        (entry.reason.as_str(), entry.address.as_str()),
        ("wrong_network", ELSEWHERE.to_string().as_str())
    );

    boot_exchange_of(&settings, MAC, MACHINE).await;
    assert!(!token_of(machine.get(&script).await.text()).is_empty(), "the machine itself is not in his way");
    boot_exchange_through(&settings, RELAY, MAC, ELSEWHERE).await;
    assert_eq!(thief.get(&script).await.status, 403, "nor is he in its");

    // The network of a machine that never booted is unknown.
    write_boot(&settings.data_dir, 2, &boot_concern(18));
    let boots = async {
        while thief.get(&script).await.status == 403 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, boots).await.expect("the rack reads its concern");
    daemon.stop().await;
}
