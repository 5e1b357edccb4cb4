//! Where a rack may be killed on purpose: when it is told to do a step, when it has seen what came of it, and when that is
//! safe on its disk.

use std::sync::LazyLock;

use basalt_proto::kill::KillPoints;
use basalt_proto::rack_v1::{ConcernVersion, Fact, KnownConcern, fact::Body};

use crate::concern::{Content, Understood, verify};

/// It holds what it is told only in memory.
pub const TOLD: &str = "told";
/// It has seen something that only it knows.
pub const SEEN: &str = "seen";
/// What it has seen is on its disk, and has not been sent.
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

/// A fact is about to be written; the step that it answers, for [`kept`].
pub(crate) fn seen(fact: &Fact) -> Option<String> {
    if POINTS.is_empty() {
        return None;
    }
    let step = answered(fact)?;
    POINTS.at(&step, SEEN);
    Some(step)
}

/// Facts that answer these steps have been written.
pub(crate) fn kept(steps: &[String]) {
    for step in steps {
        POINTS.at(step, KEPT);
    }
}

/// The step that a fact answers. Racks are told which step armed an attempt; those that follow have its name after the dash.
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

/// `MACHINE/SCOPE/GENERATION/STEP/TRY`.
fn step_of(key: &str) -> Option<&str> {
    key.rsplit('/').nth(1)
}
