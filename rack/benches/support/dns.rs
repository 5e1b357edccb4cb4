//! A zone of many names, for the rack and for BIND.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use basalt_proto::rack_v1::{DnsConcern, DnsRecord, DnsZone};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};

use super::{Program, Result, peer};

const PATIENCE: Duration = Duration::from_secs(20);
const TTL: u32 = 300;

/// The zone `bench.example`: names `host-0` and so on, each with its address.
pub(crate) struct Zone(Vec<Ipv4Addr>);

impl Zone {
    pub(crate) fn new(names: u32) -> Self {
        let first = u32::from(Ipv4Addr::new(10, 0, 0, 0));
        Self((0..names).map(|number| Ipv4Addr::from(first + number)).collect())
    }

    pub(crate) fn set(&mut self, number: usize, address: Ipv4Addr) {
        self.0[number] = address;
    }

    /// Writes the zone into a rack's data directory.
    pub(crate) fn write(&self, data: &Path, serial: u32) -> Result<()> {
        let record = |owner: String, rtype: &str, data: String| DnsRecord {
            owner,
            rtype: rtype.into(),
            ttl: TTL,
            data,
        };
        let mut records = vec![record("@".into(), "NS", "ns.bench.example.".into())];
        records.push(record("ns".into(), "A", Ipv4Addr::LOCALHOST.to_string()));
        let hosts = self.0.iter().enumerate();
        records.extend(
            hosts.map(|(number, address)| record(format!("host-{number}"), "A", address.to_string())),
        );
        let zone = DnsZone {
            origin: "bench.example".into(),
            serial,
            ttl: TTL,
            primary: "ns.bench.example.".into(),
            records,
            ..DnsZone::default()
        };
        let concern = DnsConcern { zones: vec![zone], ..DnsConcern::default() };
        Ok(write_concern(data, &version(Concern::Dns, u64::from(serial), "local", &concern))?)
    }

    /// Writes the zone into BIND's directory.
    pub(crate) fn write_file(&self, dir: &Path, serial: u32) -> Result<()> {
        let mut text = format!(
            "$TTL {TTL}\n@ SOA ns hostmaster {serial} 600 1800 604800 {TTL}\n@ NS ns\nns A {}\n",
            Ipv4Addr::LOCALHOST
        );
        for (number, address) in self.0.iter().enumerate() {
            writeln!(text, "host-{number} A {address}")?;
        }
        Ok(fs::write(dir.join("bench.zone"), text)?)
    }
}

/// Starts BIND in this directory, with a thread for each core, as is its default.
pub(crate) fn named(dir: &Path, port: u16) -> Result<Program> {
    named_at(dir, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// The same at another address.
pub(crate) fn named_at(dir: &Path, at: SocketAddr) -> Result<Program> {
    let root = peer("named")?;
    let directory = dir.to_str().ok_or("no UTF-8")?;
    let configuration = dir.join("named.conf");
    let text = include_str!("../named.conf").replace("DIR", directory);
    let text = text.replace("PORT", &at.port().to_string()).replace("ADDRESS", &at.ip().to_string());
    fs::write(&configuration, text)?;
    let mut command = Command::new(root.join("usr/sbin/named"));
    command.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    Program::start(command.arg("-f").arg("-L").arg(dir.join("named.log")).arg("-c").arg(configuration))
}

/// Asks at this port until a host has this address. Returns the time since `began`.
pub(crate) fn until(port: u16, number: usize, address: Ipv4Addr, began: Instant) -> Result<Duration> {
    let host = format!("host-{number}");
    let length = u8::try_from(host.len())?;
    let header = [0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let query =
        [&header, &[length][..], host.as_bytes(), b"\x05bench\x07example\x00\x00\x01\x00\x01"].concat();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut buffer = [0; 512];
    while began.elapsed() < PATIENCE {
        // The server may not listen yet.
        let _ = socket.send(&query);
        match socket.recv(&mut buffer) {
            // The address is at the end of the only record.
            Ok(length) if buffer[..length].ends_with(&address.octets()) => return Ok(began.elapsed()),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(format!("nobody answers {address} for {host} at port {port}").into())
}

/// Answers a second, measured by dnsperf with eight clients.
pub(crate) fn rate(root: &Path, queries: &Path, port: u16, arguments: &[&str]) -> Result<f64> {
    let mut command = Command::new(root.join("usr/bin/dnsperf"));
    command.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    command.args(["-s", "127.0.0.1", "-c", "8"]).args(arguments);
    let output = command.arg("-p").arg(port.to_string()).arg("-d").arg(queries).output()?;
    let text = String::from_utf8(output.stdout)?;
    let value = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    let codes = value("Response codes:").unwrap_or_default();
    if !(codes.starts_with("NOERROR ") && codes.ends_with("(100.00%)")) {
        return Err(format!("port {port} does not answer all: {text}").into());
    }
    Ok(value("Queries per second:").ok_or("dnsperf prints no rate")?.parse()?)
}
