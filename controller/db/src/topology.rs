//! The topology: the small part of the database that most reconciliations read, with its position.
//!
//! A position is a number that triggers raise in the transaction of each change of the topology (`migrations/0036_topology.sql`). A reader
//! keeps what it has read for as long as the position stays. Positions commit in their order, so a snapshot that shows one
//! contains every change up to it.

use crate::fact::{Fact, ObjectFactRow, by_object};
use crate::object::{Object, Row, select_objects, timestamp, unsigned};
use crate::{Store, StoreError, blob};
use basalt_api::values::{Timestamp, Uid};
use std::collections::{BTreeMap, HashMap};

/// The kinds of the topology's objects. `is_topology_kind` of the migration names the same ones.
pub const TOPOLOGY_KINDS: [&str; 9] =
    ["Domain", "Fabric", "Image", "Rack", "Settings", "StaticRoute", "Subnet", "Tag", "Vlan"];

/// The stored topology, read in one snapshot.
#[derive(Debug)]
pub struct TopologyRows {
    /// The position of the snapshot.
    pub position: i64,
    /// Sizes of the stored blobs, by SHA-256.
    pub blobs: BTreeMap<[u8; 32], u64>,
    objects: HashMap<String, Vec<Object>>,
    facts: HashMap<Uid, Vec<Fact>>,
}

impl TopologyRows {
    /// Takes the objects of a kind, in order of name.
    pub fn take(&mut self, kind: &str) -> Vec<Object> {
        self.objects.remove(kind).unwrap_or_default()
    }

    /// The latest facts about a rack, oldest first: its Hello, reports of short addresses, its start and its links.
    #[must_use]
    pub fn facts(&self, rack: Uid) -> &[Fact] {
        self.facts.get(&rack).map_or(&[], Vec::as_slice)
    }
}

impl Store {
    /// The position of the topology.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn topology_position(&self) -> Result<i64, StoreError> {
        Ok(sqlx::query_scalar!("select position from topology").fetch_one(self.pool()).await?)
    }

    /// True if this store supposes an object of the topology. Its topology must not be shared with other readers.
    #[must_use]
    pub fn supposes_topology(&self) -> bool {
        self.overlay
            .as_ref()
            .is_some_and(|overlay| overlay.kinds().any(|kind| TOPOLOGY_KINDS.contains(&kind)))
    }

    /// The topology and its position. Objects with supposed states are returned in these.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn topology(&self) -> Result<TopologyRows, StoreError> {
        let mut tx = self.begin_snapshot().await?;
        let position = sqlx::query_scalar!("select position from topology").fetch_one(&mut *tx).await?;
        let kinds = TOPOLOGY_KINDS.map(str::to_owned);
        let rows = select_objects!("where kind = any($1) order by kind, name", &kinds[..]);
        let rows = rows.fetch_all(&mut *tx).await?;
        let sizes = sqlx::query!("select sha256, size from blob").fetch_all(&mut *tx).await?;
        let racks: Vec<_> = rows.iter().filter(|row| row.kind == "Rack").map(|row| row.uid).collect();
        let said = sqlx::query_as!(
            ObjectFactRow,
            r#"select object, id, kind, source, step_key, attempt, body,
                 (extract(epoch from observed_at) * 1000000)::bigint as "observed_us!",
                 (extract(epoch from stored_at) * 1000000)::bigint as "stored_us!"
               from fact_latest where object = any($1) and is_topology_fact(kind) order by id"#,
            &racks
        );
        let said = said.fetch_all(&mut *tx).await?;
        tx.rollback().await?;
        let mut objects: HashMap<String, Vec<Object>> =
            TOPOLOGY_KINDS.map(|kind| (kind.to_owned(), Vec::new())).into();
        for object in rows.into_iter().map(Row::object) {
            let object = object?;
            objects.entry(object.kind.clone()).or_default().push(object);
        }
        for (kind, objects) in &mut objects {
            self.suppose(kind, objects);
        }
        let blobs = sizes.into_iter().map(|row| Ok((blob::digest(&row.sha256)?, unsigned(row.size))));
        Ok(TopologyRows {
            position,
            blobs: blobs.collect::<Result<_, StoreError>>()?,
            objects,
            facts: by_object(said)?,
        })
    }

    /// The time at which the latest fact about each of these objects was stored. Objects without facts are left out.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn last_heard(&self, objects: &[Uid]) -> Result<BTreeMap<Uid, Timestamp>, StoreError> {
        let objects: Vec<_> = objects.iter().map(|uid| uid.get()).collect();
        let rows = sqlx::query!(
            r#"select object, (extract(epoch from max(stored_at)) * 1000000)::bigint as "stored_us!"
               from fact_latest where object = any($1) group by object"#,
            &objects
        );
        let rows = rows.fetch_all(self.pool()).await?;
        rows.into_iter().map(|row| Ok((Uid::from(row.object), timestamp(row.stored_us)?))).collect()
    }
}
