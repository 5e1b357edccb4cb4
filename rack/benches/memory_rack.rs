//! The memory of a rack with the concerns of 1,000 machines and a lease for each, against 100 MB.
//!
//! `cargo bench -p basalt-rack --bench memory_rack` prints one line of JSON.

mod support;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use basalt_dhcp::ingress;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{
    Bmc, BootConcern, BootMachine, DhcpConcern, DhcpSubnet, EphemeralBoot, PowerConcern, Reservation,
};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use dhcproto::v4::{MessageType, OptionCode};
use support::relay::{RELAY, ask, mac};
use support::{Ports, Result, print, rack, resident};

const MACHINES: u16 = 1000;
/// The most memory allowed, in megabytes.
const ALLOWED: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    let data = dir.path().join("data");
    std::fs::create_dir_all(&data)?;
    let subnet = DhcpSubnet {
        subnet_uid: "subnet".into(),
        cidr: "127.0.0.0/16".into(),
        reservations: (0..MACHINES).map(reservation).collect(),
        lease_seconds: 3600,
        ..DhcpSubnet::default()
    };
    let dhcp = DhcpConcern { subnets: vec![subnet], serve_unknown: false, ..DhcpConcern::default() };
    let boot = BootConcern { machines: (0..MACHINES).map(machine).collect(), enlist: None };
    let power = PowerConcern { bmcs: (0..MACHINES).map(bmc).collect(), ..PowerConcern::default() };
    write_concern(&data, &version(Concern::Dhcp, 1, "local", &dhcp))?;
    write_concern(&data, &version(Concern::Boot, 1, "local", &boot))?;
    write_concern(&data, &version(Concern::Power, 1, "local", &power))?;
    let ports = Ports::free()?;
    let rack = rack(dir.path(), ports, &["--interface", "lo"])?;
    let relay = UdpSocket::bind((RELAY, ports.dhcp))?;
    relay.set_read_timeout(Some(Duration::from_millis(300)))?;
    for number in 0..MACHINES {
        lease(&relay, ports.dhcp, number)?;
    }
    let memory = resident(&rack)?;
    print("memory_rack", memory, "what a rack with 1,000 machines may take", ALLOWED, ALLOWED / memory, "MB");
    Ok(())
}

fn address(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(127, 0, 16 + high, low)
}

fn reservation(number: u16) -> Reservation {
    let address = address(number).to_string();
    Reservation { mac: mac(number.into()).to_string(), address, hostname: format!("machine-{number}") }
}

/// A machine with an attempt, whose task is as large as an installation's.
fn machine(number: u16) -> BootMachine {
    let boot = EphemeralBoot {
        attempt: u64::from(number) + 1,
        not_after_unix_ms: i64::MAX,
        kernel_sha256: "a".repeat(64),
        initrd_sha256: "b".repeat(64),
        squashfs_sha256: "c".repeat(64),
        attempt_key: vec![7; 32],
        task_json: vec![b'x'; 8 << 10],
        step_key: format!("step-{number}"),
        ..EphemeralBoot::default()
    };
    BootMachine {
        machine_uid: format!("00000000-0000-0000-0000-{number:012}"),
        name: format!("machine-{number}"),
        macs: vec![mac(number.into()).to_string()],
        action: Some(Action::Ephemeral(boot)),
        networks: Vec::new(),
        architecture: "amd64".into(),
    }
}

fn bmc(number: u16) -> Bmc {
    let [high, low] = number.to_be_bytes();
    Bmc {
        machine_uid: format!("00000000-0000-0000-0000-{number:012}"),
        driver: "ipmi".into(),
        address: format!("10.0.{high}.{low}"),
        username: "admin".into(),
        password: "a-secret".into(),
        cipher_suite: 17,
        generation: 1,
        ..Bmc::default()
    }
}

/// Leases an address by DISCOVER and REQUEST.
fn lease(relay: &UdpSocket, port: u16, number: u16) -> Result<()> {
    let mut known: Option<(Ipv4Addr, Ipv4Addr)> = None;
    for answers in [MessageType::Offer, MessageType::Ack] {
        let mut message = ask(number.into(), known);
        message.option(OptionCode::UserClass, "iPXE");
        let (until, mut buffer) = (Instant::now() + PATIENCE, [0; 1500]);
        loop {
            if Instant::now() > until {
                return Err(format!("machine {number} gets no {answers:?}").into());
            }
            relay.send_to(&message.encode(), (Ipv4Addr::LOCALHOST, port)).ok();
            let Ok((length, _)) = relay.recv_from(&mut buffer) else { continue };
            let answer = ingress::parse(&buffer[..length]).map_err(|error| format!("{error:?}"))?;
            if answer.kind == answers && answer.chaddr == mac(number.into()).0 {
                let server =
                    answer.options.ipv4(OptionCode::ServerIdentifier).ok_or("an answer without a server")?;
                known = Some((answer.yiaddr, server));
                break;
            }
        }
    }
    match known {
        Some((got, _)) if got == address(number) => Ok(()),
        other => Err(format!("machine {number} got {other:?}").into()),
    }
}
