//! Shared parts of the rack's benchmarks: starting its program and other projects' programs, and printing a result.
#![allow(dead_code, reason = "not each benchmark uses all of it")]

pub(crate) mod dns;
pub(crate) mod relay;

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A running program. It gets SIGTERM when this is dropped.
pub(crate) struct Program(pub(crate) Child);

impl Program {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        child.map(Self).map_err(|error| format!("{command:?}: {error}").into())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Not SIGKILL: nginx must end its own children.
        if let Some(id) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(id, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// The rack's ports on loopback.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) http: u16,
    pub(crate) tftp: u16,
    pub(crate) ntp: u16,
    pub(crate) dhcp: u16,
    pub(crate) dhcp_client: u16,
    pub(crate) dns: u16,
}

impl Ports {
    pub(crate) fn free() -> Result<Self> {
        let udp = || -> Result<u16> { Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port()) };
        Ok(Self {
            http: tcp_port()?,
            tftp: udp()?,
            ntp: udp()?,
            dhcp: udp()?,
            dhcp_client: udp()?,
            dns: udp()?,
        })
    }
}

pub(crate) fn tcp_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Starts the rack's program on this directory, with loaders in `loaders` and further arguments.
pub(crate) fn rack(dir: &Path, ports: Ports, arguments: &[&str]) -> Result<Program> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_basalt-rack"));
    command.arg("--data-dir").arg(dir.join("data")).arg("--loader-dir").arg(dir.join("loaders"));
    for (flag, port) in [
        ("--http-port", ports.http),
        ("--tftp-port", ports.tftp),
        ("--ntp-port", ports.ntp),
        ("--dhcp-port", ports.dhcp),
        ("--dhcp-client-port", ports.dhcp_client),
        ("--dns-port", ports.dns),
    ] {
        command.arg(flag).arg(port.to_string());
    }
    Program::start(command.args(["--name", "rack-1", "--log", "error"]).args(arguments))
}

/// The root directory of a program that `tests/lab/peer` installs.
pub(crate) fn peer(name: &str) -> Result<PathBuf> {
    let bring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/lab/peer");
    let brought = Command::new(bring).arg(name).stderr(Stdio::inherit()).output()?;
    if !brought.status.success() {
        return Err(format!("{name}: {}", brought.status).into());
    }
    Ok(PathBuf::from(String::from_utf8(brought.stdout)?.trim_end()))
}

/// The resident memory of a process, in megabytes.
pub(crate) fn resident(program: &Program) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.0.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024.0 / 1_000_000.0)
}

/// The median of the values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints a result. A larger `ratio` is better.
pub(crate) fn print(bench: &str, basalt: f64, peer: &str, peer_value: f64, ratio: f64, unit: &str) {
    let tenth = |value: f64| (value * 10.0).round() / 10.0;
    let line = json!({
        "bench": bench,
        "basalt": tenth(basalt),
        "peer": peer,
        "peer_value": tenth(peer_value),
        "ratio": (ratio * 1000.0).round() / 1000.0,
        "unit": unit,
    });
    #[allow(clippy::print_stdout, reason = "the result")]
    {
        println!("{line}");
    }
}
