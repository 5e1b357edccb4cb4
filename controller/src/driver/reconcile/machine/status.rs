//! The status of a machine, from its data and its plan.

use basalt_api::kinds::{
    BootProgress, Condition, ConditionStatus, MachineStatus, PowerState, PowerStatus, phase,
};
use basalt_api::values::Attempt;
use basalt_engine::Plan;

use crate::driver::machine::{Loaded, bmc_account};
use crate::driver::reconcile::machine::system_addresses;
use crate::racks::observed;

/// Sets the conditions of a machine with which only a person can go on.
pub(crate) fn stall(conditions: &mut Vec<Condition>, why: &str) {
    conditions.retain(|condition| condition.kind != Condition::POWER_DIFFERS);
    for condition in conditions {
        condition.reason = "Refused".to_owned();
        condition.message = why.to_owned();
        let stalled = condition.kind == Condition::STALLED;
        condition.status = if stalled { ConditionStatus::True } else { ConditionStatus::False };
    }
}

pub(crate) fn of(loaded: &Loaded, planned: &Plan) -> MachineStatus {
    let facts = &loaded.input.facts;
    let mut status = MachineStatus::default();
    status.common.conditions = planned.report.conditions.clone();
    status.axes = planned.report.axes.clone();
    status.phase = Some(phase(&planned.report.axes).to_owned());
    status.deployment =
        loaded.deployment.as_ref().and_then(|o| o.name.parse().ok()).map(basalt_api::Ref::new);
    status.tags = loaded.tags.iter().filter_map(|tag| tag.parse().ok()).collect();
    let automatic = loaded.automatic.iter().filter(|it| it.error.is_none());
    status.automatic_tags = automatic.filter_map(|it| it.name.parse().ok()).collect();
    status.inventory = loaded.inventory.clone();
    status.bmc = bmc_account::status(loaded);
    status.tests = loaded.tests.status();
    status.commissioned_at = facts.inventory.as_ref().map(|seen| seen.at);
    status.power = power(loaded);
    status.addresses = system_addresses::of(loaded, planned);
    if let (None, Some(lease), Some(nic)) = (&loaded.input.claim, &facts.lease, boot_nic(loaded))
        && let Ok(address) = lease.address.parse()
    {
        status.last_leased.insert(nic, address);
    }
    status.boot = progress(loaded);
    status
}

/// The power from the last reading. If that failed, it is unknown, with the reason.
fn power(loaded: &Loaded) -> Option<PowerStatus> {
    let facts = &loaded.input.facts;
    let read = || facts.power.as_ref().map(|reading| PowerStatus::new(reading.state, reading.at));
    let failed = facts.unread.as_ref().map(|unread| PowerStatus {
        error: Some(unread.message.clone()),
        ..PowerStatus::new(PowerState::Unknown, unread.at)
    });
    let asked = loaded.facts.iter().filter(|fact| fact.kind == "power" || observed::is_reading(&fact.kind));
    let rack = asked.max_by_key(|fact| fact.id).and_then(|fact| fact.source.parse().ok());
    let status = failed.or_else(read)?;
    Some(PowerStatus { certificate: facts.bmc_certificate, rack: rack.map(basalt_api::Ref::new), ..status })
}

fn boot_nic(loaded: &Loaded) -> Option<String> {
    let seen = loaded.input.facts.inventory.as_ref()?;
    seen.inventory.nics.iter().find(|nic| nic.boot).map(|nic| nic.name.clone())
}

/// The progress of the present boot: of the latest attempt, while it has no result.
fn progress(loaded: &Loaded) -> Option<BootProgress> {
    let facts = &loaded.input.facts;
    let attempt: Attempt = loaded.input.records.iter().rev().find_map(|record| record.attempt)?;
    if facts.results.contains_key(&attempt) {
        return None;
    }
    let request = facts.boot_requests.get(&attempt);
    let progress = facts.progress.get(&attempt);
    let seen = loaded.facts.iter().filter(|fact| {
        fact.attempt == Some(attempt) && ["boot_request", "claim", "progress"].contains(&fact.kind.as_str())
    });
    let rack = seen.max_by_key(|fact| fact.id).and_then(|fact| fact.source.parse().ok());
    let (step, at) = match (progress, facts.claims.get(&attempt), request) {
        (Some(progress), _, _) => (progress.stage.clone(), progress.at),
        (None, Some(claim), _) => ("agent".to_owned(), claim.at),
        (None, None, Some(request)) => (request.service.clone(), request.last_at),
        (None, None, None) => return None,
    };
    Some(BootProgress { rack: rack.map(basalt_api::Ref::new), ..BootProgress::new(step, at) })
}
