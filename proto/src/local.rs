//! Addresses of a program's own host and of its links. Services that trust their host listen there, so users must not
//! be able to send requests of a program to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// The discard port (RFC 863), where no service listens.
const DISCARD: u16 = 9;

/// True for addresses of this host or its links, and for addresses that belong to no host.
#[must_use]
pub fn is_local(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    is_link_local
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || is_own(address)
}

/// True if the address is one of this host's. The kernel uses such an address as its own source. Connecting a UDP
/// socket looks up the route and sends nothing. An address without a route is not this host's.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, DISCARD))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_host_is_local_by_its_other_name_too() {
        let is_local = |address: &str| is_local(address.parse().unwrap());
        assert!(is_local("127.0.0.1") && is_local("::ffff:169.254.169.254") && !is_local("192.0.2.1"));
        let outwards = UdpSocket::bind("0.0.0.0:0").unwrap();
        // This sends nothing. A host without a route has no such address.
        if outwards.connect("192.0.2.1:9").is_ok() {
            let own = outwards.local_addr().unwrap().ip();
            assert!(super::is_local(own), "{own}");
        }
    }
}
