//! `basalt-rack check`: finds what this host lacks before machines do. It also searches for other DHCP servers, on the
//! served interfaces only.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use basalt_dhcp::BOOT_SERVER_PORT;
use basalt_dhcp::v6::SERVER_PORT as DHCP6_PORT;
use basalt_proto::rack_v1::{BootAnswers, DhcpConcern};
use basalt_proxy::squid;
use ipnet::Ipv4Net;

use crate::concern::{Concern, Content, store};
use crate::dhcp::others::{self, Ask};
use crate::holder::{self, Holder, Protocol};
use crate::interfaces::{self, Served};
use crate::loaders::Loaders;
use crate::settings::Settings;

/// Capabilities that the rack needs, by their bit in `/proc/self/status` (capabilities(7)).
const CAPABILITIES: [(u32, &str, &str); 2] = [
    (10, "CAP_NET_BIND_SERVICE", "ports 53, 67, 69, 123 and 514"),
    (13, "CAP_NET_RAW", "binding DHCP to its interface, and ICMPv6"),
];

/// How to search for other DHCP servers: eight seconds in all, since dnsmasq first pings an address for three seconds.
const ASK: Ask = Ask { tries: 2, patience: Duration::from_secs(4) };

/// One line of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The subject of the check.
    pub subject: String,
    /// The fault and its remedy. `None`: there is no fault.
    pub problem: Option<String>,
    /// Information about a subject without a fault.
    pub note: Option<String>,
}

impl Finding {
    const fn new(subject: String, problem: Option<String>) -> Self {
        Self { subject, problem, note: None }
    }
}

/// Runs all checks.
#[must_use]
pub fn check(settings: &Settings) -> Vec<Finding> {
    let mut findings = vec![data_dir(settings)];
    findings.extend(capabilities());
    let served = interfaces::served(&settings.interfaces).unwrap_or_default();
    match interfaces::problems(&settings.interfaces) {
        Ok(mut problems) => findings.extend(
            settings
                .interfaces
                .iter()
                .map(|name| Finding::new(format!("interface {name}"), problems.remove(name))),
        ),
        Err(error) => findings.push(Finding::new("interfaces".to_owned(), Some(error.to_string()))),
    }
    let rack = &running(&settings.data_dir);
    let dhcp = served.iter().flat_map(|it| it.addresses.iter().copied());
    for address in dhcp.clone() {
        findings.push(udp(rack, "DHCP", address.into(), settings.dhcp_port));
        if settings.dhcp_port == basalt_dhcp::SERVER_PORT {
            findings.push(udp(rack, "proxyDHCP", address.into(), BOOT_SERVER_PORT));
        }
    }
    let six = interfaces::served6(&settings.interfaces).unwrap_or_default();
    for address in six.iter().flat_map(|it| &it.addresses) {
        findings.push(udp(rack, "DHCPv6", (*address).into(), DHCP6_PORT));
    }
    for address in dhcp.chain(settings.addresses.iter().copied()) {
        findings.push(udp(rack, "TFTP", address.into(), settings.tftp_port));
        findings.push(tcp(rack, "HTTP", address, settings.http_port));
        findings.push(udp(rack, "DNS", address.into(), settings.dns_port));
        findings.push(tcp(rack, "DNS", address, settings.dns_port));
        findings.push(udp(rack, "NTP", address.into(), settings.ntp_port));
        for &port in &settings.syslog_port {
            findings.push(udp(rack, "syslog", address.into(), port));
            findings.push(tcp(rack, "syslog", address, port));
        }
        // The proxy of a running rack is another process.
        if rack.is_none() && squid::program(settings.proxy.program.as_deref()).is_ok() {
            findings.push(tcp(rack, "proxy", address, settings.proxy.port));
        }
    }
    findings.extend(others(settings, served));
    findings.push(loaders(settings));
    findings.push(proxy(settings));
    findings
}

/// The findings as a table.
#[derive(Debug)]
pub struct Table<'a>(pub &'a [Finding]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
        for Finding { subject, problem, note } in self.0 {
            match (problem, note) {
                (None, None) => writeln!(f, "ok    {subject}")?,
                (None, Some(note)) => writeln!(f, "ok    {subject:width$}  {note}")?,
                (Some(problem), _) => writeln!(f, "FAIL  {subject:width$}  {problem}")?,
            }
        }
        Ok(())
    }
}

fn data_dir(settings: &Settings) -> Finding {
    let probe = settings.data_dir.join(".check");
    let written = crate::durable::private_dir(&settings.data_dir)
        .and_then(|()| fs::write(&probe, b"check"))
        .and_then(|()| fs::remove_file(&probe));
    let problem =
        written.err().map(|error| format!("cannot be written: {error}; make it, or give it to this account"));
    Finding::new(format!("data directory {}", settings.data_dir.display()), problem)
}

fn capabilities() -> Vec<Finding> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    let finding = |(bit, name, purpose): (u32, &str, &str)| {
        let problem = (bits >> bit & 1 == 0)
            .then(|| format!("missing, for {purpose}; run as root, or with AmbientCapabilities={name}"));
        Finding::new(format!("capability {name}"), problem)
    };
    CAPABILITIES.into_iter().map(finding).collect()
}

/// The path of the data directory's lock file, if a rack runs on the directory.
fn running(data_dir: &Path) -> Option<PathBuf> {
    let path = data_dir.join("lock");
    let file = fs::OpenOptions::new().write(true).open(&path).ok()?;
    matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)).then_some(path)
}

fn udp(rack: &Option<PathBuf>, service: &str, address: IpAddr, port: u16) -> Finding {
    let bound = UdpSocket::bind((address, port)).map(drop);
    taken(rack.as_deref(), service, (address, port).into(), Protocol::Udp, bound)
}

fn tcp(rack: &Option<PathBuf>, service: &str, address: Ipv4Addr, port: u16) -> Finding {
    let bound = TcpListener::bind((address, port)).map(drop);
    taken(rack.as_deref(), service, (address, port).into(), Protocol::Tcp, bound)
}

/// Searches for other DHCP servers on each interface.
fn others(settings: &Settings, served: impl IntoIterator<Item = Served>) -> Vec<Finding> {
    let held = store::read_concern(&settings.data_dir, Concern::Dhcp).ok().flatten();
    let beside = match held {
        Some((_, Content::Dhcp(concern))) => beside_others(&concern),
        _ => Vec::new(),
    };
    let (server, client) = (settings.dhcp_port, settings.dhcp_client_port);
    let ask = async {
        let asked = served.into_iter().filter_map(|at| at.mac.map(|mac| (at, mac)));
        let asked = asked.map(|(at, mac)| {
            tokio::spawn(async move { (others::look(&at, mac, server, client, ASK).await, at) })
        });
        let mut findings = Vec::new();
        for asked in asked.collect::<Vec<_>>() {
            if let Ok((found, at)) = asked.await {
                let found = found.map(|found| found.into_iter().collect::<Vec<_>>());
                findings.push(other_servers(&at, found, &beside, client));
            }
        }
        findings
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(ask),
        Err(error) => {
            vec![Finding::new("other DHCP servers".to_owned(), Some(error.to_string()))]
        }
    }
}

/// The networks in which another server gives the addresses, according to the region.
fn beside_others(concern: &DhcpConcern) -> Vec<Ipv4Net> {
    let proxied = concern.subnets.iter().filter(|subnet| subnet.boot() == BootAnswers::Proxy);
    proxied.filter_map(|subnet| subnet.cidr.parse().ok()).collect()
}

fn other_servers(at: &Served, found: io::Result<Vec<Ipv4Addr>>, beside: &[Ipv4Net], client: u16) -> Finding {
    let subject = format!("other DHCP servers on {}", at.interface);
    let expected = at.addresses.iter().any(|own| beside.iter().any(|net| net.contains(own)));
    let problem = match found {
        Err(error) => Some(format!(
            "cannot be looked for: {error}; answers come to UDP port {client}, which a DHCP client of this host, or a running rack, may have"
        )),
        Ok(found) => {
            let found: Vec<_> =
                found.iter().filter(|it| !at.addresses.contains(it)).map(ToString::to_string).collect();
            (!found.is_empty() && !expected).then(|| {
                format!(
                    "{} gives addresses there; switch it off, or set boot.mode of the Subnet to proxy, so that this rack answers beside it",
                    found.join(" and ")
                )
            })
        }
    };
    Finding::new(subject, problem)
}

/// Checks if a port can be bound, or is held by the rack of this data directory: the process that has the directory's
/// lock file open.
fn taken(
    rack: Option<&Path>,
    service: &str,
    at: SocketAddr,
    protocol: Protocol,
    bound: io::Result<()>,
) -> Finding {
    let (name, option) = match protocol {
        Protocol::Udp => ("udp", 'u'),
        Protocol::Tcp => ("tcp", 't'),
    };
    let mut finding = Finding::new(format!("{service} on {at} ({name})"), None);
    let Err(error) = bound else { return finding };
    if error.kind() != io::ErrorKind::AddrInUse {
        finding.problem = Some(format!("{error}; `ss -lnp{option}` shows who has which port"));
        return finding;
    }
    let key = match service {
        "HTTP" => "give the rack another port with --http-port",
        "TFTP" => "give the rack another port with --tftp-port",
        "syslog" => "give the rack other ports with --syslog-port",
        "proxy" => {
            "turn the proxy off (proxy.enabled of Settings); if it is the rack's own Squid, nothing is wrong"
        }
        "NTP" => "have it serve no time (chrony: `port 0`)",
        _ => "have this rack serve other interfaces",
    };
    match (holder::of(protocol, at.ip(), at.port()), rack) {
        (Some(holder), Some(lock)) if holder::has_open(holder.pid, lock) => {
            finding.note = Some(format!("this rack runs, and has it (process {})", holder.pid));
        }
        (Some(Holder { pid, program }), _) => {
            finding.problem = Some(format!("process {pid} ({program}) has it: end that program, or {key}"));
        }
        (None, Some(_)) => {
            finding.note = Some(format!(
                "in use; a rack runs on this data directory. As root, `ss -lnp{option}` shows if that rack has the port"
            ));
        }
        (None, None) => {
            finding.problem = Some(format!(
                "{error}; as root, `ss -lnp{option}` shows who has it: another server, or this rack if it runs already"
            ));
        }
    }
    finding
}

fn loaders(settings: &Settings) -> Finding {
    let missing = Loaders::new(&settings.loader_dir).missing();
    let problem = (!missing.is_empty()).then(|| {
        format!(
            "{} not there; install the package `ipxe`, or name another --loader-dir",
            missing.join(" and ")
        )
    });
    Finding::new(format!("boot loaders in {}", settings.loader_dir.display()), problem)
}

/// The proxy's program is optional: a rack serves everything else without it.
fn proxy(settings: &Settings) -> Finding {
    let mut finding = Finding::new("program of the proxy".to_owned(), None);
    finding.note = Some(match squid::program(settings.proxy.program.as_deref()) {
        Ok(program) => program.display().to_string(),
        Err(lack) => format!("no proxy is served: {lack}"),
    });
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Given;

    #[test]
    fn another_server_is_named_where_none_should_be_and_who_is_not_asked_is_told() {
        let address = Ipv4Addr::new(10, 9, 0, 1);
        let at = Served { interface: "eth1".into(), index: 2, mac: None, addresses: vec![address] };
        let other = Ipv4Addr::new(10, 9, 0, 9);
        let problem =
            |found, beside: &[Ipv4Net]| other_servers(&at, found, beside, 68).problem.unwrap_or_default();
        assert_eq!(problem(Ok(vec![address]), &[]), "", "this one is no other");
        let there = problem(Ok(vec![other]), &[]);
        assert!(
            there.starts_with("10.9.0.9 gives addresses there; switch it off") && there.contains("proxy"),
            "{there}"
        );
        assert_eq!(problem(Ok(vec![other]), &["10.9.0.0/24".parse().unwrap()]), "", "it is there by right");
        let unknown = problem(Err(io::ErrorKind::AddrInUse.into()), &[]);
        assert!(unknown.contains("cannot be looked for") && unknown.contains("UDP port 68"), "{unknown}");
    }

    #[test]
    fn a_port_that_the_rack_itself_has_is_as_it_should_be() {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let busy = || TcpListener::bind(at).map(drop);
        let lock = dir.path().join("lock");
        assert_eq!(running(dir.path()), None);
        let file = fs::File::create(&lock).unwrap();
        assert_eq!(running(dir.path()), None, "nobody holds it");
        file.lock().unwrap();
        let rack = running(dir.path());
        let finding = taken(rack.as_deref(), "HTTP", at, Protocol::Tcp, busy());
        assert_eq!((finding.problem, rack), (None, Some(lock)));
        let note = format!("this rack runs, and has it (process {})", std::process::id());
        assert_eq!(finding.note.as_deref(), Some(note.as_str()));
        let other = taken(None, "HTTP", at, Protocol::Tcp, busy()).problem.unwrap();
        assert!(other.contains("has it: end that program"), "{other}");
    }

    #[test]
    fn names_what_is_missing_and_who_to_ask() {
        let dir = tempfile::tempdir().unwrap();
        let busy = TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = Given {
            data_dir: Some(dir.path().join("data")),
            name: Some("rack".into()),
            loader_dir: Some(dir.path().into()),
            http_port: Some(busy.local_addr().unwrap().port()),
            interface: Some(vec!["nosuch0".into()]),
            address: Some(vec![Ipv4Addr::LOCALHOST]),
            ..Given::default()
        };
        let findings = check(&settings.settle().unwrap());
        let problem = |subject: &str| {
            let found = findings.iter().find(|finding| finding.subject.starts_with(subject)).unwrap();
            found.problem.clone().unwrap_or_default()
        };
        assert_eq!(problem("data directory"), "");
        assert!(problem("interface nosuch0").contains("there is no interface nosuch0"));
        let held = "has it: end that program, or give the rack another port with --http-port";
        let own = std::process::id().to_string();
        assert!(
            problem("HTTP on").contains(&own) && problem("HTTP on").contains(held),
            "{}",
            problem("HTTP on")
        );
        assert!(problem("boot loaders").contains("undionly.kpxe and snponly.efi"));
        let table = Table(&findings).to_string();
        assert!(
            table.contains("FAIL  interface nosuch0") && table.contains("ok    data directory"),
            "{table}"
        );
    }
}
