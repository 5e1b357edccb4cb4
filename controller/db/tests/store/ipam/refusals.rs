//! Invalid states of addresses: the database refuses them, and the errors tell clients why.

use super::{has, new_subnet, refused, subnet, wish};
use crate::common::{network, open, put, store};
use basalt_db::{AddressWish, Addressed};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

#[tokio::test]
async fn the_database_itself_refuses_what_would_be_wrong() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    network(&store).await;
    let dynamic = json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.199"});
    put(&store, "IpRange", "pool", dynamic).await.unwrap();
    let reserved = json!({"subnet": "lab", "start": "10.77.0.0", "end": "10.77.0.9", "purpose": "reserved"});
    put(&store, "IpRange", "kept", reserved).await.unwrap();
    put(&store, "IpAddress", "vip", json!({"subnet": "lab", "address": "10.77.0.20"})).await.unwrap();
    put(&store, "IpRange", "spare", json!({"subnet": "lab", "start": "10.77.0.210", "end": "10.77.0.211"}))
        .await
        .unwrap();
    put(&store, "Zone", "z", json!({})).await.unwrap();

    let mut db = PgConnection::connect(&url).await.unwrap();
    let own = |address: &str| {
        format!(
            "insert into address (subnet, address, owner, purpose)
             select s.uid, '{address}', z.uid, 'x' from object s, object z where s.name = 'lab' and z.name = 'z'"
        )
    };
    let range = |first: &str, last: &str, purpose: &str| {
        format!(
            "update ip_range set span = inetrange('{first}', '{last}', '[]'), purpose = '{purpose}'
                 where range = (select uid from object where name = 'spare')"
        )
    };
    let cases = [
        (own("10.77.0.20"), "address_pkey"),
        (own("10.77.0.1"), "address_pkey"),
        (own("10.77.0.0"), "address_span_owners"),
        (own("10.77.0.255"), "address_span_owners"),
        (own("10.77.0.100"), "address_span_owners"),
        (own("10.77.0.199"), "address_span_owners"),
        (own("10.77.1.20"), "address_span_owners"),
        (own("10.76.255.255"), "address_span_owners"),
        (own("fd00::1"), "address_span_owners"),
        (own("10.77.0.20/24"), "address_address_check"),
        (range("10.77.0.199", "10.77.0.205", "dynamic"), "ip_range_disjoint"),
        (range("10.77.0.9", "10.77.0.12", "reserved"), "ip_range_disjoint"),
        (range("10.77.0.15", "10.77.0.25", "dynamic"), "address_span_owners"),
        (range("10.77.0.250", "10.77.0.255", "dynamic"), "address_span_owners"),
        (range("10.77.0.250", "10.77.1.3", "reserved"), "address_span_ranges"),
        (
            "update ip_range set purpose = 'dynamic' where purpose = 'reserved'".to_owned(),
            "address_span_owners",
        ),
        (
            "update address set class = 'gateway' where class = 'static'".to_owned(),
            "address_gateway_is_the_subnet_s",
        ),
        (
            "update address set class = 'static' where class = 'gateway'".to_owned(),
            "address_gateway_is_the_subnet_s",
        ),
    ];
    for (statement, constraint) in cases {
        let error = db.execute(AssertSqlSafe(statement.clone())).await.expect_err(&statement);
        let found = error.as_database_error().and_then(|e| e.constraint()).map(str::to_owned);
        assert_eq!(found.as_deref(), Some(constraint), "{statement}: {error}");
    }
    for (statement, why) in [
        (own("10.77.0.2"), "an address of a reserved range can be asked for by name"),
        (range("10.77.0.15", "10.77.0.25", "reserved"), "what is owned can be reserved"),
    ] {
        db.execute(AssertSqlSafe(statement)).await.expect(why);
    }
}

#[tokio::test]
async fn what_stands_against_an_address_is_said_in_words() {
    let store = store().await;
    network(&store).await;
    put(&store, "IpRange", "pool", json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.199"}))
        .await
        .unwrap();
    let vip = json!({"subnet": "lab", "address": "10.77.0.20", "mac": "52:54:00:00:00:01"});
    put(&store, "IpAddress", "vip", vip).await.unwrap();
    let address = |address: &str| json!({"subnet": "lab", "address": address});
    let range = |start: &str, end: &str| json!({"subnet": "lab", "start": start, "end": end});
    let lab = |gateway: &str| json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gateway": gateway});
    let cases = [
        (
            "IpAddress",
            "x",
            address("10.77.0.20"),
            "/address: 10.77.0.20 is the address of IpAddress \"vip\" already",
        ),
        (
            "IpAddress",
            "x",
            address("10.77.0.1"),
            "/address: 10.77.0.1 is the gateway of Subnet \"lab\" already",
        ),
        (
            "IpAddress",
            "x",
            address("10.77.0.150"),
            "/address: 10.77.0.150 is in 10.77.0.100-10.77.0.199 of IpRange \"pool\", which DHCP leases to whoever asks",
        ),
        (
            "IpAddress",
            "x",
            address("10.77.0.0"),
            "/address: 10.77.0.0 is the network address of 10.77.0.0/24",
        ),
        (
            "IpAddress",
            "x",
            address("10.77.0.255"),
            "/address: 10.77.0.255 is the broadcast address of 10.77.0.0/24",
        ),
        (
            "IpAddress",
            "x",
            address("10.78.0.1"),
            "/address: 10.78.0.1 is outside 10.77.0.0/24 of Subnet \"lab\"",
        ),
        ("IpAddress", "x", address("fd00::1"), "/address: fd00::1 is outside 10.77.0.0/24 of Subnet \"lab\""),
        (
            "IpAddress",
            "x",
            json!({"subnet": "lab", "mac": "52:54:00:00:00:01"}),
            "/mac: 52:54:00:00:00:01 has 10.77.0.20 of this subnet already: IpAddress \"vip\"",
        ),
        (
            "IpRange",
            "x",
            range("10.77.0.20", "10.77.0.30"),
            "/start: 10.77.0.20-10.77.0.30 holds 10.77.0.20, the address of IpAddress \"vip\"",
        ),
        (
            "IpRange",
            "x",
            range("10.77.0.1", "10.77.0.9"),
            "/start: 10.77.0.1-10.77.0.9 holds 10.77.0.1, the gateway of Subnet \"lab\"",
        ),
        (
            "IpRange",
            "x",
            range("10.77.0.250", "10.77.0.255"),
            "/end: 10.77.0.255 is the broadcast address of 10.77.0.0/24, and DHCP cannot lease it",
        ),
        (
            "Subnet",
            "lab",
            lab("10.77.0.20"),
            "/gateway: 10.77.0.20 is the address of IpAddress \"vip\" already",
        ),
        (
            "Subnet",
            "lab",
            lab("10.77.0.150"),
            "/gateway: 10.77.0.150 is in 10.77.0.100-10.77.0.199 of IpRange \"pool\", which DHCP leases to whoever asks",
        ),
    ];
    for (kind, name, spec, expected) in cases {
        assert_eq!(refused(&store, kind, name, spec.clone()).await, [expected], "{kind} {spec}");
    }
    let owner = put(&store, "Zone", "z", json!({})).await.unwrap().object.uid;
    let wish = AddressWish {
        address: "10.77.0.150".parse().ok(),
        ..wish(subnet(&store, "lab").await, owner, "eth0")
    };
    let Addressed::Refused(why) = store.own_address(&wish).await.unwrap() else { panic!("given") };
    assert!(why.starts_with("10.77.0.150 is in 10.77.0.100-10.77.0.199"), "{why}");
}

#[tokio::test]
async fn a_duid_is_an_ipv6_host_s_and_has_one_address_of_a_subnet() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    network(&store).await;
    new_subnet(&store, "lab6", "2001:db8::/64").await;
    new_subnet(&store, "far6", "2001:db8:1::/64").await;
    let of = |subnet: &str, duid: &str| json!({"subnet": subnet, "duid": duid});
    put(&store, "IpAddress", "nas", of("lab6", "00-04-AB-CD")).await.unwrap();
    put(&store, "IpAddress", "far", of("far6", "00:04:ab:cd")).await.unwrap();
    let nas = has(&store, "nas").await;
    let taken = format!("/duid: 00:04:ab:cd has {nas} of this subnet already: IpAddress \"nas\"");
    assert_eq!(refused(&store, "IpAddress", "x", of("lab6", "0004abcd")).await, [taken]);
    let of_ipv4 = "/duid: Subnet \"lab\" is 10.77.0.0/24, and DHCP of IPv4 knows no DUIDs";
    assert_eq!(refused(&store, "IpAddress", "x", of("lab", "00:04:01")).await, [of_ipv4]);
    let named = json!({"subnet": "lab", "address": "10.77.0.20", "duid": "00:04:01"});
    assert_eq!(refused(&store, "IpAddress", "x", named).await, [of_ipv4]);
    let moved = json!({"subnet": "lab6", "address": "2001:db8::20", "duid": "00:04:AB:CD"});
    put(&store, "IpAddress", "nas", moved).await.unwrap();
    let mut found = super::addresses(&store).await.into_iter();
    let found = found.find(|it| it.address.to_string() == "2001:db8::20").unwrap();
    assert_eq!(found.duid.map(|duid| duid.to_string()).as_deref(), Some("00:04:ab:cd"));
    put(&store, "IpAddress", "other", of("lab6", "00:04:ab:ce")).await.unwrap();

    let mut db = PgConnection::connect(&url).await.unwrap();
    let change = |name: &str, columns: &str| {
        format!("update address set {columns} where owner = (select uid from object where name = '{name}')")
    };
    put(&store, "IpAddress", "old", json!({"subnet": "lab"})).await.unwrap();
    for (statement, constraint) in [
        (change("other", "duid = '\\x0004abcd'"), "address_duid_once"),
        (change("other", "mac = '52:54:00:00:00:01'"), "address_mac_or_duid"),
        (change("other", "duid = '\\x0004'"), "address_duid_length"),
        (change("old", "duid = '\\x0004abcd'"), "address_duid_ipv6"),
    ] {
        let error = db.execute(AssertSqlSafe(statement.clone())).await.expect_err(&statement);
        let found = error.as_database_error().and_then(|e| e.constraint()).map(str::to_owned);
        assert_eq!(found.as_deref(), Some(constraint), "{statement}: {error}");
    }
}

#[tokio::test]
async fn a_route_s_router_and_a_dynamic_range_are_apart() {
    let store = store().await;
    network(&store).await;
    let route =
        |gateway: &str| json!({"source": "lab", "destination_cidr": "192.0.2.0/24", "gateway": gateway});
    let range = |end: &str| json!({"subnet": "lab", "start": "10.77.0.100", "end": end});
    put(&store, "IpRange", "pool", range("10.77.0.199")).await.unwrap();
    let leased = "/gateway: 10.77.0.150 is in 10.77.0.100-10.77.0.199 of IpRange \"pool\", which DHCP leases to whoever asks";
    assert_eq!(refused(&store, "StaticRoute", "out", route("10.77.0.150")).await, [leased]);
    put(&store, "StaticRoute", "out", route("10.77.0.200")).await.unwrap();
    let holds = "/start: 10.77.0.100-10.77.0.220 holds 10.77.0.200, the gateway of StaticRoute \"out\"";
    assert_eq!(refused(&store, "IpRange", "pool", range("10.77.0.220")).await, [holds]);
    put(&store, "IpRange", "pool", range("10.77.0.120")).await.unwrap();
    put(&store, "StaticRoute", "out", route("10.77.0.150")).await.expect("the range is smaller now");
}
