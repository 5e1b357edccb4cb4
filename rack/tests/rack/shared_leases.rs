//! A rack lets clients of other racks keep their addresses, after a region reported the leases.

use std::net::Ipv4Addr;

use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::rack_v1::fact::Body;
use basalt_proto::rack_v1::rack_lease::Grantor;
use basalt_proto::rack_v1::{AddressRange, DhcpConcern, DhcpSubnet, Leases, RackLease, from_region};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;
use tokio_util::sync::CancellationToken;

use super::link::{SECRET, next_link, region, serve, token};
use super::loopback::boot_exchange_of;
use super::support::{DEADLINE, MAC, fact, settings};

const OTHERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);
const FORGOTTEN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 201);
const HOUR_MS: i64 = 3_600_000;

fn lease(mac: &str, address: Ipv4Addr, by: Grantor) -> RackLease {
    RackLease {
        subnet_uid: "s1".into(),
        address: address.to_string(),
        mac: mac.into(),
        hostname: "m1".into(),
        ends_in_ms: HOUR_MS,
        given_back: false,
        kept_for_ms: HOUR_MS + 600_000,
        by: by.into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_given_the_address_that_it_has_of_another_rack_and_an_own_lease_that_was_lost_is_known_again()
 {
    let dir = tempfile::tempdir().unwrap();
    let (region, mut linked) = region();
    let stop = CancellationToken::new();
    let address = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    let settings = Settings { join: Some(token(&region, address, SECRET)), ..settings(dir.path()) };
    let subnet = DhcpSubnet {
        subnet_uid: "s1".into(),
        cidr: "127.0.0.0/24".into(),
        lease_seconds: 600,
        dynamic: vec![AddressRange { start: "127.0.0.200".into(), end: FORGOTTEN.to_string() }],
        shared: true,
        ..DhcpSubnet::default()
    };
    let dhcp = DhcpConcern { subnets: vec![subnet], serve_unknown: true, ..DhcpConcern::default() };
    write_concern(&settings.data_dir, &version(Concern::Dhcp, 1, "local", &dhcp)).unwrap();
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let mut link = next_link(&mut linked).await;
    link.welcome().await;
    let leases = vec![
        lease(&MAC.to_string(), OTHERS, Grantor::Owner),
        lease("52:54:00:00:00:99", FORGOTTEN, Grantor::Self_),
        RackLease { address: "2001:db8::77".into(), ..lease("", FORGOTTEN, Grantor::Self_) },
    ];
    link.send(from_region::Message::Leases(Leases { leases, complete: true })).await;
    let of = |address: Ipv4Addr| {
        move |it: &_| {
            let basalt_proto::rack_v1::Fact { body: Some(Body::Lease(it)), .. } = it else { return false };
            it.address == address.to_string()
        }
    };
    let known = fact(&rack.facts, of(FORGOTTEN)).await;
    assert_eq!(known.mac, "52:54:00:00:00:99");
    let file = settings.data_dir.join("leases6");
    let kept = async {
        while !std::fs::read_to_string(&file).unwrap().contains("2001:db8::77") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, kept).await.expect("its lease of IPv6 is known again, too");

    boot_exchange_of(&settings, MAC, OTHERS).await;
    let granted = fact(&rack.facts, of(OTHERS)).await;
    let Some(Body::Lease(granted)) = granted.body else { unreachable!("it was asked for") };
    assert_eq!(granted.kept_unix_ms, 0, "only the rack of an address promises it");
    rack.stop().await;
    stop.cancel();
}
