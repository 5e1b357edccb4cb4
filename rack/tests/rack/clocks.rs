//! Hosts whose wall clocks are changed or wrong.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use basalt_dhcp::egress::Message;
use basalt_dhcp::ingress::{self, Packet};
use basalt_dhcp::{Lease, Mac};
use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::fact::Body;
use basalt_proto::rack_v1::{AddressRange, DhcpConcern, DhcpSubnet};
use basalt_rack::clock::wall_ms;
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;
use dhcproto::v4::{MessageType, OptionCode};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::link::{SECRET, next_link, region, serve, token};
use super::namespace::Running;
use super::support::{Client, DEADLINE, MAC, boot_concern, fact, settings};

const RELAY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 200);
const ANOTHER: Mac = Mac([0x52, 0x54, 0, 0, 0, 2]);
const YEAR: i64 = 365 * 86_400;
/// The clock of a host without a battery, before it has reached a time server: this far from the real time.
const AT_FIRST: i64 = -26 * YEAR;

/// A library that adds the seconds in a file to the wall clock of the program it is loaded into.
const SET_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (failed || clock != CLOCK_REALTIME) return failed;
    char seconds[32] = {0};
    int file = open(getenv("BASALT_TEST_CLOCK"), O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (read(file, seconds, sizeof seconds - 1) > 0) time->tv_sec += atol(seconds);
    close(file);
    return 0;
}
"#;

/// A rack process with an adjustable wall clock.
struct Rack {
    settings: Settings,
    library: PathBuf,
    clock: PathBuf,
}

impl Rack {
    fn new(dir: &Path) -> Self {
        let (source, library, clock) = (dir.join("clock.c"), dir.join("clock.so"), dir.join("seconds"));
        fs::write(&source, SET_CLOCK).unwrap();
        let made =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
        assert!(made.success(), "cc: {made}");
        Self { settings: settings(dir), library, clock }
    }

    /// Sets its clock this many seconds ahead of the real one.
    fn set(&self, seconds: i64) {
        let new = self.clock.with_extension("new");
        fs::write(&new, seconds.to_string()).unwrap();
        fs::rename(new, &self.clock).unwrap();
    }

    fn start(&self) -> Running {
        let Settings {
            data_dir,
            http_port,
            dhcp_port,
            dhcp_client_port,
            tftp_port,
            ntp_port,
            metrics,
            loader_dir,
            ..
        } = &self.settings;
        let ports = [
            ("http", http_port),
            ("dhcp", dhcp_port),
            ("dhcp-client", dhcp_client_port),
            ("tftp", tftp_port),
            ("ntp", ntp_port),
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_basalt-rack"));
        command.args(["--interface", "lo", "--name", "rack-1", "--log", "warn", "--data-dir"]).arg(data_dir);
        for (name, port) in ports {
            command.arg(format!("--{name}-port={port}"));
        }
        command.arg("--loader-dir").arg(loader_dir);
        command.args(metrics.map(|address| format!("--metrics={address}")));
        command.env("LD_PRELOAD", &self.library).env("BASALT_TEST_CLOCK", &self.clock);
        Running::start(&mut command)
    }

    /// True if the rack has noticed that its clock is this many seconds ahead of its first state.
    fn has_noticed(&self, seconds: i64) -> bool {
        let kept = fs::read(self.settings.data_dir.join("clock")).unwrap();
        let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
        (kept["wall"].as_i64().unwrap() / 1000 - seconds).abs() < 60
    }

    /// The rack's record of the only address.
    fn lease(&self) -> Lease {
        let file = fs::read_to_string(self.settings.data_dir.join("leases")).unwrap();
        serde_json::from_str(file.lines().last().unwrap().split_once(' ').unwrap().1).unwrap()
    }
}

/// Clients behind a relay.
struct Relay {
    socket: UdpSocket,
    server: SocketAddr,
}

impl Relay {
    async fn new(settings: &Settings) -> Self {
        let socket = UdpSocket::bind((RELAY, settings.dhcp_port)).await.unwrap();
        Self { socket, server: (Ipv4Addr::LOCALHOST, settings.dhcp_port).into() }
    }

    async fn send(&self, kind: MessageType, mac: Mac, options: &[(OptionCode, Ipv4Addr)]) {
        let mut message = Message::request(kind, 7, mac);
        message.giaddr = RELAY;
        for (code, address) in options {
            message.option(*code, address.octets());
        }
        // The message is lost before the rack starts and after it was killed.
        self.socket.send_to(&message.encode(), self.server).await.ok();
    }

    async fn next(&self) -> Option<Packet> {
        let mut buffer = [0; 1500];
        let (length, _) = self.socket.recv_from(&mut buffer).await.ok()?;
        Some(ingress::parse(&buffer[..length]).unwrap())
    }

    /// Asks until the first client's lease has been granted once more. Returns the answers to others meanwhile.
    async fn confirm(&self) -> Vec<Packet> {
        let mut others = Vec::new();
        let asked = async {
            loop {
                self.send(MessageType::Request, MAC, &[(OptionCode::RequestedIpAddress, ADDRESS)]).await;
                let soon = std::time::Duration::from_millis(200);
                match tokio::time::timeout(soon, self.next()).await {
                    Ok(Some(packet)) if packet.mac() == Some(MAC) && packet.kind == MessageType::Ack => {
                        return;
                    }
                    Ok(Some(packet)) if packet.mac() != Some(MAC) => others.push(packet),
                    _ => {}
                }
            }
        };
        tokio::time::timeout(DEADLINE, asked).await.expect("the client was not answered");
        others
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lease_ends_and_none_lasts_longer_since_the_wall_clock_was_set() {
    let dir = tempfile::tempdir().unwrap();
    let rack = Rack::new(dir.path());
    let subnet = DhcpSubnet {
        subnet_uid: "s1".into(),
        cidr: "127.0.0.0/24".into(),
        lease_seconds: 600,
        dynamic: vec![AddressRange { start: ADDRESS.to_string(), end: ADDRESS.to_string() }],
        ..DhcpSubnet::default()
    };
    let concern = DhcpConcern { subnets: vec![subnet], serve_unknown: true, ..DhcpConcern::default() };
    write_concern(&rack.settings.data_dir, &version(Concern::Dhcp, 1, "local", &concern)).unwrap();
    let relay = Relay::new(&rack.settings).await;
    rack.set(AT_FIRST);
    let mut running = rack.start();
    let discovered = async {
        loop {
            relay.send(MessageType::Discover, MAC, &[]).await;
            let soon = std::time::Duration::from_millis(200);
            if let Ok(Some(offer)) = tokio::time::timeout(soon, relay.next()).await {
                return offer;
            }
        }
    };
    let offer = tokio::time::timeout(DEADLINE, discovered).await.expect("no offer");
    assert_eq!((offer.kind, offer.yiaddr), (MessageType::Offer, ADDRESS));
    relay.confirm().await;
    let first = rack.lease();
    assert!(first.granted.unix_millis() < u64::try_from(wall_ms() - 25 * YEAR * 1000).unwrap(), "{first:?}");

    let mut others_asked = 0;
    for (seconds, restarts) in
        [(0, false), (YEAR, false), (-30 * YEAR, false), (5 * YEAR, true), (-9 * YEAR, true)]
    {
        rack.set(seconds);
        if restarts {
            drop(running);
            running = rack.start();
        }
        let noticed = async {
            while !rack.has_noticed(seconds - AT_FIRST) {
                relay.confirm().await;
            }
        };
        tokio::time::timeout(DEADLINE, noticed).await.expect("the rack did not notice");
        relay.send(MessageType::Discover, ANOTHER, &[]).await;
        others_asked += 1;
        // The rack answers in the order of the messages.
        let others = relay.confirm().await;
        assert!(others.is_empty(), "the only address is leased, and was offered: {others:?}");
        let lease = rack.lease();
        let elapsed = first.granted.until(lease.granted);
        assert!(elapsed < DEADLINE, "{seconds}: {elapsed:?} since the first lease");
        assert!(lease.granted.until(lease.expires) <= std::time::Duration::from_secs(600), "{lease:?}");
    }
    println!("the clock was set 5 times, {others_asked} times another client asked for the address");
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_clock_is_ahead_is_told_of_and_does_its_tasks_in_the_time_of_the_region() {
    let dir = tempfile::tempdir().unwrap();
    let (region, mut linked) = region();
    let stop = CancellationToken::new();
    let address = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    let settings = Settings { join: Some(token(&region, address, SECRET)), ..settings(dir.path()) };
    // As if this host's clock were a day wrong.
    let now = wall_ms() - 86_400_000;
    let mut concern = boot_concern(17);
    let mut late = concern.machines[0].clone();
    (late.machine_uid, late.macs) = ("uid-2".into(), vec![ANOTHER.to_string()]);
    concern.machines.push(late);
    for (machine, (attempt, ends)) in
        concern.machines.iter_mut().zip([(17, now + 60_000), (18, now - 60_000)])
    {
        let Some(Action::Ephemeral(boot)) = &mut machine.action else { unreachable!("it was made so") };
        (boot.attempt, boot.not_after_unix_ms) = (attempt, ends);
    }
    write_concern(&settings.data_dir, &version(Concern::Boot, 1, "local", &concern)).unwrap();
    let http_port = settings.http_port;
    let rack = Daemon::start(settings).await.unwrap();
    let mut link = next_link(&mut linked).await;
    link.welcome_at(now).await;
    let told =
        fact(&rack.facts, |it| matches!(&it.body, Some(Body::Health(it)) if it.service == "clock")).await;
    let told_at = told.observed_unix_ms;
    let Some(Body::Health(told)) = told.body else { unreachable!("it was asked for") };
    assert!(!told.ok && told.message.contains("86400 s ahead of the region's"), "{told:?}");

    assert!((told_at - now).abs() < 60_000, "facts are dated in the time of the region");
    let ends = async |mac: Mac| {
        let client = Client { from: RELAY.into(), rack: ([127, 0, 0, 1], http_port).into(), spki: None };
        client.get(&format!("/ipxe?mac={mac}")).await
    };
    assert_eq!(
        ends(MAC).await.status,
        403,
        "the attempt has a minute left, and nobody has asked for an address"
    );
    let local = ends(ANOTHER).await;
    assert!(local.status == 200 && local.text().contains("came too late"), "{}", local.text());
    rack.stop().await;
    stop.cancel();
}
