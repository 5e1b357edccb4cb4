//! `basalt-rack check`: what this host lacks, before a machine finds out.

use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use crate::interfaces;
use crate::loaders::Loaders;
use crate::settings::Settings;

/// Capabilities that the rack needs, by their bit in `/proc/self/status` (capabilities(7)).
const CAPABILITIES: [(u32, &str, &str); 2] = [
    (10, "CAP_NET_BIND_SERVICE", "ports 67 and 69"),
    (13, "CAP_NET_RAW", "binding DHCP to its interface, and ICMPv6"),
];

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
        findings.push(udp("DHCP", address, settings.dhcp_port));
    }
    for address in dhcp.chain(settings.addresses.iter().copied()) {
        findings.push(udp("TFTP", address, settings.tftp_port));
        findings.push(tcp("HTTP", address, settings.http_port));
    }
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

fn udp(service: &str, address: Ipv4Addr, port: u16) -> Finding {
    taken(service, address, port, "udp", UdpSocket::bind((address, port)).map(drop))
}

fn tcp(service: &str, address: Ipv4Addr, port: u16) -> Finding {
    taken(service, address, port, "tcp", TcpListener::bind((address, port)).map(drop))
}

fn taken(service: &str, address: Ipv4Addr, port: u16, protocol: &str, bound: std::io::Result<()>) -> Finding {
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
