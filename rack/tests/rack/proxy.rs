//! A rack's caching proxy: Debian's Squid between apt-get and a signed package repository, in namespaces.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use basalt_proto::rack_v1::{Fact, ProxyConcern, fact::Body};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::hash::sha256;
use basalt_rack::settings::Settings;

use super::namespace::{Host, Running, hide, is_inside, make_switch, mount, peer};
use super::peers::on_switch;
use super::support::{Client, DEADLINE, fact, settings};

const RACK: &str = "10.9.0.1";
const PORT: u16 = 8000;
const PACKAGE: &str = "basalt-hello_1.0_all.deb";
const POOL: &str = "/pool/basalt-hello_1.0_all.deb";

fn concern(clients: &[&str]) -> ProxyConcern {
    ProxyConcern {
        enabled: true,
        clients: clients.iter().map(|&it| it.to_owned()).collect(),
        denied: vec!["10.66.0.0/16".into()],
        upstream: String::new(),
    }
}

fn tell(data_dir: &Path, generation: u64, concern: &ProxyConcern) {
    write_concern(data_dir, &version(Concern::Proxy, generation, "local", concern)).unwrap();
}

async fn told(rack: &Daemon, wanted: impl Fn(bool, &str) -> bool) -> String {
    let is_told = |fact: &Fact| match &fact.body {
        Some(Body::Health(it)) => it.service == "proxy" && wanted(it.ok, &it.message),
        _ => false,
    };
    match fact(&rack.facts, is_told).await.body {
        Some(Body::Health(it)) => it.message,
        _ => unreachable!("it was asked for"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_without_squid_names_the_package_and_serves_everything_else() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let metrics = settings.metrics.unwrap();
    tell(&settings.data_dir, 1, &concern(&["10.9.0.0/24"]));
    let rack = Daemon::start(settings).await.unwrap();
    let problem = told(&rack, |ok, _| !ok).await;
    assert!(problem.contains("/nowhere/squid is not there: install Squid"), "{problem}");
    let serves =
        |fact: &Fact| matches!(&fact.body, Some(Body::Health(it)) if it.service == "tftp 127.0.0.1" && it.ok);
    fact(&rack.facts, serves).await;
    let answer = Client { from: Ipv4Addr::LOCALHOST.into(), rack: metrics, spki: None }.get("/metrics").await;
    let lines: Vec<String> = answer.text().lines().map(str::to_owned).collect();
    let figure = |line: &str| lines.iter().any(|it| it == line);
    assert!(figure("basalt_rack_proxy_state{state=\"lacks\"} 1"), "{lines:?}");
    assert!(figure("basalt_rack_proxy_state{state=\"serves\"} 0"));
    assert!(
        figure("basalt_rack_proxy_starts_total 0") && !figure("basalt_rack_proxy_failures_total 0"),
        "{lines:?}"
    );
    rack.stop().await;
}

/// Installs Squid in this namespace only. Root is the only account here, and Squid refuses to run as root, so it runs
/// in its own user namespace under another id.
fn install_squid(dir: &Path) -> PathBuf {
    let root = peer("squid");
    mount(&["-t", "overlay", "none", "-o", &format!("lowerdir={}/usr:/usr", root.display()), "/usr"]);
    // A killed Squid leaves shared memory.
    hide(&["/dev/shm"]);
    let program = dir.join("squid");
    fs::write(&program, "#!/bin/sh\nexec unshare -U --map-user=13 --map-group=13 /usr/sbin/squid \"$@\"\n")
        .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// The processes that have this file as an argument.
fn processes(argument: &Path) -> Vec<u32> {
    let argument = argument.to_str().unwrap();
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').any(|it| it == argument)
    })
    .collect()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A web server that counts its requests.
struct Origin {
    asked: Arc<Mutex<BTreeMap<String, u32>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Origin {
    /// Serves the files below `root` on port 80 of the host.
    fn start(host: &Host, root: PathBuf) -> Self {
        let listener = host.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 80)).unwrap());
        listener.set_nonblocking(true).unwrap();
        let (asked, is_over) =
            (Arc::<Mutex<BTreeMap<String, u32>>>::default(), Arc::new(AtomicBool::new(false)));
        let (counts, over) = (Arc::clone(&asked), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => answer(stream, &root, &counts),
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Self { asked, is_over, thread: Some(thread) }
    }

    fn asked(&self, path: &str) -> u32 {
        self.asked.lock().unwrap().get(path).copied().unwrap_or_default()
    }

    /// Closes its port.
    fn stop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn answer(mut stream: TcpStream, root: &Path, counts: &Mutex<BTreeMap<String, u32>>) {
    stream.set_nonblocking(false).unwrap();
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(length) if length > 0 => head.extend_from_slice(&buffer[..length]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    *counts.lock().unwrap().entry(path.clone()).or_default() += 1;
    let modified = "Last-Modified: Thu, 26 Nov 2026 20:00:00 GMT\r\nConnection: close\r\n";
    let (status, body) = match fs::read(root.join(path.trim_start_matches('/'))) {
        Ok(_) if head.contains("If-Modified-Since") => ("304 Not Modified", Vec::new()),
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let length = body.len();
    let length =
        if status.starts_with("304") { String::new() } else { format!("Content-Length: {length}\r\n") };
    stream.write_all(format!("HTTP/1.1 {status}\r\n{modified}{length}\r\n").as_bytes()).ok();
    stream.write_all(&body).ok();
}

/// The status of the proxy's answer; `None` without an answer.
fn ask(host: &Host, request: &str) -> Option<u16> {
    let mut answer = String::new();
    host.within(|| {
        let mut stream = TcpStream::connect((RACK, PORT)).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
            .write_all(format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
            .ok()?;
        let mut buffer = [0; 64];
        while !answer.contains('\n') {
            match stream.read(&mut buffer).ok()? {
                0 => return None,
                length => answer.push_str(&String::from_utf8_lossy(&buffer[..length])),
            }
        }
        Some(())
    })?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// Runs a command that must succeed. Returns its output.
fn run(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
    output.stdout
}

/// Makes a repository of one package, signed with a new key. Returns the key.
fn make_repository(root: &Path, home: &Path) -> PathBuf {
    let package = home.join("package");
    fs::create_dir_all(package.join("DEBIAN")).unwrap();
    let control = "Package: basalt-hello\nVersion: 1.0\nArchitecture: all\nMaintainer: Basalt <lab@example.com>\nDescription: a package\n";
    fs::write(package.join("DEBIAN/control"), control).unwrap();
    let lists = root.join("dists/lab/main/binary-amd64");
    for dir in [&lists, &root.join("pool")] {
        fs::create_dir_all(dir).unwrap();
    }
    let deb = root.join("pool").join(PACKAGE);
    run(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).args([&package, &deb]));
    let bytes = fs::read(&deb).unwrap();
    let packages = format!(
        "{control}Filename: {}\nSize: {}\nSHA256: {}\n",
        &POOL[1..],
        bytes.len(),
        hex::encode(sha256(&bytes))
    );
    fs::write(lists.join("Packages"), &packages).unwrap();
    let release = format!(
        "Suite: lab\nCodename: lab\nDate: Thu, 26 Nov 2026 20:00:00 UTC\nArchitectures: amd64\nComponents: main\nSHA256:\n {} {} main/binary-amd64/Packages\n",
        hex::encode(sha256(packages.as_bytes())),
        packages.len()
    );
    fs::write(root.join("dists/lab/Release"), release).unwrap();
    let keys = home.join("keys");
    fs::create_dir(&keys).unwrap();
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o700)).unwrap();
    let gpg = |arguments: &[&str]| {
        run(Command::new("gpg").args(["--batch", "--passphrase", ""]).args(arguments).env("GNUPGHOME", &keys))
    };
    gpg(&["--quick-generate-key", "lab@example.com", "ed25519", "sign", "never"]);
    let [release, signed] =
        ["Release", "InRelease"].map(|name| root.join("dists/lab").join(name).display().to_string());
    gpg(&["--output", &signed, "--clearsign", &release]);
    let key = home.join("lab.asc");
    fs::write(&key, gpg(&["--armor", "--export", "lab@example.com"])).unwrap();
    key
}

/// Fetches the lists and the package through the proxy, as a separate system.
fn fetch(host: &Host, dir: &Path, key: &Path) {
    let root = dir.join("root");
    for part in [
        "etc/apt/preferences.d",
        "var/lib/apt/lists/partial",
        "var/lib/dpkg",
        "var/cache/apt/archives/partial",
    ] {
        fs::create_dir_all(root.join(part)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let sources = root.join("etc/apt/sources.list");
    fs::write(&sources, format!("deb [arch=amd64 signed-by={}] http://10.9.0.9/ lab main\n", key.display()))
        .unwrap();
    let apt = |arguments: &[&str]| {
        let [dir, sources] =
            [format!("Dir={}", root.display()), format!("Dir::Etc::sourcelist={}", sources.display())];
        let proxy = format!("Acquire::http::Proxy=http://{RACK}:{PORT}/");
        let mut command = host.command(&["apt-get", "-q"]);
        for option in [
            &dir,
            &sources,
            &proxy,
            "Dir::State::status=var/lib/dpkg/status",
            "APT::Sandbox::User=root",
            "APT::Architecture=amd64",
        ] {
            command.args(["-o", option]);
        }
        run(command.args(arguments).env("APT_CONFIG", "/dev/null").current_dir(&root));
    };
    apt(&["update"]);
    apt(&["download", "basalt-hello"]);
    assert!(root.join(PACKAGE).is_file());
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_are_fetched_once_and_served_while_squid_or_the_origin_fails() {
    peer("squid");
    if !is_inside("proxy::packages_are_fetched_once_and_served_while_squid_or_the_origin_fails") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = install_squid(dir.path());
    make_switch(&["10.9.0.1/24", "10.10.0.1/24"]);
    let plug = |name: &str, last: u8, address: &str| {
        let host = Host::plug(name, &format!("52:54:00:00:00:{last:02x}"));
        host.run(&["ip", "address", "add", address, "dev", "eth0"]);
        host.run(&["ip", "route", "add", "default", "dev", "eth0"]);
        host
    };
    let origin_host = plug("origin", 9, "10.9.0.9/24");
    let [one, two, outside] =
        [plug("one", 1, "10.9.0.5/24"), plug("two", 2, "10.9.0.6/24"), plug("outside", 3, "10.10.0.7/24")];
    let repository = dir.path().join("repository");
    let key = make_repository(&repository, dir.path());
    let mut origin = Origin::start(&origin_host, repository);

    let on_switch = on_switch(dir.path());
    let data_dir = on_switch.data_dir.clone();
    let mut proxy = on_switch.proxy.clone();
    proxy.port = PORT;
    proxy.program = Some(program.clone());
    let configuration = proxy.dir.join("squid.conf");
    tell(&data_dir, 1, &concern(&["10.9.0.0/24"]));
    let rack = Daemon::start(Settings { proxy, ..on_switch }).await.unwrap();
    let words = told(&rack, |ok, words| ok && !words.is_empty()).await;
    assert!(words.contains("10.9.0.1:8000"), "{words}");

    let cold = Instant::now();
    fetch(&one, &dir.path().join("one"), &key);
    fetch(&two, &dir.path().join("two"), &key);
    println!("two clients took {:?}", cold.elapsed());
    assert_eq!(origin.asked(POOL), 1);

    let package = format!("GET http://10.9.0.9{POOL}");
    assert_eq!(ask(&one, &package), Some(200));
    for (from, request) in [
        (&outside, &*package),
        (&one, "CONNECT 10.9.0.9:22"),
        (&one, "CONNECT 169.254.169.254:443"),
        (&one, "GET http://169.254.169.254/latest/meta-data"),
        (&one, "GET http://10.66.0.1/redfish/v1"),
        (&one, "GET http://10.10.0.1:5248/"),
        (&one, "GET http://localhost:5249/metrics"),
        (&one, "GET http://10.9.0.9:25/"),
    ] {
        assert_eq!(ask(from, request), Some(403), "{request}");
    }
    assert_eq!(ask(&one, "CONNECT 10.9.0.9:443"), Some(503), "it may, and nobody is there");

    // The running Squid adopts a change.
    let squid = processes(&configuration);
    assert_eq!(squid.len(), 1);
    tell(&data_dir, 2, &concern(&["10.9.0.0/24", "10.10.0.0/24"]));
    until("the other network may use it", || ask(&outside, &package) == Some(200)).await;
    assert_eq!(processes(&configuration), squid);

    let upstream = ProxyConcern {
        upstream: "http://10.9.0.9:80".into(),
        ..concern(&["10.9.0.0/24", "10.10.0.0/24", "2001:db8::/64"])
    };
    tell(&data_dir, 3, &upstream);
    let there = "http://10.9.0.9:8080/there";
    until("the upstream is asked", || ask(&one, &format!("GET {there}")) == Some(404)).await;
    assert!(origin.asked(there) > 0 && processes(&configuration) == squid);
    tell(&data_dir, 4, &concern(&["10.9.0.0/24"]));

    run(Command::new("kill").args(["-KILL", &squid[0].to_string()]));
    until("another Squid serves", || processes(&configuration) != squid && ask(&two, &package) == Some(200))
        .await;
    told(&rack, |ok, words| !ok && words.contains("it is started again")).await;
    assert_eq!(origin.asked(POOL), 1, "the cache is as it was");
    rack.stop().await;
    assert_eq!(processes(&configuration), [0; 0], "it ends with the rack");

    // Runs the rack as a separate program, without the origin, and then kills it.
    origin.stop();
    let mut command = Command::new(env!("CARGO_BIN_EXE_basalt-rack"));
    command.args(["--data-dir", data_dir.to_str().unwrap(), "--name", "rack-1", "--interface", "rack0"]);
    command.args(["--proxy-program", program.to_str().unwrap()]);
    command.arg("--proxy-dir").arg(configuration.parent().unwrap());
    let rack = Running::start(&mut command);
    until("the package is served", || ask(&two, &package) == Some(200)).await;
    fetch(&two, &dir.path().join("again"), &key);
    assert_eq!(ask(&one, "GET http://10.9.0.9/other"), Some(503));
    assert_eq!(processes(&configuration).len(), 1);
    rack.signal("KILL");
    until("Squid is gone", || processes(&configuration).is_empty()).await;
}
