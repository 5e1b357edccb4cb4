//! Fabric, Vlan, Subnet and IpRange: the network as it is cabled and addressed.

use super::{Architecture, CommonStatus, EnlistMode, Loader, Rack, Space, dhcp_options, kind};
use crate::model::Ref;
use crate::validate::{Rule, no_rules};
use crate::values::{Cidr, Duration, Host, Hostname, is_unicast};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

kind! {
    /// Switches that carry the same VLANs: one layer-2 world.
    Fabric, "fabrics", "basalt_fabric", Label, declarable: true, FabricSpec, FabricStatus, no_rules
}

/// One layer-2 world.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct FabricSpec {
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
    /// A word that selectors can ask for, like `10g`.
    #[field(none)]
    pub class: Option<String>,
}

/// What hangs on the fabric.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct FabricStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
}

kind! {
    /// A VLAN of a fabric: one broadcast domain. Its name is `fabric.vid`.
    Vlan, "vlans", "basalt_vlan", FabricVid, declarable: true, VlanSpec, VlanStatus, vlan_rules
}

/// One broadcast domain.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct VlanSpec {
    /// The fabric that carries it.
    #[field(immutable)]
    pub fabric: Ref<Fabric>,
    /// Its number (IEEE 802.1Q), 1 to 4094, or 0 for the untagged network.
    #[field(immutable, min = 0, max = 4094)]
    pub vid: u16,
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
    /// Largest packet in bytes, as DHCP announces it and installed systems set it.
    #[field(default = 1500, min = 552, max = 65535)]
    pub mtu: u32,
    /// The routing world it belongs to: addresses of one space reach each other.
    pub space: Option<Ref<Space>>,
    /// The loader that x86-64 UEFI machines here get. Absent: as Settings say.
    #[field(server_chosen)]
    pub loader: Option<Loader>,
    /// How undeclared machines are treated that boot here. Absent: as Settings say.
    #[field(none, server_chosen)]
    pub enlist: Option<EnlistMode>,
    /// Whether and how racks answer DHCP here.
    #[field(default)]
    pub dhcp: VlanDhcp,
}

/// DHCP on a VLAN.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct VlanDhcp {
    /// Whether racks answer DHCP on this VLAN. Machines boot from the network only where they do.
    #[field(default = false)]
    pub enabled: bool,
    /// How long a lease lasts: `1m` to `31d`.
    #[field(default = "10m")]
    pub lease_time: Duration,
    /// Racks that answer, each of which takes part in its addresses: attached to the VLAN, or behind relays. Empty: every rack that
    /// serves an interface of the VLAN.
    pub racks: BTreeSet<Ref<Rack>>,
    /// DHCP servers elsewhere that racks pass requests on to, instead of answering them.
    #[field(dormant = "racks relay nothing")]
    pub relay_to: BTreeSet<IpAddr>,
    /// DHCPv4 options beyond those that racks send by themselves, by their number (RFC 2132): IPv4 addresses with commas between them,
    /// bytes as `hex:…`, or a text. Of one number a machine's comes before its subnet's, and that before this.
    pub options: BTreeMap<String, String>,
}

/// The shortest and the longest lease: clients would renew all the time, or hold addresses that a rack without its lease file has
/// forgotten.
const LEASES: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(31 * 86_400)];

fn vlan_rules(spec: &VlanSpec, rule: &mut Rule<'_>) {
    dhcp_options::rules(&spec.dhcp.options, "/dhcp/options", rule);
    let [shortest, longest] = LEASES;
    if !(shortest..=longest).contains(&spec.dhcp.lease_time) {
        rule.broken(
            "/dhcp/lease_time",
            format!("a lease of {} is not one that racks give", spec.dhcp.lease_time),
            format!("{shortest} to {longest}"),
        );
    }
    if spec.dhcp.enabled && !spec.dhcp.relay_to.is_empty() {
        rule.broken(
            "/dhcp/relay_to",
            "racks answer DHCP here, and would pass it on as well",
            "leave it out, or say enabled = false",
        );
    }
}

/// How the VLAN is served.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct VlanStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Racks that answer DHCP here now.
    #[field(volatile)]
    pub serving: BTreeSet<Ref<Rack>>,
}

kind! {
    /// An IP network on a VLAN.
    Subnet, "subnets", "basalt_subnet", Label, declarable: true, SubnetSpec, SubnetStatus, subnet_rules
}

/// An IP network.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SubnetSpec {
    /// The VLAN it is on, as `fabric.vid`.
    pub vlan: Ref<Vlan>,
    /// The network, like `10.77.0.0/24`.
    #[field(immutable)]
    pub cidr: Cidr,
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
    /// The router's address: in the network, or link-local. The gateway of a network of one address (`/32`, `/128`) is any neighbour on the link.
    /// Absent: the network has no way out.
    pub gateway: Option<IpAddr>,
    /// DNS servers for machines here, in order. DHCP tells those that are of its family. Empty: none. Absent: the racks that answer DNS here,
    /// if `allow_dns` is true.
    pub dns_servers: Option<Vec<IpAddr>>,
    /// NTP servers for machines here, in order. DHCP tells those that are addresses of its family, and no names. Empty: none. Absent:
    /// the racks that serve the subnet.
    pub ntp_servers: Option<Vec<Host>>,
    /// Whether Basalt gives out every address that is in no range. False: only those of `dynamic` ranges, and what is asked
    /// for by name.
    #[field(default = true)]
    pub managed: bool,
    /// Whether machines here may ask the racks' DNS servers.
    #[field(default = true)]
    pub allow_dns: bool,
    /// Machines here may use the racks' caching proxy. If a rack with an address here serves the proxy, systems are installed with its URL for
    /// apt and dnf.
    #[field(default = true)]
    pub allow_proxy: bool,
    /// Which names its addresses have.
    #[field(default = Rdns::Enabled)]
    pub rdns: Rdns,
    /// How machines here boot from the network.
    #[field(default)]
    pub boot: SubnetBoot,
    /// Domains in which DHCP clients here look up short names, in order (RFC 3397, RFC 3646); 255 bytes together at most.
    pub search_domains: Vec<Hostname>,
    /// DHCPv4 options for clients here, as those of a Vlan.
    pub dhcp_options: BTreeMap<String, String>,
}

/// Which names addresses of a subnet have (RFC 1035 §3.5, RFC 3596 §2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Rdns {
    /// None.
    Disabled,
    /// Those of the machines, in the zone of the octets or nibbles that the network is within.
    Enabled,
    /// The same, and for IPv4 networks smaller than /24 a zone of their own (RFC 2317).
    Rfc2317,
}

/// Network boot on a subnet.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SubnetBoot {
    /// Who tells machines what to boot.
    #[field(default = BootMode::Dhcp)]
    pub mode: BootMode,
    /// Architectures that are booted here. Empty: all.
    pub architectures: BTreeSet<Architecture>,
}

/// Who tells machines what to boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BootMode {
    /// The rack's own DHCP answers.
    Dhcp,
    /// Another DHCP server gives addresses; the rack adds boot answers only (proxyDHCP, PXE 2.1 §2.2).
    Proxy,
    /// Nobody: racks give addresses only.
    None,
}

/// How full the subnet is.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SubnetStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Addresses taken: leased, or somebody's.
    #[field(volatile)]
    pub used: Option<u64>,
    /// Addresses in no range that are nobody's; at most 2^53 - 1 is said.
    #[field(volatile)]
    pub free: Option<u64>,
    /// What the others are for.
    #[field(volatile)]
    pub by_purpose: Option<SubnetPurposes>,
}

/// Numbers of addresses of a subnet; at most 2^53 - 1 is said.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct SubnetPurposes {
    /// The gateway, where it is in the network: 0 or 1.
    #[field(default = 0)]
    pub gateways: u64,
    /// Of IpAddresses and Devices.
    #[field(default = 0)]
    pub ip_addresses: u64,
    /// Of deployments' interfaces.
    #[field(default = 0)]
    pub deployments: u64,
    /// Racks' own, that are nobody else's.
    #[field(default = 0)]
    pub racks: u64,
    /// Leased from `dynamic` ranges, to machines that Basalt knows.
    #[field(default = 0)]
    pub leases: u64,
    /// In `dynamic` ranges, leased or not.
    #[field(default = 0)]
    pub dynamic: u64,
    /// In `reserved` ranges, somebody's or not.
    #[field(default = 0)]
    pub reserved: u64,
}

/// Bytes of domains that clients search: one option of DHCPv4 has no more.
const MOST_OF_DOMAINS: usize = 255;

/// Why hosts of a network cannot use a gateway, and what would be right.
fn unreachable(cidr: Cidr, gateway: IpAddr) -> (String, String) {
    let in_network = format!("an address of {cidr} that a router can have");
    if gateway.is_ipv4() != cidr.network().is_ipv4() {
        return (format!("is not of the family of {cidr}"), in_network);
    }
    if !is_unicast(gateway) {
        return ("is not the address of a router".to_owned(), in_network);
    }
    match cidr.contains(gateway) {
        true if cidr.is_single() => {
            let hint = "the router's own address; it may be outside of a network of one address";
            (format!("is the only address of {cidr}, which is for a host"), hint.to_owned())
        }
        true => (format!("is the network or broadcast address of {cidr}"), in_network),
        false => {
            let hint = format!(
                "{in_network}; for a router outside of it leave the gateway out, and declare a route with on_link = true"
            );
            (format!("is not in {cidr}"), hint)
        }
    }
}

fn subnet_rules(spec: &SubnetSpec, rule: &mut Rule<'_>) {
    let cidr = spec.cidr;
    dhcp_options::rules(&spec.dhcp_options, "/dhcp_options", rule);
    if cidr.network().is_ipv6() && !spec.dhcp_options.is_empty() {
        rule.broken(
            "/dhcp_options",
            "DHCPv6 has other options, by other numbers",
            "leave them out of an IPv6 subnet",
        );
    }
    // As RFC 3397 writes them, but for what names share.
    let domains: usize = spec.search_domains.iter().map(|domain| domain.as_str().len() + 2).sum();
    if domains > MOST_OF_DOMAINS {
        rule.broken(
            "/search_domains",
            format!("the domains need {domains} bytes of a DHCP reply"),
            format!("at most {MOST_OF_DOMAINS}: fewer, or shorter ones"),
        );
    }
    if let Some(gateway) = spec.gateway
        && cidr.reach(gateway).is_none()
    {
        let (why, hint) = unreachable(cidr, gateway);
        rule.broken("/gateway", format!("gateway {gateway} {why}"), hint);
    }
    if cidr.prefix_len() == 0 {
        rule.broken(
            "/cidr",
            format!("{cidr} is every address there is"),
            "a network with a prefix length above 0",
        );
    }
}

kind! {
    /// A range of addresses of a subnet with one purpose.
    IpRange, "ip_ranges", "basalt_ip_range", Label, declarable: true, IpRangeSpec, IpRangeStatus, ip_range_rules
}

/// A range of addresses, both ends included.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct IpRangeSpec {
    /// The subnet it lies in.
    #[field(immutable)]
    pub subnet: Ref<Subnet>,
    /// First address.
    pub start: IpAddr,
    /// Last address.
    pub end: IpAddr,
    /// What the addresses are for.
    #[field(default = RangePurpose::Dynamic)]
    pub purpose: RangePurpose,
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// What a range's addresses are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum RangePurpose {
    /// Leased by DHCP to whoever asks. No address of it is anybody's.
    Dynamic,
    /// Not given out by itself: only who names an address of it has it.
    Reserved,
}

/// How full the range is.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct IpRangeStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Addresses of it that are leased, or in a `reserved` range somebody's.
    #[field(volatile)]
    pub used: Option<u64>,
    /// Of an IPv4 `dynamic` range, which rack leases which part, as `10.77.0.100-10.77.0.149`. Racks share a range evenly, and
    /// lease from their own parts alone.
    #[field(volatile)]
    pub blocks: BTreeMap<String, RangeBlock>,
}

/// A part of a range that one rack leases.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RangeBlock {
    /// The rack. Absent: it was deleted, and what it may have leased has not ended.
    pub rack: Option<Ref<Rack>>,
    /// How the rack has it.
    #[field(default = BlockState::Leased)]
    pub state: BlockState,
    /// How many addresses it has.
    #[field(default = 0)]
    pub addresses: u64,
    /// How many of them are leased, to machines that Basalt knows.
    #[field(default = 0)]
    pub used: u64,
}

/// How a rack has a part of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BlockState {
    /// It leases from it.
    Leased,
    /// It is to lease from it no more. Nobody else does before it has said so and its last lease there has ended.
    TakenBack,
}

fn ip_range_rules(spec: &IpRangeSpec, rule: &mut Rule<'_>) {
    let (start, end) = (spec.start, spec.end);
    if start.is_ipv4() != end.is_ipv4() {
        rule.broken(
            "/end",
            format!("the range starts at {start} and ends at {end}: one is IPv4, the other IPv6"),
            "two addresses of the same family",
        );
    } else if end < start {
        rule.broken(
            "/end",
            format!("the range ends at {end}, before it starts at {start}"),
            format!("{start} or above"),
        );
    }
}
