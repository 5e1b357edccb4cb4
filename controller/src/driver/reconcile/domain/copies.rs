//! The copies of zones at secondaries, from the reports of racks.
//!
//! The reports are no part of the topology: each change of it is read again by every reconciliation. A report wakes its Domain, which reads
//! only the reports about its own secondaries.

use std::collections::BTreeMap;
use std::time::Duration;

use basalt_api::kinds::{Condition, ConditionStatus, Secondary, SecondaryState, SecondaryStatus};
use basalt_api::values::{RackId, Timestamp};
use basalt_db::{Store, StoreError};

use crate::driver::topology::network::RackSeen;
use crate::driver::topology::services::{self, CopyReport, Said};
use crate::racks::observed::Observed;

/// How often a Domain with secondaries looks which racks are there. A report wakes it at once.
pub(crate) const LOOK: Duration = Duration::from_secs(300);

/// The last report of each rack about each secondary of a Domain, by `DOMAIN NAME`.
pub(crate) type Reports = BTreeMap<RackId, BTreeMap<String, CopyReport>>;

/// Reads the reports about the secondaries of a Domain.
///
/// # Errors
/// Fails if the database cannot be read.
pub(crate) async fn reports(
    store: &Store,
    domain: &str,
    declared: &BTreeMap<String, Secondary>,
    racks: &[RackSeen],
) -> Result<Reports, StoreError> {
    if declared.is_empty() {
        return Ok(Reports::new());
    }
    let racks: Vec<RackId> = racks.iter().map(|rack| rack.uid).collect();
    let about = declared.keys().map(|name| format!("{}{domain} {name}", basalt_proto::SECONDARY));
    let services = about.chain([basalt_proto::STARTED.to_owned()]);
    let kinds: Vec<String> = services.map(|service| format!("health:{service}")).collect();
    let of_racks = store.facts_of_racks(&racks, &kinds).await?;
    let read = of_racks.into_iter().map(|(rack, facts)| {
        let said = facts.into_iter().filter_map(|fact| match Observed::of(&fact) {
            Some(Observed::Health(what)) => Some(Said { id: fact.id, stored_at: fact.stored_at, what }),
            _ => None,
        });
        (RackId::from(rack), services::copies(&said.collect::<Vec<_>>()))
    });
    Ok(read.collect())
}

/// The state of each declared secondary that racks have asked.
///
/// Connected racks count; the reports of others may be old. One rack that sees a current copy is enough: the others cannot reach the
/// secondary, and `status.services` of each of them says so.
pub(crate) fn states(
    domain: &str,
    declared: &BTreeMap<String, Secondary>,
    racks: &[RackSeen],
    reports: &Reports,
) -> BTreeMap<String, SecondaryStatus> {
    let mut states = BTreeMap::new();
    for name in declared.keys() {
        let service = format!("{domain} {name}");
        let told = |is_there: bool| {
            let racks = racks.iter().filter(move |rack| !rack.maintenance && (rack.is_there() || !is_there));
            racks.filter_map(|rack| Some((rack, reports.get(&rack.uid)?.get(&service)?)))
        };
        let is_there = told(true).next().is_some();
        let Some((rack, report)) = told(is_there).min_by_key(|(_, report)| report.state) else { continue };
        let problem = report.problem.as_ref().map(|problem| format!("rack {}: {problem}", rack.name));
        let status = SecondaryStatus {
            state: report.state,
            serial: report.serial,
            answered_at: told(is_there).filter_map(|(_, report)| report.answered_at).max(),
            message: problem,
        };
        states.insert(name.clone(), status);
    }
    states
}

/// The condition `SecondaryBehind`, if a copy is not current.
pub(crate) fn condition(states: &BTreeMap<String, SecondaryStatus>, now: Timestamp) -> Option<Condition> {
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
