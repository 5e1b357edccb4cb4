//! API tokens, join secrets, enrolled racks and living region processes.

use crate::object::timestamp;
use crate::{Store, StoreError, audit};
use basalt_api::values::{RackId, Timestamp, Uid};
use std::collections::BTreeSet;
use std::time::Duration;

/// An enrolled rack's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrolment {
    /// The enrolled rack.
    pub rack: RackId,
    /// The SHA-256 of the rack's public key (SubjectPublicKeyInfo).
    pub spki_sha256: [u8; 32],
    /// The certificate, as DER.
    pub certificate_der: Vec<u8>,
    /// When the certificate expires.
    pub not_after: Timestamp,
}

/// The result of the use of a join secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// The secret belongs to this key, from now on or already before.
    Yes,
    /// There is no such secret, or it has expired.
    Unknown,
    /// Another key has used the secret.
    Used,
    /// The secret is for a rack of another name.
    OtherName,
    /// The secret is for any name, and a rack with another key has this name.
    Taken,
}

/// How long a killed process stays in the table. Until then racks report that this region does not answer.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// A region process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionProcess {
    /// The id of the process.
    pub id: Uid,
    /// The address at which racks dial the process, `HOST:PORT`; `None` until the process knows.
    pub rpc_address: Option<String>,
    /// The address of its API.
    pub api_address: String,
    /// The version of the program.
    pub version: String,
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref());
    out
}

fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

impl Store {
    /// Makes a token valid that belongs to no ApiToken yet ([`Store::adopt_token`]). Only its hash is stored. The same token again
    /// updates the row.
    ///
    /// # Errors
    /// Fails if the database cannot be written or the role does not exist.
    pub async fn put_token(
        &self,
        name: &str,
        token: &str,
        role: &str,
        expires: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let hash = sha256(token.as_bytes());
        let upsert = sqlx::query!(
            "insert into api_token (name, sha256, role, expires_at)
             values ($1, $2, $3, to_timestamp($4::bigint / 1000000.0))
             on conflict (sha256) do update
             set name = excluded.name, role = excluded.role, expires_at = excluded.expires_at",
            name,
            hash.as_slice(),
            role,
            expires.map(micros)
        );
        upsert.execute(self.pool()).await?;
        Ok(())
    }

    /// Makes a join secret valid for `lifetime`, for a rack of this name, or of any.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn put_join_secret(
        &self,
        secret: &str,
        rack_name: Option<&str>,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let hash = sha256(secret.as_bytes());
        let insert = sqlx::query!(
            "insert into join_secret (sha256, rack_name, expires_at) values ($1, $2, now() + make_interval(secs => $3))",
            hash.as_slice(),
            rack_name,
            lifetime.as_secs_f64()
        );
        let mut tx = self.begin().await?;
        insert.execute(&mut *tx).await?;
        let asked = serde_json::json!({ "rack": rack_name, "lifetime_seconds": lifetime.as_secs() });
        let name = rack_name.unwrap_or("any");
        self.audit(&mut tx, &[audit::Written::thing("JoinToken", name, &asked)]).await?;
        self.commit(tx).await
    }

    /// Uses a join secret for one key. The same key may use it again until the secret expires. Only a secret for this very name
    /// lets a rack replace an enrolled rack of the name.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn use_join_secret(
        &self,
        secret: &str,
        rack_name: &str,
        spki_sha256: &[u8; 32],
    ) -> Result<Joined, StoreError> {
        let hash = sha256(secret.as_bytes());
        let mut tx = self.begin().await?;
        let row = sqlx::query!(
            "select rack_name, used_by from join_secret where sha256 = $1 and expires_at > now() for update",
            hash.as_slice()
        );
        let Some(row) = row.fetch_optional(&mut *tx).await? else { return Ok(Joined::Unknown) };
        if row.rack_name.as_ref().is_some_and(|n| n != rack_name) {
            return Ok(Joined::OtherName);
        }
        match row.used_by {
            Some(key) if key == spki_sha256 => return Ok(Joined::Yes),
            Some(_) => return Ok(Joined::Used),
            None => {}
        }
        let taken = sqlx::query_scalar!(
            r#"select exists (select from rack_enrolment e join object o on o.uid = e.rack
               where o.kind = 'Rack' and o.name = $1 and e.spki_sha256 <> $2 and e.revoked_at is null) as "taken!""#,
            rack_name,
            spki_sha256.as_slice()
        );
        if row.rack_name.is_none() && taken.fetch_one(&mut *tx).await? {
            return Ok(Joined::Taken);
        }
        let update = sqlx::query!(
            "update join_secret set used_by = $2 where sha256 = $1",
            hash.as_slice(),
            spki_sha256.as_slice()
        );
        update.execute(&mut *tx).await?;
        self.commit(tx).await?;
        Ok(Joined::Yes)
    }

    /// Stores a rack's certificate. It replaces the rack's earlier one.
    ///
    /// # Errors
    /// Fails if the database cannot be written or another rack has the same key.
    pub async fn put_enrolment(&self, enrolment: &Enrolment) -> Result<(), StoreError> {
        let fingerprint = sha256(&enrolment.certificate_der);
        let upsert = sqlx::query!(
            "insert into rack_enrolment (rack, spki_sha256, cert_sha256, certificate_der, not_after)
             values ($1, $2, $3, $4, to_timestamp($5::bigint / 1000000.0))
             on conflict (rack) do update
             set spki_sha256 = excluded.spki_sha256, cert_sha256 = excluded.cert_sha256,
                 certificate_der = excluded.certificate_der, not_after = excluded.not_after, revoked_at = null",
            enrolment.rack.get(),
            enrolment.spki_sha256.as_slice(),
            fingerprint.as_slice(),
            enrolment.certificate_der,
            micros(enrolment.not_after)
        );
        upsert.execute(self.pool()).await?;
        Ok(())
    }

    /// Stores the new certificate of a rack that has one for the same key. `false`: it has none, or the certificate was revoked.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn renew_enrolment(&self, enrolment: &Enrolment) -> Result<bool, StoreError> {
        let fingerprint = sha256(&enrolment.certificate_der);
        let update = sqlx::query!(
            "update rack_enrolment
             set cert_sha256 = $3, certificate_der = $4, not_after = to_timestamp($5::bigint / 1000000.0)
             where rack = $1 and spki_sha256 = $2 and revoked_at is null",
            enrolment.rack.get(),
            enrolment.spki_sha256.as_slice(),
            fingerprint.as_slice(),
            enrolment.certificate_der,
            micros(enrolment.not_after)
        );
        Ok(update.execute(self.pool()).await?.rows_affected() > 0)
    }

    /// The enrolment of a public key, unless it is revoked.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn enrolled(&self, spki_sha256: &[u8; 32]) -> Result<Option<Enrolment>, StoreError> {
        let row = sqlx::query!(
            r#"select rack, certificate_der, (extract(epoch from not_after) * 1000000)::bigint as "not_after_us!"
               from rack_enrolment where spki_sha256 = $1 and revoked_at is null"#,
            spki_sha256.as_slice()
        );
        let Some(row) = row.fetch_optional(self.pool()).await? else { return Ok(None) };
        Ok(Some(Enrolment {
            rack: RackId::from(row.rack),
            spki_sha256: *spki_sha256,
            certificate_der: row.certificate_der,
            not_after: timestamp(row.not_after_us)?,
        }))
    }

    /// True if the rack with this public key was deleted and the key has not enrolled again.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn is_retired(&self, spki_sha256: &[u8; 32]) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select exists (select from retired_rack where spki_sha256 = $1) as "retired!""#,
            spki_sha256.as_slice()
        );
        Ok(query.fetch_one(self.pool()).await?)
    }

    /// Revokes a rack's certificate.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn revoke(&self, rack: RackId) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update rack_enrolment set revoked_at = now() where rack = $1 and revoked_at is null",
            rack.get()
        );
        update.execute(self.pool()).await?;
        sqlx::query!("delete from rack_due where rack = $1", rack.get()).execute(self.pool()).await?;
        self.touched();
        Ok(())
    }

    /// The addresses for racks of all region processes of this database, as `HOST:PORT`.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn region_addresses(&self) -> Result<BTreeSet<String>, StoreError> {
        let query = sqlx::query_scalar!("select rpc_address from region_process where rpc_address <> ''");
        Ok(query.fetch_all(self.pool()).await?.into_iter().collect())
    }

    /// Notes that this process is alive.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn heartbeat(&self, process: &RegionProcess) -> Result<(), StoreError> {
        let upsert = sqlx::query!(
            "insert into region_process (id, rpc_address, api_address, version, incarnation) values ($1, $2, $3, $4, $5)
             on conflict (id) do update set heartbeat = now(), rpc_address = excluded.rpc_address",
            process.id.get(),
            process.rpc_address.as_deref().unwrap_or_default(),
            process.api_address,
            process.version,
            self.incarnation().get()
        );
        upsert.execute(self.pool()).await?;
        Ok(())
    }

    /// The region processes; the flag is true if the process sent a heartbeat in the last `within`. A killed process stays in the
    /// list for a day.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn region_processes(&self, within: Duration) -> Result<Vec<(RegionProcess, bool)>, StoreError> {
        let delete = sqlx::query!(
            "delete from region_process where heartbeat < now() - make_interval(secs => $1)",
            REMEMBERED.as_secs_f64()
        );
        delete.execute(self.pool()).await?;
        let rows = sqlx::query!(
            r#"select id, rpc_address, api_address, version,
                 heartbeat >= now() - make_interval(secs => $1) as "lives!"
               from region_process order by started_at, id"#,
            within.as_secs_f64()
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let process = |id, rpc_address, api_address, version| RegionProcess {
            id: Uid::from(id),
            rpc_address: Some(rpc_address).filter(|address: &String| !address.is_empty()),
            api_address,
            version,
        };
        Ok(rows
            .into_iter()
            .map(|r| (process(r.id, r.rpc_address, r.api_address, r.version), r.lives))
            .collect())
    }

    /// Removes a process that ends.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn farewell(&self, id: Uid) -> Result<(), StoreError> {
        sqlx::query!("delete from region_process where id = $1", id.get()).execute(self.pool()).await?;
        self.touched();
        Ok(())
    }
}
