//! The proxy of racks through their region: two racks, a region and their Squids, between apt-get and a signed repository.

use crate::enrolment::NewRack;
use crate::namespace::{Host, is_inside_with, make_switch, peer};
use crate::packages::{Origin, POOL, ask, fetch, install_squid, make_repository, processes, run, until};
use crate::support::{Client, Lab, admin_token, lab_with};
use basalt_db::testing::clock::Hand;
use basalt_engine::Policy;
use basalt_proto::PROXY_AUTHORITY;
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Given;
use basalt_region::controller::Controller;
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixListener, UnixStream};

const DATABASE: &str = "BASALT_TEST_DATABASE";
const RACKS: [&str; 2] = ["10.9.0.1:8000", "10.9.0.2:8000"];
const PATIENCE: Duration = Duration::from_secs(120);

/// A database outside of the namespace, by a socket in this directory: the account in the namespace may not enter PostgreSQL's.
async fn database(dir: &Path) -> String {
    let url = basalt_db::testing::database().await;
    let socket_dir = basalt_db::testing::socket_dir();
    let name = ".s.PGSQL.5432";
    let (door, server) = (UnixListener::bind(dir.join(name)).expect("a socket"), socket_dir.join(name));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = door.accept().await {
            let mut server = UnixStream::connect(&server).await.expect("PostgreSQL answers");
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
        }
    });
    url.replace(&*socket_dir.to_string_lossy(), &dir.to_string_lossy())
}

/// A region in this namespace, on a database outside of it. Its Squid is not there yet.
async fn region(dir: &Path, database: &str) -> (Lab, Controller, PathBuf) {
    let program = dir.join("squid-of-region");
    let home = tempfile::tempdir().expect("a directory");
    let settings = Settings {
        database_url: Some(database.to_owned()),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        proxy_program: Some(program.clone()),
        proxy_dir: Some(dir.join("region-proxy")),
        ..Settings::new(home.path())
    };
    let region = Box::pin(Region::start(settings)).await.expect("it starts");
    let api = Client::new(region.address(), Some(admin_token(home.path())));
    let lab = Lab { region, url: database.to_owned(), dir: home, api };
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller =
        Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.expect("it starts");
    (lab, controller, program)
}

/// A rack that serves this address.
async fn rack(lab: &Lab, dir: &Path, name: &str, proxy: &str, program: &Path) -> Daemon {
    let body = format!("{{\"rack\":\"{name}\"}}");
    let token = lab.api.send("POST", "/api/v1/join_tokens", &[], body).await.json()["token"].clone();
    let address = proxy.split(':').next().and_then(|it| it.parse().ok()).expect("an address");
    let given = Given {
        data_dir: Some(dir.join(name)),
        join: Some(token.as_str().expect("a token").to_owned()),
        name: Some(name.to_owned()),
        address: Some(vec![address]),
        loader_dir: Some(dir.to_owned()),
        proxy_program: Some(program.to_owned()),
        proxy_dir: Some(dir.join(format!("{name}-proxy"))),
        ..Given::default()
    };
    Daemon::start(given.settle().expect("settings")).await.expect("the rack joins")
}

/// Waits until the region shows these words about the proxy of each rack.
async fn says(lab: &Lab, words: &str) {
    for name in ["r1", "r2"] {
        let end = Instant::now() + PATIENCE;
        loop {
            let rack = lab.api.get(&format!("/api/v1/racks/{name}")).await.json();
            let proxy = &rack["status"]["services"]["proxy"];
            if proxy["message"].as_str().is_some_and(|it| it.contains(words)) && proxy["state"] == "running" {
                break;
            }
            assert!(Instant::now() < end, "{name} never says {words:?}: {:#}", rack["status"]["services"]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn via(lab: &Lab, way: &str) {
    let settings = format!(r#"{{"proxy":{{"via":"{way}"}}}}"#);
    lab.api.declare("/api/v1/settings/default", &settings).await;
}

async fn has_figure(lab: &Lab, figure: &str) -> bool {
    String::from_utf8_lossy(&lab.api.get("/metrics").await.body).lines().any(|line| line == figure)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_racks_fetch_a_package_once_through_their_region_and_serve_it_without_one() {
    peer("squid");
    let door = tempfile::tempdir().expect("a directory");
    let outside = match std::env::var(DATABASE) {
        Ok(url) => url,
        Err(_) => database(door.path()).await,
    };
    let name = "proxy::two_racks_fetch_a_package_once_through_their_region_and_serve_it_without_one";
    if !is_inside_with(name, &[(DATABASE, &outside)]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let squid = install_squid(dir.path());
    make_switch(&["10.9.0.1/24", "10.9.0.2/24"]);
    let plug = |name: &str, last: u8, address: &str| {
        let host = Host::plug(name, &format!("52:54:00:00:00:{last:02x}"));
        host.run(&["ip", "address", "add", address, "dev", "eth0"]);
        host
    };
    let origin_host = plug("origin", 9, "10.9.0.9/24");
    let hosts = [plug("one", 1, "10.9.0.5/24"), plug("two", 2, "10.9.0.6/24")];
    let repository = dir.path().join("repository");
    let key = make_repository(&repository, dir.path());
    for name in ["direct", "first", "later"] {
        std::fs::write(repository.join("pool").join(format!("{name}.deb")), name).expect("a file");
    }
    let mut origin = Origin::start(&origin_host, repository);
    let tls = origin_host.within(|| std::net::TcpListener::bind("10.9.0.9:443").expect("a port"));
    let get =
        |place: usize, path: &str| ask(&hosts[place], RACKS[place], &format!("GET http://10.9.0.9{path}"));

    let (lab, controller, of_region) = region(dir.path(), &outside).await;
    lab.api.declare("/api/v1/fabrics/default", "{}").await;
    lab.api.declare("/api/v1/vlans/default.0", r#"{"fabric":"default","vid":0}"#).await;
    lab.api.declare("/api/v1/subnets/lab", r#"{"vlan":"default.0","cidr":"10.9.0.0/24"}"#).await;
    via(&lab, "region").await;
    let mut racks = Vec::new();
    for (name, proxy) in ["r1", "r2"].into_iter().zip(RACKS) {
        racks.push(rack(&lab, dir.path(), name, proxy, &squid).await);
    }

    // The region has no Squid.
    let lack = format!(
        "from its cache alone: region {}: {} is not there: install Squid",
        controller.rpc_address(),
        of_region.display()
    );
    says(&lab, &lack).await;
    assert_eq!(get(0, "/pool/direct.deb"), Some(502));
    assert_eq!(origin.asked("/pool/direct.deb"), 0, "racks may not ask the server");
    assert!(has_figure(&lab, "basalt_proxy_state{state=\"lacks\"} 1").await);
    via(&lab, "prefer_region").await;
    says(&lab, "by its own way out").await;
    until("the rack asks the server", || get(0, "/pool/direct.deb") == Some(200)).await;
    assert_eq!(ask(&hosts[0], RACKS[0], "CONNECT 10.9.0.9:443"), Some(200), "tunnels too");

    // The region has Squid.
    via(&lab, "region").await;
    until("racks ask the region alone", || (0..2).all(|it| get(it, "/pool/absent.deb") == Some(502))).await;
    let new = of_region.with_extension("new");
    std::fs::copy(&squid, &new).expect("a program");
    std::fs::rename(&new, &of_region).expect("a program");
    until("the region is asked", || {
        get(0, "/pool/first.deb") == Some(200) && get(1, "/pool/first.deb") == Some(200)
    })
    .await;
    says(&lab, &format!(" through region {}", controller.rpc_address())).await;
    assert_eq!(ask(&hosts[0], RACKS[0], "CONNECT 10.9.0.9:443"), Some(200));
    for (place, host) in hosts.iter().enumerate() {
        fetch(host, RACKS[place], &dir.path().join(place.to_string()), &key);
    }
    assert_eq!(origin.asked(POOL), 1, "two racks, one request");
    assert!(has_figure(&lab, "basalt_proxy_state{state=\"serves\"} 1").await);
    assert!(!has_figure(&lab, "basalt_proxy_connections_total 0").await);
    let served = std::fs::read_to_string(dir.path().join("region-proxy/access.log")).expect("a log");
    assert!(served.contains(POOL) && !served.contains("/pool/direct.deb"), "{served}");

    // The region's Squid is killed.
    let configuration = dir.path().join("region-proxy/squid.conf");
    let [killed] = processes(&configuration)[..] else { panic!("one Squid of the region") };
    run(Command::new("kill").args(["-KILL", &killed.to_string()]));
    assert_eq!(get(1, POOL), Some(200), "the rack has it");
    until("the region has another Squid", || get(0, "/pool/later.deb") == Some(200)).await;
    assert_eq!(get(1, "/pool/later.deb"), Some(200));
    assert_eq!((origin.asked("/pool/later.deb"), origin.asked(POOL)), (1, 1));

    // The region stops, and then the server.
    lab.region.begin_to_stop();
    controller.ended().await;
    lab.region.stop().await;
    until("the region's Squid has ended", || processes(&configuration).is_empty()).await;
    drop(tls);
    origin.stop();
    for place in [0, 1] {
        assert_eq!(get(place, POOL), Some(200), "it is cached");
        fetch(&hosts[place], RACKS[place], &dir.path().join(format!("again-{place}")), &key);
        assert_eq!(get(place, "/pool/unknown.deb"), Some(502));
    }
    for rack in racks {
        rack.stop().await;
    }
}

/// Status and text of the answer to CONNECT on the racks' port.
async fn connect(
    rack: &NewRack,
    at: SocketAddr,
    certificate: Option<&[u8]>,
    authority: &str,
) -> (u16, String) {
    let tcp = TcpStream::connect(at).await.expect("it listens");
    let tls = rack.shake_hands(tcp, certificate).await;
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await;
    let (mut sender, connection) = shaken.expect("HTTP/2");
    tokio::spawn(connection);
    let request = Request::connect(authority).body(Empty::<Bytes>::new()).expect("a request");
    let answer = sender.send_request(request).await.expect("an answer");
    let status = answer.status().as_u16();
    let text = answer.into_body().collect().await.expect("a text").to_bytes();
    (status, String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn only_enrolled_racks_reach_the_proxy_of_a_region_and_are_told_what_it_lacks() {
    let lab = lab_with(|settings| {
        settings.proxy_program = Some("/nowhere/squid".into());
        settings.proxy_dir = Some(settings.data_dir.join("proxy"));
    })
    .await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    let at = controller.rpc_address();
    let (rack, enrolled) = NewRack::new(&lab, at, "r1").await.enrol().await;
    let own = Some(&*enrolled.certificate_der);
    assert_eq!(connect(&rack, at, None, PROXY_AUTHORITY).await.0, 403, "a stranger");
    assert_eq!(connect(&rack, at, own, "10.9.0.9:443").await.0, 404, "Squid alone is reached");
    let end = Instant::now() + PATIENCE;
    loop {
        let (status, reason) = connect(&rack, at, own, PROXY_AUTHORITY).await;
        assert_eq!(status, 503, "{reason}");
        if reason.contains("/nowhere/squid is not there: install Squid") {
            break;
        }
        assert!(Instant::now() < end, "{reason}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(lab.api.get("/readyz").await.status.as_u16(), 200, "nothing else suffers");
    Hand::on(&lab.url).await.run("update rack_enrolment set revoked_at = now()").await;
    assert_eq!(connect(&rack, at, own, PROXY_AUTHORITY).await.0, 403, "a rack that was removed");
}
