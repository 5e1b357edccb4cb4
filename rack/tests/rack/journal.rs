//! The journal of an installed system without rsyslog: a real systemd-journald, and the program that an install adds to the system.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};

use basalt_proto::rack_v1::LogLine;

use super::logs::{at, kept, start};
use super::namespace::{ip, is_inside, mount};
use super::support::{DEADLINE, settings};

/// The program in the sources of the agent.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/src/install/basalt-journal");
/// The socket of journald's own protocol.
const SOCKET: &str = "/run/systemd/journal/socket";

/// A process that ends with the test.
struct Running(Child);

impl Running {
    /// Ends it, as systemd does.
    fn stop(mut self) {
        let stopped = Command::new("kill").arg(self.0.id().to_string()).status().unwrap();
        assert!(stopped.success() && self.0.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn journald() -> Running {
    mount(&["-t", "tmpfs", "none", "/run"]);
    for directory in ["/run/systemd/journal", "/run/log/journal"] {
        fs::create_dir_all(directory).unwrap();
    }
    // journald has no journal without the id of the machine.
    fs::write("/run/machine-id", "0123456789abcdef0123456789abcdef\n").unwrap();
    mount(&["--bind", "/run/machine-id", "/etc/machine-id"]);
    let running = Running(Command::new("/lib/systemd/systemd-journald").spawn().unwrap());
    let listens = async {
        while !Path::new(SOCKET).exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, listens).await.expect("journald does not listen");
    running
}

/// Starts the program. A port of the first rack is closed.
fn sender(state: &Path, port: u16) -> Running {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(PROGRAM).arg("127.0.0.1:1").arg(format!("localhost:{port}")).env("STATE_DIRECTORY", state);
    Running(command.spawn().unwrap())
}

/// Writes an entry to the journal, with a text of any bytes.
fn write(text: &[u8]) {
    let length = u64::try_from(text.len()).unwrap().to_le_bytes();
    let entry = [b"PRIORITY=4\nSYSLOG_IDENTIFIER=web app\nMESSAGE\n", &length[..], text, b"\n"].concat();
    UnixDatagram::unbound().unwrap().send_to(&entry, SOCKET).unwrap();
}

fn texts(lines: &[LogLine]) -> Vec<&str> {
    lines.iter().filter(|line| line.app == "web_app").map(|line| line.text.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_reaches_a_rack_once_also_after_both_were_away() {
    if !is_inside("journal::a_journal_reaches_a_rack_once_also_after_both_were_away") {
        return;
    }
    ip("link set lo up");
    let dir = tempfile::tempdir().unwrap();
    let (settings, state) = (settings(dir.path()), dir.path().join("state"));
    fs::create_dir(&state).unwrap();
    let (port, _journald) = (at(&settings).port(), journald().await);
    // Lines from before the first start of the program are sent, too.
    write(b"one");
    let rack = start(&settings).await;
    let running = sender(&state, port);
    write(b"two lines\n\nand \0 and \xff");
    write(&[b'x'; 70_000]);
    write("line\n".repeat(300).as_bytes());
    write(b"last of the first");
    let lines = kept(&rack, "last of the first").await;
    let line = lines.iter().find(|line| line.text == "one").unwrap();
    assert_eq!((line.priority, &*line.app), (12, "web_app"));
    assert!(line.time.ends_with('Z') && !line.host.is_empty(), "{line:?}");
    assert_eq!(texts(&lines)[..3], ["one", "two lines", "and <U+0000> and \u{fffd}"]);
    let cut = |bytes: usize| format!("({bytes} more bytes of this journal entry are not sent)");
    assert_eq!((texts(&lines)[3].len(), texts(&lines)[4]), (8000, &*cut(62_000)));
    assert_eq!(texts(&lines).iter().filter(|text| **text == "line").count(), 256);
    assert_eq!(texts(&lines)[5 + 256], cut(44 * 5));
    // The rack is away, then the program is.
    rack.stop().await;
    write(b"without a rack");
    let rack = start(&settings).await;
    kept(&rack, "without a rack").await;
    running.stop();
    write(b"without the program");
    let _running = sender(&state, port);
    let lines = kept(&rack, "without the program").await;
    for text in ["one", "two lines", "last of the first", "without a rack", "without the program"] {
        assert_eq!(texts(&lines).iter().filter(|it| **it == text).count(), 1, "{text}: {lines:?}");
    }
    rack.stop().await;
}
