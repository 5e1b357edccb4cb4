//! Conversion of the DHCP concern's IPv6 subnets to the configuration of the server core.

use std::net::Ipv6Addr;

use basalt_dhcp::v6::{AddressRange, Client, Config, Reservation, Subnet};
use basalt_dhcp::{Boot, BootMode};
use basalt_proto::rack_v1::{BootAnswers, Dhcp6Reservation, Dhcp6Subnet, DhcpConcern};

use crate::dhcp::config::firmware;
use crate::loaders;

/// A concern that no server can carry out.
#[derive(Debug, thiserror::Error)]
pub enum BadConcern {
    /// A text that is not an address.
    #[error("subnet {cidr:?}: {what} {value:?} is not an IPv6 address")]
    Address {
        /// The network of the subnet.
        cidr: String,
        /// The name of the field.
        what: &'static str,
        /// The text in the field.
        value: String,
    },
    /// The text is not an IPv6 network.
    #[error("{0:?} is not an IPv6 network; write it as 2001:db8::/64")]
    Cidr(String),
    /// The MAC of a reservation cannot be parsed.
    #[error("subnet {0:?}: {1}")]
    Mac(String, basalt_dhcp::BadMac),
    /// The DUID of a reservation cannot be parsed.
    #[error("subnet {0:?}: {1}")]
    Duid(String, basalt_dhcp::v6::BadDuid),
    /// The concern contradicts itself.
    #[error(transparent)]
    Contradiction(#[from] basalt_dhcp::v6::ConfigError),
}

/// Converts and checks a concern. Scripts and HTTP loaders are announced on `http_port`.
///
/// # Errors
/// The first fault found.
pub fn config(concern: &DhcpConcern, http_port: u16) -> Result<Config, BadConcern> {
    let subnets = concern.subnets6.iter().map(|it| subnet(it, http_port)).collect::<Result<_, _>>()?;
    let config = Config { subnets, serve_unknown: concern.serve_unknown, ..Config::default() };
    config.check()?;
    Ok(config)
}

fn subnet(from: &Dhcp6Subnet, http_port: u16) -> Result<Subnet, BadConcern> {
    let cidr = from.cidr.parse().map_err(|_| BadConcern::Cidr(from.cidr.clone()))?;
    let address = |what, value: &str| -> Result<Ipv6Addr, BadConcern> {
        value.parse().map_err(|_| BadConcern::Address {
            cidr: from.cidr.clone(),
            what,
            value: value.to_owned(),
        })
    };
    let list = |what, values: &[String]| {
        values.iter().map(|value| address(what, value)).collect::<Result<Vec<_>, _>>()
    };
    let client = |from: &Dhcp6Reservation, cidr: &str| match from.duid.as_str() {
        "" => from.mac.parse().map(Client::Mac).map_err(|error| BadConcern::Mac(cidr.to_owned(), error)),
        duid => duid.parse().map(Client::Duid).map_err(|error| BadConcern::Duid(cidr.to_owned(), error)),
    };
    let mut subnet = Subnet::new(from.subnet_uid.clone(), cidr);
    subnet.dns_servers = list("DNS server", &from.dns_servers)?;
    subnet.ntp_servers = list("NTP server", &from.ntp_servers)?;
    subnet.search.clone_from(&from.search);
    subnet.rapid_commit = from.rapid_commit;
    subnet.link = Some(from.link.clone()).filter(|link| !link.is_empty());
    if from.lease_seconds != 0 {
        subnet.lease_seconds = from.lease_seconds;
    }
    for range in &from.dynamic {
        let (start, end) = (address("range start", &range.start)?, address("range end", &range.end)?);
        subnet.dynamic.push(AddressRange { start, end });
    }
    for reservation in &from.reservations {
        subnet.reservations.push(Reservation {
            client: client(reservation, &from.cidr)?,
            address: address("reservation", &reservation.address)?,
            hostname: Some(reservation.hostname.clone()).filter(|name| !name.is_empty()),
        });
    }
    subnet.boot = Boot {
        mode: if from.boot() == BootAnswers::None { BootMode::Off } else { BootMode::Network },
        loaders: loaders::named(from.loader()),
        firmware: from.architectures.iter().flat_map(|it| firmware(it)).copied().collect(),
        script_url: format!("http://{{server}}:{http_port}/ipxe?mac={{mac}}"),
        loader_url: format!("http://{{server}}:{http_port}/loaders/{{loader}}"),
        ..Boot::default()
    };
    Ok(subnet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_proto::rack_v1 as proto;

    fn concern() -> DhcpConcern {
        let reservation = |mac: &str, duid: &str, address: &str| Dhcp6Reservation {
            mac: mac.into(),
            duid: duid.into(),
            address: address.into(),
            hostname: "m1".into(),
        };
        DhcpConcern {
            subnets6: vec![Dhcp6Subnet {
                subnet_uid: "s1".into(),
                cidr: "2001:db8::/64".into(),
                dns_servers: vec!["2001:db8::53".into()],
                dynamic: vec![proto::AddressRange {
                    start: "2001:db8::100".into(),
                    end: "2001:db8::1ff".into(),
                }],
                reservations: vec![
                    reservation("52:54:00:00:00:01", "", "2001:db8::11"),
                    reservation("", "00:04:01", "2001:db8::12"),
                ],
                rapid_commit: true,
                loader: proto::BootLoader::ShimGrub.into(),
                ..Dhcp6Subnet::default()
            }],
            ..DhcpConcern::default()
        }
    }

    #[test]
    fn carries_everything_over() {
        let config = config(&concern(), 8080).unwrap();
        let subnet = &config.subnets[0];
        assert_eq!((subnet.lease_seconds, subnet.rapid_commit, subnet.dynamic.len()), (600, true, 1));
        assert_eq!(subnet.reservations[0].client, Client::Mac("52:54:00:00:00:01".parse().unwrap()));
        assert_eq!(subnet.reservations[1].client, Client::Duid("00:04:01".parse().unwrap()));
        assert_eq!(subnet.reservations[1].hostname.as_deref(), Some("m1"));
        assert_eq!(subnet.boot.loaders.efi_x64, "shimx64.efi");
        assert_eq!(subnet.boot.script_url, "http://{server}:8080/ipxe?mac={mac}");
    }

    #[test]
    fn names_what_is_wrong() {
        let with = |change: fn(&mut Dhcp6Subnet)| {
            let mut concern = concern();
            change(&mut concern.subnets6[0]);
            config(&concern, 5248).unwrap_err().to_string()
        };
        assert!(with(|it| it.cidr = "10.0.0.0/24".into()).contains("\"10.0.0.0/24\" is not an IPv6 network"));
        assert!(with(|it| it.dns_servers = vec!["10.0.0.1".into()]).contains("DNS server \"10.0.0.1\""));
        assert!(with(|it| it.reservations[0].mac = "x".into()).contains("\"x\" is not a MAC"));
        assert!(with(|it| it.reservations[1].duid = "x".into()).contains("\"x\" is not a DUID"));
        assert!(with(|it| it.reservations[1].address = "fd00::1".into()).contains("not a host address"));
    }
}
