//! Entries: the part of a rack's documents that is about one machine, and the racks that hold each entry.
//!
//! The scope of an entry is the set of racks that need it. A rack's document of a concern contains the entries whose scope includes that
//! rack. So only the racks that need a secret receive it, and an attempt waits only for these racks.

use crate::concern::is_applied;
use crate::object::signed;
use crate::seal::Place;
use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::values::{Epoch, Generation, RackId, Uid};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

pub(crate) fn pointer(concern: &str) -> String {
    format!("entry/{concern}")
}

/// An entry to write.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    /// The concern to whose documents the entry belongs.
    pub concern: &'a str,
    /// The machine that the entry is about.
    pub object: Uid,
    /// The epoch of the lease under which the entry was decided.
    pub epoch: Epoch,
    /// The content without secrets. Entries with the same content count as equal.
    pub says: &'a Value,
    /// The bytes for racks. `None`: the entry is in no document.
    pub body: Option<&'a [u8]>,
    /// The racks in the scope of the entry.
    pub racks: &'a BTreeSet<RackId>,
}

/// An entry in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The machine that the entry is about.
    pub object: Uid,
    /// The number of this version. A later one is higher.
    pub version: i64,
    /// The bytes for racks.
    pub body: Vec<u8>,
}

/// The entries of a rack's document, as they were read for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntriesRead {
    /// The entries, in a fixed order.
    pub entries: Vec<Entry>,
    /// The mark of the document when they were read.
    mark: Option<i64>,
}

/// The progress of a rack with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The rack has not answered the latest document with this version of the entry, or without the entry.
    Waits,
    /// The rack has refused that document, with this message.
    Refused(String),
    /// The rack has applied that document.
    Applied,
}

/// A rack that is or was in the scope of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryHolder {
    /// The rack that holds, held or must receive the entry.
    pub rack: RackId,
    /// True: the rack is in the scope. False: the rack must remove the entry.
    pub wanted: bool,
    /// The progress of the rack.
    pub progress: Progress,
}

/// A stored entry, with the progress of its racks.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryState {
    /// The content with which the entry was written.
    pub says: Value,
    /// The racks in its scope, and the racks that left the scope and may still hold the entry.
    pub holders: Vec<EntryHolder>,
}

impl EntryState {
    /// The racks in the scope of the entry.
    #[must_use]
    pub fn scope(&self) -> BTreeSet<RackId> {
        self.holders.iter().filter(|it| it.wanted).map(|it| it.rack).collect()
    }
}

impl Store {
    /// Writes an entry, unless a later epoch has written it. Wakes the racks whose scope or entry changes.
    ///
    /// # Errors
    /// `SealReplaced`; fails too if the database cannot be written.
    pub async fn put_entry(&self, entry: &NewEntry<'_>) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        self.hold_seal(&mut tx).await?;
        let (concern, object, epoch) = (entry.concern, entry.object.get(), signed(entry.epoch.get()));
        let before = sqlx::query!(
            "select epoch, says from entry where concern = $1 and object = $2 for update",
            concern,
            object
        );
        let before = before.fetch_optional(&mut *tx).await?;
        if before.as_ref().is_some_and(|before| before.epoch > epoch) {
            return Ok(());
        }
        let is_news = before.is_none_or(|before| before.says != *entry.says);
        if is_news {
            let place = Place { object: entry.object, pointer: &pointer(concern) };
            let body = entry.body.map(|body| self.seal().seal(&place, body)).transpose()?;
            let upsert = sqlx::query!(
                "insert into entry as e (concern, object, epoch, says, body) values ($1, $2, $3, $4, $5)
                 on conflict (concern, object) do update
                 set version = nextval('entry_version'), epoch = excluded.epoch, says = excluded.says, body = excluded.body
                 where e.epoch <= excluded.epoch",
                concern,
                object,
                epoch,
                entry.says,
                body
            );
            if upsert.execute(&mut *tx).await?.rows_affected() == 0 {
                return Ok(());
            }
        }
        let racks: Vec<Uuid> = entry.racks.iter().map(|rack| rack.get()).collect();
        // Lock order of all writers: by machine, then by rack.
        let moved = sqlx::query_scalar!(
            r#"with known as (
                 select rack, wanted from rack_entry where concern = $1 and object = $2 order by rack for update),
               wish as (select uid as rack from object where kind = 'Rack' and uid = any($3)),
               gained as (
                 insert into rack_entry (rack, concern, object, wanted) select rack, $1, $2, true from wish order by rack
                 on conflict (rack, concern, object) do update set wanted = true where not rack_entry.wanted
                 returning rack),
               lost as (
                 update rack_entry r set wanted = false from known k
                 where r.concern = $1 and r.object = $2 and r.rack = k.rack and k.wanted and r.rack <> all($3)
                 returning r.rack),
               kept as (select rack from known where $4)
               select rack as "rack!" from gained union select rack from lost union select rack from kept"#,
            concern,
            object,
            &racks,
            is_news
        );
        let moved = moved.fetch_all(&mut *tx).await?;
        let mark = sqlx::query!(
            "insert into rack_due (rack, concern) select rack, $2 from unnest($1::uuid[]) rack order by rack
             on conflict (rack, concern) do update set mark = excluded.mark",
            &moved,
            concern
        );
        mark.execute(&mut *tx).await?;
        self.wake_with(&mut tx, &[], &moved).await?;
        self.commit(tx).await?;
        Ok(())
    }

    /// The concerns of a rack whose documents are older than their entries.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn due_concerns(&self, rack: RackId) -> Result<BTreeSet<String>, StoreError> {
        let due = sqlx::query_scalar!("select concern from rack_due where rack = $1", rack.get());
        Ok(due.fetch_all(self.pool()).await?.into_iter().collect())
    }

    /// The entries of a rack's document, in a fixed order.
    ///
    /// # Errors
    /// Fails if the seal key does not open an entry, or if the database cannot be read.
    pub async fn entries_for(&self, rack: RackId, concern: &str) -> Result<EntriesRead, StoreError> {
        // The mark is read before the entries: one that is set later stays.
        let mark = sqlx::query_scalar!(
            "select mark from rack_due where rack = $1 and concern = $2",
            rack.get(),
            concern
        );
        let mark = mark.fetch_optional(self.pool()).await?;
        let rows = sqlx::query!(
            r#"select e.object, e.version, e.body as "body!" from rack_entry r
               join entry e on e.concern = r.concern and e.object = r.object
               where r.rack = $1 and r.concern = $2 and r.wanted and e.body is not null order by e.object"#,
            rack.get(),
            concern
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let entries = rows.into_iter().map(|r| self.entry(concern, r.object, r.version, &r.body));
        Ok(EntriesRead { entries: entries.collect::<Result<_, _>>()?, mark })
    }

    /// The contents of the `known` entries with DHCP options, in a fixed order.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn dhcp_clients(&self) -> Result<Vec<Value>, StoreError> {
        let says = sqlx::query_scalar!(
            "select says from entry where concern = 'known' and says ? 'dhcp' order by object"
        );
        Ok(says.fetch_all(self.pool()).await?)
    }

    pub(crate) fn entry(
        &self,
        concern: &str,
        object: Uuid,
        version: i64,
        sealed: &[u8],
    ) -> Result<Entry, StoreError> {
        let place = Place { object: Uid::from(object), pointer: &pointer(concern) };
        let body = self.seal().open(&place, sealed)?.to_vec();
        Ok(Entry { object: Uid::from(object), version, body })
    }

    /// A machine's entries by concern, with the progress of their racks.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn entry_states(&self, object: Uid) -> Result<BTreeMap<String, EntryState>, StoreError> {
        let rows = sqlx::query!(
            r#"select e.concern, e.version, e.says, e.body is not null as "is_there!", r.rack as "rack?", r.wanted as "wanted?", r.told, r.told_in,
                 a.generation as "answered?", a.outcome as "outcome?", a.message as "message?"
               from entry e
               left join rack_entry r on r.concern = e.concern and r.object = e.object
               left join rack_concern_ack a on a.rack = r.rack and a.concern = r.concern
               where e.object = $1 order by e.concern, r.rack"#,
            object.get()
        );
        let mut states: BTreeMap<String, EntryState> = BTreeMap::new();
        for row in rows.fetch_all(self.pool()).await? {
            let state = states
                .entry(row.concern.clone())
                .or_insert_with(|| EntryState { says: row.says, holders: Vec::new() });
            let (Some(rack), Some(wanted)) = (row.rack, row.wanted) else { continue };
            let is_told = row.told == (wanted && row.is_there).then_some(row.version);
            let is_answered = row.told_in.is_some_and(|told_in| row.answered.is_some_and(|it| it >= told_in));
            let progress = match row.outcome {
                Some(outcome) if is_told && is_answered => match is_applied(&outcome) {
                    true => Progress::Applied,
                    false => Progress::Refused(row.message.unwrap_or_default()),
                },
                _ => Progress::Waits,
            };
            state.holders.push(EntryHolder { rack: RackId::from(rack), wanted, progress });
        }
        Ok(states)
    }

    /// Records that a rack's document of this generation contains exactly these entries, with their versions. The document is no longer due, unless
    /// an entry changed after they were read. Returns the machines whose rows changed.
    pub(crate) async fn note_told(
        &self,
        tx: &mut Tx,
        rack: RackId,
        concern: &str,
        generation: Generation,
        read: &EntriesRead,
    ) -> Result<Vec<Uuid>, StoreError> {
        let (objects, versions): (Vec<Uuid>, Vec<i64>) =
            read.entries.iter().map(|entry| (entry.object.get(), entry.version)).unzip();
        let update = sqlx::query_scalar!(
            "with told as (
               select r.object, n.version from rack_entry r
               left join unnest($3::uuid[], $4::bigint[]) n(object, version) on n.object = r.object
               where r.rack = $1 and r.concern = $2 and (r.told is distinct from n.version or r.told_in is null)
               order by r.object for update of r)
             update rack_entry r set told = t.version, told_in = $5 from told t
             where r.rack = $1 and r.concern = $2 and r.object = t.object returning r.object",
            rack.get(),
            concern,
            &objects,
            &versions,
            signed(generation.get())
        );
        let changed = update.fetch_all(&mut **tx).await?;
        // Lock order of all writers: entries of racks, then marks.
        let unmark = sqlx::query!(
            "delete from rack_due where rack = $1 and concern = $2 and mark = $3",
            rack.get(),
            concern,
            read.mark
        );
        unmark.execute(&mut **tx).await?;
        Ok(changed)
    }

    /// Deletes the rows of entries that a rack, by its latest answer, no longer holds.
    pub(crate) async fn remove_given_up(
        &self,
        tx: &mut Tx,
        rack: RackId,
        concern: &str,
    ) -> Result<(), StoreError> {
        let delete = sqlx::query!(
            "delete from rack_entry r using rack_concern_ack a
             where r.rack = $1 and r.concern = $2 and a.rack = $1 and a.concern = $2
             and not r.wanted and r.told is null and r.told_in <= a.generation and a.outcome in ('applied', 'already_there')",
            rack.get(),
            concern
        );
        delete.execute(&mut **tx).await?;
        Ok(())
    }

    /// The machines whose entries changed in a document after generation `after`, up to generation `through`, which the rack has answered.
    pub(crate) async fn settled(
        &self,
        tx: &mut Tx,
        rack: RackId,
        concern: &str,
        after: Generation,
        through: Generation,
    ) -> Result<Vec<Uuid>, StoreError> {
        let settled = sqlx::query_scalar!(
            "select object from rack_entry
             where rack = $1 and concern = $2 and told_in > $3 and told_in <= $4 order by object for update",
            rack.get(),
            concern,
            signed(after.get()),
            signed(through.get())
        );
        Ok(settled.fetch_all(&mut **tx).await?)
    }
}
