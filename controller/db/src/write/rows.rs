//! The statements of a write, each for all objects at once.

use super::draft::{Draft, Put, parse};
use crate::object::{Key, Row, select_objects};
use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::values::Uid;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use uuid::Uuid;

/// A sealed secret of an object.
pub(super) struct SecretRow {
    pub(super) pointer: String,
    pub(super) revision: i64,
    pub(super) sealed: Vec<u8>,
}

/// The objects of the puts, in their order, locked in the order of their uids.
pub(super) async fn lock(tx: &mut Tx, puts: &[Put<'_>]) -> Result<Vec<Option<Row>>, StoreError> {
    let (mut kinds, mut names, mut uids) = (Vec::new(), Vec::new(), Vec::new());
    for put in puts {
        match put.key {
            Key::Name(name) => {
                kinds.push(put.kind.name.to_owned());
                names.push(name.to_owned());
            }
            Key::Uid(uid) => uids.push(uid.get()),
        }
    }
    let rows = select_objects!(
        "where uid = any(array(select o.uid from unnest($1::text[], $2::text[]) u(k, n)
                              join object o on o.kind = u.k and o.name = u.n
                              union all select unnest($3::uuid[])))
         order by uid for update",
        &kinds,
        &names,
        &uids
    );
    let rows = rows.fetch_all(&mut **tx).await?;
    let by_name: HashMap<(&str, &str), &Row> =
        rows.iter().map(|row| ((row.kind.as_str(), row.name.as_str()), row)).collect();
    let found = puts.iter().map(|put| match put.key {
        Key::Name(name) => by_name.get(&(put.kind.name, name)).map(|row| (*row).clone()),
        Key::Uid(uid) => rows.iter().find(|r| r.uid == uid.get() && r.kind == put.kind.name).cloned(),
    });
    Ok(found.collect())
}

/// The sealed secrets of these objects.
pub(super) async fn secrets(
    tx: &mut Tx,
    olds: &[Option<Row>],
) -> Result<BTreeMap<Uuid, Vec<SecretRow>>, StoreError> {
    let uids: Vec<Uuid> = olds.iter().flatten().map(|row| row.uid).collect();
    let mut found: BTreeMap<Uuid, Vec<SecretRow>> = BTreeMap::new();
    if uids.is_empty() {
        return Ok(found);
    }
    let rows =
        sqlx::query!("select object, pointer, revision, sealed from secret where object = any($1)", &uids);
    for row in rows.fetch_all(&mut **tx).await? {
        let secret = SecretRow { pointer: row.pointer, revision: row.revision, sealed: row.sealed };
        found.entry(row.object).or_default().push(secret);
    }
    Ok(found)
}

/// The columns of objects to write.
#[derive(Default)]
struct Columns {
    uids: Vec<Uuid>,
    kinds: Vec<String>,
    names: Vec<String>,
    managers: Vec<Option<String>>,
    layers: Vec<String>,
    specs: Vec<String>,
    statuses: Vec<String>,
    observed: Vec<i64>,
    bumps: Vec<i64>,
}

impl Columns {
    fn push(&mut self, draft: &Draft<'_>, status: Value, observed: i64) -> Result<(), StoreError> {
        let layers = serde_json::to_string(&draft.layers).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        self.uids.push(draft.uid.get());
        self.kinds.push(draft.put.kind.name.to_owned());
        self.names.push(draft.put.key.to_string());
        self.managers.push(draft.manager.clone());
        self.layers.push(layers);
        self.specs.push(draft.sealed.text.as_str().to_owned());
        self.statuses.push(observing(status, observed).to_string());
        self.observed.push(observed);
        self.bumps.push(i64::from(draft.changed));
        Ok(())
    }
}

/// Inserts new objects, and updates those that changed.
pub(super) async fn write(store: &Store, tx: &mut Tx, drafts: &mut [Draft<'_>]) -> Result<(), StoreError> {
    let (mut new, mut old) = (Columns::default(), Columns::default());
    for draft in drafts.iter().filter(|draft| draft.touched) {
        let observed = draft.observed(store.is_reconciled(draft.put.kind.name));
        match &draft.old {
            None => new.push(draft, draft.put.first_status.clone(), observed)?,
            Some(row) => old.push(draft, parse(&row.status)?, observed)?,
        }
    }
    let mut written: HashMap<Uuid, Row> = HashMap::new();
    if !new.uids.is_empty() {
        written.extend(insert(tx, &new).await?.into_iter().map(|row| (row.uid, row)));
    }
    if !old.uids.is_empty() {
        written.extend(update(tx, &old).await?.into_iter().map(|row| (row.uid, row)));
    }
    for draft in drafts {
        draft.row = written.remove(&draft.uid.get());
    }
    Ok(())
}

async fn insert(tx: &mut Tx, new: &Columns) -> Result<Vec<Row>, StoreError> {
    let insert = sqlx::query_as!(
        Row,
        r#"insert into object (uid, kind, name, manager, labels, spec, status, observed_generation)
           select u.uid, u.kind, u.name, u.manager, u.labels::jsonb, u.spec::json, u.status::json, u.observed
           from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[])
             u(uid, kind, name, manager, labels, spec, status, observed)
           returning uid, kind, name, manager, labels, spec::text as "spec!", status::text as "status!",
             generation, observed_generation,
             (extract(epoch from created_at) * 1000000)::bigint as "created_us!",
             (extract(epoch from updated_at) * 1000000)::bigint as "updated_us!",
             (extract(epoch from deletion_requested_at) * 1000000)::bigint as deletion_us"#,
        &new.uids,
        &new.kinds,
        &new.names,
        &new.managers as &[Option<String>],
        &new.layers,
        &new.specs,
        &new.statuses,
        &new.observed
    );
    Ok(insert.fetch_all(&mut **tx).await?)
}

async fn update(tx: &mut Tx, old: &Columns) -> Result<Vec<Row>, StoreError> {
    let update = sqlx::query_as!(
        Row,
        r#"update object o set spec = u.spec::json, labels = u.labels::jsonb, manager = u.manager,
             generation = o.generation + u.bump, observed_generation = u.observed, status = u.status::json,
             updated_at = case when u.bump = 0 then o.updated_at else now() end
           from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
             u(uid, manager, labels, spec, status, observed, bump)
           where o.uid = u.uid
           returning o.uid, o.kind, o.name, o.manager, o.labels, o.spec::text as "spec!", o.status::text as "status!",
             o.generation, o.observed_generation,
             (extract(epoch from o.created_at) * 1000000)::bigint as "created_us!",
             (extract(epoch from o.updated_at) * 1000000)::bigint as "updated_us!",
             (extract(epoch from o.deletion_requested_at) * 1000000)::bigint as deletion_us"#,
        &old.uids,
        &old.managers as &[Option<String>],
        &old.layers,
        &old.specs,
        &old.statuses,
        &old.observed,
        &old.bumps
    );
    Ok(update.fetch_all(&mut **tx).await?)
}

/// Writes the addresses that objects got into their statuses.
pub(super) async fn assign(
    tx: &mut Tx,
    drafts: &mut [Draft<'_>],
    assigned: &BTreeMap<Uid, IpAddr>,
) -> Result<(), StoreError> {
    let (mut uids, mut statuses) = (Vec::new(), Vec::new());
    for draft in drafts {
        let (Some(address), Some(row)) = (assigned.get(&draft.uid), &mut draft.row) else { continue };
        let mut status = parse(&row.status)?;
        let address = Value::from(address.to_string());
        if let Value::Object(fields) = &mut status
            && fields.get("address") != Some(&address)
        {
            fields.insert("address".to_owned(), address);
            row.status = status.to_string();
            uids.push(row.uid);
            statuses.push(row.status.clone());
        }
    }
    if !uids.is_empty() {
        let update = sqlx::query!(
            "update object o set status = u.status::json from unnest($1::uuid[], $2::text[]) u(uid, status)
             where o.uid = u.uid",
            &uids,
            &statuses
        );
        update.execute(&mut **tx).await?;
    }
    Ok(())
}

/// Replaces the references of drafts whose references changed.
pub(super) async fn write_references(tx: &mut Tx, drafts: &[Draft<'_>]) -> Result<(), StoreError> {
    let (mut from, mut pointers, mut to) = (Vec::new(), Vec::new(), Vec::new());
    for draft in drafts.iter().filter(|draft| draft.refers_anew) {
        for (pointer, uid) in &draft.references {
            from.push(draft.uid.get());
            pointers.push(pointer.clone());
            to.push(uid.get());
        }
    }
    let known: Vec<Uuid> =
        drafts.iter().filter(|d| d.refers_anew && d.old.is_some()).map(|d| d.uid.get()).collect();
    if !known.is_empty() {
        let delete = sqlx::query!("delete from object_ref where from_uid = any($1)", &known);
        delete.execute(&mut **tx).await?;
    }
    if !from.is_empty() {
        let insert = sqlx::query!(
            "insert into object_ref (from_uid, pointer, to_uid)
             select f, p, t from unnest($1::uuid[], $2::text[], $3::uuid[]) u(f, p, t)",
            &from,
            &pointers,
            &to
        );
        insert.execute(&mut **tx).await?;
    }
    Ok(())
}

/// Deletes the secrets that were removed or replaced, and stores the new ones.
pub(super) async fn write_secrets(tx: &mut Tx, drafts: &[Draft<'_>]) -> Result<(), StoreError> {
    let known: Vec<Uuid> =
        drafts.iter().filter(|d| d.sealed.changed && d.old.is_some()).map(|d| d.uid.get()).collect();
    if !known.is_empty() {
        let (mut of, mut kept) = (Vec::new(), Vec::new());
        for draft in drafts {
            for pointer in &draft.sealed.kept {
                of.push(draft.uid.get());
                kept.push(pointer.clone());
            }
        }
        let delete = sqlx::query!(
            "delete from secret s where s.object = any($1) and not exists (
               select from unnest($2::uuid[], $3::text[]) k(object, pointer)
               where k.object = s.object and k.pointer = s.pointer)",
            &known,
            &of,
            &kept
        );
        delete.execute(&mut **tx).await?;
    }
    let (mut objects, mut pointers, mut revisions, mut sealed) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for draft in drafts {
        for (pointer, revision, bytes) in &draft.sealed.fresh {
            objects.push(draft.uid.get());
            pointers.push(pointer.clone());
            revisions.push(*revision);
            sealed.push(bytes.clone());
        }
    }
    if !objects.is_empty() {
        let insert = sqlx::query!(
            "insert into secret (object, pointer, revision, sealed)
             select o, p, r, s from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bytea[]) u(o, p, r, s)",
            &objects,
            &pointers,
            &revisions,
            &sealed
        );
        insert.execute(&mut **tx).await?;
    }
    Ok(())
}

/// Sets `observed_generation` in a status. The rest of a status is the kind's own.
fn observing(mut status: Value, observed: i64) -> Value {
    if let Value::Object(map) = &mut status {
        map.insert("observed_generation".to_owned(), observed.into());
    }
    status
}
