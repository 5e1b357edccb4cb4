//! Scripts of a task. All are run, in their order, except those for other hardware. If a script fails, the task fails. The failure of a
//! hardware test is a result of the machine, and does not fail the task.

use basalt_api::agent::{FailureCode, FirstBoot, OUTPUT_BYTES, Script, ScriptEnd, TEST_OUTPUT_BYTES};

use crate::disk::{Disks, rules};
use crate::failure::Failure;
use crate::install::not_expired;
use crate::report::Reporter;
use crate::restarts::{Asks, Restart, Restarts};
use crate::root::Root;
use crate::runs::{self, Run};
use crate::script::Place;
use crate::work::Context;
use crate::{say, script};

/// Most bytes of the outputs of a test that was run for several devices. Each run has an equal part, and [`LEAST_BYTES`] at least.
const DEVICES_OUTPUT_BYTES: usize = 64 * 1024;
const LEAST_BYTES: usize = 512;
/// Most failures that a message names.
const NAMED: usize = 10;

/// The reason why the scripts of a task did not run to their end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The task failed.
    Failed(Failure),
    /// The machine has to be restarted.
    Restart(Restart),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Restart> for Stop {
    fn from(restart: Restart) -> Self {
        Self::Restart(restart)
    }
}

/// Runs the scripts of a task that touches no disk itself. No script runs if the task has expired, or if a later task has written to a
/// disk: a rack without a connection to its region may still deliver an old task.
///
/// # Errors
/// A script failed or asked for a restart, the task has expired, or a disk cannot be read.
pub fn run_alone(
    context: &Context<'_>,
    root: &Root,
    disks: &Disks,
    reporter: &mut Reporter,
    restarts: &mut Restarts<'_>,
    ends: &mut Vec<ScriptEnd>,
) -> Result<Option<u64>, Stop> {
    if context.task.scripts.is_empty() {
        return Ok(None);
    }
    not_expired(context)?;
    if let Some(found) = rules::outranked(context.task, &disks.observe_all()?) {
        return Ok(Some(found));
    }
    restarts.arrive().map_err(|why| Failure::new(FailureCode::Other, why))?;
    for group in runs::groups(runs::of(&context.task.scripts, root)) {
        let carry_out = |runs: &[Run<'_>]| script::run_all(&Place::here(), context.task, runs, reporter);
        carry_on(restarts, group, carry_out, ends)?;
    }
    Ok(judge(ends).map(|()| None)?)
}

/// Carries out a group, except for runs that ended in an earlier boot.
fn carry_on(
    restarts: &mut Restarts<'_>,
    group: Vec<Run<'_>>,
    carry_out: impl FnOnce(&[Run<'_>]) -> Vec<script::Ended>,
    ends: &mut Vec<ScriptEnd>,
) -> Result<(), Restart> {
    let (known, group): (Vec<_>, Vec<_>) =
        group.into_iter().map(|run| (restarts.end_of(&run), run)).partition(|(end, _)| end.is_some());
    ends.extend(known.into_iter().filter_map(|(end, _)| end));
    let group: Vec<Run<'_>> = group.into_iter().map(|(_, run)| run).collect();
    match group.as_slice() {
        [] => {}
        // Validation refuses other runs beside such a script.
        [run] if run.script.may_reboot && run.skipped.is_none() => {
            ends.push(restarts.carry_out(run, |run| one(run, carry_out))?);
        }
        _ => {
            let new = match restarts.begin_all(&group) {
                Ok(()) => ends_of(group, restarts.is_unannounced(), carry_out),
                Err(why) => group.iter().map(|run| not_begun(run, &why)).collect(),
            };
            restarts.add(&new);
            ends.extend(new);
        }
    }
    Ok(())
}

/// The end of a run that brought the machine down too often.
fn not_begun(run: &Run<'_>, why: &str) -> ScriptEnd {
    match &run.skipped {
        Some(reason) => left_out(run, reason),
        None => ScriptEnd { failure: Some(why.to_owned()), ..named(run) },
    }
}

/// Carries out one run.
fn one(run: &Run<'_>, carry_out: impl FnOnce(&[Run<'_>]) -> Vec<script::Ended>) -> (ScriptEnd, Option<Asks>) {
    match carry_out(std::slice::from_ref(run)).pop() {
        Some(ended) => {
            let asks = ended.asks;
            (end(run, ended), asks)
        }
        None => {
            (ScriptEnd { failure: Some(format!("script {} was not run", run.label())), ..named(run) }, None)
        }
    }
}

/// Runs the scripts of a task that writes to disks, and adds their ends to `ends`. They have no restart.
///
/// # Errors
/// A script failed; the message names it and its error.
pub fn run(
    context: &Context<'_>,
    root: &Root,
    place: &Place,
    reporter: &mut Reporter,
    ends: &mut Vec<ScriptEnd>,
) -> Result<(), Failure> {
    for group in runs::groups(runs::of(&context.task.scripts, root)) {
        let run_all = |runs: &[Run<'_>]| script::run_all(place, context.task, runs, reporter);
        ends.extend(ends_of(group, context.again, run_all));
    }
    judge(ends)
}

/// Carries out a group of runs and returns their ends. These runs are not carried out, and their ends have the reason:
///
/// - runs that are skipped on this machine
/// - after a restart, runs of scripts that must run only once
fn ends_of(
    group: Vec<Run<'_>>,
    again: bool,
    carry_out: impl FnOnce(&[Run<'_>]) -> Vec<script::Ended>,
) -> Vec<ScriptEnd> {
    let (mut ends, mut ready) = (Vec::new(), Vec::new());
    for run in group {
        match (&run.skipped, not_again(run.script, again)) {
            (Some(reason), _) => ends.push(left_out(&run, reason)),
            (None, Err(failure)) => ends.push(ScriptEnd { failure: Some(failure.message), ..named(&run) }),
            (None, Ok(())) => ready.push(run),
        }
    }
    let ended = carry_out(&ready);
    ends.extend(ready.iter().zip(ended).map(|(run, ended)| end(run, ended)));
    ends
}

/// Refuses a second run of a script that must run only once.
fn not_again(script: &Script, again: bool) -> Result<(), Failure> {
    if !again || script.repeats {
        return Ok(());
    }
    let message = format!(
        "the machine was restarted after it had begun with script {}, which is not run a second time",
        script.name
    );
    Err(Failure::new(FailureCode::ScriptFailed, message))
}

/// Runs the script that a person requested, once or for each device. Returns its output if it ran.
///
/// # Errors
/// A run failed, or the script is for other hardware: a person who names a machine expects a run.
pub fn run_asked(
    context: &Context<'_>,
    root: &Root,
    script: &Script,
    reporter: &mut Reporter,
    restarts: &mut Restarts<'_>,
) -> (Option<String>, Result<(), Stop>) {
    if let Err(failure) = not_again(script, restarts.is_unannounced()) {
        return (None, Err(failure.into()));
    }
    let runs = runs::of(std::slice::from_ref(script), root);
    if let Some(failure) = not_run(&runs) {
        return (None, Err(failure.into()));
    }
    if script.may_reboot {
        return run_asked_across_restarts(context, runs, reporter, restarts);
    }
    if let Err(why) = restarts.begin_all(&runs) {
        return (None, Err(Failure::new(FailureCode::ScriptFailed, why).into()));
    }
    let count = runs.len();
    let (mut outputs, mut failures) = (Vec::new(), Vec::new());
    for group in runs::groups(runs) {
        let (skipped, runs): (Vec<Run<'_>>, Vec<Run<'_>>) =
            group.into_iter().partition(|run| run.skipped.is_some());
        failures.extend(skipped.iter().filter_map(|run| Some(refused(run, run.skipped.as_ref()?))));
        let ended = script::run_all(&Place::here(), context.task, &runs, reporter);
        for (run, ended) in runs.into_iter().zip(ended) {
            failures.extend(ended.done.err().map(|failure| failure.message));
            outputs.push((run, ended.output));
        }
    }
    let failures: Vec<&str> = failures.iter().map(String::as_str).collect();
    (Some(joined(&outputs)), told(&failures, count).map_err(Stop::from))
}

/// Runs a requested script that may restart the machine. Its runs follow each other. The output is that of the last boot of each.
fn run_asked_across_restarts(
    context: &Context<'_>,
    runs: Vec<Run<'_>>,
    reporter: &mut Reporter,
    restarts: &mut Restarts<'_>,
) -> (Option<String>, Result<(), Stop>) {
    let (mut outputs, mut ends) = (Vec::new(), Vec::new());
    if let Err(why) = restarts.arrive() {
        return (None, Err(Failure::new(FailureCode::Other, why).into()));
    }
    for run in runs {
        if let Some(reason) = &run.skipped {
            ends.push(ScriptEnd { failure: Some(refused(&run, reason)), ..named(&run) });
            continue;
        }
        let known = restarts.end_of(&run);
        let done = known.map_or_else(
            || {
                restarts.carry_out(&run, |run| {
                    let mut said = String::new();
                    let (mut end, asks) = one(run, |runs| {
                        let ended = script::run_all(&Place::here(), context.task, runs, reporter);
                        said = ended.iter().map(|it| it.output.as_str()).collect();
                        ended
                    });
                    end.output = last(&said, (OUTPUT_BYTES / run.shared_by).max(LEAST_BYTES));
                    (end, asks)
                })
            },
            Ok,
        );
        match done {
            Ok(end) => {
                outputs.push((run, end.output.clone()));
                ends.push(end);
            }
            Err(restart) => return (None, Err(restart.into())),
        }
    }
    let failures: Vec<&str> = ends.iter().filter_map(|end| end.failure.as_deref()).collect();
    (Some(joined(&outputs)), told(&failures, ends.len()).map_err(Stop::from))
}

fn refused(run: &Run<'_>, reason: &str) -> String {
    format!("script {} was not run: {reason}", run.label())
}

/// The outputs of runs for a person. Several runs share [`OUTPUT_BYTES`] equally, each below its name.
fn joined(outputs: &[(Run<'_>, String)]) -> String {
    let share = OUTPUT_BYTES / outputs.len().max(1);
    let part = |(run, output): &(Run<'_>, String)| match run.script.per_device {
        None => output.clone(),
        Some(_) => {
            let head = format!("--- {}\n", run.label());
            head.clone() + &last(output, share.saturating_sub(head.len()))
        }
    };
    outputs.iter().map(part).collect()
}

/// The failure of a requested script that is for other hardware. `None` if it has a run.
#[must_use]
pub fn not_run(runs: &[Run<'_>]) -> Option<Failure> {
    // Devices beyond the largest number are skipped, but others were run.
    let run = runs.first().filter(|run| run.device == run.script.device)?;
    Some(Failure::new(FailureCode::ScriptFailed, refused(run, run.skipped.as_ref()?)))
}

/// The end of a run that is skipped on this machine.
#[must_use]
pub fn left_out(run: &Run<'_>, reason: &str) -> ScriptEnd {
    say!("script {} is skipped: {reason}", run.label());
    ScriptEnd { skipped: Some(reason.to_owned()), ..named(run) }
}

/// The scripts of a first boot that are for this hardware, and an end for each script of it. They are skipped in the task of the install;
/// the end shows the region that the agent knows them.
#[must_use]
pub fn of_first_boot(first_boot: &FirstBoot, root: &Root) -> (Vec<ScriptEnd>, Vec<Script>) {
    let (mut ends, mut scripts) = (Vec::new(), Vec::new());
    for run in runs::of(&first_boot.work.scripts, root) {
        ends.push(left_out(&run, run.skipped.as_deref().unwrap_or("it runs at the first boot")));
        scripts.extend(run.skipped.is_none().then(|| run.script.clone()));
    }
    (ends, scripts)
}

/// An empty end of a run, with its name.
#[must_use]
pub fn named(run: &Run<'_>) -> ScriptEnd {
    ScriptEnd {
        name: run.script.name.clone(),
        device: run.device.clone(),
        test: run.script.test,
        ..ScriptEnd::default()
    }
}

/// The end for the region. It has the output of a test; the output of another script is only in the log.
fn end(run: &Run<'_>, ended: script::Ended) -> ScriptEnd {
    let share = (DEVICES_OUTPUT_BYTES / run.shared_by).clamp(LEAST_BYTES, TEST_OUTPUT_BYTES);
    ScriptEnd {
        failure: ended.done.err().map(|failure| failure.message),
        rows: ended.rows,
        output: if run.script.test { last(&ended.output, share) } else { String::new() },
        seconds: ended.seconds,
        ..named(run)
    }
}

/// The end of a text, at most `bytes` bytes.
fn last(text: &str, bytes: usize) -> String {
    let least = text.len().saturating_sub(bytes);
    let from = (least..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text.get(from..).unwrap_or_default().to_owned()
}

/// The result of the scripts of a task. Tests and skipped scripts do not count.
///
/// # Errors
/// [`FailureCode::ScriptFailed`]: the message names each failed script.
pub fn judge(ends: &[ScriptEnd]) -> Result<(), Failure> {
    let counted: Vec<&ScriptEnd> = ends.iter().filter(|end| !end.test && end.skipped.is_none()).collect();
    let failures: Vec<&str> = counted.iter().filter_map(|end| end.failure.as_deref()).collect();
    told(&failures, counted.len())
}

/// A failure that names the failures of this number of runs.
fn told(failures: &[&str], runs: usize) -> Result<(), Failure> {
    let message = match failures {
        [] => return Ok(()),
        [one] => (*one).to_owned(),
        several => {
            let mut named: Vec<&str> = several.iter().take(NAMED).copied().collect();
            let more = format!("and {} more", several.len().saturating_sub(NAMED));
            if several.len() > NAMED {
                named.push(&more);
            }
            format!("{} of {runs} runs of scripts failed: {}", several.len(), named.join("; "))
        }
    };
    Err(Failure::new(FailureCode::ScriptFailed, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(name: &str, failure: Option<&str>) -> ScriptEnd {
        ScriptEnd { name: name.to_owned(), failure: failure.map(ToOwned::to_owned), ..ScriptEnd::default() }
    }

    #[test]
    fn every_script_that_failed_is_told() {
        assert!(judge(&[]).is_ok() && judge(&[ended("a", None)]).is_ok());
        let one = judge(&[ended("a", None), ended("b", Some("script b ended with 1"))]).unwrap_err();
        assert_eq!((one.code, one.message.as_str()), (FailureCode::ScriptFailed, "script b ended with 1"));
        let two =
            judge(&[ended("a", Some("a: no")), ended("b", None), ended("c", Some("c: no"))]).unwrap_err();
        assert_eq!(two.message, "2 of 3 runs of scripts failed: a: no; c: no");
    }

    #[test]
    fn a_test_that_fails_does_not_fail_the_task() {
        let test = ScriptEnd { test: true, ..ended("t", Some("t: no")) };
        assert!(judge(std::slice::from_ref(&test)).is_ok());
        let one = judge(&[test, ended("a", Some("a: no")), ended("b", Some("b: no"))]).unwrap_err();
        assert_eq!(one.message, "2 of 2 runs of scripts failed: a: no; b: no");
    }

    #[test]
    fn of_many_failures_the_first_are_named() {
        let failures: Vec<ScriptEnd> =
            (0..12).map(|n| ended("a", Some(&format!("a on sd{n}: no")))).collect();
        let message = judge(&failures).unwrap_err().message;
        assert!(message.starts_with("12 of 12 runs of scripts failed: a on sd0: no; "), "{message}");
        assert!(message.ends_with("a on sd9: no; and 2 more"), "{message}");
    }

    #[test]
    fn a_script_that_is_left_out_says_why_and_does_not_count() {
        let script = Script { name: "flash".to_owned(), test: true, ..Script::default() };
        let why = "no hardware of the machine matches pci:10de:*";
        let end = left_out(&Run { device: Some("sda".to_owned()), ..Run::of(&script) }, why);
        assert_eq!((end.skipped.as_deref(), end.failure.as_deref(), end.test), (Some(why), None, true));
        assert_eq!(end.device.as_deref(), Some("sda"));
        let failed = [ScriptEnd { test: false, ..end }, ended("a", Some("a: no")), ended("b", Some("b: no"))];
        assert_eq!(judge(&failed).unwrap_err().message, "2 of 2 runs of scripts failed: a: no; b: no");

        let run = Run { skipped: Some(why.to_owned()), ..Run::of(&script) };
        let failure = not_run(&[run]).unwrap();
        assert_eq!(failure.message, format!("script flash was not run: {why}"));
        assert!(not_run(&[Run::of(&script)]).is_none());
    }

    #[test]
    fn runs_that_ended_before_a_restart_are_not_carried_out_again() {
        use basalt_api::agent::Checkpoint;
        let script =
            |name: &str, may_reboot| Script { name: name.to_owned(), may_reboot, ..Script::default() };
        let scripts = [script("first", false), script("flash", true), script("last", false)];
        let mut earlier: Option<Checkpoint> = None;
        let mut ran = Vec::new();
        for (boot, asks) in [(1, Some(Asks::Again)), (2, Some(Asks::Next)), (3, None)] {
            let mut written = None;
            let mut ledger = |it: &Checkpoint| {
                written = Some(it.clone());
                Ok(())
            };
            let (left, mut ends) = (|| i64::MAX, Vec::new());
            let mut restarts = Restarts::new(earlier.as_ref(), boot > 1, &left, &mut ledger);
            let mut done = Ok(());
            for group in runs::groups(scripts.iter().map(Run::of).collect()) {
                let carry_out = |runs: &[Run<'_>]| {
                    ran.extend(runs.iter().map(|run| (boot, run.script.name.clone(), run.boot)));
                    let asks = asks.filter(|_| runs[0].script.may_reboot);
                    vec![script::Ended {
                        done: Ok(()),
                        output: String::new(),
                        rows: Vec::new(),
                        seconds: 1.0,
                        asks,
                    }]
                };
                done = done.and_then(|()| carry_on(&mut restarts, group, carry_out, &mut ends));
            }
            assert_eq!(done.is_err(), asks.is_some());
            if done.is_ok() {
                let names: Vec<&str> = ends.iter().map(|end| end.name.as_str()).collect();
                assert_eq!(names, ["first", "flash", "last"], "the result has the ends of all boots");
            }
            earlier = written;
        }
        let ran: Vec<_> = ran.iter().map(|(boot, name, number)| (*boot, name.as_str(), *number)).collect();
        assert_eq!(ran, [(1, "first", 1), (1, "flash", 1), (2, "flash", 2), (3, "last", 1)]);
    }

    #[test]
    fn each_run_of_a_group_has_an_end() {
        let script = |name: &str, repeats| Script { name: name.to_owned(), repeats, ..Script::default() };
        let (once, other, good) = (script("once", false), script("other", true), script("good", true));
        let skipped = Run { skipped: Some("no GPU".to_owned()), ..Run::of(&other) };
        let group = vec![Run::of(&once), skipped, Run::of(&good)];
        let ends = ends_of(group, true, |runs| {
            assert_eq!(runs, [Run::of(&good)], "what is left out does not run");
            vec![script::Ended {
                done: Ok(()),
                output: String::new(),
                rows: Vec::new(),
                seconds: 2.5,
                asks: None,
            }]
        });
        let shown =
            |end: &ScriptEnd| (end.name.clone(), end.failure.is_some(), end.skipped.is_some(), end.seconds);
        assert_eq!(
            ends.iter().map(shown).collect::<Vec<_>>(),
            [
                ("once".to_owned(), true, false, 0.0),
                ("other".to_owned(), false, true, 0.0),
                ("good".to_owned(), false, false, 2.5),
            ]
        );
    }

    #[test]
    fn a_machine_that_was_restarted_does_not_run_it_again() {
        let script = |repeats| Script { repeats, ..Script::default() };
        assert!(not_again(&script(false), true).unwrap_err().message.contains("not run a second time"));
        assert!(not_again(&script(false), false).is_ok() && not_again(&script(true), true).is_ok());
    }

    #[test]
    fn outputs_of_several_devices_share_the_room() {
        use basalt_api::agent::{DeviceKind, PerDevice};
        let per_device = Some(PerDevice { parameter: "disk".to_owned(), kind: DeviceKind::Storage });
        let script = Script { name: "scan".to_owned(), per_device, ..Script::default() };
        let on = |device: &str| Run { device: Some(device.to_owned()), ..Run::of(&script) };
        let named = Script { per_device: None, device: Some("sda".to_owned()), ..script.clone() };
        assert_eq!(joined(&[(Run::of(&named), "one\n".to_owned())]), "one\n".to_owned());
        assert_eq!(
            joined(&[(on("sda"), "one\n".to_owned()), (on("sdb"), "two\n".to_owned())]),
            "--- scan on sda\none\n--- scan on sdb\ntwo\n"
        );
        let long = "x".repeat(OUTPUT_BYTES);
        let whole = joined(&[(on("sda"), long.clone()), (on("sdb"), long)]);
        assert!(whole.len() <= OUTPUT_BYTES && whole.contains("x--- scan on sdb\nx"), "{}", whole.len());
    }

    #[test]
    fn rows_and_output_go_with_a_test_alone() {
        let run = |test: bool, shared_by: usize| {
            let script = Script {
                name: "memory".to_owned(),
                timeout_seconds: 1,
                repeats: true,
                test,
                ..Script::default()
            };
            let done = Err(Failure::new(FailureCode::ScriptFailed, "no"));
            let output = format!("\u{fc}{}", "x".repeat(TEST_OUTPUT_BYTES - 1));
            end(
                &Run { shared_by, ..Run::of(&script) },
                script::Ended { done, output, rows: Vec::new(), seconds: 1.5, asks: None },
            )
        };
        let test = run(true, 1);
        assert_eq!((test.test, test.seconds, test.failure.as_deref()), (true, 1.5, Some("no")));
        // The first character does not fit completely.
        assert_eq!(test.output, "x".repeat(TEST_OUTPUT_BYTES - 1));
        assert_eq!(run(true, 64).output.len(), DEVICES_OUTPUT_BYTES / 64);
        assert_eq!(run(true, 256).output.len(), LEAST_BYTES);
        let other = run(false, 1);
        assert_eq!((other.test, other.seconds, other.output.as_str()), (false, 1.5, ""));
    }
}
