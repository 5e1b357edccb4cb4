//! Streams of messages (RFC 6587): with octet counts (section 3.4.1), or with a line feed at the end of each message
//! (section 3.4.2). The first octet of a connection shows which: a count begins with a digit, and a message does not.

use crate::message::MAX_OCTETS;

/// A message of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The octets, at most [`MAX_OCTETS`].
    pub octets: &'a [u8],
    /// The message was longer and has been cut.
    pub is_cut: bool,
}

/// The most digits of a count: a message of a gigabyte is not accepted.
const DIGITS: usize = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing has been received.
    Fresh,
    /// The part of the next message's count that has been received.
    Count { value: usize, digits: usize },
    /// A counted message; this many octets of it are missing.
    Counted { left: usize },
    /// Messages that end with a line feed.
    Lines,
}

/// Splits one connection's stream. It holds at most [`MAX_OCTETS`] octets; the rest of a longer message is skipped.
#[derive(Debug)]
pub struct Frames {
    state: State,
    kept: Vec<u8>,
    is_cut: bool,
}

impl Default for Frames {
    fn default() -> Self {
        Self { state: State::Fresh, kept: Vec::new(), is_cut: false }
    }
}

impl Frames {
    /// Takes received octets, and passes on each message that ends in them.
    pub fn push(&mut self, mut octets: &[u8], mut each: impl FnMut(Frame<'_>)) {
        while let Some((&first, rest)) = octets.split_first() {
            match self.state {
                State::Fresh if first.is_ascii_digit() => self.state = State::Count { value: 0, digits: 0 },
                State::Fresh => self.state = State::Lines,
                State::Count { value, digits } => {
                    octets = rest;
                    self.state = match first {
                        b'0'..=b'9' if digits < DIGITS => {
                            State::Count { value: value * 10 + usize::from(first - b'0'), digits: digits + 1 }
                        }
                        b' ' if digits > 0 => State::Counted { left: value },
                        // Some senders end a counted message with a line feed as well.
                        b'\n' | b'\r' if digits == 0 => self.state,
                        _ => {
                            self.keep(&[first]);
                            State::Lines
                        }
                    };
                    if self.state == (State::Counted { left: 0 }) {
                        self.state = State::Count { value: 0, digits: 0 };
                    }
                }
                State::Counted { left } => {
                    let (here, rest) = octets.split_at(left.min(octets.len()));
                    octets = rest;
                    self.keep(here);
                    self.state = State::Counted { left: left - here.len() };
                    if left == here.len() {
                        self.state = State::Count { value: 0, digits: 0 };
                        self.hand_over(&mut each);
                    }
                }
                State::Lines => {
                    let end = octets.iter().position(|&octet| octet == b'\n');
                    let (here, rest) = octets.split_at(end.unwrap_or(octets.len()));
                    self.keep(here);
                    octets = rest.get(1..).unwrap_or_default();
                    if end.is_some() {
                        self.hand_over(&mut each);
                    }
                }
            }
        }
    }

    /// Ends the stream: an incomplete message counts as a message too.
    pub fn end(mut self, mut each: impl FnMut(Frame<'_>)) {
        self.is_cut |= matches!(self.state, State::Counted { left: 1.. });
        self.hand_over(&mut each);
    }

    fn keep(&mut self, octets: &[u8]) {
        let room = MAX_OCTETS.saturating_sub(self.kept.len());
        self.is_cut |= octets.len() > room;
        self.kept.extend_from_slice(octets.get(..room).unwrap_or(octets));
    }

    fn hand_over(&mut self, each: &mut impl FnMut(Frame<'_>)) {
        if !self.kept.is_empty() {
            each(Frame { octets: &self.kept, is_cut: self.is_cut });
        }
        self.kept.clear();
        self.is_cut = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The messages of a stream that is received in pieces of this length.
    fn messages(stream: &[u8], piece: usize) -> Vec<(Vec<u8>, bool)> {
        let (mut frames, mut messages) = (Frames::default(), Vec::new());
        for octets in stream.chunks(piece) {
            frames.push(octets, |frame| messages.push((frame.octets.to_vec(), frame.is_cut)));
        }
        frames.end(|frame| messages.push((frame.octets.to_vec(), frame.is_cut)));
        messages
    }

    fn whole(texts: &[&str]) -> Vec<(Vec<u8>, bool)> {
        texts.iter().map(|text| (text.as_bytes().to_vec(), false)).collect()
    }

    #[test]
    fn the_first_octet_tells_counts_from_lines_however_the_stream_is_cut_up() {
        for piece in [1, 2, 3, 7, 1000] {
            for (stream, expected) in [
                ("5 <6>ab10 <6>a\nb\nc\0d", vec!["<6>ab", "<6>a\nb\nc\0d"]),
                ("5 <6>ab\n4 <6>a\n", vec!["<6>ab", "<6>a"]),
                ("<6>a\n<6>b\r\n\n<6>no end", vec!["<6>a", "<6>b\r", "<6>no end"]),
                (
                    "[ 0.1] kernel line\n5 is no count here\n",
                    vec!["[ 0.1] kernel line", "5 is no count here"],
                ),
                ("0 3 abc", vec!["abc"]),
            ] {
                assert_eq!(messages(stream.as_bytes(), piece), whole(&expected), "{stream:?} by {piece}");
            }
        }
    }

    #[test]
    fn a_stream_whose_count_is_none_goes_on_in_lines() {
        assert_eq!(messages(b"5 <6>ab<6>c\n<6>d\n", 4), whole(&["<6>ab", "<6>c", "<6>d"]));
        assert_eq!(messages(b"9999999999 x\nb\n", 4), whole(&["9 x", "b"]));
    }

    #[test]
    fn a_message_of_a_megabyte_is_cut_and_takes_no_memory() {
        let long = vec![b'x'; 1 << 20];
        let mut lines = long.clone();
        lines.extend(b"\nnext\n");
        let mut counted = format!("{} ", long.len()).into_bytes();
        counted.extend(long);
        counted.extend(b"4 next");
        for stream in [lines, counted] {
            let messages = messages(&stream, 5000);
            let [(first, true), (next, false)] = &messages[..] else { panic!("{}", messages.len()) };
            assert_eq!((first.len(), &next[..]), (MAX_OCTETS, &b"next"[..]));
        }
        let mut frames = Frames::default();
        (0..1000).for_each(|_| frames.push(&[0; 10_000], |_| panic!("it has no end")));
        assert!(frames.kept.capacity() <= 2 * MAX_OCTETS);
    }

    #[test]
    fn a_counted_message_that_breaks_off_is_cut() {
        assert_eq!(messages(b"10 <6>ab", 4), [(b"<6>ab".to_vec(), true)]);
    }

    proptest! {
        #[test]
        fn a_stream_says_the_same_in_any_pieces(stream: Vec<u8>, piece in 1usize..20) {
            prop_assert_eq!(messages(&stream, piece), messages(&stream, usize::MAX));
        }

        #[test]
        fn counted_messages_come_as_they_were_sent(texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 1..10)) {
            let stream: Vec<u8> = texts.iter().flat_map(|it| [format!("{} ", it.len()).as_bytes(), it].concat()).collect();
            let came: Vec<_> = messages(&stream, 3).into_iter().map(|(octets, _)| octets).collect();
            prop_assert_eq!(came, texts);
        }
    }
}
