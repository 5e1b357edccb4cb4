//! Tests of the hardware: `basalt-agent test NAME [--PARAMETER=VALUE …]`.
//!
//! A test prints its progress into the log of its script. Each finding is a [`TestRow`]: a line of JSON in the file
//! that [`RESULTS_VARIABLE`] names. Without that variable the rows are printed as a table in the end.
//!
//! | exit status | meaning |
//! | --- | --- |
//! | 0 | no row failed |
//! | 1 | a row failed, or the rows cannot be written |
//! | 2 | the arguments are wrong |
//!
//! Verdicts are pure functions of the data that was read. Kernel files are read below a [`Root`].

mod cpu;
mod disks;
mod memory;
mod network;
mod parameters;
mod results;
pub(crate) mod smart;

use std::io::Write;
use std::process::ExitCode;

use basalt_api::agent::{RESULTS_VARIABLE, TestRow, Verdict};

use crate::root::Root;
use parameters::{Parameter, Parameters};
use results::Results;

/// A test, as it is called.
struct Test {
    name: &'static str,
    parameters: &'static [Parameter],
    run: fn(&Root, &Parameters, &mut Results) -> Result<(), String>,
}

const TESTS: [Test; 4] = [
    Test { name: "memory", parameters: &memory::PARAMETERS, run: memory::run },
    Test { name: "cpu", parameters: &cpu::PARAMETERS, run: cpu::run },
    Test { name: "disks", parameters: &disks::PARAMETERS, run: disks::run },
    Test { name: "network", parameters: &network::PARAMETERS, run: network::run },
];

/// Runs the test that the arguments name.
#[must_use]
pub fn run(args: &[String]) -> ExitCode {
    let (test, parameters) = match parsed(args) {
        Ok(parsed) => parsed,
        Err(message) => return refuse(&message),
    };
    let mut results = match Results::open(std::env::var_os(RESULTS_VARIABLE).as_deref()) {
        Ok(results) => results,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(message) = (test.run)(&Root::system(), &parameters, &mut results) {
        return refuse(&message);
    }
    match results.close() {
        Ok(Verdict::Skipped | Verdict::Passed | Verdict::Degraded) => ExitCode::SUCCESS,
        Ok(Verdict::Failed) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(2)
}

fn parsed(args: &[String]) -> Result<(&'static Test, Parameters), String> {
    let (name, rest) = args.split_first().ok_or_else(usage)?;
    let test = TESTS.iter().find(|test| test.name == name);
    let test = test.ok_or_else(|| format!("there is no test {name:?}\n{}", usage()))?;
    let parameters = Parameters::parse(test.parameters, rest);
    parameters.map(|parameters| (test, parameters)).map_err(|why| format!("test {name}: {why}\n{}", usage()))
}

fn usage() -> String {
    let mut text = "usage: basalt-agent test NAME [--PARAMETER=VALUE …]\n".to_owned();
    for test in &TESTS {
        text.push_str(&format!("\n  {}\n", test.name));
        for parameter in test.parameters {
            text.push_str(&format!("    {parameter}\n"));
        }
    }
    text
}

/// Prints a line of progress. A closed pipe does not stop the test.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Findings about one part of the hardware. The worst verdict counts.
#[derive(Debug)]
struct Finding {
    row: TestRow,
}

impl Finding {
    /// Nothing found yet.
    fn at(device: Option<&str>) -> Self {
        let device = device.map(str::to_owned);
        Self {
            row: TestRow {
                device,
                verdict: Verdict::Passed,
                figures: Default::default(),
                message: String::new(),
            },
        }
    }

    /// Adds a sentence. Sentences keep their order.
    fn add(&mut self, verdict: Verdict, sentence: impl AsRef<str>) {
        self.row.verdict = self.row.verdict.max(verdict);
        if !self.row.message.is_empty() {
            self.row.message.push_str("; ");
        }
        self.row.message.push_str(sentence.as_ref());
    }

    /// Adds a measured value, rounded to two decimals.
    fn figure(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.row.figures.insert(name.to_owned(), (value * 100.0).round() / 100.0);
        }
    }
}

/// A count as a figure. Counts above 2^53 are rounded.
#[expect(clippy::cast_precision_loss, reason = "figures are read by people")]
const fn figure(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(args: &[&str]) -> Result<Parameters, String> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        parsed(&args).map(|(_, parameters)| parameters)
    }

    #[test]
    fn wrong_arguments_say_the_right_ones() {
        for (args, says) in [
            (&[][..], "usage: basalt-agent test NAME"),
            (&["gpu"], "there is no test \"gpu\""),
            (&["memory", "--speed=1"], "test memory: there is no parameter --speed"),
            (&["memory", "percent"], "test memory: \"percent\" is not --PARAMETER=VALUE"),
            (&["memory", "--percent=101"], "--percent=101 is not a whole number from 1 to 98"),
            (&["cpu", "--seconds=x"], "--seconds=x is not a whole number from 1 to 604800"),
        ] {
            let why = arguments(args).unwrap_err();
            assert!(why.contains(says), "{why}");
            assert!(why.contains("--celsius=95") && why.contains("--device="), "{why}");
        }
    }

    #[test]
    fn the_last_of_two_values_counts_and_defaults_hold() {
        let parameters = arguments(&["memory", "--seconds=5", "--seconds=6"]).unwrap();
        assert_eq!((parameters.number("seconds"), parameters.number("percent")), (6, 90));
        assert_eq!(arguments(&["disks", "--device=sda"]).unwrap().text("device"), Some("sda"));
        assert_eq!(arguments(&["disks", "--device="]).unwrap().text("device"), None);
    }

    #[test]
    fn the_worst_finding_decides() {
        let mut finding = Finding::at(Some("sda"));
        finding.add(Verdict::Failed, "cannot be read");
        finding.add(Verdict::Degraded, "is worn out");
        finding.figure("mib_read", 1.0 / 3.0);
        finding.figure("read_mb_per_s", f64::NAN);
        assert_eq!(finding.row.verdict, Verdict::Failed);
        assert_eq!(finding.row.message, "cannot be read; is worn out");
        assert_eq!(finding.row.figures.into_iter().collect::<Vec<_>>(), [("mib_read".to_owned(), 0.33)]);
    }
}
