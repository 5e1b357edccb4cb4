//! Tests the paths to the gateway, by echo requests, and to the rack, by TCP.

use std::net::{Ipv4Addr, Ipv6Addr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::root::Root;
use crate::{deadlines, tool};

/// The flag of a route by a gateway (`RTF_GATEWAY` of route.h).
const BY_GATEWAY: u32 = 0x2;

/// A default route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) interface: String,
    gateway: String,
}

impl Route {
    /// The default route of IPv4, or of IPv6 where IPv4 has none.
    pub(super) fn default_of(root: &Root) -> Option<Self> {
        Self::all(root).into_iter().next()
    }

    /// All default routes by gateways, those of IPv4 first.
    fn all(root: &Root) -> Vec<Self> {
        let v4 = root.text("proc/net/route").unwrap_or_default();
        let v6 = root.text("proc/net/ipv6_route").unwrap_or_default();
        v4.lines().filter_map(Self::v4).chain(v6.lines().filter_map(Self::v6)).collect()
    }

    /// A line of `/proc/net/route`: interface, destination, gateway, flags. Addresses are numbers in the machine's byte order.
    fn v4(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (interface, destination, gateway, flags) =
            (words.next()?, words.next()?, words.next()?, words.next()?);
        let mask = words.nth(3)?;
        let [destination, gateway, flags, mask] =
            [destination, gateway, flags, mask].map(|word| u32::from_str_radix(word, 16).ok());
        let is_default = destination == Some(0) && mask == Some(0) && flags? & BY_GATEWAY != 0;
        let gateway = Ipv4Addr::from(gateway?.to_ne_bytes());
        is_default.then(|| Self { interface: interface.to_owned(), gateway: gateway.to_string() })
    }

    /// A line of `/proc/net/ipv6_route`: destination, its length, source, its length, gateway, metric, two counters, flags, interface.
    fn v6(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [destination, length, _, _, gateway, _, _, _, flags, interface] = words.try_into().ok()?;
        let address = |word: &str| Some(Ipv6Addr::from(u128::from_str_radix(word, 16).ok()?));
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let is_default = address(destination)?.is_unspecified() && length == "00" && flags & BY_GATEWAY != 0;
        let gateway = address(gateway)?;
        let zone = if gateway.is_unicast_link_local() { format!("%{interface}") } else { String::new() };
        is_default.then(|| Self { interface: interface.to_owned(), gateway: format!("{gateway}{zone}") })
    }
}

/// The results for an interface.
#[derive(Debug, Default)]
pub(super) struct Reach {
    pub(super) gateway: Option<String>,
    pub(super) echo: Option<Echo>,
    /// The rack, and the time of a connection to it.
    pub(super) rack: Option<(String, Result<Duration, String>)>,
}

/// Answers to echo requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Echo {
    pub(super) lost_percent: f64,
    /// The mean time of an answer.
    pub(super) rtt_ms: Option<f64>,
}

/// Sends an echo request to the gateway each second, and connects to the rack once.
pub(super) fn of(root: &Root, interface: &str, rack: Option<&(String, u16)>, seconds: u64) -> Reach {
    let gateway = Route::all(root).into_iter().find(|route| route.interface == interface);
    let gateway = gateway.map(|route| route.gateway);
    let echo = gateway.as_ref().and_then(|gateway| {
        let count = seconds.to_string();
        let args = ["ping", "-q", "-c", &count, "-W", "1", "-I", interface, gateway];
        let ended = tool::answer("busybox", &args, Duration::from_secs(seconds + 30)).ok()?;
        echo(&ended.out)
    });
    let rack = rack.map(|(host, port)| (format!("{host}:{port}"), connect(host, *port)));
    Reach { gateway, echo, rack }
}

/// Parses the summary of busybox's ping.
fn echo(text: &str) -> Option<Echo> {
    let lost =
        text.lines().find_map(|line| line.split_once("% packet loss")?.0.rsplit(' ').next()?.parse().ok())?;
    let mean =
        text.lines().find_map(|line| line.split_once("min/avg/max = ")?.1.split('/').nth(1)?.parse().ok());
    Some(Echo { lost_percent: lost, rtt_ms: mean })
}

fn connect(host: &str, port: u16) -> Result<Duration, String> {
    let addresses =
        (host, port).to_socket_addrs().map_err(|error| format!("its name is not known: {error}"))?;
    let mut failure = "its name has no address".to_owned();
    for address in addresses {
        let began = Instant::now();
        match TcpStream::connect_timeout(&address, deadlines::CONNECT) {
            Ok(_) => return Ok(began.elapsed()),
            Err(error) => failure = format!("{address}: {error}"),
        }
    }
    Err(failure)
}

/// Host and port of an `https://` URL.
pub(super) fn host_and_port(url: &str) -> Option<(String, u16)> {
    let authority = url.strip_prefix("https://")?.split('/').next()?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, 443),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn default_routes_of_both_families_are_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/net")).unwrap();
        let root = Root::at(dir.path());
        assert_eq!(Route::default_of(&root), None);
        let address =
            |text: &str| format!("{:08X}", u32::from_ne_bytes(text.parse::<Ipv4Addr>().unwrap().octets()));
        let (gateway, net) = (address("10.77.0.254"), address("10.77.0.0"));
        let v4 = format!(
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\neth0\t{net}\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\neth1\t00000000\t{gateway}\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        );
        let zeroes = "0".repeat(32);
        let v6 = format!(
            "{zeroes} 00 {zeroes} 00 fe80000000000000505400fffe000001 00000400 00000001 00000000 00000003     eth0\n{zeroes} 00 {zeroes} 00 {zeroes} ffffffff 00000001 00000000 00200200       lo\n"
        );
        fs::write(dir.path().join("proc/net/ipv6_route"), v6).unwrap();
        let six = Route { interface: "eth0".to_owned(), gateway: "fe80::5054:ff:fe00:1%eth0".to_owned() };
        assert_eq!(Route::all(&root), std::slice::from_ref(&six));
        fs::write(dir.path().join("proc/net/route"), v4).unwrap();
        let four = Route { interface: "eth1".to_owned(), gateway: "10.77.0.254".to_owned() };
        assert_eq!(Route::default_of(&root).as_ref(), Some(&four));
        assert_eq!(Route::all(&root), [four, six]);
    }

    #[test]
    fn losses_and_times_of_ping_are_read() {
        let text = "PING 10.77.0.1 (10.77.0.1): 56 data bytes\n\n--- 10.77.0.1 ping statistics ---\n5 packets transmitted, 4 packets received, 20% packet loss\nround-trip min/avg/max = 0.085/0.123/0.163 ms\n";
        assert_eq!(echo(text), Some(Echo { lost_percent: 20.0, rtt_ms: Some(0.123) }));
        let text = "5 packets transmitted, 0 packets received, 100% packet loss\n";
        assert_eq!(echo(text), Some(Echo { lost_percent: 100.0, rtt_ms: None }));
        assert_eq!(echo("ping: bad address"), None);
    }

    #[test]
    fn a_rack_is_reached_by_its_url() {
        assert_eq!(host_and_port("https://10.77.0.1:5248"), Some(("10.77.0.1".to_owned(), 5248)));
        assert_eq!(host_and_port("https://[fd00::1]:5248/x"), Some(("fd00::1".to_owned(), 5248)));
        assert_eq!(host_and_port("https://rack-1.example.com"), Some(("rack-1.example.com".to_owned(), 443)));
        assert_eq!(host_and_port("https://[fd00::1]"), Some(("fd00::1".to_owned(), 443)));
        assert_eq!(host_and_port("https://x:no"), None);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(connect("127.0.0.1", port).is_ok());
        drop(listener);
        assert!(connect("127.0.0.1", port).unwrap_err().starts_with("127.0.0.1:"));
    }
}
