//! Power and boot device, which the BMC controls.

use std::sync::{Arc, Mutex, PoisonError};

use basalt_bmc::{BootDevice, BootOverride, ChassisBackend, CompletionCode, PowerState, PowerVerb};

use crate::cable::Cable;
use crate::dhcp::Lease;
use crate::event::{Event, Log};
use crate::fault::Faults;
use crate::hardware::Hardware;
use crate::life::Life;
use crate::options::{BootOrder, MachineOptions};

/// A machine's parts: the options and disks survive a power cut, the power state does not.
#[derive(Debug)]
pub(crate) struct Chassis {
    pub(crate) options: MachineOptions,
    /// The lab's namespace.
    pub(crate) lab: String,
    pub(crate) hardware: Hardware,
    pub(crate) faults: Faults,
    pub(crate) log: Log,
    pub(crate) power: Mutex<Power>,
}

/// The power state. The power cannot be cut while its lock is held.
#[derive(Debug)]
pub(crate) struct Power {
    pub(crate) on: bool,
    /// Number of the power cycle. Work of an earlier cycle notices by it that its power was cut.
    pub(crate) cycle: u64,
    pub(crate) cable: Option<Cable>,
    /// An operating system listens for the power button.
    pub(crate) button: bool,
    /// The operating system's DHCP lease.
    pub(crate) lease: Option<Lease>,
    /// True if the person in the rescue environment has left.
    pub(crate) left: bool,
    boot: BootOverride,
}

impl Power {
    pub(crate) const OFF: Self = Self {
        on: false,
        cycle: 0,
        cable: None,
        button: false,
        lease: None,
        left: false,
        boot: BootOverride::NONE,
    };

    /// Cuts the power: the machine's next action does not happen, and none of its packets leaves any more.
    pub(crate) fn cut(&mut self, log: &Log) {
        self.on = false;
        self.end_system();
        drop(self.cable.take());
        log.push(Event::PoweredOff);
    }

    /// The boot devices, in order. Uses up an override for one boot.
    pub(crate) fn boot_order(&mut self, own: BootOrder) -> BootOrder {
        let order = match self.boot.device {
            BootDevice::Pxe => BootOrder::NetworkFirst,
            BootDevice::Disk => BootOrder::DiskFirst,
            BootDevice::None => own,
        };
        if self.boot.once {
            self.boot = BootOverride::NONE;
        }
        self.end_system();
        order
    }

    /// No operating system runs any more.
    fn end_system(&mut self) {
        self.button = false;
        self.lease = None;
        self.left = false;
    }
}

impl Chassis {
    pub(crate) fn state(&self) -> PowerState {
        if self.lock().on { PowerState::On } else { PowerState::Off }
    }

    pub(crate) fn power_on(self: &Arc<Self>) {
        let mut power = self.lock();
        if power.on {
            return;
        }
        power.on = true;
        power.cycle += 1;
        self.log.push(Event::PoweredOn);
        Life::begin(Arc::clone(self), power.cycle);
    }

    pub(crate) fn power_off(&self) {
        let mut power = self.lock();
        if power.on {
            power.cut(&self.log);
        }
    }

    /// The person in the rescue environment says that the repair is done.
    pub(crate) fn leave(&self) {
        self.lock().left = true;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Power> {
        self.power.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The BMC's handle to the machine.
#[derive(Debug)]
pub(crate) struct Backend(pub(crate) Arc<Chassis>);

impl ChassisBackend for Backend {
    async fn power_status(&self) -> PowerState {
        self.0.state()
    }

    async fn control(&self, verb: PowerVerb) -> Result<(), CompletionCode> {
        match (verb, self.0.state()) {
            (PowerVerb::On, _) => self.0.power_on(),
            (PowerVerb::Cycle | PowerVerb::Reset, PowerState::Off) => {
                return Err(CompletionCode::NOT_IN_THIS_STATE);
            }
            (PowerVerb::Cycle | PowerVerb::Reset, PowerState::On) => {
                self.0.power_off();
                self.0.power_on();
            }
            (PowerVerb::Off, _) => self.0.power_off(),
            // Firmware and boot loaders ignore the power button.
            (PowerVerb::Soft, _) => {
                let listens = self.0.lock().button;
                if listens {
                    self.0.power_off();
                }
            }
        }
        Ok(())
    }

    async fn boot_override(&self) -> BootOverride {
        self.0.lock().boot
    }

    async fn set_boot_override(&self, boot: BootOverride) -> Result<(), CompletionCode> {
        self.0.lock().boot = boot;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_for_once_is_used_up_by_the_boot_it_was_for() {
        let mut power =
            Power { boot: BootOverride { device: BootDevice::Pxe, once: true, efi: false }, ..Power::OFF };
        assert_eq!(power.boot_order(BootOrder::DiskFirst), BootOrder::NetworkFirst);
        assert_eq!(power.boot_order(BootOrder::DiskFirst), BootOrder::DiskFirst);
        power.boot = BootOverride { device: BootDevice::Disk, once: false, efi: true };
        assert_eq!(power.boot_order(BootOrder::NetworkFirst), BootOrder::DiskFirst);
        assert_eq!(power.boot_order(BootOrder::NetworkFirst), BootOrder::DiskFirst);
    }
}
