//! Changes one value inside a JSON text and keeps every other byte.
//!
//! Specs are stored as they were declared. Two things must still change in place: a secret becomes its read form, and
//! a reference follows a rename.

use std::collections::BTreeMap;
use std::ops::Range;

/// The largest depth of nested objects and arrays.
const MAX_DEPTH: usize = 64;
/// Limits the total length of all pointers, in bytes, for a text from outside: the first number times the length of the text, plus the
/// second number. The pointer of a value repeats the names around it: without a limit, a name of 1 MB around 500,000 numbers takes 500 GB.
const POINTERS: (usize, usize) = (16, 4096);

/// The reason why a text cannot be indexed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    /// An object has the same member twice.
    #[error("{0} stands twice")]
    Duplicate(String),
    /// The text is nested deeper than 64 levels.
    #[error("{0} is nested too deeply")]
    TooDeep(String),
    /// Too many values have too long names around them.
    #[error("the names around the values in {0} are too long in all")]
    TooLong(String),
    /// The text is not JSON.
    #[error("not JSON at byte {0}")]
    Syntax(usize),
}

/// A JSON text with the position of each of its values.
#[derive(Clone, Debug)]
pub struct Text {
    text: String,
    spans: BTreeMap<String, Range<usize>>,
}

impl Text {
    /// Indexes a text of this program, or one that was [received](Self::received) before.
    ///
    /// # Errors
    /// Fails if the text is not JSON, has a member twice, or is nested too deeply.
    pub fn parse(text: impl Into<String>) -> Result<Self, SpliceError> {
        Self::within(text.into(), usize::MAX)
    }

    /// Indexes a text from outside. The memory for it is limited by its length.
    ///
    /// # Errors
    /// Like [`Self::parse`]; fails too if the names around the values are too long in all.
    pub fn received(text: impl Into<String>) -> Result<Self, SpliceError> {
        let (text, (each, beside)) = (text.into(), POINTERS);
        let room = text.len().saturating_mul(each).saturating_add(beside);
        Self::within(text, room)
    }

    fn within(text: String, room: usize) -> Result<Self, SpliceError> {
        let mut scan = Scan { bytes: text.as_bytes(), text: &text, at: 0, spans: BTreeMap::new(), room };
        scan.value(&mut String::new(), 0)?;
        scan.space();
        if scan.at != text.len() {
            return Err(SpliceError::Syntax(scan.at));
        }
        let spans = scan.spans;
        Ok(Self { text, spans })
    }

    /// The whole text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text of the value at `pointer` (RFC 6901).
    #[must_use]
    pub fn get(&self, pointer: &str) -> Option<&str> {
        self.text.get(self.spans.get(pointer)?.clone())
    }

    /// The position of the value at `pointer`.
    pub(crate) fn span(&self, pointer: &str) -> Option<Range<usize>> {
        self.spans.get(pointer).cloned()
    }

    /// All pointers of the text.
    pub fn pointers(&self) -> impl Iterator<Item = &str> {
        self.spans.keys().map(String::as_str)
    }

    /// Replaces the value at `pointer`, or adds it to its object. If there is no such object, nothing changes.
    ///
    /// # Errors
    /// Fails if `json` is not JSON.
    pub fn set(self, pointer: &str, json: &str) -> Result<Self, SpliceError> {
        if let Some(span) = self.spans.get(pointer) {
            let (before, after) = (self.text.get(..span.start), self.text.get(span.end..));
            return Self::parse([before.unwrap_or_default(), json, after.unwrap_or_default()].concat());
        }
        let Some((parent, key)) = pointer.rsplit_once('/') else { return Ok(self) };
        let Some(span) = self.spans.get(parent) else { return Ok(self) };
        let inside =
            self.text.get(span.start.saturating_add(1)..span.end.saturating_sub(1)).unwrap_or_default();
        if self.text.as_bytes().get(span.start) != Some(&b'{') {
            return Ok(self);
        }
        let key = serde_json::Value::from(key.replace("~1", "/").replace("~0", "~"));
        let comma = if inside.trim().is_empty() { "" } else { "," };
        let at = span.start.saturating_add(1).saturating_add(inside.trim_end().len());
        let (before, after) = self.text.split_at_checked(at).ok_or(SpliceError::Syntax(at))?;
        Self::parse(format!("{before}{comma}{key}:{json}{after}"))
    }
}

/// A recursive scan; depth is bounded, and every byte is read once.
struct Scan<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    spans: BTreeMap<String, Range<usize>>,
    /// The number of bytes that further pointers may have.
    room: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), SpliceError> {
        self.space();
        if self.peek() != Some(byte) {
            return Err(SpliceError::Syntax(self.at));
        }
        self.at += 1;
        Ok(())
    }

    /// Steps over a comma or the closing byte. Returns true at the closing byte.
    fn ends(&mut self, close: u8) -> Result<bool, SpliceError> {
        self.space();
        match self.peek() {
            Some(b',') => self.at += 1,
            Some(byte) if byte == close => {
                self.at += 1;
                return Ok(true);
            }
            _ => return Err(SpliceError::Syntax(self.at)),
        }
        Ok(false)
    }

    fn value(&mut self, pointer: &mut String, depth: usize) -> Result<(), SpliceError> {
        if depth > MAX_DEPTH {
            return Err(SpliceError::TooDeep(pointer.clone()));
        }
        self.space();
        let start = self.at;
        match self.peek() {
            Some(b'{') => self.object(pointer, depth)?,
            Some(b'[') => self.array(pointer, depth)?,
            Some(b'"') => drop(self.string()?),
            Some(_) => self.scalar()?,
            None => return Err(SpliceError::Syntax(start)),
        }
        let left = self.room.checked_sub(pointer.len());
        self.room = left.ok_or_else(|| SpliceError::TooLong(above_long_names(pointer)))?;
        if self.spans.insert(pointer.clone(), start..self.at).is_some() {
            return Err(SpliceError::Duplicate(pointer.clone()));
        }
        Ok(())
    }

    fn object(&mut self, pointer: &mut String, depth: usize) -> Result<(), SpliceError> {
        self.expect(b'{')?;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            let key = self.string()?;
            self.expect(b':')?;
            self.within(pointer, &key.replace('~', "~0").replace('/', "~1"), depth)?;
            if self.ends(b'}')? {
                return Ok(());
            }
        }
    }

    fn array(&mut self, pointer: &mut String, depth: usize) -> Result<(), SpliceError> {
        self.expect(b'[')?;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        for index in 0usize.. {
            self.within(pointer, &index.to_string(), depth)?;
            if self.ends(b']')? {
                break;
            }
        }
        Ok(())
    }

    fn within(&mut self, pointer: &mut String, step: &str, depth: usize) -> Result<(), SpliceError> {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(step);
        self.value(pointer, depth.saturating_add(1))?;
        pointer.truncate(length);
        Ok(())
    }

    fn string(&mut self) -> Result<String, SpliceError> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(SpliceError::Syntax(start));
        }
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err(SpliceError::Syntax(self.at)),
            }
        }
        self.at += 1;
        let text = self.text.get(start..self.at).ok_or(SpliceError::Syntax(start))?;
        serde_json::from_str(text).map_err(|_| SpliceError::Syntax(start))
    }

    /// A number, true, false or null.
    fn scalar(&mut self) -> Result<(), SpliceError> {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.')) {
            self.at += 1;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        serde_json::from_str::<serde_json::Value>(text).map(drop).map_err(|_| SpliceError::Syntax(start))
    }
}

/// The part of a pointer before its first long name.
fn above_long_names(pointer: &str) -> String {
    const LONG: usize = 256;
    let steps = pointer.split('/').skip(1).take_while(|step| step.len() <= LONG);
    steps.fold(String::new(), |above, step| above + "/" + step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{ \"a\" :1.50,\n  \"b/c\": {\"d\": [ \"x\\\"\", {\"e\": null} ]}, \"f\": { } }";

    #[test]
    fn every_value_is_found_where_it_stands() {
        let text = Text::parse(TEXT).unwrap();
        for (pointer, value) in
            [("/a", "1.50"), ("/b~1c/d/0", "\"x\\\"\""), ("/b~1c/d/1/e", "null"), ("/f", "{ }")]
        {
            assert_eq!(text.get(pointer), Some(value), "{pointer}");
        }
        assert_eq!(text.get(""), Some(TEXT));
        assert_eq!(text.get("/b~1c/d/2"), None);
    }

    #[test]
    fn long_names_around_many_values_are_refused_before_they_fill_the_memory() {
        let around = |name: usize, values: usize| {
            let (name, zeros) = ("x".repeat(name), ",0".repeat(values));
            Text::received(format!("{{\"a\":{{\"{name}\":[0{zeros}]}}}}"))
        };
        assert_eq!(around(100_000, 100_000).unwrap_err(), SpliceError::TooLong("/a".to_owned()));
        assert!(around(20, 4096).is_ok());
        assert!(around(4000, 10).is_ok());
        let nested = format!("{}1{}", "{\"name\":".repeat(60), "}".repeat(60));
        assert!(Text::received(nested).is_ok());
    }

    #[test]
    fn a_change_touches_no_other_byte() {
        let changed = Text::parse(TEXT).unwrap().set("/b~1c/d/0", "\"y\"").unwrap();
        assert_eq!(changed.as_str(), TEXT.replace("\"x\\\"\"", "\"y\""));
    }

    #[test]
    fn an_absent_member_is_added_at_the_end_of_its_object() {
        let set = |text: &str, pointer, json| Text::parse(text).unwrap().set(pointer, json).unwrap().text;
        assert_eq!(set(r#"{"a": {}}"#, "/a/b", "1"), r#"{"a": {"b":1}}"#);
        assert_eq!(set(r#"{"a": {"x": 2 }}"#, "/a/b", "1"), r#"{"a": {"x": 2,"b":1 }}"#);
        assert_eq!(set(r#"{"a": 1}"#, "/b/c", "1"), r#"{"a": 1}"#);
        assert_eq!(set(r#"{"a": [1]}"#, "/a/c", "1"), r#"{"a": [1]}"#);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        assert_eq!(Text::parse(r#"{"a":1,"a":2}"#).unwrap_err(), SpliceError::Duplicate("/a".to_owned()));
        assert_eq!(
            Text::parse(r#"{"a":1,"\u0061":2}"#).unwrap_err(),
            SpliceError::Duplicate("/a".to_owned())
        );
        assert!(matches!(Text::parse("[".repeat(1000)).unwrap_err(), SpliceError::TooDeep(_)));
        for bad in ["", "{", "{\"a\"", "[1,]", "{\"a\":}", "tru", "1 2", "\"\\", "{\"a\" 1}", "[1 2]"] {
            assert!(Text::parse(bad).is_err(), "{bad}");
        }
    }
}
