//! Reports of racks about secondaries, which copy the zones of Domains.

use std::collections::BTreeMap;

use basalt_api::values::{RackId, Uid};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::fact::{Fact, FactRow};
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
    ) -> Result<BTreeMap<RackId, Vec<Fact>>, StoreError> {
        let racks: Vec<Uuid> = racks.iter().map(|rack| rack.get()).collect();
        let rows = sqlx::query!(
            r#"select object, id, kind, source, step_key, attempt, body,
                 (extract(epoch from observed_at) * 1000000)::bigint as "observed_us!",
                 (extract(epoch from stored_at) * 1000000)::bigint as "stored_us!"
               from fact_latest where object = any($1) and kind = any($2) order by id"#,
            &racks,
            kinds
        );
        let mut facts: BTreeMap<RackId, Vec<Fact>> = BTreeMap::new();
        for row in rows.fetch_all(self.pool()).await? {
            let fact = FactRow {
                id: row.id,
                kind: row.kind,
                source: row.source,
                step_key: row.step_key,
                attempt: row.attempt,
                body: row.body,
                observed_us: row.observed_us,
                stored_us: row.stored_us,
            };
            facts.entry(RackId::from(Uid::from(row.object))).or_default().push(fact.fact()?);
        }
        Ok(facts)
    }
}
