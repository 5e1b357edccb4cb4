//! Texts of senders, made printable: one line, no control character, of bounded length.

use std::fmt::Write as _;

/// Octets of a text that are kept.
pub const MAX_TEXT: usize = 8192;

/// Stands at the end of a text that was cut.
const CUT: char = '…';

/// The octets as text of at most `most` octets. A control character becomes its code point in angle brackets; octets that are no UTF-8 become U+FFFD.
#[must_use]
pub fn printable(octets: &[u8], most: usize, is_cut: bool) -> String {
    // An escape is longer than its character, so nothing behind `most` octets can be kept.
    let (read, is_longer) =
        octets.get(..most).map_or((octets, false), |read| (read, read.len() < octets.len()));
    let text = String::from_utf8_lossy(read);
    let (mut kept, mut end) = (String::with_capacity(text.len()), 0);
    let room = most.saturating_sub(CUT.len_utf8());
    let mut is_cut = is_cut || is_longer;
    for c in text.chars() {
        push(&mut kept, c);
        if kept.len() > most {
            is_cut = true;
            break;
        }
        if kept.len() <= room {
            end = kept.len();
        }
    }
    if is_cut {
        kept.truncate(end);
        kept.push(CUT);
    }
    kept
}

fn push(to: &mut String, c: char) {
    if is_printable(c) {
        to.push(c);
    } else {
        // Writing to a string cannot fail.
        let _ = write!(to, "<U+{:04X}>", u32::from(c));
    }
}

/// Tabs are part of many logs, and move no cursor backwards.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, '\t' | ' '..='~');
    }
    // An accent is printable if it has a letter to join.
    let text: String = ['a', c].into_iter().collect();
    text.escape_debug().nth(2).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_characters_are_shown_and_do_nothing() {
        let hostile = "a\tb\u{1b}[2J\0\r\nok\u{9b}1m\u{202e}".as_bytes();
        let shown = "a\tb<U+001B>[2J<U+0000><U+000D><U+000A>ok<U+009B>1m<U+202E>";
        assert_eq!(printable(hostile, 100, false), shown);
        assert_eq!(printable(b"a\xffb", 100, false), "a\u{fffd}b");
    }

    #[test]
    fn a_text_that_was_cut_says_so_and_no_character_is_torn() {
        assert_eq!(printable(b"abcdef", 6, false), "abcdef");
        assert_eq!(printable(b"abcdefg", 6, false), "abc…");
        assert_eq!(printable(b"abc", 6, true), "abc…");
        assert_eq!(printable("ab\u{1b}".as_bytes(), 6, false), "ab…");
        assert_eq!(printable("äöüß".as_bytes(), 6, false), "ä…");
    }

    proptest! {
        #[test]
        fn whatever_comes_the_text_is_printable_and_short(octets: Vec<u8>, most in 3usize..40, is_cut: bool) {
            let text = printable(&octets, most, is_cut);
            // Three octets for one that is no UTF-8: the text grows, and stays within its bound.
            prop_assert!(text.len() <= most && text.chars().all(is_printable), "{text:?}");
        }
    }
}
