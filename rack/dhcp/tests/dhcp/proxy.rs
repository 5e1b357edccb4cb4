//! Boot answers beside another server that gives the addresses.

use std::net::{Ipv4Addr, SocketAddrV4};

use basalt_dhcp::egress::Message;
use basalt_dhcp::{
    Action, Architecture, Arrival, BootClient, BootMode, Config, Destination, Event, Firmware, Ignored,
    OtherArchitecture, Server, Subnet, ingress,
};
use dhcproto::v4::{MessageType, OptionCode};

use crate::support::*;

/// The server that gives the addresses.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);

fn beside() -> Subnet {
    let mut subnet = subnet();
    subnet.boot.mode = BootMode::Proxy;
    subnet
}

fn server() -> Server {
    Server::new(config(beside())).unwrap()
}

fn rom(mut message: Message) -> Message {
    message.option(OptionCode::ClassIdentifier, "PXEClient:Arch:00007:UNDI:003016");
    message.option(OptionCode::ClientSystemArchitecture, [0, 7]);
    message
}

fn ipxe(message: Message) -> Message {
    let mut message = rom(message);
    message.option(OptionCode::UserClass, "iPXE");
    message
}

/// A client's REQUEST for the other server's offer, broadcast on the link.
fn chooses_other(client: u8, address: Ipv4Addr) -> Message {
    let mut message = request(client);
    message.option(OptionCode::RequestedIpAddress, address.octets());
    message.option(OptionCode::ServerIdentifier, OTHER.octets());
    message
}

#[test]
fn a_boot_client_is_offered_what_to_boot_and_no_address() {
    for (message, file) in [
        (rom(discover(1)), "snponly.efi"),
        (ipxe(discover(1)), "http://10.77.0.2:5248/ipxe?mac=52:54:00:00:00:01"),
    ] {
        let mut server = server();
        let (to, offer) = server.ask(START, &message).sent().unwrap();
        assert_eq!((offer.kind, offer.yiaddr), (MessageType::Offer, Ipv4Addr::UNSPECIFIED));
        assert_eq!(to, Destination::Broadcast, "it has no address that an answer could be sent to");
        assert_eq!((offer.siaddr, offer.file.as_slice()), (SERVER, file.as_bytes()));
        assert_eq!(offer.options.text(OptionCode::ClassIdentifier), Some("PXEClient"));
        assert_eq!(offer.options.ipv4(OptionCode::ServerIdentifier), Some(SERVER));
        for code in [OptionCode::AddressLeaseTime, OptionCode::SubnetMask, OptionCode::Router] {
            assert!(!offer.options.contains(code), "{code:?} is the other server's to tell");
        }
        assert!(!offer.options.contains(OptionCode::Unknown(175)), "iPXE is to wait for both servers");
        assert_eq!(server.known(), 0);
    }
}

#[test]
fn nobody_else_is_answered_and_no_address_is_refused() {
    let mut server = server();
    assert_eq!(server.ask(START, &discover(1)).ignored(), Ignored::OthersClient);
    assert_eq!(server.ask(START, &reboot(1, ip(50))).ignored(), Ignored::OthersClient);
    assert_eq!(server.ask(START, &renew(1, ip(50))).ignored(), Ignored::OthersClient);
    let elsewhere = Ipv4Addr::new(192, 0, 2, 7);
    assert_eq!(server.ask(START, &ipxe(reboot(1, elsewhere))).ignored(), Ignored::NotOurs(elsewhere));
}

/// A boot token is bound to the client's address. The server learns the address from the client's REQUEST to the other
/// server.
#[test]
fn the_address_that_a_client_takes_of_the_other_server_is_heard() {
    let answer = server().ask(START, &ipxe(chooses_other(1, ip(50))));
    let file = "http://10.77.0.2:5248/ipxe?mac=52:54:00:00:00:01".to_owned();
    let heard = Event::Boot {
        mac: mac(1),
        address: ip(50),
        client: BootClient::Ipxe { firmware: Some(Firmware::EfiX64) },
        file,
    };
    assert_eq!(answer.0, [Action::Report(heard)]);
}

#[test]
fn a_client_that_asks_the_boot_server_port_is_answered_there() {
    let mut server = server();
    let from = SocketAddrV4::new(ip(50), 68);
    let via = Arrival { unicast: true, ..LINK };
    let asks = |server: &mut Server, from, message: &Message| {
        Answer(server.handle_boot(START, via, from, &ingress::parse(&message.encode()).unwrap()))
    };
    let answer = asks(&mut server, from, &rom(renew(1, ip(50))));
    let (to, ack) = answer.sent().unwrap();
    assert_eq!((to, ack.kind, ack.ciaddr), (Destination::Asker(from), MessageType::Ack, ip(50)));
    assert_eq!(ack.file, b"snponly.efi");
    assert!(answer.0.iter().any(|it| matches!(it, Action::Report(Event::Boot { .. }))), "{answer:?}");

    let stranger = SocketAddrV4::new(ip(66), 68);
    let says = Ignored::OtherAddress { says: ip(50), has: ip(66) };
    assert_eq!(asks(&mut server, stranger, &rom(renew(1, ip(50)))).ignored(), says);
    let mut own = Server::new(config(subnet())).unwrap();
    let refused = asks(&mut own, from, &rom(renew(1, ip(50)))).ignored();
    assert!(
        matches!(refused, Ignored::NotARequest { .. }),
        "where addresses are given here, this is not needed"
    );
}

#[test]
fn a_link_with_a_subnet_of_its_own_addresses_gives_them_out() {
    let mut own = Subnet::new("own", "10.88.0.0/24".parse().unwrap());
    let (start, end) = (Ipv4Addr::new(10, 88, 0, 100), Ipv4Addr::new(10, 88, 0, 110));
    own.dynamic.push(basalt_dhcp::AddressRange { start, end });
    let config = Config { subnets: vec![beside(), own], ..Config::default() };
    let mut server = Server::new(config).unwrap();
    server.set_links([(LINK.interface, vec![SERVER, Ipv4Addr::new(10, 88, 0, 2)])].into());
    assert_eq!(server.ask(START, &discover(1)).address(), start);
}

#[test]
fn firmware_of_another_architecture_than_declared_is_told_nothing() {
    let mut server = server();
    server.set_declared(declared(1, Architecture::Arm64));
    let other = OtherArchitecture { announced: Firmware::EfiX64, declared: Architecture::Arm64 };
    for message in [rom(discover(1)), rom(chooses_other(1, ip(50)))] {
        assert_eq!(server.ask(START, &message).ignored(), Ignored::OtherArchitecture(other));
    }
    assert_eq!(server.ask(START, &rom(discover(2))).packet().file, b"snponly.efi");
}

#[test]
fn only_the_firmware_that_is_named_is_told_anything() {
    let mut subnet = beside();
    subnet.boot.firmware = [Firmware::Bios].into();
    let mut server = Server::new(config(subnet)).unwrap();
    assert_eq!(server.ask(START, &rom(discover(1))).ignored(), Ignored::OthersClient);
    assert_eq!(server.ask(START, &ipxe(discover(1))).ignored(), Ignored::OthersClient);
    let mut bios = discover(1);
    bios.option(OptionCode::ClassIdentifier, "PXEClient:Arch:00000:UNDI:003016");
    assert_eq!(server.ask(START, &bios).packet().file, b"undionly.kpxe");
}
