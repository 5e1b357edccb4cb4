//! Which blobs the region holds. Their bytes are elsewhere.

use crate::object::{signed, unsigned};
use crate::{Store, StoreError, audit};
use std::time::Duration;

/// A blob that is complete and was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Of its bytes.
    pub sha256: [u8; 32],
    /// In bytes.
    pub size: u64,
    /// Where its bytes are, in the words of who stored them.
    pub location: String,
}

pub(crate) fn digest(bytes: &[u8]) -> Result<[u8; 32], StoreError> {
    bytes.try_into().map_err(|_| StoreError::Corrupt(format!("a SHA-256 of {} bytes", bytes.len())))
}

impl Store {
    /// Notes a verified blob; again is the same.
    ///
    /// # Errors
    /// The database.
    pub async fn put_blob(&self, blob: &Blob) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let upsert = sqlx::query!(
            "insert into blob (sha256, size, location) values ($1, $2, $3)
             on conflict (sha256) do update set size = excluded.size, location = excluded.location",
            blob.sha256.as_slice(),
            signed(blob.size),
            blob.location
        );
        upsert.execute(&mut *tx).await?;
        let size = serde_json::json!({ "size": blob.size });
        self.audit(&mut tx, &[audit::Written::thing("Blob", &hex::encode(blob.sha256), &size)]).await?;
        self.commit(tx).await?;
        // Racks are told what there is, and whoever waits for this one goes on.
        self.enqueue_kind("Image").await?;
        self.enqueue_kind("Rack").await?;
        self.enqueue_kind("Machine").await
    }

    /// A blob, where it is held.
    ///
    /// # Errors
    /// The database.
    pub async fn blob(&self, sha256: &[u8; 32]) -> Result<Option<Blob>, StoreError> {
        let row = sqlx::query!("select size, location from blob where sha256 = $1", sha256.as_slice());
        let row = row.fetch_optional(self.pool()).await?;
        Ok(row.map(|r| Blob { sha256: *sha256, size: unsigned(r.size), location: r.location }))
    }

    /// Begins the time of an unused blob anew: a client asked for it, and an Image that names it may follow.
    ///
    /// # Errors
    /// The database's.
    pub async fn use_blob(&self, sha256: &[u8; 32]) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update blob set unused_since = now() where sha256 = $1 and unused_since < now()",
            sha256.as_slice()
        );
        update.execute(self.pool()).await?;
        Ok(())
    }

    /// Forgets the blobs that no Image has named for `keep`, and answers them. The caller removes their bytes.
    ///
    /// # Errors
    /// The database's.
    pub async fn collect_blobs(&self, keep: Duration) -> Result<Vec<Blob>, StoreError> {
        let mut tx = self.begin().await?;
        let mark = sqlx::query!(
            "with named as (
               select distinct lower(file #>> '{}') as sha256
               from object, jsonb_path_query(spec::jsonb, '$.files.*.sha256') file where kind = 'Image')
             update blob b
             set unused_since = case when n.sha256 is null then coalesce(b.unused_since, now()) end
             from blob a left join named n on n.sha256 = encode(a.sha256, 'hex')
             where a.sha256 = b.sha256 and (n.sha256 is null) <> (b.unused_since is not null)"
        );
        mark.execute(&mut *tx).await?;
        let delete = sqlx::query!(
            "delete from blob b where b.unused_since <= now() - make_interval(secs => $1)
               and not exists (
                 select from object, jsonb_path_query(spec::jsonb, '$.files.*.sha256') file
                 where kind = 'Image' and lower(file #>> '{}') = encode(b.sha256, 'hex'))
             returning sha256, size, location",
            keep.as_secs_f64()
        );
        let gone = delete.fetch_all(&mut *tx).await?;
        self.commit(tx).await?;
        gone.into_iter()
            .map(|r| Ok(Blob { sha256: digest(&r.sha256)?, size: unsigned(r.size), location: r.location }))
            .collect()
    }

    /// Every blob.
    ///
    /// # Errors
    /// The database.
    pub async fn blobs(&self) -> Result<Vec<Blob>, StoreError> {
        let rows = sqlx::query!("select sha256, size, location from blob order by sha256");
        let rows = rows.fetch_all(self.pool()).await?;
        rows.into_iter()
            .map(|r| Ok(Blob { sha256: digest(&r.sha256)?, size: unsigned(r.size), location: r.location }))
            .collect()
    }
}
