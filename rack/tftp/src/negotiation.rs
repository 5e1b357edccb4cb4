//! Options: what a client asks for, and what it gets (RFC 2347, 2348, 2349, 7440).

use std::time::Duration;

use crate::packet::OptionList;

/// Without option `blksize` (RFC 1350).
pub(crate) const DEFAULT_BLKSIZE: u16 = 512;

/// The most that is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Largest block in bytes. 1468 fills an Ethernet frame (1500 − IP 20 − UDP 8 − TFTP 4); more would fragment.
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
