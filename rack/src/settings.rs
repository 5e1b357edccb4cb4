//! Settings: each has a flag, an environment variable and a key in a TOML file, in this order of precedence.

use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;

use crate::identity::Identity;
use crate::proxy;

/// The smallest useful cache, in bytes.
const MIN_CACHE: u64 = 64 << 20;

/// The settings as they are given: any of them may be missing.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Given {
    /// Directory for all of the rack's files
    #[arg(long, env = "BASALT_RACK_DATA_DIR", value_name = "DIR", global = true)]
    pub data_dir: Option<PathBuf>,
    /// A join token from a region; not needed again once the rack has joined
    #[arg(long, env = "BASALT_RACK_JOIN", value_name = "TOKEN", hide_env_values = true, global = true)]
    pub join: Option<String>,
    /// A file with the join token, which no list of processes shows; needed until the rack has joined
    #[arg(long, env = "BASALT_RACK_JOIN_FILE", value_name = "FILE", conflicts_with = "join", global = true)]
    pub join_file: Option<PathBuf>,
    /// The rack's name, a DNS label [default: the host's name]
    #[arg(long, env = "BASALT_RACK_NAME", value_name = "NAME", global = true)]
    pub name: Option<String>,
    /// An interface whose clients are served: DHCP, and TFTP, HTTP, DNS, NTP, syslog and the proxy on its addresses; may be repeated
    #[arg(long, env = "BASALT_RACK_INTERFACE", value_name = "IF", value_delimiter = ',', global = true)]
    pub interface: Option<Vec<String>>,
    /// A further address to serve TFTP, HTTP, DNS, NTP, syslog and the proxy on; may be repeated [default: 127.0.0.1 when there is no --interface]
    #[arg(long, env = "BASALT_RACK_ADDRESS", value_name = "ADDRESS", value_delimiter = ',', global = true)]
    pub address: Option<Vec<Ipv4Addr>>,
    /// Directory of the boot loaders [default: /usr/lib/ipxe]
    #[arg(long, env = "BASALT_RACK_LOADER_DIR", value_name = "DIR", global = true)]
    pub loader_dir: Option<PathBuf>,
    /// Port of HTTP, plain and TLS [default: 5248]
    #[arg(long, env = "BASALT_RACK_HTTP_PORT", value_name = "PORT", global = true)]
    pub http_port: Option<u16>,
    /// Port of the DHCP server [default: 67]
    #[arg(long, env = "BASALT_RACK_DHCP_PORT", value_name = "PORT", global = true)]
    pub dhcp_port: Option<u16>,
    /// Port of DHCP clients [default: 68]
    #[arg(long, env = "BASALT_RACK_DHCP_CLIENT_PORT", value_name = "PORT", global = true)]
    pub dhcp_client_port: Option<u16>,
    /// Port of TFTP [default: 69]
    #[arg(long, env = "BASALT_RACK_TFTP_PORT", value_name = "PORT", global = true)]
    pub tftp_port: Option<u16>,
    /// Port of DNS, UDP and TCP [default: 53]
    #[arg(long, env = "BASALT_RACK_DNS_PORT", value_name = "PORT", global = true)]
    pub dns_port: Option<u16>,
    /// Port of NTP [default: 123]
    #[arg(long, env = "BASALT_RACK_NTP_PORT", value_name = "PORT", global = true)]
    pub ntp_port: Option<u16>,
    /// Port of syslog, UDP and TCP; may be repeated [default: 5247 and 514]
    #[arg(long, env = "BASALT_RACK_SYSLOG_PORT", value_name = "PORT", value_delimiter = ',', global = true)]
    pub syslog_port: Option<Vec<u16>>,
    /// Port of the caching HTTP proxy [default: 8000]
    #[arg(long, env = "BASALT_RACK_PROXY_PORT", value_name = "PORT", global = true)]
    pub proxy_port: Option<u16>,
    /// The program Squid, which serves the proxy [default: /usr/sbin/squid or /usr/bin/squid]
    #[arg(long, env = "BASALT_RACK_PROXY_PROGRAM", value_name = "FILE", global = true)]
    pub proxy_program: Option<PathBuf>,
    /// Directory of the proxy with its cache and logs [default: `proxy` in the data directory; /var/cache/basalt-proxy of a rack that runs as root]
    #[arg(long, env = "BASALT_RACK_PROXY_DIR", value_name = "DIR", global = true)]
    pub proxy_dir: Option<PathBuf>,
    /// The largest size of the proxy's cache on disk, like 800MiB, 50GiB or 2TiB [default: 10GiB, or a tenth of the free disk if that is less]
    #[arg(long, env = "BASALT_RACK_PROXY_SIZE", value_name = "SIZE", global = true)]
    pub proxy_size: Option<String>,
    /// Tell machines on served interfaces without an IPv6 router that there is none: otherwise iPXE waits 16 seconds for a router [default: true]
    #[arg(long, env = "BASALT_RACK_ROUTER_ADVERTISEMENTS", value_name = "BOOL", global = true)]
    pub router_advertisements: Option<bool>,
    /// The largest size of undelivered facts on disk, in MiB [default: 256]
    #[arg(long, env = "BASALT_RACK_SPOOL_MIB", value_name = "MIB", global = true)]
    pub spool_mib: Option<u64>,
    /// The largest size of log lines on disk, in MiB [default: 1024, or a twentieth of the disk if that is less]
    #[arg(long, env = "BASALT_RACK_LOG_MIB", value_name = "MIB", global = true)]
    pub log_mib: Option<u64>,
    /// The largest size of cached images on disk, like 800MiB, 50GiB or 2TiB [default: 50GiB, or half of the free disk if that is less]
    #[arg(long, env = "BASALT_RACK_CACHE_SIZE", value_name = "SIZE", global = true)]
    pub cache_size: Option<String>,
    /// Images sent at once over HTTP; further machines wait for their turn [default: 32]
    #[arg(long, env = "BASALT_RACK_HTTP_BODIES", value_name = "NUMBER", global = true)]
    pub http_bodies: Option<u16>,
    /// Address and port of /metrics, over plain HTTP; machines must not be able to reach it, so for example 127.0.0.1:5249 [default: none]
    #[arg(long, env = "BASALT_RACK_METRICS", value_name = "ADDRESS:PORT", global = true)]
    pub metrics: Option<SocketAddr>,
    /// Level of the log: error, warn, info, debug, trace, or filters like basalt_rack::dhcp=debug [default: info]
    #[arg(long, env = "BASALT_RACK_LOG", value_name = "FILTER", global = true)]
    pub log: Option<String>,
}

/// The settings in force.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The directory for all of the rack's files.
    pub data_dir: PathBuf,
    /// A join token from a region, for a rack that has not joined.
    pub join: Option<String>,
    /// The name of the rack, a DNS label.
    pub name: String,
    /// The interfaces whose clients are served, with DHCP.
    pub interfaces: Vec<String>,
    /// Further addresses for the services other than DHCP.
    pub addresses: Vec<Ipv4Addr>,
    /// The directory of the boot loaders.
    pub loader_dir: PathBuf,
    /// The port of HTTP, plain and TLS.
    pub http_port: u16,
    /// The port of the DHCP server.
    pub dhcp_port: u16,
    /// The port of DHCP clients.
    pub dhcp_client_port: u16,
    /// The port of TFTP.
    pub tftp_port: u16,
    /// Port of DNS, UDP and TCP.
    pub dns_port: u16,
    /// The port of NTP. Clients only ask port 123.
    pub ntp_port: u16,
    /// The ports of syslog, UDP and TCP.
    pub syslog_port: Vec<u16>,
    /// The settings of the caching HTTP proxy.
    pub proxy: proxy::Options,
    /// True if Router Solicitations are answered with "no router".
    pub router_advertisements: bool,
    /// The most bytes of the spool.
    pub spool_bytes: u64,
    /// The most bytes of stored log lines.
    pub log_bytes: u64,
    /// The most bytes of cached blobs; `None`: decided by the free disk.
    pub cache_bytes: Option<u64>,
    /// The most large bodies that are sent at once.
    pub http_bodies: usize,
    /// The address and port of /metrics, if it is served.
    pub metrics: Option<SocketAddr>,
    /// The log filter, as of `tracing_subscriber`.
    pub log: String,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSetting {
    /// The key of the setting. The names of its flag and environment variable follow from it.
    pub key: &'static str,
    /// The fault and its remedy, as text.
    pub problem: String,
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flag, variable) = (self.key.replace('_', "-"), self.key.to_ascii_uppercase());
        write!(
            f,
            "setting {} (--{flag}, BASALT_RACK_{variable}, or `{}` in the file): {}",
            self.key, self.key, self.problem
        )
    }
}

impl std::error::Error for BadSetting {}

/// Reads a TOML file.
///
/// # Errors
/// The file cannot be read, or has an unknown key.
pub fn file(path: &Path) -> Result<Given, BadSetting> {
    let bad =
        |problem: String| BadSetting { key: "config", problem: format!("{}: {problem}", path.display()) };
    let text = fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    toml::from_str(&text).map_err(|error| bad(error.to_string()))
}

impl Given {
    /// These settings, completed with those of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            data_dir: self.data_dir.or(other.data_dir),
            join: self.join.or_else(|| other.join.filter(|_| self.join_file.is_none())),
            join_file: self.join_file.or(other.join_file),
            name: self.name.or(other.name),
            interface: self.interface.or(other.interface),
            address: self.address.or(other.address),
            loader_dir: self.loader_dir.or(other.loader_dir),
            http_port: self.http_port.or(other.http_port),
            dhcp_port: self.dhcp_port.or(other.dhcp_port),
            dhcp_client_port: self.dhcp_client_port.or(other.dhcp_client_port),
            tftp_port: self.tftp_port.or(other.tftp_port),
            dns_port: self.dns_port.or(other.dns_port),
            ntp_port: self.ntp_port.or(other.ntp_port),
            syslog_port: self.syslog_port.or(other.syslog_port),
            proxy_port: self.proxy_port.or(other.proxy_port),
            proxy_program: self.proxy_program.or(other.proxy_program),
            proxy_dir: self.proxy_dir.or(other.proxy_dir),
            proxy_size: self.proxy_size.or(other.proxy_size),
            router_advertisements: self.router_advertisements.or(other.router_advertisements),
            spool_mib: self.spool_mib.or(other.spool_mib),
            log_mib: self.log_mib.or(other.log_mib),
            cache_size: self.cache_size.or(other.cache_size),
            http_bodies: self.http_bodies.or(other.http_bodies),
            metrics: self.metrics.or(other.metrics),
            log: self.log.or(other.log),
        }
    }

    /// Fills in defaults and checks all settings.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn settle(self) -> Result<Settings, BadSetting> {
        let data_dir = self.data_dir()?;
        let name = self.name.unwrap_or_else(host_name);
        if !is_dns_label(&name) {
            let problem =
                format!("{name:?} is not a DNS label: 1 to 63 of a-z, 0-9 and -, and no - at either end");
            return Err(BadSetting { key: "name", problem });
        }
        let interfaces = self.interface.unwrap_or_default();
        if let Some(bad) = interfaces.iter().find(|name| name.is_empty() || name.len() > 15) {
            let problem = format!("{bad:?} is not an interface name; `ip link` lists them");
            return Err(BadSetting { key: "interface", problem });
        }
        let addresses = match self.address {
            Some(addresses) => addresses,
            None if interfaces.is_empty() => vec![Ipv4Addr::LOCALHOST],
            None => Vec::new(),
        };
        if let Some(bad) = addresses.iter().find(|address| address.is_unspecified() || address.is_broadcast())
        {
            let problem =
                format!("{bad} is not an address of this host; name the addresses to serve, one by one");
            return Err(BadSetting { key: "address", problem });
        }
        let (key, join) = match (self.join, &self.join_file) {
            (None, Some(path)) => ("join_file", join_token(path, &data_dir)?),
            (join, _) => ("join", join),
        };
        if let Some(join) = &join {
            crate::link::join::JoinToken::parse(join)
                .map_err(|error| BadSetting { key, problem: error.to_string() })?;
        }
        let port = |key, given: Option<u16>, default| match given.unwrap_or(default) {
            0 => Err(BadSetting { key, problem: "port 0 does not exist; use 1 to 65535".to_owned() }),
            port => Ok(port),
        };
        let spool_mib = self.spool_mib.unwrap_or(256);
        if !(8..=1 << 20).contains(&spool_mib) {
            return Err(BadSetting {
                key: "spool_mib",
                problem: format!("{spool_mib} MiB is not between 8 and 1048576"),
            });
        }
        let log_mib = self.log_mib.unwrap_or(1024);
        if !(8..=1 << 20).contains(&log_mib) {
            return Err(BadSetting {
                key: "log_mib",
                problem: format!("{log_mib} MiB is not between 8 and 1048576"),
            });
        }
        let size = |key, given: Option<String>| {
            given.map(|size| bytes(&size).map_err(|problem| BadSetting { key, problem })).transpose()
        };
        let cache_bytes = size("cache_size", self.cache_size)?;
        let proxy = proxy::Options {
            port: port("proxy_port", self.proxy_port, 8000)?,
            program: self.proxy_program,
            dir: self.proxy_dir.unwrap_or_else(|| proxy_dir(&data_dir)),
            cache_bytes: size("proxy_size", self.proxy_size)?,
            name: name.clone(),
        };
        let http_bodies = usize::from(self.http_bodies.unwrap_or(32));
        if !(1..=1024).contains(&http_bodies) {
            let problem = format!("{http_bodies} is not between 1 and 1024");
            return Err(BadSetting { key: "http_bodies", problem });
        }
        if let Some(bad) = self.metrics.filter(|address| address.port() == 0) {
            let problem = format!("port 0 of {bad} does not exist; use 1 to 65535");
            return Err(BadSetting { key: "metrics", problem });
        }
        let log = self.log.unwrap_or_else(|| "info".to_owned());
        log.parse::<tracing_subscriber::EnvFilter>()
            .map_err(|error| BadSetting { key: "log", problem: format!("{log:?}: {error}") })?;
        Ok(Settings {
            data_dir,
            join,
            name,
            interfaces,
            addresses,
            loader_dir: self.loader_dir.unwrap_or_else(|| PathBuf::from("/usr/lib/ipxe")),
            http_port: port("http_port", self.http_port, 5248)?,
            dhcp_port: port("dhcp_port", self.dhcp_port, 67)?,
            dhcp_client_port: port("dhcp_client_port", self.dhcp_client_port, 68)?,
            tftp_port: port("tftp_port", self.tftp_port, 69)?,
            dns_port: port("dns_port", self.dns_port, 53)?,
            ntp_port: port("ntp_port", self.ntp_port, basalt_ntp::PORT)?,
            syslog_port: (self.syslog_port.unwrap_or_else(|| vec![5247, basalt_syslog::PORT]).into_iter())
                .map(|it| port("syslog_port", Some(it), it))
                .collect::<Result<_, _>>()?,
            proxy,
            router_advertisements: self.router_advertisements.unwrap_or(true),
            spool_bytes: spool_mib << 20,
            log_bytes: log_mib << 20,
            cache_bytes,
            http_bodies,
            metrics: self.metrics,
            log,
        })
    }

    /// The data directory only.
    ///
    /// # Errors
    /// The setting is missing.
    pub fn data_dir(&self) -> Result<PathBuf, BadSetting> {
        let missing = || BadSetting { key: "data_dir", problem: "it is needed; name a directory".to_owned() };
        self.data_dir.clone().filter(|dir| !dir.as_os_str().is_empty()).ok_or_else(missing)
    }
}

/// Reads the join token from a file. A rack that has joined does not need it, so the file may be absent.
fn join_token(path: &Path, data_dir: &Path) -> Result<Option<String>, BadSetting> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound && Identity::has_joined(data_dir) => Ok(None),
        Err(error) => {
            let problem =
                format!("{}: {error}; write the output of `basalt rack join-token` there", path.display());
            Err(BadSetting { key: "join_file", problem })
        }
    }
}

/// Reads a size in binary units.
fn bytes(size: &str) -> Result<u64, String> {
    let units = [("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let read = units.iter().find_map(|(unit, shift)| {
        let count: u64 = size.strip_suffix(unit)?.trim_end().parse().ok()?;
        count.checked_mul(1 << shift)
    });
    match read {
        None => Err(format!("{size:?} is not a size; write it as 800MiB, 50GiB or 2TiB")),
        Some(bytes) if bytes < MIN_CACHE => {
            Err(format!("{size} is too little for an image; use at least {}MiB", MIN_CACHE >> 20))
        }
        Some(bytes) => Ok(bytes),
    }
}

/// The default directory of the proxy. If the rack runs as root, the proxy runs as another account, which cannot open
/// the data directory.
fn proxy_dir(data_dir: &Path) -> PathBuf {
    match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/var/cache/basalt-proxy"),
        false => data_dir.join("proxy"),
    }
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().split('.').next().unwrap_or_default().to_ascii_lowercase()
}

fn is_dns_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given() -> Given {
        Given { data_dir: Some("/data".into()), name: Some("rack-1".into()), ..Given::default() }
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        let settings = given().settle().unwrap();
        let Settings { http_port, dhcp_port, dhcp_client_port, tftp_port, dns_port, ntp_port, .. } = settings;
        assert_eq!((http_port, dhcp_port, dhcp_client_port, tftp_port), (5248, 67, 68, 69));
        assert_eq!((dns_port, ntp_port), (53, 123));
        assert_eq!(settings.addresses, [Ipv4Addr::LOCALHOST]);
        assert!(settings.router_advertisements);
        assert_eq!(settings.cache_bytes, None);
        let with_interface = Given { interface: Some(vec!["br0".into()]), ..given() }.settle().unwrap();
        assert!(with_interface.addresses.is_empty());
    }

    /// Ports in the table of the install guide: `5247 UDP, 514 TCP` as (5247, "UDP") and (514, "TCP").
    fn documented_ports() -> Vec<(u16, &'static str)> {
        let guide = include_str!("../../docs/guides/install.md");
        let table = guide.split("\n## Ports\n").nth(1).unwrap().split("\n## ").next().unwrap();
        let cells = table.lines().filter_map(|line| line.split('|').nth(3));
        let ports = cells.flat_map(|cell| cell.split(',')).filter_map(|port| port.trim().split_once(' '));
        ports.filter_map(|(port, protocol)| Some((port.parse().ok()?, protocol))).collect()
    }

    #[test]
    fn the_install_guide_names_the_default_of_every_port() {
        let settings = given().settle().unwrap();
        let of = |key: &str| match key {
            "http_port" => vec![(settings.http_port, "TCP")],
            "dhcp_port" => vec![(settings.dhcp_port, "UDP")],
            "dhcp_client_port" => vec![(settings.dhcp_client_port, "UDP")],
            "tftp_port" => vec![(settings.tftp_port, "UDP")],
            "dns_port" => vec![(settings.dns_port, "UDP"), (settings.dns_port, "TCP")],
            "ntp_port" => vec![(settings.ntp_port, "UDP")],
            "syslog_port" => {
                settings.syslog_port.iter().flat_map(|port| [(*port, "UDP"), (*port, "TCP")]).collect()
            }
            "proxy_port" => vec![(settings.proxy.port, "TCP")],
            key => panic!("no port is known of the setting {key}"),
        };
        let command = Given::augment_args(clap::Command::new("rack"));
        let keys = command.get_arguments().map(|argument| argument.get_id().as_str());
        let mut ports: Vec<_> = keys.filter(|key| key.ends_with("_port")).flat_map(of).collect();
        // These have no setting: clients cannot be told of others.
        ports.extend([(basalt_dhcp::v6::SERVER_PORT, "UDP"), (basalt_dhcp::v6::CLIENT_PORT, "UDP")]);
        assert!(ports.len() >= 14, "{ports:?}");
        let documented = documented_ports();
        let missing: Vec<_> = ports.iter().filter(|port| !documented.contains(port)).collect();
        assert!(missing.is_empty(), "{missing:?} are not in the table of docs/guides/install.md");
    }

    #[test]
    fn what_is_given_first_wins_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rack.toml");
        fs::write(&path, "name = \"file\"\nhttp_port = 8080\ninterface = [\"eth0\"]\n").unwrap();
        let settings = given().or(file(&path).unwrap()).settle().unwrap();
        assert_eq!(
            (settings.name.as_str(), settings.http_port, settings.interfaces),
            ("rack-1", 8080, vec!["eth0".to_owned()])
        );
    }

    #[test]
    fn a_join_token_comes_from_a_file_which_may_be_gone_once_the_rack_has_joined() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = crate::link::join::JoinToken {
            urls: vec!["https://10.0.0.1:5250".into()],
            ca_sha256: "a".repeat(64),
            secret: "s".into(),
        };
        let given = || Given { data_dir: Some(dir.path().into()), join_file: Some(path.clone()), ..given() };
        let message = || given().settle().unwrap_err().to_string();
        assert!(message().contains("--join-file") && message().contains("join-token"), "{}", message());
        fs::write(&path, "nonsense!\n").unwrap();
        assert!(message().contains("setting join_file"), "{}", message());
        fs::write(&path, format!("{}\n", token.render())).unwrap();
        assert_eq!(given().settle().unwrap().join, Some(token.render()));
        fs::remove_file(&path).unwrap();
        fs::create_dir(dir.path().join("identity")).unwrap();
        fs::write(dir.path().join("identity/rack.json"), "{}").unwrap();
        assert_eq!(given().settle().unwrap().join, None);
    }

    #[test]
    fn a_bad_setting_is_named_with_all_its_spellings() {
        let message = |given: Given| given.settle().unwrap_err().to_string();
        let zero = message(Given { http_port: Some(0), ..given() });
        assert!(
            zero.starts_with(
                "setting http_port (--http-port, BASALT_RACK_HTTP_PORT, or `http_port` in the file)"
            ),
            "{zero}"
        );
        assert!(
            message(Given { name: Some("Rack_1".into()), ..given() })
                .contains("\"Rack_1\" is not a DNS label")
        );
        assert!(message(Given { data_dir: None, ..given() }).contains("data_dir"));
        assert!(message(Given { join: Some("x".into()), ..given() }).contains("setting join"));
        assert!(message(Given { log: Some("basalt=loud".into()), ..given() }).contains("setting log"));
        assert!(message(Given { address: Some(vec![Ipv4Addr::UNSPECIFIED]), ..given() }).contains("0.0.0.0"));
        let cache = |size: &str| Given { cache_size: Some(size.into()), ..given() };
        assert_eq!(cache("2 GiB").settle().unwrap().cache_bytes, Some(2 << 30));
        for (size, word) in
            [("50GB", "50GiB"), ("-1GiB", "50GiB"), ("99999999TiB", "50GiB"), ("1MiB", "64MiB")]
        {
            let said = message(cache(size));
            assert!(said.contains("--cache-size") && said.contains(word), "{said}");
        }
        assert!(message(Given { http_bodies: Some(0), ..given() }).contains("setting http_bodies"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rack.toml");
        fs::write(&path, "htp_port = 1\n").unwrap();
        assert!(file(&path).unwrap_err().to_string().contains("htp_port"));
    }
}
