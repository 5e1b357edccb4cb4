//! The conditions by which a machine is chosen for a deployment.

use super::inventory::is_flag;
use super::{Architecture, Fabric, Pool, Space, Subnet, Vlan, Zone};
use crate::model::Ref;
use crate::pointer::escape;
use crate::validate::Rule;
use crate::values::{ByteSize, Tag};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

/// The conditions for the machine of a deployment. A machine must meet every condition. Basalt chooses the machine with the
/// largest weight of preferences, and among equals the smallest machine.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Selector {
    /// Processor architecture of the machine. Absent: the architecture of the image.
    pub architecture: Option<Architecture>,
    /// A pattern for the machine's name; `*` stands for any characters, `?` for one.
    pub name: Option<String>,
    /// The zone of the machine.
    pub zone: Option<Ref<Zone>>,
    /// Zones that the machine must not be in.
    pub not_zone: BTreeSet<Ref<Zone>>,
    /// The pool of the machine.
    pub pool: Option<Ref<Pool>>,
    /// Tags that the machine must have, declared or automatic.
    pub tags: BTreeSet<Tag>,
    /// Tags that the machine must not have.
    pub not_tags: BTreeSet<Tag>,
    /// The least number of cores.
    pub min_cores: Option<u32>,
    /// The least level of the x86-64 instruction set (x86-64 psABI), 1 to 4. Processors of other architectures have none.
    #[field(min = 1, max = 4)]
    pub min_x86_64_level: Option<u8>,
    /// Features that every processor of the machine must have, by the kernel's names: `avx512f`.
    pub cpu_flags: BTreeSet<String>,
    /// The least size of the memory.
    pub min_memory: Option<ByteSize>,
    /// The least size of the largest disk.
    pub min_disk: Option<ByteSize>,
    /// Disks that the machine must have, by names of your own. A different disk must match each name.
    pub disks: BTreeMap<String, DiskWish>,
    /// Network interfaces that the machine must have, by names of your own. A different interface must match each name, with all
    /// of its conditions.
    pub interfaces: BTreeMap<String, InterfaceWish>,
    /// Graphics processors that the machine must have.
    pub gpus: Option<GpuWish>,
    /// Conditions that make a machine better and are not required, by names of your own.
    pub preferences: BTreeMap<String, Preference>,
    /// The failure domains over which the deployments of a group are spread: the next one goes where the fewest are. This takes
    /// precedence over `preferences`.
    pub spread_by: Option<SpreadBy>,
    /// The name of the group to spread. Deployments with the same `pool` and the same name are in one group. Absent: the group is
    /// all deployments with equal selectors.
    pub spread_group: Option<String>,
}

/// A disk that a machine must have.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DiskWish {
    /// The least size of the disk.
    pub min_size: Option<ByteSize>,
    /// True: a disk with rotating platters. False: a disk without. Absent: either.
    pub rotational: Option<bool>,
    /// Attachment of the disk: `virtio`, `nvme`, `sata`, `sas`. Absent: any.
    pub transport: Option<String>,
}

/// A network interface that a machine must have. An interface counts as in the subnet of its last address.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct InterfaceWish {
    /// The subnet of the interface.
    pub subnet: Option<Ref<Subnet>>,
    /// The VLAN of the interface.
    pub vlan: Option<Ref<Vlan>>,
    /// The space of that VLAN.
    pub space: Option<Ref<Space>>,
    /// The fabric of that VLAN.
    pub fabric: Option<Ref<Fabric>>,
    /// The class of that fabric.
    pub fabric_class: Option<String>,
    /// The name of the switch at the other end of the link, as the switch announced it by LLDP or CDP: `*` stands for any text,
    /// `?` for any character.
    pub switch: Option<String>,
    /// The least speed of the link, in Mb/s.
    #[field(min = 1, max = 10_000_000)]
    pub min_speed: Option<u64>,
}

/// Graphics processors that a machine must have.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct GpuWish {
    /// Vendor of the processors: `nvidia`, `amd`, `intel`. Absent: any.
    pub vendor: Option<String>,
    /// Model of the processors, as the PCI device id: `20b5`. Absent: any.
    pub model: Option<String>,
    /// The least number of such processors.
    #[field(default = 1, min = 1, max = 64)]
    pub min_count: u32,
}

/// A preference, which makes a machine better. A machine meets it if every condition holds.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Preference {
    /// The weight of this preference among the others.
    #[field(default = 1, min = 1, max = 1000)]
    pub weight: u32,
    /// The preferred zone.
    pub zone: Option<Ref<Zone>>,
    /// The preferred pool.
    pub pool: Option<Ref<Pool>>,
    /// Tags that the machine should have.
    pub tags: BTreeSet<Tag>,
    /// Tags that the machine should not have.
    pub not_tags: BTreeSet<Tag>,
    /// The least number of cores.
    pub min_cores: Option<u32>,
    /// The least size of the memory.
    pub min_memory: Option<ByteSize>,
}

/// The failure domains over which deployments are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum SpreadBy {
    /// The zones of the machines.
    Zone,
    /// The racks that serve the machines' networks.
    Rack,
}

/// Reports the errors of a selector that can be seen without a machine.
pub(super) fn selector_rules(selector: &Selector, rule: &mut Rule<'_>) {
    for tag in selector.tags.intersection(&selector.not_tags) {
        rule.broken(
            "/selector/not_tags",
            format!("tag {:?} is both asked for and excluded: no machine can match", tag.as_str()),
            "the tag in one of tags and not_tags",
        );
    }
    if let Some(zone) = selector.zone.as_ref().filter(|zone| selector.not_zone.contains(zone)) {
        rule.broken(
            "/selector/not_zone",
            format!("zone {:?} is both asked for and excluded: no machine can match", zone.as_str()),
            "the zone in one of zone and not_zone",
        );
    }
    if let Some(name) = &selector.name
        && !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '*' | '?'))
    {
        rule.broken(
            "/selector/name",
            format!("{name:?} is the pattern of no machine's name"),
            "a-z, 0-9 and -, with * for any characters and ? for one, like web-*",
        );
    }
    for flag in selector.cpu_flags.iter().filter(|flag| !is_flag(flag)) {
        rule.broken(
            "/selector/cpu_flags",
            format!("{flag:?} is the flag of no processor"),
            "names as in /proc/cpuinfo, like avx512f",
        );
    }
    if selector.spread_by.is_none() && selector.spread_group.is_some() {
        rule.missing(
            "/selector/spread_by",
            "there is a group to spread, and nothing to spread it over",
            "spread_by = \"zone\" or \"rack\"",
        );
    }
    for (name, preference) in &selector.preferences {
        let nothing = Preference { weight: preference.weight, ..Preference::default() };
        if *preference == nothing {
            rule.broken(
                format!("/selector/preferences/{}", escape(name)),
                format!("preference {name:?} prefers nothing"),
                "a zone, a pool, tags, not_tags, min_cores or min_memory",
            );
        }
    }
    empty_texts(selector, rule);
}

/// Refuses empty texts: they match nothing.
fn empty_texts(selector: &Selector, rule: &mut Rule<'_>) {
    let gpus = selector.gpus.as_ref();
    let mut texts = vec![
        ("/selector/name".to_owned(), selector.name.as_ref()),
        ("/selector/spread_group".to_owned(), selector.spread_group.as_ref()),
        ("/selector/gpus/vendor".to_owned(), gpus.and_then(|gpus| gpus.vendor.as_ref())),
        ("/selector/gpus/model".to_owned(), gpus.and_then(|gpus| gpus.model.as_ref())),
    ];
    for (name, disk) in &selector.disks {
        texts.push((format!("/selector/disks/{}/transport", escape(name)), disk.transport.as_ref()));
    }
    for (pointer, _) in texts.into_iter().filter(|(_, text)| text.is_some_and(|text| text.is_empty())) {
        rule.broken(pointer, "the text is empty: nothing can match it", "leave it out");
    }
}
