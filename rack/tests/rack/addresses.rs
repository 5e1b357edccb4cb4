//! A rack tells regions where it answers machines: once its interface has an address, and again when that changes.

use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::rack_v1::{Serves, from_rack};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;
use tokio_util::sync::CancellationToken;

use super::link::{Linked, SECRET, next_link, region, serve, token};
use super::namespace::{ip, is_inside, make_switch};
use super::support::settings;

const NAME: &str = "addresses::a_rack_tells_where_it_answers_machines_and_when_that_changes";

/// What the rack says of itself next.
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
