//! Runs the scripts that people declared: as root, in this environment, each once and with a time limit.
//!
//! The output is copied line by line to console and log. The result contains the end of it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use basalt_api::agent::{
    BOOT_VARIABLE, FailureCode, INSTALL_PACKAGES, OUTPUT_BYTES, PACKAGE_LINES, PACKAGES_HINT,
    PACKAGES_SECONDS, PROXY_VARIABLE, REBOOT_VARIABLE, RESULTS_VARIABLE, Script, TEST_ROWS, TEST_STAGE, Task,
    TestRow,
};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::Failure;
use crate::report::{Reporter, Shared};
use crate::restarts::Asks;
use crate::runs::Run;
use crate::tool::{LEFT_BEHIND, reap};
use crate::{results, say};

/// The directories of runs; in memory.
const DIRECTORY: &str = "/run/basalt-script";
/// Most runs at the same time.
const AT_ONCE: usize = 32;
/// Most runs that a sentence names.
const NAMED: usize = 3;
/// Held while a script is written and started. A process that starts meanwhile would inherit the file open for writing, and the
/// kernel starts no such file (ETXTBSY).
static STARTS: Mutex<()> = Mutex::new(());
/// Starts a script in the directory `$0`, of a system that the agent has changed its root to.
const ENTER: &str = "cd \"$0\" && exec ./script \"$@\"";
/// The search path of programs in an installed system. The agent's own path is that of the ephemeral environment.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The file of the script in the directory of its run.
const SCRIPT: &str = "script";
/// The file for the rows of a test, beside the script.
const RESULTS: &str = "results";
/// The file by which a script asks for a restart of the machine, beside the script.
const REBOOT: &str = "reboot";
/// Most bytes of that file that are read.
const REBOOT_BYTES: u64 = 64;
/// Rows that a run may write at least, even if many runs share [`TEST_ROWS`].
const LEAST_ROWS: usize = 4;
/// Most bytes of a line. A longer line is split.
const LINE_BYTES: u64 = 4096;
/// Most bytes of output that are logged, since the log is in memory.
const LOG_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of a run that are logged at least, even if many runs share [`LOG_BYTES`].
const LEAST_LOG_BYTES: usize = 64 * 1024;
/// Interval at which the end of a silent script is checked.
const TICK: Duration = Duration::from_millis(500);
/// Interval of progress reports for a silent script, which may run for days.
const SILENT: Duration = Duration::from_secs(30);

/// The result of a run.
#[derive(Debug)]
pub struct Ended {
    /// Success, or the failure.
    pub done: Result<(), Failure>,
    /// The end of the output.
    pub output: String,
    /// The rows of a test.
    pub rows: Vec<TestRow>,
    /// Run time in seconds.
    pub seconds: f64,
    /// The restart that the script asked for.
    pub asks: Option<Asks>,
}

/// The system in which runs are executed.
#[derive(Clone, Debug)]
pub struct Place {
    /// The root of the system; absent for the agent's own system.
    root: Option<PathBuf>,
    /// The directory of the runs, as a path in the agent's system.
    directory: PathBuf,
    /// The range of the task's progress that the runs cover, in percent.
    progress: (u8, u8),
}

impl Place {
    /// The ephemeral environment.
    #[must_use]
    pub fn here() -> Self {
        Self { root: None, directory: DIRECTORY.into(), progress: (2, 99) }
    }

    /// The system below `root`, with a `/run` in memory. Its runs cover the range `progress` of the task.
    #[must_use]
    pub fn inside(root: &Path, progress: (u8, u8)) -> Self {
        let directory = root.join(DIRECTORY.trim_start_matches('/'));
        Self { root: Some(root.to_owned()), directory, progress }
    }

    /// The command that starts the script of a run.
    fn command(&self, directory: &Path, run: &Run<'_>) -> Command {
        let Some(root) = &self.root else {
            let mut command = Command::new(directory.join(SCRIPT));
            command.args(run.arguments()).current_dir(directory);
            return command;
        };
        let inside = Path::new("/").join(directory.strip_prefix(root).unwrap_or(directory));
        let mut command = Command::new("chroot");
        command.arg(root).args(["/bin/sh", "-c", ENTER]).arg(inside).args(run.arguments());
        command.env("HOME", "/root").env("PATH", SYSTEM_PATH).env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

/// Executes runs at the same time, at most [`AT_ONCE`]. Returns their results in the order of `runs`.
pub fn run_all(place: &Place, task: &Task, runs: &[Run<'_>], reporter: &mut Reporter) -> Vec<Ended> {
    let Some(first) = runs.first() else { return Vec::new() };
    let (stage, what) = if first.script.test { (TEST_STAGE, "test") } else { ("run_script", "script") };
    reporter.stage(stage, place.progress.0, &format!("running {what} {}", labels(runs)));
    run_all_in(place, task, runs, reporter)
}

fn run_all_in(place: &Place, task: &Task, runs: &[Run<'_>], reporter: &mut Reporter) -> Vec<Ended> {
    let shared = Shared::new(reporter, runs.len(), place.progress);
    let (next, ends) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some((index, run)) = runs.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            let ended = run_in(place, &place.directory.join(index.to_string()), task, run, &shared);
            shared.ended();
            ends.lock().unwrap_or_else(PoisonError::into_inner).insert(index, ended);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..runs.len().min(AT_ONCE) {
            scope.spawn(work);
        }
    });
    ends.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// The names of the first [`NAMED`] runs.
fn labels(runs: &[Run<'_>]) -> String {
    let labels: Vec<String> = runs.iter().take(NAMED).map(Run::label).collect();
    let more = runs.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    labels.join(", ") + &more
}

/// Executes a run in its own directory.
fn run_in(place: &Place, directory: &Path, task: &Task, run: &Run<'_>, shared: &Shared<'_>) -> Ended {
    let began = Instant::now();
    let mut said = Said::with_limit((LOG_BYTES / run.shared_by).max(LEAST_LOG_BYTES));
    let mut done = install_packages(place, directory, task, run, shared)
        .and_then(|()| attend(place, directory, task, run, &mut said, shared));
    let mut asks = None;
    if let Some(word) = asked(&directory.join(REBOOT)).filter(|_| run.script.may_reboot && done.is_ok()) {
        match Asks::parse(&word) {
            Ok(asked) => asks = Some(asked),
            Err(why) => {
                let message = format!("script {} failed: {why}", run.label());
                done = Err(Failure::new(FailureCode::ScriptFailed, message));
            }
        }
    }
    let limit = (TEST_ROWS / run.shared_by).max(LEAST_ROWS);
    let rows = if run.script.test { results::read(&directory.join(RESULTS), limit) } else { Vec::new() };
    // Only these files are removed: a script may have mounted a disk in the directory.
    for file in [SCRIPT, RESULTS, REBOOT] {
        let _ = fs::remove_file(directory.join(file));
    }
    let _ = fs::remove_dir(directory);
    Ended { done, output: said.into_text(), rows, seconds: began.elapsed().as_secs_f64(), asks }
}

/// The content of the file by which a script asks for a restart. `None` if there is none.
fn asked(path: &Path) -> Option<String> {
    let mut content = Vec::new();
    fs::File::open(path).ok()?.take(REBOOT_BYTES).read_to_end(&mut content).ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

/// Installs the packages of a script, by the package manager of the system in which it runs.
fn install_packages(
    place: &Place,
    directory: &Path,
    task: &Task,
    run: &Run<'_>,
    shared: &Shared<'_>,
) -> Result<(), Failure> {
    let packages = &run.script.packages;
    if packages.is_empty() {
        return Ok(());
    }
    let script = Script {
        name: format!("{} (packages {})", run.label(), packages.join(" ")),
        content: INSTALL_PACKAGES.to_owned(),
        arguments: packages.clone(),
        timeout_seconds: PACKAGES_SECONDS,
        ..Script::default()
    };
    let limit = (LOG_BYTES / run.shared_by).max(LEAST_LOG_BYTES);
    let mut said = Said { quoted: PACKAGE_LINES, ..Said::with_limit(limit) };
    attend(place, directory, task, &Run::of(&script), &mut said, shared)
        .map_err(|failure| Failure { message: format!("{}; {PACKAGES_HINT}", failure.message), ..failure })
}

/// Starts a script, logs its output, and waits for its end.
fn attend(
    place: &Place,
    directory: &Path,
    task: &Task,
    run: &Run<'_>,
    said: &mut Said,
    shared: &Shared<'_>,
) -> Result<(), Failure> {
    let failed = |what: String| Failure::new(FailureCode::ScriptFailed, what);
    let (script, name) = (run.script, &run.label());
    let starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
    write(directory, script).map_err(|error| {
        failed(format!("script {name} cannot be written to {}: {error}", directory.display()))
    })?;
    let began = Instant::now();
    let limit = Duration::from_secs(script.timeout_seconds);
    let (reader, writer) =
        io::pipe().map_err(|error| failed(format!("no pipe for script {name}: {error}")))?;
    let error_writer =
        writer.try_clone().map_err(|error| failed(format!("no pipe for script {name}: {error}")))?;
    let mut command = place.command(directory, run);
    command
        .env("LC_ALL", "C.UTF-8")
        .env("BASALT_MACHINE_UID", &task.machine_uid)
        .env("BASALT_ATTEMPT", task.attempt.to_string())
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(error_writer)
        .process_group(0);
    if let Some(proxy) = &task.proxy {
        command.env(PROXY_VARIABLE, proxy);
    }
    if script.test {
        command.env(RESULTS_VARIABLE, directory.join(RESULTS));
    }
    if script.may_reboot {
        command.env(BOOT_VARIABLE, run.boot.to_string()).env(REBOOT_VARIABLE, directory.join(REBOOT));
    }
    let mut child = command.spawn().map_err(|error| {
        let first = script.content.lines().next().unwrap_or_default();
        failed(format!("script {name} cannot be started by its first line, {first:?}: {error}"))
    })?;
    // Close the agent's copies of the pipe's write ends. The pipe then ends when the script and all of its children have closed it.
    drop(command);
    drop(starts);
    let group = Pid::from_child(&child);
    let lines = lines_of(reader);
    let mut open = true;
    let (mut news, mut told) = (true, Instant::now());
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        match lines.recv_timeout(TICK) {
            Ok(line) => {
                said.say(name, line);
                news = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                open = false;
                std::thread::sleep(TICK / 10);
            }
        }
        let in_words = || {
            let last = said.last().map(|line| format!(": {line}")).unwrap_or_default();
            format!("script {name} has run for {} s{last}", began.elapsed().as_secs())
        };
        if (news || told.elapsed() >= SILENT) && shared.within(part(began.elapsed(), limit), in_words) {
            (news, told) = (false, Instant::now());
        }
        if ended.is_none() {
            let status = child.try_wait();
            let status = status.map_err(|error| failed(format!("script {name} is lost: {error}")))?;
            ended = status.map(|status| (status, Instant::now()));
        }
        match ended {
            Some((status, at)) if !open || at.elapsed() >= LEFT_BEHIND => {
                let _ = kill_process_group(group, Signal::KILL);
                return match status.success() {
                    true => Ok(()),
                    false => Err(failed(format!("script {name} ended with {status}{}", said.in_words()))),
                };
            }
            None if began.elapsed() >= limit => {
                let _ = kill_process_group(group, Signal::KILL);
                reap(&mut child);
                let (limit, said) = (limit.as_secs(), said.in_words());
                return Err(failed(format!("script {name} was stopped after {limit} s, its timeout{said}")));
            }
            _ => {}
        }
    }
}

/// Writes the script as an executable file, and an empty file for its results.
fn write(directory: &Path, script: &Script) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let results = directory.join(RESULTS);
    let _ = fs::remove_file(&results);
    let _ = fs::remove_file(directory.join(REBOOT));
    if script.test {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&results)?;
    }
    let path = directory.join(SCRIPT);
    let _ = fs::remove_file(&path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o700).open(&path)?;
    file.write_all(script.content.as_bytes())
}

/// The lines from the pipe. The reader thread waits while the channel is full, so a fast script cannot fill the memory.
fn lines_of(pipe: io::PipeReader) -> Receiver<String> {
    let (sender, receiver) = sync_channel(64);
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        loop {
            let mut line = Vec::new();
            match pipe.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(read) if read > 0 => {
                    let line = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
                    if sender.send(line).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    });
    receiver
}

/// The elapsed part of a script's timeout, 0 to 1. Scripts do not report their progress.
fn part(elapsed: Duration, limit: Duration) -> f64 {
    elapsed.as_secs_f64() / limit.as_secs_f64().max(1.0)
}

/// The end of a script's output.
#[derive(Debug, Default)]
struct Said {
    lines: VecDeque<String>,
    /// Bytes in `lines`, with the line ends.
    bytes: usize,
    /// Bytes of the output that were logged.
    logged: usize,
    /// Most bytes that are logged.
    log_bytes: usize,
    /// Number of last lines that a failure quotes.
    quoted: usize,
}

impl Said {
    fn with_limit(log_bytes: usize) -> Self {
        Self { log_bytes, quoted: 1, ..Self::default() }
    }

    fn say(&mut self, name: &str, line: String) {
        match self.logged {
            logged if logged <= self.log_bytes => {
                self.logged += line.len() + 1;
                say!("{name}: {line}");
                if self.logged > self.log_bytes {
                    say!("{name}: (what else it says is not logged; the end of it comes with the result)");
                }
            }
            _ => {}
        }
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.bytes > OUTPUT_BYTES {
            let Some(first) = self.lines.pop_front() else { break };
            self.bytes -= first.len() + 1;
        }
    }

    fn last(&self) -> Option<&str> {
        self.lines.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty())
    }

    /// The last lines as an addition to a sentence.
    fn in_words(&self) -> String {
        let lines = self.lines.iter().rev().map(|line| line.trim()).filter(|line| !line.is_empty());
        let mut lines: Vec<&str> = lines.take(self.quoted).collect();
        lines.reverse();
        if lines.is_empty() { String::new() } else { format!("; it said last: {}", lines.join(" / ")) }
    }

    fn into_text(self) -> String {
        self.lines.into_iter().fold(String::new(), |text, line| text + &line + "\n")
    }
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::{DeviceKind, PerDevice, TaskAction, Then};

    use super::*;

    fn script(content: &str, arguments: &[&str], timeout_seconds: u64) -> Script {
        Script {
            name: "probe".to_owned(),
            content: content.to_owned(),
            arguments: arguments.iter().map(|it| (*it).to_owned()).collect(),
            timeout_seconds,
            ..Script::default()
        }
    }

    fn task(script: &Script) -> Task {
        Task {
            attempt: 7,
            not_after_unix_ms: 0,
            machine_uid: "a-uid".to_owned(),
            scripts: Vec::new(),
            proxy: None,
            bmc: None,
            action: TaskAction::Script(script.clone()),
            then: Then::PowerOff,
        }
    }

    fn below(directory: &Path) -> Place {
        Place { directory: directory.to_owned(), ..Place::here() }
    }

    fn alone(directory: &Path, run: &Run<'_>) -> Ended {
        run_all_in(&below(directory), &task(run.script), std::slice::from_ref(run), &mut Reporter::silent())
            .remove(0)
    }

    /// Runs a script in its own directory.
    fn outcome(content: &str, arguments: &[&str], timeout_seconds: u64) -> (Result<(), String>, String) {
        let script = script(content, arguments, timeout_seconds);
        let directory = tempfile::tempdir().unwrap();
        let ended = alone(directory.path(), &Run::of(&script));
        assert_eq!(ended.rows, []);
        let done = ended.done.map_err(|failure| {
            assert_eq!(failure.code, FailureCode::ScriptFailed);
            failure.message
        });
        (done, ended.output)
    }

    #[test]
    fn what_it_says_is_kept_in_order_and_it_knows_what_it_is_given() {
        let (done, said) = outcome(
            "#!/bin/sh\necho one; echo two >&2\nprintf '%s %s %s' \"$1\" \"$BASALT_MACHINE_UID\" \"$BASALT_ATTEMPT\"\n",
            &["--mode=a b"],
            60,
        );
        assert_eq!((done, said.as_str()), (Ok(()), "one\ntwo\n--mode=a b a-uid 7\n"));
    }

    #[test]
    fn a_script_finds_the_proxy_in_its_environment() {
        let script = script("#!/bin/sh\necho $BASALT_PROXY\n", &[], 60);
        for proxy in [None, Some("http://10.77.0.2:8000")] {
            let directory = tempfile::tempdir().unwrap();
            let task = Task { proxy: proxy.map(ToOwned::to_owned), ..task(&script) };
            let runs = [Run::of(&script)];
            let ended = run_all_in(&below(directory.path()), &task, &runs, &mut Reporter::silent()).remove(0);
            let wanted = proxy.unwrap_or_default().to_owned();
            assert_eq!(ended.output, format!("{wanted}\n"));
        }
    }

    #[test]
    fn a_script_that_fails_says_how_and_what_it_said_last() {
        let (done, said) = outcome("#!/bin/sh\necho no such slot\nexit 3\n", &[], 60);
        let why = done.unwrap_err();
        assert_eq!(why, "script probe ended with exit status: 3; it said last: no such slot");
        assert_eq!(said, "no such slot\n");
    }

    #[test]
    fn a_script_that_runs_too_long_is_stopped_with_all_that_it_started() {
        let began = Instant::now();
        let (done, _) = outcome("#!/bin/sh\necho busy\nsleep 300 &\nsleep 300\n", &[], 1);
        let why = done.unwrap_err();
        assert_eq!(why, "script probe was stopped after 1 s, its timeout; it said last: busy");
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn what_it_leaves_behind_does_not_hold_up_its_end() {
        let began = Instant::now();
        let (done, said) = outcome("#!/bin/sh\nsleep 300 &\necho done\n", &[], 200);
        assert_eq!((done, said.as_str()), (Ok(()), "done\n"));
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn an_interpreter_that_is_not_there_is_named() {
        let (done, _) = outcome("#!/no/such/interpreter\n", &[], 60);
        let why = done.unwrap_err();
        assert!(why.contains("\"#!/no/such/interpreter\"") && why.contains("No such file"), "{why}");
    }

    #[test]
    fn of_a_flood_the_end_is_kept() {
        let (done, said) = outcome("#!/bin/sh\nseq 1 20000\nprintf '%0100000d' 0\n", &[], 60);
        assert_eq!(done, Ok(()));
        assert!(said.len() <= OUTPUT_BYTES && said.ends_with("0\n"), "{} bytes", said.len());
    }

    #[test]
    fn a_gigabyte_of_output_neither_fills_the_memory_nor_holds_up_the_end() {
        let peak = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let before = peak();
        let (done, said) = outcome("#!/bin/sh\nhead -c 1073741824 /dev/zero\necho the end\n", &[], 300);
        assert_eq!(done, Ok(()));
        assert!(said.len() <= OUTPUT_BYTES && said.ends_with("the end\n"), "{} bytes", said.len());
        let grew = peak() - before;
        assert!(grew < 64 * 1024, "the peak of the memory grew by {grew} KiB");
    }

    #[test]
    fn a_run_for_a_device_is_given_it_and_named_by_it() {
        let per_device = Some(PerDevice { parameter: "disk".to_owned(), kind: DeviceKind::Storage });
        let content = "#!/bin/sh\nprintf '%s\\n' \"$@\"; exit 1\n";
        let script = Script { per_device, ..script(content, &["--mode=a"], 60) };
        let run = Run { device: Some("sda".to_owned()), ..Run::of(&script) };
        let directory = tempfile::tempdir().unwrap();
        let ended = alone(directory.path(), &run);
        assert_eq!(ended.output, "--mode=a\n--disk=sda\n");
        let why = ended.done.unwrap_err().message;
        assert_eq!(why, "script probe on sda ended with exit status: 1; it said last: --disk=sda");
    }

    #[test]
    fn runs_go_on_at_the_same_time_each_in_a_directory_of_its_own() {
        // Each run waits for all others, and would see files of another run in its directory.
        let meeting = tempfile::tempdir().unwrap();
        let content = format!(
            "#!/bin/sh\nset -e\nm={}\n[ \"$(ls)\" = \"$(printf 'results\\nscript')\" ]\necho '{{\"verdict\":\"passed\",\"message\":\"'$1'\"}}' >\"$BASALT_RESULTS\"\ntouch \"$m/$1\"\nwhile [ $(ls $m | wc -l) -lt 8 ]; do sleep 0.02; done\necho \"$1\"\n",
            meeting.path().display()
        );
        let per_device = Some(PerDevice { parameter: "n".to_owned(), kind: DeviceKind::Storage });
        let script = Script { per_device, test: true, ..script(&content, &[], 60) };
        let devices: Vec<String> = (0..8).map(|n| n.to_string()).collect();
        let runs: Vec<Run<'_>> =
            devices.iter().map(|device| Run { device: Some(device.clone()), ..Run::of(&script) }).collect();
        let directory = tempfile::tempdir().unwrap();
        let ends = run_all_in(&below(directory.path()), &task(&script), &runs, &mut Reporter::silent());
        for (ended, device) in ends.iter().zip(&devices) {
            assert!(ended.done.is_ok(), "{:?}", ended.done);
            assert_eq!(ended.output, format!("--n={device}\n"));
            assert_eq!(ended.rows[0].message, format!("--n={device}"));
        }
        assert_eq!(ends.len(), 8);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left in memory");
    }

    #[test]
    fn so_many_runs_go_on_at_once_and_no_more() {
        let running = tempfile::tempdir().unwrap();
        let content = format!(
            "#!/bin/sh\nd=$(mktemp -p {0})\nls {0} | wc -l\nsleep 0.2\nrm \"$d\"\n",
            running.path().display()
        );
        let script = script(&content, &[], 60);
        let runs = vec![Run::of(&script); AT_ONCE + 8];
        let directory = tempfile::tempdir().unwrap();
        let ends = run_all_in(&below(directory.path()), &task(&script), &runs, &mut Reporter::silent());
        let seen: Vec<usize> = ends.iter().map(|ended| ended.output.trim().parse().unwrap()).collect();
        assert_eq!(seen.len(), AT_ONCE + 8);
        assert!(seen.iter().all(|count| *count <= AT_ONCE), "{seen:?}");
        assert_eq!(labels(&runs), "probe, probe, probe and 37 more");
    }

    #[test]
    fn what_a_script_left_in_its_directory_stays() {
        let directory = tempfile::tempdir().unwrap();
        let script = script("#!/bin/sh\nmkdir mnt && touch mnt/data\n", &[], 60);
        assert!(alone(directory.path(), &Run::of(&script)).done.is_ok());
        assert!(directory.path().join("0/mnt/data").exists(), "it may be on a disk");
    }

    #[test]
    fn runs_that_share_the_limit_of_rows_write_fewer_each() {
        let content =
            "#!/bin/sh\nfor n in $(seq 9); do echo '{\"verdict\":\"passed\"}'; done >\"$BASALT_RESULTS\"\n";
        let script = Script { test: true, ..script(content, &[], 60) };
        let directory = tempfile::tempdir().unwrap();
        let rows = |shared_by| {
            let run = Run { shared_by, ..Run::of(&script) };
            alone(directory.path(), &run).rows
        };
        assert_eq!((rows(1).len(), rows(TEST_ROWS / 9).len(), rows(64).len(), rows(256).len()), (9, 9, 4, 4));
    }

    #[test]
    fn a_script_that_may_restart_the_machine_asks_by_a_file_and_knows_its_boot() {
        let run = |content: &str, may_reboot: bool| {
            let script = Script { may_reboot, ..script(content, &[], 60) };
            let directory = tempfile::tempdir().unwrap();
            let ended = alone(directory.path(), &Run { boot: 3, ..Run::of(&script) });
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
            (ended.done.map_err(|failure| failure.message), ended.asks, ended.output)
        };
        let asks = |what: &str| format!("#!/bin/sh\necho $BASALT_BOOT\n{what}\n");
        let said = || "3\n".to_owned();
        assert_eq!(run(&asks(": >$BASALT_REBOOT"), true), (Ok(()), Some(Asks::Next), said()));
        assert_eq!(run(&asks("echo again >$BASALT_REBOOT"), true), (Ok(()), Some(Asks::Again), said()));
        assert_eq!(run(&asks(""), true), (Ok(()), None, said()));
        let (done, asked, _) = run(&asks("echo now >$BASALT_REBOOT"), true);
        assert!(done.unwrap_err().starts_with("script probe failed: it wrote \"now\"") && asked.is_none());
        let (done, asked, _) = run(&asks(": >$BASALT_REBOOT; exit 4"), true);
        assert!(done.unwrap_err().contains("exit status: 4") && asked.is_none());
        let without = run("#!/bin/sh\necho \"$BASALT_BOOT$BASALT_REBOOT.\"; : >reboot\n", false);
        assert_eq!(without, (Ok(()), None, ".\n".to_owned()));
    }

    #[test]
    fn a_test_writes_its_rows_into_a_fresh_file_even_where_it_is_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let run = |content: &str, test: bool| {
            let script = Script { test, ..script(content, &[], 1) };
            alone(directory.path(), &Run::of(&script))
        };
        let row = r#"{"device":"sda","verdict":"failed","message":"worn out"}"#;
        let content = format!("#!/bin/sh\necho '{row}' >>\"$BASALT_RESULTS\"\nsleep 300\n");
        for _ in 0..2 {
            let ended = run(&content, true);
            assert!(ended.done.unwrap_err().message.contains("its timeout"));
            let rows: Vec<_> = ended.rows.iter().map(|row| (row.device.as_deref(), &*row.message)).collect();
            assert_eq!(rows, [(Some("sda"), "worn out")]);
            assert!(ended.seconds >= 1.0 && ended.seconds < 60.0);
        }
        let ended = run("#!/bin/sh\necho \"file: $BASALT_RESULTS\"\n", false);
        assert_eq!((ended.rows, ended.output.as_str()), (vec![], "file: \n"));
    }
}
