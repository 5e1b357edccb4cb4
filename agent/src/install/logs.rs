//! The log of the new system: its own rsyslog sends it to racks. A system without rsyslog gets a service that sends its journal.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use basalt_api::agent::{Install, LogSetup};

/// Programs of rsyslog, by distribution.
const RSYSLOG: [&str; 2] = ["usr/sbin/rsyslogd", "usr/bin/rsyslogd"];
/// The directory that rsyslog.conf of Debian, Ubuntu, Fedora and RHEL includes.
const DROP_INS: &str = "etc/rsyslog.d";
/// The file in it.
const DROP_IN: &str = "etc/rsyslog.d/90-basalt.conf";
/// The requirements of [`PROGRAM`].
const FOR_JOURNAL: [&str; 3] = ["usr/bin/journalctl", "usr/bin/python3", "usr/lib/systemd/systemd-journald"];
/// The program that sends the journal, and its text.
const PROGRAM: (&str, &str) = ("usr/local/sbin/basalt-journal", include_str!("basalt-journal"));
/// Its unit. `@RECEIVERS@` stands for the arguments of the program.
const UNIT: (&str, &str) =
    ("etc/systemd/system/basalt-journal.service", include_str!("basalt-journal.service"));
/// The link that starts the unit at boot, as `systemctl enable` makes it, and its destination.
const ENABLED: (&str, &str) =
    ("etc/systemd/system/multi-user.target.wants/basalt-journal.service", "../basalt-journal.service");

/// A file of the new system: its path, its mode, and its text.
pub(super) type ModeFile = (&'static str, u32, String);

/// The possible setup for the unpacked image. `None`: the task does not ask for the log.
pub(super) fn setup(target: &Path, install: &Install) -> Option<LogSetup> {
    let to = install.log_to.as_ref()?;
    // Links are not followed: they may lead out of the image.
    let is_file = |path: &&str| fs::symlink_metadata(target.join(path)).is_ok_and(|it| it.is_file());
    let is_dir = fs::symlink_metadata(target.join(DROP_INS)).is_ok_and(|it| it.is_dir());
    // Debian's python3 is a link to a version, and /lib may be a link to /usr/lib.
    let exists = |path: &&str| fs::symlink_metadata(target.join(path)).is_ok();
    Some(if is_dir && RSYSLOG.iter().any(is_file) {
        LogSetup::Rsyslog { to: to.clone() }
    } else if !install.log_receivers.is_empty() && FOR_JOURNAL.iter().all(exists) {
        LogSetup::Journal { to: install.log_receivers.clone() }
    } else {
        LogSetup::NoRsyslog
    })
}

/// The files of a setup.
pub(super) fn files(setup: &LogSetup) -> Vec<ModeFile> {
    match setup {
        LogSetup::Rsyslog { to } => drop_in(to).map(|text| (DROP_IN, 0o644, text)).into_iter().collect(),
        LogSetup::Journal { to } => vec![
            (PROGRAM.0, 0o755, PROGRAM.1.to_owned()),
            (UNIT.0, 0o644, UNIT.1.replace("@RECEIVERS@", &to.join(" "))),
        ],
        LogSetup::NoRsyslog => Vec::new(),
    }
}

/// Has the system start the service of a setup at boot.
///
/// # Errors
/// `io::Error`: the link cannot be written.
pub(super) fn enable(target: &Path, setup: &LogSetup) -> io::Result<()> {
    let LogSetup::Journal { .. } = setup else { return Ok(()) };
    let link = target.join(ENABLED.0);
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => symlink(ENABLED.1, &link),
    }
}

/// The drop-in. Lines are stored on disk while no rack answers. A full queue drops lines, so that the system never waits for a rack.
fn drop_in(to: &str) -> Option<String> {
    let (host, port) = to.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(format!(
        "# Written by Basalt when it installed this system: its log goes to its racks.\n\
         action(type=\"omfwd\" target=\"{host}\" port=\"{port}\" protocol=\"tcp\" TCP_Framing=\"octet-counted\"\n  \
         template=\"RSYSLOG_SyslogProtocol23Format\"\n  \
         queue.type=\"LinkedList\" queue.filename=\"basalt\" queue.maxDiskSpace=\"64m\" queue.saveOnShutdown=\"on\"\n  \
         queue.timeoutEnqueue=\"0\" action.resumeRetryCount=\"-1\" action.resumeInterval=\"10\")\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: &str = "lab.rack.basalt.internal:5247";
    const ADDRESS: &str = "10.77.0.2:5247";

    fn setup(target: &Path, receivers: &[&str]) -> LogSetup {
        let receivers = receivers.iter().map(|it| (*it).to_owned()).collect();
        let install = Install { log_receivers: receivers, ..super::super::configure::tests::install() };
        super::setup(target, &Install { log_to: Some(TO.to_owned()), ..install }).unwrap()
    }

    #[test]
    fn an_image_with_rsyslog_gets_a_drop_in_and_another_none() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path();
        let rsyslog = LogSetup::Rsyslog { to: TO.to_owned() };
        assert_eq!(super::setup(target, &super::super::configure::tests::install()), None);
        assert_eq!(setup(target, &[]), LogSetup::NoRsyslog);
        fs::create_dir_all(target.join("usr/sbin")).unwrap();
        fs::create_dir_all(target.join(DROP_INS)).unwrap();
        symlink("/bin/true", target.join("usr/sbin/rsyslogd")).unwrap();
        assert_eq!(setup(target, &[]), LogSetup::NoRsyslog, "a link out of the image is no rsyslog");
        fs::remove_file(target.join("usr/sbin/rsyslogd")).unwrap();
        fs::write(target.join("usr/sbin/rsyslogd"), "").unwrap();
        assert_eq!(setup(target, &[TO, ADDRESS]), rsyslog);
        let [(path, 0o644, text)] = &files(&rsyslog)[..] else { panic!("one file") };
        assert_eq!((*path, text), (DROP_IN, &drop_in(TO).unwrap()));
        enable(target, &rsyslog).unwrap();
        assert!(!target.join("etc/systemd").exists());
    }

    #[test]
    fn an_image_without_rsyslog_gets_a_service_that_sends_its_journal() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path();
        for directory in ["usr/bin", "usr/lib/systemd"] {
            fs::create_dir_all(target.join(directory)).unwrap();
        }
        fs::write(target.join("usr/bin/journalctl"), "").unwrap();
        fs::write(target.join("usr/lib/systemd/systemd-journald"), "").unwrap();
        assert_eq!(setup(target, &[TO, ADDRESS]), LogSetup::NoRsyslog, "it has no python3");
        symlink("python3.11", target.join("usr/bin/python3")).unwrap();
        assert_eq!(setup(target, &[]), LogSetup::NoRsyslog, "an older region does not know the service");
        let journal = setup(target, &[TO, ADDRESS]);
        assert_eq!(journal, LogSetup::Journal { to: vec![TO.to_owned(), ADDRESS.to_owned()] });
        let [(program, 0o755, _), (unit, 0o644, text)] = &files(&journal)[..] else { panic!("two files") };
        let start =
            format!("\nExecStart=/usr/bin/python3 /{program} lab.rack.basalt.internal:5247 10.77.0.2:5247\n");
        assert!(text.contains(&start), "{text}");
        // The link of an earlier boot of the image is replaced.
        for _ in 0..2 {
            enable(target, &journal).unwrap();
        }
        let link = target.join("etc/systemd/system/multi-user.target.wants/basalt-journal.service");
        let wanted = link.parent().unwrap().join(fs::read_link(&link).unwrap());
        fs::write(target.join(unit), text).unwrap();
        assert_eq!(fs::canonicalize(wanted).unwrap(), fs::canonicalize(target.join(unit)).unwrap());
    }

    #[test]
    fn systemd_understands_the_unit() {
        let dir = tempfile::tempdir().unwrap();
        let journal = LogSetup::Journal { to: vec![TO.to_owned(), "[2001:db8::2]:5247".to_owned()] };
        let verify = |text: &str| {
            let unit = dir.path().join("basalt-journal.service");
            // The program is checked too, and this host does not have it.
            fs::write(&unit, text.replace("/usr/local/sbin/basalt-journal", "-")).unwrap();
            let verified = std::process::Command::new("systemd-analyze")
                .args(["verify", "--man=no", "--recursive-errors=no"])
                .arg(&unit)
                .output()
                .unwrap();
            String::from_utf8_lossy(&verified.stderr).into_owned()
        };
        let text = &files(&journal)[1].2;
        assert_eq!(verify(text), "");
        assert!(
            verify(&text.replace("Restart=always", "Restart=nonsense")).contains("nonsense"),
            "it checks"
        );
    }

    #[test]
    fn the_drop_in_waits_for_racks_on_disk_and_names_an_address_without_brackets() {
        let text = drop_in("lab.rack.basalt.internal:5247").unwrap();
        for part in [
            "target=\"lab.rack.basalt.internal\" port=\"5247\" protocol=\"tcp\"",
            "queue.filename=\"basalt\"",
            "action.resumeRetryCount=\"-1\"",
            "queue.timeoutEnqueue=\"0\"",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(drop_in("[2001:db8::2]:5247").unwrap().contains("target=\"2001:db8::2\" port=\"5247\""));
    }

    /// A path below the root of Debian's rsyslog.
    fn peer(path: &str) -> std::path::PathBuf {
        let bring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/lab/peer");
        let brought = std::process::Command::new(bring).arg("rsyslog").output().unwrap();
        assert!(brought.status.success(), "tests/lab/peer rsyslog: {}", brought.status);
        Path::new(String::from_utf8(brought.stdout).unwrap().trim_end()).join(path)
    }

    #[test]
    fn rsyslogd_takes_the_drop_in() {
        let dir = tempfile::tempdir().unwrap();
        let checks = |drop_in: &str| {
            let spool = format!("global(workDirectory=\"{}\")\n", dir.path().display());
            fs::write(dir.path().join("rsyslog.conf"), spool + drop_in).unwrap();
            let libraries = peer("usr/lib/x86_64-linux-gnu");
            let check = std::process::Command::new(peer("usr/sbin/rsyslogd"))
                .args(["-N1", "-M"])
                .arg(libraries.join("rsyslog"))
                .arg("-f")
                .arg(dir.path().join("rsyslog.conf"))
                .env("LD_LIBRARY_PATH", libraries)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&check.stderr).into_owned();
            (check.status.success() && !said.contains("error"), said)
        };
        for to in ["lab.rack.basalt.internal:5247", "[2001:db8::2]:5247"] {
            let (is_good, said) = checks(&drop_in(to).unwrap());
            assert!(is_good, "{said}");
        }
        assert!(!checks("action(type=\"omfwd\" target=\"a\" queue.nonsense=\"1\")\n").0, "it checks");
    }
}
