//! A signed package repository behind Debian's Squid: a web server that counts its requests, and apt-get as its client.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use basalt_rack::hash::sha256;

use super::namespace::{Host, hide, mount, peer};

/// Squid may take 20 seconds to start, and the next start waits for as long.
const PATIENCE: Duration = Duration::from_secs(90);
/// The time limit for one answer.
const ANSWER: Duration = Duration::from_secs(20);
const PACKAGE: &str = "basalt-hello_1.0_all.deb";
/// The path of the package in the repository.
pub(crate) const POOL: &str = "/pool/basalt-hello_1.0_all.deb";

/// Installs Squid in this namespace only. Root is the only account here, and Squid refuses to run as root, so it runs
/// in its own user namespace under another id.
pub(crate) fn install_squid(dir: &Path) -> PathBuf {
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
pub(crate) fn processes(argument: &Path) -> Vec<u32> {
    let argument = argument.to_str().unwrap();
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').any(|it| it == argument)
    })
    .collect()
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A web server that counts its requests.
pub(crate) struct Origin {
    asked: Arc<Mutex<BTreeMap<String, u32>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Origin {
    /// Serves the files below `root` on port 80 of the host.
    pub(crate) fn start(host: &Host, root: PathBuf) -> Self {
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

    pub(crate) fn asked(&self, path: &str) -> u32 {
        self.asked.lock().unwrap().get(path).copied().unwrap_or_default()
    }

    /// Closes its port.
    pub(crate) fn stop(&mut self) {
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
    let file = root.join(path.trim_start_matches('/'));
    let written = file.metadata().and_then(|it| it.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let tag = format!("\"{}\"", written.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos());
    let modified =
        format!("Last-Modified: Thu, 26 Nov 2026 20:00:00 GMT\r\nETag: {tag}\r\nConnection: close\r\n");
    let (status, body) = match fs::read(file) {
        Ok(_) if head.contains(&tag) => ("304 Not Modified", Vec::new()),
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let length = body.len();
    let length =
        if status.starts_with("304") { String::new() } else { format!("Content-Length: {length}\r\n") };
    stream.write_all(format!("HTTP/1.1 {status}\r\n{modified}{length}\r\n").as_bytes()).ok();
    stream.write_all(&body).ok();
}

/// The status of the answer of the proxy at this address; `None` without an answer.
pub(crate) fn ask(host: &Host, proxy: &str, request: &str) -> Option<u16> {
    let mut answer = String::new();
    host.within(|| {
        let mut stream = TcpStream::connect(proxy).ok()?;
        stream.set_read_timeout(Some(ANSWER)).unwrap();
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

/// The body that the proxy sends for a URL; `None` if it sends no complete answer with status 200.
pub(crate) fn download(host: &Host, proxy: &str, url: &str) -> Option<Vec<u8>> {
    host.within(|| {
        let mut stream = TcpStream::connect(proxy).ok()?;
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        stream.write_all(format!("GET {url} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let head = answer.windows(4).position(|it| it == b"\r\n\r\n")? + 4;
        let is_ok = answer.starts_with(b"HTTP/1.1 200 ") || answer.starts_with(b"HTTP/1.0 200 ");
        is_ok.then(|| answer.split_off(head))
    })
}

/// Runs a command that must succeed. Returns its output.
pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
    output.stdout
}

/// Makes a repository of one package, signed with a new key. Returns the key.
pub(crate) fn make_repository(root: &Path, home: &Path) -> PathBuf {
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
    let signer = Signer::new(home.join("keys"));
    let [release, signed] =
        ["Release", "InRelease"].map(|name| root.join("dists/lab").join(name).display().to_string());
    signer.gpg(&["--output", &signed, "--clearsign", &release]);
    let key = home.join("lab.asc");
    fs::write(&key, signer.public_key()).unwrap();
    key
}

/// An OpenPGP key in a directory of its own.
pub(crate) struct Signer(pub(crate) PathBuf);

impl Signer {
    /// The user id of the key.
    pub(crate) const NAME: &str = "lab@example.com";

    /// Makes the directory and the key.
    pub(crate) fn new(keys: PathBuf) -> Self {
        fs::create_dir(&keys).unwrap();
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o700)).unwrap();
        let signer = Self(keys);
        signer.gpg(&["--quick-generate-key", Self::NAME, "ed25519", "sign", "never"]);
        signer
    }

    /// Runs gpg with this key. Returns its output.
    pub(crate) fn gpg(&self, arguments: &[&str]) -> Vec<u8> {
        run(Command::new("gpg")
            .args(["--batch", "--passphrase", ""])
            .args(arguments)
            .env("GNUPGHOME", &self.0))
    }

    /// The public key, ASCII-armoured.
    pub(crate) fn public_key(&self) -> String {
        String::from_utf8(self.gpg(&["--armor", "--export", Self::NAME])).unwrap()
    }
}

/// Fetches the lists and the package through the proxy, as a separate system with this directory.
pub(crate) fn fetch(host: &Host, proxy: &str, dir: &Path, key: &Path) {
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
        let proxy = format!("Acquire::http::Proxy=http://{proxy}/");
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
