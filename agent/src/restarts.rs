//! Restarts of the machine by scripts that may restart it.
//!
//! The rack writes a checkpoint down before such a script begins, and before the agent restarts the machine. The next boot gets it with its
//! claim, and continues from there.
//!
//! | the script | after the restart |
//! | --- | --- |
//! | restarts the machine during its run | the same run begins again |
//! | creates the file that `BASALT_REBOOT` names, and ends well | the next run begins |
//! | writes `again` to this file, and ends well | the same run begins again |
//!
//! A script without this permission may still bring the machine down, in each boot anew. After the first restart that nobody announced, the
//! rack writes down which scripts begin. After the third one these scripts are not begun any more.
//!
//! `BASALT_BOOT` is the number of the boot in which a run is begun, from 1.

use basalt_api::agent::{
    BmcEnd, CHECKPOINT_BYTES, Checkpoint, DEADLY_BOOTS, RUN_BOOTS, RunInProgress, ScriptEnd, TASK_RESTARTS,
};

use crate::runs::Run;
use crate::task_scripts::named;

/// Time that an attempt must still have when the machine is restarted, in milliseconds. A server with much memory needs ten minutes from the
/// restart to its first boot request; a rack serves no boot after the attempt's time.
const ROOM_MS: i64 = 10 * 60 * 1000;

/// The request of a script that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Restart, then the next run.
    Next,
    /// Restart, then the same run.
    Again,
}

impl Asks {
    /// Reads the content of the file that `BASALT_REBOOT` names.
    ///
    /// # Errors
    /// The content is no known word.
    pub fn parse(content: &str) -> Result<Self, String> {
        match content.trim() {
            "" | "next" => Ok(Self::Next),
            "again" => Ok(Self::Again),
            other => {
                let other: String = other.chars().take(40).collect();
                Err(format!("it wrote {other:?} to the file of BASALT_REBOOT: write nothing, next or again"))
            }
        }
    }
}

/// The machine has to be restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The script that asked for it, for people.
    pub by: String,
}

/// The storage of checkpoints.
pub trait Ledger {
    /// Stores a checkpoint durably.
    ///
    /// # Errors
    /// The reason why it may not be stored.
    fn write(&mut self, checkpoint: &Checkpoint) -> Result<(), String>;
}

impl<F: FnMut(&Checkpoint) -> Result<(), String>> Ledger for F {
    fn write(&mut self, checkpoint: &Checkpoint) -> Result<(), String> {
        self(checkpoint)
    }
}

/// The progress of a task's scripts across the boots of its attempt.
pub struct Restarts<'a> {
    state: Checkpoint,
    /// The run during which the machine was restarted.
    begun: Option<RunInProgress>,
    /// True: the machine was restarted, and no script had announced that.
    unannounced: bool,
    /// Milliseconds until the attempt's time is over.
    left_ms: &'a dyn Fn() -> i64,
    ledger: &'a mut dyn Ledger,
}

impl<'a> Restarts<'a> {
    /// Continues from the checkpoint of an earlier boot. `again`: an earlier boot had claimed the attempt.
    pub fn new(
        earlier: Option<&Checkpoint>,
        again: bool,
        left_ms: &'a dyn Fn() -> i64,
        ledger: &'a mut dyn Ledger,
    ) -> Self {
        let announced = earlier.is_some_and(Checkpoint::is_away);
        let mut state = earlier.cloned().unwrap_or_default();
        let begun = state.run.take();
        if announced {
            state.restarts += 1;
        }
        state.leaves = false;
        Self { state, begun, unannounced: again && !announced, left_ms, ledger }
    }

    /// True if the machine was restarted although no script had announced it.
    #[must_use]
    pub const fn is_unannounced(&self) -> bool {
        self.unannounced
    }

    /// Keeps the result of the account on the BMC for later boots.
    pub fn keep_bmc(&mut self, end: Option<BmcEnd>) {
        self.state.bmc = end;
    }

    /// The end of a run in an earlier boot.
    #[must_use]
    pub fn end_of(&self, run: &Run<'_>) -> Option<ScriptEnd> {
        let is_same = |end: &&ScriptEnd| end.name == run.script.name && end.device == run.device;
        self.state.scripts.iter().find(is_same).cloned()
    }

    /// Stores that the announced restart is over: a further restart counts as unannounced. Stores nothing if there is no checkpoint, or if
    /// a run begins again.
    ///
    /// # Errors
    /// The checkpoint cannot be stored.
    pub fn arrive(&mut self) -> Result<(), String> {
        match self.state.seq {
            0 => Ok(()),
            _ if self.begun.is_some() => Ok(()),
            _ => self.write(),
        }
    }

    /// Stores that runs which may not restart the machine begin. Stores nothing in the first boot: almost no script brings a machine down.
    ///
    /// # Errors
    /// The reason why they must not begin: the machine was restarted too often while they ran.
    pub fn begin_all(&mut self, runs: &[Run<'_>]) -> Result<(), String> {
        let Some(first) = runs.first().filter(|_| self.unannounced) else { return Ok(()) };
        let mine = |it: &RunInProgress| it.name == first.script.name && it.device == first.device;
        let boot = self.state.begun.take().filter(mine).map_or(1, |it| it.boot.saturating_add(1));
        if boot > DEADLY_BOOTS {
            let labels: Vec<String> = runs.iter().map(Run::label).collect();
            let labels = labels.join(", ");
            return Err(format!(
                "the machine was restarted {boot} times before the end of {labels}, and nobody had asked for that: it is not begun again; \
                 look at the machine's log for the last lines before each restart"
            ));
        }
        let (name, device) = (first.script.name.clone(), first.device.clone());
        self.state.begun = Some(RunInProgress { name, device, boot });
        if let Err(why) = self.write() {
            // Without the record, only the time of the attempt ends a series of restarts.
            crate::say!("{why}");
        }
        Ok(())
    }

    /// Adds the ends of runs that cannot restart the machine.
    pub fn add(&mut self, ends: &[ScriptEnd]) {
        self.state.begun = None;
        self.state.scripts.extend_from_slice(ends);
    }

    /// Carries out a run that may restart the machine.
    ///
    /// # Errors
    /// [`Restart`]: the checkpoint is stored, and the machine has to be restarted.
    pub fn carry_out(
        &mut self,
        run: &Run<'_>,
        carry_out: impl FnOnce(&Run<'_>) -> (ScriptEnd, Option<Asks>),
    ) -> Result<ScriptEnd, Restart> {
        let boot = match self.begin(run) {
            Ok(boot) => boot,
            Err(why) => return Ok(self.ended(ScriptEnd { failure: Some(why), ..named(run) })),
        };
        let (mut end, asks) = carry_out(&Run { boot, ..run.clone() });
        let Some(asks) = asks.filter(|_| end.failure.is_none()) else { return Ok(self.ended(end)) };
        match self.leave(run, &end, asks) {
            Ok(()) => Err(Restart { by: run.label() }),
            Err(why) => {
                end.failure = Some(why);
                Ok(self.ended(end))
            }
        }
    }

    /// Stores that a run begins. Returns the number of its boot.
    fn begin(&mut self, run: &Run<'_>) -> Result<u32, String> {
        let label = run.label();
        let mine = |it: &RunInProgress| it.name == run.script.name && it.device == run.device;
        let boot = self.begun.take().filter(mine).map_or(1, |it| it.boot.saturating_add(1));
        if boot > RUN_BOOTS {
            return Err(format!(
                "script {label} has restarted the machine {RUN_BOOTS} times without an end, and is not begun again"
            ));
        }
        if self.state.restarts > TASK_RESTARTS {
            return Err(format!(
                "script {label} is not begun: the machine was restarted {} times, and may be {TASK_RESTARTS} times",
                self.state.restarts
            ));
        }
        let (name, device) = (run.script.name.clone(), run.device.clone());
        self.state.run = Some(RunInProgress { name, device, boot });
        self.write()
            .map_err(|why| format!("script {label} is not begun, since it may restart the machine: {why}"))?;
        Ok(boot)
    }

    /// Stores that the machine is restarted.
    fn leave(&mut self, run: &Run<'_>, end: &ScriptEnd, asks: Asks) -> Result<(), String> {
        let refused =
            |why: String| format!("script {} asked for a restart, and got none: {why}", run.label());
        if self.state.restarts >= TASK_RESTARTS {
            return Err(refused(format!("the machine was restarted {TASK_RESTARTS} times")));
        }
        let left = (self.left_ms)();
        if left < ROOM_MS {
            return Err(refused(format!(
                "the attempt ends in {} s, and a boot may need {} s",
                left.max(0) / 1000,
                ROOM_MS / 1000
            )));
        }
        if asks == Asks::Next {
            self.state.run = None;
            self.state.scripts.push(end.clone());
        }
        self.state.leaves = true;
        let written = self.write().map_err(refused);
        if written.is_err() && asks == Asks::Next {
            self.state.scripts.pop();
        }
        written
    }

    /// Adds the end of a run that may no longer restart the machine.
    fn ended(&mut self, end: ScriptEnd) -> ScriptEnd {
        (self.state.run, self.state.leaves) = (None, false);
        self.state.scripts.push(end.clone());
        if let Err(why) = self.write() {
            // The end is in the result too. Only after another restart would this run begin again.
            crate::say!("{why}");
        }
        end
    }

    fn write(&mut self) -> Result<(), String> {
        self.state.seq += 1;
        if too_large(&self.state) {
            // The log has the outputs.
            self.state.scripts.iter_mut().for_each(|end| end.output.clear());
        }
        if too_large(&self.state) {
            return Err(format!("the results so far have more than {CHECKPOINT_BYTES} bytes"));
        }
        self.ledger.write(&self.state).map_err(|why| format!("the progress is not written down: {why}"))
    }
}

fn too_large(checkpoint: &Checkpoint) -> bool {
    serde_json::to_vec(checkpoint).map_or(true, |json| json.len() > CHECKPOINT_BYTES)
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::{Script, TestRow, Verdict};

    use super::*;

    const LONG: &dyn Fn() -> i64 = &|| ROOM_MS;

    fn script(name: &str) -> Script {
        Script { name: name.to_owned(), may_reboot: true, ..Script::default() }
    }

    /// The result of a boot in which the run of a script ends so. The second value has the checkpoints that it wrote.
    fn boot(
        earlier: Option<&Checkpoint>,
        script: &Script,
        ends: Option<Asks>,
    ) -> (Result<ScriptEnd, Restart>, Vec<Checkpoint>, u32) {
        let (mut written, mut number) = (Vec::new(), 0);
        let mut ledger = |checkpoint: &Checkpoint| {
            written.push(checkpoint.clone());
            Ok(())
        };
        let run = Run::of(script);
        let done = Restarts::new(earlier, earlier.is_some(), LONG, &mut ledger).carry_out(&run, |run| {
            number = run.boot;
            (named(run), ends)
        });
        (done, written, number)
    }

    #[test]
    fn a_script_that_asks_is_followed_by_the_next_one_after_the_restart() {
        let flash = script("flash");
        let (done, written, number) = boot(None, &flash, Some(Asks::Next));
        assert_eq!((done, number), (Err(Restart { by: "flash".to_owned() }), 1));
        assert_eq!(
            written.iter().map(|it| (it.seq, it.leaves, it.run.is_some())).collect::<Vec<_>>(),
            [(1, false, true), (2, true, false)]
        );
        let mut told = Vec::new();
        let mut ledger = |checkpoint: &Checkpoint| {
            told.push((checkpoint.seq, checkpoint.restarts, checkpoint.is_away()));
            Ok(())
        };
        let mut restarts = Restarts::new(written.last(), true, LONG, &mut ledger);
        assert!(!restarts.is_unannounced());
        assert_eq!(restarts.end_of(&Run::of(&flash)).unwrap().name, "flash");
        assert_eq!(restarts.end_of(&Run::of(&script("other"))), None);
        restarts.arrive().unwrap();
        assert_eq!(told, [(3, 1, false)]);
    }

    #[test]
    fn a_run_during_which_the_machine_was_restarted_begins_again_and_knows_how_often() {
        let flash = script("flash");
        let mut earlier: Option<Checkpoint> = None;
        for number in 1..=RUN_BOOTS {
            // The checkpoint of the beginning counts: the script itself restarted the machine.
            let (_, written, boot) = boot(earlier.as_ref(), &flash, None);
            assert_eq!(boot, number);
            earlier = written.into_iter().next();
        }
        let (done, _, boot) = boot(earlier.as_ref(), &flash, None);
        assert_eq!(boot, 0, "it is not begun");
        let why = done.unwrap().failure.unwrap();
        assert!(why.contains("has restarted the machine 5 times without an end"), "{why}");
    }

    #[test]
    fn scripts_that_bring_the_machine_down_are_begun_three_times() {
        let (calm, deadly) = (script("calm"), script("deadly"));
        let mut earlier: Option<Checkpoint> = None;
        let mut begun = Vec::new();
        for boot in 1..=4 {
            let mut written = None;
            let mut ledger = |it: &Checkpoint| {
                written = Some(it.clone());
                Ok(())
            };
            let mut restarts = Restarts::new(earlier.as_ref(), boot > 1, LONG, &mut ledger);
            if restarts.end_of(&Run::of(&calm)).is_none() {
                restarts.begin_all(&[Run::of(&calm)]).unwrap();
                restarts.add(&[named(&Run::of(&calm))]);
                begun.push((boot, "calm"));
            }
            match restarts.begin_all(&[Run::of(&deadly), Run::of(&script("beside"))]) {
                Ok(()) => begun.push((boot, "deadly")),
                Err(why) => {
                    let wanted =
                        "the machine was restarted 3 times before the end of deadly, beside, and nobody";
                    assert!(why.starts_with(wanted), "{why}");
                }
            }
            earlier = written.or(earlier);
            assert_eq!(earlier.is_some(), boot > 1, "a healthy machine stores nothing");
        }
        // The first boot has stored no end.
        assert_eq!(begun, [(1, "calm"), (1, "deadly"), (2, "calm"), (2, "deadly"), (3, "deadly")]);
    }

    #[test]
    fn a_rack_that_stores_nothing_keeps_no_script_from_running() {
        let mut ledger = |_: &Checkpoint| Err("no answer".to_owned());
        let mut restarts = Restarts::new(None, true, LONG, &mut ledger);
        assert_eq!(restarts.begin_all(&[Run::of(&script("calm"))]), Ok(()));
    }

    #[test]
    fn a_script_that_asks_for_itself_again_has_no_end_yet() {
        let flash = script("flash");
        let (done, written, _) = boot(None, &flash, Some(Asks::Again));
        assert!(done.is_err());
        let last = written.last().unwrap();
        assert_eq!((last.leaves, last.scripts.len(), last.run.as_ref().unwrap().boot), (true, 0, 1));
        let (done, written, number) = boot(written.last(), &flash, None);
        assert_eq!((done.unwrap().failure, number), (None, 2));
        assert!(!written.last().unwrap().is_away());
    }

    #[test]
    fn a_restart_that_no_script_announced_is_seen() {
        let mut ledger = |_: &Checkpoint| Ok(());
        let quiet = Checkpoint { seq: 4, ..Checkpoint::default() };
        for (earlier, again, unannounced) in
            [(None, false, false), (None, true, true), (Some(&quiet), true, true)]
        {
            assert_eq!(Restarts::new(earlier, again, LONG, &mut ledger).is_unannounced(), unannounced);
        }
    }

    #[test]
    fn no_restart_without_time_or_beyond_the_limit_or_if_it_cannot_be_written_down() {
        let flash = script("flash");
        let outcome = |earlier: Option<&Checkpoint>, left: i64, refuse: u64| {
            let left = move || left;
            let mut ledger = |it: &Checkpoint| match it.seq == refuse {
                true => Err("no answer".to_owned()),
                false => Ok(()),
            };
            let mut restarts = Restarts::new(earlier, false, &left, &mut ledger);
            let done = restarts.carry_out(&Run::of(&flash), |run| (named(run), Some(Asks::Next)));
            let ends = restarts.state.scripts.len();
            (done.map(|end| end.failure.unwrap_or_default()), ends)
        };
        let short = outcome(None, ROOM_MS - 1, 0);
        assert_eq!(
            short.0.unwrap(),
            "script flash asked for a restart, and got none: the attempt ends in 599 s, and a boot may need 600 s"
        );
        assert_eq!(short.1, 1);
        let many = Checkpoint { restarts: TASK_RESTARTS, ..Checkpoint::default() };
        let many = outcome(Some(&many), ROOM_MS, 0).0.unwrap();
        assert!(many.ends_with("and got none: the machine was restarted 16 times"), "{many}");
        let unsaid = outcome(None, ROOM_MS, 1).0.unwrap();
        assert!(
            unsaid.contains("is not begun") && unsaid.ends_with("not written down: no answer"),
            "{unsaid}"
        );
        let late = outcome(None, ROOM_MS, 2);
        assert_eq!(late.1, 1, "one end alone");
        assert!(late.0.unwrap().contains("got none: the progress is not written down"));
        assert_eq!(outcome(None, ROOM_MS, 0).0, Err(Restart { by: "flash".to_owned() }));
    }

    #[test]
    fn a_failed_script_has_no_restart() {
        let mut ledger = |_: &Checkpoint| Ok(());
        let flash = script("flash");
        let failed =
            |run: &Run<'_>| (ScriptEnd { failure: Some("no".to_owned()), ..named(run) }, Some(Asks::Next));
        let done = Restarts::new(None, false, LONG, &mut ledger).carry_out(&Run::of(&flash), failed);
        assert_eq!(done.unwrap().failure.as_deref(), Some("no"));
    }

    #[test]
    fn outputs_are_left_out_of_a_checkpoint_that_would_be_too_large_and_rows_are_not() {
        let flash = script("flash");
        let large = |output: usize, message: usize| {
            let row = TestRow {
                device: None,
                verdict: Verdict::Passed,
                figures: Default::default(),
                message: "x".repeat(message),
            };
            let end = ScriptEnd { output: "x".repeat(output), rows: vec![row], ..ScriptEnd::default() };
            Checkpoint { scripts: vec![end], ..Checkpoint::default() }
        };
        let (done, written, _) = boot(Some(&large(CHECKPOINT_BYTES, 9)), &flash, None);
        assert!(done.unwrap().failure.is_none() && written[0].scripts[0].output.is_empty());
        assert_eq!(written[0].scripts[0].rows[0].message, "x".repeat(9));
        let (done, written, _) = boot(Some(&large(9, CHECKPOINT_BYTES)), &flash, None);
        assert!(done.unwrap().failure.unwrap().contains("more than 524288 bytes") && written.is_empty());
    }

    #[test]
    fn the_words_of_a_script_are_three() {
        assert_eq!([Asks::parse(""), Asks::parse("next\n")], [Ok(Asks::Next), Ok(Asks::Next)]);
        assert_eq!(Asks::parse("again\n"), Ok(Asks::Again));
        assert!(Asks::parse("now").unwrap_err().contains("it wrote \"now\""));
    }
}
