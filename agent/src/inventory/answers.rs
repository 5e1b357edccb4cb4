//! Values for which the kernel has no files. Programs ask the devices: `ethtool` the drivers of interfaces, `smartctl` the disks. Direct calls
//! of the kernel would need unsafe code.
//!
//! A broken device may not answer, or may block its program in the kernel. So all devices are asked at the same time, each program has a time
//! limit, and so have all together. A device that does not answer has no value, and the log names it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use basalt_api::agent::{Inventory, Verdict};

use crate::test::smart;
use crate::{deadlines, say, tool};

/// Most programs at a time. A shelf has 60 disks.
const WORKERS: usize = 16;

/// A device, by its kernel name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Device {
    Interface(String),
    Disk(String),
}

impl Device {
    fn name(&self) -> &str {
        let (Self::Interface(name) | Self::Disk(name)) = self;
        name
    }
}

/// The answer of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Firmware(String),
    Health(Verdict),
}

/// Adds the firmware of interfaces and the health of disks.
pub fn ask(inventory: &mut Inventory) {
    let late = ask_with(inventory, deadlines::ALL_DEVICES, by_program);
    if !late.is_empty() {
        say!(
            "after {:?} there is no answer from {}: their firmware or health is not in the inventory",
            deadlines::ALL_DEVICES,
            late.join(", ")
        );
    }
}

fn by_program(device: &Device) -> Option<Answer> {
    match device {
        Device::Interface(name) => {
            let ended = tool::answer("ethtool", &["-i", name], deadlines::DEVICE).ok()?;
            firmware(&ended.out).map(Answer::Firmware)
        }
        Device::Disk(name) => {
            let path = format!("/dev/{name}");
            let ended = tool::answer("smartctl", &["--json", "-x", &path], deadlines::DEVICE).ok()?;
            smart::health(ended.code, &ended.out).map(Answer::Health)
        }
    }
}

/// The version of the firmware in the output of `ethtool -i`. Drivers without one write nothing, or `N/A`.
fn firmware(ethtool: &str) -> Option<String> {
    let version = ethtool.lines().find_map(|line| line.strip_prefix("firmware-version:"))?.trim();
    (!version.is_empty() && version != "N/A").then(|| version.to_owned())
}

/// Asks all devices. Returns the names of those that did not answer in time.
fn ask_with(
    inventory: &mut Inventory,
    limit: Duration,
    by: impl Fn(&Device) -> Option<Answer> + Clone + Send + 'static,
) -> Vec<String> {
    let interfaces = inventory.nics.iter().map(|nic| Device::Interface(nic.name.clone()));
    let devices: VecDeque<Device> =
        interfaces.chain(inventory.disks.iter().map(|disk| Device::Disk(disk.name.clone()))).collect();
    let mut waiting: BTreeSet<Device> = devices.iter().cloned().collect();
    let queue = Arc::new(Mutex::new(devices));
    let (sender, answers) = channel();
    for _ in 0..WORKERS.min(waiting.len()) {
        let (queue, sender, by) = (Arc::clone(&queue), sender.clone(), by.clone());
        std::thread::spawn(move || {
            while let Some(device) = next(&queue) {
                let answer = by(&device);
                if sender.send((device, answer)).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let end = Instant::now() + limit;
    while let Ok((device, answer)) = answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
        waiting.remove(&device);
        if let Some(answer) = answer {
            keep(inventory, device.name(), answer);
        }
    }
    waiting.iter().map(|device| device.name().to_owned()).collect()
}

fn next(queue: &Mutex<VecDeque<Device>>) -> Option<Device> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

fn keep(inventory: &mut Inventory, name: &str, answer: Answer) {
    match answer {
        Answer::Firmware(version) => {
            let nic = inventory.nics.iter_mut().find(|nic| nic.name == name);
            nic.into_iter().for_each(|nic| nic.firmware.clone_from(&version));
        }
        Answer::Health(verdict) => {
            let disk = inventory.disks.iter_mut().find(|disk| disk.name == name);
            disk.into_iter().for_each(|disk| disk.health = Some(verdict));
        }
    }
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::{Disk, Nic};

    use super::*;

    fn machine() -> Inventory {
        let nic = |name: &str| Nic { name: name.to_owned(), ..Nic::default() };
        let disk = |number: usize| Disk { name: format!("sd{number}"), ..Disk::default() };
        let disks = (0..3 * WORKERS).map(disk).collect();
        Inventory { nics: ["eth0", "eth1"].map(nic).to_vec(), disks, ..Inventory::default() }
    }

    #[test]
    fn the_version_of_an_adapters_firmware_is_what_its_driver_writes() {
        let ethtool = "driver: ice\nversion: 6.12.41\nfirmware-version: 4.40 0x8001c967 1.3534.0\nexpansion-rom-version: \n";
        assert_eq!(firmware(ethtool).as_deref(), Some("4.40 0x8001c967 1.3534.0"));
        for none in ["driver: virtio_net\nfirmware-version: \n", "firmware-version: N/A\n", ""] {
            assert_eq!(firmware(none), None, "{none}");
        }
    }

    #[test]
    fn every_device_is_asked_and_has_its_own_answer() {
        let mut inventory = machine();
        let late = ask_with(&mut inventory, deadlines::ALL_DEVICES, |device| match device {
            Device::Interface(name) => (name == "eth1").then(|| Answer::Firmware(format!("of {name}"))),
            Device::Disk(name) => Some(Answer::Health(match name.as_str() {
                "sd1" => Verdict::Failed,
                _ => Verdict::Passed,
            })),
        });
        assert!(late.is_empty(), "{late:?}");
        let firmware: Vec<_> = inventory.nics.iter().map(|nic| nic.firmware.as_str()).collect();
        assert_eq!(firmware, ["", "of eth1"]);
        let failed = inventory.disks.iter().filter(|disk| disk.health == Some(Verdict::Failed));
        assert_eq!(failed.map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["sd1"]);
        assert!(inventory.disks.iter().all(|disk| disk.health.is_some()));
    }

    #[test]
    fn a_device_that_hangs_in_the_kernel_holds_up_no_other_and_no_task() {
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let mut inventory = machine();
        let late = ask_with(&mut inventory, Duration::from_secs(3), move |device| {
            if device.name() == "sd7" {
                let _ = held.lock().unwrap().recv();
            }
            Some(Answer::Health(Verdict::Passed))
        });
        assert_eq!(late, ["sd7"]);
        let unknown = inventory.disks.iter().filter(|disk| disk.health.is_none());
        assert_eq!(unknown.map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["sd7"]);
        drop(release);
    }
}
