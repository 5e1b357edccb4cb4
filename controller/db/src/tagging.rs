//! Automatic tags: a machine has such a tag because the tag's expression holds for it. The driver evaluates expressions; this module
//! stores the results.
//!
//! A decision follows a change of a machine or of a tag. The process that decides first takes the right to decide, then reads
//! committed data, and writes in the same transaction. So the last decision about a machine and a tag always used the last version
//! of both.

use crate::object::select_objects;
use crate::store::Tx;
use crate::{Object, Store, StoreError};
use basalt_api::values::{MachineId, Uid};
use std::collections::{BTreeMap, BTreeSet};

/// A tag that a machine has by the tag's expression, or would have if the expression could be computed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tagged {
    /// The machine's id.
    pub machine: MachineId,
    /// The tag's id.
    pub tag: Uid,
    /// The tag's name.
    pub name: String,
    /// Why the expression cannot be computed for the machine, which then does not have the tag.
    pub error: Option<String>,
}

/// The right to decide about tags, until it is used or dropped. One process on a database holds it at a time.
#[derive(Debug)]
pub struct Tagging {
    store: Store,
    tx: Tx,
}

/// A machine, with what decides whether it has some tags.
#[derive(Clone, Debug)]
pub struct Taggable {
    /// The machine's id.
    pub uid: Uid,
    /// The machine's name.
    pub name: String,
    /// True if the machine is in one of the pools that were asked for.
    pub shown: bool,
    /// The machine's spec, as JSON.
    pub spec: String,
    /// The inventory in the machine's status, as JSON.
    pub inventory: Option<String>,
    /// The tags among those asked for that the machine has by their expressions.
    pub automatic: BTreeSet<Uid>,
    /// The tags that managers gave the machine.
    pub layered: BTreeSet<String>,
}

/// The number of machines that have a tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagUse {
    /// All machines with the tag.
    pub machines: u64,
    /// Machines that have the tag by its expression.
    pub automatic: u64,
    /// Machines for which the expression cannot be computed.
    pub errors: u64,
    /// The error of one of those machines.
    pub error: Option<String>,
}

/// The number of machines in a zone or pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceUse {
    /// All machines in the place.
    pub machines: u64,
    /// Machines that a deployment could take now.
    pub ready: u64,
}

fn count(number: Option<i64>) -> u64 {
    u64::try_from(number.unwrap_or(0)).unwrap_or(0)
}

impl Tagging {
    /// The next machines after `after`, in the order of uids.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn machines(&mut self, after: Option<Uid>, limit: i64) -> Result<Vec<Object>, StoreError> {
        let rows = select_objects!(
            "where kind = 'Machine' and uid > coalesce($1, '00000000-0000-0000-0000-000000000000'::uuid) order by uid limit $2",
            after.map(Uid::get),
            limit
        );
        rows.fetch_all(&mut *self.tx).await?.into_iter().map(crate::object::Row::object).collect()
    }

    /// All tags, in the order of names.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn tags(&mut self) -> Result<Vec<Object>, StoreError> {
        let rows = select_objects!("where kind = 'Tag' order by name");
        rows.fetch_all(&mut *self.tx).await?.into_iter().map(crate::object::Row::object).collect()
    }

    /// Replaces the stored results for these machines and these tags by `held`. Wakes the machines whose results changed; returns
    /// their number.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn keep(
        mut self,
        machines: &[Uid],
        tags: &[Uid],
        held: &[Tagged],
    ) -> Result<usize, StoreError> {
        let raw = |uids: &[Uid]| uids.iter().map(|uid| uid.get()).collect::<Vec<_>>();
        let of: Vec<_> = held.iter().map(|it| it.machine.get()).collect();
        let with: Vec<_> = held.iter().map(|it| it.tag.get()).collect();
        let names: Vec<_> = held.iter().map(|it| it.name.clone()).collect();
        let errors: Vec<_> = held.iter().map(|it| it.error.clone().unwrap_or_default()).collect();
        let changed = sqlx::query_scalar!(
            r#"with held as (
                 select h.machine, h.tag, h.name, nullif(h.error, '') as error
                 from unnest($3::uuid[], $4::uuid[], $5::text[], $6::text[]) h(machine, tag, name, error)
                   join object m on m.uid = h.machine join object t on t.uid = h.tag),
               gone as (
                 delete from machine_tag k where k.machine = any($1) and k.tag = any($2)
                   and not exists (select from held h where h.machine = k.machine and h.tag = k.tag)
                 returning k.machine),
               put as (
                 insert into machine_tag as k (machine, tag, name, error) select machine, tag, name, error from held
                 on conflict (machine, tag) do update set name = excluded.name, error = excluded.error
                 where k.name <> excluded.name or k.error is distinct from excluded.error
                 returning k.machine)
               select machine as "machine!" from gone union select machine from put"#,
            &raw(machines),
            &raw(tags),
            &of,
            &with,
            &names,
            &errors
        );
        let changed = changed.fetch_all(&mut *self.tx).await?;
        if !changed.is_empty() {
            self.store.wake_around_all(&mut self.tx, &changed).await?;
        }
        self.store.commit(self.tx).await?;
        Ok(changed.len())
    }
}

impl Store {
    /// Waits for the right to decide about tags.
    ///
    /// # Errors
    /// Fails if the database does not answer, or if another process holds the right for over 5 seconds.
    pub async fn tagging(&self) -> Result<Tagging, StoreError> {
        let mut tx = self.begin().await?;
        sqlx::query!("select set_config('lock_timeout', '5s', true)").fetch_one(&mut *tx).await?;
        sqlx::query!("select pg_advisory_xact_lock(5240, 9)").fetch_one(&mut *tx).await?;
        Ok(Tagging { store: self.clone(), tx })
    }

    /// The stored results of one machine, in the order of tags' names.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn tagged(&self, machine: MachineId) -> Result<Vec<Tagged>, StoreError> {
        let rows = sqlx::query!(
            "select tag, name, error from machine_tag where machine = $1 order by name, tag",
            machine.get()
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let tagged = |(tag, name, error)| Tagged { machine, tag: Uid::from(tag), name, error };
        Ok(rows.into_iter().map(|r| tagged((r.tag, r.name, r.error))).collect())
    }

    /// The next machines after `after`, in the order of uids, with what decides whether they have these tags. With `pools`, only
    /// machines in these pools are shown.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn taggable(
        &self,
        tags: &[Uid],
        pools: Option<&[String]>,
        after: Option<Uid>,
        limit: i64,
    ) -> Result<Vec<Taggable>, StoreError> {
        let tags: Vec<_> = tags.iter().map(|uid| uid.get()).collect();
        let rows = sqlx::query!(
            r#"select m.uid, m.name, m.spec::text as "spec!", (m.status->'inventory')::text as inventory,
                 ($2::text[] is null or coalesce(object_pool(m.kind, m.uid, m.spec) = any($2), false)) as "shown!",
                 array(select k.tag from machine_tag k where k.machine = m.uid and k.tag = any($1) and k.error is null)
                   as "automatic!",
                 array(select l.tag from tag_layer l where l.object = m.uid) as "layered!"
               from object m
               where m.kind = 'Machine' and m.uid > coalesce($3, '00000000-0000-0000-0000-000000000000'::uuid)
               order by m.uid limit $4"#,
            &tags,
            pools as Option<&[String]>,
            after.map(Uid::get),
            limit
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let machine = rows.into_iter().map(|row| Taggable {
            uid: Uid::from(row.uid),
            name: row.name,
            shown: row.shown,
            spec: row.spec,
            inventory: row.inventory,
            automatic: row.automatic.into_iter().map(Uid::from).collect(),
            layered: row.layered.into_iter().collect(),
        });
        Ok(machine.collect())
    }

    /// The number of machines after `after`, in the order of uids.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn machines_after(&self, after: Option<Uid>) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            "select count(*) from object
             where kind = 'Machine' and uid > coalesce($1, '00000000-0000-0000-0000-000000000000'::uuid)",
            after.map(Uid::get)
        );
        Ok(count(query.fetch_one(self.pool()).await?))
    }

    /// True if results are stored under another name of the tag: the tag was renamed.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn is_kept_otherwise(&self, tag: Uid, name: &str) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select exists (select from machine_tag where tag = $1 and name <> $2) as "otherwise!""#,
            tag.get(),
            name
        );
        Ok(query.fetch_one(self.pool()).await?)
    }

    /// The tags that machines have beside those of their specs, by machine: tags from managers, and automatic ones.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn tags_beside_specs(&self) -> Result<BTreeMap<Uid, BTreeSet<String>>, StoreError> {
        let rows = sqlx::query!(
            r#"select machine as "machine!", name as "name!" from (
                 select machine, name from machine_tag where error is null
                 union select object, tag from tag_layer) t"#
        );
        let mut tags: BTreeMap<Uid, BTreeSet<String>> = BTreeMap::new();
        for row in rows.fetch_all(self.pool()).await? {
            tags.entry(Uid::from(row.machine)).or_default().insert(row.name);
        }
        Ok(tags)
    }

    /// The tags that managers gave one machine.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn layered_tags_of(&self, machine: MachineId) -> Result<BTreeSet<String>, StoreError> {
        let rows = sqlx::query_scalar!("select distinct tag from tag_layer where object = $1", machine.get());
        Ok(rows.fetch_all(self.pool()).await?.into_iter().collect())
    }

    /// The number of machines that have the tags of these names. With `pools`, only errors of machines in these pools are returned.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn tag_use(
        &self,
        names: &[String],
        pools: Option<&[String]>,
    ) -> Result<BTreeMap<String, TagUse>, StoreError> {
        let rows = sqlx::query!(
            r#"select n.name as "name!", h.machines, k.automatic, k.errors, k.error
               from unnest($1::text[]) n(name)
               left join (
                 select name, count(*) as machines from (
                   select name, machine from machine_tag where error is null and name = any($1)
                   union select tag, object from tag_layer where tag = any($1)
                   union select t.name, m.uid from object m, json_array_elements_text(
                     case json_typeof(m.spec->'tags') when 'array' then m.spec->'tags' else '[]' end) t(name)
                     where m.kind = 'Machine' and t.name = any($1)) every group by name) h on h.name = n.name
               left join (
                 select k.name, count(*) filter (where k.error is null) as automatic,
                   count(*) filter (where k.error is not null and seen.shown) as errors,
                   min(o.name || ': ' || k.error) filter (where seen.shown) as error
                 from machine_tag k join object o on o.uid = k.machine
                 cross join lateral (
                   select $2::text[] is null or coalesce(object_pool(o.kind, o.uid, o.spec) = any($2), false)) seen(shown)
                 where k.name = any($1) group by k.name) k on k.name = n.name"#,
            names,
            pools as Option<&[String]>
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let mut uses = BTreeMap::new();
        for row in rows {
            let (automatic, errors) = (count(row.automatic), count(row.errors));
            uses.insert(
                row.name,
                TagUse { machines: count(row.machines), automatic, errors, error: row.error },
            );
        }
        Ok(uses)
    }

    /// How many VLANs each of these spaces has. A space without VLANs is missing.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn space_use(&self, spaces: &[Uid]) -> Result<BTreeMap<Uid, u64>, StoreError> {
        let spaces: Vec<_> = spaces.iter().map(|uid| uid.get()).collect();
        let rows = sqlx::query!(
            "select r.to_uid, count(distinct r.from_uid) as vlans
             from object_ref r join object o on o.uid = r.from_uid
             where r.to_uid = any($1) and o.kind = 'Vlan' group by r.to_uid",
            &spaces
        );
        let rows = rows.fetch_all(self.pool()).await?;
        Ok(rows.into_iter().map(|row| (row.to_uid.into(), count(row.vlans))).collect())
    }

    /// The number of machines in each zone, or in each pool. A machine that names none is in `default`.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn place_use(&self, pools: bool) -> Result<BTreeMap<String, PlaceUse>, StoreError> {
        let rows = sqlx::query!(
            r#"select coalesce(m.spec->>(case when $1 then 'pool' else 'zone' end), 'default') as "name!",
                 count(*) as machines,
                 count(*) filter (where m.status->'axes'->>'lifecycle' = 'ready' and m.deletion_requested_at is null
                   and c.machine is null) as ready
               from object m left join machine_claim c on c.machine = m.uid
               where m.kind = 'Machine' group by 1"#,
            pools
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let place = |machines, ready| PlaceUse { machines: count(machines), ready: count(ready) };
        Ok(rows.into_iter().map(|r| (r.name, place(r.machines, r.ready))).collect())
    }
}
