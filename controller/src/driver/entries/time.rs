//! The concern `time` of a rack.

use basalt_proto::rack_v1::TimeConcern;

use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::RackSeen;

/// The servers from which a rack sets its clock.
pub(crate) fn time(estate: &Estate, rack: &RackSeen) -> TimeConcern {
    let declared = estate.settings.ntp_servers.as_ref();
    let before = estate.racks.iter().filter(|other| other.uid < rack.uid).count();
    TimeConcern {
        servers: declared.into_iter().flatten().map(ToString::to_string).collect(),
        host_servers: declared.is_none(),
        rank: u32::try_from(before).unwrap_or(u32::MAX),
    }
}
