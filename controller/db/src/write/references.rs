//! Resolves names to uids. The referenced objects are locked, so that nobody deletes or renames them before the commit.

use super::Judge;
use super::draft::Draft;
use crate::store::Tx;
use crate::{StoreError, reach};
use basalt_api::values::Uid;
use basalt_api::{FieldCode, FieldError, Reference};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A kind and a name.
type Named = (&'static str, String);

struct Target {
    uid: Uid,
    deleting: bool,
    /// True if the caller does not see it.
    hidden: bool,
}

/// Resolves the references of every draft that is written. A missing object becomes an error of the draft.
pub(super) async fn resolve(
    tx: &mut Tx,
    drafts: &mut [Draft<'_>],
    judge: &dyn Judge,
) -> Result<(), StoreError> {
    let wanted: Vec<Vec<Reference>> = drafts
        .iter()
        .map(|draft| match draft.touched {
            true => basalt_api::references(draft.put.kind, &draft.sealed.value),
            false => Vec::new(),
        })
        .collect();
    let ours: BTreeMap<Named, Uid> = drafts
        .iter()
        .map(|draft| {
            let name = draft.old.as_ref().map_or_else(|| draft.put.key.to_string(), |old| old.name.clone());
            ((draft.put.kind.name, name), draft.uid)
        })
        .collect();
    let others: BTreeSet<Named> = wanted
        .iter()
        .flatten()
        .map(|r| (r.kind, r.name.clone()))
        .filter(|named| !ours.contains_key(named))
        .collect();
    let mut theirs = lock(tx, &others).await?;
    hide(tx, &mut theirs, judge).await?;
    let held = held(tx, drafts, &theirs).await?;
    for (draft, references) in drafts.iter_mut().zip(wanted) {
        for Reference { pointer, kind, name } in references {
            let mut missing = |message: String, hint: String| {
                draft.errors.push(FieldError::new(&pointer, FieldCode::ReferenceNotFound, message, hint));
            };
            let named = (kind, name);
            if let Some(uid) = ours.get(&named) {
                draft.references.insert(pointer, *uid);
                continue;
            }
            let target = theirs.get(&named);
            let is_held = target.is_some_and(|it| held.contains(&(draft.uid.get(), it.uid.get())));
            match target.filter(|target| !target.hidden || is_held) {
                None => missing(
                    format!("there is no {kind} {:?}", named.1),
                    format!("create the {kind} first, or name another one"),
                ),
                Some(target) if target.deleting && !is_held => {
                    missing(
                        format!("{kind} {:?} is being deleted", named.1),
                        format!("wait until it is gone, or name another {kind}"),
                    );
                }
                Some(target) => drop(draft.references.insert(pointer, target.uid)),
            }
        }
    }
    Ok(())
}

/// Marks the drafts of existing objects whose references change.
pub(super) async fn compare(tx: &mut Tx, drafts: &mut [Draft<'_>]) -> Result<(), StoreError> {
    let known: Vec<uuid::Uuid> =
        drafts.iter().filter(|d| d.touched && d.old.is_some()).map(|d| d.uid.get()).collect();
    if known.is_empty() {
        return Ok(());
    }
    let rows =
        sqlx::query!("select from_uid, pointer, to_uid from object_ref where from_uid = any($1)", &known);
    let mut before: HashMap<uuid::Uuid, BTreeMap<String, Uid>> = HashMap::new();
    for row in rows.fetch_all(&mut **tx).await? {
        before.entry(row.from_uid).or_default().insert(row.pointer, Uid::from(row.to_uid));
    }
    for draft in drafts.iter_mut().filter(|d| d.touched && d.old.is_some()) {
        draft.refers_anew = before.remove(&draft.uid.get()).unwrap_or_default() != draft.references;
    }
    Ok(())
}

async fn lock(tx: &mut Tx, names: &BTreeSet<Named>) -> Result<BTreeMap<Named, Target>, StoreError> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (kinds, texts): (Vec<String>, Vec<String>) =
        names.iter().map(|(kind, name)| ((*kind).to_owned(), name.clone())).unzip();
    let rows = sqlx::query!(
        r#"select o.uid, o.kind, o.name, o.deletion_requested_at is not null as "deleting!" from object o
           where o.uid = any(array(select i.uid from unnest($1::text[], $2::text[]) u(kind, name)
                                   join object i on i.kind = u.kind and i.name = u.name))
           order by o.uid for key share"#,
        &kinds,
        &texts
    );
    let rows = rows.fetch_all(&mut **tx).await?;
    let found = rows.into_iter().filter_map(|row| {
        let (kind, _) = names.iter().find(|(kind, _)| *kind == row.kind)?;
        Some(((*kind, row.name), Target { uid: Uid::from(row.uid), deleting: row.deleting, hidden: false }))
    });
    Ok(found.collect())
}

/// Marks the targets that the caller does not see.
async fn hide(
    tx: &mut Tx,
    targets: &mut BTreeMap<Named, Target>,
    judge: &dyn Judge,
) -> Result<(), StoreError> {
    if !judge.minds_pools() || targets.is_empty() {
        return Ok(());
    }
    let uids: Vec<uuid::Uuid> = targets.values().map(|target| target.uid.get()).collect();
    let pools = reach::pools(tx, &uids).await?;
    for ((kind, _), target) in targets {
        let pool = pools.get(&target.uid.get()).and_then(Option::as_deref);
        target.hidden = !judge.sees(kind, pool);
    }
    Ok(())
}

/// Pairs of a draft and a target that is being deleted or hidden. The draft's object refers to the target already, so it may keep it.
async fn held(
    tx: &mut Tx,
    drafts: &[Draft<'_>],
    targets: &BTreeMap<Named, Target>,
) -> Result<BTreeSet<(uuid::Uuid, uuid::Uuid)>, StoreError> {
    let special = targets.values().filter(|target| target.deleting || target.hidden);
    let special: Vec<uuid::Uuid> = special.map(|target| target.uid.get()).collect();
    if special.is_empty() {
        return Ok(BTreeSet::new());
    }
    let from: Vec<uuid::Uuid> = drafts.iter().map(|draft| draft.uid.get()).collect();
    let rows = sqlx::query!(
        "select from_uid, to_uid from object_ref where from_uid = any($1) and to_uid = any($2)",
        &from,
        &special
    );
    Ok(rows.fetch_all(&mut **tx).await?.into_iter().map(|r| (r.from_uid, r.to_uid)).collect())
}
