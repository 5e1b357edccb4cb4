//! Settings: what holds for the whole region unless something nearer says otherwise.

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
    /// What holds for the whole region unless a VLAN, machine or deployment says otherwise. There is one object, called
    /// `default`; while it does not exist, everything is at its default, so that deleting it returns to that.
    Settings, "settings", "basalt_settings", Singleton, declarable: true, SettingsSpec, SettingsStatus, settings_rules
}

/// What holds for the whole region.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SettingsSpec {
    /// The image of deployments that name none.
    #[field(dormant = "every deployment names its image")]
    pub default_image: Option<Ref<Image>>,
    /// Kernel parameters for every system that boots, before those of tags and machines.
    #[field(reboot)]
    pub kernel_options: Option<String>,
    /// The loader that x86-64 UEFI machines get where their Vlan says nothing else. BIOS and arm64 machines get iPXE.
    #[field(default = Loader::Ipxe)]
    pub loader: Loader,
    /// DNS servers that racks ask about names of no declared domain, in order. Absent: the servers of the rack's host.
    pub upstream_dns: Option<Vec<IpAddr>>,
    /// The domain of machines, devices and addresses that name none. Absent: these have no name.
    pub default_domain: Option<Ref<Domain>>,
    /// The domain that the region writes itself. For each subnet it has a name `SUBNET.rack` with the racks that are there now. Absent:
    /// `basalt.internal`.
    pub internal_domain: Option<Hostname>,
    /// Servers that hold copies of all zones, of domains and of addresses, by names of your choice: at most 16. They also get the zone
    /// `catalog.INTERNAL_DOMAIN`, which names all others (RFC 9432): servers that read it need no configuration for each zone.
    pub dns_secondaries: BTreeMap<String, Secondary>,
    /// NTP servers that racks compare their hosts' clocks with: three or more tell which one is wrong. Racks serve time and set no clock. Empty:
    /// none. Absent: those that the NTP daemon of each rack's host is configured with.
    #[field(none)]
    pub ntp_servers: Option<Vec<Host>>,
    /// How undeclared machines are treated that boot from the network, where their Vlan says nothing else.
    #[field(none, default = EnlistMode::Discover)]
    pub enlist: EnlistMode,
    /// How such machines are inspected, and what is made of them.
    #[field(none, default)]
    pub enlistment: Enlistment,
    /// The caching HTTP proxy of racks.
    #[field(default)]
    pub proxy: ProxySettings,
    /// How disks are erased where a deployment does not say.
    #[field(none, default = EraseMethod::Quick, dormant = "each deployment says it, or is erased quickly")]
    pub erase: EraseMethod,
    /// How long each wait may take, by its name, where it is not as usual: `power_answer`, `soft_off`, `rack_applies`, `rack_returns`,
    /// `prerequisite`, `boot_request`, `claim`, `inventory_quiet`, `install_quiet`, `erase_quiet`, `attempt_life`,
    /// `retry_later`, `retry_credentials` or `operation`. How long a system may take to report, its deployment says.
    #[field(none)]
    pub deadlines: BTreeMap<String, Duration>,
    /// The user that commissioning makes on BMCs, 1 to 16 bytes.
    #[field(none, default = "basalt")]
    pub bmc_user: String,
    /// Networks that BMCs have to be in: racks send no password elsewhere. Empty: anywhere that racks reach.
    #[field(none)]
    pub bmc_networks: BTreeSet<Cidr>,
    /// How often racks read the power of each machine by its BMC: 30s or longer. `0s`: only after power commands.
    #[field(none, default = "5m")]
    pub power_reading: Duration,
    /// How much may be done at once.
    #[field(none, default)]
    pub fleet_budget: FleetBudget,
    /// How much of the machines' logs each region keeps.
    #[field(none, default)]
    pub logs: LogSettings,
    /// Syslog receivers that all lines of the racks' logs are forwarded to, by name, as RFC 5424 messages. A region keeps what a receiver has not
    /// taken for as long as `logs` says. A name stands for a position: under another name a receiver begins anew.
    #[field(none)]
    pub remote_syslog: BTreeMap<String, RemoteSyslog>,
    /// Who vouches for people that log in by OpenID Connect. Absent: nobody logs in so.
    #[field(none)]
    pub openid: Option<OpenIdSettings>,
}

/// How much of the machines' logs each region keeps. Older lines go; lines that exceed a size go too, the oldest first.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct LogSettings {
    /// For how long.
    #[field(none, default = "30d")]
    pub keep: Duration,
    /// Bytes of one machine's log.
    #[field(none, default = "64MiB")]
    pub machine_size: ByteSize,
    /// Bytes of all logs together.
    #[field(none, default = "10GiB")]
    pub size: ByteSize,
}

/// A syslog receiver.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RemoteSyslog {
    /// Host and port, as `HOST:PORT`; an IPv6 address in brackets.
    #[field(none)]
    pub address: String,
    /// How it is spoken to.
    #[field(none, default = RemoteSyslogProtocol::Tcp)]
    pub protocol: RemoteSyslogProtocol,
    /// Certificates that a receiver by TLS is trusted by, as PEM. Absent: those that the region's host trusts.
    #[field(none, text)]
    pub ca: Option<String>,
}

/// How a syslog receiver is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum RemoteSyslogProtocol {
    /// TCP with counted octets (RFC 6587 §3.4.1).
    Tcp,
    /// TLS (RFC 5425).
    Tls,
    /// A datagram for each line (RFC 5426). Nobody knows if it arrives.
    Udp,
}

/// Who vouches for people (OpenID Connect).
#[derive(Clone, Debug, PartialEq, Model)]
pub struct OpenIdSettings {
    /// The issuer, as its tokens name it. What it says at `/.well-known/openid-configuration` below this is read.
    #[field(none)]
    pub issuer: Url,
    /// As whom it knows the region: who tokens have to be for.
    #[field(none)]
    pub client_id: String,
    /// The secret of this client, for logins in a browser. Absent: the client is a public one. PKCE is used in both cases.
    #[field(none, sent_to(issuer))]
    pub client_secret: Option<Secret>,
    /// The console's address in browsers, as `https://basalt.example.com:5240`. The issuer sends people back to `/ui/login` below it: register
    /// that there. Absent: nobody logs in by OpenID Connect in a browser.
    #[field(none)]
    pub console: Option<Url>,
    /// The claim of which a new user's name is made.
    #[field(none, default = "preferred_username")]
    pub name_claim: String,
    /// The claim that lists the groups of who logs in.
    #[field(none, default = "groups")]
    pub groups_claim: String,
    /// What the groups may do here. Users that nobody declares have the roles of theirs, anew at each login; who is in none of these
    /// does not come in.
    #[field(none)]
    pub groups: BTreeMap<String, OpenIdGroup>,
}

/// A group of the issuer.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct OpenIdGroup {
    /// What its people may do.
    #[field(none)]
    pub roles: BTreeSet<Ref<Role>>,
}

/// The waits that have a deadline, and how many seconds it usually is. The engine has a reason for each.
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

/// What an x86-64 UEFI machine loads first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Loader {
    /// iPXE, which firmware with Secure Boot on refuses.
    Ipxe,
    /// The distribution's signed shim and GRUB, with Secure Boot on or off. Racks need them installed (on Debian the packages
    /// `shim-signed` and `grub-efi-amd64-signed`); one that has not names iPXE, and says so.
    ShimGrub,
}

/// The caching HTTP proxy of racks, for machines of subnets with `allow_proxy`.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ProxySettings {
    /// Racks serve the proxy on port 8000. They need Squid installed; a rack that has not says so, and does everything else.
    #[field(default = true)]
    pub enabled: bool,
    /// The proxy that racks ask, as `http://HOST:PORT`. Absent: they ask the servers themselves.
    pub upstream: Option<Url>,
}

/// How much may be done at once. What exceeds it waits, and says so.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct FleetBudget {
    /// Machines that may be installed or erased at once. Absent: any number.
    #[field(min = 1, max = 1000000)]
    pub max_unavailable: Option<u32>,
    /// Of these, machines of one zone. Absent: any number.
    #[field(min = 1, max = 1000000)]
    pub max_unavailable_per_zone: Option<u32>,
    /// Installs and erases that may be begun within an hour. Absent: any number.
    #[field(min = 1, max = 1000000)]
    pub destructive_per_hour: Option<u32>,
    /// When installs and erases may be begun, by name. Empty: at any time.
    pub windows: BTreeMap<String, Window>,
    /// Machines that may be powered on within a minute. Absent: any number.
    #[field(min = 1, max = 1000000)]
    pub power_on_per_minute: Option<u32>,
}

/// A time of day, in UTC.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Window {
    /// The days that it begins on. Empty: every day.
    pub days: BTreeSet<Weekday>,
    /// The hour that it begins at, in UTC.
    #[field(min = 0, max = 23)]
    pub hour: u32,
    /// How long it is open; at most a week.
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

/// What of the settings is in force.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SettingsStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// State of each target of `remote_syslog`, by name. A target that no region has begun to forward to is missing.
    #[field(volatile)]
    pub remote_syslog: BTreeMap<String, RemoteSyslogStatus>,
}

/// How a syslog receiver is.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RemoteSyslogStatus {
    /// It takes lines.
    #[field(volatile)]
    pub connected: bool,
    /// Why it does not.
    #[field(volatile)]
    pub message: Option<String>,
    /// Lines that it took.
    #[field(volatile)]
    pub forwarded: u64,
    /// Lines that were gone before it took them.
    #[field(volatile)]
    pub lost: u64,
    /// Bytes of lines that wait for it.
    #[field(volatile)]
    pub waiting_bytes: u64,
}

/// The shortest time between two power readings of a machine, in seconds. A session of IPMI costs a small BMC some of them.
const READING_SECS: u64 = 30;
const WEEK_SECS: u64 = 7 * 24 * 3600;

fn settings_rules(spec: &SettingsSpec, rule: &mut Rule<'_>) {
    super::kernel_options::rules(spec.kernel_options.as_deref(), rule);
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

/// Receivers of logs, at most: each costs a task and a connection.
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
    /// Host and port of the address; the host without brackets. `None`: it is no `HOST:PORT`.
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

/// True for `http://HOST:PORT`, with a slash at its end or without.
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
