//! The entries of one machine in racks' concerns: names, racks, and the action that racks have applied.

use std::collections::{BTreeMap, BTreeSet};

use basalt_api::values::RackId;
use basalt_db::{EntryState, Progress};
use basalt_engine::facts::BootSeen;
use basalt_engine::plan::BootAction;

use crate::driver::topology::network::RackSeen;

/// The concern of the data about machines that every rack has.
pub const KNOWN: &str = "known";

/// The concern of boot actions.
pub const BOOT: &str = "boot";

/// The concern of BMCs.
pub const POWER: &str = "power";

/// The rack that controls a machine's BMC.
#[must_use]
pub fn power_holder(entries: &BTreeMap<String, EntryState>) -> Option<RackId> {
    entries.get(POWER)?.scope().into_iter().next()
}

pub(crate) fn action_of(state: &EntryState) -> Option<BootAction> {
    serde_json::from_value(state.says.get("action")?.clone()).ok()
}

/// The boot action that all racks have applied, or the message of a rack that refuses it. Each connected rack of the scope must have
/// answered, and each connected rack that left the scope. At least one rack of the scope must be connected.
#[must_use]
pub fn applied(
    state: Option<&EntryState>,
    scope: &[&RackSeen],
    racks: &[RackSeen],
) -> (Option<BootSeen>, Option<String>) {
    let (Some(state), Some(action)) = (state, state.and_then(action_of)) else { return (None, None) };
    let connected = |uid: RackId| racks.iter().find(|rack| rack.uid == uid && rack.connected.is_some());
    let here: BTreeSet<RackId> =
        scope.iter().filter(|rack| rack.connected.is_some()).map(|rack| rack.uid).collect();
    if here.is_empty() || (action != BootAction::Local && !here.is_subset(&state.scope())) {
        return (None, None);
    }
    for holder in &state.holders {
        let Some(rack) = connected(holder.rack) else { continue };
        match &holder.progress {
            Progress::Applied => {}
            Progress::Waits => return (None, None),
            Progress::Refused(words) => return (None, Some(format!("rack {}: {words}", rack.name))),
        }
    }
    let seen = match action {
        BootAction::Local => BootSeen::Local,
        BootAction::PowerOff => BootSeen::PowerOff,
        BootAction::Ephemeral(attempt) => BootSeen::Ephemeral(attempt),
    };
    (Some(seen), None)
}
