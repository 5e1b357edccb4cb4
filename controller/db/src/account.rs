//! The accounts behind bearer tokens: the region's own token, ApiTokens, and sessions of users. Only hashes of tokens are stored.

use crate::invariant::expiry;
use crate::object::{Key, Object, lock, not_found, select_objects, timestamp};
use crate::seal::Place;
use crate::{Store, StoreError, audit, change, fact};
use basalt_api::kinds::{ApiTokenSpec, RoleSpec, UserSpec};
use basalt_api::values::{Timestamp, Uid};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// A session that is not used for this long ends.
const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// A session ends after this long however much it is used.
const SESSION_WHOLE: Duration = Duration::from_secs(12 * 3600);

/// Use is noted at most this often.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// A valid bearer token. The audit log shows it as `token NAME` or `user NAME`.
#[derive(Clone, Debug, PartialEq)]
pub struct Bearer {
    /// True for a session of a user, false for an ApiToken.
    pub is_session: bool,
    /// The name of the session's User, or of the ApiToken.
    pub name: String,
    /// The user whose roles the token has; `None` for a token with a role of its own.
    pub user: Option<String>,
    /// When the token expires. For a session: when it expires if it is not used again.
    pub until: Option<Timestamp>,
}

impl std::fmt::Display for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", if self.is_session { "user" } else { "token" }, self.name)
    }
}

/// The bearer of a valid token and its rights.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// The token, or the user of the session.
    pub bearer: Bearer,
    /// The roles that the bearer has.
    pub grants: Vec<RoleGrant>,
    /// The scopes that limit the token; empty: not limited.
    pub scopes: Vec<String>,
    /// The objects that the rights come from: the token or the session's user, then its user and roles. A change of one of them may
    /// change all of the rights.
    pub rests_on: Vec<Uid>,
}

/// A role that a holder has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleGrant {
    /// `admin`, `operator` or `viewer`.
    pub role: String,
    /// The pools in which the role holds; `None`: everywhere.
    pub pools: Option<Vec<String>>,
}

/// The stored password against which a login is checked.
#[derive(Debug)]
pub struct Account {
    /// The User object.
    pub uid: Uid,
    /// The hash of the user's password.
    pub hash: Zeroizing<String>,
    /// The revision of that password.
    pub revision: i64,
}

/// The login that a session depends on: the session ends when the login changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestsOn<'a> {
    /// The user's password, of this revision.
    Password(i64),
    /// An identity at an OpenID issuer.
    OpenId {
        /// The issuer's URL.
        issuer: &'a str,
        /// The claim `sub` of its tokens.
        subject: &'a str,
    },
}

/// The text that was issued for an ApiToken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued {
    /// When the text was issued.
    pub at: Timestamp,
    /// When it was used last, within a minute.
    pub last_used: Option<Timestamp>,
}

/// A token's row, from one of the tables of tokens.
struct Found {
    source: String,
    name: String,
    role: Option<String>,
    object: Option<uuid::Uuid>,
    spec: Option<String>,
    is_stale: bool,
    until_us: Option<i64>,
    now_us: i64,
}

/// The rights that an object gets from its references.
struct Granted {
    grants: Vec<RoleGrant>,
    /// The user that a token refers to.
    user: Option<String>,
    rests_on: Vec<Uid>,
}

fn spec<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|e| StoreError::Corrupt(format!("a stored spec: {e}")))
}

/// The time at which a token's text was issued, for the audit log.
fn issued_at(us: Option<i64>) -> Result<Value, StoreError> {
    Ok(json!({ "issued_at": us.map(timestamp).transpose()? }))
}

fn sha256(text: &str) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes()).as_ref());
    out
}

impl Store {
    /// Returns the holder of a token while the token is valid, and notes that the token was used.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn holder(&self, token: &str) -> Result<Option<Holder>, StoreError> {
        let (hash, commits, asked) = (sha256(token), self.commits(), Instant::now());
        if let Some(holder) = self.holders().get(commits, &hash) {
            return Ok(Some(holder));
        }
        let found = self.find_holder(&hash).await?;
        if let Some(holder) = &found {
            self.holders().put(commits, hash, asked, holder.clone());
        }
        Ok(found)
    }

    /// Like [`Self::holder`], but reads the database and uses no cache.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn holder_now(&self, token: &str) -> Result<Option<Holder>, StoreError> {
        self.find_holder(&sha256(token)).await
    }

    async fn find_holder(&self, hash: &[u8; 32]) -> Result<Option<Holder>, StoreError> {
        let row = sqlx::query_as!(
            Found,
            r#"select 'token' as "source!", name as "name!", role as "role?", null::uuid as "object?",
                      null::text as "spec?", false as "is_stale!",
                      (extract(epoch from expires_at) * 1000000)::bigint as "until_us?",
                      (extract(epoch from now()) * 1000000)::bigint as "now_us!"
               from api_token where sha256 = $1 and (expires_at is null or expires_at > now())
               union all
               select 'issued', o.name, null, o.uid, o.spec::text,
                      t.last_used_at is null or t.last_used_at < now() - make_interval(secs => $2), null,
                      (extract(epoch from now()) * 1000000)::bigint
               from issued_token t join object o on o.uid = t.object
               where t.sha256 = $1 and o.deletion_requested_at is null
               union all
               select 'session', o.name, null, o.uid, o.spec::text,
                      s.expires_at < now() + make_interval(secs => $3 - $2) and s.expires_at < s.ends_at,
                      (extract(epoch from s.expires_at) * 1000000)::bigint,
                      (extract(epoch from now()) * 1000000)::bigint
               from session s join object o on o.uid = s.account
               where s.sha256 = $1 and s.expires_at > now() and o.deletion_requested_at is null
                 and (exists (select from secret p where p.object = o.uid and p.pointer = '/password' and p.revision = s.password_revision)
                   or (o.spec #>> '{openid,subject}' = s.openid_subject
                     and exists (select from user_openid u where u.account = o.uid and u.issuer = s.openid_issuer and u.subject = s.openid_subject)
                     and s.password_was is not distinct from
                       (select p.revision from secret p where p.object = o.uid and p.pointer = '/password')))"#,
            hash.as_slice(),
            NOTE_EVERY.as_secs_f64(),
            SESSION_IDLE.as_secs_f64()
        );
        let Some(found) = row.fetch_optional(self.pool()).await? else { return Ok(None) };
        let until = found.until_us.map(timestamp).transpose()?;
        let (Some(object), Some(text)) = (found.object, &found.spec) else {
            let grants = found.role.map(|role| RoleGrant { role, pools: None }).into_iter().collect();
            let bearer = Bearer { is_session: false, name: found.name, user: None, until };
            return Ok(Some(Holder { bearer, grants, scopes: Vec::new(), rests_on: Vec::new() }));
        };
        let is_session = found.source == "session";
        let (is_good, until, scopes) = if is_session {
            let user: UserSpec = spec(text)?;
            (!user.disabled, until, Vec::new())
        } else {
            let token: ApiTokenSpec = spec(text)?;
            let now = timestamp(found.now_us)?;
            let is_over = token.expires_at.is_some_and(|end| end <= now);
            (!token.disabled && !is_over, token.expires_at, token.scopes.into_iter().flatten().collect())
        };
        if !is_good {
            return Ok(None);
        }
        let Some(Granted { grants, user, rests_on }) = self.grants(object).await? else { return Ok(None) };
        let used = match found.is_stale {
            true => self.note_use(hash).await?,
            false => None,
        };
        let user = if is_session { Some(found.name.clone()) } else { user };
        let bearer = Bearer { is_session, name: found.name, user, until: used.or(until) };
        Ok(Some(Holder { bearer, grants, scopes, rests_on }))
    }

    /// The rights of an object: its own roles, or the roles of its user. `None` when the user is being deleted or is disabled.
    async fn grants(&self, of: uuid::Uuid) -> Result<Option<Granted>, StoreError> {
        let rows = sqlx::query!(
            r#"with via as (
                 select o.uid, o.name, o.spec::text as spec, o.deletion_requested_at is not null as leaving
                 from object_ref r join object o on o.uid = r.to_uid where r.from_uid = $1 and o.kind = 'User')
               select 'User' as "kind!", uid as "uid!", name as "name!", spec as "spec!", leaving as "leaving!" from via
               union all
               select 'Role', o.uid, o.name, o.spec::text, false from object_ref r join object o on o.uid = r.to_uid
               where o.kind = 'Role' and (r.from_uid = $1 or r.from_uid in (select uid from via))"#,
            of
        );
        let mut granted = Granted { grants: Vec::new(), user: None, rests_on: vec![Uid::from(of)] };
        for row in rows.fetch_all(self.pool()).await? {
            granted.rests_on.push(Uid::from(row.uid));
            if row.kind == "User" {
                let user: UserSpec = spec(&row.spec)?;
                if user.disabled || row.leaving {
                    return Ok(None);
                }
                granted.user = Some(row.name);
                continue;
            }
            let role: RoleSpec = spec(&row.spec)?;
            let pools = role.pools.map(|pools| pools.iter().map(ToString::to_string).collect());
            granted.grants.push(RoleGrant { role: role.base.as_str().to_owned(), pools });
        }
        Ok(Some(granted))
    }

    /// Notes that a token is used. For a session's token, returns when the session now expires.
    async fn note_use(&self, sha256: &[u8; 32]) -> Result<Option<Timestamp>, StoreError> {
        let issued =
            sqlx::query!("update issued_token set last_used_at = now() where sha256 = $1", sha256.as_slice());
        issued.execute(self.pool()).await?;
        let session = sqlx::query_scalar!(
            r#"update session set expires_at = least(now() + make_interval(secs => $2), ends_at) where sha256 = $1
               returning (extract(epoch from expires_at) * 1000000)::bigint as "until_us!""#,
            sha256.as_slice(),
            SESSION_IDLE.as_secs_f64()
        );
        session.fetch_optional(self.pool()).await?.map(timestamp).transpose()
    }

    /// The password against which a login as this user is checked; `None`: this name has no login by password.
    ///
    /// # Errors
    /// Fails if the seal key does not open it, or if the database cannot be read.
    pub async fn account(&self, name: &str) -> Result<Option<Account>, StoreError> {
        let row = sqlx::query!(
            "select o.uid, o.spec::text as \"spec!\", s.revision, s.sealed from object o
             join secret s on s.object = o.uid and s.pointer = '/password'
             where o.kind = 'User' and o.name = $1 and o.deletion_requested_at is null",
            name
        );
        let Some(row) = row.fetch_optional(self.pool()).await? else { return Ok(None) };
        if spec::<UserSpec>(&row.spec)?.disabled {
            return Ok(None);
        }
        let place = Place { object: Uid::from(row.uid), pointer: "/password" };
        let opened = self.seal().open(&place, &row.sealed)?;
        let hash = String::from_utf8(opened.to_vec()).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        Ok(Some(Account { uid: Uid::from(row.uid), hash: Zeroizing::new(hash), revision: row.revision }))
    }

    /// The user as which a subject of an issuer logs in. The user may be disabled.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn user_of_openid(&self, issuer: &str, subject: &str) -> Result<Option<Uid>, StoreError> {
        // A region of the version before does not delete the row when it writes a user without OpenID.
        let user = sqlx::query_scalar!(
            "select u.account from user_openid u join object o on o.uid = u.account
             where u.issuer = $1 and u.subject = $2 and o.spec #>> '{openid,subject}' = $2",
            issuer,
            subject
        );
        Ok(user.fetch_optional(self.pool()).await?.map(Uid::from))
    }

    /// Begins a login by way of an issuer: the secret is valid once, for `lasts`. Expired rows are deleted.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn begin_login(&self, secret: &str, lasts: Duration) -> Result<(), StoreError> {
        let hash = sha256(secret);
        let mut tx = self.begin().await?;
        sqlx::query!("delete from login_attempt where expires_at < now()").execute(&mut *tx).await?;
        sqlx::query!(
            "insert into login_attempt (sha256, expires_at) values ($1, now() + make_interval(secs => $2))",
            hash.as_slice(),
            lasts.as_secs_f64()
        )
        .execute(&mut *tx)
        .await?;
        self.commit(tx).await
    }

    /// Uses up the secret of a login; returns true if it was valid.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn use_login(&self, secret: &str) -> Result<bool, StoreError> {
        let hash = sha256(secret);
        let mut tx = self.begin().await?;
        let used = sqlx::query!(
            "delete from login_attempt where sha256 = $1 and expires_at > now()",
            hash.as_slice()
        )
        .execute(&mut *tx)
        .await?;
        self.commit(tx).await?;
        Ok(used.rows_affected() == 1)
    }

    /// Opens a session of this user with this token; returns when an unused session expires. The session is valid as long as the
    /// user's login is the one in `rests_on`. Sessions that have expired are deleted.
    ///
    /// # Errors
    /// `NotFound` if the user is gone; fails too if the database cannot be written.
    pub async fn open_session(
        &self,
        user: Uid,
        rests_on: &RestsOn<'_>,
        token: &str,
    ) -> Result<Timestamp, StoreError> {
        let (password_revision, issuer, subject) = match *rests_on {
            RestsOn::Password(revision) => (Some(revision), None, None),
            RestsOn::OpenId { issuer, subject } => (None, Some(issuer), Some(subject)),
        };
        let mut tx = self.begin().await?;
        sqlx::query!("delete from session where expires_at < now()").execute(&mut *tx).await?;
        let row = lock(&mut tx, "User", Key::Uid(user)).await?;
        let row = row.ok_or_else(|| not_found("User", Key::Uid(user)))?;
        let hash = sha256(token);
        let insert = sqlx::query!(
            r#"insert into session (sha256, account, password_revision, openid_issuer, openid_subject, password_was, expires_at, ends_at)
               values ($1, $2, $3, $4, $5,
                 (select revision from secret where $3::bigint is null and object = $2 and pointer = '/password'),
                 now() + make_interval(secs => $6), now() + make_interval(secs => $7))
               returning (extract(epoch from expires_at) * 1000000)::bigint as "expires_us!""#,
            hash.as_slice(),
            row.uid,
            password_revision,
            issuer,
            subject,
            SESSION_IDLE.as_secs_f64(),
            SESSION_WHOLE.as_secs_f64()
        );
        let expires_us = insert.fetch_one(&mut *tx).await?.expires_us;
        let opened = json!({ "session": "opened" });
        self.audit(&mut tx, &[audit::Written::beside(&row, &Value::Null, &opened)]).await?;
        self.commit(tx).await?;
        timestamp(expires_us)
    }

    /// Ends the session of this token; returns false if there was none.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn close_session(&self, token: &str) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let hash = sha256(token);
        let delete =
            sqlx::query_scalar!("delete from session where sha256 = $1 returning account", hash.as_slice());
        let Some(account) = delete.fetch_optional(&mut *tx).await? else { return Ok(false) };
        let row = select_objects!("where uid = $1", account).fetch_one(&mut *tx).await?;
        let (opened, closed) = (json!({ "session": "opened" }), json!({ "session": "closed" }));
        self.audit(&mut tx, &[audit::Written::beside(&row, &opened, &closed)]).await?;
        self.commit(tx).await?;
        Ok(true)
    }

    /// Makes `token` the text of an ApiToken; its former text is no longer valid. A dry run does the same and rolls it back.
    ///
    /// # Errors
    /// `NotFound`, `Deleting`, `Refused` if the ApiToken has expired; fails too if the database cannot be written.
    pub async fn issue_token(&self, key: Key<'_>, token: &str, dry_run: bool) -> Result<Object, StoreError> {
        let mut tx = self.begin().await?;
        let row = lock(&mut tx, "ApiToken", key).await?.ok_or_else(|| not_found("ApiToken", key))?;
        if row.deletion_us.is_some() {
            return Err(StoreError::Deleting { kind: row.kind, name: row.name });
        }
        let (end, now) = (spec::<ApiTokenSpec>(&row.spec)?.expires_at, fact::now(&mut tx).await?);
        if let Some(end) = end.filter(|end| *end <= now) {
            return Err(StoreError::Refused { errors: vec![expiry::expired(end, now)] });
        }
        let hash = sha256(token);
        let upsert = sqlx::query!(
            r#"with before as (select issued_at from issued_token where object = $1)
               insert into issued_token (object, sha256) values ($1, $2)
               on conflict (object) do update
               set sha256 = excluded.sha256, issued_at = now(), last_used_at = null
               returning (extract(epoch from issued_at) * 1000000)::bigint as "after_us!",
                         (select (extract(epoch from issued_at) * 1000000)::bigint from before) as before_us"#,
            row.uid,
            hash.as_slice()
        );
        let issued = upsert.fetch_one(&mut *tx).await?;
        change::record(&mut tx, &row, change::Op::Status).await?;
        let (before, after) = (issued_at(issued.before_us)?, issued_at(Some(issued.after_us))?);
        self.audit(&mut tx, &[audit::Written::beside(&row, &before, &after)]).await?;
        self.end(tx, dry_run).await?;
        row.object()
    }

    /// Makes an ApiToken's text invalid. A dry run does the same and rolls it back.
    ///
    /// # Errors
    /// `NotFound`; fails too if the database cannot be written.
    pub async fn revoke_token(&self, key: Key<'_>, dry_run: bool) -> Result<Object, StoreError> {
        let mut tx = self.begin().await?;
        let row = lock(&mut tx, "ApiToken", key).await?.ok_or_else(|| not_found("ApiToken", key))?;
        let delete = sqlx::query_scalar!(
            r#"delete from issued_token where object = $1
               returning (extract(epoch from issued_at) * 1000000)::bigint as "issued_us!""#,
            row.uid
        );
        if let Some(issued_us) = delete.fetch_optional(&mut *tx).await? {
            change::record(&mut tx, &row, change::Op::Status).await?;
            let (before, after) = (issued_at(Some(issued_us))?, issued_at(None)?);
            self.audit(&mut tx, &[audit::Written::beside(&row, &before, &after)]).await?;
        }
        self.end(tx, dry_run).await?;
        row.object()
    }

    /// The SHA-256 of each admin token that [`Store::put_token`] noted and that belongs to no ApiToken.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn noted_tokens(&self) -> Result<Vec<[u8; 32]>, StoreError> {
        let hashes =
            sqlx::query_scalar!("select sha256 from api_token where role = 'admin' and expires_at is null");
        let hashes = hashes.fetch_all(self.pool()).await?;
        let whole = |hash: Vec<u8>| <[u8; 32]>::try_from(hash);
        hashes
            .into_iter()
            .map(|h| whole(h).map_err(|_| StoreError::Corrupt("a token's hash".into())))
            .collect()
    }

    /// Makes a noted token the text of an ApiToken that has none. Does nothing if the token is no longer noted: another region
    /// has adopted it.
    ///
    /// # Errors
    /// `NotFound`; fails too if the database cannot be written.
    pub async fn adopt_token(&self, key: Key<'_>, sha256: &[u8; 32]) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let row = lock(&mut tx, "ApiToken", key).await?.ok_or_else(|| not_found("ApiToken", key))?;
        let delete = sqlx::query!("delete from api_token where sha256 = $1", sha256.as_slice());
        if delete.execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(());
        }
        let insert = sqlx::query_scalar!(
            r#"insert into issued_token (object, sha256) values ($1, $2) on conflict do nothing
               returning (extract(epoch from issued_at) * 1000000)::bigint as "issued_us!""#,
            row.uid,
            sha256.as_slice()
        );
        if let Some(issued_us) = insert.fetch_optional(&mut *tx).await? {
            change::record(&mut tx, &row, change::Op::Status).await?;
            let (before, after) = (issued_at(None)?, issued_at(Some(issued_us))?);
            self.audit(&mut tx, &[audit::Written::beside(&row, &before, &after)]).await?;
        }
        self.commit(tx).await
    }

    /// The text that was issued for an ApiToken.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn issued(&self, token: Uid) -> Result<Option<Issued>, StoreError> {
        let row = sqlx::query!(
            r#"select (extract(epoch from issued_at) * 1000000)::bigint as "issued_us!",
                      (extract(epoch from last_used_at) * 1000000)::bigint as used_us
               from issued_token where object = $1"#,
            token.get()
        );
        let Some(row) = row.fetch_optional(self.pool()).await? else { return Ok(None) };
        Ok(Some(Issued { at: timestamp(row.issued_us)?, last_used: row.used_us.map(timestamp).transpose()? }))
    }

    /// The pool of an object; `None` if there is no such object, `Some(None)` if it is in no pool or its pool is not known yet.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn pool_of(&self, kind: &str, key: Key<'_>) -> Result<Option<Option<String>>, StoreError> {
        let (name, uid) = match key {
            Key::Name(name) => (Some(name), None),
            Key::Uid(uid) => (None, Some(uid.get())),
        };
        let row = sqlx::query!(
            "select object_pool(kind, uid, spec) as pool from object
             where kind = $1 and (name = $2 or $2 is null) and (uid = $3 or $3 is null)",
            kind,
            name,
            uid
        );
        Ok(row.fetch_optional(self.pool()).await?.map(|row| row.pool))
    }
}
