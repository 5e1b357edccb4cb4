//! Scripts of a deployment. They run in the new system after everything else is written and before its first boot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use basalt_api::agent::{FailureCode, ScriptEnd};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

use super::target::{Inside, TARGET};
use crate::failure::Failure;
use crate::report::Reporter;
use crate::root::Root;
use crate::script::Place;
use crate::work::Context;
use crate::{deadlines, say, task_scripts, tool};

/// The range of an install's progress that its scripts cover, in percent.
const PROGRESS: (u8, u8) = (85, 94);

/// Runs the scripts of an install. Then ends processes that they left, which would keep the disk mounted.
///
/// # Errors
/// A script failed. The image has no `/run` or no `/bin/sh`. The kernel refuses a mount.
pub(super) fn run(
    context: &Context<'_>,
    reporter: &mut Reporter,
    ends: &mut Vec<ScriptEnd>,
) -> Result<(), Failure> {
    if context.task.scripts.is_empty() {
        return Ok(());
    }
    let target = Path::new(TARGET);
    fits(target)?;
    let inside = Inside::bind_with_run()?;
    let resolver = name_servers(target, Path::new("/etc/resolv.conf"));
    resolver.map_err(|error| {
        Failure::new(FailureCode::ToolFailed, format!("writing name servers below {TARGET}/run: {error}"))
    })?;
    let before = InUse::read();
    let done = task_scripts::run(context, &Root::system(), &Place::inside(target, PROGRESS), reporter, ends);
    end_processes(target);
    let left = before.restore(target);
    drop(inside);
    done.and(left)
}

/// The mounts and swap areas of the machine, in the order in which they were made.
struct InUse {
    mounts: Vec<PathBuf>,
    swaps: Vec<PathBuf>,
}

impl InUse {
    fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            mounts: paths(&text("/proc/self/mounts"), 1).collect(),
            swaps: paths(&text("/proc/swaps"), 0).skip(1).collect(),
        }
    }

    /// Takes away mounts below the new system, and swap areas, that scripts left. They would keep its disk in use.
    fn restore(&self, target: &Path) -> Result<(), Failure> {
        for swap in InUse::read().swaps.iter().filter(|it| !self.swaps.contains(it)) {
            let path = swap.to_string_lossy();
            tool::run("busybox", &["swapoff", &path]).map_err(|error| in_use(swap, &error))?;
        }
        let mounts = InUse::read().mounts;
        let left = mounts.iter().rev().filter(|it| it.starts_with(target) && !self.mounts.contains(it));
        for mount in left {
            unmount(mount, UnmountFlags::empty()).map_err(|error| in_use(mount, &error))?;
        }
        Ok(())
    }
}

fn in_use(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    let message = format!("a script left {} in use: {error}", path.display());
    Failure::new(FailureCode::ScriptFailed, message)
}

/// The paths in a column of a table of the kernel, which writes octal numbers for spaces and backslashes (proc_pid_mounts(5)).
fn paths(table: &str, column: usize) -> impl Iterator<Item = PathBuf> {
    let words = table.lines().filter_map(move |line| line.split_ascii_whitespace().nth(column));
    words.map(|word| {
        let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
        PathBuf::from(plain.iter().fold(word.to_owned(), |word, (octal, text)| word.replace(octal, text)))
    })
}

/// Checks the parts of an image that a script needs. A link at `/run` could lead its mount out of the new system.
fn fits(target: &Path) -> Result<(), Failure> {
    let lacks = |what: &str| {
        let message = format!("the image has no {what}, which the scripts of a deployment need");
        Err(Failure::new(FailureCode::BadImage, message))
    };
    if !fs::symlink_metadata(target.join("run")).is_ok_and(|it| it.is_dir()) {
        return lacks("directory /run");
    }
    // An absolute link would point to another file here, so the link itself is checked.
    if fs::symlink_metadata(target.join("bin/sh")).is_err() {
        return lacks("/bin/sh");
    }
    Ok(())
}

/// The files below `/run` that `/etc/resolv.conf` of an image may be a link to.
const RESOLVERS: [&str; 3] =
    ["run/systemd/resolve/stub-resolv.conf", "run/systemd/resolve/resolv.conf", "run/resolvconf/resolv.conf"];

/// Gives the scripts the name servers of the ephemeral environment. `/run` is in memory, so nothing of this stays.
fn name_servers(target: &Path, from: &Path) -> io::Result<()> {
    let Ok(text) = fs::read(from) else { return Ok(()) };
    for path in RESOLVERS.map(|path| target.join(path)) {
        fs::create_dir_all(path.parent().unwrap_or(target))?;
        fs::write(path, &text)?;
    }
    Ok(())
}

/// Ends the processes whose root is in the new system, and waits until they are gone.
fn end_processes(target: &Path) {
    let gone = || {
        let left = processes(Path::new("/proc"), target);
        for pid in &left {
            let _ = kill_process(*pid, Signal::KILL);
        }
        left.is_empty().then_some(())
    };
    if deadlines::poll_until(deadlines::LEFT_BEHIND, gone).is_none() {
        say!("processes that a script started do not end: the disk may stay mounted");
    }
}

/// The processes whose root is this directory, or one below it.
fn processes(proc: &Path, root: &Path) -> Vec<Pid> {
    let of_entry = |path: PathBuf| {
        let pid = path.file_name()?.to_str()?.parse().ok()?;
        let is_inside = fs::read_link(path.join("root")).is_ok_and(|it| it.starts_with(root));
        is_inside.then(|| Pid::from_raw(pid)).flatten()
    };
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| of_entry(entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use basalt_api::agent::{Script, Task, TaskAction, Then};

    use super::*;
    use crate::runs::Run;
    use crate::script::{self, Ended};

    /// Set for the run of a test in a user namespace, where it may change its root.
    const INSIDE: &str = "BASALT_TEST_INSIDE";

    fn is_inside(name: &str) -> bool {
        if std::env::var_os(INSIDE).is_some() {
            return true;
        }
        let mut inside = Command::new("unshare");
        inside.args(["-r", "-p", "--fork", "--kill-child", "--mount-proc"]);
        inside.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--show-output"]);
        let inside = inside.env(INSIDE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&inside.stdout) + String::from_utf8_lossy(&inside.stderr);
        assert!(inside.status.success() && said.contains("1 passed"), "in a namespace of its own: {said}");
        false
    }

    /// A system of busybox alone.
    fn system() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for part in ["bin", "run", "etc"] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        fs::copy("/bin/busybox", dir.path().join("bin/busybox")).unwrap();
        for program in ["sh", "sleep", "setsid", "touch"] {
            symlink("busybox", dir.path().join("bin").join(program)).unwrap();
        }
        dir
    }

    fn run_in(root: &Path, content: &str, timeout_seconds: u64) -> Ended {
        run_with_packages(root, content, timeout_seconds, &[])
    }

    fn run_with_packages(root: &Path, content: &str, timeout_seconds: u64, packages: &[&str]) -> Ended {
        let arguments = vec!["--role=db one".to_owned()];
        let (name, content) = ("seed".to_owned(), content.to_owned());
        let packages = packages.iter().map(|it| (*it).to_owned()).collect();
        let script = Script { name, content, arguments, timeout_seconds, packages, ..Script::default() };
        let task = Task {
            attempt: 7,
            not_after_unix_ms: 0,
            machine_uid: "a-uid".to_owned(),
            scripts: vec![script.clone()],
            proxy: None,
            bmc: None,
            action: TaskAction::Inventory,
            then: Then::Reboot,
        };
        let place = Place::inside(root, PROGRESS);
        script::run_all(&place, &task, &[Run::of(&script)], &mut Reporter::silent()).remove(0)
    }

    #[test]
    fn a_script_runs_in_the_new_system_and_its_failure_has_its_words() {
        if !is_inside(
            "install::scripts::tests::a_script_runs_in_the_new_system_and_its_failure_has_its_words",
        ) {
            return;
        }
        let dir = system();
        let root = dir.path();
        let content = "#!/bin/sh\npwd\necho \"$@\" $HOME $PATH $BASALT_ATTEMPT\ntouch /etc/seeded\n";
        let ended = run_in(root, content, 60);
        assert!(ended.done.is_ok(), "{:?}", ended.done);
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        assert_eq!(ended.output, format!("/run/basalt-script/0\n--role=db one /root {path} 7\n"));
        assert!(root.join("etc/seeded").exists() && !Path::new("/etc/seeded").exists());
        assert_eq!(fs::read_dir(root.join("run/basalt-script")).unwrap().count(), 0);

        let why = |content, seconds| run_in(root, content, seconds).done.unwrap_err().message;
        let failed = why("#!/bin/sh\necho no database; exit 3\n", 60);
        assert_eq!(failed, "script seed ended with exit status: 3; it said last: no database");
        let failed = why("#!/bin/perl\n", 60);
        assert!(failed.contains("exit status: 127") && failed.contains("not found"), "{failed}");
        let failed = why("#!/bin/sh\nsleep 1000\n", 1);
        assert!(failed.starts_with("script seed was stopped after 1 s"), "{failed}");
    }

    #[test]
    fn packages_of_a_script_are_installed_before_it_runs() {
        if !is_inside("install::scripts::tests::packages_of_a_script_are_installed_before_it_runs") {
            return;
        }
        let dir = system();
        let root = dir.path();
        fs::create_dir(root.join("dev")).unwrap();
        fs::write(root.join("dev/null"), "").unwrap();
        let content = "#!/bin/sh\necho script >>/log\n";
        let failed = run_with_packages(root, content, 60, &["jq"]).done.unwrap_err().message;
        assert_eq!(
            failed,
            "script seed (packages jq) ended with exit status: 1; it said last: this system has neither apt-get nor dnf: leave \
             out packages, or put the programs into the image; check the names of the packages, and the repositories of the system"
        );
        assert!(!root.join("log").exists(), "the script needs its packages");

        let manager = |name: &str, content: &str| {
            let path = root.join("bin").join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        manager("dnf", "#!/bin/sh\necho dnf \"$@\" >>/log\n");
        assert!(run_with_packages(root, content, 60, &["jq", "curl"]).done.is_ok());
        assert_eq!(fs::read_to_string(root.join("log")).unwrap(), "dnf -q -y install jq curl\nscript\n");
        let apt = "#!/bin/sh\ncase \"$*\" in\n*update) ;;\n*bad*) for it in 1 2 3 4; do echo \"E: $it\"; done; exit 100 ;;\n\
             *) echo apt \"$@\" >/log ;;\nesac\n";
        manager("apt-get", apt);
        let ended = run_with_packages(root, content, 60, &["jq"]);
        assert!(ended.done.is_ok(), "{:?}", ended.done);
        let log = fs::read_to_string(root.join("log")).unwrap();
        assert!(log.starts_with("apt -q -y ") && log.ends_with(" install jq\nscript\n"), "{log}");
        let failed = run_with_packages(root, content, 60, &["bad"]).done.unwrap_err().message;
        assert_eq!(
            failed,
            "script seed (packages bad) ended with exit status: 100; it said last: E: 2 / E: 3 / E: 4; check the names of the \
             packages, and the repositories of the system"
        );
    }

    #[test]
    fn processes_that_a_script_left_behind_are_ended() {
        if !is_inside("install::scripts::tests::processes_that_a_script_left_behind_are_ended") {
            return;
        }
        let dir = system();
        let mut left = Command::new("chroot");
        let mut left =
            left.arg(dir.path()).args(["/bin/sleep", "1000"]).stdin(Stdio::null()).spawn().unwrap();
        let proc = Path::new("/proc");
        let found = || (!processes(proc, dir.path()).is_empty()).then_some(());
        assert!(deadlines::poll_until(Duration::from_secs(60), found).is_some(), "chroot(8) did not start");
        end_processes(dir.path());
        assert!(processes(proc, dir.path()).is_empty() && !left.wait().unwrap().success());
    }

    #[test]
    fn mounts_that_a_script_left_are_taken_away() {
        if !is_inside("install::scripts::tests::mounts_that_a_script_left_are_taken_away") {
            return;
        }
        let dir = system();
        let before = InUse::read();
        let name = dir.path().join("my data");
        for at in [name.clone(), name.join("below")] {
            fs::create_dir(&at).unwrap();
            let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&at).status().unwrap();
            assert!(mounted.success());
        }
        assert!(InUse::read().mounts.contains(&name));
        before.restore(dir.path()).unwrap();
        assert_eq!(InUse::read().mounts, before.mounts);
    }

    #[test]
    fn an_image_without_the_parts_that_a_script_needs_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = || fits(dir.path()).unwrap_err().message;
        symlink("/", dir.path().join("run")).unwrap();
        assert!(refused().contains("no directory /run"), "a link leads out of the system");
        fs::remove_file(dir.path().join("run")).unwrap();
        fs::create_dir(dir.path().join("run")).unwrap();
        assert!(refused().contains("no /bin/sh"));
        fs::create_dir(dir.path().join("bin")).unwrap();
        symlink("/usr/bin/dash", dir.path().join("bin/sh")).unwrap();
        assert!(fits(dir.path()).is_ok());
    }

    #[test]
    fn scripts_ask_the_name_servers_of_the_ephemeral_environment() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("resolv.conf");
        name_servers(dir.path(), &from).unwrap();
        assert!(!dir.path().join("run").exists(), "it has none");
        fs::write(&from, "nameserver 10.77.0.2\n").unwrap();
        name_servers(dir.path(), &from).unwrap();
        let stub = dir.path().join("run/systemd/resolve/stub-resolv.conf");
        assert_eq!(fs::read_to_string(stub).unwrap(), "nameserver 10.77.0.2\n");
    }
}
