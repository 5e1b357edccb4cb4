//! A rack reports the addresses where it answers machines, once its interface has an address and after each change, and
//! the faults of its interfaces.

use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::rack_v1::fact::Body;
use basalt_proto::rack_v1::{Fact, Serves, from_rack};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;
use tokio_util::sync::CancellationToken;

use super::link::{Linked, SECRET, next_link, region, serve, token};
use super::namespace::{ip, is_inside, make_switch};
use super::support::{fact, settings};

const NAME: &str = "addresses::a_rack_tells_where_it_answers_machines_and_when_that_changes";

/// The addresses in the rack's next hello.
async fn hello(link: &mut Linked) -> Serves {
    loop {
        if let from_rack::Message::Hello(hello) = link.next().await {
            return hello.serves.expect("it is told");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_tells_where_it_answers_machines_and_when_that_changes() {
    if !is_inside(NAME) {
        return;
    }
    make_switch(&[]);
    let dir = tempfile::tempdir().unwrap();
    let (region, mut linked) = region();
    let stop = CancellationToken::new();
    let address = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    let settings = Settings {
        join: Some(token(&region, address, SECRET)),
        interfaces: vec!["rack0".to_owned()],
        ..settings(dir.path())
    };
    let files: Vec<String> = settings.addresses.iter().map(ToString::to_string).collect();
    let rack = Daemon::start(settings).await.unwrap();
    ip("address add 10.9.0.1/16 dev rack0");
    let mut link = next_link(&mut linked).await;
    let introduced = link.welcome().await;
    let serves = |clients: &[&str]| Serves {
        clients: clients.iter().map(ToString::to_string).collect(),
        files: files.clone(),
    };
    assert_eq!(introduced.serves, Some(serves(&["10.9.0.1"])), "it waited for an address");
    assert!(introduced.interfaces.iter().any(|it| it.name == "rack0" && it.addresses == ["10.9.0.1/16"]));

    ip("address add 10.8.0.1/16 dev rack0");
    assert_eq!(hello(&mut link).await, serves(&["10.8.0.1", "10.9.0.1"]));
    ip("address flush dev rack0 scope global");
    assert_eq!(
        hello(&mut link).await,
        serves(&[]),
        "and that it answers nobody, which is not the same as silence"
    );
    rack.stop().await;
    stop.cancel();
}

const GONE: &str =
    "addresses::services_whose_address_is_gone_have_stopped_and_an_interface_says_what_it_lacks";

#[tokio::test(flavor = "multi_thread")]
async fn services_whose_address_is_gone_have_stopped_and_an_interface_says_what_it_lacks() {
    if !is_inside(GONE) {
        return;
    }
    make_switch(&["10.9.0.1/16"]);
    let dir = tempfile::tempdir().unwrap();
    let interfaces = vec!["rack0".to_owned(), "eth9".to_owned()];
    let settings = Settings { interfaces, ..settings(dir.path()) };
    let rack = Daemon::start(settings).await.unwrap();
    let told = async |after: u64, service: &str, said: &str| {
        let is_told = |fact: &Fact| match &fact.body {
            Some(Body::Health(it)) => {
                it.service == service && it.ok == said.is_empty() && it.message.contains(said)
            }
            _ => false,
        };
        fact(&rack.facts, |fact| fact.seq > after && is_told(fact)).await.seq
    };
    told(0, "interface eth9", "there is no interface eth9 on this host: name one of lo, rack0").await;
    let mut last = 0;
    let services = ["dhcp rack0", "tftp 10.9.0.1", "http 10.9.0.1"];
    for service in [&services[..], &["interface rack0"]].concat() {
        last = last.max(told(0, service, "").await);
    }
    ip("address flush dev rack0 scope global");
    let mut gone = told(last, "interface rack0", "rack0 has no IP address").await;
    for service in services {
        gone = gone.max(told(last, service, "the address that it was served at is gone").await);
    }
    ip("link set rack0 down");
    told(gone, "interface rack0", "`ip link set rack0 up`").await;
    ip("link set rack0 up");
    ip("address add 10.9.0.1/16 dev rack0");
    for service in [&services[..], &["interface rack0"]].concat() {
        told(gone, service, "").await;
    }
    rack.stop().await;
}
