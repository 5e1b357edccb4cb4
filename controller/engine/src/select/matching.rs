//! Compares a machine with the requirements of a selector.
//!
//! [`examine`] is the only place that knows the constraints. It passes each unmet one to a closure, and formats a message only for
//! a reader: millions of comparisons need only the result.

use std::fmt;
use std::fmt::Arguments;
use std::ops::ControlFlow;

use basalt_api::glob;
use basalt_api::kinds::{
    Architecture, Disk, GpuWish, Interface, InterfaceWish, Inventory, Lifecycle, MachineMode, Preference,
    Selector,
};

use super::{Attached, Candidate};

/// A requirement that a machine may not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Constraint {
    /// No deployment has the machine, and it may be taken.
    Free,
    /// The machine was commissioned, and is healthy.
    Ready,
    /// The machine's hardware is known, if a requirement needs it.
    Known,
    /// `architecture`
    Architecture,
    /// `name`
    Name,
    /// `zone` and `not_zone`
    Zone,
    /// `pool`
    Pool,
    /// `tags` and `not_tags`
    Tags,
    /// `min_cores`
    Cores,
    /// `min_x86_64_level` and `cpu_flags`
    Processor,
    /// `min_memory`
    Memory,
    /// `min_disk` and `disks`
    Disks,
    /// `interfaces`
    Interfaces,
    /// `gpus`
    Gpus,
    /// No other object has a static address of the machine's network, which the deployment would take over.
    Address,
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "not free",
            Self::Ready => "not ready",
            Self::Known => "hardware unknown",
            Self::Architecture => "architecture",
            Self::Name => "name",
            Self::Zone => "zone",
            Self::Pool => "pool",
            Self::Tags => "tags",
            Self::Cores => "cores",
            Self::Processor => "processor",
            Self::Memory => "memory",
            Self::Disks => "disks",
            Self::Interfaces => "interfaces",
            Self::Gpus => "gpus",
            Self::Address => "address",
        })
    }
}

type Flow = ControlFlow<()>;

/// The receiver of unmet constraints. `Break` ends the examination.
type Hear<'a> = dyn FnMut(Constraint, Arguments<'_>) -> Flow + 'a;

/// All constraints that a machine does not meet; empty if it fits. `owner` is the deployment that has it.
#[must_use]
pub fn lacks(
    selector: &Selector,
    architecture: Option<Architecture>,
    candidate: &Candidate,
    owner: Option<&str>,
) -> Vec<(Constraint, String)> {
    let mut found = Vec::new();
    let _ = examine(selector, architecture, candidate, owner, &mut |constraint, words| {
        found.push((constraint, words.to_string()));
        Flow::Continue(())
    });
    found
}

/// The reasons why a machine that is requested by name cannot be taken now; empty if it can. It need not be commissioned.
#[must_use]
pub fn hindrances(candidate: &Candidate, owner: Option<&str>) -> Vec<(Constraint, String)> {
    let mut found = Vec::new();
    let _ = free(candidate, owner, &mut |constraint, words| {
        found.push((constraint, words.to_string()));
        Flow::Continue(())
    });
    found
}

/// True if a machine meets every constraint.
pub(super) fn fits(selector: &Selector, architecture: Option<Architecture>, candidate: &Candidate) -> bool {
    let owner = candidate.owner.as_deref();
    examine(selector, architecture, candidate, owner, &mut |_, _| Flow::Break(())).is_continue()
}

/// The constraints that a machine does not meet.
pub(super) fn failed(
    selector: &Selector,
    architecture: Option<Architecture>,
    candidate: &Candidate,
    owner: Option<&str>,
) -> Vec<Constraint> {
    let mut found = Vec::new();
    let _ = examine(selector, architecture, candidate, owner, &mut |constraint, _| {
        found.push(constraint);
        Flow::Continue(())
    });
    found
}

fn examine(
    selector: &Selector,
    architecture: Option<Architecture>,
    candidate: &Candidate,
    owner: Option<&str>,
    hear: &mut Hear<'_>,
) -> Flow {
    free(candidate, owner, hear)?;
    if candidate.mode == MachineMode::Managed && owner.is_none() && candidate.lifecycle != Lifecycle::Ready {
        hear(Constraint::Ready, format_args!("{}, not ready", candidate.lifecycle))?;
    }
    let has = candidate.architecture;
    if let Some(wanted) = selector.architecture.or(architecture).filter(|wanted| *wanted != has) {
        hear(Constraint::Architecture, format_args!("{has}, {wanted} asked"))?;
    }
    if let Some(pattern) = selector.name.as_ref().filter(|p| !glob::matches(p, &candidate.name)) {
        hear(Constraint::Name, format_args!("its name is not like {pattern}"))?;
    }
    place(selector, candidate, hear)?;
    hardware(selector, candidate, hear)
}

fn free(candidate: &Candidate, owner: Option<&str>, hear: &mut Hear<'_>) -> Flow {
    if let Some(owner) = owner {
        hear(Constraint::Free, format_args!("Deployment {owner:?} has it"))?;
    }
    if candidate.deleting {
        hear(Constraint::Free, format_args!("being deleted"))?;
    }
    if candidate.locked {
        hear(Constraint::Free, format_args!("locked"))?;
    }
    if candidate.mode != MachineMode::Managed {
        hear(Constraint::Free, format_args!("its mode is {}", candidate.mode))?;
    }
    if candidate.unwiped {
        hear(Constraint::Free, format_args!("it may hold a former deployment's data"))?;
    }
    Flow::Continue(())
}

fn place(selector: &Selector, candidate: &Candidate, hear: &mut Hear<'_>) -> Flow {
    let (zone, pool) = (&candidate.zone, &candidate.pool);
    if let Some(wanted) = selector.zone.as_ref().filter(|wanted| wanted.as_str() != zone) {
        hear(Constraint::Zone, format_args!("zone {zone}, {wanted} asked"))?;
    }
    if selector.not_zone.iter().any(|excluded| excluded.as_str() == zone) {
        hear(Constraint::Zone, format_args!("zone {zone}, which is excluded"))?;
    }
    if let Some(wanted) = selector.pool.as_ref().filter(|wanted| wanted.as_str() != pool) {
        hear(Constraint::Pool, format_args!("pool {pool}, {wanted} asked"))?;
    }
    for tag in selector.tags.iter().filter(|tag| !candidate.tags.contains(tag.as_str())) {
        hear(Constraint::Tags, format_args!("no tag {tag}"))?;
    }
    for tag in selector.not_tags.iter().filter(|tag| candidate.tags.contains(tag.as_str())) {
        hear(Constraint::Tags, format_args!("tag {tag}, which is excluded"))?;
    }
    Flow::Continue(())
}

fn hardware(selector: &Selector, candidate: &Candidate, hear: &mut Hear<'_>) -> Flow {
    let Some(inventory) = &candidate.inventory else {
        let asks = selector.min_cores.is_some()
            || selector.min_x86_64_level.is_some()
            || !selector.cpu_flags.is_empty()
            || selector.min_memory.is_some()
            || selector.min_disk.is_some()
            || selector.gpus.is_some()
            || !selector.disks.is_empty()
            || !selector.interfaces.is_empty();
        if asks {
            hear(Constraint::Known, format_args!("its hardware is not known"))?;
        }
        return Flow::Continue(());
    };
    let cores = inventory.cpu.cores;
    if let Some(wanted) = selector.min_cores.filter(|wanted| cores < *wanted) {
        hear(Constraint::Cores, format_args!("{cores} cores, {wanted} asked"))?;
    }
    let level = inventory.cpu.x86_64_level.unwrap_or(0);
    if let Some(wanted) = selector.min_x86_64_level.filter(|wanted| level < *wanted) {
        hear(Constraint::Processor, format_args!("x86-64 level {level}, {wanted} asked"))?;
    }
    for flag in selector.cpu_flags.difference(&inventory.cpu.flags) {
        hear(Constraint::Processor, format_args!("no processor flag {flag}"))?;
    }
    let memory = inventory.memory_bytes;
    if let Some(wanted) = selector.min_memory.filter(|wanted| memory < wanted.bytes()) {
        hear(Constraint::Memory, format_args!("{} memory, {wanted} asked", Bytes(memory)))?;
    }
    let largest = inventory.disks.values().map(|disk| disk.size_bytes).max().unwrap_or(0);
    if let Some(wanted) = selector.min_disk.filter(|wanted| largest < wanted.bytes()) {
        hear(Constraint::Disks, format_args!("largest disk {}, {wanted} asked", Bytes(largest)))?;
    }
    let (wishes, disks): (Vec<_>, Vec<_>) =
        (selector.disks.iter().collect(), inventory.disks.values().collect());
    let holds = |wish: usize, thing: usize| match (wishes.get(wish), disks.get(thing)) {
        (Some((_, wish)), Some(disk)) => holds_disk(wish, disk),
        _ => false,
    };
    if let Some((name, _)) = left_over(wishes.len(), disks.len(), holds).and_then(|wish| wishes.get(wish)) {
        hear(Constraint::Disks, format_args!("of its {} disks none for {name}", disks.len()))?;
    }
    interfaces(selector, candidate, inventory, hear)?;
    if let Some(wish) = &selector.gpus {
        let has = inventory.gpus.values().filter(|gpu| is_wished(wish, gpu)).count();
        let wanted = usize::try_from(wish.min_count).unwrap_or(usize::MAX);
        if has < wanted {
            let vendor = wish.vendor.as_deref().unwrap_or("");
            let model = wish.model.as_deref().unwrap_or("");
            hear(Constraint::Gpus, format_args!("{has} gpus like {vendor}:{model}, {wanted} asked"))?;
        }
    }
    Flow::Continue(())
}

fn interfaces(
    selector: &Selector,
    candidate: &Candidate,
    inventory: &Inventory,
    hear: &mut Hear<'_>,
) -> Flow {
    let wishes: Vec<_> = selector.interfaces.iter().collect();
    let interfaces: Vec<_> = inventory.interfaces.iter().collect();
    let meets = |wish: usize, thing: usize| match (wishes.get(wish), interfaces.get(thing)) {
        (Some((_, wish)), Some((name, interface))) => {
            let attached = candidate.attached.get(*name).map_or(&[][..], Vec::as_slice);
            meets_interface(wish, interface, attached)
        }
        _ => false,
    };
    let missing = left_over(wishes.len(), interfaces.len(), meets).and_then(|wish| wishes.get(wish));
    if let Some((name, wish)) = missing {
        let network = [
            wish.subnet.as_ref().map(|it| format!(" on subnet {it}")),
            wish.vlan.as_ref().map(|it| format!(" on VLAN {it}")),
            wish.space.as_ref().map(|it| format!(" in space {it}")),
            wish.fabric.as_ref().map(|it| format!(" on fabric {it}")),
            wish.fabric_class.as_ref().map(|it| format!(" on a fabric of class {it}")),
            wish.switch.as_ref().map(|it| format!(" at a switch like {it}")),
            wish.min_speed.map(|it| format!(" with {it} Mb/s")),
        ];
        let network: String = network.into_iter().flatten().collect();
        let count = interfaces.len();
        hear(Constraint::Interfaces, format_args!("of its {count} interfaces none{network} for {name}"))?;
    }
    Flow::Continue(())
}

fn holds_disk(wish: &basalt_api::kinds::DiskWish, disk: &Disk) -> bool {
    wish.min_size.is_none_or(|least| disk.size_bytes >= least.bytes())
        && wish.rotational.is_none_or(|rotational| disk.rotational == rotational)
        && wish.transport.as_ref().is_none_or(|transport| disk.transport.as_ref() == Some(transport))
}

/// All conditions must hold for the same network. A VLAN of one network and a space of another are not enough.
fn meets_interface(wish: &InterfaceWish, interface: &Interface, attached: &[Attached]) -> bool {
    let speed = wish.min_speed.is_none_or(|least| interface.speed_mbps.is_some_and(|speed| speed >= least));
    let anywhere = wish.subnet.is_none()
        && wish.vlan.is_none()
        && wish.space.is_none()
        && wish.fabric.is_none()
        && wish.fabric_class.is_none();
    let there = |on: &Attached| {
        wish.subnet.as_ref().is_none_or(|it| it.as_str() == on.subnet)
            && wish.vlan.as_ref().is_none_or(|it| it.as_str() == on.vlan)
            && wish.space.as_ref().is_none_or(|it| Some(it.as_str()) == on.space.as_deref())
            && wish.fabric.as_ref().is_none_or(|it| it.as_str() == on.fabric)
            && wish.fabric_class.as_ref().is_none_or(|it| Some(it) == on.fabric_class.as_ref())
    };
    let at_switch = wish.switch.as_ref().is_none_or(|pattern| is_at_switch(pattern, interface));
    speed && at_switch && (anywhere || attached.iter().any(there))
}

/// True if the name of a neighbour of the interface matches the pattern.
#[must_use]
pub fn is_at_switch(pattern: &str, interface: &Interface) -> bool {
    let names = interface.neighbours.values().filter_map(|neighbour| neighbour.system_name.as_deref());
    names.into_iter().any(|name| glob::matches(pattern, name))
}

fn is_wished(wish: &GpuWish, gpu: &basalt_api::kinds::Gpu) -> bool {
    wish.vendor.as_ref().is_none_or(|vendor| vendor.eq_ignore_ascii_case(&gpu.vendor))
        && wish.model.as_ref().is_none_or(|model| model.eq_ignore_ascii_case(&gpu.model))
}

/// True if every condition of a preference holds.
pub(super) fn is_preferred(preference: &Preference, candidate: &Candidate) -> bool {
    let (cores, memory) = candidate.size();
    preference.zone.as_ref().is_none_or(|it| it.as_str() == candidate.zone)
        && preference.pool.as_ref().is_none_or(|it| it.as_str() == candidate.pool)
        && preference.tags.iter().all(|tag| candidate.tags.contains(tag.as_str()))
        && !preference.not_tags.iter().any(|tag| candidate.tags.contains(tag.as_str()))
        && preference.min_cores.is_none_or(|least| cores >= least)
        && preference.min_memory.is_none_or(|least| memory >= least.bytes())
}

/// Assigns a different thing to each wish, by augmenting paths. Returns the first wish for which that is impossible.
fn left_over(wishes: usize, things: usize, does: impl Fn(usize, usize) -> bool) -> Option<usize> {
    let mut given: Vec<Option<usize>> = vec![None; things];
    (0..wishes).find(|wish| !give(*wish, &does, &mut given, &mut vec![false; things]))
}

fn give(
    wish: usize,
    does: &impl Fn(usize, usize) -> bool,
    given: &mut [Option<usize>],
    tried: &mut [bool],
) -> bool {
    for thing in 0..given.len() {
        if tried.get(thing).copied().unwrap_or(true) || !does(wish, thing) {
            continue;
        }
        if let Some(seen) = tried.get_mut(thing) {
            *seen = true;
        }
        let holder = given.get(thing).copied().flatten();
        if holder.is_none_or(|holder| give(holder, does, given, tried)) {
            if let Some(slot) = given.get_mut(thing) {
                *slot = Some(wish);
            }
            return true;
        }
    }
    false
}

/// A measured amount of bytes, shown with one decimal, rounded down.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..0x4000_0000 => (1 << 20, "MiB"),
            0x4000_0000..0x100_0000_0000 => (1 << 30, "GiB"),
            _ => (1_u64 << 40, "TiB"),
        };
        let tenths = u128::from(self.0).saturating_mul(10) / u128::from(unit);
        match tenths % 10 {
            0 => write!(f, "{}{name}", tenths / 10),
            rest => write!(f, "{}.{rest}{name}", tenths / 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_make_room_for_each_other() {
        // The first wish fits both things, the second one only thing 0.
        let does = |wish: usize, thing: usize| wish == 0 || thing == 0;
        assert_eq!(left_over(2, 2, does), None);
        assert_eq!(left_over(3, 2, |_, _| true), Some(2));
    }

    #[test]
    fn amounts_are_rounded_down_to_a_tenth() {
        let shown: Vec<_> =
            [8_u64 << 30, 8_250_000_000, 512 << 20, 3 << 40].map(|n| Bytes(n).to_string()).into();
        assert_eq!(shown, ["8GiB", "7.6GiB", "512MiB", "3TiB"]);
    }
}
