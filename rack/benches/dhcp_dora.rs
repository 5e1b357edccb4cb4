//! DHCPv4 exchanges (DISCOVER, OFFER, REQUEST, ACK) a second of new clients behind a relay, against Kea with its leases in a file.
//!
//! `cargo bench -p basalt-rack --bench dhcp_dora` prints one line of JSON. The rack's leases are on disk, by fsync,
//! before they are acknowledged, and each one is also written to a spool on disk. The same clients ask both servers in
//! turn, a fixed number of them at once.

mod support;

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use basalt_dhcp::ingress;
use basalt_proto::rack_v1::{AddressRange, DhcpConcern, DhcpSubnet};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use dhcproto::v4::{MessageType, OptionCode};
use support::relay::{RELAY, ask};
use support::{Ports, Program, Result, median, peer, print, rack};

/// The number of clients in a round.
const CLIENTS: u32 = 10_000;
const ROUNDS: u32 = 5;
/// The number of clients that ask at the same time.
const AT_ONCE: u32 = 64;
/// The wait before a client repeats its message.
const AGAIN: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    let data = dir.path().join("data");
    fs::create_dir_all(&data)?;
    let subnet = DhcpSubnet {
        subnet_uid: "subnet".into(),
        cidr: "127.0.0.0/8".into(),
        dynamic: vec![AddressRange { start: "127.1.0.0".into(), end: "127.2.255.255".into() }],
        lease_seconds: 3600,
        ..DhcpSubnet::default()
    };
    let concern = DhcpConcern { subnets: vec![subnet], serve_unknown: true, ..DhcpConcern::default() };
    write_concern(&data, &version(Concern::Dhcp, 1, "local", &concern))?;
    let (ours, theirs) = (Ports::free()?, Ports::free()?);
    let _rack = rack(dir.path(), ours, &["--interface", "lo"])?;
    let _kea = kea(dir.path(), theirs)?;
    let mut rates: [Vec<f64>; 2] = Default::default();
    let relays = [UdpSocket::bind((RELAY, ours.dhcp))?, UdpSocket::bind((RELAY, theirs.dhcp))?];
    for round in 0..=ROUNDS {
        for ((rates, relay), ports) in rates.iter_mut().zip(&relays).zip([ours, theirs]) {
            let rate = rate(relay, ports.dhcp, round * CLIENTS)?;
            // The first round is a warm-up.
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    let [ours, theirs] = rates.map(median);
    print("dhcp_dora", ours, "Kea 2.2 memfile, two threads", theirs, ours / theirs, "exchanges/s");
    Ok(())
}

fn kea(dir: &Path, ports: Ports) -> Result<Program> {
    let root = peer("kea")?;
    let directory = dir.to_str().ok_or("no UTF-8")?;
    let configuration = dir.join("kea.json");
    fs::write(&configuration, include_str!("kea.json").replace("DIR", directory))?;
    let libraries = fs::read_dir(root.join("usr/lib"))?.map(|entry| Ok(entry?.path().display().to_string()));
    let libraries: Vec<String> = libraries.collect::<std::io::Result<_>>()?;
    let mut command = Command::new(root.join("usr/sbin/kea-dhcp4"));
    command.arg("-c").arg(configuration);
    // The server port, and the port of the relay, which is the same.
    command.args(["-p", &ports.dhcp.to_string(), "-P", &ports.dhcp.to_string()]);
    command.env("LD_LIBRARY_PATH", libraries.join(":"));
    Program::start(command.env("KEA_PIDFILE_DIR", dir).env("KEA_LOCKFILE_DIR", dir))
}

/// The state of a client: its offer with the server, and the time of its last message.
struct Client {
    offered: Option<(Ipv4Addr, Ipv4Addr)>,
    asked: Instant,
}

/// Exchanges a second, with the clients from this number on.
fn rate(relay: &UdpSocket, port: u16, first: u32) -> Result<f64> {
    relay.set_read_timeout(Some(AGAIN))?;
    let send =
        |number: u32, offered| relay.send_to(&ask(number, offered).encode(), (Ipv4Addr::LOCALHOST, port));
    let (began, last) = (Instant::now(), first + CLIENTS);
    let (mut clients, mut next, mut buffer) = (HashMap::new(), first, [0; 1500]);
    while next < last || !clients.is_empty() {
        if began.elapsed() > PATIENCE {
            return Err(format!("{} clients have no address yet", clients.len()).into());
        }
        while next < last && clients.len() < AT_ONCE as usize {
            // The server may not listen yet; the client repeats its message.
            let _ = send(next, None);
            clients.insert(next, Client { offered: None, asked: Instant::now() });
            next += 1;
        }
        let Ok((length, _)) = relay.recv_from(&mut buffer) else {
            for (number, client) in clients.iter_mut().filter(|(_, client)| client.asked.elapsed() >= AGAIN) {
                let _ = send(*number, client.offered);
                client.asked = Instant::now();
            }
            continue;
        };
        let answer = ingress::parse(&buffer[..length]).map_err(|error| format!("{error:?}"))?;
        let number = answer.xid.wrapping_sub(1);
        let Some(client) = clients.get_mut(&number) else { continue };
        match (answer.kind, client.offered) {
            (MessageType::Offer, None) => {
                let server =
                    answer.options.ipv4(OptionCode::ServerIdentifier).ok_or("an offer without a server")?;
                client.offered = Some((answer.yiaddr, server));
                client.asked = Instant::now();
                send(number, client.offered)?;
            }
            (MessageType::Ack, Some((address, _))) if address == answer.yiaddr => {
                clients.remove(&number);
            }
            (MessageType::Nak, _) => return Err(format!("client {number} is refused").into()),
            _ => {}
        }
    }
    Ok(f64::from(CLIENTS) / began.elapsed().as_secs_f64())
}
