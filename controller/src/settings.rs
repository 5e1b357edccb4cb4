//! The settings of a region. Each has a flag, an environment variable (`BASALT_…`) and a key in the TOML file; they win in this order.

use crate::api::CertificateFiles;
use basalt_api::values::{ByteSize, Cidr, Duration as Span};
use basalt_proto::open_files;
use basalt_proto::places::Limits;
use basalt_proto::region::address_of_url;
use clap::{Parser, Subcommand};
use serde::Deserialize;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The default limit of API connections, if this process may open enough files.
const API_CONNECTIONS: usize = 4096;

/// The settings of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The directory of all data of this region, except for the data in an outside PostgreSQL.
    pub data_dir: PathBuf,
    /// The URL of an outside PostgreSQL. `None`: the region runs its own.
    pub database_url: Option<String>,
    /// The address on which the API listens.
    pub listen: SocketAddr,
    /// The address on which the region listens for racks.
    pub rpc_listen: SocketAddr,
    /// True to answer over plain HTTP to clients on other hosts.
    pub allow_plaintext: bool,
    /// The API's certificate for TLS, and its key.
    pub tls: Option<CertificateFiles>,
    /// The file with the key that seals secrets, 64 hexadecimal digits. `None`: DIR/seal-key.
    pub seal_key_file: Option<PathBuf>,
    /// The account that PostgreSQL runs as, when the region is root.
    pub postgres_user: Option<String>,
    /// The largest number of connections to PostgreSQL.
    pub connections: u32,
    /// The region processes in join tokens, `https://HOST:PORT`. Empty: this process alone.
    pub join_urls: Vec<String>,
    /// The address at which racks dial this process, `HOST:PORT`. `None`: an entry of `join_urls`, found by dialling.
    pub rpc_url: Option<String>,
    /// The divisor of every deadline, for simulated machines, whose firmware takes no minutes.
    pub deadline_divisor: u32,
    /// How long a client may take to send the head of a request, or the next piece of its body.
    pub client_timeout: Duration,
    /// The largest number of connections to the API. `None`: as many as the limit of open files allows.
    pub api_connections: Option<u32>,
    /// The largest number of connections of one client. `None`: an eighth of all.
    pub api_connections_per_client: Option<u32>,
    /// The interval of bookmarks in a quiet watch.
    pub watch_bookmark: Duration,
    /// The number of bytes that may wait for one watch. A slower reader is disconnected.
    pub watch_buffer: usize,
    /// How long changes are kept, from which watches resume.
    pub change_retention: Duration,
    /// About how many changes are kept at most.
    pub change_rows: u32,
    /// The largest blob that is taken, in bytes.
    pub blob_bytes: u64,
    /// How long a blob is kept that no Image names.
    pub blob_retention: Duration,
    /// The networks in which webhooks may be. Empty: everywhere except this host and its links.
    pub webhook_networks: Vec<Cidr>,
    /// How long one request to a webhook may take.
    pub webhook_timeout: Duration,
    /// How long a delivery is retried before it becomes a dead letter.
    pub webhook_patience: Duration,
    /// The directory of the Terraform provider that this region serves. `None`: the directory of its own program.
    pub provider_dir: Option<PathBuf>,
    /// The program of the proxy for racks, Squid. `None`: where packages install it.
    pub proxy_program: Option<PathBuf>,
    /// The directory of the proxy with its cache and logs. `None`: `proxy` in the data directory, or
    /// /var/cache/basalt-region-proxy for a region that runs as root.
    pub proxy_dir: Option<PathBuf>,
    /// The size of the proxy's cache, in bytes. `None`: 10 GiB, or a tenth of the free disk if that is less.
    pub proxy_bytes: Option<u64>,
    /// The collector of traces. `None`: no spans are made.
    pub otlp_endpoint: Option<String>,
    /// The filter of the log, like `info,basalt_region=debug`.
    pub log: String,
    /// True for JSON, false for text. `None`: text on a terminal, or else JSON.
    pub log_json: Option<bool>,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// The reason why the settings are refused.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the file of the setting config, {path}", path = path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The file has a wrong form.
    #[error("{path}: {message}", path = path.display())]
    Parse {
        /// The path of the file.
        path: PathBuf,
        /// The error, with its line.
        message: String,
    },
    /// A setting without a default is missing.
    #[error("the setting {0} is missing: give --{0}, or {1}, or {0} in the file of --config")]
    Missing(&'static str, &'static str),
    /// Racks cannot dial the URL of a setting.
    #[error(
        "the setting {setting} names {url:?}, where no rack finds a region; write it as https://ADDRESS:5250"
    )]
    Url {
        /// The setting's name.
        setting: &'static str,
        /// Its value, or one of them.
        url: String,
    },
    /// A setting has no meaning without another one.
    #[error("the setting {0} is given without {1}: TLS needs both")]
    Alone(&'static str, &'static str),
}

/// What is to be done instead of running a region.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Save the database and the blobs to a new directory, while the region runs or not
    Backup {
        /// The directory
        #[arg(value_name = "BACKUP")]
        to: PathBuf,
    },
    /// Make a region from a backup, in an empty data directory; needs the lost region's seal key
    Restore {
        /// The backup's directory
        #[arg(value_name = "BACKUP")]
        from: PathBuf,
    },
    /// Make another admin token, in DIR/admin-token, while the region runs or not; those before stay good until they are deleted
    AdminToken,
    /// Begin another incarnation, after the database went back in time: a fail-over that lost commits, a snapshot
    Recover,
    /// Seal every secret with another key; no region of the database may run meanwhile
    RotateSealKey {
        /// File with the new key, 64 hexadecimal digits; without it one is made
        #[arg(long, value_name = "FILE")]
        new_key_file: Option<PathBuf>,
    },
}

/// Keeps the desired state of bare metal, and converges racks of machines to it.
#[derive(Debug, Default, Parser)]
#[command(name = "basalt-region", version, max_term_width = 100, args_conflicts_with_subcommands = false)]
struct Flags {
    #[command(subcommand)]
    command: Option<Command>,
    /// Directory for everything of this region: database, blobs, keys, tokens
    #[arg(long, global = true, value_name = "DIR", env = "BASALT_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// PostgreSQL to use, like postgres://basalt@db/basalt; without it the region runs its own in DIR
    #[arg(long, global = true, value_name = "URL", env = "BASALT_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Address of the API [default: 127.0.0.1:5240]
    #[arg(long, global = true, value_name = "ADDR", env = "BASALT_LISTEN")]
    listen: Option<SocketAddr>,
    /// Address that racks dial [default: 0.0.0.0:5250]
    #[arg(long, global = true, value_name = "ADDR", env = "BASALT_RPC_LISTEN")]
    rpc_listen: Option<SocketAddr>,
    /// Answer over plain HTTP to clients on other hosts too
    #[arg(long, global = true, value_name = "BOOL", env = "BASALT_ALLOW_PLAINTEXT", num_args = 0..=1, default_missing_value = "true")]
    allow_plaintext: Option<bool>,
    /// PEM file with the certificate that the API shows who speaks TLS, and those that vouch for it; read anew when it changes
    #[arg(long, global = true, value_name = "FILE", env = "BASALT_TLS_CERTIFICATE")]
    tls_certificate: Option<PathBuf>,
    /// PEM file with its private key
    #[arg(long, global = true, value_name = "FILE", env = "BASALT_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// File with the key that seals secrets, the same on all regions of a database [default: DIR/seal-key]
    #[arg(long, global = true, value_name = "FILE", env = "BASALT_SEAL_KEY_FILE")]
    seal_key_file: Option<PathBuf>,
    /// Account that the region's own PostgreSQL runs as [default: basalt, or else postgres]
    #[arg(long, global = true, value_name = "NAME", env = "BASALT_POSTGRES_USER")]
    postgres_user: Option<String>,
    /// Connections to PostgreSQL, at most [default: 20]
    #[arg(long, global = true, value_name = "N", env = "BASALT_CONNECTIONS", value_parser = clap::value_parser!(u32).range(4..=1000))]
    connections: Option<u32>,
    /// Every region of the database, as racks dial it, like https://10.0.0.1:5250, comma-separated: join tokens name them [default: rpc-url, or the address of rpc-listen]
    #[arg(long, global = true, value_name = "URLS", env = "BASALT_JOIN_URLS", value_delimiter = ',')]
    join_urls: Option<Vec<String>>,
    /// This region as racks dial it, like https://10.0.0.1:5250 [default: the entry of join-urls that leads here]
    #[arg(long, global = true, value_name = "URL", env = "BASALT_RPC_URL")]
    rpc_url: Option<String>,
    /// Divide every deadline by this; only for simulated machines [default: 1]
    #[arg(long, global = true, value_name = "N", env = "BASALT_DEADLINE_DIVISOR", value_parser = clap::value_parser!(u32).range(1..=1000))]
    deadline_divisor: Option<u32>,
    /// How long a client may take to send the head of a request, or the next piece of its body [default: 30s]
    #[arg(long, value_name = "DURATION", env = "BASALT_CLIENT_TIMEOUT")]
    client_timeout: Option<Span>,
    /// Connections to the API, at most [default: 4096, or half of the files that this process may open]
    #[arg(long, global = true, value_name = "N", env = "BASALT_API_CONNECTIONS", value_parser = clap::value_parser!(u32).range(1..))]
    api_connections: Option<u32>,
    /// Connections to the API of one client, which is an IPv4 address or an IPv6 /64; 127.0.0.1 and ::1 have no such limit [default: an eighth of all]
    #[arg(long, global = true, value_name = "N", env = "BASALT_API_CONNECTIONS_PER_CLIENT", value_parser = clap::value_parser!(u32).range(1..))]
    api_connections_per_client: Option<u32>,
    /// How often a watch on which nothing happens says where it is [default: 15s]
    #[arg(long, global = true, value_name = "DURATION", env = "BASALT_WATCH_BOOKMARK")]
    watch_bookmark: Option<Span>,
    /// Bytes that may wait for one watch; who reads more slowly is cut, and resumes [default: 16777216]
    #[arg(long, value_name = "BYTES", env = "BASALT_WATCH_BUFFER")]
    watch_buffer: Option<usize>,
    /// How long changes are kept, for watches to resume from [default: 1d]
    #[arg(long, global = true, value_name = "DURATION", env = "BASALT_CHANGE_RETENTION")]
    change_retention: Option<Span>,
    /// How many changes are kept, at most, about [default: 1000000]
    #[arg(long, global = true, value_name = "N", env = "BASALT_CHANGE_ROWS", value_parser = clap::value_parser!(u32).range(10_000..))]
    change_rows: Option<u32>,
    /// The largest blob that is taken, like 100GiB [default: 64GiB]
    #[arg(long, global = true, value_name = "SIZE", env = "BASALT_BLOB_BYTES")]
    blob_bytes: Option<ByteSize>,
    /// How long a blob is kept that no Image names [default: 7d]
    #[arg(long, global = true, value_name = "DURATION", env = "BASALT_BLOB_RETENTION")]
    blob_retention: Option<Span>,
    /// Networks that webhooks may be in, like 10.0.0.0/8, comma-separated [default: anywhere but this host and its links]
    #[arg(long, global = true, value_name = "CIDRS", env = "BASALT_WEBHOOK_NETWORKS", value_delimiter = ',')]
    webhook_networks: Option<Vec<Cidr>>,
    /// How long one request to a webhook may take [default: 15s]
    #[arg(long, global = true, value_name = "DURATION", env = "BASALT_WEBHOOK_TIMEOUT")]
    webhook_timeout: Option<Span>,
    /// How long a delivery to a webhook is tried before it is a dead letter [default: 1d]
    #[arg(long, global = true, value_name = "DURATION", env = "BASALT_WEBHOOK_PATIENCE")]
    webhook_patience: Option<Span>,
    /// Directory with terraform-provider-basalt, and its packages for other platforms (…_VERSION_OS_ARCH.zip), for Terraform to install [default: where basalt-region is]
    #[arg(long, global = true, value_name = "DIR", env = "BASALT_PROVIDER_DIR")]
    provider_dir: Option<PathBuf>,
    /// Squid, which serves the proxy that racks ask [default: /usr/sbin/squid or /usr/bin/squid]
    #[arg(long, global = true, value_name = "FILE", env = "BASALT_PROXY_PROGRAM")]
    proxy_program: Option<PathBuf>,
    /// Directory of the proxy with its cache and logs [default: `proxy` in DIR; /var/cache/basalt-region-proxy of a region that runs as root]
    #[arg(long, global = true, value_name = "DIR", env = "BASALT_PROXY_DIR")]
    proxy_dir: Option<PathBuf>,
    /// The most that the proxy's cache may take on disk, like 50GiB, 64MiB at least [default: 10GiB, or a tenth of the free disk where that is less]
    #[arg(long, global = true, value_name = "SIZE", env = "BASALT_PROXY_SIZE")]
    proxy_size: Option<ByteSize>,
    /// Collector of traces (OTLP over HTTP), like http://127.0.0.1:4318 [default: OTEL_EXPORTER_OTLP_ENDPOINT, or none]
    #[arg(long, global = true, value_name = "URL", env = "BASALT_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,
    /// What is logged, like info,basalt_region=debug [default: info]
    #[arg(long, global = true, value_name = "FILTER", env = "BASALT_LOG")]
    log: Option<String>,
    /// Whether the log is JSON [default: when it does not go to a terminal]
    #[arg(long, global = true, value_name = "BOOL", env = "BASALT_LOG_JSON", num_args = 0..=1, default_missing_value = "true")]
    log_json: Option<bool>,
    /// TOML file with settings under the names of these flags
    #[arg(long, global = true, value_name = "FILE", env = "BASALT_CONFIG")]
    config: Option<PathBuf>,
}

/// The TOML file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    data_dir: Option<PathBuf>,
    database_url: Option<String>,
    listen: Option<SocketAddr>,
    rpc_listen: Option<SocketAddr>,
    allow_plaintext: Option<bool>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    seal_key_file: Option<PathBuf>,
    postgres_user: Option<String>,
    connections: Option<u32>,
    join_urls: Option<Vec<String>>,
    rpc_url: Option<String>,
    deadline_divisor: Option<u32>,
    client_timeout: Option<Span>,
    api_connections: Option<u32>,
    api_connections_per_client: Option<u32>,
    watch_bookmark: Option<Span>,
    watch_buffer: Option<usize>,
    change_retention: Option<Span>,
    change_rows: Option<u32>,
    blob_bytes: Option<ByteSize>,
    blob_retention: Option<Span>,
    webhook_networks: Option<Vec<Cidr>>,
    webhook_timeout: Option<Span>,
    webhook_patience: Option<Span>,
    provider_dir: Option<PathBuf>,
    proxy_program: Option<PathBuf>,
    proxy_dir: Option<PathBuf>,
    proxy_size: Option<ByteSize>,
    otlp_endpoint: Option<String>,
    log: Option<String>,
    log_json: Option<bool>,
}

impl Settings {
    /// Reads this process's command line, environment and file. `--help` and wrong flags end the process, as clap does.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has a wrong form, or if a setting is missing.
    pub fn load() -> Result<(Self, Option<Command>), SettingsError> {
        let mut flags = Flags::parse();
        let command = flags.command.take();
        Ok((Self::merge(flags)?, command))
    }

    /// The default settings of a region in `data_dir`.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            database_url: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 5240)),
            rpc_listen: SocketAddr::from(([0, 0, 0, 0], 5250)),
            allow_plaintext: false,
            tls: None,
            seal_key_file: None,
            postgres_user: None,
            connections: 20,
            join_urls: Vec::new(),
            rpc_url: None,
            deadline_divisor: 1,
            client_timeout: Duration::from_secs(30),
            api_connections: None,
            api_connections_per_client: None,
            watch_bookmark: Duration::from_secs(15),
            watch_buffer: 16 << 20,
            change_retention: Duration::from_secs(24 * 3600),
            change_rows: 1_000_000,
            blob_bytes: 64 << 30,
            blob_retention: Duration::from_secs(7 * 24 * 3600),
            webhook_networks: Vec::new(),
            webhook_timeout: Duration::from_secs(15),
            webhook_patience: Duration::from_secs(24 * 3600),
            provider_dir: None,
            proxy_program: None,
            proxy_dir: None,
            proxy_bytes: None,
            otlp_endpoint: None,
            log: "info".to_owned(),
            log_json: None,
        }
    }

    /// The limits of connections to the API: of all clients, and of one.
    #[must_use]
    pub fn client_connections(&self) -> Limits {
        let given = |limit: Option<u32>| limit.and_then(|limit| usize::try_from(limit).ok());
        let all = given(self.api_connections).unwrap_or_else(|| open_files::places(2, API_CONNECTIONS));
        let shared = Limits::shared(all);
        Limits { of_one: given(self.api_connections_per_client).unwrap_or(shared.of_one), ..shared }
    }

    /// The format of the log.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        if self.log_json.unwrap_or_else(|| !std::io::stderr().is_terminal()) {
            LogFormat::Json
        } else {
            LogFormat::Text
        }
    }

    fn merge(flags: Flags) -> Result<Self, SettingsError> {
        let file = match flags.config {
            None => File::default(),
            Some(path) => {
                let text = std::fs::read_to_string(&path)
                    .map_err(|source| SettingsError::Read { path: path.clone(), source })?;
                toml::from_str(&text)
                    .map_err(|e| SettingsError::Parse { path, message: e.to_string().trim().to_owned() })?
            }
        };
        let data_dir = flags.data_dir.or(file.data_dir);
        let data_dir = data_dir.ok_or(SettingsError::Missing("data-dir", "BASALT_DATA_DIR"))?;
        // The path of PostgreSQL's socket is below it and must be absolute.
        let data_dir = std::path::absolute(&data_dir).unwrap_or(data_dir);
        let usual = Self::new(data_dir);
        Ok(Self {
            database_url: flags.database_url.or(file.database_url),
            listen: flags.listen.or(file.listen).unwrap_or(usual.listen),
            rpc_listen: flags.rpc_listen.or(file.rpc_listen).unwrap_or(usual.rpc_listen),
            allow_plaintext: flags.allow_plaintext.or(file.allow_plaintext).unwrap_or(usual.allow_plaintext),
            tls: certificate(flags.tls_certificate.or(file.tls_certificate), flags.tls_key.or(file.tls_key))?,
            seal_key_file: flags.seal_key_file.or(file.seal_key_file),
            postgres_user: flags.postgres_user.or(file.postgres_user),
            connections: flags.connections.or(file.connections).unwrap_or(usual.connections),
            join_urls: join_urls(flags.join_urls.or(file.join_urls).unwrap_or(usual.join_urls))?,
            rpc_url: flags.rpc_url.or(file.rpc_url).map(|url| region("rpc-url", &url)).transpose()?,
            deadline_divisor: flags
                .deadline_divisor
                .or(file.deadline_divisor)
                .unwrap_or(usual.deadline_divisor),
            client_timeout: span(flags.client_timeout.or(file.client_timeout), usual.client_timeout),
            api_connections: flags.api_connections.or(file.api_connections),
            api_connections_per_client: flags.api_connections_per_client.or(file.api_connections_per_client),
            watch_bookmark: span(flags.watch_bookmark.or(file.watch_bookmark), usual.watch_bookmark),
            watch_buffer: flags.watch_buffer.or(file.watch_buffer).unwrap_or(usual.watch_buffer),
            change_retention: span(flags.change_retention.or(file.change_retention), usual.change_retention),
            change_rows: flags.change_rows.or(file.change_rows).unwrap_or(usual.change_rows),
            blob_bytes: flags.blob_bytes.or(file.blob_bytes).map_or(usual.blob_bytes, ByteSize::bytes),
            blob_retention: span(flags.blob_retention.or(file.blob_retention), usual.blob_retention),
            webhook_networks: flags
                .webhook_networks
                .or(file.webhook_networks)
                .unwrap_or(usual.webhook_networks),
            webhook_timeout: span(flags.webhook_timeout.or(file.webhook_timeout), usual.webhook_timeout),
            webhook_patience: span(flags.webhook_patience.or(file.webhook_patience), usual.webhook_patience),
            provider_dir: flags.provider_dir.or(file.provider_dir),
            proxy_program: flags.proxy_program.or(file.proxy_program),
            proxy_dir: flags.proxy_dir.or(file.proxy_dir),
            proxy_bytes: flags.proxy_size.or(file.proxy_size).map(ByteSize::bytes),
            otlp_endpoint: flags
                .otlp_endpoint
                .or(file.otlp_endpoint)
                .or_else(|| std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok())
                .filter(|url| !url.is_empty()),
            log: flags.log.or(file.log).unwrap_or(usual.log),
            log_json: flags.log_json.or(file.log_json),
            data_dir: usual.data_dir,
        })
    }
}

/// `HOST:PORT` of a region's URL in a setting.
fn region(setting: &'static str, url: &str) -> Result<String, SettingsError> {
    address_of_url(url).ok_or_else(|| SettingsError::Url { setting, url: url.to_owned() })
}

/// The URLs, if racks can dial each of them.
fn join_urls(urls: Vec<String>) -> Result<Vec<String>, SettingsError> {
    for url in &urls {
        region("join-urls", url)?;
    }
    Ok(urls)
}

fn certificate(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<CertificateFiles>, SettingsError> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(CertificateFiles { certificate, key })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(SettingsError::Alone("tls-certificate", "tls-key")),
        (None, Some(_)) => Err(SettingsError::Alone("tls-key", "tls-certificate")),
    }
}

/// A duration of at least 10 ms: zero would make a busy loop.
fn span(asked: Option<Span>, usual: Duration) -> Duration {
    asked.map_or(usual, |asked| asked.get().max(Duration::from_millis(10)))
}

#[cfg(test)]
#[path = "../../tests/documented.rs"]
mod documented;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_of_the_manual_is_understood() {
        let commands = documented::commands(|it| it == "basalt-region");
        assert!(commands.iter().any(|it| it.is_whole), "{commands:?}");
        for it in commands {
            let parsed = Flags::try_parse_from(&it.words);
            assert!(parsed.is_ok() || !it.is_whole, "{}: {:?}", it.place, parsed.err());
        }
    }

    #[test]
    fn the_file_and_the_unit_of_the_manual_are_good() {
        let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        let config = deploy.join("region.toml");
        let settings = Settings::merge(Flags { config: Some(config), ..Flags::default() }).unwrap();
        assert_eq!(settings.data_dir.to_str(), Some("/var/lib/basalt"), "the unit's StateDirectory");
        assert!(settings.tls.is_some() && !settings.join_urls.is_empty());
        let unit = std::fs::read_to_string(deploy.join("systemd/basalt-region.service")).unwrap();
        let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let flags = Flags::try_parse_from(start.split(' ')).unwrap();
        assert_eq!(flags.config.unwrap().to_str(), Some("/etc/basalt/region.toml"));
        assert!(unit.contains("StateDirectory=basalt\n"), "{unit}");
    }

    #[test]
    fn the_install_guide_names_the_port_of_every_address_that_is_listened_on() {
        let guide = include_str!("../../docs/guides/install.md");
        let table = guide.split("\n## Ports\n").nth(1).unwrap().split("\n## ").next().unwrap();
        let settings = Settings::new("/data");
        let command = Flags::command();
        let listens =
            command.get_arguments().filter_map(clap::Arg::get_long).filter(|it| it.ends_with("listen"));
        let of = |flag| match flag {
            "listen" => settings.listen.port(),
            "rpc-listen" => settings.rpc_listen.port(),
            flag => panic!("no port is known of --{flag}"),
        };
        let ports: Vec<_> = listens.map(of).collect();
        assert_eq!(ports.len(), 2, "{ports:?}");
        for port in ports {
            assert!(
                table.contains(&format!("| region | {port} TCP |")),
                "{port} is not in the table of install.md"
            );
        }
    }

    #[test]
    fn every_setting_has_a_flag_and_a_variable_of_the_same_name() {
        for argument in
            Flags::command().get_arguments().filter(|a| !["help", "version"].contains(&a.get_id().as_str()))
        {
            let flag = argument.get_long().unwrap();
            let variable = format!("BASALT_{}", flag.to_uppercase().replace('-', "_"));
            assert_eq!(argument.get_env().unwrap(), variable.as_str());
            assert!(argument.get_help().is_some(), "{flag}");
        }
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("region.toml");
        std::fs::write(&config, "data-dir = \"/a\"\nlisten = \"127.0.0.1:1\"\nconnections = 7\n").unwrap();
        let flags = Flags { config: Some(config), listen: "127.0.0.1:2".parse().ok(), ..Flags::default() };
        let settings = Settings::merge(flags).unwrap();
        let wanted =
            Settings { listen: "127.0.0.1:2".parse().unwrap(), connections: 7, ..Settings::new("/a") };
        assert_eq!(settings, wanted);
    }

    #[test]
    fn a_directory_is_named_by_its_whole_path() {
        let flags = Flags { data_dir: Some("here".into()), ..Flags::default() };
        let wanted = std::env::current_dir().unwrap().join("here");
        assert_eq!(Settings::merge(flags).unwrap().data_dir, wanted);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let missing = Settings::merge(Flags::default()).unwrap_err().to_string();
        assert!(missing.contains("--data-dir, or BASALT_DATA_DIR"), "{missing}");
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("region.toml");
        std::fs::write(&config, "listn = \"127.0.0.1:1\"\n").unwrap();
        let wrong =
            Settings::merge(Flags { config: Some(config), ..Flags::default() }).unwrap_err().to_string();
        assert!(wrong.contains("listn") && wrong.contains("line 1"), "{wrong}");
    }

    #[test]
    fn a_region_that_no_rack_can_dial_is_refused_with_its_setting() {
        let flags = |join_urls: &[&str], rpc_url: Option<&str>| Flags {
            data_dir: Some("/a".into()),
            join_urls: Some(join_urls.iter().map(ToString::to_string).collect()),
            rpc_url: rpc_url.map(str::to_owned),
            ..Flags::default()
        };
        for url in ["10.0.0.1:5250", "http://10.0.0.1:5250", "https://10.0.0.1", "https://10.0.0.1:0", ""] {
            let refused =
                Settings::merge(flags(&["https://10.0.0.1:5250", url], None)).unwrap_err().to_string();
            assert!(refused.contains("join-urls") && refused.contains(&format!("{url:?}")), "{refused}");
            let refused = Settings::merge(flags(&[], Some(url))).unwrap_err().to_string();
            assert!(refused.contains("rpc-url") && refused.contains("https://ADDRESS:5250"), "{refused}");
        }
        let settings = Settings::merge(flags(&["https://a:5250"], Some("https://a:5250/"))).unwrap();
        assert_eq!(
            (settings.join_urls, settings.rpc_url),
            (vec!["https://a:5250".into()], Some("a:5250".into()))
        );
    }
}
