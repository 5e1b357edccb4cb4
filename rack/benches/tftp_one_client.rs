//! One TFTP client that fetches a large file in blocks of 1428 bytes: bytes a second, against tftpd-hpa and async-tftp.
//!
//! `cargo bench -p basalt-rack --bench tftp_one_client` prints a line of JSON for each peer. It must run as root,
//! because tftpd-hpa needs that. The file is fetched with one block in flight, as firmware does, and with a window of
//! 16 (RFC 7440), which tftpd-hpa does not support. The client is that of `basalt-tftp`.

mod support;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use async_tftp::server::TftpServerBuilder;
use basalt_tftp::client::{Client, ClientAction, ClientRequest};
use support::{Ports, Program, Result, median, peer, print, rack};

const LOADER: &str = "undionly.kpxe";
const LENGTH: usize = 8 << 20;
const BLOCK: u16 = 1428;
const WINDOW: u16 = 16;
const ROUNDS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    let loaders = dir.path().join("loaders");
    std::fs::create_dir_all(&loaders)?;
    std::fs::write(loaders.join(LOADER), vec![7; LENGTH])?;
    let (ports, hpa, crates) = (Ports::free()?, Ports::free()?.tftp, Ports::free()?.tftp);
    let _rack = rack(dir.path(), ports, &[])?;
    let _hpa = tftpd_hpa(&loaders, hpa)?;
    async_tftp(&loaders, crates)?;
    for (name, window) in [("tftp_one_client", None), ("tftp_one_client_window_16", Some(WINDOW))] {
        let mut rates: [Vec<f64>; 3] = Default::default();
        for round in 0..=ROUNDS {
            for (rates, port) in rates.iter_mut().zip([ports.tftp, hpa, crates]) {
                let rate = fetch(port, window)?;
                // The first round brings the file into the page cache.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        let [ours, hpa, crates] = rates.map(median);
        print(name, ours, "tftpd-hpa 5.2", hpa, ours / hpa, "MB/s");
        print(name, ours, "async-tftp 0.4", crates, ours / crates, "MB/s");
    }
    Ok(())
}

/// Starts tftpd-hpa by its manual's instructions for a server without inetd.
fn tftpd_hpa(dir: &Path, port: u16) -> Result<Program> {
    let mut command = Command::new(peer("tftpd-hpa")?.join("usr/sbin/in.tftpd"));
    // In the foreground, on this port, as root (the directory is this account's), with this root directory.
    command.args(["-L", "-a", &format!("127.0.0.1:{port}"), "-u", "root", "-s"]);
    Program::start(command.arg(dir))
}

/// Starts async-tftp by its documentation. It ends with this program.
fn async_tftp(dir: &Path, port: u16) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let builder = TftpServerBuilder::with_dir_ro(dir)?.bind((Ipv4Addr::LOCALHOST, port).into());
    std::thread::spawn(move || runtime.block_on(async { builder.build().await?.serve().await }));
    Ok(())
}

/// The rate of one fetch, in megabytes a second.
fn fetch(port: u16, window: Option<u16>) -> Result<f64> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let request =
        ClientRequest { blksize: Some(BLOCK), windowsize: window, ..ClientRequest::new(server, LOADER) };
    let began = Instant::now();
    let (mut client, mut actions) = Client::start(request, began);
    let mut datagram = vec![0; 2048];
    loop {
        for action in actions {
            match action {
                ClientAction::Send { to, bytes } => drop(socket.send_to(&bytes, to)?),
                ClientAction::Done(fetched)
                    if fetched.as_ref().is_ok_and(|it| it.content.len() == LENGTH) =>
                {
                    return Ok(LENGTH as f64 / 1e6 / began.elapsed().as_secs_f64());
                }
                ClientAction::Done(fetched) => return Err(format!("{:?}", fetched.map(|it| it.size)).into()),
            }
        }
        if began.elapsed() > PATIENCE {
            return Err("it takes too long".into());
        }
        let wait = client.deadline().saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(wait))?;
        actions = match socket.recv_from(&mut datagram) {
            Ok((length, from)) => client.on_packet(Instant::now(), from, &datagram[..length]),
            // The server may not listen yet, or there was no answer: the client repeats its message.
            Err(_) => client.on_timer(Instant::now()),
        };
    }
}
