//! Datagrams, paths, modes and options.

use basalt_tftp::packet::{ErrorCode, MAX_REQUEST, Malformed, Packet};
use basalt_tftp::request::{Decision, MAX_NETASCII, Mode, decide};
use basalt_tftp::{Caps, Negotiated};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

fn options(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn read(file: &str, mode: &str) -> Vec<u8> {
    Packet::Request { write: false, file, mode, options: vec![] }.encode()
}

fn path(file: &str) -> Option<String> {
    match decide(&read(file, "octet")) {
        Decision::Read(request) => Some(request.path),
        Decision::Refuse { code, .. } => {
            assert_eq!(code, ErrorCode::AccessViolation);
            None
        }
        Decision::Ignore => panic!("a request is answered"),
    }
}

#[test]
fn serves_files_with_and_without_a_leading_slash() {
    for file in ["a/b.efi", "/a/b.efi", "//a//b.efi", "./a/./b.efi", "a\\b.efi", "\\a\\b.efi"] {
        assert_eq!(path(file).as_deref(), Some("a/b.efi"), "{file}");
    }
}

#[test]
fn nothing_leads_out_of_the_root() {
    let long = "a".repeat(256);
    for file in ["../etc/passwd", "a/../../b", "/..", "a\\..\\b", "..", "", "/", "a\nb", "a\u{7f}", &long] {
        assert_eq!(path(file), None, "{file}");
    }
    assert_eq!(path("a..b/..c").as_deref(), Some("a..b/..c"));
}

#[test]
fn refuses_writing_and_unknown_modes_and_ignores_noise() {
    let write = Packet::Request { write: true, file: "x", mode: "octet", options: vec![] }.encode();
    assert!(matches!(decide(&write), Decision::Refuse { code: ErrorCode::AccessViolation, .. }));
    assert!(matches!(decide(&read("x", "mail")), Decision::Refuse { code: ErrorCode::IllegalOperation, .. }));
    for noise in [
        &b""[..],
        b"\0",
        b"\0\x01x",
        b"\0\x01x\0octet",
        b"\0\x04\0\x01",
        b"\0\x05\0\0x\0",
        b"\0\x01\xff\0octet\0",
    ] {
        assert_eq!(decide(noise), Decision::Ignore, "{noise:?}");
    }
    assert!(matches!(decide(&read("x", "OcTeT")), Decision::Read(_)));
}

#[test]
fn netascii_is_translated() {
    let Decision::Read(request) = decide(&read("x", "netascii")) else { panic!() };
    assert_eq!(request.mode, Mode::Netascii);
    assert_eq!(
        request.mode.encode(Bytes::from_static(b"a\nb\rc\r\n")),
        Some(Bytes::from_static(b"a\r\nb\r\0c\r\0\r\n"))
    );
    assert_eq!(Mode::Octet.encode(Bytes::from_static(b"a\n")), Some(Bytes::from_static(b"a\n")));
    let longest = Bytes::from(vec![b'\n'; MAX_NETASCII]);
    assert_eq!(Mode::Netascii.encode(longest).map(|text| text.len()), Some(2 * MAX_NETASCII));
    let longer = Bytes::from(vec![b'a'; MAX_NETASCII + 1]);
    assert_eq!(Mode::Netascii.encode(longer.clone()), None, "each transfer would need a copy of its own");
    assert_eq!(Mode::Octet.encode(longer.clone()), Some(longer));
}

#[test]
fn grants_options_within_its_caps() {
    let granted = |list: &[(&str, &str)]| Negotiated::new(&options(list), Caps::default(), 1000);
    let all = granted(&[("tsize", "0"), ("BLKSIZE", "1428"), ("windowsize", "16"), ("timeout", "3")]);
    assert_eq!(
        all.granted,
        options(&[("tsize", "1000"), ("blksize", "1428"), ("windowsize", "16"), ("timeout", "3")])
    );
    assert_eq!((all.blksize, all.windowsize), (1428, 16));

    let capped = granted(&[("blksize", "65464"), ("windowsize", "65535")]);
    assert_eq!((capped.blksize, capped.windowsize), (1468, 64));
    assert_eq!(capped.granted, options(&[("blksize", "1468"), ("windowsize", "64")]));
}

#[test]
fn leaves_out_options_that_make_no_sense() {
    let nonsense = options(&[
        ("blksize", "7"),
        ("blksize", "65465"),
        ("blksize", "-1"),
        ("blksize", "x"),
        ("windowsize", "0"),
        ("windowsize", "65536"),
        ("timeout", "0"),
        ("timeout", "255"),
        ("multicast", "1"),
        ("tsize", ""),
        ("tsize", "99999999999999999999999"),
    ]);
    let none = Negotiated::new(&nonsense, Caps::default(), 1000);
    assert!(none.granted.is_empty(), "{none:?}");
    assert_eq!((none.blksize, none.windowsize, none.timeout), (512, 1, None));
    let twice = Negotiated::new(&options(&[("blksize", "600"), ("blksize", "700")]), Caps::default(), 1);
    assert_eq!(twice.blksize, 600);
}

#[test]
fn bounds_a_request() {
    let long = "x".repeat(MAX_REQUEST);
    assert_eq!(Packet::parse(&read(&long, "octet")), Err(Malformed::TooLong));
    let many: Vec<_> = (0..17).map(|number| (number.to_string(), "1".to_owned())).collect();
    let many = Packet::Request { write: false, file: "x", mode: "octet", options: many }.encode();
    assert_eq!(Packet::parse(&many), Err(Malformed::TooLong));
}

#[test]
fn reads_what_roms_send() {
    let mut padded = read("x", "octet");
    padded.extend(b"tsize\x000\0\0\0\0");
    let Ok(Packet::Request { options: list, .. }) = Packet::parse(&padded) else { panic!() };
    assert_eq!(list, options(&[("tsize", "0")]));
    let bare_error = Packet::parse(b"\0\x05\0\x08");
    assert_eq!(bare_error, Ok(Packet::Error { code: ErrorCode::OptionNegotiation, message: "" }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(operation in 0u8..8, body in vec(any::<u8>(), 0..600)) {
        let mut datagram = vec![0, operation];
        datagram.extend(&body);
        let _ = Packet::parse(&body);
        if let Ok(packet) = Packet::parse(&datagram) {
            let again = packet.encode();
            prop_assert_eq!(Packet::parse(&again), Ok(packet));
        }
        if let Decision::Read(request) = decide(&datagram) {
            prop_assert!(request.path.split('/').all(|part| !matches!(part, "" | "." | "..")));
            let _ = Negotiated::new(&request.options, Caps::default(), body.len());
        }
    }

    #[test]
    fn no_name_leads_out(file in "[./\\\\a]{0,12}") {
        if let Some(path) = path(&file) {
            prop_assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")));
        }
    }
}
