//! A machine whose BMC speaks Redfish: the system and the certificate in its rack's power concern.

use crate::leases::furnish;
use crate::linked::Linked;
use crate::support::lab;
use basalt_engine::Policy;
use basalt_proto::rack_v1::bmc::Trust;
use basalt_proto::rack_v1::{Bmc, PowerConcern};
use basalt_region::controller::Controller;
use prost::Message;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const CA: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

/// The rack's last power concern, once this holds of it.
pub(crate) async fn told(rack: &Linked, holds: impl Fn(&PowerConcern) -> bool) -> PowerConcern {
    let began = Instant::now();
    loop {
        let told = rack.told().concerns;
        let last = told.iter().rfind(|version| version.concern == "power");
        let last = last.map(|version| PowerConcern::decode(version.body.as_slice()).expect("a concern"));
        match last {
            Some(concern) if holds(&concern) => return concern,
            last => assert!(began.elapsed() < PATIENCE, "the rack is told {last:?}"),
        }
        tokio::task::yield_now().await;
    }
}

pub(crate) fn is_of(generation: u64) -> impl Fn(&PowerConcern) -> bool {
    move |concern| concern.bmcs.first().is_some_and(|bmc| bmc.generation == generation)
}

#[tokio::test]
async fn a_rack_is_told_which_system_it_is_and_which_certificate_is_taken() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    let machine = |tls: Option<Value>| {
        let mut bmc = json!({"driver": "redfish", "address": "10.77.0.101", "username": "admin", "password": "secret",
            "options": {"system": "1"}});
        if let Some(tls) = tls {
            bmc["tls"] = tls;
        }
        let spec = json!({"boot_macs": ["52:54:00:00:00:01"], "commissioning": {"skip": true}, "power": "off", "bmc": bmc});
        spec.to_string()
    };
    let fingerprint = "0a".repeat(32);
    for (generation, (tls, trust)) in (1..).zip([
        (None, None),
        (Some(json!({})), Some(Trust::HostRoots(true))),
        (Some(json!({"ca": CA})), Some(Trust::Ca(CA.to_owned()))),
        (Some(json!({"fingerprint": fingerprint})), Some(Trust::Sha256(vec![10; 32]))),
        (Some(json!({"verify": false})), Some(Trust::Unverified(true))),
    ]) {
        lab.api.declare("/api/v1/machines/m", &machine(tls)).await;
        let bmc: Bmc = told(&rack, is_of(generation)).await.bmcs.swap_remove(0);
        let described = [bmc.driver, bmc.address, bmc.username, bmc.password, bmc.system];
        assert_eq!(described, ["redfish", "10.77.0.101", "admin", "secret", "1"]);
        assert_eq!((bmc.port, bmc.trust), (0, trust));
    }

    lab.api.declare("/api/v1/settings/default", r#"{"bmc_networks":["10.77.0.0/24"]}"#).await;
    let concern = told(&rack, |concern| !concern.networks.is_empty()).await;
    assert_eq!(concern.networks, ["10.77.0.0/24"]);
    let outside = machine(None).replace("10.77.0.101", "10.78.0.1");
    let said = "10.78.0.1 is outside of the networks of BMCs: 10.77.0.0/24";
    let put = async |path: &str| lab.api.put(path, &format!("{{\"spec\":{outside}}}")).await;
    let (status, _, errors) = put("/api/v1/machines/m").await.problem();
    assert_eq!((status, errors), (422, vec![format!("/spec/bmc/address: {said}")]));
    let tried = put("/api/v1/machines/m?dry_run=true").await;
    assert!(tried.text().contains(said), "{}", tried.text());
}
