//! Output of rows: into the file of results, or as a table.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use basalt_api::agent::{RESULTS_VARIABLE, TestRow, Verdict};

use super::{Finding, tell};

/// The rows of a test.
#[derive(Debug)]
pub(super) struct Results {
    file: Option<File>,
    rows: Vec<TestRow>,
    error: Option<String>,
}

impl Results {
    /// Rows for the file at `path`. Without a path they are printed.
    pub(super) fn open(path: Option<&OsStr>) -> Result<Self, String> {
        let opened = path.map(|path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.map_err(|error| {
                format!("{RESULTS_VARIABLE}={} cannot be opened: {error}", Path::new(path).display())
            })
        });
        Ok(Self { file: opened.transpose()?, rows: Vec::new(), error: None })
    }

    /// Writes a row immediately, since a test may be stopped at any time.
    pub(super) fn add(&mut self, finding: Finding) {
        let row = finding.row;
        let device = row.device.as_deref().unwrap_or("machine");
        tell(&format!("{device}: {}: {}", word(row.verdict), row.message));
        if let Some(file) = &mut self.file {
            let line = serde_json::to_string(&row).map_err(std::io::Error::other);
            let written = line.and_then(|line| file.write_all(format!("{line}\n").as_bytes()));
            if let Err(error) = written {
                self.error =
                    Some(format!("a row cannot be written to the file of {RESULTS_VARIABLE}: {error}"));
            }
        }
        self.rows.push(row);
    }

    /// The worst verdict of all rows.
    pub(super) fn close(self) -> Result<Verdict, String> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.file.is_none() {
            tell(&table(&self.rows));
        }
        Ok(self.rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Passed))
    }

    /// The rows, for tests.
    #[cfg(test)]
    pub(super) fn rows(&self) -> &[TestRow] {
        &self.rows
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Skipped => "skipped",
        Verdict::Passed => "passed",
        Verdict::Degraded => "degraded",
        Verdict::Failed => "failed",
    }
}

/// The rows for a terminal.
fn table(rows: &[TestRow]) -> String {
    let device = |row: &TestRow| row.device.clone().unwrap_or_else(|| "machine".to_owned());
    let width = rows.iter().map(|row| device(row).chars().count()).max().unwrap_or(0).max(6);
    let mut text = format!("\n{:width$}  {:8}  FIGURES AND MESSAGE", "DEVICE", "VERDICT");
    for row in rows {
        let figures: Vec<String> =
            row.figures.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (device, verdict) = (device(row), word(row.verdict));
        text.push_str(&format!("\n{device:width$}  {verdict:8}  {}", figures.join(" ")));
        text.push_str(&format!("\n{:width$}  {:8}  {}", "", "", row.message));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_a_line_of_the_file_and_the_worst_verdict_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        let mut results = Results::open(Some(path.as_os_str())).unwrap();
        results.add(Finding::at(None));
        let mut bad = Finding::at(Some("sda"));
        bad.add(Verdict::Failed, "two\nlines");
        results.add(bad);
        let rows: Vec<TestRow> = std::fs::read_to_string(&path)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(rows, results.rows());
        assert_eq!(results.close(), Ok(Verdict::Failed));
        assert!(Results::open(Some(OsStr::new("/no/such/directory/rows"))).unwrap_err().contains("/no/such"));
    }

    #[test]
    fn a_table_names_devices_and_figures() {
        let mut finding = Finding::at(Some("nvme0n1"));
        finding.figure("celsius", 41.0);
        finding.add(Verdict::Degraded, "worn out");
        let text = table(&[finding.row]);
        assert!(text.contains("nvme0n1  degraded  celsius=41") && text.contains("worn out"), "{text}");
    }
}
