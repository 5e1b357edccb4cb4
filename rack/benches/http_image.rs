//! An image from the rack's cache for four clients at once: bytes a second, against nginx with sendfile.
//!
//! `cargo bench -p basalt-rack --bench http_image` prints one line of JSON. Both servers send the same file from the
//! page cache to the same client, in turn.

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use basalt_rack::hash::sha256;
use support::{Ports, Program, Result, median, peer, print, rack, tcp_port};

const LENGTH: usize = 256 << 20;
const CLIENTS: usize = 4;
/// How often each client fetches the image in a round.
const TIMES: usize = 2;
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    let content: Vec<u8> = (0..LENGTH).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let path = format!("/blobs/{}", hex::encode(sha256(&content)));
    std::fs::create_dir_all(dir.path().join("data/blobs"))?;
    std::fs::write(dir.path().join("data").join(path.trim_start_matches('/')), content)?;
    let ports = Ports::free()?;
    let _rack = rack(dir.path(), ports, &[])?;
    let nginx_port = tcp_port()?;
    let _nginx = nginx(dir.path(), nginx_port)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (rack, nginx) = (rate(ports.http, &path)?, rate(nginx_port, &path)?);
        // The first round brings the file into the page cache, and the rack verifies it.
        if round > 0 {
            ours.push(rack);
            theirs.push(nginx);
        }
    }
    let (ours, theirs) = (median(ours), median(theirs));
    print("http_image", ours, "nginx sendfile", theirs, ours / theirs, "MB/s");
    Ok(())
}

fn nginx(dir: &Path, port: u16) -> Result<Program> {
    let program = peer("nginx")?.join("usr/sbin/nginx");
    let configuration = include_str!("nginx.conf").replace("PORT", &port.to_string());
    std::fs::write(dir.join("nginx.conf"), configuration)?;
    Program::start(Command::new(program).arg("-p").arg(dir).args(["-c", "nginx.conf", "-e", "stderr"]))
}

/// Megabytes a second of all clients together.
fn rate(port: u16, path: &str) -> Result<f64> {
    let streams = (0..CLIENTS).map(|_| connect(port)).collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let fetches: Vec<_> = streams.into_iter().map(|stream| scope.spawn(|| fetch(stream, path))).collect();
        fetches.into_iter().try_for_each(|fetch| fetch.join().map_err(|_| "a client panicked")?)
    })
    .map_err(|error: Box<dyn std::error::Error + Send + Sync>| error.to_string())?;
    Ok((LENGTH * CLIENTS * TIMES) as f64 / 1e6 / began.elapsed().as_secs_f64())
}

/// Connects as soon as the server listens.
fn connect(port: u16) -> Result<TcpStream> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn fetch(
    mut stream: TcpStream,
    path: &str,
) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..TIMES {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", Ipv4Addr::LOCALHOST)?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.extend(byte);
        }
        if !head.starts_with(b"HTTP/1.1 200") {
            return Err(String::from_utf8_lossy(&head).into());
        }
        let mut left = LENGTH;
        while left > 0 {
            let most = left.min(buffer.len());
            match stream.read(&mut buffer[..most])? {
                0 => return Err(format!("broken off {left} bytes before the end").into()),
                count => left -= count,
            }
        }
    }
    Ok(())
}
