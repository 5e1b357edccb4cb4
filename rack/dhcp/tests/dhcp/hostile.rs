//! Datagrams that break decoders: each is decoded or refused, and hides no other option.

use std::net::Ipv4Addr;

use basalt_dhcp::Ignored;
use basalt_dhcp::egress::Message;
use basalt_dhcp::ingress::{self, Malformed};
use dhcproto::v4::{self, MessageType, OptionCode};
use dhcproto::{Decodable, Decoder};

use crate::support::{Answer, LINK, START, discover, ip, mac, server};

const OPTIONS: usize = 240;

/// A DISCOVER whose options are exactly these bytes after the message type.
fn with_options(options: &[u8]) -> Vec<u8> {
    let mut datagram = discover(1).encode();
    datagram.truncate(OPTIONS);
    datagram.extend([53, 1, 1]);
    datagram.extend(options);
    datagram
}

#[test]
fn refuses_a_hardware_length_beyond_chaddr() {
    let mut datagram = discover(1).encode();
    datagram[2] = 255;
    assert_eq!(ingress::parse(&datagram), Err(Malformed::HardwareLength(255)));
    datagram[2] = 17;
    assert_eq!(ingress::parse(&datagram), Err(Malformed::HardwareLength(17)));
    datagram[2] = 16;
    let packet = ingress::parse(&datagram).unwrap();
    assert_eq!((packet.chaddr.len(), packet.mac()), (16, None));
}

#[test]
fn refuses_a_hardware_length_of_255_in_the_shortest_message() {
    let mut datagram = discover(1).encode();
    datagram.truncate(OPTIONS);
    datagram[2] = 255;
    assert_eq!(ingress::parse(&datagram), Err(Malformed::HardwareLength(255)));
}

#[test]
fn refuses_a_wrong_magic_cookie() {
    let mut datagram = discover(1).encode();
    datagram[236] = 98;
    assert_eq!(ingress::parse(&datagram), Err(Malformed::Cookie([98, 130, 83, 99])));
}

#[test]
fn refuses_239_bytes_and_more_than_the_limit() {
    let datagram = discover(1).encode();
    assert_eq!(ingress::parse(&datagram[..239]), Err(Malformed::TooShort(239)));
    assert_eq!(ingress::parse(&[]), Err(Malformed::TooShort(0)));
    assert_eq!(ingress::parse(&[0; 4097]), Err(Malformed::TooLong(4097)));
}

#[test]
fn refuses_another_op_and_a_missing_message_type() {
    let mut datagram = discover(1).encode();
    datagram[0] = 9;
    assert_eq!(ingress::parse(&datagram), Err(Malformed::Op(9)));
    let mut datagram = discover(1).encode();
    datagram.truncate(OPTIONS);
    assert_eq!(ingress::parse(&datagram), Err(Malformed::NoMessageType));
}

#[test]
fn a_lease_time_of_two_bytes_hides_nothing() {
    let packet =
        ingress::parse(&with_options(&[51, 2, 0, 9, 50, 4, 10, 77, 0, 101, 61, 2, 0, 7, 255])).unwrap();
    assert_eq!(packet.options.u32(OptionCode::AddressLeaseTime), None);
    assert_eq!(packet.options.raw(OptionCode::AddressLeaseTime), Some([0, 9].as_slice()));
    assert_eq!(packet.options.ipv4(OptionCode::RequestedIpAddress), Some(ip(101)));
    assert_eq!(packet.options.raw(OptionCode::ClientIdentifier), Some([0, 7].as_slice()));
}

#[test]
fn a_host_name_that_is_not_utf8_hides_neither_client_id_nor_relay() {
    let datagram = with_options(&[12, 2, 0xff, 0xfe, 61, 2, 0, 7, 82, 3, 1, 1, 5, 255]);
    let packet = ingress::parse(&datagram).unwrap();
    assert_eq!(packet.options.text(OptionCode::Hostname), None);
    let mut server = server();
    let answer = Answer(server.handle(START, LINK, &packet)).packet();
    assert_eq!(answer.kind, MessageType::Offer);
    assert_eq!(answer.options.raw(OptionCode::ClientIdentifier), Some([0, 7].as_slice()));
    assert_eq!(answer.options.raw(OptionCode::RelayAgentInformation), Some([1, 1, 5].as_slice()));
}

#[test]
fn lengths_that_make_typed_decoders_assert_are_just_bytes() {
    for option in
        [&[80, 1, 0][..], &[81, 1, 0], &[81, 0], &[94, 1, 1], &[94, 0], &[151, 0], &[93, 1, 0], &[97, 0]]
    {
        let mut options = option.to_vec();
        options.extend([50, 4, 10, 77, 0, 101, 255]);
        let packet = ingress::parse(&with_options(&options)).unwrap();
        assert_eq!(packet.options.ipv4(OptionCode::RequestedIpAddress), Some(ip(101)), "{option:?}");
        assert!(!server().handle(START, LINK, &packet).is_empty());
    }
}

#[test]
fn a_route_with_prefix_64_is_kept_as_it_came() {
    let packet =
        ingress::parse(&with_options(&[121, 6, 64, 10, 10, 77, 0, 1, 50, 4, 10, 77, 0, 102, 255])).unwrap();
    assert_eq!(packet.options.raw(OptionCode::ClasslessStaticRoute).map(<[u8]>::len), Some(6));
    assert_eq!(packet.options.ipv4(OptionCode::RequestedIpAddress), Some(ip(102)));
}

#[test]
fn reads_options_from_file_and_sname_when_option_52_says_so() {
    let mut datagram = with_options(&[52, 1, 3, 12, 2, b'a', b'b', 255]);
    datagram[108..118].copy_from_slice(&[12, 2, b'c', b'd', 50, 4, 10, 77, 0, 101]);
    datagram[118] = 255;
    datagram[44..49].copy_from_slice(&[12, 1, b'e', 255, 0]);
    let packet = ingress::parse(&datagram).unwrap();
    assert_eq!(packet.options.ipv4(OptionCode::RequestedIpAddress), Some(ip(101)));
    // RFC 3396: options, then file, then sname.
    assert_eq!(packet.options.text(OptionCode::Hostname), Some("abcde"));
    assert!(packet.file.is_empty() && packet.sname.is_empty());
}

#[test]
fn file_and_sname_are_names_without_option_52() {
    let mut datagram = with_options(&[255]);
    datagram[108..112].copy_from_slice(b"x.0\0");
    datagram[44..47].copy_from_slice(b"srv");
    let packet = ingress::parse(&datagram).unwrap();
    assert_eq!((packet.file.as_slice(), packet.sname.as_slice()), (b"x.0".as_slice(), b"srv".as_slice()));
}

#[test]
fn joins_split_options_adjacent_or_not() {
    let split = [43, 2, 1, 2, 43, 1, 3, 12, 1, b'h', 43, 1, 4, 255];
    let packet = ingress::parse(&with_options(&split)).unwrap();
    assert_eq!(packet.options.raw(OptionCode::VendorExtensions), Some([1, 2, 3, 4].as_slice()));
}

#[test]
fn a_truncated_second_part_leaves_the_first() {
    let packet = ingress::parse(&with_options(&[82, 3, 1, 1, 5, 82, 200, 1])).unwrap();
    assert!(packet.options.truncated());
    assert_eq!(packet.options.raw(OptionCode::RelayAgentInformation), Some([1, 1, 5].as_slice()));
}

#[test]
fn a_message_without_end_option_is_read() {
    let packet = ingress::parse(&with_options(&[50, 4, 10, 77, 0, 101])).unwrap();
    assert_eq!(packet.options.ipv4(OptionCode::RequestedIpAddress), Some(ip(101)));
    assert!(!packet.options.truncated());
}

#[test]
fn group_and_zero_hardware_addresses_are_nobody() {
    for address in [[0xff; 6], [1, 0, 0, 0, 0, 1], [0; 6]] {
        let mut datagram = discover(1).encode();
        datagram[28..34].copy_from_slice(&address);
        assert_eq!(ingress::parse(&datagram).unwrap().mac(), None);
    }
}

#[test]
fn what_is_written_is_read_by_another_decoder() {
    let mut message = Message::reply(MessageType::Ack, 7, mac(1));
    message.yiaddr = ip(9);
    message.file = b"boot/x".to_vec();
    message.option(OptionCode::VendorExtensions, vec![5; 300]);
    message.option(OptionCode::RelayAgentInformation, vec![1, 1, 5]);
    message.option(OptionCode::SubnetMask, [255, 255, 255, 0]);
    let bytes = message.encode();
    assert_eq!(bytes[bytes.len() - 6..], [82, 3, 1, 1, 5, 255], "the relay's option is the last");
    let decoded = v4::Message::decode(&mut Decoder::new(&bytes)).unwrap();
    assert_eq!(decoded.opts().msg_type(), Some(MessageType::Ack));
    assert_eq!((decoded.xid(), decoded.yiaddr(), decoded.chaddr()), (7, ip(9), mac(1).0.as_slice()));
    assert_eq!(decoded.fname(), Some(b"boot/x\0".as_slice()));
    let mask = decoded.opts().get(OptionCode::SubnetMask);
    assert_eq!(mask, Some(&v4::DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0))));
    let vendor = decoded.opts().get(OptionCode::VendorExtensions);
    assert_eq!(vendor, Some(&v4::DhcpOption::VendorExtensions(vec![5; 300])));
}

#[test]
fn a_file_name_too_long_for_its_field_goes_to_option_67() {
    let mut message = Message::reply(MessageType::Ack, 7, mac(1));
    message.file = vec![b'u'; 128];
    let packet = ingress::parse(&message.encode()).unwrap();
    assert!(packet.file.is_empty());
    assert_eq!(packet.options.raw(OptionCode::BootfileName), Some([b'u'; 128].as_slice()));
}

/// RFC 4390: hlen is 0, chaddr is empty, and the client identifier names the client. Some clients send hlen 20 all the
/// same.
#[test]
fn a_client_over_infiniband_is_known_and_not_answered() {
    let guid = [0x00, 0x02, 0xc9, 0x03, 0x00, 0x12, 0x34, 0x56];
    let identifier = [&[255, 0, 0, 0, 1, 0, 2, 0, 0, 0x02, 0xc9, 0][..], &guid].concat();
    for hlen in [0, 20, 255] {
        let mut message = discover(1);
        message.option(OptionCode::ClientIdentifier, identifier.as_slice());
        let mut datagram = message.encode();
        datagram[1] = 32;
        datagram[2] = hlen;
        datagram[28..44].fill(0);
        let packet = ingress::parse(&datagram).unwrap();
        assert_eq!(packet.mac(), None);
        let heard = packet.infiniband().unwrap();
        assert_eq!(heard.to_string(), "over InfiniBand, port GUID 0002:c903:0012:3456");
        assert_eq!(heard.stand_in.map(|mac| mac.to_string()).as_deref(), Some("00:02:c9:12:34:56"));
        let mut server = server();
        let answer = Answer(server.handle(START, LINK, &packet));
        assert_eq!(answer.ignored(), Ignored::InfiniBand, "hlen {hlen}");
        assert_eq!(server.known(), 0);
    }
}
