//! Checks that a simulated machine behaves like a real one, with programs that share no code with us: ipmitool,
//! dnsmasq, busybox httpd.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use basalt_bmc::PowerState;
use basalt_lab::Lab;
use basalt_sim::{Event, Firmware, MachineOptions, ScriptKind, SimMachine, Speaker};

use crate::support::LIMIT;

/// A program inside the lab. Dropping it kills the program.
struct Program(Child);

impl Program {
    fn start(lab: &Lab, command: &str, arguments: &[&str], libraries: &Path) -> Self {
        let mut inside = Command::new("ip");
        inside
            .args(["netns", "exec", lab.namespace(), command])
            .args(arguments)
            .env("LD_LIBRARY_PATH", libraries);
        Self(
            inside
                .stdin(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap_or_else(|error| panic!("{command}: {error}")),
        )
    }

    /// Kills the program, and returns its output.
    fn said(mut self) -> String {
        self.0.kill().unwrap();
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            stderr.read_to_string(&mut said).unwrap();
        }
        said
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Path of dnsmasq, and of its libraries.
fn dnsmasq() -> (PathBuf, PathBuf) {
    let bring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/peer");
    let brought = Command::new(bring).arg("dnsmasq").stderr(Stdio::inherit()).output().unwrap();
    assert!(brought.status.success(), "{}", brought.status);
    let root = PathBuf::from(String::from_utf8(brought.stdout).unwrap().trim_end());
    (root.join("usr/sbin/dnsmasq"), root.join("usr/lib/x86_64-linux-gnu"))
}

#[tokio::test]
async fn ipmitool_moves_the_machine_by_its_bmc() {
    let lab = Lab::create("sim-ipmitool").unwrap();
    let machine = SimMachine::start(&lab, MachineOptions::numbered(1, Firmware::Bios)).unwrap();
    let ipmitool = |password: &str, arguments: &str| {
        let address = machine.options().bmc_address.to_string();
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            lab.namespace(),
            "ipmitool",
            "-I",
            "lanplus",
            "-C",
            "3",
            "-N",
            "1",
            "-R",
            "2",
        ]);
        command.args(["-H", &address, "-U", "admin", "-P", password]).args(arguments.split(' '));
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let says = |arguments: &str, expected: &str| {
        let (success, text) = ipmitool("secret", arguments);
        assert!(success && text.contains(expected), "{arguments}: {text}");
    };
    assert!(!ipmitool("wrong", "chassis power on").0);
    says("chassis power status", "Chassis Power is off");
    says("chassis bootdev disk", "Set Boot Device to disk");
    says("chassis power on", "Chassis Power Control: Up/On");
    says("chassis power status", "Chassis Power is on");
    assert_eq!(machine.power_state(), PowerState::On);
    says("chassis power cycle", "Chassis Power Control: Cycle");
    says("chassis power off", "Chassis Power Control: Down/Off");
    says("chassis power status", "Chassis Power is off");
    let power = |event: &Event| matches!(event, Event::PoweredOn | Event::PoweredOff);
    assert_eq!(machine.count(power), 4, "{}", machine.log());
    machine.bmc_faults().set(&[basalt_bmc::Fault::PowerLies]);
    says("chassis power on", "Chassis Power Control: Up/On");
    says("chassis power status", "Chassis Power is off");
    assert_eq!(machine.bmc_faults().fired(basalt_bmc::Fault::PowerLies), 1);
    machine.bmc_faults().set(&[basalt_bmc::Fault::Unreachable]);
    assert!(!ipmitool("secret", "chassis power status").0);
}

#[tokio::test]
async fn dnsmasq_and_busybox_boot_the_machine() {
    let (dnsmasq, libraries) = dnsmasq();
    for (firmware, loader, architecture) in
        [(Firmware::Bios, "undionly.kpxe", "0"), (Firmware::Uefi, "snponly.efi", "7")]
    {
        let lab = Lab::create("sim-dnsmasq").unwrap();
        let web = lab.directory().join("web");
        fs::create_dir(&web).unwrap();
        fs::write(web.join("kernel"), vec![b'k'; 3 << 20]).unwrap();
        let script = "#!ipxe\nkernel http://10.77.0.1:8080/kernel || goto no\nkernel http://10.77.0.1:8080/missing || goto disk\n:no\nreboot\n:disk\nexit 1\n";
        fs::write(web.join("script"), script).unwrap();
        let web = web.display().to_string();
        let _httpd =
            Program::start(&lab, "busybox", &["httpd", "-f", "-p", "10.77.0.1:8080", "-h", &web], &libraries);
        let leases = format!("--dhcp-leasefile={}", lab.directory().join("leases").display());
        let boot = format!("--dhcp-boot=tag:rom,{loader}");
        let rom = format!("--dhcp-match=set:rom,option:client-arch,{architecture}");
        let arguments = [
            "--conf-file=/dev/null",
            "--keep-in-foreground",
            "--log-facility=-",
            "--log-dhcp",
            "--user=root",
            "--port=0",
            "--interface=br0",
            "--bind-interfaces",
            "--dhcp-authoritative",
            "--no-ping",
            "--dhcp-range=10.77.0.50,10.77.0.60,10m",
            "--enable-tftp",
            "--tftp-root=/usr/lib/ipxe",
            "--dhcp-userclass=set:ipxe,iPXE",
            "--dhcp-boot=tag:ipxe,http://10.77.0.1:8080/script",
            &rom,
            &boot.replace("tag:rom", "tag:rom,tag:!ipxe"),
            &leases,
        ];
        let server = Program::start(&lab, &dnsmasq.display().to_string(), &arguments, &libraries);
        let machine = SimMachine::start(&lab, MachineOptions::numbered(1, firmware)).unwrap();
        machine.press_power();
        let booted = machine.wait_for(|event| *event == Event::NothingBoots, LIMIT).await;
        let said = server.said();
        booted.unwrap_or_else(|error| panic!("{error}\n{said}"));
        let size =
            usize::try_from(fs::metadata(Path::new("/usr/lib/ipxe").join(loader)).unwrap().len()).unwrap();
        let events: Vec<Event> = machine.events().into_iter().map(|entry| entry.event).collect();
        let has = |event: &Event| assert!(events.contains(event), "{event:?}:\n{}\n{said}", machine.log());
        has(&Event::TftpFetched { file: loader.into(), bytes: size });
        has(&Event::Script { kind: ScriptKind::Local });
        for who in [Speaker::Rom, Speaker::Ipxe] {
            assert!(events.iter().any(|event| matches!(event, Event::DhcpAck { who: of, .. } if *of == who)));
        }
        let missing = |event: &&Event| matches!(event, Event::Refused { why } if why.contains("404"));
        assert_eq!(events.iter().filter(missing).count(), 1, "{}", machine.log());
        let mac = machine.options().mac.to_string();
        assert!(said.contains("DHCPACK(br0) 10.77.0.") && said.contains(&mac), "{said}");
        assert!(said.contains("PXEClient:Arch:0000") && said.contains("user class: iPXE"), "{said}");
    }
}
