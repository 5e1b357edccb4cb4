//! Ethernet frames. A client without an address answers no ARP, so the kernel cannot send to it: its frame is built
//! here. ARP frames ask if an address is in use.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::Mac;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
/// Ethernet and IPv4, with addresses of six and four bytes (RFC 826).
const ARP_OF_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];
const ARP_REQUEST: [u8; 2] = [0, 1];
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

/// An ARP request for the address to the whole link. The sender address is empty, so that no host adds the sender to
/// its ARP table (RFC 5227 §1.1).
#[must_use]
pub fn arp_probe(from: Mac, address: Ipv4Addr) -> Vec<u8> {
    let nobody = [0; 4];
    let body = [&ARP_OF_IPV4[..], &ARP_REQUEST, &from.0, &nobody, &[0; 6], &address.octets()];
    [&[0xff; 6][..], &from.0, &ETHERTYPE_ARP, &body.concat()].concat()
}

/// The claim of an ARP frame: a host has the address, or is about to take it (RFC 5227 §2.1.1). Returns the sender, and
/// the address of the sender or, in a probe, of the target.
#[must_use]
pub fn arp_claim(frame: &[u8]) -> Option<(Mac, Ipv4Addr)> {
    let (ethernet, arp) = frame.split_at_checked(14)?;
    let (form, arp) = arp.split_first_chunk::<6>()?;
    let (_operation, arp) = arp.split_first_chunk::<2>()?;
    let (holder, arp) = arp.split_first_chunk::<6>()?;
    let (sender, arp) = arp.split_first_chunk::<4>()?;
    let (target, _) = arp.split_at_checked(6)?.1.split_first_chunk::<4>()?;
    let address = if *sender == [0; 4] { target } else { sender };
    (ethernet.ends_with(&ETHERTYPE_ARP) && *form == ARP_OF_IPV4).then_some((Mac(*holder), (*address).into()))
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

/// The Internet checksum (RFC 1071) of several parts. Every part except the last has an even length.
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
    fn reads_who_has_an_address_from_answers_announcements_and_probes_and_from_nothing_else() {
        let (one, two) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let address = Ipv4Addr::new(10, 77, 0, 100);
        let probe = arp_probe(one, address);
        assert_eq!(probe.len(), 14 + 28);
        assert_eq!((&probe[..6], &probe[28..32]), (&[0xff; 6][..], &[0; 4][..]));
        assert_eq!(arp_claim(&probe), Some((one, address)), "another host's probe");
        let mut answer = probe;
        answer[21] = 2;
        answer[38..42].copy_from_slice(&[10, 77, 0, 2]);
        answer[22..28].copy_from_slice(&two.0);
        answer[28..32].copy_from_slice(&address.octets());
        assert_eq!(arp_claim(&answer), Some((two, address)));
        for (at, byte) in [(12, 0x86), (14, 1), (17, 1), (18, 8), (19, 16)] {
            let mut other = answer.clone();
            other[at] = byte;
            assert_eq!(arp_claim(&other), None, "byte {at}");
        }
        for length in 0..answer.len() {
            assert_eq!(arp_claim(&answer[..length]), None, "{length} bytes");
        }
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
