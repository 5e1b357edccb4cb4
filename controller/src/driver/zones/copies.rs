//! The copies of zones at secondaries, from the reports of racks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use basalt_api::kinds::{
    Condition, ConditionStatus, RackService, Secondary, SecondaryState, SecondaryStatus,
};
use basalt_api::values::{Timestamp, Uid};

use crate::driver::estate::RackSeen;
use crate::driver::load::Estate;

/// How often a Domain with secondaries reads the reports again. Another state wakes it; another serial alone does not.
pub(super) const LOOK: Duration = Duration::from_secs(300);

/// The state of each declared secondary that racks have asked.
///
/// Connected racks count; the reports of others may be old. One rack that sees a current copy is enough: the others cannot reach the
/// secondary, and `status.services` of each of them says so.
pub(super) fn states(
    domain: &str,
    declared: &BTreeMap<String, Secondary>,
    racks: &[RackSeen],
) -> BTreeMap<String, SecondaryStatus> {
    let mut states = BTreeMap::new();
    for name in declared.keys() {
        let service = format!("{domain} {name}");
        let reports = |is_there: bool| {
            let racks = racks.iter().filter(move |rack| !rack.maintenance && (rack.is_there() || !is_there));
            racks.filter_map(|rack| Some((rack, rack.copies.get(&service)?)))
        };
        let is_there = reports(true).next().is_some();
        let Some((rack, report)) = reports(is_there).min_by_key(|(_, report)| report.state) else { continue };
        let problem = report.problem.as_ref().map(|problem| format!("rack {}: {problem}", rack.name));
        let status = SecondaryStatus {
            state: report.state,
            serial: report.serial,
            answered_at: reports(is_there).filter_map(|(_, report)| report.answered_at).max(),
            message: problem,
        };
        states.insert(name.clone(), status);
    }
    states
}

/// The condition `SecondaryBehind`, if a copy is not current.
pub(super) fn condition(states: &BTreeMap<String, SecondaryStatus>, now: Timestamp) -> Option<Condition> {
    let behind: Vec<_> = states.iter().filter(|(_, it)| it.state != SecondaryState::Current).collect();
    let worst = behind.iter().map(|(_, it)| it.state).max()?;
    let words = behind.iter().map(|(name, it)| {
        let why = it.message.as_deref().unwrap_or("its copy is not current");
        let since = it.answered_at.filter(|_| it.state == SecondaryState::Silent);
        let since = since.map(|at| format!("; it last answered at {}", at.strftime("%Y-%m-%d %H:%M:%S UTC")));
        format!("secondary {name}: {why}{}", since.unwrap_or_default())
    });
    Some(Condition {
        kind: Condition::SECONDARY_BEHIND.to_owned(),
        status: ConditionStatus::True,
        reason: format!("{worst:?}"),
        message: words.collect::<Vec<_>>().join("; "),
        since: now,
        deadline: None,
    })
}

/// The Domains with a secondary about which a rack reports another state than before.
pub fn domains(
    estate: &Estate,
    before: &BTreeMap<String, RackService>,
    after: &BTreeMap<String, RackService>,
) -> BTreeSet<Uid> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let named =
        changed.filter_map(|name| Some(name.strip_prefix(basalt_proto::SECONDARY)?.split_once(' ')?.0));
    named.filter_map(|name| estate.domains.iter().find(|it| it.name == name)).map(|it| it.uid).collect()
}
