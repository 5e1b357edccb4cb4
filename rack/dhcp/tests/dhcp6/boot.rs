//! The boot options that clients get (RFC 5970, UEFI 2.10 §24.7, iPXE).

use basalt_dhcp::v6::{Action, Arrival, Event, infiniband, ingress};
use basalt_dhcp::{Architecture, BootClient, BootMode, Firmware};
use dhcproto::v6::{DhcpOption, MessageType, OptionCode};

use crate::support::*;

fn classes(list: &[&str]) -> Vec<u8> {
    let class = |it: &&str| [&u16::try_from(it.len()).unwrap().to_be_bytes(), it.as_bytes()].concat();
    list.iter().flat_map(class).collect()
}

fn vendor(class: &str) -> Vec<u8> {
    [343u32.to_be_bytes().as_slice(), &classes(&[class])].concat()
}

fn url(answer: &Answer) -> Option<String> {
    answer.option(OptionCode::OptBootfileUrl).map(|option| match option {
        DhcpOption::Unknown(it) => String::from_utf8(it.data().to_vec()).unwrap(),
        other => panic!("{other:?}"),
    })
}

#[test]
fn uefi_http_boot_gets_a_url_and_its_vendor_class_back() {
    let ask = solicit(1)
        .option(OptionCode::ClientArchType, &[0, 16])
        .option(OptionCode::VendorClass, &vendor("HTTPClient:Arch:00016:UNDI:003001"));
    let answer = server(subnet()).ask(START, &ask);
    assert_eq!(url(&answer).unwrap(), "http://[2001:db8::2]:5248/loaders/snponly.efi");
    let Some(DhcpOption::VendorClass(class)) = answer.option(OptionCode::VendorClass) else { panic!() };
    assert_eq!((class.num, class.data), (343, vec![b"HTTPClient".to_vec()]));
}

#[test]
fn the_vendor_class_says_how_firmware_fetches_whichever_of_its_architectures_comes_first() {
    for list in [[0, 7, 0, 16], [0, 16, 0, 7]] {
        for (class, start) in [("PXEClient", "tftp://"), ("HTTPClient", "http://")] {
            let ask = solicit(1)
                .option(OptionCode::ClientArchType, &list)
                .option(OptionCode::VendorClass, &vendor(&format!("{class}:Arch:00007:UNDI:003016")));
            let answer = server(subnet()).ask(START, &ask);
            assert!(url(&answer).unwrap().starts_with(start), "{class} {list:?}");
            assert_eq!(answer.option(OptionCode::VendorClass).is_some(), class == "HTTPClient");
        }
    }
}

#[test]
fn network_boot_roms_get_a_tftp_url_for_their_architecture() {
    for (architecture, loader) in [(7u16, "snponly.efi"), (9, "snponly.efi"), (11, "snponly-arm64.efi")] {
        let ask = solicit(1).option(OptionCode::ClientArchType, &architecture.to_be_bytes());
        let answer = server(subnet()).ask(START, &ask);
        assert_eq!(url(&answer).unwrap(), format!("tftp://[2001:db8::2]/{loader}"));
        assert_eq!(answer.option(OptionCode::VendorClass), None);
    }
}

#[test]
fn a_rom_without_option_61_is_known_by_its_vendor_class() {
    let ask = solicit(1).option(OptionCode::VendorClass, &vendor("PXEClient:Arch:00007:UNDI:003016"));
    assert_eq!(url(&server(subnet()).ask(START, &ask)).unwrap(), "tftp://[2001:db8::2]/snponly.efi");
}

#[test]
fn ipxe_gets_its_script_and_is_reported_when_it_has_its_address() {
    let mut server = server(subnet());
    let ipxe = |ask: Ask| {
        ask.option(OptionCode::UserClass, &classes(&["other", "iPXE"]))
            .option(OptionCode::ClientArchType, &[0, 7])
    };
    let script = "http://[2001:db8::2]:5248/ipxe?mac=52:54:00:00:00:01";
    let advertised = server.ask(START, &ipxe(solicit(1)));
    assert_eq!(url(&advertised).unwrap(), script);
    assert!(!advertised.0.iter().any(|it| matches!(it, Action::Report(Event::Boot { .. }))));
    // From here on the hardware address is seen on the link: a MAC in a DUID can be invented.
    let eui_64 = Arrival { from: "fe80::5054:ff:fe00:1".parse().unwrap(), ..LINK };
    for (via, heard) in [(eui_64, Some(mac(1))), (LINK, None)] {
        let granted = server.ask_via(START, via, &ipxe(about(MessageType::Request, 1, ip(0x100))));
        let expected = Event::Boot {
            duid: duid(1),
            mac: heard,
            address: ip(0x100),
            client: BootClient::Ipxe { firmware: Some(Firmware::EfiX64) },
            url: script.into(),
        };
        assert_eq!(granted.0.last(), Some(&Action::Report(expected)));
    }
}

#[test]
fn ipxe_puts_its_own_mac_in_where_it_cannot_be_seen() {
    let ask = Ask::bare(MessageType::Solicit)
        .option(OptionCode::ClientId, &[0, 4, 9])
        .ia(1, &[])
        .option(OptionCode::UserClass, &classes(&["iPXE"]));
    let url = url(&server(subnet()).ask(START, &ask)).unwrap();
    assert_eq!(url, "http://[2001:db8::2]:5248/ipxe?mac=${netX/mac}");
}

#[test]
fn firmware_of_another_architecture_than_declared_gets_an_address_and_no_loader() {
    let mut server = server(subnet());
    server.set_declared(declared(1, Architecture::Arm64));
    let ask = |client, architecture| solicit(client).option(OptionCode::ClientArchType, &[0, architecture]);
    let x86 = server.ask(START, &ask(1, 7));
    assert_eq!(url(&x86), None);
    assert!(x86.option(OptionCode::IANA).is_some(), "it has an address");
    assert_eq!(url(&server.ask(START, &ask(1, 11))).unwrap(), "tftp://[2001:db8::2]/snponly-arm64.efi");
    assert_eq!(
        url(&server.ask(START, &ask(2, 7))).unwrap(),
        "tftp://[2001:db8::2]/snponly.efi",
        "a stranger"
    );
}

#[test]
fn a_client_over_infiniband_gets_an_address_and_nothing_to_boot() {
    let guid = [0x00, 0x02, 0xc9, 0x03, 0x00, 0x12, 0x34, 0x56];
    let duid = [&[0, 3, 0, 32][..], &[0x80, 0, 2, 8, 0xfe, 0x80, 0, 0, 0, 0, 0, 0], &guid].concat();
    let ask = Ask::bare(MessageType::Solicit)
        .option(OptionCode::ClientId, &duid)
        .ia(1, &[])
        .option(OptionCode::ClientArchType, &[0, 7]);
    let packet = ingress::parse(&ask.0).unwrap();
    let heard = infiniband(&packet).unwrap();
    assert_eq!(heard.to_string(), "over InfiniBand, port GUID 0002:c903:0012:3456");
    let answer = server(subnet()).ask(START, &ask);
    assert_eq!(url(&answer), None);
    assert!(answer.option(OptionCode::IANA).is_some());
}

#[test]
fn others_are_told_nothing_of_booting() {
    let answer = |ask: Ask| url(&server(subnet()).ask(START, &ask));
    assert_eq!(answer(solicit(1)), None, "an operating system");
    let unsupported = solicit(1).option(OptionCode::ClientArchType, &[0, 27]);
    assert_eq!(answer(unsupported), None, "an architecture without a loader");
    let mut off = subnet();
    off.boot.mode = BootMode::Off;
    let ask = solicit(1).option(OptionCode::ClientArchType, &[0, 16]);
    assert_eq!(url(&server(off).ask(START, &ask)), None);
    let mut arm = subnet();
    arm.boot.firmware = [Firmware::EfiArm64].into();
    assert_eq!(url(&server(arm.clone()).ask(START, &ask)), None);
    let ask = solicit(1).option(OptionCode::ClientArchType, &[0, 19]);
    assert!(url(&server(arm).ask(START, &ask)).is_some());
}
