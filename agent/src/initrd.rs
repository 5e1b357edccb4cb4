//! First process of the initrd. It loads drivers, configures the network, and enters the squashfs.
//!
//! The drivers are in a compressed file system inside the initrd, so that the initrd stays small. Only the modules that this machine needs
//! are read.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_move, unmount};
use thiserror::Error;

use crate::blob::{BlobError, BlobReader};
use crate::cmdline::{BootConfig, CmdlineError};
use crate::http::{Client, HttpError};
use crate::lease::{self, Needs};
use crate::modules::{Coldplug, Index, insert_file};
use crate::network::{self, NetworkError};
use crate::root::Root;
use crate::tool::{self, ToolError};
use crate::{console, deadlines, dhcp6, ipv6, say, tls};

/// Modules that are uncompressed in the initrd, in the order of their insertion. They make the compressed file system readable.
pub const EARLY_MODULES: [&str; 2] = ["/early/loop.ko", "/early/squashfs.ko"];
/// Squashfs with `modules/` and `firmware/`, mounted at `/lib`.
pub const DRIVERS: &str = "/drivers.squashfs";
/// Path of the agent in the ephemeral root. It is a copy of `/init`.
pub const AGENT: &str = "/usr/bin/basalt-agent";

#[derive(Debug, Error)]
enum BootError {
    #[error(transparent)]
    Cmdline(#[from] CmdlineError),
    #[error("the kernel command line has no basalt.root=sha256:…; the boot script of the rack has to set it")]
    NoRoot,
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Blob(#[from] BlobError),
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> BootError {
    let what = what.into();
    move |source| BootError::Io { what, source }
}

/// Never returns: a failure ends in a reboot.
#[must_use]
pub fn run() -> ExitCode {
    let error = match boot() {
        Ok(never) => match never {},
        Err(error) => error,
    };
    say!("the ephemeral system cannot be started: {error}");
    restart()
}

/// Waits so that a person can read the console, then reboots. The next boot gets a new script, token and lease.
pub fn restart() -> ! {
    say!("rebooting in {:?}", deadlines::READ_THE_CONSOLE);
    std::thread::sleep(deadlines::READ_THE_CONSOLE);
    rustix::fs::sync();
    let _ = rustix::system::reboot(rustix::system::RebootCommand::Restart);
    // The reboot only fails if this is not the first process. If it is, its end makes the kernel panic and reboot.
    std::process::exit(1)
}

fn boot() -> Result<std::convert::Infallible, BootError> {
    mount_basics()?;
    // If this process ends for any reason, the kernel must reboot instead of hanging.
    let _ = fs::write("/proc/sys/kernel/panic", "20");
    say!("agent {} in the initrd, {:.1} s after the kernel", env!("CARGO_PKG_VERSION"), console::uptime());
    let line = fs::read_to_string("/proc/cmdline").map_err(io_error("/proc/cmdline"))?;
    let config = BootConfig::parse(&line)?;
    let root_hash = config.root.ok_or(BootError::NoRoot)?;

    for module in EARLY_MODULES {
        insert_file(Path::new(module)).map_err(io_error("early module"))?;
    }
    fs::create_dir_all("/lib").map_err(io_error("/lib"))?;
    tool::run("busybox", &["mount", "-t", "squashfs", "-o", "ro,loop", DRIVERS, "/lib"])?;
    let mut coldplug = Coldplug::new(Index::of_running_kernel().map_err(io_error("index of modules"))?);
    let interface = boot_interface(&mut coldplug, config.boot_mac.as_deref())?;
    say!("{interface} is up, {:.1} s after the kernel", console::uptime());
    let mac = network::mac(&Root::system(), &interface).unwrap_or_default();
    lease::obtain(&interface, &mac, Needs::of(&config.url), &lease::files())?;
    say!("{interface} has an address, {:.1} s after the kernel", console::uptime());
    if let Some(mac) = lease::octets(&mac) {
        // The kernel removes the address at the end of the lease, and the download of the root may take longer.
        dhcp6::port::keep(&interface, mac, lease::files());
    }

    mkdir_mount("tmpfs", "/ram", "tmpfs", MountFlags::empty(), c"mode=755,size=80%")?;
    let client = Client::new(&config.url, tls::pinned(config.spki)?)?;
    fetch(&client, root_hash, "/ram/root.squashfs")?;
    coldplug.load("overlay");
    enter_root()
}

fn mount_basics() -> Result<(), BootError> {
    mkdir_mount("proc", "/proc", "proc", MountFlags::empty(), c"")?;
    mkdir_mount("sysfs", "/sys", "sysfs", MountFlags::empty(), c"")?;
    mkdir_mount("devtmpfs", "/dev", "devtmpfs", MountFlags::empty(), c"mode=755")?;
    mkdir_mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), c"mode=755,size=16m")
}

fn mkdir_mount(
    source: &str,
    target: &str,
    kind: &str,
    flags: MountFlags,
    data: &std::ffi::CStr,
) -> Result<(), BootError> {
    fs::create_dir_all(target).map_err(io_error(target))?;
    mount(source, target, kind, flags, Some(data))
        .map_err(|error| io_error(format!("mounting {kind} on {target}"))(error.into()))
}

/// Loads drivers until the boot interface exists, then brings it up and waits for its carrier.
fn boot_interface(coldplug: &mut Coldplug, mac: Option<&str>) -> Result<String, BootError> {
    let system = Root::system();
    let found = deadlines::poll_until(deadlines::INTERFACE, || {
        coldplug.pass();
        if mac.is_none() {
            // Without BOOTIF the first interface with a carrier is used, and only an interface that is up has a carrier.
            for name in network::physical(&system) {
                let _ = network::up(&name);
            }
        }
        network::find(&system, mac)
    });
    let interface = found.ok_or_else(|| NetworkError::NoInterface {
        mac: mac.unwrap_or("any").to_owned(),
        found: network::describe(&system),
    })?;
    ipv6::listen_to_routers(&interface);
    network::up(&interface)?;
    if deadlines::poll_until(deadlines::CARRIER, || network::has_carrier(&system, &interface).then_some(()))
        .is_none()
    {
        say!("{interface} has no carrier after {:?}; asking for an address all the same", deadlines::CARRIER);
    }
    Ok(interface)
}

fn fetch(client: &Client, hash: [u8; 32], path: &str) -> Result<(), BootError> {
    let mut reader = BlobReader::new(client, hash);
    let mut file = File::create(path).map_err(io_error(path))?;
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                let bytes = buffer.get(..read).unwrap_or_default();
                file.write_all(bytes)
                    .map_err(io_error(format!("writing {path} (is there enough memory?)")))?;
            }
            Err(source) => {
                return Err(reader.take_error().map_or_else(|| io_error(path)(source), BootError::from));
            }
        }
    }
    say!("root of {} bytes fetched, {:.1} s after the kernel", reader.position(), console::uptime());
    Ok(())
}

/// Mounts the squashfs below a writable layer, frees the initrd, changes root, and executes the agent there.
fn enter_root() -> Result<std::convert::Infallible, BootError> {
    let failed = |what: &'static str| move |error: rustix::io::Errno| io_error(what)(error.into());
    for directory in ["/ram/lower", "/ram/upper", "/ram/work", "/newroot"] {
        fs::create_dir_all(directory).map_err(io_error(directory))?;
    }
    tool::run("busybox", &["mount", "-t", "squashfs", "-o", "ro,loop", "/ram/root.squashfs", "/ram/lower"])?;
    let layers = c"lowerdir=/ram/lower,upperdir=/ram/upper,workdir=/ram/work";
    mkdir_mount("overlay", "/newroot", "overlay", MountFlags::empty(), layers)?;
    // The squashfs has no agent. This one is copied, so that a new agent needs no new squashfs.
    fs::copy("/init", format!("/newroot{AGENT}")).map_err(io_error(format!("{AGENT} in the new root")))?;
    // From here on, drivers are loaded from the new root. A module that is still being read keeps the mount busy.
    unmount("/lib", UnmountFlags::DETACH).map_err(failed("unmounting the drivers"))?;
    for directory in ["proc", "sys", "dev", "run"] {
        let target = format!("/newroot/{directory}");
        fs::create_dir_all(&target).map_err(io_error(target.clone()))?;
        mount_move(format!("/{directory}"), &target).map_err(failed("moving a kernel file system"))?;
    }
    // The files of the initrd take memory: delete them.
    for entry in fs::read_dir("/").map_err(io_error("/"))?.flatten() {
        if entry.file_type().is_ok_and(|kind| !kind.is_dir()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    for directory in ["/early", "/bin", "/sbin"] {
        let _ = fs::remove_dir_all(directory);
    }
    rustix::process::chdir("/newroot").map_err(failed("entering the new root"))?;
    mount_move(".", "/").map_err(failed("moving the new root"))?;
    rustix::process::chroot(".").map_err(failed("entering the new root"))?;
    rustix::process::chdir("/").map_err(failed("entering the new root"))?;
    let error = Command::new(AGENT).arg("ephemeral").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").exec();
    Err(io_error(format!("starting {AGENT}"))(error))
}
