//! Operations on machines: requested by people, done once. This module accepts, reads and ends them.

use crate::object::{self, Key, Object, timestamp};
use crate::store::Tx;
use crate::write::Judge;
use crate::{Store, StoreError, audit};
use basalt_api::agent::Script;
use basalt_api::values::{MachineId, OperationId, Timestamp, Uid};
use basalt_api::wire::{OperationState, Verb};
use basalt_api::{FieldCode, FieldError};
use sqlx::types::Json;
use std::time::Duration;
use uuid::Uuid;

/// The number of operations that are kept of one machine.
const KEPT: i64 = 200;

/// `select` of whole operations; `$tail` follows `from machine_operation`.
macro_rules! select_operations {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            OperationRow,
            r#"select id, verb, script as "script: Json<Script>", tests as "tests: Json<Vec<Script>>", state, reason, message, output, requested_by,
                      (extract(epoch from requested_at) * 1000000)::bigint as "requested_us!",
                      (extract(epoch from deadline) * 1000000)::bigint as "deadline_us!",
                      (extract(epoch from begun_at) * 1000000)::bigint as begun_us,
                      (extract(epoch from finished_at) * 1000000)::bigint as finished_us
               from machine_operation "# + $tail
            $(, $arg)*
        )
    };
}

/// A request for an operation.
#[derive(Clone, Copy, Debug)]
pub struct NewOperation<'a> {
    /// The action that the operation does.
    pub verb: Verb,
    /// The script that `run_script` or `rescue` runs.
    pub script: Option<&'a Script>,
    /// The tests that `test` runs.
    pub tests: &'a [Script],
    /// The reason of the person who asks.
    pub because: Option<&'a str>,
    /// The time until the operation expires.
    pub lasts: Duration,
    /// The client's idempotency key: a second request with the same key returns the first one's operation.
    pub request_key: Option<&'a str>,
}

/// One operation, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The operation's id.
    pub id: OperationId,
    /// The action that the operation does.
    pub verb: Verb,
    /// The script that `run_script` or `rescue` runs.
    pub script: Option<Script>,
    /// The tests that `test` runs.
    pub tests: Vec<Script>,
    /// The progress of the operation.
    pub state: OperationState,
    /// The reason of the state, as one word.
    pub reason: String,
    /// The reason of the state, as a sentence.
    pub message: String,
    /// The end of the script's output.
    pub output: Option<String>,
    /// The name of the account that asked.
    pub requested_by: Option<String>,
    /// When the operation was requested.
    pub requested_at: Timestamp,
    /// When it expires.
    pub deadline: Timestamp,
    /// When it began.
    pub begun_at: Option<Timestamp>,
    /// When it was over.
    pub finished_at: Option<Timestamp>,
}

/// The class of a verb. A machine has at most one open operation per class.
const fn class(verb: Verb) -> &'static str {
    match verb {
        Verb::PowerOn | Verb::PowerOff | Verb::PowerCycle => "power",
        Verb::Recommission => "recommission",
        Verb::Abort => "abort",
        Verb::RunScript | Verb::Rescue | Verb::Test => "script",
        Verb::OverrideTests => "override",
        Verb::ResetBmc => "bmc",
    }
}

/// The classes whose open operations a new operation replaces.
fn supersedes(verb: Verb) -> Vec<String> {
    let classes: &[&str] = match verb {
        // An abort leaves the machine off.
        Verb::Abort => &["abort", "power"],
        // A recommission begins again what was aborted.
        Verb::Recommission => &["recommission", "abort"],
        Verb::RunScript | Verb::Rescue | Verb::Test => &["script"],
        Verb::OverrideTests => &["override"],
        Verb::ResetBmc => &["bmc"],
        Verb::PowerOn | Verb::PowerOff | Verb::PowerCycle => &["power"],
    };
    classes.iter().map(|class| (*class).to_owned()).collect()
}

impl Store {
    /// The script or rescue that runs on a machine, as the error that refuses another one.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn running_script(&self, machine: Uid) -> Result<Option<FieldError>, StoreError> {
        running(self.pool(), machine.get()).await
    }

    /// Accepts an operation, ends those that it replaces, and wakes the machine's driver. A dry run does the same and rolls it back.
    /// If an operation was accepted under the same key, that one is returned in its present state.
    ///
    /// # Errors
    /// `NotFound` if there is no such machine, `Refused` if a script runs on it or the key belongs to another operation. Fails too if
    /// the database cannot be written.
    pub async fn request_operation(
        &self,
        key: Key<'_>,
        new: &NewOperation<'_>,
        (dry_run, judge): (bool, &dyn Judge),
    ) -> Result<(Object, Operation), StoreError> {
        let mut tx = self.begin().await?;
        let row = object::lock(&mut tx, "Machine", key).await?;
        let row = row.ok_or_else(|| object::not_found("Machine", key))?;
        self.within_reach(&mut tx, &row, judge).await?;
        if let Some(known) = known(&mut tx, row.uid, new).await? {
            tx.rollback().await?;
            return Ok((row.object()?, known));
        }
        if class(new.verb) == "script" {
            nothing_runs(&mut tx, row.uid).await?;
        }
        let id = Uuid::now_v7();
        let instead = format!("{} was asked for instead", new.verb);
        sqlx::query!(
            "update machine_operation
             set state = 'superseded', reason = 'Superseded', message = $3, finished_at = clock_timestamp()
             where machine = $1 and finished_at is null and class = any($2)",
            row.uid,
            &supersedes(new.verb),
            instead
        )
        .execute(&mut *tx)
        .await?;
        let insert = sqlx::query_as!(
            OperationRow,
            r#"insert into machine_operation
                 (id, machine, verb, class, request_key, requested_by, requested_at, deadline, message, script, tests, because)
               select $1, $2, $3, $4, $5, $6, t.at, t.at + make_interval(secs => $7), $8, $9, $10, $11
               from (select clock_timestamp() as at) t
               returning id, verb, script as "script: Json<Script>", tests as "tests: Json<Vec<Script>>", state, reason, message, output, requested_by,
                 (extract(epoch from requested_at) * 1000000)::bigint as "requested_us!",
                 (extract(epoch from deadline) * 1000000)::bigint as "deadline_us!",
                 (extract(epoch from begun_at) * 1000000)::bigint as begun_us,
                 (extract(epoch from finished_at) * 1000000)::bigint as finished_us"#,
            id,
            row.uid,
            new.verb.as_str(),
            class(new.verb),
            new.request_key,
            self.actor().map(|actor| actor.name.as_str()),
            new.lasts.as_secs_f64(),
            "accepted",
            new.script.map(Json) as _,
            Json(new.tests) as _,
            new.because
        );
        let operation = insert.fetch_one(&mut *tx).await?.operation()?;
        if new.verb == Verb::Recommission {
            sqlx::query!(
                "insert into machine_mark (machine, recommission_requested_at)
                 select machine, requested_at from machine_operation where id = $1
                 on conflict (machine) do update set recommission_requested_at = excluded.recommission_requested_at",
                id
            )
            .execute(&mut *tx)
            .await?;
        }
        if new.verb == Verb::OverrideTests {
            sqlx::query!(
                "insert into machine_mark (machine, tests_accepted_at, tests_accepted_by, tests_accepted_reason)
                 select machine, requested_at, requested_by, because from machine_operation where id = $1
                 on conflict (machine) do update set tests_accepted_at = excluded.tests_accepted_at,
                   tests_accepted_by = excluded.tests_accepted_by,
                   tests_accepted_reason = excluded.tests_accepted_reason",
                id
            )
            .execute(&mut *tx)
            .await?;
        }
        prune(&mut tx, row.uid).await?;
        self.wake_around(&mut tx, Uid::from(row.uid)).await?;
        let mut asked = serde_json::json!({ "operation": new.verb });
        if let (Some(script), Some(asked)) = (new.script, asked.as_object_mut()) {
            asked.insert("script".to_owned(), script.name.as_str().into());
        }
        if let (Some(because), Some(asked)) = (new.because, asked.as_object_mut()) {
            asked.insert("reason".to_owned(), because.into());
        }
        self.audit(&mut tx, &[audit::Written::beside(&row, &serde_json::Value::Null, &asked)]).await?;
        self.end(tx, dry_run).await?;
        Ok((row.object()?, operation))
    }

    /// A machine's operations, the newest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn operations(&self, machine: MachineId, limit: i64) -> Result<Vec<Operation>, StoreError> {
        let rows = select_operations!(
            "where machine = $1 order by requested_at desc, id desc limit $2",
            machine.get(),
            limit
        );
        rows.fetch_all(self.pool()).await?.into_iter().map(OperationRow::operation).collect()
    }

    /// One operation of a machine.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn operation(
        &self,
        machine: MachineId,
        id: OperationId,
    ) -> Result<Option<Operation>, StoreError> {
        let row = select_operations!("where machine = $1 and id = $2", machine.get(), id.get());
        row.fetch_optional(self.pool()).await?.map(OperationRow::operation).transpose()
    }

    /// The operation that was accepted under a client's key.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn operation_under(
        &self,
        machine: MachineId,
        request_key: &str,
    ) -> Result<Option<Operation>, StoreError> {
        let row = select_operations!("where machine = $1 and request_key = $2", machine.get(), request_key);
        row.fetch_optional(self.pool()).await?.map(OperationRow::operation).transpose()
    }

    /// The operations that a plan depends on: the open ones, the latest abort, and the latest power operation that was done.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn planning_operations(&self, machine: MachineId) -> Result<Vec<Operation>, StoreError> {
        let rows = select_operations!(
            "where machine = $1 and (finished_at is null
               or id = (select id from machine_operation where machine = $1 and class = 'abort'
                        order by requested_at desc, id desc limit 1)
               or id = (select id from machine_operation where machine = $1 and class = 'power' and state = 'done'
                        order by finished_at desc, id desc limit 1))
             order by requested_at, id",
            machine.get()
        );
        rows.fetch_all(self.pool()).await?.into_iter().map(OperationRow::operation).collect()
    }

    /// Notes the state of an operation, unless it has ended.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn note_operation(
        &self,
        id: OperationId,
        state: OperationState,
        (reason, message, output): (&str, &str, Option<&str>),
    ) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update machine_operation set state = $2, reason = $3, message = $4, output = $6,
               begun_at = case when $2 = 'requested' then begun_at else coalesce(begun_at, clock_timestamp()) end,
               finished_at = case when $5 then clock_timestamp() end
             where id = $1 and finished_at is null",
            id.get(),
            state.as_str(),
            reason,
            message,
            state.is_over(),
            output
        );
        update.execute(self.pool()).await?;
        Ok(())
    }
}

/// The operation that was accepted under the same key. `Refused` if it differs from the new one.
async fn known(tx: &mut Tx, machine: Uuid, new: &NewOperation<'_>) -> Result<Option<Operation>, StoreError> {
    let Some(key) = new.request_key else { return Ok(None) };
    let row = select_operations!("where machine = $1 and request_key = $2", machine, key);
    let Some(known) = row.fetch_optional(&mut **tx).await? else { return Ok(None) };
    let known = known.operation()?;
    if known.verb == new.verb && known.script.as_ref() == new.script && known.tests == new.tests {
        return Ok(Some(known));
    }
    let said = |verb: Verb, script: Option<&Script>| {
        script.map_or_else(|| verb.to_string(), |script| format!("{verb} of {}", script.name))
    };
    let (was, now) = (said(known.verb, known.script.as_ref()), said(new.verb, new.script));
    let message = format!("under the key {key:?} {was} was asked for, and now {now}");
    let error = FieldError::new("/verb", FieldCode::Rule, message, "take another Idempotency-Key");
    Err(StoreError::Refused { errors: vec![error] })
}

/// Refuses a new script while one runs: a running script is never replaced.
async fn nothing_runs(tx: &mut Tx, machine: Uuid) -> Result<(), StoreError> {
    match running(&mut **tx, machine).await? {
        Some(error) => Err(StoreError::Refused { errors: vec![error] }),
        None => Ok(()),
    }
}

/// The script or rescue that runs on a machine, as the error that refuses another one.
async fn running<'e>(
    database: impl sqlx::PgExecutor<'e>,
    machine: Uuid,
) -> Result<Option<FieldError>, StoreError> {
    let running = sqlx::query_scalar!(
        r#"select case verb when 'run_script' then 'script ' || (script ->> 'name') else verb end as "name!" from machine_operation
           where machine = $1 and class = 'script' and state = 'running'"#,
        machine
    );
    let name = running.fetch_optional(database).await?;
    let error = |name| {
        let message = format!("{name} runs on it");
        FieldError::new("/verb", FieldCode::Rule, message, "wait for its end, or abort it")
    };
    Ok(name.map(error))
}

/// Deletes operations that ended long ago and that no plan depends on.
async fn prune(tx: &mut Tx, machine: Uuid) -> Result<(), StoreError> {
    sqlx::query!(
        "delete from machine_operation where machine = $1 and finished_at is not null
           and id in (select id from machine_operation where machine = $1
                      order by requested_at desc, id desc offset $2)
           and id is distinct from (select id from machine_operation where machine = $1 and class = 'abort'
                                    order by requested_at desc, id desc limit 1)
           and id is distinct from (select id from machine_operation
                                    where machine = $1 and class = 'power' and state = 'done'
                                    order by finished_at desc, id desc limit 1)",
        machine,
        KEPT
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

struct OperationRow {
    id: Uuid,
    verb: String,
    script: Option<Json<Script>>,
    tests: Json<Vec<Script>>,
    state: String,
    reason: String,
    message: String,
    output: Option<String>,
    requested_by: Option<String>,
    requested_us: i64,
    deadline_us: i64,
    begun_us: Option<i64>,
    finished_us: Option<i64>,
}

impl OperationRow {
    fn operation(self) -> Result<Operation, StoreError> {
        let unknown = |what: &str| StoreError::Corrupt(format!("operation {}: {what:?}", self.id));
        let verb = Verb::ALL.into_iter().find(|verb| verb.as_str() == self.verb);
        let state = OperationState::ALL.into_iter().find(|state| state.as_str() == self.state);
        Ok(Operation {
            id: OperationId::from(self.id),
            verb: verb.ok_or_else(|| unknown(&self.verb))?,
            script: self.script.map(|Json(script)| script),
            tests: self.tests.0,
            state: state.ok_or_else(|| unknown(&self.state))?,
            reason: self.reason,
            message: self.message,
            output: self.output,
            requested_by: self.requested_by,
            requested_at: timestamp(self.requested_us)?,
            deadline: timestamp(self.deadline_us)?,
            begun_at: self.begun_us.map(timestamp).transpose()?,
            finished_at: self.finished_us.map(timestamp).transpose()?,
        })
    }
}
