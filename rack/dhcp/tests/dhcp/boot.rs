//! The boot options that clients get.

use basalt_dhcp::egress::Message;
use basalt_dhcp::ingress::{self, Packet};
use basalt_dhcp::{Action, Architecture, Boot, BootClient, BootMode, Event, Firmware, Server, Transport};
use dhcproto::v4::OptionCode;

use crate::support::*;

fn rom(class: &str, architecture: u16) -> Message {
    let mut message = discover(1);
    message.option(OptionCode::ClassIdentifier, class);
    message.option(OptionCode::ClientSystemArchitecture, architecture.to_be_bytes());
    message.option(OptionCode::ClientMachineIdentifier, [&[0], [7; 16].as_slice()].concat());
    message
}

fn told(message: &Message) -> Packet {
    server().ask(START, message).packet()
}

#[test]
fn names_the_loader_by_architecture() {
    for (architecture, loader) in
        [(0, "undionly.kpxe"), (7, "snponly.efi"), (9, "snponly.efi"), (11, "snponly-arm64.efi")]
    {
        let packet = told(&rom("PXEClient:Arch:00000:UNDI:003016", architecture));
        assert_eq!(packet.file, loader.as_bytes(), "architecture {architecture}");
        assert_eq!(packet.siaddr, SERVER);
        assert_eq!(packet.options.text(OptionCode::ClassIdentifier), Some("PXEClient"));
        assert_eq!(packet.options.raw(OptionCode::VendorExtensions), Some([6, 1, 8, 255].as_slice()));
        assert_eq!(packet.options.raw(OptionCode::ClientMachineIdentifier).map(<[u8]>::len), Some(17));
    }
}

#[test]
fn gives_uefi_http_boot_a_url_and_its_class_back() {
    for (architecture, loader) in [(0x0f, "snponly.efi"), (0x10, "snponly.efi"), (0x13, "snponly-arm64.efi")]
    {
        let packet = told(&rom("HTTPClient:Arch:00016:UNDI:003001", architecture));
        let url = format!("http://10.77.0.2:5248/loaders/{loader}");
        assert_eq!(packet.options.text(OptionCode::BootfileName), Some(url.as_str()));
        assert_eq!(packet.options.text(OptionCode::ClassIdentifier), Some("HTTPClient"));
        assert!(!packet.options.contains(OptionCode::VendorExtensions));
    }
}

#[test]
fn the_class_says_how_firmware_fetches_whichever_of_its_architectures_comes_first() {
    for list in [[0, 7, 0, 16], [0, 16, 0, 7]] {
        for (class, file) in
            [("PXEClient", "snponly.efi"), ("HTTPClient", "http://10.77.0.2:5248/loaders/snponly.efi")]
        {
            let mut message = discover(1);
            message.option(OptionCode::ClassIdentifier, format!("{class}:Arch:00007:UNDI:003016"));
            message.option(OptionCode::ClientSystemArchitecture, list);
            let packet = told(&message);
            assert_eq!(packet.file, file.as_bytes(), "{class} {list:?}");
            assert_eq!(packet.options.text(OptionCode::ClassIdentifier), Some(class));
        }
    }
    for architecture in [0x0f, 0x10, 0x13] {
        let file = told(&rom("PXEClient", architecture)).file;
        assert!(!file.starts_with(b"http"), "architecture {architecture}: {file:?}");
    }
    let mut message = discover(1);
    message.option(OptionCode::ClassIdentifier, "HTTPClient");
    assert!(told(&message).file.is_empty(), "no HTTP boot is older than option 93");
}

#[test]
fn gives_ipxe_its_script_however_it_writes_its_user_class() {
    for user_class in [&b"iPXE"[..], b"\x04iPXE", b"\x03abc\x04iPXE"] {
        let mut message = rom("PXEClient:Arch:00000:UNDI:002001", 0);
        message.option(OptionCode::UserClass, user_class);
        let packet = told(&message);
        assert_eq!(packet.file, b"http://10.77.0.2:5248/ipxe?mac=52:54:00:00:00:01", "{user_class:?}");
        assert_eq!(packet.options.raw(OptionCode::Unknown(175)), Some([176, 1, 1].as_slice()));
    }
    for user_class in [&b"\x05iPXE"[..], b"gPXE", b"", b"\x00", b"\xff"] {
        let mut message = rom("PXEClient", 0);
        message.option(OptionCode::UserClass, user_class);
        assert_eq!(told(&message).file, b"undionly.kpxe", "{user_class:?}");
    }
}

#[test]
fn an_ipxe_that_says_it_has_no_http_is_given_one_that_has() {
    let ipxe = |features: &[u8]| {
        let mut message = rom("PXEClient:Arch:00007:UNDI:003010", 7);
        message.option(OptionCode::UserClass, "iPXE");
        message.option(OptionCode::Unknown(175), features);
        told(&message).file
    };
    for features in [&b"\x13\x01\x01"[..], b"\xeb\x03\x01\x00\x00\x00\x17\x01\x01\x13\x01\x01\x12\x01\x01"] {
        assert_eq!(ipxe(features), b"http://10.77.0.2:5248/ipxe?mac=52:54:00:00:00:01", "{features:?}");
    }
    for features in [
        &b"\x17\x01\x01\x15\x01\x01"[..],
        b"\x13\x01\x00",
        b"\x13\x00",
        b"\x13",
        b"\x12\x09\x13\x01\x01",
        b"\x00",
    ] {
        assert_eq!(ipxe(features), b"snponly.efi", "{features:?}");
    }
}

#[test]
fn names_the_file_in_options_when_they_are_asked_for() {
    let mut message = rom("PXEClient", 7);
    message.option(OptionCode::ParameterRequestList, [66, 67]);
    let options = told(&message).options;
    assert_eq!(options.text(OptionCode::BootfileName), Some("snponly.efi"));
    assert_eq!(options.text(OptionCode::TFTPServerName), Some("10.77.0.2"));
}

#[test]
fn reads_the_architecture_from_the_class_and_the_first_known_of_a_list() {
    let mut message = discover(1);
    message.option(OptionCode::ClassIdentifier, "PXEClient:Arch:00007:UNDI:003000");
    assert_eq!(told(&message).file, b"snponly.efi");
    let mut message = discover(1);
    message.option(OptionCode::ClassIdentifier, "PXEClient");
    message.option(OptionCode::ClientSystemArchitecture, [0, 0x63, 0, 7]);
    assert_eq!(told(&message).file, b"snponly.efi");
    let mut message = discover(1);
    message.option(OptionCode::ClassIdentifier, "PXEClient");
    assert_eq!(told(&message).file, b"undionly.kpxe");
}

#[test]
fn tells_nothing_to_systems_and_to_unknown_architectures() {
    let mut message = discover(1);
    message.option(OptionCode::ClassIdentifier, "systemd-networkd");
    message.option(OptionCode::ClientSystemArchitecture, [0, 7]);
    for message in [message, rom("PXEClient", 0x0c), discover(1)] {
        let packet = told(&message);
        assert!(packet.file.is_empty());
        assert!(packet.siaddr.is_unspecified());
        assert!(!packet.options.contains(OptionCode::VendorExtensions));
    }
}

#[test]
fn firmware_of_another_architecture_than_declared_gets_an_address_and_no_loader() {
    const BIOS: u16 = 0;
    const X64: u16 = 7;
    const ARM64: u16 = 11;
    for (architecture, own, others) in [
        (Architecture::Arm64, &[(ARM64, "snponly-arm64.efi")][..], &[BIOS, X64, 9, 0x0f, 0x10][..]),
        (Architecture::Amd64, &[(BIOS, "undionly.kpxe"), (X64, "snponly.efi")], &[ARM64, 0x13]),
    ] {
        let mut server = server();
        server.set_declared(declared(1, architecture));
        for &other in others {
            for class in ["PXEClient", "HTTPClient"] {
                let packet = server.ask(START, &rom(class, other)).packet();
                assert_eq!(packet.yiaddr, ip(100), "{class} {other} may boot its disk and be reached there");
                assert!(packet.file.is_empty() && packet.siaddr.is_unspecified(), "{class} {other}");
                for code in
                    [OptionCode::BootfileName, OptionCode::ClassIdentifier, OptionCode::VendorExtensions]
                {
                    assert!(!packet.options.contains(code), "{class} {other}: {code:?}");
                }
            }
        }
        for &(number, loader) in own {
            assert_eq!(server.ask(START, &rom("PXEClient", number)).packet().file, loader.as_bytes());
        }
        let mut stranger = rom("PXEClient", others[0]);
        stranger.mac = mac(2);
        assert!(!server.ask(START, &stranger).packet().file.is_empty(), "nobody declared it");
    }
}

#[test]
fn a_rom_without_option_93_is_one_of_bios_and_gets_no_loader_for_arm64() {
    let mut server = server();
    server.set_declared(declared(1, Architecture::Arm64));
    let mut message = discover(1);
    message.option(OptionCode::ClassIdentifier, "PXEClient");
    let packet = ingress::parse(&message.encode()).unwrap();
    let other = server.other_architecture(&packet).unwrap();
    assert_eq!(other.to_string(), "x86 BIOS starts programs for amd64, and the machine is declared as arm64");
    assert!(server.ask(START, &message).packet().file.is_empty());
}

/// A script is text and no program. The report carries the architecture to the code that renders the script.
#[test]
fn ipxe_of_another_architecture_is_sent_its_script_and_reported_with_what_it_announces() {
    let mut server = server();
    server.set_declared(declared(1, Architecture::Arm64));
    let mut message = select(1, ip(100));
    message.option(OptionCode::ClassIdentifier, "PXEClient:Arch:00007:UNDI:003010");
    message.option(OptionCode::ClientSystemArchitecture, [0, 7]);
    message.option(OptionCode::UserClass, "iPXE");
    let answer = server.ask(START, &message);
    let file = "http://10.77.0.2:5248/ipxe?mac=52:54:00:00:00:01".to_owned();
    let client = BootClient::Ipxe { firmware: Some(Firmware::EfiX64) };
    let boot = Event::Boot { mac: mac(1), address: ip(100), client, file };
    assert_eq!(answer.0.last(), Some(&Action::Report(boot)));
    message.option(OptionCode::Unknown(175), [0x17, 1, 1]);
    assert!(server.ask(START, &message).packet().file.is_empty(), "without HTTP it would get a loader");
}

#[test]
fn a_reservation_may_boot_differently() {
    let mut subnet = subnet();
    subnet.reservations = vec![reservation(1, 10), reservation(2, 11)];
    let mut boot = Boot::default();
    boot.loaders.efi_x64 = "shimx64.efi".to_owned();
    subnet.reservations[0].boot = Some(boot);
    subnet.reservations[1].boot = Some(Boot { mode: BootMode::Off, ..Boot::default() });
    let mut server = Server::new(config(subnet)).unwrap();
    assert_eq!(server.ask(START, &rom("PXEClient", 7)).packet().file, b"shimx64.efi");
    let mut other = rom("PXEClient", 7);
    other.mac = mac(2);
    assert!(server.ask(START, &other).packet().file.is_empty());
    other.mac = mac(3);
    assert_eq!(server.ask(START, &other).packet().file, b"snponly.efi", "an unknown client can be enlisted");
}

#[test]
fn a_grant_to_a_boot_client_reports_what_it_boots() {
    let mut server = server();
    let mut message = select(1, ip(100));
    message.option(OptionCode::ClassIdentifier, "PXEClient");
    message.option(OptionCode::ClientSystemArchitecture, [0, 7]);
    let answer = server.ask(START, &message);
    let client = BootClient::Rom { firmware: Firmware::EfiX64, transport: Transport::Tftp };
    let boot = Event::Boot { mac: mac(1), address: ip(100), client, file: "snponly.efi".to_owned() };
    assert_eq!(answer.0.last(), Some(&Action::Report(boot)));
}
