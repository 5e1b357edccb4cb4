//! How long things may take, by kind.

use std::time::Duration;

use basalt_api::Kind;
use tfplugin::{Operation, Timeouts, Val};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Kinds whose changes take long enough to be configurable. Whatever follows from a deployment needs the machine to be
/// up: so it is waited for. A release may erase every disk of a machine, sector by sector.
const PATIENT: &[(&str, Timeouts)] = &[
    (
        "Deployment",
        Timeouts {
            create: Some(HOUR),
            update: Some(HOUR),
            delete: Some(HOUR.saturating_mul(12)),
            ..Timeouts::NONE
        },
    ),
    ("Machine", Timeouts { delete: Some(MINUTE.saturating_mul(10)), ..Timeouts::NONE }),
];

/// Everything else is gone as soon as nothing refers to it.
const GONE: Duration = MINUTE.saturating_mul(2);

/// The times that configurations of a kind can say otherwise.
pub(crate) fn timeouts(kind: &Kind) -> Timeouts {
    PATIENT.iter().find(|(name, _)| *name == kind.name).map_or(Timeouts::NONE, |(_, timeouts)| *timeouts)
}

/// Whether an apply waits until an object of the kind is Ready.
pub(crate) fn is_awaited(kind: &Kind) -> bool {
    timeouts(kind).create.is_some()
}

/// How long an object may take until it is gone.
pub(crate) fn until_gone(kind: &Kind, state: &Val) -> Duration {
    timeouts(kind).of(Operation::Delete, state).unwrap_or(GONE)
}
