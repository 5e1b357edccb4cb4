//! The chassis behind an emulated machine's BMC: it owns QEMU and the boot device.
//!
//! An actor holds the state; [`QemuChassis`] is its handle. Power on starts QEMU, and power off kills it like a power cut.
//! If QEMU ends by itself, the machine has switched itself off. A boot override is applied at power on. It is also applied
//! when the guest resets itself, by a new start of QEMU: `-boot once` and `BootNext` are read only at the start.

use basalt_bmc::{BootDevice, BootOverride, ChassisBackend, CompletionCode, PowerState, PowerVerb};
use tokio::sync::{mpsc, oneshot};

use crate::error::LabError;
use crate::machine::{BootOrder, Firmware};
use crate::process::{LabProcess, supervised};
use crate::program::BmcProgramConfig;
use crate::qemu::{self, BiosBoot};
use crate::qmp::{Qmp, Waiting};
use crate::vars;

/// A request to the actor, with the channel for the answer.
enum Ask {
    Status(oneshot::Sender<PowerState>),
    Control(PowerVerb, oneshot::Sender<Result<(), CompletionCode>>),
    Boot(oneshot::Sender<BootOverride>),
    SetBoot(BootOverride, oneshot::Sender<()>),
}

/// The chassis of one machine.
#[derive(Clone, Debug)]
pub struct QemuChassis {
    asks: mpsc::Sender<Ask>,
}

impl QemuChassis {
    /// A chassis that is off. Its actor runs in the current runtime until the last handle is dropped.
    #[must_use]
    pub fn start(config: BmcProgramConfig) -> Self {
        let (asks, inbox) = mpsc::channel(8);
        tokio::spawn(Actor { config, boot: BootOverride::NONE, running: None }.run(inbox));
        Self { asks }
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, CompletionCode> {
        let (answer, answered) = oneshot::channel();
        let sent = self.asks.send(ask(answer)).await;
        match (sent, answered.await) {
            (Ok(()), Ok(answer)) => Ok(answer),
            _ => Err(CompletionCode::UNSPECIFIED),
        }
    }
}

impl ChassisBackend for QemuChassis {
    async fn power_status(&self) -> PowerState {
        self.ask(Ask::Status).await.unwrap_or(PowerState::Off)
    }

    async fn control(&self, verb: PowerVerb) -> Result<(), CompletionCode> {
        self.ask(|answer| Ask::Control(verb, answer)).await?
    }

    async fn boot_override(&self) -> BootOverride {
        self.ask(Ask::Boot).await.unwrap_or(BootOverride::NONE)
    }

    async fn set_boot_override(&self, boot: BootOverride) -> Result<(), CompletionCode> {
        self.ask(|answer| Ask::SetBoot(boot, answer)).await
    }
}

struct Running {
    process: LabProcess,
    qmp: Qmp,
}

struct Actor {
    config: BmcProgramConfig,
    boot: BootOverride,
    running: Option<Running>,
}

/// Events of QEMU.
enum Happening {
    Ended,
    GuestReset,
}

impl Actor {
    async fn run(mut self, mut inbox: mpsc::Receiver<Ask>) {
        loop {
            tokio::select! {
                ask = inbox.recv() => match ask {
                    Some(ask) => self.answer(ask).await,
                    None => return,
                },
                happening = next_happening(self.running.as_mut()) => self.happened(happening).await,
            }
        }
    }

    async fn answer(&mut self, ask: Ask) {
        // The console may have gone, and then needs no answer.
        match ask {
            Ask::Status(answer) => {
                let _unheard = answer.send(self.power());
            }
            Ask::Boot(answer) => {
                let _unheard = answer.send(self.boot);
            }
            Ask::SetBoot(boot, answer) => {
                tracing::info!(device = %boot.device, once = boot.once, efi = boot.efi, "boot device set");
                self.boot = boot;
                let _unheard = answer.send(());
            }
            Ask::Control(verb, answer) => {
                let result = self.control(verb).await;
                let _unheard = answer.send(result);
            }
        }
    }

    fn power(&self) -> PowerState {
        if self.running.is_some() { PowerState::On } else { PowerState::Off }
    }

    async fn control(&mut self, verb: PowerVerb) -> Result<(), CompletionCode> {
        tracing::info!("power {verb} (it is {})", self.power());
        let done = match (verb, &mut self.running) {
            (PowerVerb::On, Some(_)) | (PowerVerb::Off | PowerVerb::Soft, None) => Ok(()),
            (PowerVerb::Cycle | PowerVerb::Reset, None) => return Err(CompletionCode::NOT_IN_THIS_STATE),
            (PowerVerb::On, None) => self.power_on().await,
            (PowerVerb::Off, Some(_)) => {
                self.power_off().await;
                Ok(())
            }
            (PowerVerb::Soft, Some(running)) => running.qmp.execute("system_powerdown").await,
            // QEMU then reports the reset, and the handler of that event applies the boot override.
            (PowerVerb::Reset, Some(running)) => running.qmp.execute("system_reset").await,
            (PowerVerb::Cycle, Some(_)) => {
                self.power_off().await;
                self.power_on().await
            }
        };
        done.map_err(|error| {
            tracing::error!(%error, "power {verb} failed");
            CompletionCode::UNSPECIFIED
        })
    }

    async fn happened(&mut self, happening: Happening) {
        match happening {
            Happening::Ended => {
                tracing::info!("the machine switched itself off");
                self.power_off().await;
            }
            Happening::GuestReset if self.reset_needs_new_start() => {
                self.power_off().await;
                if let Err(error) = self.power_on().await {
                    tracing::error!(%error, "the machine did not come back after its reset");
                }
            }
            Happening::GuestReset => tracing::info!("the machine was reset"),
        }
    }

    /// The order of the next boot: the override's, or else the machine's.
    fn next_order(&self) -> BootOrder {
        match self.boot.device {
            BootDevice::Pxe => BootOrder::NetworkFirst,
            BootDevice::Disk => BootOrder::DiskFirst,
            BootDevice::None => self.config.machine.boot_order,
        }
    }

    /// True if a reset must start QEMU again: QEMU itself repeats its start options, which may differ from the next order.
    fn reset_needs_new_start(&self) -> bool {
        let pending = self.boot.device != BootDevice::None;
        match self.config.machine.firmware {
            Firmware::Bios => pending && self.boot.once,
            Firmware::Uefi => pending || self.next_order() == BootOrder::NetworkFirst,
        }
    }

    async fn power_on(&mut self) -> Result<(), LabError> {
        let boot = self.apply_boot()?;
        let line = qemu::command_line(&self.config, boot);
        let waiting = Waiting::bind(&self.config.qmp_path())?;
        let mut process = LabProcess::start(supervised(&line)?)?;
        let qmp = tokio::select! {
            qmp = waiting.accept() => qmp?,
            () = process.ended() => {
                let output = "see the lines above in this log".to_owned();
                return Err(LabError::Failed { command: line.join(" "), status: "ended at once".to_owned(), output });
            }
        };
        self.running = Some(Running { process, qmp });
        // Only a successful start uses the override up.
        if self.boot.once {
            self.boot = BootOverride::NONE;
        }
        Ok(())
    }

    /// Writes the order into a UEFI machine's variables; for a BIOS machine, returns it.
    fn apply_boot(&self) -> Result<BiosBoot, LabError> {
        let machine = &self.config.machine;
        let next = self.next_order();
        if machine.firmware == Firmware::Uefi {
            let variables = self.config.directory.join("vars.fd");
            match (next, self.boot.device) {
                (BootOrder::NetworkFirst, _) => {
                    vars::set_boot_next(&variables, vars::Next::Network(machine.mac))?;
                }
                (BootOrder::DiskFirst, BootDevice::Disk) => {
                    vars::set_boot_next(&variables, vars::Next::Disk)?;
                }
                // OVMF's own order: an installer's entry, else the disk, then the network.
                (BootOrder::DiskFirst, _) => {}
            }
        }
        let lasting = if self.boot.once { machine.boot_order } else { next };
        Ok(BiosBoot { order: lasting, once: (next != lasting).then_some(next) })
    }

    async fn power_off(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.process.kill();
            running.process.ended().await;
        }
    }
}

/// The next event. Waits for ever while the machine is off.
async fn next_happening(running: Option<&mut Running>) -> Happening {
    let Some(running) = running else {
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            event = running.qmp.event() => match event.as_deref() {
                Some("RESET") => return Happening::GuestReset,
                Some(_) => {}
                // The monitor closes a moment before the process ends.
                None => {
                    running.process.ended().await;
                    return Happening::Ended;
                }
            },
            () = running.process.ended() => return Happening::Ended,
        }
    }
}
