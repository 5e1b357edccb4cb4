//! Results of hardware tests (docs/decisions/099-test-results.md).

use std::collections::BTreeMap;

use basalt_api::agent::Verdict;
use basalt_api::values::{Attempt, MachineId, Timestamp};
use sqlx::types::Json;

use crate::object::{signed, timestamp, unsigned};
use crate::{Store, StoreError};

/// The number of runs of one test that are kept per machine.
const KEPT_RUNS: i64 = 50;

/// One finding of one run of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct TestResult {
    /// The attempt that ran the test.
    pub attempt: Attempt,
    /// The Script's name at the time of the run.
    pub script: String,
    /// The part of the hardware; empty for the whole machine.
    pub device: String,
    /// The finding about the device.
    pub verdict: Verdict,
    /// Measured values. The end of each name is the unit.
    pub figures: BTreeMap<String, f64>,
    /// One sentence for a person.
    pub message: String,
    /// The end of the script's output.
    pub output: String,
    /// The script's run time in seconds.
    pub seconds: f64,
    /// When the result was stored.
    pub at: Timestamp,
    /// True: the run was for a device that was named, and says nothing about others.
    pub narrow: bool,
}

/// The latest run of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The Script's name at the time of the run.
    pub script: String,
    /// The attempt that ran the test.
    pub attempt: Attempt,
    /// When the result was stored.
    pub at: Timestamp,
    /// True: the test does not apply to the machine's hardware, and found nothing.
    pub skipped: bool,
}

/// A filter of a machine's rows.
#[derive(Clone, Copy, Debug)]
pub struct TestQuery<'a> {
    /// Rows of this script.
    pub script: Option<&'a str>,
    /// True: only rows of the latest run of each script.
    pub latest: bool,
    /// The largest number of rows.
    pub limit: i64,
}

const VERDICTS: [(Verdict, &str); 4] = [
    (Verdict::Skipped, "skipped"),
    (Verdict::Passed, "passed"),
    (Verdict::Degraded, "degraded"),
    (Verdict::Failed, "failed"),
];

fn word(verdict: Verdict) -> &'static str {
    VERDICTS.iter().find(|(it, _)| *it == verdict).map_or("failed", |(_, word)| word)
}

fn verdict(machine: MachineId, word: &str) -> Result<Verdict, StoreError> {
    let known = VERDICTS.iter().find(|(_, known)| *known == word).map(|(verdict, _)| *verdict);
    known.ok_or_else(|| StoreError::Corrupt(format!("a test of machine {machine}: {word:?}")))
}

impl Store {
    /// Stores the rows of runs, and deletes runs beyond [`KEPT_RUNS`]. Rows that exist stay as they are. Returns true if some rows are new.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn put_test_results(
        &self,
        machine: MachineId,
        rows: &[TestResult],
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let attempts: Vec<i64> = rows.iter().map(|row| signed(row.attempt.get())).collect();
        let figures: Vec<serde_json::Value> = rows.iter().map(|row| serde_json::json!(row.figures)).collect();
        let column =
            |of: fn(&TestResult) -> &str| rows.iter().map(of).map(ToOwned::to_owned).collect::<Vec<String>>();
        let seconds: Vec<f64> = rows.iter().map(|row| row.seconds).collect();
        let at: Vec<i64> = rows.iter().map(|row| row.at.as_microsecond()).collect();
        let narrow: Vec<bool> = rows.iter().map(|row| row.narrow).collect();
        let insert = sqlx::query!(
            "insert into test_result (machine, attempt, script, device, verdict, figures, message, output, seconds, at, narrow)
             select $1, r.attempt, r.script, r.device, r.verdict, r.figures, r.message, r.output, r.seconds,
               to_timestamp(r.at / 1000000.0), r.narrow
             from unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::jsonb[], $7::text[], $8::text[],
                         $9::double precision[], $10::bigint[], $11::boolean[])
               as r(attempt, script, device, verdict, figures, message, output, seconds, at, narrow)
             on conflict do nothing",
            machine.get(),
            &attempts,
            &column(|row| &row.script),
            &column(|row| &row.device),
            &column(|row| word(row.verdict)),
            &figures,
            &column(|row| &row.message),
            &column(|row| &row.output),
            &seconds,
            &at,
            &narrow
        );
        let is_new = insert.execute(&mut *tx).await?.rows_affected() > 0;
        // Findings that stand stay, however many runs for other devices came after them.
        sqlx::query!(
            "delete from test_result t using (
               select script, device, attempt, dense_rank() over (partition by script order by attempt desc) as age,
                 row_number() over (partition by script, device order by attempt desc) as newer,
                 max(attempt) filter (where not narrow) over (partition by script) as whole
               from test_result where machine = $1) old
             where t.machine = $1 and t.script = old.script and t.device = old.device and t.attempt = old.attempt
               and old.age > $2 and (old.newer > 1 or old.attempt < old.whole)",
            machine.get(),
            KEPT_RUNS
        )
        .execute(&mut *tx)
        .await?;
        self.commit(tx).await?;
        Ok(is_new)
    }

    /// The latest run of each test of a machine, by the findings that stand: those of the latest run for all devices, and of each run
    /// for a named device after it. If several runs looked at a device, the finding of the latest stands.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn latest_test_runs(&self, machine: MachineId) -> Result<Vec<TestRun>, StoreError> {
        let rows = sqlx::query!(
            r#"select script, max(attempt) as "attempt!", (extract(epoch from max(at)) * 1000000)::bigint as "at_us!",
                 bool_and(verdict = 'skipped') as "skipped!"
               from (select distinct on (script, device) script, attempt, at, verdict
                     from test_result t
                     where machine = $1 and attempt >= coalesce(
                       (select max(attempt) from test_result l
                        where l.machine = $1 and l.script = t.script and not l.narrow), 0)
                     order by script, device, attempt desc) standing
               group by script order by script"#,
            machine.get()
        );
        let mut runs = Vec::new();
        for row in rows.fetch_all(self.pool()).await? {
            let (attempt, at) = (Attempt::new(unsigned(row.attempt)), timestamp(row.at_us)?);
            runs.push(TestRun { script: row.script, attempt, at, skipped: row.skipped });
        }
        Ok(runs)
    }

    /// Findings of the latest runs that are `degraded` or `failed`, the failed ones first, without outputs.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn bad_test_results(
        &self,
        machine: MachineId,
        limit: i64,
    ) -> Result<Vec<TestResult>, StoreError> {
        let rows = sqlx::query!(
            r#"select attempt, script, device, verdict, message, seconds, narrow,
                 (extract(epoch from at) * 1000000)::bigint as "at_us!"
               from (select distinct on (script, device) *
                     from test_result t
                     where machine = $1 and attempt >= coalesce(
                       (select max(attempt) from test_result l
                        where l.machine = $1 and l.script = t.script and not l.narrow), 0)
                     order by script, device, attempt desc) standing
               where verdict in ('degraded', 'failed')
               order by verdict <> 'failed', script, device limit $2"#,
            machine.get(),
            limit
        );
        let mut results = Vec::new();
        for row in rows.fetch_all(self.pool()).await? {
            results.push(TestResult {
                attempt: Attempt::new(unsigned(row.attempt)),
                script: row.script,
                device: row.device,
                verdict: verdict(machine, &row.verdict)?,
                figures: BTreeMap::new(),
                message: row.message,
                output: String::new(),
                seconds: row.seconds,
                at: timestamp(row.at_us)?,
                narrow: row.narrow,
            });
        }
        Ok(results)
    }

    /// Rows of a machine, the newest run first.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn test_results(
        &self,
        machine: MachineId,
        query: TestQuery<'_>,
    ) -> Result<Vec<TestResult>, StoreError> {
        let rows = sqlx::query!(
            r#"select attempt, script, device, verdict, figures as "figures: Json<BTreeMap<String, f64>>", message, output,
                 seconds, (extract(epoch from at) * 1000000)::bigint as "at_us!", narrow
               from test_result t
               where machine = $1 and ($2::text is null or script = $2)
                 and (not $3 or not exists (
                   select from test_result l
                   where l.machine = $1 and l.script = t.script and l.attempt > t.attempt
                     and (l.device = t.device or not l.narrow)))
               order by attempt desc, script, device limit $4"#,
            machine.get(),
            query.script,
            query.latest,
            query.limit
        );
        let mut results = Vec::new();
        for row in rows.fetch_all(self.pool()).await? {
            results.push(TestResult {
                attempt: Attempt::new(unsigned(row.attempt)),
                script: row.script,
                device: row.device,
                verdict: verdict(machine, &row.verdict)?,
                figures: row.figures.0,
                message: row.message,
                output: row.output,
                seconds: row.seconds,
                at: timestamp(row.at_us)?,
                narrow: row.narrow,
            });
        }
        Ok(results)
    }
}
