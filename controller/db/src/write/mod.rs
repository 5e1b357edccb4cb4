//! Writing specs: any number of objects in one transaction, all or none.
//!
//! A single PUT is a batch of one. Every step is one statement for the whole batch, so that ten thousand objects cost about as
//! many round trips as one.
//!
//! | module | is |
//! | --- | --- |
//! | `draft` | one object to be written: preconditions, secrets, what changes |
//! | `passwords` | their hashes, computed before the transaction |
//! | `references` | names to uids, including names of the same batch |
//! | `rows` | the statements |
//! | `prune` | deletes objects that are no longer declared |

mod draft;
mod passwords;
mod prune;
mod references;
mod rows;

pub use draft::{Precondition, Put, Stored};
pub use prune::{Prune, Pruned};

use crate::invariant::{self, Subject};
use crate::ipam::device;
use crate::object::{Object, Row};
use crate::store::Tx;
use crate::{Allocation, Given, Store, StoreError, audit, change, claim, reach};
use basalt_api::kinds::{Deployment, Machine};
use basalt_api::values::{DeploymentId, MachineId, Uid};
use basalt_api::{FieldError, KindOf};
use draft::Draft;
use passwords::Passwords;
use std::collections::HashMap;

/// How often a call is repeated if its transaction meets another one.
pub(crate) const TRIES: usize = 8;

/// From this many objects on, PostgreSQL plans the statements for their actual values.
const BULK: usize = 64;

/// Specs to store together.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// The specs, in any order; none of them twice.
    pub puts: &'a [Put<'a>],
    /// Further objects to delete.
    pub prune: Option<Prune<'a>>,
    /// Do everything, then roll back. Errors of single objects become advisories.
    pub dry_run: bool,
    /// Rules of the caller, beside the store's own.
    pub judge: &'a dyn Judge,
    /// Machines for deployments of the batch, by the deployments' names; stored in the same transaction.
    pub allocation: Option<&'a Allocation>,
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Batch");
        shown.field("puts", &self.puts).field("prune", &self.prune).field("dry_run", &self.dry_run);
        shown.field("allocation", &self.allocation);
        shown.finish_non_exhaustive()
    }
}

/// Rules that need the stored object, called inside the transaction that changes it.
pub trait Judge: Send + Sync {
    /// The errors that refuse a change; pointers are into the spec. They are errors in a dry run too.
    fn change(&self, put: &Put<'_>, before: &Object) -> Vec<FieldError>;

    /// The errors that refuse the deletion of an object.
    fn removal(&self, object: &Object) -> Vec<FieldError>;

    /// The errors that refuse the renaming of an object.
    fn renaming(&self, _: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// True if [`reach`](Self::reach) depends on the pools of objects.
    fn minds_pools(&self) -> bool {
        false
    }

    /// True if the caller sees an object of this pool. A new reference to an object that is not seen is refused like one to a missing
    /// object.
    fn sees(&self, kind: &str, pool: Option<&str>) -> bool {
        let _ = (kind, pool);
        true
    }

    /// The error that refuses the caller any write to an object of this pool. `wanted` is the spec that would put the object there;
    /// `None` asks about the pool of the stored object. Called before the object's other errors are reported.
    fn reach(&self, kind: &str, name: &str, pool: Option<&str>, wanted: Option<&str>) -> Option<FieldError> {
        let _ = (kind, name, pool, wanted);
        None
    }

    /// True if the result may be committed; if false, nothing is stored.
    fn approves(&self, written: &Written) -> bool;
}

/// A judge that allows everything.
#[derive(Clone, Copy, Debug)]
pub struct NoJudge;

impl Judge for NoJudge {
    fn change(&self, _: &Put<'_>, _: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    fn removal(&self, _: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    fn approves(&self, _: &Written) -> bool {
        true
    }
}

/// The result of a [`Batch`]; of a dry run, the result that it would have.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// One result per put, in the order of the puts.
    pub stored: Vec<Stored>,
    /// The objects that were deleted or asked to leave, by kind and name.
    pub pruned: Vec<Pruned>,
}

impl Store {
    /// Creates one object or replaces its spec; the same spec again changes nothing.
    ///
    /// # Errors
    /// The errors of [`Store::write`].
    pub async fn put(&self, put: &Put<'_>) -> Result<Stored, StoreError> {
        let puts = std::slice::from_ref(put);
        let batch = Batch { puts, prune: None, dry_run: false, judge: &NoJudge, allocation: None };
        let none = || StoreError::Corrupt("a batch of one has no result".to_owned());
        self.write(&batch).await?.stored.pop().ok_or_else(none)
    }

    /// Creates objects or replaces their specs, and deletes others, in one transaction.
    ///
    /// # Errors
    /// `Exists`, `Conflict`, `Deleting`, `NotFound` (a uid), `Refused`, `StalePlan`, `SealReplaced`; fails too if the database cannot be
    /// written. Nothing is stored then.
    pub async fn write(&self, batch: &Batch<'_>) -> Result<Written, StoreError> {
        let mut tries = 1;
        loop {
            let passwords = Passwords::of(self, batch.puts).await?;
            match Box::pin(self.write_once(batch, &passwords)).await {
                Err(error) if error.is_race() && tries < TRIES => tries += 1,
                result => return result,
            }
        }
    }

    async fn write_once(&self, batch: &Batch<'_>, passwords: &Passwords) -> Result<Written, StoreError> {
        let is_bulk = batch.puts.len() >= BULK || batch.prune.is_some();
        let mut tx = if is_bulk { self.begin_planning().await? } else { self.begin().await? };
        if batch.puts.iter().any(|put| basalt_api::has_secrets(put.kind)) {
            self.hold_seal(&mut tx).await?;
        }
        device::take_turns(&mut tx, batch.puts.iter().map(|put| put.kind.name)).await?;
        let olds = rows::lock(&mut tx, batch.puts).await?;
        reach_before(&mut tx, batch, &olds).await?;
        let leaving = match &batch.prune {
            Some(prune) => prune::mark(&mut tx, prune, batch).await?,
            None => Vec::new(),
        };
        let mut sealed = rows::secrets(&mut tx, &olds).await?;
        let unconfirmed = self.unconfirmed(&mut tx, batch.puts, &olds).await?;
        let mut drafts = Vec::with_capacity(batch.puts.len());
        let mut errors = Vec::new();
        for (place, (put, old)) in batch.puts.iter().zip(olds).enumerate() {
            let hashes = passwords.of_put(place);
            match Draft::new((self, hashes), put, old, (&mut sealed, &unconfirmed))? {
                Ok(draft) => drafts.push(draft),
                Err(refused) => errors.extend(below(put, refused)),
            }
        }
        // A draft is missing, so the rest of the batch cannot be checked.
        if !errors.is_empty() {
            return Err(StoreError::Refused { errors });
        }
        let mut refused = Vec::new();
        for draft in &drafts {
            if let (Some(old), true) = (&draft.old, draft.changed) {
                refused.extend(below(draft.put, batch.judge.change(draft.put, &old.clone().object()?)));
            }
        }
        for row in &leaving {
            refused.extend(batch.judge.removal(&row.clone().object()?));
        }
        if !refused.is_empty() {
            return Err(StoreError::Refused { errors: refused });
        }
        references::resolve(&mut tx, &mut drafts, batch.judge).await?;
        stop_at_errors(batch, &drafts)?;

        rows::write(self, &mut tx, &mut drafts).await?;
        references::compare(&mut tx, &mut drafts).await?;
        let anew = drafts.iter().filter(|draft| draft.refers_anew && draft.old.is_some());
        let anew: Vec<uuid::Uuid> = anew.map(|draft| draft.uid.get()).collect();
        let held = match anew.is_empty() {
            true => Vec::new(),
            false => prune::held(&mut tx, &anew).await?,
        };
        rows::write_references(&mut tx, &drafts).await?;
        reach_after(&mut tx, batch, &drafts).await?;
        rows::write_secrets(&mut tx, &drafts).await?;
        let created: Vec<uuid::Uuid> =
            drafts.iter().filter(|d| d.is_creation()).map(|d| d.uid.get()).collect();
        // A dry run does not write the row of the run: all dry runs of one plan would wait for each other.
        if !batch.dry_run {
            self.created_in_run(&mut tx, &created).await?;
        }
        let mut log: Vec<_> = leaving.iter().map(audit::Written::removal).collect();
        let pruned = self.let_go(&mut tx, leaving).await?;
        self.free(&mut tx, held).await?;
        let subjects: Vec<Subject<'_>> = drafts.iter().filter(|d| d.touched).map(Draft::subject).collect();
        let found = invariant::write(&mut tx, &subjects).await?;
        rows::assign(&mut tx, &mut drafts, &found.assigned).await?;
        for (uid, error) in found.errors {
            if let Some(draft) = drafts.iter_mut().find(|draft| draft.uid == uid) {
                draft.errors.push(error);
            }
        }
        for (uid, note) in found.notes {
            if let Some(draft) = drafts.iter_mut().find(|draft| draft.uid == uid) {
                draft.notes.push(note);
            }
        }
        stop_at_errors(batch, &drafts)?;

        for draft in &drafts {
            log.extend(draft.logged()?);
        }
        let touched: Vec<_> = drafts.iter().filter(|d| d.touched).filter_map(|d| d.row.clone()).collect();
        let written = Written {
            stored: drafts.into_iter().map(|draft| draft.stored(self)).collect::<Result<_, _>>()?,
            pruned,
        };
        if !batch.judge.approves(&written) {
            return Err(StoreError::StalePlan);
        }
        if batch.dry_run {
            tx.rollback().await?;
            return Ok(written);
        }
        give(&mut tx, batch.allocation, &written).await?;
        change::record_all(&mut tx, &touched, change::Op::Put).await?;
        let uids: Vec<uuid::Uuid> = touched.iter().map(|row| row.uid).collect();
        self.wake_around_all(&mut tx, &uids).await?;
        self.audit(&mut tx, &log).await?;
        self.commit(tx).await?;
        if is_bulk {
            self.has_grown();
        }
        Ok(written)
    }
}

/// Gives deployments of the batch the machines that were approved for them. If one cannot be given, the plan is stale.
async fn give(tx: &mut Tx, approved: Option<&Allocation>, written: &Written) -> Result<(), StoreError> {
    let Some(approved) = approved.filter(|approved| !approved.given.is_empty()) else { return Ok(()) };
    let objects = written.stored.iter().map(|stored| &stored.object);
    let uids: HashMap<(&str, &str), Uid> =
        objects.map(|object| ((object.kind.as_str(), object.name.as_str()), object.uid)).collect();
    // New objects of the approved batch have other uids now than in the dry run, so they are found by name.
    let stored = |given: &Given| {
        let deployment = DeploymentId::from(*uids.get(&(Deployment::KIND.name, given.name.as_str()))?);
        let machine = match approved.made.get(&given.machine) {
            Some(name) => MachineId::from(*uids.get(&(Machine::KIND.name, name.as_str()))?),
            None => given.machine,
        };
        Some(Given { deployment, machine, ..given.clone() })
    };
    let given: Vec<Given> = approved.given.iter().filter_map(stored).collect();
    let epoch = claim::next_epoch(tx).await?;
    if claim::insert(tx, approved, &given, epoch).await?.len() < approved.given.len() {
        return Err(StoreError::StalePlan);
    }
    Ok(())
}

/// Checks that the caller may write the objects as they are stored.
async fn reach_before(tx: &mut Tx, batch: &Batch<'_>, olds: &[Option<Row>]) -> Result<(), StoreError> {
    let uids: Vec<uuid::Uuid> = olds.iter().flatten().map(|row| row.uid).collect();
    let pools = match batch.judge.minds_pools() && !uids.is_empty() {
        true => reach::pools(tx, &uids).await?,
        false => reach::Pools::new(),
    };
    let mut errors = Vec::new();
    for (put, row) in batch.puts.iter().zip(olds) {
        let Some(row) = row else { continue };
        let pool = pools.get(&row.uid).and_then(Option::as_deref);
        errors.extend(below(put, batch.judge.reach(&row.kind, &row.name, pool, None)));
    }
    if errors.is_empty() { Ok(()) } else { Err(StoreError::Refused { errors }) }
}

/// Checks that the caller may put the objects into their new pools.
async fn reach_after(tx: &mut Tx, batch: &Batch<'_>, drafts: &[Draft<'_>]) -> Result<(), StoreError> {
    // In a dry run, a draft with errors has no known pool: the object that it refers to may be missing.
    let drafts = drafts.iter().filter(|draft| draft.errors.is_empty());
    let drafts: Vec<(&Draft<'_>, &Row)> =
        drafts.filter_map(|draft| Some((draft, draft.row.as_ref()?))).collect();
    let uids: Vec<uuid::Uuid> = drafts.iter().map(|(_, row)| row.uid).collect();
    let pools = match batch.judge.minds_pools() && !uids.is_empty() {
        true => reach::pools(tx, &uids).await?,
        false => reach::Pools::new(),
    };
    let mut errors = Vec::new();
    for (draft, row) in drafts {
        let pool = pools.get(&row.uid).and_then(Option::as_deref);
        errors.extend(below(draft.put, batch.judge.reach(&row.kind, &row.name, pool, Some(&row.spec))));
    }
    if errors.is_empty() { Ok(()) } else { Err(StoreError::Refused { errors }) }
}

/// Refuses the batch if a draft has errors. In a dry run they are advisories.
fn stop_at_errors(batch: &Batch<'_>, drafts: &[Draft<'_>]) -> Result<(), StoreError> {
    if batch.dry_run || drafts.iter().all(|draft| draft.errors.is_empty()) {
        return Ok(());
    }
    let errors = drafts.iter().flat_map(|draft| below(draft.put, draft.errors.iter().cloned())).collect();
    Err(StoreError::Refused { errors })
}

/// The errors of a spec, with pointers into the whole request.
fn below(put: &Put<'_>, errors: impl IntoIterator<Item = FieldError>) -> Vec<FieldError> {
    errors.into_iter().map(|error| error.below(put.at)).collect()
}
