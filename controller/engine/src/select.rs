//! Which machine a deployment gets.
//!
//! The choice is deterministic: of the machines that match, the least one that suffices (cores, memory, then name), so
//! that large machines are left for those who need them. No match is a wait, and says what came nearest.

use basalt_api::agent::Inventory;
use basalt_api::kinds::{Architecture, Lifecycle, MachineMode, MachineSpec, Selector};
use basalt_api::values::{DeploymentId, MachineId};

/// A machine that might be chosen.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The machine.
    pub uid: MachineId,
    /// Its name.
    pub name: String,
    /// What is declared.
    pub spec: MachineSpec,
    /// Zone, with the default filled in.
    pub zone: String,
    /// Pool, with the default filled in.
    pub pool: String,
    /// Tags of all layers.
    pub tags: Vec<String>,
    /// Its hardware, if it is known.
    pub inventory: Option<Inventory>,
    /// Where it is in its life, as its own plan reports.
    pub lifecycle: Lifecycle,
    /// Who owns it.
    pub claimed_by: Option<(DeploymentId, String)>,
    /// Its deletion was requested.
    pub deleting: bool,
    /// It may hold a former deployment's data.
    pub unwiped: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This one.
    Chosen(MachineId),
    /// None: what came nearest, and what it lacks.
    None {
        /// The nearest first; three at most.
        nearest: Vec<Miss>,
        /// How many machines were looked at.
        looked_at: usize,
    },
}

/// A machine that was not chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// Its name.
    pub machine: String,
    /// What it lacks, in words.
    pub lacks: Vec<String>,
}

/// Chooses a machine for a deployment. `architecture` is the image's, which holds where the selector names none.
#[must_use]
pub fn choose(selector: &Selector, architecture: Option<Architecture>, candidates: &[Candidate]) -> Choice {
    let mut misses = Vec::new();
    let mut fits = Vec::new();
    for candidate in candidates {
        let lacks = lacks(selector, architecture, candidate);
        if lacks.is_empty() {
            fits.push(candidate);
        } else {
            misses.push(Miss { machine: candidate.name.clone(), lacks });
        }
    }
    let size = |c: &Candidate| {
        let found = c.inventory.as_ref();
        (found.map_or(0, |i| i.cpu.cores), found.map_or(0, |i| i.memory_bytes), c.name.clone())
    };
    if let Some(best) = fits.into_iter().min_by_key(|c| size(c)) {
        return Choice::Chosen(best.uid);
    }
    misses.sort_by(|a, b| (a.lacks.len(), &a.machine).cmp(&(b.lacks.len(), &b.machine)));
    misses.truncate(3);
    Choice::None { nearest: misses, looked_at: candidates.len() }
}

/// Why a machine that was asked for by name cannot be had now; empty when it can. It need not have been looked into.
#[must_use]
pub fn hindrances(candidate: &Candidate) -> Vec<String> {
    let mut lacks = Vec::new();
    if let Some((_, owner)) = &candidate.claimed_by {
        lacks.push(format!("it belongs to deployment {owner}"));
    }
    if candidate.deleting {
        lacks.push("it is being deleted".to_owned());
    }
    if candidate.spec.locked {
        lacks.push("it is locked".to_owned());
    }
    if candidate.spec.mode != MachineMode::Managed {
        lacks.push(format!("its mode is {}", candidate.spec.mode));
    }
    if candidate.unwiped {
        lacks.push("it may hold a former deployment's data".to_owned());
    }
    lacks
}

fn lacks(selector: &Selector, architecture: Option<Architecture>, candidate: &Candidate) -> Vec<String> {
    let mut lacks = hindrances(candidate);
    if lacks.is_empty() && candidate.lifecycle != Lifecycle::Ready {
        lacks.push(format!("it is not Ready but {}", candidate.lifecycle));
    }
    let has = &candidate.spec.architecture;
    if let Some(wanted) = selector.architecture.or(architecture).filter(|wanted| wanted != has) {
        lacks.push(format!("it is {has}, not {wanted}"));
    }
    if let Some(zone) = selector.zone.as_ref().filter(|z| z.as_str() != candidate.zone) {
        lacks.push(format!("it stands in zone {}, not {zone}", candidate.zone));
    }
    if selector.not_zone.iter().any(|z| z.as_str() == candidate.zone) {
        lacks.push(format!("it stands in zone {}", candidate.zone));
    }
    if let Some(pool) = selector.pool.as_ref().filter(|p| p.as_str() != candidate.pool) {
        lacks.push(format!("it belongs to pool {}, not {pool}", candidate.pool));
    }
    for tag in &selector.tags {
        if !candidate.tags.iter().any(|t| t == tag.as_str()) {
            lacks.push(format!("it lacks tag {tag}"));
        }
    }
    for tag in &selector.not_tags {
        if candidate.tags.iter().any(|t| t == tag.as_str()) {
            lacks.push(format!("it has tag {tag}"));
        }
    }
    lacks.extend(small(selector, candidate.inventory.as_ref()));
    lacks
}

/// What the hardware falls short of.
fn small(selector: &Selector, inventory: Option<&Inventory>) -> Vec<String> {
    let Some(inventory) = inventory else {
        let sized =
            selector.min_cores.is_some() || selector.min_memory.is_some() || selector.min_disk.is_some();
        return if sized { vec!["its hardware is not known".to_owned()] } else { Vec::new() };
    };
    let mut lacks = Vec::new();
    if let Some(cores) = selector.min_cores.filter(|c| inventory.cpu.cores < *c) {
        lacks.push(format!("it has {} of {cores} cores", inventory.cpu.cores));
    }
    if let Some(memory) = selector.min_memory.filter(|m| inventory.memory_bytes < m.bytes()) {
        lacks.push(format!("it has {} MB of {memory} memory", inventory.memory_bytes / 1_000_000));
    }
    let largest = inventory.disks.iter().map(|d| d.size_bytes).max().unwrap_or(0);
    if let Some(disk) = selector.min_disk.filter(|d| largest < d.bytes()) {
        lacks.push(format!("its largest disk has {} MB of {disk}", largest / 1_000_000));
    }
    lacks
}
