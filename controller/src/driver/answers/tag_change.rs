//! The machines that gain or lose a tag because a write changes the tag's expression.
//!
//! The present tags are the stored results of evaluations. So a machine that a pending evaluation will change counts as it is now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use basalt_api::expression::Expression;
use basalt_api::kinds::{Inventory, MachineSpec, TagSpec};
use basalt_api::plan::TagChange;
use basalt_api::values::{Name, Uid};
use basalt_db::{Object, Overlay, StoreError, Taggable};

use crate::driver::context::Driver;
use crate::driver::stored::spec;
use crate::driver::topology::tags::{Read, read, subject};

/// The number of machines that are examined. Each costs the reading of its inventory, and the caller waits for the answer.
const EXAMINED: usize = 10_000;
/// The number of evaluations: of many tags, fewer machines are examined.
const EVALUATIONS: usize = 100_000;
/// The time for all evaluations. An expression may take some milliseconds for one machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of machines that are read at once.
const PAGE: usize = 500;
/// The number of names in each list.
const NAMED: usize = 100;

/// The tags among the supposed objects whose expressions change, with the machines that gain and lose them. Names are those of machines
/// in these pools.
///
/// # Errors
/// Fails if the database cannot be read.
pub(crate) async fn of(
    driver: &Driver,
    supposed: &Overlay,
    pools: Option<&[String]>,
) -> Result<Vec<TagChange>, StoreError> {
    let mut tags = Vec::new();
    for (uid, after) in supposed.of_kind("Tag") {
        tags.extend(changed(driver, uid, after).await?);
    }
    if tags.is_empty() {
        return Ok(Vec::new());
    }
    let uids: Vec<_> = tags.iter().map(|tag| tag.uid).collect();
    let declared =
        supposed.of_kind("Machine").map(|(uid, machine)| (uid, machine.and_then(|it| spec(it).ok())));
    let mut look = Look { tags, instead: declared.collect(), until: Instant::now() + PATIENCE, last: None };
    let most = EXAMINED.min(EVALUATIONS / uids.len()).max(1);
    let mut seen = 0_usize;
    while seen < most {
        let limit = PAGE.min(most.saturating_sub(seen));
        let after = look.last;
        let machines =
            driver.store.taggable(&uids, pools, after, i64::try_from(limit).unwrap_or(i64::MAX)).await?;
        let (is_end, read) = (machines.len() < limit, machines.len());
        let examined: Result<(Look, usize), _> =
            tokio::task::spawn_blocking(move || look.at(&machines)).await;
        let (after, examined) = examined
            .map_err(|error| StoreError::Corrupt(format!("an expression cannot be computed: {error}")))?;
        look = after;
        seen = seen.saturating_add(examined);
        if examined < read {
            break;
        }
        if is_end {
            return Ok(look.told(0));
        }
    }
    let rest = driver.store.machines_after(look.last).await?;
    Ok(look.told(rest))
}

/// The work on the machines so far.
struct Look {
    tags: Vec<Changing>,
    /// The specs that machines would have by the same write. `None`: the machine would be deleted, or cannot be read.
    instead: BTreeMap<Uid, Option<MachineSpec>>,
    /// When the work ends at the latest.
    until: Instant,
    /// The last machine that was examined.
    last: Option<Uid>,
}

impl Look {
    /// Examines these machines. Returns the number of machines that were examined in time.
    fn at(mut self, machines: &[Taggable]) -> (Self, usize) {
        for (number, machine) in machines.iter().enumerate() {
            if Instant::now() >= self.until {
                return (self, number);
            }
            let declared = match self.instead.get(&machine.uid) {
                Some(instead) => instead.clone(),
                None => serde_json::from_str(&machine.spec).ok(),
            };
            if let Some(declared) = declared {
                look(machine, &declared, &mut self.tags);
            }
            self.last = Some(machine.uid);
        }
        (self, machines.len())
    }

    fn told(self, not_examined: u64) -> Vec<TagChange> {
        let told = |tag: Changing| {
            let mut change = TagChange { not_examined, ..tag.change };
            change.gains.sort();
            change.loses.sort();
            change
        };
        self.tags.into_iter().map(told).collect()
    }
}

/// One tag, and what was found so far.
struct Changing {
    uid: Uid,
    /// The new expression. `None`: the tag has none.
    expression: Option<Read>,
    change: TagChange,
}

/// The tag, if its expression changes.
async fn changed(driver: &Driver, uid: Uid, after: Option<&Object>) -> Result<Option<Changing>, StoreError> {
    let text = |object: &Object| spec::<TagSpec>(object).map(|spec| spec.expression);
    let before = driver.store.get_by_uid(uid).await?;
    let was = before.as_ref().map(text).transpose()?.flatten();
    let is = after.map(text).transpose()?.flatten();
    if was == is {
        return Ok(None);
    }
    let name = after.or(before.as_ref()).and_then(|object| object.name.parse().ok());
    let Some(tag) = name else { return Ok(None) };
    let change = TagChange {
        tag,
        gained: 0,
        lost: 0,
        gains: Vec::new(),
        loses: Vec::new(),
        errors: 0,
        not_examined: 0,
    };
    Ok(Some(Changing { uid, expression: is.as_deref().map(read), change }))
}

/// Examines one machine with all tags.
fn look(machine: &Taggable, declared: &MachineSpec, tags: &mut [Changing]) {
    let inventory: Option<Inventory> =
        machine.inventory.as_deref().and_then(|text| serde_json::from_str(text).ok()).flatten();
    let given: BTreeSet<&str> = declared
        .tags
        .iter()
        .map(|tag| tag.as_str())
        .chain(machine.layered.iter().map(String::as_str))
        .collect();
    let subject = subject(&machine.name, declared, inventory.as_ref());
    for tag in tags {
        let expression = tag.expression.as_deref().and_then(|read| read.as_ref().ok());
        let holds = match expression.map(|it: &Expression| it.holds(&subject)) {
            Some(Ok(holds)) => holds,
            Some(Err(_)) => {
                tag.change.errors = tag.change.errors.saturating_add(1);
                false
            }
            None => false,
        };
        if given.contains(tag.change.tag.as_str()) {
            continue;
        }
        let change = &mut tag.change;
        let (count, names) = match (machine.automatic.contains(&tag.uid), holds) {
            (false, true) => (&mut change.gained, &mut change.gains),
            (true, false) => (&mut change.lost, &mut change.loses),
            _ => continue,
        };
        *count = count.saturating_add(1);
        if machine.shown && names.len() < NAMED {
            names.extend(machine.name.parse::<Name>().ok());
        }
    }
}
