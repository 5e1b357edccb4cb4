//! NTP answers a second, against chronyd.
//!
//! `cargo bench -p basalt-rack --bench ntp_answers` prints a line of JSON. One client has 64 requests on their way, and asks both
//! servers in turn. Each request comes from another address, because the rack answers one client eight times at once. chronyd
//! limits no client, as it is by itself. It sets no clock (`-x`).

mod support;

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::libc::{in_addr, in_pktinfo};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};
use support::{Ports, Program, Result, median, peer, print, rack};

const ROUNDS: usize = 9;
const TIME: Duration = Duration::from_secs(1);
/// Requests on their way.
const WINDOW: u32 = 64;
const PATIENCE: Duration = Duration::from_secs(20);
/// Version 4, mode 3 (RFC 5905 §7.3).
const FIRST_OCTET: u8 = 0x23;
const LENGTH: usize = 48;

fn main() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    std::fs::create_dir_all(dir.path().join("data"))?;
    let (ports, chrony_port) = (Ports::free()?, Ports::free()?.ntp);
    let _rack = rack(dir.path(), ports, &[])?;
    let _chronyd = chronyd(dir.path(), chrony_port)?;
    let mut client = Client::new()?;
    let servers = [ports.ntp, chrony_port];
    for port in servers {
        let began = Instant::now();
        while client.ask(port, 1)? == 0 {
            if began.elapsed() > PATIENCE {
                return Err(format!("nobody answers at port {port}").into());
            }
        }
    }
    let mut rates: [Vec<f64>; 2] = Default::default();
    for round in 0..=ROUNDS {
        for (rates, port) in rates.iter_mut().zip(servers) {
            let rate = client.rate(port)?;
            // The first round is a warm-up.
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    let ratios = rates[0].iter().zip(&rates[1]).map(|(ours, theirs)| ours / theirs).collect();
    let [ours, theirs] = rates.map(median);
    print("ntp_answers", ours, "chronyd 4.3 without a rate limit", theirs, median(ratios), "answers/s");
    Ok(())
}

/// A client with many addresses.
struct Client {
    socket: UdpSocket,
    /// The number of the next address.
    next: u32,
}

impl Client {
    fn new() -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        Ok(Self { socket, next: 0 })
    }

    /// Answers a second.
    fn rate(&mut self, port: u16) -> Result<f64> {
        let (began, mut answers) = (Instant::now(), 0);
        while began.elapsed() < TIME {
            let got = self.ask(port, WINDOW)?;
            if got < WINDOW {
                return Err(format!("port {port} answers {got} of {WINDOW} requests").into());
            }
            answers += got;
        }
        Ok(f64::from(answers) / began.elapsed().as_secs_f64())
    }

    /// Sends requests, each from another address in 127.0.0.0/8. Returns the number of answers.
    fn ask(&mut self, port: u16, count: u32) -> Result<u32> {
        let mut request = [0; LENGTH];
        request[0] = FIRST_OCTET;
        let server = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        for _ in 0..count {
            self.next = (self.next + 1) % 0x00f0_0000;
            let [_, high, middle, low] = self.next.to_be_bytes();
            let source = in_addr { s_addr: u32::from_ne_bytes([127, high + 1, middle, low]) };
            let from = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: source };
            let control = [ControlMessage::Ipv4PacketInfo(&from)];
            let data = [IoSlice::new(&request)];
            sendmsg(self.socket.as_raw_fd(), &data, &control, MsgFlags::empty(), Some(&server))?;
        }
        let mut answers = 0;
        let mut buffer = [0; 128];
        // The server may not listen yet.
        while answers < count && self.socket.recv(&mut buffer).is_ok_and(|length| length == LENGTH) {
            answers += 1;
        }
        Ok(answers)
    }
}

/// Starts chronyd, which serves the time of this host to everybody.
fn chronyd(dir: &Path, port: u16) -> Result<Program> {
    let mut command = Command::new(peer("chrony")?.join("usr/sbin/chronyd"));
    command.args(["-x", "-d", "-u", "root", "bindaddress 127.0.0.1", "cmdport 0", "allow 127.0.0.0/8"]);
    command.args(["local stratum 10", &format!("port {port}")]);
    command.arg(format!("pidfile {}", dir.join("chronyd.pid").display()));
    Program::start(&mut command)
}
