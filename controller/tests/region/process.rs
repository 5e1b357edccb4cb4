//! The program itself: its own PostgreSQL, kill -9, a second start, mistakes.

use crate::documented;
use crate::support::{Client, admin_token};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpStream;

/// A `basalt-region` that is killed, by its own id, when the test ends.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) api: Client,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_basalt-region"));
    command.arg("--data-dir").arg(dir).args(PORTS).args(["--log", "warn"]);
    command.stdin(Stdio::null());
    command
}

/// The shortest command of the manual with this word, with other words in the places of some.
pub(crate) fn of_manual(word: &str, instead: &[(&str, &str)]) -> Command {
    let commands = documented::commands(|it| it == "basalt-region");
    let meant = commands.iter().filter(|it| it.is_whole && it.words.iter().any(|it| it == word));
    let meant = meant.min_by_key(|it| it.words.len()).expect("the manual has it");
    eprintln!("{}: {}", meant.place, meant.words.join(" "));
    let mut command = Command::new(env!("CARGO_BIN_EXE_basalt-region"));
    for word in meant.words.iter().skip(1) {
        let other = instead.iter().find(|(it, _)| it == word);
        command.arg(other.map_or(word.as_str(), |(_, other)| other));
    }
    command.stdin(Stdio::null());
    command
}

/// The flags that keep a region off the ports of other tests.
const PORTS: [&str; 4] = ["--listen", "127.0.0.1:0", "--rpc-listen", "127.0.0.1:0"];

pub(crate) fn start(dir: &Path) -> Program {
    start_with(command(dir), dir)
}

pub(crate) fn start_with(mut command: Command, dir: &Path) -> Program {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let first = lines.next().expect("it says where it answers").expect("text");
    let address = first.trim_start_matches("API: http").trim_start_matches("s").trim_start_matches("://");
    let address: SocketAddr = address.parse().expect("an address");
    Program { child, api: Client::new(address, Some(admin_token(dir))) }
}

pub(crate) fn data_dir() -> TempDir {
    let dir = tempfile::Builder::new().prefix("basalt-region-").tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711))
        .expect("open to pass through");
    dir
}

fn postmaster(dir: &Path) -> i32 {
    let text = std::fs::read_to_string(dir.join("postgres/postmaster.pid")).expect("it runs");
    text.lines().next().expect("a line").trim().parse().expect("a number")
}

pub(crate) fn signal(pid: i32, name: &str) {
    Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().expect("kill");
}

pub(crate) fn id(child: &Child) -> i32 {
    i32::try_from(child.id()).expect("a pid")
}

pub(crate) fn wait(child: &mut Child) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().expect("its status") {
            return status.code().unwrap_or(-1);
        }
        assert!(Instant::now() < deadline, "it did not end in 60 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The same, with the soft limit of open files that a shell sets.
fn command_with_few_files(dir: &Path) -> Command {
    let plain = command(dir);
    let mut shell = Command::new("bash");
    shell
        .args(["-c", "ulimit -Sn 1024 && exec \"$@\"", "bash"])
        .arg(plain.get_program())
        .args(plain.get_args());
    shell.stdin(Stdio::null());
    shell
}

#[tokio::test]
async fn a_region_that_was_killed_leaves_postgresql_for_the_next_one_and_loses_nothing() {
    let dir = data_dir();
    let mut first = start_with(command_with_few_files(dir.path()), dir.path());
    // More idle connections than the soft limit of files: the region has raised it.
    basalt_proto::open_files::raise_limit().expect("the limit of this test");
    let mut idle = Vec::new();
    for _ in 0..1_500 {
        idle.push(TcpStream::connect(first.api.address).await.expect("a place"));
    }
    // After 30 s the region closes the idle ones.
    let declared = first.api.declare("/api/v1/zones/a", "{}");
    tokio::time::timeout(Duration::from_secs(20), declared).await.expect("it is answered at once");
    drop(idle);
    let pid = postmaster(dir.path());
    let second = failing(command(dir.path()));
    assert!(second.contains("another region runs in"), "{second}");
    signal(id(&first.child), "KILL");
    wait(&mut first.child);
    let mut next = start(dir.path());
    assert_eq!(postmaster(dir.path()), pid, "the living postmaster was adopted");
    assert_eq!(next.api.get("/api/v1/zones/a").await.status, 200);
    signal(id(&next.child), "TERM");
    assert_eq!(wait(&mut next.child), 0);
    assert!(!dir.path().join("postgres/postmaster.pid").exists(), "PostgreSQL stopped with it");
    let here = ("/var/lib/basalt", dir.path().to_str().expect("text"));
    let mut documented = of_manual("--join-urls", &[here]);
    documented.args(PORTS);
    let mut last = start_with(documented, dir.path());
    assert_eq!(last.api.get("/api/v1/zones/a").await.status, 200);
    signal(id(&last.child), "TERM");
    assert_eq!(wait(&mut last.child), 0);
}

#[test]
fn a_region_starts_with_a_certificate_as_the_manual_says() {
    let dir = data_dir();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let files = [("tls.pem", made.cert.pem()), ("tls.key", made.signing_key.serialize_pem())];
    let files = files.map(|(name, text)| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("text").to_owned()
    });
    let mut documented = of_manual(
        "--tls-key",
        &[
            ("/var/lib/basalt", dir.path().to_str().expect("text")),
            ("/etc/basalt/tls.pem", &files[0]),
            ("/etc/basalt/tls.key", &files[1]),
            ("0.0.0.0:5240", "127.0.0.1:0"),
        ],
    );
    documented.args(["--rpc-listen", "127.0.0.1:0"]);
    let mut region = start_with(documented, dir.path());
    signal(id(&region.child), "TERM");
    assert_eq!(wait(&mut region.child), 0);
}

/// The words of a start that has to fail.
pub(crate) fn failing(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("it runs");
    assert!(!status.success());
    String::from_utf8_lossy(&stderr).into_owned()
}

#[test]
fn mistakes_are_named_with_what_to_do() {
    let dir = data_dir();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|a| (taken, a.to_string())).expect("its address");
    let nowhere = dir.path().join("nowhere");
    let nowhere = nowhere.to_str().expect("text");
    let data = dir.path().to_str().expect("text");
    let cases = [
        (
            vec!["--data-dir", data, "--listen", &taken.1],
            format!("cannot listen on {}, the setting listen", taken.1),
        ),
        (
            vec!["--data-dir", data, "--seal-key-file", nowhere],
            "the setting seal-key-file names it".to_owned(),
        ),
        (vec!["--data-dir", data, "--log", "a=b=c"], "the setting log is \"a=b=c\"".to_owned()),
        (vec!["--data-dir", data, "--connections", "1"], "--connections".to_owned()),
        (vec![], "give --data-dir, or BASALT_DATA_DIR".to_owned()),
    ];
    for (arguments, words) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_basalt-region"));
        command.args(arguments).env_remove("BASALT_DATA_DIR");
        let said = failing(command);
        assert!(said.contains(&words), "{said}");
    }
}

#[test]
fn a_database_that_refuses_connections_is_told_as_it_refuses_them() {
    let dir = data_dir();
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let mut command = command(dir.path());
    command.args(["--database-url", &format!("postgres://basalt:secret@{free}/basalt")]);
    let said = failing(command);
    assert!(said.contains("Connection refused") && !said.contains("pool"), "{said}");
    assert!(said.contains(&format!("postgres://basalt@{free}/basalt")) && !said.contains("secret"), "{said}");
}

#[test]
fn a_cluster_of_another_version_stops_with_instructions() {
    let dir = data_dir();
    std::fs::create_dir(dir.path().join("postgres")).expect("a directory");
    std::fs::write(dir.path().join("postgres/PG_VERSION"), "9\n").expect("a file");
    let said = failing(command(dir.path()));
    assert!(said.contains("was made by PostgreSQL 9") && said.contains("pg_upgrade"), "{said}");
}

#[test]
fn a_directory_that_postgresql_cannot_enter_is_named() {
    let dir = data_dir();
    let closed = dir.path().join("closed");
    std::fs::create_dir(&closed).expect("a directory");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).expect("closed");
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&closed).expect("it is there")) == 0;
    if root {
        let said = failing(command(&closed.join("data")));
        assert!(said.contains(&format!("cannot enter {}", closed.display())), "{said}");
    }
}
