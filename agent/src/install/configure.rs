//! Configures the unpacked image for this machine: names, mounts, network, cloud-init seed, settings of GRUB.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use basalt_api::agent::{Install, LogSetup, Packages};

use super::menu::Menu;
use super::packages::{Image, TextFile};
use super::target::TARGET;
use super::{logs, packages};
use crate::failure::Failure;
use crate::say;
use crate::storage::Plan;

/// One file of the new system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewFile {
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) text: String,
}

/// Writes the files, with those of [`packages`] and [`logs`]. Removes host keys, since every machine must have its own. Returns how the
/// system sends its log, if the task asked for that.
///
/// # Errors
/// The file system cannot be written.
pub(super) fn write(install: &Install, menu: &Menu, plan: &Plan) -> Result<Option<LogSetup>, Failure> {
    let target = Path::new(TARGET);
    let packages = match install.packages.as_deref() {
        Some(packages) => package_files(packages, target, &mut |line| say!("{line}"))?,
        None => Vec::new(),
    };
    let mut files = files(install, menu, plan);
    files.extend(packages.into_iter().map(|(path, text)| NewFile { path, mode: 0o644, text }));
    let setup = logs::setup(target, install);
    if let Some(setup) = &setup {
        let new = logs::files(setup).into_iter();
        files.extend(new.map(|(path, mode, text)| NewFile { path: path.to_owned(), mode, text }));
        logs::enable(target, setup).map_err(Failure::disk("starting the sender of the log at boot"))?;
    }
    write_below(target, &files).map_err(Failure::disk("configuring the new system"))?;
    Ok(setup)
}

/// Returns the files of [`packages`] for this image, and logs the repositories that it cannot use.
fn package_files(
    packages: &Packages,
    target: &Path,
    log: &mut dyn FnMut(&str),
) -> Result<Vec<TextFile>, Failure> {
    let image = Image::of(target);
    packages::left_out(packages, &image).iter().for_each(|line| log(line));
    packages::files(packages, &image)
}

/// Writes files below `target`. Files and links of the image at their paths are replaced.
pub(super) fn write_files(target: &Path, files: &[NewFile]) -> io::Result<()> {
    for file in files {
        let path = target.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        // Remove a link in the image here: it could lead out of the target.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut new = OpenOptions::new().write(true).create_new(true).mode(file.mode).open(&path)?;
        new.write_all(file.text.as_bytes())?;
    }
    Ok(())
}

fn write_below(target: &Path, files: &[NewFile]) -> io::Result<()> {
    write_files(target, files)?;
    // cloud-init makes new host keys at the first boot.
    for entry in fs::read_dir(target.join("etc/ssh")).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("ssh_host_") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn files(install: &Install, menu: &Menu, plan: &Plan) -> Vec<NewFile> {
    let file = |path: &str, mode, text: &str| NewFile { path: path.to_owned(), mode, text: text.to_owned() };
    let seed = &install.seed;
    let hosts = format!(
        "127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost ip6-localhost ip6-loopback\n",
        name = install.hostname
    );
    // Netplan configures the network. Without this setting, cloud-init would add its own guess.
    let network = if install.netplan.is_empty() { "" } else { "network: {config: disabled}\n" };
    let mut files = vec![
        file("etc/hostname", 0o644, &format!("{}\n", install.hostname)),
        file("etc/hosts", 0o644, &hosts),
        file("etc/fstab", 0o644, &plan.fstab),
        file("etc/machine-id", 0o444, ""),
        file(
            "etc/cloud/cloud.cfg.d/90-basalt.cfg",
            0o644,
            &format!("datasource_list: [NoCloud, None]\n{network}"),
        ),
        file("etc/default/grub.d/50-basalt.cfg", 0o644, &menu.defaults()),
        file("var/lib/cloud/seed/nocloud/meta-data", 0o600, &seed.meta_data),
        file("var/lib/cloud/seed/nocloud/user-data", 0o600, &seed.user_data),
    ];
    if !install.netplan.is_empty() {
        files.push(file("etc/netplan/50-basalt.yaml", 0o600, &install.netplan));
    }
    if !install.ntp_servers.is_empty() {
        let servers = install.ntp_servers.join(" ");
        files.push(file(
            "etc/systemd/timesyncd.conf.d/50-basalt.conf",
            0o644,
            &format!("[Time]\nNTP={servers}\n"),
        ));
        // For chrony of Debian and Ubuntu, which an image may use in place of timesyncd.
        let sources = install.ntp_servers.iter().map(|server| format!("server {server} iburst\n"));
        files.push(file("etc/chrony/sources.d/50-basalt.sources", 0o644, &sources.collect::<String>()));
    }
    if let Some(conf) = &plan.mdadm_conf {
        files.push(file("etc/mdadm/mdadm.conf", 0o644, conf));
    }
    // cloud-init reads every file that exists, and an empty network configuration differs from an absent one.
    for (path, text) in [
        ("var/lib/cloud/seed/nocloud/vendor-data", &seed.vendor_data),
        ("var/lib/cloud/seed/nocloud/network-config", &seed.network_config),
    ] {
        if !text.is_empty() {
            files.push(file(path, 0o600, text));
        }
    }
    files
}

#[cfg(test)]
pub(super) mod tests {
    use basalt_api::agent::{BlobRef, DiskSelector, DnfRepository, NoCloudSeed, Repository, Wipe};

    use super::*;

    pub(in crate::install) fn install() -> Install {
        Install {
            image: BlobRef { sha256: String::new(), size: 0 },
            disk: DiskSelector::default(),
            storage: None,
            wipe: Wipe::IfOurs,
            hostname: "node-1".to_owned(),
            kernel_options: "quiet".to_owned(),
            netplan: "network: {version: 2}\n".to_owned(),
            ntp_servers: Vec::new(),
            packages: None,
            log_to: None,
            log_receivers: Vec::new(),
            seed: NoCloudSeed { user_data: "#cloud-config\n".to_owned(), ..NoCloudSeed::default() },
            first_boot: None,
        }
    }

    fn menu() -> Menu {
        Menu::new("quiet", &[])
    }

    fn text(files: &[NewFile], path: &str) -> Option<String> {
        files.iter().find(|file| file.path == path).map(|file| file.text.clone())
    }

    #[test]
    fn mounts_what_was_planned_and_names_the_host() {
        let plan = Plan {
            fstab: "UUID=1 / ext4 defaults 0 1\n".to_owned(),
            mdadm_conf: Some("ARRAY <ignore>\n".to_owned()),
            ..Plan::default()
        };
        let files = files(&install(), &menu(), &plan);
        assert_eq!(text(&files, "etc/fstab"), Some(plan.fstab));
        assert_eq!(text(&files, "etc/mdadm/mdadm.conf"), plan.mdadm_conf);
        assert_eq!(text(&files, "etc/hostname").unwrap(), "node-1\n");
        assert_eq!(text(&files, "etc/machine-id").unwrap(), "");
    }

    #[test]
    fn ntp_servers_are_told_to_timesyncd_and_chrony() {
        let [timesyncd, chrony] =
            ["etc/systemd/timesyncd.conf.d/50-basalt.conf", "etc/chrony/sources.d/50-basalt.sources"];
        let ntp_servers = vec!["10.77.0.2".to_owned(), "ntp.example.com".to_owned()];
        let told = files(&Install { ntp_servers, ..install() }, &menu(), &Plan::default());
        assert_eq!(text(&told, timesyncd).unwrap(), "[Time]\nNTP=10.77.0.2 ntp.example.com\n");
        let sources = "server 10.77.0.2 iburst\nserver ntp.example.com iburst\n";
        assert_eq!(text(&told, chrony).unwrap(), sources);
        let untold = files(&install(), &menu(), &Plan::default());
        assert_eq!((text(&untold, timesyncd), text(&untold, chrony)), (None, None));
    }

    #[test]
    fn cloud_init_keeps_off_a_network_that_netplan_describes() {
        let plan = Plan::default();
        let disabled = "network: {config: disabled}";
        let with = files(&install(), &menu(), &plan);
        assert!(text(&with, "etc/cloud/cloud.cfg.d/90-basalt.cfg").unwrap().contains(disabled));
        let without = files(&Install { netplan: String::new(), ..install() }, &menu(), &plan);
        assert!(!text(&without, "etc/cloud/cloud.cfg.d/90-basalt.cfg").unwrap().contains(disabled));
        assert_eq!(text(&without, "etc/netplan/50-basalt.yaml"), None);
    }

    #[test]
    fn an_image_gets_the_repositories_of_its_package_manager_and_the_log_names_the_others() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("etc/dnf")).unwrap();
        fs::write(dir.path().join("etc/dnf/dnf.conf"), "[main]\n").unwrap();
        let packages = Packages {
            repositories: vec![Repository { name: "debs".to_owned(), ..Repository::default() }],
            dnf: vec![DnfRepository { name: "rpms".to_owned(), ..DnfRepository::default() }],
            ..Packages::default()
        };
        let mut lines = Vec::new();
        let files = package_files(&packages, dir.path(), &mut |line| lines.push(line.to_owned())).unwrap();
        let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["etc/yum.repos.d/basalt-rpms.repo"]);
        assert!(matches!(&lines[..], [line] if line.ends_with("PackageRepositories: debs")), "{lines:?}");
    }

    #[test]
    fn seeds_hold_secrets_and_are_for_root_alone() {
        let files = files(&install(), &menu(), &Plan::default());
        let secret = |file: &&NewFile| file.path.contains("seed") || file.path.contains("netplan");
        assert!(files.iter().filter(secret).count() >= 3);
        assert!(files.iter().filter(secret).all(|file| file.mode == 0o600));
    }

    #[test]
    fn files_of_the_image_are_replaced_not_followed_and_host_keys_removed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::create_dir_all(target.join("etc/ssh")).unwrap();
        fs::write(target.join("etc/ssh/ssh_host_rsa_key"), "shared by all").unwrap();
        fs::write(target.join("etc/ssh/sshd_config"), "").unwrap();
        fs::write(dir.path().join("outside"), "untouched").unwrap();
        std::os::unix::fs::symlink(dir.path().join("outside"), target.join("etc/hostname")).unwrap();
        write_below(&target, &files(&install(), &menu(), &Plan::default())).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("outside")).unwrap(), "untouched");
        assert_eq!(fs::read_to_string(target.join("etc/hostname")).unwrap(), "node-1\n");
        assert!(
            !target.join("etc/ssh/ssh_host_rsa_key").exists() && target.join("etc/ssh/sshd_config").exists()
        );
    }
}
