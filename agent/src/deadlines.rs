//! Time limits of all waits, with their reasons. No wait is endless: a machine that gives up reboots and asks again.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use thiserror::Error;

/// Connecting to the rack. It is on the same link; a lost SYN is repeated after 1 s and 3 s.
pub const CONNECT: Duration = Duration::from_secs(6);
/// Silence on an open connection. A rack that fetches a blob from its region first may be silent for a while.
pub const SILENCE: Duration = Duration::from_secs(60);
/// The boot interface appears after its driver was loaded. The firmware of large adapters takes up to half a minute.
pub const INTERFACE: Duration = Duration::from_secs(60);
/// Carrier on the boot interface: spanning tree without portfast keeps a port silent for 50 s.
pub const CARRIER: Duration = Duration::from_secs(60);
/// An address of the family by which the rack is reached.
pub const LEASE: Duration = Duration::from_secs(180);
/// An address that the kernel makes from router advertisements (SLAAC). The kernel solicits them at once and again after four seconds, and
/// routers answer within half a second (RFC 4861 §10). After this time DHCPv6 is tried even if no router announces it.
pub const SLAAC: Duration = Duration::from_secs(5);
/// DHCPv6, if routers announce it (M flag) and the kernel has an address from SLAAC as well.
pub const MANAGED: Duration = Duration::from_secs(15);
/// An address of the other family, if the rack is known by name: the name may have addresses of one family only.
pub const OTHER_FAMILY: Duration = Duration::from_secs(5);
/// Carriers of the other interfaces. They are only needed for the inventory.
pub const OTHER_CARRIERS: Duration = Duration::from_secs(4);
/// Announcements of switches, which send LLDP every 30 s (802.1AB §9.2.5.7). The task continues meanwhile.
pub const LISTEN: Duration = Duration::from_secs(31);
/// The transfer of a blob with all interruptions: 4 GiB at 10 Mbit/s.
pub const BLOB: Duration = Duration::from_secs(3600);
/// Longest time without progress in a blob's transfer.
pub const BLOB_STALLED: Duration = Duration::from_secs(300);
/// Shortest and longest pause before a blob is requested again from a rack that serves other machines first.
pub const TURN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// The rack stores a checkpoint. The rack may be restarting; without its answer the machine must not be restarted.
pub const CHECKPOINT: Duration = Duration::from_secs(300);
/// The claim, and the request for the task. The rack may be restarting.
pub const CLAIM: Duration = Duration::from_secs(300);
/// Delivery of the result. Longer than the restart of a rack, since otherwise a whole install would be lost.
pub const RESULT: Duration = Duration::from_secs(900);
/// The rest of the loading of drivers after the claim. A large adapter needs half a minute to load its firmware; a broken device blocks its
/// driver for ever.
pub const DRIVERS: Duration = Duration::from_secs(120);
/// Reading the kernel's files. A call that waits for a broken device does not return.
pub const HARDWARE: Duration = Duration::from_secs(60);
/// One device's answer to a program: the version of its firmware, or its health. A disk that spins up needs some seconds.
pub const DEVICE: Duration = Duration::from_secs(15);
/// The answers of all devices to programs.
pub const ALL_DEVICES: Duration = Duration::from_secs(40);
/// Devices appear after their drivers were loaded.
pub const DEVICES: Duration = Duration::from_secs(30);
/// The install disk appears. The disks of a shelf spin up one after the other.
pub const INSTALL_DISK: Duration = Duration::from_secs(90);
/// A short program, such as mkfs on a slow disk, or a boot loader's installer.
pub const TOOL: Duration = Duration::from_secs(300);
/// All commands to the BMC from inside; some BMCs need minutes to store a user. The region treats an agent as dead after five minutes of
/// silence.
pub const BMC: Duration = Duration::from_secs(240);
/// Pause before a command that a busy BMC refused is repeated.
pub const BMC_BUSY: Duration = Duration::from_millis(500);
/// Finding the BMC's Redfish service, on all interfaces that the firmware describes together.
pub const BMC_FIND: Duration = Duration::from_secs(40);
/// Making an account by Redfish. The rest of [`BMC`] is left for IPMI.
pub const BMC_REDFISH: Duration = Duration::from_secs(100);
/// Connection to the BMC's Redfish service. A service on a USB device starts only when the host's end is up.
pub const BMC_CONNECT: Duration = Duration::from_secs(20);
/// A BMC that has answered may still store the account.
pub const BMC_STORES: Duration = Duration::from_secs(3);
/// The rack stores the BMC account's password. Afterwards there must be time left for the BMC.
pub const BMC_PROMISE: Duration = Duration::from_secs(60);
/// A lease from the BMC on its own host interface.
pub const BMC_LEASE: Duration = Duration::from_secs(15);
/// The build of an initramfs with the drivers for any machine, compressed.
pub const INITRAMFS: Duration = Duration::from_secs(1800);
/// The end of processes that a script left in the new system, after they were killed. A slow disk may delay it.
pub const LEFT_BEHIND: Duration = Duration::from_secs(10);
/// Unpacking an image.
pub const UNPACK: Duration = Duration::from_secs(3600);
/// Time for a person to read an error on the console before the machine reboots.
pub const READ_THE_CONSOLE: Duration = Duration::from_secs(20);

/// Pauses between attempts: 0.25 s at first, doubled up to 8 s.
#[derive(Debug)]
pub struct Backoff {
    end: Instant,
    next: Duration,
}

impl Backoff {
    /// Attempts until `limit` has passed.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { end: Instant::now() + limit, next: Duration::from_millis(250) }
    }

    /// Sleeps before the next attempt. False when the time is up.
    pub fn wait(&mut self) -> bool {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(self.next.min(left));
        self.next = (self.next * 2).min(Duration::from_secs(8));
        true
    }
}

/// Work on a thread of its own. A call that hangs in the kernel cannot be ended, so the caller has to stop waiting for it.
#[derive(Debug)]
pub struct Background<T>(Receiver<T>);

/// The reason why there is no result of a [`Background`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoResult {
    /// The work goes on after the time limit.
    #[error("it is not done after {0:?}: a call hangs in the kernel, and the thread is left behind")]
    Late(Duration),
    /// The work panicked.
    #[error("it was interrupted by an error of this program")]
    Interrupted,
}

impl<T: Send + 'static> Background<T> {
    /// Starts the work.
    pub fn start(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(work()));
        Self(receiver)
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// `limit` has passed, or the work panicked.
    pub fn wait(self, limit: Duration) -> Result<T, NoResult> {
        self.0.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => NoResult::Late(limit),
            RecvTimeoutError::Disconnected => NoResult::Interrupted,
        })
    }
}

/// Polls `ready` every 20 ms until it returns a value or `limit` has passed.
pub fn poll_until<T>(limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = ready() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_hangs_is_left_behind_and_work_that_panics_is_told_apart() {
        assert_eq!(Background::start(|| 7).wait(HARDWARE), Ok(7));
        let (release, held) = channel::<()>();
        let limit = Duration::from_millis(50);
        let late = Background::start(move || held.recv()).wait(limit);
        assert_eq!(late, Err(NoResult::Late(limit)));
        drop(release);
        let panicked = Background::start(|| panic!("a test of a panic")).wait(HARDWARE);
        assert_eq!(panicked, Err::<(), _>(NoResult::Interrupted));
    }
}
