//! Machine: a physical machine, its BMC, and the work that Basalt does with a machine without a deployment.

use super::bmc_webhook::BmcWebhook;
use super::dhcp_options;
use super::host_network::network_rules;
use super::{
    Axes, CommonStatus, Deployment, Domain, Inventory, NetworkConfig, Ownership, OwnershipMode, Pool, Rack,
    Script, StorageConfig, Zone, kind,
};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::{Host, Mac, Secret, Sha256, Tag, Timestamp};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

kind! {
    /// A physical machine. Basalt takes a declared machine in: it powers the machine on, reads its hardware, and keeps it ready
    /// for deployments.
    #[planned = true]
    Machine, "machines", "basalt_machine", Label, declarable: true, MachineSpec, MachineStatus, machine_rules
}

/// A physical machine, as declared.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct MachineSpec {
    /// Processor architecture of the machine.
    #[field(default = Architecture::Amd64)]
    pub architecture: Architecture,
    /// The failure domain of the machine. Absent: the machine counts as in `default`, even if there is no such zone.
    #[field(server_chosen)]
    pub zone: Option<Ref<Zone>>,
    /// The pool of the machine. Absent: the machine counts as in `default`, even if there is no such pool.
    #[field(server_chosen)]
    pub pool: Option<Ref<Pool>>,
    /// Tags of the machine, which selectors can ask for.
    pub tags: BTreeSet<Tag>,
    /// The DNS domain in which the machine has a name. Absent: `default_domain` of Settings.
    pub domain: Option<Ref<Domain>>,
    /// MAC addresses of the interfaces that the machine may boot from. Basalt recognises the machine on the network by them.
    pub boot_macs: BTreeSet<Mac>,
    /// The management controller (BMC) of the machine. Absent: Basalt asks a person to switch the machine, as with driver
    /// `manual`, until commissioning has made an account on a BMC that it found.
    pub bmc: Option<Bmc>,
    /// The concerns that Basalt manages or only observes. A running machine can be declared as observed, and be taken over one
    /// concern at a time.
    #[field(default)]
    pub ownership: MachineOwnership,
    /// The boot device that the firmware tries first.
    #[field(reboot, server_chosen, dormant = "its BMC is asked for one network boot whenever one is needed")]
    pub boot_order: Option<BootOrder>,
    /// Kernel parameters for every system that boots on the machine.
    #[field(reboot)]
    pub kernel_options: Option<String>,
    /// DHCPv4 options for the interfaces of the machine, in the form of `dhcp.options` of a Vlan.
    pub dhcp_options: BTreeMap<String, String>,
    /// How Basalt reads the hardware of the machine.
    #[field(default)]
    pub commissioning: Commissioning,
    /// The network of deployments on this machine that declare none. An installed system keeps the network that it was installed
    /// with: a change takes effect at the next installation.
    #[field(none)]
    pub network: Option<NetworkConfig>,
    /// The disks of deployments on this machine whose own `storage` has only default values. A change takes effect at the next
    /// installation.
    #[field(none)]
    pub storage: Option<StorageConfig>,
    /// The wanted power state of the machine while no other work decides it.
    #[field(default = PowerPolicy::Auto)]
    pub power: PowerPolicy,
    /// The work that Basalt does with the machine.
    #[field(default = MachineMode::Managed)]
    pub mode: MachineMode,
    /// True: Basalt does nothing to the machine, and its deployment cannot be destroyed.
    #[field(default = false)]
    pub locked: bool,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The concerns of a machine, each of them managed or only observed.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct MachineOwnership {
    /// The power of the machine. `observed`: Basalt sends its BMC no command, and asks a person when the machine has to be
    /// booted.
    #[field(default = OwnershipMode::Managed)]
    pub power: OwnershipMode,
    /// The system that the machine boots. `observed`: each of its network boots is sent to its own disk, and Basalt begins no
    /// work that needs another boot.
    #[field(default = OwnershipMode::Managed)]
    pub boot: OwnershipMode,
    /// The IP addresses of the machine.
    #[field(default = OwnershipMode::Managed, dormant(observed = "racks lease it addresses like any other machine"))]
    pub network: OwnershipMode,
    /// The operating system and the disks of the machine.
    #[field(
        default = OwnershipMode::Managed,
        dormant(observed = "a deployment may be installed on it; boot = \"observed\" prevents that")
    )]
    pub os: OwnershipMode,
}

impl From<&MachineOwnership> for Ownership {
    fn from(of: &MachineOwnership) -> Self {
        Self { power: of.power, boot: of.boot }
    }
}

/// Processor architecture, as Debian names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Architecture {
    /// 64-bit x86 (x86-64).
    Amd64,
    /// 64-bit Arm (AArch64).
    Arm64,
}

/// The management controller of a machine.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Bmc {
    /// The protocol by which Basalt reaches the BMC.
    pub driver: PowerDriver,
    /// The address or host name of the BMC. No other machine may have the same one with the same driver and port. Machines of one
    /// Redfish service may, if each has its own `options.system`. Machines of one `webhook` service may, if their paths `on`
    /// differ. One host by `ipmi` and by `redfish` is accepted with an advisory, since two machines with one BMC switch each
    /// other. Required by `webhook`; also by `ipmi` and `redfish`, unless commissioning sets the BMC up. Absent: the address
    /// that was found from inside the machine. If DHCP gave that address, Basalt finds later addresses by the BMC's MAC address.
    pub address: Option<Host>,
    /// The port of the BMC. Absent: 623 for `ipmi`, 443 for `redfish` and `webhook`, 80 for `webhook` with `plain`.
    #[field(min = 1, max = 65535)]
    pub port: Option<u16>,
    /// The name of the account. Required by `ipmi`, where it has 1 to 16 bytes, and by `redfish`, unless commissioning sets the
    /// BMC up. If commissioning has made an account, that account is used in place of this one. `webhook` sends the name by HTTP
    /// Basic authentication (RFC 7617).
    pub username: Option<String>,
    /// The password of the account. With `ipmi` it has at most 20 bytes. `webhook` without `username` sends it as a bearer token
    /// (RFC 6750).
    #[field(sent_to(driver, address, port, tls, webhook))]
    pub password: Option<Secret>,
    /// With `ipmi`: the key of the BMC (K_g, IPMI 2.0 §13.31), if it has one. Sessions of all its accounts then need this key beside the
    /// password. A text of up to 20 bytes, or `0x` and up to 40 hexadecimal digits; a shorter key is filled up with zeros.
    #[field(sent_to(driver, address, port))]
    pub k_g: Option<Secret>,
    /// A number that you change to get a new password: after a change, the next commissioning makes another password for the
    /// account that it made before.
    #[field(default = 0)]
    pub rotate: u32,
    /// Settings that only some BMCs need.
    #[field(default)]
    pub options: BmcOptions,
    /// The requests that switch the machine. Required by driver `webhook`; the other drivers have none.
    pub webhook: Option<BmcWebhook>,
    /// The certificate that racks accept, with `redfish` and `webhook`; IPMI has no certificate. Absent: the first certificate
    /// that the rack sees, and from then on only that one; `status.power.certificate` shows it.
    pub tls: Option<BmcTls>,
}

/// The certificate of a BMC that racks accept. Without `ca` and `fingerprint`: a certificate for the address of the BMC that is
/// signed by an authority that the rack's host trusts.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BmcTls {
    /// True: racks check the certificate. `false`: racks send the password to any server that answers at the address.
    #[field(default = true)]
    pub verify: bool,
    /// The authority that signs the certificate, in PEM. The certificate must be valid, and must be for the address of the BMC.
    /// Absent: the authorities that the rack's host trusts.
    #[field(text)]
    pub ca: Option<String>,
    /// SHA-256 of the one certificate that racks accept, regardless of its signer. It replaces the certificate by which the rack
    /// knew the BMC.
    pub fingerprint: Option<Sha256>,
}

/// The protocol by which Basalt reaches a BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum PowerDriver {
    /// IPMI 2.0 over LAN (RMCP+).
    Ipmi,
    /// Redfish (DMTF DSP0266) over HTTPS.
    Redfish,
    /// Requests to a web service over HTTPS or HTTP, such as the service of a power outlet. This driver cannot choose the boot
    /// device: the firmware must try the network first.
    Webhook,
    /// No protocol: Basalt asks a person, and waits.
    Manual,
}

/// Settings that only some BMCs need.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BmcOptions {
    /// With `ipmi`: the RMCP+ cipher suite (IPMI 2.0 table 22-20), 3 or 17. Absent: 17 if the BMC accepts it, else 3.
    pub cipher_suite: Option<u8>,
    /// With `ipmi`: the privilege level of sessions. Absent: `operator`, which is enough for power and the boot device.
    pub privilege: Option<BmcPrivilege>,
    /// With `redfish`: the system of the BMC that is this machine, by the last part of its path below `/redfish/v1/Systems`.
    /// Absent: the only system.
    pub system: Option<String>,
}

/// A privilege level of IPMI (IPMI 2.0 §6.8) that may switch power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BmcPrivilege {
    /// The session may switch power and choose the boot device.
    Operator,
    /// The session may also change the BMC itself.
    Administrator,
}

/// The boot device that firmware tries first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BootOrder {
    /// The disk. When a network boot is needed, the BMC orders it.
    DiskFirst,
    /// The network. The rack sends the machine on to its disk.
    NetworkFirst,
}

/// How Basalt reads the hardware of a machine.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Commissioning {
    /// True: the machine becomes ready without a boot, and its hardware stays unknown.
    #[field(default = false)]
    pub skip: bool,
    /// Scripts of type `commissioning` that run after the hardware was read, in the order of their names. The machine becomes
    /// ready when all of them have succeeded. A change takes effect at the next commissioning.
    pub scripts: BTreeSet<Ref<Script>>,
    /// Scripts of type `testing` that run after `scripts`. Each stores rows with its findings.
    pub testing: BTreeSet<Ref<Script>>,
    /// `block` keeps a machine whose hardware failed a test from every deployment, until a later run of that test passes or a person
    /// overrides it.
    #[field(default = FailedTestsPolicy::Block)]
    pub failed_tests: FailedTestsPolicy,
    /// `set_up` makes an account on the BMC when the hardware is read: by Redfish if the BMC gives the machine a bootstrap
    /// account (DSP0270 §9), else by IPMI. `bmc.driver` limits this to one of the two protocols. Absent: `set_up` if the machine
    /// has no `bmc`, or a `bmc` with driver `ipmi` or `redfish` and without `username`; else `leave`. A change takes effect at
    /// the next commissioning.
    pub bmc: Option<BmcConfig>,
    /// True: the machine stays on when commissioning has ended.
    #[field(default = false)]
    pub keep_power: bool,
}

/// The effect of a failed hardware test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum FailedTestsPolicy {
    /// The machine does not become ready.
    Block,
    /// The status of the machine shows the failed test, and nothing else happens.
    Ignore,
}

/// The part of commissioning that concerns the BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BmcConfig {
    /// Commissioning makes an account for Basalt on the BMC from inside the machine, with a random password, and turns on
    /// sessions over LAN. Other accounts stay. Nothing is done while an account that was made in this way works.
    SetUp,
    /// Commissioning changes nothing on the BMC.
    Leave,
}

/// The wanted power state of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum PowerPolicy {
    /// On while Basalt works on the machine or a deployment has it, off otherwise. If somebody else switches the machine, Basalt
    /// does nothing, and the condition `PowerDiffers` reports it.
    Auto,
    /// On. Basalt switches the machine on again when it is found off.
    On,
    /// Off. Basalt switches the machine off again when it is found on.
    Off,
}

/// The work that Basalt does with a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum MachineMode {
    /// Basalt commissions, deploys and releases the machine.
    Managed,
    /// Basalt does nothing: a person works on the machine. In every mode, `basalt rescue` boots a machine into an environment for
    /// such work.
    Rescue,
    /// Basalt does nothing: the machine is set aside until it is repaired.
    Broken,
    /// Basalt does nothing: the machine is out of service for good.
    Retired,
}

/// A physical machine, as observed.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct MachineStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// The state of the machine, as independent axes.
    #[field(volatile, default)]
    pub axes: Axes,
    /// One word for people that sums up `axes`. It is computed when the object is read.
    #[field(volatile)]
    pub phase: Option<String>,
    /// The deployment that has the machine.
    #[field(volatile)]
    pub deployment: Option<Ref<Deployment>>,
    /// All tags of the machine: the tags of its spec, the tags that other tools gave it, and the automatic ones.
    #[field(volatile)]
    pub tags: BTreeSet<Tag>,
    /// The tags among these that the machine has because the expression of a Tag is true for it.
    #[field(volatile)]
    pub automatic_tags: BTreeSet<Tag>,
    /// The hardware of the machine, as it was last read.
    pub inventory: Option<Inventory>,
    /// The power of the machine, as it was last seen.
    #[field(volatile)]
    pub power: Option<PowerStatus>,
    /// Addresses of the system that runs on the machine, by interface; further addresses by `INTERFACE/NAME`. A leased address is
    /// listed while its lease runs.
    #[field(volatile)]
    pub addresses: BTreeMap<String, IpAddr>,
    /// The last leased address of each interface, even after its lease has ended. It shows the network of the interface. Empty
    /// while a deployment has the machine.
    #[field(volatile)]
    pub last_leased: BTreeMap<String, IpAddr>,
    /// The BMC that was found from inside the machine.
    pub bmc: Option<DetectedBmc>,
    /// The results of the latest hardware tests.
    #[field(volatile)]
    pub tests: Option<HardwareTests>,
    /// The progress of the present boot.
    #[field(volatile)]
    pub boot: Option<BootProgress>,
    /// The time at which the hardware was last read.
    #[field(volatile)]
    pub commissioned_at: Option<Timestamp>,
}

/// The power of a machine, as its BMC reports it.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct PowerStatus {
    /// The power state. `unknown`: the BMC did not answer the last reading, or refused it.
    pub state: PowerState,
    /// The time at which the BMC reported it. A state that stays the same is confirmed at least once an hour while
    /// `power_reading` of Settings is not `0s`.
    pub observed_at: Timestamp,
    /// The rack that read the power.
    pub rack: Option<Ref<Rack>>,
    /// The reason why the power could not be read.
    pub error: Option<String>,
    /// SHA-256 of the certificate by which the rack knows the BMC. `bmc.tls.fingerprint` can declare it. Absent: the BMC is not
    /// known by a certificate.
    pub certificate: Option<Sha256>,
}

/// A power state, as a BMC reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum PowerState {
    /// The machine is on.
    On,
    /// The machine is off.
    Off,
    /// The BMC gave no answer, or an answer that cannot be trusted.
    Unknown,
}

/// A BMC that was found from inside its machine.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DetectedBmc {
    /// The protocol of the account. Without an account: the best protocol by which the BMC has answered.
    pub driver: PowerDriver,
    /// The LAN address of the BMC.
    pub address: Option<IpAddr>,
    /// The source of that address.
    pub address_source: Option<BmcAddressSource>,
    /// The MAC address of the BMC.
    pub mac: Option<Mac>,
    /// The channel of the BMC's LAN interface (IPMI 2.0 §6.3).
    pub channel: Option<u8>,
    /// The manufacturer of the BMC.
    pub vendor: Option<String>,
    /// The manufacturer's number for the product.
    #[field(default = 0)]
    pub product_id: u16,
    /// Revision of the BMC's firmware.
    pub firmware: Option<String>,
    /// The account that commissioning has made on the BMC.
    pub account: Option<BmcAccountStatus>,
    /// The reason why commissioning has made no account on the BMC, and the remedy.
    pub problem: Option<String>,
}

/// The source of a BMC's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BmcAddressSource {
    /// A person set the address.
    Static,
    /// A DHCP server gave the address.
    Dhcp,
}

/// An account that commissioning has made on a BMC.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BmcAccountStatus {
    /// The name of the user.
    pub username: String,
    /// The number of passwords that were made for the machine, counted from 1.
    pub revision: u32,
    /// The time at which the present password was made.
    pub made_at: Timestamp,
    /// True: a rack has used the account. Before that, the account was checked only from inside the machine.
    #[field(default = false)]
    pub checked: bool,
    /// True: racks could not use the account. The account that `bmc` declares is used instead.
    #[field(default = false)]
    pub refused: bool,
}

/// The results of the latest run of each hardware test.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct HardwareTests {
    /// The worst finding of all tests.
    pub verdict: TestVerdict,
    /// Tests that failed: test, device and cause of each. `basalt results` shows all.
    pub failed: Vec<String>,
    /// Tests that found hardware that needs care: test, device and cause of each.
    pub degraded: Vec<String>,
    /// The time at which the latest of these tests ended.
    pub at: Timestamp,
    /// The decision of a person that the failed tests do not count.
    pub overridden: Option<TestsOverride>,
}

/// The finding of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum TestVerdict {
    /// No test was for this hardware.
    Skipped,
    /// The hardware does its work.
    Passed,
    /// The hardware works, and a person should look at it.
    Degraded,
    /// The hardware does not do its work.
    Failed,
}

/// The decision of a person that failed tests do not count.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct TestsOverride {
    /// The time of the decision. Tests that ended before it do not count.
    pub at: Timestamp,
    /// The account of the person.
    pub by: Option<String>,
    /// The reason that the person gave.
    pub reason: String,
}

/// The progress of a boot.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BootProgress {
    /// The last step that was seen: `dhcp`, `loader`, `script`, `kernel`, `initrd`, `root`, `agent`, `system`.
    pub step: String,
    /// The time at which the step was seen.
    pub at: Timestamp,
    /// The rack that saw the step.
    pub rack: Option<Ref<Rack>>,
}

fn machine_rules(spec: &MachineSpec, rule: &mut Rule<'_>) {
    super::kernel_options::rules(spec.kernel_options.as_deref(), rule);
    dhcp_options::rules(&spec.dhcp_options, "/dhcp_options", rule);
    if let Some(storage) = &spec.storage {
        super::storage_rules::storage_rules(storage, rule);
    }
    if let Some(bmc) = &spec.bmc {
        super::bmc_rules::bmc_rules(bmc, spec.commissioning.bmc, rule);
    }
    if let Some(network) = &spec.network {
        network_rules(network, rule);
    }
    for mac in &spec.boot_macs {
        if mac.is_multicast() || mac.is_zero() {
            rule.broken(
                "/boot_macs",
                format!("{mac} is not the address of one interface"),
                "the interface's own address, as its label or `ip link` shows it",
            );
        }
    }
    if spec.boot_macs.is_empty() && !spec.commissioning.skip && spec.mode == MachineMode::Managed {
        rule.missing(
            "/boot_macs",
            "a machine is recognised on the network by its MAC addresses, and this one has none",
            "the MAC address of the interface it boots from",
        );
    }
}
