//! `terraform apply` on `examples/quickstart`: two emulated machines, one with BIOS and one with UEFI firmware, go from an
//! empty disk to Debian, and back again, checked from outside. In between, a rack that was disconnected while it held the
//! instruction to install tries to install once more.
//!
//! Needs root, the programs in the target directory and the images (`make end-to-end` brings all of them). It takes several
//! minutes: firmware and Linux run under emulation.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use basalt_api::client::{Client, Precondition};
use basalt_api::values::OperationId;
use basalt_api::wire::{Operation, OperationRequest, OperationState, PutMetadata, PutRequest, Verb};
use basalt_api::{Kind, Object};
use basalt_bmc::{BootDevice, PowerState, PowerVerb};
use basalt_lab::site::{Site, quickstart_machines, tail};
use basalt_lab::terraform::Workspace;
use basalt_lab::{Firmware, LabProcess, Machine, images};
use serde_json::{Value, json};
use tokio::process::Command;

/// Two installations at once, under emulation, on a busy host.
const APPLY: Duration = Duration::from_secs(2400);
/// Two machines boot into the erasing environment.
const DESTROY: Duration = Duration::from_secs(1200);
/// Plans and other short commands.
const QUICK: Duration = Duration::from_secs(120);
/// An installed system boots.
const BOOT: Duration = Duration::from_secs(600);

/// Scripts of the deployments, in the user's own files beside the example. The lab has no network, so the first script makes a repository
/// in the image; the package of the second one comes from there.
const SCRIPTS: &str = r#"
resource "basalt_script" "repository" {
  name    = "repository"
  type    = "deployment"
  content = <<-EOT
    #!/bin/sh
    set -e
    mkdir -p /srv/repository/hello/DEBIAN /srv/repository/hello/usr/bin
    cd /srv/repository
    printf 'Package: basalt-hello\nVersion: 1\nArchitecture: all\nMaintainer: lab\nDescription: says hello\n' >hello/DEBIAN/control
    printf '#!/bin/sh\necho hello\n' >hello/usr/bin/basalt-hello
    chmod 755 hello/usr/bin/basalt-hello
    dpkg-deb -Znone --root-owner-group --build hello basalt-hello.deb
    {
      cat hello/DEBIAN/control
      echo Filename: ./basalt-hello.deb
      stat -c 'Size: %s' basalt-hello.deb
      echo "SHA256: $(sha256sum <basalt-hello.deb | cut -d ' ' -f 1)"
    } >Packages
    rm -rf /etc/apt/sources.list.d/*
    echo 'deb [trusted=yes] file:/srv/repository ./' >/etc/apt/sources.list
  EOT
}

resource "basalt_script" "greet" {
  name     = "greet"
  type     = "deployment"
  when     = "first_boot"
  packages = ["basalt-hello"]
  timeout  = "5m"
  content  = <<-EOT
    #!/bin/sh
    set -e
    basalt-hello
    basalt-hello >>/var/lib/greeted
    # The test cuts the power later.
    sync
  EOT
}
"#;
/// Adds the scripts to the deployments of the example: <https://developer.hashicorp.com/terraform/language/files/override>.
const WITH_SCRIPTS: &str = r#"
resource "basalt_deployment" "this" {
  scripts = [basalt_script.repository.name, basalt_script.greet.name]
}
"#;

fn images_directory() -> PathBuf {
    let cache = std::env::var_os("BASALT_CACHE_DIR").map(PathBuf::from);
    let default = || Path::new(&std::env::var_os("HOME").expect("a home directory")).join(".cache/basalt");
    cache.unwrap_or_else(default).join("images")
}

struct World {
    site: Site,
    workspace: Workspace,
    client: Client,
}

impl World {
    async fn start() -> Self {
        let mut site = Site::create("quickstart").expect("root, and the programs");
        site.add_machines(quickstart_machines()).await.expect("machines");
        site.start_region().await.expect("a region");
        site.start_rack(1).await.expect("a rack");
        let client = site.client().expect("a client");
        let images = images_directory();
        for image in ["ephemeral", "debian"] {
            images::upload(&client, &images.join(image)).await.expect("an image; `make images` builds it");
        }
        let key = site.directory().join("ssh_key");
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().await;
        assert!(made.expect("ssh-keygen").success());
        let public = std::fs::read_to_string(key.with_extension("pub")).expect("a key");
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart");
        let workspace = Workspace::create(
            site.directory(),
            &example,
            &site.programs().path("terraform-provider-basalt"),
            &[("BASALT_ENDPOINT", site.endpoint().as_ref())],
            &[
                ("image_dir", &images.to_string_lossy()),
                ("ssh_key", public.trim()),
                ("bmc_password", "secret"),
            ],
        );
        let workspace = workspace.expect("a workspace");
        for (file, text) in [("scripts.tf", SCRIPTS), ("scripts_override.tf", WITH_SCRIPTS)] {
            std::fs::write(workspace.directory().join(file), text).expect("a file");
        }
        Self { workspace, site, client }
    }

    /// Runs Terraform; its output is in `terraform.log` of the site.
    async fn terraform(&self, arguments: &[&str], limit: Duration) -> ExitStatus {
        let log = self.site.directory().join("terraform.log");
        let output = File::options().create(true).append(true).open(&log).expect("a log");
        let mut command = self.workspace.command(arguments).expect("terraform");
        command.stderr(output.try_clone().expect("a handle")).stdout(output);
        let mut child = Command::from(command).spawn().expect("terraform on the PATH");
        match tokio::time::timeout(limit, child.wait()).await {
            Ok(status) => status.expect("an end"),
            Err(_) => panic!(
                "terraform {arguments:?} took more than {limit:?}:\n{}\n{}",
                tail(&log),
                self.situation().await
            ),
        }
    }

    async fn succeeds(&self, arguments: &[&str], limit: Duration) {
        let began = Instant::now();
        let status = self.terraform(arguments, limit).await;
        let log = self.site.directory().join("terraform.log");
        assert!(status.success(), "terraform {arguments:?}:\n{}\n{}", tail(&log), self.situation().await);
        eprintln!("terraform {} took {:.0?}", arguments.join(" "), began.elapsed());
    }

    /// The output of the operator's command.
    async fn basalt(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(self.site.programs().path("basalt"));
        let said = command.args(arguments).env("BASALT_ENDPOINT", self.site.endpoint()).output().await;
        let said = said.expect("basalt");
        assert!(said.status.success(), "{arguments:?}: {said:?}");
        String::from_utf8_lossy(&said.stdout).into_owned()
    }

    async fn get(&self, kind: &str, name: &str) -> Object {
        self.client.get(Kind::find(kind).expect("a kind"), name).await.expect("an object")
    }

    /// The timeline of a machine, one line for each entry.
    async fn history(&self, name: &str) -> Vec<String> {
        let timeline =
            self.client.timeline(Kind::find("Machine").expect("a kind"), name).await.expect("a timeline");
        timeline
            .entries
            .iter()
            .map(|entry| format!("{} {} {}", entry.at, entry.reason, entry.message))
            .collect()
    }

    /// Copies the rack's boot concern again and again while it orders this machine to boot into a task. Runs until it is dropped.
    async fn keep_instruction(&self, name: &str, copy: &Path) {
        let rack = self.site.directory().join("rack-1");
        loop {
            let mut show = Command::new(self.site.programs().path("basalt-rack"));
            let shown = show
                .args(["concern", "show", "boot", "--data-dir"])
                .arg(&rack)
                .output()
                .await
                .expect("basalt-rack");
            let text = String::from_utf8_lossy(&shown.stdout).into_owned();
            if text.lines().any(|line| line.contains(&format!(" {name} ")) && line.contains("ephemeral")) {
                std::fs::copy(rack.join("concerns/boot.pb"), copy).expect("a copy");
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }

    /// A rack with the old instruction to install, without a connection to a region. It serves machines until it is dropped.
    async fn cut_off_rack(&self, instruction: &Path) -> LabProcess {
        let (rack, stale) = (self.site.directory().join("rack-1"), self.site.directory().join("stale-rack"));
        std::fs::create_dir(&stale).expect("a directory");
        // The copy has neither the rack's identity nor its knowledge of attempts.
        for part in ["concerns", "blobs", "leases"] {
            let copied = Command::new("cp").arg("-r").arg(rack.join(part)).arg(&stale).status().await;
            assert!(copied.expect("cp").success(), "{part}");
        }
        std::fs::copy(instruction, stale.join("concerns/boot.pb")).expect("a copy");
        let mut command =
            self.site.lab().command(self.site.programs().path("basalt-rack")).expect("a command");
        let log = File::create(self.site.directory().join("stale-rack.log")).expect("a log");
        command.arg("--data-dir").arg(&stale).args(["--name", "stale", "--interface", "br0"]).stderr(log);
        self.site.lab().spawn(command).expect("a rack")
    }

    /// An operation of a machine, once it meets the condition.
    async fn operation(&self, name: &str, id: OperationId, so: impl Fn(&Operation) -> bool) -> Operation {
        let deadline = Instant::now() + BOOT;
        loop {
            let operation = self.client.operation(name, id).await.expect("it is there");
            if so(&operation) {
                return operation;
            }
            let ended = operation.state.is_over() || Instant::now() >= deadline;
            assert!(!ended, "{operation:?}\n{}", self.situation().await);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The state of the machines, for the message of a failed test.
    async fn situation(&self) -> String {
        let mut text = String::new();
        for machine in quickstart_machines() {
            let found = self.client.find(Kind::find("Machine").expect("a kind"), &machine.name).await;
            let conditions = found.ok().flatten().map(|object| object.status["conditions"].to_string());
            let serial = self.site.machine(&machine.name).map(|machine| tail(&machine.serial_log_path()));
            text += &format!("{}: {conditions:?}\nserial port: {serial:?}\n", machine.name);
        }
        text
    }

    /// Runs a command on an installed system by SSH with the declared key, and returns its output. Retries until the system
    /// is up.
    async fn ssh(&self, address: &str, command: &str) -> String {
        self.ssh_as("debian", address, command).await
    }

    async fn ssh_as(&self, user: &str, address: &str, command: &str) -> String {
        let deadline = Instant::now() + BOOT;
        loop {
            let mut ssh = self.site.lab().command("ssh").expect("ssh");
            ssh.arg("-i").arg(self.site.directory().join("ssh_key"));
            for option in [
                "BatchMode=yes",
                "StrictHostKeyChecking=no",
                "UserKnownHostsFile=/dev/null",
                "ConnectTimeout=20",
                "LogLevel=ERROR",
            ] {
                ssh.args(["-o", option]);
            }
            ssh.arg(format!("{user}@{address}")).arg(command).stdin(Stdio::null());
            let output = Command::from(ssh).output().await.expect("ssh");
            if output.status.success() {
                return String::from_utf8_lossy(&output.stdout).trim().to_owned();
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                Instant::now() < deadline,
                "ssh {address} {command:?}: {said}\n{}",
                self.situation().await
            );
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
}

/// Checks the inventory against the machine's configuration: the declared firmware, and QEMU's parameters.
fn assert_inventory(inventory: &Value, machine: &Machine) {
    let config = machine.config();
    assert_eq!(inventory["cpu"]["cores"], config.cpus, "{inventory}");
    assert_eq!(inventory["memory_bytes"], u64::from(config.memory_mib) << 20, "{inventory}");
    assert_eq!(inventory["disks"]["vda"]["size_bytes"], config.disk_bytes, "{inventory}");
    assert_eq!(inventory["disks"]["vda"]["serial"], config.serial.as_str(), "{inventory}");
    assert_eq!(inventory["dmi"]["serial"], config.serial.as_str(), "{inventory}");
    let firmware = if config.firmware == Firmware::Uefi { "uefi" } else { "bios" };
    assert_eq!(inventory["firmware"], firmware, "{inventory}");
    let nics = inventory["interfaces"].as_object().expect("interfaces");
    let macs: Vec<_> = nics.values().map(|nic| nic["mac"].as_str().unwrap_or_default()).collect();
    assert_eq!(macs, [config.mac.to_string()], "{inventory}");
}

/// A released machine runs a script of its owner, once, in the ephemeral environment, and is off again.
async fn assert_script(world: &World, name: &str) {
    let target = format!("-target=basalt_deployment.this[{name:?}]");
    world.succeeds(&["destroy", "-auto-approve", &target], DESTROY).await;
    let content = "#!/bin/bash\nset -e\necho \"mode: ${1#--mode=}\"\n\
        awk '/MemTotal/ {print \"memory:\", ($2 > 0)}' /proc/meminfo\n\
        test -b /dev/vda && echo disk\nfor tool in lspci dmidecode smartctl ethtool curl; do type -P $tool; done | wc -l\n";
    let spec = json!({
        "type": "testing", "content": content, "timeout": "2m",
        "parameters": {"mode": {"type": "choice", "choices": ["fast", "slow"], "required": true}},
    });
    let script = Kind::find("Script").expect("a kind");
    let declared = PutRequest { kind: None, metadata: PutMetadata::default(), spec, status: None };
    let declared = world.client.put(script, "probe", &declared, Precondition::None).await;
    declared.expect("it is declared");
    let parameters = [("mode".to_owned(), "fast".to_owned())].into();
    let script = Some("probe".to_owned());
    let request = OperationRequest { script, parameters, ..Verb::RunScript.into() };
    let asked = world.client.operate(name, &request).await.expect("it is accepted");
    let operation = world.operation(name, asked.id, |it| it.state.is_over()).await;
    assert_eq!(operation.state, OperationState::Done, "{operation:?}");
    assert_eq!(operation.output.as_deref(), Some("mode: fast\nmemory: 1\ndisk\n5\n"), "{operation:?}");
}

/// A machine with an installed system is repaired in the rescue environment, over SSH, by a person with the key, who also
/// knows the host's key. Changes to the mounted disk are still there when the person has left and the machine runs its own
/// system again.
async fn assert_rescue(world: &World, name: &str, address: &str) {
    let key = std::fs::read_to_string(world.site.directory().join("ssh_key.pub")).expect("a key");
    let ssh_keys = [key.trim().parse().expect("a key")].into();
    let request = OperationRequest { ssh_keys, ..Verb::Rescue.into() };
    let asked = world.client.operate(name, &request).await.expect("it is accepted");
    let open = world.operation(name, asked.id, |it| it.reason == OperationState::OPEN).await;
    let (_, line) = open.message.split_once("ssh root@").unwrap_or_else(|| panic!("{open:?}"));
    let (rescue, rest) = line.split_once(", host key ").unwrap_or_else(|| panic!("{open:?}"));
    let (host_key, _) = rest.split_once(", until ").unwrap_or_else(|| panic!("{open:?}"));

    let mut scan = world.site.lab().command("sh").expect("sh");
    scan.arg("-c").arg(format!("ssh-keyscan -t ed25519 {rescue} 2> /dev/null | ssh-keygen -lf -"));
    let scanned = Command::from(scan).output().await.expect("ssh-keyscan");
    let scanned = String::from_utf8_lossy(&scanned.stdout).into_owned();
    assert!(scanned.contains(host_key) && host_key.starts_with("SHA256:"), "{scanned}: {open:?}");
    let mends = "set -e; for part in /dev/vda?*; do mount $part /mnt || continue; \
        [ ! -e /mnt/etc/motd ] || break; umount /mnt; done; cat /mnt/etc/motd; echo yes > /mnt/etc/mended";
    assert_eq!(world.ssh_as("root", rescue, mends).await, "Installed by Basalt");
    world.ssh_as("root", rescue, "leave").await;
    let ended = world.operation(name, asked.id, |it| it.state.is_over()).await;
    assert_eq!(ended.state, OperationState::Done, "{ended:?}");
    let said = ended.output.unwrap_or_default();
    assert!(said.contains("auth succeeded for 'root'") && said.ends_with("the rescue has ended\n"), "{said}");
    assert_eq!(world.ssh(address, "cat /etc/mended").await, "yes");
    assert_system(world, name, address).await;
}

/// The installed system is the declared one, and runs from the machine's own disk.
async fn assert_system(world: &World, name: &str, address: &str) {
    assert_eq!(world.ssh(address, "hostname").await, format!("{name}-1"));
    assert_eq!(world.ssh(address, "cat /etc/motd").await, "Installed by Basalt");
    let root = world.ssh(address, "findmnt -n -o SOURCE /").await;
    assert!(root.starts_with("/dev/vda"), "{root}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_machines_are_installed_run_without_us_and_are_given_back() {
    let mut world = World::start().await;
    for machine in quickstart_machines() {
        let power = world.site.machine(&machine.name).expect("a machine").power_status().await;
        assert_eq!(power.expect("a BMC"), PowerState::Off, "machines begin powered off");
    }
    world.succeeds(&["init"], QUICK).await;
    let instruction = world.site.directory().join("instruction.pb");
    tokio::select! {
        () = world.succeeds(&["apply", "-auto-approve"], APPLY) => {}
        () = world.keep_instruction("bios", &instruction) => {}
    }

    let mut addresses = Vec::new();
    for config in quickstart_machines() {
        let name = config.name.as_str();
        let machine = world.site.machine(name).expect("a machine");
        assert_eq!(machine.power_status().await.expect("a BMC"), PowerState::On, "IPMI says on");
        assert_inventory(&world.get("Machine", name).await.status["inventory"], machine);

        let history = world.history(name).await.join("\n");
        eprintln!("{history}");
        assert!(history.contains("leased 10.77.0."), "DHCP was used:\n{history}");
        assert!(history.contains("asked http for script"), "HTTP was used:\n{history}");
        let loader = history.contains("network boot ROM: snponly.efi");
        assert_eq!(
            loader,
            config.firmware == Firmware::Uefi,
            "the BIOS machine's ROM is iPXE already:\n{history}"
        );

        let boots =
            world.basalt(&["explain", "boot", &machine.config().mac.to_string(), "--history", "9"]).await;
        eprintln!("{boots}");
        for step in [&format!("machine {name}, "), "DISCOVER", "script for iPXE", "GET /blobs/", "claim"] {
            assert!(boots.contains(step), "{step} of:\n{boots}");
        }
        assert_eq!(boots.contains("tftp") && boots.contains("snponly.efi"), loader, "{boots}");

        let deployment = world.get("Deployment", name).await;
        let address = deployment.status["address"].as_str().expect("an address").to_owned();
        assert_system(&world, name, &address).await;
        assert_eq!(world.ssh(&address, "cat /var/lib/greeted").await, "hello", "the deployment is Ready");
        // The journal may lag behind: this is tried again until the line is there.
        world.ssh(&address, "sudo journalctl -u basalt-first-boot -o cat | grep -x 'greet: hello'").await;
        addresses.push((config.name, address));
    }

    let rack = std::fs::read_to_string(world.site.directory().join("rack-1.log")).expect("a log");
    let tftp = rack.lines().any(|line| line.contains("TFTP transfer ended") && line.contains("snponly.efi"));
    assert!(tftp, "the UEFI machine's loader came by TFTP");

    world.site.stop_rack(1).await.expect("it drains");
    world.site.stop_region().await.expect("it drains");
    for (name, _) in &addresses {
        world.site.machine(name).expect("a machine").power(PowerVerb::Cycle).await.expect("a BMC");
    }
    for (name, address) in &addresses {
        assert_system(&world, name, address).await;
        let uptime = world.ssh(address, "cut -d. -f1 /proc/uptime").await;
        assert!(uptime.parse::<u64>().expect("seconds") < BOOT.as_secs(), "it was power cycled");
        assert_eq!(world.ssh(address, "cat /var/lib/greeted").await, "hello", "another boot runs no script");
    }

    // The marker on the disk shows that the attempt is done: the installed system stays, and boots.
    let (name, address) = addresses.first().expect("a machine");
    world.ssh(address, "touch kept && sync").await;
    let machine = world.site.machine(name).expect("a machine");
    let mut stale = world.cut_off_rack(&instruction).await;
    let mark = machine.serial_mark();
    machine.set_boot_device(BootDevice::Pxe, true).await.expect("a BMC");
    machine.power(PowerVerb::Cycle).await.expect("a BMC");
    let serial = world.site.lab().wait_for_serial_after(machine, mark, "uperseded", BOOT).await;
    assert!(
        serial.expect("the agent's word").contains("check: choosing the disk"),
        "it was about to install"
    );
    world.ssh(address, "test -e kept").await;
    assert_system(&world, name, address).await;
    stale.terminate();
    stale.wait(QUICK).await.expect("it drains");

    world.site.start_region().await.expect("a region");
    world.site.start_rack(1).await.expect("a rack");
    let plan = world.terraform(&["plan", "-detailed-exitcode"], QUICK).await;
    let log = world.site.directory().join("terraform.log");
    assert_eq!(plan.code(), Some(0), "nothing is left to do:\n{}", tail(&log));

    let (other, its_address) = addresses.last().expect("a machine");
    assert_rescue(&world, other, its_address).await;
    let plan = world.terraform(&["plan", "-detailed-exitcode"], QUICK).await;
    assert_eq!(plan.code(), Some(0), "it is as it was declared:\n{}", tail(&log));
    assert_script(&world, name).await;
    world.succeeds(&["destroy", "-auto-approve"], DESTROY).await;
    for config in quickstart_machines() {
        let power = world.site.machine(&config.name).expect("a machine").power_status().await;
        assert_eq!(power.expect("a BMC"), PowerState::Off, "{} was given back", config.name);
        let kind = Kind::find("Machine").expect("a kind");
        assert!(world.client.find(kind, &config.name).await.expect("an answer").is_none());
    }
    world.site.stop_rack(1).await.expect("it drains");
    world.site.stop_region().await.expect("it drains");
}
