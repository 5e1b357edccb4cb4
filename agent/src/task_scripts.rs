//! The scripts that belong to a task: all of them are run, in their order, and the task fails when one of them did.

use basalt_api::agent::{FailureCode, ScriptEnd};

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
        let (done, _) = script::run(context.task, script, context.again, reporter);
        let failure = done.err().map(|failure| failure.message);
        ends.push(ScriptEnd { name: script.name.clone(), failure, ..ScriptEnd::default() });
    }
    judge(ends)
}

/// What becomes of a task whose scripts ended so.
///
/// # Errors
/// [`FailureCode::ScriptFailed`], naming each that failed.
pub fn judge(ends: &[ScriptEnd]) -> Result<(), Failure> {
    let failures: Vec<&str> = ends.iter().filter_map(|end| end.failure.as_deref()).collect();
    match failures.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::new(FailureCode::ScriptFailed, (*one).to_owned())),
        several => {
            let message =
                format!("{} of {} scripts failed: {}", several.len(), ends.len(), several.join("; "));
            Err(Failure::new(FailureCode::ScriptFailed, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(name: &str, failure: Option<&str>) -> ScriptEnd {
        ScriptEnd { name: name.to_owned(), failure: failure.map(ToOwned::to_owned), ..ScriptEnd::default() }
    }

    #[test]
    fn every_script_that_failed_is_told() {
        assert!(judge(&[]).is_ok() && judge(&[end("a", None)]).is_ok());
        let one = judge(&[end("a", None), end("b", Some("script b ended with 1"))]).unwrap_err();
        assert_eq!((one.code, one.message.as_str()), (FailureCode::ScriptFailed, "script b ended with 1"));
        let two = judge(&[end("a", Some("a: no")), end("b", None), end("c", Some("c: no"))]).unwrap_err();
        assert_eq!(two.message, "2 of 3 scripts failed: a: no; c: no");
    }
}
