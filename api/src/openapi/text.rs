//! The document as text for people and for `git diff`: a value that fits on one line is written on one line.

use crate::KINDS;
use serde_json::Value;

/// Most characters of a line.
const WIDTH: usize = 110;

/// The document of every kind that a release knows, as it stands in `docs/reference/openapi.json`.
#[must_use]
pub fn openapi_text() -> String {
    // Test builds have the kind Sample as well.
    let kinds: Vec<_> = KINDS.iter().copied().filter(|kind| kind.name != "Sample").collect();
    let mut text = String::new();
    write(&super::openapi(&kinds), 0, 0, &mut text);
    text.push('\n');
    text
}

/// Writes `value` to a line that already has `used` characters and an indent of `indent`.
fn write(value: &Value, indent: usize, used: usize, to: &mut String) {
    let line = value.to_string();
    if line.chars().count() + indent + used < WIDTH {
        to.push_str(&line);
        return;
    }
    let (open, close, members): (char, char, Vec<(String, &Value)>) = match value {
        Value::Object(map) => (
            '{',
            '}',
            map.iter().map(|(key, value)| (format!("{}: ", Value::from(key.as_str())), value)).collect(),
        ),
        Value::Array(items) => ('[', ']', items.iter().map(|item| (String::new(), item)).collect()),
        _ => return to.push_str(&line),
    };
    to.push(open);
    let inner = indent + 2;
    for (place, (key, value)) in members.iter().enumerate() {
        to.push_str(if place == 0 { "\n" } else { ",\n" });
        to.push_str(&" ".repeat(inner));
        to.push_str(key);
        write(value, inner, key.chars().count(), to);
    }
    to.push('\n');
    to.push_str(&" ".repeat(indent));
    to.push(close);
}
