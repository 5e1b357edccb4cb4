//! The rack's TFTP with a hall of machines at once. Other projects' clients are in `netem.rs`, on a bad link, and in
//! `vlans.rs`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use basalt_rack::daemon::Daemon;
use basalt_tftp::packet::Packet;
use tokio::net::UdpSocket;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::namespace::{ip, is_inside};
use super::support::settings;

pub(super) const LOADER: &str = "undionly.kpxe";
/// Twenty blocks of the default size, 512 bytes.
pub(super) const SIZE: usize = 10_000;
/// Other projects' clients wait five seconds after a lost answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The content of a loader. No block of it repeats.
pub(super) fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

const CROWD: usize = 2_000;
const BLKSIZE: usize = 1468;

/// Fetches the loader and compares its content. All clients wait for each other in the middle of their transfers.
async fn one_of_the_crowd(at: SocketAddr, server: SocketAddr, content: &[u8], all_began: &Barrier) {
    let socket = UdpSocket::bind(at).await.unwrap();
    let options = [("blksize", BLKSIZE.to_string()), ("windowsize", "64".to_owned())];
    let options = options.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let ask = Packet::Request { write: false, file: LOADER, mode: "octet", options }.encode();
    let mut buffer = [0; BLKSIZE + 4];
    let transfer = loop {
        socket.send_to(&ask, server).await.unwrap();
        let Ok(heard) = timeout(Duration::from_secs(1), socket.recv_from(&mut buffer)).await else {
            continue;
        };
        let (length, from) = heard.unwrap();
        assert!(
            matches!(Packet::parse(&buffer[..length]), Ok(Packet::Oack { .. })),
            "{:?}",
            &buffer[..length]
        );
        break from;
    };
    all_began.wait().await;
    let mut received = 0;
    let acknowledge = async |block: usize| {
        let ack = Packet::Ack { block: u16::try_from(block).unwrap() }.encode();
        socket.send_to(&ack, transfer).await.unwrap();
    };
    acknowledge(0).await;
    let blocks = content.len() / BLKSIZE + 1;
    while received < blocks {
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        let Ok(Packet::Data { block, data }) = Packet::parse(&buffer[..length]) else { continue };
        if from != transfer || usize::from(block) != received + 1 {
            // A lost block comes again when the rack's timer fires.
            continue;
        }
        assert!(data == &content[received * BLKSIZE..content.len().min((received + 1) * BLKSIZE)], "{block}");
        received += 1;
        if received.is_multiple_of(64) || received == blocks {
            acknowledge(received).await;
        }
    }
}

/// The memory of this process in MiB: now, and at most so far.
pub(super) fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
    };
    (of("VmRSS:"), of("VmHWM:"))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_machines_fetch_at_once_and_the_rack_holds_their_loader_once() {
    if !is_inside("tftp::two_thousand_machines_fetch_at_once_and_the_rack_holds_their_loader_once") {
        return;
    }
    ip("link set lo up");
    basalt_proto::open_files::raise_limit().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.tftp_port));
    let rack = Daemon::start(settings).await.unwrap();
    let content: &'static [u8] = content(256 << 10).leak();
    std::fs::write(dir.path().join("loaders").join(LOADER), content).unwrap();
    let (before, _) = memory();

    let all_began: &'static Barrier = Box::leak(Box::new(Barrier::new(CROWD)));
    let mut crowd = JoinSet::new();
    let began = Instant::now();
    for number in 0..CROWD {
        let [.., high, low] = number.to_be_bytes();
        let at = SocketAddr::from((Ipv4Addr::new(127, 1, high, low), 0));
        crowd.spawn(one_of_the_crowd(at, server, content, all_began));
    }
    timeout(PATIENCE, crowd.join_all()).await.expect("all of them");
    let (_, most) = memory();
    println!("{CROWD} at once in {:?}, {before} MiB before, {most} MiB at most", began.elapsed());
    assert!(
        most - before < 100,
        "{before} MiB before, {most} MiB at most; with a copy for each it would be 500 more"
    );
    rack.stop().await;
}
