//! The configuration of Squid for the proxy of a rack or a region. It is a pure function, so equal settings give equal
//! text.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

/// Networks that the proxy never connects to: this host, its links, and multicast groups.
const NEVER: [&str; 9] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "::/128",
    "::1/128",
    "fe80::/10",
    "ff00::/8",
];

/// How long answers are kept; the first matching pattern counts. The numbers are: least minutes, percent of the age,
/// most minutes.
///
/// A path by hash, or a package, never changes its content. The lists of a repository change together, so each use asks
/// the server if they have changed. Otherwise a new list of files could name old packages, and an old signature (`.asc`,
/// `.key`) would not fit new metadata. Archives that are not packages may change under the same name.
const FRESHNESS: [&str; 4] = [
    r"-i /(by-hash/|repodata/[0-9a-f]{32,128}-) 129600 100% 129600",
    r"/(InRelease|Release(\.gpg)?|repomd\.xml(\.asc|\.key)?|(Packages|Sources|Contents-[^/]*|Translation-[^/]*)(\.(gz|xz|bz2|zst))?)$ 0 0% 0 refresh-ims",
    r"-i (\.(deb|udeb|rpm|drpm)|/pool/.*\.(tar|xz|zst|gz|bz2))$ 129600 100% 129600",
    r". 0 20% 4320",
];

/// The most connections of one client address. apt and dnf open fewer than twenty.
pub const CONNECTIONS_OF_ONE: u32 = 64;

/// A line of the access log: time, milliseconds, client, status, bytes, method, URL, origin. Clients choose method and URL, so
/// these are cut.
const LOG_LINE: &str = "%ts.%03tu %6tr %>a %Ss/%03>Hs %<st %.16rm %.256ru %Sh/%<a";

/// Ports of destinations. TLS tunnels may only go to the first one.
const PORTS: &str = "443 80 1024-65535";

/// A proxy that this proxy asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Its name or address, without brackets.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
}

impl Parent {
    /// Parses `http://HOST:PORT`. `None`: the text is no such URL.
    #[must_use]
    pub fn parse(url: &str) -> Option<Self> {
        let authority = url.strip_prefix("http://")?.trim_end_matches('/');
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map(|(host, port)| (host, port.strip_prefix(':')))?,
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
        (!host.is_empty() && host.chars().all(is_host)).then_some(())?;
        let port = port.map_or(Ok(80), str::parse).ok()?;
        Some(Self { host: host.to_owned(), port })
    }
}

/// All inputs of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The name that error pages show.
    pub name: String,
    /// The addresses and port that clients connect to.
    pub listen: Vec<SocketAddr>,
    /// Networks whose hosts are served.
    pub clients: Vec<IpNet>,
    /// The most connections of one client address. `None`: no limit, since all clients come from one address.
    pub connections_of_one: Option<u32>,
    /// Networks that are forbidden as destinations.
    pub denied: Vec<IpNet>,
    /// The proxies that are asked instead of the servers, in this order.
    pub parents: Vec<Parent>,
    /// True: if no parent answers, or there is none, ask the servers.
    pub direct: bool,
    /// The directory for cache and logs.
    pub dir: PathBuf,
    /// The size of the cache on disk, in MiB; 0: nothing is kept on disk.
    pub cache_mib: u64,
}

impl Wanted {
    /// All networks that are forbidden as destinations: this host's, and these.
    #[must_use]
    pub fn denied(further: impl IntoIterator<Item = IpNet>) -> Vec<IpNet> {
        let never = NEVER.iter().filter_map(|it| it.parse().ok());
        let all: Vec<IpNet> =
            never.chain(own_addresses().into_iter().map(IpNet::from)).chain(further).collect();
        IpNet::aggregate(&all)
    }

    /// The text of `squid.conf`.
    #[must_use]
    pub fn render(&self) -> String {
        let Self { name, listen, clients, connections_of_one, denied, parents, direct, dir, cache_mib } =
            self;
        let dir = dir.display();
        let on_disk = match cache_mib {
            0 => String::new(),
            size => format!("cache_dir aufs {dir}/cache {size} 16 256\n"),
        };
        let mut text = String::from("# Written by Basalt, which replaces it.\n");
        let mut line = |words: &dyn std::fmt::Display| {
            // Writing into a String cannot fail.
            let _ = writeln!(text, "{words}");
        };
        line(&format_args!("visible_hostname {name}"));
        for at in listen {
            line(&format_args!("http_port {at}"));
        }
        for net in clients {
            line(&format_args!("acl clients src {net}"));
        }
        if let Some(most) = connections_of_one {
            line(&format_args!("client_ip_max_connections {most}"));
        }
        // By default, a connection without a request lasts five minutes.
        line(&"request_start_timeout 20 seconds\nrequest_timeout 30 seconds");
        for net in denied {
            line(&format_args!("acl inside dst {net}"));
        }
        line(&format_args!("acl web port {PORTS}\nacl tls port 443\nacl tunnel method CONNECT"));
        // Rules that need the lookup of a destination's name come last.
        for rule in
            ["deny !clients", "deny manager", "deny !web", "deny tunnel !tls", "deny inside", "allow clients"]
        {
            line(&format_args!("http_access {rule}"));
        }
        line(&"http_access deny all");
        for (place, Parent { host, port }) in parents.iter().enumerate() {
            line(&format_args!(
                "cache_peer {host} parent {port} 0 name=parent{place} no-query no-digest default connect-timeout=3 connect-fail-limit=3"
            ));
        }
        match (parents.is_empty(), direct) {
            (_, false) => line(&"never_direct allow all"),
            (false, true) => line(&"prefer_direct off\nnonhierarchical_direct off"),
            (true, true) => {}
        }
        if !parents.is_empty() {
            // Each idle connection to a region has one of the places that the region has for racks.
            line(&"server_idle_pconn_timeout 5 seconds");
        }
        // The largest object size only applies to cache_dir lines below it.
        line(&format_args!(
            "maximum_object_size 8 GB\n{on_disk}cache_mem 64 MB\nmaximum_object_size_in_memory 1 MB"
        ));
        line(
            &"collapsed_forwarding on\nrange_offset_limit none\nquick_abort_min 64 MB\nquick_abort_max 512 MB\nquick_abort_pct 50",
        );
        for pattern in FRESHNESS {
            line(&format_args!("refresh_pattern {pattern}"));
        }
        // Without on-error, Squid ends when its disk is full.
        line(&format_args!(
            "logformat short {LOG_LINE}\naccess_log stdio:{dir}/access.log logformat=short on-error=drop\ncache_log {dir}/cache.log\ncache_store_log none\nlogfile_rotate 0\npid_filename none\n\
             coredump_dir {dir}"
        ));
        line(
            &"via off\nforwarded_for delete\nhttpd_suppress_version_string on\npinger_enable off\nshutdown_lifetime 1 second\n\
              dns_timeout 10 seconds\nconnect_timeout 10 seconds",
        );
        text
    }
}

/// Every address of this host.
fn own_addresses() -> Vec<IpAddr> {
    let found = nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(|it| it.address);
    let address = |it: nix::sys::socket::SockaddrStorage| {
        let four = it.as_sockaddr_in().map(|it| IpAddr::from(it.ip()));
        four.or_else(|| it.as_sockaddr_in6().map(|it| it.ip().into()))
    };
    found.filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(nets: &[&str]) -> Vec<IpNet> {
        nets.iter().map(|net| net.parse().unwrap()).collect()
    }

    #[test]
    fn this_host_its_links_and_the_given_networks_are_forbidden_destinations() {
        let denied = Wanted::denied(nets(&["10.9.0.0/24", "10.8.0.9/32"]));
        for address in ["10.9.0.7", "10.8.0.9", "127.0.0.53", "169.254.169.254", "::1", "fe80::1", "0.0.0.0"]
        {
            let address: IpAddr = address.parse().unwrap();
            assert!(denied.iter().any(|net| net.contains(&address)), "{address}");
        }
    }

    #[test]
    fn a_parent_is_a_host_and_a_port() {
        let parsed = |url: &str| Parent::parse(url).map(|it| (it.host, it.port));
        let some = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(parsed("http://proxy.example.com:3128"), some("proxy.example.com", 3128));
        assert_eq!(parsed("http://192.0.2.1/"), some("192.0.2.1", 80));
        assert_eq!(parsed("http://[2001:db8::1]:3128/"), some("2001:db8::1", 3128));
        for wrong in
            ["https://proxy", "http://", "http://a b:1", "http://a:1\nhttp_access allow all", "http://a:x"]
        {
            assert_eq!(parsed(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_file_serves_clients_alone_and_asks_the_upstream_for_everything() {
        let wanted = Wanted {
            name: "rack-1".into(),
            listen: vec!["10.77.0.2:8000".parse().unwrap(), "[2001:db8::2]:8000".parse().unwrap()],
            clients: nets(&["10.77.0.0/24"]),
            connections_of_one: Some(CONNECTIONS_OF_ONE),
            denied: nets(&["127.0.0.0/8"]),
            parents: vec![Parent::parse("http://proxy.example.com:3128").unwrap()],
            direct: false,
            dir: "/var/lib/basalt-rack/proxy".into(),
            cache_mib: 512,
        };
        insta::assert_snapshot!(wanted.render());
        let both = Wanted { direct: true, ..wanted.clone() }.render();
        assert!(both.contains("cache_peer") && both.contains("\nprefer_direct off\n"), "{both}");
        assert!(!both.contains("never_direct"), "{both}");
        let alone = Wanted { parents: Vec::new(), direct: true, ..wanted.clone() }.render();
        assert!(!alone.contains("cache_peer") && !alone.contains("direct"), "{alone}");
        let relayed = Wanted { connections_of_one: None, ..wanted }.render();
        assert!(!relayed.contains("client_ip_max_connections"), "{relayed}");
    }
}
