//! Emulated machines, powered by IPMI: their boot devices, and the removal of all their parts.

use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use basalt_bmc::{BootDevice, PowerState, PowerVerb};
use basalt_lab::{BootOrder, Firmware, Lab, LabError, Mac, Machine, MachineConfig};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;

/// Time limit for real firmware under pure emulation, on a busy host.
const BOOT: Duration = Duration::from_secs(120);

fn small(number: u8, firmware: Firmware) -> MachineConfig {
    MachineConfig { memory_mib: 512, disk_bytes: 64 << 20, ..MachineConfig::numbered(number, firmware) }
}

/// The sender's facts in a DHCP DISCOVER.
#[derive(Debug, PartialEq, Eq)]
struct Discover {
    mac: Mac,
    /// Option 93: 0 is BIOS, 7 is 64-bit UEFI.
    architecture: Option<u16>,
    is_ipxe: bool,
}

fn parse(packet: &[u8]) -> Option<Discover> {
    let mac = Mac(packet.get(28..34)?.try_into().ok()?);
    let mut options = packet.get(240..)?;
    let (mut architecture, mut is_ipxe) = (None, false);
    while let [code, length, rest @ ..] = options {
        let value = rest.get(..usize::from(*length))?;
        match code {
            93 => architecture = value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes)),
            77 => is_ipxe = value.ends_with(b"iPXE"),
            _ => {}
        }
        options = rest.get(value.len()..)?;
        if options.first() == Some(&255) {
            break;
        }
    }
    Some(Discover { mac, architecture, is_ipxe })
}

/// Listens at the DHCP server's port inside the lab and reports each DISCOVER; it never answers.
fn listen_for_dhcp(lab: &Lab) -> mpsc::UnboundedReceiver<Discover> {
    let (heard, inbox) = mpsc::unbounded_channel();
    let socket = lab.inside(|| UdpSocket::bind("0.0.0.0:67")).join().unwrap().unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while !heard.is_closed() {
            if let Some(discover) = socket.recv(&mut buffer).ok().and_then(|length| parse(&buffer[..length]))
            {
                let _closed = heard.send(discover);
            }
        }
    });
    inbox
}

async fn hear_from(inbox: &mut mpsc::UnboundedReceiver<Discover>, machine: &Machine) -> Discover {
    let heard = tokio::time::timeout(BOOT, async {
        loop {
            let discover = inbox.recv().await.expect("the listener runs");
            if discover.mac == machine.config().mac {
                return discover;
            }
        }
    });
    heard.await.unwrap_or_else(|_| panic!("{} asked for no address", machine.config().name))
}

/// Waits for a power state that the machine itself causes.
async fn becomes(machine: &Machine, wanted: PowerState, limit: Duration) {
    let deadline = Instant::now() + limit;
    while machine.power_status().await.unwrap() != wanted {
        assert!(Instant::now() < deadline, "{} is not {wanted}", machine.config().name);
    }
}

async fn ipmitool(lab: &Lab, machine: &Machine, arguments: &str) -> String {
    let mut command = lab.command("ipmitool").unwrap();
    command.args(["-I", "lanplus", "-C", "3", "-U", "admin", "-P", "secret", "-H"]);
    command.arg(machine.config().bmc_address.to_string()).args(arguments.split(' ')).stdout(Stdio::piped());
    let mut process = lab.spawn(command).unwrap();
    let mut lines = BufReader::new(process.take_stdout().unwrap()).lines();
    let mut output = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        output += &line;
    }
    let status = process.wait(Duration::from_secs(30)).await.unwrap();
    assert!(status.success(), "ipmitool {arguments}: {status} {output}");
    output
}

/// A boot sector that writes `words` to the serial port, then switches the machine off (ACPI, port 0x604) or resets
/// it (port 0xcf9).
fn put_boot_sector(machine: &Machine, words: &str, last: [u8; 7]) {
    let mut sector = vec![
        0x31, 0xc0, 0x8e, 0xd8, // xor ax,ax; mov ds,ax
        0xba, 0xf8, 0x03, 0xbe, 0x1c, 0x7c, // mov dx,0x3f8; mov si,words
        0xac, 0x84, 0xc0, 0x74, 0x03, 0xee, 0xeb,
        0xf8, // next: lodsb; test al,al; jz done; out dx,al; jmp next
    ];
    sector.extend_from_slice(&last); // done:
    sector.extend_from_slice(&[0xf4, 0xeb, 0xfd]); // hlt, for ever
    sector.extend_from_slice(words.as_bytes());
    sector.resize(510, 0);
    sector.extend_from_slice(&[0x55, 0xaa]);
    sector.resize(1 << 20, 0);
    let raw = machine.directory().join("sector.raw");
    std::fs::write(&raw, sector).unwrap();
    let convert =
        Command::new("qemu-img").args(["convert", "-O", "qcow2"]).arg(raw).arg(machine.disk_path()).status();
    assert!(convert.unwrap().success());
}

/// mov dx,0x604; mov ax,0x2000; out dx,ax
const POWER_OFF: [u8; 7] = [0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef];
/// mov dx,0xcf9; mov ax,0x0006; out dx,al
const RESET: [u8; 7] = [0xba, 0xf9, 0x0c, 0xb8, 0x06, 0x00, 0xee];

#[tokio::test]
async fn powered_on_by_ipmitool_both_firmwares_ask_for_an_address() {
    let mut lab = Lab::create("dhcp").unwrap();
    let mut inbox = listen_for_dhcp(&lab);
    let bios = lab.add_machine(small(1, Firmware::Bios)).await.unwrap();
    let uefi = lab.add_machine(small(2, Firmware::Uefi)).await.unwrap();
    for machine in [&bios, &uefi] {
        assert!(ipmitool(&lab, machine, "chassis power status").await.ends_with("is off"));
        ipmitool(&lab, machine, "chassis bootdev pxe options=efiboot").await;
        ipmitool(&lab, machine, "chassis power on").await;
        assert!(ipmitool(&lab, machine, "chassis power status").await.ends_with("is on"));
    }
    let heard = hear_from(&mut inbox, &bios).await;
    assert_eq!((heard.architecture, heard.is_ipxe), (Some(0), true), "SeaBIOS's network ROM is iPXE");
    let heard = hear_from(&mut inbox, &uefi).await;
    assert_eq!((heard.architecture, heard.is_ipxe), (Some(7), false), "OVMF uses its own PXE driver");
    let bios_log = std::fs::read_to_string(bios.serial_log_path()).unwrap();
    assert!(!bios_log.contains("Booting from Hard Disk"), "the network came first: {bios_log}");
    let uefi_log = lab.wait_for_serial(&uefi, "Start PXE over IPv4", BOOT).await.unwrap();
    assert!(!uefi_log.contains("failed to load"), "the network came first: {uefi_log}");
    for machine in [&bios, &uefi] {
        ipmitool(&lab, machine, "chassis power off").await;
        assert_eq!(machine.power_status().await.unwrap(), PowerState::Off);
    }
}

#[tokio::test]
async fn a_disk_boots_first_unless_the_bmc_says_once_otherwise() {
    let mut lab = Lab::create("disk").unwrap();
    let mut inbox = listen_for_dhcp(&lab);
    let machine = lab.add_machine(small(1, Firmware::Bios)).await.unwrap();
    put_boot_sector(&machine, "booted from disk", POWER_OFF);
    machine.power(PowerVerb::On).await.unwrap();
    lab.wait_for_serial(&machine, "booted from disk", BOOT).await.unwrap();
    // It switched itself off.
    becomes(&machine, PowerState::Off, BOOT).await;
    assert!(inbox.try_recv().is_err(), "it did not use the network");

    let mark = machine.serial_mark();
    machine.set_boot_device(BootDevice::Pxe, true).await.unwrap();
    machine.power(PowerVerb::On).await.unwrap();
    hear_from(&mut inbox, &machine).await;
    let log = lab.wait_for_serial_after(&machine, mark, "iPXE", BOOT).await.unwrap();
    assert!(!log.contains("booted from disk"), "{log}");

    let mark = machine.serial_mark();
    machine.power(PowerVerb::Cycle).await.unwrap();
    lab.wait_for_serial_after(&machine, mark, "booted from disk", BOOT).await.unwrap();
}

#[tokio::test]
async fn a_guest_that_resets_itself_obeys_a_new_boot_device() {
    let mut lab = Lab::create("reset").unwrap();
    let mut inbox = listen_for_dhcp(&lab);
    let machine = lab.add_machine(small(1, Firmware::Bios)).await.unwrap();
    put_boot_sector(&machine, "resetting", RESET);
    machine.power(PowerVerb::On).await.unwrap();
    lab.wait_for_serial(&machine, "resetting", BOOT).await.unwrap();
    assert_eq!(machine.power_status().await.unwrap(), PowerState::On, "a reset is not an end");
    machine.set_boot_device(BootDevice::Pxe, true).await.unwrap();
    hear_from(&mut inbox, &machine).await;
}

#[tokio::test]
async fn a_uefi_machine_may_prefer_the_network() {
    let mut lab = Lab::create("order").unwrap();
    let mut inbox = listen_for_dhcp(&lab);
    let config = MachineConfig { boot_order: BootOrder::NetworkFirst, ..small(1, Firmware::Uefi) };
    let machine = lab.add_machine(config).await.unwrap();
    machine.power(PowerVerb::On).await.unwrap();
    hear_from(&mut inbox, &machine).await;
    let log = lab.wait_for_serial(&machine, "Start PXE over IPv4", BOOT).await.unwrap();
    assert!(!log.contains("failed to load"), "{log}");
}

#[tokio::test]
async fn a_dropped_lab_leaves_nothing() {
    let mut lab = Lab::create("dropped").unwrap();
    let machine = lab.add_machine(small(1, Firmware::Bios)).await.unwrap();
    machine.power(PowerVerb::On).await.unwrap();
    let (namespace, directory) = (lab.namespace().to_owned(), lab.directory().to_owned());
    let qemu = pids_using(&directory);
    assert!(!qemu.is_empty(), "QEMU runs");
    drop((machine, lab));
    assert!(!directory.exists());
    assert!(!Path::new("/run/netns").join(namespace).exists());
    assert_eq!(pids_using(&directory), [0; 0]);
}

#[tokio::test]
async fn what_a_killed_owner_left_is_removed_by_the_next_lab() {
    let program = env!("CARGO_BIN_EXE_basalt-lab");
    let label = format!("killed-{}", std::process::id());
    let machines = tempfile::NamedTempFile::new().unwrap();
    serde_json::to_writer(&machines, &[small(1, Firmware::Bios)]).unwrap();
    let mut owner = tokio::process::Command::from({
        let mut command = Command::new(program);
        command
            .args(["up", &label, "--machines"])
            .arg(machines.path())
            .stdout(Stdio::piped())
            .process_group(0);
        command
    })
    .kill_on_drop(true)
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let ready = tokio::time::timeout(BOOT, async {
        loop {
            let line = lines.next_line().await.unwrap().expect("it stays up");
            if line.starts_with("ready") {
                return;
            }
        }
    });
    ready.await.expect("the lab comes up");
    let full_name = basalt_lab::lab::find(&label).unwrap();
    owner.kill().await.unwrap();

    let _next = Lab::create("after-killed").unwrap();
    assert!(!Path::new("/run/netns").join(&full_name).exists());
    assert!(matches!(basalt_lab::lab::find(&label), Err(LabError::NoSuchLab(_))));
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let _lab = Lab::create("taken").unwrap();
    assert!(matches!(Lab::create("taken"), Err(LabError::NameTaken(_))));
    assert!(matches!(Lab::create("Bad Name"), Err(LabError::BadName(_))));
}

#[tokio::test]
async fn a_second_machine_of_the_same_address_is_refused() {
    let mut lab = Lab::create("twice").unwrap();
    let _first = lab.add_machine(small(1, Firmware::Bios)).await.unwrap();
    let twin = MachineConfig { name: "twin".into(), ..small(1, Firmware::Bios) };
    let error = lab.add_machine(twin).await.unwrap_err().to_string();
    assert!(error.contains("has the same MAC address 52:54:00:77:00:01"), "{error}");
}

/// Processes whose command line names `directory`.
fn pids_using(directory: &Path) -> Vec<u32> {
    let needle = directory.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&needle)
        })
        .collect()
}
