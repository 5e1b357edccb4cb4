//! Which machines deployments get.
//!
//! | module | is |
//! | --- | --- |
//! | [`matching`] | what a machine lacks, constraint by constraint |
//! | [`allocate`] | who gets which: one decision for all deployments that wait |
//!
//! Everything is deterministic: the same machines and deployments, in whatever order, give the same answer. No match is a
//! wait, and says what came nearest and which constraint sorted out how many.

pub mod allocate;
pub mod matching;

pub use allocate::{Ground, Placed, Wish, allocate};
pub use matching::{Constraint, hindrances, is_at_switch, lacks};

use std::collections::{BTreeMap, BTreeSet};

use basalt_api::kinds::{
    Architecture, DeploymentSpec, DiskWish, Inventory, Lifecycle, MachineMode, Selector, SpreadBy,
    StorageLayout,
};
use basalt_api::values::MachineId;
use serde::{Deserialize, Serialize};

/// What a deployment's machine must be like: what its selector says, and where that says nothing of disks, as many as its storage is built on, of
/// the sizes that are declared there.
#[must_use]
pub fn selector(declared: &DeploymentSpec) -> Selector {
    let mut selector = declared.selector.clone().unwrap_or_default();
    if selector.disks.is_empty() && declared.storage.layout != StorageLayout::Flat {
        let disks = declared.storage.expanded().disks.into_iter();
        selector.disks = disks
            .map(|(name, disk)| (name, DiskWish { min_size: disk.min_size, ..DiskWish::default() }))
            .collect();
    }
    selector
}

/// A machine that might be chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// The machine.
    pub uid: MachineId,
    /// Its name.
    pub name: String,
    /// Its processor architecture.
    pub architecture: Architecture,
    /// Zone, with the default filled in.
    pub zone: String,
    /// Pool, with the default filled in.
    pub pool: String,
    /// The rack that serves its network, if that is known.
    pub rack: Option<String>,
    /// Its tags, declared and automatic.
    pub tags: BTreeSet<String>,
    /// Its hardware, if it is known.
    pub inventory: Option<Inventory>,
    /// The networks that its interfaces are on, by interface.
    pub attached: BTreeMap<String, Vec<Attached>>,
    /// Where it is in its life, as its own plan reports.
    pub lifecycle: Lifecycle,
    /// What is to be done with it.
    pub mode: MachineMode,
    /// Nothing is to be done with it now.
    pub locked: bool,
    /// The deployment that has it.
    pub owner: Option<String>,
    /// Its deletion was requested.
    pub deleting: bool,
    /// It may hold a former deployment's data.
    pub unwiped: bool,
}

/// A network that an interface is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The subnet.
    pub subnet: String,
    /// Its VLAN.
    pub vlan: String,
    /// The VLAN's fabric.
    pub fabric: String,
    /// The class of that fabric.
    #[serde(default)]
    pub fabric_class: Option<String>,
    /// The VLAN's space.
    pub space: Option<String>,
}

impl Candidate {
    /// The failure domain it is in. Machines of no known rack share one.
    fn domain(&self, by: SpreadBy) -> &str {
        match by {
            SpreadBy::Zone => &self.zone,
            SpreadBy::Rack => self.rack.as_deref().unwrap_or(""),
        }
    }

    /// The smaller, the sooner it is given away, so that large machines are left for those who need them.
    fn size(&self) -> (u32, u64) {
        self.inventory.as_ref().map_or((0, 0), |found| (found.cpu.cores, found.memory_bytes))
    }
}

/// The answer for one deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This machine.
    Chosen {
        /// Which.
        machine: MachineId,
        /// Why this one, for people.
        why: String,
    },
    /// None: what came nearest, and what it lacks.
    None(Misses),
}

/// Why no machine was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// The nearest first; three at most.
    pub nearest: Vec<Miss>,
    /// How many machines failed by each constraint; one machine may fail by several.
    pub failed_by: BTreeMap<Constraint, usize>,
    /// How many machines were looked at.
    pub looked_at: usize,
    /// Its image cannot be installed: no machine was looked for.
    pub not_installable: bool,
}

/// A machine that was not chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// Its name.
    pub machine: String,
    /// What it lacks, in words.
    pub lacks: Vec<String>,
}
