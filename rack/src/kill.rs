//! Points at which a test may kill a rack: after it received a command, after it observed the result, and after the
//! result is durable.

use std::sync::LazyLock;

use basalt_proto::kill::KillPoints;
use basalt_proto::rack_v1::{ConcernVersion, Fact, KnownConcern, fact::Body};

use crate::concern::{Content, Understood, verify};

/// The command is only in memory.
pub const TOLD: &str = "told";
/// The result is only in memory.
pub const SEEN: &str = "seen";
/// The result is on the rack's disk and has not been sent.
pub const KEPT: &str = "kept";

static POINTS: LazyLock<KillPoints> = LazyLock::new(KillPoints::from_env);

/// A power command arrives.
pub(crate) fn commanded(step_key: &str) {
    if let Some(step) = step_of(step_key) {
        POINTS.at(step, TOLD);
    }
}

/// A boot instruction arrives.
pub(crate) fn instructed(version: &ConcernVersion) {
    if POINTS.is_empty() {
        return;
    }
    if let Ok(Understood { content: Content::Boot(concern), .. }) = verify(version) {
        let table = crate::boot::BootTable::new(&KnownConcern::default(), concern);
        for step in table.armed().filter_map(|(_, boot)| step_of(&boot.step_key)) {
            POINTS.at(step, TOLD);
        }
    }
}

/// The step of a fact that is about to be written, for [`kept`].
pub(crate) fn seen(fact: &Fact) -> Option<String> {
    if POINTS.is_empty() {
        return None;
    }
    let step = answered(fact)?;
    POINTS.at(&step, SEEN);
    Some(step)
}

/// Facts for these steps have been written.
pub(crate) fn kept(steps: &[String]) {
    for step in steps {
        POINTS.at(step, KEPT);
    }
}

/// The step that a fact answers. The fact of a power command has the key of its own step. The other facts have the
/// key of the step `arm-TASK`, which armed the attempt. Later steps are `ask-TASK`, `claim-TASK` and `run-TASK`.
fn answered(fact: &Fact) -> Option<String> {
    let step = step_of(&fact.step_key);
    let task = step.and_then(|step| step.strip_prefix("arm-"));
    match fact.body.as_ref()? {
        Body::Power(_) => step.map(str::to_owned),
        Body::BootRequest(_) => Some(format!("ask-{}", task?)),
        Body::Claim(_) => Some(format!("claim-{}", task?)),
        Body::Result(_) => Some(format!("run-{}", task?)),
        Body::Readiness(_) => Some("ready-install".to_owned()),
        _ => None,
    }
}

/// The step in a key of the form `MACHINE/SCOPE/GENERATION/STEP/TRY`.
fn step_of(key: &str) -> Option<&str> {
    key.rsplit('/').nth(1)
}
