//! Storage on emulated disks. Machines boot the ephemeral environment from a rack. The agent builds RAIDs, volumes and file systems on
//! virtio disks with the kernel's md and device mapper, and unpacks Debian. Debian then boots from the remaining disks when one is removed.
//!
//! The rack works from concern files, and this file writes the tasks; `rendering.rs` tests the tasks of a region.
#![expect(clippy::print_stdout, reason = "what happened is read by people")]

#[path = "../../rack/tests/rack/namespace.rs"]
#[expect(dead_code, reason = "the rack's tests need more of it")]
mod namespace;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use basalt_api::agent::{
    BlobRef, DiskSelector, Install, NEEDS_STORAGE, NoCloudSeed, Outcome, Script, Task, TaskAction,
    TaskResult, Then, Wipe,
};
use basalt_api::kinds::StorageConfig;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{
    AddressRange, BootConcern, BootMachine, DhcpConcern, DhcpSubnet, EphemeralBoot, fact::Body,
};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Given;
use namespace::{Running, ip, is_inside, make_switch};
use serde_json::{Value, json};

const MACHINE: &str = "52:54:00:00:00:01";
const UID: &str = "uid-1";
/// An emulated processor installs Debian in a few minutes and boots it in one, on an idle host.
const PATIENCE: Duration = Duration::from_secs(1500);
const DISK: u64 = 6 << 30;
const OVMF: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";

/// Reports the system's storage at every boot, and switches the machine off. It uses a serial port of its own: a login prompt
/// (getty) on the console hangs up other writers.
const USER_DATA: &str = r"#cloud-config
write_files:
- path: /root/probe
  permissions: '0755'
  content: |
    #!/bin/sh
    exec > /dev/ttyS1 2>&1
    findmnt --real --raw --noheadings --output TARGET,SOURCE,FSTYPE | sed 's/^/mount /'
    grep '^md' /proc/mdstat -A 1 | grep -o '^md.*raid[0-9]*\|\[[U_]*\]$' | sed 's/^/raid /'
    swapon --noheadings --raw --show=NAME | sed 's/^/swap /'
    lsblk --noheadings --raw --output LABEL,FSTYPE | sort -u | sed 's/^/label /'
    systemctl --failed --no-legend --plain | sed 's/^/failed /'
    sed 's/^/script /' /etc/seeded
    ls /run/basalt-script 2>/dev/null | sed 's/^/left /'
    echo PROBE ENDS
- path: /etc/systemd/system/probe.service
  content: |
    [Unit]
    After=local-fs.target swap.target ssh.service
    SuccessAction=poweroff
    FailureAction=poweroff
    [Service]
    ExecStart=/root/probe
    [Install]
    WantedBy=multi-user.target
runcmd:
- systemctl enable --now --no-block probe.service
";

/// A script of the deployment. It describes the new system, and leaves a process that would keep the disk mounted.
const SCRIPT: &str = r#"#!/bin/bash
set -eu
echo "seeding $(cat /etc/hostname) as $(id -u), with $*"
echo "$(. /etc/os-release; echo $ID) $1 $(pwd) $(findmnt -n -o FSTYPE /run)" > /etc/seeded
touch left-in-memory
setsid sleep 10000 < /dev/null > /dev/null 2>&1 &
"#;

/// A file from `make images`: its path, hash and size.
fn image(name: &str, role: &str) -> (PathBuf, String, u64) {
    let cache = std::env::var_os("BASALT_CACHE_DIR").map(PathBuf::from);
    let default = || Path::new(&std::env::var_os("HOME").expect("a home directory")).join(".cache/basalt");
    let directory = cache.unwrap_or_else(default).join("images").join(name);
    let manifest = std::fs::read(directory.join("image.json"))
        .unwrap_or_else(|error| panic!("`make images` makes {}: {error}", directory.display()));
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let file = &manifest["files"][role];
    let of = |key: &str| file[key].as_str().unwrap_or_else(|| panic!("{role} has no {key}: {manifest}"));
    (directory.join(of("file")), of("sha256").to_owned(), file["size"].as_u64().unwrap())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Firmware {
    /// BIOS firmware: SeaBIOS.
    Bios,
    /// UEFI firmware: OVMF, which remembers its boot entries.
    Uefi,
}

/// A machine with disks, and a rack.
struct World {
    dir: tempfile::TempDir,
    firmware: Firmware,
    attempt: u64,
}

impl World {
    fn new(firmware: Firmware, disks: &[&str]) -> Self {
        make_switch(&["10.9.0.1/24"]);
        let world = Self { dir: tempfile::tempdir().unwrap(), firmware, attempt: 0 };
        std::fs::copy("/usr/share/OVMF/OVMF_VARS_4M.fd", world.path("vars.fd")).unwrap();
        for disk in disks {
            std::fs::File::create(world.disk(disk)).unwrap().set_len(DISK).unwrap();
        }
        let blobs = world.path("data/blobs");
        std::fs::create_dir_all(&blobs).unwrap();
        for (of, role) in [
            ("ephemeral", "kernel"),
            ("ephemeral", "initrd"),
            ("ephemeral", "squashfs"),
            ("debian", "root_tarball"),
        ] {
            let (file, sha256, _) = image(of, role);
            std::fs::copy(file, blobs.join(sha256)).unwrap();
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn disk(&self, serial: &str) -> PathBuf {
        self.path(&format!("{serial}.disk"))
    }

    /// True if a disk has never been written to.
    fn is_untouched(&self, serial: &str) -> bool {
        std::fs::metadata(self.disk(serial)).unwrap().blocks() == 0
    }

    /// Switches the machine on, with the disks of these serial numbers, to boot from the network or from a disk. It runs until it switches
    /// itself off.
    fn power_on(&self, disks: &[&str], network: bool) -> Running {
        // One processor: with two, QEMU 7.2 now and then made a Linux hang while it modified its own code (after "sched_clock: Marking
        // stable").
        let mut words = "-nodefaults -machine q35,accel=tcg,graphics=off -cpu Nehalem -smp 1 -m 2048 -display none -vga none \
             -monitor none -serial stdio -no-reboot -device virtio-rng-pci"
            .to_owned();
        words += &format!(" -serial file:{}", self.path("probe.log").display());
        if network {
            words += " -netdev tap,id=net,ifname=machine0,script=no,downscript=no";
            words += &format!(" -device virtio-net-pci,netdev=net,mac={MACHINE}");
        }
        let boot = match (self.firmware, network) {
            (Firmware::Bios, true) => " -boot order=n".to_owned(),
            (Firmware::Bios, false) => " -boot order=c".to_owned(),
            (Firmware::Uefi, _) => format!(
                "{} -fw_cfg name=opt/org.tianocore/IPv6PXESupport,string=no -drive if=pflash,format=raw,readonly=on,file={OVMF} \
                 -drive if=pflash,format=raw,file={}",
                // Without iPXE's ROM, OVMF uses its own PXE driver, as hardware does.
                if network { ",romfile=" } else { "" },
                self.path("vars.fd").display()
            ),
        };
        words += &boot;
        for (index, serial) in disks.iter().enumerate() {
            let file = self.disk(serial);
            words += &format!(" -drive file={},format=raw,if=none,id=d{index},discard=unmap", file.display());
            words += &format!(" -device virtio-blk-pci,drive=d{index},serial={serial}");
        }
        let log = std::fs::File::create(self.path("serial.log")).unwrap();
        let mut qemu = Command::new("qemu-system-x86_64");
        Running::start(qemu.args(words.split_whitespace()).stdin(Stdio::null()).stdout(log))
    }

    fn serial(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path("serial.log")).unwrap_or_default()).into_owned()
    }

    /// The output of the probe, once it has ended.
    fn probed(&self) -> Option<String> {
        let said = String::from_utf8_lossy(&std::fs::read(self.path("probe.log")).ok()?).into_owned();
        said.split_once("PROBE ENDS").map(|(said, _)| said.to_owned())
    }

    async fn until_off(&self, mut machine: Running) {
        let deadline = Instant::now() + PATIENCE;
        while !machine.has_ended() {
            assert!(Instant::now() < deadline, "it did not switch itself off: {}", self.serial());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Lets the agent install Debian on this storage. Returns the outcome.
    async fn install(&mut self, disks: &[&str], storage: Value, wipe: Wipe) -> Outcome {
        self.attempt += 1;
        let storage: StorageConfig = serde_json::from_value(storage).unwrap();
        let (_, sha256, size) = image("debian", "root_tarball");
        let seed = NoCloudSeed {
            meta_data: format!("instance-id: i-{}\n", self.attempt),
            user_data: USER_DATA.to_owned(),
            ..NoCloudSeed::default()
        };
        let install = Install {
            image: BlobRef { sha256, size },
            disk: DiskSelector { name: Some(NEEDS_STORAGE.to_owned()), ..DiskSelector::default() },
            storage: Some(Box::new(storage.expanded())),
            wipe,
            hostname: "m1".to_owned(),
            kernel_options: "console=ttyS0".to_owned(),
            netplan: "network: {version: 2}\n".to_owned(),
            ntp_servers: Vec::new(),
            packages: None,
            log_to: None,
            log_receivers: Vec::new(),
            seed,
            first_boot: None,
        };
        let rack = self.rack(TaskAction::Install(Box::new(install))).await;
        ip("tuntap add dev machine0 mode tap");
        ip("link set machine0 master switch up");
        let began = Instant::now();
        let machine = self.power_on(disks, true);
        let result = self.result(&rack).await;
        self.until_off(machine).await;
        rack.stop().await;
        ip("link delete machine0");
        println!(
            "attempt {}: {:.0?}, {:?}, {:?}",
            self.attempt,
            began.elapsed(),
            result.outcome,
            result.timings
        );
        let ends = result.scripts.iter().map(|end| (end.name.as_str(), end.failure.as_deref()));
        assert_eq!(ends.collect::<Vec<_>>(), [("seed", None)]);
        let serial = self.serial();
        assert!(serial.contains("seed: seeding m1 as 0, with --role=db one"), "{serial}");
        result.outcome
    }

    async fn rack(&self, action: TaskAction) -> Daemon {
        let attempt = self.attempt;
        let task = Task {
            attempt,
            not_after_unix_ms: i64::MAX,
            machine_uid: UID.into(),
            scripts: vec![Script {
                name: "seed".to_owned(),
                content: SCRIPT.to_owned(),
                arguments: vec!["--role=db one".to_owned()],
                timeout_seconds: 300,
                repeats: true,
                ..Script::default()
            }],
            proxy: None,
            bmc: None,
            action,
            then: Then::PowerOff,
        };
        let [kernel_sha256, initrd_sha256, squashfs_sha256] =
            ["kernel", "initrd", "squashfs"].map(|role| image("ephemeral", role).1);
        let boot = EphemeralBoot {
            attempt,
            not_after_unix_ms: i64::MAX,
            kernel_sha256,
            initrd_sha256,
            squashfs_sha256,
            attempt_key: vec![9; 32],
            task_json: serde_json::to_vec(&task).unwrap(),
            step_key: format!("step-{attempt}"),
            ..EphemeralBoot::default()
        };
        let machine = BootMachine {
            machine_uid: UID.into(),
            name: "m1".into(),
            macs: vec![MACHINE.into()],
            action: Some(Action::Ephemeral(boot)),
            networks: Vec::new(),
            architecture: "amd64".into(),
        };
        let range = AddressRange { start: "10.9.0.100".into(), end: "10.9.0.120".into() };
        let subnet = DhcpSubnet {
            subnet_uid: "s1".into(),
            cidr: "10.9.0.0/24".into(),
            dynamic: vec![range],
            lease_seconds: 3600,
            ..DhcpSubnet::default()
        };
        let dhcp = DhcpConcern { subnets: vec![subnet], serve_unknown: true, ..DhcpConcern::default() };
        let given = Given {
            data_dir: Some(self.path("data")),
            name: Some("rack-1".into()),
            interface: Some(vec!["rack0".into()]),
            loader_dir: Some("/usr/lib/ipxe".into()),
            ..Given::default()
        };
        let settings = given.settle().unwrap();
        let boot = BootConcern { machines: vec![machine], enlist: None };
        write_concern(&settings.data_dir, &version(Concern::Dhcp, attempt, "local", &dhcp)).unwrap();
        write_concern(&settings.data_dir, &version(Concern::Boot, attempt, "local", &boot)).unwrap();
        Daemon::start(settings).await.unwrap()
    }

    /// The result of the attempt, once the agent has sent it.
    async fn result(&self, rack: &Daemon) -> TaskResult {
        let (mut durable, mut next) = (rack.facts.durable(), 1);
        let waiting = async {
            loop {
                durable.borrow_and_update();
                for fact in rack.facts.read(next).await.unwrap() {
                    next = fact.seq + 1;
                    if let Some(Body::Result(result)) = fact.body {
                        let result: TaskResult = serde_json::from_slice(&result.json).unwrap();
                        if result.attempt == self.attempt {
                            return result;
                        }
                    }
                }
                durable.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("no result: {}", self.serial()))
    }

    /// Boots the installed system with these disks and no network. Returns the lines of its probe.
    async fn boot(&self, disks: &[&str]) -> Vec<String> {
        let began = Instant::now();
        let machine = self.power_on(disks, false);
        self.until_off(machine).await;
        let said = self.probed();
        let said = said.unwrap_or_else(|| panic!("it did not come up with {disks:?}: {}", self.serial()));
        let words = ["mount ", "raid ", "swap ", "label ", "failed ", "script ", "left "];
        let lines =
            said.lines().map(str::trim).filter(|line| words.iter().any(|word| line.starts_with(word)));
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        println!("booted with {disks:?} in {:.0?}: {lines:?}", began.elapsed());
        lines
    }
}

#[track_caller]
fn says(said: &[String], expected: &[&str]) {
    for line in expected {
        assert!(said.iter().any(|it| it == line), "{line:?} is not in {said:#?}");
    }
    let bad: Vec<_> = said.iter().filter(|it| it.starts_with("failed ") || it.starts_with("left ")).collect();
    assert!(bad.is_empty(), "{bad:?}");
    let seeded = "script debian --role=db one /run/basalt-script/0 tmpfs";
    assert!(
        said.iter().any(|it| it == seeded),
        "the script of the deployment ran before the first boot: {said:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_boots_from_volumes_and_from_half_of_a_mirror() {
    if !is_inside("a_machine_boots_from_volumes_and_from_half_of_a_mirror") {
        return;
    }
    let (mut world, disks) = (World::new(Firmware::Bios, &["one", "two"]), ["one", "two"]);
    let lvm = json!({"layout": "lvm", "disk": "two", "root_size": "4GiB"});
    assert_eq!(world.install(&disks, lvm, Wipe::IfOurs).await, Outcome::Succeeded);
    assert!(world.is_untouched("one"), "it is left alone");
    says(&world.boot(&["two"]).await, &["mount / /dev/mapper/system-root ext4", "label root ext4"]);

    assert_eq!(world.install(&disks, json!({"layout": "raid1"}), Wipe::IfOurs).await, Outcome::Succeeded);
    says(&world.boot(&["two"]).await, &["raid [_U]", "label root ext4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uefi_machine_boots_from_either_half_of_a_mirror() {
    if !is_inside("a_uefi_machine_boots_from_either_half_of_a_mirror") {
        return;
    }
    let (mut world, disks) = (World::new(Firmware::Uefi, &["one", "two"]), ["one", "two"]);
    assert_eq!(world.install(&disks, json!({"layout": "raid1"}), Wipe::IfOurs).await, Outcome::Succeeded);
    for (half, raid) in [("one", "raid [U_]"), ("two", "raid [_U]")] {
        says(&world.boot(&[half]).await, &[raid, "label root ext4"]);
    }
}
