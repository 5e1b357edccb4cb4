//! First process of the ephemeral root: starts the worker, reaps every orphan, reboots when the worker ends.
//!
//! A successful worker powers the machine off or reboots it. So if the worker ends, it has failed.

use std::process::{Command, ExitCode};

use rustix::process::{Pid, WaitOptions, wait};

use crate::{console, initrd, say};

/// Never returns: it ends in a reboot.
#[must_use]
pub fn run() -> ExitCode {
    say!("ephemeral root, {:.1} s after the kernel", console::uptime());
    let path = std::env::current_exe().unwrap_or_else(|_| initrd::AGENT.into());
    let worker = match Command::new(path).arg("work").spawn() {
        Ok(worker) => worker,
        Err(error) => {
            say!("the worker cannot be started: {error}");
            initrd::restart()
        }
    };
    let worker = i32::try_from(worker.id()).ok().and_then(Pid::from_raw);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == worker => {
                say!("the worker ended unexpectedly: {status:?}");
                initrd::restart()
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                say!("waiting for the worker failed: {error}");
                initrd::restart()
            }
        }
    }
}
