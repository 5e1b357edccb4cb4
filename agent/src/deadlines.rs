//! How long the agent waits for what, and why: nothing waits for ever, a machine that gives up reboots and asks again.

use std::time::{Duration, Instant};

/// Connecting to the rack. It is on the same link; a lost SYN is repeated after 1 s and 3 s.
pub const CONNECT: Duration = Duration::from_secs(6);
/// Silence on an open connection. A rack that fetches a blob from its region first may be silent for a while.
pub const SILENCE: Duration = Duration::from_secs(60);
/// The boot interface appearing after its driver was loaded: firmware of large adapters takes up to half a minute.
pub const INTERFACE: Duration = Duration::from_secs(60);
/// Carrier on the boot interface: spanning tree without portfast keeps a port silent for 50 s.
pub const CARRIER: Duration = Duration::from_secs(60);
/// An address of the family that the rack is reached by.
pub const LEASE: Duration = Duration::from_secs(180);
/// An address that the kernel makes of what routers announce (SLAAC). It asks for them as soon as it may, and again after four seconds, and they answer
/// within half a second (RFC 4861 §10); then DHCPv6 is tried without a router that says so.
pub const SLAAC: Duration = Duration::from_secs(5);
/// DHCPv6, where routers say that addresses come by it and the kernel has made one all the same.
pub const MANAGED: Duration = Duration::from_secs(15);
/// An address of the other family, where either will do: names may have addresses of one alone.
pub const OTHER_FAMILY: Duration = Duration::from_secs(5);
/// Carriers of the other interfaces, for the inventory alone.
pub const OTHER_CARRIERS: Duration = Duration::from_secs(4);
/// Announcements of switches: they send LLDP every 30 s (802.1AB §9.2.5.7). The rest of a task goes on beside it.
pub const LISTEN: Duration = Duration::from_secs(31);
/// Fetching a blob, all interruptions included: 4 GiB at 10 Mbit/s.
pub const BLOB: Duration = Duration::from_secs(3600);
/// How long a blob's transfer may make no progress before the agent gives up.
pub const BLOB_STALLED: Duration = Duration::from_secs(300);
/// Between two questions whether it is this machine's turn to be sent a blob: at least, and at most.
pub const TURN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Claiming and fetching the task: the rack may be restarting.
pub const CLAIM: Duration = Duration::from_secs(300);
/// Delivering the result: longer than a rack takes to come back, since an install's worth of work depends on it.
pub const RESULT: Duration = Duration::from_secs(900);
/// Devices settling after their drivers were loaded.
pub const DEVICES: Duration = Duration::from_secs(30);
/// The install disk appearing: a shelf of disks spins up one after the other.
pub const INSTALL_DISK: Duration = Duration::from_secs(90);
/// A small program: a file system on a slow disk, a boot loader.
pub const TOOL: Duration = Duration::from_secs(300);
/// All commands to the BMC from inside: some BMCs need minutes to store a user. The region takes an agent for dead that says nothing for five.
pub const BMC: Duration = Duration::from_secs(240);
/// Between two tries of a command that a busy BMC refuses.
pub const BMC_BUSY: Duration = Duration::from_millis(500);
/// Finding the BMC's Redfish service, on all interfaces that the firmware describes together.
pub const BMC_FIND: Duration = Duration::from_secs(40);
/// Making an account by Redfish. The rest of [`BMC`] is left for IPMI.
pub const BMC_REDFISH: Duration = Duration::from_secs(100);
/// Connecting to the BMC's Redfish service. The service on a USB device begins when the host's end is up.
pub const BMC_CONNECT: Duration = Duration::from_secs(20);
/// A BMC that has answered may still store the account.
pub const BMC_STORES: Duration = Duration::from_secs(3);
/// Having a password written down by the rack. Afterwards there has to be time for the BMC.
pub const BMC_PROMISE: Duration = Duration::from_secs(60);
/// A lease from the BMC on its own host interface.
pub const BMC_LEASE: Duration = Duration::from_secs(15);
/// Making an initramfs: everything that any machine needs, compressed.
pub const INITRAMFS: Duration = Duration::from_secs(1800);
/// Processes that a script of a deployment left in the new system, after they were killed: a disk may hold them up.
pub const LEFT_BEHIND: Duration = Duration::from_secs(10);
/// Unpacking an image.
pub const UNPACK: Duration = Duration::from_secs(3600);
/// How long a reason stays on the console before the machine reboots.
pub const READ_THE_CONSOLE: Duration = Duration::from_secs(20);

/// Waits between attempts: 0.25 s, doubled up to 8 s.
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

    /// Sleeps before the next attempt; false when the time is up.
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

/// Polls `ready` every 20 ms until it answers something or `limit` has passed.
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
