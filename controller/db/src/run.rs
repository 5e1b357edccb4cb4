//! Runs of clients, and creations that no client has confirmed yet.
//!
//! A client may die after a creation and before it records the new object. Then it does not know of the object. So a creation is
//! *unconfirmed* until a client reports that it keeps the object. Another run adopts an unconfirmed creation as its own if all of
//! these conditions hold:
//!
//! | condition | why |
//! | --- | --- |
//! | the creating run ended, was not renewed for [`LEASE`], or is the same run | another live run may still record the object |
//! | the run acts for the same account | an object belongs to the user who made it |
//! | manager and spec equal those of the creation, secrets aside | it is the same declaration, and nobody has changed the object since |

use crate::object::Row;
use crate::store::Tx;
use crate::write::{Precondition, Put};
use crate::{Store, StoreError};
use basalt_api::values::{RunId, Uid};
use std::collections::HashMap;
use std::time::Duration;
use uuid::Uuid;

/// A run that was not renewed for this long has been cut off.
const LEASE: Duration = Duration::from_secs(30);

/// A run, and the account that it acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The run's id, which the client chose.
    pub id: RunId,
    /// The user or token for which the run acts.
    pub account: String,
}

/// An unconfirmed creation, from the view of the run that wants to adopt it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unconfirmed {
    /// Seconds until the run may adopt it, unless its own run is renewed.
    pub(crate) free_in: u32,
}

impl Store {
    /// Renews the run or ends it, and confirms creations of any run. A run that has created nothing is not stored, and nothing is done
    /// for it.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn report_run(&self, run: &Run, confirms: &[Uid], ends: bool) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        sqlx::query!(
            "update run set renewed_at = case when $3 then '-infinity' else now() end where id = $1 and account = $2",
            run.id.get(),
            run.account,
            ends
        )
        .execute(&mut *tx)
        .await?;
        if !confirms.is_empty() {
            let uids: Vec<Uuid> = confirms.iter().map(|uid| uid.get()).collect();
            sqlx::query!("delete from unconfirmed where object = any($1)", &uids).execute(&mut *tx).await?;
        }
        if ends || !confirms.is_empty() {
            sqlx::query!(
                "delete from run r where r.renewed_at < now() - make_interval(secs => $1)
                   and not exists (select from unconfirmed u where u.run = r.id)",
                LEASE.as_secs_f64()
            )
            .execute(&mut *tx)
            .await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// The objects whose creation this store's run may adopt, by uid. `puts` and `olds` have the same order.
    pub(crate) async fn unconfirmed(
        &self,
        tx: &mut Tx,
        puts: &[Put<'_>],
        olds: &[Option<Row>],
    ) -> Result<HashMap<Uuid, Unconfirmed>, StoreError> {
        let Some(run) = self.run() else { return Ok(HashMap::new()) };
        let there = puts.iter().zip(olds).filter(|(put, _)| put.precondition == Precondition::Absent);
        let uids: Vec<Uuid> = there.filter_map(|(_, old)| Some(old.as_ref()?.uid)).collect();
        if uids.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = sqlx::query!(
            r#"select u.object,
                 case when r.id = $2 or r.renewed_at < now() - make_interval(secs => $4) then 0
                   else ceil(extract(epoch from r.renewed_at - now()) + $4)::int end as "free_in!"
               from unconfirmed u join run r on r.id = u.run where u.object = any($1) and r.account = $3"#,
            &uids,
            run.id.get(),
            run.account,
            LEASE.as_secs_f64()
        );
        let rows = rows.fetch_all(&mut **tx).await?;
        let seen = |free_in: i32| Unconfirmed { free_in: free_in.max(0).unsigned_abs() };
        Ok(rows.into_iter().map(|row| (row.object, seen(row.free_in))).collect())
    }

    /// Notes that this store's run has created or adopted these objects. Does nothing for a store without a run.
    pub(crate) async fn created_in_run(&self, tx: &mut Tx, uids: &[Uuid]) -> Result<(), StoreError> {
        let Some(run) = self.run().filter(|_| !uids.is_empty()) else { return Ok(()) };
        // An existing row of the run is not written, so creations of one run do not wait for each other.
        sqlx::query!(
            "with known as (insert into run (id, account) values ($1, $2) on conflict do nothing)
             insert into unconfirmed (object, run) select object, $1 from unnest($3::uuid[]) object
             on conflict (object) do update set run = excluded.run",
            run.id.get(),
            run.account,
            uids
        )
        .execute(&mut **tx)
        .await?;
        Ok(())
    }
}
