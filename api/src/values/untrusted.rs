//! Texts from outside: file names that machines ask for, host names, messages of agents and BMCs, words of vendors in inventories.
//!
//! Any host on a network of machines can choose such a text, and a person reads it in a terminal. So it has its own type,
//! [`UntrustedText`]: one line, printable, of bounded length. Rack and region each convert what they receive, and the command escapes
//! whatever it prints.
//!
//! The escape: a character that is not printable becomes its code point in angle brackets, `<U+001B>` for ESC. Printable is what
//! [`str::escape_debug`] leaves: no control, no format (directions of writing, zero width), no private and no unassigned character, and no
//! space but U+0020. The escape is for people and cannot be undone: a text may contain `<U+001B>` as it stands. Escaped again it stays the
//! same, so that rack, region and command may each do it. It is valid within JSON.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Stands at the end of a text that was cut.
const CUT: char = '…';

/// A name from outside: of a file, a host, a stage, a disk.
pub type UntrustedName = UntrustedText<256>;
/// A message from outside: a sentence of an agent, a BMC or a rack.
pub type UntrustedMessage = UntrustedText<4096>;

/// One printable line of at most `MAX` characters, however it was made. A longer one is cut and ends with `…`.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UntrustedText<const MAX: usize>(String);

impl<const MAX: usize> UntrustedText<MAX> {
    /// The text as people may see it.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut kept = String::new();
        // The end of the text if it has to be cut, with room for the mark.
        let (mut characters, mut cut) = (0, 0);
        for c in text.chars() {
            let added = push(&mut kept, c);
            if characters + added > MAX {
                kept.truncate(cut);
                kept.push(CUT);
                break;
            }
            characters += added;
            if characters < MAX {
                cut = kept.len();
            }
        }
        Self(kept)
    }

    /// Bytes that should be UTF-8; what is not is shown as U+FFFD.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self::new(&String::from_utf8_lossy(bytes))
    }

    /// The text, escaped and cut.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> std::ops::Deref for UntrustedText<MAX> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}
impl<const MAX: usize> From<&str> for UntrustedText<MAX> {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}
impl<const MAX: usize> From<String> for UntrustedText<MAX> {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}
impl<const MAX: usize> From<UntrustedText<MAX>> for String {
    fn from(text: UntrustedText<MAX>) -> Self {
        text.0
    }
}
impl<const MAX: usize> PartialEq<str> for UntrustedText<MAX> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}
impl<const MAX: usize> PartialEq<&str> for UntrustedText<MAX> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}
impl<const MAX: usize> fmt::Display for UntrustedText<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
impl<const MAX: usize> fmt::Debug for UntrustedText<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
impl<const MAX: usize> Serialize for UntrustedText<MAX> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}
impl<'de, const MAX: usize> Deserialize<'de> for UntrustedText<MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::new(&Cow::<'de, str>::deserialize(from)?))
    }
}

/// A text of any length as one printable line: for cells of tables, and for logs.
#[must_use]
pub fn printable_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_printable)
}

/// A text of any length that may have line breaks and tabs: for whole answers, and for outputs of scripts.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t') || is_printable(c))
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_kept) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if is_kept(c) {
            escaped.push(c);
        } else {
            push(&mut escaped, c);
        }
    }
    Cow::Owned(escaped)
}

/// Makes every text and every name within a document from outside an [`UntrustedMessage`].
#[must_use]
pub fn untrusted_json(document: Value) -> Value {
    match document {
        Value::String(text) => Value::String(UntrustedMessage::from(text).into()),
        Value::Array(items) => Value::Array(items.into_iter().map(untrusted_json).collect()),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| (UntrustedMessage::from(name).into(), untrusted_json(value)))
                .collect(),
        ),
        other => other,
    }
}

/// Appends a character, escaped where it has to be; answers how many characters that made.
fn push(to: &mut String, c: char) -> usize {
    if is_printable(c) {
        to.push(c);
        return 1;
    }
    let before = to.len();
    // Writing to a string cannot fail.
    let _ = write!(to, "<U+{:04X}>", u32::from(c));
    to.len() - before
}

fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // An accent is printable where it has a letter to join.
    let text: String = ['a', c].into_iter().collect();
    text.escape_debug().nth(2).is_none()
}

/// Writes log lines: of each write, which is a line, only the line break at its end is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrintableLog<W>(pub W);

impl<W: io::Write> io::Write for PrintableLog<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
        let mut printable = printable_line(text).into_owned();
        printable.push_str(end);
        self.0.write_all(printable.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::io::Write;

    /// Clears the screen, forges a line, and turns the direction of writing: by ASCII and by C1 controls.
    const HOSTILE: &str = "a\u{1b}[2J\r\nok\u{9b}1m\u{202e}b\u{2028}";

    #[test]
    fn a_hostile_name_is_one_printable_line_that_shows_what_it_was() {
        let expected = "a<U+001B>[2J<U+000D><U+000A>ok<U+009B>1m<U+202E>b<U+2028>";
        assert_eq!(UntrustedName::new(HOSTILE), expected);
        assert_eq!(printable_line(HOSTILE), expected);
        assert_eq!(printable_lines("a\tb\n\u{1b}c\r\n"), "a\tb\n<U+001B>c<U+000D>\n");
        assert_eq!(UntrustedName::from_bytes(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn words_of_any_language_stay_as_they_are() {
        for word in ["Größe \"x\" \\ 'y'", "名前", "नमस्ते", "e\u{301}", "→ 240 °C", "<U+001B>"]
        {
            assert_eq!(UntrustedName::new(word), word);
            assert!(matches!(printable_line(word), Cow::Borrowed(_)));
        }
    }

    #[test]
    fn a_text_that_is_cut_says_so_and_no_escape_is_torn() {
        assert_eq!(UntrustedText::<4>::new("abcd"), "abcd");
        assert_eq!(UntrustedText::<4>::new("abcde"), "abc…");
        assert_eq!(UntrustedText::<9>::new("a\u{1b}"), "a<U+001B>");
        assert_eq!(UntrustedText::<9>::new("ab\u{1b}"), "ab…");
        assert_eq!(UntrustedName::new(&"\u{1b}".repeat(1 << 20)).chars().count(), 31 * 8 + 1);
    }

    #[test]
    fn a_document_is_cleaned_in_every_depth_its_names_too() {
        let document = json!({"disks": [{"serial": HOSTILE, "size": 1}], "\u{7}": null, "ok": true});
        let cleaned = untrusted_json(document);
        let serial = cleaned.pointer("/disks/0/serial").and_then(Value::as_str);
        assert_eq!(serial, Some(UntrustedName::new(HOSTILE).as_str()));
        assert_eq!((cleaned.get("<U+0007>"), cleaned.get("ok")), (Some(&Value::Null), Some(&json!(true))));
    }

    #[test]
    fn what_is_read_is_clean_however_it_was_written() {
        let read: UntrustedName = serde_json::from_value(json!(HOSTILE)).unwrap();
        assert_eq!(read, UntrustedName::new(HOSTILE));
    }

    #[test]
    fn a_log_line_is_one_line_and_json_stays_json() {
        let mut log = PrintableLog(Vec::new());
        log.write_all(b"asked for a\nFORGED\x1b[1m\n").unwrap();
        log.write_all("{\"file\":\"a\u{9b}b\"}\n".as_bytes()).unwrap();
        let written = String::from_utf8(log.0).unwrap();
        assert_eq!(written, "asked for a<U+000A>FORGED<U+001B>[1m\n{\"file\":\"a<U+009B>b\"}\n");
    }

    proptest! {
        #[test]
        fn of_whatever_text_it_is_short_printable_and_made_once(text in any::<String>()) {
            let once = UntrustedText::<16>::new(&text);
            prop_assert!(once.chars().count() <= 16 && once.chars().all(is_printable));
            prop_assert_eq!(&UntrustedText::<16>::new(&once), &once);
            let line = printable_line(&text);
            prop_assert!(line.chars().all(is_printable));
            prop_assert_eq!(printable_line(&line), &*line);
        }
    }
}
