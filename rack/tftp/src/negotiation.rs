//! Options: what a client asks for, and what it gets (RFC 2347, 2348, 2349, 7440).

use std::time::Duration;

use crate::packet::OptionList;

/// Without option `blksize` (RFC 1350).
pub(crate) const DEFAULT_BLKSIZE: u16 = 512;

/// The most that is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Largest block in bytes.
    pub blksize: u16,
    /// Most blocks in flight.
    pub windowsize: u16,
    /// Longest retransmission timeout in seconds. A client that asks for more gets none, and ours.
    pub timeout: u8,
}

impl Default for Caps {
    fn default() -> Self {
        Self { blksize: 1468, windowsize: 64, timeout: 5 }
    }
}

/// Bytes of a packet that are not the block: UDP's header and TFTP's.
const HEADERS: u16 = 8 + 4;

impl Caps {
    /// With blocks whose packets are sent in one piece by a link of this MTU: of 1500, 1468 bytes over IPv4 and 1448 over IPv6.
    #[must_use]
    pub fn within(self, mtu: u16, ipv6: bool) -> Self {
        let room = mtu.saturating_sub(HEADERS + if ipv6 { 40 } else { 20 });
        // Less is no TFTP: what is that small has to do without this option.
        Self { blksize: self.blksize.min(room.max(DEFAULT_BLKSIZE)), ..self }
    }
}

/// What a transfer runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// Bytes per block.
    pub blksize: u16,
    /// Blocks per acknowledgement.
    pub windowsize: u16,
    /// The client's retransmission timeout; `None`: adaptive.
    pub timeout: Option<Duration>,
    /// What goes into the OACK; empty: no OACK, DATA at once.
    pub granted: OptionList,
}

impl Negotiated {
    /// Grants what can be granted; unknown and senseless options are left out, as if not asked for.
    #[must_use]
    pub fn new(asked: &OptionList, caps: Caps, size: usize) -> Self {
        let mut this = Self { blksize: DEFAULT_BLKSIZE, windowsize: 1, timeout: None, granted: Vec::new() };
        for (name, value) in asked {
            let name = name.to_ascii_lowercase();
            if this.granted.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let Ok(number) = value.parse::<u64>() else { continue };
            let granted = match name.as_str() {
                "blksize" if (8..=65464).contains(&number) => {
                    this.blksize = at_most(number, caps.blksize.max(8));
                    u64::from(this.blksize)
                }
                "windowsize" if (1..=65535).contains(&number) => {
                    this.windowsize = at_most(number, caps.windowsize.max(1));
                    u64::from(this.windowsize)
                }
                // It is granted as asked, or not at all (RFC 2349).
                "timeout" if (1..=u64::from(caps.timeout)).contains(&number) => {
                    this.timeout = Some(Duration::from_secs(number));
                    number
                }
                "tsize" => size as u64,
                _ => continue,
            };
            this.granted.push((name, granted.to_string()));
        }
        this
    }
}

fn at_most(number: u64, cap: u16) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_fits_into_one_packet_of_the_link() {
        let granted = |mtu, ipv6, asked: &str| {
            let asked = vec![("blksize".to_owned(), asked.to_owned())];
            Negotiated::new(&asked, Caps::default().within(mtu, ipv6), 0).blksize
        };
        assert_eq!((granted(1500, false, "65464"), granted(1500, true, "65464")), (1468, 1448));
        assert_eq!((granted(1450, false, "1468"), granted(1450, true, "1468")), (1418, 1398));
        assert_eq!(
            (granted(1500, true, "1024"), granted(9000, true, "8192")),
            (1024, 1468),
            "others on the way may have less"
        );
        assert_eq!(granted(100, true, "1468"), 512);
    }
}
