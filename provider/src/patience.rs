//! Time limits of operations, by kind.

use std::time::Duration;

use basalt_api::Kind;
use tfplugin::{Operation, Timeouts, Val};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Kinds whose changes take long enough to have configurable time limits. Resources that depend on a deployment need a
/// running machine, so the provider waits for it. A release may erase every disk of a machine, sector by sector.
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

/// Objects of other kinds are gone as soon as nothing refers to them.
const GONE: Duration = MINUTE.saturating_mul(2);

/// The configurable time limits of a kind.
pub(crate) fn timeouts(kind: &Kind) -> Timeouts {
    PATIENT.iter().find(|(name, _)| *name == kind.name).map_or(Timeouts::NONE, |(_, timeouts)| *timeouts)
}

/// True if an apply waits until an object of the kind is Ready.
pub(crate) fn is_awaited(kind: &Kind) -> bool {
    timeouts(kind).create.is_some()
}

/// Time limit for the deletion of an object.
pub(crate) fn until_gone(kind: &Kind, state: &Val) -> Duration {
    timeouts(kind).of(Operation::Delete, state).unwrap_or(GONE)
}
