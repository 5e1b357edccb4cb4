//! Ethernet frames for clients that have no address yet: nothing could resolve it, so the kernel cannot address them.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::Mac;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const IPV4_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;
const HOPS: u8 = 64;
/// RFC 791: do not fragment.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];

/// A datagram with all of its headers and checksums (RFC 791, RFC 768).
#[must_use]
pub fn udp(from: (Mac, SocketAddrV4), to: (Mac, SocketAddrV4), payload: &[u8]) -> Vec<u8> {
    let (from_mac, from) = from;
    let (to_mac, to) = to;
    let udp_length = length(UDP_HEADER + payload.len());
    let mut udp = Vec::with_capacity(UDP_HEADER + payload.len());
    udp.extend(from.port().to_be_bytes());
    udp.extend(to.port().to_be_bytes());
    udp.extend(udp_length);
    udp.extend([0, 0]);
    udp.extend(payload);
    let pseudo = [&from.ip().octets()[..], &to.ip().octets(), &[0, UDP], &udp_length].concat();
    // A sum of zero would mean that there is none.
    let sum = match checksum(&[&pseudo, &udp]) {
        0 => u16::MAX,
        sum => sum,
    };
    put(&mut udp, 6, sum);

    let mut ip = ip_header(*from.ip(), *to.ip(), length(IPV4_HEADER + udp.len()));
    let sum = checksum(&[&ip]);
    put(&mut ip, 10, sum);
    [&to_mac.0[..], &from_mac.0, &ETHERTYPE_IPV4, &ip, &udp].concat()
}

fn ip_header(from: Ipv4Addr, to: Ipv4Addr, total: [u8; 2]) -> Vec<u8> {
    // Version 4 and five words; identification 0, since it is never fragmented (RFC 6864).
    let fields = [&[0x45, 0][..], &total, &[0, 0], &DONT_FRAGMENT, &[HOPS, UDP, 0, 0]];
    [&fields.concat(), &from.octets()[..], &to.octets()].concat()
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *field = value.to_be_bytes();
    }
}

/// The Internet checksum (RFC 1071) of parts, each but the last of an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for word in part.chunks(2) {
            let [high, low] = [word.first(), word.get(1)].map(|byte| u32::from(byte.copied().unwrap_or(0)));
            sum += high << 8 | low;
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071 §3.
    #[test]
    fn sums_as_the_rfc_does() {
        assert_eq!(checksum(&[&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
    }

    #[test]
    fn a_frame_of_any_length_adds_up() {
        let from = (Mac([2, 0, 0, 0, 0, 1]), "10.77.0.2:67".parse().unwrap());
        let to = (Mac([2, 0, 0, 0, 0, 2]), "10.77.0.100:68".parse().unwrap());
        for size in [0, 1, 300, 301, 1472] {
            let frame = udp(from, to, &vec![0xa5; size]);
            assert_eq!(frame.len(), 14 + 20 + 8 + size);
            assert_eq!(frame[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
            let (ip, udp) = frame[14..].split_at(20);
            assert_eq!(checksum(&[ip]), 0, "a header with its sum sums to nothing");
            let pseudo = [&ip[12..20], &[0, 17], &udp[4..6]].concat();
            assert_eq!(checksum(&[&pseudo, udp]), 0);
            assert_eq!((&udp[..4], &udp[8..]), ([0, 67, 0, 68].as_slice(), vec![0xa5; size].as_slice()));
        }
    }
}
