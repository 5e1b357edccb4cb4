//! Concerns: the configuration that racks receive, as bytes with a generation, written by compare-and-swap. The stored bytes are
//! sealed, because they include BMC passwords, attempt keys and user data. Some are stored for one rack, others for all racks
//! (`common_concern`).

use crate::common_concern::with_place;
use crate::entry::EntriesRead;
use crate::object::{signed, unsigned};
use crate::seal::Place;
use crate::{Store, StoreError};
use basalt_api::values::{Generation, RackId};

pub(crate) fn pointer(concern: &str) -> String {
    format!("concern/{concern}")
}

/// A concern as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concern {
    /// Its name, `boot` for example.
    pub name: String,
    /// The generation; it rises with each change.
    pub generation: Generation,
    /// The SHA-256 of `body`.
    pub sha256: [u8; 32],
    /// The exact bytes that a rack gets.
    pub body: Vec<u8>,
    /// The trace that it was written for.
    pub trace: Option<String>,
}

/// The version of a concern, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConcernHead {
    /// The concern's name, `boot` for example.
    pub name: String,
    /// The generation; it rises with each change.
    pub generation: Generation,
    /// The SHA-256 of the bytes.
    pub sha256: [u8; 32],
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcernWrite {
    /// The concern had the same bytes already.
    Unchanged(Generation),
    /// The bytes were written with this new generation.
    Written(Generation),
    /// The concern was written after `base` was read: render it again from the present data.
    Stale(Generation),
}

/// A rack's last answer for a concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConcernAck {
    /// The name of the concern.
    pub concern: String,
    /// The generation that was answered.
    pub generation: Generation,
    /// `applied`, `already_there`, `refused_older`, `refused_conflict`, `failed`.
    pub outcome: String,
    /// The rack's message. For an applied concern, it lists the parts that the rack left out.
    pub message: String,
}

impl ConcernAck {
    /// True if the rack has applied the concern.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        is_applied(&self.outcome)
    }
}

pub(crate) fn is_applied(outcome: &str) -> bool {
    matches!(outcome, "applied" | "already_there")
}

impl Store {
    /// The present generation of a concern; 0 when it was never written. Read it *before* the data from which the concern is rendered.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn concern_generation(&self, rack: RackId, concern: &str) -> Result<Generation, StoreError> {
        let query = sqlx::query_scalar!(
            "select generation from rack_concern where rack = $1 and concern = $2",
            rack.get(),
            concern
        );
        Ok(Generation::new(query.fetch_optional(self.pool()).await?.map_or(0, unsigned)))
    }

    /// True if a rack's concern has exactly these bytes.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn is_told(&self, rack: RackId, concern: &str, body: &[u8]) -> Result<bool, StoreError> {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body);
        let query = sqlx::query_scalar!(
            r#"select exists(select from rack_concern where rack = $1 and concern = $2 and sha256 = $3) as "is_told!""#,
            rack.get(),
            concern,
            digest.as_ref()
        );
        Ok(query.fetch_one(self.pool()).await?)
    }

    /// Writes a concern that was rendered after generation `base` was read. The same bytes get no new generation. `entries`: the
    /// entries of the rack's scope from which the body is composed.
    ///
    /// # Errors
    /// `SealReplaced`: the seal key is another one now. Fails too if the rack does not exist or the database cannot be written.
    pub async fn put_concern(
        &self,
        rack: RackId,
        concern: &str,
        base: Generation,
        body: &[u8],
        entries: Option<&EntriesRead>,
    ) -> Result<ConcernWrite, StoreError> {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body);
        let mut tx = self.begin().await?;
        self.hold_seal(&mut tx).await?;
        let current = sqlx::query!(
            "select generation, sha256 from rack_concern where rack = $1 and concern = $2 for update",
            rack.get(),
            concern
        );
        let current = current.fetch_optional(&mut *tx).await?;
        let at = Generation::new(current.as_ref().map_or(0, |c| unsigned(c.generation)));
        if current.is_some_and(|c| c.sha256 == digest.as_ref()) {
            if let Some(entries) = entries {
                // The rack may have answered this document already, and answers once.
                let noted = self.note_told(&mut tx, rack, concern, at, entries).await?;
                self.remove_given_up(&mut tx, rack, concern).await?;
                self.wake_with(&mut tx, &[], &noted).await?;
                self.commit(tx).await?;
            }
            return Ok(ConcernWrite::Unchanged(at));
        }
        if at != base {
            return Ok(ConcernWrite::Stale(at));
        }
        let next = at.next();
        let sealed = self.seal().seal(&Place { object: rack.into(), pointer: &pointer(concern) }, body)?;
        let write = sqlx::query!(
            "insert into rack_concern (rack, concern, generation, sha256, body) values ($1, $2, $3, $4, $5)
             on conflict (rack, concern) do update
             set generation = excluded.generation, sha256 = excluded.sha256, body = excluded.body, updated_at = now(),
               trace = excluded.trace
             where rack_concern.generation = $6",
            rack.get(),
            concern,
            signed(next.get()),
            digest.as_ref(),
            sealed,
            signed(base.get())
        );
        if write.execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(ConcernWrite::Stale(next));
        }
        if let Some(entries) = entries {
            self.note_told(&mut tx, rack, concern, next, entries).await?;
        }
        self.commit(tx).await?;
        Ok(ConcernWrite::Written(next))
    }

    /// The versions of all concerns of a rack, common ones included. A deleted rack has none.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn concern_heads(&self, rack: RackId) -> Result<Vec<ConcernHead>, StoreError> {
        let rows = sqlx::query!(
            r#"select concern as "concern!", generation as "generation!", sha256 as "sha256!" from rack_concern where rack = $1
                 and concern not in (select concern from common_concern)
               union all
               select concern, generation, sha256 from common_concern where exists (select from object where uid = $1)
               order by 1"#,
            rack.get()
        );
        let rows = rows.fetch_all(self.pool()).await?;
        rows.into_iter()
            .map(|r| {
                let generation = Generation::new(unsigned(r.generation));
                Ok(ConcernHead { name: r.concern, generation, sha256: crate::blob::digest(&r.sha256)? })
            })
            .collect()
    }

    /// A rack's concern, or a common one, with its bytes; `None` if it was never written.
    ///
    /// # Errors
    /// Fails if the seal key does not open it, or if the database cannot be read.
    pub async fn concern(&self, rack: RackId, name: &str) -> Result<Option<Concern>, StoreError> {
        let row = sqlx::query!(
            r#"select false as "is_common!", generation as "generation!", sha256 as "sha256!", body as "body!", trace
               from rack_concern where rack = $1 and concern = $2 and concern not in (select concern from common_concern)
               union all
               select true, generation, sha256, body, trace from common_concern
               where concern = $2 and exists (select from object where uid = $1)"#,
            rack.get(),
            name
        );
        let Some(row) = row.fetch_optional(self.pool()).await? else { return Ok(None) };
        let body = match row.is_common {
            true => with_place(name, |place| self.seal().open(place, &row.body)),
            false => self.seal().open(&Place { object: rack.into(), pointer: &pointer(name) }, &row.body),
        };
        Ok(Some(Concern {
            body: body?.to_vec(),
            name: name.to_owned(),
            trace: row.trace,
            generation: Generation::new(unsigned(row.generation)),
            sha256: crate::blob::digest(&row.sha256)?,
        }))
    }

    /// Stores a rack's answer and wakes the machines whose entries it settles. An answer to an older generation than the stored one
    /// is ignored.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn put_concern_ack(&self, rack: RackId, ack: &ConcernAck) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let before = sqlx::query!(
            "select generation, outcome from rack_concern_ack where rack = $1 and concern = $2 for update",
            rack.get(),
            ack.concern
        );
        let before = before.fetch_optional(&mut *tx).await?.map(|r| ConcernAck {
            concern: ack.concern.clone(),
            generation: Generation::new(unsigned(r.generation)),
            outcome: r.outcome,
            message: String::new(),
        });
        let upsert = sqlx::query!(
            "insert into rack_concern_ack as a (rack, concern, generation, outcome, message) values ($1, $2, $3, $4, $5)
             on conflict (rack, concern) do update
             set generation = excluded.generation, outcome = excluded.outcome, message = excluded.message, at = now()
             where a.generation <= excluded.generation",
            rack.get(),
            ack.concern,
            signed(ack.generation.get()),
            ack.outcome,
            ack.message
        );
        if upsert.execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(());
        }
        // An answer before this one may have settled entries already. A refusal settles nothing.
        let after = before.filter(|before| before.is_applied() && ack.is_applied());
        let after = after.map_or(Generation::new(0), |before| before.generation);
        let settled = self.settled(&mut tx, rack, &ack.concern, after, ack.generation).await?;
        self.remove_given_up(&mut tx, rack, &ack.concern).await?;
        self.wake_with(&mut tx, &[rack.get()], &settled).await?;
        self.commit(tx).await
    }

    /// A rack's last answer to each concern.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn concern_acks(&self, rack: RackId) -> Result<Vec<ConcernAck>, StoreError> {
        let rows = sqlx::query!(
            "select concern, generation, outcome, message from rack_concern_ack where rack = $1 order by concern",
            rack.get()
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let ack = |concern, generation, outcome, message| ConcernAck {
            concern,
            generation: Generation::new(unsigned(generation)),
            outcome,
            message,
        };
        Ok(rows.into_iter().map(|r| ack(r.concern, r.generation, r.outcome, r.message)).collect())
    }
}
