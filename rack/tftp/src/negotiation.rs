//! Options: the requested values and the granted ones (RFC 2347, 2348, 2349, 7440).

use std::time::Duration;

use crate::packet::OptionList;

/// The block size without option `blksize`, in bytes (RFC 1350).
pub(crate) const DEFAULT_BLKSIZE: u16 = 512;

/// The greatest values that are granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// The largest block, in bytes.
    pub blksize: u16,
    /// The most blocks in flight.
    pub windowsize: u16,
    /// The longest retransmission timeout, in seconds. A client that asks for more is not granted the option; the
    /// server's own timeout applies.
    pub timeout: u8,
}

impl Default for Caps {
    fn default() -> Self {
        Self { blksize: 1468, windowsize: 64, timeout: 5 }
    }
}

/// The bytes of a packet besides the block: the UDP and TFTP headers.
const HEADERS: u16 = 8 + 4;

impl Caps {
    /// Limits the blocks so that a link of this MTU sends their packets unfragmented: with MTU 1500, 1468 bytes over
    /// IPv4 and 1448 over IPv6.
    #[must_use]
    pub fn within(self, mtu: u16, ipv6: bool) -> Self {
        let room = mtu.saturating_sub(HEADERS + if ipv6 { 40 } else { 20 });
        // 512 is the size without the option, so a smaller limit would have no effect.
        Self { blksize: self.blksize.min(room.max(DEFAULT_BLKSIZE)), ..self }
    }
}

/// The parameters of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// Bytes per block.
    pub blksize: u16,
    /// The number of blocks per acknowledgement.
    pub windowsize: u16,
    /// The client's retransmission timeout; `None`: adaptive.
    pub timeout: Option<Duration>,
    /// The options in the OACK; empty: no OACK, the first DATA at once.
    pub granted: OptionList,
}

impl Negotiated {
    /// Grants the options that can be granted. Unknown and invalid options are ignored, as RFC 2347 demands.
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
