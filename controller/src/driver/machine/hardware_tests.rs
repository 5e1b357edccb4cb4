//! Tests of a machine's hardware: rows of what agents found, and what they mean to the machine
//! (docs/decisions/099-test-results.md).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use basalt_api::agent::{ScriptEnd, TEST_OUTPUT_BYTES, TEST_ROWS, TestRow, Verdict};
use basalt_api::kinds::{HardwareTests as Status, TestVerdict, TestsOverride};
use basalt_api::values::{Attempt, MachineId, Timestamp};
use basalt_db::{Store, StoreError, TestResult, TestRun, TestsAccepted};
use basalt_engine::input::FailedTests;

use crate::driver::machine::Loaded;
use crate::racks::observed::Observed;

/// Most findings of the latest runs that a reconciliation reads. The failed ones come first.
const FINDINGS: i64 = 200;
/// Most findings that a status or a wait names.
const NAMED: usize = 10;
/// Longest name of a device, in bytes: a part of a key.
const DEVICE_BYTES: usize = 200;

/// The findings of a machine's tests that stand.
#[derive(Clone, Debug, Default)]
pub struct HardwareTests {
    runs: Vec<TestRun>,
    /// Findings that are `degraded` or `failed`.
    bad: Vec<TestResult>,
    accepted: Option<TestsAccepted>,
}

impl HardwareTests {
    /// Reads the latest runs of a machine.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn load(
        store: &Store,
        machine: MachineId,
        accepted: Option<TestsAccepted>,
    ) -> Result<Self, StoreError> {
        let runs = store.latest_test_runs(machine).await?;
        let bad = match runs.is_empty() {
            true => Vec::new(),
            false => store.bad_test_results(machine, FINDINGS).await?,
        };
        Ok(Self { runs, bad, accepted })
    }

    /// For the planner.
    #[must_use]
    pub fn failed(&self) -> FailedTests {
        FailedTests {
            tests: self.of(Verdict::Failed).map(|row| row.script.clone()).collect(),
            findings: self.findings(Verdict::Failed),
            at: self.of(Verdict::Failed).map(|row| row.at).max(),
            accepted_at: self.accepted.as_ref().map(|accepted| accepted.at),
        }
    }

    /// For people. None: no test has run.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let at = self.runs.iter().map(|run| run.at).max()?;
        let verdict = match self.bad.iter().map(|row| row.verdict).max() {
            _ if self.runs.iter().all(|run| run.skipped) => TestVerdict::Skipped,
            None | Some(Verdict::Skipped | Verdict::Passed) => TestVerdict::Passed,
            Some(Verdict::Degraded) => TestVerdict::Degraded,
            Some(Verdict::Failed) => TestVerdict::Failed,
        };
        let mut status = Status::new(verdict, at);
        status.failed = self.findings(Verdict::Failed);
        status.degraded = self.findings(Verdict::Degraded);
        let failed = self.failed();
        let counts = failed.at.is_some() && !failed.stand();
        status.overridden = self.accepted.as_ref().filter(|_| counts).map(|accepted| {
            let mut told = TestsOverride::new(accepted.at, accepted.reason.clone());
            told.by.clone_from(&accepted.by);
            told
        });
        Some(status)
    }

    fn of(&self, verdict: Verdict) -> impl Iterator<Item = &TestResult> {
        self.bad.iter().filter(move |row| row.verdict == verdict)
    }

    fn findings(&self, verdict: Verdict) -> Vec<String> {
        let mut findings: Vec<String> = self.of(verdict).take(NAMED).map(finding).collect();
        let more = self.of(verdict).count().saturating_sub(NAMED);
        if more > 0 {
            findings.push(format!("and {more} more"));
        }
        findings
    }
}

/// Test, device, cause.
fn finding(row: &TestResult) -> String {
    let device = if row.device.is_empty() { String::new() } else { format!(" {}", row.device) };
    format!("{}{device}: {}", row.script, row.message)
}

/// Stores the rows of runs that are not known yet. True: there were some, and the caller looks again.
///
/// # Errors
/// Fails if the database cannot be reached.
pub async fn settle(store: &Store, loaded: &Loaded) -> Result<bool, StoreError> {
    let runs = loaded.tests.runs.iter();
    let known: BTreeMap<&str, Attempt> = runs.map(|run| (run.script.as_str(), run.attempt)).collect();
    let mut rows = Vec::new();
    for fact in loaded.facts.iter().filter(|fact| fact.kind == "result") {
        let Some(attempt) = fact.attempt else { continue };
        // Results are large: only those of tasks with tests whose rows are missing are read.
        let tests = loaded.tasks.get(&attempt).map(tests_of).unwrap_or_default();
        if tests.iter().all(|test| known.get(test.name.as_str()).is_some_and(|known| *known >= attempt)) {
            continue;
        }
        let Some(Observed::Result(result)) = Observed::of(fact) else { continue };
        for test in &tests {
            let ends: Vec<&ScriptEnd> = result.scripts.iter().filter(|end| end.name == test.name).collect();
            rows.extend(rows_of(attempt, test, &ends, fact.stored_at));
        }
    }
    if rows.is_empty() {
        return Ok(false);
    }
    store.put_test_results(loaded.input.uid, &rows).await
}

/// A test of a task.
struct Test {
    /// Name of the Script.
    name: String,
    /// True: it was run for a device that was named.
    narrow: bool,
}

/// The tests of a task.
fn tests_of(task: &serde_json::Value) -> Vec<Test> {
    let scripts = task.get("scripts").and_then(serde_json::Value::as_array);
    let tests = scripts.into_iter().flatten().filter(|script| script.get("test") == Some(&true.into()));
    let test = |script: &serde_json::Value| {
        let name = script.get("name")?.as_str()?.to_owned();
        Some(Test { name, narrow: script.get("device").is_some_and(serde_json::Value::is_string) })
    };
    tests.filter_map(test).collect()
}

/// The last [`TEST_OUTPUT_BYTES`] of an output.
fn last_bytes(output: &str) -> String {
    let from = output.ceil_char_boundary(output.len().saturating_sub(TEST_OUTPUT_BYTES));
    output.get(from..).unwrap_or_default().to_owned()
}

/// The rows of a test, one row for each device. Several findings about a device become one row with the worst verdict and all messages. A
/// finding without a device is about the device for which the test was run. [`findings_of`] adds rows about the ends of runs.
fn rows_of(attempt: Attempt, test: &Test, ends: &[&ScriptEnd], at: Timestamp) -> Vec<TestResult> {
    let mut rows: BTreeMap<String, TestResult> = BTreeMap::new();
    for end in ends {
        for row in findings_of(end) {
            let device = row.device.as_ref().or(end.device.as_ref()).map(String::as_str).unwrap_or_default();
            let device =
                device.get(..device.floor_char_boundary(DEVICE_BYTES)).unwrap_or_default().to_owned();
            match rows.entry(device.clone()) {
                Entry::Vacant(place) => {
                    place.insert(TestResult {
                        attempt,
                        script: test.name.clone(),
                        device,
                        verdict: row.verdict,
                        figures: row.figures,
                        message: row.message,
                        output: last_bytes(&end.output),
                        seconds: end.seconds,
                        at,
                        narrow: test.narrow,
                    });
                }
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    known.verdict = known.verdict.max(row.verdict);
                    known.message = [known.message.as_str(), row.message.as_str()].join("; ");
                    known.figures.extend(row.figures);
                }
            }
        }
    }
    rows.into_values().collect()
}

/// The rows that a run wrote, and in these cases a row about its end:
///
/// - The run was skipped: this is the only row.
/// - The run failed, and no row that it wrote has the verdict `failed`.
/// - The run succeeded, and wrote no row.
fn findings_of(end: &ScriptEnd) -> Vec<TestRow> {
    let of_end = |verdict: Verdict, message: &str| TestRow {
        device: None,
        verdict,
        figures: BTreeMap::new(),
        message: message.to_owned(),
    };
    if let Some(reason) = &end.skipped {
        return vec![of_end(Verdict::Skipped, reason)];
    }
    let mut rows: Vec<TestRow> = end.rows.iter().take(TEST_ROWS).cloned().collect();
    let told = end.rows.iter().any(|row| row.verdict == Verdict::Failed);
    match &end.failure {
        Some(failure) if !told => rows.push(of_end(Verdict::Failed, failure)),
        None if end.rows.is_empty() => rows.push(of_end(Verdict::Passed, "it ended well")),
        _ => {}
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(failure: Option<&str>, rows: &[(&str, Verdict)]) -> ScriptEnd {
        let rows = rows.iter().map(|(device, verdict)| TestRow {
            device: (!device.is_empty()).then(|| (*device).to_owned()),
            verdict: *verdict,
            figures: BTreeMap::new(),
            message: "found".to_owned(),
        });
        ScriptEnd {
            name: "disks".to_owned(),
            failure: failure.map(ToOwned::to_owned),
            test: true,
            rows: rows.collect(),
            ..ScriptEnd::default()
        }
    }

    fn disks() -> Test {
        Test { name: "disks".to_owned(), narrow: false }
    }

    fn found(end: &ScriptEnd) -> Vec<(String, Verdict, String)> {
        found_of(&[end])
    }

    fn found_of(ends: &[&ScriptEnd]) -> Vec<(String, Verdict, String)> {
        let rows = rows_of(Attempt::new(7), &disks(), ends, Timestamp::UNIX_EPOCH);
        rows.into_iter().map(|row| (row.device, row.verdict, row.message)).collect()
    }

    #[test]
    fn a_test_without_rows_has_one_of_its_end() {
        let passed = (String::new(), Verdict::Passed, "it ended well".to_owned());
        assert_eq!(found(&end(None, &[])), [passed]);
        let failed = (String::new(), Verdict::Failed, "it was stopped".to_owned());
        assert_eq!(found(&end(Some("it was stopped"), &[])), [failed]);
    }

    #[test]
    fn a_test_for_other_hardware_has_a_row_of_the_reason() {
        let skipped = ScriptEnd { skipped: Some("no GPU".to_owned()), ..end(None, &[]) };
        assert_eq!(found(&skipped), [(String::new(), Verdict::Skipped, "no GPU".to_owned())]);
    }

    #[test]
    fn an_end_that_no_row_explains_is_a_row_too() {
        let rows = [("sda", Verdict::Passed), ("sdb", Verdict::Failed)];
        assert_eq!(found(&end(Some("exit status: 1"), &rows)).len(), 2, "sdb says why");
        let rows = found(&end(Some("it was stopped"), &[("sda", Verdict::Passed), ("", Verdict::Passed)]));
        assert_eq!(rows[0], (String::new(), Verdict::Failed, "found; it was stopped".to_owned()));
        assert_eq!(rows[1].0, "sda");
    }

    #[test]
    fn a_test_that_is_run_for_each_device_has_a_row_for_each() {
        let on = |device: &str, end: ScriptEnd| ScriptEnd { device: Some(device.to_owned()), ..end };
        let sda = on("sda", end(None, &[("", Verdict::Passed), ("sdb", Verdict::Degraded)]));
        let sdb = on("sdb", end(Some("it was stopped"), &[]));
        let sdc = on("sdc", end(None, &[]));
        let row = |device: &str, verdict, message: &str| (device.to_owned(), verdict, message.to_owned());
        assert_eq!(
            found_of(&[&sda, &sdb, &sdc]),
            [
                row("sda", Verdict::Passed, "found"),
                row("sdb", Verdict::Failed, "found; it was stopped"),
                row("sdc", Verdict::Passed, "it ended well"),
            ]
        );
    }

    #[test]
    fn of_several_findings_about_a_device_the_worst_counts() {
        let rows = [
            ("", Verdict::Passed),
            ("sda", Verdict::Failed),
            ("", Verdict::Failed),
            ("sda", Verdict::Passed),
        ];
        let failed = |device: &str| (device.to_owned(), Verdict::Failed, "found; found".to_owned());
        assert_eq!(found(&end(Some("exit status: 1"), &rows)), [failed(""), failed("sda")]);
    }

    #[test]
    fn the_latest_runs_say_how_the_hardware_is() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut tests = HardwareTests::default();
        assert_eq!(tests.status(), None);
        let run =
            |skipped| TestRun { script: "disks".to_owned(), attempt: Attempt::new(7), at: at(9), skipped };
        tests.runs = vec![run(true)];
        assert_eq!(tests.status().unwrap().verdict, TestVerdict::Skipped, "nothing was looked at");
        assert!(!tests.failed().stand());
        tests.runs.push(run(false));
        assert_eq!(tests.status().unwrap().verdict, TestVerdict::Passed);
        let end = end(None, &[("sda", Verdict::Degraded), ("sdb", Verdict::Failed)]);
        tests.bad = rows_of(Attempt::new(7), &disks(), &[&end], at(9));
        let status = tests.status().unwrap();
        assert_eq!((status.verdict, status.at), (TestVerdict::Failed, at(9)));
        assert_eq!(
            (status.failed, status.degraded),
            (vec!["disks sdb: found".to_owned()], vec!["disks sda: found".to_owned()])
        );
        assert!(tests.failed().stand() && status.overridden.is_none());
        let accepted =
            |second| TestsAccepted { at: at(second), by: Some("ops".into()), reason: "spare".into() };
        tests.accepted = Some(accepted(8));
        assert!(tests.failed().stand(), "a test that failed later counts");
        tests.accepted = Some(accepted(10));
        assert!(!tests.failed().stand());
        assert_eq!(tests.status().unwrap().overridden.unwrap().reason, "spare");
    }
}
