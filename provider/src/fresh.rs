//! Objects without a prior state in Terraform: from an import or from a query.

use std::collections::BTreeMap;

use basalt_api::kinds::{Condition, ConditionStatus};
use basalt_api::{Kind, Object};
use tfplugin::{Diag, Diags, Val};

use crate::MANAGER;
use crate::map::{self, READY};
use crate::patience;
use crate::region::Region;

/// The state of an object from the region's answer; its labels are those of our own layer.
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

/// True if the object's last change is done.
pub(crate) fn is_ready(object: &Object) -> bool {
    holds(object, Condition::READY)
}

/// True if the condition is true, and was observed after the object's last change.
pub(crate) fn holds(object: &Object, condition: &str) -> bool {
    let status = object.common_status();
    let found = status.condition(condition);
    found.is_some_and(|found| found.status == ConditionStatus::True)
        && status.observed_generation >= object.metadata.generation
}

/// The object's own reason for not being ready, without a full stop.
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

/// A warning if a machine waits for a person before it can reach its declared state. The apply may have ended before this was known.
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

/// A warning if the object is being deleted.
pub(crate) fn going(kind: &Kind, object: &Object) -> Option<Diag> {
    object.metadata.deletion_requested_at?;
    let detail = format!("{} {:?} is on its way out: {}.", kind.name, object.metadata.name, reason(object));
    Some(Diag::warning(format!("It is being deleted: {} {:?}", kind.name, object.metadata.name), detail))
}
