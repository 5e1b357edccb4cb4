//! The runner of the first boot: real scripts in a directory of their own, and a rack that takes the report.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;

use basalt_api::agent::{FirstBoot, Script};
use basalt_api::values::{Attempt, MachineId};
use basalt_engine::render::first_boot::render;
use serde_json::Value;

use crate::world::uuid;

/// An installed system: the directory of the runner, and programs that it finds.
struct System {
    directory: tempfile::TempDir,
    first_boot: FirstBoot,
}

/// A report: the path of the URL, and the body.
type Report = (String, String);

fn script(name: &str, content: &str) -> Script {
    Script {
        name: name.to_owned(),
        content: content.to_owned(),
        arguments: vec!["--role=db one".to_owned()],
        timeout_seconds: 60,
        ..Script::default()
    }
}

impl System {
    fn with(scripts: Vec<Script>) -> Self {
        let identity = (MachineId::from(uuid(1)), Attempt::new(7));
        let mut first_boot = render(scripts, identity, 60, Vec::new());
        let directory = tempfile::tempdir().unwrap();
        let programs = format!("{}/bin:/usr/bin:/bin", directory.path().display());
        first_boot.work.environment.insert("PATH".to_owned(), programs);
        let system = Self { directory, first_boot };
        system.program("cloud-init", "#!/bin/sh\necho \"$@\" >>\"$(dirname \"$0\")/../asked\"\n");
        system
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    fn program(&self, name: &str, content: &str) {
        let path = self.path().join("bin").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, report: &str, arguments: &[&str]) -> Command {
        fs::write(self.path().join("run"), &self.first_boot.runner).unwrap();
        let mut work = self.first_boot.work.clone();
        // The first rack does not answer.
        work.report = vec!["http://127.0.0.1:1/report/T".to_owned(), report.to_owned()];
        fs::write(self.path().join("work.json"), serde_json::to_vec(&work).unwrap()).unwrap();
        let mut command = Command::new("python3");
        command.arg(self.path().join("run")).args(arguments).stdin(Stdio::null());
        command.env("PATH", &work.environment["PATH"]).env("no_proxy", "*");
        command
    }

    /// Boots, and takes the report.
    fn boot(&self, arguments: &[&str]) -> (Report, Output) {
        let (url, rack) = rack();
        let output = self.command(&url, arguments).output().unwrap();
        // If the program has ended without a report, this is the connection that the rack takes.
        let address = url.trim_start_matches("http://").split('/').next().unwrap();
        drop(TcpStream::connect(address));
        (rack.join().unwrap(), output)
    }
}

/// A rack that takes one report.
fn rack() -> (String, JoinHandle<Report>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/report/T", listener.local_addr().unwrap());
    let take = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = BufReader::new(stream.try_clone().unwrap());
        let (mut first, mut length) = (String::new(), 0);
        request.read_line(&mut first).unwrap();
        loop {
            let mut header = String::new();
            request.read_line(&mut header).unwrap();
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if header.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        request.read_exact(&mut body).unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        (path, String::from_utf8(body).unwrap())
    };
    (url, std::thread::spawn(take))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn scripts_run_once_in_their_order_after_cloud_init_and_their_end_is_reported() {
    let first = "#!/bin/bash\necho \"$1 $BASALT_ATTEMPT $HOME\"; cat asked >>log; echo join >>log; echo words >&2; rm -- \"$0\"\n";
    let system = System::with(vec![script("join", first), script("tune", "#!/bin/sh\necho tune >>log\n")]);
    let (report, output) = system.boot(&[]);
    assert_eq!(report, ("/report/T/first_boot".to_owned(), String::new()), "{}", said(&output));
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(system.read("log"), "status --wait\njoin\ntune\n");
    let lines = said(&output);
    for line in ["join: --role=db one 7 /root\n", "join: words\n", "script tune ended well\n"] {
        assert!(lines.contains(line), "{line:?} of {lines}");
    }
    // Another boot runs none of them, and reports again: a rack may have lost the report.
    let (report, output) = system.boot(&[]);
    assert_eq!(report.0, "/report/T/first_boot", "{}", said(&output));
    assert_eq!(system.read("log"), "status --wait\njoin\ntune\n");
}

#[test]
fn every_script_runs_and_each_failure_is_named_with_its_last_line() {
    let mut slow = script("slow", "#!/bin/bash\necho begun; sleep 1000 & wait\n");
    slow.timeout_seconds = 5;
    let system = System::with(vec![
        script("join", "#!/bin/sh\necho no database; echo; exit 3\n"),
        script("perl", "#!/no/such/perl\n"),
        slow,
        script("tune", "#!/bin/sh\nkill -9 $$\n"),
        script("last", "#!/bin/sh\necho last >>log\n"),
    ]);
    let ((path, body), output) = system.boot(&[]);
    assert_eq!(path, "/report/T/first_boot_failed", "{}", said(&output));
    let failures: Vec<&str> = body.split("; script ").collect();
    assert_eq!(
        failures,
        [
            "script join ended with exit status: 3; it said last: no database",
            "perl cannot be started by its first line, '#!/no/such/perl': No such file or directory",
            "slow did not end within 5 s, its timeout, and was stopped; it said last: begun",
            "tune was ended by signal 9",
        ],
        "{}",
        said(&output)
    );
    assert_eq!(system.read("log"), "last\n");
}

#[test]
fn a_person_who_has_mended_the_system_has_the_failed_scripts_run_again() {
    let system = System::with(vec![
        script("join", "#!/bin/sh\necho join >>log; test -e mended\n"),
        script("tune", "#!/bin/sh\necho tune >>log\n"),
    ]);
    let ((path, _), output) = system.boot(&[]);
    assert_eq!(path, "/report/T/first_boot_failed", "{}", said(&output));
    fs::write(system.path().join("mended"), "").unwrap();
    let (report, output) = system.boot(&["--again"]);
    assert_eq!(report, ("/report/T/first_boot".to_owned(), String::new()), "{}", said(&output));
    assert_eq!(system.read("log"), "join\ntune\njoin\n");
}

#[test]
fn a_script_during_which_the_machine_stopped_is_not_run_a_second_time() {
    let system = System::with(vec![
        script("flash", "#!/bin/sh\necho flash >>log; kill -9 $PPID\n"),
        script("tune", "#!/bin/sh\necho tune >>log\n"),
    ]);
    let killed = system.command("http://127.0.0.1:1", &[]).output().unwrap();
    assert!(!killed.status.success(), "{}", said(&killed));
    let ((path, body), _) = system.boot(&[]);
    assert_eq!(path, "/report/T/first_boot_failed");
    assert_eq!(body, "the machine was restarted while script flash ran, which is not run a second time");
    assert_eq!(system.read("log"), "flash\ntune\n");
}

#[test]
fn packages_are_installed_before_their_script_and_a_failure_has_the_managers_last_lines() {
    let system = System::with(vec![
        Script {
            packages: vec!["jq".to_owned(), "curl".to_owned()],
            ..script("join", "#!/bin/sh\necho join >>log\n")
        },
        Script { packages: vec!["nonsense".to_owned()], ..script("tune", "#!/bin/sh\necho tune >>log\n") },
    ]);
    let apt = "#!/bin/sh\ncd \"$(dirname \"$0\")/..\" || exit 1\ncase \"$*\" in\n*update) ;;\n\
        *nonsense*) echo Reading; echo Building; echo E: Unable; echo E: to locate; exit 100 ;;\n\
        *) echo \"apt-get $*\" >>log ;;\nesac\n";
    system.program("apt-get", apt);
    let ((path, body), output) = system.boot(&[]);
    assert_eq!(path, "/report/T/first_boot_failed", "{}", said(&output));
    let log = system.read("log");
    let (install, script) = log.trim_end().split_once('\n').unwrap();
    assert!(install.ends_with("install jq curl") && install.contains(" -y "), "{log}");
    assert_eq!(script, "join", "the second one is not run without its packages");
    assert_eq!(
        body,
        "script tune (packages nonsense) ended with exit status: 100; it said last: Building / E: Unable / E: to locate; \
         check the names of the packages, and the repositories of the system"
    );
    let state: Value = serde_json::from_str(&system.read("state.json")).unwrap();
    assert_eq!((&state["join"]["done"], &state["tune"]["done"]), (&true.into(), &false.into()));
}

#[test]
fn scripts_do_not_run_before_cloud_init_has_ended() {
    let mut system = System::with(vec![script("join", "#!/bin/sh\necho join >>log\n")]);
    system.program("cloud-init", "#!/bin/sh\nexec sleep 1000\n");
    system.first_boot.work.cloud_init_seconds = 1;
    let ((path, body), _) = system.boot(&[]);
    assert_eq!(path, "/report/T/first_boot_failed");
    assert_eq!(body, "the scripts were not run: cloud-init did not end within 1 s");
    // The next boot runs them.
    system.first_boot.work.cloud_init_seconds = 60;
    system.program("cloud-init", "#!/bin/sh\nexit 1\n");
    let (report, output) = system.boot(&[]);
    assert_eq!(report.0, "/report/T/first_boot", "{}", said(&output));
    assert_eq!(system.read("log"), "join\n", "an end with errors is an end");
}

#[test]
fn two_runs_of_the_runner_exclude_each_other() {
    let system = System::with(vec![script("join", "#!/bin/sh\necho join >>log\n")]);
    let (url, rack) = rack();
    // Cloud-init reads from a pipe, and ends when the test closes it.
    system.program("cloud-init", "#!/bin/sh\ncat \"$(dirname \"$0\")/../gate\" >/dev/null\n");
    assert!(Command::new("mkfifo").arg(system.path().join("gate")).status().unwrap().success());
    let mut first = system.command(&url, &[]).stdout(Stdio::null()).spawn().unwrap();
    // The pipe opens when cloud-init reads it. The first run has its lock then.
    let gate = fs::OpenOptions::new().write(true).open(system.path().join("gate")).unwrap();
    let second = system.command(&url, &[]).output().unwrap();
    assert!(said(&second).contains("another run of this program is not over yet"), "{}", said(&second));
    drop(gate);
    assert_eq!(rack.join().unwrap().0, "/report/T/first_boot");
    assert!(first.wait().unwrap().success());
    assert_eq!(system.read("log"), "join\n");
}
