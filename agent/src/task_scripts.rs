//! Scripts of a task: all run, in their order. A script that fails fails the task. The failure of a test
//! of the hardware is a result of the machine, and none of the task.

use basalt_api::agent::{FailureCode, Script, ScriptEnd, TEST_OUTPUT_BYTES};

use crate::disk::{Disks, rules};
use crate::failure::Failure;
use crate::install::not_expired;
use crate::report::Reporter;
use crate::script;
use crate::work::Context;

/// Runs them beside a task that touches no disk itself. A task that is too late, or that a later one has overtaken, runs none: a
/// rack that was cut off may still hold it.
///
/// # Errors
/// Which of them failed; that the task is too late; that a disk cannot be read.
pub fn run_alone(
    context: &Context<'_>,
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
    run(context, reporter, ends).map(|()| None)
}

/// Runs them.
///
/// # Errors
/// Which of them failed, and how.
pub fn run(context: &Context<'_>, reporter: &mut Reporter, ends: &mut Vec<ScriptEnd>) -> Result<(), Failure> {
    for script in &context.task.scripts {
        ends.push(end(script, script::run(context.task, script, context.again, reporter)));
    }
    judge(ends)
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
    }
}

/// The end of a text, at most so many bytes.
fn last(text: &str, bytes: usize) -> String {
    let least = text.len().saturating_sub(bytes);
    let from = (least..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text.get(from..).unwrap_or_default().to_owned()
}

/// The end of a task whose scripts ended so. Tests do not count.
///
/// # Errors
/// [`FailureCode::ScriptFailed`], naming each that failed.
pub fn judge(ends: &[ScriptEnd]) -> Result<(), Failure> {
    let counted: Vec<&ScriptEnd> = ends.iter().filter(|end| !end.test).collect();
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
    fn rows_and_output_go_with_a_test_alone() {
        let run = |test: bool| {
            let script = Script {
                name: "memory".to_owned(),
                content: String::new(),
                arguments: Vec::new(),
                timeout_seconds: 1,
                repeats: true,
                test,
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
