//! Network namespaces that end with their test. Each has a user namespace, in which the test is root, and a PID
//! namespace, whose end kills all processes in it: some DHCP clients become daemons.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::thread::LinkNameSpaceType;

pub(super) const INSIDE: &str = "BASALT_TEST_INSIDE_NAMESPACE";

/// Runs the test with this name again in a new namespace; true if it already runs there.
pub(crate) fn is_inside(name: &str) -> bool {
    is_inside_with(name, &[])
}

/// As [`is_inside`], with these environment variables inside.
pub(crate) fn is_inside_with(name: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let again = std::env::current_exe().unwrap();
    let inside = Command::new("unshare")
        .args(["-r", "-n", "-p", "--fork", "--kill-child", "--mount-proc"])
        .arg(again)
        .args(["--exact", name, "--show-output"])
        .env(INSIDE, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inside.stdout) + String::from_utf8_lossy(&inside.stderr);
    assert!(inside.status.success() && said.contains("1 passed"), "in a namespace of its own: {said}");
    println!("{said}");
    false
}

/// The root directory of a program that `tests/lab/peer` installs. Call it before [`is_inside`]: the namespace has no
/// network.
pub(crate) fn peer(name: &str) -> PathBuf {
    let bring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/lab/peer");
    let brought = Command::new(bring).arg(name).stderr(Stdio::inherit()).output().unwrap();
    assert!(brought.status.success(), "{name}: {}", brought.status);
    PathBuf::from(String::from_utf8(brought.stdout).unwrap().trim_end())
}

/// Runs `ip` in this namespace.
pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}: {status}");
}

/// Hides the host's files in these directories behind empty ones, for programs that keep their state in a fixed place.
/// Also hides the host's accounts: all names resolve to root, since the namespace has no other account.
pub(crate) fn hide(directories: &[&str]) {
    let accounts = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        &accounts,
        "root:x:0:0::/:/bin/sh\nproxy:x:0:0::/:/bin/sh\nsystemd-network:x:0:0::/:/bin/sh\nsystemd-timesync:x:0:0::/:/bin/sh\n",
    )
    .unwrap();
    mount(&["--bind", &accounts.path().to_string_lossy(), "/etc/passwd"]);
    directories.iter().for_each(|directory| mount(&["-t", "tmpfs", "none", directory]));
}

/// Runs `mount` in this namespace.
pub(crate) fn mount(arguments: &[&str]) {
    let status = Command::new("mount").args(arguments).status().unwrap();
    assert!(status.success(), "mount {arguments:?}: {status}");
}

/// Makes a switch, and an interface `rack0` with these addresses that is plugged into it.
pub(crate) fn make_switch(addresses: &[&str]) {
    ip("link set lo up");
    ip("link add switch type bridge stp_state 0 forward_delay 0");
    // The switch itself must not answer ARP for this namespace's addresses.
    ip("link set switch arp off up");
    ip("link add rack0 type veth peer name uplink");
    ip("link set uplink master switch up");
    for address in addresses {
        ip(&format!("address add {address} dev rack0"));
    }
    ip("link set rack0 up");
}

/// Another host, in its own namespace.
pub(crate) struct Host {
    life: Child,
    port: String,
}

impl Host {
    /// A host whose interface `eth0` has this hardware address and is plugged into the switch.
    pub(crate) fn plug(name: &str, mac: &str) -> Self {
        let mut life = Command::new("unshare")
            .args(["-n", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // When cat echoes a byte, its namespace exists.
        life.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        life.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let (pid, port) = (life.id(), format!("{name}0"));
        ip(&format!("link add {port} type veth peer name eth0 address {mac} netns {pid}"));
        ip(&format!("link set {port} master switch up"));
        let host = Self { life, port };
        host.run(&["ip", "link", "set", "eth0", "up"]);
        host
    }

    /// Sets if broadcasts reach this host. The host can always send them.
    pub(crate) fn hear_broadcasts(&self, hear: bool) {
        let flood = if hear { "on" } else { "off" };
        ip(&format!("link set {} type bridge_slave bcast_flood {flood}", self.port));
    }

    /// A command in this host's namespace.
    pub(crate) fn command(&self, command: &[&str]) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/proc/{}/ns/net", self.life.id())).args(command);
        inside
    }

    /// Runs a closure in a thread in this host's namespace: sockets that it opens stay there.
    pub(crate) fn within<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let space = std::fs::File::open(format!("/proc/{}/ns/net", self.life.id())).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                rustix::thread::move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
                    .unwrap();
                what()
            });
            thread.join().unwrap()
        })
    }

    /// Adds an interface that is not connected to the switch: its other end is in this namespace.
    pub(crate) fn connect(&self, here: &str, there: &str) {
        ip(&format!("link add {here} type veth peer name {there} netns {}", self.life.id()));
        ip(&format!("link set {here} up"));
        self.run(&["ip", "link", "set", there, "up"]);
    }

    /// Starts a program that runs until the result is dropped.
    pub(crate) fn spawn(&self, command: &[&str]) -> Running {
        Running::start(&mut self.command(command))
    }

    /// Runs a command that must succeed.
    pub(crate) fn run(&self, command: &[&str]) -> Output {
        let output = self.command(command).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.life.stdin.take());
        self.life.wait().ok();
    }
}

/// A running program on another host.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap();
        assert!(sent.success(), "SIG{name}: {sent}");
    }

    /// The soft and the hard limit of its open files.
    pub(crate) fn open_files(&self) -> [u64; 2] {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.0.id())).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let mut numbers = line.split_whitespace().map(|number| number.parse().unwrap());
        [numbers.next().unwrap(), numbers.next().unwrap()]
    }

    /// True if the program has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
