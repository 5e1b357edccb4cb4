//! The DHCP concern of racks, from a region with a working driver, to the bytes. The racks are models: their reports are stored
//! where their links would store them.

use crate::allocation::once;
use crate::kinds::observe;
use crate::support::{Lab, driven_lab};
use basalt_api::values::{RackId, SubnetId, Timestamp, Uid};
use basalt_db::{Key, NewFact};
use basalt_proto::rack_v1::{
    BootAnswers, BootLoader, ClientOptions, Dhcp6Reservation, Dhcp6Subnet, DhcpConcern, DhcpSubnet,
    KnownConcern, ProxyConcern, ProxyVia, RawOption, Reservation, Route, TimeConcern,
};
use basalt_region::racks::observed::{Claim, DhcpInForce, DhcpServer, Health, Hello, Leftover, Observed};
use prost::Message;
use serde_json::{Value, json};
use std::time::Duration;

mod rack_status;

const PATIENCE: Duration = Duration::from_secs(30);

/// A model of a rack that applies its concern when the test says so.
pub(crate) struct Played {
    uid: RackId,
    seq: u64,
}

fn fact(seq: u64, object: Uid, observed: &Observed) -> NewFact {
    let (kind, body) = observed.stored();
    let observed_at = Timestamp::UNIX_EPOCH;
    NewFact {
        seq,
        object: Some(object),
        mac: None,
        kind,
        step_key: None,
        attempt: None,
        body,
        observed_at,
        wakes: true,
    }
}

impl Played {
    /// A rack with this address appears.
    async fn come(lab: &Lab, name: &str, address: &str) -> Self {
        Self::come_at(lab, name, &[address]).await
    }

    /// A rack with these addresses appears.
    pub(crate) async fn come_at(lab: &Lab, name: &str, addresses: &[&str]) -> Self {
        observe(lab, "Rack", name, "{}").await;
        let store = lab.region.store();
        let uid = store.get("Rack", Key::Name(name)).await.expect("a rack").uid;
        let rack = Self { uid: RackId::from(uid), seq: 0 };
        rack.introduce(lab, addresses).await;
        rack
    }

    /// Sends a Hello with these addresses.
    async fn introduce(&self, lab: &Lab, addresses: &[&str]) {
        let addresses = addresses.iter().map(|&address| address.into()).collect();
        self.introduce_as(lab, Hello { addresses, ..Hello::default() }).await;
    }

    async fn introduce_as(&self, lab: &Lab, hello: Hello) {
        let hello = fact(0, self.uid.into(), &Observed::Hello(hello));
        lab.region.store().store_own_fact(&hello).await.expect("it is stored");
    }

    /// The DHCP concern, once `holds` is true of it.
    pub(crate) async fn told(&self, lab: &Lab, holds: impl Fn(&DhcpConcern) -> bool) -> DhcpConcern {
        self.told_of("dhcp", lab, holds).await
    }

    /// A concern, once `holds` is true of it.
    async fn told_of<C: Message + Default + Clone + std::fmt::Debug>(
        &self,
        name: &str,
        lab: &Lab,
        holds: impl Fn(&C) -> bool,
    ) -> C {
        let store = lab.region.store();
        let (mut woken, mut last) = (store.woken(), None);
        let look = async {
            loop {
                let found = store.concern(self.uid, name).await.expect("a concern");
                last = found.map(|concern| C::decode(concern.body.as_slice()).expect("a concern"));
                if let Some(concern) = last.clone().filter(&holds) {
                    return concern;
                }
                woken.changed().await.expect("the store lives");
            }
        };
        let found = tokio::time::timeout(PATIENCE, look).await;
        found.unwrap_or_else(|_| panic!("the rack is told another thing: {last:?}"))
    }

    /// Reports that a concern is in force.
    async fn obeys(&mut self, lab: &Lab, concern: &DhcpConcern, leftover: Vec<Leftover>) {
        let said = DhcpInForce { delegation: concern.delegation, leftover, unsure_ms: 0 };
        self.says(lab, &Observed::DhcpInForce(said)).await;
    }

    /// Sends a fact about itself.
    async fn says(&mut self, lab: &Lab, observed: &Observed) {
        self.seq += 1;
        let said = fact(self.seq, self.uid.into(), observed);
        let spool = uuid::Uuid::from_u128(1);
        lab.region.store().store_facts(self.uid, "played", spool, &[said]).await.expect("it is stored");
    }
}

fn blocks(concern: &DhcpConcern) -> Vec<String> {
    let subnets = concern.subnets.iter();
    subnets.flat_map(|subnet| &subnet.dynamic).map(|range| format!("{}-{}", range.start, range.end)).collect()
}

fn has(blocks_are: &'static [&str]) -> impl Fn(&DhcpConcern) -> bool {
    move |concern| blocks(concern) == blocks_are
}

fn subnet_of(concern: &DhcpConcern, cidr: &str) -> Option<DhcpSubnet> {
    concern.subnets.iter().find(|subnet| subnet.cidr == cidr).cloned()
}

/// The subnet `lab` with DHCP, and a pool of a hundred addresses.
async fn served() -> Lab {
    let lab = driven_lab().await;
    lab.api.declare("/api/v1/fabrics/default", "{}").await;
    let vlan = r#"{"fabric":"default","vid":0,"dhcp":{"enabled":true}}"#;
    lab.api.declare("/api/v1/vlans/default.0", vlan).await;
    let subnet = r#"{"vlan":"default.0","cidr":"10.77.0.0/24","gateway":"10.77.0.1"}"#;
    lab.api.declare("/api/v1/subnets/lab", subnet).await;
    let pool = r#"{"subnet":"lab","start":"10.77.0.100","end":"10.77.0.199"}"#;
    lab.api.declare("/api/v1/ip_ranges/pool", pool).await;
    lab
}

async fn range_status(lab: &Lab) -> Value {
    lab.api.get("/api/v1/ip_ranges/pool").await.json()["status"]["blocks"].clone()
}

/// The message of the condition Ready once its reason is `reason`, and the conditions that are true.
async fn ready_as(lab: &Lab, path: &str, reason: &str) -> (String, Vec<String>) {
    let look = async {
        loop {
            let (found, message, holding) = ready(lab, path).await;
            if found == reason {
                return (message, holding);
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, look).await;
    found.unwrap_or_else(|_| panic!("{path} is not {reason}"))
}

/// The reason and the message of the condition Ready, and the conditions that are true.
async fn ready(lab: &Lab, path: &str) -> (String, String, Vec<String>) {
    let status = lab.api.get(path).await.json()["status"].clone();
    let conditions = status["conditions"].as_array().expect("conditions").clone();
    let holding = conditions.iter().filter(|it| it["status"] == "true");
    let holding = holding.map(|it| it["type"].as_str().expect("a type").to_owned()).collect();
    let word = |field: &str| conditions[0][field].as_str().expect("a text").to_owned();
    (word("reason"), word("message"), holding)
}

#[tokio::test]
async fn a_vlan_and_its_subnet_say_that_no_rack_serves_them_and_that_no_address_is_free() {
    let lab = served().await;
    let [vlan, subnet] = ["/api/v1/vlans/default.0", "/api/v1/subnets/lab"];
    let only = |condition: &str| vec![condition.to_owned()];
    for path in [vlan, subnet] {
        let (message, holding) = ready_as(&lab, path, "NotServed").await;
        assert_eq!(holding, only("Stalled"));
        assert!(message.contains("no rack has an address in 10.77.0.0/24"), "{message}");
    }
    let mut rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let served = ("DHCP is answered here by r1".to_owned(), only("Ready"));
    assert_eq!(ready_as(&lab, vlan, "Served").await, served);
    let addresses = |ok: bool, message: &str| {
        Observed::Health(Health::new("addresses 10.77.0.0/24".into(), ok, message.into()))
    };
    let said = "no address of 10.77.0.0/24 is free: of 100, 100 leased; widen it";
    rack.says(&lab, &addresses(false, said)).await;
    for path in [vlan, subnet] {
        let (message, holding) = ready_as(&lab, path, "NoFreeAddress").await;
        assert_eq!(holding, only("Progressing"));
        assert!(message.ends_with(&format!("rack r1 says: {said}")), "{message}");
    }
    let listed = lab.api.get("/api/v1/subnets").await.json();
    assert_eq!(listed["items"][0]["status"]["conditions"][0]["reason"], "NoFreeAddress");
    rack.says(&lab, &addresses(true, "")).await;
    ready_as(&lab, subnet, "Stored").await;
    ready_as(&lab, vlan, "Served").await;
    let full = Hello {
        addresses: vec!["10.77.0.2/24".into()],
        cannot_write: "leases cannot be written: no space".into(),
        gives_no_address: true,
        ..Hello::default()
    };
    rack.introduce_as(&lab, full).await;
    for path in [vlan, subnet] {
        let (message, holding) = ready_as(&lab, path, "DiskFails").await;
        assert_eq!(holding, only("Stalled"));
        assert_eq!(message, "rack r1 says: leases cannot be written: no space");
    }
    rack.introduce(&lab, &["10.77.0.2/24"]).await;
    ready_as(&lab, vlan, "Served").await;
    // A rack that does not exist cannot serve.
    observe(&lab, "Rack", "r2", r#"{"maintenance":true}"#).await;
    let named = r#"{"fabric":"default","vid":0,"dhcp":{"enabled":true,"racks":["r2"]}}"#;
    lab.api.declare(vlan, named).await;
    let (message, _) = ready_as(&lab, vlan, "NotServed").await;
    assert!(message.contains("names, r2 is in maintenance"), "{message}");
    // A read after a write never shows the former state.
    lab.api.declare(vlan, r#"{"fabric":"default","vid":0}"#).await;
    assert_eq!(ready(&lab, vlan).await.0, "Stored");
    assert_eq!(ready(&lab, subnet).await.0, "Stored");
}

#[tokio::test]
async fn a_rack_s_services_do_not_run_at_addresses_that_it_no_longer_has() {
    let lab = served().await;
    let mut rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    for service in ["tftp 10.77.0.2", "addresses 10.77.0.0/24", "tftp 10.77.0.7", "dhcp eth1"] {
        let health = Health::new(service.into(), true, "".into());
        rack.says(&lab, &Observed::Health(health)).await;
    }
    // It starts again with another address, and does not know its former reports.
    rack.introduce(&lab, &["10.77.0.7/24"]).await;
    let mut woken = lab.region.store().woken();
    let settled = async {
        loop {
            let services = lab.api.get("/api/v1/racks/r1").await.json()["status"]["services"].clone();
            let states =
                ["tftp 10.77.0.2", "tftp 10.77.0.7", "dhcp eth1"].map(|it| services[it]["state"].clone());
            if states == ["stopped", "running", "running"] {
                assert!(
                    services.get("addresses 10.77.0.0/24").is_none(),
                    "there are some, which is no news: {services}"
                );
                return services["tftp 10.77.0.2"]["message"].clone();
            }
            woken.changed().await.expect("the store lives");
        }
    };
    let message = tokio::time::timeout(PATIENCE, settled).await.expect("it stops");
    assert_eq!(message, "the rack does not have this address any more");
}

#[tokio::test]
async fn a_second_rack_gets_its_half_once_the_first_has_let_go_of_it() {
    let lab = served().await;
    let mut r1 = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let whole = r1.told(&lab, has(&["10.77.0.100-10.77.0.199"])).await;
    r1.obeys(&lab, &whole, Vec::new()).await;
    let mut r2 = Played::come(&lab, "r2", "10.77.0.150/24").await;
    let half = r1.told(&lab, has(&["10.77.0.100-10.77.0.149"])).await;
    assert_eq!(
        (whole.racks, half.racks.clone()),
        (vec!["10.77.0.2".to_owned()], vec!["10.77.0.2".into(), "10.77.0.150".into()]),
        "it is told who else is a rack"
    );
    r2.told(&lab, has(&[])).await;
    assert_eq!(
        range_status(&lab).await,
        json!({
            "10.77.0.100-10.77.0.149": {"rack": "r1", "state": "leased", "addresses": 50, "used": 0},
            "10.77.0.150-10.77.0.199": {"rack": "r1", "state": "taken_back", "addresses": 50, "used": 0}})
    );
    let subnet =
        SubnetId::from(lab.region.store().get("Subnet", Key::Name("lab")).await.expect("a subnet").uid);
    let leased = |start: &str, end: &str| Leftover {
        subnet_uid: subnet.to_string().into(),
        start: start.into(),
        end: end.into(),
        ends_in_ms: 600_000,
    };
    r1.obeys(&lab, &half, vec![leased("10.77.0.152", "10.77.0.153")]).await;
    // Without its own address, and without addresses that clients of the other rack still have.
    let rest = r2.told(&lab, has(&["10.77.0.151-10.77.0.151", "10.77.0.154-10.77.0.199"])).await;
    r2.obeys(&lab, &rest, Vec::new()).await;
    assert!(rest.delegation > half.delegation, "numbers are one sequence");
    assert_eq!(range_status(&lab).await["10.77.0.154-10.77.0.199"]["rack"], "r2");

    // r2 is deleted while it is not connected: its unknown leases end within ten minutes.
    lab.api.delete("/api/v1/racks/r2").await;
    let mut woken = lab.region.store().woken();
    let gone = async {
        while lab.api.get("/api/v1/racks/r2").await.status != 404 {
            woken.changed().await.expect("the store lives");
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it goes");
    // r1 gets the free addresses at once, and none that r2 had.
    let after = r1.told(&lab, has(&["10.77.0.100-10.77.0.149", "10.77.0.152-10.77.0.153"])).await;
    r1.obeys(&lab, &after, Vec::new()).await;
    let abandoned = range_status(&lab).await["10.77.0.154-10.77.0.199"].clone();
    assert!(abandoned.get("rack").is_none_or(Value::is_null), "{abandoned}");
}

#[tokio::test]
async fn a_rack_s_address_is_leased_to_no_client_that_had_it_before() {
    let lab = served().await;
    lab.api.declare("/api/v1/subnets/six", r#"{"vlan":"default.0","cidr":"fd00:77::/64"}"#).await;
    for (name, spec) in [
        ("old", json!({"subnet": "lab", "address": "10.77.0.9", "mac": "52:54:00:00:00:09"})),
        ("other", json!({"subnet": "lab", "address": "10.77.0.10", "mac": "52:54:00:00:00:10"})),
        ("six-mac", json!({"subnet": "six", "address": "fd00:77::9", "mac": "52:54:00:00:00:09"})),
        (
            "six-duid",
            json!({"subnet": "six", "address": "fd00:77::10", "duid": "00:03:00:01:52:54:00:00:00:10"}),
        ),
        ("plain", json!({"subnet": "lab", "address": "10.77.0.11"})),
    ] {
        lab.api.declare(&format!("/api/v1/ip_addresses/{name}"), &spec.to_string()).await;
    }
    let r1 = Played::come_at(&lab, "r1", &["10.77.0.2/24", "fd00:77::2/64"]).await;
    let reserved = |concern: &DhcpConcern| {
        let four =
            concern.subnets.iter().flat_map(|subnet| &subnet.reservations).map(|it| it.address.clone());
        let six =
            concern.subnets6.iter().flat_map(|subnet| &subnet.reservations).map(|it| it.address.clone());
        four.chain(six).collect::<Vec<_>>()
    };
    r1.told(&lab, |concern| reserved(concern) == ["10.77.0.9", "10.77.0.10", "fd00:77::9", "fd00:77::10"])
        .await;
    let own = ["10.77.0.9/24", "10.77.0.11/24", "fd00:77::9/64", "fd00:77::10/64"];
    let _r2 = Played::come_at(&lab, "r2", &own).await;
    r1.told(&lab, |concern| reserved(concern) == ["10.77.0.10"]).await;
    let ready = async |name: &str| {
        let object = lab.api.get(&format!("/api/v1/ip_addresses/{name}")).await.json();
        let condition = &object["status"]["conditions"][0];
        [&condition["type"], &condition["status"], &condition["reason"], &condition["message"]]
            .map(Value::clone)
    };
    for (name, address) in [("old", "10.77.0.9"), ("six-mac", "fd00:77::9"), ("six-duid", "fd00:77::10")] {
        let why = format!(
            "{address} is the address of Rack \"r2\" itself, so DHCP gives it to no client. Declare another address here, or give the rack \
             another one"
        );
        let expected = [json!("Ready"), json!("false"), json!("RackHasAddress"), json!(why)];
        // Networks that were read a moment before are used again.
        once(&why, async || (ready(name).await == expected).then_some(())).await;
    }
    for name in ["other", "plain"] {
        assert_eq!(ready(name).await[1], "true", "{name}");
    }
}

#[tokio::test]
async fn a_rack_serves_every_subnet_of_the_vlan_that_it_stands_in() {
    let lab = served().await;
    let mut rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    for (name, vlan, cidr) in [("beside", "default.0", "10.88.0.0/24"), ("away", "default.7", "10.99.0.0/24")]
    {
        if vlan != "default.0" {
            let vlan = r#"{"fabric":"default","vid":7,"dhcp":{"enabled":true}}"#;
            lab.api.declare("/api/v1/vlans/default.7", vlan).await;
        }
        let subnet = json!({"vlan": vlan, "cidr": cidr}).to_string();
        lab.api.declare(&format!("/api/v1/subnets/{name}"), &subnet).await;
    }
    let pool = r#"{"subnet":"beside","start":"10.88.0.100","end":"10.88.0.199"}"#;
    lab.api.declare("/api/v1/ip_ranges/beside", pool).await;
    let address = r#"{"subnet":"beside","address":"10.88.0.9","mac":"52:54:00:00:00:09"}"#;
    lab.api.declare("/api/v1/ip_addresses/printer", address).await;
    let has_both = |concern: &DhcpConcern| {
        let beside = subnet_of(concern, "10.88.0.0/24").unwrap_or_default();
        blocks(concern).len() == 2 && beside.reservations.len() == 1
    };
    let told = rack.told(&lab, has_both).await;
    rack.obeys(&lab, &told, Vec::new()).await;
    assert_eq!(told.subnets.len(), 2, "{told:?}");
    assert!(told.subnets.iter().all(|subnet| subnet.link == "default.0"), "{told:?}");
    let beside = subnet_of(&told, "10.88.0.0/24").expect("the other subnet");
    assert_eq!(
        (beside.dynamic[0].start.as_str(), beside.dynamic[0].end.as_str()),
        ("10.88.0.100", "10.88.0.199")
    );
    assert_eq!(beside.reservations[0].address, "10.88.0.9");
}

#[tokio::test]
async fn an_address_with_a_mac_is_that_clients_reservation() {
    let lab = served().await;
    let rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    rack.told(&lab, has(&["10.77.0.100-10.77.0.199"])).await;
    let printer = r#"{"subnet":"lab","mac":"52:54:00:00:00:09","hostname":"printer"}"#;
    lab.api.declare("/api/v1/ip_addresses/printer", printer).await;
    let reserved = |concern: &DhcpConcern| {
        concern.subnets.iter().flat_map(|it| it.reservations.clone()).collect::<Vec<_>>()
    };
    let concern = rack.told(&lab, |concern| !reserved(concern).is_empty()).await;
    let expected = Reservation {
        mac: "52:54:00:00:00:09".into(),
        address: "10.77.0.3".into(),
        hostname: "printer".into(),
    };
    assert_eq!(reserved(&concern), [expected], "the gateway has .1, and the rack itself .2");
    let moved = r#"{"subnet":"lab","address":"10.77.0.7","mac":"52:54:00:00:00:09"}"#;
    lab.api.declare("/api/v1/ip_addresses/printer", moved).await;
    rack.told(&lab, |concern| reserved(concern).iter().any(|it| it.address == "10.77.0.7")).await;
    lab.api.delete("/api/v1/ip_addresses/printer").await;
    rack.told(&lab, |concern| reserved(concern).is_empty()).await;
}

#[tokio::test]
async fn clients_are_told_the_options_and_routes_that_are_declared() {
    let lab = served().await;
    let rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    rack.told(&lab, has(&["10.77.0.100-10.77.0.199"])).await;
    let vlan = r#"{"fabric":"default","vid":0,"dhcp":{"enabled":true,
        "options":{"150":"10.77.0.5, 10.77.0.6","160":"hex:0a4d","161":"boot.example.com"}}}"#;
    lab.api.declare("/api/v1/vlans/default.0", vlan).await;
    lab.api.declare("/api/v1/subnets/far", r#"{"vlan":"default.0","cidr":"10.88.0.0/16"}"#).await;
    let routes = [
        ("office", r#"{"source":"lab","destination_cidr":"10.0.0.0/8","gateway":"10.77.0.7","metric":5}"#),
        ("spare", r#"{"source":"lab","destination_cidr":"10.0.0.0/8","gateway":"10.77.0.8","metric":9}"#),
        ("far", r#"{"source":"lab","destination":"far","gateway":"10.77.0.9"}"#),
    ];
    for (name, route) in routes {
        lab.api.declare(&format!("/api/v1/static_routes/{name}"), route).await;
    }
    let first = |concern: &DhcpConcern| subnet_of(concern, "10.77.0.0/24").unwrap_or_default();
    let told = first(&rack.told(&lab, |concern| first(concern).routes.len() == 2).await);
    let route = |to: &str, via: &str| Route { to: to.to_owned(), via: via.to_owned() };
    let expected = [route("10.0.0.0/8", "10.77.0.7"), route("10.88.0.0/16", "10.77.0.9")];
    assert_eq!(told.routes, expected, "DHCP knows no metric: of two to one network the better is told");
    let option = |code, value: &[u8]| RawOption { code, value: value.to_vec() };
    let addresses = option(150, &[10, 77, 0, 5, 10, 77, 0, 6]);
    assert_eq!(told.options, [addresses, option(160, &[0x0a, 0x4d]), option(161, b"boot.example.com")]);

    let subnet = r#"{"vlan":"default.0","cidr":"10.77.0.0/24","gateway":"10.77.0.1",
        "dhcp_options":{"160":"10.77.0.9","252":"http://wpad/"},"search_domains":["lab.example.com","example.com"]}"#;
    lab.api.declare("/api/v1/subnets/lab", subnet).await;
    let machine = r#"{"boot_macs":["52:54:00:00:00:01"],"dhcp_options":{"150":"10.77.0.99"}}"#;
    lab.api.declare("/api/v1/machines/m1", machine).await;
    let whole = rack.told(&lab, |concern| !concern.client_options.is_empty()).await;
    let told = first(&whole);
    assert_eq!(told.search, ["lab.example.com", "example.com"]);
    let addresses = option(150, &[10, 77, 0, 5, 10, 77, 0, 6]);
    let expected = [
        addresses,
        option(160, &[10, 77, 0, 9]),
        option(161, b"boot.example.com"),
        option(252, b"http://wpad/"),
    ];
    assert_eq!(told.options, expected, "a subnet's come before those of its VLAN");
    let own = ClientOptions { mac: "52:54:00:00:00:01".into(), options: vec![option(150, &[10, 77, 0, 99])] };
    assert_eq!(whole.client_options, [own]);
    lab.api.delete("/api/v1/static_routes/office").await;
    rack.told(&lab, |concern| first(concern).routes.contains(&route("10.0.0.0/8", "10.77.0.8"))).await;
}

#[tokio::test]
async fn clients_are_told_the_packet_size_the_lease_time_and_the_router_of_their_network() {
    let lab = served().await;
    let rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let vlan = r#"{"fabric":"default","vid":0,"mtu":9000,"dhcp":{"enabled":true,"lease_time":"2h"}}"#;
    lab.api.declare("/api/v1/vlans/default.0", vlan).await;
    let told = rack.told(&lab, |it| it.subnets.first().is_some_and(|it| it.mtu == 9000)).await;
    assert_eq!((told.subnets[0].lease_seconds, told.subnets[0].gateway.as_str()), (7200, "10.77.0.1"));
    let amd64 = r#"{"vlan":"default.0","cidr":"10.77.0.0/24","boot":{"architectures":["amd64"]}}"#;
    lab.api.declare("/api/v1/subnets/lab", amd64).await;
    let told = rack.told(&lab, |it| it.subnets.first().is_some_and(|it| it.gateway.is_empty())).await;
    assert_eq!(told.subnets[0].architectures, ["amd64"]);
}

#[tokio::test]
async fn a_device_with_one_mac_gets_its_address_by_dhcp() {
    let lab = served().await;
    let rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let device = |macs: &[&str]| {
        json!({"macs": macs, "addresses": ["10.77.0.8", "10.77.0.9", "10.88.0.8"]}).to_string()
    };
    let reserved = |are: &'static [(&str, &str)]| {
        move |concern: &DhcpConcern| {
            let reserved = concern.subnets.iter().flat_map(|it| &it.reservations);
            reserved.map(|it| (it.mac.as_str(), it.address.as_str())).eq(are.iter().copied())
        }
    };
    lab.api.declare("/api/v1/devices/switch", &device(&["52:54:00:00:00:0a"])).await;
    rack.told(&lab, reserved(&[("52:54:00:00:00:0a", "10.77.0.8")])).await;
    // An IpAddress keeps another one for it.
    let kept = r#"{"subnet":"lab","address":"10.77.0.30","mac":"52:54:00:00:00:0a"}"#;
    lab.api.declare("/api/v1/ip_addresses/kept", kept).await;
    rack.told(&lab, reserved(&[("52:54:00:00:00:0a", "10.77.0.30")])).await;
    lab.api.delete("/api/v1/ip_addresses/kept").await;
    rack.told(&lab, reserved(&[("52:54:00:00:00:0a", "10.77.0.8")])).await;
    // Nothing says which of two interfaces has the address.
    lab.api.declare("/api/v1/devices/switch", &device(&["52:54:00:00:00:0a", "52:54:00:00:00:0b"])).await;
    rack.told(&lab, reserved(&[])).await;
}

#[tokio::test]
async fn where_another_server_gives_the_addresses_racks_give_none_and_boot_machines_all_the_same() {
    let lab = served().await;
    let rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    rack.told(&lab, has(&["10.77.0.100-10.77.0.199"])).await;
    let with = |boot: &str| {
        format!(r#"{{"vlan":"default.0","cidr":"10.77.0.0/24","gateway":"10.77.0.1","boot":{boot}}}"#)
    };
    let says = |boot: BootAnswers| {
        move |concern: &DhcpConcern| concern.subnets.first().is_some_and(|it: &DhcpSubnet| it.boot() == boot)
    };
    lab.api.declare("/api/v1/subnets/lab", &with(r#"{"mode":"proxy","architectures":["arm64"]}"#)).await;
    let told = rack.told(&lab, says(BootAnswers::Proxy)).await;
    assert_eq!(told.subnets[0].architectures, ["arm64"]);
    rack.told(&lab, has(&[])).await;
    lab.api.declare("/api/v1/subnets/lab", &with(r#"{"mode":"none"}"#)).await;
    rack.told(&lab, says(BootAnswers::None)).await;
    rack.told(&lab, has(&["10.77.0.100-10.77.0.199"])).await;
}

#[tokio::test]
async fn uefi_is_told_the_loader_of_the_vlan_and_else_that_of_settings() {
    let lab = served().await;
    let subnet = r#"{"vlan":"default.0","cidr":"2001:db8::/64"}"#;
    lab.api.declare("/api/v1/subnets/lab6", subnet).await;
    let rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let hello = Hello { addresses: vec!["10.77.0.2/24".into(), "2001:db8::2/64".into()], ..Hello::default() };
    let hello = fact(0, rack.uid.into(), &Observed::Hello(hello));
    lab.region.store().store_own_fact(&hello).await.expect("it is stored");
    let all = |loader: BootLoader| {
        move |concern: &DhcpConcern| {
            let v4 = concern.subnets.first().map(DhcpSubnet::loader);
            let v6 = concern.subnets6.first().map(Dhcp6Subnet::loader);
            (v4, v6) == (Some(loader), Some(loader))
        }
    };
    rack.told(&lab, all(BootLoader::Unspecified)).await;
    lab.api.declare("/api/v1/settings/default", r#"{"loader":"shim_grub"}"#).await;
    rack.told(&lab, all(BootLoader::ShimGrub)).await;
    let vlan = |loader: &str| format!(r#"{{"fabric":"default","vid":0,"dhcp":{{"enabled":true}}{loader}}}"#);
    lab.api.declare("/api/v1/vlans/default.0", &vlan(r#","loader":"ipxe""#)).await;
    rack.told(&lab, all(BootLoader::Unspecified)).await;
    lab.api.declare("/api/v1/vlans/default.0", &vlan("")).await;
    rack.told(&lab, all(BootLoader::ShimGrub)).await;
}

/// The names of the discoveries, with the reasons of their conditions Stalled.
async fn discoveries(lab: &Lab) -> Vec<(String, String)> {
    let listed = lab.api.get("/api/v1/discoveries").await.json();
    let items = listed["items"].as_array().expect("a list").iter();
    let stalled = |item: &Value| {
        let conditions = item["status"]["conditions"].as_array().expect("conditions").iter();
        conditions.filter(|it| it["type"] == "Stalled").map(|it| it["reason"].to_string()).collect()
    };
    items.map(|item| (item["metadata"]["name"].as_str().expect("a name").to_owned(), stalled(item))).collect()
}

async fn until_discovered(lab: &Lab, expected: &[(&str, &str)]) {
    let mut woken = lab.region.store().woken();
    let look = async {
        loop {
            let found = discoveries(lab).await;
            if found
                .iter()
                .map(|(name, reason)| (name.as_str(), reason.as_str()))
                .eq(expected.iter().copied())
            {
                return;
            }
            woken.changed().await.expect("the store lives");
        }
    };
    let found = tokio::time::timeout(PATIENCE, look).await;
    if found.is_err() {
        panic!("{expected:?} expected, found {:?}", discoveries(lab).await);
    }
}

#[tokio::test]
async fn a_dhcp_server_that_nobody_declared_is_a_discovery_until_it_is_known() {
    let lab = served().await;
    let mut rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let other = Played::come(&lab, "r2", "10.77.0.3/24").await;
    // A client names the rack by the address at which it chose the rack.
    other.introduce(&lab, &["10.77.0.33/24"]).await;
    let subnet = lab.region.store().get("Subnet", Key::Name("lab")).await.expect("a subnet").uid.to_string();
    for address in ["10.77.0.3", "10.77.0.33", "10.77.0.9", "10.77.0.10"] {
        let (address, subnet_uid) = (address.into(), subnet.as_str().into());
        let server = DhcpServer { address, subnet_uid, seen: "it offered an address".into() };
        rack.says(&lab, &Observed::DhcpServer(server)).await;
    }
    let rogue = "\"RogueDhcp\"";
    let [nine, ten] = ["dhcp-10-77-0-9-lab", "dhcp-10-77-0-10-lab"];
    // The other rack is not reported, at either of its addresses.
    until_discovered(&lab, &[(ten, rogue), (nine, rogue)]).await;
    let found = lab.api.get(&format!("/api/v1/discoveries/{nine}")).await.json();
    let status = &found["status"];
    assert_eq!(
        (&status["sort"], &status["addresses"], &status["vlan"], &status["racks"]),
        (&json!("rogue_dhcp"), &json!(["10.77.0.9"]), &json!("default.0"), &json!(["r1"]))
    );
    assert!(
        status["first_seen_at"] == status["last_seen_at"] && status["last_seen_at"].is_string(),
        "{status}"
    );

    lab.api.declare("/api/v1/devices/router", r#"{"addresses":["10.77.0.10"]}"#).await;
    until_discovered(&lab, &[(nine, rogue)]).await;
    let beside =
        r#"{"vlan":"default.0","cidr":"10.77.0.0/24","gateway":"10.77.0.1","boot":{"mode":"proxy"}}"#;
    lab.api.declare("/api/v1/subnets/lab", beside).await;
    until_discovered(&lab, &[]).await;
}

#[tokio::test]
async fn racks_are_told_the_ntp_servers_of_settings_and_machines_are_told_their_racks() {
    let lab = served().await;
    let r1 = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let of_host = r1.told_of::<TimeConcern>("time", &lab, |_| true).await;
    assert_eq!(of_host, TimeConcern { host_servers: true, ..TimeConcern::default() });
    let r2 = Played::come(&lab, "r2", "10.77.0.3/24").await;
    let ntp = |concern: &DhcpConcern| subnet_of(concern, "10.77.0.0/24").unwrap_or_default().ntp_servers;
    // Each rack names itself first.
    r1.told(&lab, |it| ntp(it) == ["10.77.0.2", "10.77.0.3"]).await;
    r2.told(&lab, |it| ntp(it) == ["10.77.0.3", "10.77.0.2"]).await;

    let settings = r#"{"ntp_servers":["ntp.example.com","192.0.2.1"]}"#;
    lab.api.declare("/api/v1/settings/default", settings).await;
    let servers = || vec!["ntp.example.com".to_owned(), "192.0.2.1".to_owned()];
    let declared = |rank| TimeConcern { servers: servers(), host_servers: false, rank };
    let mut ranks = Vec::new();
    for rack in [&r1, &r2] {
        let told = rack.told_of::<TimeConcern>("time", &lab, |it| !it.host_servers).await;
        assert_eq!(told, declared(told.rank));
        ranks.push(told.rank);
    }
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1], "no two racks have one rank");

    let none = r#"{"vlan":"default.0","cidr":"10.77.0.0/24","gateway":"10.77.0.1","ntp_servers":[]}"#;
    lab.api.declare("/api/v1/subnets/lab", none).await;
    r1.told(&lab, |it| ntp(it).is_empty()).await;
}

#[tokio::test]
async fn racks_are_told_who_may_use_their_proxy_and_what_it_asks() {
    let lab = served().await;
    let r1 = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let own = "10.77.0.2/32".to_owned();
    let told = r1.told_of::<ProxyConcern>("proxy", &lab, |it| it.denied.contains(&own)).await;
    assert_eq!((told.enabled, &told.clients[..]), (true, &["10.77.0.0/24".to_owned()][..]));

    let upstream = "http://proxy.example.com:3128";
    let settings = format!(r#"{{"proxy":{{"upstream":"{upstream}"}},"bmc_networks":["10.9.0.0/24"]}}"#);
    lab.api.declare("/api/v1/settings/default", &settings).await;
    let told = r1.told_of::<ProxyConcern>("proxy", &lab, |it| it.upstream == upstream).await;
    assert!(told.denied.contains(&"10.9.0.0/24".to_owned()), "{told:?}");
    assert_eq!(told.via(), ProxyVia::PreferRegion, "nothing is declared");
    for (word, via) in [
        ("region", ProxyVia::Region),
        ("direct", ProxyVia::Unspecified),
        ("prefer_region", ProxyVia::PreferRegion),
    ] {
        let settings = format!(r#"{{"proxy":{{"via":"{word}"}}}}"#);
        lab.api.declare("/api/v1/settings/default", &settings).await;
        r1.told_of::<ProxyConcern>("proxy", &lab, |it| it.via() == via).await;
    }
    let closed = r#"{"vlan":"default.0","cidr":"10.77.0.0/24","gateway":"10.77.0.1","allow_proxy":false}"#;
    lab.api.declare("/api/v1/subnets/lab", closed).await;
    r1.told_of::<ProxyConcern>("proxy", &lab, |it| it.clients.is_empty()).await;
    lab.api.declare("/api/v1/settings/default", r#"{"proxy":{"enabled":false}}"#).await;
    r1.told_of::<ProxyConcern>("proxy", &lab, |it| !it.enabled).await;

    let tls = r#"{"spec":{"proxy":{"upstream":"https://proxy.example.com"}}}"#;
    let (status, _, errors) = lab.api.put("/api/v1/settings/default", tls).await.problem();
    assert!(status == 422 && errors[0].starts_with("/spec/proxy/upstream: "), "{errors:?}");
}

/// A /64 has more addresses than 64 bits can count.
#[tokio::test]
async fn racks_share_a_range_of_ipv6_and_know_its_reservations() {
    let lab = served().await;
    let subnet = r#"{"vlan":"default.0","cidr":"2001:db8::/64","dns_servers":["2001:db8::53"]}"#;
    lab.api.declare("/api/v1/subnets/lab6", subnet).await;
    let pool = r#"{"subnet":"lab6","start":"2001:db8::1:0","end":"2001:db8::ffff:ffff:ffff:ffff"}"#;
    lab.api.declare("/api/v1/ip_ranges/pool6", pool).await;
    let printer = r#"{"subnet":"lab6","address":"2001:db8::9","mac":"52:54:00:00:00:09"}"#;
    lab.api.declare("/api/v1/ip_addresses/printer6", printer).await;
    let hidden = r#"{"subnet":"lab6","address":"2001:db8::8","duid":"00-04-AB-CD","hostname":"hidden"}"#;
    lab.api.declare("/api/v1/ip_addresses/hidden6", hidden).await;
    let dynamic = |concern: &DhcpConcern| -> Vec<String> {
        let ranges = concern.subnets6.iter().flat_map(|it| it.dynamic.clone());
        ranges.map(|range| format!("{}-{}", range.start, range.end)).collect()
    };
    let mut r1 = Played::come(&lab, "r1", "2001:db8::2/64").await;
    let whole = r1.told(&lab, |it| !dynamic(it).is_empty()).await;
    assert_eq!(dynamic(&whole), ["2001:db8::1:0-2001:db8::ffff:ffff:ffff:ffff"]);
    let told = &whole.subnets6[0];
    assert!(whole.subnets.is_empty(), "it has no address of IPv4");
    assert_eq!((told.cidr.as_str(), told.rapid_commit), ("2001:db8::/64", true));
    assert_eq!(told.link, "default.0", "with which other subnets it shares a link");
    assert_eq!(told.dns_servers, ["2001:db8::53"]);
    assert_eq!(told.ntp_servers, ["2001:db8::2"]);
    let by_mac = Dhcp6Reservation {
        mac: "52:54:00:00:00:09".into(),
        address: "2001:db8::9".into(),
        ..Dhcp6Reservation::default()
    };
    let by_duid = Dhcp6Reservation {
        duid: "00:04:ab:cd".into(),
        address: "2001:db8::8".into(),
        hostname: "hidden".into(),
        ..Dhcp6Reservation::default()
    };
    assert_eq!(told.reservations, [by_mac, by_duid]);
    r1.obeys(&lab, &whole, Vec::new()).await;
    let r2 = Played::come(&lab, "r2", "2001:db8::3/64").await;
    let half = r1.told(&lab, |it| dynamic(it) != dynamic(&whole)).await;
    assert_eq!(dynamic(&half), ["2001:db8::1:0-2001:db8::8000:0:0:7fff"]);
    assert!(!half.subnets6[0].rapid_commit, "each would lease an address");
    assert_eq!(half.subnets6[0].ntp_servers, ["2001:db8::2", "2001:db8::3"]);
    r1.obeys(&lab, &half, Vec::new()).await;
    let rest = r2.told(&lab, |it| !dynamic(it).is_empty()).await;
    assert_eq!(dynamic(&rest), ["2001:db8::8000:0:0:8000-2001:db8::ffff:ffff:ffff:ffff"]);
    assert_eq!(rest.subnets6[0].reservations, half.subnets6[0].reservations, "both know them");
    let blocks = lab.api.get("/api/v1/ip_ranges/pool6").await.json()["status"]["blocks"].clone();
    assert_eq!(blocks.as_object().map(serde_json::Map::len), Some(2), "{blocks}");
}

#[tokio::test]
async fn a_rack_is_told_the_architecture_that_a_machine_is_declared_with() {
    let lab = served().await;
    let r1 = Played::come(&lab, "r1", "10.77.0.2/24").await;
    for architecture in ["amd64", "arm64"] {
        let machine = format!(
            r#"{{"architecture":"{architecture}","boot_macs":["52:54:00:00:00:01"],"commissioning":{{"skip":true}}}}"#
        );
        lab.api.declare("/api/v1/machines/m", &machine).await;
        r1.told_of("known", &lab, move |it: &KnownConcern| {
            it.machines.len() == 1 && it.machines[0].architecture == architecture
        })
        .await;
    }
}

#[tokio::test]
async fn a_rack_is_told_the_networks_of_the_vlan_where_a_machine_booted_last_or_has_an_address_of_its_own() {
    let lab = served().await;
    lab.api
        .declare("/api/v1/vlans/default.8", r#"{"fabric":"default","vid":8,"dhcp":{"enabled":true}}"#)
        .await;
    for (name, spec) in [
        ("second", r#"{"vlan":"default.0","cidr":"2001:db8:77::/64"}"#),
        ("other", r#"{"vlan":"default.8","cidr":"10.78.0.0/24"}"#),
        ("silent", r#"{"vlan":"default.8","cidr":"10.79.0.0/24","boot":{"mode":"none"}}"#),
    ] {
        lab.api.declare(&format!("/api/v1/subnets/{name}"), spec).await;
    }
    let machine = r#"{"boot_macs":["52:54:00:00:00:01"],"commissioning":{"skip":true}}"#;
    lab.api.declare("/api/v1/machines/m", machine).await;
    let r1 = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let networks = |are: &'static [&'static str]| {
        move |it: &KnownConcern| it.machines.len() == 1 && it.machines[0].networks == are
    };
    r1.told_of("known", &lab, networks(&[])).await;

    let reserved = |subnet: &str, address: &str| {
        format!(r#"{{"subnet":"{subnet}","address":"{address}","mac":"52:54:00:00:00:01"}}"#)
    };
    lab.api.declare("/api/v1/ip_addresses/quiet", &reserved("silent", "10.79.0.9")).await;
    r1.told_of("known", &lab, networks(&[])).await;
    let uid = lab.region.store().get("Machine", Key::Name("m")).await.expect("a machine").uid;
    let claim = Claim { address: "10.77.0.9".into(), boot_id: "b".into() };
    lab.region.store().store_own_fact(&fact(0, uid, &Observed::Claim(claim))).await.expect("it is stored");
    lab.api.declare("/api/v1/machines/m", &machine.replace("true}}", r#"true},"description":"here"}"#)).await;
    r1.told_of("known", &lab, networks(&["10.77.0.0/24", "2001:db8:77::/64"])).await;

    // The machine was moved: its declared addresses decide where it may boot.
    lab.api.declare("/api/v1/ip_addresses/moved", &reserved("other", "10.78.0.9")).await;
    let all = networks(&["10.77.0.0/24", "10.78.0.0/24", "10.79.0.0/24", "2001:db8:77::/64"]);
    r1.told_of("known", &lab, all).await;
}
