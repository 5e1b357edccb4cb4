//! YAML as cloud-init reads it: 1.1, by PyYAML.
//!
//! The parser below follows another version of YAML, in which other words are numbers and booleans. So each unquoted word is first
//! rewritten to the value that cloud-init reads, as a number, a boolean or a quoted text:
//!
//! | written | read as | because |
//! | --- | --- | --- |
//! | `yes`, `Off`, `TRUE` | `true`, `false`, `true` | words of YAML 1.1 |
//! | `y`, `n`, `tRUE` | text | PyYAML leaves them alone |
//! | `0644`, `0b11`, `1_000`, `12:30:45` | 420, 3, 1000, 45045 | octal, binary, with underscores, base 60 |
//! | `08`, `1e3`, `0o17` | text | not a number, or only in YAML 1.2 |
//! | `2026-01-31`, `.inf`, more than 64 bits | text | JSON cannot express it |
//!
//! The output is JSON that PyYAML reads as the same value: texts are quoted, and stay on one line.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use serde_json::{Number, Value};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle};

/// Reads one document.
///
/// # Errors
/// The text is not YAML.
pub(super) fn read(text: &str) -> Result<Value, serde_saphyr::Error> {
    serde_saphyr::from_str(&spelled_out(text).unwrap_or_else(|| text.to_owned()))
}

/// Writes JSON that is also YAML 1.1.
pub(super) fn write(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Yaml::default());
    // Neither serialising a value nor writing to a vector can fail.
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8(bytes).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

/// The same text with each unquoted word rewritten to its value. `None` if the text is not YAML.
fn spelled_out(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    // For each open map, true if its next node is a key. None for a list.
    let mut open: Vec<Option<bool>> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.ok()?;
        match event {
            Event::SequenceStart(..) => open.push(None),
            Event::MappingStart(..) => open.push(Some(true)),
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                pass(&mut open);
            }
            Event::Alias(_) => pass(&mut open),
            Event::Scalar(value, style, _, tag) => {
                let is_key = open.last() == Some(&Some(true));
                pass(&mut open);
                // A word over several lines is not a number, and an empty one has no text to replace. Keys are always text in a
                // cloud-config.
                let is_word = !value.is_empty() && span.slice(text) == Some(&value);
                if !is_key && style == ScalarStyle::Plain && tag.is_none() && is_word {
                    let range = span.byte_range()?;
                    out.push_str(text.get(done..range.start)?);
                    out.push_str(&word(&value).to_string());
                    done = range.end;
                }
            }
            _ => {}
        }
    }
    out.push_str(text.get(done..)?);
    Some(out)
}

/// Records that a node of the innermost list or map has ended.
fn pass(open: &mut [Option<bool>]) {
    if let Some(Some(is_key)) = open.last_mut() {
        *is_key = !*is_key;
    }
}

/// The value of an unquoted word in YAML 1.1.
fn word(text: &str) -> Value {
    match text {
        "~" | "null" | "Null" | "NULL" => return Value::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return true.into(),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return false.into(),
        _ => {}
    }
    let number = integer(text).and_then(Number::from_i128).or_else(|| Number::from_f64(float(text)?));
    number.map_or_else(|| text.into(), Value::Number)
}

fn integer(text: &str) -> Option<i128> {
    let (is_negative, digits) = unsigned(text);
    let in_base = |digits: &str, base: u32| {
        let is_one = digits.chars().all(|c| c == '_' || c.is_digit(base));
        is_one.then(|| i128::from_str_radix(&digits.replace('_', ""), base).ok()).flatten()
    };
    let whole = match digits.strip_prefix('0') {
        Some("") => Some(0),
        Some(rest) => match (rest.strip_prefix('b'), rest.strip_prefix('x')) {
            (Some(rest), _) => in_base(rest, 2),
            (_, Some(rest)) => in_base(rest, 16),
            // Underscores alone add nothing to the 0 before them.
            _ if rest.chars().all(|c| c == '_') => Some(0),
            _ => in_base(rest, 8),
        },
        None => {
            let mut parts = digits.split(':');
            let first = parts.next().filter(|first| first.starts_with(|c: char| c.is_ascii_digit()))?;
            parts.try_fold(in_base(first, 10)?, |whole, part| {
                whole.checked_mul(60)?.checked_add(sixtieth(part)?.into())
            })
        }
    };
    whole.map(|whole| if is_negative { -whole } else { whole })
}

fn float(text: &str) -> Option<f64> {
    let (is_negative, digits) = unsigned(text);
    let (whole, rest) = digits.split_once('.')?;
    let (fraction, exponent) = match rest.split_once(['e', 'E']) {
        Some((fraction, exponent)) => (fraction, Some(exponent)),
        None => (rest, None),
    };
    let is_fraction = fraction.chars().all(|c| c == '_' || c.is_ascii_digit());
    let is_exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']);
        digits.is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()))
    });
    let is_whole = whole.chars().all(|c| c == '_' || c.is_ascii_digit())
        && match whole.is_empty() {
            true => digits.len() == text.len() && fraction.starts_with(|c: char| c.is_ascii_digit()),
            false => whole.starts_with(|c: char| c.is_ascii_digit()),
        };
    if !is_fraction || !is_exponent {
        return None;
    }
    let value: f64 = if is_whole {
        digits.replace('_', "").parse().ok()?
    } else {
        // Base 60, without an exponent.
        let (first, parts) = whole.split_once(':')?;
        let is_first = first.starts_with(|c: char| c.is_ascii_digit())
            && first.chars().all(|c| c == '_' || c.is_ascii_digit());
        if exponent.is_some() || !is_first {
            return None;
        }
        let first: f64 = first.replace('_', "").parse().ok()?;
        let whole = parts
            .split(':')
            .try_fold(first, |whole, part| Some(whole * 60.0 + f64::from(sixtieth(part)?)))?;
        let fraction: f64 = format!("0.{}0", fraction.replace('_', "")).parse().ok()?;
        whole + fraction
    };
    Some(if is_negative { -value } else { value })
}

/// One or two digits of base 60.
fn sixtieth(text: &str) -> Option<u8> {
    let is_one = (1..=2).contains(&text.len()) && text.chars().all(|c| c.is_ascii_digit());
    text.parse().ok().filter(|part| is_one && *part < 60)
}

/// The text without its sign, and true if the sign is a minus.
fn unsigned(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// JSON over several lines, which PyYAML also reads.
#[derive(Default)]
struct Yaml {
    pretty: PrettyFormatter<'static>,
}

/// True for characters that end a line in PyYAML, also within quotes, or that it does not accept.
fn is_awkward(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

impl Formatter for Yaml {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        for part in fragment.split_inclusive(is_awkward) {
            match part.chars().next_back().filter(|c| is_awkward(*c)) {
                Some(last) => {
                    let plain = part.strip_suffix(last).unwrap_or_default();
                    write!(out, "{plain}\\u{:04x}", u32::from(last))?;
                }
                None => out.write_all(part.as_bytes())?,
            }
        }
        Ok(())
    }

    /// `1.0e+20`: without the point or the sign PyYAML would read a text.
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        let mut text = Vec::new();
        CompactFormatter.write_f64(&mut text, value)?;
        let text = String::from_utf8_lossy(&text);
        let Some((mantissa, exponent)) = text.split_once('e') else { return out.write_all(text.as_bytes()) };
        let point = if mantissa.contains('.') { "" } else { ".0" };
        let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
        write!(out, "{mantissa}{point}e{sign}{exponent}")
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.pretty.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.pretty.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.pretty.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.pretty.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.pretty.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.pretty.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.pretty.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.pretty.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.pretty.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Words, and their values by PyYAML's `yaml.safe_load`.
    fn words() -> Vec<(&'static str, Value)> {
        vec![
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("ON", json!(true)),
            ("no", json!(false)),
            ("True", json!(true)),
            ("~", Value::Null),
            ("Null", Value::Null),
            ("0644", json!(0o644)),
            ("-0644", json!(-0o644)),
            ("0_7", json!(7)),
            ("0_", json!(0)),
            ("0b1_1", json!(3)),
            ("0xFF", json!(255)),
            ("1_000", json!(1000)),
            ("+12", json!(12)),
            ("12:30:45", json!(45045)),
            ("-1:30", json!(-90)),
            ("18446744073709551615", json!(u64::MAX)),
            ("1.5", json!(1.5)),
            ("1_0.", json!(10.0)),
            (".5", json!(0.5)),
            ("1.5e+3", json!(1500.0)),
            ("1:30.5", json!(90.5)),
        ]
    }

    const TEXTS: [&str; 26] = [
        "y",
        "n",
        "Y",
        "N",
        "yEs",
        "tRUE",
        "nULL",
        "08",
        "0o17",
        "0X1F",
        "1e3",
        "1.5e3",
        "-.5",
        "07:30",
        "1:60",
        "1:2a",
        "2026-01-31",
        ".inf",
        "-.inf",
        ".nan",
        "18446744073709551616",
        "=",
        "1.2.3",
        "10.0.0.1",
        "_1",
        "0b2",
    ];

    #[test]
    fn an_unquoted_word_is_what_cloud_init_takes_it_for() {
        for (text, want) in words() {
            assert_eq!(read(&format!("a: {text}")).expect(text), json!({ "a": want }), "{text}");
            assert_eq!(read(&format!("a: [{text}, x]")).expect(text), json!({"a": [want, "x"]}), "{text}");
        }
        for text in TEXTS {
            assert_eq!(read(&format!("- {text} # so")).expect(text), json!([text]), "{text}");
        }
    }

    #[test]
    fn a_quoted_word_is_a_text_and_is_written_as_one() {
        for text in words().iter().map(|(text, _)| *text).chain(TEXTS) {
            for given in [
                format!("a: '{text}'"),
                format!("a: \"{text}\""),
                format!("a: !!str {text}"),
                format!("a: |-\n  {text}"),
            ] {
                let value = read(&given).expect(&given);
                assert_eq!(value, json!({ "a": text }), "{given}");
                assert_eq!(write(&value), format!("{{\n  \"a\": \"{text}\"\n}}"), "{given}");
            }
        }
    }

    #[test]
    fn keys_anchors_and_what_is_merged_stay_what_they_are() {
        let given = "base: &base {lock_passwd: no, on: yes}\nuser:\n  <<: *base\n  groups: &g wheel\n  same: *g\nempty:\n\
                     nested: {[a, b]: off}\n";
        let without = given.replace("nested: {[a, b]: off}\n", "");
        let base = json!({"lock_passwd": false, "on": true});
        let user = json!({"lock_passwd": false, "on": true, "groups": "wheel", "same": "wheel"});
        assert_eq!(read(&without).expect("YAML"), json!({"base": base, "user": user, "empty": null}));
        assert!(read(given).is_err(), "no JSON has a list for a key");
    }

    #[test]
    fn texts_of_several_lines_are_texts() {
        let given = "a: yes\n  no\nb: >\n  on\n  off\nc: 'yes\n\n  no'\n";
        assert_eq!(read(given).expect("YAML"), json!({"a": "yes no", "b": "on off\n", "c": "yes\nno"}));
    }

    #[test]
    fn what_is_written_is_json_that_means_the_same_to_yaml() {
        let value = json!({"far": 1e20, "near": 2.5e-9, "half": 0.5, "text": "a\u{7f}\u{85}b\u{2028}ü"});
        let text = write(&value);
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
        for want in ["1.0e+20", "2.5e-9", "0.5", r#""a\u007f\u0085b\u2028ü""#] {
            assert!(text.contains(want), "{want}: {text}");
        }
        let plain = json!({"a": [], "b": {}, "c": [1, {"d": [true, null]}], "e": "x"});
        assert_eq!(write(&plain), format!("{plain:#}"), "as it always was");
    }
}
