//! StaticRoute: a route for machines of a subnet to another network.

use super::{CommonStatus, Subnet, kind};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::Cidr;
use basalt_api_derive::Model;
use std::net::IpAddr;

kind! {
    /// A route for machines of a subnet, in addition to their default route. DHCPv4 announces it to clients (RFC 3442). Systems
    /// that have addresses of the subnet from Basalt are installed with it. DHCPv6 has no routes.
    StaticRoute, "static_routes", "basalt_static_route", Label, declarable: true, StaticRouteSpec, StaticRouteStatus,
    static_route_rules
}

/// A route to another network.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct StaticRouteSpec {
    /// The subnet whose machines get the route.
    pub source: Ref<Subnet>,
    /// The destination, as a subnet. Either this or `destination_cidr`.
    pub destination: Option<Ref<Subnet>>,
    /// The destination, as a network like `10.0.0.0/8`. Either this or `destination`.
    pub destination_cidr: Option<Cidr>,
    /// The router's address: in the source subnet, or link-local. If the source has one address (`/32`, `/128`), the router may
    /// be any neighbour on the link.
    pub gateway: IpAddr,
    /// The metric of the route in installed systems. The lower metric wins between two routes to the same network. 0: the default
    /// of the system.
    #[field(default = 0)]
    pub metric: u32,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The state of the route.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct StaticRouteStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
}

fn static_route_rules(spec: &StaticRouteSpec, rule: &mut Rule<'_>) {
    match (&spec.destination, spec.destination_cidr) {
        (None, None) => rule.missing(
            "/destination",
            "the route leads nowhere",
            "destination, a subnet, or destination_cidr, a network like 10.0.0.0/8",
        ),
        (Some(subnet), Some(cidr)) => rule.broken(
            "/destination_cidr",
            format!("the route leads to the subnet {:?} and to {cidr}", subnet.as_str()),
            "either destination or destination_cidr",
        ),
        (Some(subnet), None) if *subnet == spec.source => rule.broken(
            "/destination",
            format!("the route leads from the subnet {:?} to itself", subnet.as_str()),
            "name another subnet",
        ),
        (None, Some(cidr)) if cidr.network().is_ipv4() != spec.gateway.is_ipv4() => rule.broken(
            "/gateway",
            format!("{} is not of the family of {cidr}", spec.gateway),
            "a router of the destination's family",
        ),
        _ => {}
    }
    if spec.gateway.is_unspecified() || spec.gateway.is_multicast() || spec.gateway.is_loopback() {
        rule.broken(
            "/gateway",
            format!("{} is not the address of a router", spec.gateway),
            "the router's address",
        );
    }
}
