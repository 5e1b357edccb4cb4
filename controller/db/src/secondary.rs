//! Reports of racks about secondaries, which copy the zones of Domains.

use std::collections::HashMap;

use basalt_api::values::{RackId, Uid};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::fact::{Fact, ObjectFactRow, by_object};
use crate::{NewFact, Store, StoreError};

/// The kind of a report begins with this. The Domain and the name of the secondary follow.
const KIND: &str = "health:secondary ";

/// The Domains that these facts are about, in the order of their uids. A secondary of the Settings belongs to no Domain.
pub(crate) async fn domains(tx: &mut PgConnection, facts: &[NewFact]) -> Result<Vec<Uuid>, StoreError> {
    let name = |fact: &NewFact| Some(fact.kind.strip_prefix(KIND)?.split_once(' ')?.0.to_owned());
    let names: Vec<String> = facts.iter().filter_map(name).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let query = sqlx::query_scalar!(
        "select uid from object where kind = 'Domain' and name = any($1) order by uid",
        &names
    );
    Ok(query.fetch_all(tx).await?)
}

impl Store {
    /// The latest facts of these kinds about racks, oldest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn facts_of_racks(
        &self,
        racks: &[RackId],
        kinds: &[String],
    ) -> Result<HashMap<Uid, Vec<Fact>>, StoreError> {
        let racks: Vec<Uuid> = racks.iter().map(|rack| rack.get()).collect();
        let rows = sqlx::query_as!(
            ObjectFactRow,
            r#"select object, id, kind, source, step_key, attempt, body,
                 (extract(epoch from observed_at) * 1000000)::bigint as "observed_us!",
                 (extract(epoch from stored_at) * 1000000)::bigint as "stored_us!"
               from fact_latest where object = any($1) and kind = any($2) order by id"#,
            &racks,
            kinds
        );
        by_object(rows.fetch_all(self.pool()).await?)
    }
}
