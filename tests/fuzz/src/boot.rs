//! TFTP, IPMI, and router discovery on a link.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use basalt_bmc::client::ClientCore;
use basalt_bmc::random::Random;
use basalt_bmc::server::{ChassisAnswer, Reaction, ServerCore};
use basalt_bmc::{
    CipherSuite, Credentials, Failure, Password, PowerState, Privilege, ServerConfig, Username,
};
use basalt_rack::router_advertisement::{ADVERTISEMENT_INTERVAL, Advertiser, NO_ROUTER, decode};
use basalt_tftp::client::{ClientAction, ClientRequest};
use basalt_tftp::packet::Packet;
use basalt_tftp::request::{Decision, decide};
use basalt_tftp::transfer::Action;
use basalt_tftp::{Caps, Client, Negotiated, Transfer};
use bytes::Bytes;

use crate::sequence::{messages, sequence};

const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 69);
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1069);
const CONTENT: usize = 5000;
const CAPS: Caps = Caps { blksize: 1468, windowsize: 16, timeout: 10 };

/// A request, and datagrams to the transfer that it starts.
pub fn tftp(data: &[u8]) {
    let mut messages = messages(data);
    let Some((_, request)) = messages.next() else { return };
    if let Ok(packet) = Packet::parse(request) {
        let bytes = packet.encode();
        assert_eq!(Packet::parse(&bytes).as_ref(), Ok(&packet), "what is read is written as it was read");
    }
    let Decision::Read(request) = decide(request) else { return };
    assert!(!request.path.split('/').any(|part| matches!(part, "" | "." | "..")), "{:?}", request.path);
    let Some(content) = request.mode.encode(Bytes::from(vec![b'\n'; CONTENT])) else { return };
    let size = content.len();
    let mut now = Instant::now();
    let (mut transfer, mut actions) =
        Transfer::start(now, content, Negotiated::new(&request.options, CAPS, size));
    for (besides, datagram) in messages {
        assert!(actions.len() <= usize::from(CAPS.windowsize), "{} datagrams at once", actions.len());
        for action in actions {
            match action {
                Action::Send(bytes) => assert!(bytes.len() <= usize::from(CAPS.blksize) + 4),
                Action::Done(_) => return,
            }
        }
        now += Duration::from_millis(u64::from(besides) * 20);
        actions = transfer.on_packet(now, datagram);
        actions.extend(transfer.on_timer(now).into_iter().filter(|_| besides & 1 != 0));
        assert!(transfer.acknowledged_bytes() <= size as u64);
    }
}

pub(crate) fn seeds_tftp() -> Vec<Vec<u8>> {
    let plain = b"\0\x01undionly.kpxe\0octet\0".to_vec();
    let options =
        b"\0\x01/a//b\0netascii\0blksize\x00512\0tsize\x000\0windowsize\x004\0timeout\x003\0".to_vec();
    let ack = |block: u8| vec![0, 4, 0, block];
    let error = b"\0\x05\0\x08no\0".to_vec();
    vec![
        sequence([&options[..], &ack(0), &ack(4), &ack(2), &ack(4)]),
        sequence([&plain[..], &ack(1), &ack(2), &ack(10)]),
        sequence([&options[..], &error]),
    ]
}

/// Datagrams to a TFTP client.
pub fn tftp_client(data: &[u8]) {
    let mut now = Instant::now();
    let request = ClientRequest {
        blksize: Some(512),
        windowsize: Some(4),
        tsize: true,
        max_bytes: CONTENT,
        ..ClientRequest::new(SERVER, "file")
    };
    let (mut client, _) = Client::start(request, now);
    for (besides, datagram) in messages(data) {
        now += Duration::from_millis(u64::from(besides) * 20);
        let mut actions = client.on_packet(now, PEER, datagram);
        actions.extend(client.on_timer(now));
        for action in actions {
            match action {
                ClientAction::Send { bytes, .. } => drop(Packet::parse(&bytes).expect("it is TFTP")),
                ClientAction::Done(Ok(fetched)) => assert!(fetched.content.len() <= CONTENT),
                ClientAction::Done(Err(_)) => return,
            }
        }
    }
}

pub(crate) fn seeds_tftp_client() -> Vec<Vec<u8>> {
    let oack = b"\0\x06blksize\x00512\0windowsize\x004\0tsize\x00600\0".to_vec();
    let data = |block: u8, length: usize| [&[0, 3, 0, block][..], &vec![7; length]].concat();
    vec![
        sequence([&oack[..], &data(1, 512), &data(2, 88)]),
        sequence([&data(1, 512)[..], &data(3, 512), &data(2, 10)]),
        sequence([&b"\0\x05\0\x01gone\0"[..]]),
    ]
}

/// A random source that returns the same bytes each time.
struct Counted(u8);

impl Random for Counted {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Failure> {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
        Ok(())
    }
}

fn bmc_core() -> ServerCore {
    let name = Username::new("admin").expect("a name");
    ServerCore::new(ServerConfig::new(name, Password::new("secret").expect("a password"), [7; 16]))
}

fn bmc_console(random: &mut Counted) -> ClientCore {
    let credentials = Credentials::new("admin", "secret").expect("credentials");
    ClientCore::new(credentials, CipherSuite::suite_17(), Privilege::Operator, random).expect("a session")
}

/// Datagrams from several peers to a BMC.
pub fn bmc(data: &[u8]) {
    let (mut core, mut random, mut now) = (bmc_core(), Counted(0), Instant::now());
    for (besides, datagram) in messages(data) {
        now += Duration::from_millis(u64::from(besides) * 100);
        let peer = SocketAddr::new(PEER.ip(), 1000 + u16::from(besides & 3));
        match core.receive(peer, datagram, now, &mut random).expect("no cryptography fails") {
            Reaction::Reply(bytes) => assert!(bytes.len() <= 1024),
            Reaction::Chassis(ticket, _) => {
                let answer = ChassisAnswer::Power(PowerState::On);
                core.complete(&ticket, answer, &mut random).expect("no cryptography fails");
            }
            Reaction::None => {}
        }
        assert!(core.sessions() <= 16, "{} sessions", core.sessions());
    }
}

/// The messages of a console and a BMC until the session is ready: first the console's, then the BMC's.
fn handshake() -> [Vec<Vec<u8>>; 2] {
    let (mut core, mut random, now) = (bmc_core(), Counted(0), Instant::now());
    let mut console = bmc_console(&mut random);
    let (mut of_console, mut of_bmc, mut next) = (Vec::new(), Vec::new(), Some(console.start()));
    while let Some(bytes) = next.take() {
        of_console.push(bytes.clone());
        if let Ok(Reaction::Reply(answer)) = core.receive(PEER, &bytes, now, &mut random) {
            of_bmc.push(answer.clone());
            if let Ok(basalt_bmc::client::Event::Send(bytes)) = console.receive(&answer, &mut random) {
                next = Some(bytes);
            }
        }
    }
    [of_console, of_bmc]
}

pub(crate) fn seeds_bmc() -> Vec<Vec<u8>> {
    let [of_console, _] = handshake();
    vec![sequence(of_console.iter().map(Vec::as_slice))]
}

/// Datagrams to a console.
pub fn bmc_client(data: &[u8]) {
    let mut random = Counted(0);
    let mut console = bmc_console(&mut random);
    let _ = console.start();
    for (_, datagram) in messages(data) {
        if console.receive(datagram, &mut random).is_err() {
            return;
        }
    }
}

pub(crate) fn seeds_bmc_client() -> Vec<Vec<u8>> {
    let [_, of_bmc] = handshake();
    vec![sequence(of_bmc.iter().map(Vec::as_slice))]
}

/// Messages on a link, received by a rack that advertises itself there as no router.
pub fn router(data: &[u8]) {
    let (mut now, mut last) = (Instant::now(), None);
    let mut advertiser = Advertiser::default();
    for (besides, bytes) in messages(data) {
        now += Duration::from_millis(200 + u64::from(besides) * 50);
        let source = match besides % 3 {
            1 => Ipv6Addr::UNSPECIFIED,
            host => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, u16::from(host)),
        };
        if let Some(message) = decode(source, bytes) {
            advertiser.handle(now, source, message);
        }
        if advertiser.take_due(now) {
            assert_eq!(advertiser.router(now), None, "a real one speaks for itself");
            assert!(last.is_none_or(|last| now - last >= ADVERTISEMENT_INTERVAL), "RFC 4861 §6.2.6");
            last = Some(now);
        }
    }
}

pub(crate) fn seeds_router() -> Vec<Vec<u8>> {
    let mut lives = NO_ROUTER;
    lives[7] = 9;
    let asks = [133, 0, 0, 0, 0, 0, 0, 0, 1, 1, 82, 84, 0, 0, 0, 1];
    let asks = &asks[..];
    vec![
        sequence([asks, asks, asks, asks, asks, asks]),
        sequence([asks, &lives[..], asks, asks, &NO_ROUTER[..], asks, asks, asks]),
    ]
}
