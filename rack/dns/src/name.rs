//! Names in wire format (RFC 1035 §3.1).

use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::BinDecodable;

/// The longest name, in octets, with the lengths of its labels (RFC 1035 §2.3.4).
const MAX_NAME: usize = 255;
/// The most labels of a name.
const MAX_LABELS: usize = 128;
/// The name of the root.
pub(crate) const ROOT: &[u8] = &[0];

/// A name in wire format without pointers, on the stack.
#[derive(Clone)]
pub(crate) struct WireName {
    bytes: [u8; MAX_NAME],
    length: usize,
    starts: [u8; MAX_LABELS],
    labels: usize,
}

impl WireName {
    /// Reads the name at `at` in `message`. Also returns the offset after it. Pointers (RFC 1035 §4.1.4) must lead
    /// backwards. `None`: there is no valid name.
    pub(crate) fn read(message: &[u8], at: usize) -> Option<(Self, usize)> {
        let mut name = Self { bytes: [0; MAX_NAME], length: 0, starts: [0; MAX_LABELS], labels: 0 };
        let (mut at, mut lowest, mut end) = (at, at, None);
        loop {
            let length = *message.get(at)?;
            match length {
                0 => {
                    *name.bytes.get_mut(name.length)? = 0;
                    name.length += 1;
                    return Some((name, end.unwrap_or(at + 1)));
                }
                1..=63 => {
                    let next = at + 1 + usize::from(length);
                    let label = message.get(at..next)?;
                    name.push(label)?;
                    at = next;
                }
                0xc0.. => {
                    let low = *message.get(at + 1)?;
                    end = end.or(Some(at + 2));
                    at = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                    if at >= lowest {
                        return None;
                    }
                    lowest = at;
                }
                _ => return None,
            }
        }
    }

    /// A name that is in wire form already.
    pub(crate) fn of(wire: &[u8]) -> Option<Self> {
        Self::read(wire, 0).map(|(name, _)| name)
    }

    /// Adds a label after its length. One octet stays free for the root.
    fn push(&mut self, label: &[u8]) -> Option<()> {
        let end = self.length + label.len();
        if end >= MAX_NAME {
            return None;
        }
        self.bytes.get_mut(self.length..end)?.copy_from_slice(label);
        *self.starts.get_mut(self.labels)? = u8::try_from(self.length).ok()?;
        self.length = end;
        self.labels += 1;
        Some(())
    }

    /// Names compare in lower case (RFC 4343). Lengths of labels are below every letter.
    pub(crate) fn make_lowercase(&mut self) {
        self.bytes.make_ascii_lowercase();
    }

    /// The bytes of the name.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(ROOT)
    }

    /// The number of labels without the root.
    pub(crate) fn labels(&self) -> usize {
        self.labels
    }

    /// Its last `labels` labels, and the root.
    pub(crate) fn last(&self, labels: usize) -> &[u8] {
        let Some(first) = self.labels.checked_sub(labels) else { return self.as_bytes() };
        let start =
            self.starts.get(first).filter(|_| labels > 0).map_or(self.length - 1, |it| usize::from(*it));
        self.bytes.get(start..self.length).unwrap_or(ROOT)
    }

    /// The offsets of its labels.
    pub(crate) fn starts(&self) -> &[u8] {
        self.starts.get(..self.labels).unwrap_or(&[])
    }

    /// The text of a label, counted from the left.
    pub(crate) fn label(&self, number: usize) -> Option<&[u8]> {
        let start = usize::from(*self.starts().get(number)?);
        let length = usize::from(*self.bytes.get(start)?);
        self.bytes.get(start + 1..start + 1 + length)
    }
}

/// The wire form of a name of hickory-proto.
pub(crate) fn to_wire(name: &Name) -> Vec<u8> {
    let mut wire = Vec::with_capacity(name.len() + 1);
    for label in name.iter() {
        wire.push(u8::try_from(label.len()).unwrap_or(0));
        wire.extend_from_slice(label);
    }
    wire.push(0);
    wire
}

/// The wire format in lower case, for keys of maps.
pub(crate) fn to_key(name: &Name) -> Box<[u8]> {
    let mut wire = to_wire(name);
    wire.make_ascii_lowercase();
    wire.into_boxed_slice()
}

/// The name of hickory-proto for one in wire form.
pub(crate) fn to_name(wire: &[u8]) -> Name {
    Name::from_bytes(wire).unwrap_or_else(|_| Name::root())
}

/// The name without its first label. The root stays.
pub(crate) fn parent(wire: &[u8]) -> &[u8] {
    let length = wire.first().copied().unwrap_or(0);
    if length == 0 { wire } else { wire.get(1 + usize::from(length)..).unwrap_or(ROOT) }
}

/// The number of labels of a name.
pub(crate) fn count_labels(wire: &[u8]) -> usize {
    std::iter::successors(Some(wire), |name| Some(parent(name)))
        .take_while(|name| name.first().is_some_and(|length| *length > 0))
        .count()
}

/// The name as text, with its final dot and with other octets as `\DDD` (RFC 1035 §5.1).
pub(crate) fn display(wire: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = wire;
    while let Some((length, tail)) = rest.split_first().filter(|(length, _)| **length > 0) {
        let (label, tail) = tail.split_at_checked(usize::from(*length)).unwrap_or((tail, &[]));
        for byte in label {
            match byte {
                b'.' | b'\\' => text.extend(['\\', char::from(*byte)]),
                b'!'..=b'~' => text.push(char::from(*byte)),
                _ => text.push_str(&format!("\\{byte:03}")),
            }
        }
        text.push('.');
        rest = tail;
    }
    if text.is_empty() { ".".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Option<(String, usize)> {
        WireName::read(bytes, 0).map(|(name, end)| (display(name.as_bytes()), end))
    }

    #[test]
    fn names_end_at_the_root_and_have_255_octets_at_most() {
        assert_eq!(read(b"\x03www\x07example\x00rest"), Some(("www.example.".into(), 13)));
        assert_eq!(read(b"\x00"), Some((".".into(), 1)));
        let of_labels = |lengths: &[u8]| {
            let label = |length: &u8| [vec![*length], vec![b'a'; usize::from(*length)]].concat();
            [lengths.iter().flat_map(label).collect(), vec![0]].concat()
        };
        let length = |wire: &[u8]| WireName::read(wire, 0).map(|(name, end)| (name.as_bytes().len(), end));
        assert_eq!(length(&of_labels(&[63, 63, 63, 61])), Some((255, 255)));
        assert_eq!(length(&of_labels(&[63, 63, 63, 62])), None);
        let many = [[1, b'a'].repeat(127), vec![0]].concat();
        assert_eq!(
            WireName::read(&many, 0).map(|(name, _)| (name.labels(), name.as_bytes().len())),
            Some((127, 255))
        );
        assert!(read(&[[1, b'a'].repeat(128), vec![0]].concat()).is_none());
    }

    #[test]
    fn pointers_lead_to_the_beginning_and_no_loop_is_followed() {
        let message = b"\x03com\x00\x07example\xc0\x00\x03www\xc0\x05";
        let (name, end) = WireName::read(message, 15).unwrap();
        assert_eq!((display(name.as_bytes()), end), ("www.example.com.".into(), message.len()));
        for bad in [
            &b"\xc0\x00"[..],
            b"\x01a\xc0\x00",
            b"\xc0\x02\xc0\x00",
            b"\x40a\x00",
            b"\x80",
            b"\x03ww",
            b"\xc0",
            b"",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn suffixes_are_found_by_their_number_of_labels() {
        let (mut name, _) = WireName::read(b"\x03WWW\x07example\x03com\x00", 0).unwrap();
        name.make_lowercase();
        assert_eq!(name.last(0), b"\x00");
        assert_eq!(name.last(2), b"\x07example\x03com\x00");
        assert_eq!(name.last(3), name.as_bytes());
        assert_eq!(name.last(4), name.as_bytes());
        assert_eq!((name.label(0), name.label(3)), (Some(&b"www"[..]), None));
        assert_eq!(
            (parent(name.as_bytes()), parent(b"\x00")),
            (&b"\x07example\x03com\x00"[..], &b"\x00"[..])
        );
        assert_eq!(count_labels(name.as_bytes()), 3);
        assert_eq!(display(b"\x02\x07.\x00"), "\\007\\..");
    }
}
