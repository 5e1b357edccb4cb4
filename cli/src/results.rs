//! `basalt results`: findings of hardware tests of a machine.

use basalt_api::agent::Verdict;
use basalt_api::wire::TestResult;

use crate::output::{line, show, show_exactly, show_json};
use crate::region::{Connection, Failed};
use crate::subject::{machine, script};

/// Arguments of `basalt results`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The machine's name
    #[arg(value_parser = machine)]
    machine: String,
    /// One test alone, by the name of its Script
    #[arg(long = "test", value_name = "SCRIPT", value_parser = script)]
    test: Option<String>,
    /// Earlier runs too
    #[arg(long)]
    history: bool,
    /// Show what each test printed last
    #[arg(long)]
    details: bool,
    /// text for people, json for programs
    #[arg(long, short, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let client = connection.client()?;
    let found = client.test_results(&args.machine, args.test.as_deref(), !args.history).await?;
    if args.output == "json" {
        show_json(&found);
        return Ok(());
    }
    if found.items.is_empty() {
        let machine = &args.machine;
        show(&format!(
            "no test of {machine} has ended; `basalt test {machine} --test basalt-memory` runs one\n"
        ));
        return Ok(());
    }
    show(&table(&found.items));
    if args.details {
        for (head, output) in outputs(&found.items) {
            show(&format!("\n{head}:\n"));
            show_exactly(output);
        }
    }
    Ok(())
}

/// Each output once, below its test and devices. Runs for several devices have separate outputs.
fn outputs(rows: &[TestResult]) -> Vec<(String, &str)> {
    let of_one_run = |one: &TestResult, other: &TestResult| {
        (&one.script, one.attempt, &one.output) == (&other.script, other.attempt, &other.output)
    };
    rows.chunk_by(of_one_run).filter_map(head).collect()
}

fn head(rows: &[TestResult]) -> Option<(String, &str)> {
    let first = rows.first()?;
    let devices: Vec<&str> = rows.iter().filter_map(|row| row.device.as_deref()).collect();
    let on = if devices.is_empty() { String::new() } else { format!(" {}", devices.join(", ")) };
    let head = format!("{}{on} (attempt {})", first.script, first.attempt);
    Some((line(&head).to_string(), first.output.as_str()))
}

/// One line for each finding.
fn table(rows: &[TestResult]) -> String {
    let device = |row: &TestResult| row.device.clone().unwrap_or_else(|| "-".to_owned());
    let widest = |of: &dyn Fn(&TestResult) -> String| {
        rows.iter().map(|row| line(&of(row)).chars().count()).max().unwrap_or_default()
    };
    let (scripts, devices) = (widest(&|row| row.script.clone()), widest(&device));
    let lines = rows.iter().map(|row| {
        let at = row.at.strftime("%Y-%m-%d %H:%M:%S");
        let device = device(row);
        let (script, device) = (line(&row.script), line(&device));
        let verdict = match row.verdict {
            Verdict::Skipped => "skipped",
            Verdict::Passed => "passed",
            Verdict::Degraded => "degraded",
            Verdict::Failed => "FAILED",
        };
        let figures: Vec<String> =
            row.figures.iter().map(|(name, value)| format!("{name}={value:.1}")).collect();
        let figures = if figures.is_empty() { String::new() } else { format!(" ({})", figures.join(", ")) };
        let message = line(&row.message);
        format!("{at}  {script:scripts$}  {device:devices$}  {verdict:8}  {message}{}\n", line(&figures))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_output_is_shown_once_for_the_devices_of_its_run() {
        let row = |script: &str, device: &str, output: &str| {
            json!({"script": script, "device": device, "verdict": "passed",
            "message": "", "output": output, "seconds": 1, "attempt": 7, "at": "2026-01-31T12:00:00Z"})
        };
        let rows = [
            row("disks", "sda", "all\n"),
            row("disks", "sdb", "all\n"),
            row("scan", "sda", "one\n"),
            row("scan", "sdb", "two\n"),
        ];
        let rows: Vec<TestResult> = serde_json::from_value(json!(rows)).unwrap();
        assert_eq!(
            outputs(&rows),
            [
                ("disks sda, sdb (attempt 7)".to_owned(), "all\n"),
                ("scan sda (attempt 7)".to_owned(), "one\n"),
                ("scan sdb (attempt 7)".to_owned(), "two\n"),
            ]
        );
    }

    #[test]
    fn a_finding_is_a_line_that_names_test_device_and_cause() {
        let rows: Vec<TestResult> = serde_json::from_value(json!([
            {"script": "basalt-disks", "device": "sda", "verdict": "failed", "message": "12 sectors cannot be read",
             "figures": {"celsius": 41}, "seconds": 3.5, "attempt": 7, "at": "2026-01-31T12:00:00Z"},
            {"script": "mine", "verdict": "passed", "message": "a\u{1b}[31mb", "seconds": 1, "attempt": 7, "at": "2026-01-31T12:00:00Z"},
        ]))
        .unwrap();
        let shown = table(&rows);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[0],
            "2026-01-31 12:00:00  basalt-disks  sda  FAILED    12 sectors cannot be read (celsius=41.0)"
        );
        assert!(lines[1].starts_with("2026-01-31 12:00:00  mine          -    passed    a"), "{}", lines[1]);
        assert!(!shown.contains('\u{1b}'), "a terminal takes no orders from a machine");
    }
}
