//! Fabric, Vlan, Subnet and IpRange: the cabling and the addresses of the network.

use super::{Architecture, CommonStatus, EnlistMode, Loader, Rack, Space, dhcp_options, kind, servers};
use crate::model::Ref;
use crate::validate::{Rule, no_rules};
use crate::values::{Cidr, Duration, Host, Hostname, is_unicast};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

kind! {
    /// Switches that carry the same VLANs: one layer-2 network.
    Fabric, "fabrics", "basalt_fabric", Label, declarable: true, FabricSpec, FabricStatus, no_rules
}

/// A layer-2 network.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct FabricSpec {
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
    /// A word that selectors can ask for, like `10g`.
    #[field(none)]
    pub class: Option<String>,
}

/// The state of the fabric.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct FabricStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
}

kind! {
    /// A VLAN of a fabric: one broadcast domain. Its name is `fabric.vid`.
    Vlan, "vlans", "basalt_vlan", FabricVid, declarable: true, VlanSpec, VlanStatus, vlan_rules
}

/// A broadcast domain.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct VlanSpec {
    /// The fabric that carries the VLAN.
    #[field(immutable)]
    pub fabric: Ref<Fabric>,
    /// The VLAN id (IEEE 802.1Q), 1 to 4094, or 0 for the untagged network.
    #[field(immutable, min = 0, max = 4094)]
    pub vid: u16,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
    /// The largest packet in bytes (MTU), as DHCP announces it and installed systems set it.
    #[field(default = 1500, min = 552, max = 65535)]
    pub mtu: u32,
    /// The space of the VLAN: addresses of one space reach each other.
    pub space: Option<Ref<Space>>,
    /// The boot loader for x86-64 UEFI machines on this VLAN. Absent: as Settings say.
    #[field(server_chosen)]
    pub loader: Option<Loader>,
    /// The treatment of undeclared machines that boot on this VLAN. Absent: as Settings say.
    #[field(none, server_chosen)]
    pub enlist: Option<EnlistMode>,
    /// DHCP of the racks on this VLAN.
    #[field(default)]
    pub dhcp: VlanDhcp,
}

/// DHCP on a VLAN.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct VlanDhcp {
    /// True: racks answer DHCP on this VLAN. Machines boot from the network only where racks do so.
    #[field(default = false)]
    pub enabled: bool,
    /// The length of a lease: `1m` to `31d`.
    #[field(default = "10m")]
    pub lease_time: Duration,
    /// Racks that answer DHCP here, directly or behind relays. They share the addresses among them. Empty: every rack that serves
    /// an interface of the VLAN.
    pub racks: BTreeSet<Ref<Rack>>,
    /// Other DHCP servers that racks pass requests on to, instead of answering.
    #[field(dormant = "racks relay nothing")]
    pub relay_to: BTreeSet<IpAddr>,
    /// DHCPv4 options that racks do not send by themselves, by their number (RFC 2132). A value is IPv4 addresses with commas
    /// between them, bytes as `hex:…`, or a text. For the same number, the option of a machine takes precedence over the option
    /// of its subnet, and that over the option here.
    pub options: BTreeMap<String, String>,
}

/// The shortest and the longest lease. With shorter leases, clients would renew all the time. With longer ones, a rack that has
/// lost its lease file would not know for too long which addresses clients hold.
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

/// The state of the VLAN.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct VlanStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Racks that answer DHCP on the VLAN now.
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
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
    /// The router's address: in the network, or link-local. A network of one address (`/32`, `/128`) may have any neighbour on
    /// the link as its gateway. Absent: the network has no way out.
    pub gateway: Option<IpAddr>,
    /// DNS servers for machines here, in order. DHCP announces the servers that are of its address family. Empty: none. Absent:
    /// the racks that answer DNS here, if `allow_dns` is true.
    pub dns_servers: Option<Vec<IpAddr>>,
    /// NTP servers for machines here, in order. DHCP announces the servers that are addresses of its family, and no names. Empty:
    /// none. Absent: the racks that serve the subnet.
    pub ntp_servers: Option<Vec<Host>>,
    /// True: Basalt gives out every address that is in no range. False: Basalt gives out only addresses of `dynamic` ranges, and
    /// addresses that are asked for by name.
    #[field(default = true)]
    pub managed: bool,
    /// True: machines here may ask the DNS servers of the racks.
    #[field(default = true)]
    pub allow_dns: bool,
    /// True: machines here may use the caching proxy of the racks. If a rack with an address here serves the proxy, systems are
    /// installed with its URL for apt and dnf.
    #[field(default = true)]
    pub allow_proxy: bool,
    /// The names of the subnet's addresses in reverse DNS.
    #[field(default = Rdns::Enabled)]
    pub rdns: Rdns,
    /// Network boot of machines here.
    #[field(default)]
    pub boot: SubnetBoot,
    /// Domains in which machines here look up short names, in order: DHCP clients (RFC 3397, RFC 3646), and systems that are
    /// installed with an address of this subnet. Together they have at most 255 bytes.
    pub search_domains: Vec<Hostname>,
    /// DHCPv4 options for clients here, in the form of `dhcp.options` of a Vlan.
    pub dhcp_options: BTreeMap<String, String>,
}

/// The names of a subnet's addresses in reverse DNS (RFC 1035 §3.5, RFC 3596 §2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Rdns {
    /// The addresses have no names.
    Disabled,
    /// The addresses have the names of the machines, in the zone of the octets or nibbles that the network is within.
    Enabled,
    /// As `enabled`. IPv4 networks smaller than /24 also get a zone of their own (RFC 2317).
    Rfc2317,
}

/// Network boot on a subnet.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SubnetBoot {
    /// The server that tells machines what to boot.
    #[field(default = BootMode::Dhcp)]
    pub mode: BootMode,
    /// Architectures whose machines boot from the network here. Empty: all.
    pub architectures: BTreeSet<Architecture>,
}

/// The server that tells machines what to boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BootMode {
    /// The DHCP answers of the rack contain it.
    Dhcp,
    /// Another DHCP server gives addresses. The rack adds only the boot answers (proxyDHCP, PXE 2.1 §2.2).
    Proxy,
    /// No server: racks give only addresses.
    None,
}

/// The use of the subnet's addresses.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SubnetStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Number of addresses that are taken: leased, or assigned.
    #[field(volatile)]
    pub used: Option<u64>,
    /// Number of addresses in no range that are assigned to nobody, 2^53 - 1 at most.
    #[field(volatile)]
    pub free: Option<u64>,
    /// Number of the other addresses, by purpose.
    #[field(volatile)]
    pub by_purpose: Option<SubnetPurposes>,
}

/// Numbers of addresses of a subnet, by purpose; each is 2^53 - 1 at most.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct SubnetPurposes {
    /// The gateway, if it is in the network: 0 or 1.
    #[field(default = 0)]
    pub gateways: u64,
    /// Addresses of IpAddresses and Devices.
    #[field(default = 0)]
    pub ip_addresses: u64,
    /// Addresses of interfaces of deployments and machines.
    #[field(default = 0)]
    pub deployments: u64,
    /// Addresses of racks that are assigned to nobody else.
    #[field(default = 0)]
    pub racks: u64,
    /// Addresses leased from `dynamic` ranges to machines that Basalt knows.
    #[field(default = 0)]
    pub leases: u64,
    /// Addresses in `dynamic` ranges, leased or not.
    #[field(default = 0)]
    pub dynamic: u64,
    /// Addresses in `reserved` ranges, assigned or not.
    #[field(default = 0)]
    pub reserved: u64,
}

/// Most bytes of all search domains: the length of one DHCPv4 option.
const MOST_OF_DOMAINS: usize = 255;

/// The reason why hosts of a network cannot use a gateway, and a hint with the right form.
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
    servers::rules("/dns_servers", spec.dns_servers.iter().flatten().copied().map(Some), rule);
    servers::rules("/ntp_servers", spec.ntp_servers.iter().flatten().map(Host::ip), rule);
    dhcp_options::rules(&spec.dhcp_options, "/dhcp_options", rule);
    if cidr.network().is_ipv6() && !spec.dhcp_options.is_empty() {
        rule.broken(
            "/dhcp_options",
            "DHCPv6 has other options, by other numbers",
            "leave them out of an IPv6 subnet",
        );
    }
    // The length in the encoding of RFC 3397, without compression of the parts that names share.
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
    /// The subnet that contains the range.
    #[field(immutable)]
    pub subnet: Ref<Subnet>,
    /// The first address of the range.
    pub start: IpAddr,
    /// The last address of the range.
    pub end: IpAddr,
    /// The use of the addresses.
    #[field(default = RangePurpose::Dynamic)]
    pub purpose: RangePurpose,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The use of a range's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum RangePurpose {
    /// DHCP leases the addresses to any client. None of them is assigned to an object.
    Dynamic,
    /// Basalt gives out no address by itself. An object has an address of the range only if it names that address.
    Reserved,
}

/// The use of the range's addresses.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct IpRangeStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Number of addresses that are leased, or in a `reserved` range assigned.
    #[field(volatile)]
    pub used: Option<u64>,
    /// The parts of an IPv4 `dynamic` range, as `10.77.0.100-10.77.0.149`, with the rack that leases each. Racks share a range
    /// evenly, and each leases only from its own parts.
    #[field(volatile)]
    pub blocks: BTreeMap<String, RangeBlock>,
}

/// A part of a range that one rack leases.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RangeBlock {
    /// The rack. Absent: the rack was deleted, and leases that it may have given have not ended.
    pub rack: Option<Ref<Rack>>,
    /// The rack's use of the part.
    #[field(default = BlockState::Leased)]
    pub state: BlockState,
    /// Number of addresses in the part.
    #[field(default = 0)]
    pub addresses: u64,
    /// Number of these addresses that are leased to machines that Basalt knows.
    #[field(default = 0)]
    pub used: u64,
}

/// A rack's use of a part of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BlockState {
    /// The rack leases addresses of the part.
    Leased,
    /// The rack must lease no more addresses of the part. Other racks wait until the rack has confirmed this and its last lease
    /// there has ended.
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
