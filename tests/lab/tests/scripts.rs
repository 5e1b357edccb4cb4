//! The lab's scripts: the search for missing packages, and the end of `make demo` by `make demo-stop`. The record of `make bench`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use basalt_lab::process::Owner;

const SCRIPTS: &str = env!("CARGO_MANIFEST_DIR");
/// The releases in the README.
const RELEASES: [&str; 4] = ["debian:12", "debian:13", "ubuntu:22.04", "ubuntu:24.04"];

/// The rows of tests/lab/packages: a proof, and the package's name in each release.
fn table() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(Path::new(SCRIPTS).join("packages")).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    rows.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn the_table_of_packages_has_a_name_for_each_release() {
    let table = table();
    let (head, rows) = table.split_first().unwrap();
    assert_eq!(head[1..], RELEASES, "the releases that README names");
    let (mut proofs, mut names) = (BTreeSet::new(), BTreeSet::new());
    for row in rows {
        assert_eq!(row.len(), head.len(), "{row:?}");
        assert!(proofs.insert(&row[0]) && names.insert(&row[1]), "{row:?} is there twice");
        for (name, release) in row[1..].iter().zip(RELEASES) {
            let is_name = name.len() > 1
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b));
            let refers = release != "debian:12" && ["=", "-"].contains(&name.as_str());
            assert!(is_name || refers, "{name:?} of {release} in {row:?}");
        }
    }
}

#[test]
fn on_this_host_each_proof_belongs_to_the_package_that_the_table_names() {
    let os_release = std::fs::read_to_string("/etc/os-release").unwrap();
    let field = |name: &str| {
        let value = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().trim_matches('"').to_owned()
    };
    let this = format!("{}:{}", field("ID"), field("VERSION_ID"));
    // The table has no column for another system.
    let Some(column) = RELEASES.iter().position(|release| *release == this) else { return };
    let mut compared = 0;
    for row in table().iter().skip(1) {
        let name = if row[column + 1] == "=" { &row[1] } else { &row[column + 1] };
        // Skip packages that only depend on the one with the files, and links by alternatives(8). Node's own package has an npm too.
        if ["gcc", "gnupg", "npm", "postgresql", "python3-venv"].contains(&name.as_str()) {
            continue;
        }
        let places = ["/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/"];
        let paths = row[0].split('|').flat_map(|proof| match proof.starts_with('/') {
            true => vec![proof.to_owned()],
            false => places.map(|place| format!("{place}{proof}")).to_vec(),
        });
        let output = Command::new("dpkg-query").arg("--search").args(paths).output().unwrap();
        // A program that was installed without a package has no owner.
        for line in
            String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.starts_with("diversion"))
        {
            let owner = line.split([':', ',']).next().unwrap();
            assert_eq!(owner, name, "{line}");
            compared += 1;
        }
    }
    assert!(compared > 0, "dpkg knows none of the proofs");
}

/// Runs `setup --dry-run` on a host with this os-release, on which one package is missing.
fn setup(os_release: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(Path::new(SCRIPTS).join("setup"), dir.path().join("setup")).unwrap();
    let rows = format!(
        "proof {}\nsh dash = = =\n/nowhere/loader|/nowhere/*.efi loader = loader-bin -\n",
        RELEASES.join(" ")
    );
    std::fs::write(dir.path().join("packages"), rows).unwrap();
    let file = dir.path().join("os-release");
    std::fs::write(&file, os_release).unwrap();
    let mut command = Command::new(dir.path().join("setup"));
    command.arg("--dry-run").env("BASALT_OS_RELEASE", &file).output().unwrap()
}

#[test]
fn what_is_missing_is_named_with_the_command_that_installs_it() {
    let install = "apt-get install --no-install-recommends ";
    for (os_release, said) in [
        ("ID=debian\nVERSION_ID=\"13\"\n", "loader\n"),
        ("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"22.04\"\n", "loader-bin\n"),
        // Debian's testing has no number: the newest release is the nearest.
        ("ID=debian\n", "loader\n"),
    ] {
        let output = setup(os_release);
        let said = format!("{install}{said}");
        assert!(output.status.success() && text(&output).contains(&said), "{os_release}: {}", text(&output));
    }
    let none = text(&setup("ID=ubuntu\nVERSION_ID=\"24.04\"\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"\n"));
    assert!(
        none.contains("Ubuntu 24.04 LTS has no package for /nowhere/loader") && !none.contains(install),
        "{none}"
    );
    let other = setup("ID=fedora\nVERSION_ID=40\n");
    assert!(
        !other.status.success() && text(&other).contains("neither Debian nor Ubuntu"),
        "{}",
        text(&other)
    );
}

/// A simulated `make demo`: a process that started another one, and printed its id.
struct Demo {
    labs: tempfile::TempDir,
    process: Child,
    started: Owner,
}

fn owner(pid: u32) -> Owner {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
    format!("{pid}.{start}").parse().unwrap()
}

impl Demo {
    fn start() -> Self {
        let mut shell = Command::new("bash");
        shell.args(["-c", "sleep 600 >/dev/null & echo $!; wait"]).stdout(Stdio::piped());
        let mut process = shell.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { labs: tempfile::tempdir().unwrap(), process, started: owner(line.trim().parse().unwrap()) }
    }

    fn script(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(Path::new(SCRIPTS).join("demo"));
        command.args(arguments).env("BASALT_LAB_DIR", self.labs.path());
        command.env("BASALT_CACHE_DIR", self.labs.path().join("cache")).output().unwrap()
    }

    fn begin(&self) -> Output {
        self.script(&["begin", &self.process.id().to_string()])
    }

    fn record(&self) -> PathBuf {
        self.labs.path().join("demo.process")
    }

    fn runs(&self) -> bool {
        owner(self.process.id()).is_alive()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _status = self.process.wait();
        if self.started.is_alive() {
            let _gone = Command::new("kill").arg(self.started.pid.to_string()).status();
        }
    }
}

#[test]
fn demo_stop_ends_a_make_demo_that_still_runs_with_all_that_it_started() {
    let demo = Demo::start();
    assert!(demo.begin().status.success());
    let output = demo.script(&["end"]);
    let said = format!("`make demo` (process {}) still runs", demo.process.id());
    assert!(output.status.success() && text(&output).contains(&said), "{}", text(&output));
    assert!(!demo.runs() && !demo.started.is_alive());
    assert!(!demo.record().exists());
    let again = demo.script(&["end"]);
    assert!(again.status.success() && text(&again).is_empty(), "{}", text(&again));
}

#[test]
fn demo_stop_leaves_the_keeper_to_the_program_that_drains_it() {
    let demo = Demo::start();
    symlink(demo.labs.path().join(format!("bl.demo.{}", demo.started)), demo.labs.path().join("demo"))
        .unwrap();
    std::fs::write(demo.record(), owner(demo.process.id()).to_string()).unwrap();
    assert!(demo.script(&["end"]).status.success());
    assert!(!demo.runs() && demo.started.is_alive());
}

#[test]
fn demo_stop_ends_no_process_that_only_has_the_recorded_number() {
    let demo = Demo::start();
    let mut other = owner(demo.process.id());
    other.start += 1;
    std::fs::write(demo.record(), other.to_string()).unwrap();
    let output = demo.script(&["end"]);
    assert!(output.status.success() && text(&output).is_empty(), "{}", text(&output));
    assert!(demo.runs() && demo.started.is_alive());
}

#[test]
fn a_second_make_demo_is_told_of_the_first() {
    let demo = Demo::start();
    assert!(demo.begin().status.success());
    let second = demo.begin();
    let said = format!("there is a demo already (process {}); `make demo-stop` ends it", demo.process.id());
    assert!(!second.status.success() && text(&second).contains(&said), "{}", text(&second));
}

#[test]
fn what_stays_is_named_with_the_packages_that_setup_installed() {
    let demo = Demo::start();
    let cache = demo.labs.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    std::fs::write(cache.join("installed-packages"), "ovmf\nipxe\novmf\n").unwrap();
    let said = text(&demo.script(&["stays", "/nowhere"]));
    assert!(
        said.contains(&format!("{}", cache.display())) && said.contains("apt-get remove ipxe ovmf"),
        "{said}"
    );
}

/// Runs the recipe of `make bench > FILE 2>&1` with this output of a benchmark. Returns FILE, which has a line before, and
/// `bench.jsonl`; `None` if the recipe fails.
fn recorded(output: &str) -> Option<[String; 2]> {
    let dir = tempfile::tempdir().unwrap();
    let (input, file) = (dir.path().join("input"), dir.path().join("file"));
    std::fs::write(&input, output).unwrap();
    std::fs::write(&file, "a line before\n").unwrap();
    let open = || std::fs::File::options().append(true).open(&file).unwrap();
    let made = Command::new("make")
        .args(["--no-print-directory", "--eval=record: ; @$(RECORD)", "record"])
        .arg(format!("TARGET={}", dir.path().display()))
        .current_dir(Path::new(SCRIPTS).join("../.."))
        .env_remove("MAKEFLAGS")
        .stdin(std::fs::File::open(&input).unwrap())
        .stdout(open())
        .stderr(open())
        .status();
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    made.unwrap().success().then(|| [read(file.clone()), read(dir.path().join("bench.jsonl"))])
}

#[test]
fn the_output_of_a_benchmark_is_whole_in_a_file_and_its_json_is_recorded() {
    let [file, record] = recorded("it begins\n{\"ratio\": 2}\nit ends\n").expect("it has JSON");
    assert_eq!(file, "a line before\nit begins\n{\"ratio\": 2}\nit ends\n");
    assert_eq!(record, "{\"ratio\": 2}\n");
}

#[test]
fn a_benchmark_without_json_fails() {
    assert_eq!(recorded("it begins\nit ends\n"), None);
}
