//! Conversion of the DHCP concern to the configuration of the server core.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use basalt_dhcp::{AddressRange, Boot, BootMode, Config, Firmware, RawOption, Reservation, Route, Subnet};
use basalt_proto::rack_v1::{BootAnswers, DhcpConcern, DhcpSubnet, RawOption as RawOptionSaid};

use crate::loaders;

/// A concern that no server can carry out.
#[derive(Debug, thiserror::Error)]
pub enum BadConcern {
    /// A text that is not an address.
    #[error("subnet {cidr:?}: {what} {value:?} is not an address")]
    Address {
        /// The network of the subnet.
        cidr: String,
        /// The name of the field.
        what: &'static str,
        /// The text in the field.
        value: String,
    },
    /// The text is not an IPv4 network.
    #[error("{0:?} is not an IPv4 network; write it as 10.77.0.0/24")]
    Cidr(String),
    /// The MAC of a reservation or client cannot be parsed.
    #[error("{0}: {1}")]
    Mac(String, basalt_dhcp::BadMac),
    /// The MTU does not fit 16 bits.
    #[error("subnet {0:?}: MTU {1} is larger than 65535")]
    Mtu(String, u32),
    /// The destination of a route is not a network.
    #[error("subnet {0:?}: route to {1:?}, which is not an IPv4 network")]
    Route(String, String),
    /// The number of an option is out of range.
    #[error("{0}: {1} is no option's number; use 1 to 254")]
    Option(String, u32),
    /// The concern contradicts itself.
    #[error(transparent)]
    Contradiction(#[from] basalt_dhcp::ConfigError),
}

/// Converts and checks a concern. Scripts and HTTP loaders are announced on `http_port`.
///
/// # Errors
/// The first fault found.
pub fn config(concern: &DhcpConcern, http_port: u16) -> Result<Config, BadConcern> {
    let subnets = concern.subnets.iter().map(|it| subnet(it, http_port)).collect::<Result<_, _>>()?;
    let mut client_options = BTreeMap::new();
    for client in &concern.client_options {
        let whose = || format!("client {}", client.mac);
        let mac = client.mac.parse().map_err(|error| BadConcern::Mac(whose(), error))?;
        client_options.insert(mac, options(&client.options, whose)?);
    }
    let config =
        Config { subnets, client_options, serve_unknown: concern.serve_unknown, ..Config::default() };
    config.check()?;
    Ok(config)
}

fn subnet(from: &DhcpSubnet, http_port: u16) -> Result<Subnet, BadConcern> {
    let cidr = from.cidr.parse().map_err(|_| BadConcern::Cidr(from.cidr.clone()))?;
    let address = |what, value: &str| -> Result<Ipv4Addr, BadConcern> {
        value.parse().map_err(|_| BadConcern::Address {
            cidr: from.cidr.clone(),
            what,
            value: value.to_owned(),
        })
    };
    let list = |what, values: &[String]| {
        values.iter().map(|value| address(what, value)).collect::<Result<Vec<_>, _>>()
    };
    let whose = || format!("subnet {}", from.cidr);
    let mut subnet = Subnet::new(from.subnet_uid.clone(), cidr);
    if !from.gateway.is_empty() {
        subnet.gateway = Some(address("gateway", &from.gateway)?);
    }
    subnet.dns_servers = list("DNS server", &from.dns_servers)?;
    subnet.ntp_servers = list("NTP server", &from.ntp_servers)?;
    subnet.domain = Some(from.domain.clone()).filter(|domain| !domain.is_empty());
    if from.mtu != 0 {
        subnet.mtu = Some(u16::try_from(from.mtu).map_err(|_| BadConcern::Mtu(from.cidr.clone(), from.mtu))?);
    }
    subnet.search.clone_from(&from.search);
    for route in &from.routes {
        let to = route.to.parse().map_err(|_| BadConcern::Route(from.cidr.clone(), route.to.clone()))?;
        subnet.routes.push(Route { to, via: address("router", &route.via)? });
    }
    subnet.options = options(&from.options, whose)?;
    if from.lease_seconds != 0 {
        subnet.lease_seconds = from.lease_seconds;
    }
    for range in &from.dynamic {
        let (start, end) = (address("range start", &range.start)?, address("range end", &range.end)?);
        subnet.dynamic.push(AddressRange { start, end });
    }
    for reservation in &from.reservations {
        subnet.reservations.push(Reservation {
            mac: reservation.mac.parse().map_err(|error| BadConcern::Mac(whose(), error))?,
            address: address("reservation", &reservation.address)?,
            hostname: Some(reservation.hostname.clone()).filter(|name| !name.is_empty()),
            boot: None,
        });
    }
    let mode = match from.boot() {
        BootAnswers::Unspecified => BootMode::Network,
        BootAnswers::Proxy => BootMode::Proxy,
        BootAnswers::None => BootMode::Off,
    };
    subnet.shared = from.shared;
    subnet.link = Some(from.link.clone()).filter(|link| !link.is_empty());
    subnet.boot = Boot {
        mode,
        loaders: loaders::named(from.loader()),
        firmware: from.architectures.iter().flat_map(|it| firmware(it)).copied().collect(),
        script_url: format!("http://{{server}}:{http_port}/ipxe?mac={{mac}}"),
        loader_url: format!("http://{{server}}:{http_port}/loaders/{{loader}}"),
        ..Boot::default()
    };
    Ok(subnet)
}

fn options(from: &[RawOptionSaid], whose: impl Fn() -> String) -> Result<Vec<RawOption>, BadConcern> {
    let one = |option: &RawOptionSaid| {
        let code = u8::try_from(option.code).map_err(|_| BadConcern::Option(whose(), option.code))?;
        Ok(RawOption { code, value: option.value.clone() })
    };
    from.iter().map(one).collect()
}

/// The firmware types of machines with this architecture. Empty for an unknown one: this rack has no loader for it.
pub(crate) fn firmware(architecture: &str) -> &'static [Firmware] {
    match architecture {
        "amd64" => &[Firmware::Bios, Firmware::EfiX64],
        "arm64" => &[Firmware::EfiArm64],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_dhcp::{Action, Arrival, Event, Server, Time, egress, ingress};
    use basalt_proto::rack_v1 as proto;
    use dhcproto::v4::{MessageType, OptionCode};

    fn concern() -> DhcpConcern {
        DhcpConcern {
            subnets: vec![DhcpSubnet {
                subnet_uid: "s1".into(),
                cidr: "10.77.0.0/24".into(),
                gateway: "10.77.0.1".into(),
                dynamic: vec![proto::AddressRange { start: "10.77.0.100".into(), end: "10.77.0.200".into() }],
                reservations: vec![proto::Reservation {
                    mac: "52:54:00:00:00:01".into(),
                    address: "10.77.0.11".into(),
                    hostname: "m1".into(),
                }],
                ..DhcpSubnet::default()
            }],
            serve_unknown: true,
            ..DhcpConcern::default()
        }
    }

    #[test]
    fn carries_everything_over() {
        let config = config(&concern(), 8080).unwrap();
        let subnet = &config.subnets[0];
        assert_eq!((subnet.lease_seconds, subnet.mtu, &subnet.domain), (600, None, &None));
        assert_eq!(subnet.reservations[0].hostname.as_deref(), Some("m1"));
        assert_eq!(subnet.boot.script_url, "http://{server}:8080/ipxe?mac={mac}");
    }

    #[test]
    fn the_loader_that_is_chosen_is_that_of_x86_64_uefi() {
        let mut concern = concern();
        concern.subnets[0].set_loader(proto::BootLoader::ShimGrub);
        let loaders = config(&concern, 8080).unwrap().subnets[0].boot.loaders.clone();
        let named = [Firmware::Bios, Firmware::EfiX64, Firmware::EfiArm64].map(|it| loaders.get(it));
        assert_eq!(named, ["undionly.kpxe", "shimx64.efi", "snponly-arm64.efi"]);
    }

    #[test]
    fn a_reserved_address_is_that_clients_and_nobody_elses() {
        let mut server = Server::new(config(&concern(), 8080).unwrap()).unwrap();
        let link = Arrival { interface: 1, local: Ipv4Addr::new(10, 77, 0, 2), unicast: false };
        let mut ask = |kind, mac: &str, wanted: Option<Ipv4Addr>| {
            let mut message = egress::Message::request(kind, 1, mac.parse().unwrap());
            if let Some(wanted) = wanted {
                message.option(OptionCode::RequestedIpAddress, wanted.octets());
            }
            server.handle(Time(1_700_000_000_000), link, &ingress::parse(&message.encode()).unwrap())
        };
        let reserved = Ipv4Addr::new(10, 77, 0, 11);
        let offered = |actions: &[Action], mac: &str| {
            let offered = Event::Offered { mac: mac.parse().unwrap(), address: reserved };
            actions.contains(&Action::Report(offered))
        };
        let (own, other) = ("52:54:00:00:00:01", "52:54:00:00:00:02");
        assert!(offered(&ask(MessageType::Discover, own, None), own));
        assert!(!offered(&ask(MessageType::Discover, other, Some(reserved)), other));
        let refused = ask(MessageType::Request, other, Some(reserved));
        assert!(refused.iter().any(|it| matches!(it, Action::Report(Event::Refused { .. }))), "{refused:?}");
    }

    #[test]
    fn names_what_is_wrong() {
        let with = |change: fn(&mut DhcpSubnet)| {
            let mut concern = concern();
            change(&mut concern.subnets[0]);
            config(&concern, 5248).unwrap_err().to_string()
        };
        assert!(with(|it| it.cidr = "10.77.0.0".into()).contains("\"10.77.0.0\" is not an IPv4 network"));
        assert!(with(|it| it.gateway = "gw".into()).contains("gateway \"gw\""));
        assert!(with(|it| it.mtu = 70_000).contains("70000"));
        assert!(with(|it| it.routes = vec![proto::Route::default()]).contains("route to \"\""));
        assert!(with(|it| it.search = vec!["a..b".into()]).contains("\"a..b\" is not a domain name"));
        for code in [0, 255, 256] {
            let message = with(match code {
                0 => |it| it.options = vec![proto::RawOption::default()],
                255 => |it| it.options = vec![proto::RawOption { code: 255, value: vec![1] }],
                _ => |it| it.options = vec![proto::RawOption { code: 256, value: vec![1] }],
            });
            assert!(message.contains(&format!("{code} is no option's number")), "{message}");
        }
        assert!(with(|it| it.reservations[0].mac = "x".into()).contains("\"x\" is not a MAC"));
    }
}
