//! Scripts of a task: all run, in their order, except those for other hardware. A script that fails fails the task. The failure of
//! a test of the hardware is a result of the machine, and none of the task.

use std::cell::LazyCell;

use basalt_api::agent::{FailureCode, Script, ScriptEnd, TEST_OUTPUT_BYTES};
use basalt_api::hardware::{self, Hardware};

use crate::disk::{Disks, rules};
use crate::failure::Failure;
use crate::install::not_expired;
use crate::inventory;
use crate::report::Reporter;
use crate::root::Root;
use crate::work::Context;
use crate::{say, script};

/// Runs them beside a task that touches no disk itself. A task that is too late, or that a later one has overtaken, runs none: a
/// rack that was cut off may still hold it.
///
/// # Errors
/// Which of them failed; that the task is too late; that a disk cannot be read.
pub fn run_alone(
    context: &Context<'_>,
    root: &Root,
    disks: &Disks,
    reporter: &mut Reporter,
    ends: &mut Vec<ScriptEnd>,
) -> Result<Option<u64>, Failure> {
    if context.task.scripts.is_empty() {
        return Ok(None);
    }
    not_expired(context)?;
    if let Some(found) = rules::outranked(context.task, &disks.observe_all()?) {
        return Ok(Some(found));
    }
    run(context, root, reporter, ends).map(|()| None)
}

/// Runs them.
///
/// # Errors
/// Which of them failed, and how.
pub fn run(
    context: &Context<'_>,
    root: &Root,
    reporter: &mut Reporter,
    ends: &mut Vec<ScriptEnd>,
) -> Result<(), Failure> {
    for run in runs(&context.task.scripts, root) {
        let script = run.script;
        ends.push(match run.skipped {
            Some(reason) => left_out(script, reason),
            None => end(script, script::run(context.task, script, context.again, reporter)),
        });
    }
    judge(ends)
}

/// Runs the script that a person asked for. Its output, if it ran, and its end.
///
/// # Errors
/// Fails if the script fails, or if it is for other hardware: a person who names a machine expects a run.
pub fn run_asked(
    context: &Context<'_>,
    root: &Root,
    script: &Script,
    reporter: &mut Reporter,
) -> (Option<String>, Result<(), Failure>) {
    match runs(std::slice::from_ref(script), root).pop() {
        Some(Run { skipped: Some(reason), .. }) => (None, Err(not_run(script, &reason))),
        _ => {
            let ended = script::run(context.task, script, context.again, reporter);
            (Some(ended.output), ended.done)
        }
    }
}

/// The failure of a script that was asked for, on a machine that it is not for.
#[must_use]
pub fn not_run(script: &Script, reason: &str) -> Failure {
    let message = format!("script {} was not run: {reason}", script.name);
    Failure::new(FailureCode::ScriptFailed, message)
}

/// One run of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// The script.
    pub script: &'a Script,
    /// Why it is left out on this machine.
    pub skipped: Option<String>,
}

/// The runs of scripts on a machine, in their order.
#[must_use]
pub fn runs<'a>(scripts: &'a [Script], root: &Root) -> Vec<Run<'a>> {
    let hardware: LazyCell<Hardware, _> = LazyCell::new(|| inventory::hardware(root));
    let run = |script: &'a Script| {
        // A machine has thousands of devices: they are read for filters alone.
        let has_filters = !script.hardware.is_empty();
        let skipped = has_filters.then(|| hardware::mismatch(&script.hardware, &hardware)).flatten();
        Run { script, skipped }
    };
    scripts.iter().map(run).collect()
}

/// The end of a script that is not run on this machine.
#[must_use]
pub fn left_out(script: &Script, reason: String) -> ScriptEnd {
    say!("script {} is skipped: {reason}", script.name);
    ScriptEnd { name: script.name.clone(), skipped: Some(reason), test: script.test, ..ScriptEnd::default() }
}

/// The end as the region reads it. The output of a test goes with it; that of another script is in the log alone.
fn end(script: &Script, ended: script::Ended) -> ScriptEnd {
    ScriptEnd {
        name: script.name.clone(),
        failure: ended.done.err().map(|failure| failure.message),
        test: script.test,
        rows: ended.rows,
        output: if script.test { last(&ended.output, TEST_OUTPUT_BYTES) } else { String::new() },
        seconds: ended.seconds,
        skipped: None,
    }
}

/// The end of a text, at most so many bytes.
fn last(text: &str, bytes: usize) -> String {
    let least = text.len().saturating_sub(bytes);
    let from = (least..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text.get(from..).unwrap_or_default().to_owned()
}

/// The end of a task whose scripts ended so. Tests and skipped scripts do not count.
///
/// # Errors
/// [`FailureCode::ScriptFailed`], naming each that failed.
pub fn judge(ends: &[ScriptEnd]) -> Result<(), Failure> {
    let counted: Vec<&ScriptEnd> = ends.iter().filter(|end| !end.test && end.skipped.is_none()).collect();
    let failures: Vec<&str> = counted.iter().filter_map(|end| end.failure.as_deref()).collect();
    match failures.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::new(FailureCode::ScriptFailed, (*one).to_owned())),
        several => {
            let message =
                format!("{} of {} scripts failed: {}", several.len(), counted.len(), several.join("; "));
            Err(Failure::new(FailureCode::ScriptFailed, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, failure: Option<&str>) -> ScriptEnd {
        ScriptEnd { name: name.to_owned(), failure: failure.map(ToOwned::to_owned), ..ScriptEnd::default() }
    }

    #[test]
    fn every_script_that_failed_is_told() {
        assert!(judge(&[]).is_ok() && judge(&[named("a", None)]).is_ok());
        let one = judge(&[named("a", None), named("b", Some("script b ended with 1"))]).unwrap_err();
        assert_eq!((one.code, one.message.as_str()), (FailureCode::ScriptFailed, "script b ended with 1"));
        let two =
            judge(&[named("a", Some("a: no")), named("b", None), named("c", Some("c: no"))]).unwrap_err();
        assert_eq!(two.message, "2 of 3 scripts failed: a: no; c: no");
    }

    #[test]
    fn a_test_that_fails_does_not_fail_the_task() {
        let test = ScriptEnd { test: true, ..named("t", Some("t: no")) };
        assert!(judge(std::slice::from_ref(&test)).is_ok());
        let one = judge(&[test, named("a", Some("a: no")), named("b", Some("b: no"))]).unwrap_err();
        assert_eq!(one.message, "2 of 2 scripts failed: a: no; b: no");
    }

    #[test]
    fn a_script_for_other_hardware_is_left_out_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("sys/devices/pci0000:00/0000:00:1f.6/modalias", "pci:v00008086d000015BEsv00001028sd00000001\n");
        put("sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/modalias", "usb:v0BDAp8153d3100dc00\n");
        put("sys/class/dmi/id/sys_vendor", "Dell Inc.\n");
        put("sys/class/dmi/id/board_name", "0XYZ\n");
        let root = Root::at(dir.path());
        let skipped = |filters: &[&str]| {
            let hardware = filters.iter().map(|it| (*it).to_owned()).collect();
            let script = Script { name: "flash".to_owned(), hardware, ..Script::default() };
            runs(&[script], &root)[0].skipped.clone()
        };
        let fitting = ["pci:8086:15be", "usb:0bda:*", "modalias:usb:v0BDA*", "system_vendor:dell*"];
        for filter in fitting.into_iter().chain(["mainboard_product:0xyz"]) {
            assert_eq!(skipped(&[filter]), None, "{filter}");
        }
        assert_eq!((skipped(&[]), skipped(&["system_version:*", "pci:8086:*"])), (None, None));
        let why = "no hardware of the machine matches pci:10de:*, system_product:*";
        assert_eq!(skipped(&["pci:10de:*", "system_product:*"]).as_deref(), Some(why));

        let script = Script { name: "flash".to_owned(), test: true, ..Script::default() };
        let end = left_out(&script, why.to_owned());
        assert_eq!((end.skipped.as_deref(), end.failure.as_deref(), end.test), (Some(why), None, true));
        let failed = [end, named("a", Some("a: no"))];
        assert_eq!(judge(&failed).unwrap_err().message, "a: no", "one ran");
    }

    #[test]
    fn rows_and_output_go_with_a_test_alone() {
        let run = |test: bool| {
            let script = Script {
                name: "memory".to_owned(),
                timeout_seconds: 1,
                repeats: true,
                test,
                ..Script::default()
            };
            let done = Err(Failure::new(FailureCode::ScriptFailed, "no"));
            let output = format!("\u{fc}{}", "x".repeat(TEST_OUTPUT_BYTES - 1));
            end(&script, script::Ended { done, output, rows: Vec::new(), seconds: 1.5 })
        };
        let test = run(true);
        assert_eq!((test.test, test.seconds, test.failure.as_deref()), (true, 1.5, Some("no")));
        // The first character does not fit whole.
        assert_eq!(test.output, "x".repeat(TEST_OUTPUT_BYTES - 1));
        let other = run(false);
        assert_eq!((other.test, other.seconds, other.output.as_str()), (false, 1.5, ""));
    }
}
