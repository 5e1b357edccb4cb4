//! Checks routes against the addresses, and address families, of their interfaces.

use super::contradictions::{Known, Links, rule};
use super::{Addressing, NetworkConfig, RouteConfig};
use crate::pointer::child;
use crate::problem::FieldError;
use crate::values::{Cidr, Reach, is_link_local, is_unicast};
use std::collections::BTreeMap;
use std::net::IpAddr;

impl NetworkConfig {
    pub(super) fn judge_routes(&self, links: &Links<'_>, found: &mut Vec<FieldError>) {
        let own: BTreeMap<IpAddr, &str> = links
            .values()
            .flat_map(|it| it.declared.iter().map(|address| (*address, it.link.name)))
            .collect();
        let mut seen = BTreeMap::new();
        for (name, route) in &self.routes {
            let at = child("/network/routes", name);
            if let Some(other) = seen.insert((route.destination, route.metric), name) {
                found.push(rule(
                    child(&at, "metric"),
                    format!("route {other:?} leads to {} with the same metric", route.destination),
                    "another metric for each: Linux keeps one route of a destination and a metric",
                ));
            }
            if !is_unicast(route.gateway) {
                let message = format!("{} is not the address of a router", route.gateway);
                found.push(rule(child(&at, "gateway"), message, "the router's address"));
            } else if let Some(interface) = own.get(&route.gateway) {
                let message = format!("{} is the address of {interface:?} itself", route.gateway);
                found.push(rule(child(&at, "gateway"), message, "the router's address"));
            } else if let Some(known) = links.get(route.interface.as_str()) {
                found.extend(misfit(route, known, &at));
            }
        }
    }
}

/// The error if the interface cannot reach the router, or does not need it.
fn misfit(route: &RouteConfig, known: &Known<'_>, at: &str) -> Option<FieldError> {
    let (name, gateway) = (known.link.name, route.gateway);
    if gateway.is_ipv4() != route.destination.network().is_ipv4() {
        return None;
    }
    if known.link.addressing == Addressing::LinkUp {
        let message = format!(
            "{name:?} has addressing \"link_up\", and a route leaves by an interface with an address"
        );
        return Some(rule(child(at, "interface"), message, "an interface with an address"));
    }
    // Every interface with an address also has a link-local IPv6 address.
    let is_near = gateway.is_ipv6() && is_link_local(gateway);
    if !is_near && !known.families.has(gateway) && !known.unknown.has(gateway) {
        let family = if gateway.is_ipv4() { "IPv4" } else { "IPv6" };
        let message = format!("the router is {gateway}, and interface {name:?} has no {family} address");
        let hint = format!("give {name} an address of the router's family, or name another router");
        return Some(rule(child(at, "gateway"), message, hint));
    }
    let networks = || known.subnets.iter().map(|subnet| subnet.cidr);
    if let Some(cidr) = networks().find(|cidr| *cidr == route.destination) {
        let message = format!("interface {name:?} is in {cidr} itself");
        return Some(rule(child(at, "destination"), message, "leave the route out: no router is needed"));
    }
    let is_reached = route.on_link
        || is_near
        || known.unknown.has(gateway)
        || networks().any(|cidr| cidr.reach(gateway).is_some());
    if is_reached {
        return None;
    }
    let networks: Vec<_> = networks()
        .filter(|cidr| cidr.network().is_ipv4() == gateway.is_ipv4())
        .map(|it| it.to_string())
        .collect();
    let message =
        format!("the router {gateway} is in no network of interface {name:?}: {}", networks.join(", "));
    let hint = "a router in one of them; on_link = true if it is a neighbour on the link all the same";
    Some(rule(child(at, "gateway"), message, hint))
}

/// True if a host with addresses of these networks reaches the router only as a neighbour on the link. Linux needs `onlink` then.
#[must_use]
pub fn is_on_link(networks: &[Cidr], router: IpAddr) -> bool {
    let reach = || networks.iter().filter_map(|network| network.reach(router));
    let is_link_local = router.is_ipv4() && is_link_local(router);
    let is_inside = reach().any(|it| it == Reach::Network);
    !is_inside && (is_link_local || reach().next().is_some())
}

#[cfg(test)]
mod tests {
    use super::super::SubnetFacts;
    use super::super::rules::tests::wrong;
    use super::*;
    use serde_json::{Value, json};

    /// Errors of a network with one route, whose interface has an address of this subnet.
    fn judged(cidr: &str, route: Value) -> Vec<String> {
        let mut all = json!({"interface": "eth0", "destination": "0.0.0.0/0"});
        all.as_object_mut().unwrap().extend(route.as_object().unwrap().clone());
        let network: NetworkConfig =
            serde_json::from_value(json!({"interfaces": {"eth0": {"subnet": "lab"}}, "routes": {"r": all}}))
                .unwrap();
        let subnet = SubnetFacts { cidr: cidr.parse().unwrap(), mtu: 1500 };
        let errors = network.contradictions(&|_| Some(subnet));
        errors.iter().map(|e| format!("{}: {}", e.pointer.replacen("/network", "", 1), e.message)).collect()
    }

    #[test]
    fn a_router_is_in_a_network_of_the_interface_or_on_its_link() {
        for (cidr, gateway) in [
            ("10.77.0.0/24", "10.77.0.1"),
            ("10.77.0.0/24", "169.254.0.1"),
            ("203.0.113.7/32", "203.0.113.1"),
            ("203.0.113.7/32", "169.254.0.1"),
        ] {
            assert_eq!(judged(cidr, json!({"gateway": gateway})), [""; 0], "{gateway} from {cidr}");
        }
        let away = json!({"gateway": "10.78.0.1"});
        assert_eq!(
            judged("10.77.0.0/24", away),
            [r#"/routes/r/gateway: the router 10.78.0.1 is in no network of interface "eth0": 10.77.0.0/24"#]
        );
        assert_eq!(judged("10.77.0.0/24", json!({"gateway": "10.78.0.1", "on_link": true})), [""; 0]);
    }

    #[test]
    fn a_router_is_of_a_family_of_the_interface() {
        let six = |gateway: &str| json!({"destination": "::/0", "gateway": gateway});
        assert_eq!(judged("10.77.0.0/24", six("fe80::1")), [""; 0]);
        let message =
            r#"/routes/r/gateway: the router is 2001:db8::1, and interface "eth0" has no IPv6 address"#;
        assert_eq!(judged("10.77.0.0/24", six("2001:db8::1")), [message]);
        let route = |addressing: &str| {
            wrong(&json!({"interfaces": {"eth0": {"addressing": addressing}}, "routes": {"r":
                {"interface": "eth0", "destination": "::/0", "gateway": "2001:db8::1"}}}))
        };
        assert_eq!(route("dhcp"), [message]);
        assert_eq!(route("slaac"), [""; 0]);
    }

    #[test]
    fn a_route_leaves_by_an_interface_with_an_address_and_not_to_itself() {
        let route = |addressing: Value, gateway: &str| {
            wrong(&json!({"interfaces": {"eth0": addressing}, "routes": {"r":
                {"interface": "eth0", "destination": "192.0.2.0/24", "gateway": gateway}}}))
        };
        let message = r#"/routes/r/interface: "eth0" has addressing "link_up", and a route leaves by an interface with an address"#;
        assert_eq!(route(json!({"addressing": "link_up"}), "10.77.0.1"), [message]);
        let fixed = json!({"addressing": "static", "address": "10.77.0.9"});
        assert_eq!(
            route(fixed.clone(), "10.77.0.9"),
            [r#"/routes/r/gateway: 10.77.0.9 is the address of "eth0" itself"#]
        );
        assert_eq!(
            route(fixed, "224.0.0.9"),
            ["/routes/r/gateway: 224.0.0.9 is not the address of a router"]
        );
        let own = json!({"destination": "10.77.0.0/24", "gateway": "10.77.0.1"});
        let message = r#"/routes/r/destination: interface "eth0" is in 10.77.0.0/24 itself"#;
        assert_eq!(judged("10.77.0.0/24", own), [message]);
    }

    #[test]
    fn two_routes_to_one_destination_have_two_metrics() {
        let routes = |metric: Value| {
            let route = |gateway: &str, metric: &Value| json!({"interface": "eth0", "destination": "0.0.0.0/0", "gateway": gateway, "metric": metric});
            let routes = json!({"a": route("10.77.0.1", &json!(null)), "b": route("10.77.0.2", &metric)});
            wrong(&json!({"interfaces": {"eth0": {"addressing": "dhcp"}}, "routes": routes}))
        };
        assert_eq!(routes(json!(50)), [""; 0]);
        assert_eq!(
            routes(json!(null)),
            [r#"/routes/b/metric: route "a" leads to 0.0.0.0/0 with the same metric"#]
        );
    }

    #[test]
    fn on_link_is_chosen_where_the_kernel_needs_it() {
        let needs = |networks: &[&str], gateway: &str| {
            let networks: Vec<Cidr> = networks.iter().map(|cidr| cidr.parse().unwrap()).collect();
            is_on_link(&networks, gateway.parse().unwrap())
        };
        assert!(needs(&["203.0.113.7/32"], "203.0.113.1"));
        assert!(needs(&["2001:db8::7/128"], "2001:db8:1::1"));
        assert!(needs(&[], "169.254.0.1"));
        assert!(needs(&["10.77.0.0/24"], "169.254.0.1"));
        assert!(!needs(&["203.0.113.7/32", "203.0.113.0/28"], "203.0.113.1"));
        assert!(!needs(&["2001:db8::7/128"], "fe80::1"));
        assert!(!needs(&[], "10.77.0.1"), "DHCP says of which network");
    }
}
