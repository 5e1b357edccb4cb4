//! Objects that have no past in Terraform: what is imported, and what is found by a query.

use std::collections::BTreeMap;

use basalt_api::kinds::{Condition, ConditionStatus};
use basalt_api::{Kind, Object};
use tfplugin::{Diag, Diags, Val};

use crate::MANAGER;
use crate::map::{self, READY};
use crate::patience;
use crate::region::Region;

/// The state of an object, as the region says; its labels are those that are ours already.
pub(crate) async fn state(
    region: &Region,
    kind: &'static Kind,
    object: &Object,
    defaults: &Val,
) -> Result<Val, Diags> {
    let mut state = map::object(kind, object);
    let ours = match object.metadata.labels.is_empty() {
        true => BTreeMap::new(),
        false => {
            let mut layers = region.layers(kind, object).await?;
            layers.remove(MANAGER).map(|layer| layer.labels).unwrap_or_default()
        }
    };
    map::labels::import(&ours, defaults, &mut state);
    if patience::is_awaited(kind) {
        state.set(READY, is_ready(object));
    }
    Ok(state)
}

/// Whether its last change is done.
pub(crate) fn is_ready(object: &Object) -> bool {
    holds(object, Condition::READY)
}

/// The condition is true, and was seen after the object's last change.
pub(crate) fn holds(object: &Object, condition: &str) -> bool {
    let status = object.common_status();
    let found = status.condition(condition);
    found.is_some_and(|found| found.status == ConditionStatus::True)
        && status.observed_generation >= object.metadata.generation
}

/// What an object says about why it is not ready, without a full stop.
pub(crate) fn reason(object: &Object) -> String {
    let status = object.common_status();
    let said = [Condition::STALLED, Condition::PROGRESSING, Condition::READY]
        .into_iter()
        .filter_map(|name| status.condition(name))
        .find(|condition| !condition.message.is_empty());
    said.map_or("it does not say why".to_owned(), |condition| {
        condition.message.trim_end_matches('.').to_owned()
    })
}

/// That nothing goes on with a machine as it is declared until somebody does something, if it is so: its apply ended before that was
/// known.
pub(crate) fn held_up(kind: &Kind, object: &Object) -> Option<Diag> {
    let status = object.common_status();
    if status.observed_generation < object.metadata.generation {
        return None;
    }
    let stalled = status.condition(Condition::STALLED).filter(|it| it.status == ConditionStatus::True)?;
    let name = &object.metadata.name;
    (kind.name == "Machine").then(|| {
        let why = stalled.message.trim_end_matches('.');
        let detail = format!("{why}. See `basalt explain machine {name}`.");
        Diag::warning(format!("It waits for somebody: {} {name:?}", kind.name), detail)
    })
}

/// That it will soon be gone, if it will.
pub(crate) fn going(kind: &Kind, object: &Object) -> Option<Diag> {
    object.metadata.deletion_requested_at?;
    let detail = format!("{} {:?} is on its way out: {}.", kind.name, object.metadata.name, reason(object));
    Some(Diag::warning(format!("It is being deleted: {} {:?}", kind.name, object.metadata.name), detail))
}
