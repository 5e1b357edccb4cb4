//! The kinds. Each file describes a few: what clients declare (`…Spec`), what the region reports (`…Status`), and the
//! rules between fields that a spec alone can break. The table at the end of this file is the only list of kinds.

mod access;
mod address;
mod bmc_key;
mod bmc_rules;
mod bmc_webhook;
mod deployment;
mod device;
mod dhcp_options;
mod dns;
mod enlist;
mod host_network;
mod image;
mod inventory;
mod kernel_options;
mod machine;
mod network;
mod place;
mod rack;
mod record;
mod route;
#[cfg(any(test, feature = "sample-kind"))]
mod sample;
mod script;
#[cfg(feature = "comments")]
pub(crate) mod script_comment;
mod selector;
mod servers;
mod settings;
mod source;
mod space;
mod ssh_key;
mod status;
mod storage;
mod storage_rules;
mod tag;
#[cfg(test)]
mod tests;
pub(crate) mod user_data;
mod webhook;

pub use access::{ApiToken, OpenIdIdentity, Role, User};
pub use access::{ApiTokenSpec, ApiTokenStatus, RoleBase, RoleSpec, RoleStatus, UserSpec, UserStatus};
pub use address::{IpAddress, IpAddressSpec, IpAddressStatus};
pub use bmc_key::bmc_key;
pub use bmc_webhook::BmcWebhook;
#[cfg(feature = "patterns")]
pub use bmc_webhook::power_pattern;
pub use deployment::Deployment;
pub use deployment::{
    DeploymentSpec, DeploymentStatus, EraseMethod, InstallStage, OnFailure, Progress, Readiness,
    ReadinessCheck, Redeploy, Release, Timings, Wipe,
};
pub use device::{
    Device, DeviceSpec, DeviceStatus, Discovery, DiscoverySort, DiscoverySpec, DiscoveryStatus,
    ProposedMachine,
};
pub use dns::{
    DnsRecord, DnsRecordSpec, DnsRecordStatus, Domain, DomainSpec, DomainStatus, Secondary, SecondaryState,
    SecondaryStatus,
};
pub use enlist::{EnlistMode, EnlistRule, Enlistment};
pub use host_network::{
    AddressConfig, Addressing, BondConfig, BondMode, BridgeConfig, BuiltConfig, HashPolicy, InterfaceConfig,
    LacpRate, Link, LinkAddress, NetworkConfig, RouteConfig, SubnetFacts, VlanConfig, is_on_link,
};
pub use image::Image;
pub use image::{FileRole, ImageFile, ImagePurpose, ImageSpec, ImageStatus};
pub use inventory::{
    Cpu, Disk, DiskMarker, Dmi, FirmwareMode, Gpu, Interface, Inventory, MAX_FLAG_BYTES, MAX_FLAGS,
    MAX_NEIGHBOURS, MAX_NUMA_NODES, MAX_USB_DEVICES, MarkerState, MemoryModule, Neighbour, NeighbourProtocol,
    NumaNode, OtherInterface, PciDevice, UsbDevice,
};
pub use machine::Machine;
pub use machine::{
    Architecture, Bmc, BmcAccountStatus, BmcAddressSource, BmcConfig, BmcOptions, BmcPrivilege, BmcTls,
    BootOrder, BootProgress, Commissioning, DetectedBmc, FailedTestsPolicy, HardwareTests, MachineMode,
    MachineOwnership, MachineSpec, MachineStatus, PowerDriver, PowerPolicy, PowerState, PowerStatus,
    TestVerdict, TestsOverride,
};
pub use network::{
    BlockState, BootMode, Fabric, FabricSpec, FabricStatus, IpRange, IpRangeSpec, IpRangeStatus, RangeBlock,
    RangePurpose, Rdns, Subnet, SubnetBoot, SubnetPurposes, SubnetSpec, SubnetStatus, Vlan, VlanDhcp,
    VlanSpec, VlanStatus,
};
pub use place::{Pool, PoolSpec, PoolStatus, Zone, ZoneSpec, ZoneStatus};
pub use rack::{
    CachedImage, ConcernState, Rack, RackCache, RackLeases, RackService, RackSpec, RackStatus, ServiceState,
};
pub use record::{RecordData, RecordType};
pub use route::{StaticRoute, StaticRouteSpec, StaticRouteStatus};
#[cfg(any(test, feature = "sample-kind"))]
pub use sample::{Sample, SampleColour, SampleDetail, SamplePart, SampleSpec, SampleStatus};
pub use script::{
    MAX_ARGUMENT_BYTES, MAX_PACKAGES, Occasion, Script, ScriptParallel, ScriptParameter, ScriptParameterType,
    ScriptSpec, ScriptStatus, ScriptType,
};
#[cfg(feature = "comments")]
pub use script_comment::ScriptComment;
pub use selector::{DiskWish, GpuWish, InterfaceWish, Preference, Selector, SpreadBy};
pub use settings::{
    DEADLINES, FleetBudget, Loader, LogSettings, OpenIdGroup, OpenIdSettings, ProxySettings, ProxyVia,
    RemoteSyslog, RemoteSyslogProtocol, RemoteSyslogStatus, Settings, SettingsSpec, SettingsStatus, Weekday,
    Window,
};
pub use source::{
    ImageSelection, ImageSource, ImageSourceSpec, ImageSourceStatus, PackageRepository,
    PackageRepositorySpec, PackageRepositoryStatus, RepositorySignatures, RepositoryType,
};
pub use space::{Space, SpaceSpec, SpaceStatus};
pub use ssh_key::{SshKey, SshKeySpec, SshKeyStatus};
pub use status::{
    Axes, CommonStatus, Condition, ConditionStatus, Health, Lifecycle, Operation, Ownership, OwnershipMode,
    Sync, phase,
};
pub use storage::{
    FilesystemType, RaidLevel, StorageConfig, StorageDisk, StorageFilesystem, StorageLayout,
    StoragePartition, StorageRaid, StorageVolume, StorageVolumeGroup,
};
pub use tag::{Tag, TagSpec, TagStatus};
pub use webhook::{Webhook, WebhookEvent, WebhookSpec, WebhookStatus};

use crate::schema::Kind;

/// Declares a kind's marker type and its description. `#[dormant = "why"]` means that nothing acts on the whole kind yet. The
/// documentation of the kind then ends with that reason. `#[planned = true]` sets [`Kind::planned`].
macro_rules! kind {
    (
        $(#[doc = $doc:literal])+
        $(#[dormant = $because:literal])?
        $(#[planned = $planned:literal])?
        $kind:ident, $plural:literal, $terraform:literal, $naming:ident, declarable: $declarable:literal,
        $spec:ty, $status:ty, $rules:path
    ) => {
        $(#[doc = $doc])+
        $(#[doc = concat!("Stored alone, and not acted on yet: ", $because, ".")])?
        #[derive(Debug)]
        pub enum $kind {}

        impl crate::KindOf for $kind {
            const NAME: &'static str = stringify!($kind);
            const KIND: &'static crate::Kind = &crate::Kind {
                name: stringify!($kind),
                plural: $plural,
                terraform_name: $terraform,
                doc: concat!($($doc,)+ $(" Stored alone, and not acted on yet: ", $because, ".")?).trim_ascii(),
                spec: <$spec as crate::Model>::SCHEMA,
                status: <$status as crate::Model>::SCHEMA,
                declarable: $declarable,
                planned: false $(|| $planned)?,
                dormant: crate::kinds::only(&[$($because)?]),
                naming: crate::values::Naming::$naming,
                rules: |spec, errors| crate::validate::typed::<$spec>(spec, errors, $rules),
            };
            type Spec = $spec;
            type Status = $status;
        }
    };
}
pub(crate) use kind;

/// The only item of a list of at most one.
const fn only(these: &[&'static str]) -> Option<&'static str> {
    match these {
        [one, ..] => Some(one),
        [] => None,
    }
}

/// All kinds, in the order of the documentation: a kind comes before the kinds that refer to it.
pub const KINDS: &[&Kind] = &[
    <Zone as crate::KindOf>::KIND,
    <Pool as crate::KindOf>::KIND,
    <Space as crate::KindOf>::KIND,
    <Fabric as crate::KindOf>::KIND,
    <Vlan as crate::KindOf>::KIND,
    <Subnet as crate::KindOf>::KIND,
    <IpRange as crate::KindOf>::KIND,
    <IpAddress as crate::KindOf>::KIND,
    <StaticRoute as crate::KindOf>::KIND,
    <Domain as crate::KindOf>::KIND,
    <DnsRecord as crate::KindOf>::KIND,
    <ImageSource as crate::KindOf>::KIND,
    <Image as crate::KindOf>::KIND,
    <Tag as crate::KindOf>::KIND,
    <Script as crate::KindOf>::KIND,
    <PackageRepository as crate::KindOf>::KIND,
    <SshKey as crate::KindOf>::KIND,
    <Machine as crate::KindOf>::KIND,
    <Device as crate::KindOf>::KIND,
    <Deployment as crate::KindOf>::KIND,
    <Rack as crate::KindOf>::KIND,
    <Discovery as crate::KindOf>::KIND,
    <Webhook as crate::KindOf>::KIND,
    <Settings as crate::KindOf>::KIND,
    <Role as crate::KindOf>::KIND,
    <User as crate::KindOf>::KIND,
    <ApiToken as crate::KindOf>::KIND,
    #[cfg(any(test, feature = "sample-kind"))]
    <Sample as crate::KindOf>::KIND,
];
