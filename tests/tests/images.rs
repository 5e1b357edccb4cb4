//! Checks the images of `make images`: all network and storage drivers of Debian's kernel, their firmware, an initrd that
//! connects any wired machine to its rack, and the size limits.
//!
//! The tests compare with the kernel's own list of modules (`modules.order`), with the modules' own dependencies (`.modinfo`)
//! and with a record of the release's packages. They do not use the tables that the image was built from.

#[path = "../../cli/src/image/budgets.rs"]
mod budgets;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Directories of network and storage drivers below `kernel/`, with their purpose.
const DRIVERS: &[(&str, &str)] = &[
    ("drivers/net", "network adapters, and what networks are built of: bonds, bridges, tunnels"),
    ("drivers/staging/qlge", "QLogic 8000 series, a server's adapter"),
    ("drivers/infiniband", "RDMA adapters, of which many carry Ethernet"),
    ("drivers/thunderbolt", "adapters and disks on Thunderbolt"),
    ("drivers/usb/host", "USB, for adapters and disks"),
    ("drivers/usb/storage", "USB disks"),
    ("drivers/pci/controller", "what is behind Intel VMD and Hyper-V"),
    ("drivers/hv", "Hyper-V's network and disks"),
    ("drivers/virtio", "network and disks of virtual machines"),
    ("drivers/xen", "Xen's network and disks"),
    ("drivers/dca", "needed by network adapters"),
    ("drivers/ptp", "clocks of network adapters"),
    ("drivers/ata", "SATA and IDE"),
    ("drivers/block", "disks of many kinds, virtio's among them"),
    ("drivers/firewire", "FireWire disks"),
    ("drivers/md", "software RAID, device mapper"),
    ("drivers/memstick", "memory sticks"),
    ("drivers/message", "Fusion MPT: SAS, SCSI and Fibre Channel"),
    ("drivers/mmc", "MMC and SD"),
    ("drivers/nvdimm", "persistent memory"),
    ("drivers/nvme", "NVMe, local and over fabrics"),
    ("drivers/scsi", "SAS, SCSI, Fibre Channel and iSCSI"),
    ("drivers/ufs", "UFS"),
    ("fs/ext4", "file systems that systems are installed on"),
    ("fs/xfs", "file systems that systems are installed on"),
    ("fs/btrfs", "file systems that systems are installed on"),
    ("fs/fat", "the EFI system partition"),
    ("net/8021q", "VLANs"),
    ("net/bridge", "bridges"),
];

/// Directories that are omitted on purpose, with the reason.
const LEFT_OUT: &[(&str, &str)] = &[("drivers/net/wireless", "no machine boots over it")];

/// Drivers below `drivers/net` that the initrd omits, because no machine boots over them.
const NOT_NETBOOTED: &[(&str, &[&str])] = &[
    (
        "made by software",
        &[
            "bonding",
            "dummy.ko",
            "eql.ko",
            "geneve.ko",
            "gtp.ko",
            "ifb.ko",
            "ipvlan",
            "macvlan.ko",
            "macvtap.ko",
            "netconsole.ko",
            "nlmon.ko",
            "tap.ko",
            "team",
            "tun.ko",
            "veth.ko",
            "vrf.ko",
            "vsockmon.ko",
            "vxlan",
            "wireguard",
            "xen-netback",
        ],
    ),
    ("fields and cars", &["can", "ieee802154"]),
    ("dial-up, radio and mobile", &["hamradio", "mhi_net.ko", "plip", "ppp", "sb1000.ko", "slip", "wwan"]),
    (
        "networks that no firmware boots from",
        &["appletalk", "arcnet", "fddi", "hippi", "thunderbolt-net.ko", "wan"],
    ),
    ("wireless", &["wireless"]),
];

/// Debian's packages with firmware of network adapters and storage controllers.
const FIRMWARE: &[&str] = &[
    "firmware-bnx2",
    "firmware-bnx2x",
    "firmware-cavium",
    "firmware-linux-free",
    "firmware-misc-nonfree",
    "firmware-myricom",
    "firmware-netronome",
    "firmware-netxen",
    "firmware-qlogic",
    "firmware-realtek",
];

/// The other firmware and microcode packages of the release, with the reason why each is not in the image.
const OTHER_FIRMWARE: &[(&str, &[&str])] = &[
    (
        "wireless networks and Bluetooth",
        &[
            "atmel-firmware",
            "bluez-firmware",
            "firmware-ath9k-htc",
            "firmware-atheros",
            "firmware-brcm80211",
            "firmware-ipw2x00",
            "firmware-iwlwifi",
            "firmware-libertas",
            "firmware-realtek-rtl8723cs-bt",
            "firmware-ti-connectivity",
            "firmware-zd1211",
            "ubertooth-firmware",
            "ubertooth-firmware-source",
        ],
    ),
    (
        "graphics, sound, video",
        &[
            "firmware-amd-graphics",
            "firmware-ast",
            "firmware-intel-sound",
            "firmware-ivtv",
            "firmware-nvidia-gsp",
            "firmware-nvidia-tesla-535-gsp",
            "firmware-nvidia-tesla-gsp",
            "firmware-qcom-media",
            "firmware-samsung",
            "firmware-siano",
            "firmware-sof-signed",
        ],
    ),
    ("processors", &["amd64-microcode", "intel-microcode"]),
    ("telephony", &["dahdi-firmware-nonfree"]),
    (
        "boards of other architectures",
        &["arm-trusted-firmware-tools", "crust-firmware", "firmware-qcom-soc", "raspi-firmware"],
    ),
    (
        "instruments and toys",
        &[
            "firmware-microbit-micropython",
            "firmware-microbit-micropython-doc",
            "firmware-tomu",
            "hackrf-firmware",
            "hdmi2usb-fx2-firmware",
            "nxt-firmware",
            "sigrok-firmware-fx2lafw",
        ],
    ),
    (
        "nothing of their own but names of the others",
        &[
            "firmware-linux",
            "firmware-linux-nonfree",
            "live-task-non-free-firmware-pc",
            "live-task-non-free-firmware-server",
        ],
    ),
    ("programs", &["dns323-firmware-tools", "gnome-firmware", "grub-firmware-qemu"]),
];

/// Firmware that network and storage drivers name, but no package of the release contains.
const UNPUBLISHED: &[(&str, &str)] = &[
    ("acenic/", "Alteon AceNIC"),
    ("adaptec/", "Adaptec Starfire"),
    ("aic94xx-seq.fw", "Adaptec AIC-94xx"),
    ("idt82p33xxx.bin", "an IDT clock"),
    ("microchip/mscc_", "Microsemi VSC85xx PHYs"),
    ("netronome/nic_AMDA0058-001", "Agilio cards in modes that Debian has no file for"),
    ("netronome/nic_AMDA0099-0001_1x10_1x25", "Agilio cards in modes that Debian has no file for"),
    ("ositech/", "Ositech PCMCIA cards"),
    ("softing-4.6/", "Softing CAN cards"),
    ("sun/cassini", "Sun Cassini"),
    ("wd719x-", "Western Digital WD719x"),
    ("yam/", "YAM radio modems"),
];

/// Directory of the lists that the build wrote into the image.
const RECORDS: &str = "usr/share/basalt";

static EPHEMERAL: LazyLock<Drivers> =
    LazyLock::new(|| Drivers::read(&image("ephemeral").join("root.squashfs"), "lib"));

fn image(name: &str) -> PathBuf {
    let cache = std::env::var_os("BASALT_CACHE_DIR").map(PathBuf::from);
    let default = || Path::new(&std::env::var_os("HOME").expect("a home directory")).join(".cache/basalt");
    let directory = cache.unwrap_or_else(default).join("images").join(name);
    assert!(directory.join("image.json").exists(), "`make images` makes {}", directory.display());
    directory
}

/// The output of a program that must succeed.
fn run(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The files below a directory, through links. Empty if the directory does not exist.
fn files(dir: &Path) -> BTreeSet<String> {
    if !dir.is_dir() {
        return BTreeSet::new();
    }
    let found =
        run(Command::new("find").args(["-L", ".", "-type", "f", "-printf", "%P\\n"]).current_dir(dir));
    String::from_utf8_lossy(&found).lines().map(str::to_owned).collect()
}

/// The metadata of a module.
#[derive(Debug, Default)]
struct Module {
    /// Names of modules that must be loaded before it.
    needs: Vec<String>,
    /// Names of firmware files that it may load.
    firmware: Vec<String>,
}

/// The modules and firmware of a squashfs.
#[derive(Debug, Default)]
struct Drivers {
    /// Release of the kernel.
    release: String,
    /// Modules by path, like `kernel/drivers/net/virtio_net.ko`.
    modules: BTreeMap<String, Module>,
    /// Paths of firmware below `lib/firmware`.
    firmware: BTreeSet<String>,
    /// Lines of the kernel's lists and of the build's lists of packages, by file name.
    lists: BTreeMap<String, Vec<String>>,
}

impl Drivers {
    /// Reads a squashfs whose modules and firmware are below `prefix`: `lib` or nothing.
    fn read(squashfs: &Path, prefix: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("root");
        let wanted = ["modules", "firmware"].map(|name| Path::new(prefix).join(name));
        let mut unsquashfs = Command::new("unsquashfs");
        run(unsquashfs.args(["-q", "-n", "-d"]).arg(&root).arg(squashfs).args(wanted).arg(RECORDS));
        let lib = root.join(prefix);
        let releases: Vec<_> = std::fs::read_dir(lib.join("modules")).expect("a kernel").collect();
        let [Ok(release)] = releases.as_slice() else { panic!("one kernel: {releases:?}") };
        let mut drivers = Self {
            release: release.file_name().to_string_lossy().into_owned(),
            firmware: files(&lib.join("firmware")),
            ..Self::default()
        };
        for dir in [release.path(), root.join(RECORDS)] {
            for name in files(&dir) {
                let bytes = std::fs::read(dir.join(&name)).expect("a file");
                if name.ends_with(".ko") {
                    drivers.modules.insert(name, modinfo(&bytes));
                } else if let Ok(text) = String::from_utf8(bytes) {
                    drivers.lists.insert(name, text.lines().map(str::to_owned).collect());
                }
            }
        }
        drivers
    }

    /// The lines of a list.
    fn list(&self, name: &str) -> &[String] {
        self.lists.get(name).unwrap_or_else(|| panic!("the image has no {name}"))
    }

    /// The direct and indirect dependencies of these modules that are neither in the image nor built into the kernel.
    fn lacking(&self, wanted: &BTreeSet<String>) -> BTreeSet<String> {
        let builtin: BTreeSet<String> = self.list("modules.builtin").iter().map(|f| module_name(f)).collect();
        let by_name: BTreeMap<String, &Module> =
            self.modules.iter().map(|(f, m)| (module_name(f), m)).collect();
        let mut open: Vec<String> = wanted.iter().map(|file| module_name(file)).collect();
        let (mut seen, mut lacking) = (BTreeSet::new(), BTreeSet::new());
        while let Some(name) = open.pop() {
            if !seen.insert(name.clone()) || builtin.contains(&name) {
                continue;
            }
            match by_name.get(&name) {
                Some(module) => open.extend(module.needs.iter().cloned()),
                None => drop(lacking.insert(name)),
            }
        }
        lacking
    }
}

fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.trim_end_matches(".ko").replace('-', "_")
}

/// `depends=` and `firmware=` of `.modinfo`: NUL-terminated texts.
fn modinfo(bytes: &[u8]) -> Module {
    let mut module = Module::default();
    for text in bytes.split(|byte| *byte == 0) {
        let value = |key: &[u8]| std::str::from_utf8(text.strip_prefix(key)?).ok();
        if let Some(names) = value(b"depends=") {
            module.needs.extend(names.split(',').filter(|n| !n.is_empty()).map(|n| n.replace('-', "_")));
        } else if let Some(name) = value(b"firmware=") {
            module.firmware.push(name.to_owned());
        }
    }
    module
}

/// True if a module's file is `path` or below it, both below `kernel/`.
fn below(file: &str, path: &str) -> bool {
    let rest = file.strip_prefix("kernel/").and_then(|file| file.strip_prefix(path));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Every network and storage driver that the kernel was built with.
fn network_and_storage(ephemeral: &Drivers) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let order = ephemeral.list("modules.order");
    for (path, why) in DRIVERS {
        let left_out = |file: &str| LEFT_OUT.iter().any(|(path, _)| below(file, path));
        let files: Vec<_> = order.iter().filter(|file| below(file, path) && !left_out(file)).collect();
        eprintln!("{path:<24} {:>4} modules: {why}", files.len());
        assert!(!files.is_empty(), "the kernel has nothing in {path}");
        all.extend(files.into_iter().cloned());
    }
    all
}

#[test]
fn every_network_and_storage_driver_of_debians_kernel_is_in_the_ephemeral_image() {
    let ephemeral = &*EPHEMERAL;
    let wanted = network_and_storage(ephemeral);
    assert!(wanted.len() > 600, "Debian's kernel has more drivers than {}", wanted.len());
    let missing: Vec<_> = wanted.iter().filter(|file| !ephemeral.modules.contains_key(*file)).collect();
    assert!(missing.is_empty(), "not in the image: {missing:#?}");
    let lacking = ephemeral.lacking(&wanted);
    assert!(lacking.is_empty(), "drivers need modules that are not in the image: {lacking:?}");
    let dep = ephemeral.list("modules.dep");
    let known: BTreeSet<_> = dep.iter().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    let unknown: Vec<_> = wanted.iter().filter(|file| !known.contains(file.as_str())).collect();
    assert!(unknown.is_empty(), "modprobe does not find: {unknown:?}");
}

#[test]
fn every_firmware_package_for_networks_and_storage_is_in_the_ephemeral_image() {
    let ephemeral = &*EPHEMERAL;
    let packages: BTreeMap<String, String> = ephemeral
        .list("packages")
        .iter()
        .map(|line| line.split_once('\t').expect("name and version"))
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect();
    for package in FIRMWARE {
        let version = packages.get(*package).unwrap_or_else(|| panic!("{package} is not in the image"));
        eprintln!("{package:<24} {version}");
    }
    let kernel = format!("linux-image-{}", ephemeral.release);
    assert!(packages.contains_key(&kernel), "the modules are those of {kernel}: {packages:?}");

    let left_out: BTreeSet<&str> =
        OTHER_FIRMWARE.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let offered = ephemeral.list("firmware-offered");
    let undecided: Vec<_> = offered
        .iter()
        .filter(|name| !packages.contains_key(*name) && !left_out.contains(name.as_str()))
        .collect();
    assert!(undecided.is_empty(), "Debian offers these; take them in, or say why not: {undecided:?}");
    let offered: BTreeSet<&str> = offered.iter().map(String::as_str).collect();
    assert!(FIRMWARE.iter().all(|name| offered.contains(name)), "the record is of the right sources");
}

#[test]
fn the_firmware_that_network_and_storage_drivers_ask_for_is_in_the_ephemeral_image() {
    let ephemeral = &*EPHEMERAL;
    let (mut there, mut missing) = (0, Vec::new());
    for file in network_and_storage(ephemeral) {
        for name in &ephemeral.modules.get(&file).expect("a driver").firmware {
            if ephemeral.firmware.contains(name) {
                there += 1;
            } else if !UNPUBLISHED.iter().any(|(prefix, _)| name.starts_with(prefix)) {
                missing.push(format!("{file}: {name}"));
            }
        }
    }
    eprintln!("{there} firmware files that drivers name are there");
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(there > 100, "only {there} firmware files");
}

#[test]
fn the_initrd_has_every_wired_network_driver_with_its_firmware() {
    let directory = image("ephemeral");
    let ephemeral = &*EPHEMERAL;
    let unpacked = tempfile::tempdir().expect("a directory");
    let archive = unpacked.path().join("initrd.cpio");
    run(Command::new("zstd").args(["-dqo"]).arg(&archive).arg(directory.join("initrd.zst")));
    let input = std::fs::File::open(&archive).expect("an archive");
    let mut cpio = Command::new("cpio");
    cpio.args(["-i", "--quiet", "--make-directories"]).current_dir(unpacked.path());
    assert!(cpio.stdin(input).status().expect("cpio").success());

    // The other drivers are in a squashfs. The modules that mount it are outside of it, and have no dependencies.
    for early in ["loop.ko", "squashfs.ko"] {
        let module = std::fs::read(unpacked.path().join("early").join(early)).expect("an early module");
        assert!(modinfo(&module).needs.is_empty(), "{early}");
    }
    let agent = std::fs::read(unpacked.path().join("init")).expect("the agent");
    assert!(agent.starts_with(b"\x7fELF"), "the first process is the agent");

    let initrd = Drivers::read(&unpacked.path().join("drivers.squashfs"), "");
    assert_eq!(initrd.release, ephemeral.release, "both are of one kernel");
    let kernel = std::fs::read(directory.join("vmlinuz")).expect("the kernel");
    let release = format!("{} (", initrd.release);
    assert!(kernel.windows(release.len()).any(|w| w == release.as_bytes()), "which is {release}");

    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let skipped: Vec<String> = NOT_NETBOOTED
        .iter()
        .flat_map(|(_, paths)| *paths)
        .map(|path| format!("drivers/net/{path}"))
        .collect();
    for file in ephemeral.list("modules.order") {
        let adapter = below(file, "drivers/net") && !skipped.iter().any(|path| below(file, path));
        let way = [
            "drivers/virtio",
            "drivers/staging/qlge",
            "drivers/usb/host",
            "drivers/pci/controller",
            "fs/overlayfs",
        ];
        if adapter || way.iter().any(|path| below(file, path)) {
            wanted.insert(file.clone());
        }
    }
    eprintln!("{} modules on the way from the firmware to the rack", wanted.len());
    assert!(wanted.len() > 200, "only {}", wanted.len());
    let missing: Vec<_> = wanted.iter().filter(|file| !initrd.modules.contains_key(*file)).collect();
    assert!(missing.is_empty(), "not in the initrd: {missing:#?}");
    let lacking = initrd.lacking(&wanted);
    assert!(lacking.is_empty(), "drivers need modules that are not in the initrd: {lacking:?}");
    let firmware = wanted.iter().flat_map(|file| &ephemeral.modules[file].firmware);
    let missing: Vec<_> = firmware
        .filter(|name| ephemeral.firmware.contains(*name) && !initrd.firmware.contains(*name))
        .collect();
    assert!(missing.is_empty(), "firmware that is not in the initrd: {missing:?}");
}

#[test]
fn the_ephemeral_image_keeps_its_budgets() {
    let directory = image("ephemeral");
    let text = std::fs::read(directory.join("image.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let files = manifest["files"].as_object().expect("files");
    assert_eq!(files.len(), budgets::BUDGETS.len(), "every file has a budget");
    for (role, budget) in budgets::BUDGETS {
        let name = files[role]["file"].as_str().expect("a name");
        let size = std::fs::metadata(directory.join(name)).expect("a file").len();
        eprintln!("{role:<10} {size:>10} of {budget:>10} bytes");
        assert!(size <= budget, "{role} has {size} bytes, and may have {budget}");
    }
}

#[test]
fn an_installed_system_speaks_the_locale_that_it_has_and_generates_none() {
    let tarball = image("debian").join("root.tar.zst");
    let read = |file: &str| {
        let text = run(Command::new("tar").arg("--zstd").arg("-xOf").arg(&tarball).arg(file));
        String::from_utf8(text).expect("text")
    };
    assert_eq!(read("./etc/default/locale"), "LANG=C.UTF-8\n");
    assert_eq!(read("./etc/cloud/cloud.cfg.d/80-locale.cfg"), "locale: C.UTF-8\n");
}
