//! The log of `known` entries, from which a region keeps them in memory.
//!
//! A position is a number that triggers give to each change (`migrations/0061_common_concerns.sql`). Positions commit in their order, so a
//! snapshot that shows one contains every change up to it.

use crate::entry::Entry;
use crate::{Store, StoreError};
use basalt_api::values::Uid;

/// The concern of these entries.
pub(crate) const KNOWN: &str = "known";
/// The number of positions for which deletions are kept. `move_known` has the same number.
const KEPT: i64 = 10_000;

/// The changes of `known` entries since a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNews {
    /// The position of this reading.
    pub position: i64,
    /// True if `entries` are all entries: the reader drops those of earlier readings.
    pub is_whole: bool,
    /// The entries that changed, in their present version.
    pub entries: Vec<Entry>,
    /// The machines whose entries were deleted.
    pub gone: Vec<Uid>,
}

impl Store {
    /// The changes of `known` entries since a position; `None` if there is none. Without a position, or if it is too old, the result has all
    /// entries.
    ///
    /// # Errors
    /// Fails if the seal key does not open an entry, or if the database cannot be read.
    pub async fn known_since(&self, since: Option<i64>) -> Result<Option<KnownNews>, StoreError> {
        let at = sqlx::query_scalar!("select position from known_log").fetch_one(self.pool()).await?;
        if since == Some(at) {
            return Ok(None);
        }
        let mut tx = self.begin_snapshot().await?;
        let position = sqlx::query_scalar!("select position from known_log").fetch_one(&mut *tx).await?;
        // A database that went back in time has an older position.
        let after = since.filter(|since| (0..KEPT).contains(&position.saturating_sub(*since)));
        let changed = sqlx::query!(
            r#"select object, version, body as "body!" from entry
               where concern = 'known' and body is not null and position > $1 order by position"#,
            after.unwrap_or(-1)
        );
        let changed = changed.fetch_all(&mut *tx).await?;
        let gone = sqlx::query_scalar!(
            "select object from known_gone where position > $1",
            after.unwrap_or(position)
        );
        let gone = gone.fetch_all(&mut *tx).await?.into_iter().map(Uid::from).collect();
        tx.rollback().await?;
        let entries = changed.into_iter().map(|row| self.entry(KNOWN, row.object, row.version, &row.body));
        Ok(Some(KnownNews {
            position,
            is_whole: after.is_none(),
            entries: entries.collect::<Result<_, _>>()?,
            gone,
        }))
    }
}
