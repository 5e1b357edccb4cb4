//! Router Advertisements that announce no router (RFC 4861 §4.2, §6.2).
//!
//! iPXE configures IPv4 and IPv6 at once, and starts nothing before both are done. On a link without a router its
//! Router Solicitations get no answer, and it gives up after 15.75 seconds: 0.25 + 0.5 + … + 8. An advertisement that
//! announces no router ends that wait. Router lifetime 0 means "not a default router" (§4.2). Without a prefix, and
//! with the M and O flags clear, no host configures anything from it. docs/decisions/013-router-advertisement.md has
//! measurements and the risks considered.
//!
//! [`Advertiser`] decides, with the time as an argument:
//!
//! | seen on the link | action |
//! | --- | --- |
//! | a solicitation | advertises 0.5 s later, once for all that ask until then, and never twice within 3 s (§6.2.6) |
//! | an advertisement with a lifetime | is silent for that lifetime, also about pending solicitations |
//! | the same router with lifetime 0 | forgets that router |
//!
//! Routers answer within 0.5 s, so a real router always answers first. [`run`] adds the socket. It is also silent on an
//! interface that forwards IPv6: a router daemon of this host may advertise from the same address, and a lifetime of 0
//! from that address would withdraw the daemon's advertisement.

use std::fs;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use crate::interfaces::Link;

/// ICMPv6 type of a Router Solicitation (RFC 4861 §4.1).
const SOLICITATION: u8 = 133;
/// ICMPv6 type of a Router Advertisement (RFC 4861 §4.2).
const ADVERTISEMENT: u8 = 134;
/// Bytes of an advertisement before its options.
const ADVERTISEMENT_BYTES: usize = 16;
/// Bytes of a solicitation before its options.
const SOLICITATION_BYTES: usize = 8;
/// A host without an address may not send this option (RFC 4861 §4.6.1).
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// The hop limit that proves that no router forwarded a message (RFC 4861 §3.1).
const HOPS: u8 = 255;

/// How long a real router may take to answer: `MAX_RA_DELAY_TIME` (RFC 4861 §10).
pub const ANSWER_DELAY: Duration = Duration::from_millis(500);
/// The least time between two advertisements: `MIN_DELAY_BETWEEN_RAS` (RFC 4861 §10).
pub const ADVERTISEMENT_INTERVAL: Duration = Duration::from_secs(3);

/// The wait before the socket is tried again while the kernel still probes the link-local address (RFC 4862 §5.4).
const PROBING: Duration = Duration::from_millis(500);
/// The wait before the socket is tried again after it failed.
const RESTART: Duration = Duration::from_secs(5);

/// The advertisement: hop limit, reachable and retransmission time unspecified, no flag, router lifetime 0, no option.
/// The kernel writes the checksum.
pub const NO_ROUTER: [u8; ADVERTISEMENT_BYTES] = [ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A message received on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// A host asks for routers.
    Solicitation,
    /// A router says how long it may be a default router; zero: it is none.
    Advertisement {
        /// The router lifetime of the message.
        lifetime: Duration,
    },
}

/// Decodes an ICMPv6 message without its IPv6 header. The caller has checked the checksum and the hop limit. `None`:
/// another kind of message, or one that must be discarded by RFC 4861 §6.1.
#[must_use]
pub fn decode(source: Ipv6Addr, bytes: &[u8]) -> Option<Message> {
    let [kind, code, ..] = *bytes else { return None };
    if code != 0 {
        return None;
    }
    match kind {
        SOLICITATION => {
            let options = option_kinds(bytes.get(SOLICITATION_BYTES..)?)?;
            let valid = !source.is_unspecified() || !options.contains(&SOURCE_LINK_LAYER_ADDRESS);
            valid.then_some(Message::Solicitation)
        }
        ADVERTISEMENT => {
            option_kinds(bytes.get(ADVERTISEMENT_BYTES..)?)?;
            let lifetime = bytes.get(6..)?.first_chunk().map(|seconds| u16::from_be_bytes(*seconds))?;
            let valid = source.is_unicast_link_local();
            valid.then_some(Message::Advertisement { lifetime: Duration::from_secs(lifetime.into()) })
        }
        _ => None,
    }
}

/// The kinds of the options. `None` if the length of one, in units of 8 bytes, is 0 or too large.
fn option_kinds(mut options: &[u8]) -> Option<Vec<u8>> {
    let mut kinds = Vec::new();
    while let [kind, units, ..] = *options {
        if units == 0 {
            return None;
        }
        kinds.push(kind);
        options = options.get(usize::from(units) * 8..)?;
    }
    options.is_empty().then_some(kinds)
}

/// Decides when to advertise on one link.
#[derive(Debug, Default)]
pub struct Advertiser {
    router: Option<(Ipv6Addr, Instant)>,
    due: Option<Instant>,
    last: Option<Instant>,
}

impl Advertiser {
    /// Takes a message received on the link.
    pub fn handle(&mut self, now: Instant, source: Ipv6Addr, message: Message) {
        match message {
            Message::Solicitation => {
                if self.router(now).is_none() && self.due.is_none() {
                    let due = now + ANSWER_DELAY;
                    self.due = Some(self.last.map_or(due, |last| due.max(last + ADVERTISEMENT_INTERVAL)));
                }
            }
            Message::Advertisement { lifetime } if lifetime.is_zero() => {
                self.router = self.router.filter(|(router, _)| *router != source);
            }
            Message::Advertisement { lifetime } => {
                let until = now + lifetime;
                self.router = self
                    .router
                    .filter(|(router, other)| *router != source && *other > until)
                    .or(Some((source, until)));
                self.due = None;
            }
        }
    }

    /// The default router of this link, if there is one.
    #[must_use]
    pub fn router(&self, now: Instant) -> Option<Ipv6Addr> {
        self.router.filter(|(_, until)| *until > now).map(|(router, _)| router)
    }

    /// When to advertise next, if at all.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// True if an advertisement is due now. It then counts as sent.
    pub fn take_due(&mut self, now: Instant) -> bool {
        let due = self.due.take_if(|due| *due <= now).is_some();
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// The reason why an interface cannot get a link-local address, and so cannot advertise; `None`: it may still get one.
#[must_use]
pub fn impossible(interface: &str) -> Option<&'static str> {
    match setting(interface, "disable_ipv6").as_deref() {
        None => Some("there is no IPv6 here"),
        Some("0") => None,
        Some(_) => Some("IPv6 is switched off there (disable_ipv6)"),
    }
}

fn forwards(interface: &str) -> bool {
    setting(interface, "forwarding").is_some_and(|value| value != "0")
}

fn setting(interface: &str, name: &str) -> Option<String> {
    let value = fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{interface}/{name}")).ok()?;
    Some(value.trim().to_owned())
}

/// Answers solicitations on a link until cancelled. After a failure it tries again.
pub async fn run(link: Link, stop: CancellationToken) {
    let mut warned = false;
    while let Err(error) = serve(&link, &stop).await {
        let probing = error.kind() == io::ErrorKind::AddrNotAvailable;
        if !probing && !std::mem::replace(&mut warned, true) {
            let interface = &link.interface;
            tracing::warn!(interface, %error, "router solicitations are not answered: iPXE takes 16 seconds longer");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(if probing { PROBING } else { RESTART }) => {}
        }
    }
}

async fn serve(link: &Link, stop: &CancellationToken) -> io::Result<()> {
    let socket = open(link)?;
    let interface = &link.interface;
    tracing::info!(interface, source = %link.address, "router solicitations are answered, with no router");
    let all_nodes = SocketAddr::V6(SocketAddrV6::new(ALL_NODES, 0, 0, link.index));
    let mut advertiser = Advertiser::default();
    let mut forwarding = false;
    let mut buffer = [0; 1500];
    loop {
        let due = advertiser.due();
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            received = socket.recv_from(&mut buffer) => {
                let (length, from) = received?;
                let SocketAddr::V6(from) = from else { continue };
                let Some(message) = buffer.get(..length).and_then(|bytes| decode(*from.ip(), bytes)) else { continue };
                let now = Instant::now();
                let before = advertiser.router(now);
                advertiser.handle(now, *from.ip(), message);
                if let (None, Some(router)) = (before, advertiser.router(now)) {
                    tracing::info!(interface, %router, "the link has a router: solicitations are left to it");
                }
            }
            () = reached(due) => {
                if !advertiser.take_due(Instant::now()) {
                    continue;
                }
                if forwards(interface) {
                    if !std::mem::replace(&mut forwarding, true) {
                        tracing::info!(interface, "this host forwards IPv6 there: solicitations are left to its router daemon");
                    }
                    continue;
                }
                socket.send_to(&NO_ROUTER, all_nodes).await?;
                tracing::debug!(interface, "router solicitation answered: no router");
            }
        }
    }
}

async fn reached(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// A socket that receives solicitations and advertisements on a link, and sends from the link-local address. The kernel
/// checks and writes checksums. tokio has no type for raw sockets; `UdpSocket` makes the same calls.
///
/// # Errors
/// `io::Error` with the interface; `AddrNotAvailable` while the kernel still probes the address.
pub fn open(link: &Link) -> io::Result<UdpSocket> {
    let named = |what: &str, error: io::Error| {
        io::Error::new(error.kind(), format!("cannot {what} on interface {}: {error}", link.interface))
    };
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))
        .map_err(|error| named("open a raw ICMPv6 socket (it needs CAP_NET_RAW)", error))?;
    socket.attach_filter(&filter())?;
    socket.set_nonblocking(true)?;
    socket
        .bind_device(Some(link.interface.as_bytes()))
        .map_err(|error| named("open a raw ICMPv6 socket", error))?;
    // RFC 4861 §4.2: the source must be the link-local address.
    let source = SocketAddrV6::new(link.address, 0, 0, link.index);
    socket.bind(&source.into()).map_err(|error| named(&format!("use address {}", link.address), error))?;
    for group in [ALL_NODES, ALL_ROUTERS] {
        socket
            .join_multicast_v6(&group, link.index)
            .map_err(|error| named(&format!("join {group}"), error))?;
    }
    socket.set_multicast_if_v6(link.index)?;
    socket.set_multicast_hops_v6(HOPS.into())?;
    socket.set_multicast_loop_v6(false)?;
    UdpSocket::from_std(socket.into())
}

/// A BPF program that accepts solicitations and advertisements with hop limit 255, so not forwarded by a router. The
/// hop limit is not part of the received message, so it is checked here.
fn filter() -> [SockFilter; 7] {
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    // linux/filter.h: offsets from here on count from the network header; 7 is the hop limit's (RFC 8200 §3).
    const SKF_NET_OFF: u32 = 0xfff0_0000;
    [
        SockFilter::new(LOAD_BYTE, 0, 0, SKF_NET_OFF + 7),
        SockFilter::new(JUMP_IF_EQUAL, 0, 4, HOPS as u32),
        SockFilter::new(LOAD_BYTE, 0, 0, 0),
        SockFilter::new(JUMP_IF_EQUAL, 1, 0, SOLICITATION as u32),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, ADVERTISEMENT as u32),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const SECOND: Duration = Duration::from_secs(1);

    fn lifetime(seconds: u64) -> Message {
        Message::Advertisement { lifetime: Duration::from_secs(seconds) }
    }

    fn asked(at: Instant) -> Advertiser {
        let mut advertiser = Advertiser::default();
        advertiser.handle(at, HOST, Message::Solicitation);
        advertiser
    }

    #[test]
    fn what_it_sends_is_an_advertisement_that_announces_nothing() {
        assert_eq!(decode(ROUTER, &NO_ROUTER), Some(lifetime(0)));
        let [kind, fields @ ..] = NO_ROUTER;
        assert_eq!((kind, fields), (134, [0; 15]), "any byte but the type would announce something");
    }

    #[test]
    fn reads_what_ipxe_asks_and_what_routers_say() {
        let with_source_address = [133, 0, 1, 2, 0, 0, 0, 0, 1, 1, 0x52, 0x54, 0, 0, 0, 1];
        assert_eq!(decode(HOST, &with_source_address), Some(Message::Solicitation));
        assert_eq!(decode(Ipv6Addr::UNSPECIFIED, &with_source_address[..8]), Some(Message::Solicitation));
        let mut advertisement = NO_ROUTER.to_vec();
        advertisement[6..8].copy_from_slice(&1800u16.to_be_bytes());
        advertisement.extend([5, 1, 0, 0, 0, 0, 5, 220]);
        assert_eq!(decode(ROUTER, &advertisement), Some(lifetime(1800)));
    }

    #[test]
    fn discards_what_the_rfc_tells_to_discard() {
        let global = "2001:db8::1".parse().unwrap();
        let cases: [(&str, Ipv6Addr, &[u8]); 8] = [
            ("nothing", HOST, &[]),
            ("a code", HOST, &[133, 1, 0, 0, 0, 0, 0, 0]),
            ("a solicitation that ends early", HOST, &[133, 0, 0, 0, 0, 0, 0]),
            ("an option of no length", HOST, &[133, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
            ("an option that ends early", HOST, &[133, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0]),
            (
                "a link-layer address of nobody",
                Ipv6Addr::UNSPECIFIED,
                &[133, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0],
            ),
            ("an advertisement from afar", global, &NO_ROUTER),
            ("an advertisement that ends early", ROUTER, &NO_ROUTER[..15]),
        ];
        for (what, source, bytes) in cases {
            assert_eq!(decode(source, bytes), None, "{what}");
        }
    }

    #[test]
    fn answers_once_for_everybody_who_asks_within_half_a_second() {
        let start = Instant::now();
        let mut advertiser = asked(start);
        assert!(!advertiser.take_due(start + ANSWER_DELAY - Duration::from_millis(1)));
        advertiser.handle(start + ANSWER_DELAY / 2, HOST, Message::Solicitation);
        assert!(advertiser.take_due(start + ANSWER_DELAY));
        assert_eq!(advertiser.due(), None);
    }

    #[test]
    fn never_advertises_twice_within_three_seconds() {
        let start = Instant::now();
        let mut advertiser = asked(start);
        let first = start + ANSWER_DELAY;
        assert!(advertiser.take_due(first));
        advertiser.handle(first + SECOND, HOST, Message::Solicitation);
        assert_eq!(advertiser.due(), Some(first + ADVERTISEMENT_INTERVAL));
        let later = first + 10 * SECOND;
        assert!(advertiser.take_due(later));
        advertiser.handle(later + 10 * SECOND, HOST, Message::Solicitation);
        assert_eq!(advertiser.due(), Some(later + 10 * SECOND + ANSWER_DELAY));
    }

    #[test]
    fn leaves_the_link_to_a_router_for_as_long_as_it_says() {
        let start = Instant::now();
        let mut advertiser = asked(start);
        advertiser.handle(start + ANSWER_DELAY / 2, ROUTER, lifetime(1800));
        assert_eq!(advertiser.due(), None, "the router was first");
        let last = start + 1799 * SECOND;
        advertiser.handle(last, HOST, Message::Solicitation);
        assert_eq!((advertiser.router(last), advertiser.due()), (Some(ROUTER), None));
        advertiser.handle(last + 2 * SECOND, HOST, Message::Solicitation);
        assert!(advertiser.due().is_some());
    }

    #[test]
    fn a_router_that_resigns_is_forgotten_and_another_rack_is_no_router() {
        let start = Instant::now();
        let mut advertiser = asked(start);
        advertiser.handle(start, ROUTER, lifetime(0));
        assert!(advertiser.due().is_some(), "another rack's advertisement ends nothing");
        advertiser.handle(start, ROUTER, lifetime(1800));
        advertiser.handle(start, HOST, lifetime(0));
        assert_eq!(advertiser.router(start), Some(ROUTER));
        advertiser.handle(start, ROUTER, lifetime(0));
        assert_eq!(advertiser.router(start), None);
    }

    #[test]
    fn of_two_routers_the_one_that_stays_longer_counts_and_a_router_may_shorten_its_own_stay() {
        let start = Instant::now();
        let mut advertiser = Advertiser::default();
        advertiser.handle(start, HOST, lifetime(60));
        advertiser.handle(start, ROUTER, lifetime(1800));
        advertiser.handle(start, HOST, lifetime(60));
        assert_eq!(advertiser.router(start + 61 * SECOND), Some(ROUTER));
        advertiser.handle(start, ROUTER, lifetime(30));
        assert_eq!(advertiser.router(start + 31 * SECOND), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(kind in 132u8..136, mut bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let [first, code, ..] = bytes.as_mut_slice() {
                (*first, *code) = (kind, 0);
            }
            let _ = decode(HOST, &bytes);
        }
    }
}
