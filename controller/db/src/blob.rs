//! The list of blobs that the region holds. Their bytes are elsewhere.

use crate::object::{signed, unsigned};
use crate::{Store, StoreError, audit};
use std::time::Duration;

/// A blob that is complete and was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// The size in bytes.
    pub size: u64,
    /// The place of the bytes; the meaning is up to the caller that stored them.
    pub location: String,
}

pub(crate) fn digest(bytes: &[u8]) -> Result<[u8; 32], StoreError> {
    bytes.try_into().map_err(|_| StoreError::Corrupt(format!("a SHA-256 of {} bytes", bytes.len())))
}

impl Store {
    /// Adds a verified blob. A repeated call changes nothing.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
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
        // Racks get the new list of images, and objects that wait for this blob can continue.
        self.enqueue_kind("Image").await?;
        self.enqueue_kind("Rack").await?;
        self.enqueue_kind("Machine").await
    }

    /// The blob with this digest, if the region holds it.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn blob(&self, sha256: &[u8; 32]) -> Result<Option<Blob>, StoreError> {
        let row = sqlx::query!("select size, location from blob where sha256 = $1", sha256.as_slice());
        let row = row.fetch_optional(self.pool()).await?;
        Ok(row.map(|r| Blob { sha256: *sha256, size: unsigned(r.size), location: r.location }))
    }

    /// Restarts the time of an unused blob: a client asked for it, and an Image that names it may follow.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn use_blob(&self, sha256: &[u8; 32]) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update blob set unused_since = now() where sha256 = $1 and unused_since < now()",
            sha256.as_slice()
        );
        update.execute(self.pool()).await?;
        Ok(())
    }

    /// Deletes the records of blobs that no Image has named for `keep`, and returns them. The caller deletes their bytes.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
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

    /// All blobs of the region.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn blobs(&self) -> Result<Vec<Blob>, StoreError> {
        let rows = sqlx::query!("select sha256, size, location from blob order by sha256");
        let rows = rows.fetch_all(self.pool()).await?;
        rows.into_iter()
            .map(|r| Ok(Blob { sha256: digest(&r.sha256)?, size: unsigned(r.size), location: r.location }))
            .collect()
    }
}
