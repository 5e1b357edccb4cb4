//! Requirements of a system on RAIDs and volumes: programs in its image, and an initramfs that contains them.

use std::fs;
use std::path::Path;

use basalt_api::agent::FailureCode;

use super::target::{Inside, TARGET};
use crate::failure::Failure;
use crate::storage::Plan;
use crate::{deadlines, tool};

/// Exists while the initramfs is made, and selects a fast compression: the best one takes most of the time of an install. Later ones of the
/// system use the best again.
const QUICK_INITRAMFS: &str = "etc/initramfs-tools/conf.d/basalt-installing";

const DIRECTORIES: [&str; 4] = ["usr/sbin", "sbin", "usr/bin", "bin"];

/// Checks that the image has the programs for the disks.
///
/// # Errors
/// [`FailureCode::BadImage`], naming the package.
pub(super) fn has_programs(plan: &Plan) -> Result<(), Failure> {
    has_programs_below(Path::new(TARGET), plan)
}

fn has_programs_below(target: &Path, plan: &Plan) -> Result<(), Failure> {
    let initramfs = plan.initramfs.then_some(("update-initramfs", "initramfs-tools"));
    for (program, package) in plan.programs.iter().copied().chain(initramfs) {
        if !DIRECTORIES.iter().any(|directory| target.join(directory).join(program).exists()) {
            let message =
                format!("the image lacks {program} (package {package}), which its storage layout needs");
            return Err(Failure::new(FailureCode::BadImage, message));
        }
    }
    Ok(())
}

/// Makes a new initramfs if it must assemble the disks of the root file system and the image's own cannot.
///
/// # Errors
/// The image's program fails.
pub(super) fn update_initramfs(plan: &Plan) -> Result<(), Failure> {
    if plan.initramfs {
        let inside = Inside::bind()?;
        let able = image_is_able(plan);
        drop(inside);
        if able {
            return Ok(());
        }
        let quick = Path::new(TARGET).join(QUICK_INITRAMFS);
        if let Some(directory) = quick.parent() {
            fs::create_dir_all(directory).map_err(Failure::disk("configuring the initramfs"))?;
        }
        fs::write(&quick, "COMPRESSLEVEL=1\n").map_err(Failure::disk("configuring the initramfs"))?;
        let _inside = Inside::bind()?;
        let made = tool::run_in(TARGET, "update-initramfs", &["-u", "-k", "all"], deadlines::INITRAMFS);
        fs::remove_file(&quick).map_err(Failure::disk("configuring the initramfs"))?;
        made?;
    }
    Ok(())
}

/// True if every initramfs in the image has the programs. Such an initramfs is for any machine, and finds its disks itself.
fn image_is_able(plan: &Plan) -> bool {
    let Ok(entries) = fs::read_dir(Path::new(TARGET).join("boot")) else { return false };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let all: Vec<String> = names.filter(|name| name.starts_with("initrd.img-")).collect();
    let lists = |name: &String| {
        let path = format!("/boot/{name}");
        tool::run_in(TARGET, "lsinitramfs", &[&path], deadlines::TOOL).is_ok_and(|list| has_all(&list, plan))
    };
    !all.is_empty() && all.iter().all(lists)
}

/// True if the list of an initramfs has all of the programs.
fn has_all(list: &str, plan: &Plan) -> bool {
    let has = |program: &str| list.lines().any(|line| line.rsplit('/').next() == Some(program));
    plan.programs.iter().all(|(program, _)| has(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initramfs_that_has_the_programs_is_left_as_it_is() {
        let plan = |programs| Plan { programs, initramfs: true, ..Plan::default() };
        let list = "usr/sbin/mdadm\nusr/lib/modules/6.1/kernel/drivers/md/dm-mod.ko\netc/lvm/lvm.conf\n";
        assert!(has_all(list, &plan(vec![("mdadm", "mdadm")])));
        assert!(!has_all(list, &plan(vec![("mdadm", "mdadm"), ("lvm", "lvm2")])));
    }

    #[test]
    fn an_image_without_the_programs_of_its_layout_is_refused_by_the_packages_name() {
        let dir = tempfile::tempdir().unwrap();
        let plan =
            Plan { programs: vec![("mdadm", "mdadm"), ("lvm", "lvm2")], initramfs: true, ..Plan::default() };
        let lacking = || has_programs_below(dir.path(), &plan).map_err(|failure| failure.to_string());
        for (program, directory, package) in [
            ("mdadm", "sbin", "mdadm"),
            ("lvm", "usr/sbin", "lvm2"),
            ("update-initramfs", "usr/sbin", "initramfs-tools"),
        ] {
            let expected =
                format!("the image lacks {program} (package {package}), which its storage layout needs");
            assert_eq!(lacking(), Err(expected));
            fs::create_dir_all(dir.path().join(directory)).unwrap();
            fs::write(dir.path().join(directory).join(program), "").unwrap();
        }
        assert_eq!(lacking(), Ok(()));
        assert_eq!(has_programs_below(Path::new("/nowhere"), &Plan::default()), Ok(()));
    }
}
