//! Concerns that every rack receives with the same bytes. Each is stored once, whatever the number of racks.

use crate::concern::{ConcernHead, ConcernWrite};
use crate::object::{signed, unsigned};
use crate::seal::Place;
use crate::{Store, StoreError};
use basalt_api::values::{Generation, Uid};
use uuid::Uuid;

/// The place of their seals: no object.
const NOBODY: Uuid = Uuid::nil();

fn pointer(concern: &str) -> String {
    format!("common/{concern}")
}

/// Calls a function with the place of the seal of a common concern.
pub(crate) fn with_place<T>(concern: &str, then: impl FnOnce(&Place<'_>) -> T) -> T {
    then(&Place { object: Uid::from(NOBODY), pointer: &pointer(concern) })
}

impl Store {
    /// The versions of the common concerns. Read them *before* the data from which the concerns are rendered.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn common_heads(&self) -> Result<Vec<ConcernHead>, StoreError> {
        let rows = sqlx::query!("select concern, generation, sha256 from common_concern order by concern");
        let rows = rows.fetch_all(self.pool()).await?;
        let heads = rows.into_iter().map(|row| {
            let generation = Generation::new(unsigned(row.generation));
            Ok(ConcernHead { name: row.concern, generation, sha256: crate::blob::digest(&row.sha256)? })
        });
        heads.collect()
    }

    /// Writes a common concern that was rendered after generation `base` was read. The same bytes get no new generation. The first
    /// generation is above each one that a rack was told or has answered.
    ///
    /// # Errors
    /// `SealReplaced`: the seal key is another one now. Fails too if the database cannot be written.
    pub async fn put_common(
        &self,
        concern: &str,
        base: Generation,
        body: &[u8],
    ) -> Result<ConcernWrite, StoreError> {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body);
        let mut tx = self.begin().await?;
        self.hold_seal(&mut tx).await?;
        let current = sqlx::query!(
            "select generation, sha256 from common_concern where concern = $1 for update",
            concern
        );
        let current = current.fetch_optional(&mut *tx).await?;
        let at = Generation::new(current.as_ref().map_or(0, |row| unsigned(row.generation)));
        if current.is_some_and(|row| row.sha256 == digest.as_ref()) {
            return Ok(ConcernWrite::Unchanged(at));
        }
        if at != base {
            return Ok(ConcernWrite::Stale(at));
        }
        let sealed = with_place(concern, |place| self.seal().seal(place, body))?;
        let write = sqlx::query_scalar!(
            "insert into common_concern as c (concern, generation, sha256, body)
             select $1, coalesce(max(told.generation), 0) + 1, $2, $3 from (
               select generation from rack_concern where concern = $1 and $4::bigint = 0
               union all select generation from rack_concern_ack where concern = $1 and $4 = 0) told
             on conflict (concern) do update
             set generation = c.generation + 1, sha256 = excluded.sha256, body = excluded.body, updated_at = now(),
               trace = excluded.trace
             where c.generation = $4 returning generation",
            concern,
            digest.as_ref(),
            sealed,
            signed(base.get())
        );
        let Some(written) = write.fetch_optional(&mut *tx).await? else {
            return Ok(ConcernWrite::Stale(at.next()));
        };
        self.commit(tx).await?;
        Ok(ConcernWrite::Written(Generation::new(unsigned(written))))
    }
}
