//! The listener and Debian's lldpd at the two ends of a cable, in their own namespace.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use basalt_agent::deadlines::{self, poll_until};
use basalt_agent::neighbours::{Link, Listener, link};
use basalt_agent::root::Root;

const INSIDE: &str = "BASALT_TEST_INSIDE_NAMESPACE";
const PATIENCE: Duration = Duration::from_secs(60);
const SWITCH: &str = "00:1c:73:0a:0b:0c";

/// lldpd drops its groups, which is not allowed in a user namespace.
const SETGROUPS: &str = "int setgroups(unsigned long n, const void *l) { return 0; }";
const CONFIGURATION: &str = "configure system hostname leaf-1.example.com
configure system description 'EOS 4.30'
configure system platform 'DCS-7050'
configure system ip management pattern 192.0.2.*
configure ports leaf0 lldp portidsubtype local Ethernet1/7
configure lldp custom-tlv oui 00,80,c2 subtype 1 oui-info 00,07
configure lldp custom-tlv oui 00,80,c2 subtype 3 oui-info 00,07,06,6f,66,66,69,63,65
";

/// Runs the test again in a namespace. True if it already runs there.
fn is_inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let inside = Command::new("unshare")
        .args(["-r", "-n", "-p", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--show-output"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inside.stdout) + String::from_utf8_lossy(&inside.stderr);
    assert!(inside.status.success() && said.contains("1 passed"), "in a namespace of its own: {said}");
    false
}

fn run(command: &str) {
    let mut words = command.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{command}: {status}");
}

/// The root of Debian's lldpd. It is fetched outside of the namespace, where there is a network.
fn peer() -> PathBuf {
    let bring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/lab/peer");
    let brought = Command::new(bring).arg("lldpd").stderr(Stdio::inherit()).output().unwrap();
    assert!(brought.status.success(), "lldpd: {}", brought.status);
    PathBuf::from(String::from_utf8(brought.stdout).unwrap().trim_end())
}

/// A switch at `leaf0`, until it is dropped.
struct Switch(Child);

impl Switch {
    fn start(peer: &Path, dir: &Path, options: [&str; 2]) -> Self {
        let libraries = peer.join("usr/lib/x86_64-linux-gnu");
        let mut lldpd = Command::new(peer.join("usr/sbin/lldpd"));
        lldpd.args(["-d", "-I", "leaf0", "-C", "leaf0"]).args(options);
        lldpd
            .arg("-u")
            .arg(dir.join(format!("socket{}", options.concat())))
            .arg("-O")
            .arg(dir.join("lldpd.conf"));
        lldpd.arg("-L").arg(peer.join("usr/sbin/lldpcli"));
        lldpd.env("LD_PRELOAD", dir.join("setgroups.so")).env("LD_LIBRARY_PATH", libraries);
        Self(lldpd.spawn().unwrap())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_switch_is_heard_by_cdp_and_by_lldp_which_counts_alone() {
    let peer = peer();
    if !is_inside("a_switch_is_heard_by_cdp_and_by_lldp_which_counts_alone") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("lldpd.conf"), CONFIGURATION).unwrap();
    std::fs::write(at("setgroups.c"), SETGROUPS).unwrap();
    run(&format!("cc -shared -fPIC -o {} {}", at("setgroups.so").display(), at("setgroups.c").display()));
    for (file, text) in
        [("passwd", "root:x:0:0::/:/bin/sh\n_lldpd:x:0:0::/:/bin/sh\n"), ("group", "_lldpd:x:0:\n")]
    {
        std::fs::write(at(file), text).unwrap();
        run(&format!("mount --bind {} /etc/{file}", at(file).display()));
    }
    run("mount -t tmpfs none /run");
    std::fs::create_dir("/run/lldpd").unwrap();
    std::fs::create_dir(at("sys")).unwrap();
    run(&format!("mount -t sysfs none {}", at("sys").display()));
    run(&format!("ip link add host0 type veth peer name leaf0 address {SWITCH}"));
    run("ip address add 192.0.2.7/24 dev leaf0");

    // The links come up after the listener, as they do on a machine.
    let root = Root::at(dir.path());
    let cable = link(&root, "host0".to_owned()).unwrap();
    assert_eq!(cable, Link { name: "host0".to_owned(), index: cable.index, is_awaited: true });
    let listener = Listener::start(&root, vec![cable]).unwrap();
    run("ip link set leaf0 up");
    run("ip link set host0 up");

    let by_cdp = {
        let _switch = Switch::start(&peer, dir.path(), ["-ll", "-ccc"]);
        poll_until(PATIENCE, || listener.neighbours().remove("host0")).expect("an announcement by CDP")
    };
    assert_eq!(by_cdp.len(), 1);
    assert_eq!((&*by_cdp[0].protocol, &*by_cdp[0].system_name), ("cdp", "leaf-1.example.com"));
    assert_eq!((&*by_cdp[0].platform, &*by_cdp[0].addresses), ("DCS-7050", &["192.0.2.7".to_owned()][..]));

    let began = Instant::now();
    let _switch = Switch::start(&peer, dir.path(), ["-l", "-ccc"]);
    let by_lldp = listener.collect(&root).remove("host0").expect("an announcement by LLDP");
    assert!(began.elapsed() < deadlines::LISTEN, "a link that spoke is waited for no longer");
    assert_eq!(by_lldp.len(), 1, "{by_lldp:?}");
    let it = &by_lldp[0];
    assert_eq!((&*it.protocol, &*it.system_name), ("lldp", "leaf-1.example.com"));
    assert_eq!((&*it.chassis_id, &*it.port_id), (SWITCH, "Ethernet1/7"));
    assert_eq!((&*it.port_description, &*it.system_description), ("leaf0", "EOS 4.30"));
    assert_eq!(
        (&*it.addresses, &*it.capabilities),
        (&["192.0.2.7".to_owned()][..], &["station".to_owned()][..])
    );
    assert_eq!((it.native_vlan, it.vlans[&7].as_str()), (Some(7), "office"));
}
