//! The rows of a hardware test: lines of JSON, parsed with bounds, since a script may write anything.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use basalt_api::agent::{TestRow, Verdict};

/// Most bytes of the file that are read.
const FILE_BYTES: u64 = 1024 * 1024;
/// Most characters of a device and of the name of a figure.
const NAME: usize = 64;
/// Most characters of a message.
const MESSAGE: usize = 1000;
/// Most figures of a row.
const FIGURES: usize = 32;
/// Most characters of a line that an error quotes.
const QUOTED: usize = 100;

/// The rows in a file, at most `limit`.
#[must_use]
pub fn read(path: &Path, limit: usize) -> Vec<TestRow> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => rows(&String::from_utf8_lossy(&bytes), limit),
        Err(error) => vec![failed(format!("the results of the test cannot be read: {error}"))],
    }
}

/// The rows in a text. An invalid line becomes a failed row.
fn rows(text: &str, limit: usize) -> Vec<TestRow> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let mut rows: Vec<TestRow> = lines.take(limit + 1).map(|(index, line)| row(index + 1, line)).collect();
    if rows.len() > limit {
        rows.truncate(limit.saturating_sub(1));
        rows.push(failed(format!(
            "the test wrote more than {limit} rows, and the rest was left out: write fewer"
        )));
    }
    rows
}

fn row(number: usize, line: &str) -> TestRow {
    match serde_json::from_str::<TestRow>(line) {
        Ok(row) => TestRow {
            device: row.device.map(|device| first(&device, NAME)),
            message: first(&row.message, MESSAGE),
            figures: row
                .figures
                .into_iter()
                .take(FIGURES)
                .map(|(name, value)| (first(&name, NAME), value))
                .collect(),
            verdict: row.verdict,
        },
        Err(error) => failed(format!(
            "line {number} of the results is no row of a test ({error}): {:?}",
            first(line, QUOTED)
        )),
    }
}

fn failed(message: String) -> TestRow {
    TestRow { device: None, verdict: Verdict::Failed, figures: Default::default(), message }
}

fn first(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::TEST_ROWS;

    use super::*;

    #[test]
    fn a_line_that_is_no_row_fails_and_is_named() {
        let text = "{\"device\":\"sda\",\"verdict\":\"degraded\",\"figures\":{\"celsius\":41}}\n\nno row\n{\"verdict\":\"fine\"}\n";
        let rows = rows(text, TEST_ROWS);
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].device.as_deref(), rows[0].verdict), (Some("sda"), Verdict::Degraded));
        assert_eq!(rows[0].figures["celsius"], 41.0);
        for (row, says) in rows[1..].iter().zip(["line 3", "line 4"]) {
            assert_eq!(row.verdict, Verdict::Failed);
            assert!(row.message.starts_with(says), "{}", row.message);
        }
        assert!(rows[1].message.ends_with("\"no row\""), "{}", rows[1].message);
    }

    #[test]
    fn rows_and_their_texts_are_bounded() {
        let figures: Vec<String> = (0..40).map(|n| format!("\"{}{n:02}\":1", "f".repeat(100))).collect();
        let line = format!(
            "{{\"device\":\"{}\",\"verdict\":\"passed\",\"message\":\"{}\",\"figures\":{{\"a\":1,{}}}}}",
            "d".repeat(100),
            "m".repeat(2000),
            figures.join(",")
        );
        let row = row(1, &line);
        assert_eq!(row.device.unwrap().len(), NAME);
        assert_eq!(row.message.len(), MESSAGE);
        assert!(row.figures.len() <= FIGURES && row.figures.keys().all(|name| name.len() <= NAME));

        let passed = "{\"verdict\":\"passed\"}\n";
        assert!(rows(&passed.repeat(TEST_ROWS), TEST_ROWS).iter().all(|row| row.verdict == Verdict::Passed));
        let many = rows(&passed.repeat(TEST_ROWS + 1), TEST_ROWS);
        assert_eq!((many.len(), many[TEST_ROWS - 1].verdict), (TEST_ROWS, Verdict::Failed));
    }

    #[test]
    fn a_file_that_a_test_removed_is_a_failure() {
        let rows = read(Path::new("/no/such/file"), TEST_ROWS);
        assert_eq!((rows.len(), rows[0].verdict), (1, Verdict::Failed));
    }
}
