//! How far racks are with zones, by the documents that they have answered for. Pure.
//!
//! | state of a rack | told as |
//! | --- | --- |
//! | no document was written | behind |
//! | its document is older than a zone | behind since the zone is newer |
//! | the document is not acknowledged | behind since the document was written |
//! | the rack refused the document, or left the zone out | behind, in its words |
//! | the document is applied | holds the zones |

use basalt_api::values::Timestamp;
use basalt_api::wire::NameRack;
use basalt_db::DocumentState;

use super::content::Content;
use crate::driver::topology::network::RackSeen;

/// The racks, in the order of their documents.
pub(crate) fn states(states: &[DocumentState], racks: &[RackSeen], zones: &[Content]) -> Vec<NameRack> {
    let told = states.iter().filter_map(|state| {
        let rack = racks.iter().find(|rack| rack.uid == state.rack)?;
        let (behind, mut message) = state_of(state, zones);
        if !rack.is_there() {
            message.push_str(&format!(
                "; not connected, last seen {}",
                rack.last_seen.strftime("%Y-%m-%d %H:%M:%S")
            ));
        }
        if rack.maintenance {
            message.push_str("; in maintenance");
        }
        if rack.answers_dns.is_empty() {
            message.push_str("; answers DNS at no address, see status.services of the Rack");
        }
        Some(NameRack {
            rack: rack.name.parse().ok()?,
            holds: behind.is_none(),
            since: behind.flatten(),
            addresses: rack.answers_dns.iter().copied().collect(),
            message,
        })
    });
    told.collect()
}

/// The time since which the rack is behind, and its state in words. `None`: the rack is not behind. `Some(None)`: the time is not known.
#[expect(clippy::option_option, reason = "a rack that is behind since an unknown time is behind")]
fn state_of(state: &DocumentState, zones: &[Content]) -> (Option<Option<Timestamp>>, String) {
    let Some(written_at) = state.written_at else {
        return (Some(None), "behind: no document of zones was written for it yet".to_owned());
    };
    if let Some(newer) = zones.iter().map(|zone| zone.since).filter(|since| *since > written_at).max() {
        return (Some(Some(newer)), "behind: the region has not written its document yet".to_owned());
    }
    let Some(ack) = state.ack.as_ref().filter(|ack| ack.generation >= state.generation) else {
        let message = "behind: it has not acknowledged its newest document, and may answer older records";
        return (Some(Some(written_at)), message.to_owned());
    };
    if !ack.is_applied() {
        return (Some(Some(written_at)), format!("behind: it refused its newest document: {}", ack.message));
    }
    if zones.iter().any(|zone| ack.message.contains(&format!("zone {:?}", zone.origin))) {
        return (Some(Some(written_at)), format!("behind: it left out a zone: {}", ack.message));
    }
    let held: Vec<String> =
        zones.iter().map(|zone| format!("{} at serial {}", zone.origin, zone.serial)).collect();
    let message = match held.is_empty() {
        true => "has the newest document".to_owned(),
        false => format!("holds {}", held.join(", ")),
    };
    (None, message)
}
