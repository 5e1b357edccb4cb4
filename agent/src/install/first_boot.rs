//! Scripts of the first boot: the files by which the new system runs them.

use std::fs;
use std::io;
use std::path::Path;

use basalt_api::agent::{FailureCode, FirstBoot, Install, ScriptEnd};

use super::configure::{NewFile, write_files};
use crate::failure::Failure;
use crate::root::Root;
use crate::task_scripts;

/// The directory of the runner. `/run` may be mounted without permission to execute, so it is not there.
const DIRECTORY: &str = "var/lib/basalt-first-boot";
const UNIT: &str = "etc/systemd/system/basalt-first-boot.service";
/// Makes systemd start the unit. A drop-in needs no link, and `systemctl preset-all` does not remove it.
const DROP_IN: &str = "etc/systemd/system/multi-user.target.d/50-basalt-first-boot.conf";
const WANTS: &str = "[Unit]\nWants=basalt-first-boot.service\n";

/// The programs that the runner needs, with the places of each.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("python3", &["usr/bin/python3", "usr/local/bin/python3"]),
    ("systemd", &["usr/lib/systemd/systemd", "lib/systemd/systemd"]),
];

/// Writes the runner and its work, if the install has scripts of the first boot, and adds an end for each script.
///
/// # Errors
/// The image lacks a program that the runner needs. The file system cannot be written.
pub(super) fn write(install: &Install, target: &Path, ends: &mut Vec<ScriptEnd>) -> Result<(), Failure> {
    forget_earlier(target).map_err(Failure::disk("removing the scripts of an earlier first boot"))?;
    let Some(first_boot) = install.first_boot.as_deref() else { return Ok(()) };
    for (program, places) in PROGRAMS {
        // Links are not followed: an absolute one would lead out of the new system.
        if !places.iter().any(|place| fs::symlink_metadata(target.join(place)).is_ok()) {
            let message = format!("the image has no {program}, which scripts of the first boot need");
            return Err(Failure::new(FailureCode::BadImage, message));
        }
    }
    let (left, scripts) = task_scripts::of_first_boot(first_boot, &Root::system());
    ends.extend(left);
    let files = files(first_boot, scripts)?;
    write_files(target, &files).map_err(Failure::disk("writing the scripts of the first boot"))
}

/// Removes the runner of an earlier install. An image that was made of an installed system has one. The earlier runner's state says that
/// its scripts have run, and the earlier token belongs to another attempt.
fn forget_earlier(target: &Path) -> io::Result<()> {
    let gone = |done: io::Result<()>| match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    gone(fs::remove_dir_all(target.join(DIRECTORY)))?;
    gone(fs::remove_file(target.join(UNIT)))?;
    gone(fs::remove_file(target.join(DROP_IN)))
}

fn files(first_boot: &FirstBoot, scripts: Vec<basalt_api::agent::Script>) -> Result<Vec<NewFile>, Failure> {
    let mut work = first_boot.work.clone();
    work.scripts = scripts;
    let work = serde_json::to_string(&work)
        .map_err(|error| Failure::new(FailureCode::Other, format!("scripts of the first boot: {error}")))?;
    let file = |path: &str, mode, text: &str| NewFile { path: path.to_owned(), mode, text: text.to_owned() };
    Ok(vec![
        file(&format!("{DIRECTORY}/run"), 0o700, &first_boot.runner),
        // Scripts may have secrets, and the report token is one.
        file(&format!("{DIRECTORY}/work.json"), 0o600, &work),
        file(UNIT, 0o644, &first_boot.unit),
        file(DROP_IN, 0o644, WANTS),
    ])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use basalt_api::agent::{FirstBootWork, Script};

    use super::*;

    fn install() -> Install {
        let script = |name: &str, hardware: &[&str]| Script {
            name: name.to_owned(),
            hardware: hardware.iter().map(|it| (*it).to_owned()).collect(),
            ..Script::default()
        };
        let scripts = vec![script("tune", &[]), script("other", &["system_vendor:no such vendor"])];
        let work = FirstBootWork { scripts, ..FirstBootWork::default() };
        let first_boot = FirstBoot { runner: "#!python\n".to_owned(), unit: "[Unit]\n".to_owned(), work };
        Install { first_boot: Some(Box::new(first_boot)), ..super::super::configure::tests::install() }
    }

    #[test]
    fn the_new_system_gets_the_runner_and_the_scripts_for_its_hardware() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path();
        let refused = |ends: &mut Vec<_>| write(&install(), target, ends).unwrap_err().message;
        let mut ends = Vec::new();
        assert_eq!(refused(&mut ends), "the image has no python3, which scripts of the first boot need");
        fs::create_dir_all(target.join("usr/bin")).unwrap();
        std::os::unix::fs::symlink("/usr/bin/python3.11", target.join("usr/bin/python3")).unwrap();
        assert_eq!(refused(&mut ends), "the image has no systemd, which scripts of the first boot need");
        fs::create_dir_all(target.join("lib/systemd")).unwrap();
        fs::write(target.join("lib/systemd/systemd"), "").unwrap();
        write(&install(), target, &mut ends).unwrap();

        let mode = |path: &str| fs::metadata(target.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("var/lib/basalt-first-boot/run"), 0o700);
        assert_eq!(mode("var/lib/basalt-first-boot/work.json"), 0o600, "it has a token");
        assert_eq!(fs::read_to_string(target.join(UNIT)).unwrap(), "[Unit]\n");
        assert_eq!(fs::read_to_string(target.join(DROP_IN)).unwrap(), WANTS);
        let work = fs::read(target.join("var/lib/basalt-first-boot/work.json")).unwrap();
        let work: FirstBootWork = serde_json::from_slice(&work).unwrap();
        assert_eq!(work.scripts.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["tune"]);
        let skipped = |index: usize| ends[index].skipped.clone().unwrap_or_default();
        assert_eq!(ends.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["tune", "other"]);
        assert_eq!(skipped(0), "it runs at the first boot");
        assert!(skipped(1).contains("system_vendor:no such vendor"), "{}", skipped(1));
    }

    #[test]
    fn an_install_without_such_scripts_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut ends = Vec::new();
        write(&Install { first_boot: None, ..install() }, dir.path(), &mut ends).unwrap();
        assert!(ends.is_empty() && fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
