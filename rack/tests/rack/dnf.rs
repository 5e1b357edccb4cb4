//! The files that an install writes for dnf, read by dnf: signed repositories of rpm packages behind Debian's Squid.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use basalt_agent::install::packages::{Image, files};
use basalt_api::agent::{DnfRepository, Packages};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;

use super::namespace::{Host, is_inside, make_switch, mount, peer};
use super::packages::{Origin, Signer, install_squid, run};
use super::peers::on_switch;
use super::proxy::{PORT, concern, tell, told};

/// The name of the rack, which systems find in their `/etc/hosts` here.
const RACK: &str = "lab.rack.basalt.internal";
/// Runs a program of this host in the system `$0`. The mounts end with the namespace of the process.
const IN_SYSTEM: &str =
    r#"for dir in usr dev proc; do mount --rbind "/$dir" "$0/$dir" || exit; done; exec chroot "$0" "$@""#;

/// A repository of the package `basalt-hello`.
struct Rpms<'a> {
    root: PathBuf,
    /// Directory of the build.
    work: PathBuf,
    signer: &'a Signer,
}

impl Rpms<'_> {
    /// Builds this version of the package, and makes metadata of all versions. Signs the package if told so, and the metadata always.
    fn publish(&self, version: &str, signs_package: bool) {
        for dir in [&self.root, &self.work] {
            fs::create_dir_all(dir).unwrap();
        }
        let spec = self.work.join("hello.spec");
        let text = format!(
            "Name: basalt-hello\nVersion: {version}\nRelease: 1\nSummary: a package\nLicense: none\nBuildArch: noarch\n\
             %description\nA package.\n%install\nmkdir -p %{{buildroot}}/opt\necho {version} > %{{buildroot}}/opt/basalt-hello\n\
             %files\n/opt/basalt-hello\n"
        );
        fs::write(&spec, text).unwrap();
        let work = self.work.display();
        let definitions = [
            format!("_topdir {work}"),
            format!("_tmppath {work}"),
            format!("_dbpath {work}/db"),
            format!("_rpmdir {}", self.root.display()),
            "_build_name_fmt %{NAME}-%{VERSION}.rpm".to_owned(),
            format!("_gpg_name {}", Signer::NAME),
            "__gpg /usr/bin/gpg".to_owned(),
        ];
        let rpm = |program: &str, arguments: &[&Path]| {
            let mut command = Command::new(program);
            command.args(definitions.iter().flat_map(|it| ["--define", it]));
            run(command.args(arguments).env("GNUPGHOME", &self.signer.0));
        };
        rpm("rpmbuild", &[Path::new("-bb"), &spec]);
        if signs_package {
            rpm("rpm", &[Path::new("--addsign"), &self.root.join(format!("basalt-hello-{version}.rpm"))]);
        }
        run(Command::new("createrepo_c").arg("--quiet").arg(&self.root));
        let metadata = self.root.join("repodata/repomd.xml").display().to_string();
        self.signer.gpg(&["--yes", "--armor", "--detach-sign", &metadata]);
    }
}

/// The files of an installed system. Its programs are those of this host.
struct System<'a> {
    host: &'a Host,
    root: PathBuf,
}

impl<'a> System<'a> {
    /// Unpacks an image with dnf, and adds the files of an install with this repository.
    fn install(host: &'a Host, root: PathBuf, repository: &DnfRepository) -> Self {
        for dir in ["usr", "dev", "proc", "tmp", "run", "root", "var/lib", "etc/dnf"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        for link in ["bin", "lib", "lib64", "sbin"] {
            std::os::unix::fs::symlink(format!("usr/{link}"), root.join(link)).unwrap();
        }
        let hosts = format!("127.0.0.1 localhost\n10.9.0.1 {RACK}\n");
        for (path, text) in [
            ("etc/dnf/dnf.conf", "[main]\nbest=True\nskip_if_unavailable=False\n"),
            ("etc/hosts", &hosts),
            ("etc/nsswitch.conf", "hosts: files\n"),
            ("etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
            ("etc/group", "root:x:0:\n"),
        ] {
            fs::write(root.join(path), text).unwrap();
        }
        let proxy = Some(format!("http://{RACK}:{PORT}"));
        let packages = Packages { proxy, dnf: vec![repository.clone()], ..Packages::default() };
        for (path, text) in files(&packages, &Image::of(&root)).unwrap() {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { host, root }
    }

    /// Installs the package. Returns its version, or the words of dnf.
    fn get(&self, options: &[&str]) -> Result<String, String> {
        let root = self.root.to_str().unwrap();
        let mut command = self.host.command(&["unshare", "-m", "sh", "-c", IN_SYSTEM, root, "dnf", "-y"]);
        command.args(options).args(["install", "basalt-hello"]);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("LC_ALL", "C.UTF-8");
        let output = command.stdin(Stdio::null()).output().unwrap();
        let words = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if !output.status.success() {
            return Err(words);
        }
        let version = fs::read_to_string(self.root.join("opt/basalt-hello")).unwrap();
        Ok(version.trim().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dnf_installs_signed_packages_that_the_origin_sends_once() {
    peer("squid");
    let rpm = peer("dnf");
    if !is_inside("dnf::dnf_installs_signed_packages_that_the_origin_sends_once") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let program = install_squid(dir.path());
    mount(&["-t", "overlay", "none", "-o", &format!("lowerdir={}/usr:/usr", rpm.display()), "/usr"]);
    make_switch(&["10.9.0.1/24"]);
    let plug = |name: &str, last: u8| {
        let host = Host::plug(name, &format!("52:54:00:00:00:{last:02x}"));
        host.run(&["ip", "address", "add", &format!("10.9.0.{last}/24"), "dev", "eth0"]);
        host
    };
    let (origin_host, host) = (plug("origin", 9), plug("system", 5));
    let [signer, stranger] = ["keys", "others"].map(|name| Signer::new(path(name)));
    let rpms = |name: &str| Rpms { root: path("origin").join(name), work: path("work"), signer: &signer };
    let (signed, bare) = (rpms("signed"), rpms("bare"));
    signed.publish("1.0", true);
    bare.publish("1.0", false);
    let origin = Origin::start(&origin_host, path("origin"));

    let on_switch = on_switch(dir.path());
    tell(&on_switch.data_dir, 1, &concern(&["10.9.0.0/24"]));
    let mut proxy = on_switch.proxy.clone();
    (proxy.port, proxy.program) = (PORT, Some(program));
    let rack = Daemon::start(Settings { proxy, ..on_switch }).await.unwrap();
    told(&rack, |ok, words| ok && words.contains("10.9.0.1:8000")).await;

    let both = DnfRepository {
        name: "lab".to_owned(),
        url: "http://10.9.0.9/signed".to_owned(),
        key: Some(signer.public_key()),
        signed_metadata: true,
        ..DnfRepository::default()
    };
    let system = |name: &str, repository: &DnfRepository| System::install(&host, path(name), repository);
    let began = Instant::now();
    assert_eq!(system("one", &both).get(&[]), Ok("1.0".to_owned()));
    let packages = DnfRepository { signed_metadata: false, ..both.clone() };
    assert_eq!(system("two", &packages).get(&[]), Ok("1.0".to_owned()));
    assert_eq!(origin.asked("/signed/basalt-hello-1.0.rpm"), 1);
    println!("two systems took {:?}", began.elapsed());

    // The metadata and its signature change together.
    signed.publish("2.0", true);
    assert_eq!(system("three", &both).get(&[]), Ok("2.0".to_owned()));

    let disabled = system("four", &DnfRepository { disabled: true, ..both.clone() });
    let words = disabled.get(&[]).unwrap_err();
    assert!(words.contains("no enabled repositories"), "{words}");
    assert_eq!(disabled.get(&["--enablerepo=basalt-lab"]), Ok("2.0".to_owned()));

    let bare = DnfRepository { url: "http://10.9.0.9/bare".to_owned(), ..both.clone() };
    let metadata = DnfRepository { unsigned_packages: true, ..bare.clone() };
    assert_eq!(system("five", &metadata).get(&[]), Ok("1.0".to_owned()));
    let words = system("six", &bare).get(&[]).unwrap_err();
    assert!(words.contains("is not signed"), "{words}");
    for (name, repository) in [("seven", &both), ("eight", &packages)] {
        let foreign = DnfRepository { key: Some(stranger.public_key()), ..repository.clone() };
        let words = system(name, &foreign).get(&[]).unwrap_err();
        assert!(words.contains("GPG"), "{words}");
    }
    println!("all systems took {:?}", began.elapsed());
    rack.stop().await;
}
