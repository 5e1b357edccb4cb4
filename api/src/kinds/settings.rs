//! Settings: values for the whole region, unless a more specific object declares another value.

use super::dns::{Secondary, secondary_rules};
use super::enlist::enlistment_rules;
use super::{CommonStatus, Domain, EnlistMode, Enlistment, EraseMethod, Image, Role, kind};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::{ByteSize, Cidr, Duration, Host, Hostname, Secret, Url};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

kind! {
    /// Values for the whole region, unless a VLAN, machine or deployment declares another value. There is one object, named
    /// `default`. While it does not exist, every field has its default; to delete it restores the defaults.
    Settings, "settings", "basalt_settings", Singleton, declarable: true, SettingsSpec, SettingsStatus, settings_rules
}

/// Values for the whole region.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SettingsSpec {
    /// The image of deployments that name none.
    #[field(dormant = "every deployment names its image")]
    pub default_image: Option<Ref<Image>>,
    /// Kernel parameters for every system that boots, before those of tags and machines.
    #[field(reboot)]
    pub kernel_options: Option<String>,
    /// The boot loader for x86-64 UEFI machines whose Vlan declares none. BIOS and arm64 machines get iPXE.
    #[field(default = Loader::Ipxe)]
    pub loader: Loader,
    /// DNS servers that racks ask for names that are in no declared domain, in order. Absent: the DNS servers of the rack's host.
    pub upstream_dns: Option<Vec<IpAddr>>,
    /// Networks outside of the Subnets whose hosts may ask racks for any name. Racks answer other hosts only for names in zones.
    /// Hosts of Subnets with `allow_dns` may ask without being named here.
    pub dns_clients: BTreeSet<Cidr>,
    /// The domain of machines, devices and addresses that declare none. Absent: these have no name.
    pub default_domain: Option<Ref<Domain>>,
    /// The domain that the region fills by itself. For each subnet it has a name `SUBNET.rack` with the addresses of the
    /// connected racks there. Absent: `basalt.internal`.
    pub internal_domain: Option<Hostname>,
    /// Servers that hold copies of all zones, for domains and for addresses, by names of your own: at most 16. They also get the
    /// zone `catalog.INTERNAL_DOMAIN`, a list of all other zones (RFC 9432): servers that read the list need no configuration for
    /// each zone.
    pub dns_secondaries: BTreeMap<String, Secondary>,
    /// NTP servers that racks compare the clocks of their hosts with. Three or more servers show which one is wrong. Racks serve
    /// time and set no clock. Empty: none. Absent: the servers in the configuration of the NTP daemon on each rack's host.
    #[field(none)]
    pub ntp_servers: Option<Vec<Host>>,
    /// The treatment of undeclared machines that boot from the network, if their Vlan declares none.
    #[field(none, default = EnlistMode::Discover)]
    pub enlist: EnlistMode,
    /// The inspection of such machines, and the Machines that are made from the results.
    #[field(none, default)]
    pub enlistment: Enlistment,
    /// The caching HTTP proxy of racks.
    #[field(default)]
    pub proxy: ProxySettings,
    /// The method of erasing disks for deployments that declare none.
    #[field(none, default = EraseMethod::Quick, dormant = "each deployment says it, or is erased quickly")]
    pub erase: EraseMethod,
    /// The longest time of a wait, by the name of the wait, if it differs from the default: `power_answer`, `soft_off`,
    /// `rack_applies`, `rack_returns`, `prerequisite`, `boot_request`, `claim`, `inventory_quiet`, `install_quiet`,
    /// `erase_quiet`, `attempt_life`, `retry_later`, `retry_credentials` or `operation`. The time in which an installed system
    /// must report is declared by its deployment.
    #[field(none)]
    pub deadlines: BTreeMap<String, Duration>,
    /// The name of the user that commissioning makes on BMCs, 1 to 16 bytes.
    #[field(none, default = "basalt")]
    pub bmc_user: String,
    /// Networks of BMCs: racks send no password to other addresses. Empty: any address that racks reach.
    #[field(none)]
    pub bmc_networks: BTreeSet<Cidr>,
    /// The time between two readings of a machine's power by its BMC: 30s or longer. `0s`: racks read the power only after power
    /// commands.
    #[field(none, default = "5m")]
    pub power_reading: Duration,
    /// Limits for work on many machines at the same time.
    #[field(none, default)]
    pub fleet_budget: FleetBudget,
    /// Limits for the machines' logs that each region keeps.
    #[field(none, default)]
    pub logs: LogSettings,
    /// Syslog receivers that get all lines of the racks' logs, by name, as RFC 5424 messages. A region keeps lines that a
    /// receiver has not accepted for as long as `logs` says. The position of a receiver belongs to its name: under another name,
    /// it starts anew.
    #[field(none)]
    pub remote_syslog: BTreeMap<String, RemoteSyslog>,
    /// The OpenID Connect issuer by which people log in. Absent: nobody logs in by OpenID Connect.
    #[field(none)]
    pub openid: Option<OpenIdSettings>,
}

/// Limits for the machines' logs that each region keeps. Lines older than `keep` are deleted. If a size is exceeded, the oldest
/// lines are deleted.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct LogSettings {
    /// The time for which lines are kept.
    #[field(none, default = "30d")]
    pub keep: Duration,
    /// The largest size of one machine's log.
    #[field(none, default = "64MiB")]
    pub machine_size: ByteSize,
    /// The largest size of all logs together.
    #[field(none, default = "10GiB")]
    pub size: ByteSize,
}

/// A syslog receiver.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RemoteSyslog {
    /// Host and port, as `HOST:PORT`, with an IPv6 address in brackets.
    #[field(none)]
    pub address: String,
    /// The transport protocol of the receiver.
    #[field(none, default = RemoteSyslogProtocol::Tcp)]
    pub protocol: RemoteSyslogProtocol,
    /// Certificates of the authorities that a receiver by TLS is trusted by, as PEM. Absent: the authorities that the region's
    /// host trusts.
    #[field(none, text)]
    pub ca: Option<String>,
}

/// The transport protocol of a syslog receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum RemoteSyslogProtocol {
    /// TCP with octet counting (RFC 6587 §3.4.1).
    Tcp,
    /// TLS (RFC 5425).
    Tls,
    /// One datagram for each line (RFC 5426). Lost lines are not noticed.
    Udp,
}

/// The OpenID Connect issuer by which people log in.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct OpenIdSettings {
    /// The URL of the issuer, as its tokens name it. The region reads `/.well-known/openid-configuration` below this URL.
    #[field(none)]
    pub issuer: Url,
    /// The identifier of the region at the issuer. Tokens must be issued for it.
    #[field(none)]
    pub client_id: String,
    /// The secret of this client, for logins in a browser. Absent: the client is a public client. PKCE is used in both cases.
    #[field(none, sent_to(issuer))]
    pub client_secret: Option<Secret>,
    /// The console's address in browsers, as `https://basalt.example.com:5240`. The issuer sends people back to `/ui/login` below
    /// this address: register that URL at the issuer. Absent: nobody logs in by OpenID Connect in a browser.
    #[field(none)]
    pub console: Option<Url>,
    /// The claim from which the name of a new user is made.
    #[field(none, default = "preferred_username")]
    pub name_claim: String,
    /// The claim that lists the person's groups.
    #[field(none, default = "groups")]
    pub groups_claim: String,
    /// Groups of the issuer, by name, with their roles. A user that nobody declares gets the roles of the person's groups anew at
    /// each login, and cannot log in without one of these groups.
    #[field(none)]
    pub groups: BTreeMap<String, OpenIdGroup>,
}

/// A group of the issuer.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct OpenIdGroup {
    /// The roles of the people in the group.
    #[field(none)]
    pub roles: BTreeSet<Ref<Role>>,
}

/// The waits that have a deadline, with the default in seconds. The engine gives the reason for each.
pub const DEADLINES: [(&str, u64); 14] = [
    ("power_answer", 90),
    ("soft_off", 120),
    ("rack_applies", 60),
    ("rack_returns", 300),
    ("prerequisite", 600),
    ("boot_request", 600),
    ("claim", 300),
    ("inventory_quiet", 300),
    ("install_quiet", 600),
    ("erase_quiet", 1800),
    ("attempt_life", 7200),
    ("retry_later", 900),
    ("retry_credentials", 3600),
    ("operation", 3600),
];

/// The boot loader that an x86-64 UEFI machine loads first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Loader {
    /// iPXE, which firmware refuses while Secure Boot is on.
    Ipxe,
    /// The distribution's signed shim and GRUB, with Secure Boot on or off. Racks need them installed (on Debian the packages
    /// `shim-signed` and `grub-efi-amd64-signed`). A rack without them offers iPXE, and reports it.
    ShimGrub,
}

/// The caching HTTP proxy of racks, for machines of subnets with `allow_proxy`.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ProxySettings {
    /// True: racks serve the proxy on port 8000. They need Squid installed; a rack without Squid reports it, and does all its
    /// other work.
    #[field(default = true)]
    pub enabled: bool,
    /// The proxy on the way out, as `http://HOST:PORT`. The proxies of regions ask it, and those of racks that do not go through a
    /// region. Absent: they ask the servers directly.
    pub upstream: Option<Url>,
    /// The way of the racks' proxies to servers.
    #[field(default = ProxyVia::PreferRegion)]
    pub via: ProxyVia,
}

/// The way of the racks' proxies to servers. Regions serve a proxy to their racks alone, and need Squid installed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ProxyVia {
    /// Through a region. If no region has a proxy, or none is reached, by the rack's own way out.
    PreferRegion,
    /// Through a region alone. Without one, a rack serves its cache.
    Region,
    /// By the rack's own way out, without a region.
    Direct,
}

/// Limits for work on many machines at the same time. Work that exceeds a limit waits, and reports it.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct FleetBudget {
    /// The number of machines that may be installed or erased at the same time. Absent: any number.
    #[field(min = 1, max = 1000000)]
    pub max_unavailable: Option<u32>,
    /// The number of machines of one zone that may be installed or erased at the same time. Absent: any number.
    #[field(min = 1, max = 1000000)]
    pub max_unavailable_per_zone: Option<u32>,
    /// The number of installs and erases that may begin within an hour. Absent: any number.
    #[field(min = 1, max = 1000000)]
    pub destructive_per_hour: Option<u32>,
    /// Times in which installs and erases may begin, by name. Empty: at any time.
    pub windows: BTreeMap<String, Window>,
    /// The number of machines that may be powered on within a minute. Absent: any number.
    #[field(min = 1, max = 1000000)]
    pub power_on_per_minute: Option<u32>,
}

/// A time window that repeats, in UTC.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Window {
    /// The days on which the window opens. Empty: every day.
    pub days: BTreeSet<Weekday>,
    /// The hour at which the window opens, in UTC.
    #[field(min = 0, max = 23)]
    pub hour: u32,
    /// The time for which the window stays open; at most a week.
    pub length: Duration,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Weekday {
    /// Monday, in UTC.
    Monday,
    /// Tuesday, in UTC.
    Tuesday,
    /// Wednesday, in UTC.
    Wednesday,
    /// Thursday, in UTC.
    Thursday,
    /// Friday, in UTC.
    Friday,
    /// Saturday, in UTC.
    Saturday,
    /// Sunday, in UTC.
    Sunday,
}

/// The state of the settings.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SettingsStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// The state of each receiver in `remote_syslog`, by name. A receiver is missing until a region has begun to forward to it.
    #[field(volatile)]
    pub remote_syslog: BTreeMap<String, RemoteSyslogStatus>,
}

/// The state of a syslog receiver.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RemoteSyslogStatus {
    /// True: the receiver accepts lines.
    #[field(volatile)]
    pub connected: bool,
    /// The reason why the receiver accepts no lines.
    #[field(volatile)]
    pub message: Option<String>,
    /// Number of lines that the receiver accepted.
    #[field(volatile)]
    pub forwarded: u64,
    /// Number of lines that were deleted before the receiver accepted them.
    #[field(volatile)]
    pub lost: u64,
    /// Size of the lines that wait for the receiver, in bytes.
    #[field(volatile)]
    pub waiting_bytes: u64,
}

/// The shortest time between two power readings of a machine, in seconds. An IPMI session takes a small BMC several seconds.
const READING_SECS: u64 = 30;
const WEEK_SECS: u64 = 7 * 24 * 3600;

fn settings_rules(spec: &SettingsSpec, rule: &mut Rule<'_>) {
    super::kernel_options::rules(spec.kernel_options.as_deref(), rule);
    super::servers::rules("/upstream_dns", spec.upstream_dns.iter().flatten().copied().map(Some), rule);
    for network in spec.dns_clients.iter().filter(|network| network.prefix_len() == 0) {
        rule.broken(
            "/dns_clients",
            format!(
                "with {network}, racks would answer the whole Internet, and take part in attacks on others"
            ),
            "the networks of your own hosts",
        );
    }
    super::servers::rules("/ntp_servers", spec.ntp_servers.iter().flatten().map(Host::ip), rule);
    for (name, time) in &spec.deadlines {
        let pointer = crate::pointer::child("/deadlines", name);
        if !DEADLINES.iter().any(|(known, _)| known == name) {
            let hint = match name.as_str() {
                "readiness" => "each deployment says it: readiness.timeout".to_owned(),
                _ => format!("one of {}", DEADLINES.map(|(known, _)| known).join(", ")),
            };
            rule.broken(pointer, format!("there is no deadline {name:?}"), hint);
        } else if time.as_secs() == 0 {
            rule.broken(
                pointer,
                format!("the deadline {name:?} is {time}: nothing is done by then"),
                "1s or longer",
            );
        }
    }
    if (1..READING_SECS).contains(&spec.power_reading.as_secs()) {
        rule.broken(
            "/power_reading",
            format!("BMCs would be asked each {}, and are slow", spec.power_reading),
            format!("{READING_SECS}s or longer, or 0s for readings after power commands alone"),
        );
    }
    for (name, window) in &spec.fleet_budget.windows {
        if !(1..=WEEK_SECS).contains(&window.length.as_secs()) {
            let pointer = crate::pointer::child("/fleet_budget/windows", name);
            rule.broken(
                crate::pointer::child(&pointer, "length"),
                format!("the window {name:?} is open for {}", window.length),
                "1s to 7d",
            );
        }
    }
    if !(1..=16).contains(&spec.bmc_user.len()) || spec.bmc_user.contains('\0') {
        rule.broken(
            "/bmc_user",
            format!(
                "IPMI has user names of 1 to 16 bytes, and {:?} has {}",
                spec.bmc_user,
                spec.bmc_user.len()
            ),
            "a shorter name, such as \"basalt\"",
        );
    }
    enlistment_rules(&spec.enlistment, rule);
    remote_syslog_rules(&spec.remote_syslog, rule);
    secondary_rules("/dns_secondaries", &spec.dns_secondaries, rule);
    if let Some(openid) = &spec.openid {
        openid_rules(openid, rule);
    }
    if let Some(url) = &spec.proxy.upstream
        && !spec.proxy.enabled
    {
        rule.broken(
            "/proxy/upstream",
            format!("{url} would be asked by a proxy that is not enabled"),
            "leave it out, or say enabled = true",
        );
    }
    if let Some(url) = spec.proxy.upstream.as_ref().filter(|url| !is_proxy(url.as_str())) {
        rule.broken(
            "/proxy/upstream",
            format!("{url} is no proxy that racks can ask: they speak HTTP to it, and have no path to name"),
            "like http://proxy.example.com:3128",
        );
    }
}

/// Most receivers of logs: each needs a task and a connection.
const MOST_RECEIVERS: usize = 16;

fn remote_syslog_rules(receivers: &BTreeMap<String, RemoteSyslog>, rule: &mut Rule<'_>) {
    if receivers.len() > MOST_RECEIVERS {
        let message = format!("{} receivers are more than a region forwards to", receivers.len());
        rule.broken(
            "/remote_syslog",
            message,
            format!("at most {MOST_RECEIVERS}; a relay of your own can tell others"),
        );
    }
    for (name, receiver) in receivers {
        let pointer = crate::pointer::child("/remote_syslog", name);
        if receiver.host_and_port().is_none() {
            rule.broken(
                crate::pointer::child(&pointer, "address"),
                format!("{:?} is no HOST:PORT", receiver.address),
                "like logs.example.com:6514, or [2001:db8::1]:514",
            );
        }
        let Some(ca) = &receiver.ca else { continue };
        let pointer = crate::pointer::child(&pointer, "ca");
        if receiver.protocol != RemoteSyslogProtocol::Tls {
            rule.broken(pointer, "nothing is checked by it without TLS", "protocol = \"tls\", or no ca");
        } else if !ca.contains("-----BEGIN CERTIFICATE-----") {
            rule.broken(
                pointer,
                "there is no certificate in it",
                "certificates as PEM: -----BEGIN CERTIFICATE----- …",
            );
        }
    }
}

impl RemoteSyslog {
    /// Host and port of the address, the host without brackets. `None`: the address has not the form `HOST:PORT`.
    #[must_use]
    pub fn host_and_port(&self) -> Option<(Host, u16)> {
        let (host, port) = self.address.rsplit_once(':')?;
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let host: Host = bare.unwrap_or(host).parse().ok()?;
        let is_v6 = host.ip().is_some_and(|ip| ip.is_ipv6());
        let port = port.parse().ok().filter(|port| *port != 0)?;
        (is_v6 == bare.is_some()).then_some((host, port))
    }
}

/// True for `http://HOST:PORT`, with or without a slash at the end.
fn is_proxy(url: &str) -> bool {
    let authority = url.to_ascii_lowercase().strip_prefix("http://").map(str::to_owned);
    authority.is_some_and(|it| !it.trim_end_matches('/').contains(['/', '?']))
}

fn openid_rules(openid: &OpenIdSettings, rule: &mut Rule<'_>) {
    let issuer = &openid.issuer;
    if !issuer.is_protected() {
        let message = format!("keys from {issuer} could be anybody's: nothing protects them on their way");
        rule.broken("/openid/issuer", message, "https://…, or http:// on the region's own host");
    }
    if issuer.as_str().contains('?') {
        let message = format!("{issuer} has a query, which issuers have not");
        rule.broken("/openid/issuer", message, "scheme, host and path alone");
    }
    if let Some(console) = &openid.console {
        if !console.is_protected() {
            let message = format!("nothing protects sessions at {console} on their way");
            rule.broken("/openid/console", message, "https://…, or http:// on the region's own host");
        }
        let place = console.as_str().split_once("://").map_or("", |(_, rest)| rest).trim_end_matches('/');
        if place.contains(['/', '?']) {
            let message = format!("{console} has a path or a query, which the console's address has not");
            rule.broken("/openid/console", message, "scheme and host alone");
        }
    }
    let texts = [
        ("/openid/client_id", &openid.client_id),
        ("/openid/name_claim", &openid.name_claim),
        ("/openid/groups_claim", &openid.groups_claim),
    ];
    for (pointer, text) in texts {
        if text.is_empty() {
            rule.broken(pointer, "it is empty", "as the issuer writes it");
        }
    }
}
