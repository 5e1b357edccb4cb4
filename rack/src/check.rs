//! `basalt-rack check`: what this host lacks, before a machine finds out. Each served interface is asked who else gives addresses there, and
//! no other network is.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use basalt_dhcp::BOOT_SERVER_PORT;
use basalt_dhcp::v6::SERVER_PORT as DHCP6_PORT;
use basalt_proto::rack_v1::{BootAnswers, DhcpConcern};
use ipnet::Ipv4Net;

use crate::concern::{Concern, Content, store};
use crate::dhcp::others::{self, Ask};
use crate::interfaces::{self, Served};
use crate::loaders::Loaders;
use crate::settings::Settings;

/// Capabilities that the rack needs, by their bit in `/proc/self/status` (capabilities(7)).
const CAPABILITIES: [(u32, &str, &str); 2] = [
    (10, "CAP_NET_BIND_SERVICE", "ports 67 and 69"),
    (13, "CAP_NET_RAW", "binding DHCP to its interface, and ICMPv6"),
];

/// How other DHCP servers are asked for: eight seconds in all, since dnsmasq takes three to look whether an address is free.
const ASK: Ask = Ask { tries: 2, patience: Duration::from_secs(4) };

/// One line of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub subject: String,
    /// `None`: as it should be. Otherwise what is wrong, and what to do.
    pub problem: Option<String>,
}

/// Looks at everything.
#[must_use]
pub fn check(settings: &Settings) -> Vec<Finding> {
    let mut findings = vec![data_dir(settings)];
    findings.extend(capabilities());
    let served = interfaces::served(&settings.interfaces).unwrap_or_default();
    for name in &settings.interfaces {
        let problem = served
            .iter()
            .all(|it| it.interface != *name)
            .then(|| "it is not there or has no IPv4 address; `ip addr` shows both".to_owned());
        findings.push(Finding { subject: format!("interface {name}"), problem });
    }
    let dhcp = served.iter().flat_map(|it| it.addresses.iter().copied());
    for address in dhcp.clone() {
        findings.push(udp("DHCP", address.into(), settings.dhcp_port));
        if settings.dhcp_port == basalt_dhcp::SERVER_PORT {
            findings.push(udp("proxyDHCP", address.into(), BOOT_SERVER_PORT));
        }
    }
    let six = interfaces::served6(&settings.interfaces).unwrap_or_default();
    for address in six.iter().flat_map(|it| &it.addresses) {
        findings.push(udp("DHCPv6", (*address).into(), DHCP6_PORT));
    }
    for address in dhcp.chain(settings.addresses.iter().copied()) {
        findings.push(udp("TFTP", address.into(), settings.tftp_port));
        findings.push(tcp("HTTP", address, settings.http_port));
    }
    findings.extend(others(settings, served));
    findings.push(loaders(settings));
    findings
}

/// The findings as a table.
#[derive(Debug)]
pub struct Table<'a>(pub &'a [Finding]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
        for Finding { subject, problem } in self.0 {
            match problem {
                None => writeln!(f, "ok    {subject}")?,
                Some(problem) => writeln!(f, "FAIL  {subject:width$}  {problem}")?,
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
    Finding { subject: format!("data directory {}", settings.data_dir.display()), problem }
}

fn capabilities() -> Vec<Finding> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    let finding = |(bit, name, purpose): (u32, &str, &str)| Finding {
        subject: format!("capability {name}"),
        problem: (bits >> bit & 1 == 0)
            .then(|| format!("missing, for {purpose}; run as root, or with AmbientCapabilities={name}")),
    };
    CAPABILITIES.into_iter().map(finding).collect()
}

fn udp(service: &str, address: IpAddr, port: u16) -> Finding {
    taken(service, address, port, "udp", UdpSocket::bind((address, port)).map(drop))
}

fn tcp(service: &str, address: Ipv4Addr, port: u16) -> Finding {
    taken(service, address.into(), port, "tcp", TcpListener::bind((address, port)).map(drop))
}

/// Who else gives addresses on each interface.
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
            vec![Finding { subject: "other DHCP servers".to_owned(), problem: Some(error.to_string()) }]
        }
    }
}

/// The networks where the region says that another server gives the addresses.
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
    Finding { subject, problem }
}

fn taken(service: &str, address: IpAddr, port: u16, protocol: &str, bound: io::Result<()>) -> Finding {
    let problem = bound.err().map(|error| {
        let option = if protocol == "udp" { 'u' } else { 't' };
        format!(
            "{error}; `ss -lnp{option}` shows who has it: another server, or this rack if it runs already"
        )
    });
    Finding { subject: format!("{service} on {} ({protocol})", SocketAddr::from((address, port))), problem }
}

fn loaders(settings: &Settings) -> Finding {
    let missing = Loaders::new(&settings.loader_dir).missing();
    let problem = (!missing.is_empty()).then(|| {
        format!(
            "{} not there; install the package `ipxe`, or name another --loader-dir",
            missing.join(" and ")
        )
    });
    Finding { subject: format!("boot loaders in {}", settings.loader_dir.display()), problem }
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
        assert!(problem("interface nosuch0").contains("ip addr"));
        assert!(problem("HTTP on").contains("ss -lnpt"));
        assert!(problem("boot loaders").contains("undionly.kpxe and snponly.efi"));
        let table = Table(&findings).to_string();
        assert!(
            table.contains("FAIL  interface nosuch0") && table.contains("ok    data directory"),
            "{table}"
        );
    }
}
