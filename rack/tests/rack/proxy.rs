//! A rack's caching proxy: Debian's Squid between apt-get and a signed package repository, in namespaces.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use basalt_proto::rack_v1::{Fact, ProxyConcern, fact::Body};
use basalt_proxy::CONNECTIONS_OF_ONE;
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;

use super::namespace::{Host, Running, is_inside, make_switch, mount, peer};
use super::packages::{Origin, POOL, download, fetch, install_squid, make_repository, processes, run, until};
use super::peers::on_switch;
use super::support::{Client, fact, settings};

const PROXY: &str = "10.9.0.1:8000";
pub(crate) const PORT: u16 = 8000;

fn ask(host: &Host, request: &str) -> Option<u16> {
    super::packages::ask(host, PROXY, request)
}

pub(crate) fn concern(clients: &[&str]) -> ProxyConcern {
    ProxyConcern {
        enabled: true,
        clients: clients.iter().map(|&it| it.to_owned()).collect(),
        denied: vec!["10.66.0.0/16".into()],
        ..ProxyConcern::default()
    }
}

pub(crate) fn tell(data_dir: &Path, generation: u64, concern: &ProxyConcern) {
    write_concern(data_dir, &version(Concern::Proxy, generation, "local", concern)).unwrap();
}

pub(crate) async fn told(rack: &Daemon, wanted: impl Fn(bool, &str) -> bool) -> String {
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
    assert!(figure("basalt_rack_proxy_requests_total{result=\"hit\"} 0"), "{lines:?}");
    rack.stop().await;
}

/// The hard limit of open files of the rack's program.
const HARD: u64 = 4000;
/// Requests of a stranger that the proxy refuses.
const REFUSED: usize = 40;

/// Connections to the proxy without a request.
fn hold(count: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let stream = TcpStream::connect(PROXY).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    (0..count).map(connect).collect()
}

/// True if the other side has closed the connection.
fn is_closed(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
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
    fetch(&one, PROXY, &dir.path().join("one"), &key);
    fetch(&two, PROXY, &dir.path().join("two"), &key);
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

    // A stranger holds its share of connections, and sends requests of any length.
    let log = configuration.with_file_name("access.log");
    let mut logged = fs::read_to_string(&log).unwrap().len();
    let idle = outside.within(|| hold(CONNECTIONS_OF_ONE as usize + 36));
    until("the connections beyond the share are closed", || {
        idle.iter().filter(|it| is_closed(it)).count() >= 35
    })
    .await;
    assert!(idle.iter().filter(|it| !is_closed(it)).count() >= 60);
    assert_eq!(ask(&one, &package), Some(200), "others are served");
    drop(idle);
    until("the stranger has room again", || ask(&outside, &package) == Some(403)).await;
    for number in 0..REFUSED {
        let long = format!("GET http://10.9.0.9/{number}/{}", "x".repeat(4 << 10));
        assert_eq!(ask(&outside, &long), Some(403));
    }
    let text = fs::read_to_string(&log).unwrap();
    let longest = text.lines().map(str::len).max().unwrap_or_default();
    assert!((256..512).contains(&longest), "a line of {longest} bytes");
    logged = text.len() - logged;
    assert!((REFUSED..(REFUSED + 200) * 512).contains(&logged), "{logged} bytes");
    let facts = rack.facts.read(1).await.unwrap();
    let others: Vec<_> = facts.iter().filter(|it| !matches!(it.body, Some(Body::Health(_)))).collect();
    assert!(others.is_empty(), "a stranger makes no facts: {others:?}");

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
    let mut command = Command::new("bash");
    command.args([
        "-c",
        &format!("ulimit -Sn 1024 && ulimit -Hn {HARD} && exec \"$@\""),
        "bash",
        env!("CARGO_BIN_EXE_basalt-rack"),
    ]);
    command.args(["--data-dir", data_dir.to_str().unwrap(), "--name", "rack-1", "--interface", "rack0"]);
    command.args(["--proxy-program", program.to_str().unwrap()]);
    command.arg("--proxy-dir").arg(configuration.parent().unwrap());
    let rack = Running::start(&mut command);
    until("the package is served", || ask(&two, &package) == Some(200)).await;
    fetch(&two, PROXY, &dir.path().join("again"), &key);
    assert_eq!(ask(&one, "GET http://10.9.0.9/other"), Some(503));
    assert_eq!(processes(&configuration).len(), 1);
    assert_eq!(rack.open_files(), [HARD, HARD], "the rack has raised its soft limit of open files");
    rack.signal("KILL");
    until("Squid is gone", || processes(&configuration).is_empty()).await;
}

/// Overwrites the beginning of each file below the directory.
fn damage(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).unwrap().flatten().map(|it| it.path());
    entries
        .map(|path| match path.is_dir() {
            true => damage(&path),
            false => {
                fs::OpenOptions::new().write(true).open(path).unwrap().write_all(&[7; 4096]).unwrap();
                1
            }
        })
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_or_a_damaged_cache_costs_the_cache_alone() {
    peer("squid");
    if !is_inside("proxy::a_full_disk_or_a_damaged_cache_costs_the_cache_alone") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = install_squid(dir.path());
    make_switch(&["10.9.0.1/24"]);
    let plug = |name: &str, last: u8, address: &str| {
        let host = Host::plug(name, &format!("52:54:00:00:00:{last:02x}"));
        host.run(&["ip", "address", "add", address, "dev", "eth0"]);
        host
    };
    let (origin_host, one) = (plug("origin", 9, "10.9.0.9/24"), plug("one", 1, "10.9.0.5/24"));
    let repository = dir.path().join("repository");
    fs::create_dir_all(repository.join("pool")).unwrap();
    let body = |number: u8| vec![number; 4 << 20];
    for number in 1..=8 {
        fs::write(repository.join(format!("pool/{number}.deb")), body(number)).unwrap();
    }
    let origin = Origin::start(&origin_host, repository);
    let whole = |number: u8| {
        let url = format!("http://10.9.0.9/pool/{number}.deb");
        download(&one, PROXY, &url) == Some(body(number))
    };

    let on_switch = on_switch(dir.path());
    let mut proxy = on_switch.proxy.clone();
    proxy.port = PORT;
    proxy.program = Some(program);
    fs::create_dir_all(&proxy.dir).unwrap();
    let at = proxy.dir.clone();
    mount(&["-t", "tmpfs", "-o", "size=400m", "none", at.to_str().unwrap()]);
    tell(&on_switch.data_dir, 1, &concern(&["10.9.0.0/24"]));
    let rack = Daemon::start(Settings { proxy, ..on_switch }).await.unwrap();
    let keeps_nothing = |words: &str| words.contains("it keeps nothing on disk, until");
    told(&rack, |ok, words| ok && !words.is_empty() && !keeps_nothing(words)).await;
    for number in 1..=3 {
        assert!(whole(number), "package {number}");
    }

    // The disk becomes full while Squid writes: it ends. The next one does not write.
    let mut filler = fs::File::create(at.join("filler")).unwrap();
    while filler.write_all(&[0; 1 << 20]).is_ok() {}
    filler.set_len(filler.metadata().unwrap().len() - (2 << 20)).unwrap();
    until("a full disk is seen", || whole(4) && !at.join("cache").exists()).await;
    told(&rack, |ok, words| ok && keeps_nothing(words)).await;
    for number in 1..=8 {
        assert!(whole(number), "package {number} on a full disk");
    }

    // There is room again, which is seen within 30 seconds.
    drop(filler);
    fs::remove_file(at.join("filler")).unwrap();
    let squids = || processes(&at.join("squid.conf"));
    until("a cache on disk again", || at.join("cache").exists() && whole(1)).await;
    for number in 1..=8 {
        assert!(whole(number), "package {number}");
    }
    let (squid, asked) = (squids(), origin.asked("/pool/1.deb"));
    run(Command::new("kill").args(["-KILL", &squid[0].to_string()]));
    assert!(damage(&at.join("cache")) > 1, "there were files");
    until("another Squid serves", || squids() != squid && whole(1)).await;
    for number in 1..=8 {
        assert!(whole(number), "package {number} from a damaged cache");
    }
    assert!(origin.asked("/pool/1.deb") > asked, "a damaged file is fetched again");
    rack.stop().await;
}
