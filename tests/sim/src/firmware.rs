//! Firmware, PXE ROM and iPXE: the boot from power-on to a kernel or a disk.

use std::collections::BTreeMap;

use crate::event::{ScriptKind, Speaker};
use crate::fault::{Fault, Stage};
use crate::life::{Life, Stop};
use crate::options::{BootOrder, Firmware};
use crate::script::{self, Ending, Host};
use crate::{dhcp, ephemeral, installed, tftp, web};

/// Limit of scripts in a row without a pause, above the number from any sensible rack. A machine that is told to wait asks for ever.
const MAX_SCRIPTS: usize = 100;

/// Boots the machine. Returns when an installed system has nothing left to do, or when nothing boots.
pub(crate) fn boot(life: &Life) -> Result<(), Stop> {
    let own = life.options().boot_order;
    if life.act(|power| power.boot_order(own))? == BootOrder::NetworkFirst {
        network(life)?;
        if installed::boot(life)? {
            return Ok(());
        }
    } else {
        if installed::boot(life)? {
            return Ok(());
        }
        network(life)?;
        // A script may have chosen the disk.
        if installed::boot(life)? {
            return Ok(());
        }
    }
    life.event(crate::event::Event::NothingBoots)
}

/// Tries the network. Returns when the next boot device must be tried: `exit` on UEFI returns to the firmware's
/// boot entries, `sanboot` on BIOS boots the disk by iPXE.
fn network(life: &Life) -> Result<(), Stop> {
    if life.fault(|fault| fault == Fault::NeverPxeBoots)?.is_some() {
        return Ok(());
    }
    life.stage(0, Stage::Loader)?;
    let Some(binding) = dhcp::lease(life, Speaker::Rom)? else { return Ok(()) };
    let Some(file) = binding.boot_file else { return life.refused("DHCP names no boot file") };
    // Without a next server, the DHCP server itself (PXE 2.1 §2.4.4).
    if !tftp::fetch(life, binding.next_server.unwrap_or(binding.server), &file)? {
        return Ok(());
    }
    life.stage(0, Stage::Script)?;
    let Some(binding) = dhcp::lease(life, Speaker::Ipxe)? else { return Ok(()) };
    let Some(mut url) = binding.boot_file else { return life.refused("DHCP names no script for iPXE") };
    let mut in_a_row = 0;
    while in_a_row < MAX_SCRIPTS {
        let text = match web::text(life, &url)? {
            Ok(text) => text,
            Err(why) => return life.refused(why),
        };
        let Ran { ending, paused } = run(life, &text)?;
        in_a_row = if paused { 0 } else { in_a_row + 1 };
        match ending {
            Some(Ending::Chain(next)) => url = next,
            Some(Ending::Boot { cmdline }) => {
                life.script(ScriptKind::Ephemeral)?;
                return Err(ephemeral::run(life, &cmdline));
            }
            Some(Ending::SanBoot | Ending::Exit(_)) => return life.script(ScriptKind::Local),
            Some(Ending::PowerOff) => {
                life.script(ScriptKind::PowerOff)?;
                return Err(Stop::PowerOff);
            }
            Some(Ending::Reboot) => {
                life.script(ScriptKind::Reboot)?;
                return Err(Stop::Reset);
            }
            None => return Ok(()),
        }
    }
    life.refused(format!("{MAX_SCRIPTS} boot scripts in a row"))
}

/// A script that ran.
struct Ran {
    /// `None` if the script would leave a real machine in iPXE's shell.
    ending: Option<Ending>,
    /// True if it had a `sleep`.
    paused: bool,
}

/// Runs one script.
fn run(life: &Life, text: &str) -> Result<Ran, Stop> {
    let platform = match life.options().firmware {
        Firmware::Bios => "pcbios",
        Firmware::Uefi => "efi",
    };
    let settings = BTreeMap::from([
        ("platform", platform.to_owned()),
        ("buildarch", "x86_64".to_owned()),
        ("net0/mac", life.options().mac.to_string()),
    ]);
    let mut host = Ipxe { life, stopped: None, paused: false };
    let ended = script::run(text, &settings, &mut host);
    if let Some(stop) = host.stopped {
        return Err(stop);
    }
    let ending = match ended {
        Ok(ending) => Some(ending),
        Err(error) => life.refused(error).map(|()| None)?,
    };
    Ok(Ran { ending, paused: host.paused })
}

/// iPXE's commands for a script.
struct Ipxe<'a> {
    life: &'a Life,
    stopped: Option<Stop>,
    paused: bool,
}

impl Ipxe<'_> {
    /// Runs `work`, unless the machine has stopped. A stopped machine fails every command, so the script ends.
    fn unless_stopped(&mut self, work: impl FnOnce(&Life) -> Result<bool, Stop>) -> bool {
        if self.stopped.is_some() {
            return false;
        }
        work(self.life).unwrap_or_else(|stop| {
            self.stopped = Some(stop);
            false
        })
    }
}

impl Host for Ipxe<'_> {
    fn kernel(&mut self, url: &str) -> bool {
        self.unless_stopped(|life| match web::discard(life, url)? {
            Ok(_) => Ok(true),
            Err(why) => life.refused(why).map(|()| false),
        })
    }

    fn initrd(&mut self, url: &str) -> bool {
        self.kernel(url)
    }

    fn dhcp(&mut self) -> bool {
        self.unless_stopped(|life| Ok(dhcp::lease(life, Speaker::Ipxe)?.is_some()))
    }

    fn sleep(&mut self, _: u64) {
        self.paused = true;
        self.unless_stopped(|life| life.linger().map(|()| true));
    }
}
