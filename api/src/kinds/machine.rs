//! Machine: a physical machine, its BMC, and what is to be done with it while nobody has deployed it.

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
    /// A physical machine. Declaring one has Basalt take it in: power it on, read its hardware, and keep it ready for
    /// deployments.
    Machine, "machines", "basalt_machine", Label, declarable: true, MachineSpec, MachineStatus, machine_rules
}

/// A physical machine, as declared.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct MachineSpec {
    /// Processor architecture.
    #[field(default = Architecture::Amd64)]
    pub architecture: Architecture,
    /// The failure domain it stands in. Absent: it counts as in `default`, whether there is such a zone or not.
    #[field(server_chosen)]
    pub zone: Option<Ref<Zone>>,
    /// The pool it belongs to. Absent: it counts as in `default`, whether there is such a pool or not.
    #[field(server_chosen)]
    pub pool: Option<Ref<Pool>>,
    /// Words that selectors can ask for.
    pub tags: BTreeSet<Tag>,
    /// The domain that it has a name in.
    pub domain: Option<Ref<Domain>>,
    /// MAC addresses it may boot from; by these it is recognised on the network.
    pub boot_macs: BTreeSet<Mac>,
    /// Its management controller. Absent: a person presses its buttons, as with driver `manual`.
    pub bmc: Option<Bmc>,
    /// Who is in charge of it, concern by concern: a running machine can be declared observed, and taken over bit by bit.
    #[field(default)]
    pub ownership: MachineOwnership,
    /// What its firmware tries first.
    #[field(reboot, server_chosen, dormant = "its BMC is asked for one network boot whenever one is needed")]
    pub boot_order: Option<BootOrder>,
    /// Kernel parameters for every system that boots on it.
    #[field(reboot)]
    pub kernel_options: Option<String>,
    /// DHCPv4 options for its interfaces, as those of a Vlan.
    pub dhcp_options: BTreeMap<String, String>,
    /// How its hardware is read.
    #[field(default)]
    pub commissioning: Commissioning,
    /// The network of deployments on it that declare none. A system keeps the one that it was installed with: a change counts
    /// from the next installation on.
    #[field(none)]
    pub network: Option<NetworkConfig>,
    /// The disks of deployments on it whose own `storage` says nothing else than its defaults. A change counts from the next
    /// installation on.
    #[field(none)]
    pub storage: Option<StorageConfig>,
    /// Whether it is to be on while no deployment says so.
    #[field(default = PowerPolicy::Auto)]
    pub power: PowerPolicy,
    /// What Basalt is to do with it.
    #[field(default = MachineMode::Managed)]
    pub mode: MachineMode,
    /// Nothing is done to a locked machine, and its deployment cannot be destroyed.
    #[field(default = false)]
    pub locked: bool,
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// Who is in charge of a machine, concern by concern.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct MachineOwnership {
    /// Its power. `observed`: its BMC is sent no command, and a person is asked where it is to be booted.
    #[field(default = OwnershipMode::Managed)]
    pub power: OwnershipMode,
    /// What it boots. `observed`: whatever it asks the network for, it is sent to its own disk; nothing is begun that needs
    /// it to boot anything else.
    #[field(default = OwnershipMode::Managed)]
    pub boot: OwnershipMode,
    /// Its addresses.
    #[field(default = OwnershipMode::Managed, dormant(observed = "racks lease it addresses like any other machine"))]
    pub network: OwnershipMode,
    /// Its operating system and disks.
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
    /// x86-64.
    Amd64,
    /// AArch64.
    Arm64,
}

/// A machine's management controller.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Bmc {
    /// How it is spoken to.
    pub driver: PowerDriver,
    /// Its address or host name, which no other machine's has. Machines of one `webhook` service share its address, and each has a path `on` of
    /// its own. Needed by `webhook`; and by `ipmi` and `redfish`, unless commissioning sets the BMC up. Absent: the address that was found from
    /// inside. One from DHCP is followed by the BMC's MAC address.
    pub address: Option<Host>,
    /// Its port. Absent: 623 for `ipmi`, 443 for `redfish` and `webhook`, 80 for `webhook` with `plain`.
    #[field(min = 1, max = 65535)]
    pub port: Option<u16>,
    /// The account. Needed by `ipmi`, which has names of 1 to 16 bytes, and by `redfish`, unless commissioning sets the BMC up. An account that
    /// commissioning made is used in place of this one. `webhook` sends it by HTTP Basic authentication (RFC 7617).
    pub username: Option<String>,
    /// The account's password. IPMI has passwords of up to 20 bytes. `webhook` without `username` sends it as a bearer token (RFC 6750).
    #[field(sent_to(driver, address, port, tls, webhook))]
    pub password: Option<Secret>,
    /// Another number here has the next commissioning make another password for the account that it made.
    #[field(default = 0)]
    pub rotate: u32,
    /// What this BMC needs that others do not.
    #[field(default)]
    pub options: BmcOptions,
    /// The requests that switch the machine. Needed by driver `webhook`; the others have none.
    pub webhook: Option<BmcWebhook>,
    /// The certificate that is believed, with `redfish` and `webhook`; IPMI has none. Absent: the first that the rack sees, from then on;
    /// `status.power.certificate` shows it.
    pub tls: Option<BmcTls>,
}

/// Which certificate of a BMC is taken. Without `ca` and `fingerprint`: one that an authority signed which the rack's host
/// trusts, for the address.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BmcTls {
    /// Whether it is checked at all. `false`: whoever answers is sent the password.
    #[field(default = true)]
    pub verify: bool,
    /// The authority that signs it, in PEM; the certificate has to be for the address, and valid. Absent: those that the rack's host trusts.
    #[field(text)]
    pub ca: Option<String>,
    /// SHA-256 of the one certificate that is taken, whoever signed it. It replaces what the rack knew the BMC by.
    pub fingerprint: Option<Sha256>,
}

/// How a BMC is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum PowerDriver {
    /// IPMI 2.0 over LAN (RMCP+).
    Ipmi,
    /// Redfish (DMTF DSP0266) over HTTPS.
    Redfish,
    /// Requests to a web service over HTTPS or HTTP, like that of a power outlet. It cannot choose the boot device: firmware must try the network
    /// first.
    Webhook,
    /// Not at all: Basalt asks a person and waits.
    Manual,
}

/// What a BMC needs that others do not.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BmcOptions {
    /// With `ipmi`: RMCP+ cipher suite (IPMI 2.0 table 22-20): 3 or 17. Absent: 17 if the BMC takes it, else 3.
    pub cipher_suite: Option<u8>,
    /// With `ipmi`: the privilege level to ask for. Absent: `operator`, which is all that power and boot device need.
    pub privilege: Option<BmcPrivilege>,
    /// With `redfish`: which of the BMC's systems the machine is, by the last part of its path below `/redfish/v1/Systems`.
    /// Absent: the only one.
    pub system: Option<String>,
}

/// A privilege level of IPMI (IPMI 2.0 §6.8) that may move power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BmcPrivilege {
    /// May move power and choose the boot device.
    Operator,
    /// May change the BMC itself.
    Administrator,
}

/// What firmware tries first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BootOrder {
    /// The disk; the BMC orders a network boot when one is needed.
    DiskFirst,
    /// The network; the rack sends the machine on to its disk.
    NetworkFirst,
}

/// How a machine's hardware is read.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Commissioning {
    /// Declare the machine ready without booting it; nothing is known of its hardware then.
    #[field(default = false)]
    pub skip: bool,
    /// Scripts of type `commissioning` that are run once its hardware has been read, in the order of their names. It becomes ready
    /// when all of them have gone well. A change counts from the next commissioning on.
    pub scripts: BTreeSet<Ref<Script>>,
    /// Scripts of type `testing` that are run after those. Each stores rows with its findings.
    pub testing: BTreeSet<Ref<Script>>,
    /// `block` keeps a machine whose hardware failed a test from every deployment, until a later run of that test passes or a person
    /// overrides it.
    #[field(default = FailedTestsPolicy::Block)]
    pub failed_tests: FailedTestsPolicy,
    /// `set_up` makes an account on the BMC when the hardware is read: by Redfish if the BMC gives the machine a bootstrap account (DSP0270
    /// §9), else by IPMI. `bmc.driver` says one of them. Absent: `set_up` where `bmc` has no account and no other driver than these, else `leave`. A change counts from the next commissioning on.
    pub bmc: Option<BmcConfig>,
    /// Whether the machine stays on when it is done.
    #[field(default = false)]
    pub keep_power: bool,
}

/// The effect of a failed test of the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum FailedTestsPolicy {
    /// The machine is not ready.
    Block,
    /// Its status says so, and nothing else happens.
    Ignore,
}

/// The part of commissioning that concerns the BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BmcConfig {
    /// An account for Basalt is made on it from inside, with a random password, and sessions over LAN are turned on. Other accounts stay.
    /// Nothing is done while an account that was made so is good.
    SetUp,
    /// Nothing is changed on it.
    Leave,
}

/// Whether a machine is to be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum PowerPolicy {
    /// On while Basalt works on the machine or a deployment has it, off otherwise. If somebody else switches the machine, nothing is done, and
    /// the condition `PowerDiffers` says so.
    Auto,
    /// On. Switched on again when it is found off.
    On,
    /// Off. Switched off again when it is found on.
    Off,
}

/// What Basalt is to do with a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum MachineMode {
    /// Commission it, deploy it, release it.
    Managed,
    /// Nothing: somebody works on it. `basalt rescue` boots it into an environment for that, in every mode.
    Rescue,
    /// Nothing: it is set aside until it is mended.
    Broken,
    /// Nothing, for good.
    Retired,
}

/// A physical machine, as observed.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct MachineStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// How it is.
    #[field(volatile, default)]
    pub axes: Axes,
    /// The one word for people, computed from `axes` when it is read.
    #[field(volatile)]
    pub phase: Option<String>,
    /// The deployment that owns it.
    #[field(volatile)]
    pub deployment: Option<Ref<Deployment>>,
    /// Its tags: those of its spec, those that other tools gave it, and the automatic ones.
    #[field(volatile)]
    pub tags: BTreeSet<Tag>,
    /// Of these, the ones it has because the expression of a tag holds for it.
    #[field(volatile)]
    pub automatic_tags: BTreeSet<Tag>,
    /// What it is made of.
    pub inventory: Option<Inventory>,
    /// Its power, as last seen.
    #[field(volatile)]
    pub power: Option<PowerStatus>,
    /// Addresses of the system that runs on it, by interface; further ones by `INTERFACE/NAME`. A leased
    /// address is among them while its lease runs.
    #[field(volatile)]
    pub addresses: BTreeMap<String, IpAddr>,
    /// The address that an interface leased last, even after the lease has ended: it shows the network of the interface. Empty while a
    /// deployment has the machine.
    #[field(volatile)]
    pub last_leased: BTreeMap<String, IpAddr>,
    /// The BMC that was found from inside.
    pub bmc: Option<DetectedBmc>,
    /// The latest run of each test of its hardware.
    #[field(volatile)]
    pub tests: Option<HardwareTests>,
    /// How far its present boot has come.
    #[field(volatile)]
    pub boot: Option<BootProgress>,
    /// When its hardware was last read.
    #[field(volatile)]
    pub commissioned_at: Option<Timestamp>,
}

/// A machine's power.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct PowerStatus {
    /// The power, by the BMC. `unknown`: it did not answer the last reading, or refused it.
    pub state: PowerState,
    /// When it said so. A state that stays the same is confirmed at least once an hour while `power_reading` of Settings is not `0s`.
    pub observed_at: Timestamp,
    /// The rack that asked.
    pub rack: Option<Ref<Rack>>,
    /// Why it could not be asked.
    pub error: Option<String>,
    /// SHA-256 of the certificate that the BMC is known by, where it is by one: `bmc.tls.fingerprint` can declare it.
    pub certificate: Option<Sha256>,
}

/// What a BMC says of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum PowerState {
    /// On.
    On,
    /// Off.
    Off,
    /// No answer, or none that can be trusted.
    Unknown,
}

/// A BMC found from inside its machine.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DetectedBmc {
    /// How it is spoken to.
    pub driver: PowerDriver,
    /// Its LAN address.
    pub address: Option<IpAddr>,
    /// The source of that address.
    pub address_source: Option<BmcAddressSource>,
    /// Its own MAC address.
    pub mac: Option<Mac>,
    /// The channel that is its LAN interface (IPMI 2.0 §6.3).
    pub channel: Option<u8>,
    /// The maker of the BMC.
    pub vendor: Option<String>,
    /// The maker's number of the product.
    #[field(default = 0)]
    pub product_id: u16,
    /// Firmware revision.
    pub firmware: Option<String>,
    /// The account that commissioning has made on it.
    pub account: Option<BmcAccountStatus>,
    /// Why commissioning has made no account on it, and what to do.
    pub problem: Option<String>,
}

/// The source of a BMC's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BmcAddressSource {
    /// It was set by hand.
    Static,
    /// A DHCP server gave it.
    Dhcp,
}

/// An account that commissioning has made on a BMC.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BmcAccountStatus {
    /// The user's name.
    pub username: String,
    /// Counts the passwords that were made for the machine, from 1.
    pub revision: u32,
    /// When it was made.
    pub made_at: Timestamp,
    /// A rack has used it. Before that, the BMC has checked it from inside alone.
    #[field(default = false)]
    pub checked: bool,
    /// Racks could not use it, and the account that is declared in `bmc` is used.
    #[field(default = false)]
    pub refused: bool,
}

/// The latest run of each test of a machine's hardware.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct HardwareTests {
    /// The worst finding.
    pub verdict: TestVerdict,
    /// Failed: test, device, cause. `basalt results` shows all.
    pub failed: Vec<String>,
    /// Needs care: test, device, cause.
    pub degraded: Vec<String>,
    /// When the latest of them ended.
    pub at: Timestamp,
    /// A person has overridden what failed.
    pub overridden: Option<TestsOverride>,
}

/// The finding of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum TestVerdict {
    /// No test was for this hardware.
    Skipped,
    /// The hardware does its work.
    Passed,
    /// It works, and a person should look at it.
    Degraded,
    /// It does not.
    Failed,
}

/// A person's word that failed tests do not count.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct TestsOverride {
    /// Tests that ended before do not count.
    pub at: Timestamp,
    /// The person's account.
    pub by: Option<String>,
    /// The reason that was given.
    pub reason: String,
}

/// How far a boot has come.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BootProgress {
    /// The last thing seen: `dhcp`, `loader`, `script`, `kernel`, `initrd`, `root`, `agent`, `system`.
    pub step: String,
    /// When it was seen.
    pub at: Timestamp,
    /// The rack that saw it.
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
