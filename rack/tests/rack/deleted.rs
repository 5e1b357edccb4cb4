//! A rack that was deleted in the region.

use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::rack_v1::{Forget, from_rack, from_region};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;
use tokio_util::sync::CancellationToken;

use super::link::{SECRET, next_link, region, serve, token};
use super::support::{DEADLINE, settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_rack_erases_what_the_region_told_it_whenever_it_hears_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (region, mut linked) = region();
    let stop = CancellationToken::new();
    let address = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    let settings = Settings { join: Some(token(&region, address, SECRET)), ..settings(dir.path()) };
    let forget = || from_region::Message::Forget(Forget {});
    let data = settings.data_dir.clone();
    let there = |name: &str| data.join(name).exists();

    // Deleted while it is linked.
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let mut link = next_link(&mut linked).await;
    link.welcome().await;
    link.offer(3, "inc-1").await;
    assert!(there("concerns/images.pb") && there("identity/key.pem"));
    link.send(forget()).await;
    tokio::time::timeout(DEADLINE, rack.deleted()).await.expect("the rack does not hear it");
    rack.forget().await.unwrap();
    for name in ["concerns", "attempts", "spool", "certificates", "blobs", "identity"] {
        assert!(!there(name), "{name}");
    }
    assert!(there("clock") && there("epochs"));

    // Deleted while it was away: it dials as an enrolled rack.
    let rack = Daemon::start(settings).await.unwrap();
    let mut link = next_link(&mut linked).await;
    let from_rack::Message::Hello(_) = link.next().await else { panic!("no hello") };
    link.send(forget()).await;
    tokio::time::timeout(DEADLINE, rack.deleted()).await.expect("the rack does not hear it");
    rack.stop().await;
    stop.cancel();
}
