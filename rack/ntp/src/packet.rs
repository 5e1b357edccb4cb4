//! The NTP header (RFC 5905 §7.3): 48 octets. Extension fields and authentication are ignored.

use crate::time::{Short, Timestamp};

/// The length of a header, in octets.
pub const LENGTH: usize = 48;

/// Mode of a client's request.
pub const CLIENT: u8 = 3;
/// Mode of a server's answer.
pub const SERVER: u8 = 4;
/// The stratum of a clock that follows no server (§7.3). Zero would be a kiss-o'-death.
pub const UNSYNCHRONISED: u8 = 16;

/// The leap indicator (§7.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Leap {
    /// The last minute of the day has 60 seconds.
    #[default]
    None,
    /// The last minute of the day has 61 seconds.
    Inserted,
    /// The last minute of the day has 59 seconds.
    Deleted,
    /// The clock must not be used.
    Unknown,
}

impl Leap {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::None,
            1 => Self::Inserted,
            2 => Self::Deleted,
            _ => Self::Unknown,
        }
    }

    const fn bits(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Inserted => 1,
            Self::Deleted => 2,
            Self::Unknown => 3,
        }
    }
}

/// A header. Any 48 octets are a valid one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packet {
    /// The leap indicator: the length of the last minute of this day.
    pub leap: Leap,
    /// Version, 0 to 7.
    pub version: u8,
    /// Mode, 0 to 7.
    pub mode: u8,
    /// The number of servers between this clock and its reference; 0 is a kiss-o'-death.
    pub stratum: u8,
    /// The interval of requests, as a power of two of seconds.
    pub poll: i8,
    /// The precision of the clock, as a power of two of seconds.
    pub precision: i8,
    /// The round-trip delay to the reference clock.
    pub root_delay: Short,
    /// The error of the clock.
    pub root_dispersion: Short,
    /// The id of the server that is followed, or the code of a kiss-o'-death.
    pub reference_id: [u8; 4],
    /// When the clock was last compared with its reference.
    pub reference: Timestamp,
    /// The field `transmit` of the answered request.
    pub origin: Timestamp,
    /// When the request arrived.
    pub receive: Timestamp,
    /// When this packet was sent.
    pub transmit: Timestamp,
}

/// A datagram shorter than a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} octets are no NTP packet, which has 48 or more")]
pub struct TooShort(pub usize);

impl Packet {
    /// Decodes the header of a datagram; further octets are ignored.
    ///
    /// # Errors
    /// `TooShort`: the datagram has less than 48 octets.
    pub fn parse(datagram: &[u8]) -> Result<Self, TooShort> {
        Fields(datagram).header().ok_or(TooShort(datagram.len()))
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut octets = [0; LENGTH];
        let flags = self.leap.bits() << 6 | (self.version & 7) << 3 | self.mode & 7;
        let [poll, precision] = [self.poll, self.precision].map(i8::cast_unsigned);
        let fields: [&[u8]; 9] = [
            &[flags, self.stratum, poll, precision],
            &self.root_delay.0.to_be_bytes(),
            &self.root_dispersion.0.to_be_bytes(),
            &self.reference_id,
            &self.reference.0.to_be_bytes(),
            &self.origin.0.to_be_bytes(),
            &self.receive.0.to_be_bytes(),
            &self.transmit.0.to_be_bytes(),
            &[],
        ];
        for (octet, value) in octets.iter_mut().zip(fields.into_iter().flatten()) {
            *octet = *value;
        }
        octets
    }
}

/// The octets that have not been read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn timestamp(&mut self) -> Option<Timestamp> {
        Some(Timestamp(u64::from_be_bytes(self.take()?)))
    }

    fn header(mut self) -> Option<Packet> {
        let [flags, stratum, poll, precision] = self.take()?;
        Some(Packet {
            leap: Leap::from_bits(flags >> 6),
            version: flags >> 3 & 7,
            mode: flags & 7,
            stratum,
            poll: poll.cast_signed(),
            precision: precision.cast_signed(),
            root_delay: Short(u32::from_be_bytes(self.take()?)),
            root_dispersion: Short(u32::from_be_bytes(self.take()?)),
            reference_id: self.take()?,
            reference: self.timestamp()?,
            origin: self.timestamp()?,
            receive: self.timestamp()?,
            transmit: self.timestamp()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_has_its_fields_where_the_standard_has_them() {
        let octets: Vec<u8> = [
            &[0b01_100_100, 2, 6, 0xe9][..],
            &[0, 1, 0x80, 0],
            &[0, 0, 0x40, 0],
            &[192, 0, 2, 1],
            &[0xe0, 0, 0, 1, 0, 0, 0, 0],
            &[0xe0, 0, 0, 2, 0x80, 0, 0, 0],
            &[0xe0, 0, 0, 3, 0, 0, 0, 0],
            &[0xe0, 0, 0, 4, 0, 0, 0, 0],
        ]
        .concat();
        let packet = Packet::parse(&octets).unwrap();
        let expected = Packet {
            leap: Leap::Inserted,
            version: 4,
            mode: SERVER,
            stratum: 2,
            poll: 6,
            precision: -23,
            root_delay: Short(0x1_8000),
            root_dispersion: Short(0x4000),
            reference_id: [192, 0, 2, 1],
            reference: Timestamp(0xe000_0001 << 32),
            origin: Timestamp(0xe000_0002 << 32 | 1 << 31),
            receive: Timestamp(0xe000_0003 << 32),
            transmit: Timestamp(0xe000_0004 << 32),
        };
        assert_eq!(packet, expected);
        assert_eq!(packet.encode().as_slice(), octets);
        assert_eq!(Packet::parse(&octets[..47]), Err(TooShort(47)));
        assert_eq!(Packet::parse(&[&octets[..], b"an extension field"].concat()), Ok(expected));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_as_it_was(octets in proptest::array::uniform32(any::<u8>())) {
            let whole = [&octets[..], &octets[..16]].concat();
            prop_assert_eq!(&Packet::parse(&whole).unwrap().encode()[..], &whole);
        }
    }
}
