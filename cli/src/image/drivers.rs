//! Selects kernel modules: those below some paths, their dependencies, and their firmware.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::host::{BuildError, io_error};

/// One kernel's modules.
#[derive(Debug)]
pub(super) struct Modules {
    /// `…/lib/modules/RELEASE`
    dir: PathBuf,
    /// Release of the kernel.
    pub(super) release: String,
    /// Needed files of each file, as paths below `dir`.
    needs: BTreeMap<String, Vec<String>>,
    /// Modules to load before a module, by its name.
    soft: BTreeMap<String, Vec<String>>,
}

impl Modules {
    /// The only kernel below `root/lib/modules`, after `depmod`.
    pub(super) fn open(root: &Path) -> Result<Self, BuildError> {
        let failed = |path: &Path| io_error(format!("reading {}", path.display()));
        let dir = Self::directory(root)?;
        let release = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let dep = dir.join("modules.dep");
        let needs = parse_dep(&fs::read_to_string(&dep).map_err(failed(&dep))?);
        let soft = parse_soft(&fs::read_to_string(dir.join("modules.softdep")).unwrap_or_default());
        Ok(Self { dir, release, needs, soft })
    }

    /// The latest kernel's directory below `root/lib/modules`.
    pub(super) fn directory(root: &Path) -> Result<PathBuf, BuildError> {
        let base = root.join("lib/modules");
        let entries = fs::read_dir(&base).map_err(io_error(format!("reading {}", base.display())))?;
        let latest = entries.flatten().map(|entry| entry.path()).max();
        latest.ok_or_else(|| BuildError::Lacking {
            release: "the image".to_owned(),
            what: "kernel modules".to_owned(),
        })
    }

    /// The path of a module file.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// The files below these paths (`drivers/net/phy`, `fs/overlayfs/overlay.ko`) and their dependencies.
    pub(super) fn select(&self, paths: &[&str]) -> BTreeSet<String> {
        let below = |file: &str, path: &str| {
            file.strip_prefix("kernel/")
                .and_then(|file| file.strip_prefix(path))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut open: Vec<&str> = self
            .needs
            .keys()
            .map(String::as_str)
            .filter(|file| paths.iter().any(|path| below(file, path)))
            .collect();
        let mut chosen = BTreeSet::new();
        while let Some(file) = open.pop() {
            if !chosen.insert(file.to_owned()) {
                continue;
            }
            open.extend(self.needs.get(file).into_iter().flatten().map(String::as_str));
            for name in self.soft.get(&module_name(file)).into_iter().flatten() {
                open.extend(self.needs.keys().map(String::as_str).filter(|file| module_name(file) == *name));
            }
        }
        chosen
    }

    /// Firmware files that these modules may ask for, as paths below `/lib/firmware`.
    pub(super) fn firmware(&self, files: &BTreeSet<String>) -> Result<BTreeSet<String>, BuildError> {
        let mut names = BTreeSet::new();
        for file in files {
            let path = self.path(file);
            let bytes = fs::read(&path).map_err(io_error(format!("reading {}", path.display())))?;
            names.extend(firmware_names(&bytes));
        }
        Ok(names)
    }
}

/// `firmware=` entries of a module's `.modinfo`: text ended by NULs.
fn firmware_names(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"firmware=";
    let strings = module.split(|byte| *byte == 0);
    let names = strings.filter_map(|text| std::str::from_utf8(text.strip_prefix(KEY)?).ok());
    names
        .filter(|name| !name.is_empty() && !name.starts_with('/') && !name.contains(".."))
        .map(str::to_owned)
        .collect()
}

fn parse_dep(text: &str) -> BTreeMap<String, Vec<String>> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(file, needs)| (file.to_owned(), needs.split_whitespace().map(str::to_owned).collect()))
        .collect()
}

fn parse_soft(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut soft: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some("softdep"), Some(module)) = (words.next(), words.next()) {
            let names = words.filter(|word| !word.ends_with(':')).map(|name| name.replace('-', "_"));
            soft.entry(module.replace('-', "_")).or_default().extend(names);
        }
    }
    soft
}

fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.trim_end_matches(".ko").replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Modules {
        Modules {
            dir: PathBuf::new(),
            release: String::new(),
            needs: parse_dep(
                "kernel/drivers/net/virtio_net.ko: kernel/net/core/failover.ko\nkernel/net/core/failover.ko:\n\
                 kernel/drivers/net/phy/realtek.ko:\nkernel/drivers/net/ethernet/realtek/r8169.ko:\nkernel/drivers/net/phyless/x.ko:\n",
            ),
            soft: parse_soft("softdep r8169 pre: realtek\n"),
        }
    }

    #[test]
    fn picks_files_with_all_they_need() {
        let chosen = modules().select(&["drivers/net/virtio_net.ko"]);
        assert_eq!(
            chosen.iter().collect::<Vec<_>>(),
            ["kernel/drivers/net/virtio_net.ko", "kernel/net/core/failover.ko"]
        );
        assert!(modules().select(&["drivers/net/ethernet"]).contains("kernel/drivers/net/phy/realtek.ko"));
    }

    #[test]
    fn a_directory_is_not_a_prefix_of_its_neighbour() {
        assert_eq!(modules().select(&["drivers/net/phy"]).len(), 1);
    }

    #[test]
    fn finds_the_firmware_a_module_asks_for() {
        let module =
            b"\x7fELF\0license=GPL\0firmware=bnx2x/bnx2x-e2-7.13.21.0.fw\0firmware=../../etc/passwd\0";
        assert_eq!(firmware_names(module), ["bnx2x/bnx2x-e2-7.13.21.0.fw"]);
    }
}
