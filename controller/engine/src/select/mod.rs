//! Chooses machines for deployments.
//!
//! | module | is |
//! | --- | --- |
//! | [`matching`] | the requirements that a machine does not meet, one by one |
//! | [`allocate`] | one decision for all deployments that need a machine |
//!
//! Everything is deterministic: the same machines and deployments give the same result, in any order. A deployment without a match
//! waits. The wait names the nearest machines, and for each requirement the number of machines that do not meet it.

pub mod allocate;
pub mod matching;

pub use allocate::{Ground, MachineRequest, Placed, allocate};
pub use matching::{Constraint, hindrances, is_at_switch, lacks};

use std::collections::{BTreeMap, BTreeSet};

use basalt_api::kinds::{
    Architecture, DeploymentSpec, DiskWish, Inventory, Lifecycle, MachineMode, Selector, SpreadBy,
    StorageLayout,
};
use basalt_api::values::MachineId;
use serde::{Deserialize, Serialize};

/// The requirements on a deployment's machine: those of its selector. If the selector names no disks, the machine needs the number and
/// the sizes of disks that the deployment's storage declares.
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
    /// The machine's id.
    pub uid: MachineId,
    /// The machine's name.
    pub name: String,
    /// Its processor architecture.
    pub architecture: Architecture,
    /// The zone, or the default one.
    pub zone: String,
    /// The pool, or the default one.
    pub pool: String,
    /// The rack that serves its network, if known.
    pub rack: Option<String>,
    /// The tags, declared and automatic.
    pub tags: BTreeSet<String>,
    /// The hardware, if known.
    pub inventory: Option<Inventory>,
    /// The networks of each interface.
    pub attached: BTreeMap<String, Vec<Attached>>,
    /// The lifecycle from the machine's own plan.
    pub lifecycle: Lifecycle,
    /// The declared mode.
    pub mode: MachineMode,
    /// True if no action may be taken on it now.
    pub locked: bool,
    /// The name of the deployment that has it.
    pub owner: Option<String>,
    /// True if its deletion was requested.
    pub deleting: bool,
    /// True if a former deployment's data may still be on its disks.
    pub unwiped: bool,
    /// The reason why the machine cannot have a static address of its network now: another object has the address.
    #[serde(default)]
    pub obstructed: Option<String>,
}

/// A network to which an interface is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The name of the subnet.
    pub subnet: String,
    /// The name of the subnet's VLAN.
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
    /// The failure domain of the machine. Machines whose rack is not known share one.
    fn domain(&self, by: SpreadBy) -> &str {
        match by {
            SpreadBy::Zone => &self.zone,
            SpreadBy::Rack => self.rack.as_deref().unwrap_or(""),
        }
    }

    /// The order in which machines are given away: the smallest first, to leave large ones for deployments that need them.
    fn size(&self) -> (u32, u64) {
        self.inventory.as_ref().map_or((0, 0), |found| (found.cpu.cores, found.memory_bytes))
    }
}

/// The decision for one deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A machine was chosen.
    Chosen {
        /// The chosen machine.
        machine: MachineId,
        /// The reason for this machine, as a sentence.
        why: String,
    },
    /// No machine fits; the nearest ones, and their misses.
    None(Misses),
}

/// The reasons why no machine was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// At most three machines, the nearest first.
    pub nearest: Vec<Miss>,
    /// The number of machines that fail each requirement. One machine may fail several.
    pub failed_by: BTreeMap<Constraint, usize>,
    /// The number of machines that were examined.
    pub looked_at: usize,
    /// True if the image cannot be installed: no machine was examined.
    pub not_installable: bool,
}

/// A machine that was not chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The machine's name.
    pub machine: String,
    /// The requirements that it does not meet, as sentences.
    pub lacks: Vec<String>,
    /// True if it lacks only an address of its network.
    pub only_address: bool,
}
