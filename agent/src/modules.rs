//! Loads kernel modules for the present devices, by the index files of `depmod`.
//!
//! Every device has a `modalias` below `/sys/devices`. `modules.alias` maps patterns of these to modules; `modules.dep` maps modules to
//! files and dependencies. This module replaces udev and kmod, so that the initrd needs no shared library.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use basalt_api::glob;

use crate::root::Root;
use crate::{deadlines, say};

/// The index of one kernel's modules.
#[derive(Debug, Default)]
pub struct Index {
    /// Directory of `modules.dep`. Its paths are relative to it.
    directory: PathBuf,
    /// Patterns and their modules by bus, the text before the first colon. Patterns with a wildcard there have the empty bus. A device only
    /// needs the patterns of its bus and of the empty bus.
    aliases: BTreeMap<String, Vec<(String, String)>>,
    files: BTreeMap<String, ModuleFile>,
    soft: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Default)]
struct ModuleFile {
    path: String,
    needs: Vec<String>,
}

impl Index {
    /// Reads the index below `/lib/modules/RELEASE`.
    ///
    /// # Errors
    /// `modules.dep` or `modules.alias` cannot be read.
    pub fn load(directory: &Path) -> io::Result<Self> {
        let soft = fs::read_to_string(directory.join("modules.softdep")).unwrap_or_default();
        Ok(Self::parse(
            directory,
            &fs::read_to_string(directory.join("modules.dep"))?,
            &fs::read_to_string(directory.join("modules.alias"))?,
            &soft,
        ))
    }

    /// The index of the running kernel.
    ///
    /// # Errors
    /// The same as for [`Index::load`].
    pub fn of_running_kernel() -> io::Result<Self> {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        Self::load(&Path::new("/lib/modules").join(release))
    }

    fn parse(directory: &Path, dep: &str, alias: &str, softdep: &str) -> Self {
        let mut index = Self { directory: directory.to_owned(), ..Self::default() };
        for line in dep.lines() {
            let Some((path, needs)) = line.split_once(':') else { continue };
            let needs = needs.split_ascii_whitespace().map(module_name).collect();
            index.files.insert(module_name(path), ModuleFile { path: path.to_owned(), needs });
        }
        for line in alias.lines() {
            let mut words = line.split_ascii_whitespace();
            if let (Some("alias"), Some(pattern), Some(module)) = (words.next(), words.next(), words.next()) {
                index.aliases.entry(bus(pattern)).or_default().push((pattern.to_owned(), normal(module)));
            }
        }
        for line in softdep.lines() {
            let mut words = line.split_ascii_whitespace();
            if let (Some("softdep"), Some(module)) = (words.next(), words.next()) {
                // Only the modules that must be loaded before. Modules to load afterwards are found by their own devices.
                let pre = words.skip_while(|word| *word != "pre:").skip(1);
                let pre = pre.take_while(|word| !word.ends_with(':')).map(normal);
                index.soft.entry(normal(module)).or_default().extend(pre);
            }
        }
        index
    }

    /// The modules for a modalias, or the module with this name.
    #[must_use]
    pub fn resolve(&self, alias: &str) -> BTreeSet<String> {
        let name = normal(alias);
        if self.files.contains_key(&name) {
            return BTreeSet::from([name]);
        }
        let candidates = self.aliases.get(&bus(alias)).into_iter().chain(self.aliases.get("")).flatten();
        let matching = candidates.filter(|(pattern, _)| glob::fnmatch(pattern, alias));
        matching.map(|(_, module)| module.clone()).collect()
    }

    /// The files to insert for a module, its dependencies first.
    #[must_use]
    pub fn files(&self, module: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        self.collect(&normal(module), &mut BTreeSet::new(), &mut files);
        files
    }

    fn collect(&self, module: &str, seen: &mut BTreeSet<String>, files: &mut Vec<PathBuf>) {
        if !seen.insert(module.to_owned()) {
            return;
        }
        let Some(file) = self.files.get(module) else { return };
        let soft = self.soft.get(module).into_iter().flatten();
        // `modules.dep` lists direct dependencies first and the deepest last.
        for needed in soft.chain(file.needs.iter().rev()) {
            self.collect(needed, seen, files);
        }
        files.push(self.directory.join(&file.path));
    }

    /// Inserts a module and its dependencies. It is no error if the module is already loaded or finds no device.
    ///
    /// # Errors
    /// A file cannot be read, or the kernel refuses it.
    pub fn insert(&self, module: &str) -> io::Result<()> {
        self.files(module).iter().try_for_each(|file| insert_file(file))
    }
}

/// Inserts one module file.
///
/// # Errors
/// The file cannot be read, or the kernel refuses it for a reason other than EEXIST or ENODEV.
pub fn insert_file(path: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(named)?;
    match rustix::system::finit_module(&file, c"", 0) {
        Ok(()) | Err(Errno::EXIST | Errno::NODEV) => Ok(()),
        Err(error) => Err(named(error.into())),
    }
}

/// A module that takes longer than this is logged, since it delays the boot.
const SLOW: Duration = Duration::from_millis(300);

/// Devices whose modules are not needed here, by the start of their alias. Loading these modules took a third of the time from power-on to
/// the inventory. `cpu:` loads KVM, EDAC and accelerated ciphers; the kernel itself loads ciphers that it needs.
const PASSED_OVER: [&str; 8] = [
    "cpu:",
    "input:",
    "serio:",
    "hid:",
    "hdaudio:",
    "platform:pcspkr",
    "platform:iTCO_wdt",
    "platform:coretemp",
];

/// Loads the modules of all devices. It remembers the devices, since new ones appear once a bus has its driver.
#[derive(Debug)]
pub struct Coldplug {
    index: Index,
    seen: BTreeSet<String>,
    loaded: BTreeSet<String>,
}

impl Coldplug {
    /// Makes one with no module loaded.
    #[must_use]
    pub fn new(index: Index) -> Self {
        Self { index, seen: BTreeSet::new(), loaded: BTreeSet::new() }
    }

    /// Loads the modules of devices that appeared since the last call. True if there were any.
    pub fn pass(&mut self) -> bool {
        let found = modaliases(Path::new("/sys/devices"));
        let new: Vec<String> = found.difference(&self.seen).cloned().collect();
        for alias in new.iter().filter(|alias| !PASSED_OVER.iter().any(|prefix| alias.starts_with(prefix))) {
            for module in self.index.resolve(alias) {
                self.load(&module);
            }
        }
        self.seen.extend(new.iter().cloned());
        !new.is_empty()
    }

    /// Number of modules that were loaded by name or for a device, without their dependencies.
    #[must_use]
    pub fn count(&self) -> usize {
        self.loaded.len()
    }

    /// Loads one module. A failure is only logged: the device is then missing from the inventory.
    pub fn load(&mut self, module: &str) {
        if !self.loaded.insert(module.to_owned()) {
            return;
        }
        let began = Instant::now();
        match self.index.insert(module) {
            Err(error) => say!("module {module} was not loaded: {error}"),
            Ok(()) if began.elapsed() > SLOW => {
                say!("module {module}: {:.1} s", began.elapsed().as_secs_f64())
            }
            Ok(()) => {}
        }
    }

    /// Repeats [`Self::pass`] until no device appears: `uevent_seqnum` has not changed for 0.3 s.
    pub fn settle(&mut self) {
        let end = Instant::now() + deadlines::DEVICES;
        let mut quiet = 0;
        let mut last = String::new();
        while quiet < 6 && Instant::now() < end {
            let sequence = fs::read_to_string("/sys/kernel/uevent_seqnum").unwrap_or_default();
            if sequence == last {
                quiet += 1;
            } else {
                quiet = 0;
                last = sequence;
                self.pass();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The modalias of each device below a directory such as `/sys/devices`.
pub(crate) fn modaliases(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    add_modaliases(directory, &mut found);
    found.remove("");
    found
}

fn add_modaliases(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => add_modaliases(&entry.path(), found),
            Ok(kind) if kind.is_file() && entry.file_name() == "modalias" => {
                if let Ok(alias) = fs::read_to_string(entry.path()) {
                    found.insert(alias.trim_end().to_owned());
                }
            }
            _ => {}
        }
    }
}

/// Handles the kernel's own request for a module (`request_module`): `modprobe -q -- NAME`.
#[must_use]
pub fn modprobe(args: &[String]) -> ExitCode {
    let Some(name) = args.iter().find(|arg| !arg.starts_with('-')) else { return ExitCode::from(2) };
    let loaded = Index::of_running_kernel().and_then(|index| {
        let modules = index.resolve(name);
        modules.iter().try_for_each(|module| index.insert(module))?;
        Ok(!modules.is_empty())
    });
    if loaded.is_ok_and(|any| any) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The module's name for a path: `kernel/drivers/net/virtio-net.ko` -> `virtio_net`.
fn module_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    normal(name.split(".ko").next().unwrap_or(name))
}

fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// The bus in an alias: the text before the first colon. Empty if it contains a wildcard.
fn bus(alias: &str) -> String {
    let bus = alias.split(':').next().unwrap_or_default();
    if bus.contains(['*', '?', '[']) { String::new() } else { bus.to_owned() }
}

/// Names of the modules whose start has not returned. A broken device holds up its driver there.
#[must_use]
pub fn loading(root: &Root) -> Vec<String> {
    let table = root.text("proc/modules").unwrap_or_default();
    // `NAME SIZE COUNT USERS STATE ADDRESS`
    let name = |line: &str| {
        let mut fields = line.split(' ');
        let name = fields.next()?;
        (fields.nth(3) == Some("Loading")).then(|| name.to_owned())
    };
    table.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_does_not_return_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        let table =
            "ice 1073152 1 - Loading 0x0000000000000000\nlibie 12288 1 ice, Live 0x0000000000000000\n";
        fs::write(dir.path().join("proc/modules"), table).unwrap();
        assert_eq!(loading(&Root::at(dir.path())), ["ice"]);
    }

    const DEP: &str = "\
kernel/drivers/net/virtio_net.ko: kernel/drivers/net/net_failover.ko kernel/net/core/failover.ko
kernel/drivers/net/net_failover.ko: kernel/net/core/failover.ko
kernel/net/core/failover.ko:
kernel/drivers/net/phy/realtek.ko: kernel/drivers/net/phy/libphy.ko
kernel/drivers/net/phy/libphy.ko:
kernel/drivers/net/ethernet/realtek/r8169.ko: kernel/drivers/net/phy/libphy.ko
";
    const ALIAS: &str = "\
# Aliases extracted from modules themselves.
alias virtio:d00000001v* virtio_net
alias pci:v000010ECd00008168sv*sd*bc*sc*i* r8169
alias acpi*:IPI000[1-3]:* ipmi_si
";

    fn index() -> Index {
        Index::parse(Path::new("/m"), DEP, ALIAS, "softdep r8169 pre: realtek post: other\n")
    }

    #[test]
    fn finds_the_module_of_a_device() {
        assert_eq!(index().resolve("virtio:d00000001v00001AF4"), BTreeSet::from(["virtio_net".to_owned()]));
        assert_eq!(
            index().resolve("pci:v000010ECd00008168sv00001043sd0000859Ebc02sc00i00"),
            BTreeSet::from(["r8169".to_owned()])
        );
        assert_eq!(index().resolve("acpi:IPI0001:IPI:"), BTreeSet::from(["ipmi_si".to_owned()]));
        assert!(index().resolve("acpi:IPI0004:").is_empty());
        assert!(index().resolve("virtio:d00000011v00001AF4").is_empty());
    }

    #[test]
    fn finds_a_module_by_its_name_however_it_is_spelt() {
        assert_eq!(index().resolve("virtio-net"), BTreeSet::from(["virtio_net".to_owned()]));
    }

    #[test]
    fn inserts_what_a_module_needs_before_it() {
        assert_eq!(
            index().files("virtio_net"),
            [
                "kernel/net/core/failover.ko",
                "kernel/drivers/net/net_failover.ko",
                "kernel/drivers/net/virtio_net.ko"
            ]
            .map(|path| Path::new("/m").join(path))
        );
    }

    #[test]
    fn inserts_soft_dependencies_first_too() {
        let files = index().files("r8169");
        let names: Vec<_> = files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["libphy.ko", "realtek.ko", "r8169.ko"]);
    }
}
