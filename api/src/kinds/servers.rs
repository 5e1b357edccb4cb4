//! The rule for addresses of servers that hosts or racks ask: DNS and NTP.

use crate::pointer::child;
use crate::validate::Rule;
use crate::values::is_unicast;
use std::net::IpAddr;

/// Refuses addresses that are not one server's: unspecified, multicast, broadcast, loopback. A loopback address would be each host's own.
/// `field` is the pointer to the list. `None` is a server that is declared by name.
pub(super) fn rules(field: &str, servers: impl IntoIterator<Item = Option<IpAddr>>, rule: &mut Rule<'_>) {
    for (place, server) in servers.into_iter().enumerate() {
        let Some(address) = server.map(|it| it.to_canonical()) else { continue };
        if !is_unicast(address) {
            rule.broken(
                child(field, &place.to_string()),
                format!("{address} is the address of no server that others reach"),
                "the server's own address",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Kind;
    use serde_json::{Value, json};

    /// A spec with a list of servers.
    type Spec = fn(Vec<&str>) -> Value;

    fn wrong(kind: &str, spec: &Value) -> Vec<String> {
        let errors = crate::validate(Kind::find(kind).unwrap(), spec);
        assert!(
            errors
                .iter()
                .all(|error| error.message.ends_with("is the address of no server that others reach"))
        );
        errors.into_iter().map(|error| error.pointer).collect()
    }

    #[test]
    fn each_field_of_servers_refuses_addresses_that_no_server_has() {
        let bad = [
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "127.0.0.53",
            "::",
            "::1",
            "ff02::1",
            "::ffff:0.0.0.0",
        ];
        let servers =
            |first: &'static str| -> Vec<&'static str> { std::iter::once(first).chain(bad).collect() };
        let fields: [(&str, &str, Spec); 7] = [
            (
                "Subnet",
                "/dns_servers",
                |all| json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "dns_servers": all}),
            ),
            (
                "Subnet",
                "/ntp_servers",
                |all| json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "ntp_servers": all}),
            ),
            (
                "Deployment",
                "/network/dns_servers",
                |all| json!({"image": "debian", "machine": "m", "network": {"dns_servers": all}}),
            ),
            (
                "Machine",
                "/network/dns_servers",
                |all| json!({"boot_macs": ["52:54:00:00:00:01"], "network": {"dns_servers": all}}),
            ),
            ("Domain", "/forward_to", |all| json!({"authoritative": false, "forward_to": all})),
            ("Settings", "/upstream_dns", |all| json!({"upstream_dns": all})),
            ("Settings", "/ntp_servers", |all| json!({"ntp_servers": all})),
        ];
        for (kind, field, spec) in fields {
            for good in ["10.77.0.2", "169.254.0.1", "2001:db8::1", "fe80::1"] {
                let expected: Vec<_> = (1..=bad.len()).map(|place| format!("{field}/{place}")).collect();
                assert_eq!(wrong(kind, &spec(servers(good))), expected, "{kind}");
            }
        }
        let named = json!({"ntp_servers": ["ntp.example.com"]});
        assert_eq!(wrong("Settings", &named), [""; 0]);
    }
}
