//! What a machine must be like to be chosen for a deployment.

use super::{Architecture, Fabric, Pool, Space, Subnet, Vlan, Zone};
use crate::model::Ref;
use crate::pointer::escape;
use crate::validate::Rule;
use crate::values::{ByteSize, Tag};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

/// What a machine must be like. Every condition must hold; of the machines for which they do, the one that meets the
/// heaviest preferences is chosen, then the least one.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Selector {
    /// Its processor architecture. Absent: the image's.
    pub architecture: Option<Architecture>,
    /// Its name; `*` stands for any characters, `?` for one.
    pub name: Option<String>,
    /// The zone it stands in.
    pub zone: Option<Ref<Zone>>,
    /// Zones it must not stand in.
    pub not_zone: BTreeSet<Ref<Zone>>,
    /// The pool it belongs to.
    pub pool: Option<Ref<Pool>>,
    /// Tags it must have, declared or automatic.
    pub tags: BTreeSet<Tag>,
    /// Tags it must not have.
    pub not_tags: BTreeSet<Tag>,
    /// Least number of cores.
    pub min_cores: Option<u32>,
    /// Least memory.
    pub min_memory: Option<ByteSize>,
    /// Least size of its largest disk.
    pub min_disk: Option<ByteSize>,
    /// Disks it must have, by names of your own. Each is another disk.
    pub disks: BTreeMap<String, DiskWish>,
    /// Network interfaces it must have, by names of your own. Each is another interface, which meets all of its conditions.
    pub interfaces: BTreeMap<String, InterfaceWish>,
    /// Graphics processors it must have.
    pub gpus: Option<GpuWish>,
    /// What is better, though it need not be, by names of your own.
    pub preferences: BTreeMap<String, Preference>,
    /// What the deployments of a group are spread over: the next one goes to where the fewest are. Goes before preferences.
    pub spread_by: Option<SpreadBy>,
    /// The group to spread, of the deployments with the same `pool`. Absent: the deployments whose selectors are equal.
    pub spread_group: Option<String>,
}

/// A disk that a machine must have.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DiskWish {
    /// Least size.
    pub min_size: Option<ByteSize>,
    /// Whether it has spinning platters. Absent: either.
    pub rotational: Option<bool>,
    /// How it is attached: `virtio`, `nvme`, `sata`, `sas`. Absent: in any way.
    pub transport: Option<String>,
}

/// A network interface that a machine must have. It is known to be on the subnet that it last had an address of.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct InterfaceWish {
    /// The subnet it is on.
    pub subnet: Option<Ref<Subnet>>,
    /// The VLAN it is on.
    pub vlan: Option<Ref<Vlan>>,
    /// The space that VLAN belongs to.
    pub space: Option<Ref<Space>>,
    /// The fabric of that VLAN.
    pub fabric: Option<Ref<Fabric>>,
    /// The class of that fabric.
    pub fabric_class: Option<String>,
    /// The name of the switch at its other end, as the switch announced it by LLDP or CDP: `*` stands for any text, `?` for any character.
    pub switch: Option<String>,
    /// Least speed of its link, in Mb/s.
    #[field(min = 1, max = 10_000_000)]
    pub min_speed: Option<u64>,
}

/// Graphics processors that a machine must have.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct GpuWish {
    /// Their vendor: `nvidia`, `amd`, `intel`. Absent: any.
    pub vendor: Option<String>,
    /// Their model, as the PCI device number: `20b5`. Absent: any.
    pub model: Option<String>,
    /// How many of them at least.
    #[field(default = 1, min = 1, max = 64)]
    pub min_count: u32,
}

/// Something that makes a machine better. It is met when every condition holds.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Preference {
    /// How much it counts beside the other preferences.
    #[field(default = 1, min = 1, max = 1000)]
    pub weight: u32,
    /// The zone to stand in.
    pub zone: Option<Ref<Zone>>,
    /// The pool to belong to.
    pub pool: Option<Ref<Pool>>,
    /// Tags to have.
    pub tags: BTreeSet<Tag>,
    /// Tags not to have.
    pub not_tags: BTreeSet<Tag>,
    /// Number of cores to have at least.
    pub min_cores: Option<u32>,
    /// Memory to have at least.
    pub min_memory: Option<ByteSize>,
}

/// What deployments are spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum SpreadBy {
    /// Zones.
    Zone,
    /// The racks that serve the machines' networks.
    Rack,
}

/// What is wrong with a selector by itself.
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

/// An empty text matches nothing, and is never what was meant.
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
