//! Datagrams that break decoders: each is decoded or refused.

use basalt_dhcp::v6::ingress::{self, MAX_ASSOCIATIONS, Malformed};
use dhcproto::v6::{MessageType, OptionCode};

use crate::support::*;

#[test]
fn refuses_what_is_too_short_or_too_long() {
    for length in 0..4 {
        assert_eq!(ingress::parse(&vec![1; length]), Err(Malformed::TooShort(length)));
    }
    for length in [1, 2, 17, 33] {
        assert_eq!(ingress::parse(&vec![12; length]), Err(Malformed::TooShort(length)), "a relay's");
    }
    assert_eq!(ingress::parse(&[0; 4097]), Err(Malformed::TooLong(4097)));
}

#[test]
fn refuses_options_longer_than_the_message() {
    let with = |tail: &[u8]| ingress::parse(&[Ask::of(MessageType::Solicit, 1).0.as_slice(), tail].concat());
    assert_eq!(with(&[0, 6, 0, 3, 0, 0]), Err(Malformed::Truncated(6)));
    assert_eq!(with(&[0, 6, 255, 255]), Err(Malformed::Truncated(6)));
    assert_eq!(with(&[0, 6, 0]), Err(Malformed::Truncated(6)));
    assert_eq!(with(&[0]), Err(Malformed::Truncated(0)));
}

#[test]
fn refuses_associations_that_are_cut_short() {
    let with = |code, value: &[u8]| ingress::parse(&Ask::of(MessageType::Solicit, 1).option(code, value).0);
    assert_eq!(with(OptionCode::IANA, &[0; 11]), Err(Malformed::OptionTooShort(3)));
    assert_eq!(with(OptionCode::IATA, &[0; 3]), Err(Malformed::OptionTooShort(4)));
    assert_eq!(with(OptionCode::IAPD, &[0; 11]), Err(Malformed::OptionTooShort(25)));
    let mut short = vec![0; 12];
    put(&mut short, OptionCode::IAAddr, &[0; 23]);
    assert_eq!(with(OptionCode::IANA, &short), Err(Malformed::OptionTooShort(5)));
    let mut long = vec![0; 12];
    long.extend([0, 5, 0, 24, 1]);
    assert_eq!(with(OptionCode::IANA, &long), Err(Malformed::Truncated(5)));
}

#[test]
fn refuses_more_than_anybody_needs() {
    let associations = |many: usize| {
        (0..many)
            .fold(Ask::of(MessageType::Solicit, 1), |ask, iaid| ask.ia(u32::try_from(iaid).unwrap(), &[]))
    };
    assert!(ingress::parse(&associations(MAX_ASSOCIATIONS).0).is_ok());
    assert_eq!(ingress::parse(&associations(MAX_ASSOCIATIONS + 1).0), Err(Malformed::TooManyAssociations));
    let options =
        (0..129).fold(Ask::bare(MessageType::Solicit), |ask, _| ask.option(OptionCode::RapidCommit, &[]));
    assert_eq!(ingress::parse(&options.0), Err(Malformed::TooManyOptions));
    let same = (0..100).fold(solicit(1), |ask, _| ask.ia(1, &[]));
    assert_eq!(ingress::parse(&same.0).unwrap().associations.len(), 1, "each once");
}

/// With each of these, dhcproto's decoder subtracts from a length, and panics if overflow checks are on.
#[test]
fn lengths_below_an_options_header_change_nothing() {
    for code in
        [OptionCode::StatusCode, OptionCode::VendorClass, OptionCode::VendorOpts, OptionCode::Authentication]
    {
        let answer = server(subnet()).ask(START, &solicit(1).option(code, &[0]));
        answer.address();
    }
}

#[test]
fn a_duid_of_no_bytes_or_too_many_is_none() {
    for length in [0, 131] {
        let ask = Ask::bare(MessageType::Solicit).option(OptionCode::ClientId, &vec![1; length]).ia(1, &[]);
        server(subnet()).ask(START, &ask).ignored();
    }
    let longest = Ask::bare(MessageType::Solicit).option(OptionCode::ClientId, &[1; 130]).ia(1, &[]);
    server(subnet()).ask(START, &longest).address();
}
