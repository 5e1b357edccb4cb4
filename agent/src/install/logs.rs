//! The log of the new system: its own rsyslog sends it to racks.

use std::fs;
use std::path::Path;

use basalt_api::agent::LogSetup;

/// Programs of rsyslog, by distribution.
const PROGRAMS: [&str; 2] = ["usr/sbin/rsyslogd", "usr/bin/rsyslogd"];
/// The directory that rsyslog.conf of Debian, Ubuntu, Fedora and RHEL includes.
const DROP_INS: &str = "etc/rsyslog.d";
/// The file in it.
pub(super) const DROP_IN: &str = "etc/rsyslog.d/90-basalt.conf";

/// The possible setup for the unpacked image. `to`: `HOST:PORT` of its racks.
pub(super) fn setup(target: &Path, to: &str) -> LogSetup {
    // Links are not followed: they may lead out of the image.
    let is_file = |path: &&str| fs::symlink_metadata(target.join(path)).is_ok_and(|it| it.is_file());
    let is_dir = fs::symlink_metadata(target.join(DROP_INS)).is_ok_and(|it| it.is_dir());
    match is_dir && PROGRAMS.iter().any(is_file) {
        true => LogSetup::Rsyslog { to: to.to_owned() },
        false => LogSetup::NoRsyslog,
    }
}

/// The drop-in. Lines are stored on disk while no rack answers. A full queue drops lines, so that the system never waits for a rack.
pub(super) fn drop_in(to: &str) -> Option<String> {
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

    #[test]
    fn an_image_with_rsyslog_gets_a_drop_in_and_another_none() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path();
        assert_eq!(setup(target, "10.77.0.2:5247"), LogSetup::NoRsyslog);
        fs::create_dir_all(target.join("usr/sbin")).unwrap();
        fs::create_dir_all(target.join(DROP_INS)).unwrap();
        std::os::unix::fs::symlink("/bin/true", target.join("usr/sbin/rsyslogd")).unwrap();
        assert_eq!(
            setup(target, "10.77.0.2:5247"),
            LogSetup::NoRsyslog,
            "a link out of the image is no rsyslog"
        );
        fs::remove_file(target.join("usr/sbin/rsyslogd")).unwrap();
        fs::write(target.join("usr/sbin/rsyslogd"), "").unwrap();
        assert_eq!(setup(target, "10.77.0.2:5247"), LogSetup::Rsyslog { to: "10.77.0.2:5247".to_owned() });
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
