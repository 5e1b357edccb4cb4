//! Checks an install's layout against the disks in the machine's inventory, before the machine is powered on.
//!
//! The agent checks the layout again, against the disks that it finds.

use std::collections::BTreeMap;

use basalt_api::agent::{Disk, Firmware, Inventory};
use basalt_api::disk::{ChoiceError, DiskNames, choose_disks};
use basalt_api::kinds::StorageConfig;
use basalt_api::values::Timestamp;

use crate::facts::InventorySeen;
use crate::input::{Claim, MachineInput};
use crate::machine::needs_inventory;
use crate::render::{Network, NetworkError};

/// The reason for which a layout does not fit the disks of the machine.
pub(crate) struct Trouble {
    /// The code of the wait.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// How to repair it.
    pub(crate) hint: String,
    /// The time of the inventory.
    pub(crate) seen: Timestamp,
}

/// A layout, and the inventory's disks.
struct Look<'a> {
    claim: &'a Claim,
    seen: &'a InventorySeen,
    /// The storage, expanded to a `custom` layout.
    storage: StorageConfig,
}

impl<'a> Look<'a> {
    /// `None`: no inventory with disks.
    fn at(input: &'a MachineInput) -> Option<Self> {
        let (claim, seen) = (input.claim.as_ref()?, input.facts.inventory.as_ref()?);
        let storage = input.storage(claim).expanded();
        (!seen.inventory.disks.is_empty()).then_some(Self { claim, seen, storage })
    }

    fn names(&self) -> Vec<DiskNames<'a>> {
        self.seen.inventory.disks.iter().map(Disk::names).collect()
    }

    fn choice(&self) -> Result<BTreeMap<String, &'a str>, ChoiceError> {
        let image = self.claim.image.as_ref().map_or(0, |image| image.root.size);
        choose_disks(&self.names(), &self.storage.wanted_disks(image))
    }
}

/// The reason for which the layout does not fit the disks. While a new inventory is requested, a missing disk is no reason: somebody
/// may have added one.
pub(crate) fn trouble(input: &MachineInput) -> Option<Trouble> {
    let look = Look::at(input)?;
    let (claim, seen, name) = (look.claim, look.seen.at, &input.name);
    let errors = input.storage(claim).misnamed_disks(&look.names());
    if let Some(first) = errors.first() {
        let all: Vec<_> =
            errors.iter().map(|error| format!("{}: {}", error.pointer, error.message)).collect();
        let message = format!("the storage does not say which disks of {name} it means: {}", all.join("; "));
        let hint = first.hint.clone().unwrap_or_default();
        return Some(Trouble { code: "AmbiguousDisk", message, hint, seen });
    }
    if input.recommission_requested_at.is_some_and(|requested| requested >= seen) {
        return None;
    }
    let error = look.choice().err()?;
    Some(Trouble {
        code: "NoDisk",
        message: format!("the storage does not fit the disks of {name}: {error}"),
        hint:
            "name a disk that it has, or ask for less; if its disks have changed, run `basalt recommission`"
                .to_owned(),
        seen,
    })
}

/// Notes for people before an install: misfits, the chosen disks where the storage names none, and the risk that a BIOS boots another disk.
pub(crate) fn notes(input: &MachineInput) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(network_misfit(input));
    let Some(look) = Look::at(input) else { return notes };
    match trouble(input) {
        Some(trouble) => notes.push(format!("{}; {}", trouble.message, trouble.hint)),
        None => {
            let chosen = look.choice().unwrap_or_default();
            notes.extend(undeclared(&look, &chosen));
            notes.extend(other_boot_disk(input, &look, &chosen));
        }
    }
    notes
}

/// Reports an interface that the machine does not have, or a contradictory network. It does not report an address that is not assigned yet.
/// It does not report unknown hardware if the machine is commissioned before the install.
fn network_misfit(input: &MachineInput) -> Option<String> {
    let (claim, unknown) = (input.claim.as_ref()?, Inventory::default());
    let inventory = input.facts.inventory.as_ref().map_or(&unknown, |seen| &seen.inventory);
    let name = &input.name;
    match Network::resolve_checked(input.network(), inventory, &claim.assigned).err()? {
        NetworkError::NoAddress { .. } => None,
        NetworkError::NoNic if needs_inventory(input) => None,
        error @ NetworkError::NoNic => {
            Some(format!("the network does not fit {name}: {error}; {}", recommission(name)))
        }
        error => Some(format!("the network does not fit {name}: {error}")),
    }
}

/// The remedy for a machine whose hardware is unknown.
pub(crate) fn recommission(name: &str) -> String {
    format!("run `basalt recommission {name}`")
}

/// The disks that were chosen for entries without a name, if the machine has more disks than the layout.
fn undeclared(look: &Look<'_>, chosen: &BTreeMap<String, &str>) -> Option<String> {
    let names = look.names();
    let unnamed =
        chosen.iter().filter(|(entry, _)| look.storage.disks.get(*entry).is_some_and(|it| it.id.is_none()));
    let taken: Vec<String> = unnamed
        .filter_map(|(_, kernel)| names.iter().find(|disk| disk.kernel() == *kernel))
        .map(ToString::to_string)
        .collect();
    let is_choice = !taken.is_empty() && names.len() > chosen.len();
    is_choice.then(|| {
        format!(
            "the storage does not name its disk, and takes {}: of {} disks the smallest that is large enough",
            taken.join(", "),
            names.len()
        )
    })
}

/// The first disk, if a BIOS boots it and the system is on another one. A BIOS has its own order of disks, which Basalt cannot set.
fn other_boot_disk(input: &MachineInput, look: &Look<'_>, chosen: &BTreeMap<String, &str>) -> Option<String> {
    let Inventory { firmware, disks, .. } = &look.seen.inventory;
    let first = disks.iter().map(|disk| disk.name.as_str()).min_by_key(|name| (name.len(), *name))?;
    let boot = look.storage.below_boot();
    let boots: Vec<&str> =
        chosen.iter().filter(|(entry, _)| boot.contains(entry.as_str())).map(|(_, it)| *it).collect();
    let is_other = *firmware == Firmware::Bios && !boots.is_empty() && !boots.contains(&first);
    is_other.then(|| {
        format!(
            "{} boots by BIOS, which takes the first disk of its own order: by itself {first}, and the system goes to {}; \
             put that first in the BIOS, or name {first} in the storage",
            input.name,
            boots.join(", ")
        )
    })
}
